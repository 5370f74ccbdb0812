// The body of a device function: serial control, phases of threads, asynchronous copies and waits.
// Threads that are idle in a thread loop skip its body; statements outside of thread loops are the
// first thread's.
#include "target/gpu/emit.h"

#include "analysis/uses.h"
#include "support/integer.h"
#include "target/gpu/instr.h"
#include "target/instr.h"

#include <string.h>

// --- lines ---

void kiln_emit_line(kiln_emitter *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, kiln_arena_vprintf(&e->w.cx->scratch, format, args));
  kiln_text_add(e->w.out, "\n");
  va_end(args);
}

void kiln_emit_open(kiln_emitter *e, const char *text) {
  kiln_emit_line(e, "%s", text);
  e->w.depth++;
}

void kiln_emit_close(kiln_emitter *e) {
  e->w.depth--;
  kiln_emit_line(e, "}");
}

// --- loops that are bound ---

static const char *name_loop(kiln_emitter *e, const kiln_loop *l) {
  const kiln_symbol name = kiln_c_identifier(&e->w, kiln_symbol_text(e->w.cx, l->var));
  int64_t extent = 0;
  (void)kiln_expr_is_int(l->extent, &extent);
  kiln_map_put(&e->w.names, l->var, name);
  kiln_ranges_push(&e->w.ranges, l->var, 0, extent > 0 ? extent - 1 : 0);
  return kiln_symbol_text(e->w.cx, name);
}

// The number of the thread along |axis|; with ping-pong, within its consumer.
static const char *thread_place(const kiln_emitter *e, int axis) {
  const char *place = e->w.dialect->thread[axis];
  return axis == 1 && e->n->specialized.consumers > 1
             ? kiln_arena_printf(&e->w.cx->perm, "%s %% %" PRId64, place, e->n->block[1])
             : place;
}

static const char *thread_barrier(const kiln_emitter *e) {
  return e->n->specialized.consumers
             ? kiln_arena_printf(&e->w.cx->perm, "kiln_consumers_wait(kiln_consumer, %" PRId64 ");",
                                 e->n->n_threads)
             : e->w.dialect->barrier;
}

static void put_number(kiln_emitter *e, const kiln_loop *l, const char *place, int64_t size,
                       const char **out_guard) {
  int64_t extent = 0;
  const char *name = name_loop(e, l);
  (void)kiln_expr_is_int(l->extent, &extent);
  kiln_emit_open(e, "{");
  kiln_emit_line(e, "const int %s = (int)%s; // %s", name, place, kiln_how_text(l->how));
  *out_guard =
      extent == size ? NULL : kiln_arena_printf(&e->w.cx->perm, "%s < %" PRId64, name, extent);
}

static void put_block_loop(kiln_emitter *e, const kiln_loop *l, int axis) {
  const char *guard = NULL;
  put_number(e, l, e->w.dialect->block[axis], e->n->grid[axis], &guard);
  if (guard) kiln_emit_open(e, kiln_arena_printf(&e->w.cx->scratch, "if (%s) {", guard));
  e->loops[e->n_loops++] = l;
  kiln_c_list(&e->w, l->body);
  e->n_loops--;
  if (guard) kiln_emit_close(e);
  kiln_ranges_pop(&e->w.ranges, 1);
  kiln_emit_close(e);
}

// --- phases ---

static bool is_bound(const kiln_emitter *e, int (*axis_of)(const kiln_loop *), int axis) {
  bool is = false;
  for (int i = 0; i < e->n_loops; i++) is |= axis_of(e->loops[i]) == axis;
  return is;
}

// Where no loop around is bound to the axis only the first one runs; |every|: the first of so many.
static void put_first(const kiln_emitter *e, const char *place, int64_t size,
                      int (*axis_of)(const kiln_loop *), int axis, int64_t every, kiln_text *out) {
  if (size == 1 || is_bound(e, axis_of, axis)) return;
  kiln_text_printf(out, "%s%s", out->n ? " && " : "", place);
  if (every < size) kiln_text_printf(out, " %% %" PRId64, every);
  kiln_text_add(out, " == 0");
}

// The number in |tma| of a buffer that TMA copies fill; -1: it is none.
static int tma_of(const kiln_emitter *e, int buffer) {
  int i = e->n->tma.n - 1;
  while (i >= 0 && e->n->tma.data[i].buffer != buffer) i--;
  return i;
}

// How many warps' first threads issue the copies of |buffer|: several where all its stages are
// filled at once.
static int64_t issuers_of(const kiln_emitter *e, int buffer) {
  const int i = tma_of(e, buffer);
  const int64_t warps = e->n->block[0] / e->n->m->gpu.warp;
  return i >= 0 && e->n->tma.data[i].is_whole && warps > 1 ? warps : 1;
}

// Whether |l| and its siblings are TMA copies that several threads issue, and nothing else.
static bool are_issued_by_several(const kiln_emitter *e, const kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_tma = l->kind == KILN_LOOP_INSTR && l->instr->is_tma;
    if (l->kind == KILN_LOOP_DEVICE) continue;
    if (l->body ? !are_issued_by_several(e, l->body)
                : !is_tma || issuers_of(e, l->operands[0]->u.tensor) == 1)
      return false;
  }
  return true;
}

static bool holds_warps(const kiln_loop *l) {
  return l && (kiln_instr_is_warps(l) || holds_warps(l->body) || holds_warps(l->next));
}

// Opens the condition under which threads run a phase, |list| its statements; gives how many braces
// there are to close. All along x run instructions of warps.
static int open_phase(kiln_emitter *e, const kiln_loop *list) {
  e->issues = are_issued_by_several(e, list);
  kiln_text text;
  kiln_text_init(&text, &e->w.cx->perm);
  for (int i = 0; i < e->n_guards; i++)
    kiln_text_printf(&text, "%s%s", i ? " && " : "", e->guards[i]);
  for (int axis = 0; axis < 3; axis++) {
    const int64_t threads = e->n->block[axis],
                  every = axis == 0 && e->issues ? e->n->m->gpu.warp : threads;
    put_first(e, e->w.dialect->block[axis], e->n->grid[axis], kiln_gpu_block_axis, axis,
              e->n->grid[axis], &text);
    if (axis > 0 || !holds_warps(list))
      put_first(e, thread_place(e, axis), threads, kiln_gpu_thread_axis, axis, every, &text);
  }
  if (!text.n) return 0;
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "if (%s) {", text.data));
  return 1;
}

