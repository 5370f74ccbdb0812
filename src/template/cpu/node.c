// The nest of a contraction: a register tile of rows x vectors, computed over the whole reduction
// by broadcasting one operand and reading packed panels of the other, then finished while in
// registers.
#include "support/integer.h"
#include "template/cpu/address.h"
#include "template/cpu/own_rows.h"
#include "template/cpu/row_panels.h"
#include "template/cpu/rows_ahead.h"

enum { MAX_CUTS = 4 }; // splits of a loop that decodes

typedef kiln_contraction contraction;
typedef kiln_contraction_axis axis;

static const kiln_buffer *buffer_named(const kiln_lowering *w, kiln_symbol name) {
  for (int i = 0; i < w->s.loops->buffers.n; i++)
    if (w->s.loops->buffers.data[i]->name == name) return w->s.loops->buffers.data[i];
  return NULL;
}

// Axes of the second operand, or of its view where one axis flattens several.
static kiln_status view_axes(contraction *k, kiln_address *out) {
  const kiln_tensor *t = k->w->p->tensors.data[k->b->u.tensor];
  if (t->role != KILN_CONST && t->def < 0 && kiln_address_read(k, k->b, out))
    return kiln_address_view(k, k->b, out);
  *out = (kiln_address){.n = k->b->n_args};
  for (int i = 0; i < out->n; i++) out->digits[i] = (kiln_digit){k->b->args[i], 1};
  return KILN_OK;
}

// The axis of the panels along which the operand is contiguous, if that is long enough for vectors;
// else the last one, the block's.
static int packing_vector(const contraction *k, const kiln_buffer *panels, const kiln_address *from,
                          const kiln_stage_axis *axes) {
  int64_t strides[KILN_MAX_DIGITS];
  if (!from->is_cut) kiln_tensor_strides(k->w->p->tensors.data[k->b->u.tensor], strides);
  for (int i = 0; from->is_cut && i < from->n; i++) strides[i] = from->digits[i].coef;
  for (int i = 1; i + 1 < panels->rank; i++)
    if (strides[axes[i].axis] == 1 && panels->extents[i] >= k->w->lanes) return i;
  return panels->rank - 1;
}

// Copies row by row into few panels at a time, as a core tracks that many write streams. The
// panels' loop, loops[0] of the |*n| around the vectors, moves inside, and is split where panels
// are many.
static kiln_status pack_by_rows(contraction *k, int last, kiln_symbol *loops, int64_t *extents,
                                int *n) {
  enum { MOST_STREAMS = 8 };
  kiln_lowering *w = k->w;
  const kiln_symbol panels = loops[0], v = loops[last];
  int64_t group = extents[0] < MOST_STREAMS ? extents[0] : MOST_STREAMS;
  while (extents[0] % group != 0) group--;
  const bool in_groups = group > 1 && group < extents[0];
  if (in_groups) {
    loops[0] = kiln_lowering_name(w, "o", panels);
    loops[last] = kiln_lowering_name(w, "i", panels);
    extents[0] /= group;
    extents[last] = group;
    KILN_TRY(kiln_split(&w->s, panels, group, KILN_TAIL_EXACT, loops[0], loops[last]));
    *n = last + 1;
  } else {
    const int64_t extent = extents[0];
    for (int i = 0; i + 1 < last; i++) {
      loops[i] = loops[i + 1];
      extents[i] = extents[i + 1];
    }
    loops[last - 1] = panels;
    extents[last - 1] = extent;
  }
  loops[*n] = v;
  return kiln_reorder(&w->s, *n + 1, loops);
}

// Packing at run time reads the operand in storage order, so that each line is read once: a
// transposing copy stores its vectors lane by lane.
static kiln_status schedule_packing(contraction *k, kiln_symbol name, kiln_symbol at,
                                    const kiln_address *from, const kiln_stage_axis *axes) {
  kiln_lowering *w = k->w;
  const kiln_buffer *panels = buffer_named(w, name);
  const int last = panels->rank - 1, v = packing_vector(k, panels, from, axes);
  kiln_symbol loops[KILN_MAX_RANK + 6], first;
  int64_t extents[KILN_MAX_RANK + 6];
  int fused, n = last;
  for (int i = 0; i <= last; i++) {
    loops[i] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, name), i);
    extents[i] = panels->extents[i];
  }
  if (v < last) {
    const kiln_symbol o = kiln_lowering_name(w, "o", loops[v]);
    loops[last + 1] = kiln_lowering_name(w, "i", loops[v]);
    KILN_TRY(kiln_split(&w->s, loops[v], w->lanes, KILN_TAIL_SHIFT, o, loops[last + 1]));
    loops[v] = o;
    extents[v] = kiln_divide_up(extents[v], w->lanes);
    KILN_TRY(kiln_reorder(&w->s, last + 2, loops));
  } else if (k->node->packs != KILN_PACKS_AS_NEEDED) {
    KILN_TRY(pack_by_rows(k, last, loops, extents, &n));
  }
  KILN_TRY(kiln_vectorize(&w->s, loops[v < last ? last + 1 : n]));
  return at ? KILN_OK : kiln_lowering_parallel(w, n, loops, extents, &first, &fused);
}

typedef struct cuts {
  kiln_symbol var;
  int n;
  int64_t factors[MAX_CUTS]; // descending
} cuts;

static void find_cut(const kiln_expr *e, void *argument) {
  cuts *c = argument;
  int64_t factor = 0;
  if ((e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) || e->has_load ||
      !kiln_expr_uses(e, c->var) || !kiln_expr_is_int(e->args[1], &factor) || factor < 2)
    return;
  int at = 0;
  while (at < c->n && c->factors[at] > factor) at++;
  if (c->n == MAX_CUTS || (at < c->n && c->factors[at] == factor)) return;
  for (int i = c->n++; i > at; i--) c->factors[i] = c->factors[i - 1];
  c->factors[at] = factor;
}

