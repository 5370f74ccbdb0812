#include "template/cpu/window.h"

#include "support/integer.h"

enum {
  MAX_PIXELS = 8,     // of a row of a tile
  MAX_TAPS = 4,       // of any window that is unrolled: its loops would take longer than its taps
  MAX_PRODUCTS = 800, // of a tile whose window is unrolled: inputs stay in registers for all taps
  MANY_ROWS = 16      // where computing a last row twice costs little
};

typedef struct window {
  kiln_lowering *w;
  const kiln_window_node *node;
  const kiln_stmt *c, *result;
  kiln_symbol sums;                 // the buffer of the sums
  kiln_symbol loops[KILN_MAX_RANK]; // of the result
  int64_t extents[KILN_MAX_RANK];   // at the place
  int n_tiles, n_inner;
  kiln_symbol tiles[KILN_MAX_RANK], inner[KILN_MAX_RANK];
  int64_t tile_extents[KILN_MAX_RANK];
  int64_t rows, pixels, vector; // elements of a tile along the last three dims
} window;

bool kiln_stmt_is_window(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  if (s->n_reduce == 0 || s->n_space == 0 || s->guard || s->init) return false;
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  bool contiguous = false;
  for (int i = 0; i < loads.n; i++) {
    for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
      if (kiln_load_stride(cx, p, loads.data[i], s->dims[d].name) == 1 &&
          p->tensors.data[loads.data[i]->u.tensor]->role != KILN_CONST)
        return false;
    contiguous |= kiln_load_stride(cx, p, loads.data[i], s->dims[s->n_space - 1].name) == 1;
  }
  return contiguous;
}

static const char *name_of(const window *n, const kiln_stmt *s) {
  return kiln_symbol_text(n->w->cx, n->w->p->tensors.data[s->out]->name);
}

// A constant operand of a channel-by-channel product is repacked with the channels contiguous.
static kiln_status stage_weights(window *n) {
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_program *p = n->w->p;
  if (!kiln_stmt_is_contraction(n->c, &a, &b)) return KILN_OK;
  const kiln_expr *load = p->tensors.data[a->u.tensor]->role == KILN_CONST ? a : b;
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  if (t->role != KILN_CONST || load->n_args < 2) return KILN_OK;
  kiln_stage_axis axes[KILN_MAX_RANK];
  int k = 0, v_axis = -1;
  for (int i = 0; i < load->n_args; i++)
    if (kiln_expr_uses(load->args[i], n->result->dims[n->c->n_space - 1].name)) v_axis = i;
    else axes[k++] = (kiln_stage_axis){.axis = i, .block = 0, .outer = true};
  if (v_axis < 0) return KILN_OK;
  axes[k++] = (kiln_stage_axis){.axis = v_axis, .block = 0, .outer = true};
  const char *name = kiln_symbol_text(n->w->cx, t->name);
  return kiln_stage(&n->w->s, t->name, 0, KILN_SCOPE_WORKSPACE, k, axes,
                    kiln_symbol_printf(n->w->cx, "%s.packed", name));
}

static kiln_status place_result(window *n) {
  kiln_lowering *w = n->w;
  n->sums = w->p->tensors.data[n->c->out]->name;
  if (!n->node->finish) {
    n->sums = kiln_symbol_printf(w->cx, "%s.sums", name_of(n, n->c));
    KILN_TRY(kiln_cache_write(&w->s, w->p->tensors.data[n->c->out]->name, n->sums, 0, NULL));
  }
  return n->node->at ? kiln_compute_at(&w->s, w->p->tensors.data[n->result->out]->name, n->node->at,
                                       KILN_SCOPE_LOCAL)
                     : KILN_OK;
}

