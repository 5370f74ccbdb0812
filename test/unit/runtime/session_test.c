// Sessions over a hand-written plan and C functions as kernels: results, splitting, copies, checks
// of tensors, concurrent runs.
#include "runtime/features.h"
#include "runtime/module.h"
#include "runtime/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 61, COLS = 16, N = ROWS * COLS };

enum { SESSION_THREADS = 2 };

// t = x + w, row by row
static void add_rows(char *const *args, int64_t begin, int64_t end) {
  const float *x = (const float *)args[0], *w = (const float *)args[1];
  float *t = (float *)args[2];
  for (int64_t i = begin * COLS; i < end * COLS; i++) t[i] = x[i] + w[i % COLS];
}

// y = t * k; the whole of it, whatever the range
static void scale_all(char *const *args, int64_t begin, int64_t end) {
  const float *t = (const float *)args[0], *k = (const float *)args[1];
  float *y = (float *)args[2];
  (void)begin, (void)end;
  for (int64_t i = 0; i < N; i++) y[i] = t[i] * k[0];
}

static float weights[COLS] __attribute__((aligned(64)));
static float factor = 3;

typedef struct owner {
  int released;
} owner;
static void release(void *object) { ((owner *)object)->released++; }

// y = (x + w) * factor; yt = its transpose, by a copy; xx = x, by a copy
static kiln_module *make_module(owner *o, kiln_diag *diag) {
  const kiln_type *f32 = kiln_type_find("f32");
  const char *features[] = {kiln_cpu_architecture()}, *functions[] = {"add", "scale"};
  kiln_plan_port inputs[] = {{"x", f32, 2, {ROWS, COLS}, 0, 0}};
  kiln_plan_port outputs[] = {{"y", f32, 2, {ROWS, COLS}, 0, 0},
                              {"yt", f32, 2, {COLS, ROWS}, 0, 0},
                              {"xx", f32, 2, {ROWS, COLS}, 0, 0}};
  kiln_plan_launch launches[] = {{"add_k", "n0", N, 3 * 4 * N, 0, 3, 0, 1, 0},
                                 {"scale_k", "n1", N, 2 * 4 * N, 3, 3, 1, 1, 0}};
  kiln_plan_arg args[] = {{KILN_PLACE_INPUT, 0, 0, 4 * N},  {KILN_PLACE_WEIGHTS, 0, 0, 4 * COLS},
                          {KILN_PLACE_ARENA, 0, 64, 4 * N}, {KILN_PLACE_ARENA, 0, 64, 4 * N},
                          {KILN_PLACE_EXTERN, 0, 0, 4},     {KILN_PLACE_OUTPUT, 0, 0, 4 * N}};
  kiln_plan_nest nests[] = {{.function = 0, .threads = 64, .extent = ROWS},
                            {.function = 1, .threads = 1, .extent = 1}};
  kiln_plan_copy copies[] = {{{KILN_PLACE_OUTPUT, 0, 0, 4 * N}, 1, {1, COLS}},
                             {{KILN_PLACE_INPUT, 0, 0, 4 * N}, 2, {COLS, 1}}};
  const kiln_plan plan = {.arena_bytes = 64 + 4 * N,
                          .weights_bytes = sizeof weights,
                          .n_externs = 1,
                          .n_features = 1,
                          .n_inputs = 1,
                          .n_outputs = 3,
                          .n_functions = 2,
                          .n_launches = 2,
                          .n_args = 6,
                          .n_nests = 2,
                          .n_copies = 2,
                          .features = features,
                          .inputs = inputs,
                          .outputs = outputs,
                          .functions = functions,
                          .launches = launches,
                          .args = args,
                          .nests = nests,
                          .copies = copies};
  const kiln_kernel_fn pointers[] = {add_rows, scale_all};
  const void *externs[] = {&factor};
  kiln_module_parts parts = {.n_functions = 2,
                             .functions = pointers,
                             .weights = (const char *)weights,
                             .n_externs = 1,
                             .externs = externs,
                             .borrowed_bytes = 4,
                             .owner = o,
                             .release = release};
  void *blob = NULL;
  kiln_module *m = NULL;
  for (int i = 0; i < COLS; i++) weights[i] = (float)i;
  kiln_plan_write(&plan, &blob, &parts.plan_bytes);
  parts.plan = blob;
  assert_int_equal(kiln_module_create(&parts, diag, &m), KILN_OK);
  free(blob);
  return m;
}

