#!/usr/bin/env bash
# Runs the tests of a build: tools/test.sh BUILD_DIR
set -euo pipefail
build=$1
ctest --test-dir "$build" --output-on-failure -j "$(nproc)"
