// Splits ranges into shape buckets, binds a graph to values, and compares the resulting programs.
#include "dynamic/ranges.h"
#include "analysis/simplify.h"
#include "dynamic/dims.h"
#include "dynamic/equivalence.h"
#include "dynamic/index_bounds.h"
#include "dynamic/neutral_padding.h"
#include "dynamic/symbolic.h"
#include "rewrite/checks.h"
#include "support/bits.h"
#include "support/diag.h"
#include "support/integer.h"
#include "tile/query.h"

#include <math.h>
#include <string.h>

enum {
  MAX_PARTS = 32,
  MOST_IN_TABLE = 64,
  MAX_CUTS = MAX_PARTS + 1,
  N_SAMPLES =
      3 // values of a dimension, in a bucket, at which programs are compared with the one at its
        // maximum
};

// A bucket is split when the work at its largest extents exceeds this many times the work at its
// smallest; WASTE_OF_ONE: when only one dimension is at its smallest.
static const double WASTE = 1.58, WASTE_OF_ONE = 1.1;

// --- the dimensions ---

static kiln_status wrong_range(kiln_ctx *cx, const kiln_model *m, const kiln_dim_range *r,
                               const char *what) {
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                   "dimension \"%s\": %s, got %" PRId64 " to %" PRId64 " in steps of %" PRId64,
                   r->name, what, r->least, r->most, r->step);
}

static bool is_input_extent(const kiln_graph *g, kiln_symbol name) {
  for (int i = 0; i < g->n_inputs; i++) {
    const kiln_value *v = g->values[g->inputs[i]];
    for (int k = 0; v->has_shape && k < v->rank; k++)
      if (v->shape[k]->kind == KILN_EXPR_VAR && v->shape[k]->u.sym == name) return true;
  }
  return false;
}

static kiln_status take_ranges(kiln_ctx *cx, kiln_model *m, size_t n,
                               const kiln_dim_range *ranges) {
  kiln_model_ranges *r = m->ranges;
  if (n > KILN_MAX_DIMS)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path, "ranges: must be %d or fewer, got %zu",
                     KILN_MAX_DIMS, n);
  for (size_t i = 0; i < n; i++) {
    kiln_dim_range d = ranges[i];
    if (d.step == 0) d.step = 1;
    if (d.least < 0 || d.most < d.least || d.step < 1 || (d.most - d.least) % d.step != 0)
      return wrong_range(cx, m, &d, "must go from 0 or more upwards in whole steps");
    d.name = kiln_arena_strdup(&cx->perm, d.name);
    r->symbols[i] = kiln_symbol_of(cx, d.name);
    if (!is_input_extent(m->graph, r->symbols[i]))
      return wrong_range(cx, m, &d, "must be the extent of an axis of an input");
    r->dims[i] = d;
  }
  r->n_dims = (int)n;
  return KILN_OK;
}

// --- programs for given values ---

// A small integer tensor, whose elements may be functions of the dimensions.
static bool is_table(const kiln_tensor *t) {
  const bool is_whole = t->dtype == KILN_I64 || t->dtype == KILN_I32 || t->dtype == KILN_BOOL;
  const int64_t n = kiln_tensor_elems(t);
  return is_whole && t->role == KILN_CONST && t->data && n > 0 && n <= MOST_IN_TABLE;
}

static kiln_graph *bind_graph(kiln_ctx *cx, const kiln_graph *g, const kiln_model_ranges *r,
                              const int64_t *values) {
  const kiln_expr *numbers[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) numbers[d] = kiln_int(cx, values[d]);
  return kiln_graph_substitute(cx, g, r->n_dims, r->symbols, numbers);
}

typedef struct maker {
  kiln_ctx *cx;
  kiln_model *m;
  kiln_model_ranges *r;
  const kiln_op *user_ops;
  kiln_folds folds;                 // shared by all samples of a bucket
  kiln_symbol names[KILN_MAX_DIMS]; // variables for the dimensions that no statement has as a dim
  bool is_symbolic;                 // whether programs are made of symbolic ones
} maker;

// Copies constants that are outputs, as shapes, by statements, whose bodies can become functions of
// the dimensions.
static void copy_small_outputs(kiln_ctx *cx, kiln_program *p) {
  for (int i = 0; i < p->outputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    const kiln_expr *index[KILN_MAX_RANK];
    if (!is_table(t)) continue;
    kiln_stmt *s =
        kiln_stmt_make(cx, p, kiln_symbol_text(cx, t->name), t->dtype, t->rank, 0, t->shape);
    for (int a = 0; a < t->rank; a++) index[a] = kiln_stmt_var(cx, s, a);
    s->body = kiln_tensor_load(cx, t, index);
    s->origin = t->name;
    p->outputs.data[i] = s->out;
  }
  kiln_outputs_mark(p);
}

static kiln_status make_program(maker *k, const int64_t *values, kiln_program **out) {
  k->folds.at = 0;
  KILN_TRY(kiln_fission_like(k->cx, bind_graph(k->cx, k->m->graph, k->r, values), k->user_ops,
                             &k->folds, out));
  if (k->m->options.clamp_indices) kiln_checks_drop(k->cx, *out);
  copy_small_outputs(k->cx, *out);
  return KILN_OK;
}

// --- extents as functions of the dimensions ---

// A program at given values of the dimensions.
typedef struct sample {
  int64_t values[KILN_MAX_DIMS];
  const kiln_program *prog;
} sample;

// Programs of a bucket, the first at its largest values. Where the operators allow it, they are all
// one symbolic program at different values; otherwise each is made of the graph by itself, and
// functions of the dimensions are found that agree with all of them.
typedef struct samples {
  sample *data;
  int n, cap;
  kiln_symbolic symbolic; // |prog| is NULL if there is none
} samples;

// An extent: of an axis of a tensor or output, or of a dim of a statement.
typedef struct extent {
  enum { EXTENT_TENSOR, EXTENT_OUTPUT, EXTENT_STMT } of;
  int id, axis;
} extent;

static const kiln_expr *extent_in(const kiln_program *p, extent x) {
  if (x.of == EXTENT_STMT) return p->stmts.data[x.id]->dims[x.axis].extent;
  const int tensor = x.of == EXTENT_TENSOR ? x.id : p->outputs.data[x.id];
  return p->tensors.data[tensor]->shape[x.axis];
}