static void put_empty_wait_late(kiln_emitter *e, int empty);
static void put_phase(kiln_emitter *e, const kiln_loop *l);
static void put_tma(kiln_emitter *e, const kiln_loop *l);

static bool is_deferred(const kiln_emitter *e, const kiln_loop *l) {
  for (int i = 0; i < e->n->deferred.n; i++)
    if (e->n->deferred.data[i].fill == l) return true;
  return false;
}

// Deferred copies, issued while the instructions of |phase| run, outside of its thread loops.
static void put_deferred(kiln_emitter *e, const kiln_loop *phase) {
  const int n_loops = e->n_loops;
  bool issues = false;
  while (e->n_loops > 0 && kiln_gpu_thread_axis(e->loops[e->n_loops - 1]) >= 0) e->n_loops--;
  for (int i = 0; i < e->n->deferred.n; i++) {
    if (e->n->deferred.data[i].behind != phase) continue;
    for (int k = 0; !issues && k < e->n->empties.n; k++)
      if (e->n->empties.data[k].first == e->n->deferred.data[i].fill) put_empty_wait_late(e, k);
    issues = true;
    put_phase(e, e->n->deferred.data[i].fill);
  }
  e->n_loops = n_loops;
}

// kiln_release_stage(..): the consumer arrives at the empty barrier of the step |release_lag|
// before this one, if that is of the same tile; negative: of the last step.
static void put_used(kiln_emitter *e, int64_t release_lag) {
  const kiln_warp_specialization *c = &e->n->specialized;
  const kiln_expr *v = kiln_var(e->w.cx, c->loop->var), *last = kiln_int(e->w.cx, c->steps - 1);
  const bool in_tile_loop = kiln_gpu_tile_loop_of(e->n, c->loop) != NULL;
  const kiln_expr *step = release_lag < 0 ? (in_tile_loop ? v : last)
                                          : kiln_sub(e->w.cx, v, kiln_int(e->w.cx, release_lag));
  step = kiln_simplify(e->w.cx, step, &e->w.ranges);
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "kiln_release_stage(kiln_empty, ");
  kiln_c_expr(&e->w, step);
  if (in_tile_loop && release_lag > 0) {
    kiln_text_add(e->w.out, " < kiln_begin ? -1 : ");
    kiln_c_expr(&e->w, step);
  }
  kiln_text_printf(e->w.out, ", %" PRId64 ");\n", c->stages);
}

// Behind a phase of warp groups' instructions: commits them as a wgmma group, and waits for all but
// the latest groups.
static void put_products_end(kiln_emitter *e, const kiln_loop *phase) {
  int64_t pending = 0;
  for (int i = 0; i < e->n->products.n; i++)
    if (e->n->products.data[i].node == phase) pending = e->n->products.data[i].pending;
  kiln_emit_line(e, "asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");");
  put_deferred(e, phase);
  kiln_emit_line(e, "asm volatile(\"wgmma.wait_group.sync.aligned %" PRId64 ";\" ::: \"memory\");",
                 pending);
  if (phase == e->n->specialized.phase) put_used(e, pending);
}

// The statements of a phase, |phase| in the nest.
static void put_statements(kiln_emitter *e, const kiln_loop *phase, const kiln_loop *list) {
  const bool are_products = kiln_gpu_is_product(phase);
  if (are_products)
    kiln_emit_line(e, "asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");");
  e->in_phase = true;
  kiln_c_list(&e->w, list);
  e->in_phase = false;
  if (are_products) put_products_end(e, phase);
}

static void put_thread_loop(kiln_emitter *e, const kiln_loop *l, int axis) {
  const char *guard = NULL;
  const bool is_phase = !kiln_gpu_has_threads(l->body);
  put_number(e, l, thread_place(e, axis), e->n->block[axis], &guard);
  if (guard) e->guards[e->n_guards++] = guard;
  e->loops[e->n_loops++] = l;
  const int braces = is_phase ? open_phase(e, l->body) : 0;
  if (is_phase) put_statements(e, l, l->body);
  else kiln_c_list(&e->w, l->body);
  if (braces) kiln_emit_close(e);
  e->n_loops--;
  e->n_guards -= guard != NULL;
  kiln_ranges_pop(&e->w.ranges, 1);
  kiln_emit_close(e);
}

// A statement outside of the innermost thread loops.
static void put_phase(kiln_emitter *e, const kiln_loop *l) {
  kiln_loop one = *l;
  one.next = NULL;
  const int braces = open_phase(e, &one);
  put_statements(e, l, &one);
  if (braces) kiln_emit_close(e);
}

// The results of warp groups' instructions, each once; those that live on.
static void put_materialized(kiln_emitter *e, const kiln_loop *l, uint8_t *settled) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC) settled[l->buffer] = 1;
    put_materialized(e, l->body, settled);
    if (l->kind != KILN_LOOP_INSTR || !kiln_gpu_instr_is_group(l->instr)) continue;
    const kiln_buffer *b = e->n->l->buffers.data[l->operands[0]->u.tensor];
    if (!settled[b->id])
      kiln_emit_line(e, "kiln_settle(%s, %" PRId64 ");",
                     kiln_symbol_text(e->w.cx, e->w.buffers[b->id]), b->extents[0]);
    settled[b->id] = 1;
  }
}

// The number in |empties| of the loop that begins with |l|, or that is |l|; -1: there is none.
static int empty_of(const kiln_emitter *e, const kiln_loop *l, bool is_first) {
  int i = e->n->empties.n - 1;
  while (i >= 0 && (is_first ? e->n->empties.data[i].first : e->n->empties.data[i].loop) != l) i--;
  return i;
}

