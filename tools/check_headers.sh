#!/bin/sh
# Every public header must compile alone, as C17 and as C++17: tools/check_headers.sh CC CXX
set -eu
for header in include/kiln/*.h; do
  name=kiln/$(basename "$header")
  echo "#include \"$name\"" | "$1" -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c -
  echo "#include \"$name\"" | "$2" -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ -
done
