// Skinny GEMM (GEMV): contractions with 1 to 4 columns, too few for a tile of a GEMM, which memory
// bounds.
//
// A convolution to 3 channels, or a product by a narrow constant matrix, with its epilogue becomes
//     P(.., r1, w, k) = inside ? X(.., i1 + r1 - 1, w - 1, k) : 0
//     K(r1, k, r2, c) = W(c, k, r1, r2)
//     F = f32(K)
//     T(.., i1, i2, c | k, r1, r2) +=! f32(P(.., r1, i2*s + r2, k)) * F(r1, k, r2, c)
//     y(.., i1, i2, c) = f(T, ..)
// with k the reduction dim along which X is contiguous.
//
// Each thread computes all columns of some neighbours along a row. It keeps its operands of a step
// along k, whole words, in registers; the constant lies in shared memory.
#include "template/gpu/grid.h"
#include "template/form/window.h"

#include <math.h>

enum {
  MAX_COLUMNS = 4,
  MIN_ROWS = 1024,         // below, threads share the sums rather
  MAX_CONSTANT = 48 << 10, // bytes of shared memory
  MAX_STRIDE = 4,
  WORD = 8,            // elements of k that a thread takes at a time,
  LEAST_WORD = 4,      // or fewer
  THREADS = 128,       // of a block
  MAX_PRODUCTS = 1200, // unrolled by a thread
  BUDGET = 120         // registers of a thread, for loaded operands and sums
};

// --- the form ---

typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *t;
  const kiln_expr *x, *constant; // the factors
  int k, pixel, tap;             // dims of t; tap -1: there is none
  int64_t stride;                // of the taps' windows
} making;

static kiln_symbol dim_of(const making *w, int d) { return w->t->dims[d].name; }
static int64_t extent_of(const making *w, int d) { return kiln_dim_extent(&w->t->dims[d]); }
static int n_dims(const making *w) { return w->t->n_space + w->t->n_reduce; }

static int64_t stride_of(const making *w, int d) {
  const kiln_expr *load = kiln_loads_of(w->cx, &w->cx->scratch, w->x).data[0];
  return kiln_stmt_load_stride(w->cx, w->p, w->t, load, dim_of(w, d));
}

static bool find_factors(making *w) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_window_sum(w->p, &w->t) || !kiln_stmt_is_product(w->t, &a, &b)) return false;
  const bool first =
      a->kind == KILN_EXPR_LOAD && w->p->tensors.data[a->u.tensor]->role == KILN_CONST;
  w->constant = first ? a : b;
  w->x = first ? b : a;
  return w->constant->kind == KILN_EXPR_LOAD &&
         w->p->tensors.data[w->constant->u.tensor]->role == KILN_CONST &&
         w->p->tensors.data[w->t->out]->dtype == KILN_F32 && kiln_expr_has_load(w->x);
}

// The dims of the result: few columns, many rows, of which the pixels are nearest in memory.
static bool find_space(making *w) {
  int64_t columns = 1, rows = 1, strides[KILN_MAX_RANK];
  kiln_tensor_strides(w->p->tensors.data[w->p->stmts.data[w->p->stmts.n - 1]->out], strides);
  w->pixel = -1;
  for (int d = 0; d < w->t->n_space; d++) {
    const bool moves = kiln_expr_uses(w->x, dim_of(w, d));
    if (moves == kiln_expr_uses(w->constant, dim_of(w, d))) return false;
    *(moves ? &rows : &columns) *= extent_of(w, d);
    if (moves && (w->pixel < 0 || strides[d] < strides[w->pixel])) w->pixel = d;
  }
  return columns <= MAX_COLUMNS && rows >= MIN_ROWS;
}

static bool find_reduction(making *w) {
  w->k = w->tap = -1;
  for (int d = w->t->n_space; d < n_dims(w); d++) {
    if (!kiln_expr_uses(w->x, dim_of(w, d)) || !kiln_expr_uses(w->constant, dim_of(w, d)))
      return false;
    if (stride_of(w, d) == 1 && extent_of(w, d) % LEAST_WORD == 0) w->k = d;
  }
  const int64_t row = stride_of(w, w->pixel);
  for (int d = w->t->n_space; d < n_dims(w); d++) {
    const int64_t step = stride_of(w, d);
    if (d == w->k || step <= 0 || row <= 0 || row == INT64_MAX || row % step) continue;
    if (row / step > MAX_STRIDE || extent_of(w, d) == 1) continue;
    w->tap = d;
    w->stride = row / step;
  }
  return w->k >= 0;
}

