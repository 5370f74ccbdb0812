// A plan as a C function: launches become calls in order, each with an array of argument addresses
// on the stack; copies become loops.
//
//     int m_run(const float *in_x, float *out_y, void *workspace) {
//       if ((uintptr_t)workspace & 63) return KILN_ENTRY_BAD_WORKSPACE;
//       args[0] = in_x, args[1] = m_weights + 64, args[2] = workspace;
//       m_k_contract_0(args, 0, 16);
//       ...
//       return 0;
//     }
#include "target/cpu/cpu.h"
#include "support/reserve.h"

#include <string.h>

typedef struct emission {
  kiln_cpu_module m;
  LLVMTargetMachineRef tm;
  const kiln_cpu_entry *what;
  const kiln_plan *plan;
  LLVMBuilderRef b;
  LLVMValueRef fn;
  LLVMValueRef *inputs, *outputs; // [n_inputs], [n_outputs]
  LLVMValueRef workspace, weights, args;
  LLVMValueRef parallel_for, pool; // NULL: there is none
  LLVMTypeRef nest_type, split_type;
  LLVMValueRef split; // the function that runs a nest by |parallel_for|
} emission;

static uint64_t aligned(uint64_t bytes) {
  return (bytes + KILN_PLAN_ALIGN - 1) / KILN_PLAN_ALIGN * KILN_PLAN_ALIGN;
}

// The arena, and the results of the checks.
uint64_t kiln_cpu_entry_workspace(const kiln_plan *plan) {
  return aligned(plan->arena_bytes) + plan->n_checks * sizeof(int64_t);
}

static LLVMBasicBlockRef block(emission *e, const char *name) {
  return LLVMAppendBasicBlockInContext(e->m.llvm, e->fn, name);
}

static LLVMValueRef i64(emission *e, uint64_t value) { return LLVMConstInt(e->m.i64, value, 0); }

static LLVMValueRef behind(emission *e, LLVMValueRef base, uint64_t bytes) {
  LLVMValueRef offset = i64(e, bytes);
  return bytes ? LLVMBuildGEP2(e->b, e->m.i8, base, &offset, 1, "") : base;
}

static LLVMValueRef intrinsic(emission *e, const char *name, int n, LLVMValueRef *args) {
  const unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  KILN_ASSERT(id != 0);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->m.module, id, NULL, 0);
  return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->m.llvm, id, NULL, 0), f, args, (unsigned)n,
                        "");
}

// --- the function and its parameters ---

static void declare(emission *e) {
  const kiln_plan *p = e->plan;
  const uint32_t n_outputs = kiln_plan_n_results(p) + p->n_shapes,
                 at_weights = p->n_inputs + n_outputs + 1,
                 at_parallel = at_weights + !e->what->weights,
                 n = at_parallel + (e->what->has_parallel_for ? 2 : 0);
  LLVMTypeRef *types = KILN_NEW_ARRAY(&e->m.cx->scratch, LLVMTypeRef, (int)n);
  for (uint32_t i = 0; i < n; i++) types[i] = e->m.ptr;
  e->fn = LLVMAddFunction(e->m.module, e->what->symbol, LLVMFunctionType(e->m.i32, types, n, 0));
  kiln_cpu_function_attributes(&e->m, e->fn);
  e->inputs = KILN_NEW_ARRAY(&e->m.cx->scratch, LLVMValueRef, (int)p->n_inputs + 1);
  e->outputs = KILN_NEW_ARRAY(&e->m.cx->scratch, LLVMValueRef, (int)p->n_outputs + 1);
  for (uint32_t i = 0; i < p->n_inputs; i++) e->inputs[i] = LLVMGetParam(e->fn, i);
  for (uint32_t i = 0; i < n_outputs; i++) e->outputs[i] = LLVMGetParam(e->fn, p->n_inputs + i);
  e->workspace = LLVMGetParam(e->fn, p->n_inputs + n_outputs);
  e->weights = e->what->weights ? NULL : LLVMGetParam(e->fn, at_weights);
  e->parallel_for = n > at_parallel ? LLVMGetParam(e->fn, at_parallel) : NULL;
  e->pool = n > at_parallel ? LLVMGetParam(e->fn, at_parallel + 1) : NULL;
}

