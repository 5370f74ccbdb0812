// Insets: tensors that lie in larger ones. Their elements have the strides of a row-major tensor
// of other, greater extents.
#ifndef KILN_RUNTIME_INSET_H
#define KILN_RUNTIME_INSET_H

#include "runtime/types.h"

// |shape| elements, in memory whose strides are those of a row-major tensor of |layout|.
typedef struct kiln_inset {
  char *at;
  size_t elem_bytes;
  int32_t rank;
  const int64_t *shape, *layout; // shape[k] <= layout[k]
} kiln_inset;

// Copies the elements of |from|, of the same shape and another layout.
void kiln_inset_copy(const kiln_inset *to, const kiln_inset *from);
// Zeroes the elements from |begin| on along |axis|.
void kiln_inset_clear(const kiln_inset *b, int32_t axis, int64_t begin);
bool kiln_inset_is_dense(const kiln_inset *b); // no gaps between its elements

#endif
