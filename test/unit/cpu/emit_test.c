// Loop programs of all forms, compared with loops in C.
#include "unit/cpu/rig.h"
#include "target/cpu/together.h"

#include <math.h>
#include <sys/mman.h>

static const char *const machines[] = {NULL, "avx2", "avx512"};
#define FOR_EACH_MACHINE(r)                                                                        \
  for (size_t machine_ = 0; machine_ < KILN_LEN(machines); machine_++)                             \
    if (rig_runs(machines[machine_]))                                                              \
      for (int once_ = (rig_init(&(r), machines[machine_]), 1); once_;                             \
           once_ = (rig_deinit(&(r)), 0))

static void fill(float *x, int n) {
  for (int i = 0; i < n; i++) x[i] = (float)((i * 37 + 11) % 101) / 16 - 3;
}

static void a_vector_loop_of_any_extent_is_elementwise(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    for (int n = 1; n <= 70; n += n < 20 ? 1 : 7) {
      float a[128], b[128], c[128];
      fill(a, 128);
      fill(b, 128);
      for (int i = 0; i < 128; i++) c[i] = 77;
      const char *text =
          kiln_arena_printf(&r.cx.perm,
                            "kernel k { param f32 a[%d]:(1) param f32 b[%d]:(1) param f32 c[%d]:(1)"
                            " for v:%d vectorized { c[v] = a[v] * b[v] + 2f32 } }",
                            n, n, n, n);
      rig_compile(&r, text, true);
      rig_run(&r, (char *[]){(char *)a, (char *)b, (char *)c}, 1);
      for (int i = 0; i < 128; i++) assert_true(c[i] == (i < n ? a[i] * b[i] + 2 : 77));
    }
  }
}

// Square tiles, ragged in both dims, strided and reversed.
static void a_copy_turns_a_matrix(void **state) {
  (void)state;
  static const struct {
    int rows, columns;
  } of[] = {{16, 16}, {64, 48}, {37, 40}, {16, 130}, {19, 61}, {33, 15}, {3, 64}, {150, 20}};
  rig r;
  FOR_EACH_MACHINE(r) {
    for (size_t i = 0; i < KILN_LEN(of); i++) {
      const int n = of[i].rows, m = of[i].columns, room = (n + 3) * (m + 5);
      float *a = calloc((size_t)(2 * room), sizeof *a), *b = a + room;
      fill(a, room);
      for (int k = 0; k < room; k++) b[k] = 77;
      const char *text = kiln_arena_printf(
          &r.cx.perm,
          "kernel k { param f32 a[%d, %d]:(%d, 1) param f32 b[%d, %d]:(%d, 1) for o:2 { "
          "for v:%d { for w:%d vectorized { b[v + o, w] = a[w + 2, v + min(o*2, 1)] } } } }",
          n + 2, m + 1, m + 1, m + 1, n, n, m, n);
      rig_compile(&r, text, true);
      rig_run(&r, (char *[]){(char *)a, (char *)b}, 1);
      for (int v = 0; v < m + 1; v++)
        for (int w = 0; w < n; w++) { assert_true(b[v * n + w] == a[(w + 2) * (m + 1) + v]); }
      assert_true(b[(m + 1) * n] == 77);
      free(a);
    }
  }
}

// Every other element of two contiguous images within a border of zeros, which is as wide as a
// transpose allows, or wider; with |channels| channels, fewer or more than a vector's lanes.
static void must_turn(rig *r, int channels, int border) {
  enum { H = 3, W = 61, MOST = 10, MOST_CHANNELS = 20, LINE = 2 * W };
  const int width = W + 2 * border, plane = H * LINE, first = channels / 2;
  float a[MOST_CHANNELS * H * LINE], bias[MOST_CHANNELS], y[H * (W + 2 * MOST) * MOST_CHANNELS];
  fill(a, channels * plane);
  fill(bias, channels);
  const char *text = kiln_arena_printf(
      &r->cx.perm,
      "kernel k { param f32 a[%d]:(1) param f32 b[%d]:(1) param f32 y[%d, %d, %d]:(%d, %d, 1) "
      "for h:%d { for v:%d { for c:%d vectorized { "
      "y[h, v, c] = v >= %d && v < %d ? (c < %d ? a[c*%d + h*%d + (v - %d)*2] : "
      "a[c*%d + h*%d + (v - %d)*2 + 1]*b[c]) + 1f32 : 0f32 } } } }",
      channels * plane, channels, H, width, channels, width * channels, channels, H, width,
      channels, border, border + W, first, plane, LINE, border, plane, LINE, border);
  rig_compile(r, text, true);
  rig_run(r, (char *[]){(char *)a, (char *)bias, (char *)y}, 1);
  for (int k = 0; k < H * width * channels; k++) {
    const int h = k / (width * channels), v = k / channels % width - border, c = k % channels;
    const bool is_inside = v >= 0 && v < W;
    const float *x = &a[c * plane + h * LINE + 2 * (is_inside ? v : 0)];
    const float want = (c < first ? x[0] : x[1] * bias[c]) + 1;
    assert_true(y[k] == (is_inside ? want : 0));
  }
}

