// Private parts of the CPU emitter, which turns one kernel into LLVM functions.
//
// machine.c   the machine this process runs on; named.c: other machines; needs.c: the instruction
//             set extensions that code needs
// copy.c      copying a kernel into the context of a compile worker
// emit.c      values, types, scopes of variables
// address.c   affine addresses and their pointers; table.c: tables of constant offsets
// memory.c    loads and stores of scalars and lanes; gather.c: gather instructions
// known.c     load elimination within a basic block
// expr.c      expressions; integer.c, cast.c, half.c: integer operators and conversions
// math.c      exp, log, tanh, erf in f32 lanes; math_wide.c: functions computed in f64 lanes
// libm.c      rare functions, one lane at a time
// loops.c     loops, guards, allocations; instr.c: matrix instructions; instr_bits.c: on
//             weights of 4 bits
// turn.c      maps that transpose
// together.c  the kernels of a module
// lines.c     lines of the kernel as debug information
// show.c      annotated code, read from LLVM's text and assembly
// compile.c   modules, passes, objects, threads; jit.c: linking objects into this process
// entry.c     a plan as one C function, for static libraries
//
// A kernel is emitted by one thread, from a copy of its own in the thread's context, because
// emission simplifies expressions and the tables in which they are interned are not shared.
#ifndef KILN_TARGET_CPU_CPU_H
#define KILN_TARGET_CPU_CPU_H

#include "analysis/simplify.h"
#include "target/target.h"

#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/TargetMachine.h>

// Registers this machine's code generator with LLVM, once.
//
// threads: any
kiln_status kiln_cpu_llvm_init(kiln_diag *diag);
kiln_status kiln_cpu_llvm_init_arm(kiln_diag *diag); // AArch64's

// The most lanes of a vector: bytes of the widest register of any machine (loops.c and memory.c
// split wider vectors).
enum { KILN_CPU_MAX_LANES = 256 };

// One LLVM module under construction.
typedef struct kiln_cpu_module {
  kiln_ctx *cx; // the worker's
  const kiln_machine *machine;
  LLVMContextRef llvm;
  LLVMModuleRef module;
  LLVMTargetMachineRef tm;
  LLVMBuilderRef builder;
  LLVMTypeRef i1, i8, i16, i32, i64, f16, bf16, f32, f64, ptr, none;
  LLVMValueRef zeros; // read by guarded loads whose guard is false; made on first use
  kiln_map tables;    // tables of offsets, by their contents
  bool has_many;      // of several kernels, which share functions for expressions of short kernels
  bool is_quick;      // compiled without optimisation
  unsigned md_scope, md_noalias;
  LLVMDIBuilderRef lines; // NULL: no debug information
  LLVMMetadataRef file;   // of |lines|
} kiln_cpu_module;

// compile.c: from an empty module to its code
void kiln_cpu_module_init(kiln_ctx *cx, const kiln_machine *machine, LLVMTargetMachineRef tm,
                          kiln_cpu_module *m);
void kiln_cpu_module_deinit(void *module);
kiln_status kiln_cpu_target_machine(kiln_diag *diag, const kiln_machine *machine, bool is_quick,
                                    LLVMTargetMachineRef *out);
kiln_status kiln_cpu_run_passes(kiln_ctx *cx, kiln_cpu_module *m, const char *passes);
// Generates code of the given kind, malloc'ed and followed by a NUL.
kiln_status kiln_cpu_generate(kiln_ctx *cx, kiln_cpu_module *m, LLVMModuleRef module,
                              LLVMCodeGenFileType kind, kiln_object *out);

// A computed value: a scalar when lanes is 0. i64 values may be held in lanes of i32 (narrow) when
// their ranges allow it. f16 and bf16 are f32, bool is i1.
typedef struct kiln_lanes {
  LLVMValueRef v;
  int lanes;
  bool narrow;
} kiln_lanes;

// An affine form: constant + sum(coef * atom). An atom is a VAR or a non-affine expression.
typedef struct kiln_form_term {
  const kiln_expr *atom;
  int64_t coef;
} kiln_form_term;
typedef struct kiln_linear_form {
  int64_t constant;
  KILN_VEC(kiln_form_term) terms;
} kiln_linear_form;

