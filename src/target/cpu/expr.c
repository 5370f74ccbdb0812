// Expressions. A subexpression that is the same in all lanes is computed once, as a scalar; others
// in lanes. SELECTs become data flow: both branches are computed, the loads of each under its
// condition.
#include "target/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

static kiln_search find_private(const kiln_expr *x, void *argument) {
  const kiln_emit *e = argument;
  if (!x->has_load) return KILN_SEARCH_PAST;
  return x->kind == KILN_EXPR_LOAD && e->is_private[x->u.tensor] ? KILN_SEARCH_ENDS
                                                                 : KILN_SEARCH_INTO;
}

bool kiln_cpu_is_uniform(kiln_emit *e, const kiln_expr *x) {
  if (!e->lane_var) return true;
  if (kiln_expr_uses(x, e->lane_var)) return false;
  return !x->has_load || !kiln_expr_search(e->cx, x, find_private, e);
}

// The log stays: the enclosing branch must still forget values that it adds from here on.
void kiln_cpu_memo_clear(kiln_emit *e) { e->epoch++; }

static struct kiln_memo *memo_at(kiln_emit *e, uint32_t id) {
  if (id >= e->memo_cap) {
    const uint32_t cap = id + id / 2 + 1024;
    struct kiln_memo *grown = KILN_NEW_ARRAY(&e->cx->perm, struct kiln_memo, cap);
    for (uint32_t i = 0; i < e->memo_cap; i++) grown[i] = e->memo[i];
    e->memo = grown;
    e->memo_cap = cap;
  }
  return &e->memo[id];
}

static bool is_known(kiln_emit *e, const kiln_expr *x) {
  return memo_at(e, x->id)->epoch == e->epoch;
}

static void memo_forget(kiln_emit *e, int from) {
  for (int i = from; i < e->memo_log.n; i++) memo_at(e, e->memo_log.data[i])->epoch = 0;
  if (e->memo_log.n > from) e->memo_log.n = from;
}

// Evaluates a branch under a further condition: a lane mask, or a scalar that holds for all lanes.
static kiln_lanes eval_branch(kiln_emit *e, const kiln_expr *x, kiln_lanes cond) {
  if (!x->has_load) return kiln_cpu_eval(e, x);
  LLVMValueRef mask = e->mask, guard = e->guard;
  const bool was_masked = e->memo_masked;
  const int log = e->memo_log.n;
  e->memo_masked = true;
  if (cond.lanes) e->mask = kiln_cpu_and(e, mask, cond.v);
  else e->guard = kiln_cpu_and(e, guard, cond.v);
  kiln_lanes v = kiln_cpu_eval(e, x);
  memo_forget(e, log);
  e->memo_masked = was_masked;
  e->mask = mask;
  e->guard = guard;
  return v;
}

// Converts both to the same number of lanes and width.
static void unify(kiln_emit *e, kiln_lanes *a, kiln_lanes *b) {
  if (a->narrow != b->narrow) {
    *a = kiln_cpu_widen(e, *a);
    *b = kiln_cpu_widen(e, *b);
  }
  const int lanes = a->lanes > b->lanes ? a->lanes : b->lanes;
  *a = kiln_cpu_broadcast(e, *a, lanes);
  *b = kiln_cpu_broadcast(e, *b, lanes);
}

// Whether |x| is a load that has not been emitted yet and gives zero where its condition is false.
// A load that was emitted had another condition or none, and rows of registers are read whole.
static bool is_guarded_load(kiln_emit *e, const kiln_expr *x) {
  if (is_known(e, x)) return false;
  if (x->kind == KILN_EXPR_CAST && kiln_dtype_is_float(x->dtype))
    return is_guarded_load(e, x->args[0]);
  return x->kind == KILN_EXPR_LOAD &&
         e->loops->buffers.data[x->u.tensor]->scope != KILN_SCOPE_REGISTER &&
         !kiln_cpu_in_bounds(e, x->u.tensor, x->args);
}

