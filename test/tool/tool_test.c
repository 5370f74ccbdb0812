// The parts of the command: NumPy's files, comparison, statistics.
#include "../../tools/kiln/kiln.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_near(double got, double want, double most) {
  if (!(got - want <= most && want - got <= most)) fail_msg("must be %g, got %g", want, got);
}

static tensor *make(const char *dtype, int32_t rank, const int64_t *shape) {
  tensor *t = kiln_tensor_create(dtype, rank, shape, NULL);
  assert_non_null(t);
  return t;
}

static void npy_files_read_back_as_they_were_written(void **state) {
  static const char *const dtypes[] = {"f64", "f32", "f16", "i8",  "i16", "i32",
                                       "i64", "u8",  "u16", "u32", "u64", "bool"};
  static const int64_t shape[] = {3, 1, 2, 5};
  (void)state;
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
    for (int32_t rank = 0; rank <= 4; rank++) {
      tensor *t = make(dtypes[d], rank, shape);
      size_t bytes;
      uint64_t seed = 7;
      difference same;
      char why[256];
      tensor_fill(&t->dl_tensor, "random", &seed);
      void *data = npy_format(&t->dl_tensor, &bytes);
      tensor *back = npy_parse(data, bytes, "back");
      assert_non_null(back);
      assert_true(tensor_compare(&back->dl_tensor, &t->dl_tensor, 0, 0, &same, why));
      kiln_tensor_destroy(back);
      for (size_t n = 0; n < bytes; n++) { // no cut is read, and none is read past
        void *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, data, n);
        assert_null(npy_parse(cut, n, "cut"));
        free(cut);
      }
      free(data);
      kiln_tensor_destroy(t);
    }
}

// bf16 as its 16 bits, codes as a byte each; a u8 stays one where it is asked for.
static void npy_files_hold_the_bits_of_what_numpy_lacks(void **state) {
  static const char *const dtypes[] = {"bf16",  "f8e4m3fn", "f8e8m0", "int4",
                                       "uint4", "int2",     "uint2",  "f4e2m1"};
  static const int64_t shape[] = {3, 3};
  (void)state;
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    tensor *t = make(dtypes[d], 2, shape);
    size_t bytes;
    difference same;
    char why[256];
    tensor_fill(&t->dl_tensor, "arange", &(uint64_t){0});
    void *data = npy_format(&t->dl_tensor, &bytes);
    tensor *back = npy_parse(data, bytes, "back");
    assert_non_null(back);
    assert_string_equal(kiln_tensor_dtype(&back->dl_tensor), d == 0 ? "u16" : "u8");
    tensor_name_bits(&back, d == 0 ? "u16" : "u8");
    tensor_name_bits(&back, "f32");
    assert_string_equal(kiln_tensor_dtype(&back->dl_tensor), d == 0 ? "u16" : "u8");
    tensor_name_bits(&back, dtypes[d]);
    assert_true(tensor_compare(&back->dl_tensor, &t->dl_tensor, 0, 0, &same, why));
    free(data);
    kiln_tensor_destroy(back);
    kiln_tensor_destroy(t);
  }
}

static tensor *parse_header(int version, const char *header, const void *elements, size_t bytes) {
  char file[512] = "\x93NUMPY";
  size_t n = strlen(header), start = version == 1 ? 10 : 12;
  file[6] = (char)version;
  file[8] = (char)n;
  memcpy(file + start, header, n);
  memcpy(file + start + n, elements, bytes);
  return npy_parse(file, start + n + bytes, "header");
}

