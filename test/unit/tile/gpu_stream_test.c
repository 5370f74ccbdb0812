// Attention on tensor cores: every candidate computes, in the simulator, what the reference computes, in one kernel.
#include "unit/tile/launches.h"

#include "target/gpu/gpu.h"

static const kiln_device device = {
    .name = "test",
    .n_units = 4,
    .n_levels = 4,
    .levels = {{"memory", INT64_MAX, 1, 32, 100, 1000, 100, 1000, 500, 4, false},
               {"L2", 1 << 22, 0.5, 32, 100, 4000, 100, 4000, 200, 4, false},
               {"shared", 160 << 10, 1, 4, 400, 1600, 400, 1600, 30, 1, true},
               {"registers", 256 << 10, 1, 4, 4000, 16000, 4000, 16000, 0, 1, true}},
    .unit_flops_ns = {400, 4000, 0},
    .all_flops_ns = {1600, 0, 0},
    .launch_ns = 2000};
#define MACHINE(name, version)                                                                     \
  {                                                                                                \
    .kind = KILN_MACHINE_CUDA,                                                                     \
    .gpu = {.arch = name,                                                                          \
            .capability = version,                                                                 \
            .warp = 32,                                                                            \
            .max_threads = 1024,                                                                   \
            .shared_bytes = 160 << 10,                                                             \
            .registers = 65536,                                                                    \
            .max_resident = 2048},                                                                 \
    .vector_bytes = 16, .n_vector_regs = 255, .n_cores = 4, .device = &device                      \
  }
static const kiln_machine machine = MACHINE("sm_80", 80), hopper = MACHINE("sm_90a", 90);

// H heads of M rows and N keys, depth R, D values, in halves as a model that was converted; Z being |map|.
#define ATTENTION(half, h, m, n, r, d, map)                                                        \
  ATTENTION_OF("f32(Q(i0, i1, r0))", half, h, m, n, r, d, map)
#define ATTENTION_OF(query, half, h, m, n, r, d, map)                                              \
  "p { in " half " Q(" #h ", " #m ", " #r ") in " half " K(" #h ", " #n ", " #r ") in " half       \
  " V(" #h ", " #n ", " #d ") in " half " B(" #n ") in f32 G(" #m ", " #n ") out " half " Y(" #m   \
  ", " #h ", " #d ") temp f32 X(" #h ", " #m ", " #n ") temp " half " Z(" #h ", " #m ", " #n       \
  ") temp f32 M(" #h ", " #m ") temp " half " E(" #h ", " #m ", " #n ") temp f32 S(" #h ", " #m    \
  ") temp " half " P(" #h ", " #m ", " #n ") temp f32 O(" #h ", " #m ", " #d ") "                  \
  "X(i0:" #h ", i1:" #m ", i2:" #n " | r0:" #r ") +=! " query " * f32(K(i0, i2, r0)) "             \
  "Z(i0:" #h ", i1:" #m ", i2:" #n ") = " half "(" map ") "                                        \
  "M(i0:" #h ", i1:" #m " | r0:" #n ") max=! f32(Z(i0, i1, r0)) "                                  \
  "E(i0:" #h ", i1:" #m ", i2:" #n ") = " half "(exp(f32(Z(i0, i1, i2)) - M(i0, i1))) "            \
  "S(i0:" #h ", i1:" #m " | r0:" #n ") +=! f32(E(i0, i1, r0)) "                                    \
  "P(i0:" #h ", i1:" #m ", i2:" #n ") = " half "(f32(E(i0, i1, i2)) * (1f32 / S(i0, i1))) "        \
  "O(i0:" #h ", i1:" #m ", i2:" #d " | r0:" #n ") +=! f32(P(i0, i1, r0)) * f32(V(i0, r0, i2)) "    \
  "Y(i0:" #m ", i1:" #h ", i2:" #d ") = " half "(O(i1, i0, i2)) }"

