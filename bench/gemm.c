// GEMM f32: Kiln's generated kernel (weights packed at compile time, or both operands given at run
// time) beside OpenBLAS, oneDNN, the peak of the FMA units and the bandwidth at which the same
// cores read the same weights, all measured in this run, in interleaved rounds; medians.
//
// Of bf16 (x, weights and result) and int8 (u8 times i8, summed in i32) the peer is oneDNN's
// matmul, with the weights in the order that it asks for; the error is the difference from its
// result.
//
// usage: gemm_bench [--threads N] [--both-given | --type bf16|int8] [M N K]...
//        (OpenBLAS, which has no such products, stands at 0 then)
//        default: 1 and 2 threads, 512, 1024 and 2048 cubed and BERT's shapes
#include "kiln/compile.h"

#include <cblas.h>
#include <dnnl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void openblas_set_num_threads(int n);

enum { ROUNDS = 9 };

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_value);
  return v[n / 2];
}

// --- the peak: independent FMA chains that keep both units busy

#define CHAIN12(OP) OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11)

// Each a##i is a variable of its own, so that it stays in a register.
#define FMA_RATE(name, features, vector, set1, lanes, step)                                        \
  __attribute__((target(features))) static double name(int64_t n) {                                \
    vector x = set1(0.999999f), y = set1(1e-6f);                                                   \
    CHAIN12(DECLARE) double start = now_s();                                                       \
    for (int64_t k = 0; k < n; k++) { CHAIN12(step) }                                              \
    double seconds = now_s() - start;                                                              \
    volatile float sink = 0;                                                                       \
    CHAIN12(SINK) return 12.0 * lanes * 2 * (double)n / seconds / 1e9;                             \
  }
#define STEP(i) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
#define STEP_BF16(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
#define STEP_INT8(i) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));

#define DECLARE(i) __m512 a##i = _mm512_set1_ps((float)i);
#define SINK(i) sink += _mm512_cvtss_f32(a##i);
FMA_RATE(fma_512, "avx512f", __m512, _mm512_set1_ps, 16, STEP)
FMA_RATE(dot_bf16, "avx512f", __m512, _mm512_set1_ps, 32, STEP_BF16)
FMA_RATE(dot_int8, "avx512f", __m512, _mm512_set1_ps, 64, STEP_INT8)
#undef DECLARE
#undef SINK
#define DECLARE(i) __m256 a##i = _mm256_set1_ps((float)i);
#define SINK(i) sink += _mm256_cvtss_f32(a##i);
FMA_RATE(fma_256, "avx2,fma", __m256, _mm256_set1_ps, 8, STEP)

typedef enum kind { F32, BF16, INT8 } kind;

static double peak_of_core(kind t) {
  if (t != F32) return t == BF16 ? dot_bf16(2000000) : dot_int8(2000000);
  return __builtin_cpu_supports("avx512f") ? fma_512(2000000) : fma_256(2000000);
}

// --- the bandwidth: sums of a core's part of the weights, read again and again

typedef struct share {
  pthread_barrier_t *begin;
  const float *data; // NULL: measures the peak
  int64_t n;
  int runs;
  double rate; // GFLOP/s, or GB/s
  kind type;   // of the peak
} share;

// Several streams, as the prefetchers of a core follow: one alone does not reach what the cache
// gives.
#define SUM_STREAMS(name, features, vector, zero, add, load, reduce, lanes)                        \
  __attribute__((target(features))) static float name(const float *v, int64_t n) {                 \
    enum { STREAMS = 4 };                                                                          \
    vector s[2 * STREAMS];                                                                         \
    const int64_t part = n / STREAMS / 16 * 16;                                                    \
    for (int k = 0; k < 2 * STREAMS; k++) s[k] = zero();                                           \
    for (int64_t i = 0; i + 2 * lanes <= part; i += 2 * lanes)                                     \
      for (int k = 0; k < 2 * STREAMS; k++)                                                        \
        s[k] = add(s[k], load(v + part * (k / 2) + i + lanes * (k % 2)));                          \
    for (int k = 1; k < 2 * STREAMS; k++) s[0] = add(s[0], s[k]);                                  \
    return reduce(s[0]);                                                                           \
  }
