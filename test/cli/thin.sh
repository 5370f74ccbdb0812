#!/usr/bin/env bash
# The command without libkiln.so beside it: modules run, what needs the compiler says what is missing.
#   test/cli/thin.sh KILN MODEL.onnx
set -euo pipefail
kiln=$1 model=$2
[ -f "$model" ] || exit 77
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$kiln" compile "$model" -o "$folder/m.so"
cp "$kiln" "$folder/kiln"
"$folder/kiln" run "$folder/m.so" >"$folder/alone"
"$kiln" run "$folder/m.so" | cmp - "$folder/alone"
code=0
"$folder/kiln" compile "$model" -o "$folder/n.so" 2>"$folder/message" || code=$?
[ "$code" = 1 ] && [ ! -e "$folder/n.so" ] && grep -q 'error: compiler: libkiln.so.1 must be beside' "$folder/message"
