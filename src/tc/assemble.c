// Tensors that several statements write: Y(2*i) = .., Y(2*i + 1) = .., O(0) = .. become one
// statement, which selects for each element the piece that writes it. For this, left-hand sides are
// inverted; they must be affine and injective, and the pieces must cover all elements.
#include "analysis/simplify.h"
#include "support/integer.h"
#include "tc/env.h"
#include "tc/infer.h"
#include "tc/lexer.h"

enum { MAX_MARKED = 1 << 20 };

typedef struct assembler {
  kiln_tc_env *env;
  kiln_ctx *cx;
  const kiln_tc_whole *w;
  const kiln_expr *lo[KILN_MAX_RANK], *extent[KILN_MAX_RANK]; // bounds of the whole tensor
  kiln_stmt *stmt;
} assembler;

static const char *name_of(const assembler *a) { return kiln_symbol_text(a->cx, a->w->name); }

// The coefficients of the subscript at |axis| of the left-hand side of |p|.
static kiln_status affine_of(const assembler *a, const kiln_tc_piece *p, int axis, int64_t *coef,
                             const kiln_expr **out_rest) {
  if (kiln_tc_affine(a->cx, p->n_vars, p->vars, p->index[axis], coef, out_rest)) return KILN_OK;
  return kiln_tc_fail(&a->env->file->source, p->at, NULL,
                      "%s: the left side must be affine in the indices, as in "
                      "2*i + j + 1",
                      name_of(a));
}

// --- bounds of the whole tensor ---

static const kiln_expr *outer_one(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b, bool most) {
  int64_t d;
  if (a == NULL) return b;
  if (kiln_expr_is_int(kiln_tc_simple(cx, kiln_sub(cx, a, b)), &d)) return (d >= 0) == most ? a : b;
  return kiln_tc_simple(cx, kiln_binary(cx, most ? KILN_EXPR_MAX : KILN_EXPR_MIN, a, b));
}

static kiln_status find_box(assembler *a) {
  kiln_ctx *cx = a->cx;
  for (int k = 0; k < a->w->rank; k++) {
    const kiln_expr *lo = NULL, *hi = NULL, *rest; // inclusive
    if (a->w->has_base) {
      lo = a->w->base.origins[k];
      hi = kiln_tc_simple(cx,
                          kiln_sub(cx, kiln_add(cx, lo, a->w->base.extents[k]), kiln_int(cx, 1)));
    }
    for (int i = 0; i < a->w->pieces.n; i++) {
      const kiln_tc_piece *p = &a->w->pieces.data[i];
      int64_t *coef = KILN_NEW_ARRAY(&cx->perm, int64_t, p->n_vars);
      KILN_TRY(affine_of(a, p, k, coef, &rest));
      lo = outer_one(cx, lo, kiln_tc_extreme(cx, p->n_vars, p->vars, coef, rest, false), false);
      hi = outer_one(cx, hi, kiln_tc_extreme(cx, p->n_vars, p->vars, coef, rest, true), true);
    }
    a->lo[k] = lo;
    a->extent[k] = kiln_tc_simple(cx, kiln_add(cx, kiln_sub(cx, hi, lo), kiln_int(cx, 1)));
  }
  return KILN_OK;
}

// An output with declared dimensions has these, even if only a part is written.
static void widen_to_declared(assembler *a) {
  int o = kiln_tc_find_out(a->env->def, a->w->name);
  const kiln_tc_param *p = o >= 0 ? &a->env->def->outs[o] : NULL;
  if (p == NULL || p->n_dims != a->w->rank) return;
  for (int k = 0; k < p->n_dims; k++) {
    const kiln_tc_size *s =
        p->dims[k].name != 0 ? kiln_tc_find_size(a->env, p->dims[k].name) : NULL;
    if (p->dims[k].pack || (p->dims[k].name != 0 && s == NULL)) continue;
    a->lo[k] = kiln_int(a->cx, 0);
    a->extent[k] = s != NULL ? s->extents[0] : kiln_int(a->cx, p->dims[k].value);
  }
}

