// State over a hand-written plan: what runs keep, forks, files, and damaged files.
#include "runtime/features.h"
#include "runtime/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { N = 6 };

// next = now + x, and their number of runs
static void add(char *const *args, int64_t begin, int64_t end) {
  const float *now = (const float *)args[0], *x = (const float *)args[1];
  const int64_t *runs = (const int64_t *)args[2];
  (void)begin, (void)end;
  for (int64_t i = 0; i < N; i++) ((float *)args[3])[i] = now[i] + x[i];
  *(int64_t *)args[4] = *runs + 1;
}

static kiln_module *make_module(void) {
  const kiln_type *f32 = kiln_type_find("f32"), *i64 = kiln_type_find("i64");
  const char *features[] = {kiln_cpu_architecture()}, *functions[] = {"add"};
  kiln_plan_port inputs[] = {
      {"now", f32, 2, {2, 3}, 0, 0}, {"x", f32, 2, {2, 3}, 0, 0}, {"runs", i64, 0, {0}, 0, 0}};
  kiln_plan_port outputs[] = {{"next", f32, 2, {2, 3}, 0, 0}, {"runs_next", i64, 0, {0}, 0, 0}};
  kiln_plan_launch launches[] = {{"add", "n0", N, 3 * 4 * N, 0, 5, 0, 1, 0}};
  kiln_plan_arg args[] = {{KILN_PLACE_INPUT, 0, 0, 4 * N},
                          {KILN_PLACE_INPUT, 1, 0, 4 * N},
                          {KILN_PLACE_INPUT, 2, 0, 8},
                          {KILN_PLACE_OUTPUT, 0, 0, 4 * N},
                          {KILN_PLACE_OUTPUT, 1, 0, 8}};
  kiln_plan_nest nests[] = {{.function = 0, .threads = 1, .extent = 1}};
  kiln_plan_state states[] = {{0, 0}, {2, 1}};
  const kiln_plan plan = {.n_features = 1,
                          .n_inputs = 3,
                          .n_outputs = 2,
                          .n_functions = 1,
                          .n_launches = 1,
                          .n_args = 5,
                          .n_nests = 1,
                          .n_states = 2,
                          .features = features,
                          .inputs = inputs,
                          .outputs = outputs,
                          .functions = functions,
                          .launches = launches,
                          .args = args,
                          .nests = nests,
                          .states = states};
  const kiln_kernel_fn fns[] = {add};
  kiln_module_parts parts = {.n_functions = 1, .functions = fns};
  kiln_module *m = NULL;
  void *blob = NULL;
  kiln_plan_write(&plan, &blob, &parts.plan_bytes);
  parts.plan = blob;
  assert_int_equal(kiln_module_create(&parts, NULL, &m), KILN_OK);
  free(blob);
  return m;
}

static kiln_session *make_session(kiln_module *m) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 1};
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, &o, NULL, &s), KILN_OK);
  return s;
}