// Decodes the operand inside its copy into panels. The loop along the reduction is split at the
// definition's divisors: a scale is loaded once for its block of weights, and the fields of a word
// are extracted by constant shifts.
static kiln_status schedule_decoding(contraction *k, kiln_symbol name) {
  enum { MOST_COPIES = 16 };
  kiln_lowering *w = k->w;
  const kiln_stmt *s = k->node->decoded;
  const char *text = kiln_symbol_text(w->cx, name);
  const kiln_symbol panels = kiln_symbol_printf(w->cx, "%s.0", text),
                    lanes = kiln_symbol_printf(w->cx, "%s.2", text);
  kiln_symbol rest = kiln_symbol_printf(w->cx, "%s.1", text), loops[MAX_CUTS + 3];
  int64_t extent = k->depth;
  cuts c = {.var = s->dims[s->dims[0].name == k->v.dim].name};
  int n = 0;
  kiln_expr_visit(w->cx, s->body, find_cut, &c);
  KILN_TRY(kiln_inline(&w->s, w->p->tensors.data[s->out]->name));
  for (int i = 0; i < c.n; i++) {
    if (extent % c.factors[i] != 0) continue;
    const kiln_symbol o = kiln_lowering_name(w, "o", rest), in = kiln_lowering_name(w, "i", rest);
    KILN_TRY(kiln_split(&w->s, rest, c.factors[i], KILN_TAIL_EXACT, o, in));
    loops[n++] = o;
    if (n == 1) loops[n++] = panels;
    rest = in;
    extent = c.factors[i];
  }
  if (n == 0) loops[n++] = panels;
  loops[n++] = rest;
  loops[n++] = lanes;
  KILN_TRY(kiln_reorder(&w->s, n, loops));
  if (extent <= MOST_COPIES) KILN_TRY(kiln_unroll(&w->s, rest));
  return kiln_vectorize(&w->s, lanes);
}

static kiln_symbol panels_of(const contraction *k) {
  const char *t = kiln_symbol_text(k->w->cx, k->w->p->tensors.data[k->b->u.tensor]->name);
  return kiln_symbol_printf(k->w->cx, "%s.panels", t);
}

// Copies rows of |name| in vectors of a power of two of lanes, the last one overlapping, and
// unrolls phases and short loops over vectors: vectors of other lengths would be split up.
static kiln_status copy_in_parts(contraction *k, kiln_symbol name) {
  enum { FEW = 4 };
  kiln_lowering *w = k->w;
  const kiln_buffer *copy = buffer_named(w, name);
  const char *text = kiln_symbol_text(w->cx, name);
  const int last = copy->rank - 1;
  const kiln_symbol row = kiln_symbol_printf(w->cx, "%s.%d", text, last),
                    o = kiln_lowering_name(w, "o", row), i = kiln_lowering_name(w, "i", row);
  int64_t part = w->lanes;
  while (part > copy->extents[last]) part /= 2;
  if (part == copy->extents[last]) return kiln_vectorize(&w->s, row);
  KILN_TRY(kiln_split(&w->s, row, part, KILN_TAIL_SHIFT, o, i));
  KILN_TRY(kiln_vectorize(&w->s, i));
  if (kiln_divide_up(copy->extents[last], part) > FEW) return KILN_OK;
  KILN_TRY(kiln_unroll(&w->s, o));
  return kiln_unroll(&w->s, kiln_symbol_printf(w->cx, "%s.%d", text, last - 1));
}

// The second operand deinterleaved by |spread| along the vectors, so that strided windows read it
// with unit stride: [rest][index % spread][index / spread].
static kiln_status stage_spread(contraction *k, kiln_symbol around) {
  kiln_stage_axis axes[KILN_MAX_RANK + 1];
  const kiln_tensor *t = k->w->p->tensors.data[k->b->u.tensor];
  const kiln_symbol name = panels_of(k);
  int n = 0, v_axis = -1;
  for (int i = 0; i < k->b->n_args; i++)
    if (kiln_expr_uses(k->b->args[i], k->v.dim)) v_axis = i;
    else axes[n++] = (kiln_stage_axis){.axis = i, .outer = true};
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = k->spread};
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = k->spread, .outer = true};
  KILN_TRY(kiln_stage(&k->w->s, t->name, around, around ? KILN_SCOPE_LOCAL : KILN_SCOPE_WORKSPACE,
                      n, axes, name));
  return copy_in_parts(k, name);
}

