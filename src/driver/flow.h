// Models with loops that are kept: each part is compiled as a model of its own, and the module has
// the steps that run them (runtime/flow/flow.h).
#ifndef KILN_DRIVER_FLOW_H
#define KILN_DRIVER_FLOW_H

#include "module/build.h"

// Implement kiln_model_compile_to and kiln_model_compile for a model in parts.
kiln_status kiln_flow_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag);
kiln_status kiln_flow_compile(kiln_model *m, kiln_diag *diag, kiln_module **out_module);
// Runs |make| on a build of each part, and dumps the steps if asked for.
kiln_status kiln_flow_each(kiln_ctx *cx, kiln_model *m,
                           kiln_status (*make)(kiln_ctx *cx, kiln_build *b));

#endif
