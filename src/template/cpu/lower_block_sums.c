// Sums of blocks, each scaled and added up: rows m times weights whose blocks share a scale,
//     T(p, m, b, n) = sum_k X(m, b, k) W(p, b, k, n);
//     S(p, m, n) = sum_b F(p, b, n) (T(p, m, b, n) - ..)
// A tile of rows and vectors has T in registers, and S too where they have room:
//     for panels p, tiles: S = 0; for blocks: T = 0; for k: T += ..; S += ..
// so that weights are decoded once for all rows of a tile. Weights are prefetched: so many
// instructions decode a line that a core's window holds few lines.
#include "template/lower.h"

#include "support/integer.h"
#include "target/instr.h"

enum { BYTES_OF_WORD = 4, NUMBERS_OF_WORD = 8 }; // of weights of 4 bits

typedef struct block_sums {
  kiln_lowering *w;
  const kiln_stmt *inner, *outer; // T, S
  const kiln_expr *weights;       // W
  const char *t, *s;              // their names
  int row;                        // the dim of S whose rows a tile has; -1: one row
  int64_t rows, width;            // of a tile
  bool in_registers;              // S
  int64_t steps;                  // of the first dim of T's sum, of a part of a long block
  bool is_split;                  // into such parts
  const char *part;               // the name of their sums; NULL: they are added to T itself
  int64_t group; // numbers of a column that an instruction on bytes multiplies; 0: T is of floats
} block_sums;

static const char *name_of(const kiln_lowering *w, const kiln_stmt *s) {
  return kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
}

// Whether the only load of T is at the dims of S and its block, the vectors' dim last in both.
static bool reads_blocks(kiln_lowering *w, const kiln_stmt *s, int tensor) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  int n = 0;
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *e = loads.data[i];
    if (e->u.tensor != tensor) continue;
    unsigned seen = 0;
    for (int k = 0; k < e->n_args; k++)
      for (int d = 0; d <= s->n_space; d++)
        if (e->args[k]->kind == KILN_EXPR_VAR && e->args[k]->u.sym == s->dims[d].name)
          seen |= 1u << d;
    const kiln_expr *last = e->args[e->n_args - 1];
    if (seen != (1u << e->n_args) - 1 || last->kind != KILN_EXPR_VAR ||
        last->u.sym != s->dims[s->n_space - 1].name)
      return false;
    n++;
  }
  return n == 1;
}

// The largest operand of T that moves with the vectors.
static const kiln_expr *find_weights(const block_sums *b) {
  const kiln_lowering *w = b->w;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, b->inner);
  const kiln_expr *found = NULL;
  int64_t most = 0;
  for (int i = 0; i < loads.n; i++) {
    const int64_t elems = kiln_tensor_elems(w->p->tensors.data[loads.data[i]->u.tensor]);
    if (elems <= most || !kiln_expr_uses(loads.data[i], b->outer->dims[b->outer->n_space - 1].name))
      continue;
    found = loads.data[i];
    most = elems;
  }
  return found;
}

static bool moves_weights(const block_sums *b, int dim) {
  return kiln_expr_uses(b->weights, b->outer->dims[dim].name);
}

static int64_t depth_of(const kiln_stmt *s) {
  int64_t depth = 1;
  for (int r = s->n_space; r < s->n_space + s->n_reduce; r++) depth *= kiln_lowering_extent(s, r);
  return depth;
}

// The rows of a tile that the L1 keeps beside the weights: rows that lie a multiple of a way apart
// share its sets.
static int64_t most_rows(const block_sums *b) {
  enum { BESIDE = 2 }; // ways for weights and scales
  const kiln_machine *m = b->w->m;
  const int ways = kiln_machine_ways(m, 1);
  const kiln_loads loads = kiln_stmt_loads(b->w->cx, &b->w->cx->scratch, b->w->p, b->inner);
  int64_t most = m->n_vector_regs;
  for (int i = 0; b->row >= 0 && i < loads.n; i++) {
    const kiln_tensor *t = b->w->p->tensors.data[loads.data[i]->u.tensor];
    const int64_t apart =
        kiln_load_stride(b->w->cx, b->w->p, loads.data[i], b->outer->dims[b->row].name);
    if (apart > 0 && apart != INT64_MAX &&
        apart * kiln_dtype_bytes(t->dtype) % (m->l1_bytes / ways) == 0 && ways > BESIDE)
      most = ways - BESIDE;
  }
  return most;
}

