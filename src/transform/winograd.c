// Rewrites convolutions as Winograd statements (transform/winograd.h).
#include "transform/winograd.h"

#include "support/integer.h"

#include <math.h>
#include <string.h>

typedef struct convolution {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_facts *facts;
  int kernel;         // kernel number, for facts
  kiln_stmt *s;       // dims n, k, h, w | c, kh, kw in any order
  const kiln_expr *x; // load of the data: (n, c, .., ..), indexed by h + kh and w + kw
  const kiln_tensor
      *weights; // view of the weights: element (k, c, kh, kw) is at first + k * steps[0] + c *
                // steps[1] + ...
  int64_t first, steps[4];
  kiln_symbol elements[2]; // names of kh and kw
  kiln_winograd_shape shape;
  kiln_winograd_plan plan;
  kiln_winograd_list *late; // NULL: weights are transformed at once
} convolution;

// --- matching ---

static bool is_var(const kiln_expr *e, kiln_symbol name) {
  return e->kind == KILN_EXPR_VAR && e->u.sym == name;
}

// The extent of |e| if it is a reduction dim, else 0.
static int64_t reduction_extent(const kiln_stmt *s, const kiln_expr *e) {
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    if (is_var(e, s->dims[d].name)) return kiln_dim_extent(&s->dims[d]);
  return 0;
}

static const kiln_expr *one_on(kiln_ctx *cx, const kiln_expr *e, kiln_symbol var) {
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  const kiln_expr *next = kiln_add(cx, kiln_var(cx, var), kiln_int(cx, 1));
  return kiln_simplify(cx, kiln_expr_substitute(cx, e, 1, &var, &next), &none);
}

// Whether |e| depends on the sum of both alone: a window with stride 1, also through a boundary
// map.
static bool slides(kiln_ctx *cx, const kiln_expr *e, kiln_symbol at, kiln_symbol element) {
  if (e->vars->n != 2 || !kiln_expr_uses(e, at) || !kiln_expr_uses(e, element)) return false;
  return !e->has_load && one_on(cx, e, at) == one_on(cx, e, element);
}

// The reduction dim along which the window's axis |e| slides, with |at|; -1: none.
static int find_element(const convolution *v, const kiln_expr *e, kiln_symbol at) {
  const kiln_stmt *s = v->s;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    if (slides(v->cx, e, at, s->dims[d].name)) return d;
  return -1;
}

// Matches data (n, c, h + kh, w + kw) with windows of 2 or 3 elements each way.
static bool match_data(convolution *v) {
  const kiln_stmt *s = v->s;
  const kiln_expr *x = v->x;
  if (x->n_args != 4 || x->dtype != KILN_F32) return false;
  if (!is_var(x->args[0], s->dims[0].name) &&
      !(kiln_expr_is_zero(x->args[0]) && kiln_dim_extent(&s->dims[0]) == 1))
    return false;
  int64_t window[2];
  for (int k = 0; k < 2; k++) {
    const int d = find_element(v, x->args[2 + k], s->dims[2 + k].name);
    if (d < 0) return false;
    v->elements[k] = s->dims[d].name;
    window[k] = kiln_dim_extent(&s->dims[d]);
    if (window[k] < 2 || window[k] > 3) return false;
  }
  v->shape = (kiln_winograd_shape){kiln_dim_extent(&s->dims[0]),
                                   kiln_dim_extent(&s->dims[2]),
                                   kiln_dim_extent(&s->dims[3]),
                                   reduction_extent(s, x->args[1]),
                                   kiln_dim_extent(&s->dims[1]),
                                   window[0],
                                   window[1]};
  return v->shape.c >= 1 && v->elements[0] != v->elements[1] &&
         !is_var(x->args[1], v->elements[0]) && !is_var(x->args[1], v->elements[1]);
}

static bool is_f32_const(const kiln_tensor *t) {
  return t->role == KILN_CONST && t->data && t->dtype == KILN_F32 && !t->strides;
}

// Matches constants with an index affine in k, c, kh and kw.
//
// needs: match_data
static bool match_weights(convolution *v, const kiln_expr *w) {
  const kiln_symbol vars[] = {v->s->dims[1].name, v->x->args[1]->u.sym, v->elements[0],
                              v->elements[1]};
  int64_t shape[KILN_MAX_RANK], stride = 1;
  v->weights = v->p->tensors.data[w->u.tensor];
  if (!is_f32_const(v->weights) || !kiln_tensor_static_shape(v->weights, shape)) return false;
  v->first = 0;
  memset(v->steps, 0, sizeof v->steps);
  for (int k = w->n_args - 1; k >= 0; stride *= shape[k--]) {
    int64_t coef[4], constant = 0;
    if (!kiln_expr_affine(w->args[k], 4, vars, coef, &constant)) return false;
    v->first += constant * stride;
    for (int i = 0; i < 4; i++) v->steps[i] += coef[i] * stride;
  }
  return true;
}

