// Loops as GPU code: emitted OpenCL C on a device against the simulator, emitted CUDA C through
// NVRTC, emitted HIP through clang, and the text where it says what other tests cannot see.
#include "unit/cpu/programs.h"

#include "target/sim/sim.h"

#include "unit/gpu/device.h"
#include "unit/share.h"

enum { N_RANDOM = 40, MAX_SOURCES = 600 };

typedef struct bench {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_machine opencl_machine, cuda, hip;
  opencl device;
  bool has_device;
  // to be compiled together: CUDA C, the same programs in HIP
  int n_sources;
  const char *sources[MAX_SOURCES], *names[MAX_SOURCES], *hips[MAX_SOURCES];
} bench;

static int open_bench(void **state) {
  bench *b = calloc(1, sizeof *b);
  assert_non_null(b);
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&b->cx, "opencl", &b->opencl_machine), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&b->cx, "cuda:sm_80", &b->cuda), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&b->cx, "hip:gfx90a", &b->hip), KILN_OK);
  b->has_device = opencl_open(&b->device);
  if (!b->has_device) print_message("no OpenCL device: nothing is run\n");
  *state = b;
  return 0;
}

static int close_bench(void **state) {
  bench *b = *state;
  opencl_close(&b->device);
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
  free(b);
  return 0;
}

static const char *last_message(const bench *b) {
  const size_t n = kiln_diag_count(b->diag);
  return n ? kiln_diag_message(b->diag, n - 1) : "";
}

static kiln_loops *parse(bench *b, const char *text) {
  kiln_loops *l = NULL;
  if (kiln_loops_parse(&b->cx, text, &l) != KILN_OK || kiln_loops_verify(&b->cx, l) != KILN_OK)
    fail_msg("%s\n%s", last_message(b), text);
  return l;
}

static const char *emit(bench *b, const kiln_machine *m, kiln_loops *l, int *n,
                        kiln_gpu_launch **launches) {
  kiln_text text;
  kiln_text_init(&text, &b->cx.perm);
  if (kiln_gpu_emit(&b->cx, m, l, "k", &text, n, launches) != KILN_OK)
    fail_msg("%s", last_message(b));
  return text.data;
}

// --- the device against the simulator ---

typedef struct arguments {
  int n;
  void *got[64], *want[64];
  size_t bytes[64];
  const kiln_buffer *of[64];
} arguments;

static void fill(bench *b, kiln_loops *l, uint64_t seed, arguments *a) {
  maker m = {.cx = &b->cx, .loops = l, .state = seed};
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *p = l->buffers.data[i];
    if (p->scope != KILN_SCOPE_PARAM && p->scope != KILN_SCOPE_WORKSPACE) continue;
    a->bytes[a->n] = (size_t)(kiln_buffer_elems(p) + 8) * (size_t)kiln_dtype_bytes(p->dtype);
    a->got[a->n] = test_malloc(a->bytes[a->n]);
    a->want[a->n] = test_malloc(a->bytes[a->n]);
    fill_buffer(&m, p, a->got[a->n]);
    memcpy(a->want[a->n], a->got[a->n], a->bytes[a->n]);
    a->of[a->n++] = p;
  }
}

static void check_equal(const arguments *a, const char *source) {
  for (int i = 0; i < a->n; i++)
    for (int64_t e = 0; e < kiln_buffer_elems(a->of[i]) + 8; e++) {
      const double x = kiln_element_get(a->of[i]->dtype, a->want[i], e),
                   y = kiln_element_get(a->of[i]->dtype, a->got[i], e);
      if (is_near(a->of[i]->dtype, x, y)) continue;
      fprintf(stderr, "%s\n", source);
      fail_msg("element %lld of buffer %d must be %.17g, got %.17g", (long long)e, i, x, y);
    }
}

