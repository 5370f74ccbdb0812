// Models for GPUs: compiled to sources and cubins, run where there is an OpenCL device.
#include "unit/driver/models.h"

#include "runtime/gpu/gpu.h"

static kiln_model *load(const char *path, const char *target, const char *dump,
                        kiln_dump_fn on_dump, void *user, kiln_diag *diag) {
  const kiln_dim_value dim = {"batch", 7};
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = &dim,
                                  .n_dims = 1,
                                  .threads = 2,
                                  .target = target,
                                  .dump = dump,
                                  .on_dump = on_dump,
                                  .dump_user = user};
  kiln_model *m = NULL;
  if (kiln_model_load(path, &o, diag, &m) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  return m;
}

static bool has_opencl(void) {
  char arch[16];
  return kiln_gpu_arch(KILN_PLAN_OPENCL, 0, NULL, arch) == KILN_OK;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
}

static void run_mlp(kiln_module *module, kiln_diag *diag) {
  kiln_session *s = NULL;
  call c = call_of_module(module);
  must(kiln_session_create(module, NULL, diag, &s), diag);
  for (int i = 0; i < 3; i++) {
    must(kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, diag), diag);
    check_mlp(&c);
  }
  kiln_session_destroy(s);
  call_destroy(&c);
}

static void an_opencl_module_gives_what_plain_loops_give(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_module *module = NULL;
  save_mlp(f.model, "batch");
  kiln_model *m = load(f.model, "opencl", NULL, NULL, NULL, diag);
  must(kiln_model_compile(m, diag, &module), diag);
  must(kiln_model_compile_to(m, f.module, diag), diag);
  kiln_model_destroy(m);
  run_mlp(module, diag);
  kiln_module_release(module);
  assert_int_equal(folder_count(&f), 2);
  must(kiln_module_load(f.module, diag, &module), diag);
  run_mlp(module, diag);
  kiln_module_release(module);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

typedef struct verified {
  int n;
} verified;
static void on_result(void *user, const kiln_verify_result *r) {
  ((verified *)user)->n++;
  if (!r->passed) fail_msg("%s: relative error %g", r->kernel, r->rel_l2);
}

static void every_kernel_is_verified_on_the_device(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  verified v = {0};
  const kiln_verify_options o = {.struct_size = sizeof o, .on_result = on_result, .user = &v};
  size_t failed = 1;
  save_mlp(f.model, "batch");
  kiln_model *m = load(f.model, "opencl", NULL, NULL, NULL, diag);
  must(kiln_model_verify(m, &o, diag, &failed), diag);
  assert_int_equal(failed, 0);
  assert_true(v.n > 1);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void keep_text(void *user, const char *level, const char *text) {
  char(*kept)[4096] = user;
  snprintf(kept[strcmp(level, "plan") == 0], sizeof kept[0], "%s", text);
}

// Times that were measured are marked by '!'.
static bool orchestrates_by_measurement(const folder *f, const char *target, int32_t tune,
                                        kiln_diag *diag) {
  const kiln_compile_options options = {.struct_size = sizeof options,
                                        .threads = 2,
                                        .target = target,
                                        .orchestrate = 1,
                                        .tune = tune,
                                        .cache = 1};
  const kiln_explain_options eo = {.struct_size = sizeof eo, .orchestration = 1};
  const char *report = NULL;
  kiln_module *module = NULL;
  kiln_model *m = NULL;
  must(kiln_model_load(f->model, &options, diag, &m), diag);
  if (tune) must(kiln_model_compile(m, diag, &module), diag);
  else must(kiln_model_explain(m, &eo, diag, &report), diag);
  const bool is_measured = report && strstr(report, " us!");
  kiln_module_release(module);
  kiln_model_destroy(m);
  return is_measured;
}

static void chosen_kernels_are_measured_on_the_device(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  setenv("KILN_CACHE_DIR", f.path, 1);
  save_pair(f.model, "96");
  orchestrates_by_measurement(&f, "opencl", 1, diag);
  assert_true(orchestrates_by_measurement(&f, "opencl", 0, diag));
  assert_false(orchestrates_by_measurement(&f, NULL, 0, diag));
  unsetenv("KILN_CACHE_DIR");
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void dumps_show_sources_and_grids(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  char kept[2][4096] = {"", ""};
  (void)state;
  save_mlp(f.model, "batch");
  kiln_model *m = load(f.model, "opencl", "opencl,plan", keep_text, kept, diag);
  must(kiln_model_emit(m, diag), diag);
  kiln_model_destroy(m);
  assert_non_null(strstr(kept[0], "__kernel"));
  assert_non_null(strstr(kept[1], " | grid "));
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void a_target_that_there_is_not_is_refused_before_the_model_is_read(void **state) {
  const kiln_compile_options o = {.struct_size = sizeof o, .target = "cuda:sm_12"};
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  assert_int_equal(kiln_model_load("none.onnx", &o, diag, &m), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "a GPU must be opencl or one of"));
  kiln_diag_destroy(diag);
}

static void a_target_without_modules_gives_a_message(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_module *module = NULL;
  (void)state;
  save_mlp(f.model, "batch");
  kiln_model *m = load(f.model, "neon", NULL, NULL, NULL, diag);
  assert_int_not_equal(kiln_model_compile(m, diag, &module), KILN_OK);
  assert_non_null(
      strstr(kiln_diag_message(diag, 0),
             "a module must be for this machine, another processor of x86-64 or a GPU"));
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_opencl_module_gives_what_plain_loops_give),
      cmocka_unit_test(every_kernel_is_verified_on_the_device),
      cmocka_unit_test(chosen_kernels_are_measured_on_the_device),
      cmocka_unit_test(dumps_show_sources_and_grids),
      cmocka_unit_test(a_target_that_there_is_not_is_refused_before_the_model_is_read),
      cmocka_unit_test(a_target_without_modules_gives_a_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
