// Row reductions: statements that share outer dims, a row a block, or a row a warp where there are
// many. Intermediates of a row lie in shared memory; elements of maps are distributed over the
// threads, sums are computed by all threads of the row and combined, in two steps where these are
// many. Rows in the form of held.h are persistent: their elements stay in registers, words of
// |vector| elements a thread, and memory is read once.
#include "support/integer.h"
#include "template/gpu/grid.h"
#include "template/form/persistent_rows.h"

#include <math.h>

enum {
  SHORT_ROW = 32, // rows of fewer elements are for one thread,
  SHORT_WORD = 4, // but those that are several words of so many;
  WARP_ROW = 512, // up to as many for a warp
  WARP = 32,
  WARPS = 4, // of a block
  LANES = 16,
  WORD = 16,           // bytes
  MAX_WORDS = 8,       // of a row, that a thread holds
  FEW_WORDS = 4,       // as many as it should, where there are enough rows
  WARPS_IN_FLIGHT = 16 // of a multiprocessor, that rows should be enough for
};

typedef struct rows {
  kiln_lowering *w;
  bool shared[KILN_MAX_RANK]; // by dim of the root
  kiln_symbol at;             // the loop over the rows
  int64_t threads;            // of a row
  int64_t vector;             // contiguous elements in a thread's registers; 0: none
  kiln_symbol across; // the dim whose neighbours are the rows of a block; 0: one row a block
  int64_t n_across;   // rows of a block
  bool again;         // maps of a row are recomputed at each use, not kept in registers
} rows;

static const char *name_of(const rows *r, const kiln_stmt *s) {
  return kiln_symbol_text(r->w->cx, r->w->p->tensors.data[s->out]->name);
}

static bool is_shared_dim(const rows *r, const kiln_stmt *s, int d) {
  const int of_root = kiln_stmt_space_dim(r->w->root, s->dims[d].name);
  return of_root >= 0 && r->shared[of_root];
}

static void find_shared(rows *r) {
  const kiln_program *p = r->w->p;
  for (int d = 0; d < r->w->root->n_space; d++) {
    r->shared[d] = true;
    for (int i = 0; i < p->stmts.n; i++)
      r->shared[d] &= kiln_stmt_space_dim(p->stmts.data[i], r->w->root->dims[d].name) >= 0;
  }
}

// Elements that the longest statement visits a row.
static int64_t row_of(const rows *r) {
  int64_t most = 1;
  for (int i = 0; i < r->w->p->stmts.n; i++) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    int64_t elems = 1;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      if (d >= s->n_space || !is_shared_dim(r, s, d)) elems *= kiln_lowering_extent(s, d);
    if (elems > most) most = elems;
  }
  return most;
}

// The loops of |s|'s nest that are not the rows'.
static int own_loops(const rows *r, const kiln_stmt *s, const char *part, kiln_symbol *out) {
  int n = 0;
  for (int d = 0; d < s->n_space; d++)
    if (!is_shared_dim(r, s, d))
      out[n++] = kiln_lowering_loop(r->w, name_of(r, s), part, s->dims[d].name);
  return n;
}

// Whether all threads add up |s|: it has few results a row.
static bool is_shared_sum(const rows *r, const kiln_stmt *s) {
  int64_t elems = 1;
  for (int d = 0; d < s->n_space; d++)
    if (!is_shared_dim(r, s, d)) elems *= kiln_lowering_extent(s, d);
  return s->n_reduce && elems < SHORT_ROW;
}

// Whether |s| computes elements of a row that a thread would keep in registers; its input aside.
static bool is_computed(const rows *r, const kiln_stmt *s) {
  kiln_symbol loops[KILN_MAX_RANK];
  return s != r->w->root && !s->n_reduce && s->body->kind != KILN_EXPR_LOAD &&
         own_loops(r, s, "", loops) > 0;
}

// Splits |loop| into words and their elements.
//
// gives: *io, the loop over the words
static kiln_status cut_words(rows *r, kiln_symbol *io) {
  kiln_lowering *w = r->w;
  const kiln_symbol whole = *io;
  *io = kiln_lowering_name(w, "w", whole);
  return kiln_split(&w->s, whole, r->vector, KILN_TAIL_EXACT, *io, kiln_lowering_name(w, "v", *io));
}

