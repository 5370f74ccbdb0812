// Contractions in double precision, at some hundred million multiply-adds a second: dims are
// coalesced where strides allow it, the innermost is chosen by its strides, and a tight loop adds
// either a row of outputs (innermost a space dim) or a dot product (innermost a reduction dim).
#include "analysis/contract.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIMS = 16, ROW = 512 };

typedef struct dim {
  int64_t extent, a, b, y; // strides of the two factors and the result, in elements
} dim;

typedef struct product {
  const float *a, *b; // the elements at index 0
  kiln_dtype dtype;   // of the result
  void *y;
  int n_space, n_reduce;
  dim space[MAX_DIMS], reduce[MAX_DIMS];
  double *magnitudes, *squares; // sums of |term| and term squared; both NULL if not wanted
} product;

// Sums of terms, of their magnitudes and of their squares.
typedef struct moments {
  double sum, magnitude, square;
} moments;

// Coalesces |dims| where an inner dim's last element is followed by the outer one's next.
static int merge(dim *dims, int n) {
  int m = 0;
  for (int i = 0; i < n; i++) {
    if (dims[i].extent == 1) continue;
    dim *outer = m > 0 ? &dims[m - 1] : NULL;
    const dim *d = &dims[i];
    if (outer && outer->a == d->a * d->extent && outer->b == d->b * d->extent &&
        outer->y == d->y * d->extent)
      *outer = (dim){outer->extent * d->extent, d->a, d->b, d->y};
    else dims[m++] = *d;
  }
  return m;
}

// Estimated nanoseconds a multiply-add with |d| innermost.
static double cost(const dim *d) {
  const int64_t a = llabs((long long)d->a), b = llabs((long long)d->b);
  const int64_t stride = a > b ? a : b;
  return (stride <= 1 ? 0.4 : stride <= 8 ? 0.9 : 2.0) + 5.0 / (double)d->extent;
}

static int cheapest(const dim *dims, int n) {
  int best = n - 1;
  for (int i = 0; i < n; i++)
    if (cost(&dims[i]) < cost(&dims[best])) best = i;
  return best;
}

static dim take(dim *dims, int *n, int i) {
  const dim d = dims[i];
  memmove(&dims[i], &dims[i + 1], sizeof(dim) * (size_t)(*n - i - 1));
  (*n)--;
  return d;
}

typedef struct cursor {
  int64_t at[MAX_DIMS], a, b, y;
} cursor;

static bool advance(cursor *k, const dim *dims, int n) {
  for (int d = n - 1; d >= 0; d--) {
    k->a += dims[d].a;
    k->b += dims[d].b;
    k->y += dims[d].y;
    if (++k->at[d] < dims[d].extent) return true;
    k->at[d] = 0;
    k->a -= dims[d].a * dims[d].extent;
    k->b -= dims[d].b * dims[d].extent;
    k->y -= dims[d].y * dims[d].extent;
  }
  return false;
}

// sums[i] += sum over j of a[i*sa + j*ta] * b[j*tb], a contiguous (sa is 1).
static void add_rows(double *restrict sums, int64_t n, const float *a, const float *b, dim r) {
  int64_t j = 0;
  for (; j + 4 <= r.extent; j += 4) {
    const float *a0 = a + j * r.a, *a1 = a0 + r.a, *a2 = a1 + r.a, *a3 = a2 + r.a;
    const double b0 = b[j * r.b], b1 = b[(j + 1) * r.b], b2 = b[(j + 2) * r.b],
                 b3 = b[(j + 3) * r.b];
    for (int64_t i = 0; i < n; i++)
      sums[i] += (double)a0[i] * b0 + (double)a1[i] * b1 + (double)a2[i] * b2 + (double)a3[i] * b3;
  }
  for (; j < r.extent; j++) {
    const float *a0 = a + j * r.a;
    const double b0 = b[j * r.b];
    for (int64_t i = 0; i < n; i++) sums[i] += (double)a0[i] * b0;
  }
}

