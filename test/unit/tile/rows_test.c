// The rows template: how reductions and the maps around them become loops; results equal the
// reference interpreter's.
#include "unit/tile/lowering.h"

#include "transform/transform.h"

#include <math.h>

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 1 << 20,
                                     .n_cores = 2};

static const struct {
  const char *name, *text;
  const char *lines[3]; // of the script
} cases[] = {
    {"few sums of much: each thread sums a part",
     "p { in f32 X(4096, 12) temp f32 t0(12) temp f32 t1(12) temp f32 t2(12) out f32 y(12) "
     "t0(i0:12 | r0:4096) +=! X(r0, i0) t1(i0:12) = t0(i0) * 0.5f32 "
     "t2(i0:12 | r0:4096) max=! X(r0, i0) - t1(i0) y(i0:12) = t2(i0) + t1(i0) }",
     {"rfactor t0.r0.o t0.parts\n", "parallel t0.r0.o\n", "parallel t2.r0.o\n"}},
    {"few sums of much, raggedly",
     "p { in f32 X(4097, 9) temp f32 t0(9) out f32 y(9) t0(i0:9 | r0:4097) +=! X(r0, i0) "
     "y(i0:9) = t0(i0) }",
     {"split t0.r0 1025 guard t0.r0.o t0.r0.i\n", "parallel t0.r0.o\n", "vectorize t0.i0.i\n"}},
    {"a map behind what is small: the map is shared among the threads",
     "p { in f32 X(2048, 20) in f32 W(20) temp f32 t0(20) out f32 y(2048, 20) "
     "t0(i1:20) = max(W(i1), 0f32) y(i0:2048, i1:20) = X(i0, i1) * t0(i1) }",
     {"parallel y.i0\n", "vectorize t0.i1.i\n", "vectorize y.i1.i\n"}},
    {"a join behind what is small: each part reads its own tensor",
     "p { in f32 X(16384) in f32 V(16384) in f32 U(16384) in f32 W(4) temp f32 t0(1) "
     "out f32 y(49152) t0(j0:1 | r0:4) +=! W(r0) "
     "y(i0:49152) = (i0 < 16384 ? X(i0) : i0 < 32768 ? V(i0 - 16384) : U(i0 - 32768)) * t0(0) }",
     {"peel y.i0.o 1024\n", "peel y.i0.o 512\n", "parallel y.i0.o.b.b\n"}},
    {"rows of three vectors",
     "p { in f32 X(40, 24) temp f32 t0(40) out f32 y(40, 24) t0(i0:40 | r0:24) +=! X(i0, r0) "
     "y(i0:40, i1:24) = X(i0, i1) - t0(i0) }",
     {"parallel y.i0\n", "vectorize t0.r0\n", "vectorize y.i1\n"}},
    {"sums whose weights are interleaved: vectors of results, though the rows are contiguous",
     "p { in f32 X(6, 64) in f32 W(4, 64, 8) temp f32 t0(6, 4, 8) out f32 y(6, 32) "
     "t0(i0:6, j0:4, j1:8 | r0:64) +=! X(i0, r0) * W(j0, r0, j1) "
     "y(i0:6, i1:32) = max(t0(i0, i1 / 8, i1 % 8), 0f32) }",
     {"parallel y.i0\n", "reorder t0.r0 t0.j1\n", "vectorize t0.j1\n"}},
    {"a sum that is stored besides being reused",
     "p { in f32 X(40, 24) in f32 R(40, 24) out f32 z0(40, 24) temp f32 t1(40) out f32 y(40, 24) "
     "z0(i0:40, j0:24) = X(i0, j0) + R(i0, j0) t1(i0:40 | r0:24) +=! z0(i0, r0) "
     "y(i0:40, i1:24) = z0(i0, i1) - t1(i0) }",
     {"merge z0.i0 y.i0 0 second\n", "parallel y.i0\n", "vectorize z0.j0\n"}},
    {"columns that are stored besides being reused",
     "p { in f32 X(40, 32) temp f32 t0(32) out f32 z0(32) temp f32 t1(32) out f32 y(32) "
     "t0(i0:32 | r0:40) +=! X(r0, i0) z0(i0:32) = t0(i0) / 40f32 "
     "t1(i0:32 | r0:40) max=! X(r0, i0) - z0(i0) y(i0:32) = t1(i0) * 2f32 }",
     {"merge z0.i0.b y.i0.o 0 second\n", "parallel y.i0.o\n", "vectorize z0.i0.t\n"}},
    {"a map of which a row is too large to be held",
     "p { in f32 X(130, 80, 32) in f32 B(32) temp f32 t0(130, 80, 32) temp f32 t1(32) "
     "out f32 y(130, 80, 32) t0(j0:130, j1:80, i2:32) = X(j0, j1, i2) + B(i2) "
     "t1(i2:32 | r0:130, r1:80) max=! t0(r0, r1, i2) "
     "y(i0:130, i1:80, i2:32) = t0(i0, i1, i2) - t1(i2) }",
     {"inline t0\n", "vectorize t1.i2\n", "vectorize y.i2\n"}},
    {"a window, without a rest",
     "p { in f32 X(9, 17, 20) in f32 W(3, 3, 20) temp f32 t0(7, 15, 20) out f32 y(7, 15, 20) "
     "t0(i0:7, i1:15, i2:20 | r0:3, r1:3) +=! X(i0 + r0, i1 + r1, i2) * W(r0, r1, i2) "
     "y(i0:7, i1:15, i2:20) = max(t0(i0, i1, i2), 0f32) }",
     {"split y.i1 3 shift y.i1.o y.i1.i\n", "unroll t0.i1\n", "vectorize t0.i2\n"}},
    {"two rows of a window, which is written out",
     "p { in f32 X(10, 16, 20) in f32 W(3, 3, 20) temp f32 t0(8, 14, 20) out f32 y(8, 14, 20) "
     "t0(i0:8, i1:14, i2:20 | r0:3, r1:3) +=! X(i0 + r0, i1 + r1, i2) * W(r0, r1, i2) "
     "y(i0:8, i1:14, i2:20) = max(t0(i0, i1, i2), 0f32) }",
     {"split y.i0 2 shift y.i0.o y.i0.i\n", "unroll t0.i0\n", "unroll t0.r0\n"}},
    {"two rows of a window, the last one twice",
     "p { in f32 X(1, 35, 8, 20) temp f32 t0(1, 17, 7, 20) out f32 y(1, 17, 7, 20) "
     "t0(n:1, i0:17, i1:7, i2:20 | r0:3, r1:2) max=! X(n, 2 * i0 + r0, i1 + r1, i2) "
     "y(n:1, i0:17, i1:7, i2:20) = t0(n, i0, i1, i2) * 2f32 }",
     {"split y.i0 2 shift y.i0.o y.i0.i\n", "unroll t0.i0\n", "unroll t0.r0\n"}},
    {"windows whose results lie across their channels are turned",
     "p { in f32 X(9, 26, 20) in f32 W(3, 3, 20) temp f32 t0(7, 24, 20) "
     "out f32 y(7, 24, 20) order(2, 0, 1) "
     "t0(i0:7, i1:24, i2:20 | r0:3, r1:3) +=! X(i0 + r0, i1 + r1, i2) * W(r0, r1, i2) "
     "y(i0:7, i1:24, i2:20) = max(t0(i0, i1, i2), 0f32) }",
     {"cache_write y y.turned\n", "reorder y.copy.0 y.copy.1.o y.copy.2 y.copy.1.i\n",
      "vectorize t0.i2\n"}},
    {"in blocks of their rows, the last of which overlaps another",
     "p { in f32 X(5, 71, 12) temp f32 t0(3, 69, 12) out f32 y(3, 69, 12) order(2, 0, 1) "
     "t0(i0:3, i1:69, i2:12 | r0:3, r1:3) max=! X(i0 + r0, i1 + r1, i2) "
     "y(i0:3, i1:69, i2:12) = t0(i0, i1, i2) + 1f32 }",
     {"split y.copy.1 40 shift y.copy.1.o y.copy.1.i\n", "compute_at y.turned",
      "vectorize t0.i2\n"}},
    {"windows in rows that are summed up, too: vectors of their results",
     "p { in f32 X(8, 6, 7, 80) temp f32 t0(8) temp f32 t1(8, 6, 7, 80) temp f32 t2(8, 4, 5, 80) "
     "out f32 y(8, 4, 5, 80) t0(i0:8 | r0:6, r1:7, r2:80) +=! X(i0, r0, r1, r2) "
     "t1(i0:8, j0:6, j1:7, j2:80) = X(i0, j0, j1, j2) - t0(i0) "
     "t2(i0:8, k0:4, k1:5, k2:80 | r0:3, r1:3) +=! t1(i0, k0 + r0, k1 + r1, k2) "
     "y(i0:8, i1:4, i2:5, i3:80) = t2(i0, i1, i2, i3) * 0.5f32 - t0(i0) }",
     {"reorder t2.k2.o t2.r0 t2.r1 t2.k2.i\n", "vectorize t2.k2.i\n", "vectorize t2.init.k2.i\n"}},
    {"rows that share nothing",
     "p { in f32 X(8, 16, 20) temp f32 t0(8, 14, 20) out f32 y(8, 14, 20) "
     "t0(i0:8, i1:14, i2:20 | r1:3) +=! X(i0, i1 + r1, i2) "
     "y(i0:8, i1:14, i2:20) = max(t0(i0, i1, i2), 0f32) }",
     {"split y.i1 4 shift y.i1.o y.i1.i\n", "parallel y.i0\n", "unroll t0.r1\n"}},
};

