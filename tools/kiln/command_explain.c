// kiln explain and kiln orchestrate: reports of the compiler's decisions.
#include "kiln.h"

#include <stdlib.h>

int command_explain(const options *o) {
  loaded l;
  const char *text = NULL;
  if (refuse_module(o->args.at[0], "explain")) return EXIT_WRONG;
  if (!load_model(o, o->args.at[0], false, &l)) return l.code;
  kiln_diag *diag = kiln_diag_create();
  const kiln_explain_options eo = {.struct_size = sizeof eo,
                                   .kernel = o->kernel,
                                   .why = {o->why.at[0], o->why.at[1]},
                                   .measure = o->measure,
                                   .count = o->count,
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
  if (o->out) { // writes the kernels to that file
    with.emit = "orchestration";
    return emit_model(&with, o->args.at[0]);
  }
  if (!load_model(&with, o->args.at[0], false, &l)) return l.code;
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
