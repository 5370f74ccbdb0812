// The public interface to GPUs: a context of the driver, and its functions (gpu.h).
#include "kiln/gpu.h"
#include "runtime/gpu/gpu.h"
#include "support/status.h"

#include <string.h>

// kiln_gpu_handle is a kiln_gpu_context; streams and events are the driver's handles.
static kiln_gpu_context *context(kiln_gpu_handle *device) { return (kiln_gpu_context *)device; }

int32_t kiln_gpu_count(const char *target) {
  return target && strcmp(target, kiln_cuda_api.name) == 0 ? kiln_cuda_api.count() : 0;
}

kiln_status kiln_gpu_create(const char *target, int32_t index, kiln_diag *diag,
                            kiln_gpu_handle **out_device) {
  KILN_TRY(kiln_argument_check(diag, __func__, "out_device", out_device));
  *out_device = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "target", target));
  if (strcmp(target, kiln_cuda_api.name) != 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "device", "target: must be \"cuda\", got \"%s\"",
                          target);
  kiln_gpu_context *c = NULL;
  const kiln_status st = kiln_cuda_api.open(index, diag, &c);
  *out_device = (kiln_gpu_handle *)c;
  return st;
}

void kiln_gpu_destroy(kiln_gpu_handle *device) {
  if (device) context(device)->api->close(context(device));
}

// --- memory ---

// |name|: of the public function.
static kiln_status allocate(const char *name, kiln_gpu_handle *device, bool on_host, size_t n_bytes,
                            kiln_diag *diag, void **out_memory) {
  KILN_TRY(kiln_argument_check(diag, name, "device", device));
  KILN_TRY(kiln_argument_check(diag, name, "out_memory", out_memory));
  kiln_gpu_context *c = context(device);
  char *memory = NULL;
  const kiln_status st =
      (on_host ? c->api->allocate_host : c->api->allocate)(c, n_bytes, "memory", diag, &memory);
  *out_memory = memory;
  return st;
}

kiln_status kiln_gpu_allocate(kiln_gpu_handle *device, size_t n_bytes, kiln_diag *diag,
                              void **out_memory) {
  return allocate(__func__, device, false, n_bytes, diag, out_memory);
}

void kiln_gpu_free(kiln_gpu_handle *device, void *memory) {
  if (device) context(device)->api->free(context(device), memory);
}

kiln_status kiln_gpu_allocate_host(kiln_gpu_handle *device, size_t n_bytes, kiln_diag *diag,
                                   void **out_memory) {
  return allocate(__func__, device, true, n_bytes, diag, out_memory);
}

void kiln_gpu_free_host(kiln_gpu_handle *device, void *memory) {
  if (device) context(device)->api->free_host(context(device), memory);
}

// --- streams and events ---

kiln_status kiln_gpu_stream_create(kiln_gpu_handle *device, kiln_diag *diag, void **out_stream) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_stream", out_stream));
  kiln_gpu_context *c = context(device);
  kiln_gpu_stream *stream = NULL;
  const kiln_status st = c->api->stream(c, diag, &stream);
  *out_stream = stream;
  return st;
}

void kiln_gpu_stream_destroy(kiln_gpu_handle *device, void *stream) {
  if (device) context(device)->api->end_stream(context(device), stream);
}

kiln_status kiln_gpu_stream_wait(kiln_gpu_handle *device, void *stream, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  return context(device)->api->wait(context(device), stream, diag);
}

kiln_status kiln_gpu_copy(kiln_gpu_handle *device, void *stream, void *to, const void *from,
                          size_t n_bytes, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  if (n_bytes == 0) return KILN_OK;
  KILN_TRY(kiln_argument_check(diag, __func__, "to", to));
  KILN_TRY(kiln_argument_check(diag, __func__, "from", from));
  return context(device)->api->copy(context(device), stream, to, from, n_bytes, diag);
}

kiln_status kiln_gpu_event_create(kiln_gpu_handle *device, kiln_diag *diag, void **out_event) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_event", out_event));
  kiln_gpu_context *c = context(device);
  kiln_gpu_event *event = NULL;
  const kiln_status st = c->api->event(c, diag, &event);
  *out_event = event;
  return st;
}

void kiln_gpu_event_destroy(kiln_gpu_handle *device, void *event) {
  if (device) context(device)->api->end_event(context(device), event);
}

kiln_status kiln_gpu_event_record(kiln_gpu_handle *device, void *event, void *stream,
                                  kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  KILN_TRY(kiln_argument_check(diag, __func__, "event", event));
  return context(device)->api->record(context(device), stream, event, diag);
}

kiln_status kiln_gpu_event_wait(kiln_gpu_handle *device, void *event, void *stream,
                                kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "device", device));
  KILN_TRY(kiln_argument_check(diag, __func__, "event", event));
  return context(device)->api->wait_event(context(device), event, stream, diag);
}