// Whether the weights are a whole row-major tensor (k, c, kh, kw).
static bool are_whole(const convolution *v) {
  const kiln_winograd_shape *s = &v->shape;
  const int64_t want[] = {s->k, s->c, s->kh, s->kw};
  int64_t stride = 1, shape[KILN_MAX_RANK];
  if (v->weights->rank != 4 || v->first != 0 || !kiln_tensor_static_shape(v->weights, shape))
    return false;
  for (int k = 3; k >= 0; stride *= want[k--])
    if (v->weights->order[k] != k || v->steps[k] != stride || shape[k] != want[k]) return false;
  return true;
}

static bool is_channels_last(const kiln_tensor *t) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  return t->rank == 4 && strides[1] == 1;
}

static bool match(convolution *v) {
  const kiln_stmt *s = v->s;
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_plain(v->cx, s) || s->guard || !kiln_stmt_is_contraction(s, &a, &b))
    return false;
  if (s->n_space != 4 || s->n_reduce != 3 || s->body->dtype != KILN_F32 ||
      s->body->kind != KILN_EXPR_MUL || s->body->args[0]->kind != KILN_EXPR_LOAD ||
      s->body->args[1]->kind != KILN_EXPR_LOAD)
    return false;
  const bool first = v->p->tensors.data[a->u.tensor]->role == KILN_CONST;
  const kiln_expr *w = first ? a : b;
  v->x = first ? b : a;
  return match_data(v) && match_weights(v, w) &&
         is_channels_last(v->p->tensors.data[v->x->u.tensor]) &&
         is_channels_last(v->p->tensors.data[s->out]);
}

// --- the transforms as expressions ---

// sum(coef[i] * terms[i]) over i of |parity| (2: all), without multiplications by 0 or 1, beginning
// with a positive term if possible; NULL for an empty sum.
static const kiln_expr *combine(kiln_ctx *cx, int n, const double *coef,
                                const kiln_expr *const *terms, int parity) {
  const kiln_expr *sum = NULL;
  double factor = 0; // common factor of all terms
  for (int i = 0; i < n; i++) {
    if ((parity < 2 && i % 2 != parity) || coef[i] == 0) continue;
    const double size = coef[i] < 0 ? -coef[i] : coef[i];
    factor = factor == 0 || factor == size ? size : 1;
  }
  for (int negative = 0; negative < 2; negative++)
    for (int i = 0; i < n; i++) {
      if ((parity < 2 && i % 2 != parity) || coef[i] == 0 || (coef[i] < 0) != negative) continue;
      const double size = (negative ? -coef[i] : coef[i]) / factor;
      const kiln_expr *one =
          size == 1 ? terms[i] : kiln_mul(cx, terms[i], kiln_float(cx, KILN_F32, size));
      if (!sum) sum = negative ? kiln_unary(cx, KILN_EXPR_NEG, one) : one;
      else sum = negative ? kiln_sub(cx, sum, one) : kiln_add(cx, sum, one);
    }
  return sum && factor != 1 ? kiln_mul(cx, sum, kiln_float(cx, KILN_F32, factor)) : sum;
}

// Row |r| of B^T times the terms; paired rows share their even and odd parts.
static const kiln_expr *input_row(kiln_ctx *cx, const kiln_winograd_form *f, int r,
                                  const kiln_expr *const *terms) {
  if (r == 0 || r == f->points - 1) return combine(cx, f->points, f->input[r], terms, 2);
  const bool second = r % 2 == 0;
  const double *row = f->input[second ? r - 1 : r];
  const kiln_expr *even = combine(cx, f->points, row, terms, 0),
                  *odd = combine(cx, f->points, row, terms, 1);
  return second ? kiln_sub(cx, even, odd) : kiln_add(cx, even, odd);
}

// Row |r| of A^T times the terms; rows share sums and differences of pairs.
static const kiln_expr *output_row(kiln_ctx *cx, const kiln_winograd_form *f, int r,
                                   const kiln_expr *const *terms) {
  const double *row = f->output[r];
  const int last = f->points - 1;
  const kiln_expr *sum = row[0] != 0 ? terms[0] : NULL;
  for (int j = 1; j < last; j += 2) {
    const kiln_expr *pair = row[j] == row[j + 1] ? kiln_add(cx, terms[j], terms[j + 1])
                                                 : kiln_sub(cx, terms[j], terms[j + 1]);
    if (row[j] != 1) pair = kiln_mul(cx, pair, kiln_float(cx, KILN_F32, row[j]));
    sum = sum ? kiln_add(cx, sum, pair) : pair;
  }
  return row[last] != 0 ? kiln_add(cx, sum, terms[last]) : sum;
}