static void a_map_turns_what_it_reads(void **state) {
  (void)state;
  static const int borders[] = {0, 1, 8, 10}, channels[] = {2, 3, 5, 7, 8, 13, 16, 20};
  rig r;
  FOR_EACH_MACHINE(r) {
    for (size_t i = 0; i < KILN_LEN(borders) * KILN_LEN(channels); i++)
      must_turn(&r, channels[i / KILN_LEN(borders)], borders[i % KILN_LEN(borders)]);
  }
}

// Rows that overlap: the last one that is written stays.
// Channels in an order of their own, as behind a space to depth: row c of y's columns is row
// c % 3 * (n / 3) + c / 3 of a.
static void a_map_turns_rows_that_lie_unevenly(void **state) {
  (void)state;
  enum { W = 37, MOST = 18 };
  static const int channels[] = {6, 12, 18};
  rig r;
  FOR_EACH_MACHINE(r) {
    for (size_t i = 0; i < KILN_LEN(channels); i++) {
      const int n = channels[i], rest = n / 3;
      float a[MOST * 2 * W], y[W * MOST];
      fill(a, n * 2 * W);
      const char *text = kiln_arena_printf(
          &r.cx.perm,
          "kernel k { param f32 a[%d]:(1) param f32 y[%d, %d]:(%d, 1) for v:%d { for c:%d "
          "vectorized { y[v, c] = a[(c%%3*%d + c/3)*%d + v*2] } } }",
          n * 2 * W, W, n, n, W, n, rest, 2 * W);
      rig_compile(&r, text, true);
      rig_run(&r, (char *[]){(char *)a, (char *)y}, 1);
      for (int k = 0; k < W * n; k++)
        assert_true(y[k] == a[(k % n % 3 * rest + k % n / 3) * 2 * W + k / n * 2]);
    }
  }
}

static void a_turned_copy_onto_itself_keeps_the_order(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    float a[32 * 32], b[63];
    fill(a, 32 * 32);
    rig_compile(&r,
                "kernel k { param f32 a[32, 32]:(32, 1) param f32 b[63]:(1) for v:32 { "
                "for w:32 vectorized { b[v + w] = a[w, v] } } }",
                true);
    rig_run(&r, (char *[]){(char *)a, (char *)b}, 1);
    for (int i = 0; i < 63; i++) {
      const int v = i < 32 ? i : 31;
      assert_true(b[i] == a[(i - v) * 32 + v]);
    }
  }
}

static void reductions_meet_in_one_element(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    float a[53], s = 1, m = -1000, sum = 1, max = -1000;
    fill(a, 53);
    a[40] = 90;
    rig_compile(&r,
                "kernel k { param f32 a[53]:(1) param f32 s[1]:(1) param f32 m[1]:(1)"
                " for v:53 vectorized { s[0] += a[v]  m[0] max= a[v] } }",
                true);
    rig_run(&r, (char *[]){(char *)a, (char *)&s, (char *)&m}, 1);
    for (int i = 0; i < 53; i++) sum += a[i], max = fmaxf(max, a[i]);
    assert_true(fabsf(s - sum) < 1e-3f);
    assert_true(m == max);
  }
}

