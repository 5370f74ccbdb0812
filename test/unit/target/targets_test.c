// Targets: lookup by name, and consistency of the rows.
#include "target/gpu/spelling.h"

#include "unit/fixture.h"

static void names_lead_to_their_target(void **state) {
  static const struct {
    const char *name;
    const kiln_target *target;
    bool makes_modules; // where this is x86-64
  } rows[] = {
      {NULL, &kiln_target_cpu, true},
      {"cpu", &kiln_target_cpu, true},
      {"native", &kiln_target_cpu, true},
      {"c", &kiln_target_c, false},
      {"cuda", &kiln_target_cuda, true},
      {"cuda:sm_80", &kiln_target_cuda, true},
      {"cuda:none", &kiln_target_cuda, true},
      {"hip:gfx90a", &kiln_target_hip, false},
      {"opencl", &kiln_target_opencl, true},
      {"haswell", &kiln_target_processor, true},
      {"neon", &kiln_target_processor, false},
      {"hip", &kiln_target_processor, false},
      {"opencl:x", &kiln_target_processor, false},
      {"", &kiln_target_processor, false},
  };
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    assert_ptr_equal(kiln_target_find(rows[i].name), rows[i].target);
#if defined __x86_64__
    assert_int_equal(kiln_target_makes_modules(rows[i].name), rows[i].makes_modules);
#endif
  }
}

static void machines_point_to_the_target_that_found_them(void **state) {
  static const char *const names[] = {"cpu",        "c",      "cuda:sm_75", "cuda:sm_90a",
                                      "hip:gfx942", "opencl", "znver4",     "neon"};
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(names); i++) {
    kiln_machine m;
    assert_int_equal(kiln_target_machine(&f->cx, names[i], &m), KILN_OK);
    assert_ptr_equal(m.target, kiln_target_find(names[i]));
    assert_non_null(m.device);
    assert_int_equal(m.is_here, i < 2);
  }
}

static void names_of_no_machine_are_told(void **state) {
  static const char *const rows[][2] = {
      {"cuda:none", "a GPU must be opencl or one of cuda:sm_75, "},
      {"hip:none", ", hip:gfx942, got hip:none"},
      {"none", "name must be x86-64-v2"},
      {"hip", "name must be x86-64-v2"},
  };
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_machine m;
    assert_int_equal(kiln_target_machine(&f->cx, rows[i][0], &m), KILN_BAD_INPUT);
    assert_non_null(strstr(kiln_diag_message(f->diag, i), rows[i][1]));
  }
}

// Properties of a row that the driver and the scheduler rely on.
static void rows_are_whole(void **state) {
  (void)state;
  for (int i = 0; kiln_targets[i]; i++) {
    const kiln_target *t = kiln_targets[i];
    assert_true(t->takes && t->find && t->instrs && t->code_levels[0]);
    assert_true(t->max_params > 0 && t->param_align_bytes > 0);
    assert_int_equal(t->place_bytes % KILN_PLAN_ALIGN, 0);
    assert_int_equal(t->place_bytes % t->param_align_bytes, 0);
    assert_true(t->has_runtime || !t->makes_modules);
    assert_true(t->has_vectors != t->has_grids);
    if (t->has_images) assert_true(t->dialect && t->launches && t->n_figures > 0);
    if (t->compiler) assert_true(t->has_images);
    for (int k = 0; k < t->n_figures; k++)
      assert_true(strlen(t->figures[k].arch) < sizeof t->common.arch);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(names_lead_to_their_target),
      FIXTURE_TEST(machines_point_to_the_target_that_found_them),
      FIXTURE_TEST(names_of_no_machine_are_told),
      FIXTURE_TEST(rows_are_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
