// skip: leaves out iterations of a loop that change nothing, because a mask leaves out all scores
// that they compute.
//
// The loop is one that online_softmax made. An iteration whose scores u are all -inf keeps the
// maximum M, so sums are rescaled by 1, and its weights exp(u - M) are 0: sums stay as they are.
// The primitive follows these values through the body: what is stored outside of an iteration must
// be what is there already. A weight of 0 leaves out what it weights, NaN and infinities included,
// whereas 0 times these is NaN (analysis/masking.h).
//
// Masks of a finite number, as the lowest of a type, have weights of 0 only where the row keeps
// another score: then an iteration that stays must keep one of each row.
#include "schedule/nest.h"

#include "analysis/masking.h"

#include <math.h>
#include <string.h>

enum { MAX_TASKS = 1 << 14, MAX_OUTER = 4 };

// What is known of a value in an iteration that is left out.
typedef enum value {
  UNKNOWN,
  ZERO,
  ONE,
  KEPT, // what the maximum is, or stands for it in exponents
  FAR   // a masked score, less a finite number or none
} value;

typedef struct skip {
  kiln_edit e;
  kiln_loop *loop;
  int64_t extent;
  const kiln_expr *from, *to;
  int n_outer; // loops of |from| and |to|
  const kiln_loop *outer[MAX_OUTER];
  value *values;        // by buffer; of those that live in an iteration
  uint8_t *is_own;      // by buffer: lives in an iteration
  bool is_finite;       // a mask of finite numbers was seen
  const kiln_loop *top; // the store of the maximum
} skip;

// --- values ---

static value value_of(skip *k, const kiln_expr *e);

static value of_load(const skip *k, const kiln_expr *e) {
  if (k->is_own[e->u.tensor]) return k->values[e->u.tensor];
  return k->top && e->u.tensor == k->top->buffer ? KEPT : UNKNOWN;
}

static bool is_lowest(const kiln_expr *e) {
  return e->kind == KILN_EXPR_FLOAT && isinf(e->u.f) && e->u.f < 0;
}

static bool is_finite(const kiln_expr *e) { return e->kind == KILN_EXPR_FLOAT && isfinite(e->u.f); }

// M == -inf ? 0 : M stands for M; far < finite ? a : b is a; far > M ? far : M is M.
static value of_select(skip *k, const kiln_expr *e) {
  const kiln_expr *cond = e->args[0], *a = e->args[1], *b = e->args[2];
  if (cond->n_args != 2) return UNKNOWN;
  const value left = value_of(k, cond->args[0]);
  if (cond->kind == KILN_EXPR_EQ && left == KEPT && is_lowest(cond->args[1]) &&
      kiln_expr_is_zero(a) && value_of(k, b) == KEPT)
    return KEPT;
  if (cond->kind == KILN_EXPR_LT && left == FAR && is_finite(cond->args[1])) return value_of(k, a);
  if (cond->kind == KILN_EXPR_GT && left == FAR && value_of(k, cond->args[1]) == KEPT)
    return value_of(k, b);
  return UNKNOWN;
}

static value of_binary(skip *k, const kiln_expr *e) {
  const value a = value_of(k, e->args[0]), b = value_of(k, e->args[1]);
  if (e->kind == KILN_EXPR_SUB)
    return b != KEPT ? UNKNOWN : a == KEPT ? ZERO : a == FAR ? FAR : UNKNOWN;
  if (e->kind == KILN_EXPR_POW)
    return is_finite(e->args[0]) && b == FAR ? ZERO : b == ZERO ? ONE : UNKNOWN;
  if (e->kind != KILN_EXPR_MUL) return UNKNOWN;
  if (a == ZERO || b == ZERO) return ZERO;
  return a == ONE ? b : b == ONE ? a : UNKNOWN;
}

static value value_of(skip *k, const kiln_expr *e) {
  if (e->n_tree > KILN_LONG_TREE) return UNKNOWN;
  if (e->kind == KILN_EXPR_FLOAT) return e->u.f == 0 ? ZERO : e->u.f == 1 ? ONE : UNKNOWN;
  if (e->kind == KILN_EXPR_LOAD) return of_load(k, e);
  if (e->kind == KILN_EXPR_CAST) return value_of(k, e->args[0]);
  if (e->kind == KILN_EXPR_SELECT) return of_select(k, e);
  if (e->kind != KILN_EXPR_EXP) return e->n_args == 2 ? of_binary(k, e) : UNKNOWN;
  const value x = value_of(k, e->args[0]);
  return x == FAR ? ZERO : x == ZERO ? ONE : UNKNOWN;
}