typedef const kiln_expr *row_fn(kiln_ctx *cx, const kiln_winograd_form *f, int r,
                                const kiln_expr *const *terms);

// Selects the row by |which|; when the loop is unrolled, the selections fold.
static const kiln_expr *transform(const convolution *v, row_fn *row, int n, const kiln_expr *which,
                                  const kiln_expr *const *terms) {
  const kiln_expr *e = row(v->cx, v->plan.form, n - 1, terms);
  for (int r = n - 2; r >= 0; r--)
    e = kiln_select(v->cx, kiln_binary(v->cx, KILN_EXPR_EQ, which, kiln_int(v->cx, r)),
                    row(v->cx, v->plan.form, r, terms), e);
  return e;
}

// --- the statements ---

enum { DIMS = 6 }; // of intermediates: two of the transform, image, tile row, tile column, channel

static kiln_stmt *make_stmt(const convolution *v, const char *suffix, int64_t first, int64_t second,
                            int64_t channels, int n_reduce) {
  const kiln_winograd_shape *s = &v->shape;
  const int m = v->plan.form->outputs;
  const int64_t extents[] = {
      first, second, s->n, kiln_divide_up(s->h, m), kiln_divide_up(s->w, m), channels, s->c};
  const kiln_expr *dims[KILN_LEN(extents)];
  for (int k = 0; k < DIMS + n_reduce; k++) dims[k] = kiln_int(v->cx, extents[k]);
  const char *name = kiln_symbol_text(v->cx, v->p->tensors.data[v->s->out]->name);
  kiln_stmt *t =
      kiln_stmt_make(v->cx, v->p, kiln_arena_printf(&v->cx->scratch, "%s.%s", name, suffix),
                     KILN_F32, DIMS, n_reduce, dims);
  t->origin = v->s->origin;
  kiln_fact_at(v->cx, v->facts, t->out)->kernel = v->kernel;
  return t;
}

static const kiln_expr *load_of(const convolution *v, const kiln_stmt *of, const kiln_expr *first,
                                const kiln_expr *second, const kiln_stmt *reader) {
  const kiln_expr *index[DIMS] = {first, second};
  for (int k = 2; k < DIMS; k++) index[k] = kiln_stmt_var(v->cx, reader, k);
  return kiln_tensor_load(v->cx, v->p->tensors.data[of->out], index);
}

// The data of |image| and |channel| under element (0, 0) of the window of output |at| = (h, w); 0
// past the last window, where results are not stored.
static const kiln_expr *data_at(const convolution *v, const kiln_stmt *t, const kiln_expr *image,
                                const kiln_expr *channel, const kiln_expr *const at[2]) {
  kiln_ctx *cx = v->cx;
  const kiln_expr *index[4] = {image, channel}, *inside = NULL;
  const int64_t extents[] = {v->shape.h + v->shape.kh - 1, v->shape.w + v->shape.kw - 1};
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, t);
  for (int k = 0; k < 2; k++) {
    const kiln_symbol vars[] = {v->s->dims[2 + k].name, v->elements[k]};
    const kiln_expr *values[] = {at[k], kiln_int(cx, 0)};
    index[2 + k] = kiln_expr_substitute(cx, v->x->args[2 + k], 2, vars, values);
    const kiln_expr *here = kiln_binary(cx, KILN_EXPR_LT, at[k], kiln_int(cx, extents[k]));
    inside = inside ? kiln_binary(cx, KILN_EXPR_AND, inside, here) : here;
  }
  const kiln_expr *load = kiln_tensor_load(cx, v->p->tensors.data[v->x->u.tensor], index);
  return kiln_simplify(cx, kiln_select(cx, inside, load, kiln_float(cx, KILN_F32, 0)), &r);
}

// Elements of a tile outside of all windows count as 0.
static kiln_stmt *make_rows(const convolution *v) {
  const int n = v->plan.form->points;
  const int64_t met[] = {v->plan.form->outputs + v->shape.kh - 1,
                         v->plan.form->outputs + v->shape.kw - 1};
  const kiln_expr *zero = kiln_float(v->cx, KILN_F32, 0);
  kiln_stmt *t = make_stmt(v, "rows", n, n, v->shape.c, 0);
  kiln_ctx *cx = v->cx;
  const kiln_expr *m = kiln_int(cx, v->plan.form->outputs),
                  *row = kiln_mul(cx, kiln_stmt_var(cx, t, 3), m),
                  *column = kiln_mul(cx, kiln_stmt_var(cx, t, 4), m), *d[KILN_MAX_WINOGRAD];
  for (int i = 0; i < n; i++) {
    const kiln_expr *at[] = {kiln_add(cx, row, kiln_int(cx, i)),
                             kiln_add(cx, column, kiln_stmt_var(cx, t, 1))};
    d[i] = i < met[0] ? data_at(v, t, kiln_stmt_var(cx, t, 2), kiln_stmt_var(cx, t, 5), at) : zero;
    if (met[1] < n)
      d[i] = kiln_select(
          cx, kiln_binary(cx, KILN_EXPR_LT, kiln_stmt_var(cx, t, 1), kiln_int(cx, met[1])), d[i],
          zero);
  }
  t->body = transform(v, input_row, n, kiln_stmt_var(v->cx, t, 0), d);
  return t;
}

