// cuBLASLt: products, sessions that call it, and every message (rig.h).
#include "gpu/rig.h"

enum { ROUNDS = 4000, M = 24, K = 40, N = 56 };

static void products_are_what_calls_say(void **state) {
  (void)state;
  const tally t = run_random_calls("cublaslt", ROUNDS, 31, random_typed_product);
  assert_true(t.posts[KILN_POST_SCALE] && t.posts[KILN_POST_ADD] && t.posts[KILN_POST_CLIP] &&
              t.posts[KILN_POST_GELU_TANH]);
}

static const taking takings[] = {
    // behind a product of 4 x 5 x 6
    {"", true},
    {" scale 40000000:0 add 2:0:0:0:0:0:0:0:1 clip 0:7f800000", true},
    {" add 2:0:0:0:0:0:5:0:1 add 2:0:0:0:0:0:0:0:1 gelu_tanh 0:0", true},
    {" add 2:0:0:0:0:0:0:0:1 scale 40000000:0", false},      // a factor of what was added
    {" add 2:0:0:0:0:0:1:0:0", false},                       // along m
    {" add 2:0:0:0:0:0:0:0:1 add 2:0:0:0:0:0:0:0:1", false}, // two of a kind
    {" add.f16 2:0:0:0:0:0:0:0:1", false},                   // not as the result is stored
    {" clip 0:40c00000", false},
    {" clip bf800000:7f800000", false},
    {" clip 0:7f800000 clip 0:7f800000", false},
    {" clip 0:7f800000 add 2:0:0:0:0:0:0:0:1", false},
    {" gelu 0:0", false},
    {" silu 0:0", false},
};

static const taking bf16_takings[] = {{" clip 0:7f800000", true}, {" gelu_tanh 0:0", false}};

static void what_the_library_has_no_kernels_for_is_not_taken(void **state) {
  (void)state;
  const kiln_backend *b = kiln_backend_find("cublaslt");
  uint64_t seed = 32;
  check_takings("cublaslt", "product a 0:0 b 1:0 c 3:0 m 4:6:0:5 n 5:0:1:1 k 6:1:5:0", takings,
                sizeof takings / sizeof takings[0]);
  check_takings("cublaslt",
                "product a.bf16 0:0 b.bf16 1:0 c.bf16 3:0 m 4:6:0:5 n 5:0:1:1 k 6:1:5:0",
                bf16_takings, sizeof bf16_takings / sizeof bf16_takings[0]);
  for (int i = 0; i < 20; i++) {
    const kiln_library_call c = random_convolution(&seed);
    assert_false(b->takes(&c));
  }
}

// --- sessions ---

static double layer(const float *x, const float *w, const float *b, int64_t i) {
  const int64_t m = i / N, n = i % N;
  double sum = (double)b[n];
  for (int k = 0; k < K; k++) sum += (double)x[m * K + k] * (double)w[k * N + n];
  return fmax(sum, 0);
}

static const model product = {.backend = "cublaslt",
                              .call =
                                  "product a 0:0 b 1:0 c 3:0 m 24:40:0:56 n 56:0:1:1 k 40:1:56:0 "
                                  "add 2:0:0:0:0:0:0:0:1 clip 0:7f800000",
                              .x = {1, 1, M, K},
                              .y = {1, 1, M, N},
                              .n_weights = K * N,
                              .n_bias = N,
                              .at = layer};

static void sessions_call_it_and_replay_its_work(void **state) {
  (void)state;
  check_sessions_replay(&product);
}

static void sessions_that_profile_time_it(void **state) {
  (void)state;
  check_sessions_profile(&product);
}

// --- messages ---

static const wrong wrongs[] = {
    {"/nowhere/libcublasLt.so", NULL, NULL, 0, false, KILN_DEVICE_ERROR,
     "/nowhere/libcublasLt.so: error: library: must be installed, or KILN_CUBLASLT name its file"},
    {"libm.so.6", NULL, NULL, 0, false, KILN_DEVICE_ERROR,
     "libm.so.6: error: library: must have the function cublasLtGetVersion"},
    {NULL, NULL, NULL, 111103, false, KILN_DEVICE_ERROR,
     "library: must be cuBLASLt 12 or later, got version 111103"},
    {NULL, NULL, "openblas", 0, false, KILN_UNSUPPORTED,
     "backend: must be for the target of the module, got \"openblas\""},
    {NULL, NULL, "cublas", 0, false, KILN_UNSUPPORTED,
     "backend: must be one of this runtime's, got \"cublas\""},
    {NULL, NULL, NULL, 0, true, KILN_UNSUPPORTED,
     "cublaslt: error: call: must be one that the library has a kernel for, got "
     "CUBLAS_STATUS_NOT_SUPPORTED"},
    {NULL, "cublasLtCreate", NULL, 0, false, KILN_DEVICE_ERROR,
     "cublaslt: error: kernel: must be made, got CUBLAS_STATUS_EXECUTION_FAILED"},
    {NULL, "cublasLtMatmulDescCreate", NULL, 0, false, KILN_DEVICE_ERROR, "kernel: must be made"},
    {NULL, "cublasLtMatmulDescSetAttribute", NULL, 0, false, KILN_DEVICE_ERROR,
     "kernel: must be made"},
    {NULL, "cublasLtMatrixLayoutCreate", NULL, 0, false, KILN_DEVICE_ERROR, "kernel: must be made"},
    {NULL, "cublasLtMatmulPreferenceCreate", NULL, 0, false, KILN_DEVICE_ERROR,
     "kernel: must be made"},
    {NULL, "cublasLtMatmulAlgoGetHeuristic", NULL, 0, false, KILN_DEVICE_ERROR,
     "kernel: must be made"},
};

static void what_is_wrong_is_said_when_a_session_is_made(void **state) {
  (void)state;
  check_wrongs(&product, wrongs, sizeof wrongs / sizeof wrongs[0]);
}

static void a_product_that_fails_ends_the_run(void **state) {
  (void)state;
  check_failing_runs(&product, "cublasLtMatmul",
                     "cublaslt: error: product: must succeed, got CUBLAS_STATUS_EXECUTION");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(products_are_what_calls_say, reset),
      cmocka_unit_test_setup(what_the_library_has_no_kernels_for_is_not_taken, reset),
      cmocka_unit_test_setup(sessions_call_it_and_replay_its_work, reset),
      cmocka_unit_test_setup(sessions_that_profile_time_it, reset),
      cmocka_unit_test_setup(what_is_wrong_is_said_when_a_session_is_made, reset),
      cmocka_unit_test_setup(a_product_that_fails_ends_the_run, reset),
  };
  find_stand_ins("libcublasLt.so.13");
  if (!fake && !has_device("cublaslt")) return 77;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