SUM_STREAMS(sum_512, "avx512f", __m512, _mm512_setzero_ps, _mm512_add_ps, _mm512_loadu_ps,
            _mm512_cvtss_f32, 16)
SUM_STREAMS(sum_256, "avx2", __m256, _mm256_setzero_ps, _mm256_add_ps, _mm256_loadu_ps,
            _mm256_cvtss_f32, 8)

static void *run_share(void *argument) {
  share *s = argument;
  volatile float sink = 0;
  pthread_barrier_wait(s->begin);
  if (!s->data) {
    s->rate = peak_of_core(s->type);
    return NULL;
  }
  const double start = now_s();
  for (int i = 0; i < s->runs; i++)
    sink += __builtin_cpu_supports("avx512f") ? sum_512(s->data, s->n) : sum_256(s->data, s->n);
  s->rate = 4.0 * (double)s->n * s->runs / (now_s() - start) / 1e9;
  return NULL;
}

// The rate of all threads together; |data| NULL: GFLOP/s, else GB/s of reading it.
static double rate_of_cores(int threads, kind type, const float *data, int64_t n) {
  enum { MAX_THREADS = 64 };
  share s[MAX_THREADS];
  pthread_t id[MAX_THREADS];
  pthread_barrier_t begin;
  double sum = 0;
  const int runs = (int)(4e7 / (double)n) + 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  pthread_barrier_init(&begin, NULL, (unsigned)threads);
  for (int t = 0; t < threads; t++) {
    s[t] = (share){&begin, data ? data + n / threads * t : NULL, n / threads, runs, 0, type};
    if (t) pthread_create(&id[t], NULL, run_share, &s[t]);
  }
  run_share(&s[0]);
  for (int t = 1; t < threads; t++) pthread_join(id[t], NULL);
  for (int t = 0; t < threads; t++) sum += s[t].rate;
  pthread_barrier_destroy(&begin);
  return sum;
}

// --- a model file with one MatMul: the protobuf wire format by hand

typedef struct wire {
  char data[4096];
  size_t n;
} wire;

static void put_varint(wire *w, uint64_t v) {
  for (; v > 127; v >>= 7) w->data[w->n++] = (char)(v | 128);
  w->data[w->n++] = (char)v;
}
static void put_int(wire *w, int field, uint64_t v) {
  put_varint(w, (uint64_t)field << 3);
  put_varint(w, v);
}
static void put_bytes(wire *w, int field, const void *data, size_t n) {
  put_varint(w, (uint64_t)field << 3 | 2);
  put_varint(w, n);
  memcpy(w->data + w->n, data, n);
  w->n += n;
}
static void put_text(wire *w, int field, const char *text) {
  put_bytes(w, field, text, strlen(text));
}
static void put_wire(wire *w, int field, const wire *part) {
  put_bytes(w, field, part->data, part->n);
}

// What a product is of, as ONNX, oneDNN and DLPack number types.
static const struct {
  const char *name, *op;
  int onnx[3]; // x, weights, y
  dnnl_data_type_t dnnl[3];
  DLDataType dl[3];
} kinds[] = {
    {"f32",
     "MatMul",
     {1, 1, 1},
     {dnnl_f32, dnnl_f32, dnnl_f32},
     {{kDLFloat, 32, 1}, {kDLFloat, 32, 1}, {kDLFloat, 32, 1}}},
    {"bf16",
     "MatMul",
     {16, 16, 16},
     {dnnl_bf16, dnnl_bf16, dnnl_bf16},
     {{kDLBfloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLBfloat, 16, 1}}},
    {"int8",
     "MatMulInteger",
     {2, 3, 6},
     {dnnl_u8, dnnl_s8, dnnl_s32},
     {{kDLUInt, 8, 1}, {kDLInt, 8, 1}, {kDLInt, 32, 1}}},
};

