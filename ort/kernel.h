// SPDX-License-Identifier: Apache-2.0
// A fused node, which replaces a part of the graph.
//
// It has one module that was compiled ahead, for static shapes or ranges of dimensions; or, if some
// extents are known only in runs (late), a module for each combination of shapes that was seen,
// most recently used first. Runs may be concurrent: each takes an idle session of its module, or
// makes one.
//
// With tensors in a GPU's memory a run is work in ONNX Runtime's stream, which keeps the session
// until it has been waited for.
#ifndef KILN_ORT_KERNEL_H
#define KILN_ORT_KERNEL_H

#include "provider.h"

#include <pthread.h>

typedef struct ep_variant ep_variant;
typedef struct ep_kernel {
  ort_compute base; // first member: ONNX Runtime holds a pointer to it
  const ep_provider *p;
  ep_arena arena;
  const char *name; // of the fused node
  int n_inputs, n_outputs;
  int *input_at; // [n_inputs]: positions among the fused node's inputs
  // Of late kernels:
  bool is_late;
  const char **input_names; // [n_inputs]
  ep_source source;
  // [source.n_files]: positions of weights; the first entry is the model's. NULL: |source| has
  // copies
  int *weight_at;
  // Shared by concurrent runs:
  pthread_mutex_t lock;      // of the fields below
  pthread_mutex_t compiling; // held for seconds; |lock| is taken inside of it
  ep_variant *variants;
  int n_variants;
} ep_kernel;

// A kernel for |fused|, whose non-constant inputs are those of |part|.
ort_status *ep_kernel_create(const ep_provider *p, const ort_node *fused, ep_kernel **out);
void ep_kernel_destroy(ep_kernel *k);
// Takes the module, even on failure.
ort_status *ep_kernel_add(ep_kernel *k, KILN_TAKE kiln_module *module, const int64_t *shapes,
                          int n_extents);

#endif
