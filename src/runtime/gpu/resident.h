// The copy of a module in a device: the driver's context, loaded images and their functions,
// weights, and opened libraries. It is made for the device's first session, shared by all of them,
// and destroyed with the module.
#ifndef KILN_RUNTIME_RESIDENT_H
#define KILN_RUNTIME_RESIDENT_H

#include "runtime/gpu/gpu.h"
#include "runtime/module.h"

typedef struct kiln_resident {
  struct kiln_resident *next; // the next device's
  int32_t device;
  kiln_gpu_context *gpu;
  uint32_t n_images, n_nests; // already loaded
  kiln_gpu_image **images;
  kiln_gpu_function **functions; // [nests]
  char *weights;
  kiln_libraries libraries; // of the calls
  // of a variant: that of the module for ranges, to which |gpu| and |weights| belong
  struct kiln_resident *base;
} kiln_resident;

// errors: KILN_DEVICE_ERROR: no such device, or the code is for another one; KILN_NO_MEMORY
// gives:  *out, owned by the module
// threads: any
KILN_MUST_USE kiln_status kiln_resident_find(kiln_module *m, int32_t device, kiln_diag *diag,
                                             kiln_resident **out);
void kiln_residents_destroy(kiln_module *m);

// Whether code for architecture |code| runs on a GPU of architecture |device|: "sm_80" on "sm_86",
// the same generation and not older; "sm_90a" on "sm_90" only.
bool kiln_arch_fits(const char *code, const char *device);

#endif
