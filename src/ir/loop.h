// The loop level: one kernel as loops over buffers.
//
// A program is a sequence of top-level nests, run in order with a barrier between them; only the
// outermost loop of a nest may be PARALLEL. A loop bound to a block or thread axis may run its
// iterations concurrently, as on a GPU; on other targets it is a serial loop. No two nested loops
// are bound to the same axis, and no block loop is inside a thread loop. Loop variables are unique
// in a program. Expressions are ir/expr.h with LOAD's u.tensor a buffer id, one index per buffer
// axis. All of it lives in the context's perm arena and is changed only by schedule primitives.
#ifndef KILN_IR_LOOP_H
#define KILN_IR_LOOP_H

#include "ir/prim.h"

typedef enum kiln_scope {
  KILN_SCOPE_PARAM,     // memory given by the caller: a tensor of the model
  KILN_SCOPE_WORKSPACE, // arena memory, live during the kernel, shared by its nests and threads
  KILN_SCOPE_SHARED,    // memory shared by the threads of a block, live in the body of its ALLOC;
                        // like LOCAL outside of thread loops
  KILN_SCOPE_LOCAL, // memory of one thread, on its stack, live in the body of its ALLOC; outside of
                    // thread loops it is distributed over the threads of the block, each of which
                    // accesses its own part only (target/gpu/gpu.h)
                    // own part alone (target/gpu/gpu.h)
  KILN_SCOPE_REGISTER // like LOCAL, with constant indices in all accesses after unrolling: vector
                      // registers
} kiln_scope;
static inline bool kiln_scope_is_argument(kiln_scope s) {
  return s == KILN_SCOPE_PARAM || s == KILN_SCOPE_WORKSPACE;
}
static inline bool kiln_scope_is_private(kiln_scope s) { // memory of one thread
  return s == KILN_SCOPE_LOCAL || s == KILN_SCOPE_REGISTER;
}

// The layout transform of a packed constant, a PARAM: element p of the buffer is source[map(p)], or
// zero where map(p) is out of bounds. Evaluated at compile time.
typedef struct kiln_pack {
  int source;            // tensor id, a CONST
  int rank;              // rank of the source
  const kiln_expr **map; // [rank] index into the source, over the variables o0..o{buffer rank - 1}
} kiln_pack;

typedef struct kiln_buffer {
  int id;
  kiln_symbol name;
  kiln_dtype dtype;
  kiln_scope scope;
  int rank;
  int64_t extents[KILN_MAX_RANK + 4];
  int64_t strides[KILN_MAX_RANK + 4]; // in elements
  int tensor;                         // PARAM: the program's tensor; -1 otherwise
  const kiln_pack *pack;              // PARAM of a packed constant; else NULL
  // SHARED: XOR swizzle; in each group of 8 rows of 128 bytes, 16-byte chunk p of row r is stored
  // at chunk p ^ r, which avoids bank conflicts. A hint that targets may ignore.
  bool is_swizzled;
} kiln_buffer;

typedef enum kiln_loop_kind {
  KILN_LOOP_FOR,      // var from 0 to extent
  KILN_LOOP_IF,       // cond
  KILN_LOOP_STORE,    // buffer[index] = value, or combine(buffer[index], value)
  KILN_LOOP_ALLOC,    // allocates |buffer| (SHARED, LOCAL or REGISTER) for its body, uninitialized
  KILN_LOOP_INSTR,    // a tensorized instruction (kiln_instr)
  KILN_LOOP_PREFETCH, // a hint that buffer[index] will be read; the index may be out of bounds
  KILN_LOOP_DEVICE // a statement of device loops, which primitives do not see: barrier, wait, role
                   // (target/gpu/device/device.h)
} kiln_loop_kind;

