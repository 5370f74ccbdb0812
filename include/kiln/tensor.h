// SPDX-License-Identifier: Apache-2.0
// Tensors of the interface are DLPack's structures (ABI of DLPack 1.x). A program may include
// dlpack.h before or after (kiln/dlpack.h).
#ifndef KILN_TENSOR_H
#define KILN_TENSOR_H

#include "kiln/dlpack.h"
#include "kiln/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes a row-major CPU tensor with 64-byte aligned, zeroed elements; |dtype| is "f32", "i64",
// "bool", ...
//
// gives: a tensor, to be freed with kiln_tensor_destroy (its deleter); NULL with a message if
//        memory is out or the type or shape is invalid
KILN_API KILN_GIVE DLManagedTensorVersioned *
kiln_tensor_create(const char *dtype, int32_t rank, const int64_t *shape, kiln_diag *diag);
KILN_API void kiln_tensor_destroy(KILN_TAKE DLManagedTensorVersioned *tensor); // NULL is allowed
KILN_API const char *
kiln_tensor_dtype(const DLTensor *tensor); // "f32", ...; NULL for an unsupported type
KILN_API size_t kiln_tensor_bytes(const DLTensor *tensor);  // of the elements, row-major
KILN_API int64_t kiln_tensor_count(const DLTensor *tensor); // number of elements
// Element |i| (row-major) of a CPU tensor of any type as a double; and the inverse, which rounds or
// saturates to the type.
KILN_API double kiln_tensor_element(const DLTensor *tensor, int64_t i);
KILN_API void kiln_tensor_set_element(DLTensor *tensor, int64_t i, double value);
// Copies the elements of a row-major CPU tensor. Types of fewer than 8 bits (int4, uint4, int2,
// uint2, f4e2m1), which are packed in a tensor, the first element in the low bits, are unpacked to
// the low bits of a byte each.
KILN_API void kiln_tensor_unpack(const DLTensor *tensor, void *bytes);
KILN_API void kiln_tensor_pack(DLTensor *tensor, const void *bytes);

#ifdef __cplusplus
}
#endif
#endif
