// Constants from TensorProto: checks type, extents and size, then borrows or converts the elements.
// Elements of fewer than 8 bits are unpacked to a byte each; packed, they have |stored| bytes.
#include "onnx/tensor.h"

#include <string.h>

const char *kiln_onnx_type_name(int64_t code) {
  static const char *const names[] = {
      "undefined",      "float32",    "uint8",          "int8",       "uint16",    "int16",
      "int32",          "int64",      "string",         "bool",       "float16",   "float64",
      "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
      "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
  return code >= 0 && code < (int64_t)KILN_LEN(names) ? names[code] : "an unknown type";
}

bool kiln_onnx_shape_elems(kiln_ctx *cx, int64_t rank, const int64_t *shape, int elem_bytes,
                           int64_t *out_elems, const char **out_wrong) {
  int64_t bytes = elem_bytes; // product of nonzero extents: strides must not overflow
  bool empty = false;
  *out_elems = 0;
  for (int64_t axis = 0; axis < rank; axis++) {
    if (shape[axis] < 0) {
      *out_wrong = kiln_arena_printf(
          &cx->scratch, "extents must not be negative, got %" PRId64 " on axis %" PRId64,
          shape[axis], axis);
      return false;
    }
    if (shape[axis] == 0) {
      empty = true;
    } else if (bytes > KILN_ONNX_MAX_BYTES / shape[axis]) {
      *out_wrong = "the product of the extents must be at most 2^62 bytes, got more";
      return false;
    } else {
      bytes *= shape[axis];
    }
  }
  *out_elems = empty ? 0 : bytes / elem_bytes;
  return true;
}

// A constant under construction.
typedef struct making {
  onnx_problems *problems;
  const char *place, *subject;
  size_t stored; // size of the elements in the file
} making;

static bool wrong(const making *m, kiln_status status, const char *what) {
  kiln_onnx_problem(m->problems, status, m->place, "%s: %s", m->subject, what);
  return false;
}

// Parses a decimal number in external_data; false if it is invalid or exceeds 2^62.
static bool read_decimal(onnx_bytes text, int64_t *out) {
  *out = 0;
  for (size_t i = 0; i < text.n; i++) {
    if (text.data[i] < '0' || text.data[i] > '9' || *out > (INT64_C(1) << 62) / 10) return false;
    *out = *out * 10 + (text.data[i] - '0');
  }
  return text.n > 0;
}

static bool make_external(const making *m, kiln_onnx_file *file, const onnx_tensor *t,
                          kiln_const *out) {
  onnx_bytes location = {0}, bytes;
  int64_t offset = 0, length = (int64_t)m->stored;
  for (size_t i = 0; i < t->external_data.n; i++) {
    const onnx_entry *e = &t->external_data.data[i];
    bool good = true;
    if (kiln_onnx_is(e->key, "location")) location = e->value;
    if (kiln_onnx_is(e->key, "offset")) good = read_decimal(e->value, &offset);
    if (kiln_onnx_is(e->key, "length")) good = read_decimal(e->value, &length);
    if (!good)
      return wrong(
          m, KILN_BAD_INPUT,
          kiln_arena_printf(&m->problems->cx->scratch,
                            "external data: %s must be a number from 0 to 2^62, got \"%.40s\"",
                            kiln_onnx_text(m->problems->cx, e->key),
                            kiln_onnx_text(m->problems->cx, e->value)));
  }
  const char *place = kiln_arena_printf(&m->problems->cx->scratch, "%s: %s", m->place, m->subject);
  if (!kiln_onnx_file_external(file, m->problems, place, location, &bytes)) return false;
  const char *text = NULL;
  if (length != (int64_t)m->stored)
    text = kiln_arena_printf(&m->problems->cx->scratch,
                             "external data: length must be %zu, got %" PRId64, m->stored, length);
  else if (offset > (int64_t)bytes.n || length > (int64_t)bytes.n - offset)
    text = kiln_arena_printf(&m->problems->cx->scratch,
                             "external data: must end within the %zu bytes of \"%.200s\", got "
                             "offset %" PRId64 " and length %" PRId64,
                             bytes.n, kiln_onnx_text(m->problems->cx, location), offset, length);
  if (text != NULL) return wrong(m, KILN_BAD_INPUT, text);
  out->data = bytes.data + offset;
  return true;
}

// Narrows the integers of a typed field to the type's width.
static void convert_ints(const int64_t *from, size_t n, kiln_dtype dtype, void *to) {
  for (size_t i = 0; i < n; i++) {
    const uint64_t bits = dtype == KILN_BOOL ? (uint64_t)(from[i] != 0) : (uint64_t)from[i];
    switch (kiln_dtype_bytes(dtype)) { // little-endian, like the file's raw data
    case 1: ((uint8_t *)to)[i] = (uint8_t)bits; break;
    case 2: ((uint16_t *)to)[i] = (uint16_t)bits; break;
    case 4: ((uint32_t *)to)[i] = (uint32_t)bits; break;
    default: ((uint64_t *)to)[i] = bits; break;
    }
  }
}

// The typed field for elements of this type, as integers or as packed memory.
static const char *typed_field(const onnx_tensor *t, kiln_dtype dtype, size_t *out_n,
                               const int64_t **out_ints, const char **out_packed) {
  *out_ints = NULL;
  *out_packed = NULL;
  if (dtype == KILN_F32) {
    *out_n = t->float_data.n;
    *out_packed = t->float_data.data;
    return "float_data";
  }
  if (dtype == KILN_F64) {
    *out_n = t->double_data.n;
    *out_packed = t->double_data.data;
    return "double_data";
  }
  if (dtype == KILN_I64) {
    *out_n = t->int64_data.n;
    *out_ints = t->int64_data.data;
    return "int64_data";
  }
  if (dtype == KILN_U32 || dtype == KILN_U64) {
    *out_n = t->uint64_data.n;
    *out_ints = t->uint64_data.data;
    return "uint64_data";
  }
  *out_n = t->int32_data.n;
  *out_ints = t->int32_data.data;
  return "int32_data";
}

static bool make_typed(const making *m, const kiln_onnx_file *file, const onnx_tensor *t,
                       int64_t elems, kiln_const *out) {
  const int64_t *ints = NULL;
  const char *run = NULL;
  size_t n = 0;
  const char *field = typed_field(t, out->dtype, &n, &ints, &run);
  const bool is_packed = kiln_dtype_bits(out->dtype) < 8;
  const size_t want = is_packed ? m->stored : (size_t)elems;
  if (n != want)
    return wrong(m, KILN_BAD_INPUT,
                 kiln_arena_printf(&m->problems->cx->scratch,
                                   "%s must hold the %zu %s of its shape, got %zu", field, want,
                                   is_packed ? "bytes" : "elements", n));
  const onnx_bytes all = kiln_onnx_file_model(file);
  if (run != NULL && (uintptr_t)run - (uintptr_t)all.data < all.n) { // borrowed from the file
    out->data = run;
    return true;
  }
  void *to = kiln_arena_alloc(&m->problems->cx->perm, m->stored);
  if (run != NULL) memcpy(to, run, m->stored);
  else convert_ints(ints, n, out->dtype, to);
  out->data = to;
  return true;
}

static bool make_elements(const making *m, kiln_onnx_file *file, const onnx_tensor *t,
                          int64_t elems, kiln_const *out) {
  if (t->data_location == 1) return make_external(m, file, t, out);
  if (t->raw_data.n == 0 && elems == 0) return true;
  if (t->raw_data.data == NULL) return make_typed(m, file, t, elems, out);
  if (t->raw_data.n != m->stored)
    return wrong(m, KILN_BAD_INPUT,
                 kiln_arena_printf(&m->problems->cx->scratch,
                                   "raw_data must hold %zu bytes, got %zu", m->stored,
                                   t->raw_data.n));
  out->data = t->raw_data.data;
  return true;
}

// Unpacks elements to a byte each.
static void unpack(kiln_ctx *cx, int64_t elems, kiln_const *out) {
  const int bits = kiln_dtype_bits(out->dtype);
  if (bits >= 8 || elems == 0) return;
  void *codes = kiln_arena_alloc(&cx->perm, out->bytes);
  kiln_codes_unpack(bits, elems, out->data, codes);
  out->data = codes;
}

bool kiln_onnx_tensor_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_tensor *t, kiln_const *out) {
  making m = {problems, place, subject, 0};
  kiln_arena *scratch = &problems->cx->scratch;
  const char *text = NULL;
  int64_t elems = 0;
  *out = (kiln_const){.data = ""};
  if (!kiln_dtype_of_onnx(t->data_type, &out->dtype))
    return wrong(&m, t->data_type == 0 ? KILN_BAD_INPUT : KILN_UNSUPPORTED,
                 kiln_arena_printf(scratch,
                                   "element type must be one that Kiln has, got %s (%" PRId64 ")",
                                   kiln_onnx_type_name(t->data_type), t->data_type));
  if (!kiln_onnx_shape_elems(problems->cx, (int64_t)t->dims.n, t->dims.data,
                             kiln_dtype_bytes(out->dtype), &elems, &text))
    return wrong(&m, KILN_BAD_INPUT, text);
  if (t->dims.n > KILN_MAX_RANK)
    return wrong(
        &m, KILN_UNSUPPORTED,
        kiln_arena_printf(scratch, "rank must be at most %d, got %zu", KILN_MAX_RANK, t->dims.n));
  if (t->segment.n > 0) return wrong(&m, KILN_UNSUPPORTED, "must be stored whole, got a segment");
  out->rank = (int)t->dims.n;
  if (out->rank > 0) memcpy(out->shape, t->dims.data, sizeof(int64_t) * t->dims.n);
  out->bytes = (size_t)elems * (size_t)kiln_dtype_bytes(out->dtype);
  const int bits = kiln_dtype_bits(out->dtype);
  m.stored = bits < 8 ? (size_t)kiln_codes_packed_bytes(bits, elems) : out->bytes;
  if (!make_elements(&m, file, t, elems, out)) return false;
  unpack(problems->cx, elems, out);
  return true;
}

