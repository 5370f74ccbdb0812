// kiln test: runs directories in the ONNX backend-test layout: DIR/test_NAME/model.onnx with
// test_data_set_K/input_I.pb and output_I.pb. Every test runs in a child process, so that a crash
// or a hang fails that test only. Data is bound by position; inputs whose values must be known at
// compile time are bound as constants.
#include "kiln.h"

#include <dirent.h>
#include <fnmatch.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  PASSED,
  FAILED,
  SKIPPED,
  N_RESULTS,
  TIME_LIMIT_S = 60,
  MAX_PORTS = 256,
  MAX_CATEGORIES = 32
};

static const double official_rtol = 1e-3, official_atol = 1e-7; // of ONNX's own runner
static const double most_judged_flops = 2e9; // more would take the reference interpreter too long

typedef struct names {
  char **at;
  size_t n;
} names;

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(names *list, const char *dir, const char *name) {
  char **grown = realloc(list->at, (list->n + 1) * sizeof *grown),
       *path = malloc(strlen(dir) + strlen(name) + 2);
  if (!grown || !path) exit(EXIT_WRONG);
  sprintf(path, *name ? "%s/%s" : "%s", dir, name);
  list->at = grown;
  list->at[list->n++] = path;
}

static bool exists(const char *dir, const char *name) {
  char path[4096];
  struct stat s;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return !stat(path, &s);
}

// The folders under |dir| that hold a model, or |dir| itself.
static void find_tests(const char *dir, const char *glob, names *out) {
  DIR *d = opendir(dir);
  if (!d) {
    fprintf(stderr, "%s: error: test: must be a readable directory\n", dir);
    return;
  }
  if (exists(dir, "model.onnx")) {
    const char *slash = strrchr(dir, '/');
    if (!glob || !fnmatch(glob, slash ? slash + 1 : dir, 0)) add_name(out, dir, "");
  }
  for (struct dirent *e; (e = readdir(d));) {
    char model[512];
    snprintf(model, sizeof model, "%.255s/model.onnx", e->d_name);
    if (e->d_name[0] == '.' || !exists(dir, model) || (glob && fnmatch(glob, e->d_name, 0)))
      continue;
    add_name(out, dir, e->d_name);
  }
  closedir(d);
}

// The first module of this process, which is kept loaded: a GPU's context is destroyed with the
// last module that uses it, and creating one takes longer than a test.
typedef struct keeping {
  kiln_module *module;
  kiln_session *session;
} keeping;

// A running test directory.
typedef struct test_case {
  const options *o;
  keeping *kept; // NULL: nothing is kept
  // judged by the errors that right results may have as well, because no tolerance is given
  bool is_judged;
  bool is_excepted; // the expected outputs are known to be inaccurate
  double rtol, atol;
  char model_path[4096];
  kiln_model *read;              // the file as read, for names of inputs
  char in_names[MAX_PORTS][128]; // of the tensors: a list "x" has "x[0]", "x[1]", ...
  tensor *in[MAX_PORTS], *want[MAX_PORTS];
  size_t n_in, n_want;
  kiln_dim_value lengths[MAX_PORTS];  // of inputs that are lists; names are owned by |read|
  kiln_shape_value shapes[MAX_PORTS]; // of the lists' tensors
  size_t n_lengths, n_shapes;
  kiln_diag *diag;
} test_case;

// The subject of a test: a module, or its model in the simulator.
typedef struct subject {
  kiln_module *module; // NULL: the simulator runs the model
  kiln_model *model;
} subject;

static void subject_free(subject *s) {
  kiln_module_release(s->module);
  kiln_model_destroy(s->model);
  *s = (subject){0};
}

static size_t n_inputs(const subject *s) {
  return s->module ? kiln_module_input_count(s->module) : kiln_model_input_count(s->model);
}

static kiln_port input(const subject *s, size_t k) {
  return s->module ? kiln_module_input(s->module, k) : kiln_model_input(s->model, k);
}

static size_t n_outputs(const subject *s) {
  return s->module ? kiln_module_output_count(s->module) : kiln_model_output_count(s->model);
}

static kiln_port output(const subject *s, size_t k) {
  return s->module ? kiln_module_output(s->module, k) : kiln_model_output(s->model, k);
}