// Six windows, of two images, seen as images and windows where each window's own mask is added.
#define WINDOWS                                                                                    \
  "p { in f16 Q(6, 20, 16) in f16 K(6, 20, 16) in f16 V(6, 20, 16) in f16 B(20, 20) "              \
  "in f16 W(3, 20, 20) out f16 Y(20, 6, 16) temp f32 X(6, 20, 20) temp f16 Z(2, 3, 20, 20) "       \
  "temp f32 M(6, 20) temp f16 E(6, 20, 20) temp f32 S(6, 20) temp f16 P(6, 20, 20) "               \
  "temp f32 O(6, 20, 16) "                                                                         \
  "X(i0:6, i1:20, i2:20 | r0:16) +=! f32(Q(i0, i1, r0)) * f32(K(i0, i2, r0)) "                     \
  "Z(i0:2, i1:3, i2:20, i3:20) = f16(f32(f16(f32(f16(X(i0 * 3 + i1, i2, i3))) * 0.25f32 "          \
  "+ f32(B(i2, i3)))) + f32(W(i1, i2, i3))) "                                                      \
  "M(i0:6, i1:20 | r0:20) max=! f32(Z(i0 / 3, i0 % 3, i1, r0)) "                                   \
  "E(i0:6, i1:20, i2:20) = f16(exp(f32(Z(i0 / 3, i0 % 3, i1, i2)) - M(i0, i1))) "                  \
  "S(i0:6, i1:20 | r0:20) +=! f32(E(i0, i1, r0)) "                                                 \
  "P(i0:6, i1:20, i2:20) = f16(f32(E(i0, i1, i2)) * (1f32 / S(i0, i1))) "                          \
  "O(i0:6, i1:20, i2:16 | r0:20) +=! f32(P(i0, i1, r0)) * f32(V(i0, r0, i2)) "                     \
  "Y(i0:20, i1:6, i2:16) = f16(O(i1, i0, i2)) }"

static const char *const attentions[] = {
    WINDOWS,
    ATTENTION("f16", 2, 64, 64, 32, 32, "f32(f16(X(i0, i1, i2))) * 0.25f32"),
    // several chunks, the first of which is masked
    ATTENTION("f16", 1, 64, 128, 16, 16, "i2 < 70 ? -inff32 : X(i0, i1, i2) * 0.25f32"),
    // neither rows nor keys nor depth are whole tiles; a mask by key and one by row and key
    ATTENTION("f16", 2, 49, 49, 24, 32, "X(i0, i1, i2) * 0.25f32 + f32(B(i2))"),
    ATTENTION("f16", 1, 37, 100, 16, 16, "X(i0, i1, i2) * 0.25f32 + G(i1, i2)"),
    // neither are values
    ATTENTION("f16", 1, 32, 32, 36, 36, "X(i0, i1, i2) * 0.25f32"),
    // queries that are scaled before
    ATTENTION_OF("f32(f16(f32(Q(i0, i1, r0)) * 0.3f32))", "f16", 1, 32, 32, 16, 16,
                 "X(i0, i1, i2) + f32(B(i2))"),
    ATTENTION("bf16", 1, 32, 64, 16, 32, "X(i0, i1, i2) * 0.25f32"),
};

// What warp groups compute: chunks that come in boxes, or go through the threads as they are padded, or are the only one;
// heads that lie side by side in one tensor; a causal mask in halves.
static const char *const of_groups[] = {
    ATTENTION("f16", 1, 128, 192, 64, 64, "i2 > i1 ? -30000f16 : f16(X(i0, i1, i2) * 0.125f32)"),
    ATTENTION("bf16", 1, 60, 100, 64, 64, "X(i0, i1, i2) * 0.125f32 + f32(B(i2))"),
    ATTENTION("f16", 1, 64, 64, 64, 128, "X(i0, i1, i2) * 0.0625f32 + G(i1, i2)"),
    "p { in f16 A(64, 3, 2, 64) out f16 Y(64, 2, 64) temp f32 X(2, 64, 64) "
    "temp f32 M(2, 64) temp f16 E(2, 64, 64) temp f32 S(2, 64) "
    "temp f16 P(2, 64, 64) temp f32 O(2, 64, 64) "
    "X(i1:2, i2:64, i3:64 | r0:64) +=! f32(A(i2, 0, i1, r0)) * f32(A(i3, 1, i1, r0)) "
    "M(i1:2, i2:64 | r0:64) max=! X(i1, i2, r0) "
    "E(i1:2, i2:64, i3:64) = f16(exp(X(i1, i2, i3) - M(i1, i2))) "
    "S(i1:2, i2:64 | r0:64) +=! f32(E(i1, i2, r0)) "
    "P(i1:2, i2:64, i3:64) = f16(f32(E(i1, i2, i3)) * (1f32 / S(i1, i2))) "
    "O(i1:2, i2:64, i3:64 | r0:64) +=! f32(P(i1, i2, r0)) * f32(A(r0, 2, i1, i3)) "
    "Y(i1:64, i2:2, i3:64) = f16(O(i2, i1, i3)) }",
};

static void compare_halves(test_kernel *k, const kiln_tensor *t, const void *got,
                           const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    error += (w - g) * (w - g);
    norm += w * w;
  }
  const double most = t->dtype == KILN_F16 ? 2e-3 : 1.6e-2;
  if (!(sqrt(error) <= most * sqrt(norm)))
    fail_msg("relative error must be %g at most, got %g in %s", most, sqrt(error / norm), text);
}

