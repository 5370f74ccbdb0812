// A forest's statements: see forest.h.
#include "analysis/interpret.h"
#include "fission/classical/forest_form.h"
#include "fission/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_ROWS = 16, MOST_BITS = 64, MOST_SCORES = 1 << 20 };

typedef struct scoring {
  kiln_lower *lw;
  const kiln_forest *f;
  kiln_forest_form form;
  kiln_combiner combiner;
  const kiln_tensor *x;       // (N, F)
  const kiln_tensor *columns; // (N, Q), or (Q, N) if |by_bits|
  bool by_bits;
  bool rows_last; // leaves are (slots, N) and not (N, slots)
  int n_scores;   // of the sums
  int per_score;  // trees of each score; 0: every tree may have weights of any score
  int n_slots;    // trees, with empty ones between them
  int *slots;     // [n_slots] the tree of each; -1: an empty one
} scoring;

static const kiln_expr *number(const scoring *s, double v) {
  return kiln_float(s->lw->cx, s->f->dtype, v);
}

// --- columns ---

static int n_columns(const scoring *s) {
  int n = 0;
  for (int k = 0; k < KILN_N_COLUMN_KINDS; k++) n += s->form.columns[k].n;
  return n;
}

// Members(n, j): 1 if the feature of set |j| is in it.
static const kiln_tensor *find_members(const scoring *s) {
  kiln_ctx *cx = s->lw->cx;
  const kiln_dtype t = s->f->dtype;
  const kiln_column *at = s->form.columns[KILN_COLUMN_MEMBER].data;
  const int n = s->form.columns[KILN_COLUMN_MEMBER].n;
  int room = 1;
  for (int j = 0; j < n; j++)
    if (at[j].node->n_members > room) room = at[j].node->n_members;
  const int64_t shape[] = {n, room};
  char *values = kiln_arena_alloc(&cx->scratch, (size_t)(8 * n * room));
  char *missing = kiln_arena_alloc(&cx->scratch, (size_t)(8 * n));
  int64_t *features = KILN_NEW_ARRAY(&cx->scratch, int64_t, n);
  for (int j = 0; j < n; j++) {
    const kiln_tree_node *o = at[j].node;
    const bool is_set = o->split == KILN_SPLIT_MEMBER;
    const double other = !is_set ? o->value : o->n_members > 0 ? o->members[0] : NAN;
    for (int r = 0; r < room; r++)
      kiln_element_set(t, values, (int64_t)j * room + r,
                       is_set && r < o->n_members ? o->members[r] : other);
    kiln_element_set(t, missing, j, o->missing_is_yes && o->split != KILN_SPLIT_NEQ);
    features[j] = o->feature;
  }
  const kiln_tensor *set = kiln_lower_make_const(s->lw, "sets", t, 2, shape, values),
                    *of_nan = kiln_lower_make_const(s->lw, "of_nan", t, 1, shape, missing),
                    *feature = kiln_lower_make_const(s->lw, "set_of", KILN_I64, 1, shape, features);
  const kiln_expr *extents[] = {s->x->shape[0], kiln_int(cx, n), kiln_int(cx, room)}, *d[3];
  kiln_stmt *m = kiln_lower_stmt(s->lw, "members", t, 2, 1, extents);
  kiln_stmt_vars(cx, m, 0, 3, d);
  const kiln_expr *from[] = {d[0], kiln_tensor_load(cx, feature, &d[1])};
  const kiln_expr *v = kiln_tensor_load(cx, s->x, from);
  const kiln_expr *same = kiln_compare(cx, KILN_EXPR_EQ, v, kiln_tensor_load(cx, set, &d[1]));
  m->combiner = KILN_COMBINE_MAX;
  m->body = kiln_select(cx, kiln_unary(cx, KILN_EXPR_ISNAN, v), kiln_tensor_load(cx, of_nan, &d[1]),
                        kiln_cast(cx, t, same));
  return kiln_lower_tensor(s->lw, m);
}

// Whether column q is feature q, for all of them.
static bool are_features(const scoring *s) {
  return n_columns(s) == s->form.columns[KILN_COLUMN_FEATURE].n && !s->by_bits;
}

