// Back-to-back GEMM fusion: two matrix products in one kernel on tensor cores, the second of a map
// of the first one's results.
//
// A contraction, maps of its elements, and a contraction of these with its finish (a transformer's
// MLP: two linear layers and the activation between them) become
//     I(m, d) = ..          J(d, k) = ..   X(m, k) +=! I(m, d)*J(d, k)
//     A(m, k) = f(X, ..)    B(k, n) = ..   T(m, n) +=! A(m, k)*B(k, n)    y(m, n) = g(T, ..)
// where k numbers the hidden elements. A block computes these a chunk at a time while the sums T of
// its rows stay in registers. Roundings to halves before A are dropped.
// source: Shi et al., "Welder", OSDI 2023
#ifndef KILN_TEMPLATE_FORM_B2B_GEMM_H
#define KILN_TEMPLATE_FORM_B2B_GEMM_H

#include "template/form/product.h"

enum {
  KILN_B2B_GEMM_COLUMNS = 256, // of a row of results,
  KILN_B2B_GEMM_DEPTH = 256    // and of I
};

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_b2b_gemm {
  kiln_product p;             // the second product
  const kiln_stmt *i, *j, *x; // of the first product
  int64_t depth;              // d's extent
} kiln_b2b_gemm;

// Brings |p| into the form: statements between two contractions and the second one's finish
// (kiln_match).
bool kiln_b2b_gemm_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_b2b_gemm_is(const kiln_program *p, kiln_b2b_gemm *out);

#endif
