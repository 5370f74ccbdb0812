// Sums of products, and what their operands are behind maps: for rules of linear algebra.
//
// Products are of f32 or f64 loads: what is rounded on the way is not rearranged.
#ifndef KILN_REWRITE_PRODUCT_H
#define KILN_REWRITE_PRODUCT_H

#include "analysis/simplify.h"
#include "ir/prim.h"

// |s| sums args[0] * args[1] over its reduction dims; dims of extent 1 stand as 0 in both loads.
typedef struct kiln_bilinear {
  kiln_stmt *s;
  const kiln_expr *args[2];
} kiln_bilinear;
bool kiln_bilinear_of(kiln_ctx *cx, kiln_stmt *s, kiln_bilinear *out);

// factor * load + shift; a NULL |factor| is 1, a NULL |shift| 0. Both read constants only.
typedef struct kiln_linear {
  const kiln_expr *factor, *shift, *load;
} kiln_linear;

// Reads |load| as far as maps that nobody else reads are linear in one load, or move elements: up
// to the first tensor that is something else.
//
// needs: n_readers[tensor], as of kiln_readers_count; the ranges of the variables in |load|
kiln_linear kiln_linear_of(kiln_ctx *cx, const kiln_program *p, const int *n_readers,
                           const kiln_ranges *ranges, const kiln_expr *load);

// Whether |e| is linear in one load of |tensor|.
bool kiln_linear_in(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e, int tensor,
                    kiln_linear *out);

kiln_ranges kiln_stmt_bounds(kiln_ctx *cx, const kiln_stmt *s); // of its dims, in the scratch arena
bool kiln_reads_constants(kiln_ctx *cx, const kiln_program *p,
                          const kiln_expr *e); // and nothing else
// Whether |e| is one element of a tensor or a constant; which one may depend on where it goes, not
// on what is loaded.
bool kiln_only_moves(kiln_ctx *cx, const kiln_expr *e);
// The statement that writes the temporary |tensor| if that is a map element by element of the
// result.
const kiln_stmt *kiln_map_of(kiln_ctx *cx, const kiln_program *p, int tensor);
int64_t kiln_dims_elems(int n, const kiln_dim *dims); // saturating

#endif
