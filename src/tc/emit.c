// Translates one statement of the notation to one statement of the program, or two if a half is
// summed or a tensor is updated: determines ranks and extents of packs and ranges of indices, then
// renames the body to the statement's dims.
#include "rewrite/checks.h"
#include "tc/eval.h"
#include "tc/lexer.h"

#include <string.h>

enum { MAX_STATEMENTS = 1 << 16 }; // nested calls may multiply

typedef struct emitter {
  kiln_tc_eval ev;
  kiln_tc_env *env;
  kiln_ctx *cx;
  const kiln_tc_stmt *st;
  int n_ranges; // one a variable, in axis order
  kiln_tc_range *ranges;
  int *places;                           // [n_ranges] the statement's dim for each range
  bool weak;                             // the value is a weak number and no type is declared
  int n_left;                            // number of left-side indices: the first of the axes
  int rank;                              // of the result
  const kiln_expr *index[KILN_MAX_RANK]; // the written element as a function of the indices
} emitter;

static const char *text_of(const emitter *em, kiln_symbol s) { return kiln_symbol_text(em->cx, s); }

// --- packs ---

static kiln_tc_axis *find_axis(kiln_tc_eval *ev, kiln_symbol name) {
  int k = kiln_tc_find_axis(ev, name);
  return k < 0 ? NULL : &ev->axes[k];
}

static kiln_status note_rank(kiln_tc_eval *ev, const kiln_tc_expr *arg, int rank) {
  kiln_tc_axis *axis = find_axis(ev, arg->name);
  if (axis == NULL || !axis->pack)
    return kiln_tc_fail(&ev->env->file->source, arg->at, NULL,
                        "%s: is an index and a pack in one statement",
                        kiln_symbol_text(ev->env->cx, arg->name));
  if (rank > axis->rank) axis->rank = rank;
  return KILN_OK;
}

// The rank of a pack is that of the longest dimensions it is used with.
static kiln_status rank_of_access(kiln_tc_eval *ev, const kiln_tc_expr *e,
                                  const kiln_tc_tensor *t) {
  if (kiln_tc_is_structured(&ev->scope, e, t)) {
    for (int i = 0; i < e->n_args; i++) {
      const kiln_tc_expr *pack = kiln_tc_pack_in(&ev->scope, e->args[i]);
      if (pack != NULL) KILN_TRY(note_rank(ev, pack, t->ranks[i]));
    }
    return KILN_OK;
  }
  const kiln_tc_expr *only = NULL;
  int n_packs = 0;
  for (int i = 0; i < e->n_args; i++) {
    const kiln_tc_expr *pack = kiln_tc_pack_in(&ev->scope, e->args[i]);
    if (pack == NULL) continue;
    only = pack;
    n_packs++;
  }
  bool broadcasts = t->n_dims == 1 && t->dims[0].pack && e->n_args > 1; // may have fewer axes
  if (n_packs != 1 || broadcasts || t->rank < e->n_args - 1) return KILN_OK;
  return note_rank(ev, only, t->rank - e->n_args + 1);
}

// NumPy broadcasting of two extents; NULL if they do not broadcast.
static const kiln_expr *broadcast(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  int64_t x, y;
  bool fixed_a = kiln_expr_is_int(a, &x), fixed_b = kiln_expr_is_int(b, &y);
  if (a == b || (fixed_b && y == 1)) return a;
  if (fixed_a && x == 1) return b;
  if (fixed_a && fixed_b) return NULL;
  if (fixed_a || fixed_b) return fixed_a ? a : b; // the other is 1 or equal
  const kiln_expr *one = kiln_binary(cx, KILN_EXPR_EQ, a, kiln_int(cx, 1));
  return kiln_select(cx, one, b, a);
}

static kiln_status extents_of_access(kiln_tc_eval *ev, const kiln_tc_expr *e,
                                     const kiln_tc_tensor *t) {
  kiln_ctx *cx = ev->env->cx;
  kiln_tc_match m = {0};
  bool scalar = t->n_dims == 0 && e->n_args == 0;
  if (!scalar) KILN_TRY(kiln_tc_match_access(ev, e, t, &m));
  for (int i = 0; i < m.n; i++) {
    if (!m.of[i].broadcast) continue;
    const kiln_expr **extent = &ev->axes[m.of[i].axis].extents[m.of[i].element];
    const kiln_expr *met = *extent == NULL ? t->extents[i] : broadcast(cx, *extent, t->extents[i]);
    if (met == NULL)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, ev->env->caller->place,
                       "%s: dimensions must be equal or 1 to broadcast, got %" PRId64
                       " at axis %d where another has %" PRId64,
                       kiln_symbol_text(cx, e->name), t->extents[i]->u.i, i, (*extent)->u.i);
    *extent = met;
  }
  return KILN_OK;
}

static kiln_status visit_all(emitter *em, kiln_tc_visit visit) {
  KILN_TRY(kiln_tc_visit_accesses(&em->ev, em->st->rhs, visit));
  for (int i = 0; i < em->st->n_clauses; i++)
    if (em->st->clauses[i].kind != KILN_TC_RANGE)
      KILN_TRY(kiln_tc_visit_accesses(&em->ev, em->st->clauses[i].lo, visit));
  return KILN_OK;
}

