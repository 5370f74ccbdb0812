// If, Loop and Scan: their bodies become part of the program, once for every iteration; and
// FlexAttention, whose bodies change scores and weights.
// source: ONNX If-1, 11, 13, 16; Loop-1, 11, 13, 16; Scan-8, 9, 11, 16; FlexAttention-1
//         (ai.onnx.preview)
#include "analysis/interpret.h"
#include "fission/attention.h"
#include "fission/registry.h"
#include "fission/terms.h"
#include "fission/traversal.h"
#include "support/diag.h"

#include <string.h>

enum { MAX_STEPS = 4096 };

// --- tensors ---

bool kiln_tensor_known(const kiln_lower *lw, const kiln_tensor *t, int64_t *out) {
  if (kiln_tensor_elems(t) != 1 || kiln_dtype_is_float(t->dtype)) return false;
  if (t->role == KILN_CONST && t->data) {
    *out = kiln_element_get_int(t->dtype, t->data, 0);
    return true;
  }
  const kiln_expr *const *values = kiln_lower_values(lw, t);
  return values && kiln_expr_is_int(values[0], out);
}

kiln_status kiln_visit_graph(kiln_visit *v, const char *attr, const kiln_graph **out) {
  const kiln_attr *a = kiln_lower_attr(v->lw, attr);
  *out = NULL;
  if (!a || a->kind != KILN_ATTR_GRAPH)
    return KILN_FAIL(v->w->cx->diag, KILN_BAD_INPUT, v->lw->place, "%s: must be a graph", attr);
  *out = a->u.graph;
  return KILN_OK;
}

static kiln_tensor *scalar(kiln_visit *c, const char *name, kiln_dtype t, int64_t value) {
  int64_t data = 0;
  kiln_element_set_int(t, &data, 0, value);
  return kiln_lower_make_const(c->lw, name, t, 0, NULL, &data);
}

// Folds the |n| statements that made |x| if it is constant.
static kiln_status fold_result(kiln_visit *c, kiln_tensor *x, int n_stmts, int n_tensors,
                               kiln_tensor **io) {
  kiln_lower one = *c->lw;
  one.n_inputs = one.n_outputs = 1;
  one.inputs = &x;
  one.outputs = io;
  return kiln_fission_fold(&one, n_stmts, n_tensors);
}

// The slice of x at index |at| of |axis|; the axis is removed.
static kiln_status slice(kiln_visit *c, kiln_tensor *x, int axis, const kiln_expr *at,
                         kiln_tensor **out) {
  kiln_ctx *cx = c->lw->cx;
  const int n_stmts = c->lw->prog->stmts.n, n_tensors = c->lw->prog->tensors.n;
  const kiln_expr *extents[KILN_MAX_RANK], *index[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++)
    if (i != axis) extents[i - (i > axis)] = x->shape[i];
  kiln_stmt *s = kiln_lower_stmt(c->lw, "slice", x->dtype, x->rank - 1, 0, extents);
  kiln_stmt_vars(cx, s, 0, axis, index);
  index[axis] = at;
  kiln_stmt_vars(cx, s, axis, x->rank - 1 - axis, index + axis + 1);
  s->body = kiln_tensor_load(cx, x, index);
  *out = kiln_lower_tensor(c->lw, s);
  return fold_result(c, x, n_stmts, n_tensors, out);
}

kiln_status kiln_lower_stack(kiln_lower *lw, int n, kiln_tensor *const *parts, int64_t along,
                             kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  int axis = 0;
  if (n == 0)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "outputs of iterations: there must be at least one iteration, got none");
  KILN_TRY(kiln_lower_want_rank(lw, parts[0], 0, KILN_MAX_RANK - 1));
  KILN_TRY(kiln_lower_axis(lw, along, parts[0]->rank + 1, false, &axis));
  kiln_tensor **wide = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, n);
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int k = 0; k < n; k++) {
    KILN_TRY(kiln_lower_want_rank(lw, parts[k], parts[0]->rank, parts[0]->rank));
    for (int i = 0; i <= parts[k]->rank; i++)
      shape[i] = i == axis ? kiln_int(cx, 1) : parts[k]->shape[i - (i > axis)];
    wide[k] = kiln_lower_reshape(lw, parts[k], parts[k]->rank + 1, shape);
  }
  const kiln_attr at = {
      .name = kiln_symbol_of(cx, "axis"), .kind = KILN_ATTR_INT, .u = {.i = axis}};
  const kiln_lower_callee concat = {"", "Concat", 13, n, wide, 1, &at};
  return kiln_lower_call(lw, &concat, 1, out);
}

// The element of |t| at |at|, or 0 beyond its end, if |extents| are larger than its own.
static const kiln_expr *load_within(kiln_ctx *cx, const kiln_tensor *t, const kiln_expr *const *at,
                                    const kiln_expr *const *extents) {
  const kiln_expr *is_inside = NULL, *x = kiln_tensor_load(cx, t, at);
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] != extents[i])
      is_inside = kiln_both(cx, is_inside, kiln_compare(cx, KILN_EXPR_LT, at[i], t->shape[i]));
  return is_inside ? kiln_select(cx, is_inside, x, kiln_number(cx, t->dtype, 0)) : x;
}

// Y = is_true ? a : b.
static kiln_status choose_where(kiln_visit *c, const kiln_expr *is_true, kiln_tensor *a,
                                kiln_tensor *b, kiln_tensor **out) {
  kiln_ctx *cx = c->lw->cx;
  *out = a;
  if (a == b) return KILN_OK;
  if (a->dtype != b->dtype || a->rank != b->rank)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, c->lw->place,
                     "a condition that only the run tells must choose between tensors of one type "
                     "and rank, got %s of rank %d and %s of rank %d; give it when compiling",
                     kiln_dtype_text(a->dtype), a->rank, kiln_dtype_text(b->dtype), b->rank);
  const kiln_expr *v[KILN_MAX_RANK], *extents[KILN_MAX_RANK];
  for (int i = 0; i < a->rank; i++)
    KILN_TRY(kiln_lower_chosen_extent(c->lw, is_true, a->shape[i], b->shape[i], &extents[i]));
  kiln_stmt *s = kiln_lower_stmt(c->lw, "chosen", a->dtype, a->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, a->rank, v);
  s->body =
      kiln_select(cx, is_true, load_within(cx, a, v, extents), load_within(cx, b, v, extents));
  *out = kiln_lower_tensor(c->lw, s);
  return KILN_OK;
}

// The same with a condition that is known at run time.
static kiln_status choose(kiln_visit *c, const kiln_tensor *condition, kiln_tensor *a,
                          kiln_tensor *b, kiln_tensor **out) {
  const kiln_expr *is_true = NULL;
  *out = a;
  if (a == b) return KILN_OK;
  KILN_TRY(kiln_lower_scalar(c->lw, condition, KILN_BOOL, "the condition", &is_true));
  return choose_where(c, is_true, a, b, out);
}

