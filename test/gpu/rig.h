// Kernels of NVIDIA's libraries, of the real ones or of stand-ins: what they compute, beside plain
// loops, in streams and in graphs; sessions that call them; and messages.
//
// ctest runs such a test twice: on the stand-ins (fake_cuda.c, fake_library.c), which also count
// what is left behind, and on the GPU and library of this machine, where it skips itself without
// them.
#ifndef KILN_TEST_GPU_RIG_H
#define KILN_TEST_GPU_RIG_H

#include "gpu/fake_cuda.h"
#include "gpu/fake_library.h"
#include "runtime/gpu/gpu.h"
#include "runtime/module.h"
#include "unit/backend/calls.h"

#include <dlfcn.h>

enum { MOST_WORKSPACE = (32 << 20) + 256 };

static fake_cuda *fake; // NULL: a GPU
static fake_library *fake_of_library;

static inline int reset(void **state) {
  (void)state;
  if (!fake) return 0;
  assert_int_equal(fake->live, 0); // whatever a test did, nothing is left
  assert_int_equal(fake_of_library->live, 0);
  *fake = (fake_cuda){
      .n_devices = 1, .major = 9, .memory_bytes = 64 << 20, .fail_launch = -1, .version = 13000};
  *fake_of_library = (fake_library){0};
  return 0;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_count(diag) ? kiln_diag_message(diag, 0) : "?");
}

// --- kernels ---

typedef struct device {
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  kiln_library opened;
  char *args[N_ARGS + 1]; // the last is the workspace
  kiln_diag *diag;
} device;

static void open_device(device *d, const char *backend) {
  *d = (device){.diag = kiln_diag_create()};
  must(kiln_cuda_api.open(0, d->diag, &d->gpu), d->diag);
  must(kiln_cuda_api.stream(d->gpu, d->diag, &d->stream), d->diag);
  must(kiln_library_open(kiln_backend_find(backend), d->diag, &d->opened), d->diag);
  for (int i = 0; i <= N_ARGS; i++)
    must(kiln_cuda_api.allocate(d->gpu, i == N_ARGS ? MOST_WORKSPACE : ARG_ELEMS * sizeof(float),
                                "argument", d->diag, &d->args[i]),
         d->diag);
}

static void close_device(device *d) {
  for (int i = 0; i <= N_ARGS; i++) kiln_cuda_api.free(d->gpu, d->args[i]);
  must(kiln_gpu_enter(d->gpu, d->diag), d->diag);
  kiln_library_close(&d->opened);
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

typedef enum outcome { RIGHT, WRONG, HAS_NO_KERNEL } outcome;

static outcome run_call(const device *d, const kiln_library_call *c) {
  char *none[N_ARGS + 1] = {0};
  kiln_bound bound;
  must(kiln_gpu_enter(d->gpu, d->diag), d->diag);
  const kiln_status st = kiln_bound_create(&d->opened, c, 1, none, NULL, &bound);
  kiln_cuda_api.leave(d->gpu);
  if (st != KILN_OK) {
    assert_int_equal(st, KILN_UNSUPPORTED);
    return HAS_NO_KERNEL;
  }
  outcome o = RIGHT;
  for (int run = 0; run < 2 && o == RIGHT; run++) {
    char text[768];
    arguments args = arguments_make(11);
    arguments_store(&args, c);
    for (int i = 0; i < N_ARGS; i++) copy_arg(d, &args, i, false);
    run_kernel(d, &bound, run);
    copy_arg(d, &args, 3, true);
    if (find_wrong(c, &args, text, sizeof text)) {
      print_error("%s\n", text);
      o = WRONG;
    }
    arguments_free(&args);
  }
  kiln_gpu_bound_deinit(d->gpu, &bound);
  return o;
}

// What was run of random calls, by type and by post; those that are wrong are said, each.
typedef struct tally {
  int taken, wrong, run[KILN_N_CALL_TYPES], posts[KILN_N_POSTS];
} tally;

static tally run_random_calls(const char *backend, int rounds, uint64_t seed,
                              kiln_library_call (*random)(uint64_t *seed)) {
  device d;
  tally t = {0};
  open_device(&d, backend);
  for (int i = 0; i < rounds; i++) {
    kiln_library_call c = random(&seed);
    if (!d.opened.backend->takes(&c)) continue;
    c.workspace = (kiln_library_call_workspace){N_ARGS, d.opened.backend->workspace(&c)};
    assert_true(c.workspace.bytes <= MOST_WORKSPACE);
    t.taken++;
    const int rounded = fake ? fake_of_library->rounded : 0;
    const outcome o = run_call(&d, &c);
    if (o == HAS_NO_KERNEL) continue;
    t.wrong += o == WRONG;
    if (fake && c.a.type != KILN_CALL_TF32) assert_int_equal(fake_of_library->rounded, rounded);
    t.run[c.a.type]++;
    for (int k = 0; k < c.n_posts; k++) t.posts[c.posts[k].kind]++;
  }
  print_message("%s: %d taken, run %d f32, %d tf32, %d f16, %d bf16\n", backend, t.taken, t.run[0],
                t.run[1], t.run[2], t.run[3]);
  assert_int_equal(t.wrong, 0);
  for (int k = 0; k < KILN_N_CALL_TYPES; k++) assert_true(t.run[k] > rounds / 100);
  close_device(&d);
  return t;
}

// What may stand behind a call, and whether the library takes it then.
typedef struct taking {
  const char *behind;
  bool is_taken;
} taking;

static inline void check_takings(const char *backend, const char *call, const taking *takings,
                                 size_t n) {
  const kiln_backend *b = kiln_backend_find(backend);
  for (size_t i = 0; i < n; i++) {
    char text[512];
    kiln_library_call c;
    snprintf(text, sizeof text, "%s%s", call, takings[i].behind);
    assert_true(kiln_library_call_parse(text, &c));
    if (b->takes(&c) != takings[i].is_taken) fail_msg("%s", text);
  }
}

// --- sessions of a module that is one call: of x, weights, a bias behind them, y, and the
// workspace ---

enum { MODULE_WORKSPACE = 1 << 20 };

typedef struct model {
  const char *backend, *call; // without the workspace
  int64_t x[4], y[4];         // shapes
  int n_weights, n_bias;
  // What y must be.
  double (*at)(const float *x, const float *w, const float *b, int64_t i);
} model;

static float weights[1 << 14] __attribute__((aligned(64)));

static inline int64_t elems_of(const int64_t shape[4]) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}
static inline int bias_of(const model *m) { return (m->n_weights + 15) / 16 * 16; }

