// Contractions, pools and recurrences: values worked out by hand, and the form of the statements,
// which the scheduler recognises.
#include "unit/ops/rows.h"

static const row convs[] = {
    {"1d with pads and bias", "Conv", 11, "pads=[1, 0]",
     "f32 1x1x3: 1 2 3; f32 1x1x2: 1 10; f32 1: 100", "f32 1x1x3: 110 121 132", NULL},
    {"stride and dilation", "Conv", 11, "strides=[2] dilations=[2]",
     "f32 1x1x5: 1 2 3 4 5; f32 1x1x2: 1 10", "f32 1x1x2: 31 53", NULL},
    {"two groups", "Conv", 11, "group=2", "f32 1x4x1: 1 2 3 4; f32 2x2x1: 1 1 1 10",
     "f32 1x2x1: 3 43", NULL},
    {"depthwise", "Conv", 11, "group=2", "f32 1x2x2: 1 2 3 4; f32 2x1x2: 1 1 1 10",
     "f32 1x2x1: 3 43", NULL},
    {"depthwise with a multiplier", "Conv", 11, "group=2", "f32 1x2x1: 1 2; f32 4x1x1: 1 2 3 4",
     "f32 1x4x1: 1 2 6 8", NULL},
    {"the odd zero at the start", "Conv", 11, "auto_pad=\"SAME_LOWER\"",
     "f32 1x1x2: 1 2; f32 1x1x2: 1 10", "f32 1x1x2: 10 21", NULL},
    {"the odd zero at the end", "Conv", 11, "auto_pad=\"SAME_UPPER\"",
     "f32 1x1x2: 1 2; f32 1x1x2: 1 10", "f32 1x1x2: 21 2", NULL},
    {"named extents", "Conv", 11, "pads=[1, 1]", "f32 Nx3xW; f32 8x3x3", "f32 Nx8xW", NULL},
    {"f16 sums in f32", "Conv", 11, "", "f16 1x1x2: 2048 1; f16 1x1x2: 1 1", "f16 1x1x1: 2048",
     NULL},
    {"channels fit", "Conv", 11, "", "f32 1x2x3; f32 1x3x1", NULL, "must have 3 channels"},
    {"groups divide", "Conv", 11, "group=2", "f32 1x2x3; f32 3x1x1", NULL, "group must divide"},
    {"the window fits", "Conv", 11, "", "f32 1x1x2; f32 1x1x5", NULL, "must fit"},
    {"pads have two a axis", "Conv", 11, "pads=[1]", "f32 1x1x2; f32 1x1x1", NULL, "must have 2"},
    {"strides are positive", "Conv", 11, "strides=[0]", "f32 1x1x2; f32 1x1x1", NULL, "at least 1"},
    {"transposed, stride 2", "ConvTranspose", 11, "strides=[2]",
     "f32 1x1x2: 1 2; f32 1x1x3: 1 10 100", "f32 1x1x5: 1 10 102 20 200", NULL},
    {"transposed, pads and output_padding", "ConvTranspose", 11,
     "strides=[2] pads=[1, 1] output_padding=[1]", "f32 1x1x2: 1 2; f32 1x1x3: 1 10 100",
     "f32 1x1x4: 10 102 20 200", NULL},
    {"transposed, dilation", "ConvTranspose", 11, "dilations=[2]",
     "f32 1x1x2: 1 2; f32 1x1x2: 1 10", "f32 1x1x4: 1 2 10 20", NULL},
    {"transposed, groups", "ConvTranspose", 11, "group=2 strides=[2]",
     "f32 1x2x1: 1 2; f32 2x1x2: 1 10 1 10", "f32 1x2x2: 1 10 2 20", NULL},
    {"transposed, output_shape", "ConvTranspose", 11, "strides=[2] output_shape=[4]",
     "f32 1x1x2: 1 2; f32 1x1x3: 1 10 100", "f32 1x1x4: 10 102 20 200", NULL},
    {"transposed, two axes", "ConvTranspose", 11, "strides=[2, 1]",
     "f32 1x1x1x2: 1 2; f32 1x1x2x1: 1 10", "f32 1x1x2x2: 1 2 10 20", NULL},
};