// Unrolls the words of a thread.
static kiln_status write_out_words(rows *r, kiln_symbol words) {
  const kiln_symbol round = kiln_lowering_name(r->w, "o", words);
  if (kiln_loops_find(r->w->s.loops, round)) KILN_TRY(kiln_unroll(&r->w->s, round));
  return kiln_vectorize(&r->w->s, kiln_lowering_name(r->w, "v", words));
}

// Threads of a sum's second step, each of which adds up an equal share of |threads| partial sums.
static int64_t lanes_of(int64_t threads) {
  int64_t lanes = 4;
  while (lanes * lanes < threads) lanes *= 2;
  return lanes;
}

// The sums of |s| in two steps, each into a buffer of its own; out[0..*out_n), the last written
// first.
static kiln_status cut_steps(rows *r, const kiln_stmt *s, kiln_symbol *out, int *out_n) {
  kiln_lowering *w = r->w;
  kiln_symbol loops[KILN_MAX_RANK], all;
  int64_t extent;
  for (int d = 0; d < s->n_reduce; d++)
    loops[d] = kiln_lowering_loop(w, name_of(r, s), "", s->dims[s->n_space + d].name);
  KILN_TRY(kiln_gpu_fuse(w, s->n_reduce, loops, &all, &extent));
  if (r->vector) KILN_TRY(cut_words(r, &all));
  const kiln_symbol t = kiln_symbol_of(w->cx, name_of(r, s));
  for (int d = 0; d < s->n_space; d++)
    loops[d] = kiln_lowering_loop(w, name_of(r, s), "", s->dims[d].name);
  KILN_TRY(kiln_gpu_factor(w, all, r->threads, t, "partial", s->n_space, loops, &out[0]));
  if (r->vector) KILN_TRY(write_out_words(r, all));
  *out_n = 1;
  const kiln_symbol rest =
      kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, out[0]), s->n_space);
  const int64_t lanes = r->vector ? lanes_of(r->threads) : LANES;
  if (kiln_gpu_extent(w, rest) <= (r->vector ? LANES / 2 : 2 * LANES)) return KILN_OK;
  *out_n = 2;
  out[1] = out[0];
  for (int d = 0; d < s->n_space; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, out[1]), d);
  return kiln_gpu_factor(w, rest, lanes, t, "lanes", s->n_space, loops, &out[0]);
}

typedef struct cuts {
  kiln_symbol buffers[2];
  int n;
} cuts;

// The same; the combining statement computes T.whole, of which the sums are a copy.
static kiln_status cut_sum(rows *r, const kiln_stmt *s, cuts *out) {
  const kiln_symbol t = kiln_symbol_of(r->w->cx, name_of(r, s));
  KILN_TRY(cut_steps(r, s, out->buffers, &out->n));
  return kiln_cache_write(&r->w->s, t, kiln_lowering_name(r->w, "whole", t), 0, NULL);
}

static kiln_status bind_row(rows *r, kiln_symbol loop) {
  return kiln_loops_find(r->w->s.loops, loop) ? kiln_bind(&r->w->s, loop, KILN_THREAD_Y) : KILN_OK;
}