static const kiln_expr *simplified(making *w, const kiln_stmt *s, const kiln_expr *e) {
  kiln_ranges r = kiln_stmt_ranges(&w->cx->scratch, s);
  kiln_ranges_push(&r, dim_of(w, w->pixel), 0, extent_of(w, w->pixel) - 1);
  return kiln_simplify(w->cx, e, &r);
}

// P; NULL: its value depends on more than the element. |index|: where T reads it.
static kiln_stmt *make_elements(making *w, const kiln_expr **index) {
  kiln_ctx *cx = w->cx;
  kiln_dim dims[KILN_MAX_RANK];
  int n = 0;
  for (int d = 0; d < n_dims(w); d++)
    if (kiln_expr_uses(w->x, dim_of(w, d)) && d != w->pixel && d != w->k && d != w->tap) {
      index[n] = kiln_var(cx, dim_of(w, d));
      dims[n++] = w->t->dims[d];
    }
  const kiln_symbol at = kiln_symbol_of(cx, "w");
  const kiln_expr *pixel = kiln_var(cx, dim_of(w, w->pixel)), *x = w->x;
  index[n] = pixel;
  dims[n] = w->t->dims[w->pixel];
  if (w->tap >= 0) {
    const kiln_symbol tap = dim_of(w, w->tap);
    const kiln_expr *first = kiln_mul(cx, pixel, kiln_int(cx, w->stride)),
                    *rest = kiln_sub(cx, kiln_var(cx, at), first);
    const int64_t extent = w->stride * (extent_of(w, w->pixel) - 1) + extent_of(w, w->tap);
    index[n] = kiln_add(cx, first, kiln_var(cx, tap));
    dims[n] = (kiln_dim){at, kiln_int(cx, extent)};
    x = kiln_expr_substitute(cx, x, 1, &tap, &rest);
  }
  index[n + 1] = kiln_var(cx, dim_of(w, w->k));
  dims[n + 1] = w->t->dims[w->k];
  kiln_stmt *s = kiln_window_stmt(w->cx, w->p, w->t->origin, "P", w->x->dtype, n + 2, dims);
  s->body = simplified(w, s, x);
  return w->tap >= 0 && kiln_expr_uses(s->body, dim_of(w, w->pixel)) ? NULL : s;
}

// K, in the order in which a thread takes it: columns innermost, then the taps. |index|: where T
// reads it.
static kiln_stmt *make_constant(making *w, const kiln_expr **index) {
  kiln_dim dims[KILN_MAX_RANK];
  int n = 0;
  for (int d = w->t->n_space; d < n_dims(w); d++)
    if (d != w->k && d != w->tap) dims[n++] = w->t->dims[d];
  dims[n++] = w->t->dims[w->k];
  if (w->tap >= 0) dims[n++] = w->t->dims[w->tap];
  for (int d = 0; d < w->t->n_space; d++)
    if (kiln_expr_uses(w->constant, dim_of(w, d))) dims[n++] = w->t->dims[d];
  for (int d = 0; d < n; d++) index[d] = kiln_var(w->cx, dims[d].name);
  kiln_stmt *s = kiln_window_stmt(w->cx, w->p, w->t->origin, "K", w->constant->dtype, n, dims);
  s->body = w->constant;
  return s;
}

static const kiln_expr *widened(making *w, const kiln_expr *e) {
  return e->dtype == KILN_F32 ? e : kiln_cast(w->cx, KILN_F32, e);
}

