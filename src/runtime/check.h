// Checks of a call's tensors against the interface, before anything runs.
#ifndef KILN_RUNTIME_CHECK_H
#define KILN_RUNTIME_CHECK_H

#include "kiln/module.h"

#include <stdbool.h>

// One side of an interface, "input" or "output" ports; |find| gives their types and shapes.
typedef struct kiln_ports {
  const char *what; // "input"
  size_t n;
  kiln_port (*port)(const void *object, size_t i);
  const void *object;
  // A device on which tensors may be, besides the CPU: DLPack's type (0: none) and number, and the
  // alignment of addresses there.
  DLDevice device;
  uintptr_t device_align;
} kiln_ports;

static inline bool kiln_tensor_is_on_host(const DLTensor *t) {
  return t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost;
}
// Checks number, NULL, device, dtype, rank, shape, row-major strides and alignment.
//
// errors: KILN_BAD_INPUT, with a message for every wrong tensor
KILN_MUST_USE kiln_status kiln_check_tensors(const kiln_ports *ports, size_t n,
                                             const DLTensor *const *tensors, kiln_diag *diag);
// Ports of a plan that may be one tensor: outputs that it stores over inputs. NULL: none are.
typedef bool kiln_may_share(const void *object, size_t input, size_t output);
// No output may overlap an input or another output, because kernels read inputs after writing
// outputs; but where |may| is true of |object|, they may begin at one address.
KILN_MUST_USE kiln_status kiln_check_overlap(size_t n_inputs, const DLTensor *const *inputs,
                                             size_t n_outputs, const DLTensor *const *outputs,
                                             kiln_may_share *may, const void *object,
                                             kiln_diag *diag);
static inline char *kiln_tensor_begin(const DLTensor *t) {
  return (char *)t->data + t->byte_offset;
}

#endif
