// Device loops: a nest as the function that a GPU runs, with every barrier, wait and asynchronous
// copy explicit.
//
// They are loops (ir/loop.h) with statements of kind KILN_LOOP_DEVICE, which all threads of a block
// run at once. In a thread loop, thread t runs iteration t, if there is one, without waiting. A
// phase is a thread loop with no other in it, or a statement outside of thread loops, which is run
// by the first thread along each axis that no loop around binds. The rest is uniform control, which
// every thread goes through, its DEVICE statements too. Only barriers order the accesses of two
// threads.
//
// statement                            does
// barrier.block()                      waits for all threads of the block
// barrier.warp()                       for those of the warp
// barrier.sync(ID, THREADS)            for so many threads at the named barrier
// barrier.arrive(ID, THREADS)          arrives there without waiting
// cluster.sync()                       waits for all threads of the cluster
// fence.async()                        makes the thread's writes to shared memory visible to TMA
//                                      and to instructions of warp groups
// fence.cluster()                      makes initialised mbarriers visible to the cluster
// launch.wait()                        waits for the launches before this one
// copy.async(TO, FROM) [where COND]    begins a copy of 16 bytes to shared memory; zeros where COND
//                                      does not hold. It lands at any time until a copy.wait
// copy.commit()                        makes a group of the thread's copies since the last one
// copy.wait(N)                         waits for all of the thread's groups but the N latest
// mbarrier.init(M, N, COUNT)           makes N mbarriers from M on, of COUNT arrivals a phase
// mbarrier.arrive(M)                   arrives, once a warp
// mbarrier.expect(M, BYTES)            arrives, and the phase lasts until copies of so many bytes
//                                      have landed
// mbarrier.wait(M, PHASES)             waits for the phase of the parity of PHASES' bit for M, and
//                                      flips the bit
// mbarrier.await(M, PARITY)            waits for the phase of that parity
// wgmma.fence()                        orders the thread's writes before the next instructions of
//                                      its warp group
// wgmma.commit()                       makes a group of the warp group's instructions
// wgmma.wait(N)                        waits for all groups but the N latest
// registers.set(N)                     at the begin of a role: gives each thread of its rows N
//                                      registers (setmaxnreg)
// role.consumers V(ROW, ROWS, N) {..}  is run by N groups of ROWS rows of threads (y) from ROW on,
//                                      group V; rows are counted from the group's first one
// role.producer(ROW) {..}              is run by the first thread of row ROW
// role.first() {..}                    is run by the block's first thread
// role.leaders() {..}                  is run by the first thread along x of each warp
// role.warp(N) {..}                    is run by those of warp N along x
// maps.fetch()                         prefetches the tensor maps
// mbarrier.phases(PHASES, BITS)        sets the thread's parities
// mbarrier.flip(PHASES, BITS)          flips those of so many bits
// mbarrier.init.cluster(M, N, COUNT, PEERS)  the same, of COUNT arrivals from each block in PEERS
// mbarrier.arrive.cluster(M, PEERS)    arrives at M in each block in PEERS
// wgmma.settle(SUMS)                   keeps reads of the sums behind the loop in front of it
// wgmma.take(TO, FROM)                 copies the thread's FROM to TO, operands of its next
//                                      instructions, no sooner than the wait in front of it
// tiles V(FIRST, END, STEP) {..}       is a loop over tiles, from FIRST on
// tile.steps B() where COND {..}       goes on with the V of the loop of tiles around, B at its
//                                      begin, until COND holds behind a step
// An mbarrier is an element of a u64 buffer in shared memory, PHASES a u32 of the thread. PEERS has
// 8 bits for each block of a cluster, the first one's lowest: the blocks that are meant in it. A
// TMA instruction has the mbarrier that it lands at as its third operand, and PEERS that get its
// rows as a fourth.
#ifndef KILN_TARGET_GPU_DEVICE_DEVICE_H
#define KILN_TARGET_GPU_DEVICE_DEVICE_H

#include "ir/loop.h"

typedef enum kiln_device_kind {
  KILN_DEVICE_BARRIER_BLOCK,
  KILN_DEVICE_BARRIER_WARP,
  KILN_DEVICE_BARRIER_SYNC,
  KILN_DEVICE_BARRIER_ARRIVE,
  KILN_DEVICE_CLUSTER_SYNC,
  KILN_DEVICE_FENCE_ASYNC,
  KILN_DEVICE_FENCE_CLUSTER,
  KILN_DEVICE_LAUNCH_WAIT,
  KILN_DEVICE_COPY_ASYNC,
  KILN_DEVICE_COPY_COMMIT,
  KILN_DEVICE_COPY_WAIT,
  KILN_DEVICE_MBARRIER_INIT,
  KILN_DEVICE_MBARRIER_ARRIVE,
  KILN_DEVICE_MBARRIER_EXPECT,
  KILN_DEVICE_MBARRIER_WAIT,
  KILN_DEVICE_MBARRIER_AWAIT,
  KILN_DEVICE_WGMMA_FENCE,
  KILN_DEVICE_WGMMA_COMMIT,
  KILN_DEVICE_WGMMA_WAIT,
  KILN_DEVICE_REGISTERS_SET,
  KILN_DEVICE_ROLE_CONSUMERS,
  KILN_DEVICE_ROLE_PRODUCER,
  KILN_DEVICE_ROLE_FIRST,
  KILN_DEVICE_ROLE_LEADERS,
  KILN_DEVICE_ROLE_WARP,
  KILN_DEVICE_MAPS_FETCH,
  KILN_DEVICE_MBARRIER_PHASES,
  KILN_DEVICE_MBARRIER_FLIP,
  KILN_DEVICE_MBARRIER_INIT_CLUSTER,
  KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER,
  KILN_DEVICE_WGMMA_SETTLE,
  KILN_DEVICE_WGMMA_TAKE,
  KILN_DEVICE_TILES,
  KILN_DEVICE_TILE_STEPS,
  KILN_N_DEVICE_KINDS
} kiln_device_kind;

typedef struct kiln_device_op {
  const char *name; // the first member, printed by ir/
  kiln_device_kind kind;
  // The kinds of the arguments: i a number, s an element of shared memory, g of the caller's, m an
  // mbarrier, p a thread's phases.
  const char *arguments;
  bool has_body;
} kiln_device_op;

const kiln_device_op *kiln_device_op_of(kiln_device_kind k);
const kiln_device_op *kiln_device_op_named(const char *name); // NULL: there is none
// Whether |l| is a statement of kind |k|.
static inline bool kiln_device_is(const kiln_loop *l, kiln_device_kind k) {
  return l->kind == KILN_LOOP_DEVICE && l->op->kind == k;
}

// A statement without arguments but |n| of |arguments|.
kiln_loop *kiln_device_make(kiln_ctx *cx, kiln_device_kind k, int n,
                            const kiln_expr *const *arguments);
kiln_loop *kiln_device_make_int(kiln_ctx *cx, kiln_device_kind k, int64_t argument);

// Device loops as text: kiln_loops_print prints them.
//
// errors: KILN_BAD_INPUT
kiln_status kiln_device_parse(kiln_ctx *cx, const char *text, kiln_instr_find find,
                              const void *argument, kiln_loops **out);
// Checks as kiln_loops_verify does, and checks the statements: the kinds of their arguments; no
// block-wide barrier in a role; copies committed before they are waited for, in the order of the
// text; mbarriers initialised before use; no thread in two roles.
//
// errors: KILN_INTERNAL; the message names the statement
kiln_status kiln_device_verify(kiln_ctx *cx, const kiln_loops *l);

#endif