// Each lane's condition holds for the whole body, even after a store that changes its operands.
static void a_condition_is_evaluated_once(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    float a[37], was[37], b[37] = {0};
    fill(a, 37);
    memcpy(was, a, sizeof a);
    rig_compile(&r,
                "kernel k { param f32 a[37]:(1) param f32 b[37]:(1) for v:37 vectorized {"
                " if a[v] > 0f32 { a[v] = 0f32 - a[v]  b[v] = 1f32 } } }",
                true);
    rig_run(&r, (char *[]){(char *)a, (char *)b}, 1);
    for (int i = 0; i < 37; i++) assert_true(a[i] == -fabsf(was[i]) && b[i] == (was[i] > 0));
  }
}

static const char gemm[] =
    "kernel mm { param f32 A[28, 64]:(64, 1) param f32 B[2, 64, 32]:(2048, 32, 1)"
    " param f32 C[28, 64]:(64, 1) register f32 c[14, 32]:(32, 1)"
    " for jo:2 { for io:2 { alloc c {"
    " for i:14 unrolled { for v:32 vectorized { c[i, v] = 0f32 } }"
    " for k:64 { for i2:14 unrolled { for v2:32 vectorized {"
    "   c[i2, v2] += A[io*14 + i2, k] * B[jo, k, v2] } } }"
    " for i3:14 unrolled { for v3:32 vectorized { C[io*14 + i3, jo*32 + v3] = c[i3, v3] } }"
    " } } } }";

static int count(const char *text, const char *word) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
  return n;
}

static void a_register_tile_stays_in_registers(void **state) {
  (void)state;
  rig r;
  rig_init(&r, "avx512");
  rig_compile(&r, gemm, rig_runs("avx512"));
  assert_int_equal(count(r.assembly.data, "vfmadd231ps"), 28);
  assert_int_equal(count(r.assembly.data, "(%rsp"), 0);
  if (rig_runs("avx512")) {
    static float a[28 * 64], b[64 * 64], c[28 * 64];
    fill(a, 28 * 64);
    fill(b, 64 * 64);
    rig_run(&r, (char *[]){(char *)a, (char *)b, (char *)c}, 1);
    for (int i = 0; i < 28; i++) {
      for (int j = 0; j < 64; j++) {
        double sum = 0;
        for (int k = 0; k < 64; k++)
          sum += (double)a[i * 64 + k] * (double)b[j / 32 * 2048 + k * 32 + j % 32];
        assert_true(fabs(sum - (double)c[i * 64 + j]) < 1e-3);
      }
    }
  }
  rig_deinit(&r);
}

// A row that is no multiple of the vector, read by a loop of another extent.
static void ragged_register_rows_stay_in_registers(void **state) {
  (void)state;
  rig r;
  rig_init(&r, "avx512");
  rig_compile(&r,
              "kernel k { param f32 A[6, 64]:(64, 1) param f32 B[64, 24]:(24, 1)"
              " param f32 C[6, 24]:(24, 1) register f32 c[6, 24]:(24, 1) alloc c {"
              " for i:6 unrolled { for v:24 vectorized { c[i, v] = 0f32 } }"
              " for k:64 { for i2:6 unrolled { for v2:24 vectorized {"
              "   c[i2, v2] += A[i2, k] * B[k, v2] } } }"
              " for i3:6 unrolled { for v3:32 vectorized {"
              "   if v3 < 24 { C[i3, v3] = c[i3, v3] } } } } }",
              false);
  assert_int_equal(count(r.assembly.data, "(%rsp"), 0);
  rig_deinit(&r);
}

static void code_for_aarch64_is_generated(void **state) {
  (void)state;
  rig r;
  rig_init(&r, "neon");
  rig_compile(&r, gemm, false);
  assert_true(count(r.assembly.data, "fmla\tv") >= 28);
  rig_deinit(&r);
}

