// Tiles of a block: cutting, distribution over threads, producers in shared memory or registers.
#include "template/gpu/block_tile.h"

#include "schedule/index.h"
#include "support/integer.h"

#include <math.h>
#include <string.h>

enum {
  SHORT_OUTER = 4, // of outer loops, as those of colours, which a thread runs over
  SHORT_ROW = 16,  // of a contiguous loop, which is then distributed together with its outer one
  LEAST_THREADS = 128,
  MOST_THREADS = 512,
  MOST_ROWS = 4,    // elements of a thread
  WRITTEN_OUT = 32, // iterations of loops that are unrolled
  LONG_SUM = 64,    // terms that threads may share,
  LEAST_PARTS = 4,  // in so many parts in a block,
  MOST_PARTS = 128,
  PART_TERMS = 8, // and in a grid, of at least so many terms
  WARPS = 16,     // of a multiprocessor, for which there should be work
  ACCESS = 3,     // instructions of a warp: of a load or store with its address,
  BARRIER = 1000  // and of a barrier, for all threads
};
// Rounds of a distribution by rows and columns, relative to one by numbers, which divides.
static const double MOST_ROUNDS = 1.3;

// --- shapes ---

static void push_shape(const kiln_block_shape *one, int *io_n, kiln_block_shape *out) {
  for (int i = 0; i < *io_n; i++)
    if (!memcmp(out[i].size, one->size, sizeof one->size) &&
        !memcmp(out[i].threads, one->threads, sizeof one->threads))
      return;
  if (*io_n < KILN_MOST_BLOCK_SHAPES) out[(*io_n)++] = *one;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// A tile |x| wide and |y| high of the last two loops; what is left of the threads goes to the loops
// outside.
static kiln_block_shape shape_of(int n, const int64_t *extents, int64_t x, int64_t y,
                                 int64_t rows) {
  kiln_block_shape s = {{0}, {x, 1}};
  int64_t left = y * rows;
  for (int d = 0; d < n; d++) s.size[d] = d < n - 2 && extents[d] <= SHORT_OUTER ? extents[d] : 1;
  s.size[n - 1] = least(x, extents[n - 1]);
  for (int d = n - 2; d >= 0 && left > 1; d--) {
    if (s.size[d] == 1) s.size[d] = least(left, extents[d]);
    left /= s.size[d] > 1 && s.size[d] == extents[d] ? s.size[d] : left;
  }
  if (n > 1) s.threads[1] = least(y, kiln_divide_up(s.size[n - 2], rows));
  s.threads[0] = s.size[n - 1];
  return s;
}

// A contiguous loop that is too short for a warp is distributed by numbers, with those outside.
static kiln_block_shape flat_shape(int n, const int64_t *extents, int64_t threads) {
  kiln_block_shape s = {{0}, {1, 1}};
  for (int d = n - 1; d >= 0; d--) {
    s.size[d] = s.threads[0] < threads ? least(threads / s.threads[0], extents[d]) : 1;
    s.threads[0] *= s.size[d];
  }
  return s;
}

int kiln_block_shapes(const kiln_machine *m, int n, const int64_t *extents, kiln_block_shape *out) {
  static const int64_t widths[] = {32, 64, 128, 256};
  const int64_t most = least(MOST_THREADS, m->gpu.max_threads);
  int found = 0;
  if (n == 0) return 0;
  for (int64_t threads = LEAST_THREADS; threads <= most; threads *= 2) {
    const int64_t row = extents[n - 1];
    if (row < SHORT_ROW || n == 1) {
      const kiln_block_shape one = flat_shape(n, extents, threads);
      push_shape(&one, &found, out);
      continue;
    }
    for (size_t i = 0; i < KILN_LEN(widths) && widths[i] <= threads; i++)
      for (int64_t rows = 1; rows <= MOST_ROWS; rows *= 2) {
        if (i > 0 && widths[i] / 2 >= row) continue;
        const int64_t x = least(widths[i], row);
        const kiln_block_shape one = shape_of(n, extents, x, kiln_divide_up(threads, x), rows);
        push_shape(&one, &found, out);
      }
  }
  return found;
}

// --- loops ---

static kiln_symbol name_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->name;
}

static kiln_symbol sums_of(kiln_lowering *w, const kiln_stmt *s) {
  return kiln_lowering_name(w, "sums", name_of(w, s));
}