static kiln_stmt *make_inputs(const convolution *v, const kiln_stmt *rows) {
  const int n = v->plan.form->points;
  kiln_stmt *t = make_stmt(v, "inputs", n, n, v->shape.c, 0);
  const kiln_expr *d[KILN_MAX_WINOGRAD];
  for (int j = 0; j < n; j++)
    d[j] = load_of(v, rows, kiln_stmt_var(v->cx, t, 0), kiln_int(v->cx, j), t);
  t->body = transform(v, input_row, n, kiln_stmt_var(v->cx, t, 1), d);
  return t;
}

// --- the weights ---

enum { LANES = 16 }; // output channels transformed together

static int64_t extent_of(const kiln_tensor *t, int axis) {
  return kiln_expr_int_or(t->shape[axis], 1);
}

// Loads the kernels of output channels from |first| on, interleaved: g[3 * a + b][lane].
static void load_kernels(const kiln_tensor *source, int64_t first, int64_t channel,
                         double g[9][LANES]) {
  const int64_t k = extent_of(source, 0), c = extent_of(source, 1), rows = extent_of(source, 2),
                columns = extent_of(source, 3);
  const char *at = source->data; // unaligned
  memset(g, 0, 9 * sizeof *g);
  for (int64_t lane = 0; lane < LANES && first + lane < k; lane++)
    for (int64_t e = 0; e < rows * columns; e++) {
      float one;
      const int64_t from = ((first + lane) * c + channel) * rows * columns + e;
      memcpy(&one, at + (size_t)from * sizeof one, sizeof one);
      g[e / columns * 3 + e % columns][lane] = (double)one;
    }
}

// G times three elements; paired rows share their even and odd parts.
static void transform_line(const kiln_winograd_form *f, const double *x, const double *y,
                           const double *z, double out[KILN_MAX_WINOGRAD][LANES]) {
  const int last = f->points - 1;
  memcpy(out[0], x, sizeof out[0]);
  memcpy(out[last], z, sizeof out[0]);
  for (int a = 1; a < last; a += 2)
    for (int l = 0; l < LANES; l++) {
      const double even = f->kernel[a][0] * x[l] + f->kernel[a][2] * z[l],
                   odd = f->kernel[a][1] * y[l];
      out[a][l] = even + odd;
      out[a + 1][l] = even - odd;
    }
}

// Stores point (a, b) of the first |n| lanes at |to|; consecutive points are |plane| apart.
static void transform_kernels(const kiln_winograd_form *f, int64_t n, double g[9][LANES],
                              int64_t plane, float *to) {
  double half[3][KILN_MAX_WINOGRAD][LANES], line[KILN_MAX_WINOGRAD][LANES];
  for (int b = 0; b < 3; b++) transform_line(f, g[b], g[3 + b], g[6 + b], half[b]);
  for (int a = 0; a < f->points; a++) {
    transform_line(f, half[0][a], half[1][a], half[2][a], line);
    for (int b = 0; b < f->points; b++)
      for (int64_t l = 0; l < n; l++) to[(a * f->points + b) * plane + l] = (float)line[b][l];
  }
}

int64_t kiln_winograd_count(const kiln_winograd_weights *w) {
  return kiln_divide_up(extent_of(w->source, 0), w->panel) * extent_of(w->source, 1);
}

void kiln_winograd_transform(const kiln_winograd_weights *w, int64_t begin, int64_t end,
                             int64_t plane, float *to) {
  const int64_t c = extent_of(w->source, 1);
  double g[9][LANES];
  for (int64_t at = begin; at < end; at++)
    for (int64_t l = 0; l < w->panel; l += LANES) {
      const int64_t n = w->panel - l < LANES ? w->panel - l : LANES;
      load_kernels(w->source, at / c * w->panel + l, at % c, g);
      transform_kernels(w->form, n, g, plane, to + (at - begin) * w->panel + l);
    }
}

