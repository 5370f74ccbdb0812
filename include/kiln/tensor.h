// SPDX-License-Identifier: Apache-2.0
// Tensors at the door are DLPack's structures (ABI of DLPack 1.x). Include dlpack.h first to use
// its own declarations.
#ifndef KILN_TENSOR_H
#define KILN_TENSOR_H

#include "kiln/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_VERSION
typedef struct DLPackVersion {
  uint32_t major, minor;
} DLPackVersion;
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLOpenCL = 4 } DLDeviceType;
typedef struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat4_e2m1fn = 17
} DLDataTypeCode;
typedef struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; // in elements; NULL is row-major
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
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
// The elements of a row-major CPU tensor, copied. Those of fewer than 8 bits (int4, uint4, int2, uint2, f4e2m1), which
// lie packed in a tensor, the first in the low bits, are a byte each in |bytes|, in its low bits.
KILN_API void kiln_tensor_unpack(const DLTensor *tensor, void *bytes);
KILN_API void kiln_tensor_pack(DLTensor *tensor, const void *bytes);

#ifdef __cplusplus
}
#endif
#endif
