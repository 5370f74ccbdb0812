// Sessions on an OpenCL device, from sources by hand. PoCL makes the CPU one. With
// test/gpu/shaky_opencl.c in front of it what is created and not released is counted after each
// test.
#include "gpu/module.h"
#include "runtime/gpu/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static const char *const sources[] = {
    "kernel void add(global float *t, global const float *x, global const float *w) {\n"
    "  size_t i = get_global_id(0);\n"
    "  if (i < 976) t[i] = x[i] + w[i % 16];\n"
    "}\n",
    // through shared memory, backwards, so that the barrier matters
    "kernel void scale(global float *y, global const float *t, local float *s) {\n"
    "  size_t i = get_global_id(0), k = get_local_id(0);\n"
    "  s[k] = i < 976 ? t[i] : 0;\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  size_t j = get_group_id(0) * 64 + 63 - k;\n"
    "  if (j < 976) y[j] = s[63 - k] * 3;\n"
    "}\n"};

static bool has_device(void) {
  char arch[16];
  return kiln_gpu_arch(KILN_PLAN_OPENCL, 0, NULL, arch) == KILN_OK;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
}

static void runs_give_the_results(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_OPENCL, "", sources);
  gpu_tensors t = gpu_tensors_make();
  (void)state;
  for (int profile = 0; profile < 2; profile++) {
    const kiln_session_options o = {.struct_size = sizeof o, .profile = profile};
    kiln_session *s = NULL;
    must(kiln_session_create(m, &o, diag, &s), diag);
    for (int run = 0; run < 4; run++) {
      gpu_tensors_fill(&t, (float)run);
      must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag);
      gpu_tensors_check(&t);
      assert_true(!profile == (kiln_session_launch_ns(s, 0) == 0));
    }
    must(kiln_session_wait(s, diag), diag);
    kiln_session_destroy(s);
  }
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static void *run_often(void *module) {
  kiln_session *s = NULL;
  gpu_tensors t = gpu_tensors_make();
  if (kiln_session_create(module, NULL, NULL, &s) != KILN_OK) return "no session";
  for (int run = 0; run < 20; run++) {
    gpu_tensors_fill(&t, (float)run);
    if (kiln_session_run(s, 1, t.in, 3, t.out, NULL) != KILN_OK) return "no run";
    const float *x = t.in[0]->data, *y = t.out[0]->data;
    for (int i = 0; i < N; i++)
      if (y[i] != (x[i] + (float)(i % COLS)) * 3) return "wrong";
  }
  kiln_session_destroy(s);
  gpu_tensors_destroy(&t);
  return NULL;
}

static void sessions_share_a_module(void **state) {
  kiln_module *m = gpu_module_make(KILN_PLAN_OPENCL, "", sources);
  pthread_t threads[3];
  (void)state;
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_often, m), 0);
  for (int i = 0; i < 3; i++) {
    void *wrong = NULL;
    pthread_join(threads[i], &wrong);
    if (wrong) fail_msg("%s", (const char *)wrong);
  }
  kiln_module_release(m);
}

static void expect_no_session(kiln_module *m, const kiln_session_options *o, const char *message) {
  kiln_diag *diag = kiln_diag_create();
  kiln_session *s = NULL;
  assert_int_not_equal(kiln_session_create(m, o, diag, &s), KILN_OK);
  assert_null(s);
  if (!strstr(kiln_diag_message(diag, 0), message)) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  kiln_module_release(m);
}

static void what_cannot_be_had_gives_a_message(void **state) {
  const char *const broken[] = {sources[0], "kernel void scale(global float *y) { y[0] = oops; }"};
  const char *const missing[] = {sources[0], sources[0]};
  static int far_away;
  const kiln_session_options far = {.struct_size = sizeof far, .device = 31};
  const kiln_session_options foreign = {.struct_size = sizeof foreign, .stream = &far_away};
  (void)state;
  expect_no_session(gpu_module_make(KILN_PLAN_OPENCL, "", broken), NULL,
                    "image 1: the driver must compile it, it says");
  expect_no_session(gpu_module_make(KILN_PLAN_OPENCL, "", missing), NULL, "scale: must succeed");
  expect_no_session(gpu_module_make(KILN_PLAN_OPENCL, "", sources), &far, "got 31");
  expect_no_session(gpu_module_make(KILN_PLAN_OPENCL, "", sources), &foreign,
                    "stream: must be NULL");
}