// Returns |code| where |is_wrong|.
static void leave_if(emission *e, LLVMValueRef is_wrong, int64_t code) {
  LLVMBasicBlockRef wrong = block(e, "wrong"), right = block(e, "right");
  LLVMBuildCondBr(e->b, is_wrong, wrong, right);
  LLVMPositionBuilderAtEnd(e->b, wrong);
  LLVMBuildRet(e->b, LLVMConstInt(e->m.i32, (uint64_t)code, 1));
  LLVMPositionBuilderAtEnd(e->b, right);
}

static LLVMValueRef is_misaligned(emission *e, LLVMValueRef pointer) {
  LLVMValueRef address = LLVMBuildPtrToInt(e->b, pointer, e->m.i64, ""),
               low = LLVMBuildAnd(e->b, address, i64(e, KILN_PLAN_ALIGN - 1), "");
  return LLVMBuildICmp(e->b, LLVMIntNE, low, i64(e, 0), "");
}

static LLVMValueRef differs(emission *e, LLVMValueRef from, uint64_t offset, uint64_t want) {
  LLVMValueRef got = LLVMBuildLoad2(e->b, e->m.i64, behind(e, from, offset), "");
  return LLVMBuildICmp(e->b, LLVMIntNE, got, i64(e, want), "");
}

static void find_weights(emission *e) {
  if (e->what->weights) {
    e->weights = LLVMAddGlobal(e->m.module, e->m.i8, e->what->weights);
    LLVMSetGlobalConstant(e->weights, 1);
    // position-independent without a global offset table
    LLVMSetVisibility(e->weights, LLVMHiddenVisibility);
    return;
  }
  leave_if(e, is_misaligned(e, e->weights), KILN_ENTRY_BAD_WEIGHTS);
  leave_if(e, differs(e, e->weights, 0, KILN_WEIGHTS_MAGIC), KILN_ENTRY_BAD_WEIGHTS);
  leave_if(e, differs(e, e->weights, 8, e->what->weights_id), KILN_ENTRY_BAD_WEIGHTS);
  e->weights = behind(e, e->weights, KILN_WEIGHTS_HEAD_BYTES);
}

static void find_memory(emission *e) {
  const kiln_plan *p = e->plan;
  if (kiln_cpu_entry_workspace(p) > 0)
    leave_if(e, is_misaligned(e, e->workspace), KILN_ENTRY_BAD_WORKSPACE);
  if (p->weights_bytes > 0) find_weights(e);
  if (p->n_checks) e->outputs[p->n_outputs - 1] = behind(e, e->workspace, aligned(p->arena_bytes));
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    if (!p->inputs[i].initial) continue;
    LLVMValueRef is_null = LLVMBuildIsNull(e->b, e->inputs[i], ""),
                 own = behind(e, e->weights, p->inputs[i].initial - 1);
    e->inputs[i] = LLVMBuildSelect(e->b, is_null, own, e->inputs[i], "");
  }
}

// --- floating-point environment ---

// Sets rounding to nearest with subnormals and without traps (support/surroundings.h).
static LLVMValueRef begin_floating(emission *e) {
  enum { NEAREST = 0x1f80 };
  if (strncmp(e->m.machine->triple, "x86_64", 6) != 0) {
    LLVMValueRef before = intrinsic(e, "llvm.aarch64.get.fpcr", 0, NULL), none = i64(e, 0);
    intrinsic(e, "llvm.aarch64.set.fpcr", 1, &none);
    return before;
  }
  LLVMValueRef before = LLVMBuildAlloca(e->b, e->m.i32, ""),
               own = LLVMBuildAlloca(e->b, e->m.i32, "");
  intrinsic(e, "llvm.x86.sse.stmxcsr", 1, &before);
  LLVMBuildStore(e->b, LLVMConstInt(e->m.i32, NEAREST, 0), own);
  intrinsic(e, "llvm.x86.sse.ldmxcsr", 1, &own);
  return before;
}

