// Sets of variables, and injectivity of affine indices.
#include "schedule/index.h"

#include <stdlib.h>

// --- sets of variables ---

bool kiln_vars_has(const kiln_vars *v, kiln_symbol s) {
  for (int i = 0; i < v->n; i++)
    if (v->data[i] == s) return true;
  return false;
}

bool kiln_vars_in(const kiln_vars *v, const kiln_expr *e) {
  for (int i = 0; i < v->n; i++)
    if (kiln_expr_uses(e, v->data[i])) return true;
  return false;
}

static void vars_under(kiln_ctx *cx, kiln_vars *v, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) KILN_VEC_PUSH(&cx->scratch, v, l->var);
    vars_under(cx, v, l->body);
  }
}

kiln_vars kiln_vars_under(kiln_ctx *cx, const kiln_loop *first) {
  kiln_vars v = {0};
  vars_under(cx, &v, first);
  return v;
}

kiln_vars kiln_vars_of(kiln_ctx *cx, const kiln_loop *nest) {
  kiln_vars v = {0};
  if (nest->kind == KILN_LOOP_FOR) KILN_VEC_PUSH(&cx->scratch, &v, nest->var);
  vars_under(cx, &v, nest->body);
  return v;
}

// --- injectivity ---

typedef struct solver {
  kiln_edit *e;
  const kiln_vars *unknown;
  struct {
    const kiln_expr **data;
    int n, cap;
  } known; // subexpressions that the indices determine
} solver;

static bool is_known(const solver *s, const kiln_expr *atom) {
  for (int i = 0; i < s->known.n; i++)
    if (s->known.data[i] == atom) return true;
  return false;
}

// Whether |atom| may vary while the indices stay the same.
static bool is_free(const solver *s, const kiln_expr *atom) {
  if (is_known(s, atom)) return false;
  for (int i = 0; i < s->unknown->n; i++)
    if (kiln_expr_uses(atom, s->unknown->data[i]) &&
        !is_known(s, kiln_var(s->e->cx, s->unknown->data[i])))
      return true;
  return false;
}

static int by_size(const void *a, const void *b) {
  const kiln_term *s = a, *t = b;
  const int64_t x = llabs(s->coef), y = llabs(t->coef);
  if (x != y) return x < y ? 1 : -1;
  return s->atom->id < t->atom->id ? -1 : s->atom->id > t->atom->id; // a deterministic order
}

// hi - lo, or INT64_MAX
static int64_t width_of(const solver *s, const kiln_expr *e) {
  const kiln_interval i = kiln_expr_interval(s->e->cx, e, &s->e->ranges);
  int64_t width = 0;
  if (i.lo == INT64_MIN || i.hi == INT64_MAX || __builtin_sub_overflow(i.hi, i.lo, &width))
    return INT64_MAX;
  return width;
}

// A sum of terms determines its largest term if the other terms together are smaller than one step
// of it: i*8 + j with j < 8 determines i.
static bool solve_axis(solver *s, const kiln_expr *index) {
  kiln_terms t = kiln_terms_of(s->e->cx, index);
  int n = 0;
  for (int i = 0; i < t.n; i++)
    if (is_free(s, t.data[i].atom)) t.data[n++] = t.data[i];
  if (n == 0) return false;
  qsort(t.data, (size_t)n, sizeof t.data[0], by_size);
  bool progress = false;
  for (int i = 0; i < n; i++) {
    int64_t rest = 0;
    for (int j = i + 1; j < n; j++) {
      int64_t part = 0;
      if (__builtin_mul_overflow(width_of(s, t.data[j].atom), llabs(t.data[j].coef), &part) ||
          __builtin_add_overflow(rest, part, &rest))
        return progress;
    }
    if (llabs(t.data[i].coef) <= rest) break;
    KILN_VEC_PUSH(&s->e->cx->perm, &s->known, t.data[i].atom);
    progress = true;
  }
  return progress;
}

