// Scripts with holes, and files of scripts: parsing, filling, and refusals.
#include "schedule/holes.h"
#include "unit/schedule/kernel.h"

typedef struct fixture {
  kiln_ctx cx;
  kiln_diag *diag;
} fixture;

static void open_fixture(fixture *f) {
  f->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&f->cx, f->diag), KILN_OK);
}

static void close_fixture(fixture *f) {
  kiln_ctx_deinit(&f->cx);
  kiln_diag_destroy(f->diag);
}

static kiln_space *parse(fixture *f, const char *script) {
  kiln_space *s = NULL;
  if (kiln_space_parse(&f->cx, script, "x.sched", 1, &s) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  return s;
}

static const char *fill(fixture *f, const kiln_space *s, uint64_t k) {
  int choices[16];
  assert_true(s->n_holes <= 16);
  kiln_space_at(s, k, choices);
  return kiln_space_fill(&f->cx, s, choices);
}

static void spaces_count_their_scripts(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f);
  const kiln_space *s = parse(&f, "split m ?{16,32, 64} guard o i # ?{not,a,hole}\n"
                                  "stage B 0 workspace P 0/?t{4,8} 1 0%?t\nparallel \"a?{b}\"\n");
  assert_int_equal(s->n_holes, 2);
  assert_int_equal(s->total, 6);
  assert_int_equal(s->holes[0].n, 3);
  assert_int_equal(s->holes[0].name, 0);
  assert_string_equal(s->holes[0].choices[2], "64");
  assert_int_equal(s->holes[1].name, kiln_symbol_of(&f.cx, "t"));
  assert_int_equal(s->holes[1].line, 2);
  assert_int_equal(s->holes[1].column, 25);
  close_fixture(&f);
}

static void the_last_hole_runs_fastest(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f);
  const kiln_space *s = parse(&f, "split m ?f{2,4} ?{guard,shift} a b\npad n ?f");
  const char *want[] = {"split m 2 guard a b\npad n 2", "split m 2 shift a b\npad n 2",
                        "split m 4 guard a b\npad n 4", "split m 4 shift a b\npad n 4"};
  assert_int_equal(s->total, KILN_LEN(want));
  for (size_t k = 0; k < KILN_LEN(want); k++) assert_string_equal(fill(&f, s, k), want[k]);
  close_fixture(&f);
}

static void choices_may_be_quoted_names(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f);
  const kiln_space *s = parse(&f, "compute_at C ?{\"a, b}\",x.o} local");
  assert_string_equal(fill(&f, s, 0), "compute_at C \"a, b}\" local");
  assert_string_equal(fill(&f, s, 1), "compute_at C x.o local");
  close_fixture(&f);
}

static void a_seed_draws_the_same_script_and_seeds_differ(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f);
  const kiln_space *s = parse(&f, "x ?{0,1,2,3} ?{0,1,2,3} ?{0,1,2,3}");
  bool seen[64] = {false};
  int n_seen = 0;
  for (uint64_t seed = 0; seed < 1000; seed++) {
    int a[3], b[3];
    kiln_space_draw(s, seed, a);
    kiln_space_draw(s, seed, b);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 3; i++) assert_in_range(a[i], 0, 3);
    const int at = a[0] * 16 + a[1] * 4 + a[2];
    n_seen += !seen[at];
    seen[at] = true;
  }
  assert_int_equal(n_seen, 64);
  close_fixture(&f);
}

static void totals_saturate(void **state) {
  (void)state;
  fixture f;
  kiln_text text;
  open_fixture(&f);
  kiln_text_init(&text, &f.cx.perm);
  for (int i = 0; i < 33; i++) kiln_text_add(&text, "x ?{0,1,2,3}\n");
  assert_true(parse(&f, text.data)->total == UINT64_MAX);
  assert_int_equal(parse(&f, "parallel x")->total, 1);
  assert_string_equal(fill(&f, parse(&f, "parallel x"), 0), "parallel x");
  close_fixture(&f);
}

