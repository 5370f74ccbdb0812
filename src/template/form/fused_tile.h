// Fused tiles: any statements over the same rows, among them products, maps and reductions of rows,
// numbered so that a block computes some rows of all of them.
//
// The dims of a plan (fused_plan.h) become batch dims b0.., rows m, columns n of the last result,
// and other axes k0..:
//     A(.., m, k) = ..   B(.., k, n) = ..   T(.., m, n) +=! A(.., m, k)*B(.., k, n)   products,
//     M(.., m, n) = f(T(.., m, n), R(.., m), X(..))                                  maps,
//     R(.., m) max=! f(T(.., m, n), ..)                                              reductions,
//     y(.., m, n) = M(.., m, n)                                                      and results.
// The left factor of a product may also be another statement's elements. Elements that are no
// result are not rounded to halves.
#ifndef KILN_TEMPLATE_FORM_FUSED_TILE_H
#define KILN_TEMPLATE_FORM_FUSED_TILE_H

#include "template/form/fused_plan.h"
#include "template/lower.h"

enum { KILN_FUSED_STATEMENTS = 40 };

typedef enum kiln_fused_nest {
  KILN_NEST_OPERAND, // an operand of a product, which is read from memory
  KILN_NEST_SUMS,    // a product
  KILN_NEST_TILE,    // a map of elements
  KILN_NEST_REDUCED, // a reduction along rows
  KILN_NEST_BY_ROW,  // a map of an element a row
  KILN_NEST_RESULT   // a copy or map that stores a result
} kiln_fused_nest;

typedef struct kiln_fused_statement {
  kiln_fused_nest nest;
  const kiln_stmt *s;
  int left, right; // of a product: the statements that compute its factors
} kiln_fused_statement;

// A program in the form.
typedef struct kiln_fused_tile {
  int n_batch;
  int64_t batch, m; // extents
  int n;
  kiln_fused_statement all[KILN_FUSED_STATEMENTS];
} kiln_fused_tile;

// Brings |p| into the form (kiln_match).
bool kiln_fused_tile_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_fused_tile_is(kiln_ctx *cx, const kiln_program *p, kiln_fused_tile *out);

#endif