// Computes |buffer|, partial sums of |s|, in the rows' blocks: a thread each along the last
// axis.
static kiln_status place_sums(rows *r, const kiln_stmt *s, kiln_symbol buffer) {
  kiln_lowering *w = r->w;
  const char *name = kiln_symbol_text(w->cx, buffer);
  const kiln_symbol loop = kiln_symbol_printf(w->cx, "%s.copy.%d", name, s->n_space);
  const int across = r->across ? kiln_stmt_space_dim(s, r->across) : -1;
  KILN_TRY(kiln_compute_at(&w->s, buffer, r->at, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_bind(&w->s, loop, KILN_THREAD_X));
  if (across >= 0) KILN_TRY(bind_row(r, kiln_symbol_printf(w->cx, "%s.copy.%d", name, across)));
  return kiln_compute_at(&w->s, kiln_lowering_name(w, "sums", buffer), loop, KILN_SCOPE_LOCAL);
}

// Computes the sums of |s|, whose partial sums are combined in a register.
static kiln_status place_whole(rows *r, const kiln_stmt *s) {
  kiln_lowering *w = r->w;
  const char *name = name_of(r, s);
  const kiln_symbol t = kiln_symbol_of(w->cx, name);
  const int across = r->across ? kiln_stmt_space_dim(s, r->across) : -1;
  KILN_TRY(kiln_compute_at(&w->s, t, r->at, KILN_SCOPE_SHARED));
  if (across >= 0) KILN_TRY(bind_row(r, kiln_symbol_printf(w->cx, "%s.copy.%d", name, across)));
  return kiln_compute_at(&w->s, kiln_lowering_name(w, "whole", t),
                         kiln_symbol_printf(w->cx, "%s.copy.%d", name, s->n_space - 1),
                         KILN_SCOPE_LOCAL);
}

static kiln_status lower_statement(rows *r, const kiln_stmt *s) {
  kiln_symbol loops[KILN_MAX_RANK];
  const int n = own_loops(r, s, "", loops);
  if (is_shared_sum(r, s)) return KILN_OK; // see cut_sum
  if (r->across) KILN_TRY(bind_row(r, kiln_lowering_loop(r->w, name_of(r, s), "init.", r->across)));
  if (r->across && s != r->w->root)
    KILN_TRY(bind_row(r, kiln_lowering_loop(r->w, name_of(r, s), "", r->across)));
  if (n == 0) return KILN_OK; // one thread computes one element
  if (r->vector) {
    KILN_TRY(cut_words(r, &loops[0]));
    KILN_TRY(kiln_gpu_distribute_cyclic(r->w, 1, loops, r->threads, r->threads));
    return write_out_words(r, loops[0]);
  }
  KILN_TRY(kiln_gpu_distribute_cyclic(r->w, n, loops, r->threads, r->threads));
  if (!s->n_reduce) return KILN_OK;
  return kiln_gpu_distribute_cyclic(r->w, own_loops(r, s, "init.", loops), loops, r->threads,
                                    r->threads);
}

// Brings the loops of the rows to the front and fuses them, but those of a block's rows.
static kiln_status gather_rows(rows *r) {
  kiln_lowering *w = r->w;
  kiln_symbol loops[KILN_MAX_RANK + 1];
  int n = 0, n_rows = 0;
  int64_t extent;
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < w->root->n_space; d++) {
      if (r->shared[d] != (pass == 0)) continue;
      loops[n++] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
      n_rows += pass == 0;
    }
  if (n > 1) KILN_TRY(kiln_reorder(&w->s, n, loops));
  if (r->across) {
    const kiln_symbol whole = loops[n_rows - 1], row = kiln_lowering_name(w, "r", whole);
    loops[n_rows - 1] = kiln_lowering_name(w, "b", whole);
    KILN_TRY(kiln_split(&w->s, whole, r->n_across, KILN_TAIL_EXACT, loops[n_rows - 1], row));
    KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
  }
  return kiln_gpu_fuse(w, n_rows, loops, &r->at, &extent);
}

// Distributes the elements of |s| along the row over the threads, as their words are.
static kiln_status hold(rows *r, const kiln_stmt *s) {
  kiln_lowering *w = r->w;
  const kiln_symbol buffer = w->p->tensors.data[s->out]->name;
  const int last = s->n_space - 1;
  const int64_t words = kiln_lowering_extent(s, last) / r->vector;
  kiln_stage_axis axes[KILN_MAX_RANK + 2];
  KILN_TRY(kiln_compute_at(&w->s, buffer, r->at, KILN_SCOPE_LOCAL));
  for (int k = 0; k < last; k++) axes[k] = (kiln_stage_axis){.axis = k, .outer = true};
  axes[last] = (kiln_stage_axis){last, r->vector, true, false};
  axes[last + 1] = (kiln_stage_axis){last, r->vector, false, false};
  KILN_TRY(kiln_transform_layout(&w->s, buffer, last + 2, axes));
  if (words <= r->threads) return KILN_OK;
  axes[last] = (kiln_stage_axis){last, r->threads, false, false};
  axes[last + 1] = (kiln_stage_axis){last, r->threads, true, false};
  axes[last + 2] = (kiln_stage_axis){.axis = last + 1, .outer = true};
  return kiln_transform_layout(&w->s, buffer, last + 3, axes);
}

