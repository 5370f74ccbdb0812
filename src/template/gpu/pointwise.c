// Pointwise kernels: maps, and reductions that are computed in their readers' place. A thread
// computes an element of the result, or a vector of them, in registers. Where a map reads
// neighbours of one tensor, as an interpolation does, a thread may compute a tile of the result,
// and loads shared elements once.
#include "template/gpu/grid.h"
#include "price/price.h"

enum {
  WORD = 16,       // bytes
  WARPS = 4,       // of a multiprocessor, for which there should be work,
  MANY_WARPS = 48, // and where a thread adds up more than so many terms
  LONG_SUM = 64,
  MAX_LOADS = 32, // of a map of which tiles are proposed,
  MAX_TILE = 4    // and their words
};

static kiln_symbol tensor_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->name;
}

// Whether every statement is pointwise: a reduction has the dims of the result; a map may have
// fewer, and is computed again for each element.
static bool is_elementwise(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (s->guard || s->init || (s->n_reduce && s->n_space != w->root->n_space)) return false;
    for (int d = 0; d < s->n_space; d++)
      if (kiln_stmt_space_dim(w->root, s->dims[d].name) < 0) return false;
  }
  return w->root->n_space > 0;
}

// Whether all loads of |s| that matter are contiguous along |dim|, or the same for all of it.
static bool lies_along(const kiln_lowering *w, const kiln_stmt *s, kiln_symbol dim) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++) {
    if (w->p->tensors.data[loads.data[i]->u.tensor]->role == KILN_CONST) continue;
    const int64_t stride = kiln_stmt_load_stride(w->cx, w->p, s, loads.data[i], dim);
    if (stride != 0 && stride != 1) return false;
  }
  return true;
}

static bool has_long_sum(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    int64_t terms = 1;
    for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) terms *= kiln_lowering_extent(s, d);
    if (terms > LONG_SUM) return true;
  }
  return false;
}

// Elements along the contiguous dim that fill a word of the smallest type, if enough threads are
// left, else fewer.
static int64_t word_of(const kiln_lowering *w) {
  const int last = w->root->n_space - 1;
  const int warps = has_long_sum(w) ? MANY_WARPS : WARPS;
  const double enough = (double)w->m->n_cores * w->m->gpu.warp * warps;
  int64_t strides[KILN_MAX_RANK], vector = 1;
  double elems = 1;
  kiln_tensor_strides(w->p->tensors.data[w->root->out], strides);
  if (w->root->n_reduce || strides[last] != 1) return 1;
  for (int i = 0; i < w->p->tensors.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[i];
    const int64_t fit = WORD / kiln_dtype_bytes(t->dtype);
    if (t->role != KILN_TEMP && fit > vector) vector = fit;
  }
  for (int d = 0; d <= last; d++) elems *= (double)kiln_lowering_extent(w->root, d);
  while (vector > 1 &&
         (kiln_lowering_extent(w->root, last) % vector || elems / (double)vector < enough))
    vector /= 2;
  return vector;
}

// Elements of a thread: a word where loads allow it.
static int64_t vector_of(const kiln_lowering *w) {
  const kiln_symbol dim = w->root->dims[w->root->n_space - 1].name;
  for (int i = 0; i < w->p->stmts.n; i++)
    if (!lies_along(w, w->p->stmts.data[i], dim)) return 1;
  return word_of(w);
}

// Vectorizes |s| over a thread's elements, its reduction loops outside.
static kiln_status vectorize(kiln_lowering *w, const kiln_stmt *s) {
  const kiln_symbol dim = w->root->dims[w->root->n_space - 1].name;
  const char *name = kiln_symbol_text(w->cx, tensor_of(w, s));
  kiln_symbol loops[2 * KILN_MAX_RANK];
  if (kiln_stmt_space_dim(s, dim) < 0) return KILN_OK;
  if (s->n_reduce) {
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      loops[(d + s->n_reduce) % (s->n_space + s->n_reduce)] =
          kiln_lowering_loop(w, name, "", s->dims[d].name);
    KILN_TRY(kiln_reorder(&w->s, s->n_space + s->n_reduce, loops));
    KILN_TRY(kiln_vectorize(&w->s, kiln_lowering_loop(w, name, "init.", dim)));
  }
  return kiln_vectorize(&w->s, kiln_lowering_loop(w, name, "", dim));
}

