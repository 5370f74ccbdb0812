// DFT and STFT: products with constant matrices of cosines and sines. A length N1 * N2 is two
// shorter transforms with a rotation between them (Cooley and Tukey), so that the matrices stay
// small; a long prime length reads its matrix from the table of the N roots, and so does a named
// one, whose roots the run computes.
// source: ONNX DFT-17, 20; STFT-17
#include "fission/terms.h"

#include "analysis/interpret.h"
#include "fission/data_dependent.h"
#include "support/integer.h"

#include <math.h>

enum { MAX_DIRECT = 64, MAX_MATRIX = 1024, MAX_LENGTH = 1 << 22, MAX_NAMED = 1 << 12 };

// What is to be transformed: (before, n, behind, 1 or 2), the last axis real and imaginary parts.
typedef struct signal {
  kiln_lower *lw;
  kiln_tensor *x;
  int64_t n;               // the most where |length| is named
  const kiln_expr *length; // n as an expression
  kiln_dtype t;
  bool inverse;
} signal;

static bool is_named(const signal *g) { return !kiln_expr_is_int(g->length, NULL); }

// --- tables ---

// The real or imaginary part of the root |step| of |n|; exact at quarters of a turn.
static double turn_part(const signal *g, int64_t step, int64_t n, int part) {
  static const double quarters[] = {1, 0, -1, 0};
  const double angle = 2 * 3.14159265358979323846 * (double)step / (double)n;
  const bool is_quarter = 4 * step % n == 0;
  const int64_t quarter = 4 * step / n % 4;
  if (part == 0) return is_quarter ? quarters[quarter] : cos(angle);
  const double sine = is_quarter ? quarters[(quarter + 3) % 4] : sin(angle);
  return g->inverse ? sine : 0 - sine;
}

// The factor of input part |from| in output part |to|, of the root |step| of |n|.
static double root_part(const signal *g, int64_t step, int64_t n, int from, int to) {
  if (from == 0 || to == from) return turn_part(g, step, n, from == to ? 0 : 1);
  return 0 - turn_part(g, step, n, 1);
}

// R(j, from, to) of j in 0:n.
static const kiln_tensor *roots_table(const signal *g, int64_t n) {
  const int64_t shape[] = {n, 2, 2};
  void *data = kiln_arena_alloc(&g->lw->cx->perm, (size_t)(4 * n) * (size_t)kiln_dtype_bytes(g->t));
  for (int64_t i = 0; i < 4 * n; i++)
    kiln_element_set(g->t, data, i, root_part(g, i / 4, n, (int)(i / 2 % 2), (int)(i % 2)));
  return kiln_lower_make_const(g->lw, "roots", g->t, 3, shape, data);
}

// R(j, from, to) of a named length, as a statement.
static const kiln_tensor *computed_roots(const signal *g) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_dtype f = KILN_F64;
  const kiln_expr *two = kiln_int(cx, 2), *extents[] = {g->length, two, two}, *v[3];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "roots", g->t, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *turn = kiln_float(cx, f, 2 * 3.14159265358979323846);
  const kiln_expr *part =
      kiln_div(cx, kiln_cast(cx, f, v[0]), kiln_cast(cx, f, kiln_most(cx, g->length, two)));
  const kiln_expr *angle = kiln_mul(cx, turn, part);
  const kiln_expr *sine = kiln_unary(cx, KILN_EXPR_SIN, angle);
  const kiln_expr *less = kiln_unary(cx, KILN_EXPR_NEG, sine);
  const kiln_expr *is_real = kiln_compare(cx, KILN_EXPR_EQ, v[1], kiln_int(cx, 0));
  const kiln_expr *other =
      kiln_select(cx, is_real, g->inverse ? sine : less, g->inverse ? less : sine);
  const kiln_expr *same = kiln_compare(cx, KILN_EXPR_EQ, v[1], v[2]);
  s->body = kiln_cast(cx, g->t, kiln_select(cx, same, kiln_unary(cx, KILN_EXPR_COS, angle), other));
  return kiln_lower_tensor(g->lw, s);
}

