// The part of a session that runs a plan on a device.
//
// All of a run is put into one stream: copies of the inputs that lie with the host, the launches,
// the copies to outputs, results for the host. The second run with the same addresses is captured
// as a graph, which later ones replay; others' addresses are put into the stream as they are.
#ifndef KILN_RUNTIME_GPU_SESSION_H
#define KILN_RUNTIME_GPU_SESSION_H

#include "runtime/module.h"

// Tensors in the device's memory begin at a multiple of this, and those in the weights at one of
// KILN_PLAN_ALIGN: kernels may read as much at once.
enum { KILN_GPU_ALIGN = 16 };

typedef struct kiln_gpu_session kiln_gpu_session;

// needs:  the plan of |m| is for a device; |m| outlives it
// gives:  *out, NULL on failure
// errors: as kiln_session_create
KILN_MUST_USE kiln_status kiln_gpu_session_create(kiln_module *m,
                                                  const kiln_session_options *options,
                                                  kiln_diag *diag, kiln_gpu_session **out);
void kiln_gpu_session_destroy(kiln_gpu_session *s); // waits for what runs; NULL is allowed
// needs: checked tensors. |start_ns| and |ns|, [launches]: their times; NULL: nobody asks
KILN_MUST_USE kiln_status kiln_gpu_session_run(kiln_gpu_session *s, const DLTensor *const *inputs,
                                               DLTensor *const *outputs, uint64_t *start_ns,
                                               uint64_t *ns, kiln_diag *diag);
KILN_MUST_USE kiln_status kiln_gpu_session_wait(kiln_gpu_session *s, kiln_diag *diag);

#endif
