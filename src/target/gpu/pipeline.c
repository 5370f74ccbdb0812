// Software pipelining: loops fill the stages of a circular buffer in shared memory some iterations
// ahead (`pipeline`), by asynchronous copies (cp.async, TMA). For A iterations ahead, D stages:
//
//     for f:A { S[f] = .. }
//     for v { barrier  if (v + A < n) { S[(v + A) % D] = .. }  .. = S[v % D] }
//
// cp.async: each iteration of both loops commits a group of copies at its begin, those that the
// thread issued since the last commit. At the begin of iteration v the copies to stage v % D are of
// the Ath group from the end, so all but the A - 1 latest groups are waited for, in front of the
// barrier by which the threads see each other's copies. No group is open behind the loop, as its
// last iterations fill nothing. Where A is n, the second loop fills nothing at all.
// source: PTX ISA, "cp.async"
//
// TMA (tma.c): copies arrive at the full barrier of their stage, where threads wait in front of the
// use. With as many stages as iterations no stage is filled twice, so there are no empty barriers;
// where all are filled in front of the loop, several warps issue the copies.
//
// Warp groups' instructions (wgmma.c) on the stages are one wgmma group an iteration. Where A is
// D - 1, they are waited for in the same iteration, as the next one fills their stage. Where A is
// less, their stage is filled two iterations later or more: those of an iteration stay in flight
// until the end of the next, and the last ones are waited for behind the loop.
//
// Deferred issue: where two warp groups or more share a block, copies two iterations ahead or more
// are issued after the iteration's instructions, which so start without waiting for the issue. One
// group, of a block that mostly waits for its copies, issues first.
//
// Empty barriers: where threads work between the instructions and TMA does all of the loop's writes
// to shared memory, its barrier becomes an mbarrier at which threads arrive without waiting. Only
// the thread that issues copies waits there, until all have released the stage that it fills. So
// the warp groups of a block get out of step, and one's instructions overlap another's other work.
// The threads wait for each other in front of the loop and behind it.
//
// With multicast (multicast.c) threads arrive at the empty barriers of all blocks that fill their
// stages. With a producer warp (warp_specialize.c), it alone waits on empty barriers; the consumers
// wait on full ones.
#include "target/gpu/nest.h"

#include "target/gpu/instr.h"

typedef struct seeker {
  kiln_gpu_nest *n;
  kiln_dependence_accesses all;
  const kiln_loop *around[64];
  int n_around;
  int n_groups, n_products, n_drains; // nodes with cp.async groups, phases in flight, drained loops
  // Nodes that fill a stage of a buffer, for the producer warp.
  KILN_VEC(struct {
    const kiln_loop *node;
    const kiln_loop *around;
    int buffer;
    const kiln_expr *stage;
  })
  fills;
} seeker;

// (|v| + |ahead|) % |stages|, in the simplified form that the loops have.
static const kiln_expr *stage_of(seeker *s, const kiln_loop *v, int64_t extent, int64_t ahead,
                                 int64_t stages) {
  kiln_ctx *cx = s->n->cx;
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  kiln_ranges_push(&r, v->var, 0, extent - 1);
  const kiln_expr *first =
                      extent > 1 ? kiln_var(cx, v->var) : kiln_int(cx, 0), // as it is written there
      *at = kiln_add(cx, first, kiln_int(cx, ahead));
  return kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, stages)), &r);
}

// The first node of |l|'s body behind its fills.
static const kiln_loop *behind_fills(const kiln_loop *l) {
  const kiln_loop *use = l->body;
  while (use && use->kind == KILN_LOOP_IF) use = use->next;
  return use;
}

// The loop in which the write |t| fills the first |ahead| stages; NULL: it is another write.
static const kiln_loop *first_fill(seeker *s, const kiln_dependence_access *t, int64_t stages,
                                   int64_t ahead) {
  if (t->n_loops <= s->n_around) return NULL;
  for (int i = 0; i < s->n_around; i++)
    if (t->loops[i] != s->around[i]) return NULL;
  const kiln_loop *l = t->loops[s->n_around];
  int64_t extent = 0;
  if (l->how != KILN_SERIAL || !kiln_expr_is_int(l->extent, &extent) || extent != ahead)
    return NULL;
  return t->index[0] == stage_of(s, l, extent, 0, stages) ? l : NULL;
}

