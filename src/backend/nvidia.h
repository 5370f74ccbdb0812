// What NVIDIA's libraries have in common: a version that is a number, statuses with names, and a
// handle that all sessions on a device share.
#ifndef KILN_BACKEND_NVIDIA_H
#define KILN_BACKEND_NVIDIA_H

#include "backend/backend.h"

#include <pthread.h>

// Begins what a backend keeps of its library. One for each device: sessions may make and run
// kernels at the same time.
typedef struct kiln_nvidia {
  size_t (*version)(void);
  const char *(*status_name)(int status); // 0: it has succeeded
  int (*create)(void **out);
  int (*destroy)(void *handle);
  pthread_mutex_t lock; // of what follows
  void *handle;         // made with the first kernel: it wants the device
} kiln_nvidia;

// Goes on where kiln_library_create has found the functions: the library must be |oldest| ("cuDNN
// 9"), which is version
// |least|, or later.
//
// errors: KILN_DEVICE_ERROR: it is older; *io has been freed, and is NULL
KILN_MUST_USE kiln_status kiln_nvidia_start(const char *file, const char *oldest, size_t least,
                                            kiln_diag *diag, void **io);
// Functions of a kiln_backend.
void kiln_nvidia_close(void *opened);
size_t kiln_nvidia_version(void *opened, char *text, size_t room);

// Why there is no kernel: the library has none, or could not make it.
KILN_MUST_USE kiln_status kiln_nvidia_refuse(const kiln_nvidia *l, const char *backend,
                                             bool has_none, int status, kiln_diag *diag);

#endif
