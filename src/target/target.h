// Targets, and their machines.
//
// A target (kiln_target) is a constant row of properties that all machines of a kind share; a
// machine (kiln_machine) is one of that kind with its figures. The scheduler, compilers and
// runtimes ask for properties, as m->target->has_vectors, and never for the target's identity,
// which only src/target may (tools/check_targets.py).
#ifndef KILN_TARGET_TARGET_H
#define KILN_TARGET_TARGET_H

#include "ir/loop.h"
#include "runtime/plan.h"
#include "target/device.h"

// An instruction is a meaning and a spelling. The meaning is a definition in TC notation that
// accumulates into a copy of its last parameter:
//   def tile(uint8(6, 4) A, int8(32, 4) B, int32(6, 32) C) -> (D) {
//     D(i, j) = C(i, j)
//     D(i, j) += int32(A(i, k)) * int32(B(j, k))
//   }
// Operand 0 is the result, which is read and written; the others are the parameters before C.
// tensorize matches accumulating nests with it (also of `max=`). A copy is written
//   def tile(float16(16, 16) A) -> (D) { D(i, j) = A(i, j) }
//
// Operands of a GPU warp's instruction are fragments, distributed over its lanes (ir/loop.h):
// |fragments| state which lane holds element (_0, _1) of an operand's tile, and as which of the
// lane's own contiguous elements. All threads along x execute it together.
enum { KILN_MAX_OPERANDS = 4 };
typedef struct kiln_fragment {
  const char *lane, *element; // expressions over _0, _1; NULL: the operand is in memory
} kiln_fragment;
typedef struct kiln_instr {
  const char *name;     // "vpdpbusd.6x2", as loop programs print it; must be the first member
  const char *was;      // an earlier name that scripts may use; NULL: none
  const char *meaning;  // as above
  const char *spelling; // LLVM intrinsic: "llvm.x86.avx512.vpdpbusd.512"
  const char *feature;  // extension that the processor must have: "avx512vnni"; NULL: none
  bool is_there;        // the machine has it
  bool passes_nan;      // a `max=` that ignores NaN, as online_softmax writes it: x > D ? x : D
  // The register tile: |rows| x |vectors| registers of |lanes| elements of the result, each element
  // accumulating |group| products at once.
  int rows, vectors, lanes, group;
  // The stride in elements along each axis of each operand; 0: any.
  int64_t strides[KILN_MAX_OPERANDS][KILN_MAX_TILE_RANK];
  bool decodes_bits;  // an operand's bytes hold two numbers each (cpu/instr_bits.c)
  bool combines_rows; // a quad reduction: lanes exchange results of their rows
  bool is_tma;        // a GPU's bulk copy of a tile to shared memory, which one thread issues (TMA)
  // the same in im2col mode: windows of a convolution, with zeros outside of the tensor
  bool is_im2col;
  kiln_fragment fragments[KILN_MAX_OPERANDS]; // of a warp's instruction
  unsigned swizzled; // bit k: operand k is in swizzled memory (ir/loop.h); others must not be
  // the update nest of the meaning, buffers numbered by operand; made by schedule/instr.h
  const kiln_loops *loops;
} kiln_instr;

// Limits for code of a GPU; all zero for a CPU.
typedef struct kiln_gpu {
  char arch[16];        // "sm_90a", "gfx90a"; "" for OpenCL
  int capability;       // CUDA's compute capability: 90; else 0
  int warp;             // threads that run in lock step; 1: none
  int max_threads;      // of a block
  int64_t shared_bytes; // of a block, at most
  int64_t registers;    // of a multiprocessor, 32 bits each; 0: unknown
  int max_resident;     // threads of a multiprocessor
  bool has_wgmma;       // warpgroup instructions and TMA: sm_90a
  bool rounds_to_tf32;  // products of f32 may use tensor cores, with operands rounded to tf32
} kiln_gpu;

enum { KILN_GPU_RESERVED_BYTES = 1024 }; // of shared memory, for each block

// What a block takes of a multiprocessor.
typedef struct kiln_gpu_block {
  int64_t threads, registers, shared_bytes; // registers: of a thread; 0: not counted
} kiln_gpu_block;
// The occupancy: how many such blocks run on a multiprocessor at the same time; 0: not even one.
// (gpu/occupancy.c)
int64_t kiln_gpu_resident(const kiln_gpu *g, const kiln_gpu_block *b);

typedef struct kiln_target kiln_target;
typedef struct kiln_machine {
  const kiln_target *target;
  kiln_gpu gpu;
  bool is_here;             // the processor of this computer
  char triple[64], cpu[64]; // LLVM's names
  char processor[64];       // by the operating system; |cpu| if that has none
  char *features;           // LLVM feature string; owned by the ctx that made the machine
  // of the widest register for f32 arithmetic: 64 AVX-512, 32 AVX2, 16 NEON or SSE
  int vector_bytes;
  int n_vector_regs; // 32 AVX-512 and NEON, 16 AVX2
  bool has_fma, has_f16, has_bf16, has_vnni;
  int n_cores;                          // physical cores, regardless of the process's CPU affinity
  int64_t l1_bytes, l2_bytes, l3_bytes; // data caches of one core (L3: shared)
  int ways[3];                          // associativity of each; 0: unknown
  double clock_ghz;                     // declared by the operating system; 3 if it is not
  const kiln_device *device;            // its speeds; set by both functions below
} kiln_machine;

