// Updates in place: the elements that a statement does not take over from the state, and bounds of
// their indices.
#include "dynamic/update_in_place.h"

#include "analysis/simplify.h"
#include "analysis/terms.h"
#include "dynamic/ranges.h"

enum { MOST_BOUNDS = 8, MOST_ENTRIES = 1 << 20 };

// A state's statement while it is changed; |where| and |value| are over its dims.
typedef struct update {
  kiln_ctx *cx;
  const kiln_program *p;
  kiln_stmt *s;
  const kiln_expr *same; // the state's element
  kiln_ranges ranges;
  int axis; // that is looked at
} update;

static bool is_index(kiln_dtype t) { return t == KILN_I32 || t == KILN_I64; }

// --- what changes ---

// The value of those elements that change, and where they are; |where| NULL: everywhere, |value|
// NULL: nowhere.
typedef struct change {
  const kiln_expr *where, *value;
} change;

static const kiln_expr *truth(kiln_ctx *cx) { return kiln_int_of(cx, KILN_BOOL, 1); }

// The statement of a plain map that |load| reads an element of; NULL: it is none.
static const kiln_stmt *map_of(const update *u, const kiln_expr *load) {
  const int def = u->p->tensors.data[load->u.tensor]->def;
  const kiln_stmt *s = def >= 0 ? u->p->stmts.data[def] : NULL;
  bool is = s && !s->n_reduce && !s->guard && s->combiner == KILN_COMBINE_NONE &&
            kiln_stmt_is_plain(u->cx, s) && s->body->n_tree <= KILN_LONG_TREE;
  return is ? s : NULL;
}

static const kiln_expr *body_at(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *load) {
  kiln_symbol names[KILN_MAX_RANK];
  for (int k = 0; k < load->n_args; k++) names[k] = s->dims[k].name;
  return kiln_expr_substitute(cx, s->body, load->n_args, names, load->args);
}

// Whether |e| is an element of the state, or of tensors that only move it.
static bool is_same(const update *u, const kiln_expr *e) {
  while (e != u->same && e->kind == KILN_EXPR_LOAD) {
    const kiln_stmt *s = map_of(u, e);
    if (!s || s->body->kind != KILN_EXPR_LOAD) return false;
    e = kiln_simplify(u->cx, body_at(u->cx, s, e), &u->ranges);
  }
  return e == u->same;
}

static change change_of(update *u, const kiln_expr *e) {
  kiln_ctx *cx = u->cx;
  if (is_same(u, e)) return (change){0};
  if (e->kind != KILN_EXPR_SELECT) return (change){NULL, e};
  const kiln_expr *c = e->args[0];
  const change a = change_of(u, e->args[1]), b = change_of(u, e->args[2]);
  if (!a.value && !b.value) return a;
  if (!a.value) return (change){kiln_both(cx, kiln_unary(cx, KILN_EXPR_NOT, c), b.where), b.value};
  if (!b.value) return (change){kiln_both(cx, c, a.where), a.value};
  const kiln_expr *where = NULL;
  if (a.where || b.where)
    where = kiln_select(cx, c, a.where ? a.where : truth(cx), b.where ? b.where : truth(cx));
  return (change){where, kiln_select(cx, c, a.value, b.value)};
}

// --- conditions that are computed elsewhere ---

