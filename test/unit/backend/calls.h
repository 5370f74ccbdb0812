// Random library calls, and their results by plain loops.
#ifndef KILN_TEST_UNIT_BACKEND_CALLS_H
#define KILN_TEST_UNIT_BACKEND_CALLS_H

#include "analysis/interpret.h"
#include "backend/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_ARGS = 4, ARG_ELEMS = 1 << 15 };

static inline uint64_t next(uint64_t *s) {
  *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  const uint64_t x = (*s ^ *s >> 33) * UINT64_C(0xff51afd7ed558ccd);
  return x ^ x >> 29;
}
static inline int64_t below(uint64_t *s, int n) { return (int64_t)(next(s) % (uint64_t)n); }

// Arguments 0 to 2 are read, 3 is the result.
typedef struct arguments {
  float *data[N_ARGS];
  char *bytes[N_ARGS];
} arguments;

static inline arguments arguments_make(uint64_t seed) {
  arguments a;
  for (int i = 0; i < N_ARGS; i++) {
    a.data[i] = malloc(ARG_ELEMS * sizeof(float));
    a.bytes[i] = (char *)a.data[i];
    for (int k = 0; k < ARG_ELEMS; k++) a.data[i][k] = (float)(below(&seed, 33) - 16) / 16;
  }
  return a;
}
static inline kiln_dtype dtype_of_call(kiln_library_call_type t) {
  return t == KILN_CALL_F16 ? KILN_F16 : t == KILN_CALL_BF16 ? KILN_BF16 : KILN_F32;
}

// Rounds elements to the type in which the call stores the argument.
static inline void arguments_store_as(const arguments *a, const kiln_library_call_tensor *t) {
  const kiln_dtype to = dtype_of_call(t->type);
  for (int k = 0; to != KILN_F32 && k < ARG_ELEMS; k++)
    kiln_element_set(to, a->bytes[t->arg], k, (double)a->data[t->arg][k]);
}
static inline void arguments_store(const arguments *a, const kiln_library_call *c) {
  const kiln_library_call_tensor *added = NULL; // several posts may add one tensor
  arguments_store_as(a, &c->a);
  arguments_store_as(a, &c->b);
  for (int i = 0; i < c->n_posts; i++)
    if (c->posts[i].kind == KILN_POST_ADD) added = &c->posts[i].tensor;
  if (added) arguments_store_as(a, added);
}

static inline void arguments_free(arguments *a) {
  for (int i = 0; i < N_ARGS; i++) free(a->data[i]);
}

static inline kiln_library_call_post random_post(uint64_t *s, const kiln_library_call *c) {
  kiln_library_call_post p = {.kind = (kiln_library_call_post_kind)below(s, KILN_N_POSTS)};
  if (p.kind == KILN_POST_SCALE) p.low = (float)(1 + below(s, 9)) / 4;
  if (p.kind == KILN_POST_CLIP) p.low = -(float)below(s, 3), p.high = below(s, 2) ? 6 : INFINITY;
  if (p.kind != KILN_POST_ADD) return p;
  p.tensor = (kiln_library_call_tensor){2, below(s, 5), c->c.type};
  int64_t walk = 1; // a tensor of its own, along some of the axes
  const int64_t extents[] = {c->n_batch > 0 ? c->batch[0].extent : 1,
                             c->n_batch > 1 ? c->batch[1].extent : 1,
                             1,
                             1,
                             c->kind == KILN_CALL_PRODUCT ? c->m.extent : c->window[0].out,
                             c->kind == KILN_CALL_PRODUCT ? 1 : c->window[1].out};
  const bool only_n = below(s, 2);
  p.strides[KILN_CALL_N] = walk;
  walk *= c->n.extent;
  if (c->kind == KILN_CALL_CONVOLUTION) { // groups of channels
    p.strides[1] = extents[1] > 1 ? walk : 0;
    walk *= extents[1];
  }
  for (int i = KILN_CALL_W; !only_n && i >= 0; i--) {
    if ((i == 1 && c->kind == KILN_CALL_CONVOLUTION) || extents[i] == 1 || !below(s, 2)) continue;
    p.strides[i] = walk;
    walk *= extents[i];
  }
  return p;
}

