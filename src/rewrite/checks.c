// Bounds checks of indices: see checks.h.
#include "rewrite/checks.h"

#include "analysis/interpret.h"
#include "analysis/simplify.h"
#include "rewrite/dce.h"

typedef struct maker {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_index_use *u;
} maker;

static bool is_used(const kiln_index_use *u, kiln_symbol dim) {
  return kiln_expr_uses(u->index, dim) || (u->when && kiln_expr_uses(u->when, dim)) ||
         kiln_expr_uses(u->least, dim) || kiln_expr_uses(u->end, dim);
}

// Whether the check is proved for all data.
static bool is_proved(const maker *m) {
  const kiln_index_use *u = m->u;
  kiln_ctx *cx = m->cx;
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  for (int d = 0; d < u->n_dims; d++) {
    int64_t extent = INT32_MAX;
    kiln_expr_is_int(u->dims[d].extent, &extent);
    if (extent == 0) return true;
    kiln_ranges_push(&ranges, u->dims[d].name, 0, extent - 1);
  }
  return kiln_proves(cx, kiln_binary(cx, KILN_EXPR_GE, u->index, u->least), &ranges) &&
         kiln_proves(cx, kiln_binary(cx, KILN_EXPR_LT, u->index, u->end), &ranges);
}

// C(0) = max of |value(index)| over the used indices, or KILN_IN_RANGE, the least integer, if none
// is used.
static kiln_stmt *make_greatest(const maker *m, const char *name, const kiln_expr *value) {
  kiln_ctx *cx = m->cx;
  const kiln_index_use *u = m->u;
  const kiln_expr **extents = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, u->n_dims + 1);
  const kiln_expr **values = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, u->n_dims);
  kiln_symbol *names = KILN_NEW_ARRAY(&cx->scratch, kiln_symbol, u->n_dims);
  int n = 0;
  extents[0] = kiln_int(cx, 1);
  for (int d = 0; d < u->n_dims; d++) {
    if (!is_used(u, u->dims[d].name)) continue;
    names[n++] = u->dims[d].name;
    extents[n] = u->dims[d].extent;
  }
  kiln_stmt *s = kiln_stmt_make(cx, m->p, name, KILN_I64, 1, n, extents);
  for (int i = 0; i < n; i++) values[i] = kiln_stmt_var(cx, s, 1 + i);
  if (u->when) value = kiln_select(cx, u->when, value, kiln_int(cx, KILN_IN_RANGE));
  s->origin = u->origin;
  s->body = kiln_expr_substitute(cx, value, n, names, values);
  s->combiner = n > 0 ? KILN_COMBINE_MAX : KILN_COMBINE_NONE;
  return s;
}

// Gives an index that is out of range (the greatest), or KILN_IN_RANGE.
static kiln_stmt *make_stmt(const maker *m) {
  kiln_ctx *cx = m->cx;
  const kiln_index_use *u = m->u;
  const kiln_expr *holds = kiln_both(cx, kiln_binary(cx, KILN_EXPR_GE, u->index, u->least),
                                     kiln_binary(cx, KILN_EXPR_LT, u->index, u->end));
  return make_greatest(m, "index_check",
                       kiln_select(cx, holds, kiln_int(cx, KILN_IN_RANGE), u->index));
}

// The same in two steps, with less work for each index: index - least as an unsigned number exceeds
// the extent exactly if the index is out of range. Flipping the sign bit makes the signed maximum
// compare them as unsigned numbers.
static kiln_stmt *make_keys(const maker *m) {
  kiln_ctx *cx = m->cx;
  const kiln_expr *above = kiln_sub(cx, m->u->index, m->u->least);
  return make_greatest(m, "index_keys",
                       kiln_binary(cx, KILN_EXPR_BXOR, above, kiln_int(cx, INT64_MIN)));
}

static kiln_stmt *make_found(const maker *m, const kiln_stmt *keys) {
  kiln_ctx *cx = m->cx;
  const kiln_index_use *u = m->u;
  const kiln_expr *one = kiln_int(cx, 1), *sign = kiln_int(cx, INT64_MIN);
  kiln_stmt *s = kiln_stmt_make(cx, m->p, "index_check", KILN_I64, 1, 0, &one);
  const kiln_expr *at = kiln_stmt_var(cx, s, 0);
  const kiln_expr *key = kiln_tensor_load(cx, m->p->tensors.data[keys->out], &at);
  const kiln_expr *limit = kiln_binary(cx, KILN_EXPR_BXOR, kiln_sub(cx, u->end, u->least), sign);
  const kiln_expr *index = kiln_add(cx, kiln_binary(cx, KILN_EXPR_BXOR, key, sign), u->least);
  s->origin = u->origin;
  s->body = kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, key, limit), kiln_int(cx, KILN_IN_RANGE),
                        index);
  return s;
}

// Whether the bounds are constant and the indices many.
static bool has_keys(const maker *m, const kiln_stmt *s) {
  return kiln_expr_is_int(m->u->least, NULL) && kiln_expr_is_int(m->u->end, NULL) &&
         s->n_reduce > 0;
}

static kiln_index_check row_of(const maker *m) {
  const kiln_index_use *u = m->u;
  kiln_index_check row = {kiln_symbol_of(m->cx, u->place), kiln_symbol_of(m->cx, u->name), u->axis,
                          0, 0};
  if (!kiln_expr_is_int(u->least, &row.least) || !kiln_expr_is_int(u->end, &row.end))
    row.least = row.end = 0;
  return row;
}

