// Fused-layer tiling (producer-consumer block fusion): statements that consume each other's
// results, a contraction among them. The result is cut into blocks, which run in parallel, and each
// block computes its part of the others in local memory: the layers of a perceptron over some rows,
// a depthwise convolution over the rows that a pointwise one expands, a norm in front of a product.
// Neighbouring blocks both compute the halo that they share.
//
// Inside of a block, each statement runs by its class: contractions and window reductions by tiles
// in registers, together with the map that finishes them; sums of rows by lanes; maps along the
// contiguous dim.
#include "support/integer.h"
#include "template/cpu/node.h"
#include "tile/panels.h"
#include "template/form/attention.h"
#include "template/cpu/window.h"

#include <math.h>
#include <string.h>

enum {
  KEEPS_PANELS = 1
}; // kiln_tiling.variant: constants are read in panels that other programs have

enum {
  MAX_LOCAL_BYTES = 1 << 20, // of one buffer, and of all buffers on a thread's stack (schedule.h)
  MAX_STACK_BYTES = 6 << 20,
  MAX_OUTER = 16 // iterations of the second dim of a block
};

// Shares of the FMA peak: of contractions, beside their register tile's efficiency, of windows, and
// of other statements; and the overhead of a nest in a block.
static const double CONTRACTION_SHARE = 0.95, WINDOW_SHARE = 0.5, OTHER_SHARE = 0.35, NEST_NS = 40;
// Cycles of adding the lanes of one sum; and of an element that is computed as a scalar.
static const double LANES_CYCLES = 20, SCALAR_CYCLES = 10;

typedef enum node_class {
  CLASS_MAP,
  CLASS_CONTRACTION,
  CLASS_WINDOW,
  CLASS_ROWS,    // a reduction along the contiguous dim
  CLASS_FINISH,  // a map that is computed in the place of the reduction in front of it
  CLASS_FINISHED // a contraction or window with a finish
} node_class;

typedef struct chain {
  kiln_lowering *w;
  int n; // statements
  node_class classes[KILN_MAX_MEMBERS];
  int partner[KILN_MAX_MEMBERS]; // of a finish, its reduction
  bool keeps_panels;
  kiln_blocks blocks;
  kiln_symbol at;                   // the innermost loop over the blocks
  kiln_symbol loops[KILN_MAX_RANK]; // of the root inside of a block
} chain;

static const kiln_stmt *stmt(const chain *c, int i) { return c->w->p->stmts.data[i]; }

static kiln_symbol tensor_of(const chain *c, const kiln_stmt *s) {
  return c->w->p->tensors.data[s->out]->name;
}

// --- classes ---

static bool has_vector(const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  if (s->n_space == 0 || !kiln_stmt_is_contraction(s, &a, &b)) return false;
  const kiln_symbol v = s->dims[s->n_space - 1].name;
  return kiln_expr_uses(a, v) != kiln_expr_uses(b, v);
}

static node_class class_of(const chain *c, const kiln_stmt *s) {
  if (s->n_reduce == 0) return CLASS_MAP;
  if (has_vector(s)) return CLASS_CONTRACTION;
  return kiln_stmt_is_window(c->w->cx, c->w->p, s) ? CLASS_WINDOW : CLASS_ROWS;
}

// Whether |m| reads |s|'s tensor once, at the element that it writes, over dims of the same names.
static bool reads_in_place(const chain *c, const kiln_stmt *s, const kiln_stmt *m) {
  if (m->n_reduce || m->n_space != s->n_space) return false;
  const kiln_loads loads = kiln_stmt_loads(c->w->cx, &c->w->cx->scratch, c->w->p, m);
  int n = 0;
  for (int i = 0; i < loads.n; i++) {
    if (loads.data[i]->u.tensor != s->out) continue;
    n++;
    for (int k = 0; k < s->n_space; k++)
      if (s->dims[k].name != m->dims[k].name ||
          loads.data[i]->args[k] != kiln_var(c->w->cx, m->dims[k].name))
        return false;
  }
  return n == 1;
}