static kiln_tensor *make_weights(const convolution *v) {
  const int n = v->plan.form->points;
  const int64_t extents[] = {n, n, kiln_divide_up(v->shape.k, v->plan.panel), v->shape.c,
                             v->plan.panel};
  const kiln_expr *shape[KILN_LEN(extents)];
  for (size_t k = 0; k < KILN_LEN(extents); k++) shape[k] = kiln_int(v->cx, extents[k]);
  const char *name =
      kiln_arena_printf(&v->cx->scratch, "%s.winograd", kiln_symbol_text(v->cx, v->weights->name));
  kiln_tensor *t = kiln_tensor_make(v->cx, v->p, name, KILN_F32, KILN_CONST, 5, shape);
  const kiln_winograd_weights w = {t, v->weights, v->plan.form, v->plan.panel};
  const int64_t count = kiln_winograd_count(&w);
  t->bytes = (size_t)(n * n * count * v->plan.panel) * sizeof(float);
  if (v->late) {
    KILN_VEC_PUSH(&v->cx->perm, v->late, w);
    return t;
  }
  float *data = kiln_arena_alloc(&v->cx->perm, t->bytes);
  kiln_winograd_transform(&w, 0, count, count * w.panel, data);
  t->data = data;
  return t;
}

static kiln_stmt *make_products(const convolution *v, const kiln_stmt *inputs) {
  kiln_ctx *cx = v->cx;
  const int n = v->plan.form->points;
  const kiln_tensor *u = make_weights(v);
  kiln_stmt *t = make_stmt(v, "products", n, n, kiln_round_up(v->shape.k, v->plan.panel), 1);
  const kiln_expr *k = kiln_stmt_var(cx, t, 5), *c = kiln_stmt_var(cx, t, DIMS),
                  *panel = kiln_int(cx, v->plan.panel);
  const kiln_expr *a[DIMS], *b[] = {kiln_stmt_var(cx, t, 0), kiln_stmt_var(cx, t, 1),
                                    kiln_div(cx, k, panel), c, kiln_mod(cx, k, panel)};
  for (int d = 0; d < DIMS; d++) a[d] = kiln_stmt_var(cx, t, d);
  a[5] = c;
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, t);
  t->combiner = KILN_COMBINE_SUM;
  t->body = kiln_simplify(cx,
                          kiln_mul(cx, kiln_tensor_load(cx, v->p->tensors.data[inputs->out], a),
                                   kiln_tensor_load(cx, u, b)),
                          &r);
  return t;
}

static kiln_stmt *make_columns(const convolution *v, const kiln_stmt *products) {
  const int n = v->plan.form->points, m = v->plan.form->outputs;
  kiln_stmt *t = make_stmt(v, "columns", m, n, kiln_round_up(v->shape.k, v->plan.panel), 0);
  const kiln_expr *d[KILN_MAX_WINOGRAD];
  for (int i = 0; i < n; i++)
    d[i] = load_of(v, products, kiln_int(v->cx, i), kiln_stmt_var(v->cx, t, 1), t);
  t->body = transform(v, output_row, m, kiln_stmt_var(v->cx, t, 0), d);
  return t;
}

// --- the accuracy guard ---

static kiln_stmt *make_guarding(const convolution *v, const char *suffix, kiln_dtype t,
                                int64_t rows, int64_t columns, int n_reduce) {
  kiln_ctx *cx = v->cx;
  const kiln_expr *dims[] = {kiln_int(cx, v->shape.n), kiln_int(cx, rows), kiln_int(cx, columns),
                             kiln_int(cx, v->shape.c)};
  const char *name = kiln_symbol_text(cx, v->p->tensors.data[v->s->out]->name);
  kiln_stmt *s = kiln_stmt_make(cx, v->p, kiln_arena_printf(&cx->scratch, "%s.%s", name, suffix), t,
                                3, n_reduce, dims);
  s->origin = v->s->origin;
  kiln_fact_at(cx, v->facts, s->out)->kernel = v->kernel;
  return s;
}

// (n, h + kh - 1, w + kw - 1): sum of squares over the channels of each pixel, padding included.
static kiln_stmt *make_sizes(const convolution *v) {
  kiln_ctx *cx = v->cx;
  const kiln_winograd_shape *s = &v->shape;
  kiln_stmt *t = make_guarding(v, "sizes", KILN_F32, s->h + s->kh - 1, s->w + s->kw - 1, 1);
  const kiln_expr *at[] = {kiln_stmt_var(cx, t, 1), kiln_stmt_var(cx, t, 2)};
  const kiln_expr *x = data_at(v, t, kiln_stmt_var(cx, t, 0), kiln_stmt_var(cx, t, 3), at);
  t->combiner = KILN_COMBINE_SUM;
  t->body = kiln_mul(cx, x, x);
  return t;
}

