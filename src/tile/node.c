// The nest of a contraction: a register tile of rows x vectors, computed over the whole reduction by
// broadcasting one operand and reading packed panels of the other, then finished while in registers.
#include "tile/node.h"

enum { MAX_POINTS = 8 };

typedef struct axis {
  kiln_symbol dim;  // i2
  kiln_symbol loop; // of the result: "y.i2"
  int64_t extent;
  int64_t tile; // of the register tile
} axis;

typedef struct contraction {
  kiln_lowering *w;
  const kiln_contraction_node *node;
  const kiln_stmt *c;       // writes T
  const kiln_expr *a, *b;   // a is broadcast; b holds the vector dim
  kiln_symbol sums;         // the buffer of the sums: T, or its cache where T is the result
  axis dims[KILN_MAX_RANK]; // the result's dims but the vector dim
  int n_dims;
  int row, col; // dims of the register tile (-1: none); col is the inner one
  axis v;
  bool direct;              // b is read as it lies, with unit stride
  bool point_by_point;      // so is a: vectors times vectors
  int64_t depth;            // product of the reduction's extents
  int order[KILN_MAX_RANK]; // the reduction dims, the one with the smallest stride in a last
} contraction;

static bool in_load(const kiln_expr *load, kiln_symbol dim) { return kiln_expr_uses(load, dim); }

static bool is_direct(const contraction *k, const kiln_expr *load) {
  return k->w->p->tensors.data[load->u.tensor]->role != KILN_CONST &&
         kiln_load_stride(k->w->cx, k->w->p, load, k->v.dim) == 1;
}

static bool find_operands(contraction *k) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(k->c, &a, &b)) return false;
  bool in_a = in_load(a, k->v.dim), in_b = in_load(b, k->v.dim);
  k->a = in_a ? b : a;
  k->b = in_a ? a : b;
  k->point_by_point = in_a && in_b && is_direct(k, a) && is_direct(k, b);
  return in_a != in_b || k->point_by_point;
}

static void order_reductions(contraction *k) {
  int64_t stride[KILN_MAX_RANK];
  for (int i = 0; i < k->c->n_reduce; i++) {
    int at = i;
    int64_t s = kiln_load_stride(k->w->cx, k->w->p, k->a, k->c->dims[k->c->n_space + i].name);
    for (; at > 0 && stride[at - 1] < s; at--) {
      stride[at] = stride[at - 1];
      k->order[at] = k->order[at - 1];
    }
    stride[at] = s;
    k->order[at] = i;
    k->depth *= kiln_lowering_extent(k->c, k->c->n_space + i);
  }
}

static int64_t tiles_of(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

static void choose_tile(contraction *k, int64_t *out_vectors) {
  const kiln_tile_extents extents = {k->v.extent, k->col >= 0 ? k->dims[k->col].extent : 1,
                                     k->row >= 0 ? k->dims[k->row].extent : 1, k->depth};
  const kiln_register_tile tile =
      k->node->tile.rows ? k->node->tile : kiln_tile_registers(k->w->m, &extents);
  *out_vectors = tile.vectors;
  if (k->col >= 0) k->dims[k->col].tile = tile.cols;
  if (k->row >= 0) k->dims[k->row].tile = tile.rows;
}

// Vectors times vectors: a tile of the innermost dims that only one operand has, so that each
// vector that is loaded is used by all of the other operand's.
static void choose_points(contraction *k, int64_t *out_vectors) {
  k->row = k->col = -1;
  for (int d = k->n_dims - 1; d >= 0; d--) {
    const bool in_a = in_load(k->a, k->dims[d].dim), in_b = in_load(k->b, k->dims[d].dim);
    k->dims[d].tile = 1;
    if (in_b && !in_a && k->col < 0) k->col = d;
    if (in_a && !in_b && k->row < 0) k->row = d;
  }
  int64_t rows = 1, cols = 1;
  while (rows * cols < MAX_POINTS) {
    const bool more_rows = k->row >= 0 && 2 * rows <= k->dims[k->row].extent,
               more_cols = k->col >= 0 && 2 * cols <= k->dims[k->col].extent;
    if (!more_rows && !more_cols) break;
    if (more_cols && (cols <= rows || !more_rows)) cols *= 2;
    else rows *= 2;
  }
  if (k->row >= 0) k->dims[k->row].tile = rows;
  if (k->col >= 0) k->dims[k->col].tile = cols;
  *out_vectors = k->v.extent >= 2 * k->w->lanes ? 2 : 1;
}

// The row dims that the register tile covers: the innermost ones that only the broadcast operand
// has.
static void choose_rows(contraction *k) {
  k->row = k->col = -1;
  for (int d = k->n_dims - 1; d >= 0 && k->row < 0; d--) {
    k->dims[d].tile = 1;
    if (!in_load(k->a, k->dims[d].dim) || in_load(k->b, k->dims[d].dim)) continue;
    if (k->col < 0) k->col = d;
    else k->row = d;
  }
}

static const kiln_buffer *buffer_named(const kiln_lowering *w, kiln_symbol name) {
  for (int i = 0; i < w->s.loops->buffers.n; i++)
    if (w->s.loops->buffers.data[i]->name == name) return w->s.loops->buffers.data[i];
  return NULL;
}

// The axis of the panels along which the operand lies in a piece, if that is long enough for
// vectors; else the last one, the block's.
static int packing_vector(const contraction *k, const kiln_buffer *panels,
                          const kiln_stage_axis *axes) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(k->w->p->tensors.data[k->b->u.tensor], strides);
  for (int i = 1; i + 1 < panels->rank; i++)
    if (strides[axes[i].axis] == 1 && panels->extents[i] >= k->w->lanes) return i;
  return panels->rank - 1;
}

