// Reference results of a model in parts (model/parts.h): its steps are run, each part by the
// interpreter. What parts pass to one another is kept with its errors, so that results are judged
// by the roundings of all iterations.
#ifndef KILN_VERIFY_PARTS_REFERENCE_H
#define KILN_VERIFY_PARTS_REFERENCE_H

#include "analysis/interpret.h"
#include "model/model.h"

// Runs the parts of |m| on |inputs|, [inputs of m] row-major elements, and binds the outputs of
// |ports|, the program of its ports, in |io|, with their errors if |may| is not NULL; and sets the
// shapes that the run finds.
//
// errors: those of the interpreter, of checks, and of loops that need more iterations than there is
//         room for
kiln_status kiln_parts_refer(kiln_ctx *cx, kiln_model *m, const void *const *inputs,
                             const kiln_freedoms *may, const kiln_program *ports,
                             kiln_interpreter *io);

#endif
