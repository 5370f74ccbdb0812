// kiln bench: times of compiling, loading and running; a table of kernels.
#include "timing.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct bench {
  const options *o;
  loaded l;
  tensors inputs, outputs;
  kiln_diag *diag;
  timed times;
  double *ms; // of all timed runs, sorted; malloc'ed
  stats s;    // of |ms|
} bench;

static bool run(bench *b, kiln_session *session) {
  return kiln_session_run(session, b->inputs.n, (const DLTensor *const *)b->inputs.views,
                          b->outputs.n, b->outputs.views, b->diag) == KILN_OK;
}

static size_t sessions_of(const options *o) {
  return o->concurrency > 1 ? (size_t)o->concurrency : 1;
}

// Threads of each session: concurrent sessions share the threads for which the module was made.
static int32_t threads_of(const bench *b) {
  const size_t n = sessions_of(b->o);
  if (b->o->threads || n == 1) return (int32_t)b->o->threads;
  const int32_t all = kiln_module_about(b->l.module).threads;
  return (size_t)all > n ? all / (int32_t)n : 1;
}

static kiln_session_options session_options_make(const bench *b, int32_t profile) {
  return (kiln_session_options){.struct_size = sizeof(kiln_session_options),
                                .threads = threads_of(b),
                                .profile = profile,
                                .device = (int32_t)b->o->device,
                                .spin_us = b->o->no_spin ? -1 : (int32_t)b->o->spin};
}

static kiln_session *open_session(bench *b) {
  const kiln_session_options so = session_options_make(b, b->o->trace ? 2 : 1);
  kiln_session *session = NULL;
  return kiln_session_create(b->l.module, &so, b->diag, &session) == KILN_OK ? session : NULL;
}

// A duration without a number of iterations replaces that.
static bool time_module(bench *b) {
  const options *o = b->o;
  const bool counts = !(o->duration > 0) || option_is_given(o, offsetof(options, iterations));
  const timing_options how = {.module = b->l.module,
                              .inputs = &b->inputs,
                              .session = session_options_make(b, 0),
                              .sessions = sessions_of(o),
                              .warmup = o->warmup,
                              .iterations = counts && o->iterations > 1 ? (size_t)o->iterations : 1,
                              .duration_ms = o->duration * 1e3};
  if (!time_runs(&how, &b->times)) return false;
  b->ms = malloc((b->times.n + 1) * sizeof *b->ms);
  for (size_t i = 0; b->ms && i < b->times.n; i++) b->ms[i] = b->times.runs[i].ms;
  if (b->ms) b->s = stats_of(b->ms, b->times.n);
  b->l.load_ms += b->times.open_ms; // of the module, if one was loaded, and of the session
  return b->ms != NULL;
}

static double runs_per_s(const bench *b) {
  return b->times.wall_ms > 0 ? 1e3 * (double)b->times.n / b->times.wall_ms : 0;
}

static double peak_bytes(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss * 1024;
}

// Prints the percentiles that --percentiles lists; they were checked to be numbers.
static void print_percentiles(const bench *b) {
  if (!b->o->percentiles) return;
  printf("percentiles");
  for (const char *at = b->o->percentiles; at; at = strchr(at, ',')) {
    at += at != b->o->percentiles; // skips the comma
    printf(" %.*s: %.3f", (int)strcspn(at, ","), at,
           percentile(b->ms, b->times.n, strtod(at, NULL)));
  }
  printf(" ms\n");
}

static void print_figures(const bench *b) {
  const kiln_module *m = b->l.module;
  if (b->l.model) printf("compile     %.1f ms\n", b->l.compile_ms);
  printf("load        %.2f ms\n", b->l.load_ms);
  printf("first run   %.3f ms\n", b->times.first_ms);
  if (sessions_of(b->o) > 1) printf("sessions    %zu at the same time\n", sessions_of(b->o));
  printf("latency     min %.3f  median %.3f  mean %.3f  p90 %.3f  p99 %.3f ms\n", b->s.min,
         b->s.median, b->s.mean, b->s.p90, b->s.p99);
  print_percentiles(b);
  printf("throughput  %.1f runs/s (%zu runs in %.2f s)\n", runs_per_s(b), b->times.n,
         b->times.wall_ms / 1e3);
  printf("memory      weights %.1f MB  arena %.1f MB  peak %.1f MB\n",
         (double)kiln_module_weight_bytes(m) / 1e6, (double)kiln_module_arena_bytes(m) / 1e6,
         peak_bytes() / 1e6);
}

typedef struct kernel_row {
  const char *name, *nodes;
  int launches;
  double ms, flops, bytes;
} kernel_row;

static int by_ms(const void *a, const void *b) {
  double x = ((const kernel_row *)a)->ms, y = ((const kernel_row *)b)->ms;
  return (x < y) - (x > y);
}

// Median time of every launch over |runs| profiled runs; [n_launches].
static double *profile_launches(bench *b, kiln_session *session, size_t runs) {
  size_t n = kiln_module_launch_count(b->l.module);
  double *ms = malloc((n ? n : 1) * sizeof *ms), *all = malloc((n ? n : 1) * runs * sizeof *all);
  bool right = ms && all;
  for (size_t r = 0; right && r < runs; r++) {
    right = run(b, session);
    for (size_t i = 0; i < n; i++)
      all[i * runs + r] = (double)kiln_session_launch_ns(session, i) / 1e6;
  }
  for (size_t i = 0; right && i < n; i++) ms[i] = stats_of(all + i * runs, runs).median;
  free(all);
  if (right) return ms;
  free(ms);
  return NULL;
}