// The feature of each column that is one.
static const kiln_tensor *sources(const scoring *s, int n) {
  int64_t *from = KILN_NEW_ARRAY(&s->lw->cx->scratch, int64_t, n), at = 0;
  for (int k = 0; k < KILN_N_COLUMN_KINDS; k++)
    for (int i = 0; i < s->form.columns[k].n; i++) from[at++] = s->form.columns[k].data[i].feature;
  const int64_t shape = n;
  return kiln_lower_make_const(s->lw, "column_of", KILN_I64, 1, &shape, from);
}

// The element of column |q| in row |n|.
static const kiln_expr *column_element(const scoring *s, const kiln_expr *n, const kiln_expr *q,
                                       const kiln_tensor *from, const kiln_tensor *members) {
  kiln_ctx *cx = s->lw->cx;
  const kiln_expr *at[] = {n, kiln_tensor_load(cx, from, &q)};
  const kiln_expr *x = kiln_tensor_load(cx, s->x, at), *is_nan = kiln_unary(cx, KILN_EXPR_ISNAN, x);
  const kiln_expr *results[KILN_N_COLUMN_KINDS] = {
      x, kiln_select(cx, is_nan, number(s, INFINITY), x), kiln_cast(cx, s->f->dtype, is_nan), NULL};
  int end = 0;
  const kiln_expr *e = NULL;
  for (int k = 0; k < KILN_N_COLUMN_KINDS; k++) {
    if (s->form.columns[k].n == 0) continue;
    const kiln_expr *here = results[k], *begin = kiln_int(cx, end);
    if (k == KILN_COLUMN_MEMBER) {
      const kiln_expr *place[] = {n, kiln_sub(cx, q, begin)};
      here = kiln_tensor_load(cx, members, place);
    }
    e = e ? kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, q, begin), e, here) : here;
    end += s->form.columns[k].n;
  }
  return e;
}

static void make_columns(scoring *s) {
  kiln_ctx *cx = s->lw->cx;
  const int n = n_columns(s);
  if (n == 0 || are_features(s)) {
    s->columns = s->x;
    return;
  }
  const kiln_tensor *members = s->form.columns[KILN_COLUMN_MEMBER].n ? find_members(s) : NULL;
  const kiln_tensor *from = sources(s, n);
  const kiln_expr *q = kiln_int(cx, n), *rows = s->x->shape[0], *d[2];
  const kiln_expr *extents[] = {s->by_bits ? q : rows, s->by_bits ? rows : q};
  kiln_stmt *c = kiln_lower_stmt(s->lw, "columns", s->f->dtype, 2, 0, extents);
  kiln_stmt_vars(cx, c, 0, 2, d);
  c->body = column_element(s, d[s->by_bits], d[!s->by_bits], from, members);
  s->columns = kiln_lower_tensor(s->lw, c);
}

static int place_of(const scoring *s, const kiln_form_node *n) {
  if (s->columns == s->x) return (int)s->form.columns[KILN_COLUMN_FEATURE].data[n->column].feature;
  return kiln_form_column(&s->form, n);
}

// --- trees to slots ---

static int compare_weights(const void *a, const void *b) {
  const kiln_leaf_weight *x = a, *y = b;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  if (x->score != y->score) return x->score < y->score ? -1 : 1;
  return x->weight < y->weight ? -1 : x->weight > y->weight;
}

static kiln_status index_weights(const scoring *s, kiln_forest *f) {
  for (int i = 0; i < f->n_weights; i++)
    if (f->weights[i].node < 0 || f->weights[i].node >= f->n_nodes || f->weights[i].score < 0 ||
        f->weights[i].score >= f->n_scores)
      return KILN_FAIL(s->lw->cx->diag, KILN_BAD_INPUT, s->lw->place,
                       "weight %d: must be of a node and a score that exist", i);
  qsort(f->weights, (size_t)f->n_weights, sizeof(*f->weights), compare_weights);
  for (int i = 0; i < f->n_nodes; i++) f->nodes[i].n_weights = 0;
  for (int i = f->n_weights - 1; i >= 0; i--) {
    f->nodes[f->weights[i].node].first_weight = i;
    f->nodes[f->weights[i].node].n_weights++;
  }
  return KILN_OK;
}