static bool make_gemv(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  (void)m;
  making w = {.cx = cx, .p = p};
  const kiln_expr *at_p[KILN_MAX_RANK], *at_k[KILN_MAX_RANK];
  if (!find_factors(&w) || !find_space(&w) || !find_reduction(&w)) return false;
  int64_t constants = 4;
  for (int d = 0; d < n_dims(&w); d++)
    if (kiln_expr_uses(w.constant, dim_of(&w, d))) constants *= extent_of(&w, d);
  if (constants > MAX_CONSTANT) return false;
  kiln_stmt *elements = make_elements(&w, at_p);
  if (!elements) return false;
  kiln_stmt *constant = make_constant(&w, at_k),
            *factor = kiln_window_stmt(w.cx, w.p, w.t->origin, "F", KILN_F32, constant->n_space,
                                       constant->dims);
  factor->body = widened(&w, kiln_tensor_load(cx, p->tensors.data[constant->out], at_k));
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  for (int i = 0; i < n; i++) old[i] = p->stmts.data[i];
  w.t->body = kiln_mul(cx, widened(&w, kiln_tensor_load(cx, p->tensors.data[elements->out], at_p)),
                       kiln_tensor_load(cx, p->tensors.data[factor->out], at_k));
  p->stmts.n = 0;
  kiln_stmt_append(w.cx, w.p, elements);
  kiln_stmt_append(w.cx, w.p, constant);
  kiln_stmt_append(w.cx, w.p, factor);
  for (int i = 0; i < n; i++) kiln_stmt_append(w.cx, w.p, old[i]);
  return true;
}

// --- the template ---

typedef struct gemv {
  kiln_lowering *w;
  const kiln_stmt *p, *k, *f, *t;
  int pixel, channel, tap; // dims of t; tap -1: there is none
  int64_t word, columns;
} gemv;

static const char *name_of(const gemv *n, const kiln_stmt *s) {
  return kiln_symbol_text(n->w->cx, n->w->p->tensors.data[s->out]->name);
}

static kiln_symbol buffer_of(const gemv *n, const kiln_stmt *s) {
  return n->w->p->tensors.data[s->out]->name;
}

static kiln_symbol loop_of(gemv *n, const kiln_stmt *s, const char *part, int d) {
  return kiln_lowering_loop(n->w, name_of(n, s), part, s->dims[d].name);
}

static const kiln_expr *load_of(const gemv *n, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(n->w->cx, &n->w->cx->scratch, n->t->body);
  for (int i = 0; i < loads.n; i++)
    if (loads.data[i]->u.tensor == s->out) return loads.data[i];
  return NULL;
}

// Whether dim |d| counts columns: F depends on it.
static bool is_column(const gemv *n, int d) {
  return kiln_expr_uses(load_of(n, n->f), n->t->dims[d].name);
}

static bool find(kiln_lowering *w, gemv *out) {
  kiln_stmt *const *s = w->p->stmts.data;
  *out = (gemv){.w = w, .pixel = -1, .channel = -1, .tap = -1, .columns = 1, .word = WORD};
  if (w->p->stmts.n < 5 || s[0]->n_reduce || s[1]->n_reduce || s[2]->n_reduce || !s[3]->n_reduce)
    return false;
  out->p = s[0], out->k = s[1], out->f = s[2], out->t = s[3];
  const kiln_expr *p = load_of(out, out->p), *f = load_of(out, out->f);
  const int n_space = out->t->n_space, rank = out->p->n_space;
  if (!p || !f || rank < 2 || w->root->n_space != n_space) return false;
  const kiln_expr *channel = p->args[rank - 1], *at = p->args[rank - 2];
  for (int d = 0; d < n_space + out->t->n_reduce; d++) {
    const kiln_symbol name = out->t->dims[d].name;
    if (d >= n_space && channel->kind == KILN_EXPR_VAR && channel->u.sym == name) out->channel = d;
    if (kiln_expr_uses(at, name)) *(d < n_space ? &out->pixel : &out->tap) = d;
    if (d < n_space && kiln_expr_uses(f, name)) out->columns *= kiln_lowering_extent(out->t, d);
  }
  if (out->channel < 0 || out->pixel < 0) return false;
  while (kiln_lowering_extent(out->t, out->channel) % out->word) out->word /= 2;
  return true;
}

// Unrolls the columns and the |pixels| of a thread's nest.
static kiln_status write_out(gemv *n, const kiln_stmt *s, const char *part) {
  for (int d = 0; d < n->t->n_space; d++)
    if (d == n->pixel || is_column(n, d)) {
      const kiln_symbol loop = loop_of(n, s, part, d);
      KILN_TRY(d + 1 < n->t->n_space ? kiln_unroll(&n->w->s, loop)
                                     : kiln_vectorize(&n->w->s, loop));
    }
  return KILN_OK;
}

