// Decision forests as statements over flattened tables.
//
// A forest is brought into one form: every inner node compares a column of the features with a
// threshold and goes to the right where it is greater. What is no such comparison (a missing value
// that goes to the right, equality, membership of a set) becomes a column of its own. A row finds
// its leaf in each tree by one of two ways:
// - by bits, for many rows and small trees: a word has a bit for each leaf, from left to right.
//   Each node at which the row goes to the right clears the bits of the leaves to its left; the
//   lowest bit that is left is the leaf. source: QuickScorer (Lucchese et al., SIGIR'15)
// - by walking, otherwise: a step a level, all trees or rows at once; leaves are their own
//   children.
#ifndef KILN_FISSION_CLASSICAL_FOREST_H
#define KILN_FISSION_CLASSICAL_FOREST_H

#include "fission/lower.h"

typedef enum kiln_split {
  KILN_SPLIT_LEQ, // the numbers are TreeEnsemble's
  KILN_SPLIT_LT,
  KILN_SPLIT_GTE,
  KILN_SPLIT_GT,
  KILN_SPLIT_EQ,
  KILN_SPLIT_NEQ,
  KILN_SPLIT_MEMBER,
  KILN_SPLIT_LEAF
} kiln_split;

typedef struct kiln_tree_node {
  kiln_split split;
  int64_t feature;
  double value;  // compared with the feature
  int n_members; // of MEMBER: the set
  const double *members;
  bool missing_is_yes; // where NaN goes, unless the comparison holds for it
  int yes, no;         // nodes
  int n_weights;       // of a leaf
  int first_weight;    // in |weights|
} kiln_tree_node;

typedef struct kiln_leaf_weight {
  int node;
  int64_t score;
  double weight;
} kiln_leaf_weight;

typedef struct kiln_forest {
  kiln_dtype dtype; // of features, thresholds and weights: f32 or f64
  int n_nodes;
  kiln_tree_node *nodes;
  int n_roots;
  const int *roots;
  int n_weights;
  kiln_leaf_weight *weights; // in any order; lowering sorts them by node
  int64_t n_scores;
} kiln_forest;

// Combines the weights of the leaves that rows of |x|, (N, F), reach: (N, n_scores). A score
// without a weight has 0.
//
// needs:  |combiner| SUM, MIN or MAX
// errors: BAD_INPUT if a node, a feature or a score is out of range, or a tree has a cycle
kiln_status kiln_lower_forest(kiln_lower *lw, kiln_forest *f, const kiln_tensor *x,
                              kiln_combiner combiner, kiln_tensor **out);

#endif
