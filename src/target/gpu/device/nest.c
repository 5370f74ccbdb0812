// Whole nests as device loops (lower.h).
//
// A nest with TMA copies becomes
//
//     alloc mbarriers { role.first { initialise them }  barrier.block  the nest }
//
// With a producer warp, two roles take the place of the nest: the consumers', without the copies,
// and the producer's, of the copies alone, in loops with names of their own.
#include "target/gpu/device/lowering.h"

#include "analysis/uses.h"

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

// The first node that needs earlier launches, among |l| and its siblings, or within the loops
// around all phases: all threads wait in front of it.
static const kiln_loop *first_dependent(const kiln_gpu_nest *n, const kiln_loop *l) {
  while (l->next && !depends(n, l)) l = l->next;
  int64_t extent = 0;
  const bool is_once = l->kind == KILN_LOOP_FOR && kiln_gpu_thread_axis(l) < 0 &&
                       kiln_expr_is_int(l->extent, &extent) && extent == 1,
             is_around = kiln_gpu_block_axis(l) >= 0 ||
                         ((is_once || l->kind == KILN_LOOP_ALLOC) && kiln_gpu_has_threads(l->body));
  return is_around ? first_dependent(n, l->body) : l;
}

// --- mbarriers ---

// The mbarriers, at the places in the arena that the analyses gave them.
static void make_mbarriers(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const kiln_warp_specialization *c = &n->specialized;
  w->full = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n + 1);
  w->phases = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n + 1);
  w->empties = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->empties.n + 1);
  if (c->consumers) {
    w->full[0] = kiln_device_mbarriers(w, "full", c->stages, c->full);
    w->empty = kiln_device_mbarriers(w, "empty", c->stages, c->used);
    w->phases[0] = kiln_device_phases(w, "full.phases");
    w->phases[n->tma.n] = kiln_device_phases(w, "empty.phases");
    for (int i = 1; i < n->tma.n; i++) w->full[i] = w->full[0];
    return;
  }
  for (int i = 0; i < n->tma.n; i++) {
    const char *of = kiln_symbol_text(w->cx, n->l->buffers.data[n->tma.data[i].buffer]->name);
    w->full[i] = kiln_device_mbarriers(w, kiln_arena_printf(&w->cx->perm, "%s.full", of),
                                       n->tma.data[i].stages, n->tma.data[i].at);
    w->phases[i] = kiln_device_phases(w, kiln_arena_printf(&w->cx->perm, "%s.phases", of));
  }
  for (int i = 0; i < n->empties.n; i++)
    w->empties[i] = kiln_device_mbarriers(
        w,
        kiln_arena_printf(&w->cx->perm, "%s.empty",
                          kiln_symbol_text(w->cx, n->empties.data[i].loop->var)),
        n->empties.data[i].stages, n->empties.data[i].at);
}

static void put_init(lowering *w, const kiln_loop *of, const kiln_buffer *b, int64_t count,
                     uint64_t peers) {
  const kiln_expr *arguments[] = {element(w, b, number(w, 0)), number(w, b->extents[0]),
                                  number(w, count), number(w, (int64_t)peers)};
  put(w, of,
      kiln_device_make(w->cx, peers ? KILN_DEVICE_MBARRIER_INIT_CLUSTER : KILN_DEVICE_MBARRIER_INIT,
                       peers ? 4 : 3, arguments));
}

// Whether blocks of the cluster multicast copies.
static bool has_multicast(const kiln_gpu_nest *n) {
  for (int i = 0; i < n->tma.n; i++)
    if (n->tma.data[i].multicast.n > 1) return true;
  return false;
}

// The initialisation of all mbarriers, by the block's first thread.
static kiln_loop *initialisation(lowering *w, const kiln_loop *of) {
  const kiln_gpu_nest *n = w->n;
  const int64_t warps = n->n_threads / n->m->gpu.warp;
  kiln_loop *role = kiln_device_make(w->cx, KILN_DEVICE_ROLE_FIRST, 0, NULL);
  w->at = &role->body;
  put_op(w, of, KILN_DEVICE_MAPS_FETCH);
  const bool is_shared = w->consumer && !w->is_apart; // a stage's barriers by all buffers
  for (int i = 0; i < n->tma.n && !is_shared; i++)
    put_init(w, of, w->full[i], n->tma.data[i].copies, 0);
  for (int i = 0; i < KILN_STAGGERED && w->is_apart; i++)
    put_init(w, of, w->empties[i], warps * n->specialized.consumers, 0);
  for (int i = 0; i < n->empties.n; i++)
    put_init(w, of, w->empties[i], warps, n->empties.data[i].peers);
  if (is_shared) put_init(w, of, w->full[0], 1, 0);
  if (is_shared) put_init(w, of, w->empty, warps, 0);
  put_op(w, of, KILN_DEVICE_FENCE_ASYNC);
  if (has_multicast(n)) put_op(w, of, KILN_DEVICE_FENCE_CLUSTER);
  return role;
}

