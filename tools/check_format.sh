#!/bin/sh
# Every C source must be as clang-format leaves it. Skipped (77) without clang-format 14 or newer.
set -eu
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "${version:-0}" -lt 14 ]; then
  echo "format: skipped: there is no clang-format 14 or newer"
  exit 77
fi
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
long=$(git ls-files '*.c' '*.h' '*.cpp' | xargs awk 'length > 100 && /^ *\/\// {print FILENAME ":" FNR ": a comment must keep to 100 columns"}')
[ -z "$long" ] || { echo "$long"; exit 1; }
