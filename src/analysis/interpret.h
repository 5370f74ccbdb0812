// The reference interpreter of prim programs: double precision (int64/uint64 for integers), shared
// with no code generator.
//
// Every tensor is rounded to its dtype where it is stored, so an f32 tensor holds what f32 can
// hold, but sums and products on the way are double. It is the oracle of the tests and of kiln
// verify, and folds constants.
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
// Convolutions of f32 by constant weights, of stride 1 and with small windows, that are computed
// tile by tile: transforms of the data and of the weights are multiplied, and what is made of the
// sums of these products are the outputs (docs/design/verdicts.md).
typedef struct kiln_transforms {
  int64_t outputs; // of a tile along a dim; 0: nothing is transformed
  double gain
      [4]; // by the elements of the window along a dim, 0: no such: the squares of the products in those of plain terms
  double roundings; // of a product
  double spread;    // most of the squares of a tile, in those of an output's own terms
  // Origins of the statements that are computed so, those of one kernel joined by '+'; NULL: any
  // may be.
  const char *const *nodes;
  int n_nodes;
} kiln_transforms;
// What may be computed otherwise than operation by operation.
typedef struct kiln_freedoms {
  bool
      narrow_products; // factors of sums of products of f32 are rounded to 10 bits behind the point, as tf32 has them
  kiln_transforms transforms;
} kiln_freedoms;
// From now on the errors that right results may have are followed (docs/design/verdicts.md), of
// tensors computed from exact ones.
void kiln_interpreter_track(kiln_interpreter *in, kiln_freedoms may);
// What there is is exact from now on.
void kiln_interpreter_settle(kiln_interpreter *in);
// What element |i| of a tensor that was computed may be off by in another's computation, and the
// deviation that it may have there, both 0: it must be equal, both infinite: it may be anything.
typedef struct kiln_tolerance {
  double most, typical;
} kiln_tolerance;
kiln_tolerance kiln_interpreter_tolerance(const kiln_interpreter *in, int tensor, int64_t i);
// Computes all outputs; intermediate tensors are freed when their last reader is done.
kiln_status kiln_interpreter_run(kiln_interpreter *in);
const void *kiln_interpreter_data(const kiln_interpreter *in, int tensor); // NULL when not computed
// Computes single elements of tensor |t| from already bound/computed producers: |linear| holds n
// row-major element numbers, |out| receives doubles. For checking samples of large kernels. Plain
// statements only (see kiln_stmt_is_plain).
kiln_status kiln_interpreter_sample(kiln_interpreter *in, int tensor, int n, const int64_t *linear,
                                    double *out);

// Element access of any dtype. As integers, elements of code types are the codes.
double kiln_element_get(kiln_dtype t, const void *data, int64_t i); // any alignment
int64_t kiln_element_get_int(kiln_dtype t, const void *data, int64_t i);
void kiln_element_set(kiln_dtype t, void *data, int64_t i, double v);
void kiln_element_set_int(kiln_dtype t, void *data, int64_t i, int64_t v);

#endif
