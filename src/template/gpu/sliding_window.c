// Pooling and depthwise convolutions (window.h) in registers: a thread computes some
// neighbouring elements of the result along the last window dim, and as many side by side in
// memory as fit into a word. It reads all that these take before it adds up, or, where that is
// too much for its registers, a step of the first reduction dim at a time.
#include "template/gpu/grid.h"
#include "template/form/window.h"

enum {
  THREADS = 128,      // of a block
  WORD = 8,           // bytes: of more, too few threads would fit into a multiprocessor's registers
  BUDGET = 72,        // registers of a thread, for loaded elements and sums
  MAX_PIXELS = 8,     // of a thread
  MAX_ROWS = 8,       // of the result, that threads of a block share
  MAX_PRODUCTS = 600, // of a thread, unrolled
  WARPS = 8           // of a multiprocessor, below which threads are rather made smaller
};

static const double STEPS_COST = 1.15; // as measured on an H200, as the sizes above

typedef struct pooling {
  kiln_lowering *w;
  kiln_window of;
  int last, pixel, row; // dims of the result; row -1: there is none
} pooling;

static const char *name_of(const pooling *n, const kiln_stmt *s) {
  return kiln_symbol_text(n->w->cx, n->w->p->tensors.data[s->out]->name);
}

static kiln_symbol loop_of(pooling *n, const kiln_stmt *s, const char *part, int d) {
  return kiln_lowering_loop(n->w, name_of(n, s), part, s->dims[d].name);
}

static bool find(kiln_lowering *w, pooling *out) {
  *out = (pooling){.w = w, .row = -1};
  if (!kiln_window_is(w->cx, w->p, &out->of)) return false;
  out->last = w->root->n_space - 1;
  out->pixel = out->of.dims[out->of.n - 1].dim;
  if (out->of.n > 1) out->row = out->of.dims[out->of.n - 2].dim;
  return out->pixel != out->last;
}

// Elements of P that a thread reads at once for |pixels| neighbours, |whole| or a step of the first
// reduction dim.
static int64_t reads_of(const pooling *n, int64_t pixels, bool whole) {
  int64_t reads = 1;
  for (int k = 0; k < n->of.n; k++) {
    const kiln_window_dim *x = &n->of.dims[k];
    const int64_t taps = kiln_lowering_extent(n->of.t, x->reduction);
    const bool step = !whole && x->reduction == n->of.t->n_space;
    reads *= k + 1 < n->of.n ? (step ? 1 : taps) : (pixels - 1) * x->stride + (step ? 1 : taps);
  }
  return reads;
}

static int64_t registers_of(const pooling *n, int64_t pixels, int64_t vector, bool whole) {
  const int64_t size = kiln_dtype_bytes(n->w->p->tensors.data[n->of.p->out]->dtype);
  return pixels * vector + (reads_of(n, pixels, whole) * vector * size + 3) / 4;
}

static bool fits_whole(const pooling *n, int64_t pixels, int64_t vector) {
  int64_t taps = 1;
  for (int d = n->of.t->n_space; d < n->of.t->n_space + n->of.t->n_reduce; d++)
    taps *= kiln_lowering_extent(n->of.t, d);
  return taps * pixels * vector <= MAX_PRODUCTS && registers_of(n, pixels, vector, true) <= BUDGET;
}

// Whether the elements of a step of the first reduction dim are read for several of its others.
static bool has_steps(const pooling *n) {
  return n->of.dims[n->of.n - 1].reduction != n->of.t->n_space;
}

static double elems_of(const pooling *n) {
  double elems = 1;
  for (int d = 0; d < n->w->root->n_space; d++)
    elems *= (double)kiln_lowering_extent(n->w->root, d);
  return elems;
}

// The tile of a thread that reads least for each element, of those that leave enough threads.
static void choose_tile(const pooling *n, kiln_tiling *t) {
  const kiln_stmt *y = n->w->root;
  const int64_t width = kiln_lowering_extent(y, n->last),
                length = kiln_lowering_extent(y, n->pixel),
                size = kiln_dtype_bytes(n->w->p->tensors.data[n->of.p->out]->dtype);
  const double enough = (double)n->w->m->n_cores * n->w->m->gpu.warp * WARPS, elems = elems_of(n);
  double best = 0;
  t->vectors = t->tile[n->pixel] = 1;
  for (int64_t vector = WORD / size; vector >= 1; vector /= 2)
    for (int64_t pixels = 1; pixels <= MAX_PIXELS && pixels <= length; pixels++) {
      const bool whole = fits_whole(n, pixels, vector);
      if (width % vector || length % pixels ||
          (!whole && (!has_steps(n) || registers_of(n, pixels, vector, false) > BUDGET)) ||
          (pixels * vector > 1 && elems / (double)(pixels * vector) < enough))
        continue;
      // A load costs as much whatever its width, and more where steps wait for theirs.
      const double cost = (double)reads_of(n, pixels, true) / (double)pixels *
                          (1.0 + 4.0 / (double)(vector * size)) * (whole ? 1 : STEPS_COST);
      if (best > 0 && cost >= best) continue;
      best = cost;
      t->vectors = vector;
      t->tile[n->pixel] = pixels;
      t->variant = whole;
    }
  if (n->row < 0) return;
  const int64_t rows = kiln_lowering_extent(y, n->row);
  for (int64_t k = 1; k <= MAX_ROWS && k <= rows; k++)
    if (rows % k == 0) t->tile[n->row] = k;
}

