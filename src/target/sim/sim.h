// The simulator: runs any loop program on host memory, and checks the assumptions of compiled code.
//
// Every access lies within its buffer's extents; LOCAL, SHARED, REGISTER and WORKSPACE elements are
// written before they are read; iterations of a concurrent loop (parallel, or bound to a block or
// thread axis, nested or not) do not read what another one of the same run of the loop writes, nor
// write one element with different values; SHARED memory is allocated outside of thread loops and
// inside of block loops, LOCAL and REGISTER inside of both, where they are used in one, or outside
// of thread loops as a fragment: each thread accesses its own part alone (target/gpu/gpu.h).
// Statements behind a concurrent loop wait for all its iterations. An instruction runs as its
// meaning.
//
// Iterations of a VECTORIZED loop are lanes that run at once, statement by statement, as target/cpu
// emits them: all lanes that are on read before one of them writes, then come those of the next
// statement; loops and conditions inside switch lanes off; memory allocated inside is each lane's
// own; a vectorized loop inside is a serial one. As compiled code cuts lanes into vectors as wide
// as the machine's, or runs them one by one, the order must not matter: of two accesses of an
// element, one of them a write that changes it, that of the earlier lane comes first. Only the
// stores of all lanes into one element, whose index is the same for all, by one combiner, come in
// any order: they are a reduction.
//
// Other loops run serially, whatever they are marked.
//
// A store of nothing but an element that nobody wrote is no breach: copies move the padding of
// layouts along, and what they store there counts as unwritten. It is a read and a write in all
// else.
//
// It also measures: how many bytes the statements read and write, and how many of them move between
// the levels of a memory hierarchy.
#ifndef KILN_TARGET_SIM_SIM_H
#define KILN_TARGET_SIM_SIM_H

#include "target/target.h"

// Runs |l| on |args|, the base addresses of its PARAM and WORKSPACE buffers in id order (WORKSPACEs
// and packed PARAMs too).
//
// errors: KILN_INTERNAL on a breach of the above; the message names buffer, index and loop
KILN_MUST_USE kiln_status kiln_sim_run(kiln_ctx *cx, kiln_loops *l, void *const *args);

// A cache: least recently used, written back, allocated on writes.
typedef struct kiln_sim_level {
  const char *name;       // "L1"
  int64_t capacity_bytes; // a multiple of line_bytes * ways
  int64_t line_bytes;
  int ways;          // lines of a set; 0: fully associative
  bool stores_fetch; // a line that is written first is read from behind, as CPUs do
} kiln_sim_level;

typedef struct kiln_sim_flow {
  int64_t read_bytes, written_bytes;
} kiln_sim_flow;

// units: bytes. A combining store reads and writes its element.
typedef struct kiln_sim_traffic {
  int n_buffers, n_levels;
  kiln_sim_flow *buffers;                        // [n_buffers] by the statements, of each buffer
  kiln_sim_flow scopes[KILN_SCOPE_REGISTER + 1]; // the same, summed by scope
  kiln_sim_flow *levels; // [n_levels] between a level and what lies behind it, in whole lines: the
                         // last one's is main memory's
} kiln_sim_traffic;

// Begins counts at 0, in |cx|.
void kiln_sim_traffic_init(kiln_ctx *cx, const kiln_loops *l, int n_levels, kiln_sim_traffic *out);
// Runs |l| as kiln_sim_run does, and counts. PARAM and WORKSPACE accesses go through |levels|, the
// fastest first, which are empty before and written back at the end; the buffers lie one behind the
// other, each at a multiple of 4096 bytes. So do LOCAL and SHARED ones, which lie on a stack behind
// all others, each at a multiple of 64 bytes of its own. Registers pass no cache.
// All iterations pass through one cache of each level, in the order in which they are run here.
//
// gives:  |*out|, in |cx|
// errors: as kiln_sim_run; the counts are those up to the breach then
KILN_MUST_USE kiln_status kiln_sim_measure(kiln_ctx *cx, kiln_loops *l, void *const *args,
                                           int n_levels, const kiln_sim_level *levels,
                                           kiln_sim_traffic *out);
// Counts as kiln_sim_measure does, but computes nothing and checks nothing: large kernels too are
// counted in seconds. |args| may be NULL unless an index depends on data; integer PARAMs that the
// kernel does not write are read. Where a choice within an expression depends on what is computed,
// the reads of both branches count.
//
// gives:  |*out|, in |cx|
// errors: KILN_INTERNAL: an index, an extent or a condition around statements depends on other data
KILN_MUST_USE kiln_status kiln_sim_trace(kiln_ctx *cx, kiln_loops *l, void *const *args,
                                         int n_levels, const kiln_sim_level *levels,
                                         kiln_sim_traffic *out);
// The caches of a machine, with lines of 64 bytes: 8-way ones, the last 16-way.
enum { KILN_SIM_CACHES = 3 };
void kiln_sim_caches(const kiln_machine *m, kiln_sim_level out[KILN_SIM_CACHES]);
// A table of the counts: a line a buffer that is used, a scope, a level.
void kiln_sim_traffic_print(const kiln_ctx *cx, const kiln_loops *l, const kiln_sim_level *levels,
                            const kiln_sim_traffic *t, kiln_text *out);

// Fills |out|, room for kiln_buffer_elems(b) elements, with packed |b| from the constant's
// row-major elements at |source|.
KILN_MUST_USE kiln_status kiln_sim_pack(kiln_ctx *cx, const kiln_program *p, const kiln_buffer *b,
                                        const void *source, void *out);

#endif
