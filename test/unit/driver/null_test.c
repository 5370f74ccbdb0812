// Every public function with NULL for a required pointer: a status with a message, or no effect,
// never a crash. The last test reads the headers: it fails if a function is not called here.
#include "unit/driver/models.h"

#include "kiln/gpu.h"

#include <dirent.h>

typedef struct made {
  folder f;
  kiln_diag *diag;
  kiln_model *model;
  kiln_module *module;
  kiln_session *session;
} made;

static int setup(void **state) {
  made *m = calloc(1, sizeof *m);
  assert_non_null(m);
  const kiln_dim_value dim = {"batch", 3};
  const kiln_compile_options o = {.struct_size = sizeof o, .dims = &dim, .n_dims = 1, .threads = 1};
  m->f = folder_make();
  m->diag = kiln_diag_create();
  save_mlp(m->f.model, "batch");
  assert_int_equal(kiln_model_load(m->f.model, &o, m->diag, &m->model), KILN_OK);
  assert_int_equal(kiln_model_compile(m->model, m->diag, &m->module), KILN_OK);
  assert_int_equal(kiln_session_create(m->module, NULL, m->diag, &m->session), KILN_OK);
  *state = m;
  return 0;
}

static int teardown(void **state) {
  made *m = *state;
  kiln_session_destroy(m->session);
  kiln_module_release(m->module);
  kiln_model_destroy(m->model);
  kiln_diag_destroy(m->diag);
  folder_remove(&m->f);
  free(m);
  return 0;
}

// Refused, with a message that names |argument|.
static void refused(made *m, kiln_status status, const char *argument) {
  char want[64];
  snprintf(want, sizeof want, "%s: must not be NULL", argument);
  assert_int_equal(status, KILN_BAD_INPUT);
  assert_int_equal(kiln_diag_count(m->diag), 1);
  const char *message = kiln_diag_message(m->diag, 0);
  if (!strstr(message, want)) fail_msg("'%s' must hold '%s'", message, want);
  kiln_diag_clear(m->diag);
}

static void on_operator(void *user, const char *domain, const char *name) {
  (void)user, (void)domain, (void)name;
}

