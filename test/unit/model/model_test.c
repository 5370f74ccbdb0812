// Models: loading, descriptions, the reference, and errors of loading.
#include "unit/driver/models.h"

static void ports_and_names_of_dimensions_are_told(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  save_mlp(f.model, "batch");
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_OK);
  assert_int_equal(kiln_model_input_count(m), 2);
  assert_int_equal(kiln_model_output_count(m), 3);
  const kiln_port x = kiln_model_input(m, 0);
  assert_string_equal(x.name, "x");
  assert_string_equal(x.dtype, "f32");
  assert_int_equal(x.rank, 2);
  assert_int_equal(x.shape[0], -1);
  assert_int_equal(x.shape[1], IN);
  assert_string_equal(kiln_model_input_dim_name(m, 0, 0), "batch");
  assert_null(kiln_model_input_dim_name(m, 0, 1));
  assert_null(kiln_model_input_dim_name(m, 0, 2));
  assert_null(kiln_model_input_dim_name(m, 2, 0));
  assert_string_equal(kiln_model_output(m, 2).name, "w2");
  assert_null(kiln_model_output(m, 3).name);
  assert_non_null(strstr(kiln_model_report(m, 0), "batch"));
  assert_int_equal(*kiln_model_report(m, 1), '{');
  assert_ptr_equal(kiln_model_report(m, 1), kiln_model_report(m, 1));
  kiln_model_destroy(m);
  assert_int_equal(kiln_diag_count(diag), 0);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void the_reference_gives_what_plain_loops_give(void **state) {
  folder f = folder_make();
  kiln_model *m = NULL;
  const kiln_dim_value dim = {"batch", 5};
  const kiln_compile_options o = {.struct_size = sizeof o, .dims = &dim, .n_dims = 1};
  (void)state;
  save_mlp(f.model, "batch");
  assert_int_equal(kiln_model_load(f.model, &o, NULL, &m), KILN_OK);
  call c = call_of_model(m);
  assert_int_equal(kiln_model_reference(m, c.n_in, c.inputs, c.n_out, c.outputs, NULL), KILN_OK);
  check_mlp(&c);
  call_destroy(&c);
  kiln_model_destroy(m);
  folder_remove(&f);
}

static void expect(kiln_diag *diag, const char *message) {
  bool found = false;
  for (size_t i = 0; i < kiln_diag_count(diag); i++)
    found = found || strstr(kiln_diag_message(diag, i), message);
  if (!found) fail_msg("no '%s' in: %s", message, kiln_diag_message(diag, 0));
  kiln_diag_clear(diag);
}

static void dimensions_without_value_are_listed(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  save_mlp(f.model, "batch");
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_OK);
  assert_int_equal(kiln_model_reference(m, 0, NULL, 0, NULL, diag), KILN_UNSUPPORTED);
  expect(diag, "dimension 'batch' is symbolic: bind it with --dim batch=N");
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void the_reference_checks_its_tensors(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  save_mlp(f.model, "3");
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_OK);
  call c = call_of_model(m);
  assert_int_equal(kiln_model_reference(m, 1, c.inputs, c.n_out, c.outputs, diag), KILN_BAD_INPUT);
  expect(diag, "inputs: must be 2, got 1");
  const DLTensor *swapped[] = {c.inputs[1], c.inputs[0]};
  assert_int_equal(kiln_model_reference(m, 2, swapped, c.n_out, c.outputs, diag), KILN_BAD_INPUT);
  expect(diag, "input 0 \"x\": error: dtype: must be f32, got i64");
  call_destroy(&c);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void a_model_that_was_only_read_is_not_run(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  const kiln_compile_options o = {.struct_size = sizeof o, .read_only = 1};
  (void)state;
  save_mlp(f.model, "3");
  assert_int_equal(kiln_model_load(f.model, &o, diag, &m), KILN_OK);
  assert_int_equal(kiln_model_input(m, 0).shape[1], IN);
  assert_int_equal(kiln_model_reference(m, 0, NULL, 0, NULL, diag), KILN_BAD_INPUT);
  expect(diag, "must be loaded for compilation");
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void inputs_can_be_bound_as_constants(void **state) {
  folder f = folder_make();
  kiln_model *m = NULL;
  const int64_t three = 3;
  DLManagedTensorVersioned *ids = kiln_tensor_create("i64", 1, &three, NULL);
  const char *names[] = {"ids"};
  const DLTensor *values[] = {&ids->dl_tensor};
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .constant_names = names,
                                  .constant_values = values,
                                  .n_constants = 1};
  (void)state;
  ((int64_t *)ids->dl_tensor.data)[1] = 4;
  save_mlp(f.model, "3");
  assert_int_equal(kiln_model_load(f.model, &o, NULL, &m), KILN_OK);
  kiln_tensor_destroy(ids); // the model has a copy
  assert_int_equal(kiln_model_input_count(m), 1);
  call c = call_of_model(m);
  assert_int_equal(kiln_model_reference(m, c.n_in, c.inputs, c.n_out, c.outputs, NULL), KILN_OK);
  assert_int_equal(((int64_t *)c.out[1]->dl_tensor.data)[1], 4);
  call_destroy(&c);
  kiln_model_destroy(m);
  folder_remove(&f);
}

