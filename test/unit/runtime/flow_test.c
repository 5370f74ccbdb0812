// Flows: written ones read back equal, damaged ones are refused without a crash, and their steps
// run as often as counts and conditions say.
#include "runtime/flow/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N, Y, Z, S, NEXT, GOES_ON, I, MADE, N_VALUES };

// y and the rows z of: s = 0; loop n times { s = s + i + 1; z[i] = s }; y = s
typedef struct example {
  kiln_flow_value values[N_VALUES];
  kiln_flow_shape shapes[2];
  kiln_flow_part parts[1];
  kiln_flow_step steps[4];
  kiln_flow_arg args[8];
  kiln_flow f;
} example;

static void make(example *e) {
  const kiln_type *i64 = kiln_type_find("i64"), *is = kiln_type_find("bool");
  memset(e, 0, sizeof *e);
  for (int i = 0; i < N_VALUES; i++)
    e->values[i] = (kiln_flow_value){
        .name = "v", .type = i == GOES_ON ? is : i64, .offset = i < S ? 0 : 64 * (uint64_t)(i - S)};
  e->values[Z].rank = 1;
  e->values[Z].shape[0] = 5;
  e->parts[0] = (kiln_flow_part){"plan", 5};
  e->args[0] = (kiln_flow_arg){S, 0, 0}; // the state, and what it will be
  e->args[1] = (kiln_flow_arg){NEXT, 0, 0};
  e->args[2] = (kiln_flow_arg){S, 0, 0}; // of the part: s, i -> next, z[i]
  e->args[3] = (kiln_flow_arg){I, 0, 0};
  e->args[4] = (kiln_flow_arg){NEXT, 0, 0};
  e->args[5] = (kiln_flow_arg){Z, 1, 0};
  e->args[6] = (kiln_flow_arg){S, 0, 0};
  e->args[7] = (kiln_flow_arg){Y, 0, 0};
  e->steps[0] = (kiln_flow_step){.op = KILN_FLOW_LOOP,
                                 .n_args = 2,
                                 .count = N + 1,
                                 .iteration = I + 1,
                                 .made = MADE + 1,
                                 .most = 5,
                                 .is_limit = 1,
                                 .place = "node 3"};
  e->steps[1] = (kiln_flow_step){.op = KILN_FLOW_RUN, .first_arg = 2, .n_args = 4, .place = ""};
  e->steps[2] = (kiln_flow_step){.op = KILN_FLOW_END, .place = ""};
  e->steps[3] = (kiln_flow_step){.op = KILN_FLOW_COPY, .first_arg = 6, .n_args = 2, .place = ""};
  e->f = (kiln_flow){.n_inputs = 1,
                     .n_outputs = 2,
                     .n_values = N_VALUES,
                     .n_parts = 1,
                     .n_steps = 4,
                     .n_args = 8,
                     .arena_bytes = 64 * (N_VALUES - S),
                     .values = e->values,
                     .shapes = e->shapes,
                     .parts = e->parts,
                     .steps = e->steps,
                     .args = e->args};
}

static void *write(const example *e, size_t *n) {
  void *blob = NULL;
  kiln_flow_write(&e->f, &blob, n);
  assert_non_null(blob);
  return blob;
}

static kiln_status add(void *user, const kiln_flow_step *step, char *const *args, kiln_diag *diag) {
  int64_t s = 0, i = 0;
  (void)step;
  (void)diag;
  memcpy(&s, args[0], sizeof s);
  memcpy(&i, args[1], sizeof i);
  s += i + 1;
  memcpy(args[2], &s, sizeof s);
  memcpy(args[3], &s, sizeof s);
  ++*(int *)user;
  return KILN_OK;
}

typedef struct result {
  kiln_status st;
  int64_t y, z[5], made;
  int runs;
} result;

static result run(example *e, int64_t n) {
  result r = {0};
  void *arena = aligned_alloc(64, (size_t)e->f.arena_bytes);
  kiln_flow_run at;
  memset(arena, 0, (size_t)e->f.arena_bytes);
  assert_int_equal(kiln_flow_run_init(&e->f, NULL, &at), KILN_OK);
  at.at[N] = (char *)&n;
  at.at[Y] = (char *)&r.y;
  at.at[Z] = (char *)r.z;
  r.st = kiln_flow_run_steps(&at, arena, add, &r.runs, NULL);
  memcpy(&r.made, at.at[MADE], sizeof r.made);
  kiln_flow_run_deinit(&at);
  free(arena);
  return r;
}

// The reader computes the bytes of values.
static void read_again(example *e, kiln_flow *out) {
  size_t n = 0;
  void *blob = write(e, &n);
  assert_true(kiln_flow_is(blob, n));
  assert_int_equal(kiln_flow_read(blob, n, "test", NULL, out), KILN_OK);
  free(blob);
}

static void what_is_written_is_read(void **state) {
  (void)state;
  example e;
  kiln_flow f;
  make(&e);
  read_again(&e, &f);
  assert_int_equal(f.n_steps, 4);
  assert_int_equal(f.steps[0].most, 5);
  assert_string_equal(f.steps[0].place, "node 3");
  assert_int_equal(f.values[Z].bytes, 40);
  assert_int_equal(f.args[5].row, 1);
  assert_string_equal(f.parts[0].plan, "plan");
  kiln_flow_deinit(&f);
}

