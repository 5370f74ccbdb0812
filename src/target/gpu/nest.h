// A nest and the results of its analyses, private to GPU code generation: a table by node, tables
// of mbarriers and of tensor maps. device/lower.c turns them into device loops, in which every wait
// and copy is explicit; emit.c prints these, and reads of a nest its grid, block, addresses and
// maps.
//
// functions.c          nests as device functions, and the helpers that these need
// device/              device loops: statements, lowering, checks
// emit.c               device loops as text, statement by statement (emit.h)
// nest.c               grid and block of a launch; distributed buffers (fragments)
// vectorize.c          vectorized loops as moves of whole words and unrolled arithmetic
// sync.c               barriers
// shared_memory.c      allocation of a block's shared memory
// pipeline.c           software pipelining: asynchronous copies and wgmma groups
// tma.c, im2col.c      TMA copies; those of convolutions' windows
// multicast.c          clusters and TMA multicast
// warp_specialize.c    producer warp, consumer warp groups
// tile_loop.c          persistent tile loops of stream-K
// stagger.c            staggered products of attention
// horizontal_fusion.c  nests that share a launch
#ifndef KILN_TARGET_GPU_NEST_H
#define KILN_TARGET_GPU_NEST_H

#include "analysis/dependence.h"
#include "target/c/writer.h"
#include "target/gpu/gpu.h"
#include "target/gpu/im2col.h"

enum { KILN_TMA_RANK = 2 }; // axes of a tile that a TMA instruction copies

// The blocks of a cluster that read the same tiles: each copies some rows of them to all.
typedef struct kiln_multicast {
  int64_t n;   // 1: no multicast
  uint64_t of; // 8 bits a block, the first one's lowest: the blocks that get its copies, itself too
} kiln_multicast;

// Warp specialization: one producer warp of a block issues all TMA copies, those of |loop|'s steps,
// tile after tile. The other threads are consumers, each as many threads as the nest says, which
// take tiles in turns (ping-pong) and wait for full stages alone.
typedef struct kiln_warp_specialization {
  int64_t consumers;          // 0: no producer warp; a consumer thread issues copies
  const kiln_loop *tile_loop; // over the block's tiles; NULL: it has one
  const kiln_loop *loop;      // over the steps,
  const kiln_loop *phase;     // and their instructions
  int64_t steps, stages;      // stages of the circular buffer
  int64_t stage_bytes;        // of all buffers
  int64_t full, used;         // the stages' full and empty barriers in the arena, 8 bytes each
  bool fills_together;        // each buffer is filled, as many steps ahead as the others
} kiln_warp_specialization;

// A serial loop whose consecutive iterations belong to tiles: |first| is a tile's prologue (clears
// its sums), |last| its epilogue.
typedef struct kiln_tile_loop {
  const kiln_loop *loop, *first, *last;
} kiln_tile_loop;

typedef enum kiln_gpu_wait { KILN_WAIT_NONE, KILN_WAIT_WARP, KILN_WAIT_BLOCK } kiln_gpu_wait;

// What the analyses found of a node: a row by its id.
typedef struct kiln_gpu_found {
  kiln_gpu_wait wait; // the barrier in front of it
  // In front of it a thread commits its cp.async copies so far as a group, and waits for all but
  // the |pending| latest groups; INT32_MAX: for none.
  bool commits;
  int64_t pending;
  int64_t in_flight; // a phase of wgmma: groups, one an iteration, that may be in flight behind it
  bool drains;       // a serial loop behind which all wgmma groups are waited for
  // Deferred issue: these TMA copies, for a later stage, are issued after the instructions of the
  // phase |behind|, while these run.
  const kiln_loop *behind;
  const kiln_tile_loop *tile_loop; // whose instructions stay in flight within a tile
  bool is_edge;                    // a tile's prologue or epilogue
  const kiln_im2col *im2col;       // of a copy in im2col mode
  // A producer warp's copies fill |stage|; it waits on the stage's empty barrier in front of those
  // that lead, which are a stage's first.
  const kiln_expr *stage;
  bool leads;
  int operand; // of staggered products: which of the two reads it
} kiln_gpu_found;

// The full barriers of a buffer that TMA copies fill: in front of |use| all threads wait on that of
// |stage|.
typedef struct kiln_full_barriers {
  int buffer;
  int64_t copies; // TMA instructions that fill a stage
  int64_t stages;
  bool is_whole; // all stages are filled in front of the loop that uses them
  const kiln_loop *use;
  const kiln_expr *stage;
  int64_t at; // in the arena, 8 bytes each
  kiln_multicast multicast;
} kiln_full_barriers;

