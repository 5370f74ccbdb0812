// SPDX-License-Identifier: Apache-2.0
// Models that were compiled ahead: nodes EPContext, each with a module in the model's file or in a
// file beside it.
#ifndef KILN_ORT_CONTEXT_H
#define KILN_ORT_CONTEXT_H

#include "kernel.h"

// Compiles |question|'s part to a file beside the model and makes its EPContext node, if the
// session writes such models; otherwise *out_node is NULL.
ort_status *ep_compile_ahead(ep_provider *p, const ort_graph *graph, const ort_node *fused,
                             const ep_question *question, kiln_module **out, ort_node **out_node);
// The module of an EPContext node.
//
// errors: loading of compiled modules is not allowed, or fails
ort_status *ep_context_load(const ep_provider *p, const ort_graph *graph, const ep_node *n,
                            kiln_module **out);

#endif