struct kiln_target {
  const char *name, *title; // "hip"; in messages: "HIP"

  // --- its machines
  // Whether |name|, the user's ("cuda:sm_90a"; NULL: none), names a machine of this target; it need
  // not exist.
  bool (*takes)(const char *name);
  // errors: KILN_BAD_INPUT: no machine has that name; KILN_DEVICE_ERROR: it means this computer's
  //         device, which does not exist
  kiln_status (*find)(kiln_ctx *cx, const char *name, kiln_machine *out);

  // --- how kernels run
  // Loops can become vectors of lanes, for instructions on contiguous elements.
  bool has_vectors;
  // A launch is a grid of blocks of threads; otherwise it is loops, whose outermost is run by a
  // thread pool.
  bool has_grids;
  // Data is reused through explicitly addressed (shared) memory, to which loops copy it, possibly
  // computing it on the way; otherwise caches do this.
  bool has_explicit_scopes;
  bool has_ranges;       // one module may serve ranges of dimensions
  int max_params;        // arguments of a kernel
  int param_align_bytes; // alignment of their addresses; 1: any
  // The instructions that schedules may name, including those that |m| lacks (is_there). Lives in
  // |cx|.
  kiln_instr *(*instrs)(kiln_ctx *cx, const kiln_machine *m, int *out_n);
  // Whether code can be generated for a kernel's loops; NULL: always.
  //
  // errors: KILN_BAD_INPUT: it cannot; the message names the loop or the buffer
  kiln_status (*check)(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel);

  // --- code and its runtime
  const char *code_levels[3]; // dumps of code as text, NULL behind the last: "llvm", "asm"
  // Code is an image that the device's driver loads; otherwise objects that are linked and called.
  bool has_images;
  // The number of functions of a kernel; NULL: one for each nest.
  int (*launches)(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel);
  // From sources to images (gpu/gpu.h); NULL: images are sources, which the driver compiles.
  const struct kiln_gpu_compiler *compiler;
  bool has_runtime; // |runtime| can run its code
  kiln_plan_kind runtime;
  bool has_own_memory; // the device's, to which weights and arguments are copied
  int place_bytes;     // alignment of weights and temporaries
  // Whether modules can be made for the machine |name|; NULL: for none.
  bool (*makes_modules)(const char *name);
  // Bit k: modules may call libraries of kiln_backend_place k (backend/backend.h).
  unsigned libraries;

  // --- for targets of the GPU emitter (gpu/spelling.h)
  const struct kiln_c_dialect *dialect;
  kiln_gpu common;                        // figures that all its machines share
  const struct kiln_gpu_figures *figures; // its architectures, [n_figures]
  int n_figures;
};

// All targets (targets.def), ended by NULL.
extern const kiln_target *const kiln_targets[];
#define KILN_TARGET(name) extern const kiln_target kiln_target_##name;
#include "target/targets.def"
#undef KILN_TARGET
// The target of |name|; the last one if |name| is unknown, whose lookup then reports it.
const kiln_target *kiln_target_find(const char *name);
// The machine of that name.
//
// errors: as kiln_target.find
kiln_status kiln_target_machine(kiln_ctx *cx, const char *name, kiln_machine *out);
// Whether modules can be made for the machine |name|.
bool kiln_target_makes_modules(const char *name);

// The machine this process runs on (LLVM's host detection and the operating system's cache
// description).
kiln_status kiln_machine_host(kiln_ctx *cx, kiln_machine *out);
// Another machine by name: a level of x86-64 ("x86-64-v3"), or a processor by LLVM's name
// ("haswell", "znver4") with its usual caches; "avx2" and "avx512", which are x86-64-v3 and v4, the
// same with "avxvnni" or "avx512vnni" (and bf16), and "neon" (AArch64).
//
// errors: KILN_BAD_INPUT: no machine has that name
kiln_status kiln_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out);
bool kiln_machine_is_x86(const char *name); // whether x86-64 runs its code
const char *kiln_machine_name(size_t i);    // of x86-64, by number; NULL after the last
// Sets the fields that follow from |m|'s features: registers and instructions.
void kiln_machine_describe(kiln_machine *m);
// Associativity of the cache of |level| (1 to 3); 8, 8 and 16 if unknown.
int kiln_machine_ways(const kiln_machine *m, int level);
// Whether the instruction set has an extension, by LLVM's name: "avx512bf16", "dotprod".
bool kiln_machine_has(const kiln_machine *m, const char *feature);
// The instructions of |m|'s architecture that schedules may name, including those that |m| lacks
// (is_there): for each family (fma, vpdpbusd, ...; see cpu/instr.c) the register tiles ROWSxVECTORS
// of at most rows * vectors + vectors + 1 registers, as "fma.6x2". Lives in |cx|.
kiln_instr *kiln_cpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n);

