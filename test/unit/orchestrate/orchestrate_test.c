// Whole programs: kernels cost no more than those of cost-driven fusion and are deterministic,
// equal layers are solved once, orchestrations as text and their errors.
#include "driver/pipeline.h"
#include "orchestrate/orchestrate.h"
#include "fuse/kernel.h"
#include "unit/fixture.h"

#include <math.h>

typedef struct asked {
  kiln_orchestrate_options options;
  kiln_orchestration got;
  const char *text; // of |got|
} asked;

static kiln_status choose(kiln_ctx *cx, void *user, const kiln_program *p, const kiln_facts *facts,
                          const kiln_tile_search_options *search, kiln_searches *known,
                          kiln_fused_groups *io, kiln_edge_decisions *io_edges) {
  asked *a = user;
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  KILN_TRY(kiln_orchestrate(cx, p, facts, search, known, &a->options, io, io_edges, &a->got));
  kiln_orchestration_print(cx, p, &a->got, &text);
  a->text = text.data;
  return KILN_OK;
}

static kiln_status schedule(fixture *f, const char *text, asked *io, kiln_kernels *out) {
  kiln_program *p = NULL;
  kiln_machine m = {.target = &kiln_target_cpu,
                    .vector_bytes = 64,
                    .n_vector_regs = 32,
                    .has_fma = true,
                    .n_cores = 2,
                    .l1_bytes = 32 << 10,
                    .l2_bytes = 1 << 20,
                    .l3_bytes = 32 << 20,
                    .clock_ghz = 3};
  m.device = kiln_device_make_nominal(&f->cx, &m);
  const kiln_tile_options options = {
      .search.n_threads = 2, .orchestrate = io ? choose : NULL, .orchestrator = io};
  KILN_TRY(kiln_program_parse(&f->cx, text, &p));
  return kiln_pipeline_tile(&f->cx, p, &m, &options, NULL, out);
}

static kiln_kernels kernels_of(fixture *f, const char *text, asked *io) {
  kiln_kernels k = {0};
  if (schedule(f, text, io, &k) != KILN_OK) fail_msg("%s", kiln_diag_message(f->diag, 0));
  return k;
}

// |layers| layers over rows: a product, a softmax of its rows, and the sum with what came in.
static const char *layers_of(fixture *f, int layers) {
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  kiln_text_add(&t, "p { in f32 H0(512, 64) ");
  for (int l = 1; l <= layers; l++)
    kiln_text_printf(&t,
                     "const f32 W%d(64, 64) = ... temp f32 P%d(512, 64) temp f32 M%d(512) "
                     "temp f32 E%d(512, 64) temp f32 S%d(512) %s f32 H%d(512, 64) ",
                     l, l, l, l, l, l == layers ? "out" : "temp", l);
  for (int l = 1; l <= layers; l++)
    kiln_text_printf(&t,
                     "P%d(i0:512, i1:64 | r0:64) +=! W%d(r0, i1) * H%d(i0, r0) "
                     "M%d(i0:512 | r0:64) max=! P%d(i0, r0) "
                     "E%d(i0:512, i1:64) = exp(P%d(i0, i1) - M%d(i0)) "
                     "S%d(i0:512 | r0:64) +=! E%d(i0, r0) "
                     "H%d(i0:512, i1:64) = E%d(i0, i1) / S%d(i0) + H%d(i0, i1) ",
                     l, l, l - 1, l, l, l, l, l, l, l, l, l, l, l - 1);
  kiln_text_add(&t, "}");
  return t.data;
}

static void chosen_kernels_cost_no_more_than_connecting_s(void **state) {
  fixture *f = *state;
  for (int layers = 1; layers < 5; layers++) {
    asked a = {.options.worth = KILN_USUAL_WORTH};
    kernels_of(f, layers_of(f, layers), &a);
    assert_true(a.got.first_ns > 0 && a.got.chosen_ns > 0);
    assert_true(a.got.chosen_ns <= a.got.first_ns * (1 + 1e-6));
    assert_true(a.got.bound_ns <= a.got.weight_ns * (1 + 1e-6));
    assert_true(a.got.bound_ns >= 0.99 * a.got.weight_ns); // the gap is at most one percent
    assert_true(a.got.n_candidates > a.got.n_prims);
  }
}

