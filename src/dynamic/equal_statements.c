// Statements of a bucket that differ in the extents that a run needs only: with h and w of 2 to 8,
// the ramps 0 .. h and 0 .. w are both 0 .. 8. Passes keep the first of them for both, which must
// then be computed as far as either is needed.
#include "dynamic/ranges.h"

#include "ir/prim.h"

typedef struct joining {
  kiln_ctx *cx;
  const kiln_program *p;
  int *first;       // by tensor: the first that is equal
  kiln_map seen;    // hash of a statement -> the latest tensor with it
  int *next;        // by tensor: an earlier one with the same hash; -1: none
  kiln_live **live; // by tensor; NULL: all of it
} joining;

static const kiln_expr *read_first(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const joining *j = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (!e->has_load) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], read_first, argument);
  return kiln_load(cx, j->first[e->u.tensor], e->dtype, e->n_args, index);
}

static const kiln_expr *redirected(joining *j, const kiln_expr *e) {
  return e ? kiln_expr_replace(j->cx, e, read_first, j) : NULL;
}

static bool are_equal(joining *j, const kiln_stmt *a, const kiln_stmt *b) {
  const kiln_tensor *x = j->p->tensors.data[a->out], *y = j->p->tensors.data[b->out];
  bool equal = x->dtype == y->dtype && x->rank == y->rank && a->n_space == b->n_space &&
               a->n_reduce == b->n_reduce && a->combiner == b->combiner;
  for (int k = 0; equal && k < x->rank; k++)
    equal = x->shape[k] == y->shape[k] && redirected(j, a->index[k]) == redirected(j, b->index[k]);
  for (int d = 0; equal && d < a->n_space + a->n_reduce; d++)
    equal = a->dims[d].extent == b->dims[d].extent && a->dims[d].name == b->dims[d].name;
  return equal && redirected(j, a->body) == redirected(j, b->body) &&
         redirected(j, a->guard) == redirected(j, b->guard) &&
         redirected(j, a->init) == redirected(j, b->init);
}

static void widen(joining *j, int tensor, const kiln_live *by) {
  kiln_live *l = j->live[tensor];
  for (int a = 0; l && a < l->rank; a++) {
    const kiln_expr *other = by ? by->extents[a] : l->most[a];
    const bool is_all = other == l->most[a] || l->extents[a] == l->most[a];
    if (other == l->extents[a]) continue;
    l->extents[a] = is_all ? l->most[a] : kiln_binary(j->cx, KILN_EXPR_MAX, l->extents[a], other);
  }
}

static void find_first(joining *j, const kiln_stmt *s) {
  const uint64_t key = (uint64_t)redirected(j, s->body)->id;
  const uint64_t *found = kiln_map_find(&j->seen, key);
  for (int t = found ? (int)*found : -1; t >= 0; t = j->next[t])
    if (are_equal(j, j->p->stmts.data[j->p->tensors.data[t]->def], s)) {
      j->first[s->out] = t;
      widen(j, t, j->live[s->out]);
      return;
    }
  j->next[s->out] = found ? (int)*found : -1;
  kiln_map_put(&j->seen, key, (uint64_t)s->out);
}

void kiln_bucket_join_equal(kiln_ctx *cx, kiln_bucket *part) {
  const kiln_program *p = part->prog;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  joining j = {.cx = cx, .p = p};
  kiln_map_init(&j.seen, &cx->scratch);
  j.first = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n);
  j.next = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n);
  j.live = KILN_NEW_ARRAY(&cx->scratch, kiln_live *, p->tensors.n);
  for (int i = 0; i < p->tensors.n; i++) j.first[i] = i;
  for (int i = 0; i < part->live.n; i++) j.live[part->live.data[i].id] = &part->live.data[i];
  for (int i = 0; i < p->stmts.n; i++) find_first(&j, p->stmts.data[i]);
  for (int i = 0; i < p->tensors.n; i++)
    if (j.first[i] != i) widen(&j, i, j.live[j.first[i]]);
  kiln_arena_rewind(&cx->scratch, mark);
}
