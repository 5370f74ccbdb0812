// Model reduction: converts types between the public interface and onnx/.
#include "onnx/reduce.h"

#include "model/model.h"

#include <string.h>

typedef struct reducing {
  const char *path, *out;
  const kiln_reduce_options *o;
  kiln_reduced *result;
} reducing;

static bool fails(void *user) {
  const kiln_reduce_options *o = user;
  return o->fails(o->user) != 0;
}

static void on_progress(void *user, size_t tries, size_t nodes) {
  const kiln_reduce_options *o = user;
  if (o->on_progress) o->on_progress(o->user, tries, nodes);
}

// Takes ports with tensor types; others are left out.
static size_t take_known(kiln_ctx *cx, const kiln_reduce_options *o, kiln_onnx_known *out) {
  size_t n = 0;
  for (size_t i = 0; i < o->n_known; i++) {
    const kiln_port *p = &o->known[i];
    kiln_dtype t;
    if (!kiln_dtype_parse(p->dtype, strlen(p->dtype), &t)) continue;
    out[n++] = (kiln_onnx_known){kiln_arena_strdup(&cx->perm, p->name), kiln_dtype_onnx(t), p->rank,
                                 p->shape};
  }
  return n;
}

static kiln_status reduce(kiln_ctx *cx, void *argument) {
  const reducing *r = argument;
  kiln_onnx_known *known = KILN_NEW_ARRAY(&cx->perm, kiln_onnx_known, r->o->n_known);
  kiln_onnx_reducing how = {.trial = r->o->trial,
                            .known = known,
                            .n_known = take_known(cx, r->o, known),
                            .fails = fails,
                            .on_progress = on_progress,
                            .user = (void *)(uintptr_t)r->o};
  KILN_TRY(kiln_onnx_reduce(cx, r->path, r->out, &how));
  *r->result = (kiln_reduced){how.tries, how.nodes_before, how.nodes};
  return KILN_OK;
}

static kiln_status expose(kiln_ctx *cx, void *argument) {
  const reducing *r = argument;
  return kiln_onnx_expose(cx, r->path, r->out);
}

static kiln_status within(kiln_diag *diag, kiln_status (*body)(kiln_ctx *cx, void *argument),
                          reducing *r) {
  kiln_ctx cx;
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, body, r);
  kiln_ctx_deinit(&cx);
  return st;
}

kiln_status kiln_model_reduce(const char *path, const char *out_path,
                              const kiln_reduce_options *options, kiln_diag *diag,
                              kiln_reduced *out) {
  reducing r = {path, out_path, options, out};
  KILN_TRY(kiln_argument_check(diag, __func__, "out", out));
  *out = (kiln_reduced){0};
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  KILN_TRY(kiln_argument_check(diag, __func__, "options", options));
  KILN_TRY(kiln_argument_check(diag, __func__, "trial", options->trial));
  return within(diag, reduce, &r);
}

kiln_status kiln_model_expose(const char *path, const char *out_path, kiln_diag *diag) {
  reducing r = {path, out_path, NULL, NULL};
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  return within(diag, expose, &r);
}