static bool reads(const chain *c, const kiln_stmt *s, const kiln_stmt *m) {
  const kiln_loads loads = kiln_stmt_loads(c->w->cx, &c->w->cx->scratch, c->w->p, m);
  for (int i = 0; i < loads.n; i++)
    if (loads.data[i]->u.tensor == s->out) return true;
  return false;
}

// The map that finishes statement |i| in registers: its only reader, which finishes no other one.
static int find_finish(const chain *c, int i) {
  int reader = -1;
  for (int k = i + 1; k < c->n; k++) {
    if (!reads(c, stmt(c, i), stmt(c, k))) continue;
    if (reader >= 0) return -1;
    reader = k;
  }
  const bool free = reader >= 0 && c->classes[reader] == CLASS_MAP;
  return free && reads_in_place(c, stmt(c, i), stmt(c, reader)) ? reader : -1;
}

static void classify(chain *c, kiln_lowering *w) {
  *c = (chain){.w = w, .n = w->p->stmts.n};
  for (int i = 0; i < c->n; i++) c->classes[i] = class_of(c, stmt(c, i));
  for (int i = c->n - 1; i >= 0; i--) {
    const bool may = c->classes[i] == CLASS_CONTRACTION || c->classes[i] == CLASS_WINDOW;
    const int finish = may ? find_finish(c, i) : -1;
    if (finish < 0) continue;
    c->partner[finish] = i;
    c->classes[finish] = CLASS_FINISH;
    c->classes[i] = CLASS_FINISHED;
  }
}

// --- lowering ---

// Cuts the result into blocks; the loops inside of a block get names of their own.
static kiln_status cut_blocks(chain *c, const kiln_tiling *t) {
  kiln_lowering *w = c->w;
  kiln_blocks *b = &c->blocks;
  kiln_symbol path[2 * KILN_MAX_RANK];
  int n_path = 0;
  for (int d = 0; d < w->root->n_space; d++) {
    const int64_t extent = kiln_lowering_extent(w->root, d), block = t->block[d];
    const kiln_symbol loop = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
    c->loops[d] = loop;
    if (block <= 0 || block >= extent) continue;
    path[n_path++] = b->loops[b->n] = kiln_lowering_name(w, "b", loop);
    c->loops[d] = kiln_lowering_name(w, "t", loop);
    b->dims[b->n] = d;
    b->sizes[b->n++] = block;
    KILN_TRY(kiln_split(&w->s, loop, block, KILN_TAIL_SHIFT, path[n_path - 1], c->loops[d]));
  }
  if (b->n == 0)
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: chain",
                     "the result must have more than one block");
  for (int d = 0; d < w->root->n_space; d++) path[n_path++] = c->loops[d];
  c->at = b->loops[b->n - 1];
  return kiln_reorder(&w->s, n_path, path);
}

static kiln_status run_in_parallel(chain *c) {
  kiln_blocks *b = &c->blocks;
  kiln_symbol first;
  int64_t extents[KILN_MAX_RANK];
  int fused;
  for (int k = 0; k < b->n; k++)
    extents[k] = kiln_divide_up(kiln_lowering_extent(c->w->root, b->dims[k]), b->sizes[k]);
  KILN_TRY(kiln_lowering_parallel(c->w, b->n, b->loops, extents, &first, &fused));
  c->at = b->n > fused ? b->loops[b->n - 1] : first;
  return KILN_OK;
}

static bool is_result(const chain *c, const kiln_stmt *s) {
  return s && (s == c->w->root || kiln_lowering_stores(c->w, s));
}

// The loops of a result inside of a block; those of results besides the root move into the blocks
// now.
static kiln_status enter_result(chain *c, const kiln_stmt *s, kiln_symbol *out_loops) {
  if (s == c->w->root) {
    memcpy(out_loops, c->loops, sizeof c->loops);
    return KILN_OK;
  }
  KILN_TRY(kiln_lowering_join_result(c->w, s, &c->blocks, out_loops));
  c->at = c->blocks.loops[c->blocks.n - 1];
  return KILN_OK;
}