// Packs with explicit ranges: `o... in 0:1 for D...`, `d... in D...`.
static kiln_status rank_of_clauses(emitter *em) {
  for (int i = 0; i < em->st->n_clauses; i++) {
    const kiln_tc_clause *c = &em->st->clauses[i];
    if (c->kind != KILN_TC_RANGE || c->like == 0) continue;
    const kiln_tc_size *like = kiln_tc_find_size(em->env, c->like);
    kiln_tc_axis *axis = find_axis(&em->ev, c->name);
    if (like == NULL || axis == NULL || !axis->pack)
      return kiln_tc_fail(&em->env->file->source, c->at, NULL, "%s: is not a pack of indices",
                          text_of(em, c->name));
    axis->rank = like->rank;
    for (int k = 0; k < axis->rank && c->lo == NULL; k++) axis->extents[k] = like->extents[k];
  }
  return KILN_OK;
}

static kiln_status make_axes(emitter *em) {
  kiln_tc_indices all = {0};
  em->n_left = kiln_tc_collect_indices(&em->ev.scope, &all);
  em->ev.n_axes = all.n;
  em->ev.axes = KILN_NEW_ARRAY(&em->cx->perm, kiln_tc_axis, all.n);
  for (int k = 0; k < all.n; k++)
    em->ev.axes[k] = (kiln_tc_axis){.name = all.data[k].name,
                                    .pack = all.data[k].pack,
                                    .at = all.data[k].at,
                                    .rank = all.data[k].pack ? 0 : 1};
  KILN_TRY(visit_all(em, rank_of_access));
  KILN_TRY(rank_of_clauses(em));
  for (int k = 0; k < all.n; k++) // '%' keeps the names distinct from all user names
    for (int i = 0; i < em->ev.axes[k].rank; i++)
      em->ev.axes[k].vars[i] =
          kiln_symbol_printf(em->cx, "%%%s.%d", text_of(em, em->ev.axes[k].name), i);
  return visit_all(em, extents_of_access);
}

// --- ranges ---

static kiln_tc_range *range_of(emitter *em, const kiln_tc_axis *axis, int element) {
  for (int i = 0; i < em->n_ranges; i++)
    if (em->ranges[i].var == axis->vars[element]) return &em->ranges[i];
  return NULL;
}

static void make_ranges(emitter *em) {
  int n = 0;
  for (int k = 0; k < em->ev.n_axes; k++) n += em->ev.axes[k].rank;
  em->ranges = KILN_NEW_ARRAY(&em->cx->perm, kiln_tc_range, n);
  for (int k = 0; k < em->ev.n_axes; k++)
    for (int i = 0; i < em->ev.axes[k].rank; i++) {
      kiln_tc_range *r = &em->ranges[em->n_ranges++];
      r->var = em->ev.axes[k].vars[i];
      r->lo = kiln_int(em->cx, 0);
      r->source = -1;
      r->extent = em->ev.axes[k].extents[i];
      r->solved = r->extent != NULL;
    }
}

// Packs in a bound of a pack must have its rank.
static kiln_status want_rank(const emitter *em, const kiln_tc_expr *e, const kiln_tc_axis *axis) {
  const kiln_tc_size *size = e->kind == KILN_TC_PACK ? kiln_tc_find_size(em->env, e->name) : NULL;
  if (size != NULL && size->pack && size->rank != axis->rank)
    return kiln_tc_fail(&em->env->file->source, e->at, NULL,
                        "%s...: must have as many elements as the other packs, got %d, not %d",
                        text_of(em, e->name), size->rank, axis->rank);
  for (int i = 0; i < e->n_args; i++) KILN_TRY(want_rank(em, e->args[i], axis));
  return KILN_OK;
}

static kiln_status range_clause(emitter *em, const kiln_tc_clause *c) {
  kiln_tc_axis *axis = find_axis(&em->ev, c->name);
  if (axis != NULL && axis->pack) {
    KILN_TRY(want_rank(em, c->lo, axis));
    KILN_TRY(want_rank(em, c->hi, axis));
  }
  for (int k = 0; axis != NULL && k < axis->rank; k++) {
    const kiln_expr *lo, *hi;
    em->ev.from_right = axis->pack ? axis->rank - k : 0;
    KILN_TRY(kiln_tc_evaluate_size(&em->ev, c->lo, &lo));
    KILN_TRY(kiln_tc_evaluate_size(&em->ev, c->hi, &hi));
    em->ev.from_right = 0;
    kiln_tc_range *r = range_of(em, axis, k);
    r->lo = kiln_tc_simple(em->cx, lo);
    r->extent = kiln_tc_simple(em->cx, kiln_sub(em->cx, hi, lo));
    r->solved = true;
    axis->extents[k] = r->extent;
  }
  return KILN_OK;
}

static kiln_status range_clauses(emitter *em) {
  int n_lets = em->ev.scope.n_lets;
  for (int i = 0; i < em->st->n_clauses; i++) {
    const kiln_tc_clause *c = &em->st->clauses[i];
    if (c->kind != KILN_TC_RANGE || c->lo == NULL) continue;
    em->ev.scope.n_lets = i;
    KILN_TRY(range_clause(em, c));
    em->ev.scope.n_lets = n_lets;
  }
  return KILN_OK;
}