// The same for values of any kind.
static kiln_status choose_held(kiln_visit *c, const kiln_tensor *condition, const kiln_held *a,
                               const kiln_held *b, kiln_held *out) {
  const int n = a->sequence ? a->sequence->n : 0;
  *out = *a;
  if (a->tensor && b->tensor) return choose(c, condition, a->tensor, b->tensor, &out->tensor);
  if (!a->sequence || !b->sequence || n != b->sequence->n)
    return KILN_FAIL(c->lw->cx->diag, KILN_UNSUPPORTED, c->lw->place,
                     "a condition that only the run tells must choose between sequences of one "
                     "length; give it when compiling");
  kiln_tensor **at = KILN_NEW_ARRAY(&c->lw->cx->perm, kiln_tensor *, n < 0 ? 0 : n);
  for (int i = 0; i < n; i++)
    KILN_TRY(choose(c, condition, a->sequence->at[i], b->sequence->at[i], &at[i]));
  kiln_sequence *s = KILN_NEW(&c->lw->cx->perm, kiln_sequence);
  *s = (kiln_sequence){n, at};
  out->sequence = s;
  return KILN_OK;
}

static kiln_status want_tensor(kiln_visit *c, const kiln_held *held, const char *what) {
  if (held->tensor) return KILN_OK;
  return KILN_FAIL(c->lw->cx->diag, KILN_BAD_INPUT, c->lw->place,
                   "%s: must be a tensor, got a sequence or an optional value", what);
}

// --- If ---

static kiln_status lower_branch(kiln_visit *c, bool taken, kiln_held *out) {
  const kiln_graph *branch = NULL;
  KILN_TRY(kiln_visit_graph(c, taken ? "then_branch" : "else_branch", &branch));
  return kiln_visit_body(c, branch, 0, NULL, c->lw->n_outputs, out);
}

// Notes the condition of the statements from |first| on.
static void note_condition(kiln_visit *c, int first) {
  const kiln_conditional made = {first, c->lw->prog->stmts.n, c->w->when};
  if (made.when) KILN_VEC_PUSH(&c->lw->cx->perm, &c->w->counts.conditional, made);
}

// The same for a branch whose condition is known at run time.
static kiln_status lower_branch_when(kiln_visit *c, bool taken, kiln_held *out) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_expr *outer = c->w->when, *is = NULL;
  KILN_TRY(kiln_lower_scalar(c->lw, c->lw->inputs[0], KILN_BOOL, "the condition", &is));
  const int first = c->lw->prog->stmts.n;
  c->w->when = kiln_both(cx, outer, taken ? is : kiln_unary(cx, KILN_EXPR_NOT, is));
  const kiln_status st = lower_branch(c, taken, out);
  note_condition(c, first);
  c->w->when = outer;
  return st;
}

static kiln_tensor *placeholder(kiln_visit *c, const char *name, const kiln_tensor *like) {
  return kiln_tensor_make(c->lw->cx, c->lw->prog, name, like->dtype, KILN_INPUT, like->rank,
                          (const kiln_expr *const *)like->shape);
}

static bool are_tensors(int n, const kiln_held *held) {
  bool are = true;
  for (int i = 0; i < n; i++) are &= held[i].tensor != NULL;
  return are;
}

static bool same_extent(const kiln_expr *a, const kiln_expr *b) {
  int64_t x = 0, y = 0;
  return a == b || (kiln_expr_is_int(a, &x) && kiln_expr_is_int(b, &y) && x == y);
}

static bool same_form(const kiln_tensor *a, const kiln_tensor *b) {
  bool same = a->dtype == b->dtype && a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++) same = same_extent(a->shape[i], b->shape[i]);
  return same;
}

// From so many evaluations on, an If runs one branch: below, a part of the plan costs more than the
// selection of both, which fuses with what surrounds it.
enum { LEAST_KEPT_WORK = 1 << 16 };

// Evaluations of the statements from |first| on, at most.
static double work_from(const kiln_visit *c, int first) {
  double work = 0;
  for (int i = first; i < c->lw->prog->stmts.n; i++) {
    const kiln_stmt *s = c->lw->prog->stmts.data[i];
    double points = 1;
    for (int d = 0; d < s->n_space + s->n_reduce; d++) {
      const kiln_expr *most = kiln_lower_upper_bound(c->lw, s->dims[d].extent);
      points *= most ? (double)kiln_expr_int_or(most, 1) : 1;
    }
    work += points;
  }
  return work;
}

// What was counted since there were |n| counts is not known outside of its branch.
static void forget_counts(kiln_visit *c, int n) {
  for (int i = n; c->w->regions && i < c->lw->counts->all.n; i++)
    c->lw->counts->all.data[i].from = -2;
}

// Makes a region of each branch; |places|: where their statements begin and end, |at|: where the
// region of the first belongs among the others.
static void keep_branches(kiln_visit *c, const int places[3], int at, const kiln_held *then,
                          const kiln_held *otherwise) {
  kiln_arena *arena = &c->lw->cx->perm;
  kiln_kept_loops *all = c->w->regions;
  kiln_kept_loop branch[2];
  for (int k = 0; k < 2; k++)
    branch[k] = (kiln_kept_loop){.kind = k ? KILN_KEPT_ELSE : KILN_KEPT_THEN,
                                 .pair = all->n_ifs,
                                 .decide = c->lw->inputs[0]->id,
                                 .first = places[k],
                                 .end = places[k + 1],
                                 .count = -1,
                                 .condition = -1,
                                 .iteration = -1,
                                 .made = -1};
  all->n_ifs++;
  for (int i = 0; i < c->lw->n_outputs; i++) {
    const kiln_tensor *a = then[i].tensor, *b = otherwise[i].tensor;
    kiln_tensor *result = placeholder(c, "chosen", a);
    KILN_VEC_PUSH(arena, &branch[0].results, ((kiln_branch_result){a->id, result->id}));
    KILN_VEC_PUSH(arena, &branch[1].results, ((kiln_branch_result){b->id, result->id}));
    c->out[i] = kiln_held_tensor(result);
  }
  KILN_VEC_PUSH(arena, &all->all, branch[1]); // room for the first
  for (int i = all->all.n - 1; i > at; i--) all->all.data[i] = all->all.data[i - 1];
  all->all.data[at] = branch[0];
  KILN_VEC_PUSH(arena, &all->all, branch[1]);
}

