// Barrier insertion: the fewest barriers that leave no race between two threads of a block.
//
// The threads of a block run the nest in phases: a thread loop with no other in it, and each
// statement outside of thread loops, which one thread does. All else is control, which all threads
// go through. The walk goes along the phases in the order in which they run and keeps the accesses
// since the last barrier that are still open; where an access of a phase may meet an open one of
// another thread, one of them a write, a barrier stands in front of the phase. Accesses meet as isl
// says (analysis/dependence.h), those of two buffers where these overlap in the arena.
//
// Accesses that are open at the end of a serial loop's body are open at the begin of the next
// iteration. Either barriers are added until none is missing, or one is put in front of the whole
// body, whichever needs fewer. A buffer that is filled ahead (pipeline) then needs one barrier an
// iteration. Accesses before the loop are waited for in front of it.
//
// TMA copies arrive at mbarriers, on which their readers wait (pipeline.c).
#include "target/gpu/nest.h"

typedef struct access {
  const kiln_dependence_access *t;
  int id;          // among the nest's touches
  bool is_control; // of an extent or a condition: any thread does it
} access;

// An access that the threads have not waited for.
typedef struct pending {
  access a;
  int level;       // outer loops that are still in the access's iteration
  bool is_earlier; // the next loop is in a later iteration
  bool is_in_warp; // the threads of a warp have waited for each other
} pending;

typedef struct open_list {
  KILN_VEC(pending)
  list;
} open_list;

typedef struct syncer {
  kiln_gpu_nest *n;
  kiln_dependence_accesses all;
  kiln_map phases;   // by node of a touch: the phase or control that it is of
  kiln_map verdicts; // by pair
  open_list open;
  const kiln_loop *loops[64]; // around the walk
  int n_loops;
  int divergence; // divergent control around it
  // Barriers so far: the statements and loops in front of which they stand.
  KILN_VEC(struct {
    const kiln_loop *node;
    kiln_gpu_wait wait;
  })
  waits;
} syncer;

static uint64_t key_of(const kiln_loop *l) { return (uint64_t)(uintptr_t)l; }

// --- barriers found so far ---

static kiln_gpu_wait wait_of(const syncer *s, const kiln_loop *node) {
  kiln_gpu_wait most = KILN_WAIT_NONE;
  for (int i = 0; i < s->waits.n; i++)
    if (s->waits.data[i].node == node && s->waits.data[i].wait > most) most = s->waits.data[i].wait;
  return most;
}

static void pass_wait(syncer *s, kiln_gpu_wait wait) {
  if (wait == KILN_WAIT_BLOCK) s->open.list.n = 0;
  for (int i = 0; i < s->open.list.n; i++)
    s->open.list.data[i].is_in_warp |= wait == KILN_WAIT_WARP;
}

static kiln_status add_wait(syncer *s, const kiln_loop *node, kiln_gpu_wait wait) {
  if (s->divergence > 0)
    return kiln_gpu_refuse(s->n,
                           "threads would have to wait for each other within a loop or a condition "
                           "that not all of them go through alike, in front of %s%s: bind loops "
                           "further outside, or keep the condition within the thread loops",
                           node->kind == KILN_LOOP_FOR ? "loop " : "a statement",
                           node->kind == KILN_LOOP_FOR ? kiln_symbol_text(s->n->cx, node->var)
                                                       : "");
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->waits, 1);
  s->waits.data[s->waits.n].node = node;
  s->waits.data[s->waits.n++].wait = wait;
  pass_wait(s, wait);
  return KILN_OK;
}

// --- whether two accesses meet ---

static bool share_a_place(const syncer *s, int a, int b) {
  const kiln_loops *l = s->n->l;
  const int64_t *at = s->n->offsets;
  if (at[a] < 0 || at[b] < 0) return false;
  const kiln_buffer *x = l->buffers.data[a], *y = l->buffers.data[b];
  return at[a] < at[b] + kiln_buffer_elems(y) * kiln_dtype_bytes(y->dtype) &&
         at[b] < at[a] + kiln_buffer_elems(x) * kiln_dtype_bytes(x->dtype);
}

