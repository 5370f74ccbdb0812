// ONNX messages out: the inverse of wire.h, by the same tables.
//
// What the reader leaves out (proto.h) is not written either. Lists of numbers are written packed.
#ifndef KILN_ONNX_WRITE_H
#define KILN_ONNX_WRITE_H

#include "onnx/proto.h"

// gives: |message|, a struct of |schema|, in the wire format, in |arena|
onnx_bytes kiln_onnx_encode(kiln_arena *arena, const onnx_schema *schema, const void *message);

// errors: KILN_BAD_INPUT: |path| cannot be written
kiln_status kiln_onnx_write(kiln_ctx *cx, const char *path, const onnx_model *model);

#endif