int kiln_block_loops(kiln_lowering *w, const kiln_stmt *s, kiln_symbol *out) {
  const char *name = kiln_symbol_text(w->cx, name_of(w, s));
  for (int d = 0; d < s->n_space; d++)
    out[d] = s->n_reduce ? kiln_symbol_printf(w->cx, "%s.copy.%d", name, d)
                         : kiln_lowering_loop(w, name, "", s->dims[d].name);
  return s->n_space;
}

kiln_status kiln_block_keep_sums(kiln_lowering *w, const kiln_stmt *s) {
  return s->n_reduce ? kiln_cache_write(&w->s, name_of(w, s), sums_of(w, s), 0, NULL) : KILN_OK;
}

kiln_status kiln_block_cut(kiln_lowering *w, int n, const kiln_symbol *loops,
                           const kiln_block_shape *shape, int *out_n_tiles, kiln_symbol *out_tiles,
                           int *out_n_points, kiln_symbol *out_points) {
  kiln_symbol order[4 * KILN_MAX_RANK];
  int n_tiles = 0, n_points = 0;
  for (int d = 0; d < n; d++) {
    kiln_symbol tile = loops[d], point = loops[d];
    const int64_t size = shape->size[d];
    if (size > 1) {
      tile = kiln_lowering_name(w, "b", loops[d]);
      point = kiln_lowering_name(w, "p", loops[d]);
      KILN_TRY(kiln_split(&w->s, loops[d], size, KILN_TAIL_GUARD, tile, point));
    }
    if (size != 0) out_tiles[n_tiles++] = tile;
    if (size != 1) out_points[n_points++] = point;
  }
  for (int d = 0; d < n_tiles; d++) order[d] = out_tiles[d];
  for (int d = 0; d < n_points; d++) order[n_tiles + d] = out_points[d];
  *out_n_tiles = n_tiles;
  *out_n_points = n_points;
  return n_tiles + n_points > 1 ? kiln_reorder(&w->s, n_tiles + n_points, order) : KILN_OK;
}

kiln_status kiln_block_bind(kiln_block_tile *t, int n, const kiln_symbol *tiles) {
  int64_t extent;
  KILN_TRY(kiln_gpu_fuse(t->w, n, tiles, &t->block, &extent));
  return kiln_bind(&t->w->s, t->block, KILN_BLOCK_X);
}

// --- distribution ---

typedef struct spread {
  int n;
  kiln_symbol loops[2 * KILN_MAX_RANK];
  int64_t extents[2 * KILN_MAX_RANK];
} spread;

// Unrolls those loops of a nest in registers that run more than once.
static kiln_status unroll_all(kiln_lowering *w, int n, const kiln_symbol *loops) {
  for (int d = 0; d < n; d++) {
    const kiln_loop *l = kiln_loops_find(w->s.loops, loops[d]);
    if (l && l->how == KILN_SERIAL && kiln_gpu_extent(w, loops[d]) > 1)
      KILN_TRY(kiln_unroll(&w->s, loops[d]));
  }
  return KILN_OK;
}

