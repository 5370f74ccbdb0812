// Walks over loop nests: accesses, paths, rewriting of expressions, and tidying after each
// primitive. Nests are shallow (a loop for each dim and tile), so these walks recurse.
#include "schedule/nest.h"

// --- accesses ---

typedef struct collector {
  kiln_ctx *cx;
  const kiln_loops *l;
  kiln_accesses *out;
  kiln_loop *node;
  int buffer;
} collector;

static void push_access(collector *c, kiln_access a) {
  if (c->buffer >= 0 && a.buffer != c->buffer) return;
  a.node = c->node;
  KILN_VEC_PUSH(&c->cx->scratch, c->out, a);
}

static void collect_load(const kiln_expr *e, void *argument) {
  push_access(argument, (kiln_access){.buffer = e->u.tensor, .n = e->n_args, .index = e->args});
}

static void collect_expr(collector *c, const kiln_expr *e) {
  if (c->buffer >= 0 && !kiln_expr_loads_from(c->cx, e, c->buffer)) return;
  kiln_expr_visit_loads(c->cx, e, collect_load, c);
}

// The combiner with which the instruction writes its result.
static kiln_combiner combiner_of(const kiln_loop *instr) {
  const kiln_loop *l = instr->instr->loops ? instr->instr->loops->body : NULL;
  while (l && l->kind == KILN_LOOP_FOR) l = l->body;
  return l ? l->combiner : KILN_COMBINE_SUM;
}

static void collect_instr(collector *c) {
  if (c->node->cond) collect_expr(c, c->node->cond);
  for (int i = 0; i < c->node->n_operands; i++) {
    const kiln_expr *o = c->node->operands[i];
    push_access(c, (kiln_access){.buffer = o->u.tensor,
                                 .n = o->n_args,
                                 .index = o->args,
                                 .write = i == 0,
                                 .opaque = true,
                                 .combiner = combiner_of(c->node)});
    for (int k = 0; k < o->n_args; k++) collect_expr(c, o->args[k]);
  }
}

static void collect(collector *c, kiln_loop *n) {
  c->node = n;
  switch (n->kind) {
  case KILN_LOOP_FOR: collect_expr(c, n->extent); break;
  case KILN_LOOP_IF: collect_expr(c, n->cond); break;
  case KILN_LOOP_STORE: {
    const int rank = c->l->buffers.data[n->buffer]->rank;
    push_access(c, (kiln_access){.buffer = n->buffer,
                                 .n = rank,
                                 .index = n->index,
                                 .write = true,
                                 .combiner = n->combiner});
    for (int k = 0; k < rank; k++) collect_expr(c, n->index[k]);
    collect_expr(c, n->value);
    break;
  }
  case KILN_LOOP_DEVICE: // not in loops
  case KILN_LOOP_ALLOC: break;
  case KILN_LOOP_INSTR: collect_instr(c); break;
  case KILN_LOOP_PREFETCH: // a hint reads only the loads in its index
    for (int k = 0; k < c->l->buffers.data[n->buffer]->rank; k++) collect_expr(c, n->index[k]);
    break;
  }
  for (kiln_loop *b = n->body; b; b = b->next) collect(c, b);
}

kiln_accesses kiln_accesses_of(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, bool siblings,
                               int buffer) {
  kiln_accesses out = {0};
  collector c = {cx, l, &out, NULL, buffer};
  for (kiln_loop *n = first; n; n = siblings ? n->next : NULL) collect(&c, n);
  return out;
}

kiln_status kiln_nest_reduction(const kiln_edit *e, kiln_loop *first, bool siblings,
                                kiln_loop **out) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, first, siblings, -1);
  *out = NULL;
  for (int i = 0; i < all.n; i++) {
    if (!all.data[i].write) continue;
    if (*out) return kiln_refuse(e, "loop must hold one statement");
    *out = all.data[i].node;
  }
  if (!*out || (*out)->kind != KILN_LOOP_STORE || (*out)->combiner == KILN_COMBINE_NONE)
    return kiln_refuse(e, "loop must hold a reduction");
  return KILN_OK;
}

