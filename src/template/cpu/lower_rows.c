// Rows: statements that share outer dims (softmax, normalisations) run row by row, so that a row is
// read from memory once; and window reductions (pooling, depthwise convolutions) as tiles of pixels
// x channels in registers.
//
// Where the contiguous dim is one of the shared dims it is vectorized across (channels last);
// otherwise the statements are vectorized along the row, reductions by partial results a lane.
// Values of a row may be stored besides being reused (results.c).
#include "support/integer.h"
#include "template/cpu/turned.h"
#include "template/cpu/window.h"

#include <math.h>

enum {
  LARGE_DOMAIN = 1 << 15, // iterations worth sharing among threads
  LARGE_SHARE = 8,
  MAX_TALL = 1 << 12 // results of which each thread keeps partial sums
};

typedef struct rows {
  kiln_lowering *w;
  bool shared[KILN_MAX_RANK]; // by dim of the root
  int n;                      // statements but the root
  bool *is_inlined;           // of those
} rows;

static void find_shared(rows *r) {
  for (int d = 0; d < r->w->root->n_space; d++) {
    r->shared[d] = kiln_lowering_stores_along(r->w, d);
    for (int i = 0; i < r->n; i++)
      r->shared[d] &= kiln_stmt_space_dim(r->w->p->stmts.data[i], r->w->root->dims[d].name) >= 0;
  }
}

static const char *tensor_name(const rows *r, int stmt) {
  const kiln_stmt *s = r->w->p->stmts.data[stmt];
  return kiln_symbol_text(r->w->cx, r->w->p->tensors.data[s->out]->name);
}

// The reduction dim along which the statement reads memory contiguously; -1 if none does.
static int contiguous_reduction(kiln_lowering *w, const kiln_stmt *s) {
  kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int d = s->n_space + s->n_reduce - 1; d >= s->n_space; d--)
    for (int i = 0; i < loads.n; i++)
      if (kiln_load_stride(w->cx, w->p, loads.data[i], s->dims[d].name) == 1) return d;
  return -1;
}

kiln_status kiln_lowering_vectorize_reduction(kiln_lowering *w, const kiln_stmt *s) {
  int d = contiguous_reduction(w, s);
  if (d < 0) return KILN_OK;
  const char *t = kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
  int64_t extent = kiln_lowering_extent(s, d),
          factor = kiln_lowering_vector(w, extent, s->body->dtype, KILN_MOST_VECTORS);
  kiln_symbol loop = kiln_lowering_loop(w, t, "", s->dims[d].name);
  if (factor < 2) return KILN_OK;
  if (factor == extent) return kiln_vectorize(&w->s, loop);
  kiln_symbol inner = kiln_lowering_name(w, "i", loop),
              lanes = kiln_symbol_printf(w->cx, "%s.lanes", t);
  KILN_TRY(
      kiln_split(&w->s, loop, factor, KILN_TAIL_GUARD, kiln_lowering_name(w, "o", loop), inner));
  KILN_TRY(kiln_rfactor(&w->s, inner, lanes));
  KILN_TRY(kiln_vectorize(&w->s, inner));
  const char *name = kiln_symbol_text(w->cx, lanes); // the lanes are its last axis
  KILN_TRY(kiln_vectorize(&w->s, kiln_symbol_printf(w->cx, "%s.init.%d", name, s->n_space)));
  return kiln_vectorize(&w->s, kiln_symbol_printf(w->cx, "%s.%d", name, s->n_space));
}

static bool is_own(const rows *r, const kiln_stmt *s, int d) {
  const int root = kiln_stmt_space_dim(r->w->root, s->dims[d].name);
  return root < 0 || !r->shared[root];
}

// Whether every load of |s| is contiguous along its dim |d|, or invariant there.
static bool reads_along(rows *r, const kiln_stmt *s, int d) {
  kiln_lowering *w = r->w;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++) {
    const int64_t stride = kiln_load_stride(w->cx, w->p, loads.data[i], s->dims[d].name);
    if (stride != 0 && stride != 1) return false;
  }
  return true;
}

