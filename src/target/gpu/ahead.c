// Software pipelining: loops fill the stages of a circular buffer in shared memory some iterations
// ahead (`pipeline`), by asynchronous copies (cp.async, TMA).
//
//     for f:A { S[f] = .. }  for v { barrier  if (v + A < n) { S[(v + A) % D] = .. }  .. = S[v % D]
//     }
//
// Each iteration of both loops closes a group of copies at its begin: what the thread issued since
// the last. At the begin of iteration v the copies to slot v % D are of the Ath group from the end,
// so all but the A - 1 latest are waited for, in front of the barrier by which the threads see each
// other's. Nothing is left open behind the loop, as its last iterations fill nothing. Where A is n,
// the second loop fills nothing at all. (PTX ISA, cp.async.)
//
// Where a buffer is filled by boxes (box.c), these arrive at a barrier of each slot's own, in front
// of its use. Where there are slots for all iterations none is filled twice, and threads need not
// wait for each other; where all are filled in front of the loop, several warps ask for them.
//
// Instructions of warp groups (wgmma.c) that use the slots are a group of their own each iteration.
// Where A is D - 1 they are waited for in the same iteration, as the next fills that slot. Where it
// is less, it is filled two iterations later or more: so those of an iteration go on until the end
// of the next, and the last ones are waited for behind the loop.
//
// Where two groups or more share a block, boxes that come two iterations ahead or more are asked
// for behind the begin of the instructions, which then do not wait for it; one group, of a block
// that mostly waits for its boxes, asks first.
//
// Where threads work between such instructions and all that the loop writes to shared memory comes
// by boxes, its barrier is one that threads pass: they only say that they did, and the one that
// asks for boxes waits, for those that are as far as the slot needs that it fills. So the groups of
// a block get out of step, and one's instructions run behind the work of another. The threads wait
// for each other in front of the loop and behind it.
//
// Where blocks of a cluster share boxes (cluster.c), threads pass the barriers of all blocks that
// fill their slots.
//
// Where a warp of its own asks for boxes (crew.c), it waits for slots, and the other threads for
// nobody.
#include "target/gpu/nest.h"

#include "target/gpu/instr.h"

typedef struct seeker {
  kiln_gpu_nest *n;
  kiln_touches all;
  const kiln_loop *around[64];
  int n_around;
} seeker;

// |v| + |ahead| modulo |slots|, as the loops' text has it.
static const kiln_expr *slot_of(seeker *s, const kiln_loop *v, int64_t extent, int64_t ahead,
                                int64_t slots) {
  kiln_ctx *cx = s->n->cx;
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  kiln_ranges_push(&r, v->var, 0, extent - 1);
  const kiln_expr *first =
                      extent > 1 ? kiln_var(cx, v->var) : kiln_int(cx, 0), // as it is written there
      *at = kiln_add(cx, first, kiln_int(cx, ahead));
  return kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, slots)), &r);
}

// The first node of |l|'s body that fills nothing ahead.
static const kiln_loop *behind_fills(const kiln_loop *l) {
  const kiln_loop *use = l->body;
  while (use && use->kind == KILN_LOOP_IF) use = use->next;
  return use;
}

// The loop that fills the first slots by the write |t|, |ahead| of them; NULL: it is another write.
static const kiln_loop *first_fill(seeker *s, const kiln_touch *t, int64_t slots, int64_t ahead) {
  if (t->n_loops <= s->n_around) return NULL;
  for (int i = 0; i < s->n_around; i++)
    if (t->loops[i] != s->around[i]) return NULL;
  const kiln_loop *l = t->loops[s->n_around];
  int64_t extent = 0;
  if (l->how != KILN_SERIAL || !kiln_expr_is_int(l->extent, &extent) || extent != ahead)
    return NULL;
  return t->index[0] == slot_of(s, l, extent, 0, slots) ? l : NULL;
}

