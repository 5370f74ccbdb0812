// The helper functions of emitted C, as text in which $S is the function specifier, $T the type, $N
// its name and $U the unsigned type of its width.
#include "target/c/writer.h"

#include <string.h>

static const char *const memory_types[KILN_N_DTYPES] = {
    [KILN_F64] = "double",    [KILN_F32] = "float",    [KILN_F16] = "uint16_t",
    [KILN_BF16] = "uint16_t", [KILN_I8] = "int8_t",    [KILN_I16] = "int16_t",
    [KILN_I32] = "int32_t",   [KILN_I64] = "int64_t",  [KILN_U8] = "uint8_t",
    [KILN_U16] = "uint16_t",  [KILN_U32] = "uint32_t", [KILN_U64] = "uint64_t",
    [KILN_BOOL] = "uint8_t"};

const char *kiln_c_memory_type(kiln_dtype t) {
  return memory_types[kiln_dtype_is_code(t) ? KILN_U8 : t];
}

const char *kiln_c_value_type(kiln_dtype t) {
  if (t == KILN_BOOL) return "bool";
  return kiln_dtype_is_half(t) ? "float" : kiln_c_memory_type(t);
}

typedef struct row {
  const char *name;
  const char *of_signed, *of_unsigned, *of_float; // the function's text; NULL if it is not needed
} row;

