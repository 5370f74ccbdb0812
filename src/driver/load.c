// Loading: a file becomes a graph of operators, the graph a program of statements.
#include "fission/flow/kept.h"
#include "model/parts.h"
#include "driver/load.h"
#include "driver/marks.h"
#include "dynamic/dims.h"
#include "dynamic/ranges.h"
#include "rewrite/checks.h"
#include "runtime/types.h"
#include "support/diag.h"
#include "target/instr.h"
#include "fission/notation.h"

#include <string.h>

// --- options of the reader ---

static kiln_status take_constant(kiln_ctx *cx, const char *name, const DLTensor *t,
                                 kiln_onnx_constant *out) {
  const char *dtype = t ? kiln_tensor_dtype(t) : NULL;
  if (!dtype || t->ndim > KILN_MAX_RANK || !kiln_is_row_major(t) ||
      !kiln_dtype_parse(dtype, strlen(dtype), &out->value.dtype))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, name,
                     "constant: must be a row-major CPU tensor of rank at most %d", KILN_MAX_RANK);
  out->input = name;
  out->value.rank = t->ndim;
  for (int i = 0; i < t->ndim; i++) out->value.shape[i] = t->shape[i];
  out->value.bytes = (size_t)kiln_tensor_count(t) * (size_t)kiln_dtype_bytes(out->value.dtype);
  void *data = kiln_arena_alloc(&cx->perm, out->value.bytes + 1);
  if (out->value.bytes) kiln_tensor_unpack(t, data);
  out->value.data = data;
  return KILN_OK;
}

static const char *const *dim_names_shown(kiln_ctx *cx, const kiln_shape_value *s) {
  if (!s->dim_names || s->rank < 0) return NULL;
  const char **names = KILN_NEW_ARRAY(&cx->perm, const char *, s->rank);
  for (int32_t k = 0; k < s->rank; k++)
    names[k] = s->dim_names[k] ? kiln_name_shown(cx, s->dim_names[k]) : NULL;
  return names;
}

static kiln_status onnx_options(kiln_ctx *cx, const kiln_compile_options *o, const kiln_dims *dims,
                                kiln_onnx_options *out) {
  kiln_onnx_shape *shapes = KILN_NEW_ARRAY(&cx->perm, kiln_onnx_shape, o->n_shapes);
  kiln_onnx_constant *constants = KILN_NEW_ARRAY(&cx->perm, kiln_onnx_constant, o->n_constants);
  for (size_t i = 0; i < o->n_shapes; i++)
    shapes[i] = (kiln_onnx_shape){kiln_name_shown(cx, o->shapes[i].name), o->shapes[i].rank,
                                  o->shapes[i].shape, dim_names_shown(cx, &o->shapes[i])};
  for (size_t i = 0; i < o->n_constants; i++)
    KILN_TRY(take_constant(cx, kiln_name_shown(cx, o->constant_names[i]), o->constant_values[i],
                           &constants[i]));
  const char **overridable = KILN_NEW_ARRAY(&cx->perm, const char *, o->n_overridable);
  for (size_t i = 0; i < o->n_overridable; i++)
    overridable[i] = kiln_name_shown(cx, o->overridable[i]);
  kiln_onnx_memory *memory = KILN_NEW_ARRAY(&cx->perm, kiln_onnx_memory, o->n_files);
  for (size_t i = 0; i < o->n_files; i++)
    memory[i] = (kiln_onnx_memory){o->files[i].name, o->files[i].data, o->files[i].n_bytes};
  *out = (kiln_onnx_options){.n_dims = dims->n,
                             .n_shapes = (int)o->n_shapes,
                             .n_constants = (int)o->n_constants,
                             .dims = dims->values,
                             .shapes = shapes,
                             .constants = constants,
                             .n_overridable = (int)o->n_overridable,
                             .overridable = overridable,
                             .n_memory = (int)o->n_files,
                             .memory = memory};
  if (o->read_only) { // lists what options may refer to
    static const char *const all[] = {"*"};
    out->n_overridable = 1;
    out->overridable = all;
  }
  return KILN_OK;
}

// --- the interface ---

// The first |n_names| of the tensors have these |names|; their own may have suffixes.
static void signature_of_program(kiln_ctx *cx, const kiln_model *m, int n, const int *tensors,
                                 int n_names, const kiln_symbol *names, kiln_interface *face) {
  kiln_interface_init(cx, face, n);
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = m->prog->tensors.data[tensors[i]];
    const kiln_symbol name = i < n_names ? names[i] : t->name;
    const kiln_dtype dtype = t->dtype == KILN_F32 ? m->half : t->dtype;
    kiln_interface_set(cx, face, i, kiln_symbol_text(cx, name), kiln_dtype_text(dtype), t->rank,
                       t->shape);
  }
}