// The only score of a tree's weights; -1: there are several; 0 if there is no weight.
static int64_t only_score(const scoring *s, const kiln_form_tree *t) {
  int64_t only = -1;
  for (int i = 0; i < t->n; i++) {
    const kiln_tree_node *o = &s->f->nodes[t->nodes[i].origin];
    for (int k = 0; t->nodes[i].left < 0 && k < o->n_weights; k++) {
      const int64_t score = s->f->weights[o->first_weight + k].score;
      if (only >= 0 && score != only) return -1;
      only = score;
    }
  }
  return only < 0 ? 0 : only;
}

// Trees of one score each follow each other, filled up to one number for each score, unless that
// makes far more of them.
static void make_slots(scoring *s) {
  kiln_arena *arena = &s->lw->cx->scratch;
  const int n = s->form.n_trees, n_scores = s->n_scores;
  int *counts = KILN_NEW_ARRAY(arena, int, n_scores), most = 1;
  int64_t *scores = KILN_NEW_ARRAY(arena, int64_t, n);
  bool is_single = true;
  for (int i = 0; i < n; i++) {
    scores[i] = only_score(s, &s->form.trees[i]);
    if (scores[i] < 0) is_single = false;
    else if (++counts[scores[i]] > most) most = counts[scores[i]];
  }
  if (is_single && (int64_t)most * n_scores > 2 * (int64_t)n + n_scores) is_single = false;
  s->per_score = is_single ? most : 0;
  s->n_slots = is_single ? most * n_scores : n;
  s->slots = KILN_NEW_ARRAY(arena, int, s->n_slots);
  for (int i = 0; i < s->n_slots; i++) s->slots[i] = is_single ? -1 : i;
  for (int i = n - 1; is_single && i >= 0; i--)
    s->slots[scores[i] * most + --counts[scores[i]]] = i;
}

// NULL: none.
static const kiln_form_tree *tree_of(const scoring *s, int slot) {
  return s->slots[slot] < 0 ? NULL : &s->form.trees[s->slots[slot]];
}

// --- leaves ---

static int64_t of_slot(int slot, int room, int place) { return (int64_t)slot * room + place; }

// Weights(slot, leaf) or Weights(slot, leaf, score): |places|[slot * room + node] is a leaf's place
// in its slot, -1 of other nodes.
static const kiln_tensor *make_weights(const scoring *s, int room, const int *places, int n_nodes) {
  const int width = s->per_score ? 1 : s->n_scores;
  const int64_t shape[] = {s->n_slots, room, width}, n = shape[0] * room * width;
  char *data = kiln_arena_zalloc(&s->lw->cx->scratch, (size_t)(8 * n + 8));
  const double otherwise = s->combiner == KILN_COMBINE_SUM   ? 0
                           : s->combiner == KILN_COMBINE_MIN ? INFINITY
                                                             : -INFINITY;
  for (int64_t i = 0; i < n && otherwise != 0; i++)
    kiln_element_set(s->f->dtype, data, i, otherwise);
  for (int slot = 0; slot < s->n_slots; slot++) {
    const kiln_form_tree *t = tree_of(s, slot);
    for (int i = 0; t && i < t->n; i++) {
      const int place = places[(int64_t)slot * n_nodes + i];
      const kiln_tree_node *o = &s->f->nodes[t->nodes[i].origin];
      for (int k = 0; place >= 0 && k < o->n_weights; k++) {
        const kiln_leaf_weight *w = &s->f->weights[o->first_weight + k];
        const int64_t at = of_slot(slot, room, place) * width + (s->per_score ? 0 : w->score);
        const double old = kiln_element_get(s->f->dtype, data, at);
        const double sum = s->combiner == KILN_COMBINE_SUM   ? old + w->weight
                           : s->combiner == KILN_COMBINE_MIN ? fmin(old, w->weight)
                                                             : fmax(old, w->weight);
        kiln_element_set(s->f->dtype, data, at, sum);
      }
    }
  }
  return kiln_lower_make_const(s->lw, "weights", s->f->dtype, s->per_score ? 2 : 3, shape, data);
}

