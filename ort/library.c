// SPDX-License-Identifier: Apache-2.0
// The library's two exported functions, and the factory that they give ONNX Runtime: a provider for
// the CPU, and one for each NVIDIA GPU.
#include "device.h"
#include "provider.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILN_EXPORT __attribute__((visibility("default")))
#define GPU_KEY "kiln_device" // in a device's metadata: the GPU's number

typedef struct ep_factory {
  ort_ep_factory base; // first member: ONNX Runtime holds a pointer to it
  ep_host host;
  char machine[512]; // "KilnExecutionProvider 0.1.0;" and a description of this machine
  int n_gpus;
  ep_gpu gpus[EP_MAX_GPUS];
  ort_hardware *found[EP_MAX_GPUS]; // GPUs that ONNX Runtime had not found; NULL: it had
} ep_factory;

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
  return h->api->hardware_vendor(hardware) == EP_NVIDIA &&
         h->api->hardware_type(hardware) == ORT_GPU;
}

// |gpu|: NULL for the CPU
static ort_status *offer(ep_factory *f, const ort_hardware *hardware, const ep_gpu *gpu,
                         ort_device **out) {
  ort_pairs *metadata = NULL;
  char index[16] = "";
  f->host.api->create_pairs(&metadata);
  f->host.api->add_pair(metadata, "kiln_target", gpu ? "cuda" : "cpu");
  if (gpu) snprintf(index, sizeof index, "%d", gpu->index);
  if (gpu) f->host.api->add_pair(metadata, GPU_KEY, index);
  ort_status *status = f->host.ep->create_device(&f->base, hardware, metadata, NULL, out);
  f->host.api->release_pairs(metadata);
  // before API version 24 nothing copies between a provider in a GPU's memory and others
  for (int kind = 0; !status && gpu && f->host.has_kernels && kind < EP_N_MEMORIES; kind++)
    status = f->host.ep->add_memory(*out, gpu->memory[kind]);
  return status;
}

static ort_status *offer_gpu(ep_factory *f, const ort_hardware *hardware, ort_device **out) {
  ep_gpu *gpu = &f->gpus[f->n_gpus];
  EP_TRY(ep_gpu_init(gpu, &f->host, f->n_gpus));
  f->n_gpus++;
  return offer(f, hardware, gpu, out);
}

// The number of GPUs. The system's list is enough as a rule: opening CUDA's driver here would
// forbid it to processes that are forked later, also where only the CPU is used.
static int count_gpus(void) {
  DIR *all = getenv("CUDA_VISIBLE_DEVICES") ? NULL : opendir("/proc/driver/nvidia/gpus");
  int n = 0;
  if (!all) return kiln_gpu_count("cuda");
  for (const struct dirent *one; (one = readdir(all));) n += one->d_name[0] != '.';
  closedir(all);
  return n;
}

// The GPUs that the system has, where ONNX Runtime, which reads the list of displays, sees none.
static ort_status *find_gpus(ep_factory *f, ort_device **out, size_t room, size_t *io_n) {
  const int n = count_gpus();
  for (int i = 0; i < n && i < EP_MAX_GPUS && *io_n < room; i++) {
    EP_TRY(f->host.ep->create_hardware(ORT_GPU, EP_NVIDIA, 0, "NVIDIA", NULL, &f->found[i]));
    EP_TRY(offer_gpu(f, f->found[i], &out[*io_n]));
    ++*io_n;
  }
  return NULL;
}

static ort_status *devices(ort_ep_factory *base, const ort_hardware *const *hardware, size_t n,
                           ort_device **out, size_t room, size_t *out_n) {
  ep_factory *f = (ep_factory *)base;
  *out_n = 0;
  for (size_t i = 0; i < n && *out_n < room; i++) {
    const bool gpu = is_gpu(&f->host, hardware[i]) && f->n_gpus < EP_MAX_GPUS && has_cuda();
    if (!gpu && f->host.api->hardware_type(hardware[i]) != ORT_CPU) continue;
    EP_TRY(gpu ? offer_gpu(f, hardware[i], &out[*out_n])
               : offer(f, hardware[i], NULL, &out[*out_n]));
    ++*out_n;
  }
  if (f->n_gpus > 0 || !f->host.has_kernels || !has_cuda()) return NULL;
  return find_gpus(f, out, room, out_n);
}

