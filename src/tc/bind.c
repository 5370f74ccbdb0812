// Binding a definition to a node: which header and definition, what its type variables, dimensions
// and attributes are; then its statements, those that a wanted output needs.
#include "tc/bind.h"
#include "tc/env.h"
#include "tc/lexer.h"
#include "tc/parser.h"
#include "analysis/simplify.h"

#include <stdlib.h>
#include <string.h>

// --- what env.h promises ---

const kiln_tc_size *kiln_tc_find_size(const kiln_tc_env *env, kiln_symbol name) {
  for (int i = 0; i < env->sizes.n; i++)
    if (env->sizes.data[i].name == name) return &env->sizes.data[i];
  return NULL;
}

const kiln_tc_tensor *kiln_tc_find_tensor(const kiln_tc_env *env, kiln_symbol name) {
  for (int i = env->tensors.n - 1; i >= 0; i--)
    if (env->tensors.data[i].name == name) return &env->tensors.data[i];
  return NULL;
}

const kiln_tc_attr *kiln_tc_find_attr(const kiln_tc_env *env, kiln_symbol name) {
  for (int i = 0; i < env->header->n_attrs; i++)
    if (env->header->attrs[i].name == name) return &env->header->attrs[i];
  return NULL;
}

void kiln_tc_storage_of(const kiln_tc_env *env, int n_dims, const kiln_tc_dim *dims, int rank,
                        int *out) {
  bool taken[KILN_MAX_RANK] = {false};
  const kiln_tc_size *spread = NULL;
  for (int i = 0; i < n_dims; i++) {
    const kiln_tc_size *s = dims[i].pack ? kiln_tc_find_size(env, dims[i].name) : NULL;
    if (s != NULL && s->spread) spread = s;
  }
  for (int i = 0; i < rank; i++) out[i] = i;
  if (spread == NULL) return;
  for (int k = 0; k < spread->rank; k++) taken[spread->axes[k]] = true;
  int at = 0, next = 0;
  for (int i = 0; i < n_dims; i++) {
    const kiln_tc_size *s = dims[i].name != 0 ? kiln_tc_find_size(env, dims[i].name) : NULL;
    for (int k = 0; k < (s != NULL ? s->rank : 1) && at < rank; k++, at++) {
      while (next < rank && taken[next]) next++;
      out[at] = s == spread ? spread->axes[k] : next++;
    }
  }
}

bool kiln_tc_type_named(const kiln_tc_env *env, kiln_symbol name, kiln_dtype *out) {
  for (int i = 0; i < env->n_types; i++) {
    if (env->type_names[i] != name) continue;
    *out = env->types[i];
    return true;
  }
  if (kiln_tc_type_of(kiln_symbol_text(env->cx, name), out)) return true;
  for (int i = 0; i < env->def->n_params; i++) {
    if (env->def->params[i].type.var != name) continue;
    *out = KILN_F32; // only omitted inputs have it
    return true;
  }
  return false;
}

kiln_dtype kiln_tc_type_in(const kiln_tc_env *env, const kiln_tc_type *t) {
  kiln_dtype d = t->dtype;
  if (t->var != 0) (void)kiln_tc_type_named(env, t->var, &d);
  return d;
}

// --- fitting a definition to inputs ---

// A definition that does not fit says why; that is no error while others are left.
typedef struct fit {
  kiln_tc_env *env;
  const char *why; // NULL: it fits so far
  bool types_fit;
} fit;

static const char *text_of(const fit *f, kiln_symbol s) { return kiln_symbol_text(f->env->cx, s); }

#define MISFIT(f, ...) ((f)->why = kiln_arena_printf(&(f)->env->cx->perm, __VA_ARGS__))

static const kiln_tensor *input_of(const kiln_tc_env *env, int i) {
  return i < env->lw->n_inputs ? env->lw->inputs[i] : NULL;
}