// A value that is computed once at the head of a loop's body.
typedef struct kiln_hoisted {
  LLVMValueRef from; // base pointer; NULL: the value is that of |atom|
  const kiln_expr *atom;
  int64_t coef;
  LLVMTypeRef type;
  LLVMValueRef value;
} kiln_hoisted;

typedef enum kiln_binding_kind {
  KILN_BOUND_CONST,
  KILN_BOUND_LOOP,
  KILN_BOUND_LANE
} kiln_binding_kind;
typedef struct kiln_binding {
  kiln_symbol var;
  kiln_binding_kind kind;
  int64_t constant;   // CONST
  LLVMValueRef value; // LOOP
  int frame;          // LOOP: the loop's frame
} kiln_binding;

// A scope of computed values: the function's entry (frame 0) or the body of a loop.
typedef struct kiln_frame {
  LLVMBasicBlockRef head; // hoisted values go before its terminator
  KILN_VEC(kiln_hoisted) hoisted;
} kiln_frame;

// A pointer |by| elements behind |from|, or, where |by| is 0, what lies at |from|: in one block.
typedef struct kiln_known {
  LLVMBasicBlockRef block;
  LLVMValueRef from, value;
  LLVMTypeRef type;
  int64_t by;
  uint32_t n_written; // of the buffer, when it was loaded or stored
} kiln_known;

typedef struct kiln_emit {
  kiln_cpu_module *m;
  kiln_ctx *cx;
  LLVMBuilderRef b;
  kiln_loops *loops;
  LLVMValueRef fn;
  LLVMBasicBlockRef entry;
  bool has_zeros;          // the entry loads from the module's zeros
  LLVMValueRef *base;      // [buffers] address of element 0
  LLVMValueRef *md_scopes; // [buffers] lists of one alias scope
  LLVMValueRef *md_others; // [buffers] all other scopes
  bool *is_private;        // [buffers] each lane has a copy: allocated inside of the vector loop
  KILN_VEC(kiln_binding) vars;
  KILN_VEC(kiln_frame) frames;
  kiln_ranges ranges;
  kiln_map forms;      // LOAD and STORE nodes to the kiln_linear_form of their address
  kiln_map known;      // hashes to kiln_known
  uint32_t *n_written; // [buffers] how often code has written it, as far as it is emitted
  // The enclosing vector loop, if any: V iterations, of which [chunk, chunk + n_active) are being
  // emitted as |lanes| lanes.
  kiln_symbol lane_var;
  int64_t lane_extent, chunk;
  int lanes, n_active;
  KILN_VEC(const kiln_expr *) lane_conds; // guards that differ between lanes
  LLVMValueRef mask;                      // <lanes x i1>; NULL: all lanes
  LLVMValueRef guard;                     // i1, all lanes; NULL: true
  // Values of the current statement, by expression id.
  struct kiln_memo {
    uint32_t epoch;
    kiln_lanes value;
  } * memo;
  uint32_t memo_cap, epoch;
  KILN_VEC(uint32_t) memo_log; // ids whose values hold only under the current mask
  bool memo_masked;
  // functions of the module for expressions that the nest computes in many places, by kind
  kiln_map calls;
  LLVMMetadataRef scope; // of the function's debug information; NULL: none
  int line;              // of the current statement
} kiln_emit;

// emit.c: types and values
LLVMTypeRef kiln_cpu_memory_type(const kiln_cpu_module *m, kiln_dtype t); // bool: i8
LLVMTypeRef kiln_cpu_value_type(const kiln_cpu_module *m, kiln_dtype t);  // bool: i1, halves: f32
LLVMTypeRef kiln_cpu_lanes_of(LLVMTypeRef scalar, int lanes); // |scalar| when lanes is 0
LLVMTypeRef kiln_cpu_scalar_of(LLVMTypeRef type);
int kiln_cpu_type_lanes(LLVMTypeRef type); // 0 for scalars
LLVMValueRef kiln_cpu_splat(kiln_emit *e, LLVMValueRef scalar,
                            int lanes);                           // |scalar| when lanes is 0
