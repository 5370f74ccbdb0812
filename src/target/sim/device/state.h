// The state of a launch whose device loops are simulated. Private to target/sim/device.
//
// report.c     messages
// memory.c     elements of memory, and the checks of each access
// instr.c      instructions of warps and warp groups
// copy.c       asynchronous copies
// tensor_map.c tensor maps
// words.c      alignment of what is accessed at once; registers
// mbarrier.c   mbarriers
// phase.c      statements in which no thread waits
// thread.c     the threads of a warp: their places, waits, clocks
// control.c    loops, conditions, roles and tiles around statements that wait
// statement.c  barriers, fences, commits, waits
// warp.c       warps in turns
// launch.c     launches
#ifndef KILN_TARGET_SIM_DEVICE_STATE_H
#define KILN_TARGET_SIM_DEVICE_STATE_H

#include "target/gpu/device/device.h"
#include "target/sim/clock.h"
#include "target/sim/device.h"
#include "target/sim/eval.h"

enum {
  SIM_MAX_FRAMES = 128,
  SIM_MAX_NAMED = 16,
  SIM_MAX_GROUP = 128 // threads of an instruction
};
enum {
  SIM_MAX_COORDINATES = 6,
  SIM_SWIZZLE_SPAN = 128,   // bytes of a row of swizzled shared memory
  SIM_SWIZZLE_PERIOD = 1024 // and of those that repeat
};
enum { SIM_THREADS = 1, SIM_BLOCKS = 8 }; // the first bit of |bound|, of axis x

// A list of statements that a warp goes through; frames are its control stack.
typedef struct sim_frame {
  const kiln_loop *next;
  const kiln_loop *owner; // whose body it is
  int64_t i, extent;      // of a serial loop
  uint8_t *was_on;        // threads on before it; NULL: the same
  int64_t row, rows;      // of the role around
  bool is_single;
} sim_frame;

// Where a warp waits.
typedef enum sim_wait {
  SIM_READY,
  SIM_AT_BLOCK,
  SIM_AT_CLUSTER,
  SIM_AT_NAMED,
  SIM_AT_MBARRIER,
  SIM_AT_GROUP,
  SIM_DONE
} sim_wait;

typedef struct sim_warp {
  int first, n, block; // threads; of the cluster
  sim_frame frames[SIM_MAX_FRAMES];
  int depth;
  sim_wait wait;
  const kiln_loop *at; // that it waits at
  int64_t id;          // of the named barrier or mbarrier
  int64_t count;       // threads of it; or the phase that must be over
  int64_t row, rows;   // of its role; |rows| 0: it has none
  int64_t group;
  bool is_single; // the role is one thread, the warp's first
  unsigned bound; // axes of threads and blocks that loops around bind
} sim_warp;

typedef struct sim_mbarrier {
  sim_event made;                // by the block's first thread
  int64_t count, arrived, bytes; // of a phase; in this one; that copies still owe
  int64_t done;                  // phases
  int32_t *sofar, *known;        // clocks of the arrived: in this phase, in completed ones
} sim_mbarrier;

typedef struct sim_named_barrier {
  int64_t arrived, count;
  int32_t *known;
} sim_named_barrier;

// A copy that has not landed.
typedef struct sim_flight {
  const kiln_loop *by;
  int thread;          // that committed its group (cp.async); -1: it arrives at |mbarrier|
  int32_t group;       // its number
  int mbarrier, space; // the block that gets it
  int n, buffer;
  int64_t *elements;
  kiln_constant *values;
  bool is_over;
} sim_flight;

// An element of a thread's own memory.
typedef struct sim_own {
  int32_t run;      // of a cluster of blocks, in which what follows happened
  int32_t stamp;    // the thread's wgmma fences when it was written, plus 1
  sim_event sums;   // the instruction that adds to it
  sim_event reader; // the last one that reads it
} sim_own;

// A buffer: shared memory of each block, the caller's, or each thread's.
typedef struct sim_memory {
  const kiln_buffer *b;
  int64_t elems, offset; // |offset| in the arena
  int64_t own_bytes;     // from a group of consumers to the next, which has its own; 0: none has
  char *data;            // [copies][elems]
  sim_place *places;     // of the caller's, where the kernel writes it; NULL
  sim_own *own;          // [threads][elems] of a thread's
} sim_memory;

// An element of an operand's tile, while the instruction is computed: each is read from memory
// once, and written once, behind all.
typedef struct sim_tile_element {
  int64_t instr; // the number of the instruction, in whose run it is known; 0: none
  bool is_new;   // must be written
  kiln_constant value;
} sim_tile_element;

// The lane that holds an element of an operand's tile, and its place there.
typedef struct sim_fragment {
  bool is_known;
  int lane, place;
} sim_fragment;

// Those of an instruction's operands; NULL: memory holds them.
typedef struct sim_fragments {
  const kiln_expr *lane_of[KILN_MAX_OPERANDS], *place_of[KILN_MAX_OPERANDS];
  sim_fragment *at[KILN_MAX_OPERANDS];
} sim_fragments;

