// Fused tiles: products, maps and reductions of whole rows become one kernel, in any type; the
// cheapest candidates give the reference's results in the simulator.
#include "unit/tile/gpu_candidates.h"

#include "template/form/fused_tile.h"

static const kiln_machine turing = MACHINE("sm_75", 75);

#define PRODUCT(t, m, k, n)                                                                        \
  "p { in " t " A(" #m ", " #k ") in " t " B(" #k ", " #n ") in " t " R(" #m ", " #n               \
  ") in f32 G(" #n ") temp f32 T(" #m ", " #n ") "
#define SUM(m, k, n) "T(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) "
// Y = softmax(A B / 4 + G)
#define SOFTMAX(t, m, k, n)                                                                        \
  PRODUCT(t, m, k, n)                                                                              \
  "out " t " Y(" #m ", " #n ") temp f32 Z(" #m ", " #n ") temp f32 X(" #m ") temp f32 E(" #m       \
  ", " #n ") temp f32 S(" #m                                                                       \
  ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = T(i0, i1) * 0.25f32 + G(i1) X(i0:" #m " | r0:" #n   \
                    ") max=! Z(i0, r0) E(i0:" #m ", i1:" #n ") = exp(Z(i0, i1) - X(i0)) S(i0:" #m  \
                    " | r0:" #n ") +=! E(i0, r0) Y(i0:" #m ", i1:" #n ") = " t                     \
                    "(E(i0, i1) / S(i0)) }"
// Z = A B + R, a |role|, and Y, its rows normalized
#define NORM(t, role, m, k, n)                                                                     \
  PRODUCT(t, m, k, n)                                                                              \
  role " " t " Z(" #m ", " #n ") out " t " Y(" #m ", " #n ") temp f32 S(" #m ") temp f32 D(" #m    \
       ", " #n ") temp f32 V(" #m ") temp f32 F(" #m                                               \
       ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = " t "(T(i0, i1) + f32(R(i0, i1))) S(i0:" #m    \
                         " | r0:" #n ") +=! f32(Z(i0, r0)) D(i0:" #m ", i1:" #n                    \
                         ") = f32(Z(i0, i1)) - S(i0) / " #n "f32 V(i0:" #m " | r0:" #n             \
                         ") +=! D(i0, r0) * D(i0, r0) F(i0:" #m ") = 1f32 / sqrt(V(i0) / " #n      \
                         "f32 + 0.00001f32) Y(i0:" #m ", i1:" #n ") = " t                          \
                         "(D(i0, i1) * F(i0) * G(i1)) }"

static const char *const floats[] = {
    // sums of parts of the columns, as of a group normalization
    "p { in f32 A(40, 24) in f32 B(24, 2, 36) out f32 Y(40, 2, 36) temp f32 T(40, 2, 36) "
    "temp f32 S(40, 2) T(i0:40, i1:2, i2:36 | r0:24) +=! A(i0, r0) * B(r0, i1, i2) "
    "S(i0:40, i1:2 | r0:36) +=! T(i0, i1, r0) * T(i0, i1, r0) "
    "Y(i0:40, i1:2, i2:36) = T(i0, i1, i2) / sqrt(S(i0, i1)) }",
    SOFTMAX("f32", 128, 32, 64),
    SOFTMAX("f32", 77, 20, 50), // nothing is a multiple of anything
    NORM("f32", "temp", 100, 48, 96),
    NORM("f32", "out", 64, 32, 200), // the sums are stored, too
    // a product for each of two heads, the largest of a row and its place among three more maps
    "p { in f32 A(2, 40, 24) in f32 B(2, 24, 36) out f32 Y(2, 40, 36) temp f32 T(2, 40, 36) "
    "temp f32 S(2, 40) temp f32 L(2, 40) temp f32 U(2, 40) "
    "T(i0:2, i1:40, i2:36 | r0:24) +=! A(i0, i1, r0) * B(i0, r0, i2) "
    "S(i0:2, i1:40 | r0:36) +=! T(i0, i1, r0) * T(i0, i1, r0) "
    "L(i0:2, i1:40 | r0:36) min=! T(i0, i1, r0) "
    "U(i0:2, i1:40) = sqrt(S(i0, i1)) + L(i0, i1) "
    "Y(i0:2, i1:40, i2:36) = T(i0, i1, i2) / U(i0, i1) - L(i0, i1) }",
};

