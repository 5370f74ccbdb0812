// SPDX-License-Identifier: Apache-2.0
// What the user says of a session: provider options "threads", "dims" and the like, and ONNX
// Runtime's own of models that are compiled ahead.
#ifndef KILN_ORT_OPTIONS_H
#define KILN_ORT_OPTIONS_H

#include "host.h"
#include "kiln/compile.h"
#include "source.h"

#define EP_NAME "KilnExecutionProvider"

typedef struct ep_options {
  ep_arena arena;
  int threads, spin_us; // as kiln_session_options has them
  int shapes;           // modules that are kept of a part that is compiled for the shapes of runs
  int device;           // the GPU's number
  const char *target;   // as kiln_compile_options has it
  bool cache, loads_contexts;
  int n_dims, n_ranges, n_sums;
  kiln_dim_value *dims;
  kiln_dim_range *ranges;
  kiln_dim_sum *sums;
  bool makes_contexts, embeds_contexts;
  const char *context_path, *context_prefix; // "": none
} ep_options;

// needs: |out| zeroed, but for the target of the device; ep_options_deinit frees it after a
//        failure, too
// errors: what a value must be, and what it is
ort_status *ep_options_read(const ep_host *h, const ort_session_options *from, ep_options *out);
void ep_options_deinit(ep_options *o);

// How Kiln is asked to compile a part: dimensions that are its inputs' only.
typedef struct ep_question {
  kiln_compile_options options; // borrows from here, from |o| and from the source
  bool is_late; // an extent is known in a run only: the part is compiled for the shapes seen
} ep_question;
ort_status *ep_question_make(const ep_options *o, const ep_graph *g, const ep_part *part,
                             const ep_source *source, ep_arena *arena, ep_question *out);

#endif
