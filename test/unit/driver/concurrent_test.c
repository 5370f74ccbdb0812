// One module, run from four threads at once, each with sessions of its own: every run must equal
// that of a single session, bit by bit. Sessions begin and end while others run.
#include "unit/driver/models.h"

#include <pthread.h>

enum { RUNNERS = 4, SESSIONS = 6, RUNS = 60, BATCH = 200 };

// A failing assertion may not jump out of a thread that cmocka does not know: runners count.
typedef struct runner {
  kiln_module *module;
  call c;
  float *want; // (BATCH, HIDDEN)
  int wrong;
} runner;

static bool run_is_right(runner *r, kiln_session *s) {
  void *y = r->c.out[0]->dl_tensor.data;
  const size_t bytes = kiln_tensor_bytes(&r->c.out[0]->dl_tensor);
  memset(y, 0xff, bytes);
  return kiln_session_run(s, r->c.n_in, r->c.inputs, r->c.n_out, r->c.outputs, NULL) == KILN_OK &&
         memcmp(y, r->want, bytes) == 0;
}

static void *run_sessions(void *argument) {
  runner *r = argument;
  for (int32_t i = 0; i < SESSIONS; i++) {
    const kiln_session_options o = {.struct_size = sizeof o, .threads = 1 + i % 2};
    kiln_session *s = NULL;
    if (kiln_session_create(r->module, &o, NULL, &s) != KILN_OK) return r->wrong++, NULL;
    for (int k = 0; k < RUNS; k++) r->wrong += !run_is_right(r, s);
    kiln_session_destroy(s);
  }
  kiln_module_release(r->module); // the last one to come here destroys it
  return NULL;
}

// Inputs that differ from runner to runner, and their results from a session of one thread.
static runner runner_make(kiln_module *module, int number) {
  const kiln_session_options one = {.struct_size = sizeof one, .threads = 1};
  kiln_session *s = NULL;
  runner r = {.module = kiln_module_retain(module), .c = call_of_module(module)};
  float *x = r.c.in[0]->dl_tensor.data;
  const size_t bytes = kiln_tensor_bytes(&r.c.out[0]->dl_tensor);
  for (int i = 0; i < BATCH * IN; i++) x[i] += (float)number;
  r.want = malloc(bytes);
  assert_int_equal(kiln_session_create(module, &one, NULL, &s), KILN_OK);
  assert_int_equal(kiln_session_run(s, r.c.n_in, r.c.inputs, r.c.n_out, r.c.outputs, NULL),
                   KILN_OK);
  memcpy(r.want, r.c.out[0]->dl_tensor.data, bytes);
  kiln_session_destroy(s);
  return r;
}

// Takes the module.
static void stress(kiln_module *module) {
  pthread_t threads[RUNNERS];
  runner runners[RUNNERS];
  for (int i = 0; i < RUNNERS; i++) runners[i] = runner_make(module, i);
  assert_int_not_equal(memcmp(runners[0].want, runners[1].want, BATCH * HIDDEN * 4), 0);
  kiln_module_release(module);
  for (int i = 0; i < RUNNERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run_sessions, &runners[i]), 0);
  for (int i = 0; i < RUNNERS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < RUNNERS; i++) {
    assert_int_equal(runners[i].wrong, 0);
    free(runners[i].want);
    call_destroy(&runners[i].c);
  }
}

static void sessions_of_one_module_run_at_once(void **state) {
  const kiln_dim_value dim = {"batch", BATCH};
  const kiln_compile_options o = {.struct_size = sizeof o, .dims = &dim, .n_dims = 1, .threads = 2};
  kiln_model *m = NULL;
  kiln_module *module = NULL, *loaded = NULL;
  folder f = folder_make();
  (void)state;
  save_mlp(f.model, "batch");
  assert_int_equal(kiln_model_load(f.model, &o, NULL, &m), KILN_OK);
  assert_int_equal(kiln_model_compile(m, NULL, &module), KILN_OK);
  assert_int_equal(kiln_model_compile_to(m, f.module, NULL), KILN_OK);
  kiln_model_destroy(m);
  assert_int_equal(kiln_module_load(f.module, NULL, &loaded), KILN_OK);
  stress(module);
  stress(loaded);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_of_one_module_run_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