static wire value_info(const char *name, int type_code, int64_t rows, int64_t cols) {
  wire shape = {.n = 0}, tensor = {.n = 0}, type = {.n = 0}, v = {.n = 0};
  for (int k = 0; k < 2; k++) {
    wire dim = {.n = 0};
    put_int(&dim, 1, (uint64_t)(k ? cols : rows));
    put_wire(&shape, 1, &dim);
  }
  put_int(&tensor, 1, (uint64_t)type_code);
  put_wire(&tensor, 2, &shape);
  put_wire(&type, 1, &tensor);
  put_text(&v, 1, name);
  put_wire(&v, 2, &type);
  return v;
}

// Writes DIR/gemm.onnx (y = x @ w) with w in DIR/gemm.weights; |b| NULL: w is an input.
static int write_model(const char *path, const char *weights, kind t, int64_t m, int64_t n,
                       int64_t k, const void *b) {
  wire node = {.n = 0}, w = {.n = 0}, graph = {.n = 0}, opset = {.n = 0}, model = {.n = 0};
  const char *slash = strrchr(weights, '/');
  put_text(&node, 1, "x");
  put_text(&node, 1, "w");
  put_text(&node, 2, "y");
  put_text(&node, 3, "gemm");
  put_text(&node, 4, kinds[t].op);
  put_int(&w, 1, (uint64_t)k);
  put_int(&w, 1, (uint64_t)n);
  put_int(&w, 2, (uint64_t)kinds[t].onnx[1]);
  put_text(&w, 8, "w");
  wire location = {.n = 0};
  put_text(&location, 1, "location");
  put_text(&location, 2, slash ? slash + 1 : weights);
  put_wire(&w, 13, &location);
  put_int(&w, 14, 1);
  put_wire(&graph, 1, &node);
  put_text(&graph, 2, "gemm");
  if (b) put_wire(&graph, 5, &w);
  wire x = value_info("x", kinds[t].onnx[0], m, k), given = value_info("w", kinds[t].onnx[1], k, n),
       y = value_info("y", kinds[t].onnx[2], m, n);
  const size_t bytes = kinds[t].dl[1].bits / 8;
  put_wire(&graph, 11, &x);
  if (!b) put_wire(&graph, 11, &given);
  put_wire(&graph, 12, &y);
  put_int(&opset, 2, 17);
  put_int(&model, 1, 8);
  put_wire(&model, 7, &graph);
  put_wire(&model, 8, &opset);
  FILE *f = fopen(path, "wb"), *g = fopen(weights, "wb");
  int right = f && g && fwrite(model.data, 1, model.n, f) == model.n &&
              (!b || fwrite(b, bytes, (size_t)(n * k), g) == (size_t)(n * k));
  if (f) right &= !fclose(f);
  if (g) right &= !fclose(g);
  return right;
}

typedef struct problem {
  int64_t m, n, k;
  int threads;
  int both_given;
  kind type;
  float *a, *b, *c, *want; // of |type|: room for floats
  kiln_module *module;
  kiln_session *session;
  kiln_diag *diag;
  dnnl_stream_t stream; // with |type| not F32
  dnnl_primitive_t matmul;
  dnnl_memory_t memory[3], packed;
} problem;

static double flops(const problem *p) { return 2.0 * (double)p->m * (double)p->n * (double)p->k; }

static void run_kiln(problem *p) {
  int64_t in[2] = {p->m, p->k}, given[2] = {p->k, p->n}, out[2] = {p->m, p->n};
  DLTensor x = {p->a, {kDLCPU, 0}, 2, kinds[p->type].dl[0], in, NULL, 0},
           w = {p->b, {kDLCPU, 0}, 2, kinds[p->type].dl[1], given, NULL, 0},
           y = {p->c, {kDLCPU, 0}, 2, kinds[p->type].dl[2], out, NULL, 0};
  const DLTensor *from[] = {&x, &w};
  DLTensor *to[] = {&y};
  if (kiln_session_run(p->session, 1 + (size_t)p->both_given, from, 1, to, p->diag) != KILN_OK)
    fprintf(stderr, "%s\n", kiln_diag_message(p->diag, 0));
}

