// Library calls: text, bounds of accesses, and parts.
#include "unit/backend/calls.h"

enum { ROUNDS = 400 };

static void what_is_printed_reads_back(void **state) {
  (void)state;
  uint64_t seed = 1;
  for (int i = 0; i < ROUNDS; i++) {
    kiln_library_call c = i % 2 ? random_call(&seed) : random_typed_product(&seed);
    if (i % 3 == 0) c.workspace = (kiln_library_call_workspace){4, 1 + below(&seed, 1 << 20)};
    char text[512], again[512];
    kiln_library_call read;
    assert_true(kiln_library_call_print(&c, text, sizeof text) < sizeof text);
    assert_true(kiln_library_call_parse(text, &read));
    kiln_library_call_print(&read, again, sizeof again);
    assert_string_equal(text, again);
    assert_int_equal(read.a.type, c.a.type);
    assert_int_equal(read.c.type, c.c.type);
    assert_int_equal(read.workspace.bytes, c.workspace.bytes);
  }
}

static void no_other_text_is_a_call(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "",
      "product",
      "product ",
      "division a 0:0",
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1",                     // no k
      "product a 0:0 b 1:0 c 2:0 m 0:1:0:1 n 1:0:1:1 k 1:1:1:0",           // nothing to compute
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1",             // a stride is missing
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:-1",          // backwards
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:99999999999", // far
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0 sqrt 0:0",  // no such post
      "product a.f8 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0",        // no such type
      "product a. 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0",
      "product a 0:0 b 1:0 c 2:0 m.f16 1:1:0:1 n 1:0:1:1 k 1:1:1:0", // of an axis
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0 clip.f16 0:0",
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0 workspace 3:0",
      "product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0 window 1:1:1:1:1:0:0:0:0",
      "convolution a 0:0 b 1:0 c 2:0 batch 1:0:0:0 batch 1:0:0:0 n 1:0:1:1 k 1:1:1:0",
      // a window that lies in the padding alone
      ("convolution a 0:0 b 1:0 c 2:0 batch 1:0:0:0 batch 1:0:0:0 n 1:0:1:1 k 1:1:1:0 "
       "window 3:3:1:1:1:1:3:1:3 window 3:3:1:1:1:0:1:1:1"),
  };
  kiln_library_call c;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    if (kiln_library_call_parse(wrong[i], &c)) fail_msg("\"%s\" must not be a call", wrong[i]);
  assert_true(
      kiln_library_call_parse("product a 0:0 b 1:0 c 2:0 m 1:1:0:1 n 1:0:1:1 k 1:1:1:0", &c));
}

static void damaged_text_is_refused_or_reads_back(void **state) {
  (void)state;
  uint64_t seed = 2;
  for (int i = 0; i < 20 * ROUNDS; i++) {
    const kiln_library_call c = random_call(&seed);
    char text[512], again[1024];
    kiln_library_call read;
    const size_t n = kiln_library_call_print(&c, text, sizeof text);
    for (int k = 0; k < 3; k++) text[below(&seed, (int)n)] = " :-09f axmnk"[below(&seed, 12)];
    if (!kiln_library_call_parse(text, &read)) continue;
    assert_true(kiln_library_call_print(&read, again, sizeof again) < sizeof again);
    assert_true(kiln_library_call_parse(again, &read));
  }
}

// The bytes up to the last element of an argument, by enumeration.
static uint64_t bytes_of(const kiln_library_call *c, int arg) {
  arguments args = arguments_make(3);
  uint64_t least = 0;
  uint64_t bytes[N_ARGS] = {ARG_ELEMS * 4, ARG_ELEMS * 4, ARG_ELEMS * 4, ARG_ELEMS * 4};
  for (uint64_t step = ARG_ELEMS * 2; step >= 4; step /= 2) {
    bytes[arg] = least + step;
    if (!kiln_library_call_fits(c, N_ARGS, bytes)) least += step;
  }
  arguments_free(&args);
  return least + 4;
}

static void a_result_fits_just_what_it_is_stored_in(void **state) {
  (void)state;
  uint64_t seed = 4;
  for (int i = 0; i < ROUNDS; i++) {
    const kiln_library_call c = random_call(&seed);
    int64_t at[KILN_CALL_AXES];
    arguments args = arguments_make(5);
    double unused = 0;
    extents_of_result(&c, at);
    for (int k = 0; k < KILN_CALL_AXES; k++) at[k]--;
    const int64_t last = c.c.offset + element_of(&c, &args, at, &unused);
    assert_int_equal(bytes_of(&c, 3), (last + 1) * 4);
    assert_false(
        kiln_library_call_fits(&c, 3, (uint64_t[]){1 << 30, 1 << 30, 1 << 30})); // no such argument
    arguments_free(&args);
  }
}

