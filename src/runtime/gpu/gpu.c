// Common parts of the drivers of GPUs.
#include "runtime/gpu/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const kiln_gpu_api *kiln_gpu_api_of(kiln_plan_kind kind) {
  switch (kind) {
  case KILN_PLAN_CUDA: return &kiln_cuda_api;
  case KILN_PLAN_OPENCL: return &kiln_opencl_api;
  case KILN_PLAN_CPU:
  case KILN_N_PLAN_KINDS: break;
  }
  return NULL;
}

kiln_status kiln_gpu_enter(kiln_gpu_context *c, kiln_diag *diag) {
  if (!c->api->enter)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, c->api->name,
                          "library: the driver of the device must support libraries");
  if (c->api->enter(c)) return KILN_OK;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, c->api->name,
                        "context: must be usable by this thread");
}

kiln_status kiln_gpu_put_bound(kiln_gpu_context *c, kiln_gpu_stream *s, const kiln_bound *b,
                               char *const *args, kiln_diag *diag) {
  const kiln_status st = kiln_gpu_enter(c, diag);
  if (st != KILN_OK) return st;
  const bool ran = kiln_bound_run(b, 0, args, s, diag);
  c->api->leave(c);
  return ran ? KILN_OK : KILN_DEVICE_ERROR;
}

void kiln_gpu_bound_deinit(kiln_gpu_context *c, kiln_bound *b) {
  const bool is_inside = b->n > 0 && kiln_gpu_enter(c, NULL) == KILN_OK;
  kiln_bound_deinit(b);
  if (is_inside) c->api->leave(c);
}

kiln_status kiln_gpu_open_library(const char *place, const char *library, size_t n,
                                  const kiln_gpu_symbol *symbols, void *functions, kiln_diag *diag,
                                  void **out_library) {
  // Never unloaded: an OpenCL loader that is loaded again searches for drivers again, and may
  // number devices differently.
  void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  *out_library = NULL;
  if (!opened) {
    const char *why = dlerror();
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, place, "driver: %s must be installed: %s",
                          library, why ? why : "not found");
  }
  for (size_t i = 0; i < n; i++) {
    void *symbol = dlsym(opened, symbols[i].name);
    if (!symbol) {
      dlclose(opened);
      return kiln_diag_fail(diag, KILN_DEVICE_ERROR, place,
                            "driver: %s must have the function %s, it is too old", library,
                            symbols[i].name);
    }
    memcpy((char *)functions + symbols[i].offset, &symbol, sizeof symbol);
  }
  *out_library = opened;
  return KILN_OK;
}

kiln_status kiln_gpu_describe(kiln_plan_kind kind, int32_t device, kiln_diag *diag,
                              kiln_gpu_context *out) {
  const kiln_gpu_api *api = kiln_gpu_api_of(kind);
  kiln_gpu_context *c = NULL;
  memset(out, 0, sizeof *out);
  if (!api) return KILN_OK;
  const kiln_status st = api->open(device, diag, &c);
  if (st == KILN_OK) *out = *c;
  api->close(c);
  return st;
}

kiln_status kiln_gpu_arch(kiln_plan_kind kind, int32_t device, kiln_diag *diag, char arch[16]) {
  kiln_gpu_context c;
  const kiln_status st = kiln_gpu_describe(kind, device, diag, &c);
  snprintf(arch, 16, "%s", c.arch);
  return st;
}
