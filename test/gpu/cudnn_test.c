// cuDNN: convolutions, sessions that call it, and every message (rig.h).
#include "gpu/rig.h"

enum { ROUNDS = 6000, H = 5, W = 6, CIN = 3, COUT = 4 };

static void convolutions_are_what_calls_say(void **state) {
  (void)state;
  const tally t = run_random_calls("cudnn", ROUNDS, 41, random_typed_convolution);
  for (int k = 0; k < KILN_N_POSTS; k++) assert_true(!t.posts[k] == (k == KILN_POST_SCALE));
}

#define WINDOWS " window 5:5:3:1:1:1:18:9:24 window 6:6:3:1:1:1:3:3:4"
#define LAST " batch 2:90:0:120 batch 1:0:0:0 n 4:0:27:1 k 3:1:1:0" WINDOWS
#define BIAS " add 2:0:0:0:0:0:0:0:1"
#define WHOLE " add 2:0:120:0:0:0:24:4:1"
#define RELU " clip 0:7f800000"

#define FIRST                                                                                      \
  " batch 2:90:0:120 batch 1:0:0:0 n 4:0:27:30 k 3:30:9:0 window 5:5:3:1:1:1:6:3:6"                \
  " window 6:6:3:1:1:1:1:1:1"
#define WHOLE_FIRST " add 2:0:120:0:0:0:6:1:30"

static const taking behind_last[] = {
    {"", true},
    {BIAS WHOLE RELU, true},
    {WHOLE BIAS " clip 0:40c00000", true},
    {BIAS " silu 0:0" WHOLE " gelu 0:0", true},
    {" gelu_tanh 0:0 sigmoid 0:0 tanh 0:0", true},
    {" add.f16 2:0:0:0:0:0:0:0:1", false}, // not as the result is stored
    {" add 2:0:0:0:0:0:0:4:1", false},     // along columns, too
    {WHOLE_FIRST, false},
    {" clip bf800000:7f800000", false}, // from -1 on
    {" scale 40000000:0", false},
};

static const taking behind_first[] = {
    {"", true},
    {BIAS, true},
    {BIAS WHOLE_FIRST RELU, true},
    {WHOLE_FIRST BIAS, true},
    {WHOLE_FIRST, false}, // without a bias
    {RELU, false},
    {BIAS RELU WHOLE_FIRST, false},
    {BIAS BIAS, false},
    {BIAS " silu 0:0", false},
};

static const taking layouts[] = {
    {" b 1:0 c 3:0 batch 2:90:0:120 batch 1:0:0:0 n 4:0:27:1 k 3:1:9:0"
     " window 5:5:3:1:1:1:18:3:24 window 6:6:3:1:1:1:3:1:4",
     false}, // those of the weights first
    {" b 1:0 c 3:0 batch 2:90:0:150 batch 1:0:0:0 n 4:0:27:1 k 3:1:1:0"
     " window 5:5:3:1:1:1:18:9:30 window 6:6:3:1:1:1:3:3:5",
     false}, // the result is a part of something
    {" b 1:0 c 3:0 batch 2:108:0:16 batch 1:0:0:0 n 4:0:27:1 k 3:1:1:0"
     " window 2:6:3:2:1:0:18:9:8 window 2:6:3:2:1:0:3:3:4",
     true}, // rows of 6, of which 5 are read
    {" b 1:0 c 3:0 batch 2:108:0:16 batch 1:0:0:0 n 4:0:27:1 k 3:1:1:0"
     " window 2:6:3:2:1:0:18:9:8 window 2:5:3:2:1:0:3:3:4",
     false}, // with a gap behind these
    {" b 1:0 c 3:0 batch 2:126:0:16 batch 1:0:0:0 n 4:0:27:1 k 3:1:1:0"
     " window 2:6:3:2:1:0:21:9:8 window 2:7:3:2:1:0:3:3:4",
     false}, // rows of 7, which would give three results
    {" b 1:0 c 3:0 batch 2:180:0:240 batch 2:3:108:4 n 4:0:27:1 k 3:1:1:0"
     " window 5:5:3:1:1:1:36:9:48 window 6:6:3:1:1:1:6:3:8",
     true}, // two groups
    {" b 1:0 c 3:0 batch 2:180:0:240 batch 2:90:108:120 n 4:0:27:1 k 3:1:1:0"
     " window 5:5:3:1:1:1:18:9:24 window 6:6:3:1:1:1:3:3:4",
     false}, // one behind the other
    {" b.f16 1:0 c 3:0" LAST, false},
    {" b 1:0 c.bf16 3:0" LAST, false},
};