static kiln_tensor *combine(const scoring *s, const kiln_tensor *weights,
                            const kiln_tensor *leaves) {
  kiln_ctx *cx = s->lw->cx;
  const kiln_expr *extents[] = {s->x->shape[0], kiln_int(cx, s->n_scores),
                                kiln_int(cx, s->per_score ? s->per_score : s->n_slots)};
  kiln_stmt *y = kiln_lower_stmt(s->lw, "scores", s->f->dtype, 2, 1, extents);
  const kiln_expr *d[3];
  kiln_stmt_vars(cx, y, 0, 3, d);
  const kiln_expr *slot =
      s->per_score ? kiln_add(cx, kiln_mul(cx, d[1], kiln_int(cx, s->per_score)), d[2]) : d[2];
  if (s->n_scores == 1) slot = d[2];
  const kiln_expr *at[] = {s->rows_last ? slot : d[0], s->rows_last ? d[0] : slot};
  const kiln_expr *leaf = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, leaves, at));
  const kiln_expr *weight[] = {slot, leaf, d[1]};
  y->combiner = s->combiner;
  y->body = kiln_tensor_load(cx, weights, weight);
  kiln_stmt_tidy(cx, y);
  return kiln_lower_tensor(s->lw, y);
}

// --- by walking ---

typedef struct walk {
  const scoring *s;
  int room; // nodes of a slot
  int *left;
  int *column;
  double *threshold;
  const kiln_tensor
      *words; // threshold, left child and column in 64 bits; NULL: in tables of their own
  const kiln_tensor *lefts, *columns, *thresholds;
  int left_bits;
} walk;

static void fill_nodes(walk *w) {
  const scoring *s = w->s;
  kiln_arena *arena = &s->lw->cx->scratch;
  const int64_t n = (int64_t)s->n_slots * w->room;
  w->left = KILN_NEW_ARRAY(arena, int, n);
  w->column = KILN_NEW_ARRAY(arena, int, n);
  w->threshold = KILN_NEW_ARRAY(arena, double, n);
  for (int slot = 0; slot < s->n_slots; slot++) {
    const kiln_form_tree *t = tree_of(s, slot);
    for (int i = 0; i < w->room; i++) {
      const int64_t at = of_slot(slot, w->room, i);
      const bool is_inner = t && i < t->n && t->nodes[i].left >= 0;
      w->left[at] = is_inner ? t->nodes[i].left : i;
      w->column[at] = is_inner ? place_of(s, &t->nodes[i]) : 0;
      w->threshold[at] = is_inner ? t->nodes[i].threshold : INFINITY;
    }
  }
}

static int bits_for(int64_t n) {
  int bits = 0;
  while ((INT64_C(1) << bits) < n) bits++;
  return bits;
}

static void make_words(walk *w, const int64_t *shape) {
  const scoring *s = w->s;
  const int64_t n = shape[0] * shape[1];
  uint64_t *words = KILN_NEW_ARRAY(&s->lw->cx->scratch, uint64_t, n);
  for (int64_t i = 0; i < n; i++) {
    const float threshold = (float)w->threshold[i];
    uint32_t bits = 0;
    memcpy(&bits, &threshold, sizeof(bits));
    words[i] = bits | (uint64_t)w->left[i] << 32 | (uint64_t)w->column[i] << (32 + w->left_bits);
  }
  w->words = kiln_lower_make_const(s->lw, "nodes", KILN_U64, 2, shape, words);
}

static void make_tables(walk *w, const int64_t *shape) {
  const scoring *s = w->s;
  const int64_t n = shape[0] * shape[1];
  char *thresholds = kiln_arena_alloc(&s->lw->cx->scratch, (size_t)(8 * n));
  for (int64_t i = 0; i < n; i++) kiln_element_set(s->f->dtype, thresholds, i, w->threshold[i]);
  w->lefts = kiln_lower_make_const(s->lw, "left", KILN_I32, 2, shape, w->left);
  w->columns = kiln_lower_make_const(s->lw, "column", KILN_I32, 2, shape, w->column);
  w->thresholds = kiln_lower_make_const(s->lw, "threshold", s->f->dtype, 2, shape, thresholds);
}

