// Scalar code of the reference interpreter: compiling expressions to registers, and running them.
#include "analysis/bytecode.h"

#include "analysis/interpret.h"
#include "ir/fold.h"

#include <math.h>

// --- compiling ---

void kiln_bytecode_init(kiln_bytecode *c, kiln_ctx *cx, const kiln_program *p, void *const *data,
                        int n_dims, const kiln_symbol *vars, const int64_t *extents,
                        const char *place) {
  *c = (kiln_bytecode){.cx = cx,
                       .p = p,
                       .arena = &cx->scratch,
                       .data = data,
                       .n_dims = n_dims,
                       .vars = vars,
                       .extents = extents,
                       .place = place};
  kiln_map_init(&c->known, c->arena);
}

static int add_reg(kiln_bytecode *c, kiln_cell value) {
  KILN_VEC_PUSH(c->arena, &c->regs, value);
  return c->regs.n - 1;
}

static int add_insn(kiln_bytecode *c, kiln_insn insn) {
  insn.out = add_reg(c, (kiln_cell){.i = 0});
  KILN_VEC_PUSH(c->arena, &c->insns, insn);
  return insn.out;
}

static void remember(kiln_bytecode *c, const kiln_expr *e, int reg, bool everywhere) {
  kiln_map_put(&c->known, e->id, (uint64_t)reg + 1);
  if (!everywhere) KILN_VEC_PUSH(c->arena, &c->opened, e->id);
}

// Values computed inside a branch are not available after it.
static void close_scope(kiln_bytecode *c, int opened) {
  while (c->opened.n > opened) kiln_map_put(&c->known, c->opened.data[--c->opened.n], 0);
}

static int add_stream(kiln_bytecode *c, const int64_t *coef, int64_t start) {
  kiln_stream s = {.reg = add_reg(c, (kiln_cell){.i = start}), .start = start};
  s.coef = KILN_NEW_ARRAY(c->arena, int64_t, c->n_dims);
  for (int d = 0; d < c->n_dims; d++) s.coef[d] = coef[d];
  KILN_VEC_PUSH(c->arena, &c->streams, s);
  return s.reg;
}

static bool is_affine(const kiln_bytecode *c, const kiln_expr *e, int64_t *coef, int64_t *start) {
  return e->dtype == KILN_I64 && kiln_expr_affine(e, c->n_dims, c->vars, coef, start);
}

bool kiln_bytecode_affine_address(const kiln_bytecode *c, const kiln_expr *load, int64_t *coef,
                                  int64_t *start) {
  const kiln_mark m = kiln_arena_mark(c->arena);
  const kiln_tensor *t = c->p->tensors.data[load->u.tensor];
  int64_t *axis_coef = KILN_NEW_ARRAY(c->arena, int64_t, c->n_dims), stride = 1;
  bool ok = true;
  *start = 0;
  for (int d = 0; d < c->n_dims; d++) coef[d] = 0;
  for (int a = t->rank - 1; a >= 0 && ok; a--) {
    int64_t constant = 0, extent = 0;
    ok =
        is_affine(c, load->args[a], axis_coef, &constant) && kiln_expr_is_int(t->shape[a], &extent);
    int64_t lo = constant, hi = constant;
    for (int d = 0; d < c->n_dims && ok; d++) {
      const int64_t reach = axis_coef[d] * (c->extents[d] - 1);
      lo += reach < 0 ? reach : 0;
      hi += reach > 0 ? reach : 0;
      coef[d] += axis_coef[d] * stride;
    }
    ok = ok && lo >= 0 && hi < extent;
    *start += constant * stride;
    stride *= extent;
  }
  kiln_arena_rewind(c->arena, m);
  return ok;
}

int kiln_bytecode_add_address(kiln_bytecode *c, int tensor, const kiln_expr *const *index) {
  const kiln_tensor *t = c->p->tensors.data[tensor];
  kiln_bytecode_load l = {.tensor = tensor, .data = c->data[tensor], .n = t->rank};
  int64_t stride = 1;
  for (int a = t->rank - 1; a >= 0; a--) {
    kiln_expr_is_int(t->shape[a], &l.extents[a]);
    l.strides[a] = stride;
    stride *= l.extents[a];
    l.regs[a] = kiln_bytecode_add(c, index[a]);
  }
  KILN_VEC_PUSH(c->arena, &c->loads, l);
  return add_insn(c, (kiln_insn){.op = KILN_INSN_ADDRESS, .t = KILN_I64, .a = c->loads.n - 1});
}

