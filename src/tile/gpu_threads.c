// An element of the result a thread, or a vector of them: maps, and reductions in whose place their readers
// stand. What an element takes is computed by its thread, in registers.
#include "tile/gpu.h"

enum { MAX_VECTOR = 4 };

static kiln_symbol tensor_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->name;
}

static bool has_dim(const kiln_stmt *s, kiln_symbol name) {
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name == name) return true;
  return false;
}

// Whether each statement computes for an element of the result what no other element takes, all having the
// result's dims and no others, or is a map, which may be computed again for each.
static bool is_elementwise(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (s->guard || s->init || (s->n_reduce && s->n_space != w->root->n_space)) return false;
    for (int d = 0; d < s->n_space; d++)
      if (!has_dim(w->root, s->dims[d].name)) return false;
  }
  return w->root->n_space > 0;
}

// Elements of a thread along the contiguous dim: as many as a vector holds where all loads are vectors or the
// same for all, else one.
static int64_t vector_of(const kiln_lowering *w) {
  const int last = w->root->n_space - 1;
  const kiln_tensor *y = w->p->tensors.data[w->root->out];
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, w->root);
  int64_t vector = MAX_VECTOR;
  if (w->p->stmts.n > 1 || w->root->n_reduce || y->rank == 0 || y->order[y->rank - 1] != last)
    return 1;
  for (int i = 0; i < loads.n; i++) {
    const int64_t stride = kiln_load_stride(w->cx, w->p, loads.data[i], w->root->dims[last].name);
    if (stride != 0 && stride != 1) return 1;
  }
  while (vector > 1 && kiln_lowering_extent(w->root, last) % vector) vector /= 2;
  return vector;
}

// The nest of a reduction into the result becomes one that copies sums, so that these stay in registers.
static kiln_status keep_sums(kiln_lowering *w, kiln_symbol *loops) {
  const kiln_symbol y = tensor_of(w, w->root),
                    sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, y));
  KILN_TRY(kiln_cache_write(&w->s, y, sums, 0, NULL));
  for (int d = 0; d < w->root->n_space; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", kiln_symbol_text(w->cx, y), d);
  return KILN_OK;
}

static kiln_status lower_threads(kiln_lowering *w, const kiln_tiling *t) {
  kiln_symbol loops[KILN_MAX_RANK], thread;
  const int last = w->root->n_space - 1;
  for (int d = 0; d <= last; d++) loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  if (w->root->n_reduce) KILN_TRY(keep_sums(w, loops));
  if (t->vectors > 1) {
    const kiln_symbol outer = kiln_lowering_name(w, "o", loops[last]),
                      inner = kiln_lowering_name(w, "i", loops[last]);
    KILN_TRY(kiln_split(&w->s, loops[last], t->vectors, KILN_TAIL_EXACT, outer, inner));
    KILN_TRY(kiln_vectorize(&w->s, inner));
    loops[last] = outer;
  }
  KILN_TRY(kiln_gpu_spread(w, last + 1, loops, KILN_GPU_THREADS, &thread));
  if (w->root->n_reduce)
    KILN_TRY(kiln_compute_at(&w->s, kiln_symbol_of(w->cx, "y.sums"), thread, KILN_SCOPE_LOCAL));
  for (int i = w->p->stmts.n - 2; i >= 0; i--)
    KILN_TRY(kiln_compute_at(&w->s, tensor_of(w, w->p->stmts.data[i]), thread, KILN_SCOPE_LOCAL));
  return KILN_OK;
}

static kiln_status propose_threads(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {.family = &kiln_family_gpu_threads};
  if (!is_elementwise(w)) return KILN_OK;
  one.tiling.vectors = vector_of(w);
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(&w->cx->perm, out, one);
  return KILN_OK;
}

const kiln_family kiln_family_gpu_threads = {"threads", propose_threads, lower_threads};