// Rows and columns of threads over the last two loops, the others serial inside.
//
// gives: *out_at, the innermost loop that is not unrolled
static kiln_status spread_rows(kiln_block_tile *t, const spread *s, bool is_result,
                               kiln_symbol *out_at) {
  kiln_lowering *w = t->w;
  const int64_t *threads = t->shape.threads;
  kiln_symbol order[2 * KILN_MAX_RANK + 2], column = s->loops[s->n - 1], row = 0, rows = 0,
                                            columns = 0;
  int n = 0;
  if (s->extents[s->n - 1] > threads[0]) {
    columns = kiln_lowering_name(w, "o", column);
    const kiln_symbol lane = kiln_lowering_name(w, "t", column);
    KILN_TRY(kiln_split(&w->s, column, threads[0], KILN_TAIL_GUARD, columns, lane));
    column = lane;
  }
  if (s->n > 1 && threads[1] > 1) {
    row = s->loops[s->n - 2];
    if (s->extents[s->n - 2] > threads[1]) { // a result's thread computes neighbouring rows
      const kiln_symbol outer = kiln_lowering_name(w, is_result ? "t" : "o", row),
                        inner = kiln_lowering_name(w, is_result ? "i" : "t", row);
      const int64_t size =
          is_result ? kiln_divide_up(s->extents[s->n - 2], threads[1]) : threads[1];
      KILN_TRY(kiln_split(&w->s, row, size, KILN_TAIL_GUARD, outer, inner));
      row = is_result ? outer : inner;
      rows = is_result ? inner : outer;
    }
  }
  if (row) order[n++] = row;
  order[n++] = column;
  *out_at = column;
  const int first = n;
  for (int d = 0; d + 1 + (row != 0) < s->n; d++) order[n++] = *out_at = s->loops[d];
  if (columns) order[n++] = *out_at = columns;
  if (rows) order[n++] = rows;
  if (rows && !is_result) *out_at = rows;
  if (n > 1) KILN_TRY(kiln_reorder(&w->s, n, order));
  if (row) KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
  KILN_TRY(kiln_bind(&w->s, column, KILN_THREAD_X));
  if (!is_result) return KILN_OK;
  int64_t elems = 1; // of a thread
  for (int k = first; k < n; k++) elems *= kiln_gpu_extent(w, order[k]);
  if (elems > WRITTEN_OUT) return KILN_OK;
  *out_at = column;
  return unroll_all(w, n - first, order + first);
}

// By numbers: each thread takes every so many-th iteration.
static kiln_status spread_numbers(kiln_block_tile *t, const spread *s, kiln_symbol *out_at) {
  kiln_lowering *w = t->w;
  const int64_t threads = t->shape.threads[0] * t->shape.threads[1];
  int64_t extent;
  kiln_symbol all, round = 0;
  KILN_TRY(kiln_gpu_fuse(w, s->n, s->loops, &all, &extent));
  if (extent > threads) {
    round = kiln_lowering_name(w, "o", all);
    const kiln_symbol thread = kiln_lowering_name(w, "t", all);
    KILN_TRY(kiln_split(&w->s, all, threads, KILN_TAIL_GUARD, round, thread));
    KILN_TRY(kiln_reorder(&w->s, 2, (const kiln_symbol[]){thread, round}));
    all = thread;
  }
  if (kiln_gpu_extent(w, all) > t->shape.threads[0]) {
    const kiln_symbol row = kiln_lowering_name(w, "y", all), lane = kiln_lowering_name(w, "x", all);
    KILN_TRY(kiln_split(&w->s, all, t->shape.threads[0], KILN_TAIL_GUARD, row, lane));
    KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
    all = lane;
  }
  KILN_TRY(kiln_bind(&w->s, all, KILN_THREAD_X));
  *out_at = round ? round : all;
  return KILN_OK;
}

static kiln_status spread_loops(kiln_block_tile *t, int n, const kiln_symbol *loops, bool is_result,
                                kiln_symbol *out_at) {
  const int64_t *threads = t->shape.threads;
  spread s = {0};
  double all = 1, rounds = 1;
  for (int d = 0; d < n; d++) {
    if (!kiln_loops_find(t->w->s.loops, loops[d])) continue;
    s.loops[s.n] = loops[d];
    s.extents[s.n++] = kiln_gpu_extent(t->w, loops[d]);
  }
  if (s.n == 0)
    return KILN_FAIL(t->w->cx->diag, KILN_BAD_INPUT, "lowering: block tile",
                     "a nest must have a loop to distribute");
  for (int d = 0; d < s.n; d++) {
    const int64_t by = d == s.n - 1 ? threads[0] : d == s.n - 2 ? threads[1] : 1;
    all *= (double)s.extents[d];
    rounds *= (double)kiln_divide_up(s.extents[d], by);
  }
  const double least_rounds = ceil(all / (double)(threads[0] * threads[1]));
  return rounds <= MOST_ROUNDS * least_rounds ? spread_rows(t, &s, is_result, out_at)
                                              : spread_numbers(t, &s, out_at);
}

// --- sums ---

// The nests of a reduction into |buffer|: their loops over elements, in the nest that begins and
// the one that adds up, and over terms.
typedef struct sums {
  kiln_symbol buffer;
  int n_space, n_terms;
  kiln_symbol loops[KILN_MAX_RANK + 1], init[KILN_MAX_RANK + 1], terms[KILN_MAX_RANK];
} sums;

