// Fission: one sweep over the nodes of a graph, each lowered by its operator's row. All failures
// are collected before giving up; nodes that depend on a failed one are skipped silently.
#include "fission/lower.h"

#include "analysis/simplify.h"
#include "fission/registry.h"
#include "fission/traversal.h"
#include "rewrite/dce.h"
#include "rewrite/empty.h"
#include "fission/notation.h"
#include "fission/terms.h"

#include <string.h>

enum { MAX_NESTING = 32, MAX_BODY_NODES = 1 << 17 }; // of sub-graphs

static void note(kiln_graph_traversal *f, kiln_status status) {
  if (f->status == KILN_OK) f->status = status;
}

static const char *value_name(const kiln_graph_traversal *f, const kiln_graph_scope *sc,
                              int value) {
  return kiln_symbol_text(f->cx, sc->graph->values[value]->name);
}

static kiln_graph_scope scope_make(kiln_graph_traversal *f, const kiln_graph *g,
                                   const kiln_graph_scope *outer) {
  return (kiln_graph_scope){.graph = g,
                            .values = KILN_NEW_ARRAY(&f->cx->perm, kiln_held, g->n_values),
                            .failed = kiln_bits_make(&f->cx->perm, g->n_values),
                            .outer = outer,
                            .depth = outer ? outer->depth + 1 : 0};
}

// --- values ---

// A value of an enclosing graph by name; *out_failed if its node failed.
static kiln_held find_outer(kiln_graph_traversal *f, const kiln_graph_scope *sc, kiln_symbol name,
                            bool *out_failed);

// The tensor or sequence of a value; a constant gets its tensor on first use.
static kiln_held find_value(kiln_graph_traversal *f, const kiln_graph_scope *sc, int value,
                            bool *out_failed) {
  const kiln_value *v = sc->graph->values[value];
  kiln_held *held = &sc->values[value];
  *out_failed = kiln_bits_has(sc->failed, value);
  if (!kiln_holds(held) && v->constant)
    held->tensor = kiln_tensor_make_const(f->cx, f->p, value_name(f, sc, value), v->constant);
  if (!kiln_holds(held) && !*out_failed && v->producer < 0)
    *held = find_outer(f, sc, v->name, out_failed);
  return *held;
}

static kiln_held find_outer(kiln_graph_traversal *f, const kiln_graph_scope *sc, kiln_symbol name,
                            bool *out_failed) {
  for (const kiln_graph_scope *up = sc->outer; up; up = up->outer)
    for (int i = 0; i < up->graph->n_values; i++)
      if (up->graph->values[i]->name == name &&
          (kiln_holds(&up->values[i]) || up->graph->values[i]->constant ||
           kiln_bits_has(up->failed, i)))
        return find_value(f, up, i, out_failed);
  return (kiln_held){0};
}

static void add_inputs(kiln_graph_traversal *f, kiln_graph_scope *sc) {
  const kiln_graph *g = sc->graph;
  for (int i = 0; i < g->n_inputs; i++) {
    const kiln_value *v = g->values[g->inputs[i]];
    if (!v->has_type || !v->has_shape || v->rank > KILN_MAX_RANK) {
      note(f, KILN_FAIL(f->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(f->cx, g->name),
                        "input %s: must declare a tensor type and a shape of at most %d axes",
                        kiln_symbol_text(f->cx, v->name), KILN_MAX_RANK));
      kiln_bits_set(sc->failed, v->id);
      continue;
    }
    kiln_tensor *t = kiln_tensor_make(f->cx, f->p, kiln_symbol_text(f->cx, v->name), v->dtype,
                                      KILN_INPUT, v->rank, (const kiln_expr *const *)v->shape);
    sc->values[v->id].tensor = t;
    KILN_VEC_PUSH(&f->cx->perm, &f->p->inputs, t->id);
  }
}

// --- nodes ---