static void halves_round_once(void **state) {
  (void)state;
  static double x[65536];
  static uint16_t f16[65536], bf16[65536], back[65536];
  rig r;
  FOR_EACH_MACHINE(r) {
    uint64_t seed = 1;
    for (int i = 0; i < 65536; i++) {
      seed = seed * UINT64_C(6364136223846793005) + 1;
      x[i] = ldexp((double)(seed >> 11) / 0x1p53 - 0.5, (int)(seed % 40) - 24);
      if (i % 4 == 0) // halfway, and just beside
        x[i] = ldexp((double)(2 * (i % 2048) + 4097), i % 30 - 27) + (i % 3 - 1) * 0x1p-45;
    }
    rig_compile(&r,
                "kernel k { param f64 x[4096, 16]:(16, 1) param f16 h[4096, 16]:(16, 1)"
                " param bf16 b[4096, 16]:(16, 1) param f16 s[4096, 16]:(16, 1)"
                " for i:4096 { for v:16 vectorized { h[i, v] = f16(x[i, v])"
                " b[i, v] = bf16(x[i, v]) s[i, v] = f16(f32(h[i, v])) } } }",
                true);
    rig_run(&r, (char *[]){(char *)x, (char *)f16, (char *)bf16, (char *)back}, 1);
    for (int i = 0; i < 65536; i++) {
      assert_int_equal(f16[i], kiln_f16_of_f64(x[i]));
      assert_int_equal(bf16[i], kiln_bf16_of_f64(x[i]));
      assert_int_equal(back[i], f16[i]);
    }
  }
}

// Every subnormal number of bf16, ties and their neighbours, of both signs; also with the
// instruction, which takes them for zero.
static void subnormal_halves_are_kept(void **state) {
  (void)state;
  static const char text[] =
      "kernel k { param f32 x[4096, 16]:(16, 1) param bf16 b[4096, 16]:(16, 1)"
      " for i:4096 { for v:16 vectorized { b[i, v] = bf16(x[i, v]) } } }";
  static float x[65536];
  static uint16_t bf16[65536];
  rig r;
  for (uint32_t i = 0; i < 65536; i++) {
    const uint32_t bits = i % 2 << 31 | ((i / 8 << 15) + (i / 2 % 4)) % 0x00810000 | (i & 7) << 13;
    memcpy(&x[i], &bits, sizeof bits);
  }
  FOR_EACH_MACHINE(r) {
    rig_compile(&r, text, true);
    rig_run(&r, (char *[]){(char *)x, (char *)bf16}, 1);
    for (int i = 0; i < 65536; i++) assert_int_equal(bf16[i], kiln_bf16_of_f64((double)x[i]));
  }
  rig_init(&r, "avx512vnni");
  rig_compile(&r, text, false);
  assert_true(count(r.assembly.data, "vcvtneps2bf16") > 0);
  assert_true(count(r.assembly.data, "vaddps") > 0 &&
              count(r.assembly.data, "vsubps") + count(r.assembly.data, "vaddps") >= 2);
  rig_deinit(&r);
}

static void casts_to_integers_saturate(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    float x[8] = {NAN, INFINITY, -INFINITY, 300, -300, -1.9f, 254.9f, 3e9f};
    int32_t i32[8];
    uint8_t u8[8];
    int64_t i64[8];
    rig_compile(&r,
                "kernel k { param f32 x[8]:(1) param i32 a[8]:(1) param u8 b[8]:(1)"
                " param i64 c[8]:(1) for v:8 vectorized {"
                " a[v] = i32(x[v]) b[v] = u8(x[v]) c[v] = i64(x[v]) } }",
                true);
    rig_run(&r, (char *[]){(char *)x, (char *)i32, (char *)u8, (char *)i64}, 1);
    const int32_t want_i32[8] = {0, INT32_MAX, INT32_MIN, 300, -300, -1, 254, INT32_MAX};
    const uint8_t want_u8[8] = {0, 255, 0, 255, 0, 0, 254, 255};
    const int64_t want_i64[8] = {0, INT64_MAX, INT64_MIN, 300, -300, -1, 254, 3000000000};
    assert_memory_equal(i32, want_i32, sizeof i32);
    assert_memory_equal(u8, want_u8, sizeof u8);
    assert_memory_equal(i64, want_i64, sizeof i64);
  }
}

// The byte of |x| by nearbyint, which rounds to even; NaN gives 0.
static int code_of(float x, int shift, int least, int most) {
  const float sum = nearbyintf(x) + (float)shift;
  return isnan(sum) ? 0 : sum < (float)least ? least : sum > (float)most ? most : (int)sum;
}