static void make_nodes(walk *w) {
  const scoring *s = w->s;
  const int64_t shape[] = {s->n_slots, w->room};
  int most = 0;
  fill_nodes(w);
  for (int64_t i = 0; i < shape[0] * shape[1]; i++)
    if (w->column[i] > most) most = w->column[i];
  w->left_bits = bits_for(w->room);
  if (s->f->dtype == KILN_F32 && w->left_bits + bits_for(most + 1) <= 32) make_words(w, shape);
  else make_tables(w, shape);
}

typedef struct node_parts {
  const kiln_expr *left, *column, *threshold;
} node_parts;

static node_parts read_node(const walk *w, const kiln_expr *const at[2]) {
  kiln_ctx *cx = w->s->lw->cx;
  if (!w->words)
    return (node_parts){kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, w->lefts, at)),
                        kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, w->columns, at)),
                        kiln_tensor_load(cx, w->thresholds, at)};
  const kiln_expr *word = kiln_tensor_load(cx, w->words, at);
  const kiln_expr *high = kiln_binary(cx, KILN_EXPR_SHR, word, kiln_int_of(cx, KILN_U64, 32));
  const kiln_expr *mask = kiln_int_of(cx, KILN_U64, (INT64_C(1) << w->left_bits) - 1);
  const kiln_expr *column =
      kiln_binary(cx, KILN_EXPR_SHR, word, kiln_int_of(cx, KILN_U64, 32 + w->left_bits));
  return (node_parts){kiln_cast(cx, KILN_I64, kiln_binary(cx, KILN_EXPR_BAND, high, mask)),
                      kiln_cast(cx, KILN_I64, column),
                      kiln_bitcast(cx, KILN_F32, kiln_cast(cx, KILN_U32, word))};
}

// The place after another step from |at|; NULL: from the roots.
static const kiln_tensor *step(const walk *w, const kiln_tensor *from) {
  const scoring *s = w->s;
  kiln_ctx *cx = s->lw->cx;
  const kiln_expr *rows = s->x->shape[0], *slots = kiln_int(cx, s->n_slots), *d[2];
  const kiln_expr *extents[] = {s->rows_last ? slots : rows, s->rows_last ? rows : slots};
  kiln_stmt *z = kiln_lower_stmt(s->lw, "step", KILN_I32, 2, 0, extents);
  kiln_stmt_vars(cx, z, 0, 2, d);
  const kiln_expr *row = d[s->rows_last], *slot = d[!s->rows_last];
  const kiln_expr *place =
      from ? kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, from, d)) : kiln_int(cx, 0);
  const kiln_expr *at[] = {slot, place};
  const node_parts n = read_node(w, at);
  const kiln_expr *value[] = {row, n.column};
  const kiln_expr *goes_right =
      kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, s->columns, value), n.threshold);
  z->body = kiln_cast(cx, KILN_I32, kiln_add(cx, n.left, kiln_cast(cx, KILN_I64, goes_right)));
  return kiln_lower_tensor(s->lw, z);
}

static kiln_tensor *score_by_walking(scoring *s) {
  walk w = {.s = s, .room = s->form.most_nodes > 0 ? s->form.most_nodes : 1};
  make_nodes(&w);
  const kiln_tensor *place = NULL;
  for (int d = 0; d < s->form.depth || d < 1; d++) place = step(&w, place);
  int *places = KILN_NEW_ARRAY(&s->lw->cx->scratch, int, (int64_t)s->n_slots *w.room);
  for (int slot = 0; slot < s->n_slots; slot++) {
    const kiln_form_tree *t = tree_of(s, slot);
    for (int i = 0; i < w.room; i++)
      places[of_slot(slot, w.room, i)] = t && i < t->n && t->nodes[i].left < 0 ? i : -1;
  }
  return combine(s, make_weights(s, w.room, places, w.room), place);
}

// --- by bits ---

typedef struct bits {
  const scoring *s;
  int n_leaves, n_inner;                           // of a slot: 32 or 64, and one less at most
  const kiln_tensor *columns, *thresholds, *masks; // (slots, n_inner)
  int *places;                                     // of leaves, by slot and node
} bits;