// --- coverage ---

typedef struct marks {
  int rank;
  int64_t lo[KILN_MAX_RANK], extent[KILN_MAX_RANK], total;
  uint8_t *marked; // [total]
} marks;

// False if sizes are symbolic or there are too many elements to enumerate.
static bool begin_marks(const assembler *a, marks *m) {
  m->rank = a->w->rank;
  m->total = 1;
  for (int k = 0; k < m->rank; k++) {
    if (!kiln_expr_is_int(a->lo[k], &m->lo[k]) || !kiln_expr_is_int(a->extent[k], &m->extent[k]))
      return false;
    if (__builtin_mul_overflow(m->total, m->extent[k], &m->total) || m->total > MAX_MARKED)
      return false;
  }
  if (m->total < 0) return false;
  m->marked = KILN_NEW_ARRAY(&a->cx->scratch, uint8_t, m->total);
  return true;
}

static bool mark(marks *m, const int64_t *at) {
  int64_t linear = 0;
  for (int k = 0; k < m->rank; k++) {
    if (at[k] < m->lo[k] || at[k] >= m->lo[k] + m->extent[k]) return false;
    linear = linear * m->extent[k] + at[k] - m->lo[k];
  }
  m->marked[linear] = 1;
  return true;
}

// Next point of a box of |n| ranges; false after the last point.
static bool next_point(int n, const int64_t *lo, const int64_t *extent, int64_t *at) {
  for (int i = n - 1; i >= 0; i--) {
    if (++at[i] < lo[i] + extent[i]) return true;
    at[i] = lo[i];
  }
  return false;
}

// False if its ranges are symbolic.
static bool mark_piece(const assembler *a, marks *m, const kiln_tc_piece *p) {
  int64_t lo[64], extent[64], at[64], coef[KILN_MAX_RANK][64], rest[KILN_MAX_RANK];
  if (p->n_vars > 64) return false;
  for (int i = 0; i < p->n_vars; i++) {
    if (!kiln_expr_is_int(p->vars[i].lo, &lo[i]) ||
        !kiln_expr_is_int(p->vars[i].extent, &extent[i]))
      return false;
    if (extent[i] <= 0) return true;
    at[i] = lo[i];
  }
  for (int k = 0; k < m->rank; k++) {
    const kiln_expr *e;
    if (!kiln_tc_affine(a->cx, p->n_vars, p->vars, p->index[k], coef[k], &e) ||
        !kiln_expr_is_int(e, &rest[k]))
      return false;
  }
  do {
    int64_t element[KILN_MAX_RANK];
    for (int k = 0; k < m->rank; k++) {
      element[k] = rest[k];
      for (int i = 0; i < p->n_vars; i++) element[k] += coef[k][i] * at[i];
    }
    (void)mark(m, element);
  } while (next_point(p->n_vars, lo, extent, at));
  return true;
}

static bool mark_base(const assembler *a, marks *m) {
  int64_t lo[KILN_MAX_RANK], extent[KILN_MAX_RANK], at[KILN_MAX_RANK];
  for (int k = 0; k < m->rank; k++) {
    if (!kiln_expr_is_int(a->w->base.origins[k], &lo[k]) ||
        !kiln_expr_is_int(a->w->base.extents[k], &extent[k]))
      return false;
    if (extent[k] <= 0) return true;
    at[k] = lo[k];
  }
  do (void)mark(m, at);
  while (next_point(m->rank, lo, extent, at));
  return true;
}

// The indices that a piece writes along one axis: a subset of begin + k * step, up to |end|.
typedef struct spread {
  int64_t begin, end, step;
} spread;