static void infer(emitter *em, kiln_tc_turn turn) {
  int n = 0;
  kiln_tc_bound *bounds = KILN_NEW_ARRAY(&em->cx->perm, kiln_tc_bound, em->ev.accesses.n);
  for (int i = 0; i < em->ev.accesses.n; i++) {
    if (em->ev.accesses.data[i].turn > turn) continue;
    bounds[n] = em->ev.accesses.data[i].bound;
    bounds[n++].source = i;
  }
  kiln_tc_infer(em->cx, em->n_ranges, em->ranges, n, bounds);
  for (int i = 0; i < n; i++)
    if (bounds[i].used) em->ev.accesses.data[bounds[i].source].bound.used = true;
}

// The length in bytes of an access NAME(...) in the text.
static int span_of(const char *access) {
  int n = (int)strcspn(access, "("), depth = 0;
  for (; access[n] != '\0'; n++) {
    depth += access[n] == '(' ? 1 : access[n] == ')' ? -1 : 0;
    if (depth == 0 || access[n] == '\n') break;
  }
  return access[n] == ')' ? n + 1 : n;
}

// "inferred: h in 0:H - KH + 1 from I(h + kh), ...", for messages.
static const char *inferred(emitter *em) {
  kiln_text t;
  kiln_text_init(&t, &em->cx->perm);
  kiln_text_add(&t, "inferred:");
  int at = 0;
  for (int k = 0; k < em->ev.n_axes; k++)
    for (int i = 0; i < em->ev.axes[k].rank; i++, at++) {
      const kiln_tc_range *r = &em->ranges[at];
      kiln_text_printf(&t, "%s %s", at > 0 ? "," : "", text_of(em, em->ev.axes[k].name));
      if (em->ev.axes[k].pack) kiln_text_printf(&t, ".%d", i);
      kiln_text_add(&t, r->solved ? " in " : " unsolved");
      if (!r->solved) continue;
      kiln_expr_print(em->cx, r->lo, NULL, &t);
      kiln_text_add(&t, ":");
      kiln_expr_print(em->cx, kiln_tc_simple(em->cx, kiln_add(em->cx, r->lo, r->extent)), NULL, &t);
      const char *access = r->source >= 0 ? em->ev.accesses.data[r->source].access : NULL;
      if (access != NULL) kiln_text_printf(&t, " from %.*s", span_of(access), access);
    }
  return t.data;
}

static kiln_status check_range(emitter *em, const kiln_tc_axis *axis, int element) {
  const kiln_tc_range *r = range_of(em, axis, element);
  const kiln_tc_source *src = &em->env->file->source;
  const char *name = text_of(em, axis->name);
  int64_t extent;
  if (!r->solved)
    return kiln_tc_fail(src, axis->at, inferred(em),
                        "%s: unsolved variable: could not infer its range; use a where clause, as "
                        "in where %s in 0:10",
                        name, name);
  if (kiln_expr_is_int(r->extent, &extent) && extent < 0)
    return kiln_tc_fail(src, axis->at, inferred(em), "%s: inferred an empty range for the variable",
                        name);
  return KILN_OK;
}

static const char *bound_text(emitter *em, const kiln_tc_bound *b) {
  kiln_text t;
  kiln_text_init(&t, &em->cx->perm);
  kiln_expr_print(em->cx, b->lo, NULL, &t);
  kiln_text_add(&t, " <= it <= ");
  kiln_expr_print(em->cx, b->hi, NULL, &t);
  return t.data;
}

// Whether sizes are still symbolic, so that the check is deferred until they are bound.
static bool is_open(const emitter *em, const kiln_tc_access *a) {
  bool open = a->bound.lo->vars->n > 0 || a->bound.hi->vars->n > 0;
  for (int i = 0; i < em->n_ranges; i++)
    open = open || em->ranges[i].lo->vars->n > 0 || em->ranges[i].extent->vars->n > 0;
  return open;
}

// Accesses that were not used to infer a range must be in bounds for the inferred ranges.
static kiln_status check_access(emitter *em, const kiln_tc_access *a) {
  const kiln_tc_source *src = &em->env->file->source;
  if (a->bound.used && a->turn == KILN_TC_ALWAYS) return KILN_OK;
  kiln_tc_verdict v = kiln_tc_bound_check(em->cx, em->n_ranges, em->ranges, a->guard, &a->bound);
  if (v == KILN_TC_FAILS)
    return kiln_tc_fail(src, a->at, inferred(em),
                        "the subscript must stay in range: %s, for all indices; give an index a "
                        "range with where, or select with ?: the value outside",
                        bound_text(em, &a->bound));
  if (v == KILN_TC_UNKNOWN && !is_open(em, a))
    return kiln_tc_fail(src, a->at, inferred(em),
                        "the subscript cannot be shown to stay in range: %s; hold it there with "
                        "min and max",
                        bound_text(em, &a->bound));
  return KILN_OK;
}

static kiln_status check_accesses(emitter *em) {
  for (int i = 0; i < em->ev.accesses.n; i++) KILN_TRY(check_access(em, &em->ev.accesses.data[i]));
  return KILN_OK;
}

