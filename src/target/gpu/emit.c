// Device loops as the body of a device function, statement by statement (device/device.h). Threads
// that are idle in a thread loop skip its body; statements outside of thread loops are the first
// thread's.
#include "target/gpu/emit.h"

#include "analysis/uses.h"
#include "target/gpu/device/map.h"
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

// The number of the thread along |axis|, within its group of consumers.
static const char *thread_place(const kiln_emitter *e, int axis) {
  const char *place = e->w.dialect->thread[axis];
  return axis == 1 && e->group_rows
             ? kiln_arena_printf(&e->w.cx->perm, "%s %% %" PRId64, place, e->group_rows)
             : place;
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

// Guards the first thread, or block, along an axis to which no loop around is bound; |every|: the
// first of each so many.
static void put_first(const kiln_emitter *e, const char *place, int64_t size,
                      int (*axis_of)(const kiln_loop *), int axis, int64_t every, kiln_text *out) {
  if (size == 1 || is_bound(e, axis_of, axis)) return;
  kiln_text_printf(out, "%s%s", out->n ? " && " : "", place);
  if (every < size) kiln_text_printf(out, " %% %" PRId64, every);
  kiln_text_add(out, " == 0");
}

static bool holds_warps(const kiln_loop *l) {
  return l && (kiln_instr_is_warps(l) || holds_warps(l->body) || holds_warps(l->next));
}

// Opens the guard under which threads run a phase, |list| its statements; gives the number of
// braces to close. Warp-wide instructions are run by all threads along x. |are_leaders|: the first
// thread of each warp runs the phase.
static int open_phase(kiln_emitter *e, const kiln_loop *list, bool are_leaders) {
  kiln_text text;
  kiln_text_init(&text, &e->w.cx->perm);
  for (int i = 0; i < e->n_guards; i++)
    kiln_text_printf(&text, "%s%s", i ? " && " : "", e->guards[i]);
  for (int axis = 0; axis < 3; axis++) {
    const int64_t threads = e->n->block[axis],
                  every = axis == 0 && are_leaders ? e->n->m->gpu.warp : threads;
    put_first(e, e->w.dialect->block[axis], e->n->grid[axis], kiln_gpu_block_axis, axis,
              e->n->grid[axis], &text);
    if (axis > 0 || !holds_warps(list))
      put_first(e, thread_place(e, axis), threads, kiln_gpu_thread_axis, axis, every, &text);
  }
  if (!text.n) return 0;
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->perm, "if (%s) {", text.data));
  return 1;
}

static void put_statements(kiln_emitter *e, const kiln_loop *list) {
  e->in_phase = true;
  kiln_c_list(&e->w, list);
  e->in_phase = false;
}

static void put_thread_loop(kiln_emitter *e, const kiln_loop *l, int axis) {
  const char *guard = NULL;
  const bool is_phase = !kiln_gpu_has_threads(l->body);
  put_number(e, l, thread_place(e, axis), e->n->block[axis], &guard);
  if (guard) e->guards[e->n_guards++] = guard;
  e->loops[e->n_loops++] = l;
  const int braces = is_phase ? open_phase(e, l->body, false) : 0;
  if (is_phase) put_statements(e, l->body);
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
  const int braces = open_phase(e, &one, false);
  put_statements(e, &one);
  if (braces) kiln_emit_close(e);
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
  const char *own = e->group ? kiln_arena_printf(&e->w.cx->scratch, " + %s * %" PRId64, e->group,
                                                 kiln_gpu_shared_bytes(b))
                             : "";
  kiln_emit_open(e, "{");
  if (at >= 0)
    kiln_emit_line(
        e, "%s%s *const %s = (%s%s *)(kiln_shared + %" PRId64 "%s); // shared (%" PRId64 ")", space,
        type, kiln_symbol_text(e->w.cx, e->w.buffers[b->id]), space, type, at, own,
        kiln_buffer_elems(b));
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

// cp.async of a word; zeros where its condition does not hold.
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

// The word copy of a loop that is still vectorized.
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

// Whether |l| holds statements that all threads carry out, siblings left out.
static bool holds_waits(const kiln_loop *l) {
  if (l->kind == KILN_LOOP_DEVICE && !kiln_device_is(l, KILN_DEVICE_COPY_ASYNC) &&
      !kiln_device_is(l, KILN_DEVICE_MBARRIER_EXPECT) && !kiln_device_is(l, KILN_DEVICE_ROLE_WARP))
    return true;
  for (l = l->body; l; l = l->next)
    if (holds_waits(l)) return true;
  return false;
}

// if (v >= c) { .. }: in its body v's range starts at c, which simplifies expressions.
static bool put_from(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *v =
      l->kind == KILN_LOOP_IF && l->cond->kind == KILN_EXPR_GE ? l->cond->args[0] : NULL;
  int64_t least = 0;
  if (!v || v->kind != KILN_EXPR_VAR || !kiln_expr_is_int(l->cond->args[1], &least)) return false;
  const kiln_interval i = kiln_expr_interval(e->w.cx, v, &e->w.ranges);
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "if (");
  kiln_c_expr(&e->w, l->cond);
  kiln_text_add(e->w.out, ") {\n");
  e->w.depth++;
  kiln_ranges_push(&e->w.ranges, v->u.sym, least, i.hi);
  kiln_c_list(&e->w, l->body);
  kiln_ranges_pop(&e->w.ranges, 1);
  kiln_emit_close(e);
  return true;
}

