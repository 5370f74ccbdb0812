// What the models of ai.onnx.ml share: inputs as rows of features, lists of weights, post
// transforms of scores, and labels of the greatest score.
#ifndef KILN_FISSION_CLASSICAL_SCORES_H
#define KILN_FISSION_CLASSICAL_SCORES_H

#include "fission/lower.h"

typedef enum kiln_post_transform {
  KILN_POST_NONE,
  KILN_POST_SOFTMAX,
  KILN_POST_LOGISTIC,
  KILN_POST_SOFTMAX_ZERO, // softmax that keeps zeros
  KILN_POST_PROBIT
} kiln_post_transform; // the numbers are TreeEnsemble's

// Input 0 as (N, F) of |t|; a vector is one row.
kiln_status kiln_lower_features(kiln_lower *lw, kiln_dtype t, kiln_tensor **out);
// An attribute that is a list of floats; *out_n = -1 when absent.
kiln_status kiln_lower_floats(kiln_lower *lw, const char *attr, int *out_n, const float **out);
// The attribute post_transform.
kiln_status kiln_lower_post_transform(kiln_lower *lw, kiln_post_transform *out);
// Scores (N, C), transformed.
kiln_status kiln_lower_transform(kiln_lower *lw, kiln_post_transform how, kiln_tensor *scores,
                                 kiln_tensor **out);
// The scores of two classes, (N, 2), of one |score|, (N, 1): the logistic functions of -s and s, or
// else |of| - s and s. |of| is 1 for a probability, 0 for a margin.
kiln_tensor *kiln_lower_both(kiln_lower *lw, kiln_post_transform how, double of,
                             const kiln_tensor *score);
// A transform of single elements: LOGISTIC and PROBIT; |x| itself for NONE.
const kiln_expr *kiln_transform_element(kiln_ctx *cx, kiln_post_transform how, const kiln_expr *x);

// The labels of a classifier: its attribute, or 0, 1, ... where it has none.
typedef struct kiln_labels {
  int n;
  const int64_t *at; // NULL: they are strings
} kiln_labels;
// Reads the labels from the attributes |ints| and "classlabels_strings".
kiln_status kiln_lower_labels(kiln_lower *lw, const char *ints, kiln_labels *out);
// The label at each place of |places|, i64 (N). UNSUPPORTED if labels are strings.
kiln_status kiln_lower_label_at(kiln_lower *lw, const kiln_labels *labels,
                                const kiln_tensor *places, kiln_tensor **out);
// The first place of the greatest of each row of |scores|, (N, C): i64 (N).
kiln_status kiln_lower_greatest(kiln_lower *lw, kiln_tensor *scores, kiln_tensor **out);

#endif
