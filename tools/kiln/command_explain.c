// kiln explain and kiln cache: what the compiler decided, and what it keeps.
#include "kiln.h"

#include <stdlib.h>

int command_explain(const options *o) {
  loaded l;
  const char *text = NULL;
  if (refuse_module(o->args.at[0], "explain") || !load_model(o, o->args.at[0], false, &l))
    return EXIT_WRONG;
  kiln_diag *diag = kiln_diag_create();
  const kiln_explain_options eo = {.struct_size = sizeof eo,
                                   .kernel = o->kernel,
                                   .why = {o->why.at[0], o->why.at[1]},
                                   .measure = o->measure,
                                   .json = o->json != NULL};
  const kiln_status st = diag ? kiln_model_explain(l.model, &eo, diag, &text) : KILN_NO_MEMORY;
  if (diag) print_messages(diag);
  if (st == KILN_OK) print_tuning(o, l.model);
  const bool right =
      st == KILN_OK && may_write(o, l.model, o->json) && write_text(o->json, "output", text);
  kiln_diag_destroy(diag);
  loaded_free(&l);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

int command_orchestrate(const options *o) {
  loaded l;
  const char *text = NULL;
  options with = *o;
  with.orchestrate = true;
  if (refuse_module(o->args.at[0], "orchestrate")) return EXIT_WRONG;
  if (o->out) { // the kernels, to that file
    with.emit = "orchestration";
    return emit_model(&with, o->args.at[0]) ? EXIT_RIGHT : EXIT_WRONG;
  }
  if (!load_model(&with, o->args.at[0], false, &l)) return EXIT_WRONG;
  kiln_diag *diag = kiln_diag_create();
  const kiln_explain_options eo = {
      .struct_size = sizeof eo, .orchestration = 1, .json = o->json != NULL};
  const kiln_status st = diag ? kiln_model_explain(l.model, &eo, diag, &text) : KILN_NO_MEMORY;
  if (diag) print_messages(diag);
  const bool right =
      st == KILN_OK && may_write(o, l.model, o->json) && write_text(o->json, "output", text);
  kiln_diag_destroy(diag);
  loaded_free(&l);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

typedef struct listing {
  size_t n;
  double bytes;
} listing;

static void print_entry(void *user, const kiln_cache_entry *e) {
  listing *l = user;
  printf("%-8s %9llu bytes  %s\n", e->kind, (unsigned long long)e->bytes, e->label);
  l->n++;
  l->bytes += (double)e->bytes;
}

int command_cache(const options *o) {
  kiln_diag *diag = kiln_diag_create();
  listing l = {0};
  kiln_status st = KILN_OK;
  if (o->list == o->clear) {
    fprintf(stderr, "kiln cache: error: options: must be --list or --clear, got %s\n",
            o->list ? "both" : "none");
    kiln_diag_destroy(diag);
    return EXIT_USAGE;
  }
  if (o->list) st = kiln_cache_list(diag, print_entry, &l);
  if (o->clear) st = kiln_cache_clear(diag);
  if (o->list && st == KILN_OK) printf("%zu entries, %.1f MB\n", l.n, l.bytes / 1e6);
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? EXIT_RIGHT : EXIT_WRONG;
}
