// GEMM with a row-wise epilogue (softmax, LayerNorm): a matrix product and what is done with whole
// rows of it, in one kernel on tensor cores.
//
// A contraction, maps of its elements, and sums and maxima of rows of these (a softmax, a
// normalization behind a product) become, behind the products of product.h,
//     A(.., m, k) = ..   B(.., k, n) = ..   T(.., m, n) +=! A(.., m, k)*B(.., k, n)
// statements of three kinds, in their order:
//     W(.., m, n) = f(T(.., m, n), W.., R(.., m, n % 8 / 2), ..)                    elements,
//     P(.., m, q) +=! g(W(.., m, 8*h + 2*q + e), R(.., m, q), ..)   R(.., m, q) +=! P(.., m, l)
//     rows: by parts, R(.., m, q) = f(R(.., m, q), ..)
//     and what follows from these,
// the last of which is y(.., m, n), and other results are copies in front of it. The four lanes of
// a quad have the sums of a row (quad_reduce.h): q numbers them, and what is known of a row, of
// which each has a copy. Elements stay f32 inside.
#ifndef KILN_TEMPLATE_FORM_STRIP_H
#define KILN_TEMPLATE_FORM_STRIP_H

#include "template/form/row_stmt.h"

enum { KILN_STRIP_COLUMNS = 256 }; // of a row

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_strip {
  kiln_product p; // whose y is the last statement
  int n;          // statements behind T, with y
  const kiln_stmt *stmts[KILN_ROW_MADE];
  kiln_row_nest nests[KILN_ROW_MADE];
} kiln_strip;

// Brings |p|, statements with a contraction in front, into the form (kiln_match).
bool kiln_strip_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_strip_is(const kiln_program *p, kiln_strip *out);

#endif