static sums sums_of_stmt(kiln_lowering *w, const kiln_stmt *s, kiln_symbol buffer) {
  const char *name = kiln_symbol_text(w->cx, name_of(w, s));
  sums r = {.buffer = buffer, .n_space = s->n_space, .n_terms = s->n_reduce};
  for (int d = 0; d < s->n_space; d++) {
    r.loops[d] = kiln_lowering_loop(w, name, "", s->dims[d].name);
    r.init[d] = kiln_lowering_loop(w, name, "init.", s->dims[d].name);
  }
  for (int d = 0; d < s->n_reduce; d++)
    r.terms[d] = kiln_lowering_loop(w, name, "", s->dims[s->n_space + d].name);
  return r;
}

static int64_t terms_of(const kiln_stmt *s) {
  int64_t terms = 1;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) terms *= kiln_lowering_extent(s, d);
  return terms;
}

static const kiln_buffer *buffer_of(const kiln_lowering *w, kiln_symbol name) {
  for (int i = 0; i < w->s.loops->buffers.n; i++) {
    const kiln_buffer *b = w->s.loops->buffers.data[i];
    if (b && b->name == name) return b;
  }
  return NULL;
}

// A thread's sums in registers: the terms outside of the elements.
static kiln_status place_sums(kiln_lowering *w, const sums *r, kiln_symbol at) {
  kiln_symbol order[2 * KILN_MAX_RANK + 1];
  int64_t terms = 1;
  KILN_TRY(kiln_compute_at(&w->s, r->buffer, at, KILN_SCOPE_LOCAL));
  const int64_t elems = kiln_buffer_elems(buffer_of(w, r->buffer));
  for (int d = 0; d < r->n_terms; d++) {
    order[d] = r->terms[d];
    terms *= kiln_gpu_extent(w, r->terms[d]);
  }
  for (int d = 0; d < r->n_space; d++) order[r->n_terms + d] = r->loops[d];
  if (elems > WRITTEN_OUT) return KILN_OK;
  if (elems > 1) KILN_TRY(kiln_reorder(&w->s, r->n_terms + r->n_space, order));
  KILN_TRY(unroll_all(w, r->n_space, r->loops));
  KILN_TRY(unroll_all(w, r->n_space, r->init));
  return elems * terms <= WRITTEN_OUT ? unroll_all(w, r->n_terms, r->terms) : KILN_OK;
}

static kiln_status place_stmt_sums(kiln_block_tile *t, const kiln_stmt *s, kiln_symbol at) {
  const sums r = sums_of_stmt(t->w, s, sums_of(t->w, s));
  return s->n_reduce ? place_sums(t->w, &r, at) : KILN_OK;
}

// Computes the sums in shared memory, the terms of each in |parts| of neighbouring threads.
static kiln_status place_parts(kiln_block_tile *t, const sums *r, int64_t parts) {
  kiln_lowering *w = t->w;
  kiln_symbol all, part, at, loops[KILN_MAX_RANK + 1];
  int64_t extent;
  KILN_TRY(kiln_gpu_fuse(w, r->n_terms, r->terms, &all, &extent));
  KILN_TRY(kiln_gpu_factor(w, all, parts, r->buffer, "parts", r->n_space, r->loops, &part));
  const char *name = kiln_symbol_text(w->cx, part);
  KILN_TRY(kiln_compute_at(&w->s, r->buffer, t->block, KILN_SCOPE_SHARED));
  KILN_TRY(spread_loops(t, r->n_space, r->init, false, &at));
  for (int d = 0; d < r->n_space; d++) loops[d] = kiln_symbol_printf(w->cx, "%s.%d", name, d);
  KILN_TRY(spread_loops(t, r->n_space, loops, false, &at));
  KILN_TRY(kiln_compute_at(&w->s, part, t->block, KILN_SCOPE_SHARED));
  for (int d = 0; d <= r->n_space; d++) loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", name, d);
  KILN_TRY(spread_loops(t, r->n_space + 1, loops, false, &at));
  return kiln_compute_at(&w->s, kiln_lowering_name(w, "sums", part), at, KILN_SCOPE_LOCAL);
}

static void note(kiln_block_tile *t, const kiln_stmt *s, kiln_symbol at) {
  if (t->n < KILN_MAX_MEMBERS) t->stmts[t->n++] = (kiln_block_stmt){s, at};
}