static const row products[] = {
    {"batches broadcast", "MatMul", 13, "", "i32 2x1x1x2: 1 2 3 4; i32 2x2x1: 1 1 1 10",
     "i32 2x2x1x1: 3 21 7 43", NULL},
    {"a batch of any extent or 1", "MatMul", 13, "", "f32 NxMx5; f32 9x5x3", "f32 9xMx3", NULL},
    {"or 1, at the right", "MatMul", 13, "", "f32 9xMx5; f32 Nx5x3", "f32 9xMx3", NULL},
    {"a letter of any extent or 1", "Einsum", 12, "equation=\"bi,bj->bij\"", "f32 NxM; f32 9x3",
     "f32 9xMx3", NULL},
    {"two vectors", "MatMul", 13, "", "f32 2: 1 2; f32 2: 3 4", "f32: 11", NULL},
    {"vector by batch", "MatMul", 13, "", "f32 2: 1 2; f32 2x2x1: 1 2 3 4", "f32 2x1: 5 11", NULL},
    {"inner extents", "MatMul", 13, "", "f32 2x3; f32 2x3", NULL, "inner extents must be equal"},
    {"gemm", "Gemm", 13, "transA=1 transB=1 alpha=2.0 beta=0.5",
     "f32 2x1: 1 2; f32 2x2: 1 1 1 10; f32 2: 2 4", "f32 1x2: 7 44", NULL},
    {"gemm's C is not widened into", "Gemm", 13, "", "f32 1x2; f32 2x2; f32 3x2", NULL,
     "must be 1 or 1"},
    {"diagonals", "Einsum", 12, "equation=\"ii->i\"", "i32 2x2: 1 2 3 4", "i32 2: 1 4", NULL},
    {"trace", "Einsum", 12, "equation=\"ii\"", "i32 2x2: 1 2 3 4", "i32: 5", NULL},
    {"implicit output in order", "Einsum", 12, "equation=\"ba\"", "i32 1x2: 1 2", "i32 2x1: 1 2",
     NULL},
    {"ellipses broadcast", "Einsum", 12, "equation=\"...ij, ...jk -> ...ik\"",
     "i32 2x1x2: 1 2 3 4; i32 2x1: 1 10", "i32 2x1x1: 21 43", NULL},
    {"three operands", "Einsum", 12, "equation=\"i,ij,j->\"",
     "i32 2: 1 2; i32 2x2: 1 2 3 4; i32 2: 1 1", "i32: 17", NULL},
    {"letters fit the rank", "Einsum", 12, "equation=\"ij->i\"", "i32 2", NULL,
     "a letter for each axis"},
    {"one extent a letter", "Einsum", 12, "equation=\"i,i->\"", "i32 2; i32 3", NULL, "one extent"},
    {"known letters", "Einsum", 12, "equation=\"i->j\"", "i32 2", NULL,
     "letters of the inputs only"},
};

static const row pools[] = {
    {"max with indices", "MaxPool", 12, "kernel_shape=[2] strides=[2]", "f32 1x1x4: 1 5 7 2",
     "f32 1x1x2: 5 7; i64 1x1x2: 1 2", NULL},
    {"column-major indices", "MaxPool", 12, "kernel_shape=[2, 2] storage_order=1",
     "f32 1x1x2x2: 1 2 9 4", "f32 1x1x1x1: 9; i64 1x1x1x1: 1", NULL},
    {"ceil_mode adds a part", "MaxPool", 12, "kernel_shape=[2] strides=[2] ceil_mode=1",
     "f32 1x1x3: 1 5 -7", "f32 1x1x2: 5 -7", NULL},
    {"a part of a window", "MaxPool", 12, "kernel_shape=[3] strides=[2] ceil_mode=1",
     "f32 1x1x2: 1 5", "f32 1x1x1: 5", NULL},
    {"the last window begins inside", "MaxPool", 12,
     "kernel_shape=[1] strides=[3] ceil_mode=1 pads=[0, 1]", "f32 1x1x3: 1 5 7", "f32 1x1x1: 1",
     NULL},
    {"pads are never the maximum", "MaxPool", 12, "kernel_shape=[2] pads=[1, 1]", "f32 1x1x1: -3",
     "f32 1x1x2: -3 -3", NULL},
    {"dilated", "MaxPool", 12, "kernel_shape=[2] dilations=[2]", "i8 1x1x4: 1 9 3 2",
     "i8 1x1x2: 3 9", NULL},
    {"pads do not count", "AveragePool", 11, "kernel_shape=[2] pads=[1, 1]", "f32 1x1x2: 2 4",
     "f32 1x1x3: 2 3 4", NULL},
    {"pads count", "AveragePool", 11, "kernel_shape=[2] pads=[1, 1] count_include_pad=1",
     "f32 1x1x2: 2 4", "f32 1x1x3: 1 3 2", NULL},
    {"what ceil_mode adds never counts", "AveragePool", 19,
     "kernel_shape=[2] strides=[2] ceil_mode=1 count_include_pad=1", "f32 1x1x3: 2 4 6",
     "f32 1x1x2: 3 6", NULL},
    {"lp", "LpPool", 11, "kernel_shape=[2]", "f32 1x1x2: 3 -4", "f32 1x1x1: 5", NULL},
    {"kernel_shape is needed", "MaxPool", 12, "", "f32 1x1x2", NULL, "kernel_shape: must be given"},
};

