#include "template/cpu/rows_ahead.h"

#include "template/cpu/row_panels.h"

enum {
  LINE = 64,
  FEWEST_STREAMS = 16,    // more than hardware prefetchers track
  LEAST_PIECE = 4 * LINE, // few of its lines are the partial ones at its ends
  MOST_PIECE = 2 * LEAST_PIECE,
  LONGEST_ROW = 2 * MOST_PIECE
};

static const double L2_USABLE = 0.6;

static const kiln_tensor *image(const kiln_contraction *k) {
  return k->w->p->tensors.data[k->a->u.tensor];
}

static double bytes_of(const kiln_tensor *t) {
  return (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
}

// Contiguous runs that a tile reads: one for each step along reduction dims whose stride is more
// than a line.
static double streams_of(const kiln_contraction *k) {
  const int bytes = kiln_dtype_bytes(image(k)->dtype);
  double n = 1;
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    if (kiln_load_stride(k->w->cx, k->w->p, k->a, k->c->dims[r].name) > LINE / bytes)
      n *= (double)kiln_lowering_extent(k->c, r);
  return n;
}

static const kiln_tensor *result(const kiln_contraction *k) {
  return k->w->p->tensors.data[k->w->root->out];
}

static bool is_far(const kiln_contraction *k) {
  return bytes_of(image(k)) + bytes_of(result(k)) > (double)k->w->m->l2_bytes * L2_USABLE;
}

bool kiln_rows_ahead_lie_apart(const kiln_contraction *k) {
  const kiln_lowering *w = k->w;
  const kiln_tensor *t = image(k);
  if (k->col < 0 || k->point_by_point || !k->keeps_b || k->packs_rows || k->node->step ||
      k->node->decoded || t->def >= 0 || t->role == KILN_CONST)
    return false;
  return kiln_load_stride(w->cx, w->p, k->a, k->dims[k->col].dim) == 1 &&
         streams_of(k) >= FEWEST_STREAMS && is_far(k);
}

int64_t kiln_rows_ahead_tiles(const kiln_contraction *k, int64_t tiles) {
  const int64_t tile_bytes = k->dims[k->col].tile * kiln_dtype_bytes(image(k)->dtype);
  if (tiles * tile_bytes <= LONGEST_ROW) return tiles;
  for (int64_t n = MOST_PIECE / tile_bytes; n > 1 && n * tile_bytes >= LEAST_PIECE; n--)
    if (tiles % n == 0) return n;
  return tiles;
}

typedef struct asking {
  const kiln_contraction *k;
  kiln_symbol of, around, in;
  bool views; // its flat index must be viewed as axes first
  bool is_done;
} asking;

static kiln_status ask(kiln_lowering *w, void *argument) {
  asking *a = argument;
  if (a->views) KILN_TRY(kiln_row_panels_view(a->k));
  a->views = false;
  KILN_TRY(kiln_prefetch_in_turns(&w->s, a->of, a->around, 1, a->in));
  a->is_done = true;
  return KILN_OK;
}

static kiln_status ask_somewhere(asking *a, kiln_symbol tiles, kiln_symbol steps) {
  a->in = tiles;
  if (tiles && tiles != a->around) KILN_TRY(kiln_lowering_try(a->k->w, ask, a));
  a->in = steps;
  return steps && !a->is_done ? kiln_lowering_try(a->k->w, ask, a) : KILN_OK;
}

kiln_status kiln_rows_ahead_ask(const kiln_contraction *k, kiln_symbol around, kiln_symbol tiles,
                                kiln_symbol steps) {
  asking a = {
      .k = k, .of = image(k)->name, .around = around, .views = kiln_rows_ahead_lie_apart(k)};
  return ask_somewhere(&a, tiles, steps);
}

kiln_status kiln_rows_ahead_ask_result(const kiln_contraction *k, kiln_symbol tiles,
                                       kiln_symbol steps) {
  asking a = {.k = k, .of = result(k)->name, .around = k->node->at};
  return is_far(k) ? ask_somewhere(&a, tiles, steps) : KILN_OK;
}