// Packing at run time reads the operand in the order in which it lies, so that no line is read
// twice: a transposing copy writes the lanes of its vectors one by one.
static kiln_status schedule_packing(contraction *k, kiln_symbol name, const kiln_stage_axis *axes) {
  kiln_lowering *w = k->w;
  const kiln_buffer *panels = buffer_named(w, name);
  const int last = panels->rank - 1, v = packing_vector(k, panels, axes);
  kiln_symbol loops[KILN_MAX_RANK + 6], first;
  int64_t extents[KILN_MAX_RANK + 6];
  int fused;
  for (int i = 0; i <= last; i++) {
    loops[i] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, name), i);
    extents[i] = panels->extents[i];
  }
  if (v < last) {
    const kiln_symbol o = kiln_lowering_name(w, "o", loops[v]);
    loops[last + 1] = kiln_lowering_name(w, "i", loops[v]);
    KILN_TRY(kiln_split(&w->s, loops[v], w->lanes, KILN_TAIL_SHIFT, o, loops[last + 1]));
    loops[v] = o;
    extents[v] = tiles_of(extents[v], w->lanes);
    KILN_TRY(kiln_reorder(&w->s, last + 2, loops));
  }
  KILN_TRY(kiln_vectorize(&w->s, loops[v < last ? last + 1 : last]));
  return k->node->pack_at ? KILN_OK
                          : kiln_lowering_parallel(w, last, loops, extents, &first, &fused);
}

// The second operand as panels [vector blocks][rest][block], read with unit stride; made once if it
// is a constant.
static kiln_status stage_panels(contraction *k, int64_t block) {
  if (k->direct) return KILN_OK;
  kiln_stage_axis axes[KILN_MAX_RANK + 1];
  const kiln_tensor *t = k->w->p->tensors.data[k->b->u.tensor];
  int n = 0, v_axis = -1;
  for (int i = 0; i < k->b->n_args; i++)
    if (in_load(k->b->args[i], k->v.dim)) v_axis = i;
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = block, .outer = true};
  bool used[KILN_MAX_RANK] = {false};
  used[v_axis] = true;
  for (int pass = 0; pass < 2;
       pass++) // axes of the batch first, then those of the reduction in its order
    for (int j = 0; j < (pass ? k->c->n_reduce : 1); j++)
      for (int i = 0; i < k->b->n_args; i++) {
        if (used[i]) continue;
        bool reduces = false, now = false;
        for (int r = 0; r < k->c->n_reduce; r++) {
          bool here = in_load(k->b->args[i], k->c->dims[k->c->n_space + r].name);
          reduces |= here;
          now |= here && pass && k->order[j] == r;
        }
        if (pass ? !now : reduces) continue;
        used[i] = true;
        axes[n++] = (kiln_stage_axis){.axis = i, .block = 0, .outer = true};
      }
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = block, .outer = false};
  kiln_symbol name = kiln_symbol_printf(k->w->cx, "%s.panels", kiln_symbol_text(k->w->cx, t->name));
  const kiln_symbol at = t->role == KILN_CONST ? 0 : k->node->pack_at;
  const kiln_scope scope = at ? KILN_SCOPE_LOCAL : KILN_SCOPE_WORKSPACE;
  KILN_TRY(kiln_stage(&k->w->s, t->name, at, scope, n, axes, name));
  return t->role == KILN_CONST ? KILN_OK : schedule_packing(k, name, axes);
}

