// How much a suite runs of many cases that are alike: one in four, so that it ends in minutes; all of them where
// KILN_TEST_SHARE is 1 (make test-all), one in so many where it is another number.
#ifndef KILN_TEST_UNIT_SHARE_H
#define KILN_TEST_UNIT_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t test_share(void) {
  enum { SHARE = 4 };
  const char *text = getenv("KILN_TEST_SHARE");
  const uint64_t given = text ? strtoull(text, NULL, 10) : SHARE;
  return given ? given : 1;
}

// Whether case |i| is run: the first is, and of the others those that a hash takes, whatever order they have.
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
