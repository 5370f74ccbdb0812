// A context for every test, and the random numbers of the random tests. Include before cmocka.h.
#ifndef KILN_TEST_UNIT_FIXTURE_H
#define KILN_TEST_UNIT_FIXTURE_H

#include "support/ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
  kiln_diag *diag;
  kiln_ctx cx;
} fixture;

static inline int fixture_setup(void **state) {
  fixture *f = calloc(1, sizeof(*f));
  if (!f) return 1;
  f->diag = kiln_diag_create();
  *state = f;
  return kiln_ctx_init(&f->cx, f->diag) != KILN_OK;
}

static inline int fixture_teardown(void **state) {
  fixture *f = *state;
  kiln_ctx_deinit(&f->cx);
  kiln_diag_destroy(f->diag);
  free(f);
  return 0;
}

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

static inline uint64_t random_next(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  uint64_t x = *state;
  x ^= x >> 33;
  x *= UINT64_C(0xff51afd7ed558ccd);
  return x ^ x >> 29;
}
static inline int random_below(uint64_t *state, int n) {
  return (int)(random_next(state) % (uint64_t)n);
}

// |text| with up to four bytes changed, cut or doubled, in |out| of |room| bytes: what a parser
// must survive.
static inline void random_mutation(uint64_t *state, const char *text, char *out, size_t room) {
  size_t n = strlen(text);
  if (n >= room - 8) n = room - 8;
  memcpy(out, text, n);
  out[n] = 0;
  for (int k = random_below(state, 4); k >= 0 && n > 0; k--) {
    static const char likely[] = "(){}[]:|,=+-*/%<>!&?.\"\\#0123456789eEfixn \n";
    const size_t at = random_next(state) % n;
    const int how = random_below(state, 5);
    if (how == 0) out[at] = (char)(1 + random_below(state, 255));
    if (how == 1 || how == 2) out[at] = likely[random_below(state, (int)sizeof likely - 1)];
    if (how == 3) memmove(out + at, out + at + 1, n-- - at);
    if (how == 4) out[n = at] = 0;
  }
}

#endif
