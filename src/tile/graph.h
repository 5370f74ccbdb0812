// The tile graph (Welder, OSDI'23, section 3; DESIGN section 6): the statements of one kernel, the
// level of memory at which each edge between two of them is connected, and the tiles that follow
// from a tile of the result.
//
// Tiles pass through the level at which their edge is connected and stay out of slower ones. Level
// 0 is memory: two statements connected there are two kernels, or two nests with a barrier, and the
// tiles exclude the producer. Tiles need not divide the result: the last ones are then partial. The
// graph lives in the context's scratch arena, at its maker's mark.
#ifndef KILN_TILE_GRAPH_H
#define KILN_TILE_GRAPH_H

#include "target/target.h"
#include "tile/query.h"

typedef enum kiln_reduce_mode {
  KILN_REDUCE_FULL,  // the whole reduction at once: its operands in the tile are complete
  KILN_REDUCE_CHUNK, // stepped: operands from a slower level are loaded chunk by chunk
  // stepped, and the producer computes its result chunk by chunk in the same loop; partial results
  // are rescaled (sum, max, online softmax)
  KILN_REDUCE_STREAM,
} kiln_reduce_mode;

// The interval of a dim or index in one tile: origin + [0, extent). The origin is an expression
// over the tile's numbers b0, b1, ... along the result's dims and the chunk's number c. It is
// congruent to |rest| modulo |step|, or equal to it if |step| is 0. |middle| is the origin in the
// middle tile.
typedef struct kiln_tile_span {
  const kiln_expr *origin;
  int64_t extent, step, rest, middle;
} kiln_tile_span;

// A box: a span for each dim or axis. |whole|: everything that a tile of the result needs; |held|:
// the part that exists at one time, smaller if a reduction is stepped.
enum { KILN_TILE_WHOLE, KILN_TILE_HELD, KILN_N_TILE_BOXES };

// A statement; its box has the space dims first.
typedef struct kiln_tile_node {
  const kiln_stmt *stmt;
  // part of the tile: it writes the result, or connected edges lead from it to the result
  bool inside;
  bool is_additional; // it writes an additional result, which no node of the graph reads
  kiln_tile_span dims[KILN_N_TILE_BOXES][2 * KILN_MAX_RANK];
  kiln_reduce_mode modes[KILN_MAX_RANK]; // by reduction dim
  double flops;                          // of one iteration
  double repeats; // times that an element is computed, over all tiles: 1 without recomputation
} kiln_tile_node;

// An edge: a tensor, read by a consumer, and its producer: a statement or a parameter.
typedef struct kiln_tile_edge {
  int producer, consumer; // nodes; producer -1: |tensor| is a parameter
  int tensor;
  int level;   // at which it is connected; 0: memory
  bool stored; // also written to memory: it is a result, or another kernel reads it
  kiln_loads loads;
  kiln_tile_span box[KILN_N_TILE_BOXES]
                    [KILN_MAX_RANK]; // of the tensor: the hull of all loads, cut to the tensor
  int next;                          // the next edge that reads |tensor|; -1: none
  // A later edge of the consumer that reads the same box of a tensor of equal layout; -1.
  int like;
  double bytes[KILN_N_TILE_BOXES];    // of the box as last propagated, in transactions of
  int transaction[KILN_N_TILE_BOXES]; // this many bytes; 0: not computed
} kiln_tile_edge;

typedef struct kiln_tile_graph {
  kiln_ctx *cx;
  const kiln_program *p;
  int n_nodes, n_edges;
  kiln_tile_node *nodes;       // [n_nodes] in order of execution; the last writes the result
  kiln_tile_edge *edges;       // [n_edges] by consumer
  int *first_edge;             // by tensor: its first reader; -1: none
  int64_t tile[KILN_MAX_RANK]; // of the result, as last propagated
} kiln_tile_graph;

// Makes the graph of |p|, whose statements are one kernel: all edges at memory, one tile.
kiln_tile_graph *kiln_tile_graph_make(kiln_ctx *cx, const kiln_program *p);

// Connects all edges between statements at |level|.
void kiln_tile_connect_all(kiln_tile_graph *g, int level);

