// Block reductions: few long sums, matrix-vector products, and the like. A block computes some
// elements of the result; several threads add up parts of each in registers, which are combined in
// shared memory. Neighbouring threads read contiguous memory: terms of one sum, or neighbouring
// sums.
#include "template/gpu/grid.h"

#include <math.h>

enum { LANES = 32, LONG_SUM = 128, ROWS = 4, PARTS = 16, WORD = 16 }; // WORD: bytes

static const char *name_of(const kiln_lowering *w, const kiln_stmt *s) {
  return kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
}

// Whether |load| moves by one along a reduction dim.
static bool runs_along(const kiln_lowering *w, const kiln_stmt *s, const kiln_expr *load) {
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    if (kiln_stmt_load_stride(w->cx, w->p, s, load, s->dims[d].name) == 1) return true;
  return false;
}

bool kiln_gpu_is_by_element(const kiln_lowering *w, const kiln_stmt *s) {
  if (s->guard || s->init || s->n_space != w->root->n_space) return false;
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name != w->root->dims[d].name) return false;
  return true;
}

bool kiln_gpu_reduction_of(const kiln_lowering *w, const kiln_stmt *s, kiln_gpu_reduction *out) {
  const kiln_expr *largest = kiln_stmt_largest_load(w->cx, w->p, s);
  if (s->n_reduce == 0 || !largest || !kiln_gpu_is_by_element(w, s)) return false;
  *out = (kiln_gpu_reduction){.s = s, .along = runs_along(w, s, largest), .elems = 1, .terms = 1};
  for (int d = 0; d < s->n_space; d++) out->elems *= kiln_lowering_extent(s, d);
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    out->terms *= kiln_lowering_extent(s, d);
  return true;
}

// A reduction and a map of its results, element by element.
static bool find_sums(const kiln_lowering *w, kiln_gpu_reduction *out) {
  return w->p->stmts.n == 2 && w->root->n_space > 0 && w->root->n_reduce == 0 &&
         kiln_gpu_is_by_element(w, w->root) && kiln_gpu_reduction_of(w, w->p->stmts.data[0], out);
}