// The sum: reduction loops around the elements, of k and the taps unrolled.
static kiln_status lower_sum(gemv *n, kiln_symbol *out_step) {
  const kiln_stmt *t = n->t;
  kiln_schedule *s = &n->w->s;
  kiln_symbol loops[2 * KILN_MAX_RANK + 1], k = loop_of(n, t, "", n->channel);
  int count = 0;
  *out_step = kiln_lowering_name(n->w, "o", k);
  const kiln_symbol inner = kiln_lowering_name(n->w, "i", k);
  KILN_TRY(kiln_split(s, k, n->word, KILN_TAIL_EXACT, *out_step, inner));
  for (int d = t->n_space; d < t->n_space + t->n_reduce; d++)
    if (d != n->channel && d != n->tap) loops[count++] = loop_of(n, t, "", d);
  loops[count++] = *out_step;
  loops[count++] = inner;
  if (n->tap >= 0) loops[count++] = loop_of(n, t, "", n->tap);
  for (int d = 0; d < t->n_space; d++) loops[count++] = loop_of(n, t, "", d);
  KILN_TRY(kiln_reorder(s, count, loops));
  KILN_TRY(kiln_unroll(s, inner));
  if (n->tap >= 0) KILN_TRY(kiln_unroll(s, loop_of(n, t, "", n->tap)));
  KILN_TRY(write_out(n, t, "init."));
  return write_out(n, t, "");
}

