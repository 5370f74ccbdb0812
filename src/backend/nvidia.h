// Common parts of the backends for NVIDIA's libraries: version numbers, names of statuses, and a
// handle that all sessions on a device share.
#ifndef KILN_BACKEND_NVIDIA_H
#define KILN_BACKEND_NVIDIA_H

#include "backend/backend.h"

#include <pthread.h>

// The begin of a backend's structure. One for each device; sessions may create and run kernels
// concurrently.
typedef struct kiln_nvidia {
  size_t (*version)(void);
  const char *(*status_name)(int status); // 0: success
  int (*create)(void **out);
  int (*destroy)(void *handle);
  pthread_mutex_t lock; // of |handle|
  void *handle;         // made with the first kernel, because it needs the device
} kiln_nvidia;

// Continues after kiln_library_create: requires that the library be |oldest| ("cuDNN 9"), which is
// version |least|, or later.
//
// errors: KILN_DEVICE_ERROR: it is older; *io has been freed, and is NULL
KILN_MUST_USE kiln_status kiln_nvidia_start(const char *file, const char *oldest, size_t least,
                                            kiln_diag *diag, void **io);
// Functions of a kiln_backend.
void kiln_nvidia_close(void *opened);
size_t kiln_nvidia_version(void *opened, char *text, size_t room);

// Reports why there is no kernel: the library has none, or failed to make it.
KILN_MUST_USE kiln_status kiln_nvidia_refuse(const kiln_nvidia *l, const char *backend,
                                             bool has_none, int status, kiln_diag *diag);

#endif
