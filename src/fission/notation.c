// Binding TC definitions to nodes, by header and definition; and to synthetic nodes, to check a
// file.
#include "fission/notation.h"
#include "tc/env.h"

#include <string.h>

// --- nodes ---

static const char *inputs_text(const kiln_lower *lw) {
  kiln_text t;
  kiln_text_init(&t, &lw->cx->perm);
  for (int i = 0; i < lw->n_inputs; i++) {
    if (i > 0) kiln_text_add(&t, ", ");
    if (lw->inputs[i] == NULL) {
      kiln_text_add(&t, "none");
      continue;
    }
    kiln_text_printf(&t, "%s(", kiln_dtype_text(lw->inputs[i]->dtype));
    for (int a = 0; a < lw->inputs[i]->rank; a++) {
      if (a > 0) kiln_text_add(&t, ", ");
      kiln_expr_print(lw->cx, lw->inputs[i]->shape[a], NULL, &t);
    }
    kiln_text_add(&t, ")");
  }
  return t.data;
}

typedef struct refusal {
  int n_tried;
  kiln_symbol message;     // of a `where` requirement that failed
  const char *why, *typed; // the last definition's mismatch; the last mismatch after types matched
} refusal;

static kiln_status refuse(const kiln_lower *lw, const kiln_tc_file *file, kiln_symbol op,
                          const refusal *r) {
  kiln_diag *diag = lw->cx->diag;
  const char *name = kiln_symbol_text(lw->cx, op);
  if (r->message != 0)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, lw->place, "%s", kiln_symbol_text(lw->cx, r->message));
  if (r->typed != NULL) return KILN_FAIL(diag, KILN_BAD_INPUT, lw->place, "%s: %s", name, r->typed);
  if (r->n_tried > 1)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, lw->place,
                     "%s: inputs must fit a definition in %s, got %s", name, file->source.file,
                     inputs_text(lw));
  return KILN_FAIL(diag, KILN_BAD_INPUT, lw->place, "%s: %s", name, r->why);
}

static const char *value_name(const kiln_lower *lw, const kiln_tc_def *d, int output) {
  bool named = lw->graph != NULL && output < lw->node->n_outputs && lw->node->outputs[output] >= 0;
  if (named) return kiln_symbol_text(lw->cx, lw->graph->values[lw->node->outputs[output]]->name);
  return output < d->n_outs ? kiln_symbol_text(lw->cx, d->outs[output].name) : "";
}

// The node's inputs and attributes as the caller of |d|.
static kiln_tc_caller caller_of(const kiln_lower *lw, const kiln_tc_def *d, bool is_trial) {
  kiln_arena *arena = &lw->cx->perm;
  kiln_tc_argument *inputs = KILN_NEW_ARRAY(arena, kiln_tc_argument, lw->n_inputs);
  const char **outputs = KILN_NEW_ARRAY(arena, const char *, lw->n_outputs);
  for (int i = 0; i < lw->n_inputs; i++) inputs[i].tensor = lw->inputs[i];
  for (int i = 0; i < lw->n_outputs; i++)
    if (lw->node->outputs == NULL || lw->node->outputs[i] >= 0) outputs[i] = value_name(lw, d, i);
  return (kiln_tc_caller){.prog = lw->prog,
                          .place = lw->place,
                          .node = lw->node,
                          .origin = lw->node->name != 0 ? lw->node->name : lw->node->op,
                          .trial = is_trial,
                          .n_inputs = lw->n_inputs,
                          .inputs = inputs,
                          .n_outputs = lw->n_outputs,
                          .outputs = outputs,
                          .prefix = value_name(lw, d, 0),
                          .checks = lw->checks,
                          .when = lw->when,
                          .node_place =
                              lw->graph ? kiln_node_place(lw->cx, lw->graph, lw->node) : NULL};
}

static kiln_status emit_node(kiln_lower *lw, kiln_tc_env *env) {
  KILN_TRY(kiln_tc_emit_all(env));
  for (int i = 0; i < lw->n_outputs; i++) {
    if (env->caller->outputs[i] == NULL) continue;
    const kiln_tc_tensor *t = kiln_tc_find_tensor(env, env->def->outs[i].name);
    lw->outputs[i] = lw->prog->tensors.data[t->tensor->id];
  }
  return KILN_OK;
}

// Lowers with the first matching definition under |h|, or with |only|.
static kiln_status lower_with(kiln_lower *lw, const kiln_tc_file *file, const kiln_tc_header *h,
                              const kiln_tc_def *only) {
  refusal r = {.why = "there is no definition"};
  for (int d = 0; d < file->n_defs; d++) {
    if (h->def != 0 && file->defs[d].name != h->def) continue;
    if (only != NULL && only != &file->defs[d]) continue;
    kiln_tc_caller *caller = KILN_NEW(&lw->cx->perm, kiln_tc_caller);
    kiln_tc_env *env = KILN_NEW(&lw->cx->perm, kiln_tc_env);
    *caller = caller_of(lw, &file->defs[d], only != NULL);
    env->cx = lw->cx;
    env->caller = caller;
    env->file = file;
    env->header = h;
    env->def = &file->defs[d];
    kiln_tc_misfit m;
    KILN_TRY(kiln_tc_fit(env, &m));
    if (m.why == NULL && m.message == 0) return emit_node(lw, env);
    if (m.message != 0 && r.message == 0) r.message = m.message;
    if (m.why != NULL) r.why = m.why;
    if (m.why != NULL && m.types_fit) r.typed = m.why;
    r.n_tried++;
  }
  return refuse(lw, file, h->name, &r);
}