static void end_floating(emission *e, LLVMValueRef before) {
  const bool is_x86 = strncmp(e->m.machine->triple, "x86_64", 6) == 0;
  intrinsic(e, is_x86 ? "llvm.x86.sse.ldmxcsr" : "llvm.aarch64.set.fpcr", 1, &before);
}

// --- nests by the caller's parallel_for ---
//
//     static void part(const void *job, int64_t begin, int64_t end) {  // on any thread
//       job->nest(job->args, begin, end);
//     }
//     static void split(parallel_for, pool, nest, args, extent, most) {
//       const job j = {nest, args};
//       if (parallel_for) parallel_for(pool, part, &j, extent, most);
//       else part(&j, 0, extent);
//     }

enum { JOB_NEST = 0, JOB_ARGS = sizeof(void *), JOB_BYTES = 2 * sizeof(void *) };

static LLVMValueRef begin_function(emission *e, const char *after, LLVMTypeRef type) {
  const char *name = kiln_arena_printf(&e->m.cx->scratch, "%s.%s", e->what->symbol, after);
  e->fn = LLVMAddFunction(e->m.module, name, type);
  LLVMSetLinkage(e->fn, LLVMInternalLinkage);
  kiln_cpu_function_attributes(&e->m, e->fn);
  LLVMPositionBuilderAtEnd(e->b, block(e, "entry"));
  return e->fn;
}

static void run_range(emission *e, LLVMValueRef nest, LLVMValueRef args, LLVMValueRef begin,
                      LLVMValueRef end) {
  LLVMValueRef values[] = {args, begin, end};
  LLVMBuildCall2(e->b, e->nest_type, nest, values, KILN_LEN(values), "");
}

static LLVMValueRef add_part(emission *e) {
  LLVMValueRef part = begin_function(e, "part", e->nest_type), job = LLVMGetParam(part, 0),
               before = begin_floating(e),
               nest = LLVMBuildLoad2(e->b, e->m.ptr, behind(e, job, JOB_NEST), ""),
               args = LLVMBuildLoad2(e->b, e->m.ptr, behind(e, job, JOB_ARGS), "");
  run_range(e, nest, args, LLVMGetParam(part, 1), LLVMGetParam(part, 2));
  end_floating(e, before);
  LLVMBuildRetVoid(e->b);
  return part;
}

static void add_split(emission *e) {
  LLVMTypeRef p = e->m.ptr, n = e->m.i64, types[] = {p, p, p, p, n, n}, taken[] = {p, p, p, n, n},
              call = LLVMFunctionType(e->m.none, taken, KILN_LEN(taken), 0);
  LLVMValueRef part = add_part(e);
  e->split_type = LLVMFunctionType(e->m.none, types, KILN_LEN(types), 0);
  LLVMValueRef split = e->split = begin_function(e, "split", e->split_type),
               job = LLVMBuildAlloca(e->b, LLVMArrayType2(e->m.i8, JOB_BYTES), "job"),
               extent = LLVMGetParam(split, 4);
  LLVMSetAlignment(job, sizeof(void *));
  LLVMBuildStore(e->b, LLVMGetParam(split, 2), behind(e, job, JOB_NEST));
  LLVMBuildStore(e->b, LLVMGetParam(split, 3), behind(e, job, JOB_ARGS));
  LLVMBasicBlockRef alone = block(e, "alone"), together = block(e, "together");
  LLVMValueRef is_null = LLVMBuildIsNull(e->b, LLVMGetParam(split, 0), "");
  LLVMBuildCondBr(e->b, is_null, alone, together);
  LLVMPositionBuilderAtEnd(e->b, alone);
  run_range(e, part, job, i64(e, 0), extent);
  LLVMBuildRetVoid(e->b);
  LLVMPositionBuilderAtEnd(e->b, together);
  LLVMValueRef args[] = {LLVMGetParam(split, 1), part, job, extent, LLVMGetParam(split, 5)};
  LLVMBuildCall2(e->b, call, LLVMGetParam(split, 0), args, KILN_LEN(args), "");
  LLVMBuildRetVoid(e->b);
}

// --- launches ---