// "MODEL: node 3 "x" (Conv) opset 13 [f32, ?, -]": ? is the output of a failed node
static const char *node_place(kiln_graph_traversal *f, const kiln_lower *lw) {
  kiln_text text;
  kiln_text_init(&text, &f->cx->perm);
  kiln_text_add(&text, kiln_node_place(f->cx, lw->graph, lw->node));
  kiln_text_add(&text, " opset ");
  kiln_text_add_int(&text, lw->node->opset);
  kiln_text_add(&text, " [");
  for (int i = 0; i < lw->n_inputs; i++) {
    if (i > 0) kiln_text_add(&text, ", ");
    kiln_text_add(&text, lw->inputs[i]              ? kiln_dtype_text(lw->inputs[i]->dtype)
                         : lw->node->inputs[i] >= 0 ? "?"
                                                    : "-");
  }
  kiln_text_add(&text, "]");
  return text.data;
}

// False if an input is missing because of an earlier failure.
static bool gather_inputs(kiln_graph_traversal *f, const kiln_graph_scope *sc, kiln_lower *lw,
                          kiln_held *in) {
  const kiln_node *n = lw->node;
  bool all = true;
  for (int i = 0; i < n->n_inputs; i++) {
    bool failed = false;
    if (n->inputs[i] < 0) continue;
    in[i] = find_value(f, sc, n->inputs[i], &failed);
    lw->inputs[i] = in[i].tensor;
    if (!kiln_holds(&in[i]) && !failed)
      note(f, KILN_FAIL(f->cx->diag, KILN_BAD_INPUT, kiln_node_place(f->cx, sc->graph, n),
                        "input %d: must be made by an earlier node, got %s", i,
                        value_name(f, sc, n->inputs[i])));
    all &= kiln_holds(&in[i]);
  }
  return all;
}

static kiln_status unknown(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  const char *op = kiln_symbol_text(cx, lw->node->op);
  const char *domain = kiln_symbol_text(cx, lw->node->domain);
  kiln_text ranges;
  kiln_text_init(&ranges, &cx->scratch);
  if (kiln_op_ranges(domain, op, &ranges) == 0)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "operator %s of domain %s: must be a supported one, got an unknown one", op,
                     *domain ? domain : "ai.onnx");
  return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                   "operator %s: opset must be in %s, got %" PRId64, op, ranges.data,
                   lw->node->opset);
}

static kiln_status check_outputs(kiln_lower *lw) {
  for (int i = 0; i < lw->n_outputs; i++)
    if (lw->node->outputs[i] >= 0 && !lw->outputs[i])
      return KILN_FAIL(
          lw->cx->diag, KILN_UNSUPPORTED, lw->place,
          "output %d: must not be used, as this version does not compute it, got a use", i);
  return KILN_OK;
}

// Rejects nodes with absurd repeats, pads or sizes: element counts must fit in i64.
static kiln_status check_extents(kiln_lower *lw, int n_stmts) {
  static const int64_t most = INT64_C(1) << 40;
  for (int i = n_stmts; i < lw->prog->stmts.n; i++) {
    const kiln_stmt *s = lw->prog->stmts.data[i];
    const kiln_tensor *t = lw->prog->tensors.data[s->out];
    int64_t extent = 0;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      if (kiln_expr_is_int(s->dims[d].extent, &extent) && (extent < 0 || extent > most))
        return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                         "extents: must lie in [0, 2^40], got %" PRId64 " in %s", extent,
                         kiln_symbol_text(lw->cx, t->name));
    if (kiln_tensor_elems(t) > most)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "%s: must have at most 2^40 elements, got %" PRId64,
                       kiln_symbol_text(lw->cx, t->name), kiln_tensor_elems(t));
  }
  return KILN_OK;
}

typedef struct operand_search {
  const kiln_lower *lw;
  kiln_status status;
} operand_search;

static void refuse_operand(const kiln_expr *e, void *argument) {
  operand_search *s = argument;
  const bool strict = e->n_args > 0 && e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_SELECT;
  if (s->status != KILN_OK || !strict || kiln_expr_kind_takes(e->kind, e->args[0]->dtype)) return;
  const char *type = kiln_dtype_text(e->args[0]->dtype);
  s->status =
      kiln_dtype_is_code(e->args[0]->dtype)
          ? KILN_FAIL(s->lw->cx->diag, KILN_UNSUPPORTED, s->lw->place,
                      "operands: must be cast to another type to be computed with, got %s", type)
          : KILN_FAIL(s->lw->cx->diag, KILN_BAD_INPUT, s->lw->place,
                      "operands: must be of a type that %s takes, got %s",
                      kiln_expr_kind_text(e->kind), type);
}