static void signature_of_graph(kiln_ctx *cx, const kiln_graph *g, int n, const int *values,
                               kiln_interface *face) {
  kiln_interface_init(cx, face, n);
  for (int i = 0; i < n; i++) {
    const kiln_value *v = g->values[values[i]];
    kiln_interface_set(cx, face, i, kiln_symbol_text(cx, v->name),
                       v->list       ? v->list
                       : v->has_type ? kiln_dtype_text(v->dtype)
                                     : "?",
                       v->has_shape ? v->rank : 0, (const kiln_expr *const *)v->shape);
  }
}

// --- passes ---

static kiln_status read_onnx(kiln_ctx *cx, kiln_model *m, const kiln_compile_options *o) {
  kiln_onnx_options onnx;
  kiln_dims dims;
  KILN_TRY(kiln_dims_resolve(cx, m->path, o, &dims));
  KILN_TRY(onnx_options(cx, o, &dims, &onnx));
  onnx.keeps_lists = o->read_only != 0;
  KILN_TRY(kiln_onnx_read(cx, m->path, &onnx, &m->core->file, &m->graph));
  if (dims.n_forms > 0)
    m->graph = kiln_graph_substitute(cx, m->graph, dims.n_forms, dims.names, dims.forms);
  KILN_TRY(kiln_marks_add(cx, m->graph, o->n_marks, o->marks));
  if (!o->read_only) return KILN_OK;
  signature_of_graph(cx, m->graph, m->graph->n_inputs, m->graph->inputs, &m->inputs);
  signature_of_graph(cx, m->graph, m->graph->n_outputs, m->graph->outputs, &m->outputs);
  return KILN_OK;
}

kiln_status kiln_load_read(kiln_ctx *cx, kiln_build *b, int *io_n) {
  kiln_model *m = b->request.model;
  (void)io_n;
  return kiln_path_is_definition(m->path) ? kiln_definition_load(cx, m, b->request.asked)
                                          : read_onnx(cx, m, b->request.asked);
}

// The user-defined operators; NULL if there are none.
static kiln_status read_ops(kiln_ctx *cx, const kiln_compile_options *o, const kiln_op **out) {
  kiln_user_ops ops = {0};
  *out = NULL;
  for (size_t i = 0; i < o->n_op_files; i++) {
    const char *file = kiln_arena_strdup(&cx->perm, o->op_files[i]), *text = NULL;
    KILN_TRY(kiln_text_take(cx, o, file, &text));
    KILN_TRY(kiln_tc_operators(cx, file, text, &ops));
  }
  if (ops.n == 0) return KILN_OK;
  KILN_VEC_PUSH(&cx->perm, &ops, (kiln_op){0});
  *out = ops.data;
  return KILN_OK;
}

// The half type requested for f32 tensors.
static kiln_status check_dtype(kiln_ctx *cx, const kiln_compile_options *o, const char *path,
                               const kiln_program *p, kiln_dtype *out) {
  kiln_dtype t = KILN_F32;
  *out = KILN_F32;
  if (!o->dtype || strcmp(o->dtype, "tf32") == 0) return KILN_OK;
  // Valid: checked before the model was read.
  (void)kiln_dtype_parse(o->dtype, strlen(o->dtype), &t);
  for (int i = 0; i < p->tensors.n; i++)
    if (kiln_tensor_elems(p->tensors.data[i]) < 0)
      return KILN_FAIL(
          cx->diag, KILN_BAD_INPUT, path,
          "dtype: shapes must be static for %s, got tensor %s: bind the named dimensions", o->dtype,
          kiln_symbol_text(cx, p->tensors.data[i]->name));
  *out = t;
  return KILN_OK;
}

static void set_signatures(kiln_ctx *cx, kiln_model *m) {
  const kiln_graph *g = m->graph;
  const kiln_program *p = m->prog;
  kiln_symbol *inputs = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, g->n_inputs);
  for (int i = 0; i < g->n_inputs; i++) inputs[i] = g->values[g->inputs[i]]->name;
  signature_of_program(cx, m, p->inputs.n, p->inputs.data, g->n_inputs, inputs, &m->inputs);
  m->found = KILN_NEW_ARRAY(&cx->perm, int64_t *, p->outputs.n);
  for (int i = 0; i < p->shape_of.n; i++)
    m->found[p->shape_of.data[i]] = KILN_NEW_ARRAY(&cx->perm, int64_t, KILN_MAX_RANK);
  signature_of_program(cx, m, p->outputs.n, p->outputs.data, p->output_names.n,
                       p->output_names.data, &m->outputs);
}

