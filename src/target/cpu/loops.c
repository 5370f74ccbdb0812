// Statements: loops become blocks and phis, unrolled loops copies, vector loops lanes; guards
// become branches if they are scalar and masks if not.
#include "support/integer.h"
#include "target/cpu/cpu.h"

#include <string.h>

enum {
  MAX_UNROLLED = 500, // statements of an unrolled loop: LLVM takes seconds for more
  MAX_LANES = 4096,   // iterations of a vector loop
  SHORT = 4096        // iterations of a short nest, which takes a few microseconds
};

static kiln_status emit_body(kiln_emit *e, const kiln_loop *l);

static double cost_of(const kiln_loop *l) {
  double sum = 0;
  for (; l; l = l->next) {
    int64_t n = 1;
    const bool copies =
        l->kind == KILN_LOOP_FOR && (l->how == KILN_VECTORIZED || l->how == KILN_UNROLLED);
    if (copies && kiln_expr_is_int(l->extent, &n) && l->how == KILN_VECTORIZED) n = (n + 15) / 16;
    sum += 1 + cost_of(l->body) * (double)(n > 0 ? n : 1);
  }
  return sum;
}

double kiln_cpu_emit_cost(const kiln_loops *loops) { return cost_of(loops->body); }

static double iterations_of(const kiln_loop *l) {
  double sum = 0;
  for (; l; l = l->next)
    sum += l->kind == KILN_LOOP_FOR
               ? (double)kiln_expr_int_or(l->extent, INT32_MAX) * iterations_of(l->body)
           : l->body ? iterations_of(l->body)
                     : 1;
  return sum;
}

bool kiln_cpu_is_short(const kiln_loop *l) { return iterations_of(l) <= SHORT; }

static LLVMBasicBlockRef block(kiln_emit *e, const char *name) {
  return LLVMAppendBasicBlockInContext(e->m->llvm, e->fn, name);
}

static void bind(kiln_emit *e, kiln_binding b, int64_t lo, int64_t hi) {
  KILN_VEC_PUSH(&e->cx->perm, &e->vars, b);
  kiln_ranges_push(&e->ranges, b.var, lo, hi);
}

static void unbind(kiln_emit *e) {
  e->vars.n--;
  kiln_ranges_pop(&e->ranges, 1);
}

static kiln_status emit_copy(kiln_emit *e, const kiln_loop *l, int64_t value) {
  bind(e, (kiln_binding){.var = l->var, .kind = KILN_BOUND_CONST, .constant = value}, value, value);
  const kiln_status s = emit_body(e, l->body);
  unbind(e);
  return s;
}

// Emits for (var = begin; var < end; var++); |runs| says that begin < end is known. A |turn| takes
// several iterations at a time.
static kiln_status emit_serial(kiln_emit *e, const kiln_loop *l, LLVMValueRef begin,
                               LLVMValueRef end, bool runs, const kiln_turn *turn) {
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), head = block(e, "loop"),
                    body = block(e, "body"), after = block(e, "after");
  LLVMValueRef enters = LLVMBuildICmp(e->b, LLVMIntSLT, begin, end, "");
  if (runs) LLVMBuildBr(e->b, head);
  else LLVMBuildCondBr(e->b, enters, head, after);
  LLVMPositionBuilderAtEnd(e->b, head);
  LLVMValueRef var = LLVMBuildPhi(e->b, e->m->i64, "");
  LLVMBuildBr(e->b, body);
  LLVMPositionBuilderAtEnd(e->b, body);

  const kiln_interval n = kiln_expr_interval(e->cx, l->extent, &e->ranges);
  const int frame = e->frames.n;
  KILN_VEC_PUSH(&e->cx->perm, &e->frames, (kiln_frame){.head = head});
  bind(e, (kiln_binding){.var = l->var, .kind = KILN_BOUND_LOOP, .value = var, .frame = frame}, 0,
       n.hi == INT64_MAX ? n.hi
       : n.hi > 0        ? n.hi - 1
                         : 0);
  if (turn) kiln_cpu_turn(e, turn);
  if (turn) kiln_cpu_forget_memory(e);
  const kiln_status s = turn ? KILN_OK : emit_body(e, l->body);
  unbind(e);
  e->frames.n--;

  LLVMValueRef step = kiln_cpu_const_int(e->m->i64, turn ? turn->lanes : 1),
               next = LLVMBuildNSWAdd(e->b, var, step, "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
  LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, end, ""), head, after);
  LLVMAddIncoming(var, (LLVMValueRef[]){begin, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
  LLVMPositionBuilderAtEnd(e->b, after);
  return s;
}

static bool changes(kiln_ctx *cx, const kiln_loop *l, const kiln_expr *x) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE && kiln_expr_loads(cx, x, l->buffer)) return true;
    if (changes(cx, l->body, x)) return true;
  }
  return false;
}