// Whether all accesses to |b| are those of a pair of loops, as drawn above, |l| the second.
static bool is_filled(seeker *s, const kiln_buffer *b, const kiln_loop *l, int64_t extent,
                      int64_t ahead, const kiln_loop **out_first) {
  const int64_t stages = b->extents[0];
  const kiln_expr *used = stage_of(s, l, extent, 0, stages),
                  *filled = stage_of(s, l, extent, ahead, stages);
  const kiln_loop *use = behind_fills(l);
  bool fills = false, reads = false;
  *out_first = NULL;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_dependence_access *t = &s->all.data[i];
    if (t->buffer != b->id) continue;
    if (!t->write) {
      if (t->index[0] != used || !kiln_gpu_is_in(use, t->node)) return false;
      reads = true;
    } else if (kiln_gpu_is_in(l->body, t->node)) {
      if (t->index[0] != filled || kiln_gpu_is_in(use, t->node) || ahead == extent) return false;
      fills = true;
    } else {
      const kiln_loop *first = first_fill(s, t, stages, ahead);
      if (reads || !first || (*out_first && *out_first != first)) return false;
      *out_first = first;
    }
  }
  return (fills || ahead == extent) && reads && *out_first;
}

// How many iterations ahead |l| fills |b|; its extent where all are filled before it, 0 where it
// does not.
static int64_t ahead_of(seeker *s, const kiln_buffer *b, const kiln_loop *l, int64_t extent,
                        const kiln_loop **out_first) {
  int64_t ahead = b->extents[0];
  while (ahead > 0 && (ahead > extent || !is_filled(s, b, l, extent, ahead, out_first))) ahead--;
  return ahead;
}

static void add_group(seeker *s, const kiln_loop *node, int64_t pending) {
  kiln_gpu_found *f = kiln_gpu_found_of(s->n, node);
  s->n_groups += !f->commits;
  f->pending = f->commits && f->pending < pending ? f->pending : pending;
  f->commits = true;
}

// --- instructions of warp groups ---

// Whether |l| reads only buffers that are filled ahead with a stage to spare (|spare|, by buffer).
static bool is_spared(const kiln_loop *l, const uint8_t *spare) {
  if (l->kind == KILN_LOOP_INSTR)
    for (int i = 0; i < l->n_operands; i++)
      if (!l->instr->fragments[i].lane && !spare[l->operands[i]->u.tensor]) return false;
  for (l = l->body; l; l = l->next)
    if (!is_spared(l, spare)) return false;
  return true;
}

// The phases of a loop's body in order, without a persistent tile loop's prologue and epilogue.
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
    else if (!kiln_gpu_found_of(s->n, l)->is_edge) KILN_VEC_PUSH(&s->n->cx->scratch, &out->list, l);
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

