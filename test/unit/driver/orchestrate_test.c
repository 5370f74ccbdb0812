// Orchestration through the public interface: the file is written, edited and given back; every
// chosen kernel is compared with the reference; refusals.
#include "unit/driver/models.h"

#include <jansson.h>

typedef struct outside {
  folder f;
  kiln_diag *diag;
  char file[96];       // of an orchestration
  char printed[16384]; // the last that was dumped
  const char *rule;    // that is asked for; NULL: none
} outside;

static void on_dump(void *user, const char *level, const char *text) {
  outside *o = user;
  if (!strcmp(level, "orchestration")) snprintf(o->printed, sizeof o->printed, "%s", text);
}

static int begin(void **state) {
  outside *o = calloc(1, sizeof *o);
  assert_non_null(o);
  o->f = folder_make();
  o->diag = kiln_diag_create();
  snprintf(o->file, sizeof o->file, "%s/kernels.txt", o->f.path);
  setenv("KILN_CACHE_DIR", o->f.path, 1);
  save_pair(o->f.model, "96");
  *state = o;
  return 0;
}

static int end(void **state) {
  outside *o = *state;
  kiln_diag_destroy(o->diag);
  folder_remove(&o->f);
  free(o);
  return 0;
}

static kiln_compile_options options_of(outside *o) {
  return (kiln_compile_options){.struct_size = sizeof(kiln_compile_options),
                                .threads = 2,
                                .orchestrate = 1,
                                .n_with_rules = o->rule != NULL,
                                .with_rules = &o->rule,
                                .dump_user = o,
                                .on_dump = on_dump,
                                .dump = "orchestration",
                                .cache = 1};
}

static kiln_model *load(outside *o, const kiln_compile_options *options) {
  kiln_model *m = NULL;
  if (kiln_model_load(o->f.model, options, o->diag, &m) != KILN_OK)
    fail_msg("%s", kiln_diag_message(o->diag, 0));
  return m;
}

// The kernels of the model, one a line.
static const char *emit(outside *o) {
  const kiln_compile_options options = options_of(o);
  kiln_model *m = load(o, &options);
  o->printed[0] = 0;
  if (kiln_model_emit(m, o->diag) != KILN_OK) fail_msg("%s", kiln_diag_message(o->diag, 0));
  kiln_model_destroy(m);
  return o->printed;
}

static void count(void *user, const kiln_verify_result *r) {
  if (!r->passed) fail_msg("%s is wrong", r->kernel);
  *(int *)user += strncmp(r->kernel, "k", 1) == 0; // the model as a whole is checked, too
}