static int64_t extent_at(const sample *s, extent x) {
  return kiln_expr_int_or(extent_in(s->prog, x), -1);
}

static bool varies(const samples *s, extent x) {
  bool does = s->symbolic.prog && kiln_symbolic_uses(&s->symbolic, extent_in(s->symbolic.prog, x));
  for (int i = 1; i < s->n; i++) does |= extent_at(&s->data[i], x) != extent_at(&s->data[0], x);
  return does;
}

static bool differ_in_one(const kiln_model_ranges *r, const sample *a, const sample *b, int d) {
  for (int x = 0; x < r->n_dims; x++)
    if ((a->values[x] != b->values[x]) != (x == d)) return false;
  return true;
}

// Fits found[i] at the samples i by a linear function of the dimensions; NULL: it is not linear.
// The first sample is at the largest values; for each dimension there is a sample that differs from
// it in that dimension only.
static const kiln_expr *fit_numbers(kiln_ctx *cx, const kiln_model_ranges *r, const samples *s,
                                    const int64_t *found) {
  const sample *all = &s->data[0];
  const int64_t most = found[0];
  const kiln_expr *e = kiln_int(cx, most);
  for (int d = 0; d < r->n_dims; d++) {
    int at = 0;
    for (int i = 1; i < s->n && !at; i++)
      if (differ_in_one(r, all, &s->data[i], d)) at = i;
    if (!at) continue;
    const int64_t rise = most - found[at], run = all->values[d] - s->data[at].values[d],
                  common = kiln_gcd(rise, run);
    if (rise == 0) continue;
    const kiln_expr *less = kiln_sub(cx, kiln_var(cx, r->symbols[d]), kiln_int(cx, all->values[d]));
    less = kiln_mul(cx, less, kiln_int(cx, rise / common));
    e = kiln_add(cx, e, kiln_div(cx, less, kiln_int(cx, run / common)));
  }
  for (int i = 0; i < s->n; i++) {
    const kiln_expr *numbers[KILN_MAX_DIMS];
    int64_t value = 0;
    for (int d = 0; d < r->n_dims; d++) numbers[d] = kiln_int(cx, s->data[i].values[d]);
    if (!kiln_expr_is_int(kiln_expr_substitute(cx, e, r->n_dims, r->symbols, numbers), &value) ||
        value != found[i])
      return NULL;
  }
  return kiln_simplify(cx, e, NULL);
}

// Replaces the variables of the dimensions by the model's names.
static const kiln_expr *named(kiln_ctx *cx, const kiln_model_ranges *r, const samples *s,
                              const kiln_expr *e) {
  const kiln_expr *vars[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) vars[d] = kiln_var(cx, r->symbols[d]);
  return kiln_expr_substitute(cx, e, r->n_dims, s->symbolic.names, vars);
}

static const kiln_expr *fit(kiln_ctx *cx, const kiln_model_ranges *r, const samples *s, extent x) {
  if (s->symbolic.prog) return named(cx, r, s, extent_in(s->symbolic.prog, x));
  int64_t *found = KILN_NEW_ARRAY(&cx->perm, int64_t, s->n);
  for (int i = 0; i < s->n; i++) found[i] = extent_at(&s->data[i], x);
  return fit_numbers(cx, r, s, found);
}

static kiln_status not_linear(const maker *k, const char *name) {
  return KILN_FAIL(k->cx->diag, KILN_UNSUPPORTED, k->m->path,
                   "ranges: extents must be linear in the dimensions, got another one of %s: bind "
                   "its dimensions to one value each",
                   name);
}

// Finds the needed extents of tensors; a merged axis counts as a whole.
static kiln_status find_live(maker *k, const samples *s, const kiln_equivalence *equivalent,
                             kiln_bucket *part, const kiln_program *p) {
  for (int i = 0; i < s->data[0].prog->tensors.n; i++) {
    const kiln_tensor *t = p->tensors.data[i];
    kiln_live live = {.tensor = t->name, .id = i, .rank = t->rank, .most = t->shape};
    bool any = false;
    for (int a = 0; a < t->rank; a++) any |= varies(s, (extent){EXTENT_TENSOR, i, a});
    if (!any) continue;
    live.extents = KILN_NEW_ARRAY(&k->cx->perm, const kiln_expr *, t->rank);
    for (int a = 0; a < t->rank; a++) {
      bool is_merged = false;
      for (int x = 1; x < s->n; x++) is_merged |= equivalent[x].axes[i][a].inner != 0;
      live.extents[a] =
          is_merged ? t->shape[a] : fit(k->cx, k->r, s, (extent){EXTENT_TENSOR, i, a});
      if (!live.extents[a]) return not_linear(k, kiln_symbol_text(k->cx, t->name));
    }
    KILN_VEC_PUSH(&k->cx->perm, &part->live, live);
  }
  return KILN_OK;
}

// --- buckets ---

static kiln_status add_sample(maker *k, samples *s, const int64_t *values) {
  sample added = {.prog = NULL};
  kiln_program *p = NULL;
  for (int i = 0; i < s->n; i++)
    if (memcmp(s->data[i].values, values, sizeof added.values) == 0) return KILN_OK;
  memcpy(added.values, values, sizeof added.values);
  if (s->symbolic.prog) p = kiln_symbolic_bind(k->cx, &s->symbolic, values);
  else KILN_TRY(make_program(k, values, &p));
  added.prog = p;
  KILN_VEC_PUSH(&k->cx->perm, s, added);
  return KILN_OK;
}

