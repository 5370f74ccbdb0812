// Expressions as C. Values have the types of memory, except that half types are float, and bool is
// bool. Integers wrap by unsigned types unless their ranges exclude overflow.
#include "target/c/writer.h"
#include "support/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Operator precedence, weakest first.
typedef enum prec { TERNARY, OR, AND, COMPARE, SUM, PRODUCT, UNARY, ATOM } prec;

static bool is_named(const kiln_c_writer *w, const kiln_expr *e) {
  const uint64_t *temp = kiln_map_find(&w->temps, e->id);
  return temp && *temp;
}

static void put(kiln_c_writer *w, const kiln_expr *e, prec least);

// --- index arithmetic in int ---

static bool fits_int(kiln_interval i) { return i.lo > INT32_MIN && i.hi < INT32_MAX; }

// Operators whose result needs no cast to its type.
static bool is_plain_arithmetic(kiln_expr_kind k) {
  return k == KILN_EXPR_INT || k == KILN_EXPR_VAR || (k >= KILN_EXPR_ADD && k <= KILN_EXPR_MOD) ||
         k == KILN_EXPR_MIN || k == KILN_EXPR_MAX || k == KILN_EXPR_SELECT;
}

bool kiln_c_is_narrow(kiln_c_writer *w, const kiln_expr *e) {
  if (!w->dialect->is_narrow || e->dtype != KILN_I64 || e->has_load) return false;
  if (!is_plain_arithmetic(e->kind)) return false;
  for (int i = e->kind == KILN_EXPR_SELECT; i < e->n_args; i++)
    if (!kiln_c_is_narrow(w, e->args[i])) return false;
  return fits_int(kiln_expr_interval(w->cx, e, &w->ranges));
}

static const char *type_of(kiln_c_writer *w, const kiln_expr *e) {
  return kiln_c_is_narrow(w, e) ? "int" : kiln_c_value_type(e->dtype);
}

// --- constants ---

// The shortest decimal that reads back as |x|.
static void put_float(kiln_c_writer *w, kiln_dtype t, double x) {
  char text[40];
  const bool wide = t == KILN_F64;
  if (isnan(x) || isinf(x)) {
    kiln_text_add(w->out, isnan(x) ? "NAN" : x < 0 ? "-INFINITY" : "INFINITY");
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    kiln_number_format(text, sizeof text, "%.*g", digits, x);
    if (wide ? kiln_number_parse(text, NULL) == x : kiln_number_parse_f32(text) == (float)x) break;
  }
  kiln_text_add(w->out, text);
  if (!strpbrk(text, ".e")) kiln_text_add(w->out, ".0");
  if (!wide) kiln_text_add(w->out, "f");
}

// |bare|: without a suffix, because an operand of the type is beside it.
static void put_int(kiln_c_writer *w, kiln_dtype t, int64_t x, bool bare) {
  const bool narrow = w->dialect->is_narrow && fits_int((kiln_interval){x, x});
  if (t == KILN_BOOL) {
    kiln_text_add(w->out, x ? "true" : "false");
  } else if (t == KILN_U64 || t == KILN_U32) {
    kiln_text_printf(w->out, t == KILN_U64 && !bare ? "UINT64_C(%" PRIu64 ")" : "%" PRIu64 "u",
                     (uint64_t)x);
  } else if (x == INT64_MIN) {
    kiln_text_add(w->out, "INT64_MIN");
  } else {
    const bool plain = bare || narrow || t != KILN_I64;
    kiln_text_printf(w->out, plain ? "%" PRId64 : "INT64_C(%" PRId64 ")", x);
  }
}

static bool is_negative_text(const kiln_expr *e) {
  if (e->kind == KILN_EXPR_FLOAT) return signbit(e->u.f) && !isnan(e->u.f);
  return e->kind == KILN_EXPR_INT && e->u.i < 0 && kiln_dtype_kind(e->dtype) == KILN_KIND_INT;
}

// An operand beside |other|.
static void put_operand(kiln_c_writer *w, const kiln_expr *e, const kiln_expr *other, prec least) {
  if (e->kind != KILN_EXPR_INT || other->kind == KILN_EXPR_INT) {
    put(w, e, least);
    return;
  }
  const bool closed = is_negative_text(e) && least > SUM;
  if (closed) kiln_text_add(w->out, "(");
  put_int(w, e->dtype, e->u.i, true);
  if (closed) kiln_text_add(w->out, ")");
}

// --- operators ---

static void put_infix(kiln_c_writer *w, const kiln_expr *e, const char *op, prec level) {
  // operands may be ints although the result is not
  const bool widens = w->dialect->is_narrow && e->dtype == KILN_I64 && !kiln_c_is_narrow(w, e);
  if (widens) kiln_text_add(w->out, "(int64_t)");
  put_operand(w, e->args[0], e->args[1], widens ? UNARY : level);
  kiln_text_printf(w->out, " %s ", op);
  put_operand(w, e->args[1], e->args[0], level + 1);
}

