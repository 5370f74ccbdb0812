// Sums of blocks, each scaled and added up: a row times weights whose blocks share a scale,
//     T(p, b, n) = sum_k X(b, k) W(p, b, k, n);  S(p, n) = sum_b F(p, b, n) (T(p, b, n) - ..)
// Both sums of a panel p stay in registers:
//     for panels: S = 0; for blocks: T = 0; for k: T += ..; S += ..
// Weights are prefetched: so many instructions decode a line that a core's window holds few lines.
#include "template/lower.h"

typedef struct block_sums {
  kiln_lowering *w;
  const kiln_stmt *inner, *outer; // T, S
  const char *t, *s;              // their names
} block_sums;

static const char *name_of(const kiln_lowering *w, const kiln_stmt *s) {
  return kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
}

static bool is_var(const kiln_expr *e, const kiln_stmt *s, int dim) {
  return e->kind == KILN_EXPR_VAR && e->u.sym == s->dims[dim].name;
}

// Whether the only load of T is at the dims of S, the block between them.
static bool reads_blocks(kiln_lowering *w, const kiln_stmt *s, int tensor) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  int n = 0;
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *e = loads.data[i];
    if (e->u.tensor != tensor) continue;
    if (!is_var(e->args[0], s, 0) || !is_var(e->args[1], s, 2) || !is_var(e->args[2], s, 1))
      return false;
    n++;
  }
  return n == 1;
}

static bool match(kiln_lowering *w, block_sums *out) {
  const kiln_program *p = w->p;
  if (p->stmts.n != 3 || kiln_lowering_stores_several(w)) return false;
  const kiln_stmt *inner = p->stmts.data[0], *outer = p->stmts.data[1];
  if (inner->combiner != KILN_COMBINE_SUM || outer->combiner != KILN_COMBINE_SUM ||
      inner->n_space != 3 || inner->n_reduce == 0 || outer->n_space != 2 || outer->n_reduce != 1 ||
      w->root->n_space != 2 || w->root->n_reduce != 0 || inner->guard || outer->guard ||
      !kiln_dtype_is_float(inner->body->dtype) || !reads_blocks(w, outer, inner->out))
    return false;
  const int64_t width = kiln_lowering_extent(outer, 1), vectors = width / w->lanes;
  if (width % w->lanes != 0 || vectors == 0 || 2 * vectors + 2 > w->m->n_vector_regs) return false;
  *out = (block_sums){w, inner, outer, name_of(w, inner), name_of(w, outer)};
  return true;
}

// Unrolls loops[0..n) but the last, which is vectorized.
static kiln_status run_in_registers(kiln_lowering *w, int n, const kiln_symbol *loops) {
  for (int i = 0; i + 1 < n; i++) KILN_TRY(kiln_unroll(&w->s, loops[i]));
  return kiln_vectorize(&w->s, loops[n - 1]);
}

// Of T: the sum outside, its last dim unrolled, where weights differ in constants; the vector
// inside.
static kiln_status order_inner(block_sums *b) {
  enum { MOST_STEPS = 16 };
  kiln_lowering *w = b->w;
  const kiln_stmt *s = b->inner;
  kiln_symbol nest[KILN_MAX_RANK + 3], init[3];
  const int last = s->n_space + s->n_reduce - 1;
  int n = 0;
  for (int d = s->n_space; d <= last; d++)
    nest[n++] = kiln_lowering_loop(w, b->t, "", s->dims[d].name);
  if (kiln_lowering_extent(s, last) <= MOST_STEPS) KILN_TRY(kiln_unroll(&w->s, nest[n - 1]));
  for (int d = 0; d < 3; d++) {
    nest[n + d] = kiln_lowering_loop(w, b->t, "", s->dims[d].name);
    init[d] = kiln_lowering_loop(w, b->t, "init.", s->dims[d].name);
  }
  KILN_TRY(kiln_reorder(&w->s, n + 3, nest));
  KILN_TRY(run_in_registers(w, 3, nest + n));
  return run_in_registers(w, 3, init);
}

// Prefetches the lines of the largest constant that a later block reads.
static kiln_status fetch_ahead(kiln_lowering *w, void *argument) {
  enum { AHEAD = 8192 };
  block_sums *b = argument;
  const kiln_expr *largest = kiln_stmt_largest_load(w->cx, w->p, b->inner);
  const kiln_tensor *t = w->p->tensors.data[largest->u.tensor];
  const int64_t blocks = kiln_lowering_extent(b->outer, 2),
                bytes = kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype),
                block = bytes / blocks / kiln_lowering_extent(b->outer, 0), ahead = AHEAD / block;
  if (t->role != KILN_CONST || bytes < w->m->l2_bytes || ahead < 1 || blocks < 4 * ahead)
    return KILN_OK;
  return kiln_prefetch(&w->s, t->name, kiln_lowering_loop(w, b->s, "", b->outer->dims[2].name),
                       ahead);
}

static kiln_status lower_block_sums(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  block_sums b;
  if (!match(w, &b))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: block sums",
                     "must be sums of blocks, and the sum of these");
  kiln_symbol y[2], s[3], init[2], first;
  for (int d = 0; d < 2; d++) y[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  for (int d = 0; d < 3; d++) s[d] = kiln_lowering_loop(w, b.s, "", b.outer->dims[d].name);
  for (int d = 0; d < 2; d++) init[d] = kiln_lowering_loop(w, b.s, "init.", b.outer->dims[d].name);
  const kiln_symbol sum = w->p->tensors.data[b.outer->out]->name,
                    block = w->p->tensors.data[b.inner->out]->name;
  const int64_t panels = kiln_lowering_extent(w->root, 0);
  int fused;
  KILN_TRY(kiln_lowering_parallel(w, 1, y, &panels, &first, &fused));
  KILN_TRY(kiln_compute_at(&w->s, sum, first, KILN_SCOPE_REGISTER));
  KILN_TRY(kiln_reorder(&w->s, 3, (kiln_symbol[]){s[2], s[0], s[1]}));
  KILN_TRY(kiln_compute_at(&w->s, block, s[2], KILN_SCOPE_REGISTER));
  KILN_TRY(order_inner(&b));
  KILN_TRY(run_in_registers(w, 2, s));
  KILN_TRY(run_in_registers(w, 2, init));
  KILN_TRY(kiln_vectorize(&w->s, y[1]));
  return kiln_lowering_try(w, fetch_ahead, &b);
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