// Whether vectors along the contiguous reduction dim of |s| would gather another load that vectors
// of results read contiguously, as the weights of a product whose rows are interleaved.
static bool gathers_along_reduction(rows *r, const kiln_stmt *s) {
  const int last = s->n_space - 1;
  return last >= 0 && is_own(r, s, last) && reads_along(r, s, last) &&
         kiln_lowering_extent(s, last) >= r->w->lanes &&
         !reads_along(r, s, contiguous_reduction(r->w, s));
}

// Vectorizes the statement |stmt| across its results: sums of windows in a row, whose reduction is
// not contiguous.
static kiln_status vectorize_results(rows *r, int stmt) {
  kiln_lowering *w = r->w;
  const kiln_stmt *s = w->p->stmts.data[stmt];
  const int d = s->n_space - 1;
  if (d < 0 || !is_own(r, s, d) || !reads_along(r, s, d)) return KILN_OK;
  const char *t = tensor_name(r, stmt);
  const int64_t extent = kiln_lowering_extent(s, d),
                factor = kiln_lowering_vector(w, extent, s->body->dtype, KILN_MOST_VECTORS);
  if (factor < 2 || extent % factor != 0) return KILN_OK;
  const kiln_symbol loop = kiln_lowering_loop(w, t, "", s->dims[d].name);
  kiln_symbol nest[2 * KILN_MAX_RANK + 2];
  int n = 0;
  kiln_symbol vector = loop;
  if (factor < extent) {
    nest[n++] = kiln_lowering_name(w, "o", loop);
    vector = kiln_lowering_name(w, "i", loop);
    KILN_TRY(kiln_split(&w->s, loop, factor, KILN_TAIL_GUARD, nest[0], vector));
  }
  for (int k = s->n_space; k < s->n_space + s->n_reduce; k++)
    nest[n++] = kiln_lowering_loop(w, t, "", s->dims[k].name);
  nest[n++] = vector;
  KILN_TRY(kiln_reorder(&w->s, n, nest));
  KILN_TRY(kiln_vectorize(&w->s, vector));
  return kiln_lowering_vectorize_map(w, kiln_lowering_loop(w, t, "init.", s->dims[d].name),
                                     s->body->dtype);
}

static kiln_status vectorize_along(rows *r) {
  kiln_lowering *w = r->w;
  for (int i = 0; i < r->n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (r->is_inlined[i]) continue;
    if (s->n_reduce) {
      const bool across = contiguous_reduction(w, s) < 0 || gathers_along_reduction(r, s);
      KILN_TRY(across ? vectorize_results(r, i) : kiln_lowering_vectorize_reduction(w, s));
      continue;
    }
    int d = s->n_space - 1;
    if (d < 0 || kiln_stmt_space_dim(w->root, s->dims[d].name) >= 0) {
      int own = d >= 0 ? kiln_stmt_space_dim(w->root, s->dims[d].name) : -1;
      if (own < 0 || r->shared[own]) continue;
    }
    KILN_TRY(kiln_lowering_vectorize_map(
        w, kiln_lowering_loop(w, tensor_name(r, i), "", s->dims[d].name), s->body->dtype));
  }
  int last = w->root->n_space - 1;
  if (last < 0 || r->shared[last]) return KILN_OK;
  return kiln_lowering_vectorize_map(w, kiln_lowering_loop(w, "y", "", w->root->dims[last].name),
                                     w->root->body->dtype);
}

