// Operands of a contraction, its register tile, its blocks, and its cost.
#include "support/integer.h"
#include "template/cpu/contraction.h"
#include "template/cpu/interleaved.h"
#include "template/cpu/own_rows.h"
#include "tile/panels.h"
#include "template/cpu/row_panels.h"

#include <math.h>
#include <string.h>

enum { MAX_POINTS = 8, PAGE_BYTES = 4096 };

static const double L2_USABLE = 0.6; // by blocks that were chosen for it
// As KILN_MISS_SHARE, where tiles prefetch the next panel.
static const double MISS_SHARE_IN_TURNS = 0.1;

static const double INTEGER_RATE = 0.3; // rate of products of widened integers to those of f32

typedef kiln_contraction contraction;
typedef kiln_contraction_axis axis;

static bool is_direct(const contraction *k, const kiln_expr *load) {
  return k->w->p->tensors.data[load->u.tensor]->role != KILN_CONST &&
         kiln_load_stride(k->w->cx, k->w->p, load, k->v.dim) == 1;
}

static bool find_operands(contraction *k) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(k->c, &a, &b)) return false;
  bool in_a = kiln_expr_uses(a, k->v.dim), in_b = kiln_expr_uses(b, k->v.dim);
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

// --- narrow types ---

// clang-format off
static const kiln_dot dots[] = {
  {"vpdpbusd",     KILN_U8,   KILN_I8,   KILN_I32, 4, 64, KILN_PEAK_INT8, 1,   0, false, {0, 0, 0, 0}},
  {"vpdpbusd.vex", KILN_U8,   KILN_I8,   KILN_I32, 4, 32, KILN_PEAK_INT8, 1,   0, false, {0, 0, 0, 0}},
  {"vpmaddubsw",   KILN_U8,   KILN_I8,   KILN_I32, 4, 32, KILN_PEAK_F32,  1.9, 2, true,  {2, 3, 0, 0}},
  {"vpmaddwd",     KILN_U8,   KILN_I8,   KILN_I32, 4, 32, KILN_PEAK_F32,  1.2, 4, false, {2, 4, 3, 2}},
  {"vpmaddwd.16",  KILN_I16,  KILN_I8,   KILN_I32, 2, 32, KILN_PEAK_F32,  1.4, 2, false, {1, 2, 1, 0}},
  {"vpdpwssd",     KILN_I16,  KILN_I16,  KILN_I32, 2, 64, KILN_PEAK_INT8, 1,   0, false, {0, 0, 0, 0}},
  {"vdpbf16ps",    KILN_BF16, KILN_BF16, KILN_F32, 2, 64, KILN_PEAK_BF16, 1,   0, false, {0, 0, 0, 0}},
  {"sdot",         KILN_I8,   KILN_I8,   KILN_I32, 4, 16, KILN_PEAK_INT8, 1,   0, false, {0, 0, 0, 0}},
};
// clang-format on

static kiln_instr *find_instr(kiln_ctx *cx, const kiln_dot *d, int64_t rows, int64_t vectors, int n,
                              kiln_instr *all) {
  const char *name = kiln_arena_printf(&cx->perm, "%s.%dx%d", d->family, (int)rows, (int)vectors);
  for (int i = 0; i < n; i++)
    if (strcmp(all[i].name, name) == 0 && all[i].is_there) return &all[i];
  return NULL;
}

kiln_instr *kiln_contraction_instr(const contraction *k, int64_t rows, int64_t vectors, int n,
                                   kiln_instr *all) {
  return find_instr(k->w->cx, k->dot, rows, vectors, n, all);
}

// The machine's first instruction for operands of these types, |b| being the weights.
static const kiln_dot *dot_for(kiln_ctx *cx, const kiln_machine *m, const kiln_facts *facts,
                               kiln_dtype a, const kiln_tensor *b, kiln_dtype sum, int64_t extent) {
  const bool is_small = kiln_fact_of(facts, b->id).is_small;
  int n = 0;
  kiln_instr *all = NULL;
  for (size_t i = 0; i < KILN_LEN(dots); i++) {
    const kiln_dot *d = &dots[i];
    if (d->a != a || d->b != b->dtype || d->sum != sum || (d->wants_small && !is_small) ||
        d->vector_bytes != m->vector_bytes || extent % d->group != 0)
      continue;
    if (!all) all = m->target->instrs(cx, m, &n);
    if (find_instr(cx, d, 1, 1, n, all)) return d;
  }
  return NULL;
}

bool kiln_contraction_wants_wide(kiln_ctx *cx, const kiln_machine *m, const kiln_facts *facts,
                                 const kiln_tensor *a, const kiln_tensor *b) {
  if (a->dtype != KILN_U8 || b->dtype != KILN_I8 || b->role != KILN_CONST || !m->features)
    return false;
  const kiln_dot *narrow = dot_for(cx, m, facts, KILN_U8, b, KILN_I32, 0),
                 *wide = dot_for(cx, m, facts, KILN_I16, b, KILN_I32, 0);
  return narrow && wide && narrow->peak == wide->peak && wide->rate > narrow->rate;
}

