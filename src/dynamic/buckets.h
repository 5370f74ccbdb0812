// Shape buckets (optimization profiles): a range of extents is cut into buckets, and each bucket is
// compiled for its largest extents.
#ifndef KILN_DYNAMIC_BUCKETS_H
#define KILN_DYNAMIC_BUCKETS_H

#include "module/build.h"

// Implements kiln_model_compile_to for a model with ranges.
kiln_status kiln_buckets_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag);
// Tightens the bounds of a bucket's kernels: each outermost loop ends after the last iteration
// whose results a run needs. (bound_tightening.c)
kiln_status kiln_build_tighten_bounds(kiln_ctx *cx, kiln_build *b);

#endif