// The second operand packed into panels [vector blocks][rest][block], those of a chunk of the
// reduction contiguous, read with unit stride; packed once if it is a constant, else at the loop
// |around| (0: before everything).
static kiln_status stage_panels(contraction *k, int64_t block, kiln_symbol around) {
  if (k->direct) return KILN_OK;
  if (k->spread > 1) return stage_spread(k, around);
  kiln_stage_axis axes[KILN_MAX_DIGITS + 3];
  kiln_address b;
  const kiln_tensor *t = k->w->p->tensors.data[k->b->u.tensor];
  int n = 0, v_axis = -1;
  KILN_TRY(view_axes(k, &b));
  for (int i = 0; i < b.n; i++)
    if (kiln_expr_uses(b.digits[i].e, k->v.dim)) v_axis = i;
  const int chunk_axis = kiln_contraction_chunk_axis(k);
  if (chunk_axis >= 0)
    axes[n++] = (kiln_stage_axis){.axis = chunk_axis, .block = k->node->step, .outer = true};
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = block, .outer = true};
  bool used[KILN_MAX_DIGITS] = {false};
  used[v_axis] = true;
  for (int pass = 0; pass < 2;
       pass++) // axes of the batch first, then those of the reduction in its order
    for (int j = 0; j < (pass ? k->c->n_reduce : 1); j++)
      for (int i = 0; i < b.n; i++) {
        if (used[i]) continue;
        bool reduces = false, now = false;
        for (int r = 0; r < k->c->n_reduce; r++) {
          bool here = kiln_expr_uses(b.digits[i].e, k->c->dims[k->c->n_space + r].name);
          reduces |= here;
          now |= here && pass && k->order[j] == r;
        }
        if (pass ? !now : reduces) continue;
        const bool is_cut = i == chunk_axis;
        used[i] = true;
        axes[n++] =
            (kiln_stage_axis){.axis = i, .block = is_cut ? k->node->step : 0, .outer = !is_cut};
      }
  const kiln_stage_axis last = axes[n - 1];
  const int64_t group = k->dot ? k->dot->group : 0;
  if (group) axes[n - 1].block = group; // an instruction takes neighbours along the reduction
  axes[n++] = (kiln_stage_axis){.axis = v_axis, .block = block, .outer = false};
  if (group) axes[n++] = (kiln_stage_axis){.axis = last.axis, .block = group, .outer = false};
  const kiln_symbol name = panels_of(k);
  const kiln_symbol at = t->role == KILN_CONST ? 0 : around;
  const kiln_scope scope = at ? KILN_SCOPE_LOCAL : KILN_SCOPE_WORKSPACE;
  KILN_TRY(kiln_stage(&k->w->s, t->name, at, scope, n, axes, name));
  if (k->node->decoded) return schedule_decoding(k, name);
  return t->role == KILN_CONST ? KILN_OK : schedule_packing(k, name, at, &b, axes);
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

// Splits a dim of the result into tiles; the tile loop goes to |outer|, the loop inside the tile to
// |inner|.
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
  push(outer, o, kiln_divide_up(d->extent, d->tile));
  push(inner, i, d->tile);
  return KILN_OK;
}

// The block of at most |fit| tiles that balances the threads and recomputes few tiles.
static int64_t even_block(const contraction *k, int64_t tiles, int64_t fit) {
  const int64_t threads = k->node->is_parallel ? k->w->n_threads : 1,
                fewest = kiln_divide_up(tiles, fit);
  int64_t best = tiles, least = INT64_MAX;
  for (int64_t n = fewest; n <= 2 * fewest && n <= tiles && fewest > 1; n++) {
    const int64_t block = kiln_divide_up(tiles, n),
                  work = kiln_divide_up(n, threads) * (block + 1); // rereading panels
    if (work >= least) continue;
    least = work;
    best = block;
  }
  return best;
}

// Loop |at| of |loops| is left inside of blocks of |block| iterations, whose loop goes to |blocks|.
static kiln_status cut_loop(contraction *k, loop_list *loops, int at, int64_t block,
                            loop_list *blocks) {
  const kiln_symbol loop = loops->loops[at], o = kiln_lowering_name(k->w, "b", loop),
                    in = kiln_lowering_name(k->w, "t", loop);
  KILN_TRY(kiln_split(&k->w->s, loop, block, KILN_TAIL_SHIFT, o, in));
  push(blocks, o, kiln_divide_up(loops->extents[at], block));
  loops->loops[at] = in;
  loops->extents[at] = block;
  return KILN_OK;
}

// Cuts the outermost tile loop of the rows into blocks whose part of the broadcast operand stays in
// half of the L2.
static kiln_status split_block(contraction *k, loop_list *rows, loop_list *blocks) {
  for (int i = 0; i < rows->n; i++) {
    double inner_bytes = k->a_bytes;
    for (int j = 0; j <= i; j++) inner_bytes /= (double)rows->extents[j];
    int64_t fit = (int64_t)(k->a_room / (inner_bytes > 1 ? inner_bytes : 1));
    if (fit < 1) { // one iteration is too large already: the whole loop goes outside
      push(blocks, rows->loops[i], rows->extents[i]);
      continue;
    }
    const int64_t block = even_block(k, rows->extents[i], fit),
                  n_blocks = kiln_divide_up(rows->extents[i], block);
    loop_list rest = {0};
    if (n_blocks > 1) KILN_TRY(cut_loop(k, rows, i, block, blocks));
    push(&rest, rows->loops[i], rows->extents[i]);
    for (int j = i + 1; j < rows->n; j++) push(&rest, rows->loops[j], rows->extents[j]);
    *rows = rest;
    return KILN_OK;
  }
  rows->n = 0;
  return KILN_OK;
}

// The same where rows are packed for a block: blocks are whole tiles, so that a tile's rows are
// those of one panel.
static kiln_status split_packed_rows(contraction *k, loop_list *rows, loop_list *inner,
                                     loop_list *blocks) {
  axis d = k->dims[k->col];
  if (d.block) {
    const kiln_symbol o = kiln_lowering_name(k->w, "b", d.loop),
                      r = kiln_lowering_name(k->w, "r", d.loop);
    KILN_TRY(kiln_split(&k->w->s, d.loop, d.block, KILN_TAIL_SHIFT, o, r));
    push(blocks, o, kiln_divide_up(d.extent, d.block));
    d.loop = r;
    d.extent = d.block;
  }
  return split_dim(k, &d, KILN_TAIL_EXACT, rows, inner);
}

static void append(loop_list *to, const loop_list *from) {
  for (int i = 0; i < from->n; i++) push(to, from->loops[i], from->extents[i]);
}

// The tile loops, outermost first, ordered so that the operand that is reread stays in the L2.
// |outer|: loops of the batch and of blocks made before.
static kiln_status order_tiles(contraction *k, const loop_list *outer, loop_list *rows,
                               loop_list *cols, loop_list *out, kiln_symbol *out_panels) {
  append(out, outer);
  if (k->keeps_b) {
    append(out, rows);
    append(out, cols);
    return KILN_OK;
  }
  if (k->a_bytes > k->a_room && !k->packs_rows) KILN_TRY(split_block(k, rows, out));
  append(out, cols);
  append(out, rows);
  if (cols->n > 0 && cols->extents[cols->n - 1] > 1) *out_panels = cols->loops[cols->n - 1];
  return KILN_OK;
}

