// The simulator: results, and each breach that it reports.
#include "target/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct bench {
  kiln_ctx cx;
  kiln_diag *diag;
} bench;

static kiln_status run(bench *b, const char *text, void *const *args) {
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  kiln_loops *l = NULL;
  if (kiln_loops_parse(&b->cx, text, &l) != KILN_OK) fail_msg("%s", kiln_diag_message(b->diag, 0));
  return kiln_sim_run(&b->cx, l, args);
}

static void close(bench *b) {
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
}

static void loops_compute(void **state) {
  (void)state;
  bench b;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[2] = {0};
  void *args[] = {x, y};
  assert_int_equal(run(&b,
                       "kernel k { param f32 X[2, 3]:(3, 1) param f32 Y[2]:(1) local f32 T[3]:(1) "
                       "for i:2 parallel { alloc T { for j:3 vectorized { T[j] = X[i, j] * 2f32 } "
                       "Y[i] = 0f32 for j2:3 { if j2 != 1 { Y[i] += T[j2] } } } } }",
                       args),
                   KILN_OK);
  assert_true(y[0] == 8 && y[1] == 20);
  close(&b);
}

static void types_wrap_and_saturate(void **state) {
  (void)state;
  bench b;
  uint8_t x[3] = {200, 100, 255}, y[3] = {0};
  int8_t z[3] = {0};
  uint16_t h[3] = {0};
  void *args[] = {x, y, z, h};
  assert_int_equal(
      run(&b,
          "kernel k { param u8 X[3]:(1) param u8 Y[3]:(1) param i8 Z[3]:(1) param f16 H[3]:(1) "
          "for i:3 { Y[i] = X[i] + X[i] Z[i] = i8(f32(X[i])) H[i] = f16(X[i]) * 16f16 } }",
          args),
      KILN_OK);
  assert_true(y[0] == 144 && y[1] == 200 && y[2] == 254);
  assert_true(z[0] == 127 && z[1] == 100 && z[2] == 127);
  assert_true(h[0] == kiln_f16_of_f64(3200) && h[2] == kiln_f16_of_f64(4080));
  close(&b);
}

static const struct {
  const char *loops, *error;
} breaches[] = {
    {"kernel k { param f32 X[4]:(1) for i:5 { X[i] = 0f32 } }",
     "sim: kernel k: error: buffer X: index 0 must lie in [0, 4), got 4"},
    {"kernel k { param f32 X[4]:(1) param f32 Y[2, 2]:(2, 1) for i:4 { X[i] = Y[0, i] } }",
     "sim: kernel k: error: buffer Y: index 1 must lie in [0, 2), got 2"},
    {"kernel k { param f32 X[4]:(1) local f32 T[4]:(1) alloc T { for i:3 { T[i] = 0f32 } for j:4 { "
     "X[j] = T[j] } } }",
     "sim: kernel k: error: buffer T: element 3 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) local f32 T[1]:(1) for i:2 { alloc T { if i < 1 { T[0] = 0f32 "
     "} X[i] = T[0] } } }",
     "sim: kernel k: error: buffer T: element 0 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) workspace f32 T[4]:(1) for j:4 { X[j] = T[j] } }",
     "sim: kernel k: error: buffer T: element 0 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) for i:4 parallel { X[0] = f32(i) } }",
     "sim: kernel k: error: buffer X: race: iterations 0 and 1 of the parallel loop write element "
     "0 with different "
     "values"},
    {"kernel k { param f32 X[4]:(1) for i:3 parallel { X[i + 1] = X[i] } }",
     "sim: kernel k: error: buffer X: race: iteration 1 of the parallel loop reads element 1, "
     "which iteration 0 writes"},
    {"kernel k { param f32 X[4]:(1) for i:3 parallel { X[i] = X[i + 1] } }",
     "sim: kernel k: error: buffer X: race: iteration 1 of the parallel loop writes element 1, "
     "which another one reads"},
};

static void breaches_are_named(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(breaches); i++) {
    bench b;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    void *args[] = {x, y};
    assert_int_equal(run(&b, breaches[i].loops, args), KILN_INTERNAL);
    assert_string_equal(kiln_diag_message(b.diag, 0), breaches[i].error);
    close(&b);
  }
}

// Tiles of a shifted tail overlap; they write the same values.
static void equal_values_are_no_race(void **state) {
  (void)state;
  bench b;
  float x[5] = {0};
  void *args[] = {x};
  assert_int_equal(
      run(&b,
          "kernel k { param f32 X[5]:(1) "
          "for i:2 parallel { for j:3 { X[min(i*3, 2) + j] = f32(min(i*3, 2) + j) } } }",
          args),
      KILN_OK);
  assert_true(x[0] == 0 && x[2] == 2 && x[4] == 4);
  close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_compute),
      cmocka_unit_test(types_wrap_and_saturate),
      cmocka_unit_test(breaches_are_named),
      cmocka_unit_test(equal_values_are_no_race),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