static const row resizes[] = {
    {"nearest doubles", "Resize", 13, "mode=\"nearest\"", "f32 1x2: 1 2; -; const f32 2: 1 2",
     "f32 1x4: 1 1 2 2", NULL},
    {"a named axis doubles", "Resize", 13, "", "f32 1xW; -; const f32 2: 1 2", "f32 1xW*2", NULL},
    {"linear by half pixels", "Resize", 13, "mode=\"linear\"", "f32 2: 0 4; -; const f32 1: 2",
     "f32 4: 0 1 3 4", NULL},
    {"linear, corners aligned", "Resize", 13,
     "mode=\"linear\" coordinate_transformation_mode=\"align_corners\"",
     "f32 2: 0 4; -; -; const i64 1: 3", "f32 3: 0 2 4", NULL},
    {"antialiased", "Resize", 18, "mode=\"linear\" antialias=1",
     "f32 4: 1 2 3 4; -; -; const i64 1: 2", "f32 2: 1.625 3.375", NULL},
    {"outside the region", "Resize", 13,
     "mode=\"linear\" coordinate_transformation_mode=\"tf_crop_and_resize\" "
     "extrapolation_value=9.0",
     "f32 2: 1 2; const f32 2: 0 2; -; const i64 1: 3", "f32 3: 1 2 9", NULL},
    {"a named axis grows by half", "Resize", 13, "mode=\"linear\"",
     "f32 1xW; -; const f32 2: 1 1.5", "f32 1xW + W/2", NULL},
    {"long scales at known axes only", "Resize", 13, "mode=\"linear\"",
     "f32 1xW; -; const f32 2: 1 1.3", NULL, "must have a fixed extent"},
    {"scales are positive", "Resize", 13, "", "f32 2; -; const f32 1: 0", NULL, "must be positive"},
};

static const row recurrences[] = {
    {"a plain cell", "RNN", 14, "hidden_size=1 activations=\"\"", "f32 1x1x1; f32 1x1x1; f32 1x1x1",
     NULL, "activations"},
    {"steps behind the end keep the state", "GRU", 14, "hidden_size=1",
     "f32 2x1x1: 1 1; f32 1x3x1: 0 0 0; f32 1x3x1: 0 0 0; -; i32 1: 1; f32 1x1x1: 8",
     "f32 2x1x1x1: 4 0; f32 1x1x1: 4", NULL},
    {"lstm halves the cell", "LSTM", 14, "hidden_size=1",
     "f32 1x1x1: 1; f32 1x4x1: 0 0 0 0; f32 1x4x1: 0 0 0 0; -; -; -; f32 1x1x1: 2",
     "f32 1x1x1x1: 0.3808; f32 1x1x1: 0.3808; f32 1x1x1: 1", NULL},
    {"both directions", "RNN", 14, "hidden_size=1 direction=\"bidirectional\"",
     "f32 2x1x1: 1 0; f32 2x1x1: 1 1; f32 2x1x1: 0 1", "f32 2x2x1x1: 0.76159 0.76159 0 0", NULL},
    {"names of a direction that does not run", "RNN", 14,
     "hidden_size=1 activations=[\"Relu\", \"Tanh\"]", "f32 1x1x1: 3; f32 1x1x1: 1; f32 1x1x1: 1",
     "f32 1x1x1x1: 3; f32 1x1x1: 3", NULL},
    {"names of three", "RNN", 14, "hidden_size=1 activations=[\"Relu\", \"Tanh\", \"Tanh\"]",
     "f32 1x1x1; f32 1x1x1; f32 1x1x1", NULL, "activations"},
    {"the batch's lengths", "RNN", 14, "", "f32 1x2x1; f32 1x1x1; f32 1x1x1; -; i32 1", NULL,
     "must have extent 2"},
    {"weights fit the gates", "LSTM", 14, "", "f32 1x1x1; f32 1x3x1; f32 1x4x1", NULL,
     "must have extent 4"},
};