typedef enum kiln_how {
  KILN_SERIAL,
  KILN_PARALLEL,
  KILN_VECTORIZED,
  KILN_UNROLLED,
  KILN_BLOCK_X,
  KILN_BLOCK_Y,
  KILN_BLOCK_Z,
  KILN_THREAD_X,
  KILN_THREAD_Y,
  KILN_THREAD_Z
} kiln_how;
static inline bool kiln_how_is_block(kiln_how h) { return h >= KILN_BLOCK_X && h <= KILN_BLOCK_Z; }
static inline bool kiln_how_is_thread(kiln_how h) { return h >= KILN_THREAD_X; }

// An annotation of a loop, for targets and readers; it does not change the loop's meaning.
typedef struct kiln_note {
  kiln_symbol key, value;
  struct kiln_note *next;
} kiln_note;

// The note that makes this many consecutive iterations of a block.x loop a thread block cluster, on
// GPUs that have them: these blocks run together and may multicast their reads.
#define KILN_CLUSTER_NOTE "cluster"
enum { KILN_MAX_CLUSTER = 8 };
static inline bool kiln_cluster_is(int64_t blocks) {
  return blocks > 0 && blocks <= KILN_MAX_CLUSTER && (blocks & (blocks - 1)) == 0;
}

// The note of warp specialization: a producer warp issues the TMA copies of the loop's blocks, or
// of a block's iterations if it is a persistent tile loop; the value is the number of consumer warp
// groups, which take a tile loop's iterations in turns (ping-pong).
#define KILN_WARP_SPECIALIZE_NOTE "warp_specialize"
enum { KILN_MAX_CONSUMERS = 2 };

// The note of staggered products, on a serial loop whose iteration has two products, the second of
// what threads make of the first's result (attention): where a GPU can, the first product of
// iteration i + 1 is begun before the second of iteration i, and runs beside the threads' work.
#define KILN_STAGGER_NOTE "stagger"

// The note of horizontal fusion, on the outermost loop of a nest: it is independent of the
// preceding nest, and a GPU launches both together.
#define KILN_HORIZONTAL_FUSION_NOTE "fuse_horizontally"

// The key of a note, given that or its earlier spelling ("crew", "beside").
const char *kiln_note_key(const char *text);

struct kiln_instr;
struct kiln_device_op;
typedef struct kiln_loop kiln_loop;
struct kiln_loop {
  kiln_loop_kind kind;
  kiln_loop *next; // next sibling
  kiln_loop *body; // first child: FOR, IF, ALLOC; of a DEVICE that is a role
  int line;        // in the text of its kernel, or of its original (ir/lines.h); 0: unknown
  int id;          // dense, while tables by node are in use; 0: it has no row there
  // FOR; of a DEVICE that is a role, 0: it has none
  kiln_symbol var;
  const kiln_expr *extent; // i64, over outer variables; usually constant
  kiln_how how;
  const kiln_note *notes; // in order of creation; shared by copies
  // IF: the condition; INSTR: where a copy reads, zeros being stored elsewhere; NULL: everywhere
  const kiln_expr *cond;
  bool is_far; // PREFETCH: into the L2 cache only
  // STORE; ALLOC uses buffer only, PREFETCH buffer and index
  int buffer;
  const kiln_expr **index; // [rank of buffer]
  const kiln_expr *value;
  kiln_combiner combiner; // NONE: plain assignment
  // INSTR
  const struct kiln_instr *instr;
  int n_operands;
  const kiln_expr **operands; // LOADs of element (_0, _1, ...) of each operand's tile (see
                              // kiln_tile_var); the first is read and written. ALLOC: a hint to
                              // primitives, the buffer's origin in the buffer of which it is a
                              // tile, for each axis at its creation; may be missing. DEVICE:
                              // its arguments, loads (of what it waits on, fills) or numbers
  // DEVICE
  const struct kiln_device_op *op;
};

typedef struct kiln_loops {
  kiln_symbol name;
  KILN_VEC(kiln_buffer *)
  buffers;         // by id; PARAMs and WORKSPACEs are the kernel's arguments, in id order
  kiln_loop *body; // the top-level nests, in order
} kiln_loops;

// The variable _0, _1, ... of axis |k| of an operand's tile in an INSTR. Loops must not use these
// names.
enum { KILN_MAX_TILE_RANK = 4 };
kiln_symbol kiln_tile_var(kiln_ctx *cx, int k);

