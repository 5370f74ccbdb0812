// SPDX-License-Identifier: Apache-2.0
// The provider of one session: which parts of its graph Kiln takes, and what they become.
#ifndef KILN_ORT_PROVIDER_H
#define KILN_ORT_PROVIDER_H

#include "options.h"

#define EP_CONTEXT_SOURCE "KilnExecutionProvider"

typedef struct ep_provider {
  ort_ep base; // first: ONNX Runtime holds a pointer to it
  ep_host host;
  const char *compatibility; // what modules that it compiles need; the factory's
  const ort_logger *logger;
  ep_options options;
  int n_contexts; // that were made
  char *graph;    // the name of the first of which it took nodes, malloc'ed; see take.c
} ep_provider;

ort_status *ep_provider_create(const ep_host *host, const ort_session_options *options,
                               const ort_logger *logger, const char *target,
                               const char *compatibility, ep_provider **out);
void ep_provider_destroy(ep_provider *p);

// Tells ONNX Runtime the parts of |graph| that Kiln takes, and the log what it refuses. (take.c)
ort_status *ep_take(ep_provider *p, const ort_graph *graph, ort_support *support);
// Whether |n| is a module of Kiln's that was compiled before. (context.c)
ort_status *ep_context_is(const ep_host *h, const ep_node *n, bool *out);

#endif
