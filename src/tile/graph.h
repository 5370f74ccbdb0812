// The tile graph (Welder, OSDI'23, section 3; DESIGN section 6): the statements of one kernel, each
// edge between two of them connected at a level of memory, and the tiles that follow from a tile of
// the result.
//
// A tile passes through the level that its edge is connected at and never touches the slower ones.
// Level 0 is memory: two statements connected there are two kernels, or two nests with a barrier.
// All of it lives in the context's scratch arena, at the mark of its maker.
#ifndef KILN_TILE_GRAPH_H
#define KILN_TILE_GRAPH_H

#include "target/device.h"
#include "tile/tile.h"

typedef enum kiln_reduce_mode {
  KILN_REDUCE_FULL,  // the whole reduction at once: operands in the tile are whole along it
  KILN_REDUCE_CHUNK, // stepped: operands that come from a slower level pass through chunk by chunk
  KILN_REDUCE_STREAM, // stepped, and so is the producer: it is computed chunk by chunk inside, partial
                      // results being rescaled (sum, max, online softmax)
} kiln_reduce_mode;

// The tile of one statement at one level: how much of each of its dims, space dims first.
typedef struct kiln_tile_node {
  const kiln_stmt *stmt;
  int64_t extents[2 * KILN_MAX_RANK];
  kiln_reduce_mode
      modes[KILN_MAX_RANK]; // by reduction dim; of CHUNK and STREAM the step is its extent
  double repeats; // how often an element is computed, all tiles together: 1 without recompute
} kiln_tile_node;

// What flows from one statement, or from a parameter, to another.
typedef struct kiln_tile_edge {
  int producer, consumer; // nodes; producer -1: |tensor| is read from memory
  int tensor;
  int level;   // where it is connected; 0: memory
  bool stored; // it is also written to memory: another kernel reads it, or it is a result
  int64_t box[KILN_MAX_RANK]; // elements of the tensor that a tile of the result needs, by axis:
                              // the hull of all uses, cut to the tensor
  const kiln_expr
      *origin[KILN_MAX_RANK]; // of the box, over the tile indices b0, b1, ... of the result
} kiln_tile_edge;

typedef struct kiln_tile_graph {
  kiln_ctx *cx;
  const kiln_program *p;
  int n_nodes, n_edges;
  kiln_tile_node *nodes; // [n_nodes] in the order of execution, the last writes the result
  kiln_tile_edge *edges; // [n_edges] by consumer
} kiln_tile_graph;

// Makes the graph of |p|, whose statements are one kernel: all edges at memory, all tiles whole.
kiln_tile_graph *kiln_tile_graph_make(kiln_ctx *cx, const kiln_program *p);

// Connects all edges from |producer| to |consumer| at |level|.
void kiln_tile_connect(kiln_tile_graph *g, int producer, int consumer, int level);
// Propagates a tile of the result, tile[d] of its space dim d, to the tiles of all nodes and the
// boxes of all edges: index maps are substituted, boxes taken, several uses united, ranges cut to the
// tensors. Reductions keep their modes; steps[node][r] is the step of CHUNK and STREAM ones, and NULL
// |steps| means FULL throughout.
//
// shapes: tile[n_space of the last statement]
kiln_status kiln_tile_propagate(kiln_tile_graph *g, const int64_t *tile,
                                const int64_t *const *steps);
// Bytes that lie at |level| at once while a tile is computed: the high-water mark over the order of
// execution of what connected edges hold there and of what is read chunk by chunk.
double kiln_tile_footprint(const kiln_tile_graph *g, int level);
// Bytes that one tile moves between memory and the levels in front of it, in whole transactions of
// |transaction_bytes|: what it reads there and what it stores there. Connected edges cost nothing.
// source: Welder, section 3.3 (MemTraffic)
double kiln_tile_traffic(const kiln_tile_graph *g, int transaction_bytes);

// The predicted time of a kernel, and what it is made of (DESIGN section 6):
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
} kiln_tile_cost;

// Fills |c|->ns and the times from its flops, bytes and tiles.
//
// needs: flops, bytes[], tiles set; |peak| names the kind of arithmetic, |efficiency| its share that the inner loops reach
void kiln_tile_cost_finish(const kiln_device *d, int n_threads, kiln_peak peak, double efficiency,
                           kiln_tile_cost *c);

#endif