static kiln_lanes eval_select(kiln_emit *e, const kiln_expr *x) {
  kiln_lanes c = kiln_cpu_eval(e, x->args[0]);
  if (!c.lanes && LLVMIsAConstantInt(c.v))
    return kiln_cpu_eval(e, x->args[LLVMConstIntGetZExtValue(c.v) ? 1 : 2]);
  const bool is_guarded = kiln_expr_is_zero(x->args[2]) && is_guarded_load(e, x->args[1]);
  kiln_lanes a = eval_branch(e, x->args[1], c);
  if (is_guarded && (a.lanes || !c.lanes)) return a;
  kiln_lanes not = {c.v, c.lanes, false};
  if (x->args[2]->has_load) not .v = LLVMBuildNot(e->b, c.v, "");
  kiln_lanes b = eval_branch(e, x->args[2], not );
  unify(e, &a, &b);
  if (c.lanes > a.lanes) {
    a = kiln_cpu_broadcast(e, a, c.lanes);
    b = kiln_cpu_broadcast(e, b, c.lanes);
  }
  a.v = LLVMBuildSelect(e->b, c.v, a.v, b.v, "");
  return a;
}

static bool fits_i32(kiln_emit *e, const kiln_expr *x) {
  const kiln_interval r = kiln_expr_interval(e->cx, x, &e->ranges);
  return r.lo >= INT32_MIN && r.hi <= INT32_MAX;
}

// An affine index in lanes; v is NULL if |x| is not affine.
static kiln_lanes eval_affine(kiln_emit *e, const kiln_expr *x) {
  kiln_linear_form f = {0};
  kiln_cpu_form_add(e, &f, x, 1);
  const kiln_split_form s = kiln_cpu_form_split(e, &f);
  if (s.varying.n > 0) return (kiln_lanes){0};
  LLVMValueRef uniform = kiln_cpu_form_uniform(e, &s);
  if (s.lane == 0) return (kiln_lanes){uniform, 0, false};
  const bool narrow = fits_i32(e, x);
  LLVMTypeRef type = narrow ? e->m->i32 : e->m->i64;
  if (narrow) uniform = LLVMBuildTrunc(e->b, uniform, type, "");
  LLVMValueRef ids = kiln_cpu_lane_ids(e, type, e->lanes, 0, s.lane);
  return (kiln_lanes){LLVMBuildAdd(e->b, kiln_cpu_splat(e, uniform, e->lanes), ids, ""), e->lanes,
                      narrow};
}

static LLVMIntPredicate int_predicate(kiln_expr_kind k, bool is_signed) {
  if (k == KILN_EXPR_EQ) return LLVMIntEQ;
  if (k == KILN_EXPR_NE) return LLVMIntNE;
  if (k == KILN_EXPR_LT) return is_signed ? LLVMIntSLT : LLVMIntULT;
  if (k == KILN_EXPR_LE) return is_signed ? LLVMIntSLE : LLVMIntULE;
  if (k == KILN_EXPR_GT) return is_signed ? LLVMIntSGT : LLVMIntUGT;
  return is_signed ? LLVMIntSGE : LLVMIntUGE;
}

static LLVMRealPredicate real_predicate(kiln_expr_kind k) {
  if (k == KILN_EXPR_EQ) return LLVMRealOEQ;
  if (k == KILN_EXPR_NE) return LLVMRealUNE;
  if (k == KILN_EXPR_LT) return LLVMRealOLT;
  if (k == KILN_EXPR_LE) return LLVMRealOLE;
  return k == KILN_EXPR_GT ? LLVMRealOGT : LLVMRealOGE;
}

