// Data-dependent shapes: see data_dependent.h.
#include "fission/data_dependent.h"

#include "analysis/interpret.h"
#include "analysis/simplify.h"
#include "fission/scan.h"
#include "fission/terms.h"

bool kiln_data_dependent_uses(const kiln_data_dependent_extents *counts, const kiln_expr *e) {
  for (int i = 0; i < counts->all.n; i++)
    if (kiln_expr_uses(e, counts->all.data[i].var)) return true;
  return false;
}

static bool is_counted(const kiln_data_dependent_extents *counts, const kiln_expr *e) {
  return kiln_data_dependent_uses(counts, e);
}

// --- counting ---

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

static kiln_status compute_now(kiln_lower *lw, const kiln_tensor *count, const kiln_expr **out) {
  kiln_interpreter *in = NULL;
  const void *data = NULL;
  KILN_TRY(kiln_interpreter_create(lw->cx, lw->prog, &in));
  kiln_cleanup_push(lw->cx, destroy, in);
  const kiln_status st = kiln_interpreter_compute(in, count->id, &data);
  if (st == KILN_OK) *out = kiln_int(lw->cx, kiln_element_get_int(count->dtype, data, 0));
  kiln_cleanup_pop(lw->cx);
  kiln_interpreter_destroy(in);
  return st;
}

static bool all_constant(const kiln_lower *lw) {
  for (int i = 0; i < lw->n_inputs; i++)
    if (lw->inputs[i] && !(lw->inputs[i]->role == KILN_CONST && lw->inputs[i]->data)) return false;
  return true;
}

// A new symbol, "|what| of |of|", different from all named dimensions.
static kiln_symbol new_name(const kiln_lower *lw, const char *what, kiln_symbol of) {
  for (int i = 0;; i++) {
    const kiln_symbol name = kiln_symbol_printf(lw->cx, i ? "%s of %s, %d" : "%s of %s", what,
                                                kiln_symbol_text(lw->cx, of), i);
    bool taken = false;
    for (int k = 0; k < lw->counts->all.n; k++) taken |= lw->counts->all.data[k].var == name;
    for (int k = 0; k < lw->prog->inputs.n; k++) {
      const kiln_tensor *t = lw->prog->tensors.data[lw->prog->inputs.data[k]];
      for (int a = 0; a < t->rank; a++) taken |= kiln_expr_uses(t->shape[a], name);
    }
    if (!taken) return name;
  }
}

static const kiln_expr *add_count(kiln_lower *lw, const kiln_tensor *count, const kiln_expr *most) {
  const kiln_symbol node = lw->node->name ? lw->node->name : lw->node->op;
  const kiln_data_dependent_extent made = {
      .var = new_name(lw, "count", node), .tensor = count->id, .most = most, .from = -1};
  KILN_VEC_PUSH(&lw->cx->perm, &lw->counts->all, made);
  return kiln_var(lw->cx, made.var);
}

kiln_status kiln_lower_data_dependent_extent(kiln_lower *lw, const kiln_tensor *count,
                                             const kiln_expr *most, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  if (all_constant(lw)) return compute_now(lw, count, out);
  const kiln_expr *fixed = kiln_lower_upper_bound(lw, most);
  if (!fixed)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "extents: the most that may be counted must be known when compiling");
  *out = add_count(lw, count, fixed);
  return KILN_OK;
}

const kiln_expr *kiln_lower_count(kiln_lower *lw, const kiln_tensor *count, int64_t most,
                                  bool is_assumed) {
  const kiln_expr *made = add_count(lw, count, kiln_int(lw->cx, most));
  lw->counts->all.data[lw->counts->all.n - 1].is_assumed = is_assumed;
  return made;
}

kiln_status kiln_lower_chosen_extent(kiln_lower *lw, const kiln_expr *is_true,
                                     const kiln_expr *then, const kiln_expr *otherwise,
                                     const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  int64_t a = 0, b = 0;
  *out = then;
  if (then == otherwise ||
      (kiln_expr_is_int(then, &a) && kiln_expr_is_int(otherwise, &b) && a == b))
    return KILN_OK;
  const kiln_expr *most = kiln_lower_upper_bound(lw, kiln_most(cx, then, otherwise));
  if (!most)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "extents: the most that a condition may choose must be known when compiling");
  kiln_stmt *s = kiln_lower_stmt(lw, "count", KILN_I64, 0, 0, NULL);
  s->body = kiln_select(cx, is_true, then, otherwise);
  *out = add_count(lw, kiln_lower_tensor(lw, s), most);
  return KILN_OK;
}

