#!/bin/sh
# Installs the wheels of tools/wheels.py with each Python that is named, each in an environment of its own, and runs the package's
# tests there, ONNX Runtime with Kiln as provider among them, and the commands of README, docs/guide/python.md and, with an
# ONNX Runtime that loads providers (1.23 on), docs/guide/onnxruntime.md. kiln-runtime alone must say that kiln-compiler is
# lacking: tools/try_wheels.sh build/wheels python3.9 python3.11 python3.13
set -eu
wheels=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
unset KILN_LIBRARY
export KILN_CACHE_DIR=
for python in "$@"; do
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  "$python" -m venv "$folder/.venv"
  install="$folder/.venv/bin/python -m pip install -q --disable-pip-version-check"
  $install "$wheels"/kiln_runtime-*.whl
  (cd "$folder" && ! .venv/bin/python -c 'import kiln; kiln.ort_library()' 2>said && grep -q "pip install kiln-compiler" said) || {
    echo "try_wheels: without kiln-compiler kiln.ort_library() must say that it is lacking" >&2
    exit 1
  }
  $install "$wheels"/kiln_*.whl onnx onnxruntime pytest ml_dtypes mypy
  ort=
  "$folder/.venv/bin/python" -c 'import onnxruntime as o; o.register_execution_provider_library' 2>/dev/null &&
    ort=docs/guide/onnxruntime.md
  echo "== $("$folder/.venv/bin/python" --version), $("$folder/.venv/bin/kiln" version | head -1)"
  (cd "$root" && python3 test/cli/pages.py --venv "$folder/.venv" "$folder/.venv/bin/kiln" README.md docs/guide/python.md $ort)
  (cd "$folder" && KILN_TEST_INSTALLED=1 .venv/bin/python -m pytest -q -rs -p no:cacheprovider "$root/python/tests")
  rm -rf "$folder"
done
