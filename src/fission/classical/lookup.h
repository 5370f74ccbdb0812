// Looking numbers up among keys that are known at compile time.
#ifndef KILN_FISSION_CLASSICAL_LOOKUP_H
#define KILN_FISSION_CLASSICAL_LOOKUP_H

#include "fission/lower.h"

typedef struct kiln_keys {
  kiln_dtype dtype;
  int n;                     // distinct keys
  const kiln_tensor *sorted; // ascending, [0, n), then copies of the greatest up to a power of two
  int *source;               // [n] for each sorted key the first position where it was given
  int nan;                   // the position of NaN among those given; -1: none
  int64_t least, greatest;   // of integers
} kiln_keys;

// |data|: |n| numbers of |t|, an integer type or f32 or f64.
void kiln_lower_keys(kiln_lower *lw, kiln_dtype t, int n, const void *data, kiln_keys *out);
// The place of |x|, of the keys' type, among the sorted keys, i64; |keys->n| where it is none.
//
// cost: a load for each halving of the keys
const kiln_expr *kiln_lower_find(kiln_lower *lw, const kiln_keys *keys, const kiln_expr *x);

#endif