// The cycles of a step of all tiles of |extent| rows for a vector, a share of the sums of blocks
// included.
static double cycles_of(const block_sums *b, int64_t rows, int64_t vectors, int64_t extent,
                        bool *out_in_registers) {
  enum { DECODING = 3, SCALING = 4, WIDTH = 4, LATENCY = 4 }; // instructions; a cycle; of a sum
  enum { TEMPORARIES = 4 }; // registers: a mask, an element of a row, what is being decoded
  const int64_t sums = rows * vectors, free = b->w->m->n_vector_regs - TEMPORARIES,
                scaling = (2 * sums + vectors <= free ? 1 : SCALING) * sums / depth_of(b->inner);
  *out_in_registers = 2 * sums + vectors <= free;
  if (sums + vectors > free) return 0;
  const double all = (double)(sums + vectors * DECODING + rows + scaling) / WIDTH,
               products = (double)sums / 2, cycles = all > products ? all : products;
  return (cycles > LATENCY ? cycles : LATENCY) * (double)kiln_divide_up(extent, rows) /
         (double)vectors;
}

// The same of sums of bytes, for one block, whose sums of pairs in 16 bits have registers.
static double cycles_by_bytes(const block_sums *b, int64_t rows, int64_t vectors, int64_t extent,
                              bool *out_in_registers) {
  enum { TEMPORARIES = 3, SCALING = 5, WIDTH = 4 }; // registers; instructions a sum; a cycle
  const int64_t sums = rows * vectors, free = b->w->m->n_vector_regs - TEMPORARIES,
                steps = 2 * depth_of(b->inner) / BYTES_OF_WORD;
  *out_in_registers = 2 * sums + vectors <= free;
  if (sums + vectors > free || !kiln_bit_instr_find(b->w->cx, b->w->m, rows, vectors, b->group))
    return 0;
  const double all = (double)(steps * (2 * sums + 2 * vectors + rows) + SCALING * sums) / WIDTH,
               products = (double)((steps + 1) * sums) / 2,
               cycles = all > products ? all : products;
  return cycles * (double)kiln_divide_up(extent, rows) / (double)vectors;
}

// Chooses the tile that takes the least time; false: none fits.
static bool choose_tile(block_sums *b) {
  const kiln_lowering *w = b->w;
  const int last = b->outer->n_space - 1;
  const int64_t width = kiln_lowering_extent(b->outer, last), whole = width / w->lanes;
  const int64_t extent = b->row < 0 ? 1 : kiln_lowering_extent(b->outer, b->row),
                most = most_rows(b);
  double least = 0;
  for (int64_t vectors = whole; vectors > 0; vectors--)
    for (int64_t rows = 1; rows <= extent && rows <= most && whole % vectors == 0; rows++) {
      bool in_registers = false;
      const double cycles = b->group ? cycles_by_bytes(b, rows, vectors, extent, &in_registers)
                                     : cycles_of(b, rows, vectors, extent, &in_registers);
      if (cycles <= 0 || (least > 0 && cycles >= least)) continue;
      least = cycles;
      b->rows = rows;
      b->width = vectors * w->lanes;
      b->in_registers = in_registers;
    }
  return least > 0;
}

// Whether T is of codes in bytes and numbers of 4 bits, two in a byte of the weights, the last dim
// of its sum being those of a word, the first units of these: finds b->group.
static bool takes_bytes(block_sums *b) {
  enum { MOST_UNITS = 4 };
  const kiln_stmt *s = b->inner;
  if (s->body->dtype != KILN_I32 || s->n_reduce != 2 || !b->weights ||
      b->weights->dtype != KILN_U8 || kiln_lowering_extent(s, s->n_space + 1) != BYTES_OF_WORD)
    return false;
  const int64_t n = kiln_lowering_extent(s, s->n_space);
  int64_t units = 1;
  while (units < MOST_UNITS && n % (2 * units) == 0) units *= 2;
  b->group = units * NUMBERS_OF_WORD;
  return true;
}