static void every_statement_that_is_needed_has_a_kernel(void **state) {
  fixture *f = *state;
  asked a = {.options.worth = -0.5};
  const kiln_kernels k = kernels_of(f, layers_of(f, 3), &a);
  bool stored[64] = {false};
  assert_int_equal(k.launches.n, a.got.kernels.n);
  for (int i = 0; i < k.launches.n; i++) {
    const kiln_launch *l = &k.launches.data[i];
    for (int s = 0; s < l->n_stmts; s++)
      if (s == l->n_stmts - 1 || (l->stored >> s & 1)) {
        assert_false(stored[l->stmts[s]]); // by one kernel
        stored[l->stmts[s]] = true;
      }
  }
  assert_true(stored[14]); // the result
}

static void repeated_layers_are_solved_once(void **state) {
  fixture *f = *state;
  asked few = {.options.worth = KILN_USUAL_WORTH}, many = few;
  kernels_of(f, layers_of(f, 12), &few);
  kernels_of(f, layers_of(f, 36), &many);
  assert_true(many.got.n_parts > 2 * few.got.n_parts - 2);
  assert_true(many.got.n_solved <= few.got.n_solved + 1);
  assert_true(many.got.n_solved < many.got.n_parts);
}

// The solver's work is deterministic. When it is spent, the remaining parts keep the kernels of
// cost-driven fusion; limits between almost nothing and everything end at several places.
static void work_that_is_spent_leaves_connecting_s_kernels(void **state) {
  fixture *f = *state;
  const char *text = layers_of(f, 12);
  asked all = {.options.worth = -0.5}, again = all;
  kernels_of(f, text, &all);
  kernels_of(f, text, &again);
  assert_true(all.got.work > 0 && all.got.n_limited == 0);
  assert_true(all.got.n_rounds > 1);
  assert_true(again.got.work == all.got.work);
  int least = all.got.n_rounds;
  for (int part = 0; part < 4; part++) {
    asked some = all;
    some.options.work = 1 + all.got.work * part / 4;
    kernels_of(f, text, &some);
    assert_true((some.got.n_limited > 0) == (some.got.n_rounds < all.got.n_rounds));
    assert_true(some.got.bound_ns <= some.got.weight_ns * (1 + 1e-6));
    if (some.got.n_rounds < least) least = some.got.n_rounds;
  }
  assert_int_equal(least, 1);
}

// Maps at random, each of two of the last six results; five are results of the model.
static const char *maps_of(fixture *f, int n, uint64_t *seed) {
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  kiln_text_add(&t, "p { in f32 H0(16, 64) ");
  for (int i = 1; i <= n; i++)
    kiln_text_printf(&t, "%s f32 H%d(16, 64) ", i % 5 == 0 || i == n ? "out" : "temp", i);
  for (int i = 1; i <= n; i++) {
    const int from = i > 6 ? i - 6 : 0;
    kiln_text_printf(&t, "H%d(i0:16, i1:64) = exp(H%d(i0, i1)) - H%d(i1 %% 16, i0) ", i,
                     from + random_below(seed, i - from), from + random_below(seed, i - from));
  }
  kiln_text_add(&t, "}");
  return t.data;
}

// Limits of solver and pricing work hold for every graph: all programs that share a limit exceed it
// by one kernel and one solution at most, and results cost no more than those of cost-driven
// fusion.
static void work_of_random_graphs_is_bounded(void **state) {
  fixture *f = *state;
  uint64_t seed = 5;
  int n_capped = 0;
  for (int round = 0; round < 6; round++) {
    const char *text = maps_of(f, 20 + 10 * round, &seed);
    kiln_orchestrate_spent spent = {0}, again_spent = {0};
    const kiln_orchestrate_options options = {
        .worth = -0.5, .work = 1e5, .prices = 150, .spent = &spent};
    asked a = {.options = options}, again = a;
    again.options.spent = &again_spent;
    kernels_of(f, text, &a);
    assert_true(spent.work > 0 && spent.prices > 0);
    assert_true(spent.prices < options.prices + KILN_MAX_MEMBERS);
    assert_true(a.got.chosen_ns * (1 + options.worth) <= a.got.first_ns * (1 + 1e-6));
    n_capped += a.got.n_capped > 0;
    kernels_of(f, text, &again);
    assert_true(again_spent.work == spent.work && again_spent.prices == spent.prices);
    assert_string_equal(a.text, again.text);
    const kiln_orchestrate_spent all = {options.work, options.prices};
    spent = all; // by programs before it: nothing is left
    kernels_of(f, text, &a);
    assert_true(spent.work == all.work && spent.prices == all.prices && a.got.n_rounds == 0);
    assert_true(fabs(a.got.chosen_ns - a.got.first_ns) <= 1e-6 * a.got.first_ns);
  }
  assert_true(n_capped >= 3); // the limits are effective
}

