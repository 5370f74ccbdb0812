// The predicted time of execution units, for loops that can be counted by hand: the fourth root of
// the sum of the fourth powers of the times for arithmetic, loads and stores.
#include "price/work.h"
#include "unit/loops.h"

#include <math.h>

// Vectors of 16 elements.
static const kiln_work_units units = {.vector_bytes = 64,
                                      .n_registers = 32,
                                      .multiply_ns = 1,
                                      .any_ns = 0.5,
                                      .load_ns = 1,
                                      .part_ns = 0.5,
                                      .store_ns = 2,
                                      .latency_ns = 4,
                                      .n_misses = 4,
                                      .miss_ns = 10};

static double time_with(const char *text, int n_threads, const double *missed) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  const double ns = kiln_tile_work(&cx, loops_parse(&cx, text), &units, n_threads, missed);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return ns;
}

static double time_of(const char *text, int n_threads) { return time_with(text, n_threads, NULL); }

static const struct {
  const char *loops;
  int n_threads;
  double ns;
} known[] = {
    // 16 FMAs beside two vectors and eight elements, a thousand times
    {"kernel k { param f32 A[8000]:(1) param f32 B[32000]:(1) register f32 T[8, 32]:(32, 1) "
     "alloc T { for k:1000 { for i:8 unrolled { for j:32 vectorized { "
     "T[i, j] += A[k*8 + i]*B[k*32 + j] } } } } }",
     1, 16000},
    // dependent sums
    {"kernel k { param f32 A[1000]:(1) param f32 B[16000]:(1) register f32 T[16]:(1) "
     "alloc T { for k:1000 { for j:16 vectorized { T[j] += A[k]*B[k*16 + j] } } } }",
     1, 4000},
    // one store a vector; invariant loads are outside of the loop
    {"kernel k { param f32 X[16000]:(1) param f32 B[16]:(1) param f32 Y[16000]:(1) "
     "for k:1000 { for j:16 vectorized { Y[k*16 + j] = X[k*16 + j] + B[j] } } }",
     1, 2033},
    // element by element
    {"kernel k { param f32 X[16000]:(1) param f32 Y[16000]:(1) "
     "for k:1000 { for j:16 vectorized { Y[k*16 + j] = X[j*1000 + k] } } }",
     1, 16000},
    // half of the time
    {"kernel k { param f32 X[16000]:(1) param f32 Y[16000]:(1) "
     "for k:1000 { if k < 500 { for j:16 vectorized { Y[k*16 + j] = X[k*16 + j] } } } }",
     1, 1016},
    // a condition around loops counts once, however many they are
    {"kernel k { param f32 X[480000]:(1) param f32 Y[480000]:(1) "
     "for k:10 { if k < 5 { for q:30 { for r:100 { for j:16 vectorized { "
     "Y[k*48000 + q*1600 + r*16 + j] = X[k*48000 + q*1600 + r*16 + j] } } } } } }",
     1, 30457},
    // sums that do not fit the registers are loaded and stored in each step, all of them: 40 of
    // each, and five vectors and eight elements more
    {"kernel k { param f32 A[8000]:(1) param f32 B[80000]:(1) register f32 T[8, 80]:(80, 1) "
     "alloc T { for k:1000 { for i:8 unrolled { for j:80 vectorized { "
     "T[i, j] += A[k*8 + i]*B[k*80 + j] } } } } }",
     1, 83790},
    // one of the two threads has two of the three iterations
    {"kernel k { param f32 X[4800]:(1) param f32 Y[4800]:(1) for k:3 parallel { for r:100 { "
     "for j:16 vectorized { Y[k*1600 + r*16 + j] = X[k*1600 + r*16 + j] } } } }",
     2, 406},
};

static void loops_take_what_their_instructions_take(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(known); i++) {
    const double ns = time_of(known[i].loops, known[i].n_threads);
    if (fabs(ns - known[i].ns) > 0.01 * known[i].ns)
      fail_msg("%s: %g ns, not %g", known[i].loops, ns, known[i].ns);
  }
}

// Eight vectors are stored behind each of ten sums.
static const char *const bursts =
    "kernel k { param f32 A[1000]:(1) param f32 Y[1280]:(1) register f32 T[16]:(1) for r:10 { "
    "alloc T { for k:100 { for j:16 vectorized { T[j] += A[k*10 + r] } } "
    "for i:8 unrolled { for j:16 vectorized { Y[r*128 + i*16 + j] = T[j] } } } } }";

static void bursts_wait_for_all_rounds_of_misses_but_the_first(void **state) {
  (void)state;
  const double none[] = {0, 0, 0}, half[] = {0, 40, 0}, all[] = {0, 80, 0}, inner[] = {1000, 0, 0};
  const double ns = time_of(bursts, 1);
  assert_float_equal(time_with(bursts, 1, none), ns, 1e-6);
  assert_float_equal(time_with(bursts, 1, half), ns, 1e-6);
  assert_float_equal(time_with(bursts, 1, all), ns + 100, 1e-6);
  assert_float_equal(time_with(bursts, 1, inner), ns, 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_take_what_their_instructions_take),
      cmocka_unit_test(bursts_wait_for_all_rounds_of_misses_but_the_first)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
