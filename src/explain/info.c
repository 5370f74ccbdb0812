// Information without a model: the host, supported operators, tensors in ONNX files.
#include "model/model.h"
#include "target/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kiln_onnx_versions(int32_t *out_ir, int32_t *out_opset) {
  if (out_ir) *out_ir = KILN_ONNX_NEWEST_IR;
  if (out_opset) *out_opset = KILN_ONNX_NEWEST_OPSET;
}

kiln_operator_info kiln_operator(size_t i) {
  for (const kiln_op *const *table = kiln_ops; *table; table++)
    for (const kiln_op *op = *table; op->name; op++)
      if (i-- == 0)
        return (kiln_operator_info){op->domain, op->name, op->since, op->until, op->file};
  return (kiln_operator_info){0};
}

// --- the host ---

static kiln_status describe_host(kiln_ctx *cx, void *argument) {
  kiln_machine m;
  KILN_TRY(kiln_machine_host(cx, &m));
  snprintf(
      argument, 512,
      "%s (%s), %d cores, vectors of %d bit, %d registers%s%s%s%s, L1 %d KB, L2 %d KB, L3 %d KB",
      m.cpu, m.triple, m.n_cores, m.vector_bytes * 8, m.n_vector_regs, m.has_fma ? ", fma" : "",
      m.has_f16 ? ", f16" : "", m.has_bf16 ? ", bf16" : "", m.has_vnni ? ", vnni" : "",
      (int)(m.l1_bytes / 1024), (int)(m.l2_bytes / 1024), (int)(m.l3_bytes / 1024));
  return KILN_OK;
}

const char *kiln_host(void) {
  static _Thread_local char text[512]; // owned by the thread: callers need not free it
  kiln_ctx cx;
  if (kiln_ctx_init(&cx, NULL) != KILN_OK) return "unknown";
  if (kiln_ctx_enter(&cx, describe_host, text) != KILN_OK) snprintf(text, sizeof text, "unknown");
  kiln_ctx_deinit(&cx);
  return text;
}

// --- operators of a file ---

typedef struct listing {
  const char *path;
  kiln_operator_fn on_operator;
  void *user;
} listing;

static kiln_status read_operators(kiln_ctx *cx, void *argument) {
  const listing *l = argument;
  return kiln_onnx_read_operators(cx, l->path, l->on_operator, l->user);
}

kiln_status kiln_model_read_operators(const char *path, kiln_operator_fn on_operator, void *user,
                                      kiln_diag *diag) {
  listing l = {path, on_operator, user};
  kiln_ctx cx;
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  KILN_TRY(kiln_argument_check(diag, __func__, "on_operator", on_operator));
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, read_operators, &l);
  kiln_ctx_deinit(&cx);
  return st;
}

// --- tensors ---

typedef struct reading {
  const char *path, *type;
  int max, n;
  kiln_onnx_file *file;
  DLManagedTensorVersioned **tensors;
} reading;

static kiln_status read_value(kiln_ctx *cx, void *argument) {
  reading *r = argument;
  kiln_const *made = KILN_NEW_ARRAY(&cx->perm, kiln_const, r->max);
  KILN_TRY(kiln_onnx_read_value(cx, r->path, r->type, r->max, &r->file, &r->n, made));
  if (r->n > r->max)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, r->path,
                     "value: must have at most %d tensors, got %d", r->max, r->n);
  for (int i = 0; i < r->n; i++) {
    const kiln_const *c = &made[i];
    r->tensors[i] = kiln_tensor_create(kiln_dtype_text(c->dtype), c->rank, c->shape, cx->diag);
    if (!r->tensors[i]) return KILN_NO_MEMORY;
    kiln_tensor_pack(&r->tensors[i]->dl_tensor, c->data);
  }
  return KILN_OK;
}

kiln_status kiln_value_read_pb(const char *path, const char *type, int32_t max, kiln_diag *diag,
                               int32_t *out_n, DLManagedTensorVersioned **out_tensors) {
  reading r = {.path = path, .type = type, .max = max, .tensors = out_tensors};
  kiln_ctx cx;
  KILN_TRY(kiln_argument_check(diag, __func__, "out_n", out_n));
  *out_n = 0;
  if (max > 0) KILN_TRY(kiln_argument_check(diag, __func__, "out_tensors", out_tensors));
  for (int i = 0; i < max; i++) out_tensors[i] = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  if (max < 0)
    return KILN_FAIL(diag, KILN_BAD_INPUT, path, "max: must not be negative, got %d", max);
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, read_value, &r);
  kiln_onnx_close(r.file);
  kiln_ctx_deinit(&cx);
  for (int i = 0; st != KILN_OK && i < max; i++) {
    kiln_tensor_destroy(out_tensors[i]);
    out_tensors[i] = NULL;
  }
  if (st == KILN_OK) *out_n = r.n;
  return st;
}

kiln_status kiln_tensor_read_pb(const char *path, kiln_diag *diag,
                                DLManagedTensorVersioned **out_tensor) {
  int32_t n = 0;
  KILN_TRY(kiln_argument_check(diag, __func__, "out_tensor", out_tensor));
  return kiln_value_read_pb(path, NULL, 1, diag, &n, out_tensor);
}