static void put_call(kiln_c_writer *w, const char *name, const kiln_expr *e) {
  kiln_text_printf(w->out, "%s(", name);
  for (int i = 0; i < e->n_args; i++) {
    if (i > 0) kiln_text_add(w->out, ", ");
    put(w, e->args[i], TERNARY);
  }
  kiln_text_add(w->out, ")");
}

static void put_helper(kiln_c_writer *w, kiln_c_helper h, const kiln_expr *e) {
  const kiln_dtype t = kiln_c_is_narrow(w, e) ? KILN_I32 : e->args[0]->dtype;
  put_call(w, kiln_c_helper_of(w->cx, w->prelude, h, t), e);
}

// Whether the exact result of +, - or * is within the type, by the operands' ranges.
static bool is_exact(kiln_c_writer *w, const kiln_expr *e) {
  const bool is_index = e->dtype == KILN_I64 && !e->has_load;
  if (is_index) return true; // arithmetic of loop variables, which are small
  if (e->dtype != KILN_I32 && e->dtype != KILN_I64) return false;
  const kiln_interval a = kiln_expr_interval(w->cx, e->args[0], &w->ranges);
  const kiln_interval b = kiln_expr_interval(w->cx, e->args[1], &w->ranges);
  const int64_t limit = e->dtype == KILN_I32 ? 32767 : INT32_MAX;
  return a.lo >= -limit && a.hi <= limit && b.lo >= -limit && b.hi <= limit;
}

static prec wrapping_prec(kiln_c_writer *w, const kiln_expr *e, prec level) {
  return kiln_dtype_is_float(e->dtype) || is_exact(w, e) ? level : UNARY;
}

static void put_wrapping(kiln_c_writer *w, const kiln_expr *e, const char *op, prec level) {
  if (wrapping_prec(w, e, level) == level) {
    put_infix(w, e, op, level);
    return;
  }
  const char *wide = kiln_dtype_bytes(e->dtype) == 8 ? "uint64_t" : "uint32_t";
  kiln_text_printf(w->out, "(%s)((%s)", kiln_c_value_type(e->dtype), wide);
  put(w, e->args[0], UNARY);
  kiln_text_printf(w->out, " %s (%s)", op, wide);
  put(w, e->args[1], UNARY);
  kiln_text_add(w->out, ")");
}

// Whether C's / and % are right: the dividend is not negative, the divisor a positive constant.
static bool is_plain_division(kiln_c_writer *w, const kiln_expr *e) {
  int64_t by = 0;
  if (e->args[1]->kind != KILN_EXPR_INT || !kiln_expr_is_int(e->args[1], &by) || by <= 0)
    return false;
  if (kiln_dtype_kind(e->dtype) == KILN_KIND_UINT) return e->dtype != KILN_U64 || by > 0;
  return kiln_expr_interval(w->cx, e->args[0], &w->ranges).lo >= 0;
}

// --- values that are rounded to a half type ---

static bool is_exp2(const kiln_expr *e) {
  return e->kind == KILN_EXPR_POW && kiln_dtype_is_float(e->dtype) &&
         e->args[0]->kind == KILN_EXPR_FLOAT && e->args[0]->u.f == 2;
}

static bool has_coarse(const kiln_expr *e) {
  return e->dtype == KILN_F32 && (e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_EXP ||
                                  e->kind == KILN_EXPR_ERF || is_exp2(e));
}

static void find_coarse(const kiln_expr *e, void *argument) { *(bool *)argument |= has_coarse(e); }

// Whether |e| is discontinuous, so that a small error of an operand may become large.
static bool jumps(const kiln_expr *e) {
  return !kiln_dtype_is_float(e->dtype) || e->kind == KILN_EXPR_FLOOR ||
         e->kind == KILN_EXPR_CEIL || e->kind == KILN_EXPR_ROUND || e->kind == KILN_EXPR_TRUNC ||
         e->kind == KILN_EXPR_SIGN || e->kind == KILN_EXPR_MOD || e->kind == KILN_EXPR_FMOD;
}

typedef struct coarseness {
  kiln_ctx *cx;
  bool is_harmful;
} coarseness;

static void find_harm(const kiln_expr *e, void *argument) {
  coarseness *c = argument;
  for (int i = 0; jumps(e) && i < e->n_args; i++)
    kiln_expr_visit(c->cx, e->args[i], find_coarse, &c->is_harmful);
}

bool kiln_c_may_be_coarse(kiln_c_writer *w, const kiln_expr *e) {
  coarseness c = {w->cx, false};
  if (!w->dialect->coarse_exp2) return false;
  kiln_expr_visit(w->cx, e, find_harm, &c);
  return !c.is_harmful;
}

