// SPDX-License-Identifier: Apache-2.0
// The tables of functions that ONNX Runtime calls for a GPU's memory; gpu.c does the work.
#include "device.h"

#include <stdlib.h>

// --- allocators ---

typedef struct allocator {
  ort_allocator base; // first member
  ep_gpu *gpu;
  ep_memory_kind kind;
} allocator;

static void *allocate(ort_allocator *base, size_t bytes) {
  const allocator *a = (allocator *)base;
  return ep_gpu_allocate(a->gpu, a->kind, bytes, NULL);
}

// The stream, if it is one of this GPU's: ONNX Runtime 1.24 also names streams of other providers,
// which have no object of a plug-in.
static ep_stream *stream_of(ep_gpu *gpu, const ort_sync_stream *stream) {
  return stream ? ep_stream_of(gpu, gpu->host->ep->stream_impl(stream)) : NULL;
}

static void *allocate_in(ort_allocator *base, size_t bytes, ort_sync_stream *stream) {
  const allocator *a = (allocator *)base;
  return ep_gpu_allocate(a->gpu, a->kind, bytes, stream_of(a->gpu, stream));
}

static void free_memory(ort_allocator *base, void *memory) {
  const allocator *a = (allocator *)base;
  ep_gpu_free(a->gpu, a->kind, memory);
}

static const ort_memory_info *info(const ort_allocator *base) {
  const allocator *a = (const allocator *)base;
  return a->gpu->memory[a->kind];
}

ort_status *ep_allocator_create(ep_gpu *gpu, ep_memory_kind kind, ort_allocator **out) {
  allocator *a = calloc(1, sizeof *a);
  *out = a ? &a->base : NULL;
  if (!a) return ep_no_memory(gpu->host);
  a->base = (ort_allocator){.version = gpu->host->version,
                            .allocate = allocate,
                            .free = free_memory,
                            .info = info,
                            .reserve = allocate,
                            .allocate_in = allocate_in};
  a->gpu = gpu;
  a->kind = kind;
  return NULL;
}

void ep_allocator_destroy(ort_allocator *base) { free(base); }

// --- streams ---

typedef struct sync_stream {
  ort_stream base; // first member
  ep_stream *s;
} sync_stream;

typedef struct notification {
  ort_notification base; // first member
  ep_stream *s;
  void *event;
} notification;

static void release_notification(ort_notification *base) {
  notification *n = (notification *)base;
  kiln_gpu_event_destroy(ep_stream_gpu(n->s)->device, n->event);
  free(n);
}

static ort_status *told(const ep_gpu *gpu, kiln_status st, KILN_TAKE kiln_diag *diag) {
  ort_status *status = st == KILN_OK ? NULL : ep_fail_with(gpu->host, st, "GPU", diag);
  kiln_diag_destroy(diag);
  return status;
}

static ort_status *activate(ort_notification *base) {
  const notification *n = (notification *)base;
  ep_gpu *gpu = ep_stream_gpu(n->s);
  kiln_diag *diag = kiln_diag_create();
  return told(gpu, kiln_gpu_event_record(gpu->device, n->event, ep_stream_handle(n->s), diag),
              diag);
}

// |in|: a stream of the driver; NULL: the host waits
static ort_status *wait(const ort_notification *base, void *in) {
  const notification *n = (const notification *)base;
  ep_gpu *gpu = ep_stream_gpu(n->s);
  kiln_diag *diag = kiln_diag_create();
  return told(gpu, kiln_gpu_event_wait(gpu->device, n->event, in, diag), diag);
}

static ort_status *wait_on_device(ort_notification *base, ort_sync_stream *by) {
  const ep_stream *stream = stream_of(ep_stream_gpu(((notification *)base)->s), by);
  return wait(base, stream ? ep_stream_handle(stream) : NULL);
}

static ort_status *wait_on_host(ort_notification *base) { return wait(base, NULL); }

static ort_status *notify(ort_stream *base, ort_notification **out) {
  ep_stream *s = ((sync_stream *)base)->s;
  ep_gpu *gpu = ep_stream_gpu(s);
  notification *n = calloc(1, sizeof *n);
  *out = NULL;
  if (!n) return ep_no_memory(gpu->host);
  n->base = (ort_notification){gpu->host->version, release_notification, activate,
                               wait_on_device,     wait_on_host,         {0}};
  n->s = s;
  kiln_diag *diag = kiln_diag_create();
  ort_status *status = told(gpu, kiln_gpu_event_create(gpu->device, diag, &n->event), diag);
  if (status) free(n);
  else *out = &n->base;
  return status;
}

