// OpenBLAS: batches of sgemm.
//
// A tensor that the first post adds is sgemm's C; later posts run over the result while it is in
// the caches.
#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Constants of cblas.h.
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

typedef struct library {
  sgemm_fn *sgemm;
  void (*set_threads)(int n);
  char *(*config)(void);
} library;

typedef struct kernel {
  sgemm_fn *sgemm;
  kiln_library_call call;
  kiln_library_call_matrix a, b, c;
} kernel;

static bool takes(const kiln_library_call *c) {
  kiln_library_call_matrix a, b, to;
  if (!kiln_library_call_is_f32(c) || !kiln_library_call_matrices(c, &a, &b, &to)) return false;
  for (int i = 0; i < c->n_posts; i++) {
    const bool first = i == 0 || (i == 1 && c->posts[0].kind == KILN_POST_SCALE);
    const bool known = (c->posts[i].kind == KILN_POST_SCALE && i == 0) ||
                       (c->posts[i].kind == KILN_POST_ADD && first) ||
                       c->posts[i].kind == KILN_POST_CLIP;
    if (!known) return false;
  }
  return true;
}

static const kiln_library_entry entries[] = {
    {"cblas_sgemm", offsetof(library, sgemm)},
    {"openblas_set_num_threads", offsetof(library, set_threads)},
    {"openblas_get_config", offsetof(library, config)},
    {0},
};

static kiln_status open_library(const char *file, kiln_diag *diag, void **out) {
  const kiln_status st =
      kiln_library_create(file, "KILN_OPENBLAS", entries, sizeof(library), diag, out);
  if (st == KILN_OK) ((const library *)*out)->set_threads(1);
  return st;
}

static size_t version(void *opened, char *text, size_t room) {
  const library *l = opened;
  return (size_t)snprintf(text, room, "%s", l->config());
}

static kiln_status create(void *opened, const kiln_library_call *call, char *const *constants,
                          kiln_diag *diag, void **out) {
  const library *l = opened;
  kernel k = {.sgemm = l->sgemm, .call = *call};
  (void)constants;
  *out = NULL;
  if (!takes(call) || !kiln_library_call_matrices(call, &k.a, &k.b, &k.c))
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "openblas",
                          "call: must be a product of matrices with rows of neighbours");
  *out = malloc(sizeof k);
  if (!*out) return kiln_diag_fail(diag, KILN_NO_MEMORY, "openblas", "no memory left");
  memcpy(*out, &k, sizeof k);
  return KILN_OK;
}

static void destroy(void *made) { free(made); }

// One product of the batch; |at| is its index along each batch axis.
typedef struct one {
  const kernel *k;
  char *const *args;
  const int64_t *at;
} one;

static float *begin_of(const one *x, const kiln_library_call_tensor *t) {
  return (float *)(void *)x->args[t->arg] + t->offset;
}

static void fill_rows(const one *x, const kiln_library_call_post *p, float *to) {
  const kiln_library_call *c = &x->k->call;
  const float *from = begin_of(x, &p->tensor);
  for (int i = 0; i < c->n_batch; i++) from += x->at[i] * p->strides[i];
  for (int64_t m = 0; m < c->m.extent; m++, to += c->m.c, from += p->strides[KILN_CALL_M]) {
    if (p->strides[KILN_CALL_N] == 1) memcpy(to, from, (size_t)c->n.extent * sizeof *to);
    else
      for (int64_t n = 0; n < c->n.extent; n++) to[n] = from[n * p->strides[KILN_CALL_N]];
  }
}

// With the semantics of kernels: NaN stays NaN.
static void clip_rows(const kiln_library_call *c, const kiln_library_call_post *p, float *at) {
  for (int64_t m = 0; m < c->m.extent; m++, at += c->m.c)
    for (int64_t n = 0; n < c->n.extent; n++) {
      at[n] = at[n] < p->low ? p->low : at[n];
      at[n] = at[n] > p->high ? p->high : at[n];
    }
}

static int trans_of(const kiln_library_call_matrix *x) { return x->is_turned ? TRANS : NO_TRANS; }

static void run_one(const one *x) {
  const kiln_library_call *c = &x->k->call;
  const float *a = begin_of(x, &c->a), *b = begin_of(x, &c->b);
  float *to = begin_of(x, &c->c), alpha = 1, beta = 0;
  for (int i = 0; i < c->n_batch; i++) {
    a += x->at[i] * c->batch[i].a;
    b += x->at[i] * c->batch[i].b;
    to += x->at[i] * c->batch[i].c;
  }
  for (int i = 0; i < c->n_posts; i++) {
    if (c->posts[i].kind == KILN_POST_SCALE) alpha = c->posts[i].low;
    if (c->posts[i].kind != KILN_POST_ADD) continue;
    fill_rows(x, &c->posts[i], to);
    beta = 1;
  }
  x->k->sgemm(ROW_MAJOR, trans_of(&x->k->a), trans_of(&x->k->b), (int)c->m.extent, (int)c->n.extent,
              (int)c->k.extent, alpha, a, (int)x->k->a.leading, b, (int)x->k->b.leading, beta, to,
              (int)x->k->c.leading);
  for (int i = 0; i < c->n_posts; i++)
    if (c->posts[i].kind == KILN_POST_CLIP) clip_rows(c, &c->posts[i], to);
}

static bool run(void *object, char *const *args, void *stream, kiln_diag *diag) {
  (void)stream, (void)diag;
  const kernel *k = object;
  int64_t at[KILN_CALL_BATCH] = {0};
  const one x = {k, args, at};
  for (int i = 0; i >= 0;) {
    run_one(&x);
    for (i = k->call.n_batch - 1; i >= 0 && ++at[i] == k->call.batch[i].extent; i--) at[i] = 0;
  }
  return true;
}

const kiln_backend kiln_backend_openblas = {.name = "openblas",
                                            .files = {"libopenblas.so.0"},
                                            .variable = "KILN_OPENBLAS",
                                            .takes = takes,
                                            .open = open_library,
                                            .close = free,
                                            .version = version,
                                            .create = create,
                                            .destroy = destroy,
                                            .run = run};
