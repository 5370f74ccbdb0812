// 1-D sliding windows (depthwise convolution, pooling) that are long (window.h), tiled through
// shared memory: a block computes its input tile with halo there once, from which a thread loads a
// run of neighbours into registers for all windows of its own.
#include "template/gpu/grid.h"
#include "template/form/window.h"

enum {
  LANES = 32, // of neighbouring channels
  WORD = 4,   // bytes of a thread's channels: a row of a warp has no conflicts in shared memory
  FILL = 16,  // bytes of a thread's channels where shared memory is filled
  LONG = 9,   // of a window
  MAX_PIXELS = 16,     // of a thread
  MAX_ROWS = 4,        // of threads: with 8, too few blocks to hide latency
  MAX_PRODUCTS = 1024, // of a thread, unrolled
  MAX_ROUNDS = 8,      // of filling, unrolled
  THREADS = 256        // of a multiprocessor, below which threads are rather made smaller
};

typedef struct window_1d {
  kiln_lowering *w;
  kiln_window of;
  int last, pixel; // dims of the result
  int64_t taps;
} window_1d;

static const char *name_of(const window_1d *n, const kiln_stmt *s) {
  return kiln_symbol_text(n->w->cx, n->w->p->tensors.data[s->out]->name);
}

static kiln_symbol loop_of(window_1d *n, const kiln_stmt *s, const char *part, int d) {
  return kiln_lowering_loop(n->w, name_of(n, s), part, s->dims[d].name);
}

static bool find(kiln_lowering *w, window_1d *out) {
  *out = (window_1d){.w = w};
  if (!kiln_window_is(w->cx, w->p, &out->of) || out->of.n != 1) return false;
  const kiln_stmt *t = out->of.t;
  if (t->n_reduce != 1 || out->of.dims[0].stride != 1) return false;
  out->last = w->root->n_space - 1;
  out->pixel = out->of.dims[0].dim;
  out->taps = kiln_lowering_extent(t, t->n_space);
  return out->pixel + 1 == out->last && out->of.p->n_space == t->n_space && out->taps >= LONG;
}

static int64_t size_of(const window_1d *n) {
  return kiln_dtype_bytes(n->w->p->tensors.data[n->of.p->out]->dtype);
}

// Neighbouring threads along the channels: tile[last] channels in all.
static bool choose_channels(const window_1d *n, kiln_tiling *t) {
  const int64_t width = kiln_lowering_extent(n->w->root, n->last);
  t->vectors = WORD / size_of(n);
  t->tile[n->last] = 0;
  for (int64_t k = LANES / 2; width % t->vectors == 0 && k <= LANES; k++)
    if (width / t->vectors % k == 0 && k * t->vectors * size_of(n) % FILL == 0)
      t->tile[n->last] = k * t->vectors;
  return t->tile[n->last] > 0;
}

// Chooses a thread's pixels, tile[pixel], and a block's, block[pixel], for the smallest share of
// halo while there are enough threads.
static bool choose_pixels(const window_1d *n, kiln_tiling *t) {
  const kiln_stmt *y = n->w->root;
  const int64_t length = kiln_lowering_extent(y, n->pixel), more = n->taps - 1;
  double elems = 1, best = 0;
  for (int d = 0; d <= n->last; d++) elems *= (double)kiln_lowering_extent(y, d);
  for (int64_t pixels = 1; pixels <= MAX_PIXELS; pixels++)
    for (int64_t rows = 1; rows <= MAX_ROWS; rows++) {
      if (length % (pixels * rows) || pixels * t->vectors * n->taps > MAX_PRODUCTS) continue;
      const double threads = elems / (double)(pixels * t->vectors),
                   full = threads / (double)(n->w->m->n_cores * THREADS),
                   cost = ((double)(pixels * rows + more) / (double)(pixels * rows) +
                           0.25 * (double)(pixels + more) / (double)pixels) /
                          (full < 1 ? full : 1);
      if (best > 0 && cost >= best) continue;
      best = cost;
      t->tile[n->pixel] = pixels;
      t->block[n->pixel] = pixels * rows;
    }
  return best > 0 && t->block[n->pixel] > t->tile[n->pixel];
}

// Pixels unrolled, channels vectorized.
static kiln_status write_out(window_1d *n, const kiln_stmt *s, const char *part) {
  KILN_TRY(kiln_unroll(&n->w->s, loop_of(n, s, part, n->pixel)));
  return kiln_vectorize(&n->w->s, loop_of(n, s, part, n->last));
}

static kiln_status lower_sum(window_1d *n) {
  const kiln_stmt *t = n->of.t;
  const kiln_symbol order[] = {loop_of(n, t, "", t->n_space), loop_of(n, t, "", n->pixel),
                               loop_of(n, t, "", n->last)};
  KILN_TRY(kiln_reorder(&n->w->s, 3, order));
  KILN_TRY(kiln_unroll(&n->w->s, order[0]));
  KILN_TRY(write_out(n, t, "init."));
  return write_out(n, t, "");
}