// Whether |e| is 1/(c + e^x) with c >= 1, as in a sigmoid: nothing cancels, and the divisor is not
// tiny.
static bool is_sigmoid(const kiln_expr *e) {
  if (e->kind != KILN_EXPR_DIV || e->dtype != KILN_F32 || e->args[0]->kind != KILN_EXPR_FLOAT ||
      e->args[0]->u.f != 1 || e->args[1]->kind != KILN_EXPR_ADD)
    return false;
  const kiln_expr *c = e->args[1]->args[0];
  return c->kind == KILN_EXPR_FLOAT && c->u.f >= 1 && e->args[1]->args[1]->kind == KILN_EXPR_EXP;
}

// Writes the exponent of a coarse exponential, with one rounding for a product and sum.
static void put_exponent(kiln_c_writer *w, const kiln_expr *e) {
  const bool adds = e->dtype == KILN_F32 &&
                    (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) &&
                    w->dialect->multiply_add[0] && !is_named(w, e);
  const int at = adds && e->args[0]->kind == KILN_EXPR_MUL && !is_named(w, e->args[0]) ? 0 : 1;
  const kiln_expr *product = adds ? e->args[at] : e;
  if (product == e || product->kind != KILN_EXPR_MUL || is_named(w, product)) {
    put(w, e, TERNARY);
    return;
  }
  const bool subtracts = e->kind == KILN_EXPR_SUB;
  kiln_text_printf(w->out, "%s(%s", w->dialect->multiply_add[0], subtracts && at == 1 ? "-" : "");
  put(w, product->args[0], ATOM);
  kiln_text_add(w->out, ", ");
  put(w, product->args[1], TERNARY);
  kiln_text_add(w->out, subtracts && at == 0 ? ", -" : ", ");
  put(w, e->args[1 - at], ATOM);
  kiln_text_add(w->out, ")");
}

// Writes |e| by the dialect's coarse function; false if there is none.
static bool put_coarse(kiln_c_writer *w, const kiln_expr *e) {
  if (!w->is_coarse || !has_coarse(e)) return false;
  const kiln_c_dialect *d = w->dialect;
  if (e->kind == KILN_EXPR_ERF) {
    put_call(w, d->coarse_erf, e);
  } else if (e->kind == KILN_EXPR_DIV && e->args[1]->kind == KILN_EXPR_FLOAT &&
             isnormal((float)(1 / e->args[1]->u.f))) {
    put(w, e->args[0], PRODUCT);
    kiln_text_add(w->out, " * ");
    put_float(w, KILN_F32, 1 / e->args[1]->u.f);
  } else if (e == w->sigmoid) {
    kiln_text_printf(w->out, "%s(", d->coarse_reciprocal);
    put(w, e->args[1], TERNARY);
    kiln_text_add(w->out, ")");
  } else if (e->kind == KILN_EXPR_DIV) {
    put_call(w, d->coarse_divide, e);
  } else {
    const bool is_exp = e->kind == KILN_EXPR_EXP;
    kiln_text_printf(w->out, is_exp ? "%s(0x1.715476p+0f * (" : "%s(", d->coarse_exp2); // log2(e)
    put_exponent(w, e->args[is_exp ? 0 : 1]);
    kiln_text_add(w->out, is_exp ? "))" : ")");
  }
  return true;
}

static void put_division(kiln_c_writer *w, const kiln_expr *e, const char *op, kiln_c_helper h) {
  const bool is_float = kiln_dtype_is_float(e->dtype);
  if ((is_float && h == KILN_C_DIV) || (!is_float && is_plain_division(w, e)))
    put_infix(w, e, op, PRODUCT);
  else put_helper(w, h, e);
}

static bool is_wide(const kiln_expr *e) { return e->dtype == KILN_F64; }

static const char *math_name(kiln_c_writer *w, const char *name, const kiln_expr *e) {
  const kiln_c_dialect *d = w->dialect;
  return kiln_arena_printf(&w->cx->scratch, "%s%s%s", d->math_prefix, name,
                           is_wide(e) ? d->wide_suffix : d->float_suffix);
}

static void put_libm(kiln_c_writer *w, const char *name, const kiln_expr *e) {
  put_call(w, math_name(w, name, e), e);
}

static void put_rounding(kiln_c_writer *w, const kiln_expr *e, const char *name) {
  if (kiln_dtype_is_float(e->dtype)) put_libm(w, name, e);
  else put(w, e->args[0], UNARY); // integers are unchanged
}

static void put_bits(kiln_c_writer *w, const kiln_expr *e, const char *op, const char *of_bool) {
  if (e->dtype == KILN_BOOL) {
    kiln_text_add(w->out, "(");
    put(w, e->args[0], UNARY);
    kiln_text_printf(w->out, " %s ", of_bool);
    put(w, e->args[1], UNARY);
    kiln_text_add(w->out, ")");
    return;
  }
  kiln_text_printf(w->out, "(%s)(", kiln_c_value_type(e->dtype));
  put(w, e->args[0], UNARY);
  kiln_text_printf(w->out, " %s ", op);
  put(w, e->args[1], UNARY);
  kiln_text_add(w->out, ")");
}

