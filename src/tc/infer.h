// Range inference: which values each index takes, from the accesses of a statement.
//
// Every access says lo <= e <= hi of an index expression e. In rounds, the constraints that mention
// exactly one unsolved index (others at their ranges) give its largest interval; several are
// intersected; the solved ranges are substituted, until no progress is made. So A(i) +=!
// B(i+k)*K(k) solves k from K first, then i from B: the output shrinks. Ranges are rectangular;
// extents may be symbolic. source: Tensor Comprehensions, forwardBoundsInference.
#ifndef KILN_TC_INFER_H
#define KILN_TC_INFER_H

#include "ir/expr.h"

typedef struct kiln_tc_range {
  kiln_symbol var;
  bool solved;
  const kiln_expr *lo, *extent; // over sizes only
  int source;                   // of the bound that ends it; -1: none does
} kiln_tc_range;

typedef struct kiln_tc_bound {
  const kiln_expr *e, *lo, *hi; // lo <= e <= hi; lo and hi over sizes only
  bool used;                    // it solved an index, so it holds
  int source;                   // for the caller: which access, for messages
} kiln_tc_bound;

// |e| in its simplest form, for all that is known of its sizes: nothing.
const kiln_expr *kiln_tc_simple(kiln_ctx *cx, const kiln_expr *e);

// Solves what it can; |ranges| that are solved on entry stay. Non-affine bounds say nothing.
void kiln_tc_infer(kiln_ctx *cx, int n_ranges, kiln_tc_range *ranges, int n_bounds,
                   kiln_tc_bound *bounds);

// e = sum(coef[k] * ranges[k].var) + rest, where it is so: fills coef [n_ranges] and |*out_rest|.
bool kiln_tc_affine(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges, const kiln_expr *e,
                    int64_t *coef, const kiln_expr **out_rest);
// The least (|most| false) or greatest value of such an expression over the ranges.
const kiln_expr *kiln_tc_extreme(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                 const int64_t *coef, const kiln_expr *rest, bool most);
typedef enum kiln_tc_verdict {
  KILN_TC_HOLDS,
  KILN_TC_FAILS,  // for some index of the ranges
  KILN_TC_UNKNOWN // sizes decide
} kiln_tc_verdict;

// Whether |b| holds for all indices of |ranges|, all of them solved, for which |guard| does (NULL:
// for all). With numbers for sizes UNKNOWN means that no proof was found.
kiln_tc_verdict kiln_tc_bound_check(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                    const kiln_expr *guard, const kiln_tc_bound *b);
// Whether e >= 0 for all sizes from 0 up.
kiln_tc_verdict kiln_tc_at_least_zero(kiln_ctx *cx, const kiln_expr *e);

#endif
