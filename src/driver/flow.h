// Models with loops that are kept: each part is compiled as a model of its own, and the module has
// the steps that run them (runtime/flow/flow.h).
#ifndef KILN_DRIVER_FLOW_H
#define KILN_DRIVER_FLOW_H

#include "module/build.h"

// Implement kiln_model_compile_to and kiln_model_compile for a model in parts.
kiln_status kiln_flow_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag);
kiln_status kiln_flow_compile(kiln_model *m, kiln_diag *diag, kiln_module **out_module);
// Prints the steps, as in
//   2 loop of node 3 "scan" (Loop): count buffer 4, exchanges buffer 5 and buffer 6
void kiln_flow_print(const kiln_flow *f, kiln_text *out);

#endif