// Waits for the instructions of a loop's last iterations, behind which their sums may be read.
static void put_drain(kiln_emitter *e, const kiln_loop *l) {
  kiln_emit_line(e, "asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");");
  if (l == e->n->specialized.loop) put_used(e, -1);
  uint8_t *settled = KILN_NEW_ARRAY(&e->w.cx->scratch, uint8_t, e->n->l->buffers.n);
  put_materialized(e, l->body, settled);
}

// for (v; ..; v++) { first  for (;; v++) { ..  if (v ends its tile) break; }  last }
static void put_tile_loop(kiln_emitter *e, const kiln_tile_loop *r) {
  const char *name = name_loop(e, r->loop);
  int64_t extent = 0;
  (void)kiln_expr_is_int(r->loop->extent, &extent);
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "for (int %s = 0; %s < %" PRId64 "; %s++) {",
                                      name, name, extent, name));
  if (r->loop == e->n->specialized.loop) kiln_emit_line(e, "const int kiln_begin = %s;", name);
  kiln_c_list(&e->w, r->first->body);
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "for (;; %s++) {", name));
  kiln_c_list(&e->w, r->loop->body);
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "if (");
  kiln_c_expr(&e->w, r->last->cond);
  kiln_text_add(e->w.out, ") break;\n");
  kiln_emit_close(e);
  put_drain(e, r->loop);
  kiln_c_list(&e->w, r->last->body);
  kiln_emit_close(e);
  kiln_ranges_pop(&e->w.ranges, 1);
}

// A loop behind which instructions, or the block's threads, are waited for. With ping-pong it is
// not unrolled: ptxas would find sums that are cleared between instructions, and wait (C7517 of
// `ptxas -v`).
static bool put_drained(kiln_emitter *e, const kiln_loop *l) {
  const bool empties = empty_of(e, l, false) >= 0;
  bool drains = false;
  for (int i = 0; i < e->n->drains.n; i++) drains |= e->n->drains.data[i] == l;
  if (!drains && !empties) return false;
  kiln_loop one = *l; // is no such loop
  one.next = NULL;
  const bool has_pingpong = e->n->specialized.consumers > 1;
  const kiln_tile_loop *tile_loops = kiln_gpu_tile_loop_of(e->n, l);
  if (has_pingpong)
    kiln_emit_line(e, "kiln_pingpong_wait(kiln_consumer, %" PRId64 ");", e->n->n_threads);
  if (has_pingpong && drains) kiln_emit_line(e, "#pragma unroll 1");
  if (tile_loops) put_tile_loop(e, tile_loops);
  else kiln_c_list(&e->w, &one);
  if (has_pingpong)
    kiln_emit_line(e, "kiln_pingpong_arrive(kiln_consumer, %" PRId64 ");", e->n->n_threads);
  if (drains && !tile_loops) put_drain(e, l);
  return true;
}

// Divergent control: idle threads must not load the condition, which may be out of their bounds.
static bool put_parting(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *decides = l->kind == KILN_LOOP_IF ? l->cond : l->extent;
  if (!e->n_guards || !decides->has_load ||
      kiln_gpu_is_uniform(e->n, decides, e->n_loops, e->loops))
    return false;
  const char *guards[KILN_LEN(e->guards)];
  const int n = e->n_guards;
  memcpy(guards, e->guards, sizeof guards);
  for (int i = 0; i < n; i++)
    kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "if (%s) {", guards[i]));
  kiln_loop one = *l;
  one.next = NULL;
  e->n_guards = 0;
  kiln_c_list(&e->w, &one);
  memcpy(e->guards, guards, sizeof guards);
  e->n_guards = n;
  for (int i = 0; i < n; i++) kiln_emit_close(e);
  return true;
}

// --- memory ---

static const char *space_of(const kiln_emitter *e, const kiln_buffer *b) {
  if (kiln_scope_is_argument(b->scope)) return e->w.dialect->global;
  return b->scope == KILN_SCOPE_SHARED ? e->w.dialect->shared : "";
}

static void put_shared(kiln_emitter *e, const kiln_loop *l) {
  const kiln_buffer *b = e->n->l->buffers.data[l->buffer];
  const char *type = kiln_c_memory_type(b->dtype), *space = e->w.dialect->shared;
  const int64_t at = e->n->offsets[b->id];
  e->w.buffers[b->id] = kiln_c_identifier(&e->w, kiln_symbol_text(e->w.cx, b->name));
  const char *consumer = e->n->specialized.consumers > 1 && tma_of(e, b->id) < 0
                             ? kiln_arena_printf(&e->w.cx->scratch, " + kiln_consumer * %" PRId64,
                                                 kiln_gpu_shared_bytes(b))
                             : "";
  kiln_emit_open(e, "{");
  if (at >= 0)
    kiln_emit_line(
        e, "%s%s *const %s = (%s%s *)(kiln_shared + %" PRId64 "%s); // shared (%" PRId64 ")", space,
        type, kiln_symbol_text(e->w.cx, e->w.buffers[b->id]), space, type, at, consumer,
        kiln_buffer_elems(b));
  for (int i = 0; i < e->n->tma.n; i++)
    if (e->n->tma.data[i].buffer == b->id && !e->n->specialized.consumers) {
      kiln_emit_line(e, "uint64_t *const kiln_full_%d = (uint64_t *)(kiln_shared + %" PRId64 ");",
                     b->id, e->n->tma.data[i].at);
      kiln_emit_line(e, "uint32_t kiln_phases_%d = 0;", b->id);
    }
  kiln_c_list(&e->w, l->body);
  kiln_emit_close(e);
}

static void put_word(kiln_emitter *e, const kiln_buffer *b, const kiln_expr *const *index,
                     int bytes, bool is_const) {
  kiln_text_printf(e->w.out, "*(%s%s%s *)&", is_const ? "const " : "", space_of(e, b),
                   e->w.dialect->words[bytes == 4   ? 0
                                       : bytes == 8 ? 1
                                                    : 2]);
  kiln_c_element(&e->w, b->id, index);
}

// A copy of a word that the thread goes on behind; zeros where its condition does not hold.
static void put_copy_async(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *to = l->operands[0], *from = l->operands[1];
  e->copies_async = true;
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "kiln_copy_async(&");
  kiln_c_element(&e->w, to->u.tensor, to->args);
  kiln_text_add(e->w.out, ", &");
  kiln_c_element(&e->w, from->u.tensor, from->args);
  kiln_text_add(e->w.out, ", ");
  if (l->cond) kiln_c_expr(&e->w, l->cond);
  kiln_text_add(e->w.out, l->cond ? " ? 16 : 0);\n" : "16);\n");
}