static int add_load(kiln_bytecode *c, const kiln_expr *e) {
  int64_t *coef = KILN_NEW_ARRAY(c->arena, int64_t, c->n_dims), start = 0;
  const int tensor = e->u.tensor;
  int address = 0;
  if (kiln_bytecode_affine_address(c, e, coef, &start)) {
    address = add_stream(c, coef, start);
    KILN_VEC_PUSH(c->arena, &c->loads,
                  (kiln_bytecode_load){.tensor = tensor, .data = c->data[tensor]});
  } else {
    address = kiln_bytecode_add_address(c, tensor, e->args);
  }
  const uint8_t op = e->dtype == KILN_F32            ? KILN_INSN_LOAD_F32
                     : e->dtype == KILN_F64          ? KILN_INSN_LOAD_F64
                     : kiln_dtype_is_float(e->dtype) ? KILN_INSN_LOAD_FLOAT
                                                     : KILN_INSN_LOAD_INT;
  return add_insn(c,
                  (kiln_insn){.op = op, .t = (uint8_t)e->dtype, .a = address, .b = c->loads.n - 1});
}

static int add_select(kiln_bytecode *c, const kiln_expr *e) {
  const int condition = kiln_bytecode_add(c, e->args[0]);
  const int out = add_reg(c, (kiln_cell){.i = 0});
  const int opened = c->opened.n, branch = c->insns.n;
  KILN_VEC_PUSH(c->arena, &c->insns, (kiln_insn){.op = KILN_INSN_JUMP_UNLESS, .a = condition});
  const int then = kiln_bytecode_add(c, e->args[1]);
  KILN_VEC_PUSH(c->arena, &c->insns,
                ((kiln_insn){.op = KILN_INSN_MOVE, .t = (uint8_t)e->dtype, .out = out, .a = then}));
  close_scope(c, opened);
  const int leave = c->insns.n;
  KILN_VEC_PUSH(c->arena, &c->insns, (kiln_insn){.op = KILN_INSN_JUMP});
  c->insns.data[branch].b = c->insns.n;
  const int otherwise = kiln_bytecode_add(c, e->args[2]);
  KILN_VEC_PUSH(
      c->arena, &c->insns,
      ((kiln_insn){.op = KILN_INSN_MOVE, .t = (uint8_t)e->dtype, .out = out, .a = otherwise}));
  close_scope(c, opened);
  c->insns.data[leave].b = c->insns.n;
  return out;
}

static uint8_t op_of(kiln_expr_kind k, kiln_dtype from, int n_args) {
  const bool f = kiln_dtype_is_float(from);
  if (k == KILN_EXPR_CAST) return KILN_INSN_CAST;
  if (k == KILN_EXPR_BITCAST) return KILN_INSN_BITS;
  if (k == KILN_EXPR_ADD && (f || from == KILN_I64)) return f ? KILN_INSN_FADD : KILN_INSN_IADD;
  if (k == KILN_EXPR_SUB && (f || from == KILN_I64)) return f ? KILN_INSN_FSUB : KILN_INSN_ISUB;
  if (k == KILN_EXPR_MUL && (f || from == KILN_I64)) return f ? KILN_INSN_FMUL : KILN_INSN_IMUL;
  if (k == KILN_EXPR_DIV && f) return KILN_INSN_FDIV;
  const bool test =
      (k >= KILN_EXPR_LT && k <= KILN_EXPR_NE) || k == KILN_EXPR_ISNAN || k == KILN_EXPR_ISINF;
  if (f) return test ? KILN_INSN_FLOAT_TEST : n_args == 1 ? KILN_INSN_FLOAT1 : KILN_INSN_FLOAT2;
  return n_args == 1 ? KILN_INSN_INT1 : KILN_INSN_INT2;
}