static kiln_module *make_module(const model *what, const char *backend, kiln_diag *diag) {
  const kiln_type *f32 = kiln_type_find("f32");
  const int64_t *x = what->x, *y = what->y;
  const uint64_t x_bytes = 4 * (uint64_t)elems_of(x), y_bytes = 4 * (uint64_t)elems_of(y);
  char text[512];
  snprintf(text, sizeof text, "%s workspace 4:%d", what->call, MODULE_WORKSPACE);
  kiln_plan_port input = {"x", f32, 4, {x[0], x[1], x[2], x[3]}, x_bytes, 0},
                 output = {"y", f32, 4, {y[0], y[1], y[2], y[3]}, y_bytes, 0};
  kiln_plan_arg args[] = {
      {KILN_PLACE_INPUT, 0, 0, x_bytes},
      {KILN_PLACE_WEIGHTS, 0, 0, 4 * (uint64_t)what->n_weights},
      {KILN_PLACE_WEIGHTS, 0, 4 * (uint64_t)bias_of(what), 4 * (uint64_t)what->n_bias},
      {KILN_PLACE_OUTPUT, 0, 0, y_bytes},
      {KILN_PLACE_ARENA, 0, 0, MODULE_WORKSPACE}};
  kiln_plan_launch launch = {.kernel = "layer", .nodes = "n", .n_args = 5, .call = 1};
  kiln_plan_call call = {backend ? backend : what->backend, text, 1};
  const kiln_plan plan = {.kind = KILN_PLAN_CUDA,
                          .arch = "",
                          .arena_bytes = MODULE_WORKSPACE,
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

static tensors make_tensors(const model *m, int seed) {
  const tensors t = {kiln_tensor_create("f32", 4, m->x, NULL),
                     kiln_tensor_create("f32", 4, m->y, NULL)};
  float *x = t.x->dl_tensor.data;
  for (int64_t i = 0; i < elems_of(m->x); i++) x[i] = (float)((i * 5 + seed) % 17 - 8) / 8;
  memset(t.y->dl_tensor.data, 0xff, 4 * (size_t)elems_of(m->y));
  return t;
}

static void free_tensors(const tensors *t) {
  kiln_tensor_destroy(t->x);
  kiln_tensor_destroy(t->y);
}

static kiln_status run_session(kiln_session *s, const tensors *t, kiln_diag *diag) {
  const DLTensor *in = &t->x->dl_tensor;
  DLTensor *out = &t->y->dl_tensor;
  return kiln_session_run(s, 1, &in, 1, &out, diag);
}

static void check_and_free(const model *m, const tensors *t) {
  const float *x = t->x->dl_tensor.data, *y = t->y->dl_tensor.data;
  for (int64_t i = 0; i < elems_of(m->y); i++)
    assert_true(fabs((double)y[i] - m->at(x, weights, weights + bias_of(m), i)) < 1e-4);
  free_tensors(t);
}

static inline void check_sessions_replay(const model *what) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module(what, NULL, diag);
  kiln_session *s[2] = {0};
  for (int i = 0; i < 2; i++) must(kiln_session_create(m, NULL, diag, &s[i]), diag);
  for (int run = 0; run < 5; run++)
    for (int i = 0; i < 2; i++) {
      const tensors t = make_tensors(what, run + i);
      must(run_session(s[i], &t, diag), diag);
      check_and_free(what, &t);
    }
  if (fake) { // a first run and one that is captured, each; the kernel is chosen before
    assert_int_equal(fake_of_library->runs, 4);
    assert_int_equal(fake_of_library->kernels, 2);
    assert_int_equal(fake->replays, 8);
  }
  for (int i = 0; i < 2; i++) kiln_session_destroy(s[i]);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static inline void check_sessions_profile(const model *what) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module(what, NULL, diag);
  kiln_session *s = NULL;
  const kiln_session_options o = {.struct_size = sizeof o, .profile = 1};
  must(kiln_session_create(m, &o, diag, &s), diag);
  for (int run = 0; run < 3; run++) {
    const tensors t = make_tensors(what, run);
    must(run_session(s, &t, diag), diag);
    check_and_free(what, &t);
  }
  if (fake) assert_int_equal(fake->captures, 0);
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// --- messages ---

typedef struct wrong {
  const char *file, *fails, *backend; // NULL: as it should be
  size_t version;
  bool has_no_kernel;
  kiln_status status;
  const char *says;
} wrong;

static inline void check_wrongs(const model *what, const wrong *wrongs, size_t n) {
  if (!fake) skip();
  for (size_t i = 0; i < n; i++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_module *m = make_module(what, wrongs[i].backend, diag);
    kiln_session *s = NULL;
    const char *variable = kiln_backend_find(what->backend)->variable;
    if (wrongs[i].file) setenv(variable, wrongs[i].file, 1);
    fake_of_library->version = wrongs[i].version;
    fake_of_library->fails = wrongs[i].fails;
    fake_of_library->has_no_kernel = wrongs[i].has_no_kernel;
    assert_int_equal(kiln_session_create(m, NULL, diag, &s), wrongs[i].status);
    assert_null(s);
    if (!strstr(kiln_diag_message(diag, 0), wrongs[i].says))
      fail_msg("row %zu: must say %s, got: %s", i, wrongs[i].says, kiln_diag_message(diag, 0));
    unsetenv(variable);
    kiln_module_release(m);
    kiln_diag_destroy(diag);
    reset(NULL);
  }
}

// In a run, and in the capture of one; the session is of use again when the library is.
static inline void check_failing_runs(const model *what, const char *function, const char *says) {
  if (!fake) skip();
  char behind[96];
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = make_module(what, NULL, diag);
  kiln_session *s = NULL;
  snprintf(behind, sizeof behind, "layer: error: library: %s must run \"", what->backend);
  must(kiln_session_create(m, NULL, diag, &s), diag);
  for (int run = 0; run < 3; run++) {
    const tensors t = make_tensors(what, run);
    fake_of_library->fails = run == 2 ? NULL : function;
    const kiln_status st = run_session(s, &t, diag);
    if (run == 2) {
      must(st, diag);
      check_and_free(what, &t);
      continue;
    }
    assert_int_equal(st, KILN_DEVICE_ERROR);
    assert_non_null(strstr(kiln_diag_message(diag, 0), says));
    assert_non_null(strstr(kiln_diag_message(diag, 1), behind));
    kiln_diag_clear(diag);
    free_tensors(&t);
  }
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// --- what there is ---

static inline void find_stand_ins(const char *file) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *library = dlopen(file, RTLD_NOW);
  fake_cuda *(*find_driver)(void) = NULL;
  fake_library *(*find_library)(void) = NULL;
  void *symbols[] = {driver ? dlsym(driver, "fake_cuda_state") : NULL,
                     library ? dlsym(library, "fake_library_state") : NULL};
  memcpy(&find_driver, &symbols[0], sizeof symbols[0]);
  memcpy(&find_library, &symbols[1], sizeof symbols[1]);
  if (!find_driver || !find_library) return;
  fake = find_driver();
  fake_of_library = find_library();
  fake->memory_bytes = 64 << 20;
}

static inline bool has_device(const char *backend) {
  kiln_diag *diag = kiln_diag_create();
  kiln_gpu_context *gpu = NULL;
  kiln_library library = {0};
  kiln_status st = kiln_cuda_api.open(0, diag, &gpu);
  if (st == KILN_OK) st = kiln_library_open(kiln_backend_find(backend), diag, &library);
  if (st != KILN_OK) printf("skipped: %s\n", kiln_diag_message(diag, 0));
  kiln_library_close(&library);
  kiln_cuda_api.close(gpu);
  kiln_diag_destroy(diag);
  return st == KILN_OK;
}

#endif
