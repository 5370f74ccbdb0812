#!/usr/bin/env bash
# Runs the tests of a build: tools/test.sh BUILD_DIR [short|long|all]
#   short  (default) a share of the cases that are alike, without what is labelled long: minutes
#   long   what is labelled long alone
#   all    every case of every test
set -euo pipefail
build=$1
case ${2:-short} in
short) which=(-LE long) ;;
long) which=(-L long) ;;
all) which=() && export KILN_TEST_SHARE=1 ;;
*) echo "test.sh: the second argument must be short, long or all, got $2" >&2 && exit 2 ;;
esac
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "${which[@]}"