// clang-format off
static const row rows[KILN_N_C_HELPERS] = {
  [KILN_C_SMALL] = {"kiln_small_float", NULL, NULL,
    "// Rounds to nearest even: sign, exponent, |fraction| bits; |lowest| is the least normal exponent.\n"
    "$S uint16_t kiln_small_float(double x, int fraction, int lowest, uint16_t infinity) {\n"
    "  const uint16_t sign = signbit(x) ? 0x8000 : 0;\n"
    "  int exponent;\n"
    "  if (isnan(x)) return (uint16_t)(sign | infinity | 1u << (fraction - 1));\n"
    "  if (isinf(x)) return (uint16_t)(sign | infinity);\n"
    "  frexp(x, &exponent);\n"
    "  exponent = exponent - 1 > lowest && x != 0 ? exponent - 1 : lowest;\n"
    "  const double units = rint(ldexp(fabs(x), fraction - exponent));\n"
    "  const double bits = ldexp(exponent - lowest, fraction) + units;\n"
    "  return (uint16_t)(sign | (bits >= infinity ? infinity : (uint16_t)bits));\n"
    "}\n"},
  [KILN_C_TO_HALF] = {"kiln_to", NULL, NULL, NULL}, // defined by the dialect
  [KILN_C_TO_HALF_F64] = {"kiln_to_wide", NULL, NULL, NULL},
  [KILN_C_OF_HALF] = {"kiln_of", NULL, NULL, NULL},
  [KILN_C_SATURATE] = {"kiln_saturate",
    "$S $T kiln_saturate_$N(double x) {\n"
    "  if (x != x) return 0;\n"
    "  if (x >= $G) return $M;\n"
    "  return x < -$G ? -$M - 1 : ($T)x;\n"
    "}\n",
    "$S $T kiln_saturate_$N(double x) {\n"
    "  if (!(x > 0)) return 0;\n"
    "  return x >= $G ? $M : ($T)x;\n"
    "}\n", NULL},
  [KILN_C_SATURATE_F32] = {"kiln_saturate_float",
    "$S $T kiln_saturate_float_$N(float x) {\n"
    "  if (x != x) return 0;\n"
    "  if (x >= $Gf) return $M;\n"
    "  return x < -$Gf ? -$M - 1 : ($T)x;\n"
    "}\n",
    "$S $T kiln_saturate_float_$N(float x) {\n"
    "  if (!(x > 0)) return 0;\n"
    "  return x >= $Gf ? $M : ($T)x;\n"
    "}\n", NULL},
  [KILN_C_DIV] = {"kiln_div",
    "// Rounds down; x / 0 = 0.\n"
    "$S $T kiln_div_$N($T a, $T b) {\n"
    "  if (b == 0) return 0;\n"
    "  if (b == -1) return ($T)(0 - ($U)a);\n"
    "  return ($T)(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));\n"
    "}\n",
    "// x / 0 = 0.\n"
    "$S $T kiln_div_$N($T a, $T b) { return ($T)(b ? a / b : 0); }\n", NULL},
  [KILN_C_MOD] = {"kiln_mod",
    "// Takes the sign of b; x % 0 = 0.\n"
    "$S $T kiln_mod_$N($T a, $T b) {\n"
    "  if (b == 0 || b == -1) return 0;\n"
    "  const $T r = ($T)(a % b);\n"
    "  return ($T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);\n"
    "}\n",
    "// x % 0 = 0.\n"
    "$S $T kiln_mod_$N($T a, $T b) { return ($T)(b ? a % b : 0); }\n",
    "// Takes the sign of b, a zero too.\n"
    "$S $T kiln_mod_$N($T a, $T b) {\n"
    "  const $T r = $Ffmod$f(a, b);\n"
    "  if (r == 0) return b < 0 ? -($T)0 : ($T)0;\n"
    "  return (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"},
  [KILN_C_TDIV] = {"kiln_tdiv",
    "// Rounds towards zero; x / 0 = 0.\n"
    "$S $T kiln_tdiv_$N($T a, $T b) {\n"
    "  if (b == 0) return 0;\n"
    "  return ($T)(b == -1 ? 0 - ($U)a : ($U)(a / b));\n"
    "}\n",
    "// x / 0 = 0.\n"
    "$S $T kiln_tdiv_$N($T a, $T b) { return ($T)(b ? a / b : 0); }\n", NULL},
  [KILN_C_REM] = {"kiln_rem",
    "// Takes the sign of a; x % 0 = 0.\n"
    "$S $T kiln_rem_$N($T a, $T b) { return ($T)(b == 0 || b == -1 ? 0 : a % b); }\n",
    "// x % 0 = 0.\n"
    "$S $T kiln_rem_$N($T a, $T b) { return ($T)(b ? a % b : 0); }\n", NULL},
  [KILN_C_MIN] = {"kiln_min",
    "$S $T kiln_min_$N($T a, $T b) { return a < b ? a : b; }\n",
    "$S $T kiln_min_$N($T a, $T b) { return a < b ? a : b; }\n",
    "// NaN if either is.\n"
    "$S $T kiln_min_$N($T a, $T b) { return a < b || a != a ? a : b; }\n"},
  [KILN_C_MAX] = {"kiln_max",
    "$S $T kiln_max_$N($T a, $T b) { return a > b ? a : b; }\n",
    "$S $T kiln_max_$N($T a, $T b) { return a > b ? a : b; }\n",
    "// NaN if either is.\n"
    "$S $T kiln_max_$N($T a, $T b) { return a > b || a != a ? a : b; }\n"},
  [KILN_C_POW] = {"kiln_pow",
    "// Wraps; negative powers round towards zero.\n"
    "$S $T kiln_pow_$N($T a, $T b) {\n"
    "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
    "  uint64_t power = 1, base = (uint64_t)a;\n"
    "  for (uint64_t n = (uint64_t)b; n > 0; n >>= 1, base *= base) power *= n & 1 ? base : 1;\n"
    "  return ($T)power;\n"
    "}\n",
    "// Wraps.\n"
    "$S $T kiln_pow_$N($T a, $T b) {\n"
    "  uint64_t power = 1, base = a;\n"
    "  for (uint64_t n = b; n > 0; n >>= 1, base *= base) power *= n & 1 ? base : 1;\n"
    "  return ($T)power;\n"
    "}\n", NULL},
  [KILN_C_SHL] = {"kiln_shl",
    "$S $T kiln_shl_$N($T a, $T b) { return ($T)(($U)b < $B ? (uint64_t)a << b : 0); }\n",
    "$S $T kiln_shl_$N($T a, $T b) { return ($T)(b < $B ? (uint64_t)a << b : 0); }\n", NULL},
  [KILN_C_SHR] = {"kiln_shr",
    "$S $T kiln_shr_$N($T a, $T b) { return ($T)(a >> (($U)b < $B ? b : $B - 1)); }\n",
    "$S $T kiln_shr_$N($T a, $T b) { return ($T)(b < $B ? a >> b : 0); }\n", NULL},
  [KILN_C_ABS] = {"kiln_abs",
    "$S $T kiln_abs_$N($T a) { return ($T)(a < 0 ? 0 - ($U)a : ($U)a); }\n", NULL, NULL},
  [KILN_C_SIGN] = {"kiln_sign",
    "$S $T kiln_sign_$N($T a) { return ($T)((a > 0) - (a < 0)); }\n",
    "$S $T kiln_sign_$N($T a) { return a != 0; }\n",
    "$S $T kiln_sign_$N($T a) { return a != a ? a : ($T)((a > 0) - (a < 0)); }\n"},
  [KILN_C_BITS] = {"kiln_bits", NULL, NULL,
    "$S $U kiln_bits_$N($T x) {\n"
    "  union { $T x; $U bits; } both;\n"
    "  both.x = x;\n"
    "  return both.bits;\n"
    "}\n"},
  [KILN_C_OF_BITS] = {"kiln_of_bits", NULL, NULL,
    "$S $T kiln_of_bits_$N($U bits) {\n"
    "  union { $T x; $U bits; } both;\n"
    "  both.bits = bits;\n"
    "  return both.x;\n"
    "}\n"},
};
// clang-format on