// Y = gelu-like(A B) C + G, a product of a product.
#define MLP(t, m, k, h, n)                                                                         \
  "p { in " t " A(" #m ", " #k ") in " t " B(" #k ", " #h ") in " t " C(" #h ", " #n               \
  ") in f32 G(" #n ") out " t " Y(" #m ", " #n ") temp f32 X(" #m ", " #h ") temp " t " H(" #m     \
  ", " #h ") temp f32 T(" #m ", " #n ") X(i0:" #m ", i1:" #h " | r0:" #k                           \
  ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) H(i0:" #m ", i1:" #h ") = " t                             \
  "(max(X(i0, i1), X(i0, i1) * 0.125f32)) T(i0:" #m ", i1:" #n " | r0:" #h                         \
  ") +=! f32(H(i0, r0)) * f32(C(r0, i1)) Y(i0:" #m ", i1:" #n ") = " t "(T(i0, i1) + G(i1)) }"
static const char *const chains[] =
    {
        MLP("f32", 64, 32, 128, 64),
        MLP("f32", 77, 24, 100, 50),
},
                         *const chains_of_halves[] = {MLP("f16", 77, 40, 96, 56)};

// What the template of row-wise epilogues leaves: columns that no tile of it fits, and long rows.
static const char *const halves[] = {
    SOFTMAX("f16", 64, 32, 24),
    SOFTMAX("bf16", 77, 64, 272),
    NORM("f16", "out", 100, 40, 520),
    NORM("f16", "temp", 64, 64, 328),
};

static void threads_compute_rows_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(floats), floats, "distribute", 6);
}

static void chains_of_products_are_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(chains), chains, "distribute", 6);
  check_each(&machine, "fused_tile", KILN_LEN(chains_of_halves), chains_of_halves, "mma.m16n8k16",
             6);
}

static void warps_compute_rows_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(halves), halves, "mma.m16n8k16", 6);
}

// By instructions of half as many terms.
static void older_cards_compute_rows_of_halves(void **state) {
  static const char *const some[] = {SOFTMAX("f16", 64, 32, 24), SOFTMAX("f16", 77, 40, 272)};
  (void)state;
  check_each(&turing, "fused_tile", KILN_LEN(some), some, "mma.m16n8k8", 4);
}

// Y = softmax(Q K^T / 4 + G) V for two heads
#define ATTENTION(m, k, h, n)                                                                      \
  "p { in f32 Q(2, " #m ", " #k ") in f32 K(2, " #h ", " #k ") in f32 V(2, " #h ", " #n            \
  ") in f32 G(" #m ", " #h ") out f32 Y(2, " #m ", " #n ") temp f32 T(2, " #m ", " #h              \
  ") temp f32 Z(2, " #m ", " #h ") temp f32 X(2, " #m ") temp f32 E(2, " #m ", " #h                \
  ") temp f32 S(2, " #m ") temp f32 P(2, " #m ", " #h ") temp f32 U(2, " #m ", " #n                \
  ") T(i0:2, i1:" #m ", i2:" #h " | r0:" #k ") +=! Q(i0, i1, r0) * K(i0, i2, r0) Z(i0:2, i1:" #m   \
  ", i2:" #h ") = T(i0, i1, i2) * 0.25f32 + G(i1, i2) X(i0:2, i1:" #m " | r0:" #h                  \
  ") max=! Z(i0, i1, r0) E(i0:2, i1:" #m ", i2:" #h                                                \
  ") = exp(Z(i0, i1, i2) - X(i0, i1)) S(i0:2, i1:" #m " | r0:" #h                                  \
  ") +=! E(i0, i1, r0) P(i0:2, i1:" #m ", i2:" #h ") = E(i0, i1, i2) / S(i0, i1) U(i0:2, i1:" #m   \
  ", i2:" #n " | r0:" #h ") +=! P(i0, i1, r0) * V(i0, r0, i2) Y(i0:2, i1:" #m ", i2:" #n           \
  ") = U(i0, i1, i2) }"

