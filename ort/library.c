// SPDX-License-Identifier: Apache-2.0
// The library's two exported functions, and the factory that they give ONNX Runtime: a provider for
// the CPU, and one for each NVIDIA GPU.
#include "provider.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILN_EXPORT __attribute__((visibility("default")))

typedef struct ep_factory {
  ort_ep_factory base; // first member: ONNX Runtime holds a pointer to it
  ep_host host;
  char machine[512]; // "KilnExecutionProvider 0.1.0;" and a description of this machine
} ep_factory;

enum { NVIDIA = 0x10de };

static const char *factory_name(const ort_ep_factory *base) {
  (void)base;
  return EP_NAME;
}

static const char *vendor(const ort_ep_factory *base) {
  (void)base;
  return "Kiln";
}

static uint32_t vendor_id(const ort_ep_factory *base) {
  (void)base;
  return 0; // no PCI vendor
}

static const char *ep_version(const ort_ep_factory *base) {
  (void)base;
  return kiln_version();
}

// --- devices ---

static bool has_cuda(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver) dlclose(driver);
  return driver != NULL;
}

static bool is_gpu(const ep_host *h, const ort_hardware *hardware) {
  return h->api->hardware_vendor(hardware) == NVIDIA && h->api->hardware_type(hardware) == ORT_GPU;
}

// A GPU's provider gets tensors in the CPU's memory, because it registers no other memory.
static ort_status *offer(ep_factory *f, const ort_hardware *hardware, const char *target,
                         ort_device **out) {
  ort_pairs *metadata = NULL;
  f->host.api->create_pairs(&metadata);
  f->host.api->add_pair(metadata, "kiln_target", target);
  ort_status *status = f->host.ep->create_device(&f->base, hardware, metadata, NULL, out);
  f->host.api->release_pairs(metadata);
  return status;
}

static ort_status *devices(ort_ep_factory *base, const ort_hardware *const *hardware, size_t n,
                           ort_device **out, size_t room, size_t *out_n) {
  ep_factory *f = (ep_factory *)base;
  *out_n = 0;
  for (size_t i = 0; i < n && *out_n < room; i++) {
    const bool gpu = is_gpu(&f->host, hardware[i]) && has_cuda();
    if (!gpu && f->host.api->hardware_type(hardware[i]) != ORT_CPU) continue;
    EP_TRY(offer(f, hardware[i], gpu ? "cuda" : "cpu", &out[*out_n]));
    ++*out_n;
  }
  return NULL;
}

// --- providers ---

static ort_status *create_ep(ort_ep_factory *base, const ort_hardware *const *hardware,
                             const ort_pairs *const *metadata, size_t n,
                             const ort_session_options *options, const ort_logger *logger,
                             ort_ep **out) {
  ep_factory *f = (ep_factory *)base;
  ep_provider *p = NULL;
  (void)metadata;
  *out = NULL;
  if (n != 1)
    return ep_fail(&f->host, ORT_INVALID_ARGUMENT, "Kiln: must be given one device, got %zu", n);
  const char *target = is_gpu(&f->host, hardware[0]) ? "cuda" : NULL;
  EP_TRY(ep_provider_create(&f->host, options, logger, target, f->machine, &p));
  *out = &p->base;
  return NULL;
}

static void release_ep(ort_ep_factory *base, ort_ep *ep) {
  (void)base;
  ep_provider_destroy((ep_provider *)ep);
}

static ort_status *validate(ort_ep_factory *base, const ort_hardware *const *hardware, size_t n,
                            const char *info, ort_fit *out) {
  const char *machine = ((ep_factory *)base)->machine;
  const size_t head = strcspn(machine, ";") + 1;
  (void)hardware, (void)n;
  if (strcmp(info, machine) == 0) *out = ORT_FIT_GOOD;
  else if (strncmp(info, machine, head) == 0) *out = ORT_FIT_OLD;
  else *out = strncmp(info, EP_NAME " ", strlen(EP_NAME) + 1) == 0 ? ORT_FIT_NOT : ORT_FIT_OTHER;
  return NULL;
}

// --- defaults of ONNX Runtime that this provider uses ---

static ort_status *create_allocator(ort_ep_factory *base, const void *memory,
                                    const ort_pairs *options, void **out) {
  (void)base, (void)memory, (void)options;
  *out = NULL; // the CPU's
  return NULL;
}

static void release_allocator(ort_ep_factory *base, void *allocator) {
  (void)base, (void)allocator;
}

static ort_status *create_transfer(ort_ep_factory *base, void **out) {
  (void)base;
  *out = NULL;
  return NULL;
}

static bool is_stream_aware(const ort_ep_factory *base) {
  (void)base;
  return false;
}

// --- the library ---

KILN_EXPORT ort_status *CreateEpFactories(const char *registered, const ort_api_base *base,
                                          const ort_logger *logger, ort_ep_factory **out,
                                          size_t room, size_t *out_n);
KILN_EXPORT ort_status *ReleaseEpFactory(ort_ep_factory *factory);

ort_status *CreateEpFactories(const char *registered, const ort_api_base *base,
                              const ort_logger *logger, ort_ep_factory **out, size_t room,
                              size_t *out_n) {
  ep_host host;
  (void)registered, (void)logger;
  *out_n = 0;
  if (!ep_host_find(base, &host)) {
    const ort_api *oldest = base->api(1); // in every ONNX Runtime
    return oldest->create_status(ORT_NOT_IMPLEMENTED, "Kiln: ONNX Runtime must be 1.23 or newer");
  }
  ep_factory *f = room > 0 ? calloc(1, sizeof *f) : NULL;
  if (!f) return ep_no_memory(&host);
  f->host = host;
  f->base = (ort_ep_factory){.version = ORT_API_USED,
                             .name = factory_name,
                             .vendor = vendor,
                             .devices = devices,
                             .create_ep = create_ep,
                             .release_ep = release_ep,
                             .vendor_id = vendor_id,
                             .ep_version = ep_version,
                             .validate = validate,
                             .create_allocator = create_allocator,
                             .release_allocator = release_allocator,
                             .create_transfer = create_transfer,
                             .is_stream_aware = is_stream_aware};
  snprintf(f->machine, sizeof f->machine, EP_NAME " %s;%s", kiln_version(), kiln_host());
  out[(*out_n)++] = &f->base;
  return NULL;
}

ort_status *ReleaseEpFactory(ort_ep_factory *factory) {
  free(factory);
  return NULL;
}