// Whether the body of the enclosing vector loop can be emitted in lanes; |masked|: under a guard
// that differs between lanes.
static bool can_vectorize(kiln_emit *e, const kiln_loop *l, bool masked) {
  for (; l; l = l->next) {
    bool inner = masked;
    switch (l->kind) {
    case KILN_LOOP_FOR:
      if (!kiln_cpu_is_uniform(e, l->extent) || (masked && l->extent->has_load)) return false;
      break;
    case KILN_LOOP_IF:
      if (masked && l->cond->has_load) return false;
      inner = masked || !kiln_cpu_is_uniform(e, l->cond);
      // Every statement evaluates the guards of its lanes again.
      if (inner && l->cond->has_load && changes(e->cx, l->body, l->cond)) return false;
      break;
    case KILN_LOOP_STORE:
      // A reduction into one element stores even if all its lanes are off.
      if (masked && l->combiner != KILN_COMBINE_NONE && kiln_cpu_store_is_uniform(e, l) &&
          !kiln_cpu_in_bounds(e, l->buffer, l->index))
        return false;
      break;
    case KILN_LOOP_ALLOC: break;
    case KILN_LOOP_DEVICE:
    case KILN_LOOP_INSTR: return false;
    case KILN_LOOP_PREFETCH: break;
    }
    if (!can_vectorize(e, l->body, inner)) return false;
  }
  return true;
}

static void mark_private(kiln_emit *e, const kiln_loop *l, bool value) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC) e->is_private[l->buffer] = value;
    mark_private(e, l->body, value);
  }
}

static kiln_status emit_lanes(kiln_emit *e, const kiln_loop *l, int64_t n, bool *out_done) {
  e->lane_var = l->var;
  e->lane_extent = n;
  mark_private(e, l->body, true);
  bind(e, (kiln_binding){.var = l->var, .kind = KILN_BOUND_LANE}, 0, n - 1);
  *out_done = can_vectorize(e, l->body, false);
  const kiln_status s = *out_done ? emit_body(e, l->body) : KILN_OK;
  unbind(e);
  e->lane_var = 0;
  e->lane_extent = 0;
  mark_private(e, l->body, false);
  return s;
}

// Emits the iterations that are transposed, and those around them as usual.
static kiln_status emit_turned(kiln_emit *e, const kiln_loop *l, int64_t n, const kiln_turn *turn) {
  LLVMValueRef zero = kiln_cpu_const_int(e->m->i64, 0), end = kiln_cpu_const_int(e->m->i64, n),
               lo = kiln_cpu_const_int(e->m->i64, turn->lo),
               hi = kiln_cpu_const_int(e->m->i64, turn->hi);
  if (turn->lo > 0) KILN_TRY(emit_serial(e, l, zero, lo, true, NULL));
  KILN_TRY(emit_serial(e, l, lo, hi, true, turn));
  return turn->hi < n ? emit_serial(e, l, hi, end, true, NULL) : KILN_OK;
}

