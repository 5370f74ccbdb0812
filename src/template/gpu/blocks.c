// Common parts of GEMM templates: the tiles of the result that blocks compute, and the operands
// that they stage in shared memory.
#include "template/gpu/blocks.h"

kiln_symbol kiln_product_loop(kiln_lowering *w, const kiln_stmt *s, const char *part,
                              const char *dim) {
  return kiln_lowering_loop(w, kiln_symbol_text(w->cx, kiln_product_tensor(w, s)), part,
                            kiln_symbol_of(w->cx, dim));
}

kiln_symbol kiln_product_tensor(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->name;
}

bool kiln_product_is_packed(const kiln_lowering *w, const kiln_stmt *operand) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, operand);
  return loads.n == 1 && w->p->tensors.data[loads.data[0]->u.tensor]->role == KILN_CONST;
}

kiln_status kiln_product_pad(kiln_lowering *w, const kiln_product *p, int64_t step) {
  const kiln_stmt *const stmts[] = {p->a, p->b, p->t};
  for (int i = 0; i < (int)KILN_LEN(stmts) && p->k % step; i++)
    KILN_TRY(kiln_pad(&w->s, kiln_product_loop(w, stmts[i], "", "k"), step));
  return KILN_OK;
}

enum { WORD = 16 }; // bytes that a thread copies at once

int64_t kiln_product_group(int64_t rows) {
  static const int64_t sizes[] = {16, 8, 4, 2};
  for (int i = 0; i < (int)KILN_LEN(sizes); i++)
    if (rows % sizes[i] == 0) return sizes[i];
  return 1;
}

// Tiles in groups of rows: blocks that run at the same time read few rows and few columns, which
// stay in L2.
//
// gives: loops[3], the outermost first; *out_n of them
static kiln_status group_rows(kiln_lowering *w, kiln_symbol rows, kiln_symbol columns,
                              kiln_symbol *loops, int *out_n) {
  const int64_t group = kiln_product_group(kiln_gpu_extent(w, rows));
  *out_n = 2;
  loops[0] = rows, loops[1] = columns;
  if (group == 1) return KILN_OK;
  loops[0] = kiln_lowering_name(w, "o", rows);
  loops[2] = kiln_lowering_name(w, "i", rows);
  *out_n = 3;
  KILN_TRY(kiln_split(&w->s, rows, group, KILN_TAIL_EXACT, loops[0], loops[2]));
  return kiln_reorder(&w->s, 3, loops);
}

kiln_status kiln_product_tile(kiln_lowering *w, const char *block, int n_outer,
                              const kiln_symbol *loops, int64_t m, int64_t n,
                              kiln_product_loops *io) {
  kiln_symbol outer[KILN_MAX_RANK + 4];
  int64_t extent;
  int n_tiles = 0;
  for (int d = 0; d < n_outer; d++) outer[d] = loops[d];
  outer[n_outer] = kiln_symbol_printf(w->cx, "%s.m", block);
  outer[n_outer + 1] = kiln_symbol_printf(w->cx, "%s.n", block);
  KILN_TRY(kiln_tile(&w->s, loops[n_outer], loops[n_outer + 1], m, n, KILN_TAIL_SHIFT,
                     outer[n_outer], outer[n_outer + 1], io->y_m, io->y_n));
  KILN_TRY(group_rows(w, outer[n_outer], outer[n_outer + 1], &outer[n_outer], &n_tiles));
  return kiln_gpu_fuse(w, n_outer + n_tiles, outer, &io->block, &extent);
}

kiln_status kiln_product_begin(kiln_lowering *w, const kiln_product *p, kiln_product_loops *out) {
  *out = (kiln_product_loops){.m = kiln_product_loop(w, p->t, "", "m"),
                              .n = kiln_product_loop(w, p->t, "", "n"),
                              .step = kiln_symbol_of(w->cx, "step.k"),
                              .k = kiln_symbol_of(w->cx, "step.ki"),
                              .y_m = kiln_symbol_of(w->cx, "y.mi"),
                              .y_n = kiln_symbol_of(w->cx, "y.ni")};
  KILN_TRY(kiln_product_pack(w, p));
  return kiln_dim_extent(&p->y->dims[p->n_batch + 1]) < p->n
             ? kiln_pad(&w->s, kiln_product_loop(w, p->y, "", "n"), p->n)
             : KILN_OK;
}

static kiln_status cut_result(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n,
                              kiln_product_loops *out) {
  kiln_symbol loops[KILN_MAX_RANK];
  for (int d = 0; d < p->n_batch; d++)
    loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  loops[p->n_batch] = kiln_product_loop(w, p->y, "", "m");
  loops[p->n_batch + 1] = kiln_product_loop(w, p->y, "", "n");
  KILN_TRY(kiln_product_begin(w, p, out));
  return kiln_product_tile(w, "block", p->n_batch, loops, m, n, out);
}