static void npy_headers_are_read_in_all_their_forms(void **state) {
  static const float elements[] = {1, 2, 3, 4, 5, 6};
  static const struct {
    int version;
    const char *header;
    bool right;
    double second; // element 1 in C order
  } cases[] = {
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", true, 2},
      {1, "{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}", true, 3},
      {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", true, 2},
      {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 2L)}", true, 2},
      {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", false, 0},
      {1, "{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", false, 0},
      {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", false, 0},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}", false, 0},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}", false, 0},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}", false, 0},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}", false, 0},
      {1, "{'descr': '<f4', 'fortran_order': False}", false, 0},
      {1, "{'fortran_order': False, 'shape': (6,)}", false, 0},
      {1, "", false, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tensor *t = parse_header(cases[i].version, cases[i].header, elements, sizeof elements);
    if (!t != !cases[i].right) fail_msg("row %zu: %s", i, cases[i].header);
    if (t) expect_near(kiln_tensor_element(&t->dl_tensor, 1), cases[i].second, 0);
    kiln_tensor_destroy(t);
  }
}

static void npz_archives_hold_tensors_by_name(void **state) {
  static const int64_t shape[] = {4};
  static const char *const names[] = {"x", "layer/y:0"};
  char path[] = "tool_test_XXXXXX";
  tensor *both[] = {make("f32", 1, shape), make("i64", 1, shape)};
  bool failed = false;
  (void)state;
  kiln_tensor_set_element(&both[1]->dl_tensor, 3, 42);
  close(mkstemp(path));
  assert_true(npz_write(path, 2, names, both));
  npz *z = npz_open(path);
  assert_non_null(z);
  assert_int_equal(npz_count(z), 2);
  char *name = npz_name(z, 1);
  assert_string_equal(name, "layer/y:0");
  free(name);
  assert_null(npz_name(z, 2));
  assert_null(npz_find(z, "absent", 1 << 20, &failed));
  assert_false(failed);
  tensor *y = npz_find(z, "layer/y:0", 4 * 8, &failed);
  assert_non_null(y);
  assert_string_equal(kiln_tensor_dtype(&y->dl_tensor), "i64");
  expect_near(kiln_tensor_element(&y->dl_tensor, 3), 42, 0);
  kiln_tensor_destroy(y);
  npz_close(z);
  unlink(path);
  for (int i = 0; i < 2; i++) kiln_tensor_destroy(both[i]);
}

// Names that are alike up to 600 characters are names of their own.
static void names_of_any_length_are_told_apart_in_archives(void **state) {
  static const int64_t shape[] = {1};
  char path[] = "tool_test_XXXXXX", long_names[2][700];
  const char *const names[] = {long_names[0], long_names[1]};
  tensor *both[] = {make("f32", 1, shape), make("f32", 1, shape)};
  (void)state;
  for (int i = 0; i < 2; i++) {
    memset(long_names[i], 'a', sizeof long_names[i]);
    snprintf(long_names[i] + 600, 100, "%d", i);
    kiln_tensor_set_element(&both[i]->dl_tensor, 0, i);
  }
  close(mkstemp(path));
  assert_true(npz_write(path, 2, names, both));
  npz *z = npz_open(path);
  assert_non_null(z);
  assert_int_equal(npz_count(z), 2);
  for (int i = 0; i < 2; i++) {
    bool failed = false;
    tensor *t = npz_find(z, names[i], 8, &failed);
    assert_non_null(t);
    expect_near(kiln_tensor_element(&t->dl_tensor, 0), i, 0);
    kiln_tensor_destroy(t);
    kiln_tensor_destroy(both[i]);
  }
  npz_close(z);
  unlink(path);
}

// Any byte of the elements that is another is found, and nothing larger than asked for is unpacked.
static void damaged_and_too_large_entries_are_refused(void **state) {
  enum { ELEMENTS = 20000 };
  static const int64_t shape[] = {ELEMENTS};
  static const char *const names[] = {"x"};
  char path[] = "tool_test_XXXXXX";
  tensor *x = make("f64", 1, shape);
  bool failed = false;
  (void)state;
  close(mkstemp(path));
  assert_true(npz_write(path, 1, names, &x));
  for (int at = 200; at < 8 * ELEMENTS; at += 15991) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    fputc(1, f); // of 0
    fclose(f);
    npz *z = npz_open(path);
    assert_non_null(z);
    assert_null(npz_find(z, "x", 8 * ELEMENTS, &failed));
    assert_true(failed);
    npz_close(z);
    f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    fputc(0, f);
    fclose(f);
  }
  npz *z = npz_open(path);
  assert_non_null(z);
  assert_null(npz_find(z, "x", ELEMENTS, &failed));
  assert_true(failed);
  tensor *whole = npz_find(z, "x", 8 * ELEMENTS, &failed);
  assert_non_null(whole);
  kiln_tensor_destroy(whole);
  npz_close(z);
  kiln_tensor_destroy(x);
  unlink(path);
}