static double per_ms(double amount, double ms) { return ms > 0 ? amount / ms * 1e-6 : 0; }

static void print_rows(kernel_row *rows, size_t n, double total) {
  qsort(rows, n, sizeof *rows, by_ms);
  printf("\n%-44s %5s %9s %6s %9s %8s  %s\n", "kernel", "runs", "ms", "%", "GFLOP/s", "GB/s",
         "nodes");
  for (size_t i = 0; i < n; i++)
    printf("%-44.44s %5d %9.3f %6.1f %9.1f %8.1f  %.60s\n", rows[i].name, rows[i].launches,
           rows[i].ms, total > 0 ? 100 * rows[i].ms / total : 0, per_ms(rows[i].flops, rows[i].ms),
           per_ms(rows[i].bytes, rows[i].ms), rows[i].nodes);
  printf("%-44s %5s %9.3f\n", "sum", "", total);
}

static bool print_profile(bench *b, kiln_session *session) {
  size_t n = kiln_module_launch_count(b->l.module), n_rows = 0;
  double *ms = profile_launches(b, session, 11), total = 0;
  kernel_row *rows = calloc(n ? n : 1, sizeof *rows);
  for (size_t i = 0; ms && rows && i < n; i++) {
    kiln_launch_info info = kiln_module_launch(b->l.module, i);
    size_t r = 0;
    // of a variant that was not run
    if (kiln_module_dim_count(b->l.module) > 0 && ms[i] <= 0) continue;
    while (r < n_rows && strcmp(rows[r].name, info.kernel)) r++;
    if (r == n_rows) rows[n_rows++] = (kernel_row){.name = info.kernel, .nodes = info.nodes};
    rows[r].launches++;
    rows[r].ms += ms[i];
    rows[r].flops += info.flops;
    rows[r].bytes += info.bytes;
    total += ms[i];
  }
  bool right = ms && rows;
  if (right) print_rows(rows, n_rows, total);
  free(rows);
  free(ms);
  return right;
}

static bool write_json(const bench *b, json_t *root, const char *path) {
  char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
  const bool right = text && may_write(b->o, b->l.model, path) && write_text(path, "output", text);
  if (!text) fprintf(stderr, "%s: error: output: no memory left\n", path);
  free(text);
  json_decref(root);
  return right;
}

static bool write_trace(bench *b, kiln_session *session) {
  char *text = run(b, session) ? trace_text(b->l.module, session) : NULL;
  const bool right =
      text && may_write(b->o, b->l.model, b->o->trace) && write_text(b->o->trace, "output", text);
  free(text);
  return right;
}

static bool write_figures(const bench *b) {
  const kiln_module *m = b->l.module;
  return write_json(
      b,
      json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, "
                "s:I, s:I}",
                "model", b->o->args.at[0], "threads", (json_int_t)b->o->threads, "sessions",
                (json_int_t)sessions_of(b->o), "runs", (json_int_t)b->times.n, "wall_ms",
                b->times.wall_ms, "compile_ms", b->l.compile_ms, "load_ms", b->l.load_ms,
                "first_ms", b->times.first_ms, "min_ms", b->s.min, "median_ms", b->s.median,
                "mean_ms", b->s.mean, "p90_ms", b->s.p90, "p99_ms", b->s.p99, "runs_per_s",
                runs_per_s(b), "weight_bytes", (json_int_t)kiln_module_weight_bytes(m),
                "arena_bytes", (json_int_t)kiln_module_arena_bytes(m), "arena_lower_bound_bytes",
                (json_int_t)kiln_module_arena_lower_bound_bytes(m), "peak_bytes",
                (json_int_t)peak_bytes()),
      b->o->json);
}

// Writes start, duration and session of every timed run.
static bool write_times(const bench *b) {
  json_t *runs = json_array();
  for (size_t i = 0; i < b->times.n; i++) {
    const timed_run *r = &b->times.runs[i];
    json_array_append_new(runs, json_pack("{s:I, s:f, s:f}", "session", (json_int_t)r->session,
                                          "start_ms", r->start_ms, "ms", r->ms));
  }
  return write_json(b,
                    json_pack("{s:s, s:I, s:f, s:o}", "model", b->o->args.at[0], "sessions",
                              (json_int_t)sessions_of(b->o), "wall_ms", b->times.wall_ms, "runs",
                              runs),
                    b->o->export_times);
}

static bool profile(bench *b) {
  if (!b->o->profile && !b->o->trace) return true;
  kiln_session *session = open_session(b);
  bool right = session && run(b, session);
  if (right && b->o->profile) right = print_profile(b, session);
  if (right && b->o->trace) right = write_trace(b, session);
  kiln_session_destroy(session);
  return right;
}

int command_bench(const options *o) {
  bench *b = calloc(1, sizeof *b);
  if (!b) return EXIT_WRONG;
  b->o = o;
  bool right = load_model(o, o->args.at[0], true, &b->l);
  const int failed = right ? EXIT_WRONG : b->l.code;
  b->diag = kiln_diag_create();
  right = right && b->diag && tensors_for_inputs(o, &b->l, &b->inputs) &&
          tensors_for_outputs(b->l.module, &b->inputs, &b->outputs);
  right = right && time_module(b);
  if (right) print_figures(b);
  right =
      right && profile(b) && (!o->json || write_figures(b)) && (!o->export_times || write_times(b));
  if (b->diag) print_messages(b->diag);
  tensors_free(&b->inputs);
  tensors_free(&b->outputs);
  timed_free(&b->times);
  free(b->ms);
  kiln_diag_destroy(b->diag);
  loaded_free(&b->l);
  free(b);
  return right ? EXIT_RIGHT : failed;
}
