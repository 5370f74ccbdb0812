// SHA-256 on the examples of FIPS 180-4 (as NIST's example values give them), whole and in pieces.
#include "support/digest.h"
#include "support/checksum.h"
#include "unit/fixture.h"

static void expect(const unsigned char *got, const char *want) {
  char text[2 * KILN_DIGEST_BYTES + 1];
  for (int i = 0; i < KILN_DIGEST_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", got[i]);
  assert_string_equal(text, want);
}

static void the_standard_s_examples_come_out(void **state) {
  static const struct {
    const char *text;
    int times;
    const char *want;
  } rows[] = {
      {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    unsigned char out[KILN_DIGEST_BYTES];
    kiln_digest d;
    kiln_digest_init(&d);
    for (int i = 0; i < rows[r].times; i++) kiln_digest_add(&d, rows[r].text, strlen(rows[r].text));
    kiln_digest_end(&d, out);
    expect(out, rows[r].want);
  }
}

static void a_text_ends_where_it_ends(void **state) {
  static const char *const lists[][2] = {{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"abc", NULL}};
  unsigned char out[4][KILN_DIGEST_BYTES];
  (void)state;
  for (int i = 0; i < 4; i++) {
    kiln_digest d;
    kiln_digest_init(&d);
    for (int k = 0; k < 2; k++) kiln_digest_add_text(&d, lists[i][k]);
    kiln_digest_end(&d, out[i]);
    for (int k = 0; k < i; k++) assert_memory_not_equal(out[i], out[k], KILN_DIGEST_BYTES);
  }
}

// source: the sums that xxhsum -H64 prints
static void checksums_are_those_of_xxh64(void **state) {
  static const struct {
    const char *text;
    uint64_t sum;
  } rows[] = {{"", UINT64_C(0xef46db3751d8e999)},
              {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
              {"abc", UINT64_C(0x44bc2cf5ad770999)},
              {"Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1)}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(kiln_checksum(rows[i].text, strlen(rows[i].text)), rows[i].sum);
}

// source: RFC 4231, section 4.2 (whose key of 20 bytes is one of 32 with zeros behind it), and a
//         key of 0, 1, ... 31
static void codes_are_those_of_hmac_sha256(void **state) {
  static const unsigned char want[2][8] = {{0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53},
                                           {0x27, 0x86, 0x39, 0xec, 0x02, 0x30, 0x9d, 0x3a}};
  unsigned char key[KILN_MAC_KEY_BYTES] = {0}, out[KILN_DIGEST_BYTES];
  (void)state;
  for (int row = 0; row < 2; row++) {
    kiln_mac m;
    for (int i = 0; i < KILN_MAC_KEY_BYTES; i++)
      key[i] = (unsigned char)(row ? i : i < 20 ? 0x0b : 0);
    kiln_mac_init(&m, key);
    kiln_digest_add(&m.inner, "Hi There", 8);
    kiln_mac_end(&m, out);
    assert_memory_equal(out, want[row], sizeof want[row]);
    assert_true(kiln_mac_is_same(out, out));
    for (int i = 0; i < KILN_DIGEST_BYTES; i++) {
      unsigned char other[KILN_DIGEST_BYTES];
      memcpy(other, out, sizeof other);
      other[i] ^= 0x80;
      assert_false(kiln_mac_is_same(out, other));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(codes_are_those_of_hmac_sha256),
                                     cmocka_unit_test(checksums_are_those_of_xxh64),
                                     cmocka_unit_test(the_standard_s_examples_come_out),
                                     cmocka_unit_test(a_text_ends_where_it_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