// Moves all other statements into the innermost of |b|'s loops, the last first, so that each finds
// its readers there.
static kiln_status compute_all_at(rows *r, kiln_blocks *b) {
  kiln_lowering *w = r->w;
  for (int i = r->n - 1; i >= 0; i--) {
    const kiln_stmt *s = w->p->stmts.data[i];
    kiln_symbol inner[KILN_MAX_RANK];
    if (r->is_inlined[i]) continue;
    if (kiln_lowering_stores(w, s)) KILN_TRY(kiln_lowering_join_result(w, s, b, inner));
    else
      KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[s->out]->name, b->loops[b->n - 1],
                               KILN_SCOPE_LOCAL));
  }
  return KILN_OK;
}

// Runs y's loops |b| in parallel and all other statements inside of them. Other results move in
// first, as a parallel loop takes none.
static kiln_status run_rows(rows *r, kiln_blocks *b, const int64_t *extents) {
  kiln_lowering *w = r->w;
  kiln_symbol first;
  int fused;
  const bool stores_several = kiln_lowering_stores_several(w);
  if (stores_several && b->n > 0) KILN_TRY(compute_all_at(r, b));
  KILN_TRY(kiln_lowering_parallel(w, b->n, b->loops, extents, &first, &fused));
  if (b->n == 0 || stores_several) return KILN_OK;
  if (b->n == fused) b->loops[b->n - 1] = first;
  return compute_all_at(r, b);
}

static kiln_status along_the_row(rows *r) {
  kiln_lowering *w = r->w;
  kiln_blocks b = {0};
  kiln_symbol loops[KILN_MAX_RANK];
  int64_t extents[KILN_MAX_RANK];
  int n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < w->root->n_space; d++) {
      if (r->shared[d] != (pass == 0)) continue;
      loops[n] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
      if (pass == 0) {
        extents[b.n] = kiln_lowering_extent(w->root, d);
        b.dims[b.n] = d;
        b.loops[b.n++] = loops[n];
      }
      n++;
    }
  if (n > 1) KILN_TRY(kiln_reorder(&w->s, n, loops));
  if (b.n > 0) KILN_TRY(run_rows(r, &b, extents));
  return vectorize_along(r);
}

static bool is_window(const rows *r) {
  for (int d = 0; d < r->w->root->n_space; d++)
    if (!r->shared[d]) return false;
  return r->n == 1 && r->w->p->stmts.data[0]->n_reduce > 0 &&
         r->w->p->stmts.data[0]->n_space == r->w->root->n_space;
}

// Whether dim |d| of |s| has a larger stride than all reduced dims: its sums then run one after the
// other.
static bool goes_far(rows *r, const kiln_stmt *s, int d) {
  kiln_lowering *w = r->w;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  bool far = s->n_reduce > 0;
  for (int i = 0; i < loads.n && far; i++)
    for (int k = s->n_space; k < s->n_space + s->n_reduce; k++)
      far &= kiln_load_stride(w->cx, w->p, loads.data[i], s->dims[d].name) >
             kiln_load_stride(w->cx, w->p, loads.data[i], s->dims[k].name);
  return far;
}

// The loops of a member inside the tile: own dims of large stride, reductions, other own dims, and
// the vector, which is cut out of |v|'s loop or all of it. Gives how many.
static int member_loops(rows *r, int stmt, bool init, kiln_symbol v, bool is_cut,
                        kiln_symbol *nest) {
  const kiln_stmt *s = r->w->p->stmts.data[stmt];
  const char *t = tensor_name(r, stmt), *part = init ? "init." : "";
  int n = 0;
  for (int d = 0; d < s->n_space; d++)
    if (is_own(r, s, d) && goes_far(r, s, d))
      nest[n++] = kiln_lowering_loop(r->w, t, part, s->dims[d].name);
  for (int d = s->n_space; !init && d < s->n_space + s->n_reduce; d++)
    nest[n++] = kiln_lowering_loop(r->w, t, "", s->dims[d].name);
  for (int d = 0; d < s->n_space; d++)
    if (is_own(r, s, d) && !goes_far(r, s, d))
      nest[n++] = kiln_lowering_loop(r->w, t, part, s->dims[d].name);
  const kiln_symbol whole = kiln_lowering_loop(r->w, t, part, v);
  nest[n++] =
      is_cut && kiln_lowering_stores(r->w, s) ? kiln_lowering_name(r->w, "t", whole) : whole;
  return n;
}

