// cache_write: nests write a new buffer instead, and a new nest copies that.
#include "schedule/layout.h"
#include "schedule/nest.h"

typedef struct caching {
  kiln_edit e;
  kiln_buffer *b, *cache;
  kiln_loop *last; // the last nest that writes the buffer
  int n;           // axes of the cache
  kiln_source_axis source[KILN_MAX_AXES];
} caching;

// Whether the statement of |b| has a store index other than its dims.
static bool is_scatter(const kiln_edit *e, const kiln_buffer *b) {
  const kiln_program *p = e->s->prog;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_tensor *t = p->tensors.data[s->out];
    if (t->name != b->name) continue;
    if (s->n_space != t->rank) return true;
    for (int k = 0; k < t->rank; k++)
      if (s->index[k] != kiln_var(e->cx, s->dims[k].name)) return true;
  }
  return false;
}

// The first access must assign the buffer, because the cache has no initial values.
static kiln_status check_nest(caching *c, kiln_loop *nest, bool first) {
  const kiln_accesses a = kiln_accesses_of(c->e.cx, c->e.l, nest, false, c->b->id);
  for (int i = 0; i < a.n; i++)
    if (a.data[i].opaque)
      return kiln_refuse(&c->e, "buffer must not be used by an instruction: do this before "
                                "tensorize");
  if (!first) return KILN_OK;
  bool reads = false;
  for (int i = 1; i < a.n; i++) reads |= !a.data[i].write && a.data[i].node == a.data[0].node;
  if (!a.data[0].write || a.data[0].combiner != KILN_COMBINE_NONE || reads)
    return kiln_refuse(&c->e, "buffer must be assigned before it is read or accumulated into");
  return KILN_OK;
}

static kiln_status find_nests(caching *c) {
  kiln_edit *e = &c->e;
  bool first = true;
  for (kiln_loop *n = e->l->body; n; n = n->next) {
    if (!kiln_nest_uses(e->cx, e->l, n, c->b->id, true)) continue;
    KILN_TRY(check_nest(c, n, first));
    first = false;
    c->last = n;
  }
  if (!c->last) return kiln_refuse(e, "buffer must be computed by the kernel");
  bool begun = false;
  for (kiln_loop *n = e->l->body; n != c->last; n = n->next) {
    const bool writes = kiln_nest_uses(e->cx, e->l, n, c->b->id, true);
    begun |= writes;
    if (!writes && kiln_nest_uses(e->cx, e->l, n, c->b->id, false))
      return kiln_refuse(e,
                         "buffer must be complete before it is read, got a nest that reads it %s",
                         begun ? "between those that write it" : "first");
  }
  return KILN_OK;
}

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  const caching *c = argument;
  kiln_axes_index(cx, c->b->rank, c->source, index, out);
}

static void redirect_nests(caching *c) {
  kiln_reindexing r = {c->b->id, c->cache->id, c->n, move_element, c};
  for (kiln_loop *n = c->e.l->body; n; n = n->next) {
    if (kiln_nest_uses(c->e.cx, c->e.l, n, c->b->id, true)) {
      kiln_loop *next = n->next;
      n->next = NULL;
      kiln_nest_drop_hints(&n->body, c->b->id);
      kiln_nest_reindex(c->e.cx, c->e.l, n, &r);
      n->next = next;
    }
    if (n == c->last) break;
  }
}

static kiln_status make_copy(caching *c) {
  kiln_edit *e = &c->e;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES], *from[KILN_MAX_AXES];
  for (int k = 0; k < c->b->rank; k++) {
    vars[k] = kiln_symbol_printf(e->cx, "%s.copy.%d", kiln_edit_text(e, c->b->name), k);
    KILN_TRY(kiln_edit_new_loop(e, vars[k]));
    at[k] = kiln_var(e->cx, vars[k]);
  }
  kiln_axes_index(e->cx, c->b->rank, c->source, at, from);
  const kiln_expr *value = kiln_load(e->cx, c->cache->id, c->b->dtype, c->n, from);
  kiln_loop *store = kiln_store_make(e->cx, c->b, at, KILN_COMBINE_NONE, value);
  kiln_loop *nest = kiln_nest_around(e->cx, c->b->rank, vars, c->b->extents, store);
  nest->next = c->last->next;
  c->last->next = nest;
  return KILN_OK;
}

kiln_status kiln_cache_write(kiln_schedule *s, kiln_symbol buffer, kiln_symbol name, int n_axes,
                             const kiln_stage_axis *axes) {
  caching c = {.e = kiln_edit_begin(s, "cache_write", buffer)};
  kiln_edit *e = &c.e;
  kiln_stage_axis plain[KILN_MAX_AXES];
  int64_t extents[KILN_MAX_AXES];
  KILN_TRY(kiln_edit_buffer(e, buffer, &c.b));
  KILN_TRY(kiln_edit_new_buffer(e, name));
  if (!kiln_scope_is_argument(c.b->scope))
    return kiln_refuse(e,
                       "buffer must be a parameter or a workspace, got one that lives in a loop");
  if (is_scatter(e, c.b))
    return kiln_refuse(e, "buffer must be written at the indices of its statement, got a scatter");
  for (int k = 0; k < c.b->rank; k++) plain[k] = (kiln_stage_axis){.axis = k};
  c.n = n_axes > 0 ? n_axes : c.b->rank;
  KILN_TRY(kiln_axes_read(e, c.b->rank, c.n, n_axes > 0 ? axes : plain, c.source));
  KILN_TRY(find_nests(&c));
  kiln_axes_extents(c.b->rank, c.source, c.b->extents, extents);
  KILN_TRY(kiln_edit_extents(e, name, c.n, extents));
  c.cache = kiln_buffer_make(e->cx, e->l, kiln_edit_text(e, name), c.b->dtype, KILN_SCOPE_WORKSPACE,
                             c.n, extents, NULL);
  redirect_nests(&c);
  KILN_TRY(make_copy(&c));
  const char *line = n_axes > 0 ? kiln_axes_text(e->cx, n_axes, axes) : "";
  return kiln_edit_commit(e, "cache_write %s %s%s", kiln_edit_word(e, buffer),
                          kiln_edit_word(e, name), line);
}