// Makes the symbolic program, in which dimensions with one value in the bucket are numbers, if each
// operator can be lowered so; otherwise messages say why not.
static void make_symbolic(maker *k, const int64_t *least, const int64_t *most, samples *s) {
  kiln_ctx *cx = k->cx;
  const int n = k->r->n_dims;
  const kiln_expr *values[KILN_MAX_DIMS];
  kiln_program *p = NULL;
  for (int d = 0; d < n; d++)
    values[d] = least[d] == most[d] ? kiln_int(cx, most[d]) : kiln_var(cx, k->names[d]);
  s->symbolic = (kiln_symbolic){.n_dims = n};
  memcpy(s->symbolic.names, k->names, sizeof k->names);
  memcpy(s->symbolic.least, least, (size_t)n * sizeof *least);
  memcpy(s->symbolic.most, most, (size_t)n * sizeof *most);
  const kiln_graph *g = kiln_graph_substitute(cx, k->m->graph, n, k->r->symbols, values);
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->perm);
  for (int d = 0; d < n; d++) kiln_ranges_push(&ranges, k->names[d], least[d], most[d]);
  if (kiln_fission_within(cx, g, k->user_ops, &ranges, &p) != KILN_OK) return;
  if (k->m->options.clamp_indices) kiln_checks_drop(cx, p);
  copy_small_outputs(cx, p);
  kiln_symbolic_make_formulas(cx, &s->symbolic, p);
  s->symbolic.prog = p;
  const kiln_expr *found = NULL;
  const char *unbounded = kiln_symbolic_unbounded(cx, &s->symbolic, &found);
  if (!unbounded) return;
  (void)KILN_FAIL(cx->diag, KILN_UNSUPPORTED, k->m->path,
                  "ranges: extents must be arithmetic of the dimensions with a bound, got %s of %s",
                  kiln_expr_text(cx, named(cx, k->r, s, found)), unbounded);
  s->symbolic.prog = NULL;
}

// Adds samples from the largest values down to the least, in all dimensions together and in each
// separately.
static kiln_status add_samples(maker *k, const int64_t *least, const int64_t *most, samples *s) {
  int64_t values[KILN_MAX_DIMS] = {0};
  memcpy(values, most, (size_t)k->r->n_dims * sizeof *most);
  KILN_TRY(add_sample(k, s, values));
  for (int i = 0; i < N_SAMPLES; i++) {
    for (int d = 0; d <= k->r->n_dims; d++) {
      for (int x = 0; x < k->r->n_dims; x++) {
        const int64_t steps = (most[x] - least[x]) / k->r->dims[x].step;
        const bool moves = d == x || d == k->r->n_dims;
        values[x] = most[x] - (moves ? steps * (i + 1) / N_SAMPLES * k->r->dims[x].step : 0);
      }
      KILN_TRY(add_sample(k, s, values));
    }
  }
  return KILN_OK;
}

static kiln_status differs(const maker *k, const sample *at, const char *name, const char *what) {
  kiln_text text;
  kiln_text_init(&text, &k->cx->scratch);
  for (int d = 0; d < k->r->n_dims; d++)
    kiln_text_printf(&text, "%s%s = %" PRId64, d ? ", " : "", k->r->dims[d].name, at->values[d]);
  return KILN_FAIL(k->cx->diag, KILN_UNSUPPORTED, k->m->path,
                   "ranges: the model must compute the same at all values, got %s of %s that "
                   "differs at %s: bind its dimensions to one value each",
                   what, name, text.data);
}

static kiln_dtype stored(const kiln_model *m, const kiln_tensor *t) {
  return t->dtype == KILN_F32 ? m->half : t->dtype;
}

static void set_signatures(kiln_ctx *cx, const kiln_model *m, const kiln_program *p,
                           kiln_bucket *part) {
  const kiln_graph *g = m->graph;
  kiln_interface_init(cx, &part->inputs, p->inputs.n);
  kiln_interface_init(cx, &part->outputs, p->outputs.n);
  for (int i = 0; i < p->inputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->inputs.data[i]];
    const kiln_symbol name = i < g->n_inputs ? g->values[g->inputs[i]]->name : t->name;
    kiln_interface_set(cx, &part->inputs, i, kiln_symbol_text(cx, name),
                       kiln_dtype_text(stored(m, t)), t->rank, t->shape);
  }
  for (int i = 0; i < p->outputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    const kiln_symbol name = i < p->output_names.n ? p->output_names.data[i] : t->name;
    kiln_interface_set(cx, &part->outputs, i, kiln_symbol_text(cx, name),
                       kiln_dtype_text(stored(m, t)), t->rank, t->shape);
  }
}

// Replaces names of dimensions in |e| by loads of their values.
static const kiln_expr *read_dims(maker *k, const kiln_tensor *dims, const kiln_symbol *names,
                                  const kiln_expr *e) {
  const kiln_expr *loads[KILN_MAX_DIMS];
  for (int d = 0; d < k->r->n_dims; d++) {
    const kiln_expr *at = kiln_int(k->cx, d);
    loads[d] = kiln_tensor_load(k->cx, dims, &at);
  }
  return kiln_expr_substitute(k->cx, e, k->r->n_dims, names, loads);
}

// --- numbers that depend on the dimensions ---

typedef struct general {
  maker *k;
  const samples *s;
  bool wrong;     // some number is not linear in the dimensions
  bool scales;    // some index has a varying factor or divisor
  kiln_map known; // digest of the samples' expression ids -> general_known
} general;

// A memoized result for the samples' expressions |from|.
typedef struct general_known {
  const kiln_expr *const *from;
  const kiln_expr *to;
} general_known;

// A varying constant: an integer, an integral float, or the reciprocal of one.
static const kiln_expr *general_number(general *g, const kiln_expr *const *e) {
  kiln_ctx *cx = g->k->cx;
  int64_t *found = KILN_NEW_ARRAY(&cx->perm, int64_t, g->s->n);
  const kiln_dtype t = e[0]->dtype;
  const bool is_int = e[0]->kind == KILN_EXPR_INT;
  const bool is_inverse = !is_int && fabs(e[0]->u.f) < 1;
  for (int i = 0; i < g->s->n; i++)
    found[i] = is_int ? e[i]->u.i : llround(is_inverse ? 1 / e[i]->u.f : e[i]->u.f);
  const kiln_expr *linear = fit_numbers(cx, g->k->r, g->s, found);
  const kiln_expr *dims[KILN_MAX_DIMS];
  g->wrong |= !linear;
  if (!linear) return e[0];
  for (int d = 0; d < g->k->r->n_dims; d++) dims[d] = kiln_var(cx, g->k->names[d]);
  linear = kiln_expr_substitute(cx, linear, g->k->r->n_dims, g->k->r->symbols, dims);
  const kiln_expr *value = kiln_cast(cx, t, linear);
  return is_inverse ? kiln_div(cx, kiln_float(cx, t, 1), value) : value;
}

