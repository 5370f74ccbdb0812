// The tile graph's private parts: what passes over the prim program share, groups, and one schedule
// a group. The passes and their order are rows of driver/pipeline.c.
//
// group     statements to kernels: a reduction with its epilogue, rows of a softmax, ...
// extract   a group as a small program over strided views, names and dims in canonical order
// registers the register tile of a contraction, and what it costs
// node      one contraction placed in a kernel and tiled for registers
// graph     the group's tile graph: tiles, footprint, traffic, cost
// search    candidates by cost; lower_*: a schedule script for each
#ifndef KILN_TILE_TILE_H
#define KILN_TILE_TILE_H

#include "analysis/simplify.h"
#include "target/target.h"
#include "tile/facts.h"

// Readers of every tensor: users[first[t] .. first[t + 1]) are the statements that load tensor t,
// ascending, each once.
typedef struct kiln_users {
  int *first; // [n_tensors + 1]
  int *users;
} kiln_users;
kiln_users kiln_users_make(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p);

// The loads under |e|, each distinct node once, in order of first visit.
typedef struct kiln_loads {
  const kiln_expr **data;
  int n, cap;
} kiln_loads;
kiln_loads kiln_loads_of(kiln_ctx *cx, kiln_arena *arena, const kiln_expr *e);
// The loads of all expressions of a statement (body, guard, init, index) from tensors that others
// write.
kiln_loads kiln_stmt_loads(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p,
                           const kiln_stmt *s);
// The load of |s| from the largest tensor, the first of equals; NULL if it has none.
const kiln_expr *kiln_stmt_largest_load(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);

bool kiln_stmt_is_map(const kiln_ctx *cx, const kiln_stmt *s);    // plain, no reduction, no guard
bool kiln_stmt_is_layout(const kiln_ctx *cx, const kiln_stmt *s); // a map whose body is one load
// Sum of products of two loads (casts allowed around them); gives the two loads.
bool kiln_stmt_is_contraction(const kiln_stmt *s, const kiln_expr **out_a, const kiln_expr **out_b);
// The same where the factors may be any expressions of loads, as on GPUs, whose products compute
// their operands on the way; each moves along a space dim that the other does not.
bool kiln_stmt_is_product(const kiln_stmt *s, const kiln_expr **out_a, const kiln_expr **out_b);
// The stride in elements of |load| in its tensor's storage along |var|; INT64_MAX when it is not
// affine in it.
int64_t kiln_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_expr *load,
                         kiln_symbol var);
// The same along a dim of |s|, whose loads it is, where divisions by axis may cancel in the sum:
// what reads a reshaped tensor may walk through it all the same.
int64_t kiln_stmt_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                              const kiln_expr *load, kiln_symbol var);
// Whether |vector| neighbours along dim |d| of |s| are computed from whole words of all that moves
// with it: as many elements side by side, from a multiple of as many on.
bool kiln_stmt_reads_words(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int d,
                           int64_t vector);
int64_t kiln_stmt_domain(const kiln_stmt *s); // iterations, space and reduction
// Loads of the statements of one kernel that grows: each may be an argument, and what the code
// generator knows of arguments, that no two overlap, is quadratic in them.
enum { KILN_MOST_LOADS = 256 };
int kiln_expr_cost(kiln_ctx *cx,
                   const kiln_expr *e); // arithmetic per evaluation: 1 simple, 20 transcendental
double kiln_program_flops(kiln_ctx *cx, const kiln_program *p); // of one run, by kiln_expr_cost
// Whether an index of |load| that moves with |var| is a boundary map: it repeats an edge, reflects
// or wraps.
bool kiln_load_bends(kiln_ctx *cx, const kiln_expr *load, kiln_symbol var);
// Whether the contraction |s| comes to read vectors along the rows of |load|, as long as that stays
// row-major; not so a convolution whose data is stored channels last.
bool kiln_tile_reads_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                          const kiln_expr *load);

