// A program's run-time checks of data-dependent indices, in the plan's form.
#ifndef KILN_MODULE_CHECKED_H
#define KILN_MODULE_CHECKED_H

#include "ir/prim.h"
#include "runtime/extents.h"

// The checks of |p| as rows of a plan, in perm.
kiln_plan_check *kiln_plan_checks_of(kiln_ctx *cx, const kiln_program *p);
// Evaluates the results [p->checks.n] of the checks after a run of |p|, as kiln_plan_checked does.
kiln_status kiln_program_checked(kiln_ctx *cx, const kiln_program *p, const int64_t *results);

#endif
