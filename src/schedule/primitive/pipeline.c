// pipeline: software pipelining. A buffer that each iteration fills becomes a circular buffer of
// several stages, and is filled some iterations ahead.
#include "schedule/nest.h"

enum { MAX_DEPTH = 64 };

typedef struct pipeline {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *loop;
  kiln_loop **alloc;            // the slot of |b|'s ALLOC
  kiln_loop *fills;             // the first statements in it, which compute |b|
  kiln_loop *uses;              // the remaining statements
  int64_t extent, depth, ahead; // of a loop that varies, the largest extent
  kiln_symbol fill;             // the variable of the prologue's loop
} pipeline;

// The ALLOC of |buffer| in |list|, but in no loop of it.
static kiln_loop **find_alloc(kiln_loop **list, int buffer) {
  for (; *list; list = &(*list)->next) {
    if ((*list)->kind != KILN_LOOP_ALLOC) continue;
    if ((*list)->buffer == buffer) return list;
    kiln_loop **inside = find_alloc(&(*list)->body, buffer);
    if (inside) return inside;
  }
  return NULL;
}

// Splits the body of the ALLOC into fills and uses.
static kiln_status take_fills(pipeline *p) {
  kiln_ctx *cx = p->e.cx;
  kiln_loop **end = &(*p->alloc)->body;
  while (*end && kiln_nest_uses(cx, p->e.l, *end, p->b->id, true)) end = &(*end)->next;
  if (end == &(*p->alloc)->body)
    return kiln_refuse(&p->e, "buffer must be filled at the begin of each iteration of loop %s",
                       kiln_edit_text(&p->e, p->loop->var));
  p->fills = (*p->alloc)->body;
  p->uses = *end;
  *end = NULL;
  for (kiln_loop *l = p->uses; l; l = l->next)
    if (kiln_nest_uses(cx, p->e.l, l, p->b->id, true))
      return kiln_refuse(&p->e, "buffer must not be written again after it is read in loop %s",
                         kiln_edit_text(&p->e, p->loop->var));
  return KILN_OK;
}

// Fills must read the same data when they run earlier, and write nothing else. They are unlinked
// now, so that the loop contains only the uses.
static kiln_status check_fills(pipeline *p) {
  kiln_edit *e = &p->e;
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, p->fills, true, -1);
  (*p->alloc)->body = p->uses;
  for (int i = 0; i < all.n; i++) {
    const kiln_access *a = &all.data[i];
    const char *name = kiln_edit_text(e, e->l->buffers.data[a->buffer]->name);
    if (a->buffer == p->b->id || kiln_nest_allocates(p->fills, a->buffer)) continue;
    if (a->write)
      return kiln_refuse(e, "the fills of the buffer must write nothing else, got %s", name);
    bool changes = kiln_nest_allocates(p->loop->body, a->buffer);
    for (kiln_loop *l = p->loop->body; l; l = l->next)
      changes |= kiln_nest_uses(e->cx, e->l, l, a->buffer, true);
    if (changes)
      return kiln_refuse(e, "the fills of the buffer must not read results of loop %s, got %s",
                         kiln_edit_text(e, p->loop->var), name);
  }
  return KILN_OK;
}

// --- stages ---

typedef struct slots {
  int rank;              // of the buffer, before
  const kiln_expr *slot; // the stage to access
} slots;

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  (void)cx;
  const slots *s = argument;
  out[0] = s->slot;
  for (int k = 0; k < s->rank; k++) out[k + 1] = index[k];
}

static void use_slot(pipeline *p, kiln_loop *list, kiln_symbol v) {
  kiln_ctx *cx = p->e.cx;
  const slots s = {p->b->rank, kiln_mod(cx, kiln_var(cx, v), kiln_int(cx, p->depth))};
  kiln_reindexing r = {p->b->id, p->b->id, s.rank + 1, move_element, &s};
  kiln_nest_reindex(cx, p->e.l, list, &r);
}

static kiln_status add_slots(pipeline *p) {
  int64_t extents[KILN_MAX_AXES] = {p->depth};
  for (int k = 0; k < p->b->rank; k++) extents[k + 1] = p->b->extents[k];
  return kiln_edit_reshape(&p->e, p->b, p->b->rank + 1, extents);
}

// --- the change ---