// Minifloat and sub-byte types may only be moved and cast; other types are restricted by operator.
static kiln_status check_operands(const kiln_lower *lw, int n_stmts) {
  operand_search search = {lw, KILN_OK};
  for (int i = n_stmts; i < lw->prog->stmts.n && search.status == KILN_OK; i++) {
    const kiln_stmt *s = lw->prog->stmts.data[i];
    kiln_expr_visit(lw->cx, s->body, refuse_operand, &search);
    if (s->guard) kiln_expr_visit(lw->cx, s->guard, refuse_operand, &search);
    if (s->combiner == KILN_COMBINE_NONE || !kiln_dtype_is_code(s->body->dtype)) continue;
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "operands: must be cast to another type to be reduced, got %s",
                     kiln_dtype_text(s->body->dtype));
  }
  return search.status;
}

static const kiln_op *find_operator(const kiln_lower *lw) {
  const char *domain = kiln_symbol_text(lw->cx, lw->node->domain),
             *name = kiln_symbol_text(lw->cx, lw->node->op);
  const kiln_op *op =
      lw->user_ops ? kiln_op_find_in(lw->user_ops, domain, name, lw->node->opset) : NULL;
  return op ? op : kiln_op_find(domain, name, lw->node->opset);
}

static kiln_status lower_operator(kiln_lower *lw) {
  const kiln_op *op = find_operator(lw);
  if (!op) return unknown(lw);
  const int n_stmts = lw->prog->stmts.n, n_tensors = lw->prog->tensors.n;
  KILN_TRY(op->lower ? op->lower(lw) : kiln_tc_lower(lw, op));
  KILN_TRY(check_outputs(lw));
  KILN_TRY(check_extents(lw, n_stmts));
  KILN_TRY(check_operands(lw, n_stmts));
  return kiln_fission_fold(lw, n_stmts, n_tensors);
}

static kiln_status lower_graph(kiln_graph_traversal *f, kiln_graph_scope *sc);

static kiln_status lower_body(kiln_visit *v, const kiln_graph *body, int n_inputs,
                              const kiln_held *inputs, int n_outputs, kiln_held *outputs) {
  kiln_graph_traversal *f = v->w;
  if (body->n_inputs != n_inputs || body->n_outputs != n_outputs)
    return KILN_FAIL(f->cx->diag, KILN_BAD_INPUT, v->lw->place,
                     "sub-graph: must have %d inputs and %d outputs, got %d and %d", n_inputs,
                     n_outputs, body->n_inputs, body->n_outputs);
  f->n_body_nodes += body->n_nodes;
  if (v->sc->depth >= MAX_NESTING || f->n_body_nodes > MAX_BODY_NODES)
    return KILN_FAIL(f->cx->diag, KILN_UNSUPPORTED, v->lw->place,
                     "sub-graphs: must nest at most %d deep and unroll to at most %d nodes",
                     MAX_NESTING, MAX_BODY_NODES);
  kiln_graph_scope inner = scope_make(f, body, v->sc);
  for (int i = 0; i < n_inputs; i++) inner.values[body->inputs[i]] = inputs[i];
  KILN_TRY(lower_graph(f, &inner));
  for (int i = 0; i < n_outputs; i++) {
    bool failed = false;
    outputs[i] = find_value(f, &inner, body->outputs[i], &failed);
    if (!kiln_holds(&outputs[i]))
      return KILN_FAIL(f->cx->diag, KILN_BAD_INPUT, v->lw->place,
                       "sub-graph: output %s must be made by a node",
                       value_name(f, &inner, body->outputs[i]));
  }
  return KILN_OK;
}

static kiln_visitor find_visitor(const kiln_lower *lw, const kiln_held *in) {
  const kiln_op *op = find_operator(lw);
  if (!op) return NULL;
  const kiln_visitor control = kiln_find_control(lw);
  return control ? control : kiln_find_sequence(lw, in);
}