// Compares lane*c + uniform with 0 as lane*c with -uniform: one scalar, clamped to the range of i32
// lanes, and one comparison with constants. v is NULL if the difference is not affine.
static kiln_lanes compare_affine(kiln_emit *e, const kiln_expr *x) {
  kiln_linear_form f = {0};
  kiln_cpu_form_add(e, &f, x->args[0], 1);
  kiln_cpu_form_add(e, &f, x->args[1], -1);
  const kiln_split_form s = kiln_cpu_form_split(e, &f);
  if (s.varying.n > 0 || s.lane == 0 || llabs(s.lane) > (1 << 20)) return (kiln_lanes){0};
  LLVMTypeRef i64 = e->m->i64;
  LLVMValueRef bound = LLVMBuildNeg(e->b, kiln_cpu_form_uniform(e, &s), "");
  const int64_t limit = INT64_C(1) << 30;
  bound = kiln_cpu_call2(e, "llvm.smin", bound, kiln_cpu_const_int(i64, limit));
  bound = kiln_cpu_call2(e, "llvm.smax", bound, kiln_cpu_const_int(i64, -limit));
  bound = LLVMBuildTrunc(e->b, bound, e->m->i32, "");
  LLVMValueRef ids = kiln_cpu_lane_ids(e, e->m->i32, e->lanes, 0, s.lane);
  LLVMValueRef v = LLVMBuildICmp(e->b, int_predicate(x->kind, true), ids,
                                 kiln_cpu_splat(e, bound, e->lanes), "");
  return (kiln_lanes){v, e->lanes, false};
}

// Narrows operands of an i64 operator to lanes of i32 if all their values fit.
static void narrow_operands(kiln_emit *e, const kiln_expr *x, kiln_lanes *a, kiln_lanes *b) {
  const bool fits = kiln_expr_kind_is_cmp(x->kind) || fits_i32(e, x);
  kiln_lanes *v[] = {a, b};
  bool can = fits && (a->narrow || b->narrow);
  for (int i = 0; i < 2; i++)
    can = can && (v[i]->narrow || (!v[i]->lanes && fits_i32(e, x->args[i])));
  for (int i = 0; i < 2; i++) {
    if (!can) *v[i] = kiln_cpu_widen(e, *v[i]);
    if (!can || v[i]->narrow) continue;
    v[i]->v = LLVMBuildTrunc(e->b, v[i]->v, e->m->i32, "");
    v[i]->narrow = true;
  }
}

static kiln_lanes eval_compare(kiln_emit *e, const kiln_expr *x) {
  const kiln_dtype t = x->args[0]->dtype;
  if (t == KILN_I64 && !kiln_cpu_is_uniform(e, x)) {
    const kiln_lanes v = compare_affine(e, x);
    if (v.v) return v;
  }
  kiln_lanes a = kiln_cpu_eval(e, x->args[0]), b = kiln_cpu_eval(e, x->args[1]);
  if (t == KILN_I64) narrow_operands(e, x, &a, &b);
  unify(e, &a, &b);
  LLVMValueRef v =
      kiln_dtype_is_float(t)
          ? LLVMBuildFCmp(e->b, real_predicate(x->kind), a.v, b.v, "")
          : LLVMBuildICmp(e->b, int_predicate(x->kind, kiln_dtype_kind(t) == KILN_KIND_INT), a.v,
                          b.v, "");
  return (kiln_lanes){v, a.lanes, false};
}

// Of floats, IEEE 754's minimum and maximum, except that the order of -0 and 0 is unspecified.
static LLVMValueRef min_max(kiln_emit *e, bool is_max, kiln_dtype t, LLVMValueRef a,
                            LLVMValueRef b) {
  if (t == KILN_BOOL) return is_max ? LLVMBuildOr(e->b, a, b, "") : LLVMBuildAnd(e->b, a, b, "");
  if (!kiln_dtype_is_float(t)) {
    const bool is_signed = kiln_dtype_kind(t) == KILN_KIND_INT;
    const char *names[] = {"llvm.umin", "llvm.umax", "llvm.smin", "llvm.smax"};
    return kiln_cpu_call2(e, names[2 * is_signed + is_max], a, b);
  }
  LLVMValueRef r = kiln_cpu_call2(e, is_max ? "llvm.maximum" : "llvm.minimum", a, b);
  if (LLVMIsAInstruction(r)) LLVMSetFastMathFlags(r, LLVMFastMathNoSignedZeros);
  return r;
}