// The empty barriers of a loop over a circular buffer of |stages| stages: at an iteration's begin
// threads arrive at its barrier, and the thread that issues copies waits on the one that they
// arrived at |release_lag| iterations ago.
typedef struct kiln_empty_barriers {
  const kiln_loop *loop;
  const kiln_loop *first; // of its body
  int64_t stages;
  int64_t release_lag;
  int64_t at;     // in the arena
  int64_t fills;  // iterations that fill stages, the first ones
  uint64_t peers; // as |of| a multicast: blocks whose stages a block fills; 0: its own
} kiln_empty_barriers;

// Staggered products (stagger.c): warp groups of a block each run |loop|'s steps as consumers, and
// a producer warp issues all TMA copies.
enum { KILN_STAGGERED = 2 };
typedef struct kiln_stagger {
  const kiln_loop *loop;       // NULL: there is none
  int operand[KILN_STAGGERED]; // rows of |tma|: of what the first and the second product read
  int64_t steps, stages;
  int64_t empty; // the empty barriers of both in the arena
} kiln_stagger;

// A nest that becomes a function; its program holds no other one.
typedef struct kiln_gpu_nest {
  kiln_ctx *cx;
  const kiln_machine *m;
  kiln_loops *l;
  const char *place; // of messages
  int64_t grid[3], block[3];
  int64_t cluster;       // blocks of one, along x; 1: there are none
  int64_t n_threads;     // of a block; with warp specialization, of a consumer
  int64_t held_bytes;    // of a thread: its parts of distributed buffers
  bool is_spine;         // all statements lie in all block loops, and no loop lies around one
  int64_t *offsets;      // [buffers] of SHARED ones in the block's arena, in bytes; -1: it has none
  int64_t shared_bytes;  // of the arena
  kiln_gpu_found *found; // [nodes] by id
  int n_nodes;
  uint8_t *is_async; // [buffers] filled by asynchronous copies, which are waited for before use
  KILN_VEC(kiln_full_barriers) tma;
  KILN_VEC(kiln_empty_barriers) empties;
  kiln_warp_specialization specialized;
  kiln_stagger stagger;
  // Tensor maps of the device loops' TMA copies, by number; |arg| is a buffer.
  KILN_VEC(kiln_gpu_map) maps;
} kiln_gpu_nest;

// The row of |node|.
static inline kiln_gpu_found *kiln_gpu_found_of(const kiln_gpu_nest *n, const kiln_loop *node) {
  return &n->found[node->id];
}

kiln_status kiln_gpu_refuse(const kiln_gpu_nest *n, const char *format, ...) KILN_PRINTF(2, 3);

// Whether functions may begin while the launch before them ends (emit.c).
bool kiln_gpu_begins_early(const kiln_machine *m);

// nest.c
// Numbers the nodes, and makes their rows; keeps what was found of nodes that had one.
void kiln_gpu_nest_enumerate(kiln_gpu_nest *n);
// The axis, 0 to 2, of a loop that is bound to blocks or threads; -1: it is not.
int kiln_gpu_block_axis(const kiln_loop *l);
int kiln_gpu_thread_axis(const kiln_loop *l);
bool kiln_gpu_has_threads(const kiln_loop *list); // whether a loop in |list| is bound to threads
bool kiln_gpu_has_blocks(const kiln_loop *list);
// The number of the thread within its block in these loops: that of axes without a loop is 0.
const kiln_expr *kiln_gpu_thread_number(const kiln_gpu_nest *n, int n_loops,
                                        const kiln_loop *const *loops);
bool kiln_gpu_loads_private(const kiln_gpu_nest *n, const kiln_expr *e); // of thread-private memory
// The largest extent of |l|, which may vary with loops around it; INT64_MAX where that is unknown.
int64_t kiln_gpu_most(const kiln_gpu_nest *n, const kiln_loop *l);
// Whether |e| is uniform: has the same value in all threads of a block; |loops| are around it.
bool kiln_gpu_is_uniform(const kiln_gpu_nest *n, const kiln_expr *e, int n_loops,
                         const kiln_loop *const *loops);
// The accesses to |buffer| (-1: to any), those of warps' instructions to memory included: each of a
// warp's lanes may read all that the warp reads.
kiln_dependence_accesses kiln_gpu_touches(const kiln_gpu_nest *n, int buffer);
const kiln_expr *kiln_gpu_element_offset(const kiln_gpu_nest *n,
                                         const kiln_expr *element); // in its buffer