static void convolutions_follow_the_standard(void **state) {
  (void)state;
  rows_hold(convs, KILN_LEN(convs));
}

static void products_broadcast_and_contract(void **state) {
  (void)state;
  rows_hold(products, KILN_LEN(products));
}

static void pools_count_what_is_inside(void **state) {
  (void)state;
  rows_hold(pools, KILN_LEN(pools));
}

static void resizing_weighs_its_taps(void **state) {
  (void)state;
  rows_hold(resizes, KILN_LEN(resizes));
}

static void recurrences_hold_their_state(void **state) {
  (void)state;
  rows_hold(recurrences, KILN_LEN(recurrences));
}

static void contractions_have_no_guards(void **state) {
  (void)state;
  const row padded = {"padded", "Conv", 11, "pads=[1, 1]", "f32 1x3x8; f32 4x3x3; f32 4",
                      "y",      NULL};
  row_prints(&padded, "i2 - 1 >= 0 && i2 - 1 < 8 ? x0(i0, i1, i2 - 1) : 0f32");
  row_prints(&padded,
             "conv(i0:1, i1:4, i2:8 | r0:3, r1:3) +=! pad(i0, r0, i2 + r1)*x1(i1, r0, r1)");
  row_prints(&padded, "= conv(i0, i1, i2) + x2(i1)");
  const row depthwise = {"depthwise", "Conv", 11, "group=3", "f32 1x3x8; f32 3x1x3", "y", NULL};
  row_prints(&depthwise, "(i0:1, i1:3, i2:6 | r0:3) +=! x0(i0, i1, i2 + r0)*x1(i1, 0, r0)");
  const row grouped = {"grouped", "Conv", 11, "group=2", "f32 1x4x8; f32 4x2x3", "y", NULL};
  row_prints(&grouped, "conv(i0:1, i1:2, i2:2, i3:6 | r0:2, r1:3) +=! x0(i0, i1*2 + r0, i3 + r1)*"
                       "y2_1(i1, i2, r0, r1)");
  const row transposed = {
      "transposed", "ConvTranspose", 11, "strides=[2]", "f32 1x4x8; f32 4x3x2", "y", NULL};
  row_prints(&transposed, "+=! x0(i0, r0, i2 + r1)*phase_weights(i1, r0, r1)");
}

static void products_read_their_operands_in_place(void **state) {
  (void)state;
  const row matmul = {"matmul", "MatMul", 13, "", "f32 Nx1x2x3; f32 4x3x5", "y", NULL};
  row_prints(&matmul, "| r0:3) +=! x0(i0, 0, i2, r0)*x1(i1, r0, i3)");
  const row gemm = {"gemm", "Gemm", 13, "transB=1", "f16 2x3; f16 5x3; f16 5", "y", NULL};
  row_prints(&gemm, "gemm(i0:2, i1:5 | r0:3) +=! f32(x0(i0, r0))*f32(x1(i1, r0))");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions_follow_the_standard),
      cmocka_unit_test(products_broadcast_and_contract),
      cmocka_unit_test(pools_count_what_is_inside),
      cmocka_unit_test(resizing_weighs_its_taps),
      cmocka_unit_test(recurrences_hold_their_state),
      cmocka_unit_test(contractions_have_no_guards),
      cmocka_unit_test(products_read_their_operands_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
