// Tree ensembles: attributes to a forest (fission/classical/forest.h), and its scores to outputs.
// source: ONNX TreeEnsembleClassifier-1, 3, TreeEnsembleRegressor-1, 3, TreeEnsemble-5; of one
// score for two classes the label is the second where it is above 0, or 1/2 if all weights are
// positive, as in ONNX Runtime
#include "analysis/interpret.h"
#include "fission/classical/forest.h"
#include "fission/classical/scores.h"
#include "fission/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct numbers {
  int n; // -1: absent
  const double *at;
} numbers;

static kiln_status wrong(kiln_lower *lw, const char *what) {
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s", what);
}

static numbers read_tensor(kiln_lower *lw, const kiln_attr *a) {
  const kiln_const *c = a->u.tensor;
  const int n = (int)(c->bytes / (size_t)kiln_dtype_bytes(c->dtype));
  double *at = KILN_NEW_ARRAY(&lw->cx->perm, double, n);
  for (int i = 0; i < n; i++)
    at[i] = kiln_dtype_is_float(c->dtype) ? kiln_element_get(c->dtype, c->data, i)
                                          : (double)kiln_element_get_int(c->dtype, c->data, i);
  return (numbers){n, at};
}

// The numbers of an attribute: floats, integers, a tensor, or NAME_as_tensor.
static numbers read_numbers(kiln_lower *lw, const char *name) {
  kiln_ctx *cx = lw->cx;
  const kiln_attr *a = kiln_lower_attr(lw, name);
  if (!a) a = kiln_lower_attr(lw, kiln_arena_printf(&cx->scratch, "%s_as_tensor", name));
  if (!a) return (numbers){.n = -1};
  if (a->kind == KILN_ATTR_TENSOR) return read_tensor(lw, a);
  if (a->kind != KILN_ATTR_FLOATS && a->kind != KILN_ATTR_INTS) return (numbers){0};
  double *at = KILN_NEW_ARRAY(&cx->perm, double, a->n);
  for (int i = 0; i < a->n; i++)
    at[i] = a->kind == KILN_ATTR_FLOATS ? (double)a->u.floats[i] : (double)a->u.ints[i];
  return (numbers){a->n, at};
}

// The integers of an attribute, |n| of them; NULL with *ok false if it has another number.
static const int64_t *want_ints(kiln_lower *lw, const char *name, int n, bool *ok) {
  const kiln_attr *a = kiln_lower_attr(lw, name);
  if (a && a->kind == KILN_ATTR_INTS && a->n == n) return a->u.ints;
  *ok = false;
  return NULL;
}

// --- version 1 and 3: nodes by tree and number ---

typedef struct node_key {
  int64_t tree, number;
  int place;
} node_key;