// False if its ranges are symbolic.
static bool spread_of(const assembler *a, const kiln_tc_piece *p, int axis, spread *out) {
  int64_t *coef = KILN_NEW_ARRAY(&a->cx->scratch, int64_t, p->n_vars);
  const kiln_expr *rest;
  if (!kiln_tc_affine(a->cx, p->n_vars, p->vars, p->index[axis], coef, &rest)) return false;
  const kiln_expr *lo = kiln_tc_extreme(a->cx, p->n_vars, p->vars, coef, rest, false);
  const kiln_expr *hi = kiln_tc_extreme(a->cx, p->n_vars, p->vars, coef, rest, true);
  out->step = 0;
  for (int i = 0; i < p->n_vars; i++) out->step = kiln_gcd(out->step, coef[i]);
  return kiln_expr_is_int(lo, &out->begin) && kiln_expr_is_int(hi, &out->end);
}

static bool are_apart(const assembler *a, const kiln_tc_piece *p, const kiln_tc_piece *q) {
  for (int k = 0; k < a->w->rank; k++) {
    spread x, y;
    if (!spread_of(a, p, k, &x) || !spread_of(a, q, k, &y)) return false;
    int64_t g = kiln_gcd(x.step, y.step);
    if (x.end < y.begin || y.end < x.begin) return true;
    if (g > 1 && (x.begin - y.begin) % g != 0) return true;
  }
  return false;
}

// Whether the injective pieces are disjoint and together have as many elements as the whole.
static bool is_partition(const assembler *a) {
  int64_t total = 1, sum = 0, extent;
  for (int k = 0; k < a->w->rank; k++)
    if (!kiln_expr_is_int(a->extent[k], &extent) || __builtin_mul_overflow(total, extent, &total))
      return false;
  for (int i = 0; i < a->w->pieces.n; i++) {
    const kiln_tc_piece *p = &a->w->pieces.data[i];
    int64_t n = 1;
    for (int v = 0; v < p->n_vars; v++)
      if (!kiln_expr_is_int(p->vars[v].extent, &extent) || extent < 0 ||
          __builtin_mul_overflow(n, extent, &n))
        return false;
    if (__builtin_add_overflow(sum, n, &sum)) return false;
    for (int j = 0; j < i; j++)
      if (!are_apart(a, p, &a->w->pieces.data[j])) return false;
  }
  return !a->w->has_base && sum == total;
}

static kiln_status unwritten(const assembler *a, const marks *m, int64_t linear) {
  kiln_text t;
  kiln_text_init(&t, &a->cx->perm);
  int64_t at[KILN_MAX_RANK];
  for (int k = m->rank - 1; k >= 0; k--) {
    at[k] = m->lo[k] + linear % m->extent[k];
    linear /= m->extent[k];
  }
  for (int k = 0; k < m->rank; k++) kiln_text_printf(&t, "%s%" PRId64, k > 0 ? ", " : "", at[k]);
  return kiln_tc_fail(&a->env->file->source, a->w->stmt->at, NULL,
                      "%s: every element must be written, got none that writes %s(%s); give all a "
                      "value first, as in %s(i) = 0 where i in 0:N",
                      name_of(a), name_of(a), t.data, name_of(a));
}

static bool base_is_whole(const assembler *a) {
  bool whole = a->w->has_base;
  for (int k = 0; k < a->w->rank && whole; k++)
    whole = a->lo[k] == a->w->base.origins[k] &&
            kiln_expr_is_zero(
                kiln_tc_simple(a->cx, kiln_sub(a->cx, a->extent[k], a->w->base.extents[k])));
  return whole;
}

// Checked by enumeration if sizes are numbers; otherwise deferred until sizes are bound.
static kiln_status check_written(const assembler *a) {
  if (a->w->fill != NULL || base_is_whole(a) || is_partition(a)) return KILN_OK;
  marks m;
  bool fixed = true;
  for (int k = 0; k < a->w->rank; k++)
    fixed = fixed && kiln_expr_is_int(a->extent[k], NULL) && kiln_expr_is_int(a->lo[k], NULL);
  bool known = begin_marks(a, &m) && (!a->w->has_base || mark_base(a, &m));
  for (int i = 0; i < a->w->pieces.n && known; i++)
    known = mark_piece(a, &m, &a->w->pieces.data[i]);
  for (int64_t i = 0; known && i < m.total; i++)
    if (!m.marked[i]) return unwritten(a, &m, i);
  if (known || !fixed) return KILN_OK;
  return kiln_tc_fail(&a->env->file->source, a->w->stmt->at, NULL,
                      "%s: is too large to see that every element is written; give all a value "
                      "first, as in %s(i) = 0 where i in 0:N",
                      name_of(a), name_of(a));
}

