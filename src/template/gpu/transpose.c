// Tiled transpose: maps whose result has another contiguous axis than their input. A block reads a
// tile along the input's rows to shared memory, whose rows are padded to an odd number of words
// against bank conflicts, and writes it along the result's rows.
#include "template/gpu/grid.h"

enum {
  WORD = 16,     // bytes that a thread reads at once,
  BANK = 4,      // and writes
  SIDE = 64,     // of a tile,
  AREA = 64 * 64 // and its elements, also where one side is shorter
};

typedef struct transpose {
  kiln_lowering *w;
  int from, to; // the dims along which memory is read and written
} transpose;

static int64_t extent_of(const transpose *t, int d) { return kiln_lowering_extent(t->w->root, d); }

static kiln_dtype dtype_of(const transpose *t) {
  return t->w->p->tensors.data[t->w->root->out]->dtype;
}

static bool find(kiln_lowering *w, transpose *out) {
  const kiln_stmt *s = w->root;
  const kiln_expr *load = kiln_stmt_largest_load(w->cx, w->p, s);
  int64_t strides[KILN_MAX_RANK];
  *out = (transpose){w, -1, s->n_space - 1};
  if (w->p->stmts.n != 1 || !kiln_gpu_is_by_element(w, s) || s->n_reduce || s->n_space < 2 || !load)
    return false;
  kiln_tensor_strides(w->p->tensors.data[s->out], strides);
  const int64_t stride = kiln_stmt_load_stride(w->cx, w->p, s, load, s->dims[out->to].name);
  if (strides[out->to] != 1 || stride == 0 || stride == 1) return false;
  for (int d = 0; d < out->to; d++)
    if (extent_of(out, d) > 1 && kiln_stmt_load_stride(w->cx, w->p, s, load, s->dims[d].name) == 1)
      out->from = d;
  return out->from >= 0;
}

// The most of a side of |extent|, up to |most|, of which there is a whole number; else |most|.
static int64_t side_of(int64_t extent, int64_t most) {
  if (extent <= most) return extent;
  for (int64_t k = most; 2 * k > most; k--)
    if (extent % k == 0 && k % 8 == 0) return k;
  return most;
}

static kiln_symbol copy_loop(const transpose *t, int d) {
  return kiln_symbol_printf(t->w->cx, "y.copy.%d", d);
}

// Distributes the loops of a tile cyclically over the threads of the block.
static kiln_status distribute(transpose *t, kiln_symbol outer, kiln_symbol inner, int64_t vector) {
  kiln_lowering *w = t->w;
  kiln_symbol loops[] = {outer, kiln_lowering_name(w, "w", inner)}, all;
  const kiln_symbol lane = kiln_lowering_name(w, "v", inner);
  int64_t extent;
  KILN_TRY(kiln_split(&w->s, inner, vector, KILN_TAIL_EXACT, loops[1], lane));
  KILN_TRY(kiln_vectorize(&w->s, lane));
  KILN_TRY(kiln_gpu_fuse(w, 2, loops, &all, &extent));
  KILN_TRY(kiln_gpu_distribute_cyclic(w, 1, &all, KILN_GPU_THREADS, KILN_GPU_THREADS));
  const kiln_symbol round = kiln_lowering_name(w, "o", all);
  return kiln_loops_find(w->s.loops, round) ? kiln_unroll(&w->s, round) : KILN_OK;
}

// gives: *out, the loop over the tiles
static kiln_status cut_result(transpose *t, const kiln_tiling *sizes, kiln_symbol *out) {
  kiln_lowering *w = t->w;
  kiln_symbol loops[KILN_MAX_RANK + 2];
  int n = 0;
  int64_t extent;
  for (int d = 0; d <= t->to; d++)
    if (d != t->from && d != t->to) loops[n++] = copy_loop(t, d);
  const int dims[] = {t->from, t->to};
  for (int k = 0; k < 2; k++) {
    const kiln_symbol whole = copy_loop(t, dims[k]);
    loops[n + k] = kiln_lowering_name(w, "o", whole);
    loops[n + 2 + k] = kiln_lowering_name(w, "i", whole);
    KILN_TRY(kiln_split(&w->s, whole, sizes->tile[dims[k]], KILN_TAIL_GUARD, loops[n + k],
                        loops[n + 2 + k]));
  }
  KILN_TRY(kiln_reorder(&w->s, n + 4, loops));
  KILN_TRY(kiln_gpu_fuse(w, n + 2, loops, out, &extent));
  return kiln_bind(&w->s, *out, KILN_BLOCK_X);
}

static int64_t vector_of(const transpose *t, int64_t bytes, int64_t side, int64_t extent) {
  int64_t vector = bytes / kiln_dtype_bytes(dtype_of(t));
  if (vector < 1) vector = 1;
  while (side % vector || extent % vector) vector /= 2;
  return vector;
}

static kiln_status lower_transpose(kiln_lowering *w, const kiln_tiling *sizes) {
  transpose t;
  if (!find(w, &t)) return KILN_INTERNAL;
  const int64_t height = sizes->tile[t.from], width = sizes->tile[t.to];
  const kiln_symbol y = kiln_symbol_of(w->cx, "y"), tile = kiln_symbol_of(w->cx, "y.tile");
  kiln_symbol block, loops[KILN_MAX_RANK];
  int n = 0;
  KILN_TRY(kiln_cache_write(&w->s, y, tile, 0, NULL));
  KILN_TRY(cut_result(&t, sizes, &block));
  KILN_TRY(kiln_compute_at(&w->s, tile, block, KILN_SCOPE_SHARED));
  const int64_t size = kiln_dtype_bytes(dtype_of(&t)), bank = size < BANK ? BANK / size : 1;
  KILN_TRY(
      kiln_storage_align(&w->s, tile, t.from, 2 * bank, bank)); // rows of an odd number of words
  for (int d = 0; d <= t.to; d++)
    if (d != t.from) loops[n++] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  loops[n] = kiln_lowering_loop(w, "y", "", w->root->dims[t.from].name);
  KILN_TRY(kiln_reorder(&w->s, n + 1, loops));
  KILN_TRY(
      distribute(&t, loops[n - 1], loops[n], vector_of(&t, WORD, height, extent_of(&t, t.from))));
  return distribute(&t, kiln_lowering_name(w, "i", copy_loop(&t, t.from)),
                    kiln_lowering_name(w, "i", copy_loop(&t, t.to)),
                    vector_of(&t, BANK, width, extent_of(&t, t.to)));
}

static kiln_status propose_transpose(kiln_lowering *w, kiln_tile_candidates *out) {
  transpose t;
  kiln_tile_candidate one = {0};
  if (!find(w, &t) || extent_of(&t, t.from) * extent_of(&t, t.to) < AREA / 4) return KILN_OK;
  const int64_t width = extent_of(&t, t.to), height = extent_of(&t, t.from);
  int64_t *to = &one.tiling.tile[t.to], *from = &one.tiling.tile[t.from];
  *to = side_of(width, height < SIDE ? AREA / height : SIDE);
  *from = side_of(height, width < SIDE ? AREA / width : SIDE);
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_transpose = {.name = "transpose",
                                                   .was = "turns",
                                                   .has_grids = true,
                                                   .propose = propose_transpose,
                                                   .lower = lower_transpose,
                                                   .by_loops = true};
