// Normalization prologue fusion: a product whose left operand is normalized by rows, in one kernel
// on tensor cores.
//
// Sums and maxima of the rows of a tensor, maps of these, and a contraction of elements that are
// computed from both (a softmax or a normalization before a product) become
//     X(.., m, k) = x(..)                                        elements
//     P(m, q) +=! g(X(m, 8*h + 2*q + e), R(m, q))                sums of rows, by lane
//     R(m, q) +=! P(m, l)                                        (row_stmt.h),
//     R(m, q) = f(R(m, q), ..)                                   and maps of them
//     S(m, q) = R(m, q)                                          copies of those that A reads
//     A(m, k) = f(X(m, k), S(m, k % 8 / 2), ..)   B(k, n) = ..
//     T(m, n) +=! A(m, k)*B(k, n)                 y(m, n) = f(T, ..)
// Maps of elements are inlined where they are used, and R is f32.
#ifndef KILN_TEMPLATE_FORM_NORM_PROLOGUE_H
#define KILN_TEMPLATE_FORM_NORM_PROLOGUE_H

#include "template/form/row_stmt.h"

enum { KILN_NORM_PROLOGUE_COLUMNS = 512 }; // the most columns of a row

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_norm_prologue {
  kiln_product p;
  const kiln_stmt *x;
  int n, n_shared; // statements between X and A, of which the last |n_shared| are S
  const kiln_stmt *stmts[KILN_ROW_MADE];
  kiln_row_nest nests[KILN_ROW_MADE];
} kiln_norm_prologue;

// Brings |p| into the form: statements that end with a contraction and its finish (kiln_match).
bool kiln_norm_prologue_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_norm_prologue_is(const kiln_program *p, kiln_norm_prologue *out);

#endif
