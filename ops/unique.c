// Unique: slices along the axis, or elements, that are equal have one number. Many single elements
// are sorted, so that equal ones stand together; all others are compared with all, and the work is
// quadratic in the axis. NaNs are equal to each other, and the largest. source: ONNX Unique-11
#include "fission/data_dependent.h"
#include "fission/scan.h"
#include "fission/sort.h"
#include "fission/terms.h"

enum { LEAST_SORTED = 512 };

typedef struct unique {
  kiln_lower *lw;
  kiln_tensor *x; // (N, M): slices as rows
  const kiln_tensor
      *differs; // (N, N): the first place where two rows differ, M where none; NULL: M is 1
  const kiln_tensor *first; // (N): the first row that is equal
  const kiln_tensor *flags; // (N): 1 where that is the row itself
  const kiln_tensor
      *order; // (1, N): the rows in the order of their values; NULL: they are not sorted
  const kiln_tensor *begins; // (1, N): 1 where that comes to another value
} unique;

static const kiln_expr *element(const unique *u, const kiln_expr *row, const kiln_expr *place) {
  const kiln_expr *at[] = {row, place};
  const kiln_expr *e = kiln_tensor_load(u->lw->cx, u->x, at);
  return u->x->dtype == KILN_BOOL ? kiln_cast(u->lw->cx, KILN_I32, e) : e;
}

static const kiln_expr *is_nan(const unique *u, const kiln_expr *e) {
  return kiln_compare(u->lw->cx, KILN_EXPR_NE, e, e);
}

static const kiln_expr *is_equal(const unique *u, const kiln_expr *a, const kiln_expr *b) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *same = kiln_compare(cx, KILN_EXPR_EQ, a, b);
  if (!kiln_dtype_is_float(a->dtype)) return same;
  return kiln_binary(cx, KILN_EXPR_OR, same,
                     kiln_binary(cx, KILN_EXPR_AND, is_nan(u, a), is_nan(u, b)));
}

static const kiln_expr *is_below(const unique *u, const kiln_expr *a, const kiln_expr *b) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *below = kiln_compare(cx, KILN_EXPR_LT, a, b);
  if (!kiln_dtype_is_float(a->dtype)) return below;
  const kiln_expr *number = kiln_compare(cx, KILN_EXPR_EQ, a, a);
  return kiln_binary(cx, KILN_EXPR_OR, below, kiln_binary(cx, KILN_EXPR_AND, number, is_nan(u, b)));
}

static void find_differences(unique *u) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *n = u->x->shape[0], *m = u->x->shape[1], *extents[] = {n, n, m};
  if (kiln_expr_is(m, 1)) return;
  kiln_stmt *s = kiln_lower_stmt(u->lw, "differs", KILN_I64, 2, 1, extents);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0), *j = kiln_stmt_var(cx, s, 1),
                  *r = kiln_stmt_var(cx, s, 2);
  s->combiner = KILN_COMBINE_MIN;
  s->body = kiln_select(cx, is_equal(u, element(u, i, r), element(u, j, r)), m, r);
  u->differs = kiln_lower_tensor(u->lw, s);
}

static const kiln_expr *rows_equal(const unique *u, const kiln_expr *i, const kiln_expr *j) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *at[] = {i, j}, *zero = kiln_int(cx, 0);
  if (!u->differs) return is_equal(u, element(u, i, zero), element(u, j, zero));
  return kiln_compare(cx, KILN_EXPR_GE, kiln_tensor_load(cx, u->differs, at), u->x->shape[1]);
}

static const kiln_expr *row_below(const unique *u, const kiln_expr *i, const kiln_expr *j) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *at[] = {i, j}, *place = kiln_int(cx, 0);
  if (kiln_expr_is(u->x->shape[1], 0)) return kiln_compare(cx, KILN_EXPR_LT, place, place);
  if (u->differs) {
    const kiln_expr *last = kiln_sub(cx, u->x->shape[1], kiln_int(cx, 1));
    place =
        kiln_least(cx, kiln_tensor_load(cx, u->differs, at), last); // of equal rows none is below
  }
  return is_below(u, element(u, i, place), element(u, j, place));
}

// --- single elements, sorted ---

// Bits that keys take; 0: an element does not fit one.
static int bits_of(kiln_dtype t) {
  const int bits = 8 * kiln_dtype_bytes(t);
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return bits <= 32 ? 32 : 0;
  case KILN_KIND_UINT: return bits < 64 ? bits + 8 : 0;
  case KILN_KIND_INT: return bits;
  case KILN_KIND_BOOL: return 8;
  case KILN_KIND_CODE: break;
  }
  return 0;
}