// Unrolls a short innermost reduction whose steps share a load: they then differ in constants.
static kiln_status unroll_parts(rows *r, int stmt) {
  enum { MOST_PARTS = 16 };
  kiln_lowering *w = r->w;
  const kiln_stmt *s = w->p->stmts.data[stmt];
  const int d = s->n_space + s->n_reduce - 1;
  if (s->n_reduce == 0 || kiln_lowering_extent(s, d) > MOST_PARTS) return KILN_OK;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  bool is_shared = false;
  for (int i = 0; i < loads.n; i++) is_shared |= !kiln_expr_uses(loads.data[i], s->dims[d].name);
  return is_shared
             ? kiln_unroll(&w->s, kiln_lowering_loop(w, tensor_name(r, stmt), "", s->dims[d].name))
             : KILN_OK;
}

static kiln_status order_member(rows *r, int stmt, kiln_symbol v, bool is_cut, int64_t factor) {
  kiln_symbol nest[2 * KILN_MAX_RANK];
  bool reduces = r->w->p->stmts.data[stmt]->n_reduce > 0;
  for (int init = 0; init <= reduces; init++) {
    int n = member_loops(r, stmt, init, v, is_cut, nest);
    if (factor == 1) n--;
    if (n > 1) KILN_TRY(kiln_reorder(&r->w->s, n, nest));
    if (factor > 1) KILN_TRY(kiln_vectorize(&r->w->s, nest[n - 1]));
  }
  return unroll_parts(r, stmt);
}

// Tensors that more than one statement accesses: where all are stored in one loop, vectors of them
// stay in registers from one statement to the next.
static int count_shared(const rows *r) {
  const kiln_program *p = r->w->p;
  int *uses = KILN_NEW_ARRAY(&r->w->cx->scratch, int, p->tensors.n), n = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_loads loads = kiln_stmt_loads(r->w->cx, &r->w->cx->scratch, p, s);
    uses[s->out]++;
    for (int k = 0; k < loads.n; k++) {
      bool again = false;
      for (int j = 0; j < k; j++) again |= loads.data[j]->u.tensor == loads.data[k]->u.tensor;
      uses[loads.data[k]->u.tensor] += !again;
    }
  }
  for (int t = 0; t < p->tensors.n; t++) n += uses[t] > 1;
  return n;
}

// Most registers of a vector along the rows, for all statements.
static int64_t most_vectors(const rows *r) {
  int64_t most = KILN_MOST_VECTORS;
  if (kiln_lowering_stores_several(r->w) && 2 * count_shared(r) > r->w->m->n_vector_regs) return 1;
  for (int i = 0; i < r->w->p->stmts.n; i++) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    const int64_t n = s->n_reduce ? most : kiln_lowering_most_vectors(r->w, s);
    if (n < most) most = n;
  }
  return most;
}

