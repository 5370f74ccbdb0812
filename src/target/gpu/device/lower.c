// Lowers a nest and the results of its analyses to device loops: each barrier, wait and
// asynchronous copy becomes a statement where it happens (device.h).
//
// In front of a node stand, in this order: the wait for earlier launches, the commit of the copies
// so far and the wait for those that are needed now, the barrier (or the release of a stage, which
// takes its place), and the wait on full barriers.
#include "target/gpu/device/lowering.h"

#include "target/gpu/device/map.h"
#include "target/gpu/instr.h"

// Simplifies |e|, given the range of |loop|'s variable.
static const kiln_expr *simple(const lowering *w, const kiln_loop *loop, const kiln_expr *e) {
  const int64_t most = kiln_gpu_most(w->n, loop);
  kiln_ranges r;
  kiln_ranges_init(&r, &w->cx->scratch);
  kiln_ranges_push(&r, loop->var, 0, most < INT64_MAX ? most - 1 : most);
  return kiln_simplify(w->cx, e, &r);
}

// --- asynchronous copies of words ---

// The cp.async of 16 bytes that a loop which is still vectorized becomes, if it fills a buffer of
// asynchronous copies; NULL.
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
  const kiln_gpu_found *f = kiln_gpu_found_of(w->n, l);
  if (!f->commits) return;
  put_op(w, l, KILN_DEVICE_COPY_COMMIT);
  if (f->pending != INT32_MAX) put_int(w, l, KILN_DEVICE_COPY_WAIT, f->pending);
}

// --- TMA copies ---

int kiln_device_tma_of(const lowering *w, int buffer) {
  int i = w->n->tma.n - 1;
  while (i >= 0 && w->n->tma.data[i].buffer != buffer) i--;
  return i;
}

// How many warps' first threads issue the copies of |buffer|: several where all its stages are
// filled at once.
static int64_t issuers_of(const lowering *w, int buffer) {
  const int i = kiln_device_tma_of(w, buffer);
  const int64_t warps = w->n->block[0] / w->n->m->gpu.warp;
  return i >= 0 && w->n->tma.data[i].is_whole && warps > 1 ? warps : 1;
}

// Whether |l| and its siblings are TMA copies that several threads issue, and nothing else.
static bool are_issued_by_several(const lowering *w, const kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_tma = l->kind == KILN_LOOP_INSTR && l->instr->is_tma;
    if (l->body ? !are_issued_by_several(w, l->body)
                : !is_tma || issuers_of(w, l->operands[0]->u.tensor) == 1)
      return false;
  }
  return true;
}

// The bytes of a tile.
static int64_t tile_bytes(const kiln_loop *tma) {
  const kiln_buffer *tile = tma->instr->loops->buffers.data[1];
  return tile->extents[0] * tile->extents[1] * kiln_dtype_bytes(tile->dtype);
}

// Lowers the copy |l|: its operands become, behind the two tiles, the mbarrier at which it arrives,
// which expects its bytes first; the blocks that get its rows; its tensor map, and its place there.
// |issuers| warps issue the copies.
void kiln_device_lower_tma(lowering *w, kiln_loop **link, int64_t issuers) {
  enum { FIRST = 5 }; // of the coordinates
  kiln_loop *l = *link;
  const int i = kiln_device_tma_of(w, l->operands[0]->u.tensor);
  const kiln_multicast *who = &w->n->tma.data[i].multicast;
  const kiln_expr *stage = number(w, 0), *operands[FIRST + KILN_MAP_COORDINATES];
  if (w->n->tma.data[i].stages > 1) stage = kiln_tile_begin(w->cx, l->operands[0])->args[0];
  const kiln_expr *full = element(w, w->full[i], stage);
  const int map = kiln_device_map_of(w->n, l, who->n);
  const int n = FIRST + kiln_device_place_of(w->n, l, map, operands + FIRST);
  for (int k = 0; k < 2; k++) operands[k] = l->operands[k];
  operands[2] = full;
  operands[3] = number(w, who->n > 1 ? (int64_t)who->of : 0);
  operands[4] = number(w, map);
  l->n_operands = n;
  l->operands = KILN_NEW_ARRAY(&w->cx->perm, const kiln_expr *, n);
  for (int k = 0; k < n; k++) l->operands[k] = operands[k];
  if (w->consumer && !w->is_apart) return; // the producer expects all of a stage
  w->at = link;
  put_op_of(w, l, KILN_DEVICE_MBARRIER_EXPECT, full, number(w, tile_bytes(l)));
  if (issuers == 1) return;
  const kiln_expr *all =
                      kiln_add(w->cx, kiln_mul(w->cx, stage, number(w, w->n->tma.n)), number(w, i)),
                  *warp = kiln_mod(w->cx, all, number(w, issuers));
  kiln_loop *role = kiln_device_make(w->cx, KILN_DEVICE_ROLE_WARP, 1, &warp);
  role->line = l->line;
  role->body = *link;
  role->next = l->next;
  l->next = NULL;
  *link = role;
}

