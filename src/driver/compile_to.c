// Compiling to a file: a module for one shape, or for ranges of extents (dynamic/buckets.h).
#include "driver/flow.h"
#include "driver/pipeline.h"
#include "dynamic/buckets.h"

typedef struct writing {
  kiln_build build;
  kiln_output out;
  const char *path;
} writing;

static kiln_status make_there(kiln_ctx *cx, void *argument) {
  writing *w = argument;
  kiln_build *b = &w->build;
  b->request.may_be_late = true;
  b->request.out = &w->out;
  KILN_TRY(kiln_model_want_program(b->request.model, cx->diag));
  KILN_TRY(kiln_model_may_write(b->request.model, w->path, cx->diag));
  KILN_TRY(kiln_output_open(&w->out, w->path, cx->diag));
  KILN_TRY(kiln_build_run(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_MODULE, KILN_PHASE_MODULE));
  kiln_model_progress(b->request.model, "module", KILN_COMPILE_STEPS, KILN_COMPILE_STEPS);
  return KILN_OK;
}

kiln_status kiln_model_compile_to(kiln_model *model, const char *out_path, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  if (model->parted) return kiln_flow_compile_to(model, out_path, diag);
  if (model->ranges) return kiln_buckets_compile_to(model, out_path, diag);
  writing w = {.build = {.request.model = model}, .out = {.file.fd = -1}, .path = out_path};
  const kiln_status st = kiln_model_enter(model, diag, make_there, &w);
  kiln_output_discard(&w.out);
  kiln_build_deinit(&w.build);
  return st;
}
