// What the drivers of GPUs have in common.
#include "runtime/gpu.h"

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

kiln_status kiln_gpu_open_library(const char *place, const char *library, size_t n,
                                  const kiln_gpu_symbol *symbols, void *functions, kiln_diag *diag,
                                  void **out_library) {
  void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
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

kiln_status kiln_gpu_arch(kiln_plan_kind kind, int32_t device, kiln_diag *diag, char arch[16]) {
  const kiln_gpu_api *api = kiln_gpu_api_of(kind);
  kiln_gpu_context *c = NULL;
  arch[0] = 0;
  if (!api) return KILN_OK;
  kiln_status st = api->open(device, diag, &c);
  if (st == KILN_OK) snprintf(arch, 16, "%s", c->arch);
  api->close(c);
  return st;
}
