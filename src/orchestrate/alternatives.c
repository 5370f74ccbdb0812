// The cost of an alternative: how much longer the run takes if another kernel replaces a chosen
// one.
#include "orchestrate/program.h"

#include <math.h>
#include <string.h>

typedef struct swapping {
  kiln_ctx *cx;
  const kiln_choice *c;
  int n, *kernels;   // kernels kept so far, then those added
  kiln_bits *stored; // union of their results
} swapping;

static void keep(swapping *w, int kernel) {
  w->kernels[w->n++] = kernel;
  kiln_bits_add(w->stored, w->c->kernels[kernel].results);
}

// Whether no kept kernel reads the results of |kernel| that |other| does not store.
static bool is_spare(const swapping *w, const kiln_choice_kernel *kernel,
                     const kiln_choice_kernel *other) {
  const kiln_choice *c = w->c;
  if (!kiln_bits_is_subset(kernel->results, other->prims)) return false;
  kiln_bits *rest = kiln_bits_copy(&w->cx->scratch, kernel->results);
  kiln_bits_remove(rest, other->results);
  if (kiln_bits_meet(rest, c->needed)) return false;
  for (int i = 0; i < w->n; i++)
    if (kiln_bits_meet(c->kernels[w->kernels[i]].takes, rest)) return false;
  return true;
}

// Results that some kernel reads or the program needs, and no kernel stores.
static const kiln_bits *missing_of(const swapping *w) {
  kiln_bits *missing = kiln_bits_copy(&w->cx->scratch, w->c->needed);
  for (int i = 0; i < w->n; i++) kiln_bits_add(missing, w->c->kernels[w->kernels[i]].takes);
  kiln_bits_remove(missing, w->stored);
  return missing;
}

// The cheapest kernel that stores |prim| and reads stored results only; -1: none.
static int find_maker(const swapping *w, int prim) {
  const kiln_choice *c = w->c;
  int best = -1;
  for (int k = 0; k < c->n_kernels; k++) {
    const kiln_choice_kernel *x = &c->kernels[k];
    if (!isfinite(x->cost) || !kiln_bits_has(x->results, prim)) continue;
    if (!kiln_bits_is_subset(x->takes, w->stored)) continue;
    if (c->stores_once && kiln_bits_meet(x->results, w->stored)) continue;
    if (best < 0 || x->cost < c->kernels[best].cost) best = k;
  }
  return best;
}

static double swap(swapping *w, int n, const int *kernels, int at, int other) {
  const kiln_choice *c = w->c;
  const kiln_choice_kernel *y = &c->kernels[other];
  double more = y->cost - c->kernels[kernels[at]].cost;
  for (int i = n - 1; i >= 0; i--) { // readers are visited before their producers
    if (i == at) continue;
    if (is_spare(w, &c->kernels[kernels[i]], y)) more -= c->kernels[kernels[i]].cost;
    else keep(w, kernels[i]);
  }
  if (!isfinite(more) || (c->stores_once && kiln_bits_meet(y->results, w->stored))) return INFINITY;
  keep(w, other);
  for (int prim; (prim = kiln_bits_next(missing_of(w), 0)) >= 0;) {
    const int maker = find_maker(w, prim);
    if (maker < 0) return INFINITY;
    keep(w, maker);
    more += c->kernels[maker].cost;
  }
  return kiln_choice_order(w->cx, c, w->n, w->kernels) == w->n ? more : INFINITY;
}

double kiln_choice_extra_cost(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels, int at,
                              int other) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  swapping w = {.cx = cx,
                .c = c,
                .kernels = KILN_NEW_ARRAY(&cx->scratch, int, n + 1 + c->n_prims),
                .stored = kiln_bits_make(&cx->scratch, c->n_prims)};
  const double more = swap(&w, n, kernels, at, other);
  kiln_arena_rewind(&cx->scratch, mark);
  return more;
}
