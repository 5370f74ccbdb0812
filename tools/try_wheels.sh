#!/bin/sh
# Installs the wheels of tools/wheels.py with each Python that is named, each in an environment of its own, and runs the README's
# commands and the package's tests there: tools/try_wheels.sh build/wheels python3.9 python3.11 python3.13
set -eu
wheels=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
for python in "$@"; do
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  "$python" -m venv "$folder/env"
  "$folder/env/bin/python" -m pip install -q --disable-pip-version-check "$wheels"/kiln_*.whl onnx pytest ml_dtypes
  echo "== $("$folder/env/bin/python" --version), $("$folder/env/bin/kiln" version | head -1)"
  unset KILN_LIBRARY
  export KILN_CACHE_DIR=
  (cd "$root" && PATH="$folder/env/bin:$PATH" python3 test/cli/pages.py "$folder/env/bin/kiln" README.md)
  (cd "$folder" && KILN_TEST_INSTALLED=1 env/bin/python -m pytest -q -p no:cacheprovider "$root/python/tests")
done
