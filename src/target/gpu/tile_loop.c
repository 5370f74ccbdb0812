// Persistent tile loops, as stream-K needs them (schedule/primitive/stream_k.c): a block's
// iterations go through one tile after the other.
//
//     for v {
//       fills
//       if (v == 0 || E % n == 0) { first }
//       product
//       if (v == q - 1 || E % n == n - 1) { last }
//     }
//
// with E growing by one from iteration to iteration, so that |first| follows |last|. Written as one
// loop, ptxas waits for the instructions of each iteration, since |first| and |last| access their
// sums in some (C7517 of `ptxas -v`). As two loops, the inner one over the iterations of a tile,
// with |first| in front of it and |last| behind it, wgmma groups stay in flight within a tile.
#include "target/gpu/nest.h"

// Whether |e| is the comparison *out_x == *out_value.
static bool is_equal(const kiln_expr *e, const kiln_expr **out_x, int64_t *out_value) {
  if (e->kind != KILN_EXPR_EQ) return false;
  const int at = kiln_expr_is_int(e->args[0], out_value) ? 0 : 1;
  *out_x = e->args[1 - at];
  return kiln_expr_is_int(e->args[at], out_value);
}

// Whether |cond| is the comparison |v| == |value|, or else *out_x == *out_value.
static bool is_either(const kiln_expr *cond, const kiln_expr *v, int64_t value,
                      const kiln_expr **out_x, int64_t *out_value) {
  const kiln_expr *x[2];
  int64_t is[2];
  if (cond->kind != KILN_EXPR_OR || !is_equal(cond->args[0], &x[0], &is[0]) ||
      !is_equal(cond->args[1], &x[1], &is[1]))
    return false;
  const int at = x[0] == v && is[0] == value ? 0 : 1;
  *out_x = x[1 - at];
  *out_value = is[1 - at];
  return x[at] == v && is[at] == value;
}

// Whether |first| holds in the first iteration of |l|, and in each after one where |last| does.
static bool follow(const kiln_gpu_nest *n, const kiln_loop *l, const kiln_expr *first,
                   const kiln_expr *last) {
  kiln_ctx *cx = n->cx;
  const kiln_expr *v = kiln_var(cx, l->var), *next = kiln_add(cx, v, kiln_int(cx, 1)), *x, *y;
  int64_t extent = 0, begin = 0, end = 0, tile = 0, step = 0;
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  if (!kiln_expr_is_int(l->extent, &extent) || !is_either(first, v, 0, &x, &begin) ||
      !is_either(last, v, extent - 1, &y, &end) || x != y || x->kind != KILN_EXPR_MOD ||
      !kiln_expr_is_int(x->args[1], &tile) || begin != 0 || end != tile - 1)
    return false;
  const kiln_expr *grown =
      kiln_sub(cx, kiln_expr_substitute(cx, x->args[0], 1, &l->var, &next), x->args[0]);
  return kiln_expr_is_int(kiln_simplify(cx, grown, &none), &step) && step == 1;
}

static bool touches_shared(const kiln_gpu_nest *n, const kiln_loop *node) {
  const kiln_dependence_accesses all = kiln_gpu_touches(n, -1);
  for (int i = 0; i < all.n; i++)
    if (n->l->buffers.data[all.data[i].buffer]->scope == KILN_SCOPE_SHARED &&
        kiln_gpu_is_in(node->body, all.data[i].node))
      return true;
  return false;
}

// A conditional prologue or epilogue of a tile, in which threads need nothing of each other.
static bool is_edge(const kiln_gpu_nest *n, const kiln_loop *l) {
  return l->kind == KILN_LOOP_IF && kiln_gpu_has_threads(l->body) && !kiln_gpu_is_product(l) &&
         kiln_gpu_found_of(n, l)->wait == KILN_WAIT_NONE && !touches_shared(n, l);
}

bool kiln_gpu_find_tile_loop(const kiln_gpu_nest *n, const kiln_loop *l, kiln_tile_loop *out) {
  const kiln_loop *first = NULL, *product = l->body;
  for (; product && product->kind == KILN_LOOP_IF; product = product->next) first = product;
  if (!first || !product || !kiln_gpu_is_product(product)) return false;
  const kiln_loop *last = product->next;
  if (!last || last->next || !is_edge(n, first) || !is_edge(n, last)) return false;
  *out = (kiln_tile_loop){l, first, last};
  return follow(n, l, first->cond, last->cond);
}