static kiln_status emit_for(kiln_emit *e, const kiln_loop *l) {
  kiln_cpu_memo_clear(e);
  LLVMValueRef extent = kiln_cpu_eval_scalar(e, l->extent);
  LLVMValueRef zero = kiln_cpu_const_int(e->m->i64, 0);
  if (!LLVMIsAConstantInt(extent)) return emit_serial(e, l, zero, extent, false, NULL);
  const int64_t n = LLVMConstIntGetSExtValue(extent);
  if (n <= 0) return KILN_OK;
  if (n == 1) return emit_copy(e, l, 0);
  if (l->how == KILN_UNROLLED && (double)n * cost_of(l->body) <= MAX_UNROLLED) {
    for (int64_t i = 0; i < n; i++) KILN_TRY(emit_copy(e, l, i));
    return KILN_OK;
  }
  if (l->how == KILN_VECTORIZED && !e->lane_var && n <= MAX_LANES) {
    bool done = false;
    KILN_TRY(emit_lanes(e, l, n, &done));
    if (done) return KILN_OK;
  }
  kiln_turn turn;
  if (kiln_cpu_turn_find(e, l, &turn)) return emit_turned(e, l, n, &turn);
  return emit_serial(e, l, zero, extent, true, NULL);
}

// Splits a conjunction into the uniform part, *out_uniform, and masks.
static void split_condition(kiln_emit *e, const kiln_expr *c, LLVMValueRef *out_uniform) {
  if (c->kind == KILN_EXPR_AND) {
    split_condition(e, c->args[0], out_uniform);
    split_condition(e, c->args[1], out_uniform);
  } else if (kiln_cpu_is_uniform(e, c)) {
    *out_uniform = kiln_cpu_and(e, *out_uniform, kiln_cpu_eval_scalar(e, c));
  } else {
    KILN_VEC_PUSH(&e->cx->perm, &e->lane_conds, c);
  }
}

static kiln_status emit_if(kiln_emit *e, const kiln_loop *l) {
  const int n_conds = e->lane_conds.n;
  LLVMValueRef uniform = NULL;
  kiln_cpu_memo_clear(e);
  split_condition(e, l->cond, &uniform);
  const bool known = uniform && LLVMIsAConstantInt(uniform);
  const bool never = known && LLVMConstIntGetZExtValue(uniform) == 0;
  LLVMBasicBlockRef after = NULL;
  if (uniform && !known) {
    LLVMBasicBlockRef then = block(e, "then");
    after = block(e, "endif");
    LLVMBuildCondBr(e->b, uniform, then, after);
    LLVMPositionBuilderAtEnd(e->b, then);
  }
  const kiln_status s = never ? KILN_OK : emit_body(e, l->body);
  if (after) {
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
  }
  e->lane_conds.n = n_conds;
  return s;
}

// Includes padding for the lanes of a vector that is only partly within the buffer.
int64_t kiln_cpu_alloc_elems(const kiln_emit *e, const kiln_buffer *b) {
  const int64_t copies = e->is_private[b->id] ? e->lane_extent : 1;
  const int64_t slack = e->m->machine->vector_bytes;
  return kiln_buffer_elems(b) * copies + slack;
}

static void emit_alloc(kiln_emit *e, const kiln_buffer *b) {
  e->base[b->id] = kiln_cpu_alloca(e, kiln_cpu_memory_type(e->m, b->dtype),
                                   kiln_cpu_alloc_elems(e, b), kiln_symbol_text(e->cx, b->name));
}

// Prefetches the cache line of the first lane's element.
static void emit_prefetch(kiln_emit *e, const kiln_loop *l) {
  const kiln_expr *index[KILN_MAX_RANK + 4], *first = kiln_int(e->cx, 0);
  for (int k = 0; k < e->loops->buffers.data[l->buffer]->rank; k++)
    index[k] = e->lane_var ? kiln_expr_substitute(e->cx, l->index[k], 1, &e->lane_var, &first)
                           : l->index[k];
  const kiln_cpu_place at = kiln_cpu_address(e, l, l->buffer, index);
  LLVMValueRef args[] = {at.pointer, kiln_cpu_const_int(e->m->i32, 0),
                         kiln_cpu_const_int(e->m->i32, l->is_far ? 2 : 3),
                         kiln_cpu_const_int(e->m->i32, 1)};
  (void)kiln_cpu_call(e, "llvm.prefetch", 1, &e->m->ptr, 4, args);
}

