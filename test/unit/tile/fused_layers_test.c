// Fused layers: a block of the result computes what it needs of earlier statements in local memory;
// results equal the reference interpreter's.
#include "unit/tile/lowering.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 1 << 16,
                                     .n_cores = 2};

#define MLP(rows, hidden)                                                                          \
  "p { in f32 X(" #rows ", 20) const f32 V(20, " #hidden ") = ... const f32 W(" #hidden            \
  ", 24) = ... const f32 B(" #hidden ") = ... "                                                    \
  "temp f32 t0(" #rows ", " #hidden ") temp f32 t1(" #rows ", " #hidden ") temp f32 t2(" #rows     \
  ", 24) out f32 y(" #rows ", 24) "                                                                \
  "t0(i0:" #rows ", j0:" #hidden " | r0:20) +=! X(i0, r0) * V(r0, j0) "                            \
  "t1(i0:" #rows ", j0:" #hidden ") = max(t0(i0, j0) + B(j0), 0f32) "                              \
  "t2(i0:" #rows ", i1:24 | r0:" #hidden ") +=! t1(i0, r0) * W(r0, i1) "                           \
  "y(i0:" #rows ", i1:24) = t2(i0, i1) + 1f32 }"

// Pointwise, padded, depthwise, pointwise again: rows of pixels with a halo.
static const char separable[] =
    "p { in f32 X(12, 9, 5) const f32 E(5, 16) = ... const f32 D(16, 3, 3) = ... "
    "const f32 W(16, 8) = ... temp f32 t0(12, 9, 16) temp f32 t1(12, 9, 16) temp f32 t2(14, 11, "
    "16) "
    "temp f32 t3(12, 9, 16) temp f32 t4(12, 9, 16) temp f32 t5(12, 9, 8) out f32 y(12, 9, 8) "
    "t0(j0:12, j1:9, j2:16 | r0:5) +=! X(j0, j1, r0) * E(r0, j2) "
    "t1(j0:12, j1:9, j2:16) = max(t0(j0, j1, j2), 0f32) "
    "t2(j3:14, j4:11, j2:16) = j3 >= 1 && j3 < 13 && j4 >= 1 && j4 < 10 ? "
    "t1(j3 - 1, j4 - 1, j2) : 0f32 "
    "t3(i0:12, i1:9, j2:16 | r0:3, r1:3) +=! t2(i0 + r0, i1 + r1, j2) * D(j2, r0, r1) "
    "t4(i0:12, i1:9, j2:16) = max(t3(i0, i1, j2), 0f32) "
    "t5(i0:12, i1:9, i2:8 | r0:16) +=! t4(i0, i1, r0) * W(r0, i2) "
    "y(i0:12, i1:9, i2:8) = t5(i0, i1, i2) + X(i0, i1, 0) }";

// A norm in front of a product, and a pooling behind one.
static const char norm[] =
    "p { in f32 X(12, 20) const f32 W(20, 16) = ... temp f32 t0(12) temp f32 t1(12, 20) "
    "temp f32 t2(12, 16) out f32 y(12, 16) t0(i0:12 | r0:20) +=! X(i0, r0) "
    "t1(i0:12, j0:20) = X(i0, j0) - t0(i0) t2(i0:12, i1:16 | r0:20) +=! t1(i0, r0) * W(r0, i1) "
    "y(i0:12, i1:16) = t2(i0, i1) }";
static const char pooled[] =
    "p { in f32 X(12, 8, 5) const f32 W(5, 16) = ... temp f32 t0(12, 8, 16) temp f32 t1(12, 8, 16) "
    "temp f32 t2(6, 4, 16) out f32 y(6, 4, 16) t0(j0:12, j1:8, i2:16 | r0:5) +=! X(j0, j1, r0) * "
    "W(r0, i2) t1(j0:12, j1:8, i2:16) = max(t0(j0, j1, i2), 0f32) t2(i0:6, i1:4, i2:16 | r0:2, "
    "r1:2) "
    "max=! t1(2*i0 + r0, 2*i1 + r1, i2) y(i0:6, i1:4, i2:16) = t2(i0, i1, i2) }";

// A product, a stored sum of it, and its normalization.
static const char residual[] =
    "p { in f32 X(12, 20) in f32 R(12, 16) const f32 W(20, 16) = ... temp f32 t0(12, 16) "
    "out f32 z0(12, 16) temp f32 t2(12) out f32 y(12, 16) "
    "t0(i0:12, j0:16 | r0:20) +=! X(i0, r0) * W(r0, j0) "
    "z0(i0:12, j0:16) = t0(i0, j0) + R(i0, j0) t2(i0:12 | r0:16) +=! z0(i0, r0) "
    "y(i0:12, i1:16) = z0(i0, i1) - t2(i0) }";

