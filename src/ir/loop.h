// The loop level: one kernel as loops over buffers.
//
// A program is a sequence of top-level nests, run in order with a barrier between them; only the
// outermost loop of a nest may be PARALLEL. A loop bound to a block or thread axis may run its
// iterations at once, as a GPU does; elsewhere it is a serial loop. No two nested loops are bound
// to one axis, and no block loop lies in a thread loop. Loop variables are unique in a program.
// Expressions are ir/expr.h with LOAD's u.tensor a buffer id, one index per buffer axis. All of it
// lives in the context's perm arena and is changed only by schedule primitives.
#ifndef KILN_IR_LOOP_H
#define KILN_IR_LOOP_H

#include "ir/prim.h"

typedef enum kiln_scope {
  KILN_SCOPE_PARAM,     // memory the caller gives: a tensor of the model
  KILN_SCOPE_WORKSPACE, // memory of the arena, alive during the kernel, shared by its nests and
                        // threads
  KILN_SCOPE_SHARED,    // memory that the threads of a block share, alive in the body of its ALLOC;
                        // as LOCAL where there are no thread loops
  KILN_SCOPE_LOCAL, // memory of one thread, on its stack, alive in the body of its ALLOC; outside of
                    // thread loops: dealt out to the threads of the block, which each touch their
                    // own part alone (target/gpu/gpu.h)
  KILN_SCOPE_REGISTER // the same, and every access has constant indices once unrolled: lives in
                      // vector registers
} kiln_scope;
static inline bool kiln_scope_is_argument(kiln_scope s) {
  return s == KILN_SCOPE_PARAM || s == KILN_SCOPE_WORKSPACE;
}
static inline bool kiln_scope_is_private(kiln_scope s) { // memory of one thread
  return s == KILN_SCOPE_LOCAL || s == KILN_SCOPE_REGISTER;
}

// A PARAM that holds a constant tensor in another layout: element p of the buffer is
// source[map(p)], or zero where map(p) is outside the source. Packed once, at compile time.
typedef struct kiln_pack {
  int source;            // prim tensor id, CONST
  int rank;              // of the source
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
  int tensor;                         // PARAM: the prim tensor it holds; -1 otherwise
  const kiln_pack *pack;              // PARAM of a repacked constant; else NULL
  // SHARED: of each 8 rows of 128 bytes, from its begin, the 16 bytes at place p of row r lie at
  // place p ^ r. A hint for targets that have use for it.
  bool is_swizzled;
} kiln_buffer;

