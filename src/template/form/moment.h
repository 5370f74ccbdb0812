// Two-stage Welford reductions: few long sums, and sums of squares around something that they
// give, in the canonical form in which many blocks share them.
//
// Terms that lie behind each other, neighbouring sums side by side (an image, channels last), are
// numbered r = (part*steps + step)*rows + row. What u(r, c) gives a thread, a block and all of them
// is
//     X(part, row, step, c) = u                                         what several sums read
//     S(part, row, c | step) +=! X     V(.. | step) +=! (X - S/steps)^2       W(part, row, which,
//     c) = S or V S'(part, c | row) +=! W(0)       V'(.. | row) +=! W(1) + steps*(W(0)/steps -
//     S'/(rows*steps))^2 P(part, which, c) = S' or V'
//     sum(c | part) +=! P(0)           squares(c | part) +=! P(1) + rows*steps*(P(0)/(rows*steps) -
//     m)^2
// for squares of u - m whatever m is: sums around a mean of their own, none of which cancels.
// source: Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample
//         Variances, 1979
#ifndef KILN_TEMPLATE_FORM_MOMENT_H
#define KILN_TEMPLATE_FORM_MOMENT_H

#include "tile/query.h"

enum { KILN_MOMENT_SUMS = 6 };

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_moment {
  const kiln_stmt *w, *p;     // what threads and blocks give
  int64_t parts, rows, steps; // of a sum, of a block, of a thread
  int64_t word, width;        // channels of a thread, of a block
  int n_dims;                 // of the sums: images and channels
} kiln_moment;

// Brings |p|, such sums, maps of them and a last map, into the form if there are too few sums for
// |m| to do without (kiln_match).
bool kiln_moment_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_moment_is(kiln_ctx *cx, const kiln_program *p, kiln_moment *out);

#endif