// (n, h, w): the same for each output's window.
static kiln_stmt *make_windows(const convolution *v, const kiln_stmt *sizes) {
  kiln_ctx *cx = v->cx;
  kiln_stmt *t = make_guarding(v, "windows", KILN_F32, v->shape.h, v->shape.w, 0);
  const int64_t columns = v->shape.kw;
  for (int64_t i = 0; i < v->shape.kh * columns; i++) {
    const kiln_expr *index[] = {kiln_stmt_var(cx, t, 0),
                                kiln_add(cx, kiln_stmt_var(cx, t, 1), kiln_int(cx, i / columns)),
                                kiln_add(cx, kiln_stmt_var(cx, t, 2), kiln_int(cx, i % columns))};
    const kiln_expr *one = kiln_tensor_load(cx, v->p->tensors.data[sizes->out], index);
    t->body = i > 0 ? kiln_add(cx, t->body, one) : one;
  }
  return t;
}

// The window of output (i, j) of |t|'s tile; for outputs outside of the image, that of the last
// output.
static const kiln_expr *window_at(const convolution *v, const kiln_stmt *t,
                                  const kiln_stmt *windows, int i, int j) {
  kiln_ctx *cx = v->cx;
  const int m = v->plan.form->outputs, at[] = {i, j};
  const int64_t extents[] = {v->shape.h, v->shape.w};
  const kiln_expr *index[3] = {kiln_stmt_var(cx, t, 0)};
  for (int k = 0; k < 2; k++) {
    const kiln_expr *first = kiln_mul(cx, kiln_stmt_var(cx, t, 1 + k), kiln_int(cx, m)),
                    *last = kiln_int(cx, extents[k] - m);
    index[1 + k] = kiln_add(cx, kiln_binary(cx, KILN_EXPR_MIN, first, last), kiln_int(cx, at[k]));
  }
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, t);
  return kiln_simplify(cx, kiln_tensor_load(cx, v->p->tensors.data[windows->out], index), &r);
}

// Greatest magnitude; NaN if there is one.
static float largest_weight(const kiln_tensor *t) {
  const char *at = t->data; // unaligned
  float most = 0;
  for (size_t i = 0; i < t->bytes; i += sizeof(float)) {
    float w;
    memcpy(&w, at + i, sizeof w);
    if (isnan(w)) return w;
    most = fmaxf(most, fabsf(w));
  }
  return most;
}

// The lesser of two numbers; NaN propagates.
static const kiln_expr *smaller(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, a, b), a, b);
}

// Whether window |i| of |m| along a dim belongs to a minimal cover of the tile.
static bool covers(int i, int m, int64_t window) { return i % window == 0 || i == m - 1; }

// (n, tile rows, tile columns): whether the tile's outputs satisfy the error bound
// (transform/winograd.h).
static kiln_stmt *make_fits(const convolution *v, const kiln_stmt *windows) {
  kiln_ctx *cx = v->cx;
  const kiln_winograd_form *f = v->plan.form;
  const int m = f->outputs;
  kiln_stmt *t = make_guarding(v, "fits", KILN_BOOL, kiln_divide_up(v->shape.h, m),
                               kiln_divide_up(v->shape.w, m), 0);
  const kiln_expr *least = NULL, *all = NULL;
  for (int i = 0; i < m * m; i++) {
    const kiln_expr *one = window_at(v, t, windows, i / m, i % m);
    least = least ? smaller(cx, least, one) : one;
    if (covers(i / m, m, v->shape.kh) && covers(i % m, m, v->shape.kw))
      all = all ? kiln_add(cx, all, one) : one;
  }
  const double most = kiln_winograd_most(f, v->shape.c, (double)largest_weight(v->weights));
  t->body = kiln_binary(cx, KILN_EXPR_LE, all, kiln_float(cx, KILN_F32, most));
  const double spread = kiln_winograd_spread(f, v->shape.kh, v->shape.kw);
  if (spread < INFINITY)
    t->body = kiln_binary(
        cx, KILN_EXPR_AND, t->body,
        kiln_binary(cx, KILN_EXPR_LE, all, kiln_mul(cx, least, kiln_float(cx, KILN_F32, spread))));
  return t;
}

// The direct convolution, for tiles that violate the bound.
static kiln_stmt *make_direct(const convolution *v) {
  kiln_ctx *cx = v->cx;
  const kiln_stmt *s = v->s;
  enum { N_DIMS = 7 };
  const kiln_expr *extents[N_DIMS], *values[N_DIMS];
  kiln_symbol names[N_DIMS];
  for (int d = 0; d < N_DIMS; d++) {
    extents[d] = s->dims[d].extent;
    names[d] = s->dims[d].name;
  }
  const kiln_tensor *out = v->p->tensors.data[s->out];
  const char *name = kiln_arena_printf(&cx->scratch, "%s.direct", kiln_symbol_text(cx, out->name));
  kiln_stmt *t = kiln_stmt_make(cx, v->p, name, KILN_F32, s->n_space, s->n_reduce, extents);
  for (int d = 0; d < N_DIMS; d++) values[d] = kiln_stmt_var(cx, t, d);
  t->combiner = s->combiner;
  t->body = kiln_expr_substitute(cx, s->body, N_DIMS, names, values);
  t->origin = s->origin;
  kiln_fact_at(cx, v->facts, t->out)->kernel = v->kernel;
  memcpy(v->p->tensors.data[t->out]->order, out->order, sizeof out->order);
  return t;
}