// Compiles the model with the given inputs bound to their data; false if that fails.
static bool compile(test_case *t, size_t n, const char *const *names_bound,
                    const DLTensor *const *data, subject *out) {
  const char *names_given[MAX_PORTS];
  kiln_compile_options co = {.struct_size = sizeof co,
                             .threads = t->o->threads ? (int32_t)t->o->threads : 1,
                             .target = target_of(t->o),
                             .dtype = t->o->dtype,
                             .dims = t->lengths,
                             .n_dims = t->n_lengths,
                             .shapes = t->shapes,
                             .n_shapes = t->n_shapes,
                             .overridable = names_given,
                             .n_overridable = t->n_in,
                             .constant_names = names_bound,
                             .constant_values = data,
                             .n_constants = n};
  kiln_model *model = NULL;
  for (size_t i = 0; i < t->n_in; i++) names_given[i] = t->in_names[i];
  *out = (subject){0};
  kiln_status st = kiln_model_load(t->model_path, &co, t->diag, &model);
  if (st == KILN_OK)
    st = simulates(t->o) ? kiln_model_emit(model, t->diag)
                         : kiln_model_compile(model, t->diag, &out->module);
  out->model = model;
  if (st != KILN_OK) subject_free(out);
  return st == KILN_OK;
}

// The inputs that become constants, from try to try: as few as possible, so that most runs
// compiled.
typedef enum binding { NOTHING, SHAPES, SMALL, INTEGERS, ALL_BUT_FIRST, N_BINDINGS } binding;

static bool is_bound(binding level, size_t i, const DLTensor *x) {
  const bool integer = x->dtype.code != kDLFloat, small = kiln_tensor_count(x) <= 16;
  const bool vector = x->ndim <= 1 && i > 0;
  switch (level) {
  case NOTHING: return false;
  case SHAPES: return integer && vector;
  case SMALL: return small && vector;
  case INTEGERS: return integer || small;
  case ALL_BUT_FIRST: return i > 0;
  case N_BINDINGS: break;
  }
  return true;
}

static bool compile_case(test_case *t, subject *out) {
  const char *bound[MAX_PORTS];
  const DLTensor *data[MAX_PORTS];
  bool done = false;
  for (size_t level = NOTHING, last = 0; level < N_BINDINGS && !done; level++) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_in; i++) {
      const DLTensor *x = &t->in[i]->dl_tensor;
      if (!is_bound((binding)level, i, x)) continue;
      bound[n] = t->in_names[i];
      data[n++] = x;
    }
    if (level == NOTHING || n != last) done = compile(t, n, bound, data, out);
    last = n;
  }
  return done;
}

static bool read_model(test_case *t) {
  kiln_compile_options co = {.struct_size = sizeof co, .read_only = 1};
  return kiln_model_load(t->model_path, &co, t->diag, &t->read) == KILN_OK;
}

// Reads the tensors of one value of a data set to out[n..]. Gives their number; -1 for an optional
// value without a tensor.
static bool read_value(test_case *t, const char *path, kiln_port port, size_t n, tensor **out,
                       int32_t *out_n) {
  const char *type = strchr(port.dtype, '(') ? port.dtype : NULL;
  if (kiln_value_read_pb(path, type, (int32_t)(MAX_PORTS - n), t->diag, out_n, out + n) != KILN_OK)
    return false;
  for (int32_t k = 0; k < *out_n && !type; k++)
    tensor_name_bits(&out[n], port.dtype); // ONNX's tests store bf16 as u16
  return true;
}

// Names tensor |n| of the inputs; |part| is its number in a list, whose tensors have shapes of
// their own, or -1.
static void add_input(test_case *t, const char *name, int32_t part, const tensor *x, size_t n) {
  if (part < 0) {
    snprintf(t->in_names[n], sizeof t->in_names[n], "%.120s", name);
    return;
  }
  snprintf(t->in_names[n], sizeof t->in_names[n], "%.100s[%d]", name, part);
  t->shapes[t->n_shapes++] =
      (kiln_shape_value){t->in_names[n], x->dl_tensor.ndim, x->dl_tensor.shape, NULL};
}

// Input files are numbered by the model's inputs; without those that have an initializer if there
// are fewer files.
static bool has_optional_files(const test_case *t, const char *dir, int set) {
  size_t n_needed = 0, n_files = 0;
  for (size_t i = 0, n = kiln_model_input_count(t->read); i < n; i++)
    n_needed += !kiln_model_input_is_optional(t->read, i);
  for (char name[128];; n_files++) {
    snprintf(name, sizeof name, "test_data_set_%d/input_%zu.pb", set, n_files);
    if (!exists(dir, name)) break;
  }
  return n_files > n_needed;
}

