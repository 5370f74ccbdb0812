// kiln explain on a small model: the report is complete, and --why is answered.
#include "unit/driver/models.h"

#include <jansson.h>

typedef struct asked {
  folder f;
  kiln_model *model;
  kiln_diag *diag;
} asked;

static asked ask_without(const char *rules) {
  asked a = {.f = folder_make(), .diag = kiln_diag_create()};
  const kiln_compile_options o = {
      .struct_size = sizeof o, .threads = 2, .n_without = rules != NULL, .without = &rules};
  save_pair(a.f.model, "96");
  if (kiln_model_load(a.f.model, &o, a.diag, &a.model) != KILN_OK)
    fail_msg("%s", kiln_diag_message(a.diag, 0));
  return a;
}

static asked ask(void) { return ask_without(NULL); }

static void done(asked *a) {
  kiln_model_destroy(a->model);
  kiln_diag_destroy(a->diag);
  folder_remove(&a->f);
}

static const char *explain(asked *a, kiln_explain_options o) {
  const char *text = NULL;
  o.struct_size = sizeof o;
  if (kiln_model_explain(a->model, &o, a->diag, &text) != KILN_OK)
    fail_msg("%s", kiln_diag_message(a->diag, 0));
  return text;
}

static void expect_in(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no \"%s\" in:\n%s", part, text);
}

static void a_report_has_prims_edges_tiles_and_times(void **state) {
  asked a = ask();
  (void)state;
  const char *text = explain(&a, (kiln_explain_options){0});
  expect_in(text, "\nkernel k");
  expect_in(text, "nodes     first+bias+act");
  expect_in(text, "prims     t0(i0:96, ");
  expect_in(text, ":256) +=! ");
  expect_in(text, "registers t0 f32(96, ");
  expect_in(text, "memory    x f32(96, 256): memory -> t0, box (");
  expect_in(text, "memory    w f32(256, 256): constant -> t0, box (");
  expect_in(text, "memory    y f32(96, 40): y -> memory\n");
  expect_in(text, "schedule  ");
  expect_in(text, "instead of ");
  expect_in(text, "bytes     memory: ");
  expect_in(text, " written\n");
  expect_in(text, "predicted ");
  expect_in(text, "bound by ");
  assert_null(strstr(text, "measured  "));
  done(&a);
}

static void rules_are_counted_and_can_be_left_out(void **state) {
  asked with = ask(), without = ask_without("winograd,absorb");
  (void)state;
  expect_in(explain(&with, (kiln_explain_options){0}), "inline ");
  const char *text = explain(&without, (kiln_explain_options){0});
  expect_in(text, "\nrules ");
  assert_null(strstr(text, "inline "));
  expect_in(explain(&without, (kiln_explain_options){.json = 1}), "\"inline\": 0");
  done(&with);
  done(&without);
}

// y = (x w) v: one product of x and w v
static void save_layers(const char *path) {
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "layers");
  put_message(&g, 1, node(&t, "MatMul", "first", "x,w", "h"));
  put_message(&g, 1, node(&t, "MatMul", "second", "h,v", "y"));
  put_weights(&t, &g, "w", 2, (int64_t[]){24, 64});
  put_weights(&t, &g, "v", 2, (int64_t[]){64, 20});
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, "96,24"));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, "96,20"));
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

static void rules_run_before_tensors_become_halves(void **state) {
  asked a = {.f = folder_make(), .diag = kiln_diag_create()};
  const kiln_compile_options o = {.struct_size = sizeof o, .threads = 2, .dtype = "f16"};
  const kiln_verify_options how = {.struct_size = sizeof how, .rtol = 1e-2, .atol = 1e-2};
  size_t failed = 0;
  (void)state;
  save_layers(a.f.model);
  assert_int_equal(kiln_model_load(a.f.model, &o, a.diag, &a.model), KILN_OK);
  const char *text = explain(&a, (kiln_explain_options){0});
  expect_in(text, "reassociate 1");
  expect_in(text, "x f16(96, 24)");
  assert_int_equal(kiln_model_verify(a.model, &how, a.diag, &failed), KILN_OK);
  assert_int_equal(failed, 0);
  done(&a);
}

// y = a 3x3 convolution of one of x
static void save_convolutions(const char *path) {
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "convolutions");
  const char *const tensors[] = {"x,w", "h,w"};
  for (int i = 0; i < 2; i++) {
    kiln_text n = node(&t, "Conv", i ? "second" : "first", tensors[i], i ? "y" : "h");
    kiln_text pads = message(&t);
    put_text(&pads, 1, "pads");
    for (int k = 0; k < 4; k++) put_int(&pads, 8, 1);
    put_int(&pads, 20, 7); // INTS
    put_message(&n, 5, pads);
    put_message(&g, 1, n);
  }
  put_weights(&t, &g, "w", 4, (int64_t[]){64, 64, 3, 3});
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, "1,64,56,56"));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, "1,64,56,56"));
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

