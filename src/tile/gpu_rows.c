// Statements that share outer dims: a row a block, or a row a warp where there are many. What a row's statements
// hand on lies in shared memory; maps deal their elements to the threads, sums are computed by all threads of the
// row and combined, in two steps where these are many.
#include "tile/gpu.h"

enum {
  SHORT_ROW = 32, // rows of fewer elements are for one thread,
  WARP_ROW = 512, // up to as many for a warp
  WARP = 32,
  WARPS = 4, // of a block
  LANES = 16
};

typedef struct rows {
  kiln_lowering *w;
  bool shared[KILN_MAX_RANK]; // by dim of the root
  kiln_symbol at;             // the loop over the rows
  int64_t threads;            // of a row
  kiln_symbol across; // the dim whose neighbours are the rows of a block; 0: one row a block
} rows;

static int dim_named(const kiln_stmt *s, kiln_symbol name) {
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name == name) return d;
  return -1;
}

static const char *name_of(const rows *r, const kiln_stmt *s) {
  return kiln_symbol_text(r->w->cx, r->w->p->tensors.data[s->out]->name);
}

static bool is_shared_dim(const rows *r, const kiln_stmt *s, int d) {
  const int of_root = dim_named(r->w->root, s->dims[d].name);
  return of_root >= 0 && r->shared[of_root];
}

static void find_shared(rows *r) {
  const kiln_program *p = r->w->p;
  for (int d = 0; d < r->w->root->n_space; d++) {
    r->shared[d] = true;
    for (int i = 0; i < p->stmts.n; i++)
      r->shared[d] &= dim_named(p->stmts.data[i], r->w->root->dims[d].name) >= 0;
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

// The buffer that computes |loop|'s part of the sums of |of|, by |n| threads, in registers until they are whole.
static kiln_status factor(rows *r, kiln_symbol loop, int64_t n, kiln_symbol of, const char *suffix,
                          int n_outer, const kiln_symbol *outer, kiln_symbol *out) {
  kiln_lowering *w = r->w;
  kiln_symbol part = loop, order[KILN_MAX_RANK + 1];
  *out = kiln_lowering_name(w, suffix, of);
  if (kiln_gpu_extent(w, loop) > n) {
    part = kiln_lowering_name(w, "t", loop);
    KILN_TRY(kiln_split(&w->s, loop, n, KILN_TAIL_GUARD, kiln_lowering_name(w, "o", loop), part));
  }
  order[0] = part; // in front, so that the parts of all rows are one buffer
  for (int d = 0; d < n_outer; d++) order[1 + d] = outer[d];
  KILN_TRY(kiln_reorder(&w->s, n_outer + 1, order));
  KILN_TRY(kiln_rfactor(&w->s, part, *out));
  return kiln_cache_write(&w->s, *out, kiln_lowering_name(w, "sums", *out), 0, NULL);
}

// Whether all threads add up |s|: it has few results a row.
static bool is_shared_sum(const rows *r, const kiln_stmt *s) {
  int64_t elems = 1;
  for (int d = 0; d < s->n_space; d++)
    if (!is_shared_dim(r, s, d)) elems *= kiln_lowering_extent(s, d);
  return s->n_reduce && elems < SHORT_ROW;
}

// The sums of |s| in two steps, each into a buffer of its own; out[0..*out_n), the last written first.
static kiln_status cut_sum(rows *r, const kiln_stmt *s, kiln_symbol *out, int *out_n) {
  kiln_lowering *w = r->w;
  kiln_symbol loops[KILN_MAX_RANK], all;
  int64_t extent;
  for (int d = 0; d < s->n_reduce; d++)
    loops[d] = kiln_lowering_loop(w, name_of(r, s), "", s->dims[s->n_space + d].name);
  KILN_TRY(kiln_gpu_fuse(w, s->n_reduce, loops, &all, &extent));
  const kiln_symbol t = kiln_symbol_of(w->cx, name_of(r, s));
  for (int d = 0; d < s->n_space; d++)
    loops[d] = kiln_lowering_loop(w, name_of(r, s), "", s->dims[d].name);
  KILN_TRY(factor(r, all, r->threads, t, "partial", s->n_space, loops, &out[0]));
  *out_n = 1;
  const kiln_symbol rest =
      kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, out[0]), s->n_space);
  if (kiln_gpu_extent(w, rest) <= 2 * LANES) return KILN_OK;
  *out_n = 2;
  out[1] = out[0];
  for (int d = 0; d < s->n_space; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, out[1]), d);
  return factor(r, rest, LANES, t, "lanes", s->n_space, loops, &out[0]);
}

typedef struct cuts {
  kiln_symbol buffers[2];
  int n;
} cuts;

static kiln_status bind_row(rows *r, kiln_symbol loop) {
  return kiln_loops_find(r->w->s.loops, loop) ? kiln_bind(&r->w->s, loop, KILN_THREAD_Y) : KILN_OK;
}

