// Rounding error analysis of bytecode; see rounding_error.h.
#include "analysis/rounding_error.h"

#include "ir/fold.h"

#include <float.h>
#include <math.h>

// Largest errors of functions, in units of rounding: libraries guarantee 4 ULP, for pow 16.
enum { DIVISION_UNITS = 2, FUNCTION_UNITS = 8, POWER_UNITS = 32 };

static const kiln_error exact = {0, 0}, unknown = {INFINITY, INFINITY};

static bool is_exact(kiln_error e) { return e.worst == 0 && e.typical == 0; }

double kiln_error_tolerance(kiln_error e) {
  const double likely = KILN_ERROR_SPREAD * e.typical;
  return e.worst < likely ? e.worst : likely;
}

// hypot without overflow; of two tiny numbers, the greater.
static double root_sum(double a, double b) {
  const double most = a > b ? a : b;
  if (a == 0 || b == 0) return most;
  const double all = sqrt(a * a + b * b);
  return all > most ? all : most;
}

static kiln_error scaled(kiln_error e, double factor) {
  const double f = fabs(factor);
  if (is_exact(e) || f == 0) return exact;
  return (kiln_error){e.worst * f, e.typical * f};
}

static kiln_error both(kiln_error a, kiln_error b) {
  if (is_exact(a)) return b;
  if (is_exact(b)) return a;
  return (kiln_error){a.worst + b.worst, root_sum(a.typical, b.typical)};
}

static kiln_error greater(kiln_error a, kiln_error b) {
  return (kiln_error){fmax(a.worst, b.worst), fmax(a.typical, b.typical)};
}

// --- rounding ---

// Half types are computed in f32.
double kiln_error_unit(kiln_dtype t) { return t == KILN_F64 ? DBL_EPSILON / 2 : FLT_EPSILON / 2; }
static double stored_unit(kiln_dtype t) {
  if (t == KILN_F16) return 0x1p-11;
  if (t == KILN_BF16) return 0x1p-8;
  return kiln_error_unit(t);
}
// Distance of neighbouring subnormal numbers of the type.
static double least_step(kiln_dtype t) {
  if (t == KILN_F16) return 0x1p-24;
  if (t == KILN_F64) return 0x1p-1074;
  return 0x1p-133; // bf16's, which is greater than f32's
}
static double greatest(kiln_dtype t) {
  if (t == KILN_F16) return 65504;
  return t == KILN_F64 ? DBL_MAX : FLT_MAX;
}

// A rounding error is at most one unit; uniformly distributed, its deviation is 1/sqrt(3) of that.
static kiln_error with_rounding(kiln_error e, double units) {
  return (kiln_error){e.worst + units, root_sum(e.typical, 0.58 * units)};
}

// The error of |value|, the result of an operation that rounds by |units|.
static kiln_error computed(kiln_dtype t, double value, kiln_error e, double units) {
  const kiln_dtype in = t == KILN_F64 ? t : KILN_F32;
  if (isnan(value)) return is_exact(e) ? exact : unknown;
  if (isinf(value)) return is_exact(e) ? exact : unknown;
  if (fabs(value) + kiln_error_tolerance(e) > greatest(in))
    return unknown; // may overflow in |in|, which double does not
  return with_rounding(e, units * (kiln_error_unit(in) * fabs(value) + least_step(in)));
}

kiln_error kiln_error_stored(kiln_dtype t, double value, kiln_error e) {
  if (!kiln_dtype_is_float(t) || is_exact(e) || !isfinite(value)) return e;
  if (fabs(value) + kiln_error_tolerance(e) > greatest(t)) return unknown;
  const double unit = stored_unit(t) * fabs(value) + least_step(t);
  return with_rounding(e, kiln_dtype_is_half(t) ? 2 * unit : unit); // f32's own rounding is in |e|
}

// --- functions ---

// By how much the argument's error changes the result: at the ends of its interval, and by the
// slope between them.
static kiln_error moved(double value, double low, double high, kiln_error a) {
  const double worst = fmax(fabs(high - value), fabs(low - value));
  const double near = kiln_error_tolerance(a);
  if (isnan(worst)) return unknown;
  return (kiln_error){worst, near > 0 ? fmin(worst, worst * (a.typical / near)) : 0};
}