// The dot-product instruction for these operands: the reduction is contiguous in the broadcast one,
// in whole groups; the other one, a constant, is packed in groups.
static const kiln_dot *find_dot(const contraction *k) {
  const kiln_lowering *w = k->w;
  const kiln_tensor *a = w->p->tensors.data[k->a->u.tensor],
                    *b = w->p->tensors.data[k->b->u.tensor];
  if (k->point_by_point || b->role != KILN_CONST || k->c->n_reduce == 0 || k->node->step ||
      k->v.extent < w->lanes)
    return NULL;
  const kiln_dim *last = kiln_contraction_stepped(k);
  if (!w->m->features || kiln_load_stride(w->cx, w->p, k->a, last->name) != 1) return NULL;
  return dot_for(w->cx, w->m, w->facts, a->dtype, b, k->c->body->dtype, kiln_dim_extent(last));
}

// Stride of the broadcast operand along a dim, in bytes; 0: unknown. A block of a tensor inside of
// a kernel counts as the whole.
static int64_t apart(const contraction *k, int d) {
  const kiln_tensor *t = k->w->p->tensors.data[k->a->u.tensor];
  if (d < 0) return 0;
  const int64_t stride = kiln_load_stride(k->w->cx, k->w->p, k->a, k->dims[d].dim);
  return stride == INT64_MAX ? 0 : stride * kiln_dtype_bytes(t->dtype);
}

// The same along the stepped reduction dim.
static int64_t step_bytes(const contraction *k) {
  if (k->c->n_reduce == 0) return 0;
  const int64_t stride =
      kiln_load_stride(k->w->cx, k->w->p, k->a, kiln_contraction_stepped(k)->name);
  const kiln_tensor *t = k->w->p->tensors.data[k->a->u.tensor];
  return stride == INT64_MAX ? 0 : stride * kiln_dtype_bytes(t->dtype);
}

// Panel widths that are allowed, in vectors: a mask as in kiln_tile_extents.
static uint32_t panels_of(const contraction *k) {
  return k->node->keeps_panels ? kiln_panels_plain(kiln_fact_of(k->w->facts, k->b->u.tensor).panels)
                               : 0;
}

bool kiln_contraction_wants_panels(const contraction *k) {
  return kiln_panels_lack(kiln_fact_of(k->w->facts, k->b->u.tensor).panels, k->panel / k->w->lanes);
}

// One row dim, and at most as many vectors as there are instructions for.
static void choose_dot_tile(contraction *k, int64_t *out_vectors) {
  enum { MAX_VECTORS = 4 };
  const int64_t fit = k->v.extent / k->w->lanes; // a whole tile of the result at least
  const kiln_tile_extents extents = {(fit < MAX_VECTORS ? fit : MAX_VECTORS) * k->w->lanes,
                                     k->col >= 0 ? k->dims[k->col].piece : 1,
                                     1,
                                     k->depth / k->dot->group,
                                     apart(k, k->col),
                                     0,
                                     panels_of(k),
                                     false,
                                     k->dot->work,
                                     0};
  kiln_machine m = *k->w->m;
  m.n_vector_regs -= k->dot->temporaries;
  const kiln_register_tile tile = kiln_tile_registers(&m, &extents);
  *out_vectors = tile.vectors;
  if (k->col >= 0) k->dims[k->col].tile = tile.cols;
  k->efficiency = tile.efficiency * k->dot->rate;
}

// Accumulators of a block: a quarter of the L2.
static int64_t sums_of_block(const contraction *k) { return k->w->m->l2_bytes / 16; }

// Whether blocks of all vectors and a few rows divide the rows and use more than half of the room
// for accumulators.
static bool has_blocks_of_vectors(const contraction *k, const kiln_register_tile *t) {
  const int64_t cols = k->col >= 0 ? k->dims[k->col].extent : 1,
                rows = k->row >= 0 ? k->dims[k->row].extent : 1,
                most = sums_of_block(k) / (k->v.extent * cols);
  int64_t block = most < rows ? most / t->rows * t->rows : rows;
  while (block > 0 && rows % block != 0) block -= t->rows;
  return cols % t->cols == 0 && rows % t->rows == 0 && (block == rows || 2 * block > most) &&
         block > 0;
}

// The tile of a stepped reduction: its vectors divide their dim, unless wider tiles with a partial
// last one cost little more and the even tile has just enough accumulators (8) to hide the FMA
// latency, so that it stalls on each late operand.
static kiln_register_tile tile_of_steps(const contraction *k, const kiln_tile_extents *e) {
  enum { LEAST = 8, VECTORS = 3, MANY = 8 };
  static const double late = 1.04;
  const kiln_machine *m = k->w->m;
  const kiln_register_tile even = kiln_tile_registers_even(m, e);
  const kiln_register_tile wide = {.rows = even.rows, .cols = even.cols, .vectors = VECTORS};
  const int64_t rows = even.rows * even.cols, width = VECTORS * k->w->lanes;
  if (k->w->p->tensors.data[k->b->u.tensor]->role != KILN_CONST || even.vectors >= VECTORS ||
      rows * even.vectors > LEAST || rows * VECTORS + VECTORS + 1 > m->n_vector_regs ||
      e->v < MANY * width || e->v % k->w->lanes != 0 || !has_blocks_of_vectors(k, &even))
    return even;
  const kiln_register_tile one = kiln_tile_given(m, e, &wide);
  return one.cycles < even.cycles * late ? one : even;
}