static void choices_are_the_same_every_time(void **state) {
  fixture *f = *state;
  asked a = {.options.worth = -0.3}, b = a;
  kernels_of(f, layers_of(f, 4), &a);
  kernels_of(f, layers_of(f, 4), &b);
  assert_string_equal(a.text, b.text);
}

static void expect_in(const char *text, const char *part, bool is_there) {
  if ((strstr(text, part) != NULL) != is_there)
    fail_msg("%s \"%s\" in:\n%s", is_there ? "no" : "must not be", part, text);
}

static const char *report_of(fixture *f, asked *io, const char *text) {
  kiln_program *p = NULL;
  kiln_text out;
  kernels_of(f, text, io);
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  kiln_text_init(&out, &f->cx.perm);
  kiln_orchestration_report(&f->cx, p, &io->got, &out);
  return out.data;
}

static void caps_that_bite_are_reported(void **state) {
  fixture *f = *state;
  asked a = {0}, few = {.options.limits = kiln_orchestrate_limits()},
        deep = {.options.limits = kiln_orchestrate_limits()};
  expect_in(report_of(f, &a, layers_of(f, 2)), "capped", false);
  few.options.limits.candidates = 12;
  expect_in(report_of(f, &few, layers_of(f, 2)), "capped      1 parts have more candidates", true);
  deep.options.limits.states = 3; // of the sets that end in a prim
  expect_in(report_of(f, &deep, layers_of(f, 2)), "capped      1 parts have more candidates", true);
  assert_true(few.got.n_candidates == 12 && few.got.chosen_ns <= few.got.first_ns * (1 + 1e-6));
}

static void other_kernels_are_told_with_what_they_cost_more(void **state) {
  fixture *f = *state;
  asked a = {0};
  const char *text = report_of(f, &a, layers_of(f, 2));
  int n = 0;
  expect_in(text, "\n  or ", true);
  for (int i = 0; i < a.got.kernels.n; i++)
    for (int k = 0; k < a.got.kernels.data[i].others.n; k++, n++)
      assert_true(a.got.kernels.data[i].others.data[k].more_ns >
                  -1e-3); // the choice is the cheapest
  assert_true(n > 0);
}

static void edges_between_kernels_have_a_reason_with_a_price(void **state) {
  fixture *f = *state;
  asked a = {0};
  const kiln_kernels k = kernels_of(f, layers_of(f, 2), &a);
  int n = 0;
  for (int i = 0; i < k.edges.n; i++) {
    const char *reason = k.edges.data[i].reason;
    assert_true((reason == NULL) == (k.edges.data[i].level > 0));
    n += reason && strstr(reason, " us, the run is predicted to take ") != NULL;
  }
  assert_true(n > 0);
}

static void results_stay_within_a_limit_of_memory(void **state) {
  fixture *f = *state;
  asked a = {0}, b = {0};
  kernels_of(f, layers_of(f, 3), &a);
  assert_true(a.got.peak_bytes > 0);
  b.options.bytes = a.got.peak_bytes - 1;
  kernels_of(f, layers_of(f, 3), &b);
  assert_true(b.got.peak_bytes <= b.options.bytes && b.got.chosen_ns > a.got.chosen_ns);
  b = (asked){.options.bytes = 1000};
  assert_int_equal(schedule(f, layers_of(f, 3), &b, &(kiln_kernels){0}), KILN_BAD_INPUT);
  expect_in(kiln_diag_message(f->diag, 0),
            "orchestration: statements 0 to 14: error: memory limit: ", true);
}

static void given_kernels_are_priced(void **state) {
  fixture *f = *state;
  asked a = {0};
  kernels_of(f, layers_of(f, 1), &a);
  asked same = {.options.given = a.text}, apart = {.options.given = "0\n1\n2\n3\n4\n"};
  expect_in(report_of(f, &same, layers_of(f, 1)), "given", true);
  assert_true(fabs(same.got.chosen_ns - a.got.chosen_ns) < 1e-6 * a.got.chosen_ns);
  expect_in(report_of(f, &apart, layers_of(f, 1)), "% more than connecting", true);
}

