// States that stay, over a hand-written table of two variants whose ports have different strides:
// random changes between random runs, beside a copy of the rows that is kept here.
#include "runtime/features.h"
#include "runtime/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { B = 2, D = 3, MOST = 20, CAP_ONE = 30, CAP_MORE = 24, TOKENS = 4, BAD = 1000000 };

// present = past and the rows of x behind; y = the sum of all rows that there is room for, most of
// which lie beyond the state's length. A number that is too great fails the run after its stores.
static void step(char *const *args, int64_t cap, int64_t most) {
  float *rows = (float *)args[0], *y = (float *)args[3];
  const float *x = (const float *)args[1];
  const int64_t *dims = (const int64_t *)args[2]; // past, tokens
  for (int64_t b = 0; b < B; b++)
    for (int64_t k = 0; k < D; k++) {
      for (int64_t i = 0; i < dims[1]; i++)
        rows[(b * cap + dims[0] + i) * D + k] = x[(b * most + i) * D + k];
      y[b * D + k] = 0;
      for (int64_t i = 0; i < cap; i++) y[b * D + k] += rows[(b * cap + i) * D + k];
    }
  *(int64_t *)args[4] = x[0] >= BAD ? BAD : INT64_MIN;
}

static void step_one(char *const *args, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  step(args, CAP_ONE, 1);
}

static void step_more(char *const *args, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  step(args, CAP_MORE, TOKENS);
}

static void *make_plan(int64_t cap, int64_t tokens, const char *function, size_t *out_bytes) {
  const kiln_type *f32 = kiln_type_find("f32"), *i64 = kiln_type_find("i64");
  const char *features[] = {kiln_cpu_architecture()}, *functions[] = {function};
  const uint64_t all = (uint64_t)(4 * B * cap * D), some = (uint64_t)(4 * B * tokens * D);
  kiln_plan_port inputs[] = {{"past", f32, 3, {B, cap, D}, all, 0},
                             {"x", f32, 3, {B, tokens, D}, some, 0},
                             {"dims", i64, 1, {2}, 16, 0}};
  kiln_plan_port outputs[] = {{"present", f32, 3, {B, cap, D}, all, 0},
                              {"y", f32, 2, {B, D}, 4 * B * D, 0},
                              {"checks", i64, 1, {1}, 8, 0}};
  kiln_plan_launch launches[] = {{"step", "n0", 1, 1, 0, 5, 0, 1, 0}};
  kiln_plan_arg args[] = {{KILN_PLACE_INPUT, 0, 0, all},
                          {KILN_PLACE_INPUT, 1, 0, some},
                          {KILN_PLACE_INPUT, 2, 0, 16},
                          {KILN_PLACE_OUTPUT, 1, 0, 4 * B * D},
                          {KILN_PLACE_OUTPUT, 2, 0, 8}};
  kiln_plan_nest nests[] = {{.function = 0, .threads = 1, .extent = 1}};
  kiln_plan_copy copies[] = {{{KILN_PLACE_INPUT, 0, 0, all}, 0, {cap * D, D, 1}}};
  kiln_plan_check checks[] = {{"n0", "x", 0, 0, BAD}};
  kiln_plan_state states[] = {{0, 0}};
  const kiln_plan plan = {.n_features = 1,
                          .n_inputs = 3,
                          .n_outputs = 3,
                          .n_functions = 1,
                          .n_launches = 1,
                          .n_args = 5,
                          .n_nests = 1,
                          .n_copies = 1,
                          .n_checks = 1,
                          .n_states = 1,
                          .features = features,
                          .inputs = inputs,
                          .outputs = outputs,
                          .functions = functions,
                          .launches = launches,
                          .args = args,
                          .nests = nests,
                          .copies = copies,
                          .checks = checks,
                          .states = states};
  void *blob = NULL;
  kiln_plan_write(&plan, &blob, out_bytes);
  assert_non_null(blob);
  return blob;
}