// Turns the convolution's own statement into a map.
static void make_outputs(const convolution *v, const kiln_stmt *columns, const kiln_stmt *fits,
                         const kiln_stmt *direct) {
  kiln_ctx *cx = v->cx;
  kiln_stmt *s = v->s;
  const kiln_expr *m = kiln_int(cx, v->plan.form->outputs), *h = kiln_stmt_var(cx, s, 2),
                  *w = kiln_stmt_var(cx, s, 3), *d[KILN_MAX_WINOGRAD];
  for (int j = 0; j < v->plan.form->points; j++) {
    const kiln_expr *index[] = {kiln_mod(cx, h, m), kiln_int(cx, j),    kiln_stmt_var(cx, s, 0),
                                kiln_div(cx, h, m), kiln_div(cx, w, m), kiln_stmt_var(cx, s, 1)};
    d[j] = kiln_tensor_load(cx, v->p->tensors.data[columns->out], index);
  }
  const kiln_expr *tile[] = {kiln_stmt_var(cx, s, 0), kiln_div(cx, h, m), kiln_div(cx, w, m)},
                  *at[] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1), h, w};
  s->n_reduce = 0;
  s->combiner = KILN_COMBINE_NONE;
  s->body = kiln_select(cx, kiln_tensor_load(cx, v->p->tensors.data[fits->out], tile),
                        transform(v, output_row, v->plan.form->outputs, kiln_mod(cx, w, m), d),
                        kiln_tensor_load(cx, v->p->tensors.data[direct->out], at));
}

bool kiln_winograd_is_result(const kiln_program *p, const kiln_facts *facts, const kiln_stmt *s) {
  const int kernel = kiln_fact_of(facts, s->out).kernel;
  if (kernel == 0 || s->body->kind != KILN_EXPR_SELECT) return false;
  const kiln_expr *fits = s->body->args[0];
  return fits->kind == KILN_EXPR_LOAD && p->tensors.data[fits->u.tensor]->def >= 0 &&
         kiln_fact_of(facts, fits->u.tensor).kernel == kernel;
}

double kiln_winograd_flops(kiln_ctx *cx, const kiln_program *p) {
  double flops = kiln_program_flops(cx, p);
  const kiln_expr *a, *b;
  const kiln_stmt *direct = NULL; // the last contraction
  for (int i = 0; i < p->stmts.n; i++)
    if (kiln_stmt_is_contraction(p->stmts.data[i], &a, &b)) direct = p->stmts.data[i];
  return direct ? flops - 2 * (double)kiln_stmt_domain(direct) : flops;
}

// --- the pass ---

// The convolution's only reader, if it is a map that reads each element at its own index.
static kiln_stmt *find_epilogue(const convolution *v, const kiln_users *users) {
  const kiln_tensor *t = v->p->tensors.data[v->s->out];
  if (t->role != KILN_TEMP || users->first[t->id + 1] - users->first[t->id] != 1) return NULL;
  kiln_stmt *e = v->p->stmts.data[users->users[users->first[t->id]]];
  if (kiln_fact_of(v->facts, e->out).kernel || !kiln_stmt_is_map(v->cx, e) || e->n_space != t->rank)
    return NULL;
  const kiln_loads loads = kiln_stmt_loads(v->cx, &v->cx->scratch, v->p, e);
  for (int i = 0; i < loads.n; i++)
    for (int k = 0; loads.data[i]->u.tensor == t->id && k < t->rank; k++)
      if (!is_var(loads.data[i]->args[k], e->dims[k].name) &&
          !(kiln_expr_is_zero(loads.data[i]->args[k]) && kiln_dim_extent(&e->dims[k]) == 1))
        return NULL;
  return is_channels_last(v->p->tensors.data[e->out]) ? e : NULL;
}

typedef struct stmt_list {
  kiln_stmt **data;
  int n, cap;
} stmt_list;

