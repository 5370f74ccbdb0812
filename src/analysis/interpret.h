// The reference interpreter of prim programs: double precision (int64/uint64 for integers); it
// shares no code with any code generator.
//
// Every tensor is rounded to its dtype when it is stored; sums and products on the way are double.
// It is the oracle of the tests and of kiln verify, and folds constants.
#ifndef KILN_ANALYSIS_INTERPRET_H
#define KILN_ANALYSIS_INTERPRET_H

#include "ir/prim.h"

typedef struct kiln_interpreter kiln_interpreter;

// Prepares to run |p|, whose shapes must be static. Storage of temporaries is malloc'ed, freed by
// destroy.
kiln_status kiln_interpreter_create(kiln_ctx *cx, const kiln_program *p, kiln_interpreter **out);
void kiln_interpreter_destroy(kiln_interpreter *in);
// Binds tensor |t| (an INPUT, or any tensor to be overridden) to row-major data, borrowed until
// destroy.
void kiln_interpreter_bind(kiln_interpreter *in, int tensor, const void *data);
// Computes tensor |t| and what it needs, once; gives its row-major elements, owned by the
// interpreter. Intermediate tensors stay.
kiln_status kiln_interpreter_compute(kiln_interpreter *in, int tensor, const void **out_data);
// Convolutions that may be computed tile by tile in a transformed domain (Winograd): f32, constant
// weights, stride 1, small windows. Products of transformed data and weights are summed over
// channels, and the inverse transform of the sums gives a tile of outputs
// (docs/design/verdicts.md).
typedef struct kiln_transforms {
  int64_t outputs; // of a tile along a dim; 0: no transforms
  // By the window's extent along a dim: squares of the transformed products over those of the plain
  // terms; 0: such windows are not transformed.
  double gain[4];
  double roundings; // of a product
  double spread;    // most of the squares of a tile, in those of an output's own terms
  // Origins of the statements that are computed so, those of one kernel joined by '+'; NULL: any
  // may be.
  const char *const *nodes;
  int n_nodes;
} kiln_transforms;
// Ways in which a computation may differ from the reference, operation by operation, and still be
// right.
typedef struct kiln_freedoms {
  bool narrow_products; // of f32: factors may be rounded to 10 fraction bits, as tf32 has
  kiln_transforms transforms;
} kiln_freedoms;
// From now on error bounds of right results are tracked (docs/design/verdicts.md); tensors that are
// bound count as exact.
void kiln_interpreter_track(kiln_interpreter *in, kiln_freedoms may);
// All tensors computed so far count as exact from now on.
void kiln_interpreter_assume_exact(kiln_interpreter *in);
// The largest error that element |i| of a computed tensor may have in another implementation, and
// its standard deviation. Both 0: it must be equal; both infinite: any value is right.
typedef struct kiln_tolerance {
  double most, typical;
} kiln_tolerance;
kiln_tolerance kiln_interpreter_tolerance(const kiln_interpreter *in, int tensor, int64_t i);
// Computes all outputs; intermediates are freed after their last reader.
kiln_status kiln_interpreter_run(kiln_interpreter *in);
const void *kiln_interpreter_data(const kiln_interpreter *in, int tensor); // NULL when not computed
// Computes single elements of tensor |t| from already bound/computed producers: |linear| holds n
// row-major element numbers, |out| receives doubles. For checking samples of large kernels. Plain
// statements only (see kiln_stmt_is_plain).
kiln_status kiln_interpreter_sample(kiln_interpreter *in, int tensor, int n, const int64_t *linear,
                                    double *out);

// Element access of any dtype. The integer of a sub-byte or minifloat element is its encoding.
double kiln_element_get(kiln_dtype t, const void *data, int64_t i); // any alignment
int64_t kiln_element_get_int(kiln_dtype t, const void *data, int64_t i);
void kiln_element_set(kiln_dtype t, void *data, int64_t i, double v);
void kiln_element_set_int(kiln_dtype t, void *data, int64_t i, int64_t v);

#endif
