// Access to single elements of DLPack tensors, for tools that fill and compare them. Part of
// libkiln_rt, too.
// too.
#include "kiln/tensor.h"

#include "analysis/interpret.h"
#include "support/surroundings.h"

#include <string.h>

static kiln_dtype dtype_of(const DLTensor *t) {
  const char *text = kiln_tensor_dtype(t);
  kiln_dtype dtype = KILN_U8;
  if (text) (void)kiln_dtype_parse(text, strlen(text), &dtype);
  return dtype;
}

static unsigned char *bytes_of(const DLTensor *t) {
  return (unsigned char *)t->data + t->byte_offset;
}

// The location of element |i| of a packed tensor: its byte, bit offset and width.
typedef struct place {
  unsigned char *byte;
  int shift, mask;
} place;

static place place_of(const DLTensor *t, int bits, int64_t i) {
  const int in_byte = 8 / bits;
  return (place){bytes_of(t) + i / in_byte, (int)(i % in_byte) * bits, (1 << bits) - 1};
}

static double element(const DLTensor *tensor, int64_t i) {
  const kiln_dtype t = dtype_of(tensor);
  const int bits = kiln_dtype_bits(t);
  if (bits >= 8) return kiln_element_get(t, bytes_of(tensor), i);
  const place p = place_of(tensor, bits, i);
  return kiln_encoding_value(t, (uint8_t)(*p.byte >> p.shift & p.mask));
}

static void set_element(DLTensor *tensor, int64_t i, double value) {
  const kiln_dtype t = dtype_of(tensor);
  const int bits = kiln_dtype_bits(t);
  if (bits >= 8) {
    kiln_element_set(t, bytes_of(tensor), i, value);
    return;
  }
  const place p = place_of(tensor, bits, i);
  *p.byte =
      (unsigned char)((*p.byte & ~(p.mask << p.shift)) | kiln_encoding_of(t, value) << p.shift);
}

static bool has_elements(const DLTensor *t) { return t && t->data; }

double kiln_tensor_element(const DLTensor *tensor, int64_t i) {
  if (!has_elements(tensor)) return 0;
  const kiln_floating before = kiln_floating_begin();
  const double value = element(tensor, i);
  kiln_floating_end(before);
  return value;
}

void kiln_tensor_set_element(DLTensor *tensor, int64_t i, double value) {
  if (!has_elements(tensor)) return;
  const kiln_floating before = kiln_floating_begin();
  set_element(tensor, i, value);
  kiln_floating_end(before);
}

void kiln_tensor_unpack(const DLTensor *tensor, void *bytes) {
  if (!has_elements(tensor) || !bytes) return;
  const int bits = kiln_dtype_bits(dtype_of(tensor));
  const size_t n = kiln_tensor_bytes(tensor);
  if (bits < 8) kiln_codes_unpack(bits, kiln_tensor_count(tensor), bytes_of(tensor), bytes);
  else if (n > 0) memcpy(bytes, bytes_of(tensor), n);
}

void kiln_tensor_pack(DLTensor *tensor, const void *bytes) {
  if (!has_elements(tensor) || !bytes) return;
  const int bits = kiln_dtype_bits(dtype_of(tensor));
  const size_t n = kiln_tensor_bytes(tensor);
  if (bits < 8) kiln_codes_pack(bits, kiln_tensor_count(tensor), bytes, bytes_of(tensor));
  else if (n > 0) memcpy(bytes_of(tensor), bytes, n);
}