static kiln_symbol sum_loop(const contraction *k, const char *part, kiln_symbol dim) {
  const kiln_symbol t = k->w->p->tensors.data[k->c->out]->name;
  return kiln_lowering_loop(k->w, kiln_symbol_text(k->w->cx, t), part, dim);
}

// Whether a tile reads several panels at a time.
static bool reads_streams(const contraction *k) {
  return k->panel < k->v.tile && !kiln_contraction_is_narrow(k);
}

// The loops of the sums' rows and vector in the tile; |part| is "" or "init.".
static int tile_loops(contraction *k, const char *part, kiln_symbol *loops) {
  int n = 0;
  for (int d = 0; d < k->n_dims; d++)
    if (k->dims[d].tile > 1) loops[n++] = sum_loop(k, part, k->dims[d].dim);
  const kiln_symbol v = sum_loop(k, part, k->v.dim);
  const bool in_streams = reads_streams(k) && !*part;
  if (in_streams) loops[n++] = kiln_lowering_name(k->w, "o", v);
  loops[n++] = in_streams ? kiln_lowering_name(k->w, "i", v) : v;
  return n;
}

static kiln_status split_streams(contraction *k) {
  const kiln_symbol v = sum_loop(k, "", k->v.dim);
  if (!reads_streams(k)) return KILN_OK;
  return kiln_split(&k->w->s, v, k->panel, KILN_TAIL_EXACT, kiln_lowering_name(k->w, "o", v),
                    kiln_lowering_name(k->w, "i", v));
}

static int64_t tile_rows(const contraction *k) {
  return (k->col >= 0 ? k->dims[k->col].tile : 1) * (k->row >= 0 ? k->dims[k->row].tile : 1);
}

static int64_t tile_vectors(const contraction *k) { return k->v.tile / k->w->lanes; }

// Unrolls the taps of a window, innermost loop first, as many as the emitter takes; |nest|: |n|
// reduction loops.
static kiln_status write_out_taps(contraction *k, int n, const kiln_symbol *nest) {
  enum { MOST = 500 }; // statements, loops counted
  int64_t body = 1 + tile_rows(k) * (1 + tile_vectors(k));
  for (int i = n - 1; i >= 0; i--) {
    const int64_t extent = kiln_lowering_extent(k->c, k->c->n_space + k->order[i]);
    if (extent * body > MOST) break;
    KILN_TRY(kiln_unroll(&k->w->s, nest[i]));
    body = 1 + extent * body;
  }
  return KILN_OK;
}

// Unrolls all loops but the last, which is vectorized.
static kiln_status run_in_registers(contraction *k, int n, const kiln_symbol *loops) {
  for (int i = 0; i + 1 < n; i++) KILN_TRY(kiln_unroll(&k->w->s, loops[i]));
  return kiln_vectorize(&k->w->s, loops[n - 1]);
}

// Splits the innermost of the |*n| reduction loops, of |extent|, where several steps are unrolled;
// |*out_steps|: the loop to be unrolled, or 0.
static kiln_status split_steps(contraction *k, int64_t extent, kiln_symbol *nest, int *n,
                               kiln_symbol *out_steps) {
  *out_steps = 0;
  if (!kiln_contraction_has_room_for_steps(k)) return KILN_OK;
  kiln_symbol loop = nest[--*n];
  KILN_TRY(
      kiln_lowering_split_steps(k->w, extent, tile_rows(k), tile_vectors(k), &loop, out_steps));
  if (loop) nest[(*n)++] = loop;
  if (*out_steps) nest[(*n)++] = *out_steps;
  return KILN_OK;
}

// Prefetch distance of a panel's row of vectors, in steps of the tile. A few steps cover the L2's
// latency. Memory takes three of its latencies, as when other streams load it, within three eighths
// of the L1.
static int64_t steps_ahead(const contraction *k, bool is_in_l2) {
  enum { FEW = 32, LATENCIES = 3 };
  const kiln_device *d = k->w->m->device;
  const int64_t vectors = tile_vectors(k), l1_bytes = k->w->m->l1_bytes * 3 / 8;
  if (is_in_l2 || !d) return FEW;
  const double products = (double)(tile_rows(k) * vectors * k->w->lanes),
               steps = LATENCIES * d->levels[0].latency_ns * d->unit_flops_ns[KILN_PEAK_F32] /
                       (2 * products);
  const int64_t most = l1_bytes / (vectors * k->w->m->vector_bytes);
  return steps < FEW ? FEW : steps < (double)most ? (int64_t)steps / 8 * 8 : most;
}

// The same of a panel whose numbers are widened: the fewer bytes a step takes, the more steps, as
// the lines that are in flight take as long.
static int64_t steps_ahead_widening(const contraction *k) {
  enum { HALVES = 2048, BYTES = 8192 }; // that are prefetched, of numbers of two bytes and of one
  const int64_t bytes = kiln_dtype_bytes(k->w->p->tensors.data[k->b->u.tensor]->dtype);
  return (bytes == 1 ? BYTES : HALVES) / (k->v.tile * bytes);
}