// Computes the input tile of the block at |block|, in words; each thread at |thread| loads its run.
static kiln_status lower_elements(window_1d *n, const kiln_tiling *t, kiln_symbol block,
                                  kiln_symbol thread) {
  kiln_lowering *w = n->w;
  const kiln_stmt *p = n->of.p;
  const kiln_symbol name = w->p->tensors.data[p->out]->name,
                    run = kiln_lowering_name(w, "run", name),
                    row = loop_of(n, p, "", p->n_space - 2),
                    channel = loop_of(n, p, "", p->n_space - 1),
                    word = kiln_lowering_name(w, "w", channel),
                    lane = kiln_lowering_name(w, "v", channel);
  const int64_t lanes = t->tile[n->last] / t->vectors,
                rows = t->block[n->pixel] / t->tile[n->pixel], words = FILL / size_of(n);
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  for (int d = 0; d < p->n_space; d++) axes[d].axis = d;
  KILN_TRY(kiln_compute_at(&w->s, name, block, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_stage(&w->s, name, thread, KILN_SCOPE_LOCAL, p->n_space, axes, run));
  for (int d = p->n_space - 2; d < p->n_space; d++) {
    const kiln_symbol loop = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, run), d);
    KILN_TRY(d + 1 < p->n_space ? kiln_unroll(&w->s, loop) : kiln_vectorize(&w->s, loop));
  }
  KILN_TRY(kiln_split(&w->s, channel, words, KILN_TAIL_EXACT, word, lane));
  KILN_TRY(kiln_gpu_distribute_cyclic(w, 2, (const kiln_symbol[]){row, word}, lanes * rows, lanes));
  const kiln_symbol round = kiln_lowering_name(w, "o", kiln_lowering_name(w, "f", word));
  if (kiln_loops_find(w->s.loops, round) && kiln_gpu_extent(w, round) <= MAX_ROUNDS)
    KILN_TRY(kiln_unroll(&w->s, round));
  return kiln_vectorize(&w->s, lane);
}

// gives: *out_block, *out_thread: the loops over blocks and, inside, the threads along the channels
static kiln_status cut_result(window_1d *n, const kiln_tiling *t, kiln_symbol *out_block,
                              kiln_symbol *out_thread) {
  kiln_lowering *w = n->w;
  kiln_symbol order[KILN_MAX_RANK + 4];
  int64_t extent;
  for (int d = 0; d < n->pixel; d++) order[d] = loop_of(n, w->root, "", d);
  const kiln_symbol pixel = loop_of(n, w->root, "", n->pixel),
                    channel = loop_of(n, w->root, "", n->last),
                    pixels = kiln_lowering_name(w, "b", pixel),
                    channels = kiln_lowering_name(w, "b", channel),
                    row = kiln_lowering_name(w, "t", pixel);
  kiln_symbol *at = order + n->pixel;
  at[0] = kiln_lowering_name(w, "o", pixel);
  at[1] = kiln_lowering_name(w, "o", channel);
  at[2] = row;
  at[3] = *out_thread = kiln_lowering_name(w, "t", channel);
  at[4] = kiln_lowering_name(w, "i", pixel);
  at[5] = kiln_lowering_name(w, "i", channel);
  KILN_TRY(kiln_split(&w->s, pixel, t->block[n->pixel], KILN_TAIL_EXACT, at[0], pixels));
  KILN_TRY(kiln_split(&w->s, pixels, t->tile[n->pixel], KILN_TAIL_EXACT, row, at[4]));
  KILN_TRY(kiln_split(&w->s, channel, t->tile[n->last], KILN_TAIL_EXACT, at[1], channels));
  KILN_TRY(kiln_split(&w->s, channels, t->vectors, KILN_TAIL_EXACT, *out_thread, at[5]));
  KILN_TRY(kiln_reorder(&w->s, n->pixel + 6, order));
  KILN_TRY(kiln_unroll(&w->s, at[4]));
  KILN_TRY(kiln_vectorize(&w->s, at[5]));
  KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
  KILN_TRY(kiln_bind(&w->s, *out_thread, KILN_THREAD_X));
  KILN_TRY(kiln_gpu_fuse(w, n->pixel + 2, order, out_block, &extent));
  return kiln_bind(&w->s, *out_block, KILN_BLOCK_X);
}

static kiln_status lower_sliding_window_1d(kiln_lowering *w, const kiln_tiling *t) {
  window_1d n;
  kiln_symbol block, thread;
  if (!find(w, &n)) return KILN_INTERNAL;
  if (n.of.k) KILN_TRY(kiln_prepack(&w->s, w->p->tensors.data[n.of.k->out]->name));
  KILN_TRY(cut_result(&n, t, &block, &thread));
  for (int i = w->p->stmts.n - 2; w->p->stmts.data[i] != n.of.t; i--) {
    const kiln_stmt *s = w->p->stmts.data[i];
    KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[s->out]->name, thread, KILN_SCOPE_LOCAL));
    KILN_TRY(write_out(&n, s, ""));
  }
  KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[n.of.t->out]->name, thread, KILN_SCOPE_LOCAL));
  KILN_TRY(lower_sum(&n));
  return lower_elements(&n, t, block, thread);
}

static kiln_status propose_sliding_window_1d(kiln_lowering *w, kiln_tile_candidates *out) {
  window_1d n;
  kiln_tile_candidate one = {0};
  if (!find(w, &n) || !choose_channels(&n, &one.tiling) || !choose_pixels(&n, &one.tiling))
    return KILN_OK;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_sliding_window_1d = {.name = "sliding_window_1d",
                                                           .was = "runs",
                                                           .has_grids = true,
                                                           .match = kiln_window_make,
                                                           .propose = propose_sliding_window_1d,
                                                           .lower = lower_sliding_window_1d,
                                                           .by_loops = true};