static kiln_status solve(emitter *em) {
  KILN_TRY(range_clauses(em));
  for (kiln_tc_turn t = KILN_TC_ALWAYS; t <= KILN_TC_ON_LEFT; t++) infer(em, t);
  for (int k = 0; k < em->ev.n_axes; k++)
    for (int i = 0; i < em->ev.axes[k].rank; i++) KILN_TRY(check_range(em, &em->ev.axes[k], i));
  return check_accesses(em);
}

// --- statements ---

static int n_space_of(const emitter *em) {
  int n = 0;
  for (int k = 0; k < em->n_left; k++) n += em->ev.axes[k].rank;
  return n;
}

// |e| with indices replaced by the dims of |s|.
static const kiln_expr *renamed(emitter *em, const kiln_stmt *s, const kiln_expr *e) {
  int n = em->n_ranges;
  kiln_symbol *vars = KILN_NEW_ARRAY(&em->cx->perm, kiln_symbol, n);
  const kiln_expr **values = KILN_NEW_ARRAY(&em->cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) {
    vars[i] = em->ranges[i].var;
    values[i] = kiln_add(em->cx, kiln_stmt_var(em->cx, s, em->places[i]), em->ranges[i].lo);
  }
  return kiln_expr_substitute(em->cx, e, n, vars, values);
}

// The indices' names as names of dims, for schedules; 0 if a name cannot be a dim's. Statements of
// graph nodes get no names: schedules of models refer to dims by number.
static const kiln_symbol *names_of_ranges(const emitter *em) {
  kiln_symbol *out = KILN_NEW_ARRAY(&em->cx->perm, kiln_symbol, em->n_ranges);
  int at = 0;
  for (int k = 0; k < em->ev.n_axes && em->env->caller->node == NULL; k++) {
    const kiln_tc_axis *axis = &em->ev.axes[k];
    // Extents may refer to sizes by name.
    bool taken = kiln_tc_find_size(em->env, axis->name) != NULL;
    for (int i = 0; i < axis->rank && at < em->n_ranges; i++, at++)
      if (!taken)
        out[at] = axis->pack ? kiln_symbol_printf(em->cx, "%s.%d", text_of(em, axis->name), i)
                             : axis->name;
  }
  return out;
}

static void name_dims(emitter *em, kiln_stmt *s, int n_dims) {
  const kiln_symbol *names = names_of_ranges(em);
  for (int i = 0; i < n_dims; i++)
    if (names[i] != 0) s->dims[em->places[i]].name = names[i];
  for (int d = 0; d < s->n_space; d++) s->index[d] = kiln_stmt_var(em->cx, s, d);
}

// A statement over the first |n_dims| ranges.
static kiln_stmt *make_stmt(emitter *em, const char *name, kiln_dtype t, int n_dims) {
  int n_space = n_space_of(em);
  const kiln_expr **extents = KILN_NEW_ARRAY(&em->cx->perm, const kiln_expr *, n_dims);
  for (int i = 0; i < n_dims; i++) extents[em->places[i]] = em->ranges[i].extent;
  kiln_stmt *s =
      kiln_stmt_make(em->cx, em->env->caller->prog, name, t, n_space, n_dims - n_space, extents);
  s->origin = em->env->caller->origin;
  name_dims(em, s, n_dims);
  return s;
}

static const kiln_tensor *written_by(const emitter *em, const kiln_stmt *s) {
  return em->env->caller->prog->tensors.data[s->out];
}

// A load of |t| at the statement's own element.
static const kiln_expr *load_here(emitter *em, const kiln_stmt *s, const kiln_tensor *t) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int i = 0; i < t->rank; i++) index[i] = kiln_stmt_var(em->cx, s, i);
  return kiln_tensor_load(em->cx, t, index);
}

// Declares the statement's result.
static void declare(emitter *em, const kiln_tensor *tensor) {
  kiln_tc_tensor t = {
      .name = em->st->out, .tensor = tensor, .type = tensor->dtype, .weak = em->weak};
  t.n_dims = em->st->n_lhs;
  t.dims = em->st->lhs;
  t.rank = tensor->rank;
  for (int k = 0; k < t.n_dims; k++) t.ranks[k] = em->ev.axes[k].rank;
  for (int i = 0; i < t.rank; i++) {
    t.storage[i] = em->places[i];
    t.extents[i] = tensor->shape[t.storage[i]];
    t.origins[i] = em->ranges[i].lo;
  }
  KILN_VEC_PUSH(&em->cx->perm, &em->env->tensors, t);
}

// The tensor of which |body| is a copy; NULL if it computes something.
static const kiln_tensor *copied(emitter *em, const kiln_expr *body, kiln_dtype t) {
  if (body->kind != KILN_EXPR_LOAD || body->dtype != t || em->n_ranges != body->n_args) return NULL;
  const kiln_tensor *from = em->env->caller->prog->tensors.data[body->u.tensor];
  for (int i = 0; i < body->n_args; i++) {
    const kiln_expr *x = body->args[i];
    bool own = x->kind == KILN_EXPR_VAR && x->u.sym == em->ranges[i].var && em->places[i] == i;
    if (!own || from->shape[i] != em->ranges[i].extent) return NULL;
  }
  return from;
}

