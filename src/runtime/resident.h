// What a device holds of a module: the driver's context, the loaded images with their functions,
// the weights, and the libraries that are called. Made when the first session on that device is,
// shared by all of them, gone with the module.
#ifndef KILN_RUNTIME_RESIDENT_H
#define KILN_RUNTIME_RESIDENT_H

#include "runtime/gpu.h"
#include "runtime/module.h"

typedef struct kiln_resident {
  struct kiln_resident *next; // of another device
  int32_t device;
  kiln_gpu_context *gpu;
  uint32_t n_images, n_nests; // those that are loaded
  kiln_gpu_image **images;
  kiln_gpu_function **functions; // [nests]
  char *weights;
  kiln_libraries libraries; // that calls are of
} kiln_resident;

// errors: KILN_DEVICE_ERROR: no such device, or it is not the one that the code is for;
//         KILN_NO_MEMORY
// gives:  *out, the module's
// threads: any
KILN_MUST_USE kiln_status kiln_resident_find(kiln_module *m, int32_t device, kiln_diag *diag,
                                             kiln_resident **out);
void kiln_residents_destroy(kiln_module *m);

// Whether code for architecture |code| runs on a GPU of architecture |device|, as in "sm_80" on
// "sm_86": the same generation, not older than the code; and "sm_90a" on "sm_90" alone.
bool kiln_arch_fits(const char *code, const char *device);

#endif