// M(k, j, from, to) = R(k * j % n, from, to) for k in 0:rows, times |scale|.
static const kiln_tensor *matrix(const signal *g, int64_t rows, double scale) {
  const int64_t n = g->n, shape[] = {rows, n, 2, 2};
  void *data =
      kiln_arena_alloc(&g->lw->cx->perm, (size_t)(4 * rows * n) * (size_t)kiln_dtype_bytes(g->t));
  for (int64_t i = 0; i < 4 * rows * n; i++)
    kiln_element_set(
        g->t, data, i,
        scale * root_part(g, i / 4 / n * (i / 4 % n) % n, n, (int)(i / 2 % 2), (int)(i % 2)));
  return kiln_lower_make_const(g->lw, "dft_matrix", g->t, 4, shape, data);
}

// --- statements ---

// Y(p, k, q, c) = sum over j and d of x(p, j, q, d) * M(k, j, d, c), k in 0:rows, c in 0:parts.
static kiln_tensor *multiply(const signal *g, const kiln_tensor *m, const kiln_expr *rows,
                             int parts, const kiln_expr *scale) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_tensor *x = g->x;
  const bool whole = m->rank == 4;
  const kiln_expr *extents[] = {x->shape[0],         rows,      x->shape[2],
                                kiln_int(cx, parts), g->length, x->shape[3]};
  const kiln_expr *v[6];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "dft", g->t, 4, 2, extents);
  kiln_stmt_vars(cx, s, 0, 6, v);
  const kiln_expr *at_x[] = {v[0], v[4], v[2], v[5]}, *at_m[] = {v[1], v[4], v[5], v[3]};
  const kiln_expr *step = kiln_mod(cx, kiln_mul(cx, v[1], v[4]), g->length);
  const kiln_expr *at_root[] = {step, v[5], v[3]};
  const kiln_expr *root = kiln_tensor_load(cx, m, whole ? at_m : at_root);
  s->body = kiln_mul(cx, kiln_cast(cx, g->t, kiln_tensor_load(cx, x, at_x)), root);
  if (scale) s->body = kiln_mul(cx, s->body, scale);
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(g->lw, s);
}

static kiln_tensor *product(const signal *g, int64_t rows, int parts, double scale) {
  kiln_ctx *cx = g->lw->cx;
  const bool whole = g->n <= MAX_MATRIX;
  const kiln_tensor *m = whole ? matrix(g, rows, scale) : roots_table(g, g->n);
  const kiln_expr *factor = whole || scale == 1 ? NULL : kiln_float(cx, g->t, scale);
  return multiply(g, m, kiln_int(cx, rows), parts, factor);
}

// Y(p, k, m * behind + q, c) = the rotation of x(p, k, m * behind + q) by the root k * m of |n|.
static kiln_tensor *rotate(const signal *g, kiln_tensor *x, const kiln_expr *behind, int64_t n) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_tensor *roots = roots_table(g, n);
  const kiln_expr *v[KILN_MAX_RANK], *sum = NULL;
  kiln_stmt *s = kiln_lower_like(g->lw, "dft_rotated", x, g->t, v);
  const kiln_expr *step = kiln_mul(cx, v[1], kiln_div(cx, v[2], behind));
  for (int d = 0; d < 2; d++) {
    const kiln_expr *part = kiln_int(cx, d);
    const kiln_expr *at[] = {v[0], v[1], v[2], part}, *at_root[] = {step, part, v[3]};
    const kiln_expr *term =
        kiln_mul(cx, kiln_tensor_load(cx, x, at), kiln_tensor_load(cx, roots, at_root));
    sum = sum ? kiln_add(cx, sum, term) : term;
  }
  s->body = sum;
  return kiln_lower_tensor(g->lw, s);
}

// The first factor of |n|: the largest that a small matrix transforms, else the least; |n| when it
// is not to be split.
static int64_t first_factor(int64_t n) {
  if (n <= MAX_DIRECT) return n;
  for (int64_t f = MAX_DIRECT; f > 1; f--)
    if (n % f == 0) return f;
  for (int64_t f = MAX_DIRECT + 1; f * f <= n; f++)
    if (n % f == 0) return f;
  return n;
}