typedef struct tensors {
  DLManagedTensorVersioned *x, *outputs[3];
  DLTensor *out[3];
} tensors;

static tensors make_tensors(void) {
  tensors t;
  const int64_t shape[] = {ROWS, COLS}, turned[] = {COLS, ROWS};
  t.x = kiln_tensor_create("f32", 2, shape, NULL);
  for (int i = 0; i < 3; i++) {
    t.outputs[i] = kiln_tensor_create("f32", 2, i == 1 ? turned : shape, NULL);
    t.out[i] = &t.outputs[i]->dl_tensor;
  }
  return t;
}

static void destroy_tensors(tensors *t) {
  kiln_tensor_destroy(t->x);
  for (int i = 0; i < 3; i++) kiln_tensor_destroy(t->outputs[i]);
}

static void run_and_check(kiln_session *s, tensors *t, float seed) {
  const DLTensor *in[] = {&t->x->dl_tensor};
  float *x = t->x->dl_tensor.data;
  for (int i = 0; i < N; i++) x[i] = seed + (float)i;
  assert_int_equal(kiln_session_run(s, 1, in, 3, t->out, NULL), KILN_OK);
  const float *y = t->out[0]->data, *yt = t->out[1]->data, *xx = t->out[2]->data;
  for (int i = 0; i < N; i++) {
    assert_true(y[i] == (x[i] + (float)(i % COLS)) * 3);
    assert_true(yt[i % COLS * ROWS + i / COLS] == y[i]);
    assert_true(xx[i] == x[i]);
  }
}

static void any_number_of_threads_gives_the_same_result(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  tensors t = make_tensors();
  for (int threads = 0; threads <= 9; threads++) {
    const kiln_session_options options = {
        .struct_size = sizeof options, .threads = threads, .profile = threads % 2};
    kiln_session *s = NULL;
    assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
    for (int i = 0; i < 20; i++) run_and_check(s, &t, (float)(i * threads));
    assert_int_equal(kiln_session_launch_start_ns(s, 1) > 0, threads % 2);
    assert_int_equal(kiln_session_launch_ns(s, 2), 0);
    kiln_session_destroy(s);
  }
  destroy_tensors(&t);
  kiln_module_release(m);
  assert_int_equal(o.released, 1);
}

static void spans_lie_in_their_launches_and_have_each_thread_once(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  tensors t = make_tensors();
  for (int threads = 1; threads <= 3; threads++) {
    const kiln_session_options options = {
        .struct_size = sizeof options, .threads = threads, .profile = 2};
    const kiln_span *spans = NULL;
    kiln_session *s = NULL;
    assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
    assert_int_equal(kiln_session_spans(s, &spans), 0);
    for (int i = 0; i < 3; i++) run_and_check(s, &t, (float)i);
    const size_t n = kiln_session_spans(s, &spans);
    assert_true(n >= kiln_module_launch_count(m));
    for (size_t i = 0; i < n; i++) {
      const uint64_t start = kiln_session_launch_start_ns(s, spans[i].launch),
                     end = start + kiln_session_launch_ns(s, spans[i].launch);
      assert_true(spans[i].start_ns >= start && spans[i].start_ns + spans[i].ns <= end);
      assert_in_range(spans[i].thread, 0, threads - 1);
      for (size_t k = 0; k < i; k++)
        assert_false(spans[k].launch == spans[i].launch && spans[k].nest == spans[i].nest &&
                     spans[k].thread == spans[i].thread);
    }
    kiln_session_destroy(s);
  }
  destroy_tensors(&t);
  kiln_module_release(m);
}