static void add_any(double *restrict sums, int64_t n, const float *a, const float *b, dim v,
                    dim r) {
  for (int64_t j = 0; j < r.extent; j++)
    for (int64_t i = 0; i < n; i++)
      sums[i] += (double)a[i * v.a + j * r.a] * (double)b[i * v.b + j * r.b];
}

static void add_to_row(double *sums, int64_t n, const float *a, const float *b, dim v, dim r) {
  if (v.a == 1 && v.b == 0) {
    add_rows(sums, n, a, b, r);
  } else if (v.a == 0 && v.b == 1) {
    const dim swapped = {r.extent, r.b, r.a, 0};
    add_rows(sums, n, b, a, swapped);
  } else {
    add_any(sums, n, a, b, v, r);
  }
}

// --- with magnitudes and squares of the terms ---

static void add_moments(double *restrict sums, double *restrict magnitudes,
                        double *restrict squares, int64_t n, const float *a, const float *b, dim v,
                        dim r) {
  for (int64_t j = 0; j < r.extent; j++)
    for (int64_t i = 0; i < n; i++) {
      const double t = (double)a[i * v.a + j * r.a] * (double)b[i * v.b + j * r.b];
      sums[i] += t;
      magnitudes[i] += fabs(t);
      squares[i] += t * t;
    }
}

// Nearly all calls have one of two strides: constants let the compiler vectorize.
static void add_moments_of(double *sums, double *magnitudes, double *squares, int64_t n,
                           const float *a, const float *b, dim v, dim r) {
  if (v.a == 1 && v.b == 0)
    add_moments(sums, magnitudes, squares, n, a, b, (dim){v.extent, 1, 0, 0}, r);
  else if (v.a == 0 && v.b == 1)
    add_moments(sums, magnitudes, squares, n, b, a, (dim){v.extent, 1, 0, 0},
                (dim){r.extent, r.b, r.a, 0});
  else add_moments(sums, magnitudes, squares, n, a, b, v, r);
}

static void moments_by_rows(product *p, dim v) {
  const dim one = {1, 0, 0, 0};
  const dim r = p->n_reduce ? take(p->reduce, &p->n_reduce, cheapest(p->reduce, p->n_reduce)) : one;
  double sums[3][ROW];
  cursor s = {0};
  do {
    for (int64_t first = 0; first < v.extent; first += ROW) {
      const int64_t n = v.extent - first < ROW ? v.extent - first : ROW;
      memset(sums, 0, sizeof sums);
      cursor k = {.a = s.a + first * v.a, .b = s.b + first * v.b};
      do add_moments_of(sums[0], sums[1], sums[2], n, p->a + k.a, p->b + k.b, v, r);
      while (advance(&k, p->reduce, p->n_reduce));
      for (int64_t i = 0; i < n; i++) {
        const int64_t at = s.y + (first + i) * v.y;
        if (p->y) kiln_element_set(p->dtype, p->y, at, sums[0][i]);
        p->magnitudes[at] = sums[1][i];
        p->squares[at] = sums[2][i];
      }
    }
  } while (advance(&s, p->space, p->n_space));
}

static moments moments_of(const float *a, const float *b, dim v) {
  double sum = 0, magnitude = 0, square = 0;
  for (int64_t i = 0; i < v.extent; i++) {
    const double t = (double)a[i * v.a] * (double)b[i * v.b];
    sum += t;
    magnitude += fabs(t);
    square += t * t;
  }
  return (moments){sum, magnitude, square};
}

static void moments_by_dots(product *p, dim v) {
  cursor s = {0};
  do {
    moments all = {0};
    cursor k = {.a = s.a, .b = s.b};
    do {
      const moments m = moments_of(p->a + k.a, p->b + k.b, v);
      all = (moments){all.sum + m.sum, all.magnitude + m.magnitude, all.square + m.square};
    } while (advance(&k, p->reduce, p->n_reduce));
    if (p->y) kiln_element_set(p->dtype, p->y, s.y, all.sum);
    p->magnitudes[s.y] = all.magnitude;
    p->squares[s.y] = all.square;
  } while (advance(&s, p->space, p->n_space));
}

