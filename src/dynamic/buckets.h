// Shape buckets (optimization profiles): what is compiled for ranges of extents.
#ifndef KILN_DYNAMIC_BUCKETS_H
#define KILN_DYNAMIC_BUCKETS_H

#include "module/build.h"

// kiln_model_compile_to of a model with ranges.
kiln_status kiln_parts_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag);
// Trims the kernels of a bucket: iterations of their outermost loops whose results no run needs are
// left out. (trim.c)
kiln_status kiln_build_trim(kiln_ctx *cx, kiln_build *b);

#endif
