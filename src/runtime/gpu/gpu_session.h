// The part of a session that runs a plan on a device.
//
// A run is enqueued in one stream: copies of inputs from the host, launches, copies to outputs,
// results to the host. The second run with the same addresses is captured as a graph, which later
// runs replay; runs with other addresses are enqueued as usual.
//
// The session of a module for ranges has a part for each variant that it has run, and each of these
// keeps graphs for several sets of extents.
#ifndef KILN_RUNTIME_GPU_SESSION_H
#define KILN_RUNTIME_GPU_SESSION_H

#include "runtime/module.h"

// Alignment of tensors in the device's memory, whose elements kernels read in words of this size;
// tensors in the weights have KILN_PLAN_ALIGN.
enum { KILN_GPU_ALIGN = 16 };

typedef struct kiln_gpu_session kiln_gpu_session;

// needs:  the plan of |m| is for a device; |m| outlives it
// gives:  *out, NULL on failure
// errors: as kiln_session_create
KILN_MUST_USE kiln_status kiln_gpu_session_create(kiln_module *m,
                                                  const kiln_session_options *options,
                                                  kiln_diag *diag, kiln_gpu_session **out);
// The session of a variant of the module for ranges that |whole| is a session of, whose memory,
// stream and device it uses.
KILN_MUST_USE kiln_status kiln_gpu_session_create_part(kiln_gpu_session *whole, uint32_t variant,
                                                       const kiln_session_options *options,
                                                       kiln_diag *diag, kiln_gpu_session **out);
// Chooses |n| values of the dimensions for a part's next run, of variant |v|. Captured graphs are
// kept for the 16 last used ones.
KILN_MUST_USE kiln_status kiln_gpu_session_choose(kiln_gpu_session *part, const kiln_variant *v,
                                                  uint32_t n, const int64_t *values,
                                                  kiln_diag *diag);
// Waits for running work; NULL is allowed. Parts are destroyed with their whole.
void kiln_gpu_session_destroy(kiln_gpu_session *s);
// needs: checked tensors. Those of a part may have smaller extents than its plan's, and the last
//        input, which holds the dimensions, is not read. |start_ns| and |ns|, [launches]: times of
//        launches; NULL: not wanted
KILN_MUST_USE kiln_status kiln_gpu_session_run(kiln_gpu_session *s, const DLTensor *const *inputs,
                                               DLTensor *const *outputs, uint64_t *start_ns,
                                               uint64_t *ns, kiln_diag *diag);
KILN_MUST_USE kiln_status kiln_gpu_session_wait(kiln_gpu_session *s, kiln_diag *diag);
KILN_MUST_USE kiln_status kiln_gpu_session_set_stream(kiln_gpu_session *s, void *stream,
                                                      kiln_diag *diag);

#endif