// Prefetches panels in loop |counting|, whose iterations run those of |steps|, or one where that is
// 0, if load slots are left: where a constant's panels come from beyond the L2 and are read once,
// as all rows are one tile (a hardware prefetcher keeps too few lines of one stream in flight); and
// where each tile of rows rereads them from the L2.
static kiln_status fetch_ahead(contraction *k, kiln_symbol counting, kiln_symbol steps) {
  const bool is_const = k->w->p->tensors.data[k->b->u.tensor]->role == KILN_CONST,
             is_once = kiln_contraction_is_one_tile(k);
  const bool is_far = is_once ? is_const && k->b_bytes > (double)k->w->m->l2_bytes
                              : kiln_contraction_panel_bytes(k) > (double)k->w->m->l1_bytes / 2;
  const bool widens = is_once && is_const && k->panel == k->v.tile && kiln_contraction_widens(k);
  int64_t ahead = widens ? steps_ahead_widening(k) : steps_ahead(k, !is_once), at_once = 1;
  if (k->direct || !is_far ||
      (!widens && !kiln_contraction_has_loads_to_spare(k, tile_vectors(k))) ||
      kiln_dim_extent(kiln_contraction_stepped(k)) < 4 * ahead * (k->dot ? k->dot->group : 1))
    return KILN_OK;
  if (steps) (void)kiln_expr_is_int(kiln_loops_find(k->w->s.loops, steps)->extent, &at_once);
  return kiln_prefetch(&k->w->s, panels_of(k), counting, ahead / at_once);
}

// The loop that counts the steps of the |n| reduction loops, of which the last may be |steps|,
// which is unrolled.
static kiln_symbol counting_loop(int n, const kiln_symbol *nest, kiln_symbol steps) {
  return nest[steps && n > 1 ? n - 2 : n - 1];
}

// Loops around the tile whose next iteration's part of an operand can be prefetched; 0: none.
typedef struct ahead {
  kiln_symbol panels; // over panels
  kiln_symbol rows;   // over pieces of rows
  kiln_symbol tiles;  // the innermost
} ahead;

static kiln_status ask_ahead(contraction *k, const ahead *of, kiln_symbol counting,
                             kiln_symbol steps) {
  if (of->panels && kiln_contraction_asks_in_turns(k))
    KILN_TRY(kiln_prefetch_in_turns(&k->w->s, panels_of(k), of->panels, 1, counting));
  if (of->rows) KILN_TRY(kiln_rows_ahead_ask(k, of->rows, of->tiles, counting));
  if (k->node->is_turned) KILN_TRY(kiln_rows_ahead_ask_result(k, of->tiles, counting));
  return fetch_ahead(k, counting, steps);
}

// A step of the tile becomes one instruction: |n| reduction loops, then those of the tile and of a
// group.
static kiln_status run_as_instr(contraction *k, const ahead *of, int n, kiln_symbol *nest) {
  kiln_lowering *w = k->w;
  const kiln_symbol last = nest[n - 1], group = kiln_lowering_name(w, "i", last);
  const int64_t groups = kiln_dim_extent(kiln_contraction_stepped(k)) / k->dot->group;
  kiln_symbol steps = 0;
  int n_instrs = 0;
  kiln_instr *all = w->m->target->instrs(w->cx, w->m, &n_instrs);
  kiln_instr *instr = kiln_contraction_instr(k, k->col >= 0 ? k->dims[k->col].tile : 1,
                                             tile_vectors(k), n_instrs, all);
  if (!instr)
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "there must be an instruction %s for the register tile", k->dot->family);
  nest[n - 1] = kiln_lowering_name(w, "o", last);
  KILN_TRY(kiln_split(&w->s, last, k->dot->group, KILN_TAIL_EXACT, nest[n - 1], group));
  KILN_TRY(split_steps(k, groups, nest, &n, &steps));
  const int n_tile = tile_loops(k, "", nest + n);
  nest[n + n_tile] = group;
  KILN_TRY(kiln_reorder(&w->s, n + n_tile + 1, nest));
  const kiln_symbol counting = counting_loop(n, nest, steps);
  if (steps) KILN_TRY(kiln_unroll(&w->s, steps));
  KILN_TRY(ask_ahead(k, of, counting, steps)); // before an instruction replaces the loads
  return kiln_tensorize(&w->s, nest[n], instr);
}

// The sums of a tile: |n| reduction loops, the innermost one of |extent|, and inside of them rows
// and the vector.
static kiln_status run_steps(contraction *k, int64_t extent, const ahead *of, int n,
                             kiln_symbol *nest) {
  kiln_symbol steps = 0;
  if (!k->has_own_rows) KILN_TRY(split_steps(k, extent, nest, &n, &steps));
  const int n_tile = tile_loops(k, "", nest + n);
  const kiln_symbol counting = counting_loop(n, nest, steps);
  KILN_TRY(kiln_reorder(&k->w->s, n + n_tile, nest));
  if (steps) KILN_TRY(kiln_unroll(&k->w->s, steps));
  KILN_TRY(run_in_registers(k, n_tile, nest + n));
  if (k->has_own_rows) return write_out_taps(k, n, nest);
  return ask_ahead(k, of, counting, steps);
}

// In the tile, reductions run outside, rows and the vector inside.
static kiln_status schedule_tile(contraction *k, const ahead *of, const loop_list *inner) {
  kiln_symbol nest[2 * KILN_MAX_RANK + 1];
  int n = 0;
  for (int i = 0; i < k->c->n_reduce; i++)
    nest[n++] = sum_loop(k, "", k->c->dims[k->c->n_space + k->order[i]].name);
  if (k->dot) KILN_TRY(run_as_instr(k, of, n, nest));
  else {
    KILN_TRY(split_streams(k));
    KILN_TRY(run_steps(k, kiln_dim_extent(kiln_contraction_stepped(k)), of, n, nest));
  }
  const int n_tile = tile_loops(k, "init.", nest);
  KILN_TRY(kiln_reorder(&k->w->s, n_tile, nest));
  KILN_TRY(run_in_registers(k, n_tile, nest));
  return run_in_registers(k, inner->n, inner->loops);
}

// --- the node ---