// Opens |k| over |text| and gives its one kernel, with as many candidates lowered.
static kiln_kernel *lowered(test_kernel *k, const kiln_machine *m, const char *text, int n_lowered,
                            kiln_kernels *out) {
  const kiln_tile_options options = {.n_threads = 1, .n_lowered = n_lowered};
  kernel_open(k, text, 7);
  if (kiln_tile_program(&k->cx, k->prog, m, &options, out) != KILN_OK)
    fail_msg("%s: %s", text, kernel_message(k));
  if (out->launches.n != 1) fail_msg("must take 1 kernel, got %d: %s", out->launches.n, text);
  return out->kernels.data[0];
}

// Runs all candidates of the family for |text| whose code has |form|; how many there are.
static int check_all(const kiln_machine *m, const char *text, const char *form) {
  test_kernel k;
  kiln_kernels kernels;
  kiln_kernel *kernel = lowered(&k, m, text, 30, &kernels);
  int n = 0;
  for (int i = 0; i < kernel->candidates.n; i++) {
    const kiln_tile_candidate *c = &kernel->candidates.data[i];
    if (strcmp(c->family->name, "stream") != 0) continue;
    if (c->refused) fail_msg("%s: %s", text, c->refused);
    if (!strstr(c->script, form)) continue;
    kernel->loops = c->loops;
    check_launches(&k, &kernels, compare_halves, text);
    n++;
  }
  kernel_close(&k);
  return n;
}

static void every_shape_computes_attention_in_one_kernel(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(attentions); row++)
    assert_true(check_all(&machine, attentions[row], "mma.m16n8k16") > 0);
}

static void warp_groups_compute_attention(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(of_groups); row++)
    if (check_all(&hopper, of_groups[row], "wgmma") == 0)
      fail_msg("must be computed by warp groups: %s", of_groups[row]);
}

// What a kernel holds in memory does not grow with the number of keys: there is no workspace.
static void nothing_but_the_result_is_stored(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(attentions); row++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_kernel *kernel = lowered(&k, &machine, attentions[row], 1, &kernels);
    for (int i = 0; i < kernel->loops->buffers.n; i++)
      assert_int_not_equal(kernel->loops->buffers.data[i]->scope, KILN_SCOPE_WORKSPACE);
    kernel_close(&k);
  }
}

// Compiles what is proposed for |text|, as far as its script has |form|; one's code must have |code|.
static void check_compiles(const kiln_machine *m, const char *text, const char *form,
                           const char *code) {
  enum { MOST = 3 };
  bool has_code = false;
  test_kernel k;
  kiln_kernels kernels;
  kiln_gpu_launch *launches;
  const char *sources[MOST], *names[MOST] = {"k", "k", "k"};
  kiln_object objects[MOST];
  int n = 0, n_nests = 0;
  const kiln_kernel *kernel = lowered(&k, m, text, 30, &kernels);
  for (int i = 0; i < kernel->candidates.n && n < MOST; i++) {
    kiln_text source;
    const kiln_tile_candidate *c = &kernel->candidates.data[i];
    if (strcmp(c->family->name, "stream") != 0 || !strstr(c->script, form)) continue;
    kiln_text_init(&source, &k.cx.perm);
    if (kiln_gpu_emit(&k.cx, m, c->loops, "k", &source, &n_nests, &launches) != KILN_OK)
      fail_msg("%s", kernel_message(&k));
    assert_int_equal(n_nests, 1);
    has_code |= strstr(source.data, code) != NULL;
    sources[n++] = source.data;
  }
  if (!has_code) fail_msg("must have %s in the code of %s", code, text);
  const kiln_status s = kiln_cuda_compile(&k.cx, m, n, sources, names, 2, objects);
  if (s != KILN_OK && s != KILN_DEVICE_ERROR) fail_msg("%s", kernel_message(&k));
  for (int i = 0; i < n && s == KILN_OK; i++) kiln_object_deinit(&objects[i]);
  kernel_close(&k);
}

static void attention_compiles(void **state) {
  enum { ROW = 3 };
  (void)state;
  check_compiles(&machine, attentions[ROW], "mma.m16n8k16", "kiln_mma_f16(");
  // several groups pass the barrier of a chunk; the heads of one tensor are columns of its boxes
  check_compiles(&hopper, of_groups[0], "wgmma", "  kiln_boxes_pass((uint64_t *)(kiln_shared");
  check_compiles(&hopper, of_groups[3], "wgmma", "&kiln_map_0, block_m_f * 64 + 128, 0, ");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_shape_computes_attention_in_one_kernel),
                                     cmocka_unit_test(warp_groups_compute_attention),
                                     cmocka_unit_test(nothing_but_the_result_is_stored),
                                     cmocka_unit_test(attention_compiles)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