typedef struct loop_list {
  int n;
  kiln_symbol loops[2 * KILN_MAX_RANK];
  int64_t extents[2 * KILN_MAX_RANK];
} loop_list;

static void push(loop_list *l, kiln_symbol loop, int64_t extent) {
  l->loops[l->n] = loop;
  l->extents[l->n++] = extent;
}

// Splits a dim of the result into tiles; the tile loop goes to |outer|, the loop inside the tile to |inner|.
static kiln_status split_dim(contraction *k, const axis *d, kiln_tail tail, loop_list *outer,
                             loop_list *inner) {
  const kiln_symbol loop = d->loop, o = kiln_lowering_name(k->w, "o", loop),
                    i = kiln_lowering_name(k->w, "i", loop);
  if (d->tile >= d->extent && tail == KILN_TAIL_SHIFT) {
    push(inner, loop, d->extent);
    return KILN_OK;
  }
  if (d->tile == 1) {
    push(outer, loop, d->extent);
    return KILN_OK;
  }
  KILN_TRY(kiln_split(&k->w->s, loop, d->tile, tail, o, i));
  push(outer, o, tiles_of(d->extent, d->tile));
  push(inner, i, d->tile);
  return KILN_OK;
}

// Cuts the outermost tile loop of the rows into blocks whose part of the broadcast operand stays in
// half of the L2.
static kiln_status split_block(contraction *k, loop_list *rows, double a_bytes, loop_list *blocks) {
  for (int i = 0; i < rows->n; i++) {
    double inner_bytes = a_bytes;
    for (int j = 0; j <= i; j++) inner_bytes /= (double)rows->extents[j];
    int64_t fit = (int64_t)((double)k->w->m->l2_bytes / 2 / (inner_bytes > 1 ? inner_bytes : 1));
    if (fit < 1) { // one iteration is too large already: the whole loop goes outside
      push(blocks, rows->loops[i], rows->extents[i]);
      continue;
    }
    int64_t n_blocks = tiles_of(rows->extents[i], fit),
            block = tiles_of(rows->extents[i], n_blocks);
    loop_list rest = {0};
    if (n_blocks > 1) {
      kiln_symbol o = kiln_lowering_name(k->w, "b", rows->loops[i]),
                  in = kiln_lowering_name(k->w, "t", rows->loops[i]);
      KILN_TRY(kiln_split(&k->w->s, rows->loops[i], block, KILN_TAIL_SHIFT, o, in));
      push(blocks, o, n_blocks);
      push(&rest, in, block);
    } else push(&rest, rows->loops[i], rows->extents[i]);
    for (int j = i + 1; j < rows->n; j++) push(&rest, rows->loops[j], rows->extents[j]);
    *rows = rest;
    return KILN_OK;
  }
  rows->n = 0;
  return KILN_OK;
}

// What the nest reads of an operand, at most the whole of it.
static double bytes_of(const contraction *k, const kiln_expr *load) {
  const kiln_tensor *t = k->w->p->tensors.data[load->u.tensor];
  double elems = in_load(load, k->v.dim) ? (double)k->v.extent : 1;
  for (int d = 0; d < k->n_dims; d++)
    if (in_load(load, k->dims[d].dim)) elems *= (double)k->dims[d].extent;
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    if (in_load(load, k->c->dims[r].name)) elems *= (double)kiln_lowering_extent(k->c, r);
  const double all = (double)kiln_tensor_elems(t);
  return (elems < all ? elems : all) * kiln_dtype_bytes(t->dtype);
}