static int compare_keys(const void *a, const void *b) {
  const node_key *x = a, *y = b;
  if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

typedef struct node_list {
  kiln_lower *lw;
  int n;
  const int64_t *trees, *numbers, *yes, *no, *features, *missing; // missing: NULL where absent
  numbers values;
  const kiln_attr *modes;
  node_key *keys; // sorted
} node_list;

static int find_node(const node_list *l, int64_t tree, int64_t number) {
  const node_key key = {tree, number, 0};
  const node_key *found = bsearch(&key, l->keys, (size_t)l->n, sizeof(key), compare_keys);
  return found ? found->place : -1;
}

static kiln_status read_list(kiln_lower *lw, node_list *l) {
  bool ok = true;
  *l = (node_list){.lw = lw, .modes = kiln_lower_attr(lw, "nodes_modes")};
  if (!l->modes || l->modes->kind != KILN_ATTR_STRINGS || l->modes->n < 1)
    return wrong(lw, "attribute nodes_modes: must be strings");
  const int n = l->n = l->modes->n;
  l->trees = want_ints(lw, "nodes_treeids", n, &ok);
  l->numbers = want_ints(lw, "nodes_nodeids", n, &ok);
  l->yes = want_ints(lw, "nodes_truenodeids", n, &ok);
  l->no = want_ints(lw, "nodes_falsenodeids", n, &ok);
  l->features = want_ints(lw, "nodes_featureids", n, &ok);
  l->values = read_numbers(lw, "nodes_values");
  int n_missing = -1;
  KILN_TRY(kiln_lower_ints(lw, "nodes_missing_value_tracks_true", &n_missing, &l->missing));
  if (n_missing != n) l->missing = NULL;
  if (!ok || l->values.n != n || (n_missing > 0 && n_missing != n))
    return wrong(lw, "attributes nodes_*: must have an element for each of nodes_modes");
  l->keys = KILN_NEW_ARRAY(&lw->cx->scratch, node_key, n);
  for (int i = 0; i < n; i++) l->keys[i] = (node_key){l->trees[i], l->numbers[i], i};
  qsort(l->keys, (size_t)n, sizeof(*l->keys), compare_keys);
  for (int i = 1; i < n; i++)
    if (compare_keys(&l->keys[i - 1], &l->keys[i]) == 0)
      return wrong(lw, "attribute nodes_nodeids: must be distinct in a tree");
  return KILN_OK;
}

static kiln_status read_split(kiln_lower *lw, const char *mode, kiln_split *out) {
  static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                      "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
  for (size_t i = 0; i < KILN_LEN(names); i++) {
    *out = (kiln_split)i;
    if (!strcmp(mode, names[i]) && i != KILN_SPLIT_MEMBER) return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "attribute nodes_modes: must be BRANCH_LEQ, BRANCH_LT, BRANCH_GTE, BRANCH_GT, "
                   "BRANCH_EQ, BRANCH_NEQ or LEAF, got %s",
                   mode);
}

static kiln_status read_nodes(kiln_lower *lw, kiln_forest *f, node_list *l) {
  KILN_TRY(read_list(lw, l));
  f->n_nodes = l->n;
  f->nodes = KILN_NEW_ARRAY(&lw->cx->perm, kiln_tree_node, l->n);
  int *roots = KILN_NEW_ARRAY(&lw->cx->perm, int, l->n);
  for (int i = 0; i < l->n; i++) {
    kiln_tree_node *n = &f->nodes[i];
    *n = (kiln_tree_node){.feature = l->features[i], .value = l->values.at[i], .yes = -1, .no = -1};
    KILN_TRY(read_split(lw, kiln_symbol_text(lw->cx, l->modes->u.strings[i]), &n->split));
    n->missing_is_yes = l->missing && l->missing[i] != 0;
    if (n->split != KILN_SPLIT_LEAF) {
      n->yes = find_node(l, l->trees[i], l->yes[i]);
      n->no = find_node(l, l->trees[i], l->no[i]);
    }
    if (i == 0 || l->trees[i] != l->trees[i - 1]) roots[f->n_roots++] = i;
  }
  f->roots = roots;
  return KILN_OK;
}

// The weights in |what|_treeids, _nodeids, _ids and _weights.
static kiln_status read_weights(kiln_lower *lw, const node_list *l, const char *what,
                                kiln_forest *f) {
  kiln_arena *scratch = &lw->cx->scratch;
  bool ok = true;
  const numbers w = read_numbers(lw, kiln_arena_printf(scratch, "%s_weights", what));
  const int n = w.n;
  const int64_t *trees = want_ints(lw, kiln_arena_printf(scratch, "%s_treeids", what), n, &ok);
  const int64_t *nodes = want_ints(lw, kiln_arena_printf(scratch, "%s_nodeids", what), n, &ok);
  const int64_t *ids = want_ints(lw, kiln_arena_printf(scratch, "%s_ids", what), n, &ok);
  if (n < 0 || !ok) return wrong(lw, "weights: their four attributes must have one length");
  f->n_weights = n;
  f->weights = KILN_NEW_ARRAY(&lw->cx->perm, kiln_leaf_weight, n);
  for (int i = 0; i < n; i++)
    f->weights[i] = (kiln_leaf_weight){find_node(l, trees[i], nodes[i]), ids[i], w.at[i]};
  return KILN_OK;
}

// --- scores to outputs ---

typedef struct aggregate {
  kiln_combiner combiner;
  double divisor; // of the sum
  numbers base;   // for each score; n 0: none
} aggregate;

static kiln_status read_aggregate(kiln_lower *lw, const kiln_forest *f, aggregate *out) {
  const char *name = NULL;
  KILN_TRY(kiln_lower_string(lw, "aggregate_function", "SUM", &name));
  *out = (aggregate){.combiner = KILN_COMBINE_SUM, .divisor = 1};
  if (!strcmp(name, "AVERAGE")) out->divisor = f->n_roots;
  else if (!strcmp(name, "MIN")) out->combiner = KILN_COMBINE_MIN;
  else if (!strcmp(name, "MAX")) out->combiner = KILN_COMBINE_MAX;
  else if (strcmp(name, "SUM") != 0)
    return wrong(lw, "attribute aggregate_function: must be SUM, AVERAGE, MIN or MAX");
  return KILN_OK;
}

// scores / divisor + base.
static kiln_tensor *finish(kiln_lower *lw, const aggregate *g, kiln_tensor *scores) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = scores->dtype;
  if (g->divisor == 1 && g->base.n <= 0) return scores;
  const kiln_expr *at[2];
  kiln_stmt *s = kiln_lower_like(lw, "scores", scores, t, at);
  s->body = kiln_tensor_load(cx, scores, at);
  if (g->divisor != 1) s->body = kiln_div(cx, s->body, kiln_float(cx, t, g->divisor));
  if (g->base.n > 0) {
    char *data = kiln_arena_alloc(&cx->scratch, sizeof(double) * (size_t)g->base.n);
    for (int i = 0; i < g->base.n; i++) kiln_element_set(t, data, i, g->base.at[i]);
    const int64_t n = g->base.n;
    const kiln_tensor *base = kiln_lower_make_const(lw, "base", t, 1, &n, data);
    s->body = kiln_add(cx, s->body, kiln_tensor_load(cx, base, &at[1]));
  }
  return kiln_lower_tensor(lw, s);
}