static bool match(kiln_lowering *w, block_sums *out) {
  const kiln_program *p = w->p;
  if (p->stmts.n != 3 || kiln_lowering_stores_several(w)) return false;
  const kiln_stmt *inner = p->stmts.data[0], *outer = p->stmts.data[1];
  if (inner->combiner != KILN_COMBINE_SUM || outer->combiner != KILN_COMBINE_SUM ||
      outer->n_space < 2 || outer->n_reduce != 1 || inner->n_space != outer->n_space + 1 ||
      inner->n_reduce == 0 || w->root->n_space != outer->n_space || w->root->n_reduce != 0 ||
      inner->guard || outer->guard || !kiln_dtype_is_float(outer->body->dtype) ||
      !reads_blocks(w, outer, inner->out))
    return false;
  *out = (block_sums){.w = w, .inner = inner, .outer = outer, .row = -1, .rows = 1};
  out->t = name_of(w, inner);
  out->s = name_of(w, outer);
  out->weights = find_weights(out);
  if (!kiln_dtype_is_float(inner->body->dtype) && !takes_bytes(out)) return false;
  for (int d = 0; out->weights && d + 1 < outer->n_space; d++)
    if (!moves_weights(out, d)) out->row = d;
  return out->weights && kiln_lowering_extent(outer, outer->n_space - 1) % w->lanes == 0 &&
         choose_tile(out);
}

// Unrolls loops[0..n) but the last, which is vectorized.
static kiln_status run_in_registers(kiln_lowering *w, int n, const kiln_symbol *loops) {
  for (int i = 0; i + 1 < n; i++) KILN_TRY(kiln_unroll(&w->s, loops[i]));
  return kiln_vectorize(&w->s, loops[n - 1]);
}

// The loops of |s| over its dims in a tile, those of |part|; gives their number.
static int tile_loops(const block_sums *b, const char *name, const char *part, const kiln_stmt *s,
                      kiln_symbol *out) {
  for (int d = 0; d < s->n_space; d++)
    out[d] = kiln_lowering_loop(b->w, name, part, s->dims[d].name);
  return s->n_space;
}

// The steps of a block that are summed at a time.
static int64_t steps_of(const block_sums *b) {
  enum { STEPS = 32 };
  const kiln_stmt *s = b->inner;
  const int64_t depth = depth_of(s), first = kiln_lowering_extent(s, s->n_space);
  return depth > STEPS && STEPS % (depth / first) == 0 ? STEPS / (depth / first) : first;
}

static kiln_symbol first_loop(const block_sums *b, const char *suffix) {
  const kiln_symbol loop =
      kiln_lowering_loop(b->w, b->t, "", b->inner->dims[b->inner->n_space].name);
  return *suffix ? kiln_lowering_name(b->w, suffix, loop) : loop;
}

// Splits the sum of a long block into parts. Where a tile has few sums, each of them waits for the
// one before: the parts have sums of their own, which begin before those of another part end.
static kiln_status split_inner(block_sums *b) {
  enum { ENOUGH = 8 };
  kiln_lowering *w = b->w;
  const kiln_stmt *s = b->inner;
  kiln_symbol nest[KILN_MAX_RANK + 1] = {first_loop(b, "o")};
  b->steps = steps_of(b);
  b->is_split = b->steps < kiln_lowering_extent(s, s->n_space) &&
                kiln_lowering_extent(s, s->n_space) % b->steps == 0;
  if (!b->is_split) return KILN_OK;
  KILN_TRY(
      kiln_split(&w->s, first_loop(b, ""), b->steps, KILN_TAIL_EXACT, nest[0], first_loop(b, "i")));
  if (b->rows * b->width / w->lanes >= ENOUGH) return KILN_OK;
  b->part = kiln_arena_printf(&w->cx->scratch, "%s.part", b->t);
  const int n = tile_loops(b, b->t, "", s, nest + 1);
  KILN_TRY(kiln_reorder(&w->s, n + 1, nest));
  return kiln_rfactor(&w->s, nest[0], kiln_symbol_printf(w->cx, "%s", b->part));
}

// The loops of the parts' sums, those of |part|: of the tile, then of the parts.
static int part_loops(const block_sums *b, const char *part, kiln_symbol *out) {
  for (int d = 0; d <= b->inner->n_space; d++)
    out[d] = kiln_symbol_printf(b->w->cx, "%s.%s%d", b->part, part, d);
  return b->inner->n_space;
}

