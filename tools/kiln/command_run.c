// kiln run: runs a model once, and prints, writes or compares its outputs.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_tensor(const char *name, const DLTensor *t) {
  int64_t n = kiln_tensor_count(t);
  printf("%s: %s[", name, kiln_tensor_dtype(t));
  for (int32_t k = 0; k < t->ndim; k++) printf("%s%lld", k ? "x" : "", (long long)t->shape[k]);
  printf("]");
  for (int64_t i = 0; i < n && i < 8; i++) printf(" %.6g", kiln_tensor_element(t, i));
  printf(n > 8 ? " ...\n" : "\n");
}

static bool write_output(const options *o, const loaded *l, size_t i, const DLTensor *t) {
  char name[OUTPUT_NAME_ROOM];
  output_file_name(l->module, i, name);
  char *path = malloc(strlen(o->output_dir) + sizeof name + 2);
  if (!path) return fprintf(stderr, "%s: error: output: no memory left\n", name), false;
  sprintf(path, "%s/%s", o->output_dir, name);
  const bool right = may_write(o, l->model, path) && npy_write(path, t);
  if (right) printf("%s: written to %s\n", kiln_module_output(l->module, i).name, path);
  free(path);
  return right;
}

static bool write_outputs(const options *o, const loaded *l, const tensors *outputs) {
  const kiln_module *m = l->module;
  if (o->output_dir) mkdir(o->output_dir, 0777);
  for (size_t i = 0; o->output_dir && i < outputs->n; i++)
    if (!write_output(o, l, i, &outputs->at[i]->dl_tensor)) return false;
  if (!o->outputs_npz) return true;
  if (!may_write(o, l->model, o->outputs_npz)) return false;
  const char **names = calloc(outputs->n + 1, sizeof *names);
  for (size_t i = 0; names && i < outputs->n; i++) names[i] = kiln_module_output(m, i).name;
  bool right = names && npz_write(o->outputs_npz, outputs->n, names, outputs->at);
  free(names);
  return right;
}

static bool report(const char *name, const DLTensor *got, const DLTensor *want, const options *o) {
  difference d;
  char why[256] = "";
  const double rtol = o->rtol > 0 ? o->rtol : 1e-3, atol = o->atol > 0 ? o->atol : 1e-5;
  bool same = tensor_compare(got, want, rtol, atol, &d, why);
  printf("%s: %s: relative L2 error %.3g, largest difference %.3g%s%s\n", name,
         same ? "matches" : "DIFFERS", d.rel_l2, d.max_abs, same ? "" : ": ", same ? "" : why);
  return same;
}

static void unknown_output(const kiln_module *m, const char *name, size_t n) {
  fprintf(stderr, "kiln: error: --expect: must be NAME=FILE with the name of an output (");
  for (size_t i = 0; i < kiln_module_output_count(m); i++)
    fprintf(stderr, "%s%s", i ? ", " : "", kiln_module_output(m, i).name);
  fprintf(stderr, "), got '%.*s'\n", (int)n, name);
}

static bool check_expected(const options *o, const kiln_module *m, const tensors *outputs) {
  bool right = true;
  for (int e = 0; e < o->expects.n; e++) {
    const size_t n = name_length(o->expects.at[e]);
    bool known = false;
    for (size_t i = 0; i < outputs->n; i++) {
      const char *name = kiln_module_output(m, i).name;
      if (strlen(name) != n || strncmp(name, o->expects.at[e], n)) continue;
      tensor *want = tensor_read(o->expects.at[e] + n + 1);
      known = true;
      if (want) tensor_name_bits(&want, kiln_module_output(m, i).dtype);
      right &= want && report(name, &outputs->at[i]->dl_tensor, &want->dl_tensor, o);
      kiln_tensor_destroy(want);
    }
    if (!known) unknown_output(m, o->expects.at[e], n);
    right &= known;
  }
  return right;
}

static void report_judgement(const char *name, const kiln_judgement *j) {
  printf("%s: %s: relative L2 error %.3g, largest difference %.3g", name,
         j->passed ? "matches" : "DIFFERS", j->rel_l2, j->max_abs);
  if (j->together)
    printf(": all elements together must be within 3 typical errors, got %.3g", j->spread);
  else if (!j->passed && j->first_wrong < 0) printf(": the shape must be the reference's");
  else if (!j->passed)
    printf(": element %lld must be within %.3g of %.9g, got %.9g (%lld elements differ)",
           (long long)j->first_wrong, j->most, j->want, j->got, (long long)j->n_wrong);
  if (j->n_free) printf("; %lld elements are lost in rounding", (long long)j->n_free);
  printf("\n");
}