static bool is_scaling(const kiln_expr *e) {
  return e->dtype == KILN_I64 &&
         (e->kind == KILN_EXPR_MUL || e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD);
}

static const kiln_expr *general_expr(general *g, const kiln_expr *const *e);

// Generalizes expressions that differ between samples.
static const kiln_expr *make_general(general *g, const kiln_expr *const *e) {
  kiln_ctx *cx = g->k->cx;
  const int n = g->s->n;
  const kiln_expr **args = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, e[0]->n_args);
  for (int a = 0; a < e[0]->n_args; a++) {
    const kiln_expr **arg = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
    for (int i = 0; i < n; i++) {
      g->wrong |= e[i]->kind == KILN_EXPR_LOAD && e[i]->u.tensor != e[0]->u.tensor;
      arg[i] = e[i]->args[a];
    }
    args[a] = general_expr(g, arg);
    g->scales |= args[a] != e[0]->args[a] && arg[0]->kind == KILN_EXPR_INT && is_scaling(e[0]);
  }
  return kiln_expr_with_args(cx, e[0], args);
}

// Generalizes the samples' expressions e[i] to one expression that loads dimensions where they
// differ. |e| is kept.
static const kiln_expr *general_expr(general *g, const kiln_expr *const *e) {
  const int n = g->s->n;
  bool same = true, alike = true;
  for (int i = 1; i < n; i++) {
    same &= e[i] == e[0];
    alike &= e[i] && e[0] && e[i]->kind == e[0]->kind && e[i]->dtype == e[0]->dtype &&
             e[i]->n_args == e[0]->n_args;
  }
  if (same) return e[0];
  if (!alike || e[0]->kind == KILN_EXPR_VAR) {
    g->wrong = true;
    return e[0];
  }
  if (e[0]->kind == KILN_EXPR_INT || e[0]->kind == KILN_EXPR_FLOAT) return general_number(g, e);
  const uint64_t key = kiln_hash_bytes(e, (size_t)n * sizeof *e, 0),
                 *known = kiln_map_find(&g->known, key);
  const general_known *found = known ? (const general_known *)(uintptr_t)*known : NULL;
  if (found && memcmp(found->from, e, (size_t)n * sizeof *e) == 0) return found->to;
  general_known *made = KILN_NEW(g->known.arena, general_known);
  *made = (general_known){e, make_general(g, e)};
  kiln_map_put(&g->known, key, (uint64_t)(uintptr_t)made);
  return made->to;
}

// An element of table |t| at |index| whose values differ between samples: a selection among
// functions of the dimensions.
static const kiln_expr *general_element(general *g, int t, const kiln_expr *const *index) {
  kiln_ctx *cx = g->k->cx;
  const kiln_tensor *all = g->s->data[0].prog->tensors.data[t];
  const int64_t n = kiln_tensor_elems(all);
  const kiln_expr **numbers = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, g->s->n),
                  *at = kiln_int(cx, 0), *out = NULL;
  for (int a = 0; a < all->rank; a++) at = kiln_add(cx, kiln_mul(cx, at, all->shape[a]), index[a]);
  for (int64_t k = n - 1; k >= 0; k--) {
    for (int i = 0; i < g->s->n; i++) {
      const kiln_tensor *one = g->s->data[i].prog->tensors.data[t];
      g->wrong |= !is_table(one) || kiln_tensor_elems(one) != n;
      if (g->wrong) return kiln_cast(cx, all->dtype, kiln_int(cx, 0));
      numbers[i] = kiln_int(cx, (int64_t)kiln_element_get(one->dtype, one->data, k));
    }
    const kiln_expr *x = kiln_cast(cx, all->dtype, general_number(g, numbers));
    out = out ? kiln_select(cx, kiln_binary(cx, KILN_EXPR_EQ, at, kiln_int(cx, k)), x, out) : x;
  }
  return out;
}

static bool has_other_elements(const general *g, int t) {
  const kiln_tensor *all = g->s->data[0].prog->tensors.data[t];
  bool has = false;
  for (int i = 1; i < g->s->n && is_table(all); i++) {
    const kiln_tensor *one = g->s->data[i].prog->tensors.data[t];
    has |= one->data && one->bytes == all->bytes && memcmp(one->data, all->data, all->bytes) != 0;
  }
  return has;
}

static const kiln_expr *replace_table(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  general *g = argument;
  if (e->kind != KILN_EXPR_LOAD || !has_other_elements(g, e->u.tensor)) return NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = 0; a < e->n_args; a++)
    index[a] = kiln_expr_replace(cx, e->args[a], replace_table, argument);
  return general_element(g, e->u.tensor, index);
}

// Rewrites the varying constants of statement |id| of |p| as functions of the dimensions; factors
// and divisors of indices, which merged axes have, only if |scales|.
static bool generalise(maker *k, const samples *s, const kiln_tensor *dims, kiln_program *p, int id,
                       bool scales) {
  general g = {.k = k, .s = s};
  kiln_stmt *x = p->stmts.data[id];
  const kiln_expr **e = KILN_NEW_ARRAY(&k->cx->perm, const kiln_expr *, s->n),
                  **of_guard = KILN_NEW_ARRAY(&k->cx->perm, const kiln_expr *, s->n);
  kiln_map_init(&g.known, &k->cx->perm);
  for (int i = 0; i < s->n; i++) e[i] = s->data[i].prog->stmts.data[id]->body;
  const kiln_expr *body = general_expr(&g, e);
  for (int i = 0; i < s->n; i++) of_guard[i] = s->data[i].prog->stmts.data[id]->guard;
  const kiln_expr *guard = general_expr(&g, of_guard);
  body = kiln_expr_replace(k->cx, body, replace_table, &g);
  if (guard) guard = kiln_expr_replace(k->cx, guard, replace_table, &g);
  if (g.wrong || (g.scales && !scales)) return false;
  body = read_dims(k, dims, k->names, body);
  if (guard) guard = read_dims(k, dims, k->names, guard);
  if (body == x->body && guard == x->guard) return false;
  x->body = body;
  x->guard = guard;
  return true;
}