static kiln_status emit_node(kiln_emit *e, const kiln_loop *l) {
  switch (l->kind) {
  case KILN_LOOP_FOR: return emit_for(e, l);
  case KILN_LOOP_IF: return emit_if(e, l);
  case KILN_LOOP_STORE: kiln_cpu_store(e, l); return KILN_OK;
  case KILN_LOOP_ALLOC:
    emit_alloc(e, e->loops->buffers.data[l->buffer]);
    return emit_body(e, l->body);
  case KILN_LOOP_INSTR: kiln_cpu_forget_memory(e); return kiln_cpu_emit_instr(e, l);
  case KILN_LOOP_PREFETCH: emit_prefetch(e, l); return KILN_OK;
  case KILN_LOOP_DEVICE: break; // a GPU's
  }
  return KILN_OK;
}

static kiln_status emit_one(kiln_emit *e, const kiln_loop *l) {
  const int outer = e->line;
  if (l->line) e->line = l->line;
  kiln_cpu_say_line(e);
  const kiln_status s = emit_node(e, l);
  e->line = outer;
  kiln_cpu_say_line(e);
  return s;
}

// Bytes of the buffers that live in registers under |l|.
static int64_t register_bytes(const kiln_emit *e, const kiln_loop *l) {
  int64_t bytes = 0;
  for (; l; l = l->next) {
    const kiln_buffer *b = l->kind == KILN_LOOP_ALLOC ? e->loops->buffers.data[l->buffer] : NULL;
    if (b && b->scope == KILN_SCOPE_REGISTER)
      bytes += kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
    bytes += register_bytes(e, l->body);
  }
  return bytes;
}

// Values that the previous nest keeps in vector registers would stay live during the sums of this
// one, some of which would then be spilled in each step. So they are stored to memory here.
static void release_registers(kiln_emit *e, const kiln_loop *l) {
  enum { FEW = 16 };
  static const char clobbers[] =
      "~{xmm0},~{xmm1},~{xmm2},~{xmm3},~{xmm4},~{xmm5},~{xmm6},~{xmm7},~{xmm8},"
      "~{xmm9},~{xmm10},~{xmm11},~{xmm12},~{xmm13},~{xmm14},~{xmm15}";
  const kiln_machine *m = e->m->machine;
  if (strncmp(m->triple, "x86_64", 6) != 0 || m->n_vector_regs != FEW || l->kind != KILN_LOOP_FOR ||
      register_bytes(e, l->body) < (FEW / 2) * m->vector_bytes)
    return;
  char none[] = "", text[sizeof clobbers];
  memcpy(text, clobbers, sizeof clobbers);
  LLVMTypeRef type = LLVMFunctionType(e->m->none, NULL, 0, false);
  LLVMValueRef barrier = LLVMGetInlineAsm(type, none, 0, text, sizeof text - 1, true, false,
                                          LLVMInlineAsmDialectATT, false);
  (void)LLVMBuildCall2(e->b, type, barrier, NULL, 0, "");
}

static kiln_status emit_body(kiln_emit *e, const kiln_loop *l) {
  for (const kiln_loop *before = NULL; l; before = l, l = l->next) {
    if (before && before->kind == KILN_LOOP_FOR && before->how != KILN_VECTORIZED)
      release_registers(e, l);
    KILN_TRY(emit_one(e, l));
  }
  return KILN_OK;
}

// --- functions ---

static void add_attribute(kiln_cpu_module *m, LLVMValueRef fn, const char *name) {
  const unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(m->llvm, kind, 0));
}

void kiln_cpu_function_attributes(kiln_cpu_module *m, LLVMValueRef fn) {
  add_attribute(m, fn, "nounwind");
  LLVMAddTargetDependentFunctionAttr(fn, "target-cpu", m->machine->cpu);
  LLVMAddTargetDependentFunctionAttr(fn, "target-features", m->machine->features);
  if (m->machine->vector_bytes == 64) {
    LLVMAddTargetDependentFunctionAttr(fn, "prefer-vector-width", "512");
    LLVMAddTargetDependentFunctionAttr(fn, "min-legal-vector-width", "512");
  }
}