// Gives the sums a buffer of their own, and puts the result where it belongs.
static kiln_status place_result(kiln_lowering *w, const kiln_contraction_node *node) {
  const kiln_symbol t = w->p->tensors.data[node->stmt->out]->name;
  if (!node->finish) {
    const kiln_symbol sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, t));
    KILN_TRY(kiln_cache_write(&w->s, t, sums, 0, NULL));
  }
  const kiln_symbol result = node->finish ? w->p->tensors.data[node->finish->out]->name : t;
  return node->scope == KILN_SCOPE_PARAM ? KILN_OK
                                         : kiln_compute_at(&w->s, result, node->at, node->scope);
}

// Positions in the tile loops.
typedef struct places {
  int around; // loops around those of the batch
  int outer;  // loops outside of all that read a block of rows
  ahead ahead;
} places;

// Splits the tile loop of k->col, the last of |rows|, where its rows are long.
static kiln_status cut_rows_ahead(contraction *k, const loop_list *outer, loop_list *rows,
                                  places *io) {
  const int last = rows->n - 1;
  loop_list block = {0};
  if (last >= 0 && k->dims[k->col].tile < k->dims[k->col].extent) {
    const int64_t tiles = rows->extents[last], n = kiln_rows_ahead_tiles(k, tiles);
    if (n < tiles) {
      KILN_TRY(cut_loop(k, rows, last, n, &block));
      push(rows, rows->loops[last], rows->extents[last]);
      rows->loops[last] = io->ahead.rows = block.loops[0];
      rows->extents[last] = block.extents[0];
      return KILN_OK;
    }
    io->ahead.rows = last > 0       ? rows->loops[last - 1]
                     : outer->n > 0 ? outer->loops[outer->n - 1]
                                    : k->node->at;
    return KILN_OK;
  }
  io->ahead.rows = last >= 0 ? rows->loops[last] : 0;
  return KILN_OK;
}

// The result's loops: those of tiles around those inside of a tile.
static kiln_status tile_result(contraction *k, loop_list *tiles, loop_list *inner, places *out) {
  loop_list outer = {0}, batch = {0}, blocks = {0}, rows = {0}, cols = {0}, path = {0};
  *out = (places){0};
  for (int d = 0, row = 0; d < k->n_dims; d++) {
    const bool is_batch = kiln_contraction_is_batch(k, d);
    loop_list *to = is_batch ? &batch : row < k->n_around ? &outer : &rows;
    row += !is_batch;
    if (d == k->col && k->packs_rows) KILN_TRY(split_packed_rows(k, &rows, inner, &blocks));
    else KILN_TRY(split_dim(k, &k->dims[d], KILN_TAIL_SHIFT, to, inner));
  }
  out->around = outer.n;
  append(&outer, &batch);
  append(&outer, &blocks);
  out->outer = outer.n;
  if (kiln_rows_ahead_lie_apart(k)) KILN_TRY(cut_rows_ahead(k, &outer, &rows, out));
  const bool shift =
      ((k->direct || k->spread > 1) && k->v.tile <= k->v.extent) || kiln_contraction_is_narrow(k);
  KILN_TRY(split_dim(k, &k->v, shift ? KILN_TAIL_SHIFT : KILN_TAIL_GUARD, &cols, inner));
  KILN_TRY(order_tiles(k, &outer, &rows, &cols, tiles, &out->ahead.panels));
  append(&path, tiles);
  append(&path, inner);
  return kiln_reorder(&k->w->s, path.n, path.loops);
}

// Computes the sums in registers at the innermost tile loop; a tile without loops around it is the
// whole result, and is computed at the result's place. |*out_fused|: loops fused into the first
// one.
static kiln_status place_sums(contraction *k, const loop_list *tiles, kiln_symbol *io_panels,
                              kiln_node_loops *out, int *out_fused) {
  kiln_lowering *w = k->w;
  kiln_symbol first = 0;
  int fused = tiles->n > 0;
  if (k->node->is_parallel && !k->node->at)
    KILN_TRY(kiln_lowering_parallel(w, tiles->n, tiles->loops, tiles->extents, &first, &fused));
  else if (tiles->n) first = tiles->loops[0];
  *out = (kiln_node_loops){0};
  for (int i = 0; i < fused && fused > 1;
       i++) // only the innermost of fused loops steps to the next panel
    if (tiles->loops[i] == *io_panels) *io_panels = i + 1 < fused ? 0 : first;
  for (int i = 0; i < tiles->n; i++) {
    if (i < fused && out->n > 0) {
      out->extents[0] *= tiles->extents[i];
      continue;
    }
    out->loops[out->n] = i < fused ? first : tiles->loops[i];
    out->extents[out->n++] = tiles->extents[i];
  }
  *out_fused = fused;
  const kiln_symbol at = out->n ? out->loops[out->n - 1] : k->node->at;
  return kiln_compute_at(&w->s, k->sums, at, KILN_SCOPE_REGISTER);
}

// The loop over pieces of the image around the groups' loop, where tiles prefetch the next piece;
// else 0. |around|: loops around the groups'.
static kiln_symbol loop_of_pieces(const contraction *k, const kiln_node_loops *loops, int fused,
                                  int around) {
  if (!k->asks_ahead || around == 0 || k->node->at || loops->n < 2 || fused > around) return 0;
  return loops->loops[fused < around ? around - fused : 0];
}

// The innermost of the first |outer| tile loops; 0: threads share iterations inside of it.
static kiln_symbol loop_of_rows(const contraction *k, const kiln_node_loops *loops, int fused,
                                int outer) {
  if (outer == 0) return k->node->at;
  return fused > outer ? 0 : loops->loops[outer - fused];
}

// --- reductions that are too deep for panels in the L2 ---
//
// for blocks: sums = 0; for chunks of the reduction: for tiles: part = 0, part += ..., sums +=
// part; result = finish(sums). The sums of a block lie in local memory, the partial ones in
// registers.
// source: Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008

static kiln_symbol part_loop(const contraction *k, const char *part, int at) {
  return kiln_symbol_printf(k->w->cx, "%s.part.%s%d", kiln_symbol_text(k->w->cx, k->sums), part,
                            at);
}

