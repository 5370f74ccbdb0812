// Horizontal fusion: which kernels share a launch, and that results do not change.
#include "unit/driver/models.h"

#include "runtime/gpu/gpu.h"

static const struct {
  const char *text;
  int alone, joined; // launches
} cases[] = {
    // products of one operand, and what needs both
    {"def d(float(64, 64) X, float(64, 32) V, float(64, 48) W) -> (Y, Z, S) {\n"
     "  Y(i, j) +=! X(i, k) * V(k, j)\n"
     "  Z(i, l) +=! X(i, k) * W(k, l)\n"
     "  S(j, l) +=! Y(i, j) * Z(i, l)\n"
     "}\n",
     3, 2},
    // each needs the one in front of it
    {"def d(float(64, 96) X, float(96, 96) V) -> (Z) {\n"
     "  Y(i, j) +=! X(i, k) * V(k, j)\n"
     "  Z(i, l) +=! Y(i, k) * V(k, l)\n"
     "}\n",
     2, 2},
    // the third one is moved in front of the second, which needs the first
    {"def d(float(64, 64) X, float(64, 64) V, float(80, 300) U) -> (Z, M) {\n"
     "  Y(i, j) +=! X(i, k) * V(k, j)\n"
     "  Z(i, l) +=! Y(i, k) * V(k, l)\n"
     "  M(n) max=! U(n, r)\n"
     "}\n",
     3, 2},
    // one whose kernel runs twice, at once
    {"def d(float(64, 48) X, float(48, 32) V, float(48, 32) W) -> (Y, Z) {\n"
     "  Y(i, j) +=! X(i, k) * V(k, j)\n"
     "  Z(i, l) +=! X(i, k) * W(k, l)\n"
     "}\n",
     2, 1},
    // two whose blocks fill the machine stay apart
    {"def d(float(4096, 4096) X, float(4096, 4096) V) -> (Y, Z) {\n"
     "  Y(i) max=! X(i, k)\n"
     "  Z(j) max=! V(j, k)\n"
     "}\n",
     2, 2},
};

// Library kernels are ordered like all others: without loops, their stores are unknown.
static const char library_between[] =
    "def d(float(64, 96) X, float(96, 96) V, float(80, 300) U) -> (M, Y, Z) {\n"
    "  M(n) max=! U(n, r)\n"
    "  Y(i, j) +=! X(i, k) * V(k, j)\n"
    "  Z(i) max=! Y(i, j)\n"
    "}\n";

static void keep_plan(void *user, const char *level, const char *text) {
  (void)level;
  snprintf(user, 4096, "%s", text);
}

static kiln_model *load_text(const folder *f, const char *text, const kiln_compile_options *o,
                             kiln_diag *diag) {
  char path[96];
  kiln_model *m = NULL;
  snprintf(path, sizeof path, "%s/d.tc", f->path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  if (kiln_model_load(path, o, diag, &m) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  return m;
}

static kiln_model *load(const folder *f, size_t row, const char *target, bool alone,
                        const char *dump, kiln_dump_fn on_dump, void *user, kiln_diag *diag) {
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .threads = 2,
                                  .target = target,
                                  .no_beside = alone,
                                  .dump = dump,
                                  .on_dump = on_dump,
                                  .dump_user = user};
  return load_text(f, cases[row].text, &o, diag);
}

static void count_grids(void *user, const char *level, const char *text) {
  (void)level;
  for (*(int *)user = 0; (text = strstr(text, " | grid ")); text++) ++*(int *)user;
}

static void launches_join_where_they_need_nothing_of_each_other_and_fit(void **state) {
  (void)state;
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  for (size_t row = 0; row < KILN_LEN(cases); row++)
    for (int alone = 0; alone < 2; alone++) {
      int n = 0;
      kiln_model *m = load(&f, row, "opencl", alone, "plan", count_grids, &n, diag);
      if (kiln_model_emit(m, diag) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
      const int want = alone ? cases[row].alone : cases[row].joined;
      if (n != want) fail_msg("row %zu: must be %d launches, got %d", row, want, n);
      kiln_model_destroy(m);
    }
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

// The results of a run, all outputs concatenated.
static size_t run(const folder *f, size_t row, bool alone, float *out) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *module = NULL;
  kiln_session *s = NULL;
  kiln_model *m = load(f, row, "opencl", alone, NULL, NULL, NULL, diag);
  if (kiln_model_compile(m, diag, &module) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  call c = call_of_module(module);
  size_t n = 0;
  if (kiln_session_create(module, NULL, diag, &s) != KILN_OK ||
      kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, diag) != KILN_OK)
    fail_msg("%s", kiln_diag_message(diag, 0));
  for (size_t i = 0; i < c.n_out; i++)
    for (int64_t k = 0; k < kiln_tensor_count(c.outputs[i]); k++)
      out[n++] = ((const float *)c.outputs[i]->data)[k];
  kiln_session_destroy(s);
  call_destroy(&c);
  kiln_module_release(module);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  return n;
}

static void joined_launches_compute_what_each_does_alone(void **state) {
  static float got[1 << 14], want[1 << 14];
  char arch[16];
  (void)state;
  if (kiln_gpu_arch(KILN_PLAN_OPENCL, 0, NULL, arch) != KILN_OK) skip();
  folder f = folder_make();
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    const size_t n = run(&f, row, false, got);
    assert_int_equal(run(&f, row, true, want), n);
    for (size_t i = 0; i < n; i++)
      if (got[i] != want[i])
        fail_msg("row %zu, element %zu: must be %g, got %g", row, i, want[i], got[i]);
  }
  folder_remove(&f);
}

static void what_a_library_stores_is_waited_for(void **state) {
  (void)state;
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  char plan[4096] = "";
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .threads = 2,
                                  .target = "cuda:sm_90a",
                                  .backends = "cublaslt,always",
                                  .dump = "plan",
                                  .on_dump = keep_plan,
                                  .dump_user = plan};
  setenv("KILN_CUBLASLT", FAKE_CUBLASLT, 1);
  kiln_model *m = load_text(&f, library_between, &o, diag);
  const kiln_status st = kiln_model_emit(m, diag);
  kiln_model_destroy(m);
  unsetenv("KILN_CUBLASLT");
  folder_remove(&f);
  if (st == KILN_DEVICE_ERROR) { // no NVRTC
    print_message("%s\n", kiln_diag_message(diag, 0));
    kiln_diag_destroy(diag);
    skip();
  }
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  const char *product = strstr(plan, "cublaslt"), *maximum = strstr(plan, "k2_rows_d");
  if (!product || !maximum || maximum < product) fail_msg("%s", plan);
}

static void reports_name_the_others_of_a_launch(void **state) {
  (void)state;
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  const kiln_explain_options eo = {.struct_size = sizeof eo};
  for (int alone = 0; alone < 2; alone++) {
    const char *report = NULL;
    kiln_model *m = load(&f, 0, "opencl", alone, NULL, NULL, NULL, diag);
    if (kiln_model_explain(m, &eo, diag, &report) != KILN_OK)
      fail_msg("%s", kiln_diag_message(diag, 0));
    const bool has_others = strstr(report, "  launch    with k1_") != NULL;
    if (has_others == (alone == 1)) fail_msg("%s", report);
    kiln_model_destroy(m);
  }
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_join_where_they_need_nothing_of_each_other_and_fit),
      cmocka_unit_test(joined_launches_compute_what_each_does_alone),
      cmocka_unit_test(what_a_library_stores_is_waited_for),
      cmocka_unit_test(reports_name_the_others_of_a_launch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
