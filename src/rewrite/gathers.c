// A gather's positions that come from a constant table are computed if they are a mixed-radix
// function of their index, so that its accesses are affine: concatenated slices, permuted channels.
//     table = 0 2 1 3;  Y(i) = X(table(i))    becomes  Y(i) = X(i % 2 * 2 + i / 2)
//     table = 4 5 0 1 2 3;  Y(i) = X(table(i))    becomes  Y(i) = i < 2 ? X(i + 4) : X(i - 2)
// A few pieces are preferred to digits, which need divisions.
// Tables that repeat positions, as those of a resize, are kept: a load is cheaper than a division
// (transform/index_tables.c computes them on GPUs).
#include "analysis/interpret.h"
#include "analysis/simplify.h"
#include "rewrite/rules.h"

enum { MAX_ENTRIES = 1 << 16, MAX_DIGITS = 3, MAX_PIECES = 4 };

// Entry i is first + the sum of step * digit over the digits of i, the fastest first.
typedef struct counter {
  int64_t first;
  int n;
  int64_t radix[MAX_DIGITS], step[MAX_DIGITS];
} counter;

typedef struct tables {
  const kiln_program *p;
  int n_computed;
} tables;

static int64_t place_at(const kiln_tensor *t, int64_t i) {
  return kiln_element_get_int(t->dtype, t->data, i);
}

// The next digit's radix: entries 0, |size|, 2 |size|, ... begin with an arithmetic progression,
// whose length is reduced to a divisor of their number.
static int64_t rising(const kiln_tensor *t, int64_t n, int64_t size) {
  const int64_t first = place_at(t, 0), step = place_at(t, size) - first, all = n / size;
  int64_t radix = 2;
  while (radix < all && place_at(t, radix * size) == first + radix * step) radix++;
  while (all % radix) radix--;
  return radix;
}

static bool counts(const kiln_tensor *t, int64_t n, const counter *c) {
  for (int64_t i = 0; i < n; i++) {
    int64_t place = c->first, rest = i;
    for (int k = 0; k < c->n; rest /= c->radix[k++]) place += rest % c->radix[k] * c->step[k];
    if (place != place_at(t, i)) return false;
  }
  return true;
}

static bool find_counter(const kiln_tensor *t, counter *out) {
  const int64_t n = kiln_tensor_elems(t);
  if (t->role != KILN_CONST || !t->data || t->rank != 1 || n < 2 || n > MAX_ENTRIES) return false;
  *out = (counter){.first = place_at(t, 0)};
  for (int64_t size = 1; size < n; size *= out->radix[out->n++]) {
    if (out->n == MAX_DIGITS) return false;
    out->radix[out->n] = rising(t, n, size);
    out->step[out->n] = place_at(t, size) - out->first;
    if (out->radix[out->n] < 2 || out->step[out->n] == 0) return false;
  }
  return counts(t, n, out);
}

static const kiln_expr *place_of(kiln_ctx *cx, const counter *c, const kiln_expr *index) {
  const kiln_expr *place = kiln_int(cx, c->first);
  for (int k = 0; k < c->n; k++) {
    const kiln_expr *radix = kiln_int(cx, c->radix[k]);
    const kiln_expr *digit = k + 1 < c->n ? kiln_mod(cx, index, radix) : index;
    place = kiln_add(cx, place, kiln_mul(cx, digit, kiln_int(cx, c->step[k])));
    index = kiln_div(cx, index, radix);
  }
  return place;
}

static const kiln_expr *compute_place(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  tables *t = argument;
  const kiln_expr *load = kiln_expr_uncast(e);
  counter c;
  if (e->dtype != KILN_I64 || load->kind != KILN_EXPR_LOAD ||
      (load->dtype != KILN_I64 && load->dtype != KILN_I32) || load->n_args != 1 ||
      kiln_expr_has_load(load->args[0]) || !find_counter(t->p->tensors.data[load->u.tensor], &c))
    return NULL;
  t->n_computed++;
  return place_of(cx, &c, load->args[0]);
}

// Computes positions only in the indices of another load.
static const kiln_expr *gather(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], compute_place, argument);
  return kiln_load(cx, e->u.tensor, e->dtype, e->n_args, index);
}

// --- tables of a few pieces ---

// A piece of a table: from |begin| on, entry i is first + step * (i - begin).
typedef struct piece {
  int64_t begin, first, step;
} piece;

typedef struct pieces {
  const kiln_program *p;
  const kiln_expr *load; // of the table
  int n;
  piece data[MAX_PIECES];
} pieces;

// Fails if a piece has one entry only, which has no step: the table is then irregular.
static bool find_pieces(const kiln_tensor *t, pieces *out) {
  const int64_t n = kiln_tensor_elems(t);
  out->n = 0;
  if (t->role != KILN_CONST || !t->data || t->rank != 1 || n > MAX_ENTRIES) return false;
  for (int64_t i = 0, end; i < n; i = end) {
    if (out->n == MAX_PIECES || i + 1 == n) return false;
    const int64_t first = place_at(t, i), step = place_at(t, i + 1) - first;
    if (step == 0) return false; // a repeated position
    for (end = i + 1; end < n && place_at(t, end) == first + (end - i) * step;) end++;
    out->data[out->n++] = (piece){i, first, step};
  }
  return true;
}

static kiln_search find_table(const kiln_expr *e, void *argument) {
  pieces *q = argument;
  if (e->kind != KILN_EXPR_LOAD || e->dtype != KILN_I64 || e->n_args != 1 ||
      kiln_expr_has_load(e->args[0]))
    return KILN_SEARCH_INTO;
  if (!find_pieces(q->p->tensors.data[e->u.tensor], q) || q->n < 2) return KILN_SEARCH_PAST;
  q->load = e;
  return KILN_SEARCH_ENDS;
}

// Replaces a gather by a table of a few pieces with a concatenation of as many slices.
static bool take_apart(kiln_ctx *cx, kiln_program *p, kiln_stmt *s) {
  pieces q = {.p = p};
  if (s->body->kind != KILN_EXPR_LOAD) return false;
  for (int k = 0; k < s->body->n_args && !q.load; k++)
    kiln_expr_search(cx, s->body->args[k], find_table, &q);
  const kiln_expr *body = NULL;
  for (int i = q.load ? q.n - 1 : -1; i >= 0; i--) {
    const kiln_expr *at = q.load->args[0], *begin = kiln_int(cx, q.data[i].begin);
    const kiln_expr *place =
        kiln_add(cx, kiln_mul(cx, kiln_sub(cx, at, begin), kiln_int(cx, q.data[i].step)),
                 kiln_int(cx, q.data[i].first));
    const kiln_expr *part = kiln_expr_replace_one(cx, s->body, q.load, place);
    const kiln_expr *end = body ? kiln_int(cx, q.data[i + 1].begin) : NULL;
    body = body ? kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, at, end), part, body) : part;
  }
  if (body) s->body = kiln_stmt_simplify(cx, s, body);
  return body != NULL;
}

int kiln_rule_gathers(kiln_ctx *cx, kiln_program *p) {
  tables t = {.p = p};
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    const kiln_mark mark = kiln_arena_mark(&cx->scratch);
    while (take_apart(cx, p, s)) t.n_computed++;
    const int before = t.n_computed;
    const kiln_expr *body = kiln_expr_replace(cx, s->body, gather, &t);
    if (t.n_computed > before) s->body = kiln_stmt_simplify(cx, s, body);
    kiln_arena_rewind(&cx->scratch, mark);
  }
  return t.n_computed;
}