// A running launch: one cluster of blocks at a time.
typedef struct sim_device {
  sim m; // the first: loads find the others
  const kiln_loops *l;
  const kiln_sim_launch *launch;
  sim_memory *cells;
  int n_threads, n_block_threads, n_blocks, n_warps;
  int32_t run; // number of the cluster
  int64_t arena_bytes;
  int unit;         // bytes of a place of the arena: of its least element
  sim_place *arena; // [blocks][units]
  char *shared;     // [blocks][bytes]
  int64_t *vars;    // [threads][n_vars]
  uint8_t *group;   // [threads]: the number of its group of consumers
  uint8_t *on;      // [threads]: is active in all thread loops around
  sim_warp *warps;
  sim_clocks clocks;
  sim_mbarrier *mbarriers; // [blocks][max_mbarriers]
  int max_mbarriers;
  bool *map_is_right;              // [maps] of the launch: checked
  bool has_copies;                 // cp.async
  int first_group, first_mbarrier; // clocks, behind threads' and their copies'
  int *mbarrier_at;                // [buffers] of the block's
  sim_named_barrier *named;        // [blocks][SIM_MAX_NAMED]
  int32_t *commits, *fences, *group_commits, *group_fences; // [threads]
  KILN_VEC(sim_flight) flights;
  int64_t block0[3];
  int t;               // the thread that computes
  int space;           // the block whose shared memory it accesses
  const kiln_loop *by; // its statement
  int clock;           // whose access it is: its own clock, or an agent's
  int32_t time;
  bool is_async;
  kiln_symbol tile_vars[KILN_MAX_TILE_RANK];  // of operands
  const kiln_loop *instr;                     // whose meaning is computed; NULL
  int lanes;                                  // first thread of those that do
  const kiln_expr **lane_of, **place_of;      // [operands]
  sim_fragment **fragment;                    // [operands][elements of its tile], of threads'
  sim_tile_element *tiles[KILN_MAX_OPERANDS]; // [n_tile] of the instruction that runs
  int64_t n_tile[KILN_MAX_OPERANDS];
  int64_t n_instrs;          // that ran so far
  kiln_sim_traffic *traffic; // NULL: it is not counted
  kiln_map fragments;        // by instruction: its sim_fragments
  kiln_map sizes;            // by statement: the threads of its instructions
} sim_device;

static inline bool sim_is_private(const sim_memory *c) {
  return kiln_scope_is_private(c->b->scope);
}

static inline sim_event sim_event_of(const sim_device *d) {
  return (sim_event){d->clock, d->time, d->by};
}

// The clock of the instructions of the warp group that begins with |thread|.
static inline int sim_agent_of_group(const sim_device *d, int thread) {
  return d->first_group + thread / SIM_MAX_GROUP;
}
// The clock of the copies of |thread|.
static inline int sim_agent_of_copies(const sim_device *d, int thread) {
  return d->n_threads + thread;
}

static inline int sim_n_active(const sim_warp *w) { return w->is_single ? 1 : w->n; }
#define SIM_FAIL(d, ...) kiln_sim_fail(&(d)->m, __VA_ARGS__)

// report.c
// The line of a statement, without its body.
const char *sim_text_of(sim_device *d, const kiln_loop *by);
void sim_fail_race(sim_device *d, const sim_memory *c, int64_t element, bool writes,
                   const sim_event *other);

// memory.c
// The byte of an element of shared memory in the arenas of all blocks.
int64_t sim_shared_byte(const sim_device *d, const sim_memory *c, int64_t element);
// The first element of thread |t|'s copy of |c|; of the shared memory of block |d->space|.
char *sim_data_of(sim_device *d, const sim_memory *c, int thread);
// Checks an access against races, fences and copies in flight.
void sim_check(sim_device *d, const sim_memory *c, int64_t element, bool writes);
// The element of |c| at |index|, checked; arbitrary after an error.
int64_t sim_element_of(sim_device *d, const sim_memory *c, const kiln_expr *const *index);
// Reads an element; half types become f32.
kiln_constant sim_fetch(sim_device *d, const sim_memory *c, int64_t element);
// Writes without a check.
void sim_set(sim_device *d, const sim_memory *c, int64_t element, kiln_constant v);
void sim_count(sim_device *d, const sim_memory *c, bool writes); // the bytes of an access
// Writes |v|. Overlapping tiles write equal values again, which is no race.
void sim_store(sim_device *d, const sim_memory *c, int64_t element, kiln_constant v);
// Thread |thread| computes from now on, in the statement |by|.
void sim_become(sim_device *d, int thread, const kiln_loop *by);

// instr.c
// The value of a load, as expressions are evaluated (sim.load).
kiln_constant sim_load(sim *m, const kiln_expr *e);
// Finds |lane_of|, |place_of| and |fragment| of the instruction's operands.
void sim_find_fragments(sim_device *d, const kiln_instr *instr);
// Makes room for the operands of instructions in |l| and its siblings.
void sim_make_tiles(sim_device *d, const kiln_loop *l);
// An instruction of the threads from |first| on.
void sim_run_instr(sim_device *d, const kiln_loop *l, int first);