static void elements_and_workspace_count_by_their_bytes(void **state) {
  (void)state;
  kiln_library_call c;
  assert_true(kiln_library_call_parse("product a.f16 0:0 b.bf16 1:0 c.tf32 2:0 m 2:2:0:2 n 2:0:1:1 "
                                      "k 2:1:2:0 add.f16 3:0:0:0:0:0:0:0:1 workspace 4:16",
                                      &c));
  uint64_t bytes[] = {8, 8, 16, 4, 16};
  assert_true(kiln_library_call_fits(&c, 5, bytes));
  for (int i = 0; i < 5; i++) {
    bytes[i]--;
    assert_false(kiln_library_call_fits(&c, 5, bytes));
    bytes[i]++;
  }
  assert_false(kiln_library_call_fits(&c, 4, bytes));
  assert_false(kiln_library_call_is_f32(&c));
}

// A matrix may have padded rows, and be column-major: one or the other.
static void matrices_are_of_rows_or_columns(void **state) {
  (void)state;
  kiln_library_call_matrix a, b, to;
  kiln_library_call c;
  assert_true(
      kiln_library_call_parse("product a 0:0 b 1:0 c 2:0 m 4:9:0:7 n 3:0:6:1 k 5:1:1:0", &c));
  assert_true(kiln_library_call_matrices(&c, &a, &b, &to));
  assert_false(a.is_turned || to.is_turned);
  assert_true(b.is_turned);
  assert_true(a.leading == 9 && b.leading == 6 && to.leading == 7);
  assert_true(
      kiln_library_call_parse("product a 0:0 b 1:0 c 2:0 m 4:9:0:7 n 3:0:6:1 k 5:2:1:0", &c));
  assert_false(kiln_library_call_matrices(&c, &a, &b, &to)); // every second element
  assert_true(
      kiln_library_call_parse("product a 0:0 b 1:0 c 2:0 m 4:3:0:7 n 3:0:6:1 k 5:1:1:0", &c));
  assert_false(kiln_library_call_matrices(&c, &a, &b, &to)); // rows in each other
  assert_true(
      kiln_library_call_parse("product a 0:0 b 1:0 c 2:0 m 4:9:0:1 n 3:0:6:4 k 5:1:1:0", &c));
  assert_false(kiln_library_call_matrices(&c, &a, &b, &to)); // a result in columns
}

static void parts_compute_all_of_the_result_once(void **state) {
  (void)state;
  uint64_t seed = 6;
  int most_parts = 0;
  for (int i = 0; i < ROUNDS; i++) {
    const kiln_library_call c = random_call(&seed);
    arguments whole = arguments_make(7), parts = arguments_make(7);
    const int n = kiln_library_call_parts(&c, 1 + (int)below(&seed, 5));
    int64_t elements = 0, all = 1, extents[KILN_CALL_AXES];
    walk_call(&c, &whole, NULL);
    for (int k = 0; k < n; k++) {
      const kiln_library_call part = kiln_library_call_part(&c, n, k);
      int64_t count = 1;
      extents_of_result(&part, extents);
      for (int x = 0; x < KILN_CALL_AXES; x++) count *= extents[x];
      elements += count;
      assert_true(count > 0);
      walk_call(&part, &parts, NULL);
    }
    extents_of_result(&c, extents);
    for (int x = 0; x < KILN_CALL_AXES; x++) all *= extents[x];
    assert_int_equal(elements, all);
    assert_memory_equal(whole.data[3], parts.data[3], ARG_ELEMS * 4);
    if (n > most_parts) most_parts = n;
    arguments_free(&whole);
    arguments_free(&parts);
  }
  assert_int_equal(most_parts, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_printed_reads_back),
      cmocka_unit_test(no_other_text_is_a_call),
      cmocka_unit_test(damaged_text_is_refused_or_reads_back),
      cmocka_unit_test(a_result_fits_just_what_it_is_stored_in),
      cmocka_unit_test(elements_and_workspace_count_by_their_bytes),
      cmocka_unit_test(matrices_are_of_rows_or_columns),
      cmocka_unit_test(parts_compute_all_of_the_result_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