LLVMValueRef kiln_cpu_combine(kiln_emit *e, kiln_combiner c, kiln_dtype t, LLVMValueRef old,
                              LLVMValueRef next) {
  const bool is_float = kiln_dtype_is_float(t);
  switch (c) {
  case KILN_COMBINE_NONE: return next;
  case KILN_COMBINE_SUM:
    return is_float ? LLVMBuildFAdd(e->b, old, next, "") : LLVMBuildAdd(e->b, old, next, "");
  case KILN_COMBINE_PROD:
    return is_float ? LLVMBuildFMul(e->b, old, next, "") : LLVMBuildMul(e->b, old, next, "");
  case KILN_COMBINE_MAX:
  case KILN_COMBINE_MIN: return min_max(e, c == KILN_COMBINE_MAX, t, next, old);
  case KILN_COMBINE_AND: return LLVMBuildAnd(e->b, old, next, "");
  case KILN_COMBINE_OR: return LLVMBuildOr(e->b, old, next, "");
  }
  return next;
}

static LLVMValueRef float_mod(kiln_emit *e, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x)), r = kiln_cpu_libm(e, KILN_EXPR_FMOD, x, y);
  LLVMValueRef differ = LLVMBuildXor(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, r, zero, ""),
                                     LLVMBuildFCmp(e->b, LLVMRealOLT, y, zero, ""), "");
  LLVMValueRef adjusted = LLVMBuildSelect(e->b, differ, LLVMBuildFAdd(e->b, r, y, ""), r, "");
  return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOEQ, r, zero, ""),
                         kiln_cpu_call2(e, "llvm.copysign", zero, y), adjusted, "");
}

// Powers computed by few exact or correctly rounded steps; NULL for others.
static LLVMValueRef small_power(kiln_emit *e, LLVMValueRef x, double n) {
  LLVMTypeRef type = LLVMTypeOf(x);
  if (n == 1) return x;
  if (n == 2 || n == 3) {
    LLVMValueRef square = LLVMBuildFMul(e->b, x, x, "");
    return n == 2 ? square : LLVMBuildFMul(e->b, square, x, "");
  }
  if (n == -1) return LLVMBuildFDiv(e->b, kiln_cpu_const_float(type, 1), x, "");
  if (n != 0.5) return NULL;
  LLVMValueRef root = kiln_cpu_call1(e, "llvm.sqrt", x); // pow(-0, .5) = 0, pow(-inf, .5) = inf
  root = LLVMBuildFAdd(e->b, root, kiln_cpu_const_float(type, 0), "");
  LLVMValueRef is_low =
      LLVMBuildFCmp(e->b, LLVMRealOEQ, x, kiln_cpu_const_float(type, -INFINITY), "");
  return LLVMBuildSelect(e->b, is_low, kiln_cpu_const_float(type, INFINITY), root, "");
}

static LLVMValueRef float_binary(kiln_emit *e, const kiln_expr *x, LLVMValueRef a, LLVMValueRef b) {
  const kiln_expr_kind k = x->kind;
  if (k == KILN_EXPR_ADD) return LLVMBuildFAdd(e->b, a, b, "");
  if (k == KILN_EXPR_SUB) return LLVMBuildFSub(e->b, a, b, "");
  if (k == KILN_EXPR_MUL) return LLVMBuildFMul(e->b, a, b, "");
  if (k == KILN_EXPR_DIV) return LLVMBuildFDiv(e->b, a, b, "");
  if (k == KILN_EXPR_MIN || k == KILN_EXPR_MAX)
    return min_max(e, k == KILN_EXPR_MAX, x->dtype, a, b);
  if (k == KILN_EXPR_MOD) return float_mod(e, a, b);
  if (k == KILN_EXPR_POW) {
    const kiln_expr *n = x->args[1];
    LLVMValueRef small = n->kind == KILN_EXPR_FLOAT ? small_power(e, a, n->u.f) : NULL;
    if (small) return small;
    if (x->dtype != KILN_F64) return kiln_cpu_pow(e, a, b);
  }
  if (k == KILN_EXPR_TDIV) return kiln_cpu_call1(e, "llvm.trunc", LLVMBuildFDiv(e->b, a, b, ""));
  return kiln_cpu_libm(e, k, a, b);
}