static kiln_status read_features(kiln_lower *lw, kiln_forest *f, kiln_tensor **out_x) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  f->dtype = lw->inputs[0]->dtype == KILN_F64 ? KILN_F64 : KILN_F32;
  return kiln_lower_features(lw, f->dtype, out_x);
}

static kiln_status regress(kiln_lower *lw, kiln_forest *f, const aggregate *g,
                           kiln_post_transform how, kiln_tensor *x, kiln_dtype result) {
  kiln_tensor *y = NULL;
  KILN_TRY(kiln_lower_forest(lw, f, x, g->combiner, &y));
  y = finish(lw, g, y);
  if (f->n_scores == 1 && how != KILN_POST_PROBIT) how = KILN_POST_NONE;
  KILN_TRY(kiln_lower_transform(lw, how, y, &y));
  return kiln_lower_cast(lw, y, result, &lw->outputs[0]);
}

static kiln_status lower_regressor(kiln_lower *lw) {
  kiln_forest f = {0};
  node_list l;
  aggregate g;
  kiln_post_transform how = KILN_POST_NONE;
  kiln_tensor *x = NULL;
  KILN_TRY(read_features(lw, &f, &x));
  KILN_TRY(kiln_lower_int(lw, "n_targets", 1, &f.n_scores));
  KILN_TRY(read_nodes(lw, &f, &l));
  KILN_TRY(read_weights(lw, &l, "target", &f));
  KILN_TRY(read_aggregate(lw, &f, &g));
  KILN_TRY(kiln_lower_post_transform(lw, &how));
  g.base = read_numbers(lw, "base_values");
  if (g.base.n != f.n_scores) g.base.n = 0;
  return regress(lw, &f, &g, how, x, KILN_F32);
}

// The places of the labels of single scores, (N, 1): 1 where they are above |least|.
static kiln_tensor *choose_above(kiln_lower *lw, double least, const kiln_tensor *scores) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const *extents = scores->shape;
  kiln_stmt *s = kiln_lower_stmt(lw, "class", KILN_I64, 1, 0, extents);
  const kiln_expr *at[] = {kiln_stmt_var(cx, s, 0), kiln_int(cx, 0)};
  const kiln_expr *above = kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, scores, at),
                                        kiln_float(cx, scores->dtype, least));
  s->body = kiln_cast(cx, KILN_I64, above);
  return kiln_lower_tensor(lw, s);
}

// Whether all weights are of one class, of two.
static bool has_one_score(const kiln_forest *f, const kiln_labels *labels) {
  for (int i = 1; i < f->n_weights; i++)
    if (f->weights[i].score != f->weights[0].score) return false;
  return labels->n <= 2;
}

static bool are_positive(const kiln_forest *f) {
  for (int i = 0; i < f->n_weights; i++)
    if (f->weights[i].weight < 0) return false;
  return true;
}

// (N, 2): 0 and the score, of (N, 1).
static kiln_tensor *beside_zero(kiln_lower *lw, const kiln_tensor *score) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[] = {score->shape[0], kiln_int(cx, 2)}, *at[2];
  kiln_stmt *s = kiln_lower_stmt(lw, "both", score->dtype, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, at);
  const kiln_expr *from[] = {at[0], kiln_int(cx, 0)};
  const kiln_expr *is_first = kiln_compare(cx, KILN_EXPR_LT, at[1], kiln_int(cx, 1));
  s->body =
      kiln_select(cx, is_first, kiln_float(cx, score->dtype, 0), kiln_tensor_load(cx, score, from));
  return kiln_lower_tensor(lw, s);
}

typedef struct classes {
  kiln_labels labels;
  kiln_post_transform how;
  kiln_tensor *scores, *places; // places of labels
} classes;