// Compiles with the kernels of |text|, NULL: those that are chosen, and checks each.
//
// gives: their number; -1: refused
static int verify(outside *o, const char *text) {
  kiln_compile_options options = options_of(o);
  int n = 0;
  size_t failed = 0;
  const kiln_verify_options vo = {
      .struct_size = sizeof vo, .rtol = 1e-3, .atol = 1e-5, .on_result = count, .user = &n};
  if (text) {
    FILE *f = fopen(o->file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    options.orchestration = o->file;
  }
  kiln_diag_clear(o->diag);
  kiln_model *m = load(o, &options);
  const kiln_status st = kiln_model_verify(m, &vo, o->diag, &failed);
  kiln_model_destroy(m);
  assert_true(st == KILN_OK || st == KILN_BAD_INPUT);
  return st == KILN_OK ? n : -1;
}

static int count_kernels(const char *text) {
  int n = 0;
  for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
    n += *at >= '0' && *at <= '9';
  return n;
}

static void the_file_is_written_when_the_choice_is_in_the_cache_too(void **state) {
  outside *o = *state;
  kiln_compile_options options = options_of(o);
  options.dump = NULL;
  kiln_module *module = NULL;
  kiln_model *m = load(o, &options);
  assert_int_equal(kiln_model_compile(m, o->diag, &module), KILN_OK);
  kiln_module_release(module);
  kiln_model_destroy(m);
  assert_true(count_kernels(emit(o)) > 0);
}

static void every_chosen_kernel_is_right(void **state) {
  outside *o = *state;
  const int n = count_kernels(emit(o));
  assert_int_equal(verify(o, NULL), n);
  assert_int_equal(verify(o, o->printed), n);
}

// The model: a product, the map behind it, another product, and four statements of a softmax.
static void kernels_are_split_and_merged_by_hand(void **state) {
  outside *o = *state;
  static const struct {
    const char *text;
    int n; // kernels, equal ones are one; -1: refused
  } edits[] = {
      {"0 1 2 3 4 5 6\n", 1},       {"0\n1\n2\n3 4 5 6\n", 4},         {"0 1\n2\n3 4 5 6\n", 3},
      {"0\n1\n2\n3\n4\n5\n6\n", 7}, {"0 1\n2* 3\n4 5 6 # twice\n", 3}, {"0 1\n2 3 4 5 6\n", 2},
      {"0\n1 2\n3\n3 4 5 6\n", 4},  {"0 1\n2 3\n4 5 6\n", -1},
  };
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
    if (verify(o, edits[i].text) != edits[i].n)
      fail_msg("edit %zu: %s", i, kiln_diag_count(o->diag) ? kiln_diag_message(o->diag, 0) : "ran");
}

// Two products of |x|, WIDE and |n| wide, which merge into one, each with a map behind it.
static void put_twins(fixture *t, kiln_text *g, const char *x, int n, const char *const *weights,
                      const char *const *made, const char *const *results) {
  for (int i = 0; i < 2; i++) {
    const char *in = kiln_arena_printf(&t->cx.perm, "%s,%s", x, weights[i]);
    const int columns = i == 0 ? WIDE + n : n;
    put_message(g, 1, node(t, "MatMul", made[i], in, made[i]));
    put_message(g, 1, node(t, "Relu", results[i], made[i], results[i]));
    put_weights(t, g, weights[i], 2, (int64_t[]){WIDE, columns});
    put_message(
        g, 12,
        value_info(t, results[i], ONNX_F32, kiln_arena_printf(&t->cx.perm, "96,%d", columns)));
  }
  put_message(g, 11, value_info(t, x, ONNX_F32, "96,256"));
}

static void save_twins(const char *path, int n_pairs) {
  static const char *const names[][3][2] = {{{"w", "v"}, {"h", "k"}, {"y", "z"}},
                                            {{"W", "V"}, {"H", "K"}, {"Y", "Z"}}};
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "twins");
  for (int i = 0; i < n_pairs; i++)
    put_twins(&t, &g, i == 0 ? "x" : "X", NARROW + 8 * i, names[i][0], names[i][1], names[i][2]);
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

static void the_file_says_which_alternatives_made_its_statements(void **state) {
  outside *o = *state;
  char text[256];
  save_twins(o->f.model, 1);
  o->rule = "merge";
  emit(o);
  assert_int_equal(strncmp(o->printed, "rules merge\n", 12), 0);
  o->rule = NULL;
  assert_true(verify(o, "rules merge\n0\n1\n2\n") == 3);
  assert_int_equal(verify(o, "0\n1\n2\n3\n"), 4);
  assert_int_equal(verify(o, "0\n1\n2\n"), -1);
  assert_int_equal(verify(o, "rules soup\n0\n1\n2\n"), -1);
  snprintf(text, sizeof text, "%s", kiln_diag_message(o->diag, 0));
  assert_non_null(strstr(text, "got 'soup'"));
}

static void the_file_says_at_which_places_they_were_applied(void **state) {
  outside *o = *state;
  static const char *const kernels[] = {"0\n1\n2\n3\n4\n5\n6\n7\n", "0\n1\n2\n3\n4\n5\n6\n"};
  char text[256];
  save_twins(o->f.model, 2);
  o->rule = "merge@H";
  emit(o);
  assert_int_equal(strncmp(o->printed, "rules merge@H\n", 14), 0);
  o->rule = NULL;
  snprintf(text, sizeof text, "rules merge@H\n%s", kernels[1]);
  assert_true(verify(o, text) > 0);
  snprintf(text, sizeof text, "rules merge@H\n%s", kernels[0]);
  assert_int_equal(verify(o, text), -1);
  snprintf(text, sizeof text, "rules merge@H,merge@other\n%s", kernels[1]);
  assert_int_equal(verify(o, text), -1);
  snprintf(text, sizeof text, "%s", kiln_diag_message(o->diag, 0));
  assert_non_null(strstr(text, "does not at 'other'"));
}

static void alternatives_are_tried_and_the_choice_is_kept(void **state) {
  outside *o = *state;
  kiln_compile_options options = options_of(o);
  const kiln_explain_options eo = {.struct_size = sizeof eo, .orchestration = 1};
  const char *text = NULL;
  double with = 0, without = 0;
  char taken[16] = "";
  save_twins(o->f.model, 1);
  options.dump = NULL;
  kiln_model *m = load(o, &options);
  assert_int_equal(kiln_model_explain(m, &eo, o->diag, &text), KILN_OK);
  const char *tried = strstr(text, "tried       merge at 1 of 1 places: ");
  assert_non_null(tried);
  assert_int_equal(sscanf(tried, "tried merge at 1 of 1 places: %lf us in place of %lf, %15s",
                          &with, &without, taken),
                   3);
  assert_string_equal(taken, with < 0.99 * without ? "taken" : "not");
  assert_int_equal(strstr(text, "merge 1") != NULL, with < 0.99 * without);
  kiln_model_destroy(m);
  const int n = verify(o, NULL); // solved, and kept
  assert_int_equal(verify(o, NULL), n);
}

static const char *explain(outside *o, kiln_model *m, kiln_explain_options asked) {
  const char *text = NULL;
  asked.struct_size = sizeof asked;
  if (kiln_model_explain(m, &asked, o->diag, &text) != KILN_OK)
    fail_msg("%s", kiln_diag_message(o->diag, 0));
  return text;
}

// The report of the kernels that are chosen.
static const char *report_of(outside *o) {
  static char text[16384];
  kiln_compile_options options = options_of(o);
  const kiln_explain_options eo = {.struct_size = sizeof eo, .orchestration = 1};
  const char *report = NULL;
  options.dump = NULL;
  kiln_model *m = load(o, &options);
  if (kiln_model_explain(m, &eo, o->diag, &report) != KILN_OK)
    fail_msg("%s", kiln_diag_message(o->diag, 0));
  snprintf(text, sizeof text, "%s", report);
  kiln_model_destroy(m);
  return text;
}

static void compile(outside *o, int32_t tune, const char *dtype) {
  kiln_module *module = NULL;
  kiln_compile_options options = options_of(o);
  options.dump = NULL;
  options.tune = tune;
  options.dtype = dtype;
  kiln_model *m = load(o, &options);
  if (kiln_model_compile(m, o->diag, &module) != KILN_OK)
    fail_msg("%s", kiln_diag_message(o->diag, 0));
  kiln_module_release(module);
  kiln_model_destroy(m);
}

// Times that were measured are marked by '!'.
static void what_was_measured_once_decides_later_choices(void **state) {
  outside *o = *state;
  compile(o, 0, NULL); // predictions decide, and that is recalled
  assert_null(strstr(report_of(o), " us!"));
  compile(o, 1, NULL);
  assert_non_null(strstr(report_of(o), " us!"));
}

static void halves_are_measured_too(void **state) {
  compile(*state, 1, "bf16");
  compile(*state, 2, "bf16");
}

static void the_report_is_json_too(void **state) {
  outside *o = *state;
  const kiln_compile_options options = options_of(o);
  kiln_model *m = load(o, &options);
  json_t *root =
      json_loads(explain(o, m, (kiln_explain_options){.orchestration = 1, .json = 1}), 0, NULL);
  assert_non_null(root);
  json_t *kernels = json_object_get(root, "kernels"), *one = json_array_get(kernels, 0);
  assert_int_equal(json_array_size(kernels), count_kernels(o->printed));
  assert_true(json_number_value(json_object_get(one, "us")) > 0);
  assert_true(json_array_size(json_object_get(one, "statements")) > 0);
  assert_true(json_array_size(json_object_get(one, "instead")) > 0);
  assert_true(json_integer_value(json_object_get(root, "states")) > 0);
  json_decref(root);
  kiln_model_destroy(m);
}

static void why_not_fused_is_told_with_costs(void **state) {
  outside *o = *state;
  emit(o);
  assert_int_equal(verify(o, "0 1\n2 3 4 5 6\n"), 2);
  kiln_compile_options options = options_of(o);
  options.orchestration = o->file;
  kiln_model *m = load(o, &options);
  const char *text = explain(o, m, (kiln_explain_options){.why = {"act", "second"}});
  assert_non_null(strstr(text, "not fused: the kernels that were given keep them apart"));
  kiln_model_destroy(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_file_is_written_when_the_choice_is_in_the_cache_too,
                                      begin, end),
      cmocka_unit_test_setup_teardown(every_chosen_kernel_is_right, begin, end),
      cmocka_unit_test_setup_teardown(what_was_measured_once_decides_later_choices, begin, end),
      cmocka_unit_test_setup_teardown(halves_are_measured_too, begin, end),
      cmocka_unit_test_setup_teardown(the_report_is_json_too, begin, end),
      cmocka_unit_test_setup_teardown(why_not_fused_is_told_with_costs, begin, end),
      cmocka_unit_test_setup_teardown(kernels_are_split_and_merged_by_hand, begin, end),
      cmocka_unit_test_setup_teardown(the_file_says_which_alternatives_made_its_statements, begin,
                                      end),
      cmocka_unit_test_setup_teardown(the_file_says_at_which_places_they_were_applied, begin, end),
      cmocka_unit_test_setup_teardown(alternatives_are_tried_and_the_choice_is_kept, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
