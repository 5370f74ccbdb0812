// Index analysis for legality checks and bounding boxes: the values that an index takes in loops,
// and the box of a buffer that they access.
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
bool kiln_vars_in(const kiln_vars *v, const kiln_expr *e);       // |e| uses a variable of |v|
kiln_vars kiln_vars_under(kiln_ctx *cx, const kiln_loop *first); // loops of |first| and siblings
kiln_vars kiln_vars_of(kiln_ctx *cx, const kiln_loop *nest);     // loops of |nest| alone

// Whether equal indices imply equal values of |v|, for any values of the other |unknown| variables.
bool kiln_index_determines(kiln_edit *e, int n, const kiln_expr *const *index,
                           const kiln_vars *unknown, kiln_symbol v);

// --- span.c ---

// Whether |x| takes exactly the values lo, lo + 1, ..., lo + n - 1 in the loops |inner|, with lo
// independent of them.
bool kiln_index_spans(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                      const kiln_expr **out_lo, int64_t *out_n);
// Whether the indices take all values of [0, extents) in the loops |inner|, conditions aside.
bool kiln_index_covers(kiln_edit *e, int n, const kiln_expr *const *index, const kiln_vars *inner,
                       const int64_t *extents);
// The axis for which |cond| states just one bound of its index, below the extent (`<`) or not below
// 0 (`>=`), as guards of splits and merges do; -1 for any other condition.
int kiln_index_kept(kiln_edit *e, int n, const kiln_expr *const *index, const int64_t *extents,
                    const kiln_expr *cond);

// --- box.c: bounding boxes of accesses ---

// Axis k is [lo[k], lo[k] + extent[k]); lo is affine in variables outside of the loop.
typedef struct kiln_box {
  int rank;
  const kiln_expr *lo[KILN_MAX_AXES];
  int64_t extent[KILN_MAX_AXES];
} kiln_box;
// The box that contains all |accesses| (n > 0) to |b| for all values of the variables |inner|. It
// may overhang the buffer, unless it is as large: then it is the buffer.
void kiln_box_of(kiln_edit *e, const kiln_buffer *b, const kiln_accesses *accesses,
                 const kiln_vars *inner, kiln_box *out);
// Bounds |x|: lo <= x <= lo + width, with lo independent of |inner|; false if no bound is known.
bool kiln_box_bound(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                    const kiln_expr **out_lo, int64_t *out_width);
// An interval of b - a; terms that both have cancel.
kiln_interval kiln_box_distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b);
bool kiln_box_below(kiln_edit *e, const kiln_box *box, int axis); // whether lo < 0 is possible
// whether the end > |extent| is possible
bool kiln_box_above(kiln_edit *e, const kiln_box *box, int axis, int64_t extent);
// Moves the box inwards, so that it begins at 0 or later, or ends at |extent| or before.
void kiln_box_shift_low(kiln_edit *e, kiln_box *box, int axis);
void kiln_box_shift_high(kiln_edit *e, kiln_box *box, int axis, int64_t extent);

#endif