// --- scores ---

typedef struct finding {
  const skip *k;
  int scores; // the buffer of an iteration that is loaded; -1: none, or several
  bool several;
} finding;

static void find_scores(const kiln_expr *e, void *argument) {
  finding *f = argument;
  if (e->kind != KILN_EXPR_LOAD || !f->k->is_own[e->u.tensor] || f->scores == e->u.tensor) return;
  f->several |= f->scores >= 0;
  f->scores = e->u.tensor;
}

static kiln_masking masking_of(const skip *k, const kiln_expr *e) {
  finding f = {k, -1, false};
  kiln_expr_visit(k->e.cx, e, find_scores, &f);
  return kiln_masking_of(k->e.cx, e, f.several ? -1 : f.scores, &k->e.ranges);
}

static value of_stored(skip *k, const kiln_loop *s) {
  if (s->combiner != KILN_COMBINE_NONE) return UNKNOWN;
  const value known = value_of(k, s->value);
  if (known != UNKNOWN || !kiln_dtype_is_float(s->value->dtype)) return known;
  const kiln_masking m = masking_of(k, s->value);
  k->is_finite |= m == KILN_MASKING_FAR;
  return kiln_masking_is_empty(m) ? FAR : UNKNOWN;
}

// --- statements ---

// Whether |e| is the element that |s| stores to.
static bool is_self(const skip *k, const kiln_loop *s, const kiln_expr *e) {
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != s->buffer) return false;
  for (int i = 0; i < k->e.l->buffers.data[s->buffer]->rank; i++)
    if (e->args[i] != s->index[i]) return false;
  return true;
}

// Whether |s| stores to a buffer outside of the iteration what is there.
static bool keeps(skip *k, const kiln_loop *s) {
  const kiln_expr *e = s->value;
  if (s->combiner == KILN_COMBINE_SUM) return value_of(k, e) == ZERO;
  if (s->combiner == KILN_COMBINE_MAX) return value_of(k, e) == FAR;
  if (s->combiner != KILN_COMBINE_NONE) return false;
  if (e->kind == KILN_EXPR_SELECT && e->args[0]->kind == KILN_EXPR_GT)
    return value_of(k, e->args[0]->args[0]) == FAR && is_self(k, s, e->args[0]->args[1]) &&
           is_self(k, s, e->args[2]);
  if (e->kind != KILN_EXPR_MUL) return is_self(k, s, e);
  return (is_self(k, s, e->args[0]) && value_of(k, e->args[1]) == ONE) ||
         (is_self(k, s, e->args[1]) && value_of(k, e->args[0]) == ONE);
}

// A maximum: max=, or x > M ? x : M.
static bool is_top(const skip *k, const kiln_loop *s) {
  if (s->kind != KILN_LOOP_STORE || k->is_own[s->buffer]) return false;
  return s->combiner == KILN_COMBINE_MAX ||
         (s->combiner == KILN_COMBINE_NONE && s->value->kind == KILN_EXPR_SELECT &&
          s->value->args[0]->kind == KILN_EXPR_GT && is_self(k, s, s->value->args[2]));
}

static void find_own(skip *k, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC) k->is_own[l->buffer] = 1;
    find_own(k, l->body);
  }
}

static const kiln_loop *find_top(const skip *k, const kiln_loop *l) {
  const kiln_loop *found = NULL;
  for (; l && !found; l = l->next) found = is_top(k, l) ? l : find_top(k, l->body);
  return found;
}

// Nothing is known of what |l| stores.
static void forget(skip *k, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) k->values[l->buffer] = UNKNOWN;
    forget(k, l->body);
  }
}

static kiln_status walk(skip *k, const kiln_loop *l) {
  kiln_edit *e = &k->e;
  for (; l; l = l->next) {
    const kiln_interval holds = l->kind == KILN_LOOP_IF
                                    ? kiln_expr_interval(e->cx, l->cond, &e->ranges)
                                    : (kiln_interval){1, 1};
    if (holds.hi == 0) continue;
    if (l->kind == KILN_LOOP_INSTR || l->kind == KILN_LOOP_DEVICE)
      return kiln_refuse(e, "the loop must hold no instruction: skip before tensorize");
    if (l->kind == KILN_LOOP_STORE && k->is_own[l->buffer]) {
      k->values[l->buffer] = of_stored(k, l);
    } else if (l->kind == KILN_LOOP_STORE && !keeps(k, l)) {
      return kiln_refuse(e,
                         "iterations that are left out must change nothing, got one that changes "
                         "buffer %s: its scores must all be masked, by conditions on loops",
                         kiln_edit_text(e, e->l->buffers.data[l->buffer]->name));
    }
    KILN_TRY(walk(k, l->body));
    if (holds.lo == 0) forget(k, l->body);
  }
  return KILN_OK;
}