// The entries of a constant along its only variable index, if they are affine in it.
static const kiln_expr *entry_of(kiln_ctx *cx, const kiln_tensor *t, const kiln_expr *load) {
  int64_t first = 0, stride = 0, n = 0, step = 1;
  const kiln_expr *at = NULL;
  for (int k = t->rank - 1; k >= 0; k--) {
    int64_t extent = 0, place = 0;
    if (!kiln_expr_is_int(t->shape[k], &extent)) return NULL;
    if (kiln_expr_is_int(load->args[k], &place)) first += place * step;
    else if (at) return NULL;
    else at = load->args[k], stride = step, n = extent;
    step *= extent;
  }
  if (!at || !t->data || n < 2 || n > MOST_ENTRIES || !is_index(t->dtype)) return NULL;
  const int64_t begin = kiln_element_get_int(t->dtype, t->data, first);
  const int64_t rise = kiln_element_get_int(t->dtype, t->data, first + stride) - begin;
  for (int64_t i = 0; i < n; i++)
    if (kiln_element_get_int(t->dtype, t->data, first + i * stride) != begin + i * rise)
      return NULL;
  const kiln_expr *value = kiln_add(cx, kiln_int(cx, begin), kiln_mul(cx, at, kiln_int(cx, rise)));
  return kiln_cast(cx, t->dtype, value);
}

// Conditions and integers that plain statements compute, by their bodies.
static const kiln_expr *look_through(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const update *u = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_tensor *t = u->p->tensors.data[e->u.tensor];
  const kiln_expr *value = NULL;
  if (t->role == KILN_CONST) value = entry_of(cx, t, e);
  else if (t->dtype == KILN_BOOL || is_index(t->dtype)) {
    const kiln_stmt *s = map_of(u, e);
    if (s) value = body_at(cx, s, e);
  }
  if (!value || value->n_tree > KILN_LONG_TREE) return NULL;
  return kiln_expr_replace(cx, value, look_through, argument);
}

// --- bounds ---

typedef struct bounds {
  int n_lower, n_upper;
  const kiln_expr *lower[MOST_BOUNDS], *upper[MOST_BOUNDS]; // lower <= index < upper
} bounds;

// |e| as an i64 that has its value: casts to a narrower type are left out where they change none.
static const kiln_expr *widened(update *u, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_CAST && e->args[0]->dtype == KILN_I64 && e->dtype == KILN_I32) {
    const kiln_interval r = kiln_expr_interval(u->cx, e->args[0], &u->ranges);
    if (r.lo >= INT32_MIN && r.hi <= INT32_MAX) return e->args[0];
  }
  return kiln_cast(u->cx, KILN_I64, e);
}

static void add_bound(update *u, const kiln_expr **list, int *n, const kiln_expr *e, int64_t more) {
  if (*n == MOST_BOUNDS) return;
  const kiln_expr *sum = kiln_add(u->cx, e, kiln_int(u->cx, more));
  list[(*n)++] = kiln_simplify(u->cx, sum, &u->ranges);
}

// Adds what |kind|, a comparison of |a| and |b|, says of the axis's index.
static void add_comparison(update *u, kiln_expr_kind kind, const kiln_expr *a, const kiln_expr *b,
                           bounds *out) {
  kiln_ctx *cx = u->cx;
  const kiln_symbol var = u->s->dims[u->axis].name;
  if (!is_index(a->dtype)) return;
  const kiln_expr *difference =
      kiln_simplify(cx, kiln_sub(cx, widened(u, a), widened(u, b)), &u->ranges);
  const kiln_terms terms = kiln_terms_of(cx, difference);
  int64_t sign = 0;
  for (int i = 0; i < terms.n; i++) {
    const kiln_expr *atom = terms.data[i].atom;
    if (!kiln_expr_uses(atom, var)) continue;
    if (atom->kind != KILN_EXPR_VAR || sign) return;
    sign = terms.data[i].coef;
  }
  if (sign != 1 && sign != -1) return;
  // sign * index + rest: it is compared with 0, or the index with -sign * rest
  const kiln_expr *zero = kiln_int(cx, 0);
  const kiln_expr *rest = kiln_expr_substitute(cx, difference, 1, &var, &zero);
  const kiln_expr *end = sign > 0 ? kiln_sub(cx, zero, rest) : rest;
  const bool is_less = kind == KILN_EXPR_LT || kind == KILN_EXPR_LE,
             is_strict = kind == KILN_EXPR_LT || kind == KILN_EXPR_GT;
  if (kind == KILN_EXPR_EQ || (is_less && sign > 0) || (!is_less && sign < 0))
    add_bound(u, out->upper, &out->n_upper, end, is_strict ? 0 : 1);
  if (kind == KILN_EXPR_EQ || (is_less && sign < 0) || (!is_less && sign > 0))
    add_bound(u, out->lower, &out->n_lower, end, is_strict ? 1 : 0);
}