// The first |rows| frequencies of |g|, |parts| of each, times |scale|: (before, rows, behind,
// parts). The depth of the recursion is the number of factors.
static kiln_tensor *transform(const signal *g, int64_t rows, int parts, double scale) {
  kiln_ctx *cx = g->lw->cx;
  const int64_t n1 = first_factor(g->n), n2 = g->n / n1;
  if (n2 == 1) return product(g, rows, parts, scale);
  const kiln_expr *before = g->x->shape[0], *behind = g->x->shape[2], *first = kiln_int(cx, n1);
  const kiln_expr *split[] = {before, first, kiln_mul(cx, kiln_int(cx, n2), behind),
                              g->x->shape[3]};
  const kiln_expr *joined[] = {kiln_mul(cx, before, first), kiln_int(cx, n2), behind,
                               kiln_int(cx, 2)};
  signal part = *g;
  part.n = n1;
  part.length = first;
  part.x = kiln_lower_reshape(g->lw, g->x, 4, split);
  part.x = rotate(g, product(&part, n1, 2, 1), behind, g->n);
  part.n = n2;
  part.length = kiln_int(cx, n2);
  part.x = kiln_lower_reshape(g->lw, part.x, 4, joined);
  const kiln_tensor *y = transform(&part, kiln_divide_up(rows, n1), parts, scale);
  const kiln_expr *extents[] = {before, kiln_int(cx, rows), behind, kiln_int(cx, parts)}, *v[4];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "dft_joined", g->t, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *row = kiln_add(cx, kiln_mul(cx, v[0], first), kiln_mod(cx, v[1], first));
  const kiln_expr *at[] = {row, kiln_div(cx, v[1], first), v[2], v[3]};
  s->body = kiln_tensor_load(cx, y, at);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(g->lw, s);
}

// The first |rows| frequencies, |parts| of each; of the inverse divided by the length.
static kiln_tensor *transform_all(const signal *g, const kiln_expr *rows, int parts) {
  kiln_ctx *cx = g->lw->cx;
  if (!is_named(g))
    return transform(g, kiln_expr_int_or(rows, 0), parts, g->inverse ? 1.0 / (double)g->n : 1);
  const kiln_expr *scale = NULL;
  if (g->inverse)
    scale = kiln_div(cx, kiln_float(cx, g->t, 1),
                     kiln_cast(cx, g->t, kiln_most(cx, g->length, kiln_int(cx, 1))));
  return multiply(g, computed_roots(g), rows, parts, scale);
}

// The frequencies of a transform: of |onesided| ones half of them, and that of 0.
static const kiln_expr *frequencies(kiln_ctx *cx, const signal *g, bool onesided) {
  const kiln_expr *half = kiln_add(cx, kiln_div(cx, g->length, kiln_int(cx, 2)), kiln_int(cx, 1));
  return onesided ? half : g->length;
}

// Sets the length of |g|, and the most of it.
static kiln_status set_length(signal *g, const kiln_expr *length) {
  kiln_lower *lw = g->lw;
  g->length = kiln_lower_tidy(lw->cx, length);
  if (is_named(g) && (!lw->dims || !kiln_lower_most(lw, g->length, &g->n)))
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "the length of the transform must be known when compiling, got %s",
                     kiln_expr_text(lw->cx, g->length));
  if (!is_named(g)) g->n = kiln_expr_int_or(g->length, 0);
  const int64_t most = is_named(g) ? MAX_NAMED : MAX_LENGTH;
  if (g->n >= 1 && g->n <= most) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, g->n < 1 ? KILN_BAD_INPUT : KILN_UNSUPPORTED, lw->place,
                   "the length of the transform must lie in [1, %" PRId64 "], got %" PRId64, most,
                   g->n);
}