static kiln_status across_channels(rows *r) {
  kiln_lowering *w = r->w;
  int last = w->root->n_space - 1, n_tail = 0;
  kiln_blocks b = {0};
  kiln_symbol v = w->root->dims[last].name, loop = kiln_lowering_loop(w, "y", "", v),
              tail[KILN_MAX_RANK + 2];
  int64_t extents[2 * KILN_MAX_RANK],
      extent = kiln_lowering_extent(w->root, last),
      factor = kiln_lowering_vector(w, extent, w->root->body->dtype, most_vectors(r));
  if (last == 0 && factor == extent && extent > w->lanes) factor = w->lanes;
  for (int d = 0; d < last; d++) {
    kiln_symbol y = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
    if (!r->shared[d]) tail[n_tail++] = y;
    else b.dims[b.n] = d, b.loops[b.n] = y, extents[b.n++] = kiln_lowering_extent(w->root, d);
  }
  if (factor < extent) {
    kiln_symbol o = kiln_lowering_name(w, "o", loop), i = kiln_lowering_name(w, "i", loop);
    KILN_TRY(kiln_split(&w->s, loop, factor, KILN_TAIL_SHIFT, o, i));
    b.dims[b.n] = last;
    b.sizes[b.n] = factor;
    b.loops[b.n] = o;
    extents[b.n++] = kiln_divide_up(extent, factor);
    loop = i;
  }
  tail[n_tail++] = loop;
  kiln_symbol path[4 * KILN_MAX_RANK];
  int n_path = 0;
  for (int i = 0; i < b.n; i++) path[n_path++] = b.loops[i];
  for (int i = 0; i < n_tail; i++) path[n_path++] = tail[i];
  if (n_path > 1) KILN_TRY(kiln_reorder(&w->s, n_path, path));
  KILN_TRY(run_rows(r, &b,
                    extents)); // with no loops there is one vector, and the nests follow each other
  for (int i = 0; i < r->n; i++)
    if (!r->is_inlined[i]) KILN_TRY(order_member(r, i, v, factor < extent, factor));
  return factor > 1 ? kiln_vectorize(&w->s, tail[n_tail - 1]) : KILN_OK;
}

// Whether a member sums whole rows: it reduces a contiguous dim, and no reduced operand is
// contiguous along the root's last dim.
static bool sums_rows(rows *r) {
  kiln_lowering *w = r->w;
  const kiln_symbol v = w->root->dims[w->root->n_space - 1].name;
  bool sums = false;
  for (int i = 0; i < r->n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    const int d = s->n_reduce ? contiguous_reduction(w, s) : -1;
    sums |= d >= 0 && kiln_lowering_extent(s, d) >= w->lanes;
    kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
    for (int j = 0; j < loads.n; j++)
      if (kiln_stmt_reduces_along(s, loads.data[j]) &&
          kiln_load_stride(w->cx, w->p, loads.data[j], v) == 1)
        return false;
  }
  return sums;
}

// Whether the root does nearly all the work: the others then run as nests before it.
static bool is_led_by_root(const rows *r) {
  const int64_t work = kiln_stmt_domain(r->w->root);
  int64_t others = 0;
  for (int i = 0; i < r->n; i++) others += kiln_stmt_domain(r->w->p->stmts.data[i]);
  return r->n > 0 && r->w->root->n_reduce == 0 && work >= LARGE_DOMAIN &&
         LARGE_SHARE * others <= work;
}

static kiln_status lead_by_root(rows *r, const kiln_tiling *t) {
  kiln_lowering *w = r->w;
  for (int i = 0; i < r->n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (s->n_reduce) KILN_TRY(kiln_lowering_vectorize_reduction(w, s));
    else if (s->n_space)
      KILN_TRY(kiln_lowering_vectorize_map(
          w, kiln_lowering_loop(w, tensor_name(r, i), "", s->dims[s->n_space - 1].name),
          s->body->dtype));
  }
  return kiln_template_map.lower(w, t);
}

// --- few results of long sums ---

static bool is_long_sum(const kiln_stmt *s) {
  return s->n_reduce > 0 && s->n_space > 0 && kiln_stmt_domain(s) >= LARGE_DOMAIN;
}

// Whether the kernel is long sums that are strided, with too few results for all threads to have a
// share of them.
static bool is_tall(const rows *r) {
  kiln_lowering *w = r->w;
  bool found = false;
  if (kiln_stmt_domain(w->root) > MAX_TALL || w->root->n_reduce || w->n_threads < 2) return false;
  for (int i = 0; i < r->n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    int64_t elems = 1;
    for (int d = 0; d < s->n_space; d++) elems *= kiln_lowering_extent(s, d);
    if (elems > MAX_TALL) return false;
    if (!is_long_sum(s)) continue;
    if (s->n_reduce != 1 || contiguous_reduction(w, s) >= 0) return false;
    found = true;
  }
  return found;
}