static LLVMValueRef address(emission *e, const kiln_plan_arg *a) {
  switch (a->where) {
  case KILN_PLACE_INPUT: return behind(e, e->inputs[a->index], a->offset);
  case KILN_PLACE_OUTPUT: return behind(e, e->outputs[a->index], a->offset);
  case KILN_PLACE_ARENA: return behind(e, e->workspace, a->offset);
  case KILN_PLACE_WEIGHTS: return e->weights ? behind(e, e->weights, a->offset) : e->workspace;
  case KILN_PLACE_EXTERN:
  case KILN_N_PLACES: break;
  }
  return LLVMConstNull(e->m.ptr);
}

static void call_nest(emission *e, const kiln_plan_nest *nest) {
  const char *symbol = e->plan->functions[nest->function];
  LLVMValueRef f = LLVMGetNamedFunction(e->m.module, symbol);
  if (!f) f = LLVMAddFunction(e->m.module, symbol, e->nest_type);
  LLVMSetVisibility(f, LLVMHiddenVisibility);
  const int64_t most = nest->threads < nest->extent ? nest->threads : nest->extent;
  LLVMValueRef extent = i64(e, (uint64_t)nest->extent);
  if (!e->split || most < 2) {
    run_range(e, f, e->args, i64(e, 0), extent);
    return;
  }
  LLVMValueRef args[] = {e->parallel_for, e->pool, f, e->args, extent, i64(e, (uint64_t)most)};
  LLVMBuildCall2(e->b, e->split_type, e->split, args, KILN_LEN(args), "");
}

static void run_launches(emission *e) {
  const kiln_plan *p = e->plan;
  uint32_t most = 1;
  for (uint32_t i = 0; i < p->n_launches; i++)
    if (p->launches[i].n_args > most) most = p->launches[i].n_args;
  e->args = LLVMBuildAlloca(e->b, LLVMArrayType2(e->m.ptr, most), "args");
  for (uint32_t i = 0; i < p->n_launches; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    for (uint32_t k = 0; k < l->n_args; k++)
      LLVMBuildStore(e->b, address(e, &p->args[l->first_arg + k]),
                     behind(e, e->args, k * sizeof(void *)));
    for (uint32_t k = 0; k < l->n_nests; k++) call_nest(e, &p->nests[l->first_nest + k]);
  }
}

// --- copies ---

typedef struct copying {
  const kiln_plan_copy *copy;
  const kiln_plan_port *port;
  LLVMValueRef from, to;
} copying;

// Emits loops over the axes from |axis| on; |from| and |to| are offsets in elements.
static void copy_axes(emission *e, const copying *c, int axis, LLVMValueRef from, LLVMValueRef to) {
  LLVMTypeRef elem = LLVMIntTypeInContext(e->m.llvm, 8 * (unsigned)kiln_type_bytes(c->port->type));
  if (axis == c->port->rank) {
    LLVMValueRef source = LLVMBuildGEP2(e->b, elem, c->from, &from, 1, ""),
                 target = LLVMBuildGEP2(e->b, elem, c->to, &to, 1, "");
    LLVMBuildStore(e->b, LLVMBuildLoad2(e->b, elem, source, ""), target);
    return;
  }
  uint64_t inner = 1; // elements of the target per index
  for (int k = axis + 1; k < c->port->rank; k++) inner *= (uint64_t)c->port->shape[k];
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), loop = block(e, "copy"),
                    done = block(e, "copied");
  LLVMBuildBr(e->b, loop);
  LLVMPositionBuilderAtEnd(e->b, loop);
  LLVMValueRef i = LLVMBuildPhi(e->b, e->m.i64, ""), zero = i64(e, 0);
  LLVMValueRef step = LLVMBuildMul(e->b, i, i64(e, (uint64_t)c->copy->strides[axis]), "");
  copy_axes(e, c, axis + 1, LLVMBuildAdd(e->b, from, step, ""),
            LLVMBuildAdd(e->b, to, LLVMBuildMul(e->b, i, i64(e, inner), ""), ""));
  LLVMValueRef next = LLVMBuildAdd(e->b, i, i64(e, 1), ""),
               goes_on = LLVMBuildICmp(e->b, LLVMIntULT, next,
                                       i64(e, (uint64_t)c->port->shape[axis]), "");
  LLVMBuildCondBr(e->b, goes_on, loop, done);
  LLVMAddIncoming(i, (LLVMValueRef[]){zero, next},
                  (LLVMBasicBlockRef[]){before, LLVMGetInsertBlock(e->b)}, 2);
  LLVMPositionBuilderAtEnd(e->b, done);
}