kiln_status kiln_block_add_result(kiln_block_tile *t, const kiln_stmt *s, int n,
                                  const kiln_symbol *points) {
  kiln_symbol at;
  KILN_TRY(spread_loops(t, n, points, true, &at));
  note(t, s, at);
  return place_stmt_sums(t, s, at);
}

// --- producers ---

static int n_loads(const kiln_block_tile *t, const kiln_stmt *s, int tensor) {
  const kiln_mark mark = kiln_arena_mark(&t->w->cx->scratch);
  const kiln_loads loads = kiln_stmt_loads(t->w->cx, &t->w->cx->scratch, t->w->p, s);
  int n = 0;
  for (int i = 0; i < loads.n; i++) n += tensor < 0 || loads.data[i]->u.tensor == tensor;
  kiln_arena_rewind(&t->w->cx->scratch, mark);
  return n;
}

// Iterations of the loops of a block down to |at|: threads and their rounds.
static double times_of(const kiln_block_tile *t, kiln_symbol at) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_loop *l = kiln_loops_find(t->w->s.loops, at);
  const int depth = l ? kiln_nest_path(t->w->s.loops, l, path) : 0;
  double times = 1;
  for (int i = 0; i < depth; i++) {
    int64_t extent = 1;
    if (path[i]->kind != KILN_LOOP_FOR || path[i]->var == t->block) continue;
    (void)kiln_expr_is_int(path[i]->extent, &extent);
    times *= (double)extent;
  }
  return times;
}

// The loop in which all readers of |s| compute their elements; 0: they do so in several.
static kiln_symbol common_loop(const kiln_block_tile *t, const kiln_stmt *s) {
  kiln_symbol at = 0;
  for (int i = 0; i < t->n; i++) {
    if (!n_loads(t, t->stmts[i].stmt, s->out)) continue;
    if (!t->stmts[i].at || (at && at != t->stmts[i].at)) return 0;
    at = t->stmts[i].at;
  }
  return at;
}

typedef struct placing {
  kiln_block_tile *t;
  const kiln_stmt *s;
  kiln_symbol at;
  kiln_scope scope;
} placing;

static kiln_status place_step(kiln_lowering *w, void *argument) {
  const placing *p = argument;
  return kiln_compute_at(&w->s, name_of(w, p->s), p->at, p->scope);
}

typedef struct snapshot {
  kiln_loops loops;
  int script;
} snapshot;

static snapshot take(const kiln_lowering *w) { return (snapshot){*w->s.loops, w->s.script.n}; }

static void restore(kiln_lowering *w, const snapshot *at) {
  *w->s.loops = at->loops;
  w->s.script.n = at->script;
  if (w->s.script.data) w->s.script.data[at->script] = 0;
}

// The elements of |s|'s buffer at a loop; 0: it cannot be computed there.
static double elems_at(kiln_block_tile *t, const kiln_stmt *s, kiln_symbol at, kiln_scope scope) {
  const snapshot before = take(t->w);
  placing p = {t, s, at, scope};
  double elems = 0;
  if (at && kiln_lowering_try(t->w, place_step, &p) == KILN_OK) {
    const kiln_buffer *b = buffer_of(t->w, name_of(t->w, s));
    if (!kiln_scope_is_argument(b->scope)) elems = (double)kiln_buffer_elems(b);
  }
  restore(t->w, &before);
  return elems;
}

// Instructions of an element with those that it is computed from.
static double instrs_of(const kiln_block_tile *t, const kiln_stmt *s) {
  return (1 + kiln_gpu_instrs_of(t->w->cx, s->body) + ACCESS * n_loads(t, s, -1)) *
         (double)terms_of(s);
}

// Whether elements are computed by the threads that read them, in |at|, rather than once for all.
static bool is_private(kiln_block_tile *t, const kiln_stmt *s, kiln_symbol at) {
  const double own = elems_at(t, s, at, KILN_SCOPE_LOCAL);
  if (own == 0 || own > WRITTEN_OUT) return false;
  const double shared = elems_at(t, s, t->block, KILN_SCOPE_SHARED), times = times_of(t, at);
  if (shared == 0) return true;
  double reads = 0;
  for (int i = 0; i < t->n; i++)
    if (t->stmts[i].at == at)
      reads += ACCESS * n_loads(t, t->stmts[i].stmt, s->out) * (double)terms_of(t->stmts[i].stmt);
  const double threads = (double)(t->shape.threads[0] * t->shape.threads[1]),
               each = instrs_of(t, s);
  return own * times * each <=
         ceil(shared / threads) * threads * (each + ACCESS) + reads * times + BARRIER;
}