static void what_the_library_has_no_kernels_for_is_not_taken(void **state) {
  (void)state;
  const kiln_backend *b = kiln_backend_find("cudnn");
  uint64_t seed = 42;
  check_takings("cudnn", "convolution a 0:0 b 1:0 c 3:0" LAST, behind_last,
                sizeof behind_last / sizeof behind_last[0]);
  check_takings("cudnn", "convolution a 0:0 b 1:0 c 3:0" FIRST, behind_first,
                sizeof behind_first / sizeof behind_first[0]);
  check_takings("cudnn", "convolution a 0:0", layouts, sizeof layouts / sizeof layouts[0]);
  for (int i = 0; i < 20; i++) {
    const kiln_library_call c = random_product(&seed);
    assert_false(b->takes(&c));
  }
}

// --- sessions ---

static double layer(const float *x, const float *w, const float *b, int64_t i) {
  const int64_t n = i % COUT, column = i / COUT % W, row = i / COUT / W % H,
                image = i / COUT / W / H;
  double sum = (double)b[n];
  for (int64_t y = 0; y < 3; y++)
    for (int64_t z = 0; z < 3; z++) {
      const int64_t h = row + y - 1, v = column + z - 1;
      if (h < 0 || h >= H || v < 0 || v >= W) continue;
      for (int64_t c = 0; c < CIN; c++)
        sum += (double)x[((image * H + h) * W + v) * CIN + c] *
               (double)w[((n * 3 + y) * 3 + z) * CIN + c];
    }
  return fmax(sum, 0);
}

static const model convolution = {.backend = "cudnn",
                                  .call = "convolution a 0:0 b 1:0 c 3:0" LAST BIAS RELU,
                                  .x = {2, H, W, CIN},
                                  .y = {2, H, W, COUT},
                                  .n_weights = COUT * 9 * CIN,
                                  .n_bias = COUT,
                                  .at = layer};

static void sessions_call_it_and_replay_its_work(void **state) {
  (void)state;
  check_sessions_replay(&convolution);
}

static void sessions_that_profile_time_it(void **state) {
  (void)state;
  check_sessions_profile(&convolution);
}

// --- messages ---

static const wrong wrongs[] = {
    {"/nowhere/libcudnn.so", NULL, NULL, 0, false, KILN_DEVICE_ERROR,
     "/nowhere/libcudnn.so: error: library: must be installed, or KILN_CUDNN name its file"},
    {"libm.so.6", NULL, NULL, 0, false, KILN_DEVICE_ERROR,
     "libm.so.6: error: library: must have the function cudnnGetVersion"},
    {NULL, NULL, NULL, 8907, false, KILN_DEVICE_ERROR,
     "library: must be cuDNN 9 or later, got version 8907"},
    {NULL, NULL, NULL, 0, true, KILN_UNSUPPORTED,
     "cudnn: error: call: must be one that the library has a kernel for, got "
     "CUDNN_STATUS_NOT_SUPPORTED"},
    {NULL, NULL, "cublaslt", 0, false, KILN_UNSUPPORTED, "call: must be a product of matrices"},
    {NULL, "cudnnCreate", NULL, 0, false, KILN_DEVICE_ERROR,
     "cudnn: error: kernel: must be made, got CUDNN_STATUS_EXECUTION_FAILED"},
    {NULL, "cudnnBackendCreateDescriptor", NULL, 0, false, KILN_DEVICE_ERROR,
     "kernel: must be made"},
    {NULL, "cudnnBackendSetAttribute", NULL, 0, false, KILN_DEVICE_ERROR, "kernel: must be made"},
    {NULL, "cudnnBackendFinalize", NULL, 0, false, KILN_DEVICE_ERROR, "kernel: must be made"},
    {NULL, "cudnnBackendGetAttribute", NULL, 0, false, KILN_DEVICE_ERROR, "kernel: must be made"},
};

static void what_is_wrong_is_said_when_a_session_is_made(void **state) {
  (void)state;
  check_wrongs(&convolution, wrongs, sizeof wrongs / sizeof wrongs[0]);
}

static void a_convolution_that_fails_ends_the_run(void **state) {
  static const char *const functions[] = {"cudnnSetStream", "cudnnBackendCreateDescriptor",
                                          "cudnnBackendFinalize", "cudnnBackendExecute"};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    check_failing_runs(&convolution, functions[i],
                       "cudnn: error: convolution: must succeed, got CUDNN_STATUS_EXECUTION");
    reset(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(convolutions_are_what_calls_say, reset),
      cmocka_unit_test_setup(what_the_library_has_no_kernels_for_is_not_taken, reset),
      cmocka_unit_test_setup(sessions_call_it_and_replay_its_work, reset),
      cmocka_unit_test_setup(sessions_that_profile_time_it, reset),
      cmocka_unit_test_setup(what_is_wrong_is_said_when_a_session_is_made, reset),
      cmocka_unit_test_setup(a_convolution_that_fails_ends_the_run, reset),
  };
  find_stand_ins("libcudnn.so.9");
  if (!fake && !has_device("cudnn")) return 77;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