// Copies weights in another layout to (k, c, kh, kw).
static void gather_weights(convolution *v) {
  const int64_t shape[] = {v->shape.k, v->shape.c, v->shape.kh, v->shape.kw};
  const kiln_symbol reduced[] = {v->x->args[1]->u.sym, v->elements[0], v->elements[1]};
  kiln_const c = {.dtype = KILN_F32, .rank = 4, .bytes = sizeof(float)};
  for (int k = 0; k < 4; k++) {
    c.shape[k] = shape[k];
    c.bytes *= (size_t)shape[k];
  }
  char *to = kiln_arena_alloc(&v->cx->perm, c.bytes);
  for (int64_t i = 0; i < (int64_t)(c.bytes / sizeof(float)); i++) {
    int64_t rest = i, from = v->first;
    for (int k = 3; k >= 0; rest /= shape[k--]) from += rest % shape[k] * v->steps[k];
    memcpy(to + (size_t)i * sizeof(float),
           (const char *)v->weights->data + (size_t)from * sizeof(float), sizeof(float));
  }
  c.data = to;
  v->weights = kiln_tensor_make_const(v->cx, v->p, kiln_symbol_text(v->cx, v->weights->name), &c);
  const kiln_expr *at[] = {kiln_stmt_var(v->cx, v->s, 1), kiln_var(v->cx, reduced[0]),
                           kiln_var(v->cx, reduced[1]), kiln_var(v->cx, reduced[2])};
  v->s->body = kiln_mul(v->cx, v->x, kiln_tensor_load(v->cx, v->weights, at));
}

static void rewrite(convolution *v, kiln_stmt *epilogue, stmt_list *out) {
  if (!are_whole(v)) gather_weights(v);
  kiln_stmt *sizes = make_sizes(v), *windows = make_windows(v, sizes),
            *fits = make_fits(v, windows), *rows = make_rows(v), *inputs = make_inputs(v, rows),
            *products = make_products(v, inputs), *columns = make_columns(v, products),
            *direct = make_direct(v);
  make_outputs(v, columns, fits, direct);
  if (epilogue) kiln_fact_at(v->cx, v->facts, epilogue->out)->kernel = v->kernel;
  kiln_stmt *const all[] = {sizes, windows, fits, rows, inputs, products, columns, direct};
  for (size_t i = 0; i < KILN_LEN(all); i++) KILN_VEC_PUSH(&v->cx->scratch, out, all[i]);
}

static void renumber(kiln_ctx *cx, kiln_program *p, const stmt_list *all) {
  p->stmts.n = 0;
  for (int i = 0; i < all->n; i++) kiln_stmt_append(cx, p, all->data[i]);
}

static double constant_bytes(const kiln_program *p) {
  double bytes = 0;
  for (int i = 0; i < p->tensors.n; i++)
    if (p->tensors.data[i]->role == KILN_CONST) bytes += (double)p->tensors.data[i]->bytes;
  return bytes;
}

typedef struct convolutions {
  KILN_VEC(convolution) found; // in program order
  kiln_winograd_offer *offers; // [found]
} convolutions;

static void find_convolutions(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                              kiln_winograd_list *late, convolutions *out) {
  for (int i = 0; i < p->stmts.n; i++) {
    convolution v = {.cx = cx, .p = p, .facts = facts, .s = p->stmts.data[i], .late = late};
    if (v.s && match(&v)) KILN_VEC_PUSH(&cx->scratch, &out->found, v);
  }
  out->offers = KILN_NEW_ARRAY(&cx->scratch, kiln_winograd_offer, out->found.n);
  for (int i = 0; i < out->found.n; i++) {
    out->offers[i].shape = out->found.data[i].shape;
    const convolution *v = &out->found.data[i];
    out->offers[i].panels = are_whole(v) ? kiln_fact_of(facts, v->weights->id).panels : 0;
  }
}

kiln_status kiln_tile_winograd(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m, int n_threads, double growth,
                               kiln_winograd_list *late, int *out_n) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  const int n = p->stmts.n;
  convolutions all = {0};
  stmt_list stmts = {0};
  int n_kernels = 0, at = 0;
  find_convolutions(cx, p, facts, late, &all);
  kiln_winograd_choose(cx, m, n_threads, growth > 0 ? (growth - 1) * constant_bytes(p) : INFINITY,
                       all.found.n, all.offers);
  for (int i = 0; i < n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    const bool is_convolution = at < all.found.n && all.found.data[at].s == s;
    if (is_convolution && all.offers[at].plan.form) {
      convolution *v = &all.found.data[at];
      v->plan = all.offers[at].plan;
      kiln_stmt *epilogue = find_epilogue(v, &users);
      v->kernel = ++n_kernels;
      kiln_fact_at(cx, facts, s->out)->kernel = n_kernels;
      rewrite(v, epilogue, &stmts);
    }
    at += is_convolution;
    KILN_VEC_PUSH(&cx->scratch, &stmts, s);
  }
  if (n_kernels > 0) renumber(cx, p, &stmts);
  *out_n = n_kernels;
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