static kiln_status place_private(kiln_block_tile *t, const kiln_stmt *s, kiln_symbol at) {
  kiln_symbol loops[KILN_MAX_RANK];
  const int n = kiln_block_loops(t->w, s, loops);
  KILN_TRY(kiln_block_keep_sums(t->w, s));
  KILN_TRY(kiln_compute_at(&t->w->s, name_of(t->w, s), at, KILN_SCOPE_LOCAL));
  note(t, s, at);
  KILN_TRY(unroll_all(t->w, n, loops));
  return place_stmt_sums(t, s, at);
}

// Threads that share a sum's terms: as many as are left where each takes a sum, 1: none.
static int64_t parts_of(kiln_block_tile *t, const kiln_stmt *s) {
  if (s->n_reduce == 0 || terms_of(s) < LONG_SUM) return 1;
  const double elems = elems_at(t, s, t->block, KILN_SCOPE_SHARED),
               threads = (double)(t->shape.threads[0] * t->shape.threads[1]);
  int64_t parts = 1;
  while (elems > 0 && parts < MOST_PARTS && 2 * (double)parts * elems <= threads) parts *= 2;
  return parts < LEAST_PARTS ? 1 : parts;
}

static kiln_status place_shared(kiln_block_tile *t, const kiln_stmt *s) {
  kiln_symbol loops[KILN_MAX_RANK], at;
  const int64_t parts = parts_of(t, s);
  if (parts > 1) {
    const sums r = sums_of_stmt(t->w, s, name_of(t->w, s));
    note(t, s, 0);
    return place_parts(t, &r, parts);
  }
  const int n = kiln_block_loops(t->w, s, loops);
  KILN_TRY(kiln_block_keep_sums(t->w, s));
  KILN_TRY(kiln_compute_at(&t->w->s, name_of(t->w, s), t->block, KILN_SCOPE_SHARED));
  KILN_TRY(spread_loops(t, n, loops, false, &at));
  note(t, s, at);
  return place_stmt_sums(t, s, at);
}

kiln_status kiln_block_add_producer(kiln_block_tile *t, const kiln_stmt *s) {
  const kiln_symbol at = common_loop(t, s);
  return at && is_private(t, s, at) ? place_private(t, s, at) : place_shared(t, s);
}

// --- copies of parameters ---

// Loads of a buffer by the threads of a block.
typedef struct reuse {
  double loads;
  bool is_apart; // neighbouring threads do not read neighbours
  bool is_known;
} reuse;

// What |e| grows by with |v|, away from the borders that a minimum or maximum cuts it at.
static int64_t growth_of(kiln_ctx *cx, const kiln_expr *e, kiln_symbol v) {
  const kiln_terms t = kiln_terms_of(cx, e);
  int64_t growth = 0;
  for (int i = 0; i < t.n; i++) {
    const kiln_expr *atom = t.data[i].atom;
    if (atom->kind == KILN_EXPR_VAR && atom->u.sym == v) growth += t.data[i].coef;
    if (atom->kind != KILN_EXPR_MIN && atom->kind != KILN_EXPR_MAX) continue;
    const int at = kiln_expr_uses(atom->args[0], v) ? 0 : 1;
    growth += t.data[i].coef * growth_of(cx, atom->args[at], v);
  }
  return growth;
}

static int64_t stride_along(kiln_ctx *cx, const kiln_buffer *b, const kiln_access *a,
                            kiln_symbol v) {
  int64_t stride = 0;
  for (int k = 0; k < b->rank; k++)
    if (kiln_expr_uses(a->index[k], v)) stride += growth_of(cx, a->index[k], v) * b->strides[k];
  return stride;
}