static void compare(bench *b, kiln_loops *l, uint64_t seed) {
  int n = 0;
  kiln_gpu_launch *launches = NULL;
  const char *cuda = emit(b, &b->cuda, l, &n, &launches);
  if (b->n_sources < MAX_SOURCES) {
    b->hips[b->n_sources] = emit(b, &b->hip, l, &n, &launches);
    b->names[b->n_sources] = kiln_arena_printf(&b->cx.perm, "source %d", b->n_sources);
    b->sources[b->n_sources++] = cuda;
  }
  const char *source = emit(b, &b->opencl_machine, l, &n, &launches);
  arguments a = {0};
  fill(b, l, seed, &a);
  if (kiln_sim_run(&b->cx, l, a.want) != KILN_OK) fail_msg("%s\n%s", last_message(b), source);
  if (b->has_device) {
    opencl_run(&b->device, source, "k", n, launches, a.n, a.got, a.bytes);
    check_equal(&a, source);
  }
  for (int i = 0; i < a.n; i++) {
    test_free(a.got[i]);
    test_free(a.want[i]);
  }
}

static void compile_for(bench *b, const char *name, int n, const char *const *sources,
                        const char *const *names) {
  kiln_machine m;
  assert_int_equal(kiln_gpu_machine_named(&b->cx, name, &m), KILN_OK);
  kiln_object *out = calloc((size_t)n + 1, sizeof *out);
  assert_non_null(out);
  const kiln_status s = kiln_target_cuda.compiler->compile(&b->cx, &m, n, sources, names, 2, out);
  if (s == KILN_DEVICE_ERROR) {
    print_message("%s\n", last_message(b));
    free(out);
    return;
  }
  if (s != KILN_OK) {
    for (int i = 0; i < n; i++) // the message names it
      if (strstr(last_message(b), names[i])) fprintf(stderr, "%s\n", sources[i]);
    fail_msg("%s", last_message(b));
  }
  for (int i = 0; i < n; i++) {
    assert_true(out[i].bytes > 64 && memcmp(out[i].data, "\177ELF", 4) == 0);
    free(out[i].data);
  }
  free(out);
}

// Whether |clang| makes code of such GPUs of |source|; what it says is in |folder|/said.
static bool clang_compiles(const char *clang, const char *folder, const char *source) {
  char line[256];
  snprintf(line, sizeof line, "%.60s/k", folder);
  FILE *f = fopen(line, "w");
  assert_non_null(f);
  fputs(source, f);
  fclose(f);
  snprintf(line, sizeof line,
           "cd %.60s && %.20s -x hip --offload-arch=gfx90a --cuda-device-only -nogpulib -nogpuinc "
           "-Wno-everything -O1 -S -o out k 2>said",
           folder, clang);
  return system(line) == 0;
}

// Compiles |n| sources in HIP, where there is a compiler of it.
static void compile_hip(int n, const char *const *sources) {
  static const char *const names[] = {"clang", "clang-19", "clang-16", "clang-15"};
  char folder[] = "/tmp/kiln-hip-XXXXXX", line[64];
  size_t k = 0;
  assert_non_null(mkdtemp(folder));
  while (k < sizeof names / sizeof *names && !clang_compiles(names[k], folder, "")) k++;
  const bool is_there = k < sizeof names / sizeof *names;
  if (!is_there) print_message("no clang for HIP: nothing of it is compiled\n");
  for (int i = 0; is_there && i < n; i++) {
    if (clang_compiles(names[k], folder, sources[i])) continue;
    snprintf(line, sizeof line, "cat %s/said >&2", folder);
    if (system(line) != 0) fputs("no message\n", stderr);
    fail_msg("%s", sources[i]);
  }
  snprintf(line, sizeof line, "rm -r %s", folder);
  assert_int_equal(system(line), 0);
}

// Compiles what was emitted since the last time.
static void compile_sources(bench *b) {
  compile_hip(b->n_sources < 20 ? b->n_sources : 20, b->hips);
  compile_for(b, "cuda:sm_80", b->n_sources, b->sources, b->names);
  compile_for(b, "cuda:sm_90a", b->n_sources < 8 ? b->n_sources : 8, b->sources, b->names);
  b->n_sources = 0;
}

// --- programs by hand ---

