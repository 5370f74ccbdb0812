// cuBLASLt: matrix products with epilogues on NVIDIA's GPUs.
//
// Its matrices are column-major, ours row-major: it computes the transposed product, c' = b' a', in
// which a row of c is a column, and a vector that is added along n is its bias. Types and numbers
// are from NVIDIA's documentation of cuBLASLt 12 and 13, whose header is not needed.
//
// The algorithm is the first that the library's heuristic proposes when a kernel is made. Sums are
// f32, also with split-K, and products of f32 are not rounded to TF32 unless the call says so.
#include "backend/nvidia.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
  LEAST_VERSION = 120000,
  NOT_FOUND = 15, // CUBLAS_STATUS_NOT_SUPPORTED
  R_32F = 0,
  R_16F = 2,
  R_16BF = 14,
  COMPUTE_32F = 68,
  COMPUTE_32F_FAST_TF32 = 77,
  DESC_TRANS_A = 3,
  DESC_TRANS_B = 4,
  DESC_EPILOGUE = 7,
  DESC_BIAS_POINTER = 8,
  LAYOUT_BATCH_COUNT = 5,
  LAYOUT_BATCH_STRIDE = 6,
  PREFERENCE_WORKSPACE = 1,
  PREFERENCE_REDUCTION = 3,
  PREFERENCE_ALIGNMENT = 5, // of A; those of B, C and D follow
  REDUCTION_COMPUTE_TYPE = 2,
  EPILOGUE_NONE = 1,
  EPILOGUE_RELU = 2,
  EPILOGUE_BIAS = 4,
  EPILOGUE_GELU = 32, // by tanh
  MOST_PRODUCTS = 64  // of a call: the extents of all batch axes but one
};

typedef int status;

typedef struct algorithm {
  uint64_t data[8];
} algorithm;

// cublasLtMatmulHeuristicResult_t
typedef struct found_algorithm {
  algorithm algorithm;
  size_t workspace_bytes;
  status status;
  float waves;
  int reserved[4];
} found_algorithm;