static void a_session_keeps_its_module(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, NULL, NULL, &s), KILN_OK);
  kiln_module_release(m);
  assert_int_equal(o.released, 0);
  tensors t = make_tensors();
  run_and_check(s, &t, 1);
  kiln_session_destroy(s);
  assert_int_equal(o.released, 1);
  destroy_tensors(&t);
}

static void a_module_describes_itself(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  assert_int_equal(kiln_module_input_count(m), 1);
  assert_int_equal(kiln_module_output_count(m), 3);
  assert_string_equal(kiln_module_output(m, 1).name, "yt");
  assert_string_equal(kiln_module_input(m, 0).dtype, "f32");
  assert_int_equal(kiln_module_input(m, 0).shape[0], ROWS);
  assert_null(kiln_module_input(m, 1).name);
  assert_int_equal(kiln_module_arena_bytes(m), 64 + 4 * N);
  assert_int_equal(kiln_module_weight_bytes(m), sizeof weights + 4);
  assert_int_equal(kiln_module_launch_count(m), 2);
  assert_string_equal(kiln_module_launch(m, 1).kernel, "scale_k");
  assert_null(kiln_module_launch(m, 2).kernel);
  kiln_module_release(m);
}

typedef struct runner {
  kiln_module *module;
  float seed;
} runner;

static void *run_often(void *argument) {
  runner *r = argument;
  const kiln_session_options options = {.struct_size = sizeof options, .threads = SESSION_THREADS};
  kiln_session *s = NULL;
  if (kiln_session_create(r->module, &options, NULL, &s) != KILN_OK) return NULL;
  tensors t = make_tensors();
  for (int i = 0; i < 200; i++) run_and_check(s, &t, r->seed + (float)i);
  destroy_tensors(&t);
  kiln_session_destroy(s);
  return r;
}