typedef struct kiln_object {
  void *data; // an ELF relocatable object, malloc'ed; free with kiln_object_deinit
  size_t bytes;
} kiln_object;
void kiln_object_deinit(kiln_object *o);

typedef struct kiln_cpu_options {
  int n_threads;        // number of compile threads; <= 1: the caller's only
  kiln_text *dump_llvm; // the optimised LLVM text of all kernels is appended; NULL: not wanted
  kiln_text *dump_asm;
  bool has_lines; // with debug information: the kernel's line of each instruction (ir/lines.h)
  // equal nests, of which one is compiled (cpu/together.h); NULL: all are
  const struct kiln_cpu_nests *nests;
  const volatile int *stop; // no further kernel is started once it is not 0; NULL: never stopped
} kiln_cpu_options;

// Compiles kernels to objects. Nest j (in order) of kernels[i] becomes
//     void SYMBOL_j(char *const *args, int64_t begin, int64_t end)
// with SYMBOL = symbols[i]. args are the base addresses of the PARAM and WORKSPACE buffers in id
// order (64-byte aligned for WORKSPACE and packed PARAMs, element-aligned otherwise). [begin, end)
// are the iterations to run of a PARALLEL outermost loop; otherwise it is ignored, and the whole
// nest runs.
//
// gives: out[n], an object for each kernel, which depends on the kernel, its symbol and |m| only;
//        *out_n is |n|, or 0 on failure
// errors: KILN_NO_BUDGET, without a message: it was stopped
kiln_status kiln_cpu_compile(kiln_ctx *cx, const kiln_machine *m, int n, kiln_loops *const *kernels,
                             const char *const *symbols, const kiln_cpu_options *options,
                             int *out_n, kiln_object *out);

// A plan as one C function of a static library, which calls the functions of its nests in order:
//     int SYMBOL(const void *input..., void *output..., int64_t *shape..., void *workspace
//                [, const void *weights] [, parallel_for *, void *pool])
// with a |shape| for each output of data-dependent shape. An input with a default may be NULL. It
// returns 0; n > 0: an index was out of range, in check n - 1 of the plan; or one of these.
//
// A nest that is worth several threads is given to the caller's
//     void parallel_for(void *pool, void (*part)(const void *job, int64_t begin, int64_t end),
//                       const void *job, int64_t extent, int64_t most)
// which calls |part| for disjoint ranges that together are [0, extent), preferably at most |most|
// of them. If it is NULL, and for other nests, the caller's thread runs everything.
enum {
  KILN_ENTRY_BAD_WORKSPACE = -1, // not aligned to KILN_PLAN_ALIGN
  KILN_ENTRY_BAD_WEIGHTS = -2    // the same, or they are another library's
};
typedef struct kiln_cpu_entry {
  const char *symbol;
  const char *weights; // symbol of the weights' memory; NULL: the last parameter
  // The head of the memory that this parameter points to, before the weights: magic number, id,
  // size.
  uint64_t weights_id;
  const kiln_plan *plan; // for a CPU, without calls and externs
  bool has_parallel_for;
} kiln_cpu_entry;
// A file of weights: a head, then the plan's weights.
enum { KILN_WEIGHTS_HEAD_BYTES = 64 };
#define KILN_WEIGHTS_MAGIC UINT64_C(0x0a5447574e4c494b)   // "KILNWGT\n"
uint64_t kiln_cpu_entry_workspace(const kiln_plan *plan); // bytes
// gives: *out, an object
kiln_status kiln_cpu_compile_entry(kiln_ctx *cx, const kiln_machine *m, const kiln_cpu_entry *entry,
                                   kiln_object *out);

// The code of a kernel for people: LLVM's text and the assembly, without directives, each with the
// lines of |loops| that it implements.
//
// needs:  numbered loops (ir/lines.h)
// gives:  appended to |out_llvm| and |out_asm|, in cx->perm
// errors: as kiln_cpu_compile
struct kiln_lined;
kiln_status kiln_cpu_show(kiln_ctx *cx, const kiln_machine *m, kiln_loops *loops,
                          const char *symbol, struct kiln_lined *out_llvm,
                          struct kiln_lined *out_asm);

// The extensions, by LLVM's names, that the instructions of |objects| need beyond the baseline of
// |m|'s architecture, in no order. For architectures other than x86-64, or if an instruction is
// unknown, all that |m| has.
//
// gives: *out_n names in cx->perm
const char *const *kiln_cpu_needs(kiln_ctx *cx, const kiln_machine *m, int n,
                                  const kiln_object *objects, int *out_n);

// Links objects into this process (ORC).
typedef struct kiln_jit kiln_jit;
kiln_status kiln_jit_create(kiln_ctx *cx, const kiln_machine *m, int n, const kiln_object *objects,
                            kiln_jit **out);
// errors: KILN_INTERNAL: no symbol has that name
kiln_status kiln_jit_find(kiln_jit *jit, const char *symbol, kiln_diag *diag, void **out);
void kiln_jit_destroy(kiln_jit *jit);

#endif