// A run on |x|, whose result is kept.
static void step(kiln_session *s, float x) {
  int64_t shape[] = {2, 3};
  float xs[N];
  for (int i = 0; i < N; i++) xs[i] = x;
  const DLTensor t = {
      .data = xs, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  const DLTensor *inputs[] = {NULL, &t, NULL};
  DLTensor *outputs[] = {NULL, NULL};
  assert_int_equal(kiln_session_run(s, 3, inputs, 2, outputs, NULL), KILN_OK);
}

static float sum_of(const kiln_session *s) { return ((float *)kiln_session_state(s, 0)->data)[5]; }

static int64_t runs_of(const kiln_session *s) { return *(int64_t *)kiln_session_state(s, 1)->data; }

static void runs_keep_their_results(void **state) {
  (void)state;
  kiln_module *m = make_module();
  kiln_session *s = make_session(m), *other = make_session(m), *fork = NULL;
  assert_int_equal(kiln_module_state_count(m), 2);
  assert_string_equal(kiln_module_state(m, 1).name, "runs");
  assert_int_equal(kiln_module_state(m, 1).input, 2);
  assert_null(kiln_module_state(m, 2).name);
  assert_null(kiln_session_state(s, 0));
  step(s, 1);
  step(s, 2);
  step(other, 5);
  assert_int_equal((int)sum_of(s), 3);
  assert_int_equal(kiln_session_fork(s, NULL, &fork), KILN_OK);
  step(fork, 10);
  assert_int_equal((int)sum_of(s), 3);
  assert_int_equal((int)sum_of(fork), 13);
  assert_int_equal(runs_of(fork), 3);
  assert_int_equal((int)sum_of(other), 5);
  assert_int_equal(kiln_session_state_reset(s, NULL), KILN_OK);
  step(s, 4);
  assert_int_equal((int)sum_of(s), 4);
  assert_int_equal(runs_of(s), 1);
  assert_int_equal(kiln_session_state_truncate(s, 0, NULL), KILN_BAD_INPUT); // none grows
  kiln_session_destroy(fork);
  kiln_session_destroy(other);
  kiln_session_destroy(s);
  kiln_module_release(m);
}

// A tensor in place of a state is used in its run; one for the result leaves the state as it is.
static void a_run_can_be_tried(void **state) {
  (void)state;
  kiln_module *m = make_module();
  kiln_session *s = make_session(m);
  int64_t shape[] = {2, 3};
  float now[N] = {7, 7, 7, 7, 7, 7}, x[N] = {0}, next[N] = {0};
  DLTensor t[3];
  float *const data[] = {now, x, next};
  for (int i = 0; i < 3; i++)
    t[i] = (DLTensor){.data = data[i],
                      .device = {kDLCPU, 0},
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
  const DLTensor *inputs[] = {&t[0], &t[1], NULL};
  DLTensor *outputs[] = {&t[2], NULL};
  step(s, 2);
  assert_int_equal(kiln_session_run(s, 3, inputs, 2, outputs, NULL), KILN_OK);
  assert_int_equal((int)next[3], 7);
  assert_int_equal((int)sum_of(s), 2);
  assert_int_equal(runs_of(s), 2);
  outputs[0] = NULL;
  assert_int_equal(kiln_session_run(s, 3, inputs, 2, outputs, NULL), KILN_OK);
  assert_int_equal((int)sum_of(s), 7);
  inputs[1] = NULL; // no state
  assert_int_equal(kiln_session_run(s, 3, inputs, 2, outputs, NULL), KILN_BAD_INPUT);
  kiln_session_destroy(s);
  kiln_module_release(m);
}

static size_t read_all(const char *path, unsigned char *to, size_t room) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  const size_t n = fread(to, 1, room, f);
  fclose(f);
  return n;
}

static void write_all(const char *path, const unsigned char *from, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(from, 1, n, f), n);
  fclose(f);
}

static void damaged_files_of_states_are_refused(void **state) {
  (void)state;
  char path[] = "/tmp/kiln_state_XXXXXX";
  unsigned char bytes[512];
  kiln_module *m = make_module();
  kiln_session *s = make_session(m);
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  step(s, 6);
  assert_int_equal(kiln_session_state_save(s, path, NULL), KILN_OK);
  step(s, 1);
  assert_int_equal(kiln_session_state_load(s, path, NULL), KILN_OK);
  assert_int_equal((int)sum_of(s), 6);
  assert_int_equal(runs_of(s), 1);
  const size_t n = read_all(path, bytes, sizeof bytes);
  step(s, 1);
  for (size_t k = 0; k < n; k++) { // cut off, and changed anywhere
    write_all(path, bytes, k);
    assert_int_equal(kiln_session_state_load(s, path, NULL), KILN_BAD_INPUT);
    bytes[k] ^= 0x40;
    write_all(path, bytes, n);
    assert_int_equal(kiln_session_state_load(s, path, NULL), KILN_BAD_INPUT);
    bytes[k] ^= 0x40;
  }
  assert_int_equal((int)sum_of(s), 7);
  unlink(path);
  assert_int_equal(kiln_session_state_load(s, path, NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_session_state_save(s, "/nowhere/at/all", NULL), KILN_BAD_INPUT);
  kiln_session_destroy(s);
  kiln_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_keep_their_results),
      cmocka_unit_test(a_run_can_be_tried),
      cmocka_unit_test(damaged_files_of_states_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