static const char *text_of(const kiln_c_dialect *d, kiln_c_helper h, kiln_dtype t) {
  const int half = t == KILN_BF16;
  if (h == KILN_C_OF_HALF) return d->of_half[half];
  if (h == KILN_C_TO_HALF) return d->to_half[half];
  if (h == KILN_C_TO_HALF_F64) return d->to_half_f64[half];
  const bool is_extreme = t == KILN_F32 && (h == KILN_C_MIN || h == KILN_C_MAX);
  if (is_extreme && d->extremes[h == KILN_C_MAX]) return d->extremes[h == KILN_C_MAX];
  if (kiln_dtype_is_float(t)) return rows[h].of_float;
  return kiln_dtype_kind(t) == KILN_KIND_INT ? rows[h].of_signed : rows[h].of_unsigned;
}

const char *kiln_c_helper_of(kiln_ctx *cx, kiln_c_prelude *p, kiln_c_helper h, kiln_dtype t) {
  const bool is_half = kiln_dtype_is_half(t);
  const bool of_halves = h == KILN_C_TO_HALF || h == KILN_C_TO_HALF_F64 || h == KILN_C_OF_HALF;
  if (h == KILN_C_TO_HALF && !p->dialect->avoids_f64) p->used[KILN_C_SMALL][KILN_F64] = true;
  if (h == KILN_C_TO_HALF_F64) p->used[KILN_C_TO_HALF][t] = true; // its text may call it
  if (!of_halves && is_half) t = KILN_F32;                        // halves are computed as f32
  KILN_ASSERT(text_of(p->dialect, h, t) != NULL);
  p->used[h][t] = true;
  return kiln_arena_printf(&cx->scratch, "%s_%s", rows[h].name, kiln_dtype_text(t));
}

// Writes a placeholder for type |t|: its unsigned type for $U, 2^bits of its range for $G, its
// largest value for $M, ...
static void put_part(const kiln_c_dialect *d, char part, kiln_dtype t, kiln_text *out) {
  const int bits = 8 * kiln_dtype_bytes(t);
  const bool is_signed = kiln_dtype_kind(t) == KILN_KIND_INT;
  if (part == 'S') kiln_text_add(out, d->function);
  if (part == 'T') kiln_text_add(out, kiln_c_memory_type(t));
  if (part == 'N') kiln_text_add(out, kiln_dtype_text(t));
  if (part == 'U') kiln_text_printf(out, "uint%d_t", bits);
  if (part == 'B') kiln_text_printf(out, "%d", bits);
  if (part == 'G') kiln_text_printf(out, "0x1p%d", is_signed ? bits - 1 : bits);
  if (part == 'M') kiln_text_printf(out, "%sINT%d_MAX", is_signed ? "" : "U", bits);
  if (part == 'F') kiln_text_add(out, d->math_prefix);
  if (part == 'f') kiln_text_add(out, t == KILN_F32 ? d->float_suffix : d->wide_suffix);
  if (part == 'H') kiln_text_add(out, t == KILN_F16 ? "10, -14, 0x7c00" : "7, -126, 0x7f80");
}

static void print_helper(const kiln_c_dialect *d, const char *text, kiln_dtype t, kiln_text *out) {
  for (const char *at = text; *at; at++) {
    if (*at == '$') put_part(d, *++at, t, out);
    else kiln_text_add_bytes(out, at, 1);
  }
}

void kiln_c_prelude_print(const kiln_c_prelude *p, kiln_text *out) {
  for (int h = 0; h < KILN_N_C_HELPERS; h++) {
    for (int t = 0; t < KILN_N_DTYPES; t++) {
      if (!p->used[h][t]) continue;
      kiln_text_add(out, "\n");
      print_helper(p->dialect, text_of(p->dialect, (kiln_c_helper)h, (kiln_dtype)t), (kiln_dtype)t,
                   out);
    }
  }
}
