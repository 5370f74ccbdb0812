// Building blocks of operator files in C: see terms.h.
#include "fission/terms.h"

#include "analysis/interpret.h"
#include "analysis/simplify.h"

bool kiln_expr_is(const kiln_expr *e, int64_t value) {
  int64_t v = 0;
  return kiln_expr_is_int(e, &v) && v == value;
}

const kiln_expr *kiln_ceil_div(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_div(cx, kiln_add(cx, a, kiln_sub(cx, b, kiln_int(cx, 1))), b);
}

const kiln_expr *kiln_multiply_all(kiln_ctx *cx, int n, const kiln_expr *const *factors) {
  const kiln_expr *p = kiln_int(cx, 1);
  for (int i = 0; i < n; i++) p = kiln_mul(cx, p, factors[i]);
  return p;
}

static void push_dimension(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_VAR) kiln_ranges_push(argument, e->u.sym, 0, INT32_MAX);
}

const kiln_expr *kiln_lower_tidy(kiln_ctx *cx, const kiln_expr *e) {
  if (kiln_expr_is_int(e, NULL)) return e;
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  kiln_expr_visit(cx, e, push_dimension, &ranges);
  return kiln_simplify(cx, e, &ranges);
}

void kiln_stmt_tidy(kiln_ctx *cx, kiln_stmt *s) {
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  for (int i = 0; i < s->n_space + s->n_reduce; i++) {
    int64_t extent = INT32_MAX;
    kiln_expr_is_int(s->dims[i].extent, &extent);
    if (extent > 0) kiln_ranges_push(&ranges, s->dims[i].name, 0, extent - 1);
  }
  s->body = kiln_simplify(cx, s->body, &ranges);
}

void kiln_stmt_vars(kiln_ctx *cx, const kiln_stmt *s, int first, int n, const kiln_expr **out) {
  for (int i = 0; i < n; i++) out[i] = kiln_stmt_var(cx, s, first + i);
}

kiln_dtype kiln_accumulator(kiln_dtype t) { return kiln_dtype_is_half(t) ? KILN_F32 : t; }

bool kiln_dtype_is_index(kiln_dtype t) { return t == KILN_I32 || t == KILN_I64; }

bool kiln_dtype_is_number(kiln_dtype t) { return t != KILN_BOOL; }

bool kiln_dtype_has_order(kiln_dtype t) { return t != KILN_BOOL && !kiln_dtype_is_code(t); }

kiln_dtype kiln_order_key_type(kiln_dtype t) {
  return kiln_dtype_bytes(t) == 8 || t == KILN_U32 ? KILN_I64 : KILN_I32;
}

// Bits of positive floats, taken as integers, are in the floats' order, those of negative floats in
// reverse.
static const kiln_expr *float_key(kiln_ctx *cx, const kiln_expr *x, kiln_dtype key) {
  const kiln_dtype t = key == KILN_I64 ? KILN_F64 : KILN_F32;
  const kiln_expr *zero = kiln_int_of(cx, key, 0), *nothing = kiln_float(cx, t, 0),
                  *most = kiln_int_of(cx, key, key == KILN_I64 ? INT64_MAX : INT32_MAX);
  const kiln_expr *wide = kiln_cast(cx, t, x);
  const kiln_expr *is_zero = kiln_compare(cx, KILN_EXPR_EQ, wide, nothing); // also -0
  const kiln_expr *bits = kiln_bitcast(cx, key, kiln_select(cx, is_zero, nothing, wide));
  const kiln_expr *turned = kiln_binary(cx, KILN_EXPR_BXOR, bits, most);
  const kiln_expr *in_order =
      kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, bits, zero), turned, bits);
  return kiln_select(cx, kiln_unary(cx, KILN_EXPR_ISNAN, wide), most, in_order);
}

const kiln_expr *kiln_order_key(kiln_ctx *cx, const kiln_expr *x) {
  const kiln_dtype key = kiln_order_key_type(x->dtype);
  if (kiln_dtype_is_float(x->dtype)) return float_key(cx, x, key);
  if (x->dtype != KILN_U64) return kiln_cast(cx, key, x);
  return kiln_binary(cx, KILN_EXPR_BXOR, kiln_cast(cx, key, x), kiln_int(cx, INT64_MIN));
}

static kiln_status want_one_element(kiln_lower *lw, const kiln_tensor *x, const char *what) {
  for (int i = 0; i < x->rank; i++)
    if (!kiln_expr_is(x->shape[i], 1))
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "%s must have one element, got a tensor of rank %d with more", what,
                       x->rank);
  return KILN_OK;
}

