// Lowers a nest and the results of its analyses to device loops: each barrier, wait and
// asynchronous copy becomes a statement where it happens (device.h).
//
// In front of a node stand, in this order: the wait for earlier launches, the commit of the copies
// so far and the wait for those that are needed now, the barrier (or the release of a stage, which
// takes its place), and the wait on full barriers.
//
// A nest with TMA copies becomes
//
//     alloc mbarriers { role.first { initialise them }  barrier.block  the nest }
//
// With a producer warp, two roles take the place of the nest: the consumers', without the copies,
// and the producer's, of the copies alone, in loops with names of their own.
#include "target/gpu/device/lower.h"

#include "analysis/uses.h"
#include "target/gpu/device/map.h"
#include "target/gpu/instr.h"

#include <string.h>

enum { MAX_RENAMED = 64 };

typedef struct lowering {
  kiln_gpu_nest *n;
  kiln_ctx *cx;
  const kiln_loop *dependent;       // the first node that needs earlier launches; NULL: none does
  bool fills;                       // threads write operands of warp groups' instructions
  const kiln_buffer **full, *empty; // [tma] full barriers; a producer warp's empty ones
  const kiln_buffer **phases;       // [tma] the thread's, of full barriers
  const kiln_buffer **empties;      // [empties]
  const kiln_expr *consumer;        // the number of the consumer; NULL: there is no producer warp
  const kiln_expr *tile_begin;      // the first step of the tile, in a persistent tile loop; NULL
  KILN_VEC(kiln_loop *) deferred;   // fills that are issued behind a phase, and not put so far
  kiln_loop **at;                   // where the next statement is put
  int n_renamed;                    // loops of the producer, which are others than the consumers'
  kiln_symbol renamed[MAX_RENAMED];
  const kiln_expr *names[MAX_RENAMED];
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

static void put_op_of(lowering *w, const kiln_loop *of, kiln_device_kind k, const kiln_expr *a,
                      const kiln_expr *b) {
  const kiln_expr *arguments[] = {a, b};
  put(w, of, kiln_device_make(w->cx, k, b ? 2 : 1, arguments));
}

static void put_int(lowering *w, const kiln_loop *of, kiln_device_kind k, int64_t argument) {
  put(w, of, kiln_device_make_int(w->cx, k, argument));
}

static const kiln_expr *element(const lowering *w, const kiln_buffer *b, const kiln_expr *index) {
  return kiln_load(w->cx, b->id, b->dtype, 1, &index);
}

static const kiln_expr *number(const lowering *w, int64_t n) { return kiln_int(w->cx, n); }

// Simplifies |e|, given the range of |loop|'s variable.
static const kiln_expr *simple(const lowering *w, const kiln_loop *loop, const kiln_expr *e) {
  const int64_t most = kiln_gpu_most(w->n, loop);
  kiln_ranges r;
  kiln_ranges_init(&r, &w->cx->scratch);
  kiln_ranges_push(&r, loop->var, 0, most < INT64_MAX ? most - 1 : most);
  return kiln_simplify(w->cx, e, &r);
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

static int tma_of(const lowering *w, int buffer) {
  int i = w->n->tma.n - 1;
  while (i >= 0 && w->n->tma.data[i].buffer != buffer) i--;
  return i;
}

// How many warps' first threads issue the copies of |buffer|: several where all its stages are
// filled at once.
static int64_t issuers_of(const lowering *w, int buffer) {
  const int i = tma_of(w, buffer);
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
static void lower_tma(lowering *w, kiln_loop **link, int64_t issuers) {
  enum { FIRST = 5 }; // of the coordinates
  kiln_loop *l = *link;
  const int i = tma_of(w, l->operands[0]->u.tensor);
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
  if (w->consumer) return; // the producer expects all of a stage
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
      lower_tma(w, link, several ? issuers_of(w, l->operands[0]->u.tensor) : 1);
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
static void put_if(lowering *w, const kiln_loop *of, const kiln_expr *cond, kiln_loop *statement) {
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
  put_if(w, of, simple(w, loop, cond),
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
    put_if(w, of,
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
    const bool is =
        w->consumer ? i == 0 && l == w->n->specialized.phase : w->n->tma.data[i].use == l;
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
  put_if(w, of, simple(w, c->loop, kiln_binary(cx, KILN_EXPR_GE, step, least)),
         kiln_device_make(cx, KILN_DEVICE_MBARRIER_ARRIVE, 1, &stage));
}

static kiln_loop **end_of(kiln_loop **list) {
  while (*list) list = &(*list)->next;
  return list;
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

static void lower_list(lowering *w, kiln_loop **list);

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
  lower_list(w, &l->body);
  steps->body = l->body;
  kiln_loop *first = r->first->body, *last = r->last->body;
  lower_list(w, &first);
  lower_list(w, &last);
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
  } else lower_list(w, &l->body);
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
  lower_list(w, &l->body);
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

static void lower_list(lowering *w, kiln_loop **list) {
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
    if (is_elsewhere(w, l)) {
      if (is_deferred(w->n, l)) KILN_VEC_PUSH(&w->cx->scratch, &w->deferred, l);
      *link = l->next;
    } else if (w->consumer && l == w->n->specialized.tile_loop && w->n->specialized.consumers > 1) {
      *link = turns_of(w, l);
      link = &(*link)->next;
    } else if (is_phase(l) && !is_shared) link = lower_phase(w, link);
    else link = lower_loop(w, link);
  }
}

// --- a producer warp ---

static const kiln_expr *renamed(const lowering *w, const kiln_expr *e) {
  return e ? kiln_expr_substitute(w->cx, e, w->n_renamed, w->renamed, w->names) : NULL;
}

static void put_leads(lowering *w, const kiln_loop *l) {
  const kiln_gpu_found *f = kiln_gpu_found_of(w->n, l);
  if (!f->leads) return;
  const kiln_expr *stage = renamed(w, f->stage);
  put_op_of(w, l, KILN_DEVICE_MBARRIER_WAIT, element(w, w->empty, stage),
            element(w, w->phases[w->n->tma.n], number(w, 0)));
  put_op_of(w, l, KILN_DEVICE_MBARRIER_EXPECT, element(w, w->full[0], stage),
            number(w, w->n->specialized.stage_bytes));
}

static kiln_loop *producer_list(lowering *w, const kiln_loop *from);

// |l| and its body, in loops of the producer's own.
static kiln_loop *produced(lowering *w, const kiln_loop *l) {
  kiln_loop *copy = KILN_NEW(&w->cx->perm, kiln_loop);
  const int n = w->n_renamed;
  *copy = *l;
  copy->next = NULL;
  copy->extent = renamed(w, l->extent);
  copy->cond = renamed(w, l->cond);
  if (l->kind == KILN_LOOP_FOR && n < MAX_RENAMED) {
    copy->var = kiln_symbol_printf(w->cx, "%s.p", kiln_symbol_text(w->cx, l->var));
    w->renamed[n] = l->var;
    w->names[w->n_renamed++] = kiln_var(w->cx, copy->var);
  }
  if (l->kind == KILN_LOOP_INSTR) {
    lower_tma(w, &copy, 1);
    for (int i = 0; i < copy->n_operands; i++) copy->operands[i] = renamed(w, copy->operands[i]);
  }
  copy->body = producer_list(w, l->body);
  w->n_renamed = n;
  return copy;
}

// The producer's part of |from| and its siblings: TMA copies, and the control around them.
static kiln_loop *producer_list(lowering *w, const kiln_loop *from) {
  kiln_loop *first = NULL;
  for (const kiln_loop *l = from; l; l = l->next) {
    const bool has_tma = kiln_gpu_has_tma(l);
    w->at = end_of(&first);
    if (w->dependent && (l == w->dependent || (!has_tma && kiln_gpu_is_in(l->body, w->dependent))))
      put_op(w, l, KILN_DEVICE_LAUNCH_WAIT);
    if (!has_tma) continue;
    put_leads(w, l);
    *end_of(&first) = l->kind == KILN_LOOP_ALLOC ? producer_list(w, l->body) : produced(w, l);
  }
  return first;
}

// Takes the ALLOCs of buffers that TMA fills out of |list|: both roles have them.
static void take_out(lowering *w, kiln_loop **list) {
  for (kiln_loop **link = list; *link;) {
    kiln_loop *l = *link;
    take_out(w, &l->body);
    if (l->kind == KILN_LOOP_ALLOC && tma_of(w, l->buffer) >= 0) {
      *link = l->body;
      link = end_of(link);
      *link = l->next;
    } else link = &l->next;
  }
}

// --- mbarriers ---

static const kiln_buffer *make_buffer(lowering *w, const char *name, kiln_dtype t, kiln_scope scope,
                                      int64_t n, int64_t at) {
  kiln_gpu_nest *nest = w->n;
  const kiln_buffer *b = kiln_buffer_make(w->cx, nest->l, name, t, scope, 1, &n, NULL);
  int64_t *offsets = KILN_NEW_ARRAY(&w->cx->perm, int64_t, nest->l->buffers.n);
  memcpy(offsets, nest->offsets, (size_t)b->id * sizeof *offsets);
  offsets[b->id] = at;
  nest->offsets = offsets;
  return b;
}

static const kiln_buffer *make_phases(lowering *w, const char *name) {
  return make_buffer(w, name, KILN_U32, KILN_SCOPE_LOCAL, 1, -1);
}

// The mbarriers, at the places in the arena that the analyses gave them.
static void make_mbarriers(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const kiln_warp_specialization *c = &n->specialized;
  w->full = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n + 1);
  w->phases = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n + 1);
  w->empties = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->empties.n + 1);
  if (c->consumers) {
    w->full[0] = make_buffer(w, "full", KILN_U64, KILN_SCOPE_SHARED, c->stages, c->full);
    w->empty = make_buffer(w, "empty", KILN_U64, KILN_SCOPE_SHARED, c->stages, c->used);
    w->phases[0] = make_phases(w, "full.phases");
    w->phases[n->tma.n] = make_phases(w, "empty.phases");
    for (int i = 1; i < n->tma.n; i++) w->full[i] = w->full[0];
    return;
  }
  for (int i = 0; i < n->tma.n; i++) {
    const char *of = kiln_symbol_text(w->cx, n->l->buffers.data[n->tma.data[i].buffer]->name);
    w->full[i] = make_buffer(w, kiln_arena_printf(&w->cx->perm, "%s.full", of), KILN_U64,
                             KILN_SCOPE_SHARED, n->tma.data[i].stages, n->tma.data[i].at);
    w->phases[i] = make_phases(w, kiln_arena_printf(&w->cx->perm, "%s.phases", of));
  }
  for (int i = 0; i < n->empties.n; i++)
    w->empties[i] =
        make_buffer(w,
                    kiln_arena_printf(&w->cx->perm, "%s.empty",
                                      kiln_symbol_text(w->cx, n->empties.data[i].loop->var)),
                    KILN_U64, KILN_SCOPE_SHARED, n->empties.data[i].stages, n->empties.data[i].at);
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
  for (int i = 0; i < n->tma.n && !w->consumer; i++)
    put_init(w, of, w->full[i], n->tma.data[i].copies, 0);
  for (int i = 0; i < n->empties.n; i++)
    put_init(w, of, w->empties[i], warps, n->empties.data[i].peers);
  if (w->consumer) put_init(w, of, w->full[0], 1, 0);
  if (w->consumer) put_init(w, of, w->empty, warps, 0);
  put_op(w, of, KILN_DEVICE_FENCE_ASYNC);
  if (has_multicast(n)) put_op(w, of, KILN_DEVICE_FENCE_CLUSTER);
  return role;
}

static kiln_loop *allocated(lowering *w, const kiln_buffer *b, kiln_loop *body) {
  return b ? kiln_alloc_make(w->cx, b, body) : body;
}

// alloc |phases| { sets them to |bits|  |body| }
static kiln_loop *with_phases(lowering *w, const kiln_buffer *phases, const kiln_expr *bits,
                              kiln_loop *body) {
  kiln_loop *alloc = kiln_alloc_make(w->cx, phases, body);
  w->at = &alloc->body;
  put_op_of(w, body, KILN_DEVICE_MBARRIER_PHASES, element(w, phases, number(w, 0)), bits);
  return alloc;
}

static kiln_loop *role_of(lowering *w, kiln_device_kind k, int n, const kiln_expr *const *arguments,
                          const kiln_buffer *phases, const kiln_expr *bits, kiln_loop *body) {
  kiln_loop *role = kiln_device_make(w->cx, k, n, arguments);
  role->body = with_phases(w, phases, bits, body);
  return role;
}

// The consumers' and the producer's loops.
static void lower_specialized(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const int64_t consumers = n->specialized.consumers;
  const kiln_symbol var = kiln_symbol_of(w->cx, "consumer");
  w->consumer = kiln_var(w->cx, var);
  make_mbarriers(w);
  kiln_loop *produces = producer_list(w, n->l->body), *consumes = n->l->body;
  lower_list(w, &consumes);
  take_out(w, &consumes);
  if (consumers > 1) {
    kiln_loop *arrive = consumes;
    const kiln_expr *arguments[] = {kiln_sub(w->cx, number(w, 4), w->consumer),
                                    number(w, 2 * n->n_threads)};
    w->at = &arrive;
    put_if(w, consumes, kiln_binary(w->cx, KILN_EXPR_EQ, w->consumer, number(w, 1)),
           kiln_device_make(w->cx, KILN_DEVICE_BARRIER_ARRIVE, 2, arguments));
    consumes = arrive;
  }
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
  n->l->body = roles;
}

// The nest with its mbarriers.
static void lower_tma_nest(lowering *w) {
  kiln_gpu_nest *n = w->n;
  const kiln_loop *of = n->l->body;
  if (n->specialized.consumers) lower_specialized(w);
  else {
    make_mbarriers(w);
    lower_list(w, &n->l->body);
    for (int i = 0; i < n->tma.n; i++)
      n->l->body = with_phases(w, w->phases[i], number(w, 0), n->l->body);
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
    first = allocated(w, w->consumer && i ? NULL : w->full[i], first);
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
  else lower_list(&w, &n->l->body);
}
