// Single elements of DLPack tensors, for tools that fill and compare them. Ships in libkiln_rt,
// too.
#include "kiln/tensor.h"

#include "analysis/interpret.h"

#include <string.h>

static kiln_dtype dtype_of(const DLTensor *t) {
  const char *text = kiln_tensor_dtype(t);
  kiln_dtype dtype = KILN_U8;
  if (text) (void)kiln_dtype_parse(text, strlen(text), &dtype);
  return dtype;
}

double kiln_tensor_element(const DLTensor *tensor, int64_t i) {
  return kiln_element_get(dtype_of(tensor), (const char *)tensor->data + tensor->byte_offset, i);
}

void kiln_tensor_set_element(DLTensor *tensor, int64_t i, double value) {
  kiln_element_set(dtype_of(tensor), (char *)tensor->data + tensor->byte_offset, i, value);
}
