// TopK. Few of many elements are found in rounds, each the first among those behind the last one
// found. What is first among others is sorted by counting: the rank of an element is the number of
// those that come before it, and output k sums the one element of rank k, which is exact, but the
// work is quadratic. So where they are at most half, the first k are selected before: their last
// one is found digit by digit, as in a radix sort, and they are listed as they stand.
// source: ONNX TopK-1, 10, 11, 24
#include "fission/data_dependent.h"
#include "fission/scan.h"
#include "fission/terms.h"

enum { MAX_ROUNDS = 32 };

typedef struct top {
  kiln_lower *lw;
  const kiln_tensor *x;
  const kiln_tensor *keys; // x, as integers of which the greatest comes first
  int axis;
  bool largest;
  const kiln_expr *k;
} top;

static kiln_status read_k(kiln_lower *lw, top *p) {
  int n = 0;
  const kiln_expr *const *values = NULL;
  int64_t k = 0, extent = 0;
  if (lw->node->opset < 10) {
    KILN_TRY(kiln_lower_int(lw, "k", -1, &k));
    p->k = kiln_int(lw->cx, k);
  } else {
    KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
    KILN_TRY(kiln_lower_extent_values(lw, 1, p->x->shape[p->axis], &n, &values));
    p->k = n == 1 ? values[0] : kiln_int(lw->cx, -1);
  }
  if (!kiln_expr_is_int(p->k, &k)) return KILN_OK;
  const bool fixed = kiln_expr_is_int(p->x->shape[p->axis], &extent);
  if (k < 0 || (fixed && k > extent))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "k: must be one number in [0, %" PRId64 "], got %" PRId64,
                     fixed ? extent : INT64_MAX, k);
  return KILN_OK;
}

// NaN is the greatest, as in NumPy, and -0 is 0: keys have one order for all elements, so that each
// has a rank of its own.
static void make_keys(top *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(p->lw, "keys", p->x, kiln_order_key_type(p->x->dtype), at);
  const kiln_expr *key = kiln_order_key(cx, kiln_tensor_load(cx, p->x, at));
  s->body = p->largest ? key : kiln_unary(cx, KILN_EXPR_BNOT, key);
  p->keys = kiln_lower_tensor(p->lw, s);
}

// The elements of |t| at |places| of the axis.
static kiln_tensor *gather(const top *p, const char *name, const kiln_tensor *t,
                           const kiln_tensor *places) {
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(p->lw, name, places, t->dtype, at);
  at[p->axis] = kiln_tensor_load(p->lw->cx, places, at);
  s->body = kiln_tensor_load(p->lw->cx, t, at);
  return kiln_lower_tensor(p->lw, s);
}

static void give(const top *p, kiln_tensor *places) {
  p->lw->outputs[0] = gather(p, NULL, p->x, places);
  if (p->lw->n_outputs > 1) p->lw->outputs[1] = places;
}

// --- by rank ---

// A statement over the shape of the keys, the axis replaced by |extent|, reduced over the axis.
static kiln_stmt *over_axis(const top *p, const char *name, const kiln_expr *extent) {
  const kiln_expr *extents[KILN_MAX_RANK + 1];
  for (int a = 0; a < p->x->rank; a++) extents[a] = a == p->axis ? extent : p->x->shape[a];
  extents[p->x->rank] = p->keys->shape[p->axis];
  kiln_stmt *s = kiln_lower_stmt(p->lw, name, KILN_I64, p->x->rank, 1, extents);
  s->combiner = KILN_COMBINE_SUM;
  return s;
}

// The element of |t| with the reduction variable along the axis, or the space one.
static const kiln_expr *element(const top *p, const kiln_tensor *t, const kiln_stmt *s,
                                bool reduced) {
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt_vars(p->lw->cx, s, 0, t->rank, index);
  if (reduced) index[p->axis] = kiln_stmt_var(p->lw->cx, s, t->rank);
  return kiln_tensor_load(p->lw->cx, t, index);
}

// How many elements come before each.
static const kiln_tensor *count_ranks(const top *p) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = over_axis(p, "rank", p->keys->shape[p->axis]);
  const kiln_expr *other = element(p, p->keys, s, true), *mine = element(p, p->keys, s, false);
  const kiln_expr *earlier = kiln_compare(cx, KILN_EXPR_LT, kiln_stmt_var(cx, s, p->x->rank),
                                          kiln_stmt_var(cx, s, p->axis));
  const kiln_expr *tie = kiln_both(cx, kiln_compare(cx, KILN_EXPR_EQ, other, mine), earlier);
  const kiln_expr *before =
      kiln_binary(cx, KILN_EXPR_OR, kiln_compare(cx, KILN_EXPR_GT, other, mine), tie);
  s->body = kiln_select(cx, before, kiln_int(cx, 1), kiln_int(cx, 0));
  return kiln_lower_tensor(p->lw, s);
}

