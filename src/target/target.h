// Targets, and their machines as data.
//
// A target (kiln_target) is a constant row: what holds of all machines of a kind. A machine
// (kiln_machine) is one of them with its figures. Whoever schedules, compiles or runs for a machine
// asks for a property of its target, `m->target->has_vectors`; which target it is, nothing outside
// src/target asks (tools/check_targets.py).
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
// Operand 0 is the result, read and written; the others are the parameters before C. tensorize
// matches a nest that accumulates (`max=` as well) against it. Or it copies: `def tile(float16(16,
// 16) A) -> (D) { D(i, j) = A(i, j) }`.
//
// Operands of a GPU warp's instruction are fragments, distributed over the lanes (ir/loop.h):
// |fragments| say which lane holds element (_0, _1) of an operand's tile, and as which of its own,
// these lying one behind the other. All threads along x carry it out together.
enum { KILN_MAX_OPERANDS = 4 };
typedef struct kiln_fragment {
  const char *lane, *element; // expressions over _0, _1; NULL: the operand is no fragment
} kiln_fragment;
typedef struct kiln_instr {
  const char *name;     // "vpdpbusd.6x2"; the first member, as loop programs print it
  const char *was;      // an older name, which scripts may have; NULL: there is none
  const char *meaning;  // as above
  const char *spelling; // LLVM intrinsic: "llvm.x86.avx512.vpdpbusd.512"
  const char *feature;  // what the processor must have: "avx512vnni"; NULL: nothing
  bool is_there;        // whether the machine has it
  bool passes_nan; // a `max=` that passes by what is no number, as stream writes it: x > D ? x : D
  // The spelling's register tile: |rows| x |vectors| registers of |lanes| elements of the result,
  // each element taking |group| products at once.
  int rows, vectors, lanes, group;
  // The distance in memory, in elements, of neighbours along each axis of each operand; 0: any.
  int64_t strides[KILN_MAX_OPERANDS][KILN_MAX_TILE_RANK];
  bool combines_rows; // lanes exchange results of their rows (a quad reduction)
  bool is_tma;        // a GPU's bulk copy of a tile to shared memory, which one thread issues (TMA)
  bool is_im2col;     // such a copy of a convolution's windows, with zeros outside of the tensor
  kiln_fragment fragments[KILN_MAX_OPERANDS]; // of a warp's; an operand without one lies in memory
  unsigned swizzled; // a bit for each operand in memory that is so (ir/loop.h); others must not be
  const kiln_loops
      *loops; // the meaning's update nest, buffers by operand; schedule/instr.h makes it
} kiln_instr;

// What code for a grid of threads must keep to; all zero of a CPU.
typedef struct kiln_gpu {
  char arch[16];        // "sm_90a", "gfx90a"; "" for OpenCL
  int capability;       // CUDA's compute capability: 90; else 0
  int warp;             // threads that run in step; 1: none do
  int max_threads;      // of a block
  int64_t shared_bytes; // of a block, at most
  int64_t registers;    // of a multiprocessor, 32 bits each; 0: nobody knows
  int max_resident;     // threads of a multiprocessor
  bool has_wgmma;       // warp groups multiply what a unit of its own copies (TMA): sm_90a
  bool rounds_to_tf32;  // products of f32 may run on tensor cores, operands rounded to tf32
} kiln_gpu;

typedef struct kiln_target kiln_target;
typedef struct kiln_machine {
  const kiln_target *target;
  kiln_gpu gpu;
  bool is_here;             // the processor that this process runs on
  char triple[64], cpu[64]; // by LLVM's names
  char processor[64];       // as the operating system says it; |cpu| where it does not
  char *features;           // LLVM feature string; owned by the ctx that made the machine
  int vector_bytes;  // of the widest register used for f32 arithmetic: 64 AVX-512, 32 AVX2, 16 NEON
                     // or SSE
  int n_vector_regs; // 32 AVX-512 and NEON, 16 AVX2
  bool has_fma, has_f16, has_bf16, has_vnni;
  int n_cores;                          // physical, whether this process may run on them or not
  int64_t l1_bytes, l2_bytes, l3_bytes; // data caches of one core (L3: shared)
  int ways[3];                          // lines of a set of each; 0: nobody said
  double clock_ghz;                     // as the operating system declares it, else 3
  const kiln_device *device;            // how fast it is; set by both functions below
} kiln_machine;

struct kiln_target {
  const char *name, *title; // "hip"; in messages: "HIP"

  // --- its machines
  // Whether |name|, which the user gave ("cuda:sm_90a"; NULL: none), is meant for this target, be
  // there such a machine or not.
  bool (*takes)(const char *name);
  // errors: KILN_BAD_INPUT: there is no machine of that name; KILN_DEVICE_ERROR: this computer's
  //         own is meant, and it has none
  kiln_status (*find)(kiln_ctx *cx, const char *name, kiln_machine *out);