// Whether the indices determine x / c: directly, or by its parts (x / c) % d and x / (c * d).
static bool is_solved(solver *s, const kiln_expr *x, int64_t c) {
  kiln_ctx *cx = s->e->cx;
  const kiln_expr *part = c == 1 ? x : kiln_edit_simplify(s->e, kiln_div(cx, x, kiln_int(cx, c)));
  if (!is_free(s, part) || kiln_expr_is_int(part, NULL)) return true;
  for (int i = 0; i < s->known.n; i++) {
    const kiln_expr *k = s->known.data[i];
    int64_t d = 0, next = 0;
    if (k->kind != KILN_EXPR_MOD || k->args[0] != part || !kiln_expr_is_int(k->args[1], &d) ||
        d < 2 || __builtin_mul_overflow(c, d, &next))
      continue;
    if (is_solved(s, x, next)) return true;
  }
  return false;
}

// Whether x and |y| are the same modulo |d|.
static bool is_congruent(const solver *s, const kiln_expr *x, const kiln_expr *y, int64_t d) {
  kiln_ctx *cx = s->e->cx;
  int64_t apart = -1;
  if (x == y) return true;
  const kiln_expr *rest = kiln_mod(cx, kiln_sub(cx, y, x), kiln_int(cx, d));
  return kiln_expr_is_int(kiln_edit_simplify(s->e, rest), &apart) && apart == 0;
}

// Whether the indices determine x % d: directly, as y % d where y - x is a multiple of d, or by the
// digits x / b % a and x % b, where d is a * b.
static bool knows_rest(const solver *s, const kiln_expr *x, int64_t d) {
  kiln_ctx *cx = s->e->cx;
  if (d == 1) return true;
  for (int i = 0; i < s->known.n; i++) {
    const kiln_expr *k = s->known.data[i], *high = x;
    int64_t a = 0;
    if (k->kind != KILN_EXPR_MOD || !kiln_expr_is_int(k->args[1], &a) || a < 2 || d % a) continue;
    const int64_t b = d / a;
    if (b > 1) high = kiln_edit_simplify(s->e, kiln_div(cx, x, kiln_int(cx, b)));
    if (is_congruent(s, high, k->args[0], a) && knows_rest(s, x, b)) return true;
  }
  return false;
}

// Solves an index by a quotient in it whose remainder is known, as those of fused loops that were
// split again: with q % 40 known, i*12 + q / 40 is as good as i*480 + q.
static bool solve_quotients(solver *s, const kiln_expr *index) {
  kiln_ctx *cx = s->e->cx;
  const kiln_terms t = kiln_terms_of(cx, index);
  bool progress = false;
  for (int i = 0; i < t.n; i++) {
    const kiln_expr *q = t.data[i].atom, *all = NULL;
    int64_t d = 0;
    if (q->kind != KILN_EXPR_DIV || !kiln_expr_is_int(q->args[1], &d) || d < 2 ||
        !is_free(s, q->args[0]) || !knows_rest(s, q->args[0], d))
      continue;
    for (int j = 0; j < t.n; j++) {
      const kiln_expr *part = i == j ? q->args[0] : kiln_mul(cx, t.data[j].atom, q->args[1]);
      part = kiln_mul(cx, part, kiln_int(cx, t.data[j].coef));
      all = all ? kiln_add(cx, all, part) : part;
    }
    progress |= solve_axis(s, kiln_edit_simplify(s->e, all));
  }
  return progress;
}

bool kiln_index_determines(kiln_edit *e, int n, const kiln_expr *const *index,
                           const kiln_vars *unknown, kiln_symbol v) {
  solver s = {.e = e, .unknown = unknown};
  for (bool progress = true; progress;) {
    progress = false;
    for (int k = 0; k < n; k++) progress |= solve_axis(&s, index[k]);
    for (int k = 0; k < n && !progress; k++) progress |= solve_quotients(&s, index[k]);
  }
  return is_solved(&s, kiln_var(e->cx, v), 1);
}