// --- the loop nest ---

static void by_rows(product *p, dim v) {
  const dim one = {1, 0, 0, 0};
  const dim r = p->n_reduce ? take(p->reduce, &p->n_reduce, cheapest(p->reduce, p->n_reduce)) : one;
  double sums[ROW];
  cursor s = {0};
  do {
    for (int64_t first = 0; first < v.extent; first += ROW) {
      const int64_t n = v.extent - first < ROW ? v.extent - first : ROW;
      memset(sums, 0, sizeof(double) * (size_t)n);
      cursor k = {.a = s.a + first * v.a, .b = s.b + first * v.b};
      do add_to_row(sums, n, p->a + k.a, p->b + k.b, v, r);
      while (advance(&k, p->reduce, p->n_reduce));
      for (int64_t i = 0; i < n; i++)
        kiln_element_set(p->dtype, p->y, s.y + (first + i) * v.y, sums[i]);
    }
  } while (advance(&s, p->space, p->n_space));
}

static double dot(const float *a, const float *b, dim v) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t i = 0;
  for (; i + 4 <= v.extent; i += 4) {
    s0 += (double)a[i * v.a] * (double)b[i * v.b];
    s1 += (double)a[(i + 1) * v.a] * (double)b[(i + 1) * v.b];
    s2 += (double)a[(i + 2) * v.a] * (double)b[(i + 2) * v.b];
    s3 += (double)a[(i + 3) * v.a] * (double)b[(i + 3) * v.b];
  }
  for (; i < v.extent; i++) s0 += (double)a[i * v.a] * (double)b[i * v.b];
  return (s0 + s1) + (s2 + s3);
}

static void by_dots(product *p, dim v) {
  cursor s = {0};
  do {
    double sum = 0;
    cursor k = {.a = s.a, .b = s.b};
    do sum += dot(p->a + k.a, p->b + k.b, v);
    while (advance(&k, p->reduce, p->n_reduce));
    kiln_element_set(p->dtype, p->y, s.y, sum);
  } while (advance(&s, p->space, p->n_space));
}

static void compute(product *p) {
  p->n_space = merge(p->space, p->n_space);
  p->n_reduce = merge(p->reduce, p->n_reduce);
  const int s = cheapest(p->space, p->n_space), r = cheapest(p->reduce, p->n_reduce);
  const dim one = {1, 0, 0, 0};
  if (r >= 0 && (s < 0 || cost(&p->reduce[r]) <= cost(&p->space[s])))
    (p->squares ? moments_by_dots : by_dots)(p, take(p->reduce, &p->n_reduce, r));
  else (p->squares ? moments_by_rows : by_rows)(p, s >= 0 ? take(p->space, &p->n_space, s) : one);
}

// --- recognition ---

typedef struct factor {
  const kiln_expr *load;
  int64_t coef[MAX_DIMS], start;
  const float *data;
  float *owned; // a widened or aligned copy; NULL if the tensor is read in place
} factor;

static bool is_narrow_float(kiln_dtype t) { return t == KILN_F32 || kiln_dtype_is_half(t); }

// A load of at most f32, or the exact widening of one.
static bool match_factor(const kiln_bytecode *c, const kiln_expr *e, factor *f) {
  if (e->kind == KILN_EXPR_CAST && (e->dtype == KILN_F32 || e->dtype == KILN_F64)) e = e->args[0];
  if (e->kind != KILN_EXPR_LOAD || !is_narrow_float(e->dtype)) return false;
  f->load = e;
  return kiln_bytecode_affine_address(c, e, f->coef, &f->start);
}

static bool take_data(const kiln_bytecode *c, factor *f) {
  const kiln_tensor *t = c->p->tensors.data[f->load->u.tensor];
  const void *data = c->data[t->id];
  f->data = data;
  if (t->dtype == KILN_F32 && (uintptr_t)data % sizeof(float) == 0) return true;
  const int64_t n = kiln_tensor_elems(t);
  f->owned = malloc(sizeof(float) * (size_t)(n > 0 ? n : 1));
  if (!f->owned) return false;
  for (int64_t i = 0; i < n; i++) f->owned[i] = (float)kiln_element_get(t->dtype, data, i);
  f->data = f->owned;
  return true;
}