static kiln_status lower_elements(gemv *n, kiln_symbol at) {
  const kiln_stmt *p = n->p;
  KILN_TRY(kiln_compute_at(&n->w->s, buffer_of(n, p), at, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_unroll(&n->w->s, loop_of(n, p, "", p->n_space - 2)));
  return kiln_vectorize(&n->w->s, loop_of(n, p, "", p->n_space - 1));
}

static kiln_status lower_constant(gemv *n, kiln_symbol block) {
  kiln_symbol loops[KILN_MAX_RANK];
  for (int d = 0; d < n->f->n_space; d++) loops[d] = loop_of(n, n->f, "", d);
  KILN_TRY(kiln_compute_at(&n->w->s, buffer_of(n, n->f), block, KILN_SCOPE_SHARED));
  return kiln_gpu_distribute_cyclic(n->w, n->f->n_space, loops, THREADS, THREADS);
}

// Cuts the result's rows into the threads' |pixels| and the blocks' threads.
static kiln_status cut_result(gemv *n, int64_t pixels, kiln_symbol *out_block,
                              kiln_symbol *out_thread) {
  kiln_lowering *w = n->w;
  kiln_symbol rows[KILN_MAX_RANK], order[KILN_MAX_RANK + 1], inner = 0, all;
  int n_rows = 0, count = 0;
  int64_t extent;
  for (int d = 0; d < n->t->n_space; d++) {
    kiln_symbol loop = loop_of(n, w->root, "", d);
    if (is_column(n, d)) continue;
    if (d == n->pixel) {
      const kiln_symbol whole = loop;
      loop = kiln_lowering_name(w, "o", whole);
      inner = kiln_lowering_name(w, "i", whole);
      KILN_TRY(kiln_split(&w->s, whole, pixels, KILN_TAIL_EXACT, loop, inner));
    }
    rows[n_rows++] = loop;
  }
  for (; count < n_rows; count++) order[count] = rows[count];
  for (int d = 0; d < n->t->n_space; d++)
    if (d == n->pixel) order[count++] = inner;
    else if (is_column(n, d)) order[count++] = loop_of(n, w->root, "", d);
  KILN_TRY(kiln_reorder(&w->s, count, order));
  for (int i = n_rows; i < count; i++)
    KILN_TRY(i + 1 < count ? kiln_unroll(&w->s, order[i]) : kiln_vectorize(&w->s, order[i]));
  KILN_TRY(kiln_gpu_fuse(w, n_rows, rows, &all, &extent));
  *out_block = kiln_lowering_name(w, "b", all);
  *out_thread = kiln_lowering_name(w, "t", all);
  KILN_TRY(kiln_split(&w->s, all, THREADS, KILN_TAIL_GUARD, *out_block, *out_thread));
  KILN_TRY(kiln_bind(&w->s, *out_block, KILN_BLOCK_X));
  return kiln_bind(&w->s, *out_thread, KILN_THREAD_X);
}

static kiln_status lower_gemv(kiln_lowering *w, const kiln_tiling *t) {
  gemv n;
  kiln_symbol block, thread, step;
  if (!find(w, &n)) return KILN_INTERNAL;
  KILN_TRY(kiln_prepack(&w->s, buffer_of(&n, n.k)));
  KILN_TRY(cut_result(&n, t->vectors, &block, &thread));
  for (int i = w->p->stmts.n - 2; w->p->stmts.data[i] != n.t; i--) {
    KILN_TRY(kiln_compute_at(&w->s, buffer_of(&n, w->p->stmts.data[i]), thread, KILN_SCOPE_LOCAL));
    KILN_TRY(write_out(&n, w->p->stmts.data[i], ""));
  }
  KILN_TRY(kiln_compute_at(&w->s, buffer_of(&n, n.t), thread, KILN_SCOPE_LOCAL));
  KILN_TRY(lower_sum(&n, &step));
  KILN_TRY(lower_elements(&n, step));
  return lower_constant(&n, block);
}

// The work of a thread with so many pixels: instructions (a word of the constant is loaded once for
// four products, halves are converted to floats at half the rate, a load costs as much as some
// others), and registers.
typedef struct effort {
  double instructions;
  int64_t products, registers;
} effort;

static effort effort_of(const gemv *n, int64_t pixels) {
  static const double CONVERSION = 2, READ = 8, LOOP = 20;
  const kiln_stmt *t = n->t;
  const int64_t taps = n->tap < 0 ? 1 : kiln_lowering_extent(t, n->tap),
                reads = n->tap < 0 ? pixels : pixels - 1 + taps,
                size = kiln_dtype_bytes(n->w->p->tensors.data[n->p->out]->dtype);
  double steps = 1;
  for (int d = t->n_space; d < t->n_space + t->n_reduce; d++)
    if (d != n->tap) steps *= (double)kiln_lowering_extent(t, d);
  steps /= (double)n->word;
  effort e = {.products = n->word * taps * n->columns * pixels,
              .registers = pixels * n->columns + reads * n->word * size / 4};
  e.instructions = steps * ((double)e.products + (double)(n->word * taps * n->columns) / 4 +
                            (size < 4 ? CONVERSION : 0) * (double)(reads * n->word) +
                            READ * (double)reads + LOOP);
  return e;
}

static double time_of(const gemv *n, double threads, const effort *e) {
  static const double FEW_WARPS = 6; // of a multiprocessor: fewer do not hide latency
  const kiln_device *d = n->w->m->device;
  const double each = fmax(threads / (double)(n->w->m->gpu.warp * d->n_units), FEW_WARPS),
               rate = d->unit_flops_ns[KILN_PEAK_F32] / (2.0 * n->w->m->gpu.warp);
  return d->launch_ns + fmax(each * e->instructions / rate,
                             kiln_gpu_param_bytes(n->w) / d->levels[0].all_bytes_ns);
}

static kiln_status propose_gemv(kiln_lowering *w, kiln_tile_candidates *out) {
  static const int64_t counts[] = {8, 4, 2, 1};
  gemv n;
  double rows = 1;
  if (!w->m->device || !find(w, &n)) return KILN_OK;
  for (int d = 0; d < n.t->n_space; d++)
    if (!is_column(&n, d)) rows *= (double)kiln_lowering_extent(n.t, d);
  const bool along = n.pixel == n.t->n_space - 1; // the result, too, lies along them
  for (int i = 0; i < (int)KILN_LEN(counts); i++) {
    const int64_t pixels = counts[i];
    const effort e = effort_of(&n, pixels);
    if (kiln_lowering_extent(n.t, n.pixel) % pixels ||
        (pixels > 1 && (e.products > MAX_PRODUCTS || e.registers > BUDGET)) ||
        (n.tap < 0 && pixels > (along ? 2 : 1))) // neighbours' rows are read by neighbours
      continue;
    kiln_tile_candidate one = {.tiling.vectors = pixels};
    one.cost.ns = time_of(&n, rows / (double)pixels, &e);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_gemv = {.name = "gemv",
                                              .was = "narrow",
                                              .has_grids = true,
                                              .kinds = 1u << KILN_GROUP_CONTRACTION,
                                              .match = make_gemv,
                                              .propose = propose_gemv,
                                              .lower = lower_gemv};
