// The attention operators: what they refuse. What they compute is compared with ONNX's node tests
// and ONNX Runtime (test/models/contrib.py).
#include "graph.h"

enum { MAX_INPUTS = 8 };

typedef struct row {
  const char *domain, *op;
  int n_inputs;
  struct {
    int rank;
    int64_t shape[5];
    kiln_dtype dtype; // of rank 0: left out
  } inputs[MAX_INPUTS];
  struct {
    const char *name;
    int64_t value;
  } attrs[3];
  const char *message;
} row;

static void bad_nodes_are_messages(void **state) {
  (void)state;
  static const row rows[] = {
      {"",
       "Attention",
       3,
       {{3, {2, 4, 24}, KILN_F32}, {3, {2, 6, 24}, KILN_F32}, {3, {2, 6, 24}, KILN_F32}},
       {{"q_num_heads", 5}, {"kv_num_heads", 3}},
       "must be positive and divide its 24 channels, got 5"},
      {"",
       "Attention",
       3,
       {{3, {2, 4, 24}, KILN_F32}, {3, {2, 6, 24}, KILN_F32}, {3, {2, 6, 24}, KILN_F32}},
       {{NULL, 0}},
       "must be positive and divide its 24 channels, got 0"},
      {"",
       "Attention",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {4, {2, 2, 6, 8}, KILN_F32}, {4, {2, 2, 6, 8}, KILN_F32}},
       {{NULL, 0}},
       "must divide the queries' 3, got 2"},
      {"",
       "Attention",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {4, {2, 3, 6, 7}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}},
       {{NULL, 0}},
       "axis 3 must have extent 8, got 7"},
      {"",
       "Attention",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}, {4, {2, 3, 5, 8}, KILN_F32}},
       {{NULL, 0}},
       "axis 2 must have extent 6, got 5"},
      {"",
       "Attention",
       4,
       {{4, {2, 3, 4, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {2, {5, 6}, KILN_BOOL}},
       {{NULL, 0}},
       "axis 0 must have extent 4, got 5"},
      {"",
       "Attention",
       4,
       {{4, {2, 3, 4, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {2, {4, 6}, KILN_I64}},
       {{NULL, 0}},
       "input 3: must be bool or a float, got i64"},
      {"",
       "Attention",
       5,
       {{4, {2, 3, 4, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {4, {2, 3, 6, 8}, KILN_F32},
        {0},
        {4, {2, 3, 6, 8}, KILN_F32}},
       {{NULL, 0}},
       "past_key and past_value must come together"},
      {"",
       "Attention",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}},
       {{"qk_matmul_output_mode", 4}},
       "qk_matmul_output_mode: must be in [0, 3], got 4"},
      {"",
       "Attention",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}, {4, {2, 3, 6, 8}, KILN_F32}},
       {{"left_window_size", -2}},
       "must be -1 or not negative, got -2 and -1"},
      {"",
       "RotaryEmbedding",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {3, {2, 4, 3}, KILN_F32}, {3, {2, 4, 3}, KILN_F32}},
       {{NULL, 0}},
       "axis 2 must have extent 4, got 3"},
      {"",
       "RotaryEmbedding",
       3,
       {{4, {2, 3, 4, 8}, KILN_F32}, {3, {2, 4, 3}, KILN_F32}, {3, {2, 4, 3}, KILN_F32}},
       {{"rotary_embedding_dim", 10}},
       "rotated dims: must be even, at least 2 and at most the 8 of a head, got 10"},
      {"",
       "TensorScatter",
       2,
       {{3, {2, 6, 8}, KILN_F32}, {3, {2, 1, 8}, KILN_F32}},
       {{"axis", 0}},
       "along another axis than the first"},
      {"",
       "LinearAttention",
       3,
       {{3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}},
       {{"q_num_heads", 3}, {"kv_num_heads", 3}},
       "update_rule gated_delta: must have a decay and a beta"},
      {"com.microsoft",
       "MultiHeadAttention",
       1,
       {{3, {2, 4, 24}, KILN_F32}},
       {{"num_heads", 3}},
       "query, key and value: must be three, packed as one, or packed as two"},
      {"com.microsoft",
       "MultiHeadAttention",
       3,
       {{3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}},
       {{NULL, 0}},
       "num_heads: must be positive, got 0"},
      {"com.microsoft",
       "MultiHeadAttention",
       5,
       {{3, {2, 4, 24}, KILN_F32},
        {3, {2, 4, 24}, KILN_F32},
        {3, {2, 4, 24}, KILN_F32},
        {0},
        {2, {2, 5}, KILN_I32}},
       {{"num_heads", 3}},
       "axis 1 must have extent 4, got 5"},
      {"com.microsoft",
       "Attention",
       2,
       {{3, {2, 4, 24}, KILN_F32}, {2, {24, 70}, KILN_F32}},
       {{"num_heads", 3}},
       "must have channels of Q, K and V for 3 heads, got 70 in all"},
      {"com.microsoft",
       "GroupQueryAttention",
       3,
       {{3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}, {3, {2, 4, 24}, KILN_F32}},
       {{"num_heads", 3}, {"kv_num_heads", 3}},
       "seqlens_k and total_sequence_length: must be given"},
      {"com.microsoft",
       "MatMulNBits",
       3,
       {{2, {2, 64}, KILN_F32}, {3, {8, 2, 15}, KILN_U8}, {2, {8, 2}, KILN_F32}},
       {{"K", 64}, {"N", 8}, {"block_size", 32}},
       "axis 2 must have extent 16, got 15"},
      {"com.microsoft",
       "MatMulNBits",
       3,
       {{2, {2, 64}, KILN_F32}, {3, {8, 2, 16}, KILN_U8}, {2, {8, 2}, KILN_F32}},
       {{"K", 64}, {"N", 8}, {"block_size", 33}},
       "block_size: must be a power of 2, at least 16, got 33"},
      {"com.microsoft",
       "GatherBlockQuantized",
       3,
       {{2, {8, 16}, KILN_U8}, {1, {3}, KILN_I64}, {2, {8, 1}, KILN_F32}},
       {{"block_size", 16}},
       "axis 1 must have extent 2, got 1"},
      {"com.microsoft",
       "QLinearAdd",
       2,
       {{2, {8, 16}, KILN_U8}, {1, {1}, KILN_F32}},
       {{NULL, 0}},
       "inputs 3 and 4: must be a tensor and its scale"},
      {"com.microsoft",
       "QLinearConcat",
       6,
       {{1, {1}, KILN_F32},
        {1, {1}, KILN_U8},
        {1, {8}, KILN_U8},
        {1, {1}, KILN_F32},
        {1, {1}, KILN_U8},
        {1, {8}, KILN_U8}},
       {{"axis", 0}},
       "must be a scale, a zero point and threes, got 6"},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const row *r = &rows[i];
    void *own = NULL;
    assert_int_equal(setup(&own), 0);
    fixture *f = own;
    int inputs[MAX_INPUTS];
    for (int k = 0; k < r->n_inputs; k++) {
      char name[] = {'x', (char)('0' + k), 0};
      inputs[k] = r->inputs[k].rank == 0 ? -1
                                         : add_input(f, name, r->inputs[k].dtype, r->inputs[k].rank,
                                                     r->inputs[k].shape);
    }
    add_output(f, node(f, r->op, 27, r->n_inputs, inputs));
    f->nodes[0]->domain = kiln_symbol_of(f->cx, r->domain);
    for (size_t k = 0; k < KILN_LEN(r->attrs) && r->attrs[k].name; k++)
      add_int(f, r->attrs[k].name, r->attrs[k].value);
    assert_int_equal(lower(f), KILN_BAD_INPUT);
    if (!has_message(f, r->message)) fail_msg("row %zu: must say: %s", i, r->message);
    teardown(&own);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_nodes_are_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