static void put_extreme(kiln_c_writer *w, const kiln_expr *e, kiln_c_helper h) {
  if (e->dtype == KILN_BOOL) put_bits(w, e, "", h == KILN_C_MIN ? "&&" : "||");
  else put_helper(w, h, e);
}

static void put_negation(kiln_c_writer *w, const kiln_expr *e) {
  const kiln_expr *a = e->args[0];
  if (kiln_dtype_is_float(e->dtype)) {
    kiln_text_add(w->out, "-");
    put(w, a, ATOM);
    return;
  }
  const char *wide = kiln_dtype_bytes(e->dtype) == 8 ? "uint64_t" : "uint32_t";
  kiln_text_printf(w->out, "(%s)(0 - (%s)", kiln_c_value_type(e->dtype), wide);
  put(w, a, UNARY);
  kiln_text_add(w->out, ")");
}

static void put_not(kiln_c_writer *w, const kiln_expr *e) {
  const bool is_bool = e->dtype == KILN_BOOL;
  if (!is_bool) kiln_text_printf(w->out, "(%s)", kiln_c_value_type(e->dtype));
  kiln_text_add(w->out, is_bool ? "!" : "~");
  put(w, e->args[0], ATOM);
}

static void put_absolute(kiln_c_writer *w, const kiln_expr *e) {
  if (kiln_dtype_is_float(e->dtype)) put_libm(w, "fabs", e);
  else if (kiln_dtype_kind(e->dtype) == KILN_KIND_INT) put_helper(w, KILN_C_ABS, e);
  else put(w, e->args[0], UNARY);
}

static void put_class(kiln_c_writer *w, const kiln_expr *e, const char *name) {
  if (kiln_dtype_is_float(e->args[0]->dtype)) {
    kiln_text_printf(w->out, "(%s", name);
    kiln_text_add(w->out, "(");
    put(w, e->args[0], TERNARY);
    kiln_text_add(w->out, ") != 0)");
  } else {
    kiln_text_add(w->out, "false");
  }
}

// Whether a value must be rounded to a half type from f64, because f32 would round it first.
static bool needs_f64(const kiln_c_writer *w, const kiln_expr *e) {
  const kiln_dtype from = e->args[0]->dtype;
  if (!w->dialect->avoids_f64) return true;
  if (kiln_dtype_is_float(from)) return from == KILN_F64;
  return e->dtype == KILN_BF16 &&
         kiln_dtype_bytes(from) >= 4; // above f32's exact integers, f16 is infinite
}

// The sigmoid that is a factor of |e|; NULL if there is none.
static kiln_search find_sigmoid(const kiln_expr *e, void *argument) {
  (void)argument;
  if (is_sigmoid(e)) return KILN_SEARCH_ENDS;
  return e->kind == KILN_EXPR_MUL ? KILN_SEARCH_INTO : KILN_SEARCH_PAST;
}

static const kiln_expr *sigmoid_in(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_expr_search(cx, e, find_sigmoid, NULL);
}

void kiln_c_rounding(kiln_c_writer *w, const kiln_expr *e) {
  const kiln_expr *a = e->args[0], *const was_sigmoid = w->sigmoid;
  const bool from_float = kiln_dtype_is_float(a->dtype), was_coarse = w->is_coarse;
  if (!from_float) kiln_text_add(w->out, needs_f64(w, e) ? "(double)" : "(float)");
  w->is_coarse = was_coarse || kiln_c_may_be_coarse(w, a);
  w->sigmoid = sigmoid_in(w->cx, a);
  put(w, a, from_float ? TERNARY : UNARY);
  w->is_coarse = was_coarse;
  w->sigmoid = was_sigmoid;
}

void kiln_c_rounded(kiln_c_writer *w, const kiln_expr *e) {
  const kiln_c_helper round =
      needs_f64(w, e) && w->dialect->avoids_f64 ? KILN_C_TO_HALF_F64 : KILN_C_TO_HALF;
  kiln_text_printf(w->out, "%s(", kiln_c_helper_of(w->cx, w->prelude, round, e->dtype));
  kiln_c_rounding(w, e);
  kiln_text_add(w->out, ")");
}

