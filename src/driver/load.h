// The passes of the load phase (load.c).
#ifndef KILN_DRIVER_LOAD_H
#define KILN_DRIVER_LOAD_H

#include "module/build.h"

// The file of b->request.model as a graph; a definition also as a program, bound to its sizes.
//
// errors: KILN_BAD_INPUT, KILN_UNSUPPORTED: as kiln_onnx_read, kiln_definition_load
kiln_status kiln_load_read(kiln_ctx *cx, kiln_build *b, int *io_n);
// The graph as a program, or one for each shape bucket; and the model's interface.
//
// errors: KILN_UNSUPPORTED: every node that cannot be compiled
kiln_status kiln_load_fission(kiln_ctx *cx, kiln_build *b, int *io_n);

#endif
