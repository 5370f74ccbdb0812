// Constant folding after each node: constant outputs are computed by the reference interpreter, and
// small integer tensors are evaluated symbolically, element by element, so that the shape
// arithmetic of exporters (Shape, Gather, Mul, Concat, ...) still yields extents with named
// dimensions.
#include "fission/registry.h"

#include "analysis/interpret.h"
#include "rewrite/checks.h"
#include "fission/notes.h"
#include "analysis/simplify.h"
#include "ir/fold.h"
#include "support/integer.h"

#include <string.h>

static const int64_t max_fold_elems = INT64_C(1) << 20; // of float outputs
static const int64_t max_fill_elems = 1024;             // of outputs without operands: fills, ramps
static const int64_t max_fold_bytes = INT64_C(1) << 30; // of any output
static const int64_t max_fold_steps = INT64_C(1) << 28; // body evaluations of one node
enum { MAX_VALUES = 64, MAX_VALUE_STEPS = 4096 };

// --- constants ---

static bool inputs_are_constant(const kiln_lower *lw) {
  for (int i = 0; i < lw->n_inputs; i++)
    if (lw->inputs[i] && lw->inputs[i]->role != KILN_CONST) return false;
  return true;
}

// Fills and ramps are computed where they are used: cheaper than reading them from memory.
static bool reads_nothing(const kiln_lower *lw, int n_stmts) {
  for (int i = n_stmts; i < lw->prog->stmts.n; i++)
    if (kiln_expr_has_load(lw->prog->stmts.data[i]->body)) return false;
  return true;
}

static bool worth_folding(const kiln_lower *lw, int n_stmts) {
  const int64_t max_elems = reads_nothing(lw, n_stmts) ? max_fill_elems : max_fold_elems;
  for (int i = 0; i < lw->n_outputs; i++) {
    const kiln_tensor *t = lw->outputs[i];
    if (!t) continue;
    const int64_t elems = kiln_tensor_elems(t);
    if (elems < 0 || elems > max_fold_bytes / kiln_dtype_bytes(t->dtype)) return false;
    if (kiln_dtype_is_float(t->dtype) && elems > max_elems) return false;
  }
  int64_t steps = 0;
  for (int i = n_stmts; i < lw->prog->stmts.n; i++) {
    const kiln_stmt *s = lw->prog->stmts.data[i];
    int64_t n = 1, extent = 0;
    for (int d = 0; d < s->n_space + s->n_reduce; d++) {
      if (!kiln_expr_is_int(s->dims[d].extent, &extent)) return false;
      if (__builtin_mul_overflow(n, extent, &n)) return false;
    }
    steps += n;
    if (n > max_fold_steps || steps > max_fold_steps) return false;
  }
  return true;
}

// The bytes of a tensor in perm, computed if necessary.
static kiln_status take_data(kiln_lower *lw, kiln_interpreter *in, const kiln_tensor *t,
                             kiln_const *out) {
  out->dtype = t->dtype;
  out->rank = t->rank;
  kiln_tensor_static_shape(t, out->shape);
  out->bytes = (size_t)kiln_tensor_elems(t) * (size_t)kiln_dtype_bytes(t->dtype);
  out->data = t->data;
  if (t->data) return KILN_OK;
  const void *data = NULL;
  KILN_TRY(kiln_interpreter_compute(in, t->id, &data));
  void *copy = kiln_arena_alloc(&lw->cx->perm, out->bytes ? out->bytes : 1);
  if (out->bytes) memcpy(copy, data, out->bytes);
  out->data = copy;
  return KILN_OK;
}

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

static kiln_status compute_outputs(kiln_lower *lw, int n_tensors, kiln_const *made) {
  kiln_interpreter *in = NULL;
  KILN_TRY(kiln_interpreter_create(lw->cx, lw->prog, &in));
  kiln_cleanup_push(lw->cx, destroy, in);
  kiln_status status = KILN_OK;
  for (int i = 0; i < lw->n_outputs && status == KILN_OK; i++)
    if (lw->outputs[i] && lw->outputs[i]->id >= n_tensors)
      status = take_data(lw, in, lw->outputs[i], &made[i]);
  kiln_cleanup_pop(lw->cx);
  kiln_interpreter_destroy(in);
  return status;
}