// Each thread sums its part of the reduction, over all results; then the parts are added.
static kiln_status sum_in_parts(rows *r, int stmt) {
  kiln_lowering *w = r->w;
  const kiln_stmt *s = w->p->stmts.data[stmt];
  const char *t = tensor_name(r, stmt);
  const int64_t extent = kiln_lowering_extent(s, s->n_space), n = 2 * w->n_threads;
  const kiln_symbol loop = kiln_lowering_loop(w, t, "", s->dims[s->n_space].name),
                    o = kiln_lowering_name(w, "o", loop), i = kiln_lowering_name(w, "i", loop),
                    parts = kiln_symbol_printf(w->cx, "%s.parts", t);
  kiln_symbol nest[KILN_MAX_RANK + 2] = {o, i};
  kiln_stage_axis axes[KILN_MAX_RANK + 1] = {{.axis = s->n_space, .outer = true}};
  for (int d = 0; d < s->n_space; d++) {
    nest[d + 2] = kiln_lowering_loop(w, t, "", s->dims[d].name);
    axes[d + 1] = (kiln_stage_axis){.axis = d, .outer = true};
  }
  KILN_TRY(kiln_split(&w->s, loop, kiln_divide_up(extent, n), KILN_TAIL_GUARD, o, i));
  KILN_TRY(kiln_reorder(&w->s, s->n_space + 2, nest));
  KILN_TRY(kiln_rfactor(&w->s, o, parts));
  KILN_TRY(kiln_transform_layout(&w->s, parts, s->n_space + 1, axes));
  KILN_TRY(kiln_parallel(&w->s, o));
  return kiln_lowering_vectorize(w, nest[s->n_space + 1], s->body->dtype, KILN_TAIL_GUARD);
}

static kiln_status sum_tall(rows *r) {
  kiln_lowering *w = r->w;
  for (int i = 0; i < r->n; i++)
    if (is_long_sum(w->p->stmts.data[i])) KILN_TRY(sum_in_parts(r, i));
  return KILN_OK;
}

// --- several results ---

// Whether rows hold a share of each result, and are enough for the threads.
static bool shares_rows(rows *r) {
  const kiln_lowering *w = r->w;
  int64_t tasks = 1;
  find_shared(r);
  for (int d = 0; d < w->root->n_space; d++) {
    const int64_t extent = kiln_lowering_extent(w->root, d);
    if (r->shared[d]) tasks *= d + 1 < w->root->n_space ? extent : kiln_divide_up(extent, w->lanes);
  }
  return tasks >= 2 * w->n_threads;
}

// Bytes of the map |s| that a row would keep, rows being a vector wide where they are side by side.
static int64_t held_bytes(const rows *r, const kiln_stmt *s) {
  const kiln_stmt *root = r->w->root;
  const int last = root->n_space - 1;
  int64_t bytes = kiln_dtype_bytes(s->body->dtype);
  for (int d = 0; d < s->n_space; d++) {
    const int64_t extent = kiln_lowering_extent(s, d);
    if (is_own(r, s, d)) bytes *= extent;
    else if (kiln_stmt_space_dim(root, s->dims[d].name) == last)
      bytes *= kiln_lowering_vector(r->w, extent, root->body->dtype, most_vectors(r));
  }
  return bytes;
}

// Inlines maps of which a row is too large to be kept.
static kiln_status inline_large(rows *r) {
  kiln_lowering *w = r->w;
  for (int i = 0; i < r->n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    r->is_inlined[i] =
        s->n_reduce == 0 && !kiln_lowering_stores(w, s) && held_bytes(r, s) > KILN_MAX_STACK_BYTES;
    if (r->is_inlined[i]) KILN_TRY(kiln_inline(&w->s, w->p->tensors.data[s->out]->name));
  }
  return KILN_OK;
}

