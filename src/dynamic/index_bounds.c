// Clamps indices: see index_bounds.h.
#include "dynamic/index_bounds.h"

#include "analysis/simplify.h"

// An expression, with the conditions around the current subexpression.
typedef struct bounding {
  kiln_ctx *cx;
  const kiln_index_bounds *of;
  kiln_ranges ranges; // of the statement's dims and the dimensions
  KILN_VEC(const kiln_expr *) holds;
  bool is_long;   // a large tree: conditions are ignored, so that results can be memoized by node
  kiln_map known; // if |is_long|: node -> result
} bounding;

// --- which indices ---

typedef struct question {
  const kiln_bits *loose;
  bool yes;
} question;

static void ask_loose(const kiln_expr *load, void *argument) {
  question *q = argument;
  q->yes |= kiln_bits_has(q->loose, load->u.tensor);
}

static bool loads_any(kiln_ctx *cx, const kiln_bits *loose, const kiln_expr *e) {
  question q = {loose, false};
  if (e->has_load) kiln_expr_visit_loads(cx, e, ask_loose, &q);
  return q.yes;
}

static bool uses_dims(const bounding *b, const kiln_expr *e) {
  bool uses = false;
  for (int d = 0; d < b->of->n_dims; d++) uses |= kiln_expr_uses(e, b->of->names[d]);
  return uses;
}

static bool is_meant(const bounding *b, const kiln_expr *index) {
  return uses_dims(b, index) || (b->of->loose && loads_any(b->cx, b->of->loose, index));
}

// --- what is known of them ---

static void add_conditions(bounding *b, const kiln_expr *c) {
  if (c->kind == KILN_EXPR_AND) {
    add_conditions(b, c->args[0]);
    add_conditions(b, c->args[1]);
  } else KILN_VEC_PUSH(&b->cx->scratch, &b->holds, c);
}

// Whether the comparison of |x| and |y| is known to hold for all values of a run.
static bool is_known(bounding *b, kiln_expr_kind k, const kiln_expr *x, const kiln_expr *y) {
  const kiln_expr *c = kiln_simplify(b->cx, kiln_binary(b->cx, k, x, y), &b->ranges);
  bool known = kiln_expr_int_or(c, 0) != 0;
  for (int i = 0; i < b->holds.n; i++) known |= b->holds.data[i] == c;
  return known;
}

// Clamps |index| to an axis of |n| elements.
static const kiln_expr *within(bounding *b, const kiln_expr *index, const kiln_expr *n) {
  kiln_ctx *cx = b->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *last = kiln_sub(cx, n, kiln_int(cx, 1));
  if (!is_meant(b, index)) return index;
  const bool is_least = is_known(b, KILN_EXPR_GE, index, zero),
             is_most = is_known(b, KILN_EXPR_LE, index, last);
  if (!is_most) index = kiln_binary(cx, KILN_EXPR_MIN, index, last);
  return is_least ? index : kiln_binary(cx, KILN_EXPR_MAX, index, zero);
}

// --- expressions ---

static const kiln_expr *bound(bounding *b, const kiln_expr *e);

static const kiln_expr *bound_branch(bounding *b, const kiln_expr *e, int arg) {
  const int n = b->holds.n;
  const kiln_expr *c = arg == 1 ? e->args[0] : kiln_unary(b->cx, KILN_EXPR_NOT, e->args[0]);
  if (!b->is_long) add_conditions(b, kiln_simplify(b->cx, c, &b->ranges));
  const kiln_expr *branch = bound(b, e->args[arg]);
  b->holds.n = n;
  return branch;
}

static const kiln_expr *bound(bounding *b, const kiln_expr *e) {
  kiln_ctx *cx = b->cx;
  if (e->n_args == 0 || !e->has_load || !(b->of->loose || uses_dims(b, e))) return e;
  const uint64_t *known = b->is_long ? kiln_map_find(&b->known, e->id) : NULL;
  if (known) return (const kiln_expr *)(uintptr_t)*known;
  const kiln_expr **args = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, e->n_args);
  for (int i = 0; i < e->n_args; i++) {
    const bool is_branch = e->kind == KILN_EXPR_SELECT && i > 0;
    args[i] = is_branch ? bound_branch(b, e, i) : bound(b, e->args[i]);
    if (e->kind == KILN_EXPR_LOAD)
      args[i] = within(b, args[i], b->of->p->tensors.data[e->u.tensor]->shape[i]);
  }
  const kiln_expr *made = kiln_expr_with_args(cx, e, args);
  if (b->is_long) kiln_map_put(&b->known, e->id, (uint64_t)(uintptr_t)made);
  return made;
}

const kiln_expr *kiln_bound_indices(kiln_ctx *cx, const kiln_index_bounds *of, const kiln_stmt *s,
                                    const kiln_expr *e) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  bounding b = {.cx = cx,
                .of = of,
                .ranges = kiln_stmt_ranges(&cx->scratch, s),
                .is_long = e->n_tree > KILN_LONG_TREE};
  kiln_map_init(&b.known, &cx->scratch);
  for (int d = 0; d < of->n_dims; d++)
    kiln_ranges_push(&b.ranges, of->names[d], of->least[d], of->most[d]);
  e = bound(&b, e);
  kiln_arena_rewind(&cx->scratch, mark);
  return e;
}
