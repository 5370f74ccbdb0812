// Copies row by row: an odometer over all axes but the last.
#include "runtime/strided.h"

#include <string.h>

bool kiln_strided_is_dense(const kiln_strided *s) {
  int64_t want = 1;
  for (int32_t k = s->rank - 1; k >= 0; k--) {
    if (s->shape[k] != 1 && s->strides[k] != want) return false;
    want *= s->shape[k];
  }
  return true;
}

uint64_t kiln_strided_span(const kiln_strided *s) {
  uint64_t last = 0;
  for (int32_t k = 0; k < s->rank; k++)
    last += (uint64_t)(s->shape[k] - 1) * (uint64_t)s->strides[k];
  return (last + 1) * s->elem_bytes;
}

uint64_t kiln_strided_bytes(const kiln_strided *s) {
  uint64_t bytes = s->elem_bytes;
  for (int32_t k = 0; k < s->rank; k++) bytes *= (uint64_t)s->shape[k];
  return bytes;
}

// Copies rows of the last axis between strided and row-major memory.
static void copy_rows(const kiln_strided *s, bool spreads) {
  const size_t elem = s->elem_bytes;
  const int32_t last = s->rank - 1;
  const int64_t n = s->rank > 0 ? s->shape[last] : 1, step = s->rank > 0 ? s->strides[last] : 0;
  const size_t row_bytes = (size_t)n * elem;
  int64_t at[KILN_PORT_MAX_RANK] = {0};
  char *to = s->to;
  const char *from = s->from;
  for (;;) {
    int64_t offset = 0;
    for (int32_t k = 0; k < last; k++) offset += at[k] * s->strides[k] * (int64_t)elem;
    char *target = spreads ? to + offset : to;
    const char *source = spreads ? from : from + offset;
    const int64_t target_step = (spreads ? step : 1) * (int64_t)elem,
                  source_step = (spreads ? 1 : step) * (int64_t)elem;
    if (step == 1) memcpy(target, source, row_bytes);
    else
      for (int64_t i = 0; i < n; i++)
        memcpy(target + i * target_step, source + i * source_step, elem);
    if (spreads) from += row_bytes;
    else to += row_bytes;
    int32_t k = last - 1;
    while (k >= 0 && ++at[k] == s->shape[k]) at[k--] = 0;
    if (k < 0) return;
  }
}

void kiln_strided_copy(const kiln_strided *s) { copy_rows(s, false); }
void kiln_strided_spread(const kiln_strided *s) { copy_rows(s, true); }
