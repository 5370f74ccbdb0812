// Stable sorting of rows by integer keys.
#ifndef KILN_FISSION_SORT_H
#define KILN_FISSION_SORT_H

#include "fission/lower.h"

// Argsort: the indices of a row's elements in ascending order of their keys, stable: i64 (R, N).
//
// needs: |keys| i64 (R, N), in [-2^(n_bits - 1), 2^(n_bits - 1)); |n_bits| a multiple of 8
// cost:  n_bits / 4 sequential passes over the elements of a row
kiln_tensor *kiln_lower_order(kiln_lower *lw, const kiln_tensor *keys, int n_bits);

#endif