// Whether loops may become loops of the plan: for processors, where all shapes are static, and
// nothing is asked for that works on one program.
static bool may_keep_loops(const kiln_model *m, const kiln_compile_options *o) {
  const kiln_graph *g = m->graph;
  const kiln_target *t = kiln_target_find(m->options.target);
  bool may = t && t->has_runtime && !t->has_images && !o->schedule && !o->orchestration &&
             !o->orchestrate && !o->read_only && o->n_overridable == 0 && o->n_states == 0;
  for (int i = 0; i < g->n_inputs && may; i++) {
    const kiln_value *v = g->values[g->inputs[i]];
    for (int a = 0; a < v->rank; a++) may &= v->has_shape && kiln_expr_is_int(v->shape[a], NULL);
  }
  return may;
}

// Fissions the graph into parts, or into one program if it has no loops that are kept. Where parts
// are refused, all loops are unrolled; the messages of both attempts stay if that fails, too.
static kiln_status make_program(kiln_ctx *cx, kiln_model *m, const kiln_op *user_ops,
                                const kiln_compile_options *o, kiln_program **out) {
  struct kiln_unresolved *rest = NULL;
  if (!may_keep_loops(m, o)) return kiln_fission_with(cx, m->graph, user_ops, out);
  const size_t first = kiln_diag_count(cx->diag);
  kiln_status st = kiln_fission_kept(cx, m->graph, user_ops, out, &rest);
  if (st == KILN_OK && rest) st = kiln_parts_divide(cx, *out, rest, &m->parted);
  if (m->parted) m->parted->user_ops = user_ops;
  if (!rest || (st != KILN_UNSUPPORTED && st != KILN_BAD_INPUT)) return st;
  const size_t end = kiln_diag_count(cx->diag);
  m->parted = NULL;
  st = kiln_fission_with(cx, m->graph, user_ops, out);
  if (st == KILN_OK) kiln_diag_drop(cx->diag, first, end);
  else kiln_diag_drop_repeated(cx->diag, first, end);
  return st;
}

kiln_status kiln_load_unrolled(kiln_ctx *cx, kiln_model *m, kiln_model **out) {
  kiln_program *prog = NULL;
  *out = m->parted ? m->parted->unrolled : m;
  if (*out) return KILN_OK;
  const size_t first = kiln_diag_count(cx->diag);
  const kiln_status st = kiln_fission_with(cx, m->graph, m->parted->user_ops, &prog);
  if (st != KILN_OK) return kiln_model_want_program(m, cx->diag);
  kiln_diag_drop(cx->diag, first, kiln_diag_count(cx->diag)); // warnings that loading gave
  if (m->options.clamp_indices) kiln_checks_drop(cx, prog);
  kiln_model *one = KILN_NEW(&cx->perm, kiln_model);
  *one = *m;
  one->parted = NULL;
  one->halved = NULL;
  one->prog = prog;
  set_signatures(cx, one);
  *out = m->parted->unrolled = one;
  return KILN_OK;
}

// Whether rows of MatMulNBits may be quantised: where the machine multiplies bytes by numbers of 4
// bits, and all shapes are static. A machine that is not there is reported when it is needed.
static void set_products(kiln_ctx *cx, kiln_graph *g, const kiln_compile_options *o) {
  const kiln_symbol op = kiln_symbol_of(cx, "MatMulNBits");
  const size_t first = kiln_diag_count(cx->diag);
  bool has_any = false;
  kiln_machine m;
  for (int i = 0; i < g->n_nodes; i++) has_any |= g->nodes[i]->op == op;
  g->multiplies_bits = false;
  if (!has_any || o->n_ranges > 0 || o->read_only) return;
  if (kiln_target_machine(cx, o->target, &m) == KILN_OK)
    g->multiplies_bits = kiln_machine_multiplies_bits(cx, &m);
  else kiln_diag_drop(cx->diag, first, kiln_diag_count(cx->diag));
}

kiln_status kiln_load_fission(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_compile_options *o = b->request.asked;
  kiln_model *m = b->request.model;
  kiln_program *prog = NULL;
  const kiln_op *user_ops = NULL;
  (void)io_n;
  KILN_TRY(read_ops(cx, o, &user_ops));
  m->graph->most_extent = o->most_extent;
  set_products(cx, m->graph, o);
  if (o->n_ranges > 0) {
    KILN_TRY(kiln_ranges_make(cx, m, user_ops, o));
    KILN_TRY(check_dtype(cx, o, m->path, m->prog, &m->half));
    kiln_ranges_signatures(cx, m);
    return KILN_OK;
  }
  KILN_TRY(make_program(cx, m, user_ops, o, &prog));
  for (uint32_t i = 0; m->parted && o->clamp_indices && i < m->parted->flow.n_parts; i++)
    kiln_checks_drop(cx, m->parted->parts[i]);
  if (o->clamp_indices && !m->parted) kiln_checks_drop(cx, prog);
  KILN_TRY(check_dtype(cx, o, m->path, prog, &m->half));
  m->prog = prog;
  if (m->parted) kiln_parts_halve(m->parted, m->half);
  set_signatures(cx, m);
  return KILN_OK;
}