// --- masks of finite numbers ---

// The store of the scores of which |k->top| is the maximum, and its loop over what the maximum
// reduces; NULL.
static const kiln_loop *find_store(const kiln_loop *l, int buffer) {
  const kiln_loop *found = NULL;
  for (; l && !found; l = l->next)
    found = l->kind == KILN_LOOP_STORE && l->buffer == buffer ? l : find_store(l->body, buffer);
  return found;
}

static const kiln_expr *reduced_of(const skip *k, const kiln_loop **out_scores) {
  const kiln_expr *u =
      k->top->combiner == KILN_COMBINE_MAX ? k->top->value : k->top->value->args[1];
  *out_scores = u->kind == KILN_EXPR_LOAD ? find_store(k->loop->body, u->u.tensor) : NULL;
  for (int i = 0; *out_scores && i < u->n_args; i++) {
    bool indexes = u->args[i]->kind != KILN_EXPR_VAR;
    for (int j = 0; j < k->e.l->buffers.data[k->top->buffer]->rank && !indexes; j++)
      indexes |= kiln_expr_uses(k->top->index[j], u->args[i]->u.sym);
    if (!indexes && (*out_scores)->index[i]->kind == KILN_EXPR_VAR) return (*out_scores)->index[i];
  }
  return NULL;
}

// Whether one of the iterations in [from, to) keeps the score at one place of every row.
static bool keeps_rows(skip *k, int64_t from, int64_t to) {
  kiln_edit *e = &k->e;
  const kiln_loop *scores = NULL;
  const kiln_expr *place = reduced_of(k, &scores);
  if (!place || from >= to) return false;
  const kiln_interval r = kiln_expr_interval(e->cx, place, &e->ranges);
  const int64_t steps[] = {from, to - 1}, places[] = {r.lo, r.hi};
  bool found = false;
  for (int i = 0; i < 4 && !found; i++) {
    kiln_ranges_push(&e->ranges, k->loop->var, steps[i / 2], steps[i / 2]);
    kiln_ranges_push(&e->ranges, place->u.sym, places[i % 2], places[i % 2]);
    found = masking_of(k, scores->value) == KILN_MASKING_NONE;
    kiln_ranges_pop(&e->ranges, 2);
  }
  return found;
}

// --- iterations ---

// Refuses unless the iterations [first, end) may be left out.
static kiln_status check_range(skip *k, int64_t first, int64_t end) {
  if (first >= end) return KILN_OK;
  memset(k->values, 0, (size_t)k->e.l->buffers.n * sizeof *k->values);
  kiln_ranges_push(&k->e.ranges, k->loop->var, first, end - 1);
  const kiln_status st = walk(k, k->loop->body);
  kiln_ranges_pop(&k->e.ranges, 1);
  return st;
}

// The value of a bound in the task whose numbers are |at|.
static kiln_status bound(skip *k, const kiln_expr *x, const int64_t *at, int64_t *out) {
  kiln_edit *e = &k->e;
  kiln_symbol vars[MAX_OUTER];
  const kiln_expr *values[MAX_OUTER];
  for (int i = 0; i < k->n_outer; i++) {
    vars[i] = k->outer[i]->var;
    values[i] = kiln_int(e->cx, at[i]);
  }
  x = kiln_edit_simplify(e, kiln_expr_substitute(e->cx, x, k->n_outer, vars, values));
  return kiln_expr_is_int(x, out) ? KILN_OK : kiln_refuse(e, "bounds must be numbers");
}

static kiln_status check_task(skip *k, const int64_t *at) {
  kiln_edit *e = &k->e;
  int64_t from = 0, to = 0;
  KILN_TRY(bound(k, k->from, at, &from));
  KILN_TRY(bound(k, k->to, at, &to));
  if (from < 0 || from >= to || to > k->extent)
    return kiln_refuse(
        e, "bounds must leave iterations in [0, %" PRId64 "), got [%" PRId64 ", %" PRId64 ")",
        k->extent, from, to);
  k->is_finite = false;
  for (int i = 0; i < k->n_outer; i++) kiln_ranges_push(&e->ranges, k->outer[i]->var, at[i], at[i]);
  KILN_TRY(check_range(k, 0, from));
  KILN_TRY(check_range(k, to, k->extent));
  const bool keeps = !k->is_finite || keeps_rows(k, from, to);
  kiln_ranges_pop(&e->ranges, k->n_outer);
  if (keeps) return KILN_OK;
  return kiln_refuse(e,
                     "masks of finite numbers must leave one place of all rows in iterations "
                     "[%" PRId64 ", %" PRId64 ")",
                     from, to);
}

