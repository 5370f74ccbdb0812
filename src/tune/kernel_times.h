// Times of kernels inside a run of the model.
#ifndef KILN_TUNE_KERNEL_TIMES_H
#define KILN_TUNE_KERNEL_TIMES_H

#include "module/build.h"

// A model with its measured times.
typedef struct kiln_timed {
  kiln_module *module;
  const kiln_kernels *kernels;
  const double *us; // [kernels] median of one launch inside runs of the model
  double run_us;    // sum over all launches
} kiln_timed;
// Compiles the kernels of |b| and times them. If there is a |first|, another timed model, runs of
// the two alternate and times are scaled by |first|'s, to cancel other load on the machine.
//
// gives: out->module, one reference; NULL on failure
kiln_status kiln_build_time(kiln_ctx *cx, kiln_build *b, const kiln_timed *first, kiln_timed *out);
// The same for |b| alone.
kiln_status kiln_build_measure(kiln_ctx *cx, kiln_build *b, const double **out_us);

#endif