static void fallible_functions_say_what_is_missing(void **state) {
  made *m = *state;
  kiln_diag *d = m->diag;
  kiln_model *model = (kiln_model *)m;
  kiln_module *module = (kiln_module *)m;
  kiln_session *session = (kiln_session *)m;
  kiln_compiled compiled;
  kiln_judgement judgement;
  DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *)m;
  const char *text = "", *path = m->f.model;
  int64_t numbers[KILN_MAX_PORT_RANK];
  int32_t n = 0;
  size_t failed = 1;
  refused(m, kiln_model_load(NULL, NULL, d, &model), "path");
  assert_null(model);
  refused(m, kiln_model_load(path, NULL, d, NULL), "out_model");
  refused(m, kiln_model_compile(NULL, d, &module), "model");
  assert_null(module);
  refused(m, kiln_model_compile(m->model, d, NULL), "out_module");
  refused(m, kiln_model_compile_to(NULL, "x.so", d), "model");
  refused(m, kiln_model_compile_to(m->model, NULL, d), "out_path");
  refused(m, kiln_model_compile_to_archive(NULL, "x.a", NULL, d), "model");
  refused(m, kiln_model_compile_to_archive(m->model, NULL, NULL, d), "out_path");
  refused(m, kiln_compile_file(NULL, NULL, "x.so", d, &compiled), "path");
  refused(m, kiln_compile_file(path, NULL, NULL, d, &compiled), "out_path");
  refused(m, kiln_compile_file(path, NULL, "x.so", d, NULL), "out");
  refused(m, kiln_model_judge(NULL, 0, NULL, 0, NULL, d, &judgement), "model");
  refused(m, kiln_model_judge(m->model, 0, NULL, 1, NULL, d, NULL), "out");
  refused(m, kiln_model_emit(NULL, d), "model");
  refused(m, kiln_model_explain(NULL, NULL, d, &text), "model");
  assert_null(text);
  refused(m, kiln_model_explain(m->model, NULL, d, NULL), "out_text");
  refused(m, kiln_model_reference(NULL, 0, NULL, 0, NULL, d), "model");
  refused(m, kiln_model_simulate(NULL, 0, NULL, 0, NULL, d, &text), "model");
  refused(m, kiln_model_simulate(m->model, 0, NULL, 0, NULL, d, NULL), "out_report");
  refused(m, kiln_model_verify(NULL, NULL, d, &failed), "model");
  refused(m, kiln_model_verify(m->model, NULL, d, NULL), "out_failed");
  refused(m, kiln_definitions_verify(NULL, NULL, NULL, d, &failed), "path");
  refused(m, kiln_definitions_verify(path, NULL, NULL, d, NULL), "out_failed");
  refused(m, kiln_schedule_search(NULL, NULL, NULL, d), "path");
  refused(m, kiln_cache_list(d, NULL, NULL), "on_entry");
  assert_int_equal(kiln_cache_folder(NULL, 0), 0);
  kiln_reduced reduced;
  const kiln_reduce_options reducing = {.struct_size = sizeof reducing};
  refused(m, kiln_model_reduce(NULL, path, &reducing, d, &reduced), "path");
  refused(m, kiln_model_reduce(path, NULL, &reducing, d, &reduced), "out_path");
  refused(m, kiln_model_reduce(path, path, NULL, d, &reduced), "options");
  refused(m, kiln_model_reduce(path, path, &reducing, d, &reduced), "trial");
  refused(m, kiln_model_reduce(path, path, &reducing, d, NULL), "out");
  refused(m, kiln_model_expose(NULL, path, d), "path");
  refused(m, kiln_model_expose(path, NULL, d), "out_path");
  refused(m, kiln_model_read_operators(NULL, on_operator, NULL, d), "path");
  refused(m, kiln_model_read_operators(path, NULL, NULL, d), "on_operator");
  refused(m, kiln_tensor_read_pb(NULL, d, &tensor), "path");
  assert_null(tensor);
  refused(m, kiln_tensor_read_pb(path, d, NULL), "out_tensor");
  refused(m, kiln_value_read_pb(NULL, NULL, 1, d, &n, &tensor), "path");
  refused(m, kiln_value_read_pb(path, NULL, 1, d, NULL, &tensor), "out_n");
  refused(m, kiln_value_read_pb(path, NULL, 1, d, &n, NULL), "out_tensors");
  refused(m, kiln_module_load(NULL, d, &module), "path");
  refused(m, kiln_module_load("x.so", d, NULL), "out_module");
  refused(m, kiln_module_describe(NULL, d, &module), "path");
  refused(m, kiln_module_describe("x.so", d, NULL), "out_module");
  refused(m, kiln_module_find_dims(NULL, 0, NULL, d, numbers), "module");
  refused(m, kiln_module_input_shape(NULL, 0, NULL, d, numbers), "module");
  refused(m, kiln_module_input_shape(m->module, 0, NULL, d, NULL), "out_shape");
  refused(m, kiln_module_output_shape(NULL, 0, NULL, d, numbers), "module");
  refused(m, kiln_module_output_shape(m->module, 0, NULL, d, NULL), "out_shape");
  refused(m, kiln_session_create(NULL, NULL, d, &session), "module");
  assert_null(session);
  refused(m, kiln_session_create(m->module, NULL, d, NULL), "out_session");
  refused(m, kiln_session_run(NULL, 0, NULL, 0, NULL, d), "session");
  refused(m, kiln_session_wait(NULL, d), "session");
  refused(m, kiln_session_find_dims(NULL, 0, NULL, d, NULL), "session");
  refused(m, kiln_session_state_reset(NULL, d), "session");
  refused(m, kiln_session_state_truncate(NULL, 0, d), "session");
  refused(m, kiln_session_state_save(NULL, "x", d), "session");
  refused(m, kiln_session_state_load(NULL, "x", d), "session");
  refused(m, kiln_session_fork(NULL, d, NULL), "out_session");
  refused(m, kiln_session_set_stream(NULL, NULL, d), "session");
}

static void gpus_are_checked(void **state) {
  made *m = *state;
  kiln_diag *d = m->diag;
  kiln_gpu_handle *device = NULL;
  void *got = NULL;
  assert_int_equal(kiln_gpu_count(NULL), 0);
  refused(m, kiln_gpu_create(NULL, 0, d, &device), "target");
  assert_null(device);
  refused(m, kiln_gpu_create("cuda", 0, d, NULL), "out_device");
  refused(m, kiln_gpu_allocate(NULL, 1, d, &got), "device");
  refused(m, kiln_gpu_allocate_host(NULL, 1, d, &got), "device");
  refused(m, kiln_gpu_stream_create(NULL, d, &got), "device");
  refused(m, kiln_gpu_stream_wait(NULL, NULL, d), "device");
  refused(m, kiln_gpu_copy(NULL, NULL, NULL, NULL, 0, d), "device");
  refused(m, kiln_gpu_event_create(NULL, d, &got), "device");
  refused(m, kiln_gpu_event_record(NULL, NULL, NULL, d), "device");
  refused(m, kiln_gpu_event_wait(NULL, NULL, NULL, d), "device");
  kiln_gpu_free(NULL, NULL);
  kiln_gpu_free_host(NULL, NULL);
  kiln_gpu_stream_destroy(NULL, NULL);
  kiln_gpu_event_destroy(NULL, NULL);
  kiln_gpu_destroy(NULL);
}

