#include "template/form/direct_conv.h"

#include "support/integer.h"

enum {
  CAPABILITY = 80, // the least compute capability: mma.m16n8k16 with pairs of halves
  MAX_CHANNELS = 8,
  MAX_STRIDE = 8,
  // the most terms of a window, whose weights a block keeps in registers or shared memory
  MAX_TERMS = 512,
  MIN_LENGTH = 16, // the least extent of the result along rows of windows, and
  COLUMNS = 16,    // the number of columns, of an instruction's result
  LANES = 4        // the lanes that share a row of sums
};

// One dim of the windows: element i of the result reads elements |stride| * i + r, r < taps.
typedef struct window {
  int dim, reduction;
  int64_t stride, taps;
} window;

// A program while it is brought into the form.
typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *t, *y;
  const kiln_expr *a, *b; // the convolution's input and its weights
  window rows, columns;
  int channel;              // the reduction dim of channels; -1: one channel
  int64_t channels, stored; // channels of the input, and of P
  int64_t run_k;            // terms of a row of a window
  int64_t k;                // terms of a window, rounded up to KILN_PRODUCT_STEP
  kiln_symbol name_h, name_w, name_c, name_k;
} making;

static int64_t extent_of(const kiln_stmt *s, int d) { return kiln_dim_extent(&s->dims[d]); }
static kiln_symbol name_of(const making *w, int d) { return w->t->dims[d].name; }

// --- recognition ---

static bool uses_dims(const making *w, const kiln_expr *e, int begin, int end) {
  for (int d = begin; d < end; d++)
    if (kiln_expr_uses(e, name_of(w, d))) return true;
  return false;
}

// Finds the factors: |a| depends on all dims but the last, |b| loads a constant that depends on the
// last.
static bool find_factors(making *w) {
  const int last = w->t->n_space - 1;
  if (!kiln_stmt_is_product(w->t, &w->a, &w->b)) return false;
  if (kiln_expr_uses(w->a, name_of(w, last))) {
    const kiln_expr *other = w->a;
    w->a = w->b;
    w->b = other;
  }
  if (w->b->kind != KILN_EXPR_LOAD || kiln_expr_uses(w->a, name_of(w, last)) ||
      uses_dims(w, w->b, 0, last))
    return false;
  const kiln_dtype half = w->a->dtype;
  return w->p->tensors.data[w->b->u.tensor]->role == KILN_CONST && kiln_dtype_is_half(half) &&
         w->b->dtype == half && w->p->tensors.data[w->t->out]->dtype == KILN_F32;
}

// |a| at element |h| along window |x|.
static const kiln_expr *at_element(making *w, const kiln_expr *e, const window *x, kiln_symbol h) {
  const kiln_symbol r = name_of(w, x->reduction);
  const kiln_expr *first = kiln_mul(w->cx, kiln_stmt_var(w->cx, w->t, x->dim),
                                    kiln_int(w->cx, x->stride)),
                  *at = kiln_sub(w->cx, kiln_var(w->cx, h), first);
  kiln_ranges range = kiln_stmt_ranges(&w->cx->scratch, w->t);
  kiln_ranges_push(&range, h, 0, x->stride * (extent_of(w->t, x->dim) - 1) + x->taps - 1);
  return kiln_simplify(w->cx, kiln_expr_substitute(w->cx, e, 1, &r, &at), &range);
}

// Whether reduction dim |r| and dim |d| of the result index the same axis of |a|'s tensor.
static bool pair(making *w, int d, int r, window *out) {
  *out = (window){.dim = d, .reduction = r, .taps = extent_of(w->t, r)};
  if (!kiln_expr_uses(w->a, name_of(w, d))) return false;
  for (out->stride = 1; out->stride <= MAX_STRIDE; out->stride++)
    if (!kiln_expr_uses(at_element(w, w->a, out, w->name_h), name_of(w, d))) return true;
  return false;
}

// Finds the reduction dims: two of windows that overlap, and at most one of few channels.
static bool find_windows(making *w) {
  const int columns = w->t->n_space - 2, rows = columns - 1;
  w->channel = w->rows.dim = w->columns.dim = -1;
  w->channels = 1;
  for (int r = w->t->n_space; r < w->t->n_space + w->t->n_reduce; r++) {
    window x;
    if (w->columns.dim < 0 && pair(w, columns, r, &x)) w->columns = x;
    else if (w->rows.dim < 0 && pair(w, rows, r, &x)) w->rows = x;
    else if (w->channel < 0) w->channel = r, w->channels = extent_of(w->t, r);
    else return false;
  }
  return w->rows.dim >= 0 && w->columns.dim >= 0 && w->channels <= MAX_CHANNELS &&
         (w->rows.taps > w->rows.stride || w->columns.taps > w->columns.stride);
}