// Statements outside of phases. ALLOCs of distributed buffers, and uniform control, are written as
// in C.
static bool put_control(kiln_emitter *e, const kiln_loop *l) {
  const int block = kiln_gpu_block_axis(l), thread = kiln_gpu_thread_axis(l);
  if (block >= 0) put_block_loop(e, l, block);
  else if (thread >= 0) put_thread_loop(e, l, thread);
  else if (l->kind == KILN_LOOP_ALLOC &&
           e->n->l->buffers.data[l->buffer]->scope == KILN_SCOPE_SHARED)
    put_shared(e, l);
  else if (!kiln_gpu_has_blocks(l->body) && !kiln_gpu_has_threads(l->body) && !holds_waits(l))
    put_phase(e, l);
  else return l->kind != KILN_LOOP_ALLOC && put_parting(e, l);
  return true;
}

// --- TMA copies ---

// The blocks whose shared memory gets a copy's rows; 0: its own.
static uint64_t peers_of(const kiln_loop *tma) {
  int64_t peers = 0;
  (void)kiln_expr_is_int(tma->operands[3], &peers);
  return (uint64_t)peers;
}

// The number of a copy's tensor map among the launch's.
static int map_of(const kiln_emitter *e, const kiln_loop *tma) {
  int64_t map = 0;
  (void)kiln_expr_is_int(tma->operands[4], &map);
  return e->maps[map];
}

// The place of a copy in its tensor map.
static void put_place(kiln_emitter *e, const kiln_loop *l) {
  enum { FIRST = 5 };
  for (int i = FIRST; i < l->n_operands; i++) {
    kiln_text_add(e->w.out, ", ");
    kiln_c_expr(&e->w, l->instr->is_im2col ? l->operands[i]
                                           : kiln_simplify(e->w.cx, l->operands[i], &e->w.ranges));
  }
}

// &M[..], an mbarrier's address
static void put_mbarrier(kiln_emitter *e, const kiln_expr *m) {
  kiln_text_printf(e->w.out, "%s + ", kiln_symbol_text(e->w.cx, e->w.buffers[m->u.tensor]));
  kiln_c_expr(&e->w, m->args[0]);
}

static void put_peers(kiln_emitter *e, uint64_t peers) {
  kiln_text_printf(e->w.out, "kiln_peers(UINT64_C(0x%" PRIx64 "))", peers);
}

static const kiln_expr *simple_mbarrier(kiln_emitter *e, const kiln_expr *m) {
  const kiln_expr *at = kiln_simplify(e->w.cx, m->args[0], &e->w.ranges);
  return kiln_load(e->w.cx, m->u.tensor, m->dtype, 1, &at);
}