enum { INT4 = 22 };

// transposed = x^T, same = x and a constant, all of int4, 9 elements in 5 bytes.
static void save_nibbles(const char *path) {
  static const unsigned char packed[] = {0x21, 0x43, 0x65, 0x87,
                                         0xf9}; // the last half byte is no element
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t), w = tensor(&t, "w", INT4, 2, (int64_t[]){3, 3});
  put_text(&g, 2, "nibbles");
  put_message(&g, 1, node(&t, "Transpose", "turn", "x", "transposed"));
  put_message(&g, 1, node(&t, "Identity", "copy", "x", "same"));
  put_message(&g, 1, node(&t, "Identity", "keep", "w", "weights"));
  put_bytes(&w, 9, packed, sizeof packed);
  put_message(&g, 5, w);
  put_message(&g, 11, value_info(&t, "x", INT4, "3,3"));
  put_message(&g, 12, value_info(&t, "transposed", INT4, "3,3"));
  put_message(&g, 12, value_info(&t, "same", INT4, "3,3"));
  put_message(&g, 12, value_info(&t, "weights", INT4, "3,3"));
  save(path, model(&t, 11, g));
  fixture_deinit(&t);
}

static void fill_nibbles(call *c) {
  assert_int_equal(kiln_tensor_bytes(&c->in[0]->dl_tensor), 5);
  for (int i = 0; i < 9; i++) kiln_tensor_set_element(&c->in[0]->dl_tensor, i, i - 5);
  for (size_t o = 0; o < c->n_out; o++) memset(c->out[o]->dl_tensor.data, 0xff, 5);
}

static void check_nibbles(const call *c) {
  for (int i = 0; i < 9; i++) {
    assert_true(kiln_tensor_element(&c->out[0]->dl_tensor, i) == i % 3 * 3 + i / 3 - 5);
    assert_true(kiln_tensor_element(&c->out[1]->dl_tensor, i) == i - 5);
    assert_true(kiln_tensor_element(&c->out[2]->dl_tensor, i) == (i < 7 ? i + 1 : i + 1 - 16));
  }
  for (int o = 0; o < 3; o++) // beyond the last element there is nothing
    assert_int_equal(((unsigned char *)c->out[o]->dl_tensor.data)[4] >> 4, 0);
}