static void what_is_rounded_becomes_a_code_and_a_number_again(void **state) {
  (void)state;
  enum { N = 512 };
  static float x[N], back[N], plain[N];
  static uint8_t u8[N];
  static int8_t i8[N];
  static int16_t i16[N];
  static const float ends[] = {NAN, INFINITY, -INFINITY, 3e9f, -3e9f, 8388609, -0.5f, -0.0f};
  rig r;
  for (int i = 0; i < N; i++) x[i] = 0.5f * (float)(i - N / 2) * (i % 3 ? 2 : 1);
  for (int i = 0; i < N; i += 5) x[i] += i % 2 ? 0.25f : -0.125f;
  memcpy(x, ends, sizeof ends);
  FOR_EACH_MACHINE(r) {
    rig_compile(&r,
                "kernel k { param f32 x[512]:(1) param u8 a[512]:(1) param i8 b[512]:(1)"
                " param i16 c[512]:(1) param f32 d[512]:(1) param f32 e[512]:(1)"
                " for i:64 { for v:8 vectorized {"
                " a[i*8 + v] = u8(round(x[i*8 + v]) + 107f32)"
                " b[i*8 + v] = i8(round(x[i*8 + v]) + -3f32)"
                " c[i*8 + v] = i16(u8(round(x[i*8 + v]) + 12f32))"
                " d[i*8 + v] = f32(i32(u8(round(x[i*8 + v]) + 107f32)) - 105i32)"
                " e[i*8 + v] = f32(i32(i8(round(x[i*8 + v])))) } } }",
                true);
    rig_run(&r,
            (char *[]){(char *)x, (char *)u8, (char *)i8, (char *)i16, (char *)back, (char *)plain},
            1);
    for (int i = 0; i < N; i++) {
      assert_int_equal(u8[i], code_of(x[i], 107, 0, 255));
      assert_int_equal(i8[i], code_of(x[i], -3, -128, 127));
      assert_int_equal(i16[i], code_of(x[i], 12, 0, 255));
      assert_true(back[i] == (float)(code_of(x[i], 107, 0, 255) - 105));
      assert_true(plain[i] == (float)code_of(x[i], 0, -128, 127));
    }
  }
}

// Guarded loads do not access the unmapped rows around the matrix.
static void guarded_loads_touch_nothing(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages, 4096, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + 8192, 4096, PROT_NONE), 0);
    float *x = (float *)(void *)(pages + 4096), y[1224], z[512];
    fill(x, 1024);
    rig_compile(
        &r,
        "kernel k { param f32 x[1024]:(1) param f32 y[1224]:(1) param f32 z[512]:(1)"
        " for i:77 { for v:16 vectorized { if i*16 + v < 1224 {"
        "   y[i*16 + v] = i*16 + v >= 100 && i*16 + v < 1124 ? x[i*16 + v - 100] : 5f32 } } }"
        " for j:33 { for w:16 vectorized { if j*16 + w < 512 {"
        "   z[j*16 + w] = x[(j*16 + w)*2 + 1] } } } }",
        true);
    rig_run(&r, (char *[]){(char *)x, (char *)y, (char *)z}, 1);
    for (int i = 0; i < 1224; i++) assert_true(y[i] == (i >= 100 && i < 1124 ? x[i - 100] : 5));
    for (int i = 0; i < 512; i++) assert_true(z[i] == x[2 * i + 1]);
    munmap(pages, 3 * 4096);
  }
}

static void a_parallel_nest_runs_the_part_it_is_given(void **state) {
  (void)state;
  rig r;
  rig_init(&r, NULL);
  rig_compile(&r, "kernel k { param f32 y[64]:(1) for i:64 parallel { y[i] = f32(i) } }", true);
  float y[64] = {0};
  rig_nest(&r, 0)((char *[]){(char *)y}, 10, 20);
  for (int i = 0; i < 64; i++) assert_true(y[i] == (i >= 10 && i < 20 ? (float)i : 0));
  rig_nest(&r, 0)((char *[]){(char *)y}, 30, 30);
  assert_true(y[30] == 0);
  rig_deinit(&r);
}