// alloc { for BUFFER.fill:ahead { fill } for LOOP { if more { fill ahead } use } }
static kiln_status build(pipeline *p) {
  kiln_edit *e = &p->e;
  kiln_ctx *cx = e->cx;
  kiln_loop *alloc = *p->alloc, *l = p->loop, *twin = NULL;
  const kiln_symbol fill = p->fill;
  const kiln_expr *fill_var = kiln_var(cx, fill);
  const int64_t first = p->ahead < p->extent ? p->ahead : p->extent;
  *kiln_nest_end(&p->uses) = alloc->next;
  *p->alloc = p->uses;
  kiln_nest_substitute(cx, e->l, p->fills, 1, &l->var, &fill_var);
  use_slot(p, p->fills, fill);
  use_slot(p, l->body, l->var);
  KILN_TRY(add_slots(p));
  kiln_loop *before = kiln_for_make(cx, fill, kiln_int(cx, first), p->fills);
  kiln_loop **slot = kiln_nest_slot(e->l, l);
  alloc->body = before;
  alloc->next = l->next;
  before->next = l;
  l->next = NULL;
  *slot = alloc;
  // in the prologue; the fills in the loop keep their names
  KILN_TRY(kiln_nest_twin(e, before, &twin));
  kiln_nest_substitute(cx, e->l, twin->body, 1, &twin->var, &fill_var);
  twin->var = fill;
  twin->next = l;
  alloc->body = twin;
  const kiln_expr *ahead = kiln_add(cx, kiln_var(cx, l->var), kiln_int(cx, p->ahead));
  kiln_nest_substitute(cx, e->l, p->fills, 1, &fill, &ahead);
  const kiln_expr *more = kiln_binary(cx, KILN_EXPR_LT, ahead, l->extent);
  kiln_loop *guarded = kiln_if_make(cx, more, p->fills);
  guarded->next = l->body;
  l->body = guarded;
  return KILN_OK;
}

// The loop's extent; one that varies must be at least the iterations ahead.
static kiln_status measure(pipeline *p) {
  const kiln_interval r = kiln_expr_interval(p->e.cx, p->loop->extent, &p->e.ranges);
  p->extent = r.hi;
  if (r.lo == r.hi || (r.lo >= p->ahead && r.hi < INT64_MAX)) return KILN_OK;
  return kiln_refuse(&p->e, "loop %s: extent must be a constant, or at least %" PRId64,
                     kiln_edit_text(&p->e, p->loop->var), p->ahead);
}

kiln_status kiln_pipeline_ahead(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth,
                                int ahead) {
  pipeline p = {.e = kiln_edit_begin(s, "pipeline", buffer), .depth = depth, .ahead = ahead};
  KILN_TRY(kiln_edit_buffer(&p.e, buffer, &p.b));
  KILN_TRY(kiln_edit_loop(&p.e, loop, &p.loop));
  KILN_TRY(kiln_edit_serial(&p.e, p.loop));
  KILN_TRY(measure(&p));
  if (depth < 2 || depth > MAX_DEPTH)
    return kiln_refuse(&p.e, "depth must be in [2, %d], got %d", MAX_DEPTH, depth);
  const int most = depth < p.extent ? depth - 1 : depth; // all iterations
  if (ahead < 1 || ahead > most)
    return kiln_refuse(&p.e, "iterations ahead must be in [1, %d], got %d", most, ahead);
  if (p.b->scope != KILN_SCOPE_SHARED && p.b->scope != KILN_SCOPE_LOCAL)
    return kiln_refuse(&p.e, "buffer must be shared or local, got %s: stage or compute it so",
                       kiln_scope_text(p.b->scope));
  if (p.b->rank + 1 >= KILN_MAX_AXES)
    return kiln_refuse(&p.e, "buffer must have fewer than %d axes", KILN_MAX_AXES - 1);
  p.fill = kiln_symbol_printf(p.e.cx, "%s.fill", kiln_edit_text(&p.e, buffer));
  KILN_TRY(kiln_edit_new_loop(&p.e, p.fill));
  p.alloc = find_alloc(&p.loop->body, p.b->id);
  if (!p.alloc)
    return kiln_refuse(&p.e, "buffer must be held by each iteration of loop %s itself",
                       kiln_edit_text(&p.e, loop));
  KILN_TRY(take_fills(&p));
  KILN_TRY(check_fills(&p));
  KILN_TRY(build(&p));
  const char *more = ahead != depth - 1 ? kiln_arena_printf(&p.e.cx->scratch, " %d", ahead) : "";
  return kiln_edit_commit(&p.e, "pipeline %s %s %d%s", kiln_edit_word(&p.e, buffer),
                          kiln_edit_word(&p.e, loop), depth, more);
}

kiln_status kiln_pipeline(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth) {
  return kiln_pipeline_ahead(s, buffer, loop, depth, depth - 1);
}