static bool is_same(const kiln_stmt *a, const kiln_stmt *b) {
  bool same = a->body == b->body && a->n_reduce == b->n_reduce;
  for (int d = 0; same && d <= a->n_reduce; d++) same = a->dims[d].extent == b->dims[d].extent;
  return same;
}

static bool is_known(const maker *m, const kiln_checks *checks, const kiln_stmt *s) {
  const kiln_index_check own = row_of(m);
  for (int i = 0; i < checks->all.n; i++) {
    const kiln_tensor *t = m->p->tensors.data[checks->all.data[i].keys];
    const kiln_index_check *row = &checks->all.data[i].row;
    if (row->least == own.least && row->end == own.end && is_same(m->p->stmts.data[t->def], s))
      return true;
  }
  return false;
}

// Removes the newest statement.
static void undo(const maker *m) {
  m->p->stmts.n--;
  m->p->tensors.n--;
}

typedef struct constancy {
  const kiln_program *p;
  bool holds;
} constancy;

static void ask_constant(const kiln_expr *e, void *argument) {
  constancy *c = argument;
  const kiln_tensor *t = c->p->tensors.data[e->u.tensor];
  c->holds &= t->role == KILN_CONST && t->data;
}

static bool is_constant(const maker *m, const kiln_stmt *s) {
  constancy c = {m->p, true};
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    c.holds &= kiln_expr_is_int(s->dims[d].extent, NULL);
  c.holds &= s->body->vars->n <= s->n_reduce && m->u->end->vars->n == 0;
  kiln_expr_visit_loads(m->cx, s->body, ask_constant, &c);
  return c.holds;
}

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

static kiln_status compute(const maker *m, const kiln_stmt *s, int64_t *out) {
  kiln_interpreter *in = NULL;
  const void *data = NULL;
  KILN_TRY(kiln_interpreter_create(m->cx, m->p, &in));
  kiln_cleanup_push(m->cx, destroy, in);
  const kiln_status st = kiln_interpreter_compute(in, s->out, &data);
  if (st == KILN_OK) *out = kiln_element_get_int(KILN_I64, data, 0);
  kiln_cleanup_pop(m->cx);
  kiln_interpreter_destroy(in);
  return st;
}

static kiln_status check_now(const maker *m, const kiln_stmt *s) {
  const kiln_index_check row = row_of(m);
  int64_t found = KILN_IN_RANGE;
  KILN_TRY(compute(m, s, &found));
  undo(m);
  if (found == KILN_IN_RANGE) return KILN_OK;
  return KILN_FAIL(m->cx->diag, KILN_BAD_INPUT, m->u->place,
                   "%s: must lie in [%" PRId64 ", %" PRId64 ") along axis %d, got %" PRId64,
                   m->u->name, row.least, row.end, row.axis, found);
}

kiln_status kiln_check_index(kiln_ctx *cx, kiln_program *p, kiln_checks *io,
                             const kiln_index_use *u) {
  const maker m = {cx, p, u};
  if (!io || is_proved(&m)) return KILN_OK;
  kiln_stmt *s = make_stmt(&m);
  if (is_constant(&m, s)) return check_now(&m, s);
  if (has_keys(&m, s)) {
    undo(&m);
    s = make_keys(&m);
  }
  const kiln_stmt *keys = s;
  if (is_known(&m, io, keys)) return undo(&m), KILN_OK;
  if (has_keys(&m, s)) s = make_found(&m, keys);
  KILN_VEC_PUSH(&cx->perm, &io->all, (kiln_pending_check){row_of(&m), keys->out, s->out});
  return KILN_OK;
}

bool kiln_checks_have(const kiln_checks *checks, int tensor) {
  for (int i = 0; checks && i < checks->all.n; i++)
    if (checks->all.data[i].tensor >= tensor) return true;
  return false;
}

// --- results ---

// C(i) of [first, end): a binary decision tree of comparisons.
static const kiln_expr *choose(kiln_ctx *cx, const kiln_program *p, const kiln_checks *checks,
                               const kiln_expr *i, int first, int end) {
  if (end - first > 1) {
    const int middle = (first + end) / 2;
    const kiln_expr *below = kiln_binary(cx, KILN_EXPR_LT, i, kiln_int(cx, middle));
    return kiln_select(cx, below, choose(cx, p, checks, i, first, middle),
                       choose(cx, p, checks, i, middle, end));
  }
  const kiln_expr *at = kiln_sub(cx, i, kiln_int(cx, first));
  return kiln_tensor_load(cx, p->tensors.data[checks->all.data[first].tensor], &at);
}

void kiln_checks_finish(kiln_ctx *cx, kiln_program *p, const kiln_checks *checks) {
  const int n = checks->all.n;
  if (n == 0) return;
  int result = checks->all.data[0].tensor;
  if (n > 1) {
    const kiln_expr *extent = kiln_int(cx, n);
    kiln_stmt *s = kiln_stmt_make(cx, p, "index_checks", KILN_I64, 1, 0, &extent);
    s->body = choose(cx, p, checks, kiln_stmt_var(cx, s, 0), 0, n);
    result = s->out;
  }
  p->tensors.data[result]->role = KILN_OUTPUT;
  KILN_VEC_PUSH(&cx->perm, &p->outputs, result);
  for (int i = 0; i < n; i++) KILN_VEC_PUSH(&cx->perm, &p->checks, checks->all.data[i].row);
}

void kiln_checks_drop(kiln_ctx *cx, kiln_program *p) {
  if (p->checks.n == 0) return;
  const int result = p->outputs.data[--p->outputs.n];
  p->tensors.data[result]->role = KILN_TEMP;
  p->checks.n = 0;
  kiln_program_dce(cx, p);
}
