// A stand-in for cuBLASLt, on the CPU and the stand-in for CUDA's driver: products by plain loops
// over matrices in columns, put into its streams. It refuses what the library refuses: matrices
// that overlap, addresses that are not aligned as was said, an algorithm that it did not choose for
// these layouts, workspace that is missing, partial sums in halves.
#include "fake_library.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
  NOT_INITIALIZED = 1,
  INVALID = 7,
  FAILED = 13,
  NOT_SUPPORTED = 15,
  R_32F = 0,
  VERSION = 130100,
  PARTS = 4 // of sums, whose partial results lie in the workspace
};

typedef struct layout {
  int type, batch;
  uint64_t rows, columns;
  int64_t leading, stride;
} layout;

typedef struct desc {
  int compute, trans_a, trans_b;
  uint32_t epilogue;
  const char *bias;
} desc;

typedef struct preference {
  uint64_t workspace;
  uint32_t reduction, alignments[4];
} preference;

// What an algorithm remembers of what it was chosen for.
typedef struct chosen {
  uint64_t magic, workspace, m, n, k;
  uint64_t alignments, reserved[2];
} chosen;
#define MAGIC UINT64_C(0x6b65726e656c)

typedef struct found {
  chosen algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} found;

static int make(void **out, size_t bytes, const char *function) {
  *out = NULL;
  if (fake_library_fails(function)) return FAILED;
  *out = calloc(1, bytes);
  fake_library_state()->live++;
  return 0;
}
static int drop(void *object) {
  if (!object) return INVALID;
  free(object);
  fake_library_state()->live--;
  return 0;
}

size_t cublasLtGetVersion(void) {
  const size_t told = fake_library_state()->version;
  return told ? told : VERSION;
}
const char *cublasLtGetStatusName(int s) {
  return s == INVALID         ? "CUBLAS_STATUS_INVALID_VALUE"
         : s == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : s == FAILED        ? "CUBLAS_STATUS_EXECUTION_FAILED"
                              : "CUBLAS_STATUS_NOT_INITIALIZED";
}
int cublasLtCreate(void **out) {
  return fake_library_has_context() ? make(out, 8, "cublasLtCreate") : NOT_INITIALIZED;
}
int cublasLtDestroy(void *handle) { return fake_library_has_context() ? drop(handle) : INVALID; }

int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  const int s = scale == R_32F ? make(out, sizeof(desc), "cublasLtMatmulDescCreate") : INVALID;
  if (!s) *(desc *)*out = (desc){.compute = compute, .epilogue = 1};
  return s;
}
int cublasLtMatmulDescDestroy(void *d) { return drop(d); }
int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t bytes) {
  if (fake_library_fails("cublasLtMatmulDescSetAttribute")) return FAILED;
  if (attribute == 3 && bytes == 4) memcpy(&d->trans_a, value, bytes);
  else if (attribute == 4 && bytes == 4) memcpy(&d->trans_b, value, bytes);
  else if (attribute == 7 && bytes == 4) memcpy(&d->epilogue, value, bytes);
  else if (attribute == 8 && bytes == sizeof d->bias) memcpy(&d->bias, value, bytes);
  else return INVALID;
  return 0;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  if (leading < (int64_t)rows || !rows || !columns) return INVALID;
  const int s = make(out, sizeof(layout), "cublasLtMatrixLayoutCreate");
  if (!s) *(layout *)*out = (layout){type, 1, rows, columns, leading, 0};
  return s;
}
int cublasLtMatrixLayoutDestroy(void *l) { return drop(l); }
int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes) {
  if (attribute == 5 && bytes == 4) memcpy(&l->batch, value, bytes);
  else if (attribute == 6 && bytes == 8) memcpy(&l->stride, value, bytes);
  else return INVALID;
  return 0;
}

int cublasLtMatmulPreferenceCreate(void **out) {
  const int s = make(out, sizeof(preference), "cublasLtMatmulPreferenceCreate");
  if (!s) *(preference *)*out = (preference){.reduction = 7, .alignments = {256, 256, 256, 256}};
  return s;
}
int cublasLtMatmulPreferenceDestroy(void *p) { return drop(p); }
int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value,
                                         size_t bytes) {
  if (attribute == 1 && bytes == 8) memcpy(&p->workspace, value, bytes);
  else if (attribute == 3 && bytes == 4) memcpy(&p->reduction, value, bytes);
  else if (attribute >= 5 && attribute <= 8 && bytes == 4)
    memcpy(&p->alignments[attribute - 5], value, bytes);
  else return INVALID;
  return 0;
}

// --- products ---

typedef struct product {
  desc d;
  layout a, b, c, to;
  const char *from_a, *from_b, *from_c;
  char *at, *workspace;
  float alpha, beta;
  uint64_t m, n, k;
} product;

static uint64_t rows_of(const layout *l, int trans) { return trans ? l->columns : l->rows; }
static uint64_t columns_of(const layout *l, int trans) { return trans ? l->rows : l->columns; }

