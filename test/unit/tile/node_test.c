// Contractions inside of other nests by kiln_lowering_contraction_node: results equal the reference
// interpreter's, and sums stay in registers.
#include "unit/tile/lowering.h"

#include "template/cpu/node.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 4096,
                                     .n_cores = 2};

static kiln_symbol name(test_kernel *k, const char *text) {
  return kiln_symbol_printf(&k->cx, "%s", text);
}

static kiln_scope scope_of(const kiln_lowering *w, kiln_symbol buffer) {
  for (int i = 0; i < w->s.loops->buffers.n; i++)
    if (w->s.loops->buffers.data[i]->name == buffer) return w->s.loops->buffers.data[i]->scope;
  fail_msg("no buffer %d", (int)buffer);
  return KILN_SCOPE_PARAM;
}

#define MLP(rows, hidden)                                                                          \
  "p { in f32 X(" #rows ", 20) const f32 V(20, " #hidden ") = ... const f32 W(" #hidden            \
  ", 24) = ... const f32 B(" #hidden ") = ... "                                                    \
  "temp f32 t0(" #rows ", " #hidden ") temp f32 t1(" #rows ", " #hidden ") temp f32 t2(" #rows     \
  ", 24) out f32 y(" #rows ", 24) "                                                                \
  "t0(i0:" #rows ", i1:" #hidden " | r0:20) +=! X(i0, r0) * V(r0, i1) "                            \
  "t1(i0:" #rows ", i1:" #hidden ") = max(t0(i0, i1) + B(i1), 0f32) "                              \
  "t2(i0:" #rows ", i1:24 | r0:" #hidden ") +=! t1(i0, r0) * W(r0, i1) "                           \
  "y(i0:" #rows ", i1:24) = t2(i0, i1) + 1f32 }"

// A block of rows through two layers: the hidden block lies in local memory.
static void chain_two(const char *text, int64_t block) {
  test_kernel k;
  kiln_lowering w = lowering_open(&k, &machine, text);
  const kiln_symbol at = name(&k, "y.i0.o"), inner = name(&k, "y.i0.i");
  const kiln_stmt *const *s = (const kiln_stmt *const *)k.prog->stmts.data;
  lowering_expect_ok(&k, &w, kiln_split(&w.s, name(&k, "y.i0"), block, KILN_TAIL_SHIFT, at, inner));
  const kiln_contraction_node last = {.stmt = s[2], .finish = s[3], .at = at, .loops = {inner}};
  const kiln_contraction_node first = {
      .stmt = s[0], .finish = s[1], .at = at, .scope = KILN_SCOPE_LOCAL};
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &last, NULL));
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &first, NULL));
  assert_int_equal(scope_of(&w, name(&k, "t1")), KILN_SCOPE_LOCAL);
  assert_int_equal(scope_of(&w, name(&k, "t0")), KILN_SCOPE_REGISTER);
  assert_int_equal(scope_of(&w, name(&k, "t2")), KILN_SCOPE_REGISTER);
  lowering_expect_right(&k, &w);
  kernel_close(&k);
}

static void node_chains_two_layers_through_local_memory(void **state) {
  (void)state;
  chain_two(MLP(32, 48), 8);
  chain_two(MLP(30, 40), 8); // the last block begins earlier
  chain_two(MLP(9, 17), 4);  // ragged vectors
}

// Without a map behind it the sums get a buffer of their own, which is copied to the result.
static void node_caches_the_sums_of_a_result_that_others_read(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(
      &k, &machine,
      "p { in f32 Q(3, 10, 8) in f32 K(3, 12, 8) temp f32 t0(3, 10, 12) temp f32 t1(3, 10) "
      "out f32 y(3, 10, 12) t0(i0:3, i1:10, i2:12 | r0:8) +=! Q(i0, i1, r0) * K(i0, i2, r0) "
      "t1(i0:3, i1:10 | r0:12) max=! t0(i0, i1, r0) "
      "y(i0:3, i1:10, i2:12) = t0(i0, i1, i2) - t1(i0, i1) }");
  const kiln_symbol head = name(&k, "y.i0"), at = name(&k, "y.i1.o");
  lowering_expect_ok(&k, &w, kiln_split(&w.s, name(&k, "y.i1"), 5, KILN_TAIL_SHIFT, at, 0));
  lowering_expect_ok(&k, &w, kiln_compute_at(&w.s, name(&k, "t1"), at, KILN_SCOPE_LOCAL));
  const kiln_contraction_node node = {
      .stmt = k.prog->stmts.data[0], .at = at, .scope = KILN_SCOPE_LOCAL, .pack_at = head};
  kiln_node_loops loops;
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, &loops));
  assert_true(loops.n > 0);
  assert_int_equal(scope_of(&w, name(&k, "t0")), KILN_SCOPE_LOCAL);
  assert_int_equal(scope_of(&w, name(&k, "t0.sums")), KILN_SCOPE_REGISTER);
  assert_int_equal(scope_of(&w, name(&k, "K.panels")), KILN_SCOPE_LOCAL);
  lowering_expect_right(&k, &w);
  kernel_close(&k);
}

