// The ONNX reader: maps the file, decodes its messages into scratch, checks the header, inlines the
// model's functions and builds the graph.
#include "onnx/build.h"

#include <string.h>

// Protobuf limits messages to this size; larger weights are external.
#define MAX_MODEL_BYTES (UINT64_C(1) << 31)

static void close_file(void *file) { kiln_onnx_close(file); }

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static kiln_status decode(kiln_ctx *cx, const kiln_onnx_file *file, const onnx_schema *schema,
                          void *out) {
  const char *path = kiln_onnx_file_path(file);
  const onnx_bytes all = kiln_onnx_file_model(file);
  if (all.n >= MAX_MODEL_BYTES)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, path,
        "file: must be smaller than 2 GiB (weights may be external data), got %zu bytes", all.n);
  return kiln_onnx_decode(cx, &cx->scratch, path, all.data, all, schema, out);
}

static void check_opsets(onnx_build *b, const onnx_opsets *opsets, const char *of) {
  kiln_map versions;
  kiln_map_init(&versions, &b->cx->scratch);
  for (size_t i = 0; i < opsets->n; i++) {
    const onnx_opset *o = &opsets->data[i];
    const bool is_default = o->domain.n == 0 || kiln_onnx_is(o->domain, "ai.onnx");
    const kiln_symbol domain = is_default ? 0 : kiln_onnx_symbol(b->cx, o->domain);
    const uint64_t *other = kiln_map_find(&versions, domain);
    const char *name = is_default ? "ai.onnx" : kiln_symbol_text(b->cx, domain);
    if (o->version < 1)
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                        "%sopset of \"%s\": must be positive, got %" PRId64, of, name, o->version);
    else if (other != NULL && (int64_t)*other != o->version)
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                        "%sopset of \"%s\": must be declared once, got %" PRId64 " and %" PRId64,
                        of, name, (int64_t)*other, o->version);
    else if (is_default && o->version > KILN_ONNX_NEWEST_OPSET)
      kiln_onnx_problem(&b->problems, KILN_UNSUPPORTED, b->problems.path,
                        "%sopset: must be at most %d, got %" PRId64, of, KILN_ONNX_NEWEST_OPSET,
                        o->version);
    kiln_map_put(&versions, domain, (uint64_t)o->version);
  }
}

// Checks versions, and that there is a graph.
static kiln_status check_model(onnx_build *b) {
  const onnx_model *model = b->model;
  if (model->ir_version < 1)
    return KILN_FAIL(b->cx->diag, KILN_BAD_INPUT, b->problems.path,
                     "ir_version: must be positive, got %" PRId64 ": this is no ONNX model",
                     model->ir_version);
  if (model->ir_version > KILN_ONNX_NEWEST_IR)
    kiln_diag_warn(b->cx->diag, b->problems.path,
                   "ir_version: %" PRId64 " is newer than %d; its additions are ignored",
                   model->ir_version, KILN_ONNX_NEWEST_IR);
  if (model->graph == NULL || model->graph->outputs.n == 0)
    return KILN_FAIL(b->cx->diag, KILN_BAD_INPUT, b->problems.path,
                     "graph: must have an output, got %s", model->graph ? "none" : "no graph");
  check_opsets(b, &model->opsets, "");
  for (size_t i = 0; i < model->functions.n; i++)
    check_opsets(b, &model->functions.data[i].opsets, "function: ");
  return KILN_OK;
}

static kiln_symbol producer_of(kiln_ctx *cx, const onnx_model *model) {
  const char *name = kiln_symbol_text(cx, kiln_onnx_symbol(cx, model->producer_name));
  if (model->producer_version.n == 0) return kiln_onnx_symbol(cx, model->producer_name);
  return kiln_symbol_printf(cx, "%s%s%s", name, *name == 0 ? "" : " ",
                            kiln_symbol_text(cx, kiln_onnx_symbol(cx, model->producer_version)));
}

static void make_opsets(onnx_build *b) {
  const onnx_opsets *opsets = &b->model->opsets;
  b->n_opsets = (int)opsets->n;
  b->opsets = KILN_NEW_ARRAY(&b->cx->perm, kiln_opset, b->n_opsets);
  for (int i = 0; i < b->n_opsets; i++) {
    const onnx_bytes domain = opsets->data[i].domain;
    const bool is_default = kiln_onnx_is(domain, "ai.onnx");
    b->opsets[i] =
        (kiln_opset){is_default ? 0 : kiln_onnx_symbol(b->cx, domain), opsets->data[i].version};
  }
}

static kiln_status read_model(kiln_ctx *cx, kiln_onnx_file *file, const kiln_onnx_options *options,
                              kiln_graph **out_graph) {
  onnx_model model;
  const char *path = kiln_onnx_file_path(file);
  KILN_TRY(decode(cx, file, &kiln_onnx_model_schema, &model));
  onnx_build b = {.cx = cx,
                  .file = file,
                  .options = options,
                  .model = &model,
                  .problems = {.cx = cx, .path = path, .worst = KILN_OK}};
  KILN_TRY(check_model(&b));
  b.name = kiln_symbol_of(cx, base_name(path));
  b.producer = producer_of(cx, &model);
  make_opsets(&b);
  kiln_onnx_inline(&b, &model);
  kiln_onnx_open_lists(&b, model.graph);
  kiln_onnx_extents_init(&b, model.graph);
  kiln_graph *graph = kiln_onnx_graph_make(&b, model.graph, NULL, path);
  kiln_onnx_extents_end(&b);
  KILN_TRY(kiln_onnx_problems_end(&b.problems));
  *out_graph = graph;
  return KILN_OK;
}