// Nor need there be a diag.
static void messages_need_no_diag(void **state) {
  made *m = *state;
  assert_int_equal(kiln_session_run(NULL, 0, NULL, 0, NULL, NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_session_run(m->session, 2, NULL, 0, NULL, NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_diag_fail(NULL, KILN_INTERNAL, NULL, "%d", 1), KILN_INTERNAL);
  kiln_diag_warn(NULL, NULL, "%d", 1);
  kiln_diag_clear(NULL);
  kiln_diag_destroy(NULL);
  assert_int_equal(kiln_diag_count(NULL), 0);
  assert_null(kiln_diag_message(NULL, 0));
  assert_null(kiln_diag_place(NULL, 0));
  (void)kiln_diag_fail(m->diag, KILN_BAD_INPUT, NULL, "no place");
  assert_string_equal(kiln_diag_message(m->diag, 0), "error: no place");
  kiln_diag_clear(m->diag);
}

static void must_be_empty(kiln_port p) {
  assert_null(p.name);
  assert_int_equal(p.rank, 0);
}

static void others_give_nothing(void **state) {
  made *m = *state;
  const kiln_pass_time *times = (const kiln_pass_time *)m;
  DLTensor hollow = {.ndim = 2, .dtype = {kDLFloat, 32, 1}};
  char byte = 0;
  kiln_model_destroy(NULL);
  assert_int_equal(kiln_model_pass_times(NULL, &times), 0);
  assert_null(times);
  assert_true(kiln_model_pass_times(m->model, NULL) > 0);
  assert_int_equal(kiln_model_tuning(NULL).kernels, 0);
  assert_int_equal(kiln_model_memory(NULL).weight_bytes, 0);
  assert_int_equal(kiln_model_input_count(NULL) + kiln_model_output_count(NULL), 0);
  must_be_empty(kiln_model_input(NULL, 0));
  must_be_empty(kiln_model_output(NULL, 0));
  assert_null(kiln_model_input_dim_name(NULL, 0, 0));
  assert_false(kiln_model_input_is_optional(NULL, 0));
  assert_string_equal(kiln_model_report(NULL, 1), "");
  assert_null(kiln_model_output_shape(NULL, 0));
  assert_int_equal(kiln_model_reads(NULL, m->f.model) + kiln_model_reads(m->model, NULL), 0);
  kiln_onnx_versions(NULL, NULL);
  assert_null(kiln_module_retain(NULL));
  kiln_module_release(NULL);
  assert_int_equal(kiln_module_input_count(NULL) + kiln_module_output_count(NULL), 0);
  must_be_empty(kiln_module_input(NULL, 0));
  must_be_empty(kiln_module_output(NULL, 0));
  assert_null(kiln_module_input_default(NULL, 0));
  assert_false(kiln_module_input_is_optional(NULL, 0) || kiln_module_is_file(NULL));
  assert_null(kiln_module_about(NULL).target);
  assert_int_equal(kiln_module_dim_count(NULL), 0);
  assert_null(kiln_module_dim(NULL, 0).name);
  assert_int_equal(kiln_module_arena_bytes(NULL) + kiln_module_arena_lower_bound_bytes(NULL), 0);
  assert_int_equal(kiln_module_weight_bytes(NULL) + kiln_module_launch_count(NULL), 0);
  assert_null(kiln_module_launch(NULL, 0).kernel);
  kiln_session_destroy(NULL);
  assert_null(kiln_session_output_shape(NULL, 0));
  assert_null(kiln_session_state(NULL, 0));
  assert_int_equal(kiln_module_state_count(NULL), 0);
  assert_null(kiln_module_state(NULL, 0).name);
  assert_int_equal(kiln_session_launch_start_ns(NULL, 0) + kiln_session_launch_ns(NULL, 0), 0);
  assert_int_equal(kiln_session_spans(NULL, NULL), 0);
  assert_null(kiln_tensor_create(NULL, 0, NULL, NULL));
  assert_null(kiln_tensor_create("f32", 2, NULL, NULL));
  kiln_tensor_destroy(NULL);
  assert_null(kiln_tensor_dtype(NULL));
  assert_int_equal(kiln_tensor_bytes(NULL) + kiln_tensor_bytes(&hollow), 0);
  assert_int_equal(kiln_tensor_count(NULL) + kiln_tensor_count(&hollow), 0);
  assert_true(kiln_tensor_element(NULL, 0) == 0 && kiln_tensor_element(&hollow, 0) == 0);
  kiln_tensor_set_element(NULL, 0, 1);
  kiln_tensor_set_element(&hollow, 0, 1);
  kiln_tensor_unpack(NULL, &byte);
  kiln_tensor_unpack(&hollow, NULL);
  kiln_tensor_pack(NULL, &byte);
  kiln_tensor_pack(&hollow, NULL);
}

// What options point to, too: each list with a number and without rows, and with rows of NULL.
static void options_that_point_to_nothing_are_refused(void **state) {
  made *m = *state;
  static const char *const texts[] = {NULL};
  static const DLTensor *const tensors[] = {NULL};
  static const kiln_dim_value dim = {NULL, 1};
  static const kiln_shape_value shapes[] = {{NULL, 0, NULL, NULL}, {"x", 2, NULL, NULL}};
  static const kiln_dim_range range = {NULL, 1, 2, 1};
  static const kiln_dim_sum sums[] = {{NULL, "a"}, {"a", NULL}};
  static const char *const names[] = {"x"};
  static const kiln_memory_file file = {NULL, "", 0};
  const kiln_compile_options rows[] = {
      {.n_dims = 1},
      {.n_dims = 1, .dims = &dim},
      {.n_shapes = 1},
      {.n_shapes = 1, .shapes = &shapes[0]},
      {.n_shapes = 1, .shapes = &shapes[1]},
      {.n_ranges = 1},
      {.n_ranges = 1, .ranges = &range},
      {.n_sums = 1},
      {.n_sums = 1, .sums = &sums[0]},
      {.n_sums = 1, .sums = &sums[1]},
      {.n_constants = 1},
      {.n_constants = 1, .constant_names = texts},
      {.n_constants = 1, .constant_names = names},
      {.n_constants = 1, .constant_names = names, .constant_values = tensors},
      {.n_op_files = 1},
      {.n_op_files = 1, .op_files = texts},
      {.n_without = 1},
      {.n_without = 1, .without = texts},
      {.n_with_rules = 1},
      {.n_with_rules = 1, .with_rules = texts},
      {.n_overridable = 1},
      {.n_overridable = 1, .overridable = texts},
      {.n_marks = 1},
      {.n_marks = 1, .marks = texts},
      {.n_files = 1},
      {.n_files = 1, .files = &file}};
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_compile_options o = rows[i];
    kiln_model *model = NULL;
    kiln_compiled compiled;
    size_t failed = 0;
    o.struct_size = sizeof o;
    const kiln_status all[] = {kiln_model_load(m->f.model, &o, m->diag, &model),
                               kiln_compile_file(m->f.model, &o, "x.so", m->diag, &compiled),
                               kiln_definitions_verify("x.tc", &o, NULL, m->diag, &failed),
                               kiln_schedule_search("x.tc", &o, NULL, m->diag)};
    for (size_t k = 0; k < KILN_LEN(all); k++) {
      assert_int_equal(all[k], KILN_BAD_INPUT);
      assert_non_null(strstr(kiln_diag_message(m->diag, k), "must not be NULL"));
    }
    kiln_diag_clear(m->diag);
  }
}

static char *read_text(const char *path) {
  static char text[1 << 18];
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  return text;
}

// Those without a pointer among their arguments.
static const char *const without[] = {"kiln_diag_create",  "kiln_status_name", "kiln_operator",
                                      "kiln_version",      "kiln_host",        "kiln_cache_clear",
                                      "kiln_device_report"}; // NULL options are the default

static bool is_called(const char *name, size_t n, const char *here) {
  for (size_t i = 0; i < KILN_LEN(without); i++)
    if (strlen(without[i]) == n && strncmp(without[i], name, n) == 0) return true;
  for (const char *at = here; (at = strstr(at, "kiln_")); at++)
    if (strncmp(at, name, n) == 0 && at[n] == '(') return true;
  return false;
}

static void every_public_function_is_among_them(void **state) {
  char *here = strdup(read_text(KILN_SOURCE_DIR "/test/unit/driver/null_test.c"));
  size_t n_found = 0;
  DIR *headers = opendir(KILN_SOURCE_DIR "/include/kiln");
  (void)state;
  assert_non_null(headers);
  for (const struct dirent *e; (e = readdir(headers));) {
    char path[512];
    if (!strstr(e->d_name, ".h")) continue;
    snprintf(path, sizeof path, KILN_SOURCE_DIR "/include/kiln/%.200s", e->d_name);
    for (const char *at = read_text(path); (at = strstr(at, "\nKILN_API")); at++) {
      const char *name = at;
      size_t n = 0;
      do {
        name = strstr(name + 1, "kiln_");
        n = strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789");
      } while (name[n] != '(');
      if (!is_called(name, n, here)) fail_msg("%.*s is not called with NULL", (int)n, name);
      n_found++;
    }
  }
  closedir(headers);
  assert_true(n_found >= 70);
  free(here);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fallible_functions_say_what_is_missing),
                                     cmocka_unit_test(gpus_are_checked),
                                     cmocka_unit_test(messages_need_no_diag),
                                     cmocka_unit_test(others_give_nothing),
                                     cmocka_unit_test(options_that_point_to_nothing_are_refused),
                                     cmocka_unit_test(every_public_function_is_among_them)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
