// CUDA C compiled in the background: some sources are used while others are still compiled.
#ifndef KILN_TARGET_GPU_NVRTC_H
#define KILN_TARGET_GPU_NVRTC_H

#include "target/gpu/gpu.h"

// Sources under way: NVRTC compiles them in their order on threads of its own.
typedef struct kiln_cuda_job kiln_cuda_job;
// needs:  |sources| and |names| to live until kiln_cuda_end
// gives:  *out; NULL on failure
// errors: KILN_DEVICE_ERROR: there is no NVRTC; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_cuda_start(kiln_ctx *cx, const kiln_machine *m, int n,
                                          const char *const *sources, const char *const *names,
                                          int n_threads, kiln_cuda_job **out);
// Whether source |i| is compiled or refused, after |ms| milliseconds at most.
bool kiln_cuda_wait(kiln_cuda_job *j, int i, int ms);
// Gives the caller what became of a source that is waited for, once; false where it was refused, and then
// why, owned by |j|.
bool kiln_cuda_take(kiln_cuda_job *j, int i, kiln_object *out, const char **out_log);
// Ends it behind what is being compiled at the moment.
void kiln_cuda_end(kiln_cuda_job *j); // NULL is allowed

#endif
