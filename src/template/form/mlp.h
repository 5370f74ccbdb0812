// Back-to-back GEMM fusion: two matrix products, the second of what a map makes of the first's
// results, in one kernel on tensor cores.
//
// A contraction, maps of its elements, and a contraction of these with its finish (a transformer's
// MLP: two linear layers and the activation between them) become
//     I(m, d) = ..   J(d, k) = ..   X(m, k) +=! I(m, d)*J(d, k)
//     A(m, k) = f(X(m, k), ..)   B(k, n) = ..   T(m, n) +=! A(m, k)*B(k, n)   y(m, n) = g(T(m, n),
//     ..)
// where k numbers the hidden elements, which a block computes a chunk at a time: the rows of T's
// sums stay where they are. What was rounded to halves on the way to A is not.
// source: Shi et al., "Welder", OSDI 2023
#ifndef KILN_TEMPLATE_FORM_MLP_H
#define KILN_TEMPLATE_FORM_MLP_H

#include "template/form/product.h"

enum {
  KILN_MLP_COLUMNS = 256, // of a row of results,
  KILN_MLP_DEPTH = 256    // and of what it is computed from
};

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_mlp {
  kiln_product p;             // the second
  const kiln_stmt *i, *j, *x; // the first
  int64_t depth;              // of its sums
} kiln_mlp;

// Brings |p|, statements between two contractions and the second one's finish, into the form
// (kiln_match).
bool kiln_mlp_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_mlp_is(const kiln_program *p, kiln_mlp *out);

#endif