static void add_access(kiln_block_tile *t, const kiln_buffer *b, const kiln_access *a, reuse *io) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(t->w->s.loops, a->node, path);
  double times = 1;
  io->is_known &= !a->write && !a->opaque;
  for (int k = 0; k < a->n && io->is_known; k++) io->is_known &= !kiln_expr_has_load(a->index[k]);
  for (int i = 0; i < depth && io->is_known; i++) {
    int64_t extent = 1;
    if (path[i]->kind != KILN_LOOP_FOR || path[i]->var == t->block) continue;
    (void)kiln_expr_is_int(path[i]->extent, &extent);
    times *= (double)extent;
    if (path[i]->how == KILN_THREAD_X)
      io->is_apart |= stride_along(t->w->cx, b, a, path[i]->var) > 2;
  }
  io->loads += times;
}

static reuse reuse_of(kiln_block_tile *t, const kiln_buffer *b) {
  reuse r = {.is_known = true};
  kiln_loop *block = kiln_loops_find(t->w->s.loops, t->block);
  const kiln_accesses all = kiln_accesses_of(t->w->cx, t->w->s.loops, block->body, true, b->id);
  for (int i = 0; i < all.n; i++) add_access(t, b, &all.data[i], &r);
  r.is_known &= all.n > 0;
  return r;
}

typedef struct copying {
  kiln_block_tile *t;
  kiln_symbol from, name;
  int rank;
  reuse r;
  double elems;
  bool is_done;
} copying;

// A copy is read in any order at the speed of shared memory, and filled in the order of memory.
static bool pays(const copying *c) {
  return c->r.loads > c->elems || (c->r.is_apart && c->r.loads == c->elems);
}

static kiln_status copy_step(kiln_lowering *w, void *argument) {
  copying *c = argument;
  kiln_stage_axis axes[KILN_MAX_AXES] = {0};
  kiln_symbol loops[KILN_MAX_AXES], at;
  for (int k = 0; k < c->rank; k++) {
    axes[k].axis = k;
    loops[k] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, c->name), k);
  }
  KILN_TRY(kiln_stage(&w->s, c->from, c->t->block, KILN_SCOPE_SHARED, c->rank, axes, c->name));
  c->elems = (double)kiln_buffer_elems(buffer_of(w, c->name));
  if (!pays(c)) return KILN_OK;
  KILN_TRY(spread_loops(c->t, c->rank, loops, false, &at));
  if (c->r.is_apart && c->rank > 1) KILN_TRY(kiln_storage_align(&w->s, c->name, c->rank - 2, 2, 1));
  c->is_done = true;
  return KILN_OK;
}

kiln_status kiln_block_stage(kiln_block_tile *t, bool all, kiln_text *comments) {
  kiln_lowering *w = t->w;
  const int n = w->s.loops->buffers.n;
  for (int i = 0; i < n; i++) {
    const kiln_buffer *b = w->s.loops->buffers.data[i];
    if (!b || !kiln_scope_is_argument(b->scope) || b->rank == 0) continue;
    const snapshot before = take(w);
    const char *name = kiln_symbol_text(w->cx, b->name), *block = kiln_symbol_text(w->cx, t->block);
    copying c = {.t = t,
                 .from = b->name,
                 .name = kiln_symbol_printf(w->cx, "%s.%s", name, block),
                 .rank = b->rank,
                 .r = reuse_of(t, b)};
    if (!c.r.is_known || (!all && !c.r.is_apart)) continue;
    KILN_TRY(kiln_lowering_try(w, copy_step, &c));
    if (!c.is_done) restore(w, &before);
    else if (comments)
      kiln_text_printf(comments,
                       "# %s: copied at %s, which loads %.0f times from %.0f elements%s\n", name,
                       block, c.r.loads, c.elems, c.r.is_apart ? ", across their rows" : "");
  }
  return KILN_OK;
}

// --- reductions of few results ---

bool kiln_block_is_long(const kiln_lowering *w, const kiln_stmt *s) {
  double elems = 1;
  for (int d = 0; d < s->n_space; d++) elems *= (double)kiln_lowering_extent(s, d);
  return s->n_reduce > 0 && terms_of(s) >= LONG_SUM && !s->guard && !s->init &&
         elems * 4 <= (double)w->m->n_cores * w->m->gpu.warp * WARPS;
}

