// Bounds checks of a program's data-dependent indices, in the runtime's form.
#ifndef KILN_MODULE_CHECKED_H
#define KILN_MODULE_CHECKED_H

#include "ir/prim.h"
#include "runtime/extents.h"

// The rows of |p|, in perm.
kiln_plan_check *kiln_plan_checks_of(kiln_ctx *cx, const kiln_program *p);
// The results of the checks in a run of |p|, [p->checks.n]: as kiln_plan_checked.
kiln_status kiln_program_checked(kiln_ctx *cx, const kiln_program *p, const int64_t *results);

#endif