// Lowers the copies of a phase.
static void lower_inner(lowering *w, kiln_loop **list, bool several) {
  for (kiln_loop **link = list; *link; link = &(*link)->next) {
    kiln_loop *l = *link;
    kiln_loop *copy = l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED ? copy_of(w, l) : NULL;
    if (copy) {
      copy->next = l->next;
      *link = copy;
    } else if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) {
      kiln_device_lower_tma(w, link, several ? issuers_of(w, l->operands[0]->u.tensor) : 1);
      while (*link != l && !kiln_device_is(*link, KILN_DEVICE_ROLE_WARP)) link = &(*link)->next;
    } else lower_inner(w, &l->body, several);
  }
}

// --- barriers ---

// The number in |empties| of the loop that begins with |l|, or that is |l|; -1: there is none.
static int empty_of(const kiln_gpu_nest *n, const kiln_loop *l, bool is_first) {
  int i = n->empties.n - 1;
  while (i >= 0 && (is_first ? n->empties.data[i].first : n->empties.data[i].loop) != l) i--;
  return i;
}

static bool is_deferred(const kiln_gpu_nest *n, const kiln_loop *l) {
  return kiln_gpu_found_of(n, l)->behind != NULL;
}

// A barrier of all threads, or with a producer warp of the consumer's.
static void put_thread_barrier(lowering *w, const kiln_loop *l) {
  if (w->consumer)
    put_op_of(w, l, KILN_DEVICE_BARRIER_SYNC, kiln_add(w->cx, w->consumer, number(w, 1)),
              number(w, w->n->n_threads));
  else put_op(w, l, KILN_DEVICE_BARRIER_BLOCK);
}

// if (|cond|) { |statement| }
void kiln_device_put_if(lowering *w, const kiln_loop *of, const kiln_expr *cond,
                        kiln_loop *statement) {
  statement->line = of->line;
  int64_t is = 0;
  if (kiln_expr_is_int(cond, &is) && is) put(w, of, statement);
  else if (!kiln_expr_is_int(cond, &is)) put(w, of, kiln_if_make(w->cx, cond, statement));
}

// The thread that issues copies waits on the empty barrier of the stage that it fills next.
static void put_empty_wait(lowering *w, const kiln_loop *of, int i) {
  kiln_ctx *cx = w->cx;
  const kiln_loop *loop = w->n->empties.data[i].loop;
  const int64_t lag = w->n->empties.data[i].release_lag;
  const kiln_expr *stages = number(w, w->n->empties.data[i].stages), *v = kiln_var(cx, loop->var),
                  *from = kiln_sub(cx, v, number(w, lag));
  const kiln_expr *cond = kiln_binary(cx, KILN_EXPR_GE, v, number(w, lag)), *arguments[2];
  if (w->n->empties.data[i].peers)
    cond = kiln_binary(cx, KILN_EXPR_AND, cond,
                       kiln_binary(cx, KILN_EXPR_LT, v, number(w, w->n->empties.data[i].fills)));
  arguments[0] = element(w, w->empties[i], kiln_mod(cx, from, stages));
  arguments[1] = kiln_mod(cx, kiln_div(cx, from, stages), number(w, 2));
  kiln_device_put_if(w, of, simple(w, loop, cond),
                     kiln_device_make(cx, KILN_DEVICE_MBARRIER_AWAIT, 2, arguments));
}

