// The memory planner: known answers, and random lifetimes against the rule that it must keep.
#include "module/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t place(int n, kiln_block *blocks) {
  kiln_arena arena;
  uint64_t bytes = 0;
  kiln_arena_init(&arena, NULL);
  kiln_blocks_place(&arena, n, blocks, &bytes);
  kiln_arena_deinit(&arena);
  return bytes;
}

static void a_chain_takes_two_blocks(void **state) {
  (void)state;
  kiln_block blocks[] = {{1000, 0, 1, 0}, {1000, 1, 2, 0}, {1000, 2, 3, 0}, {1000, 3, 4, 0}};
  assert_int_equal(place(4, blocks), 2 * 1024);
}

static void a_small_block_goes_into_the_smallest_gap(void **state) {
  (void)state;
  // While the two blocks in the middle are dead, 64 bytes fit in either place: the smaller is
  // taken.
  kiln_block blocks[] = {{4096, 0, 9, 0}, {2048, 0, 3, 0}, {1024, 0, 9, 0},
                         {128, 0, 3, 0},  {64, 0, 9, 0},   {64, 5, 6, 0}};
  assert_int_equal(place(6, blocks), 4096 + 2048 + 1024 + 128 + 64);
  assert_int_equal(blocks[5].offset, blocks[3].offset);
}

static void nothing_needs_no_arena(void **state) {
  (void)state;
  kiln_block empty = {0, 0, 5, 0};
  assert_int_equal(place(0, NULL), 0);
  assert_int_equal(place(1, &empty), 0);
}

static uint64_t bound(int n, const kiln_block *blocks) {
  kiln_arena arena;
  kiln_arena_init(&arena, NULL);
  const uint64_t bytes = kiln_blocks_bound(&arena, n, blocks);
  kiln_arena_deinit(&arena);
  return bytes;
}

static void the_bound_is_the_most_alive_during_a_launch(void **state) {
  (void)state;
  // Launch 2 sees three of them; what ends in 2 and what begins in 2 are alive together.
  const kiln_block blocks[] = {{100, 0, 2, 0}, {64, 2, 4, 0}, {1, 1, 2, 0}, {200, 3, 9, 0}};
  assert_int_equal(bound(4, blocks), 64 + 256); // launch 3 and 4: 64 and 200 in whole units
  assert_int_equal(bound(3, blocks), 128 + 64 + 64);
  assert_int_equal(bound(0, NULL), 0);
}

static void an_order_that_reaches_the_bound_is_found(void **state) {
  (void)state;
  // The largest first leaves the long-lived one behind on top of both: 64 * 8. By birth it lies
  // below.
  kiln_block blocks[] = {
      {64 * 2, 0, 3, 0}, {64 * 3, 2, 5, 0}, {64 * 2, 4, 7, 0}, {64 * 3, 6, 9, 0}, {64, 0, 9, 0}};
  assert_int_equal(place(5, blocks), bound(5, blocks));
}

// The layers of a transformer whose norms are computed together with the preceding sums: no order
// by size or by birth places the hidden layer alternately below and above its contemporaries.
static void layers_that_must_alternate_reach_the_bound(void **state) {
  enum { LAYERS = 24, UNIT = 640 };
  (void)state;
  kiln_block b[6 * LAYERS + 1] = {{UNIT, 0, 0, 0}};
  int n = 1, sum = 0;
  for (int l = 0; l < LAYERS; l++) {
    const int t = 1 + 5 * l;
    b[n++] = (kiln_block){3 * UNIT, t, t + 1, 0}; // of the attention, made from the sum
    b[n++] = (kiln_block){UNIT, t + 1, t + 2, 0}; // attention
    b[n++] = (kiln_block){UNIT, t + 2, t + 4, 0}; // another sum, and its norm
    b[n++] = (kiln_block){UNIT, t + 2, t + 3, 0};
    b[n++] = (kiln_block){4 * UNIT, t + 3, t + 4, 0}; // the hidden layer
    b[sum].last = t + 2;
    sum = n;
    b[n++] = (kiln_block){UNIT, t + 4, t + 5, 0};
  }
  assert_int_equal(bound(n, b), 6 * UNIT);
  assert_int_equal(place(n, b), 6 * UNIT);
}

static void blocks_alive_together_never_overlap(void **state) {
  enum { N = 120 };
  double worst = 1, sum_of_ratios = 0;
  (void)state;
  srand(7);
  for (int round = 0; round < 50; round++) {
    kiln_block b[N];
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
      int first = rand() % 60;
      b[i] = (kiln_block){(uint64_t)(rand() % 5000 + 1), first, first + rand() % 8, 0};
      sum += b[i].bytes + 64;
    }
    uint64_t bytes = place(N, b);
    const double ratio = (double)bytes / (double)bound(N, b);
    assert_true(bytes < sum / 2 && ratio >= 1);
    if (ratio > worst) worst = ratio;
    sum_of_ratios += ratio;
    for (int i = 0; i < N; i++) {
      assert_int_equal(b[i].offset % 64, 0);
      assert_true(b[i].offset + b[i].bytes <= bytes);
      for (int k = 0; k < i; k++) {
        bool together = b[i].first <= b[k].last && b[k].first <= b[i].last;
        bool overlap =
            b[i].offset < b[k].offset + b[k].bytes && b[k].offset < b[i].offset + b[i].bytes;
        assert_false(together && overlap);
      }
    }
  }
  print_message("arena over its bound: %.3f in the mean, %.3f at worst\n", sum_of_ratios / 50,
                worst);
  assert_true(worst < 1.1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chain_takes_two_blocks),
      cmocka_unit_test(a_small_block_goes_into_the_smallest_gap),
      cmocka_unit_test(nothing_needs_no_arena),
      cmocka_unit_test(the_bound_is_the_most_alive_during_a_launch),
      cmocka_unit_test(an_order_that_reaches_the_bound_is_found),
      cmocka_unit_test(layers_that_must_alternate_reach_the_bound),
      cmocka_unit_test(blocks_alive_together_never_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