// Lowers a node whose inputs and outputs are tensors.
static kiln_status visit_tensors(kiln_visit *v) {
  for (int i = 0; i < v->lw->n_inputs; i++)
    if (v->in[i].sequence)
      return KILN_FAIL(v->w->cx->diag, KILN_BAD_INPUT, v->lw->place,
                       "input %d: must be a tensor, got a sequence or an optional value", i);
  KILN_TRY(lower_operator(v->lw));
  for (int i = 0; i < v->lw->n_outputs; i++) v->out[i] = kiln_held_tensor(v->lw->outputs[i]);
  return KILN_OK;
}

static void lower_node(kiln_graph_traversal *f, kiln_graph_scope *sc, const kiln_node *n) {
  kiln_ctx *cx = f->cx;
  kiln_held *in = KILN_NEW_ARRAY(&cx->scratch, kiln_held, n->n_inputs);
  kiln_held *out = KILN_NEW_ARRAY(&cx->scratch, kiln_held, n->n_outputs + 1); // never none
  kiln_lower lw = {.cx = cx,
                   .prog = f->p,
                   .graph = sc->graph,
                   .node = n,
                   .user_ops = f->user_ops,
                   .counts = &f->counts,
                   .checks = &f->checks,
                   .notes = &f->notes,
                   .when = f->when,
                   .folds = f->folds,
                   .dims = f->dims,
                   .n_inputs = n->n_inputs,
                   .inputs = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, n->n_inputs),
                   .n_outputs = n->n_outputs,
                   .outputs = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, n->n_outputs)};
  kiln_status status = KILN_OK;
  bool done = false;
  const bool ready = gather_inputs(f, sc, &lw, in);
  const kiln_visitor visitor = find_visitor(&lw, in);
  kiln_visit visit = {f, sc, &lw, in, out};
  lw.place = node_place(f, &lw);
  if (ready) {
    const size_t n_messages = cx->diag ? kiln_diag_count(cx->diag) : 0;
    status = visitor ? visitor(&visit) : visit_tensors(&visit);
    if (status != KILN_OK && cx->diag && kiln_diag_count(cx->diag) == n_messages)
      KILN_FAIL(cx->diag, status, lw.place,
                "operator: must say why it cannot be lowered, got %s alone",
                kiln_status_name(status));
    if (status != KILN_OK) note(f, status);
    done = status == KILN_OK;
  } else if (!visitor && !find_operator(&lw)) {
    note(f, unknown(&lw)); // independent of the inputs
  }
  for (int i = 0; i < n->n_outputs; i++) {
    if (n->outputs[i] < 0) continue;
    if (done) sc->values[n->outputs[i]] = out[i];
    else kiln_bits_set(sc->failed, n->outputs[i]);
  }
}

// Fails if a node failed; its message has been written.
static kiln_status lower_graph(kiln_graph_traversal *f, kiln_graph_scope *sc) {
  const kiln_status before = f->status;
  f->status = KILN_OK;
  for (int i = 0; i < sc->graph->n_nodes; i++) {
    const kiln_mark m = kiln_arena_mark(&f->cx->scratch);
    lower_node(f, sc, sc->graph->nodes[i]);
    kiln_arena_rewind(&f->cx->scratch, m);
  }
  const kiln_status status = f->status;
  if (before != KILN_OK) f->status = before;
  return status;
}

// --- outputs ---

static void check_declared(kiln_graph_traversal *f, const kiln_value *v, const kiln_tensor *t) {
  const char *name = kiln_symbol_text(f->cx, v->name);
  if (v->has_type && v->dtype != t->dtype)
    kiln_diag_warn(f->cx->diag, name, "output: declared as %s, but is %s",
                   kiln_dtype_text(v->dtype), kiln_dtype_text(t->dtype));
  if (!v->has_shape) return;
  if (v->rank != t->rank) {
    kiln_diag_warn(f->cx->diag, name, "output: declared with %d axes, but has %d", v->rank,
                   t->rank);
    return;
  }
  for (int a = 0; a < t->rank; a++) {
    int64_t declared = 0, made = 0;
    if (kiln_expr_is_int(v->shape[a], &declared) && kiln_expr_is_int(t->shape[a], &made) &&
        declared != made)
      kiln_diag_warn(f->cx->diag, name,
                     "output: axis %d is declared as %" PRId64 ", but is %" PRId64, a, declared,
                     made);
  }
}