static kiln_expr_kind opposite(kiln_expr_kind kind) {
  static const kiln_expr_kind pairs[][2] = {
      {KILN_EXPR_LT, KILN_EXPR_GE}, {KILN_EXPR_LE, KILN_EXPR_GT}, {KILN_EXPR_EQ, KILN_EXPR_NE}};
  for (size_t i = 0; i < KILN_LEN(pairs); i++)
    for (int k = 0; k < 2; k++)
      if (kind == pairs[i][k]) return pairs[i][1 - k];
  return KILN_N_EXPRS;
}

// Adds the bounds that |e| implies, or that its negation does.
static void add_bounds(update *u, const kiln_expr *e, bool holds, bounds *out) {
  if (e->kind == KILN_EXPR_NOT) add_bounds(u, e->args[0], !holds, out);
  else if (e->kind == (holds ? KILN_EXPR_AND : KILN_EXPR_OR)) {
    add_bounds(u, e->args[0], holds, out);
    add_bounds(u, e->args[1], holds, out);
  } else if (kiln_expr_kind_is_cmp(e->kind)) {
    const kiln_expr_kind kind = holds ? e->kind : opposite(e->kind);
    if (kind != KILN_EXPR_NE && kind != KILN_N_EXPRS)
      add_comparison(u, kind, e->args[0], e->args[1], out);
  }
}

// The narrowest band that |where| allows along the axis; false: none is known to be narrow.
static bool find_band(update *u, const kiln_expr *where, const kiln_expr **out_begin,
                      int64_t *out_extent) {
  kiln_ctx *cx = u->cx;
  const int64_t extent = kiln_dim_extent(&u->s->dims[u->axis]);
  bounds b = {0};
  *out_extent = extent / 2 + 1;
  add_bound(u, b.lower, &b.n_lower, kiln_int(cx, 0), 0);
  add_bound(u, b.upper, &b.n_upper, kiln_int(cx, extent), 0);
  add_bounds(u, where, true, &b);
  const int64_t least = *out_extent;
  for (int i = 0; i < b.n_lower; i++)
    for (int k = 0; k < b.n_upper; k++) {
      const kiln_expr *n = kiln_simplify(cx, kiln_sub(cx, b.upper[k], b.lower[i]), &u->ranges);
      const int64_t most = kiln_expr_interval(cx, n, &u->ranges).hi;
      if (most < 0 || most >= *out_extent) continue;
      *out_extent = most;
      *out_begin = b.lower[i];
    }
  return *out_extent < least;
}

// --- the change ---

// Runs over the band along |u->axis| in place of all of it; false: there is none.
static bool narrow(update *u, change *io, const kiln_expr **index) {
  kiln_ctx *cx = u->cx;
  const kiln_dim old = u->s->dims[u->axis];
  const kiln_expr *begin = NULL, *where = kiln_expr_replace(cx, io->where, look_through, u);
  int64_t extent = 0;
  where = kiln_simplify(cx, where, &u->ranges);
  if (where->n_tree > KILN_LONG_TREE || !find_band(u, where, &begin, &extent)) return false;
  const kiln_expr *at = kiln_add(cx, begin, kiln_var(cx, old.name));
  io->where = kiln_expr_substitute(cx, where, 1, &old.name, &at);
  io->value = kiln_expr_substitute(cx, io->value, 1, &old.name, &at);
  for (int k = 0; k < u->p->tensors.data[u->s->out]->rank; k++)
    index[k] = kiln_expr_substitute(cx, index[k], 1, &old.name, &at);
  const kiln_expr *is_inside =
      kiln_both(cx, kiln_binary(cx, KILN_EXPR_GE, at, kiln_int(cx, 0)),
                kiln_binary(cx, KILN_EXPR_LT, at, kiln_int(cx, kiln_dim_extent(&old))));
  io->where = kiln_select(cx, is_inside, io->where, kiln_int_of(cx, KILN_BOOL, 0));
  u->s->dims[u->axis].extent = kiln_int(cx, extent);
  u->ranges = kiln_stmt_ranges(&cx->perm, u->s);
  return true;
}