static LLVMValueRef int_binary(kiln_emit *e, const kiln_expr *x, LLVMValueRef a, LLVMValueRef b) {
  const kiln_expr_kind k = x->kind;
  const bool is_signed = kiln_dtype_kind(x->dtype) == KILN_KIND_INT;
  if (k == KILN_EXPR_ADD) return LLVMBuildAdd(e->b, a, b, "");
  if (k == KILN_EXPR_SUB) return LLVMBuildSub(e->b, a, b, "");
  if (k == KILN_EXPR_MUL) return LLVMBuildMul(e->b, a, b, "");
  if (k == KILN_EXPR_MIN || k == KILN_EXPR_MAX)
    return min_max(e, k == KILN_EXPR_MAX, x->dtype, a, b);
  if (k == KILN_EXPR_AND || k == KILN_EXPR_BAND) return LLVMBuildAnd(e->b, a, b, "");
  if (k == KILN_EXPR_OR || k == KILN_EXPR_BOR) return LLVMBuildOr(e->b, a, b, "");
  if (k == KILN_EXPR_BXOR) return LLVMBuildXor(e->b, a, b, "");
  if (k == KILN_EXPR_SHL || k == KILN_EXPR_SHR) return kiln_cpu_int_shift(e, k, is_signed, a, b);
  if (k == KILN_EXPR_POW) return kiln_cpu_int_power(e, is_signed, a, b);
  int64_t divisor = 0;
  const bool natural = kiln_expr_is_int(x->args[1], &divisor) && divisor > 0 &&
                       kiln_expr_interval(e->cx, x->args[0], &e->ranges).lo >= 0;
  return kiln_cpu_int_divide(e, k, is_signed, a, b, natural);
}

// The u in 1 + exp(u), a sigmoid's denominator; NULL if |x| has another form.
static const kiln_expr *one_plus_exp_argument(const kiln_expr *x) {
  if (x->kind != KILN_EXPR_ADD || x->dtype != KILN_F32) return NULL;
  for (int i = 0; i < 2; i++) {
    const kiln_expr *one = x->args[i], *power = x->args[1 - i];
    if (one->kind == KILN_EXPR_FLOAT && one->u.f == 1 && power->kind == KILN_EXPR_EXP)
      return power->args[0];
  }
  return NULL;
}

static kiln_lanes eval_binary(kiln_emit *e, const kiln_expr *x) {
  const kiln_expr *u = one_plus_exp_argument(x);
  if (u) {
    kiln_lanes v = kiln_cpu_widen(e, kiln_cpu_eval(e, u));
    v.v = kiln_cpu_one_plus_exp(e, v.v);
    return v;
  }
  const bool is_index = x->dtype == KILN_I64 && !kiln_cpu_is_uniform(e, x);
  if (is_index &&
      (x->kind == KILN_EXPR_ADD || x->kind == KILN_EXPR_SUB || x->kind == KILN_EXPR_MUL)) {
    const kiln_lanes v = eval_affine(e, x);
    if (v.v) return v;
  }
  kiln_lanes a = kiln_cpu_eval(e, x->args[0]), b = kiln_cpu_eval(e, x->args[1]);
  if (x->dtype == KILN_I64) narrow_operands(e, x, &a, &b);
  unify(e, &a, &b);
  a.v = kiln_dtype_is_float(x->dtype) ? float_binary(e, x, a.v, b.v) : int_binary(e, x, a.v, b.v);
  return a;
}

