// Vectors, maps, bit sets and the string builder.
#include "support/asan.h"
#include "support/bits.h"
#include "unit/fixture.h"

static void a_vector_keeps_its_elements_as_it_grows(void **state) {
  fixture *f = *state;
  KILN_VEC(int) v = {0};
  for (int i = 0; i < 100000; i++) KILN_VEC_PUSH(&f->cx.perm, &v, i * 3);
  assert_int_equal(v.n, 100000);
  for (int i = 0; i < v.n; i++) assert_int_equal(v.data[i], i * 3);
  KILN_VEC_RESERVE(&f->cx.perm, &v, 500000);
  assert_true(v.cap >= 600000);
  assert_int_equal(v.data[99999], 299997);
}

#if KILN_HAS_ASAN
// In other builds vectors have spare capacity, and their old memory may be read.
static void appending_leaves_nothing_where_it_was(void **state) {
  fixture *f = *state;
  KILN_VEC(int) v = {0};
  kiln_map m;
  kiln_map_init(&m, &f->cx.perm);
  for (int i = 0; i < 8; i++) {
    const int *element = v.data;
    const uint64_t *value = i ? kiln_map_find(&m, 0) : NULL;
    KILN_VEC_PUSH(&f->cx.perm, &v, i);
    kiln_map_put(&m, (uint64_t)i, 1);
    if (i == 0) continue;
    assert_true(__asan_address_is_poisoned(element));
    assert_true(__asan_address_is_poisoned(value));
    assert_true(__asan_address_is_poisoned(v.data + v.cap));
  }
}
#endif

static void a_map_finds_what_was_put_in_order(void **state) {
  fixture *f = *state;
  kiln_map m;
  kiln_map_init(&m, &f->cx.perm);
  assert_null(kiln_map_find(&m, 1));
  uint64_t r = 7;
  for (int i = 0; i < 50000; i++) {
    const uint64_t key =
        i % 3 ? random_next(&r) : (uint64_t)i << 32; // also keys with equal low bits
    kiln_map_put(&m, key, (uint64_t)i);
    assert_int_equal(*kiln_map_find(&m, key), i);
  }
  for (int i = 0; i < m.n; i++) {
    assert_int_equal(m.entries[i].value, i);
    assert_ptr_equal(kiln_map_find(&m, m.entries[i].key), &m.entries[i].value);
  }
  kiln_map_put(&m, m.entries[5].key, 99);
  assert_int_equal(m.n, 50000);
  assert_int_equal(m.entries[5].value, 99);
  assert_null(kiln_map_find(&m, 12345));
}

static void equal_bytes_hash_equal(void **state) {
  (void)state;
  char a[40], b[40];
  memset(a, 'x', sizeof a);
  memset(b, 'x', sizeof b);
  for (size_t n = 0; n < sizeof a; n++) {
    assert_int_equal(kiln_hash_bytes(a, n, 1), kiln_hash_bytes(b, n, 1));
    assert_int_not_equal(kiln_hash_bytes(a, n, 1), kiln_hash_bytes(b, n, 2));
    if (n > 0) assert_int_not_equal(kiln_hash_bytes(a, n, 1), kiln_hash_bytes(a, n - 1, 1));
  }
}

static void bits_are_set_cleared_and_counted(void **state) {
  fixture *f = *state;
  kiln_bits *a = kiln_bits_make(&f->cx.perm, 130);
  assert_int_equal(kiln_bits_count(a), 0);
  for (int i = 0; i < 130; i += 3) kiln_bits_set(a, i);
  assert_int_equal(kiln_bits_count(a), 44);
  for (int i = 0; i < 130; i++) assert_int_equal(kiln_bits_has(a, i), i % 3 == 0);
  kiln_bits_clear(a, 129);
  assert_false(kiln_bits_has(a, 129));
  assert_true(kiln_bits_has(a, 126));
}

static void text_grows_and_stays_terminated(void **state) {
  fixture *f = *state;
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  assert_string_equal(t.data, "");
  for (int i = 0; i < 10000; i++) kiln_text_printf(&t, "%d,", i % 10);
  assert_int_equal(t.n, 20000);
  assert_int_equal(strlen(t.data), 20000);
  kiln_text_printf(&t, "%0300d", 1);
  kiln_text_add(&t, "end");
  assert_int_equal(strlen(t.data), 20303);
  assert_string_equal(t.data + 20300, "end");
  kiln_text_add_bytes(&t, "abc", 2);
  assert_string_equal(t.data + 20303, "ab");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    FIXTURE_TEST(a_vector_keeps_its_elements_as_it_grows),
#if KILN_HAS_ASAN
    FIXTURE_TEST(appending_leaves_nothing_where_it_was),
#endif
    FIXTURE_TEST(a_map_finds_what_was_put_in_order),
    FIXTURE_TEST(equal_bytes_hash_equal),
    FIXTURE_TEST(bits_are_set_cleared_and_counted),
    FIXTURE_TEST(text_grows_and_stays_terminated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