static bool class_has(kiln_tc_class c, kiln_dtype t) {
  kiln_kind k = kiln_dtype_kind(t);
  switch (c) {
  case KILN_TC_ANY: return true;
  case KILN_TC_FLOATS: return k == KILN_KIND_FLOAT;
  case KILN_TC_INTS: return k == KILN_KIND_INT || k == KILN_KIND_UINT;
  case KILN_TC_SIGNED: return k == KILN_KIND_INT;
  case KILN_TC_UNSIGNED: return k == KILN_KIND_UINT;
  case KILN_TC_NUMBERS: return k != KILN_KIND_BOOL;
  case KILN_TC_BOOLS: return k == KILN_KIND_BOOL;
  case KILN_TC_HALVES: return t == KILN_F16 || t == KILN_BF16;
  }
  return false;
}

static const char *class_text(kiln_tc_class c) {
  static const char *const texts[] = {"any type", "a float",  "an integer", "a signed integer",
                                      "unsigned", "a number", "bool",       "a half float"};
  return texts[c];
}

static void bind_type(fit *f, const kiln_tc_param *p, const kiln_tensor *t) {
  kiln_tc_env *env = f->env;
  kiln_dtype bound = p->type.dtype;
  kiln_tc_class class_ = KILN_TC_ANY;
  if (p->type.var != 0) {
    (void)kiln_tc_typevar_of(env->cx, env->def, p->type.var, &class_);
    if (!class_has(class_, t->dtype)) {
      MISFIT(f, "%s: must be %s, got %s", text_of(f, p->name), class_text(class_),
             kiln_dtype_text(t->dtype));
      return;
    }
    int i = 0;
    while (i < env->n_types && env->type_names[i] != p->type.var) i++;
    if (i == KILN_N_DTYPES) {
      MISFIT(f, "%s: there are more than %d type variables", text_of(f, p->name), KILN_N_DTYPES);
      return;
    }
    if (i == env->n_types) {
      env->type_names[i] = p->type.var;
      env->types[i] = t->dtype;
      env->n_types++;
    }
    bound = env->types[i];
  }
  if (bound != t->dtype)
    MISFIT(f, "%s: must be %s, got %s", text_of(f, p->name), kiln_dtype_text(bound),
           kiln_dtype_text(t->dtype));
}

static void bind_types(fit *f) {
  const kiln_tc_def *d = f->env->def;
  for (int i = 0; i < d->n_params && f->why == NULL; i++) {
    const kiln_tensor *t = input_of(f->env, i);
    if (t != NULL) bind_type(f, &d->params[i], t);
    else if (d->params[i].otherwise == NULL)
      MISFIT(f, "%s: input %d must be given", text_of(f, d->params[i].name), i);
  }
  for (int i = d->n_params; i < f->env->lw->n_inputs && f->why == NULL; i++)
    if (f->env->lw->inputs[i] != NULL) MISFIT(f, "there must be at most %d inputs", d->n_params);
}

static kiln_tc_size *size_of(kiln_tc_env *env, const kiln_tc_dim *d) {
  for (int i = 0; i < env->sizes.n; i++)
    if (env->sizes.data[i].name == d->name) return &env->sizes.data[i];
  kiln_tc_size s = {.name = d->name, .pack = d->pack, .known = !d->pack, .rank = d->pack ? 0 : 1};
  KILN_VEC_PUSH(&env->cx->perm, &env->sizes, s);
  return &env->sizes.data[env->sizes.n - 1];
}

// Where |dim| stands by an axis attribute; -1 when none says so.
static int axis_of(fit *f, const kiln_tc_dim *dim, int rank) {
  const kiln_tc_attr *a = NULL;
  for (int i = 0; i < f->env->header->n_attrs; i++)
    if (f->env->header->attrs[i].dim == dim->name && dim->name != 0 &&
        f->env->header->attrs[i].kind == KILN_ATTR_INT)
      a = &f->env->header->attrs[i];
  if (a == NULL) return -1;
  const kiln_attr *n = kiln_node_attr(f->env->lw->node, a->name);
  if (n != NULL && n->kind != KILN_ATTR_INT) {
    MISFIT(f, "%s: the attribute must be an int", text_of(f, a->name));
    return -1;
  }
  const kiln_tc_size *s = size_of(f->env, dim);
  if (n == NULL && a->at_end) return s->known ? rank - s->rank : -1;
  int64_t axis = n != NULL ? n->u.i : a->i;
  if (axis < -rank || axis > rank - (dim->pack ? 0 : 1)) {
    MISFIT(f, "%s: must be in [-%d, %d], got %" PRId64, text_of(f, a->name), rank,
           dim->pack ? rank : rank - 1, axis);
    return -1;
  }
  return (int)(axis < 0 ? axis + rank : axis);
}

