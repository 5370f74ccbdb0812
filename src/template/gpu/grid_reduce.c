// Two-stage grid reduction, for the fewest and longest sums (means of images, the sum of a tensor):
// threads of all blocks store partial sums, a warp's worth of threads for each sum adds these up to
// 32, and the thread that needs the sum adds up those: three nests a sum.
#include "template/gpu/grid.h"

enum {
  LANES = 32,
  TERMS = 64,
  LONG_SUM = 64 * 64,
  MANY = 1 << 16
}; // a thread's terms; threads that fill a machine

// Adds up the terms of loops[rank] in |n| parts, each by a thread in registers; |loops| is the
// nest, |name| the buffer of the parts.
static kiln_status add_parts(kiln_lowering *w, const kiln_gpu_reduction *z, kiln_symbol *loops,
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
  KILN_TRY(kiln_gpu_map_grid(w, rank + 1, loops, KILN_GPU_THREADS, &thread));
  return kiln_compute_at(&w->s, kept, thread, KILN_SCOPE_LOCAL);
}

static int64_t parts_of(const kiln_gpu_reduction *z) {
  int64_t parts = 2 * LANES;
  while (2 * parts * TERMS <= z->terms && 2 * parts * z->elems <= MANY) parts *= 2;
  return parts;
}

// Partial sums by threads of all blocks, then by 32 lanes; the last nest adds up a number a lane.
static kiln_status split_sums(kiln_lowering *w, const kiln_gpu_reduction *z) {
  const int rank = z->s->n_space;
  const char *name = kiln_symbol_text(w->cx, w->p->tensors.data[z->s->out]->name);
  const kiln_symbol parts = kiln_symbol_printf(w->cx, "%s.parts", name),
                    lanes = kiln_symbol_printf(w->cx, "%s.lanes", name);
  kiln_symbol loops[KILN_MAX_RANK + 1], nest[KILN_MAX_RANK + 1];
  int64_t extent;
  for (int d = 0; d < z->s->n_reduce; d++)
    loops[d] = kiln_lowering_loop(w, name, "", z->s->dims[rank + d].name);
  KILN_TRY(kiln_gpu_fuse(w, z->s->n_reduce, loops, &nest[rank], &extent));
  for (int d = 0; d < rank; d++) nest[d] = kiln_lowering_loop(w, name, "", z->s->dims[d].name);
  KILN_TRY(add_parts(w, z, nest, parts_of(z), kiln_symbol_text(w->cx, parts)));
  for (int k = 0; k <= rank; k++) nest[k] = kiln_symbol_printf(w->cx, "%s.parts.%d", name, k);
  return add_parts(w, z, nest, LANES, kiln_symbol_text(w->cx, lanes));
}

// An element of |s|, a map, a thread; it adds up the lanes of the sums that the element takes.
static kiln_status lower_map(kiln_lowering *w, const kiln_stmt *s) {
  const kiln_program *p = w->p;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, p, s);
  const char *name = kiln_symbol_text(w->cx, p->tensors.data[s->out]->name);
  kiln_symbol loops[KILN_MAX_RANK], thread;
  for (int d = 0; d < s->n_space; d++) loops[d] = kiln_lowering_loop(w, name, "", s->dims[d].name);
  KILN_TRY(kiln_gpu_map_grid(w, s->n_space, loops, KILN_GPU_THREADS, &thread));
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *from = p->stmts.data[i];
    bool reads = false;
    for (int k = 0; k < loads.n; k++) reads |= loads.data[k]->u.tensor == from->out;
    if (reads && from->n_reduce)
      KILN_TRY(kiln_compute_at(&w->s, p->tensors.data[from->out]->name, thread, KILN_SCOPE_LOCAL));
  }
  return KILN_OK;
}

static kiln_status lower_grid_reduce(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  kiln_gpu_reduction z;
  for (int i = 0; i < w->p->stmts.n; i++)
    if (kiln_gpu_reduction_of(w, w->p->stmts.data[i], &z)) KILN_TRY(split_sums(w, &z));
  for (int i = 0; i < w->p->stmts.n; i++)
    if (w->p->stmts.data[i]->n_reduce == 0) KILN_TRY(lower_map(w, w->p->stmts.data[i]));
  return KILN_OK;
}

// Whether everything is by element, each sum long enough, and a block for some sums would leave
// multiprocessors idle.
static bool is_worth(const kiln_lowering *w) {
  bool any = false;
  if (kiln_gpu_block_reduce_fills(w)) return false;
  for (int i = 0; i < w->p->stmts.n; i++) {
    kiln_gpu_reduction z;
    const kiln_stmt *s = w->p->stmts.data[i];
    if (!kiln_gpu_is_by_element(w, s)) return false;
    if (s->n_reduce == 0) continue;
    if (!kiln_gpu_reduction_of(w, s, &z) || z.terms < LONG_SUM || z.elems * 2 * LANES > MANY)
      return false;
    any = true;
  }
  return any && w->root->n_space > 0 && w->root->n_reduce == 0;
}

static kiln_status propose_grid_reduce(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {0};
  if (!is_worth(w)) return KILN_OK;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_grid_reduce = {.name = "grid_reduce",
                                                     .was = "split",
                                                     .has_grids = true,
                                                     .propose = propose_grid_reduce,
                                                     .lower = lower_grid_reduce,
                                                     .by_loops = true};
