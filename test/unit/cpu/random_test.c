// Random loop programs, compiled for every machine whose code this computer runs, compared with the
// simulator.
#include "unit/cpu/rig.h"
#include "unit/cpu/programs.h"
#include "unit/share.h"

#include "target/sim/sim.h"

enum { N_PROGRAMS = 120 };

// Under a loop a temporary row, filled forwards and read at one distance of lanes, at times only
// where the row has elements.
static const kiln_buffer *make_row_program(maker *m) {
  static const int64_t distances[] = {-1, -1, -1, 1, 2, 3, 4, -2};
  make_inputs(m);
  const int64_t by = distances[pick(m, KILN_LEN(distances))], reads = 1 + pick(m, 20);
  const int64_t span = (reads - 1) * (by < 0 ? -by : by), extent = span + 1 + pick(m, 3);
  const kiln_dtype type = dtypes[pick(m, KILN_LEN(dtypes))];
  add_var(m, "i", 2 + pick(m, 5));
  add_var(m, "v", extent);
  kiln_buffer *t =
      kiln_buffer_make(m->cx, m->loops, "t", type,
                       pick(m, 2) ? KILN_SCOPE_REGISTER : KILN_SCOPE_LOCAL, 1, &extent, NULL);
  const kiln_expr *at = kiln_var(m->cx, m->vars[1]);
  kiln_loop *fill = kiln_store_make(m->cx, t, &at, KILN_COMBINE_NONE, value(m, type, 1));
  fill = kiln_for_make(m->cx, m->vars[1], number(m, extent), fill);
  fill->how = KILN_VECTORIZED;
  m->n_vars = 1;
  add_var(m, "w", reads);
  const kiln_expr *w = kiln_var(m->cx, m->vars[1]), *index[] = {kiln_var(m->cx, m->vars[0]), w};
  const kiln_buffer *out = make_buffer(m, "out", type, KILN_SCOPE_PARAM, 2, m->extents);
  const bool beyond = pick(m, 3) == 0;
  const int64_t first = (by < 0 ? span : 0) + (beyond ? pick(m, 9) - 4 : 0);
  at = kiln_add(m->cx, kiln_mul(m->cx, w, number(m, by)), number(m, first));
  const kiln_expr *x = kiln_load(m->cx, t->id, type, 1, &at);
  if (beyond) x = kiln_select(m->cx, in_range(m, at, extent), x, kiln_number(m->cx, type, 0));
  kiln_loop *read = kiln_store_make(m->cx, out, index, KILN_COMBINE_NONE, x);
  read = kiln_for_make(m->cx, m->vars[1], number(m, reads), read);
  read->how = KILN_VECTORIZED;
  fill->next = read;
  m->loops->body =
      kiln_for_make(m->cx, m->vars[0], number(m, m->extents[0]), kiln_alloc_make(m->cx, t, fill));
  return out;
}

// A value of |pool|, an operation on two, or a selection between two, so that a load is used under
// several conditions.
static const kiln_expr *mix(maker *m, int n, const kiln_expr *const *pool) {
  static const kiln_expr_kind kinds[] = {KILN_EXPR_ADD, KILN_EXPR_MIN, KILN_EXPR_MAX};
  const kiln_expr *a = pool[pick(m, n)], *b = pool[pick(m, n)];
  if (pick(m, 2)) return kiln_binary(m->cx, kinds[pick(m, KILN_LEN(kinds))], a, b);
  const kiln_expr *i = kiln_var(m->cx, m->vars[0]), *w = kiln_var(m->cx, m->vars[1]);
  const kiln_expr *cond = kiln_binary(m->cx, KILN_EXPR_LT, w, number(m, pick(m, 20)));
  const kiln_expr *flag = kiln_mod(m->cx, i, number(m, 1 + pick(m, 3)));
  if (pick(m, 3)) // of all lanes
    cond = kiln_binary(m->cx, KILN_EXPR_EQ, flag, number(m, pick(m, 2)));
  if (pick(m, 2)) // of data, of all lanes, too
    cond = kiln_binary(m->cx, KILN_EXPR_LT, kiln_load(m->cx, 0, KILN_F32, 1, &flag),
                       kiln_number(m->cx, KILN_F32, 0));
  return kiln_select(m->cx, cond, a, b);
}