// Whether the accesses to |b| are all those of such a pair of loops, of which |l| is the second.
static bool is_filled(seeker *s, const kiln_buffer *b, const kiln_loop *l, int64_t extent,
                      int64_t ahead, const kiln_loop **out_first) {
  const int64_t slots = b->extents[0];
  const kiln_expr *used = slot_of(s, l, extent, 0, slots),
                  *filled = slot_of(s, l, extent, ahead, slots);
  const kiln_loop *use = behind_fills(l);
  bool fills = false, reads = false;
  *out_first = NULL;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_touch *t = &s->all.data[i];
    if (t->buffer != b->id) continue;
    if (!t->write) {
      if (t->index[0] != used || !kiln_gpu_is_in(use, t->node)) return false;
      reads = true;
    } else if (kiln_gpu_is_in(l->body, t->node)) {
      if (t->index[0] != filled || kiln_gpu_is_in(use, t->node) || ahead == extent) return false;
      fills = true;
    } else {
      const kiln_loop *first = first_fill(s, t, slots, ahead);
      if (reads || !first || (*out_first && *out_first != first)) return false;
      *out_first = first;
    }
  }
  return (fills || ahead == extent) && reads && *out_first;
}

// How many iterations ahead |l| fills |b|, all of them where it is filled before; 0: it does not.
static int64_t ahead_of(seeker *s, const kiln_buffer *b, const kiln_loop *l, int64_t extent,
                        const kiln_loop **out_first) {
  int64_t ahead = b->extents[0];
  while (ahead > 0 && (ahead > extent || !is_filled(s, b, l, extent, ahead, out_first))) ahead--;
  return ahead;
}

static void add_group(seeker *s, const kiln_loop *node, int64_t pending) {
  for (int i = 0; i < s->n->groups.n; i++)
    if (s->n->groups.data[i].node == node) {
      if (pending < s->n->groups.data[i].pending) s->n->groups.data[i].pending = pending;
      return;
    }
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->groups, 1);
  s->n->groups.data[s->n->groups.n].node = node;
  s->n->groups.data[s->n->groups.n++].pending = pending;
}

// --- instructions of warp groups ---

// Whether all memory that |l| reads is filled ahead by |loop|, with slots to spare: |spare| says of
// which buffers.
static bool is_spared(const kiln_loop *l, const uint8_t *spare) {
  if (l->kind == KILN_LOOP_INSTR)
    for (int i = 0; i < l->n_operands; i++)
      if (!l->instr->fragments[i].lane && !spare[l->operands[i]->u.tensor]) return false;
  for (l = l->body; l; l = l->next)
    if (!is_spared(l, spare)) return false;
  return true;
}

static void add_product(seeker *s, const kiln_loop *phase, int64_t pending) {
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->products, 1);
  s->n->products.data[s->n->products.n].node = phase;
  s->n->products.data[s->n->products.n++].pending = pending;
}

// The phases of a loop's body in their order, but for those of a run.
typedef struct phases {
  KILN_VEC(const kiln_loop *) list;
} phases;

static bool runs_once(const kiln_loop *l) {
  int64_t extent = 0;
  return l->kind == KILN_LOOP_ALLOC || (l->kind == KILN_LOOP_FOR && l->how == KILN_SERIAL &&
                                        kiln_expr_is_int(l->extent, &extent) && extent == 1);
}

static void list_phases(seeker *s, const kiln_loop *l, phases *out) {
  for (; l; l = l->next)
    if (runs_once(l) && kiln_gpu_has_threads(l->body)) list_phases(s, l->body, out);
    else if (!kiln_gpu_is_edge(s->n, l)) KILN_VEC_PUSH(&s->n->cx->scratch, &out->list, l);
}

static bool is_operand(const kiln_loop *l, int buffer) {
  if (l->kind == KILN_LOOP_INSTR)
    for (int i = 0; i < l->n_operands; i++)
      if (l->operands[i]->u.tensor == buffer) return true;
  for (l = l->body; l; l = l->next)
    if (is_operand(l, buffer)) return true;
  return false;
}

