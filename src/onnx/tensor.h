// TensorProto to constant: raw and external data stay where they lie, typed fields are converted.
#ifndef KILN_ONNX_TENSOR_H
#define KILN_ONNX_TENSOR_H

#include "ir/graph.h"
#include "onnx/file.h"

// The largest number of bytes a tensor may be said to have.
#define KILN_ONNX_MAX_BYTES (INT64_C(1) << 62)

// Makes |out| of |t|; typed elements go to the perm arena. |place| and |subject| ("initializer
// "w"") name it in messages.
// gives: false after telling what is wrong
bool kiln_onnx_tensor_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_tensor *t, kiln_const *out);

// The same of a sparse tensor, dense: elements that it does not list are 0.
bool kiln_onnx_sparse_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_sparse *s, kiln_const *out);

// Multiplies; false when there is a negative extent or the bytes exceed KILN_ONNX_MAX_BYTES.
// gives: *out_elems, or what is wrong with the extents in *out_wrong (in scratch)
bool kiln_onnx_shape_elems(kiln_ctx *cx, int64_t rank, const int64_t *shape, int elem_bytes,
                           int64_t *out_elems, const char **out_wrong);

const char *kiln_onnx_type_name(int64_t code); // "float8e4m3fn"; "an unknown type" for others

#endif
