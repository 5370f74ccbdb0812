// Fragments: the operands and sums of a warp's matrix instructions, distributed over its lanes.
#include "template/gpu/fragment.h"

enum { MATRIX = 16 };

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

kiln_status kiln_fragment_layout_sums(kiln_lowering *w, kiln_symbol sums, int n_lead,
                                      int64_t warp_m, int64_t warp_n) {
  kiln_stage_axis axes[KILN_MAX_RANK + 5];
  const int b = kiln_axes_lead(axes, n_lead);
  axes[b] = kiln_axis_high(b, warp_m), axes[b + 1] = kiln_axis_high(b + 1, warp_n);
  axes[b + 2] = kiln_axis_low(b, warp_m), axes[b + 3] = kiln_axis_low(b + 1, warp_n);
  KILN_TRY(kiln_transform_layout(&w->s, sums, b + 4, axes));
  axes[b] = kiln_axis_whole(b), axes[b + 1] = kiln_axis_whole(b + 1);
  axes[b + 2] = kiln_axis_low(b + 2, 8), axes[b + 3] = kiln_axis_high(b + 2, 8);
  axes[b + 4] = kiln_axis_high(b + 3, 8), axes[b + 5] = kiln_axis_low(b + 3, 8);
  KILN_TRY(kiln_transform_layout(&w->s, sums, b + 6, axes));
  axes[b + 2] = kiln_axis_whole(b + 2), axes[b + 3] = kiln_axis_high(b + 5, 2);
  axes[b + 4] = kiln_axis_high(b + 3, 2), axes[b + 5] = kiln_axis_whole(b + 4);
  axes[b + 6] = kiln_axis_low(b + 3, 2), axes[b + 7] = kiln_axis_low(b + 5, 2);
  return kiln_transform_layout(&w->s, sums, b + 8, axes);
}

// Axis |b|, k % 4p, as the axes |at| and the next: registers, and the elements of one.
static void cut_k(kiln_stage_axis *axes, int b, int at, int per) {
  axes[at] = kiln_axis_high(b, per);
  axes[at + 1] = kiln_axis_low(b, per);
}

kiln_status kiln_fragment_layout_left(kiln_lowering *w, kiln_symbol f, int n_lead, int per) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  const int b = kiln_axes_lead(axes, n_lead), half = 4 * per;
  axes[b] = kiln_axis_high(b, KILN_MMA_M), axes[b + 1] = kiln_axis_low(b, KILN_MMA_M);
  axes[b + 2] = kiln_axis_high(b + 1, half), axes[b + 3] = kiln_axis_low(b + 1, half);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 4, axes));
  axes[b] = kiln_axis_whole(b), axes[b + 1] = kiln_axis_high(b + 1, 8),
  axes[b + 2] = kiln_axis_low(b + 1, 8);
  axes[b + 3] = kiln_axis_whole(b + 2);
  cut_k(axes, b + 3, b + 4, per);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 6, axes));
  axes[b] = kiln_axis_whole(b + 2), axes[b + 1] = kiln_axis_whole(b + 4),
  axes[b + 2] = kiln_axis_whole(b);
  axes[b + 3] = kiln_axis_whole(b + 3), axes[b + 4] = kiln_axis_whole(b + 1),
           axes[b + 5] = kiln_axis_whole(b + 5);
  return kiln_transform_layout(&w->s, f, b + 6, axes);
}

kiln_status kiln_fragment_layout_right(kiln_lowering *w, kiln_symbol f, int n_lead, int per) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  const int b = kiln_axes_lead(axes, n_lead), half = 4 * per;
  axes[b] = kiln_axis_high(b, half), axes[b + 1] = kiln_axis_low(b, half);
  axes[b + 2] = kiln_axis_high(b + 1, KILN_MMA_N), axes[b + 3] = kiln_axis_low(b + 1, KILN_MMA_N);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 4, axes));
  axes[b] = kiln_axis_whole(b);
  cut_k(axes, b + 1, b + 1, per);
  axes[b + 3] = kiln_axis_whole(b + 2), axes[b + 4] = kiln_axis_whole(b + 3);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 5, axes));
  axes[b] = kiln_axis_whole(b + 4), axes[b + 1] = kiln_axis_whole(b + 1),
  axes[b + 2] = kiln_axis_whole(b + 3);
  axes[b + 3] = kiln_axis_whole(b), axes[b + 4] = kiln_axis_whole(b + 2);
  return kiln_transform_layout(&w->s, f, b + 5, axes);
}

kiln_status kiln_fragment_layout_transposed(kiln_lowering *w, kiln_symbol f, int n_lead, int per) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  const int b = kiln_axes_lead(axes, n_lead);
  axes[b] = kiln_axis_whole(b + 1), axes[b + 1] = kiln_axis_whole(b);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 2, axes));
  return kiln_fragment_layout_right(w, f, n_lead, per);
}

kiln_status kiln_fragment_layout_rows(kiln_lowering *w, kiln_symbol f, int n_lead, int64_t warp_m) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  const int b = kiln_axes_lead(axes, n_lead);
  axes[b] = kiln_axis_high(b, warp_m), axes[b + 1] = kiln_axis_low(b, warp_m),
  axes[b + 2] = kiln_axis_whole(b + 1);
  KILN_TRY(kiln_transform_layout(&w->s, f, b + 3, axes));
  axes[b] = kiln_axis_whole(b), axes[b + 1] = kiln_axis_low(b + 1, 8),
  axes[b + 2] = kiln_axis_whole(b + 2);
  axes[b + 3] = kiln_axis_high(b + 1, 8);
  return kiln_transform_layout(&w->s, f, b + 4, axes);
}

kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile) {
  kiln_stage_axis axes[KILN_MAX_RANK];
  kiln_symbol loops[2], tile;
  kiln_axes_lead(axes, rank);
  *out = kiln_lowering_name(w, "lanes", buffer);
  KILN_TRY(kiln_stage(&w->s, buffer, at, KILN_SCOPE_LOCAL, rank, axes, *out));
  for (int d = 0; d < 2; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, *out), rank - 2 + d);
  KILN_TRY(kiln_gpu_cut(w, &loops[cut_axis], MATRIX, "o", "i", &tile));
  if (cut_axis == 1)
    KILN_TRY(kiln_reorder(&w->s, 3, (const kiln_symbol[]){tile, loops[0], loops[1]}));
  *out_tile = loops[0];
  return kiln_unroll(&w->s, tile);
}