// Expression |i| of |x|: body, guard, init, and the indices of its result.
static const kiln_expr **part_of(kiln_stmt *x, int i) {
  return i == 0 ? &x->body : i == 1 ? &x->guard : i == 2 ? &x->init : &x->index[i - 3];
}

// Sets the expressions of statement |id| of |p| from those of the symbolic program. They read the
// dimensions; unless |exact|, factors and divisors of indices are those of the largest values.
static void read_symbolic(maker *k, const samples *s, const kiln_tensor *dims, kiln_program *p,
                          int id, bool exact) {
  kiln_ctx *cx = k->cx;
  kiln_stmt *from = s->symbolic.prog->stmts.data[id];
  kiln_stmt *x = p->stmts.data[id];
  for (int i = 0; i < 3 + p->tensors.data[x->out]->rank; i++) {
    const kiln_expr *e = *part_of(from, i);
    if (!kiln_symbolic_uses(&s->symbolic, e)) continue;
    if (!exact) e = kiln_stmt_simplify(cx, x, kiln_symbolic_scale(cx, &s->symbolic, e));
    *part_of(x, i) = kiln_symbolic_read(cx, &s->symbolic, dims, e);
  }
}

static bool have_as_many(const samples *s) {
  const kiln_program *first = s->data[0].prog;
  bool have = true;
  for (int i = 1; i < s->n; i++) {
    const kiln_program *p = s->data[i].prog;
    have &= p->stmts.n == first->stmts.n && p->tensors.n == first->tensors.n;
  }
  return have;
}

// Checks that outputs are not merged.
static const char *find_merged(kiln_ctx *cx, const kiln_program *p, const kiln_equivalence *e,
                               const char **out_name) {
  for (int k = 0; k < p->outputs.n; k++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[k]];
    *out_name = kiln_symbol_text(cx, t->name);
    for (int a = 0; a < t->rank; a++)
      if (e->axes[t->id][a].inner) return "the order of the elements";
  }
  return NULL;
}

// Compares the program with that at each sample, after its varying constants became functions of
// the dimensions. If they differ, axes are assumed to be merged.
static kiln_status compare_samples(maker *k, const samples *s, const kiln_tensor *dims,
                                   kiln_program *p, kiln_equivalence *out) {
  kiln_bits *tried = kiln_bits_make(&k->cx->perm, p->stmts.n),
            *merged = kiln_bits_make(&k->cx->perm, p->stmts.n);
  for (int id = 0; have_as_many(s) && id < p->stmts.n; id++)
    (void)generalise(k, s, dims, p, id, false);
  for (int i = 1; i < s->n;) {
    const char *name = NULL;
    out[i] = kiln_check_equivalence(k->cx, p, s->data[i].prog, s->data[i].values, merged);
    const int id = out[i].stmt;
    if (!out[i].what) {
      const char *what = find_merged(k->cx, p, &out[i], &name);
      if (what) return differs(k, &s->data[i], name, what);
      i++;
      continue;
    }
    if (id < 0 || kiln_bits_has(tried, id))
      return differs(k, &s->data[i], out[i].name, out[i].what);
    if (kiln_bits_has(merged, id)) {
      if (!generalise(k, s, dims, p, id, true))
        return differs(k, &s->data[i], out[i].name, out[i].what);
      kiln_bits_set(tried, id);
    }
    kiln_bits_set(merged, id);
    i = 1;
  }
  return KILN_OK;
}

// --- a bucket of a symbolic program ---

// The choices by which the program of a bucket computes the same as the symbolic one.
typedef struct settling {
  maker *k;
  const samples *s;
  const kiln_tensor *dims;
  kiln_program *p;
  kiln_bits *exact;  // statements that read factors and divisors from the dimensions, too
  kiln_bits *merged; // statements whose results may have merged axes
  kiln_bits *apart;  // statements whose results must not have any
} settling;

static void make_exact(settling *t, int id) {
  if (kiln_bits_has(t->exact, id)) return;
  kiln_bits_set(t->exact, id);
  read_symbolic(t->k, t->s, t->dims, t->p, id, true);
}

static bool keep_apart(settling *t, int id) {
  if (id < 0 || kiln_bits_has(t->apart, id)) return false;
  kiln_bits_set(t->apart, id);
  kiln_bits_clear(t->merged, id);
  make_exact(t, id);
  return true;
}

typedef struct operands {
  settling *t;
  const kiln_equivalence *found;
  bool any;
} operands;

static void keep_operand_apart(const kiln_expr *load, void *argument) {
  operands *o = argument;
  const kiln_tensor *x = o->t->p->tensors.data[load->u.tensor];
  bool is_merged = false;
  if (x->id == o->t->dims->id) return;
  for (int a = 0; a < x->rank; a++) is_merged |= o->found->axes[x->id][a].inner != 0;
  if (is_merged) o->any |= keep_apart(o->t, x->def);
}

// Another choice for statement |id|, which differs; false: there is none.
static bool choose_again(settling *t, const kiln_equivalence *found, int id) {
  operands o = {t, found, false};
  if (id < 0) return false;
  if (!kiln_bits_has(t->apart, id) && !kiln_bits_has(t->merged, id)) {
    kiln_bits_set(t->merged, id);
    return true;
  }
  if (!kiln_bits_has(t->exact, id)) {
    make_exact(t, id);
    return true;
  }
  kiln_stmt_visit_loads(t->k->cx, t->p, t->p->stmts.data[id], keep_operand_apart, &o);
  return o.any;
}

// The statement of an output with merged axes; -1: there is none.
static int merged_output(const settling *t, const kiln_equivalence *found) {
  for (int k = 0; k < t->p->outputs.n; k++) {
    const kiln_tensor *x = t->p->tensors.data[t->p->outputs.data[k]];
    for (int a = 0; a < x->rank; a++)
      if (found->axes[x->id][a].inner) return x->def;
  }
  return -1;
}

