// stage: copies the part of a buffer that a loop reads, with its axes blocked and permuted.
#include "schedule/index.h"
#include "schedule/layout.h"
#include "schedule/legality.h"

typedef struct staging {
  kiln_edit e;
  kiln_buffer *b, *copy;
  kiln_loop *at; // NULL: the whole kernel
  int n_axes;
  const kiln_stage_axis *axes;
  kiln_source_axis source[KILN_MAX_AXES];
  kiln_box box;
  int lead; // axes of the copy before the wanted ones: 1 for a workspace in a parallel loop
  const kiln_expr *lead_index;
  int64_t extents[KILN_MAX_AXES];
} staging;

static kiln_status find_extents(staging *g, kiln_symbol name) {
  kiln_axes_extents(g->b->rank, g->source, g->box.extent, g->extents + g->lead);
  return kiln_edit_extents(&g->e, name, g->lead + g->n_axes, g->extents);
}

// The source's index on axis |a| relative to the box, in terms of the copy's index.
static const kiln_expr *relative(staging *g, int a, const kiln_expr *const *at) {
  kiln_ctx *cx = g->e.cx;
  const kiln_source_axis *s = &g->source[a];
  if (s->whole >= 0) return at[g->lead + s->whole];
  return kiln_add(cx, kiln_mul(cx, at[g->lead + s->outer], kiln_int(cx, s->block)),
                  at[g->lead + s->inner]);
}

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  const staging *g = argument;
  const kiln_expr *from[KILN_MAX_AXES];
  if (g->lead) out[0] = g->lead_index;
  for (int a = 0; a < g->b->rank; a++) from[a] = kiln_sub(cx, index[a], g->box.lo[a]);
  kiln_axes_index(cx, g->b->rank, g->source, from, out + g->lead);
}

// Redirects loads of the source to the copy; prefetches stay.
static void redirect(staging *g, kiln_loop *first) {
  kiln_reindexing r = {g->b->id, g->copy->id, g->copy->rank, move_element, g};
  kiln_nest_map(g->e.cx, g->e.l, first, kiln_reindex_load, &r);
}

// Makes the nest that fills the copy: loops NAME.0, NAME.1, ... over its axes.
static kiln_status make_nest(staging *g, kiln_loop **out) {
  kiln_ctx *cx = g->e.cx;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES], *source[KILN_MAX_AXES], *valid = NULL;
  if (g->lead) at[0] = g->lead_index;
  for (int k = 0; k < g->n_axes; k++) {
    vars[k] = kiln_symbol_printf(cx, "%s.%d", kiln_edit_text(&g->e, g->copy->name), k);
    KILN_TRY(kiln_edit_new_loop(&g->e, vars[k]));
    at[g->lead + k] = kiln_var(cx, vars[k]);
  }
  for (int a = 0; a < g->b->rank; a++) {
    const kiln_expr *r = relative(g, a, at);
    source[a] = kiln_add(cx, g->box.lo[a], r);
    if (!kiln_axes_ragged(&g->source[a], g->box.extent[a])) continue;
    const kiln_expr *in = kiln_binary(cx, KILN_EXPR_LT, r, kiln_int(cx, g->box.extent[a]));
    valid = valid ? kiln_binary(cx, KILN_EXPR_AND, valid, in) : in;
  }
  const kiln_expr *value = kiln_load(cx, g->b->id, g->b->dtype, g->b->rank, source);
  if (valid) value = kiln_select(cx, valid, value, kiln_number(cx, g->b->dtype, 0));
  kiln_loop *store = kiln_store_make(cx, g->copy, at, KILN_COMBINE_NONE, value);
  *out = kiln_nest_around(cx, g->n_axes, vars, g->copy->extents + g->lead, store);
  return KILN_OK;
}

// --- at the whole kernel ---

static bool is_constant(const staging *g) {
  return g->b->scope == KILN_SCOPE_PARAM && !g->b->pack && g->b->tensor >= 0 &&
         g->e.s->prog->tensors.data[g->b->tensor]->role == KILN_CONST;
}