// The places of the keys of rank 0, 1, ..., k - 1.
static kiln_tensor *rank_places(const top *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_tensor *ranks = count_ranks(p);
  kiln_stmt *s = over_axis(p, "indices", p->k);
  const kiln_expr *hit =
      kiln_compare(cx, KILN_EXPR_EQ, element(p, ranks, s, true), kiln_stmt_var(cx, s, p->axis));
  s->body = kiln_select(cx, hit, kiln_stmt_var(cx, s, p->x->rank), kiln_int(cx, 0));
  return kiln_lower_tensor(p->lw, s);
}

// --- in rounds ---

typedef struct found {
  const kiln_tensor *key, *place; // x without the axis; place is of i64
} found;

// A statement over the shape of x without the axis, reduced over the axis; |at|: the element that
// it looks at.
static kiln_stmt *over_rest(const top *p, const char *name, kiln_dtype t, const kiln_expr **at) {
  const kiln_expr *extents[KILN_MAX_RANK];
  int n = 0;
  for (int a = 0; a < p->x->rank; a++)
    if (a != p->axis) extents[n++] = p->x->shape[a];
  extents[n] = p->x->shape[p->axis];
  kiln_stmt *s = kiln_lower_stmt(p->lw, name, t, n, 1, extents);
  for (int a = 0, d = 0; a < p->x->rank; a++)
    at[a] = kiln_stmt_var(p->lw->cx, s, a == p->axis ? n : d++);
  return s;
}

// The element of a tensor without the axis that belongs to x's at |at|.
static const kiln_expr *rest_of(const top *p, const kiln_tensor *t, const kiln_expr *const *at) {
  const kiln_expr *index[KILN_MAX_RANK];
  int n = 0;
  for (int a = 0; a < p->x->rank; a++)
    if (a != p->axis) index[n++] = at[a];
  return kiln_tensor_load(p->lw->cx, t, index);
}

// Whether the element at |at| comes behind |last|; NULL: all do.
static const kiln_expr *is_behind(const top *p, const found *last, const kiln_expr *const *at) {
  kiln_ctx *cx = p->lw->cx;
  if (!last) return NULL;
  const kiln_expr *own = kiln_tensor_load(cx, p->keys, at), *key = rest_of(p, last->key, at);
  const kiln_expr *tie =
      kiln_both(cx, kiln_compare(cx, KILN_EXPR_EQ, own, key),
                kiln_compare(cx, KILN_EXPR_GT, at[p->axis], rest_of(p, last->place, at)));
  return kiln_binary(cx, KILN_EXPR_OR, kiln_compare(cx, KILN_EXPR_LT, own, key), tie);
}

static found find_next(const top *p, const found *last) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  const kiln_dtype t = p->keys->dtype;
  found f;
  kiln_stmt *s = over_rest(p, "best", t, at);
  s->combiner = KILN_COMBINE_MAX;
  const kiln_expr *behind = is_behind(p, last, at), *own = kiln_tensor_load(cx, p->keys, at);
  s->body = behind ? kiln_select(cx, behind, own, kiln_combiner_identity(cx, s->combiner, t)) : own;
  f.key = kiln_lower_tensor(p->lw, s);
  s = over_rest(p, "place", KILN_I64, at);
  s->combiner = KILN_COMBINE_MIN;
  const kiln_expr *is_best =
      kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, p->keys, at), rest_of(p, f.key, at));
  s->body = kiln_select(cx, kiln_both(cx, is_best, is_behind(p, last, at)), at[p->axis],
                        kiln_sub(cx, p->x->shape[p->axis], kiln_int(cx, 1)));
  f.place = kiln_lower_tensor(p->lw, s);
  return f;
}

static kiln_tensor *list_rounds(const top *p, int n, const found *rounds) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int a = 0; a < p->x->rank; a++) extents[a] = a == p->axis ? p->k : p->x->shape[a];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "indices", KILN_I64, p->x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, p->x->rank, at);
  s->body = rest_of(p, rounds[n - 1].place, at);
  for (int i = n - 2; i >= 0; i--)
    s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LE, at[p->axis], kiln_int(cx, i)),
                          rest_of(p, rounds[i].place, at), s->body);
  return kiln_lower_tensor(p->lw, s);
}