static LLVMValueRef sign_of(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(type);
  if (kiln_dtype_is_float(x->dtype)) {
    LLVMValueRef up = LLVMBuildFCmp(e->b, LLVMRealOGT, a, zero, "");
    LLVMValueRef down = LLVMBuildFCmp(e->b, LLVMRealOLT, a, zero, "");
    LLVMValueRef r = LLVMBuildSelect(e->b, down, kiln_cpu_const_float(type, -1), a, "");
    return LLVMBuildSelect(e->b, up, kiln_cpu_const_float(type, 1), r, "");
  }
  LLVMValueRef one = kiln_cpu_const_int(type, 1);
  LLVMValueRef nonzero = LLVMBuildICmp(e->b, LLVMIntNE, a, zero, "");
  LLVMValueRef r = LLVMBuildSelect(e->b, nonzero, one, zero, "");
  if (kiln_dtype_kind(x->dtype) != KILN_KIND_INT) return r;
  LLVMValueRef down = LLVMBuildICmp(e->b, LLVMIntSLT, a, zero, "");
  return LLVMBuildSelect(e->b, down, kiln_cpu_const_int(type, -1), r, "");
}

static LLVMValueRef absolute(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  if (kiln_dtype_is_float(x->dtype)) return kiln_cpu_call1(e, "llvm.fabs", a);
  if (kiln_dtype_kind(x->dtype) != KILN_KIND_INT) return a;
  LLVMTypeRef type = LLVMTypeOf(a);
  return kiln_cpu_call(e, "llvm.abs", 1, &type, 2,
                       (LLVMValueRef[]){a, LLVMConstInt(e->m->i1, 0, 0)});
}

// Floor, ceil, round, trunc: the identity on integers.
static LLVMValueRef rounded(kiln_emit *e, const kiln_expr *x, const char *name, LLVMValueRef a) {
  return kiln_dtype_is_float(x->dtype) ? kiln_cpu_call1(e, name, a) : a;
}

static LLVMValueRef inline_function(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  if (x->kind == KILN_EXPR_EXP) return kiln_cpu_exp(e, a);
  if (x->kind == KILN_EXPR_EXPM1) return kiln_cpu_expm1(e, a);
  if (x->kind == KILN_EXPR_LOG) return kiln_cpu_log(e, a);
  if (x->kind == KILN_EXPR_LOG1P) return kiln_cpu_log1p(e, a);
  if (x->kind == KILN_EXPR_TANH) return kiln_cpu_tanh(e, a);
  if (x->kind == KILN_EXPR_ERF) return kiln_cpu_erf(e, a);
  if (x->kind == KILN_EXPR_SIN || x->kind == KILN_EXPR_COS)
    return kiln_cpu_sin_cos(e, a, x->kind == KILN_EXPR_COS);
  return kiln_cpu_libm(e, x->kind, a, NULL);
}

// The module's function that computes |x| for lanes of |type|.
static LLVMValueRef module_function(kiln_emit *e, const kiln_expr *x, LLVMTypeRef type) {
  const char *name = kiln_arena_printf(&e->cx->perm, "kiln_%s_%d", kiln_expr_kind_text(x->kind),
                                       kiln_cpu_type_lanes(type));
  LLVMValueRef made = LLVMGetNamedFunction(e->m->module, name), outer = e->fn;
  if (made) return made;
  LLVMBasicBlockRef at = LLVMGetInsertBlock(e->b), entry = e->entry;
  const bool has_zeros = e->has_zeros;
  made = LLVMAddFunction(e->m->module, name, LLVMFunctionType(type, &type, 1, 0));
  LLVMSetLinkage(made, LLVMInternalLinkage);
  kiln_cpu_function_attributes(e->m, made);
  e->fn = made;
  e->has_zeros = false;
  e->entry = LLVMAppendBasicBlockInContext(e->m->llvm, made, "entry");
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMBuildRet(e->b, inline_function(e, x, LLVMGetParam(made, 0)));
  e->fn = outer;
  e->has_zeros = has_zeros;
  e->entry = entry;
  LLVMPositionBuilderAtEnd(e->b, at);
  return made;
}

