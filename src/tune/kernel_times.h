// Times of kernels inside a run of the model.
#ifndef KILN_TUNE_KERNEL_TIMES_H
#define KILN_TUNE_KERNEL_TIMES_H

#include "module/build.h"

// A model as it was timed.
typedef struct kiln_timed {
  kiln_module *module;
  const kiln_kernels *kernels;
  const double *us; // [kernels] the median of one launch, in the runs of the model
  double run_us;    // of all launches
} kiln_timed;
// Compiles the kernels of |b| and times them. With |first|, another timed model, runs of the two
// alternate and times are scaled by |first|'s, so that other load on the machine cancels out.
//
// gives: out->module, one reference; NULL on failure
kiln_status kiln_build_time(kiln_ctx *cx, kiln_build *b, const kiln_timed *first, kiln_timed *out);
// The same of |b| alone.
kiln_status kiln_build_measure(kiln_ctx *cx, kiln_build *b, const double **out_us);

#endif