// Nests side by side: blocks of 4 x |y| threads, of 32, and of 8 that need what the first ones
// store.
#define BESIDE(y, axis)                                                                            \
  "kernel beside { param f32 X[24]:(1) param f32 Y[24]:(1) param f32 Z[6, 32]:(32, 1) "            \
  "param f32 W[24]:(1) shared f32 S[32]:(1) shared f32 T[" y ", 4]:(4, 1) "                        \
  "for b:3 block.y { alloc T { "                                                                   \
  "for r:" y " " axis " { for t:4 thread.x { T[r, t] = X[b*8 + t] } } "                            \
  "for r1:" y " " axis " { for t1:4 thread.x { "                                                   \
  "if r1 < 2 { Y[b*8 + r1*4 + t1] = T[r1, 3 - t1] + f32(b) } } } } } "                             \
  "for c:6 block.x @beside=\"1\" { alloc S { "                                                     \
  "for u:8 thread.x { for v:4 { S[4*u + v] = X[2*c + v] } } "                                      \
  "for w:32 thread.x { Z[c, w] = S[31 - w] * 2f32 } } } "                                          \
  "for d:3 block.x @beside=\"1\" { for k:8 thread.x { W[d*8 + k] = Y[23 - d*8 - k] } } }"

static const char *const by_hand[] = {
    // no bound loop: one thread
    "kernel map { param f32 X[40]:(1) param f32 Y[40]:(1) for i:40 { Y[i] = X[i] * 2f32 } }",
    // a ragged grid, and a parallel loop
    "kernel ragged { param f32 X[1000]:(1) param f32 Y[1000]:(1) for b:4 block.x { for t:256 "
    "thread.x "
    "{ if b*256 + t < 1000 { Y[b*256 + t] = exp(X[b*256 + t]) } } } }",
    "kernel par { param f32 X[9, 5]:(5, 1) param f32 Y[9, 5]:(5, 1) for i:9 parallel { for j:5 "
    "vectorized { Y[i, j] = X[i, j] + 1f32 } } }",
    // shared memory, threads of different numbers, statements of one thread
    "kernel turn { param f32 X[4]:(1) param f32 Y[8]:(1) param f32 Z[2]:(1) shared f32 T[4]:(1) "
    "for b:2 "
    "block.x { alloc T { for t:4 thread.x { T[t] = X[t] + f32(b) } for u:3 thread.x { Y[b*4 + u] = "
    "T[3 "
    "- u] } Z[b] = T[0] + T[1] Y[b*4 + 3] = Z[b] } } }",
    // a buffer that is swizzled where the device's instructions want that, and lies as others do
    // elsewhere
    "kernel swizzled { param f16 X[8, 64]:(64, 1) param f16 Y[8, 64]:(64, 1) shared f16 T[8, "
    "64]:(64, 1) "
    "swizzled for b:1 block.x { alloc T { for t:64 thread.x { for i:8 { T[i, t] = X[i, t] } } for "
    "u:64 "
    "thread.x { for k:8 { Y[k, u] = T[7 - k, 63 - u] } } } } }",
    // a reduction tree over threads
    "kernel sum { param f32 X[8, 64]:(64, 1) param f32 Y[8]:(1) shared f32 S[64]:(1) for b:8 "
    "block.x { "
    "alloc S { for t:64 thread.x { S[t] = X[b, t] } for t1:32 thread.x { S[t1] += S[t1 + 32] } for "
    "t2:16 thread.x { S[t2] += S[t2 + 16] } for t3:8 thread.x { S[t3] += S[t3 + 8] } Y[b] = 0f32 "
    "for "
    "k:8 { Y[b] += S[k] } } } }",
    // rows of a softmax: two axes of threads, phases within a row's loop
    "kernel softmax { param f32 X[6, 40]:(40, 1) param f32 Y[6, 40]:(40, 1) shared f32 P[3, 8]:(8, "
    "1) "
    "shared f32 M[3]:(1) for b:2 block.x { alloc P { alloc M { for r:3 thread.y { for t:8 thread.x "
    "{ "
    "P[r, t] = X[b*3 + r, t] for k:4 { P[r, t] max= X[b*3 + r, 8*k + 8 + t] } } M[r] = P[r, 0] for "
    "j:7 "
    "{ M[r] max= P[r, j + 1] } for u:8 thread.x { P[r, u] = 0f32 for k2:5 { P[r, u] += exp(X[b*3 + "
    "r, "
    "8*k2 + u] - M[r]) } } for v:8 thread.x { for k3:5 { Y[b*3 + r, 8*k3 + v] = exp(X[b*3 + r, "
    "8*k3 + "
    "v] - M[r]) / (P[r, 0] + P[r, 1] + P[r, 2] + P[r, 3] + P[r, 4] + P[r, 5] + P[r, 6] + P[r, 7]) "
    "} } "
    "} } } } }",
    // a matrix product: staged in shared memory by words, register tiles that are distributed
    "kernel mm { param f32 A[32, 64]:(64, 1) param f32 B[64, 32]:(32, 1) param f32 C[32, 32]:(32, "
    "1) "
    "shared f32 SA[16, 16]:(16, 1) shared f32 SB[16, 16]:(16, 1) register f32 R[16, 4, 4]:(16, 4, "
    "1) "
    "for bi:2 block.y { for bj:2 block.x { alloc R { for t0:16 thread.x { for i0:4 unrolled { for "
    "j0:4 "
    "unrolled { R[t0, i0, j0] = 0f32 } } } for k:4 { alloc SA { alloc SB { for t1:16 thread.x { "
    "for "
    "c1:4 { for v1:4 vectorized { SA[t1, 4*c1 + v1] = A[16*bi + t1, 16*k + 4*c1 + v1] } } for c2:2 "
    "{ "
    "for v2:8 vectorized { SB[t1, 8*c2 + v2] = B[16*k + t1, 16*bj + 8*c2 + v2] } } } for t2:16 "
    "thread.x { for k1:16 { for i1:4 unrolled { for j1:4 unrolled { R[t2, i1, j1] += SA[t2/4*4 + "
    "i1, "
    "k1] * SB[k1, t2%4*4 + j1] } } } } } } } for t3:16 thread.x { for i3:4 unrolled { for j3:4 "
    "vectorized { C[16*bi + t3/4*4 + i3, 16*bj + t3%4*4 + j3] = max(R[t3, i3, j3], 0f32) } } } } } "
    "} }",
    // a pipeline of two slots
    "kernel pipe { param f32 X[6, 16]:(16, 1) param f32 Y[16]:(1) shared f32 S[2, 16]:(16, 1) for "
    "b:1 "
    "block.x { for t:16 thread.x { Y[t] = 0f32 } alloc S { for t0:16 thread.x { S[0, t0] = X[0, "
    "t0] } "
    "for k:6 { if k + 1 < 6 { for t1:16 thread.x { S[(k + 1) % 2, t1] = X[k + 1, t1] } } for t2:16 "
    "thread.x { Y[t2] += S[k % 2, 15 - t2] } } } } }",
    // a transpose through padded shared memory, rows of words
    "kernel transpose { param f32 X[32, 64]:(64, 1) param f32 Y[64, 32]:(32, 1) shared f32 S[16, "
    "16]:(17, 1) for bi:2 block.y { for bj:4 block.x { alloc S { for r:16 thread.y { for c:4 "
    "thread.x "
    "{ for v:4 vectorized { S[r, 4*c + v] = X[16*bi + r, 16*bj + 4*c + v] } } } for r1:16 thread.y "
    "{ "
    "for c1:4 thread.x { for v1:4 vectorized { Y[16*bj + r1, 16*bi + 4*c1 + v1] = S[4*c1 + v1, r1] "
    "} } "
    "} } } } }",
    // words under conditions: stored, and copied or zero
    "kernel guarded { param f16 X[6, 8]:(8, 1) param f16 Y[6, 8]:(8, 1) for t:6 thread.x { for v:8 "
    "vectorized { Y[t, v] = 1f16 } for w:8 vectorized { if 8*t + w < 40 { Y[t, w] = t > 0 ? (t < 3 "
    "? "
    "X[t, w] : 0f16) : 0f16 } } } }",
    // copies of a vectorized loop that read some of the same words, and lanes that read some of the
    // same elements
    "kernel shared { param f16 X[10, 8]:(8, 1) param f16 Y[16, 8]:(8, 1) for t:4 thread.x { for "
    "c:4 "
    "unrolled { for v:8 vectorized { Y[4*t + c, v] = f16(0.5f32*f32(X[2*t + (c + 1)/2, v]) + "
    "f32(X[2*t + (c + 1)/2 + 1, v])) } } } }",
    "kernel lanes { param f32 X[18]:(1) param f32 Y[32]:(1) for t:4 thread.x { for v:8 vectorized "
    "{ "
    "Y[8*t + v] = X[4*t + (v + 1)/2]*0.5f32 + X[4*t + (v + 1)/2 + 1] } } }",
    // what is read is written, too
    "kernel own { param f32 Y[40]:(1) for t:1 thread.x { for c:4 unrolled { for v:4 vectorized { "
    "Y[4*c + v + 4] = Y[4*c + v] + Y[4*c + v + 8] } } } }",
    // halves and bytes by words, with and without a sum
    "kernel halves { param f16 X[64]:(1) param bf16 Z[64]:(1) param f16 Y[64]:(1) param bf16 "
    "W[64]:(1) "
    "param i8 P[64]:(1) param i8 Q[64]:(1) for t:4 thread.x { for c:2 { for v:8 vectorized { "
    "Y[16*t + "
    "8*c + v] = f16(f32(X[16*t + 8*c + v]) * 2f32 + f32(Z[16*t + 8*c + v])) W[16*t + 8*c + v] += "
    "Z[16*t + 8*c + v] } } for w:16 vectorized { Q[16*t + w] += P[16*t + w] } } }",
    // shared memory that two buffers take turns in, within a loop
    "kernel turns { param f32 X[4, 8]:(8, 1) param f32 Y[4, 8]:(8, 1) shared f32 S[8]:(1) shared "
    "f32 "
    "T[8]:(1) for b:1 block.x { for k:4 { alloc S { for t:8 thread.x { S[t] = X[k, t] } for u:8 "
    "thread.x { Y[k, u] = S[7 - u] } } alloc T { for v:8 thread.x { T[v] = X[k, v] * 2f32 } for "
    "w:8 "
    "thread.x { Y[k, w] += T[(w + 3) % 8] } } } } }",
    // conditions that all threads share, and lengths read from memory
    "kernel lengths { param i64 N[3]:(1) param f32 X[3, 8]:(8, 1) param f32 Y[3, 8]:(8, 1) shared "
    "f32 "
    "S[8]:(1) for b:3 block.x { alloc S { for k:2 { if b + k > 1 { for t:8 thread.x { S[t] = X[b, "
    "t] } "
    "for u:8 thread.x { Y[b, u] = S[7 - u] + f32(N[b]) } } } } } }",
    // a select that guards a load, index arithmetic beyond int
    "kernel wide { param f32 X[12]:(1) param i64 Y[40]:(1) for t:40 thread.x { Y[t] = t < 12 ? "
    "i64(X[t]) : (t*1000000000)/3 + t*100000000000 } }",
    // names that the dialects have taken
    "kernel k { param f32 local[4]:(1) param f32 half[4]:(1) param f32 class[4]:(1) local f32 "
    "float4[4]:(1) for kernel:4 thread.x { alloc float4 { float4[kernel] = local[kernel] + "
    "half[kernel] "
    "class[kernel] = exp(float4[kernel]) } } }",
    // workspace between nests
    "kernel two { param f32 X[24]:(1) param f32 Y[24]:(1) workspace f32 W[24]:(1) for b:3 block.x "
    "{ for "
    "t:8 thread.x { W[b*8 + t] = X[b*8 + t] + 1f32 } } for c:4 block.x { for u:6 thread.x { Y[c*6 "
    "+ u] "
    "= W[23 - c*6 - u] } } }",
    BESIDE("8", "thread.y"),
    BESIDE("3", "thread.z"),
};

