// Threads that compile, tune and run concurrently, for ThreadSanitizer (make tsan): models of their
// own, one cache, one module, one session passed between threads. Results must equal those of a
// single thread, bit by bit.
#include "unit/driver/models.h"

#include <pthread.h>

enum { THREADS = 4, BATCH = 7, ROUNDS = 2, HANDS = 40 };

typedef struct shared {
  folder f;
  float want[BATCH * HIDDEN];
  char *text; // of the same kernels for OpenCL
  kiln_module *module;
  kiln_session *session;
  pthread_mutex_t lock; // of |session|
} shared;

// A failing assertion may not jump out of a thread that cmocka does not know: they count.
typedef struct worker {
  shared *s;
  int number, wrong;
} worker;

static const kiln_dim_value batch = {"batch", BATCH};

static kiln_compile_options options(void) {
  return (kiln_compile_options){
      .struct_size = sizeof(kiln_compile_options), .dims = &batch, .n_dims = 1, .threads = 2};
}

static bool is_right(const shared *s, const call *c) {
  return memcmp(c->out[0]->dl_tensor.data, s->want, sizeof s->want) == 0;
}

static bool run_right(const shared *s, kiln_session *session, call *c) {
  memset(c->out[0]->dl_tensor.data, 0xff, sizeof s->want);
  return kiln_session_run(session, c->n_in, c->inputs, c->n_out, c->outputs, NULL) == KILN_OK &&
         is_right(s, c);
}

static bool module_is_right(const shared *s, kiln_module *module) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 2};
  kiln_session *session = NULL;
  if (kiln_session_create(module, &o, NULL, &session) != KILN_OK) return false;
  call c = call_of_module(module);
  bool right = true;
  for (int i = 0; i < 3; i++) right &= run_right(s, session, &c);
  kiln_session_destroy(session);
  call_destroy(&c);
  return right;
}

static bool compile_is_right(const shared *s, const kiln_compile_options *o) {
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  bool right = kiln_model_load(s->f.model, o, NULL, &m) == KILN_OK &&
               kiln_model_compile(m, NULL, &module) == KILN_OK;
  kiln_model_destroy(m);
  right = right && module_is_right(s, module);
  kiln_module_release(module);
  return right;
}

static bool file_is_right(const worker *w) {
  kiln_compile_options o = options();
  kiln_compiled made = {0};
  kiln_module *module = NULL;
  char path[128];
  o.cache = 1;
  snprintf(path, sizeof path, "%s/%d.so", w->s->f.path, w->number);
  bool right = kiln_compile_file(w->s->f.model, &o, path, NULL, &made) == KILN_OK &&
               kiln_module_load(path, NULL, &module) == KILN_OK;
  kiln_model_destroy(made.model);
  right = right && module_is_right(w->s, module);
  kiln_module_release(module);
  return right;
}

static void take_text(void *user, const char *level, const char *text) {
  char **out = user;
  (void)level;
  free(*out);
  *out = strdup(text);
}

// malloc'ed; NULL: it failed
static char *opencl_of(const shared *s) {
  kiln_compile_options o = options();
  kiln_model *m = NULL;
  char *text = NULL;
  o.target = o.dump = "opencl";
  o.on_dump = take_text;
  o.dump_user = &text;
  if (kiln_model_load(s->f.model, &o, NULL, &m) == KILN_OK) (void)!kiln_model_emit(m, NULL);
  kiln_model_destroy(m);
  return text;
}

static void *compile_many(void *argument) {
  worker *w = argument;
  const kiln_compile_options plain = options();
  kiln_compile_options tuned = plain;
  tuned.tune = 2;
  for (int i = 0; i < ROUNDS; i++) {
    w->wrong += !compile_is_right(w->s, &plain);
    w->wrong += !file_is_right(w);
    char *text = opencl_of(w->s);
    w->wrong += !text || strcmp(text, w->s->text) != 0;
    free(text);
  }
  if (w->number % 2 == 0) w->wrong += !compile_is_right(w->s, &tuned);
  return NULL;
}

static void *run_by_turns(void *argument) {
  worker *w = argument;
  call c = call_of_module(w->s->module);
  for (int i = 0; i < HANDS; i++) {
    pthread_mutex_lock(&w->s->lock);
    w->wrong += !run_right(w->s, w->s->session, &c);
    pthread_mutex_unlock(&w->s->lock);
    if (i % 8 == w->number) w->wrong += !module_is_right(w->s, w->s->module);
  }
  call_destroy(&c);
  return NULL;
}

static void run_all(shared *s, void *(*body)(void *)) {
  pthread_t threads[THREADS];
  worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) workers[i] = (worker){s, i, 0};
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, body, &workers[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) assert_int_equal(workers[i].wrong, 0);
}

static int setup(void **state) {
  shared *s = calloc(1, sizeof *s);
  assert_non_null(s);
  s->f = folder_make();
  setenv("KILN_CACHE_DIR", s->f.path, 1);
  save_mlp(s->f.model, "batch");
  pthread_mutex_init(&s->lock, NULL);
  *state = s;
  return 0;
}

// What the threads' first calls have to share begins with them: nothing was compiled before.
static void threads_compile_at_once(void **state) {
  shared *s = *state;
  kiln_module *module = NULL;
  kiln_model *m = NULL;
  const kiln_compile_options o = options();
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_model_load(s->f.model, &o, diag, &m), KILN_OK);
  call c = call_of_model(m);
  // the interpreter's results, which are the module's: sums of 48 multiples of 1/128 are exact
  assert_int_equal(kiln_model_reference(m, c.n_in, c.inputs, c.n_out, c.outputs, diag), KILN_OK);
  memcpy(s->want, c.out[0]->dl_tensor.data, sizeof s->want);
  s->text = opencl_of(s);
  assert_non_null(s->text);
  run_all(s, compile_many);
  assert_int_equal(kiln_model_compile(m, diag, &module), KILN_OK);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  call_destroy(&c);
  s->module = module;
}

static void one_session_goes_from_hand_to_hand(void **state) {
  shared *s = *state;
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 2};
  assert_non_null(s->module);
  assert_int_equal(kiln_session_create(s->module, &o, NULL, &s->session), KILN_OK);
  run_all(s, run_by_turns);
  kiln_session_destroy(s->session);
}

static int teardown(void **state) {
  shared *s = *state;
  kiln_module_release(s->module);
  folder_remove(&s->f);
  free(s->text);
  free(s);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads_compile_at_once),
                                     cmocka_unit_test(one_session_goes_from_hand_to_hand)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
