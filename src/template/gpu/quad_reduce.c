// Quad reductions: nests over rows of MMA fragments, by the lanes that hold them.
#include "template/gpu/quad_reduce.h"

#include "template/gpu/layout.h"
#include "template/gpu/mma.h"
#include "template/gpu/warpgroup.h"

// Each warp, or warp group, has whole rows.
static bool layout_of_sums(const kiln_quad_tile *q, int64_t columns, kiln_layout *out) {
  return kiln_layout_of_sums(q->w, q->by_warpgroups, (const int64_t[]){q->rows, columns},
                             (const int64_t[]){q->warp, columns}, out);
}

kiln_status kiln_quad_layout_sums(const kiln_quad_tile *q, kiln_symbol sums, int64_t columns) {
  kiln_layout l;
  if (!layout_of_sums(q, columns, &l)) return KILN_INTERNAL;
  return kiln_layout_apply(q->w, sums, &l);
}

kiln_status kiln_quad_layout_rows(const kiln_quad_tile *q, kiln_symbol f) {
  kiln_layout sums, rows;
  if (!layout_of_sums(q, KILN_WARPGROUP_LINE, &sums)) return KILN_INTERNAL;
  kiln_layout_reduced(&sums, 1, &rows);
  return kiln_layout_apply(q->w, f, &rows);
}

kiln_status kiln_quad_run_nest(const kiln_quad_tile *q, kiln_symbol rows) {
  if (!kiln_loops_find(q->w->s.loops, rows)) return KILN_OK;
  return kiln_layout_run(q->w, rows, q->by_warpgroups ? KILN_WARPGROUP : KILN_MMA_WARP,
                         q->rows / q->warp);
}

kiln_status kiln_quad_reduce(const kiln_quad_tile *q, kiln_symbol rows, int n_inner,
                             const kiln_symbol *inner, kiln_instr *instr) {
  kiln_layout sums;
  if (!layout_of_sums(q, KILN_WARPGROUP_LINE, &sums)) return KILN_INTERNAL;
  return kiln_layout_run_reduction(q->w, &sums, 1, rows, n_inner, inner, instr);
}

// --- products ---

kiln_status kiln_quad_split_product(const kiln_quad_tile *q, kiln_symbol m, kiln_symbol n,
                                    kiln_symbol k, kiln_quad_product *out) {
  kiln_lowering *w = q->w;
  *out = (kiln_quad_product){.m = m, .n = n, .k = k};
  KILN_TRY(kiln_gpu_cut(w, &out->m, q->warp, "w", "i", &out->warp));
  KILN_TRY(kiln_gpu_cut(w, &out->m, KILN_MMA_M, "t", "m", &out->tile_m));
  KILN_TRY(kiln_gpu_cut(w, &out->n, KILN_MMA_N, "t", "n", &out->tile_n));
  KILN_TRY(kiln_gpu_cut(w, &out->k, KILN_MMA_K, "t", "k", &out->step));
  return kiln_reorder(&w->s, 7,
                      (const kiln_symbol[]){out->warp, out->step, out->tile_m, out->tile_n, out->m,
                                            out->n, out->k});
}

kiln_status kiln_quad_run_product(const kiln_quad_tile *q, const kiln_quad_product *p,
                                  kiln_instr *mma) {
  kiln_schedule *s = &q->w->s;
  KILN_TRY(kiln_tensorize(s, p->m, mma));
  KILN_TRY(kiln_bind(s, p->warp, KILN_THREAD_Y));
  KILN_TRY(kiln_unroll(s, p->step));
  KILN_TRY(kiln_unroll(s, p->tile_m));
  return kiln_unroll(s, p->tile_n);
}

kiln_status kiln_quad_run_warpgroups(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol column,
                                     kiln_symbol depth, kiln_symbol lines, kiln_instr *instr) {
  kiln_schedule *s = &q->w->s;
  kiln_symbol group, step;
  KILN_TRY(kiln_gpu_cut(q->w, &rows, q->warp, "w", "i", &group));
  KILN_TRY(kiln_gpu_cut(q->w, &depth, KILN_MMA_K, "t", "k", &step));
  KILN_TRY(kiln_reorder(s, lines ? 6 : 5,
                        lines ? (const kiln_symbol[]){group, step, rows, lines, column, depth}
                              : (const kiln_symbol[]){group, step, rows, column, depth}));
  KILN_TRY(kiln_tensorize(s, rows, instr));
  KILN_TRY(kiln_bind(s, group, KILN_THREAD_Y));
  return kiln_unroll(s, step);
}

// --- nests of statements ---

static kiln_symbol loop_of(const kiln_quad_tile *q, const kiln_stmt *s, const char *part,
                           const char *dim) {
  return kiln_product_loop(q->w, s, part, dim);
}

static kiln_status run_whole(const kiln_quad_tile *q, const kiln_stmt *s) {
  kiln_layout sums;
  if (!layout_of_sums(q, KILN_WARPGROUP_LINE, &sums)) return KILN_INTERNAL;
  kiln_instr *combine = kiln_layout_reduction(q->w, &sums, 1, s->combiner);
  const kiln_symbol inner[] = {loop_of(q, s, "", "q"), loop_of(q, s, "", "l")};
  KILN_TRY(kiln_quad_run_nest(q, loop_of(q, s, "init.", "m")));
  return kiln_quad_reduce(q, loop_of(q, s, "", "m"), 2, inner, combine);
}

kiln_status kiln_quad_run(const kiln_quad_tile *q, kiln_row_nest nest, const kiln_stmt *s) {
  if (nest == KILN_NEST_WHOLE) return run_whole(q, s);
  KILN_TRY(kiln_quad_run_nest(q, loop_of(q, s, "init.", "m")));
  return kiln_quad_run_nest(q, loop_of(q, s, "", "m"));
}
