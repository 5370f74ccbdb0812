// cuBLASLt, the real one or a stand-in: what its kernels compute, beside plain loops, in streams and in graphs; sessions
// that call it; and every message.
//
// ctest runs it twice: on the stand-ins (fake_cuda.c, fake_cublaslt.c), which also count what is left behind, and on the
// GPU and library of this machine, where it skips itself without them.
#include "gpu/fake_cublaslt.h"
#include "gpu/fake_cuda.h"
#include "runtime/gpu.h"
#include "runtime/module.h"
#include "unit/backend/calls.h"

#include <dlfcn.h>

enum { ROUNDS = 4000, MOST_WORKSPACE = (32 << 20) + 256, M = 24, K = 40, N = 56 };

static fake_cuda *fake; // NULL: a GPU
static fake_cublaslt *fake_library;

static int reset(void **state) {
  (void)state;
  if (!fake) return 0;
  assert_int_equal(fake->live, 0); // whatever a test did, nothing is left
  assert_int_equal(fake_library->live, 0);
  *fake = (fake_cuda){
      .n_devices = 1, .major = 9, .memory_bytes = 64 << 20, .fail_launch = -1, .version = 13000};
  *fake_library = (fake_cublaslt){.version = 130100};
  return 0;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_count(diag) ? kiln_diag_message(diag, 0) : "?");
}

// --- kernels ---

typedef struct device {
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  kiln_library library;
  char *args[N_ARGS + 1]; // the last is the workspace
  kiln_diag *diag;
} device;

static void open_device(device *d) {
  *d = (device){.diag = kiln_diag_create()};
  must(kiln_cuda_api.open(0, d->diag, &d->gpu), d->diag);
  must(kiln_cuda_api.stream(d->gpu, d->diag, &d->stream), d->diag);
  must(kiln_library_open(kiln_backend_find("cublaslt"), d->diag, &d->library), d->diag);
  for (int i = 0; i <= N_ARGS; i++)
    must(kiln_cuda_api.allocate(d->gpu, i == N_ARGS ? MOST_WORKSPACE : ARG_ELEMS * sizeof(float),
                                "argument", d->diag, &d->args[i]),
         d->diag);
}

static void close_device(device *d) {
  for (int i = 0; i <= N_ARGS; i++) kiln_cuda_api.free(d->gpu, d->args[i]);
  must(kiln_gpu_enter(d->gpu, d->diag), d->diag);
  kiln_library_close(&d->library);
  kiln_cuda_api.leave(d->gpu);
  kiln_cuda_api.end_stream(d->gpu, d->stream);
  kiln_cuda_api.close(d->gpu);
  kiln_diag_destroy(d->diag);
}

static void copy_arg(const device *d, const arguments *a, int arg, bool back) {
  char *here = a->bytes[arg], *there = d->args[arg];
  must(kiln_cuda_api.copy(d->gpu, d->stream, back ? here : there, back ? there : here,
                          ARG_ELEMS * sizeof(float), d->diag),
       d->diag);
  must(kiln_cuda_api.wait(d->gpu, d->stream, d->diag), d->diag);
}

static void put_kernel(const device *d, const kiln_bound *b) {
  must(kiln_gpu_put_bound(d->gpu, d->stream, b, d->args, d->diag), d->diag);
}

// At once, or as a graph: the result must be the same, from what there was before on.
static void run_kernel(const device *d, const kiln_bound *b, bool as_graph) {
  kiln_gpu_graph *graph = NULL;
  if (as_graph) must(kiln_cuda_api.capture(d->gpu, d->stream, d->diag), d->diag);
  put_kernel(d, b);
  if (!as_graph) return;
  must(kiln_cuda_api.end_capture(d->gpu, d->stream, true, d->diag, &graph), d->diag);
  must(kiln_cuda_api.replay(d->gpu, d->stream, graph, d->diag), d->diag);
  must(kiln_cuda_api.wait(d->gpu, d->stream, d->diag), d->diag);
  kiln_cuda_api.end_graph(d->gpu, graph);
}

