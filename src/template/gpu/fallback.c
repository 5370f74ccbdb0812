// The fallback schedule, which runs any program: every statement in nests of its own, its elements
// mapped to the threads of a grid. Where threads would write one element, one thread runs the nest.
#include "template/gpu/grid.h"

#include <math.h>

typedef struct nest {
  const kiln_stmt *stmt;
  bool is_init;
} nest;

// The loops of a nest over elements: those of an initialisation run over the axes of the tensor
// where these are not the statement's dims.
static int loops_of(kiln_lowering *w, const nest *n, kiln_symbol *out) {
  const kiln_tensor *t = w->p->tensors.data[n->stmt->out];
  const char *name = kiln_symbol_text(w->cx, t->name);
  for (int d = 0; d < n->stmt->n_space; d++)
    out[d] = kiln_lowering_loop(w, name, n->is_init ? "init." : "", n->stmt->dims[d].name);
  if (!n->is_init || (n->stmt->n_space && kiln_loops_find(w->s.loops, out[0])))
    return n->stmt->n_space;
  for (int k = 0; k < t->rank; k++) out[k] = kiln_symbol_printf(w->cx, "%s.init.o%d", name, k);
  return t->rank;
}

static kiln_status spread_nest(kiln_lowering *w, void *argument) {
  kiln_symbol loops[KILN_MAX_RANK], thread;
  const int n = loops_of(w, argument, loops);
  if (n == 0 || !kiln_loops_find(w->s.loops, loops[0])) return KILN_OK;
  return kiln_gpu_map_grid(w, n, loops, KILN_GPU_THREADS, &thread);
}

static kiln_status lower_fallback(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  for (int i = 0; i < w->p->stmts.n; i++)
    for (int init = 0; init <= 1; init++) {
      nest n = {w->p->stmts.data[i], init == 1};
      KILN_TRY(kiln_lowering_try(w, spread_nest, &n));
    }
  return KILN_OK;
}

static kiln_status propose_fallback(kiln_lowering *w, kiln_tile_candidates *out) {
  KILN_VEC_PUSH(w->proposed, out, (kiln_tile_candidate){.cost.ns = INFINITY});
  return KILN_OK;
}

const kiln_template kiln_template_gpu_fallback = {.name = "fallback",
                                                  .was = "nests",
                                                  .has_grids = true,
                                                  .propose = propose_fallback,
                                                  .lower = lower_fallback};