// Whether the result's last dim is contiguous.
static bool stores_channels_last(const making *w) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(w->p->tensors.data[w->y->out], strides);
  return strides[w->y->n_space - 1] == 1;
}

static bool find(making *w) {
  if (w->p->stmts.n != 2) return false;
  w->t = w->p->stmts.data[0];
  w->y = w->p->stmts.data[1];
  const int last = w->t->n_space - 1;
  return last >= 2 && kiln_product_finishes(w->cx, w->p, w->t, w->y) && find_factors(w) &&
         stores_channels_last(w) && extent_of(w->t, last) % COLUMNS == 0 &&
         extent_of(w->t, last - 1) >= MIN_LENGTH && find_windows(w);
}

// --- the new statements ---

// A statement over |n_lead| dims of the sums, then |n| given ones.
static kiln_stmt *make_stmt(making *w, const char *name, kiln_dtype t, int n_lead, int n,
                            const kiln_symbol *names, const int64_t *extents) {
  const kiln_expr *shape[KILN_MAX_RANK];
  kiln_stmt *s = KILN_NEW(&w->cx->perm, kiln_stmt);
  *s = (kiln_stmt){.origin = w->t->origin, .n_space = n_lead + n};
  s->dims = KILN_NEW_ARRAY(&w->cx->perm, kiln_dim, n_lead + n);
  s->index = KILN_NEW_ARRAY(&w->cx->perm, const kiln_expr *, n_lead + n);
  for (int d = 0; d < n_lead + n; d++) {
    s->dims[d] = d < n_lead ? w->t->dims[d]
                            : (kiln_dim){names[d - n_lead], kiln_int(w->cx, extents[d - n_lead])};
    s->index[d] = kiln_var(w->cx, s->dims[d].name);
    shape[d] = s->dims[d].extent;
  }
  s->out = kiln_tensor_make(w->cx, w->p, name, t, KILN_TEMP, n_lead + n, shape)->id;
  return s;
}

static void set_body(making *w, kiln_stmt *s, const kiln_expr *e) {
  s->body = kiln_stmt_simplify(w->cx, s, e);
}

static const kiln_expr *less(making *w, const kiln_expr *e, int64_t n) {
  return kiln_binary(w->cx, KILN_EXPR_LT, e, kiln_int(w->cx, n));
}
static const kiln_expr *both(making *w, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(w->cx, KILN_EXPR_AND, a, b);
}
static const kiln_expr *var(making *w, kiln_symbol name) { return kiln_var(w->cx, name); }
static const kiln_expr *quotient(making *w, const kiln_expr *e, int64_t n) {
  return kiln_div(w->cx, e, kiln_int(w->cx, n));
}
static const kiln_expr *rest(making *w, const kiln_expr *e, int64_t n) {
  return kiln_mod(w->cx, e, kiln_int(w->cx, n));
}

static int64_t length_of(const making *w, const window *x) { // extent of P along it
  return x->stride * (extent_of(w->t, x->dim) - 1) + x->taps;
}

// P, the input with its halo, zero outside.
static kiln_stmt *make_patch(making *w) {
  const int64_t extents[] = {
      length_of(w, &w->rows),
      length_of(w, &w->columns) + (w->run_k - 1) / w->stored + 1 - w->columns.taps, w->stored};
  const kiln_symbol names[] = {w->name_h, w->name_w, w->name_c};
  kiln_stmt *s = make_stmt(w, "P", w->a->dtype, w->rows.dim, 3, names, extents);
  const kiln_expr *e = at_element(w, w->a, &w->rows, w->name_h), *c = var(w, w->name_c);
  e = at_element(w, e, &w->columns, w->name_w);
  if (w->channel >= 0) {
    const kiln_symbol from = name_of(w, w->channel);
    e = kiln_expr_substitute(w->cx, e, 1, &from, &c);
  }
  const kiln_expr *inside =
      both(w, less(w, var(w, w->name_w), length_of(w, &w->columns)), less(w, c, w->channels));
  set_body(w, s, kiln_select(w->cx, inside, e, kiln_number(w->cx, w->a->dtype, 0)));
  return s;
}

