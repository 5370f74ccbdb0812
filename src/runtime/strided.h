// Copies between strided and row-major tensors.
#ifndef KILN_RUNTIME_STRIDED_H
#define KILN_RUNTIME_STRIDED_H

#include "runtime/types.h"

// Elements of |elem_bytes| over |shape|, which has no extent of 0. The source has non-negative
// |strides| in elements, the target is row-major.
typedef struct kiln_strided {
  char *to;
  const char *from;
  size_t elem_bytes;
  int32_t rank;
  const int64_t *shape, *strides;
} kiln_strided;

bool kiln_strided_is_dense(const kiln_strided *s); // the source is row-major, too
uint64_t
// bytes from the source's first element to the end of its last
kiln_strided_span(const kiln_strided *s);
uint64_t kiln_strided_bytes(const kiln_strided *s); // of the target
void kiln_strided_copy(const kiln_strided *s);      // copies by the CPU
// Copies the other way: the source is row-major, the target has |strides|.
void kiln_strided_spread(const kiln_strided *s);

#endif