// --- values of the run ---

static const kiln_expr *element_at(kiln_ctx *cx, const kiln_tensor *t, int64_t at) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = t->rank - 1; a >= 0; a--) {
    const int64_t extent = kiln_expr_int_or(t->shape[a], 1);
    index[a] = kiln_int(cx, extent > 0 ? at % extent : 0);
    at /= extent > 0 ? extent : 1;
  }
  return kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, t, index));
}

static kiln_data_dependent_extent *find_value(kiln_lower *lw, const kiln_tensor *t, int64_t at,
                                              bool is_negated) {
  for (int i = 0; i < lw->counts->all.n; i++) {
    kiln_data_dependent_extent *c = &lw->counts->all.data[i];
    if (c->from == t->id && c->at == at && c->is_negated == is_negated) return c;
  }
  return NULL;
}

// No axis has 2^31 elements, so values beyond are as good as the limit.
static const kiln_expr *part(kiln_lower *lw, const kiln_tensor *t, int64_t at, bool is_negated) {
  kiln_ctx *cx = lw->cx;
  const kiln_data_dependent_extent *known = find_value(lw, t, at, is_negated);
  if (known) return kiln_var(cx, known->var);
  const kiln_expr *zero = kiln_int(cx, 0), *x = element_at(cx, t, at);
  kiln_stmt *s = kiln_lower_stmt(lw, "value", KILN_I64, 0, 0, NULL);
  s->body = is_negated ? kiln_most(cx, zero,
                                   kiln_sub(cx, zero, kiln_most(cx, x, kiln_int(cx, -INT32_MAX))))
                       : kiln_most(cx, zero, kiln_least(cx, x, kiln_int(cx, INT32_MAX)));
  const kiln_data_dependent_extent made = {
      .var = new_name(lw, is_negated ? "negated value" : "value", t->name),
      .tensor = kiln_lower_tensor(lw, s)->id,
      .from = t->id,
      .at = at,
      .is_negated = is_negated};
  KILN_VEC_PUSH(&cx->perm, &lw->counts->all, made);
  return kiln_var(cx, made.var);
}

const kiln_expr *kiln_lower_run_value(kiln_lower *lw, const kiln_tensor *t, int64_t at,
                                      kiln_value_kind kind) {
  const kiln_expr *positive = part(lw, t, at, false);
  const bool may_be_negative = kind == KILN_VALUE_SIGNED && t->dtype != KILN_BOOL &&
                               t->dtype != KILN_U8 && t->dtype != KILN_U16 &&
                               t->dtype != KILN_U32 && t->dtype != KILN_U64;
  return may_be_negative ? kiln_sub(lw->cx, positive, part(lw, t, at, true)) : positive;
}

const kiln_expr *kiln_lower_positive(kiln_lower *lw, const kiln_expr *e) {
  for (int i = 0; lw->counts && i < lw->counts->all.n; i++) {
    const kiln_data_dependent_extent *c = &lw->counts->all.data[i], *other = NULL;
    if (c->from < 0 || c->is_negated) continue;
    other = find_value(lw, lw->prog->tensors.data[c->from], c->at, true);
    const kiln_expr *p = kiln_var(lw->cx, c->var);
    if (other && e == kiln_sub(lw->cx, p, kiln_var(lw->cx, other->var))) return p;
  }
  if (e->kind == KILN_EXPR_VAR) return e; // a dimension or a count
  return kiln_lower_tidy(lw->cx, kiln_most(lw->cx, e, kiln_int(lw->cx, 0)));
}

// Lets the run check that |x| is in [least, most].
static kiln_status check_run(kiln_lower *lw, const kiln_expr *x, const char *what, int64_t least,
                             int64_t most) {
  kiln_ctx *cx = lw->cx;
  const kiln_index_use use = {.place = kiln_node_place(cx, lw->graph, lw->node),
                              .name = what,
                              .origin = lw->node->name ? lw->node->name : lw->node->op,
                              .axis = -1,
                              .index = x,
                              .least = kiln_int(cx, least),
                              .end = kiln_int(cx, most + 1),
                              .when = lw->when};
  return kiln_check_index(cx, lw->prog, lw->checks, &use);
}

