// The operators that move data: values worked out by hand.
#include "unit/ops/rows.h"

static const row reshapes[] = {
    {"zero copies and -1 fills", "Reshape", 13, "", "f32 2x3x1: 1 2 3 4 5 6; const i64 2: 0 -1",
     "f32 2x3: 1 2 3 4 5 6", NULL},
    {"allowzero keeps an empty axis", "Reshape", 14, "allowzero=1", "f32 0x3; const i64 2: 3 0",
     "f32 3x0:", NULL},
    {"the old attribute", "Reshape", 1, "shape=[3, 2]", "f32 2x3: 1 2 3 4 5 6",
     "f32 3x2: 1 2 3 4 5 6", NULL},
    {"named dimensions cancel", "Reshape", 13, "", "f32 Nx12x8; const i64 3: 0 -1 4", "f32 Nx24x4",
     NULL},
    {"elements must stay", "Reshape", 13, "", "f32 2x3; const i64 1: 5", NULL, "must have the 6"},
    {"one -1 only", "Reshape", 13, "", "f32 2x3; const i64 2: -1 -1", NULL, "one may be -1"},
    {"0 needs an axis", "Reshape", 13, "", "f32 6; const i64 3: 6 1 0", NULL, "must copy an axis"},
    {"flatten at the end", "Flatten", 13, "axis=2", "i32 1x2: 7 8", "i32 2x1: 7 8", NULL},
    {"squeeze all", "Squeeze", 13, "", "i32 1x2x1: 7 8", "i32 2: 7 8", NULL},
    {"squeeze by attribute", "Squeeze", 11, "axes=[-1]", "i32 1x2x1: 7 8", "i32 1x2: 7 8", NULL},
    {"squeeze a long axis", "Squeeze", 13, "", "i32 1x2; const i64 1: 1", NULL,
     "must have extent 1"},
    {"unsqueeze in any order", "Unsqueeze", 13, "", "i32 2: 7 8; const i64 2: 2 0",
     "i32 1x2x1: 7 8", NULL},
    {"axes are distinct", "Unsqueeze", 13, "", "i32 2; const i64 2: 0 0", NULL, "must be distinct"},
};

static const row slices[] = {
    {"old attributes", "Slice", 1, "starts=[1] ends=[-1] axes=[1]", "i32 2x4: 0 1 2 3 4 5 6 7",
     "i32 2x2: 1 2 5 6", NULL},
    {"INT_MAX ends", "Slice", 13, "",
     "i32 4: 0 1 2 3; const i64 1: 2; const i64 1: 9223372036854775807", "i32 2: 2 3", NULL},
    {"backwards to the start", "Slice", 13, "",
     "i32 4: 0 1 2 3; const i64 1: -1; const i64 1: -9223372036854775807; const i64 1: 0; const "
     "i64 "
     "1: -1",
     "i32 4: 3 2 1 0", NULL},
    {"backwards by 2", "Slice", 13, "",
     "i32 5: 0 1 2 3 4; const i64 1: 9; const i64 1: 0; const i64 1: 0; const i64 1: -2",
     "i32 2: 4 2", NULL},
    {"start behind the end is empty", "Slice", 13, "",
     "i32 3: 0 1 2; const i64 1: 5; const i64 1: 9", "i32 0:", NULL},
    {"a named axis to its end", "Slice", 13, "",
     "f32 NxC; const i64 1: 0; const i64 1: 9223372036854775807; const i64 1: 1", "f32 NxC", NULL},
    {"step 0", "Slice", 13, "",
     "i32 3; const i64 1: 0; const i64 1: 2; const i64 1: 0; const i64 1: 0", NULL,
     "steps: must not be 0, got 0 at 0"},
};

static const row joins[] = {
    {"concat of three, one empty", "Concat", 13, "axis=-1",
     "i32 2x1: 1 2; i32 2x0:; i32 2x2: 3 4 5 6", "i32 2x3: 1 3 4 2 5 6", NULL},
    {"other axes agree", "Concat", 13, "axis=0", "i32 2x1; i32 2x2", NULL, "must have extent 1"},
    {"equal parts", "Split", 2, "axis=1", "i32 2x4: 1 2 3 4 5 6 7 8",
     "i32 2x2: 1 2 5 6; i32 2x2: 3 4 7 8", NULL},
    {"the last part is smaller", "Split", 18, "num_outputs=2", "i32 3: 1 2 3",
     "i32 2: 1 2; i32 1: 3", NULL},
    {"given parts", "Split", 13, "", "i32 3: 1 2 3; const i64 2: 1 2", "i32 1: 1; i32 2: 2 3",
     NULL},
    {"parts must sum", "Split", 13, "", "i32 3; const i64 2: 1 1", "y;y",
     "must sum to the extent 3"},
    {"tile", "Tile", 13, "", "i32 1x2: 1 2; const i64 2: 2 2", "i32 2x4: 1 2 1 2 1 2 1 2", NULL},
    {"expand both ways", "Expand", 13, "", "i32 2x1: 1 2; const i64 3: 2 1 2",
     "i32 2x2x2: 1 1 2 2 1 1 2 2", NULL},
    {"expand must fit", "Expand", 13, "", "i32 3; const i64 1: 2", NULL, "must be equal or 1"},
    {"transpose", "Transpose", 13, "perm=[1, 0]", "i32 2x3: 1 2 3 4 5 6", "i32 3x2: 1 4 2 5 3 6",
     NULL},
    {"perm is a permutation", "Transpose", 13, "perm=[0, 0]", "i32 2x3", NULL, "must be distinct"},
    {"lower triangle", "Trilu", 14, "upper=0", "i32 2x2: 1 2 3 4", "i32 2x2: 1 0 3 4", NULL},
    {"upper triangle from k", "Trilu", 14, "", "i32 2x2: 1 2 3 4; const i64: 1", "i32 2x2: 0 2 0 0",
     NULL},
    {"depth to space", "DepthToSpace", 13, "blocksize=2 mode=\"CRD\"", "i32 1x4x1x1: 1 2 3 4",
     "i32 1x1x2x2: 1 2 3 4", NULL},
    {"space to depth", "SpaceToDepth", 13, "blocksize=2", "i32 1x1x2x2: 1 2 3 4",
     "i32 1x4x1x1: 1 2 3 4", NULL},
    {"channels divide", "DepthToSpace", 13, "blocksize=2", "i32 1x3x1x1", NULL,
     "must be a multiple of 4"},
    {"reverse by length", "ReverseSequence", 10, "batch_axis=0 time_axis=1",
     "i32 2x3: 1 2 3 4 5 6; i64 2: 2 3", "i32 2x3: 2 1 3 6 5 4", NULL},
};

