// SPDX-License-Identifier: Apache-2.0
// Kernels of MemcpyFromHost and MemcpyToHost, the nodes that ONNX Runtime puts where a tensor goes
// from a provider in the host's memory to one in a GPU's, or back.
#include "device.h"

#include <stdlib.h>

typedef struct copy_kernel {
  ort_kernel base; // first member
  ep_gpu *gpu;
} copy_kernel;

enum { MAX_RANK = 64, N_ELEMENTS = 27 };

static ort_status *make_output(const ep_host *h, ort_kernel_context *context,
                               const ort_value *input, ort_value **out) {
  ort_tensor_type *type = NULL;
  size_t rank = 0;
  int64_t dims[MAX_RANK];
  EP_TRY(h->api->value_type(input, &type));
  ort_status *status = h->api->tensor_rank(type, &rank);
  if (!status && rank > MAX_RANK)
    status = ep_fail(h, ORT_INVALID_ARGUMENT, "Kiln: a tensor must have at most %d axes, got %zu",
                     MAX_RANK, rank);
  if (!status) status = h->api->tensor_dims(type, dims, rank);
  h->api->release_tensor_type(type);
  return status ? status : h->api->kernel_output(context, 0, dims, rank, out);
}

static bool is_on_device(const ep_host *h, const ort_value *value) {
  const ort_memory_device *d = h->ep->value_device(value);
  return h->ep->place(d) == ORT_ON_GPU && h->ep->access(d) == ORT_DEVICE_ONLY;
}

static ort_status *copy(ep_gpu *gpu, ort_kernel_context *context) {
  const ep_host *h = gpu->host;
  const ort_value *input = NULL;
  ort_value *output = NULL;
  const void *from = NULL;
  void *to = NULL, *handle = NULL;
  size_t bytes = 0;
  EP_TRY(h->api->kernel_input(context, 0, &input));
  EP_TRY(make_output(h, context, input, &output));
  EP_TRY(h->api->value_data(input, &from));
  EP_TRY(h->api->tensor_data(output, &to));
  EP_TRY(h->api->value_bytes(input, &bytes));
  EP_TRY(h->api->kernel_stream(context, &handle));
  ep_stream *stream = handle ? ep_stream_find(gpu, handle) : NULL;
  EP_TRY(ep_gpu_copy(gpu, stream, to, from, bytes));
  // the host reads it next
  return stream && !is_on_device(h, output) ? ep_stream_finish(stream) : NULL;
}

static ort_status *run(ort_kernel *base, ort_kernel_context *context) {
  return copy(((copy_kernel *)base)->gpu, context);
}

static void release(ort_kernel *base) { free(base); }

static ort_status *make(void *state, const ort_kernel_info *info, ort_kernel **out) {
  ep_gpu *gpu = state;
  copy_kernel *k = calloc(1, sizeof *k);
  (void)info;
  *out = k ? &k->base : NULL;
  if (!k) return ep_no_memory(gpu->host);
  k->base = (ort_kernel){.version = gpu->host->version, .run = run, .release = release};
  k->gpu = gpu;
  return NULL;
}

// All types of elements that this ONNX Runtime has, except texts.
static size_t element_types(const ep_host *h, const ort_data_type **out) {
  size_t n = 0;
  for (int element = 1; element < N_ELEMENTS; element++) {
    const ort_data_type *type = NULL;
    if (element == ORT_STRING) continue;
    ort_status *status = h->ep->tensor_type_of(element, &type);
    if (status) h->api->release_status(status);
    else if (type) out[n++] = type;
  }
  return n;
}

static ort_status *describe(const ep_host *h, ort_kernel_builder *b, const char *name,
                            bool is_from_host) {
  const ort_data_type *types[N_ELEMENTS];
  const size_t n = element_types(h, types);
  EP_TRY(h->ep->set_operator(b, is_from_host ? "MemcpyFromHost" : "MemcpyToHost"));
  EP_TRY(h->ep->set_domain(b, ""));
  EP_TRY(h->ep->set_versions(b, 1, 1 << 20));
  EP_TRY(h->ep->set_provider(b, name));
  EP_TRY(h->ep->set_types(b, "T", types, n));
  return is_from_host ? h->ep->set_input_memory(b, 0, ORT_INPUT_ON_HOST)
                      : h->ep->set_output_memory(b, 0, ORT_OUTPUT_ON_HOST);
}

static ort_status *add(ep_gpu *gpu, ort_registry *to, const char *name, bool is_from_host) {
  const ep_host *h = gpu->host;
  ort_kernel_builder *b = NULL;
  ort_kernel_def *def = NULL;
  EP_TRY(h->ep->create_builder(&b));
  ort_status *status = describe(h, b, name, is_from_host);
  if (!status) status = h->ep->build(b, &def);
  if (!status) status = h->ep->add_kernel(to, def, make, gpu);
  if (def) h->ep->release_def(def);
  h->ep->release_builder(b);
  return status;
}

ort_status *ep_copy_kernels_create(ep_gpu *gpu, const char *name, ort_registry **out) {
  *out = NULL;
  EP_TRY(gpu->host->ep->create_registry(out));
  ort_status *status = add(gpu, *out, name, true);
  if (!status) status = add(gpu, *out, name, false);
  if (!status) return NULL;
  gpu->host->ep->release_registry(*out);
  *out = NULL;
  return status;
}
