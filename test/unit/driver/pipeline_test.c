// The pipeline's table and its runner: names, leaving passes out, stopping, dumps; and that a
// program without any one of the optional passes computes the same.
#include "driver/pipeline.h"
#include "unit/fixture.h"
#include "unit/tile/launches.h"

// A convolution behind a padding, one in groups of one channel, a concatenation, means of rows, a
// softmax between products.
static const char program[] =
    "p { in f32 X(1, 8, 9, 9) const f32 W(8, 8, 3, 3) = ... const f32 G(16, 3, 3) = ... "
    "const f32 B(81, 24) = ... temp f32 P(1, 8, 11, 11) temp f32 C(1, 8, 9, 9) "
    "temp f32 R(1, 8, 9, 9) temp f32 Q(1, 8, 2, 7, 7) temp f32 U(1, 24, 9, 9) temp f32 V(24, 81) "
    "temp f32 S(24, 24) temp f32 M(24) temp f32 E(24, 24) temp f32 N(24) temp f32 A(24, 24) "
    "out f32 O(24, 81) out f32 D(1, 16, 7, 7) out f32 Y(24)\n"
    "P(i0:1, i1:8, i2:11, i3:11) = i2 >= 1 && i2 < 10 && i3 >= 1 && i3 < 10 ? "
    "X(i0, i1, i2 - 1, i3 - 1) : 0f32 "
    "C(i0:1, i1:8, i2:9, i3:9 | r0:8, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * "
    "W(i1, r0, r1, r2) "
    "R(i0:1, i1:8, i2:9, i3:9) = max(C(i0, i1, i2, i3), 0f32) "
    "Q(i0:1, i1:8, i2:2, i3:7, i4:7 | r0:3, r1:3) +=! R(i0, i1, i3 + r0, i4 + r1) * "
    "G(i1*2 + i2, r0, r1) "
    "D(i0:1, i1:16, i2:7, i3:7) = max(Q(i0, i1/2, i1%2, i2, i3), 0f32) "
    "U(i0:1, i1:24, i2:9, i3:9) = i1 < 8 ? R(i0, i1, i2, i3) : i1 < 16 ? X(i0, i1 - 8, i2, i3) : "
    "C(i0, i1 - 16, i2, i3) "
    "V(i0:24, i1:81) = U(0, i0, i1/9, i1%9) "
    "S(i0:24, i1:24 | r0:81) +=! V(i0, r0) * B(r0, i1) "
    "M(i0:24 | r0:24) max=! S(i0, r0) "
    "E(i0:24, i1:24) = exp(S(i0, i1) - M(i0)) "
    "N(i0:24 | r0:24) +=! E(i0, r0) "
    "A(i0:24, i1:24) = E(i0, i1) / N(i0) "
    "O(i0:24, i1:81 | r0:24) +=! A(i0, r0) * V(r0, i1) "
    "Y(i0:24 | r0:24) +=! A(i0, r0) * S(r0, i0) }";

// Schedules the program for a processor without |without| and compares its kernels' results with
// the interpreter's.
static kiln_build check(const char *without, kiln_stop stop) {
  test_kernel k;
  kernel_open(&k, program, 11);
  kiln_build b = {
      .choices.prog = k.prog,
      .request.stop = stop,
      .choices.tile.search = {.machine = &b.request.machine, .n_threads = 2, .n_lowered = 1}};
  assert_int_equal(kiln_machine_named(&k.cx, "avx2", &b.request.machine), KILN_OK);
  if (without) kiln_build_omit(&b, without);
  if (kiln_pipeline_run(&k.cx, &b, KILN_PHASE_TILE, KILN_PHASE_CONNECT) != KILN_OK)
    fail_msg("without %s: %s", without ? without : "none", kernel_message(&k));
  assert_true(b.choices.is_scheduled);
  check_launches(&k, &b.choices.kernels, compare_elements, without ? without : program);
  kernel_close(&k);
  return b;
}

static void a_program_without_any_optional_pass_computes_the_same(void **state) {
  (void)state;
  for (int i = 0; kiln_passes[i].name; i++) {
    if (!kiln_passes[i].is_optional || kiln_passes[i].phase != KILN_PHASE_TILE) continue;
    const kiln_build b = check(kiln_passes[i].name, (kiln_stop){0});
    assert_int_equal(b.counts[i], 0);
  }
}

