// Thread block clusters and TMA multicast (sm_90): blocks of a cluster run together and reach each
// other's shared memory. Where some of them read the same tile, each copies some of its rows to all
// of them, so that their L2 traffic is divided by their number. The loops are those of blocks
// without a cluster; equal tiles are found here.
//
// Block f of the grid is number r = f % N of its cluster. Two numbers share the copies of a buffer
// if their indices are the same expressions once f is written as f*N + r.
#include "target/gpu/nest.h"

#include "target/instr.h"

#include <string.h>

enum { FIRST_CAPABILITY = 90, LINE_ROWS = 8 }; // the swizzle's period, in rows

static const kiln_loop *block_loop(const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && l->how == KILN_BLOCK_X) return l;
    const kiln_loop *inner = block_loop(l->body);
    if (inner) return inner;
  }
  return NULL;
}

kiln_status kiln_gpu_nest_cluster(kiln_gpu_nest *n) {
  const kiln_loop *l = block_loop(n->l->body);
  n->cluster = 1;
  if (!l || n->m->gpu.capability < FIRST_CAPABILITY) return KILN_OK;
  const char *blocks = kiln_loop_note(n->cx, l, KILN_CLUSTER_NOTE);
  if (blocks) n->cluster = strtoll(blocks, NULL, 10);
  if (!kiln_cluster_is(n->cluster) || n->grid[0] % n->cluster)
    return kiln_gpu_refuse(n,
                           "blocks of a cluster must be 2, 4 or 8 and divide the %" PRId64
                           " of the grid, got %" PRId64 " at loop %s",
                           n->grid[0], n->cluster, kiln_symbol_text(n->cx, l->var));
  return KILN_OK;
}

typedef struct sharing {
  const kiln_gpu_nest *n;
  const kiln_loop *block; // the loop whose iterations are the blocks
  int buffer;
  kiln_ranges ranges;
  kiln_multicast who; // of the copies so far; .n 0: there were none
  bool differ;        // blocks, in whether they copy; or copies, in who shares them
} sharing;

// Index |k| of a copy's source, in block |number| of a cluster.
static const kiln_expr *index_of(sharing *s, const kiln_expr *from, int k, int64_t number) {
  kiln_ctx *cx = s->n->cx;
  const kiln_expr *block =
      kiln_add(cx, kiln_mul(cx, kiln_var(cx, s->block->var), kiln_int(cx, s->n->cluster)),
               kiln_int(cx, number));
  return kiln_simplify(cx, kiln_expr_substitute(cx, from->args[k], 1, &s->block->var, &block),
                       &s->ranges);
}

static bool is_same(sharing *s, const kiln_expr *from, int64_t a, int64_t b) {
  bool is = true;
  for (int k = 0; k < from->n_args && is; k++)
    is = index_of(s, from, k, a) == index_of(s, from, k, b);
  return is;
}

static kiln_multicast multicast_of(sharing *s, const kiln_loop *tma) {
  kiln_multicast who = {0};
  for (int64_t a = 0; a < s->n->cluster; a++) {
    int64_t n = 0;
    for (int64_t b = 0; b < s->n->cluster; b++) {
      if (!is_same(s, tma->operands[1], a, b)) continue;
      who.of |= UINT64_C(1) << (KILN_MAX_CLUSTER * a + b);
      n++;
    }
    s->differ |= a > 0 && n != who.n;
    who.n = n;
  }
  return who;
}

static void take_tma(sharing *s, const kiln_loop *l) {
  const kiln_multicast who = multicast_of(s, l);
  s->differ |= l->instr->is_im2col || (s->who.n && s->who.of != who.of) ||
               l->instr->loops->buffers.data[1]->extents[0] % (LINE_ROWS * who.n) != 0;
  s->who = who;
}

static void visit(sharing *s, const kiln_loop *l, bool is_all) {
  for (; l; l = l->next) {
    const bool is_for = l->kind == KILN_LOOP_FOR;
    const kiln_expr *decides = is_for ? l->extent : l->kind == KILN_LOOP_IF ? l->cond : NULL;
    const bool all = is_all && !(decides && kiln_expr_uses(decides, s->block->var));
    int64_t extent = 0;
    if (is_for && !kiln_expr_is_int(l->extent, &extent)) extent = INT64_MAX;
    if (is_for)
      kiln_ranges_push(&s->ranges, l->var, 0,
                       (l == s->block ? extent / s->n->cluster : extent) - 1);
    visit(s, l->body, all);
    if (is_for) kiln_ranges_pop(&s->ranges, 1);
    if (l->kind != KILN_LOOP_INSTR || l->operands[0]->u.tensor != s->buffer) continue;
    s->differ |= !all || !l->instr->is_tma;
    if (!s->differ) take_tma(s, l);
  }
}

kiln_multicast kiln_gpu_multicast_of(const kiln_gpu_nest *n, int buffer) {
  sharing s = {.n = n, .block = block_loop(n->l->body), .buffer = buffer};
  if (n->cluster > 1) {
    kiln_ranges_init(&s.ranges, &n->cx->scratch);
    visit(&s, n->l->body, true);
  }
  return n->cluster == 1 || s.differ || !s.who.n ? (kiln_multicast){.n = 1} : s.who;
}
