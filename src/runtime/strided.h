// Copies of tensors that are not row-major where they are.
#ifndef KILN_RUNTIME_STRIDED_H
#define KILN_RUNTIME_STRIDED_H

#include "runtime/types.h"

// Elements of |elem_bytes| over |shape|, which has no extent of 0: the source has |strides| in
// elements, none negative, the target is row-major.
typedef struct kiln_strided {
  char *to;
  const char *from;
  size_t elem_bytes;
  int32_t rank;
  const int64_t *shape, *strides;
} kiln_strided;

bool kiln_strided_is_dense(const kiln_strided *s); // both are row-major
uint64_t
kiln_strided_span(const kiln_strided *s); // bytes from the source's first to behind its last
uint64_t kiln_strided_bytes(const kiln_strided *s); // of the target
void kiln_strided_copy(const kiln_strided *s);      // by this processor
// The other way: the source is row-major, the target has |strides|.
void kiln_strided_spread(const kiln_strided *s);

#endif