static void optional_passes_end_where_they_are_asked_to(void **state) {
  const kiln_build all = check(NULL, (kiln_stop){0});
  (void)state;
  assert_true(all.n_steps > 4);
  assert_true(kiln_build_count(&all, "inline") > 0);
  for (int n = 0; n <= all.n_steps; n++) {
    const kiln_build b = check(NULL, (kiln_stop){.is_set = true, .n_steps = n, .pass = -1});
    assert_int_equal(b.n_steps, n);
  }
}

static void a_stop_is_a_number_or_an_optional_pass(void **state) {
  fixture *f = *state;
  kiln_stop stop;
  assert_int_equal(kiln_stop_parse(&f->cx, NULL, &stop), KILN_OK);
  assert_false(stop.is_set);
  assert_int_equal(kiln_stop_parse(&f->cx, "7", &stop), KILN_OK);
  assert_int_equal(stop.n_steps, 7);
  assert_int_equal(kiln_stop_parse(&f->cx, "coalesce", &stop), KILN_OK);
  assert_string_equal(kiln_passes[stop.pass].name, "coalesce");
  const kiln_build b = check(NULL, stop);
  assert_int_equal(b.n_steps, 2); // inline, coalesce
  static const char *const wrong[] = {"-1", "7x", "", "lower", "soup", "99999999999"};
  for (size_t i = 0; i < KILN_LEN(wrong); i++)
    assert_int_equal(kiln_stop_parse(&f->cx, wrong[i], &stop), KILN_BAD_INPUT);
}

static void names_are_of_rules_or_of_optional_passes(void **state) {
  fixture *f = *state;
  uint32_t rules = 0;
  uint64_t passes = 0;
  assert_int_equal(kiln_passes_find(&f->cx, kiln_rules, "constants,inline,cse", &rules, &passes),
                   KILN_OK);
  for (int i = 0; kiln_rules[i].name; i++)
    assert_int_equal(rules >> i & 1, strcmp(kiln_rules[i].name, "constants") == 0 ||
                                         strcmp(kiln_rules[i].name, "cse") == 0);
  for (int i = 0; kiln_passes[i].name; i++)
    assert_int_equal(passes >> i & 1, strcmp(kiln_passes[i].name, "inline") == 0);
  assert_int_equal(kiln_passes_find(&f->cx, kiln_rules, "inline,lower", &rules, &passes),
                   KILN_BAD_INPUT);
  uint64_t earlier = 0;
  assert_int_equal(kiln_passes_find(&f->cx, kiln_rules, "absorb", &rules, &earlier), KILN_OK);
  assert_true(earlier == passes); // an earlier name of the pass
  const char *message = kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1);
  assert_non_null(strstr(message, "constants, cse"));
  assert_non_null(strstr(message, "winograd"));
  assert_null(strstr(message, "connect,"));
  assert_non_null(strstr(message, "got 'lower'"));
  assert_int_equal(kiln_passes_check(&f->cx, "read,lower,plan"), KILN_OK);
  assert_int_equal(kiln_passes_check(&f->cx, "read,soup"), KILN_BAD_INPUT);
}

static void every_row_has_a_name_of_its_own_in_the_order_of_phases(void **state) {
  int n = 0;
  (void)state;
  for (; kiln_passes[n].name; n++) {
    const char *name = kiln_passes[n].name;
    assert_true(kiln_passes[n].text[0] != 0 && kiln_passes[n].run);
    assert_int_equal(kiln_rules_row(kiln_rules, name, strlen(name)), -1);
    for (int i = 0; i < n; i++) assert_string_not_equal(kiln_passes[i].name, name);
    if (n > 0) assert_true(kiln_passes[n - 1].phase <= kiln_passes[n].phase);
  }
  assert_true(n <= KILN_MAX_PASSES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_program_without_any_optional_pass_computes_the_same),
      cmocka_unit_test(optional_passes_end_where_they_are_asked_to),
      FIXTURE_TEST(a_stop_is_a_number_or_an_optional_pass),
      FIXTURE_TEST(names_are_of_rules_or_of_optional_passes),
      cmocka_unit_test(every_row_has_a_name_of_its_own_in_the_order_of_phases),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