static void set_dims(product *p, const kiln_bytecode *c, const kiln_stmt *s, const factor *f) {
  int64_t stride = 1;
  p->n_space = s->n_space;
  p->n_reduce = s->n_reduce;
  for (int d = s->n_space - 1; d >= 0; d--) {
    p->space[d] = (dim){c->extents[d], f[0].coef[d], f[1].coef[d], stride};
    stride *= c->extents[d];
  }
  for (int r = 0, d = s->n_space; r < s->n_reduce; r++, d++)
    p->reduce[r] = (dim){c->extents[d], f[0].coef[d], f[1].coef[d], 0};
}

// --- errors ---

typedef struct judged {
  const kiln_bytecode *c;
  const kiln_stmt *s;
  const factor *f; // [2]
  const kiln_errors *tensors;
  const kiln_freedoms *may;
  int64_t n; // elements
} judged;

// The elements of |f| with NaN replaced by 1: a term with a NaN is NaN for certain, whatever the
// other factor's error. If there are any, they are in a copy *|owned|, which the caller frees.
// NULL: no memory.
static const float *without_nan(const judged *j, const factor *f, float **owned) {
  const int64_t n = kiln_tensor_elems(j->c->p->tensors.data[f->load->u.tensor]);
  int64_t first = 0;
  while (first < n && !isnan(f->data[first])) first++;
  if (first == n) return f->data;
  *owned = malloc(sizeof(float) * (size_t)n);
  for (int64_t i = 0; *owned && i < n; i++) (*owned)[i] = isnan(f->data[i]) ? 1 : f->data[i];
  return *owned;
}

// Adds to |io| the squares of (error of factor |k|) * (other factor), one for each term: errors of
// different elements count as independent. An unknown error times 0 is unknown too.
static bool add_squares(const judged *j, int k, double *io) {
  const factor *own = &j->f[k], *other = &j->f[1 - k];
  const kiln_errors *e = &j->tensors[own->load->u.tensor];
  if (!e->typical) return true;
  float *owned = NULL;
  const float *by = without_nan(j, other, &owned);
  if (!by) return false;
  product p = {.a = e->typical + own->start, .b = by + other->start};
  const factor pair[] = {*own, *other};
  p.magnitudes = calloc((size_t)j->n, sizeof(double));
  p.squares = calloc((size_t)j->n, sizeof(double));
  const bool ready = p.magnitudes && p.squares;
  set_dims(&p, j->c, j->s, pair);
  if (ready) compute(&p);
  for (int64_t i = 0; ready && i < j->n; i++)
    io[i] += isnan(p.squares[i]) ? INFINITY : p.squares[i];
  free(p.magnitudes);
  free(p.squares);
  free(owned);
  return ready;
}

// --- transformed convolutions ---

// The window of a convolution that may be computed by transforms (Winograd): the space dims along
// which it slides with stride 1.
typedef struct sliding {
  int dims[2];
  double gain; // product of the transforms' error growth over all dims
  int64_t n;   // elements of the window
} sliding;

// The space dim whose stride in the data |x| equals that of |r|, and that the weights |w| do not
// have; -1: none.
static int dim_along(const judged *j, const factor *x, const factor *w, int r) {
  for (int d = 0; d < j->s->n_space; d++)
    if (x->coef[d] != 0 && x->coef[d] == x->coef[r] && w->coef[d] == 0) return d;
  return -1;
}

enum { KNOWN_DEPTH = 8 };

typedef struct knowing {
  const judged *j;
  int depth;
  bool is_known;
} knowing;

static bool is_known(const judged *j, int tensor, int depth);

static void ask_known(const kiln_expr *e, void *argument) {
  knowing *k = argument;
  k->is_known = k->is_known && is_known(k->j, e->u.tensor, k->depth);
}