// A contraction and the map that finishes it, or NULL.
static kiln_status lower_contraction_node(chain *c, const kiln_stmt *s, const kiln_stmt *finish) {
  kiln_contraction_node node = {
      .stmt = s, .finish = finish, .scope = KILN_SCOPE_LOCAL, .keeps_panels = c->keeps_panels};
  if (is_result(c, finish)) {
    KILN_TRY(enter_result(c, finish, node.loops));
    node.scope = KILN_SCOPE_PARAM;
  }
  node.at = node.pack_at = c->at;
  return kiln_lowering_contraction_node(c->w, &node, NULL);
}

static kiln_status lower_window_node(chain *c, const kiln_stmt *s, const kiln_stmt *finish) {
  kiln_window_node node = {.stmt = s, .finish = finish, .at = c->at};
  if (is_result(c, finish)) {
    KILN_TRY(enter_result(c, finish, node.loops));
    node.at = 0;
    node.around = c->at;
  }
  return kiln_lowering_window_node(c->w, &node);
}

typedef struct selection {
  kiln_symbol along;
  bool is_there;
} selection;

static void find_selection(const kiln_expr *e, void *argument) {
  selection *s = argument;
  s->is_there |= e->kind == KILN_EXPR_SELECT && kiln_expr_uses(e->args[0], s->along);
}

// Unrolls the few vectors of a row whose loads are masked by lane, as at a padding: the masks are
// then invariant over all rows.
static kiln_status write_out_masks(chain *c, const kiln_stmt *s, kiln_symbol loop) {
  enum { FEW = 4 };
  const kiln_loop *vectors = kiln_loops_find(c->w->s.loops, kiln_lowering_name(c->w, "o", loop));
  selection of = {.along = s->dims[s->n_space - 1].name};
  int64_t n = 0;
  kiln_expr_visit(c->w->cx, s->body, find_selection, &of);
  if (!of.is_there || !vectors || !kiln_expr_is_int(vectors->extent, &n) || n > FEW) return KILN_OK;
  return kiln_unroll(&c->w->s, kiln_lowering_name(c->w, "o", loop));
}

static kiln_status lower_map(chain *c, const kiln_stmt *s) {
  const int last = s->n_space - 1;
  const char *t = kiln_symbol_text(c->w->cx, tensor_of(c, s));
  kiln_symbol loops[KILN_MAX_RANK] = {0};
  if (is_result(c, s)) KILN_TRY(enter_result(c, s, loops));
  else {
    KILN_TRY(kiln_compute_at(&c->w->s, tensor_of(c, s), c->at, KILN_SCOPE_LOCAL));
    if (last >= 0) loops[last] = kiln_lowering_loop(c->w, t, "", s->dims[last].name);
  }
  if (last < 0 || !loops[last]) return KILN_OK;
  KILN_TRY(kiln_lowering_vectorize_map(c->w, loops[last], s->body->dtype));
  return write_out_masks(c, s, loops[last]);
}

static kiln_status lower_rows_node(chain *c, const kiln_stmt *s) {
  KILN_TRY(kiln_compute_at(&c->w->s, tensor_of(c, s), c->at, KILN_SCOPE_LOCAL));
  return kiln_lowering_vectorize_reduction(c->w, s);
}

// Consumers are placed before producers; a reduction together with its finish, whose other operands
// may lie between the two.
static kiln_status lower_fused_layers(kiln_lowering *w, const kiln_tiling *t) {
  chain c;
  classify(&c, w);
  c.keeps_panels = t->variant & KEEPS_PANELS;
  const bool stores_several = kiln_lowering_stores_several(w);
  KILN_TRY(cut_blocks(&c, t));
  if (!stores_several) KILN_TRY(run_in_parallel(&c));
  for (int i = c.n - 1; i >= 0; i--) {
    const kiln_stmt *s = stmt(&c, i), *reduction = stmt(&c, c.partner[i]);
    switch (c.classes[i]) {
    case CLASS_MAP: KILN_TRY(lower_map(&c, s)); break;
    case CLASS_CONTRACTION: KILN_TRY(lower_contraction_node(&c, s, NULL)); break;
    case CLASS_WINDOW: KILN_TRY(lower_window_node(&c, s, NULL)); break;
    case CLASS_ROWS: KILN_TRY(lower_rows_node(&c, s)); break;
    case CLASS_FINISH:
      KILN_TRY(class_of(&c, reduction) == CLASS_CONTRACTION
                   ? lower_contraction_node(&c, reduction, s)
                   : lower_window_node(&c, reduction, s));
      break;
    case CLASS_FINISHED: break;
    }
  }
  return stores_several ? run_in_parallel(&c) : KILN_OK; // a parallel loop takes no other nests in
}