static void concurrent_sessions_of_one_module_do_not_disturb_each_other(void **state) {
  enum { THREADS = 4 };
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  pthread_t threads[THREADS];
  runner runners[THREADS];
  for (int i = 0; i < THREADS; i++) {
    runners[i] = (runner){m, (float)(1000 * i)};
    assert_int_equal(pthread_create(&threads[i], NULL, run_often, &runners[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *done = NULL;
    pthread_join(threads[i], &done);
    assert_ptr_equal(done, &runners[i]);
  }
  kiln_module_release(m);
}

// --- refused runs ---

static int64_t wrong_shape[] = {ROWS, COLS + 1}, wrong_strides[] = {1, ROWS}, one[] = {N};
static void bad_dtype(DLTensor *t) { t->dtype = (DLDataType){kDLInt, 64, 1}; }
static void bad_lanes(DLTensor *t) { t->dtype.lanes = 4; }
static void bad_rank(DLTensor *t) {
  t->ndim = 1;
  t->shape = one;
}
static void bad_negative_rank(DLTensor *t) { t->ndim = -1; }
static void bad_shape(DLTensor *t) { t->shape = wrong_shape; }
static void bad_no_shape(DLTensor *t) { t->shape = NULL; }
static void bad_strides(DLTensor *t) { t->strides = wrong_strides; }
static void bad_device(DLTensor *t) { t->device.device_type = kDLCUDA; }
static void bad_data(DLTensor *t) { t->data = NULL; }
static void bad_align(DLTensor *t) { t->byte_offset = 2; }

static const struct {
  void (*poke)(DLTensor *t);
  const char *message;
} refused[] = {
    {bad_dtype, "\"x\": error: dtype: must be f32, got i64"},
    {bad_lanes, "\"x\": error: dtype: must be f32, got another type"},
    {bad_rank, "\"x\": error: shape: must be [61, 16], got [976]"},
    {bad_negative_rank, "\"x\": error: shape: must have 2 extents, got rank -1"},
    {bad_shape, "\"x\": error: shape: must be [61, 16], got [61, 17]"},
    {bad_no_shape, "\"x\": error: shape: must have 2 extents"},
    {bad_strides, "\"x\": error: strides: must be row-major"},
    {bad_device, "\"x\": error: device: must be the CPU"},
    {bad_data, "\"x\": error: data: must point to elements, got NULL"},
    {bad_align, "\"x\": error: data: must be aligned to its 4-byte elements"},
};

static void expect(const kiln_diag *diag, size_t row, const char *message) {
  assert_int_equal(kiln_diag_count(diag), 1);
  if (!strstr(kiln_diag_message(diag, 0), message))
    fail_msg("row %zu: %s", row, kiln_diag_message(diag, 0));
}

static void wrong_tensors_are_refused_by_name(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session *s = NULL;
  tensors t = make_tensors();
  assert_int_equal(kiln_session_create(m, NULL, NULL, &s), KILN_OK);
  for (size_t row = 0; row < sizeof refused / sizeof refused[0]; row++) {
    kiln_diag *diag = kiln_diag_create();
    DLTensor bad = t.x->dl_tensor;
    const DLTensor *in[] = {&bad};
    refused[row].poke(&bad);
    assert_int_equal(kiln_session_run(s, 1, in, 3, t.out, diag), KILN_BAD_INPUT);
    expect(diag, row, refused[row].message);
    kiln_diag_destroy(diag);
  }
  kiln_session_destroy(s);
  destroy_tensors(&t);
  kiln_module_release(m);
}

static void wrong_counts_nulls_and_overlaps_are_refused(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session *s = NULL;
  tensors t = make_tensors();
  const DLTensor *in[] = {&t.x->dl_tensor}, *null[] = {NULL};
  DLTensor *same[] = {t.out[0], t.out[1], t.out[0]};
  DLTensor *onto[] = {t.out[0], t.out[1], &t.x->dl_tensor};
  assert_int_equal(kiln_session_create(m, NULL, NULL, &s), KILN_OK);
  const struct {
    size_t n_in;
    const DLTensor *const *in;
    size_t n_out;
    DLTensor *const *out;
    const char *message;
  } calls[] = {
      {0, in, 3, t.out, "inputs: must be 1, got 0"},
      {1, NULL, 3, t.out, "inputs: must be 1, got 0"},
      {1, in, 2, t.out, "outputs: must be 3, got 2"},
      {1, null, 3, t.out, "input 0 \"x\": error: must be a tensor, got NULL"},
      {1, in, 3, same, "output 2: its memory must not overlap that of output 0"},
      {1, in, 3, onto, "output 2: its memory must not overlap an input's"},
  };
  for (size_t row = 0; row < sizeof calls / sizeof calls[0]; row++) {
    kiln_diag *diag = kiln_diag_create();
    assert_int_equal(
        kiln_session_run(s, calls[row].n_in, calls[row].in, calls[row].n_out, calls[row].out, diag),
        KILN_BAD_INPUT);
    expect(diag, row, calls[row].message);
    kiln_diag_destroy(diag);
  }
  kiln_session_destroy(s);
  destroy_tensors(&t);
  kiln_module_release(m);
}

static void a_thread_count_out_of_range_is_refused(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  for (int threads = -1; threads <= 5000; threads += 5001) {
    kiln_diag *diag = kiln_diag_create();
    const kiln_session_options options = {.struct_size = sizeof options, .threads = threads};
    kiln_session *s = NULL;
    assert_int_equal(kiln_session_create(m, &options, diag, &s), KILN_BAD_INPUT);
    assert_null(s);
    expect(diag, 0, "threads: must be 0 to 1024");
    kiln_diag_destroy(diag);
  }
  kiln_module_release(m);
}

// Processor time of all threads of this process, in milliseconds.
static double used_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Processor time of an idle period behind runs on two threads: 200 ms, or longer where |enough| is
// not reached, as a busy machine gives a spinning thread little of its time.
static double idle_ms(int32_t spin_us, double enough) {
  const struct timespec idle = {0, 20000000};
  const kiln_session_options options = {
      .struct_size = sizeof options, .threads = 2, .spin_us = spin_us};
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session *s = NULL;
  tensors t = make_tensors();
  assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
  for (int i = 0; i < 20; i++) run_and_check(s, &t, (float)i);
  const double before = used_ms();
  double ms = 0;
  for (int i = 0; i < 10 || (i < 2000 && ms <= enough); i++) {
    nanosleep(&idle, NULL);
    ms = used_ms() - before;
  }
  for (int i = 0; i < 20; i++) run_and_check(s, &t, (float)i); // they wake up again
  kiln_session_destroy(s);
  destroy_tensors(&t);
  kiln_module_release(m);
  return ms;
}

static void an_idle_session_sleeps_after_its_bound(void **state) {
  (void)state;
  assert_true(idle_ms(-1, 0) < 1);
  assert_true(idle_ms(0, 0) < 10);
  if (kiln_cpu_cores() > 1) assert_true(idle_ms(60000000, 20) > 20); // why spinning is bounded
}

static atomic_int n_yields;

// In the C library's place.
int sched_yield(void) {
  atomic_fetch_add(&n_yields, 1);
  return 0;
}

// The worker works until the caller has given way.
static void wait_for_yield(void *argument, size_t i) {
  enum { MOST_SECONDS = 60 };
  (void)argument;
  for (const time_t end = time(NULL) + MOST_SECONDS; i == 1 && !n_yields && time(NULL) < end;)
    ;
}

static void a_thread_that_waits_long_gives_way(void **state) {
  cpu_set_t allowed;
  kiln_pool *pool = NULL;
  kiln_diag *diag = kiln_diag_create();
  (void)state;
  assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  assert_int_equal(kiln_pool_create(2, 0, INT64_C(100000000000), diag, &pool), KILN_OK);
  n_yields = 0;
  kiln_pool_begin(pool);
  if (CPU_COUNT(&allowed) > 1) { // with fewer nobody spins
    kiln_pool_run(pool, wait_for_yield, NULL, 2);
    assert_true(n_yields > 0);
  }
  kiln_pool_destroy(pool);
  kiln_diag_destroy(diag);
}

static void a_spin_below_minus_one_is_refused(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_diag *diag = kiln_diag_create();
  const kiln_session_options options = {.struct_size = sizeof options, .spin_us = -2};
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, &options, diag, &s), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "spin_us: must be -1 or more, got -2"));
  kiln_diag_destroy(diag);
  kiln_module_release(m);
}

