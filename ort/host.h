// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's tables, statuses and logs, as the provider uses them.
#ifndef KILN_ORT_HOST_H
#define KILN_ORT_HOST_H

#include "abi.h"
#include "kiln/status.h"
#include "memory.h"

typedef struct ep_host {
  const ort_api *api;
  const ort_ep_api *ep;
  const ort_editor_api *editor;
  const ort_logger *logger; // for what belongs to no session
  uint32_t version;         // of the tables that the provider gives
  bool tells_shape; // a type says whether it has a shape; otherwise rank 0 may mean an unknown rank
  bool has_kernels; // kernels of single nodes, and devices that the provider found
} ep_host;

// gives: false if this ONNX Runtime is older than 1.23
bool ep_host_find(const ort_api_base *base, ep_host *out);

// Returns the status of a failed call to the caller.
#define EP_TRY(call)                                                                               \
  do {                                                                                             \
    ort_status *const ep_status_ = (call);                                                         \
    if (ep_status_) return ep_status_;                                                             \
  } while (0)

ort_status *ep_fail(const ep_host *h, ort_error code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
ort_status *ep_no_memory(const ep_host *h);
// A status with all messages of |diag|, after |what|. For some codes, Python's sessions continue
// without the provider: they are used if the failure was not the caller's fault.
ort_status *ep_fail_with(const ep_host *h, kiln_status status, const char *what,
                         const kiln_diag *diag);
void ep_log(const ep_host *h, const ort_logger *logger, ort_severity severity, const char *format,
            ...) __attribute__((format(printf, 4, 5)));

#endif