static void put_copy(kiln_emitter *e, const kiln_expr *to, const kiln_expr *from,
                     const kiln_expr *cond, int bytes) {
  const kiln_buffer *const *b = (const kiln_buffer *const *)e->n->l->buffers.data;
  const char *zero = e->w.dialect->zeros[bytes == 4 ? 0 : bytes == 8 ? 1 : 2];
  kiln_c_line(&e->w);
  put_word(e, b[to->u.tensor], to->args, bytes, false);
  kiln_text_add(e->w.out, " = ");
  if (cond) kiln_c_expr(&e->w, cond);
  if (cond) kiln_text_add(e->w.out, " ? ");
  put_word(e, b[from->u.tensor], from->args, bytes, true);
  if (cond) kiln_text_printf(e->w.out, " : %s", zero);
  kiln_text_add(e->w.out, ";\n");
}

// The copy that a loop that is still vectorized holds.
static void put_move(kiln_emitter *e, const kiln_loop *l) {
  kiln_ctx *cx = e->w.cx;
  const kiln_loop *s = l->body;
  const kiln_expr *zero = kiln_int(cx, 0), *index[KILN_MAX_RANK + 4];
  const kiln_buffer *b = e->n->l->buffers.data[s->buffer];
  const kiln_expr *from = kiln_expr_substitute(cx, s->value, 1, &l->var, &zero), *cond = NULL;
  int64_t lanes = 0;
  (void)kiln_expr_is_int(l->extent, &lanes);
  const int bytes = (int)lanes * kiln_dtype_bytes(b->dtype);
  for (int k = 0; k < b->rank; k++)
    index[k] = kiln_expr_substitute(cx, s->index[k], 1, &l->var, &zero);
  const kiln_expr *to = kiln_load(cx, b->id, b->dtype, b->rank, index);
  if (from->kind == KILN_EXPR_SELECT) {
    cond = from->args[0];
    from = from->args[1];
  }
  put_copy(e, to, from, cond, bytes);
}

// --- launches ---

bool kiln_gpu_begins_early(const kiln_machine *m) {
  enum { CAPABILITY = 90 };
  return m->gpu.capability >= CAPABILITY;
}

static void put_launches_wait(kiln_emitter *e) {
  kiln_emit_line(e, "const int kiln_none = kiln_wait();");
  for (int k = 0; k < e->launch->n_args; k++)
    if (e->uses[e->arguments[k]] && !e->n->l->buffers.data[e->arguments[k]]->pack)
      kiln_emit_line(e, "%s += kiln_none;",
                     kiln_symbol_text(e->w.cx, e->w.buffers[e->arguments[k]]));
}

// --- statements ---

// Whether blocks of the cluster multicast copies.
static bool has_multicast(const kiln_gpu_nest *n) {
  for (int i = 0; i < n->tma.n; i++)
    if (n->tma.data[i].multicast.n > 1) return true;
  return false;
}

// NAME(barriers, iteration, stages, release_lag
static void put_call(kiln_emitter *e, int empty, const char *name) {
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "%s((uint64_t *)(kiln_shared + %" PRId64 "), ", name,
                   e->n->empties.data[empty].at);
  kiln_c_expr(&e->w, kiln_var(e->w.cx, e->n->empties.data[empty].loop->var));
  kiln_text_printf(e->w.out, ", %" PRId64 ", %" PRId64, e->n->empties.data[empty].stages,
                   e->n->empties.data[empty].release_lag);
}

// kiln_mbarrier_wait_all(.., fills): with multicast the issuing thread waits for all blocks that
// get its copies.
static void put_empty_wait_late(kiln_emitter *e, int empty) {
  if (!e->n->empties.data[empty].peers) return;
  put_call(e, empty, "kiln_mbarrier_wait_all");
  kiln_text_printf(e->w.out, ", %" PRId64 ");\n", e->n->empties.data[empty].fills);
}

// kiln_mbarrier_arrive(..); or kiln_mbarrier_arrive_all(.., fills, peers), and the wait.
static void put_empty(kiln_emitter *e, const kiln_loop *l) {
  const int i = empty_of(e, l, true);
  if (i < 0) return;
  const uint64_t peers = e->n->empties.data[i].peers;
  put_call(e, i, peers ? "kiln_mbarrier_arrive_all" : "kiln_mbarrier_arrive");
  if (peers)
    kiln_text_printf(e->w.out, ", %" PRId64 ", kiln_peers(UINT64_C(0x%" PRIx64 ")));\n",
                     e->n->empties.data[i].fills, peers);
  else kiln_text_add(e->w.out, ");\n");
  if (!is_deferred(e, l)) put_empty_wait_late(e, i);
}

// --- warp specialization ---

// for (tile = consumer; ..; tile += consumers)
static void put_tile_loop_text(kiln_emitter *e, const kiln_loop *l) {
  const char *name = name_loop(e, l);
  int64_t extent = 0;
  (void)kiln_expr_is_int(l->extent, &extent);
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm,
                                      "for (int %s = kiln_consumer; %s < %" PRId64
                                      "; %s += %" PRId64 ") {",
                                      name, name, extent, name, e->n->specialized.consumers));
  kiln_c_list(&e->w, l->body);
  kiln_emit_line(e, "kiln_phases ^= 0x%" PRIx32 "u; // of another consumer's tile",
                 kiln_specialized_parity(e->n));
  kiln_emit_close(e);
  kiln_ranges_pop(&e->w.ranges, 1);
}

static bool holds_launch_wait(const kiln_loop *l) {
  if (kiln_device_is(l, KILN_DEVICE_LAUNCH_WAIT)) return true;
  for (l = l->body; l; l = l->next)
    if (holds_launch_wait(l)) return true;
  return false;
}

