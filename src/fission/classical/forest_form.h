// The one form of a forest's trees: see forest.h. Private to src/fission/forest*.c.
#ifndef KILN_FISSION_CLASSICAL_FOREST_FORM_H
#define KILN_FISSION_CLASSICAL_FOREST_FORM_H

#include "fission/classical/forest.h"

// Columns that nodes compare.
typedef enum kiln_column_kind {
  KILN_COLUMN_FEATURE, // as it is: NaN goes to the left
  KILN_COLUMN_HIGH,    // NaN is +inf, so that it goes to the right
  KILN_COLUMN_NAN,     // 1 if it is NaN, else 0
  KILN_COLUMN_MEMBER,  // 1 if it is in a set, else 0
  KILN_N_COLUMN_KINDS
} kiln_column_kind;

typedef struct kiln_column {
  int64_t feature;
  const kiln_tree_node *node; // of MEMBER
} kiln_column;

// To the right if column > threshold.
typedef struct kiln_form_node {
  kiln_column_kind kind;
  int column; // of its kind
  double threshold;
  int left;   // in the tree; the right child follows it; of a leaf -1
  int origin; // the node of the forest
} kiln_form_node;

typedef struct kiln_form_tree {
  int n, depth, n_leaves;
  kiln_form_node *nodes; // level by level; the root is the first
} kiln_form_tree;

typedef struct kiln_forest_form {
  int n_trees;
  kiln_form_tree *trees;
  int most_nodes, most_leaves, depth; // of any tree
  int64_t n_features;
  KILN_VEC(kiln_column) columns[KILN_N_COLUMN_KINDS];
} kiln_forest_form;

// errors: BAD_INPUT if a node or feature is out of range, or a tree reaches a node twice
kiln_status kiln_form_forest(kiln_lower *lw, const kiln_forest *f, int64_t n_features,
                             kiln_forest_form *out);
// The column's place among all.
int kiln_form_column(const kiln_forest_form *form, const kiln_form_node *n);

#endif
