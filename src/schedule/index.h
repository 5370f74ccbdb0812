// Index analysis, for legality checks and bounding boxes: the values that loops give an index, and
// the part of a buffer that they access.
#ifndef KILN_SCHEDULE_INDEX_H
#define KILN_SCHEDULE_INDEX_H

#include "analysis/terms.h"
#include "schedule/nest.h"

// --- terms.c ---

// A set of variables.
typedef struct kiln_vars {
  kiln_symbol *data;
  int n, cap;
} kiln_vars;
bool kiln_vars_has(const kiln_vars *v, kiln_symbol s);
bool kiln_vars_in(const kiln_vars *v, const kiln_expr *e);       // |e| uses one of them
kiln_vars kiln_vars_under(kiln_ctx *cx, const kiln_loop *first); // loops of |first| and siblings
kiln_vars kiln_vars_of(kiln_ctx *cx, const kiln_loop *nest);     // loops of |nest| alone

// Whether equal indices imply equal values of |v|, whatever the other |unknown| variables are.
bool kiln_index_determines(kiln_edit *e, int n, const kiln_expr *const *index,
                           const kiln_vars *unknown, kiln_symbol v);

// --- span.c ---

// Whether the loops |inner| make |x| take all of lo, lo + 1, ..., lo + n - 1, and nothing else,
// with lo free of them.
bool kiln_index_spans(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                      const kiln_expr **out_lo, int64_t *out_n);
// Whether they make the indices take all of [0, extents), as far as no condition keeps them from
// it.
bool kiln_index_covers(kiln_edit *e, int n, const kiln_expr *const *index, const kiln_vars *inner,
                       const int64_t *extents);
// The axis of which |cond| says that its index is below the extent (`<`), or not below 0 (`>=`),
// and nothing else, as what splits and merges leave does; -1: it says something else.
int kiln_index_kept(kiln_edit *e, int n, const kiln_expr *const *index, const int64_t *extents,
                    const kiln_expr *cond);

// --- box.c: what part of a buffer a loop's iteration touches ---

// Axis k: [lo[k], lo[k] + extent[k]), lo affine in variables outside of the loop.
typedef struct kiln_tma {
  int rank;
  const kiln_expr *lo[KILN_MAX_AXES];
  int64_t extent[KILN_MAX_AXES];
} kiln_tma;
// The box that holds all |accesses| (n > 0) to |b|, with |inner| variables running through their
// ranges. It may overhang the buffer unless it is as large (then it is the buffer).
void kiln_box_of(kiln_edit *e, const kiln_buffer *b, const kiln_accesses *accesses,
                 const kiln_vars *inner, kiln_tma *out);
// Bounds |x|: lo <= x <= lo + width with lo free of |inner|. False when nothing is known.
bool kiln_box_bound(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                    const kiln_expr **out_lo, int64_t *out_width);
// An interval of b - a, which often hold the same parts.
kiln_interval kiln_box_distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b);
bool kiln_box_below(kiln_edit *e, const kiln_tma *box, int axis); // lo < 0 is possible
bool kiln_box_above(kiln_edit *e, const kiln_tma *box, int axis, int64_t extent); // the end too
// Moves the box inwards, so that it does not overhang [0, extent).
void kiln_box_shift_low(kiln_edit *e, kiln_tma *box, int axis);
void kiln_box_shift_high(kiln_edit *e, kiln_tma *box, int axis, int64_t extent);

#endif