const char *kiln_scope_text(kiln_scope s); // "param", "workspace", ...
const char *kiln_how_text(kiln_how h);     // "serial", "parallel", ..., "thread.z"

kiln_loops *kiln_loops_make(kiln_ctx *cx, const char *name);
// |strides| NULL means row-major.
kiln_buffer *kiln_buffer_make(kiln_ctx *cx, kiln_loops *l, const char *name, kiln_dtype t,
                              kiln_scope scope, int rank, const int64_t *extents,
                              const int64_t *strides);
int64_t kiln_buffer_elems(
    const kiln_buffer *b); // elements spanned: 1 + sum((extent-1)*stride), 0 if an extent is 0
kiln_loop *kiln_for_make(kiln_ctx *cx, kiln_symbol var, const kiln_expr *extent, kiln_loop *body);
kiln_loop *kiln_if_make(kiln_ctx *cx, const kiln_expr *cond, kiln_loop *body);
kiln_loop *kiln_store_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index,
                           kiln_combiner c, const kiln_expr *value);
kiln_loop *kiln_alloc_make(kiln_ctx *cx, const kiln_buffer *b, kiln_loop *body);
kiln_loop *kiln_prefetch_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index);
// A deep copy in |arena|; notes are immutable and shared.
kiln_loops *kiln_loops_copy(kiln_arena *arena, const kiln_loops *l);
// Adds copies of |from|'s buffers to |to|; |suffix| is appended to their names and to those of
// loops, and must make them unique in |to|.
//
// gives: a copy of its nests on these buffers, not yet in |to|
kiln_loop *kiln_loops_append(kiln_ctx *cx, kiln_loops *to, const kiln_loops *from,
                             const char *suffix);
// Annotates the loop; replaces a note with the same key.
void kiln_loop_annotate(kiln_ctx *cx, kiln_loop *l, const char *key, const char *value);
// The value of the loop's note |key|; NULL: none.
const char *kiln_loop_note(kiln_ctx *cx, const kiln_loop *l, const char *key);
kiln_loop *kiln_loops_find(const kiln_loops *l,
                           kiln_symbol var); // the FOR with that variable; NULL

// Text, as in
//   kernel mm { param f32 A[4, 8]:(8, 1)  param f32 C[4]:(1)  for i:4 parallel { C[i] = 0f32  for
//   k:8 { C[i] += A[i, k] } } }
// A loop's line continues with how it runs (`parallel`, `vectorized`, `unrolled`, `block.x`,
// `thread.y`, ...) and its notes, as `@key=value`.
void kiln_loops_print(kiln_ctx *cx, const kiln_loops *l, kiln_text *out);
kiln_status kiln_loops_parse(kiln_ctx *cx, const char *text, kiln_loops **out);
// The same for loops with instructions, which print as `instr NAME(C[4*i + _0, _1], A[4*i + _0])`.
// Instructions are defined by targets, above this layer: |find| looks one up by name and gives NULL
// if there is none. Printing takes the name from the first member of struct kiln_instr.
typedef const struct kiln_instr *(*kiln_instr_find)(const void *argument, const char *name);
kiln_status kiln_loops_parse_with(kiln_ctx *cx, const char *text, kiln_instr_find find,
                                  const void *argument, kiln_loops **out);
// The same for device loops, whose statements print as `mbarrier.wait(full[k % 4], phases[0])`:
// their names are the first members of struct kiln_device_op.
typedef const struct kiln_device_op *(*kiln_device_op_find)(const char *name);
kiln_status kiln_loops_parse_device(kiln_ctx *cx, const char *text, kiln_instr_find find,
                                    const void *argument, kiln_device_op_find find_op,
                                    kiln_loops **out);
// Checks that variables are unique and bound, ranks and dtypes agree, buffers are in scope, and
// PARALLEL is outermost only. KILN_INTERNAL on a violation.
kiln_status kiln_loops_verify(kiln_ctx *cx, const kiln_loops *l);

#endif
