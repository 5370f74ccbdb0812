// Random loop programs, compiled for every machine whose code runs here, against the simulator.
#include "unit/cpu/rig.h"
#include "unit/cpu/programs.h"

#include "target/sim/sim.h"

enum { N_PROGRAMS = 120 };

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

static void random_programs_agree_with_the_simulator(void **state) {
  (void)state;
  const char *const machines[] = {NULL, "avx2", "avx512"};
  const char *only = getenv("KILN_TEST_SEED");
  for (uint64_t seed = 1; seed <= N_PROGRAMS; seed++) {
    if (only && strtoull(only, NULL, 10) != seed) continue;
    for (size_t k = 0; k < KILN_LEN(machines); k++) {
      if (!rig_runs(machines[k])) continue;
      rig r;
      rig_init(&r, machines[k]);
      maker m = {.cx = &r.cx, .state = seed * 7919};
      const kiln_buffer *out = make_program(&m);
      check(&r, &m, out, seed);
      rig_deinit(&r);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_programs_agree_with_the_simulator),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
