// Building statements: the helpers that the operator files share.
#include "fission/lower.h"

#include "analysis/simplify.h"
#include "fission/product.h"

#include <string.h>

// The name of an ONNX output, also given to intermediate statements on the way to it.
static const char *name_or_output(kiln_lower *lw, const char *name) {
  if (name && *name) return name;
  const int value = lw->node->n_outputs > 0 ? lw->node->outputs[0] : -1;
  return value < 0 ? "t" : kiln_symbol_text(lw->cx, lw->graph->values[value]->name);
}

kiln_stmt *kiln_lower_stmt(kiln_lower *lw, const char *name, kiln_dtype t, int n_space,
                           int n_reduce, const kiln_expr *const *extents) {
  kiln_stmt *s =
      kiln_stmt_make(lw->cx, lw->prog, name_or_output(lw, name), t, n_space, n_reduce, extents);
  s->origin = lw->node->name ? lw->node->name : lw->node->op;
  return s;
}

kiln_tensor *kiln_lower_tensor(const kiln_lower *lw, const kiln_stmt *s) {
  return lw->prog->tensors.data[s->out];
}

kiln_tensor *kiln_lower_make_const(kiln_lower *lw, const char *name, kiln_dtype t, int rank,
                                   const int64_t *shape, const void *data) {
  kiln_const c = {.dtype = t, .rank = rank, .bytes = (size_t)kiln_dtype_bytes(t)};
  for (int a = 0; a < rank; a++) {
    c.shape[a] = shape[a];
    c.bytes *= (size_t)shape[a];
  }
  void *copy = kiln_arena_alloc(&lw->cx->perm, c.bytes ? c.bytes : 1);
  if (c.bytes) memcpy(copy, data, c.bytes);
  c.data = copy;
  return kiln_tensor_make_const(lw->cx, lw->prog, name_or_output(lw, name), &c);
}

static bool same_extent(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  if (a == b) return true;
  if (kiln_expr_is_int(a, NULL) && kiln_expr_is_int(b, NULL)) return false;
  kiln_factors pa = kiln_factors_one(), pb = kiln_factors_one();
  kiln_factors_mul(&pa, a);
  kiln_factors_mul(&pb, b);
  if (kiln_factors_equal(&pa, &pb)) return true;
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  return kiln_expr_is_zero(kiln_simplify(cx, kiln_sub(cx, a, b), &none));
}

// The broadcast extent of two; NULL if they do not broadcast.
static const kiln_expr *broadcast_extent(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  int64_t value = 0;
  if (kiln_expr_is_int(a, &value) && value == 1) return b;
  if (kiln_expr_is_int(b, &value) && value == 1) return a;
  return same_extent(cx, a, b) ? a : NULL;
}

kiln_status kiln_lower_broadcast(kiln_lower *lw, int n, kiln_tensor *const *tensors, int *out_rank,
                                 const kiln_expr **out_shape) {
  int rank = 0;
  for (int i = 0; i < n; i++)
    if (tensors[i]->rank > rank) rank = tensors[i]->rank;
  *out_rank = rank;
  for (int a = 0; a < rank; a++) out_shape[a] = kiln_int(lw->cx, 1);
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = tensors[i];
    for (int a = 0; a < t->rank; a++) {
      const kiln_expr **at = &out_shape[rank - t->rank + a];
      const kiln_expr *e = broadcast_extent(lw->cx, *at, t->shape[a]);
      if (!e) {
        const bool fixed = kiln_expr_is_int(*at, NULL) && kiln_expr_is_int(t->shape[a], NULL);
        return KILN_FAIL(lw->cx->diag, fixed ? KILN_BAD_INPUT : KILN_UNSUPPORTED, lw->place,
                         "broadcasting: extents must be equal or 1, got %s and %s (%s, axis %d)%s",
                         kiln_expr_text(lw->cx, *at), kiln_expr_text(lw->cx, t->shape[a]),
                         kiln_symbol_text(lw->cx, t->name), a,
                         fixed ? "" : "; bind the named dimensions");
      }
      *at = e;
    }
  }
  return KILN_OK;
}