static void choose_tile(contraction *k, int64_t *out_vectors) {
  const kiln_tile_extents extents = {k->v.extent,
                                     k->col >= 0 ? k->dims[k->col].piece : 1,
                                     k->row >= 0 ? k->dims[k->row].piece : 1,
                                     k->depth,
                                     apart(k, k->col),
                                     apart(k, k->row),
                                     panels_of(k),
                                     k->packs_rows,
                                     {0, 0, 0, 0},
                                     step_bytes(k)};
  const kiln_register_tile tile = k->node->tile.rows
                                      ? kiln_tile_given(k->w->m, &extents, &k->node->tile)
                                  : k->node->step    ? tile_of_steps(k, &extents)
                                  : k->node->decoded ? kiln_tile_registers_exact(k->w->m, &extents)
                                                     : kiln_tile_registers(k->w->m, &extents);
  *out_vectors = tile.vectors;
  k->efficiency = tile.efficiency;
  if (k->col >= 0) k->dims[k->col].tile = tile.cols;
  if (k->row >= 0) k->dims[k->row].tile = tile.rows;
}

// Elementwise products of vectors: tiles the innermost dims that only one operand has, so that each
// loaded vector is multiplied by all of the other operand's.
static void choose_points(contraction *k, int64_t *out_vectors) {
  k->row = k->col = -1;
  for (int d = k->n_dims - 1; d >= 0; d--) {
    const bool in_a = kiln_expr_uses(k->a, k->dims[d].dim),
               in_b = kiln_expr_uses(k->b, k->dims[d].dim);
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
  k->efficiency =
      (double)(rows * cols) / (double)(rows * cols + rows + cols); // loads take issue slots, too
}

bool kiln_contraction_has_loads_to_spare(const contraction *k, int64_t vectors) {
  const int64_t rows =
      (k->col >= 0 ? k->dims[k->col].tile : 1) * (k->row >= 0 ? k->dims[k->row].tile : 1);
  return 4 * (rows + 2 * vectors) <= 3 * rows * vectors;
}

// Whether windows slide along dim |d| of the tile: a step reads the element that a later step reads
// in the row before.
static bool slides_along(const contraction *k, int d) {
  const int64_t row = d < 0 || k->dims[d].tile == 1 ? 0 : apart(k, d), step = step_bytes(k);
  return row > 0 && step > 0 && row % step == 0 &&
         row / step < kiln_dim_extent(kiln_contraction_stepped(k));
}

bool kiln_contraction_has_room_for_steps(const contraction *k) {
  const int64_t rows = (k->col >= 0 ? k->dims[k->col].tile : 1) *
                       (k->row >= 0 ? k->dims[k->row].tile : 1),
                vectors = k->v.tile / k->w->lanes;
  return (!slides_along(k, k->col) && !slides_along(k, k->row)) ||
         rows * vectors + vectors + rows + 1 <= k->w->m->n_vector_regs;
}

// The row dims that the register tile covers: the innermost ones that only the broadcast operand
// has.
static void choose_rows(contraction *k) {
  k->row = k->col = -1;
  for (int d = k->n_dims - 1; d >= 0 && k->row < 0; d--) {
    k->dims[d].tile = 1;
    if (!kiln_expr_uses(k->a, k->dims[d].dim) || kiln_expr_uses(k->b, k->dims[d].dim)) continue;
    if (k->col < 0) k->col = d;
    else k->row = d;
  }
  if (k->col >= 0) return;
  k->col = kiln_own_rows_dim(k);
  k->has_own_rows = k->col >= 0;
}

// Bytes of an operand that the nest reads, at most all of it.
static double read_bytes(const contraction *k, const kiln_expr *load) {
  const kiln_tensor *t = k->w->p->tensors.data[load->u.tensor];
  double elems = kiln_expr_uses(load, k->v.dim) ? (double)k->v.extent : 1;
  for (int d = 0; d < k->n_dims; d++)
    if (kiln_expr_uses(load, k->dims[d].dim)) elems *= (double)k->dims[d].extent;
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    if (kiln_expr_uses(load, k->c->dims[r].name)) elems *= (double)kiln_lowering_extent(k->c, r);
  const double all = (double)kiln_tensor_elems(t);
  return (elems < all ? elems : all) * kiln_dtype_bytes(t->dtype);
}

// Bytes that a block of packed rows of the broadcast operand may take.
static double room_of_rows(const contraction *k) { return (double)k->w->m->l2_bytes / 2; }

// The loop of the result over dim |d|, and its extent at the place.
static kiln_status find_axis(contraction *k, int d, axis *out) {
  kiln_lowering *w = k->w;
  const kiln_stmt *f = k->node->finish;
  const char *result = kiln_symbol_text(w->cx, w->p->tensors.data[f ? f->out : k->c->out]->name);
  *out = (axis){.dim = k->c->dims[d].name, .tile = 1};
  out->loop = k->node->loops[d] ? k->node->loops[d]
              : f               ? kiln_lowering_loop(w, result, "", f->dims[d].name)
                                : kiln_symbol_printf(w->cx, "%s.copy.%d", result, d);
  out->extent = kiln_lowering_extent(k->c, d);
  const kiln_loop *l = w->s.loops ? kiln_loops_find(w->s.loops, out->loop) : NULL;
  if (w->s.loops && !(l && kiln_expr_is_int(l->extent, &out->extent)))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "loop %s must be there, with a constant extent",
                     kiln_symbol_text(w->cx, out->loop));
  out->piece = k->node->pieces[d] ? k->node->pieces[d] : out->extent;
  return KILN_OK;
}