static const kiln_expr *block_of(const syncer *s, const kiln_dependence_access *t, int axis) {
  for (int i = 0; i < t->n_loops; i++)
    if (kiln_gpu_block_axis(t->loops[i]) == axis) return kiln_var(s->n->cx, t->loops[i]->var);
  return kiln_int(s->n->cx, 0);
}

static kiln_dependence_verdict ask(syncer *s, const kiln_access_pair *pair, int n,
                                   const kiln_expr *const *conds) {
  return kiln_access_pair_verdict(s->n->cx, pair, n, conds);
}

enum { MAX_CONDS = 8 };

// Conditions on two accesses of one block, the first open as |o|: equal blocks, iterations in
// order.
static int conditions(const syncer *s, const pending *o, const kiln_access_pair *pair,
                      const kiln_expr **out) {
  kiln_ctx *cx = s->n->cx;
  int n = 0;
  for (int axis = 0; axis < 3; axis++) {
    const kiln_expr *x = block_of(s, pair->a, axis),
                    *y = kiln_access_pair_second(cx, pair, block_of(s, pair->b, axis));
    if (x != y) out[n++] = kiln_binary(cx, KILN_EXPR_EQ, x, y);
  }
  if (o->is_earlier && pair->n_shared == o->level && o->level < pair->a->n_loops &&
      o->level < pair->b->n_loops && pair->a->loops[o->level] == pair->b->loops[o->level]) {
    const kiln_expr *var = kiln_var(cx, pair->a->loops[o->level]->var);
    out[n++] = kiln_binary(cx, KILN_EXPR_LT, var, kiln_access_pair_second(cx, pair, var));
  }
  return n;
}

static kiln_gpu_wait judge(syncer *s, const pending *o, const access *b) {
  kiln_ctx *cx = s->n->cx;
  kiln_access_pair pair = {o->a.t, b->t, 0};
  const kiln_expr *conds[MAX_CONDS];
  while (pair.n_shared < o->level && pair.n_shared < pair.a->n_loops &&
         pair.n_shared < pair.b->n_loops &&
         pair.a->loops[pair.n_shared] == pair.b->loops[pair.n_shared])
    pair.n_shared++;
  int n = conditions(s, o, &pair, conds);
  if (o->a.is_control || b->is_control)
    return ask(s, &pair, n, conds) == KILN_NEVER ? KILN_WAIT_NONE : KILN_WAIT_BLOCK;
  const kiln_expr *x = kiln_gpu_thread_number(s->n, pair.a->n_loops, pair.a->loops);
  const kiln_expr *y = kiln_access_pair_second(
      cx, &pair, kiln_gpu_thread_number(s->n, pair.b->n_loops, pair.b->loops));
  if (x == y) return KILN_WAIT_NONE; // both accesses are of the same thread
  conds[n] = kiln_binary(cx, KILN_EXPR_NE, x, y);
  if (ask(s, &pair, n + 1, conds) == KILN_NEVER) return KILN_WAIT_NONE;
  const int64_t warp = s->n->m->gpu.warp;
  if (warp <= 1) return KILN_WAIT_BLOCK;
  const kiln_expr *size = kiln_int(cx, warp);
  conds[n] = kiln_binary(cx, KILN_EXPR_NE, kiln_div(cx, x, size), kiln_div(cx, y, size));
  return ask(s, &pair, n + 1, conds) == KILN_NEVER ? KILN_WAIT_WARP : KILN_WAIT_BLOCK;
}

static bool is_tma(const kiln_dependence_access *t) {
  return t->node->kind == KILN_LOOP_INSTR && t->node->instr->is_tma;
}

static kiln_gpu_wait wait_between(syncer *s, const pending *o, const access *b) {
  if (s->n->specialized.consumers && (is_tma(o->a.t) || is_tma(b->t)))
    return KILN_WAIT_NONE; // warp_specialize.c
  if (!b->t->write && (!o->a.t->write || is_tma(o->a.t))) return KILN_WAIT_NONE;
  if (o->a.t->buffer != b->t->buffer)
    return share_a_place(s, o->a.t->buffer, b->t->buffer) ? KILN_WAIT_BLOCK : KILN_WAIT_NONE;
  if (s->all.too_deep) return KILN_WAIT_BLOCK;
  const uint64_t pair = (uint64_t)o->a.id << 32 | (uint64_t)b->id << 8 | (uint64_t)o->level << 1 |
                        (uint64_t)o->is_earlier;
  const uint64_t *known = kiln_map_find(&s->verdicts, pair);
  if (known) return (kiln_gpu_wait)*known;
  const kiln_gpu_wait wait = judge(s, o, b);
  kiln_map_put(&s->verdicts, pair, wait);
  return wait;
}