// Many kernels on several threads: the same bytes every time.
static void compiling_in_parallel_is_deterministic(void **state) {
  (void)state;
  enum { N = 9, THREADS = 3 };
  rig r;
  rig_init(&r, NULL);
  kiln_loops *kernels[N];
  const char *symbols[N];
  for (int i = 0; i < N; i++) {
    const char *text =
        kiln_arena_printf(&r.cx.perm,
                          "kernel k { param f32 x[%d]:(1) param f32 y[%d]:(1)"
                          " for v:%d vectorized { y[v] = exp(x[v]) + tan(x[v]) * %df32 } }",
                          8 * i + 8, 8 * i + 8, 8 * i + 8, i);
    if (kiln_loops_parse(&r.cx, text, &kernels[i]) != KILN_OK) rig_fail(&r, "parse");
    symbols[i] = kiln_arena_printf(&r.cx.perm, "f%d", i);
  }
  kiln_object first[N] = {0}, second[N] = {0};
  const kiln_cpu_options many = {.n_threads = THREADS}, one = {.n_threads = 1};
  int n = 0, again = 0;
  void *found = NULL;
  assert_int_equal(kiln_cpu_compile(&r.cx, &r.machine, N, kernels, symbols, &many, &n, first), 0);
  assert_int_equal(kiln_cpu_compile(&r.cx, &r.machine, N, kernels, symbols, &one, &again, second),
                   0);
  assert_int_equal(n, N);
  assert_int_equal(again, N);
  for (int i = 0; i < n; i++) {
    assert_int_equal(first[i].bytes, second[i].bytes);
    assert_memory_equal(first[i].data, second[i].data, first[i].bytes);
  }
  assert_int_equal(kiln_jit_create(&r.cx, &r.machine, n, first, &r.jit), 0);
  for (int i = 0; i < N; i++)
    assert_int_equal(kiln_jit_find(r.jit, kiln_arena_printf(&r.cx.perm, "f%d_0", i), NULL, &found),
                     KILN_OK);
  assert_int_equal(kiln_jit_find(r.jit, "f0_1", NULL, &found), KILN_INTERNAL);
  assert_null(found);
  for (int i = 0; i < n; i++) {
    kiln_object_deinit(&first[i]);
    kiln_object_deinit(&second[i]);
  }
  rig_deinit(&r);
}

// Few kernels are each optimised, in an object of their own; of many, short ones are not optimised,
// and long ones are, to the same bytes.
static void only_short_kernels_in_a_crowd_are_quick(void **state) {
  (void)state;
  enum { N = 40 };
  rig r;
  rig_init(&r, NULL);
  kiln_loops *kernels[N + 1] = {[N] = rig_crowd(&r)};
  const char *symbols[N + 1] = {[N] = "crowd"};
  for (int i = 0; i < N; i++) {
    const char *text = kiln_arena_printf(
        &r.cx.perm,
        "kernel k { param f32 x[512]:(1) param f32 y[512]:(1) for i:%d { for v:64 vectorized {"
        " y[v] = x[v] + %df32 } } }",
        i % 4 ? 2 : 1000, i);
    if (kiln_loops_parse(&r.cx, text, &kernels[i]) != KILN_OK) rig_fail(&r, "parse");
    symbols[i] = kiln_arena_printf(&r.cx.perm, "f%d", i);
  }
  assert_true(kiln_cpu_are_alone(&r.cx, N, kernels));
  assert_false(kiln_cpu_are_alone(&r.cx, N + 1, kernels));
  const kiln_cpu_modules m = kiln_cpu_modules_of(&r.cx, N + 1, kernels);
  int times[N + 1] = {0};
  for (int i = 0; i < m.n; i++) {
    assert_true(m.is_quick[i] || m.first[i + 1] == m.first[i] + 1);
    for (int k = m.first[i]; k < m.first[i + 1]; k++) {
      assert_true(m.is_quick[i] == (m.kernels[k] % 4 != 0 || m.kernels[k] == N));
      times[m.kernels[k]]++;
    }
  }
  for (int i = 0; i <= N; i++) assert_int_equal(times[i], 1);
  kiln_object few[N] = {0}, many[N + 1] = {0};
  int n = 0;
  assert_int_equal(kiln_cpu_compile(&r.cx, &r.machine, N, kernels, symbols, NULL, &n, few), 0);
  assert_int_equal(kiln_cpu_compile(&r.cx, &r.machine, N + 1, kernels, symbols, NULL, &n, many), 0);
  for (int i = 0; i < N; i += 4) {
    assert_int_equal(few[i].bytes, many[i].bytes);
    assert_memory_equal(few[i].data, many[i].data, few[i].bytes);
  }
  for (int i = 0; i < N; i++) kiln_object_deinit(&few[i]);
  for (int i = 0; i <= N; i++) kiln_object_deinit(&many[i]);
  rig_deinit(&r);
}

