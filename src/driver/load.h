// The passes of the load phase (load.c).
#ifndef KILN_DRIVER_LOAD_H
#define KILN_DRIVER_LOAD_H

#include "module/build.h"

// Reads the file of b->request.model as a graph; a definition also as a program, bound to its
// sizes.
//
// errors: KILN_BAD_INPUT, KILN_UNSUPPORTED: as kiln_onnx_read, kiln_definition_load
kiln_status kiln_load_read(kiln_ctx *cx, kiln_build *b, int *io_n);
// Converts the graph to a program, or one for each shape bucket; makes the model's interface.
//
// errors: KILN_UNSUPPORTED with every unsupported node
kiln_status kiln_load_fission(kiln_ctx *cx, kiln_build *b, int *io_n);
// Implements kiln_compiler.unroll.
kiln_status kiln_load_unrolled(kiln_ctx *cx, kiln_model *m, kiln_model **out);

#endif