kiln_status kiln_lower_scalar(kiln_lower *lw, const kiln_tensor *x, kiln_dtype t, const char *what,
                              const kiln_expr **out) {
  KILN_TRY(want_one_element(lw, x, what));
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const *values = kiln_lower_values(lw, x);
  if (values) {
    *out = kiln_cast(cx, t, values[0]);
  } else if (x->role == KILN_CONST && kiln_dtype_is_float(x->dtype)) {
    *out = kiln_cast(cx, t, kiln_float(cx, x->dtype, kiln_element_get(x->dtype, x->data, 0)));
  } else if (x->role == KILN_CONST) {
    *out = kiln_cast(cx, t, kiln_int_of(cx, x->dtype, kiln_element_get_int(x->dtype, x->data, 0)));
  } else {
    const kiln_expr *zeros[KILN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) zeros[i] = kiln_int(cx, 0);
    *out = kiln_cast(cx, t, kiln_tensor_load(cx, x, zeros));
  }
  return KILN_OK;
}

static kiln_symbol element_dim(kiln_lower *lw, int axis) {
  return kiln_symbol_printf(lw->cx, "e%d", axis);
}

const kiln_expr *kiln_lower_element(kiln_lower *lw, const kiln_tensor *x) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) at[a] = kiln_var(lw->cx, element_dim(lw, a));
  return kiln_cast(lw->cx, KILN_I64, kiln_tensor_load(lw->cx, x, at));
}

kiln_status kiln_lower_want_index(kiln_lower *lw, const kiln_tensor *x, int axis,
                                  const kiln_expr *index, const kiln_expr *when,
                                  const kiln_expr *least, const kiln_expr *end) {
  kiln_dim dims[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) dims[a] = (kiln_dim){element_dim(lw, a), x->shape[a]};
  const kiln_index_use use = {.place = kiln_node_place(lw->cx, lw->graph, lw->node),
                              .name = kiln_symbol_text(lw->cx, x->name),
                              .origin = lw->node->name ? lw->node->name : lw->node->op,
                              .axis = axis,
                              .index = index ? index : kiln_lower_element(lw, x),
                              .least = least,
                              .end = end,
                              .when = kiln_both(lw->cx, lw->when, when),
                              .n_dims = x->rank,
                              .dims = dims};
  return kiln_check_index(lw->cx, lw->prog, lw->checks, &use);
}

// Least and greatest of the elements first, first + step, ... of |x|; unbounded if they are unknown
// at compile time.
static kiln_interval elements_of(const kiln_tensor *x, int64_t first, int64_t step) {
  kiln_interval range = {INT64_MIN, INT64_MAX};
  const int64_t n = kiln_tensor_elems(x);
  if (x->role != KILN_CONST || !x->data) return range;
  range = (kiln_interval){0, 0};
  for (int64_t i = first; i < n; i += step) {
    const int64_t v = kiln_element_get_int(x->dtype, x->data, i);
    if (v < range.lo) range.lo = v;
    if (v > range.hi) range.hi = v;
  }
  return range;
}

kiln_status kiln_lower_want_choice(kiln_lower *lw, const kiln_tensor *indices,
                                   const kiln_expr *extent) {
  if (!kiln_expr_is(extent, 0) || kiln_tensor_elems(indices) == 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: chooses from an axis that must not be empty",
                   kiln_symbol_text(lw->cx, indices->name));
}

// The elements first, first + step, ... of |x|, indexed by |at|.
typedef struct indexing {
  const kiln_tensor *x;
  const kiln_expr *const *at;
  int64_t first, step;
  const kiln_tensor *data;
  int axis;
} indexing;

static kiln_status index_of(kiln_lower *lw, const indexing *n, const kiln_expr *element,
                            const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *x = n->x;
  const kiln_expr *extent = n->data->shape[n->axis], *zero = kiln_int(cx, 0);
  const kiln_interval range = elements_of(x, n->first, n->step);
  int64_t end = 0;
  const bool known = kiln_expr_is_int(extent, &end) && range.lo >= -end && range.hi < end;
  KILN_TRY(kiln_lower_want_choice(lw, x, extent));
  KILN_TRY(
      kiln_lower_want_index(lw, x, n->axis, element, NULL, kiln_sub(cx, zero, extent), extent));
  const kiln_expr *i = NULL;
  if (x->role == KILN_CONST && kiln_tensor_elems(x) == n->step)
    i = kiln_int(cx, kiln_element_get_int(x->dtype, x->data, n->first));
  else if (kiln_lower_values(lw, x) && x->rank == 0) i = kiln_lower_values(lw, x)[0];
  else i = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, x, n->at));
  if (range.lo < 0)
    i = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, i, zero), kiln_add(cx, i, extent), i);
  if (!known && !kiln_expr_is_int(i, NULL)) {
    const kiln_expr *last = kiln_sub(cx, extent, kiln_int(cx, 1));
    i = kiln_most(cx, zero, kiln_least(cx, i, last));
  }
  *out = i;
  return KILN_OK;
}