static kiln_error through(kiln_expr_kind k, double x, double value, kiln_error a) {
  const double near = kiln_error_tolerance(a);
  if (is_exact(a)) return exact;
  if (!isfinite(near)) return unknown;
  kiln_error e =
      moved(value, kiln_bytecode_float1(k, x - near), kiln_bytecode_float1(k, x + near), a);
  const bool turns = k == KILN_EXPR_SIN || k == KILN_EXPR_COS || k == KILN_EXPR_COSH;
  if (turns && k != KILN_EXPR_COSH) e = greater(e, scaled(a, 1)); // the slope is at most 1
  return e;
}

// Step functions (floor, round, ...): near a step either side may be the result.
static kiln_error stepped(double value, double low, double high) {
  const double d = fmax(fabs(high - value), fabs(low - value));
  if (isnan(d)) return unknown;
  return d == 0 ? exact : (kiln_error){d, d / 4};
}

static kiln_error float1(const kiln_insn *in, double x, double value, kiln_error a) {
  const kiln_expr_kind k = (kiln_expr_kind)in->kind;
  const double near = kiln_error_tolerance(a);
  if (k == KILN_EXPR_NEG || k == KILN_EXPR_ABS) return a;
  if (isnan(value) && isnan(kiln_bytecode_float1(k, x - near)) &&
      isnan(kiln_bytecode_float1(k, x + near)))
    return exact; // NaN for every argument
  if (k == KILN_EXPR_SIGN || k == KILN_EXPR_FLOOR || k == KILN_EXPR_CEIL || k == KILN_EXPR_ROUND ||
      k == KILN_EXPR_TRUNC) {
    if (is_exact(a)) return exact;
    if (!isfinite(near)) return unknown;
    return stepped(value, kiln_bytecode_float1(k, x - near), kiln_bytecode_float1(k, x + near));
  }
  const double units = k == KILN_EXPR_SQRT ? DIVISION_UNITS : FUNCTION_UNITS;
  return computed((kiln_dtype)in->t, value, through(k, x, value, a), units);
}

static kiln_error product(double x, double y, kiln_error a, kiln_error b) {
  kiln_error e = both(scaled(a, y), scaled(b, x));
  if (!is_exact(a) && !is_exact(b)) e.worst += a.worst * b.worst;
  return isnan(e.worst) || isnan(e.typical) ? unknown : e;
}

static kiln_error quotient(double x, double y, double value, kiln_error a, kiln_error b) {
  const double near = kiln_error_tolerance(b);
  if (is_exact(b)) return scaled(a, 1 / y);
  if (!(near < fabs(y))) return unknown; // the divisor may be 0
  const kiln_error e = both(scaled(a, 1 / y), scaled(b, value / y));
  const kiln_error most = scaled(e, fabs(y) / (fabs(y) - near));
  (void)x;
  return isnan(most.worst) ? unknown : most;
}

// The greatest change of the result over the corners of the arguments' intervals.
static kiln_error corners(kiln_expr_kind k, double x, double y, double value, kiln_error a,
                          kiln_error b) {
  const double p = kiln_error_tolerance(a), q = kiln_error_tolerance(b);
  double worst = 0;
  if (is_exact(a) && is_exact(b)) return exact;
  if (!isfinite(p) || !isfinite(q)) return unknown;
  for (int i = 0; i < 4; i++) {
    const double at = kiln_bytecode_float2(k, i & 1 ? x + p : x - p, i & 2 ? y + q : y - q);
    if (isnan(at)) return unknown;
    worst = fmax(worst, fabs(at - value));
  }
  return (kiln_error){worst, worst / 4};
}

static kiln_error float2(const kiln_insn *in, double x, double y, double value, kiln_error a,
                         kiln_error b) {
  const kiln_expr_kind k = (kiln_expr_kind)in->kind;
  if (k == KILN_EXPR_MIN || k == KILN_EXPR_MAX) {
    const double far = kiln_error_tolerance(a) + kiln_error_tolerance(b);
    if (fabs(x - y) > far) return value == x ? a : b;
    return greater(a, b);
  }
  const bool turns = k == KILN_EXPR_MOD || k == KILN_EXPR_FMOD || k == KILN_EXPR_TDIV;
  if (turns && is_exact(a) && is_exact(b)) return computed((kiln_dtype)in->t, value, exact, 1);
  if (turns) return unknown;
  return computed((kiln_dtype)in->t, value, corners(k, x, y, value, a, b), POWER_UNITS);
}