static const row pads[] = {
    {"constant with value", "Pad", 11, "", "i32 2: 1 2; const i64 2: 1 2; const i32: 9",
     "i32 5: 9 1 2 9 9", NULL},
    {"negative pads crop", "Pad", 11, "", "i32 3: 1 2 3; const i64 2: -1 1", "i32 3: 2 3 0", NULL},
    {"reflect", "Pad", 2, "mode=\"reflect\" pads=[2, 1]", "i32 3: 1 2 3", "i32 6: 3 2 1 2 3 2",
     NULL},
    {"reflect again and again", "Pad", 11, "mode=\"reflect\"", "i32 2: 1 2; const i64 2: 3 2",
     "i32 7: 2 1 2 1 2 1 2", NULL},
    {"edge", "Pad", 11, "mode=\"edge\"", "i32 2: 1 2; const i64 2: 2 1", "i32 5: 1 1 1 2 2", NULL},
    {"wrap", "Pad", 19, "mode=\"wrap\"", "i32 3: 1 2 3; const i64 2: 2 1", "i32 6: 2 3 1 2 3 1",
     NULL},
    {"some axes", "Pad", 18, "", "i32 1x2: 1 2; const i64 2: 0 1; -; const i64 1: -1",
     "i32 1x3: 1 2 0", NULL},
    {"the length of pads", "Pad", 11, "", "i32 1x2; const i64 2: 0 1", NULL, "must have 4 entries"},
    {"nothing to repeat", "Pad", 11, "mode=\"edge\"", "i32 0; const i64 2: 1 1", NULL,
     "must have something to repeat"},
};

static const row picks[] = {
    {"negative indices wrap", "Gather", 13, "", "i32 3: 1 2 3; const i64 2: -1 0", "i32 2: 3 1",
     NULL},
    {"indices of the run are clamped", "Gather", 13, "", "i32 3: 1 2 3; i64 3: -9 1 7",
     "i32 3: 1 2 3", NULL},
    {"a scalar index drops the axis", "Gather", 13, "axis=1", "i32 2x2: 1 2 3 4; const i64: 1",
     "i32 2: 2 4", NULL},
    {"constants out of range", "Gather", 13, "", "i32 3; const i64 1: 3", NULL,
     "must lie in [-3, 3)"},
    {"elements", "GatherElements", 13, "axis=1", "i32 2x2: 1 2 3 4; i64 2x1: 1 -2", "i32 2x1: 2 3",
     NULL},
    {"tuples with a batch", "GatherND", 13, "batch_dims=1", "i32 2x2: 1 2 3 4; i64 2x1: 1 0",
     "i32 2: 2 3", NULL},
    {"scatter, the last wins", "ScatterElements", 13, "", "i32 3: 1 2 3; i64 2: 1 1; i32 2: 8 9",
     "i32 3: 1 9 3", NULL},
    {"scatter adds", "ScatterElements", 16, "reduction=\"add\"",
     "i32 3: 1 2 3; i64 2: -1 2; i32 2: 8 9", "i32 3: 1 2 20", NULL},
    {"rows by tuples", "ScatterND", 18, "reduction=\"max\"",
     "i32 2x2: 1 2 3 4; i64 1x1: 1; i32 1x2: 9 0", "i32 2x2: 1 2 9 4", NULL},
    {"updates out of range are left out", "ScatterND", 13, "",
     "i32 2: 1 2; i64 2x1: 5 0; i32 2: 8 9", "i32 2: 9 2", NULL},
};

static void reshapes_are_views(void **state) {
  (void)state;
  rows_hold(reshapes, KILN_LEN(reshapes));
}

static void slices_clamp_as_numpy_does(void **state) {
  (void)state;
  rows_hold(slices, KILN_LEN(slices));
}

static void joins_and_index_maps_move_every_element(void **state) {
  (void)state;
  rows_hold(joins, KILN_LEN(joins));
}

static void pads_repeat_or_fill(void **state) {
  (void)state;
  rows_hold(pads, KILN_LEN(pads));
}

static void indices_are_data(void **state) {
  (void)state;
  rows_hold(picks, KILN_LEN(picks));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reshapes_are_views),
      cmocka_unit_test(slices_clamp_as_numpy_does),
      cmocka_unit_test(joins_and_index_maps_move_every_element),
      cmocka_unit_test(pads_repeat_or_fill),
      cmocka_unit_test(indices_are_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
