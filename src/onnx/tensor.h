// TensorProto to constant: raw and external data are borrowed, typed fields are converted.
#ifndef KILN_ONNX_TENSOR_H
#define KILN_ONNX_TENSOR_H

#include "ir/graph.h"
#include "onnx/file.h"

// The largest size of a tensor in bytes.
#define KILN_ONNX_MAX_BYTES (INT64_C(1) << 62)

// Makes |out| from |t|; typed elements are converted to the perm arena. |place| and |subject|
// ("initializer "w"") are for messages.
// gives: false after reporting an error
bool kiln_onnx_tensor_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_tensor *t, kiln_const *out);

// The same for a sparse tensor, which becomes dense: other elements are 0.
bool kiln_onnx_sparse_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_sparse *s, kiln_const *out);

// Computes the number of elements; false if an extent is negative or the size exceeds
// KILN_ONNX_MAX_BYTES.
// gives: *out_elems, or an error message in *out_wrong (in scratch)
bool kiln_onnx_shape_elems(kiln_ctx *cx, int64_t rank, const int64_t *shape, int elem_bytes,
                           int64_t *out_elems, const char **out_wrong);

const char *kiln_onnx_type_name(int64_t code); // "float8e4m3fn"; "an unknown type" for others

#endif