// Whether the tensor of a TMA copy is a matrix by its axes: columns along one, whole rows along
// the others.
bool kiln_gpu_is_matrix(const kiln_gpu_nest *n, const kiln_expr *from);
// Finds grid and block; a PARALLEL loop becomes one of blocks where there is none.
//
// errors: KILN_BAD_INPUT: an extent that varies, or more than the machine has
kiln_status kiln_gpu_nest_measure(kiln_gpu_nest *n);
// Makes arrays of distributed buffers that hold a thread's part.
//
// errors: KILN_BAD_INPUT: an access to the part of another thread
kiln_status kiln_gpu_nest_distribute(kiln_gpu_nest *n);
// Finds the coordinates of copies in im2col mode.
//
// errors: KILN_BAD_INPUT: the hardware cannot read so
kiln_status kiln_gpu_nest_im2col(kiln_gpu_nest *n);

// multicast.c
// Finds |cluster|.
//
// errors: KILN_BAD_INPUT: a number of blocks that makes no clusters of this grid
kiln_status kiln_gpu_nest_cluster(kiln_gpu_nest *n);
kiln_multicast kiln_gpu_multicast_of(const kiln_gpu_nest *n,
                                     int buffer); // of the copies that fill |buffer|

// warp_specialize.c
// Finds |specialized|'s consumers and the tile loop whose iterations they take in turns.
//
// errors: KILN_BAD_INPUT: too many consumers, or a note at a loop that cannot be a tile loop
kiln_status kiln_gpu_nest_specialize(kiln_gpu_nest *n);
// The threads of a launch's blocks, the producer warp's included.
void kiln_specialized_block(const kiln_gpu_nest *n, int64_t *out_block);
// Whether the nest can have the producer and consumers that the schedule wants.
//
// needs:  what kiln_gpu_nest_pipeline finds; |has_one_phase|: one phase of warp groups'
//         instructions, in one loop, goes on into the next iteration, and nothing is copied by
//         cp.async
// errors: KILN_BAD_INPUT: it cannot
kiln_status kiln_specialized_check(const kiln_gpu_nest *n, bool has_one_phase);
bool kiln_gpu_has_tma(const kiln_loop *l); // whether |l| holds TMA copies, siblings left out
bool kiln_gpu_is_in(const kiln_loop *list, const kiln_loop *node); // or in the loops of the list
// A bit a stage: whether the steps of a tile use it an odd number of times, which flips its parity.
uint32_t kiln_specialized_parity(const kiln_gpu_nest *n);

// stagger.c
// Finds the loop whose products are staggered, if the schedule wants one and it can be.
//
// needs:  what kiln_gpu_nest_pipeline finds
void kiln_gpu_nest_stagger(kiln_gpu_nest *n);
// The units of a staggered loop's body: phases in loops that run once; ALLOCs around them, which
// move in front of the loop.
typedef struct kiln_stagger_units {
  KILN_VEC(const kiln_loop *) phases;
  KILN_VEC(const kiln_loop *) allocs;
  int product[KILN_STAGGERED]; // rows of |phases|
  int sums, weights;           // buffers that the second product writes and reads
} kiln_stagger_units;
bool kiln_stagger_units_of(const kiln_gpu_nest *n, const kiln_loop *loop, kiln_stagger_units *out);

// tile_loop.c
// Whether |l| is a tile loop of warp groups' instructions.
//
// needs:  barriers
bool kiln_gpu_find_tile_loop(const kiln_gpu_nest *n, const kiln_loop *l, kiln_tile_loop *out);

// vectorize.c
// Lowers vectorized loops. Those that stay VECTORIZED move one aligned word of 4, 8 or 16 bytes; or
// zeros in its place, by a SELECT whose condition is the same for all lanes. All others are
// unrolled.
void kiln_gpu_nest_vectorize(kiln_gpu_nest *n);

// horizontal_fusion.c
// How many nests, |nest| the first, share a launch (horizontal fusion).
int kiln_gpu_fused_nests(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                         const kiln_loop *nest);

// shared_memory.c
int64_t kiln_gpu_shared_bytes(const kiln_buffer *b); // of a SHARED buffer
// Allocates the SHARED buffers in the block's arena; those that are not live at once may overlap.
//
// errors: KILN_BAD_INPUT: more than the machine has
kiln_status kiln_gpu_nest_allocate_shared(kiln_gpu_nest *n);

// sync.c
// Finds where threads have to wait (barriers).
//
// needs:  the offsets of SHARED buffers
// errors: KILN_BAD_INPUT: a barrier would stand in divergent control, or between blocks
kiln_status kiln_gpu_nest_sync(kiln_gpu_nest *n);

// pipeline.c
// Finds the asynchronous parts: copies by cp.async and TMA, and warp groups' instructions.
//
// needs:  barriers
// errors: KILN_BAD_INPUT: a phase mixes wgmma instructions with other statements
kiln_status kiln_gpu_nest_pipeline(kiln_gpu_nest *n);
// Whether |l| holds instructions of warp groups, siblings left out.
bool kiln_gpu_is_product(const kiln_loop *l);

#endif
