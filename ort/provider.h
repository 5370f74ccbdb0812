// SPDX-License-Identifier: Apache-2.0
// The provider of one session: the parts of its graph that Kiln takes, and their kernels.
#ifndef KILN_ORT_PROVIDER_H
#define KILN_ORT_PROVIDER_H

#include "gpu.h"
#include "options.h"

#define EP_CONTEXT_SOURCE "KilnExecutionProvider"

typedef struct ep_provider {
  ort_ep base; // first member: ONNX Runtime holds a pointer to it
  ep_host host;
  const char *compatibility; // the requirements of modules that it compiles; owned by the factory
  const ort_logger *logger;
  ep_options options;
  ep_gpu *gpu;          // whose memory tensors are in; NULL: in the host's
  ort_registry *copies; // of the kernels that copy between these; NULL: none
  int n_contexts;       // number of contexts made
  char *graph;          // name of the first graph of which it took nodes, malloc'ed; see take.c
} ep_provider;

ort_status *ep_provider_create(const ep_host *host, const ort_session_options *options,
                               const ort_logger *logger, ep_gpu *gpu, const char *compatibility,
                               ep_provider **out);
void ep_provider_destroy(ep_provider *p);

// Reports to ONNX Runtime the parts of |graph| that Kiln takes, and logs the refused nodes.
// (take.c)
ort_status *ep_take(ep_provider *p, const ort_graph *graph, ort_support *support);
// Whether |n| is a compiled module of Kiln's. (context.c)
ort_status *ep_context_is(const ep_host *h, const ep_node *n, bool *out);

#endif