static kiln_status check_value(kiln_lower *lw, const kiln_data_dependent_extent *c, int64_t least,
                               int64_t most) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *t = lw->prog->tensors.data[c->from];
  const kiln_expr *x = element_at(cx, t, c->at);
  return check_run(lw, c->is_negated ? kiln_sub(cx, kiln_int(cx, 0), x) : x,
                   kiln_symbol_text(cx, t->name), least, most);
}

int64_t kiln_lower_assumed_extent(const kiln_lower *lw) {
  return lw->counts->otherwise ? lw->counts->otherwise : KILN_MOST_EXTENT;
}

kiln_status kiln_lower_run_extent(kiln_lower *lw, const kiln_tensor *count, const char *what,
                                  const kiln_expr **out) {
  const int64_t most = kiln_lower_assumed_extent(lw);
  const kiln_expr *n = kiln_tensor_load(lw->cx, count, NULL);
  KILN_TRY(check_run(lw, n, what, 0, most));
  kiln_stmt *s = kiln_lower_stmt(lw, "count", KILN_I64, 0, 0, NULL);
  s->body = kiln_least(lw->cx, n, kiln_int(lw->cx, most));
  *out = add_count(lw, kiln_lower_tensor(lw, s), kiln_int(lw->cx, most));
  lw->counts->all.data[lw->counts->all.n - 1].is_assumed = true;
  return KILN_OK;
}

kiln_status kiln_lower_want_equal(kiln_lower *lw, const kiln_expr *a, const kiln_expr *b,
                                  const char *what) {
  kiln_ctx *cx = lw->cx;
  const kiln_index_use use = {.place = kiln_node_place(cx, lw->graph, lw->node),
                              .name = what,
                              .origin = lw->node->name ? lw->node->name : lw->node->op,
                              .axis = -1,
                              .index = kiln_lower_tidy(cx, kiln_sub(cx, a, b)),
                              .least = kiln_int(cx, 0),
                              .end = kiln_int(cx, 1),
                              .when = lw->when};
  return kiln_check_index(cx, lw->prog, lw->checks, &use);
}

typedef struct bounding {
  kiln_lower *lw;
  bool is_extent; // none may be negative
  int64_t most;   // where no less is known
  kiln_status status;
} bounding;

static void want_bound(const kiln_expr *e, void *argument) {
  bounding *b = argument;
  const kiln_data_dependent_extents *counts = b->lw->counts;
  for (int i = 0; e->kind == KILN_EXPR_VAR && i < counts->all.n; i++) {
    kiln_data_dependent_extent *c = &counts->all.data[i];
    if (c->var != e->u.sym || c->from < 0 || b->status != KILN_OK) continue;
    const int64_t known = c->most ? kiln_expr_int_or(c->most, INT64_MAX) : INT64_MAX;
    if (!b->is_extent && known <= b->most) continue;
    const int64_t most = known < b->most ? known : b->most;
    kiln_stmt *s = b->lw->prog->stmts.data[b->lw->prog->tensors.data[c->tensor]->def];
    c->most = kiln_int(b->lw->cx, most);
    c->is_assumed = most == kiln_lower_assumed_extent(b->lw);
    s->body = kiln_least(b->lw->cx, s->body, c->most);
    b->status = check_value(b->lw, c, b->is_extent ? 0 : -INT32_MAX, most);
  }
}

kiln_status kiln_lower_want_bound(kiln_lower *lw, const kiln_expr *e) {
  bounding b = {lw, false, kiln_lower_assumed_extent(lw), KILN_OK};
  if (kiln_lower_upper_bound(lw, e)) return KILN_OK;
  kiln_expr_visit(lw->cx, e, want_bound, &b);
  return b.status;
}

kiln_status kiln_lower_want_extent_of(kiln_lower *lw, const kiln_expr *e, int64_t most) {
  bounding b = {lw, true, most, KILN_OK};
  kiln_expr_visit(lw->cx, e, want_bound, &b);
  return b.status;
}

void kiln_lower_prefix_counts(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_places,
                              kiln_tensor **out_count) {
  kiln_stmt *s =
      kiln_lower_stmt(lw, "count", KILN_I64, 0, 1, (const kiln_expr *const *)flags->shape);
  const kiln_expr *r = kiln_stmt_var(lw->cx, s, 0);
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_tensor_load(lw->cx, flags, &r);
  *out_count = kiln_lower_tensor(lw, s);
  const kiln_scan before = {.exclusive = true, .combiner = KILN_COMBINE_SUM};
  *out_places = kiln_lower_scan(lw, &before, flags);
}