static void put_cast(kiln_c_writer *w, const kiln_expr *e) {
  const kiln_expr *a = e->args[0];
  const bool to_half = kiln_dtype_is_half(e->dtype);
  const bool from_float = kiln_dtype_is_float(a->dtype);
  if (e->dtype == KILN_BOOL) {
    kiln_text_add(w->out, "(");
    put(w, a, UNARY);
    kiln_text_add(w->out, " != 0)");
  } else if (to_half) {
    kiln_text_printf(w->out, "%s(", kiln_c_helper_of(w->cx, w->prelude, KILN_C_OF_HALF, e->dtype));
    kiln_c_rounded(w, e);
    kiln_text_add(w->out, ")");
  } else if (from_float && !kiln_dtype_is_float(e->dtype)) {
    const bool of_f32 = w->dialect->avoids_f64 && a->dtype != KILN_F64;
    put_call(w,
             kiln_c_helper_of(w->cx, w->prelude, of_f32 ? KILN_C_SATURATE_F32 : KILN_C_SATURATE,
                              e->dtype),
             e);
  } else if (strcmp(kiln_c_value_type(e->dtype), kiln_c_value_type(a->dtype)) == 0) {
    put(w, a, UNARY);
  } else {
    kiln_text_printf(w->out, "(%s)", kiln_c_value_type(e->dtype));
    put(w, a, UNARY);
  }
}

// The bits of a half type are its stored form; a minifloat is a byte.
static void put_reinterpreted(kiln_c_writer *w, const kiln_expr *e) {
  const kiln_dtype from = e->args[0]->dtype;
  const bool to_bits = kiln_dtype_is_float(from);
  const kiln_dtype t = to_bits ? from : e->dtype;
  if (!kiln_dtype_is_float(t)) {
    put(w, e->args[0], UNARY);
    return;
  }
  const bool is_half = kiln_dtype_is_half(t);
  const kiln_c_helper h = is_half   ? to_bits ? KILN_C_TO_HALF : KILN_C_OF_HALF
                          : to_bits ? KILN_C_BITS
                                    : KILN_C_OF_BITS;
  put_call(w, kiln_c_helper_of(w->cx, w->prelude, h, t), e);
}

static void put_select(kiln_c_writer *w, const kiln_expr *e) {
  put(w, e->args[0], OR);
  kiln_text_add(w->out, " ? ");
  put(w, e->args[1], OR);
  kiln_text_add(w->out, " : ");
  put(w, e->args[2], TERNARY);
}

// --- memory ---

const kiln_expr *kiln_c_offset(kiln_c_writer *w, int buffer, const kiln_expr *const *index) {
  const kiln_buffer *b = w->l->buffers.data[buffer];
  const kiln_expr *sum = kiln_int(w->cx, 0);
  for (int k = 0; k < b->rank; k++)
    sum = kiln_add(w->cx, sum, kiln_mul(w->cx, index[k], kiln_int(w->cx, b->strides[k])));
  return kiln_simplify(w->cx, sum, &w->ranges);
}

void kiln_c_element(kiln_c_writer *w, int buffer, const kiln_expr *const *index) {
  const kiln_expr *at = kiln_c_offset(w, buffer, index);
  const kiln_buffer *b = w->l->buffers.data[buffer];
  const bool swizzles = w->swizzles && b->is_swizzled;
  kiln_text_printf(w->out, swizzles ? "%s[kiln_swizzled(" : "%s[",
                   kiln_symbol_text(w->cx, w->buffers[buffer]));
  if (at->kind == KILN_EXPR_INT) put_int(w, KILN_I64, at->u.i, true);
  else put(w, at, TERNARY);
  if (swizzles) // swizzled: the row modulo 8 permutes the 16-byte words within 128 bytes
    kiln_text_printf(w->out, ", %d)", 7 * 16 / kiln_dtype_bytes(b->dtype));
  kiln_text_add(w->out, "]");
}

static void put_load(kiln_c_writer *w, const kiln_expr *e) {
  const bool is_half = kiln_dtype_is_half(e->dtype);
  if (is_half)
    kiln_text_printf(w->out, "%s(", kiln_c_helper_of(w->cx, w->prelude, KILN_C_OF_HALF, e->dtype));
  if (e->dtype == KILN_BOOL) kiln_text_add(w->out, "(");
  kiln_c_element(w, e->u.tensor, e->args);
  if (e->dtype == KILN_BOOL) kiln_text_add(w->out, " != 0)");
  if (is_half) kiln_text_add(w->out, ")");
}

// --- dispatch ---

