// The GPU emitter's private parts.
//
// functions.c nests as functions, and what these need besides
// emit.c    what stands in them (emit.h)
// nest.c    what a nest asks of a launch; distributed buffers
// lanes.c   vectorized loops as moves of whole words and unrolled arithmetic
// sync.c    barriers
// arena.c   the shared memory of a block
// ahead.c   copies to shared memory, and instructions, that go on while the threads do
// cluster.c boxes that blocks share
// crew.c    boxes that a warp of its own asks for
// window.c  boxes of convolutions' windows
// beside.c  nests that share a launch
// runs.c    loops that go through one tile after the other
#ifndef KILN_TARGET_GPU_NEST_H
#define KILN_TARGET_GPU_NEST_H

#include "analysis/dependence.h"
#include "target/c/writer.h"
#include "target/gpu/gpu.h"
#include "target/gpu/window.h"

enum { KILN_BOX_RANK = 2 }; // axes of a box

// The blocks of a cluster that read the same boxes.
typedef struct kiln_sharers {
  int64_t n; // 1: each reads others
  uint64_t
      of; // 8 bits a block, the first one's lowest: those that share its boxes, itself among them
} kiln_sharers;

// A block of which one warp does nothing but ask for boxes, those of |loop|'s steps, tile after
// tile; its other threads are teams of as many as the nest says, which take tiles in turns and
// never wait for the one that asks.
typedef struct kiln_crew {
  int64_t teams;          // 0: threads ask themselves
  const kiln_loop *turns; // the loop over the block's tiles; NULL: it has one
  const kiln_loop *loop;  // over the steps,
  const kiln_loop *phase; // and their instructions
  int64_t steps, slots;   // slots of each buffer that boxes fill
  int64_t slot_bytes;     // of all buffers
  int64_t full, used;     // the slots' barriers in the arena, 8 bytes each
  // Nodes that ask for a slot's boxes; in front of those that lead, which are the first to, it must
  // be free.
  KILN_VEC(struct {
    const kiln_loop *node;
    const kiln_loop *around;
    int buffer;
    const kiln_expr *slot;
    bool leads;
  })
  fills;
} kiln_crew;

// A serial loop of which some consecutive iterations are a run: |first| is what its first one does
// before all else but fills, and |last| what its last one does after all else.
typedef struct kiln_runs {
  const kiln_loop *loop, *first, *last;
} kiln_runs;

typedef enum kiln_gpu_wait { KILN_WAIT_NONE, KILN_WAIT_WARP, KILN_WAIT_BLOCK } kiln_gpu_wait;

// A nest that becomes a function. It is its program's only one while it is looked at.
typedef struct kiln_gpu_nest {
  kiln_ctx *cx;
  const kiln_machine *m;
  kiln_loops *l;
  const char *place; // of messages
  int64_t grid[3], block[3];
  int64_t cluster;      // blocks of one, along x; 1: there are none
  int64_t n_threads;    // of a block; of a crew, a team
  int64_t held_bytes;   // of a thread: its parts of what is dealt out
  bool is_spine;        // all statements lie in all block loops, and no loop lies around one
  int64_t *offsets;     // [buffers] of SHARED ones in the block's arena, in bytes; -1: it has none
  int64_t shared_bytes; // of the arena
  // Statements and loops that the threads of a warp or a block wait for each other in front of.
  KILN_VEC(struct {
    const kiln_loop *node;
    kiln_gpu_wait wait;
  })
  waits;
  uint8_t *is_ahead; // [buffers] whether copies to it are not waited for until they are used
  // Statements in front of which a thread closes a group of such copies, and waits for all but
  // |pending| groups.
  KILN_VEC(struct {
    const kiln_loop *node;
    int64_t pending; // INT32_MAX: for none
  })
  groups;
  // Phases of warp groups' instructions: how many iterations' of them, this one's included, may go
  // on behind it.
  KILN_VEC(struct {
    const kiln_loop *node;
    int64_t pending;
  })
  products;
  // Serial loops behind which such instructions are waited for.
  KILN_VEC(const kiln_loop *) drains;
  // Buffers that are filled by boxes: in front of |use| all threads wait for those of slot |slot|.
  KILN_VEC(struct {
    int buffer;
    int64_t boxes; // of a slot
    int64_t slots;
    bool is_whole; // all slots are filled in front of the loop that uses them
    const kiln_loop *use;
    const kiln_expr *slot;
    int64_t at; // of the slots' barriers in the arena, 8 bytes each
    kiln_sharers sharers;
  })
  boxes;
  // Loops at whose begin threads pass |slots| barriers in turns, and only the one that asks for
  // boxes waits: until all have begun |lag| iterations before.
  KILN_VEC(struct {
    const kiln_loop *loop;
    int64_t slots;
    int64_t lag;
    int64_t at;     // as of boxes
    int64_t fills;  // iterations that fill slots, the first ones
    uint64_t peers; // as of sharers: the blocks whose slots a block fills; 0: its own alone
  })
  passes;
  // Copies of windows, and how they are asked for.
  KILN_VEC(struct {
    const kiln_loop *node;
    kiln_gpu_window window;
  })
  windows;
  // What fills slots by boxes may be asked for behind the instructions of the phase |behind|, while
  // these go on.
  KILN_VEC(struct {
    const kiln_loop *fill;
    const kiln_loop *behind;
  })
  lates;
  // Loops whose instructions go on within a run, and are waited for behind it.
  KILN_VEC(kiln_runs) runs;
  kiln_crew crew;
} kiln_gpu_nest;