// kiln_tma(&to, &map, .., barrier, bytes), kiln_tma_copy(.., barrier) where the bytes are expected
// already, kiln_tma_multicast(.., bytes, rows, peers), or kiln_im2col(..).
static void put_tma(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *to = kiln_tile_begin(e->w.cx, l->operands[0]);
  const int map = map_of(e, l);
  const uint64_t peers = peers_of(l);
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "kiln_%s%s(&", l->instr->is_im2col ? "im2col" : "tma",
                   peers         ? "_multicast"
                   : e->expected ? ""
                                 : "_copy");
  e->w.swizzles = false; // by the tensor map
  kiln_c_element(&e->w, to->u.tensor, to->args);
  e->w.swizzles = true;
  kiln_text_printf(e->w.out, ", &kiln_map_%d", map);
  put_place(e, l);
  kiln_text_add(e->w.out, ", ");
  put_mbarrier(e, simple_mbarrier(e, l->operands[2]));
  if (e->expected) kiln_text_printf(e->w.out, ", %" PRId64, e->expected);
  e->expected = 0;
  if (peers) kiln_text_printf(e->w.out, ", %" PRId64 ", ", e->launch->maps[map].box_rows);
  if (peers) put_peers(e, peers);
  kiln_text_add(e->w.out, ");\n");
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
    const kiln_expr *o = kiln_tile_begin(e->w.cx, l->operands[i]);
    kiln_text_add(e->w.out, i ? ", &" : "&");
    e->w.swizzles = false; // by the instruction
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

static int64_t number_of(const kiln_loop *l, int argument) {
  int64_t n = 0;
  (void)kiln_expr_is_int(l->operands[argument], &n);
  return n;
}

// NAME(arguments from |from| on, ..
static void put_call(kiln_emitter *e, const kiln_loop *l, const char *name, int from) {
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "%s(", name);
  for (int i = from; i < l->n_operands; i++) {
    if (i > from) kiln_text_add(e->w.out, ", ");
    if (l->op->arguments[i] == 'm' && l->op->kind == KILN_DEVICE_MBARRIER_EXPECT)
      put_mbarrier(e, simple_mbarrier(e, l->operands[i]));
    else if (l->op->arguments[i] == 'm') put_mbarrier(e, l->operands[i]);
    else kiln_c_expr(&e->w, l->operands[i]);
  }
}

static void put_asm(kiln_emitter *e, const char *text) {
  kiln_emit_line(e, "asm volatile(\"%s;\" ::: \"memory\");", text);
}

static void put_asm_of(kiln_emitter *e, const char *text, const kiln_loop *l) {
  put_asm(e, kiln_arena_printf(&e->w.cx->scratch, "%s %" PRId64, text, number_of(l, 0)));
}

// Nests that share a launch keep the registers that it begins with.
static void put_registers(kiln_emitter *e, const kiln_loop *l, const char *how) {
  if (!e->is_shared)
    put_asm_of(e, kiln_arena_printf(&e->w.cx->scratch, "setmaxnreg.%s.sync.aligned.u32", how), l);
}

// kiln_mbarrier_wait(full, phases, stage);
static void put_mbarrier_wait(kiln_emitter *e, const kiln_loop *l) {
  const kiln_expr *m = l->operands[0];
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "kiln_mbarrier_wait(%s, %s, ",
                   kiln_symbol_text(e->w.cx, e->w.buffers[m->u.tensor]),
                   kiln_symbol_text(e->w.cx, e->w.buffers[l->operands[1]->u.tensor]));
  kiln_c_expr(&e->w, kiln_simplify(e->w.cx, m->args[0], &e->w.ranges));
  kiln_text_add(e->w.out, ");\n");
}

// phases[0] = bits; or ^=
static void put_phases(kiln_emitter *e, const kiln_loop *l, const char *operator) {
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "%s[0] %s (uint32_t)(",
                   kiln_symbol_text(e->w.cx, e->w.buffers[l->operands[0]->u.tensor]), operator);
  kiln_c_expr(&e->w, l->operands[1]);
  kiln_text_add(e->w.out, ");\n");
}

static void put_init(kiln_emitter *e, const kiln_loop *l) {
  const bool has_peers = l->op->kind == KILN_DEVICE_MBARRIER_INIT_CLUSTER;
  e->has_tma = true;
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "kiln_mbarrier_init(");
  put_mbarrier(e, l->operands[0]);
  kiln_text_printf(e->w.out, ", %" PRId64 ", %" PRId64, number_of(l, 1), number_of(l, 2));
  if (has_peers) kiln_text_add(e->w.out, " * __popc(");
  if (has_peers) put_peers(e, (uint64_t)number_of(l, 3));
  kiln_text_add(e->w.out, has_peers ? "));\n" : ");\n");
}