static prec prec_of(kiln_c_writer *w, const kiln_expr *e) {
  switch (e->kind) {
  case KILN_EXPR_ADD:
  case KILN_EXPR_SUB: return wrapping_prec(w, e, SUM);
  case KILN_EXPR_MUL: return wrapping_prec(w, e, PRODUCT);
  case KILN_EXPR_DIV:
    return kiln_dtype_is_float(e->dtype) || is_plain_division(w, e) ? PRODUCT : ATOM;
  case KILN_EXPR_MOD:
    return !kiln_dtype_is_float(e->dtype) && is_plain_division(w, e) ? PRODUCT : ATOM;
  case KILN_EXPR_LT:
  case KILN_EXPR_LE:
  case KILN_EXPR_GT:
  case KILN_EXPR_GE:
  case KILN_EXPR_EQ:
  case KILN_EXPR_NE: return COMPARE;
  case KILN_EXPR_AND: return AND;
  case KILN_EXPR_OR: return OR;
  case KILN_EXPR_SELECT: return TERNARY;
  case KILN_EXPR_INT:
  case KILN_EXPR_FLOAT: return is_negative_text(e) ? UNARY : ATOM;
  case KILN_EXPR_FLOOR:
  case KILN_EXPR_CEIL:
  case KILN_EXPR_ROUND:
  case KILN_EXPR_TRUNC:
  case KILN_EXPR_ABS: return kiln_dtype_is_float(e->dtype) ? ATOM : UNARY;
  case KILN_EXPR_NEG:
  case KILN_EXPR_NOT:
  case KILN_EXPR_BNOT:
  case KILN_EXPR_CAST:
  case KILN_EXPR_BITCAST:
  case KILN_EXPR_BAND:
  case KILN_EXPR_BOR:
  case KILN_EXPR_BXOR: return UNARY;
  case KILN_EXPR_VAR:
  case KILN_EXPR_LOAD:
  case KILN_EXPR_FMOD:
  case KILN_EXPR_TDIV:
  case KILN_EXPR_MIN:
  case KILN_EXPR_MAX:
  case KILN_EXPR_POW:
  case KILN_EXPR_ATAN2:
  case KILN_EXPR_SHL:
  case KILN_EXPR_SHR:
  case KILN_EXPR_SIGN:
  case KILN_EXPR_SQRT:
  case KILN_EXPR_EXP:
  case KILN_EXPR_EXPM1:
  case KILN_EXPR_LOG:
  case KILN_EXPR_LOG1P:
  case KILN_EXPR_SIN:
  case KILN_EXPR_COS:
  case KILN_EXPR_TAN:
  case KILN_EXPR_ASIN:
  case KILN_EXPR_ACOS:
  case KILN_EXPR_ATAN:
  case KILN_EXPR_SINH:
  case KILN_EXPR_COSH:
  case KILN_EXPR_TANH:
  case KILN_EXPR_ASINH:
  case KILN_EXPR_ACOSH:
  case KILN_EXPR_ATANH:
  case KILN_EXPR_ERF:
  case KILN_EXPR_ISNAN:
  case KILN_EXPR_ISINF:
  case KILN_N_EXPRS: break;
  }
  return ATOM;
}

static void put_pow(kiln_c_writer *w, const kiln_expr *e) {
  if (is_exp2(e)) {
    kiln_text_printf(w->out, "%s(", math_name(w, "exp2", e));
    put(w, e->args[1], TERNARY);
    kiln_text_add(w->out, ")");
  } else if (kiln_dtype_is_float(e->dtype)) put_libm(w, "pow", e);
  else put_helper(w, KILN_C_POW, e);
}

static void put_rem(kiln_c_writer *w, const kiln_expr *e) {
  if (kiln_dtype_is_float(e->dtype)) put_libm(w, "fmod", e);
  else put_helper(w, KILN_C_REM, e);
}