static void values_are_found_by_their_whole_name(void **state) {
  const values v = {.n = 3, .at = {"ab=1", "a=2", "a=b=3"}};
  (void)state;
  assert_string_equal(values_find(&v, "a"), "2");
  assert_string_equal(values_find(&v, "ab"), "1");
  assert_string_equal(values_find(&v, "a=b"), "3");
  assert_null(values_find(&v, "b"));
}

static void comparison_follows_both_tolerances(void **state) {
  static const struct {
    double got, want, rtol, atol;
    bool same;
  } cases[] = {
      {1, 1, 0, 0, true},
      {1.001, 1, 1e-2, 0, true},
      {1.1, 1, 1e-2, 0, false},
      {0.05, 0, 1, 0.1, true},
      {0.2, 0, 1, 0.1, false},
      {__builtin_nan(""), 1, 9, 9, false},
      {1, __builtin_nan(""), 9, 9, false},
      {__builtin_nan(""), __builtin_nan(""), 0, 0, true},
      {__builtin_inf(), __builtin_inf(), 0, 0, true},
      {__builtin_inf(), 1, 1e-3, 1e-3, false},
      {-__builtin_inf(), __builtin_inf(), 1e-3, 1e-3, false},
  };
  static const int64_t one[] = {1}, two[] = {2};
  difference d;
  char why[256];
  (void)state;
  tensor *a = make("f64", 1, one), *b = make("f64", 1, one), *c = make("f64", 1, two);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    kiln_tensor_set_element(&a->dl_tensor, 0, cases[i].got);
    kiln_tensor_set_element(&b->dl_tensor, 0, cases[i].want);
    if (tensor_compare(&a->dl_tensor, &b->dl_tensor, cases[i].rtol, cases[i].atol, &d, why) !=
        cases[i].same)
      fail_msg("row %zu: got %g, want %g", i, cases[i].got, cases[i].want);
  }
  assert_false(tensor_compare(&a->dl_tensor, &c->dl_tensor, 9, 9, &d, why));
  assert_string_equal(why, "type must be f64[2], got f64[1]");
  kiln_tensor_destroy(a);
  kiln_tensor_destroy(b);
  kiln_tensor_destroy(c);
}

static void statistics_are_those_of_the_sorted_times(void **state) {
  double ms[100], odd[] = {3, 1, 2};
  (void)state;
  for (int i = 0; i < 100; i++) ms[i] = 100 - i;
  stats s = stats_of(ms, 100);
  expect_near(s.min, 1, 0);
  expect_near(s.median, 50.5, 0);
  expect_near(s.mean, 50.5, 1e-9);
  expect_near(s.p90, 90, 1);
  expect_near(s.p99, 99, 1);
  expect_near(stats_of(odd, 3).median, 2, 0);
  expect_near(stats_of(NULL, 0).mean, 0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(npy_files_read_back_as_they_were_written),
      cmocka_unit_test(npy_files_hold_the_bits_of_what_numpy_lacks),
      cmocka_unit_test(npy_headers_are_read_in_all_their_forms),
      cmocka_unit_test(npz_archives_hold_tensors_by_name),
      cmocka_unit_test(names_of_any_length_are_told_apart_in_archives),
      cmocka_unit_test(damaged_and_too_large_entries_are_refused),
      cmocka_unit_test(values_are_found_by_their_whole_name),
      cmocka_unit_test(comparison_follows_both_tolerances),
      cmocka_unit_test(statistics_are_those_of_the_sorted_times),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