// The widest tile, in elements, whose vectors divide a block.
static int64_t whole_vectors(const contraction *k) {
  int64_t n = tile_vectors(k);
  while (n > 1 && k->v.block % (n * k->w->lanes) != 0) n--;
  return n * k->w->lanes;
}

// A partial last vector is shifted back, and overlaps the one before.
static kiln_tail tail_of_vectors(const contraction *k) {
  return k->v.block % k->w->lanes != 0 ? KILN_TAIL_SHIFT : KILN_TAIL_EXACT;
}

// Splits the result into blocks, which the threads share, and writes a block as vectors.
static kiln_status block_result(contraction *k, kiln_symbol *out_at) {
  kiln_lowering *w = k->w;
  loop_list batch = {0}, rows = {0}, cols = {0}, outer = {0}, path = {0}, rest = {0};
  for (int d = 0; d <= k->n_dims; d++) {
    const axis *x = d < k->n_dims ? &k->dims[d] : &k->v;
    const kiln_symbol o = kiln_lowering_name(w, "o", x->loop),
                      i = kiln_lowering_name(w, "i", x->loop);
    const bool is_batch = d < k->n_dims && kiln_contraction_is_batch(k, d);
    loop_list *to = is_batch ? &batch : d < k->n_dims ? &rows : &cols;
    if (x->block == 0) {
      push(to, x->loop, x->extent);
      continue;
    }
    KILN_TRY(kiln_split(&w->s, x->loop, x->block, KILN_TAIL_SHIFT, o, i));
    push(to, o, kiln_divide_up(x->extent, x->block));
    push(&rest, i, x->block);
  }
  const bool cols_first = k->b_bytes > k->a_bytes; // the larger one should come from memory once
  append(&outer, &batch);
  append(&outer, cols_first ? &cols : &rows);
  append(&outer, cols_first ? &rows : &cols);
  append(&path, &outer);
  append(&path, &rest);
  KILN_TRY(kiln_reorder(&w->s, path.n, path.loops));
  const kiln_symbol v = rest.loops[rest.n - 1], in = kiln_lowering_name(w, "v", v);
  KILN_TRY(kiln_split(&w->s, v, whole_vectors(k), tail_of_vectors(k), 0, in));
  KILN_TRY(kiln_vectorize(&w->s, in));
  int fused = 0;
  kiln_symbol first = 0;
  if (k->node->is_parallel)
    KILN_TRY(kiln_lowering_parallel(w, outer.n, outer.loops, outer.extents, &first, &fused));
  *out_at = outer.n > fused ? outer.loops[outer.n - 1] : first;
  return KILN_OK;
}

// The loops that add the partial sums of a chunk: chunks outside, then tiles; |*out_at| is the
// innermost one around a register tile.
static kiln_status tile_chunks(contraction *k, kiln_symbol *out_at, kiln_symbol *out_panels) {
  kiln_lowering *w = k->w;
  loop_list path = {0}, tiles = {0}, inner = {0};
  push(&path, part_loop(k, "", k->c->n_space), 0);
  for (int pass = 0; pass < 2; pass++) // the vector's tiles run around those of the rows
    for (int d = 0; d <= k->n_dims; d++) {
      const axis *x = d < k->n_dims ? &k->dims[d] : &k->v;
      const int64_t block = x->block;
      const kiln_symbol loop = part_loop(k, "", d), o = kiln_lowering_name(w, "o", loop),
                        i = kiln_lowering_name(w, "i", loop);
      if ((pass == 0) != (d == k->n_dims) || block == 0) continue;
      const kiln_tail tail = block % x->tile != 0 ? KILN_TAIL_GUARD : KILN_TAIL_EXACT;
      KILN_TRY(kiln_split(&w->s, loop, x->tile, tail, o, i));
      push(&tiles, o, kiln_divide_up(block, x->tile));
      push(&inner, i, x->tile);
      if (pass == 0) *out_panels = block > x->tile ? o : part_loop(k, "", k->c->n_space);
    }
  append(&path, &tiles);
  for (int i = 1; i < inner.n; i++) push(&path, inner.loops[i], inner.extents[i]);
  push(&path, inner.loops[0], inner.extents[0]);
  KILN_TRY(kiln_reorder(&w->s, path.n, path.loops));
  *out_at = tiles.loops[tiles.n - 1];
  for (int i = 1; i < inner.n; i++) KILN_TRY(kiln_unroll(&w->s, inner.loops[i]));
  return kiln_vectorize(&w->s, inner.loops[0]);
}

// In the tile of partial sums: first zeros, then reductions outside, rows and the vector inside.
static kiln_status schedule_part(contraction *k, kiln_symbol panels) {
  const ahead of = {.panels = panels};
  kiln_symbol nest[2 * KILN_MAX_RANK];
  int n = 0;
  for (int i = 0; i < k->c->n_reduce; i++) {
    const kiln_symbol loop = sum_loop(k, "", k->c->dims[k->c->n_space + k->order[i]].name);
    nest[n++] = i + 1 < k->c->n_reduce ? loop : kiln_lowering_name(k->w, "i", loop);
  }
  KILN_TRY(run_steps(k, k->node->step, &of, n, nest));
  n = 0;
  for (int d = 0; d < k->n_dims; d++)
    if (k->dims[d].tile > 1) nest[n++] = part_loop(k, "init.", d);
  nest[n++] = part_loop(k, "init.", k->n_dims);
  return run_in_registers(k, n, nest);
}

static kiln_status clear_sums(contraction *k) {
  const kiln_symbol v = sum_loop(k, "init.", k->v.dim), in = kiln_lowering_name(k->w, "i", v);
  KILN_TRY(kiln_split(&k->w->s, v, whole_vectors(k), tail_of_vectors(k), 0, in));
  return kiln_vectorize(&k->w->s, in);
}

