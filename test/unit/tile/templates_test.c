// The table of kernel templates: properties of all rows.
#include "unit/schedule/kernel.h"

#include "template/template.h"

static const kiln_machine processor = {.target = &kiln_target_cpu, .vector_bytes = 32},
                          card = {.target = &kiln_target_cuda,
                                  .gpu = {.capability = 80, .has_wgmma = false},
                                  .n_cores = 4};

static void every_template_can_be_asked_and_found_by_its_name(void **state) {
  (void)state;
  for (int i = 0; kiln_templates[i]; i++) {
    const kiln_template *t = kiln_templates[i];
    assert_non_null(t->propose);
    assert_non_null(t->lower);
    assert_ptr_equal(kiln_template_find(t->has_grids ? &card : &processor, t->name), t);
    if (t->was) assert_ptr_equal(kiln_template_find(t->has_grids ? &card : &processor, t->was), t);
  }
  assert_null(kiln_template_find(&card, "winograd"));
}

static void some_template_runs_kernels_of_every_kind_as_they_are(void **state) {
  (void)state;
  const kiln_machine *machines[] = {&processor, &card};
  for (size_t m = 0; m < KILN_LEN(machines); m++)
    for (int kind = 0; kind <= KILN_GROUP_FUSED_LAYERS; kind++) {
      bool any = false;
      for (int i = 0; kiln_templates[i]; i++)
        any |= !kiln_templates[i]->match &&
               kiln_template_takes(kiln_templates[i], machines[m], (kiln_group_kind)kind);
      assert_true(any);
    }
}

// Programs, and the templates in whose form they are run.
static const struct {
  const char *text, *of[3];
} cases[] = {
    {"p { in f16 X(64, 32) in f16 W(32, 64) temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:32) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     {"mma", "simt"}},
    {"p { in f32 X(8, 66, 32) temp f32 t0(8, 64, 32) out f32 y(8, 64, 32) "
     "t0(i0:8, i1:64, i2:32 | r0:3) max=! X(i0, i1 + r0, i2) "
     "y(i0:8, i1:64, i2:32) = t0(i0, i1, i2) }",
     {"sliding_window", "sliding_window_1d"}},
    {"p { in f32 X(8, 64) out f32 y(8, 64) y(i0:8, i1:64) = X(i0, i1) * 2f32 }", {0}},
};

// The parameters of |p|, by name and in their order.
static const char *params_of(kiln_ctx *cx, const kiln_program *p) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  for (int i = 0; i < p->tensors.n; i++)
    if (kiln_tensor_is_param(p, i))
      kiln_text_printf(&t, "%s ", kiln_symbol_text(cx, p->tensors.data[i]->name));
  return t.data;
}

static bool is_listed(size_t row, const char *name) {
  for (size_t i = 0; i < KILN_LEN(cases[row].of); i++)
    if (cases[row].of[i] && strcmp(cases[row].of[i], name) == 0) return true;
  return false;
}

static void forms_are_copies_with_the_same_parameters(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kernel_open(&k, cases[row].text, 7);
    const kiln_form outlined = {.prog = k.prog};
    const int n_stmts = k.prog->stmts.n;
    for (int i = 0; kiln_templates[i]; i++) {
      const kiln_template *t = kiln_templates[i];
      if (!t->has_grids) continue;
      const kiln_form *form = kiln_template_match(&k.cx, t, &card, &outlined);
      if (!t->match) assert_ptr_equal(form, &outlined);
      if (is_listed(row, t->name) && !form) fail_msg("%s must match %s", t->name, cases[row].text);
      if (!form) continue;
      assert_int_equal(kiln_program_verify(&k.cx, form->prog), KILN_OK);
      assert_string_equal(params_of(&k.cx, form->prog), params_of(&k.cx, k.prog));
      assert_int_equal(k.prog->stmts.n, n_stmts);
    }
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_template_can_be_asked_and_found_by_its_name),
      cmocka_unit_test(some_template_runs_kernels_of_every_kind_as_they_are),
      cmocka_unit_test(forms_are_copies_with_the_same_parameters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