// Adds the sums of parts up, and computes each where it is added.
static kiln_status place_parts(block_sums *b) {
  kiln_lowering *w = b->w;
  kiln_symbol loops[KILN_MAX_RANK + 1], init[KILN_MAX_RANK + 1], nest[KILN_MAX_RANK + 1];
  const int n = part_loops(b, "", loops);
  part_loops(b, "init.", init);
  nest[0] = loops[n];
  for (int i = 0; i < n; i++) nest[1 + i] = loops[i];
  KILN_TRY(kiln_reorder(&w->s, n + 1, nest));
  KILN_TRY(kiln_compute_at(&w->s, kiln_symbol_printf(w->cx, "%s", b->part), nest[0],
                           KILN_SCOPE_REGISTER));
  KILN_TRY(run_in_registers(w, n, nest + 1));
  return run_in_registers(w, n, init);
}

// Of T: the sum outside, its last dim unrolled, where weights differ in constants; rows and the
// vector inside.
static kiln_status order_inner(block_sums *b) {
  enum { MOST_STEPS = 16 };
  kiln_lowering *w = b->w;
  const kiln_stmt *s = b->inner;
  kiln_symbol nest[2 * KILN_MAX_RANK + 2], init[KILN_MAX_RANK];
  const int last = s->n_space + s->n_reduce - 1;
  int n = 0;
  if (b->is_split) {
    if (!b->part) nest[n++] = first_loop(b, "o");
    nest[n++] = first_loop(b, "i");
  } else nest[n++] = first_loop(b, "");
  for (int d = s->n_space + 1; d <= last; d++)
    nest[n++] = kiln_lowering_loop(w, b->t, "", s->dims[d].name);
  if (s->n_reduce > 1 && kiln_lowering_extent(s, last) <= MOST_STEPS)
    KILN_TRY(kiln_unroll(&w->s, nest[n - 1]));
  const int n_tile = tile_loops(b, b->t, "", s, nest + n);
  tile_loops(b, b->t, "init.", s, init);
  KILN_TRY(kiln_reorder(&w->s, n + n_tile, nest));
  KILN_TRY(run_in_registers(w, n_tile, nest + n));
  return run_in_registers(w, n_tile, init);
}

// Prefetches the lines of a constant that a later block, or part of one, reads.
static kiln_status fetch_ahead(kiln_lowering *w, void *argument) {
  enum { AHEAD = 8192 };
  block_sums *b = argument;
  const kiln_tensor *t = w->p->tensors.data[b->weights->u.tensor];
  const int n_space = b->outer->n_space;
  const int64_t bytes = kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
  int64_t parts = kiln_lowering_extent(b->outer, n_space), panels = 1;
  if (b->is_split) parts *= kiln_lowering_extent(b->inner, b->inner->n_space) / b->steps;
  for (int d = 0; d + 1 < n_space; d++)
    if (moves_weights(b, d)) panels *= kiln_lowering_extent(b->outer, d);
  const int64_t part = bytes / parts / panels, ahead = part > 0 ? AHEAD / part : 0;
  if (t->role != KILN_CONST || bytes < w->m->l2_bytes || ahead < 1 || parts < 4 * ahead)
    return KILN_OK;
  kiln_symbol loops[KILN_MAX_RANK + 1];
  if (b->part) part_loops(b, "", loops);
  return kiln_prefetch(&w->s, t->name,
                       b->part ? loops[b->inner->n_space]
                       : b->is_split
                           ? first_loop(b, "o")
                           : kiln_lowering_loop(w, b->s, "", b->outer->dims[n_space].name),
                       ahead);
}