// --- integers and booleans ---

static const kiln_error either_truth = {1, 1};

// Whether |a| and |b| are so near that the comparison may go either way.
static kiln_error compared(double a, double b, kiln_error ea, kiln_error eb) {
  if (is_exact(ea) && is_exact(eb)) return exact;
  const double far = kiln_error_tolerance(ea) + kiln_error_tolerance(eb);
  return fabs(a - b) > far ? exact : either_truth;
}

static kiln_error int2(const kiln_insn *in, const kiln_cell *r, kiln_error a, kiln_error b) {
  const kiln_expr_kind k = (kiln_expr_kind)in->kind;
  const double x = (double)r[in->a].i, y = (double)r[in->b].i;
  if (is_exact(a) && is_exact(b)) return exact;
  if (kiln_expr_kind_is_cmp(k)) return compared(x, y, a, b);
  if (k == KILN_EXPR_AND || (k == KILN_EXPR_BAND && in->t == KILN_BOOL))
    return (is_exact(a) && x == 0) || (is_exact(b) && y == 0) ? exact : greater(a, b);
  if (k == KILN_EXPR_OR || (k == KILN_EXPR_BOR && in->t == KILN_BOOL))
    return (is_exact(a) && x != 0) || (is_exact(b) && y != 0) ? exact : greater(a, b);
  if (k == KILN_EXPR_ADD || k == KILN_EXPR_SUB) return both(a, b);
  if (k == KILN_EXPR_MUL) return product(x, y, a, b);
  if (k == KILN_EXPR_MIN || k == KILN_EXPR_MAX) return greater(a, b);
  return unknown;
}

// --- casts ---

static double as_double(kiln_dtype t, kiln_cell v) {
  return kiln_dtype_is_float(t) ? v.f : (double)v.i;
}

static kiln_error cast(const kiln_insn *in, kiln_cell x, kiln_cell value, kiln_error a) {
  const kiln_dtype to = (kiln_dtype)in->t, from = (kiln_dtype)in->from;
  if (is_exact(a)) return exact;
  if (kiln_dtype_is_float(to)) {
    if (!kiln_dtype_is_float(from) || kiln_dtype_bytes(to) > kiln_dtype_bytes(from)) return a;
    return kiln_error_stored(to, value.f, a);
  }
  const double near = kiln_error_tolerance(a);
  if (!isfinite(near)) return unknown;
  if (!kiln_dtype_is_float(from)) return to == KILN_BOOL ? either_truth : a;
  const kiln_cell low = kiln_bytecode_cast(to, from, (kiln_cell){.f = x.f - near});
  const kiln_cell high = kiln_bytecode_cast(to, from, (kiln_cell){.f = x.f + near});
  if (to == KILN_BOOL) return fabs(x.f) > near ? exact : either_truth;
  return stepped((double)value.i, (double)low.i, (double)high.i);
}

// The bits of an inexact float: known if both ends of its interval have integer bits, then by their
// distance.
static kiln_error bits(const kiln_insn *in, kiln_cell x, kiln_cell value, kiln_error a) {
  const kiln_dtype to = (kiln_dtype)in->t, from = (kiln_dtype)in->from;
  const double near = kiln_error_tolerance(a);
  if (is_exact(a)) return exact;
  if (!isfinite(near) || !kiln_dtype_is_float(from)) return unknown;
  const kiln_cell low = kiln_bytecode_bits(to, from, (kiln_cell){.f = x.f - near});
  const kiln_cell high = kiln_bytecode_bits(to, from, (kiln_cell){.f = x.f + near});
  return stepped(as_double(to, value), as_double(to, low), as_double(to, high));
}

// --- running ---

void kiln_error_tracker_init(kiln_error_tracker *b, kiln_bytecode *code,
                             const kiln_errors *tensors) {
  *b = (kiln_error_tracker){code, tensors, KILN_NEW_ARRAY(code->arena, kiln_error, code->regs.n)};
}

