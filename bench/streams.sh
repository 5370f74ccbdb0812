#!/bin/sh
# Throughput of several sessions of one model on a GPU, each with its stream, against one session.
#   bench/streams.sh MODEL.onnx [TARGET]      TARGET: cuda (default), cuda:sm_90a, opencl
# Needs the GPU of TARGET; KILN names the command (build/kiln).
set -eu
model=$1 target=${2:-cuda} kiln=${KILN:-build/kiln}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$kiln" compile "$model" --target="$target" -o "$folder/m.kmod"
for n in 1 2 4 8; do
  echo "--- $n streams"
  "$kiln" bench "$folder/m.kmod" --streams $n --duration 3 --export-times "$folder/times.json"
done