// Propagates a tile of the result, tile[d] along its space dim d, to the boxes of all nodes and
// edges by substituting index maps; several loads are united, and boxes cut to the tensors. An axis
// whose index only the run knows has as many elements as the tile has such indices, or all of them
// if they are computed inside of the tile. modes[node][r] and steps[node][r] say how a reduction
// runs; NULL rows, or NULL |modes|, mean FULL.
//
// shapes: tile[n_space of the last statement]; 0 or more than the extent: the extent
void kiln_tile_propagate(kiln_tile_graph *g, const int64_t *tile,
                         const kiln_reduce_mode *const *modes, const int64_t *const *steps);

// Bytes at |level| while a tile is computed: the high-water mark, in order of execution, of the
// tiles of connected edges, the operands that are read (whole or by chunks) and the result. Results
// that a stream carries between chunks are live throughout.
double kiln_tile_footprint(kiln_tile_graph *g, int level);
// Bytes that one tile moves between memory and the caches, in whole transactions of
// |transaction_bytes|: its loads and stores there. Connected edges cost nothing.
// source: Welder, section 3.3 (MemTraffic)
double kiln_tile_traffic(kiln_tile_graph *g, int transaction_bytes);

// Totals over all tiles of the result, partial ones counted by their size.
typedef struct kiln_tile_total {
  double tiles, flops, read_bytes, written_bytes;
} kiln_tile_total;
// Propagates |tile| as above, and sums over all tiles.
kiln_tile_total kiln_tile_sum(kiln_tile_graph *g, const int64_t *tile,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps,
                              int transaction_bytes);

// --- cost.c ---

// The predicted time of a kernel and its terms, a roofline with waves:
//   t_l = bytes_l / min(BW_all, active * BW_unit), t_c = flops / (active * peak),
//   t = launch + tail * max(t_c, max t_l), tail = ceil(w) / w over the waves w.
typedef struct kiln_tile_cost {
  double ns;
  double flops, compute_ns; // including recomputation and padding
  double bytes[KILN_MAX_LEVELS],
      level_ns[KILN_MAX_LEVELS];     // of the boundary between l and l + 1
  double footprint[KILN_MAX_LEVELS]; // bytes that a tile holds at level l
  double launch_ns, tail;
  int64_t tiles; // that the threads share
  bool streams;  // nothing overlaps with the slowest term: arithmetic and transfers are sequential
} kiln_tile_cost;

// Computes |c|->ns and the times of its terms.
//
// needs: flops, bytes[], tiles set; |peak| is the kind of arithmetic, |efficiency| the share of it
//        that the inner loops reach
void kiln_tile_cost_finish(const kiln_device *d, int n_threads, kiln_peak peak, double efficiency,
                           kiln_tile_cost *c);

// How a template runs a kernel, as far as it matters for cost.
typedef struct kiln_tile_plan {
  const int64_t *tile;                  // of a task, by space dim of the result
  const int64_t *inner;                 // of the register tile; NULL: vectors only
  const kiln_reduce_mode *const *modes; // by node and reduction dim; NULL: FULL
  const int64_t *const *steps;
  kiln_peak peak;
  double efficiency;  // share of the peak that the inner loops reach
  double extra_flops; // of padding in ragged register tiles
  double extra_bytes; // moved beyond the graph's edges: packing
  int64_t tasks;      // 0: one for each tile
} kiln_tile_plan;

// Bytes that cross the boundary before a cache, of which a thread has |usable_bytes|, when tiles
// run in lexicographic order. If all tiles of the inner dims fit together, a sweep along the next
// outer dim loads each byte once: data that neighbouring tiles share is reused.
double kiln_tile_boundary(kiln_tile_graph *g, const kiln_tile_plan *plan, const int64_t *tile,
                          double usable_bytes, int transaction_bytes);

// The bytes of a shared cache in which a kernel finds results of the previous one, if both need no
// more.
double kiln_tile_kept_bytes(const kiln_mem_level *cache);

// The cost of |g|, whose edges are connected, run as |plan| says on the device of |m|; all zero if
// the device is unknown.
void kiln_tile_cost_of(kiln_tile_graph *g, const kiln_machine *m, int n_threads,
                       const kiln_tile_plan *plan, kiln_tile_cost *out);

#endif