// At an iteration's begin threads release the previous one's stage; with multicast, to all blocks
// that fill it.
static void put_empty(lowering *w, const kiln_loop *of, int i) {
  kiln_ctx *cx = w->cx;
  const kiln_loop *loop = w->n->empties.data[i].loop;
  const uint64_t peers = w->n->empties.data[i].peers;
  const kiln_expr *v = kiln_var(cx, loop->var), *arguments[2];
  arguments[0] = element(w, w->empties[i],
                         simple(w, loop, kiln_mod(cx, v, number(w, w->n->empties.data[i].stages))));
  arguments[1] = number(w, (int64_t)peers);
  if (!peers) put(w, of, kiln_device_make(cx, KILN_DEVICE_MBARRIER_ARRIVE, 1, arguments));
  else
    kiln_device_put_if(
        w, of,
        simple(w, loop,
               kiln_binary(cx, KILN_EXPR_LT,
                           kiln_add(cx, v, number(w, w->n->empties.data[i].release_lag)),
                           number(w, w->n->empties.data[i].fills))),
        kiln_device_make(cx, KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER, 2, arguments));
  if (!peers || !is_deferred(w->n, of)) put_empty_wait(w, of, i);
}

static void put_barrier(lowering *w, const kiln_loop *l) {
  const kiln_gpu_wait wait = kiln_gpu_found_of(w->n, l)->wait;
  const int first = empty_of(w->n, l, true);
  if (first >= 0) { // an mbarrier takes its place
    put_empty(w, l, first);
  } else if (wait == KILN_WAIT_BLOCK || empty_of(w->n, l, false) >= 0) {
    // makes threads' writes visible to wgmma and TMA (async proxy)
    if (w->fills) put_op(w, l, KILN_DEVICE_FENCE_ASYNC);
    put_thread_barrier(w, l);
  } else if (wait == KILN_WAIT_WARP) put_op(w, l, KILN_DEVICE_BARRIER_WARP);
}

// Waits on the full barriers of the stages that |l| uses.
static void put_full_waits(lowering *w, const kiln_loop *l) {
  for (int i = 0; i < w->n->tma.n; i++) {
    const bool is_shared = w->consumer && !w->is_apart, // by all buffers
        is = is_shared ? i == 0 && l == w->n->specialized.phase : w->n->tma.data[i].use == l;
    if (!is) continue;
    put_op_of(w, l, KILN_DEVICE_MBARRIER_WAIT, element(w, w->full[i], w->n->tma.data[i].stage),
              element(w, w->phases[i], number(w, 0)));
  }
}

static void put_front(lowering *w, const kiln_loop *l) {
  if (l == w->dependent) put_op(w, l, KILN_DEVICE_LAUNCH_WAIT);
  put_groups(w, l);
  put_barrier(w, l);
  put_full_waits(w, l);
}

// --- instructions of warp groups ---

// The consumer releases the stage of the step |lag| before this one, if that is of the same tile;
// negative: of the last step.
static void put_release(lowering *w, const kiln_loop *of, int64_t lag) {
  kiln_ctx *cx = w->cx;
  const kiln_warp_specialization *c = &w->n->specialized;
  const kiln_expr *v = kiln_var(cx, c->loop->var), *step = kiln_sub(cx, v, number(w, lag)), *stage;
  if (lag < 0) step = w->tile_begin ? v : number(w, c->steps - 1);
  step = simple(w, c->loop, step);
  stage = element(w, w->empty, kiln_mod(cx, step, number(w, c->stages)));
  const kiln_expr *least = w->tile_begin && lag > 0 ? w->tile_begin : number(w, 0);
  kiln_device_put_if(w, of, simple(w, c->loop, kiln_binary(cx, KILN_EXPR_GE, step, least)),
                     kiln_device_make(cx, KILN_DEVICE_MBARRIER_ARRIVE, 1, &stage));
}

static kiln_loop **lower_phase(lowering *w, kiln_loop **link);

// The copies that are issued while the instructions of |phase| run; whether there are any.
static bool put_deferred(lowering *w, const kiln_loop *phase) {
  bool any = false;
  for (int i = 0; i < w->deferred.n; i++) {
    kiln_loop *fill = w->deferred.data[i];
    if (kiln_gpu_found_of(w->n, fill)->behind != phase) continue;
    const int empty = empty_of(w->n, fill, true);
    if (!any && empty >= 0 && w->n->empties.data[empty].peers) put_empty_wait(w, phase, empty);
    any = true;
    kiln_loop **at = w->at, *behind = *at;
    *at = fill;
    fill->next = behind;
    w->at = lower_phase(w, at);
  }
  return any;
}

