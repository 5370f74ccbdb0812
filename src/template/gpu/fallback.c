// The fallback schedule, which runs any program: every statement in nests of its own, its elements
// mapped to the threads of a grid. Where threads would write one element, a thread runs all
// iterations that may write it: of a scatter's loops only those are mapped that are an index of
// their own, of an axis that no other loop moves along.
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

// Whether dim |d| is the index along one axis, whatever the other dims are: different iterations of
// its loop write different elements.
static bool keeps_apart(const kiln_lowering *w, const kiln_stmt *s, int d) {
  for (int k = 0; k < w->p->tensors.data[s->out]->rank; k++)
    if (s->index[k]->kind == KILN_EXPR_VAR && s->index[k]->u.sym == s->dims[d].name) return true;
  return false;
}

// Moves the loops of an update that keep elements apart outwards. Gives their number.
static kiln_status move_apart(kiln_lowering *w, const kiln_stmt *s, int n, kiln_symbol *io_loops,
                              int *out_n) {
  kiln_symbol order[KILN_MAX_RANK];
  int n_ordered = 0;
  for (int d = 0; d < n; d++)
    if (keeps_apart(w, s, d)) order[n_ordered++] = io_loops[d];
  *out_n = n_ordered;
  for (int d = 0; d < n; d++)
    if (!keeps_apart(w, s, d)) order[n_ordered++] = io_loops[d];
  for (int d = 0; d < n; d++) io_loops[d] = order[d];
  return *out_n > 0 && *out_n < n ? kiln_reorder(&w->s, n, order) : KILN_OK;
}

static kiln_status spread_nest(kiln_lowering *w, void *argument) {
  const nest *from = argument;
  kiln_symbol loops[KILN_MAX_RANK], thread;
  int n = loops_of(w, from, loops);
  if (n == 0 || !kiln_loops_find(w->s.loops, loops[0])) return KILN_OK;
  if (!from->is_init) KILN_TRY(move_apart(w, from->stmt, n, loops, &n));
  return n > 0 ? kiln_gpu_map_grid(w, n, loops, KILN_GPU_THREADS, &thread) : KILN_OK;
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