// Replaces the parameter, which nothing else reads, by the packed copy.
static void make_pack(staging *g, kiln_symbol name) {
  kiln_ctx *cx = g->e.cx;
  const kiln_expr *at[KILN_MAX_AXES];
  for (int k = 0; k < g->n_axes; k++) at[k] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", k));
  kiln_pack *p = KILN_NEW(&cx->perm, kiln_pack);
  p->source = g->b->tensor;
  p->rank = g->b->rank;
  p->map = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, p->rank);
  for (int a = 0; a < p->rank; a++) p->map[a] = relative(g, a, at);
  kiln_buffer *source = KILN_NEW(&cx->perm, kiln_buffer);
  *source = *g->b;
  g->copy = g->b;
  g->copy->name = name;
  g->copy->pack = p;
  g->copy->tensor = -1;
  kiln_nest_drop_hints(&g->e.l->body, g->b->id);
  kiln_buffer_reshape(g->copy, g->n_axes, g->extents);
  g->b = source; // the same id with the old shape
  redirect(g, g->e.l->body);
}

static kiln_status stage_whole(staging *g, kiln_symbol name) {
  kiln_ctx *cx = g->e.cx;
  const kiln_accesses all = kiln_accesses_of(cx, g->e.l, g->e.l->body, true, g->b->id);
  bool read = false;
  for (int i = 0; i < all.n; i++) read |= !all.data[i].write;
  if (!read) return kiln_refuse(&g->e, "the kernel must read the buffer");
  if (!kiln_scope_is_argument(g->b->scope))
    return kiln_refuse(&g->e, "a buffer that lives in a loop must be staged in a loop");
  g->box.rank = g->b->rank;
  for (int a = 0; a < g->b->rank; a++) {
    g->box.lo[a] = kiln_int(cx, 0);
    g->box.extent[a] = g->b->extents[a];
  }
  KILN_TRY(find_extents(g, name));
  if (is_constant(g)) {
    make_pack(g, name);
    return KILN_OK;
  }
  kiln_loop **slot = &g->e.l->body, *nest = NULL;
  while (*slot && !kiln_nest_uses(cx, g->e.l, *slot, g->b->id, false)) slot = &(*slot)->next;
  for (kiln_loop *n = *slot; n; n = n->next)
    if (kiln_nest_uses(cx, g->e.l, n, g->b->id, true))
      return kiln_refuse(
          &g->e, "the buffer must be complete before it is read, got a nest that writes it later");
  g->copy = kiln_buffer_make(cx, g->e.l, kiln_edit_text(&g->e, name), g->b->dtype,
                             KILN_SCOPE_WORKSPACE, g->n_axes, g->extents, NULL);
  KILN_TRY(make_nest(g, &nest));
  redirect(g, *slot);
  nest->next = *slot;
  *slot = nest;
  return KILN_OK;
}

// --- in a loop ---

// Threads share a workspace: the copy gets a leading axis for the iterations of the outermost loop.
static kiln_status lead_axis(staging *g) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(g->e.l, g->at, path);
  kiln_loop *top = path[0];
  for (int k = 0; k < depth && top->kind != KILN_LOOP_FOR; k++) top = path[k];
  for (int k = 0; k < depth; k++)
    if (path[k] != top && path[k]->kind == KILN_LOOP_FOR && path[k]->how >= KILN_BLOCK_X)
      return kiln_refuse(&g->e,
                         "a workspace has one copy for the bound loops around, got loop %s: use "
                         "shared or local",
                         kiln_edit_text(&g->e, path[k]->var));
  g->lead = 1;
  g->lead_index = kiln_var(g->e.cx, top->var);
  return kiln_edit_extent(&g->e, top, &g->extents[0]);
}

static kiln_status find_loop_box(staging *g, const kiln_accesses *reads) {
  const kiln_vars inner = kiln_vars_under(g->e.cx, g->at->body);
  kiln_box_of(&g->e, g->b, reads, &inner, &g->box);
  for (int a = 0; a < g->b->rank; a++) {
    if (g->box.extent[a] == g->b->extents[a]) continue;
    if (kiln_box_below(&g->e, &g->box, a)) kiln_box_shift_low(&g->e, &g->box, a);
    if (kiln_box_above(&g->e, &g->box, a, g->b->extents[a]))
      kiln_box_shift_high(&g->e, &g->box, a, g->b->extents[a]);
  }
  return KILN_OK;
}