static void programs_by_hand_agree_with_the_simulator(void **state) {
  bench *b = *state;
  for (size_t i = 0; i < KILN_LEN(by_hand); i++) compare(b, parse(b, by_hand[i]), i + 3);
  compile_sources(b);
}

static void nests_side_by_side_are_one_launch_where_none_needs_the_other(void **state) {
  bench *b = *state;
  int n = 0;
  kiln_gpu_launch *l = NULL;
  kiln_loops *kernel = parse(b, BESIDE("3", "thread.z"));
  (void)emit(b, &b->opencl_machine, kernel, &n, &l);
  assert_int_equal(n, 3);
  const char *text = emit(b, &b->cuda, kernel, &n, &l);
  assert_int_equal(n, 2);
  assert_int_equal(l[0].grid[0], 3 + 6);
  assert_int_equal(l[0].block[0], 32);
  assert_int_equal(l[0].block[1] * l[0].block[2], 1);
  assert_int_equal(l[0].shared_bytes, 128); // of the larger arena
  assert_int_equal(l[0].n_args, 3);
  assert_non_null(strstr(text, "if (kiln_thread >= 12) return;"));
  assert_int_equal(l[1].grid[0], 3);
}

// --- everything else ---

// Codes are cast by way of a few types: with each of these is enough.
static bool has_cast(kiln_dtype from, kiln_dtype to) {
  const kiln_dtype other = kiln_dtype_is_code(from) ? to : from;
  if (!kiln_dtype_is_code(from) && !kiln_dtype_is_code(to)) return true;
  return other == KILN_F32 || other == KILN_BF16 || other == KILN_I64;
}

