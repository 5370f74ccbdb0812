// Execution states and the candidates between them: known numbers, and properties of candidates.
#include "orchestrate/candidates.h"
#include "unit/fixture.h"
#include "unit/orchestrate/graphs.h"

static const kiln_candidate_limits korch = {
    .states = 10000, .prims = 64, .candidates = 100000, .results = 1};

static kiln_candidates candidates_of(fixture *f, const kiln_prim_graph *g,
                                     const kiln_candidate_limits *limits) {
  return kiln_candidates_of(&f->cx.perm, &f->cx.scratch, g, limits);
}

static void attention_has_26_states_and_21_candidates(void **state) {
  fixture *f = *state;
  kiln_candidate_limits limits = korch;
  limits.may_be = product_is_alone;
  const kiln_candidates c = candidates_of(f, attention_graph(&f->cx.perm), &limits);
  assert_int_equal(c.n_states, 26);
  assert_int_equal(c.all.n, 21);
  assert_false(c.states_capped || c.candidates_capped);
}

static void a_decode_head_of_four_branches_has_626_states_and_665_candidates(void **state) {
  fixture *f = *state;
  const kiln_candidates c = candidates_of(f, branches_graph(&f->cx.perm, 4, 4), &korch);
  assert_int_equal(c.n_states, 626);
  assert_int_equal(c.all.n, 665);
  assert_false(c.states_capped || c.candidates_capped);
}

static void five_branches_of_three_have_1025_states_and_1054_candidates(void **state) {
  fixture *f = *state;
  const kiln_candidates c = candidates_of(f, branches_graph(&f->cx.perm, 5, 3), &korch);
  assert_int_equal(c.n_states, 1025);
  assert_int_equal(c.all.n, 1054);
}

static void a_chain_wider_than_a_word_has_a_state_a_prim(void **state) {
  fixture *f = *state;
  kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 181);
  kiln_candidate_limits limits = korch;
  limits.prims = 3;
  for (int i = 0; i + 1 < g->n; i++) kiln_prim_graph_edge(g, i, i + 1);
  const kiln_candidates c = candidates_of(f, g, &limits);
  assert_int_equal(c.n_states, 182);
  assert_int_equal(c.all.n, 181 + 180 + 179);
}

// Whether a path leads out of |prims| and back, by all pairs.
static bool is_convex(fixture *f, const kiln_prim_graph *g, const kiln_bits *prims) {
  kiln_bits *behind = kiln_bits_make(&f->cx.perm, g->n); // of prims outside, reached from them
  for (int i = 0; i < g->n; i++) {
    const bool reached = kiln_bits_meet(g->reads[i], prims) || kiln_bits_meet(g->reads[i], behind);
    if (kiln_bits_has(prims, i) && kiln_bits_meet(g->reads[i], behind)) return false;
    if (!kiln_bits_has(prims, i) && reached) kiln_bits_set(behind, i);
  }
  return true;
}

// By brute force: the convex sets of one end.
static int count_single_ends(fixture *f, const kiln_prim_graph *g) {
  int n = 0;
  for (unsigned set = 1; set < 1u << g->n; set++) {
    kiln_bits *prims = kiln_bits_make(&f->cx.perm, g->n);
    int ends = 0;
    prims->words[0] = set;
    for (int i = 0; i < g->n; i++)
      ends += kiln_bits_has(prims, i) && !kiln_bits_meet(g->readers[i], prims);
    n += ends == 1 && is_convex(f, g, prims);
  }
  return n;
}

static void candidates_are_all_convex_sets_of_one_end(void **state) {
  fixture *f = *state;
  uint64_t seed = 7;
  for (int round = 0; round < 60; round++) {
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 2 + random_below(&seed, 9));
    for (int i = 0; i < g->n; i++)
      for (int j = i + 1; j < g->n; j++)
        if (random_below(&seed, 3) == 0) kiln_prim_graph_edge(g, i, j);
    const kiln_candidates c = candidates_of(f, g, &korch);
    for (int i = 0; i < c.all.n; i++) assert_true(is_convex(f, g, c.all.data[i].prims));
    assert_int_equal(c.all.n, count_single_ends(f, g));
  }
}