typedef struct library {
  kiln_nvidia base;
  status (*desc_create)(void **out, int compute, int scale);
  status (*desc_destroy)(void *desc);
  status (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
  status (*layout_create)(void **out, int type, uint64_t rows, uint64_t columns, int64_t leading);
  status (*layout_destroy)(void *layout);
  status (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
  status (*preference_create)(void **out);
  status (*preference_destroy)(void *preference);
  status (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
  status (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                      void *preference, int wanted, found_algorithm *out, int *out_n);
  status (*product)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                    void *d, void *d_layout, const algorithm *algorithm, void *workspace,
                    size_t workspace_bytes, void *stream);
} library;

static const kiln_library_entry entries[] = {
    {"cublasLtGetVersion", offsetof(library, base.version)},
    {"cublasLtGetStatusName", offsetof(library, base.status_name)},
    {"cublasLtCreate", offsetof(library, base.create)},
    {"cublasLtDestroy", offsetof(library, base.destroy)},
    {"cublasLtMatmulDescCreate", offsetof(library, desc_create)},
    {"cublasLtMatmulDescDestroy", offsetof(library, desc_destroy)},
    {"cublasLtMatmulDescSetAttribute", offsetof(library, desc_set)},
    {"cublasLtMatrixLayoutCreate", offsetof(library, layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(library, layout_destroy)},
    {"cublasLtMatrixLayoutSetAttribute", offsetof(library, layout_set)},
    {"cublasLtMatmulPreferenceCreate", offsetof(library, preference_create)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(library, preference_destroy)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(library, preference_set)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(library, heuristic)},
    {"cublasLtMatmul", offsetof(library, product)},
    {0},
};

// --- supported calls ---

// The posts of a call in cuBLASLt's form, act(alpha * a b + c + bias).
typedef struct finish {
  float alpha;
  const kiln_library_call_post *added, *bias; // |added| has the result's shape, |bias| runs along n
  int activation;                             // the library's epilogue; 0: none
} finish;

// Whether rows are contiguous and do not overlap.
static bool is_matrix(const kiln_library_call *c, const kiln_library_call_post *p) {
  return (c->n.extent == 1 || p->strides[KILN_CALL_N] == 1) &&
         (c->m.extent == 1 || p->strides[KILN_CALL_M] >= c->n.extent);
}

static bool add_tensor(const kiln_library_call *c, const kiln_library_call_post *p, finish *io) {
  if (p->tensor.type != c->c.type || io->activation) return false;
  const kiln_library_call_post **to = kiln_library_call_is_bias(c, p) ? &io->bias
                                      : is_matrix(c, p)               ? &io->added
                                                                      : NULL;
  if (!to || *to) return false;
  *to = p;
  return true;
}

// Its gelu is wrong by up to 1.6 % for a bf16 result, as if the sum was rounded before (cuBLASLt
// 13.1).
static bool add_activation(const kiln_library_call *c, const kiln_library_call_post *p,
                           finish *io) {
  if (io->activation) return false;
  io->activation = p->kind == KILN_POST_GELU_TANH ? EPILOGUE_GELU : EPILOGUE_RELU;
  if (p->kind == KILN_POST_GELU_TANH) return c->c.type != KILN_CALL_BF16;
  return p->kind == KILN_POST_CLIP && p->low == 0 && p->high == INFINITY;
}

static bool find_finish(const kiln_library_call *c, finish *out) {
  *out = (finish){.alpha = 1};
  for (int i = 0; i < c->n_posts; i++) {
    const kiln_library_call_post *p = &c->posts[i];
    if (p->kind == KILN_POST_SCALE && i == 0) out->alpha = p->low;
    else if (!(p->kind == KILN_POST_ADD ? add_tensor(c, p, out) : add_activation(c, p, out)))
      return false;
  }
  return true;
}

static bool types_fit(const kiln_library_call *c) {
  const bool is_wide = c->a.type == KILN_CALL_F32 || c->a.type == KILN_CALL_TF32;
  return c->a.type == c->b.type &&
         (c->c.type == KILN_CALL_F32 || (!is_wide && c->c.type == c->a.type));
}

// The longest batch axis, which the library iterates over; -1 if there is none.
static int main_batch(const kiln_library_call *c) {
  int best = -1;
  for (int i = 0; i < c->n_batch; i++)
    if (best < 0 || c->batch[i].extent > c->batch[best].extent) best = i;
  return best;
}

static bool batch_fits(const kiln_library_call *c) {
  const int along = main_batch(c);
  int64_t products = 1;
  for (int i = 0; i < c->n_batch; i++) {
    if (c->batch[i].extent > 1 && c->batch[i].c == 0) return false;
    if (i != along && products <= MOST_PRODUCTS) products *= c->batch[i].extent;
  }
  return products <= MOST_PRODUCTS;
}

static bool takes(const kiln_library_call *c) {
  kiln_library_call_matrix a, b, to;
  finish f;
  return kiln_library_call_matrices(c, &a, &b, &to) && types_fit(c) && batch_fits(c) &&
         find_finish(c, &f);
}

// For split-K partial sums in f32: NVIDIA recommends 32 MiB in total.
static int64_t workspace(const kiln_library_call *c) {
  const int64_t least = 1 << 20, most = 32 << 20, parts = 64;
  const int along = main_batch(c);
  int64_t bytes = parts * (int64_t)sizeof(float);
  const int64_t extents[] = {c->m.extent, c->n.extent, along < 0 ? 1 : c->batch[along].extent};
  for (int i = 0; i < 3; i++)
    if (__builtin_mul_overflow(bytes, extents[i], &bytes))
      return most + KILN_BACKEND_WORKSPACE_ALIGN;
  return (bytes < least ? least : bytes > most ? most : bytes) + KILN_BACKEND_WORKSPACE_ALIGN;
}

// --- the library ---

static kiln_status open_library(const char *file, kiln_diag *diag, void **out) {
  const kiln_status st =
      kiln_library_create(file, "KILN_CUBLASLT", entries, sizeof(library), diag, out);
  return st == KILN_OK ? kiln_nvidia_start(file, "cuBLASLt 12", LEAST_VERSION, diag, out) : st;
}

static status find_handle(kiln_nvidia *l, void **out) {
  status s = 0;
  pthread_mutex_lock(&l->lock);
  if (!l->handle) s = l->create(&l->handle);
  *out = l->handle;
  pthread_mutex_unlock(&l->lock);
  return s;
}

// --- kernels ---

enum { LT_A, LT_B, LT_C, LT_D, N_LAYOUTS };

typedef struct kernel {
  const library *l;
  void *handle, *desc, *layouts[N_LAYOUTS];
  algorithm algorithm;
  kiln_library_call call;
  finish finish; // of |call|
  int along;     // the batch axis that the library iterates over; -1: none
} kernel;

static void destroy(void *made) {
  kernel *k = made;
  if (!k) return;
  for (int i = 0; i < N_LAYOUTS; i++)
    if (k->layouts[i]) (void)k->l->layout_destroy(k->layouts[i]);
  if (k->desc) (void)k->l->desc_destroy(k->desc);
  free(k);
}

static int data_type(kiln_library_call_type t) {
  return t == KILN_CALL_F16 ? R_16F : t == KILN_CALL_BF16 ? R_16BF : R_32F;
}

// One of the library's matrices, and its tensor in the call.
typedef struct operand {
  const kiln_library_call_tensor *at;
  uint64_t rows, columns;
  int64_t leading, strides[KILN_CALL_BATCH];
} operand;

static void describe(const kernel *k, operand out[N_LAYOUTS]) {
  const kiln_library_call *c = &k->call;
  const uint64_t m = (uint64_t)c->m.extent, n = (uint64_t)c->n.extent, d = (uint64_t)c->k.extent;
  kiln_library_call_matrix a, b, to;
  (void)kiln_library_call_matrices(c, &a, &b, &to); // takes() has checked it
  out[LT_A] = (operand){&c->b, b.is_turned ? d : n, b.is_turned ? n : d, b.leading, {0}};
  out[LT_B] = (operand){&c->a, a.is_turned ? m : d, a.is_turned ? d : m, a.leading, {0}};
  out[LT_C] = out[LT_D] = (operand){&c->c, n, m, to.leading, {0}};
  for (int i = 0; i < c->n_batch; i++) {
    out[LT_A].strides[i] = c->batch[i].b;
    out[LT_B].strides[i] = c->batch[i].a;
    out[LT_C].strides[i] = out[LT_D].strides[i] = c->batch[i].c;
  }
  const kiln_library_call_post *added = k->finish.added;
  if (!added) return;
  out[LT_C].at = &added->tensor;
  out[LT_C].leading = m == 1 ? (int64_t)n : added->strides[KILN_CALL_M];
  memcpy(out[LT_C].strides, added->strides, sizeof out[LT_C].strides);
}

// The alignment common to all addresses of the operand.
static uint32_t alignment_of(const kernel *k, const operand *x) {
  const int64_t elem = kiln_library_call_type_bytes(x->at->type);
  uint32_t align = KILN_BACKEND_ALIGN;
  while (x->at->offset * elem % align) align /= 2;
  for (int i = 0; i < k->call.n_batch; i++)
    while (i != k->along && k->call.batch[i].extent > 1 && x->strides[i] * elem % align) align /= 2;
  return align;
}

static status make_layout(kernel *k, int i, const operand *x) {
  const library *l = k->l;
  status s =
      l->layout_create(&k->layouts[i], data_type(x->at->type), x->rows, x->columns, x->leading);
  if (s || k->along < 0) return s;
  const int32_t count = (int32_t)k->call.batch[k->along].extent;
  s = l->layout_set(k->layouts[i], LAYOUT_BATCH_COUNT, &count, sizeof count);
  return s ? s
           : l->layout_set(k->layouts[i], LAYOUT_BATCH_STRIDE, &x->strides[k->along],
                           sizeof x->strides[k->along]);
}

static status set_bias(const kernel *k, const char *bias) {
  return k->l->desc_set(k->desc, DESC_BIAS_POINTER, &bias, sizeof bias);
}

// The heuristic needs to know the bias's alignment.
static status make_desc(kernel *k) {
  const library *l = k->l;
  const kiln_library_call *c = &k->call;
  kiln_library_call_matrix a, b, to;
  (void)kiln_library_call_matrices(c, &a, &b, &to);
  const int32_t trans_a = b.is_turned, trans_b = a.is_turned;
  const kiln_library_call_post *bias = k->finish.bias;
  const uint32_t after = (uint32_t)k->finish.activation | (bias ? EPILOGUE_BIAS : 0);
  const uint32_t epilogue = after ? after : EPILOGUE_NONE;
  const int compute = c->a.type == KILN_CALL_TF32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
  status s = l->desc_create(&k->desc, compute, R_32F);
  if (!s) s = l->desc_set(k->desc, DESC_TRANS_A, &trans_a, sizeof trans_a);
  if (!s) s = l->desc_set(k->desc, DESC_TRANS_B, &trans_b, sizeof trans_b);
  if (!s) s = l->desc_set(k->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (s || !bias) return s;
  const int64_t begin = bias->tensor.offset * kiln_library_call_type_bytes(bias->tensor.type);
  return set_bias(k, (const char *)(uintptr_t)(KILN_BACKEND_ALIGN + begin));
}

static status choose(kernel *k, const operand *x, void *preference) {
  const library *l = k->l;
  const uint64_t room = (uint64_t)kiln_backend_workspace_room(&k->call);
  const uint32_t reduction = REDUCTION_COMPUTE_TYPE;
  found_algorithm found = {0};
  int n = 0;
  status s = l->preference_set(preference, PREFERENCE_WORKSPACE, &room, sizeof room);
  if (!s) s = l->preference_set(preference, PREFERENCE_REDUCTION, &reduction, sizeof reduction);
  for (int i = 0; i < N_LAYOUTS && !s; i++) {
    const uint32_t align = alignment_of(k, &x[i]);
    s = l->preference_set(preference, PREFERENCE_ALIGNMENT + i, &align, sizeof align);
  }
  if (!s)
    s = l->heuristic(k->handle, k->desc, k->layouts[LT_A], k->layouts[LT_B], k->layouts[LT_C],
                     k->layouts[LT_D], preference, 1, &found, &n);
  if (s || n < 1) return s ? s : NOT_FOUND;
  k->algorithm = found.algorithm;
  return found.status;
}

static status make(kernel *k) {
  operand operands[N_LAYOUTS];
  void *preference = NULL;
  describe(k, operands);
  status s = make_desc(k);
  for (int i = 0; i < N_LAYOUTS && !s; i++) s = make_layout(k, i, &operands[i]);
  if (!s) s = k->l->preference_create(&preference);
  if (s) return s;
  s = choose(k, operands, preference);
  (void)k->l->preference_destroy(preference);
  return s;
}

static kiln_status create(void *opened, const kiln_library_call *call, char *const *constants,
                          kiln_diag *diag, void **out) {
  library *l = opened;
  (void)constants;
  *out = NULL;
  if (!takes(call))
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "cublaslt",
                          "call: must be a product of matrices with rows of neighbours");
  kernel *k = calloc(1, sizeof *k);
  if (!k) return kiln_diag_fail(diag, KILN_NO_MEMORY, "cublaslt", "no memory left");
  k->l = l;
  k->call = *call;
  k->along = main_batch(&k->call);
  (void)find_finish(&k->call, &k->finish);
  status s = find_handle(&l->base, &k->handle);
  if (!s) s = make(k);
  if (!s) {
    *out = k;
    return KILN_OK;
  }
  destroy(k);
  return kiln_nvidia_refuse(&l->base, "cublaslt", s == NOT_FOUND, s, diag);
}

// --- running ---

// The begin of a tensor in the product |at| of the batch.
static char *begin_of(const kernel *k, char *const *args, const kiln_library_call_tensor *t,
                      const int64_t *strides, const int64_t *at) {
  int64_t element = t->offset;
  for (int i = 0; i < k->call.n_batch; i++) element += at[i] * strides[i];
  return args[t->arg] + element * kiln_library_call_type_bytes(t->type);
}

static status put_product(const kernel *k, const operand *x, char *const *args, const int64_t *at,
                          void *stream) {
  const float beta = k->finish.added ? 1 : 0;
  const size_t room = (size_t)kiln_backend_workspace_room(&k->call);
  char *memory[N_LAYOUTS], *work = kiln_backend_workspace(&k->call, args);
  for (int i = 0; i < N_LAYOUTS; i++) memory[i] = begin_of(k, args, x[i].at, x[i].strides, at);
  return k->l->product(k->handle, k->desc, &k->finish.alpha, memory[LT_A], k->layouts[LT_A],
                       memory[LT_B], k->layouts[LT_B], &beta, memory[LT_C], k->layouts[LT_C],
                       memory[LT_D], k->layouts[LT_D], &k->algorithm, work, room, stream);
}

static status put_all(const kernel *k, char *const *args, void *stream) {
  const kiln_library_call_post *bias = k->finish.bias;
  const int64_t none[KILN_CALL_BATCH] = {0};
  int64_t at[KILN_CALL_BATCH] = {0};
  operand operands[N_LAYOUTS];
  status s = bias ? set_bias(k, begin_of(k, args, &bias->tensor, none, none)) : 0;
  describe(k, operands);
  for (int i = 0; i >= 0 && !s;) {
    s = put_product(k, operands, args, at, stream);
    for (i = k->call.n_batch - 1; i >= 0; i--) {
      if (i == k->along) continue;
      if (++at[i] < k->call.batch[i].extent) break;
      at[i] = 0;
    }
  }
  return s;
}

static bool run(void *made, char *const *args, void *stream, kiln_diag *diag) {
  const kernel *k = made;
  const status s = put_all(k, args, stream);
  if (s)
    (void)kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cublaslt", "product: must succeed, got %s",
                         k->l->base.status_name(s));
  return s == 0;
}

const kiln_backend kiln_backend_cublaslt = {.name = "cublaslt",
                                            .place = KILN_BACKEND_CUDA,
                                            .files = {"libcublasLt.so.13", "libcublasLt.so.12"},
                                            .variable = "KILN_CUBLASLT",
                                            .takes = takes,
                                            .workspace = workspace,
                                            .open = open_library,
                                            .close = kiln_nvidia_close,
                                            .version = kiln_nvidia_version,
                                            .create = create,
                                            .destroy = destroy,
                                            .run = run};