static void attention_of_floats_is_one_kernel(void **state) {
  static const char *const some[] = {ATTENTION(64, 16, 64, 32), ATTENTION(77, 20, 50, 24)};
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(some), some, "distribute", 4);
}

// Y = D F G B, a product of normalized rows.
#define PROLOGUE(t, m, k, n)                                                                       \
  "p { in " t " A(" #m ", " #k ") in " t " B(" #k ", " #n ") in f32 G(" #k ") out " t " Y(" #m     \
  ", " #n ") temp f32 S(" #m ") temp f32 D(" #m ", " #k ") temp f32 V(" #m ") temp f32 F(" #m      \
  ") temp " t " N(" #m ", " #k ") temp f32 T(" #m ", " #n ") S(i0:" #m " | r0:" #k                 \
  ") +=! f32(A(i0, r0)) D(i0:" #m ", i1:" #k ") = f32(A(i0, i1)) - S(i0) / " #k "f32 V(i0:" #m     \
  " | r0:" #k ") +=! D(i0, r0) * D(i0, r0) F(i0:" #m ") = 1f32 / sqrt(V(i0) / " #k                 \
  "f32 + 0.00001f32) N(i0:" #m ", i1:" #k ") = " t "(D(i0, i1) * F(i0) * G(i1)) T(i0:" #m          \
  ", i1:" #n " | r0:" #k ") +=! f32(N(i0, r0)) * f32(B(r0, i1)) Y(i0:" #m ", i1:" #n ") = " t      \
  "(T(i0, i1)) }"

static void products_of_normalized_rows_are_one_kernel(void **state) {
  static const char *const floats_of_rows[] = {PROLOGUE("f32", 64, 32, 64),
                                               PROLOGUE("f32", 77, 50, 40)},
                           *const halves_of_rows[] = {PROLOGUE("f16", 64, 576, 24)};
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(floats_of_rows), floats_of_rows, "distribute", 4);
  check_each(&machine, "fused_tile", KILN_LEN(halves_of_rows), halves_of_rows, "mma.m16n8k16", 4);
}

static void rows_of_bytes_are_one_kernel(void **state) {
  static const char *const bytes[] = {
      "p { in i8 A(77, 64) in i8 B(64, 40) out f32 Y(77, 40) temp i32 T(77, 40) temp f32 Z(77, 40) "
      "temp f32 X(77) temp f32 S(77) "
      "T(i0:77, i1:40 | r0:64) +=! i32(A(i0, r0)) * i32(B(r0, i1)) "
      "Z(i0:77, i1:40) = f32(T(i0, i1)) * 0.0001f32 X(i0:77 | r0:40) max=! Z(i0, r0) "
      "S(i0:77 | r0:40) +=! exp(Z(i0, r0) - X(i0)) "
      "Y(i0:77, i1:40) = exp(Z(i0, i1) - X(i0)) / S(i0) }"};
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(bytes), bytes, "mma.m16n8k32.s8", 4);
}

static void tiles_compile(void **state) {
  (void)state;
  check_compiles(&machine, "fused_tile", floats[0], "distribute", "__shared__");
  check_compiles(&machine, "fused_tile", halves[1], "mma.m16n8k16", "mma.sync");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_compute_rows_in_one_kernel),
      cmocka_unit_test(chains_of_products_are_one_kernel),
      cmocka_unit_test(warps_compute_rows_in_one_kernel),
      cmocka_unit_test(older_cards_compute_rows_of_halves),
      cmocka_unit_test(attention_of_floats_is_one_kernel),
      cmocka_unit_test(products_of_normalized_rows_are_one_kernel),
      cmocka_unit_test(rows_of_bytes_are_one_kernel),
      cmocka_unit_test(tiles_compile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