static void must_be_right(const kiln_call *c, const arguments *args) {
  char text[512];
  const int64_t wrong = walk_call(c, args, true);
  kiln_call_print(c, text, sizeof text);
  if (wrong) fail_msg("%d elements are wrong: %s", (int)wrong, text);
}

// gives: whether the library has a kernel
static bool try_call(const device *d, const kiln_call *c) {
  char *none[N_ARGS + 1] = {0};
  kiln_bound bound;
  must(kiln_gpu_enter(d->gpu, d->diag), d->diag);
  const kiln_status st = kiln_bound_create(&d->library, c, 1, none, NULL, &bound);
  kiln_cuda_api.leave(d->gpu);
  if (st != KILN_OK) assert_int_equal(st, KILN_UNSUPPORTED);
  for (int run = 0; run < 2 && st == KILN_OK; run++) {
    arguments args = arguments_make(11);
    arguments_store(&args, c);
    for (int i = 0; i < N_ARGS; i++) copy_arg(d, &args, i, false);
    run_kernel(d, &bound, run);
    copy_arg(d, &args, 3, true);
    must_be_right(c, &args);
    arguments_free(&args);
  }
  kiln_gpu_bound_deinit(d->gpu, &bound);
  return st == KILN_OK;
}

static void products_are_what_calls_say(void **state) {
  (void)state;
  device d;
  uint64_t seed = 31;
  int taken = 0, run[KILN_N_CALL_TYPES] = {0}, posts[KILN_N_POSTS] = {0};
  open_device(&d);
  for (int i = 0; i < ROUNDS; i++) {
    kiln_call c = random_typed_product(&seed);
    if (!d.library.backend->takes(&c)) continue;
    c.workspace = (kiln_call_workspace){N_ARGS, d.library.backend->workspace(&c)};
    assert_true(c.workspace.bytes <= MOST_WORKSPACE);
    taken++;
    if (!try_call(&d, &c)) continue;
    run[c.a.type]++;
    for (int k = 0; k < c.n_posts; k++) posts[c.posts[k].kind]++;
  }
  print_message("products: %d taken, run %d f32, %d tf32, %d f16, %d bf16\n", taken, run[0], run[1],
                run[2], run[3]);
  for (int t = 0; t < KILN_N_CALL_TYPES; t++) assert_true(run[t] > ROUNDS / 100);
  assert_true(posts[KILN_POST_SCALE] && posts[KILN_POST_ADD] && posts[KILN_POST_CLIP] &&
              posts[KILN_POST_GELU_TANH]);
  close_device(&d);
}

