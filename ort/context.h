// SPDX-License-Identifier: Apache-2.0
// Models that were compiled before: nodes EPContext, each of which is a module, in the model's file
// or in one beside it.
#ifndef KILN_ORT_CONTEXT_H
#define KILN_ORT_CONTEXT_H

#include "kernel.h"

// Compiles what |question| asks, to a file beside the model where such are made, and makes the node
// that stands for it; otherwise *out_node is NULL.
ort_status *ep_compile_ahead(ep_provider *p, const ort_graph *graph, const ort_node *fused,
                             const ep_question *question, kiln_module **out, ort_node **out_node);
// The module of a node EPContext.
//
// errors: modules of such nodes are not to be loaded, or this one cannot be
ort_status *ep_context_load(const ep_provider *p, const ort_graph *graph, const ep_node *n,
                            kiln_module **out);

#endif
