// C17 as a dialect of the emitter.
#include "target/c/writer.h"

// clang-format off
const kiln_c_dialect kiln_c17 = {
  // Conditions that the loops' ranges decide are intended, as are arrays that are written before
  // they are read in an order that a compiler cannot prove.
  .head =
    "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
    "#include <string.h>\n\n"
    "// Written by a program: what its ranges decide is no mistake.\n"
    "#pragma GCC diagnostic ignored \"-Wtype-limits\"\n"
    "#pragma GCC diagnostic ignored \"-Wtautological-compare\"\n"
    "#pragma GCC diagnostic ignored \"-Wbool-compare\"\n"
    "#pragma GCC diagnostic ignored \"-Wmaybe-uninitialized\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n"
    "#ifdef __clang__\n#pragma STDC FP_CONTRACT OFF\n#endif\n",
  .function = "static inline", .math_prefix = "", .float_suffix = "f", .wide_suffix = "", .aligned = "_Alignas(64)",
  .restricted = "restrict",
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) {\n"
    "  const uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;\n"
    "  const float tiny = (float)fraction * 0x1p-24f;\n"
    "  if (exponent == 0) return sign ? -tiny : tiny;\n"
    "  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;\n"
    "  float f;\n"
    "  memcpy(&f, &bits, sizeof f);\n"
    "  return f;\n"
    "}\n",
    "$S float kiln_of_bf16(uint16_t h) {\n"
    "  const uint32_t bits = (uint32_t)h << 16;\n"
    "  float f;\n"
    "  memcpy(&f, &bits, sizeof f);\n"
    "  return f;\n"
    "}\n"},
  .to_half = {
    "$S uint16_t kiln_to_$N(double x) { return kiln_small_float(x, $H); }\n",
    "$S uint16_t kiln_to_$N(double x) { return kiln_small_float(x, $H); }\n"},
};