static void release_stream(ort_stream *base) {
  ep_stream_destroy(((sync_stream *)base)->s);
  free(base);
}

static void *handle(ort_stream *base) { return ep_stream_handle(((sync_stream *)base)->s); }

static ort_status *finish(ort_stream *base) { return ep_stream_finish(((sync_stream *)base)->s); }

ort_status *ep_sync_stream_create(ep_gpu *gpu, ort_stream **out) {
  sync_stream *s = calloc(1, sizeof *s);
  *out = NULL;
  if (!s) return ep_no_memory(gpu->host);
  s->base = (ort_stream){.version = gpu->host->version,
                         .release = release_stream,
                         .handle = handle,
                         .notify = notify,
                         .flush = finish,
                         .end_run = finish};
  ort_status *status = ep_stream_create(gpu, s, &s->s);
  if (status) free(s);
  else *out = &s->base;
  return status;
}

// --- transfers ---

typedef struct transfer {
  ort_transfer base; // first member
  const ep_host *host;
  ep_gpu *gpus;
  int n;
} transfer;

ep_gpu *ep_gpu_of(ep_gpu *gpus, int n, const ort_memory_device *device) {
  const ort_ep_api *ep = n > 0 ? gpus->host->ep : NULL;
  if (!ep || !device || ep->place(device) != ORT_ON_GPU) return NULL;
  const uint32_t index = ep->memory_index(device);
  return ep->memory_vendor(device) == EP_NVIDIA && index < (uint32_t)n ? &gpus[index] : NULL;
}

// The GPU whose memory, which the host cannot read, one of them is.
static ep_gpu *gpu_between(const transfer *t, const ort_memory_device *from,
                           const ort_memory_device *to) {
  ep_gpu *a = ep_gpu_of(t->gpus, t->n, from), *b = ep_gpu_of(t->gpus, t->n, to);
  if (b && t->host->ep->access(to) == ORT_DEVICE_ONLY) return b;
  return a && t->host->ep->access(from) == ORT_DEVICE_ONLY ? a : NULL;
}

static bool is_known(const transfer *t, const ort_memory_device *d) {
  return t->host->ep->place(d) == ORT_ON_CPU || ep_gpu_of(t->gpus, t->n, d);
}

static bool can_copy(const ort_transfer *base, const ort_memory_device *from,
                     const ort_memory_device *to) {
  const transfer *t = (const transfer *)base;
  return is_known(t, from) && is_known(t, to) && gpu_between(t, from, to);
}

static ort_status *copy_tensor(const transfer *t, const ort_value *from, ort_value *to,
                               const ort_sync_stream *stream) {
  const ep_host *h = t->host;
  const void *source = NULL;
  void *target = NULL;
  size_t bytes = 0;
  ep_gpu *gpu = gpu_between(t, h->ep->value_device(from), h->ep->value_device(to));
  if (!gpu) return ep_fail(h, ORT_INVALID_ARGUMENT, "Kiln: a copy: must be from or to a GPU");
  EP_TRY(h->api->value_data(from, &source));
  EP_TRY(h->api->tensor_data(to, &target));
  EP_TRY(h->api->value_bytes(from, &bytes));
  return ep_gpu_copy(gpu, stream_of(gpu, stream), target, source, bytes);
}

static ort_status *copy(ort_transfer *base, const ort_value **from, ort_value **to,
                        ort_sync_stream **streams, size_t n) {
  const transfer *t = (transfer *)base;
  for (size_t i = 0; i < n; i++)
    EP_TRY(copy_tensor(t, from[i], to[i], streams ? streams[i] : NULL));
  return NULL;
}

static void release_transfer(ort_transfer *base) { free(base); }

ort_status *ep_transfer_create(const ep_host *host, ep_gpu *gpus, int n, ort_transfer **out) {
  transfer *t = calloc(1, sizeof *t);
  *out = t ? &t->base : NULL;
  if (!t) return ep_no_memory(host);
  t->base = (ort_transfer){host->version, release_transfer, can_copy, copy, {0}};
  t->host = host;
  t->gpus = gpus;
  t->n = n;
  return NULL;
}