static bool uses(const seeker *s, const kiln_loop *phase, int buffer) {
  for (int i = 0; i < s->all.n; i++)
    if (s->all.data[i].buffer == buffer &&
        (phase == s->all.data[i].node || kiln_gpu_is_in(phase->body, s->all.data[i].node)))
      return true;
  return is_operand(phase, buffer);
}

// Whether threads work between the instructions of |l|'s body.
static bool has_work(seeker *s, const kiln_loop *l) {
  phases all = {0};
  list_phases(s, behind_fills(l), &all);
  for (int i = 0; i < all.list.n; i++)
    if (!kiln_gpu_is_product(all.list.data[i])) return true;
  return false;
}

static bool are_boxes(const kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_around =
                   l->kind == KILN_LOOP_IF || (l->kind == KILN_LOOP_FOR && l->how == KILN_SERIAL),
               is_box = l->kind == KILN_LOOP_INSTR && l->instr->is_box;
    if (!is_box && !(is_around && are_boxes(l->body))) return false;
  }
  return true;
}

// Whether all threads of a block carry out the phase |l|.
static bool is_all_threads(const seeker *s, const kiln_loop *l) {
  int64_t n = s->n->block[0], extent = 0; // those along x are the instructions'
  for (; l; l = l->body) {
    const int axis = kiln_gpu_thread_axis(l);
    if (axis > 0 && kiln_expr_is_int(l->extent, &extent)) n *= extent;
    if (axis == 0) return false;
  }
  return n == s->n->n_threads;
}

// The phases of |loop| from |first| on whose instructions go on until the next ones'; whether there
// are any.
static bool let_go_on(seeker *s, const kiln_loop *loop, const kiln_loop *first,
                      const uint8_t *spare) {
  phases all = {0};
  const int before = s->n->products.n;
  list_phases(s, first, &all);
  for (int i = 0; i < all.list.n; i++) {
    const kiln_loop *l = all.list.data[i];
    if (kiln_gpu_thread_axis(l) < 0 || !kiln_gpu_is_product(l) || !is_spared(l, spare)) continue;
    add_product(s, l, 1);
    if (!s->n->drains.n || s->n->drains.data[s->n->drains.n - 1] != loop)
      KILN_VEC_PUSH(&s->n->cx->scratch, &s->n->drains, loop);
  }
  return s->n->products.n > before;
}

// The fills of |loop| wait for the instructions of its only phase to be under way.
static void let_be_late(seeker *s, const kiln_loop *loop) {
  phases all = {0};
  list_phases(s, behind_fills(loop), &all);
  if (all.list.n != 1 || !is_all_threads(s, all.list.data[0])) return;
  for (const kiln_loop *l = loop->body; l && l->kind == KILN_LOOP_IF; l = l->next) {
    if (!are_boxes(l->body)) continue;
    KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->lates, 1);
    s->n->lates.data[s->n->lates.n].fill = l;
    s->n->lates.data[s->n->lates.n++].behind = all.list.data[0];
  }
}

static bool has_stores(const kiln_loop *l) {
  for (; l; l = l->next)
    if (l->kind == KILN_LOOP_STORE || has_stores(l->body)) return true;
  return false;
}

static kiln_status check_phases(kiln_gpu_nest *n, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (kiln_gpu_has_threads(l->body)) KILN_TRY(check_phases(n, l->body));
    else if (kiln_gpu_is_product(l) && has_stores(l->body))
      return kiln_gpu_refuse(n,
                             "instructions of warp groups must be alone in a thread loop, got "
                             "stores beside them%s%s: bind loops further inside",
                             l->kind == KILN_LOOP_FOR ? " in loop " : "",
                             l->kind == KILN_LOOP_FOR ? kiln_symbol_text(n->cx, l->var) : "");
  }
  return KILN_OK;
}

// --- boxes ---

