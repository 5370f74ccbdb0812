// Chooses register tiles of depthwise windows, by counting cycles.
#include "template/cpu/own_rows.h"

#include "analysis/terms.h"
#include "support/integer.h"

enum {
  MOST_TAPS = 128,  // of a window; longer sums are products
  MOST_ROWS = 8,    // of a tile
  MOST_VECTORS = 8, // of a row
  LATENCY = 4,      // cycles of an FMA; two issue in each
  LINE = 64,
  ELEMENT = 4
};

// Whether windows slide along dim |d| of the result by the reduction's dim |r|.
static bool slides_along(const kiln_contraction *k, int d, int r) {
  for (int i = 0; i < k->b->n_args; i++)
    if (kiln_expr_uses(k->b->args[i], k->dims[d].dim) &&
        kiln_expr_uses(k->b->args[i], k->c->dims[k->c->n_space + r].name))
      return true;
  return false;
}

int kiln_own_rows_dim(const kiln_contraction *k) {
  if (k->depth > MOST_TAPS || k->node->step || k->node->decoded || k->node->tile.rows ||
      k->w->p->tensors.data[k->b->u.tensor]->role == KILN_CONST)
    return -1;
  for (int d = k->n_dims - 1; d >= 0; d--)
    for (int r = 0; r < k->c->n_reduce && !kiln_expr_uses(k->a, k->dims[d].dim); r++)
      if (slides_along(k, d, r)) return d;
  return -1;
}

// Orders the dim along which windows slide last, so that rows that two windows share are loaded in
// consecutive steps.
static void put_sliding_last(kiln_contraction *k) {
  int n = 0, sliding = k->order[k->c->n_reduce - 1];
  for (int r = 0; r < k->c->n_reduce; r++)
    if (slides_along(k, k->col, r)) sliding = r;
  for (int i = 0; i < k->c->n_reduce; i++)
    if (k->order[i] != sliding) k->order[n++] = k->order[i];
  k->order[n] = sliding;
}

// Distinct input rows that |rows| rows of results read in all steps of the last reduction:
// i * apart + t * tap.
static int64_t rows_read(const kiln_contraction *k, int64_t rows) {
  const kiln_dim *last = kiln_contraction_stepped(k);
  const int64_t extent = kiln_dim_extent(last),
                apart = kiln_load_stride(k->w->cx, k->w->p, k->b, k->dims[k->col].dim),
                tap = kiln_load_stride(k->w->cx, k->w->p, k->b, last->name);
  int64_t seen[MOST_ROWS * MOST_TAPS];
  int n = 0;
  if (apart == INT64_MAX || tap == INT64_MAX) return rows * extent;
  for (int64_t i = 0; i < rows * extent; i++) {
    const int64_t at = i / extent * apart + i % extent * tap;
    int j = 0;
    while (j < n && seen[j] != at) j++;
    if (j == n) seen[n++] = at;
  }
  return n;
}

// Cycles of a tile of |rows| x |vectors|. A vector at any alignment touches a second line where it
// crosses the end of one.
static double cycles_of(const kiln_contraction *k, int64_t rows, int64_t vectors) {
  const double steps = (double)k->depth,
               around = steps / (double)kiln_dim_extent(kiln_contraction_stepped(k)),
               lines = 1 + (double)(k->w->m->vector_bytes - ELEMENT) / LINE,
               loads = around * (double)(vectors * rows_read(k, rows)) * lines + steps,
               busy = (double)(rows * vectors) * steps;
  double most = busy > loads ? busy / 2 : loads / 2;
  if (most < LATENCY * steps) most = LATENCY * steps;
  return most + (double)(rows * vectors) * 2; // and stores
}

int64_t kiln_own_rows_choose(kiln_contraction *k, double *out_efficiency) {
  const int64_t lanes = k->w->lanes, registers = k->w->m->n_vector_regs;
  kiln_contraction_axis *col = &k->dims[k->col];
  int64_t best = 1;
  double least = 0;
  put_sliding_last(k);
  for (int64_t v = 1; v <= MOST_VECTORS && (v - 1) * lanes < k->v.extent; v++)
    for (int64_t rows = 1; rows <= MOST_ROWS && rows <= col->piece; rows++) {
      if (rows * v + v + 1 > registers) break;
      const double tile = cycles_of(k, rows, v),
                   all = tile * (double)(kiln_divide_up(k->v.extent, v * lanes) *
                                         kiln_divide_up(col->piece, rows));
      if (least > 0 && all >= least * 0.999) continue;
      least = all;
      best = v;
      col->tile = rows;
      *out_efficiency = (double)(rows * v * k->depth) / 2 / tile;
    }
  return best;
}

int64_t kiln_own_rows_step(const kiln_contraction *k, const kiln_expr *load) {
  for (int i = 0; i < load->n_args; i++) {
    if (!kiln_expr_uses(load->args[i], k->v.dim)) continue;
    const kiln_terms t = kiln_terms_of(k->w->cx, load->args[i]);
    for (int j = 0; j < t.n && t.n > 1; j++)
      if (t.data[j].atom->kind == KILN_EXPR_VAR && t.data[j].atom->u.sym == k->v.dim)
        return t.data[j].coef;
  }
  return 1;
}
