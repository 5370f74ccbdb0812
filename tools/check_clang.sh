#!/bin/sh
# Every C source must be clean under clang, too, with the flags of the build.
# Skipped (77) without clang 14 or newer.
set -eu
version=$(clang --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -1)
if [ "${version:-0}" -lt 14 ]; then
  echo "clang: skipped: there is no clang 14 or newer"
  exit 77
fi
flags="-std=gnu17 -D_GNU_SOURCE -DKILN_BUILDING -DKILN_VERSION=\"0\" -DKILN_SOURCE_DIR=\"\" -DSHAKY_OPENCL=\"\" -DFAKE_CUBLASLT=\"\" -DKILN_SONAME=\"\" -DKILN_LIBRARY_FROM_HERE=\"\" -DKILN_WORKER_FROM_HERE=\"\"
-Iinclude -Isrc -Itest -I.
-Wall -Wextra -Wpedantic -Wshadow -Werror -Werror=switch-enum"
flags="$flags -isystem $(llvm-config-19 --includedir)"
# shellcheck disable=SC2086
git ls-files 'src/*.c' 'ops/*.c' 'ort/*.c' 'tools/*.c' 'test/unit/*.c' | xargs -P "$(nproc)" -n 8 clang $flags -fsyntax-only