kiln_tensor *kiln_lower_compact(kiln_lower *lw, const kiln_tensor *flags, const kiln_tensor *places,
                                const kiln_expr *count) {
  kiln_ctx *cx = lw->cx;
  kiln_stmt *zeros = kiln_lower_stmt(lw, "zeros", KILN_I64, 1, 0, &count);
  zeros->body = kiln_int(cx, 0);
  kiln_stmt *s = kiln_lower_scatter(lw, "rows", kiln_lower_tensor(lw, zeros), 1,
                                    (const kiln_expr *const *)flags->shape);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0);
  s->index[0] = kiln_tensor_load(cx, places, &i);
  s->guard = kiln_compare(cx, KILN_EXPR_NE, kiln_tensor_load(cx, flags, &i), kiln_int(cx, 0));
  s->body = i;
  return kiln_lower_tensor(lw, s);
}

kiln_status kiln_lower_rows(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_rows) {
  kiln_tensor *places = NULL, *count = NULL;
  const kiln_expr *extent = NULL;
  kiln_lower_prefix_counts(lw, flags, &places, &count);
  KILN_TRY(kiln_lower_data_dependent_extent(lw, count, flags->shape[0], &extent));
  *out_rows = kiln_lower_compact(lw, flags, places, extent);
  return KILN_OK;
}

// --- resolving ---

typedef struct resolution {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_data_dependent_extents *counts;
  kiln_checks *checks;
  const kiln_expr ***shapes; // [tensors] before resolution
  // The current statement:
  kiln_stmt *s;
  const kiln_expr **extents; // [dims] before resolution
  bool is_safe;              // no load past the counted elements can leave its tensor
  kiln_status status;
} resolution;

static const kiln_expr *load_count(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const resolution *z = argument;
  const kiln_data_dependent_extent *count = kiln_data_dependent_find(z->counts, e);
  return count ? kiln_tensor_load(cx, z->p->tensors.data[count->tensor], NULL) : NULL;
}

// |e| with variables replaced by loads of the counts.
static const kiln_expr *read(const resolution *z, const kiln_expr *e) {
  return e ? kiln_expr_replace(z->cx, e, load_count, (void *)(uintptr_t)z) : NULL;
}

static kiln_status no_bound(const resolution *z, kiln_symbol origin, const kiln_expr *e) {
  return KILN_FAIL(z->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(z->cx, origin),
                   "extent: the most that it can be must be known when compiling, got %s",
                   kiln_expr_text(z->cx, e));
}

// Whether |e| uses a dim with data-dependent extent.
static bool is_loose(const resolution *z, const kiln_expr *e) {
  for (int d = 0; d < z->s->n_space + z->s->n_reduce; d++)
    if (is_counted(z->counts, z->extents[d]) && kiln_expr_uses(e, z->s->dims[d].name)) return true;
  return false;
}

static bool is_at_most(const resolution *z, const kiln_expr *a, const kiln_expr *b) {
  if (a == b) return true;
  if (a->kind == KILN_EXPR_MIN) return is_at_most(z, a->args[0], b) || is_at_most(z, a->args[1], b);
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &z->cx->scratch);
  for (int i = 0; i < z->counts->all.n; i++) {
    int64_t most = INT32_MAX;
    const kiln_expr *bound = z->counts->all.data[i].most;
    if (bound) (void)kiln_expr_is_int(bound, &most);
    kiln_ranges_push(&ranges, z->counts->all.data[i].var, 0, most);
  }
  return kiln_proves(z->cx, kiln_compare(z->cx, KILN_EXPR_LE, a, b), &ranges);
}

typedef struct limit {
  const kiln_expr *condition; // dim < extent
  bool found;
} limit;

static void find_limit(const kiln_expr *e, void *argument) {
  limit *l = argument;
  l->found |= e == l->condition;
}

// Whether the statement itself compares |var| with |extent|, as a concatenation does.
static bool asks(const resolution *z, const kiln_expr *var, const kiln_expr *extent) {
  limit l = {kiln_compare(z->cx, KILN_EXPR_LT, var, extent), false};
  kiln_expr_visit(z->cx, z->s->body, find_limit, &l);
  return l.found;
}