static kiln_status find_loops(window *n) {
  for (int d = 0; d < n->c->n_space; d++) {
    n->loops[d] = n->node->loops[d] ? n->node->loops[d]
                  : n->node->finish
                      ? kiln_lowering_loop(n->w, name_of(n, n->result), "", n->result->dims[d].name)
                      : kiln_symbol_printf(n->w->cx, "%s.copy.%d", name_of(n, n->c), d);
    const kiln_loop *l = kiln_loops_find(n->w->s.loops, n->loops[d]);
    if (!l || !kiln_expr_is_int(l->extent, &n->extents[d]))
      return KILN_FAIL(n->w->cx->diag, KILN_BAD_INPUT, "lowering: window",
                       "loop %s must be there, with a constant extent",
                       kiln_symbol_text(n->w->cx, n->loops[d]));
  }
  return KILN_OK;
}

// As many pixels as there are registers for, without a remainder if that is possible.
static int64_t pixels_of(int64_t extent, int64_t most) {
  if (extent <= most) return extent;
  for (int64_t k = most; 2 * k > most; k--)
    if (extent % k == 0) return k;
  return most;
}

// Whether neighbours along dim |d| of the result reduce some of the same elements.
static bool slides_along(const window *n, int d) {
  const kiln_loads loads = kiln_stmt_loads(n->w->cx, &n->w->cx->scratch, n->w->p, n->c);
  const kiln_symbol v = n->c->dims[d].name;
  for (int i = 0; i < loads.n; i++)
    for (int k = 0; k < loads.data[i]->n_args; k++)
      for (int r = n->c->n_space; r < n->c->n_space + n->c->n_reduce; r++)
        if (kiln_expr_uses(loads.data[i]->args[k], v) &&
            kiln_expr_uses(loads.data[i]->args[k], n->c->dims[r].name))
          return true;
  return false;
}

// A tile of two rows loads the input rows that their windows share once; one row of twice as many
// vectors would load them for each.
static void choose_tile(window *n) {
  const int last = n->c->n_space - 1;
  const int64_t lanes = n->w->lanes, extent = n->extents[last],
                above = last > 1 ? n->extents[last - 2] : 1;
  const bool two = above > 1 && (above % 2 == 0 || above >= MANY_ROWS) && slides_along(n, last - 2);
  n->rows = two ? 2 : 1;
  n->vector = extent >= 2 * lanes && !two ? 2 * lanes : extent >= lanes ? lanes : extent;
  const int64_t sums = n->rows * kiln_divide_up(n->vector, lanes), // of a pixel, in registers
      fit = n->w->m->n_vector_regs / 2 / sums, most = fit < MAX_PIXELS ? fit : MAX_PIXELS;
  n->pixels = last > 0 ? pixels_of(n->extents[last - 1], most) : 1;
}

// Splits the result's loop |d| into tiles of |tile|.
static kiln_status split(window *n, int d, int64_t tile) {
  const kiln_symbol loop = n->loops[d], o = kiln_lowering_name(n->w, "o", loop),
                    i = kiln_lowering_name(n->w, "i", loop);
  if (tile == n->extents[d]) {
    n->inner[n->n_inner++] = loop;
    return KILN_OK;
  }
  if (tile > 1) {
    KILN_TRY(kiln_split(&n->w->s, loop, tile, KILN_TAIL_SHIFT, o, i));
    n->inner[n->n_inner++] = i;
  }
  n->tile_extents[n->n_tiles] = kiln_divide_up(n->extents[d], tile);
  n->tiles[n->n_tiles++] = tile > 1 ? o : loop;
  return KILN_OK;
}

static kiln_status tile_result(window *n) {
  const int last = n->c->n_space - 1;
  kiln_symbol path[2 * KILN_MAX_RANK];
  int k = 0;
  for (int d = 0; d <= last; d++)
    KILN_TRY(split(n, d,
                   d == last       ? n->vector
                   : d == last - 1 ? n->pixels
                   : d == last - 2 ? n->rows
                                   : 1));
  for (int i = 0; i < n->n_tiles; i++) path[k++] = n->tiles[i];
  for (int i = 0; i < n->n_inner; i++) path[k++] = n->inner[i];
  return k > 1 ? kiln_reorder(&n->w->s, k, path) : KILN_OK;
}