static void tensors_of_other_devices_are_refused(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_OPENCL, "", sources);
  gpu_tensors t = gpu_tensors_make();
  kiln_session *s = NULL;
  (void)state;
  must(kiln_session_create(m, NULL, diag, &s), diag);
  t.all[0]->dl_tensor.device.device_type = kDLCUDA;
  assert_int_equal(kiln_session_run(s, 1, t.in, 3, t.out, diag), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "device: must be the CPU"));
  kiln_session_destroy(s);
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// Else the loader would look for drivers anew for each module, and number the devices of what it
// finds.
static void the_driver_stays_when_its_context_is_closed(void **state) {
  (void)state;
  assert_true(has_device());
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  dlclose(library);
}

// --- what is released ---

static int (*n_live)(void); // NULL: no one counts
static void (*fail_creation)(int n);

static void find_counter(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
  void *live = library ? dlsym(library, "shaky_opencl_live") : NULL;
  void *fail = live ? dlsym(library, "shaky_opencl_fail") : NULL;
  memcpy(&n_live, &live, sizeof n_live);
  memcpy(&fail_creation, &fail, sizeof fail_creation);
  if (library && !live) dlclose(library); // one that counts stays open, as its counts do
}

static int nothing_is_left(void **state) {
  (void)state;
  if (!n_live || n_live() == 0) return 0;
  print_error("%d objects of OpenCL are not released\n", n_live());
  return 1;
}

// A session and two runs of it.
static kiln_status run_session(kiln_module *m, bool profile, gpu_tensors *t) {
  const kiln_session_options o = {.struct_size = sizeof o, .profile = profile};
  kiln_session *s = NULL;
  kiln_status st = kiln_session_create(m, &o, NULL, &s);
  for (int run = 0; run < 2 && st == KILN_OK; run++) {
    gpu_tensors_fill(t, (float)run);
    st = kiln_session_run(s, 1, t->in, 3, t->out, NULL);
  }
  kiln_session_destroy(s);
  return st;
}

static kiln_status run_module(int n_sessions, gpu_tensors *t) {
  kiln_module *m = gpu_module_make(KILN_PLAN_OPENCL, "", sources);
  kiln_status st = KILN_OK;
  for (int i = 0; i < n_sessions && st == KILN_OK; i++) st = run_session(m, i % 2 == 0, t);
  kiln_module_release(m);
  return st;
}

static void modules_and_sessions_release_all_that_they_create(void **state) {
  (void)state;
  if (!n_live) skip();
  gpu_tensors t = gpu_tensors_make();
  for (int i = 0; i < 100; i++) {
    assert_int_equal(run_module(5, &t), KILN_OK);
    assert_int_equal(n_live(), 0);
  }
  gpu_tensors_destroy(&t);
}

static void what_fails_halfway_releases_what_it_created(void **state) {
  kiln_status st = KILN_DEVICE_ERROR;
  int n = 1;
  (void)state;
  if (!n_live) skip();
  gpu_tensors t = gpu_tensors_make();
  for (; st != KILN_OK; n++) {
    assert_true(n < 100);
    fail_creation(n);
    st = run_module(1, &t);
    assert_int_equal(n_live(), 0);
  }
  assert_true(n > 10); // contexts, queues, programs, kernels, memory and events have failed
  fail_creation(0);
  gpu_tensors_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_driver_stays_when_its_context_is_closed),
      cmocka_unit_test_teardown(runs_give_the_results, nothing_is_left),
      cmocka_unit_test_teardown(sessions_share_a_module, nothing_is_left),
      cmocka_unit_test_teardown(what_cannot_be_had_gives_a_message, nothing_is_left),
      cmocka_unit_test_teardown(tensors_of_other_devices_are_refused, nothing_is_left),
      cmocka_unit_test(modules_and_sessions_release_all_that_they_create),
      cmocka_unit_test(what_fails_halfway_releases_what_it_created),
  };
  find_counter();
  if (!has_device()) {
    puts("skipped: there is no OpenCL device (PoCL: pocl-opencl-icd)");
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
