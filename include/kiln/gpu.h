// SPDX-License-Identifier: Apache-2.0
// GPUs for programs that keep tensors on them: memory, copies, streams and events, through the
// driver that runs modules. This header needs libkiln_rt only.
//
// Memory and streams are the driver's (CUdeviceptr, CUstream, CUevent) in the primary context of
// the GPU, so that other libraries can use them, and kiln_session_run takes them as they are.
#ifndef KILN_GPU_H
#define KILN_GPU_H

#include "kiln/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// An opened GPU, usable from any thread. It must outlive its memory, streams and events.
typedef struct kiln_gpu_handle kiln_gpu_handle;

// The number of GPUs that modules of |target| ("cuda") can run on; 0 if there is no driver.
KILN_API int32_t kiln_gpu_count(const char *target);
// errors: KILN_BAD_INPUT: |target| is not "cuda"; KILN_DEVICE_ERROR: no driver, no GPU of that
//         number
KILN_API KILN_MUST_USE kiln_status kiln_gpu_create(const char *target, int32_t index,
                                                   kiln_diag *diag,
                                                   KILN_GIVE kiln_gpu_handle **out_device);
KILN_API void kiln_gpu_destroy(KILN_TAKE kiln_gpu_handle *device); // NULL is allowed

// Memory of the GPU, aligned to 256 bytes.
//
// errors: KILN_NO_MEMORY: with the size, and how much is free
KILN_API KILN_MUST_USE kiln_status kiln_gpu_allocate(kiln_gpu_handle *device, size_t n_bytes,
                                                     kiln_diag *diag, void **out_memory);
KILN_API void kiln_gpu_free(kiln_gpu_handle *device, void *memory); // NULL is allowed
// Page-locked memory of the host, from and to which copies need no staging.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_allocate_host(kiln_gpu_handle *device, size_t n_bytes,
                                                          kiln_diag *diag, void **out_memory);
KILN_API void kiln_gpu_free_host(kiln_gpu_handle *device, void *memory); // NULL is allowed

// A stream, whose work runs in order, at the same time as that of other streams.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_stream_create(kiln_gpu_handle *device, kiln_diag *diag,
                                                          void **out_stream);
KILN_API void kiln_gpu_stream_destroy(kiln_gpu_handle *device, void *stream); // NULL is allowed
// Waits for all work in |stream|.
//
// errors: KILN_DEVICE_ERROR: some of it failed
KILN_API KILN_MUST_USE kiln_status kiln_gpu_stream_wait(kiln_gpu_handle *device, void *stream,
                                                        kiln_diag *diag);
// Copies between memory of the GPU, of the host, or both, as work of |stream|. Memory of the host
// that is not page-locked has been read, or written, when it returns.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_copy(kiln_gpu_handle *device, void *stream, void *to,
                                                 const void *from, size_t n_bytes, kiln_diag *diag);

// A point in the work of a stream, for which others wait.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_event_create(kiln_gpu_handle *device, kiln_diag *diag,
                                                         void **out_event);
KILN_API void kiln_gpu_event_destroy(kiln_gpu_handle *device, void *event); // NULL is allowed
// Moves |event| behind the work that |stream| has now.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_event_record(kiln_gpu_handle *device, void *event,
                                                         void *stream, kiln_diag *diag);
// Waits until a recorded |event| has passed; with a |stream|, that stream's later work does, and
// the call returns.
KILN_API KILN_MUST_USE kiln_status kiln_gpu_event_wait(kiln_gpu_handle *device, void *event,
                                                       void *stream, kiln_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
