// The cost of kernels whose template proposes one schedule.
#include "template/lower.h"

#include <math.h>

enum { STRIP = 4, TASKS_PER_THREAD = 4 };

// Share of the FMA peak: maps and sums do one operation an instruction, half of an FMA's two, in
// dependent chains. Windows of products are FMAs of many independent sums.
static const double EFFICIENCY = 0.35, WINDOW_EFFICIENCY = 0.65;

// Whether all statements have the root's dim |d|, so that they can run in one of its iterations.
static bool is_shared(const kiln_lowering *w, int d) {
  for (int i = 0; i < w->p->stmts.n; i++)
    if (kiln_stmt_space_dim(w->p->stmts.data[i], w->root->dims[d].name) < 0) return false;
  return true;
}

// --- on a GPU ---

// Elements of a tensor that the kernel reads from memory: 0 for its intermediates.
static double read_elems(const kiln_lowering *w, int tensor) {
  const kiln_mark mark = kiln_arena_mark(&w->cx->scratch);
  double most = 0;
  for (int i = 0; i < w->p->stmts.n && w->p->tensors.data[tensor]->def < 0; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
    for (int k = 0; k < loads.n; k++)
      if (loads.data[k]->u.tensor == tensor) most = fmax(most, (double)kiln_stmt_domain(s));
  }
  kiln_arena_rewind(&w->cx->scratch, mark);
  return fmin(most, (double)kiln_tensor_elems(w->p->tensors.data[tensor]));
}

// All multiprocessors share the traffic and the arithmetic, each counted once; a kernel begins and
// ends, and each sum synchronizes threads. Data of small kernels, except constants, is in the L2
// from the kernel before. The mapping to threads is not seen: different kernels are compared by
// their loops (price/gpu_work.h).
static void price_grid(kiln_lowering *w, kiln_tile_cost *out) {
  static const double BEGIN_END_NS = 1500, SUM_NS = 1000; // as measured on an H200
  const kiln_device *d = w->m->device;
  kiln_tile_cost c = {.tiles = d->n_units};
  double constants = 0, waits = BEGIN_END_NS;
  for (int i = 0; i < w->p->tensors.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[i];
    const double elems =
        kiln_tensor_is_output(w->p, i) ? (double)kiln_tensor_elems(t) : read_elems(w, i);
    c.bytes[1] += elems * kiln_dtype_bytes(t->dtype);
    if (t->role == KILN_CONST) constants += elems * kiln_dtype_bytes(t->dtype);
  }
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    c.flops += (double)kiln_stmt_domain(s) * (1 + kiln_expr_cost(w->cx, s->body));
    if (s->n_reduce > 0) waits += SUM_NS;
  }
  c.bytes[0] = c.bytes[1] > kiln_tile_kept_bytes(&d->levels[1]) ? c.bytes[1] : constants;
  kiln_tile_cost_finish(d, d->n_units, KILN_PEAK_F32, EFFICIENCY, &c);
  c.launch_ns += waits;
  c.ns += waits;
  *out = c;
}

// --- on a CPU ---

void kiln_lowering_price(kiln_lowering *w, kiln_tile_cost *out) {
  if (w->m->target->has_grids && w->m->device) {
    price_grid(w, out);
    return;
  }
  const int n = w->root->n_space, level = w->m->device ? w->m->device->n_levels - 1 : 1;
  int64_t tile[KILN_MAX_RANK] = {0};
  double tasks = 1;
  for (int d = 0; d < n; d++) {
    if (!is_shared(w, d)) continue;
    tile[d] = d == n - 1 ? STRIP * w->lanes : 1;
    tasks *= ceil((double)kiln_lowering_extent(w->root, d) / (double)tile[d]);
  }
  kiln_tile_graph *g = kiln_tile_graph_make(w->cx, w->p);
  kiln_tile_connect_all(g, level);
  const int most = w->n_threads * TASKS_PER_THREAD;
  const kiln_expr *a = NULL, *b = NULL;
  const bool multiplies = kiln_stmt_is_contraction(w->p->stmts.data[0], &a, &b);
  const kiln_tile_plan plan = {.tile = tile,
                               .efficiency = multiplies ? WINDOW_EFFICIENCY : EFFICIENCY,
                               .tasks = tasks > most ? most : (int64_t)tasks};
  kiln_tile_cost_of(g, w->m, w->n_threads, &plan, out);
}