static kiln_error loaded(const kiln_error_tracker *b, const kiln_insn *in) {
  const kiln_errors *e = &b->tensors[b->code->loads.data[in->b].tensor];
  const int64_t at = b->code->regs.data[in->a].i;
  if (!is_exact(b->errors[in->a])) return unknown;
  return e->worst ? (kiln_error){(double)e->worst[at], (double)e->typical[at]} : exact;
}

static kiln_error addressed(const kiln_error_tracker *b, const kiln_insn *in) {
  const kiln_bytecode_load *l = &b->code->loads.data[in->a];
  for (int a = 0; a < l->n; a++)
    if (!is_exact(b->errors[l->regs[a]])) return unknown;
  return exact;
}

// NaN propagates: if an operand is NaN for certain, so is the result.
static bool has_nan(const kiln_error_tracker *b, const kiln_insn *in) {
  const kiln_cell *r = b->code->regs.data;
  return (isnan(r[in->a].f) && is_exact(b->errors[in->a])) ||
         (isnan(r[in->b].f) && is_exact(b->errors[in->b]));
}

static void run_insn(kiln_error_tracker *b, const kiln_insn *in) {
  const kiln_cell *r = b->code->regs.data;
  kiln_error *e = b->errors;
  const kiln_dtype t = (kiln_dtype)in->t;
  if (in->op >= KILN_INSN_FADD && in->op <= KILN_INSN_FDIV && has_nan(b, in)) {
    e[in->out] = exact;
    return;
  }
  switch ((kiln_insn_op)in->op) {
  case KILN_INSN_LOAD_F32:
  case KILN_INSN_LOAD_F64:
  case KILN_INSN_LOAD_FLOAT:
  case KILN_INSN_LOAD_INT: e[in->out] = loaded(b, in); break;
  case KILN_INSN_ADDRESS: e[in->out] = addressed(b, in); break;
  case KILN_INSN_MOVE: e[in->out] = e[in->a]; break;
  case KILN_INSN_JUMP:
  case KILN_INSN_JUMP_UNLESS: break;
  case KILN_INSN_FADD:
  case KILN_INSN_FSUB: e[in->out] = computed(t, r[in->out].f, both(e[in->a], e[in->b]), 1); break;
  case KILN_INSN_FMUL:
    e[in->out] = computed(t, r[in->out].f, product(r[in->a].f, r[in->b].f, e[in->a], e[in->b]), 1);
    break;
  case KILN_INSN_FDIV:
    e[in->out] = computed(t, r[in->out].f,
                          quotient(r[in->a].f, r[in->b].f, r[in->out].f, e[in->a], e[in->b]),
                          DIVISION_UNITS);
    break;
  case KILN_INSN_IADD:
  case KILN_INSN_ISUB: e[in->out] = both(e[in->a], e[in->b]); break;
  case KILN_INSN_IMUL:
    e[in->out] = product((double)r[in->a].i, (double)r[in->b].i, e[in->a], e[in->b]);
    break;
  case KILN_INSN_FLOAT1: e[in->out] = float1(in, r[in->a].f, r[in->out].f, e[in->a]); break;
  case KILN_INSN_FLOAT2:
    e[in->out] = float2(in, r[in->a].f, r[in->b].f, r[in->out].f, e[in->a], e[in->b]);
    break;
  case KILN_INSN_FLOAT_TEST: {
    const bool is_pair = kiln_expr_kind_is_cmp((kiln_expr_kind)in->kind);
    const bool lost = !isfinite(kiln_error_tolerance(e[in->a]));
    e[in->out] = is_pair ? compared(r[in->a].f, r[in->b].f, e[in->a], e[in->b])
                 : lost  ? either_truth
                         : exact;
    break;
  }
  case KILN_INSN_INT1: e[in->out] = e[in->a]; break;
  case KILN_INSN_INT2: e[in->out] = int2(in, r, e[in->a], e[in->b]); break;
  case KILN_INSN_CAST: e[in->out] = cast(in, r[in->a], r[in->out], e[in->a]); break;
  case KILN_INSN_BITS: e[in->out] = bits(in, r[in->a], r[in->out], e[in->a]); break;
  }
}