kiln_status kiln_product_blocks(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n,
                                int64_t k, kiln_product_loops *out) {
  KILN_TRY(cut_result(w, p, m, n, out));
  KILN_TRY(kiln_compute_at(&w->s, kiln_product_tensor(w, p->t), out->block, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_split(&w->s, kiln_product_loop(w, p->t, "", "k"), k, KILN_TAIL_EXACT, out->step,
                      out->k));
  return kiln_reorder(&w->s, 2, (const kiln_symbol[]){out->step, out->m});
}

// Whether rows of |result| begin at whole words.
static bool has_word_rows(const kiln_lowering *w, const kiln_stmt *result, int64_t word) {
  int64_t strides[KILN_MAX_RANK];
  bool has = true;
  kiln_tensor_strides(w->p->tensors.data[result->out], strides);
  for (int d = 0; d + 1 < result->n_space; d++) has &= strides[d] % word == 0;
  return has;
}

// Copies a block's tile of |result| to its place: by words where its rows begin at words, else
// neighbours store neighbouring elements.
static kiln_status copy_result(kiln_lowering *w, const kiln_stmt *result, int64_t threads,
                               int64_t width, kiln_symbol rows, kiln_symbol columns) {
  const int64_t word = WORD / kiln_dtype_bytes(w->p->tensors.data[result->out]->dtype);
  if (kiln_gpu_extent(w, columns) % word || !has_word_rows(w, result, word))
    return kiln_gpu_distribute_cyclic(w, 2, (const kiln_symbol[]){rows, columns}, threads, width);
  const kiln_symbol words = kiln_lowering_name(w, "w", columns),
                    lane = kiln_lowering_name(w, "v", columns);
  KILN_TRY(kiln_split(&w->s, columns, word, KILN_TAIL_EXACT, words, lane));
  KILN_TRY(kiln_gpu_distribute_cyclic(w, 2, (const kiln_symbol[]){rows, words}, threads, width));
  return kiln_vectorize(&w->s, lane);
}

kiln_status kiln_product_result(kiln_lowering *w, const kiln_product *p, const kiln_stmt *result,
                                int64_t m, int64_t n, int64_t threads, int64_t width,
                                kiln_symbol *out_block) {
  const kiln_symbol y = kiln_product_tensor(w, result), tile = kiln_lowering_name(w, "tile", y);
  const char *name = kiln_symbol_text(w->cx, y),
             *block =
                 result == p->y ? "block" : kiln_arena_printf(&w->cx->scratch, "%s.block", name);
  const int64_t word = WORD / kiln_dtype_bytes(w->p->tensors.data[result->out]->dtype);
  kiln_symbol loops[KILN_MAX_RANK];
  KILN_TRY(kiln_cache_write(&w->s, y, tile, 0, NULL));
  for (int d = 0; d < p->n_batch + 2; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", name, d);
  kiln_product_loops copy = {.y_m = kiln_symbol_printf(w->cx, "%s.mi", name),
                             .y_n = kiln_symbol_printf(w->cx, "%s.ni", name)};
  KILN_TRY(kiln_product_tile(w, block, p->n_batch, loops, m, n, &copy));
  *out_block = copy.block;
  KILN_TRY(kiln_compute_at(&w->s, tile, copy.block, KILN_SCOPE_SHARED));
  KILN_TRY(copy_result(w, result, threads, width, copy.y_m, copy.y_n));
  return kiln_storage_align(&w->s, tile, p->n_batch, 2 * word, word);
}

kiln_status kiln_product_pack(kiln_lowering *w, const kiln_product *p) {
  if (kiln_product_is_packed(w, p->a)) KILN_TRY(kiln_prepack(&w->s, kiln_product_tensor(w, p->a)));
  return kiln_product_is_packed(w, p->b) ? kiln_prepack(&w->s, kiln_product_tensor(w, p->b))
                                         : KILN_OK;
}

kiln_status kiln_product_sums(kiln_lowering *w, const kiln_product *p, int64_t k, kiln_symbol block,
                              kiln_product_loops *out) {
  *out = (kiln_product_loops){.block = block,
                              .m = kiln_product_loop(w, p->t, "", "m"),
                              .n = kiln_product_loop(w, p->t, "", "n"),
                              .step = kiln_symbol_of(w->cx, "step.k"),
                              .k = kiln_symbol_of(w->cx, "step.ki"),
                              .y_m = kiln_product_loop(w, p->y, "", "m"),
                              .y_n = kiln_product_loop(w, p->y, "", "n")};
  KILN_TRY(kiln_compute_at(&w->s, kiln_product_tensor(w, p->t), block, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_split(&w->s, kiln_product_loop(w, p->t, "", "k"), k, KILN_TAIL_EXACT, out->step,
                      out->k));
  return kiln_reorder(&w->s, 2, (const kiln_symbol[]){out->step, out->m});
}

kiln_status kiln_product_blocks_shared(kiln_lowering *w, const kiln_product *p, int64_t m,
                                       int64_t n, int64_t k, int64_t threads, int64_t width,
                                       kiln_product_loops *out) {
  kiln_symbol block;
  KILN_TRY(kiln_product_pack(w, p));
  KILN_TRY(kiln_product_result(w, p, p->y, m, n, threads, width, &block));
  return kiln_product_sums(w, p, k, block, out);
}

// The loop, 0 or 1, along which the operand's tile can be copied in words of |vector| elements; -1:
// none.
static int word_loop(kiln_lowering *w, const kiln_stmt *operand, bool is_packed,
                     const kiln_symbol *loops, int64_t vector) {
  const int first = operand->n_space - 2;
  for (int d = 1; d >= 0; d--) {
    const bool lies = is_packed ? d == 1 && kiln_dim_extent(&operand->dims[first + d]) % vector == 0
                                : kiln_stmt_reads_words(w->cx, w->p, operand, first + d, vector);
    if (lies && kiln_gpu_extent(w, loops[d]) % vector == 0) return d;
  }
  return -1;
}

// Distributes the copies of an operand's tile over the threads, in whole words where possible:
// neighbours copy contiguous words, or, where a word's elements are apart in the tile, words whose
// first elements are contiguous there.
static kiln_status distribute_copies(kiln_lowering *w, const kiln_stmt *operand, bool is_packed,
                                     int inside, const kiln_symbol *loops, int64_t threads,
                                     int64_t width) {
  const int64_t vector = WORD / kiln_dtype_bytes(w->p->tensors.data[operand->out]->dtype);
  const int at = word_loop(w, operand, is_packed, loops, vector);
  if (at < 0) return kiln_gpu_distribute_cyclic(w, 2, loops, threads, width);
  const kiln_symbol words = kiln_lowering_name(w, "w", loops[at]),
                    lane = kiln_lowering_name(w, "v", loops[at]);
  KILN_TRY(kiln_split(&w->s, loops[at], vector, KILN_TAIL_EXACT, words, lane));
  const bool is_last = at == 1 || at == inside;
  const kiln_symbol other = loops[1 - at],
                    rest[] = {is_last ? other : words, is_last ? words : other, lane};
  KILN_TRY(kiln_reorder(&w->s, 3, rest));
  KILN_TRY(kiln_gpu_distribute_cyclic(w, 2, rest, threads, width));
  return kiln_vectorize(&w->s, lane);
}

kiln_status kiln_product_stage_whole(kiln_lowering *w, const kiln_stmt *operand, kiln_symbol at,
                                     kiln_symbol *out_buffer, kiln_symbol *out_loops) {
  const kiln_symbol buffer = kiln_product_tensor(w, operand);
  const int rank = operand->n_space, first = rank - 2;
  const bool is_computed =
      kiln_loops_find(w->s.loops, kiln_lowering_loop(w, kiln_symbol_text(w->cx, buffer), "",
                                                     operand->dims[first].name)) != NULL;
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  for (int d = 0; d < rank; d++) axes[d].axis = d;
  *out_buffer = buffer;
  if (is_computed) {
    KILN_TRY(kiln_compute_at(&w->s, buffer, at, KILN_SCOPE_SHARED));
    for (int d = 0; d < 2; d++)
      out_loops[d] =
          kiln_lowering_loop(w, kiln_symbol_text(w->cx, buffer), "", operand->dims[first + d].name);
  } else { // a constant, packed
    *out_buffer = kiln_symbol_printf(w->cx, "%s.tile", kiln_symbol_text(w->cx, buffer));
    KILN_TRY(kiln_stage(&w->s, buffer, at, KILN_SCOPE_SHARED, rank, axes, *out_buffer));
    for (int d = 0; d < 2; d++)
      out_loops[d] =
          kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, *out_buffer), first + d);
  }
  return KILN_OK;
}

kiln_status kiln_product_stage_words(kiln_lowering *w, const kiln_stmt *operand, int inside,
                                     kiln_symbol at, int64_t threads, int64_t width,
                                     kiln_symbol *out_buffer) {
  kiln_symbol loops[2];
  KILN_TRY(kiln_product_stage_whole(w, operand, at, out_buffer, loops));
  return distribute_copies(w, operand, *out_buffer != kiln_product_tensor(w, operand), inside,
                           loops, threads, width);
}

kiln_status kiln_product_stage(kiln_lowering *w, const kiln_stmt *operand, bool transpose,
                               int64_t align, kiln_symbol at, int64_t threads, int64_t width,
                               kiln_symbol *out_buffer) {
  const int rank = operand->n_space, first = rank - 2;
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  for (int d = 0; d < rank; d++) axes[d].axis = d;
  KILN_TRY(kiln_product_stage_words(w, operand, 1, at, threads, width, out_buffer));
  if (transpose) {
    axes[first].axis = first + 1;
    axes[first + 1].axis = first;
    KILN_TRY(kiln_transform_layout(&w->s, *out_buffer, rank, axes));
  }
  return align ? kiln_storage_align(&w->s, *out_buffer, first, 2 * align, align) : KILN_OK;
}