static kiln_status place_sums(window *n) {
  kiln_symbol first = n->n_tiles ? n->tiles[0] : 0;
  int fused = n->n_tiles > 0;
  if (!n->node->at && !n->node->around)
    KILN_TRY(kiln_lowering_parallel(n->w, n->n_tiles, n->tiles, n->tile_extents, &first, &fused));
  const kiln_symbol outside = n->node->at ? n->node->at : n->node->around;
  const kiln_symbol at = n->n_tiles == 0      ? outside
                         : n->n_tiles > fused ? n->tiles[n->n_tiles - 1]
                                              : first;
  return at ? kiln_compute_at(&n->w->s, n->sums, at, KILN_SCOPE_REGISTER) : KILN_OK;
}

static kiln_symbol sum_loop(const window *n, const char *part, int d) {
  return kiln_lowering_loop(n->w, name_of(n, n->c), part,
                            (d < n->c->n_space ? n->result : n->c)->dims[d].name);
}

// Unrolls the rows and pixels and vectorizes the channels of a nest that ends in them.
static kiln_status run_in_registers(window *n, int k, const kiln_symbol *nest) {
  if (k > 1) KILN_TRY(kiln_reorder(&n->w->s, k, nest));
  if (n->vector > 1) KILN_TRY(kiln_vectorize(&n->w->s, nest[k - 1]));
  if (n->rows > 1) KILN_TRY(kiln_unroll(&n->w->s, nest[k - 3]));
  return n->pixels > 1 ? kiln_unroll(&n->w->s, nest[k - 2]) : KILN_OK;
}

// How many taps of the window are unrolled: more where they are only loads and products.
static int64_t most_taps(const window *n) {
  const kiln_expr *a = NULL, *b = NULL;
  const int64_t lanes = n->w->lanes, sums = n->rows * n->pixels * kiln_divide_up(n->vector, lanes);
  const bool simple = n->c->body->kind == KILN_EXPR_LOAD || kiln_stmt_is_contraction(n->c, &a, &b);
  return simple && MAX_PRODUCTS / sums > MAX_TAPS ? MAX_PRODUCTS / sums : MAX_TAPS;
}

static kiln_status schedule_sums(window *n) {
  const int n_space = n->c->n_space;
  kiln_symbol nest[2 * KILN_MAX_RANK];
  int64_t taps = 1;
  for (int init = 0; init <= 1; init++) {
    int k = 0;
    for (int d = n_space; !init && d < n_space + n->c->n_reduce; d++)
      nest[k++] = sum_loop(n, "", d);
    for (int d = n->rows > 1 ? n_space - 3 : n_space > 1 ? n_space - 2 : 0; d < n_space; d++)
      nest[k++] = sum_loop(n, init ? "init." : "", d);
    KILN_TRY(run_in_registers(n, k, nest));
  }
  const int64_t most = most_taps(n);
  for (int d = n_space + n->c->n_reduce - 1; d >= n_space; d--) { // the innermost first
    taps *= kiln_lowering_extent(n->c, d);
    if (taps > most) break;
    KILN_TRY(kiln_unroll(&n->w->s, sum_loop(n, "", d)));
  }
  return KILN_OK;
}

kiln_status kiln_lowering_window_node(kiln_lowering *w, const kiln_window_node *node) {
  window n = {
      .w = w, .node = node, .c = node->stmt, .result = node->finish ? node->finish : node->stmt};
  KILN_TRY(stage_weights(&n));
  KILN_TRY(place_result(&n));
  KILN_TRY(find_loops(&n));
  choose_tile(&n);
  KILN_TRY(tile_result(&n));
  KILN_TRY(place_sums(&n));
  KILN_TRY(schedule_sums(&n));
  for (int i = 0; i + 1 < n.n_inner; i++) KILN_TRY(kiln_unroll(&w->s, n.inner[i]));
  return n.vector > 1 && n.n_inner ? kiln_vectorize(&w->s, n.inner[n.n_inner - 1]) : KILN_OK;
}
