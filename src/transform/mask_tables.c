// Mask-table elimination: a constant of two values, one of them in a band along a diagonal, as
// exporters make causal masks and windows, is replaced by the band's condition.
//
//     1 0 0 0
//     1 1 0 0    T(q, k)   becomes   k <= q && k >= q - 1 ? 1 : 0
//     0 1 1 0
//     0 0 1 1
//
// Conditions can be decided for a tile at a time (analysis/masking.h), and need no memory.
#include "transform/transform.h"

#include "analysis/interpret.h"

enum { MIN_EXTENT = 8 };

// A constant over rows and columns, its only axes of more than one element.
typedef struct table {
  const kiln_tensor *tensor;
  int row, column; // axes
  int64_t n_rows, n_columns;
  double inside, outside; // values
  bool has_upper, has_lower;
  int64_t upper, lower; // columns of the band are at most row + upper, at least row + lower
} table;

static double at(const table *t, int64_t row, int64_t column) {
  return kiln_element_get(t->tensor->dtype, t->tensor->data, row * t->n_columns + column);
}

static bool find_axes(const kiln_tensor *tensor, table *out) {
  *out = (table){.tensor = tensor, .row = -1, .column = -1};
  if (tensor->role != KILN_CONST || !tensor->data) return false;
  if (tensor->dtype != KILN_BOOL && !kiln_dtype_is_float(tensor->dtype)) return false;
  for (int k = 0; k < tensor->rank; k++) {
    int64_t extent = 0;
    if (!kiln_expr_is_int(tensor->shape[k], &extent)) return false;
    if (extent == 1) continue;
    if (out->column >= 0 || extent < MIN_EXTENT) return false;
    if (out->row < 0) {
      out->row = k;
      out->n_rows = extent;
    } else {
      out->column = k;
      out->n_columns = extent;
    }
  }
  return out->column >= 0;
}

static bool is_inside(const table *t, int64_t row, int64_t column) {
  return (!t->has_upper || column - row <= t->upper) && (!t->has_lower || column - row >= t->lower);
}

// The band's edges, by the first row that shows each.
static void find_edges(table *t) {
  t->has_upper = t->has_lower = false;
  for (int64_t r = 0; r < t->n_rows && !(t->has_upper && t->has_lower); r++) {
    int64_t first = 0, last = t->n_columns - 1;
    while (first <= last && at(t, r, first) != t->inside) first++;
    while (last >= first && at(t, r, last) != t->inside) last--;
    if (first > last) continue;
    if (!t->has_upper && last + 1 < t->n_columns) {
      t->has_upper = true;
      t->upper = last - r;
    }
    if (!t->has_lower && first > 0) {
      t->has_lower = true;
      t->lower = first - r;
    }
  }
}

static bool fits(const table *t) {
  if (!t->has_upper && !t->has_lower) return false;
  for (int64_t r = 0; r < t->n_rows; r++)
    for (int64_t c = 0; c < t->n_columns; c++)
      if (at(t, r, c) != (is_inside(t, r, c) ? t->inside : t->outside)) return false;
  return true;
}

// The two values: the first, and the first other one.
static bool find_values(const table *t, double *out) {
  out[0] = at(t, 0, 0);
  for (int64_t i = 1; i < t->n_rows * t->n_columns; i++) {
    out[1] = at(t, 0, i);
    if (out[1] != out[0]) return out[0] == out[0] && out[1] == out[1];
  }
  return false;
}

static bool find_band(const kiln_tensor *tensor, table *out) {
  double values[2];
  if (!find_axes(tensor, out) || !find_values(out, values)) return false;
  for (int i = 0; i < 2; i++) {
    out->inside = values[i];
    out->outside = values[1 - i];
    find_edges(out);
    if (fits(out)) return true;
  }
  return false;
}

// --- statements ---

// Bands that were found, by tensor.
typedef struct bands {
  const kiln_program *p;
  table *found;
  uint8_t *known; // 1: it is none, 2: it is one
  bool changed;
} bands;

static const kiln_expr *condition(kiln_ctx *cx, const table *t, const kiln_expr *load) {
  const kiln_expr *r = load->args[t->row], *c = load->args[t->column], *all = NULL;
  if (t->has_upper) all = kiln_binary(cx, KILN_EXPR_LE, c, kiln_add(cx, r, kiln_int(cx, t->upper)));
  if (t->has_lower)
    all = kiln_both(cx, all,
                    kiln_binary(cx, KILN_EXPR_GE, c, kiln_add(cx, r, kiln_int(cx, t->lower))));
  return all;
}

static const kiln_expr *computed(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  bands *b = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const int id = e->u.tensor;
  if (!b->known[id]) b->known[id] = find_band(b->p->tensors.data[id], &b->found[id]) ? 2 : 1;
  if (b->known[id] == 1) return NULL;
  const table *t = &b->found[id];
  if (kiln_expr_has_load(e->args[t->row]) || kiln_expr_has_load(e->args[t->column])) return NULL;
  b->changed = true;
  const kiln_dtype type = t->tensor->dtype;
  const kiln_expr *inside = kiln_number(cx, type, t->inside),
                  *outside = kiln_number(cx, type, t->outside), *is = condition(cx, t, e);
  if (type != KILN_BOOL) return kiln_select(cx, is, inside, outside);
  return t->inside != 0 ? is : kiln_unary(cx, KILN_EXPR_NOT, is);
}

// needs: constants with their data
// keeps: statements and their results, bit by bit
void kiln_tile_compute_mask_tables(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  bands b = {.p = p,
             .found = KILN_NEW_ARRAY(&cx->scratch, table, p->tensors.n),
             .known = KILN_NEW_ARRAY(&cx->scratch, uint8_t, p->tensors.n)};
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s || !kiln_stmt_is_map(cx, s)) continue;
    b.changed = false;
    const kiln_expr *body = kiln_expr_replace(cx, s->body, computed, &b);
    if (b.changed) s->body = kiln_stmt_simplify(cx, s, body);
  }
  kiln_arena_rewind(&cx->scratch, mark);
}
