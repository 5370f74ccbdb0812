// Bounds checks of indices known only at run time. At each use the index is clamped, so that no
// access is out of bounds; a separate statement finds indices that are out of range, as a max
// reduction over the index tensor: once for each index rather than for each element that it
// selects. It is an ordinary statement, compiled for every target.
#ifndef KILN_REWRITE_CHECKS_H
#define KILN_REWRITE_CHECKS_H

#include "ir/prim.h"

typedef struct kiln_pending_check {
  kiln_index_check row;
  int keys;   // i64 (1), the key from which |tensor| is computed, or |tensor| itself
  int tensor; // i64 (1), the result
} kiln_pending_check;

// The checks of a program under construction.
typedef struct kiln_checks {
  KILN_VEC(kiln_pending_check) all;
} kiln_checks;

// A use of an index: its dims and bounds.
typedef struct kiln_index_use {
  const char *place;  // the node, for messages
  const char *name;   // of the index tensor
  kiln_symbol origin; // of new statements
  int axis;
  const kiln_expr *index, *least, *end; // i64: least <= index < end
  const kiln_expr *when;                // condition of the use; NULL: always
  int n_dims;
  const kiln_dim *dims; // dims of |index| and |when|, possibly more
} kiln_index_use;

// Adds the check of |u| to |io|, unless it is proved, a duplicate, or |io| is NULL. A check of
// constants is evaluated at once.
//
// errors: KILN_BAD_INPUT: a constant index is out of range; names the node
kiln_status kiln_check_index(kiln_ctx *cx, kiln_program *p, kiln_checks *io,
                             const kiln_index_use *u);
// Whether a check is computed by tensors from |tensor| on.
bool kiln_checks_have(const kiln_checks *checks, int tensor);

// Adds the results of all checks as the last output.
//
// needs: all other outputs in |p|
// keeps: ids; new ones are appended
void kiln_checks_finish(kiln_ctx *cx, kiln_program *p, const kiln_checks *checks);
// Removes checks, and all statements that only they need, from |p|.
void kiln_checks_drop(kiln_ctx *cx, kiln_program *p);

#endif