  // --- how kernels run
  // An instruction computes neighbours along a row: loops become vectors of lanes.
  bool has_vectors;
  // A launch is a grid of blocks of threads; else it is loops, the outermost run by a thread pool.
  bool has_grids;
  // Loops copy what they read again to memory that they name (shared memory), and may compute it on
  // the way; else caches keep it by themselves.
  bool has_explicit_scopes;
  bool has_ranges;       // one module may serve ranges of dimensions
  int max_params;        // arguments of a kernel
  int param_align_bytes; // each begins at a multiple of that; 1: anywhere
  // The instructions that schedules may name, whether |m| has them or not (is_there). Lives in
  // |cx|.
  kiln_instr *(*instrs)(kiln_ctx *cx, const kiln_machine *m, int *out_n);
  // Whether code can be made of a kernel's loops; NULL: of all.
  //
  // errors: KILN_BAD_INPUT: it can't; the message names the loop or the buffer
  kiln_status (*check)(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel);

  // --- what code is, and what runs it
  const char *code_levels[3]; // dumps of code as text, NULL behind the last: "llvm", "asm"
  // Code is images that a device's driver loads; else objects that are linked, and whose functions
  // are called.
  bool has_images;
  // How many functions a kernel becomes; NULL: one for each nest.
  int (*launches)(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel);
  // Of sources to images (gpu/gpu.h); NULL: images are sources, which the device's driver compiles.
  const struct kiln_gpu_compiler *compiler;
  bool has_runtime; // code can be run, by |runtime|
  kiln_plan_kind runtime;
  bool has_own_memory; // the device's: weights and arguments are copied there
  int place_bytes;     // weights and temporaries begin at multiples of that
  // Whether modules can be written for the machine of that name; NULL: for none.
  bool (*makes_modules)(const char *name);
  // A bit for each kiln_backend_place (backend/backend.h): modules may call its libraries' kernels.
  unsigned libraries;

  // --- of the GPU emitter's targets (gpu/spelling.h)
  const struct kiln_c_dialect *dialect;
  kiln_gpu common;                        // what all its machines have
  const struct kiln_gpu_figures *figures; // its architectures, [n_figures]
  int n_figures;
};

// All targets (targets.def), NULL behind the last.
extern const kiln_target *const kiln_targets[];
#define KILN_TARGET(name) extern const kiln_target kiln_target_##name;
#include "target/targets.def"
#undef KILN_TARGET
// The target that |name| is meant for. A name that is no machine's is meant for the last one, which
// says so when it is looked up.
const kiln_target *kiln_target_find(const char *name);
// The machine of that name.
//
// errors: as kiln_target.find
kiln_status kiln_target_machine(kiln_ctx *cx, const char *name, kiln_machine *out);
// Whether modules can be written for the machine of that name.
bool kiln_target_makes_modules(const char *name);

// The machine this process runs on (LLVM's host detection and the operating system's cache
// description).
kiln_status kiln_machine_host(kiln_ctx *cx, kiln_machine *out);
// Another machine by name: a level of x86-64 ("x86-64-v3") or a processor, by LLVM's name
// ("haswell", "znver4"), with the caches that such ones have; "avx2" and "avx512", which are
// x86-64-v3 and v4, the same with "avxvnni" or "avx512vnni" (and bf16), and "neon" (AArch64).
//
// errors: KILN_BAD_INPUT: there is no such one
kiln_status kiln_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out);
bool kiln_machine_is_x86(const char *name); // of those: one whose code x86-64 runs
const char *kiln_machine_name(size_t i);    // of those of x86-64; NULL behind the last
// Fills in what follows from |m|'s features: the registers, and what they can.
void kiln_machine_describe(kiln_machine *m);
// Lines of a set of the cache of |level| (1 to 3); 8, 8 and 16 where nobody said.
int kiln_machine_ways(const kiln_machine *m, int level);
// Whether the instruction set has an extension, by LLVM's name: "avx512bf16", "dotprod".
bool kiln_machine_has(const kiln_machine *m, const char *feature);
// The instructions of |m|'s architecture that schedules may name, whether |m| has them or not
// (is_there): for each family (fma, vpdpbusd, ...; see cpu/instr.c) the register tiles ROWSxVECTORS
// with rows * vectors + vectors + 1 registers or fewer, as in "fma.6x2". Lives in |cx|.
kiln_instr *kiln_cpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n);

typedef struct kiln_object {
  void *data; // an ELF relocatable object, malloc'ed; free with kiln_object_deinit
  size_t bytes;
} kiln_object;
void kiln_object_deinit(kiln_object *o);