static kiln_loop *allocated(lowering *w, const kiln_buffer *b, kiln_loop *body) {
  return b ? kiln_alloc_make(w->cx, b, body) : body;
}

// --- nests ---

static kiln_loop *role_of(lowering *w, kiln_device_kind k, int n, const kiln_expr *const *arguments,
                          const kiln_buffer *phases, const kiln_expr *bits, kiln_loop *body) {
  kiln_loop *role = kiln_device_make(w->cx, k, n, arguments);
  role->body = kiln_device_with_phases(w, phases, bits, body);
  return role;
}

// The consumers' and the producer's loops.
static void lower_specialized(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const int64_t consumers = n->specialized.consumers;
  const kiln_symbol var = kiln_symbol_of(w->cx, "consumer");
  w->consumer = kiln_var(w->cx, var);
  make_mbarriers(w);
  kiln_loop *produces = kiln_device_produced(w, n->l->body), *consumes = n->l->body;
  kiln_device_lower_list(w, &consumes);
  kiln_device_take_out(w, &consumes);
  if (consumers > 1) consumes = kiln_device_first_turn(w, consumes);
  const kiln_expr *threads[] = {number(w, 0), number(w, n->block[1]), number(w, consumers)},
                  *row = number(w, n->block[1] * consumers),
                  *flips = number(w, kiln_specialized_parity(n)), *zero = number(w, 0);
  const kiln_expr *parity =
      consumers > 1
          ? kiln_select(w->cx, kiln_binary(w->cx, KILN_EXPR_NE, w->consumer, zero), flips, zero)
          : kiln_mul(w->cx, w->consumer, flips); // none, which the assembler finds too
  kiln_loop *roles =
      role_of(w, KILN_DEVICE_ROLE_CONSUMERS, 3, threads, w->phases[0], parity, consumes);
  roles->var = var;
  roles->next = role_of(w, KILN_DEVICE_ROLE_PRODUCER, 1, &row, w->phases[n->tma.n],
                        number(w, UINT32_MAX), produces);
  if (consumers > 1) {
    roles->body = kiln_device_with_registers(w, false, roles->body);
    roles->next->body = kiln_device_with_registers(w, true, roles->next->body);
  }
  n->l->body = roles;
}

// The nest with its mbarriers.
static void lower_tma_nest(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const kiln_loop *of = n->l->body;
  if (n->stagger.loop) kiln_device_lower_staggered(w);
  else if (n->specialized.consumers) lower_specialized(w);
  else {
    make_mbarriers(w);
    kiln_device_lower_list(w, &n->l->body);
    for (int i = 0; i < n->tma.n; i++)
      n->l->body = kiln_device_with_phases(w, w->phases[i], number(w, 0), n->l->body);
  }
  kiln_loop *first = initialisation(w, of);
  w->at = &first->next;
  put_op(w, of, has_multicast(n) ? KILN_DEVICE_CLUSTER_SYNC : KILN_DEVICE_BARRIER_BLOCK);
  *end_of(&first) = n->l->body;
  w->at = end_of(&first);
  if (has_multicast(n))
    put_op(w, of, KILN_DEVICE_CLUSTER_SYNC); // no block exits while peers use its memory
  for (int i = 0; i < n->tma.n && w->consumer; i++)
    first = allocated(w, n->l->buffers.data[n->tma.data[i].buffer], first);
  for (int i = 0; i < n->tma.n; i++)
    first = allocated(w, w->consumer && !w->is_apart && i ? NULL : w->full[i], first);
  for (int i = 0; i < KILN_STAGGERED && w->is_apart; i++)
    first = allocated(w, w->empties[i], first);
  for (int i = 0; i < n->empties.n; i++) first = allocated(w, w->empties[i], first);
  n->l->body = allocated(w, w->empty, first);
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
  if (n->tma.n) lower_tma_nest(&w);
  else kiln_device_lower_list(&w, &n->l->body);
}
