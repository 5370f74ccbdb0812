// The fewest and longest sums: means of images, sums of everything. Parts of each are added up by threads of all
// blocks into memory, those by one warp's worth of threads a sum, and these by the thread that needs the sum: three
// nests, between which everything is there.
#include "tile/gpu.h"

enum {
  LANES = 32,
  TERMS = 64,
  LONG_SUM = 64 * 64,
  MANY = 1 << 16
}; // a thread's terms; threads that fill a machine

// Adds up the terms of loops[rank] in |n| parts, each by a thread in registers; |loops| is the nest, |name| the
// buffer of the parts.
static kiln_status add_parts(kiln_lowering *w, const kiln_gpu_sums *z, kiln_symbol *loops,
                             int64_t n, const char *name) {
  const int rank = z->s->n_space;
  const kiln_symbol whole = loops[rank], part = kiln_lowering_name(w, "t", whole),
                    buffer = kiln_symbol_of(w->cx, name),
                    kept = kiln_symbol_printf(w->cx, "%s.kept", name);
  kiln_symbol order[KILN_MAX_RANK + 2] = {part}, thread;
  loops[rank] = kiln_lowering_name(w, "o", whole);
  KILN_TRY(kiln_split(&w->s, whole, n, KILN_TAIL_GUARD, loops[rank], part));
  for (int k = 0; k <= rank; k++) order[1 + k] = loops[k];
  KILN_TRY(kiln_reorder(&w->s, rank + 2, order));
  KILN_TRY(kiln_rfactor(&w->s, part, buffer));
  KILN_TRY(kiln_cache_write(&w->s, buffer, kept, 0, NULL));
  for (int k = 0; k <= rank; k++)
    loops[z->along ? k : (k + 1) % (rank + 1)] = kiln_symbol_printf(w->cx, "%s.copy.%d", name, k);
  if (!z->along) KILN_TRY(kiln_reorder(&w->s, rank + 1, loops));
  KILN_TRY(kiln_gpu_spread(w, rank + 1, loops, KILN_GPU_THREADS, &thread));
  return kiln_compute_at(&w->s, kept, thread, KILN_SCOPE_LOCAL);
}

static kiln_status lower_split(kiln_lowering *w, const kiln_tiling *t) {
  kiln_gpu_sums z;
  kiln_symbol loops[KILN_MAX_RANK + 1], nest[KILN_MAX_RANK + 1], thread;
  int64_t extent;
  if (!kiln_gpu_find_sums(w, &z)) return KILN_INTERNAL;
  const int rank = z.s->n_space;
  const char *name = kiln_symbol_text(w->cx, w->p->tensors.data[z.s->out]->name);
  const kiln_symbol parts = kiln_symbol_printf(w->cx, "%s.parts", name),
                    lanes = kiln_symbol_printf(w->cx, "%s.lanes", name);
  for (int d = 0; d < z.s->n_reduce; d++)
    loops[d] = kiln_lowering_loop(w, name, "", z.s->dims[rank + d].name);
  KILN_TRY(kiln_gpu_fuse(w, z.s->n_reduce, loops, &nest[rank], &extent));
  for (int d = 0; d < rank; d++) nest[d] = kiln_lowering_loop(w, name, "", z.s->dims[d].name);
  KILN_TRY(add_parts(w, &z, nest, t->step[0], kiln_symbol_text(w->cx, parts)));
  for (int k = 0; k <= rank; k++) nest[k] = kiln_symbol_printf(w->cx, "%s.parts.%d", name, k);
  KILN_TRY(add_parts(w, &z, nest, LANES, kiln_symbol_text(w->cx, lanes)));
  for (int d = 0; d < rank; d++) loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  KILN_TRY(kiln_gpu_spread(w, rank, loops, KILN_GPU_THREADS, &thread));
  return kiln_compute_at(&w->s, kiln_symbol_of(w->cx, name), thread, KILN_SCOPE_LOCAL);
}

static kiln_status propose_split(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_gpu_sums z;
  int64_t parts = 2 * LANES;
  if (!kiln_gpu_find_sums(w, &z) || z.terms < LONG_SUM || z.elems * parts > MANY) return KILN_OK;
  while (2 * parts * TERMS <= z.terms && 2 * parts * z.elems <= MANY) parts *= 2;
  kiln_tile_candidate one = {.family = &kiln_family_gpu_split};
  one.tiling.step[0] = parts;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(&w->cx->perm, out, one);
  return KILN_OK;
}

const kiln_family kiln_family_gpu_split = {"split", propose_split, lower_split};
