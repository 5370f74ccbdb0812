// From a nest and what its analyses found to device loops: each barrier, wait and asynchronous copy
// becomes a statement where it happens (device.h).
//
// In front of a node stand, in this order: the wait for earlier launches, the commit of the copies
// so far and the wait for those that are needed now, and the barrier.
#include "target/gpu/device/lower.h"

#include "analysis/uses.h"
#include "target/gpu/instr.h"

typedef struct lowering {
  kiln_gpu_nest *n;
  kiln_ctx *cx;
  const kiln_loop *dependent; // the first node that needs earlier launches; NULL: none does
  bool fills;                 // threads write operands of warp groups' instructions
  kiln_loop **at;             // where the next statement is put
} lowering;

static void put(lowering *w, const kiln_loop *of, kiln_loop *statement) {
  statement->line = of->line;
  statement->next = *w->at;
  *w->at = statement;
  w->at = &statement->next;
}

static void put_op(lowering *w, const kiln_loop *of, kiln_device_kind k) {
  put(w, of, kiln_device_make(w->cx, k, 0, NULL));
}

// --- launches ---

// Whether |l| touches arguments other than repacked constants, siblings left out.
static bool depends(const kiln_gpu_nest *n, const kiln_loop *l) {
  const uint8_t *uses = kiln_uses_of(n->cx, n->l, l);
  for (int i = 0; i < n->l->buffers.n; i++)
    if (uses[i] && kiln_scope_is_argument(n->l->buffers.data[i]->scope) &&
        !n->l->buffers.data[i]->pack)
      return true;
  return false;
}

// The node of |l| and its siblings, or in what is around all phases, in front of which all threads
// wait for launches.
static const kiln_loop *first_dependent(const kiln_gpu_nest *n, const kiln_loop *l) {
  while (l->next && !depends(n, l)) l = l->next;
  int64_t extent = 0;
  const bool is_once = l->kind == KILN_LOOP_FOR && kiln_gpu_thread_axis(l) < 0 &&
                       kiln_expr_is_int(l->extent, &extent) && extent == 1,
             is_around = kiln_gpu_block_axis(l) >= 0 ||
                         ((is_once || l->kind == KILN_LOOP_ALLOC) && kiln_gpu_has_threads(l->body));
  return is_around ? first_dependent(n, l->body) : l;
}

// --- asynchronous copies of words ---

// The copy of 16 bytes that a loop which is still vectorized holds, if its buffer is filled so;
// NULL.
static kiln_loop *copy_of(const lowering *w, const kiln_loop *l) {
  enum { BYTES = 16 };
  kiln_ctx *cx = w->cx;
  const kiln_loop *s = l->body;
  const kiln_buffer *b = w->n->l->buffers.data[s->buffer];
  int64_t lanes = 0;
  if (!w->n->is_async[b->id] || !kiln_expr_is_int(l->extent, &lanes) ||
      lanes * kiln_dtype_bytes(b->dtype) != BYTES)
    return NULL;
  const kiln_expr *zero = kiln_int(cx, 0), *index[KILN_MAX_RANK + 4], *operands[2];
  const kiln_expr *from = kiln_expr_substitute(cx, s->value, 1, &l->var, &zero), *cond = NULL;
  for (int k = 0; k < b->rank; k++)
    index[k] = kiln_expr_substitute(cx, s->index[k], 1, &l->var, &zero);
  if (from->kind == KILN_EXPR_SELECT) {
    cond = from->args[0];
    from = from->args[1];
  }
  if (!kiln_scope_is_argument(w->n->l->buffers.data[from->u.tensor]->scope)) return NULL;
  operands[0] = kiln_load(cx, b->id, b->dtype, b->rank, index);
  operands[1] = from;
  kiln_loop *copy = kiln_device_make(cx, KILN_DEVICE_COPY_ASYNC, 2, operands);
  copy->cond = cond;
  copy->line = l->line;
  return copy;
}

// Closes a group of copies, and waits for those that are needed now.
static void put_groups(lowering *w, const kiln_loop *l) {
  for (int i = 0; i < w->n->groups.n; i++) {
    if (w->n->groups.data[i].node != l) continue;
    put_op(w, l, KILN_DEVICE_COPY_COMMIT);
    if (w->n->groups.data[i].pending != INT32_MAX)
      put(w, l, kiln_device_make_int(w->cx, KILN_DEVICE_COPY_WAIT, w->n->groups.data[i].pending));
  }
}

// --- barriers ---

// The number in |empties| of the loop that begins with |l|, or that is |l|; -1: there is none.
static int empty_of(const kiln_gpu_nest *n, const kiln_loop *l, bool is_first) {
  int i = n->empties.n - 1;
  while (i >= 0 && (is_first ? n->empties.data[i].first : n->empties.data[i].loop) != l) i--;
  return i;
}

static void put_block_barrier(lowering *w, const kiln_loop *l) {
  // what threads wrote is there for the instructions
  if (w->fills) put_op(w, l, KILN_DEVICE_FENCE_ASYNC);
  put_op(w, l, KILN_DEVICE_BARRIER_BLOCK);
}

static void put_barrier(lowering *w, const kiln_loop *l) {
  const kiln_gpu_wait wait = kiln_gpu_wait_of(w->n, l);
  if (empty_of(w->n, l, true) >= 0) return; // an mbarrier takes its place
  if (wait == KILN_WAIT_BLOCK || empty_of(w->n, l, false) >= 0) put_block_barrier(w, l);
  else if (wait == KILN_WAIT_WARP) put_op(w, l, KILN_DEVICE_BARRIER_WARP);
}

// --- all of them ---

static void lower_list(lowering *w, kiln_loop **list) {
  for (kiln_loop **link = list; *link; link = &(*link)->next) {
    kiln_loop *l = *link;
    w->at = link;
    if (l == w->dependent) put_op(w, l, KILN_DEVICE_LAUNCH_WAIT);
    put_groups(w, l);
    put_barrier(w, l);
    link = w->at;
    kiln_loop *copy = l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED ? copy_of(w, l) : NULL;
    if (copy) {
      copy->next = l->next;
      *link = copy;
      continue;
    }
    lower_list(w, &l->body);
    w->at = &l->next;
    if (empty_of(w->n, l, false) >= 0) put_op(w, l, KILN_DEVICE_BARRIER_BLOCK);
  }
}

// Whether threads write operands of warp groups' instructions.
static bool fills(const kiln_gpu_nest *n, const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_STORE && n->l->buffers.data[l->buffer]->is_swizzled) ||
        fills(n, l->body))
      return true;
  return false;
}

void kiln_device_lower(kiln_gpu_nest *n) {
  lowering w = {.n = n, .cx = n->cx};
  if (kiln_gpu_begins_early(n->m)) w.dependent = first_dependent(n, n->l->body);
  w.fills = n->m->gpu.capability >= 90 && fills(n, n->l->body);
  lower_list(&w, &n->l->body);
}