static kiln_status lower_if(kiln_visit *c) {
  kiln_lower *lw = c->lw;
  int64_t known = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  kiln_tensor *condition = lw->inputs[0];
  if (kiln_tensor_known(c->lw, condition, &known)) return lower_branch(c, known != 0, c->out);
  kiln_held *otherwise = KILN_NEW_ARRAY(&lw->cx->perm, kiln_held, lw->n_outputs);
  const int n_counts = lw->counts->all.n;
  int places[3] = {lw->prog->stmts.n}, at = 0;
  KILN_TRY(lower_branch_when(c, true, c->out));
  forget_counts(c, n_counts);
  places[1] = lw->prog->stmts.n;
  if (c->w->regions) at = c->w->regions->all.n;
  KILN_TRY(lower_branch_when(c, false, otherwise));
  forget_counts(c, n_counts);
  places[2] = lw->prog->stmts.n;
  bool kept = c->w->regions && are_tensors(lw->n_outputs, c->out) &&
              are_tensors(lw->n_outputs, otherwise) && work_from(c, places[0]) >= LEAST_KEPT_WORK;
  for (int i = 0; i < lw->n_outputs && kept; i++)
    kept = same_form(c->out[i].tensor, otherwise[i].tensor);
  if (kept) {
    keep_branches(c, places, at, c->out, otherwise);
    return KILN_OK;
  }
  for (int i = 0; i < lw->n_outputs; i++) {
    const kiln_held then = c->out[i];
    KILN_TRY(choose_held(c, condition, &then, &otherwise[i], &c->out[i]));
  }
  return KILN_OK;
}

// --- iterations ---

// Results of the iterations so far: the state, and for each scan output a list.
typedef struct iteration {
  const kiln_graph *body;
  int n_states, n_lists, n_done;
  kiln_held *states;    // [n_states]
  kiln_tensor ***lists; // [n_lists][most]
} iteration;

static iteration iteration_make(kiln_visit *c, const kiln_graph *body, int n_states, int n_lists,
                                int64_t most) {
  kiln_arena *arena = &c->lw->cx->perm;
  iteration it = {.body = body, .n_states = n_states, .n_lists = n_lists};
  it.states = KILN_NEW_ARRAY(arena, kiln_held, n_states);
  it.lists = KILN_NEW_ARRAY(arena, kiln_tensor **, n_lists);
  for (int i = 0; i < n_lists; i++) it.lists[i] = KILN_NEW_ARRAY(arena, kiln_tensor *, most);
  return it;
}

static kiln_status too_long(kiln_visit *c, int64_t n) {
  return KILN_FAIL(c->lw->cx->diag, KILN_UNSUPPORTED, c->lw->place,
                   "iterations are unrolled: there must be at most %d, got %" PRId64, MAX_STEPS, n);
}

// --- loops that are kept ---

// Unrolling fuses iterations and folds what is known in them, but takes compile time: a loop with a
// known number of iterations is unrolled up to so many nodes.
enum { MAX_UNROLLED_NODES = 1024 };

// The body of a loop while it is lowered once, as a region.
typedef struct keeping {
  kiln_visit *c;
  kiln_kept_loop region;
  int n_counts; // before the body
  const kiln_expr *when;
} keeping;

static kiln_tensor *integer(kiln_visit *c, const char *name) {
  return kiln_tensor_make(c->lw->cx, c->lw->prog, name, KILN_I64, KILN_INPUT, 0, NULL);
}

// Whether the extents of |t| are the same in all iterations.
static bool is_uniform(const keeping *k, const kiln_tensor *t) {
  const kiln_data_dependent_extents *counts = k->c->lw->counts;
  bool is = true;
  for (int i = k->n_counts; i < counts->all.n; i++)
    for (int a = 0; a < t->rank; a++) is &= !kiln_expr_uses(t->shape[a], counts->all.data[i].var);
  return is;
}

static void begin_region(keeping *k, kiln_visit *c) {
  *k = (keeping){.c = c, .n_counts = c->lw->counts->all.n, .when = c->w->when};
  k->region = (kiln_kept_loop){.place = kiln_node_place(c->lw->cx, c->lw->graph, c->lw->node),
                               .first = c->lw->prog->stmts.n,
                               .count = -1,
                               .condition = -1,
                               .iteration = -1,
                               .made = -1,
                               .most = INT64_MAX};
  c->w->when = NULL; // the loop itself asks
}

// What the body counts, and the statements for it, are not known outside of it.
static void end_region(keeping *k) {
  kiln_data_dependent_extents *counts = k->c->lw->counts;
  k->region.end = k->c->lw->prog->stmts.n;
  for (int i = k->n_counts; i < counts->all.n; i++) counts->all.data[i].from = -2;
  k->c->w->when = k->when;
}

static const char *form_text(kiln_visit *c, const kiln_held *held) {
  kiln_text text;
  if (!held->tensor) return "a sequence or an optional value";
  kiln_text_init(&text, &c->lw->cx->scratch);
  kiln_text_add(&text, kiln_dtype_text(held->tensor->dtype));
  kiln_text_add(&text, "[");
  for (int i = 0; i < held->tensor->rank; i++) {
    if (i > 0) kiln_text_add(&text, ", ");
    kiln_expr_print(c->lw->cx, held->tensor->shape[i], NULL, &text);
  }
  kiln_text_add(&text, "]");
  return text.data;
}

// Refuses a body whose states change their form, or whose rows differ in theirs. |in| and |out| are
// its states, |rows| its outputs that are stacked.
static kiln_status check_forms(keeping *k, int n, const kiln_held *in, const kiln_held *out,
                               int n_rows, const kiln_held *rows) {
  kiln_visit *c = k->c;
  for (int i = 0; i < n; i++)
    if (!in[i].tensor || !out[i].tensor || !same_form(in[i].tensor, out[i].tensor))
      return KILN_FAIL(
          c->lw->cx->diag, KILN_UNSUPPORTED, c->lw->place,
          "state %d: must keep its type and shape where a loop is not unrolled, got %s "
          "before and %s after an iteration",
          i, form_text(c, &in[i]), form_text(c, &out[i]));
  for (int i = 0; i < n_rows; i++)
    if (!rows[i].tensor || !is_uniform(k, rows[i].tensor))
      return KILN_FAIL(c->lw->cx->diag, KILN_UNSUPPORTED, c->lw->place,
                       "output %d of the iterations: must have one shape in all of them, got %s", i,
                       form_text(c, &rows[i]));
  return KILN_OK;
}

// An attempt to keep or to unroll a loop, after which the other may follow.
typedef struct attempt {
  size_t first, end; // its messages
  kiln_status before, status;
  int n_checks, n_regions; // before
} attempt;

static size_t messages(const kiln_visit *c) { return kiln_diag_count(c->lw->cx->diag); }

static attempt attempt_begin(const kiln_visit *c) {
  return (attempt){.first = messages(c),
                   .end = messages(c),
                   .before = c->w->status,
                   .n_checks = c->w->checks.all.n,
                   .n_regions = c->w->regions ? c->w->regions->all.n : 0};
}