// A caller compiled before |spin_us| existed has a shorter struct.
static void shorter_options_of_an_older_caller_are_understood(void **state) {
  (void)state;
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session_options options = {.struct_size = offsetof(kiln_session_options, spin_us),
                                  .threads = 1,
                                  .spin_us = -7}; // ignored
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
  kiln_session_destroy(s);
  kiln_module_release(m);
}

// --- forks ---

// Whether a run gives the right results; for children, in which assertions must not run.
static bool runs_right(kiln_session *s, tensors *t, float seed) {
  const DLTensor *in[] = {&t->x->dl_tensor};
  float *x = t->x->dl_tensor.data;
  for (int i = 0; i < N; i++) x[i] = seed + (float)i;
  if (kiln_session_run(s, 1, in, 3, t->out, NULL) != KILN_OK) return false;
  const float *y = t->out[0]->data;
  bool right = true;
  for (int i = 0; i < N; i++) right &= y[i] == (x[i] + (float)(i % COLS)) * 3;
  return right;
}

static int wait_for(pid_t child) {
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether all threads but the caller's are asleep.
static bool others_sleep(void) {
  bool all = true;
  DIR *tasks = opendir("/proc/self/task");
  for (const struct dirent *d; tasks && (d = readdir(tasks));) {
    char path[sizeof "/proc/self/task//stat" + sizeof d->d_name], line[256] = "";
    if (atoi(d->d_name) == 0 || atoi(d->d_name) == gettid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
    FILE *f = fopen(path, "r");
    const char *name_end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    all &= name_end && name_end[1] == ' ' && name_end[2] == 'S';
    if (f) fclose(f);
  }
  if (tasks) closedir(tasks);
  return all;
}

// Forks. gcc's AddressSanitizer does not handle its own locks at a fork, so with it no other thread
// may be running.
static pid_t fork_process(void) {
#ifdef __SANITIZE_ADDRESS__
  while (!others_sleep()) usleep(100);
#else
  (void)others_sleep;
#endif
  return fork();
}

// A child runs the session several times, as does a child of its own, and destroys it.
static void in_child(kiln_session *s, tensors *t) {
  bool right = true;
  alarm(120); // ends a child that hangs
  for (int i = 0; i < 5; i++) right &= runs_right(s, t, (float)i);
  const pid_t below = fork_process();
  if (below == 0) {
    for (int i = 0; i < 5; i++) right &= runs_right(s, t, (float)-i);
    kiln_session_destroy(s);
    _exit(right ? 0 : 1);
  }
  int status = -1;
  right &= waitpid(below, &status, 0) == below && status == 0;
  right &= runs_right(s, t, 3);
  kiln_session_destroy(s);
  _exit(right ? 0 : 1);
}

static void a_forked_child_runs_the_sessions_of_its_parent(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__ // which ends a forked process that starts threads
  skip();
#endif
  for (int threads = 1; threads <= 9; threads += threads < 3 ? 1 : 3)
    for (int has_run = 0; has_run < 2; has_run++)
      for (int32_t spin_us = -1; spin_us < 1; spin_us++) {
        const kiln_session_options options = {
            .struct_size = sizeof options, .threads = threads, .spin_us = spin_us};
        owner o = {0};
        kiln_module *m = make_module(&o, NULL);
        kiln_session *s = NULL;
        tensors t = make_tensors();
        assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
        if (has_run) run_and_check(s, &t, 1);
        const pid_t child = fork_process();
        if (child == 0) in_child(s, &t);
        for (int i = 0; i < 5; i++) run_and_check(s, &t, (float)i);
        assert_int_equal(wait_for(child), 0);
        kiln_session_destroy(s);
        destroy_tensors(&t);
        kiln_module_release(m);
      }
}

// A child that never runs the session destroys it nevertheless.
static void a_forked_child_ends_a_session_that_it_did_not_run(void **state) {
  (void)state;
  const kiln_session_options options = {.struct_size = sizeof options, .threads = 2};
  owner o = {0};
  kiln_module *m = make_module(&o, NULL);
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, &options, NULL, &s), KILN_OK);
  const pid_t child = fork_process();
  if (child == 0) {
    alarm(120);
    kiln_session_destroy(s);
    _exit(0);
  }
  assert_int_equal(wait_for(child), 0);
  kiln_session_destroy(s);
  kiln_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_forked_child_runs_the_sessions_of_its_parent),
      cmocka_unit_test(a_forked_child_ends_a_session_that_it_did_not_run),
      cmocka_unit_test(any_number_of_threads_gives_the_same_result),
      cmocka_unit_test(spans_lie_in_their_launches_and_have_each_thread_once),
      cmocka_unit_test(a_session_keeps_its_module),
      cmocka_unit_test(a_module_describes_itself),
      cmocka_unit_test(concurrent_sessions_of_one_module_do_not_disturb_each_other),
      cmocka_unit_test(wrong_tensors_are_refused_by_name),
      cmocka_unit_test(wrong_counts_nulls_and_overlaps_are_refused),
      cmocka_unit_test(a_thread_count_out_of_range_is_refused),
      cmocka_unit_test(an_idle_session_sleeps_after_its_bound),
      cmocka_unit_test(a_thread_that_waits_long_gives_way),
      cmocka_unit_test(a_spin_below_minus_one_is_refused),
      cmocka_unit_test(shorter_options_of_an_older_caller_are_understood),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