// Sums the known ranks of dims [0, n) of |p|; *out_unknown is the only pack without one, else -1.
static int known_rank(fit *f, const kiln_tc_param *p, int n, int *out_unknown, int *out_n_unknown) {
  int sum = 0;
  *out_n_unknown = 0;
  *out_unknown = -1;
  for (int i = 0; i < n; i++) {
    const kiln_tc_dim *d = &p->dims[i];
    const kiln_tc_size *s = d->name != 0 ? size_of(f->env, d) : NULL;
    if (s == NULL || s->known) {
      sum += s == NULL ? 1 : s->rank;
      continue;
    }
    *out_unknown = i;
    (*out_n_unknown)++;
  }
  return sum;
}

static bool set_rank(fit *f, const kiln_tc_param *p, int dim, int rank) {
  if (rank < 0) {
    MISFIT(f, "%s: has too few dimensions", text_of(f, p->name));
    return false;
  }
  kiln_tc_size *s = size_of(f->env, &p->dims[dim]);
  s->rank = rank;
  s->known = true;
  return true;
}

// Finds ranks of packs of |p| from its tensor's rank and the axis attributes; true on progress.
static bool find_ranks(fit *f, const kiln_tc_param *p, int rank) {
  int unknown, n_unknown;
  int known = known_rank(f, p, p->n_dims, &unknown, &n_unknown);
  if (n_unknown == 0) return false;
  for (int i = 0; i < p->n_dims && n_unknown > 1; i++) {
    int axis = axis_of(f, &p->dims[i], rank), before_unknown, n_before;
    if (f->why != NULL) return false;
    int before = axis < 0 ? 0 : known_rank(f, p, i, &before_unknown, &n_before);
    if (axis >= 0 && n_before == 1) return set_rank(f, p, before_unknown, axis - before);
  }
  return n_unknown == 1 && set_rank(f, p, unknown, rank - known);
}

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// The axes that a list names belong to the pack, in rising order; |rank| is of the first input that
// has it.
static void bind_axes(fit *f, const kiln_tc_attr *a, kiln_tc_size *s, int rank) {
  const kiln_attr *n = kiln_node_attr(f->env->lw->node, a->name);
  bool is_list = n == NULL || n->kind == KILN_ATTR_INTS;
  int count = n != NULL ? n->n : a->n_ints;
  if (!is_list || count > rank) {
    MISFIT(f, "%s: must be a list of at most %d axes", text_of(f, a->name), rank);
    return;
  }
  s->spread = s->known = true;
  for (int i = 0; i < count; i++) {
    int64_t axis = n != NULL ? n->u.ints[i] : a->ints[i];
    if (axis < 0) axis += rank;
    for (int k = 0; k < i; k++)
      if (s->axes[k] == axis) axis = -1;
    if (axis < 0 || axis >= rank) {
      MISFIT(f, "%s: must be different axes in [-%d, %d]", text_of(f, a->name), rank, rank - 1);
      return;
    }
    s->axes[s->rank++] = (int)axis;
  }
  qsort(s->axes, (size_t)s->rank, sizeof s->axes[0], compare_ints);
}

static void bind_spread_packs(fit *f) {
  const kiln_tc_def *d = f->env->def;
  for (int i = 0; i < f->env->header->n_attrs; i++) {
    const kiln_tc_attr *a = &f->env->header->attrs[i];
    bool found = a->kind != KILN_ATTR_INTS;
    for (int p = 0; p < d->n_params && !found; p++)
      for (int k = 0; k < d->params[p].n_dims && !found; k++) {
        found = d->params[p].dims[k].name == a->dim && input_of(f->env, p) != NULL;
        if (found)
          bind_axes(f, a, size_of(f->env, &d->params[p].dims[k]), input_of(f->env, p)->rank);
      }
  }
}

static bool has_one_element(const kiln_tensor *t) {
  int64_t extent;
  for (int i = 0; i < t->rank; i++)
    if (!kiln_expr_is_int(t->shape[i], &extent) || extent != 1) return false;
  return true;
}