// A choice at |pc| that could go either way: the other branch's value is as right, provided that it
// reads nothing out of range. Both branches end in a MOVE to the same register; the first then
// jumps past the second.
static void run_both(kiln_error_tracker *b, int pc) {
  kiln_bytecode *c = b->code;
  const kiln_insn *insns = c->insns.data;
  const int otherwise = insns[pc].b, end = insns[otherwise - 1].b;
  const int out = insns[end - 1].out;
  const bool taken = c->regs.data[insns[pc].a].i != 0;
  const kiln_cell value = c->regs.data[out];
  const int first = taken ? pc + 1 : otherwise, last = taken ? otherwise - 1 : end;
  kiln_error_tracker_run(b, first, last);
  const kiln_error own = b->errors[out];
  const int from = taken ? otherwise : pc + 1, to = taken ? end : otherwise - 1;
  const bool can = kiln_bytecode_run(c, from, to);
  if (can) kiln_error_tracker_run(b, from, to);
  const kiln_cell other = c->regs.data[out];
  const kiln_dtype t = (kiln_dtype)insns[end - 1].t;
  const double d = fabs(as_double(t, value) - as_double(t, other));
  c->regs.data[out] = value;
  const kiln_error apart = both(stepped(0, d, d), greater(own, b->errors[out]));
  b->errors[out] = can && !isnan(d) ? apart : unknown;
}

void kiln_error_tracker_run(kiln_error_tracker *b, int from, int to) {
  const kiln_insn *insns = b->code->insns.data;
  for (int pc = from; pc < to; pc++) {
    const kiln_insn *in = &insns[pc];
    if (in->op == KILN_INSN_JUMP) {
      pc = in->b - 1;
    } else if (in->op != KILN_INSN_JUMP_UNLESS) {
      run_insn(b, in);
    } else if (!is_exact(b->errors[in->a])) {
      run_both(b, pc);
      pc = insns[in->b - 1].b - 1;
    } else if (!b->code->regs.data[in->a].i) {
      pc = in->b - 1;
    }
  }
}

// --- reductions ---

void kiln_sum_error_add(kiln_sum_error *s, kiln_cell term, kiln_error e) {
  const double v = as_double(s->dtype, term);
  s->n++;
  switch (s->combiner) {
  case KILN_COMBINE_SUM:
    s->magnitude += fabs(v);
    s->squares += v * v;
    s->e.worst += e.worst;
    s->e.typical += e.typical * e.typical;
    break;
  case KILN_COMBINE_PROD: {
    const double before = s->n > 1 ? s->value : 1;
    const kiln_error all = product(before, v, s->e, e);
    s->value = before * v;
    s->e = kiln_dtype_is_float(s->dtype) && s->n > 1 ? computed(s->dtype, s->value, all, 1) : all;
    break;
  }
  case KILN_COMBINE_NONE: s->e = e; break;
  case KILN_COMBINE_MAX:
  case KILN_COMBINE_MIN:
  case KILN_COMBINE_AND:
  case KILN_COMBINE_OR: s->e = greater(s->e, e); break;
  }
}

kiln_error kiln_sum_error_end(const kiln_sum_error *s, kiln_cell value) {
  if (s->combiner != KILN_COMBINE_SUM) return s->e;
  const kiln_error terms = {s->e.worst, sqrt(s->e.typical)};
  const double sum = as_double(s->dtype, value), n = (double)s->n, u = kiln_error_unit(s->dtype);
  if (s->n < 2 || !kiln_dtype_is_float(s->dtype)) return terms;
  if (!isfinite(sum) && !isfinite(s->magnitude)) // one term is infinite or NaN, for certain or not
    return isfinite(kiln_error_tolerance(terms)) ? exact : unknown;
  if (!isfinite(sum)) return unknown;
  if (s->magnitude > greatest(s->dtype == KILN_F64 ? KILN_F64 : KILN_F32))
    return unknown; // some orders overflow in a partial sum, others do not
  // Partial sums of k of n terms are about sum*k/n plus a random walk over their squares; each is
  // rounded. Terms of one sign may all round in one direction.
  const double walk = n * (sum * sum / 3 + s->squares / 2) / 3;
  const double agree = s->magnitude > 0 ? fabs(sum) / s->magnitude : 0;
  const double drift = n * fabs(sum) / 4 * agree * agree;
  const double typical = u * sqrt(walk + drift * drift);
  return (kiln_error){terms.worst + (n - 1) * u * s->magnitude, root_sum(terms.typical, typical)};
}