static void bad_holes_are_named_by_line_and_column(void **state) {
  (void)state;
  static const struct {
    const char *script, *error;
  } rows[] = {
      {"pad x ?{1,2", "x.sched:1:8: error: hole: choices must be words with ',' between and '}' "
                      "behind them, got the end of the line"},
      {"pad x ?{}", "x.sched:1:9: error: hole: a choice must be a word, got \"}\""},
      {"pad x ?{1,}", "x.sched:1:11: error: hole: a choice must be a word, got \"}\""},
      {"\npad x ?{1 2}", "x.sched:2:8: error: hole: choices must be words with ',' between and '}' "
                         "behind them, got \"2\""},
      {"pad x ?a{1}\npad y ?b",
       "x.sched:2:7: error: hole: a name must have been given its choices before, as in "
       "?tile{16,32}, got \"?b\""},
      {"pad x ?a{1}\npad y ?a{2}",
       "x.sched:2:7: error: hole: a name must be given its choices once, got \"?a\""},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    fixture f;
    kiln_space *s = NULL;
    open_fixture(&f);
    assert_int_equal(kiln_space_parse(&f.cx, rows[i].script, "x.sched", 1, &s), KILN_BAD_INPUT);
    assert_null(s);
    assert_string_equal(kiln_diag_message(f.diag, 0), rows[i].error);
    close_fixture(&f);
  }
}

static void holes_must_be_filled_before_a_script_runs(void **state) {
  (void)state;
  test_kernel k;
  kiln_schedule s;
  kernel_open(&k, "k { in f32 X(4) out f32 Y(4) Y(i0:4) = X(i0) }", 1);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  assert_int_equal(kiln_schedule_replay_file(&s, "split Y.i0 ?{2,4} guard a b", "x.sched", 7),
                   KILN_BAD_INPUT);
  assert_string_equal(kiln_diag_message(k.diag, 0),
                      "x.sched:7: error: holes must be filled before a script runs, got "
                      "\"?{2,4}\": search, or choose a value");
  kernel_close(&k);
}

// --- sections ---

static void files_are_cut_at_kernel_lines(void **state) {
  (void)state;
  fixture f;
  kiln_sections s;
  open_fixture(&f);
  assert_int_equal(kiln_sections_parse(&f.cx,
                                       "# of no kernel\nparallel x\n\n  kernel mm # the product\n"
                                       "split a 2 guard b c\nkernels x\nkernel \"a b\"\n",
                                       "x.sched", &s),
                   KILN_OK);
  assert_int_equal(s.n, 3);
  const kiln_section *none = kiln_section_find(&s, 0);
  const kiln_section *mm = kiln_section_find(&s, kiln_symbol_of(&f.cx, "mm"));
  const kiln_section *ab = kiln_section_find(&s, kiln_symbol_of(&f.cx, "a b"));
  assert_string_equal(none->text, "# of no kernel\nparallel x\n\n");
  assert_int_equal(none->first_line, 1);
  assert_string_equal(mm->text, "split a 2 guard b c\nkernels x\n");
  assert_int_equal(mm->first_line, 5);
  assert_string_equal(ab->text, "");
  assert_int_equal(ab->first_line, 8);
  assert_null(kiln_section_find(&s, kiln_symbol_of(&f.cx, "other")));
  assert_int_equal(kiln_sections_parse(&f.cx, "\n# nothing\nkernel a\n", NULL, &s), KILN_OK);
  assert_int_equal(s.n, 1); // comments alone are no script
  assert_int_equal(kiln_sections_parse(&f.cx, "", NULL, &s), KILN_OK);
  assert_int_equal(s.n, 0);
  close_fixture(&f);
}

static void bad_headings_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *error;
  } rows[] = {
      {"kernel\nparallel x",
       "x.sched:1: error: kernel: must be followed by the kernel's name, got none"},
      {"kernel # c", "x.sched:1: error: kernel: must be followed by the kernel's name, got none"},
      {"kernel \"\"",
       "x.sched:1: error: kernel: must be followed by the kernel's name, got an empty one"},
      {"\nkernel a b\n",
       "x.sched:2: error: kernel: nothing must follow the kernel's name, got \"b\""},
      {"kernel a\ntidy\nkernel \"a\"\n",
       "x.sched:3: error: kernel: each kernel must have one script, got \"a\" at line 1, too"},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    fixture f;
    kiln_sections s;
    open_fixture(&f);
    assert_int_equal(kiln_sections_parse(&f.cx, rows[i].text, "x.sched", &s), KILN_BAD_INPUT);
    assert_string_equal(kiln_diag_message(f.diag, 0), rows[i].error);
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spaces_count_their_scripts),
      cmocka_unit_test(the_last_hole_runs_fastest),
      cmocka_unit_test(choices_may_be_quoted_names),
      cmocka_unit_test(a_seed_draws_the_same_script_and_seeds_differ),
      cmocka_unit_test(totals_saturate),
      cmocka_unit_test(bad_holes_are_named_by_line_and_column),
      cmocka_unit_test(holes_must_be_filled_before_a_script_runs),
      cmocka_unit_test(files_are_cut_at_kernel_lines),
      cmocka_unit_test(bad_headings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
