// Two-stage Welford reductions (moment.h), in two nests. In the first, blocks compute partial
// moments, each thread of some terms of a word of channels, in registers. In the second, each block
// combines the partial moments of its channels, and computes the result for some of its rows.
#include "template/gpu/grid.h"
#include "template/form/moment.h"

enum { CHANNELS = 32, FEW_CHANNELS = 8, WORD = 16, ROUNDS = 4, UNROLLED = 32 };

typedef struct welford {
  kiln_lowering *w;
  kiln_moment of;
  kiln_symbol at; // the loop over blocks of the nest that is being lowered
} welford;

static const char *name_of(const welford *n, const kiln_stmt *s) {
  return kiln_symbol_text(n->w->cx, n->w->p->tensors.data[s->out]->name);
}

static kiln_symbol tensor_of(const welford *n, const kiln_stmt *s) {
  return n->w->p->tensors.data[s->out]->name;
}

static kiln_symbol loop_of(const welford *n, const kiln_stmt *s, const char *part, int d) {
  return kiln_lowering_loop(n->w, name_of(n, s), part, s->dims[d].name);
}

static bool find(kiln_lowering *w, welford *out) {
  *out = (welford){.w = w};
  return kiln_moment_is(w->cx, w->p, &out->of);
}

// --- partial sums of blocks ---

// A thread's elements: its input as words, its sums with their reduction outside.
static kiln_status write_out(welford *n, const kiln_stmt *s) {
  kiln_lowering *w = n->w;
  const int last = s->n_space - 1;
  if (!s->n_reduce) {
    KILN_TRY(kiln_unroll(&w->s, loop_of(n, s, "", last - 1)));
    return kiln_vectorize(&w->s, loop_of(n, s, "", last));
  }
  const kiln_symbol order[] = {loop_of(n, s, "", s->n_space), loop_of(n, s, "", last)};
  KILN_TRY(kiln_reorder(&w->s, 2, order));
  KILN_TRY(kiln_unroll(&w->s, order[0]));
  KILN_TRY(kiln_vectorize(&w->s, order[1]));
  return kiln_vectorize(&w->s, loop_of(n, s, "init.", last));
}

