// reorder: permutes loops of one path. fuse: in fuse.c.
#include "schedule/legality.h"
#include "schedule/nest.h"

// The path from the outermost named loop to the innermost one: perfectly nested loops and
// conditions.
typedef struct loop_path {
  kiln_loop *loops[KILN_MAX_DEPTH];
  int n;
  struct {
    const kiln_expr **data;
    int n, cap;
  } conds;
  kiln_loop *body;
} loop_path;

static int position(const kiln_symbol *loops, int n, kiln_symbol v) {
  for (int i = 0; i < n; i++)
    if (loops[i] == v) return i;
  return -1;
}

static kiln_status find_path(kiln_edit *e, int n, const kiln_symbol *loops, kiln_loop *top,
                             loop_path *c) {
  int left = n;
  for (kiln_loop *l = top; left > 0; l = l->body) {
    const char *at = c->n ? kiln_edit_text(e, c->loops[c->n - 1]->var) : "";
    if (!l || (l != top && l->next))
      return kiln_refuse(
          e, "loops must be nested with nothing between, got more than one statement in loop %s",
          at);
    switch (l->kind) {
    case KILN_LOOP_FOR:
      if (c->n == KILN_MAX_DEPTH)
        return kiln_refuse(e, "loops must be at most %d deep", KILN_MAX_DEPTH);
      c->loops[c->n++] = l;
      left -= position(loops, n, l->var) >= 0;
      break;
    case KILN_LOOP_IF: KILN_VEC_PUSH(&e->cx->perm, &c->conds, l->cond); break;
    case KILN_LOOP_ALLOC:
      return kiln_refuse(
          e, "loops must be nested with nothing between, got buffer %s in loop %s: reorder before",
          kiln_edit_text(e, e->l->buffers.data[l->buffer]->name), at);
    case KILN_LOOP_STORE:
    case KILN_LOOP_INSTR:
    case KILN_LOOP_DEVICE:
    case KILN_LOOP_PREFETCH:
      return kiln_refuse(e, "loops must lie on one path, got a statement in loop %s", at);
    }
    c->body = l->body;
  }
  return KILN_OK;
}

// The named loop that contains the others.
static kiln_status outermost(kiln_edit *e, int n, const kiln_symbol *loops, kiln_loop **out) {
  kiln_loop *path[KILN_MAX_DEPTH];
  *out = NULL;
  int depth = KILN_MAX_DEPTH + 1;
  for (int i = 0; i < n; i++) {
    kiln_loop *l = NULL;
    KILN_TRY(kiln_edit_loop(e, loops[i], &l));
    if (l->how == KILN_PARALLEL || l->how == KILN_VECTORIZED) KILN_TRY(kiln_edit_serial(e, l));
    if (position(loops, i, loops[i]) >= 0)
      return kiln_refuse(e, "each loop must be named once, got %s twice",
                         kiln_edit_text(e, loops[i]));
    const int d = kiln_nest_path(e->l, l, path);
    if (d < depth) {
      depth = d;
      *out = l;
    }
  }
  return KILN_OK;
}

// Builds the nest in the new order; a condition goes to the first loop inside of which its
// variables are defined.
static kiln_loop *rebuild(kiln_edit *e, const loop_path *c, kiln_loop *const *order) {
  kiln_loop *body = c->body;
  bool *placed = KILN_NEW_ARRAY(&e->cx->perm, bool, c->conds.n);
  for (int i = c->n - 1; i >= -1; i--) {
    for (int k = c->conds.n - 1; k >= 0; k--) {
      if (placed[k] || (i >= 0 && !kiln_expr_uses(c->conds.data[k], order[i]->var))) continue;
      placed[k] = true;
      body = kiln_if_make(e->cx, c->conds.data[k], body);
    }
    if (i < 0) break;
    order[i]->body = body;
    order[i]->next = NULL;
    body = order[i];
  }
  return body;
}

static kiln_status check_extents(kiln_edit *e, const loop_path *c) {
  for (int i = 0; i < c->n; i++) {
    int64_t extent = 0;
    KILN_TRY(kiln_edit_extent(e, c->loops[i], &extent));
  }
  return KILN_OK;
}

// A bound loop's iterations are independent for fixed values of the loops around it, which change.
static kiln_status check_bound(kiln_edit *e, const loop_path *c) {
  for (int i = 0; i < c->n; i++)
    if (c->loops[i]->how >= KILN_BLOCK_X) KILN_TRY(kiln_check_parallel(e, c->loops[i]));
  return KILN_OK;
}

static bool same_order(kiln_loop *const *a, kiln_loop *const *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i] != b[i]) return false;
  return true;
}

kiln_status kiln_reorder(kiln_schedule *s, int n, const kiln_symbol *loops) {
  kiln_edit e = kiln_edit_begin(s, "reorder", n > 0 ? loops[0] : 0);
  if (n <= 0 || n > KILN_MAX_DEPTH) return kiln_refuse(&e, "loops must be named, got %d", n);
  kiln_loop *top = NULL, *order[KILN_MAX_DEPTH];
  loop_path c = {0};
  KILN_TRY(outermost(&e, n, loops, &top));
  KILN_TRY(find_path(&e, n, loops, top, &c));
  KILN_TRY(check_extents(&e, &c));
  int next = 0;
  kiln_symbol from[KILN_MAX_DEPTH], to[KILN_MAX_DEPTH];
  for (int i = 0; i < c.n; i++) {
    const bool named = position(loops, n, c.loops[i]->var) >= 0;
    order[i] = named ? kiln_loops_find(e.l, loops[next++]) : c.loops[i];
    from[i] = c.loops[i]->var;
    to[i] = order[i]->var;
  }
  if (!same_order(order, c.loops, c.n)) {
    for (int i = 0; i < c.n; i++)
      if (c.loops[i]->how == KILN_PARALLEL && order[i] != c.loops[i])
        KILN_TRY(kiln_edit_serial(&e, c.loops[i]));
    KILN_TRY(kiln_check_reorder(&e, c.n, from, to, c.body));
    kiln_loop **slot = kiln_nest_slot(e.l, top), *after = top->next;
    *slot = rebuild(&e, &c, order);
    (*slot)->next = after;
    KILN_TRY(check_bound(&e, &c));
  }
  kiln_text line;
  kiln_text_init(&line, &e.cx->perm);
  for (int i = 0; i < n; i++) kiln_text_printf(&line, " %s", kiln_edit_word(&e, loops[i]));
  return kiln_edit_commit(&e, "reorder%s", line.data);
}