// The nest of a reduction into the result becomes one that copies its sums, which stay in
// registers.
static kiln_status keep_sums(kiln_lowering *w, kiln_symbol *loops) {
  const kiln_symbol y = tensor_of(w, w->root),
                    sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, y));
  KILN_TRY(kiln_cache_write(&w->s, y, sums, 0, NULL));
  for (int d = 0; d < w->root->n_space; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", kiln_symbol_text(w->cx, y), d);
  return KILN_OK;
}

// Cuts the result's loops into a thread's elements, unrolled, the contiguous ones innermost.
static kiln_status cut_result(kiln_lowering *w, const kiln_tiling *t, int n, kiln_symbol *io) {
  kiln_symbol order[2 * KILN_MAX_RANK], inner[KILN_MAX_RANK];
  int n_inner = 0;
  for (int d = 0; d < n; d++) {
    const bool is_last = d == n - 1;
    const int64_t size = is_last ? t->vectors : t->tile[d];
    const kiln_symbol loop = io[d];
    if (size <= 1) continue;
    io[d] = kiln_lowering_name(w, "o", loop);
    inner[n_inner] = kiln_lowering_name(w, "i", loop);
    KILN_TRY(kiln_split(&w->s, loop, size, KILN_TAIL_EXACT, io[d], inner[n_inner++]));
  }
  if (n_inner > 1) {
    for (int d = 0; d < n; d++) order[d] = io[d];
    for (int k = 0; k < n_inner; k++) order[n + k] = inner[k];
    KILN_TRY(kiln_reorder(&w->s, n + n_inner, order));
  }
  for (int k = 0; k < n_inner; k++)
    KILN_TRY(k + 1 == n_inner && t->vectors > 1 ? kiln_vectorize(&w->s, inner[k])
                                                : kiln_unroll(&w->s, inner[k]));
  return KILN_OK;
}

static kiln_status lower_pointwise(kiln_lowering *w, const kiln_tiling *t) {
  kiln_symbol loops[KILN_MAX_RANK], thread;
  const int last = w->root->n_space - 1;
  for (int d = 0; d <= last; d++) loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  if (w->root->n_reduce) KILN_TRY(keep_sums(w, loops));
  KILN_TRY(cut_result(w, t, last + 1, loops));
  KILN_TRY(kiln_gpu_map_grid(w, last + 1, loops, KILN_GPU_THREADS, &thread));
  if (w->root->n_reduce)
    KILN_TRY(kiln_compute_at(&w->s, kiln_symbol_of(w->cx, "y.sums"), thread, KILN_SCOPE_LOCAL));
  for (int i = w->p->stmts.n - 2; i >= 0; i--) {
    KILN_TRY(kiln_compute_at(&w->s, tensor_of(w, w->p->stmts.data[i]), thread, KILN_SCOPE_LOCAL));
    if (t->vectors > 1) KILN_TRY(vectorize(w, w->p->stmts.data[i]));
  }
  return KILN_OK;
}

// The dims along which the root, a map that is all of the kernel, reads several elements of one
// tensor whose distance varies: neighbours read some of the same.
//
// gives: a bit a dim
static uint32_t find_shared(const kiln_lowering *w) {
  const kiln_stmt *s = w->root;
  uint32_t found = 0;
  if (w->p->stmts.n != 1 || s->n_reduce) return 0;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 1; i < loads.n && loads.n <= MAX_LOADS; i++)
    for (int j = 0; j < i; j++) {
      const kiln_expr *a = loads.data[i], *b = loads.data[j];
      if (a->u.tensor != b->u.tensor || w->p->tensors.data[a->u.tensor]->role == KILN_CONST)
        continue;
      for (int k = 0; k < a->n_args; k++) {
        const kiln_expr *apart =
            kiln_stmt_simplify(w->cx, s, kiln_sub(w->cx, a->args[k], b->args[k]));
        for (int d = 0; d < s->n_space; d++)
          if (kiln_expr_uses(apart, s->dims[d].name)) found |= 1u << d;
      }
    }
  return found;
}

