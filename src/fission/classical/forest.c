// Bringing a forest into its one form: see forest.h.
#include "fission/classical/forest_form.h"

#include <math.h>

typedef struct forming {
  kiln_lower *lw;
  const kiln_forest *f;
  kiln_forest_form *form;
  int *column_of[KILN_COLUMN_MEMBER]; // [n_features] each; -1: none yet
  int *queue;                         // nodes of a tree, level by level
} forming;

// How a node divides rows.
typedef struct division {
  bool is_constant; // all rows go to |left|
  kiln_column_kind kind;
  double threshold;
  int left, right;
} division;

static double before(kiln_dtype t, double v) {
  return t == KILN_F64 ? nextafter(v, -INFINITY) : (double)nextafterf((float)v, -INFINITY);
}

static division always(int to) { return (division){.is_constant = true, .left = to}; }

static division by_nan(int number, int missing) {
  if (number == missing) return always(number);
  return (division){.kind = KILN_COLUMN_NAN, .threshold = 0.5, .left = number, .right = missing};
}

// Up to |v| to |low|, above to |high|, NaN to |missing|, which is one of the two.
static division at_threshold(double v, int low, int high, int missing) {
  if (isinf(v) && v > 0) return by_nan(low, missing);
  return (division){.kind = missing == high && low != high ? KILN_COLUMN_HIGH : KILN_COLUMN_FEATURE,
                    .threshold = v,
                    .left = low,
                    .right = high};
}

static division divide(kiln_dtype t, const kiln_tree_node *n) {
  const int missing = n->missing_is_yes ? n->yes : n->no;
  const bool has_equal = n->split == KILN_SPLIT_LEQ || n->split == KILN_SPLIT_GT;
  const division in_set = {
      .kind = KILN_COLUMN_MEMBER, .threshold = 0.5, .left = n->no, .right = n->yes};
  const division out_of_set = {
      .kind = KILN_COLUMN_MEMBER, .threshold = 0.5, .left = n->yes, .right = n->no};
  const bool none_below = !has_equal && isinf(n->value) && n->value < 0; // nothing is less
  const double v = has_equal || none_below ? n->value : before(t, n->value);
  if (n->yes == n->no) return always(n->yes);
  switch (n->split) {
  case KILN_SPLIT_LEQ:
  case KILN_SPLIT_LT:
    if (isnan(n->value) || none_below) return by_nan(n->no, missing);
    return at_threshold(v, n->yes, n->no, missing);
  case KILN_SPLIT_GT:
  case KILN_SPLIT_GTE:
    if (isnan(n->value)) return by_nan(n->no, missing);
    return none_below ? by_nan(n->yes, missing) : at_threshold(v, n->no, n->yes, missing);
  case KILN_SPLIT_NEQ: return out_of_set;
  case KILN_SPLIT_EQ:
  case KILN_SPLIT_MEMBER:
  case KILN_SPLIT_LEAF: break;
  }
  return in_set;
}

static int find_column(forming *g, kiln_column_kind kind, const kiln_tree_node *n) {
  kiln_arena *arena = &g->lw->cx->perm;
  const bool is_shared = kind != KILN_COLUMN_MEMBER;
  if (is_shared && g->column_of[kind][n->feature] >= 0) return g->column_of[kind][n->feature];
  const int at = g->form->columns[kind].n;
  KILN_VEC_PUSH(arena, &g->form->columns[kind], (kiln_column){n->feature, n});
  if (is_shared) g->column_of[kind][n->feature] = at;
  return at;
}

static kiln_status refuse(const forming *g, int node, const char *what) {
  return KILN_FAIL(g->lw->cx->diag, KILN_BAD_INPUT, g->lw->place, "trees: %s (at node %d)", what,
                   node);
}

// The first node from |node| on that divides rows, or a leaf.
static kiln_status resolve(const forming *g, int node, int *out, division *out_division) {
  for (int steps = 0; steps <= g->f->n_nodes; steps++) {
    *out = node;
    if (node < 0 || node >= g->f->n_nodes) return refuse(g, node, "nodes must be in range");
    const kiln_tree_node *n = &g->f->nodes[node];
    *out_division = always(node);
    if (n->split == KILN_SPLIT_LEAF) return KILN_OK;
    if (n->feature < 0 || n->feature >= g->form->n_features)
      return refuse(g, node, "features must be columns of the input");
    *out_division = divide(g->f->dtype, n);
    if (!out_division->is_constant) return KILN_OK;
    node = out_division->left;
  }
  return refuse(g, node, "a tree must have no cycle");
}

// More than twice the nodes are reached only where many are reached more than once.
static int most_queued(const kiln_forest *f) { return 2 * f->n_nodes + 2; }

static kiln_status make_tree(forming *g, int root, kiln_form_tree *out) {
  kiln_arena *arena = &g->lw->cx->perm;
  KILN_VEC(kiln_form_node) nodes = {0};
  int n_queued = 1, level_end = 1;
  g->queue[0] = root;
  *out = (kiln_form_tree){0};
  for (int i = 0; i < n_queued; i++) {
    if (i == level_end) {
      level_end = n_queued;
      out->depth++;
    }
    division d;
    kiln_form_node n = {.left = -1};
    KILN_TRY(resolve(g, g->queue[i], &n.origin, &d));
    if (d.is_constant) out->n_leaves++;
    if (!d.is_constant) {
      if (n_queued + 2 > most_queued(g->f))
        return refuse(g, n.origin, "a tree must reach its nodes once");
      n.kind = d.kind;
      n.column = find_column(g, d.kind, &g->f->nodes[n.origin]);
      n.threshold = d.threshold;
      n.left = n_queued;
      g->queue[n_queued++] = d.left;
      g->queue[n_queued++] = d.right;
    }
    KILN_VEC_PUSH(arena, &nodes, n);
  }
  out->n = nodes.n;
  out->nodes = nodes.data;
  return KILN_OK;
}

kiln_status kiln_form_forest(kiln_lower *lw, const kiln_forest *f, int64_t n_features,
                             kiln_forest_form *out) {
  kiln_ctx *cx = lw->cx;
  *out = (kiln_forest_form){.n_trees = f->n_roots, .n_features = n_features};
  out->trees = KILN_NEW_ARRAY(&cx->perm, kiln_form_tree, f->n_roots);
  forming g = {.lw = lw, .f = f, .form = out};
  g.queue = KILN_NEW_ARRAY(&cx->scratch, int, most_queued(f));
  for (int k = 0; k < KILN_COLUMN_MEMBER; k++) {
    g.column_of[k] = KILN_NEW_ARRAY(&cx->scratch, int, n_features);
    for (int64_t i = 0; i < n_features; i++) g.column_of[k][i] = -1;
  }
  for (int i = 0; i < f->n_roots; i++) {
    kiln_form_tree *t = &out->trees[i];
    KILN_TRY(make_tree(&g, f->roots[i], t));
    if (t->n > out->most_nodes) out->most_nodes = t->n;
    if (t->n_leaves > out->most_leaves) out->most_leaves = t->n_leaves;
    if (t->depth > out->depth) out->depth = t->depth;
  }
  return KILN_OK;
}

int kiln_form_column(const kiln_forest_form *form, const kiln_form_node *n) {
  int at = n->column;
  for (int k = 0; k < (int)n->kind; k++) at += form->columns[k].n;
  return at;
}