static void bind_ranks(fit *f) {
  const kiln_tc_def *d = f->env->def;
  bool progress = true;
  bind_spread_packs(f);
  while (progress && f->why == NULL) {
    progress = false;
    for (int i = 0; i < d->n_params && f->why == NULL; i++)
      if (input_of(f->env, i) != NULL)
        progress = find_ranks(f, &d->params[i], input_of(f->env, i)->rank) || progress;
  }
  for (int i = 0; i < d->n_params && f->why == NULL; i++) {
    const kiln_tc_param *p = &d->params[i];
    const kiln_tensor *t = input_of(f->env, i);
    int unknown, n_unknown;
    if (t == NULL || (p->n_dims == 0 && has_one_element(t))) continue;
    int rank = known_rank(f, p, p->n_dims, &unknown, &n_unknown);
    if (n_unknown > 0) MISFIT(f, "%s: its packs cannot be told apart", text_of(f, p->name));
    else if (rank != t->rank)
      MISFIT(f, "%s: must have %d dimensions, got %d", text_of(f, p->name), rank, t->rank);
  }
}

static bool same(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  if (a == b) return true;
  kiln_mark m = kiln_arena_mark(&cx->scratch);
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  bool zero = kiln_expr_is_zero(kiln_simplify(cx, kiln_sub(cx, a, b), &none));
  kiln_arena_rewind(&cx->scratch, m);
  return zero;
}

// One extent of a dimension that several inputs have; a number is preferred to a name.
static void bind_extent(fit *f, const kiln_tc_param *p, int axis, const kiln_expr **to,
                        const kiln_expr *extent) {
  int64_t have, got;
  bool have_fixed = *to != NULL && kiln_expr_is_int(*to, &have);
  bool got_fixed = kiln_expr_is_int(extent, &got);
  if (have_fixed && got_fixed && have != got)
    MISFIT(f, "%s: axis %d must have %" PRId64 " elements, got %" PRId64, text_of(f, p->name), axis,
           have, got);
  bool replaces = *to == NULL || (got_fixed && !have_fixed);
  if (replaces && !(*to != NULL && same(f->env->cx, *to, extent))) *to = extent;
}

static void bind_extents(fit *f, const kiln_tc_param *p, const kiln_tensor *t) {
  int at = 0, storage[KILN_MAX_RANK];
  kiln_tc_storage_of(f->env, p->n_dims, p->dims, t->rank, storage);
  for (int i = 0; i < p->n_dims; i++) {
    const kiln_tc_dim *d = &p->dims[i];
    if (d->name == 0) {
      const kiln_expr *want = kiln_int(f->env->cx, d->value);
      bind_extent(f, p, at, &want, t->shape[storage[at]]);
      at++;
      continue;
    }
    kiln_tc_size *s = size_of(f->env, d);
    for (int k = 0; k < s->rank; k++, at++)
      bind_extent(f, p, at, &s->extents[k], t->shape[storage[at]]);
  }
}

static kiln_tc_tensor declared(const fit *f, int i) {
  const kiln_tc_param *p = &f->env->def->params[i];
  const kiln_tensor *t = input_of(f->env, i);
  kiln_tc_tensor out = {.name = p->name, .tensor = t, .otherwise = p->otherwise};
  out.type = t != NULL ? t->dtype : kiln_tc_type_in(f->env, &p->type);
  out.n_dims = p->n_dims;
  out.dims = p->dims;
  for (int d = 0; t != NULL && d < p->n_dims; d++) {
    const kiln_tc_size *s = kiln_tc_find_size(f->env, p->dims[d].name);
    out.ranks[d] = s != NULL ? s->rank : 1;
    for (int k = 0; k < out.ranks[d]; k++, out.rank++) {
      out.extents[out.rank] = s != NULL ? s->extents[k] : kiln_int(f->env->cx, p->dims[d].value);
      out.origins[out.rank] = kiln_int(f->env->cx, 0);
    }
  }
  kiln_tc_storage_of(f->env, p->n_dims, p->dims, out.rank, out.storage);
  return out;
}

