// Programs through the whole rule-based scheduler, for several machines and thread counts: the
// launches' results in the simulator equal the reference interpreter's, and groups are as expected.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"

#include "tile/query.h"

static const kiln_machine machines[] = {
    {.target = &kiln_target_cpu,
     .vector_bytes = 64,
     .n_vector_regs = 32,
     .l1_bytes = 48 << 10,
     .l2_bytes = 1 << 20,
     .n_cores = 2},
    {.target = &kiln_target_cpu,
     .vector_bytes = 32,
     .n_vector_regs = 16,
     .l1_bytes = 32 << 10,
     .l2_bytes = 2048,
     .n_cores = 2},
    {.target = &kiln_target_cpu,
     .vector_bytes = 16,
     .n_vector_regs = 32,
     .l1_bytes = 32 << 10,
     .l2_bytes = 1 << 18,
     .n_cores = 2},
};

// Schedules |text| and checks it; gives the number of launches and of kernels.
static void check(const char *text, const kiln_machine *machine, int n_threads, int *out_launches,
                  int *out_kernels) {
  test_kernel k;
  kiln_kernels kernels;
  kiln_tile_options options = {.search.n_threads = n_threads};
  kernel_open(&k, text, 7);
  const kiln_status st = kiln_pipeline_tile(&k.cx, k.prog, machine, &options, NULL, &kernels);
  if (st != KILN_OK) fail_msg("%s: %s", text, kernel_message(&k));
  check_launches(&k, &kernels, compare_elements, text);
  *out_launches = kernels.launches.n;
  *out_kernels = kernels.kernels.n;
  kernel_close(&k);
}

