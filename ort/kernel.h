// SPDX-License-Identifier: Apache-2.0
// A fused node: what runs in place of the part of a graph that it was.
//
// It has one module that was compiled ahead, for fixed shapes or for ranges of dimensions; or,
// where extents are known in runs only, one for each combination of shapes that was seen, the last
// used first. Runs may be concurrent: each takes an idle session of its module, or makes one.
#ifndef KILN_ORT_KERNEL_H
#define KILN_ORT_KERNEL_H

#include "provider.h"

#include <pthread.h>

typedef struct ep_variant ep_variant;
typedef struct ep_kernel {
  ort_compute base; // first: ONNX Runtime holds a pointer to it
  const ep_provider *p;
  ep_arena arena;
  const char *name; // of the fused node
  int n_inputs, n_outputs;
  int *input_at; // [n_inputs]: their places among the inputs of the fused node
  // Of shapes that are known in runs only:
  bool is_late;
  const char **input_names; // [n_inputs]
  ep_source source;
  int *weight_at; // [source.n_files]: the places of weights; the first is the model
  // Shared by runs:
  pthread_mutex_t lock;      // of what follows
  pthread_mutex_t compiling; // held for seconds; the other is taken within it
  ep_variant *variants;
  int n_variants;
} ep_kernel;

// A kernel for |fused|, whose inputs that are no constants are those of |part|.
ort_status *ep_kernel_create(const ep_provider *p, const ort_node *fused, ep_kernel **out);
void ep_kernel_destroy(ep_kernel *k);
// Takes the module, also where it fails.
ort_status *ep_kernel_add(ep_kernel *k, KILN_TAKE kiln_module *module, const int64_t *shapes,
                          int n_extents);

#endif