LLVMValueRef kiln_cpu_const_int(LLVMTypeRef type, int64_t value); // of an integer type or its lanes
LLVMValueRef kiln_cpu_const_float(LLVMTypeRef type, double value);
LLVMValueRef kiln_cpu_lane_ids(kiln_emit *e, LLVMTypeRef scalar, int lanes, int64_t first,
                               int64_t step);
LLVMValueRef kiln_cpu_call(kiln_emit *e, const char *intrinsic, int n_types, LLVMTypeRef *types,
                           int n, LLVMValueRef *args);
// Calls an intrinsic that is overloaded on its first argument's type only.
LLVMValueRef kiln_cpu_call1(kiln_emit *e, const char *intrinsic, LLVMValueRef a);
LLVMValueRef kiln_cpu_call2(kiln_emit *e, const char *intrinsic, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef kiln_cpu_fma(kiln_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
kiln_lanes kiln_cpu_broadcast(kiln_emit *e, kiln_lanes v, int lanes);
kiln_lanes kiln_cpu_widen(kiln_emit *e, kiln_lanes v); // undoes narrow
LLVMValueRef kiln_cpu_alloca(kiln_emit *e, LLVMTypeRef type, int64_t count, const char *name);
const kiln_binding *kiln_cpu_binding(const kiln_emit *e, kiln_symbol var); // NULL: not bound
LLVMValueRef kiln_cpu_and(kiln_emit *e, LLVMValueRef a, LLVMValueRef b);   // either may be NULL
LLVMValueRef kiln_cpu_any(kiln_emit *e, LLVMValueRef mask);

// address.c
typedef struct kiln_cpu_place {
  LLVMValueRef pointer; // of lane 0, without |index|
  int64_t lane_stride;  // elements between lanes
  kiln_lanes index;     // per-lane offsets in elements to add; v is NULL if there are none
  // so many consecutive lanes load each element, and the next ones the next element; 0: by
  // |lane_stride|
  int repeats;
} kiln_cpu_place;
void kiln_cpu_form_add(kiln_emit *e, kiln_linear_form *f, const kiln_expr *x, int64_t coef);
// A form split into its coefficient of the lane, uniform terms and varying terms. No atom depends
// on a variable of known value, or affinely on the lane.
typedef struct kiln_split_form {
  int64_t constant, lane;
  KILN_VEC(kiln_form_term) uniform, varying;
} kiln_split_form;
kiln_split_form kiln_cpu_form_split(kiln_emit *e, const kiln_linear_form *f);
LLVMValueRef kiln_cpu_form_uniform(kiln_emit *e, const kiln_split_form *f); // i64, without the lane
// |base| plus the uniform terms of |f| without its constant, in elements of |type|.
LLVMValueRef kiln_cpu_pointer(kiln_emit *e, LLVMTypeRef type, LLVMValueRef base,
                              const kiln_split_form *f);
kiln_cpu_place kiln_cpu_address(kiln_emit *e, const void *key, int buffer,
                                const kiln_expr *const *index);
// The same for loads, whose lanes may repeat elements.
kiln_cpu_place kiln_cpu_load_address(kiln_emit *e, const kiln_expr *load);
// Whether every index is within its extent in all iterations, even without the guards.
bool kiln_cpu_in_bounds(kiln_emit *e, int buffer, const kiln_expr *const *index);

// table.c
// The varying offsets of |f| for all lanes, loaded from a table of constants; false if no table can
// be made.
bool kiln_cpu_table(kiln_emit *e, const kiln_split_form *f, kiln_lanes *out);

// memory.c
kiln_lanes kiln_cpu_load(kiln_emit *e, const kiln_expr *load);
void kiln_cpu_store(kiln_emit *e, const kiln_loop *l);
// |x| for lanes 0, 1, ... of the variable |lane|, outside of a vector loop.
kiln_lanes kiln_cpu_eval_chunk(kiln_emit *e, kiln_symbol lane, int lanes, const kiln_expr *x);
// Whether all lanes of the enclosing vector loop store to one element.
bool kiln_cpu_store_is_uniform(kiln_emit *e, const kiln_loop *store);
LLVMValueRef kiln_cpu_tag(kiln_emit *e, int buffer,
                          LLVMValueRef access); // alias metadata; |access|
LLVMValueRef kiln_cpu_from_memory(kiln_emit *e, kiln_dtype t, LLVMValueRef raw);
LLVMValueRef kiln_cpu_to_memory(kiln_emit *e, kiln_dtype t, LLVMValueRef value);

// known.c
// The pointer |by| elements behind |from|, made once in a block.
LLVMValueRef kiln_cpu_step(kiln_emit *e, LLVMTypeRef type, LLVMValueRef from, int64_t by);
// What lies at |p| in the buffer, as a value of the type in memory; NULL: that is not known.
LLVMValueRef kiln_cpu_held(const kiln_emit *e, int buffer, LLVMTypeRef type, LLVMValueRef p);
// Says that |value| lies there, behind a load of it, or a store and kiln_cpu_note_written.
void kiln_cpu_note_held(kiln_emit *e, int buffer, LLVMValueRef p, LLVMValueRef value);
// Forgets what the buffer, or every buffer, holds: also at a call, which leaves no vector in a
// register, so that loading again is no slower than keeping it.
void kiln_cpu_note_written(kiln_emit *e, int buffer);
void kiln_cpu_forget_memory(kiln_emit *e);

// gather.c
// Gathers elements at 32-bit offsets, for functions that are not optimised; NULL if the machine has
// no such instruction.
LLVMValueRef kiln_cpu_gather(kiln_emit *e, LLVMTypeRef scalar, const kiln_cpu_place *a,
                             LLVMValueRef mask);

// expr.c
kiln_lanes kiln_cpu_eval(kiln_emit *e, const kiln_expr *x);
LLVMValueRef kiln_cpu_eval_scalar(kiln_emit *e,
                                  const kiln_expr *x); // |x| does not depend on the lane
bool kiln_cpu_is_uniform(kiln_emit *e, const kiln_expr *x);
void kiln_cpu_memo_clear(kiln_emit *e);
LLVMValueRef kiln_cpu_combine(kiln_emit *e, kiln_combiner c, kiln_dtype t, LLVMValueRef old,
                              LLVMValueRef next);

// integer.c
LLVMValueRef kiln_cpu_int_divide(kiln_emit *e, kiln_expr_kind k, bool is_signed, LLVMValueRef a,
                                 LLVMValueRef b, bool known_natural);
LLVMValueRef kiln_cpu_int_shift(kiln_emit *e, kiln_expr_kind k, bool is_signed, LLVMValueRef a,
                                LLVMValueRef b);
LLVMValueRef kiln_cpu_int_power(kiln_emit *e, bool is_signed, LLVMValueRef a, LLVMValueRef b);

// cast.c
// The bits of a float or minifloat as an unsigned integer, or back.
LLVMValueRef kiln_cpu_bitcast(kiln_emit *e, kiln_dtype to, kiln_dtype from, LLVMValueRef v);
LLVMValueRef kiln_cpu_cast(kiln_emit *e, kiln_dtype to, kiln_dtype from, LLVMValueRef v);
LLVMValueRef kiln_cpu_round_half(kiln_emit *e, kiln_dtype t,
                                 LLVMValueRef v); // f32 or f64 to memory's bits

// half.c
bool kiln_cpu_has_f16c(const kiln_cpu_module *m);                    // of x86, or an equivalent
LLVMValueRef kiln_cpu_f16_to_bits(kiln_emit *e, LLVMValueRef x);     // f32 to u16, without it
LLVMValueRef kiln_cpu_f16_from_bits(kiln_emit *e, LLVMValueRef raw); // and back

// code.c
// Evaluates |x| if it rounds to a byte, or converts such a byte to a number.
bool kiln_cpu_eval_code(kiln_emit *e, const kiln_expr *x, kiln_lanes *out);

// math.c, math_wide.c, libm.c: functions of float lanes
LLVMValueRef kiln_cpu_poly(kiln_emit *e, LLVMValueRef x, int n,
                           const double *coef);                                  // highest first
LLVMValueRef kiln_cpu_clamp(kiln_emit *e, LLVMValueRef x, double lo, double hi); // NaN stays
LLVMValueRef kiln_cpu_exp(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_one_plus_exp(kiln_emit *e, LLVMValueRef x); // 1 + exp(x)
LLVMValueRef kiln_cpu_log(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_tanh(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_tanh_softplus(kiln_emit *e, LLVMValueRef x); // tanh(log(1 + exp(x)))
LLVMValueRef kiln_cpu_erf(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_expm1(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_log1p(kiln_emit *e, LLVMValueRef x);
LLVMValueRef kiln_cpu_sin_cos(kiln_emit *e, LLVMValueRef x, bool is_cos);
LLVMValueRef kiln_cpu_pow(kiln_emit *e, LLVMValueRef x, LLVMValueRef y);
// The function |k| by calls of libm, lane by lane; |b| NULL for functions of one argument.
LLVMValueRef kiln_cpu_libm(kiln_emit *e, kiln_expr_kind k, LLVMValueRef a, LLVMValueRef b);
typedef void (*kiln_function)(void); // any function
typedef struct kiln_libm_row {
  kiln_expr_kind kind;
  const char *name_f32, *name_f64;
  kiln_function f32, f64; // in this process, for the JIT
} kiln_libm_row;
const kiln_libm_row *kiln_cpu_libm_rows(int *out_n);

// turn.c
typedef struct kiln_turn {
  const kiln_loop *store;
  kiln_symbol along, across; // the outer loop and the vector loop of |width| iterations in it
  int lanes, width;
  int64_t lo, hi; // the iterations of the outer loop that are transposed
  int64_t step;   // stride of the store along the outer loop, in elements
} kiln_turn;
// Whether the loop |l| and the vector loop in it store a transpose of their loads.
bool kiln_cpu_turn_find(kiln_emit *e, const kiln_loop *l, kiln_turn *out);
// Emits iterations [i, i + t->lanes) of the outer loop, i being the current one.
void kiln_cpu_turn(kiln_emit *e, const kiln_turn *t);

// loops.c

// lines.c: the kernel's line for each instruction, as LLVM debug information, if the module has it.
void kiln_cpu_lines_init(kiln_cpu_module *m);
void kiln_cpu_lines_deinit(kiln_cpu_module *m);
void kiln_cpu_lines_begin(kiln_emit *e, const char *symbol, int line); // begins a function
void kiln_cpu_lines_end(kiln_emit *e);
void kiln_cpu_say_line(kiln_emit *e); // instructions from here on are of the current statement

kiln_status kiln_cpu_emit_nest(kiln_cpu_module *m, kiln_loops *loops, const kiln_loop *nest,
                               const char *symbol);
void kiln_cpu_function_attributes(kiln_cpu_module *m, LLVMValueRef fn);
// of a register buffer's row, padded to whole vectors
int64_t kiln_cpu_row(const kiln_cpu_module *m, int64_t extent);
// including padding at the end
int64_t kiln_cpu_alloc_elems(const kiln_emit *e, const kiln_buffer *b);
double kiln_cpu_emit_cost(const kiln_loops *loops); // statements after unrolling
// Whether the nest |l|, or all nests from |l| on, run so few iterations that calls in them are
// negligible.
bool kiln_cpu_is_short(const kiln_loop *l);

// instr.c
kiln_status kiln_cpu_emit_instr(kiln_emit *e, const kiln_loop *l);
// The address of element at[KILN_MAX_TILE_RANK] of an operand's tile: what lies behind the tile's
// rank is not looked at.
LLVMValueRef kiln_cpu_tile_address(kiln_emit *e, const kiln_loop *l, int operand,
                                   const int64_t *at);

// instr_bits.c
typedef KILN_VEC(kiln_instr) kiln_cpu_instr_list;
enum { KILN_CPU_MAX_TILE = 32 }; // vectors of a tile of sums
void kiln_cpu_make_bit_instrs(kiln_ctx *cx, const kiln_machine *m, kiln_cpu_instr_list *all);
void kiln_cpu_emit_bit_instr(kiln_emit *e, const kiln_loop *l);

// copy.c
// Copies |from|, of a context that no thread is changing, into |cx|, simplifying expressions.
// Vector loops of several times |lanes| iterations without a reduction are strip-mined to |lanes|;
// 0: unchanged.
kiln_loops *kiln_cpu_copy(kiln_ctx *cx, const kiln_ctx *from_cx, const kiln_loops *from, int lanes);

#endif
