// The binary program: optima against brute force, prims executed several times, cyclic waits,
// limits.
#include "orchestrate/candidates.h"
#include "orchestrate/program.h"
#include "unit/fixture.h"
#include "unit/orchestrate/graphs.h"

#include <math.h>

enum { MAX_KERNELS = 128 };

typedef struct problem {
  kiln_choice c;
  kiln_choice_kernel kernels[MAX_KERNELS];
  int first[MAX_KERNELS];
  kiln_choice_memory memory; // in use when c.memory says so
  double bytes[MAX_KERNELS];
  int home[MAX_KERNELS];
} problem;

static kiln_bits *set_of(fixture *f, int n, unsigned members) {
  kiln_bits *b = kiln_bits_make(&f->cx.perm, n);
  b->words[0] = members;
  return b;
}

// Results of other prims that |prims| read.
static const kiln_bits *taken_by(fixture *f, const kiln_prim_graph *g, const kiln_bits *prims) {
  kiln_bits *takes = kiln_bits_make(&f->cx.perm, g->n);
  for (int i = 0; i < g->n; i++)
    if (kiln_bits_has(prims, i)) kiln_bits_add(takes, g->reads[i]);
  kiln_bits_remove(takes, prims);
  return takes;
}

static void begin(problem *p, const kiln_prim_graph *g) {
  memset(p, 0, sizeof *p);
  p->c = (kiln_choice){.n_prims = g->n,
                       .kernels = p->kernels,
                       .needed = g->needed,
                       .first = p->first,
                       .nodes = 100000};
}

static void add(fixture *f, problem *p, const kiln_prim_graph *g, const kiln_bits *prims,
                const kiln_bits *results, double cost) {
  assert_true(p->c.n_kernels < MAX_KERNELS);
  p->kernels[p->c.n_kernels++] = (kiln_choice_kernel){
      .cost = cost, .prims = prims, .results = results, .takes = taken_by(f, g, prims)};
}

static kiln_choice_solution solve(fixture *f, const kiln_prim_graph *g, problem *p) {
  kiln_choice_solution a;
  p->c.live = kiln_prim_graph_live(&f->cx.perm, g);
  if (kiln_choice_solve(&f->cx, &p->c, &a) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  return a;
}

static int count_runs(const problem *p, const kiln_choice_solution *a, int prim) {
  int n = 0;
  for (int i = 0; i < a->n; i++) n += kiln_bits_has(p->kernels[a->kernels[i]].prims, prim);
  return n;
}

static void cheap_slices_run_what_they_cut_three_times(void **state) {
  fixture *f = *state;
  const kiln_prim_graph *g = attention_graph(&f->cx.perm);
  kiln_candidate_limits limits = {.states = 1000,
                                  .prims = 12,
                                  .candidates = MAX_KERNELS,
                                  .results = 1,
                                  .may_be = product_is_alone};
  const kiln_candidates c = kiln_candidates_of(&f->cx.perm, &f->cx.scratch, g, &limits);
  problem p;
  begin(&p, g);
  for (int i = 0; i < c.all.n; i++) { // a launch costs 5, a prim 1, to hand on the whole tensor 4
    const kiln_kernel_set *k = &c.all.data[i];
    const double work = kiln_bits_count(k->prims) + (kiln_bits_has(k->results, 0) ? 4 : 0);
    add(f, &p, g, k->prims, k->results, 5 + work);
    if (kiln_bits_count(k->prims) == 1) p.first[p.c.n_first++] = i;
  }
  const kiln_choice_solution a = solve(f, g, &p);
  assert_int_equal(count_runs(&p, &a, 0), 3);
  assert_false(a.is_first);
  assert_true(a.bound > a.cost * (1 - 1e-9));
  assert_int_equal(a.n, 7); // three slices, two products, the softmax, the moves
}

static void kernels_that_wait_for_each_other_are_refused(void **state) {
  fixture *f = *state;
  kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 4);
  problem p;
  kiln_prim_graph_edge(g, 0, 1);
  kiln_prim_graph_edge(g, 2, 3);
  kiln_bits_set(g->needed, 1);
  kiln_bits_set(g->needed, 3);
  begin(&p, g);
  for (int i = 0; i < 4; i++) {
    add(f, &p, g, set_of(f, 4, 1u << i), set_of(f, 4, 1u << i), 3);
    p.first[p.c.n_first++] = i;
  }
  add(f, &p, g, set_of(f, 4, 9), set_of(f, 4, 9), 1); // 0 and 3, which takes 2
  add(f, &p, g, set_of(f, 4, 6), set_of(f, 4, 6), 1); // 1, which takes 0, and 2
  const kiln_choice_solution a = solve(f, g, &p);
  assert_true(a.n_cycles > 0);
  assert_int_equal(a.n, 3); // 2 alone, so that 0 and 3 can run, and then 1 with 2 once more
  assert_true(fabs(a.cost - 5) < 1e-9);
}