// Of T in bytes: units of an instruction outside, which the tile becomes.
static kiln_status order_bytes(block_sums *b) {
  kiln_lowering *w = b->w;
  const kiln_stmt *s = b->inner;
  kiln_symbol nest[KILN_MAX_RANK + 4], init[KILN_MAX_RANK];
  int n = 0;
  b->steps = b->group / NUMBERS_OF_WORD;
  b->is_split = b->steps < kiln_lowering_extent(s, s->n_space);
  nest[n++] = first_loop(b, "o");
  KILN_TRY(
      kiln_split(&w->s, first_loop(b, ""), b->steps, KILN_TAIL_EXACT, nest[0], first_loop(b, "i")));
  n += tile_loops(b, b->t, "", s, nest + n);
  nest[n++] = first_loop(b, "i");
  nest[n++] = kiln_lowering_loop(w, b->t, "", s->dims[s->n_space + 1].name);
  KILN_TRY(kiln_reorder(&w->s, n, nest));
  KILN_TRY(kiln_lowering_try(w, fetch_ahead, b)); // before an instruction replaces the loads
  KILN_TRY(kiln_tensorize(
      &w->s, nest[1], kiln_bit_instr_find(w->cx, w->m, b->rows, b->width / w->lanes, b->group)));
  return run_in_registers(w, tile_loops(b, b->t, "init.", s, init), init);
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

// Splits the result's dim |d| into tiles of |tile|.
static kiln_status split(block_sums *b, int d, int64_t tile, loop_list *tiles, loop_list *inside) {
  kiln_lowering *w = b->w;
  const kiln_symbol loop = kiln_lowering_loop(w, "y", "", w->root->dims[d].name),
                    o = kiln_lowering_name(w, "o", loop), i = kiln_lowering_name(w, "i", loop);
  const int64_t extent = kiln_lowering_extent(w->root, d);
  if (tile == extent) push(inside, loop, extent);
  else if (tile == 1) push(tiles, loop, extent);
  else {
    KILN_TRY(kiln_split(&w->s, loop, tile, KILN_TAIL_SHIFT, o, i));
    push(tiles, o, kiln_divide_up(extent, tile));
    push(inside, i, tile);
  }
  return KILN_OK;
}

// The loops of the result: panels, which the threads share, then tiles, then a tile's elements.
// |*out_at|: the innermost one around a tile; 0: there is none.
static kiln_status tile_result(block_sums *b, loop_list *inside, kiln_symbol *out_at) {
  kiln_lowering *w = b->w;
  const int n = w->root->n_space;
  loop_list tiles = {0};
  kiln_symbol path[2 * KILN_MAX_RANK], first = 0;
  int fused = 0, n_path = 0;
  for (int of_rows = 0; of_rows <= 1; of_rows++)
    for (int d = 0; d + 1 < n; d++)
      if (moves_weights(b, d) != of_rows)
        KILN_TRY(split(b, d, d == b->row ? b->rows : 1, &tiles, inside));
  KILN_TRY(split(b, n - 1, b->width, &tiles, inside));
  for (int i = 0; i < tiles.n; i++) path[n_path++] = tiles.loops[i];
  for (int i = 0; i < inside->n; i++) path[n_path++] = inside->loops[i];
  KILN_TRY(kiln_reorder(&w->s, n_path, path));
  if (tiles.n > 0)
    KILN_TRY(kiln_lowering_parallel(w, tiles.n, tiles.loops, tiles.extents, &first, &fused));
  *out_at = tiles.n > fused ? tiles.loops[tiles.n - 1] : first;
  return KILN_OK;
}

static kiln_status lower_block_sums(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  block_sums b;
  if (!match(w, &b))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: block sums",
                     "must be sums of blocks, and the sum of these");
  const kiln_symbol sum = w->p->tensors.data[b.outer->out]->name,
                    block = w->p->tensors.data[b.inner->out]->name;
  kiln_symbol at = 0, s[KILN_MAX_RANK + 1], init[KILN_MAX_RANK];
  loop_list inside = {0};
  if (!b.group) KILN_TRY(split_inner(&b));
  KILN_TRY(tile_result(&b, &inside, &at));
  KILN_TRY(
      kiln_compute_at(&w->s, sum, at, b.in_registers ? KILN_SCOPE_REGISTER : KILN_SCOPE_LOCAL));
  s[0] = kiln_lowering_loop(w, b.s, "", b.outer->dims[b.outer->n_space].name);
  const int n = tile_loops(&b, b.s, "", b.outer, s + 1);
  tile_loops(&b, b.s, "init.", b.outer, init);
  KILN_TRY(kiln_reorder(&w->s, n + 1, s));
  KILN_TRY(kiln_compute_at(&w->s, block, s[0], KILN_SCOPE_REGISTER));
  if (b.part) KILN_TRY(place_parts(&b));
  KILN_TRY(b.group ? order_bytes(&b) : order_inner(&b));
  KILN_TRY(run_in_registers(w, n, s + 1));
  KILN_TRY(run_in_registers(w, n, init));
  KILN_TRY(run_in_registers(w, inside.n, inside.loops));
  return b.group ? KILN_OK : kiln_lowering_try(w, fetch_ahead, &b);
}

static kiln_status propose_block_sums(kiln_lowering *w, kiln_tile_candidates *out) {
  block_sums b;
  kiln_tile_candidate one = {0};
  if (!match(w, &b)) return KILN_OK;
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

const kiln_template kiln_template_block_sums = {.name = "block_sums",
                                                .kinds = 1u << KILN_GROUP_ROWS,
                                                .propose = propose_block_sums,
                                                .lower = lower_block_sums,
                                                .by_loops = true};