// The same by the threads of a block, whose sums are cut already.
static kiln_status place_all(rows *r, const cuts *c) {
  kiln_symbol loops[KILN_MAX_RANK];
  for (int i = r->w->p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    if (r->again && is_computed(r, s)) continue;
    if (s != r->w->root && r->vector && !s->n_reduce && own_loops(r, s, "", loops))
      KILN_TRY(hold(r, s));
    else if (c[i].n) KILN_TRY(place_whole(r, s));
    else if (s != r->w->root)
      KILN_TRY(
          kiln_compute_at(&r->w->s, r->w->p->tensors.data[s->out]->name, r->at, KILN_SCOPE_SHARED));
    for (int k = 0; k < c[i].n; k++) KILN_TRY(place_sums(r, s, c[i].buffers[k]));
  }
  return KILN_OK;
}

static kiln_status place(rows *r, kiln_symbol at, kiln_scope scope) {
  for (int i = r->w->p->stmts.n - 2; i >= 0; i--) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    KILN_TRY(kiln_compute_at(&r->w->s, r->w->p->tensors.data[s->out]->name, at, scope));
  }
  return KILN_OK;
}

static kiln_symbol last_shared(const rows *r) {
  kiln_symbol last = 0;
  for (int d = 0; d < r->w->root->n_space; d++)
    if (r->shared[d]) last = r->w->root->dims[d].name;
  return last;
}

// Whether there are enough rows for all multiprocessors, a warp each.
static bool suit_warps(const rows *r, int64_t row) {
  double n = 1;
  int64_t last = 0;
  for (int d = 0; d < r->w->root->n_space; d++) {
    if (!r->shared[d]) continue;
    last = kiln_lowering_extent(r->w->root, d);
    n *= (double)last;
  }
  return row <= WARP_ROW && last % WARPS == 0 && n >= 2.0 * WARPS * r->w->m->n_cores;
}

static kiln_status lower_row_reduce(kiln_lowering *w, const kiln_tiling *t) {
  rows r = {.w = w,
            .threads = t->block[0],
            .n_across = t->block[1],
            .vector = t->vectors,
            .again = t->variant == 1};
  find_shared(&r);
  for (int i = 0; i < w->p->stmts.n && r.again; i++)
    if (is_computed(&r, w->p->stmts.data[i]))
      KILN_TRY(kiln_inline(&w->s, w->p->tensors.data[w->p->stmts.data[i]->out]->name));
  if (t->block[1] > 1) r.across = last_shared(&r);
  cuts *c = KILN_NEW_ARRAY(&w->cx->scratch, cuts, w->p->stmts.n);
  for (int i = 0; i < w->p->stmts.n && r.threads > 1; i++)
    if (is_shared_sum(&r, w->p->stmts.data[i])) KILN_TRY(cut_sum(&r, w->p->stmts.data[i], &c[i]));
  KILN_TRY(gather_rows(&r));
  if (r.threads == 1) { // a row a thread
    KILN_TRY(kiln_gpu_map_grid(w, 1, &r.at, KILN_GPU_THREADS, &r.at));
    return place(&r, r.at, KILN_SCOPE_LOCAL);
  }
  KILN_TRY(kiln_bind(&w->s, r.at, KILN_BLOCK_X));
  KILN_TRY(place_all(&r, c));
  for (int i = 0; i < w->p->stmts.n; i++)
    if (!r.again || !is_computed(&r, w->p->stmts.data[i]))
      KILN_TRY(lower_statement(&r, w->p->stmts.data[i]));
  return KILN_OK;
}

// Elements of |row| that are one word of the smallest of the numbers that are read and written.
static int64_t vector_of(const rows *r, int64_t row) {
  int64_t vector = 4;
  for (int i = 0; i < r->w->p->tensors.n; i++) {
    const kiln_tensor *t = r->w->p->tensors.data[i];
    if (t->role != KILN_TEMP && kiln_dtype_bytes(t->dtype) == 2) vector = WORD / 2;
  }
  while (row % vector) vector /= 2;
  return vector;
}