// copy.c
// copy.async of thread |t|
void sim_begin_copy(sim_device *d, const kiln_loop *l, int t);
// A TMA copy of thread |t|, to the mbarrier that is its third operand; with multicast of some rows,
// to all blocks that share them.
void sim_begin_tma(sim_device *d, const kiln_loop *l, int t);
// copy.wait(|latest|)
void sim_end_copies(sim_device *d, const sim_warp *w, int64_t latest);
// Lands one TMA copy in flight, as no warp can go on without it.
bool sim_land_one(sim_device *d);

// tensor_map.c
// Where a copy begins in its tensor map: column, row; or in im2col mode channel, column, row, image
// of the first window, and the offset within windows.
typedef struct sim_map_corner {
  int64_t at[SIM_MAX_COORDINATES];
} sim_map_corner;
// The tensor map of the copy |l|, checked; NULL: it has none, or an error.
const kiln_gpu_map *sim_map_of(sim_device *d, const kiln_loop *l);
// Checks the coordinates of the copy |l| by |m|; false after an error.
bool sim_find_corner(sim_device *d, const kiln_loop *l, const kiln_gpu_map *m, sim_map_corner *out);
// The element that the hardware reads at a place of the box; -1: it writes zero.
int64_t sim_element_in_map(const kiln_gpu_map *m, const sim_map_corner *c, int64_t row,
                           int64_t column);
// Checks where the copy |l| writes, from |element| on, rows of so many columns.
bool sim_check_tma_target(sim_device *d, const kiln_loop *l, const sim_memory *to, int64_t element,
                          int64_t columns);

// words.c
// Checks that the words which the vectorized loop |l| moves are aligned in both memories.
void sim_check_words(sim_device *d, const kiln_loop *l);
// Checks that an access of |bytes| at |element| of |c| is aligned.
void sim_check_word(sim_device *d, const sim_memory *c, int64_t element, int64_t bytes);
// Checks the rows, or the descriptor, of an instruction's operand in memory.
void sim_check_operand(sim_device *d, int operand);
// Checks that the registers which roles set fit.
void sim_check_registers(sim_device *d);

// mbarrier.c
// The number of the mbarrier |e| among all.
int sim_mbarrier_of(sim_device *d, const kiln_expr *e);
// Ends a phase, if all have arrived and all bytes have landed.
void sim_complete(sim_device *d, sim_mbarrier *m);
// One arrival at mbarrier |at|, behind which are threads |first| to |first| + |n| - 1.
void sim_arrive(sim_device *d, const kiln_loop *l, int at, int first, int n);
void sim_expect(sim_device *d, const kiln_loop *l, int t);
void sim_arrive_cluster(sim_device *d, const sim_warp *w, const kiln_loop *l);
void sim_make_mbarriers(sim_device *d, const sim_warp *w, const kiln_loop *l);
void sim_set_phases(sim_device *d, const sim_warp *w, const kiln_loop *l);
void sim_wait_mbarrier(sim_device *d, sim_warp *w, const kiln_loop *l);
// Lets a warp go on whose phase is over; whether it does.
bool sim_release_mbarrier(sim_device *d, sim_warp *w);

// phase.c
// Whether |l| is a statement in which no thread waits.
bool sim_is_phase_op(const kiln_loop *l);
// Whether |l| holds no waits, siblings left out.
bool sim_is_leaf(const kiln_loop *l);
// The threads that carry out an instruction in |l| together.
int sim_group_size(sim_device *d, const kiln_loop *l);
// Runs |l| by the threads |first| to |first| + |n| - 1 that are active.
void sim_run_leaf(sim_device *d, const sim_warp *w, const kiln_loop *l, int first, int n);

// thread.c
// The place of a thread along an axis, in its role; of its block in the grid.
int64_t sim_coordinate(const sim_device *d, const sim_warp *w, int thread, int axis);
int64_t sim_block_at(const sim_device *d, int thread, int axis);
// The value of an argument of the statement |l|.
int64_t sim_argument(sim_device *d, const sim_warp *w, const kiln_loop *l, int argument);
void sim_wait_at(sim_warp *w, sim_wait kind, const kiln_loop *l, int64_t id, int64_t count);
// What threads that waited know now.
void sim_learn(sim_device *d, const sim_warp *w, const int32_t *known);

// control.c
// Loops, conditions and allocations around statements that wait: begins one, or passes it.
void sim_enter(sim_device *d, sim_warp *w, const kiln_loop *l);
void sim_enter_tiles(sim_device *d, sim_warp *w, const kiln_loop *l);
void sim_enter_role(sim_device *d, sim_warp *w, const kiln_loop *l);
// role.first() by the block's first thread.
void sim_enter_first(sim_device *d, sim_warp *w, const kiln_loop *l);
// The end of a list: its next iteration, or the statement behind it.
void sim_leave(sim_device *d, sim_warp *w);

// statement.c
void sim_run_device(sim_device *d, sim_warp *w, const kiln_loop *l);

// warp.c
// Runs all warps until they are done.
void sim_run_cluster(sim_device *d);

#endif
