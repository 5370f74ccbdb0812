// Properties of statements: readers of tensors, strides of loads, maps, products, contractions, and
// the arithmetic of a run.
#ifndef KILN_TILE_QUERY_H
#define KILN_TILE_QUERY_H

#include "analysis/simplify.h"
#include "target/target.h"

// Readers of each tensor: users[first[t] .. first[t + 1]) are the statements that load tensor t,
// ascending, each once.
typedef struct kiln_users {
  int *first; // [n_tensors + 1]
  int *users;
} kiln_users;
kiln_users kiln_users_make(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p);

// The loads in |e|, each distinct node once, in order of first visit.
typedef struct kiln_loads {
  const kiln_expr **data;
  int n, cap;
} kiln_loads;
kiln_loads kiln_loads_of(kiln_ctx *cx, kiln_arena *arena, const kiln_expr *e);
// The loads in all expressions of a statement (body, guard, init, index) except of the tensor that
// it writes.
kiln_loads kiln_stmt_loads(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p,
                           const kiln_stmt *s);
// The load of |s| from the largest tensor, the first of equals; NULL if it has none.
const kiln_expr *kiln_stmt_largest_load(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);

bool kiln_stmt_is_map(const kiln_ctx *cx, const kiln_stmt *s);    // plain, no reduction, no guard
bool kiln_stmt_is_layout(const kiln_ctx *cx, const kiln_stmt *s); // a map whose body is one load
// Whether |s| sums products of two loads, possibly under casts; gives the two loads.
bool kiln_stmt_is_contraction(const kiln_stmt *s, const kiln_expr **out_a, const kiln_expr **out_b);
// The same with any expressions as factors, as on GPUs, which compute operands on the way; each
// factor depends on a space dim that the other does not.
bool kiln_stmt_is_product(const kiln_stmt *s, const kiln_expr **out_a, const kiln_expr **out_b);
// The stride in elements of |load| along |var| in its tensor's storage; INT64_MAX if it is not
// affine in |var|.
int64_t kiln_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_expr *load,
                         kiln_symbol var);
// The same along a dim of |s|, in case divisions cancel in the sum over axes: a load through a
// reshape may have a constant stride.
int64_t kiln_stmt_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                              const kiln_expr *load, kiln_symbol var);
// Whether |vector| neighbours along dim |d| of |s| are computed from whole words: each operand that
// depends on d is contiguous for that many elements, and aligned.
bool kiln_stmt_reads_words(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int d,
                           int64_t vector);
int64_t kiln_stmt_domain(const kiln_stmt *s); // iterations, space and reduction
int kiln_expr_cost(kiln_ctx *cx,
                   const kiln_expr *e); // arithmetic per evaluation: 1 simple, 20 transcendental
double kiln_program_flops(kiln_ctx *cx, const kiln_program *p); // of one run, by kiln_expr_cost
// Whether an index of |load| that depends on |var| is a boundary map: it clamps, reflects or wraps.
bool kiln_load_bends(kiln_ctx *cx, const kiln_expr *load, kiln_symbol var);
// The strides along the axes of |t| in the storage of |out|, which has as many elements in the same
// row-major order.
//
// gives: false if there are none: |out| lies inside another tensor, and an axis of |t| crosses its
//        border
bool kiln_tile_strides_along(const kiln_tensor *t, const kiln_tensor *out, int64_t *out_strides);
// Whether the map |s| writes element k from element k of |load|'s tensor, by row-major numbers, and
// may run over the axes of that tensor.
bool kiln_tile_renumbers(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                         const kiln_expr *load);
// Whether |s| is a map that reads with |load| just the element that it writes, in row-major
// numbering (a reshape), and may run over the axes of |load|'s tensor instead of its own.
bool kiln_tile_same_elements(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                             const kiln_expr *load);

#endif