// Sets with one end are enumerated from their end, others between states: both ways must agree.
static void sets_of_one_end_are_differences_of_states(void **state) {
  fixture *f = *state;
  uint64_t seed = 11;
  for (int round = 0; round < 40; round++) {
    kiln_prim_graph *g = kiln_prim_graph_make(&f->cx.perm, 2 + random_below(&seed, 9));
    for (int i = 0; i < g->n; i++)
      for (int j = i + 1; j < g->n; j++)
        if (random_below(&seed, 3) == 0) kiln_prim_graph_edge(g, i, j);
    kiln_candidate_limits limits = korch;
    limits.prims = 1 + (int)random_below(&seed, 6);
    limits.results = 2;
    const kiln_candidates ends = candidates_of(f, g, &limits);
    limits.several_ends = true;
    const kiln_candidates between = candidates_of(f, g, &limits);
    int n = 0;
    for (int i = 0; i < between.all.n; i++) {
      const kiln_kernel_set *x = &between.all.data[i];
      bool is_there = false;
      for (int k = 0; k < ends.all.n; k++)
        is_there |= kiln_bits_equal(ends.all.data[k].prims, x->prims) &&
                    kiln_bits_equal(ends.all.data[k].results, x->results);
      n += is_there;
      if (!is_there) assert_true(kiln_bits_count(x->results) != 1);
    }
    assert_int_equal(n, ends.all.n);
  }
}

static void what_others_read_may_be_stored_besides(void **state) {
  fixture *f = *state;
  static const edge edges[] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  const kiln_prim_graph *g = graph_of(&f->cx.perm, 4, 4, edges);
  kiln_candidate_limits limits = korch;
  const int single = candidates_of(f, g, &limits).all.n;
  limits.results = 2;
  const kiln_candidates c = candidates_of(f, g, &limits);
  assert_int_equal(c.all.n, single + 2); // {0, 1} and {0, 2} store 0 as well
  limits.several_ends = true;
  assert_int_equal(candidates_of(f, g, &limits).all.n, single + 2 + 1); // {0, 1, 2}: 1 and 2
}

static void caps_are_said(void **state) {
  fixture *f = *state;
  const kiln_prim_graph *g = branches_graph(&f->cx.perm, 4, 4);
  kiln_candidate_limits limits = korch;
  limits.states = 100;
  kiln_candidates c = candidates_of(f, g, &limits);
  assert_true(c.states_capped &&
              c.candidates_capped); // more than 100 sets end in the last prim, too
  assert_int_equal(c.n_states, 100);
  limits.states = 610; // 5^4 sets are all there, states less one
  c = candidates_of(f, g, &limits);
  assert_true(c.states_capped && c.candidates_capped);
  limits.states = 625;
  c = candidates_of(f, g, &limits);
  assert_true(c.states_capped && !c.candidates_capped);
  assert_int_equal(c.all.n, 665);
  limits = korch;
  limits.candidates = 50;
  c = candidates_of(f, g, &limits);
  assert_true(c.candidates_capped);
  assert_int_equal(c.all.n, 50);
  for (int i = 0; i < g->n; i++) assert_true(kiln_bits_has(c.all.data[i].prims, i)); // each alone
}

// The limit is shared: later ends get their sets, too.
static void each_end_has_a_share_of_the_cap(void **state) {
  fixture *f = *state;
  enum { LENGTH = 28 };
  kiln_candidate_limits limits = korch;
  limits.candidates = 4 * LENGTH;
  for (int branches = 1; branches <= 4; branches++) {
    const kiln_prim_graph *g = branches_graph(&f->cx.perm, branches, LENGTH / branches);
    const kiln_candidates c = candidates_of(f, g, &limits);
    kiln_bits *ends = kiln_bits_make(&f->cx.perm, g->n);
    for (int i = 0; i < c.all.n; i++)
      if (kiln_bits_count(c.all.data[i].prims) > 1) kiln_bits_add(ends, c.all.data[i].results);
    assert_true(c.candidates_capped && c.all.n <= limits.candidates);
    for (int i = 0; i < g->n; i++)
      assert_int_equal(kiln_bits_has(ends, i), kiln_bits_count(g->reads[i]) > 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(attention_has_26_states_and_21_candidates),
      FIXTURE_TEST(a_decode_head_of_four_branches_has_626_states_and_665_candidates),
      FIXTURE_TEST(five_branches_of_three_have_1025_states_and_1054_candidates),
      FIXTURE_TEST(a_chain_wider_than_a_word_has_a_state_a_prim),
      FIXTURE_TEST(candidates_are_all_convex_sets_of_one_end),
      FIXTURE_TEST(sets_of_one_end_are_differences_of_states),
      FIXTURE_TEST(what_others_read_may_be_stored_besides),
      FIXTURE_TEST(caps_are_said),
      FIXTURE_TEST(each_end_has_a_share_of_the_cap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