static void loops_run_as_often_as_they_are_counted(void **state) {
  (void)state;
  example e;
  make(&e);
  read_again(&e, &e.f);
  static const int64_t sums[] = {0, 1, 3, 6, 10, 15};
  for (int64_t n = -1; n <= 5; n++) {
    const result r = run(&e, n);
    const int64_t times = n < 0 ? 0 : n;
    assert_int_equal(r.st, KILN_OK);
    assert_int_equal(r.runs, times);
    assert_int_equal(r.made, times);
    assert_int_equal(r.y, sums[times]);
    for (int64_t i = 0; i < times; i++) assert_int_equal(r.z[i], sums[i + 1]);
  }
  assert_int_equal(run(&e, 6).st, KILN_BAD_INPUT); // there is room for five rows
  assert_int_equal(run(&e, INT64_MAX).st, KILN_BAD_INPUT);
  kiln_flow_deinit(&e.f);
}

static void a_condition_ends_a_loop(void **state) {
  (void)state;
  example e;
  make(&e);
  e.steps[0].condition = GOES_ON + 1;
  read_again(&e, &e.f);
  const result r = run(&e, 4); // false from the begin
  assert_int_equal(r.st, KILN_OK);
  assert_int_equal(r.runs, 0);
  assert_int_equal(r.y, 0);
  kiln_flow_deinit(&e.f);
}

// y = s + i + 1 if the condition holds, else s
static void one_branch_runs(void **state) {
  (void)state;
  for (int holds = 0; holds < 2; holds++) {
    example e;
    make(&e);
    e.steps[3].op = KILN_FLOW_ENDIF;
    e.steps[3].n_args = 0;
    e.steps[2] = (kiln_flow_step){.op = KILN_FLOW_ELSE, .place = ""};
    e.steps[0] = (kiln_flow_step){.op = KILN_FLOW_IF, .condition = GOES_ON + 1, .place = ""};
    e.args[5] = (kiln_flow_arg){Y, 0, 0};
    read_again(&e, &e.f);
    char arena[64 * (N_VALUES - S)] = {0};
    kiln_flow_run at;
    int64_t n = 0, y = 7, z[5];
    int runs = 0;
    assert_int_equal(kiln_flow_run_init(&e.f, NULL, &at), KILN_OK);
    at.at[N] = (char *)&n;
    at.at[Y] = (char *)&y;
    at.at[Z] = (char *)z;
    arena[e.f.values[GOES_ON].offset] = (char)holds;
    assert_int_equal(kiln_flow_run_steps(&at, arena, add, &runs, NULL), KILN_OK);
    assert_int_equal(runs, holds);
    assert_int_equal(y, holds ? 1 : 7);
    kiln_flow_run_deinit(&at);
    kiln_flow_deinit(&e.f);
  }
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  static const struct {
    int arg, step;
    kiln_flow_arg as;
    kiln_flow_op op;
  } rows[] = {
      {5, -1, {Z, 2, 0}, 0},         // a row by a step that is no loop
      {7, -1, {N, 0, 0}, 0},         // a copy to an input
      {7, -1, {Z, 0, 0}, 0},         // of other bytes
      {7, -1, {Z, 1, 0}, 0},         // a row behind its loop
      {1, -1, {Z, 0, 0}, 0},         // an output as a state
      {-1, 2, {0}, KILN_FLOW_LOOP},  // without an end
      {-1, 0, {0}, KILN_FLOW_END},   // without a begin
      {-1, 0, {0}, KILN_FLOW_IF},    // ended as a loop
      {-1, 2, {0}, KILN_FLOW_ELSE},  // of no if
      {-1, 2, {0}, KILN_FLOW_ENDIF}, // of a loop
      {-1, 1, {0}, KILN_N_FLOW_OPS}, // unknown
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    example e;
    kiln_flow f;
    size_t n = 0;
    make(&e);
    if (rows[i].arg >= 0) e.args[rows[i].arg] = rows[i].as;
    else e.steps[rows[i].step].op = rows[i].op;
    void *blob = write(&e, &n);
    assert_int_equal(kiln_flow_read(blob, n, "test", NULL, &f), KILN_BAD_INPUT);
    free(blob);
  }
}

static void damaged_flows_are_refused(void **state) {
  (void)state;
  example e;
  kiln_flow f;
  size_t n = 0;
  make(&e);
  unsigned char *blob = write(&e, &n);
  for (size_t k = 0; k < n; k++) // cut off anywhere
    assert_int_equal(kiln_flow_read(blob, k, "test", NULL, &f), KILN_BAD_INPUT);
  for (size_t k = 0; k < n; k++) // and changed anywhere: refused, or right in itself
    for (int bit = 0; bit < 8; bit++) {
      blob[k] ^= (unsigned char)(1 << bit);
      if (kiln_flow_read(blob, n, "test", NULL, &f) == KILN_OK) {
        kiln_plan none = {0};
        const kiln_plan *plans[1] = {&none};
        assert_int_equal(f.n_parts, 1);
        (void)kiln_flow_suits(&f, plans);
        kiln_flow_deinit(&f);
      }
      blob[k] ^= (unsigned char)(1 << bit);
    }
  free(blob);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(loops_run_as_often_as_they_are_counted),
      cmocka_unit_test(a_condition_ends_a_loop),
      cmocka_unit_test(one_branch_runs),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(damaged_flows_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
