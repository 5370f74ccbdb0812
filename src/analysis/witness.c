#include "analysis/witness.h"

#include "analysis/interval.h"

#include <limits.h>

// One distinct node of the conditions, after its arguments. Its interval covers the values of the
// assigned variables and the whole range of the others.
typedef struct node {
  const kiln_expr *e;
  int args[3];
  bool is_condition;
} node;

typedef struct search {
  kiln_ctx *cx;
  int n_vars, budget, attempt;
  const kiln_symbol *vars;
  kiln_interval *boxes; // [n_vars]
  int *order, n_order;  // variables of the conditions in order of assignment
  struct {
    node *data;
    int n, cap;
  } nodes;
  kiln_interval *intervals; // [nodes.n]
  kiln_map numbers;         // expression id to node
  struct uses {             // [n_vars] nodes that depend on the variable, in order
    int *data;
    int n, cap;
  } * uses;
} search;

// --- nodes ---

static void push_node(const kiln_expr *e, void *argument) {
  search *s = argument;
  node n = {.e = e};
  for (int i = 0; i < e->n_args; i++) {
    const uint64_t *arg = kiln_map_find(&s->numbers, e->args[i]->id);
    if (!arg) return; // the argument has more than three arguments itself
    if (i < (int)KILN_LEN(n.args)) n.args[i] = (int)*arg;
  }
  if (e->n_args > (int)KILN_LEN(n.args)) return;
  if (kiln_map_find(&s->numbers, e->id)) return;
  kiln_map_put(&s->numbers, e->id, (uint64_t)s->nodes.n);
  KILN_VEC_PUSH(&s->cx->scratch, &s->nodes, n);
}

static bool push_condition(search *s, const kiln_expr *e) {
  if (e->has_load || e->dtype != KILN_BOOL) return false;
  kiln_expr_visit(s->cx, e, push_node, s);
  const uint64_t *number = kiln_map_find(&s->numbers, e->id);
  if (!number) return false;
  s->nodes.data[*number].is_condition = true;
  return true;
}

static int number_of(const search *s, kiln_symbol var) {
  for (int k = 0; k < s->n_vars; k++)
    if (s->vars[k] == var) return k;
  return -1;
}

static void list_uses(search *s) {
  for (int i = 0; i < s->nodes.n; i++) {
    const kiln_expr_vars *vars = s->nodes.data[i].e->vars;
    for (int v = 0; vars && v < vars->n; v++) {
      const int k = number_of(s, vars->vars[v]);
      if (k >= 0) KILN_VEC_PUSH(&s->cx->scratch, &s->uses[k], i);
    }
  }
}

// --- order ---

static bool is_ordered(const search *s, int k) {
  for (int i = 0; i < s->n_order; i++)
    if (s->order[i] == k) return true;
  return false;
}

// The number of variables of node |at| that are not ordered yet; |*out| is the first one.
static int open_variables(const search *s, int at, int *out) {
  const kiln_expr_vars *vars = s->nodes.data[at].e->vars;
  int n = 0;
  for (int v = vars ? vars->n - 1 : -1; v >= 0; v--) {
    const int k = number_of(s, vars->vars[v]);
    if (k < 0 || is_ordered(s, k)) continue;
    *out = k;
    n++;
  }
  return n;
}

// Appends a variable of the condition with the fewest unordered ones: it can be refuted earliest.
static bool order_next(search *s) {
  int fewest = INT_MAX, next = -1;
  for (int i = 0; i < s->nodes.n; i++) {
    int k = -1;
    const int n = s->nodes.data[i].is_condition ? open_variables(s, i, &k) : 0;
    if (n == 0 || n >= fewest) continue;
    fewest = n;
    next = k;
  }
  if (next >= 0) s->order[s->n_order++] = next;
  return next >= 0;
}

// --- values ---

static kiln_interval interval_of(const search *s, const node *n) {
  if (n->e->kind == KILN_EXPR_VAR) {
    const int k = number_of(s, n->e->u.sym);
    return k >= 0 ? s->boxes[k] : kiln_interval_all();
  }
  kiln_interval args[3] = {{0}};
  for (int i = 0; i < n->e->n_args; i++) args[i] = s->intervals[n->args[i]];
  return kiln_interval_of_node(n->e, args);
}