static void add_output(kiln_graph_traversal *f, kiln_tensor *t, kiln_symbol name) {
  if (t->role == KILN_TEMP) t->role = KILN_OUTPUT;
  KILN_VEC_PUSH(&f->cx->perm, &f->p->outputs, t->id);
  KILN_VEC_PUSH(&f->cx->perm, &f->p->output_names, name);
}

// A sequence becomes one output for each tensor, "y[0]", "y[1]", ...; an empty optional value has
// no output.
static void add_outputs(kiln_graph_traversal *f, kiln_graph_scope *sc) {
  const kiln_graph *g = sc->graph;
  for (int i = 0; i < g->n_outputs; i++) {
    const kiln_value *v = g->values[g->outputs[i]];
    bool failed = false;
    const kiln_held held = find_value(f, sc, v->id, &failed);
    if (!kiln_holds(&held)) {
      if (!failed)
        note(f, KILN_FAIL(f->cx->diag, KILN_BAD_INPUT, kiln_symbol_text(f->cx, g->name),
                          "output %s: must be made by a node", kiln_symbol_text(f->cx, v->name)));
      continue;
    }
    if (held.tensor) check_declared(f, v, held.tensor);
    if (held.tensor) add_output(f, held.tensor, v->name);
    for (int k = 0; !held.tensor && k < held.sequence->n; k++)
      add_output(f, held.sequence->at[k],
                 kiln_symbol_printf(f->cx, "%s[%d]", kiln_symbol_text(f->cx, v->name), k));
  }
}

// --- names ---

typedef struct naming {
  kiln_graph_traversal *f;
  kiln_map holders; // symbol -> tensor id
  kiln_bits *named; // tensors with their final name
} naming;

// Gives tensor |t| the name of a value; an intermediate that had the name swaps with it.
static void name_tensor(naming *n, kiln_tensor *t, kiln_symbol name) {
  if (kiln_bits_has(n->named, t->id)) return;
  const uint64_t *holder = kiln_map_find(&n->holders, name);
  if (holder && (int)*holder != t->id) {
    if (kiln_bits_has(n->named, (int)*holder)) return;
    kiln_tensor *other = n->f->p->tensors.data[*holder];
    other->name = t->name;
    kiln_map_put(&n->holders, other->name, (uint64_t)other->id);
  }
  t->name = name;
  kiln_map_put(&n->holders, name, (uint64_t)t->id);
  kiln_map *taken = &n->f->p->names;
  if (taken->arena && !kiln_map_find(taken, name)) kiln_map_put(taken, name, 0);
  kiln_bits_set(n->named, t->id);
}

static void name_values(kiln_graph_traversal *f, const kiln_graph_scope *sc) {
  kiln_ctx *cx = f->cx;
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  naming n = {.f = f, .named = kiln_bits_make(&cx->scratch, f->p->tensors.n)};
  kiln_map_init(&n.holders, &cx->scratch);
  for (int i = 0; i < f->p->tensors.n; i++) {
    const kiln_tensor *t = f->p->tensors.data[i];
    kiln_map_put(&n.holders, t->name, (uint64_t)i);
    if (t->role == KILN_INPUT) kiln_bits_set(n.named, i);
  }
  const kiln_graph *g = sc->graph;
  for (int i = 0; i < g->n_outputs; i++)
    if (sc->values[g->outputs[i]].tensor)
      name_tensor(&n, sc->values[g->outputs[i]].tensor, g->values[g->outputs[i]]->name);
  for (int i = 0; i < g->n_values; i++)
    if (sc->values[i].tensor) name_tensor(&n, sc->values[i].tensor, g->values[i]->name);
  kiln_arena_rewind(&cx->scratch, m);
}