// The producer warp's code: TMA copies, and the control around them.
static bool put_producer_node(kiln_emitter *e, const kiln_loop *l) {
  const kiln_warp_specialization *c = &e->n->specialized;
  const bool has_tma = kiln_gpu_has_tma(l);
  if (!has_tma && holds_launch_wait(l)) put_launches_wait(e);
  if (!has_tma) return true;
  for (int i = 0; i < c->fills.n; i++) {
    if (c->fills.data[i].node != l || !c->fills.data[i].leads) continue;
    kiln_c_line(&e->w);
    kiln_text_add(e->w.out, "kiln_mbarrier_wait(kiln_empty, &kiln_empty_phases, ");
    kiln_c_expr(&e->w, c->fills.data[i].stage);
    kiln_text_add(e->w.out, ");\n");
    kiln_c_line(&e->w);
    kiln_text_add(e->w.out, "kiln_mbarrier_expect(kiln_full + ");
    kiln_c_expr(&e->w, c->fills.data[i].stage);
    kiln_text_printf(e->w.out, ", %" PRId64 ");\n", c->stage_bytes);
  }
  const int block = kiln_gpu_block_axis(l);
  if (block >= 0) put_block_loop(e, l, block);
  else if (l->kind == KILN_LOOP_INSTR) put_tma(e, l);
  else if (l->kind == KILN_LOOP_ALLOC && tma_of(e, l->buffer) >= 0) put_shared(e, l);
  else if (l->kind == KILN_LOOP_ALLOC) kiln_c_list(&e->w, l->body);
  else return false;
  return true;
}

// The consumers' text, and then the producer warp's.
static void put_specialized(kiln_emitter *e) {
  const kiln_warp_specialization *c = &e->n->specialized;
  const int64_t rows = e->n->block[1] * c->consumers;
  e->has_producer = true;
  kiln_emit_line(e, "uint64_t *const kiln_full = (uint64_t *)(kiln_shared + %" PRId64 ");",
                 c->full);
  kiln_emit_line(e, "uint64_t *const kiln_empty = (uint64_t *)(kiln_shared + %" PRId64 ");",
                 c->used);
  const char *const *thread = e->w.dialect->thread;
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "if (%s < %" PRId64 ") {", thread[1], rows));
  kiln_emit_line(e, "const int kiln_consumer = (int)%s / %" PRId64 ";", thread[1], e->n->block[1]);
  kiln_emit_line(e, "uint32_t kiln_phases = kiln_consumer ? 0x%" PRIx32 "u : 0;",
                 kiln_specialized_parity(e->n));
  if (c->consumers > 1)
    kiln_emit_line(e, "if (kiln_consumer == 1) kiln_pingpong_arrive(kiln_consumer, %" PRId64 ");",
                   e->n->n_threads);
  e->role = KILN_ROLE_CONSUMER;
  kiln_c_list(&e->w, e->n->l->body);
  e->w.depth--;
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "} else if (%s == 0) {", thread[0]));
  kiln_emit_line(e, "uint32_t kiln_empty_phases = ~0u;");
  e->role = KILN_ROLE_PRODUCER;
  e->issues = false;
  kiln_c_list(&e->w, e->n->l->body);
  e->role = KILN_ROLE_ALL;
  kiln_emit_close(e);
}

// Statements outside of phases. An ALLOC of memory of threads, which is distributed then, and
// control that is all threads' are written as in C.
static bool put_control(kiln_emitter *e, const kiln_loop *l) {
  const int block = kiln_gpu_block_axis(l), thread = kiln_gpu_thread_axis(l);
  if (block >= 0) put_block_loop(e, l, block);
  else if (thread >= 0) put_thread_loop(e, l, thread);
  else if (e->role == KILN_ROLE_CONSUMER && kiln_gpu_has_tma(l) && !kiln_gpu_has_threads(l->body))
    return true;
  else if (e->role == KILN_ROLE_CONSUMER && e->n->specialized.consumers > 1 &&
           l == e->n->specialized.tile_loop)
    put_tile_loop_text(e, l);
  else if (l->kind == KILN_LOOP_ALLOC &&
           e->n->l->buffers.data[l->buffer]->scope == KILN_SCOPE_SHARED)
    put_shared(e, l);
  else if (is_deferred(e, l) || kiln_gpu_is_edge(e->n, l)) return true;
  else if (!kiln_gpu_has_blocks(l->body) && !kiln_gpu_has_threads(l->body)) put_phase(e, l);
  else return l->kind != KILN_LOOP_ALLOC && (put_drained(e, l) || put_parting(e, l));
  return true;
}

static const kiln_expr *at_begin(kiln_emitter *e, const kiln_expr *operand) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  const kiln_expr *zeros[KILN_MAX_TILE_RANK];
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    vars[k] = kiln_tile_var(e->w.cx, k);
    zeros[k] = kiln_int(e->w.cx, 0);
  }
  return kiln_expr_substitute(e->w.cx, operand, KILN_MAX_TILE_RANK, vars, zeros);
}

// --- TMA copies ---

static int axis_of(kiln_emitter *e, const kiln_expr *load, int tile_axis) {
  int k = 0;
  while (k + 1 < load->n_args && !kiln_expr_uses(load->args[k], kiln_tile_var(e->w.cx, tile_axis)))
    k++;
  return k;
}

static bool is_same(const kiln_gpu_map *a, const kiln_gpu_map *b) {
  bool is = a->arg == b->arg && a->columns == b->columns && a->box_rows == b->box_rows &&
            a->box_columns == b->box_columns;
  for (int k = 0; k < KILN_MAP_AXES; k++)
    is &= a->rows[k] == b->rows[k] && a->pitches[k] == b->pitches[k];
  for (int k = 0; k < 2; k++)
    is &= a->steps[k] == b->steps[k] && a->lower[k] == b->lower[k] && a->upper[k] == b->upper[k];
  return is;
}

static kiln_multicast multicast_of(const kiln_emitter *e, int buffer) {
  const int i = tma_of(e, buffer);
  return i >= 0 ? e->n->tma.data[i].multicast : (kiln_multicast){.n = 1};
}

static const kiln_im2col *im2col_of(const kiln_emitter *e, const kiln_loop *tma) {
  for (int i = 0; i < e->n->im2cols.n; i++)
    if (e->n->im2cols.data[i].node == tma) return &e->n->im2cols.data[i].im2col;
  return NULL;
}

