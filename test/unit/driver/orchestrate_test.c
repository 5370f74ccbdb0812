// Orchestration from outside: the file that is written, edited and given back, every chosen kernel against the
// reference, what is refused.
#include "unit/driver/models.h"

typedef struct outside {
  folder f;
  kiln_diag *diag;
  char file[96];       // of an orchestration
  char printed[16384]; // the last that was dumped
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
  save_pair(o->f.model);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_file_is_written_when_the_choice_is_in_the_cache_too,
                                      begin, end),
      cmocka_unit_test_setup_teardown(every_chosen_kernel_is_right, begin, end),
      cmocka_unit_test_setup_teardown(kernels_are_split_and_merged_by_hand, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