static void append(loop_list *to, const loop_list *from) {
  for (int i = 0; i < from->n; i++) push(to, from->loops[i], from->extents[i]);
}

// The tile loops from the outside, so that the operand that is read again stays in the L2.
static kiln_status order_tiles(contraction *k, loop_list *batch, loop_list *rows, loop_list *cols,
                               loop_list *out) {
  double half = (double)k->w->m->l2_bytes / 2, a = bytes_of(k, k->a), b = bytes_of(k, k->b);
  for (int i = 0; i < batch->n; i++) {
    a /= (double)batch->extents[i];
    b /= (double)batch->extents[i];
  }
  append(out, batch);
  if (b <= half || k->point_by_point) {
    append(out, rows);
    append(out, cols);
  } else if (a <= half) {
    append(out, cols);
    append(out, rows);
  } else {
    KILN_TRY(split_block(k, rows, a, out));
    append(out, cols);
    append(out, rows);
  }
  return KILN_OK;
}

static kiln_symbol sum_loop(const contraction *k, const char *part, kiln_symbol dim) {
  const kiln_symbol t = k->w->p->tensors.data[k->c->out]->name;
  return kiln_lowering_loop(k->w, kiln_symbol_text(k->w->cx, t), part, dim);
}

// The loops of the sums' rows and vector in the tile; |part| is "" or "init.".
static int tile_loops(contraction *k, const char *part, kiln_symbol *loops) {
  int n = 0;
  for (int d = 0; d < k->n_dims; d++)
    if (k->dims[d].tile > 1) loops[n++] = sum_loop(k, part, k->dims[d].dim);
  loops[n++] = sum_loop(k, part, k->v.dim);
  return n;
}

// Unrolls all loops but the last, which is vectorized.
static kiln_status run_in_registers(contraction *k, int n, const kiln_symbol *loops) {
  for (int i = 0; i + 1 < n; i++) KILN_TRY(kiln_unroll(&k->w->s, loops[i]));
  return kiln_vectorize(&k->w->s, loops[n - 1]);
}

// In the tile, reductions run outside, rows and the vector inside.
static kiln_status schedule_tile(contraction *k, const loop_list *inner) {
  kiln_symbol nest[2 * KILN_MAX_RANK];
  int n = 0;
  for (int i = 0; i < k->c->n_reduce; i++)
    nest[n++] = sum_loop(k, "", k->c->dims[k->c->n_space + k->order[i]].name);
  int n_tile = tile_loops(k, "", nest + n);
  KILN_TRY(kiln_reorder(&k->w->s, n + n_tile, nest));
  KILN_TRY(run_in_registers(k, n_tile, nest + n));
  n_tile = tile_loops(k, "init.", nest);
  KILN_TRY(kiln_reorder(&k->w->s, n_tile, nest));
  KILN_TRY(run_in_registers(k, n_tile, nest));
  return run_in_registers(k, inner->n, inner->loops);
}

// --- the node ---

// The loop of the result over dim |d|, and its extent at the place.
static kiln_status find_axis(contraction *k, int d, axis *out) {
  kiln_lowering *w = k->w;
  const kiln_stmt *f = k->node->finish;
  const char *result = kiln_symbol_text(w->cx, w->p->tensors.data[f ? f->out : k->c->out]->name);
  *out = (axis){.dim = k->c->dims[d].name, .tile = 1};
  out->loop = k->node->loops[d] ? k->node->loops[d]
              : f               ? kiln_lowering_loop(w, result, "", f->dims[d].name)
                                : kiln_symbol_printf(w->cx, "%s.copy.%d", result, d);
  const kiln_loop *l = kiln_loops_find(w->s.loops, out->loop);
  if (l && kiln_expr_is_int(l->extent, &out->extent)) return KILN_OK;
  return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                   "loop %s must be there, with a constant extent",
                   kiln_symbol_text(w->cx, out->loop));
}