typedef struct use {
  kiln_ctx *cx;
  const kiln_loops *l;
  int buffer;
} use;

static bool is_loaded(const use *u, int n, const kiln_expr *const *exprs) {
  for (int k = 0; k < n; k++)
    if (kiln_expr_loads_from(u->cx, exprs[k], u->buffer)) return true;
  return false;
}

// Whether the node's own expressions, without its body, read the buffer.
static bool node_reads(const use *u, const kiln_loop *n) {
  switch (n->kind) {
  case KILN_LOOP_FOR: return is_loaded(u, 1, &n->extent);
  case KILN_LOOP_IF: return is_loaded(u, 1, &n->cond);
  case KILN_LOOP_STORE:
    if (is_loaded(u, 1, &n->value)) return true;
    return is_loaded(u, u->l->buffers.data[n->buffer]->rank, n->index);
  case KILN_LOOP_PREFETCH: return is_loaded(u, u->l->buffers.data[n->buffer]->rank, n->index);
  case KILN_LOOP_DEVICE:
  case KILN_LOOP_ALLOC: break;
  case KILN_LOOP_INSTR:
    for (int i = 0; i < n->n_operands; i++)
      if ((i > 0 && n->operands[i]->u.tensor == u->buffer) ||
          is_loaded(u, n->operands[i]->n_args, n->operands[i]->args))
        return true;
    return is_loaded(u, 1, &n->cond);
  }
  return false;
}

static bool node_writes(const use *u, const kiln_loop *n) {
  if (n->kind == KILN_LOOP_INSTR) return n->operands[0]->u.tensor == u->buffer;
  return n->kind == KILN_LOOP_STORE && n->buffer == u->buffer;
}

static bool nest_uses(const use *u, const kiln_loop *n, bool writes) {
  if (writes ? node_writes(u, n) : node_reads(u, n)) return true;
  for (const kiln_loop *b = n->body; b; b = b->next)
    if (nest_uses(u, b, writes)) return true;
  return false;
}

bool kiln_nest_uses(kiln_ctx *cx, const kiln_loops *l, kiln_loop *node, int buffer, bool writes) {
  const use u = {cx, l, buffer};
  return nest_uses(&u, node, writes);
}

// --- positions ---

static int path_in(kiln_loop *l, const kiln_loop *node, kiln_loop **out, int depth) {
  if (depth >= KILN_MAX_DEPTH) return 0;
  for (; l; l = l->next) {
    out[depth] = l;
    if (l == node) return depth + 1;
    const int n = path_in(l->body, node, out, depth + 1);
    if (n) return n;
  }
  return 0;
}

int kiln_nest_path(const kiln_loops *l, const kiln_loop *node, kiln_loop **out) {
  return path_in(l->body, node, out, 0);
}

static kiln_loop **slot_in(kiln_loop **at, const kiln_loop *node) {
  for (; *at; at = &(*at)->next) {
    if (*at == node) return at;
    kiln_loop **inside = slot_in(&(*at)->body, node);
    if (inside) return inside;
  }
  return NULL;
}

kiln_loop **kiln_nest_slot(kiln_loops *l, const kiln_loop *node) { return slot_in(&l->body, node); }

kiln_loop **kiln_nest_end(kiln_loop **list) {
  while (*list) list = &(*list)->next;
  return list;
}

kiln_loop **kiln_nest_first_use(kiln_ctx *cx, kiln_loops *l, kiln_loop **list, int buffer) {
  while (*list && !kiln_nest_uses(cx, l, *list, buffer, false)) list = &(*list)->next;
  if (!*list || (*list)->kind != KILN_LOOP_ALLOC) return list;
  for (kiln_loop *n = (*list)->next; n; n = n->next)
    if (kiln_nest_uses(cx, l, n, buffer, false)) return list;
  return kiln_nest_first_use(cx, l, &(*list)->body, buffer);
}

