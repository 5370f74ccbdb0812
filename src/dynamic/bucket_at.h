// The bucket of a run's extents, without a module: for runs in the simulator.
#ifndef KILN_DYNAMIC_BUCKET_AT_H
#define KILN_DYNAMIC_BUCKET_AT_H

#include "module/build.h"

typedef struct kiln_bucket_run {
  size_t n_inputs, n_outputs;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  int64_t values[KILN_MAX_DIMS]; // found: of the dimensions
  int bucket;                    // found
} kiln_bucket_run;

// Finds the dimensions' values and their bucket.
//
// errors: KILN_BAD_INPUT: a value is out of its range, or a tensor has another type or shape
KILN_MUST_USE kiln_status kiln_bucket_of(kiln_ctx *cx, const kiln_model *m, kiln_bucket_run *io);
// Makes |out_model| that of a bucket of |whole|, and the request of |b| its compilation.
void kiln_bucket_begin(const kiln_model *whole, int bucket, kiln_model *out_model, kiln_build *b);
// Gives the loops of |b|'s kernels that a run trims the iterations of a run at |values|, though one
// at least.
//
// needs: tightened bounds
void kiln_bucket_trim(kiln_ctx *cx, kiln_build *b, const int64_t *values);

#endif