// out (op)= body for a tensor that already has values everywhere.
static void combine_with_old(emitter *em, const kiln_tc_tensor *old, const char *name,
                             const kiln_tensor *term, const kiln_expr *body, kiln_dtype t) {
  kiln_stmt *s = make_stmt(em, name, t, n_space_of(em));
  const kiln_expr *more = term != NULL ? load_here(em, s, term) : renamed(em, s, body);
  const kiln_expr *before = kiln_cast(em->cx, more->dtype, load_here(em, s, old->tensor));
  s->body = kiln_cast(em->cx, t, kiln_combine(em->cx, em->st->combiner, before, more));
  declare(em, written_by(em, s));
}

// Whether the definition declares the result's type.
static bool is_declared(const emitter *em) {
  int o = kiln_tc_find_out(em->env->def, em->st->out);
  return o >= 0 && em->env->def->outs[o].type.given;
}

// An accumulated tensor without an earlier value: a further input of the program, if the program is
// the definition's own.
static kiln_status accumulate_into_input(emitter *em, kiln_dtype t, bool named) {
  const kiln_tc_source *src = &em->env->file->source;
  const char *name = text_of(em, em->st->out);
  kiln_program *prog = em->env->caller->prog;
  if (!em->env->caller->owns_program || !named)
    return kiln_tc_fail(src, em->st->at, NULL,
                        "%s: reduction without initialization; use the assignment with '!'", name);
  const kiln_expr *shape[KILN_MAX_RANK];
  int n = n_space_of(em);
  for (int i = 0; i < n; i++) shape[em->places[i]] = em->ranges[i].extent;
  const char *input_name = kiln_arena_printf(&em->cx->perm, "%s_in", name);
  kiln_tensor *first = kiln_tensor_make(em->cx, prog, input_name, t, KILN_INPUT, n, shape);
  KILN_VEC_PUSH(&em->cx->perm, &prog->inputs, first->id);
  declare(em, first);
  kiln_tc_warn(src, em->st->at,
               "%s: reduction without initialization: it begins with the input %s; consider the "
               "assignment with '!'",
               name, kiln_symbol_text(em->cx, first->name));
  return KILN_OK;
}

// The stored type of the result, and the type of its accumulator.
static kiln_status types_of(emitter *em, const kiln_tc_value *v, const kiln_dtype *old,
                            kiln_dtype *out_stored, kiln_dtype *out_sum) {
  int o = kiln_tc_find_out(em->env->def, em->st->out);
  kiln_dtype from = v->e->dtype, t = from;
  if (old != NULL) t = *old;
  else if (o >= 0 && em->env->def->outs[o].type.given)
    t = kiln_tc_type_in(em->env, &em->env->def->outs[o].type);
  else if (kiln_dtype_is_half(from) || (v->weak && from == KILN_F64)) t = KILN_F32;
  bool sums = em->st->combiner == KILN_COMBINE_SUM || em->st->combiner == KILN_COMBINE_PROD;
  *out_stored = t;
  *out_sum = kiln_dtype_is_half(t) && sums ? KILN_F32 : t;
  const kiln_expr *converted;
  if (kiln_tc_convert(em->cx, v, *out_sum, &converted)) return KILN_OK;
  return kiln_tc_fail(&em->env->file->source, em->st->rhs->at, NULL,
                      "%s: attempting to assign type %s to narrower type %s without an explicit "
                      "cast",
                      text_of(em, em->st->out), kiln_dtype_text(from), kiln_dtype_text(t));
}

static void emit_plain(emitter *em, const char *name, const kiln_expr *body, kiln_dtype t) {
  const kiln_tensor *from = copied(em, body, t);
  if (from != NULL) {
    declare(em, from);
    return;
  }
  kiln_stmt *s = make_stmt(em, name, t, em->n_ranges);
  s->body = renamed(em, s, body);
  declare(em, written_by(em, s));
}

// Emits the reduction over all indices.
static const kiln_tensor *emit_sum(emitter *em, const char *name, const kiln_expr *body,
                                   kiln_dtype sum) {
  kiln_stmt *s = make_stmt(em, name, sum, em->n_ranges);
  s->body = renamed(em, s, body);
  s->combiner = em->st->combiner;
  return written_by(em, s);
}

static void emit_reduction(emitter *em, const kiln_tc_tensor *old, const char *name,
                           const kiln_expr *body, kiln_dtype t, kiln_dtype sum) {
  bool more = old != NULL || t != sum; // another statement follows
  const char *term_name = more ? kiln_arena_printf(&em->cx->perm, "%s_sum", name) : name;
  const kiln_tensor *term = emit_sum(em, term_name, body, sum);
  if (old != NULL) {
    combine_with_old(em, old, name, term, body, t);
    return;
  }
  if (t != sum) {
    kiln_stmt *rounded = make_stmt(em, name, t, n_space_of(em));
    rounded->body = kiln_cast(em->cx, t, load_here(em, rounded, term));
    term = written_by(em, rounded);
  }
  declare(em, term);
}

// --- pieces ---

static kiln_tc_whole *find_whole(const kiln_tc_env *env, kiln_symbol name) {
  for (int i = 0; i < env->wholes.n; i++)
    if (env->wholes.data[i]->name == name) return env->wholes.data[i];
  return NULL;
}