// --- candidates ---

// Bytes of the buffers of a block, all live at once; more than the limit where one is too large.
static double local_bytes(const chain *c, const kiln_tile_graph *g) {
  double sum = 0;
  for (int i = 0; i < g->n_nodes; i++) {
    double most = 0;
    for (int k = 0; k < g->n_edges && c->classes[i] != CLASS_FINISHED; k++) {
      const kiln_tile_edge *e = &g->edges[k];
      const kiln_tensor *t = g->p->tensors.data[e->tensor];
      double bytes = kiln_dtype_bytes(t->dtype);
      for (int a = 0; a < t->rank; a++) bytes *= (double)e->box[KILN_TILE_WHOLE][a].extent;
      if (e->producer == i && bytes > most) most = bytes;
    }
    sum += most > MAX_LOCAL_BYTES ? MAX_STACK_BYTES + 1.0 : most;
  }
  return sum;
}

typedef struct proposals {
  chain *c;
  kiln_tile_graph *g;
  kiln_tile_candidates *out;
  bool packs_rows[KILN_MAX_MEMBERS]; // by statement: of a contraction, in a block
} proposals;

static int64_t extent_in(const kiln_tile_node *n, int d) {
  return d < 0 ? 1 : n->dims[KILN_TILE_WHOLE][d].extent;
}

// Panel layouts that other programs have of the constant that the contraction |s| reads along its
// vectors.
static uint32_t panels_of(const chain *c, const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b)) return 0;
  const bool in_a = kiln_expr_uses(a, s->dims[s->n_space - 1].name);
  return kiln_panels_plain(kiln_fact_of(c->w->facts, (in_a ? a : b)->u.tensor).panels);
}

// Stalls of a register tile on panels that the L2 does not hold, relative to its compute time.
static double waiting_of(const kiln_lowering *w, const kiln_register_tile *tile, int64_t depth) {
  const kiln_device *d = w->m->device;
  const int l3 = d ? kiln_device_level(d, "L3") : -1;
  const double step_bytes = (double)(tile->vectors * w->m->vector_bytes),
               step_flops = step_bytes / 4 * (double)(2 * tile->rows * tile->cols);
  if (l3 < 0 || step_bytes * (double)depth <= (double)w->m->l2_bytes / 2) return 0;
  return KILN_MISS_SHARE * step_bytes / d->levels[l3].unit_bytes_ns /
         (step_flops / d->unit_flops_ns[KILN_PEAK_F32]);
}

// The share of the peak that statement |i| reaches in a block.
static double share_of(const proposals *p, int i) {
  const kiln_tile_node *n = &p->g->nodes[i];
  const int last = n->stmt->n_space - 1;
  const node_class class = class_of(p->c, n->stmt);
  if (class != CLASS_CONTRACTION) return class == CLASS_WINDOW ? WINDOW_SHARE : OTHER_SHARE;
  kiln_tile_extents e = {.v = extent_in(n, last),
                         .col = extent_in(n, last - 1),
                         .row = last < 2 ? 1 : extent_in(n, last - 2),
                         .depth = 1,
                         .vectors = p->c->keeps_panels ? panels_of(p->c, n->stmt) : 0,
                         .in_panels = p->packs_rows[i]};
  for (int d = 0; d < n->stmt->n_reduce; d++) e.depth *= extent_in(n, last + 1 + d);
  const kiln_register_tile tile = kiln_tile_registers(p->c->w->m, &e);
  return CONTRACTION_SHARE * tile.efficiency / (1 + waiting_of(p->c->w, &tile, e.depth));
}

// Whether the map |n| runs in vectors: its rows in a block hold one or more, and its loads have
// stride 0 or 1 along them.
static bool moves_vectors(const chain *c, const kiln_tile_node *n) {
  const kiln_lowering *w = c->w;
  const kiln_stmt *s = n->stmt;
  const int last = s->n_space - 1;
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  if (last < 0 || extent_in(n, last) < w->lanes) return false;
  for (int i = 0; i < loads.n; i++) {
    const int64_t stride = kiln_load_stride(w->cx, w->p, loads.data[i], s->dims[last].name);
    if (stride != 0 && stride != 1) return false;
  }
  return true;
}