// Whether rounds look at less than counting does.
static bool has_few_rounds(const top *p, int *out_n) {
  int64_t k = 0, extent = 0;
  if (!kiln_expr_is_int(p->k, &k) || !kiln_lower_most(p->lw, p->x->shape[p->axis], &extent))
    return false;
  *out_n = (int)(k <= MAX_ROUNDS ? k : 0);
  return *out_n > 0 && 4 * k < extent;
}

static kiln_tensor *round_places(const top *p, int n) {
  found rounds[MAX_ROUNDS];
  for (int i = 0; i < n; i++) rounds[i] = find_next(p, i ? &rounds[i - 1] : NULL);
  return list_rounds(p, n, rounds);
}

// --- by selection ---

enum { DIGIT = 4, DIGITS = 1 << DIGIT, KEY_BITS = 32, LEAST_SELECTED = 128 };

typedef struct selection {
  const top *p;
  const kiln_tensor *keys; // i32
  const kiln_tensor *last; // x without the axis: the key of rank k - 1, as far as it is known
} selection;

// A statement over x without the axis and, innermost, |digits|; |rest|: the index of a tensor
// without the axis.
static kiln_stmt *over_digits(const top *p, const char *name, bool reduces,
                              const kiln_expr *reduced, const kiln_expr **rest) {
  const kiln_expr *extents[KILN_MAX_RANK + 1];
  int n = 0;
  for (int a = 0; a < p->x->rank; a++)
    if (a != p->axis) extents[n++] = p->x->shape[a];
  extents[n] = kiln_int(p->lw->cx, DIGITS);
  extents[n + 1] = reduced;
  kiln_stmt *s =
      kiln_lower_stmt(p->lw, name, KILN_I32, reduces ? n : n + 1, reduces || reduced, extents);
  kiln_stmt_vars(p->lw->cx, s, 0, n + 1, rest); // the digit's is the last
  return s;
}

// The least keys with the digits known so far and each that may be next.
static const kiln_tensor *bound_digits(const selection *z, int shift) {
  kiln_ctx *cx = z->p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK + 1];
  kiln_stmt *s = over_digits(z->p, "bounds", false, NULL, at);
  const kiln_expr *least = z->last ? kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, z->last, at))
                                   : kiln_int(cx, INT32_MIN);
  const kiln_expr *digit = at[z->p->x->rank - 1];
  s->body = kiln_cast(cx, KILN_I32,
                      kiln_add(cx, least, kiln_mul(cx, digit, kiln_int(cx, INT64_C(1) << shift))));
  return kiln_lower_tensor(z->p->lw, s);
}

// The next digit is the greatest with at least k keys from its bound on.
static void find_digit(selection *z, int shift) {
  const top *p = z->p;
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *rest[KILN_MAX_RANK + 1], *at[KILN_MAX_RANK];
  const kiln_tensor *bounds = bound_digits(z, shift);
  kiln_stmt *s = over_digits(p, "counts", false, p->x->shape[p->axis], rest);
  for (int a = 0, d = 0; a < p->x->rank; a++)
    at[a] = a == p->axis ? kiln_stmt_var(cx, s, p->x->rank) : rest[d++];
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_select(cx,
                        kiln_compare(cx, KILN_EXPR_GE, kiln_tensor_load(cx, z->keys, at),
                                     kiln_tensor_load(cx, bounds, rest)),
                        kiln_number(cx, KILN_I32, 1), kiln_number(cx, KILN_I32, 0));
  const kiln_tensor *counts = kiln_lower_tensor(p->lw, s);
  s = over_digits(p, "last", true, NULL, rest);
  s->combiner = KILN_COMBINE_MAX;
  s->body = kiln_select(cx,
                        kiln_compare(cx, KILN_EXPR_GE, kiln_tensor_load(cx, counts, rest),
                                     kiln_cast(cx, KILN_I32, p->k)),
                        kiln_tensor_load(cx, bounds, rest), kiln_number(cx, KILN_I32, INT32_MIN));
  z->last = kiln_lower_tensor(p->lw, s);
}

// 1 for each element whose key compares so with the last one.
static const kiln_tensor *flag(const selection *z, const char *name, kiln_expr_kind compare) {
  kiln_ctx *cx = z->p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(z->p->lw, name, z->keys, KILN_I32, at);
  s->body = kiln_cast(
      cx, KILN_I32,
      kiln_compare(cx, compare, kiln_tensor_load(cx, z->keys, at), rest_of(z->p, z->last, at)));
  return kiln_lower_tensor(z->p->lw, s);
}

