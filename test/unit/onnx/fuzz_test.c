// Damaged models never crash the reader: every prefix, random bytes, mutations of built and of real
// models. The seed is fixed; run it under ASan and UBSan.
#include "unit/onnx/model.h"

#include "onnx/report.h"

#include <stdlib.h>

enum { F32 = 1, I64 = 7, BOOL = 9 };

static uint64_t next(uint64_t *state) { // xorshift64*
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

// Reads |data|; what is read without a message must also be reportable. Tells the status.
static kiln_status read_bytes(const char *data, size_t n) {
  fixture t;
  const char *text = NULL;
  fixture_init(&t);
  const kiln_status status = fixture_read(&t, data, n, NULL);
  if (status == KILN_OK) assert_int_equal(kiln_onnx_report(&t.cx, t.g, true, &text), KILN_OK);
  else assert_true(status == KILN_BAD_INPUT || status == KILN_UNSUPPORTED);
  fixture_deinit(&t);
  return status;
}

// A model with something of everything: lists, typed and raw data, a sub-graph, a function.
static kiln_text rich_model(fixture *t) {
  kiln_text g = message(t), branch = message(t), a = message(t), f = message(t),
            choose = node(t, "If", "choice", "c", "y"), call = node(t, "F", "call", "x", "h"),
            w = tensor(t, "w", I64, 1, (int64_t[]){2}), r = tensor(t, "r", F32, 1, (int64_t[]){1}),
            list = node(t, "Slice", "s", "x,w", "s");
  put_message(&branch, 1, node(t, "Neg", "inner", "h", "z"));
  put_message(&branch, 12, value_info(t, "z", F32, "n"));
  put_text(&a, 1, "then_branch");
  put_int(&a, 20, 5);
  put_message(&a, 6, branch);
  put_message(&choose, 5, a);
  a = message(t);
  put_text(&a, 1, "axes");
  put_bytes(&a, 8, "\x01\x02\x80\x01", 4);
  put_message(&list, 5, a);
  put_text(&f, 1, "F");
  put_text(&f, 4, "in");
  put_text(&f, 5, "out");
  put_message(&f, 7, node(t, "Relu", "r", "in", "mid"));
  put_message(&f, 7, node(t, "Exp", "e", "mid", "out"));
  put_message(&f, 9, opset(t, "", 17));
  put_text(&f, 10, "local");
  put_text(&call, 7, "local");
  put_int(&w, 7, 3);
  put_int(&w, 7, -3);
  put_bytes(&r, 9, "\0\0\200\77", 4);
  put_message(&g, 1, choose);
  put_message(&g, 1, call);
  put_message(&g, 1, list);
  put_message(&g, 5, w);
  put_message(&g, 5, r);
  put_message(&g, 11, value_info(t, "x", F32, "n,?"));
  put_message(&g, 11, value_info(t, "c", BOOL, ""));
  put_message(&g, 12, value_info(t, "y", F32, "n"));
  put_message(&g, 13, value_info(t, "h", F32, "n"));
  kiln_text m = message(t);
  put_int(&m, 1, 8);
  put_message(&m, 8, opset(t, "", 17));
  put_message(&m, 8, opset(t, "local", 1));
  put_message(&m, 25, f);
  put_message(&m, 7, g); // last, so that every prefix is damaged
  return m;
}

static void every_prefix_is_refused(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const kiln_text m = rich_model(&t);
  assert_int_equal(read_bytes(m.data, (size_t)m.n), KILN_OK);
  for (int n = 0; n < m.n; n++) assert_int_equal(read_bytes(m.data, (size_t)n), KILN_BAD_INPUT);
  fixture_deinit(&t);
}

static void random_bytes_are_refused(void **state) {
  uint64_t seed = 2026;
  char bytes[256];
  (void)state;
  for (int round = 0; round < 3000; round++) {
    const size_t n = 1 + next(&seed) % sizeof(bytes);
    for (size_t i = 0; i < n; i++) bytes[i] = (char)(next(&seed) >> 32);
    assert_int_not_equal(read_bytes(bytes, n), KILN_OK);
  }
}

// Changes, copies or removes some bytes.
static size_t mutate(uint64_t *seed, char *data, size_t n) {
  for (uint64_t k = next(seed) % 4 + 1; k > 0; k--) {
    const size_t at = next(seed) % n, from = next(seed) % n, run = next(seed) % 16;
    switch (next(seed) % 4) {
    case 0: data[at] = (char)next(seed); break;
    case 1: data[at] ^= (char)(1 << next(seed) % 8); break;
    case 2: data[at] = (char)(next(seed) % 2 ? 0xff : 0x00); break;
    case 3:
      if (at + run < n && from + run < n) memmove(data + at, data + from, run);
      break;
    }
  }
  return next(seed) % 8 == 0 ? 1 + next(seed) % n : n;
}

static int mutate_and_read(uint64_t *seed, const char *data, size_t n, int rounds) {
  char *copy = malloc(n);
  int refused = 0;
  for (int round = 0; round < rounds; round++) {
    memcpy(copy, data, n);
    refused += read_bytes(copy, mutate(seed, copy, n)) != KILN_OK;
  }
  free(copy);
  return refused;
}

static void mutations_never_crash(void **state) {
  (void)state;
  fixture t;
  uint64_t seed = 7;
  fixture_init(&t);
  const kiln_text m = rich_model(&t);
  assert_true(mutate_and_read(&seed, m.data, (size_t)m.n, 6000) > 3000);
  fixture_deinit(&t);
}

static void mutations_of_real_models_never_crash(void **state) {
  static const char *const models[] = {"node/test_if/model.onnx",
                                       "node/test_loop11/model.onnx",
                                       "node/test_scan9_sum/model.onnx",
                                       "node/test_lstm_defaults/model.onnx",
                                       "node/test_celu_expanded/model.onnx",
                                       "node/test_constant/model.onnx",
                                       "simple/test_expand_shape_model1/model.onnx",
                                       "pytorch-converted/test_Conv2d_groups/model.onnx",
                                       "pytorch-operator/test_operator_addmm/model.onnx"};
  int found = 0;
  uint64_t seed = 11;
  (void)state;
  for (size_t k = 0; k < KILN_LEN(models); k++) {
    char path[256], data[1 << 16];
    snprintf(path, sizeof(path), "/usr/share/libonnx-testdata/data/%s", models[k]);
    FILE *f = fopen(path, "rb");
    if (f == NULL) continue;
    const size_t n = fread(data, 1, sizeof(data), f);
    fclose(f);
    found++;
    assert_true(mutate_and_read(&seed, data, n, 500) > 0);
  }
  if (found == 0) skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_prefix_is_refused),
      cmocka_unit_test(random_bytes_are_refused),
      cmocka_unit_test(mutations_never_crash),
      cmocka_unit_test(mutations_of_real_models_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
