// Boundary conditions: an extension of a tensor by p elements before and after each axis. P =
// repeat_edge(I, 1, 1) is read as P(h - 1, w + 1), and a stencil of radius 1 over P is as large as
// I. They are maps, which are inlined into readers.
//
// source: Halide's BoundaryConditions
#include "tc/library.h"

#include <string.h>

// clang-format off
const char kiln_tc_library_text[] =
    "\n# v outside\n"
    "def constant_exterior(T(N...) X, T v, size p...) -> (T Y) {\n"
    "  Y(i...) = all(i... >= 0 && i... < N...) ? X(i...) : v\n"
    "      where i... in -p... : N... + p... for N...\n"
    "}\n"
    "\n# a a|a b c d|d d\n"
    "def repeat_edge(T(N...) X, size p...) -> (T Y) {\n"
    "  Y(i...) = X(min(max(i..., 0), N... - 1)) where i... in -p... : N... + p... for N...\n"
    "}\n"
    "\n# c d|a b c d|a b\n"
    "def repeat_image(T(N...) X, size p...) -> (T Y) {\n"
    "  Y(i...) = X(i... % N...) where i... in -p... : N... + p... for N...\n"
    "}\n"
    "\n# b a|a b c d|d c\n"
    "def mirror_image(T(N...) X, size p...) -> (T Y) {\n"
    "  Y(i...) = X(min(i... % (2 * N...), 2 * N... - 1 - i... % (2 * N...)))\n"
    "      where i... in -p... : N... + p... for N...\n"
    "}\n"
    "\n# c b|a b c d|c b\n"
    "def mirror_interior(T(N...) X, size p...) -> (T Y) {\n"
    "  Y(i...) = X(min(i... % (2 * N... - 2), 2 * N... - 2 - i... % (2 * N... - 2)))\n"
    "      where i... in -p... : N... + p... for N...\n"
    "}\n";
// clang-format on

bool kiln_tc_library_has(const char *name) {
  size_t n = strlen(name);
  for (const char *at = kiln_tc_library_text; (at = strstr(at, "\ndef ")) != NULL;) {
    at += strlen("\ndef ");
    if (strncmp(at, name, n) == 0 && at[n] == '(') return true;
  }
  return false;
}