kiln_status kiln_fission(kiln_ctx *cx, const kiln_graph *g, kiln_program **out) {
  return kiln_fission_with(cx, g, NULL, out);
}

kiln_status kiln_fission_with(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_program **out) {
  return kiln_fission_like(cx, g, user_ops, NULL, out);
}

// What |f| begins with, for |g|.
static kiln_graph_traversal traversal_make(kiln_ctx *cx, const kiln_graph *g,
                                           const kiln_op *user_ops) {
  return (kiln_graph_traversal){.cx = cx,
                                .lower_body = lower_body,
                                .p = kiln_program_make(cx, kiln_symbol_text(cx, g->name)),
                                .user_ops = user_ops,
                                .counts.otherwise = g->most_extent};
}

// Lowers |g| to one program, in which counts are variables.
static kiln_status lower_all(kiln_graph_traversal *f, const kiln_graph *g) {
  kiln_graph_scope sc = scope_make(f, g, NULL);
  add_inputs(f, &sc);
  const kiln_status nodes = lower_graph(f, &sc);
  if (nodes != KILN_OK) note(f, nodes);
  add_outputs(f, &sc);
  if (f->status == KILN_OK) name_values(f, &sc);
  return f->status;
}

static kiln_status finish(kiln_graph_traversal *f, kiln_program **out) {
  kiln_ctx *cx = f->cx;
  KILN_TRY(kiln_data_dependent_resolve(cx, f->p, &f->counts, &f->checks));
  kiln_checks_finish(cx, f->p, &f->checks);
  kiln_program_fold_empty(cx, f->p);
  kiln_program_dce(cx, f->p);
  KILN_TRY(kiln_program_verify(cx, f->p));
  *out = f->p;
  return KILN_OK;
}

kiln_status kiln_fission_like(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_folds *folds, kiln_program **out) {
  *out = NULL;
  kiln_graph_traversal f = traversal_make(cx, g, user_ops);
  f.folds = folds;
  KILN_TRY(lower_all(&f, g));
  return finish(&f, out);
}

// An output with an extent that the run counts is moved by a statement behind all loops, beside
// which its shape is found.
static void move_counted_outputs(kiln_graph_traversal *f) {
  for (int i = 0; i < f->p->outputs.n; i++) {
    kiln_tensor *t = f->p->tensors.data[f->p->outputs.data[i]];
    const kiln_expr *at[KILN_MAX_RANK];
    bool is_counted = false;
    for (int a = 0; a < t->rank; a++)
      is_counted |= kiln_data_dependent_uses(&f->counts, t->shape[a]);
    if (!is_counted || t->def >= 0) continue;
    kiln_stmt *s = kiln_stmt_make(f->cx, f->p, kiln_symbol_text(f->cx, t->name), t->dtype, t->rank,
                                  0, (const kiln_expr *const *)t->shape);
    kiln_stmt_vars(f->cx, s, 0, t->rank, at);
    s->body = kiln_tensor_load(f->cx, t, at);
    s->origin = t->name;
    f->p->outputs.data[i] = s->out;
  }
}

kiln_status kiln_fission_kept(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_program **out, kiln_unresolved **out_rest) {
  kiln_unresolved *rest = KILN_NEW(&cx->perm, kiln_unresolved);
  *out = NULL;
  *out_rest = NULL;
  kiln_graph_traversal f = traversal_make(cx, g, user_ops);
  f.regions = f.counts.regions = &rest->regions;
  const kiln_status st = lower_all(&f, g);
  if (rest->regions.all.n > 0) *out_rest = rest;
  if (st != KILN_OK) return st;
  if (rest->regions.all.n == 0) return finish(&f, out);
  move_counted_outputs(&f);
  memcpy(&rest->counts, &f.counts, sizeof f.counts);
  memcpy(&rest->checks, &f.checks, sizeof f.checks);
  *out = f.p;
  return KILN_OK;
}

kiln_status kiln_fission_within(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                                const kiln_ranges *dims, kiln_program **out) {
  *out = NULL;
  kiln_graph_traversal f = traversal_make(cx, g, user_ops);
  f.dims = dims;
  KILN_TRY(lower_all(&f, g));
  return finish(&f, out);
}
