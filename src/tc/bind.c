// Binding a definition to a caller: determines its type variables, dimensions and attributes, then
// emits the statements that a wanted output needs.
#include "tc/env.h"
#include "tc/infer.h"

#include <stdlib.h>
#include <string.h>

// --- the interface of env.h ---

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
  for (int i = 0; env->header != NULL && i < env->header->n_attrs; i++)
    if (env->header->attrs[i].name == name) return &env->header->attrs[i];
  return NULL;
}

const kiln_attr *kiln_tc_find_given(const kiln_tc_env *env, kiln_symbol name) {
  const kiln_tc_caller *c = env->caller;
  if (c->node != NULL) return kiln_node_attr(c->node, name);
  for (int i = 0; i < c->n_bindings; i++) {
    if (strcmp(c->bindings[i].name, kiln_symbol_text(env->cx, name)) != 0) continue;
    kiln_attr *a = KILN_NEW(&env->cx->perm, kiln_attr);
    a->name = name;
    a->kind = KILN_ATTR_INT;
    a->u.i = c->bindings[i].value;
    return a;
  }
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
    *out = KILN_F32; // type of an omitted input
    return true;
  }
  return false;
}

kiln_dtype kiln_tc_type_in(const kiln_tc_env *env, const kiln_tc_type *t) {
  kiln_dtype d = t->dtype;
  if (t->var != 0) (void)kiln_tc_type_named(env, t->var, &d);
  return d;
}

// --- matching a definition to inputs ---

// A mismatch is recorded as text; it is an error only if no other definition matches.
typedef struct fit {
  kiln_tc_env *env;
  const char *why; // NULL: matches so far
  bool types_fit;
} fit;

static const char *text_of(const fit *f, kiln_symbol s) { return kiln_symbol_text(f->env->cx, s); }

#define MISFIT(f, ...) ((f)->why = kiln_arena_printf(&(f)->env->cx->perm, __VA_ARGS__))

static const kiln_tensor *input_of(const kiln_tc_env *env, int i) {
  return i < env->caller->n_inputs ? env->caller->inputs[i].tensor : NULL;
}

