#!/bin/sh
# Real models: test/models/models.sh BUILD_DIR
#   - compiling twice gives the same bytes;
#   - a compiled module gives what ONNX Runtime gives (relative L2 error at most 1e-4);
#   - the light_* tests of the ONNX package pass.
# Skipped (77) without the Python environment and the weights that `make test` makes.
set -eu
build=$1
kiln=$build/kiln
python=.venv/bin/python
if ! [ -x "$python" ] || ! [ -f build/models/resnet18_b1.weights ] || ! [ -f build/models/mobilenet_v2_b1.weights ]; then
  echo "models: skipped: make test makes what is needed"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for model in resnet18_b1 mobilenet_v2_b1; do
  "$kiln" compile "build/models/$model.onnx" -o "$scratch/first.so" --threads 2
  "$kiln" compile "build/models/$model.onnx" -o "$scratch/second.so" --threads 2
  cmp "$scratch/first.so" "$scratch/second.so"
  echo "$model: compiles to the same bytes twice"
done

$python bench/compare.py --build "$build" --threads 2 --seconds 0.1 build/models/resnet18_b1.onnx build/models/mobilenet_v2_b1.onnx
data=$($python -c 'import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / "backend/test/data/light")')
$python test/models/light.py "$kiln" "$data"