// An optional input of one extent; *out stays if it is omitted.
static kiln_status read_extent(kiln_lower *lw, int i, const kiln_expr **out) {
  int n = 0;
  const kiln_expr *const *values = NULL;
  KILN_TRY(kiln_lower_known_values(lw, i, &n, &values));
  if (n < 0) return KILN_OK;
  if (n != 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input %d: must have one element, got %d", i, n);
  *out = values[0];
  return KILN_OK;
}

// An optional input of one integer.
static kiln_status read_int(kiln_lower *lw, int i, int64_t otherwise, int64_t *out) {
  int n = 0;
  const int64_t *values = NULL;
  *out = otherwise;
  KILN_TRY(kiln_lower_const_ints(lw, i, &n, &values));
  if (n < 0) return KILN_OK;
  if (n != 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input %d: must have one element, got %d", i, n);
  *out = values[0];
  return KILN_OK;
}

static kiln_status want_parts(kiln_lower *lw, const kiln_tensor *x) {
  int64_t parts = 0;
  KILN_TRY(kiln_lower_extent(lw, x, x->rank - 1, &parts));
  if (parts == 1 || parts == 2) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: the last axis must have extent 1 or 2, got %" PRId64,
                   kiln_symbol_text(lw->cx, x->name), parts);
}

// --- DFT ---

typedef struct dft {
  signal g;
  int axis;
  bool onesided;
} dft;

static kiln_status read_dft(kiln_lower *lw, dft *out) {
  int64_t axis = 0, inverse = 0, onesided = 0;
  const bool axis_is_input = lw->node->opset >= 20;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, axis_is_input ? 3 : 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, KILN_MAX_RANK));
  KILN_TRY(want_parts(lw, x));
  KILN_TRY(kiln_lower_int(lw, "inverse", 0, &inverse));
  KILN_TRY(kiln_lower_int(lw, "onesided", 0, &onesided));
  if (axis_is_input) KILN_TRY(read_int(lw, 2, -2, &axis));
  else KILN_TRY(kiln_lower_int(lw, "axis", 1, &axis));
  KILN_TRY(kiln_lower_axis(lw, axis, x->rank, false, &out->axis));
  if (out->axis == x->rank - 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "axis: must not be the last, of real and imaginary parts, got %" PRId64, axis);
  const kiln_expr *length = x->shape[out->axis];
  if (inverse && onesided)
    length = kiln_mul(lw->cx, kiln_int(lw->cx, 2), kiln_sub(lw->cx, length, kiln_int(lw->cx, 1)));
  KILN_TRY(read_extent(lw, 1, &length));
  out->onesided = onesided != 0;
  out->g = (signal){.lw = lw, .x = x, .t = kiln_accumulator(x->dtype), .inverse = inverse != 0};
  return set_length(&out->g, length);
}

// The signal brought to its length: cut, or filled up with zeros; of the inverse of a onesided
// transform with the conjugates of its first half.
static kiln_tensor *fill_up(const dft *d, kiln_tensor *x) {
  const signal *g = &d->g;
  kiln_ctx *cx = g->lw->cx;
  const bool mirrored = g->inverse && d->onesided;
  const kiln_expr *have = x->shape[1], *n = g->length;
  if (have == n && !mirrored) return x;
  const kiln_expr *extents[] = {x->shape[0], n, x->shape[2], x->shape[3]}, *v[4];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "dft_signal", x->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *half = kiln_div(cx, n, kiln_int(cx, 2));
  const kiln_expr *first = kiln_compare(cx, KILN_EXPR_LE, v[1], half);
  const kiln_expr *place = mirrored ? kiln_select(cx, first, v[1], kiln_sub(cx, n, v[1])) : v[1];
  const kiln_expr *at[] = {v[0], place, v[2], v[3]};
  const kiln_expr *value = kiln_tensor_load(cx, x, at);
  value = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, place, have), value,
                      kiln_float(cx, x->dtype, 0));
  if (mirrored) {
    const kiln_expr *real = kiln_compare(cx, KILN_EXPR_EQ, v[3], kiln_int(cx, 0));
    const kiln_expr *same = kiln_binary(cx, KILN_EXPR_OR, first, real);
    value = kiln_select(cx, same, value, kiln_unary(cx, KILN_EXPR_NEG, value));
  }
  s->body = value;
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(g->lw, s);
}

static kiln_status lower_dft(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  dft d;
  KILN_TRY(read_dft(lw, &d));
  signal *g = &d.g;
  kiln_tensor *x = g->x;
  const bool real = g->inverse && d.onesided;
  const kiln_expr *shape[KILN_MAX_RANK], *rows = frequencies(cx, g, d.onesided && !g->inverse);
  for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
  const kiln_expr *flat[] = {kiln_multiply_all(cx, d.axis, shape), shape[d.axis],
                             kiln_multiply_all(cx, x->rank - d.axis - 2, shape + d.axis + 1),
                             shape[x->rank - 1]};
  g->x = fill_up(&d, kiln_lower_reshape(lw, x, 4, flat));
  kiln_tensor *y = transform_all(g, rows, real ? 1 : 2);
  KILN_TRY(kiln_lower_cast(lw, y, x->dtype, &y));
  shape[d.axis] = rows;
  shape[x->rank - 1] = kiln_int(cx, real ? 1 : 2);
  lw->outputs[0] = kiln_lower_reshape(lw, y, x->rank, shape);
  return KILN_OK;
}

