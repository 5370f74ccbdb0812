// Loops that fill shared memory some iterations ahead (pipeline), by copies that the threads do not wait for.
//
//     for f:D-1 { S[f] = .. }  for v { barrier  if (v + D - 1 < n) { S[(v + D - 1) % D] = .. }  .. = S[v % D] }
//
// Each iteration of both loops closes a group of copies at its begin: what the thread issued since the last. At the
// begin of iteration v the copies to slot v % D are of the D - 1st group from the end, so all but the D - 2 latest
// are waited for, in front of the barrier by which the threads see each other's. Nothing is left open behind the
// loop, as its last iterations fill nothing. (PTX ISA, cp.async.)
#include "target/gpu/nest.h"

typedef struct seeker {
  kiln_gpu_nest *n;
  kiln_touches all;
  const kiln_loop *around[64];
  int n_around;
} seeker;

// |v| + |ahead| modulo |slots|, as the loops' text has it.
static const kiln_expr *slot_of(seeker *s, const kiln_loop *v, int64_t extent, int64_t ahead,
                                int64_t slots) {
  kiln_ctx *cx = s->n->cx;
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  kiln_ranges_push(&r, v->var, 0, extent - 1);
  const kiln_expr *first =
                      extent > 1 ? kiln_var(cx, v->var) : kiln_int(cx, 0), // as it is written there
      *at = kiln_add(cx, first, kiln_int(cx, ahead));
  return kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, slots)), &r);
}

static bool is_in(const kiln_loop *list, const kiln_loop *node) {
  for (; list; list = list->next)
    if (list == node || is_in(list->body, node)) return true;
  return false;
}

// The first node of |l|'s body that fills nothing ahead.
static const kiln_loop *behind_fills(const kiln_loop *l) {
  const kiln_loop *use = l->body;
  while (use && use->kind == KILN_LOOP_IF) use = use->next;
  return use;
}

// The loop that fills the first slots by the write |t|; NULL: it is another write.
static const kiln_loop *first_fill(seeker *s, const kiln_touch *t, int64_t slots) {
  if (t->n_loops <= s->n_around) return NULL;
  for (int i = 0; i < s->n_around; i++)
    if (t->loops[i] != s->around[i]) return NULL;
  const kiln_loop *l = t->loops[s->n_around];
  int64_t extent = 0;
  if (l->how != KILN_SERIAL || !kiln_expr_is_int(l->extent, &extent) || extent != slots - 1)
    return NULL;
  return t->index[0] == slot_of(s, l, extent, 0, slots) ? l : NULL;
}

// Whether the accesses to |b| are all those of such a pair of loops, of which |l| is the second.
static bool is_ahead(seeker *s, const kiln_buffer *b, const kiln_loop *l, int64_t extent,
                     const kiln_loop **out_first) {
  const int64_t slots = b->extents[0];
  const kiln_expr *used = slot_of(s, l, extent, 0, slots),
                  *filled = slot_of(s, l, extent, slots - 1, slots);
  const kiln_loop *use = behind_fills(l);
  bool fills = false, reads = false;
  *out_first = NULL;
  for (int i = 0; i < s->all.n; i++) {
    const kiln_touch *t = &s->all.data[i];
    if (t->buffer != b->id) continue;
    if (!t->write) {
      if (t->index[0] != used || !is_in(use, t->node)) return false;
      reads = true;
    } else if (is_in(l->body, t->node)) {
      if (t->index[0] != filled || is_in(use, t->node)) return false;
      fills = true;
    } else {
      const kiln_loop *first = first_fill(s, t, slots);
      if (reads || !first || (*out_first && *out_first != first)) return false;
      *out_first = first;
    }
  }
  return fills && reads && *out_first;
}

static void add_group(seeker *s, const kiln_loop *node, int64_t pending) {
  for (int i = 0; i < s->n->groups.n; i++)
    if (s->n->groups.data[i].node == node) {
      if (pending < s->n->groups.data[i].pending) s->n->groups.data[i].pending = pending;
      return;
    }
  KILN_VEC_RESERVE(&s->n->cx->scratch, &s->n->groups, 1);
  s->n->groups.data[s->n->groups.n].node = node;
  s->n->groups.data[s->n->groups.n++].pending = pending;
}

static void seek_in(seeker *s, const kiln_loop *l) {
  const kiln_loop *first = NULL;
  int64_t extent = 0;
  if (l->how != KILN_SERIAL || !kiln_expr_is_int(l->extent, &extent) || !l->body ||
      l->body->kind != KILN_LOOP_IF || kiln_gpu_wait_of(s->n, l->body) != KILN_WAIT_BLOCK)
    return;
  for (int i = 0; i < s->n->l->buffers.n; i++) {
    const kiln_buffer *b = s->n->l->buffers.data[i];
    if (b->scope != KILN_SCOPE_SHARED || b->rank < 2 || b->extents[0] < 2 ||
        b->extents[0] > extent + 1 || !is_ahead(s, b, l, extent, &first))
      continue;
    s->n->is_ahead[i] = 1;
    add_group(s, l->body, b->extents[0] - 2);
    add_group(s, first->body, INT32_MAX);
  }
}

static void seek(seeker *s, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) seek_in(s, l);
    const bool is_for = l->kind == KILN_LOOP_FOR;
    if (is_for && s->n_around == (int)KILN_LEN(s->around)) return;
    if (is_for) s->around[s->n_around++] = l;
    seek(s, l->body);
    s->n_around -= is_for;
  }
}

void kiln_gpu_nest_ahead(kiln_gpu_nest *n) {
  enum { CAPABILITY = 80 };
  n->groups.n = 0;
  n->is_ahead = KILN_NEW_ARRAY(&n->cx->scratch, uint8_t, n->l->buffers.n);
  if (n->m->kind != KILN_MACHINE_CUDA || n->m->gpu.capability < CAPABILITY) return;
  seeker s = {.n = n, .all = kiln_gpu_touches(n, -1)};
  if (!s.all.too_deep) seek(&s, n->l->body);
}
