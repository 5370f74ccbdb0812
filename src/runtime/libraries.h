// The libraries whose kernels a plan calls (backend/backend.h), each opened once.
#ifndef KILN_RUNTIME_LIBRARIES_H
#define KILN_RUNTIME_LIBRARIES_H

#include "backend/backend.h"
#include "runtime/plan.h"

typedef struct kiln_libraries {
  uint32_t n;
  kiln_library *data;
} kiln_libraries;

// gives:  *out, to be closed even after failure
// errors: KILN_UNSUPPORTED: a call's backend is unknown, or for another target than the plan's;
//         KILN_DEVICE_ERROR: a library is missing; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_libraries_open(const kiln_plan *p, const char *place,
                                              kiln_diag *diag, kiln_libraries *out);
void kiln_libraries_close(kiln_libraries *l); // zeroed: does nothing
// Creates the kernels of launch |l|, a library call, for at most |most| parts. args[i] is the
// address of its argument i if that is constant.
KILN_MUST_USE kiln_status kiln_libraries_bind(const kiln_libraries *libraries, const kiln_plan *p,
                                              const kiln_plan_launch *l, int most,
                                              char *const *args, kiln_diag *diag, kiln_bound *out);
// gives: KILN_DEVICE_ERROR with a message that names the failed call
kiln_status kiln_library_call_failed(const kiln_plan *p, const kiln_plan_launch *l,
                                     kiln_diag *diag);

#endif