// The operands' bytes, for one index of the batch dims, and whether the other operand stays in the
// L2.
static void measure_operands(contraction *k) {
  k->a_bytes = read_bytes(k, k->a);
  k->b_bytes = read_bytes(k, k->b);
  for (int d = 0; d < k->n_dims; d++) {
    if (!kiln_contraction_is_batch(k, d)) continue;
    k->a_bytes /= (double)k->dims[d].extent;
    k->b_bytes /= (double)k->dims[d].extent;
  }
  k->keeps_b = k->b_bytes <= (double)k->w->m->l2_bytes / 2 || k->point_by_point;
}

// Rows are copied where a loop runs over blocks of them, which must be whole tiles.
static bool has_blocks_of_rows(const contraction *k) {
  return k->node->at || k->a_bytes > room_of_rows(k);
}
// Whether packing rows pays: a tile's rows are reread from the L2, and blocks are whole tiles that
// fit there beside a panel of the other operand.
static bool gains_by_rows(const contraction *k, int64_t vectors) {
  const axis *rows = &k->dims[k->col];
  const int64_t tile = 4 * k->depth * rows->tile, panel = 4 * k->depth * vectors * k->w->lanes;
  return tile > k->w->m->l1_bytes / 4 && panel <= k->w->m->l2_bytes / 2 &&
         (rows->extent % rows->tile == 0 || k->a_bytes > room_of_rows(k));
}

bool kiln_contraction_widens(const contraction *k) {
  const kiln_dtype t = k->w->p->tensors.data[k->b->u.tensor]->dtype;
  return kiln_dtype_is_float(k->c->body->dtype) && !k->dot &&
         kiln_dtype_bytes(t) < kiln_dtype_bytes(k->c->body->dtype);
}

static bool fits_registers(const contraction *k, int64_t vectors, int64_t loaded) {
  const int64_t rows = kiln_contraction_rows(k);
  return rows * vectors + (rows > 1 ? loaded : 0) + 1 <= k->w->m->n_vector_regs;
}

// One stream of numbers that are widened: whole lines in each step, as many accumulators as hide
// the additions' latency.
static void choose_wide_panel(contraction *k, int64_t *io_vectors) {
  enum { MOST_VECTORS = 8 };
  const int64_t whole = k->v.extent / k->w->lanes;
  for (int64_t n = MOST_VECTORS; n > *io_vectors; n--) {
    if (whole % n != 0 || !fits_registers(k, n, n)) continue;
    k->panel = n * k->w->lanes;
    *io_vectors = n;
    return;
  }
}

// Where one tile has all rows, it reads a constant from beyond the L2 once, bound by the lines in
// flight: it reads several panels side by side, each a stream of a hardware prefetcher. A panel is
// one, two or three vectors. Numbers that are widened take so many instructions a line that too few
// lines are in flight all the same: they are prefetched, from one panel.
static void choose_streams(contraction *k, int64_t *io_vectors) {
  enum { MOST_STREAMS = 4, MOST_VECTORS = 3 };
  const uint32_t allowed = panels_of(k);
  const int64_t whole = k->v.extent / k->w->lanes;
  k->panel = *io_vectors * k->w->lanes;
  if (k->w->p->tensors.data[k->b->u.tensor]->role != KILN_CONST ||
      k->b_bytes <= k->w->m->l2_bytes || !kiln_contraction_is_one_tile(k) ||
      kiln_contraction_has_loads_to_spare(k, *io_vectors) || k->dot || k->node->step ||
      k->node->decoded || k->node->tile.rows || k->v.extent % k->w->lanes != 0)
    return;
  if (kiln_contraction_widens(k) && !allowed) {
    choose_wide_panel(k, io_vectors);
    return;
  }
  for (int64_t streams = MOST_STREAMS; streams > 1; streams--)
    for (int64_t n = MOST_VECTORS; n > 0; n--) {
      const int64_t vectors = n * streams;
      if ((allowed && !(allowed >> n & 1)) || !fits_registers(k, vectors, n) ||
          whole % vectors != 0)
        continue;
      k->panel = n * k->w->lanes;
      *io_vectors = vectors;
      return;
    }
}