// Nested branches that share loads, with indices that depend on parts of the loop around; inside of
// a border, so that only the condition keeps the loads in their buffers.
static const kiln_buffer *make_branch_program(maker *m) {
  enum { LOADS = 3, STEPS = 9 };
  static const char *const names[LOADS] = {"a", "b", "c"};
  const kiln_expr *pool[LOADS + STEPS];
  const int64_t width = 1 + pick(m, 40), border = pick(m, 3), three = 3;
  m->loops = kiln_loops_make(m->cx, "k");
  (void)make_buffer(m, "flags", KILN_F32, KILN_SCOPE_PARAM, 1, &three);
  add_var(m, "i", 2 + pick(m, 5));
  add_var(m, "w", width + 2 * border);
  const kiln_expr *i = kiln_var(m->cx, m->vars[0]),
                  *at = kiln_sub(m->cx, kiln_var(m->cx, m->vars[1]), number(m, border));
  for (int k = 0; k < LOADS; k++) {
    const int64_t by = 1 + pick(m, 4), shape[] = {m->extents[0] / by + 1, width};
    const bool remains = pick(m, 2);
    const kiln_expr *index[] = {
        remains ? kiln_mod(m->cx, i, number(m, shape[0])) : kiln_div(m->cx, i, number(m, by)), at};
    kiln_buffer *b = make_buffer(m, names[k], KILN_F32, KILN_SCOPE_PARAM, 2, shape);
    pool[k] = kiln_load(m->cx, b->id, KILN_F32, 2, index);
  }
  for (int k = LOADS; k < LOADS + STEPS; k++) pool[k] = mix(m, k, pool);
  const kiln_buffer *out = make_buffer(m, "out", KILN_F32, KILN_SCOPE_PARAM, 2, m->extents);
  const kiln_expr *to[] = {i, kiln_var(m->cx, m->vars[1])};
  const kiln_expr *x = kiln_select(m->cx, in_range(m, at, width), pool[LOADS + STEPS - 1],
                                   kiln_number(m->cx, KILN_F32, 0));
  kiln_loop *l = kiln_store_make(m->cx, out, to, KILN_COMBINE_NONE, x);
  l = kiln_for_make(m->cx, m->vars[1], number(m, m->extents[1]), l);
  l->how = KILN_VECTORIZED;
  m->loops->body = kiln_for_make(m->cx, m->vars[0], number(m, m->extents[0]), l);
  return out;
}

static void check(rig *r, maker *m, const kiln_buffer *out, uint64_t seed) {
  char *args[N_INPUTS + 2], *want[N_INPUTS + 2];
  int n = 0;
  for (int i = 0; i < m->loops->buffers.n; i++) {
    const kiln_buffer *b = m->loops->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM) continue;
    const size_t bytes = (size_t)(kiln_buffer_elems(b) + 8) * (size_t)kiln_dtype_bytes(b->dtype);
    args[n] = test_malloc(bytes);
    fill_buffer(m, b, args[n]);
    want[n] = args[n];
    if (b == out) memcpy(want[n] = test_malloc(bytes), args[n], bytes);
    n++;
  }
  kiln_text text;
  kiln_text_init(&text, &r->cx.perm);
  kiln_loops_print(&r->cx, m->loops, &text);
  if (kiln_loops_verify(&r->cx, m->loops) != KILN_OK) rig_fail(r, text.data);
  if (kiln_sim_run(&r->cx, m->loops, (void *const *)want) != KILN_OK) rig_fail(r, text.data);
  rig_compile_loops(r, m->loops, true);
  rig_run(r, args, m->extents[0]);
  for (int64_t i = 0; i < kiln_buffer_elems(out) + 8; i++) {
    const double a = kiln_element_get(out->dtype, want[n - 1], i),
                 b = kiln_element_get(out->dtype, args[n - 1], i);
    if (!is_near(out->dtype, a, b))
      fail_msg("seed %llu on %s: element %lld must be %g, got %g in\n%s", (unsigned long long)seed,
               r->machine.cpu, (long long)i, a, b, text.data);
  }
  test_free(want[n - 1]);
  for (int i = 0; i < n; i++) test_free(args[i]);
}

static void check_program(const kiln_buffer *make(maker *m), uint64_t seed, const char *machine,
                          bool is_quick) {
  rig r;
  rig_init(&r, machine);
  r.is_quick = is_quick;
  maker m = {.cx = &r.cx, .state = seed * 7919};
  const kiln_buffer *out = make(&m);
  check(&r, &m, out, seed);
  rig_deinit(&r);
}

static void check_programs(const kiln_buffer *make(maker *m)) {
  const char *const machines[] = {NULL, "avx2", "avx512"};
  const char *only = getenv("KILN_TEST_SEED");
  for (uint64_t seed = 1; seed <= (uint64_t)test_some(N_PROGRAMS); seed++) {
    if (only && strtoull(only, NULL, 10) != seed) continue;
    for (size_t k = 0; k < KILN_LEN(machines); k++) {
      if (!rig_runs(machines[k])) continue;
      check_program(make, seed, machines[k], false);
      check_program(make, seed, machines[k], true);
    }
  }
}

static void random_programs_agree_with_the_simulator(void **state) {
  (void)state;
  check_programs(make_program);
}

// Inactive lanes must not access memory next to a row, not even memory of the same thread.
static void rows_read_at_any_distance_agree_with_the_simulator(void **state) {
  (void)state;
  check_programs(make_row_program);
}

static void branches_share_what_they_load(void **state) {
  (void)state;
  check_programs(make_branch_program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_programs_agree_with_the_simulator),
      cmocka_unit_test(branches_share_what_they_load),
      cmocka_unit_test(rows_read_at_any_distance_agree_with_the_simulator),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