// Maps the nests |r| to a grid: a block some results, whose terms its threads share.
static kiln_status reduce_in_blocks(kiln_lowering *w, const sums *r, int64_t elems, int64_t terms) {
  const kiln_symbol kept = kiln_lowering_name(w, "sums", r->buffer);
  const char *name = kiln_symbol_text(w->cx, r->buffer);
  kiln_symbol loops[KILN_MAX_RANK + 1], all, at, tile, point;
  int64_t threads = LEAST_THREADS, each = 1, extent;
  sums in = *r;
  while (elems / each > w->m->n_cores && each < 8) each *= 2;
  if (elems / each < 2 * w->m->n_cores && terms >= 4 * PART_TERMS * LEAST_THREADS) threads *= 2;
  kiln_block_tile t = {.w = w, .shape.threads = {threads, 1}};
  in.buffer = kept;
  KILN_TRY(kiln_cache_write(&w->s, r->buffer, kept, 0, NULL));
  for (int d = 0; d < r->n_space; d++) loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", name, d);
  KILN_TRY(kiln_gpu_fuse(w, r->n_space, loops, &all, &extent));
  tile = kiln_lowering_name(w, "b", all);
  point = kiln_lowering_name(w, "p", all);
  KILN_TRY(kiln_split(&w->s, all, each, KILN_TAIL_GUARD, tile, point));
  KILN_TRY(kiln_block_bind(&t, 1, &tile));
  KILN_TRY(spread_loops(&t, 1, &point, true, &at));
  int64_t parts = threads / each;
  while (parts > 2 && parts * 2 > terms) parts /= 2;
  return place_parts(&t, &in, parts);
}

kiln_status kiln_block_reduce(kiln_lowering *w, const kiln_stmt *s) {
  sums r = sums_of_stmt(w, s, name_of(w, s)), cut = {0};
  int64_t elems = 1, terms = terms_of(s), extent, parts = 1;
  kiln_symbol all;
  for (int d = 0; d < s->n_space; d++) elems *= kiln_lowering_extent(s, d);
  KILN_TRY(kiln_gpu_fuse(w, r.n_terms, r.terms, &all, &extent));
  r.n_terms = 1;
  r.terms[0] = all;
  while (elems * parts < w->m->n_cores && terms / parts > 2 * PART_TERMS * LEAST_THREADS)
    parts *= 2;
  if (parts > 1) { // parts of a result in several blocks
    const kiln_symbol name = kiln_lowering_name(w, "grid", r.buffer),
                      term = kiln_lowering_name(w, "o", all),
                      part = kiln_lowering_name(w, "t", all);
    kiln_symbol order[KILN_MAX_RANK + 1] = {part};
    KILN_TRY(kiln_split(&w->s, all, parts, KILN_TAIL_GUARD, term, part));
    for (int d = 0; d < r.n_space; d++) order[1 + d] = r.loops[d];
    KILN_TRY(kiln_reorder(&w->s, r.n_space + 1, order));
    KILN_TRY(kiln_rfactor(&w->s, part, name));
    cut = (sums){.buffer = name, .n_space = r.n_space + 1, .n_terms = 1, .terms = {term}};
    for (int d = 0; d < cut.n_space; d++) {
      cut.loops[d] = d < r.n_space ? r.loops[d] : part;
      cut.init[d] = kiln_symbol_printf(w->cx, "%s.init.%d", kiln_symbol_text(w->cx, name), d);
    }
    KILN_TRY(reduce_in_blocks(w, &cut, elems * parts, kiln_divide_up(terms, parts)));
    for (int d = 0; d <= r.n_space; d++) {
      const kiln_symbol loop = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, name), d);
      if (d < r.n_space) r.loops[d] = loop;
      else r.terms[0] = loop;
    }
    terms = parts;
  }
  return reduce_in_blocks(w, &r, elems, terms);
}

// --- price ---

double kiln_block_price(kiln_lowering *w, kiln_symbol loop) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_loop *l = kiln_loops_find(w->s.loops, loop);
  if (!l || !w->m->device || !kiln_nest_path(w->s.loops, l, path)) return INFINITY;
  kiln_loops alone = *w->s.loops;
  kiln_loop nest = *path[0];
  kiln_tile_cost c = {0};
  nest.next = NULL;
  alone.body = &nest;
  return kiln_gpu_work(w->cx, w->m, &alone, &c) ? c.ns : INFINITY;
}
