// A contraction along an axis in which a tensor is repeated reads it once, with summed weights: [X;
// X] W = X (W_1 + W_2).
#include "analysis/interpret.h"
#include "analysis/simplify.h"
#include "rewrite/dce.h"
#include "rewrite/rules.h"

enum { MAX_TIMES = 8 };

typedef struct repeat {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *s;
  const kiln_expr *x, *w;
  int dim;   // of the contraction: the repeated axis
  int axis;  // of the weights: the axis indexed by |dim|
  int64_t n; // elements of one repetition
  int times; // number of repetitions
} repeat;

// The axis of |load| indexed by |var|, which must occur nowhere else in it; -1: none.
static int axis_at(const kiln_expr *load, kiln_symbol var) {
  int axis = -1;
  for (int k = 0; k < load->n_args; k++) {
    if (!kiln_expr_uses(load->args[k], var)) continue;
    if (load->args[k]->kind != KILN_EXPR_VAR || axis >= 0) return -1;
    axis = k;
  }
  return axis;
}

// The contraction's operand, read through |mover|, |offset| elements further along the dim; assumes
// that |n| elements are read.
static const kiln_expr *read_at(const repeat *r, const kiln_stmt *mover, int64_t offset,
                                int64_t n) {
  const kiln_mark mark = kiln_arena_mark(&r->cx->scratch);
  const kiln_symbol var = r->s->dims[r->dim].name;
  kiln_ranges ranges = kiln_stmt_ranges(&r->cx->scratch, r->s);
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *index[KILN_MAX_RANK];
  const kiln_expr *shifted = kiln_add(r->cx, kiln_var(r->cx, var), kiln_int(r->cx, offset));
  kiln_ranges_push(&ranges, var, 0, n - 1);
  for (int k = 0; k < r->x->n_args; k++) {
    vars[k] = mover->dims[k].name;
    index[k] = kiln_expr_substitute(r->cx, r->x->args[k], 1, &var, &shifted);
  }
  const kiln_expr *e = kiln_simplify(
      r->cx, kiln_expr_substitute(r->cx, mover->body, r->x->n_args, vars, index), &ranges);
  kiln_arena_rewind(&r->cx->scratch, mark);
  return e;
}

// gives: the operand of each repetition; NULL: they differ, or are not single loads
static const kiln_expr *find_period(repeat *r, const kiln_stmt *mover) {
  const int64_t extent = kiln_expr_int_or(r->s->dims[r->dim].extent, -1);
  for (r->times = MAX_TIMES; r->times > 1; r->times--) {
    if (extent % r->times) continue;
    r->n = extent / r->times;
    const kiln_expr *first = read_at(r, mover, 0, r->n);
    bool same = first->kind == KILN_EXPR_LOAD;
    for (int i = 1; i < r->times && same; i++) same = read_at(r, mover, i * r->n, r->n) == first;
    if (same) return first;
  }
  return NULL;
}

// The sum of the repetitions' weights.
static const kiln_tensor *sum_weights(repeat *r) {
  const kiln_tensor *w = r->p->tensors.data[r->w->u.tensor];
  const int64_t bytes = kiln_dtype_bytes(w->dtype);
  kiln_const c = {.dtype = w->dtype, .rank = w->rank};
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < w->rank; k++) {
    c.shape[k] = k == r->axis ? r->n : kiln_expr_int_or(w->shape[k], -1);
    if (k != r->axis) *(k < r->axis ? &outer : &inner) *= c.shape[k];
  }
  c.bytes = (size_t)(outer * r->n * inner * bytes);
  void *data = kiln_arena_alloc(&r->cx->perm, c.bytes + 1);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < r->n * inner; i++) {
      double sum = 0;
      for (int k = 0; k < r->times; k++)
        sum += kiln_element_get(w->dtype, w->data, (o * r->times + k) * r->n * inner + i);
      kiln_element_set(w->dtype, data, o * r->n * inner + i, sum);
    }
  c.data = data;
  return kiln_tensor_make_const(r->cx, r->p, kiln_symbol_text(r->cx, w->name), &c);
}

// Whether |s| is a contraction of a tensor with a float constant.
static bool is_contraction(repeat *r, kiln_stmt *s) {
  if (s->combiner != KILN_COMBINE_SUM || s->guard || !kiln_stmt_is_plain(r->cx, s) ||
      s->body->kind != KILN_EXPR_MUL || s->body->args[0]->kind != KILN_EXPR_LOAD ||
      s->body->args[1]->kind != KILN_EXPR_LOAD)
    return false;
  const bool first = r->p->tensors.data[s->body->args[0]->u.tensor]->role == KILN_CONST;
  r->s = s;
  r->w = s->body->args[!first];
  r->x = s->body->args[first];
  const kiln_tensor *w = r->p->tensors.data[r->w->u.tensor];
  return w->role == KILN_CONST && w->data && kiln_dtype_is_float(w->dtype);
}

static const kiln_stmt *mover_of(const repeat *r) {
  const int def = r->p->tensors.data[r->x->u.tensor]->def;
  const kiln_stmt *s = def < 0 ? NULL : r->p->stmts.data[def];
  return s && s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
                 s->body->kind == KILN_EXPR_SELECT && kiln_stmt_is_plain(r->cx, s)
             ? s
             : NULL;
}

static bool rewrite(repeat *r) {
  const kiln_stmt *mover = mover_of(r);
  for (r->dim = r->s->n_space; mover && r->dim < r->s->n_space + r->s->n_reduce; r->dim++) {
    const kiln_symbol var = r->s->dims[r->dim].name;
    r->axis = axis_at(r->w, var);
    if (r->axis < 0 || axis_at(r->x, var) < 0 ||
        kiln_expr_int_or(r->p->tensors.data[r->w->u.tensor]->shape[r->axis], -1) !=
            kiln_expr_int_or(r->s->dims[r->dim].extent, -1))
      continue;
    const kiln_expr *x = find_period(r, mover);
    if (!x) continue;
    r->s->body = kiln_mul(r->cx, x, kiln_tensor_load(r->cx, sum_weights(r), r->w->args));
    r->s->dims[r->dim].extent = kiln_int(r->cx, r->n);
    return true;
  }
  return false;
}

int kiln_rule_repeat(kiln_ctx *cx, kiln_program *p) {
  repeat r = {.cx = cx, .p = p};
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++) n += is_contraction(&r, p->stmts.data[i]) && rewrite(&r);
  if (n > 0) kiln_program_dce(cx, p);
  return n;
}
