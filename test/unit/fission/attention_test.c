// The attention operators: nodes that are refused. Results of others are compared with ONNX's node
// tests and ONNX Runtime (test/models/contrib.py).
#include "graph.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 8, MAX_AXES = 5, OPSET = 27 };

typedef struct row {
  const char *domain, *op;
  const char *inputs; // "2x4x24, 5x6 bool, -": shape and dtype (f32) of each; -: omitted
  const char *attrs;  // "num_heads 3, axis 0"
  const char *message;
} row;

// clang-format off
static const row rows[] = {
    {"", "Attention", "2x4x24, 2x6x24, 2x6x24", "q_num_heads 5, kv_num_heads 3",
     "must be positive and divide its 24 channels, got 5"},
    {"", "Attention", "2x4x24, 2x6x24, 2x6x24", "",
     "must be positive and divide its 24 channels, got 0"},
    {"", "Attention", "2x3x4x8, 2x2x6x8, 2x2x6x8", "",
     "must divide the queries' 3, got 2"},
    {"", "Attention", "2x3x4x8, 2x3x6x7, 2x3x6x8", "",
     "axis 3 must have extent 8, got 7"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x5x8", "",
     "axis 2 must have extent 6, got 5"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x6x8, 5x6 bool", "",
     "axis 0 must have extent 4, got 5"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x6x8, 4x6 i64", "",
     "input 3: must be bool or a float, got i64"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x6x8, -, 2x3x6x8", "",
     "past_key and past_value must come together"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x6x8", "qk_matmul_output_mode 4",
     "qk_matmul_output_mode: must be in [0, 3], got 4"},
    {"", "Attention", "2x3x4x8, 2x3x6x8, 2x3x6x8", "left_window_size -2",
     "must be -1 or not negative, got -2 and -1"},
    {"", "RotaryEmbedding", "2x3x4x8, 2x4x3, 2x4x3", "",
     "axis 2 must have extent 4, got 3"},
    {"", "RotaryEmbedding", "2x3x4x8, 2x4x3, 2x4x3", "rotary_embedding_dim 10",
     "rotated dims: must be even, at least 2 and at most the 8 of a head, got 10"},
    {"", "TensorScatter", "2x6x8, 2x1x8", "axis 0",
     "along another axis than the first"},
    {"", "LinearAttention", "2x4x24, 2x4x24, 2x4x24", "q_num_heads 3, kv_num_heads 3",
     "update_rule gated_delta: must have a decay and a beta"},
    {"com.microsoft", "MultiHeadAttention", "2x4x24", "num_heads 3",
     "query, key and value: must be three, packed as one, or packed as two"},
    {"com.microsoft", "MultiHeadAttention", "2x4x24, 2x4x24, 2x4x24", "",
     "num_heads: must be positive, got 0"},
    {"com.microsoft", "MultiHeadAttention", "2x4x24, 2x4x24, 2x4x24, -, 2x5 i32", "num_heads 3",
     "axis 1 must have extent 4, got 5"},
    {"com.microsoft", "Attention", "2x4x24, 24x70", "num_heads 3",
     "must have channels of Q, K and V for 3 heads, got 70 in all"},
    {"com.microsoft", "GroupQueryAttention", "2x4x24, 2x4x24, 2x4x24",
     "num_heads 3, kv_num_heads 3", "seqlens_k and total_sequence_length: must be given"},
    {"com.microsoft", "MatMulNBits", "2x64, 8x2x15 u8, 8x2", "K 64, N 8, block_size 32",
     "axis 2 must have extent 16, got 15"},
    {"com.microsoft", "MatMulNBits", "2x64, 8x2x16 u8, 8x2", "K 64, N 8, block_size 33",
     "block_size: must be a power of 2, at least 16, got 33"},
    {"com.microsoft", "GatherBlockQuantized", "8x16 u8, 3 i64, 8x1", "block_size 16",
     "axis 1 must have extent 2, got 1"},
    {"com.microsoft", "QLinearAdd", "8x16 u8, 1", "",
     "inputs 3 and 4: must be a tensor and its scale"},
    {"com.microsoft", "QLinearConcat", "1, 1 u8, 8 u8, 1, 1 u8, 8 u8", "axis 0",
     "must be a scale, a zero point and threes, got 6"},
};
// clang-format on

// The element after the one at |at| of a list separated by ", "; NULL: it is the last.
static const char *next(const char *at) {
  at = strchr(at, ',');
  return at ? at + 2 : NULL;
}

static int add_tensor(fixture *f, const char *name, const char *at) {
  int64_t shape[MAX_AXES];
  int rank = 0;
  char *end;
  kiln_dtype t = KILN_F32;
  if (*at == '-') return -1;
  do {
    assert_true(rank < MAX_AXES);
    shape[rank++] = strtoll(at, &end, 10);
    at = end + 1;
  } while (*end == 'x');
  if (*end == ' ') assert_true(kiln_dtype_parse(at, strcspn(at, ","), &t));
  return add_input(f, name, t, rank, shape);
}

static int add_inputs(fixture *f, const char *list, int out[MAX_INPUTS]) {
  int n = 0;
  for (const char *at = list; at; at = next(at)) {
    const char name[] = {'x', (char)('0' + n), 0};
    assert_true(n < MAX_INPUTS);
    out[n++] = add_tensor(f, name, at);
  }
  return n;
}

static void add_attrs(fixture *f, const char *list) {
  for (const char *at = *list ? list : NULL; at; at = next(at)) {
    char name[32];
    const size_t n = strcspn(at, " ");
    assert_true(n < sizeof name);
    memcpy(name, at, n);
    name[n] = 0;
    add_int(f, name, strtoll(at + n, NULL, 10));
  }
}

static void check(const row *r) {
  void *own = NULL;
  int inputs[MAX_INPUTS];
  assert_int_equal(setup(&own), 0);
  fixture *f = own;
  const int n = add_inputs(f, r->inputs, inputs);
  add_output(f, node(f, r->op, OPSET, n, inputs));
  f->nodes[0]->domain = kiln_symbol_of(f->cx, r->domain);
  add_attrs(f, r->attrs);
  assert_int_equal(lower(f), KILN_BAD_INPUT);
  if (!has_message(f, r->message)) fail_msg("%s(%s): must say: %s", r->op, r->inputs, r->message);
  teardown(&own);
}

static void bad_nodes_are_messages(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) check(&rows[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_nodes_are_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