static const struct {
  const char *text;
  int launches, kernels;
} cases[] = {
    // a product with bias and activation is one kernel
    {"p { in f32 A(17, 20) const f32 B(20, 40) = ... const f32 D(40) = ... temp f32 C(17, 40) temp "
     "f32 E(17, 40) "
     "out f32 Y(17, 40) C(i0:17, i1:40 | r0:20) +=! A(i0, r0) * B(r0, i1) E(i0:17, i1:40) = C(i0, "
     "i1) + D(i1) "
     "Y(i0:17, i1:40) = max(E(i0, i1), 0f32) }",
     1, 1},
    // one row times a matrix; a matrix times a column
    {"p { in f32 A(1, 33) const f32 B(33, 70) = ... out f32 Y(1, 70) Y(i0:1, i1:70 | r0:33) +=! "
     "A(i0, r0) * B(r0, i1) }",
     1, 1},
    {"p { in f32 A(30, 33) const f32 B(33, 1) = ... out f32 Y(30, 1) Y(i0:30, i1:1 | r0:33) +=! "
     "A(i0, r0) * B(r0, i1) }",
     1, 1},
    // products of activations, the second one transposed; equal layers share a kernel
    {"p { in f32 Q(3, 10, 8) in f32 K(3, 12, 8) temp f32 S(3, 10, 12) out f32 Y(3, 10, 12) "
     "S(i0:3, i1:10, i2:12 | r0:8) +=! Q(i0, i1, r0) * K(i0, i2, r0) Y(i0:3, i1:10, i2:12) = S(i0, "
     "i1, i2) * 0.5f32 }",
     1, 1},
    {"p { in f32 X(6, 16) const f32 V(16, 16) = ... const f32 W(16, 16) = ... temp f32 T(6, 16) "
     "out f32 Y(6, 16) "
     "T(i0:6, i1:16 | r0:16) +=! X(i0, r0) * V(r0, i1) Y(i0:6, i1:16 | r0:16) +=! T(i0, r0) * "
     "W(r0, i1) }",
     2, 1},
    // a padded convolution, its epilogue and a pool: pad, convolution, pool
    {"p { in f32 X(1, 3, 9, 9) const f32 W(20, 3, 3, 3) = ... const f32 D(20) = ... temp f32 P(1, "
     "3, 11, 11) "
     "temp f32 C(1, 20, 9, 9) temp f32 E(1, 20, 9, 9) temp f32 R(1, 20, 9, 9) out f32 Y(1, 20, 4, "
     "4) "
     "P(i0:1, i1:3, i2:11, i3:11) = i2 >= 1 && i2 < 10 && i3 >= 1 && i3 < 10 ? X(i0, i1, i2 - 1, "
     "i3 - 1) : 0f32 "
     "C(i0:1, i1:20, i2:9, i3:9 | r0:3, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) "
     "E(i0:1, i1:20, i2:9, i3:9) = C(i0, i1, i2, i3) + D(i1) R(i0:1, i1:20, i2:9, i3:9) = "
     "max(E(i0, i1, i2, i3), 0f32) "
     "Y(i0:1, i1:20, i2:4, i3:4 | r0:2, r1:2) max=! R(i0, i1, i2 * 2 + r0, i3 * 2 + r1) }",
     3, 3},
    // a pointwise convolution over several images and few output channels, stored channels first
    {"p { in f32 X(2, 18, 5, 7) const f32 W(3, 18, 1, 1) = ... out f32 Y(2, 3, 5, 7) "
     "Y(i0:2, i1:3, i2:5, i3:7 | r0:18, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     1, 1},
    // depthwise, then pointwise
    {"p { in f32 X(1, 40, 10, 10) const f32 V(40, 1, 3, 3) = ... const f32 W(24, 40, 1, 1) = ... "
     "temp f32 T(1, 40, 8, 8) "
     "out f32 Y(1, 24, 8, 8) T(i0:1, i1:40, i2:8, i3:8 | r0:3, r1:3) +=! X(i0, i1, i2 + r0, i3 + "
     "r1) * V(i1, 0, r0, r1) "
     "Y(i0:1, i1:24, i2:8, i3:8 | r0:40, r1:1, r2:1) +=! T(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     2, 2},
    // softmax over rows of 21 and of 100
    {"p { in f32 X(9, 21) temp f32 M(9) temp f32 E(9, 21) temp f32 S(9) out f32 Y(9, 21) M(i0:9 | "
     "r0:21) max=! X(i0, r0) "
     "E(i0:9, i1:21) = exp(X(i0, i1) - M(i0)) S(i0:9 | r0:21) +=! E(i0, r0) Y(i0:9, i1:21) = E(i0, "
     "i1) / S(i0) }",
     1, 1},
    {"p { in f32 X(16, 100) temp f32 M(16) temp f32 E(16, 100) temp f32 S(16) out f32 Y(16, 100) "
     "M(i0:16 | r0:100) max=! X(i0, r0) E(i0:16, i1:100) = exp(X(i0, i1) - M(i0)) S(i0:16 | "
     "r0:100) +=! E(i0, r0) "
     "Y(i0:16, i1:100) = E(i0, i1) / S(i0) }",
     1, 1},
    // the mean of each channel, channels stored last
    {"p { in f32 X(1, 8, 6, 6) const f32 W(48, 8, 1, 1) = ... temp f32 C(1, 48, 6, 6) temp f32 "
     "S(1, 48) out f32 Y(1, 48) "
     "C(i0:1, i1:48, i2:6, i3:6 | r0:8, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) "
     "S(i0:1, i1:48 | r0:6, r1:6) +=! C(i0, i1, r0, r1) Y(i0:1, i1:48) = S(i0, i1) / 36f32 }",
     2, 2},
    // layout statements are inlined: a reshape and a transpose before a product, a reshape after it
    {"p { in f32 X(4, 6, 5) const f32 W(5, 36) = ... temp f32 R(24, 5) temp f32 C(24, 36) temp f32 "
     "D(24, 36) out f32 Y(4, 6, 2, 18) "
     "R(i0:24, i1:5) = X(i0 / 6, i0 % 6, i1) C(i0:24, i1:36 | r0:5) +=! R(i0, r0) * W(r0, i1) "
     "D(i0:24, i1:36) = C(i0, i1) + 1f32 Y(i0:4, i1:6, i2:2, i3:18) = D(i0 * 6 + i1, i2 * 18 + i3) "
     "}",
     1, 1},
    // elementwise chains, broadcasts, integers, gathers
    {"p { in f32 X(50, 70) in f32 B(70) temp f32 T(50, 70) temp f32 U(50, 70) out f32 Y(50, 70) "
     "T(i0:50, i1:70) = X(i0, i1) * B(i1) U(i0:50, i1:70) = exp(T(i0, i1)) Y(i0:50, i1:70) = U(i0, "
     "i1) + X(i0, i1) }",
     1, 1},
    {"p { in i64 I(12) const f32 T(3, 20) = ... out f32 Y(12, 20) Y(i0:12, i1:20) = T(I(i0), i1) }",
     1, 1},
    {"p { in f32 X(5, 4) in i64 I(2) in f32 U(2, 4) out f32 Y(5, 4) Y(i0:2, i1:4) at (I(i0), i1) = "
     "U(i0, i1) init (X(o0, o1)) }",
     1, 1},
    // a concatenation of convolutions, padded for the next one: written in place, with a frame of 4
    // sides
    {"p { in f32 X(1, 6, 7, 7) const f32 U(20, 6, 1, 1) = ... const f32 V(12, 6, 1, 1) = ... const "
     "f32 W(8, 32, 3, 3) = ... "
     "temp f32 A(1, 20, 7, 7) temp f32 B(1, 12, 7, 7) temp f32 C(1, 32, 7, 7) temp f32 P(1, 32, 9, "
     "9) out f32 Y(1, 8, 7, 7) "
     "A(i0:1, i1:20, i2:7, i3:7 | r0:6, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * U(i1, r0, "
     "r1, r2) "
     "B(i0:1, i1:12, i2:7, i3:7 | r0:6, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * V(i1, r0, "
     "r1, r2) "
     "C(i0:1, i1:32, i2:7, i3:7) = i1 < 20 ? A(i0, i1, i2, i3) : B(i0, i1 - 20, i2, i3) "
     "P(i0:1, i1:32, i2:9, i3:9) = i2 >= 1 && i2 < 8 && i3 >= 1 && i3 < 8 ? C(i0, i1, i2 - 1, i3 - "
     "1) : 0f32 "
     "Y(i0:1, i1:8, i2:7, i3:7 | r0:32, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     7, 5},
    // a scalar, and nothing but copies
    {"p { in f32 X(40) out f32 Y() Y( | r0:40) +=! X(r0) }", 1, 1},
    {"p { in f32 X(40, 30) out f32 Y(30, 40) Y(i0:30, i1:40) = X(i1, i0) }", 1, 1},
};

static void launches_compute_what_the_program_says(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++)
    for (size_t m = 0; m < KILN_LEN(machines); m++)
      for (int threads = 1; threads <= 2; threads++) {
        int launches, kernels;
        check(cases[row].text, &machines[m], threads, &launches, &kernels);
        if (launches != cases[row].launches || kernels != cases[row].kernels)
          fail_msg("row %zu must be %d launches of %d kernels, got %d of %d", row,
                   cases[row].launches, cases[row].kernels, launches, kernels);
      }
}

// Loads through boundary maps, and the line of the first machine's scripts that separates the
// interior.
static const struct {
  const char *text;
  int launches;
  const char *line; // NULL: none
} interiors[] = {
    // repeated edges of a sum over 3 x 5
    {"p { in f32 X(80, 200) temp f32 P(82, 204) temp f32 Y(80, 200) out f32 Z(80, 200) "
     "P(i0:82, i1:204) = X(min(max(i0 - 1, 0), 79), min(max(i1 - 2, 0), 199)) "
     "Y(i0:80, i1:200 | r0:3, r1:5) +=! P(i0 + r0, i1 + r1) "
     "Z(i0:80, i1:200) = Y(i0, i1) / 15f32 }",
     1, "specialize y.i1.o y.i0.o >= 1 && y.i0.o < 9 && y.i1.o >= 1 && y.i1.o < 6\n"},
    // zeros around, in a map
    {"p { in f32 X(300) out f32 Y(300) Y(i0:300) = (i0 >= 1 ? X(i0 - 1) : 0f32) + (i0 < 299 ? "
     "X(i0 + 1) : 0f32) }",
     1, "specialize y.i0.o y.i0.o >= 1 && y.i0.o < 4\n"},
    // a torus; a reflection; a border that is seen by all tiles
    {"p { in f32 X(10, 500) out f32 Y(10, 500) Y(i0:10, i1:500) = X(i0, (i1 + 499) % 500) + "
     "X(i0, (i1 + 1) % 500) }",
     1, "specialize y.i1.o y.i1.o >= 1 && y.i1.o < 7\n"},
    {"p { in f32 X(10, 500) out f32 Y(10, 500) Y(i0:10, i1:500) = X(i0, i1 < 3 ? 3 - i1 : i1 - 3) "
     "}",
     1, "specialize y.i1.o y.i1.o >= 1\n"},
    {"p { in f32 X(10, 80) out f32 Y(10, 80) Y(i0:10, i1:80) = X(i0, max(i1 - 20, 0)) }", 1, NULL},
    // nothing that a tile loop decides: every second element
    {"p { in f32 X(10, 250) out f32 Y(10, 500) Y(i0:10, i1:500) = X(i0, i1 / 2) }", 1, NULL},
    // a reflection before a convolution with few output channels is a map of its own, along rows
    {"p { in f32 X(1, 8, 12, 40) const f32 V(16, 8, 1, 1) = ... const f32 W(3, 16, 3, 3) = ... "
     "temp f32 C(1, 16, 12, 40) temp f32 P(1, 16, 14, 42) out f32 Y(1, 3, 12, 40) "
     "C(i0:1, i1:16, i2:12, i3:40 | r0:8, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * V(i1, r0, "
     "r1, r2) "
     "P(i0:1, i1:16, i2:14, i3:42) = C(i0, i1, i2 < 1 ? 1 : i2 >= 13 ? 10 : i2 - 1, i3 < 1 ? 1 : "
     "i3 >= 41 ? 38 : i3 - 1) "
     "Y(i0:1, i1:3, i2:12, i3:40 | r0:16, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     3, NULL},
    // what one sum along rows makes for the next is made in the padding; then the frame's sides
    {"p { in f32 X(24, 210) in f32 K(3, 3) temp f32 C(22, 208) temp f32 P(24, 210) out f32 Y(22, "
     "208) "
     "C(i0:22, i1:208 | r0:3, r1:3) +=! X(i0 + r0, i1 + r1) * K(r0, r1) "
     "P(i0:24, i1:210) = C(min(max(i0 - 1, 0), 21), min(max(i1 - 1, 0), 207)) "
     "Y(i0:22, i1:208 | r0:3, r1:3) +=! P(i0 + r0, i1 + r1) * K(r0, r1) }",
     6, NULL},
    // with many, the convolution reads through it, channels last
    {"p { in f32 X(1, 2, 30, 80) const f32 V(4, 2, 1, 1) = ... const f32 W(32, 4, 3, 3) = ... "
     "temp f32 C(1, 4, 30, 80) temp f32 P(1, 4, 32, 82) out f32 Y(1, 32, 30, 80) "
     "C(i0:1, i1:4, i2:30, i3:80 | r0:2, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * V(i1, r0, "
     "r1, r2) "
     "P(i0:1, i1:4, i2:32, i3:82) = C(i0, i1, i2 < 1 ? 1 : i2 >= 31 ? 28 : i2 - 1, i3 < 1 ? 1 : "
     "i3 >= 81 ? 78 : i3 - 1) "
     "Y(i0:1, i1:32, i2:30, i3:80 | r0:4, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     2, "specialize y.i2.o y.i1.o >= 1 && y.i1.o < 9 && y.i2.o >= 1 && y.i2.o < 19\n"},
};

static bool has_line(const char *text, const char *line) {
  test_kernel k;
  kiln_kernels kernels;
  kiln_tile_options options = {.search.n_threads = 2};
  bool found = false;
  kernel_open(&k, text, 7);
  assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &machines[0], &options, NULL, &kernels),
                   KILN_OK);
  for (int i = 0; i < kernels.kernels.n; i++)
    found |= strstr(kernels.kernels.data[i]->script, line) != NULL;
  kernel_close(&k);
  return found;
}

static void interiors_run_apart_from_borders(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(interiors); row++) {
    const char *line = interiors[row].line ? interiors[row].line : "specialize";
    for (size_t m = 0; m < KILN_LEN(machines); m++) {
      int launches, kernels;
      check(interiors[row].text, &machines[m], 2, &launches, &kernels);
      if (launches != interiors[row].launches)
        fail_msg("row %zu must be %d launches, got %d", row, interiors[row].launches, launches);
    }
    if (has_line(interiors[row].text, line) != (interiors[row].line != NULL))
      fail_msg("row %zu must have %s: %s", row, interiors[row].line ? "the line" : "no line", line);
  }
}

// A 1x1 convolution of |images| of 7 x 7 pixels and 16 channels to 40: its result's dims, and the
// extent along which vectors run.
static void check_pixels(int images, int n_dims, int64_t vector) {
  char text[512];
  int launches, n_kernels;
  test_kernel k;
  kiln_kernels kernels;
  kiln_tile_options options = {.search.n_threads = 1};
  snprintf(text, sizeof text,
           "p { in f32 X(%d, 16, 7, 7) const f32 W(40, 16, 1, 1) = ... out f32 Y(%d, 40, 7, 7) "
           "Y(i0:%d, i1:40, i2:7, i3:7 | r0:16, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2) * "
           "W(i1, r0, r1, r2) }",
           images, images, images);
  check(text, &machines[0], 1, &launches, &n_kernels);
  kernel_open(&k, text, 7);
  assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &machines[0], &options, NULL, &kernels),
                   KILN_OK);
  const kiln_program *p = kernels.kernels.data[0]->prog;
  const kiln_stmt *s = p->stmts.data[0];
  assert_int_equal(s->n_space, n_dims);
  assert_int_equal(kiln_dim_extent(&s->dims[s->n_space - 1]), vector);
  kernel_close(&k);
}

static void rows_of_pixels_are_one_dim_of_vectors_whatever_the_batch(void **state) {
  (void)state;
  check_pixels(1, 2, 49);
  check_pixels(2, 3, 49);
  check_pixels(8, 3, 49);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_compute_what_the_program_says),
      cmocka_unit_test(rows_of_pixels_are_one_dim_of_vectors_whatever_the_batch),
      cmocka_unit_test(interiors_run_apart_from_borders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