static inline void add_posts(uint64_t *s, kiln_library_call *c) {
  for (int n = (int)below(s, 4); c->n_posts < n; c->n_posts++)
    c->posts[c->n_posts] = random_post(s, c);
}

// Row-major or transposed matrices, with padded rows, in a batch that may share one operand.
static inline kiln_library_call random_product(uint64_t *s) {
  const int64_t m = 1 + below(s, 40), n = 1 + below(s, 40), k = 1 + below(s, 20);
  const bool ta = below(s, 2), tb = below(s, 2);
  const int64_t lda = (ta ? m : k) + below(s, 3), ldb = (tb ? k : n) + below(s, 3),
                ldc = n + below(s, 3);
  kiln_library_call c = {.kind = KILN_CALL_PRODUCT,
                         .a = {0, below(s, 5), KILN_CALL_F32},
                         .b = {1, below(s, 5), KILN_CALL_F32},
                         .c = {3, below(s, 5), KILN_CALL_F32},
                         .m = {m, ta ? 1 : lda, 0, ldc},
                         .n = {n, 0, tb ? ldb : 1, 1},
                         .k = {k, ta ? lda : 1, tb ? 1 : ldb, 0}};
  int64_t a = lda * (ta ? k : m), b = ldb * (tb ? n : k), to = ldc * m;
  for (c.n_batch = 0; c.n_batch < below(s, 3); c.n_batch++) {
    const int64_t extent = 1 + below(s, 3);
    const int which = (int)below(s, 3);
    c.batch[c.n_batch] =
        (kiln_library_call_axis){extent, which == 1 ? 0 : a, which == 2 ? 0 : b, to};
    a *= which == 1 ? 1 : extent;
    b *= which == 2 ? 1 : extent;
    to *= extent;
  }
  add_posts(s, &c);
  return c;
}

// Channels first or last, with strides, dilations, padding and groups.
static inline kiln_library_call random_convolution(uint64_t *s) {
  const int64_t images = 1 + below(s, 2), groups = below(s, 2) ? 1 : 1 + below(s, 4),
                n = 1 + below(s, 6), k = 1 + below(s, 6);
  const bool last = below(s, 2);
  kiln_library_call c = {.kind = KILN_CALL_CONVOLUTION,
                         .a = {0, below(s, 5), KILN_CALL_F32},
                         .b = {1, below(s, 5), KILN_CALL_F32},
                         .c = {3, below(s, 5), KILN_CALL_F32},
                         .n_batch = 2,
                         .m = {1, 0, 0, 0}};
  kiln_library_call_window *w = c.window;
  for (int i = 0; i < 2; i++) {
    w[i] = (kiln_library_call_window){.kernel = 1 + below(s, 3),
                                      .stride = 1 + below(s, 2),
                                      .dilation = 1 + below(s, 2),
                                      .in = 5 + below(s, 7)};
    const int64_t wide = (w[i].kernel - 1) * w[i].dilation;
    w[i].pad = below(s, (int)wide + 1);
    w[i].out = (w[i].in + w[i].pad + below(s, (int)wide + 1) - wide - 1) / w[i].stride + 1;
  }
  const int64_t in_channels = groups * k, out_channels = groups * n;
  const int64_t by_k = last ? 1 : w[0].in * w[1].in, by_n = last ? 1 : w[0].out * w[1].out;
  w[1].a = last ? in_channels : 1;
  w[0].a = w[1].in * w[1].a;
  w[1].c = last ? out_channels : 1;
  w[0].c = w[1].out * w[1].c;
  w[1].b = 1;
  w[0].b = w[1].kernel;
  const int64_t taps = w[0].kernel * w[1].kernel;
  c.k = (kiln_library_call_axis){k, by_k, taps, 0};
  c.n = (kiln_library_call_axis){n, 0, taps * k, by_n};
  c.batch[0] = (kiln_library_call_axis){images, in_channels * w[0].in * w[1].in, 0,
                                        out_channels * w[0].out * w[1].out};
  c.batch[1] = (kiln_library_call_axis){groups, by_k * k, taps * k * n, by_n * n};
  add_posts(s, &c);
  return c;
}