kiln_status kiln_lower_index(kiln_lower *lw, const kiln_tensor *x, const kiln_expr *const *at,
                             const kiln_tensor *data, int axis, const kiln_expr **out) {
  const indexing n = {x, at, 0, 1, data, axis};
  return index_of(lw, &n, NULL, out);
}

kiln_status kiln_lower_coordinate(kiln_lower *lw, const kiln_tensor *x, const kiln_expr *const *at,
                                  int k, const kiln_tensor *data, int axis, const kiln_expr **out) {
  int64_t depth = 1;
  KILN_TRY(kiln_lower_extent(lw, x, x->rank - 1, &depth));
  const indexing n = {x, at, k, depth, data, axis};
  const kiln_expr *own = kiln_int(lw->cx, k);
  const kiln_symbol last = element_dim(lw, x->rank - 1);
  const kiln_expr *element =
      kiln_expr_substitute(lw->cx, kiln_lower_element(lw, x), 1, &last, &own);
  return index_of(lw, &n, element, out);
}

kiln_status kiln_lower_axes(kiln_lower *lw, const char *attr, int input, int rank, int *out_n,
                            int out_axes[KILN_MAX_RANK]) {
  const int64_t *axes = NULL;
  *out_n = -1;
  KILN_TRY(kiln_lower_ints(lw, attr, out_n, &axes));
  if (*out_n < 0 && input >= 0) KILN_TRY(kiln_lower_const_ints(lw, input, out_n, &axes));
  if (*out_n > KILN_MAX_RANK)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "axes: must be at most %d, got %d of them", KILN_MAX_RANK, *out_n);
  bool taken[KILN_MAX_RANK] = {false};
  for (int i = 0; i < *out_n; i++) {
    KILN_TRY(kiln_lower_axis(lw, axes[i], rank, false, &out_axes[i]));
    if (taken[out_axes[i]])
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "axes: must be distinct, got axis %d twice", out_axes[i]);
    taken[out_axes[i]] = true;
  }
  return KILN_OK;
}

kiln_status kiln_lower_want_extent(kiln_lower *lw, const kiln_tensor *t, int axis,
                                   const kiln_expr *want) {
  int64_t have = 0, wanted = 0;
  if (!t || !kiln_expr_is_int(t->shape[axis], &have) || !kiln_expr_is_int(want, &wanted) ||
      have == wanted)
    return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: axis %d must have extent %" PRId64 ", got %" PRId64,
                   kiln_symbol_text(lw->cx, t->name), axis, wanted, have);
}

kiln_status kiln_lower_want_rank(kiln_lower *lw, const kiln_tensor *t, int min, int max) {
  if (!t)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input: must be a tensor of rank %d at least, got none", min);
  if (t->rank >= min && t->rank <= max) return KILN_OK;
  if (min == max)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: rank must be %d, got %d",
                     kiln_symbol_text(lw->cx, t->name), min, t->rank);
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: rank must be in [%d, %d], got %d",
                   kiln_symbol_text(lw->cx, t->name), min, max, t->rank);
}

void kiln_lower_move(kiln_lower *lw, kiln_stmt *s, const kiln_tensor *t,
                     const kiln_expr *const *index, int output) {
  s->body = kiln_tensor_load(lw->cx, t, index);
  lw->outputs[output] = kiln_lower_tensor(lw, s);
}

kiln_stmt *kiln_lower_like(kiln_lower *lw, const char *name, const kiln_tensor *t, kiln_dtype dtype,
                           const kiln_expr **index) {
  kiln_stmt *s = kiln_lower_stmt(lw, name, dtype, t->rank, 0, t->shape);
  kiln_stmt_vars(lw->cx, s, 0, t->rank, index);
  return s;
}

// Sets the batch part of |index| for an operand with |batch| leading axes: the batch dims,
// right-aligned, or 0 for an axis of extent 1.
static void batch_index(kiln_ctx *cx, const kiln_tensor *t, int batch, const kiln_stmt *s,
                        int n_batch, const kiln_expr **index) {
  for (int i = 0; i < batch; i++)
    index[i] =
        kiln_expr_is(t->shape[i], 1) ? kiln_int(cx, 0) : kiln_stmt_var(cx, s, n_batch - batch + i);
}

