// Operands of warp groups' instructions in shared memory.
#include "template/gpu/warpgroup.h"

#include "template/gpu/blocks.h"

enum { GROUP = KILN_WARPGROUP, LINE = KILN_WARPGROUP_LINE };

// An operand (x, y) as (axis / 64, the other axis, axis % 64).
static kiln_status distribute_lines(kiln_lowering *w, const kiln_warpgroup_tile *t) {
  kiln_stage_axis axes[KILN_MAX_RANK + 2];
  const int b = kiln_axes_lead(axes, t->s->n_space - 2);
  axes[b] = kiln_axis_high(b + t->inside, LINE), axes[b + 1] = kiln_axis_whole(b + 1 - t->inside),
  axes[b + 2] = kiln_axis_low(b + t->inside, LINE);
  return kiln_transform_layout(&w->s, t->buffer, b + 3, axes);
}

// --- operands ---

bool kiln_warpgroup_has_lines(const kiln_lowering *w, const kiln_stmt *operand) {
  int64_t strides[KILN_MAX_RANK], first = 0;
  int tensor = 0;
  const int n = operand->n_space;
  if (!kiln_product_reads_from(w->cx, w->p, operand, &tensor, strides, &first)) return false;
  bool are_lines = strides[n - 1] == 1 && strides[n - 2] > 0 && first % LINE == 0;
  for (int d = 0; d + 1 < n; d++) are_lines &= strides[d] % LINE == 0;
  return are_lines;
}

kiln_status kiln_warpgroup_stage(kiln_lowering *w, kiln_warpgroup_tile *t, kiln_symbol at,
                                 int64_t threads) {
  kiln_symbol loops[2];
  if (!t->by_tma) {
    KILN_TRY(kiln_product_stage_words(w, t->s, t->inside, at, threads, GROUP, &t->buffer));
    return distribute_lines(w, t);
  }
  KILN_TRY(kiln_product_stage_whole(w, t->s, at, &t->buffer, loops));
  KILN_TRY(kiln_gpu_cut(w, &loops[t->inside], LINE, "l", "c", &t->lines));
  t->rows = loops[1 - t->inside];
  t->columns = loops[t->inside];
  KILN_TRY(kiln_reorder(&w->s, 3, (const kiln_symbol[]){t->lines, t->rows, t->columns}));
  return distribute_lines(w, t);
}

kiln_status kiln_warpgroup_fill(kiln_lowering *w, const kiln_warpgroup_tile *t, kiln_symbol step,
                                int depth, int ahead) {
  kiln_symbol rows[2]; // loops that copy: in |step|, and in front of it
  int n = 0;
  if (depth > 1) KILN_TRY(kiln_pipeline_ahead(&w->s, t->buffer, step, depth, ahead));
  KILN_TRY(kiln_swizzle(&w->s, t->buffer));
  if (!t->by_tma) return KILN_OK;
  if (depth == 1 || ahead < depth) rows[n++] = t->rows;
  if (depth > 1) rows[n++] = kiln_symbol_printf(w->cx, "%s.b", kiln_symbol_text(w->cx, t->rows));
  const char *half = w->p->tensors.data[t->s->out]->dtype == KILN_F16 ? "f16" : "bf16",
             *name = kiln_arena_printf(&w->cx->scratch, "%s.%" PRId64 "x64.%s",
                                       t->is_im2col ? "im2col" : "tma", kiln_gpu_extent(w, rows[0]),
                                       half);
  kiln_instr *copy = kiln_gpu_instr_named(w, name);
  if (!copy)
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "TMA", "there must be an instruction %s", name);
  for (int i = 0; i < n; i++) KILN_TRY(kiln_tensorize(&w->s, rows[i], copy));
  return KILN_OK;
}
