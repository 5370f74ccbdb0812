// Reference results, for verification, tuning and the simulator.
#ifndef KILN_VERIFY_REFERENCE_H
#define KILN_VERIFY_REFERENCE_H

#include "model/model.h"

// Deviations from the reference that kernels may have, as by Winograd's algorithm: they widen the
// error bounds.
kiln_freedoms kiln_model_freedoms(const kiln_model *m);
// Records which transforms the kernels of |module| use.
void kiln_model_note_transforms(kiln_ctx *cx, kiln_model *m, const kiln_module *module);
// The same for a launch, whose statements show their transforms.
kiln_freedoms kiln_launch_freedoms(const kiln_model *m);
// Checks the arguments of kiln_model_reference and kiln_model_simulate: dimensions must be bound;
// tensors must have the ports' types and shapes and not overlap.
kiln_status kiln_model_check_tensors(const kiln_model *m, size_t n_inputs,
                                     const DLTensor *const *inputs, size_t n_outputs,
                                     DLTensor *const *outputs, kiln_diag *diag);

#endif