static bool read_set(test_case *t, const char *dir, int set, bool inputs) {
  size_t *n = inputs ? &t->n_in : &t->n_want;
  tensor **out = inputs ? t->in : t->want;
  const size_t n_ports =
      inputs ? kiln_model_input_count(t->read) : kiln_model_output_count(t->read);
  const bool takes_all = !inputs || has_optional_files(t, dir, set);
  size_t file = 0;
  *n = 0;
  if (inputs) t->n_lengths = t->n_shapes = 0;
  for (size_t i = 0; i < n_ports && *n < MAX_PORTS; i++) {
    if (!takes_all && kiln_model_input_is_optional(t->read, i)) continue;
    const kiln_port port = inputs ? kiln_model_input(t->read, i) : kiln_model_output(t->read, i);
    const bool is_list = strchr(port.dtype, '(') != NULL;
    char name[128], path[4096];
    int32_t count = 0;
    snprintf(name, sizeof name, "test_data_set_%d/%s_%zu.pb", set, inputs ? "input" : "output",
             file++);
    if (!exists(dir, name)) break;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!read_value(t, path, port, *n, out, &count)) return false;
    if (inputs && is_list) t->lengths[t->n_lengths++] = (kiln_dim_value){port.name, count};
    for (int32_t k = 0; k < count && inputs; k++)
      add_input(t, port.name, is_list ? k : -1, out[*n + (size_t)k], *n + (size_t)k);
    *n += count > 0 ? (size_t)count : 0;
  }
  return true;
}

static bool is_near(const test_case *t, const tensors *got, size_t i, char why[256]) {
  difference d;
  return tensor_compare(&got->at[i]->dl_tensor, &t->want[i]->dl_tensor, t->rtol, t->atol, &d, why);
}

static int fail_near(size_t i, const char *why) {
  printf("output %zu: %s", i, why);
  return FAILED;
}

// Compares by the tolerance alone.
static int compare_all(const test_case *t, const tensors *got) {
  char why[256];
  for (size_t i = 0; i < t->n_want; i++)
    if (!is_near(t, got, i, why)) return fail_near(i, why);
  return PASSED;
}

// --- judgement by the errors that right results may have ---

static bool can_judge(const test_case *t, const subject *s) {
  double flops = 0;
  for (size_t i = 0; s->module && i < kiln_module_launch_count(s->module); i++)
    flops += kiln_module_launch(s->module, i).flops;
  return t->is_judged && flops <= most_judged_flops;
}

static int fail_together(size_t i, const char *whose, const kiln_judgement *j) {
  printf("output %zu: all elements %stogether must be within 3 typical errors, got %.3g", i, whose,
         j->spread);
  return FAILED;
}

static int fail_judged(size_t i, const kiln_judgement *j) {
  if (j->together) return fail_together(i, "", j);
  printf("output %zu: element %lld must be within %.3g of the reference's %.9g, got %.9g", i,
         (long long)j->first_wrong, j->most, j->want, j->got);
  return FAILED;
}

// Expected outputs come from other implementations, whose steps may round more than Kiln's. If they
// are not right by themselves, they may differ from the result by ONNX's tolerance, provided that
// their errors together are not beyond chance.
static int judge_expected(const test_case *t, const tensors *got, size_t i,
                          const kiln_judgement *j) {
  const DLTensor *want = &t->want[i]->dl_tensor;
  char why[256];
  if (j->passed) return PASSED;
  if (!is_near(t, got, i, why)) return fail_near(i, why);
  if (want->dtype.code == kDLInt || want->dtype.code == kDLUInt) return fail_judged(i, j);
  const bool is_off = j->n_spread >= 64 && j->spread > 3 && !t->is_excepted;
  return is_off ? fail_together(i, "of what is expected ", j) : PASSED;
}

// |own| and |expected|: judgements of the results and of the expected outputs.
static int judge_each(test_case *t, const subject *s, const DLTensor *const *from,
                      const tensors *got, kiln_judgement *own, kiln_judgement *expected) {
  const DLTensor *wanted[MAX_PORTS];
  for (size_t i = 0; i < t->n_want; i++) wanted[i] = &t->want[i]->dl_tensor;
  if (kiln_model_judge(s->model, n_inputs(s), from, got->n, (const DLTensor *const *)got->views,
                       t->diag, own) != KILN_OK ||
      kiln_model_judge(s->model, n_inputs(s), from, got->n, wanted, t->diag, expected) != KILN_OK)
    return FAILED;
  for (size_t i = 0; i < t->n_want; i++) {
    if (!own[i].passed) return fail_judged(i, &own[i]);
    if (judge_expected(t, got, i, &expected[i]) != PASSED) return FAILED;
  }
  return PASSED;
}