static LLVMValueRef function(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  if (x->dtype == KILN_F64) return kiln_cpu_libm(e, x->kind, a, NULL);
  if (!kiln_map_find(&e->calls, (uint64_t)x->kind)) return inline_function(e, x, a);
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef f = module_function(e, x, type);
  kiln_cpu_forget_memory(e);
  return LLVMBuildCall2(e->b, LLVMFunctionType(type, &type, 1, 0), f, &a, 1, "");
}

static LLVMValueRef is_infinite(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  if (!kiln_dtype_is_float(x->args[0]->dtype))
    return LLVMConstNull(kiln_cpu_lanes_of(e->m->i1, kiln_cpu_type_lanes(LLVMTypeOf(a))));
  return LLVMBuildFCmp(e->b, LLVMRealOEQ, kiln_cpu_call1(e, "llvm.fabs", a),
                       kiln_cpu_const_float(LLVMTypeOf(a), INFINITY), "");
}

static LLVMValueRef is_nan(kiln_emit *e, const kiln_expr *x, LLVMValueRef a) {
  if (!kiln_dtype_is_float(x->args[0]->dtype))
    return LLVMConstNull(kiln_cpu_lanes_of(e->m->i1, kiln_cpu_type_lanes(LLVMTypeOf(a))));
  return LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
}

// The u in max(u, 0) + log1p(exp(-|u|)), the usual form of softplus; NULL if |x| has another form.
static const kiln_expr *softplus_argument(const kiln_expr *x) {
  if (x->kind != KILN_EXPR_ADD || x->dtype != KILN_F32) return NULL;
  const kiln_expr *top = x->args[0], *log = x->args[1];
  if (top->kind != KILN_EXPR_MAX || log->kind != KILN_EXPR_LOG1P) return NULL;
  const kiln_expr *u = top->args[0], *power = log->args[0];
  const bool is_softplus = kiln_expr_is_zero(top->args[1]) && power->kind == KILN_EXPR_EXP &&
                           power->args[0]->kind == KILN_EXPR_NEG &&
                           power->args[0]->args[0]->kind == KILN_EXPR_ABS &&
                           power->args[0]->args[0]->args[0] == u;
  return is_softplus ? u : NULL;
}

static kiln_lanes eval_unary(kiln_emit *e, const kiln_expr *x) {
  kiln_lanes code;
  if (kiln_cpu_eval_code(e, x, &code)) return code;
  const kiln_expr *u = x->kind == KILN_EXPR_TANH ? softplus_argument(x->args[0]) : NULL;
  kiln_lanes a = kiln_cpu_widen(e, kiln_cpu_eval(e, u ? u : x->args[0]));
  if (u) {
    a.v = kiln_cpu_tanh_softplus(e, a.v);
    return a;
  }
  switch (x->kind) {
  case KILN_EXPR_NOT:
  case KILN_EXPR_BNOT: a.v = LLVMBuildNot(e->b, a.v, ""); break;
  case KILN_EXPR_NEG:
    a.v =
        kiln_dtype_is_float(x->dtype) ? LLVMBuildFNeg(e->b, a.v, "") : LLVMBuildNeg(e->b, a.v, "");
    break;
  case KILN_EXPR_ABS: a.v = absolute(e, x, a.v); break;
  case KILN_EXPR_SIGN: a.v = sign_of(e, x, a.v); break;
  case KILN_EXPR_FLOOR: a.v = rounded(e, x, "llvm.floor", a.v); break;
  case KILN_EXPR_CEIL: a.v = rounded(e, x, "llvm.ceil", a.v); break;
  case KILN_EXPR_ROUND: a.v = rounded(e, x, "llvm.roundeven", a.v); break;
  case KILN_EXPR_TRUNC: a.v = rounded(e, x, "llvm.trunc", a.v); break;
  case KILN_EXPR_SQRT: a.v = kiln_cpu_call1(e, "llvm.sqrt", a.v); break;
  case KILN_EXPR_ISNAN: a.v = is_nan(e, x, a.v); break;
  case KILN_EXPR_ISINF: a.v = is_infinite(e, x, a.v); break;
  case KILN_EXPR_BITCAST: a.v = kiln_cpu_bitcast(e, x->dtype, x->args[0]->dtype, a.v); break;
  case KILN_EXPR_CAST: a.v = kiln_cpu_cast(e, x->dtype, x->args[0]->dtype, a.v); break;
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
  case KILN_EXPR_ERF: a.v = function(e, x, a.v); break;
  case KILN_EXPR_INT:
  case KILN_EXPR_FLOAT:
  case KILN_EXPR_VAR:
  case KILN_EXPR_LOAD:
  case KILN_EXPR_ADD:
  case KILN_EXPR_SUB:
  case KILN_EXPR_MUL:
  case KILN_EXPR_DIV:
  case KILN_EXPR_MOD:
  case KILN_EXPR_FMOD:
  case KILN_EXPR_TDIV:
  case KILN_EXPR_MIN:
  case KILN_EXPR_MAX:
  case KILN_EXPR_POW:
  case KILN_EXPR_ATAN2:
  case KILN_EXPR_LT:
  case KILN_EXPR_LE:
  case KILN_EXPR_GT:
  case KILN_EXPR_GE:
  case KILN_EXPR_EQ:
  case KILN_EXPR_NE:
  case KILN_EXPR_AND:
  case KILN_EXPR_OR:
  case KILN_EXPR_BAND:
  case KILN_EXPR_BOR:
  case KILN_EXPR_BXOR:
  case KILN_EXPR_SHL:
  case KILN_EXPR_SHR:
  case KILN_EXPR_SELECT:
  case KILN_N_EXPRS: break; // not unary
  }
  return a;
}