// Whether the other way is worth a try: not after an error of the machine. What was lowered stays
// behind, unused.
static bool attempt_failed(kiln_visit *c, attempt *a, kiln_status status) {
  a->end = messages(c);
  a->status = status;
  if (status != KILN_UNSUPPORTED && status != KILN_BAD_INPUT) return false;
  c->w->status = a->before;
  c->w->checks.all.n = a->n_checks;
  if (c->w->regions) c->w->regions->all.n = a->n_regions;
  return true;
}

// The messages of both are left if the other way fails, too.
static kiln_status attempt_end(kiln_visit *c, const attempt *a, kiln_status other) {
  if (other == KILN_OK) kiln_diag_drop(c->lw->cx->diag, a->first, a->end);
  else kiln_diag_drop_repeated(c->lw->cx->diag, a->first, a->end);
  return other;
}

static void add_state(keeping *k, const kiln_tensor *initial, const kiln_tensor *in,
                      const kiln_tensor *next, const kiln_tensor *result) {
  const kiln_loop_state s = {initial->id, in->id, next->id, result ? result->id : -1};
  KILN_VEC_PUSH(&k->c->lw->cx->perm, &k->region.states, s);
}

// A result with a row of each iteration; |n| iterations.
static kiln_tensor *add_rows(keeping *k, const kiln_tensor *row, const kiln_expr *n,
                             bool backwards) {
  const kiln_expr *shape[KILN_MAX_RANK + 1] = {n};
  for (int a = 0; a < row->rank; a++) shape[1 + a] = row->shape[a];
  kiln_tensor *whole = kiln_tensor_make(k->c->lw->cx, k->c->lw->prog, "rows", row->dtype,
                                        KILN_INPUT, row->rank + 1, shape);
  const kiln_loop_row r = {whole->id, row->id, backwards, true};
  KILN_VEC_PUSH(&k->c->lw->cx->perm, &k->region.rows, r);
  return whole;
}

static void keep_region(keeping *k) {
  KILN_VEC_PUSH(&k->c->lw->cx->perm, &k->c->w->regions->all, k->region);
}

// --- Loop ---

typedef struct loop {
  kiln_visit *c;
  iteration it;
  int64_t most;           // iterations
  bool is_counted;        // |most| is known, or there is none
  kiln_tensor *goes_on;   // the condition
  const kiln_tensor *ran; // whether this iteration runs, if only known at run time; else NULL
} loop;

// Updates the state by that of an iteration, if the iteration ran.
static kiln_status take_states(loop *l, const kiln_held *made) {
  for (int i = 0; i < l->it.n_states; i++) {
    const kiln_held before = l->it.states[i];
    l->it.states[i] = made[i];
    if (l->ran) KILN_TRY(choose_held(l->c, l->ran, &made[i], &before, &l->it.states[i]));
  }
  return KILN_OK;
}

// The next iteration runs if this one did and its condition is true.
static kiln_status take_condition(loop *l, kiln_tensor *made) {
  kiln_tensor *never = scalar(l->c, "never", KILN_BOOL, 0);
  l->goes_on = made;
  if (!l->ran) return KILN_OK;
  kiln_tensor *flat = kiln_lower_reshape(l->c->lw, made, 0, NULL);
  return choose(l->c, l->ran, flat, never, &l->goes_on);
}

// Lowers the body of an iteration that may not run.
static kiln_status lower_body(loop *l, int n_in, const kiln_held *in, int n_out, kiln_held *out) {
  kiln_visit *c = l->c;
  const kiln_expr *outer = c->w->when, *ran = NULL;
  if (l->ran) KILN_TRY(kiln_lower_scalar(c->lw, l->ran, KILN_BOOL, "the condition", &ran));
  const int first = c->lw->prog->stmts.n;
  c->w->when = kiln_both(c->lw->cx, outer, ran);
  const kiln_status st = kiln_visit_body(c, l->it.body, n_in, in, n_out, out);
  note_condition(c, first);
  c->w->when = outer;
  return st;
}

// The arguments of the body in this iteration.
static kiln_held *body_inputs(const loop *l) {
  const int n = l->it.n_states;
  kiln_held *in = KILN_NEW_ARRAY(&l->c->lw->cx->perm, kiln_held, 2 + n);
  in[0] = kiln_held_tensor(scalar(l->c, "iteration", KILN_I64, l->it.n_done));
  in[1] = kiln_held_tensor(l->goes_on);
  for (int i = 0; i < n; i++) in[2 + i] = l->it.states[i];
  return in;
}

static kiln_status iterate(loop *l) {
  kiln_visit *c = l->c;
  const int n = l->it.n_states, n_outputs = 1 + n + l->it.n_lists;
  kiln_held *out = KILN_NEW_ARRAY(&c->lw->cx->perm, kiln_held, n_outputs);
  KILN_TRY(lower_body(l, 2 + n, body_inputs(l), n_outputs, out));
  KILN_TRY(want_tensor(c, &out[0], "the condition"));
  KILN_TRY(take_states(l, out + 1));
  for (int i = 0; i < l->it.n_lists; i++) {
    KILN_TRY(want_tensor(c, &out[1 + n + i], "an output of iterations"));
    l->it.lists[i][l->it.n_done] = out[1 + n + i].tensor;
  }
  l->it.n_done++;
  return take_condition(l, out[0].tensor);
}

// Whether another iteration runs, or may run.
static kiln_status has_next(loop *l, bool *out) {
  int64_t known = 0;
  *out = false;
  if (l->it.n_done >= l->most) return KILN_OK;
  if (kiln_tensor_known(l->c->lw, l->goes_on, &known)) {
    *out = known != 0;
  } else if (l->it.n_lists > 0) {
    return KILN_FAIL(l->c->lw->cx->diag, KILN_UNSUPPORTED, l->c->lw->place,
                     "outputs of iterations: the condition must be known when compiling, where the "
                     "loop is unrolled, got a computed one");
  } else {
    l->ran = l->goes_on;
    *out = true;
  }
  if (*out && l->it.n_done >= MAX_STEPS) return too_long(l->c, l->it.n_done + 1);
  return KILN_OK;
}

static bool may_be_kept(const loop *l) {
  return l->c->w->regions && are_tensors(l->it.n_states, l->it.states);
}

// Whether unrolling would take long, or the run alone knows when it ends.
static bool is_kept(const loop *l) {
  const kiln_visit *c = l->c;
  bool known = true;
  if (!may_be_kept(l)) return false;
  for (int i = 0; i < c->lw->n_inputs; i++)
    known &= !c->lw->inputs[i] || c->lw->inputs[i]->role == KILN_CONST;
  const kiln_tensor *count = c->lw->inputs[0];
  const int64_t nodes = l->it.body->n_nodes > 0 ? l->it.body->n_nodes : 1;
  if (count && l->most != INT64_MAX) return l->most > MAX_UNROLLED_NODES / nodes;
  return !known;
}