// Every operator on every type that takes it, and every cast, as test/unit/c has them: in few
// kernels.
static void operators_agree_with_the_simulator(void **state) {
  bench *b = *state;
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    const char *name = kiln_dtype_text((kiln_dtype)t);
    const bool is_float = kiln_dtype_is_float((kiln_dtype)t);
    kiln_text params, body;
    kiln_text_init(&params, &b->cx.perm);
    kiln_text_init(&body, &b->cx.perm);
    for (int k = KILN_EXPR_ADD, n = 0; k < KILN_EXPR_SELECT; k++) {
      const kiln_expr_kind kind = (kiln_expr_kind)k;
      if (!kiln_expr_kind_takes(kind, (kiln_dtype)t) || kiln_expr_kind_is_cmp(kind)) continue;
      // not the fold's: the reference has no value for them
      if (is_float && (kind == KILN_EXPR_MOD || kind == KILN_EXPR_TDIV)) continue;
      if (!is_float && ((kind >= KILN_EXPR_FLOOR && kind <= KILN_EXPR_TRUNC) ||
                        kind == KILN_EXPR_SHR || kind == KILN_EXPR_POW))
        continue;
      const bool is_class = kind == KILN_EXPR_ISNAN || kind == KILN_EXPR_ISINF;
      if ((is_class && !is_float) || (kind == KILN_EXPR_SIGN && t == KILN_BOOL)) continue;
      const char *op = kiln_expr_kind_text(kind);
      const bool call = kiln_expr_kind_is_call(kind);
      kiln_text_printf(&params, "param %s Y%d[40]:(1) ", is_class ? "bool" : name, n);
      kiln_text_printf(&body, "Y%d[i] = ", n++);
      if (kiln_expr_kind_args(kind) == 1) kiln_text_printf(&body, "%s(X[i]) ", op);
      else if (call) kiln_text_printf(&body, "%s(X[i], Z[i]) ", op);
      else kiln_text_printf(&body, "X[i] %s Z[i] ", op);
    }
    const char *format =
        "kernel k { param %s X[40]:(1) param %s Z[40]:(1) %sfor i:40 thread.x { %s} }";
    compare(b, parse(b, kiln_arena_printf(&b->cx.perm, format, name, name, params.data, body.data)),
            (uint64_t)t + 99);
    kiln_text_init(&params, &b->cx.perm);
    kiln_text_init(&body, &b->cx.perm);
    for (int to = 0; to < KILN_N_DTYPES; to++) {
      const char *other = kiln_dtype_text((kiln_dtype)to);
      if (!has_cast((kiln_dtype)t, (kiln_dtype)to)) continue;
      kiln_text_printf(&params, "param %s Y%d[40]:(1) ", other, to);
      kiln_text_printf(&body, "Y%d[i] = %s(X[i]) ", to, other);
    }
    const char *casts = "kernel k { param %s X[40]:(1) %sfor i:40 thread.x { %s} }";
    compare(b, parse(b, kiln_arena_printf(&b->cx.perm, casts, name, params.data, body.data)),
            (uint64_t)t + 7);
  }
  compile_sources(b);
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
  return n;
}