// The passes.
// On GPUs: places and weights of tables that follow from their index are computed (tables.c).
void kiln_tile_compute_tables(kiln_ctx *cx, kiln_program *p);
kiln_status kiln_tile_absorb(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
// Maps whose axes are cut from one axis of what they read, and read as that one, are stored by it.
kiln_status kiln_tile_join(kiln_ctx *cx, kiln_program *p);
// On CPUs: data of products of bytes are stored in 16 bits where that is faster.
kiln_status kiln_tile_widen(kiln_ctx *cx, kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m);
kiln_status kiln_tile_layout(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: groups of one channel and the few that each gives are one axis (join.c).
void kiln_tile_join_groups(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: taps of windows that read nothing but padding are left out (taps.c). Statements are
// renumbered where any are.
kiln_status kiln_tile_leave_out_taps(kiln_ctx *cx, kiln_program *p, int *io_n);
// On GPUs: what pads or moves elements, or computes them for one product, is read through by its
// readers.
kiln_status kiln_tile_read_through(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
kiln_status kiln_tile_assemble(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m);
// Assembles stmts[0..n), ascending, of those that kiln_tile_assemble has left waiting.
//
// gives: statements renumbered
kiln_status kiln_tile_settle(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, int n,
                             const int *stmts);

typedef enum kiln_group_kind {
  KILN_GROUP_MAP,         // one map
  KILN_GROUP_CONTRACTION, // a contraction and the map that reads it element by element
  KILN_GROUP_ROWS, // reductions and maps that share outer dims, or a window reduction and its map
  KILN_GROUP_SCATTER,  // a statement with init or data-dependent index
  KILN_GROUP_WINOGRAD, // a convolution as its transforms and products, and its epilogue
  KILN_GROUP_STREAM,   // attention: two contractions and a softmax between them, and its epilogue
  KILN_GROUP_CHAIN // statements with a contraction behind others, which a block of the result computes
} kiln_group_kind;

typedef struct kiln_group {
  kiln_group_kind kind;
  int n_stmts;
  int *stmts; // ids, ascending; the last writes the result
  uint64_t
      stored; // by position in |stmts|: other kernels read that tensor, too, or it is an output
} kiln_group;
// What became of the edge from one statement to a reader of its result, as grouping decided it.
typedef struct kiln_edge_decision {
  int producer, consumer; // statement ids of the main program; |consumer| is in a kernel
  int tensor;             // what flows
  int level;              // of the device: where a tile of it passes; 0: through memory
  const char
      *reason; // why it is not connected deeper; NULL: it is in one kernel and nothing is wrong
} kiln_edge_decision;
typedef struct kiln_edge_decisions {
  kiln_edge_decision *data;
  int n, cap;
} kiln_edge_decisions;

typedef struct kiln_groups {
  kiln_group *data;
  int n, cap;
  kiln_edge_decisions edges; // of the choices that there were, by consumer
} kiln_groups;
// The strides along the axes of |t| in the storage of |out|, which has as many elements and the
// same row-major numbering.
//
// gives: false if there are none: |out| lies inside another tensor, and an axis of |t| runs across
//        an edge of it
bool kiln_tile_strides_along(const kiln_tensor *t, const kiln_tensor *out, int64_t *out_strides);
// Whether |s| is a map that reads with |load| just the element that it writes, in row-major
// numbering (a reshape), and may run over the axes of |load|'s tensor instead of its own.
bool kiln_tile_same_elements(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                             const kiln_expr *load);
kiln_status kiln_tile_group(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m, kiln_groups *out);
// The kind of kernel that stmts[0..n), ascending, are, whoever has put them together.
kiln_group_kind kiln_tile_kind_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                  const kiln_machine *m, int n, const int *stmts, uint64_t stored);

// What a parameter of a kernel is: a tensor of the main program, from element |offset| of its
// storage on.
typedef struct kiln_argument {
  int tensor;
  int64_t offset; // 0 for what is written, and for constants
} kiln_argument;

// A group as a program of its own. Tensors: a0.. (read), t0.. (inside), y (the result), and z0..
// where what is reused inside is stored as well: written there at once, of a reduction a copy.
// args[k] is behind the k-th parameter in the order of tensor ids. On CPUs a tensor that is read
// flat begins with the first element that is read, so that kernels of other rows of a tensor are
// equal.
typedef struct kiln_extract {
  kiln_program *prog;
  kiln_facts facts; // of its constants
  int n_args;
  kiln_argument *args;
  const char *key; // equal keys: the same kernel
} kiln_extract;
kiln_status kiln_tile_extract(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                              const kiln_group *g, const kiln_machine *m, kiln_extract *out);
// The same without the key, for a group whose kernel is known.
kiln_status kiln_tile_extract_keyless(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                      const kiln_group *g, const kiln_machine *m,
                                      kiln_extract *out);
const char *kiln_tile_key(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *extract,
                          const kiln_facts *facts);

#endif