static const kiln_expr *const *shape_of(const kiln_tc_env *env, int i) {
  const kiln_tc_argument *a = &env->caller->inputs[i];
  return a->view != NULL ? a->view->extents : a->tensor->shape;
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
  case KILN_TC_HALVES: return kiln_dtype_is_half(t);
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

static kiln_tc_size *size_of(kiln_tc_env *env, const kiln_tc_dim *d) {
  for (int i = 0; i < env->sizes.n; i++)
    if (env->sizes.data[i].name == d->name) return &env->sizes.data[i];
  kiln_tc_size s = {.name = d->name, .pack = d->pack, .known = !d->pack, .rank = d->pack ? 0 : 1};
  KILN_VEC_PUSH(&env->cx->perm, &env->sizes, s);
  return &env->sizes.data[env->sizes.n - 1];
}

static const kiln_expr *value_of(const kiln_tc_env *env, int i) {
  return i < env->caller->n_inputs ? env->caller->inputs[i].value : NULL;
}

static bool ends_in_pack(const kiln_tc_def *d) {
  return d->n_params > 0 && d->params[d->n_params - 1].pack;
}

// The number for parameter |i|, or, for a pack, those from |i| on.
static void bind_size(fit *f, int i) {
  kiln_tc_env *env = f->env;
  const kiln_tc_param *p = &env->def->params[i];
  kiln_tc_size *s = size_of(env, &(kiln_tc_dim){.name = p->name, .pack = p->pack});
  s->known = true;
  s->rank = p->pack ? env->caller->n_inputs - i : 1;
  if (s->rank < 0) s->rank = 0;
  if (s->rank > KILN_MAX_RANK) {
    MISFIT(f, "%s: must have at most %d numbers, got %d", text_of(f, p->name), KILN_MAX_RANK,
           s->rank);
    return;
  }
  for (int k = 0; k < s->rank; k++) {
    s->extents[k] = value_of(env, i + k);
    if (s->extents[k] != NULL && s->extents[k]->dtype == KILN_I64) continue;
    MISFIT(f, "%s: must be an integer that is known", text_of(f, p->name));
    return;
  }
}

static void bind_types(fit *f) {
  const kiln_tc_def *d = f->env->def;
  for (int i = 0; i < d->n_params && f->why == NULL; i++) {
    const kiln_tensor *t = input_of(f->env, i);
    if (t != NULL && d->params[i].size)
      MISFIT(f, "%s: must be a number, got a tensor", text_of(f, d->params[i].name));
    else if (t != NULL) bind_type(f, &d->params[i], t);
    else if (d->params[i].size) bind_size(f, i);
    else if (value_of(f->env, i) != NULL && d->params[i].n_dims > 0)
      MISFIT(f, "%s: must be a tensor, got a number", text_of(f, d->params[i].name));
    else if (d->params[i].otherwise == NULL && value_of(f->env, i) == NULL)
      MISFIT(f, "%s: input %d must be given", text_of(f, d->params[i].name), i);
  }
  for (int i = d->n_params; i < f->env->caller->n_inputs && f->why == NULL; i++)
    if (input_of(f->env, i) != NULL || (value_of(f->env, i) != NULL && !ends_in_pack(d)))
      MISFIT(f, "there must be at most %d inputs", d->n_params);
}

// The axis of |dim| as given by an axis attribute; -1: none.
static int axis_of(fit *f, const kiln_tc_dim *dim, int rank) {
  const kiln_tc_attr *a = NULL;
  const kiln_tc_header *h = f->env->header;
  for (int i = 0; h != NULL && i < h->n_attrs; i++)
    if (h->attrs[i].dim == dim->name && dim->name != 0 && h->attrs[i].kind == KILN_ATTR_INT)
      a = &h->attrs[i];
  if (a == NULL) return -1;
  const kiln_attr *n = kiln_tc_find_given(f->env, a->name);
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

// The sum of known ranks of dims [0, n) of |p|; *out_unknown is the pack without known rank if
// there is exactly one, else -1.
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

// Infers ranks of packs of |p| from its tensor's rank and the axis attributes; true on progress.
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

// A list attribute assigns axes to the pack, in ascending order; |rank| is that of the first input
// with the pack.
static void bind_axes(fit *f, const kiln_tc_attr *a, kiln_tc_size *s, int rank) {
  const kiln_attr *n = kiln_tc_find_given(f->env, a->name);
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
  const kiln_tc_header *h = f->env->header;
  for (int i = 0; h != NULL && i < h->n_attrs; i++) {
    const kiln_tc_attr *a = &h->attrs[i];
    bool found = a->kind != KILN_ATTR_INTS;
    for (int p = 0; p < d->n_params && !found; p++)
      for (int k = 0; k < d->params[p].n_dims && !found; k++) {
        found = d->params[p].dims[k].name == a->dim && input_of(f->env, p) != NULL;
        if (found)
          bind_axes(f, a, size_of(f->env, &d->params[p].dims[k]), input_of(f->env, p)->rank);
      }
  }
}

static bool has_one_element(int rank, const kiln_expr *const *shape) {
  int64_t extent;
  for (int i = 0; i < rank; i++)
    if (!kiln_expr_is_int(shape[i], &extent) || extent != 1) return false;
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
    if (t == NULL || (p->n_dims == 0 && has_one_element(t->rank, shape_of(f->env, i)))) continue;
    int rank = known_rank(f, p, p->n_dims, &unknown, &n_unknown);
    if (n_unknown > 0) MISFIT(f, "%s: its packs cannot be told apart", text_of(f, p->name));
    else if (rank != t->rank)
      MISFIT(f, "%s: must have %d dimensions, got %d", text_of(f, p->name), rank, t->rank);
  }
}

static bool same(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return a == b || kiln_expr_is_zero(kiln_tc_simple(cx, kiln_sub(cx, a, b)));
}

// Unifies an extent of a dimension shared by several inputs; a number is preferred to a symbol.
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

static void bind_extents(fit *f, const kiln_tc_param *p, int rank, const kiln_expr *const *shape) {
  int at = 0, storage[KILN_MAX_RANK];
  kiln_tc_storage_of(f->env, p->n_dims, p->dims, rank, storage);
  for (int i = 0; i < p->n_dims; i++) {
    const kiln_tc_dim *d = &p->dims[i];
    if (d->name == 0) {
      const kiln_expr *want = kiln_int(f->env->cx, d->value);
      bind_extent(f, p, at, &want, shape[storage[at]]);
      at++;
      continue;
    }
    kiln_tc_size *s = size_of(f->env, d);
    for (int k = 0; k < s->rank; k++, at++)
      bind_extent(f, p, at, &s->extents[k], shape[storage[at]]);
  }
}

static kiln_tc_tensor declared(const fit *f, int i) {
  const kiln_tc_param *p = &f->env->def->params[i];
  const kiln_tensor *t = input_of(f->env, i);
  kiln_tc_tensor out = {.name = p->name, .tensor = t, .otherwise = p->otherwise};
  out.value = t == NULL ? value_of(f->env, i) : NULL;
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
  const kiln_tc_tensor *view = t != NULL ? f->env->caller->inputs[i].view : NULL;
  for (int k = 0; view != NULL && k < out.rank; k++) { // a view keeps its origin and storage
    out.origins[k] = view->origins[out.storage[k]];
    out.storage[k] = view->storage[out.storage[k]];
  }
  return out;
}

// Sizes declared by outputs only must be given by the caller; in a program of its own they may stay
// symbolic.
static void bind_output_sizes(fit *f) {
  kiln_tc_env *env = f->env;
  for (int o = 0; o < env->def->n_outs && env->caller->owns_program; o++)
    for (int i = 0; i < env->def->outs[o].n_dims; i++) {
      const kiln_tc_dim *d = &env->def->outs[o].dims[i];
      if (d->name == 0 || d->pack || kiln_tc_find_size(env, d->name) != NULL) continue;
      const kiln_attr *given = kiln_tc_find_given(env, d->name);
      size_of(env, d)->extents[0] =
          given != NULL ? kiln_int(env->cx, given->u.i) : kiln_var(env->cx, d->name);
    }
}

static void bind_def(fit *f) {
  kiln_tc_env *env = f->env;
  bind_types(f);
  f->types_fit = f->why == NULL;
  if (f->why == NULL) bind_ranks(f);
  for (int i = 0; i < env->def->n_params && f->why == NULL; i++)
    if (input_of(env, i) != NULL)
      bind_extents(f, &env->def->params[i], input_of(env, i)->rank, shape_of(env, i));
  bind_output_sizes(f);
  for (int i = 0; i < env->def->n_params && f->why == NULL; i++) {
    if (env->def->params[i].size) continue;
    kiln_tc_tensor t = declared(f, i);
    KILN_VEC_PUSH(&env->cx->perm, &env->tensors, t);
  }
}

// --- statements ---

static bool wants(const kiln_tc_env *env, int output) {
  return output < env->caller->n_outputs && env->caller->outputs[output] != NULL;
}

static bool mentions(const kiln_tc_expr *e, kiln_symbol name) {
  if (e == NULL) return false;
  if (e->name == name) return true;
  for (int i = 0; i < e->n_args; i++)
    if (mentions(e->args[i], name)) return true;
  return false;
}

bool kiln_tc_reads(const kiln_tc_stmt *s, kiln_symbol name) {
  bool updates = s->combiner != KILN_COMBINE_NONE && !s->fresh;
  if ((updates && s->out == name) || mentions(s->rhs, name)) return true;
  for (int i = 0; i < s->n_clauses; i++)
    if (mentions(s->clauses[i].lo, name) || mentions(s->clauses[i].hi, name)) return true;
  return false;
}

// Whether |st| reads the result of |before|, or writes a part of the same tensor.
static bool feeds(const kiln_tc_stmt *before, const kiln_tc_stmt *st) {
  for (int i = 0; i < before->n_more; i++)
    if (kiln_tc_reads(st, before->more[i].name)) return true;
  return before->out != 0 && (before->out == st->out || kiln_tc_reads(st, before->out));
}

// Marks the statements that a wanted output needs.
static void find_needed(const kiln_tc_env *env, bool *needed) {
  const kiln_tc_def *d = env->def;
  for (int s = d->n_stmts - 1; s >= 0; s--) {
    const kiln_tc_stmt *st = &d->stmts[s];
    for (int o = 0; o < d->n_outs; o++)
      if (wants(env, o) && kiln_tc_writes(st, d->outs[o].name)) needed[s] = true;
    if (!needed[s]) continue;
    for (int k = 0; k < s; k++) // earlier statements may write other elements of the same tensor
      if (feeds(&d->stmts[k], st)) needed[k] = true;
  }
}

const char *kiln_tc_name_of(const kiln_tc_env *env, int stmt, kiln_symbol written) {
  const kiln_tc_def *d = env->def;
  int out = kiln_tc_find_out(d, written), later = 0;
  for (int s = stmt + 1; s < d->n_stmts; s++) later += kiln_tc_writes(&d->stmts[s], written);
  if (out >= 0 && wants(env, out) && later == 0) return env->caller->outputs[out];
  const char *text = kiln_symbol_text(env->cx, written), *prefix = env->caller->prefix;
  if (prefix != NULL) text = kiln_arena_printf(&env->cx->perm, "%s_%s", prefix, text);
  return later > 0 ? kiln_arena_printf(&env->cx->perm, "%s_%d", text, later) : text;
}

kiln_status kiln_tc_emit_all(kiln_tc_env *env) {
  const kiln_tc_def *d = env->def;
  bool *needed = KILN_NEW_ARRAY(&env->cx->perm, bool, d->n_stmts);
  find_needed(env, needed);
  for (int s = 0; s < d->n_stmts; s++)
    if (needed[s]) KILN_TRY(kiln_tc_emit(env, s));
  KILN_TRY(kiln_tc_finish(env, -1));
  for (int i = d->n_outs; i < env->caller->n_outputs; i++)
    if (wants(env, i))
      return KILN_FAIL(env->cx->diag, KILN_UNSUPPORTED, env->caller->place,
                       "outputs: must be at most %d, got output %d", d->n_outs, i);
  return KILN_OK;
}

// A definition whose `require` fails is skipped; the first message is kept.
static kiln_status check_requirements(kiln_tc_env *env, kiln_symbol *out_message) {
  for (int s = 0; s < env->def->n_stmts; s++) {
    bool holds = true;
    if (env->def->stmts[s].out != 0 || env->caller->trial) continue;
    KILN_TRY(kiln_tc_holds(env, s, &holds));
    if (!holds && *out_message == 0) *out_message = env->def->stmts[s].message;
  }
  return KILN_OK;
}

kiln_status kiln_tc_fit(kiln_tc_env *env, kiln_tc_misfit *out) {
  fit f = {.env = env};
  *out = (kiln_tc_misfit){0};
  bind_def(&f);
  out->why = f.why;
  out->types_fit = f.types_fit;
  return f.why == NULL ? check_requirements(env, &out->message) : KILN_OK;
}