static void put_cluster_arrive(kiln_emitter *e, const kiln_loop *l) {
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "kiln_mbarrier_arrive_all(");
  put_mbarrier(e, l->operands[0]);
  kiln_text_add(e->w.out, ", ");
  put_peers(e, (uint64_t)number_of(l, 1));
  kiln_text_add(e->w.out, ");\n");
}

// --- roles and tiles ---

// A role of one thread, or of a few that run the same statements.
static void put_alone(kiln_emitter *e, const kiln_loop *l, const char *head) {
  const bool before = e->in_phase;
  kiln_emit_open(e, head);
  e->in_phase = true;
  kiln_c_list(&e->w, l->body);
  e->in_phase = before;
  kiln_emit_close(e);
}

// Directly behind the consumers' branch, `else` suffices for the producer's row of threads. All of
// them set the number of their registers, and the first one goes on.
static void put_producer(kiln_emitter *e, const kiln_loop *l) {
  const char *const *thread = e->w.dialect->thread;
  const bool sets = kiln_device_is(l->body, KILN_DEVICE_REGISTERS_SET) && !e->is_shared;
  const char *row =
                 kiln_arena_printf(&e->w.cx->scratch, "%s == %" PRId64, thread[1], number_of(l, 0)),
             *lead = kiln_arena_printf(&e->w.cx->scratch, "%s == 0", thread[0]);
  const bool is_else = e->behind == l;
  kiln_loop rest = *l;
  e->has_producer = true;
  if (sets) {
    kiln_emit_open(e, is_else ? "else {" : kiln_arena_printf(&e->w.cx->scratch, "if (%s) {", row));
    put_registers(e, l->body, "dec");
    rest.body = l->body->next;
    put_alone(e, &rest, kiln_arena_printf(&e->w.cx->scratch, "if (%s) {", lead));
    kiln_emit_close(e);
  } else
    put_alone(e, &rest,
              is_else ? kiln_arena_printf(&e->w.cx->scratch, "else if (%s) {", lead)
                      : kiln_arena_printf(&e->w.cx->scratch, "if (%s && %s) {", row, lead));
}

static const char *name_var(kiln_emitter *e, kiln_symbol var, int64_t end) {
  const kiln_symbol name = kiln_c_identifier(&e->w, kiln_symbol_text(e->w.cx, var));
  kiln_map_put(&e->w.names, var, name);
  kiln_ranges_push(&e->w.ranges, var, 0, end > 0 ? end - 1 : 0);
  return kiln_symbol_text(e->w.cx, name);
}

static void put_consumers(kiln_emitter *e, const kiln_loop *l) {
  const int64_t rows = number_of(l, 1), n = number_of(l, 2);
  const char *y = e->w.dialect->thread[1];
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->scratch, "if (%s < %" PRId64 ") {", y, rows * n));
  const char *group = name_var(e, l->var, n);
  kiln_emit_line(e, "const int %s = (int)%s / %" PRId64 ";", group, y, rows);
  if (n > 1) e->group = group, e->group_rows = rows;
  kiln_c_list(&e->w, l->body);
  e->group = NULL, e->group_rows = 0;
  e->behind = l->next;
  kiln_ranges_pop(&e->w.ranges, 1);
  kiln_emit_close(e);
}

static void put_leaders(kiln_emitter *e, const kiln_loop *l) {
  const bool before = e->in_phase;
  const int braces = open_phase(e, l->body, true);
  e->in_phase = true;
  kiln_c_list(&e->w, l->body);
  e->in_phase = before;
  if (braces) kiln_emit_close(e);
}

// for (int v = first; v < end; v += step) { .. }
static void put_tiles(kiln_emitter *e, const kiln_loop *l) {
  const char *v = name_var(e, l->var, number_of(l, 1));
  kiln_c_line(&e->w);
  kiln_text_printf(e->w.out, "for (int %s = ", v);
  kiln_c_expr(&e->w, l->operands[0]);
  if (number_of(l, 2) == 1)
    kiln_text_printf(e->w.out, "; %s < %" PRId64 "; %s++) {\n", v, number_of(l, 1), v);
  else
    kiln_text_printf(e->w.out, "; %s < %" PRId64 "; %s += %" PRId64 ") {\n", v, number_of(l, 1), v,
                     number_of(l, 2));
  e->w.depth++;
  const char *outer = e->tile;
  e->tile = v;
  kiln_c_list(&e->w, l->body);
  e->tile = outer;
  kiln_emit_close(e);
  kiln_ranges_pop(&e->w.ranges, 1);
}

