// Sampled regions, transforms, determinants, features: values worked out by hand.
#include "unit/ops/rows.h"

#include <math.h>

static const row samples[] = {
    {"blocks add up", "Col2Im", 18, "", "f32 1x2x2: 1 2 10 20; const i64 1: 3; const i64 1: 2",
     "f32 1x1x3: 1 12 20", NULL},
    {"blocks in strides, pads and dilations", "Col2Im", 18, "strides=[2] pads=[1, 0] dilations=[2]",
     "f32 1x2x2: 1 2 10 20; const i64 1: 4; const i64 1: 2", "f32 1x1x4: 0 12 0 20", NULL},
    {"two axes of blocks", "Col2Im", 18, "",
     "f32 1x2x4: 1 2 3 4 5 6 7 8; const i64 2: 2 3; const i64 2: 1 2", "f32 1x1x2x3: 1 7 6 3 11 8",
     NULL},
    {"as many blocks as fit", "Col2Im", 18, "", "f32 1x2x3; const i64 1: 3; const i64 1: 2", NULL,
     "must have extent 2, got 3"},
    {"whole blocks", "Col2Im", 18, "", "f32 1x3x2; const i64 1: 3; const i64 1: 2", NULL,
     "must be a multiple of the 2 elements"},
    {"the image is known", "Col2Im", 18, "", "f32 1x2x2; i64 1; const i64 1: 2", NULL,
     "must be known when compiling"},
    {"a grid over centres", "AffineGrid", 20, "", "f32 1x2x3: 1 0 0 0 1 0; const i64 4: 1 1 2 2",
     "f32 1x2x2x2: -0.5 -0.5 0.5 -0.5 -0.5 0.5 0.5 0.5", NULL},
    {"a grid over corners, moved and scaled", "AffineGrid", 20, "align_corners=1",
     "f32 1x2x3: 2 0 10 0 1 20; const i64 4: 1 1 1 3", "f32 1x1x3x2: 8 19 10 19 12 19", NULL},
    {"a grid needs 2 or 3 axes", "AffineGrid", 20, "", "f32 1x2x3; const i64 3: 1 1 2", NULL,
     "must have 4 or 5 extents"},
    {"the last element is inside", "MaxRoiPool", 1, "pooled_shape=[1, 2]",
     "f32 1x1x2x4: 1 2 3 4 5 6 7 8; f32 2x5: 0 0 0 3 0 0 1 1 2 9", "f32 2x1x1x2: 2 4 6 7", NULL},
    {"scaled, of another image, and outside", "MaxRoiPool", 1,
     "pooled_shape=[1, 1] spatial_scale=0.5",
     "f32 2x1x1x2: 1 2 -3 -4; f32 2x5: 1 0 0 2 0 1 8 0 9 0", "f32 2x1x1x1: -3 0", NULL},
    {"bins have rows and columns", "MaxRoiPool", 1, "pooled_shape=[1]", "f32 1x1x2x2; f32 1x5",
     NULL, "must be two positive extents"},
    {"bins are positive", "RoiAlign", 16, "output_height=-7", "f32 1x1x2x2; f32 1x4; i64 1", NULL,
     "output_height and output_width must be positive"},
    {"half a step to the right", "DeformConv", 19, "kernel_shape=[1, 1]",
     "f32 1x1x1x2: 1 3; f32 1x1x1x1: 10; f32 1x2x1x2: 0 0 0.5 0.5", "f32 1x1x1x2: 20 15", NULL},
    {"masked, with a bias", "DeformConv", 19, "",
     "f32 1x1x1x2: 1 3; f32 1x1x1x1: 1; f32 1x2x1x2: 0 0 0 0; f32 1: 100; f32 1x1x1x2: 0.5 2",
     "f32 1x1x1x2: 100.5 106", NULL},
    {"two groups of offsets", "DeformConv", 19, "offset_group=2",
     "f32 1x2x2: 1 2 10 20; f32 1x2x1: 1 1; f32 1x2x2: 0 0 1 -1", "f32 1x1x2: 21 12", NULL},
    {"offsets for each tap", "DeformConv", 19, "", "f32 1x1x2x2; f32 1x1x1x1; f32 1x3x2x2", NULL,
     "must have extent 2, got 3"},
};

static const row transforms[] = {
    {"an impulse", "DFT", 20, "", "f32 1x4x1: 0 1 0 0", "f32 1x4x2: 1 0 0 -1 -1 0 0 1", NULL},
    {"one side", "DFT", 20, "onesided=1", "f32 1x2x1: 3 1", "f32 1x2x2: 4 0 2 0", NULL},
    {"cut to length 1", "DFT", 17, "axis=1", "f32 1x2x2: 3 1 5 5; const i64: 1", "f32 1x1x2: 3 1",
     NULL},
    {"the axis is a signal's", "DFT", 17, "axis=2", "f32 1x2x2", NULL, "must not be the last"},
    {"numbers are complex", "DFT", 17, "", "f32 1x2x3", NULL, "must have extent 1 or 2, got 3"},
    {"frames in steps", "STFT", 17, "onesided=1",
     "f32 1x3: 1 2 5; const i64: 2; f32 1: 10; const i64: 1", "f32 1x2x1x2: 10 0 50 0", NULL},
    {"frames fit", "STFT", 17, "", "f32 1x3; const i64: 2; -; const i64: 4", NULL,
     "frames no longer than the signal"},
    {"three triangles", "MelWeightMatrix", 17, "",
     "const i64: 1; const i64: 4; const i64: 8000; const f32: 0; const f32: 4000", "f32 3x1: 1 0 0",
     NULL},
};

