#!/bin/sh
# clang-tidy on every C source, or on those that are named: tools/tidy.sh [FILE...]
# The checks are those of .clang-tidy. Skipped (77) without clang-tidy-19.
set -eu
if ! command -v clang-tidy-19 >/dev/null 2>&1; then
  echo "tidy: skipped: there is no clang-tidy-19"
  exit 77
fi
flags="-std=gnu17 -D_GNU_SOURCE -DKILN_BUILDING -DKILN_VERSION=\"0\" -DKILN_SOURCE_DIR=\"\" -DSHAKY_OPENCL=\"\" -DFAKE_CUBLASLT=\"\"
-Iinclude -Isrc -Itest -I. -isystem $(llvm-config-19 --includedir)"
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.c' 'ops/*.c' 'tools/*.c')
export flags
# shellcheck disable=SC2016
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 4 sh -c 'clang-tidy-19 --quiet "$@" -- $flags 2>/dev/null' tidy