// --- providers ---

static ort_status *create_ep(ort_ep_factory *base, const ort_hardware *const *hardware,
                             const ort_pairs *const *metadata, size_t n,
                             const ort_session_options *options, const ort_logger *logger,
                             ort_ep **out) {
  ep_factory *f = (ep_factory *)base;
  ep_provider *p = NULL;
  *out = NULL;
  if (n != 1)
    return ep_fail(&f->host, ORT_INVALID_ARGUMENT, "Kiln: must be given one device, got %zu", n);
  (void)hardware;
  const char *index = f->host.api->pair_value(metadata[0], GPU_KEY);
  ep_gpu *gpu = index ? &f->gpus[strtol(index, NULL, 10)] : NULL;
  EP_TRY(ep_provider_create(&f->host, options, logger, gpu, f->machine, &p));
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

// --- memory ---

static ort_status *create_allocator(ort_ep_factory *base, const ort_memory_info *memory,
                                    const ort_pairs *options, ort_allocator **out) {
  ep_factory *f = (ep_factory *)base;
  const ort_memory_device *device = memory ? f->host.ep->memory_device(memory) : NULL;
  ep_gpu *gpu = ep_gpu_of(f->gpus, f->n_gpus, device);
  (void)options;
  *out = NULL; // the CPU's
  if (!gpu) return NULL;
  const bool is_pinned = f->host.ep->access(device) == ORT_HOST_ACCESSIBLE;
  return ep_allocator_create(gpu, is_pinned ? EP_ON_HOST : EP_ON_DEVICE, out);
}

static void release_allocator(ort_ep_factory *base, ort_allocator *allocator) {
  (void)base;
  ep_allocator_destroy(allocator);
}

static ort_status *create_transfer(ort_ep_factory *base, ort_transfer **out) {
  ep_factory *f = (ep_factory *)base;
  *out = NULL;
  return f->n_gpus > 0 ? ep_transfer_create(&f->host, f->gpus, f->n_gpus, out) : NULL;
}

static bool is_stream_aware(const ort_ep_factory *base) {
  return ((const ep_factory *)base)->n_gpus > 0;
}

static ort_status *create_stream(ort_ep_factory *base, const ort_memory_device *device,
                                 const ort_pairs *options, ort_stream **out) {
  ep_factory *f = (ep_factory *)base;
  ep_gpu *gpu = ep_gpu_of(f->gpus, f->n_gpus, device);
  (void)options;
  *out = NULL; // of the CPU: none
  return gpu ? ep_sync_stream_create(gpu, out) : NULL;
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
  (void)registered;
  *out_n = 0;
  if (!ep_host_find(base, &host)) {
    const ort_api *oldest = base->api(1); // in every ONNX Runtime
    return oldest->create_status(ORT_NOT_IMPLEMENTED, "Kiln: ONNX Runtime must be 1.23 or newer");
  }
  ep_factory *f = room > 0 ? calloc(1, sizeof *f) : NULL;
  if (!f) return ep_no_memory(&host);
  f->host = host;
  f->host.logger = logger;
  f->base = (ort_ep_factory){.version = host.version,
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
                             .is_stream_aware = is_stream_aware,
                             .create_stream = create_stream};
  snprintf(f->machine, sizeof f->machine, EP_NAME " %s;%s", kiln_version(), kiln_host());
  out[(*out_n)++] = &f->base;
  return NULL;
}

ort_status *ReleaseEpFactory(ort_ep_factory *factory) {
  ep_factory *f = (ep_factory *)factory;
  for (int i = 0; i < EP_MAX_GPUS; i++) {
    ep_gpu_deinit(&f->gpus[i]);
    if (f->found[i]) f->host.ep->release_hardware(f->found[i]);
  }
  free(f);
  return NULL;
}