// Chooses until the program computes the same as the one at sample |i|.
static kiln_status settle_at(settling *t, int i, kiln_equivalence *out, bool *out_changed) {
  const sample *at = &t->s->data[i];
  const kiln_program *some = kiln_symbolic_bind_extents(t->k->cx, &t->s->symbolic, at->values);
  for (;;) {
    *out = kiln_check_equivalence(t->k->cx, t->p, some, at->values, t->merged);
    const int output = out->what ? -1 : merged_output(t, out);
    if (!out->what && output < 0) return KILN_OK;
    if (!(out->what ? choose_again(t, out, out->stmt) : keep_apart(t, output)))
      return differs(t->k, at, out->name, out->what ? out->what : "the order of the elements");
    *out_changed = true;
  }
}

// Statements read the dimensions, but flattened axes are laid out as at the largest values, if all
// that read them find their elements there: at n = 2 of at most 8, element i of [4, n] as one axis
// is element i / 2 * 8 + i % 2. Others compute with the run's divisors.
static kiln_status settle(maker *k, const samples *s, const kiln_tensor *dims, kiln_program *p,
                          kiln_equivalence *out) {
  const int n = p->stmts.n;
  settling t = {.k = k, .s = s, .dims = dims, .p = p};
  t.exact = kiln_bits_make(&k->cx->perm, n);
  t.merged = kiln_bits_make(&k->cx->perm, n);
  t.apart = kiln_bits_make(&k->cx->perm, n);
  for (int id = 0; id < n; id++) read_symbolic(k, s, dims, p, id, false);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 1; i < s->n; i++) KILN_TRY(settle_at(&t, i, &out[i], &changed));
  }
  return KILN_OK;
}

// --- indices ---

// Replaces loads of the dimensions by their variables.
static const kiln_expr *name_dims(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const void *const *given = argument;
  const maker *k = given[0];
  const kiln_tensor *dims = given[1];
  int64_t d = 0;
  const bool is = e->kind == KILN_EXPR_LOAD && e->u.tensor == dims->id &&
                  kiln_expr_is_int(e->args[0], &d) && d >= 0 && d < k->r->n_dims;
  return is ? kiln_var(cx, k->names[d]) : NULL;
}

static bool iterates_beyond(const samples *s, const kiln_stmt *x) {
  bool does = false;
  for (int d = 0; d < x->n_space + x->n_reduce; d++)
    does |= varies(s, (extent){EXTENT_STMT, x->id, d});
  return does;
}

// Tensors whose elements beyond the needed extents may be any number.
static kiln_bits *find_loose(maker *k, const samples *s, const kiln_program *p) {
  kiln_bits *loose = kiln_bits_make(&k->cx->perm, p->tensors.n);
  for (int i = 0; i < s->data[0].prog->tensors.n; i++)
    for (int a = 0; a < p->tensors.data[i]->rank; a++)
      if (varies(s, (extent){EXTENT_TENSOR, i, a})) kiln_bits_set(loose, i);
  return loose;
}

// Keeps indices inside of what they read, also those of elements that a run does not need. Loops
// of scatters end at the run's extents.
static void bound_indices(maker *k, const samples *s, const kiln_tensor *dims, kiln_program *p) {
  const void *given[] = {k, dims};
  const kiln_bits *loose = find_loose(k, s, p);
  kiln_index_bounds b = {.p = p, .n_dims = k->r->n_dims, .names = k->names};
  for (int d = 0; d < b.n_dims; d++) {
    b.least[d] = b.most[d] = s->data[0].values[d];
    for (int i = 1; i < s->n; i++) b.least[d] = kiln_min_i64(b.least[d], s->data[i].values[d]);
  }
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *x = p->stmts.data[i];
    const int n = 3 + p->tensors.data[x->out]->rank;
    b.loose = !kiln_stmt_is_scatter(p, x) && iterates_beyond(s, x) ? loose : NULL;
    for (int e = 0; e < n; e++) {
      const kiln_expr **part = part_of(x, e);
      if (!*part || !(*part)->has_load) continue;
      const kiln_expr *over = kiln_expr_replace(k->cx, *part, name_dims, given);
      const kiln_expr *held = kiln_bound_indices(k->cx, &b, x, over);
      if (held != over) *part = read_dims(k, dims, k->names, held);
    }
  }
}

// --- reductions and scatters ---

// Reductions over varying extents end at the run's extent, and so do all loops of a scatter, whose
// positions are data-dependent. Other statements may write elements beyond the end, which are not
// read.
static kiln_status end_reductions(maker *k, const samples *s, const kiln_tensor *dims,
                                  kiln_program *p, kiln_bucket *part) {
  KILN_VEC(kiln_reach) reaches = {0};
  kiln_neutrally_padded masked;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *x = p->stmts.data[i];
    const int first = kiln_stmt_is_scatter(p, x) ? 0 : x->n_space;
    for (int d = first; d < x->n_space + x->n_reduce; d++) {
      const extent e = {EXTENT_STMT, i, d};
      if (!varies(s, e)) continue;
      const kiln_expr *end = fit(k->cx, k->r, s, e);
      if (!end) return not_linear(k, kiln_symbol_text(k->cx, x->origin));
      KILN_VEC_PUSH(&k->cx->perm, &reaches,
                    (kiln_reach){i, d, read_dims(k, dims, k->r->symbols, end)});
    }
  }
  kiln_program_pad_neutrally(k->cx, p, reaches.n, reaches.data, &masked);
  for (int i = 0; i < part->live.n; i++) {
    kiln_live *l = &part->live.data[i];
    for (int a = 0; a < l->rank; a++)
      if (masked.axes[l->id] >> a & 1) l->extents[a] = l->most[a];
  }
  return KILN_OK;
}

// Bounds of checks that differ between samples are left to run time.
static void generalise_checks(const samples *s, kiln_program *p) {
  for (int i = 0; i < p->checks.n; i++) {
    kiln_index_check *c = &p->checks.data[i];
    for (int x = 1; x < s->n; x++) {
      const kiln_program *other = s->data[x].prog;
      if (i >= other->checks.n || other->checks.data[i].least != c->least ||
          other->checks.data[i].end != c->end)
        c->least = c->end = 0;
    }
  }
}

