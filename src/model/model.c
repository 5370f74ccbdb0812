// Models: descriptions and destruction.
#include "model/model.h"
#include "onnx/report.h"
#include "support/printable.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void kiln_core_release(void *object) {
  kiln_core *core = object;
  if (!core || atomic_fetch_sub(&core->refs, 1) != 1) return;
  kiln_onnx_close(core->file);
  kiln_ctx_deinit(&core->cx);
  free(core);
}

kiln_status kiln_model_enter(kiln_model *m, kiln_diag *diag,
                             kiln_status (*body)(kiln_ctx *cx, void *argument), void *argument) {
  kiln_ctx *cx = &m->core->cx;
  cx->diag = diag;
  kiln_status st = kiln_ctx_enter(cx, body, argument);
  cx->diag = NULL; // borrowed from the caller
  return st;
}

bool kiln_model_asks_backends(const kiln_model *m) {
  return m->options.backends && strcmp(m->options.backends, "none") != 0;
}

const char *kiln_name_shown(kiln_ctx *cx, const char *name) {
  const size_t n = strlen(name);
  if (kiln_text_is_printable(name, n)) return name;
  char *const text = kiln_arena_alloc(&cx->perm, KILN_PRINTABLE_GROWTH * n + 1);
  kiln_name_printable(name, n, text);
  return text;
}

void kiln_model_destroy(kiln_model *model) {
  if (!model) return;
  kiln_defaults_destroy(model);
  kiln_core_release(model->core);
  free(model);
}

int32_t kiln_model_reads(const kiln_model *model, const char *path) {
  struct stat asked, own;
  if (!model || !path || stat(path, &asked) != 0 || !S_ISREG(asked.st_mode)) return 0;
  const kiln_onnx_file *file = model->core->file;
  if (file && kiln_onnx_file_is_of(file, &asked)) return 1;
  return !file && stat(model->path, &own) == 0 && own.st_dev == asked.st_dev &&
         own.st_ino == asked.st_ino;
}

kiln_status kiln_model_may_write(const kiln_model *model, const char *path, kiln_diag *diag) {
  if (!kiln_model_reads(model, path)) return KILN_OK;
  return KILN_FAIL(diag, KILN_BAD_INPUT, path, "output: must not be a file that is read");
}

// --- describing ---

size_t kiln_model_pass_times(const kiln_model *model, const kiln_pass_time **out) {
  if (out) *out = model ? model->times.data : NULL;
  return model ? (size_t)model->times.n : 0;
}

kiln_tuning kiln_model_tuning(const kiln_model *model) {
  return model ? model->tuning : (kiln_tuning){0};
}
kiln_memory kiln_model_memory(const kiln_model *model) {
  return model ? model->memory : (kiln_memory){0};
}

size_t kiln_model_input_count(const kiln_model *model) {
  return model ? (size_t)model->inputs.n : 0;
}
size_t kiln_model_output_count(const kiln_model *model) {
  if (!model) return 0;
  if (model->ranges || !model->prog) return (size_t)model->outputs.n;
  return (size_t)kiln_program_n_results(model->prog);
}

static kiln_port port_at(const kiln_interface *face, size_t i) {
  return i < (size_t)face->n ? face->ports[i] : (kiln_port){0};
}

kiln_port kiln_model_input(const kiln_model *model, size_t i) {
  return model ? port_at(&model->inputs, i) : (kiln_port){0};
}

kiln_port kiln_model_output(const kiln_model *model, size_t i) {
  return i < kiln_model_output_count(model) ? port_at(&model->outputs, i) : (kiln_port){0};
}

const int64_t *kiln_model_output_shape(const kiln_model *model, size_t i) {
  if (i < kiln_model_output_count(model) && model->found && model->found[i]) return model->found[i];
  return kiln_model_output(model, i).shape;
}

const char *kiln_model_input_dim_name(const kiln_model *model, size_t i, int32_t axis) {
  if (i >= kiln_model_input_count(model) || axis < 0 || axis >= model->inputs.ports[i].rank)
    return NULL;
  return model->inputs.dim_names[i][axis];
}

typedef struct reporting {
  kiln_model *model;
  bool json;
} reporting;

static kiln_status report(kiln_ctx *cx, void *argument) {
  reporting *r = argument;
  if (r->model->definition)
    return kiln_definition_report(cx, r->model, r->json, &r->model->reports[r->json]);
  return kiln_onnx_report(cx, r->model->graph, r->json, &r->model->reports[r->json]);
}

// The report is made at the first request; logically the model is constant.
const char *kiln_model_report(const kiln_model *model, int json) {
  reporting r = {(kiln_model *)(uintptr_t)model, json != 0};
  if (!model) return "";
  if (!model->reports[r.json] && kiln_model_enter(r.model, NULL, report, &r) != KILN_OK) return "";
  return model->reports[r.json];
}
