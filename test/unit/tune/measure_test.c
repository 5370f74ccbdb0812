// Measuring: figures that hold on any machine, however busy it is.
#include "tune/measure.h"
#include "tune/probe.h"
#include "unit/fixture.h"

static void the_topology_agrees_with_the_machine(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_topology t;
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_int_equal(kiln_topology_find(&f->cx, &t), KILN_OK);
  assert_int_equal(t.n_cores, m.n_cores);
  assert_true(t.n_packages >= 1 && t.n_nodes >= 1 && t.n_threads >= t.n_cores);
  for (int i = 0; i < t.n_caches; i++) {
    assert_true(t.caches[i].n_sharing >= 1 && t.caches[i].n_sharing <= t.n_cores);
    if (t.caches[i].level == 1) assert_int_equal(t.caches[i].bytes, m.l1_bytes);
    if (i > 0) assert_true(t.caches[i].bytes > t.caches[i - 1].bytes);
  }
}

static void probes_compute_what_they_say(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_jit *jit = NULL;
  static float memory[1 << 15] __attribute__((aligned(64))),
      results[1024] __attribute__((aligned(64))), ones[1024] __attribute__((aligned(64)));
  kiln_probe probes[] = {{.kind = KILN_PROBE_READ, .bytes = sizeof memory},
                         {.kind = KILN_PROBE_COPY, .bytes = sizeof memory},
                         {.kind = KILN_PROBE_F32},
                         {.kind = KILN_PROBE_NOTHING}};
  char *const args[] = {(char *)memory, (char *)results, (char *)ones};
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_int_equal(kiln_probes_compile(&f->cx, &m, 4, probes, &jit), KILN_OK);
  for (int i = 0; i < 1 << 15; i++) memory[i] = 1;
  for (int i = 0; i < 1024; i++) ones[i] = 1;
  probes[0].run(args, 0, 1); // every element as often as the work says
  double sum = 0;
  for (int i = 0; i < 1024; i++) sum += (double)results[i];
  assert_true(sum * 4 == probes[0].work);
  memory[3] = 5; // the other half is the first plus one
  probes[1].run(args, 0, 1);
  assert_true(memory[(1 << 14) + 3] == 6 && memory[(1 << 15) - 1] == 2);
  memset(results, 0, sizeof results);
  memory[3] = 1;
  if (probes[2].run) {
    probes[2].run(args, 0, 1);
    sum = 0;
    for (int i = 0; i < 1024; i++) sum += (double)results[i];
    assert_true(2 * sum == probes[2].work); // products of ones
  }
  probes[3].run(args, 0, 1);
  assert_true(results[0] == 1);
  kiln_jit_destroy(jit);
}

static void every_figure_is_there(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_topology t;
  const kiln_device *d = NULL;
  const kiln_measure_options once = {.n_rounds = 1, .n_passes = 1};
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_int_equal(kiln_topology_find(&f->cx, &t), KILN_OK);
  assert_int_equal(kiln_device_measure(&f->cx, &m, &t, &once, &d), KILN_OK);
  assert_true(d->is_measured && d->launch_ns > 0 && d->fork_ns > 0);
  for (int i = 0; i < d->n_levels; i++) {
    const kiln_mem_level *l = &d->levels[i];
    assert_true(l->unit_bytes_ns > 0 && l->all_bytes_ns >= l->unit_bytes_ns);
    assert_true(l->copy_unit_bytes_ns > 0 && l->copy_all_bytes_ns >= l->copy_unit_bytes_ns);
    assert_true(l->usable > 0 && l->usable <= 1);
    if (i + 1 < d->n_levels) assert_true(l->latency_ns > 0);
  }
  assert_int_equal(d->unit_flops_ns[KILN_PEAK_F32] > 0, m.has_fma);
  assert_int_equal(d->unit_flops_ns[KILN_PEAK_BF16] > 0, m.has_bf16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(the_topology_agrees_with_the_machine),
      FIXTURE_TEST(probes_compute_what_they_say),
      FIXTURE_TEST(every_figure_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