// Numbers the leaves of a tree from left to right; |first|, |end|: those below each node.
static void number_leaves(const kiln_form_tree *t, int *first, int *end, int *places) {
  for (int i = t->n - 1; i >= 0; i--) { // how many there are: children stand behind their parents
    const int left = t->nodes[i].left;
    end[i] = left < 0 ? 1 : end[left] + end[left + 1];
  }
  first[0] = 0;
  for (int i = 0; i < t->n; i++) {
    const int left = t->nodes[i].left;
    if (left >= 0) {
      first[left] = first[i];
      first[left + 1] = first[i] + end[left];
    }
    places[i] = left < 0 ? first[i] : -1;
  }
  for (int i = 0; i < t->n; i++) end[i] += first[i];
}

static void fill_bits(bits *b, int64_t *columns, char *thresholds, uint64_t *masks) {
  const scoring *s = b->s;
  const int room = s->form.most_nodes;
  int *first = KILN_NEW_ARRAY(&s->lw->cx->scratch, int, room);
  int *end = KILN_NEW_ARRAY(&s->lw->cx->scratch, int, room);
  for (int slot = 0; slot < s->n_slots; slot++) {
    const kiln_form_tree *t = tree_of(s, slot);
    int64_t at = of_slot(slot, b->n_inner, 0), stop = at + b->n_inner;
    if (t) number_leaves(t, first, end, b->places + of_slot(slot, room, 0));
    for (int i = 0; t && i < t->n; i++) {
      const kiln_form_node *n = &t->nodes[i];
      if (n->left < 0) continue;
      const int count = end[n->left] - first[n->left]; // below 64: the right child has one, too
      columns[at] = place_of(s, n);
      kiln_element_set(s->f->dtype, thresholds, at, n->threshold);
      masks[at++] = ~(((UINT64_C(1) << count) - 1) << first[n->left]);
    }
    for (; at < stop; at++) {
      kiln_element_set(s->f->dtype, thresholds, at, INFINITY);
      masks[at] = UINT64_MAX;
    }
  }
}

static void make_bits(bits *b) {
  const scoring *s = b->s;
  kiln_arena *arena = &s->lw->cx->scratch;
  const int64_t shape[] = {s->n_slots, b->n_inner}, n = shape[0] * shape[1];
  int64_t *columns = KILN_NEW_ARRAY(arena, int64_t, n);
  char *thresholds = kiln_arena_alloc(arena, (size_t)(8 * n + 8));
  uint64_t *masks = KILN_NEW_ARRAY(arena, uint64_t, n);
  b->places = KILN_NEW_ARRAY(arena, int, (int64_t)s->n_slots * s->form.most_nodes);
  fill_bits(b, columns, thresholds, masks);
  if (b->n_leaves == 32)
    for (int64_t i = 0; i < n; i++) ((uint32_t *)(void *)masks)[i] = (uint32_t)masks[i];
  b->columns = kiln_lower_make_const(s->lw, "column", KILN_I64, 2, shape, columns);
  b->thresholds = kiln_lower_make_const(s->lw, "threshold", s->f->dtype, 2, shape, thresholds);
  b->masks = kiln_lower_make_const(s->lw, "masks", b->n_leaves == 32 ? KILN_U32 : KILN_U64, 2,
                                   shape, masks);
}

// The number of the lowest bit of |word|, which is not 0: the exponent of that bit as a float.
static const kiln_expr *lowest_bit(kiln_ctx *cx, const kiln_expr *word) {
  const bool is_short = word->dtype == KILN_U32;
  const kiln_dtype t = word->dtype, i = is_short ? KILN_I32 : KILN_I64;
  const kiln_expr *negative =
      kiln_add(cx, kiln_unary(cx, KILN_EXPR_BNOT, word), kiln_int_of(cx, t, 1));
  const kiln_expr *lowest = kiln_cast(cx, i, kiln_binary(cx, KILN_EXPR_BAND, word, negative));
  const kiln_expr *number = kiln_cast(cx, is_short ? KILN_F32 : KILN_F64, lowest); // of 2^31: minus
  const kiln_expr *exponent = kiln_binary(cx, KILN_EXPR_SHR, kiln_bitcast(cx, t, number),
                                          kiln_int_of(cx, t, is_short ? 23 : 52));
  exponent = kiln_binary(cx, KILN_EXPR_BAND, exponent, kiln_int_of(cx, t, is_short ? 255 : 2047));
  return kiln_sub(cx, kiln_cast(cx, i, exponent), kiln_int_of(cx, i, is_short ? 127 : 1023));
}