static int add_operator(kiln_bytecode *c, const kiln_expr *e) {
  kiln_insn insn = {.kind = (uint8_t)e->kind, .t = (uint8_t)e->dtype};
  insn.from = (uint8_t)e->args[0]->dtype;
  insn.op = op_of(e->kind, e->args[0]->dtype, e->n_args);
  insn.a = kiln_bytecode_add(c, e->args[0]);
  insn.b = e->n_args > 1 ? kiln_bytecode_add(c, e->args[1]) : 0;
  return add_insn(c, insn);
}

static int add_unbound(kiln_bytecode *c, const kiln_expr *e) {
  if (c->status == KILN_OK)
    c->status = KILN_FAIL(c->cx->diag, KILN_INTERNAL, c->place,
                          "interpreter: every named dimension must be bound, got %s",
                          kiln_symbol_text(c->cx, e->u.sym));
  return add_reg(c, (kiln_cell){.i = 0});
}

int kiln_bytecode_add(kiln_bytecode *c, const kiln_expr *e) {
  const uint64_t *known = kiln_map_find(&c->known, e->id);
  if (known && *known) return (int)*known - 1;
  int reg = -1;
  if (e->kind == KILN_EXPR_INT) reg = add_reg(c, (kiln_cell){.i = e->u.i});
  if (e->kind == KILN_EXPR_FLOAT) reg = add_reg(c, (kiln_cell){.f = e->u.f});
  if (reg < 0 && !kiln_expr_has_load(e) && e->dtype == KILN_I64) {
    int64_t *coef = KILN_NEW_ARRAY(c->arena, int64_t, c->n_dims), start = 0;
    if (is_affine(c, e, coef, &start)) reg = add_stream(c, coef, start);
  }
  const bool everywhere = reg >= 0;
  if (reg >= 0)
    ;
  else if (e->kind == KILN_EXPR_VAR) reg = add_unbound(c, e);
  else if (e->kind == KILN_EXPR_LOAD) reg = add_load(c, e);
  else if (e->kind == KILN_EXPR_SELECT) reg = add_select(c, e);
  else reg = add_operator(c, e);
  remember(c, e, reg, everywhere);
  return reg;
}

void kiln_bytecode_seek(kiln_bytecode *c, const int64_t *at) {
  for (int k = 0; k < c->streams.n; k++) {
    const kiln_stream *s = &c->streams.data[k];
    uint64_t value = (uint64_t)s->start; // two's complement
    for (int d = 0; d < c->n_dims; d++) value += (uint64_t)s->coef[d] * (uint64_t)at[d];
    c->regs.data[s->reg].i = (int64_t)value;
  }
}

// --- semantics ---

int64_t kiln_bytecode_wrap(kiln_dtype t, int64_t v) {
  if (t == KILN_I64 || t == KILN_U64) return v;
  if (t == KILN_BOOL) return v != 0;
  const int bits = 64 - 8 * kiln_dtype_bytes(t);
  const uint64_t up = (uint64_t)v << bits;
  return kiln_dtype_kind(t) == KILN_KIND_INT ? (int64_t)up >> bits : (int64_t)(up >> bits);
}

// One line for each operator.
double kiln_bytecode_float1(kiln_expr_kind k, double a) {
  if (k == KILN_EXPR_NEG) return -a;
  if (k == KILN_EXPR_ABS) return fabs(a);
  if (k == KILN_EXPR_SIGN) return a > 0 ? 1 : a < 0 ? -1 : a;
  if (k == KILN_EXPR_FLOOR) return floor(a);
  if (k == KILN_EXPR_CEIL) return ceil(a);
  if (k == KILN_EXPR_ROUND) return nearbyint(a);
  if (k == KILN_EXPR_TRUNC) return trunc(a);
  if (k == KILN_EXPR_SQRT) return sqrt(a);
  if (k == KILN_EXPR_EXP) return exp(a);
  if (k == KILN_EXPR_EXPM1) return expm1(a);
  if (k == KILN_EXPR_LOG) return log(a);
  if (k == KILN_EXPR_LOG1P) return log1p(a);
  if (k == KILN_EXPR_SIN) return sin(a);
  if (k == KILN_EXPR_COS) return cos(a);
  if (k == KILN_EXPR_TAN) return tan(a);
  if (k == KILN_EXPR_ASIN) return asin(a);
  if (k == KILN_EXPR_ACOS) return acos(a);
  if (k == KILN_EXPR_ATAN) return atan(a);
  if (k == KILN_EXPR_SINH) return sinh(a);
  if (k == KILN_EXPR_COSH) return cosh(a);
  if (k == KILN_EXPR_TANH) return tanh(a);
  if (k == KILN_EXPR_ASINH) return asinh(a);
  if (k == KILN_EXPR_ACOSH) return acosh(a);
  if (k == KILN_EXPR_ATANH) return atanh(a);
  if (k == KILN_EXPR_ERF) return erf(a);
  return NAN;
}

