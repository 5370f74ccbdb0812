// A kernel alone on random data: whether loops compute what its program says.
#ifndef KILN_DRIVER_CHECK_H
#define KILN_DRIVER_CHECK_H

#include "driver/build.h"

typedef struct kiln_kernel_check {
  kiln_ctx *cx;
  const kiln_program *p;
  bool has_wanted;
  void **data;   // [tensors] row-major, malloc'ed: random inputs, wanted results; NULL: of no use
  void **memory; // arguments of the loops at hand, malloc'ed
  int n_memory;
} kiln_kernel_check;

// Whether |p| can be run on random data: it indexes nothing by data.
bool kiln_kernel_check_suits(const kiln_program *p);
// Fills the inputs. What is wanted is computed by the reference interpreter, or where that takes long by
// the loops that are run first.
kiln_status kiln_kernel_check_init(kiln_kernel_check *c, kiln_ctx *cx, const kiln_program *p,
                                   uint64_t seed);
// Runs the nests of |l|, parallel ones in two parts, and compares the results.
kiln_status kiln_kernel_check_run(kiln_kernel_check *c, const kiln_loops *l,
                                  const kiln_kernel_fn *nests, double rtol, double atol,
                                  bool *out_is_right);
void kiln_kernel_check_deinit(kiln_kernel_check *c);

#endif
