// Output on stderr besides results: messages, progress, and details of compilation.
#include "kiln.h"

#include <string.h>
#include <unistd.h>

static bool is_quiet; // --quiet

void messages_quiet(bool quiet) { is_quiet = quiet; }

void print_messages(const kiln_diag *diag) {
  for (size_t i = 0; i < kiln_diag_count(diag); i++) {
    const char *message = kiln_diag_message(diag, i);
    if (!is_quiet || !strstr(message, "warning: ")) fprintf(stderr, "%s\n", message);
  }
}

int exit_code_of(const kiln_diag *diag) {
  for (size_t i = 0; diag && i < kiln_diag_count(diag); i++) {
    const char *place = kiln_diag_place(diag, i);
    if (place && !strcmp(place, "options")) return EXIT_USAGE;
  }
  return EXIT_WRONG;
}

bool shows_progress(void) { return !is_quiet && isatty(2); }

void print_progress(const char *what, size_t done, size_t total) {
  if (!shows_progress()) return;
  fprintf(stderr, "\r\033[K%s %zu/%zu", what, done, total);
  if (done >= total) fprintf(stderr, "\r\033[K");
}

static void print_passes(const kiln_model *model) {
  const kiln_pass_time *t;
  for (size_t i = 0, n = kiln_model_pass_times(model, &t); i < n; i++)
    fprintf(stderr, "pass %-18s %9.2f ms\n", t[i].name, t[i].ms);
}

static void print_launches(const kiln_module *module) {
  for (size_t i = 0; i < kiln_module_launch_count(module); i++) {
    const kiln_launch_info l = kiln_module_launch(module, i);
    fprintf(stderr, "launch %zu %s: %.3g flops, %.3g bytes: %s\n", i, l.kernel, l.flops, l.bytes,
            l.nodes);
  }
}

void print_details(const options *o, const kiln_model *model, const kiln_module *module) {
  if (o->verbose && model) print_passes(model);
  if (o->very_verbose && module) print_launches(module);
}

void print_module_summary(const char *path, const kiln_module *module) {
  const kiln_module_info a = kiln_module_about(module);
  const bool is_cpu = strncmp(a.target, "cuda", 4) != 0 && strcmp(a.target, "opencl") != 0;
  printf("%s: %s, %s", path, a.target, a.processor);
  if (is_cpu) printf(", %d thread%s", a.threads, a.threads == 1 ? "" : "s");
}