static const kiln_expr *condition_of(const resolution *z) {
  for (int i = 0; i < z->counts->conditional.n; i++) {
    const kiln_conditional *c = &z->counts->conditional.data[i];
    if (z->s->id >= c->first && z->s->id < c->end) return c->when;
  }
  return NULL;
}

// Lets the run check that axis |axis| of |t|, of |extent|, has the extent |of_dim| of the dim that
// reads it; or 1, if the read |is_held|.
static kiln_status check_equal(const resolution *z, const kiln_tensor *t, int axis,
                               const kiln_expr *extent, const kiln_expr *of_dim, bool is_held) {
  kiln_ctx *cx = z->cx;
  const kiln_expr *have = read(z, extent), *want = read(z, of_dim), *one = kiln_int(cx, 1),
                  *zero = kiln_int(cx, 0);
  const bool is_counted_too = is_counted(z->counts, extent);
  const kiln_expr *holds =
      kiln_compare(cx, is_counted_too ? KILN_EXPR_EQ : KILN_EXPR_LE, want, have);
  if (is_held)
    holds = kiln_binary(cx, KILN_EXPR_OR, holds, kiln_compare(cx, KILN_EXPR_EQ, have, one));
  const kiln_expr *when = condition_of(z);
  const kiln_index_use use = {.place = kiln_symbol_text(cx, z->s->origin),
                              .name = kiln_symbol_text(cx, t->name),
                              .origin = z->s->origin,
                              .axis = -2 - axis,
                              .index = kiln_select(cx, holds, zero, kiln_most(cx, want, one)),
                              .least = zero,
                              .end = one,
                              .when = when ? read(z, when) : NULL};
  return kiln_check_index(cx, z->p, z->checks, &use);
}

// A dim used directly as an index implies that two extents are equal.
static void check_dim(resolution *z, const kiln_tensor *t, int axis, int dim, bool is_held) {
  const kiln_expr *extent = z->shapes[t->id][axis], *of_dim = z->extents[dim];
  if (!is_counted(z->counts, extent) && !is_counted(z->counts, of_dim)) return;
  if (z->status != KILN_OK || is_at_most(z, of_dim, extent)) return;
  z->is_safe = false;
  if (asks(z, kiln_stmt_var(z->cx, z->s, dim), extent)) return;
  z->status = check_equal(z, t, axis, extent, of_dim, is_held);
}

// The dim that |e| reads an axis of |extent| by, also if it is clamped for an axis that may have
// extent 1 and broadcast.
static int dim_that_reads(const resolution *z, const kiln_expr *e, const kiln_expr *extent) {
  const bool is_held = e->kind == KILN_EXPR_MIN && is_counted(z->counts, extent) &&
                       e->args[1] == kiln_sub(z->cx, extent, kiln_int(z->cx, 1));
  return kiln_stmt_dim_of(z->s, is_held ? e->args[0] : e);
}

static void check_load(const kiln_expr *e, void *argument) {
  resolution *z = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = z->p->tensors.data[e->u.tensor];
  for (int a = 0; a < e->n_args; a++) {
    const int dim = dim_that_reads(z, e->args[a], z->shapes[t->id][a]);
    if (dim >= 0) check_dim(z, t, a, dim, kiln_stmt_dim_of(z->s, e->args[a]) != dim);
    else z->is_safe &= !is_loose(z, e->args[a]);
  }
}

// Clamps an index made of counts into its tensor, also for a count of 0.
static const kiln_expr *hold_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  resolution *z = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *at[KILN_MAX_RANK], *zero = kiln_int(cx, 0);
  const kiln_tensor *t = z->p->tensors.data[e->u.tensor];
  bool held = false;
  for (int a = 0; a < e->n_args; a++) {
    at[a] = kiln_expr_replace(cx, e->args[a], hold_load, z);
    held |= at[a] != e->args[a];
    if (!is_counted(z->counts, at[a])) continue;
    const kiln_expr *last = kiln_sub(cx, t->shape[a], kiln_int(cx, 1));
    at[a] = kiln_most(cx, zero, kiln_least(cx, at[a], last));
    held = true;
  }
  return held ? kiln_tensor_load(cx, t, at) : NULL;
}

static const kiln_expr *resolved(resolution *z, const kiln_expr *e) {
  return e ? read(z, kiln_expr_replace(z->cx, e, hold_load, z)) : NULL;
}