// Threads of a row: the fewest words each where rows are few, else some words, with all threads of
// a warp at work if possible.
static int64_t threads_of(const rows *r, int64_t words, double n_rows) {
  const int64_t most = r->w->m->gpu.max_threads;
  const double enough = (double)r->w->m->n_cores * r->w->m->gpu.warp * WARPS_IN_FLIGHT;
  const int64_t least = kiln_divide_up(words, FEW_WORDS);
  double best = 0;
  int64_t threads = 0;
  if (n_rows * (double)least < enough || least > WARP) {
    int64_t rounds = n_rows * (double)least < enough ? 1 : FEW_WORDS;
    while (rounds < FEW_WORDS && kiln_divide_up(words, rounds) > most) rounds++;
    while (words % rounds) rounds--;
    while (rounds < MAX_WORDS && kiln_divide_up(words, rounds) > most) rounds++;
    threads = kiln_divide_up(words, rounds);
    return threads <= most ? threads : 0;
  }
  for (int64_t k = 2; k <= WARP; k *= 2) {
    const int64_t rounds = kiln_divide_up(words, k);
    const double busy = (double)words / (double)(k * rounds) - 0.01 * fabs((double)rounds - 2);
    if (rounds > FEW_WORDS || busy <= best) continue;
    best = busy;
    threads = k;
  }
  return threads;
}

// Rows of a block: neighbours along the last of their dims, whose number divides its extent.
static int64_t across_of(const rows *r, int64_t threads) {
  int64_t last = 1, most = KILN_GPU_THREADS / threads, across = 1;
  for (int d = 0; d < r->w->root->n_space; d++)
    if (r->shared[d]) last = kiln_lowering_extent(r->w->root, d);
  for (int64_t k = 2; k <= most; k++)
    if (last % k == 0) across = k;
  return across;
}

// Whether a row in registers leaves none for a second block on a multiprocessor.
static bool fills_registers(const rows *r, int64_t row) {
  kiln_symbol loops[KILN_MAX_RANK];
  int64_t bytes = 0;
  bool any = false;
  for (int i = 0; i < r->w->p->stmts.n; i++) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    if (s == r->w->root || s->n_reduce || !own_loops(r, s, "", loops)) continue;
    bytes += row * kiln_dtype_bytes(r->w->p->tensors.data[s->out]->dtype);
    any |= is_computed(r, s);
  }
  return any && 2 * bytes > (int64_t)sizeof(float) * r->w->m->gpu.registers;
}

// Rows in registers.
static void propose_held(const rows *r, kiln_tile_candidates *out) {
  const int64_t row = kiln_persistent_row_length(r->w->p);
  kiln_tile_candidate one = {0};
  double n_rows = 1;
  one.tiling.vectors = row ? vector_of(r, row) : 1;
  if (row < SHORT_ROW && (one.tiling.vectors < SHORT_WORD || row == one.tiling.vectors)) return;
  for (int d = 0; d < r->w->root->n_space; d++)
    if (r->shared[d]) n_rows *= (double)kiln_lowering_extent(r->w->root, d);
  one.tiling.block[0] = threads_of(r, row / one.tiling.vectors, n_rows);
  if (!one.tiling.block[0]) return;
  if (fills_registers(r, row)) {
    const int64_t words = row / one.tiling.vectors;
    one.tiling.variant = 1;
    if (words % MAX_WORDS == 0) one.tiling.block[0] = words / MAX_WORDS;
  }
  one.tiling.block[1] = across_of(r, one.tiling.block[0]);
  kiln_lowering_price(r->w, &one.cost);
  KILN_VEC_PUSH(r->w->proposed, out, one);
}

static kiln_status propose_row_reduce(kiln_lowering *w, kiln_tile_candidates *out) {
  rows r = {.w = w};
  bool any = false;
  find_shared(&r);
  for (int d = 0; d < w->root->n_space; d++) any |= r.shared[d];
  if (!any || w->root->n_reduce) return KILN_OK;
  const int64_t row = row_of(&r);
  kiln_tile_candidate one = {0};
  propose_held(&r, out);
  kiln_lowering_price(w, &one.cost);
  if (row >= SHORT_ROW && suit_warps(&r, row)) {
    one.tiling.block[0] = WARP;
    one.tiling.block[1] = WARPS;
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  one.tiling.block[0] = one.tiling.block[1] = 1;
  if (row >= SHORT_ROW)
    for (one.tiling.block[0] = SHORT_ROW;
         one.tiling.block[0] < row && one.tiling.block[0] < KILN_GPU_THREADS;)
      one.tiling.block[0] *= 2;
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_row_reduce = {.name = "row_reduce",
                                                    .was = "rows",
                                                    .has_grids = true,
                                                    .match = kiln_persistent_rows_make,
                                                    .propose = propose_row_reduce,
                                                    .lower = lower_row_reduce,
                                                    .by_loops = true};
