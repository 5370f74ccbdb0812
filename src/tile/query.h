// Questions about statements of a program: who reads what, how loads move, what is a map, a
// product, a contraction, and what a run computes.
#ifndef KILN_TILE_QUERY_H
#define KILN_TILE_QUERY_H

#include "analysis/simplify.h"
#include "target/target.h"

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
int kiln_expr_cost(kiln_ctx *cx,
                   const kiln_expr *e); // arithmetic per evaluation: 1 simple, 20 transcendental
double kiln_program_flops(kiln_ctx *cx, const kiln_program *p); // of one run, by kiln_expr_cost
// Whether an index of |load| that moves with |var| is a boundary map: it repeats an edge, reflects
// or wraps.
bool kiln_load_bends(kiln_ctx *cx, const kiln_expr *load, kiln_symbol var);
// The strides along the axes of |t| in the storage of |out|, which has as many elements and the
// same row-major numbering.
//
// gives: false if there are none: |out| lies inside another tensor, and an axis of |t| runs across
//        an edge of it
bool kiln_tile_strides_along(const kiln_tensor *t, const kiln_tensor *out, int64_t *out_strides);
// Whether the map |s| reads with |load| the element of the number of the one that it writes, and
// may run over the axes of what it reads.
bool kiln_tile_renumbers(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                         const kiln_expr *load);
// Whether |s| is a map that reads with |load| just the element that it writes, in row-major
// numbering (a reshape), and may run over the axes of |load|'s tensor instead of its own.
bool kiln_tile_same_elements(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                             const kiln_expr *load);

#endif
