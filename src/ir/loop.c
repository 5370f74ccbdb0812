// Loop programs: construction, copying and queries.
#include "ir/loop.h"

#include <string.h>

kiln_loops *kiln_loops_make(kiln_ctx *cx, const char *name) {
  kiln_loops *l = KILN_NEW(&cx->perm, kiln_loops);
  l->name = kiln_symbol_of(cx, name);
  return l;
}

kiln_buffer *kiln_buffer_make(kiln_ctx *cx, kiln_loops *l, const char *name, kiln_dtype t,
                              kiln_scope scope, int rank, const int64_t *extents,
                              const int64_t *strides) {
  kiln_buffer *b = KILN_NEW(&cx->perm, kiln_buffer);
  b->id = l->buffers.n;
  b->name = kiln_symbol_of(cx, name);
  b->dtype = t;
  b->scope = scope;
  b->rank = rank;
  b->tensor = -1;
  int64_t stride = 1;
  const int most = (int)KILN_LEN(b->extents); // kiln_loops_verify refuses higher ranks
  for (int i = (rank < most ? rank : most) - 1; i >= 0; i--) {
    b->extents[i] = extents[i];
    b->strides[i] = strides ? strides[i] : stride;
    stride *= extents[i] > 0 ? extents[i] : 1;
  }
  KILN_VEC_PUSH(&cx->perm, &l->buffers, b);
  return b;
}

int64_t kiln_buffer_elems(const kiln_buffer *b) {
  int64_t n = 1;
  for (int i = 0; i < b->rank; i++) {
    if (b->extents[i] == 0) return 0;
    n += (b->extents[i] - 1) * b->strides[i];
  }
  return n;
}

static kiln_loop *loop_make(kiln_ctx *cx, kiln_loop_kind kind, kiln_loop *body) {
  kiln_loop *l = KILN_NEW(&cx->perm, kiln_loop);
  l->kind = kind;
  l->body = body;
  l->buffer = -1;
  return l;
}

kiln_loop *kiln_for_make(kiln_ctx *cx, kiln_symbol var, const kiln_expr *extent, kiln_loop *body) {
  kiln_loop *l = loop_make(cx, KILN_LOOP_FOR, body);
  l->var = var;
  l->extent = extent;
  return l;
}

kiln_loop *kiln_if_make(kiln_ctx *cx, const kiln_expr *cond, kiln_loop *body) {
  kiln_loop *l = loop_make(cx, KILN_LOOP_IF, body);
  l->cond = cond;
  return l;
}

kiln_loop *kiln_store_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index,
                           kiln_combiner c, const kiln_expr *value) {
  kiln_loop *l = loop_make(cx, KILN_LOOP_STORE, NULL);
  l->buffer = b->id;
  l->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, b->rank);
  for (int i = 0; i < b->rank; i++) l->index[i] = index[i];
  l->combiner = c;
  l->value = value;
  return l;
}

kiln_loop *kiln_alloc_make(kiln_ctx *cx, const kiln_buffer *b, kiln_loop *body) {
  kiln_loop *l = loop_make(cx, KILN_LOOP_ALLOC, body);
  l->buffer = b->id;
  return l;
}

kiln_loop *kiln_prefetch_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index) {
  kiln_loop *l = kiln_store_make(cx, b, index, KILN_COMBINE_NONE, NULL);
  l->kind = KILN_LOOP_PREFETCH;
  return l;
}

static kiln_loop *nest_copy(kiln_arena *arena, const kiln_loops *program, const kiln_loop *from) {
  kiln_loop *first = NULL, **link = &first;
  for (; from; from = from->next) {
    kiln_loop *l = KILN_NEW(arena, kiln_loop);
    *l = *from;
    if (from->index) {
      const int rank = program->buffers.data[from->buffer]->rank;
      l->index = KILN_NEW_ARRAY(arena, const kiln_expr *, rank);
      for (int i = 0; i < rank; i++) l->index[i] = from->index[i];
    }
    if (from->n_operands > 0) {
      l->operands = KILN_NEW_ARRAY(arena, const kiln_expr *, from->n_operands);
      for (int i = 0; i < from->n_operands; i++) l->operands[i] = from->operands[i];
    }
    l->body = nest_copy(arena, program, from->body);
    *link = l;
    link = &l->next;
  }
  *link = NULL;
  return first;
}

kiln_loops *kiln_loops_copy(kiln_arena *arena, const kiln_loops *l) {
  const int n = l->buffers.n;
  kiln_loops *copy = KILN_NEW(arena, kiln_loops);
  kiln_buffer *buffers = KILN_NEW_ARRAY(arena, kiln_buffer, n);
  copy->name = l->name;
  KILN_VEC_RESERVE(arena, &copy->buffers, n);
  for (int i = 0; i < n; i++) {
    buffers[i] = *l->buffers.data[i];
    copy->buffers.data[copy->buffers.n++] = &buffers[i];
  }
  copy->body = nest_copy(arena, l, l->body);
  return copy;
}

kiln_symbol kiln_tile_var(kiln_ctx *cx, int k) { return kiln_symbol_printf(cx, "_%d", k); }

const char *kiln_note_key(const char *text) {
  if (strcmp(text, "crew") == 0) return KILN_WARP_SPECIALIZE_NOTE;
  return strcmp(text, "beside") == 0 ? KILN_HORIZONTAL_FUSION_NOTE : text;
}

const char *kiln_loop_note(kiln_ctx *cx, const kiln_loop *l, const char *key) {
  for (const kiln_note *n = l->notes; n; n = n->next)
    if (strcmp(kiln_symbol_text(cx, n->key), key) == 0) return kiln_symbol_text(cx, n->value);
  return NULL;
}

void kiln_loop_annotate(kiln_ctx *cx, kiln_loop *l, const char *key, const char *value) {
  const kiln_symbol name = kiln_symbol_of(cx, kiln_note_key(key));
  kiln_note *first = NULL, **end = &first;
  // Lists are shared by copies of loops.
  for (const kiln_note *old = l->notes; old; old = old->next) {
    if (old->key == name) continue;
    *end = KILN_NEW(&cx->perm, kiln_note);
    **end = (kiln_note){old->key, old->value, NULL};
    end = &(*end)->next;
  }
  *end = KILN_NEW(&cx->perm, kiln_note);
  **end = (kiln_note){name, kiln_symbol_of(cx, value), NULL};
  l->notes = first;
}

static kiln_loop *find(kiln_loop *l, kiln_symbol var) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && l->var == var) return l;
    kiln_loop *inside = find(l->body, var);
    if (inside) return inside;
  }
  return NULL;
}

kiln_loop *kiln_loops_find(const kiln_loops *l, kiln_symbol var) { return find(l->body, var); }