// The rows of a matrix, or of an image in im2col mode.
static void find_rows(kiln_emitter *e, const kiln_loop *tma, kiln_gpu_map *map) {
  const kiln_expr *from = tma->operands[1];
  const kiln_buffer *b = e->n->l->buffers.data[from->u.tensor];
  const kiln_im2col *w = im2col_of(e, tma);
  const int column = axis_of(e, from, 1);
  const int64_t pitch = kiln_instr_distance(e->w.cx, e->n->l, from, 0);
  if (w) {
    map->columns = w->channels;
    memcpy(map->rows, w->sizes, sizeof map->rows);
    memcpy(map->pitches, w->strides, sizeof map->pitches);
    memcpy(map->steps, w->steps, sizeof map->steps);
    memcpy(map->lower, w->lower, sizeof map->lower);
    memcpy(map->upper, w->upper, sizeof map->upper);
  } else if (kiln_gpu_is_matrix(e->n, from)) {
    map->pitches[0] = pitch;
    map->columns = b->extents[column];
    map->rows[0] = 1;
    for (int k = 0; k < b->rank; k++)
      if (k != column) map->rows[0] += (b->extents[k] - 1) * b->strides[k] / pitch;
  } else {
    map->columns = map->pitches[0] = pitch;
    map->rows[0] = kiln_divide_up(kiln_buffer_elems(b), pitch);
  }
}

// The number of a copy's tensor map, or of its multicast part's, among the launch's; adds it where
// there is none.
static int map_of(kiln_emitter *e, const kiln_loop *tma) {
  const kiln_buffer *b = e->n->l->buffers.data[tma->operands[1]->u.tensor],
                    *tile = tma->instr->loops->buffers.data[1];
  kiln_gpu_map map = {.box_rows = tile->extents[0] / multicast_of(e, tma->operands[0]->u.tensor).n,
                      .box_columns = tile->extents[1]};
  find_rows(e, tma, &map);
  int place = 0, at = 0;
  for (int i = 0; i < b->id; i++) place += kiln_scope_is_argument(e->n->l->buffers.data[i]->scope);
  while (e->launch->args[map.arg] != place) map.arg++;
  while (at < e->launch->n_maps && !is_same(&e->launch->maps[at], &map)) at++;
  if (at == e->launch->n_maps) e->launch->maps[e->launch->n_maps++] = map;
  return at;
}

void kiln_emit_maps(kiln_emitter *e, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) (void)map_of(e, l);
    kiln_emit_maps(e, l->body);
  }
}

int kiln_gpu_count_tma(const kiln_loop *l) {
  int n = 0;
  for (; l; l = l->next)
    n += (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) + kiln_gpu_count_tma(l->body);
  return n;
}

// The coordinates of a copy's first element in its tensor map.
static void find_corner(kiln_emitter *e, const kiln_expr *operand, const kiln_gpu_map *map,
                        const kiln_expr **out_row, const kiln_expr **out_column) {
  kiln_ctx *cx = e->w.cx;
  const kiln_expr *from = at_begin(e, operand), *pitch = kiln_int(cx, map->pitches[0]);
  const kiln_buffer *b = e->n->l->buffers.data[from->u.tensor];
  const int column = axis_of(e, operand, 1);
  const kiln_expr *row = kiln_int(cx, 0), *at = kiln_gpu_element_offset(e->n, from);
  const bool is_matrix = kiln_gpu_is_matrix(e->n, operand);
  for (int k = 0; k < b->rank && is_matrix; k++)
    if (k != column)
      row = kiln_add(cx, row,
                     kiln_mul(cx, from->args[k], kiln_int(cx, b->strides[k] / map->pitches[0])));
  *out_row = kiln_simplify(cx, is_matrix ? row : kiln_div(cx, at, pitch), &e->w.ranges);
  *out_column =
      kiln_simplify(cx, is_matrix ? from->args[column] : kiln_mod(cx, at, pitch), &e->w.ranges);
}

// The stage that a copy fills: its index along the first axis of a buffer of several stages.
static const kiln_expr *stage_of(kiln_emitter *e, const kiln_expr *to) {
  const bool has_stages = e->n->tma.data[tma_of(e, to->u.tensor)].stages > 1;
  return has_stages ? kiln_simplify(e->w.cx, to->args[0], &e->w.ranges) : kiln_int(e->w.cx, 0);
}

// if (threadIdx.x / 32 == N): where several threads issue copies, each stage's are another warp's.
static void put_producer(kiln_emitter *e, const kiln_expr *to, const kiln_expr *stage) {
  kiln_ctx *cx = e->w.cx;
  const int64_t n = issuers_of(e, to->u.tensor);
  if (!e->issues || is_bound(e, kiln_gpu_thread_axis, 0)) return;
  const kiln_expr *number = kiln_add(cx, kiln_mul(cx, stage, kiln_int(cx, e->n->tma.n)),
                                     kiln_int(cx, tma_of(e, to->u.tensor)));
  kiln_text_printf(e->w.out, "if (%s / %d == ", e->w.dialect->thread[0], e->n->m->gpu.warp);
  kiln_c_expr(&e->w, kiln_simplify(cx, kiln_mod(cx, number, kiln_int(cx, n)), &e->w.ranges));
  kiln_text_add(e->w.out, ") ");
}

// Coordinates of a copy in its tensor map: column, row; or in im2col mode channel, column, row,
// image, right, down.
static void put_place(kiln_emitter *e, const kiln_loop *l, const kiln_gpu_map *map) {
  const kiln_im2col *w = im2col_of(e, l);
  const kiln_expr *at[6];
  int n = 0;
  if (w) {
    at[n++] = w->channel;
    for (int a = 0; a < KILN_IM2COL_AXES; a++) at[n++] = w->first[a];
    for (int a = 0; a < 2; a++) at[n++] = w->offsets[a];
  } else {
    find_corner(e, l->operands[1], map, &at[1], &at[0]);
    n = 2;
  }
  for (int i = 0; i < n; i++) {
    kiln_text_add(e->w.out, ", ");
    kiln_c_expr(&e->w, at[i]);
  }
}