static LLVMMetadataRef string_node(kiln_cpu_module *m, const char *text) {
  return LLVMMDStringInContext2(m->llvm, text, strlen(text));
}

// Makes an alias scope for each buffer: accesses to different buffers do not alias.
static void make_scopes(kiln_emit *e, const char *symbol) {
  kiln_cpu_module *m = e->m;
  const int n = e->loops->buffers.n;
  LLVMMetadataRef name = string_node(m, symbol), domain = LLVMMDNodeInContext2(m->llvm, &name, 1);
  LLVMMetadataRef *scopes = KILN_NEW_ARRAY(&e->cx->scratch, LLVMMetadataRef, n);
  LLVMMetadataRef *others = KILN_NEW_ARRAY(&e->cx->scratch, LLVMMetadataRef, n);
  for (int i = 0; i < n; i++) {
    const kiln_buffer *b = e->loops->buffers.data[i];
    LLVMMetadataRef parts[] = {
        string_node(m, kiln_arena_printf(&e->cx->scratch, "%s.%d", symbol, b->id)), domain};
    scopes[i] = LLVMMDNodeInContext2(m->llvm, parts, 2);
    LLVMMetadataRef list = LLVMMDNodeInContext2(m->llvm, &scopes[i], 1);
    if (kiln_scope_is_argument(b->scope)) e->md_scopes[i] = LLVMMetadataAsValue(m->llvm, list);
  }
  for (int i = 0; i < n; i++) {
    size_t k = 0;
    for (int j = 0; j < n; j++) {
      if (j != i && kiln_scope_is_argument(e->loops->buffers.data[j]->scope))
        others[k++] = scopes[j];
    }
    if (k == 0 || !kiln_scope_is_argument(e->loops->buffers.data[i]->scope)) continue;
    e->md_others[i] = LLVMMetadataAsValue(m->llvm, LLVMMDNodeInContext2(m->llvm, others, k));
  }
}

// Rows of register buffers are padded to whole vectors, so that each vector is an SSA value. No
// other code sees their layout.
int64_t kiln_cpu_row(const kiln_cpu_module *m, int64_t extent) {
  int64_t unit = m->machine->vector_bytes / 4;
  while (unit / 2 >= extent && unit > 1) unit /= 2;
  return kiln_round_up(extent, unit);
}

static void pad_registers(kiln_emit *e) {
  for (int i = 0; i < e->loops->buffers.n; i++) {
    kiln_buffer *b = e->loops->buffers.data[i];
    if (b->scope != KILN_SCOPE_REGISTER || b->rank == 0) continue;
    const int64_t row = kiln_cpu_row(e->m, b->extents[b->rank - 1]);
    int64_t stride = 1;
    for (int k = b->rank - 1; k >= 0; k--) {
      b->strides[k] = stride;
      stride *= k == b->rank - 1 ? row : b->extents[k];
    }
  }
}

// How often a nest's expressions compute each kind of function.
typedef struct counting {
  kiln_map seen; // expression nodes
  int n[KILN_N_EXPRS];
} counting;

static void count_function(const kiln_expr *e, void *argument) {
  counting *c = argument;
  if (!kiln_expr_kind_is_call(e->kind) || e->n_args != 1 || e->dtype == KILN_F64 ||
      kiln_map_find(&c->seen, e->id))
    return;
  kiln_map_put(&c->seen, e->id, 1);
  c->n[e->kind]++;
}

static void count_functions(kiln_ctx *cx, const kiln_loop *l, counting *c) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) kiln_expr_visit(cx, l->value, count_function, c);
    count_functions(cx, l->body, c);
  }
}