// Whether the point is before all counts of dims [first, end); NULL: always.
static const kiln_expr *inside(const resolution *z, int first, int end) {
  const kiln_expr *all = NULL;
  for (int d = first; d < end; d++)
    if (is_counted(z->counts, z->extents[d]))
      all = kiln_both(
          z->cx, all,
          kiln_compare(z->cx, KILN_EXPR_LT, kiln_stmt_var(z->cx, z->s, d), read(z, z->extents[d])));
  return all;
}

static bool any_counted(const resolution *z) {
  const kiln_stmt *s = z->s;
  const kiln_tensor *t = z->p->tensors.data[s->out];
  bool any = is_counted(z->counts, s->body) || (s->guard && is_counted(z->counts, s->guard)) ||
             (s->init && is_counted(z->counts, s->init));
  for (int d = 0; d < s->n_space + s->n_reduce; d++) any |= is_counted(z->counts, z->extents[d]);
  for (int a = 0; a < t->rank; a++)
    any |= is_counted(z->counts, s->index[a]) || is_counted(z->counts, z->shapes[t->id][a]);
  return any;
}

typedef struct counted_read {
  const resolution *z;
  bool found;
} counted_read;

static void find_counted_read(const kiln_expr *e, void *argument) {
  counted_read *r = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = r->z->p->tensors.data[e->u.tensor];
  for (int a = 0; a < t->rank; a++)
    r->found |= is_counted(r->z->counts, r->z->shapes[t->id][a]) || is_loose(r->z, e->args[a]);
}

// A scatter writes neither past the counted elements nor outside of the tensor.
static void guard_scatter(resolution *z, const kiln_expr *loose) {
  kiln_ctx *cx = z->cx;
  kiln_stmt *s = z->s;
  const kiln_tensor *t = z->p->tensors.data[s->out];
  for (int a = 0; a < t->rank; a++) {
    const int dim = kiln_stmt_dim_of(s, s->index[a]);
    if (dim >= 0 && z->extents[dim] == z->shapes[t->id][a]) continue;
    const kiln_expr *end = read(z, z->shapes[t->id][a]);
    s->guard =
        kiln_both(cx, s->guard, kiln_compare(cx, KILN_EXPR_GE, s->index[a], kiln_int(cx, 0)));
    s->guard = kiln_both(cx, s->guard, kiln_compare(cx, KILN_EXPR_LT, s->index[a], end));
  }
  counted_read r = {z, false};
  if (s->guard) kiln_expr_visit(cx, s->guard, find_counted_read, &r);
  if (!r.found) s->guard = kiln_both(cx, loose, s->guard);
  else if (loose) s->guard = kiln_select(cx, loose, s->guard, kiln_int_of(cx, KILN_BOOL, 0));
}

static const kiln_expr *nothing(const resolution *z) {
  const kiln_dtype t = z->s->body->dtype;
  return z->s->combiner == KILN_COMBINE_NONE ? kiln_number(z->cx, t, 0)
                                             : kiln_combiner_identity(z->cx, z->s->combiner, t);
}

static kiln_status resolve_stmt(resolution *z) {
  kiln_ctx *cx = z->cx;
  kiln_stmt *s = z->s;
  const int n = s->n_space + s->n_reduce, rank = z->p->tensors.data[s->out]->rank;
  const bool is_plain = kiln_stmt_is_plain(cx, s);
  z->is_safe = true;
  kiln_expr_visit(cx, s->body, check_load, z);
  if (s->guard) kiln_expr_visit(cx, s->guard, check_load, z);
  for (int a = 0; a < rank; a++) kiln_expr_visit(cx, s->index[a], check_load, z);
  if (z->status != KILN_OK) return z->status;
  if (!any_counted(z)) return KILN_OK;
  for (int d = 0; d < n; d++) {
    if (!is_counted(z->counts, z->extents[d])) continue;
    s->dims[d].extent = kiln_data_dependent_most(cx, z->counts, z->extents[d]);
    if (!s->dims[d].extent) return no_bound(z, s->origin, z->extents[d]);
  }
  s->body = resolved(z, s->body);
  s->guard = resolved(z, s->guard);
  s->init = resolved(z, s->init);
  for (int a = 0; a < rank; a++) s->index[a] = resolved(z, s->index[a]);
  const bool all = !z->is_safe || !is_plain;
  const kiln_expr *loose = inside(z, all ? 0 : s->n_space, n);
  if (!is_plain) guard_scatter(z, loose);
  else if (loose) {
    s->body = kiln_select(cx, loose, s->body, nothing(z));
    if (s->guard && !z->is_safe) // the guard may load, too
      s->guard = kiln_select(cx, loose, s->guard, kiln_int_of(cx, KILN_BOOL, 0));
  }
  return KILN_OK;
}

