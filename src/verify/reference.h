// The reference's results, as verification, tuning and the simulator use them.
#ifndef KILN_VERIFY_REFERENCE_H
#define KILN_VERIFY_REFERENCE_H

#include "model/model.h"

// Deviations from the reference that kernels may have, as Winograd's algorithm: they widen the
// error bounds.
kiln_freedoms kiln_model_freedoms(const kiln_model *m);
// Which of them the kernels of |module| are.
void kiln_model_note_transforms(kiln_ctx *cx, kiln_model *m, const kiln_module *module);
// The same of a launch, whose statements say how they transform.
kiln_freedoms kiln_launch_freedoms(const kiln_model *m);
// Checks the arguments of kiln_model_reference and kiln_model_simulate: dimensions bound; tensors
// with the ports' types and shapes, which do not overlap.
kiln_status kiln_model_check_tensors(const kiln_model *m, size_t n_inputs,
                                     const DLTensor *const *inputs, size_t n_outputs,
                                     DLTensor *const *outputs, kiln_diag *diag);

#endif