static kiln_module *make_module(void) {
  const kiln_type *f32 = kiln_type_find("f32");
  kiln_formula_step p = {KILN_FORMULA_DIM, 0}, t = {KILN_FORMULA_DIM, 1},
                    d = {KILN_FORMULA_CONST, D}, b = {KILN_FORMULA_CONST, B},
                    sum[] = {p, t, {KILN_FORMULA_ADD, 0}};
  kiln_dim_range dims[] = {{"past", 0, MOST, 1}, {"tokens", 1, TOKENS, 1}};
  kiln_dynamic_port inputs[] = {{"past", f32, 3, {{1, &b}, {1, &p}, {1, &d}}},
                                {"x", f32, 3, {{1, &b}, {1, &t}, {1, &d}}}};
  kiln_dynamic_port outputs[] = {{"present", f32, 3, {{1, &b}, {3, sum}, {1, &d}}},
                                 {"y", f32, 2, {{1, &b}, {1, &d}}}};
  kiln_variant variants[] = {{.least = {0, 1}, .most = {MOST, 1}},
                             {.least = {0, 2}, .most = {MOST, TOKENS}}};
  size_t bytes[2];
  void *plans[] = {make_plan(CAP_ONE, 1, "one", &bytes[0]),
                   make_plan(CAP_MORE, TOKENS, "more", &bytes[1])};
  for (int v = 0; v < 2; v++) variants[v].plan = plans[v], variants[v].plan_bytes = bytes[v];
  const kiln_dynamic table = {2, 2, 2, 2, dims, inputs, outputs, variants, NULL};
  kiln_module_parts parts = {.n_functions = 0};
  kiln_module *m = NULL;
  void *blob = NULL;
  kiln_dynamic_write(&table, &blob, &parts.plan_bytes);
  parts.plan = blob;
  assert_int_equal(kiln_module_create(&parts, NULL, &m), KILN_OK);
  m->variants[0]->functions[0] = step_one;
  m->variants[1]->functions[0] = step_more;
  free(blob);
  free(plans[0]);
  free(plans[1]);
  return m;
}

// A session and the rows that its state must have.
typedef struct pair {
  kiln_session *s;
  int64_t n;
  float rows[B][MOST + TOKENS][D];
} pair;

static uint32_t seed;

static int draw(int n) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 16) % (uint32_t)n);
}

static kiln_session *make_session(kiln_module *m) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 1};
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, &o, NULL, &s), KILN_OK);
  return s;
}

static DLTensor tensor(void *data, int32_t rank, int64_t *shape) {
  return (DLTensor){data, {kDLCPU, 0}, rank, {kDLFloat, 32, 1}, shape, NULL, 0};
}

static void check(const pair *p) {
  const DLTensor *t = kiln_session_state(p->s, 0);
  if (!t) {
    assert_int_equal(p->n, 0);
    return;
  }
  assert_int_equal(t->shape[1], p->n);
  for (int64_t b = 0; b < B; b++)
    for (int64_t i = 0; i < p->n; i++)
      for (int64_t k = 0; k < D; k++)
        assert_true(((float *)t->data)[(b * p->n + i) * D + k] == p->rows[b][i][k]);
}

// Row-major rows of |p|.
static void pack(const pair *p, int64_t n, float *out) {
  for (int64_t b = 0; b < B; b++)
    for (int64_t i = 0; i < n; i++) memcpy(out + (b * n + i) * D, p->rows[b][i], sizeof(float[D]));
}

// What a run is given and asked for.
enum { KEEPS = 1, GIVES_PAST = 2, FAILS = 4 };

static void run(pair *p, int how) {
  const int64_t n = how & GIVES_PAST ? draw(MOST + 1) : p->n, t = 1 + draw(TOKENS);
  float x[B * TOKENS * D], y[B * D], past[B * MOST * D], present[B * (MOST + TOKENS) * D],
      want[B * (MOST + TOKENS) * D];
  int64_t x_shape[] = {B, t, D}, y_shape[] = {B, D}, past_shape[] = {B, n, D},
          present_shape[] = {B, n + t, D};
  if (n > MOST) return;
  pair next = *p;
  for (int64_t i = 0; i < B * t * D; i++) x[i] = (float)draw(100);
  if (how & FAILS) x[0] = BAD;
  for (int64_t b = 0; b < B; b++) {
    for (int64_t i = 0; i < n && how & GIVES_PAST; i++)
      for (int64_t k = 0; k < D; k++) next.rows[b][i][k] = (float)draw(100);
    memcpy(next.rows[b][n], x + b * t * D, (size_t)(t * D) * sizeof *x);
  }
  pack(&next, n, past);
  pack(&next, n + t, want);
  next.n = n + t;
  const DLTensor tx = tensor(x, 3, x_shape), tp = tensor(past, 3, past_shape),
                 *inputs[] = {how & GIVES_PAST ? &tp : NULL, &tx};
  DLTensor ty = tensor(y, 2, y_shape), to = tensor(present, 3, present_shape),
           *outputs[] = {how & KEEPS ? NULL : &to, &ty};
  const kiln_status st = kiln_session_run(p->s, 2, inputs, 2, outputs, NULL);
  assert_int_equal(st, how & FAILS ? KILN_BAD_INPUT : KILN_OK);
  if (how & FAILS) return;
  for (int64_t i = 0; i < B * D; i++) {
    float sum = 0;
    for (int64_t k = 0; k < next.n; k++) sum += want[((i / D) * next.n + k) * D + i % D];
    assert_true(y[i] == sum);
  }
  if (how & KEEPS) *p = next;
  else assert_memory_equal(present, want, (size_t)(B * next.n * D) * sizeof *want);
}