static bool can_sort(const unique *u) {
  const kiln_expr *most = kiln_lower_upper_bound(u->lw, u->x->shape[0]);
  int64_t n = 0;
  return kiln_expr_is(u->x->shape[1], 1) && bits_of(u->x->dtype) && most &&
         kiln_expr_is_int(most, &n) && n >= LEAST_SORTED;
}

// (1, N) of what |body| says of place v.
static kiln_stmt *over_places(const unique *u, const char *name, const kiln_expr **v) {
  const kiln_expr *extents[] = {kiln_int(u->lw->cx, 1), u->x->shape[0]};
  kiln_stmt *s = kiln_lower_stmt(u->lw, name, KILN_I64, 2, 0, extents);
  kiln_stmt_vars(u->lw->cx, s, 0, 2, v);
  return s;
}

static const kiln_tensor *make_keys(const unique *u) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *v[2];
  kiln_stmt *s = over_places(u, "keys", v);
  const kiln_expr *x = element(u, v[1], v[0]);
  s->body = kiln_cast(cx, KILN_I64, kiln_order_key(cx, x));
  return kiln_lower_tensor(u->lw, s);
}

// What |values| says of each place of the order, for the rows there: (N).
static kiln_tensor *give_rows(const unique *u, const char *name, const kiln_tensor *values) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *o[1], *v[2];
  kiln_stmt *s = kiln_lower_scatter_new(u->lw, name, KILN_I64, 1, &u->x->shape[0], 2, 0,
                                        (const kiln_expr *const *)values->shape, o);
  kiln_stmt_vars(cx, s, 0, 2, v);
  s->init = kiln_int(cx, 0);
  s->index[0] = kiln_tensor_load(cx, u->order, v);
  s->body = kiln_tensor_load(cx, values, v);
  return kiln_lower_tensor(u->lw, s);
}

// The first of equal rows is the first of them in the order, too.
static void sort_first(unique *u) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_tensor *keys = make_keys(u);
  const kiln_expr *v[2], *one = kiln_int(cx, 1), *zero = kiln_int(cx, 0);
  u->order = kiln_lower_order(u->lw, keys, bits_of(u->x->dtype));
  kiln_stmt *s = over_places(u, "begins", v);
  const kiln_expr *before[] = {v[0], kiln_most(cx, kiln_sub(cx, v[1], one), zero)};
  const kiln_expr *row[] = {v[0], kiln_tensor_load(cx, u->order, v)},
                  *row_before[] = {v[0], kiln_tensor_load(cx, u->order, before)};
  const kiln_expr *is_new = kiln_compare(cx, KILN_EXPR_NE, kiln_tensor_load(cx, keys, row),
                                         kiln_tensor_load(cx, keys, row_before));
  is_new = kiln_binary(cx, KILN_EXPR_OR, is_new, kiln_compare(cx, KILN_EXPR_LT, v[1], one));
  s->body = kiln_select(cx, is_new, one, zero);
  u->begins = kiln_lower_tensor(u->lw, s);
  s = over_places(u, "begin", v);
  s->body = kiln_mul(cx, kiln_tensor_load(cx, u->begins, v), v[1]);
  const kiln_scan latest = {.axis = 1, .combiner = KILN_COMBINE_MAX};
  const kiln_tensor *begin = kiln_lower_scan(u->lw, &latest, kiln_lower_tensor(u->lw, s));
  s = over_places(u, "first", v);
  const kiln_expr *at[] = {v[0], kiln_tensor_load(cx, begin, v)};
  s->body = kiln_tensor_load(cx, u->order, at);
  u->first = give_rows(u, "firsts", kiln_lower_tensor(u->lw, s));
}

// How many values come before each row's.
static kiln_tensor *number_sorted(const unique *u) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_scan all = {.axis = 1, .combiner = KILN_COMBINE_SUM};
  const kiln_tensor *values = kiln_lower_scan(u->lw, &all, u->begins);
  const kiln_expr *v[2];
  kiln_stmt *s = over_places(u, "value", v);
  s->body = kiln_sub(cx, kiln_tensor_load(cx, values, v), kiln_int(cx, 1));
  return give_rows(u, "numbers", kiln_lower_tensor(u->lw, s));
}

// --- all with all ---

static void compare_first(unique *u) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *n = u->x->shape[0], *extents[] = {n, n};
  find_differences(u);
  kiln_stmt *s = kiln_lower_stmt(u->lw, "first", KILN_I64, 1, 1, extents);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0), *j = kiln_stmt_var(cx, s, 1);
  s->combiner = KILN_COMBINE_MIN;
  s->body = kiln_select(cx, rows_equal(u, i, j), j, n);
  u->first = kiln_lower_tensor(u->lw, s);
}

