// Encoding of ONNX messages: the inverse of wire.h, with the same tables.
//
// Parts that the reader leaves out (proto.h) are not written. Lists of numbers are packed.
#ifndef KILN_ONNX_WRITE_H
#define KILN_ONNX_WRITE_H

#include "onnx/proto.h"

// gives: |message|, a struct of |schema|, in the wire format, in |arena|
onnx_bytes kiln_onnx_encode(kiln_arena *arena, const onnx_schema *schema, const void *message);

// errors: KILN_BAD_INPUT: |path| cannot be written
kiln_status kiln_onnx_write(kiln_ctx *cx, const char *path, const onnx_model *model);

#endif