// --- sparse tensors ---

enum { MAX_SPARSE_BYTES = 1 << 30 }; // limit against small files that request huge tensors

static int64_t index_at(const kiln_const *indices, int64_t k) { // unaligned
  int64_t i = 0;
  memcpy(&i, (const char *)indices->data + k * 8, sizeof i);
  return i;
}

// The linear position of value |k| in the dense tensor, given its linear index or its index along
// every axis. -1: out of bounds.
static int64_t place_of(const kiln_const *indices, int64_t k, const kiln_const *dense) {
  int64_t at = 0;
  if (indices->rank == 1) at = index_at(indices, k);
  else
    for (int a = 0; a < dense->rank; a++) {
      const int64_t i = index_at(indices, k * dense->rank + a);
      if (i < 0 || i >= dense->shape[a]) return -1;
      at = at * dense->shape[a] + i;
    }
  const int64_t elems = (int64_t)(dense->bytes / (size_t)kiln_dtype_bytes(dense->dtype));
  return at >= 0 && at < elems ? at : -1;
}

static bool place_values(const making *m, const kiln_const *values, const kiln_const *indices,
                         kiln_const *out) {
  const size_t bytes = (size_t)kiln_dtype_bytes(out->dtype);
  const int64_t n = values->shape[0];
  const bool linear = indices->rank == 1 && indices->shape[0] == n;
  const bool by_axes =
      indices->rank == 2 && indices->shape[0] == n && indices->shape[1] == out->rank;
  if (indices->dtype != KILN_I64 || !(linear || by_axes))
    return wrong(m, KILN_BAD_INPUT,
                 "indices must be an i64, or one for every axis, for each value");
  char *to = kiln_arena_zalloc(&m->problems->cx->perm, out->bytes + 1);
  for (int64_t k = 0; k < n; k++) {
    const int64_t at = place_of(indices, k, out);
    if (at < 0) return wrong(m, KILN_BAD_INPUT, "indices must lie in the tensor");
    memcpy(to + (size_t)at * bytes, (const char *)values->data + (size_t)k * bytes, bytes);
  }
  out->data = to;
  return true;
}