static void rows_are_scheduled_by_their_form(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, cases[row].text);
    const kiln_tiling none = {0};
    lowering_expect_ok(&k, &w, kiln_template_rows.lower(&w, &none));
    for (size_t i = 0; i < KILN_LEN(cases[row].lines); i++)
      if (!strstr(kiln_schedule_script(&w.s), cases[row].lines[i]))
        fail_msg("%s: must have %s, got\n%s", cases[row].name, cases[row].lines[i],
                 kiln_schedule_script(&w.s));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

// Registers at once by what a map reads.
static void maps_that_read_much_take_fewer_registers(void **state) {
  (void)state;
  static const struct {
    int reads, vectors;
  } rows[] = {{1, 4}, {6, 4}, {7, 3}, {8, 3}, {9, 2}, {12, 2}, {13, 1}, {40, 1}};
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    char params[2048], sum[1024], text[4096];
    int at = 0, end = 0;
    for (int i = 0; i < rows[row].reads; i++) {
      at += snprintf(params + at, sizeof params - (size_t)at, "in f32 a%d(1536) ", i);
      end += snprintf(sum + end, sizeof sum - (size_t)end, "%sa%d(i)", i ? " + " : "", i);
    }
    snprintf(text, sizeof text, "p { %s out f32 y(1536) y(i:1536) = %s }", params, sum);
    test_kernel k;
    const kiln_lowering w = lowering_open(&k, &machine, text);
    assert_int_equal(kiln_lowering_most_vectors(&w, w.root), rows[row].vectors);
    kernel_close(&k);
  }
}