// Computes the outputs and removes the node's statements: no later node refers to them yet.
static kiln_status fold_constants(kiln_lower *lw, int n_stmts, int n_tensors) {
  kiln_const *made = KILN_NEW_ARRAY(&lw->cx->scratch, kiln_const, lw->n_outputs);
  KILN_TRY(compute_outputs(lw, n_tensors, made));
  const char **names = KILN_NEW_ARRAY(&lw->cx->scratch, const char *, lw->n_outputs);
  const kiln_quantised **from =
      KILN_NEW_ARRAY(&lw->cx->scratch, const kiln_quantised *, lw->n_outputs);
  for (int i = 0; i < lw->n_outputs; i++) {
    if (!lw->outputs[i]) continue;
    names[i] = kiln_symbol_text(lw->cx, lw->outputs[i]->name);
    from[i] = kiln_lower_quantised(lw, lw->outputs[i]);
  }
  lw->prog->stmts.n = n_stmts;
  lw->prog->tensors.n = n_tensors;
  kiln_notes_cut(lw->notes, n_tensors);
  for (int i = 0; i < lw->n_outputs; i++) {
    if (!made[i].data) continue;
    lw->outputs[i] = kiln_tensor_make_const(lw->cx, lw->prog, names[i], &made[i]);
    kiln_lower_note_quantised(lw, lw->outputs[i], from[i]);
  }
  return KILN_OK;
}

// --- symbolic values ---

typedef struct symbolic {
  kiln_ctx *cx;
  kiln_lower *lw;
  const kiln_program *p;
  const kiln_stmt *s;
  const int64_t *at;    // [n_space + n_reduce], where the statement is evaluated
  kiln_value_kind kind; // of integers that are not known: KNOWN: none are allowed
  int depth;            // of statements
} symbolic;

// Integers of every width are carried as i64: extents do not overflow.
static const kiln_expr *resolve(const symbolic *y, const kiln_expr *e);

static const kiln_expr *number_of(kiln_ctx *cx, kiln_dtype t, const void *data, int64_t i) {
  if (kiln_dtype_is_float(t)) return kiln_float(cx, t, kiln_element_get(t, data, i));
  if (t == KILN_BOOL) return kiln_int_of(cx, KILN_BOOL, kiln_element_get_int(t, data, i));
  return kiln_int(cx, kiln_element_get_int(t, data, i));
}

static const kiln_expr *value_at(const symbolic *y, const kiln_tensor *t, int64_t at);

static const kiln_expr *resolve_load(const symbolic *y, const kiln_expr *e) {
  const kiln_tensor *t = y->p->tensors.data[e->u.tensor];
  int64_t linear = 0;
  for (int a = 0; a < t->rank; a++) {
    int64_t at = 0, extent = 0;
    const kiln_expr *index = resolve(y, e->args[a]);
    if (!index || !kiln_expr_is_int(index, &at) || !kiln_expr_is_int(t->shape[a], &extent))
      return NULL;
    if (at < 0 || at >= extent) return NULL;
    linear = linear * extent + at;
  }
  if (t->role == KILN_CONST && t->data) return number_of(y->cx, t->dtype, t->data, linear);
  const kiln_expr *const *values = kiln_lower_values(y->lw, t);
  if (values) return values[linear];
  return y->kind == KILN_VALUE_KNOWN ? NULL : value_at(y, t, linear);
}

static const kiln_expr *resolve_var(const symbolic *y, const kiln_expr *e) {
  for (int d = 0; d < y->s->n_space + y->s->n_reduce; d++)
    if (y->s->dims[d].name == e->u.sym) return kiln_int(y->cx, y->at[d]);
  return e;
}

static const kiln_expr *resolve_cast(const symbolic *y, const kiln_expr *e) {
  const kiln_expr *a = resolve(y, e->args[0]);
  if (!a) return NULL;
  if (kiln_dtype_is_float(e->dtype) || e->dtype == KILN_BOOL) return kiln_cast(y->cx, e->dtype, a);
  int64_t value = 0;
  const kiln_expr *narrow = kiln_cast(y->cx, e->dtype, a);
  if (kiln_expr_is_int(narrow, &value)) return kiln_int(y->cx, value);
  return kiln_cast(y->cx, KILN_I64, a);
}

static const kiln_expr *resolve_select(const symbolic *y, const kiln_expr *e) {
  int64_t chosen = 0;
  const kiln_expr *c = resolve(y, e->args[0]);
  if (!c) return NULL;
  if (kiln_expr_is_int(c, &chosen)) return resolve(y, e->args[chosen ? 1 : 2]);
  const kiln_expr *a = resolve(y, e->args[1]), *b = resolve(y, e->args[2]);
  return a && b ? kiln_select(y->cx, c, a, b) : NULL;
}