// The condition before the first iteration, of rank 0: that of the loop, and of its surroundings.
static kiln_status first_condition(loop *l, kiln_tensor **out) {
  kiln_lower *lw = l->c->lw;
  const kiln_expr *is = NULL;
  *out = kiln_lower_reshape(lw, l->goes_on, 0, NULL);
  if (!l->c->w->when) return KILN_OK;
  kiln_stmt *s = kiln_lower_stmt(lw, "runs", KILN_BOOL, 0, 0, NULL);
  KILN_TRY(kiln_lower_scalar(lw, l->goes_on, KILN_BOOL, "the condition", &is));
  s->body = kiln_both(lw->cx, l->c->w->when, is);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static bool is_true(const loop *l, const kiln_tensor *t) {
  int64_t known = 0;
  return kiln_tensor_known(l->c->lw, t, &known) && known != 0;
}

// Lowers the body once, so that the plan can repeat it.
//
// errors: KILN_UNSUPPORTED: the states do not keep their form; and those of the body
static kiln_status keep_loop(loop *l) {
  kiln_visit *c = l->c;
  kiln_lower *lw = c->lw;
  kiln_arena *arena = &lw->cx->perm;
  const int n = l->it.n_states, n_lists = l->it.n_lists, n_out = 1 + n + n_lists;
  kiln_held *in = KILN_NEW_ARRAY(arena, kiln_held, 2 + n);
  kiln_held *out = KILN_NEW_ARRAY(arena, kiln_held, n_out);
  kiln_tensor *goes_on = NULL;
  keeping k;
  KILN_TRY(first_condition(l, &goes_on));
  in[0] = kiln_held_tensor(integer(c, "iteration"));
  in[1] = kiln_held_tensor(is_true(l, goes_on) ? goes_on : placeholder(c, "goes_on", goes_on));
  for (int i = 0; i < n; i++)
    in[2 + i] = kiln_held_tensor(placeholder(c, "state", l->it.states[i].tensor));
  begin_region(&k, c);
  kiln_status st = kiln_visit_body(c, l->it.body, 2 + n, in, n_out, out);
  if (st == KILN_OK) st = want_tensor(c, &out[0], "the condition");
  if (st == KILN_OK) out[0].tensor = kiln_lower_reshape(lw, out[0].tensor, 0, NULL);
  end_region(&k);
  if (st == KILN_OK) st = check_forms(&k, n, in + 2, out + 1, n_lists, out + 1 + n);
  KILN_TRY(st);
  const bool ends_by_count = is_true(l, in[1].tensor) && is_true(l, out[0].tensor);
  const bool is_counted = l->most != INT64_MAX;
  k.region.iteration = in[0].tensor->id;
  if (!is_counted && lw->inputs[0]) k.region.count = lw->inputs[0]->id;
  k.region.most = is_counted ? l->most : INT64_MAX;
  for (int i = 0; i < n; i++) {
    c->out[i] = kiln_held_tensor(placeholder(c, "state", in[2 + i].tensor));
    add_state(&k, l->it.states[i].tensor, in[2 + i].tensor, out[1 + i].tensor, c->out[i].tensor);
  }
  if (!ends_by_count) {
    // A condition that was true at first is a state of its own from then on.
    kiln_tensor *now = in[1].tensor == goes_on ? placeholder(c, "goes_on", goes_on) : in[1].tensor;
    k.region.condition = k.region.states.n;
    add_state(&k, goes_on, now, out[0].tensor, NULL);
  }
  const kiln_expr *rows = kiln_int(lw->cx, l->most);
  if (n_lists > 0 && !(is_counted && ends_by_count)) {
    kiln_tensor *made = integer(c, "iterations");
    const int64_t most = is_counted ? l->most : kiln_lower_assumed_extent(lw);
    k.region.made = made->id;
    k.region.most = most;
    k.region.is_limit = !is_counted;
    rows = kiln_lower_count(lw, made, most, !is_counted);
  }
  for (int i = 0; i < n_lists; i++)
    c->out[n + i] = kiln_held_tensor(add_rows(&k, out[1 + n + i].tensor, rows, false));
  keep_region(&k);
  return KILN_OK;
}

// The rows of no iteration: the body is lowered for their form alone.
static kiln_status no_rows(kiln_visit *c, const kiln_graph *body, int n_in, const kiln_held *in,
                           int n_states, int n_rows, const int64_t *axes, kiln_held *rows) {
  kiln_lower *lw = c->lw;
  kiln_held *made = KILN_NEW_ARRAY(&lw->cx->perm, kiln_held, n_states + n_rows);
  const int n_checks = c->w->checks.all.n, n_regions = c->w->regions ? c->w->regions->all.n : 0;
  KILN_TRY(kiln_visit_body(c, body, n_in, in, n_states + n_rows, made));
  c->w->checks.all.n = n_checks;
  if (c->w->regions) c->w->regions->all.n = n_regions;
  for (int i = 0; i < n_rows; i++) {
    const kiln_expr *shape[KILN_MAX_RANK];
    int axis = 0;
    const kiln_tensor *row = made[n_states + i].tensor;
    KILN_TRY(want_tensor(c, &made[n_states + i], "an output of iterations"));
    KILN_TRY(kiln_lower_want_rank(lw, row, 0, KILN_MAX_RANK - 1));
    KILN_TRY(kiln_lower_axis(lw, axes ? axes[i] : 0, row->rank + 1, false, &axis));
    for (int a = 0; a <= row->rank; a++)
      shape[a] = a == axis ? kiln_int(lw->cx, 0) : row->shape[a - (a > axis)];
    kiln_stmt *s = kiln_lower_stmt(lw, "no_rows", row->dtype, row->rank + 1, 0, shape);
    s->body = kiln_number(lw->cx, row->dtype, 0);
    rows[i] = kiln_held_tensor(kiln_lower_tensor(lw, s));
  }
  return KILN_OK;
}

static kiln_status unroll_loop(loop *l) {
  kiln_visit *c = l->c;
  const int n = l->it.n_states, n_lists = l->it.n_lists;
  bool more = false;
  KILN_TRY(has_next(l, &more));
  while (more) {
    KILN_TRY(iterate(l));
    KILN_TRY(has_next(l, &more));
  }
  for (int i = 0; i < n; i++) c->out[i] = l->it.states[i];
  if (l->it.n_done == 0 && n_lists > 0)
    return no_rows(c, l->it.body, 2 + n, body_inputs(l), 1 + n, n_lists, NULL, c->out + n);
  for (int i = 0; i < n_lists; i++)
    KILN_TRY(kiln_lower_stack(c->lw, l->it.n_done, l->it.lists[i], 0, &c->out[n + i].tensor));
  return KILN_OK;
}

static loop loop_begin(kiln_visit *c, const kiln_graph *body, int n_states, int n_lists) {
  kiln_tensor *const *in = c->lw->inputs;
  loop l = {.c = c, .it = iteration_make(c, body, n_states, n_lists, MAX_STEPS), .most = INT64_MAX};
  l.is_counted = !in[0] || kiln_tensor_known(c->lw, in[0], &l.most);
  if (l.most < 0) l.most = 0;
  l.goes_on = in[1] ? in[1] : scalar(c, "goes_on", KILN_BOOL, 1);
  for (int i = 0; i < n_states; i++) l.it.states[i] = c->in[2 + i];
  return l;
}

// A loop is kept or unrolled, whichever seems better, or else the other.
static kiln_status lower_loop(kiln_visit *c) {
  kiln_lower *lw = c->lw;
  const kiln_graph *body = NULL;
  KILN_TRY(kiln_visit_graph(c, "body", &body));
  const int n_states = lw->n_inputs - 2, n_lists = lw->n_outputs - n_states;
  if (n_states < 0 || n_lists < 0 || body->n_outputs != 1 + lw->n_outputs)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "Loop: must have 2 inputs before its states and as many outputs as its body "
                     "without the condition, got %d inputs, %d outputs and %d of the body",
                     lw->n_inputs, lw->n_outputs, body->n_outputs);
  loop l = loop_begin(c, body, n_states, n_lists);
  attempt first = attempt_begin(c);
  const bool keeps = is_kept(&l);
  if (!keeps && !l.is_counted)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     c->w->regions ? "states: must be tensors where the number of iterations is "
                                     "not known when compiling"
                                   : "input 0 (the number of iterations): must be known when "
                                     "compiling");
  if (!attempt_failed(c, &first, keeps ? keep_loop(&l) : unroll_loop(&l))) return first.status;
  l = loop_begin(c, body, n_states, n_lists);
  if (keeps ? !l.is_counted : !may_be_kept(&l)) return first.status;
  return attempt_end(c, &first, keeps ? unroll_loop(&l) : keep_loop(&l));
}