kiln_status kiln_onnx_read(kiln_ctx *cx, const char *path, const kiln_onnx_options *options,
                           kiln_onnx_file **out_file, kiln_graph **out_graph) {
  const kiln_onnx_options none = {0};
  kiln_onnx_file *file = NULL;
  *out_file = NULL;
  *out_graph = NULL;
  if (!options) options = &none;
  KILN_TRY(kiln_onnx_file_open(cx, path, options->n_memory, options->memory, &file));
  kiln_cleanup_push(cx, close_file, file);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_status status = read_model(cx, file, options, out_graph);
  kiln_arena_rewind(&cx->scratch, mark);
  kiln_cleanup_pop(cx);
  kiln_onnx_file_is_read(file);
  if (status == KILN_OK) *out_file = file;
  else kiln_onnx_close(file);
  return status;
}

static kiln_status tell_operators(kiln_ctx *cx, const kiln_onnx_file *file,
                                  void (*visit)(void *user, const char *domain, const char *op),
                                  void *user) {
  onnx_model model;
  KILN_TRY(decode(cx, file, &kiln_onnx_model_schema, &model));
  for (size_t i = 0; model.graph && i < model.graph->nodes.n; i++) {
    const onnx_node *n = &model.graph->nodes.data[i];
    const bool is_default = kiln_onnx_is(n->domain, "ai.onnx");
    visit(user, is_default ? "" : kiln_symbol_text(cx, kiln_onnx_symbol(cx, n->domain)),
          kiln_symbol_text(cx, kiln_onnx_symbol(cx, n->op_type)));
  }
  return KILN_OK;
}

kiln_status kiln_onnx_read_operators(kiln_ctx *cx, const char *path,
                                     void (*visit)(void *user, const char *domain, const char *op),
                                     void *user) {
  kiln_onnx_file *file = NULL;
  KILN_TRY(kiln_onnx_file_open(cx, path, 0, NULL, &file));
  kiln_cleanup_push(cx, close_file, file);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_status status = tell_operators(cx, file, visit, user);
  kiln_arena_rewind(&cx->scratch, mark);
  kiln_cleanup_pop(cx);
  kiln_onnx_close(file);
  return status;
}

typedef struct value_reading {
  const char *type; // NULL: a tensor
  int max, n;
  kiln_const *out;
} value_reading;

// Decodes the tensors of a file with one value of |type|; *out_n is -1 for an empty optional value.
static kiln_status decode_value(kiln_ctx *cx, const kiln_onnx_file *file, const char *type,
                                const onnx_tensor **out, int *out_n) {
  onnx_optional_value *o = KILN_NEW(&cx->scratch, onnx_optional_value);
  const onnx_sequence_value *sequence = NULL;
  const bool is_optional = type && strncmp(type, "optional", 8) == 0;
  if (is_optional) {
    KILN_TRY(decode(cx, file, &kiln_onnx_optional_schema, o));
    sequence = o->sequence;
  } else if (type) {
    onnx_sequence_value *made = KILN_NEW(&cx->scratch, onnx_sequence_value);
    KILN_TRY(decode(cx, file, &kiln_onnx_sequence_schema, made));
    sequence = made;
  } else {
    o->tensor = KILN_NEW(&cx->scratch, onnx_tensor);
    KILN_TRY(decode(cx, file, &kiln_onnx_tensor_schema, o->tensor));
  }
  *out = sequence ? sequence->tensors.data : o->tensor;
  *out_n = sequence ? (int)sequence->tensors.n : o->tensor ? 1 : -1;
  return KILN_OK;
}

static kiln_status read_value(kiln_ctx *cx, kiln_onnx_file *file, value_reading *r) {
  const onnx_tensor *tensors = NULL;
  const char *path = kiln_onnx_file_path(file);
  onnx_problems problems = {.cx = cx, .path = path, .worst = KILN_OK};
  KILN_TRY(decode_value(cx, file, r->type, &tensors, &r->n));
  for (int i = 0; i < r->n && i < r->max; i++)
    kiln_onnx_tensor_make(&problems, file, path, "tensor", &tensors[i], &r->out[i]);
  return kiln_onnx_problems_end(&problems);
}

kiln_status kiln_onnx_read_value(kiln_ctx *cx, const char *path, const char *type, int max,
                                 kiln_onnx_file **out_file, int *out_n, kiln_const *out) {
  kiln_onnx_file *file = NULL;
  value_reading r = {type, max, 0, out};
  *out_file = NULL;
  memset(out, 0, (size_t)max * sizeof *out);
  KILN_TRY(kiln_onnx_file_open(cx, path, 0, NULL, &file));
  kiln_cleanup_push(cx, close_file, file);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_status status = read_value(cx, file, &r);
  kiln_arena_rewind(&cx->scratch, mark);
  kiln_cleanup_pop(cx);
  if (status == KILN_OK) *out_file = file;
  else kiln_onnx_close(file);
  *out_n = r.n;
  return status;
}

kiln_status kiln_onnx_read_tensor(kiln_ctx *cx, const char *path, kiln_onnx_file **out_file,
                                  kiln_const *out) {
  int n = 0;
  return kiln_onnx_read_value(cx, path, NULL, 1, out_file, &n, out);
}