const kiln_expr *kiln_lower_load_broadcast(kiln_lower *lw, const kiln_tensor *t, const kiln_stmt *s,
                                           int first, int rank) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = 0; a < t->rank; a++) {
    const int dim = first + rank - t->rank + a;
    int64_t extent = 0;
    const bool stretched =
        kiln_expr_is_int(t->shape[a], &extent) && extent == 1 && s->dims[dim].extent != t->shape[a];
    index[a] = stretched ? kiln_int(lw->cx, 0) : kiln_stmt_var(lw->cx, s, dim);
  }
  return kiln_tensor_load(lw->cx, t, index);
}

static bool is_one(const kiln_expr *e) {
  int64_t value = 0;
  return kiln_expr_is_int(e, &value) && value == 1;
}

// The axes of a shape whose extent is not 1.
static int long_axes(int rank, const kiln_expr *const *shape, int *axes) {
  int n = 0;
  for (int a = 0; a < rank; a++)
    if (!is_one(shape[a])) axes[n++] = a;
  return n;
}

typedef struct view {
  kiln_lower *lw;
  const kiln_tensor *from;
  const kiln_stmt *to;
  int from_axes[KILN_MAX_RANK], to_axes[KILN_MAX_RANK]; // with extent > 1
  const kiln_expr *index[KILN_MAX_RANK];
} view;

// Maps the axes [f0, f1) of |from| to the dims [t0, t1) of |to|, whose products are equal.
static void map_group(view *v, int f0, int f1, int t0, int t1) {
  kiln_ctx *cx = v->lw->cx;
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  const kiln_expr *linear = kiln_int(cx, 0);
  for (int k = t0; k < t1; k++) {
    const int dim = v->to_axes[k];
    const kiln_expr *extent = v->to->dims[dim].extent;
    int64_t value = 0;
    if (kiln_expr_is_int(extent, &value))
      kiln_ranges_push(&ranges, v->to->dims[dim].name, 0, value - 1);
    linear = kiln_add(cx, kiln_mul(cx, linear, extent), kiln_stmt_var(cx, v->to, dim));
  }
  const kiln_expr *stride = kiln_int(cx, 1);
  for (int k = f1 - 1; k >= f0; k--) {
    const int axis = v->from_axes[k];
    const kiln_expr *at = kiln_div(cx, linear, stride);
    if (k > f0) at = kiln_mod(cx, at, v->from->shape[axis]);
    v->index[axis] = kiln_simplify(cx, at, &ranges);
    stride = kiln_mul(cx, stride, v->from->shape[axis]);
  }
}

// Splits both shapes where their prefix products agree, so that each piece has an index map of its
// own: (2, 12, 5) -> (2, 3, 4, 5) in pieces 2, 12 <-> 3*4, 5.
static void map_axes(view *v, int n_from, int n_to) {
  int f0 = 0, t0 = 0;
  while (f0 < n_from && t0 < n_to) {
    kiln_factors from = kiln_factors_one();
    int f1 = f0, t1 = t0;
    bool found = false;
    while (!found && f1 < n_from) {
      kiln_factors_mul(&from, v->from->shape[v->from_axes[f1++]]);
      kiln_factors to = kiln_factors_one();
      for (t1 = t0; !found && t1 < n_to;) {
        kiln_factors_mul(&to, v->to->dims[v->to_axes[t1++]].extent);
        found = kiln_factors_equal(&from, &to);
      }
    }
    if (!found) f1 = n_from, t1 = n_to;
    map_group(v, f0, f1, t0, t1);
    f0 = f1;
    t0 = t1;
  }
}