kiln_loop *kiln_nest_around(kiln_ctx *cx, int n, const kiln_symbol *vars, const int64_t *extents,
                            kiln_loop *body) {
  for (int k = n - 1; k >= 0; k--)
    body = kiln_for_make(cx, vars[k], kiln_int(cx, extents[k]), body);
  return body;
}

kiln_status kiln_edit_scalar(kiln_edit *e, const kiln_loop *node) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, node, path);
  for (int i = 0; i < depth; i++)
    if (path[i]->kind == KILN_LOOP_FOR && path[i]->how == KILN_VECTORIZED)
      return kiln_refuse(e, "loop %s must not be vectorized: do this before",
                         kiln_edit_text(e, path[i]->var));
  return KILN_OK;
}

void kiln_buffer_reshape(kiln_buffer *b, int rank, const int64_t *extents) {
  b->rank = rank;
  int64_t stride = 1;
  for (int k = rank - 1; k >= 0; k--) {
    b->extents[k] = extents[k];
    b->strides[k] = stride;
    stride *= extents[k] > 0 ? extents[k] : 1;
  }
}

kiln_loop *kiln_nest_find_alloc(kiln_loop *first, int buffer) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_ALLOC && first->buffer == buffer) return first;
    kiln_loop *inside = kiln_nest_find_alloc(first->body, buffer);
    if (inside) return inside;
  }
  return NULL;
}

bool kiln_nest_allocates(const kiln_loop *first, int buffer) {
  return kiln_nest_find_alloc((kiln_loop *)(uintptr_t)first, buffer) != NULL;
}

bool kiln_loop_is_unit(const kiln_loop *l) {
  int64_t extent = 0;
  return l->kind == KILN_LOOP_FOR && kiln_expr_is_int(l->extent, &extent) && extent == 1;
}

void kiln_nest_unbind(kiln_loop *first) {
  for (; first; first = first->next) {
    if (first->how == KILN_PARALLEL || first->how >= KILN_BLOCK_X) first->how = KILN_SERIAL;
    kiln_nest_unbind(first->body);
  }
}

void kiln_nest_drop_hints(kiln_loop **list, int buffer) {
  while (*list) {
    if ((*list)->kind == KILN_LOOP_PREFETCH && (*list)->buffer == buffer) {
      *list = (*list)->next;
      continue;
    }
    kiln_nest_drop_hints(&(*list)->body, buffer);
    list = &(*list)->next;
  }
}

// --- rewriting ---

static const kiln_expr **map_all(kiln_ctx *cx, int n, const kiln_expr *const *from,
                                 kiln_expr_map map, void *argument) {
  const kiln_expr **to = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) to[i] = kiln_expr_replace(cx, from[i], map, argument);
  return to;
}

void kiln_nest_map(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_expr_map map,
                   void *argument) {
  for (kiln_loop *n = first; n; n = n->next) {
    if (n->extent) n->extent = kiln_expr_replace(cx, n->extent, map, argument);
    if (n->cond) n->cond = kiln_expr_replace(cx, n->cond, map, argument);
    if (n->value) n->value = kiln_expr_replace(cx, n->value, map, argument);
    if (n->kind == KILN_LOOP_STORE || n->kind == KILN_LOOP_PREFETCH)
      n->index = map_all(cx, l->buffers.data[n->buffer]->rank, n->index, map, argument);
    if (n->n_operands > 0) n->operands = map_all(cx, n->n_operands, n->operands, map, argument);
    kiln_nest_map(cx, l, n->body, map, argument);
  }
}

typedef struct substitution {
  int n;
  const kiln_symbol *vars;
  const kiln_expr *const *values;
} substitution;

static const kiln_expr *substitute(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const substitution *s = argument;
  if (e->kind != KILN_EXPR_VAR) return NULL;
  for (int i = 0; i < s->n; i++)
    if (s->vars[i] == e->u.sym) return s->values[i];
  return NULL;
}

