// Indices that only the run knows: each is held in range where it is used, so that nothing foreign
// is read or written, and a statement beside finds one that is not: a reduction over the indices
// themselves, once for each and not for each element that they choose. It is a statement like
// others, for every target.
#ifndef KILN_REWRITE_CHECKS_H
#define KILN_REWRITE_CHECKS_H

#include "ir/prim.h"

typedef struct kiln_pending_check {
  kiln_index_check row;
  int keys;   // i64 (1), what |tensor| is made of, or that
  int tensor; // i64 (1)
} kiln_pending_check;

// Of a program that is being made.
typedef struct kiln_checks {
  KILN_VEC(kiln_pending_check) all;
} kiln_checks;

// An index, over some dims, and where it must lie.
typedef struct kiln_index_use {
  const char *place;  // of the node
  const char *name;   // of the index
  kiln_symbol origin; // as statements have it
  int axis;
  const kiln_expr *index, *least, *end; // i64: least <= index < end
  const kiln_expr *when;                // it is used; NULL: always
  int n_dims;
  const kiln_dim *dims; // those that |index| and |when| are over, and maybe more
} kiln_index_use;

// Adds the check of |u| to |io|, unless it is proved to hold, is there already, or |io| is NULL.
// One over constants alone is made now.
//
// errors: KILN_BAD_INPUT: a constant index is out of range; named with its node
kiln_status kiln_check_index(kiln_ctx *cx, kiln_program *p, kiln_checks *io,
                             const kiln_index_use *u);
// Whether there is one that tensors from |tensor| on compute.
bool kiln_checks_have(const kiln_checks *checks, int tensor);

// Makes the results of all checks the last output.
//
// needs: all other outputs in |p|
// keeps: ids; what is new stands behind
void kiln_checks_finish(kiln_ctx *cx, kiln_program *p, const kiln_checks *checks);
// Takes checks, and what only they need, out of |p|.
void kiln_checks_drop(kiln_ctx *cx, kiln_program *p);

#endif