// Each result takes one byte.
static void limit_memory(problem *p, double limit) {
  for (int i = 0; i < p->c.n_prims; i++) p->bytes[i] = 1, p->home[i] = i;
  p->memory = (kiln_choice_memory){.limit = limit, .bytes = p->bytes, .home = p->home};
  p->c.memory = &p->memory;
}

static void results_are_in_memory_until_they_are_taken(void **state) {
  fixture *f = *state;
  static const edge edges[] = {{0, 1}, {1, 2}, {2, 3}, {0, 3}};
  const kiln_prim_graph *g = graph_of(&f->cx.perm, 4, 4, edges);
  problem p;
  const int order[] = {0, 1, 2, 3};
  begin(&p, g);
  for (int i = 0; i < 4; i++) add(f, &p, g, set_of(f, 4, 1u << i), set_of(f, 4, 1u << i), 1);
  limit_memory(&p, 0);
  assert_true(kiln_choice_peak(&f->cx, &p.c, 4, order) == 3); // 0, 1 and 2; 0, 2 and 3
  p.bytes[0] = 10;
  assert_true(kiln_choice_peak(&f->cx, &p.c, 4, order) == 12);
  p.home[1] = 2; // 1 is a piece of 2
  p.bytes[2] = 5;
  assert_true(kiln_choice_peak(&f->cx, &p.c, 4, order) == 16); // 0, 2, 3
  p.memory.passing = 100;
  p.memory.n_before = 1;
  p.memory.before = &(struct kiln_choice_before){1000, set_of(f, 4, 1)}; // 0 alone reads it
  assert_true(kiln_choice_peak(&f->cx, &p.c, 4, order) == 1110);
}

static void a_limit_of_memory_is_kept(void **state) {
  fixture *f = *state;
  static const edge edges[] = {{0, 1}, {1, 2}};
  const kiln_prim_graph *g = graph_of(&f->cx.perm, 3, 2, edges);
  problem p;
  begin(&p, g);
  for (int i = 0; i < 3; i++) {
    add(f, &p, g, set_of(f, 3, 1u << i), set_of(f, 3, 1u << i), 1);
    p.first[p.c.n_first++] = i;
  }
  add(f, &p, g, set_of(f, 3, 7), set_of(f, 3, 4), 10);
  limit_memory(&p, 0);
  assert_true(fabs(solve(f, g, &p).cost - 3) < 1e-9);
  p.memory.limit = 2; // two of the three at once
  assert_true(fabs(solve(f, g, &p).cost - 3) < 1e-9);
  p.memory.limit = 1;
  assert_true(fabs(solve(f, g, &p).cost - 10) < 1e-9);
  p.memory.limit = 0.5;
  kiln_choice_solution a;
  assert_int_equal(kiln_choice_solve(&f->cx, &p.c, &a), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(f->diag, 0), "memory limit: kernels must keep at most"));
}

static void what_is_first_must_give_the_results(void **state) {
  fixture *f = *state;
  static const edge edges[] = {{0, 1}};
  const kiln_prim_graph *g = graph_of(&f->cx.perm, 2, 1, edges);
  problem p;
  kiln_choice_solution a;
  begin(&p, g);
  add(f, &p, g, set_of(f, 2, 2), set_of(f, 2, 2), 1);
  p.c.n_first = 1;
  assert_int_equal(kiln_choice_solve(&f->cx, &p.c, &a), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(f->diag, 0), "must give all that is needed"));
}

static bool fits(fixture *f, const problem *p, int n, const int *kernels) {
  return !p->c.memory || kiln_choice_peak(&f->cx, &p->c, n, kernels) <= p->memory.limit;
}