// Gives the sums a buffer of their own, and puts the result where it belongs.
static kiln_status place_result(contraction *k) {
  kiln_lowering *w = k->w;
  const kiln_contraction_node *node = k->node;
  const kiln_symbol t = w->p->tensors.data[k->c->out]->name;
  k->sums = t;
  if (!node->finish) {
    k->sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, t));
    KILN_TRY(kiln_cache_write(&w->s, t, k->sums, 0, NULL));
  }
  const kiln_symbol result = node->finish ? w->p->tensors.data[node->finish->out]->name : t;
  return node->scope == KILN_SCOPE_PARAM ? KILN_OK
                                         : kiln_compute_at(&w->s, result, node->at, node->scope);
}

static kiln_status describe(contraction *k) {
  kiln_lowering *w = k->w;
  const kiln_stmt *f = k->node->finish;
  if (k->c->n_space == 0 || (f && f->n_space != k->c->n_space))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "must have dims, those of the map behind it");
  k->n_dims = k->c->n_space - 1;
  for (int d = 0; d < k->n_dims; d++) KILN_TRY(find_axis(k, d, &k->dims[d]));
  KILN_TRY(find_axis(k, k->n_dims, &k->v));
  if (!find_operands(k))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "one operand must have the contiguous dim");
  order_reductions(k);
  return KILN_OK;
}

static void choose(contraction *k) {
  int64_t vectors;
  if (k->point_by_point) choose_points(k, &vectors);
  else {
    choose_rows(k);
    choose_tile(k, &vectors);
  }
  k->v.tile = vectors * k->w->lanes;
  k->direct = is_direct(k, k->b);
}

// The result's loops: those of tiles around those inside of a tile.
static kiln_status tile_result(contraction *k, loop_list *tiles, loop_list *inner) {
  loop_list batch = {0}, rows = {0}, cols = {0}, path = {0};
  for (int d = 0; d < k->n_dims; d++)
    KILN_TRY(split_dim(k, &k->dims[d], KILN_TAIL_SHIFT,
                       in_load(k->b, k->dims[d].dim) && d != k->col ? &batch : &rows, inner));
  const bool shift = k->direct && k->v.tile <= k->v.extent;
  KILN_TRY(split_dim(k, &k->v, shift ? KILN_TAIL_SHIFT : KILN_TAIL_GUARD, &cols, inner));
  KILN_TRY(order_tiles(k, &batch, &rows, &cols, tiles));
  append(&path, tiles);
  append(&path, inner);
  return kiln_reorder(&k->w->s, path.n, path.loops);
}

// A tile of no loops but those in registers is the whole result: it is computed where the result is.
static kiln_status place_sums(contraction *k, const loop_list *tiles, kiln_node_loops *out) {
  kiln_lowering *w = k->w;
  kiln_symbol first = 0;
  int fused = tiles->n > 0;
  if (k->node->is_parallel && !k->node->at)
    KILN_TRY(kiln_lowering_parallel(w, tiles->n, tiles->loops, tiles->extents, &first, &fused));
  else if (tiles->n) first = tiles->loops[0];
  *out = (kiln_node_loops){0};
  for (int i = 0; i < tiles->n; i++) {
    if (i < fused && out->n > 0) {
      out->extents[0] *= tiles->extents[i];
      continue;
    }
    out->loops[out->n] = i < fused ? first : tiles->loops[i];
    out->extents[out->n++] = tiles->extents[i];
  }
  const kiln_symbol at = out->n ? out->loops[out->n - 1] : k->node->at;
  return kiln_compute_at(&w->s, k->sums, at, KILN_SCOPE_REGISTER);
}

kiln_status kiln_lowering_contraction_node(kiln_lowering *w, const kiln_contraction_node *node,
                                           kiln_node_loops *out) {
  contraction k = {.w = w, .node = node, .c = node->stmt, .depth = 1};
  loop_list inner = {0}, tiles = {0};
  kiln_node_loops loops;
  KILN_TRY(place_result(&k));
  KILN_TRY(describe(&k));
  choose(&k);
  const bool packs_inside =
      node->pack_at && !k.direct && w->p->tensors.data[k.b->u.tensor]->role != KILN_CONST;
  if (!packs_inside) KILN_TRY(stage_panels(&k, k.v.tile));
  KILN_TRY(tile_result(&k, &tiles, &inner));
  KILN_TRY(place_sums(&k, &tiles, &loops));
  if (packs_inside) KILN_TRY(stage_panels(&k, k.v.tile));
  if (out) *out = loops;
  return schedule_tile(&k, &inner);
}