bool kiln_contraction_is_narrow(const contraction *k) {
  return k->v.extent < k->w->lanes && !k->dot;
}

static void choose(contraction *k) {
  int64_t vectors;
  if (k->point_by_point) choose_points(k, &vectors);
  else choose_rows(k);
  measure_operands(k);
  if (k->has_own_rows) {
    vectors = kiln_own_rows_choose(k, &k->efficiency);
    k->spread = kiln_own_rows_step(k, k->b);
  } else if (!k->point_by_point) {
    k->dot = find_dot(k);
    k->packs_rows = has_blocks_of_rows(k) && kiln_row_panels_pay(k);
    if (k->dot) choose_dot_tile(k, &vectors);
    else choose_tile(k, &vectors);
    if (k->packs_rows && !gains_by_rows(k, vectors)) {
      k->packs_rows = false;
      choose_tile(k, &vectors);
    }
  }
  if (!k->point_by_point && !k->dot && kiln_dtype_is_int(k->c->body->dtype))
    k->efficiency *= INTEGER_RATE;
  choose_streams(k, &vectors);
  k->v.tile = vectors * k->w->lanes;
  if (kiln_contraction_is_narrow(k)) k->panel = k->v.extent;
  k->direct = is_direct(k, k->b) && k->node->packs == KILN_PACKS_AS_NEEDED && !k->node->decoded;
}

// The multiple of |tile| up to |most| that covers |extent| with the least waste, counting
// |per_block| more rows for each block and the balance of |threads|; the largest among equals.
static int64_t fit_block(int64_t extent, int64_t tile, int64_t most, int64_t per_block,
                         int64_t threads) {
  int64_t best = tile, least = INT64_MAX;
  for (int64_t b = tile; b <= extent && (b <= most || b == tile); b += tile) {
    const int64_t blocks = kiln_divide_up(extent, b),
                  covered = kiln_divide_up(blocks, threads) * (b + per_block);
    if (covered > least) continue;
    least = covered;
    best = b;
  }
  return best;
}

int64_t kiln_contraction_rows(const contraction *k) {
  return (k->col >= 0 ? k->dims[k->col].extent : 1) * (k->row >= 0 ? k->dims[k->row].extent : 1);
}

bool kiln_contraction_is_one_tile(const contraction *k) {
  return (k->col < 0 || k->dims[k->col].extent <= k->dims[k->col].tile) &&
         (k->row < 0 || k->dims[k->row].extent <= k->dims[k->row].tile);
}

enum { ROWS_OF_READING = 4, ROWS_OF_PACKING = 20 }; // overhead of a block, in rows of products

// A block of the broadcast operand takes a third of the L2, its sums a quarter; where the other
// operand is packed for each block, blocks are one panel wide, which all rows read while it stays.
static void choose_blocks(contraction *k) {
  const int64_t per_block = k->node->packs == KILN_PACKS_STEPS ? ROWS_OF_PACKING : ROWS_OF_READING;
  const int64_t l2 = k->w->m->l2_bytes;
  const bool is_ragged = k->v.extent % k->v.tile != 0; // then a block has all vectors
  int64_t rows = l2 / 3 / (4 * k->node->step), sums = sums_of_block(k);
  if (is_ragged && rows > sums / k->v.extent) rows = sums / k->v.extent;
  const int tiled[] = {k->col, k->row};
  for (int i = 0; i < 2; i++) {
    if (tiled[i] < 0) continue;
    axis *x = &k->dims[tiled[i]];
    x->block = fit_block(x->extent, x->tile, rows, per_block, 1);
    rows /= x->block;
    sums /= x->block;
  }
  if (k->node->packs == KILN_PACKS_STEPS) {
    k->v.block = k->v.tile;
    return;
  }
  const int64_t threads =
                    k->node->is_parallel && kiln_contraction_is_one_tile(k) ? k->w->n_threads : 1,
                part = kiln_divide_up(k->v.extent, threads); // threads have only columns to share
  k->v.block = is_ragged && k->v.extent <= sums && part == k->v.extent
                   ? k->v.extent
                   : fit_block(k->v.extent, k->v.tile, sums < part ? sums : part, 0, 1);
}

static double depth_of_tile(const contraction *k) {
  const int64_t step = k->node->step;
  const double all = (double)kiln_dim_extent(kiln_contraction_stepped(k));
  return (double)k->depth * (step ? (double)step / all : 1);
}

static int panel_dtype_bytes(const contraction *k) {
  return kiln_dtype_bytes(k->w->p->tensors.data[k->b->u.tensor]->dtype);
}

double kiln_contraction_panel_bytes(const contraction *k) {
  return depth_of_tile(k) * (double)k->v.tile * panel_dtype_bytes(k);
}

