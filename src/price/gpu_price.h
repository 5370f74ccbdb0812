// The predicted time of lowered loops on a GPU: one price for all templates, from the counts of
// their loops (price/gpu_loops.h), the machine's measured figures and a few fitted coefficients.
//
//   t = begin + sum over nests of (nest + code * instructions + ||multiprocessor, L2, memory||_q)
//   multiprocessor = sum over rounds of resident blocks: ||waits, r * unit_1, r * unit_2, ..||_p
//
// A round of r resident blocks takes what one block waits for, or what its busiest unit takes for
// all of them; units overlap as far as the norm p says, the chip's levels as q says. Coefficients
// are a fit of bench/fit_price.py to bench/data/ (price/gpu_fit.h).
#ifndef KILN_PRICE_GPU_PRICE_H
#define KILN_PRICE_GPU_PRICE_H

#include "price/gpu_loops.h"

double kiln_gpu_price_ns(const kiln_machine *m, const kiln_gpu_counts *c);

#endif
