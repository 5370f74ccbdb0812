// What kernels cost whose family proposes one way to run them.
#include "tile/lower.h"

#include <math.h>

enum { STRIP = 4, TASKS_PER_THREAD = 4 };

// Share of the FMA peak: maps and sums do one operation an instruction, half of what an FMA counts, and
// wait for each other. Windows of products are FMAs, many sums at a time.
static const double EFFICIENCY = 0.35, WINDOW_EFFICIENCY = 0.65;

static bool has_dim(const kiln_stmt *s, kiln_symbol name) {
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name == name) return true;
  return false;
}

// Whether all statements have the root's dim |d|, so that they can run in one of its iterations.
static bool is_shared(const kiln_lowering *w, int d) {
  for (int i = 0; i < w->p->stmts.n; i++)
    if (!has_dim(w->p->stmts.data[i], w->root->dims[d].name)) return false;
  return true;
}

void kiln_lowering_price(kiln_lowering *w, kiln_tile_cost *out) {
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