// --- Scan ---

typedef struct scan {
  kiln_visit *c;
  const kiln_graph *body;
  int n_states, n_in, n_out;   // states, scan inputs and scan outputs
  int64_t *in_axes, *out_axes; // [n_in], [n_out]
  int64_t *in_backwards, *out_backwards;
  const kiln_expr *length; // of the scanned axes
} scan;

static kiln_status read_list(kiln_visit *c, const char *attr, int n, int64_t **out) {
  int have = 0;
  const int64_t *values = NULL;
  *out = KILN_NEW_ARRAY(&c->lw->cx->perm, int64_t, n);
  KILN_TRY(kiln_lower_ints(c->lw, attr, &have, &values));
  if (have >= 0 && have != n)
    return KILN_FAIL(c->lw->cx->diag, KILN_BAD_INPUT, c->lw->place,
                     "%s: must have %d numbers, got %d", attr, n, have);
  for (int i = 0; i < have; i++) (*out)[i] = values[i];
  return KILN_OK;
}

// |x| with |axis| first, or, |back|, with its first axis at |axis|.
static kiln_tensor *move_axis(kiln_visit *c, kiln_tensor *x, int axis, bool back) {
  int perm[KILN_MAX_RANK], n = 0;
  if (!back) perm[n++] = axis;
  for (int a = 0; a < x->rank; a++) {
    if (back && n == axis) perm[n++] = 0;
    if (back ? a > 0 : a != axis) perm[n++] = a;
  }
  if (back && n < x->rank) perm[n++] = 0;
  return kiln_lower_transpose(c->lw, x, perm);
}

// Stands for any of the rows of |whole|.
static kiln_tensor *row_of(kiln_visit *c, const kiln_tensor *whole) {
  return kiln_tensor_make(c->lw->cx, c->lw->prog, "row", whole->dtype, KILN_INPUT, whole->rank - 1,
                          (const kiln_expr *const *)whole->shape + 1);
}

// Lowers the body once, so that the plan can repeat it.
//
// errors: KILN_UNSUPPORTED: the states do not keep their form; and those of the body
static kiln_status keep_scan(scan *s, int64_t steps, kiln_tensor *const *in, kiln_tensor **out) {
  kiln_visit *c = s->c;
  kiln_arena *arena = &c->lw->cx->perm;
  const int n_in = s->n_states + s->n_in, n_out = s->n_states + s->n_out;
  kiln_held *args = KILN_NEW_ARRAY(arena, kiln_held, n_in);
  kiln_held *made = KILN_NEW_ARRAY(arena, kiln_held, n_out);
  kiln_tensor **whole = KILN_NEW_ARRAY(arena, kiln_tensor *, s->n_in);
  keeping k;
  for (int i = 0; i < s->n_states; i++) args[i] = kiln_held_tensor(placeholder(c, "state", in[i]));
  for (int i = 0; i < s->n_in; i++) {
    int axis = 0;
    kiln_tensor *x = in[s->n_states + i];
    KILN_TRY(kiln_lower_axis(c->lw, s->in_axes[i], x->rank, false, &axis));
    whole[i] = move_axis(c, x, axis, false);
    args[s->n_states + i] = kiln_held_tensor(row_of(c, whole[i]));
  }
  begin_region(&k, c);
  kiln_status st = kiln_visit_body(c, s->body, n_in, args, n_out, made);
  end_region(&k);
  if (st == KILN_OK) st = check_forms(&k, s->n_states, args, made, s->n_out, made + s->n_states);
  KILN_TRY(st);
  k.region.most = steps;
  for (int i = 0; i < s->n_states; i++) {
    out[i] = placeholder(c, "state", args[i].tensor);
    add_state(&k, in[i], args[i].tensor, made[i].tensor, out[i]);
  }
  for (int i = 0; i < s->n_in; i++) {
    const kiln_loop_row r = {whole[i]->id, args[s->n_states + i].tensor->id,
                             s->in_backwards[i] != 0, false};
    KILN_VEC_PUSH(arena, &k.region.rows, r);
  }
  for (int i = 0; i < s->n_out; i++)
    out[s->n_states + i] = add_rows(&k, made[s->n_states + i].tensor, kiln_int(c->lw->cx, steps),
                                    s->out_backwards[i] != 0);
  keep_region(&k);
  for (int i = 0; i < s->n_out; i++) {
    int axis = 0;
    kiln_tensor **y = &out[s->n_states + i];
    KILN_TRY(kiln_lower_axis(c->lw, s->out_axes[i], (*y)->rank, false, &axis));
    *y = move_axis(c, *y, axis, true);
  }
  return KILN_OK;
}