static int judge_all(test_case *t, const subject *s, const DLTensor *const *from,
                     const tensors *got) {
  kiln_judgement *j = calloc(2 * t->n_want + 1, sizeof *j);
  if (!j) exit(FAILED);
  const int result = judge_each(t, s, from, got, j, j + t->n_want);
  free(j);
  return result;
}

static int judge_or_compare(test_case *t, const subject *s, const DLTensor *const *from,
                            const tensors *got) {
  if (got->n != t->n_want)
    return printf("must have %zu outputs, got %zu", t->n_want, got->n), FAILED;
  return can_judge(t, s) ? judge_all(t, s, from, got) : compare_all(t, got);
}

static kiln_status run_module(test_case *t, kiln_module *module, size_t n,
                              const DLTensor *const *from, tensors *out) {
  kiln_session *session = NULL;
  kiln_session_options so = {.struct_size = sizeof so,
                             .threads = t->o->threads ? (int32_t)t->o->threads : 1,
                             .device = (int32_t)t->o->device};
  kiln_status st = kiln_session_create(module, &so, t->diag, &session);
  if (st == KILN_OK) st = kiln_session_run(session, n, from, out->n, out->views, t->diag);
  for (size_t i = 0; st == KILN_OK && i < out->n; i++)
    if (!tensors_crop(out, i, kiln_session_output_shape(session, i))) st = KILN_NO_MEMORY;
  if (session && t->kept && !t->kept->session)
    *t->kept = (keeping){kiln_module_retain(module), session};
  else kiln_session_destroy(session);
  return st;
}

static int run_subject(test_case *t, const subject *s) {
  const DLTensor *from[MAX_PORTS];
  const char *report = NULL;
  tensors out;
  size_t n = n_inputs(s);
  if (n > MAX_PORTS) return printf("has more than %d inputs", MAX_PORTS), SKIPPED;
  for (size_t k = 0; k < n; k++) {
    from[k] = NULL;
    for (size_t i = 0; i < t->n_in; i++)
      if (!strcmp(t->in_names[i], input(s, k).name)) from[k] = &t->in[i]->dl_tensor;
  }
  const tensors in = {.n = n, .views = (DLTensor **)(uintptr_t)from};
  if (!(s->module ? tensors_for_outputs(s->module, &in, &out)
                  : tensors_for_results(s->model, &out)))
    return FAILED;
  kiln_status st = s->module
                       ? run_module(t, s->module, n, from, &out)
                       : kiln_model_simulate(s->model, n, from, out.n, out.views, t->diag, &report);
  for (size_t i = 0; !s->module && st == KILN_OK && i < out.n; i++)
    if (!tensors_crop(&out, i, kiln_model_output_shape(s->model, i))) st = KILN_NO_MEMORY;
  int result = st == KILN_OK ? judge_or_compare(t, s, from, &out) : FAILED;
  tensors_free(&out);
  return result;
}

// Converts an f32 tensor to the type of the module's port.
static bool convert(kiln_port port, tensor **io, kiln_diag *diag) {
  const DLTensor *x = &(*io)->dl_tensor;
  const char *dtype = kiln_tensor_dtype(x);
  if (!dtype || strcmp(dtype, "f32") || !strcmp(port.dtype, dtype)) return true;
  tensor *y = kiln_tensor_create(port.dtype, x->ndim, x->shape, diag);
  if (!y) return false;
  for (int64_t i = 0, n = kiln_tensor_count(x); i < n; i++)
    kiln_tensor_set_element(&y->dl_tensor, i, kiln_tensor_element(x, i));
  kiln_tensor_destroy(*io);
  *io = y;
  return true;
}

// With --dtype, a module's ports have other types than the test's data.
static bool convert_all(test_case *t, const subject *s) {
  bool right = true;
  for (size_t k = 0; k < n_inputs(s); k++)
    for (size_t i = 0; i < t->n_in; i++)
      if (!strcmp(t->in_names[i], input(s, k).name))
        right &= convert(input(s, k), &t->in[i], t->diag);
  for (size_t i = 0; i < t->n_want && i < n_outputs(s); i++)
    right &= convert(output(s, i), &t->want[i], t->diag);
  return right;
}

