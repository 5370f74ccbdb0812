// Models, external data and definitions in the caller's memory.
#include "unit/driver/models.h"

#include <math.h>

enum { ROOM = 4096 };

// A page-aligned copy, as mapped weights are: whole pages of it could be given back by mistake.
static void *pages_of(const void *data, size_t n) {
  char *to = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(to != MAP_FAILED);
  memcpy(to, data, n);
  return to;
}

static void put_external(fixture *t, kiln_text *graph, const char *name, const char *location) {
  kiln_text w = tensor(t, name, ONNX_F32, 2, (int64_t[]){WIDE, WIDE}), entry = message(t);
  put_text(&entry, 1, "location");
  put_text(&entry, 2, location);
  put_message(&w, 13, entry);
  put_int(&w, 14, 1);
  put_message(graph, 5, w);
}

// y = relu(x w), x(4, WIDE) and w(WIDE, WIDE) at |location|.
static size_t write_model(char *out, const char *location) {
  fixture t;
  char shape[32];
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "product");
  put_message(&g, 1, node(&t, "MatMul", "mm", "x,w", "h"));
  put_message(&g, 1, node(&t, "Relu", "act", "h", "y"));
  put_external(&t, &g, "w", location);
  snprintf(shape, sizeof shape, "4,%d", WIDE);
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, shape));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, shape));
  const kiln_text m = model(&t, 8, g);
  const size_t n = (size_t)m.n;
  assert_true(n <= ROOM);
  memcpy(out, m.data, n);
  fixture_deinit(&t);
  return n;
}

static float *make_weights(void) {
  float *plain = malloc((size_t)WIDE * WIDE * sizeof *plain);
  for (int64_t i = 0; i < WIDE * WIDE; i++) plain[i] = weight_at(i);
  float *w = pages_of(plain, (size_t)WIDE * WIDE * sizeof *plain);
  free(plain);
  return w;
}

static void check_product(const call *c, const float *w) {
  const float *x = c->in[0]->dl_tensor.data, *y = c->out[0]->dl_tensor.data;
  for (int64_t r = 0; r < 4; r++)
    for (int64_t n = 0; n < WIDE; n++) {
      double sum = 0;
      for (int64_t k = 0; k < WIDE; k++) sum += (double)x[r * WIDE + k] * w[k * WIDE + n];
      assert_true(fabs((sum > 0 ? sum : 0) - y[r * WIDE + n]) < 1e-3);
    }
}

static void weights_and_the_model_are_taken_from_memory_and_left_as_they_are(void **state) {
  char text[ROOM];
  const char *location = "/no/such/file"; // of which the name alone is wanted
  const size_t n = write_model(text, location);
  float *w = make_weights();
  const size_t w_bytes = (size_t)WIDE * WIDE * sizeof *w;
  const kiln_memory_file files[] = {{"product.onnx", text, n}, {location, w, w_bytes}};
  const kiln_compile_options o = {
      .struct_size = sizeof o, .threads = 1, .files = files, .n_files = 2};
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  kiln_session *session = NULL;
  (void)state;
  assert_int_equal(kiln_model_load("product.onnx", &o, diag, &m), KILN_OK);
  assert_int_equal(kiln_model_reads(m, "product.onnx"), 0);
  assert_int_equal(kiln_model_compile(m, diag, &module), KILN_OK);
  kiln_model_destroy(m);
  for (int64_t i = 0; i < WIDE * WIDE; i++) assert_true(w[i] == weight_at(i));
  assert_int_equal(kiln_session_create(module, NULL, diag, &session), KILN_OK);
  call c = call_of_module(module);
  assert_int_equal(kiln_session_run(session, 1, c.inputs, 1, c.outputs, diag), KILN_OK);
  check_product(&c, w);
  call_destroy(&c);
  kiln_session_destroy(session);
  kiln_module_release(module);
  munmap(w, w_bytes);
  kiln_diag_destroy(diag);
}

static void what_is_not_in_memory_is_looked_for_and_told_with_its_place(void **state) {
  char text[ROOM];
  const size_t n = write_model(text, "w.bin");
  const kiln_memory_file file = {"product.onnx", text, n};
  const kiln_compile_options o = {.struct_size = sizeof o, .files = &file, .n_files = 1};
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  assert_int_equal(kiln_model_load("product.onnx", &o, diag, &m), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "\"w.bin\" must be readable"));
  const char *place = kiln_diag_place(diag, 0);
  assert_non_null(place);
  assert_int_equal(strncmp(kiln_diag_message(diag, 0), place, strlen(place)), 0);
  assert_null(kiln_diag_place(diag, 99));
  assert_null(kiln_diag_place(NULL, 0));
  kiln_diag_destroy(diag);
}

static void a_definition_is_taken_from_memory(void **state) {
  static const char text[] = "def twice(float(N) X) -> (Y) { Y(n) = 2 * X(n) }";
  const kiln_memory_file good = {"a.tc", text, sizeof text - 1}, bad = {"a.tc", text, sizeof text};
  const kiln_dim_value dim = {"N", 5};
  kiln_compile_options o = {
      .struct_size = sizeof o, .dims = &dim, .n_dims = 1, .files = &good, .n_files = 1};
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  (void)state;
  assert_int_equal(kiln_model_load("a.tc", &o, diag, &m), KILN_OK);
  call c = call_of_model(m);
  assert_int_equal(kiln_model_reference(m, 1, c.inputs, 1, c.outputs, diag), KILN_OK);
  for (int i = 0; i < 5; i++)
    assert_true(((float *)c.out[0]->dl_tensor.data)[i] ==
                2 * ((float *)c.in[0]->dl_tensor.data)[i]);
  call_destroy(&c);
  kiln_model_destroy(m);
  o.files = &bad; // its NUL is one too many
  assert_int_equal(kiln_model_load("a.tc", &o, diag, &m), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "got a zero byte"));
  kiln_diag_destroy(diag);
}

static void rows_must_be_whole(void **state) {
  const kiln_memory_file rows[] = {{NULL, "", 0}, {"m.onnx", NULL, 3}};
  static const char *const wants[] = {"files[0]: the name", "files[0]: the data"};
  kiln_diag *diag = kiln_diag_create();
  (void)state;
  for (int i = 0; i < 2; i++) {
    const kiln_compile_options o = {.struct_size = sizeof o, .files = &rows[i], .n_files = 1};
    kiln_model *m = NULL;
    assert_int_equal(kiln_model_load("m.onnx", &o, diag, &m), KILN_BAD_INPUT);
    assert_non_null(strstr(kiln_diag_message(diag, 0), wants[i]));
    kiln_diag_clear(diag);
  }
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_and_the_model_are_taken_from_memory_and_left_as_they_are),
      cmocka_unit_test(what_is_not_in_memory_is_looked_for_and_told_with_its_place),
      cmocka_unit_test(a_definition_is_taken_from_memory),
      cmocka_unit_test(rows_must_be_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