// kiln_tma(&to, &map, .., barrier, bytes), kiln_tma_multicast(.., rows, peers) or kiln_im2col(..).
static void put_tma(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *to = at_begin(e, l->operands[0]);
  const kiln_gpu_map *map = &e->launch->maps[map_of(e, l)];
  const kiln_multicast multicast = multicast_of(e, to->u.tensor);
  const kiln_expr *stage = stage_of(e, to);
  kiln_c_line(&e->w);
  put_producer(e, to, stage);
  const bool is_specialized = e->n->specialized.consumers > 0;
  kiln_text_printf(e->w.out, "kiln_%s%s(&", l->instr->is_im2col ? "im2col" : "tma",
                   is_specialized    ? "_copy"
                   : multicast.n > 1 ? "_multicast"
                                     : "");
  e->w.swizzles = false; // the map knows
  kiln_c_element(&e->w, to->u.tensor, to->args);
  e->w.swizzles = true;
  kiln_text_printf(e->w.out, ", &kiln_map_%d", (int)(map - e->launch->maps));
  put_place(e, l, map);
  if (is_specialized) kiln_text_add(e->w.out, ", kiln_full + ");
  else kiln_text_printf(e->w.out, ", kiln_full_%d + ", to->u.tensor);
  kiln_c_expr(&e->w, stage);
  if (!is_specialized)
    kiln_text_printf(e->w.out, ", %" PRId64, 2 * map->box_rows * map->box_columns * multicast.n);
  if (multicast.n > 1)
    kiln_text_printf(e->w.out, ", %" PRId64 ", kiln_peers(UINT64_C(0x%" PRIx64 "))", map->box_rows,
                     multicast.of);
  kiln_text_add(e->w.out, ");\n");
}

// Waits on the full barriers of the stages that |l| uses.
static void put_mbarrier_wait(kiln_emitter *e, const kiln_loop *l) {
  if (e->n->specialized.consumers && l == e->n->specialized.phase) {
    kiln_c_line(&e->w);
    kiln_text_add(e->w.out, "kiln_mbarrier_wait(kiln_full, &kiln_phases, ");
    kiln_c_expr(&e->w, e->n->tma.data[0].stage);
    kiln_text_add(e->w.out, ");\n");
  }
  for (int i = 0; i < e->n->tma.n && !e->n->specialized.consumers; i++) {
    if (e->n->tma.data[i].use != l) continue;
    const int buffer = e->n->tma.data[i].buffer;
    kiln_c_line(&e->w);
    kiln_text_printf(e->w.out, "kiln_mbarrier_wait(kiln_full_%d, &kiln_phases_%d, ", buffer,
                     buffer);
    kiln_c_expr(&e->w, e->n->tma.data[i].stage);
    kiln_text_add(e->w.out, ");\n");
  }
}

static void put_barriers(kiln_emitter *e) {
  if (!e->n->tma.n) return;
  e->has_tma = true;
  kiln_emit_open(e, "if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {");
  for (int i = 0; i < e->launch->n_maps; i++) kiln_emit_line(e, "kiln_map_fetch(&kiln_map_%d);", i);
  for (int i = 0; i < e->n->tma.n && !e->n->specialized.consumers; i++)
    kiln_emit_line(
        e, "kiln_mbarrier_init((uint64_t *)(kiln_shared + %" PRId64 "), %" PRId64 ", %" PRId64 ");",
        e->n->tma.data[i].at, e->n->tma.data[i].stages, e->n->tma.data[i].copies);
  for (int i = 0; i < e->n->empties.n; i++) {
    const uint64_t peers = e->n->empties.data[i].peers;
    const char *blocks =
        peers ? kiln_arena_printf(&e->w.cx->scratch,
                                  " * __popc(kiln_peers(UINT64_C(0x%" PRIx64 ")))", peers)
              : "";
    kiln_emit_line(e,
                   "kiln_mbarrier_init((uint64_t *)(kiln_shared + %" PRId64 "), %" PRId64
                   ", %" PRId64 "%s);",
                   e->n->empties.data[i].at, e->n->empties.data[i].stages,
                   e->n->n_threads / e->n->m->gpu.warp, blocks);
  }
  for (int used = 0; used < 2 && e->n->specialized.consumers; used++)
    kiln_emit_line(
        e, "kiln_mbarrier_init((uint64_t *)(kiln_shared + %" PRId64 "), %" PRId64 ", %" PRId64 ");",
        used ? e->n->specialized.used : e->n->specialized.full, e->n->specialized.stages,
        used ? e->n->n_threads / e->n->m->gpu.warp : 1);
  kiln_emit_line(e, "asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");");
  if (has_multicast(e->n))
    kiln_emit_line(e, "asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");");
  kiln_emit_close(e);
  if (has_multicast(e->n)) kiln_emit_line(e, "kiln_cluster_wait();");
  else kiln_emit_line(e, "%s", e->w.dialect->barrier);
  e->has_multicast |= has_multicast(e->n);
}

// NAME(&operand, ..), of the lane's parts; of an operand in memory, its begin and the distance of
// its rows.
static void put_instr(kiln_emitter *e, const kiln_loop *l) {
  bool known = false;
  for (int i = 0; i < e->instrs.n; i++) known |= !strcmp(e->instrs.data[i]->name, l->instr->name);
  if (!known) KILN_VEC_PUSH(&e->w.cx->perm, &e->instrs, l->instr);
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "%s(", kiln_gpu_instr_function(e->w.cx, l->instr));
  for (int i = 0; i < l->n_operands; i++) {
    const kiln_expr *o = at_begin(e, l->operands[i]);
    kiln_text_add(e->w.out, i ? ", &" : "&");
    e->w.swizzles = false; // the instruction knows
    kiln_c_element(&e->w, o->u.tensor, o->args);
    e->w.swizzles = true;
    if (!l->instr->fragments[i].lane)
      kiln_text_printf(e->w.out, ", %" PRId64,
                       kiln_instr_distance(e->w.cx, e->n->l, l->operands[i], 0));
  }
  kiln_text_add(e->w.out, ");\n");
}