// The tile of the result's contiguous dim that a block computes; |f|: the block.
static kiln_status cut_result(kiln_lowering *w, int64_t tile, kiln_symbol *out_block,
                              kiln_symbol *out_element) {
  const int last = w->root->n_space - 1;
  kiln_symbol outer[KILN_MAX_RANK];
  int64_t extent;
  for (int d = 0; d <= last; d++) outer[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  const kiln_symbol whole = outer[last];
  outer[last] = kiln_lowering_name(w, "o", whole);
  *out_element = kiln_lowering_name(w, "i", whole);
  KILN_TRY(kiln_split(&w->s, whole, tile, KILN_TAIL_GUARD, outer[last], *out_element));
  return kiln_gpu_fuse(w, last + 1, outer, out_block, &extent);
}

// Terms in a word of the largest operand, where they are contiguous and fill words; else 1.
static int64_t vector_of(const kiln_lowering *w, const kiln_gpu_reduction *z) {
  const kiln_stmt *s = z->s;
  const kiln_expr *largest = kiln_stmt_largest_load(w->cx, w->p, s);
  const int64_t n = WORD / kiln_dtype_bytes(w->p->tensors.data[largest->u.tensor]->dtype);
  const int last = s->n_space + s->n_reduce - 1;
  const bool fills = z->along && kiln_lowering_extent(s, last) % n == 0 &&
                     kiln_stmt_load_stride(w->cx, w->p, s, largest, s->dims[last].name) == 1;
  return fills ? n : 1;
}

// Splits the sums into |parts|, which are added up in nests of their own.
static kiln_status cut_sums(kiln_lowering *w, const kiln_gpu_reduction *z, int64_t parts,
                            kiln_symbol partial, kiln_symbol kept) {
  const char *name = name_of(w, z->s);
  const int rank = z->s->n_space;
  kiln_symbol loops[KILN_MAX_RANK], all;
  int64_t extent;
  for (int d = 0; d < z->s->n_reduce; d++)
    loops[d] = kiln_lowering_loop(w, name, "", z->s->dims[rank + d].name);
  KILN_TRY(kiln_gpu_fuse(w, z->s->n_reduce, loops, &all, &extent));
  const int64_t vector = vector_of(w, z);
  const kiln_symbol lane = kiln_lowering_name(w, "v", all), whole = all;
  if (vector > 1) all = kiln_lowering_name(w, "w", whole);
  if (vector > 1) KILN_TRY(kiln_split(&w->s, whole, vector, KILN_TAIL_EXACT, all, lane));
  const kiln_symbol term = kiln_lowering_name(w, "o", all), part = kiln_lowering_name(w, "t", all);
  KILN_TRY(kiln_split(&w->s, all, parts, KILN_TAIL_GUARD, term, part));
  kiln_symbol order[KILN_MAX_RANK + 2] = {part};
  for (int d = 0; d < rank; d++) order[1 + d] = kiln_lowering_loop(w, name, "", z->s->dims[d].name);
  order[1 + rank] = term;
  KILN_TRY(kiln_reorder(&w->s, rank + 2, order));
  KILN_TRY(kiln_rfactor(&w->s, part, partial));
  KILN_TRY(kiln_cache_write(&w->s, partial, kept, 0, NULL));
  return vector > 1 ? kiln_vectorize(&w->s, lane) : KILN_OK;
}

static kiln_status lower_block_reduce(kiln_lowering *w, const kiln_tiling *t) {
  kiln_gpu_reduction z;
  kiln_symbol block, element;
  if (!find_sums(w, &z)) return KILN_INTERNAL;
  const int last = w->root->n_space - 1;
  const char *name = name_of(w, z.s);
  const kiln_symbol partial = kiln_symbol_printf(w->cx, "%s.partial", name),
                    kept = kiln_symbol_printf(w->cx, "%s.sums", name),
                    row = kiln_symbol_printf(w->cx, "%s.partial.copy.%d", name, last),
                    part = kiln_symbol_printf(w->cx, "%s.partial.copy.%d", name, last + 1);
  KILN_TRY(cut_sums(w, &z, t->step[0], partial, kept));
  KILN_TRY(cut_result(w, t->tile[0], &block, &element));
  KILN_TRY(kiln_compute_at(&w->s, kiln_symbol_of(w->cx, name), block, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_compute_at(&w->s, partial, block, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_bind(&w->s, row, z.along ? KILN_THREAD_Y : KILN_THREAD_X));
  KILN_TRY(kiln_bind(&w->s, part, z.along ? KILN_THREAD_X : KILN_THREAD_Y));
  KILN_TRY(kiln_compute_at(&w->s, kept, part, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_bind(&w->s, kiln_symbol_printf(w->cx, "%s.partial.%d", name, last), KILN_THREAD_X));
  KILN_TRY(
      kiln_bind(&w->s, kiln_lowering_loop(w, name, "init.", z.s->dims[last].name), KILN_THREAD_X));
  KILN_TRY(kiln_bind(&w->s, element, KILN_THREAD_X));
  return kiln_bind(&w->s, block, KILN_BLOCK_X);
}

bool kiln_gpu_block_reduce_fills(const kiln_lowering *w) {
  kiln_gpu_reduction z;
  return find_sums(w, &z) && z.elems >= (int64_t)w->m->n_cores * (z.along ? ROWS : LANES);
}

// Worth its while where an element a thread leaves most of the machine idle.
static kiln_status propose_block_reduce(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_gpu_reduction z;
  const double few = (double)w->m->n_cores * w->m->gpu.max_resident / 4;
  if (!find_sums(w, &z) || z.terms < LONG_SUM || (double)z.elems > few) return KILN_OK;
  kiln_tile_candidate one = {0};
  one.tiling.tile[0] = z.along ? ROWS : LANES;
  one.tiling.step[0] = z.along ? LANES : PARTS;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_block_reduce = {.name = "block_reduce",
                                                      .was = "sums",
                                                      .has_grids = true,
                                                      .propose = propose_block_reduce,
                                                      .lower = lower_block_reduce,
                                                      .by_loops = true};
