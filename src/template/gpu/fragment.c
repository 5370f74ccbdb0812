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