// 1 for each of the first k elements: those in front of the last one, and as many of its equals as
// there are left.
static const kiln_tensor *flag_first(const selection *z) {
  const top *p = z->p;
  kiln_ctx *cx = p->lw->cx;
  const kiln_scan before = {p->axis, true, false, KILN_COMBINE_SUM};
  const kiln_tensor *above = flag(z, "above", KILN_EXPR_GT), *ties = flag(z, "ties", KILN_EXPR_EQ),
                    *earlier = kiln_lower_scan(p->lw, &before, ties);
  const kiln_expr *at[KILN_MAX_RANK], *one = kiln_number(cx, KILN_I32, 1);
  kiln_stmt *s = over_rest(p, "n_above", KILN_I32, at);
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_tensor_load(cx, above, at);
  const kiln_tensor *n_above = kiln_lower_tensor(p->lw, s);
  s = kiln_lower_like(p->lw, "first", z->keys, KILN_I32, at);
  const kiln_expr *left = kiln_sub(cx, kiln_cast(cx, KILN_I32, p->k), rest_of(p, n_above, at));
  const kiln_expr *counts =
      kiln_both(cx, kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, ties, at), one),
                kiln_compare(cx, KILN_EXPR_LT, kiln_tensor_load(cx, earlier, at), left));
  const kiln_expr *is_above = kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, above, at), one);
  s->body = kiln_cast(cx, KILN_I32, kiln_binary(cx, KILN_EXPR_OR, is_above, counts));
  return kiln_lower_tensor(p->lw, s);
}

// The places of the first k elements, in their order: x with k for the axis.
static const kiln_tensor *list_first(const selection *z) {
  const top *p = z->p;
  kiln_ctx *cx = p->lw->cx;
  const kiln_scan before = {p->axis, true, false, KILN_COMBINE_SUM};
  const kiln_tensor *first = flag_first(z), *places = kiln_lower_scan(p->lw, &before, first);
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int a = 0; a < p->x->rank; a++) extents[a] = a == p->axis ? p->k : p->x->shape[a];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "zeros", KILN_I64, p->x->rank, 0, extents);
  s->body = kiln_int(cx, 0);
  s = kiln_lower_scatter(p->lw, "listed", kiln_lower_tensor(p->lw, s), p->x->rank,
                         (const kiln_expr *const *)p->x->shape);
  kiln_stmt_vars(cx, s, 0, p->x->rank, at);
  for (int a = 0; a < p->x->rank; a++) s->index[a] = at[a];
  s->index[p->axis] = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, places, at));
  s->guard =
      kiln_compare(cx, KILN_EXPR_NE, kiln_tensor_load(cx, first, at), kiln_number(cx, KILN_I32, 0));
  s->body = at[p->axis];
  return kiln_lower_tensor(p->lw, s);
}

// Whether listing the first k looks at less than counting does.
static bool can_select(const top *p) {
  int64_t k = 0, extent = 0;
  return p->keys->dtype == KILN_I32 && kiln_expr_is_int(p->k, &k) &&
         kiln_lower_most(p->lw, p->x->shape[p->axis], &extent) && k > 0 && 2 * k <= extent &&
         extent >= LEAST_SELECTED && extent <= INT32_MAX;
}

static kiln_tensor *selected_places(const top *p) {
  selection z = {.p = p, .keys = p->keys};
  for (int shift = KEY_BITS - DIGIT; shift >= 0; shift -= DIGIT) find_digit(&z, shift);
  const kiln_tensor *listed = list_first(&z);
  top selected = *p;
  selected.keys = gather(p, "selected", p->keys, listed);
  return gather(p, "indices", listed, rank_places(&selected));
}

static kiln_status lower_topk(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_has_order, "numbers"));
  top p = {.lw = lw, .x = lw->inputs[0]};
  int64_t axis = -1, largest = 1;
  KILN_TRY(kiln_lower_int(lw, "axis", -1, &axis));
  KILN_TRY(kiln_lower_int(lw, "largest", 1, &largest));
  KILN_TRY(kiln_lower_axis(lw, axis, p.x->rank, false, &p.axis));
  KILN_TRY(read_k(lw, &p));
  p.largest = largest != 0;
  int n_rounds = 0;
  make_keys(&p);
  if (has_few_rounds(&p, &n_rounds)) give(&p, round_places(&p, n_rounds));
  else give(&p, can_select(&p) ? selected_places(&p) : rank_places(&p));
  return KILN_OK;
}

const kiln_op kiln_op_topk[] = {
    {"", "TopK", 1, 0, lower_topk, NULL, "ops/topk.c"},
    {0},
};