// Work of the nests of a block at their shares of the peak, in operations at the whole peak;
// *out_flops: their operations.
static double work_of(const proposals *p, double *out_flops) {
  const kiln_device *d = p->c->w->m->device;
  double work = d ? NEST_NS * p->c->n * d->unit_flops_ns[KILN_PEAK_F32] : 0;
  *out_flops = 0;
  for (int i = 0; i < p->g->n_nodes; i++) {
    const kiln_tile_node *n = &p->g->nodes[i];
    const int n_space = n->stmt->n_space;
    double results = 1, terms = 1;
    for (int k = 0; k < n_space; k++) results *= (double)extent_in(n, k);
    for (int k = n_space; k < n_space + n->stmt->n_reduce; k++) terms *= (double)extent_in(n, k);
    *out_flops += n->flops * results * terms;
    work += n->flops * results * terms / share_of(p, i);
    if (p->c->classes[i] == CLASS_MAP && !moves_vectors(p->c, n))
      work += 2 * p->c->w->lanes * SCALAR_CYCLES * results;
    if (p->c->classes[i] == CLASS_ROWS) work += 2 * p->c->w->lanes * LANES_CYCLES * results;
  }
  return work;
}

// Whether every contraction and window has all of its vectors in the block.
static bool keeps_vectors(const proposals *p) {
  for (int i = 0; i < p->g->n_nodes; i++) {
    const kiln_tile_node *n = &p->g->nodes[i];
    const node_class class = class_of(p->c, n->stmt);
    if (class != CLASS_CONTRACTION && class != CLASS_WINDOW) continue;
    const int last = n->stmt->n_space - 1;
    if (extent_in(n, last) != kiln_lowering_extent(n->stmt, last)) return false;
  }
  return true;
}

// The innermost cache that holds |bytes|; -1: not even the L2.
static int level_for(const kiln_device *d, double bytes) {
  static const char *const caches[] = {"L1", "L2"};
  for (size_t i = 0; i < KILN_LEN(caches); i++) {
    const int l = kiln_device_level(d, caches[i]);
    if (l > 0 && bytes <= (double)d->levels[l].capacity_bytes * d->levels[l].usable) return l;
  }
  return -1;
}

// Computed elements relative to those of the result: the last block of a dim overlaps.
static double overhang(const kiln_lowering *w, const int64_t *block) {
  double more = 1;
  for (int d = 0; d < w->root->n_space; d++) {
    const int64_t extent = kiln_lowering_extent(w->root, d), b = block[d];
    if (b > 0 && b < extent) more *= (double)kiln_round_up(extent, b) / (double)extent;
  }
  return more;
}

// Buffers of blocks that lie in the L2 are written and read once through the L1's boundary.
static void add_inner_traffic(const proposals *p, int level, kiln_tile_cost *cost) {
  const kiln_device *d = p->c->w->m->device;
  if (!d || level != kiln_device_level(d, "L2")) return;
  const kiln_tile_total all = kiln_tile_sum(p->g, p->g->tile, NULL, NULL, 1);
  cost->bytes[level] += 2 * all.tiles * local_bytes(p->c, p->g);
  cost->level_ns[level] =
      cost->bytes[level] / fmin(d->levels[level].all_bytes_ns, fmin(all.tiles, p->c->w->n_threads) *
                                                                   d->levels[level].unit_bytes_ns);
}

// Whether blocks store each element of each result once; those of a single result may overlap.
static bool stores_once(const kiln_lowering *w, const int64_t *block) {
  if (!kiln_lowering_stores_several(w)) return true;
  for (int d = 0; d < w->root->n_space; d++)
    if (block[d] > 0 &&
        (kiln_lowering_extent(w->root, d) % block[d] || !kiln_lowering_stores_along(w, d)))
      return false;
  return true;
}