static const kiln_expr *resolve(const symbolic *y, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_INT) return e->dtype == KILN_BOOL ? e : kiln_int(y->cx, e->u.i);
  if (e->kind == KILN_EXPR_FLOAT) return e;
  if (e->kind == KILN_EXPR_VAR) return resolve_var(y, e);
  if (e->kind == KILN_EXPR_LOAD) return resolve_load(y, e);
  if (e->kind == KILN_EXPR_CAST) return resolve_cast(y, e);
  if (e->kind == KILN_EXPR_BITCAST) return NULL;
  if (e->kind == KILN_EXPR_SELECT) return resolve_select(y, e);
  const kiln_expr *a = resolve(y, e->args[0]);
  if (!a || e->n_args == 1) return a ? kiln_unary(y->cx, e->kind, a) : NULL;
  const kiln_expr *b = resolve(y, e->args[1]);
  return b ? kiln_binary(y->cx, e->kind, a, b) : NULL;
}

typedef struct least_values {
  const kiln_lower *lw;
  kiln_ranges ranges;
} least_values;

// The least value of a dimension is known; its greatest is not used, as extents that are the same
// at all values up to it are to stay the same formula.
static void push_var(const kiln_expr *e, void *argument) {
  least_values *v = argument;
  if (e->kind != KILN_EXPR_VAR) return;
  const int64_t least = v->lw->dims ? kiln_expr_interval(v->lw->cx, e, v->lw->dims).lo : 0;
  kiln_ranges_push(&v->ranges, e->u.sym, kiln_max_i64(least, 0), INT32_MAX);
}

static const kiln_expr *simplified(const kiln_lower *lw, const kiln_expr *e) {
  least_values v = {.lw = lw};
  if (e->n_args == 0) return e;
  kiln_ranges_init(&v.ranges, &lw->cx->scratch);
  kiln_expr_visit(lw->cx, e, push_var, &v);
  return kiln_simplify(lw->cx, e, &v.ranges);
}

// The value of one output element; evaluates the reduction dims' loops.
static const kiln_expr *evaluate(symbolic *y, int64_t *at, const int64_t *extents) {
  const kiln_stmt *s = y->s;
  const int n = s->n_space + s->n_reduce;
  const kiln_dtype out = y->p->tensors.data[s->out]->dtype;
  const kiln_dtype t = out == KILN_BOOL ? KILN_BOOL : KILN_I64;
  const kiln_expr *sum = NULL;
  for (int d = s->n_space; d < n; d++) {
    at[d] = 0;
    if (extents[d] == 0) return kiln_combiner_identity(y->cx, s->combiner, t);
  }
  for (;;) {
    const kiln_expr *guard = s->guard ? resolve(y, s->guard) : NULL;
    int64_t runs = 1;
    if (s->guard && (!guard || !kiln_expr_is_int(guard, &runs))) return NULL;
    if (runs) {
      const kiln_expr *value = resolve(y, s->body);
      if (!value || value->dtype != t) return NULL;
      sum = sum && s->combiner != KILN_COMBINE_NONE ? kiln_combine(y->cx, s->combiner, sum, value)
                                                    : value;
    }
    int d = n - 1;
    while (d >= s->n_space && ++at[d] == extents[d]) at[d--] = 0;
    if (d < s->n_space) break;
  }
  if (!sum) return kiln_combiner_identity(y->cx, s->combiner, t);
  return simplified(y->lw, sum);
}

static bool small(const kiln_program *p, const kiln_stmt *s, int64_t *extents) {
  const kiln_tensor *t = p->tensors.data[s->out];
  int64_t steps = 1;
  if (kiln_dtype_is_float(t->dtype) || kiln_dtype_is_code(t->dtype) || t->rank > 2) return false;
  if (s->body->n_tree > KILN_LONG_TREE) return false; // evaluation visits it as a tree
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    if (!kiln_expr_is_int(s->dims[d].extent, &extents[d]) || extents[d] > MAX_VALUE_STEPS)
      return false;
    steps *= extents[d];
    if (d < s->n_space ? steps > MAX_VALUES : steps > MAX_VALUE_STEPS) return false;
  }
  return true;
}

// Sets at[0..n) to the place of element |linear|.
static void place_of(const int64_t *extents, int n, int64_t linear, int64_t *at) {
  for (int d = n - 1; d >= 0; d--) {
    at[d] = linear % extents[d];
    linear /= extents[d];
  }
}