// for (;; v++) { ..  if (v ends its tile) break; }
static void put_tile_steps(kiln_emitter *e, const kiln_loop *l) {
  const char *begin = name_var(e, l->var, INT32_MAX);
  kiln_emit_line(e, "const int %s = %s;", begin, e->tile);
  kiln_emit_open(e, kiln_arena_printf(&e->w.cx->scratch, "for (;; %s++) {", e->tile));
  kiln_c_list(&e->w, l->body);
  kiln_c_line(&e->w);
  kiln_text_add(e->w.out, "if (");
  kiln_c_expr(&e->w, l->cond);
  kiln_text_add(e->w.out, ") break;\n");
  kiln_emit_close(e);
  kiln_ranges_pop(&e->w.ranges, 1);
}

// Whether the next statement is the copy whose bytes are expected: one function does both.
static bool is_of_next(const kiln_loop *l) {
  const kiln_loop *copy = l->next;
  return copy && copy->kind == KILN_LOOP_INSTR && copy->instr->is_tma &&
         copy->operands[2] == l->operands[0];
}

static void end_call(kiln_emitter *e) { kiln_text_add(e->w.out, ");\n"); }

static void put_device(kiln_emitter *e, const kiln_loop *l) {
  const char *const *thread = e->w.dialect->thread;
  switch (l->op->kind) {
  case KILN_DEVICE_BARRIER_BLOCK: kiln_emit_line(e, "%s", e->w.dialect->barrier); return;
  case KILN_DEVICE_BARRIER_WARP: kiln_emit_line(e, "%s", e->w.dialect->warp_barrier); return;
  case KILN_DEVICE_BARRIER_SYNC: put_call(e, l, "kiln_barrier_sync", 0); break;
  case KILN_DEVICE_BARRIER_ARRIVE: put_call(e, l, "kiln_barrier_arrive", 0); break;
  case KILN_DEVICE_CLUSTER_SYNC:
    e->has_multicast = true;
    kiln_emit_line(e, "kiln_cluster_wait();");
    return;
  case KILN_DEVICE_FENCE_ASYNC: put_asm(e, "fence.proxy.async.shared::cta"); return;
  case KILN_DEVICE_FENCE_CLUSTER: put_asm(e, "fence.mbarrier_init.release.cluster"); return;
  case KILN_DEVICE_LAUNCH_WAIT: put_launches_wait(e); return;
  case KILN_DEVICE_COPY_ASYNC: put_copy_async(e, l); return;
  case KILN_DEVICE_COPY_COMMIT:
    kiln_emit_line(e, "asm volatile(\"cp.async.commit_group;\");");
    return;
  case KILN_DEVICE_COPY_WAIT: put_asm_of(e, "cp.async.wait_group", l); return;
  case KILN_DEVICE_MBARRIER_INIT:
  case KILN_DEVICE_MBARRIER_INIT_CLUSTER: put_init(e, l); return;
  case KILN_DEVICE_MBARRIER_ARRIVE: put_call(e, l, "kiln_mbarrier_arrive", 0); break;
  case KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER: put_cluster_arrive(e, l); return;
  case KILN_DEVICE_MBARRIER_EXPECT:
    if (is_of_next(l)) {
      e->expected = number_of(l, 1);
      return;
    }
    put_call(e, l, "kiln_mbarrier_expect", 0);
    break;
  case KILN_DEVICE_MBARRIER_WAIT: put_mbarrier_wait(e, l); return;
  case KILN_DEVICE_MBARRIER_AWAIT: put_call(e, l, "kiln_mbarrier_await", 0); break;
  case KILN_DEVICE_MBARRIER_PHASES: put_phases(e, l, "="); return;
  case KILN_DEVICE_MBARRIER_FLIP: put_phases(e, l, "^="); return;
  case KILN_DEVICE_MAPS_FETCH:
    for (int i = 0; i < e->launch->n_maps; i++)
      kiln_emit_line(e, "kiln_map_fetch(&kiln_map_%d);", i);
    return;
  case KILN_DEVICE_WGMMA_FENCE: put_asm(e, "wgmma.fence.sync.aligned"); return;
  case KILN_DEVICE_WGMMA_COMMIT: put_asm(e, "wgmma.commit_group.sync.aligned"); return;
  case KILN_DEVICE_WGMMA_WAIT: put_asm_of(e, "wgmma.wait_group.sync.aligned", l); return;
  case KILN_DEVICE_WGMMA_SETTLE:
    kiln_emit_line(e, "kiln_settle(%s, %" PRId64 ");",
                   kiln_symbol_text(e->w.cx, e->w.buffers[l->operands[0]->u.tensor]),
                   e->n->l->buffers.data[l->operands[0]->u.tensor]->extents[0]);
    return;
  case KILN_DEVICE_WGMMA_TAKE:
    e->has_takes = true;
    kiln_emit_line(e, "kiln_take(%s, %s, %" PRId64 ");",
                   kiln_symbol_text(e->w.cx, e->w.buffers[l->operands[0]->u.tensor]),
                   kiln_symbol_text(e->w.cx, e->w.buffers[l->operands[1]->u.tensor]),
                   kiln_buffer_elems(e->n->l->buffers.data[l->operands[0]->u.tensor]));
    return;
  case KILN_DEVICE_REGISTERS_SET: put_registers(e, l, "inc"); return;
  case KILN_DEVICE_ROLE_CONSUMERS: put_consumers(e, l); return;
  case KILN_DEVICE_ROLE_PRODUCER: put_producer(e, l); return;
  case KILN_DEVICE_ROLE_FIRST:
    put_alone(e, l, "if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {");
    return;
  case KILN_DEVICE_ROLE_LEADERS: put_leaders(e, l); return;
  case KILN_DEVICE_ROLE_WARP:
    kiln_c_line(&e->w);
    kiln_text_printf(e->w.out, "if (%s / %d == ", thread[0], e->n->m->gpu.warp);
    kiln_c_expr(&e->w, kiln_simplify(e->w.cx, l->operands[0], &e->w.ranges));
    kiln_text_add(e->w.out, ") {\n");
    e->w.depth++;
    kiln_c_list(&e->w, l->body);
    kiln_emit_close(e);
    return;
  case KILN_DEVICE_TILES: put_tiles(e, l); return;
  case KILN_DEVICE_TILE_STEPS: put_tile_steps(e, l); return;
  case KILN_N_DEVICE_KINDS: return;
  }
  end_call(e);
}