// Of many kernels, a nest that equals another kernel's nest is not compiled.
static void nests_that_are_the_same_code_are_compiled_once(void **state) {
  (void)state;
  static const char first[] =
      "kernel a { param f32 x[4]:(1) param f32 y[8]:(1) for v:4 { y[v] = x[v] }"
      " for w:8 vectorized { y[w] = x[0] + 1f32 } }";
  static const struct {
    const char *second;
    kiln_cpu_nest is[2];
  } rows[] = {
      {"kernel b { param f32 x[4]:(1) param f32 y[8]:(1) for v:4 { y[v] = x[v] }"
       " for w:8 vectorized { y[w] = x[0] + 1f32 } }",
       {{0, 0}, {0, 1}}},
      {"kernel b { param f32 x[4]:(1) param f32 y[8]:(1) param i8 z[2]:(1) for v:4 { y[v] = x[v] }"
       " for w:8 vectorized { y[w] = x[0] + 2f32 } }",
       {{0, 0}, {1, 1}}},
      {"kernel b { param f32 x[4]:(2) param f32 y[8]:(1) for v:4 { y[v] = x[v] }"
       " for w:8 vectorized { y[w] = x[0] + 1f32 } }",
       {{1, 0}, {1, 1}}},
      {"kernel b { param f32 x[4]:(1) param f32 y[8]:(1) for v:3 { y[v] = x[v] }"
       " for w:8 { y[w] = x[0] + 1f32 } }",
       {{1, 0}, {1, 1}}},
      {"kernel b { param i8 z[4]:(1) param f32 x[4]:(1) param f32 y[8]:(1) for v:4 { y[v] = x[v] }"
       " for w:4 { y[w] = x[w] } }",
       {{1, 0}, {1, 1}}},
      {"kernel b { param f32 x[4]:(1) param f32 y[8]:(1) for u:4 { y[u] += x[u] }"
       " for u:4 { y[u] += x[u] } }",
       {{1, 0}, {1, 0}}},
      {"kernel b { param f32 x[4]:(1) param f32 y[8]:(1) for v:4 { y[v] = x[v] }"
       " for t:5000 { y[0] += x[0] } }",
       {{1, 0}, {1, 1}}}, // which is not short, and so optimised
  };
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    rig r;
    rig_init(&r, NULL);
    kiln_loops *kernels[] = {NULL, NULL, rig_crowd(&r)};
    const char *symbols[] = {"f", "g", "crowd"};
    kiln_object objects[3] = {0};
    int n = 0;
    if (kiln_loops_parse(&r.cx, first, &kernels[0]) != KILN_OK ||
        kiln_loops_parse(&r.cx, rows[row].second, &kernels[1]) != KILN_OK)
      rig_fail(&r, "parse");
    assert_null(kiln_cpu_nests_of(&r.cx, 2, kernels));
    const kiln_cpu_options options = {.nests = kiln_cpu_nests_of(&r.cx, 3, kernels)};
    assert_int_equal(
        kiln_cpu_compile(&r.cx, &r.machine, 3, kernels, symbols, &options, &n, objects), 0);
    assert_int_equal(
        kiln_jit_create(&r.cx, &r.machine, 1 + (objects[1].data != NULL), objects, &r.jit), 0);
    for (int j = 0; j < 2; j++) {
      const kiln_cpu_nest is = options.nests->same[options.nests->first[1] + j];
      void *found = NULL;
      assert_int_equal(is.kernel, rows[row].is[j].kernel);
      assert_int_equal(is.nest, rows[row].is[j].nest);
      const bool is_own = is.kernel == 1 && is.nest == j;
      const char *symbol = kiln_arena_printf(&r.cx.perm, "g_%d", j);
      assert_int_equal(kiln_jit_find(r.jit, symbol, NULL, &found),
                       is_own ? KILN_OK : KILN_INTERNAL);
    }
    for (int i = 0; i < 3; i++) kiln_object_deinit(&objects[i]);
    rig_deinit(&r);
  }
}

static void the_host_is_described(void **state) {
  (void)state;
  rig r;
  rig_init(&r, NULL);
  assert_true(r.machine.n_cores >= 1);
  assert_true(r.machine.l1_bytes >= 8 << 10 && r.machine.l1_bytes < r.machine.l2_bytes);
  assert_true(r.machine.vector_bytes >= 16 && r.machine.n_vector_regs >= 16);
  kiln_machine m;
  assert_int_equal(kiln_machine_named(&r.cx, "z80", &m), KILN_BAD_INPUT);
  rig_deinit(&r);
}