// A depthwise window along padded rows, of stride one or two.
static const char by_channel[] =
    "p { in f32 X(4, 9, 21) const f32 D(4, 3, 5) = ... temp f32 t0(4, 11, 25) temp f32 t1(4, 9, "
    "21) "
    "out f32 y(4, 9, 21) t0(i0:4, j0:11, j1:25) = j0 >= 1 && j0 < 10 && j1 >= 2 && j1 < 23 ? "
    "X(i0, j0 - 1, j1 - 2) : 0f32 "
    "t1(i0:4, i1:9, i2:21 | r0:3, r1:5) +=! t0(i0, i1 + r0, i2 + r1) * D(i0, r0, r1) "
    "y(i0:4, i1:9, i2:21) = max(t1(i0, i1, i2), 0f32) }";
static const char by_phases[] =
    "p { in f32 X(4, 9, 21) const f32 D(4, 3, 5) = ... temp f32 t0(4, 11, 25) temp f32 t1(4, 5, "
    "11) "
    "out f32 y(4, 5, 11) t0(i0:4, j0:11, j1:25) = j0 >= 1 && j0 < 10 && j1 >= 2 && j1 < 23 ? "
    "X(i0, j0 - 1, j1 - 2) : 0f32 "
    "t1(i0:4, i1:5, i2:11 | r0:3, r1:5) +=! t0(i0, 2*i1 + r0, 2*i2 + r1) * D(i0, r0, r1) "
    "y(i0:4, i1:5, i2:11) = max(t1(i0, i1, i2), 0f32) }";

static const struct {
  const char *name, *text;
  int64_t block[3];
  const char *local, *in_registers; // buffers that must be there
} cases[] = {
    {"layers", MLP(32, 48), {8}, "t1", "t0 t2"},
    {"a ragged last block", MLP(30, 40), {8}, "t1", "t0 t2"},
    {"ragged vectors", MLP(9, 17), {4}, "t1", "t0 t2"},
    {"one row", MLP(9, 24), {1}, "t1", "t0 t2"},
    {"separable, rows", separable, {4}, "t1 t2 t4", "t0 t3 t5"},
    {"separable, ragged rows", separable, {5}, "t1 t2 t4", "t0 t3 t5"},
    {"separable, squares", separable, {4, 3}, "t1 t2 t4", "t0 t3 t5"},
    {"norm", norm, {5}, "t0 t1", "t2"},
    {"pooled", pooled, {2}, "t1", "t0 t2"},
    {"by channel", by_channel, {2}, "t0", "t1"},
    {"by channel, some rows", by_channel, {1, 4}, "t0", "t1"},
    {"by phases", by_phases, {2}, "t0", "t1"},
    {"by phases, some rows", by_phases, {1, 3}, "t0", "t1"},
    {"stored besides being reused", residual, {4}, "t2", "t0"},
};

static kiln_scope scope_of(test_kernel *k, const kiln_lowering *w, const char *name) {
  const kiln_symbol buffer = kiln_symbol_printf(&k->cx, "%s", name);
  for (int i = 0; i < w->s.loops->buffers.n; i++)
    if (w->s.loops->buffers.data[i]->name == buffer) return w->s.loops->buffers.data[i]->scope;
  fail_msg("no buffer %s", name);
  return KILN_SCOPE_PARAM;
}

static void expect_scopes(test_kernel *k, const kiln_lowering *w, const char *names,
                          kiln_scope scope) {
  char one[8];
  for (const char *at = names; *at;) {
    const size_t n = strcspn(at, " ");
    memcpy(one, at, n);
    one[n] = 0;
    assert_int_equal(scope_of(k, w, one), scope);
    at += n + (at[n] == ' ');
  }
}

static void chain_computes_blocks_through_local_memory(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, cases[row].text);
    kiln_tiling t = {0};
    memcpy(t.block, cases[row].block, sizeof cases[row].block);
    print_message("%s\n", cases[row].name);
    lowering_expect_ok(&k, &w, kiln_template_fused_layers.lower(&w, &t));
    expect_scopes(&k, &w, cases[row].local, KILN_SCOPE_LOCAL);
    expect_scopes(&k, &w, cases[row].in_registers, KILN_SCOPE_REGISTER);
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

static void masks_of_a_padding_are_the_same_for_all_rows(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(&k, &machine, by_channel);
  const kiln_tiling t = {.block = {2}};
  lowering_expect_ok(&k, &w, kiln_template_fused_layers.lower(&w, &t));
  assert_non_null(strstr(kiln_schedule_script(&w.s), "unroll t0.j1.o"));
  kernel_close(&k);
}

static void chain_refuses_a_block_that_is_all(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(&k, &machine, MLP(9, 24));
  const kiln_tiling whole = {.block = {9}};
  assert_int_equal(kiln_template_fused_layers.lower(&w, &whole), KILN_BAD_INPUT);
  assert_non_null(strstr(kernel_message(&k), "more than one block"));
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chain_computes_blocks_through_local_memory),
      cmocka_unit_test(masks_of_a_padding_are_the_same_for_all_rows),
      cmocka_unit_test(chain_refuses_a_block_that_is_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
