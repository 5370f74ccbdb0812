// The tile graph (Welder, OSDI'23, section 3; DESIGN section 6): the statements of one kernel, each
// edge between two of them connected at a level of memory, and the tiles that follow from a tile of
// the result.
//
// A tile passes through the level that its edge is connected at and never touches the slower ones.
// Level 0 is memory: two statements connected there are two kernels, or two nests with a barrier,
// and the producer takes no part in the tiles. Tiles of the result need not divide it: the last
// ones are then partial. All of it lives in the context's scratch arena, at the mark of its maker.
#ifndef KILN_TILE_GRAPH_H
#define KILN_TILE_GRAPH_H

#include "target/target.h"
#include "tile/query.h"

typedef enum kiln_reduce_mode {
  KILN_REDUCE_FULL,  // the whole reduction at once: operands in the tile are whole along it
  KILN_REDUCE_CHUNK, // stepped: operands that come from a slower level pass through chunk by chunk
  KILN_REDUCE_STREAM, // stepped, and so is the producer: it is computed chunk by chunk inside, partial
                      // results being rescaled (sum, max, online softmax)
} kiln_reduce_mode;

// The interval of a dim or an index in one tile: origin + [0, extent). The origin is an
// expression over the tile's indices b0, b1, ... by dim of the result, and c, the chunk's; it is
// congruent to |rest| modulo |step|, step 0: equal to it. |middle| is the origin in a tile in the
// middle.
typedef struct kiln_tile_span {
  const kiln_expr *origin;
  int64_t extent, step, rest, middle;
} kiln_tile_span;

// A box: a span by dim or by axis. |whole|: all that belongs to a tile of the result; |held|: what
// of it is there at once, less than that where a reduction is stepped.
enum { KILN_TILE_WHOLE, KILN_TILE_HELD, KILN_N_TILE_BOXES };

// One statement: its box has the space dims first.
typedef struct kiln_tile_node {
  const kiln_stmt *stmt;
  bool inside; // the tile needs it: it writes the result, or edges that are connected lead there
  bool beside; // it writes a result beside the last one's: nobody here reads that
  kiln_tile_span dims[KILN_N_TILE_BOXES][2 * KILN_MAX_RANK];
  kiln_reduce_mode modes[KILN_MAX_RANK]; // by reduction dim
  double flops;                          // of one iteration
  double repeats; // how often an element is computed, all tiles together: 1 without recompute
} kiln_tile_node;

// An edge: a tensor, from the statement or parameter that produces it to a consumer.
typedef struct kiln_tile_edge {
  int producer, consumer; // nodes; producer -1: |tensor| is read from memory
  int tensor;
  int level;   // where it is connected; 0: memory
  bool stored; // it is also written to memory: another kernel reads it, or it is a result
  kiln_loads loads;
  kiln_tile_span box[KILN_N_TILE_BOXES]
                    [KILN_MAX_RANK]; // of the tensor: the hull of all uses, cut to it
  int next;                          // the next edge that reads |tensor|; -1: none
  // A later edge of the consumer that reads the same places, of a tensor that lies as |tensor|;
  // -1.
  int like;
  double bytes[KILN_N_TILE_BOXES];    // that the box as last propagated touches, in transactions of
  int transaction[KILN_N_TILE_BOXES]; // so many bytes; 0: nobody asked
} kiln_tile_edge;

typedef struct kiln_tile_graph {
  kiln_ctx *cx;
  const kiln_program *p;
  int n_nodes, n_edges;
  kiln_tile_node *nodes;       // [n_nodes] in the order of execution, the last writes the result
  kiln_tile_edge *edges;       // [n_edges] by consumer
  int *first_edge;             // by tensor: the first that reads it; -1: none
  int64_t tile[KILN_MAX_RANK]; // of the result, as last propagated
} kiln_tile_graph;

// Makes the graph of |p|, whose statements are one kernel: all edges at memory, all tiles whole.
kiln_tile_graph *kiln_tile_graph_make(kiln_ctx *cx, const kiln_program *p);

// Connects all edges between statements at |level|.
void kiln_tile_connect_all(kiln_tile_graph *g, int level);