// Bytes of a cache of |bytes| and |ways| that the panel occupies: rows that are read in place
// conflict in few sets where their stride shares a large divisor with the size of a way.
static double taken_bytes(const contraction *k, int64_t bytes, int ways) {
  enum { LINE = 64 };
  if (!k->direct || k->point_by_point) return kiln_contraction_panel_bytes(k);
  const int64_t way_bytes = bytes / ways, dtype_bytes = panel_dtype_bytes(k),
                row = k->v.tile * dtype_bytes;
  const int64_t apart =
      kiln_load_stride(k->w->cx, k->w->p, k->b, kiln_contraction_stepped(k)->name);
  if (apart <= 0 || apart == INT64_MAX || way_bytes <= 0) return kiln_contraction_panel_bytes(k);
  const int64_t common = kiln_gcd(apart * dtype_bytes, way_bytes),
                lines = kiln_round_up(row, LINE); // bytes used of each |common| bytes of a way
  return lines < common ? kiln_contraction_panel_bytes(k) * (double)common / (double)lines
                        : kiln_contraction_panel_bytes(k);
}

// Iteration counts for one index of the batch.
typedef struct counts {
  double batch, rows, row_tiles, col_tiles, computed; // |computed|: elements, the ragged ones twice
  double row_blocks, col_blocks, chunks;              // 1 where there are none
} counts;

static double blocks_of(const axis *x) {
  return x->block ? (double)kiln_divide_up(x->extent, x->block) : 1;
}

static int64_t tiles_of(const axis *x) {
  return kiln_divide_up(x->extent, x->piece) * kiln_divide_up(x->piece, x->tile);
}

static counts count(const contraction *k) {
  counts n = {1, 1, 1, (double)kiln_divide_up(k->v.extent, k->v.tile), 1, 1, 1, 1};
  n.col_blocks = blocks_of(&k->v);
  for (int d = 0; d < k->n_dims; d++) {
    const axis *x = &k->dims[d];
    const double blocks = blocks_of(x),
                 tiles = x->block ? blocks * (double)(x->block / x->tile) : (double)tiles_of(x);
    n.computed *= tiles * (double)x->tile;
    if (kiln_contraction_is_batch(k, d)) {
      n.batch *= (double)x->extent;
      continue;
    }
    n.rows *= (double)x->extent;
    n.row_tiles *= tiles;
    n.row_blocks *= k->node->step && !x->block ? (double)x->extent : blocks;
  }
  n.computed *= n.col_tiles * (double)k->v.tile;
  if (k->node->step)
    n.chunks = (double)kiln_dim_extent(kiln_contraction_stepped(k)) / (double)k->node->step;
  else if (k->node->decoded) n.col_blocks = ceil(2 * k->b_bytes / (double)k->w->m->l2_bytes);
  else if (!k->keeps_b && !k->packs_rows && k->a_bytes > k->a_room)
    n.row_blocks = k->a_bytes / k->a_room;
  return n;
}

static void choose_room(contraction *k) {
  if (k->packs_rows) {
    axis *rows = &k->dims[k->col];
    const int64_t fit = (int64_t)(room_of_rows(k) / (k->a_bytes / (double)rows->extent));
    if (k->a_bytes > room_of_rows(k))
      rows->block = fit_block(rows->extent, rows->tile, fit, ROWS_OF_READING,
                              k->node->is_parallel ? k->w->n_threads : 1);
    return;
  }
  const double l2 = (double)k->w->m->l2_bytes,
               beside = l2 * L2_USABLE - kiln_contraction_panel_bytes(k);
  // a block takes the room that a panel leaves; each of its tiles rereads panels that do not fit
  k->a_room = beside > l2 / 8 && beside < l2 / 2 ? beside : l2 / 2;
  // with fewer rows a block than columns a panel, rereading panels for each block costs more than
  // streaming all rows past a panel that stays
  const double rows = count(k).rows;
  if (k->a_room * rows < (double)k->v.tile * k->a_bytes &&
      kiln_contraction_panel_bytes(k) <= l2 / 2)
    k->a_room = k->a_bytes;
}

bool kiln_contraction_is(kiln_lowering *w, const kiln_contraction_node *node) {
  contraction k = {.w = w, .node = node, .c = node->stmt};
  const int n = k.c->n_space;
  if (n == 0 || (node->finish && node->finish->n_space != n)) return false;
  k.v.dim = k.c->dims[n - 1].name;
  return find_operands(&k);
}

kiln_status kiln_contraction_describe(kiln_lowering *w, const kiln_contraction_node *node,
                                      kiln_contraction *k) {
  const kiln_stmt *f = node->finish;
  *k = (contraction){.w = w, .node = node, .c = node->stmt, .depth = 1, .spread = 1};
  k->sums = w->p->tensors.data[k->c->out]->name;
  if (!f) k->sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, k->sums));
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
  choose(k);
  choose_room(k);
  if (node->step) choose_blocks(k);
  if (kiln_interleaved_is(k)) {
    const kiln_interleaved at = kiln_interleaved_place(k);
    k->n_around = at.n_around;
    k->asks_ahead = at.is_far;
  }
  return KILN_OK;
}

bool kiln_contraction_packs_rows(kiln_lowering *w, const kiln_stmt *s) {
  const kiln_contraction_node node = {.stmt = s, .at = s->dims[0].name};
  contraction k;
  return kiln_contraction_is(w, &node) && kiln_contraction_describe(w, &node, &k) == KILN_OK &&
         k.packs_rows;
}