static int fits(const desc *d, const layout *a, const layout *b, const layout *c,
                const layout *to) {
  const uint64_t m = rows_of(a, d->trans_a), k = columns_of(a, d->trans_a),
                 n = columns_of(b, d->trans_b);
  const int is_tf32 = d->compute == 77;
  return k == rows_of(b, d->trans_b) && to->rows == m && to->columns == n && c->rows == m &&
         c->columns == n && a->type == b->type && c->type == to->type &&
         (to->type == R_32F || to->type == a->type) && (d->compute == 68 || is_tf32) &&
         (!is_tf32 || a->type == R_32F) && a->batch == to->batch && b->batch == to->batch &&
         c->batch == to->batch;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const desc *d, const layout *a, const layout *b,
                                   const layout *c, const layout *to, const preference *p,
                                   int wanted, found *out, int *out_n) {
  *out_n = 0;
  fake_library_state()->kernels++;
  if (fake_library_fails("cublasLtMatmulAlgoGetHeuristic")) return FAILED;
  if (!handle || wanted < 1) return INVALID;
  if (fake_library_state()->has_no_kernel || !fits(d, a, b, c, to) || (p->reduction & 5))
    return NOT_SUPPORTED;
  if ((d->epilogue & 4) && !d->bias) return INVALID;
  *out = (found){
      .algorithm = {.magic = MAGIC,
                    .workspace = sizeof(float) * PARTS <= p->workspace ? sizeof(float) * PARTS : 0,
                    .m = to->rows,
                    .n = to->columns,
                    .k = columns_of(a, d->trans_a)}};
  for (int i = 0; i < 4; i++) {
    if (p->alignments[i] > 16 || p->alignments[i] < 2) return INVALID;
    out->algorithm.alignments |= (uint64_t)p->alignments[i] << 8 * i;
  }
  out->workspace = out->algorithm.workspace;
  *out_n = 1;
  return 0;
}

static int64_t at(const layout *l, int trans, uint64_t row, uint64_t column, int batch) {
  return batch * l->stride + (int64_t)(trans ? column : row) +
         (int64_t)(trans ? row : column) * l->leading;
}

static double finished(const product *p, double x, uint64_t row, uint64_t column, int batch) {
  x *= (double)p->alpha;
  if (p->beta != 0)
    x += (double)p->beta * fake_library_get(p->c.type, p->from_c, at(&p->c, 0, row, column, batch));
  if (p->d.epilogue & 4) x += fake_library_get(p->to.type, p->d.bias, (int64_t)row);
  if (p->d.epilogue & 2) x = x > 0 ? x : 0;
  if (p->d.epilogue & 32) x = x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

static double sum_of(const product *p, uint64_t row, uint64_t column, int batch) {
  float parts[PARTS] = {0};
  for (uint64_t k = 0; k < p->k; k++)
    parts[k % PARTS] +=
        (float)(fake_library_get(p->a.type, p->from_a, at(&p->a, p->d.trans_a, row, k, batch)) *
                fake_library_get(p->b.type, p->from_b, at(&p->b, p->d.trans_b, k, column, batch)));
  if (p->workspace) memcpy(p->workspace, parts, sizeof parts);
  return (double)(parts[0] + parts[1] + (parts[2] + parts[3]));
}

static void run(void *object) {
  const product *p = object;
  for (int batch = 0; batch < p->to.batch; batch++)
    for (uint64_t column = 0; column < p->n; column++)
      for (uint64_t row = 0; row < p->m; row++)
        fake_library_set(p->to.type, p->at, at(&p->to, 0, row, column, batch),
                         finished(p, sum_of(p, row, column, batch), row, column, batch));
}

static int is_aligned(const void *p, uint64_t alignments, int i) {
  return (uintptr_t)p % (alignments >> 8 * i & 255) == 0;
}

int cublasLtMatmul(void *handle, const desc *d, const float *alpha, const char *a,
                   const layout *a_layout, const char *b, const layout *b_layout, const float *beta,
                   const char *c, const layout *c_layout, char *to, const layout *to_layout,
                   const chosen *algorithm, char *workspace, size_t workspace_bytes, void *stream) {
  fake_library_state()->runs++;
  if (fake_library_fails("cublasLtMatmul")) return FAILED;
  if (!handle || !stream || algorithm->magic != MAGIC ||
      !fits(d, a_layout, b_layout, c_layout, to_layout) || algorithm->m != to_layout->rows ||
      algorithm->n != to_layout->columns || algorithm->workspace > workspace_bytes ||
      (algorithm->workspace && (!workspace || (uintptr_t)workspace % 256)) ||
      !is_aligned(a, algorithm->alignments, 0) || !is_aligned(b, algorithm->alignments, 1) ||
      !is_aligned(c, algorithm->alignments, 2) || !is_aligned(to, algorithm->alignments, 3))
    return INVALID;
  product *p = malloc(sizeof *p);
  *p = (product){.d = *d,
                 .a = *a_layout,
                 .b = *b_layout,
                 .c = *c_layout,
                 .to = *to_layout,
                 .from_a = a,
                 .from_b = b,
                 .from_c = c,
                 .at = to,
                 .workspace = algorithm->workspace ? workspace : NULL,
                 .alpha = *alpha,
                 .beta = *beta,
                 .m = algorithm->m,
                 .n = algorithm->n,
                 .k = algorithm->k};
  return fake_library_put(stream, run, p) ? NOT_INITIALIZED : 0;
}
