// An element of the result a thread, or a vector of them: maps, and reductions in whose place their readers
// stand. What an element takes is computed by its thread, in registers.
#include "tile/gpu.h"

enum {
  WORD = 16,       // bytes
  WARPS = 4,       // of a multiprocessor, for which there should be work,
  MANY_WARPS = 48, // and where a thread adds up more than so many terms
  LONG_SUM = 64
};

static kiln_symbol tensor_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->name;
}

// Whether each statement computes for an element of the result what no other element takes, all having the
// result's dims and no others, or is a map, which may be computed again for each.
static bool is_elementwise(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (s->guard || s->init || (s->n_reduce && s->n_space != w->root->n_space)) return false;
    for (int d = 0; d < s->n_space; d++)
      if (kiln_stmt_space_dim(w->root, s->dims[d].name) < 0) return false;
  }
  return w->root->n_space > 0;
}

// Whether all loads of |s| that matter lie side by side along |dim|, or are the same for all.
static bool lies_along(const kiln_lowering *w, const kiln_stmt *s, kiln_symbol dim) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++) {
    if (w->p->tensors.data[loads.data[i]->u.tensor]->role == KILN_CONST) continue;
    const int64_t stride = kiln_stmt_load_stride(w->cx, w->p, s, loads.data[i], dim);
    if (stride != 0 && stride != 1) return false;
  }
  return true;
}

static bool has_long_sum(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    int64_t terms = 1;
    for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) terms *= kiln_lowering_extent(s, d);
    if (terms > LONG_SUM) return true;
  }
  return false;
}

// Elements of a thread along the contiguous dim: as many of the smallest as are a word where loads allow it and enough
// threads are left, else fewer.
static int64_t vector_of(const kiln_lowering *w) {
  const int last = w->root->n_space - 1;
  const kiln_symbol dim = w->root->dims[last].name;
  const int warps = has_long_sum(w) ? MANY_WARPS : WARPS;
  const double enough = (double)w->m->n_cores * w->m->gpu.warp * warps;
  int64_t strides[KILN_MAX_RANK], vector = 1;
  double elems = 1;
  kiln_tensor_strides(w->p->tensors.data[w->root->out], strides);
  if (w->root->n_reduce || strides[last] != 1) return 1;
  for (int i = 0; i < w->p->stmts.n; i++)
    if (!lies_along(w, w->p->stmts.data[i], dim)) return 1;
  for (int i = 0; i < w->p->tensors.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[i];
    const int64_t fit = WORD / kiln_dtype_bytes(t->dtype);
    if (t->role != KILN_TEMP && fit > vector) vector = fit;
  }
  for (int d = 0; d <= last; d++) elems *= (double)kiln_lowering_extent(w->root, d);
  while (vector > 1 &&
         (kiln_lowering_extent(w->root, last) % vector || elems / (double)vector < enough))
    vector /= 2;
  return vector;
}

// What |s| computes for a thread's elements, these innermost.
static kiln_status vectorize(kiln_lowering *w, const kiln_stmt *s) {
  const kiln_symbol dim = w->root->dims[w->root->n_space - 1].name;
  const char *name = kiln_symbol_text(w->cx, tensor_of(w, s));
  kiln_symbol loops[2 * KILN_MAX_RANK];
  if (kiln_stmt_space_dim(s, dim) < 0) return KILN_OK;
  if (s->n_reduce) {
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      loops[(d + s->n_reduce) % (s->n_space + s->n_reduce)] =
          kiln_lowering_loop(w, name, "", s->dims[d].name);
    KILN_TRY(kiln_reorder(&w->s, s->n_space + s->n_reduce, loops));
    KILN_TRY(kiln_vectorize(&w->s, kiln_lowering_loop(w, name, "init.", dim)));
  }
  return kiln_vectorize(&w->s, kiln_lowering_loop(w, name, "", dim));
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
  for (int i = w->p->stmts.n - 2; i >= 0; i--) {
    KILN_TRY(kiln_compute_at(&w->s, tensor_of(w, w->p->stmts.data[i]), thread, KILN_SCOPE_LOCAL));
    if (t->vectors > 1) KILN_TRY(vectorize(w, w->p->stmts.data[i]));
  }
  return KILN_OK;
}

static kiln_status propose_threads(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {.family = &kiln_family_gpu_threads};
  if (!is_elementwise(w)) return KILN_OK;
  one.tiling.vectors = vector_of(w);
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_family kiln_family_gpu_threads = {"threads", propose_threads, lower_threads,
                                             .by_loops = true};