// --- cost ---

int kiln_contraction_chunk_axis(const contraction *k) {
  const kiln_dim *stepped = kiln_contraction_stepped(k);
  const kiln_tensor *t = k->w->p->tensors.data[k->b->u.tensor];
  int found = -1, n_reduced = 0;
  for (int i = 0; i < k->b->n_args; i++) {
    const kiln_expr *at = k->b->args[i];
    bool reduces = false;
    for (int r = 0; r < k->c->n_reduce; r++)
      reduces |= kiln_expr_uses(at, k->c->dims[k->c->n_space + r].name);
    n_reduced += reduces;
    if (at->kind == KILN_EXPR_VAR && at->u.sym == stepped->name) found = i;
  }
  return k->node->step && n_reduced > 1 && t->role == KILN_CONST && !k->dot ? found : -1;
}

// Whether one panel's part of a chunk is contiguous.
static bool has_whole_panels(const contraction *k) {
  return !k->node->step || k->c->n_reduce == 1 || kiln_contraction_chunk_axis(k) >= 0;
}

// Tiles of a panel must be few, or its misses matter little, and the L2 must hold two panels.
bool kiln_contraction_asks_in_turns(const contraction *k) {
  enum { MOST_TILES = 64 };
  const bool is_const = k->w->p->tensors.data[k->b->u.tensor]->role == KILN_CONST;
  const counts n = count(k);
  const double tiles = n.row_tiles / n.row_blocks;
  return is_const && (!k->keeps_b || k->node->step) && tiles >= 2 && tiles <= MOST_TILES &&
         has_whole_panels(k) &&
         5 * kiln_contraction_panel_bytes(k) <= 2 * (double)k->w->m->l2_bytes;
}

// Bytes that cross into the L2 and into the L1, |others| included, by whether a panel stays there
// between the tiles of a block.
static void operand_bytes(const contraction *k, const counts *n, double others, double *out_l2,
                          double *out_l1) {
  const kiln_machine *m = k->w->m;
  const double panel = taken_bytes(k, m->l2_bytes, kiln_machine_ways(m, 2)),
               l1_panel = taken_bytes(k, m->l1_bytes, kiln_machine_ways(m, 1)),
               l1 = (double)m->l1_bytes / 2, room = (double)m->l2_bytes * L2_USABLE,
               a_block = k->a_bytes / n->row_blocks / n->chunks;
  const bool fits = panel + a_block <= room * 1.05,
             passes = !fits && panel <= (double)m->l2_bytes / 2;
  *out_l2 = k->a_bytes * n->col_blocks + k->b_bytes;
  if (!k->keeps_b || k->node->step)
    *out_l2 = k->a_bytes * (passes ? n->col_tiles : n->col_blocks) +
              k->b_bytes * (fits || passes ? n->row_blocks : n->row_tiles);
  if (k->node->decoded) *out_l2 = k->a_bytes * n->col_blocks;
  const double a_tile = k->a_bytes / n->row_tiles / n->chunks;
  *out_l1 = k->b_bytes * (l1_panel <= l1 ? n->row_blocks : n->row_tiles) +
            k->a_bytes * (k->keeps_b && a_tile <= l1 ? 1 : n->col_tiles);
  *out_l2 = *out_l2 * n->batch + others;
  *out_l1 = *out_l1 * n->batch + others;
  if (!kiln_interleaved_is(k)) return;
  const kiln_interleaved at = kiln_interleaved_place(k);
  *out_l2 = fmax(*out_l2, at.l2);
  *out_l1 = fmax(*out_l1, at.l1);
}

// Bytes of the result and of the epilogue's other operands.
static double other_bytes(const contraction *k) {
  const kiln_program *p = k->w->p;
  double bytes = 0;
  for (int t = 0; t < p->tensors.n; t++) {
    const kiln_tensor *x = p->tensors.data[t];
    if (x->role == KILN_TEMP || t == k->a->u.tensor || t == k->b->u.tensor) continue;
    bytes += (double)kiln_tensor_elems(x) * kiln_dtype_bytes(x->dtype);
  }
  return bytes;
}

// Parallel tasks: loops are fused as in kiln_lowering_parallel.
static int64_t count_tasks(const contraction *k, const counts *n, int n_threads) {
  enum { TASKS_PER_THREAD = 4 };
  const double rows = k->keeps_b && !k->node->step ? n->row_tiles : ceil(n->row_blocks),
               cols = k->node->step || k->node->decoded ? n->col_blocks : n->col_tiles;
  const double loops[] = {n->batch, rows, cols};
  double tasks = 1;
  for (int i = 0; i < 3; i++) {
    if (tasks >= n_threads * TASKS_PER_THREAD) break;
    if (tasks > 1 && fmod(tasks, n_threads) == 0) break;
    tasks *= loops[i];
  }
  return (int64_t)tasks;
}