static void node_takes_the_register_tile_it_is_given(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(
      &k, &machine,
      "p { in f32 X(12, 20) const f32 V(20, 32) = ... temp f32 t0(12, 32) out f32 y(12, 32) "
      "t0(i0:12, i1:32 | r0:20) +=! X(i0, r0) * V(r0, i1) y(i0:12, i1:32) = t0(i0, i1) * "
      "2f32 }");
  const kiln_contraction_node node = {.stmt = k.prog->stmts.data[0],
                                      .finish = w.root,
                                      .tile = {.rows = 1, .cols = 3, .vectors = 2}};
  kiln_node_loops loops;
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, &loops));
  int64_t tiles = 1;
  for (int i = 0; i < loops.n; i++) tiles *= loops.extents[i];
  assert_int_equal(tiles, 12 / 3 * (32 / 16));
  lowering_expect_right(&k, &w);
  kernel_close(&k);
}

// Packed numbers of 4 bits, 8 in a word, of two blocks of 16: a block of decoded columns in local
// memory, read by all rows, and parts of the word by constants.
static void node_decodes_columns_for_all_rows(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(
      &k, &machine,
      "p { in f32 X(13, 32) const i32 V(4, 48) = ... const f32 S(2, 48) = ... temp f32 t0(32, 48) "
      "temp f32 t1(13, 48) out f32 y(13, 48) "
      "t0(j0:32, i1:48) = (f32(band(shr(V(j0 / 8, i1), i32(4 * (j0 % 8))), 15i32)) - 8f32) * S(j0 "
      "/ 16, i1) "
      "t1(i0:13, i1:48 | r0:32) +=! X(i0, r0) * t0(r0, i1) y(i0:13, i1:48) = max(t1(i0, i1), 0f32) "
      "}");
  const kiln_contraction_node node = {.stmt = k.prog->stmts.data[1],
                                      .finish = w.root,
                                      .decoded = k.prog->stmts.data[0],
                                      .is_parallel = true};
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, NULL));
  assert_int_equal(scope_of(&w, name(&k, "t0.panels")), KILN_SCOPE_LOCAL);
  assert_int_equal(scope_of(&w, name(&k, "t1")), KILN_SCOPE_REGISTER);
  assert_non_null(strstr(kiln_schedule_script(&w.s), "unroll t0.panels.1.i.i"));
  lowering_expect_right(&k, &w);
  kernel_close(&k);
}

// A reduction of 96 in steps of 32 over ragged rows, and a convolution in steps of half its
// channels.
static void node_sums_a_deep_reduction_in_steps(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t step;
  } rows[] = {
      {"p { in f32 X(29, 96) const f32 V(96, 48) = ... const f32 B(48) = ... temp f32 t0(29, 48) "
       "out f32 y(29, 48) t0(i0:29, i1:48 | r0:96) +=! X(i0, r0) * V(r0, i1) "
       "y(i0:29, i1:48) = max(t0(i0, i1) + B(i1), 0f32) }",
       32},
      {"p { in f32 X(1, 9, 9, 16) const f32 V(32, 16, 3, 3) = ... temp f32 t0(1, 7, 7, 32) "
       "out f32 y(1, 7, 7, 32) t0(i0:1, i1:7, i2:7, i3:32 | r0:16, r1:3, r2:3) +=! X(i0, i1 + r1, "
       "i2 + r2, r0) * V(i3, r0, r1, r2) y(i0:1, i1:7, i2:7, i3:32) = t0(i0, i1, i2, i3) }",
       8},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int parallel = 0; parallel < 2; parallel++) {
      test_kernel k;
      kiln_lowering w = lowering_open(&k, &machine, rows[i].text);
      const kiln_contraction_node node = {.stmt = k.prog->stmts.data[0],
                                          .finish = w.root,
                                          .step = rows[i].step,
                                          .is_parallel = parallel};
      lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, NULL));
      assert_int_equal(scope_of(&w, name(&k, "t0")), KILN_SCOPE_LOCAL);
      assert_int_equal(scope_of(&w, name(&k, "t0.part")), KILN_SCOPE_REGISTER);
      lowering_expect_right(&k, &w);
      kernel_close(&k);
    }
}