static void find_first(unique *u) {
  kiln_ctx *cx = u->lw->cx;
  if (can_sort(u)) sort_first(u);
  else compare_first(u);
  kiln_stmt *s = kiln_lower_stmt(u->lw, "flags", KILN_I64, 1, 0, &u->x->shape[0]);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0);
  const kiln_expr *own = kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, u->first, &i), i);
  s->body = kiln_select(cx, own, kiln_int(cx, 1), kiln_int(cx, 0));
  u->flags = kiln_lower_tensor(u->lw, s);
}

// The number of a row's value among the different ones: how many are below, or come first.
static kiln_tensor *number_rows(const unique *u, const kiln_tensor *places, bool sorted) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *n = u->x->shape[0], *extents[] = {n, n};
  if (sorted && u->order) return number_sorted(u);
  kiln_stmt *s = kiln_lower_stmt(u->lw, "numbers", KILN_I64, 1, sorted ? 1 : 0, extents);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0);
  if (!sorted) {
    const kiln_expr *first = kiln_tensor_load(cx, u->first, &i);
    s->body = kiln_tensor_load(cx, places, &first);
    return kiln_lower_tensor(u->lw, s);
  }
  const kiln_expr *j = kiln_stmt_var(cx, s, 1), *is_first = kiln_tensor_load(cx, u->flags, &j);
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_select(cx, row_below(u, j, i), is_first, kiln_int(cx, 0));
  return kiln_lower_tensor(u->lw, s);
}

static kiln_tensor *count_equal(const unique *u, const kiln_tensor *numbers,
                                const kiln_expr *count) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *o[1];
  kiln_stmt *s = kiln_lower_scatter_new(u->lw, "counts", KILN_I64, 1, &count, 0, 1,
                                        (const kiln_expr *const *)u->x->shape, o);
  const kiln_expr *r = kiln_stmt_var(cx, s, 0);
  s->init = kiln_int(cx, 0);
  s->combiner = KILN_COMBINE_SUM;
  s->index[0] = kiln_tensor_load(cx, numbers, &r);
  s->body = kiln_int(cx, 1);
  return kiln_lower_tensor(u->lw, s);
}

// (N, M) of |x|, slices along |axis| as rows; all elements where it is -1.
static void make_rows(unique *u, kiln_tensor *x, int axis) {
  kiln_ctx *cx = u->lw->cx;
  const kiln_expr *all = kiln_multiply_all(cx, x->rank, (const kiln_expr *const *)x->shape);
  const kiln_expr *shape[] = {kiln_lower_tidy(cx, all), kiln_int(cx, 1)};
  if (axis >= 0) {
    int perm[KILN_MAX_RANK] = {axis};
    for (int a = 0; a < x->rank; a++)
      if (a != axis) perm[a < axis ? a + 1 : a] = a;
    x = kiln_lower_transpose(u->lw, x, perm);
    shape[0] = x->shape[0];
    shape[1] = kiln_lower_tidy(
        cx, kiln_multiply_all(cx, x->rank - 1, (const kiln_expr *const *)x->shape + 1));
  }
  u->x = kiln_lower_reshape(u->lw, x, 2, shape);
}

static kiln_status lower_unique(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int64_t sorted = 1, given = 0;
  int axis = -1;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  kiln_tensor *x = lw->inputs[0], *places = NULL, *count = NULL;
  KILN_TRY(kiln_lower_int(lw, "sorted", 1, &sorted));
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &given));
  if (kiln_lower_attr(lw, "axis")) KILN_TRY(kiln_lower_axis(lw, given, x->rank, false, &axis));
  unique u = {.lw = lw};
  const kiln_expr *n = NULL, *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  make_rows(&u, x, axis);
  find_first(&u);
  kiln_lower_prefix_counts(lw, u.flags, &places, &count);
  KILN_TRY(kiln_lower_data_dependent_extent(lw, count, u.x->shape[0], &n));
  kiln_tensor *numbers = number_rows(&u, places, sorted != 0);
  kiln_tensor *rows = kiln_lower_compact(lw, u.flags, numbers, n);
  const kiln_tensor *from = axis < 0 ? u.x : x;
  const int rank = axis < 0 ? 1 : x->rank;
  for (int a = 0; a < rank; a++) extents[a] = axis < 0 || a == axis ? n : x->shape[a];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, x->dtype, rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, rank, at);
  const int picked = axis < 0 ? 0 : axis;
  at[picked] = kiln_tensor_load(cx, rows, &at[picked]);
  if (axis < 0) at[1] = kiln_int(cx, 0);
  kiln_lower_move(lw, s, from, at, 0);
  if (lw->n_outputs > 1) lw->outputs[1] = rows;
  if (lw->n_outputs > 2) lw->outputs[2] = numbers;
  if (lw->n_outputs > 3) lw->outputs[3] = count_equal(&u, numbers, n);
  return KILN_OK;
}

const kiln_op kiln_op_unique[] = {
    {"", "Unique", 11, 0, lower_unique, NULL, "ops/unique.c"},
    {0},
};
