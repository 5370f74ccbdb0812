// The checks of a program's indices, as the runtime has them.
#ifndef KILN_MODULE_CHECKED_H
#define KILN_MODULE_CHECKED_H

#include "ir/prim.h"
#include "runtime/extents.h"

// The rows of |p|, in perm.
kiln_plan_check *kiln_plan_checks_of(kiln_ctx *cx, const kiln_program *p);
// What a computation of |p| found, [p->checks.n]: as kiln_plan_checked.
kiln_status kiln_program_checked(kiln_ctx *cx, const kiln_program *p, const int64_t *results);

#endif