static void run_openblas(problem *p) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)p->m, (blasint)p->n,
              (blasint)p->k, 1, p->a, (blasint)p->k, p->b, (blasint)p->n, 0, p->want,
              (blasint)p->n);
}

// --- oneDNN's matmul of narrow types

static int open_matmul(problem *p) {
  const dnnl_dims_t dims[] = {{p->m, p->k}, {p->k, p->n}, {p->m, p->n}};
  void *data[] = {p->a, p->b, p->want};
  const dnnl_data_type_t *t = kinds[p->type].dnnl;
  dnnl_memory_desc_t plain[3], any;
  dnnl_matmul_desc_t d;
  dnnl_engine_t engine;
  dnnl_primitive_desc_t pd, pack_pd;
  dnnl_primitive_t pack;
  int bad = dnnl_engine_create(&engine, dnnl_cpu, 0) ||
            dnnl_stream_create(&p->stream, engine, dnnl_stream_default_flags);
  for (int i = 0; i < 3; i++)
    bad = bad || dnnl_memory_desc_init_by_tag(&plain[i], 2, dims[i], t[i], dnnl_ab) ||
          dnnl_memory_create(&p->memory[i], &plain[i], engine, data[i]);
  bad = bad || dnnl_memory_desc_init_by_tag(&any, 2, dims[1], t[1], dnnl_format_tag_any) ||
        dnnl_matmul_desc_init(&d, &plain[0], &any, NULL, &plain[2]) ||
        dnnl_primitive_desc_create(&pd, &d, NULL, engine, NULL) ||
        dnnl_primitive_create(&p->matmul, pd);
  if (bad) return 0;
  const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
  bad = dnnl_memory_create(&p->packed, packed, engine, DNNL_MEMORY_ALLOCATE) ||
        dnnl_reorder_primitive_desc_create(&pack_pd, &plain[1], engine, packed, engine, NULL) ||
        dnnl_primitive_create(&pack, pack_pd);
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->memory[1]}, {DNNL_ARG_TO, p->packed}};
  return !bad && !dnnl_primitive_execute(pack, p->stream, 2, args) && !dnnl_stream_wait(p->stream);
}

static void run_onednn(problem *p) {
  const dnnl_exec_arg_t args[] = {
      {DNNL_ARG_SRC, p->memory[0]}, {DNNL_ARG_WEIGHTS, p->packed}, {DNNL_ARG_DST, p->memory[2]}};
  if (p->type != F32) {
    (void)dnnl_primitive_execute(p->matmul, p->stream, 3, args);
    (void)dnnl_stream_wait(p->stream);
    return;
  }
  (void)dnnl_sgemm('N', 'N', p->m, p->n, p->k, 1, p->a, p->k, p->b, p->n, 0, p->want, p->n);
}

// GFLOP/s of a few runs.
static double rate(problem *p, void (*run)(problem *), int runs) {
  double start = now_s();
  for (int i = 0; i < runs; i++) run(p);
  return flops(p) * runs / (now_s() - start) / 1e9;
}