typedef struct kiln_cpu_options {
  int n_threads;        // compile in parallel with that many threads; <= 1: this one only
  kiln_text *dump_llvm; // appended with the optimised LLVM text of all kernels; NULL: no
  kiln_text *dump_asm;
  bool has_lines; // code says by debug information which lines of the kernels it is of (ir/lines.h)
  const struct kiln_cpu_nests
      *nests;               // of the kernels: those that are code (cpu/together.h); NULL: all are
  const volatile int *stop; // no further kernel is begun where this is not 0; NULL: all are
} kiln_cpu_options;

// Compiles kernels to objects. Nest j (in order) of kernels[i] becomes
//     void SYMBOL_j(char *const *args, int64_t begin, int64_t end)
// with SYMBOL = symbols[i]; args are the PARAM and WORKSPACE buffers in id order (base addresses,
// 64-byte aligned for WORKSPACE and packed PARAMs, element-aligned otherwise), and [begin, end) the
// part of the outermost loop to run if that is PARALLEL, else it is ignored and the whole nest
// runs.
//
// gives: out[n], an object for each kernel, which depends on that kernel, its symbol and |m| alone;
//        *out_n is |n|, or 0 on failure
// errors: KILN_NO_BUDGET, without a message: it was stopped
kiln_status kiln_cpu_compile(kiln_ctx *cx, const kiln_machine *m, int n, kiln_loops *const *kernels,
                             const char *const *symbols, const kiln_cpu_options *options,
                             int *out_n, kiln_object *out);

// A plan as one C function of a static library, which calls the functions of its nests one after
// the other:
//     int SYMBOL(const void *input..., void *output..., int64_t *shape..., void *workspace
//                [, const void *weights] [, parallel_for *, void *pool])
// with a |shape| for each output whose shape only a run finds. An input that has a default may be
// NULL. It gives 0; n: an index was out of range, of check n - 1 of the plan; or one of these.
//
// A nest that is worth several threads is given to the caller's
//     void parallel_for(void *pool, void (*part)(const void *job, int64_t begin, int64_t end),
//                       const void *job, int64_t extent, int64_t most)
// which calls |part| for ranges that make up 0..extent, |most| or fewer for speed. Where it is
// NULL, and for other nests, the caller's thread runs all of it.
enum {
  KILN_ENTRY_BAD_WORKSPACE = -1, // not aligned to KILN_PLAN_ALIGN
  KILN_ENTRY_BAD_WEIGHTS = -2    // the same, or of another library
};
typedef struct kiln_cpu_entry {
  const char *symbol;
  const char *weights; // symbol of the memory that has them; NULL: the last parameter
  // What that parameter's memory begins with, in front of the weights: magic number, id, size.
  uint64_t weights_id;
  const kiln_plan *plan; // of a CPU, without calls and externs
  bool has_parallel_for;
} kiln_cpu_entry;
// Weights as a file: a head, then the weights of the plan.
enum { KILN_WEIGHTS_HEAD_BYTES = 64 };
#define KILN_WEIGHTS_MAGIC UINT64_C(0x0a5447574e4c494b)   // "KILNWGT\n"
uint64_t kiln_cpu_entry_workspace(const kiln_plan *plan); // bytes
// gives: *out, an object
kiln_status kiln_cpu_compile_entry(kiln_ctx *cx, const kiln_machine *m, const kiln_cpu_entry *entry,
                                   kiln_object *out);

// The code of a kernel for people: LLVM's text and the assembly, without what is said to the
// assembler alone, each with the lines of |loops| that it is of.
//
// needs:  numbered loops (ir/lines.h)
// gives:  appended to |out_llvm| and |out_asm|, in cx->perm
// errors: as kiln_cpu_compile
struct kiln_lined;
kiln_status kiln_cpu_show(kiln_ctx *cx, const kiln_machine *m, kiln_loops *loops,
                          const char *symbol, struct kiln_lined *out_llvm,
                          struct kiln_lined *out_asm);

// What the instructions of |objects| need of a processor beyond the first of |m|'s architecture, by
// LLVM's names of extensions: of x86-64 what they are, in no order; of others, and where code has
// an instruction that is not known, all that |m| has.
//
// gives: *out_n names in cx->perm
const char *const *kiln_cpu_needs(kiln_ctx *cx, const kiln_machine *m, int n,
                                  const kiln_object *objects, int *out_n);

// Links objects into this process (ORC).
typedef struct kiln_jit kiln_jit;
kiln_status kiln_jit_create(kiln_ctx *cx, const kiln_machine *m, int n, const kiln_object *objects,
                            kiln_jit **out);
// errors: KILN_INTERNAL: there is none of that name
kiln_status kiln_jit_find(kiln_jit *jit, const char *symbol, kiln_diag *diag, void **out);
void kiln_jit_destroy(kiln_jit *jit);

#endif