// Pointers move behind the wait: of y and x, twice, and z.
static void nests_wait_for_launches_where_the_device_can(void **state) {
  bench *b = *state;
  kiln_machine hopper;
  assert_int_equal(kiln_gpu_machine_named(&b->cx, "cuda:sm_90a", &hopper), KILN_OK);
  const kiln_machine *machines[] = {&hopper, &b->cuda};
  for (int i = 0; i < 2; i++) {
    kiln_gpu_launch *launches = NULL;
    int n = 0;
    const char *text =
        emit(b, machines[i],
             parse(b, "kernel k { param f32 x[64]:(1) param f32 y[64]:(1) param f32 z[64]:(1) "
                      "shared f32 S[32]:(1) "
                      "for a:2 block.x { for t:32 thread.x { y[a*32 + t] = x[a*32 + t] } } "
                      "for b:2 block.x { alloc S { for u:32 thread.x { S[u] = x[u] } "
                      "for v:32 thread.x { z[b*32 + v] = S[31 - v] } } } }"),
             &n, &launches);
    assert_int_equal(n, 2);
    assert_int_equal(count(text, "= kiln_wait();"), i ? 0 : 2);
    assert_int_equal(count(text, "+= kiln_none;"), i ? 0 : 4);
    for (int j = 0; j < n; j++) assert_int_equal(launches[j].waits, i == 0);
  }
}