static kiln_status make_bucket(maker *k, kiln_bucket *part) {
  kiln_ctx *cx = k->cx;
  samples s = {0};
  k->folds = (kiln_folds){0};
  if (k->is_symbolic) make_symbolic(k, part->least, part->most, &s);
  KILN_TRY(add_samples(k, part->least, part->most, &s));
  kiln_equivalence *equivalent = KILN_NEW_ARRAY(&cx->perm, kiln_equivalence, s.n);
  kiln_program *p = s.symbolic.prog ? kiln_symbolic_bound(cx, &s.symbolic)
                                    : kiln_program_copy(cx, s.data[0].prog);
  const kiln_tensor *dims = kiln_symbolic_add_input(cx, p, k->r->n_dims);
  if (s.symbolic.prog) KILN_TRY(settle(k, &s, dims, p, equivalent));
  else KILN_TRY(compare_samples(k, &s, dims, p, equivalent));
  bound_indices(k, &s, dims, p);
  KILN_TRY(find_live(k, &s, equivalent, part, p));
  KILN_TRY(end_reductions(k, &s, dims, p, part));
  generalise_checks(&s, p);
  part->prog = p;
  kiln_bucket_join_equal(cx, part);
  return kiln_program_verify(cx, p);
}

// --- choice of buckets ---

// The buckets of a range: the largest value of each, ascending.
typedef struct cuts {
  int n;
  int64_t most[MAX_CUTS];
} cuts;

// The model's work as a function of one dimension, the others being at their maximum: known at some
// values, ascending.
typedef struct work {
  int n;
  double at[N_SAMPLES + 1], flops[N_SAMPLES + 1];
} work;

static work find_work(kiln_ctx *cx, const kiln_model_ranges *r, const samples *s, int d) {
  work w = {0};
  for (int i = s->n - 1; i >= 0; i--) {
    const sample *x = &s->data[i];
    if ((i > 0 && !differ_in_one(r, &s->data[0], x, d)) || w.n > N_SAMPLES) continue;
    w.at[w.n] = (double)x->values[d];
    w.flops[w.n++] = fmax(1, kiln_program_flops(cx, x->prog));
  }
  return w;
}

static double work_at(const work *w, int64_t value) {
  int i = 1;
  while (i + 1 < w->n && w->at[i] < (double)value) i++;
  if (i >= w->n) return w->flops[0];
  const double share = ((double)value - w->at[i - 1]) / (w->at[i] - w->at[i - 1]);
  return w->flops[i - 1] + share * (w->flops[i] - w->flops[i - 1]);
}

static int64_t least_of(const kiln_dim_range *d, const cuts *c, int i) {
  return i ? c->most[i - 1] + d->step : d->least;
}

// The bucket with the greatest ratio of work at its largest and its smallest value.
static double widest(const kiln_dim_range *d, const work *w, const cuts *c, int *out) {
  double most = 1;
  for (int i = 0; i < c->n; i++) {
    const double ratio = work_at(w, c->most[i]) / work_at(w, least_of(d, c, i));
    if (ratio <= most) continue;
    most = ratio;
    *out = i;
  }
  return most;
}

// An extent of 1 gets a bucket of its own, because models treat it differently (broadcasting).
static void begin_cuts(const kiln_dim_range *d, cuts *out) {
  *out = (cuts){.n = 0};
  if (d->least == 1) out->most[out->n++] = 1;
  if (d->most > 1) out->most[out->n++] = d->most;
}

// A value near |middle|, in [least, most), divisible by a high power of two, which suits kernels.
static int64_t round_value(const kiln_dim_range *d, int64_t least, int64_t middle, int64_t most) {
  for (int64_t power = INT64_C(1) << 40; power > 1; power /= 2) {
    const int64_t below = middle / power * power, around[] = {below, below + power};
    for (int i = 0; i < 2; i++) {
      const int64_t value = around[i], far = value < middle ? middle - value : value - middle;
      const bool is_value = value >= least && value < most && (value - d->least) % d->step == 0;
      if (is_value && 8 * far <= middle) return value;
    }
  }
  return middle;
}

// Splits bucket |i| so that both halves waste about the same.
static void cut(const kiln_dim_range *d, const work *w, cuts *c, int i) {
  const int64_t least = least_of(d, c, i);
  int64_t low = 0, high = (c->most[i] - least) / d->step - 1;
  while (low < high) {
    const int64_t steps = low + (high - low) / 2, m = least + steps * d->step;
    if (work_at(w, m) / work_at(w, least) < work_at(w, c->most[i]) / work_at(w, m + d->step))
      low = steps + 1;
    else high = steps;
  }
  const int64_t middle = round_value(d, least, least + low * d->step, c->most[i]);
  for (int k = c->n++; k > i; k--) c->most[k] = c->most[k - 1];
  c->most[i] = middle;
}

// Splits the most wasteful bucket until none wastes much or the limit is reached.
static void make_cuts(const kiln_model_ranges *r, const work *w, cuts *all) {
  int n = 1;
  for (int d = 0; d < r->n_dims; d++) {
    begin_cuts(&r->dims[d], &all[d]);
    n *= all[d].n;
  }
  for (;;) {
    int best = -1, part = 0;
    double most = WASTE_OF_ONE, together = 1;
    for (int d = 0; d < r->n_dims; d++) {
      int at = 0;
      const double ratio = widest(&r->dims[d], &w[d], &all[d], &at);
      together *= ratio;
      if (ratio <= most || n / all[d].n * (all[d].n + 1) > MAX_PARTS) continue;
      most = ratio;
      best = d;
      part = at;
    }
    if (best < 0 || together <= WASTE) return;
    n = n / all[best].n * (all[best].n + 1);
    cut(&r->dims[best], &w[best], &all[best], part);
  }
}

// needs: |s| has programs at the largest values, and at smaller ones of each dimension
static void make_parts(kiln_ctx *cx, kiln_model_ranges *r, const samples *s) {
  cuts all[KILN_MAX_DIMS];
  work works[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) works[d] = find_work(cx, r, s, d);
  make_cuts(r, works, all);
  r->n_buckets = 1;
  for (int d = 0; d < r->n_dims; d++) r->n_buckets *= all[d].n;
  r->buckets = KILN_NEW_ARRAY(&cx->perm, kiln_bucket, r->n_buckets);
  for (int i = 0; i < r->n_buckets; i++) {
    int rest = i;
    for (int d = r->n_dims - 1; d >= 0; d--) {
      const int k = rest % all[d].n;
      rest /= all[d].n;
      r->buckets[i].most[d] = all[d].most[k];
      r->buckets[i].least[d] = least_of(&r->dims[d], &all[d], k);
    }
  }
}