static int run_data_set(test_case *t, const char *dir, int set) {
  subject s = {0};
  const bool made = read_set(t, dir, set, true) && read_set(t, dir, set, false) &&
                    compile_case(t, &s) && convert_all(t, &s);
  int result = made ? run_subject(t, &s) : FAILED;
  size_t n = kiln_diag_count(t->diag);
  if (result == FAILED && n) printf("%s", kiln_diag_message(t->diag, n - 1));
  subject_free(&s);
  for (size_t i = 0; i < t->n_in; i++) kiln_tensor_destroy(t->in[i]);
  for (size_t i = 0; i < t->n_want; i++) kiln_tensor_destroy(t->want[i]);
  return result;
}

static int run_test(const char *dir, const options *o, keeping *kept) {
  if (!exists(dir, "test_data_set_0")) return printf("has no test_data_set_0"), SKIPPED;
  test_case *t = calloc(1, sizeof *t);
  if (!t || !(t->diag = kiln_diag_create())) exit(FAILED);
  t->o = o;
  t->kept = kept;
  const test_kind kind = test_kind_of(dir);
  const bool has_rtol = option_is_given(o, offsetof(options, rtol));
  t->is_judged = !has_rtol && o->atol <= 0;
  t->is_excepted = kind.atol > 0;
  t->rtol = has_rtol ? o->rtol : official_rtol;
  t->atol = o->atol > 0 ? o->atol : kind.atol > 0 ? kind.atol : official_atol;
  snprintf(t->model_path, sizeof t->model_path, "%s/model.onnx", dir);
  int result = read_model(t) ? PASSED : FAILED;
  const size_t n = kiln_diag_count(t->diag);
  if (result == FAILED)
    // the message after warnings
    printf("%s", n ? kiln_diag_message(t->diag, n - 1) : "cannot be read");
  for (int set = 0; result == PASSED; set++) {
    char name[64];
    snprintf(name, sizeof name, "test_data_set_%d", set);
    if (!exists(dir, name)) break;
    result = run_data_set(t, dir, set);
  }
  kiln_model_destroy(t->read);
  kiln_diag_destroy(t->diag);
  free(t);
  return result;
}

// A test in a child process. Its one-line explanation fits the pipe, so that it never blocks.
typedef struct job {
  pid_t child;
  int from;
  bool done;
  int result;
  char why[512];
} job;

static void start_job(const char *dir, const options *o, job *j) {
  int pipes[2];
  *j = (job){.child = -1, .from = -1, .done = true, .result = FAILED};
  if (pipe(pipes)) return;
  fflush(NULL);
  j->child = fork();
  if (j->child == 0) {
    dup2(pipes[1], 1);
    close(pipes[0]);
    close(pipes[1]);
    if (!o->verbose && !freopen("/dev/null", "w", stderr)) _exit(FAILED);
    alarm(TIME_LIMIT_S);
    int result = run_test(dir, o, NULL);
    fflush(stdout);
    _exit(result);
  }
  close(pipes[1]);
  j->from = pipes[0];
  j->done = j->child < 0;
}

static void end_job(job *j, int status) {
  size_t n = 0, room = sizeof j->why - 1;
  for (ssize_t k; n < room && (k = read(j->from, j->why + n, room - n)) > 0;) n += (size_t)k;
  j->done = true;
  j->result = WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
  if (j->result > SKIPPED) j->result = FAILED;
  if (WIFEXITED(status)) return;
  if (WTERMSIG(status) == SIGALRM)
    snprintf(j->why, sizeof j->why, "hangs: took over %d s", TIME_LIMIT_S);
  else snprintf(j->why, sizeof j->why, "crashes: signal %d", WTERMSIG(status));
}

static void close_job(job *j) {
  if (j->from >= 0) close(j->from);
  j->from = -1;
}

static void wait_for_one(job *jobs, size_t n) {
  int status = 0;
  pid_t child = waitpid(-1, &status, 0);
  for (size_t i = 0; i < n; i++) {
    if (jobs[i].done || (child >= 0 && jobs[i].child != child)) continue;
    if (child >= 0) end_job(&jobs[i], status);
    jobs[i].done = true; // no children are left to wait for
    close_job(&jobs[i]);
  }
}

