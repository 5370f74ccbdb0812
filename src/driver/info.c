// What the compiler tells of itself: version, host, operators; and tensors of ONNX files.
#include "driver/model.h"
#include "target/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *kiln_version(void) { return KILN_VERSION; }

void kiln_onnx_versions(int32_t *out_ir, int32_t *out_opset) {
  *out_ir = KILN_ONNX_NEWEST_IR;
  *out_opset = KILN_ONNX_NEWEST_OPSET;
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
  static _Thread_local char text[512]; // the caller gets no owner to free: one text a thread
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
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, read_operators, &l);
  kiln_ctx_deinit(&cx);
  return st;
}

// --- tensors ---

typedef struct reading {
  const char *path;
  kiln_onnx_file *file;
  DLManagedTensorVersioned *tensor;
} reading;

static kiln_status read_tensor(kiln_ctx *cx, void *argument) {
  reading *r = argument;
  kiln_const c = {0};
  KILN_TRY(kiln_onnx_read_tensor(cx, r->path, &r->file, &c));
  r->tensor = kiln_tensor_create(kiln_dtype_text(c.dtype), c.rank, c.shape, cx->diag);
  if (!r->tensor) return KILN_NO_MEMORY;
  kiln_tensor_pack(&r->tensor->dl_tensor, c.data);
  return KILN_OK;
}

kiln_status kiln_tensor_read_pb(const char *path, kiln_diag *diag,
                                DLManagedTensorVersioned **out_tensor) {
  reading r = {.path = path};
  kiln_ctx cx;
  *out_tensor = NULL;
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, read_tensor, &r);
  kiln_onnx_close(r.file);
  kiln_ctx_deinit(&cx);
  if (st == KILN_OK) *out_tensor = r.tensor;
  else kiln_tensor_destroy(r.tensor);
  return st;
}