// The loops of |s| inside of the thread's: pixels unrolled, the last dim vectorized.
static kiln_status write_out(pooling *n, const kiln_stmt *s, const char *part) {
  for (int k = 0; k < n->of.n; k++)
    KILN_TRY(kiln_unroll(&n->w->s, loop_of(n, s, part, n->of.dims[k].dim)));
  return kiln_vectorize(&n->w->s, loop_of(n, s, part, n->last));
}

// The sum: its reduction loops around the elements.
static kiln_status lower_sum(pooling *n, bool whole) {
  const kiln_stmt *t = n->of.t;
  kiln_symbol loops[2 * KILN_MAX_RANK];
  for (int d = 0; d < t->n_reduce; d++) loops[d] = loop_of(n, t, "", t->n_space + d);
  for (int d = 0; d < t->n_space; d++) loops[t->n_reduce + d] = loop_of(n, t, "", d);
  KILN_TRY(kiln_reorder(&n->w->s, t->n_reduce + t->n_space, loops));
  for (int d = whole ? 0 : 1; d < t->n_reduce; d++) KILN_TRY(kiln_unroll(&n->w->s, loops[d]));
  KILN_TRY(write_out(n, t, "init."));
  return write_out(n, t, "");
}

static kiln_status lower_elements(pooling *n, kiln_symbol at) {
  const kiln_stmt *p = n->of.p;
  KILN_TRY(kiln_compute_at(&n->w->s, n->w->p->tensors.data[p->out]->name, at, KILN_SCOPE_LOCAL));
  for (int d = 0; d + 1 < p->n_space; d++) KILN_TRY(kiln_unroll(&n->w->s, loop_of(n, p, "", d)));
  return kiln_vectorize(&n->w->s, loop_of(n, p, "", p->n_space - 1));
}

// Cuts the result's loops into the threads' tiles, whose rows that lie above each other are
// neighbours.
static kiln_status cut_result(pooling *n, const kiln_tiling *t, kiln_symbol *out_thread) {
  kiln_lowering *w = n->w;
  kiln_symbol outer[KILN_MAX_RANK + 1], order[KILN_MAX_RANK + 3], inner[3];
  int n_outer = 0, n_inner = 0;
  kiln_symbol above = 0;
  for (int d = 0; d <= n->last; d++) {
    const kiln_symbol loop = loop_of(n, w->root, "", d);
    const int64_t size = d == n->last ? t->vectors : t->tile[d] ? t->tile[d] : 1;
    if (d == n->last && above) outer[n_outer++] = above;
    outer[n_outer++] = loop;
    if (d != n->last && d != n->pixel && d != n->row) continue;
    outer[n_outer - 1] = kiln_lowering_name(w, "o", loop);
    const kiln_symbol in = kiln_lowering_name(w, "i", loop);
    KILN_TRY(kiln_split(&w->s, loop, size, KILN_TAIL_EXACT, outer[n_outer - 1], in));
    if (d == n->row) above = in;
    else inner[n_inner++] = in;
  }
  for (int k = 0; k < n_outer; k++) order[k] = outer[k];
  for (int k = 0; k < n_inner; k++) order[n_outer + k] = inner[k];
  KILN_TRY(kiln_reorder(&w->s, n_outer + n_inner, order));
  KILN_TRY(kiln_unroll(&w->s, inner[0]));
  KILN_TRY(kiln_vectorize(&w->s, inner[1]));
  return kiln_gpu_map_grid(w, n_outer, outer, THREADS, out_thread);
}

static kiln_status lower_sliding_window(kiln_lowering *w, const kiln_tiling *t) {
  pooling n;
  kiln_symbol thread;
  if (!find(w, &n)) return KILN_INTERNAL;
  if (n.of.k) KILN_TRY(kiln_prepack(&w->s, w->p->tensors.data[n.of.k->out]->name));
  KILN_TRY(cut_result(&n, t, &thread));
  for (int i = w->p->stmts.n - 2; w->p->stmts.data[i] != n.of.t; i--) {
    const kiln_stmt *s = w->p->stmts.data[i];
    KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[s->out]->name, thread, KILN_SCOPE_LOCAL));
    KILN_TRY(write_out(&n, s, ""));
  }
  KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[n.of.t->out]->name, thread, KILN_SCOPE_LOCAL));
  KILN_TRY(lower_sum(&n, t->variant == 1));
  return lower_elements(&n, t->variant == 1 ? thread : loop_of(&n, n.of.t, "", n.of.t->n_space));
}

static kiln_status propose_sliding_window(kiln_lowering *w, kiln_tile_candidates *out) {
  pooling n;
  kiln_tile_candidate one = {0};
  if (!find(w, &n)) return KILN_OK;
  choose_tile(&n, &one.tiling);
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_sliding_window = {.name = "sliding_window",
                                                        .was = "windows",
                                                        .has_grids = true,
                                                        .match = kiln_window_make,
                                                        .propose = propose_sliding_window,
                                                        .lower = lower_sliding_window,
                                                        .by_loops = true};