// --- selecting the piece of an element ---

typedef struct inverse {
  const kiln_tc_piece *p;
  const kiln_expr **values; // [n_vars] inverse of the left-hand side: variables as functions of the
                            // element; NULL: unknown
  const kiln_expr *when;    // condition under which the piece has the element; NULL: always
} inverse;

static void demand(const assembler *a, inverse *v, const kiln_expr *condition) {
  v->when = v->when == NULL ? condition : kiln_binary(a->cx, KILN_EXPR_AND, v->when, condition);
}

static void demand_range(const assembler *a, inverse *v, const kiln_expr *x,
                         const kiln_tc_range *r) {
  kiln_ctx *cx = a->cx;
  demand(a, v, kiln_binary(cx, KILN_EXPR_GE, x, r->lo));
  demand(a, v, kiln_binary(cx, KILN_EXPR_LT, x, kiln_add(cx, r->lo, r->extent)));
}

// Element index |k| minus all known terms of the subscript at axis |k|.
static const kiln_expr *remainder_of(const assembler *a, const inverse *v, int k,
                                     const int64_t *coef, const kiln_expr *rest) {
  kiln_ctx *cx = a->cx;
  const kiln_expr *e = kiln_add(cx, kiln_stmt_var(cx, a->stmt, k), a->lo[k]);
  e = kiln_sub(cx, e, rest);
  for (int i = 0; i < v->p->n_vars; i++)
    if (coef[i] != 0 && v->values[i] != NULL)
      e = kiln_sub(cx, e, kiln_mul(cx, kiln_int(cx, coef[i]), v->values[i]));
  return kiln_tc_simple(cx, e);
}

static void solve_one(const assembler *a, inverse *v, int i, int64_t coef, const kiln_expr *e) {
  kiln_ctx *cx = a->cx;
  if (coef < 0) {
    e = kiln_tc_simple(cx, kiln_sub(cx, kiln_int(cx, 0), e));
    coef = -coef;
  }
  const kiln_expr *c = kiln_int(cx, coef), *zero = kiln_int(cx, 0);
  if (coef != 1) demand(a, v, kiln_binary(cx, KILN_EXPR_EQ, kiln_mod(cx, e, c), zero));
  v->values[i] = kiln_tc_simple(cx, kiln_div(cx, e, c));
  demand_range(a, v, v->values[i], &v->p->vars[i]);
}

// Solves e = sum(coef * i) for the variables i of |of| as mixed-radix digits, the greatest
// coefficient first; false if the digits overlap.
static bool solve_digits(const assembler *a, inverse *v, int n, const int *of, const int64_t *coef,
                         const kiln_expr *e) {
  kiln_ctx *cx = a->cx;
  const kiln_expr *reach = kiln_int(cx, 0); // largest value of the lower digits
  for (int d = n - 1; d >= 0; d--) {
    const kiln_tc_range *r = &v->p->vars[of[d]];
    const kiln_expr *c = kiln_int(cx, coef[of[d]]), *one = kiln_int(cx, 1);
    if (coef[of[d]] <= 0) return false;
    const kiln_expr *room = kiln_sub(cx, kiln_sub(cx, c, one), reach);
    if (kiln_tc_at_least_zero(cx, room) != KILN_TC_HOLDS) return false;
    reach = kiln_add(cx, reach, kiln_mul(cx, c, kiln_sub(cx, r->extent, one)));
    e = kiln_sub(cx, e, kiln_mul(cx, c, r->lo));
  }
  for (int d = 0; d < n; d++) {
    const kiln_tc_range *r = &v->p->vars[of[d]];
    const kiln_expr *c = kiln_int(cx, coef[of[d]]);
    v->values[of[d]] = kiln_tc_simple(cx, kiln_add(cx, kiln_div(cx, e, c), r->lo));
    demand_range(a, v, v->values[of[d]], r);
    e = kiln_mod(cx, e, c);
  }
  demand(a, v, kiln_binary(cx, KILN_EXPR_EQ, kiln_tc_simple(cx, e), kiln_int(cx, 0)));
  return true;
}

