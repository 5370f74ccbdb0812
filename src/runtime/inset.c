// An odometer over the outer axes; what is contiguous within them is moved at once.
#include "runtime/inset.h"

#include <string.h>

// The number of inner axes that are contiguous.
static int32_t contiguous(const kiln_inset *b) {
  int32_t k = b->rank - 1;
  while (k > 0 && b->shape[k] == b->layout[k]) k--;
  return b->rank - (k < 0 ? 0 : k);
}

bool kiln_inset_is_dense(const kiln_inset *b) { return contiguous(b) == b->rank; }

static void strides_of(const kiln_inset *b, int64_t *out) {
  int64_t bytes = (int64_t)b->elem_bytes;
  for (int32_t k = b->rank - 1; k >= 0; k--) {
    out[k] = bytes;
    bytes *= b->layout[k];
  }
}

// |from| NULL: zeroes.
static void move(const kiln_inset *to, const kiln_inset *from) {
  int64_t strides[2][KILN_PORT_MAX_RANK], at[KILN_PORT_MAX_RANK] = {0};
  int32_t inner = contiguous(to);
  size_t run = to->elem_bytes;
  for (int32_t k = 0; k < to->rank; k++)
    if (to->shape[k] == 0) return;
  if (from && contiguous(from) < inner) inner = contiguous(from);
  const int32_t outer = to->rank - inner;
  for (int32_t k = outer; k < to->rank; k++) run *= (size_t)to->shape[k];
  strides_of(to, strides[0]);
  if (from) strides_of(from, strides[1]);
  for (;;) {
    int64_t target = 0, source = 0;
    for (int32_t k = 0; k < outer; k++) {
      target += at[k] * strides[0][k];
      if (from) source += at[k] * strides[1][k];
    }
    if (from) memcpy(to->at + target, from->at + source, run);
    else memset(to->at + target, 0, run);
    int32_t k = outer - 1;
    while (k >= 0 && ++at[k] == to->shape[k]) at[k--] = 0;
    if (k < 0) return;
  }
}

void kiln_inset_copy(const kiln_inset *to, const kiln_inset *from) { move(to, from); }

void kiln_inset_clear(const kiln_inset *b, int32_t axis, int64_t begin) {
  int64_t strides[KILN_PORT_MAX_RANK], shape[KILN_PORT_MAX_RANK];
  kiln_inset part = *b;
  if (b->rank == 0) {
    move(b, NULL);
    return;
  }
  if (begin >= b->shape[axis]) return;
  strides_of(b, strides);
  memcpy(shape, b->shape, (size_t)b->rank * sizeof *shape);
  shape[axis] -= begin;
  part.at += begin * strides[axis];
  part.shape = shape;
  move(&part, NULL);
}