// z0 = 2*X, z(k) = z(k - 1) + X, y = z(n - 1) + X: X and n results stay in registers, of which two
// a vector are too many from 9 tensors on.
static void rows_that_hold_many_results_take_fewer_registers(void **state) {
  (void)state;
  static const struct {
    int results;
    const char *split;
  } rows[] = {{3, "split y.i1 32 shift"}, {7, "split y.i1 32 shift"}, {8, "split y.i1 8 shift"}};
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    const int n = rows[row].results;
    char outputs[1024], stmts[2048], text[4096];
    int at = 0, end = snprintf(stmts, sizeof stmts, "z0(i0:40, i1:64) = X(i0, i1) * 2f32 ");
    for (int k = 0; k < n; k++)
      at += snprintf(outputs + at, sizeof outputs - (size_t)at, "out f32 z%d(40, 64) ", k);
    for (int k = 1; k < n; k++)
      end += snprintf(stmts + end, sizeof stmts - (size_t)end,
                      "z%d(i0:40, i1:64) = z%d(i0, i1) + X(i0, i1) ", k, k - 1);
    snprintf(
        text, sizeof text,
        "p { in f32 X(40, 64) %s out f32 y(40, 64) %s y(i0:40, i1:64) = z%d(i0, i1) + X(i0, i1) }",
        outputs, stmts, n - 1);
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, text);
    const kiln_tiling none = {0};
    lowering_expect_ok(&k, &w, kiln_template_rows.lower(&w, &none));
    if (!strstr(kiln_schedule_script(&w.s), rows[row].split))
      fail_msg("%d results: must have %s, got\n%s", n, rows[row].split, kiln_schedule_script(&w.s));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

