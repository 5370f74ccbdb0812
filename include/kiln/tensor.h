// SPDX-License-Identifier: Apache-2.0
// Tensors at the door are DLPack's structures (ABI of DLPack 1.x). A program may include dlpack.h,
// too, in front or behind (kiln/dlpack.h).
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
// gives: a tensor, to be freed with kiln_tensor_destroy (its deleter); NULL and a message when
//        memory is out or the type or shape is bad
KILN_API KILN_GIVE DLManagedTensorVersioned *
kiln_tensor_create(const char *dtype, int32_t rank, const int64_t *shape, kiln_diag *diag);
KILN_API void kiln_tensor_destroy(KILN_TAKE DLManagedTensorVersioned *tensor); // NULL is allowed
KILN_API const char *
kiln_tensor_dtype(const DLTensor *tensor); // "f32", ...; NULL for a type Kiln does not have
KILN_API size_t kiln_tensor_bytes(const DLTensor *tensor);  // of the elements, row-major
KILN_API int64_t kiln_tensor_count(const DLTensor *tensor); // elements
// Element |i| (row-major) of a CPU tensor of any type, as a double; and the inverse, rounded or
// saturated to the type.
KILN_API double kiln_tensor_element(const DLTensor *tensor, int64_t i);
KILN_API void kiln_tensor_set_element(DLTensor *tensor, int64_t i, double value);
// The elements of a row-major CPU tensor, copied. Those of fewer than 8 bits (int4, uint4, int2,
// uint2, f4e2m1), which lie packed in a tensor, the first in the low bits, are a byte each in
// |bytes|, in its low bits.
KILN_API void kiln_tensor_unpack(const DLTensor *tensor, void *bytes);
KILN_API void kiln_tensor_pack(DLTensor *tensor, const void *bytes);

#ifdef __cplusplus
}
#endif
#endif