// A: the terms of windows, as P stores them.
static kiln_stmt *make_terms(making *w, const kiln_stmt *patch) {
  const int n_lead = w->columns.dim + 1;
  kiln_stmt *s = make_stmt(w, "A", w->a->dtype, n_lead, 1, &w->name_k, &w->k);
  const kiln_expr *index[KILN_MAX_RANK], *k = var(w, w->name_k), *in_row = rest(w, k, w->run_k);
  int n = 0;
  for (; n < w->rows.dim; n++) index[n] = kiln_stmt_var(w->cx, w->t, n);
  index[n++] = kiln_add(
      w->cx,
      kiln_mul(w->cx, kiln_stmt_var(w->cx, w->t, w->rows.dim), kiln_int(w->cx, w->rows.stride)),
      kiln_binary(w->cx, KILN_EXPR_MIN, quotient(w, k, w->run_k),
                  kiln_int(w->cx, w->rows.taps - 1)));
  index[n++] = kiln_add(w->cx,
                        kiln_mul(w->cx, kiln_stmt_var(w->cx, w->t, w->columns.dim),
                                 kiln_int(w->cx, w->columns.stride)),
                        quotient(w, in_row, w->stored));
  index[n++] = rest(w, in_row, w->stored);
  set_body(w, s, kiln_tensor_load(w->cx, w->p->tensors.data[patch->out], index));
  return s;
}

static int64_t run_of(const making *w) {
  enum { LONGEST = 32 };
  return extent_of(w->t, w->t->n_space - 1) % LONGEST ? COLUMNS : LONGEST;
}

// The column of the result that is column |n| of the sums, and its inverse. The sums of a lane, a
// pair in each eight columns, are made neighbours of the result.
static const kiln_expr *column_of_result(making *w, const kiln_expr *n) {
  const int64_t run = run_of(w), part = run / LANES;
  const kiln_expr *lane = rest(w, quotient(w, n, 2), LANES),
                  *eight = rest(w, quotient(w, n, 8), run / 8);
  return kiln_add(w->cx,
                  kiln_add(w->cx, kiln_mul(w->cx, quotient(w, n, run), kiln_int(w->cx, run)),
                           kiln_mul(w->cx, lane, kiln_int(w->cx, part))),
                  kiln_add(w->cx, kiln_mul(w->cx, eight, kiln_int(w->cx, 2)), rest(w, n, 2)));
}
static const kiln_expr *column_of_sums(making *w, const kiln_expr *n) {
  const int64_t run = run_of(w), part = run / LANES;
  const kiln_expr *lane = rest(w, quotient(w, n, part), LANES),
                  *eight = rest(w, quotient(w, n, 2), part / 2);
  return kiln_add(w->cx,
                  kiln_add(w->cx, kiln_mul(w->cx, quotient(w, n, run), kiln_int(w->cx, run)),
                           kiln_mul(w->cx, eight, kiln_int(w->cx, 8))),
                  kiln_add(w->cx, kiln_mul(w->cx, lane, kiln_int(w->cx, 2)), rest(w, n, 2)));
}

// B: the weights in the order of the terms, zero in the padding.
static kiln_stmt *make_weights(making *w) {
  const int last = w->t->n_space - 1;
  const kiln_symbol names[] = {w->name_k, name_of(w, last)};
  const int64_t extents[] = {w->k, extent_of(w->t, last)};
  kiln_stmt *s = make_stmt(w, "B", w->b->dtype, 0, 2, names, extents);
  const kiln_expr *k = var(w, w->name_k), *in_row = rest(w, k, w->run_k),
                  *c = rest(w, in_row, w->stored), *row = quotient(w, k, w->run_k),
                  *column = quotient(w, in_row, w->stored);
  const kiln_symbol vars[] = {names[1], name_of(w, w->rows.reduction),
                              name_of(w, w->columns.reduction),
                              w->channel < 0 ? 0 : name_of(w, w->channel)};
  const kiln_expr *values[] = {column_of_result(w, var(w, names[1])), row, column, c};
  const kiln_expr *inside =
      both(w, both(w, less(w, row, w->rows.taps), less(w, column, w->columns.taps)),
           less(w, c, w->channels));
  set_body(w, s,
           kiln_select(w->cx, inside,
                       kiln_expr_substitute(w->cx, w->b, w->channel < 0 ? 3 : 4, vars, values),
                       kiln_number(w->cx, w->b->dtype, 0)));
  return s;
}

typedef struct reading {
  making *w;
  const kiln_stmt *a, *b;
} reading;

static const kiln_expr *read_factor(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  const kiln_stmt *s = e == r->w->a ? r->a : e == r->w->b ? r->b : NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  if (!s) return NULL;
  for (int d = 0; d < s->n_space; d++) index[d] = kiln_stmt_var(cx, s, d);
  return kiln_tensor_load(cx, r->w->p->tensors.data[s->out], index);
}