bool kiln_emit_node(kiln_c_writer *w, const kiln_loop *l) {
  kiln_emitter *e = (kiln_emitter *)w;
  const int block = kiln_gpu_block_axis(l);
  if (l->kind == KILN_LOOP_PREFETCH) return true;
  if (l->kind == KILN_LOOP_DEVICE) {
    put_device(e, l);
    return true;
  }
  if (l->kind == KILN_LOOP_FOR && l->how == KILN_SERIAL && kiln_loop_note(w->cx, l, "unroll"))
    kiln_emit_line(e, "#pragma unroll 1");
  if (l->kind == KILN_LOOP_IF && !kiln_gpu_has_threads(l->body) && holds_waits(l) && put_from(e, l))
    return true;
  if (!e->in_phase) return put_control(e, l);
  if (l->kind == KILN_LOOP_INSTR) {
    if (l->instr->is_tma) put_tma(e, l);
    else put_instr(e, l);
    return true;
  }
  if (l->kind == KILN_LOOP_ALLOC && e->n->l->buffers.data[l->buffer]->scope == KILN_SCOPE_SHARED) {
    put_shared(e, l);
    return true;
  }
  if (block >= 0) put_block_loop(e, l, block);
  if (l->kind != KILN_LOOP_FOR || block >= 0) return block >= 0;
  if (l->how != KILN_VECTORIZED) return put_pair(e, l);
  put_move(e, l);
  return true;
}

void kiln_emit_nest(kiln_emitter *e) { kiln_c_list(&e->w, e->n->l->body); }
