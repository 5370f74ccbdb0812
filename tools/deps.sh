#!/bin/sh
# Installs the packages that Kiln is built and tested with (Debian 12), or says what is missing elsewhere.
#   tools/deps.sh            installs what is missing
#   tools/deps.sh --check    only says what is missing; exit 1 if anything is
#   tools/deps.sh chromium   installs that, too, which only `make test-report` needs (300 MB)
set -eu

packages="gcc g++ cmake ninja-build pkg-config binutils llvm-19-dev libzstd-dev zlib1g-dev libisl-dev coinor-libcbc-dev libhwloc-dev
libjansson-dev libsqlite3-dev libzip-dev libcmocka-dev libprotobuf-c-dev protobuf-c-compiler libonnx-testdata
libdnnl-dev libopenblas-dev pocl-opencl-icd qemu-user clang-format python3 python3-venv python3-numpy"

[ "${1:-}" != chromium ] || packages="$packages chromium fonts-dejavu-core"

if ! command -v dpkg-query >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  echo "deps: this is no Debian system; install the equivalents of:" $packages >&2
  exit 1
fi

missing=""
for p in $packages; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "${1:-}" = "--check" ]; then
  echo "deps: missing:$missing" >&2
  exit 1
fi

sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
echo "deps: installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