// By statements that are left when sums of sums are merged.
static const struct {
  const char *text;
  int left;
} sums[] = {
    {"p { in f32 X(3, 4, 5) temp f32 T(3, 5) out f32 Y(3) T(i:3, k:5 | r:4) +=! X(i, r, k) "
     "Y(i:3 | r:5) +=! T(i, r) }",
     1},
    {"p { in f32 X(3, 4, 5) temp f32 T(3, 5) out f32 Y(3) T(i:3, k:5 | r:4) max=! X(i, r, k) "
     "Y(i:3 | r:5) +=! T(i, r) }",
     2},
    {"p { in f32 X(3, 4, 5) temp f32 T(3, 5) out f32 Y(3) T(i:3, k:5 | r:4) +=! X(i, r, k) "
     "Y(i:3 | r:5, q:2) +=! T(i, r) }",
     2}, // each twice
    {"p { in f32 X(3, 4, 5, 2, 6) temp f32 T(3, 4, 5) temp f32 U(3) out f32 Y() "
     "T(i:3, j:4, k:5 | r:2, s:6) +=! X(i, j, k, r, s) U(i:3 | r:4, s:5) +=! T(i, r, s) "
     "Y(| r:3) +=! U(r) }",
     1}, // the names of all that is summed over differ, whatever they were
};

static void sums_of_sums_are_one_sum(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(sums); row++) {
    test_kernel k;
    int left = 0, n_absorbed = 0;
    kernel_open(&k, sums[row].text, 5);
    assert_int_equal(kiln_tile_inline(&k.cx, k.prog, &machine, &n_absorbed), KILN_OK);
    for (int i = 0; i < k.prog->stmts.n; i++) {
      const kiln_stmt *s = k.prog->stmts.data[i];
      left += s != NULL;
      for (int d = 0; s && d < s->n_space + s->n_reduce; d++)
        assert_int_equal(kiln_stmt_dim(s, s->dims[d].name), d); // the first of that name
    }
    if (left != sums[row].left) fail_msg("row %zu: %d statements are left", row, left);
    kernel_close(&k);
  }
}

// A product's tiles come first, unless packing an operand of the run, read once, is all that they
// would do.
static void a_row_times_many_is_summed_along_them(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool competes;
  } products[] = {
      {"p { in f32 Q(3, 64) in f32 K(3, 40, 64) temp f32 t0(3, 40) out f32 y(3, 40) "
       "t0(i0:3, i1:40 | r0:64) +=! Q(i0, r0)*K(i0, i1, r0) y(i0:3, i1:40) = t0(i0, i1)*2f32 }",
       true},
      {"p { in f32 Q(64) const f32 K(40, 64) = ... temp f32 t0(40) out f32 y(40) "
       "t0(i0:40 | r0:64) +=! Q(r0)*K(i0, r0) y(i0:40) = t0(i0) }",
       false},
      {"p { in f32 Q(64) in f32 K(64, 40) temp f32 t0(40) out f32 y(40) "
       "t0(i0:40 | r0:64) +=! Q(r0)*K(r0, i0) y(i0:40) = t0(i0) }",
       false},
      {"p { in f32 Q(8, 64) in f32 K(40, 64) temp f32 t0(8, 40) out f32 y(8, 40) "
       "t0(i0:8, i1:40 | r0:64) +=! Q(i0, r0)*K(i1, r0) y(i0:8, i1:40) = t0(i0, i1) }",
       false},
  };
  for (size_t i = 0; i < KILN_LEN(products); i++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, products[i].text);
    kiln_tile_candidates found = {0};
    lowering_expect_ok(&k, &w, kiln_template_contraction.propose(&w, &found));
    assert_true(found.n > 0);
    lowering_expect_ok(&k, &w, kiln_template_rows.propose(&w, &found));
    const kiln_tile_candidate *last = &found.data[found.n - 1];
    assert_int_equal(isfinite(last->cost.ns) != 0, products[i].competes);
    lowering_expect_ok(&k, &w, kiln_template_rows.lower(&w, &last->tiling));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_scheduled_by_their_form),
      cmocka_unit_test(maps_that_read_much_take_fewer_registers),
      cmocka_unit_test(rows_that_hold_many_results_take_fewer_registers),
      cmocka_unit_test(sums_of_sums_are_one_sum),
      cmocka_unit_test(a_row_times_many_is_summed_along_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
