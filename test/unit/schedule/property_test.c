// Random programs with random sequences of all primitives: an accepted sequence gives the reference
// interpreter's results, verifies, and replays to identical text. A failure is shrunk to the fewest
// lines that still fail.
#include "unit/schedule/cases.h"

#ifdef __SANITIZE_ADDRESS__
enum { CASES = 1500 };
#else
enum { CASES = 20000 };
#endif
enum { FRACTION = 8 }; // one in so many cases is checked at each step

// The error of the remaining lines; NULL if they are refused, or right.
static const char *outcome(const test_case *c, test_kernel *k, kiln_schedule *s, kiln_instr *i) {
  open_case(c, k, s, i);
  for (int l = 0; l < c->n_lines; l++)
    if (!c->left_out[l] && kiln_schedule_replay(s, c->lines[l]) != KILN_OK) return NULL;
  if (kiln_loops_verify(&k->cx, s->loops) != KILN_OK) return kernel_message(k);
  return kernel_try(k, s->loops);
}

static bool fails(const test_case *c) {
  test_kernel k;
  kiln_schedule s;
  kiln_instr instr;
  const bool is_wrong = outcome(c, &k, &s, &instr) != NULL;
  kernel_close(&k);
  return is_wrong;
}

static void report(test_case *c) {
  for (bool progress = true; progress;) {
    progress = false;
    for (int l = c->n_lines - 1; l >= 0; l--) {
      if (c->left_out[l]) continue;
      c->left_out[l] = true;
      if (fails(c)) progress = true;
      else c->left_out[l] = false;
    }
  }
  test_kernel k;
  kiln_schedule s;
  kiln_instr instr;
  const char *wrong = outcome(c, &k, &s, &instr);
  fprintf(stderr, "%s\n", kernel_text(&k, s.loops)); // longer than a message of cmocka may be
  fail_msg("case %" PRIu64 ": %s\nprogram: %s\nscript:\n%s", c->number,
           wrong ? wrong : "wrong with all lines only", c->program, kiln_schedule_script(&s));
}

typedef struct runner {
  int accepted[N_STEPS];
  int n_cases, n_steps;
} runner;

static void check_case(const walker *w, test_case *c) {
  if (kiln_loops_verify(&w->k->cx, w->s->loops) != KILN_OK || kernel_try(w->k, w->s->loops))
    report(c);
}

static void try_step(walker *w, test_case *c, bool thorough) {
  const char *before = thorough ? kernel_text(w->k, w->s->loops) : NULL;
  const bool any = take_step(w, c);
  if (!thorough) return;
  if (any) check_case(w, c);
  else assert_string_equal(kernel_text(w->k, w->s->loops), before);
}

// A script has the same result in a fresh context.
static void check_elsewhere(const walker *w, const test_case *c) {
  test_kernel fresh;
  kiln_schedule again;
  kiln_instr instr;
  open_case(c, &fresh, &again, &instr);
  assert_int_equal(kiln_schedule_replay(&again, kiln_schedule_script(w->s)), KILN_OK);
  assert_string_equal(kernel_text(&fresh, again.loops), kernel_text(w->k, w->s->loops));
  kernel_close(&fresh);
}

static void run_case(runner *r, uint64_t number) {
  test_case c;
  test_kernel k;
  kiln_schedule s;
  kiln_instr instr;
  walker w = begin_case(number, &c, &k, &s, &instr);
  const bool thorough = !pick(&w, FRACTION);
  for (int i = 0; i < STEPS; i++) try_step(&w, &c, thorough);
  check_case(&w, &c);
  if (thorough) {
    kernel_check_replay(&k, &s);
    check_elsewhere(&w, &c);
  }
  kernel_close(&k);
  r->n_cases++;
  r->n_steps += c.n_lines;
  for (int i = 0; i < N_STEPS; i++) r->accepted[i] += w.accepted[i];
}

static void accepted_steps_keep_the_meaning(void **state) {
  (void)state;
  const char *seed = getenv("KILN_TEST_SEED"), *cases = getenv("KILN_TEST_CASES");
  const int n = cases ? atoi(cases) : CASES;
  const uint64_t from = seed ? strtoull(seed, NULL, 10) : 1;
  runner r = {0};
  for (int i = 0; i < n; i++) run_case(&r, from + (uint64_t)i);
  print_message("%d cases, %d steps accepted\n", r.n_cases, r.n_steps);
  for (size_t i = 0; i < KILN_LEN(steps); i++) {
    print_message("%6d %s\n", r.accepted[i], steps[i].name);
    if (n >= CASES && r.accepted[i] < steps[i].at_least * CASES / 20000)
      fail_msg("%s was accepted %d times only", steps[i].name, r.accepted[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(accepted_steps_keep_the_meaning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