// How many boxes fill a slot of |b| in the loop before |l|, as many as in it, if any do; 0: there
// are other writes.
static int64_t boxes_of(const seeker *s, const kiln_buffer *b, const kiln_loop *l) {
  int64_t ahead = 0, before = 0;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_touch *t = &s->all.data[i];
    if (t->buffer != b->id || !t->write) continue;
    if (t->node->kind != KILN_LOOP_INSTR) return 0;
    int64_t n = 1, extent = 0;
    for (int d = s->n_around + 1; d < t->n_loops - KILN_BOX_RANK; d++)
      n *= kiln_expr_is_int(t->loops[d]->extent, &extent) ? extent : 0;
    if (kiln_gpu_is_in(l->body, t->node)) ahead += n;
    else before += n;
  }
  return ahead == before || !ahead ? before : 0;
}

// The first phase of |l|'s body that reads |b|.
static const kiln_loop *first_use(seeker *s, const kiln_buffer *b, const kiln_loop *l) {
  phases all = {0};
  int i = 0;
  list_phases(s, behind_fills(l), &all);
  while (i + 1 < all.list.n && !uses(s, all.list.data[i], b->id)) i++;
  return all.list.data[i];
}

static void add_boxes(seeker *s, const kiln_buffer *b, int64_t boxes, int64_t slots, bool is_whole,
                      const kiln_loop *use, const kiln_expr *slot) {
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->boxes, 1);
  const int at = s->n->boxes.n++;
  s->n->boxes.data[at].buffer = b->id;
  s->n->boxes.data[at].boxes = boxes;
  s->n->boxes.data[at].slots = slots;
  s->n->boxes.data[at].is_whole = is_whole;
  s->n->boxes.data[at].use = use;
  s->n->boxes.data[at].slot = slot;
  s->n->boxes.data[at].sharers = (kiln_sharers){.n = 1};
  s->n->boxes.data[at].at = s->n->shared_bytes;
  s->n->shared_bytes += slots * (int64_t)sizeof(uint64_t);
}

// The node in |around| that fills |b|.
static void add_fill(seeker *s, const kiln_buffer *b, const kiln_loop *around,
                     const kiln_expr *slot) {
  for (const kiln_loop *l = around->body; l; l = l->next)
    for (int i = 0; i < s->all.n; i++) {
      const kiln_touch *t = &s->all.data[i];
      if (t->buffer != b->id || !t->write || (t->node != l && !kiln_gpu_is_in(l->body, t->node)))
        continue;
      KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->crew.fills, 1);
      const int at = s->n->crew.fills.n++;
      s->n->crew.fills.data[at].node = l;
      s->n->crew.fills.data[at].buffer = b->id;
      s->n->crew.fills.data[at].slot = slot;
      s->n->crew.fills.data[at].around = around;
      return;
    }
}

// What a warp of its own asks for: boxes of |b| in |first| and in |l|, |ahead| iterations ahead.
static void let_crew_fill(seeker *s, const kiln_buffer *b, const kiln_loop *l,
                          const kiln_loop *first, int64_t extent, int64_t ahead) {
  int64_t n_first = 0;
  (void)kiln_expr_is_int(first->extent, &n_first);
  add_fill(s, b, first, slot_of(s, first, n_first, 0, b->extents[0]));
  for (const kiln_loop *fill = l->body; fill && fill->kind == KILN_LOOP_IF; fill = fill->next)
    add_fill(s, b, fill, slot_of(s, l, extent, ahead, b->extents[0]));
  s->n->crew.slot_bytes += kiln_buffer_elems(b) / b->extents[0] * kiln_dtype_bytes(b->dtype);
}