typedef enum kiln_loop_kind {
  KILN_LOOP_FOR,      // var from 0 to extent
  KILN_LOOP_IF,       // cond
  KILN_LOOP_STORE,    // buffer[index] = value, or combine(buffer[index], value)
  KILN_LOOP_ALLOC,    // buffer (SHARED, LOCAL or REGISTER) lives in the body, uninitialised
  KILN_LOOP_INSTR,    // a tensorized instruction (see kiln_instr)
  KILN_LOOP_PREFETCH, // a hint that buffer[index] will be read; the index may be out of range
  KILN_LOOP_DEVICE // a statement of device loops, which no primitive sees: a barrier, a wait, a role
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

// What a loop is annotated with, for targets and people; it changes nothing in what the loop means.
typedef struct kiln_note {
  kiln_symbol key, value;
  struct kiln_note *next;
} kiln_note;

// The note by which so many consecutive iterations of a loop of block.x are blocks of a cluster,
// where there are
// clusters: they run together, and may share what they read.
#define KILN_CLUSTER_NOTE "cluster"
enum { KILN_MAX_CLUSTER = 8 };
static inline bool kiln_cluster_is(int64_t blocks) {
  return blocks > 0 && blocks <= KILN_MAX_CLUSTER && (blocks & (blocks - 1)) == 0;
}

// The note of warp specialization: a producer warp issues the TMA copies of the loop's blocks, or
// of a block's iterations of the loop (a tile loop); its value is the number of consumers, which
// take the iterations of a tile loop in turns.
#define KILN_WARP_SPECIALIZE_NOTE "crew"
enum { KILN_MAX_CONSUMERS = 2 };

// The note, on the outermost loop of a nest, by which it may run at the same time as the nest in
// front of it: neither needs anything of the other, and a GPU launches both at once.
#define KILN_HORIZONTAL_FUSION_NOTE "beside"

struct kiln_instr;
struct kiln_device_op;
typedef struct kiln_loop kiln_loop;
struct kiln_loop {
  kiln_loop_kind kind;
  kiln_loop *next; // following sibling
  kiln_loop *body; // first child: FOR, IF, ALLOC; of a DEVICE that is a role
  int line; // in the text of the kernel that it is in, or was copied from (ir/lines.h); 0: not said
  // FOR; of a DEVICE that is a role, 0: it has none
  kiln_symbol var;
  const kiln_expr *extent; // i64, over outer variables; ordinarily a constant
  kiln_how how;
  const kiln_note *notes; // in the order in which they were made; shared by copies
  // IF; INSTR: where a copy reads, elsewhere it is zero, NULL: everywhere
  const kiln_expr *cond;
  bool is_far; // PREFETCH: it is not needed soon, the L2 is near enough
  // STORE; ALLOC uses buffer only, PREFETCH buffer and index
  int buffer;
  const kiln_expr **index; // [rank of buffer]
  const kiln_expr *value;
  kiln_combiner combiner; // NONE: plain assignment
  // INSTR
  const struct kiln_instr *instr;
  int n_operands;
  const kiln_expr **operands; // LOADs of element (_0, _1, ...) of each operand's tile (see
                              // kiln_tile_var); the first is read and written
                              // ALLOC: where the buffer begins in what it is a part of, for each
                              // axis it had when it was placed; a hint to primitives, or none
      // DEVICE: its arguments, loads (of what it waits on, fills) or numbers
  // DEVICE
  const struct kiln_device_op *op;
};

typedef struct kiln_loops {
  kiln_symbol name;
  KILN_VEC(kiln_buffer *)
  buffers;         // by id; the PARAMs and WORKSPACEs are the kernel's arguments, in id order
  kiln_loop *body; // the top-level nests, in order
} kiln_loops;

// The variable _0, _1, ... that counts along axis |k| of an operand's tile in an INSTR. No loop may
// have such a name.
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
// A deep copy in |arena|, but for notes, which never change.
kiln_loops *kiln_loops_copy(kiln_arena *arena, const kiln_loops *l);
// Adds a copy of |from|'s buffers to |to|, their names and those of its loops with |suffix|, which
// makes them others than
// |to| has.
//
// gives: a copy of its nests over these, which are not in |to| yet
kiln_loop *kiln_loops_append(kiln_ctx *cx, kiln_loops *to, const kiln_loops *from,
                             const char *suffix);
// Gives the loop a note; it replaces one with the same key.
void kiln_loop_annotate(kiln_ctx *cx, kiln_loop *l, const char *key, const char *value);
// The value of the loop's note |key|; NULL: it has none.
const char *kiln_loop_note(kiln_ctx *cx, const kiln_loop *l, const char *key);
kiln_loop *kiln_loops_find(const kiln_loops *l,
                           kiln_symbol var); // the FOR with that variable; NULL

// Text, as in
//   kernel mm { param f32 A[4, 8]:(8, 1)  param f32 C[4]:(1)  for i:4 parallel { C[i] = 0f32  for
//   k:8 { C[i] += A[i, k] } } }
// A loop's line goes on with how it runs (`parallel`, `vectorized`, `unrolled`, `block.x`,
// `thread.y`, ...) and its notes, as in `@key=value`.
void kiln_loops_print(kiln_ctx *cx, const kiln_loops *l, kiln_text *out);
kiln_status kiln_loops_parse(kiln_ctx *cx, const char *text, kiln_loops **out);
// The same for loops with instructions, which print as `instr NAME(C[4*i + _0, _1], A[4*i + _0])`.
// This floor does not know the targets' instructions: |find| gives the one of that name, NULL when
// there is none. Printing takes the name from the first member of struct kiln_instr.
typedef const struct kiln_instr *(*kiln_instr_find)(const void *argument, const char *name);
kiln_status kiln_loops_parse_with(kiln_ctx *cx, const char *text, kiln_instr_find find,
                                  const void *argument, kiln_loops **out);
// The same for device loops, whose statements print as `mbarrier.wait(full[k % 4], phases[0])`:
// their names are the first members of struct kiln_device_op.
typedef const struct kiln_device_op *(*kiln_device_op_find)(const char *name);
kiln_status kiln_loops_parse_device(kiln_ctx *cx, const char *text, kiln_instr_find find,
                                    const void *argument, kiln_device_op_find find_op,
                                    kiln_loops **out);
// Checks: variables unique and bound, ranks and dtypes, buffers in scope, PARALLEL only outermost.
// KILN_INTERNAL on a breach.
kiln_status kiln_loops_verify(kiln_ctx *cx, const kiln_loops *l);

#endif