// Whether the tensor is a compile-time constant, also by way of computation, as dequantized
// weights.
static bool is_known(const judged *j, int tensor, int depth) {
  const kiln_tensor *t = j->c->p->tensors.data[tensor];
  if (t->role == KILN_CONST) return true;
  if (t->def < 0 || depth == 0) return false;
  knowing k = {j, depth - 1, true};
  kiln_stmt_visit_loads(j->c->cx, j->c->p, j->c->p->stmts.data[t->def], ask_known, &k);
  return k.is_known;
}

// Whether |name| is in |all|, names joined by '+'.
static bool has_name(const char *all, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = all; at; at = strchr(at, '+'), at += at != NULL)
    if (strncmp(at, name, n) == 0 && (at[n] == '+' || at[n] == 0)) return true;
  return false;
}

static bool is_chosen(const judged *j) {
  const kiln_transforms *t = &j->may->transforms;
  for (int i = 0; i < t->n_nodes && j->s->origin; i++)
    if (has_name(t->nodes[i], kiln_symbol_text(j->c->cx, j->s->origin))) return true;
  return t->nodes == NULL;
}

static bool find_sliding(const judged *j, sliding *out) {
  const kiln_transforms *t = &j->may->transforms;
  const bool first = is_known(j, j->f[0].load->u.tensor, KNOWN_DEPTH);
  const factor *w = &j->f[first ? 0 : 1], *x = &j->f[first ? 1 : 0];
  int n = 0;
  *out = (sliding){.gain = 1, .n = 1};
  if (t->outputs == 0 || !is_chosen(j) || !is_known(j, w->load->u.tensor, KNOWN_DEPTH) ||
      x->load->dtype != KILN_F32 || w->load->dtype != KILN_F32)
    return false;
  for (int r = j->s->n_space; r < j->c->n_dims; r++) {
    const int64_t extent = j->c->extents[r];
    const int d = dim_along(j, x, w, r);
    if (d < 0 || extent >= (int64_t)KILN_LEN(t->gain) || t->gain[extent] == 0) continue;
    if (n < 2) out->dims[n] = d;
    n++;
    out->gain *= t->gain[extent];
    out->n *= extent;
  }
  return n == 2;
}

// Maximum filter: each element of |io|, (outer, extent, inner), becomes the greatest of those fewer
// than |reach| elements away.
static bool widen(double *io, int64_t n, int64_t extent, int64_t inner, int64_t reach) {
  double *line = malloc(sizeof(double) * (size_t)extent);
  for (int64_t at = 0; line && at < n;
       at += at % inner == inner - 1 ? (extent - 1) * inner + 1 : 1) {
    for (int64_t i = 0; i < extent; i++) line[i] = io[at + i * inner];
    for (int64_t i = 0; i < extent; i++)
      for (int64_t k = i >= reach ? i - reach + 1 : 0; k < extent && k < i + reach; k++)
        io[at + i * inner] = fmax(io[at + i * inner], line[k]);
  }
  free(line);
  return line != NULL;
}

// For each output, the greatest sum of squared terms among the outputs that may share its tile: a
// tile's errors mix.
static double *tile_squares(const judged *j, const sliding *w, const double *own) {
  double *all = malloc(sizeof(double) * (size_t)j->n);
  bool ready = all != NULL;
  if (ready) memcpy(all, own, sizeof(double) * (size_t)j->n);
  for (int k = 0; ready && k < 2; k++) {
    int64_t inner = 1;
    for (int d = j->s->n_space - 1; d > w->dims[k]; d--) inner *= j->c->extents[d];
    ready = widen(all, j->n, j->c->extents[w->dims[k]], inner, j->may->transforms.outputs);
  }
  for (int64_t i = 0; ready && i < j->n; i++)
    all[i] = fmin(all[i], j->may->transforms.spread * own[i]);
  if (ready) return all;
  free(all);
  return NULL;
}