// Broadcasts the batch extents of a and b; |n| entries.
static kiln_status batch_extents(kiln_lower *lw, const kiln_tensor *a, int batch_a,
                                 const kiln_tensor *b, int batch_b, int n, const kiln_expr **out) {
  for (int i = 0; i < n; i++) {
    const int ia = i - (n - batch_a), ib = i - (n - batch_b);
    const kiln_expr *ea = ia >= 0 ? a->shape[ia] : kiln_int(lw->cx, 1);
    const kiln_expr *eb = ib >= 0 ? b->shape[ib] : kiln_int(lw->cx, 1);
    int64_t va = 0, vb = 0;
    const bool ka = kiln_expr_is_int(ea, &va), kb = kiln_expr_is_int(eb, &vb);
    if (ka && kb && va != vb && va != 1 && vb != 1)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "batch axis %d: extents must be equal or 1, got %" PRId64 " and %" PRId64, i,
                       va, vb);
    // a symbolic extent against a number: it may turn out to be 1, so the result is the number
    const bool takes_b = (ka && va == 1) || (kb && !ka && vb != 1);
    out[i] = takes_b ? eb : ea;
  }
  return KILN_OK;
}

kiln_status kiln_lower_matmul(kiln_lower *lw, kiln_tensor *a, kiln_tensor *b,
                              kiln_dtype accumulator, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_rank(lw, a, 1, KILN_MAX_RANK));
  KILN_TRY(kiln_lower_want_rank(lw, b, 1, KILN_MAX_RANK));
  const int batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
  const int n_batch = batch_a > batch_b ? batch_a : batch_b;
  const kiln_expr *extents[KILN_MAX_RANK + 1];
  KILN_TRY(batch_extents(lw, a, batch_a, b, batch_b, n_batch, extents));
  const kiln_expr *ka = a->shape[a->rank - 1], *kb = b->shape[b->rank > 1 ? b->rank - 2 : 0];
  int64_t va = 0, vb = 0;
  if (kiln_expr_is_int(ka, &va) && kiln_expr_is_int(kb, &vb) && va != vb)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "the inner extents must be equal, got %" PRId64 " and %" PRId64, va, vb);
  int rank = n_batch;
  if (a->rank > 1) extents[rank++] = a->shape[a->rank - 2];
  if (b->rank > 1) extents[rank++] = b->shape[b->rank - 1];
  extents[rank] = kiln_expr_is_int(ka, NULL) ? ka : kb;
  kiln_stmt *s = kiln_lower_stmt(lw, "matmul", accumulator, rank, 1, extents);
  const kiln_expr *k = kiln_stmt_var(cx, s, rank), *at[KILN_MAX_RANK];
  batch_index(cx, a, batch_a, s, n_batch, at);
  if (a->rank > 1) at[batch_a] = kiln_stmt_var(cx, s, n_batch);
  at[a->rank - 1] = k;
  const kiln_expr *left = kiln_cast(cx, accumulator, kiln_tensor_load(cx, a, at));
  batch_index(cx, b, batch_b, s, n_batch, at);
  at[batch_b] = k;
  if (b->rank > 1) at[batch_b + 1] = kiln_stmt_var(cx, s, rank - 1);
  s->body = kiln_mul(cx, left, kiln_cast(cx, accumulator, kiln_tensor_load(cx, b, at)));
  s->combiner = KILN_COMBINE_SUM;
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

kiln_stmt *kiln_lower_scatter_new(kiln_lower *lw, const char *name, kiln_dtype t, int rank,
                                  const kiln_expr *const *shape, int n_space, int n_reduce,
                                  const kiln_expr *const *extents, const kiln_expr **out_axes) {
  kiln_ctx *cx = lw->cx;
  kiln_stmt *s = kiln_lower_stmt(lw, name, t, n_space, n_reduce, extents);
  kiln_tensor *out = kiln_lower_tensor(lw, s);
  out->rank = rank;
  out->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, rank);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, rank);
  for (int a = 0; a < rank; a++) {
    out->shape[a] = shape[a];
    out->order[a] = (int8_t)a;
    out_axes[a] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", a));
  }
  return s;
}

kiln_stmt *kiln_lower_scatter(kiln_lower *lw, const char *name, const kiln_tensor *data, int n_dims,
                              const kiln_expr *const *extents) {
  const kiln_expr *o[KILN_MAX_RANK];
  kiln_stmt *s =
      kiln_lower_scatter_new(lw, name, data->dtype, data->rank,
                             (const kiln_expr *const *)data->shape, n_dims, 0, extents, o);
  s->init = kiln_tensor_load(lw->cx, data, o);
  return s;
}
