#include "template/cpu/turned.h"

#include "support/integer.h"

// Whether |s| reads through a boundary map: its border is specialized (interior.c), which sees no
// tile loops behind a copy.
static bool reads_borders(const kiln_lowering *w, const kiln_stmt *s) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++)
    for (int d = 0; d < s->n_space; d++)
      if (kiln_load_bends(w->cx, loads.data[i], s->dims[d].name)) return true;
  return false;
}

int kiln_turned_dim(const kiln_lowering *w, const kiln_stmt *s) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(w->p->tensors.data[w->root->out], strides);
  const int last = w->root->n_space - 1;
  if (reads_borders(w, s)) return -1;
  for (int d = 0; d < last && strides[last] != 1; d++)
    if (strides[d] == 1 && kiln_lowering_extent(w->root, d) >= 2 * w->lanes) return d;
  return -1;
}

// A block with all vectors stays in a part of the L2.
int64_t kiln_turned_most(const kiln_lowering *w, int turned) {
  enum { MOST_VECTORS = 8 };
  const int64_t row = 4 * kiln_lowering_extent(w->root, w->root->n_space - 1),
                extent = kiln_lowering_extent(w->root, turned);
  int64_t block = MOST_VECTORS * w->lanes;
  while (block > 2 * w->lanes && block * row > w->m->l2_bytes / 4) block /= 2;
  return block < extent ? block : extent;
}

int64_t kiln_turned_even(const kiln_lowering *w, int turned, int64_t n) {
  const int64_t extent = kiln_lowering_extent(w->root, turned),
                block = kiln_round_up(kiln_divide_up(extent, n), w->lanes);
  return block < extent ? block : extent;
}

// Vectorizes a block along |block_loop|, in whole vectors if possible, inside of |rows|, which are
// strided: squares are transposed in registers.
static kiln_status vectorize_block(kiln_lowering *w, kiln_symbol rows, kiln_symbol block_loop,
                                   int64_t block) {
  const kiln_symbol o = kiln_lowering_name(w, "o", block_loop),
                    in = kiln_lowering_name(w, "i", block_loop);
  int64_t n = 4;
  while (n > 1 && block % (n * w->lanes) != 0) n--;
  if (block <= n * w->lanes) return kiln_vectorize(&w->s, block_loop);
  const kiln_symbol nest[] = {o, rows, in};
  KILN_TRY(kiln_split(&w->s, block_loop, n * w->lanes, KILN_TAIL_SHIFT, o, in));
  KILN_TRY(kiln_reorder(&w->s, 3, nest));
  return kiln_vectorize(&w->s, in);
}

static kiln_symbol copy_loop(kiln_lowering *w, int d) {
  const kiln_symbol y = w->p->tensors.data[w->root->out]->name;
  return kiln_symbol_printf(w->cx, "%s.copy.%d", kiln_symbol_text(w->cx, y), d);
}

kiln_status kiln_turn_result(kiln_lowering *w, int n, const int *dims, int turned, int64_t block,
                             bool is_parallel, kiln_symbol *out_at) {
  const kiln_symbol y = w->p->tensors.data[w->root->out]->name,
                    kept = kiln_symbol_printf(w->cx, "%s.turned", kiln_symbol_text(w->cx, y)),
                    along = copy_loop(w, turned), o = kiln_lowering_name(w, "o", along);
  kiln_symbol loops[KILN_MAX_RANK + 1], first = 0;
  int64_t extents[KILN_MAX_RANK + 1];
  int fused = 0;
  for (int i = 0; i < n; i++) {
    const int64_t extent = kiln_lowering_extent(w->root, dims[i]);
    loops[i] = dims[i] == turned ? o : copy_loop(w, dims[i]);
    extents[i] = dims[i] == turned ? kiln_divide_up(extent, block) : extent;
  }
  loops[n] = copy_loop(w, w->root->n_space - 1);
  loops[n + 1] = kiln_lowering_name(w, "i", along);
  KILN_TRY(kiln_cache_write(&w->s, y, kept, 0, NULL));
  KILN_TRY(kiln_split(&w->s, along, block, KILN_TAIL_SHIFT, o, loops[n + 1]));
  KILN_TRY(kiln_reorder(&w->s, n + 2, loops));
  KILN_TRY(vectorize_block(w, loops[n], loops[n + 1], block));
  if (is_parallel) KILN_TRY(kiln_lowering_parallel(w, n, loops, extents, &first, &fused));
  *out_at = n > fused ? loops[n - 1] : first;
  return kiln_compute_at(&w->s, kept, *out_at, KILN_SCOPE_LOCAL);
}