// Winograd kernels compute tiles with outliers directly; the loops do not tell how few these are.
static void branches_on_data_are_not_priced_as_taken(void **state) {
  asked a = {.f = folder_make(), .diag = kiln_diag_create()};
  const kiln_compile_options o = {.struct_size = sizeof o, .threads = 1, .target = "x86-64-v3"};
  (void)state;
  save_convolutions(a.f.model);
  assert_int_equal(kiln_model_load(a.f.model, &o, a.diag, &a.model), KILN_OK);
  json_t *report = json_loads(explain(&a, (kiln_explain_options){.json = 1}), 0, NULL), *kernel;
  size_t i;
  int n = 0;
  json_array_foreach(json_object_get(report, "kernels"), i, kernel) {
    if (!strstr(json_string_value(json_object_get(kernel, "name")), "winograd")) continue;
    const json_t *taken = json_object_get(kernel, "taken");
    assert_true(json_number_value(json_object_get(kernel, "predicted_us")) ==
                json_number_value(json_object_get(taken, "predicted_us")));
    n++;
  }
  assert_int_equal(n, 1);
  json_decref(report);
  done(&a);
}

static void why_names_the_level_or_the_reason(void **state) {
  asked a = ask();
  (void)state;
  const char *text = explain(&a, (kiln_explain_options){.why = {"bias", "act"}});
  expect_in(text, "bias and act are one statement");
  expect_in(text, "in registers\n");
  text = explain(&a, (kiln_explain_options){.why = {"first", "act"}});
  expect_in(text, "both ends are in kernel k");
  expect_in(text, "it passes through registers\n");
  assert_string_equal(explain(&a, (kiln_explain_options){.why = {"act", "first"}}), text);
  text = explain(&a, (kiln_explain_options){.why = {"second", "soft"}});
  assert_true(strstr(text, "both ends are in kernel k") || strstr(text, "not fused: "));
  expect_in(explain(&a, (kiln_explain_options){.why = {"first", "soft"}}), "no tensor passes");
  text = explain(&a, (kiln_explain_options){.why = {"#0", "act"}});
  expect_in(text, "both ends are in kernel k");
  done(&a);
}

static void one_kernel_is_measured_when_asked(void **state) {
  asked a = ask();
  (void)state;
  const char *text = explain(&a, (kiln_explain_options){.json = 1});
  json_t *root = json_loads(text, 0, NULL);
  assert_non_null(root);
  json_t *kernels = json_object_get(root, "kernels");
  assert_true(json_array_size(kernels) > 0);
  const char *name = json_string_value(json_object_get(json_array_get(kernels, 0), "name"));
  assert_non_null(name);
  text = explain(&a, (kiln_explain_options){.json = 1, .measure = 1, .kernel = name});
  json_t *measured = json_loads(text, 0, NULL), *only = json_object_get(measured, "kernels");
  assert_non_null(measured);
  assert_int_equal(json_array_size(only), 1);
  assert_true(json_number_value(json_object_get(json_array_get(only, 0), "measured_us")) > 0);
  assert_true(json_array_size(json_object_get(json_array_get(only, 0), "edges")) > 1);
  assert_true(json_array_size(json_object_get(json_array_get(only, 0), "prims")) > 0);
  json_decref(measured);
  json_decref(root);
  done(&a);
}

static void what_is_not_there_is_refused(void **state) {
  asked a = ask();
  const char *text = "";
  kiln_explain_options o = {.struct_size = sizeof o, .kernel = "k99_none"};
  (void)state;
  assert_int_equal(kiln_model_explain(a.model, &o, a.diag, &text), KILN_BAD_INPUT);
  assert_null(text);
  expect_in(kiln_diag_message(a.diag, 0), "kernel: must be one of the model's");
  kiln_diag_clear(a.diag);
  o = (kiln_explain_options){.struct_size = sizeof o, .why = {"first", "nothing"}};
  assert_int_equal(kiln_model_explain(a.model, &o, a.diag, &text), KILN_BAD_INPUT);
  expect_in(kiln_diag_message(a.diag, 0), "why: must name graph nodes");
  expect_in(kiln_diag_message(a.diag, 0), "got \"nothing\"");
  done(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_report_has_prims_edges_tiles_and_times),
                                     cmocka_unit_test(rules_are_counted_and_can_be_left_out),
                                     cmocka_unit_test(rules_run_before_tensors_become_halves),
                                     cmocka_unit_test(branches_on_data_are_not_priced_as_taken),
                                     cmocka_unit_test(why_names_the_level_or_the_reason),
                                     cmocka_unit_test(one_kernel_is_measured_when_asked),
                                     cmocka_unit_test(what_is_not_there_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