static kiln_status check_writers(staging *g, kiln_loop *const *first_use) {
  for (kiln_loop *n = *first_use; n; n = n->next)
    if (kiln_nest_uses(g->e.cx, g->e.l, n, g->b->id, true))
      return kiln_refuse(&g->e,
                         "the buffer must be complete before loop %s reads it, got a write in it",
                         kiln_edit_text(&g->e, g->at->var));
  return KILN_OK;
}

static kiln_status stage_in_loop(staging *g, kiln_scope scope, kiln_symbol name) {
  kiln_ctx *cx = g->e.cx;
  KILN_TRY(kiln_edit_scalar(&g->e, g->at));
  if (scope == KILN_SCOPE_WORKSPACE) KILN_TRY(lead_axis(g));
  kiln_loop **slot = kiln_nest_first_use(cx, g->e.l, &g->at->body, g->b->id), *nest = NULL;
  if (!*slot)
    return kiln_refuse(&g->e, "loop %s must read the buffer", kiln_edit_text(&g->e, g->at->var));
  KILN_TRY(check_writers(g, slot));
  const kiln_accesses reads = kiln_accesses_of(cx, g->e.l, *slot, true, g->b->id);
  KILN_TRY(find_loop_box(g, &reads));
  KILN_TRY(find_extents(g, name));
  g->copy = kiln_buffer_make(cx, g->e.l, kiln_edit_text(&g->e, name), g->b->dtype, scope,
                             g->lead + g->n_axes, g->extents, NULL);
  const int64_t bytes = kiln_buffer_elems(g->copy) * kiln_dtype_bytes(g->copy->dtype);
  if (scope != KILN_SCOPE_WORKSPACE && bytes > KILN_MAX_STACK_BYTES)
    return kiln_refuse(&g->e,
                       "a local copy must have at most %d bytes, got %" PRId64
                       ": choose a loop further inside",
                       KILN_MAX_STACK_BYTES, bytes);
  KILN_TRY(make_nest(g, &nest));
  redirect(g, *slot);
  nest->next = *slot;
  *slot = scope == KILN_SCOPE_WORKSPACE ? nest : kiln_alloc_make(cx, g->copy, nest);
  kiln_edit_measure(&g->e);
  KILN_TRY(kiln_check_around(&g->e, nest)); // the box may contain more than its iteration reads
  return scope == KILN_SCOPE_REGISTER ? kiln_check_register(&g->e, *slot) : KILN_OK;
}

kiln_status kiln_stage(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, kiln_scope scope,
                       int n_axes, const kiln_stage_axis *axes, kiln_symbol name) {
  staging g = {.e = kiln_edit_begin(s, "stage", buffer), .n_axes = n_axes, .axes = axes};
  KILN_TRY(kiln_edit_buffer(&g.e, buffer, &g.b));
  KILN_TRY(kiln_edit_new_buffer(&g.e, name));
  if (loop) KILN_TRY(kiln_edit_loop(&g.e, loop, &g.at));
  if (scope == KILN_SCOPE_PARAM || (!loop && scope != KILN_SCOPE_WORKSPACE))
    return kiln_refuse(&g.e, "scope must be %s, got %s",
                       loop ? "workspace, local or register" : "workspace", kiln_scope_text(scope));
  KILN_TRY(kiln_axes_read(&g.e, g.b->rank, n_axes, axes, g.source));
  KILN_TRY(loop ? stage_in_loop(&g, scope, name) : stage_whole(&g, name));
  return kiln_edit_commit(&g.e, "stage %s %s %s %s%s", kiln_edit_word(&g.e, buffer),
                          loop ? kiln_edit_word(&g.e, loop) : "0", kiln_scope_text(scope),
                          kiln_edit_word(&g.e, name), kiln_axes_text(g.e.cx, n_axes, axes));
}