// Where the statement of an unknown integer moves or computes it from others, these are its
// variables, so that equal elements are known to be equal.
static const kiln_expr *value_at(const symbolic *y, const kiln_tensor *t, int64_t at) {
  enum { MAX_DEPTH = 32, MAX_DIMS = KILN_MAX_RANK };
  const kiln_stmt *s = t->def >= 0 ? y->p->stmts.data[t->def] : NULL;
  int64_t extents[MAX_DIMS], place[MAX_DIMS];
  if (kiln_dtype_is_float(t->dtype) || kiln_dtype_is_code(t->dtype) || t->dtype == KILN_BOOL)
    return NULL;
  if (s && s->n_reduce == 0 && s->n_space <= MAX_DIMS && y->depth < MAX_DEPTH &&
      kiln_stmt_is_plain(y->cx, s) && small(y->p, s, extents)) {
    symbolic inner = *y;
    inner.s = s;
    inner.at = place;
    inner.depth++;
    place_of(extents, s->n_space, at, place);
    const kiln_expr *found = evaluate(&inner, place, extents);
    if (found && !found->has_load) return found;
  }
  return kiln_lower_run_value(y->lw, t, at, y->kind);
}

const kiln_expr *kiln_fission_value_at(kiln_lower *lw, const kiln_tensor *t, int64_t at,
                                       kiln_value_kind kind) {
  const symbolic y = {.cx = lw->cx, .lw = lw, .p = lw->prog, .kind = kind};
  return value_at(&y, t, at);
}

static void find_values(kiln_lower *lw, const kiln_stmt *s) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *t = lw->prog->tensors.data[s->out];
  const int n_dims = s->n_space + s->n_reduce;
  int64_t *extents = KILN_NEW_ARRAY(&cx->scratch, int64_t, n_dims);
  if (kiln_lower_values(lw, t) || !kiln_stmt_is_plain(cx, s) || !small(lw->prog, s, extents))
    return;
  int64_t *at = KILN_NEW_ARRAY(&cx->scratch, int64_t, n_dims);
  symbolic y = {.cx = cx, .lw = lw, .p = lw->prog, .s = s, .at = at};
  const int64_t n = kiln_tensor_elems(t);
  const kiln_expr **values = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int64_t i = 0; i < n; i++) {
    place_of(extents, s->n_space, i, at);
    values[i] = evaluate(&y, at, extents);
    if (!values[i]) return;
  }
  kiln_lower_note_values(lw, t, values);
}

// A constant, if all symbolic values are numbers.
static kiln_tensor *constant_of(kiln_lower *lw, kiln_tensor *t) {
  const kiln_expr *const *values = t ? kiln_lower_values(lw, t) : NULL;
  if (!values || t->role == KILN_CONST) return t;
  int64_t shape[KILN_MAX_RANK], value = 0;
  const int64_t n = kiln_tensor_elems(t);
  if (n < 0 || !kiln_tensor_static_shape(t, shape)) return t;
  void *data = kiln_arena_alloc(&lw->cx->scratch, 8 * (size_t)(n + 1));
  for (int64_t i = 0; i < n; i++) {
    if (!kiln_expr_is_int(values[i], &value)) return t;
    kiln_element_set_int(t->dtype, data, i, value);
  }
  return kiln_lower_make_const(lw, kiln_symbol_text(lw->cx, t->name), t->dtype, t->rank, shape,
                               data);
}

// Whether to fold this node: a recorded decision if there is one, else decided now.
static bool folds(const kiln_lower *lw, int n_stmts) {
  kiln_folds *known = lw->folds;
  if (!known) return worth_folding(lw, n_stmts);
  if (known->at == known->decided.n)
    KILN_VEC_PUSH(&lw->cx->perm, &known->decided, worth_folding(lw, n_stmts));
  return known->decided.data[known->at++];
}

kiln_status kiln_fission_fold(kiln_lower *lw, int n_stmts, int n_tensors) {
  if (lw->prog->stmts.n > n_stmts && inputs_are_constant(lw) &&
      !kiln_checks_have(lw->checks, n_tensors) && folds(lw, n_stmts))
    return fold_constants(lw, n_stmts, n_tensors);
  for (int i = n_stmts; i < lw->prog->stmts.n; i++) find_values(lw, lw->prog->stmts.data[i]);
  for (int i = 0; i < lw->n_outputs; i++) lw->outputs[i] = constant_of(lw, lw->outputs[i]);
  return KILN_OK;
}