static void take_crew(seeker *s, const kiln_loop *l, int64_t slots, int64_t extent) {
  kiln_crew *c = &s->n->crew;
  phases all = {0};
  for (int i = 0; i < c->fills.n; i++) {
    bool leads = true;
    for (int k = 0; k < c->fills.n; k++)
      leads &= kiln_gpu_is_in(l->body, c->fills.data[k].around) !=
                   kiln_gpu_is_in(l->body, c->fills.data[i].around) ||
               !kiln_gpu_is_in(c->fills.data[k].around->next, c->fills.data[i].around);
    c->fills.data[i].leads = leads;
  }
  list_phases(s, behind_fills(l), &all);
  const bool is_second = c->loop != NULL;
  c->loop = l;
  c->phase = all.list.n == 1 && s->n->products.n == 1 && is_all_threads(s, all.list.data[0])
                 ? all.list.data[0]
                 : NULL; // each of a team's warps says that a slot is used
  c->slots = is_second ? -1 : slots;
  c->steps = extent;
  c->full = s->n->shared_bytes;
  c->used = c->full + slots * (int64_t)sizeof(uint64_t);
  s->n->shared_bytes = c->used + slots * (int64_t)sizeof(uint64_t);
}

static bool has_boxes(const seeker *s, int buffer) {
  for (int i = 0; i < s->n->boxes.n; i++)
    if (s->n->boxes.data[i].buffer == buffer) return true;
  return false;
}

// --- boxes that are copied once ---

static bool reads_within(const seeker *s, const kiln_loop *l, int buffer) {
  for (int i = 0; i < s->all.n; i++)
    if (s->all.data[i].buffer == buffer && !s->all.data[i].write &&
        kiln_gpu_is_in(l->body, s->all.data[i].node))
      return true;
  return false;
}

// How many boxes the write |t| copies; 0: none, or it does so again after they were read.
static int64_t boxes_at_once(const seeker *s, const kiln_touch *t) {
  int64_t n = 1, extent = 0;
  if (t->node->kind != KILN_LOOP_INSTR || !t->node->instr->is_box) return 0;
  for (int d = 0; d < t->n_loops - KILN_BOX_RANK; d++) {
    const kiln_loop *l = t->loops[d];
    if (kiln_gpu_block_axis(l) >= 0 || runs_once(l)) continue;
    if (!kiln_expr_is_int(l->extent, &extent) || reads_within(s, l, t->buffer)) return 0;
    n *= extent;
  }
  return n;
}

// The node in front of which what |t| reads must be there, once.
static const kiln_loop *node_of(const kiln_touch *t) {
  int d = 0;
  while (d < t->n_loops && (kiln_gpu_block_axis(t->loops[d]) >= 0 || runs_once(t->loops[d]))) d++;
  return d < t->n_loops ? t->loops[d] : t->node;
}

static void add_lone_boxes(seeker *s, const kiln_buffer *b) {
  const kiln_loop *use = NULL;
  int64_t boxes = 0;
  int n_writes = 0;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_touch *t = &s->all.data[i];
    if (t->buffer != b->id) continue;
    if (t->write) boxes = boxes_at_once(s, t);
    else if (!use) use = node_of(t);
    n_writes += t->write;
  }
  if (n_writes != 1 || boxes == 0 || !use) return;
  add_boxes(s, b, boxes, 1, false, use, kiln_int(s->n->cx, 0));
}

// --- barriers that threads pass ---

// Whether |l| writes no other shared memory than by boxes, ahead.
static bool writes_boxes_alone(const seeker *s, const kiln_loop *l) {
  for (int i = 0; i < s->all.n; i++) {
    const kiln_touch *t = &s->all.data[i];
    const bool comes = !t->write || s->n->l->buffers.data[t->buffer]->scope != KILN_SCOPE_SHARED ||
                       !kiln_gpu_is_in(l->body, t->node);
    if (!comes && !has_boxes(s, t->buffer)) return false;
  }
  return true;
}

// Lets blocks of a cluster share the boxes that fill |l|'s slots, if it runs once; for each block,
// those that its boxes reach.
static uint64_t share_boxes(seeker *s, const kiln_loop *l) {
  uint64_t peers = 0;
  for (int i = 0; i < s->n_around; i++)
    if (kiln_gpu_block_axis(s->around[i]) < 0 && !runs_once(s->around[i])) return 0;
  for (int i = 0; i < s->n->boxes.n; i++) {
    if (!kiln_gpu_is_in(l->body, s->n->boxes.data[i].use)) continue;
    const kiln_sharers who = kiln_gpu_sharers(s->n, s->n->boxes.data[i].buffer);
    if (who.n == 1) continue;
    s->n->boxes.data[i].sharers = who;
    peers |= who.of;
  }
  return peers;
}