static double floor_mod(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return copysign(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double kiln_bytecode_float2(kiln_expr_kind k, double a, double b) {
  if (k == KILN_EXPR_MAX) return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
  if (k == KILN_EXPR_MIN) return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
  if (k == KILN_EXPR_POW) return pow(a, b);
  if (k == KILN_EXPR_MOD) return floor_mod(a, b);
  if (k == KILN_EXPR_FMOD) return fmod(a, b);
  if (k == KILN_EXPR_TDIV) return trunc(a / b);
  if (k == KILN_EXPR_ATAN2) return atan2(a, b);
  return NAN;
}

static bool float_test(kiln_expr_kind k, double a, double b) {
  if (k == KILN_EXPR_LT) return a < b;
  if (k == KILN_EXPR_LE) return a <= b;
  if (k == KILN_EXPR_GT) return a > b;
  if (k == KILN_EXPR_GE) return a >= b;
  if (k == KILN_EXPR_EQ) return a == b;
  if (k == KILN_EXPR_NE) return a != b;
  if (k == KILN_EXPR_ISNAN) return isnan(a);
  return isinf(a);
}

static int64_t int1(kiln_expr_kind k, kiln_dtype t, int64_t a) {
  const bool is_signed = kiln_dtype_kind(t) == KILN_KIND_INT;
  if (k == KILN_EXPR_NOT) return !a;
  if (k == KILN_EXPR_NEG) return (int64_t)(0 - (uint64_t)a);
  if (k == KILN_EXPR_ABS) return is_signed && a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
  if (k == KILN_EXPR_SIGN) return is_signed && a < 0 ? -1 : a != 0;
  if (k == KILN_EXPR_BNOT) return t == KILN_BOOL ? !a : ~a;
  return a; // floor, ceil, round, trunc of an integer
}

static int64_t int_power(int64_t base, int64_t exponent, bool is_signed) {
  if (is_signed && exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  }
  uint64_t power = 1, square = (uint64_t)base;
  for (uint64_t e = (uint64_t)exponent; e; e >>= 1, square *= square)
    if (e & 1) power *= square;
  return (int64_t)power;
}

static int64_t unsigned2(kiln_expr_kind k, uint64_t a, uint64_t b) {
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_TDIV) return (int64_t)(b ? a / b : 0);
  if (k == KILN_EXPR_MOD || k == KILN_EXPR_FMOD) return (int64_t)(b ? a % b : 0);
  if (k == KILN_EXPR_MIN) return (int64_t)(a < b ? a : b);
  if (k == KILN_EXPR_MAX) return (int64_t)(a > b ? a : b);
  if (k == KILN_EXPR_LT) return a < b;
  if (k == KILN_EXPR_LE) return a <= b;
  if (k == KILN_EXPR_GT) return a > b;
  if (k == KILN_EXPR_GE) return a >= b;
  return (int64_t)(b < 64 ? a >> b : 0); // SHR
}

static int64_t truncated_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t signed2(kiln_expr_kind k, int64_t a, int64_t b) {
  const int64_t q = k <= KILN_EXPR_TDIV ? truncated_div(a, b) : 0;
  const int64_t r = b == 0 ? 0 : (int64_t)((uint64_t)a - (uint64_t)q * (uint64_t)b);
  if (k == KILN_EXPR_DIV) return q - (r != 0 && (r < 0) != (b < 0));
  if (k == KILN_EXPR_MOD) return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  if (k == KILN_EXPR_TDIV) return q;
  if (k == KILN_EXPR_FMOD) return r;
  if (k == KILN_EXPR_MIN) return a < b ? a : b;
  if (k == KILN_EXPR_MAX) return a > b ? a : b;
  if (k == KILN_EXPR_LT) return a < b;
  if (k == KILN_EXPR_LE) return a <= b;
  if (k == KILN_EXPR_GT) return a > b;
  if (k == KILN_EXPR_GE) return a >= b;
  return b >= 0 && b < 64 ? a >> b : a < 0 ? -1 : 0; // SHR
}

static int64_t int2(kiln_expr_kind k, kiln_dtype t, int64_t a, int64_t b) {
  const uint64_t x = (uint64_t)a, y = (uint64_t)b;
  if (k == KILN_EXPR_ADD) return (int64_t)(x + y);
  if (k == KILN_EXPR_SUB) return (int64_t)(x - y);
  if (k == KILN_EXPR_MUL) return (int64_t)(x * y);
  if (k == KILN_EXPR_EQ) return a == b;
  if (k == KILN_EXPR_NE) return a != b;
  if (k == KILN_EXPR_AND || k == KILN_EXPR_BAND) return a & b;
  if (k == KILN_EXPR_OR || k == KILN_EXPR_BOR) return a | b;
  if (k == KILN_EXPR_BXOR) return a ^ b;
  if (k == KILN_EXPR_SHL) return y < 64 ? (int64_t)(x << y) : 0;
  if (k == KILN_EXPR_POW) return int_power(a, b, kiln_dtype_kind(t) == KILN_KIND_INT);
  return t == KILN_U64 ? unsigned2(k, x, y) : signed2(k, a, b);
}

kiln_cell kiln_bytecode_cast(kiln_dtype to, kiln_dtype from, kiln_cell a) {
  const bool from_float = kiln_dtype_is_float(from);
  if (kiln_dtype_is_float(to)) {
    if (from_float) return (kiln_cell){.f = kiln_float_round(to, a.f)};
    if (from == KILN_U64)
      return (kiln_cell){.f = to == KILN_F32 ? (double)(float)(uint64_t)a.i
                                             : kiln_float_round(to, (double)(uint64_t)a.i)};
    return (kiln_cell){.f =
                           to == KILN_F32 ? (double)(float)a.i : kiln_float_round(to, (double)a.i)};
  }
  if (to == KILN_BOOL) return (kiln_cell){.i = from_float ? a.f != 0 : a.i != 0};
  return (kiln_cell){.i = from_float ? kiln_int_saturate(to, a.f) : kiln_bytecode_wrap(to, a.i)};
}

// Bits of a value computed in double: it is first rounded to the float type whose bits are wanted.
kiln_cell kiln_bytecode_bits(kiln_dtype to, kiln_dtype from, kiln_cell a) {
  if (kiln_dtype_is_float(from)) return (kiln_cell){.i = (int64_t)kiln_float_bits(from, a.f)};
  return kiln_dtype_is_float(to) ? (kiln_cell){.f = kiln_float_of_bits(to, (uint64_t)a.i)} : a;
}

// --- running ---

static bool address(kiln_bytecode *c, const kiln_insn *in) {
  const kiln_bytecode_load *l = &c->loads.data[in->a];
  int64_t linear = 0;
  for (int a = 0; a < l->n; a++) {
    const int64_t at = c->regs.data[l->regs[a]].i;
    if ((uint64_t)at >= (uint64_t)l->extents[a]) {
      c->fault_load = in->a;
      c->fault_axis = a;
      c->fault_index = at;
      return false;
    }
    linear += at * l->strides[a];
  }
  c->regs.data[in->out].i = linear;
  return true;
}

// An unaligned load, which the compiler makes one move; 0 is the register of unit |at|.
typedef float loose_f32 __attribute__((aligned(1), may_alias));
typedef double loose_f64 __attribute__((aligned(1), may_alias));

bool kiln_bytecode_run(kiln_bytecode *c, int from, int to) {
  kiln_cell *r = c->regs.data;
  const kiln_insn *insns = c->insns.data;
  const kiln_bytecode_load *loads = c->loads.data;
  for (int pc = from; pc < to; pc++) {
    const kiln_insn *in = &insns[pc];
    const kiln_expr_kind k = (kiln_expr_kind)in->kind;
    const kiln_dtype t = (kiln_dtype)in->t;
    switch (in->op) {
    case KILN_INSN_LOAD_F32:
      r[in->out].f = ((const loose_f32 *)loads[in->b].data)[r[in->a].i];
      break;
    case KILN_INSN_LOAD_F64:
      r[in->out].f = ((const loose_f64 *)loads[in->b].data)[r[in->a].i];
      break;
    case KILN_INSN_LOAD_FLOAT:
      r[in->out].f = kiln_element_get(t, loads[in->b].data, r[in->a].i);
      break;
    case KILN_INSN_LOAD_INT:
      r[in->out].i = kiln_element_get_int(t, loads[in->b].data, r[in->a].i);
      break;
    case KILN_INSN_ADDRESS:
      if (!address(c, in)) return false;
      break;
    case KILN_INSN_MOVE: r[in->out] = r[in->a]; break;
    case KILN_INSN_JUMP: pc = in->b - 1; break;
    case KILN_INSN_JUMP_UNLESS:
      if (!r[in->a].i) pc = in->b - 1;
      break;
    case KILN_INSN_FADD: r[in->out].f = r[in->a].f + r[in->b].f; break;
    case KILN_INSN_FSUB: r[in->out].f = r[in->a].f - r[in->b].f; break;
    case KILN_INSN_FMUL: r[in->out].f = r[in->a].f * r[in->b].f; break;
    case KILN_INSN_FDIV: r[in->out].f = r[in->a].f / r[in->b].f; break;
    case KILN_INSN_IADD:
      r[in->out].i = (int64_t)((uint64_t)r[in->a].i + (uint64_t)r[in->b].i);
      break;
    case KILN_INSN_ISUB:
      r[in->out].i = (int64_t)((uint64_t)r[in->a].i - (uint64_t)r[in->b].i);
      break;
    case KILN_INSN_IMUL:
      r[in->out].i = (int64_t)((uint64_t)r[in->a].i * (uint64_t)r[in->b].i);
      break;
    case KILN_INSN_FLOAT1: r[in->out].f = kiln_bytecode_float1(k, r[in->a].f); break;
    case KILN_INSN_FLOAT2: r[in->out].f = kiln_bytecode_float2(k, r[in->a].f, r[in->b].f); break;
    case KILN_INSN_FLOAT_TEST: r[in->out].i = float_test(k, r[in->a].f, r[in->b].f); break;
    case KILN_INSN_INT1:
      r[in->out].i = kiln_bytecode_wrap(t, int1(k, (kiln_dtype)in->from, r[in->a].i));
      break;
    case KILN_INSN_INT2:
      r[in->out].i = kiln_bytecode_wrap(t, int2(k, (kiln_dtype)in->from, r[in->a].i, r[in->b].i));
      break;
    case KILN_INSN_CAST: r[in->out] = kiln_bytecode_cast(t, (kiln_dtype)in->from, r[in->a]); break;
    case KILN_INSN_BITS: r[in->out] = kiln_bytecode_bits(t, (kiln_dtype)in->from, r[in->a]); break;
    }
  }
  return true;
}

kiln_status kiln_bytecode_fault(const kiln_bytecode *c) {
  const kiln_bytecode_load *l = &c->loads.data[c->fault_load];
  return KILN_FAIL(c->cx->diag, KILN_INTERNAL, c->place,
                   "tensor %s: index of axis %d must lie in [0, %" PRId64 "), got %" PRId64,
                   kiln_symbol_text(c->cx, c->p->tensors.data[l->tensor]->name), c->fault_axis,
                   l->extents[c->fault_axis], c->fault_index);
}
