// What a mask does to a tile of scores: nothing, or it leaves all of them out.
//
// A score whose value is -inf, or a finite number that no sum of products comes near, has the
// weight 0 in a softmax over its row, if that row keeps any other score. So a tile of such scores
// need not be computed. Decided by intervals of the conditions in a score's expression:
//
//     n <= m ? s : -inf,  m in [0, 64), n in [64, 128):  KILN_MASKING_LOWEST
//                         m in [64, 128), n in [0, 64):  KILN_MASKING_NONE
//
// Masked means masked: a score that is left out is taken to be so whatever is added to it, NaN and
// infinities included, and its weight 0 leaves out what it would be multiplied by.
#ifndef KILN_ANALYSIS_MASKING_H
#define KILN_ANALYSIS_MASKING_H

#include "analysis/simplify.h"

typedef enum kiln_masking {
  KILN_MASKING_NONE,  // no score is left out
  KILN_MASKING_SOME,  // or it is unknown which
  KILN_MASKING_FAR,   // all are at most KILN_FAR_SCORE
  KILN_MASKING_LOWEST // all are -inf
} kiln_masking;

#define KILN_FAR_SCORE (-1e30)

// How |score|, an expression of floats, is masked for all variables in the ranges. Loads of
// |scores| are scores; other loads may be masks, of which nothing is known.
kiln_masking kiln_masking_of(kiln_ctx *cx, const kiln_expr *score, int scores,
                             const kiln_ranges *r);
static inline bool kiln_masking_is_empty(kiln_masking m) { return m >= KILN_MASKING_FAR; }

#endif
