// Checks the tensors of a call against an interface, before anything runs.
#ifndef KILN_RUNTIME_CHECK_H
#define KILN_RUNTIME_CHECK_H

#include "kiln/module.h"

#include <stdbool.h>

// One side of an interface: "input" or "output" ports and what was given for them.
typedef struct kiln_ports {
  const char *what; // "input"
  size_t n;
  kiln_port (*port)(const void *object, size_t i);
  const void *object;
  // Where tensors may lie beside the CPU's memory: DLPack's type, 0 for nowhere; the device's
  // number; and what their addresses there must be multiples of.
  DLDevice device;
  uintptr_t device_align;
} kiln_ports;

static inline bool kiln_tensor_is_on_host(const DLTensor *t) {
  return t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost;
}
// Counts, NULL, device, dtype, rank, shape, row-major strides, alignment.
//
// errors: KILN_BAD_INPUT, with a message for every wrong tensor
KILN_MUST_USE kiln_status kiln_check_tensors(const kiln_ports *ports, size_t n,
                                             const DLTensor *const *tensors, kiln_diag *diag);
// No output may overlap an input or another output: kernels read inputs after writing outputs.
KILN_MUST_USE kiln_status kiln_check_overlap(size_t n_inputs, const DLTensor *const *inputs,
                                             size_t n_outputs, const DLTensor *const *outputs,
                                             kiln_diag *diag);
static inline char *kiln_tensor_begin(const DLTensor *t) {
  return (char *)t->data + t->byte_offset;
}

#endif