// --- phases ---

static bool is_phase(const kiln_loop *l) { return !kiln_gpu_has_threads(l->body); }

// Gives the accesses under |l| to |phase|.
static void assign(syncer *s, const kiln_loop *l, const kiln_loop *phase) {
  kiln_map_put(&s->phases, key_of(l), key_of(phase));
  for (l = l->body; l; l = l->next) assign(s, l, phase);
}

static void find_phases(syncer *s, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (is_phase(l)) {
      assign(s, l, l);
    } else {
      kiln_map_put(&s->phases, key_of(l), key_of(l));
      find_phases(s, l->body);
    }
  }
}

static bool is_shared(const syncer *s, const kiln_dependence_access *t) {
  return !kiln_scope_is_private(s->n->l->buffers.data[t->buffer]->scope);
}

static bool is_of(const syncer *s, const kiln_dependence_access *t, const kiln_loop *node) {
  const uint64_t *phase = kiln_map_find(&s->phases, key_of(t->node));
  return phase && *phase == key_of(node);
}

// Puts the barrier that the open accesses and those of |node| need in front of |before|.
static kiln_status wait_for(syncer *s, const kiln_loop *node, const kiln_loop *before) {
  kiln_gpu_wait most = KILN_WAIT_NONE;
  for (int i = 0; i < s->all.n; i++) {
    if (!is_of(s, &s->all.data[i], node) || !is_shared(s, &s->all.data[i])) continue;
    const access a = {&s->all.data[i], i, !is_phase(node)};
    for (int k = 0; k < s->open.list.n && most < KILN_WAIT_BLOCK; k++) {
      const kiln_gpu_wait wait = wait_between(s, &s->open.list.data[k], &a);
      if (wait == KILN_WAIT_WARP && s->open.list.data[k].is_in_warp) continue;
      if (wait > most) most = wait;
    }
  }
  return most == KILN_WAIT_NONE ? KILN_OK : add_wait(s, before, most);
}

static kiln_status wait_for_all(syncer *s, const kiln_loop *list, const kiln_loop *before) {
  for (const kiln_loop *l = list; l; l = l->next) {
    KILN_TRY(wait_for(s, l, before));
    if (!is_phase(l)) KILN_TRY(wait_for_all(s, l->body, before));
  }
  return KILN_OK;
}

static void open_accesses(syncer *s, const kiln_loop *node) {
  for (int i = 0; i < s->all.n; i++) {
    if (!is_of(s, &s->all.data[i], node) || !is_shared(s, &s->all.data[i])) continue;
    const pending p = {{&s->all.data[i], i, !is_phase(node)}, s->n_loops, false, false};
    KILN_VEC_PUSH(&s->n->cx->scratch, &s->open.list, p);
  }
}

static kiln_status run_phase(syncer *s, const kiln_loop *node) {
  KILN_TRY(wait_for(s, node, node));
  open_accesses(s, node);
  return KILN_OK;
}

// --- control ---

static kiln_status walk(syncer *s, const kiln_loop *list);

static open_list copy_of(const syncer *s, const open_list *o) {
  open_list c = {0};
  for (int i = 0; i < o->list.n; i++) KILN_VEC_PUSH(&s->n->cx->scratch, &c.list, o->list.data[i]);
  return c;
}

static bool same(const pending *a, const pending *b) {
  return a->a.id == b->a.id && a->level == b->level && a->is_earlier == b->is_earlier &&
         a->is_in_warp == b->is_in_warp;
}

static void join(syncer *s, const open_list *more) {
  for (int i = 0; i < more->list.n; i++) {
    bool known = false;
    for (int k = 0; k < s->open.list.n; k++)
      known |= same(&more->list.data[i], &s->open.list.data[k]);
    if (!known) KILN_VEC_PUSH(&s->n->cx->scratch, &s->open.list, more->list.data[i]);
  }
}