// The least cost of all executable sets of kernels that store the needed results.
static double brute_force(fixture *f, const problem *p) {
  double least = INFINITY;
  for (unsigned set = 0; set < 1u << p->c.n_kernels; set++) {
    double cost = 0;
    int n = 0, chosen[MAX_KERNELS];
    kiln_bits *stored = kiln_bits_make(&f->cx.scratch, p->c.n_prims);
    for (int k = 0; k < p->c.n_kernels; k++)
      if (set >> k & 1) {
        chosen[n++] = k;
        cost += p->kernels[k].cost;
        kiln_bits_add(stored, p->kernels[k].results);
      }
    if (cost < least && kiln_bits_is_subset(p->c.needed, stored) &&
        kiln_choice_order(&f->cx, &p->c, n, chosen) == n && fits(f, p, n, chosen))
      least = cost;
  }
  return least;
}

// Of kernels of one result each, listed by their last prims, the order is the program's.
static void random_limits_of_memory_are_kept_as_by_brute_force(void **state) {
  fixture *f = *state;
  uint64_t seed = 5;
  int n_impossible = 0, n_tight = 0;
  for (int round = 0; round < 80; round++) {
    const kiln_mark mark = kiln_arena_mark(&f->cx.scratch);
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 4 + random_below(&seed, 3));
    problem p;
    kiln_choice_solution a;
    begin(&p, g);
    for (int i = 0; i < g->n; i++)
      for (int j = i + 1; j < g->n; j++)
        if (random_below(&seed, 2) == 0) kiln_prim_graph_edge(g, i, j);
    kiln_bits_set(g->needed, g->n - 1);
    const kiln_candidate_limits limits = {
        .states = 1000, .prims = 5, .candidates = 1000, .results = 1};
    const kiln_candidates c = kiln_candidates_of(&f->cx.perm, &f->cx.scratch, g, &limits);
    for (int i = 0; i < g->n; i++) {
      add(f, &p, g, c.all.data[i].prims, c.all.data[i].results, 3 + random_below(&seed, 9));
      p.first[p.c.n_first++] = p.c.n_kernels - 1;
      for (int k = g->n; k < c.all.n; k++)
        if (kiln_bits_has(c.all.data[k].results, i) && random_below(&seed, 3) == 0 &&
            p.c.n_kernels < 13)
          add(f, &p, g, c.all.data[k].prims, c.all.data[k].results, 9 + random_below(&seed, 20));
    }
    const double free = brute_force(f, &p);
    limit_memory(&p, 3 + random_below(&seed, 3));
    for (int i = 0; i < g->n; i++) p.bytes[i] = 1 + random_below(&seed, 2);
    const double least = brute_force(f, &p);
    p.c.live = kiln_prim_graph_live(&f->cx.perm, g);
    const kiln_status st = kiln_choice_solve(&f->cx, &p.c, &a);
    n_impossible += !isfinite(least);
    n_tight += isfinite(least) && least > free;
    assert_int_equal(st, isfinite(least) ? KILN_OK : KILN_BAD_INPUT);
    if (st == KILN_OK && fabs(a.cost - least) > 1e-9)
      fail_msg("round %d: %g, must be %g", round, a.cost, least);
    if (st == KILN_OK) assert_true(fits(f, &p, a.n, a.kernels));
    kiln_arena_rewind(&f->cx.scratch, mark);
  }
  if (n_impossible < 3 || n_tight < 3) fail_msg("%d impossible, %d tight", n_impossible, n_tight);
}

static void random_problems_are_solved_as_by_brute_force(void **state) {
  fixture *f = *state;
  uint64_t seed = 3;
  for (int round = 0; round < 80; round++) {
    const kiln_mark mark = kiln_arena_mark(&f->cx.scratch);
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 3 + random_below(&seed, 4));
    problem p;
    begin(&p, g);
    for (int i = 0; i < g->n; i++)
      for (int j = i + 1; j < g->n; j++)
        if (random_below(&seed, 2) == 0) kiln_prim_graph_edge(g, i, j);
    for (int i = 0; i < g->n; i++) {
      if (i == g->n - 1 || random_below(&seed, 4) == 0) kiln_bits_set(g->needed, i);
      add(f, &p, g, set_of(f, g->n, 1u << i), set_of(f, g->n, 1u << i), 3 + random_below(&seed, 9));
      p.first[p.c.n_first++] = i;
    }
    const kiln_candidate_limits limits = {
        .states = 1000, .prims = 5, .candidates = 1000, .results = 3, .several_ends = true};
    const kiln_candidates c = kiln_candidates_of(&f->cx.perm, &f->cx.scratch, g, &limits);
    for (int i = 0; i < 8 && c.all.n > g->n; i++) {
      const kiln_kernel_set *k = &c.all.data[g->n + random_below(&seed, c.all.n - g->n)];
      add(f, &p, g, k->prims, k->results, 3 + random_below(&seed, 12));
    }
    const double least = brute_force(f, &p);
    const kiln_choice_solution a = solve(f, g, &p);
    if (fabs(a.cost - least) > 1e-9) fail_msg("round %d: %g, must be %g", round, a.cost, least);
    if (a.bound > least + 1e-6) fail_msg("round %d: bound %g of %g", round, a.bound, least);
    for (int at = 0; at < a.n; at++)
      for (int k = 0; k < p.c.n_kernels; k++)
        if (kiln_choice_extra_cost(&f->cx, &p.c, a.n, a.kernels, at, k) < -1e-9)
          fail_msg("round %d: kernel %d in place of %d would cost less", round, k, a.kernels[at]);
    kiln_arena_rewind(&f->cx.scratch, mark);
  }
}