// |lag|: how many iterations before this one the threads must have begun that is waited for.
// |pays|: also where blocks share nothing.
static void let_pass(seeker *s, const kiln_loop *l, int64_t slots, int64_t lag, int64_t fills,
                     bool pays) {
  if (lag < 0 || !writes_boxes_alone(s, l)) return;
  const uint64_t peers = share_boxes(s, l);
  if (!peers && !pays) return;
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->passes, 1);
  const int at = s->n->passes.n++;
  s->n->passes.data[at].loop = l;
  s->n->passes.data[at].slots = slots;
  s->n->passes.data[at].lag = lag;
  s->n->passes.data[at].fills = fills;
  s->n->passes.data[at].peers = peers;
  s->n->passes.data[at].at = s->n->shared_bytes;
  s->n->shared_bytes += slots * (int64_t)sizeof(uint64_t);
}

// Boxes are waited for in the loops that use them, and nowhere else.
static kiln_status check_boxes(const seeker *s, const kiln_loop *l) {
  const kiln_gpu_nest *n = s->n;
  for (; l; l = l->next) {
    KILN_TRY(check_boxes(s, l->body));
    if (l->kind != KILN_LOOP_INSTR || !l->instr->is_box) continue;
    if (!has_boxes(s, l->operands[0]->u.tensor))
      return kiln_gpu_refuse(
          n, "%s must fill some iterations ahead, or once, got buffer %s: pipeline it",
          l->instr->name,
          kiln_symbol_text(n->cx, n->l->buffers.data[l->operands[0]->u.tensor]->name));
  }
  return KILN_OK;
}

// Whether |l| is a loop in runs, as which it is noted. Teams take turns at loops, not at runs.
static bool take_runs(seeker *s, const kiln_loop *l) {
  kiln_runs runs;
  if (s->n->crew.turns || !kiln_gpu_find_runs(s->n, l, &runs)) return false;
  KILN_VEC_PUSH(&s->n->cx->scratch, &s->n->runs, runs);
  return true;
}

// --- all of them ---