static const struct {
  const char *behind; // a product of 4 x 5 x 6
  bool is_taken;
} takings[] = {
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

static void what_the_library_has_no_kernels_for_is_not_taken(void **state) {
  (void)state;
  const kiln_backend *b = kiln_backend_find("cublaslt");
  uint64_t seed = 32;
  for (size_t i = 0; i < sizeof takings / sizeof takings[0]; i++) {
    char text[256];
    kiln_call c;
    snprintf(text, sizeof text, "product a 0:0 b 1:0 c 3:0 m 4:6:0:5 n 5:0:1:1 k 6:1:5:0%s",
             takings[i].behind);
    assert_true(kiln_call_parse(text, &c));
    if (b->takes(&c) != takings[i].is_taken) fail_msg("%s", text);
  }
  for (int i = 0; i < 20; i++) {
    const kiln_call c = random_convolution(&seed);
    assert_false(b->takes(&c));
  }
}

// --- sessions: y = max(x w + b, 0) ---

static float weights[K * N + 64 + N] __attribute__((aligned(64)));
enum { BIAS = (K * N * 4 + 63) / 64 * 64 };

static kiln_module *make_module(const char *backend, kiln_diag *diag) {
  const kiln_type *f32 = kiln_type_find("f32");
  const uint64_t workspace = 1 << 20;
  char text[256];
  snprintf(text, sizeof text,
           "product a 0:0 b 1:0 c 3:0 m %d:%d:0:%d n %d:0:1:1 k %d:1:%d:0 add 2:0:0:0:0:0:0:0:1 "
           "clip 0:7f800000 workspace 4:%d",
           M, K, N, N, K, N, (int)workspace);
  kiln_plan_port input = {"x", f32, 2, {M, K}, 4 * M * K},
                 output = {"y", f32, 2, {M, N}, 4 * M * N};
  kiln_plan_arg args[] = {{KILN_PLACE_INPUT, 0, 0, 4 * M * K},
                          {KILN_PLACE_WEIGHTS, 0, 0, 4 * K * N},
                          {KILN_PLACE_WEIGHTS, 0, BIAS, 4 * N},
                          {KILN_PLACE_OUTPUT, 0, 0, 4 * M * N},
                          {KILN_PLACE_ARENA, 0, 0, workspace}};
  kiln_plan_launch launch = {.kernel = "layer", .nodes = "n", .n_args = 5, .call = 1};
  kiln_plan_call call = {backend, text, 1};
  const kiln_plan plan = {.kind = KILN_PLAN_CUDA,
                          .arch = "",
                          .arena_bytes = workspace,
                          .weights_bytes = sizeof weights,
                          .n_inputs = 1,
                          .n_outputs = 1,
                          .n_launches = 1,
                          .n_args = 5,
                          .n_calls = 1,
                          .inputs = &input,
                          .outputs = &output,
                          .launches = &launch,
                          .args = args,
                          .calls = &call};
  kiln_module_parts parts = {.weights = (const char *)weights};
  kiln_module *m = NULL;
  void *blob = NULL;
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    weights[i] = (float)((int)(i * 7 % 33) - 16) / 16;
  kiln_plan_write(&plan, &blob, &parts.plan_bytes);
  parts.plan = blob;
  must(kiln_module_create(&parts, diag, &m), diag);
  free(blob);
  return m;
}

typedef struct tensors {
  DLManagedTensorVersioned *x, *y;
} tensors;

static tensors make_tensors(int seed) {
  const tensors t = {kiln_tensor_create("f32", 2, (int64_t[]){M, K}, NULL),
                     kiln_tensor_create("f32", 2, (int64_t[]){M, N}, NULL)};
  float *x = t.x->dl_tensor.data;
  for (int i = 0; i < M * K; i++) x[i] = (float)((i * 5 + seed) % 17 - 8) / 8;
  memset(t.y->dl_tensor.data, 0xff, 4 * M * N);
  return t;
}

static kiln_status run_session(kiln_session *s, const tensors *t, kiln_diag *diag) {
  const DLTensor *in = &t->x->dl_tensor;
  DLTensor *out = &t->y->dl_tensor;
  return kiln_session_run(s, 1, &in, 1, &out, diag);
}

static void check_and_free(const tensors *t) {
  const float *x = t->x->dl_tensor.data, *y = t->y->dl_tensor.data, *b = weights + BIAS / 4;
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) {
      double sum = (double)b[n];
      for (int k = 0; k < K; k++) sum += (double)x[m * K + k] * (double)weights[k * N + n];
      assert_true(fabs((double)y[m * N + n] - fmax(sum, 0)) < 1e-4);
    }
  kiln_tensor_destroy(t->x);
  kiln_tensor_destroy(t->y);
}

