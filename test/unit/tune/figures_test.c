// Merging measurements: the best of each figure, and figures that do not agree.
#include "target/target.h"
#include "tune/figures.h"
#include "unit/fixture.h"

static kiln_device device(fixture *f) {
  kiln_machine m;
  assert_int_equal(kiln_machine_named(&f->cx, "avx512vnni", &m), KILN_OK);
  return *m.device;
}

static void the_best_of_every_figure_is_taken(void **state) {
  const kiln_device d = device(*state);
  kiln_device measured[3] = {d, d, d}, out;
  kiln_doubt doubt;
  const int l1 = kiln_device_level(&d, "L1"), l3 = kiln_device_level(&d, "L3");
  measured[0].levels[l1].unit_bytes_ns *= 1.05;
  measured[1].levels[l1].latency_ns *= 0.95;
  measured[2].levels[l3].usable = 0.75;
  measured[2].unit_flops_ns[KILN_PEAK_BF16] *= 1.02;
  measured[1].fork_ns *= 0.6;
  kiln_device_take_best(3, measured, &out, &doubt);
  assert_null(doubt.level);
  assert_true(out.levels[l1].unit_bytes_ns == measured[0].levels[l1].unit_bytes_ns);
  assert_true(out.levels[l1].latency_ns == measured[1].levels[l1].latency_ns);
  assert_true(out.levels[l3].usable == 0.75);
  assert_true(out.unit_flops_ns[KILN_PEAK_BF16] == measured[2].unit_flops_ns[KILN_PEAK_BF16]);
  assert_true(out.fork_ns == measured[1].fork_ns);
}

// The factor by which a figure of one measurement differs from that of the others.
static const struct {
  const char *level;
  bool is_latency;
  double factor;
  bool is_doubted;
} rows[] = {
    {"L1", true, 0.8, true},      {"L1", true, 0.95, false},    {"L1", false, 1.2, true},
    {"memory", true, 0.8, false}, {"memory", false, 1.5, true}, {"L3", false, 1.2, false},
};

static void a_best_that_nothing_confirms_is_doubted(void **state) {
  const kiln_device d = device(*state);
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_device measured[3] = {d, d, d}, out;
    kiln_doubt doubt;
    kiln_mem_level *l = &measured[i % 3].levels[kiln_device_level(&d, rows[i].level)];
    double *figure = rows[i].is_latency ? &l->latency_ns : &l->copy_unit_bytes_ns;
    const double next = *figure;
    *figure *= rows[i].factor;
    kiln_device_take_best(3, measured, &out, &doubt);
    if (!rows[i].is_doubted) assert_null(doubt.level);
    else {
      assert_string_equal(doubt.level, rows[i].level);
      assert_string_equal(doubt.figure, rows[i].is_latency ? "latency" : "copying by a core");
      assert_true(doubt.best == *figure && doubt.next == next && doubt.excess > 1);
    }
    kiln_device_take_best(1, &measured[i % 3], &out, &doubt); // one alone agrees with itself
    assert_null(doubt.level);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(the_best_of_every_figure_is_taken),
      FIXTURE_TEST(a_best_that_nothing_confirms_is_doubted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
