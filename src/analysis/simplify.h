// Range-aware simplification of index expressions: div and mod of affine forms, min, max,
// comparisons.
//
// i64 arithmetic over variables is assumed not to overflow: it computes addresses. Arithmetic on
// loaded data may wrap; only intervals may prove the contrary. |r| may be NULL everywhere: no range
// is known.
#ifndef KILN_ANALYSIS_SIMPLIFY_H
#define KILN_ANALYSIS_SIMPLIFY_H

#include "ir/prim.h"

// Inclusive bounds; INT64_MIN / INT64_MAX where unknown.
typedef struct kiln_interval {
  int64_t lo, hi;
} kiln_interval;

// Ranges of variables; a small list, looked up from the end (inner scopes shadow).
typedef struct kiln_ranges {
  kiln_arena *arena;
  KILN_VEC(struct {
    kiln_symbol var;
    kiln_interval range;
  })
  entries;
} kiln_ranges;

void kiln_ranges_init(kiln_ranges *r, kiln_arena *arena);
void kiln_ranges_push(kiln_ranges *r, kiln_symbol var, int64_t lo, int64_t hi);
kiln_ranges kiln_stmt_ranges(kiln_arena *arena, const kiln_stmt *s); // of its dims
void kiln_ranges_pop(kiln_ranges *r, int n);                         // removes the n newest
// Whether |load| is in bounds for all values in the ranges, so that it may be moved out of the
// conditions around it.
bool kiln_load_is_inside(kiln_ctx *cx, const kiln_program *p, const kiln_expr *load,
                         const kiln_ranges *r);

// The interval of an integer expression (saturating); loads and unknown variables give the whole
// range of their dtype.
kiln_interval kiln_expr_interval(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r);
// An equal expression: affine parts collected as sum(coef * term) + constant in a canonical order,
// (a*x + b) / a and % a split where the rest stays in [0, a), x/f*f + x%f merged,
// min/max/comparisons decided by ranges, SELECTs of decided conditions reduced; works inside loads'
// indices and scalar parts too.
const kiln_expr *kiln_simplify(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r);
const kiln_expr *kiln_stmt_simplify(kiln_ctx *cx, const kiln_stmt *s,
                                    const kiln_expr *e); // in the ranges of its dims
// Whether the boolean |e| holds for all values in the ranges; false when unknown.
bool kiln_proves(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r);

#endif
