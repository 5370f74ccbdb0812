// Coefficients of the price (price/gpu_price.h): a fit to 6002 candidates measured on an
// NVIDIA H200, by bench/fit_price.py --write.
#ifndef KILN_PRICE_GPU_FIT_H
#define KILN_PRICE_GPU_FIT_H

#include "price/gpu_loops.h"

static const struct {
  double unit[KILN_N_GPU_UNITS], wait[KILN_N_GPU_WAITS]; // of each unit, of each wait
  double block, cluster;    // clocks of a block's begin and end; of doubling a cluster
  double l2, memory;        // of the chip's levels
  double starts;            // of blocks, one behind the other
  double code, nest, begin; // clocks of an instruction's first fetch, a nest, a kernel
  double p, q;              // norms, less 1
} FIT = {
    .unit = {0.2229, 0.5003, 1.096, 0.8419, 0.3119, 0.3291, 0.7359},
    .wait = {0.6051, 0.1305, 0.9601, 0.5058, 0.2951, 0.5474, 46.57, 0.3365},
    .block = 57.77,
    .cluster = 308.3,
    .l2 = 0.695,
    .memory = 0.3571,
    .starts = 0.5648,
    .code = 0.4643,
    .nest = 1106,
    .begin = 406.1,
    .p = 0.03223,
    .q = 0.1012,
};

#endif
