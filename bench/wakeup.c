// What the runtime itself costs: a call of kiln_session_run, a launch in it (of 256 tiny kernels,
// each split over all threads), and waking the workers after an idle while. The kernels do nothing,
// so all that is measured is overhead. With threads that spin, as they do, and with threads that
// sleep at once.
//
// usage: wakeup_bench [THREADS...]     default: 1 2
#include "runtime/features.h"
#include "runtime/module.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAUNCHES = 256, ROUNDS = 201, WAKES = 21, IDLE_MS = 100 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
  qsort(v, n, sizeof *v, by_value);
  return v[n / 2];
}

static void nothing(char *const *args, int64_t begin, int64_t end) {
  (void)args, (void)begin, (void)end;
}

static void keep(void *owner) { (void)owner; }

// |n| launches of a kernel without arguments, each split over |threads|.
static kiln_module *make_module(uint32_t n, uint32_t threads, kiln_diag *diag) {
  static kiln_plan_launch launches[LAUNCHES];
  const char *features[] = {kiln_cpu_architecture()}, *functions[] = {"nothing"};
  const kiln_kernel_fn pointers[] = {nothing};
  kiln_plan_nest nest = {.threads = threads, .extent = 64};
  for (uint32_t i = 0; i < n; i++)
    launches[i] = (kiln_plan_launch){.kernel = "nothing", .nodes = "n", .n_nests = 1};
  const kiln_plan plan = {.n_features = 1,
                          .features = features,
                          .n_functions = 1,
                          .functions = functions,
                          .n_launches = n,
                          .launches = launches,
                          .n_nests = 1,
                          .nests = &nest};
  kiln_module_parts parts = {.n_functions = 1, .functions = pointers, .release = keep};
  void *blob = NULL;
  kiln_module *m = NULL;
  kiln_plan_write(&plan, &blob, &parts.plan_bytes);
  parts.plan = blob;
  if (blob && kiln_module_create(&parts, diag, &m) != KILN_OK) m = NULL;
  free(blob);
  return m;
}

static kiln_session *open_session(kiln_module *m, int32_t threads, bool spins, kiln_diag *diag) {
  const kiln_session_options options = {
      .struct_size = sizeof options, .threads = threads, .spin_us = spins ? 0 : -1};
  kiln_session *s = NULL;
  return m && kiln_session_create(m, &options, diag, &s) == KILN_OK ? s : NULL;
}

static double run_us(kiln_session *s, kiln_diag *diag) {
  const double start = now_us();
  if (kiln_session_run(s, 0, NULL, 0, NULL, diag) != KILN_OK) return -1;
  return now_us() - start;
}

static double back_to_back_us(kiln_session *s, kiln_diag *diag) {
  double us[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) us[i] = run_us(s, diag);
  return median(us, ROUNDS);
}

typedef struct figures {
  double run, launch, wake, worst; // us
} figures;

static void measure_wakes(kiln_session *s, kiln_diag *diag, figures *f) {
  const struct timespec idle = {0, IDLE_MS * 1000000};
  double us[WAKES];
  const double warm = back_to_back_us(s, diag);
  for (int i = 0; i < WAKES; i++) {
    nanosleep(&idle, NULL);
    us[i] = run_us(s, diag) - warm;
  }
  f->wake = median(us, WAKES);
  f->worst = us[WAKES - 1];
}

static bool measure(int32_t threads, bool spins, kiln_diag *diag, figures *f) {
  kiln_module *none = make_module(0, 1, diag), *one = make_module(1, (uint32_t)threads, diag),
              *many = make_module(LAUNCHES, (uint32_t)threads, diag);
  kiln_session *sessions[] = {open_session(none, threads, spins, diag),
                              open_session(one, threads, spins, diag),
                              open_session(many, threads, spins, diag)};
  const bool right = sessions[0] && sessions[1] && sessions[2];
  if (right) {
    f->run = back_to_back_us(sessions[0], diag);
    f->launch = (back_to_back_us(sessions[2], diag) - f->run) / LAUNCHES;
    measure_wakes(sessions[1], diag, f);
  }
  for (int i = 0; i < 3; i++) kiln_session_destroy(sessions[i]);
  kiln_module_release(none);
  kiln_module_release(one);
  kiln_module_release(many);
  return right;
}

int main(int argc, char **argv) {
  static const char *const usual[] = {"1", "2"};
  const int n = argc > 1 ? argc - 1 : 2;
  kiln_diag *diag = kiln_diag_create();
  bool right = diag != NULL;
  printf("%7s %6s %12s %12s %26s %10s\n", "threads", "spin", "run us", "launch us",
         "run after 100 ms idle +us", "worst +us");
  for (int i = 0; right && i < 2 * n; i++) {
    const int threads = atoi(argc > 1 ? argv[i / 2 + 1] : usual[i / 2]);
    const bool spins = i % 2 == 0;
    figures f = {0};
    if (threads == 1 && !spins) continue; // nobody waits
    right = measure(threads, spins, diag, &f);
    if (right)
      printf("%7d %6s %12.3f %12.3f %26.1f %10.1f\n", threads, spins ? "yes" : "no", f.run,
             f.launch, f.wake, f.worst);
  }
  for (size_t i = 0; diag && i < kiln_diag_count(diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(diag, i));
  kiln_diag_destroy(diag);
  return right ? 0 : 1;
}
