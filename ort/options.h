// SPDX-License-Identifier: Apache-2.0
// The options of a session: provider options "threads", "dims" and the like, and ONNX Runtime's
// options for models that are compiled ahead.
#ifndef KILN_ORT_OPTIONS_H
#define KILN_ORT_OPTIONS_H

#include "host.h"
#include "kiln/compile.h"
#include "source.h"

#define EP_NAME "KilnExecutionProvider"

typedef struct ep_options {
  ep_arena arena;
  int threads, spin_us; // as in kiln_session_options
  int shapes;           // the most modules of a part that is compiled for the shapes of runs
  int device;           // number of the GPU
  const char *target;   // as in kiln_compile_options
  bool cache, loads_contexts;
  int n_dims, n_ranges, n_sums;
  kiln_dim_value *dims;
  kiln_dim_range *ranges;
  kiln_dim_sum *sums;
  bool makes_contexts, embeds_contexts;
  const char *context_path, *context_prefix; // "": none
} ep_options;

// needs: |out| zeroed, except for the device's target; ep_options_deinit also after a failure
// errors: with a message of what a value must be, and what it is
ort_status *ep_options_read(const ep_host *h, const ort_session_options *from, ep_options *out);
void ep_options_deinit(ep_options *o);

// The compile options of a part, restricted to dimensions of its inputs.
typedef struct ep_question {
  kiln_compile_options options; // borrows from here, from |o| and from the source
  bool is_late; // an extent is known only in runs: the part is compiled for the shapes that occur
} ep_question;
ort_status *ep_question_make(const ep_options *o, const ep_graph *g, const ep_part *part,
                             const ep_source *source, ep_arena *arena, ep_question *out);

#endif
