#!/bin/sh
# Every C source must be as clang-format leaves it. Skipped (77) without clang-format 14 or newer.
set -eu
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "${version:-0}" -lt 14 ]; then
  echo "format: skipped: there is no clang-format 14 or newer"
  exit 77
fi
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
# Columns at most: 100, which clang-format keeps but for comments and strings; 120 in tables that are aligned by hand.
long=$(git ls-files '*.c' '*.h' '*.cpp' | xargs awk '
  FNR == 1 { most = 100 }
  /clang-format off/ { most = 120 }
  /clang-format on/ { most = 100 }
  length > most { print FILENAME ":" FNR ": a line must keep to " most " columns, got " length }')
[ -z "$long" ] || { echo "$long"; exit 1; }