// The number of iterations over the scan inputs, at most |*out|.
static kiln_status count_steps(scan *s, kiln_tensor *const *in, int64_t *out) {
  kiln_visit *c = s->c;
  for (int i = 0; i < s->n_in; i++) {
    int axis = 0;
    const kiln_tensor *x = in[s->n_states + i];
    KILN_TRY(kiln_lower_axis(c->lw, s->in_axes[i], x->rank, false, &axis));
    if (i == 0) KILN_TRY(kiln_lower_steps(c->lw, x, axis, out));
    if (i == 0) s->length = x->shape[axis];
    KILN_TRY(kiln_lower_want_extent(c->lw, x, axis, s->length));
  }
  return KILN_OK;
}

// What the body reads in iteration |k|: the states, then a row of each scan input. Where the length
// is named, iterations behind it read any row.
static kiln_status scan_arguments(scan *s, int64_t k, kiln_tensor *const *in, kiln_held *args) {
  kiln_ctx *cx = s->c->lw->cx;
  const kiln_expr *first = kiln_int(cx, k), *zero = kiln_int(cx, 0);
  const kiln_expr *last = kiln_sub(cx, s->length, kiln_int(cx, k + 1));
  for (int i = 0; i < s->n_in; i++) {
    kiln_tensor *x = in[s->n_states + i];
    const int axis = (int)(s->in_axes[i] < 0 ? s->in_axes[i] + x->rank : s->in_axes[i]);
    const kiln_expr *at = s->in_backwards[i] ? kiln_most(cx, last, zero) : first;
    KILN_TRY(slice(s->c, x, axis, at, &args[s->n_states + i].tensor));
  }
  return KILN_OK;
}

// The first rows of |y|, as many as iterations ran; from the last one if |backwards|.
static void cut_rows(scan *s, int64_t along, bool backwards, kiln_tensor **y) {
  kiln_lower *lw = s->c->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *all = *y;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  const int axis = (int)(along < 0 ? along + all->rank : along);
  for (int i = 0; i < all->rank; i++) extents[i] = i == axis ? s->length : all->shape[i];
  kiln_stmt *cut = kiln_lower_stmt(lw, "rows", all->dtype, all->rank, 0, extents);
  kiln_stmt_vars(cx, cut, 0, all->rank, at);
  if (backwards) at[axis] = kiln_sub(cx, kiln_sub(cx, s->length, kiln_int(cx, 1)), at[axis]);
  cut->body = kiln_tensor_load(cx, all, at);
  *y = kiln_lower_tensor(lw, cut);
}

// Lowers the body for iteration |k|, under the condition |runs| unless that is NULL.
static kiln_status scan_body(scan *s, const kiln_expr *runs, const kiln_held *args,
                             kiln_held *made) {
  kiln_visit *c = s->c;
  const int first = c->lw->prog->stmts.n, n_out = s->n_states + s->n_out;
  const kiln_expr *outer = c->w->when;
  c->w->when = kiln_both(c->lw->cx, outer, runs);
  const kiln_status st = kiln_visit_body(c, s->body, s->n_states + s->n_in, args, n_out, made);
  if (runs) note_condition(c, first);
  c->w->when = outer;
  KILN_TRY(st);
  for (int i = 0; i < n_out; i++) KILN_TRY(want_tensor(c, &made[i], "an output of the body"));
  return KILN_OK;
}

static kiln_status unroll_scan(scan *s, int64_t steps, kiln_tensor *const *in, kiln_tensor **out) {
  kiln_visit *c = s->c;
  kiln_ctx *cx = c->lw->cx;
  const bool is_named = !kiln_expr_is_int(s->length, NULL);
  if (steps > MAX_STEPS) return too_long(c, steps);
  iteration it = iteration_make(c, s->body, s->n_states, s->n_out, steps);
  kiln_held *args = KILN_NEW_ARRAY(&cx->perm, kiln_held, s->n_states + s->n_in);
  kiln_held *made = KILN_NEW_ARRAY(&cx->perm, kiln_held, s->n_states + s->n_out);
  for (int i = 0; i < s->n_states; i++) args[i] = kiln_held_tensor(in[i]);
  for (; it.n_done < steps; it.n_done++) {
    const kiln_expr *runs = NULL;
    if (is_named) runs = kiln_compare(cx, KILN_EXPR_LT, kiln_int(cx, it.n_done), s->length);
    KILN_TRY(scan_arguments(s, it.n_done, in, args));
    KILN_TRY(scan_body(s, runs, args, made));
    for (int i = 0; i < s->n_states && is_named; i++)
      KILN_TRY(choose_where(c, runs, made[i].tensor, args[i].tensor, &made[i].tensor));
    for (int i = 0; i < s->n_states; i++) args[i] = made[i];
    for (int i = 0; i < s->n_out; i++)
      it.lists[i][s->out_backwards[i] && !is_named ? steps - 1 - it.n_done : it.n_done] =
          made[s->n_states + i].tensor;
  }
  for (int i = 0; i < s->n_states; i++) out[i] = args[i].tensor;
  for (int i = 0; i < s->n_out; i++) {
    kiln_tensor **y = &out[s->n_states + i];
    KILN_TRY(kiln_lower_stack(c->lw, it.n_done, it.lists[i], s->out_axes[i], y));
    if (is_named) cut_rows(s, s->out_axes[i], s->out_backwards[i] != 0, y);
  }
  return KILN_OK;
}

// No iteration: the states stay.
static kiln_status scan_none(scan *s, kiln_tensor *const *in, kiln_tensor **out) {
  kiln_visit *c = s->c;
  kiln_arena *arena = &c->lw->cx->perm;
  kiln_held *args = KILN_NEW_ARRAY(arena, kiln_held, s->n_states + s->n_in);
  kiln_held *rows = KILN_NEW_ARRAY(arena, kiln_held, s->n_out);
  for (int i = 0; i < s->n_states; i++) args[i] = kiln_held_tensor(out[i] = in[i]);
  for (int i = 0; i < s->n_in; i++) {
    int axis = 0;
    kiln_tensor *x = in[s->n_states + i];
    KILN_TRY(kiln_lower_axis(c->lw, s->in_axes[i], x->rank, false, &axis));
    args[s->n_states + i] = kiln_held_tensor(row_of(c, move_axis(c, x, axis, false)));
  }
  KILN_TRY(
      no_rows(c, s->body, s->n_states + s->n_in, args, s->n_states, s->n_out, s->out_axes, rows));
  for (int i = 0; i < s->n_out; i++) out[s->n_states + i] = rows[i].tensor;
  return KILN_OK;
}