// --- the model ---

static bool has_extent_of_sample(kiln_ctx *cx, const samples *s, int i, int output, int axis) {
  const extent x = {EXTENT_OUTPUT, output, axis};
  const kiln_expr *e = extent_in(s->symbolic.prog, x);
  return kiln_symbolic_value(cx, &s->symbolic, s->data[i].values, e) == extent_at(&s->data[i], x);
}

// Whether outputs of the symbolic program have the extents of programs that are made at numbers.
// They differ where an extent decides how a node is computed: at 1, an axis is stretched.
static bool has_extents_of_samples(kiln_ctx *cx, const samples *s) {
  const kiln_program *p = s->symbolic.prog;
  bool has = true;
  for (int i = 0; i < s->n; i++) {
    const kiln_program *at = s->data[i].prog;
    has &= kiln_program_n_results(at) == kiln_program_n_results(p);
    for (int k = 0; has && k < kiln_program_n_results(p); k++) {
      const kiln_tensor *x = p->tensors.data[p->outputs.data[k]];
      has &= x->rank == at->tensors.data[at->outputs.data[k]]->rank;
      for (int a = 0; has && a < x->rank; a++) has = has_extent_of_sample(cx, s, i, k, a);
    }
  }
  return has;
}

static kiln_status add_samples_of_all(maker *k, samples *s) {
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
  for (int d = 0; d < k->r->n_dims; d++) {
    least[d] = k->r->dims[d].least;
    most[d] = k->r->dims[d].most;
  }
  KILN_TRY(add_samples(k, least, most, s));
  make_symbolic(k, least, most, s);
  if (s->symbolic.prog && !has_extents_of_samples(k->cx, s)) {
    s->symbolic.prog = NULL;
    (void)KILN_FAIL(k->cx->diag, KILN_UNSUPPORTED, k->m->path,
                    "ranges: extents of outputs must be one formula of the dimensions, got others "
                    "at numbers");
  }
  k->is_symbolic = s->symbolic.prog != NULL;
  return KILN_OK;
}

static kiln_status make_shapes(maker *k, const samples *s) {
  kiln_ctx *cx = k->cx;
  const kiln_graph *g = k->m->graph;
  const kiln_program *p = s->data[0].prog;
  k->r->in_shapes = KILN_NEW_ARRAY(&cx->perm, const kiln_expr **, g->n_inputs);
  const int n_outputs = kiln_program_n_results(p); // each tensor of a sequence is one
  k->r->out_shapes = KILN_NEW_ARRAY(&cx->perm, const kiln_expr **, n_outputs);
  for (int i = 0; i < g->n_inputs; i++) k->r->in_shapes[i] = g->values[g->inputs[i]]->shape;
  for (int i = 0; i < n_outputs; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    k->r->out_shapes[i] = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
    for (int a = 0; a < t->rank; a++) {
      k->r->out_shapes[i][a] = fit(cx, k->r, s, (extent){EXTENT_OUTPUT, i, a});
      if (!k->r->out_shapes[i][a]) return not_linear(k, kiln_symbol_text(cx, t->name));
    }
  }
  k->m->prog = p;
  return KILN_OK;
}

static kiln_status check_ports(const maker *k, const kiln_program *p) {
  if (p->shape_of.n > 0)
    return KILN_FAIL(k->cx->diag, KILN_UNSUPPORTED, k->m->path,
                     "ranges: extents of outputs must be known before a run, got one that the run "
                     "counts");
  return KILN_OK;
}

kiln_status kiln_ranges_make(kiln_ctx *cx, kiln_model *m, const kiln_op *user_ops,
                             const kiln_compile_options *o) {
  m->ranges = KILN_NEW(&cx->perm, kiln_model_ranges);
  maker k = {.cx = cx, .m = m, .r = m->ranges, .user_ops = user_ops};
  samples all = {0};
  KILN_TRY(take_ranges(cx, m, o->n_ranges, o->ranges));
  m->ranged = m->ranges->dims[0].name;
  for (int d = 0; d < KILN_MAX_DIMS; d++) k.names[d] = kiln_symbol_printf(cx, "dims(%d)", d);
  const size_t first = kiln_diag_count(cx->diag); // of why there is no symbolic program
  KILN_TRY(add_samples_of_all(&k, &all));
  const size_t parts = kiln_diag_count(cx->diag);
  KILN_TRY(make_shapes(&k, &all));
  KILN_TRY(check_ports(&k, m->prog));
  make_parts(cx, m->ranges, &all);
  for (int i = 0; i < m->ranges->n_buckets; i++) {
    KILN_TRY(make_bucket(&k, &m->ranges->buckets[i]));
    kiln_diag_drop(cx->diag, parts, kiln_diag_count(cx->diag));
  }
  kiln_diag_drop(cx->diag, first, kiln_diag_count(cx->diag));
  return KILN_OK;
}

void kiln_ranges_signatures(kiln_ctx *cx, kiln_model *m) {
  for (int i = 0; i < m->ranges->n_buckets; i++)
    set_signatures(cx, m, m->ranges->buckets[i].prog, &m->ranges->buckets[i]);
  kiln_interface_init(cx, &m->inputs, m->graph->n_inputs);
  kiln_interface_init(cx, &m->outputs, kiln_program_n_results(m->prog));
  for (int i = 0; i < m->inputs.n; i++) {
    const kiln_port *p = &m->ranges->buckets[0].inputs.ports[i];
    kiln_interface_set(cx, &m->inputs, i, p->name, p->dtype, p->rank, m->ranges->in_shapes[i]);
  }
  for (int i = 0; i < m->outputs.n; i++) {
    const kiln_port *p = &m->ranges->buckets[0].outputs.ports[i];
    kiln_interface_set(cx, &m->outputs, i, p->name, p->dtype, p->rank, m->ranges->out_shapes[i]);
  }
}
