// Quad reductions: nests over rows of MMA fragments, by the lanes that hold them.
#include "template/gpu/quad_reduce.h"

#include "template/gpu/mma.h"
#include "template/gpu/warpgroup.h"

kiln_status kiln_quad_layout_sums(const kiln_quad_tile *q, kiln_symbol sums, int64_t columns) {
  return q->by_warpgroups ? kiln_warpgroup_layout_sums(q->w, sums, q->n_lead, q->warp)
                          : kiln_fragment_layout_sums(q->w, sums, q->n_lead, q->warp, columns);
}

kiln_status kiln_quad_layout_rows(const kiln_quad_tile *q, kiln_symbol f) {
  return q->by_warpgroups ? kiln_warpgroup_layout_rows(q->w, f, q->n_lead)
                          : kiln_fragment_layout_rows(q->w, f, q->n_lead, q->warp);
}

kiln_status kiln_quad_run_elements(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol columns,
                                   int64_t n) {
  if (q->by_warpgroups) return kiln_warpgroup_run_elements(q->w, q->warp, rows, columns);
  const kiln_mma_shape s = {.m = q->rows, .n = n, .warp_m = q->warp, .warp_n = n, .slice_k = 1};
  kiln_mma m = {.w = q->w, .s = &s};
  return kiln_mma_elements(&m, 0, rows, columns);
}

// The rows of a nest, split: over warps or warp groups; tiles, or the warps of a group; the halves
// of these; and a half's rows.
typedef struct row_loops {
  kiln_symbol warp, tile, half, row;
} row_loops;

static kiln_status cut_rows(const kiln_quad_tile *q, kiln_symbol rows, row_loops *out) {
  out->row = rows;
  KILN_TRY(kiln_gpu_cut(q->w, &out->row, q->warp, "w", "i", &out->warp));
  KILN_TRY(kiln_gpu_cut(q->w, &out->row, KILN_MMA_M, "t", "m", &out->tile));
  return kiln_gpu_cut(q->w, &out->row, 8, "h", "g", &out->half);
}

// Fuses the rows that lanes hold at the same time into one loop, |l|'s row, in front of all in
// |inner|, with |l|'s other loops around it.
static kiln_status gather_rows(const kiln_quad_tile *q, row_loops *l, int n_inner,
                               const kiln_symbol *inner) {
  kiln_schedule *s = &q->w->s;
  kiln_symbol order[8] = {l->warp, l->half, l->tile, l->row};
  const kiln_symbol both = kiln_lowering_name(q->w, "b", l->row);
  if (!q->by_warpgroups) order[1] = l->tile, order[2] = l->half;
  for (int i = 0; i < n_inner; i++) order[4 + i] = inner[i];
  KILN_TRY(kiln_reorder(s, 4 + n_inner, order));
  if (!q->by_warpgroups) return KILN_OK;
  KILN_TRY(kiln_fuse(s, l->tile, l->row, both));
  l->tile = 0;
  l->row = both;
  return KILN_OK;
}

static kiln_status bind_rows(const kiln_quad_tile *q, const row_loops *l) {
  KILN_TRY(kiln_bind(&q->w->s, l->warp, KILN_THREAD_Y));
  if (l->tile) KILN_TRY(kiln_unroll(&q->w->s, l->tile));
  return kiln_unroll(&q->w->s, l->half);
}

kiln_status kiln_quad_run_rows(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol copies) {
  kiln_schedule *s = &q->w->s;
  row_loops l;
  const kiln_symbol lane = kiln_lowering_name(q->w, "lane", rows);
  if (!kiln_loops_find(s->loops, rows)) return KILN_OK;
  KILN_TRY(cut_rows(q, rows, &l));
  KILN_TRY(gather_rows(q, &l, 1, &copies));
  KILN_TRY(kiln_fuse(s, l.row, copies, lane));
  KILN_TRY(kiln_reorder(s, l.tile ? 4 : 3,
                        l.tile ? (const kiln_symbol[]){l.warp, lane, l.tile, l.half}
                               : (const kiln_symbol[]){l.warp, lane, l.half}));
  KILN_TRY(kiln_bind(s, lane, KILN_THREAD_X));
  return bind_rows(q, &l);
}

kiln_status kiln_quad_reduce(const kiln_quad_tile *q, kiln_symbol rows, int n_inner,
                             const kiln_symbol *inner, kiln_instr *instr) {
  row_loops l;
  KILN_TRY(cut_rows(q, rows, &l));
  KILN_TRY(gather_rows(q, &l, n_inner, inner));
  KILN_TRY(kiln_tensorize(&q->w->s, l.row, instr));
  return bind_rows(q, &l);
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

static kiln_status by_copies(const kiln_quad_tile *q, const kiln_stmt *s, const char *part) {
  return kiln_quad_run_rows(q, loop_of(q, s, part, "m"), loop_of(q, s, part, "q"));
}

static kiln_status run_parts(const kiln_quad_tile *q, const kiln_stmt *s) {
  const kiln_symbol eights = loop_of(q, s, "", "h"), pair = loop_of(q, s, "", "e");
  KILN_TRY(by_copies(q, s, "init."));
  KILN_TRY(by_copies(q, s, ""));
  KILN_TRY(kiln_unroll(&q->w->s, eights));
  return kiln_unroll(&q->w->s, pair);
}

static kiln_status run_whole(const kiln_quad_tile *q, const kiln_stmt *s) {
  const char *name =
      kiln_arena_printf(&q->w->cx->scratch, "%s.%s.f32", q->by_warpgroups ? "group" : "quad",
                        s->combiner == KILN_COMBINE_SUM ? "sum" : "max");
  const kiln_symbol inner[] = {loop_of(q, s, "", "q"), loop_of(q, s, "", "l")};
  KILN_TRY(by_copies(q, s, "init."));
  return kiln_quad_reduce(q, loop_of(q, s, "", "m"), 2, inner, kiln_warpgroup_instr(q->w, name));
}

kiln_status kiln_quad_run(const kiln_quad_tile *q, kiln_row_nest nest, const kiln_stmt *s,
                          int64_t columns) {
  switch (nest) {
  case KILN_NEST_ELEMENTS:
    return kiln_quad_run_elements(q, loop_of(q, s, "", "m"), loop_of(q, s, "", "n"), columns);
  case KILN_NEST_PARTS: return run_parts(q, s);
  case KILN_NEST_WHOLE: return run_whole(q, s);
  case KILN_NEST_ROWS: break;
  }
  return by_copies(q, s, "");
}