static void a_choice_can_be_given_back(void **state) {
  fixture *f = *state;
  asked a = {.options.worth = -0.5};
  const kiln_kernels first = kernels_of(f, layers_of(f, 2), &a);
  asked b = {.options.given = a.text};
  const kiln_kernels again = kernels_of(f, layers_of(f, 2), &b);
  assert_int_equal(first.launches.n, again.launches.n);
  assert_int_equal(first.kernels.n, again.kernels.n);
  for (int i = 0; i < first.kernels.n; i++)
    assert_string_equal(first.kernels.data[i]->script, again.kernels.data[i]->script);
}

static void a_user_s_kernels_are_taken(void **state) {
  fixture *f = *state;
  asked a = {.options.given = "0 # the product alone\n\n1 2* 3\r\n4\n"};
  const kiln_kernels k = kernels_of(f, layers_of(f, 1), &a);
  assert_int_equal(k.launches.n, 3);
  assert_int_equal(k.launches.data[1].n_stmts, 3);
  assert_int_equal((int)k.launches.data[1].stored, 2);
  asked twice = {.options.given = "0\n1\n1 2 3\n2 3* 4\n"}; // 1 and 2 in two kernels
  assert_int_equal(schedule(f, layers_of(f, 1), &twice, &(kiln_kernels){0}), KILN_BAD_INPUT);
}

static const struct {
  const char *text, *message;
} mistakes[] = {
    {"0\n1\nx\n", "line 3: error: statement: must be the number of one, got \"x\""},
    {"0\n99\n", "line 2: error: statement: must be the number of one, got \"99\""},
    {"0\n2 1\n", "line 2: error: statements: must ascend, got 1 after 2"},
    {"1\n0\n", "line 1: error: kernel: its operands must be stored before, got no result of 0"},
    {"0 1\n2 3 4\n",
     "line 2: error: kernel: its operands must be stored before, got no result of 0"},
    {"0\n1\n2\n4\n",
     "line 4: error: kernel: its operands must be stored before, got no result of 3"},
    {"0\n1\n2 3\n", "error: result of statement 4: must be stored, got no kernel that does"},
    {"0\n1 2x 3\n", "line 2: error: statement: must be the number of one, got \"2x\""},
    {"0\n1\n-2\n", "line 3: error: statement: must be the number of one, got \"-2\""},
    {"0*1\n", "line 1: error: statement: must be the number of one, got \"0*1\""},
    {"0\n1 99999999999999999999 # far\n", "got \"99999999999999999999\""},
    {"\n# all\n0 1 2 3 3\n", "line 3: error: statements: must ascend, got 3 after 3"},
    {"", "line 0: error: result of statement 4: must be stored, got no kernel that does"},
    {"0\n0\n", "line 2: error: statement 0: must be stored by one kernel, got another"},
};

static void mistakes_are_named_with_their_line(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(mistakes); i++) {
    asked a = {.options.given = mistakes[i].text};
    kiln_diag *mine = kiln_diag_create(), *outer = f->cx.diag;
    f->cx.diag = mine;
    const kiln_status st = schedule(f, layers_of(f, 1), &a, &(kiln_kernels){0});
    f->cx.diag = outer;
    const char *got = kiln_diag_count(mine) ? kiln_diag_message(mine, 0) : "";
    if (st != KILN_BAD_INPUT || !strstr(got, mistakes[i].message))
      fail_msg("row %zu: must say \"%s\", got \"%s\"", i, mistakes[i].message, got);
    kiln_diag_destroy(mine);
  }
}