static void bind_def(fit *f) {
  kiln_tc_env *env = f->env;
  bind_types(f);
  f->types_fit = f->why == NULL;
  if (f->why == NULL) bind_ranks(f);
  for (int i = 0; i < env->def->n_params && f->why == NULL; i++)
    if (input_of(env, i) != NULL) bind_extents(f, &env->def->params[i], input_of(env, i));
  for (int i = 0; i < env->def->n_params && f->why == NULL; i++) {
    kiln_tc_tensor t = declared(f, i);
    KILN_VEC_PUSH(&env->cx->perm, &env->tensors, t);
  }
}

// --- statements ---

static bool wants(const kiln_lower *lw, int output) {
  return output < lw->n_outputs && (lw->node->outputs == NULL || lw->node->outputs[output] >= 0);
}

static void mention(const kiln_tc_expr *e, const kiln_tc_def *d, bool *needed, int before) {
  for (int s = 0; s < before; s++)
    if (e->name != 0 && d->stmts[s].out == e->name) needed[s] = true;
  for (int i = 0; i < e->n_args; i++) mention(e->args[i], d, needed, before);
}

// Marks the statements that a wanted output needs.
static void find_needed(const kiln_tc_env *env, bool *needed) {
  const kiln_tc_def *d = env->def;
  for (int s = d->n_stmts - 1; s >= 0; s--) {
    const kiln_tc_stmt *st = &d->stmts[s];
    int out = kiln_tc_find_out(d, st->out);
    if (out >= 0 && wants(env->lw, out)) needed[s] = true;
    if (!needed[s]) continue;
    bool updates = st->combiner != KILN_COMBINE_NONE && !st->fresh;
    for (int k = 0; k < s && updates; k++)
      if (d->stmts[k].out == st->out) needed[k] = true;
    mention(st->rhs, d, needed, s);
    for (int i = 0; i < st->n_clauses; i++)
      if (st->clauses[i].lo != NULL) mention(st->clauses[i].lo, d, needed, s);
  }
}

static const char *value_name(const kiln_tc_env *env, int output) {
  const kiln_lower *lw = env->lw;
  bool named = lw->graph != NULL && output < lw->node->n_outputs && lw->node->outputs[output] >= 0;
  if (named) return kiln_symbol_text(env->cx, lw->graph->values[lw->node->outputs[output]]->name);
  return kiln_symbol_text(env->cx, env->def->outs[output].name);
}

static kiln_status emit_all(kiln_tc_env *env) {
  const kiln_tc_def *d = env->def;
  bool *needed = KILN_NEW_ARRAY(&env->cx->perm, bool, d->n_stmts);
  find_needed(env, needed);
  for (int s = 0; s < d->n_stmts; s++) {
    if (!needed[s]) continue;
    int out = kiln_tc_find_out(d, d->stmts[s].out);
    const char *name = out >= 0 ? value_name(env, out)
                                : kiln_arena_printf(&env->cx->perm, "%s_%s", value_name(env, 0),
                                                    kiln_symbol_text(env->cx, d->stmts[s].out));
    KILN_TRY(kiln_tc_emit(env, s, name));
  }
  for (int i = 0; i < env->lw->n_outputs; i++) {
    if (!wants(env->lw, i)) continue;
    if (i >= d->n_outs)
      return KILN_FAIL(env->cx->diag, KILN_UNSUPPORTED, env->lw->place,
                       "outputs: must be at most %d, got output %d", d->n_outs, i);
    const kiln_tc_tensor *t = kiln_tc_find_tensor(env, d->outs[i].name);
    env->lw->outputs[i] = env->lw->prog->tensors.data[t->tensor->id];
  }
  return KILN_OK;
}

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

// A definition whose requirement does not hold is passed over; the first text is kept.
static kiln_status check_requirements(kiln_tc_env *env, kiln_symbol *out_message) {
  for (int s = 0; s < env->def->n_stmts; s++) {
    bool holds = true;
    if (env->def->stmts[s].out != 0 || env->trial) continue;
    KILN_TRY(kiln_tc_holds(env, s, &holds));
    if (!holds && *out_message == 0) *out_message = env->def->stmts[s].message;
  }
  return KILN_OK;
}