static void packed_elements_are_packed_at_the_door_only(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  kiln_session *session = NULL;
  (void)state;
  save_nibbles(f.model);
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_OK);
  call c = call_of_model(m);
  fill_nibbles(&c);
  assert_int_equal(kiln_model_reference(m, c.n_in, c.inputs, c.n_out, c.outputs, diag), KILN_OK);
  check_nibbles(&c);
  fill_nibbles(&c);
  assert_int_equal(kiln_model_compile(m, diag, &module), KILN_OK);
  assert_int_equal(kiln_session_create(module, NULL, diag, &session), KILN_OK);
  for (int run = 0; run < 2; run++)
    assert_int_equal(kiln_session_run(session, c.n_in, c.inputs, c.n_out, c.outputs, diag),
                     KILN_OK);
  check_nibbles(&c);
  kiln_session_destroy(session);
  kiln_module_release(module);
  call_destroy(&c);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void dump_text(void *user, const char *level, const char *text) {
  char *seen = user;
  assert_true(strlen(text) > 0);
  strncat(seen, level, 16);
  strncat(seen, " ", 2);
}

static void the_asked_levels_are_dumped(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  char seen[64] = "";
  kiln_compile_options o = {
      .struct_size = sizeof o, .dump = "prim,graph", .on_dump = dump_text, .dump_user = seen};
  (void)state;
  save_mlp(f.model, "3");
  assert_int_equal(kiln_model_load(f.model, &o, diag, &m), KILN_OK);
  assert_string_equal(seen, "graph prim ");
  kiln_model_destroy(m);
  o.dump = "prim,gra";
  assert_int_equal(kiln_model_load(f.model, &o, diag, &m), KILN_BAD_INPUT);
  expect(
      diag,
      "level must be graph, prim, loop, schedule, orchestration, plan, c, llvm, asm, cuda, hip or "
      "opencl, got 'gra'");
  assert_null(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void what_cannot_be_loaded_has_a_message(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  kiln_compile_options o = {.struct_size = sizeof o, .threads = -1};
  (void)state;
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_BAD_INPUT);
  assert_null(m);
  expect(diag, "m.onnx");
  assert_int_equal(kiln_model_load(f.model, &o, diag, &m), KILN_BAD_INPUT);
  expect(diag, "threads: must be 0 to 1024, got -1");
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void operators_are_listed_once_each(void **state) {
  size_t n = 0;
  (void)state;
  while (kiln_operator(n).name) {
    const kiln_operator_info o = kiln_operator(n++);
    assert_non_null(o.file);
    assert_true(o.since >= 1 && (o.until == 0 || o.until >= o.since));
  }
  assert_true(n > 10);
  assert_null(kiln_operator(n + 100).name);
}

static void tensor_files_are_read(void **state) {
  folder f = folder_make();
  fixture t;
  kiln_diag *diag = kiln_diag_create();
  DLManagedTensorVersioned *out = NULL;
  const float values[] = {1, 2, 3, 4, 5, 6};
  (void)state;
  fixture_init(&t);
  kiln_text m = tensor(&t, "v", ONNX_F32, 2, (int64_t[]){2, 3});
  put_bytes(&m, 9, values, sizeof values);
  save(f.model, m);
  assert_int_equal(kiln_tensor_read_pb(f.model, diag, &out), KILN_OK);
  assert_int_equal(out->dl_tensor.shape[1], 3);
  assert_memory_equal(out->dl_tensor.data, values, sizeof values);
  kiln_tensor_destroy(out);
  m.n -= 2; // cut off
  save(f.model, m);
  assert_int_equal(kiln_tensor_read_pb(f.model, diag, &out), KILN_BAD_INPUT);
  assert_null(out);
  expect(diag, "m.onnx");
  kiln_diag_destroy(diag);
  fixture_deinit(&t);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ports_and_names_of_dimensions_are_told),
      cmocka_unit_test(the_reference_gives_what_plain_loops_give),
      cmocka_unit_test(dimensions_without_value_are_listed),
      cmocka_unit_test(the_reference_checks_its_tensors),
      cmocka_unit_test(a_model_that_was_only_read_is_not_run),
      cmocka_unit_test(inputs_can_be_bound_as_constants),
      cmocka_unit_test(packed_elements_are_packed_at_the_door_only),
      cmocka_unit_test(the_asked_levels_are_dumped),
      cmocka_unit_test(what_cannot_be_loaded_has_a_message),
      cmocka_unit_test(operators_are_listed_once_each),
      cmocka_unit_test(tensor_files_are_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