// The partial result of each thread of a block: a row and a word of channels.
static kiln_status lower_pointwise(welford *n) {
  kiln_lowering *w = n->w;
  const kiln_stmt *s = n->of.w;
  const int last = s->n_space - 1;
  const kiln_symbol which = loop_of(n, s, "", last - 1), channel = loop_of(n, s, "", last),
                    row = loop_of(n, s, "", last - 2), word = kiln_lowering_name(w, "w", channel),
                    lane = kiln_lowering_name(w, "v", channel);
  KILN_TRY(kiln_compute_at(&w->s, tensor_of(n, s), n->at, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_split(&w->s, channel, n->of.word, KILN_TAIL_EXACT, word, lane));
  KILN_TRY(kiln_reorder(&w->s, 4, (const kiln_symbol[]){row, word, which, lane}));
  KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
  KILN_TRY(kiln_bind(&w->s, word, KILN_THREAD_X));
  KILN_TRY(kiln_unroll(&w->s, which));
  KILN_TRY(kiln_vectorize(&w->s, lane));
  for (int i = s->id - 1; i >= 0; i--) {
    const kiln_stmt *from = w->p->stmts.data[i];
    KILN_TRY(kiln_compute_at(&w->s, tensor_of(n, from), word, KILN_SCOPE_LOCAL));
    KILN_TRY(write_out(n, from));
  }
  return KILN_OK;
}

static kiln_status lower_blocks(welford *n) {
  kiln_lowering *w = n->w;
  const kiln_stmt *s = n->of.p;
  const int last = s->n_space - 1;
  const kiln_symbol channel = loop_of(n, s, "", last), which = loop_of(n, s, "", last - 1);
  kiln_symbol loops[KILN_MAX_RANK + 1], of_block = kiln_lowering_name(w, "i", channel);
  int64_t extent;
  for (int d = 0; d < last - 1; d++) loops[d] = loop_of(n, s, "", d);
  loops[last - 1] = kiln_lowering_name(w, "o", channel);
  loops[last] = of_block;
  loops[last + 1] = which;
  KILN_TRY(kiln_split(&w->s, channel, n->of.width, KILN_TAIL_EXACT, loops[last - 1], of_block));
  KILN_TRY(kiln_reorder(&w->s, last + 2, loops));
  KILN_TRY(kiln_gpu_fuse(w, last, loops, &n->at, &extent));
  KILN_TRY(kiln_bind(&w->s, n->at, KILN_BLOCK_X));
  // As many threads as there are for the rows.
  const int64_t words = n->of.width / n->of.word;
  if (kiln_gpu_extent(w, of_block) > words) {
    const kiln_symbol y = kiln_lowering_name(w, "y", of_block),
                      x = kiln_lowering_name(w, "x", of_block);
    KILN_TRY(kiln_split(&w->s, of_block, words, KILN_TAIL_EXACT, y, x));
    KILN_TRY(kiln_bind(&w->s, y, KILN_THREAD_Y));
    of_block = x;
  }
  KILN_TRY(kiln_bind(&w->s, of_block, KILN_THREAD_X));
  KILN_TRY(kiln_unroll(&w->s, which));
  for (int i = s->id - 1; i > n->of.w->id; i--) {
    const kiln_stmt *from = w->p->stmts.data[i];
    KILN_TRY(kiln_compute_at(&w->s, tensor_of(n, from), of_block, KILN_SCOPE_LOCAL));
    KILN_TRY(kiln_unroll(&w->s, loop_of(n, from, "", from->n_space)));
  }
  return lower_pointwise(n);
}

// --- the result ---

static bool is_of_sums(const welford *n, kiln_symbol dim) {
  const kiln_stmt *s = n->of.w;
  for (int d = 0; d < n->of.n_dims; d++)
    if (s->dims[d + 1 < n->of.n_dims ? d : s->n_space - 1].name == dim) return true;
  return false;
}

// Cuts the sum |s| into those of |threads|; out: their buffer.
static kiln_status cut_sum(welford *n, const kiln_stmt *s, int64_t threads, kiln_symbol *out) {
  kiln_symbol loops[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) loops[d] = loop_of(n, s, "", d);
  KILN_TRY(kiln_gpu_factor(n->w, loop_of(n, s, "", s->n_space), threads, tensor_of(n, s), "partial",
                           s->n_space, loops, out));
  return kiln_cache_write(&n->w->s, tensor_of(n, s),
                          kiln_lowering_name(n->w, "whole", tensor_of(n, s)), 0, NULL);
}

static kiln_status place_sum(welford *n, const kiln_stmt *s, kiln_symbol partial) {
  kiln_lowering *w = n->w;
  const char *name = kiln_symbol_text(w->cx, partial);
  const int last = s->n_space - 1;
  const kiln_symbol channel = kiln_symbol_printf(w->cx, "%s.copy.%d", name, last),
                    thread = kiln_symbol_printf(w->cx, "%s.copy.%d", name, last + 1);
  KILN_TRY(kiln_compute_at(&w->s, tensor_of(n, s), n->at, KILN_SCOPE_SHARED));
  const kiln_symbol copy = kiln_symbol_printf(w->cx, "%s.copy.%d", name_of(n, s), last);
  KILN_TRY(kiln_bind(&w->s, copy, KILN_THREAD_X));
  KILN_TRY(kiln_compute_at(&w->s, kiln_lowering_name(w, "whole", tensor_of(n, s)), copy,
                           KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_compute_at(&w->s, partial, n->at, KILN_SCOPE_SHARED));
  kiln_stage_axis axes[KILN_MAX_RANK + 1] = {0}; // contiguous along channels
  for (int d = 0; d <= last + 1; d++) axes[d].axis = d < last ? d : 2 * last + 1 - d;
  KILN_TRY(kiln_transform_layout(&w->s, partial, last + 2, axes));
  const kiln_symbol round = kiln_lowering_name(w, "o", loop_of(n, s, "", s->n_space));
  if (kiln_loops_find(w->s.loops, round) && kiln_gpu_extent(w, round) <= UNROLLED)
    KILN_TRY(kiln_unroll(&w->s, round));
  KILN_TRY(kiln_reorder(&w->s, 2, (const kiln_symbol[]){thread, channel}));
  KILN_TRY(kiln_bind(&w->s, thread, KILN_THREAD_Y));
  KILN_TRY(kiln_bind(&w->s, channel, KILN_THREAD_X));
  return kiln_compute_at(&w->s, kiln_lowering_name(w, "sums", partial), channel, KILN_SCOPE_LOCAL);
}

// Cuts the result into blocks of |rows| rows and |channels|, and these into words, distributed over
// the threads.
static kiln_status cut_result(welford *n, int64_t channels, int64_t rows, int64_t word) {
  kiln_lowering *w = n->w;
  const kiln_stmt *y = w->root;
  const int last = y->n_space - 1;
  kiln_symbol order[KILN_MAX_RANK + 3], inner[3], row = 0, channel = loop_of(n, y, "", last);
  int n_outer = 0, n_rows = 0, n_inner = 0;
  int64_t extent;
  for (int d = 0; d < last; d++)
    if (is_of_sums(n, y->dims[d].name)) order[n_outer++] = loop_of(n, y, "", d);
  for (int d = 0; d < last; d++)
    if (!is_of_sums(n, y->dims[d].name)) order[n_outer + n_rows++] = loop_of(n, y, "", d);
  order[n_outer + n_rows] = channel;
  KILN_TRY(kiln_reorder(&w->s, n_outer + n_rows + 1, order));
  if (n_rows) {
    KILN_TRY(kiln_gpu_fuse(w, n_rows, order + n_outer, &row, &extent));
    order[n_outer++] = kiln_lowering_name(w, "o", row);
    inner[n_inner++] = kiln_lowering_name(w, "i", row);
    KILN_TRY(kiln_split(&w->s, row, rows, KILN_TAIL_GUARD, order[n_outer - 1], inner[0]));
  }
  order[n_outer++] = kiln_lowering_name(w, "o", channel);
  inner[n_inner++] = kiln_lowering_name(w, "i", channel);
  KILN_TRY(kiln_split(&w->s, channel, channels, KILN_TAIL_EXACT, order[n_outer - 1],
                      inner[n_inner - 1]));
  if (word > 1) {
    const kiln_symbol whole = inner[n_inner - 1];
    inner[n_inner - 1] = kiln_lowering_name(w, "w", whole);
    inner[n_inner] = kiln_lowering_name(w, "v", whole);
    KILN_TRY(kiln_split(&w->s, whole, word, KILN_TAIL_EXACT, inner[n_inner - 1], inner[n_inner]));
  }
  for (int k = 0; k < n_inner; k++) order[n_outer + k] = inner[k];
  KILN_TRY(kiln_reorder(&w->s, n_outer + n_inner, order));
  KILN_TRY(kiln_gpu_fuse(w, n_outer, order, &n->at, &extent));
  KILN_TRY(kiln_bind(&w->s, n->at, KILN_BLOCK_X));
  KILN_TRY(kiln_gpu_distribute_cyclic(w, n_inner, inner, KILN_GPU_THREADS, channels));
  kiln_symbol round = inner[0];
  for (int k = 1; k < n_inner; k++) round = kiln_lowering_name(w, "f", inner[k]);
  round = kiln_lowering_name(w, "o", round);
  if (kiln_loops_find(w->s.loops, round)) KILN_TRY(kiln_unroll(&w->s, round));
  return word > 1 ? kiln_vectorize(&w->s, inner[n_inner]) : KILN_OK;
}

static kiln_status lower_result(welford *n, const kiln_tiling *t) {
  kiln_lowering *w = n->w;
  const kiln_program *p = w->p;
  kiln_symbol *partial = KILN_NEW_ARRAY(&w->cx->scratch, kiln_symbol, p->stmts.n);
  for (int i = n->of.p->id + 1; i < p->stmts.n; i++)
    if (p->stmts.data[i]->n_reduce)
      KILN_TRY(cut_sum(n, p->stmts.data[i], KILN_GPU_THREADS / t->tile[1], &partial[i]));
  KILN_TRY(cut_result(n, t->tile[1], t->tile[0], t->vectors));
  for (int i = p->stmts.n - 2; i > n->of.p->id; i--) {
    const kiln_stmt *s = p->stmts.data[i];
    if (s->n_reduce) {
      KILN_TRY(place_sum(n, s, partial[i]));
    } else {
      KILN_TRY(kiln_compute_at(&w->s, tensor_of(n, s), n->at, KILN_SCOPE_SHARED));
      KILN_TRY(kiln_bind(&w->s, loop_of(n, s, "", s->n_space - 1), KILN_THREAD_X));
    }
  }
  return KILN_OK;
}

static kiln_status lower_welford(kiln_lowering *w, const kiln_tiling *t) {
  welford n;
  if (!find(w, &n)) return KILN_INTERNAL;
  KILN_TRY(lower_result(&n, t));
  return lower_blocks(&n);
}

// Elements of the result that are a word of the narrowest number that it reads or writes.
static int64_t word_of(const welford *n) {
  int64_t word = 4;
  for (int i = 0; i < n->w->p->tensors.n; i++) {
    const kiln_tensor *t = n->w->p->tensors.data[i];
    if (t->role != KILN_TEMP && kiln_dtype_bytes(t->dtype) == 2) word = WORD / 2;
  }
  return word;
}

static kiln_status propose_welford(kiln_lowering *w, kiln_tile_candidates *out) {
  welford n;
  kiln_tile_candidate one = {0};
  if (!find(w, &n)) return KILN_OK;
  const int64_t channels = kiln_lowering_extent(w->root, w->root->n_space - 1);
  const bool has_rows = w->root->n_space > n.of.n_dims;
  kiln_tiling *t = &one.tiling;
  t->vectors = has_rows ? word_of(&n) : 1;
  while (channels % t->vectors) t->vectors /= 2;
  t->tile[1] = has_rows ? CHANNELS : FEW_CHANNELS;
  while (channels % t->tile[1]) t->tile[1] /= 2;
  if (t->vectors > t->tile[1]) t->vectors = t->tile[1];
  // Rows of a block: so that there are enough blocks, and a thread has some words.
  double rows = 1, images = (double)(channels / t->tile[1]);
  for (int d = 0; d + 1 < w->root->n_space; d++)
    *(is_of_sums(&n, w->root->dims[d].name) ? &images : &rows) *=
        (double)kiln_lowering_extent(w->root, d);
  t->tile[0] = KILN_GPU_THREADS * t->vectors / t->tile[1];
  for (int k = 1; k < ROUNDS && images * rows / (double)(2 * t->tile[0]) >= w->m->n_cores; k *= 2)
    t->tile[0] *= 2;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_welford = {.name = "welford",
                                                 .was = "moments",
                                                 .has_grids = true,
                                                 .kinds = 1u << KILN_GROUP_ROWS,
                                                 .match = kiln_moment_make,
                                                 .propose = propose_welford,
                                                 .lower = lower_welford,
                                                 .by_loops = true};