static const row determinants[] = {
    {"one row", "Det", 11, "", "f32 2x1x1: 3 -4", "f32 2: 3 -4", NULL},
    {"two rows", "Det", 11, "", "f32 2x2: 1 2 3 4", "f32: -2", NULL},
    {"a pivot of 0 is swapped away", "Det", 11, "", "f32 3x3: 0 2 1 0 0 3 5 1 1", "f32: 30", NULL},
    {"singular", "Det", 11, "", "f32 3x3: 1 2 3 1 2 3 1 2 3", "f32: 0", NULL},
    {"squares", "Det", 11, "", "f32 3x2", NULL, "must have extent 2, got 3"},
};

#define GRAMS                                                                                      \
  "min_gram_length=1 max_gram_length=2 max_skip_count=1 ngram_counts=[0, 2] "                      \
  "ngram_indexes=[2, 0, 1] pool_int64s=[7, 8, 7, 8] "

static const row features[] = {
    // 7 stands once, 8 twice, 7 8 next to each other and with one between
    {"counted", "TfIdfVectorizer", 9, GRAMS "mode=\"TF\"", "i32 3: 7 8 8", "f32 3: 2 2 1", NULL},
    {"there or not", "TfIdfVectorizer", 9, GRAMS "mode=\"IDF\" weights=[1.5, 2.0, 4.0]",
     "i64 2x3: 7 8 8 8 1 1", "f32 2x3: 2 4 1.5 2 0 0", NULL},
    {"weighed", "TfIdfVectorizer", 9, GRAMS "mode=\"TFIDF\" weights=[1.5, 2.0, 4.0]",
     "i64 3: 7 8 8", "f32 3: 4 8 1.5", NULL},
    {"a mode", "TfIdfVectorizer", 9, GRAMS, "i64 3", NULL, "must be TF, IDF or TFIDF"},
    {"whole n-grams", "TfIdfVectorizer", 9,
     "max_gram_length=2 ngram_counts=[0, 2] ngram_indexes=[0, 1, 2] pool_int64s=[7, 8, 7] "
     "mode=\"TF\"",
     "i64 3", NULL, "in steps of whole n-grams"},
    {"a threshold", "ai.onnx.ml:Binarizer", 1, "threshold=1.0", "f32 3: 0 1 2", "f32 3: 0 0 1",
     NULL},
    {"columns", "ai.onnx.ml:ArrayFeatureExtractor", 1, "", "f32 2x2: 1 2 3 4; i64 3: 1 0 1",
     "f32 2x3: 2 1 2 4 3 4", NULL},
    {"a column of indices", "ai.onnx.ml:ArrayFeatureExtractor", 1, "",
     "f32 2x2: 1 2 3 4; i64 3x1: 1 0 1", "f32 2x3: 2 1 2 4 3 4", NULL},
    {"a matrix of indices", "ai.onnx.ml:ArrayFeatureExtractor", 1, "",
     "f32 3: 1 2 3; i64 2x2: 2 0 1 1", "f32 1x4: 3 1 2 2", NULL},
    {"one index", "ai.onnx.ml:ArrayFeatureExtractor", 1, "", "f32 2x2: 1 2 3 4; i64: 1",
     "f32 2x1: 2 4", NULL},
    {"a vector is a row", "ai.onnx.ml:ArrayFeatureExtractor", 1, "", "f32 2: 1 2; i64 1: 1",
     "f32 1x1: 2", NULL},
};

static void features_are_extracted(void **state) {
  (void)state;
  rows_hold(features, KILN_LEN(features));
}

static void samples_lie_where_the_standard_says(void **state) {
  (void)state;
  rows_hold(samples, KILN_LEN(samples));
}

static void short_transforms_are_exact(void **state) {
  (void)state;
  rows_hold(transforms, KILN_LEN(transforms));
}

static void determinants_survive_their_pivots(void **state) {
  (void)state;
  rows_hold(determinants, KILN_LEN(determinants));
}

// Lengths that are split, once and twice, and a prime: element k of the transform of an impulse at
// 5 is the root 5k.
static void a_long_transform_of_an_impulse_is_a_row_of_roots(void **state) {
  (void)state;
  static const int lengths[] = {66, 67, 128, 130};
  for (size_t i = 0; i < KILN_LEN(lengths); i++) {
    const int n = lengths[i];
    char text[1024];
    int at = snprintf(text, sizeof text, "f32 1x%dx1:", n);
    for (int k = 0; k < n; k++) at += snprintf(text + at, sizeof text - (size_t)at, " %d", k == 5);
    const row r = {"long", "DFT", 20, "", text, "y", NULL};
    bench b;
    row_begin(&b, &r);
    assert_int_equal(kiln_fission(&b.cx, &b.g, &b.p), KILN_OK);
    const char *got = strchr(row_run(&b), ':') + 1;
    for (int k = 0; k < 2 * n; k++) {
      const double angle = 2 * 3.14159265358979323846 * 5 * (k / 2) / n;
      char *end = NULL;
      const double want = k % 2 ? -sin(angle) : cos(angle);
      assert_true(fabs(strtod(got, &end) - want) < 1e-4);
      got = end;
    }
    row_end(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(features_are_extracted),
      cmocka_unit_test(samples_lie_where_the_standard_says),
      cmocka_unit_test(short_transforms_are_exact),
      cmocka_unit_test(determinants_survive_their_pivots),
      cmocka_unit_test(a_long_transform_of_an_impulse_is_a_row_of_roots),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