static kiln_status classify_one(kiln_lower *lw, kiln_forest *f, const aggregate *g, kiln_tensor *x,
                                classes *c) {
  static const int64_t sign[] = {0, 1};
  const bool positive = are_positive(f), is_pair = c->labels.n == 2;
  const bool is_second = is_pair && f->n_weights > 0 && f->weights[0].score == 1;
  if (g->base.n > (is_second ? 0 : 1))
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "attribute base_values: must be one at most, or none if all weights are of "
                     "the second class; implementations differ in what more of them mean");
  for (int i = 0; is_second && i < f->n_weights; i++) f->weights[i].score = 0;
  f->n_scores = 1;
  KILN_TRY(kiln_lower_forest(lw, f, x, KILN_COMBINE_SUM, &c->scores));
  c->scores = finish(lw, g, c->scores);
  c->places = choose_above(lw, positive && is_pair ? 0.5 : 0, c->scores);
  if (is_second) {
    c->scores = beside_zero(lw, c->scores);
    return kiln_lower_transform(lw, c->how, c->scores, &c->scores);
  }
  if (!is_pair) c->labels = (kiln_labels){2, sign};
  if (c->how == KILN_POST_PROBIT) return kiln_lower_transform(lw, c->how, c->scores, &c->scores);
  if (is_pair) c->scores = kiln_lower_both(lw, c->how, positive, c->scores);
  return KILN_OK;
}

static kiln_status classify_many(kiln_lower *lw, kiln_forest *f, aggregate *g, kiln_tensor *x,
                                 classes *c) {
  if (g->base.n != c->labels.n) g->base.n = 0;
  KILN_TRY(kiln_lower_forest(lw, f, x, KILN_COMBINE_SUM, &c->scores));
  c->scores = finish(lw, g, c->scores);
  KILN_TRY(kiln_lower_greatest(lw, c->scores, &c->places));
  return kiln_lower_transform(lw, c->how, c->scores, &c->scores);
}

static kiln_status lower_classifier(kiln_lower *lw) {
  kiln_forest f = {0};
  node_list l;
  aggregate g = {.combiner = KILN_COMBINE_SUM, .divisor = 1};
  classes c = {0};
  kiln_tensor *x = NULL;
  KILN_TRY(read_features(lw, &f, &x));
  KILN_TRY(kiln_lower_labels(lw, "classlabels_int64s", &c.labels));
  f.n_scores = c.labels.n;
  KILN_TRY(read_nodes(lw, &f, &l));
  KILN_TRY(read_weights(lw, &l, "class", &f));
  KILN_TRY(kiln_lower_post_transform(lw, &c.how));
  g.base = read_numbers(lw, "base_values");
  KILN_TRY(has_one_score(&f, &c.labels) ? classify_one(lw, &f, &g, x, &c)
                                        : classify_many(lw, &f, &g, x, &c));
  if (kiln_lower_wants(lw, 0))
    KILN_TRY(kiln_lower_label_at(lw, &c.labels, c.places, &lw->outputs[0]));
  if (kiln_lower_wants(lw, 1)) KILN_TRY(kiln_lower_cast(lw, c.scores, KILN_F32, &lw->outputs[1]));
  return KILN_OK;
}

// --- version 5: leaves apart from nodes ---

typedef struct node_table {
  numbers modes, splits, members, hit;
  const int64_t *features, *yes, *no, *yes_leaf, *no_leaf, *missing;
} node_table;

// The sets of MEMBER nodes follow each other, each ended by NaN.
static kiln_status read_set(kiln_lower *lw, const numbers *members, int *at, kiln_tree_node *n) {
  n->members = members->n > 0 ? members->at + *at : NULL;
  while (*at < members->n && !isnan(members->at[*at])) {
    n->n_members++;
    ++*at;
  }
  if (++*at > members->n)
    return wrong(lw, "membership_values: must have a set, ended by NaN, for each MEMBER node");
  return KILN_OK;
}