kiln_status kiln_tc_finish(kiln_tc_env *env, int stmt) {
  for (int i = 0; i < env->wholes.n;) {
    kiln_tc_whole *w = env->wholes.data[i];
    if (stmt >= 0 && !kiln_tc_reads(&env->def->stmts[stmt], w->name)) {
      i++;
      continue;
    }
    for (int k = i; k + 1 < env->wholes.n; k++) env->wholes.data[k] = env->wholes.data[k + 1];
    env->wholes.n--;
    KILN_TRY(kiln_tc_assemble(env, w));
  }
  return KILN_OK;
}

// A load from |t|, which has an element for each point of the left side.
static const kiln_expr *load_piece(emitter *em, const kiln_tensor *t) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    at[i] = kiln_sub(em->cx, kiln_var(em->cx, em->ranges[i].var), em->ranges[i].lo);
  return kiln_tensor_load(em->cx, t, at);
}

static const kiln_expr *load_old(emitter *em, const kiln_tc_tensor *old) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < old->rank; i++)
    at[old->storage[i]] = kiln_sub(em->cx, em->index[i], old->origins[i]);
  return kiln_tensor_load(em->cx, old->tensor, at);
}

static kiln_tc_whole *begin_whole(emitter *em, const kiln_tc_tensor *old, kiln_dtype t) {
  kiln_tc_whole *w = KILN_NEW(&em->cx->perm, kiln_tc_whole);
  w->name = em->st->out;
  w->type = t;
  w->weak = old == NULL || old->weak;
  w->rank = em->rank;
  w->has_base = old != NULL;
  if (old != NULL) w->base = *old;
  KILN_VEC_PUSH(&em->cx->perm, &em->env->wholes, w);
  return w;
}

// Records a piece; its statement is emitted when the tensor is read.
static kiln_status emit_piece(emitter *em, const kiln_tc_tensor *old, const char *name,
                              const kiln_expr *body, kiln_dtype t, kiln_dtype sum) {
  kiln_ctx *cx = em->cx;
  kiln_tc_whole *w = find_whole(em->env, em->st->out);
  bool updates = em->st->combiner != KILN_COMBINE_NONE && !em->st->fresh;
  if (em->n_ranges > n_space_of(em)) {
    for (int i = 0; i < em->n_ranges; i++) em->places[i] = i;
    const char *term = kiln_arena_printf(&cx->perm, "%s_sum", name);
    body = load_piece(em, emit_sum(em, term, body, sum));
  }
  if (updates) {
    const kiln_expr *before = kiln_cast(cx, body->dtype, load_old(em, old));
    body = kiln_combine(cx, em->st->combiner, before, body);
  }
  if (w == NULL) w = begin_whole(em, old, t);
  if (w->rank != em->rank)
    return kiln_tc_fail(&em->env->file->source, em->st->at, NULL,
                        "%s: expected %d dimensions but found %d", text_of(em, em->st->out),
                        w->rank, em->rank);
  kiln_tc_piece p = {.at = em->st->at,
                     .n_vars = n_space_of(em),
                     .vars = em->ranges,
                     .names = names_of_ranges(em),
                     .body = kiln_cast(cx, t, body)};
  for (int i = 0; i < em->rank; i++) p.index[i] = em->index[i];
  KILN_VEC_PUSH(&cx->perm, &w->pieces, p);
  w->text = name;
  w->stmt = em->st;
  w->weak = w->weak && em->weak;
  if (!em->weak) w->type = t;
  if (em->st->fresh && w->fill == NULL) w->fill = kiln_combiner_identity(cx, em->st->combiner, t);
  return KILN_OK;
}

// --- left sides ---

static bool is_named(const kiln_tc_stmt *st) {
  for (int i = 0; i < st->n_lhs; i++)
    if (st->lhs[i].e != NULL) return false;
  return true;
}

static kiln_status add_left_index(emitter *em, const kiln_expr *e) {
  if (em->rank == KILN_MAX_RANK)
    return KILN_FAIL(em->cx->diag, KILN_UNSUPPORTED, em->env->caller->place,
                     "%s: must have at most %d dimensions, got more", text_of(em, em->st->out),
                     KILN_MAX_RANK);
  em->index[em->rank++] = e;
  return KILN_OK;
}

// The written element as a function of the indices.
static kiln_status left_side(emitter *em) {
  for (int i = 0; i < em->st->n_lhs; i++) {
    const kiln_tc_dim *d = &em->st->lhs[i];
    if (d->e != NULL) {
      const kiln_expr *e;
      KILN_TRY(kiln_tc_evaluate_size(&em->ev, d->e, &e));
      KILN_TRY(add_left_index(em, e));
      continue;
    }
    const kiln_tc_axis *axis = find_axis(&em->ev, d->name);
    for (int k = 0; k < axis->rank; k++)
      KILN_TRY(add_left_index(em, kiln_var(em->cx, axis->vars[k])));
  }
  return KILN_OK;
}

