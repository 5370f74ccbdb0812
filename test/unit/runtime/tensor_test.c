// Tensors of the interface: creation, description, refusals.
#include "runtime/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct {
  const char *dtype;
  int32_t rank;
  int64_t shape[3];
  int64_t count;
  size_t bytes;
} good[] = {
    {"f32", 2, {3, 5}, 15, 60}, {"f64", 0, {0}, 1, 8},      {"f16", 1, {7}, 7, 14},
    {"bf16", 1, {7}, 7, 14},    {"i8", 3, {2, 0, 9}, 0, 0}, {"i16", 1, {1}, 1, 2},
    {"i32", 1, {2}, 2, 8},      {"i64", 1, {2}, 2, 16},     {"u8", 1, {2}, 2, 2},
    {"u16", 1, {2}, 2, 4},      {"u32", 1, {2}, 2, 8},      {"u64", 1, {2}, 2, 16},
    {"bool", 1, {3}, 3, 3},     {"f8e4m3fn", 1, {5}, 5, 5}, {"int4", 2, {3, 3}, 9, 5},
    {"uint2", 1, {9}, 9, 3},    {"f4e2m1", 0, {0}, 1, 1},
};

static void tensors_are_zeroed_aligned_and_described(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof good / sizeof good[0]; row++) {
    kiln_diag *diag = kiln_diag_create();
    DLManagedTensorVersioned *t =
        kiln_tensor_create(good[row].dtype, good[row].rank, good[row].shape, diag);
    assert_non_null(t);
    assert_string_equal(kiln_tensor_dtype(&t->dl_tensor), good[row].dtype);
    assert_int_equal(kiln_tensor_count(&t->dl_tensor), good[row].count);
    assert_int_equal(kiln_tensor_bytes(&t->dl_tensor), good[row].bytes);
    assert_int_equal((uintptr_t)t->dl_tensor.data % 64, 0);
    for (size_t i = 0; i < good[row].bytes; i++)
      assert_int_equal(((unsigned char *)t->dl_tensor.data)[i], 0);
    kiln_tensor_destroy(t);
    kiln_diag_destroy(diag);
  }
  kiln_tensor_destroy(NULL);
}

static const struct {
  const char *dtype;
  int32_t rank;
  int64_t shape[3];
  const char *message;
} bad[] = {
    {"float", 1, {1}, "tensor: error: dtype must be one of"},
    {NULL, 1, {1}, "got '(null)'"},
    {"f32", -1, {1}, "rank must be 0 to 64, got -1"},
    {"f32", 2, {3, -5}, "got [3, ?]"},
    {"f32", 3, {INT64_MAX, INT64_MAX, 2}, "below 2^62"},
    {"f32", 1, {INT64_C(1) << 59}, "none left"},
};

static void bad_types_and_shapes_are_refused(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof bad / sizeof bad[0]; row++) {
    kiln_diag *diag = kiln_diag_create();
    assert_null(kiln_tensor_create(bad[row].dtype, bad[row].rank, bad[row].shape, diag));
    assert_int_equal(kiln_diag_count(diag), 1);
    if (!strstr(kiln_diag_message(diag, 0), bad[row].message))
      fail_msg("row %zu: %s", row, kiln_diag_message(diag, 0));
    kiln_diag_destroy(diag);
  }
}

static void strides_of_single_elements_do_not_matter(void **state) {
  (void)state;
  int64_t shape[] = {1, 3, 1, 2}, strides[] = {77, 2, 5, 1}, wrong[] = {77, 3, 5, 1};
  DLTensor t = {.ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
  assert_true(kiln_is_row_major(&t));
  t.strides = wrong;
  assert_false(kiln_is_row_major(&t));
  shape[1] = 0;
  assert_true(kiln_is_row_major(&t));
}

#if defined(__SANITIZE_ADDRESS__)
// Lets the sanitizer's allocator return NULL, as the C library's does.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_are_zeroed_aligned_and_described),
      cmocka_unit_test(bad_types_and_shapes_are_refused),
      cmocka_unit_test(strides_of_single_elements_do_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