static const kiln_tc_header *find_header(const kiln_tc_file *f, const char *domain,
                                         const char *name, int64_t opset) {
  for (int i = 0; i < f->n_headers; i++) {
    const kiln_tc_header *h = &f->headers[i];
    bool named = strcmp(kiln_symbol_text(f->source.cx, h->name), name) == 0 &&
                 strcmp(kiln_symbol_text(f->source.cx, h->domain), domain) == 0;
    if (named && opset >= h->since && (h->until == 0 || opset <= h->until)) return h;
  }
  return NULL;
}

kiln_status kiln_tc_operators(kiln_ctx *cx, const char *file, const char *text,
                              kiln_user_ops *out) {
  kiln_tc_source source = {cx, file, text, KILN_BAD_INPUT, false};
  kiln_tc_file parsed;
  KILN_TRY(kiln_tc_read(&source, &parsed));
  for (int i = 0; i < parsed.n_headers; i++) {
    const kiln_tc_header *h = &parsed.headers[i];
    const kiln_op op = {.domain = kiln_symbol_text(cx, h->domain),
                        .name = kiln_symbol_text(cx, h->name),
                        .since = h->since,
                        .until = h->until,
                        .tc = text,
                        .file = file};
    KILN_VEC_PUSH(&cx->perm, out, op);
  }
  if (parsed.n_headers > 0) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, file,
                   "operators: must have a line that binds a node, as in onnx NAME 1.. domain "
                   "\"my.domain\", got none");
}

static bool is_users(const kiln_lower *lw, const kiln_op *op) {
  const kiln_op *row = lw->user_ops;
  while (row && row->name && row != op) row++;
  return row && row->name;
}

kiln_status kiln_tc_lower(kiln_lower *lw, const kiln_op *op) {
  kiln_tc_source source = {lw->cx, op->file, op->tc,
                           is_users(lw, op) ? KILN_BAD_INPUT : KILN_INTERNAL, false};
  const kiln_tc_file *file = NULL;
  KILN_TRY(kiln_tc_read_once(&source, &file));
  const kiln_tc_header *h = find_header(file, op->domain, op->name, lw->node->opset);
  if (h == NULL) h = find_header(file, op->domain, op->name, op->since);
  if (h == NULL)
    return KILN_FAIL(lw->cx->diag, KILN_INTERNAL, lw->place,
                     "%s: must have a header in %s, got none", op->name, op->file);
  const kiln_status st = lower_with(lw, file, h, NULL);
  if (st != KILN_INTERNAL) return st;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "operator %s: inputs and attributes must fit its definition in %s, got those of "
                   "the preceding message",
                   op->name, op->file);
}

// --- checking a file without a node ---

// A synthetic input: each index has a dimension of its own, each pack two.
static kiln_tensor *trial_input(kiln_ctx *cx, kiln_program *p, const kiln_tc_def *d,
                                const kiln_tc_param *q, bool half) {
  const kiln_expr *shape[KILN_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < q->n_dims; i++)
    for (int k = 0; k < (q->dims[i].pack ? 2 : 1) && rank < KILN_MAX_RANK; k++) {
      const char *name = kiln_symbol_text(cx, q->dims[i].name);
      shape[rank++] = q->dims[i].name == 0 ? kiln_int(cx, q->dims[i].value)
                                           : kiln_var(cx, kiln_symbol_printf(cx, "%s%d", name, k));
    }
  return kiln_tensor_make(cx, p, kiln_symbol_text(cx, q->name),
                          kiln_tc_example_type(cx, d, &q->type, half), KILN_INPUT, rank, shape);
}

// Binds one definition to synthetic inputs, with or without the optional ones.
static kiln_status trial(const kiln_tc_file *file, const kiln_tc_header *h, const kiln_tc_def *d,
                         bool half, bool omit) {
  kiln_ctx *cx = file->source.cx;
  kiln_node node = {.opset = h->since, .op = h->name, .name = h->name};
  kiln_lower lw = {.cx = cx, .node = &node, .place = file->source.file};
  lw.prog = kiln_program_make(cx, kiln_symbol_text(cx, d->name));
  lw.n_inputs = d->n_params;
  lw.inputs = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, d->n_params);
  lw.n_outputs = d->n_outs;
  lw.outputs = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, d->n_outs);
  for (int i = 0; i < d->n_params; i++) {
    if (omit && d->params[i].otherwise != NULL) continue;
    lw.inputs[i] = trial_input(cx, lw.prog, d, &d->params[i], half);
    KILN_VEC_PUSH(&cx->perm, &lw.prog->inputs, lw.inputs[i]->id);
  }
  KILN_TRY(lower_with(&lw, file, h, d));
  for (int i = 0; i < d->n_outs; i++) {
    if (lw.outputs[i]->role == KILN_TEMP) lw.outputs[i]->role = KILN_OUTPUT;
    KILN_VEC_PUSH(&cx->perm, &lw.prog->outputs, lw.outputs[i]->id);
  }
  return kiln_program_verify(cx, lw.prog);
}

kiln_status kiln_tc_check(kiln_ctx *cx, const char *file, const char *text) {
  kiln_tc_source source = {cx, file, text, KILN_BAD_INPUT, false};
  kiln_tc_file parsed;
  KILN_TRY(kiln_tc_read(&source, &parsed));
  for (int i = 0; i < parsed.n_headers; i++)
    for (int d = 0; d < parsed.n_defs; d++) {
      const kiln_tc_header *h = &parsed.headers[i];
      if (h->def != 0 && h->def != parsed.defs[d].name) continue;
      for (int way = 0; way < 4; way++)
        KILN_TRY(trial(&parsed, h, &parsed.defs[d], way & 1, way & 2));
    }
  return KILN_OK;
}