static void put_node(kiln_c_writer *w, const kiln_expr *e) {
  if (put_coarse(w, e)) return;
  switch (e->kind) {
  case KILN_EXPR_INT: put_int(w, e->dtype, e->u.i, false); return;
  case KILN_EXPR_FLOAT: put_float(w, e->dtype, e->u.f); return;
  case KILN_EXPR_VAR: {
    const uint64_t *name = kiln_map_find(&w->names, e->u.sym);
    kiln_text_add(w->out, kiln_symbol_text(w->cx, name ? (kiln_symbol)*name : e->u.sym));
    return;
  }
  case KILN_EXPR_LOAD: put_load(w, e); return;
  case KILN_EXPR_ADD: put_wrapping(w, e, "+", SUM); return;
  case KILN_EXPR_SUB: put_wrapping(w, e, "-", SUM); return;
  case KILN_EXPR_MUL: put_wrapping(w, e, "*", PRODUCT); return;
  case KILN_EXPR_DIV: put_division(w, e, "/", KILN_C_DIV); return;
  case KILN_EXPR_MOD: put_division(w, e, "%", KILN_C_MOD); return;
  case KILN_EXPR_FMOD: put_rem(w, e); return;
  case KILN_EXPR_TDIV: put_helper(w, KILN_C_TDIV, e); return;
  case KILN_EXPR_MIN: put_extreme(w, e, KILN_C_MIN); return;
  case KILN_EXPR_MAX: put_extreme(w, e, KILN_C_MAX); return;
  case KILN_EXPR_POW: put_pow(w, e); return;
  case KILN_EXPR_SHL: put_helper(w, KILN_C_SHL, e); return;
  case KILN_EXPR_SHR: put_helper(w, KILN_C_SHR, e); return;
  case KILN_EXPR_LT:
  case KILN_EXPR_LE:
  case KILN_EXPR_GT:
  case KILN_EXPR_GE:
  case KILN_EXPR_EQ:
  case KILN_EXPR_NE: // bool operands in parentheses: a chain of comparisons looks like a mistake
    put_operand(w, e->args[0], e->args[1], SUM);
    kiln_text_printf(w->out, " %s ", kiln_expr_kind_text(e->kind));
    put_operand(w, e->args[1], e->args[0], SUM);
    return;
  case KILN_EXPR_AND: put_infix(w, e, "&&", AND); return;
  case KILN_EXPR_OR:
    put(w, e->args[0], e->args[0]->kind == KILN_EXPR_AND ? UNARY : OR);
    kiln_text_add(w->out, " || ");
    put(w, e->args[1], e->args[1]->kind == KILN_EXPR_AND ? UNARY : OR + 1);
    return;
  case KILN_EXPR_NOT:
  case KILN_EXPR_BNOT: put_not(w, e); return;
  case KILN_EXPR_BAND: put_bits(w, e, "&", "&&"); return;
  case KILN_EXPR_BOR: put_bits(w, e, "|", "||"); return;
  case KILN_EXPR_BXOR: put_bits(w, e, "^", "!="); return;
  case KILN_EXPR_NEG: put_negation(w, e); return;
  case KILN_EXPR_ABS: put_absolute(w, e); return;
  case KILN_EXPR_SIGN: put_helper(w, KILN_C_SIGN, e); return;
  case KILN_EXPR_ROUND: put_rounding(w, e, "rint"); return;
  case KILN_EXPR_FLOOR:
  case KILN_EXPR_CEIL:
  case KILN_EXPR_TRUNC: put_rounding(w, e, kiln_expr_kind_text(e->kind)); return;
  case KILN_EXPR_ISNAN:
  case KILN_EXPR_ISINF: put_class(w, e, kiln_expr_kind_text(e->kind)); return;
  case KILN_EXPR_SELECT: put_select(w, e); return;
  case KILN_EXPR_CAST: put_cast(w, e); return;
  case KILN_EXPR_BITCAST: put_reinterpreted(w, e); return;
  case KILN_EXPR_ATAN2:
  case KILN_EXPR_SQRT:
  case KILN_EXPR_EXP:
  case KILN_EXPR_EXPM1:
  case KILN_EXPR_LOG:
  case KILN_EXPR_LOG1P:
  case KILN_EXPR_SIN:
  case KILN_EXPR_COS:
  case KILN_EXPR_TAN:
  case KILN_EXPR_ASIN:
  case KILN_EXPR_ACOS:
  case KILN_EXPR_ATAN:
  case KILN_EXPR_SINH:
  case KILN_EXPR_COSH:
  case KILN_EXPR_TANH:
  case KILN_EXPR_ASINH:
  case KILN_EXPR_ACOSH:
  case KILN_EXPR_ATANH:
  case KILN_EXPR_ERF: put_libm(w, kiln_expr_kind_text(e->kind), e); return;
  case KILN_N_EXPRS: return;
  }
}

static void put(kiln_c_writer *w, const kiln_expr *e, prec least) {
  const uint64_t *temp = kiln_map_find(&w->temps, e->id);
  if (temp && *temp) {
    kiln_text_add(w->out, kiln_symbol_text(w->cx, (kiln_symbol)*temp));
    return;
  }
  const bool closed = prec_of(w, e) < least;
  if (closed) kiln_text_add(w->out, "(");
  put_node(w, e);
  if (closed) kiln_text_add(w->out, ")");
}

void kiln_c_expr(kiln_c_writer *w, const kiln_expr *e) { put(w, e, TERNARY); }

// --- common subexpressions ---

typedef struct counter {
  kiln_c_writer *w;
  kiln_map uses;  // by id
  kiln_map sizes; // by id: nodes of the tree, saturating; a named expression counts as one
} counter;

// A branch of a select may load elements that are valid only under its condition.
static bool is_guarded(const kiln_expr *e, int arg) {
  return e->kind == KILN_EXPR_SELECT && arg > 0 && e->args[arg]->has_load;
}

static void count_uses(counter *c, const kiln_expr *e) {
  uint64_t *known = kiln_map_find(&c->uses, e->id);
  if (known) {
    ++*known;
    return;
  }
  kiln_map_put(&c->uses, e->id, 1);
  if (e->kind == KILN_EXPR_LOAD) return; // its address is simplified to another expression
  for (int i = 0; i < e->n_args; i++) count_uses(c, e->args[i]);
}

static uint64_t size_of(counter *c, const kiln_expr *e) {
  if (is_named(c->w, e)) return 1;
  const uint64_t *known = kiln_map_find(&c->sizes, e->id);
  if (known) return *known;
  uint64_t size = 1;
  for (int i = 0; i < e->n_args && size < 1 << 20; i++) size += size_of(c, e->args[i]);
  kiln_map_put(&c->sizes, e->id, size);
  return size;
}