static void change(pair *p, pair *other, const char *path) {
  switch (draw(8)) {
  case 0:
    assert_int_equal(kiln_session_state_reset(p->s, NULL), KILN_OK);
    p->n = 0;
    break;
  case 1:
  case 2:
    p->n = draw((int)p->n + 1);
    assert_int_equal(kiln_session_state_truncate(p->s, p->n, NULL), KILN_OK);
    break;
  case 3: {
    kiln_session *fork = NULL;
    assert_int_equal(kiln_session_fork(p->s, NULL, &fork), KILN_OK);
    kiln_session_destroy(other->s);
    *other = *p;
    other->s = fork;
    break;
  }
  case 4: // to the other session
    assert_int_equal(kiln_session_state_save(p->s, path, NULL), KILN_OK);
    assert_int_equal(kiln_session_state_load(other->s, path, NULL), KILN_OK);
    other->n = p->n;
    memcpy(other->rows, p->rows, sizeof p->rows);
    break;
  default: check(p); break;
  }
}

static void random_changes_between_random_runs(void **state) {
  (void)state;
  char path[] = "/tmp/kiln_state_XXXXXX";
  kiln_module *m = make_module();
  pair pairs[2] = {{.s = make_session(m)}, {.s = make_session(m)}};
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  seed = (uint32_t)time(NULL);
  print_message("seed %u\n", seed);
  for (int i = 0; i < 20000; i++) {
    pair *p = &pairs[draw(2)];
    const int how = draw(4) ? KEEPS : draw(8);
    if (draw(3)) run(p, how);
    else change(p, p == pairs ? &pairs[1] : &pairs[0], path);
    if (draw(5) == 0) check(p);
  }
  for (int i = 0; i < 2; i++) kiln_session_destroy(pairs[i].s);
  unlink(path);
  kiln_module_release(m);
}

// Pages of the process that are in memory.
static long resident(void) {
  long pages = 0, all = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%ld %ld", &all, &pages), 2);
  fclose(f);
  return pages;
}

static void many_steps_take_no_more_memory(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__)
  skip(); // it keeps what was freed, to find uses of it
#endif
  kiln_module *m = make_module();
  pair p = {.s = make_session(m)};
  long before = 0;
  for (int i = 0; i < 100000; i++) {
    if (i == 1000) before = resident();
    if (p.n > MOST - TOKENS) {
      p.n = draw(2) ? 0 : draw((int)p.n);
      assert_int_equal(kiln_session_state_truncate(p.s, p.n, NULL), KILN_OK);
    }
    run(&p, KEEPS);
  }
  assert_true(resident() - before < 64);
  kiln_session_destroy(p.s);
  kiln_module_release(m);
}

// The value that a session tells may be given back to it.
static void a_value_may_be_the_input(void **state) {
  (void)state;
  kiln_module *m = make_module();
  pair p = {.s = make_session(m)};
  for (int i = 0; i < 3; i++) run(&p, KEEPS);
  float x[B * D] = {1, 2, 3, 4, 5, 6}, y[B * D];
  int64_t x_shape[] = {B, 1, D}, y_shape[] = {B, D};
  const DLTensor tx = tensor(x, 3, x_shape), *inputs[] = {kiln_session_state(p.s, 0), &tx};
  DLTensor ty = tensor(y, 2, y_shape), *outputs[] = {NULL, &ty};
  assert_int_equal(kiln_session_run(p.s, 2, inputs, 2, outputs, NULL), KILN_OK);
  for (int64_t b = 0; b < B; b++) memcpy(p.rows[b][p.n], x + b * D, sizeof(float[D]));
  p.n++;
  check(&p);
  kiln_session_destroy(p.s);
  kiln_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_changes_between_random_runs),
      cmocka_unit_test(many_steps_take_no_more_memory),
      cmocka_unit_test(a_value_may_be_the_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
