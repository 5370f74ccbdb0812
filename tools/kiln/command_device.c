// kiln device: measures this machine, or shows its figures.
#include "kiln.h"

typedef struct reporting {
  const options *o;
  bool failed; // after a message
} reporting;

static void on_report(void *user, const char *text, const char *json) {
  reporting *r = user;
  printf("%s", text);
  r->failed = r->o->json && !write_text(r->o->json, "report", json);
}

static void on_progress(void *user, const char *phase, size_t done, size_t total) {
  (void)user;
  print_progress(phase, done, total);
}

int command_device(const options *o) {
  reporting r = {.o = o};
  kiln_diag *diag = kiln_diag_create();
  const kiln_device_options how = {.struct_size = sizeof how,
                                   .action = o->show      ? KILN_DEVICE_SHOW
                                             : o->measure ? KILN_DEVICE_MEASURE
                                                          : KILN_DEVICE_MEASURE_ONCE,
                                   .on_progress = on_progress,
                                   .on_report = on_report,
                                   .user = &r,
                                   .target = o->target};
  if (!diag) return fprintf(stderr, "device: error: no memory left\n"), EXIT_WRONG;
  const kiln_status st = kiln_device_report(&how, diag);
  print_messages(diag);
  kiln_diag_destroy(diag);
  return st == KILN_OK && !r.failed ? EXIT_RIGHT : EXIT_WRONG;
}
