// Grid mapping: loops as a grid of blocks and threads, distributed blockwise or cyclically.
#include "template/gpu/grid.h"

#include "target/gpu/gpu.h"

#include <string.h>

kiln_instr *kiln_gpu_instr_named(const kiln_lowering *w, const char *name) {
  int n = 0;
  kiln_instr *all = kiln_gpu_instrs(w->cx, w->m, &n);
  for (int i = 0; i < n; i++)
    if (all[i].is_there && strcmp(all[i].name, name) == 0) return &all[i];
  return NULL;
}

kiln_status kiln_gpu_cut(kiln_lowering *w, kiln_symbol *io_loop, int64_t factor, const char *outer,
                         const char *inner, kiln_symbol *out_outer) {
  const kiln_symbol whole = *io_loop;
  *out_outer = kiln_lowering_name(w, outer, whole);
  *io_loop = kiln_lowering_name(w, inner, whole);
  return kiln_split(&w->s, whole, factor, KILN_TAIL_EXACT, *out_outer, *io_loop);
}

int kiln_axes_lead(kiln_stage_axis *axes, int n) {
  for (int d = 0; d < n; d++) axes[d] = (kiln_stage_axis){.axis = d};
  return n;
}

double kiln_gpu_param_bytes(const kiln_lowering *w) {
  double bytes = 0;
  for (int i = 0; i < w->p->tensors.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[i];
    if (kiln_tensor_is_param(w->p, i))
      bytes += (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
  }
  return bytes;
}

int64_t kiln_gpu_extent(const kiln_lowering *w, kiln_symbol loop) {
  const kiln_loop *l = kiln_loops_find(w->s.loops, loop);
  int64_t extent = 1;
  if (l) (void)kiln_expr_is_int(l->extent, &extent);
  return extent;
}

kiln_status kiln_gpu_fuse(kiln_lowering *w, int n, const kiln_symbol *loops, kiln_symbol *out,
                          int64_t *out_extent) {
  *out = loops[0];
  for (int k = 1; k < n; k++) {
    const kiln_symbol name = kiln_lowering_name(w, "f", loops[k]);
    KILN_TRY(kiln_fuse(&w->s, *out, loops[k], name));
    *out = name;
  }
  *out_extent = kiln_gpu_extent(w, *out);
  return KILN_OK;
}

kiln_status kiln_gpu_map_grid(kiln_lowering *w, int n, const kiln_symbol *loops, int64_t threads,
                              kiln_symbol *out_thread) {
  int64_t extent;
  KILN_TRY(kiln_gpu_fuse(w, n, loops, out_thread, &extent));
  if (extent > threads) {
    const kiln_symbol block = kiln_lowering_name(w, "b", *out_thread),
                      thread = kiln_lowering_name(w, "t", *out_thread);
    KILN_TRY(kiln_split(&w->s, *out_thread, threads, KILN_TAIL_GUARD, block, thread));
    KILN_TRY(kiln_bind(&w->s, block, KILN_BLOCK_X));
    *out_thread = thread;
  }
  return kiln_bind(&w->s, *out_thread, KILN_THREAD_X);
}

kiln_status kiln_gpu_distribute_cyclic(kiln_lowering *w, int n, const kiln_symbol *loops,
                                       int64_t threads, int64_t width) {
  kiln_symbol all;
  int64_t extent;
  KILN_TRY(kiln_gpu_fuse(w, n, loops, &all, &extent));
  if (extent > threads) {
    const kiln_symbol round = kiln_lowering_name(w, "o", all),
                      thread = kiln_lowering_name(w, "t", all);
    KILN_TRY(kiln_split(&w->s, all, threads, KILN_TAIL_GUARD, round, thread));
    KILN_TRY(kiln_reorder(&w->s, 2, (const kiln_symbol[]){thread, round}));
    all = thread;
  }
  if (kiln_gpu_extent(w, all) > width) {
    const kiln_symbol row = kiln_lowering_name(w, "y", all),
                      column = kiln_lowering_name(w, "x", all);
    KILN_TRY(kiln_split(&w->s, all, width, KILN_TAIL_GUARD, row, column));
    KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
    all = column;
  }
  return kiln_bind(&w->s, all, KILN_THREAD_X);
}

kiln_status kiln_gpu_factor(kiln_lowering *w, kiln_symbol loop, int64_t n, kiln_symbol of,
                            const char *suffix, int n_outer, const kiln_symbol *outer,
                            kiln_symbol *out) {
  kiln_symbol part = loop, order[KILN_MAX_RANK + 1];
  *out = kiln_lowering_name(w, suffix, of);
  if (kiln_gpu_extent(w, loop) > n) {
    part = kiln_lowering_name(w, "t", loop);
    KILN_TRY(kiln_split(&w->s, loop, n, KILN_TAIL_GUARD, kiln_lowering_name(w, "o", loop), part));
  }
  order[0] = part; // in front, so that the parts of all rows are one buffer
  for (int d = 0; d < n_outer; d++) order[1 + d] = outer[d];
  KILN_TRY(kiln_reorder(&w->s, n_outer + 1, order));
  KILN_TRY(kiln_rfactor(&w->s, part, *out));
  return kiln_cache_write(&w->s, *out, kiln_lowering_name(w, "sums", *out), 0, NULL);
}