static bool may_change(kiln_ctx *cx, const kiln_program *p, const kiln_tensor *in,
                       const kiln_tensor *out) {
  if (out->def < 0 || in->role != KILN_INPUT || in->rank != out->rank || in->rank == 0)
    return false;
  const kiln_stmt *s = p->stmts.data[out->def];
  bool may = !s->n_reduce && !s->guard && kiln_stmt_is_plain(cx, s) &&
             s->combiner == KILN_COMBINE_NONE && s->body->n_tree <= KILN_LONG_TREE;
  for (int k = 0; k < in->rank && may; k++)
    may = in->shape[k] == out->shape[k] && kiln_expr_is_int(out->shape[k], NULL);
  return may;
}

static void update_in_place(kiln_ctx *cx, kiln_program *p, const kiln_state_ports *ports) {
  const kiln_tensor *in = p->tensors.data[p->inputs.data[ports->input]],
                    *out = p->tensors.data[p->outputs.data[ports->output]];
  const kiln_expr *index[KILN_MAX_RANK], *elements[KILN_MAX_RANK];
  if (!may_change(cx, p, in, out)) return;
  kiln_stmt *old = p->stmts.data[out->def], s = *old;
  s.dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, s.n_space);
  for (int k = 0; k < out->rank; k++) {
    s.dims[k] = old->dims[k];
    index[k] = kiln_stmt_var(cx, old, k);
    elements[k] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", k));
  }
  update u = {.cx = cx, .p = p, .s = &s, .ranges = kiln_stmt_ranges(&cx->perm, old)};
  u.same = kiln_simplify(cx, kiln_tensor_load(cx, in, index), &u.ranges);
  change c = change_of(&u, kiln_simplify(cx, s.body, &u.ranges));
  if (!c.value || !c.where || kiln_expr_loads(cx, c.value, in->id) ||
      kiln_expr_loads(cx, c.where, in->id))
    return;
  bool is_narrow = false;
  for (u.axis = 0; u.axis < out->rank; u.axis++) is_narrow |= narrow(&u, &c, index);
  if (!is_narrow) return;
  s.body = kiln_simplify(cx, c.value, &u.ranges);
  s.guard = kiln_simplify(cx, c.where, &u.ranges);
  if (kiln_expr_int_or(s.guard, 0) != 0) s.guard = NULL;
  s.index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, out->rank);
  for (int k = 0; k < out->rank; k++) s.index[k] = kiln_simplify(cx, index[k], &u.ranges);
  s.init = kiln_tensor_load(cx, in, elements);
  *old = s;
}

void kiln_states_update_in_place(kiln_ctx *cx, kiln_model *m) {
  const int n = m->ranges ? m->ranges->n_buckets : m->prog ? 1 : 0;
  if (m->states.n == 0 || m->parted) return;
  for (int i = 0; i < n; i++) {
    const kiln_program *from = m->ranges ? m->ranges->buckets[i].prog : m->prog;
    kiln_program *p = kiln_program_copy(cx, from);
    for (int k = 0; k < m->states.n; k++)
      if (!m->states.data[k].grows) update_in_place(cx, p, &m->states.data[k]);
    if (m->ranges) m->ranges->buckets[i].prog = p;
    else m->prog = p;
  }
}