// Reshaping a constant keeps its bytes.
static kiln_tensor *reshape_const(kiln_lower *lw, const kiln_tensor *t, int rank,
                                  const kiln_expr *const *shape) {
  kiln_const c = {.dtype = t->dtype, .rank = rank, .data = t->data, .bytes = t->bytes};
  for (int a = 0; a < rank; a++)
    if (!kiln_expr_is_int(shape[a], &c.shape[a])) return NULL;
  return kiln_tensor_make_const(lw->cx, lw->prog, name_or_output(lw, NULL), &c);
}

kiln_tensor *kiln_lower_reshape(kiln_lower *lw, kiln_tensor *t, int rank,
                                const kiln_expr *const *shape) {
  if (rank == t->rank && (rank == 0 || memcmp(shape, t->shape, sizeof(*shape) * (size_t)rank) == 0))
    return t;
  if (t->role == KILN_CONST && t->data) {
    kiln_tensor *same = reshape_const(lw, t, rank, shape);
    if (same) return same;
  }
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, t->dtype, rank, 0, shape);
  view v = {.lw = lw, .from = t, .to = s};
  for (int a = 0; a < t->rank; a++) v.index[a] = kiln_int(lw->cx, 0);
  const int n_from = long_axes(t->rank, (const kiln_expr *const *)t->shape, v.from_axes);
  const int n_to = long_axes(rank, shape, v.to_axes);
  map_axes(&v, n_from, n_to);
  s->body = kiln_tensor_load(lw->cx, t, v.index);
  kiln_tensor *out = kiln_lower_tensor(lw, s);
  kiln_lower_note_values(lw, out, kiln_lower_values(lw, t)); // same elements, same order
  return out;
}

kiln_tensor *kiln_lower_transpose(kiln_lower *lw, kiln_tensor *t, const int *perm) {
  const kiln_expr *shape[KILN_MAX_RANK], *index[KILN_MAX_RANK];
  bool identity = true;
  for (int a = 0; a < t->rank; a++) {
    shape[a] = t->shape[perm[a]];
    identity &= perm[a] == a;
  }
  if (identity) return t;
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, t->dtype, t->rank, 0, shape);
  for (int a = 0; a < t->rank; a++) index[perm[a]] = kiln_stmt_var(lw->cx, s, a);
  s->body = kiln_tensor_load(lw->cx, t, index);
  return kiln_lower_tensor(lw, s);
}

kiln_status kiln_lower_cast(kiln_lower *lw, kiln_tensor *t, kiln_dtype to, kiln_tensor **out) {
  *out = t;
  if (t->dtype == to) return KILN_OK;
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, to, t->rank, 0, (const kiln_expr *const *)t->shape);
  s->body = kiln_cast(lw->cx, to, kiln_lower_load_broadcast(lw, t, s, 0, t->rank));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

kiln_status kiln_lower_infer_extent(kiln_lower *lw, int n_total, const kiln_expr *const *total,
                                    int n_known, const kiln_expr *const *known,
                                    const kiln_expr **out) {
  *out = NULL;
  kiln_factors all = kiln_factors_one(), part = kiln_factors_one();
  for (int i = 0; i < n_total; i++) kiln_factors_mul(&all, total[i]);
  for (int i = 0; i < n_known; i++) kiln_factors_mul(&part, known[i]);
  kiln_factors rest = all;
  if (kiln_factors_divide(&rest, &part)) {
    *out = kiln_factors_expr(lw->cx, &rest);
    return KILN_OK;
  }
  if (part.constant == 0 || (all.n == 0 && part.n == 0))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "-1: the %s elements must be a multiple of %s",
                     kiln_expr_text(lw->cx, kiln_factors_expr(lw->cx, &all)),
                     kiln_expr_text(lw->cx, kiln_factors_expr(lw->cx, &part)));
  *out = kiln_div(lw->cx, kiln_factors_expr(lw->cx, &all), kiln_factors_expr(lw->cx, &part));
  return KILN_OK;
}
