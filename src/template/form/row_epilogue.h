// GEMM with a row-wise epilogue (softmax, LayerNorm): a matrix product and operations on whole rows
// of it, in one kernel on tensor cores.
//
// A contraction, maps of its elements, and sums and maxima of rows of these (a softmax or a
// normalization after a product) become, after the product of product.h,
//     A(.., m, k) = ..   B(.., k, n) = ..   T(.., m, n) +=! A(.., m, k)*B(.., k, n)
// statements of three kinds, in program order:
//     W(.., m, n) = f(T(.., m, n), W.., R(.., m, n % 8 / 2), ..)              elements
//     P(.., m, q) +=! g(W(.., m, 8*h + 2*q + e), R(.., m, q), ..)             sums of rows, by
// lane,
//     R(.., m, q) +=! P(.., m, l)                                             of the four lanes,
//     R(.., m, q) = f(R(.., m, q), ..)                                        and maps of them
// The last statement is y(.., m, n); other results are copies before it. Each of the four lanes of
// a quad has a copy q of a row's results (quad_reduce.h). Elements are f32 until they are stored.
#ifndef KILN_TEMPLATE_FORM_ROW_EPILOGUE_H
#define KILN_TEMPLATE_FORM_ROW_EPILOGUE_H

#include "template/form/row_stmt.h"

enum { KILN_ROW_EPILOGUE_COLUMNS = 256 }; // the most columns of a row

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_row_epilogue {
  kiln_product p; // whose y is the last statement
  int n;          // statements after T, with y
  const kiln_stmt *stmts[KILN_ROW_MADE];
  kiln_row_nest nests[KILN_ROW_MADE];
} kiln_row_epilogue;

// Brings |p|, a contraction followed by other statements, into the form (kiln_match).
bool kiln_row_epilogue_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_row_epilogue_is(const kiln_program *p, kiln_row_epilogue *out);

#endif