// A function that is computed in many places of a nest, or by many short ones, is compiled once:
// LLVM takes at least as long for each copy.
static void choose_calls(kiln_emit *e, const kiln_loop *nest) {
  enum { MANY = 24 };
  kiln_loop alone = *nest;
  counting c = {0};
  alone.next = NULL;
  const int few = (e->m->has_many || e->m->is_quick) && kiln_cpu_is_short(&alone) ? 0 : MANY;
  kiln_map_init(&c.seen, &e->cx->perm);
  kiln_map_init(&e->calls, &e->cx->perm);
  count_functions(e->cx, &alone, &c);
  for (int k = 0; k < KILN_N_EXPRS; k++)
    if (c.n[k] > few) kiln_map_put(&e->calls, (uint64_t)k, 1);
}

static void load_arguments(kiln_emit *e) {
  LLVMValueRef args = LLVMGetParam(e->fn, 0);
  int64_t n = 0;
  for (int i = 0; i < e->loops->buffers.n; i++) {
    const kiln_buffer *b = e->loops->buffers.data[i];
    if (!kiln_scope_is_argument(b->scope)) continue;
    LLVMValueRef at = kiln_cpu_const_int(e->m->i64, n++);
    LLVMValueRef p = LLVMBuildGEP2(e->b, e->m->ptr, args, &at, 1, "");
    e->base[i] = LLVMBuildLoad2(e->b, e->m->ptr, p, kiln_symbol_text(e->cx, b->name));
  }
}

// The outermost loop of a nest, inside of allocations.
static const kiln_loop *outermost(const kiln_loop *nest) {
  while (nest->kind == KILN_LOOP_ALLOC && nest->body && !nest->body->next) nest = nest->body;
  return nest;
}

static kiln_status emit_top(kiln_emit *e, const kiln_loop *nest) {
  const kiln_loop *outer = outermost(nest);
  if (outer->kind != KILN_LOOP_FOR || outer->how != KILN_PARALLEL) return emit_one(e, nest);
  for (; nest != outer; nest = nest->body) emit_alloc(e, e->loops->buffers.data[nest->buffer]);
  return emit_serial(e, outer, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2), false, NULL);
}

kiln_status kiln_cpu_emit_nest(kiln_cpu_module *m, kiln_loops *loops, const kiln_loop *nest,
                               const char *symbol) {
  LLVMTypeRef params[] = {m->ptr, m->i64, m->i64};
  kiln_emit e = {.m = m, .cx = m->cx, .b = m->builder, .loops = loops, .epoch = 1};
  e.fn = LLVMAddFunction(m->module, symbol, LLVMFunctionType(m->none, params, 3, 0));
  kiln_cpu_function_attributes(m, e.fn);
  kiln_cpu_lines_begin(&e, symbol, nest->line);
  kiln_map_init(&e.forms, &m->cx->perm);
  kiln_map_init(&e.known, &m->cx->perm);
  kiln_ranges_init(&e.ranges, &m->cx->perm);
  e.base = KILN_NEW_ARRAY(&m->cx->perm, LLVMValueRef, loops->buffers.n);
  e.md_scopes = KILN_NEW_ARRAY(&m->cx->perm, LLVMValueRef, loops->buffers.n);
  e.md_others = KILN_NEW_ARRAY(&m->cx->perm, LLVMValueRef, loops->buffers.n);
  e.is_private = KILN_NEW_ARRAY(&m->cx->perm, bool, loops->buffers.n);
  e.n_written = KILN_NEW_ARRAY(&m->cx->perm, uint32_t, loops->buffers.n);
  make_scopes(&e, symbol);
  pad_registers(&e);
  choose_calls(&e, nest);

  e.entry = block(&e, "entry");
  LLVMBasicBlockRef body = block(&e, "body");
  LLVMPositionBuilderAtEnd(e.b, e.entry);
  load_arguments(&e);
  LLVMBuildBr(e.b, body);
  LLVMPositionBuilderAtEnd(e.b, body);
  KILN_VEC_PUSH(&m->cx->perm, &e.frames, (kiln_frame){.head = e.entry});
  const kiln_status s = emit_top(&e, nest);
  LLVMBuildRetVoid(e.b);
  kiln_cpu_lines_end(&e);
  return s;
}