void kiln_nest_substitute(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, int n,
                          const kiln_symbol *vars, const kiln_expr *const *values) {
  substitution s = {n, vars, values};
  kiln_nest_map(cx, l, first, substitute, &s);
}

const kiln_expr *kiln_reindex_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_reindexing *r = argument;
  const kiln_expr *index[KILN_MAX_AXES], *moved[KILN_MAX_AXES];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != r->from) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], kiln_reindex_load, argument);
  r->move(cx, r->argument, index, moved);
  return kiln_load(cx, r->to, e->dtype, r->rank, moved);
}

static void reindex_stores(kiln_ctx *cx, kiln_loop *l, const kiln_reindexing *r) {
  for (; l; l = l->next) {
    if ((l->kind == KILN_LOOP_STORE || l->kind == KILN_LOOP_PREFETCH) && l->buffer == r->from) {
      const kiln_expr **moved = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, r->rank);
      r->move(cx, r->argument, (const kiln_expr *const *)l->index, moved);
      l->index = moved;
      l->buffer = r->to;
    }
    reindex_stores(cx, l->body, r);
  }
}

void kiln_nest_reindex(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_reindexing *r) {
  kiln_nest_map(cx, l, first, kiln_reindex_load, r);
  reindex_stores(cx, first, r);
}

// --- tidying ---

static void simplify_all(kiln_edit *e, int n, const kiln_expr **list) {
  for (int i = 0; i < n; i++) list[i] = kiln_edit_simplify(e, list[i]);
}

// Replaces |*slot| by its body.
static void splice(kiln_loop **slot) {
  kiln_loop *n = *slot;
  *kiln_nest_end(&n->body) = n->next;
  *slot = n->body;
}

// Simplifies the condition. True if it was constant: the node is then removed.
static bool tidy_if(kiln_edit *e, kiln_loop **slot) {
  kiln_loop *n = *slot;
  int64_t decided = 0;
  n->cond = kiln_edit_simplify(e, n->cond);
  if (kiln_proves(e->cx, n->cond, &e->ranges)) {
    splice(slot);
    return true;
  }
  if (!kiln_expr_is_int(n->cond, &decided)) return false;
  *slot = n->next;
  return true;
}

static void tidy_for(kiln_edit *e, kiln_loop *n) {
  int64_t extent = 0;
  n->extent = kiln_edit_simplify(e, n->extent);
  if (!kiln_expr_is_int(n->extent, &extent)) return;
  if (extent <= 0) n->body = NULL;
  const kiln_expr *zero = kiln_int(e->cx, 0);
  if (extent == 1) kiln_nest_substitute(e->cx, e->l, n->body, 1, &n->var, &zero);
}

static void tidy_list(kiln_edit *e, kiln_loop **slot) {
  while (*slot) {
    kiln_loop *n = *slot;
    bool has_body = true;
    switch (n->kind) {
    case KILN_LOOP_FOR: tidy_for(e, n); break;
    case KILN_LOOP_IF:
      if (tidy_if(e, slot)) continue;
      break;
    case KILN_LOOP_STORE:
      simplify_all(e, e->l->buffers.data[n->buffer]->rank, n->index);
      n->value = kiln_edit_simplify(e, n->value);
      has_body = false;
      break;
    case KILN_LOOP_ALLOC: break;
    case KILN_LOOP_INSTR:
      simplify_all(e, n->n_operands, n->operands);
      if (n->cond) n->cond = kiln_edit_simplify(e, n->cond);
      has_body = false;
      break;
    case KILN_LOOP_PREFETCH:
      simplify_all(e, e->l->buffers.data[n->buffer]->rank, n->index);
      has_body = false;
      break;
    case KILN_LOOP_DEVICE: has_body = false; break;
    }
    if (has_body) tidy_list(e, &n->body);
    if (has_body && !n->body) *slot = n->next;
    else slot = &n->next;
  }
}

void kiln_nest_tidy(kiln_edit *e) {
  kiln_edit_measure(e);
  tidy_list(e, &e->l->body);
}
