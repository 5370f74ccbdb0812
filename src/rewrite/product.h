// Sums of products, and linear maps of their operands: the patterns of linear-algebra rules.
//
// Products must be of f32 or f64 loads: roundings to narrower types must not be reordered.
#ifndef KILN_REWRITE_PRODUCT_H
#define KILN_REWRITE_PRODUCT_H

#include "analysis/simplify.h"
#include "ir/prim.h"

// |s| sums args[0] * args[1] over its reduction dims; indices of extent 1 are 0 in both loads.
typedef struct kiln_bilinear {
  kiln_stmt *s;
  const kiln_expr *args[2];
} kiln_bilinear;
bool kiln_bilinear_of(kiln_ctx *cx, kiln_stmt *s, kiln_bilinear *out);

// factor * load + shift, both of constants only; |factor| NULL is 1, |shift| NULL is 0.
typedef struct kiln_linear {
  const kiln_expr *factor, *shift, *load;
} kiln_linear;

// Follows |load| through maps without other readers that are linear in one load or move elements,
// to the first tensor that is not such a map.
//
// needs: n_readers[tensor], as of kiln_readers_count; the ranges of the variables in |load|
kiln_linear kiln_linear_of(kiln_ctx *cx, const kiln_program *p, const int *n_readers,
                           const kiln_ranges *ranges, const kiln_expr *load);

// Whether |e| is linear in one load of |tensor|.
bool kiln_linear_in(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e, int tensor,
                    kiln_linear *out);

kiln_ranges kiln_stmt_bounds(kiln_ctx *cx, const kiln_stmt *s); // of its dims, in the scratch arena
bool kiln_reads_constants(kiln_ctx *cx, const kiln_program *p,
                          const kiln_expr *e); // and of nothing else
// Whether |e| is a single load or constant; a SELECT may depend on the indices, but not on data.
bool kiln_only_moves(kiln_ctx *cx, const kiln_expr *e);
// The statement that computes the temporary |tensor| if it is a plain map.
const kiln_stmt *kiln_map_of(kiln_ctx *cx, const kiln_program *p, int tensor);
int64_t kiln_dims_elems(int n, const kiln_dim *dims); // saturating

#endif