// The loops deeper than |depth| are left, for the next iteration of the first of them or for good.
static void leave(syncer *s, int depth, bool again) {
  for (int i = 0; i < s->open.list.n; i++) {
    pending *p = &s->open.list.data[i];
    if (p->level <= depth) continue;
    p->level = depth;
    p->is_earlier = again;
  }
}

// Walks the body once, with the accesses that are open before it.
static kiln_status walk_body(syncer *s, const kiln_loop *l) {
  if (s->n_loops < (int)KILN_LEN(s->loops)) s->loops[s->n_loops++] = l;
  KILN_TRY(walk(s, l->body));
  s->n_loops--;
  return KILN_OK;
}

// Adds barriers until the accesses of one iteration do not meet those of the next.
static kiln_status settle(syncer *s, const kiln_loop *l) {
  int before = 0;
  for (int pass = 0; pass < 2 || before != s->waits.n; pass++) {
    before = s->waits.n;
    KILN_TRY(walk_body(s, l));
    leave(s, s->n_loops, true);
    open_accesses(s, l); // the extent is read again
  }
  return KILN_OK;
}

static void go_back(syncer *s, int n_waits, const open_list *open) {
  s->waits.n = n_waits;
  s->open = copy_of(s, open);
}

// Hoists barriers deeper in the loop's body to one in front of the loop, where that suffices: the
// accesses that they wait for come before the loop.
static kiln_status wait_in_front(syncer *s, const kiln_loop *l, int n_waits,
                                 const open_list *before) {
  const int n = s->waits.n;
  if (n == n_waits || wait_of(s, l->body) != KILN_WAIT_NONE) return KILN_OK;
  go_back(s, n_waits, before);
  KILN_TRY(add_wait(s, l, KILN_WAIT_BLOCK));
  KILN_TRY(settle(s, l));
  if (s->waits.n == n_waits + 1) return KILN_OK;
  go_back(s, n_waits, before);
  return settle(s, l);
}

static kiln_status walk_serial(syncer *s, const kiln_loop *l) {
  const open_list before = copy_of(s, &s->open);
  const int n = s->waits.n;
  int64_t extent = 0;
  const bool is_constant = kiln_expr_is_int(l->extent, &extent);
  KILN_TRY(settle(s, l));
  const int added = s->waits.n - n,
            most = l->body && l->body->kind == KILN_LOOP_IF ? added : added - 1; // fills come first
  if (most > 0 && extent > 1) {
    go_back(s, n, &before);
    KILN_TRY(add_wait(s, l->body, KILN_WAIT_BLOCK));
    KILN_TRY(walk_body(s, l));
    if (s->waits.n - n > most) {
      go_back(s, n, &before);
      KILN_TRY(settle(s, l));
    }
  }
  if (extent > 1) KILN_TRY(wait_in_front(s, l, n, &before));
  leave(s, s->n_loops, false);
  if (!is_constant || extent < 1) join(s, &before);
  return KILN_OK;
}

// Control of all threads must not depend on one thread's memory.
static kiln_status check_control(const syncer *s, const kiln_expr *e) {
  int missing = 0;
  for (int axis = 0; axis < 3; axis++) {
    bool is_bound = s->n->block[axis] == 1;
    for (int i = 0; i < s->n_loops; i++) is_bound |= kiln_gpu_thread_axis(s->loops[i]) == axis;
    missing += !is_bound;
  }
  if (!missing || !kiln_gpu_loads_private(s->n, e)) return KILN_OK;
  return kiln_gpu_refuse(s->n,
                         "a loop or a condition around thread loops must not depend on memory "
                         "of one thread: keep what it reads shared");
}

static kiln_status walk_for(syncer *s, const kiln_loop *l) {
  KILN_TRY(check_control(s, l->extent));
  const bool parts = !kiln_gpu_is_uniform(s->n, l->extent, s->n_loops, s->loops);
  KILN_TRY(wait_for(s, l, l));
  if (parts) KILN_TRY(wait_for_all(s, l->body, l));
  open_accesses(s, l);
  s->divergence += parts;
  const bool is_bound = kiln_gpu_thread_axis(l) >= 0 || kiln_gpu_block_axis(l) >= 0;
  if (is_bound) {
    KILN_TRY(walk_body(s, l));
    leave(s, s->n_loops, false);
  } else {
    KILN_TRY(walk_serial(s, l));
  }
  s->divergence -= parts;
  return KILN_OK;
}