kiln_status kiln_gpu_refuse(const kiln_gpu_nest *n, const char *format, ...) KILN_PRINTF(2, 3);

// nest.c
// The axis, 0 to 2, of a loop that is bound to blocks or threads; -1: it is not.
int kiln_gpu_block_axis(const kiln_loop *l);
int kiln_gpu_thread_axis(const kiln_loop *l);
bool kiln_gpu_has_threads(const kiln_loop *list); // whether a loop in |list| is bound to threads
bool kiln_gpu_has_blocks(const kiln_loop *list);
// The number of the thread within its block in these loops: that of axes without a loop is 0.
const kiln_expr *kiln_gpu_thread_number(const kiln_gpu_nest *n, int n_loops,
                                        const kiln_loop *const *loops);
bool kiln_gpu_loads_private(const kiln_gpu_nest *n, const kiln_expr *e); // what a thread has alone
// Whether all threads of a block agree on what |e| is, |loops| around it.
bool kiln_gpu_is_uniform(const kiln_gpu_nest *n, const kiln_expr *e, int n_loops,
                         const kiln_loop *const *loops);
// The accesses to |buffer| (-1: to any), those of warps' instructions to memory included: each of a
// warp's lanes may read all that the warp reads.
kiln_touches kiln_gpu_touches(const kiln_gpu_nest *n, int buffer);
const kiln_expr *kiln_gpu_place(const kiln_gpu_nest *n, const kiln_expr *element); // in its buffer
// Whether what a box is copied from is a matrix by its axes: columns along one, whole rows along
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
// Finds how copies of windows are asked for.
//
// errors: KILN_BAD_INPUT: the hardware has no such windows
kiln_status kiln_gpu_nest_windows(kiln_gpu_nest *n);

// cluster.c
// Finds |cluster|.
//
// errors: KILN_BAD_INPUT: a number of blocks that makes no clusters of this grid
kiln_status kiln_gpu_nest_cluster(kiln_gpu_nest *n);
kiln_sharers kiln_gpu_sharers(const kiln_gpu_nest *n,
                              int buffer); // of the boxes that fill |buffer|

// crew.c
// Finds |crew|'s teams and the loop whose iterations they take in turns.
//
// errors: KILN_BAD_INPUT: a number of teams, or a loop, that a note alone has made a crew's
kiln_status kiln_gpu_nest_crew(kiln_gpu_nest *n);
// The threads of a launch's blocks.
void kiln_crew_block(const kiln_gpu_nest *n, int64_t *out_block);
// Whether the crew can be what the schedule asks for.
//
// needs:  boxes, products and drains
// errors: KILN_BAD_INPUT: it cannot
kiln_status kiln_crew_check(const kiln_gpu_nest *n);
bool kiln_gpu_has_boxes(const kiln_loop *l); // whether |l| asks for boxes, siblings left out
bool kiln_gpu_is_in(const kiln_loop *list, const kiln_loop *node); // or in the loops of the list
// Whether the steps of a tile use slot |slot| an odd number of times, a bit each.
uint32_t kiln_crew_flips(const kiln_gpu_nest *n);

// runs.c
// Whether |l| is a loop in runs of warp groups' instructions.
//
// needs:  barriers
bool kiln_gpu_find_runs(const kiln_gpu_nest *n, const kiln_loop *l, kiln_runs *out);
const kiln_runs *kiln_gpu_runs_of(const kiln_gpu_nest *n, const kiln_loop *loop); // NULL: none
bool kiln_gpu_is_edge(const kiln_gpu_nest *n, const kiln_loop *node); // a run's first or last

// lanes.c
// Replaces vectorized loops: those that are left VECTORIZED hold one copy of elements that lie side
// by side on both sides, 4, 8 or 16 bytes at an address that is a multiple of as many; or of zeros
// in their place, by a SELECT that does not depend on the lane's number. All others are unrolled.
void kiln_gpu_nest_pack(kiln_gpu_nest *n);

// beside.c
// How many nests, |nest| the first, share a launch.
int kiln_gpu_beside(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                    const kiln_loop *nest);

// arena.c
int64_t kiln_gpu_shared_bytes(const kiln_buffer *b); // of a SHARED buffer's place
// Places the SHARED buffers: those that are not alive at once may lie in the same place.
//
// errors: KILN_BAD_INPUT: more than the machine has
kiln_status kiln_gpu_nest_place(kiln_gpu_nest *n);

// sync.c
// Finds where threads have to wait.
//
// needs:  the places of SHARED buffers
// errors: KILN_BAD_INPUT: threads would have to wait where not all of them come, or blocks for each
//         other
kiln_status kiln_gpu_nest_sync(kiln_gpu_nest *n);
kiln_gpu_wait kiln_gpu_wait_of(const kiln_gpu_nest *n, const kiln_loop *node);

// ahead.c
// Finds buffers whose copies need not be waited for where they are issued: is_ahead and groups; and
// instructions of warp groups that need not: products, drains and runs; boxes, and the barriers in
// front of their fills: passes.
//
// needs:  barriers
// errors: KILN_BAD_INPUT: a phase has such instructions and statements
kiln_status kiln_gpu_nest_ahead(kiln_gpu_nest *n);
// Whether |l| holds instructions of warp groups, siblings left out.
bool kiln_gpu_is_product(const kiln_loop *l);

#endif
