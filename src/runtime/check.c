// Checks of a caller's tensors. Messages name the port, the requirement and the given value.
#include "runtime/check.h"
#include "runtime/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static kiln_status check_layout(const DLTensor *t, const kiln_type *type, const kiln_ports *ports,
                                const char *place, kiln_diag *diag) {
  uintptr_t align = kiln_tensor_is_on_host(t) ? kiln_type_bytes(type) : ports->device_align;
  if (kiln_tensor_count(t) == 0) return KILN_OK; // its memory is never touched
  if (!t->data)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "data: must point to elements, got NULL");
  if (kiln_type_is_packed(type) && !kiln_tensor_is_on_host(t))
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "device: packed elements (%s) must be on the CPU, got DLPack type %d",
                          type->text, (int)t->device.device_type);
  if (!kiln_is_row_major(t)) {
    char text[256];
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "strides: must be row-major (or NULL), got %s",
                          kiln_shape_text(t->ndim, t->strides, text, sizeof text));
  }
  if ((uintptr_t)kiln_tensor_begin(t) % align)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          kiln_tensor_is_on_host(t) ? "data: must be aligned to its %" PRIuPTR
                                                      "-byte elements, got address %p"
                                                    : "data: must be aligned to %" PRIuPTR
                                                      " bytes on a device, got address %p",
                          align, (void *)kiln_tensor_begin(t));
  return KILN_OK;
}

static kiln_status check_shape(const DLTensor *t, const kiln_port *port, const char *place,
                               kiln_diag *diag) {
  char want[256], got[256];
  bool same = t->ndim == port->rank;
  if (t->ndim < 0 || (t->ndim > 0 && !t->shape))
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "shape: must have %d extents, got rank %d and shape %p", port->rank,
                          t->ndim, (void *)t->shape);
  for (int32_t i = 0; same && i < port->rank; i++) same = t->shape[i] == port->shape[i];
  if (same) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "shape: must be %s, got %s",
                        kiln_shape_text(port->rank, port->shape, want, sizeof want),
                        kiln_shape_text(t->ndim, t->shape, got, sizeof got));
}

static kiln_status check_device(const DLTensor *t, const kiln_ports *ports, const char *place,
                                kiln_diag *diag) {
  const DLDevice *want = &ports->device, *got = &t->device;
  if (kiln_tensor_is_on_host(t)) return KILN_OK;
  if ((int)want->device_type == 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "device: must be the CPU (DLPack type 1), got DLPack type %d",
                          (int)got->device_type);
  if (got->device_type == want->device_type && got->device_id == want->device_id) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                        "device: must be the CPU (DLPack type 1) or the session's, %" PRId32
                        " of DLPack type %d, got %" PRId32 " of DLPack type %d",
                        want->device_id, (int)want->device_type, got->device_id,
                        (int)got->device_type);
}

static kiln_status check_tensor(const DLTensor *t, const kiln_port *port, const kiln_ports *ports,
                                const char *place, kiln_diag *diag) {
  if (!t) return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "must be a tensor, got NULL");
  kiln_status st = check_device(t, ports, place, diag);
  if (st != KILN_OK) return st;
  const kiln_type *type = kiln_type_of(t->dtype);
  if (!type || strcmp(type->text, port->dtype) != 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "dtype: must be %s, got %s (DLPack code %d, %d bits, %d lanes)",
                          port->dtype, type ? type->text : "another type", t->dtype.code,
                          t->dtype.bits, t->dtype.lanes);
  st = check_shape(t, port, place, diag);
  return st == KILN_OK ? check_layout(t, type, ports, place, diag) : st;
}

kiln_status kiln_check_tensors(const kiln_ports *ports, size_t n, const DLTensor *const *tensors,
                               kiln_diag *diag) {
  kiln_status worst = KILN_OK;
  if (n != ports->n || (n && !tensors))
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "run", "%ss: must be %zu, got %zu", ports->what,
                          ports->n, tensors ? n : 0);
  for (size_t i = 0; i < n; i++) {
    char place[320];
    kiln_port port = ports->port(ports->object, i);
    snprintf(place, sizeof place, "%s %zu \"%s\"", ports->what, i, port.name);
    kiln_status st = check_tensor(tensors[i], &port, ports, place, diag);
    if (st != KILN_OK) worst = st;
  }
  return worst;
}

static bool overlaps(const DLTensor *a, const DLTensor *b) {
  uintptr_t a0 = (uintptr_t)kiln_tensor_begin(a), b0 = (uintptr_t)kiln_tensor_begin(b);
  return a0 < b0 + kiln_tensor_bytes(b) && b0 < a0 + kiln_tensor_bytes(a);
}

kiln_status kiln_check_overlap(size_t n_inputs, const DLTensor *const *inputs, size_t n_outputs,
                               const DLTensor *const *outputs, kiln_may_share *may,
                               const void *object, kiln_diag *diag) {
  for (size_t o = 0; o < n_outputs; o++) {
    for (size_t i = 0; i < n_inputs; i++) {
      if (!overlaps(outputs[o], inputs[i])) continue;
      const bool is_one = kiln_tensor_begin(outputs[o]) == kiln_tensor_begin(inputs[i]);
      if (!is_one || !may || !may(object, i, o))
        return kiln_diag_fail(diag, KILN_BAD_INPUT, "run",
                              "output %zu: its memory must not overlap an input's, it overlaps "
                              "input %zu",
                              o, i);
    }
    for (size_t i = 0; i < o; i++)
      if (overlaps(outputs[o], outputs[i]))
        return kiln_diag_fail(diag, KILN_BAD_INPUT, "run",
                              "output %zu: its memory must not overlap that of output %zu", o, i);
  }
  return KILN_OK;
}