typedef struct refusal {
  int n_tried;
  kiln_symbol message;     // of a requirement that did not hold
  const char *why, *typed; // the last misfit; the last whose types fit
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

// Lowers with the first definition under |h| that fits.
static kiln_status lower_with(kiln_lower *lw, const kiln_tc_file *file, const kiln_tc_header *h,
                              bool trial) {
  refusal r = {.why = "there is no definition"};
  for (int d = 0; d < file->n_defs; d++) {
    if (h->def != 0 && file->defs[d].name != h->def) continue;
    kiln_tc_env *env = KILN_NEW(&lw->cx->perm, kiln_tc_env);
    env->cx = lw->cx;
    env->lw = lw;
    env->file = file;
    env->header = h;
    env->def = &file->defs[d];
    env->trial = trial;
    fit f = {.env = env};
    kiln_symbol message = 0;
    bind_def(&f);
    if (f.why == NULL) KILN_TRY(check_requirements(env, &message));
    if (f.why == NULL && message == 0) return emit_all(env);
    if (message != 0 && r.message == 0) r.message = message;
    if (f.why != NULL) r.why = f.why;
    if (f.why != NULL && f.types_fit) r.typed = f.why;
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

kiln_status kiln_tc_lower(kiln_lower *lw, const kiln_op *op) {
  kiln_tc_source source = {lw->cx, op->file, op->tc, KILN_INTERNAL};
  kiln_tc_file file;
  KILN_TRY(kiln_tc_parse(&source, &file));
  KILN_TRY(kiln_tc_check_file(&file));
  const kiln_tc_header *h = find_header(&file, op->domain, op->name, lw->node->opset);
  if (h == NULL) h = find_header(&file, op->domain, op->name, op->since);
  if (h == NULL)
    return KILN_FAIL(lw->cx->diag, KILN_INTERNAL, lw->place,
                     "%s: must have a header in %s, got none", op->name, op->file);
  return lower_with(lw, &file, h, false);
}

// --- checking a file without a node ---

static kiln_dtype trial_type(kiln_ctx *cx, const kiln_tc_def *d, const kiln_tc_type *t, bool half) {
  kiln_tc_class c = KILN_TC_ANY;
  if (t->var == 0) return t->dtype;
  (void)kiln_tc_typevar_of(cx, d, t->var, &c);
  switch (c) {
  case KILN_TC_INTS:
  case KILN_TC_SIGNED: return KILN_I32;
  case KILN_TC_UNSIGNED: return KILN_U8;
  case KILN_TC_BOOLS: return KILN_BOOL;
  case KILN_TC_HALVES: return KILN_BF16;
  case KILN_TC_ANY:
  case KILN_TC_FLOATS:
  case KILN_TC_NUMBERS: break;
  }
  return half ? KILN_F16 : KILN_F32;
}

// An input with a dimension of its own name for each single one, and two for a pack.
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
  return kiln_tensor_make(cx, p, kiln_symbol_text(cx, q->name), trial_type(cx, d, &q->type, half),
                          KILN_INPUT, rank, shape);
}

// Binds one definition to inputs made to fit it, with the optional ones or without.
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
  kiln_tc_header only = *h;
  only.def = d->name;
  kiln_tc_file alone = *file; // of definitions that share a name, this one
  alone.n_defs = 1;
  alone.defs = (kiln_tc_def *)d;
  KILN_TRY(lower_with(&lw, &alone, &only, true));
  for (int i = 0; i < d->n_outs; i++) {
    if (lw.outputs[i]->role == KILN_TEMP) lw.outputs[i]->role = KILN_OUTPUT;
    KILN_VEC_PUSH(&cx->perm, &lw.prog->outputs, lw.outputs[i]->id);
  }
  return kiln_program_verify(cx, lw.prog);
}

kiln_status kiln_tc_check(kiln_ctx *cx, const char *file, const char *text) {
  kiln_tc_source source = {cx, file, text, KILN_BAD_INPUT};
  kiln_tc_file parsed;
  KILN_TRY(kiln_tc_parse(&source, &parsed));
  KILN_TRY(kiln_tc_check_file(&parsed));
  for (int i = 0; i < parsed.n_headers; i++)
    for (int d = 0; d < parsed.n_defs; d++) {
      const kiln_tc_header *h = &parsed.headers[i];
      if (h->def != 0 && h->def != parsed.defs[d].name) continue;
      for (int way = 0; way < 4; way++)
        KILN_TRY(trial(&parsed, h, &parsed.defs[d], way & 1, way & 2));
    }
  return KILN_OK;
}