static kiln_status read_table(kiln_lower *lw, kiln_forest *f, int n_leaves) {
  bool ok = true;
  node_table t = {.modes = read_numbers(lw, "nodes_modes"),
                  .splits = read_numbers(lw, "nodes_splits"),
                  .members = read_numbers(lw, "membership_values")};
  const int n = t.splits.n;
  t.features = want_ints(lw, "nodes_featureids", n, &ok);
  t.yes = want_ints(lw, "nodes_truenodeids", n, &ok);
  t.no = want_ints(lw, "nodes_falsenodeids", n, &ok);
  t.yes_leaf = want_ints(lw, "nodes_trueleafs", n, &ok);
  t.no_leaf = want_ints(lw, "nodes_falseleafs", n, &ok);
  int n_missing = 0, at = 0;
  KILN_TRY(kiln_lower_ints(lw, "nodes_missing_value_tracks_true", &n_missing, &t.missing));
  if (!ok || n < 1 || t.modes.n != n || (n_missing > 0 && n_missing != n))
    return wrong(lw, "attributes nodes_*: must have an element for each of nodes_splits");
  f->n_nodes = n + n_leaves;
  f->nodes = KILN_NEW_ARRAY(&lw->cx->perm, kiln_tree_node, f->n_nodes);
  for (int i = 0; i < n_leaves; i++) f->nodes[n + i] = (kiln_tree_node){.split = KILN_SPLIT_LEAF};
  for (int i = 0; i < n; i++) {
    kiln_tree_node *o = &f->nodes[i];
    if (t.modes.at[i] < 0 || t.modes.at[i] > KILN_SPLIT_MEMBER)
      return wrong(lw, "attribute nodes_modes: must lie in [0, 6]");
    *o = (kiln_tree_node){.split = (kiln_split)t.modes.at[i],
                          .feature = t.features[i],
                          .value = t.splits.at[i],
                          .missing_is_yes = n_missing > 0 && t.missing[i] != 0};
    const int64_t yes = t.yes[i] + (t.yes_leaf[i] ? n : 0), no = t.no[i] + (t.no_leaf[i] ? n : 0);
    o->yes = yes >= 0 && yes < f->n_nodes ? (int)yes : -1;
    o->no = no >= 0 && no < f->n_nodes ? (int)no : -1;
    if (o->split == KILN_SPLIT_MEMBER) KILN_TRY(read_set(lw, &t.members, &at, o));
  }
  return KILN_OK;
}

static kiln_status lower_ensemble(kiln_lower *lw) {
  kiln_forest f = {0};
  kiln_tensor *x = NULL;
  bool ok = true;
  int n_roots = 0;
  const int64_t *roots = NULL;
  int64_t function = 1, how = 0;
  KILN_TRY(read_features(lw, &f, &x));
  const numbers weights = read_numbers(lw, "leaf_weights");
  const int64_t *targets = want_ints(lw, "leaf_targetids", weights.n, &ok);
  KILN_TRY(kiln_lower_ints(lw, "tree_roots", &n_roots, &roots));
  KILN_TRY(kiln_lower_int(lw, "n_targets", 1, &f.n_scores));
  KILN_TRY(kiln_lower_int(lw, "aggregate_function", 1, &function));
  KILN_TRY(kiln_lower_int(lw, "post_transform", 0, &how));
  if (!ok || weights.n < 1 || n_roots < 1 || function < 0 || function > 3 || how < 0 ||
      how > KILN_POST_PROBIT)
    return wrong(lw, "attributes: must have leaf_weights, as many leaf_targetids, tree_roots, "
                     "aggregate_function in [0, 3] and post_transform in [0, 4]");
  KILN_TRY(read_table(lw, &f, weights.n));
  int *at = KILN_NEW_ARRAY(&lw->cx->perm, int, n_roots);
  for (int i = 0; i < n_roots; i++) at[i] = roots[i] < f.n_nodes ? (int)roots[i] : -1;
  f.roots = at;
  f.n_roots = n_roots;
  f.n_weights = weights.n;
  f.weights = KILN_NEW_ARRAY(&lw->cx->perm, kiln_leaf_weight, weights.n);
  for (int i = 0; i < weights.n; i++)
    f.weights[i] = (kiln_leaf_weight){f.n_nodes - weights.n + i, targets[i], weights.at[i]};
  static const kiln_combiner combiners[] = {KILN_COMBINE_SUM, KILN_COMBINE_SUM, KILN_COMBINE_MIN,
                                            KILN_COMBINE_MAX};
  const aggregate g = {.combiner = combiners[function], .divisor = function == 0 ? n_roots : 1};
  return regress(lw, &f, &g, (kiln_post_transform)how, x, lw->inputs[0]->dtype);
}

const kiln_op kiln_op_tree_ensemble[] = {
    {"ai.onnx.ml", "TreeEnsembleClassifier", 1, 0, lower_classifier, NULL, "ops/tree_ensemble.c"},
    {"ai.onnx.ml", "TreeEnsembleRegressor", 1, 0, lower_regressor, NULL, "ops/tree_ensemble.c"},
    {"ai.onnx.ml", "TreeEnsemble", 5, 0, lower_ensemble, NULL, "ops/tree_ensemble.c"},
    {0},
};