// Compares with the reference interpreter by the tolerances that the user gives.
static bool compare_reference(const options *o, const loaded *l, const tensors *inputs,
                              const tensors *outputs, kiln_diag *diag) {
  tensors want;
  bool right = true;
  if (!tensors_for_outputs(l->module, inputs, &want)) return false;
  bool made = kiln_model_reference(l->model, inputs->n, (const DLTensor *const *)inputs->views,
                                   want.n, want.views, diag) == KILN_OK;
  for (size_t i = 0; made && i < want.n; i++)
    made = tensors_crop(&want, i, kiln_model_output_shape(l->model, i));
  for (size_t i = 0; made && i < want.n; i++)
    right &= report(kiln_module_output(l->module, i).name, outputs->views[i], want.views[i], o);
  tensors_free(&want);
  return made && right;
}

static bool check_reference(const options *o, const loaded *l, const tensors *inputs,
                            const tensors *outputs, kiln_diag *diag) {
  bool right = true;
  if (!l->model)
    return fprintf(stderr, "kiln: error: --reference: must be given with a model, got a module\n"),
           false;
  if (o->rtol > 0 || o->atol > 0) return compare_reference(o, l, inputs, outputs, diag);
  kiln_judgement *j = calloc(outputs->n + 1, sizeof *j);
  bool made =
      j && kiln_model_judge(l->model, inputs->n, (const DLTensor *const *)inputs->views, outputs->n,
                            (const DLTensor *const *)outputs->views, diag, j) == KILN_OK;
  for (size_t i = 0; made && i < outputs->n; i++) {
    report_judgement(kiln_module_output(l->module, i).name, &j[i]);
    right &= j[i].passed != 0;
  }
  free(j);
  return made && right;
}

static bool run_once(const options *o, const loaded *l, const tensors *inputs, tensors *outputs,
                     kiln_diag *diag) {
  kiln_session_options so = {
      .struct_size = sizeof so, .threads = (int32_t)o->threads, .device = (int32_t)o->device};
  kiln_session *session = NULL;
  kiln_status st = kiln_session_create(l->module, &so, diag, &session);
  if (st == KILN_OK)
    st = kiln_session_run(session, inputs->n, (const DLTensor *const *)inputs->views, outputs->n,
                          outputs->views, diag);
  bool right = st == KILN_OK;
  for (size_t i = 0; right && i < outputs->n; i++)
    right = tensors_crop(outputs, i, kiln_session_output_shape(session, i));
  kiln_session_destroy(session);
  return right;
}

static bool simulate_once(const loaded *l, const tensors *inputs, tensors *outputs,
                          kiln_diag *diag) {
  const char *report = NULL;
  if (kiln_model_simulate(l->model, inputs->n, (const DLTensor *const *)inputs->views, outputs->n,
                          outputs->views, diag, &report) != KILN_OK)
    return false;
  fputs(report, stdout);
  bool right = true;
  for (size_t i = 0; right && i < outputs->n; i++)
    right = tensors_crop(outputs, i, kiln_model_output_shape(l->model, i));
  return right;
}

int command_run(const options *o) {
  loaded l;
  tensors inputs = {0}, outputs = {0};
  if (!load_model(o, o->args.at[0], true, &l)) return l.code;
  kiln_diag *diag = kiln_diag_create();
  bool right = diag && tensors_for_inputs(o, &l, &inputs) &&
               tensors_for_outputs(l.module, &inputs, &outputs);
  right = right && (simulates(o) ? simulate_once(&l, &inputs, &outputs, diag)
                                 : run_once(o, &l, &inputs, &outputs, diag));
  for (size_t i = 0; right && i < outputs.n; i++)
    print_tensor(kiln_module_output(l.module, i).name, &outputs.at[i]->dl_tensor);
  right = right && write_outputs(o, &l, &outputs) && check_expected(o, l.module, &outputs);
  if (right && o->reference) right = check_reference(o, &l, &inputs, &outputs, diag);
  if (diag) print_messages(diag);
  tensors_free(&inputs);
  tensors_free(&outputs);
  kiln_diag_destroy(diag);
  loaded_free(&l);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}