static void seek_in(seeker *s, const kiln_loop *l) {
  enum { GROUP = 128 };
  const kiln_loop *first = NULL;
  int64_t extent = 0, most_slots = 0, lag = INT64_MAX, fills = 0, soonest = INT64_MAX;
  bool are_once = false; // slots of boxes that are filled once
  const bool is_crew = s->n->crew.teams > 0;
  int64_t crew_slots = 0;
  uint8_t *spare = KILN_NEW_ARRAY(&s->n->cx->scratch, uint8_t, s->n->l->buffers.n);
  if (l->how != KILN_SERIAL || !kiln_expr_is_int(l->extent, &extent) || !l->body) return;
  const bool fills_more = l->body->kind == KILN_LOOP_IF,
             each_waits = kiln_gpu_wait_of(s->n, l->body) == KILN_WAIT_BLOCK,
             waits_once = !fills_more && kiln_gpu_wait_of(s->n, l) == KILN_WAIT_BLOCK;
  for (int i = 0; i < s->n->l->buffers.n; i++) {
    const kiln_buffer *b = s->n->l->buffers.data[i];
    if (b->scope != KILN_SCOPE_SHARED || b->rank < 2 || b->extents[0] < 2) continue;
    const int64_t slots = b->extents[0], ahead = ahead_of(s, b, l, extent, &first),
                  boxes = ahead ? boxes_of(s, b, l) : 0;
    const bool is_once = boxes && extent <= slots; // no slot is filled twice
    const bool waits = fills_more ? each_waits : ahead == extent && (each_waits || waits_once);
    if (!ahead || (!is_once && !waits && !is_crew)) continue;
    s->n->is_ahead[i] = 1;
    spare[i] = is_once || ahead + 1 < slots;
    are_once |= is_once;
    if (ahead < soonest) soonest = ahead;
    if (boxes)
      add_boxes(s, b, boxes, slots, ahead == extent, first_use(s, b, l),
                slot_of(s, l, extent, 0, slots));
    if (boxes && is_crew) {
      let_crew_fill(s, b, l, first, extent, ahead);
      crew_slots = !crew_slots || crew_slots == slots ? slots : -1;
      continue;
    }
    if (is_once) continue;
    if (boxes) {
      if (slots > most_slots) most_slots = slots;
      if (slots - ahead < lag) lag = slots - ahead;
      if (extent - ahead > fills) fills = extent - ahead;
      continue;
    }
    add_group(s, waits_once ? l : l->body, waits_once ? 0 : ahead - 1);
    add_group(s, first->body, INT32_MAX);
  }
  const bool in_runs = take_runs(s, l);
  bool works = has_work(s, l); // an iteration's instructions are done when it is
  const bool goes_on = !works && let_go_on(s, l, behind_fills(l), spare);
  if (in_runs && !goes_on) s->n->runs.n--, works = true;
  if (crew_slots) take_crew(s, l, crew_slots, extent);
  if (!is_crew && goes_on && soonest > 1 && s->n->n_threads > GROUP && writes_boxes_alone(s, l))
    let_be_late(s, l);
  if (most_slots)
    let_pass(s, l, most_slots, lag - 1 - goes_on, fills, works && s->n->n_threads > GROUP);
  else if (are_once && writes_boxes_alone(s, l)) (void)share_boxes(s, l);
}

static void seek(seeker *s, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) seek_in(s, l);
    const bool is_for = l->kind == KILN_LOOP_FOR;
    if (is_for && s->n_around == (int)KILN_LEN(s->around)) return;
    if (is_for) s->around[s->n_around++] = l;
    seek(s, l->body);
    s->n_around -= is_for;
  }
}

kiln_status kiln_gpu_nest_ahead(kiln_gpu_nest *n) {
  enum { CAPABILITY = 80, MAX_SLOTS = 32 }; // bits of phases
  n->groups.n = n->products.n = n->drains.n = n->boxes.n = n->passes.n = n->lates.n = n->runs.n = 0;
  n->crew.fills.n = 0;
  n->is_ahead = KILN_NEW_ARRAY(&n->cx->scratch, uint8_t, n->l->buffers.n);
  if (n->m->gpu.capability < CAPABILITY) return KILN_OK;
  seeker s = {.n = n, .all = kiln_gpu_touches(n, -1)};
  if (!s.all.too_deep) {
    seek(&s, n->l->body);
    for (int i = 0; i < n->l->buffers.n; i++)
      if (n->l->buffers.data[i]->scope == KILN_SCOPE_SHARED && !has_boxes(&s, i))
        add_lone_boxes(&s, n->l->buffers.data[i]);
  }
  if (n->shared_bytes > n->m->gpu.shared_bytes)
    return kiln_gpu_refuse(n,
                           "shared memory of a block must be %" PRId64
                           " bytes at most, got %" PRId64
                           " with the barriers of boxes: stage smaller tiles",
                           n->m->gpu.shared_bytes, n->shared_bytes);
  for (int i = 0; i < n->boxes.n; i++)
    if (n->boxes.data[i].slots > MAX_SLOTS)
      return kiln_gpu_refuse(
          n, "boxes must fill %d slots at most, got %" PRId64 " of buffer %s", MAX_SLOTS,
          n->boxes.data[i].slots,
          kiln_symbol_text(n->cx, n->l->buffers.data[n->boxes.data[i].buffer]->name));
  KILN_TRY(check_boxes(&s, n->l->body));
  KILN_TRY(kiln_crew_check(n));
  return check_phases(n, n->l->body);
}