// The unknown variables of axis |k|, by descending coefficient.
static int unknowns(const inverse *v, const int64_t *coef, int *of) {
  int n = 0;
  for (int i = 0; i < v->p->n_vars; i++) {
    if (coef[i] == 0 || v->values[i] != NULL) continue;
    int at = n++;
    for (; at > 0 && coef[of[at - 1]] < coef[i]; at--) of[at] = of[at - 1];
    of[at] = i;
  }
  return n;
}

static kiln_status not_injective(const assembler *a, const kiln_tc_piece *p) {
  return kiln_tc_fail(&a->env->file->source, p->at, NULL,
                      "%s: the left side must be injective: two iterations must not write one "
                      "element",
                      name_of(a));
}

// Solves axes with one unknown first, then axes whose unknowns are digits, in rounds.
static kiln_status invert(const assembler *a, inverse *v) {
  const kiln_tc_piece *p = v->p;
  bool done[KILN_MAX_RANK] = {false};
  int *of = KILN_NEW_ARRAY(&a->cx->perm, int, p->n_vars);
  int64_t *coef = KILN_NEW_ARRAY(&a->cx->perm, int64_t, p->n_vars);
  const kiln_expr *rest;
  for (int left = a->w->rank, digits = 0; left > 0;) {
    int before = left;
    for (int k = 0; k < a->w->rank; k++) {
      if (done[k]) continue;
      KILN_TRY(affine_of(a, p, k, coef, &rest));
      int n = unknowns(v, coef, of);
      if (n > 1 && !digits) continue;
      const kiln_expr *e = remainder_of(a, v, k, coef, rest);
      if (n == 0) demand(a, v, kiln_binary(a->cx, KILN_EXPR_EQ, e, kiln_int(a->cx, 0)));
      else if (n == 1) solve_one(a, v, of[0], coef[of[0]], e);
      else if (!solve_digits(a, v, n, of, coef, e)) continue;
      done[k] = true;
      left--;
      digits = 0;
    }
    if (left == before && digits) return not_injective(a, p);
    if (left == before) digits = 1;
  }
  for (int i = 0; i < p->n_vars; i++)
    if (v->values[i] == NULL) return not_injective(a, p);
  return KILN_OK;
}

// --- the statement ---

static const kiln_expr *load_base(const assembler *a) {
  kiln_ctx *cx = a->cx;
  const kiln_tc_tensor *b = &a->w->base;
  const kiln_expr *at[KILN_MAX_RANK];
  for (int k = 0; k < a->w->rank; k++) {
    const kiln_expr *shift = kiln_sub(cx, a->lo[k], b->origins[k]);
    at[b->storage[k]] = kiln_tc_simple(cx, kiln_add(cx, kiln_stmt_var(cx, a->stmt, k), shift));
  }
  return kiln_cast(cx, a->w->type, kiln_tensor_load(cx, b->tensor, at));
}

static kiln_status add_piece(const assembler *a, const kiln_tc_piece *p, const kiln_expr **value) {
  kiln_ctx *cx = a->cx;
  inverse v = {p, KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, p->n_vars), NULL};
  KILN_TRY(invert(a, &v));
  kiln_symbol *vars = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, p->n_vars);
  for (int i = 0; i < p->n_vars; i++) vars[i] = p->vars[i].var;
  const kiln_expr *body = kiln_expr_substitute(cx, p->body, p->n_vars, vars, v.values);
  body = kiln_cast(cx, a->w->type, body);       // numbers take the type of the other pieces
  bool only = *value == NULL || v.when == NULL; // the last piece takes all remaining elements
  *value = only ? body : kiln_select(cx, v.when, body, *value);
  return KILN_OK;
}

