// SHA-256 (FIPS 180-4), one block at a time, with the processor's SHA instructions if available.
#include "support/digest.h"

#include <string.h>

#if defined(__x86_64__) && !defined(__clang__) // clang cannot test for SHA
#define HAS_ROUNDS 1
#include <immintrin.h>
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t read_word(const unsigned char *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void schedule(const unsigned char *block, uint32_t *w) {
  for (int t = 0; t < 16; t++) w[t] = read_word(block + 4 * t);
  for (int t = 16; t < 64; t++) {
    const uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[t - 7] +
           (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
}

#ifdef HAS_ROUNDS
// source: Intel SDM 2, SHA256RNDS2: two rounds; the state is kept as (a, b, e, f) and (c, d, g, h)
__attribute__((target("sha,sse4.1"))) static void add_by_rounds(uint32_t *state,
                                                                const unsigned char *block) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]),
                cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
  __m128i x = abef, y = cdgh, w[4]; // the last 16 words of the message schedule
  uint32_t sums[8];
  for (int i = 0; i < 4; i++)
    w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 16 * i)), swap);
  for (int i = 0; i < 16; i++) {
    __m128i *now = &w[i % 4], last = w[(i + 3) % 4];
    if (i >= 4) {
      const __m128i seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) % 4]), seven_back);
      *now = _mm_sha256msg2_epu32(sum, last);
    }
    const __m128i k = _mm_add_epi32(*now, _mm_loadu_si128((const void *)(constants + 4 * i)));
    y = _mm_sha256rnds2_epu32(y, x, k);
    x = _mm_sha256rnds2_epu32(x, y, _mm_shuffle_epi32(k, 0x0e));
  }
  _mm_storeu_si128((void *)sums, _mm_add_epi32(x, abef));
  _mm_storeu_si128((void *)(sums + 4), _mm_add_epi32(y, cdgh));
  const uint32_t all[8] = {sums[3], sums[2], sums[7], sums[6], sums[1], sums[0], sums[5], sums[4]};
  memcpy(state, all, sizeof all);
}
#endif

static void add_block(uint32_t *state, const unsigned char *block) {
#ifdef HAS_ROUNDS
  if (__builtin_cpu_supports("sha") && __builtin_cpu_supports("sse4.1")) {
    add_by_rounds(state, block);
    return;
  }
#endif
  uint32_t w[64], s[8]; // a to h
  schedule(block, w);
  memcpy(s, state, sizeof s);
  for (int t = 0; t < 64; t++) {
    const uint32_t e = s[4], a = s[0];
    const uint32_t one = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                         ((e & s[5]) ^ (~e & s[6])) + constants[t] + w[t];
    const uint32_t two =
        (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += one;
    s[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void kiln_digest_init(kiln_digest *d) {
  *d = (kiln_digest){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void kiln_digest_add(kiln_digest *d, const void *bytes, size_t n) {
  const unsigned char *from = bytes;
  while (n > 0) {
    const size_t at = d->n_bytes % 64, k = n < 64 - at ? n : 64 - at;
    memcpy(d->block + at, from, k);
    d->n_bytes += k;
    from += k;
    n -= k;
    if (at + k == 64) add_block(d->state, d->block);
  }
}

void kiln_digest_add_int(kiln_digest *d, int64_t value) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
  kiln_digest_add(d, bytes, sizeof bytes);
}

void kiln_digest_add_text(kiln_digest *d, const char *text) {
  const size_t n = text ? strlen(text) : 0;
  kiln_digest_add_int(d, text ? (int64_t)n : -1);
  if (text) kiln_digest_add(d, text, n);
}

void kiln_digest_end(kiln_digest *d, unsigned char out[KILN_DIGEST_BYTES]) {
  static const unsigned char pad[64] = {0x80};
  unsigned char bits[8];
  const uint64_t n_bits = d->n_bytes * 8;
  for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(n_bits >> (56 - 8 * i));
  kiln_digest_add(d, pad, 1 + (119 - d->n_bytes % 64) % 64);
  kiln_digest_add(d, bits, sizeof bits);
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 4; k++) out[4 * i + k] = (unsigned char)(d->state[i] >> (24 - 8 * k));
}

void kiln_mac_init(kiln_mac *m, const unsigned char key[KILN_MAC_KEY_BYTES]) {
  unsigned char inner[64];
  for (int i = 0; i < 64; i++) {
    const unsigned char k = i < KILN_MAC_KEY_BYTES ? key[i] : 0;
    inner[i] = k ^ 0x36;
    m->outer[i] = k ^ 0x5c;
  }
  kiln_digest_init(&m->inner);
  kiln_digest_add(&m->inner, inner, sizeof inner);
}

void kiln_mac_end(kiln_mac *m, unsigned char out[KILN_DIGEST_BYTES]) {
  kiln_digest outer;
  kiln_digest_end(&m->inner, out);
  kiln_digest_init(&outer);
  kiln_digest_add(&outer, m->outer, sizeof m->outer);
  kiln_digest_add(&outer, out, KILN_DIGEST_BYTES);
  kiln_digest_end(&outer, out);
}

bool kiln_mac_is_same(const unsigned char a[KILN_DIGEST_BYTES],
                      const unsigned char b[KILN_DIGEST_BYTES]) {
  unsigned differ = 0;
  for (int i = 0; i < KILN_DIGEST_BYTES; i++) differ |= a[i] ^ b[i];
  return differ == 0;
}