static int open_problem(problem *p) {
  char dir[] = "/tmp/kiln-gemm-XXXXXX", model_path[64], weights[64];
  kiln_compile_options o = {.struct_size = sizeof o, .threads = p->threads};
  kiln_session_options so = {.struct_size = sizeof so, .threads = p->threads};
  kiln_model *model = NULL;
  if (!mkdtemp(dir)) return 0;
  snprintf(model_path, sizeof model_path, "%s/gemm.onnx", dir);
  snprintf(weights, sizeof weights, "%s/gemm.weights", dir);
  p->diag = kiln_diag_create();
  kiln_status st =
      write_model(model_path, weights, p->type, p->m, p->n, p->k, p->both_given ? NULL : p->b)
          ? KILN_OK
          : KILN_BAD_INPUT;
  if (st == KILN_OK) st = kiln_model_load(model_path, &o, p->diag, &model);
  if (st == KILN_OK) st = kiln_model_compile(model, p->diag, &p->module);
  if (st == KILN_OK) st = kiln_session_create(p->module, &so, p->diag, &p->session);
  if (st != KILN_OK)
    fprintf(stderr, "%s\n",
            kiln_diag_count(p->diag) ? kiln_diag_message(p->diag, 0) : "cannot write the model");
  kiln_model_destroy(model);
  remove(model_path);
  remove(weights);
  rmdir(dir);
  return st == KILN_OK;
}

static float *random_floats(int64_t n, unsigned seed) {
  float *v = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
  for (int64_t i = 0; v && i < n; i++)
    v[i] = (float)(seed = seed * 1664525u + 1013904223u) * 0x1p-31f - 1;
  return v;
}

// Random bytes are factors of int8 as they are; bf16 is the upper half of a float.
static void narrow(kind t, float *v, int64_t n) {
  const uint32_t *from = (const uint32_t *)v;
  for (int64_t i = 0; i < n && t != F32; i++) {
    if (t == BF16) ((uint16_t *)v)[i] = (uint16_t)(from[i] >> 16);
    else ((uint8_t *)v)[i] = (uint8_t)(from[i] >> 8);
  }
}

static double element(kind t, const float *v, int64_t i) {
  if (t == INT8) return ((const int32_t *)v)[i];
  if (t == F32) return (double)v[i];
  const uint32_t bits = (uint32_t)((const uint16_t *)v)[i] << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return (double)wide;
}