// Variance of the roundings of a transformed output, those of its products and of sums over |n|
// channels, in squared units of rounding.
static double transformed_variance(const judged *j, const sliding *w, double n, double squares) {
  return w->gain * (j->may->transforms.roundings + n / 2) / 3 * squares;
}

static bool contract_judged(const judged *j, product *p, const kiln_errors *e) {
  const kiln_dtype t = p->dtype;
  const double narrow = 0x1p-10 / (FLT_EPSILON / 2); // tf32
  const double u = (j->may->narrow_products ? narrow : 1) * kiln_error_unit(t);
  int64_t n_terms = 1;
  for (int d = j->s->n_space; d < j->c->n_dims; d++) n_terms *= j->c->extents[d];
  double *squares = calloc((size_t)j->n, sizeof(double));
  p->magnitudes = calloc((size_t)j->n, sizeof(double));
  p->squares = calloc((size_t)j->n, sizeof(double));
  bool ready = squares && p->magnitudes && p->squares;
  product sums = *p;
  if (ready) compute(&sums);
  ready = ready && add_squares(j, 0, squares) && add_squares(j, 1, squares);
  sliding window;
  const bool transforms = t == KILN_F32 && find_sliding(j, &window);
  double *tiles = ready && transforms ? tile_squares(j, &window, p->squares) : NULL;
  ready = ready && (tiles || !transforms);
  const bool is_exact = !transforms && !j->tensors[j->f[0].load->u.tensor].worst &&
                        !j->tensors[j->f[1].load->u.tensor].worst;
  for (int64_t i = 0; ready && i < j->n; i++) {
    const double value = kiln_element_get(t, p->y, i);
    const bool rounds =
        isfinite(p->magnitudes[i]); // an infinite or NaN term makes the result certain
    const double m = rounds ? u * p->magnitudes[i] : 0; // roundings of the products
    double own = rounds ? u * u / 3 * p->squares[i] : 0;
    if (rounds && tiles)
      own += u * u * transformed_variance(j, &window, (double)(n_terms / window.n), tiles[i]);
    const kiln_sum_error sum = {.combiner = KILN_COMBINE_SUM,
                                .dtype = t,
                                .n = n_terms,
                                .magnitude = p->magnitudes[i],
                                .squares = p->squares[i],
                                .e = {is_exact ? m : INFINITY, squares[i] + own}};
    const kiln_error all =
        kiln_error_stored(t, value, kiln_sum_error_end(&sum, (kiln_cell){.f = value}));
    e->worst[i] = (float)all.worst;
    e->typical[i] = (float)all.typical;
  }
  free(tiles);
  free(squares);
  free(p->magnitudes);
  free(p->squares);
  return ready;
}

bool kiln_contract(const kiln_bytecode *c, const kiln_stmt *s, void *out,
                   const kiln_errors *tensors, const kiln_errors *errors,
                   const kiln_freedoms *may) {
  factor f[2] = {0};
  const kiln_tensor *y = c->p->tensors.data[s->out];
  const kiln_dtype t = y->dtype;
  const kiln_expr *e = s->body;
  if (s->combiner != KILN_COMBINE_SUM || s->guard || !kiln_dtype_is_float(t)) return false;
  if (e->kind != KILN_EXPR_MUL || c->n_dims > MAX_DIMS) return false;
  for (int d = 0; d < c->n_dims; d++)
    if (c->extents[d] == 0) return false;
  if (!match_factor(c, e->args[0], &f[0]) || !match_factor(c, e->args[1], &f[1])) return false;
  bool ready = take_data(c, &f[0]) && take_data(c, &f[1]);
  if (ready) {
    product p = {.a = f[0].data + f[0].start, .b = f[1].data + f[1].start, .dtype = t, .y = out};
    const judged j = {c, s, f, tensors, may, kiln_tensor_elems(y)};
    set_dims(&p, c, s, f);
    if (errors) ready = contract_judged(&j, &p, errors);
    else compute(&p);
  }
  free(f[0].owned);
  free(f[1].owned);
  return ready;
}