// Recomputes the intervals of nodes that depend on variable |k|; stops and returns false at the
// first refuted condition.
static bool update(search *s, int k) {
  for (int i = 0; i < s->uses[k].n; i++, s->budget--) {
    const int at = s->uses[k].data[i];
    const node *n = &s->nodes.data[at];
    s->intervals[at] = interval_of(s, n);
    if (n->is_condition && s->intervals[at].hi == 0) return false;
  }
  return true;
}

// Restores the range of variable |k|.
static void release(search *s, int k, kiln_interval box) {
  s->boxes[k] = box;
  for (int i = 0; i < s->uses[k].n; i++) {
    const int at = s->uses[k].data[i];
    s->intervals[at] = interval_of(s, &s->nodes.data[at]);
  }
}

static bool all_hold(const search *s) {
  for (int i = 0; i < s->nodes.n; i++)
    if (s->nodes.data[i].is_condition && s->intervals[i].lo != 1) return false;
  return true;
}

// The first value tried for variable |k|: 0 in the first attempt, pseudorandom in the others.
static int64_t first_value(const search *s, int k) {
  const uint64_t seed[2] = {(uint64_t)s->attempt, (uint64_t)k};
  if (s->attempt == 0) return 0;
  return (int64_t)(kiln_hash_bytes(seed, sizeof seed, 0) % (uint64_t)(s->boxes[k].hi + 1));
}

static bool assign(search *s, int depth) {
  if (depth == s->n_order) return all_hold(s);
  const int k = s->order[depth];
  const kiln_interval box = s->boxes[k];
  const int64_t extent = box.hi + 1, first = first_value(s, k);
  for (int64_t i = 0; i < extent && s->budget > 0; i++) {
    const int64_t v = (first + i) % extent;
    s->boxes[k] = (kiln_interval){v, v};
    if (update(s, k) && assign(s, depth + 1)) return true;
  }
  release(s, k, box);
  return false;
}

// --- entry ---

static bool open_search(search *s, const kiln_expr *const *extents, int n_conds,
                        const kiln_expr *const *conds) {
  kiln_map_init(&s->numbers, &s->cx->scratch);
  s->boxes = KILN_NEW_ARRAY(&s->cx->scratch, kiln_interval, s->n_vars);
  s->order = KILN_NEW_ARRAY(&s->cx->scratch, int, s->n_vars);
  s->uses = KILN_NEW_ARRAY(&s->cx->scratch, struct uses, s->n_vars);
  for (int k = 0; k < s->n_vars; k++) {
    int64_t extent = 0;
    if (!kiln_expr_is_int(extents[k], &extent) || extent < 1) return false;
    s->boxes[k] = (kiln_interval){0, extent - 1};
    s->uses[k] = (struct uses){0};
  }
  for (int i = 0; i < n_conds; i++)
    if (!push_condition(s, conds[i])) return false;
  s->intervals = KILN_NEW_ARRAY(&s->cx->scratch, kiln_interval, s->nodes.n);
  for (int i = 0; i < s->nodes.n; i++) s->intervals[i] = interval_of(s, &s->nodes.data[i]);
  list_uses(s);
  while (order_next(s)) continue;
  return true;
}

enum { ATTEMPTS = 4 };

bool kiln_find_witness(kiln_ctx *cx, int n_vars, const kiln_symbol *vars,
                       const kiln_expr *const *extents, int n_conds, const kiln_expr *const *conds,
                       int budget) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  search s = {.cx = cx, .n_vars = n_vars, .vars = vars};
  bool found = false, is_exhausted = !open_search(&s, extents, n_conds, conds);
  for (; s.attempt < ATTEMPTS && !found && !is_exhausted; s.attempt++) {
    s.budget = budget / ATTEMPTS;
    found = assign(&s, 0);
    is_exhausted = s.budget > 0;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
}