static double largest_error(const problem *p) {
  double worst = 0;
  for (int64_t i = 0; i < p->m * p->n; i++) {
    double d = element(p->type, p->c, i) - element(p->type, p->want, i);
    if (d < 0) d = -d;
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// Lets the threads of the library before stop spinning.
static void rest(void) {
  const struct timespec t = {.tv_nsec = 10000000};
  nanosleep(&t, NULL);
}

typedef struct figures {
  double kiln[ROUNDS], blas[ROUNDS], dnnl[ROUNDS], peak[ROUNDS], bandwidth[ROUNDS];
} figures;

static void run_rounds(problem *p, figures *f) {
  const int runs = (int)(2e9 / flops(p)) + 1;
  for (int r = 0; r < ROUNDS; r++) {
    rest();
    f->peak[r] = rate_of_cores(p->threads, p->type, NULL, 1);
    f->bandwidth[r] = rate_of_cores(p->threads, p->type, p->b, p->n * p->k);
    f->kiln[r] = rate(p, run_kiln, runs);
    rest();
    if (p->type == F32) f->blas[r] = rate(p, run_openblas, runs);
    rest();
    f->dnnl[r] = rate(p, run_onednn, runs);
  }
}

static void print_row(const problem *p, figures *f, double error) {
  const double top = median(f->peak, ROUNDS), mine = median(f->kiln, ROUNDS),
               blas = median(f->blas, ROUNDS), dnnl = median(f->dnnl, ROUNDS),
               bandwidth = median(f->bandwidth, ROUNDS), seconds = flops(p) / mine / 1e9,
               bytes = kinds[p->type].dl[1].bits / 8 * (double)(p->n * p->k);
  printf("%5ld %5ld %5ld %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %% %8.1f %%   %.2fx  %.2fx   %.1e\n",
         (long)p->m, (long)p->n, (long)p->k, mine, blas, dnnl, top, bandwidth, 100 * mine / top,
         100 * bytes / seconds / 1e9 / bandwidth, blas > 0 ? mine / blas : 0, mine / dnnl, error);
  fflush(stdout);
}

static int measure(int threads, int both_given, kind type, const int64_t *shape) {
  const int64_t m = shape[0], n = shape[1], k = shape[2];
  problem p = {.m = m,
               .n = n,
               .k = k,
               .threads = threads,
               .both_given = both_given,
               .type = type,
               .a = random_floats(m * k, 1),
               .b = random_floats(k * n, 2),
               .c = random_floats(m * n, 3),
               .want = random_floats(m * n, 4)};
  figures f = {0};
  if (!p.a || !p.b || !p.c || !p.want) return 1;
  narrow(type, p.a, m * k), narrow(type, p.b, k * n);
  if (!open_problem(&p) || (type != F32 && !open_matmul(&p))) return 1;
  run_kiln(&p);
  if (type == F32) run_openblas(&p);
  else run_onednn(&p);
  const double error = largest_error(&p);
  run_onednn(&p);
  run_rounds(&p, &f);
  print_row(&p, &f, error);
  kiln_session_destroy(p.session);
  kiln_module_release(p.module);
  kiln_diag_destroy(p.diag);
  free(p.a), free(p.b), free(p.c), free(p.want);
  return 0;
}

static int run_all(int threads, int both_given, kind type, int n_numbers, char **numbers) {
  static const int64_t shapes[][3] = {
      {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {1, 768, 768},    {8, 768, 768},
      {128, 768, 768}, {1, 3072, 768},     {8, 3072, 768},     {128, 3072, 768}, {1, 768, 3072},
      {8, 768, 3072},  {128, 768, 3072},   {1, 3072, 3072},    {8, 3072, 3072},  {128, 3072, 3072}};
  openblas_set_num_threads(threads);
  printf("GEMM %s, %d thread%s, GFLOP/s (medians of %d interleaved rounds; %s)\n", kinds[type].name,
         threads, threads > 1 ? "s" : "", ROUNDS,
         both_given ? "both operands given at run time" : "Kiln with packed weights");
  printf("%5s %5s %5s %8s %8s %8s %8s %8s %10s %10s  %s\n", "M", "N", "K", "Kiln", "OpenBLAS",
         "oneDNN", "peak", "GB/s", "of peak", "of GB/s", "/OpenBLAS /oneDNN  error");
  int failed = 0;
  for (int i = 0; i + 2 < n_numbers; i += 3)
    failed |= measure(threads, both_given, type,
                      (int64_t[]){atoll(numbers[i]), atoll(numbers[i + 1]), atoll(numbers[i + 2])});
  for (size_t i = 0; n_numbers < 3 && i < sizeof shapes / sizeof *shapes; i++)
    failed |= measure(threads, both_given, type, shapes[i]);
  return failed;
}

// A process of its own for each number of threads: both libraries read these when they are loaded.
static int run_again(int threads, char **argv) {
  char text[16];
  int status = 1;
  const pid_t child = fork();
  if (child == 0) {
    snprintf(text, sizeof text, "%d", threads);
    setenv("KILN_GEMM_BENCH", text, 1);
    setenv("OMP_NUM_THREADS", text, 1);
    // 0.3.21 takes newer cores for Haswell
    setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell", 1);
    execv("/proc/self/exe", argv);
    _exit(1);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv) {
  __builtin_cpu_init();
  int at = 1, threads = 0, both_given = 0;
  kind type = F32;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (strcmp(argv[at], "--both-given") == 0) both_given = 1;
    else if (strcmp(argv[at], "--type") == 0 && at + 1 < argc)
      type = strcmp(argv[++at], "bf16") == 0 ? BF16 : strcmp(argv[at], "int8") == 0 ? INT8 : F32;
    else if (strcmp(argv[at], "--threads") == 0 && at + 1 < argc) threads = atoi(argv[++at]);
    else return fprintf(stderr, "unknown option %s\n", argv[at]), 2;
  }
  const char *mine = getenv("KILN_GEMM_BENCH");
  if (mine) return run_all(atoi(mine), both_given, type, argc - at, argv + at);
  int failed = 0;
  for (int t = threads ? threads : 1; t <= (threads ? threads : 2); t++)
    failed |= run_again(t, argv);
  return failed;
}