// Each of two products reads a result of the other's kernel.
static void kernels_of_a_file_that_wait_for_each_other_are_refused(void **state) {
  fixture *f = *state;
  static const char program[] =
      "p { in f32 X(64, 64) temp f32 A(64, 64) temp f32 B(64, 64) out f32 C(64, 64) out f32 D(64, "
      "64) "
      "A(i0:64, i1:64) = exp(X(i0, i1)) B(i0:64, i1:64) = sqrt(X(i0, i1)) "
      "C(i0:64, i1:64 | r0:64) +=! A(i0, r0) * B(r0, i1) "
      "D(i0:64, i1:64 | r0:64) max=! A(i0, r0) + B(r0, i1) }";
  asked apart = {.options.given = "0\n1\n2\n3\n"}, one = {.options.given = "0* 3\n1* 2\n"},
        other = {.options.given = "1* 2\n0* 3\n"};
  assert_int_equal(schedule(f, program, &apart, &(kiln_kernels){0}), KILN_OK);
  assert_int_equal(schedule(f, program, &one, &(kiln_kernels){0}), KILN_BAD_INPUT);
  assert_int_equal(schedule(f, program, &other, &(kiln_kernels){0}), KILN_BAD_INPUT);
  for (size_t i = 0; i < 2; i++)
    expect_in(kiln_diag_message(f->diag, i), "line 1: error: kernel: its operands must be stored",
              true);
}

// A line, or some characters, of |text| changed; lives in the fixture's arena.
static const char *mutate_lines(fixture *f, uint64_t *seed, const char *text) {
  kiln_text out;
  const char *lines[64];
  int n = 0;
  kiln_text_init(&out, &f->cx.perm);
  for (const char *at = text; *at && n < 64; at += strcspn(at, "\n"), at += *at == '\n')
    lines[n++] = at;
  if (n == 0) return "";
  const int from = random_below(seed, n), to = random_below(seed, n), how = random_below(seed, 4);
  for (int i = 0; i < n; i++) {
    const char *line = how == 0 && i == from ? lines[to]
                       : how == 0 && i == to ? lines[from]
                                             : lines[i];
    if (how == 1 && i == from) continue;
    kiln_text_add_bytes(&out, line, strcspn(line, "\n"));
    kiln_text_add(&out, how == 2 && i == from ? " " : "\n");
    if (how == 3 && i == from)
      kiln_text_printf(&out, "%d %d\n", random_below(seed, 12), random_below(seed, 12));
  }
  return out.data;
}

enum { ROUNDS = 150 };
static void changed_files_are_taken_or_refused_with_a_line(void **state) {
  (void)state;
  static const char begin[] = "0\n1* 2* 3\n4\n5\n6 7 8 9\n"; // two layers
  uint64_t seed = 23;
  int n_taken = 0;
  for (int round = 0; round < ROUNDS; round++) {
    void *own = NULL;
    assert_int_equal(fixture_setup(&own), 0);
    fixture *f = own;
    const char *text = mutate_lines(f, &seed, begin);
    while (random_below(&seed, 2)) text = mutate_lines(f, &seed, text);
    if (random_below(&seed, 2)) {
      char *changed = kiln_arena_alloc(&f->cx.perm, strlen(text) + 64);
      random_mutation(&seed, text, changed, strlen(text) + 64);
      text = changed;
    }
    asked a = {.options.given = text};
    const kiln_status st = schedule(f, layers_of(f, 2), &a, &(kiln_kernels){0});
    n_taken += st == KILN_OK;
    if (st != KILN_OK &&
        (st != KILN_BAD_INPUT || !strstr(kiln_diag_message(f->diag, 0), ": line ")))
      fail_msg("round %d, status %d of:\n%s", round, st, text);
    fixture_teardown(&own);
  }
  assert_true(n_taken > ROUNDS / 20 && n_taken < ROUNDS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(chosen_kernels_cost_no_more_than_connecting_s),
      FIXTURE_TEST(every_statement_that_is_needed_has_a_kernel),
      FIXTURE_TEST(repeated_layers_are_solved_once),
      FIXTURE_TEST(work_that_is_spent_leaves_connecting_s_kernels),
      FIXTURE_TEST(work_of_random_graphs_is_bounded),
      FIXTURE_TEST(choices_are_the_same_every_time),
      FIXTURE_TEST(caps_that_bite_are_reported),
      FIXTURE_TEST(other_kernels_are_told_with_what_they_cost_more),
      FIXTURE_TEST(edges_between_kernels_have_a_reason_with_a_price),
      FIXTURE_TEST(results_stay_within_a_limit_of_memory),
      FIXTURE_TEST(given_kernels_are_priced),
      FIXTURE_TEST(a_choice_can_be_given_back),
      FIXTURE_TEST(a_user_s_kernels_are_taken),
      FIXTURE_TEST(mistakes_are_named_with_their_line),
      FIXTURE_TEST(kernels_of_a_file_that_wait_for_each_other_are_refused),
      FIXTURE_TEST(changed_files_are_taken_or_refused_with_a_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