// Windows with transposed results (channels first) are summed a row of a few lines at a time, and
// transposed.
static kiln_status lower_windows(kiln_lowering *w) {
  kiln_window_node node = {.stmt = w->p->stmts.data[0], .finish = w->root};
  const int turned = kiln_turned_dim(w, node.stmt);
  if (turned < 0) return kiln_lowering_window_node(w, &node);
  const int64_t n =
      kiln_divide_up(kiln_lowering_extent(w->root, turned), kiln_turned_most(w, turned));
  int dims[KILN_MAX_RANK], k = 0;
  for (int d = 0; d + 1 < w->root->n_space; d++)
    if (d != turned) dims[k++] = d;
  dims[k++] = turned;
  KILN_TRY(
      kiln_turn_result(w, k, dims, turned, kiln_turned_even(w, turned, n), true, &node.around));
  return kiln_lowering_window_node(w, &node);
}

static kiln_status lower_rows(kiln_lowering *w, const kiln_tiling *t) {
  rows r = {.w = w, .n = w->p->stmts.n - 1};
  r.is_inlined = KILN_NEW_ARRAY(&w->cx->scratch, bool, w->p->stmts.n);
  if (w->root->n_space == 0) return vectorize_along(&r);
  find_shared(&r);
  KILN_TRY(inline_large(&r));
  const bool is_single = !kiln_lowering_stores_several(w);
  if (is_single && is_tall(&r)) return sum_tall(&r);
  if (is_single && is_led_by_root(&r)) return lead_by_root(&r, t);
  if (is_single && is_window(&r) && !sums_rows(&r)) return lower_windows(w);
  return r.shared[w->root->n_space - 1] && !sums_rows(&r) ? across_channels(&r) : along_the_row(&r);
}

// Whether the product behind which the root stands reads a tensor of the run once, the reduction
// being contiguous in it: a row times many, as of a query with all keys. Packing it for vectors
// along the result would cost more than dot products do.
static bool is_dots(kiln_lowering *w, const kiln_stmt *s, const kiln_expr *a, const kiln_expr *b) {
  const kiln_program *p = w->p;
  const int last = s->n_space + s->n_reduce - 1;
  const bool a_is_larger = kiln_tensor_elems(p->tensors.data[a->u.tensor]) >
                           kiln_tensor_elems(p->tensors.data[b->u.tensor]);
  const kiln_expr *many = a_is_larger ? a : b, *one = a_is_larger ? b : a;
  for (int d = 0; d < s->n_space; d++)
    if (!kiln_expr_uses(many, s->dims[d].name)) return false;
  return p->tensors.data[many->u.tensor]->role != KILN_CONST && s->n_reduce == 1 &&
         kiln_lowering_extent(s, last) % w->lanes == 0 && w->root->n_space == s->n_space &&
         kiln_load_stride(w->cx, p, many, s->dims[last].name) == 1 &&
         kiln_load_stride(w->cx, p, one, s->dims[last].name) == 1;
}

static kiln_status propose_rows(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {0};
  rows r = {.w = w, .n = w->p->stmts.n - 1};
  const kiln_expr *a = NULL, *b = NULL;
  if (kiln_lowering_stores_several(w) && !shares_rows(&r)) return KILN_OK;
  const kiln_stmt *last = w->p->stmts.n > 1 ? w->p->stmts.data[w->p->stmts.n - 2] : NULL;
  if (out->n > 0 && last && kiln_stmt_is_contraction(last, &a, &b)) {
    if (!is_dots(w, last, a, b)) one.cost.ns = INFINITY; // else tiles come first, at any cost
  } else kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_rows = {.name = "rows",
                                          .kinds =
                                              1u << KILN_GROUP_CONTRACTION | 1u << KILN_GROUP_ROWS,
                                          .inner_loss = 1.2, // of windows of products
                                          .propose = propose_rows,
                                          .lower = lower_rows,
                                          .by_loops = true};
