// Range inference: the values of each index, from the accesses of a statement.
//
// Every access requires lo <= e <= hi for an index expression e. In rounds, the constraints with
// exactly one unsolved index (solved ones being in their ranges) give its largest interval; several
// are intersected. So A(i) +=! B(i+k)*K(k) solves k from K first, then i from B: the output is
// smaller than B. Ranges are rectangular; extents may be symbolic. source: Tensor Comprehensions,
// forwardBoundsInference.
#ifndef KILN_TC_INFER_H
#define KILN_TC_INFER_H

#include "ir/expr.h"

typedef struct kiln_tc_range {
  kiln_symbol var;
  bool solved;
  const kiln_expr *lo, *extent; // over sizes only
  int source;                   // of the bound that determines its end; -1: none
} kiln_tc_range;

typedef struct kiln_tc_bound {
  const kiln_expr *e, *lo, *hi; // lo <= e <= hi; lo and hi over sizes only
  bool used;                    // used to solve an index, so it holds
  int source;                   // index of the access, for messages
} kiln_tc_bound;

// |e| simplified, without assumptions on its sizes.
const kiln_expr *kiln_tc_simple(kiln_ctx *cx, const kiln_expr *e);

// Solves as many ranges as possible; those solved on entry are kept. Bounds that are not affine are
// ignored.
void kiln_tc_infer(kiln_ctx *cx, int n_ranges, kiln_tc_range *ranges, int n_bounds,
                   kiln_tc_bound *bounds);

// Decomposes e = sum(coef[k] * ranges[k].var) + rest: fills coef [n_ranges] and |*out_rest|; false
// if e is not affine.
bool kiln_tc_affine(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges, const kiln_expr *e,
                    int64_t *coef, const kiln_expr **out_rest);
// The least (|most| false) or greatest value of such an expression over the ranges.
const kiln_expr *kiln_tc_extreme(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                 const int64_t *coef, const kiln_expr *rest, bool most);
typedef enum kiln_tc_verdict {
  KILN_TC_HOLDS,
  KILN_TC_FAILS,  // violated for some index
  KILN_TC_UNKNOWN // depends on sizes
} kiln_tc_verdict;

// Whether |b| holds for all indices of |ranges| (all solved) that satisfy |guard| (NULL: all). If
// sizes are numbers, UNKNOWN means that no proof was found.
kiln_tc_verdict kiln_tc_bound_check(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                    const kiln_expr *guard, const kiln_tc_bound *b);
// Whether e >= 0 for all nonnegative sizes.
kiln_tc_verdict kiln_tc_at_least_zero(kiln_ctx *cx, const kiln_expr *e);

#endif