static kiln_lanes eval_var(kiln_emit *e, const kiln_expr *x) {
  const kiln_binding *b = kiln_cpu_binding(e, x->u.sym);
  KILN_ASSERT(b != NULL); // kiln_loops_verify
  if (b->kind == KILN_BOUND_CONST)
    return (kiln_lanes){kiln_cpu_const_int(e->m->i64, b->constant), 0, false};
  if (b->kind == KILN_BOUND_LOOP) return (kiln_lanes){b->value, 0, false};
  return (kiln_lanes){kiln_cpu_lane_ids(e, e->m->i32, e->lanes, e->chunk, 1), e->lanes, true};
}

static kiln_lanes eval_node(kiln_emit *e, const kiln_expr *x) {
  LLVMTypeRef type = kiln_cpu_value_type(e->m, x->dtype);
  if (x->kind == KILN_EXPR_INT)
    return (kiln_lanes){LLVMConstInt(type, (unsigned long long)x->u.i, 1), 0, false};
  if (x->kind == KILN_EXPR_FLOAT) return (kiln_lanes){LLVMConstReal(type, x->u.f), 0, false};
  if (x->kind == KILN_EXPR_VAR) return eval_var(e, x);
  if (x->kind == KILN_EXPR_LOAD) return kiln_cpu_load(e, x);
  if (x->kind == KILN_EXPR_SELECT) return eval_select(e, x);
  if (kiln_expr_kind_is_cmp(x->kind)) return eval_compare(e, x);
  return x->n_args == 2 ? eval_binary(e, x) : eval_unary(e, x);
}

kiln_lanes kiln_cpu_eval(kiln_emit *e, const kiln_expr *x) {
  if (is_known(e, x)) return memo_at(e, x->id)->value;
  const kiln_lanes v = eval_node(e, x);
  struct kiln_memo *memo = memo_at(e, x->id);
  *memo = (struct kiln_memo){e->epoch, v};
  if (e->memo_masked && x->has_load) KILN_VEC_PUSH(&e->cx->perm, &e->memo_log, x->id);
  return v;
}

LLVMValueRef kiln_cpu_eval_scalar(kiln_emit *e, const kiln_expr *x) {
  const kiln_lanes v = kiln_cpu_eval(e, x);
  KILN_ASSERT(v.lanes == 0);
  return v.v;
}