static void sessions_call_it_and_replay_its_work(void **state) {
  (void)state;
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module("cublaslt", diag);
  kiln_session *s[2] = {0};
  for (int i = 0; i < 2; i++) must(kiln_session_create(m, NULL, diag, &s[i]), diag);
  for (int run = 0; run < 5; run++)
    for (int i = 0; i < 2; i++) {
      const tensors t = make_tensors(run + i);
      must(run_session(s[i], &t, diag), diag);
      check_and_free(&t);
    }
  if (fake) { // a first run and one that is captured, each; the algorithm is chosen before
    assert_int_equal(fake_library->products, 4);
    assert_int_equal(fake_library->kernels, 2);
    assert_int_equal(fake->replays, 8);
  }
  for (int i = 0; i < 2; i++) kiln_session_destroy(s[i]);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static void sessions_that_profile_time_it(void **state) {
  (void)state;
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module("cublaslt", diag);
  kiln_session *s = NULL;
  const kiln_session_options o = {.struct_size = sizeof o, .profile = 1};
  must(kiln_session_create(m, &o, diag, &s), diag);
  for (int run = 0; run < 3; run++) {
    const tensors t = make_tensors(run);
    must(run_session(s, &t, diag), diag);
    check_and_free(&t);
  }
  if (fake) assert_int_equal(fake->captures, 0);
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// --- messages ---

static const struct {
  const char *file, *fails, *backend; // NULL: as it should be
  size_t version;
  bool has_no_kernel;
  kiln_status status;
  const char *says;
} wrongs[] = {
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
  if (!fake) skip();
  for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_module *m = make_module(wrongs[i].backend ? wrongs[i].backend : "cublaslt", diag);
    kiln_session *s = NULL;
    if (wrongs[i].file) setenv("KILN_CUBLASLT", wrongs[i].file, 1);
    if (wrongs[i].version) fake_library->version = wrongs[i].version;
    fake_library->fails = wrongs[i].fails;
    fake_library->has_no_kernel = wrongs[i].has_no_kernel;
    assert_int_equal(kiln_session_create(m, NULL, diag, &s), wrongs[i].status);
    assert_null(s);
    if (!strstr(kiln_diag_message(diag, 0), wrongs[i].says))
      fail_msg("row %zu: must say %s, got: %s", i, wrongs[i].says, kiln_diag_message(diag, 0));
    unsetenv("KILN_CUBLASLT");
    kiln_module_release(m);
    kiln_diag_destroy(diag);
    reset(state);
  }
}

// In a run, and in the capture of one; the session is of use again when the library is.
static void a_product_that_fails_ends_the_run(void **state) {
  (void)state;
  if (!fake) skip();
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module("cublaslt", diag);
  kiln_session *s = NULL;
  must(kiln_session_create(m, NULL, diag, &s), diag);
  for (int run = 0; run < 3; run++) {
    const tensors t = make_tensors(run);
    fake_library->fails = run == 2 ? NULL : "cublasLtMatmul";
    const kiln_status st = run_session(s, &t, diag);
    if (run == 2) {
      must(st, diag);
      check_and_free(&t);
      continue;
    }
    assert_int_equal(st, KILN_DEVICE_ERROR);
    assert_non_null(strstr(kiln_diag_message(diag, 0),
                           "cublaslt: error: product: must succeed, got CUBLAS_STATUS_EXECUTION"));
    assert_non_null(
        strstr(kiln_diag_message(diag, 1), "layer: error: library: cublaslt must run \"product"));
    kiln_diag_clear(diag);
    kiln_tensor_destroy(t.x);
    kiln_tensor_destroy(t.y);
  }
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// --- what there is ---

static void find_stand_ins(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *library = dlopen("libcublasLt.so.13", RTLD_NOW);
  fake_cuda *(*find_driver)(void) = NULL;
  fake_cublaslt *(*find_library)(void) = NULL;
  void *symbols[] = {driver ? dlsym(driver, "fake_cuda_state") : NULL,
                     library ? dlsym(library, "fake_cublaslt_state") : NULL};
  memcpy(&find_driver, &symbols[0], sizeof symbols[0]);
  memcpy(&find_library, &symbols[1], sizeof symbols[1]);
  if (!find_driver || !find_library) return;
  fake = find_driver();
  fake_library = find_library();
  fake->memory_bytes = 64 << 20;
}

static bool has_device(void) {
  kiln_diag *diag = kiln_diag_create();
  kiln_gpu_context *gpu = NULL;
  kiln_library library = {0};
  kiln_status st = kiln_cuda_api.open(0, diag, &gpu);
  if (st == KILN_OK) st = kiln_library_open(kiln_backend_find("cublaslt"), diag, &library);
  if (st != KILN_OK) printf("skipped: %s\n", kiln_diag_message(diag, 0));
  kiln_library_close(&library);
  kiln_cuda_api.close(gpu);
  kiln_diag_destroy(diag);
  return st == KILN_OK;
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
  find_stand_ins();
  if (!fake && !has_device()) return 77;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