static void name_temp(counter *c, const kiln_expr *e, kiln_symbol name) {
  kiln_map_put(&c->w->temps, e->id, name);
  KILN_VEC_PUSH(&c->w->cx->perm, &c->w->live, e->id);
}

static void name_shared(counter *c, const kiln_expr *e);

static void put_branch(counter *c, const kiln_expr *e, kiln_symbol name) {
  kiln_c_writer *w = c->w;
  const int mark = w->live.n;
  w->depth++;
  name_shared(c, e);
  kiln_c_line(w);
  kiln_text_printf(w->out, "%s = ", kiln_symbol_text(w->cx, name));
  put(w, e, TERNARY);
  kiln_text_add(w->out, ";\n");
  kiln_c_temps_end(w, mark);
  w->depth--;
}

// Marks the subexpressions that |e| evaluates whichever branches its selects choose.
static void mark_strict(counter *c, const kiln_expr *e, kiln_map *seen) {
  if (is_named(c->w, e) || kiln_map_find(seen, e->id)) return;
  kiln_map_put(seen, e->id, 1);
  for (int i = 0; i < e->n_args && e->kind != KILN_EXPR_LOAD; i++)
    if (!is_guarded(e, i)) mark_strict(c, e->args[i], seen);
}

// Names the subexpressions that |e| always evaluates and |other| has, too.
static void name_common(counter *c, const kiln_expr *e, const kiln_map *other, kiln_map *seen) {
  if (is_named(c->w, e) || kiln_map_find(seen, e->id)) return;
  kiln_map_put(seen, e->id, 1);
  if (kiln_map_find(other, e->id)) {
    name_shared(c, e);
    return;
  }
  for (int i = 0; i < e->n_args && e->kind != KILN_EXPR_LOAD; i++)
    if (!is_guarded(e, i)) name_common(c, e->args[i], other, seen);
}

// Names the subexpressions that both branches evaluate before the select; without this, nested
// selects would grow exponentially.
static void name_of_both(counter *c, const kiln_expr *select) {
  kiln_map first, second;
  kiln_map_init(&first, &c->w->cx->scratch);
  kiln_map_init(&second, &c->w->cx->scratch);
  mark_strict(c, select->args[1], &first);
  name_common(c, select->args[2], &first, &second);
}

// Writes a large select as an if statement, so that its branches may have constants of their own.
static void put_choice(counter *c, const kiln_expr *e) {
  kiln_c_writer *w = c->w;
  name_of_both(c, e);
  const kiln_symbol name = kiln_c_identifier(w, "t");
  kiln_c_line(w);
  kiln_text_printf(w->out, "%s %s;\n", type_of(w, e), kiln_symbol_text(w->cx, name));
  kiln_c_line(w);
  kiln_text_add(w->out, "if (");
  put(w, e->args[0], TERNARY);
  kiln_text_add(w->out, ") {\n");
  put_branch(c, e->args[1], name);
  kiln_c_line(w);
  kiln_text_add(w->out, "} else {\n");
  put_branch(c, e->args[2], name);
  kiln_c_line(w);
  kiln_text_add(w->out, "}\n");
  name_temp(c, e, name);
}

static void name_shared(counter *c, const kiln_expr *e) {
  enum { WORTH_A_NAME = 6, WORTH_A_STATEMENT = 40 };
  kiln_c_writer *w = c->w;
  if (is_named(w, e) || e->kind == KILN_EXPR_LOAD) return;
  bool guards = false;
  for (int i = 0; i < e->n_args; i++) {
    guards |= is_guarded(e, i);
    if (!is_guarded(e, i)) name_shared(c, e->args[i]);
  }
  const uint64_t size = size_of(c, e);
  if (guards && size >= WORTH_A_STATEMENT) {
    put_choice(c, e);
    return;
  }
  if (*kiln_map_find(&c->uses, e->id) < 2 || size < WORTH_A_NAME) return;
  const kiln_symbol name = kiln_c_identifier(w, "t");
  kiln_c_line(w);
  kiln_text_printf(w->out, "const %s %s = ", type_of(w, e), kiln_symbol_text(w->cx, name));
  put(w, e, TERNARY);
  kiln_text_add(w->out, ";\n");
  name_temp(c, e, name);
}

int kiln_c_temps_begin(kiln_c_writer *w, int n, const kiln_expr *const *roots) {
  const int mark = w->live.n;
  counter c = {.w = w};
  kiln_map_init(&c.uses, &w->cx->scratch);
  kiln_map_init(&c.sizes, &w->cx->scratch);
  for (int i = 0; i < n; i++) count_uses(&c, roots[i]);
  for (int i = 0; i < n; i++) name_shared(&c, roots[i]);
  return mark;
}

void kiln_c_temps_end(kiln_c_writer *w, int mark) {
  for (int i = mark; i < w->live.n; i++) kiln_map_put(&w->temps, w->live.data[i], 0);
  w->live.n = mark;
}