static bool is_assumed(const resolution *z, const kiln_tensor *t) {
  for (int i = 0; i < z->counts->all.n; i++)
    for (int a = 0; z->counts->all.data[i].is_assumed && a < t->rank; a++)
      if (kiln_expr_uses(z->shapes[t->id][a], z->counts->all.data[i].var)) return true;
  return false;
}

static kiln_status check_assumed(const resolution *z, const kiln_tensor *t) {
  const int64_t given = z->counts->otherwise, most = given ? given : KILN_MOST_EXTENT,
                room = given ? INT64_C(1) << 31 : KILN_MOST_ASSUMED;
  if (!is_assumed(z, t) || kiln_tensor_elems(t) <= room) return KILN_OK;
  return KILN_FAIL(z->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(z->cx, t->name),
                   "extents: only the run knows them; with %" PRId64
                   " for each there must be at most %" PRId64
                   " elements: compile with --most-extent",
                   most, room);
}

static kiln_status resolve_shapes(resolution *z) {
  kiln_ctx *cx = z->cx;
  for (int i = 0; i < z->p->tensors.n; i++) {
    kiln_tensor *t = z->p->tensors.data[i];
    z->shapes[i] = t->shape;
    t->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
    for (int a = 0; a < t->rank; a++) {
      t->shape[a] = z->shapes[i][a];
      if (!is_counted(z->counts, t->shape[a])) continue;
      t->shape[a] = kiln_data_dependent_most(cx, z->counts, z->shapes[i][a]);
      if (!t->shape[a]) return no_bound(z, t->name, z->shapes[i][a]);
    }
    KILN_TRY(check_assumed(z, t));
  }
  return KILN_OK;
}

// Adds a further output: the shape of output |output|.
static void add_shape(resolution *z, int output) {
  kiln_ctx *cx = z->cx;
  const kiln_tensor *t = z->p->tensors.data[z->p->outputs.data[output]];
  const kiln_expr *rank = kiln_int(cx, t->rank), *const *shape = z->shapes[t->id];
  kiln_stmt *s = kiln_stmt_make(cx, z->p, "shape", KILN_I64, 1, 0, &rank);
  s->origin = t->name;
  s->body = read(z, shape[t->rank - 1]);
  for (int a = t->rank - 2; a >= 0; a--)
    s->body =
        kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, kiln_stmt_var(cx, s, 0), kiln_int(cx, a)),
                    read(z, shape[a]), s->body);
  z->p->tensors.data[s->out]->role = KILN_OUTPUT;
  KILN_VEC_PUSH(&cx->perm, &z->p->outputs, s->out);
  KILN_VEC_PUSH(&cx->perm, &z->p->shape_of, output);
}

static bool shape_is_counted(const resolution *z, const kiln_tensor *t) {
  for (int a = 0; a < t->rank; a++)
    if (is_counted(z->counts, z->shapes[t->id][a])) return true;
  return false;
}

kiln_status kiln_data_dependent_resolve(kiln_ctx *cx, kiln_program *p,
                                        const kiln_data_dependent_extents *counts,
                                        kiln_checks *checks) {
  resolution z = {.cx = cx, .p = p, .counts = counts, .checks = checks};
  const int n_stmts = p->stmts.n, n_outputs = p->outputs.n;
  if (counts->all.n == 0) return KILN_OK;
  z.shapes = KILN_NEW_ARRAY(&cx->perm, const kiln_expr **, p->tensors.n);
  KILN_TRY(resolve_shapes(&z));
  for (int i = 0; i < n_stmts; i++) {
    z.s = p->stmts.data[i];
    const int n = z.s->n_space + z.s->n_reduce;
    z.extents = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
    for (int d = 0; d < n; d++) z.extents[d] = z.s->dims[d].extent;
    KILN_TRY(resolve_stmt(&z));
  }
  for (int i = 0; i < n_outputs; i++)
    if (shape_is_counted(&z, p->tensors.data[p->outputs.data[i]])) add_shape(&z, i);
  return KILN_OK;
}
