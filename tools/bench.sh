#!/usr/bin/env bash
# What the runtime costs; then Kiln against its peers: GEMM against OpenBLAS and oneDNN, the kernels of Tensor Comprehensions against
# NumPy, ONNX Runtime and gcc, schedules against each other, then whole models against ONNX Runtime.
#   tools/bench.sh [THREADS...]     thread counts of the models (2 and 1)
set -euo pipefail
build/wakeup_bench
build/gemm_bench
bench/dot.py
bench/tc.py
bench/schedules.py
models=$(grep -v '^#' bench/models.txt)
for m in $models; do
  [ -f "build/models/$m.weights" ] || /usr/bin/python3 models/weights.py build/models "$m" >/dev/null
done
for threads in "${@:-2 1}"; do
  for t in $threads; do
    # shellcheck disable=SC2086,SC2046
    bench/compare.py --threads "$t" --json "build/compare_$t.json" $(printf 'build/models/%s.onnx ' $models)
  done
done
