// Comparison of tensors; copies between row-major and strided memory.
#include "verify/compare.h"

#include "analysis/rounding_error.h"

#include <math.h>
#include <string.h>

// Iterates over a tensor in row-major order, tracking the strided offset.
typedef struct walk {
  int rank;
  int64_t shape[KILN_MAX_RANK], at[KILN_MAX_RANK], offset, left;
  const int64_t *strides;
} walk;

static walk walk_begin(const kiln_tensor *t, const int64_t *strides) {
  walk w = {.rank = t->rank, .strides = strides, .left = kiln_tensor_elems(t)};
  kiln_tensor_static_shape(t, w.shape);
  return w;
}

static void walk_next(walk *w) {
  w->left--;
  for (int k = w->rank - 1; k >= 0; k--) {
    w->offset += w->strides[k];
    if (++w->at[k] < w->shape[k]) return;
    w->offset -= w->strides[k] * w->shape[k];
    w->at[k] = 0;
  }
}

static double half_rtol(kiln_dtype t) {
  if (t == KILN_F16) return 4.0 / 2048;
  if (t == KILN_BF16) return 4.0 / 256;
  return 0;
}

static double rms(const kiln_tensor *t, const void *want) {
  double sum = 0;
  const int64_t n = kiln_tensor_elems(t);
  for (int64_t i = 0; i < n; i++) {
    const double w = kiln_element_get(t->dtype, want, i);
    if (isfinite(w)) sum += w * w;
  }
  return n > 0 ? sqrt(sum / (double)n) : 0;
}

// The distance from |value| to neighbouring values of |t|: an encoding may be off by one if it was
// rounded from an inexact value.
static double step_of(kiln_dtype t, double value) {
  const kiln_encoding_format *f = kiln_encoding_format_of(t);
  if (!f) return kiln_dtype_bytes(t) == 1 && t != KILN_BOOL;
  switch (f->kind) {
  case KILN_ENCODING_FLOAT:
    return fmax(ldexp(fabs(value), -f->fraction), ldexp(1, 1 - f->bias - f->fraction));
  case KILN_ENCODING_POWER: return value;
  case KILN_ENCODING_INT:
  case KILN_ENCODING_UINT: break;
  }
  return 1;
}

static bool is_right(const kiln_tensor *t, double got, double want, double rtol, double atol,
                     bool rounded) {
  if (isnan(want) || isinf(want)) return (isnan(want) && isnan(got)) || got == want;
  if (kiln_dtype_is_float(t->dtype)) return fabs(got - want) <= atol + rtol * fabs(want);
  return fabs(got - want) <= (rounded ? step_of(t->dtype, want) : 0);
}

void kiln_compare(const kiln_tensor *t, const void *got, const int64_t *strides, const void *want,
                  double rtol, double atol, bool rounded, kiln_difference *out) {
  const double scale = rms(t, want);
  const double a = atol * (scale > 1 ? scale : 1);
  const double r = rtol > half_rtol(t->dtype) ? rtol : half_rtol(t->dtype);
  int64_t i = 0;
  for (walk w = walk_begin(t, strides); w.left > 0; walk_next(&w), i++) {
    const double g = kiln_element_get(t->dtype, got, w.offset);
    const double e = kiln_element_get(t->dtype, want, i);
    const bool wrong = !is_right(t, g, e, r, a, rounded);
    out->wrong += wrong;
    if (!isfinite(g) || !isfinite(e)) {
      out->not_finite += wrong;
      continue;
    }
    out->square += (g - e) * (g - e);
    out->want_square += e * e;
    if (fabs(g - e) > out->max_abs) out->max_abs = fabs(g - e);
  }
}

// --- comparison by error bounds ---

enum { MIN_SPREAD = 64, MAX_SPREAD = 3 }; // elements; multiples of typical errors

static bool is_within(double got, double want, double most) {
  if (isnan(want) || isnan(got)) return (isnan(want) && isnan(got)) || isinf(most);
  return got == want || isinf(most) || fabs(got - want) <= most;
}

static void judge_element(kiln_difference *d, int64_t i, double got, double want,
                          kiln_tolerance t) {
  const bool wrong = !is_within(got, want, t.most);
  if (wrong && d->wrong++ == 0) {
    d->first_wrong = i;
    d->got = got;
    d->want = want;
    d->most = t.most;
  }
  d->free += isinf(t.most);
  if (!isfinite(got) || !isfinite(want)) {
    d->not_finite += wrong;
    return;
  }
  d->square += (got - want) * (got - want);
  d->want_square += want * want;
  d->max_abs = fmax(d->max_abs, fabs(got - want));
  if (t.typical == 0 || isinf(t.most)) return;
  const double errors = fmin(fabs(got - want) / t.typical, KILN_ERROR_SPREAD);
  d->spread_square += errors * errors;
  d->n_spread++;
}

void kiln_judge(const kiln_interpreter *in, const kiln_tensor *t, const void *got,
                const int64_t *strides, const void *want, kiln_difference *out) {
  int64_t i = 0;
  kiln_difference d = {.first_wrong = -1};
  for (walk w = walk_begin(t, strides); w.left > 0; walk_next(&w), i++)
    judge_element(&d, i, kiln_element_get(t->dtype, got, w.offset),
                  kiln_element_get(t->dtype, want, i), kiln_interpreter_tolerance(in, t->id, i));
  const bool is_float = kiln_dtype_is_float(t->dtype);
  if (is_float && d.n_spread >= MIN_SPREAD && d.wrong == 0 &&
      sqrt(d.spread_square / (double)d.n_spread) > MAX_SPREAD) {
    d.wrong = 1;
    d.together = true;
  }
  *out = d;
}

void kiln_strided_put(const kiln_tensor *t, const void *row_major, const int64_t *strides,
                      void *to) {
  const int64_t elem = kiln_dtype_bytes(t->dtype);
  const char *from = row_major;
  for (walk w = walk_begin(t, strides); w.left > 0; walk_next(&w), from += elem)
    memcpy((char *)to + w.offset * elem, from, (size_t)elem);
}

void kiln_strided_take(const kiln_tensor *t, const void *from, const int64_t *strides,
                       void *row_major) {
  const int64_t elem = kiln_dtype_bytes(t->dtype);
  char *to = row_major;
  for (walk w = walk_begin(t, strides); w.left > 0; walk_next(&w), to += elem)
    memcpy(to, (const char *)from + w.offset * elem, (size_t)elem);
}

void *kiln_elements_of(kiln_arena *arena, const DLTensor *t) {
  if (t->dtype.bits >= 8) return (char *)t->data + t->byte_offset;
  void *elements = kiln_arena_alloc(arena, (size_t)kiln_tensor_count(t) + 1);
  kiln_tensor_unpack(t, elements);
  return elements;
}