static bool are_tma(const kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_around =
                   l->kind == KILN_LOOP_IF || (l->kind == KILN_LOOP_FOR && l->how == KILN_SERIAL),
               is_tma = l->kind == KILN_LOOP_INSTR && l->instr->is_tma;
    if (!is_tma && !(is_around && are_tma(l->body))) return false;
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

// Lets the instructions of |loop|'s phases from |first| on stay in flight until the next
// iteration's; gives whether there are any.
static bool let_go_on(seeker *s, const kiln_loop *loop, const kiln_loop *first,
                      const uint8_t *spare) {
  phases all = {0};
  const int before = s->n_products;
  list_phases(s, first, &all);
  for (int i = 0; i < all.list.n; i++) {
    const kiln_loop *l = all.list.data[i];
    if (kiln_gpu_thread_axis(l) < 0 || !kiln_gpu_is_product(l) || !is_spared(l, spare)) continue;
    kiln_gpu_found_of(s->n, l)->in_flight = 1;
    s->n_products++;
  }
  if (s->n_products == before) return false;
  kiln_gpu_found_of(s->n, loop)->drains = true;
  s->n_drains++;
  return true;
}

// Deferred issue: the fills of |loop| are issued after the instructions of its only phase.
static void defer_fills(seeker *s, const kiln_loop *loop) {
  phases all = {0};
  list_phases(s, behind_fills(loop), &all);
  if (all.list.n != 1 || !is_all_threads(s, all.list.data[0])) return;
  for (const kiln_loop *l = loop->body; l && l->kind == KILN_LOOP_IF; l = l->next)
    if (are_tma(l->body)) kiln_gpu_found_of(s->n, l)->behind = all.list.data[0];
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

// --- TMA copies ---

// How many TMA copies fill a stage of |b| in the loop before |l|, equal to those in |l| if it has
// any; 0: there are other writes.
static int64_t tma_of(const seeker *s, const kiln_buffer *b, const kiln_loop *l) {
  int64_t ahead = 0, before = 0;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_dependence_access *t = &s->all.data[i];
    if (t->buffer != b->id || !t->write) continue;
    if (t->node->kind != KILN_LOOP_INSTR) return 0;
    int64_t n = 1, extent = 0;
    for (int d = s->n_around + 1; d < t->n_loops - KILN_TMA_RANK; d++)
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

static void add_tma(seeker *s, const kiln_buffer *b, int64_t tma, int64_t stages, bool is_whole,
                    const kiln_loop *use, const kiln_expr *stage) {
  const kiln_full_barriers full = {.buffer = b->id,
                                   .copies = tma,
                                   .stages = stages,
                                   .is_whole = is_whole,
                                   .use = use,
                                   .stage = stage,
                                   .multicast = {.n = 1},
                                   .at = s->n->shared_bytes};
  KILN_VEC_PUSH(&s->n->cx->scratch, &s->n->tma, full);
  s->n->shared_bytes += stages * (int64_t)sizeof(uint64_t);
}

// The node in |around| that fills |b|.
static void add_fill(seeker *s, const kiln_buffer *b, const kiln_loop *around,
                     const kiln_expr *stage) {
  for (const kiln_loop *l = around->body; l; l = l->next)
    for (int i = 0; i < s->all.n; i++) {
      const kiln_dependence_access *t = &s->all.data[i];
      if (t->buffer != b->id || !t->write || (t->node != l && !kiln_gpu_is_in(l->body, t->node)))
        continue;
      KILN_VEC_RESERVE(&s->n->cx->scratch, &s->fills, 1);
      const int at = s->fills.n++;
      s->fills.data[at].node = l;
      s->fills.data[at].buffer = b->id;
      s->fills.data[at].stage = stage;
      s->fills.data[at].around = around;
      return;
    }
}

// Adds the producer warp's fills of |b|: in |first|, and in |l| |ahead| iterations ahead.
static void let_producer_fill(seeker *s, const kiln_buffer *b, const kiln_loop *l,
                              const kiln_loop *first, int64_t extent, int64_t ahead) {
  int64_t n_first = 0;
  (void)kiln_expr_is_int(first->extent, &n_first);
  add_fill(s, b, first, stage_of(s, first, n_first, 0, b->extents[0]));
  for (const kiln_loop *fill = l->body; fill && fill->kind == KILN_LOOP_IF; fill = fill->next)
    add_fill(s, b, fill, stage_of(s, l, extent, ahead, b->extents[0]));
  s->n->specialized.stage_bytes +=
      kiln_buffer_elems(b) / b->extents[0] * kiln_dtype_bytes(b->dtype);
}

// Whether each buffer is filled, as many steps ahead as the others in the loop |l|.
static bool fills_together(const seeker *s, const kiln_loop *l) {
  for (int i = 0; i < s->fills.n; i++)
    for (int k = 0; k < i; k++)
      if (kiln_gpu_is_in(l->body, s->fills.data[i].node) &&
          kiln_gpu_is_in(l->body, s->fills.data[k].node) &&
          s->fills.data[i].stage != s->fills.data[k].stage)
        return false;
  return true;
}

// Whether the producer fills all buffers that TMA fills.
static bool fills_all(const seeker *s) {
  for (int i = 0; i < s->n->tma.n; i++) {
    bool has = false;
    for (int k = 0; k < s->fills.n; k++) has |= s->fills.data[k].buffer == s->n->tma.data[i].buffer;
    if (!has) return false;
  }
  return true;
}

// Finds the fills of |l| that lead: no other one of a stage stands in front of them.
static void find_leads(seeker *s, const kiln_loop *l) {
  for (int i = 0; i < s->fills.n; i++) {
    kiln_gpu_found *f = kiln_gpu_found_of(s->n, s->fills.data[i].node);
    f->stage = s->fills.data[i].stage;
    f->leads = true;
    for (int k = 0; k < s->fills.n; k++)
      f->leads &= kiln_gpu_is_in(l->body, s->fills.data[k].around) !=
                      kiln_gpu_is_in(l->body, s->fills.data[i].around) ||
                  !kiln_gpu_is_in(s->fills.data[k].around->next, s->fills.data[i].around);
  }
}

static void take_specialized(seeker *s, const kiln_loop *l, int64_t stages, int64_t extent) {
  kiln_warp_specialization *c = &s->n->specialized;
  phases all = {0};
  find_leads(s, l);
  list_phases(s, behind_fills(l), &all);
  const bool is_second = c->loop != NULL;
  c->loop = l;
  c->phase = all.list.n == 1 && s->n_products == 1 && is_all_threads(s, all.list.data[0])
                 ? all.list.data[0]
                 : NULL; // each of a consumer's warps arrives at the empty barrier
  c->stages = is_second ? -1 : stages;
  c->steps = extent;
  c->full = s->n->shared_bytes;
  c->used = c->full + stages * (int64_t)sizeof(uint64_t);
  s->n->shared_bytes = c->used + stages * (int64_t)sizeof(uint64_t);
}

static bool has_tma(const seeker *s, int buffer) {
  for (int i = 0; i < s->n->tma.n; i++)
    if (s->n->tma.data[i].buffer == buffer) return true;
  return false;
}

// --- TMA copies outside of a pipeline ---

static bool reads_within(const seeker *s, const kiln_loop *l, int buffer) {
  for (int i = 0; i < s->all.n; i++)
    if (s->all.data[i].buffer == buffer && !s->all.data[i].write &&
        kiln_gpu_is_in(l->body, s->all.data[i].node))
      return true;
  return false;
}

// How many TMA copies the write |t| makes; 0: none, or it repeats them after they were read.
static int64_t tma_at_once(const seeker *s, const kiln_dependence_access *t) {
  int64_t n = 1, extent = 0;
  if (t->node->kind != KILN_LOOP_INSTR || !t->node->instr->is_tma) return 0;
  for (int d = 0; d < t->n_loops - KILN_TMA_RANK; d++) {
    const kiln_loop *l = t->loops[d];
    if (kiln_gpu_block_axis(l) >= 0 || runs_once(l)) continue;
    if (!kiln_expr_is_int(l->extent, &extent) || reads_within(s, l, t->buffer)) return 0;
    n *= extent;
  }
  return n;
}

// The node in front of which |t|'s input must have arrived, once.
static const kiln_loop *node_of(const kiln_dependence_access *t) {
  int d = 0;
  while (d < t->n_loops && (kiln_gpu_block_axis(t->loops[d]) >= 0 || runs_once(t->loops[d]))) d++;
  return d < t->n_loops ? t->loops[d] : t->node;
}

static void add_single_tma(seeker *s, const kiln_buffer *b) {
  const kiln_loop *use = NULL;
  int64_t tma = 0;
  int n_writes = 0;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_dependence_access *t = &s->all.data[i];
    if (t->buffer != b->id) continue;
    if (t->write) tma = tma_at_once(s, t);
    else if (!use) use = node_of(t);
    n_writes += t->write;
  }
  if (n_writes != 1 || tma == 0 || !use) return;
  add_tma(s, b, tma, 1, false, use, kiln_int(s->n->cx, 0));
}

// --- empty barriers ---

// Whether all of |l|'s writes to shared memory are TMA copies, ahead.
static bool writes_by_tma_alone(const seeker *s, const kiln_loop *l) {
  for (int i = 0; i < s->all.n; i++) {
    const kiln_dependence_access *t = &s->all.data[i];
    const bool comes = !t->write || s->n->l->buffers.data[t->buffer]->scope != KILN_SCOPE_SHARED ||
                       !kiln_gpu_is_in(l->body, t->node);
    if (!comes && !has_tma(s, t->buffer)) return false;
  }
  return true;
}

// Lets blocks of a cluster multicast the copies that fill |l|'s stages, if |l| runs once. Gives,
// for each block, those that its copies reach.
static uint64_t multicast_fills(seeker *s, const kiln_loop *l) {
  uint64_t peers = 0;
  for (int i = 0; i < s->n_around; i++)
    if (kiln_gpu_block_axis(s->around[i]) < 0 && !runs_once(s->around[i])) return 0;
  for (int i = 0; i < s->n->tma.n; i++) {
    if (!kiln_gpu_is_in(l->body, s->n->tma.data[i].use)) continue;
    const kiln_multicast who = kiln_gpu_multicast_of(s->n, s->n->tma.data[i].buffer);
    if (who.n == 1) continue;
    s->n->tma.data[i].multicast = who;
    peers |= who.of;
  }
  return peers;
}

// |release_lag|: the issuing thread waits on the empty barrier of the iteration that many before
// its own. |pays|: also without multicast.
static void add_empty(seeker *s, const kiln_loop *l, int64_t stages, int64_t release_lag,
                      int64_t fills, bool pays) {
  if (release_lag < 0 || !writes_by_tma_alone(s, l)) return;
  const uint64_t peers = multicast_fills(s, l);
  if (!peers && !pays) return;
  const kiln_empty_barriers empty = {.loop = l,
                                     .first = l->body,
                                     .stages = stages,
                                     .release_lag = release_lag,
                                     .fills = fills,
                                     .peers = peers,
                                     .at = s->n->shared_bytes};
  KILN_VEC_PUSH(&s->n->cx->scratch, &s->n->empties, empty);
  s->n->shared_bytes += stages * (int64_t)sizeof(uint64_t);
}

// A TMA copy must fill a buffer some iterations ahead, or once: nothing else waits for it.
static kiln_status check_tma(const seeker *s, const kiln_loop *l) {
  const kiln_gpu_nest *n = s->n;
  for (; l; l = l->next) {
    KILN_TRY(check_tma(s, l->body));
    if (l->kind != KILN_LOOP_INSTR || !l->instr->is_tma) continue;
    if (!has_tma(s, l->operands[0]->u.tensor))
      return kiln_gpu_refuse(
          n, "%s must fill some iterations ahead, or once, got buffer %s: pipeline it",
          l->instr->name,
          kiln_symbol_text(n->cx, n->l->buffers.data[l->operands[0]->u.tensor]->name));
  }
  return KILN_OK;
}

// Notes |l| if it is a persistent tile loop. With ping-pong, consumers take whole tiles instead.
static kiln_tile_loop *take_tile_loop(seeker *s, const kiln_loop *l) {
  kiln_tile_loop found;
  if (s->n->specialized.tile_loop || !kiln_gpu_find_tile_loop(s->n, l, &found)) return NULL;
  kiln_tile_loop *r = KILN_NEW(&s->n->cx->scratch, kiln_tile_loop);
  *r = found;
  kiln_gpu_found_of(s->n, l)->tile_loop = r;
  kiln_gpu_found_of(s->n, r->first)->is_edge = kiln_gpu_found_of(s->n, r->last)->is_edge = true;
  return r;
}

static void drop_tile_loop(seeker *s, const kiln_tile_loop *r) {
  kiln_gpu_found_of(s->n, r->loop)->tile_loop = NULL;
  kiln_gpu_found_of(s->n, r->first)->is_edge = kiln_gpu_found_of(s->n, r->last)->is_edge = false;
}

// --- all of them ---

static void seek_in(seeker *s, const kiln_loop *l) {
  enum { GROUP = 128 };
  const kiln_loop *first = NULL;
  int64_t extent = 0, most_stages = 0, release_lag = INT64_MAX, fills = 0, soonest = INT64_MAX;
  bool are_once = false; // stages that TMA fills once
  const bool is_specialized = s->n->specialized.consumers > 0;
  int64_t specialized_stages = 0;
  uint8_t *spare = KILN_NEW_ARRAY(&s->n->cx->scratch, uint8_t, s->n->l->buffers.n);
  if (l->how != KILN_SERIAL || !l->body || (extent = kiln_gpu_most(s->n, l)) == INT64_MAX) return;
  const bool fills_more = l->body->kind == KILN_LOOP_IF,
             each_waits = kiln_gpu_found_of(s->n, l->body)->wait == KILN_WAIT_BLOCK,
             waits_once = !fills_more && kiln_gpu_found_of(s->n, l)->wait == KILN_WAIT_BLOCK;
  for (int i = 0; i < s->n->l->buffers.n; i++) {
    const kiln_buffer *b = s->n->l->buffers.data[i];
    if (b->scope != KILN_SCOPE_SHARED || b->rank < 2 || b->extents[0] < 2) continue;
    const int64_t stages = b->extents[0], ahead = ahead_of(s, b, l, extent, &first),
                  tma = ahead ? tma_of(s, b, l) : 0;
    const bool is_once = tma && extent <= stages; // no stage is filled twice
    const bool waits = fills_more ? each_waits : ahead == extent && (each_waits || waits_once);
    if (!ahead || (!is_once && !waits && !is_specialized)) continue;
    s->n->is_async[i] = 1;
    spare[i] = is_once || ahead + 1 < stages;
    are_once |= is_once;
    if (ahead < soonest) soonest = ahead;
    if (tma)
      add_tma(s, b, tma, stages, ahead == extent, first_use(s, b, l),
              stage_of(s, l, extent, 0, stages));
    if (tma && is_specialized) {
      let_producer_fill(s, b, l, first, extent, ahead);
      specialized_stages = !specialized_stages || specialized_stages == stages ? stages : -1;
      continue;
    }
    if (is_once) continue;
    if (tma) {
      if (stages > most_stages) most_stages = stages;
      if (stages - ahead < release_lag) release_lag = stages - ahead;
      if (extent - ahead > fills) fills = extent - ahead;
      continue;
    }
    add_group(s, waits_once ? l : l->body, waits_once ? 0 : ahead - 1);
    add_group(s, first->body, INT32_MAX);
  }
  const kiln_tile_loop *tile_loop = take_tile_loop(s, l);
  bool works = has_work(s, l); // no instructions in flight across iterations
  const bool goes_on = !works && let_go_on(s, l, behind_fills(l), spare);
  if (tile_loop && !goes_on) drop_tile_loop(s, tile_loop), works = true;
  if (specialized_stages) take_specialized(s, l, specialized_stages, extent);
  if (!is_specialized && goes_on && soonest > 1 && s->n->n_threads > GROUP &&
      writes_by_tma_alone(s, l))
    defer_fills(s, l);
  if (most_stages)
    add_empty(s, l, most_stages, release_lag - 1 - goes_on, fills,
              works && s->n->n_threads > GROUP);
  else if (are_once && writes_by_tma_alone(s, l)) (void)multicast_fills(s, l);
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

kiln_status kiln_gpu_nest_pipeline(kiln_gpu_nest *n) {
  enum { CAPABILITY = 80, MAX_STAGES = 32 }; // bits of phases
  n->is_async = KILN_NEW_ARRAY(&n->cx->scratch, uint8_t, n->l->buffers.n);
  if (n->m->gpu.capability < CAPABILITY) return KILN_OK;
  seeker s = {.n = n, .all = kiln_gpu_touches(n, -1)};
  if (!s.all.too_deep) {
    seek(&s, n->l->body);
    for (int i = 0; i < n->l->buffers.n; i++)
      if (n->l->buffers.data[i]->scope == KILN_SCOPE_SHARED && !has_tma(&s, i))
        add_single_tma(&s, n->l->buffers.data[i]);
  }
  if (n->shared_bytes > n->m->gpu.shared_bytes)
    return kiln_gpu_refuse(n,
                           "shared memory of a block must be %" PRId64
                           " bytes at most, got %" PRId64
                           " with the mbarriers of TMA copies: stage smaller tiles",
                           n->m->gpu.shared_bytes, n->shared_bytes);
  for (int i = 0; i < n->tma.n; i++)
    if (n->tma.data[i].stages > MAX_STAGES)
      return kiln_gpu_refuse(
          n, "TMA copies must fill %d stages at most, got %" PRId64 " of buffer %s", MAX_STAGES,
          n->tma.data[i].stages,
          kiln_symbol_text(n->cx, n->l->buffers.data[n->tma.data[i].buffer]->name));
  KILN_TRY(check_tma(&s, n->l->body));
  n->specialized.fills_together =
      n->specialized.loop && fills_together(&s, n->specialized.loop) && fills_all(&s);
  KILN_TRY(kiln_specialized_check(n, s.n_drains == 1 && s.n_groups == 0));
  return check_phases(n, n->l->body);
}