// Scans |in|; |in| and |out| begin with the states.
static kiln_status scan_all(scan *s, kiln_tensor *const *in, kiln_tensor **out) {
  kiln_visit *c = s->c;
  const int64_t nodes = s->body->n_nodes > 0 ? s->body->n_nodes : 1;
  int64_t steps = 0;
  KILN_TRY(count_steps(s, in, &steps));
  if (steps == 0) return scan_none(s, in, out);
  attempt kept = attempt_begin(c);
  const bool is_long =
      c->w->regions && kiln_expr_is_int(s->length, NULL) && steps > MAX_UNROLLED_NODES / nodes;
  if (is_long && !attempt_failed(c, &kept, keep_scan(s, steps, in, out))) return kept.status;
  return attempt_end(c, &kept, unroll_scan(s, steps, in, out));
}

// Opset 8: all tensors have a leading batch axis, and its elements are scanned separately.
static kiln_status scan_batch(scan *s, kiln_tensor *const *in, kiln_tensor **out) {
  kiln_visit *c = s->c;
  kiln_arena *arena = &c->lw->cx->perm;
  const int n_in = s->n_states + s->n_in, n_out = s->n_states + s->n_out;
  int64_t batch = 0;
  for (int i = 0; i < n_in; i++) {
    KILN_TRY(kiln_lower_want_rank(c->lw, in[i], 1, KILN_MAX_RANK));
    if (i == 0) KILN_TRY(kiln_lower_extent(c->lw, in[i], 0, &batch));
    KILN_TRY(kiln_lower_want_extent(c->lw, in[i], 0, kiln_int(c->lw->cx, batch)));
  }
  if (batch > MAX_STEPS) return too_long(c, batch);
  kiln_tensor **one = KILN_NEW_ARRAY(arena, kiln_tensor *, n_in);
  kiln_tensor **made = KILN_NEW_ARRAY(arena, kiln_tensor *, n_out);
  iteration all = iteration_make(c, s->body, 0, n_out, batch);
  for (; all.n_done < batch; all.n_done++) {
    for (int i = 0; i < n_in; i++)
      KILN_TRY(slice(c, in[i], 0, kiln_int(c->lw->cx, all.n_done), &one[i]));
    KILN_TRY(scan_all(s, one, made));
    for (int i = 0; i < n_out; i++) all.lists[i][all.n_done] = made[i];
  }
  for (int i = 0; i < n_out; i++)
    KILN_TRY(kiln_lower_stack(c->lw, all.n_done, all.lists[i], 0, &out[i]));
  return KILN_OK;
}

static kiln_status lower_scan(kiln_visit *c) {
  kiln_lower *lw = c->lw;
  const bool batched = lw->node->opset < 9;
  scan s = {.c = c};
  int64_t n_scanned = 0;
  KILN_TRY(kiln_visit_graph(c, "body", &s.body));
  KILN_TRY(kiln_lower_int(lw, "num_scan_inputs", 0, &n_scanned));
  if (batched && lw->n_inputs > 0 && lw->inputs[0])
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "input 0 (sequence_lens): must be omitted, got a tensor");
  const int n_inputs = lw->n_inputs - (batched ? 1 : 0);
  if (n_scanned < 1 || n_scanned > n_inputs || lw->n_outputs < n_inputs - n_scanned)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "num_scan_inputs: must lie in [1, %d], with an output for each other input, "
                     "got %" PRId64,
                     n_inputs, n_scanned);
  s.n_in = (int)n_scanned;
  s.n_states = n_inputs - s.n_in;
  s.n_out = lw->n_outputs - s.n_states;
  KILN_TRY(read_list(c, "scan_input_axes", s.n_in, &s.in_axes));
  KILN_TRY(read_list(c, "scan_output_axes", s.n_out, &s.out_axes));
  KILN_TRY(read_list(c, batched ? "directions" : "scan_input_directions", s.n_in, &s.in_backwards));
  KILN_TRY(read_list(c, "scan_output_directions", s.n_out, &s.out_backwards));
  KILN_TRY(kiln_lower_want_inputs(lw, batched ? 0 : n_inputs, INT32_MAX));
  KILN_TRY(batched ? scan_batch(&s, lw->inputs + 1, lw->outputs)
                   : scan_all(&s, lw->inputs, lw->outputs));
  for (int i = 0; i < lw->n_outputs; i++) c->out[i] = kiln_held_tensor(lw->outputs[i]);
  return KILN_OK;
}

// --- FlexAttention ---

// Lowers the body for |stage| over |x|, if the node has one; it must keep shape and type.
static kiln_status modify(void *modifier, kiln_attention_stage stage, kiln_tensor **x) {
  kiln_visit *c = modifier;
  const char *name = stage == KILN_ATTENTION_WEIGHTS ? "prob_mod" : "score_mod";
  const kiln_graph *body = NULL;
  const kiln_held in = kiln_held_tensor(*x);
  kiln_held out = {0};
  if (!kiln_lower_attr(c->lw, name)) return KILN_OK;
  KILN_TRY(kiln_visit_graph(c, name, &body));
  KILN_TRY(kiln_visit_body(c, body, 1, &in, 1, &out));
  KILN_TRY(want_tensor(c, &out, name));
  kiln_tensor *y = out.tensor;
  KILN_TRY(kiln_lower_want_rank(c->lw, y, 4, 4));
  for (int i = 0; i < 4; i++) KILN_TRY(kiln_lower_want_extent(c->lw, y, i, (*x)->shape[i]));
  return kiln_lower_cast(c->lw, y, (*x)->dtype, x);
}

static kiln_status lower_flex_attention(kiln_visit *c) {
  kiln_lower *lw = c->lw;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
  for (int i = 0; i < 3; i++)
    KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[0], 4, 4));
  kiln_attention_call a = {.q = lw->inputs[0],
                           .k = lw->inputs[1],
                           .v = lw->inputs[2],
                           .past = kiln_int(lw->cx, 0),
                           .left = -1,
                           .right = -1,
                           .modify = modify,
                           .modifier = c};
  KILN_TRY(kiln_lower_softmax_precision(lw, a.q, &a.softmax));
  KILN_TRY(kiln_lower_float(lw, "scale", 0, &a.scale));
  return kiln_lower_attention(lw, &a, &c->out[0].tensor, KILN_ATTENTION_WEIGHTS, NULL);
}

// --- the table ---

kiln_visitor kiln_find_control(const kiln_lower *lw) {
  static const struct {
    const char *domain, *name;
    kiln_visitor lower;
  } rows[] = {{"", "If", lower_if},
              {"", "Loop", lower_loop},
              {"", "Scan", lower_scan},
              {"ai.onnx.preview", "FlexAttention", lower_flex_attention}};
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (kiln_lower_is(lw, rows[i].domain, rows[i].name)) return rows[i].lower;
  return NULL;
}