// The arithmetic of a tile, relative to that of its elements one by one: common subexpressions are
// computed once.
static double share_of(const kiln_lowering *w, const int64_t *tile) {
  const kiln_stmt *s = w->root;
  const kiln_ranges r = kiln_stmt_ranges(&w->cx->scratch, s);
  const kiln_expr *all = NULL, *values[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  int64_t copies = 1;
  for (int d = 0; d < s->n_space; d++) {
    vars[d] = s->dims[d].name;
    copies *= tile[d] > 1 ? tile[d] : 1;
  }
  for (int64_t copy = 0; copy < copies; copy++) {
    int64_t rest = copy;
    for (int d = 0; d < s->n_space; d++) {
      values[d] = kiln_var(w->cx, vars[d]);
      if (tile[d] <= 1) continue;
      values[d] = kiln_add(w->cx, kiln_mul(w->cx, values[d], kiln_int(w->cx, tile[d])),
                           kiln_int(w->cx, rest % tile[d]));
      rest /= tile[d];
    }
    const kiln_expr *one =
        kiln_simplify(w->cx, kiln_expr_substitute(w->cx, s->body, s->n_space, vars, values), &r);
    all = all ? kiln_add(w->cx, all, kiln_cast(w->cx, all->dtype, one)) : one;
  }
  const double sums = (double)(copies - 1), alone = kiln_expr_cost(w->cx, s->body);
  return (kiln_expr_cost(w->cx, all) - sums + 1) / ((alone + 1) * (double)copies);
}

static bool is_in(uint32_t dims, int d) { return d >= 0 && dims >> d & 1; }

// Proposes tiles of a thread along the last two of |dims| but the contiguous one; along that one,
// if it is in |dims|, a word of elements.
static void propose_tiles(kiln_lowering *w, const kiln_tile_candidate *plain, uint32_t dims,
                          kiln_tile_candidates *out) {
  const double enough = (double)w->m->n_cores * w->m->gpu.warp * WARPS;
  const int last = w->root->n_space - 1;
  int pixel = last - 1, row;
  while (pixel >= 0 && !is_in(dims, pixel)) pixel--;
  for (row = pixel - 1; row >= 0 && !is_in(dims, row);) row--;
  const int64_t height = row < 0 ? 1 : kiln_lowering_extent(w->root, row),
                width = pixel < 0 ? 1 : kiln_lowering_extent(w->root, pixel),
                vectors = is_in(dims, last) ? word_of(w) : plain->tiling.vectors;
  for (int64_t rows = 1; rows <= MAX_TILE; rows++)
    for (int64_t pixels = 1; rows * pixels <= MAX_TILE; pixels++) {
      kiln_tile_candidate one = *plain;
      const double threads = (double)kiln_stmt_domain(w->root) / (double)(rows * pixels * vectors);
      if (rows * pixels * vectors == plain->tiling.vectors || threads < enough || width % pixels ||
          height % rows)
        continue;
      if (pixel >= 0) one.tiling.tile[pixel] = pixels;
      if (row >= 0) one.tiling.tile[row] = rows;
      if (is_in(dims, last)) one.tiling.tile[last] = vectors;
      one.cost.compute_ns *= share_of(w, one.tiling.tile);
      one.cost.ns *= kiln_tile_price_of(&one.cost) / kiln_tile_price_of(&plain->cost);
      one.tiling.tile[last] = 0;
      one.tiling.vectors = vectors;
      KILN_VEC_PUSH(w->proposed, out, one);
    }
}

static kiln_status propose_pointwise(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {0};
  if (!is_elementwise(w)) return KILN_OK;
  one.tiling.vectors = vector_of(w);
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  const uint32_t shared = find_shared(w);
  if (shared) propose_tiles(w, &one, shared, out);
  return KILN_OK;
}

const kiln_template kiln_template_gpu_pointwise = {.name = "pointwise",
                                                   .was = "threads",
                                                   .has_grids = true,
                                                   .propose = propose_pointwise,
                                                   .lower = lower_pointwise,
                                                   .by_loops = true};