// A chain of three that runs as {0, 1} and {2}.
static void another_kernel_costs_what_it_replaces_less_and_what_is_missing_more(void **state) {
  fixture *f = *state;
  static const edge edges[] = {{0, 1}, {1, 2}};
  const kiln_prim_graph *g = graph_of(&f->cx.perm, 3, 2, edges);
  problem p;
  begin(&p, g);
  add(f, &p, g, set_of(f, 3, 1), set_of(f, 3, 1), 10); // 0
  add(f, &p, g, set_of(f, 3, 2), set_of(f, 3, 2), 10); // 1
  add(f, &p, g, set_of(f, 3, 4), set_of(f, 3, 4), 10); // 2
  add(f, &p, g, set_of(f, 3, 3), set_of(f, 3, 2), 12); // 0 and 1
  add(f, &p, g, set_of(f, 3, 6), set_of(f, 3, 4), 19); // 1 and 2
  add(f, &p, g, set_of(f, 3, 7), set_of(f, 3, 4), 25); // all
  add(f, &p, g, set_of(f, 3, 6), set_of(f, 3, 4), INFINITY);
  const int chosen[] = {3, 2};
  static const struct {
    int at, other;
    double more;
  } cases[] = {
      {1, 4, 19 + 10 - 22}, // 0 must be stored, and nobody needs 1 any more
      {1, 5, 25 - 22},      {0, 1, 10 + 10 - 12}, {0, 5, 25 - 22}, // which stores 2 as well
      {1, 6, INFINITY},
  };
  p.c.stores_once = true;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    const double more =
        kiln_choice_extra_cost(&f->cx, &p.c, 2, chosen, cases[i].at, cases[i].other);
    if (more != cases[i].more && !(fabs(more - cases[i].more) < 1e-9))
      fail_msg("case %zu: %g, must be %g", i, more, cases[i].more);
  }
}

// Sets of three and four of |n| consecutive independent prims, at prices that need branching.
// Initially each prim is a kernel.
static void make_hard(fixture *f, problem *p, const kiln_prim_graph *g, uint64_t *seed) {
  begin(p, g);
  for (int i = 0; i < g->n; i++) {
    kiln_bits_set(g->needed, i);
    add(f, p, g, set_of(f, g->n, 1u << i), set_of(f, g->n, 1u << i), 50);
    p->first[p->c.n_first++] = i;
  }
  while (p->c.n_kernels < MAX_KERNELS - 20) {
    unsigned set = 0;
    for (int k = 3 + random_below(seed, 2); k > 0; k--) set |= 1u << random_below(seed, g->n);
    const kiln_bits *prims = set_of(f, g->n, set);
    add(f, p, g, prims, prims, 30 + random_below(seed, 5));
  }
}

static void check_limited(const kiln_choice_solution *limited, double best) {
  if (limited->cost < best - 1e-6 || limited->cost > 50 * 20 || limited->bound > best + 1e-6)
    fail_msg("cost %g, bound %g, must be on both sides of %g", limited->cost, limited->bound, best);
}