static const kiln_tensor *find_leaves(const bits *b) {
  const scoring *s = b->s;
  kiln_ctx *cx = s->lw->cx;
  const kiln_dtype t = b->masks->dtype;
  const kiln_expr *extents[] = {kiln_int(cx, s->n_slots), s->x->shape[0]}, *d[2];
  kiln_stmt *z =
      kiln_lower_stmt(s->lw, "leaves", t == KILN_U32 ? KILN_I32 : KILN_I64, 2, 0, extents);
  kiln_stmt_vars(cx, z, 0, 2, d);
  const kiln_expr *all = kiln_int_of(cx, t, -1), *word = all;
  for (int k = 0; k < b->n_inner; k++) {
    const kiln_expr *at[] = {d[0], kiln_int(cx, k)};
    const kiln_expr *value[] = {kiln_tensor_load(cx, b->columns, at), d[1]};
    const kiln_expr *goes_right =
        kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, s->columns, value),
                     kiln_tensor_load(cx, b->thresholds, at));
    const kiln_expr *mask = kiln_select(cx, goes_right, kiln_tensor_load(cx, b->masks, at), all);
    word = k ? kiln_binary(cx, KILN_EXPR_BAND, word, mask) : mask;
  }
  z->body = lowest_bit(cx, word);
  return kiln_lower_tensor(s->lw, z);
}

static kiln_tensor *score_by_bits(scoring *s) {
  const int n_leaves = s->form.most_leaves <= 32 ? 32 : 64;
  bits b = {.s = s, .n_leaves = n_leaves, .n_inner = s->form.most_leaves - 1};
  make_bits(&b);
  const kiln_tensor *leaves = find_leaves(&b);
  return combine(s, make_weights(s, n_leaves, b.places, s->form.most_nodes), leaves);
}

// --- both ---

// Programs of one graph at several sizes must have the same statements: none of them has few rows.
static bool has_few_rows(const scoring *s) {
  int64_t rows = 0;
  return !s->lw->folds && kiln_expr_is_int(s->x->shape[0], &rows) && rows < FEW_ROWS;
}

static bool suits_bits(const scoring *s) {
  return s->rows_last && s->form.most_leaves >= 2 && s->form.most_leaves <= MOST_BITS;
}

// Scores without a weight have 0.
static kiln_tensor *without_infinities(const scoring *s, const kiln_tensor *y) {
  kiln_ctx *cx = s->lw->cx;
  const kiln_expr *at[2];
  kiln_stmt *z = kiln_lower_like(s->lw, "scores", y, y->dtype, at);
  const kiln_expr *v = kiln_tensor_load(cx, y, at);
  z->body = kiln_select(cx, kiln_unary(cx, KILN_EXPR_ISINF, v), number(s, 0), v);
  return kiln_lower_tensor(s->lw, z);
}

kiln_status kiln_lower_forest(kiln_lower *lw, kiln_forest *f, const kiln_tensor *x,
                              kiln_combiner combiner, kiln_tensor **out) {
  int64_t n_features = 0;
  scoring s = {.lw = lw, .f = f, .x = x, .combiner = combiner, .n_scores = (int)f->n_scores};
  KILN_TRY(kiln_lower_extent(lw, x, 1, &n_features));
  if (n_features < 1 || f->n_scores < 1 || f->n_scores > MOST_SCORES)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "trees: must have features and 1 to %d targets or classes", MOST_SCORES);
  KILN_TRY(index_weights(&s, f));
  KILN_TRY(kiln_form_forest(lw, f, n_features, &s.form));
  make_slots(&s);
  s.rows_last = !has_few_rows(&s); // vectors are of rows then, and of trees otherwise
  s.by_bits = suits_bits(&s);
  make_columns(&s);
  *out = s.by_bits ? score_by_bits(&s) : score_by_walking(&s);
  if (combiner != KILN_COMBINE_SUM) *out = without_infinities(&s, *out);
  return KILN_OK;
}