// Bounds the left side by the output's declared dimensions, and for an update by the tensor's.
static void bound_left_side(emitter *em, const kiln_tc_tensor *old) {
  kiln_ctx *cx = em->cx;
  int o = kiln_tc_find_out(em->env->def, em->st->out);
  const kiln_tc_param *p = o >= 0 ? &em->env->def->outs[o] : NULL;
  for (int i = 0; i < em->rank; i++) {
    const kiln_expr *lo = kiln_int(cx, 0), *extent = NULL;
    bool single = p != NULL && p->n_dims == em->rank && em->st->n_lhs == em->rank;
    if (old != NULL) {
      lo = old->origins[i];
      extent = old->extents[i];
    } else if (single && !p->dims[i].pack) {
      const kiln_tc_size *size =
          p->dims[i].name != 0 ? kiln_tc_find_size(em->env, p->dims[i].name) : NULL;
      if (p->dims[i].name == 0) extent = kiln_int(cx, p->dims[i].value);
      else if (size != NULL && !size->pack) extent = size->extents[0];
    }
    if (extent == NULL) continue;
    const kiln_expr *hi = kiln_sub(cx, kiln_add(cx, lo, extent), kiln_int(cx, 1));
    const char *at = i < em->st->n_lhs ? em->st->lhs[i].at : em->st->at;
    kiln_tc_access a = {{em->index[i], lo, hi, false, 0}, KILN_TC_ON_LEFT, NULL, at, NULL};
    KILN_VEC_PUSH(&cx->perm, &em->ev.accesses, a);
  }
}

static bool equal(emitter *em, const kiln_expr *a, const kiln_expr *b) {
  return a == b || kiln_expr_is_zero(kiln_tc_simple(em->cx, kiln_sub(em->cx, a, b)));
}

static bool is_same_box(emitter *em, const kiln_tc_tensor *old) {
  bool same = old->rank == em->rank;
  for (int i = 0; i < em->rank && same; i++)
    same = equal(em, old->extents[i], em->ranges[i].extent) &&
           equal(em, old->origins[i], em->ranges[i].lo);
  return same;
}

// Whether the statement writes every element of |old|.
static bool covers(emitter *em, const kiln_tc_tensor *old) {
  kiln_ctx *cx = em->cx;
  if (is_same_box(em, old) || old->rank != em->rank) return true; // another rank means a new tensor
  for (int i = 0; i < em->rank; i++) {
    const kiln_tc_range *r = &em->ranges[i];
    const kiln_expr *end = kiln_add(cx, r->lo, r->extent);
    const kiln_expr *old_end = kiln_add(cx, old->origins[i], old->extents[i]);
    if (kiln_tc_at_least_zero(cx, kiln_sub(cx, old->origins[i], r->lo)) != KILN_TC_HOLDS ||
        kiln_tc_at_least_zero(cx, kiln_sub(cx, end, old_end)) != KILN_TC_HOLDS)
      return false;
  }
  return true;
}

// Places the axes of a spread pack in the output as its attribute says.
static void find_places(emitter *em) {
  const kiln_tc_def *d = em->env->def;
  em->places = KILN_NEW_ARRAY(&em->cx->perm, int, em->n_ranges);
  for (int i = 0; i < em->n_ranges; i++) em->places[i] = i;
  int o = kiln_tc_find_out(d, em->st->out), n = n_space_of(em);
  if (o >= 0 && d->outs[o].n_dims >= 0)
    kiln_tc_storage_of(em->env, d->outs[o].n_dims, d->outs[o].dims, n, em->places);
}

// --- data-dependent subscripts ---

// |e| over dims that have the indices' names and begin at 0.
static const kiln_expr *from_zero(emitter *em, const kiln_expr *e) {
  kiln_symbol *vars = KILN_NEW_ARRAY(&em->cx->perm, kiln_symbol, em->n_ranges);
  const kiln_expr **values = KILN_NEW_ARRAY(&em->cx->perm, const kiln_expr *, em->n_ranges);
  for (int i = 0; i < em->n_ranges; i++) {
    vars[i] = em->ranges[i].var;
    values[i] = kiln_add(em->cx, kiln_var(em->cx, vars[i]), em->ranges[i].lo);
  }
  return kiln_expr_substitute(em->cx, e, em->n_ranges, vars, values);
}

static kiln_status check_loose(emitter *em, const kiln_tc_loose *a) {
  kiln_ctx *cx = em->cx;
  const kiln_tc_caller *caller = em->env->caller;
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, em->n_ranges);
  for (int i = 0; i < em->n_ranges; i++)
    dims[i] = (kiln_dim){em->ranges[i].var, em->ranges[i].extent};
  const kiln_expr *guard = a->guard ? from_zero(em, a->guard) : NULL, *when = caller->when;
  if (guard) when = when ? kiln_binary(cx, KILN_EXPR_AND, when, guard) : guard;
  const char *place = caller->node_place;
  const kiln_index_use use = {
      .place = place ? place : kiln_tc_place(&em->env->file->source, a->at),
      .name = kiln_arena_printf(&cx->perm, "%.*s", span_of(a->access), a->access),
      .origin = caller->origin,
      .axis = a->axis,
      .index = from_zero(em, a->e),
      .least = a->lo,
      .end = kiln_tc_simple(cx, kiln_add(cx, a->lo, a->extent)),
      .when = when,
      .n_dims = em->n_ranges,
      .dims = dims};
  return kiln_check_index(cx, caller->prog, caller->checks, &use);
}