// Behind a phase |l| of instructions: they are a group, and all but the latest are waited for.
static void end_products(lowering *w, kiln_loop *l, kiln_loop **inside) {
  const int64_t pending = kiln_gpu_found_of(w->n, l)->in_flight;
  w->at = inside ? end_of(inside) : &l->next;
  put_op(w, l, KILN_DEVICE_WGMMA_COMMIT);
  bool defers = false;
  for (int i = 0; i < w->deferred.n; i++)
    defers |= kiln_gpu_found_of(w->n, w->deferred.data[i])->behind == l;
  if (defers && inside) w->at = &l->next; // all threads take part in both
  if (defers) (void)put_deferred(w, l);
  put_int(w, l, KILN_DEVICE_WGMMA_WAIT, pending);
  if (l == w->n->specialized.phase) put_release(w, l, pending);
}

// The results of warp groups' instructions, each once; those that live on.
static void put_settled(lowering *w, const kiln_loop *of, const kiln_loop *l, uint8_t *settled) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC) settled[l->buffer] = 1;
    put_settled(w, of, l->body, settled);
    if (l->kind != KILN_LOOP_INSTR || !kiln_gpu_instr_is_group(l->instr)) continue;
    const kiln_buffer *b = w->n->l->buffers.data[l->operands[0]->u.tensor];
    if (!settled[b->id])
      put_op_of(w, of, KILN_DEVICE_WGMMA_SETTLE, element(w, b, number(w, 0)), NULL);
    settled[b->id] = 1;
  }
}

// Waits for the instructions of a loop's last iterations, behind which their sums may be read.
static void put_drain(lowering *w, const kiln_loop *l, const kiln_loop *body) {
  put_int(w, l, KILN_DEVICE_WGMMA_WAIT, 0);
  if (l == w->n->specialized.loop) put_release(w, l, -1);
  uint8_t *settled = KILN_NEW_ARRAY(&w->cx->scratch, uint8_t, w->n->l->buffers.n);
  put_settled(w, l, body, settled);
}

// --- phases ---

static kiln_loop *wrapped(lowering *w, kiln_device_kind k, kiln_loop *body) {
  kiln_loop *role = kiln_device_make(w->cx, k, 0, NULL);
  role->body = body;
  role->line = body->line;
  return role;
}

// The phase *|link|; gives where the next node stands.
static kiln_loop **lower_phase(lowering *w, kiln_loop **link) {
  kiln_loop *l = *link, *behind = l->next;
  const bool is_product = kiln_gpu_is_product(l), in_loop = kiln_gpu_thread_axis(l) >= 0;
  l->next = NULL;
  kiln_loop **list = in_loop ? &l->body : link;
  const bool several = w->n->tma.n && are_issued_by_several(w, *list);
  lower_inner(w, list, several);
  if (several) *list = wrapped(w, KILN_DEVICE_ROLE_LEADERS, *list);
  if (is_product) {
    w->at = list;
    put_op(w, l, KILN_DEVICE_WGMMA_FENCE);
    end_products(w, l, in_loop ? &l->body : NULL);
  }
  link = end_of(link);
  *link = behind;
  return link;
}

// --- control ---

// tiles v(0, E, 1) { first  tile.steps begin() where v ends its tile { .. }  last }
static kiln_loop *tiles_of(lowering *w, const kiln_tile_loop *r) {
  kiln_ctx *cx = w->cx;
  kiln_loop *l = (kiln_loop *)(uintptr_t)r->loop;
  const kiln_expr *arguments[] = {number(w, 0), l->extent, number(w, 1)}, *outer = w->tile_begin;
  kiln_loop *tiles = kiln_device_make(cx, KILN_DEVICE_TILES, 3, arguments),
            *steps = kiln_device_make(cx, KILN_DEVICE_TILE_STEPS, 0, NULL);
  tiles->var = l->var;
  tiles->line = l->line;
  steps->var = kiln_symbol_printf(cx, "%s.begin", kiln_symbol_text(cx, l->var));
  steps->cond = r->last->cond;
  w->tile_begin = kiln_var(cx, steps->var);
  kiln_device_lower_list(w, &l->body);
  steps->body = l->body;
  kiln_loop *first = r->first->body, *last = r->last->body;
  kiln_device_lower_list(w, &first);
  kiln_device_lower_list(w, &last);
  tiles->body = first;
  w->at = end_of(&tiles->body);
  put(w, l, steps);
  put_drain(w, l, steps->body);
  *end_of(&tiles->body) = last;
  w->tile_begin = outer;
  return tiles;
}