bool kiln_onnx_sparse_make(onnx_problems *problems, kiln_onnx_file *file, const char *place,
                           const char *subject, const onnx_sparse *s, kiln_const *out) {
  making m = {problems, place, subject, 0};
  kiln_const values, indices;
  const char *text = NULL;
  int64_t elems = 0;
  *out = (kiln_const){.data = ""};
  if (!s->values || !s->indices) return wrong(&m, KILN_BAD_INPUT, "must have values and indices");
  if (!kiln_onnx_tensor_make(problems, file, place, subject, s->values, &values) ||
      !kiln_onnx_tensor_make(problems, file, place, subject, s->indices, &indices))
    return false;
  if (values.rank != 1) return wrong(&m, KILN_BAD_INPUT, "values must have one axis");
  if (!kiln_onnx_shape_elems(problems->cx, (int64_t)s->dims.n, s->dims.data,
                             kiln_dtype_bytes(values.dtype), &elems, &text))
    return wrong(&m, KILN_BAD_INPUT, text);
  out->dtype = values.dtype;
  out->rank = (int)s->dims.n;
  out->bytes = (size_t)elems * (size_t)kiln_dtype_bytes(values.dtype);
  if (s->dims.n > KILN_MAX_RANK || out->bytes > MAX_SPARSE_BYTES)
    return wrong(&m, KILN_UNSUPPORTED, "rank must be at most 8, and bytes at most 2^30");
  if (out->rank > 0) memcpy(out->shape, s->dims.data, sizeof(int64_t) * s->dims.n);
  return place_values(&m, &values, &indices, out);
}
