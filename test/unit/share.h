// How much a suite runs of many cases that are alike: one in six, so that it ends in minutes; all
// of them where KILN_TEST_SHARE is 1 (make test-all), one in so many where it is another number
// (four in .ci/run).
#ifndef KILN_TEST_UNIT_SHARE_H
#define KILN_TEST_UNIT_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// What the environment says of |name| (KILN_SEED, KILN_CASES), or |otherwise|.
static inline uint64_t test_asked(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

static inline uint64_t test_share(void) {
  enum { SHARE = 6 };
  const uint64_t given = test_asked("KILN_TEST_SHARE", SHARE);
  return given ? given : 1;
}

// Whether case |i| is run: the first is, and of the others those that a hash takes, whatever order
// they have.
static inline bool test_takes(uint64_t i) {
  uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15);
  x ^= x >> 32;
  x = (x * UINT64_C(0xff51afd7ed558ccd)) >> 33;
  return i == 0 || x % test_share() == 0;
}

// How many of |n| random cases are run.
static inline int test_some(int n) {
  const int share = (int)test_share();
  return (n + share - 1) / share;
}

#endif