// Computes |buffer|, parts of the sums of |s|, where the rows are: a thread each along the last axis.
static kiln_status place_sums(rows *r, const kiln_stmt *s, kiln_symbol buffer) {
  kiln_lowering *w = r->w;
  const char *name = kiln_symbol_text(w->cx, buffer);
  const kiln_symbol loop = kiln_symbol_printf(w->cx, "%s.copy.%d", name, s->n_space);
  const int across = r->across ? dim_named(s, r->across) : -1;
  KILN_TRY(kiln_compute_at(&w->s, buffer, r->at, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_bind(&w->s, loop, KILN_THREAD_X));
  if (across >= 0) {
    KILN_TRY(bind_row(r, kiln_symbol_printf(w->cx, "%s.copy.%d", name, across)));
    KILN_TRY(bind_row(r, kiln_symbol_printf(w->cx, "%s.%d", name, across)));
  }
  return kiln_compute_at(&w->s, kiln_lowering_name(w, "sums", buffer), loop, KILN_SCOPE_LOCAL);
}

static kiln_status lower_statement(rows *r, const kiln_stmt *s) {
  kiln_symbol loops[KILN_MAX_RANK];
  const int n = own_loops(r, s, "", loops);
  if (r->across) KILN_TRY(bind_row(r, kiln_lowering_loop(r->w, name_of(r, s), "init.", r->across)));
  if (is_shared_sum(r, s)) return KILN_OK; // see cut_sum
  if (r->across && s != r->w->root)
    KILN_TRY(bind_row(r, kiln_lowering_loop(r->w, name_of(r, s), "", r->across)));
  if (n == 0) return KILN_OK; // one thread computes one element
  KILN_TRY(kiln_gpu_deal(r->w, n, loops, r->threads, r->threads));
  if (!s->n_reduce) return KILN_OK;
  return kiln_gpu_deal(r->w, own_loops(r, s, "init.", loops), loops, r->threads, r->threads);
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
    KILN_TRY(kiln_split(&w->s, whole, WARPS, KILN_TAIL_EXACT, loops[n_rows - 1], row));
    KILN_TRY(kiln_bind(&w->s, row, KILN_THREAD_Y));
  }
  return kiln_gpu_fuse(w, n_rows, loops, &r->at, &extent);
}

// The same by the threads of a block, whose sums are cut already.
static kiln_status place_all(rows *r, const cuts *c) {
  for (int i = r->w->p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = r->w->p->stmts.data[i];
    if (s != r->w->root)
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

static kiln_status lower_rows(kiln_lowering *w, const kiln_tiling *t) {
  rows r = {.w = w, .threads = t->block[0]};
  find_shared(&r);
  if (t->block[1] > 1) r.across = last_shared(&r);
  cuts *c = KILN_NEW_ARRAY(&w->cx->scratch, cuts, w->p->stmts.n);
  for (int i = 0; i < w->p->stmts.n && r.threads > 1; i++)
    if (is_shared_sum(&r, w->p->stmts.data[i]))
      KILN_TRY(cut_sum(&r, w->p->stmts.data[i], c[i].buffers, &c[i].n));
  KILN_TRY(gather_rows(&r));
  if (r.threads == 1) { // a row a thread
    KILN_TRY(kiln_gpu_spread(w, 1, &r.at, KILN_GPU_THREADS, &r.at));
    return place(&r, r.at, KILN_SCOPE_LOCAL);
  }
  KILN_TRY(kiln_bind(&w->s, r.at, KILN_BLOCK_X));
  KILN_TRY(place_all(&r, c));
  for (int i = 0; i < w->p->stmts.n; i++) KILN_TRY(lower_statement(&r, w->p->stmts.data[i]));
  return KILN_OK;
}

static kiln_status propose_rows(kiln_lowering *w, kiln_tile_candidates *out) {
  rows r = {.w = w};
  bool any = false;
  find_shared(&r);
  for (int d = 0; d < w->root->n_space; d++) any |= r.shared[d];
  if (!any || w->root->n_reduce) return KILN_OK;
  const int64_t row = row_of(&r);
  kiln_tile_candidate one = {.family = &kiln_family_gpu_rows};
  kiln_lowering_price(w, &one.cost);
  if (row >= SHORT_ROW && suit_warps(&r, row)) {
    one.tiling.block[0] = WARP;
    one.tiling.block[1] = WARPS;
    KILN_VEC_PUSH(&w->cx->perm, out, one);
  }
  one.tiling.block[0] = one.tiling.block[1] = 1;
  if (row >= SHORT_ROW)
    for (one.tiling.block[0] = SHORT_ROW;
         one.tiling.block[0] < row && one.tiling.block[0] < KILN_GPU_THREADS;)
      one.tiling.block[0] *= 2;
  KILN_VEC_PUSH(&w->cx->perm, out, one);
  return KILN_OK;
}

const kiln_family kiln_family_gpu_rows = {"rows", propose_rows, lower_rows};