static void random_programs_agree_with_the_simulator(void **state) {
  bench *b = *state;
  for (uint64_t seed = 1; seed <= (uint64_t)test_some(N_RANDOM); seed++) {
    maker m = {.cx = &b->cx, .state = seed * 104729};
    (void)make_program(&m);
    assert_int_equal(kiln_loops_verify(&b->cx, m.loops), KILN_OK);
    compare(b, m.loops, seed + 17);
  }
  compile_sources(b);
}

// Where a half is made of a value, CUDA C has instructions of few digits; not in front of what
// jumps, and not in f32.
static void what_halves_are_made_of_is_coarse(void **state) {
  static const struct {
    const char *type, *value, *text;
  } rows[] = {
      {"f16", "f16(erf(X[i]) * 2f32)", "= kiln_to_f16(kiln_erf(X[i]) * 2.0f)"},
      {"bf16", "bf16(X[i] / 3f32)", "= kiln_to_bf16(X[i] * 0.33333333f)"},
      {"f16", "f16(X[i] / (1f32 + exp(X[i])))",
       "= kiln_to_f16(kiln_divide(X[i], 1.0f + kiln_exp2(0x1.715476p+0f * (X[i]))))"},
      {"f16", "f16(pow(2f32, X[i]))", "= kiln_to_f16(kiln_exp2(X[i]))"},
      {"f16", "f16(X[i] < 0f32 ? exp(X[i]) : X[i])", "kiln_exp2(0x1.715476p+0f * (X[i]))"},
      {"f16", "f16(floor(X[i] / 3f32))", "= kiln_to_f16(floorf(X[i] / 3.0f))"},
      {"f16", "f16(exp(X[i]) < 3f32 ? 1f32 : 0f32)", "expf(X[i]) < 3.0f"},
      {"f32", "erf(X[i]) / 3f32", "= erff(X[i]) / 3.0f"},
  };
  bench *b = *state;
  kiln_gpu_launch *launches;
  int n;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const char *loops = kiln_arena_printf(
        &b->cx.perm,
        "kernel k { param f32 X[8]:(1) param %s Y[8]:(1) for i:8 thread.x { Y[i] = %s } }",
        rows[i].type, rows[i].value);
    const char *text = emit(b, &b->cuda, parse(b, loops), &n, &launches);
    if (!strstr(text, rows[i].text))
      fail_msg("must have %s in:\n%s", rows[i].text, strstr(text, "__global__"));
  }
}

