// Element types of the interface: Kiln's names of DLPack's types, from ir/dtype.def, the only part
// of the IR that the runtime uses.
#ifndef KILN_RUNTIME_TYPES_H
#define KILN_RUNTIME_TYPES_H

#include "kiln/tensor.h"

#include <stdbool.h>

enum { KILN_PORT_MAX_RANK = 8 };

typedef struct kiln_type {
  const char *text;   // "f32"
  uint8_t code, bits; // DLPack
} kiln_type;

const kiln_type *kiln_type_find(const char *text); // NULL: no such type
const kiln_type *kiln_type_of(DLDataType t);       // NULL: no such type
// Bytes of an element in a module's memory. Elements of fewer than 8 bits, which tensors pack, have
// a byte each there.
static inline uint64_t kiln_type_bytes(const kiln_type *t) { return (t->bits + 7u) / 8; }
static inline bool kiln_type_is_packed(const kiln_type *t) { return t->bits < 8; }
// Bytes of |n| elements in a tensor.
static inline uint64_t kiln_type_tensor_bytes(const kiln_type *t, uint64_t n) {
  return kiln_type_is_packed(t) ? (n * t->bits + 7) / 8 : n * kiln_type_bytes(t);
}

// The product of extents times |elem_bytes|; false when an extent is negative or 2^62 is exceeded.
bool kiln_shape_bytes(int32_t rank, const int64_t *shape, uint64_t elem_bytes, uint64_t *out);
bool kiln_is_row_major(const DLTensor *t); // strides of axes with at most one element are ignored
// "[1, 3, ?]" into |text|; a negative extent prints as ?
const char *kiln_shape_text(int32_t rank, const int64_t *shape, char *text, size_t text_bytes);

#endif