static const kiln_expr *in_iteration(kiln_emitter *e, const kiln_loop *l, const kiln_expr *x,
                                     int64_t i) {
  const kiln_expr *at = kiln_int(e->w.cx, i);
  return kiln_simplify(e->w.cx, kiln_expr_substitute(e->w.cx, x, 1, &l->var, &at), &e->w.ranges);
}

// Whether the two stores of |l| are of neighbours, the first of which has an even place in memory
// of the thread.
static bool are_neighbours(kiln_emitter *e, const kiln_loop *l) {
  kiln_ctx *cx = e->w.cx;
  const kiln_loop *s = l->body;
  const kiln_buffer *b = e->n->l->buffers.data[s->buffer];
  const kiln_expr *at = kiln_int(cx, 0);
  int64_t odd = 1, apart = 0;
  for (int k = 0; k < b->rank; k++)
    at = kiln_add(cx, at, kiln_mul(cx, s->index[k], kiln_int(cx, b->strides[k])));
  const kiln_expr *first = in_iteration(e, l, at, 0),
                  *step = kiln_sub(cx, in_iteration(e, l, at, 1), first);
  return kiln_scope_is_private(b->scope) &&
         kiln_expr_is_int(kiln_simplify(cx, step, &e->w.ranges), &apart) && apart == 1 &&
         kiln_expr_is_int(kiln_simplify(cx, kiln_mod(cx, first, kiln_int(cx, 2)), &e->w.ranges),
                          &odd) &&
         odd == 0;
}

// Whether |l| stores two numbers as halves that lie in one word: out_values[2].
static bool is_pair(kiln_emitter *e, const kiln_loop *l, const kiln_expr **out_values) {
  enum { CAPABILITY = 80 };
  const kiln_loop *s = l->body;
  int64_t extent = 0;
  if (e->n->m->gpu.capability < CAPABILITY || l->how != KILN_UNROLLED ||
      !kiln_expr_is_int(l->extent, &extent) || extent != 2 || s->next ||
      s->kind != KILN_LOOP_STORE || s->combiner != KILN_COMBINE_NONE)
    return false;
  const kiln_dtype t = e->n->l->buffers.data[s->buffer]->dtype;
  if (!kiln_dtype_is_half(t) || !are_neighbours(e, l)) return false;
  for (int i = 0; i < 2; i++) {
    out_values[i] = in_iteration(e, l, s->value, i);
    if (out_values[i]->kind != KILN_EXPR_CAST || out_values[i]->args[0]->dtype != KILN_F32)
      return false;
  }
  return true;
}

// *(uint32_t *)&b[..] = kiln_pair_f16(first, second).
static bool put_pair(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *index[KILN_MAX_RANK + 4], *values[2];
  if (!is_pair(e, l, values)) return false;
  const kiln_loop *s = l->body;
  const kiln_buffer *b = e->n->l->buffers.data[s->buffer];
  for (int k = 0; k < b->rank; k++) index[k] = in_iteration(e, l, s->index[k], 0);
  e->has_pairs = true;
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "*(uint32_t *)&");
  kiln_c_element(&e->w, b->id, index);
  kiln_text_printf(e->w.out, " = kiln_pair_%s(", b->dtype == KILN_F16 ? "f16" : "bf16");
  for (int i = 0; i < 2; i++) {
    kiln_c_rounding(&e->w, values[i]);
    kiln_text_add(e->w.out, i ? ");\n" : ", ");
  }
  return true;
}

// --- statements of device loops ---

static const char *const texts[] = {
    [KILN_DEVICE_FENCE_ASYNC] = "asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");",
    [KILN_DEVICE_COPY_COMMIT] = "asm volatile(\"cp.async.commit_group;\");",
};

static int64_t number_of(const kiln_loop *l, int argument) {
  int64_t n = 0;
  (void)kiln_expr_is_int(l->operands[argument], &n);
  return n;
}

static void put_device(kiln_emitter *e, const kiln_loop *l) {
  switch ((int)l->op->kind) {
  case KILN_DEVICE_BARRIER_BLOCK: kiln_emit_line(e, "%s", thread_barrier(e)); return;
  case KILN_DEVICE_BARRIER_WARP: kiln_emit_line(e, "%s", e->w.dialect->warp_barrier); return;
  case KILN_DEVICE_LAUNCH_WAIT: put_launches_wait(e); return;
  case KILN_DEVICE_COPY_ASYNC: put_copy_async(e, l); return;
  case KILN_DEVICE_COPY_WAIT:
    kiln_emit_line(e, "asm volatile(\"cp.async.wait_group %" PRId64 ";\" ::: \"memory\");",
                   number_of(l, 0));
    return;
  default: kiln_emit_line(e, "%s", texts[l->op->kind]);
  }
}

bool kiln_emit_node(kiln_c_writer *w, const kiln_loop *l) {
  kiln_emitter *e = (kiln_emitter *)w;
  if (l->kind == KILN_LOOP_PREFETCH) return true;
  if (e->role == KILN_ROLE_PRODUCER) return put_producer_node(e, l);
  if (l->kind == KILN_LOOP_DEVICE) {
    put_device(e, l);
    return true;
  }
  if (l->kind == KILN_LOOP_INSTR && e->in_phase) {
    if (l->instr->is_tma) put_tma(e, l);
    else put_instr(e, l);
    return true;
  }
  if (!e->in_phase) {
    put_empty(e, l);
    put_mbarrier_wait(e, l);
    return put_control(e, l);
  }
  if (l->kind == KILN_LOOP_ALLOC && e->n->l->buffers.data[l->buffer]->scope == KILN_SCOPE_SHARED) {
    put_shared(e, l);
    return true;
  }
  if (l->kind != KILN_LOOP_FOR) return false;
  if (l->how != KILN_VECTORIZED) return put_pair(e, l);
  put_move(e, l);
  return true;
}

void kiln_emit_nest(kiln_emitter *e) {
  put_barriers(e);
  if (e->n->specialized.consumers) put_specialized(e);
  else kiln_c_list(&e->w, e->n->l->body);
  if (has_multicast(e->n))
    kiln_emit_line(e, "kiln_cluster_wait();"); // nobody reaches a block that is over
}