// A loop, with the waits in front of it and behind.
static kiln_loop **lower_loop(lowering *w, kiln_loop **link) {
  kiln_loop *l = *link, *behind = l->next;
  const kiln_gpu_found *f = kiln_gpu_found_of(w->n, l);
  const bool drains = f->drains, empties = empty_of(w->n, l, false) >= 0,
             has_turns = (drains || empties) && w->n->specialized.consumers > 1;
  const kiln_tile_loop *tile_loop = f->tile_loop;
  const kiln_expr *both = number(w, 2 * w->n->n_threads);
  w->at = link;
  if (has_turns)
    put_op_of(w, l, KILN_DEVICE_BARRIER_SYNC, kiln_add(w->cx, w->consumer, number(w, 3)), both);
  if (has_turns && drains) kiln_loop_annotate(w->cx, l, "unroll", "1");
  link = w->at;
  if (tile_loop) {
    l->next = NULL;
    *link = tiles_of(w, tile_loop);
    (*link)->next = behind;
  } else kiln_device_lower_list(w, &l->body);
  w->at = &(*link)->next;
  if (has_turns)
    put_op_of(w, l, KILN_DEVICE_BARRIER_ARRIVE, kiln_sub(w->cx, number(w, 4), w->consumer), both);
  if (drains && !tile_loop) put_drain(w, l, l->body);
  if (empties) put_op(w, l, KILN_DEVICE_BARRIER_BLOCK);
  return w->at;
}

static bool is_phase(const kiln_loop *l) {
  if (kiln_gpu_thread_axis(l) >= 0) return !kiln_gpu_has_threads(l->body);
  return !kiln_gpu_has_threads(l->body) && !kiln_gpu_has_blocks(l->body) &&
         kiln_gpu_block_axis(l) < 0;
}

// tiles t(consumer, E, consumers) { ..  flips the parities that another consumer's tile flips }
static kiln_loop *turns_of(lowering *w, kiln_loop *l) {
  const kiln_expr *arguments[] = {w->consumer, l->extent, number(w, w->n->specialized.consumers)};
  kiln_loop *tiles = kiln_device_make(w->cx, KILN_DEVICE_TILES, 3, arguments);
  tiles->var = l->var;
  tiles->line = l->line;
  tiles->next = l->next;
  kiln_device_lower_list(w, &l->body);
  tiles->body = l->body;
  w->at = end_of(&tiles->body);
  put_op_of(w, l, KILN_DEVICE_MBARRIER_FLIP, element(w, w->phases[0], number(w, 0)),
            number(w, kiln_specialized_parity(w->n)));
  return tiles;
}

// Whether |l| is written elsewhere: as the producer's, behind instructions, at a tile's ends.
static bool is_elsewhere(const lowering *w, const kiln_loop *l) {
  const bool is_producers =
      w->consumer && kiln_gpu_has_tma(l) && !kiln_gpu_has_threads(l->body) && is_phase(l);
  return is_producers || is_deferred(w->n, l) || kiln_gpu_found_of(w->n, l)->is_edge;
}

void kiln_device_lower_list(lowering *w, kiln_loop **list) {
  for (kiln_loop **link = list; *link;) {
    kiln_loop *l = *link;
    w->at = link;
    if (l->kind == KILN_LOOP_DEVICE) {
      link = &l->next;
      continue;
    }
    put_front(w, l);
    link = w->at;
    const bool is_shared =
        l->kind == KILN_LOOP_ALLOC && w->n->l->buffers.data[l->buffer]->scope == KILN_SCOPE_SHARED;
    if (l == w->n->stagger.loop) {
      link = w->lower_loop(w, link);
    } else if (is_elsewhere(w, l)) {
      if (is_deferred(w->n, l)) KILN_VEC_PUSH(&w->cx->scratch, &w->deferred, l);
      *link = l->next;
    } else if (w->consumer && l == w->n->specialized.tile_loop && w->n->specialized.consumers > 1) {
      *link = turns_of(w, l);
      link = &(*link)->next;
    } else if (is_phase(l) && !is_shared) link = lower_phase(w, link);
    else link = lower_loop(w, link);
  }
}