static const kiln_expr *in_ranges(const assembler *a, const kiln_expr *e) {
  kiln_ctx *cx = a->cx;
  kiln_mark m = kiln_arena_mark(&cx->scratch);
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  int64_t extent;
  for (int k = 0; k < a->w->rank; k++)
    if (kiln_expr_is_int(a->extent[k], &extent) && extent > 0)
      kiln_ranges_push(&r, a->stmt->dims[k].name, 0, extent - 1);
  e = kiln_simplify(cx, e, &r);
  kiln_arena_rewind(&cx->scratch, m);
  return e;
}

static void declare(const assembler *a) {
  const kiln_tensor *t = a->env->caller->prog->tensors.data[a->stmt->out];
  kiln_tc_tensor out = {
      .name = a->w->name, .tensor = t, .type = t->dtype, .weak = a->w->weak, .rank = t->rank};
  kiln_tc_dim *dims = KILN_NEW_ARRAY(&a->cx->perm, kiln_tc_dim, t->rank);
  out.n_dims = t->rank;
  out.dims = dims;
  for (int k = 0; k < t->rank; k++) {
    out.ranks[k] = 1;
    out.extents[k] = a->extent[k];
    out.origins[k] = a->lo[k];
    out.storage[k] = k;
  }
  KILN_VEC_PUSH(&a->cx->perm, &a->env->tensors, out);
}

// The index that all pieces use as subscript at axis |k|; 0 if they differ.
static kiln_symbol index_at(const assembler *a, int k) {
  kiln_symbol found = 0;
  for (int i = 0; i < a->w->pieces.n; i++) {
    const kiln_tc_piece *p = &a->w->pieces.data[i];
    for (int v = 0; v < p->n_vars; v++) {
      if (!kiln_expr_uses(p->index[k], p->vars[v].var)) continue;
      if (p->names[v] == 0 || (found != 0 && found != p->names[v])) return 0;
      found = p->names[v];
    }
  }
  return found;
}

static void name_dims(const assembler *a) {
  kiln_stmt *s = a->stmt;
  for (int k = 0; k < s->n_space; k++) {
    const kiln_symbol name = index_at(a, k);
    bool is_free = name != 0;
    for (int d = 0; d < s->n_space; d++) is_free = is_free && s->dims[d].name != name;
    if (is_free) s->dims[k].name = name;
    s->index[k] = kiln_stmt_var(a->cx, s, k);
  }
}

static kiln_status assemble(assembler *a) {
  kiln_ctx *cx = a->cx;
  KILN_TRY(find_box(a));
  widen_to_declared(a);
  int64_t extent;
  for (int k = 0; k < a->w->rank; k++)
    if (kiln_expr_is_int(a->extent[k], &extent) && extent < 0) a->extent[k] = kiln_int(cx, 0);
  KILN_TRY(check_written(a));
  a->stmt =
      kiln_stmt_make(cx, a->env->caller->prog, a->w->text, a->w->type, a->w->rank, 0, a->extent);
  a->stmt->origin = a->env->caller->origin;
  name_dims(a);
  const kiln_expr *value = a->w->fill != NULL ? kiln_cast(cx, a->w->type, a->w->fill) : NULL;
  if (a->w->has_base) value = load_base(a);
  for (int i = 0; i < a->w->pieces.n; i++) KILN_TRY(add_piece(a, &a->w->pieces.data[i], &value));
  a->stmt->body = in_ranges(a, value);
  declare(a);
  return KILN_OK;
}

kiln_status kiln_tc_assemble(kiln_tc_env *env, const kiln_tc_whole *w) {
  assembler a = {.env = env, .cx = env->cx, .w = w};
  kiln_mark m = kiln_arena_mark(&env->cx->scratch);
  kiln_status st = assemble(&a);
  kiln_arena_rewind(&env->cx->scratch, m);
  return st;
}