// The same for elements of any type; result or operands are f32.
static inline kiln_library_call random_typed_product(uint64_t *s) {
  kiln_library_call c = random_product(s);
  const kiln_library_call_type t = (kiln_library_call_type)below(s, KILN_N_CALL_TYPES);
  c.a.type = c.b.type = t;
  c.c.type = t == KILN_CALL_TF32 || below(s, 2) ? KILN_CALL_F32 : t;
  for (int i = 0; i < c.n_posts; i++)
    if (c.posts[i].kind == KILN_POST_ADD) c.posts[i].tensor.type = c.c.type;
  return c;
}

// Elements of one type; weights mostly have the image's layout, added tensors the result's.
static inline kiln_library_call random_typed_convolution(uint64_t *s) {
  kiln_library_call c = random_convolution(s);
  c.a.type = c.b.type = (kiln_library_call_type)below(s, KILN_N_CALL_TYPES);
  c.c.type = c.a.type == KILN_CALL_TF32 ? KILN_CALL_F32 : c.a.type;
  if ((c.k.extent > 1 ? c.k.a : c.batch[1].a) == 1 && below(s, 4)) {
    c.k.b = 1;
    c.window[1].b = c.k.extent;
    c.window[0].b = c.window[1].kernel * c.window[1].b;
  }
  for (int i = 0; i < c.n_posts; i++) {
    kiln_library_call_post *p = &c.posts[i];
    if (p->kind != KILN_POST_ADD) continue;
    p->tensor.type = c.c.type;
    const int64_t whole[KILN_CALL_AXES] = {c.batch[0].c,  c.batch[1].c,  0,    0,
                                           c.window[0].c, c.window[1].c, c.n.c};
    if (below(s, 2)) memcpy(p->strides, whole, sizeof whole);
  }
  return c;
}

static inline kiln_library_call random_call(uint64_t *s) {
  return below(s, 2) ? random_product(s) : random_convolution(s);
}

static inline double element_at(const arguments *args, const kiln_library_call_tensor *t,
                                int64_t i) {
  return kiln_element_get(dtype_of_call(t->type), args->bytes[t->arg], t->offset + i);
}

static inline double after_post(const kiln_library_call_post *p, double x, const arguments *args,
                                const int64_t *at) {
  int64_t element = 0;
  for (int i = 0; i < KILN_CALL_AXES; i++) element += at[i] * p->strides[i];
  switch (p->kind) {
  case KILN_POST_SCALE: return x * (double)p->low;
  case KILN_POST_ADD: return x + element_at(args, &p->tensor, element);
  case KILN_POST_CLIP: return fmin(fmax(x, (double)p->low), (double)p->high);
  case KILN_POST_SILU: return x / (1 + exp(-x));
  case KILN_POST_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
  case KILN_POST_SIGMOID: return 1 / (1 + exp(-x));
  case KILN_POST_TANH: return tanh(x);
  case KILN_POST_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case KILN_N_POSTS: break;
  }
  return NAN;
}

