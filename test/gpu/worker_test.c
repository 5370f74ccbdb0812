// The measuring process on a stand-in for CUDA's driver: what it gives back, and that a kernel that
// ends it, or that hangs, or that the driver does not take, costs no more than its own measurement.
#include "tune/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { N = 976, W = 16 };

typedef struct data {
  float y[N], x[N], w[W], workspace[1024];
  kiln_worker_arg args[4];
} data;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static kiln_worker *start(double limit_ms, const volatile int *stop) {
  kiln_diag *diag = kiln_diag_create();
  const kiln_worker_options o = {.kind = KILN_PLAN_CUDA, .limit_ms = limit_ms, .stop = stop};
  kiln_worker *w = NULL;
  if (kiln_worker_create(&o, diag, &w) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  return w;
}

static void fill(data *d) {
  for (int i = 0; i < N; i++) {
    d->x[i] = (float)i;
    d->y[i] = -1;
  }
  for (int i = 0; i < W; i++) d->w[i] = (float)(i * i);
  d->args[0] = (kiln_worker_arg){(char *)d->y, sizeof d->y, true};
  d->args[1] = (kiln_worker_arg){(char *)d->x, sizeof d->x, false};
  d->args[2] = (kiln_worker_arg){(char *)d->w, sizeof d->w, false};
}

// Runs |function| of the stand-in's, which takes the first |n_args| of |d|.
static kiln_worker_answer run(kiln_worker *w, data *d, const char *function, int n_args,
                              uint32_t shared_bytes) {
  static const int all[] = {0, 1, 2};
  char code[64];
  snprintf(code, sizeof code, "fake sm_90 %s", function);
  const kiln_worker_nest nest = {.function = function,
                                 .grid = {N / 61, 1, 1},
                                 .block = {61, 1, 1},
                                 .shared_bytes = shared_bytes,
                                 .n_args = n_args,
                                 .args = all};
  const kiln_worker_task task = {.code = code,
                                 .code_bytes = strlen(code),
                                 .n_args = n_args,
                                 .n_nests = 1,
                                 .args = d->args,
                                 .nests = &nest,
                                 .flush_bytes = 4096,
                                 .most_runs = 5,
                                 .budget_ms = 1000};
  kiln_worker_answer a;
  kiln_diag *diag = kiln_diag_create();
  if (kiln_worker_run(w, &task, diag, &a) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  return a;
}

// y = x w by a library's kernel, x having rows of W.
static kiln_worker_answer run_call(kiln_worker *w, data *d, const char *backend, const char *call) {
  fill(d);
  d->args[3] = (kiln_worker_arg){(char *)d->workspace, sizeof d->workspace, false};
  const kiln_worker_task task = {.backend = backend,
                                 .call = call,
                                 .n_args = 4,
                                 .args = d->args,
                                 .flush_bytes = 4096,
                                 .most_runs = 5,
                                 .budget_ms = 1000,
                                 .hopeless_us = 2000};
  kiln_worker_answer a;
  kiln_diag *diag = kiln_diag_create();
  if (kiln_worker_run(w, &task, diag, &a) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  return a;
}

static void must_add(kiln_worker *w) {
  data d;
  fill(&d);
  const kiln_worker_answer a = run(w, &d, "add", 3, 0);
  if (a.outcome != KILN_WORKER_MEASURED) fail_msg("%s", a.message);
  assert_int_equal(a.n_runs, 5);
  assert_true(a.us == 1000); // the stand-in's clock: a millisecond from one event to the next
  for (int i = 0; i < N; i++) assert_true(d.y[i] == (float)(i + i % W * (i % W)));
}

static void results_and_times_come_back(void **state) {
  (void)state;
  kiln_worker *w = start(0, NULL);
  assert_string_equal(kiln_worker_device_of(w)->name, "Fake 0");
  assert_string_equal(kiln_worker_device_of(w)->arch, "sm_90");
  assert_string_equal(kiln_worker_device_of(w)->driver, "13.0");
  for (int i = 0; i < 3; i++) must_add(w);
  kiln_worker_destroy(w);
}

#define PRODUCT "product a 1:0 b 2:0 c 0:0 m 61:16:0:1 n 1:0:1:1 k 16:1:1:0"

static void a_library_is_measured_as_kernels_are(void **state) {
  data d;
  (void)state;
  setenv("FAKE_LIBRARY_LOADS", "500", 1); // which is no part of what a kernel takes
  kiln_worker *w = start(0, NULL);
  unsetenv("FAKE_LIBRARY_LOADS");
  for (int i = 0; i < 3; i++) {
    const kiln_worker_answer a = run_call(w, &d, "cublaslt", PRODUCT " workspace 3:4096");
    if (a.outcome != KILN_WORKER_MEASURED) fail_msg("%s", a.message);
    assert_int_equal(a.n_runs, 5);
    assert_true(a.us == 1000);
    for (int m = 0; m < N / W; m++) {
      float sum = 0;
      for (int k = 0; k < W; k++) sum += d.x[m * W + k] * d.w[k];
      assert_true(d.y[m] == sum);
    }
    must_add(w);
  }
  kiln_worker_destroy(w);
}

static const struct {
  const char *backend, *call, *variable, *value, *says;
} refusals[] = {
    {"cublas", PRODUCT, "UNUSED", "", "backend: must be one for the device, got \"cublas\""},
    {"openblas", PRODUCT, "UNUSED", "", "backend: must be one for the device, got \"openblas\""},
    {"cublaslt", "product", "UNUSED", "", "call: must be one of its arguments, got \"product\""},
    {"cublaslt", PRODUCT " workspace 3:8192", "UNUSED", "", "call: must be one of its arguments"},
    {"cublaslt", PRODUCT " silu 0:0", "UNUSED", "", "call: must be a product of matrices"},
    {"cublaslt", PRODUCT, "KILN_CUBLASLT", "/nowhere/lib.so", "/nowhere/lib.so: error: library"},
    {"cublaslt", PRODUCT, "FAKE_LIBRARY_FAILS", "cublasLtCreate", "kernel: must be made, got"},
    {"cublaslt", PRODUCT, "FAKE_LIBRARY_FAILS", "cublasLtMatmul", "product: must succeed, got"},
};

static void what_a_library_refuses_is_said(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    data d;
    setenv(refusals[i].variable, refusals[i].value, 1);
    kiln_worker *w = start(0, NULL);
    unsetenv(refusals[i].variable);
    const kiln_worker_answer a = run_call(w, &d, refusals[i].backend, refusals[i].call);
    assert_int_equal(a.outcome, KILN_WORKER_REFUSED);
    if (!strstr(a.message, refusals[i].says)) fail_msg("row %zu: %s", i, a.message);
    assert_true(d.y[0] == -1);
    must_add(w);
    kiln_worker_destroy(w);
  }
}

static void a_crash_loses_one_measurement(void **state) {
  data d;
  (void)state;
  kiln_worker *w = start(0, NULL);
  for (int i = 0; i < 2; i++) {
    fill(&d);
    const kiln_worker_answer a = run(w, &d, "crash", 1, 0);
    assert_int_equal(a.outcome, KILN_WORKER_LOST);
    assert_non_null(strstr(a.message, "signal 9"));
    assert_true(d.y[0] == -1);
    must_add(w);
  }
  kiln_worker_destroy(w);
}

static void a_hang_is_ended_in_time(void **state) {
  data d;
  (void)state;
  kiln_worker *w = start(400, NULL);
  fill(&d);
  const double begin = now_ms();
  const kiln_worker_answer a = run(w, &d, "hang", 1, 0);
  assert_int_equal(a.outcome, KILN_WORKER_LOST);
  assert_string_equal(a.message, "gave no answer in time");
  assert_true(now_ms() - begin < 10000);
  must_add(w);
  kiln_worker_destroy(w);
}

static void what_the_driver_refuses_is_said(void **state) {
  data d;
  (void)state;
  kiln_worker *w = start(0, NULL);
  fill(&d);
  kiln_worker_answer a = run(w, &d, "add", 3, 228 << 10);
  assert_int_equal(a.outcome, KILN_WORKER_REFUSED);
  assert_non_null(strstr(a.message, "CUDA_ERROR_INVALID_VALUE"));
  must_add(w);
  d.args[0].bytes = 2 << 20; // the stand-in has 1 MiB
  d.args[0].data = calloc(1, d.args[0].bytes);
  a = run(w, &d, "add", 3, 0);
  assert_int_equal(a.outcome, KILN_WORKER_REFUSED);
  assert_non_null(strstr(a.message, "must fit into the memory"));
  free(d.args[0].data);
  must_add(w);
  kiln_worker_destroy(w);
}

static void a_stop_ends_waiting(void **state) {
  data d;
  volatile int stop = 0;
  (void)state;
  kiln_worker *w = start(0, &stop);
  fill(&d);
  stop = 1;
  const double begin = now_ms();
  assert_int_equal(run(w, &d, "hang", 1, 0).outcome, KILN_WORKER_STOPPED);
  assert_true(now_ms() - begin < 5000);
  stop = 0;
  must_add(w);
  kiln_worker_destroy(w);
}

static void must_not_start(const char *program, int32_t device, const char *why) {
  const kiln_worker_options o = {.kind = KILN_PLAN_CUDA, .device = device};
  kiln_diag *diag = kiln_diag_create();
  kiln_worker *w = NULL;
  if (program) setenv("KILN_WORKER", program, 1);
  assert_int_equal(kiln_worker_create(&o, diag, &w), KILN_DEVICE_ERROR);
  unsetenv("KILN_WORKER");
  assert_null(w);
  if (!strstr(kiln_diag_message(diag, 0), why)) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
}

static void what_cannot_start_gives_a_message(void **state) {
  (void)state;
  must_not_start("/nowhere/kiln-worker", 0, "program: must start");
  must_not_start("/bin/true", 0, "must open the device, it ended");
  must_not_start("/bin/echo", 0, "must open the device, it ended");
  must_not_start(NULL, 1, "device: must be 0 to 0, got 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_and_times_come_back),
                                     cmocka_unit_test(a_library_is_measured_as_kernels_are),
                                     cmocka_unit_test(what_a_library_refuses_is_said),
                                     cmocka_unit_test(a_crash_loses_one_measurement),
                                     cmocka_unit_test(a_hang_is_ended_in_time),
                                     cmocka_unit_test(what_the_driver_refuses_is_said),
                                     cmocka_unit_test(a_stop_ends_waiting),
                                     cmocka_unit_test(what_cannot_start_gives_a_message)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