// The index is not affine in the lane, so each lane has an address of its own; that of the first
// lane is prefetched.
static void prefetches_stand_in_vector_loops(void **state) {
  (void)state;
  rig r;
  float x[96], y[64];
  FOR_EACH_MACHINE(r) {
    fill(x, 96);
    rig_compile(
        &r,
        "kernel k { param f32 x[96]:(1) param f32 y[64]:(1) for i:2 { for v:32 vectorized { "
        "prefetch x[min(v*v, 60) + i*7 + 8] prefetch x[i*32 + v + 32] "
        "y[i*32 + v] = x[i*32 + v] + x[min(v*v, 60)] } } }",
        true);
    rig_run(&r, (char *[]){(char *)x, (char *)y}, 2);
    for (int i = 0; i < 64; i++) {
      const int v = i % 32;
      assert_true(y[i] == x[i] + x[v * v < 60 ? v * v : 60]);
    }
  }
}

// Groups of lanes that load one element each, up to the end of the last readable page. If vectors
// hold whole groups, nothing is gathered.
static void repeated_elements_are_those_of_their_lanes(void **state) {
  (void)state;
  enum { MOST = 96, PAGE = 4096 };
  rig r;
  char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED && mprotect(pages + PAGE, PAGE, PROT_NONE) == 0);
  FOR_EACH_MACHINE(r) {
    for (int at = 0; at < 150; at++) {
      const int by = 2 + at % 7, n = 5 + at / 7 * 4, steps = 1 + at % 3, m = (n - 1) / by + steps;
      const int whole = r.machine.vector_bytes / 4;
      float *a = (float *)(pages + PAGE) - m, b[3 * MOST] = {0};
      assert_true(n <= MOST);
      fill(a, m);
      const char *text =
          kiln_arena_printf(&r.cx.perm,
                            "kernel k { param f32 a[%d]:(1) param f32 b[%d, %d]:(%d, 1) for o:%d { "
                            "for v:%d vectorized { b[o, v] = a[v/%d + o] + 1f32 } } }",
                            m, steps, n, n, steps, n, by);
      rig_compile(&r, text, true);
      rig_run(&r, (char *[]){(char *)a, (char *)b}, 1);
      for (int i = 0; i < steps * n; i++) assert_true(b[i] == a[i % n / by + i / n] + 1);
      if (n % whole == 0 && whole % by == 0 && by < whole)
        assert_null(strstr(r.assembly.data, "gather"));
    }
  }
  munmap(pages, 2 * PAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(repeated_elements_are_those_of_their_lanes),
      cmocka_unit_test(prefetches_stand_in_vector_loops),
      cmocka_unit_test(a_vector_loop_of_any_extent_is_elementwise),
      cmocka_unit_test(a_copy_turns_a_matrix),
      cmocka_unit_test(a_map_turns_what_it_reads),
      cmocka_unit_test(a_map_turns_rows_that_lie_unevenly),
      cmocka_unit_test(a_turned_copy_onto_itself_keeps_the_order),
      cmocka_unit_test(reductions_meet_in_one_element),
      cmocka_unit_test(a_condition_is_evaluated_once),
      cmocka_unit_test(a_register_tile_stays_in_registers),
      cmocka_unit_test(ragged_register_rows_stay_in_registers),
      cmocka_unit_test(code_for_aarch64_is_generated),
      cmocka_unit_test(halves_round_once),
      cmocka_unit_test(subnormal_halves_are_kept),
      cmocka_unit_test(casts_to_integers_saturate),
      cmocka_unit_test(what_is_rounded_becomes_a_code_and_a_number_again),
      cmocka_unit_test(guarded_loads_touch_nothing),
      cmocka_unit_test(a_parallel_nest_runs_the_part_it_is_given),
      cmocka_unit_test(compiling_in_parallel_is_deterministic),
      cmocka_unit_test(only_short_kernels_in_a_crowd_are_quick),
      cmocka_unit_test(nests_that_are_the_same_code_are_compiled_once),
      cmocka_unit_test(the_host_is_described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