// --- STFT ---

typedef struct frames {
  signal g;
  kiln_tensor *x;            // (B, L, 1 or 2)
  const kiln_tensor *window; // (n); NULL: ones
  int64_t step;
  const kiln_expr *count;
  bool onesided;
} frames;

static kiln_status read_frames(kiln_lower *lw, frames *out) {
  int64_t length = 0, onesided = 1;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, 3));
  const kiln_expr *shape[] = {x->shape[0], x->shape[1], kiln_int(lw->cx, 1)};
  if (x->rank == 2) x = kiln_lower_reshape(lw, x, 3, shape);
  KILN_TRY(want_parts(lw, x));
  *out = (frames){.x = x, .window = kiln_lower_in(lw, 2)};
  out->g = (signal){.lw = lw, .t = kiln_accumulator(x->dtype)};
  KILN_TRY(kiln_lower_int(lw, "onesided", 1, &onesided));
  if (out->window) KILN_TRY(kiln_lower_want_rank(lw, out->window, 1, 1));
  KILN_TRY(read_int(lw, 1, 1, &out->step));
  const kiln_expr *n = out->window ? out->window->shape[0] : x->shape[1],
                  *one = kiln_int(lw->cx, 1);
  KILN_TRY(read_extent(lw, 3, &n));
  KILN_TRY(set_length(&out->g, n));
  KILN_TRY(kiln_lower_want_extent(lw, out->window, 0, out->g.length));
  const bool is_short =
      kiln_expr_is_int(x->shape[1], &length) && !is_named(&out->g) && out->g.n > length;
  if (out->step < 1 || is_short)
    return KILN_FAIL(
        lw->cx->diag, KILN_BAD_INPUT, lw->place,
        "frame_step: must be positive and frames no longer than the signal, got a step "
        "of %" PRId64 " and frames of %" PRId64 " of %" PRId64 " elements",
        out->step, out->g.n, length);
  const kiln_expr *rest = kiln_sub(lw->cx, x->shape[1], out->g.length);
  out->count = kiln_add(lw->cx, kiln_div(lw->cx, rest, kiln_int(lw->cx, out->step)), one);
  out->count = kiln_lower_tidy(lw->cx, out->count);
  out->onesided = onesided != 0;
  return KILN_OK;
}

// (B * frames, n, 1, parts), times the window.
static kiln_tensor *cut_frames(const frames *f) {
  kiln_lower *lw = f->g.lw;
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = f->g.t;
  const kiln_expr *count = f->count, *n = f->g.length, *v[4];
  const kiln_expr *extents[] = {f->x->shape[0], count, n, f->x->shape[2]};
  const kiln_expr *flat[] = {kiln_mul(cx, f->x->shape[0], count), n, kiln_int(cx, 1),
                             f->x->shape[2]};
  kiln_stmt *s = kiln_lower_stmt(lw, "frames", t, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *place = kiln_add(cx, kiln_mul(cx, v[1], kiln_int(cx, f->step)), v[2]);
  const kiln_expr *at[] = {v[0], place, v[3]};
  s->body = kiln_cast(cx, t, kiln_tensor_load(cx, f->x, at));
  if (f->window)
    s->body = kiln_mul(cx, s->body, kiln_cast(cx, t, kiln_tensor_load(cx, f->window, &v[2])));
  return kiln_lower_reshape(lw, kiln_lower_tensor(lw, s), 4, flat);
}

static kiln_status lower_stft(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  frames f;
  KILN_TRY(read_frames(lw, &f));
  f.g.x = cut_frames(&f);
  const kiln_expr *rows = frequencies(cx, &f.g, f.onesided);
  kiln_tensor *y = transform_all(&f.g, rows, 2);
  const kiln_expr *shape[] = {f.x->shape[0], f.count, rows, kiln_int(cx, 2)};
  KILN_TRY(kiln_lower_cast(lw, y, f.x->dtype, &y));
  lw->outputs[0] = kiln_lower_reshape(lw, y, 4, shape);
  return KILN_OK;
}

const kiln_op kiln_op_dft[] = {
    {"", "DFT", 17, 0, lower_dft, NULL, "ops/dft.c"},
    {"", "STFT", 17, 0, lower_stft, NULL, "ops/dft.c"},
    {0},
};