static kiln_status lower_deep(contraction *k) {
  kiln_lowering *w = k->w;
  const kiln_symbol loop = sum_loop(k, "", kiln_contraction_stepped(k)->name),
                    o = kiln_lowering_name(w, "o", loop), i = kiln_lowering_name(w, "i", loop);
  const kiln_symbol part = kiln_symbol_printf(w->cx, "%s.part", kiln_symbol_text(w->cx, k->sums));
  kiln_symbol nest[2 * KILN_MAX_RANK], at = 0;
  kiln_symbol panels = 0;
  int n = 0;
  KILN_TRY(kiln_split(&w->s, loop, k->node->step, KILN_TAIL_EXACT, o, i));
  nest[n++] = o;
  for (int d = 0; d < k->c->n_space; d++) nest[n++] = sum_loop(k, "", k->c->dims[d].name);
  KILN_TRY(kiln_reorder(&w->s, n, nest));
  KILN_TRY(kiln_rfactor(&w->s, o, part));
  KILN_TRY(block_result(k, &at));
  KILN_TRY(kiln_compute_at(&w->s, k->sums, at, KILN_SCOPE_LOCAL));
  KILN_TRY(tile_chunks(k, &at, &panels));
  KILN_TRY(kiln_compute_at(&w->s, part, at, KILN_SCOPE_REGISTER));
  KILN_TRY(clear_sums(k));
  if (k->node->packs == KILN_PACKS_STEPS)
    KILN_TRY(stage_panels(k, k->panel, part_loop(k, "", k->c->n_space)));
  return schedule_part(k, panels);
}

// --- operands that are decoded ---
//
// for blocks of columns: panels = their decoded columns; for tiles of rows: for tiles of the
// columns: product

// The result's loops, those of blocks outside, which the threads share: |*out_at|, the innermost of
// them. Where there are too few blocks of columns for the threads, rows are cut as well, and each
// of their blocks decodes all columns.
static kiln_status tile_decoded(contraction *k, loop_list *inner, kiln_symbol *out_at,
                                kiln_symbol *out_innermost) {
  kiln_lowering *w = k->w;
  const int threads = k->node->is_parallel ? w->n_threads : 1;
  const int64_t panel_bytes = (int64_t)kiln_contraction_panel_bytes(k),
                fit = w->m->l2_bytes / 2 / panel_bytes, tiles = k->v.extent / k->v.tile,
                block = even_block(k, tiles, fit > 1 ? fit : 1),
                n_blocks = kiln_divide_up(tiles, block);
  loop_list rows = {0}, cols = {0}, blocks = {0}, path = {0};
  kiln_symbol first = 0;
  int fused = 0;
  for (int d = 0; d < k->n_dims; d++)
    KILN_TRY(split_dim(k, &k->dims[d], KILN_TAIL_SHIFT, &rows, inner));
  KILN_TRY(split_dim(k, &k->v, KILN_TAIL_EXACT, &cols, inner));
  if (rows.n > 0 && n_blocks < threads && rows.extents[0] > 1)
    KILN_TRY(cut_loop(k, &rows, 0, kiln_divide_up(rows.extents[0], threads), &blocks));
  KILN_TRY(cut_loop(k, &cols, 0, block, &blocks));
  append(&path, &blocks);
  append(&path, &rows);
  append(&path, &cols);
  append(&path, inner);
  KILN_TRY(kiln_reorder(&w->s, path.n, path.loops));
  if (k->node->is_parallel)
    KILN_TRY(kiln_lowering_parallel(w, blocks.n, blocks.loops, blocks.extents, &first, &fused));
  *out_at = blocks.n > fused ? blocks.loops[blocks.n - 1] : first;
  *out_innermost = cols.loops[0];
  return KILN_OK;
}

static kiln_status lower_decoded(contraction *k) {
  loop_list inner = {0};
  kiln_symbol at = 0, innermost = 0;
  KILN_TRY(tile_decoded(k, &inner, &at, &innermost));
  KILN_TRY(kiln_compute_at(&k->w->s, k->sums, innermost, KILN_SCOPE_REGISTER));
  KILN_TRY(stage_panels(k, k->panel, at));
  return schedule_tile(k, &(ahead){0}, &inner);
}

kiln_status kiln_lowering_contraction_node(kiln_lowering *w, const kiln_contraction_node *node,
                                           kiln_node_loops *out) {
  contraction k;
  loop_list inner = {0}, tiles = {0};
  kiln_node_loops loops;
  places at;
  KILN_TRY(place_result(w, node));
  KILN_TRY(kiln_contraction_describe(w, node, &k));
  if (node->decoded) return lower_decoded(&k);
  const bool packs_inside = (node->pack_at || node->packs == KILN_PACKS_STEPS) && !k.direct &&
                            w->p->tensors.data[k.b->u.tensor]->role != KILN_CONST;
  if (!packs_inside) KILN_TRY(stage_panels(&k, k.panel, 0));
  if (node->step) return lower_deep(&k);
  int fused;
  KILN_TRY(tile_result(&k, &tiles, &inner, &at));
  KILN_TRY(place_sums(&k, &tiles, &at.ahead.panels, &loops, &fused));
  const kiln_symbol rows_at = k.packs_rows ? loop_of_rows(&k, &loops, fused, at.outer) : 0;
  if (rows_at) KILN_TRY(kiln_row_panels_stage(&k, rows_at));
  if (packs_inside) KILN_TRY(stage_panels(&k, k.panel, node->pack_at));
  if (out) *out = loops;
  at.ahead.tiles = loops.n > 0 ? loops.loops[loops.n - 1] : 0;
  if (!at.ahead.rows) at.ahead.rows = loop_of_pieces(&k, &loops, fused, at.around);
  return schedule_tile(&k, &at.ahead, &inner);
}