static void a_limit_leaves_the_best_so_far_with_a_gap(void **state) {
  fixture *f = *state;
  uint64_t seed = 3;
  int n_limited = 0, n_timed = 0;
  for (int round = 0; round < 3; round++) {
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 20);
    problem p;
    make_hard(f, &p, g, &seed);
    const kiln_choice_solution best = solve(f, g, &p);
    assert_false(best.is_limited);
    assert_true(best.bound > best.cost * (1 - 1e-6));
    p.c.nodes = 1;
    const kiln_choice_solution few = solve(f, g, &p);
    check_limited(&few, best.cost);
    n_limited += few.is_limited && few.bound < few.cost - 1e-6;
    p.c.nodes = 100000;
    for (double seconds = 1e-6; seconds < 0.1;
         seconds *= 1.5) { // it ends in each part of the solver
      p.c.seconds = seconds;
      const kiln_choice_solution timed = solve(f, g, &p);
      check_limited(&timed, best.cost);
      n_timed += timed.is_limited;
      assert_int_equal(kiln_choice_order(&f->cx, &p.c, timed.n, timed.kernels), timed.n);
    }
  }
  if (n_limited == 0 || n_timed == 0) fail_msg("%d limited, %d timed", n_limited, n_timed);
}

// The remaining work also limits a running solution: its tree has as many nodes as fit.
static void work_that_is_left_ends_a_solution(void **state) {
  fixture *f = *state;
  uint64_t seed = 3;
  int n_limited = 0;
  for (int round = 0; round < 3; round++) {
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 20);
    problem p;
    make_hard(f, &p, g, &seed);
    const kiln_choice_solution best = solve(f, g, &p);
    p.c.nodes = 1;
    const kiln_choice_solution one = solve(f, g, &p);
    p.c.nodes = 100000;
    p.c.work = 1;
    const kiln_choice_solution little = solve(f, g, &p);
    check_limited(&little, best.cost);
    assert_true(little.work == one.work && little.cost == one.cost);
    n_limited += little.is_limited && little.work < best.work;
    p.c.work = 1e12;
    assert_true(solve(f, g, &p).work == best.work);
  }
  assert_true(n_limited > 0);
}

// The initial solution is the answer if a limit prevents a better one, and more expensive ones are
// not searched.
static void the_solver_begins_with_what_is_known(void **state) {
  fixture *f = *state;
  uint64_t seed = 3;
  for (int round = 0; round < 3; round++) {
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 20);
    problem p;
    make_hard(f, &p, g, &seed);
    const kiln_choice_solution best = solve(f, g, &p);
    memcpy(p.first, best.kernels, sizeof(int) * (size_t)best.n);
    p.c.n_first = best.n;
    p.c.nodes = 1;
    p.c.seconds = 1e-6;
    const kiln_choice_solution again = solve(f, g, &p);
    assert_true(again.is_first && fabs(again.cost - best.cost) < 1e-6);
  }
}

static void answers_are_the_same_every_time(void **state) {
  fixture *f = *state;
  const kiln_prim_graph *g = branches_graph(&f->cx.perm, 3, 3);
  const kiln_candidate_limits limits = {
      .states = 1000, .prims = 6, .candidates = MAX_KERNELS, .results = 1};
  const kiln_candidates c = kiln_candidates_of(&f->cx.perm, &f->cx.scratch, g, &limits);
  problem p;
  begin(&p, g);
  for (int i = 0; i < c.all.n; i++) { // many choices of equal cost
    add(f, &p, g, c.all.data[i].prims, c.all.data[i].results,
        2 + kiln_bits_count(c.all.data[i].prims) % 2);
    if (i < g->n) p.first[p.c.n_first++] = i;
  }
  const kiln_choice_solution a = solve(f, g, &p), b = solve(f, g, &p);
  assert_int_equal(a.n, b.n);
  for (int i = 0; i < a.n; i++) assert_int_equal(a.kernels[i], b.kernels[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(cheap_slices_run_what_they_cut_three_times),
      FIXTURE_TEST(kernels_that_wait_for_each_other_are_refused),
      FIXTURE_TEST(results_are_in_memory_until_they_are_taken),
      FIXTURE_TEST(a_limit_of_memory_is_kept),
      FIXTURE_TEST(random_limits_of_memory_are_kept_as_by_brute_force),
      FIXTURE_TEST(what_is_first_must_give_the_results),
      FIXTURE_TEST(random_problems_are_solved_as_by_brute_force),
      FIXTURE_TEST(another_kernel_costs_what_it_replaces_less_and_what_is_missing_more),
      FIXTURE_TEST(a_limit_leaves_the_best_so_far_with_a_gap),
      FIXTURE_TEST(work_that_is_left_ends_a_solution),
      FIXTURE_TEST(the_solver_begins_with_what_is_known),
      FIXTURE_TEST(answers_are_the_same_every_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