// Where the dialect wants it, moves the barrier at the begin of |l|'s body in front of |l|: the
// accesses that it waits for come before |l|.
static kiln_status wait_before_condition(syncer *s, const kiln_loop *l, int n_waits,
                                         open_list *before) {
  const bool waits = s->waits.n > n_waits && l->body && s->divergence == 0 &&
                     wait_of(s, l->body) == KILN_WAIT_BLOCK;
  if (!waits || !s->n->m->target->dialect->waits_before_conditions) return KILN_OK;
  go_back(s, n_waits, before);
  KILN_TRY(add_wait(s, l, KILN_WAIT_BLOCK));
  before->list.n = 0;
  return walk(s, l->body);
}

static kiln_status walk_if(syncer *s, const kiln_loop *l) {
  KILN_TRY(check_control(s, l->cond));
  const bool parts = !kiln_gpu_is_uniform(s->n, l->cond, s->n_loops, s->loops);
  KILN_TRY(wait_for(s, l, l));
  if (parts) KILN_TRY(wait_for_all(s, l->body, l));
  open_accesses(s, l);
  open_list before = copy_of(s, &s->open);
  const int n_waits = s->waits.n;
  s->divergence += parts;
  KILN_TRY(walk(s, l->body));
  if (!parts) KILN_TRY(wait_before_condition(s, l, n_waits, &before));
  s->divergence -= parts;
  join(s, &before);
  return KILN_OK;
}

static kiln_status walk(syncer *s, const kiln_loop *list) {
  for (const kiln_loop *l = list; l; l = l->next) {
    pass_wait(s, wait_of(s, l));
    if (is_phase(l)) KILN_TRY(run_phase(s, l));
    else if (l->kind == KILN_LOOP_FOR) KILN_TRY(walk_for(s, l));
    else if (l->kind == KILN_LOOP_IF) KILN_TRY(walk_if(s, l));
    else KILN_TRY(walk(s, l->body));
  }
  return KILN_OK;
}

// --- blocks ---

// Whether blocks that differ may touch one element, where loops or statements lie outside of block
// loops.
static kiln_status check_blocks(syncer *s) {
  kiln_ctx *cx = s->n->cx;
  if (s->n->is_spine) return KILN_OK;
  for (int i = 0; i < s->all.n; i++)
    for (int k = i; k < s->all.n; k++) {
      const kiln_dependence_access *a = &s->all.data[i], *b = &s->all.data[k];
      const kiln_buffer *x = s->n->l->buffers.data[a->buffer];
      if (a->buffer != b->buffer || (!a->write && !b->write) || !kiln_scope_is_argument(x->scope))
        continue;
      for (int axis = 0; axis < 3; axis++) {
        kiln_access_pair pair = {a, b, 0};
        const kiln_expr *cond =
            kiln_binary(cx, KILN_EXPR_NE, block_of(s, a, axis),
                        kiln_access_pair_second(cx, &pair, block_of(s, b, axis)));
        if (kiln_expr_is_zero(cond) || ask(s, &pair, 1, &cond) == KILN_NEVER) continue;
        return kiln_gpu_refuse(s->n,
                               "blocks must not use what other blocks of the same nest write, got "
                               "buffer %s: cut the nest in two, or bind a loop further outside",
                               kiln_symbol_text(cx, x->name));
      }
    }
  return KILN_OK;
}

kiln_status kiln_gpu_nest_sync(kiln_gpu_nest *n) {
  syncer s = {.n = n, .all = kiln_gpu_touches(n, -1)};
  kiln_map_init(&s.phases, &n->cx->scratch);
  kiln_map_init(&s.verdicts, &n->cx->scratch);
  KILN_TRY(check_blocks(&s));
  if (n->n_threads == 1) return KILN_OK;
  find_phases(&s, n->l->body);
  KILN_TRY(walk(&s, n->l->body));
  for (int i = 0; i < s.waits.n; i++)
    kiln_gpu_found_of(n, s.waits.data[i].node)->wait = wait_of(&s, s.waits.data[i].node);
  return KILN_OK;
}
