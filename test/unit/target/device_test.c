// Devices: figures derived from a machine.
#include "target/target.h"
#include "unit/fixture.h"

static void every_named_machine_has_a_device_whose_levels_get_faster(void **state) {
  fixture *f = *state;
  const char *name = "neon";
  for (size_t i = 0; name; name = kiln_machine_name(i++)) {
    kiln_machine m;
    assert_int_equal(kiln_machine_named(&f->cx, name, &m), KILN_OK);
    const kiln_device *d = m.device;
    assert_non_null(d);
    assert_false(d->is_measured);
    assert_int_equal(d->n_units, m.n_cores);
    assert_string_equal(d->levels[0].name, "memory");
    assert_true(d->levels[d->n_levels - 1].is_explicit);
    for (int l = 1; l < d->n_levels; l++) {
      const kiln_mem_level *slow = &d->levels[l - 1], *fast = &d->levels[l];
      assert_true(fast->capacity_bytes < slow->capacity_bytes);
      assert_true(fast->unit_bytes_ns > slow->unit_bytes_ns);
      assert_true(fast->all_bytes_ns > slow->all_bytes_ns);
      assert_true(fast->latency_ns < slow->latency_ns);
      assert_true(fast->n_sharing <= slow->n_sharing);
    }
  }
}

static void peaks_follow_the_instructions(void **state) {
  fixture *f = *state;
  kiln_machine narrow, wide;
  assert_int_equal(kiln_machine_named(&f->cx, "avx512", &narrow), KILN_OK);
  assert_int_equal(kiln_machine_named(&f->cx, "avx512vnni", &wide), KILN_OK);
  assert_true(narrow.device->unit_flops_ns[KILN_PEAK_F32] > 0);
  assert_true(narrow.device->unit_flops_ns[KILN_PEAK_BF16] == 0);
  assert_true(narrow.device->unit_flops_ns[KILN_PEAK_INT8] == 0);
  assert_true(wide.device->unit_flops_ns[KILN_PEAK_BF16] ==
              2 * wide.device->unit_flops_ns[KILN_PEAK_F32]);
  assert_true(wide.device->unit_flops_ns[KILN_PEAK_INT8] ==
              4 * wide.device->unit_flops_ns[KILN_PEAK_F32]);
}

static void a_machine_without_a_cache_has_no_level_for_it(void **state) {
  fixture *f = *state;
  kiln_machine m;
  assert_int_equal(kiln_machine_named(&f->cx, "avx2", &m), KILN_OK);
  assert_int_equal(kiln_device_level(m.device, "L3"), 1);
  assert_int_equal(kiln_device_level(m.device, "registers"), m.device->n_levels - 1);
  m.l3_bytes = 0;
  const kiln_device *d = kiln_device_make_nominal(&f->cx, &m);
  assert_int_equal(kiln_device_level(d, "L3"), -1);
  assert_int_equal(kiln_device_level(d, "L2"), 1);
}

static void the_host_has_a_device(void **state) {
  fixture *f = *state;
  kiln_machine m;
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_non_null(m.device);
  assert_true(strlen(m.processor) > 0);
  assert_true(m.clock_ghz > 0);
  assert_true(m.device->unit_flops_ns[KILN_PEAK_F32] > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(every_named_machine_has_a_device_whose_levels_get_faster),
      FIXTURE_TEST(peaks_follow_the_instructions),
      FIXTURE_TEST(a_machine_without_a_cache_has_no_level_for_it),
      FIXTURE_TEST(the_host_has_a_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