static kiln_status evaluate(emitter *em, const kiln_tc_tensor *old, kiln_tc_value *out) {
  KILN_TRY(make_axes(em));
  make_ranges(em);
  KILN_TRY(kiln_tc_evaluate(&em->ev, em->st->rhs, out));
  for (int i = 0; i < em->st->n_clauses; i++) {
    kiln_tc_value ignored;
    if (em->st->clauses[i].kind == KILN_TC_EXISTS)
      KILN_TRY(kiln_tc_evaluate(&em->ev, em->st->clauses[i].lo, &ignored));
  }
  KILN_TRY(left_side(em));
  if (old != NULL && old->rank != em->rank)
    return kiln_tc_fail(&em->env->file->source, em->st->at, NULL,
                        "%s: expected %d dimensions but found %d", text_of(em, em->st->out),
                        old->rank, em->rank);
  bound_left_side(em, old);
  KILN_TRY(solve(em));
  find_places(em);
  for (int i = 0; i < em->ev.loose.n; i++) KILN_TRY(check_loose(em, &em->ev.loose.data[i]));
  return KILN_OK;
}

static void emit_whole(emitter *em, const kiln_tc_tensor *old, const char *name,
                       const kiln_expr *body, kiln_dtype t, kiln_dtype sum) {
  bool reduces = em->n_ranges > n_space_of(em);
  if (reduces) emit_reduction(em, old, name, body, t, sum);
  else if (old != NULL) combine_with_old(em, old, name, NULL, body, t);
  else emit_plain(em, name, kiln_cast(em->cx, t, body), t);
}

// Whether the statement writes exactly the output's declared dimensions, if that is known.
static bool fills_declared(emitter *em) {
  for (int i = 0; i < em->ev.accesses.n; i++) {
    const kiln_tc_access *a = &em->ev.accesses.data[i];
    if (a->turn != KILN_TC_ON_LEFT) continue;
    const kiln_expr *e = a->bound.e;
    for (int k = 0; k < em->n_ranges; k++) {
      const kiln_tc_range *r = &em->ranges[k];
      if (e->kind != KILN_EXPR_VAR || e->u.sym != r->var) continue;
      int64_t n, extent;
      const kiln_expr *declared =
          kiln_add(em->cx, kiln_sub(em->cx, a->bound.hi, a->bound.lo), kiln_int(em->cx, 1));
      bool fixed = kiln_expr_is_int(kiln_tc_simple(em->cx, declared), &n) &&
                   kiln_expr_is_int(r->extent, &extent);
      if (fixed && n != extent) return false;
    }
  }
  return true;
}

static kiln_status emit(emitter *em, const char *name) {
  bool updates = em->st->combiner != KILN_COMBINE_NONE && !em->st->fresh;
  const kiln_tc_tensor *found = kiln_tc_find_tensor(em->env, em->st->out);
  const kiln_tc_whole *w = find_whole(em->env, em->st->out);
  kiln_tc_tensor old = {0}; // a copy, because the list may be reallocated
  if (found != NULL) old = *found;
  kiln_tc_value v;
  KILN_TRY(evaluate(em, found != NULL && updates ? &old : NULL, &v));
  kiln_dtype t, sum;
  const kiln_dtype *so_far = w != NULL && !w->weak ? &w->type : NULL;
  if (found != NULL && updates && !old.weak) so_far = &old.type;
  KILN_TRY(types_of(em, &v, so_far, &t, &sum));
  em->weak = v.weak && so_far == NULL && !is_declared(em);
  bool named = is_named(em->st);
  if (updates && found == NULL) {
    KILN_TRY(accumulate_into_input(em, t, named));
    found = kiln_tc_find_tensor(em->env, em->st->out);
    old = *found;
  }
  const kiln_expr *body;
  (void)kiln_tc_convert(em->cx, &v, sum, &body);
  if (named && updates && is_same_box(em, &old)) {
    emit_whole(em, &old, name, body, t, sum);
    return KILN_OK;
  }
  bool alone = named && !updates && w == NULL && fills_declared(em);
  if (alone && (found == NULL || covers(em, &old))) {
    emit_whole(em, NULL, name, body, t, sum);
    return KILN_OK;
  }
  if (found != NULL && !updates && !old.weak) {
    KILN_TRY(types_of(em, &v, &old.type, &t, &sum));
    (void)kiln_tc_convert(em->cx, &v, sum, &body);
  }
  return emit_piece(em, found != NULL ? &old : NULL, name, body, t, sum);
}

kiln_status kiln_tc_emit(kiln_tc_env *env, int stmt) {
  emitter em = {.env = env, .cx = env->cx, .st = &env->def->stmts[stmt]};
  em.ev.env = env;
  em.ev.scope = (kiln_tc_scope){env->file, env->def, stmt, em.st->n_clauses};
  KILN_TRY(kiln_tc_finish(env, stmt));
  if (env->caller->prog->stmts.n > MAX_STATEMENTS)
    return kiln_tc_fail(&env->file->source, em.st->at, NULL,
                        "%s: a program may have at most %d statements", text_of(&em, em.st->out),
                        MAX_STATEMENTS);
  if (kiln_tc_is_call(&em.ev.scope)) return kiln_tc_emit_call(env, stmt);
  return emit(&em, kiln_tc_name_of(env, stmt, em.st->out));
}

kiln_status kiln_tc_holds(kiln_tc_env *env, int stmt, bool *out) {
  kiln_tc_eval ev = {.env = env, .scope = {env->file, env->def, stmt, 0}};
  return kiln_tc_evaluate_condition(&ev, env->def->stmts[stmt].rhs, out);
}