// Runs a test in this process, which prints its own explanation.
static void run_here(const char *dir, const options *o, keeping *kept, job *j) {
  *j = (job){.child = -1, .from = -1, .done = true, .result = run_test(dir, o, kept)};
  if (j->result != PASSED) printf("\n");
}

// Runs all tests, several at a time.
static job *run_jobs(const names *tests, const options *o) {
  const size_t most = o->jobs > 0 ? (size_t)o->jobs : (size_t)sysconf(_SC_NPROCESSORS_ONLN);
  job *jobs = calloc(tests->n + 1, sizeof *jobs);
  size_t running = 0;
  keeping kept = {0};
  for (size_t i = 0; jobs && i < tests->n; i++) {
    if (o->in_process) run_here(tests->at[i], o, &kept, &jobs[i]);
    else start_job(tests->at[i], o, &jobs[i]);
    running += !jobs[i].done;
    if (running >= most) wait_for_one(jobs, i + 1), running--;
    print_progress("test", i + 1, tests->n + 1);
  }
  for (; jobs && running > 0; running--) wait_for_one(jobs, tests->n);
  kiln_session_destroy(kept.session);
  kiln_module_release(kept.module);
  print_progress("test", tests->n + 1, tests->n + 1);
  return jobs;
}

// --- results ---

static const char *const results[N_RESULTS] = {"passed", "FAILED", "skipped"};

static json_t *row_of(const char *test, const job *j) {
  const test_kind kind = test_kind_of(test);
  json_t *operators = json_array();
  for (size_t i = 0; i < kind.n_operators; i++)
    json_array_append_new(operators, json_string(kind.operators[i]));
  return json_pack("{s:s, s:s, s:s%, s:s, s:o}", "test", test, "result", results[j->result], "why",
                   j->why, strlen(j->why), "category", kind.category, "operators", operators);
}

typedef struct category {
  const char *name;
  size_t counts[N_RESULTS];
} category;

static size_t all_of(const category *c) {
  return c->counts[PASSED] + c->counts[FAILED] + c->counts[SKIPPED];
}

static int by_tests(const void *a, const void *b) {
  const category *x = a, *y = b;
  if (all_of(x) != all_of(y)) return all_of(x) < all_of(y) ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void print_categories(const names *tests, const job *jobs) {
  category at[MAX_CATEGORIES] = {{0}};
  size_t n = 0, k = 0;
  for (size_t i = 0; i < tests->n; i++) {
    const char *name = test_kind_of(tests->at[i]).category;
    for (k = 0; k < n && strcmp(at[k].name, name);) k++;
    if (k == n && n + 1 < MAX_CATEGORIES) at[n++].name = name;
    at[k].counts[jobs[i].result]++;
  }
  qsort(at, n, sizeof *at, by_tests);
  for (k = 0; k < n; k++)
    printf("%-34s%5zu of %zu\n", at[k].name, at[k].counts[PASSED], all_of(&at[k]));
  const char *name = NULL, *why = NULL;
  double atol = 0;
  for (size_t i = 0; (why = test_exception(i, &name, &atol)); i++)
    printf("%s has atol %g: %s\n", name, atol, why);
}

int command_test(const options *o) {
  names tests = {0};
  size_t counts[N_RESULTS] = {0};
  json_t *rows = json_array();
  for (int i = 0; i < o->args.n; i++) find_tests(o->args.at[i], o->glob, &tests);
  if (tests.n) qsort(tests.at, tests.n, sizeof *tests.at, by_name);
  if (tests.n) compiler_load(); // once, for all children
  job *jobs = run_jobs(&tests, o);
  for (size_t i = 0; jobs && i < tests.n; i++) {
    const job *j = &jobs[i];
    counts[j->result]++;
    if (j->result != PASSED || o->verbose)
      printf("%s %s%s%s\n", results[j->result], tests.at[i], j->why[0] ? ": " : "", j->why);
    if (o->json) json_array_append_new(rows, row_of(tests.at[i], j));
  }
  if (o->by_category && jobs) print_categories(&tests, jobs);
  for (size_t i = 0; i < tests.n; i++) free(tests.at[i]);
  free(tests.at);
  free(jobs);
  char *text = o->json ? json_dumps(rows, JSON_INDENT(2)) : NULL;
  const bool written = !o->json || (text && write_text(o->json, "output", text));
  free(text);
  json_decref(rows);
  printf("%zu passed, %zu failed, %zu skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
  return counts[FAILED] == 0 && counts[PASSED] > 0 && written ? EXIT_RIGHT : EXIT_WRONG;
}
