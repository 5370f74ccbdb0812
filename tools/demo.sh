#!/bin/sh
# The demo: compile a model for this machine, check it against the reference interpreter, time it, show its kernels.
set -eu
model=$1
kiln=build/kiln
"$kiln" version
echo
echo "== compile"
"$kiln" compile "$model" -o build/demo.so --time-passes
ls -l build/demo.so | awk '{printf "module       %9.1f MB\n", $5 / 1e6}'
echo
echo "== check against the reference interpreter (double precision)"
"$kiln" run "$model" --reference --fill random --seed 1
echo
echo "== time"
"$kiln" bench build/demo.so --iterations 50 --profile