static void make_sum(making *w, const kiln_stmt *a, const kiln_stmt *b) {
  const int n = w->t->n_space;
  reading r = {w, a, b};
  kiln_dim *dims = KILN_NEW_ARRAY(&w->cx->perm, kiln_dim, n + 1);
  for (int d = 0; d < n; d++) dims[d] = w->t->dims[d];
  dims[n] = (kiln_dim){w->name_k, kiln_int(w->cx, w->k)};
  w->t->body = kiln_expr_replace(w->cx, w->t->body, read_factor, &r);
  w->t->dims = dims;
  w->t->n_reduce = 1;
}

static const kiln_expr *read_sum(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  making *w = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != w->t->out) return NULL;
  for (int d = 0; d < e->n_args; d++) index[d] = e->args[d];
  index[e->n_args - 1] = column_of_sums(w, e->args[e->n_args - 1]);
  return kiln_tensor_load(cx, w->p->tensors.data[w->t->out], index);
}

bool kiln_direct_conv_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.cx = cx, .p = p};
  w.name_h = kiln_symbol_of(cx, "h");
  w.name_w = kiln_symbol_of(cx, "w");
  w.name_c = kiln_symbol_of(cx, "c");
  w.name_k = kiln_symbol_of(cx, "k");
  if (m->gpu.capability < CAPABILITY || !find(&w)) return false;
  w.stored = kiln_round_up(w.channels, w.columns.stride % 2 ? 2 : 1);
  w.run_k = kiln_round_up(w.columns.taps * w.stored, 2);
  w.k = kiln_round_up(w.rows.taps * w.run_k, KILN_PRODUCT_STEP);
  if (w.k > MAX_TERMS) return false;
  kiln_stmt *patch = make_patch(&w), *a = make_terms(&w, patch), *b = make_weights(&w);
  make_sum(&w, a, b);
  w.y->body = kiln_product_unrounded(cx, kiln_expr_replace(cx, w.y->body, read_sum, &w));
  p->stmts.n = 0;
  kiln_stmt_append(w.cx, w.p, patch);
  kiln_stmt_append(w.cx, w.p, a);
  kiln_stmt_append(w.cx, w.p, b);
  kiln_stmt_append(w.cx, w.p, w.t);
  kiln_stmt_append(w.cx, w.p, w.y);
  return true;
}

// --- reading it back ---

static bool reads(const kiln_expr *load, const kiln_stmt *s) {
  return load->kind == KILN_EXPR_LOAD && load->u.tensor == s->out;
}

// The change of |e| at a step of dim |d| of |s|.
static int64_t step_of(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *e, int d) {
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *at[KILN_MAX_RANK];
  int64_t step = 0;
  for (int i = 0; i < s->n_space; i++) {
    vars[i] = s->dims[i].name;
    at[i] = kiln_int(cx, i == d);
  }
  (void)kiln_expr_is_int(kiln_expr_substitute(cx, e, s->n_space, vars, at), &step);
  return step;
}

static bool bends(kiln_ctx *cx, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  for (int i = 0; i < loads.n; i++)
    for (int d = 0; d < s->n_space; d++)
      if (kiln_load_bends(cx, loads.data[i], s->dims[d].name)) return true;
  return false;
}

bool kiln_direct_conv_is(kiln_ctx *cx, const kiln_program *p, kiln_direct_conv *out) {
  kiln_stmt *const *s = p->stmts.data;
  const kiln_expr *a = NULL, *b = NULL;
  if (p->stmts.n != 5 || !reads(s[1]->body, s[0]) || !kiln_stmt_is_contraction(s[3], &a, &b) ||
      !reads(a, s[1]) || !reads(b, s[2]) || s[3]->n_space < 3 || s[0]->n_space != s[3]->n_space)
    return false;
  const int last = s[3]->n_space - 1;
  *out = (kiln_direct_conv){
      .p = s[0],
      .of = {.a = s[1], .b = s[2], .t = s[3], .y = s[4], .n_batch = last - 1, .batch = 1},
      .rows = extent_of(s[3], last - 2),
      .channels = extent_of(s[0], last),
      .bends = bends(cx, s[0])};
  out->of.m = extent_of(s[3], last - 1);
  out->of.n = extent_of(s[3], last);
  out->of.k = extent_of(s[3], last + 1);
  for (int d = 0; d < last - 1; d++) out->of.batch *= extent_of(s[3], d);
  for (int i = 0; i < 2; i++) {
    out->stride[i] = step_of(cx, s[1], s[1]->body->args[last - 2 + i], last - 2 + i);
    out->window[i] =
        extent_of(s[0], last - 2 + i) - out->stride[i] * (extent_of(s[3], last - 2 + i) - 1);
  }
  out->run = out->of.n % 32 ? COLUMNS : 32;
  return true;
}