// Propagates a tile of the result, tile[d] of its space dim d, to the boxes of all nodes and edges:
// index maps are substituted, boxes taken, several uses united, and cut to the tensors. What an
// index depends on data for is needed whole. modes[node][r] with steps[node][r] says how a
// reduction is run; NULL rows, or NULL |modes|, mean FULL.
//
// shapes: tile[n_space of the last statement]; 0 or more than there is: all
void kiln_tile_propagate(kiln_tile_graph *g, const int64_t *tile,
                         const kiln_reduce_mode *const *modes, const int64_t *const *steps);

// Bytes that lie at |level| at once while a tile is computed: the high-water mark over the order of
// execution of what connected edges hold there, of what is read, whole or chunk by chunk, and of
// the result. What a stream carries from chunk to chunk lies there throughout.
double kiln_tile_footprint(kiln_tile_graph *g, int level);
// Bytes that one tile moves between memory and the levels in front of it, in whole transactions of
// |transaction_bytes|: what it reads there and what it stores there. Connected edges cost nothing.
// source: Welder, section 3.3 (MemTraffic)
double kiln_tile_traffic(kiln_tile_graph *g, int transaction_bytes);

// Totals of all tiles of the result, partial tiles counted by their size.
typedef struct kiln_tile_total {
  double tiles, flops, read_bytes, written_bytes;
} kiln_tile_total;
// Propagates |tile| as above, and sums.
kiln_tile_total kiln_tile_sum(kiln_tile_graph *g, const int64_t *tile,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps,
                              int transaction_bytes);

// --- cost.c ---

// The predicted time of a kernel and its terms, a roofline with waves:
//   t_l = bytes_l / min(BW_all, active * BW_unit), t_c = flops / (active * peak),
//   t = launch + tail * max(t_c, max t_l), tail = ceil(w) / w over the waves w.
typedef struct kiln_tile_cost {
  double ns;
  double flops, compute_ns; // with what is computed twice, and what is computed in vain
  double bytes[KILN_MAX_LEVELS],
      level_ns[KILN_MAX_LEVELS];     // of the boundary in front of level l: between l and l + 1
  double footprint[KILN_MAX_LEVELS]; // bytes that a tile holds at level l
  double launch_ns, tail;
  int64_t tiles; // tasks that the threads share
  bool streams;  // nothing hides behind the slowest: arithmetic and transfers follow each other
} kiln_tile_cost;

// Fills |c|->ns and the times from its flops, bytes and tiles.
//
// needs: flops, bytes[], tiles set; |peak| names the kind of arithmetic, |efficiency| its share
//        that the inner loops reach
void kiln_tile_cost_finish(const kiln_device *d, int n_threads, kiln_peak peak, double efficiency,
                           kiln_tile_cost *c);

// How a template runs a kernel, as far as its cost goes.
typedef struct kiln_tile_plan {
  const int64_t *tile;  // of a task, by space dim of the result
  const int64_t *inner; // of what is in registers at once; NULL: no more than vectors
  const kiln_reduce_mode *const *modes; // by node and reduction dim; NULL: FULL
  const int64_t *const *steps;
  kiln_peak peak;
  double efficiency;  // share of the peak that the inner loops reach
  double extra_flops; // what is computed in vain: padding of ragged register tiles
  double extra_bytes; // moved beyond what the graph knows: packing
  int64_t tasks;      // 0: one a tile
} kiln_tile_plan;

// Bytes that cross the boundary in front of a cache, of which a thread has |usable_bytes|, when
// tiles run in the order of their indices, the last dim's fastest. Where all tiles of inner dims
// fit together, a sweep along the next dim outside moves what it touches once: what two neighbours
// share is kept.
double kiln_tile_boundary(kiln_tile_graph *g, const kiln_tile_plan *plan, const int64_t *tile,
                          double usable_bytes, int transaction_bytes);

// Of a shared cache, what a kernel finds there of the one before it, when all of both is no more.
double kiln_tile_kept_bytes(const kiln_mem_level *cache);

// The cost of |g|, its edges connected, run as |plan| says on the device of |m|. All zero when
// nothing is known of that.
void kiln_tile_cost_of(kiln_tile_graph *g, const kiln_machine *m, int n_threads,
                       const kiln_tile_plan *plan, kiln_tile_cost *out);

#endif