// One element of the result: its index in c, and its value. |at| is by result axis.
static inline int64_t element_of(const kiln_library_call *c, const arguments *args,
                                 const int64_t *at, double *out) {
  int64_t a = 0, b = at[KILN_CALL_N] * c->n.b, to = at[KILN_CALL_N] * c->n.c;
  const bool is_product = c->kind == KILN_CALL_PRODUCT;
  const kiln_library_call_window one = {.out = 1, .in = 1, .kernel = 1, .stride = 1, .dilation = 1};
  const kiln_library_call_window *h = is_product ? &one : &c->window[0],
                                 *w = is_product ? &one : &c->window[1];
  double x = 0;
  for (int i = 0; i < c->n_batch; i++) {
    a += at[i] * c->batch[i].a;
    b += at[i] * c->batch[i].b;
    to += at[i] * c->batch[i].c;
  }
  to += is_product ? at[KILN_CALL_M] * c->m.c : at[KILN_CALL_M] * h->c + at[KILN_CALL_W] * w->c;
  if (is_product) a += at[KILN_CALL_M] * c->m.a;
  for (int64_t i = 0; i < h->kernel; i++)
    for (int64_t j = 0; j < w->kernel; j++) {
      const int64_t y = is_product ? 0 : at[KILN_CALL_M] * h->stride + i * h->dilation - h->pad,
                    z = is_product ? 0 : at[KILN_CALL_W] * w->stride + j * w->dilation - w->pad;
      if (y < 0 || y >= h->in || z < 0 || z >= w->in) continue;
      for (int64_t k = 0; k < c->k.extent; k++)
        x += element_at(args, &c->a, a + y * h->a + z * w->a + k * c->k.a) *
             element_at(args, &c->b, b + i * h->b + j * w->b + k * c->k.b);
    }
  for (int i = 0; i < c->n_posts; i++) x = after_post(&c->posts[i], x, args, at);
  *out = x;
  return to;
}

static inline void extents_of_result(const kiln_library_call *c, int64_t *extents) {
  for (int i = 0; i < KILN_CALL_BATCH; i++) extents[i] = i < c->n_batch ? c->batch[i].extent : 1;
  extents[KILN_CALL_M] = c->kind == KILN_CALL_PRODUCT ? c->m.extent : c->window[0].out;
  extents[KILN_CALL_W] = c->kind == KILN_CALL_PRODUCT ? 1 : c->window[1].out;
  extents[KILN_CALL_N] = c->n.extent;
}

// The relative error that a result may have: that of its stored type.
static inline double tolerance_of_call(const kiln_library_call *c) {
  return c->c.type == KILN_CALL_BF16 ? 8e-3 : c->c.type == KILN_CALL_F16 ? 1e-3 : 2e-4;
}

// The number of wrong elements, and the worst one.
typedef struct comparison {
  int64_t wrong;
  double wanted, got;
} comparison;

static inline void compare_element(comparison *c, double wanted, double got, double tolerance) {
  const bool is_right = fabs(got - wanted) <= 2e-5 + tolerance * fabs(wanted);
  if (is_right) return;
  if (c->wrong == 0 || !(fabs(got - wanted) <= fabs(c->got - c->wanted)))
    c->wanted = wanted, c->got = got;
  c->wrong++;
}

// Computes all elements of |out|, or compares them.
static inline void walk_call(const kiln_library_call *c, const arguments *args, comparison *out) {
  int64_t at[KILN_CALL_AXES] = {0}, extents[KILN_CALL_AXES];
  const double tolerance = tolerance_of_call(c);
  extents_of_result(c, extents);
  for (int i = 0; i >= 0;) {
    double want = 0;
    const int64_t to = element_of(c, args, at, &want);
    if (out) compare_element(out, want, element_at(args, &c->c, to), tolerance);
    else kiln_element_set(dtype_of_call(c->c.type), args->bytes[c->c.arg], c->c.offset + to, want);
    for (i = KILN_CALL_AXES - 1; i >= 0 && ++at[i] == extents[i]; i--) at[i] = 0;
  }
}

// Describes the error in |c|'s result; NULL if it is right.
static inline const char *find_wrong(const kiln_library_call *c, const arguments *args, char *out,
                                     size_t out_size) {
  comparison found = {0};
  char text[512];
  walk_call(c, args, &found);
  kiln_library_call_print(c, text, sizeof text);
  snprintf(out, out_size, "%lld elements are wrong, one of them %g in place of %g: %s",
           (long long)found.wrong, found.got, found.wanted, text);
  return found.wrong ? out : NULL;
}

#endif
