// Reductions and scatters over axes that are smaller in some runs: what lies beyond an axis's end
// must not count.
//
// Before a reduction its operands get values that change nothing in it, beyond the end as the
// dimensions say it when it runs: where they are made if a map makes them, else by a map of their
// own. So a softmax's scores are -inf there, from which it follows that its exponentials are 0,
// which need nothing any more. A scatter gets a guard.
#ifndef KILN_DYNAMIC_MASK_H
#define KILN_DYNAMIC_MASK_H

#include "ir/prim.h"

// Dim |dim| of statement |stmt|, one that it reduces over or any of a scatter, ends at |extent|,
// which may load.
typedef struct kiln_reach {
  int stmt, dim;
  const kiln_expr *extent;
} kiln_reach;

// Axes whose elements beyond the end are read now, by tensor: as bits.
typedef struct kiln_masked {
  int n;
  uint8_t *axes; // [n], of the program's tensors as they are then
} kiln_masked;

// Changes |p|; |reaches| are by ascending statement. *out in cx->perm.
void kiln_program_mask(kiln_ctx *cx, kiln_program *p, int n, const kiln_reach *reaches,
                       kiln_masked *out);

#endif