// Checks each iteration of the loops that bounds depend on.
static kiln_status check_tasks(skip *k) {
  int64_t at[MAX_OUTER] = {0}, extents[MAX_OUTER], n = 1;
  for (int i = 0; i < k->n_outer; i++) {
    KILN_TRY(kiln_edit_extent(&k->e, k->outer[i], &extents[i]));
    n = extents[i] > MAX_TASKS ? MAX_TASKS + 1 : n * extents[i];
    if (n > MAX_TASKS)
      return kiln_refuse(&k->e, "bounds must have at most %d values: skip before fuse", MAX_TASKS);
  }
  for (int64_t task = 0; task < n; task++) {
    KILN_TRY(check_task(k, at));
    for (int i = k->n_outer - 1; i >= 0 && ++at[i] == extents[i]; i--) at[i] = 0;
  }
  return KILN_OK;
}

// --- the primitive ---

static kiln_status parse(skip *k, const char *text, const kiln_expr **out) {
  kiln_edit *e = &k->e;
  const kiln_expr_names names = kiln_edit_names(e);
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, k->loop, path);
  const char *at = text;
  if (kiln_expr_parse(e->cx, &at, &names, out) != KILN_OK || at[strspn(at, " \t\r")] ||
      (*out)->dtype != KILN_I64 || (*out)->has_load)
    return kiln_refuse(e, "a bound must be a number over loops, got \"%.200s\"", text);
  for (int i = 0; (*out)->vars && i < (*out)->vars->n; i++) {
    const kiln_loop *l = NULL;
    bool is_new = true;
    for (int d = 0; d + 1 < depth; d++)
      if (path[d]->kind == KILN_LOOP_FOR && path[d]->var == (*out)->vars->vars[i]) l = path[d];
    for (int d = 0; d < k->n_outer; d++) is_new &= k->outer[d] != l;
    if (!l || (is_new && k->n_outer == MAX_OUTER))
      return kiln_refuse(e, "a bound must be of at most %d loops around the loop, got %s",
                         MAX_OUTER, kiln_edit_text(e, (*out)->vars->vars[i]));
    if (is_new) k->outer[k->n_outer++] = l;
  }
  return KILN_OK;
}

// The loop runs over [0, to - from), and its variable is |from| more. That it runs at least once,
// and to the last iteration at most, is said in words that intervals understand.
static void shorten(skip *k) {
  kiln_ctx *cx = k->e.cx;
  const kiln_expr *n = kiln_sub(cx, k->to, k->from);
  k->loop->extent = kiln_edit_simplify(&k->e, kiln_binary(cx, KILN_EXPR_MAX, n, kiln_int(cx, 1)));
  if (kiln_expr_is_zero(k->from)) return;
  const kiln_expr *at =
      kiln_binary(cx, KILN_EXPR_MIN, kiln_add(cx, kiln_var(cx, k->loop->var), k->from),
                  kiln_int(cx, k->extent - 1));
  kiln_nest_substitute(cx, k->e.l, k->loop->body, 1, &k->loop->var, &at);
}

kiln_status kiln_skip(kiln_schedule *s, kiln_symbol loop, const char *from, const char *to) {
  skip k = {.e = kiln_edit_begin(s, "skip", loop)};
  kiln_edit *e = &k.e;
  KILN_TRY(kiln_edit_loop(e, loop, &k.loop));
  KILN_TRY(kiln_edit_serial(e, k.loop));
  KILN_TRY(kiln_edit_scalar(e, k.loop));
  KILN_TRY(kiln_edit_extent(e, k.loop, &k.extent));
  KILN_TRY(parse(&k, from, &k.from));
  KILN_TRY(parse(&k, to, &k.to));
  k.values = KILN_NEW_ARRAY(&e->cx->scratch, value, e->l->buffers.n);
  k.is_own = KILN_NEW_ARRAY(&e->cx->scratch, uint8_t, e->l->buffers.n);
  find_own(&k, k.loop->body);
  k.top = find_top(&k, k.loop->body);
  if (!k.top)
    return kiln_refuse(e, "loop %s must look for a maximum: online_softmax first",
                       kiln_edit_text(e, loop));
  KILN_TRY(check_tasks(&k));
  shorten(&k);
  kiln_edit_measure(e);
  return kiln_edit_commit(e, "skip %s from %s to %s", kiln_edit_word(e, loop), from, to);
}