static bool has_panels(const chain *c) {
  bool has = false;
  for (int i = 0; i < c->n; i++)
    has |= class_of(c, stmt(c, i)) == CLASS_CONTRACTION && panels_of(c, stmt(c, i)) != 0;
  return has;
}

// In panel layouts that other programs have, or in the best ones.
static void push_candidate(proposals *p, const int64_t *block, int level, bool keeps_panels) {
  kiln_lowering *w = p->c->w;
  kiln_tile_candidate one = {.tiling.variant = keeps_panels ? KEEPS_PANELS : 0,
                             .wants_panels = !keeps_panels && has_panels(p->c)};
  double flops;
  memcpy(one.tiling.block, block, sizeof one.tiling.block);
  p->c->keeps_panels = keeps_panels;
  const double work = work_of(p, &flops);
  const kiln_tile_plan plan = {.tile = one.tiling.block,
                               .peak = KILN_PEAK_F32,
                               .efficiency = flops > 0 ? flops / work / overhang(w, block) : 1};
  kiln_tile_cost_of(p->g, w->m, w->n_threads, &plan, &one.cost);
  add_inner_traffic(p, level, &one.cost);
  KILN_VEC_PUSH(w->proposed, p->out, one);
}

static void propose_block(proposals *p, const int64_t *block) {
  kiln_lowering *w = p->c->w;
  for (int i = 0; i < p->out->n; i++)
    if (!memcmp(p->out->data[i].tiling.block, block, KILN_MAX_RANK * sizeof *block)) return;
  kiln_tile_propagate(p->g, block, NULL, NULL);
  const double bytes = local_bytes(p->c, p->g);
  const int level = w->m->device ? level_for(w->m->device, bytes) : 1;
  if (level < 0 || bytes > MAX_STACK_BYTES || !keeps_vectors(p) || !stores_once(w, block)) return;
  kiln_tile_connect_all(p->g, level);
  if (has_panels(p->c)) push_candidate(p, block, level, true);
  push_candidate(p, block, level, false);
}

static bool has_contraction(const chain *c) {
  for (int i = 0; i < c->n; i++)
    if (class_of(c, stmt(c, i)) == CLASS_CONTRACTION) return true;
  return false;
}

// Blocks are whole along the contiguous dim, one iteration wide along the outermost ones, and equal
// shares of one or two dims between.
static kiln_status propose_chain(kiln_lowering *w, kiln_tile_candidates *out) {
  chain c;
  kiln_attention_form attention;
  const int last = w->root->n_space - 1;
  if (kiln_attention_is(w->cx, w->p, &attention))
    return KILN_OK; // a block would hold whole rows of it
  classify(&c, w);
  if (c.n < 2 || last < 1 || w->root->n_reduce || !has_contraction(&c)) return KILN_OK;
  proposals p = {&c, kiln_tile_graph_make(w->cx, w->p), out, {false}};
  for (int i = 0; i < c.n; i++)
    p.packs_rows[i] = class_of(&c, stmt(&c, i)) == CLASS_CONTRACTION &&
                      kiln_contraction_packs_rows(w, stmt(&c, i));
  kiln_tile_connect_all(p.g, 1);
  for (int d = 0; d < last; d++) {
    const int64_t extent = kiln_lowering_extent(w->root, d),
                  outer = d > 0 ? kiln_lowering_extent(w->root, d - 1) : 1;
    for (int64_t b = 0, n = d > 0 ? 1 : 2; n < 2 * extent; n *= 2) {
      if (kiln_divide_up(extent, n) == b) break;
      b = kiln_divide_up(extent, n);
      for (int64_t o = 1; o <= MAX_OUTER && (o == 1 || o < outer); o *= 2) {
        if (o > 1 && d + 1 < last) break; // two dims of blocks: the innermost ones
        int64_t block[KILN_MAX_RANK] = {0};
        for (int k = 0; k < d; k++) block[k] = 1;
        if (d > 0) block[d - 1] = o;
        block[d] = b < extent ? b : 0;
        propose_block(&p, block);
      }
    }
  }
  return KILN_OK;
}

const kiln_template kiln_template_fused_layers = {.name = "fused_layers",
                                                  .was = "chain",
                                                  .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                  .propose = propose_chain,
                                                  .lower = lower_fused_layers};
