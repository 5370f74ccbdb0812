// Attention on tensor cores: every candidate is one kernel, and gives the reference's results in
// the simulator.
#include "unit/tile/gpu_candidates.h"

// H heads of M rows and N keys, depth R, D values, in halves as in a converted model; |map| is Z.
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

// One query of eight heads, four of which share keys and values.
#define DECODING_OF(half, n)                                                                       \
  "p { in " half " Q(3, 8, 1, 16) in " half " K(3, 2, " #n ", 16) in " half " V(3, 2, " #n         \
  ", 32) in " half " "                                                                             \
  "B(3, " #n ") out " half " Y(3, 1, 8, 32) temp f32 X(3, 8, 1, " #n ") temp " half " Z(3, 8, 1, " \
  "" #n ") temp f32 M(3, 8, 1) temp " half " E(3, 8, 1, " #n ") temp f32 S(3, 8, 1) temp " half    \
  " "                                                                                              \
  "P(3, 8, 1, " #n ") temp f32 O(3, 8, 1, 32) X(i0:3, i1:8, i2:1, i3:" #n " | "                    \
  "r0:16) +=! f32(Q(i0, i1, 0, r0)) * f32(K(i0, i1 / 4, i3, r0)) Z(i0:3, "                         \
  "i1:8, i2:1, i3:" #n ") = " half "(X(i0, i1, 0, i3) * 0.25f32 + f32(B(i0, i3))) "                \
  "M(i0:3, i1:8, i2:1 | r0:" #n ") max=! f32(Z(i0, i1, 0, r0)) E(i0:3, i1:8, "                     \
  "i2:1, i3:" #n ") = " half "(exp(f32(Z(i0, i1, 0, i3)) - M(i0, i1, 0))) S(i0:3, "                \
  "i1:8, i2:1 | r0:" #n ") +=! f32(E(i0, i1, 0, r0)) P(i0:3, i1:8, i2:1, i3:" #n ") "              \
  "= " half "(f32(E(i0, i1, 0, i3)) * (1f32 / S(i0, i1, 0))) O(i0:3, i1:8, i2:1, "                 \
  "i3:32 | r0:" #n ") +=! f32(P(i0, i1, 0, r0)) * f32(V(i0, i1 / 4, r0, i3)) "                     \
  "Y(i0:3, i1:1, i2:8, i3:32) = " half "(O(i0, i2, 0, i3)) }"
#define DECODING DECODING_OF("f16", 100)

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
    // chunks are left out behind a causal mask, of rows and keys that are no whole tiles, in front
    // of a window, and behind one of finite numbers, in the exponents
    ATTENTION("f16", 2, 96, 96, 16, 16, "i2 <= i1 ? X(i0, i1, i2) * 0.25f32 : -inff32"),
    ATTENTION("f16", 1, 70, 90, 16, 16,
              "X(i0, i1, i2) * 0.25f32 + (i2 <= i1 + 20 ? 0f32 : -inff32)"),
    ATTENTION("f16", 1, 128, 128, 16, 16,
              "i2 <= i1 && i2 >= i1 - 20 ? X(i0, i1, i2) * 0.25f32 : -inff32"),
    ATTENTION("bf16", 1, 64, 64, 16, 16, "i2 <= i1 ? X(i0, i1, i2) * 0.25f32 : -3e+38f32"),
    // few queries, with masks by key and by both
    ATTENTION("f16", 2, 3, 80, 16, 32, "X(i0, i1, i2) * 0.25f32 + f32(B(i2))"),
    ATTENTION("f16", 2, 5, 48, 16, 16, "X(i0, i1, i2) * 0.25f32 + G(i1, i2)"),
    DECODING,
};

// On warp groups: chunks copied by TMA, or through registers as they are padded, or a single chunk;
// heads that are contiguous in one tensor; a causal mask in halves.
static const char *const of_groups[] = {
    ATTENTION("f16", 1, 128, 192, 64, 64, "i2 > i1 ? -30000f16 : f16(X(i0, i1, i2) * 0.125f32)"),
    ATTENTION("f16", 1, 128, 192, 64, 64, "i2 <= i1 ? X(i0, i1, i2) * 0.125f32 : -inff32"),
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

// Keys are split between blocks; all of a split's are masked.
static const char *const splits[] = {DECODING_OF("f16", 700), DECODING_OF("bf16", 1024)};

static void splits_of_keys_are_put_together(void **state) {
  (void)state;
  check_each(&machine, "flash_attention", KILN_LEN(splits), splits, "nanmax", 30);
}

static void every_shape_computes_attention_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "flash_attention", KILN_LEN(attentions), attentions, "mma.m16n8k16", 30);
}

static void warp_groups_compute_attention(void **state) {
  (void)state;
  check_each(&hopper, "flash_attention", KILN_LEN(of_groups), of_groups, "wgmma", 30);
}

// A kernel's memory does not grow with the number of keys: it has no workspace.
static void nothing_but_the_result_is_stored(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(attentions); row++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_kernel *kernel = lowered(&k, &machine, attentions[row], 1, false, &kernels);
    for (int i = 0; i < kernel->loops->buffers.n; i++)
      assert_int_not_equal(kernel->loops->buffers.data[i]->scope, KILN_SCOPE_WORKSPACE);
    kernel_close(&k);
  }
}

static void loops_end_where_masks_do(void **state) {
  enum { CAUSAL = 8, N_MASKED = 4 };
  (void)state;
  for (int row = CAUSAL; row < CAUSAL + N_MASKED; row++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_kernel *kernel = lowered(&k, &machine, attentions[row], 1, false, &kernels);
    if (!strstr(kernel->script, "\nskip "))
      fail_msg("row %d: must skip, got %s", row, kernel->script);
    kernel_close(&k);
  }
}

static void attention_compiles(void **state) {
  enum { ROW = 3 };
  (void)state;
  check_compiles(&machine, "flash_attention", attentions[ROW], "mma.m16n8k16", "kiln_mma_f16(");
  // several groups arrive at the empty barrier of a chunk; the heads of one tensor are columns of
  // its tiles
  check_compiles(&hopper, "flash_attention", of_groups[0], "wgmma", "  kiln_mbarrier_arrive(");
  check_compiles(&hopper, "flash_attention", of_groups[4], "wgmma",
                 "&kiln_map_0, block_m_f * 64 + 128, 0, ");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_shape_computes_attention_in_one_kernel),
                                     cmocka_unit_test(warp_groups_compute_attention),
                                     cmocka_unit_test(splits_of_keys_are_put_together),
                                     cmocka_unit_test(nothing_but_the_result_is_stored),
                                     cmocka_unit_test(loops_end_where_masks_do),
                                     cmocka_unit_test(attention_compiles)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