// Two halves of one word are converted by one instruction, as one can where they lie side by side.
static void halves_of_a_word_are_made_together(void **state) {
  static const struct {
    const char *index, *text;
  } rows[] = {
      {"i*2 + j", "= kiln_pair_f16(r0[0] + 1.0f, r0[1] + 1.0f)"},
      {"j*8 + i", "= kiln_to_f16("},
  };
  bench *b = *state;
  kiln_gpu_launch *launches;
  int n;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const char *loops = kiln_arena_printf(
        &b->cx.perm,
        "kernel k { param f32 X[16]:(1) param f16 Y[16]:(1) for i:8 thread.x { for j:2 vectorized "
        "{ Y[%s] = f16(X[i*2 + j] + 1f32) } } }",
        rows[i].index);
    const char *text = emit(b, &b->cuda, parse(b, loops), &n, &launches);
    if (!strstr(text, rows[i].text))
      fail_msg("must have %s in:\n%s", rows[i].text, strstr(text, "__global__"));
  }
}

// Four copies of two words each read four in all; lanes of two numbers each read six.
static void copies_move_words_and_read_what_they_share_once(void **state) {
  static const struct {
    const char *loops, *load;
    int n;
  } rows[] = {
      {"kernel k { param f16 X[10, 8]:(8, 1) param f16 Y[16, 8]:(8, 1) for t:4 thread.x { for c:4 "
       "unrolled { for v:8 vectorized { Y[4*t + c, v] = X[2*t + (c + 1)/2, v] + X[2*t + (c + 1)/2 "
       "+ "
       "1, v] } } } }",
       "= *(const uint4 *)&X[", 4},
      {"kernel k { param f16 X[11, 8]:(8, 1) param f16 Y[16, 8]:(8, 1) for t:4 thread.x { for c:4 "
       "unrolled { for v:8 vectorized { Y[4*t + c, v] = X[2*t + c, v] + f16(c) } } } }",
       "= *(const uint4 *)&X[", 1},
      {"kernel k { param f32 X[18]:(1) param f32 Y[32]:(1) for t:4 thread.x { for v:8 vectorized { "
       "Y[8*t + v] = X[4*t + (v + 1)/2] + X[4*t + (v + 1)/2 + 1] } } }",
       "X[t0 * 4 + 3]", 4},
      // words under conditions that are the same for all lanes: around the store, and of a choice
      {"kernel k { param f16 X[4, 8]:(8, 1) param f16 Y[4, 8]:(8, 1) for t:4 thread.x { for v:8 "
       "vectorized { if 8*t + v < 24 { Y[t, v] = X[t, v] } } } }",
       "*(uint4 *)&Y[", 1},
      {"kernel k { param f16 X[4, 8]:(8, 1) param f16 Y[4, 8]:(8, 1) for t:4 thread.x { for v:8 "
       "vectorized { Y[t, v] = 8*t + v < 24 ? (t < 2 ? X[t, v] : 0f16) : 0f16 } } }",
       "&& t0 < 2 ? *(const uint4 *)&X[", 1},
      // not the same
      {"kernel k { param f16 X[4, 8]:(8, 1) param f16 Y[4, 8]:(8, 1) for t:4 thread.x { for v:8 "
       "vectorized { if 8*t + v < 21 { Y[t, v] = X[t, v] } } } }",
       "*(uint4 *)&Y[", 0},
  };
  bench *b = *state;
  kiln_gpu_launch *launches;
  int n;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const char *text = emit(b, &b->cuda, parse(b, rows[i].loops), &n, &launches);
    if (count(text, rows[i].load) != rows[i].n)
      fail_msg("must have %d of %s in:\n%s", rows[i].n, rows[i].load, strstr(text, "__global__"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_by_hand_agree_with_the_simulator),
      cmocka_unit_test(nests_side_by_side_are_one_launch_where_none_needs_the_other),
      cmocka_unit_test(operators_agree_with_the_simulator),
      cmocka_unit_test(nests_wait_for_launches_where_the_device_can),
      cmocka_unit_test(random_programs_agree_with_the_simulator),
      cmocka_unit_test(what_halves_are_made_of_is_coarse),
      cmocka_unit_test(halves_of_a_word_are_made_together),
      cmocka_unit_test(copies_move_words_and_read_what_they_share_once),
  };
  return cmocka_run_group_tests(tests, open_bench, close_bench);
}
