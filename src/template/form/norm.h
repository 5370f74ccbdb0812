// Normalization prologue fusion: products of rows that are normalized on the way, in one kernel on
// tensor cores.
//
// Sums and maxima of the rows of a tensor, what follows from these, and a contraction of elements
// that are computed from both (a softmax or a normalization in front of a product) become
//     X(.., m, k) = x(..)                                                          what is read,
//     P(m, q) +=! g(X(m, 8*h + 2*q + e), R(m, q))   R(m, q) +=! P(m, l)            rows, by parts
//     (row_stmt.h), R(m, q) = f(R(m, q), ..)
//      and what follows from these, S(m, q) = R(m, q)
//                   what A reads of them,
//     A(m, k) = f(X(m, k), S(m, k % 8 / 2), ..)   B(k, n) = ..   T(m, n) +=! A(m, k)*B(k, n)   y(m,
//     n) = f(T, ..)
// Elements are computed where they are used, and R stay f32.
#ifndef KILN_TEMPLATE_FORM_NORM_H
#define KILN_TEMPLATE_FORM_NORM_H

#include "template/form/row_stmt.h"

enum { KILN_NORM_COLUMNS = 512 }; // of a row

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_norm {
  kiln_product p;
  const kiln_stmt *x;
  int n, n_shared; // statements between X and A, and how many of them, the last ones, are S
  const kiln_stmt *stmts[KILN_ROW_MADE];
  kiln_row_nest nests[KILN_ROW_MADE];
} kiln_norm;

// Brings |p|, statements with a contraction and its finish at the end, into the form (kiln_match).
bool kiln_norm_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_norm_is(const kiln_program *p, kiln_norm *out);

#endif