// Time of TLB misses on panels that are read in place and span more pages than the TLB has entries:
// page-table walks that hit the L3.
static double walking_ns(const contraction *k, const counts *n, double apart) {
  enum { PAGES = 2048 }; // roughly a second-level TLB's entries
  const kiln_device *d = k->w->m->device;
  const int l3 = kiln_device_level(d, "L3");
  const double pages = depth_of_tile(k) * fmin(1, apart / PAGE_BYTES),
               walks = fmax(0, fmin(1, pages / PAGES - 1)) * pages * n->row_tiles * n->col_tiles;
  return walks * n->batch * d->levels[l3 >= 0 ? l3 : 0].latency_ns;
}

// Cost of reading a vector operand that is no constant, beyond its bytes. In place: a line at a
// time, slower on the first read where the next row is on another page, or on every read where
// panels do not stay in the L2. Packed: once, or for each block of rows.
static double operand_ns(const contraction *k, const counts *n, int n_threads, double all_bytes) {
  const kiln_device *d = k->w->m->device;
  const int64_t apart =
      kiln_load_stride(k->w->cx, k->w->p, k->b, kiln_contraction_stepped(k)->name);
  const double bytes = k->b_bytes * n->batch;
  const bool once = k->node->packs == KILN_PACKS_ONCE;
  const bool by_rows = k->node->step > 0; // streams a few whole rows at a time
  const bool stays = by_rows || kiln_contraction_panel_bytes(k) + k->a_bytes <=
                                    (double)k->w->m->l2_bytes * L2_USABLE,
             is_foreseen = by_rows || apart < PAGE_BYTES / 4; // by a core's prefetchers
  const double near_ns = 0.15, far_ns = 0.7, again_ns = stays ? near_ns : far_ns,
               first_ns = stays && is_foreseen ? near_ns : far_ns,
               packed_line_ns = !once           ? 4
                                : n_threads > 1 ? 20 // the other core has written half of them
                                                : 7,
               lines = bytes / d->levels[0].transaction_bytes / n_threads;
  const int l3 = kiln_device_level(d, "L3");
  const int64_t row_bytes = apart == INT64_MAX ? PAGE_BYTES : apart * panel_dtype_bytes(k);
  if (k->direct && !k->point_by_point)
    return (first_ns + again_ns * (n->row_tiles - 1)) * lines +
           walking_ns(k, n, (double)row_bytes) / n_threads;
  if (k->node->packs == KILN_PACKS_AS_NEEDED || k->node->decoded) return 0;
  const double l3_bytes = l3 >= 0 ? kiln_tile_kept_bytes(&d->levels[l3]) : 0;
  const kiln_mem_level *from = &d->levels[l3 >= 0 && all_bytes <= l3_bytes ? l3 : 0];
  return (once ? 1 : n->row_blocks) *
         (packed_line_ns * lines +
          2 * bytes / (n_threads > 1 ? from->copy_all_bytes_ns : from->copy_unit_bytes_ns));
}

kiln_tile_cost kiln_contraction_cost(const contraction *k, int n_threads) {
  kiln_tile_cost cost = {0};
  const kiln_device *d = k->w->m->device;
  if (!d) return cost;
  const counts n = count(k);
  const int l2 = kiln_device_level(d, "L2"), l1 = kiln_device_level(d, "L1"),
            l3 = kiln_device_level(d, "L3");
  const double others = other_bytes(k), sums = n.computed * 4 * 2 * n.chunks;
  const bool is_const = k->w->p->tensors.data[k->b->u.tensor]->role == KILN_CONST;
  const double b_bytes = k->node->decoded ? 0 : k->b_bytes, // decoded panels never leave a core
      all = (k->a_bytes + b_bytes) * n.batch + others,
               l3_bytes = l3 >= 0 ? (double)d->levels[l3].capacity_bytes * d->levels[l3].usable : 0;
  double into_l2, into_l1;
  operand_bytes(k, &n, others, &into_l2, &into_l1);
  if (l3 > 0) cost.bytes[l3 - 1] = all > l3_bytes ? all : is_const ? k->b_bytes * n.batch : 0;
  if (l2 > 0) cost.bytes[l2 - 1] = into_l2;
  if (l1 > 0) cost.bytes[l1 - 1] = into_l1 + (k->node->step ? sums : 0);
  const double useful = 2.0 * (double)kiln_stmt_domain(k->c);
  cost.flops = kiln_program_flops(k->w->cx, k->w->p) - useful + 2.0 * n.computed * (double)k->depth;
  cost.tiles = count_tasks(k, &n, n_threads);
  kiln_tile_cost_finish(d, n_threads, k->dot ? k->dot->peak : KILN_PEAK_F32, k->efficiency, &cost);
  if (l2 > 0)
    cost.ns += (kiln_contraction_asks_in_turns(k) ? MISS_SHARE_IN_TURNS : KILN_MISS_SHARE) *
               cost.level_ns[l2 - 1];
  cost.ns += operand_ns(k, &n, n_threads, all);
  if (l2 > 0 && k->packs_rows)
    cost.ns += 2 * k->a_bytes * n.batch /
               (n_threads > 1 ? d->levels[l2].copy_all_bytes_ns : d->levels[l2].copy_unit_bytes_ns);
  return cost;
}