// Narrow products become instructions where the machine has them, else loops; both are exact.
static void node_multiplies_narrow_types_by_instructions(void **state) {
  (void)state;
  static const struct {
    const char *machine, *a, *b, *sum, *cast, *instr; // NULL: none is used
    int depth;
    bool is_small; // of the constant, whatever the test's data
  } rows[] = {
      {"avx2", "u8", "i8", "i32", "i32", "vpmaddwd.", 24, false},
      {"avx2", "u8", "i8", "i32", "i32", "vpmaddubsw.", 24, true},
      {"avx2", "i16", "i8", "i32", "i32", "vpmaddwd.16.", 22, false},
      {"avx512vnni", "u8", "i8", "i32", "i32", "vpdpbusd.", 24, true},
      {"avx512vnni", "u8", "i8", "i32", "i32", "vpdpbusd.", 24, false},
      {"avxvnni", "u8", "i8", "i32", "i32", "vpdpbusd.vex.", 24, false},
      {"avx512vnni", "i16", "i16", "i32", "i32", "vpdpwssd.", 24, false},
      {"avx512vnni", "bf16", "bf16", "f32", "f32", "vdpbf16ps.", 24, false},
      {"neon", "i8", "i8", "i32", "i32", "sdot.", 24, false},
      {"avx512vnni", "i8", "i8", "i32", "i32", NULL, 24, false}, // wants unsigned ones
      {"avx512vnni", "u8", "i8", "i32", "i32", NULL, 22, false}, // not in whole groups
      {"avx512", "u8", "i8", "i32", "i32", NULL, 24, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[512];
    snprintf(text, sizeof text,
             "p { in %s X(19, %d) const %s V(%d, 40) = ... temp %s t0(19, 40) out %s y(19, 40) "
             "t0(i0:19, i1:40 | r0:%d) +=! %s(X(i0, r0)) * %s(V(r0, i1)) "
             "y(i0:19, i1:40) = t0(i0, i1) }",
             rows[i].a, rows[i].depth, rows[i].b, rows[i].depth, rows[i].sum, rows[i].sum,
             rows[i].depth, rows[i].cast, rows[i].cast);
    test_kernel k;
    kiln_machine m;
    kiln_lowering w = lowering_open(&k, &machine, text);
    assert_int_equal(kiln_machine_named(&k.cx, rows[i].machine, &m), KILN_OK);
    kiln_facts facts = {0};
    kiln_fact_at(&k.cx, &facts, 1)->is_small = rows[i].is_small; // V
    w.facts = &facts;
    w.m = &m;
    w.lanes = m.vector_bytes / 4;
    const kiln_contraction_node node = {.stmt = k.prog->stmts.data[0], .finish = w.root};
    lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, NULL));
    const char *script = kiln_schedule_script(&w.s), *found = strstr(script, "tensorize");
    if (!rows[i].instr) assert_null(found);
    else if (!found || !strstr(found, rows[i].instr)) fail_msg("%s: %s", rows[i].instr, script);
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

static void node_asks_for_panels_beside_instructions(void **state) {
  (void)state;
  test_kernel k;
  kiln_machine m;
  kiln_lowering w = lowering_open(
      &k, &machine,
      "p { in u8 X(40, 1024) const i8 V(1024, 48) = ... temp i32 t0(40, 48) out i32 y(40, 48) "
      "t0(i0:40, i1:48 | r0:1024) +=! i32(X(i0, r0)) * i32(V(r0, i1)) y(i0:40, i1:48) = t0(i0, i1) "
      "}");
  assert_int_equal(kiln_machine_named(&k.cx, "avx512vnni", &m), KILN_OK);
  m.l1_bytes = 8 << 10;
  w.m = &m;
  w.lanes = m.vector_bytes / 4;
  const kiln_contraction_node node = {.stmt = k.prog->stmts.data[0], .finish = w.root};
  lowering_expect_ok(&k, &w, kiln_lowering_contraction_node(&w, &node, NULL));
  const char *script = kiln_schedule_script(&w.s);
  if (!strstr(script, "prefetch V.panels") || !strstr(script, "tensorize"))
    fail_msg("must ask ahead and tensorize: %s", script);
  lowering_expect_right(&k, &w);
  kernel_close(&k);
}

static void node_refuses_a_product_that_no_operand_has_the_last_dim_of(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(
      &k, &machine,
      "p { in f32 X(12, 20) in f32 V(12, 20) temp f32 t0(12, 5) out f32 y(12, 5) "
      "t0(i0:12, i1:5 | r0:20) +=! X(i0, r0) * V(i0, r0) y(i0:12, i1:5) = t0(i0, i1) }");
  const kiln_contraction_node node = {.stmt = k.prog->stmts.data[0], .finish = w.root};
  assert_int_equal(kiln_lowering_contraction_node(&w, &node, NULL), KILN_BAD_INPUT);
  assert_string_equal(kernel_message(&k), "lowering: contraction: error: one operand must have the "
                                          "contiguous dim");
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(node_chains_two_layers_through_local_memory),
      cmocka_unit_test(node_caches_the_sums_of_a_result_that_others_read),
      cmocka_unit_test(node_takes_the_register_tile_it_is_given),
      cmocka_unit_test(node_decodes_columns_for_all_rows),
      cmocka_unit_test(node_sums_a_deep_reduction_in_steps),
      cmocka_unit_test(node_multiplies_narrow_types_by_instructions),
      cmocka_unit_test(node_asks_for_panels_beside_instructions),
      cmocka_unit_test(node_refuses_a_product_that_no_operand_has_the_last_dim_of),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
