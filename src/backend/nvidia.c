// Opening and closing of NVIDIA's libraries, their versions and errors.
#include "backend/nvidia.h"

#include <stdio.h>
#include <stdlib.h>

kiln_status kiln_nvidia_start(const char *file, const char *oldest, size_t least, kiln_diag *diag,
                              void **io) {
  kiln_nvidia *l = *io;
  const size_t version = l->version();
  pthread_mutex_init(&l->lock, NULL);
  if (version >= least) return KILN_OK;
  kiln_nvidia_close(l);
  *io = NULL;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file,
                        "library: must be %s or later, got version %zu", oldest, version);
}

void kiln_nvidia_close(void *opened) {
  kiln_nvidia *l = opened;
  if (l->handle) (void)l->destroy(l->handle);
  pthread_mutex_destroy(&l->lock);
  free(l);
}

size_t kiln_nvidia_version(void *opened, char *text, size_t room) {
  const size_t v = ((const kiln_nvidia *)opened)->version();
  return (size_t)snprintf(text, room, "%zu.%zu.%zu", v / 10000, v % 10000 / 100, v % 100);
}

kiln_status kiln_nvidia_refuse(const kiln_nvidia *l, const char *backend, bool has_none, int status,
                               kiln_diag *diag) {
  const char *name = l->status_name(status);
  if (has_none)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, backend,
                          "call: must be one that the library has a kernel for, got %s", name);
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, backend, "kernel: must be made, got %s", name);
}
