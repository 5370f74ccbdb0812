// Two-stage Welford reductions: few long sums and sums of squares around a function of them, in the
// canonical form in which many blocks share each sum.
//
// The terms of a sum lie one row apart, and neighbouring sums side by side (an image, channels
// last). Terms are numbered r = (part*steps + step)*rows + row. Of a term u(r, c), each thread,
// each block and then all blocks together compute
//     X(part, row, step, c) = u                                  a load that several sums share
//     S(part, row, c | step) +=! X     V(.. | step) +=! (X - S/steps)^2
//     W(part, row, which, c) = S or V                            results of a thread
//     S'(part, c | row) +=! W(0)
//     V'(.. | row) +=! W(1) + steps*(W(0)/steps - S'/(rows*steps))^2
//     P(part, which, c) = S' or V'                               results of a block
//     sum(c | part) +=! P(0)
//     squares(c | part) +=! P(1) + rows*steps*(P(0)/(rows*steps) - m)^2
// Squares of u - m, for any m, are so computed from squares around the terms' own means, which do
// not cancel.
// source: Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample
//         Variances, 1979
#ifndef KILN_TEMPLATE_FORM_MOMENT_H
#define KILN_TEMPLATE_FORM_MOMENT_H

#include "tile/query.h"

enum { KILN_MOMENT_SUMS = 6 };

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_moment {
  const kiln_stmt *w, *p;     // results of threads and of blocks
  int64_t parts, rows, steps; // extents: parts of a sum, rows of a block, steps of a thread
  int64_t word, width;        // channels of a thread, and of a block
  int n_dims;                 // of the sums, for example image and channel
} kiln_moment;

// Brings |p|, of these sums, maps of them and a last map, into the form if it has too few sums to
// fill |m| with one block each (kiln_match).
bool kiln_moment_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_moment_is(kiln_ctx *cx, const kiln_program *p, kiln_moment *out);

#endif