static uint64_t elements(const kiln_plan_port *port) {
  uint64_t n = 1;
  for (int32_t k = 0; k < port->rank; k++) n *= (uint64_t)port->shape[k];
  return n;
}

static void run_copies(emission *e) {
  const kiln_plan *p = e->plan;
  for (uint32_t i = 0; i < p->n_copies; i++) {
    const kiln_plan_copy *copy = &p->copies[i];
    const kiln_plan_port *port = &p->outputs[copy->output];
    const copying c = {copy, port, address(e, &copy->from), e->outputs[copy->output]};
    if (elements(port) > 0) copy_axes(e, &c, 0, i64(e, 0), i64(e, 0));
  }
}

// --- checks ---

static void end_checks(emission *e) {
  const uint32_t n = e->plan->n_checks;
  for (uint32_t i = 0; i < n; i++)
    leave_if(
        e, differs(e, e->outputs[e->plan->n_outputs - 1], i * sizeof(int64_t), (uint64_t)INT64_MIN),
        (int64_t)i + 1);
  LLVMBuildRet(e->b, LLVMConstInt(e->m.i32, 0, 0));
}

static void emit(emission *e) {
  LLVMTypeRef range[] = {e->m.ptr, e->m.i64, e->m.i64};
  e->b = e->m.builder;
  e->nest_type = LLVMFunctionType(e->m.none, range, KILN_LEN(range), 0);
  if (e->what->has_parallel_for) add_split(e);
  declare(e);
  LLVMPositionBuilderAtEnd(e->b, block(e, "entry"));
  find_memory(e);
  LLVMValueRef before = begin_floating(e);
  run_launches(e);
  run_copies(e);
  end_floating(e, before);
  end_checks(e);
}

static void entry_deinit(void *object) {
  emission *e = object;
  kiln_cpu_module_deinit(&e->m);
  if (e->tm) LLVMDisposeTargetMachine(e->tm);
  e->tm = NULL;
}

// The function to compile, and the result.
typedef struct job {
  const kiln_machine *machine;
  const kiln_cpu_entry *entry;
  kiln_object *out;
} job;

static kiln_status compile(kiln_ctx *cx, const job *j, emission *e) {
  KILN_TRY(kiln_cpu_target_machine(cx->diag, j->machine, false, &e->tm));
  kiln_cpu_module_init(cx, j->machine, e->tm, &e->m);
  emit(e);
  KILN_TRY(kiln_cpu_run_passes(cx, &e->m, "function(early-cse,simplifycfg)"));
  return kiln_cpu_generate(cx, &e->m, e->m.module, LLVMObjectFile, j->out);
}

static kiln_status compile_job(kiln_ctx *cx, void *argument) {
  const job *j = argument;
  emission e = {.what = j->entry, .plan = j->entry->plan};
  kiln_cleanup_push(cx, entry_deinit, &e);
  const kiln_status st = compile(cx, j, &e);
  kiln_cleanup_pop(cx);
  entry_deinit(&e);
  return st;
}

// Compiles in a context of its own, while the memory reserve is held.
static kiln_status compile_within_reserve(job *j, kiln_diag *diag) {
  kiln_ctx cx;
  KILN_TRY(kiln_ctx_init(&cx, diag));
  const kiln_status st = kiln_ctx_enter(&cx, compile_job, j);
  kiln_ctx_deinit(&cx);
  return st;
}

kiln_status kiln_cpu_compile_entry(kiln_ctx *cx, const kiln_machine *m, const kiln_cpu_entry *entry,
                                   kiln_object *out) {
  job j = {m, entry, out};
  *out = (kiln_object){0};
  KILN_TRY(kiln_reserve_begin(cx->diag));
  return kiln_reserve_end(cx->diag, compile_within_reserve(&j, cx->diag));
}
