// Tensors of the interface: creation, description and destruction of DLPack tensors, and the table
// of element types.
#include "runtime/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kiln_type types[] = {
#define KILN_DTYPE(name, text, bits, onnx, dl, kind) {text, dl, bits},
#include "ir/dtype.def"
#undef KILN_DTYPE
};

// " f64 f32 ..."
static const char type_texts[] =
#define KILN_DTYPE(name, text, bits, onnx, dl, kind) " " text
#include "ir/dtype.def"
#undef KILN_DTYPE
    ;

const kiln_type *kiln_type_find(const char *text) {
  for (size_t i = 0; text && i < sizeof types / sizeof types[0]; i++)
    if (strcmp(types[i].text, text) == 0) return &types[i];
  return NULL;
}

const kiln_type *kiln_type_of(DLDataType t) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (types[i].code == t.code && types[i].bits == t.bits && t.lanes == 1) return &types[i];
  return NULL;
}

bool kiln_shape_bytes(int32_t rank, const int64_t *shape, uint64_t elem_bytes, uint64_t *out) {
  uint64_t bytes = elem_bytes;
  bool empty = false;
  if (rank > 0 && !shape) return false;
  for (int32_t i = 0; i < rank; i++) {
    if (shape[i] < 0) return false;
    if (shape[i] == 0) empty = true;
    else if (__builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes) || bytes >> 62) return false;
  }
  *out = empty ? 0 : bytes;
  return true;
}

bool kiln_is_row_major(const DLTensor *t) {
  if (!t->strides || kiln_tensor_count(t) <= 1) return true;
  int64_t want = 1;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] != 1 && t->strides[i] != want) return false;
    want *= t->shape[i];
  }
  return true;
}

const char *kiln_shape_text(int32_t rank, const int64_t *shape, char *text, size_t text_bytes) {
  size_t at = (size_t)snprintf(text, text_bytes, "[");
  for (int32_t i = 0; i < rank && at < text_bytes; i++) {
    const char *comma = i ? ", " : "";
    int n = shape[i] < 0 ? snprintf(text + at, text_bytes - at, "%s?", comma)
                         : snprintf(text + at, text_bytes - at, "%s%" PRId64, comma, shape[i]);
    at += (size_t)n;
  }
  if (at < text_bytes) snprintf(text + at, text_bytes - at, "]");
  return text;
}

static void delete_tensor(DLManagedTensorVersioned *t) {
  free(t->dl_tensor.data);
  free(t);
}

// Allocates the structure and its shape as one block.
static DLManagedTensorVersioned *new_tensor(int32_t rank, const int64_t *shape, uint64_t bytes) {
  DLManagedTensorVersioned *t = calloc(1, sizeof *t + (size_t)rank * sizeof(int64_t));
  void *data = t ? aligned_alloc(64, (bytes + 127) / 64 * 64) : NULL;
  if (!data) {
    free(t);
    return NULL;
  }
  memset(data, 0, bytes);
  int64_t *own_shape = (int64_t *)(t + 1);
  if (rank) memcpy(own_shape, shape, (size_t)rank * sizeof(int64_t));
  t->version = (DLPackVersion){1, 0};
  t->deleter = delete_tensor;
  t->dl_tensor.data = data;
  t->dl_tensor.device = (DLDevice){kDLCPU, 0};
  t->dl_tensor.ndim = rank;
  t->dl_tensor.shape = own_shape;
  return t;
}

DLManagedTensorVersioned *kiln_tensor_create(const char *dtype, int32_t rank, const int64_t *shape,
                                             kiln_diag *diag) {
  const kiln_type *type = kiln_type_find(dtype);
  uint64_t bytes = 0;
  if (!type) {
    (void)kiln_diag_fail(diag, KILN_BAD_INPUT, "tensor", "dtype must be one of%s, got '%s'",
                         type_texts, dtype ? dtype : "(null)");
    return NULL;
  }
  if (rank < 0 || rank > 64 || (rank && !shape)) {
    (void)kiln_diag_fail(diag, KILN_BAD_INPUT, "tensor", "rank must be 0 to 64, got %d", rank);
    return NULL;
  }
  if (!kiln_shape_bytes(rank, shape, kiln_type_bytes(type), &bytes)) {
    char text[256];
    (void)kiln_diag_fail(diag, KILN_BAD_INPUT, "tensor",
                         "extents must be at least 0 and the size below 2^62 bytes, got %s",
                         kiln_shape_text(rank, shape, text, sizeof text));
    return NULL;
  }
  bytes = kiln_type_tensor_bytes(type, bytes / kiln_type_bytes(type));
  DLManagedTensorVersioned *t = new_tensor(rank, shape, bytes);
  if (!t) {
    (void)kiln_diag_fail(diag, KILN_NO_MEMORY, "tensor", "%" PRIu64 " bytes of memory: none left",
                         bytes);
    return NULL;
  }
  t->dl_tensor.dtype = (DLDataType){type->code, type->bits, 1};
  return t;
}

void kiln_tensor_destroy(DLManagedTensorVersioned *tensor) {
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

const char *kiln_tensor_dtype(const DLTensor *tensor) {
  const kiln_type *type = tensor ? kiln_type_of(tensor->dtype) : NULL;
  return type ? type->text : NULL;
}

size_t kiln_tensor_bytes(const DLTensor *tensor) {
  const kiln_type *type = tensor ? kiln_type_of(tensor->dtype) : NULL;
  uint64_t bytes = 0;
  if (!type || !kiln_shape_bytes(tensor->ndim, tensor->shape, kiln_type_bytes(type), &bytes))
    return 0;
  return kiln_type_tensor_bytes(type, bytes / kiln_type_bytes(type));
}

int64_t kiln_tensor_count(const DLTensor *tensor) {
  uint64_t n = 0;
  return tensor && kiln_shape_bytes(tensor->ndim, tensor->shape, 1, &n) ? (int64_t)n : 0;
}
