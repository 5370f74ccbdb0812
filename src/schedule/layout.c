// transform_layout, view, storage_align, swizzle: the layout of a buffer in memory; and the blocked
// and permuted axes of copies.
#include "schedule/layout.h"
#include "schedule/nest.h"

#include <string.h>

// --- axes ---

static kiln_status read_axis(const kiln_edit *e, int rank, int k, const kiln_stage_axis *x,
                             kiln_source_axis *sources) {
  if (x->axis < 0 || x->axis >= rank || x->block < 0 || x->block > INT32_MAX)
    return kiln_refuse(e, "axis %d: source axis must be one of %d, got %d", k, rank, x->axis);
  kiln_source_axis *s = &sources[x->axis];
  const bool whole = x->block == 0 || x->pad;
  int *part = whole ? &s->whole : x->outer ? &s->outer : &s->inner;
  if (*part >= 0 || (x->block && s->block && s->block != x->block))
    return kiln_refuse(e, "axis %d: each part of source axis %d must be named once", k, x->axis);
  *part = k;
  if (x->block) s->block = x->block;
  return KILN_OK;
}

kiln_status kiln_axes_read(const kiln_edit *e, int rank, int n, const kiln_stage_axis *axes,
                           kiln_source_axis *out) {
  if (n > KILN_MAX_AXES - 1)
    return kiln_refuse(e, "axes must be at most %d, got %d", KILN_MAX_AXES - 1, n);
  for (int a = 0; a < rank; a++) out[a] = (kiln_source_axis){-1, -1, -1, 0};
  for (int k = 0; k < n; k++) KILN_TRY(read_axis(e, rank, k, &axes[k], out));
  for (int a = 0; a < rank; a++) {
    const kiln_source_axis *s = &out[a];
    const bool whole = s->whole >= 0, blocks = s->outer >= 0 && s->inner >= 0;
    if (whole == blocks || (whole && (s->outer >= 0 || s->inner >= 0)))
      return kiln_refuse(e, "source axis %d must be named whole, or as / block and %% block", a);
  }
  return KILN_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

void kiln_axes_extents(int rank, const kiln_source_axis *s, const int64_t *from, int64_t *out) {
  for (int a = 0; a < rank; a++, s++) {
    const int64_t block = s->block ? s->block : 1;
    if (s->whole >= 0) out[s->whole] = ceil_div(from[a], block) * block;
    if (s->outer >= 0) out[s->outer] = ceil_div(from[a], block);
    if (s->inner >= 0) out[s->inner] = block;
  }
}

void kiln_axes_index(kiln_ctx *cx, int rank, const kiln_source_axis *s,
                     const kiln_expr *const *from, const kiln_expr **out) {
  for (int a = 0; a < rank; a++, s++) {
    const kiln_expr *block = kiln_int(cx, s->block);
    if (s->whole >= 0) out[s->whole] = from[a];
    if (s->outer >= 0) out[s->outer] = kiln_div(cx, from[a], block);
    if (s->inner >= 0) out[s->inner] = kiln_mod(cx, from[a], block);
  }
}

bool kiln_axes_ragged(const kiln_source_axis *s, int64_t extent) {
  return s->block > 0 && extent % s->block != 0;
}

const char *kiln_axes_text(kiln_ctx *cx, int n, const kiln_stage_axis *axes) {
  kiln_text out;
  kiln_text_init(&out, &cx->perm);
  for (int k = 0; k < n; k++) {
    const kiln_stage_axis *x = &axes[k];
    kiln_text_printf(&out, " %d", x->axis);
    if (x->block)
      kiln_text_printf(&out, "%c%" PRId64, x->pad ? '^' : x->outer ? '/' : '%', x->block);
  }
  return out.data;
}

// --- transform_layout ---

typedef struct layout {
  int rank; // before
  kiln_source_axis source[KILN_MAX_AXES];
} layout;

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  const layout *t = argument;
  kiln_axes_index(cx, t->rank, t->source, index, out);
}

// An instruction's operand must keep its strides.
static kiln_status check_accesses(kiln_edit *e, const kiln_buffer *b) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, e->l->body, true, b->id);
  for (int i = 0; i < all.n; i++)
    if (all.data[i].opaque)
      return kiln_refuse(e, "buffer must not be used by an instruction: do this before tensorize");
  return KILN_OK;
}

static kiln_status check_movable(kiln_edit *e, const kiln_buffer *b) {
  if (b->scope == KILN_SCOPE_PARAM)
    return kiln_refuse(e, "buffer must not be a parameter, whose layout is the caller's: stage it");
  return check_accesses(e, b);
}

kiln_status kiln_transform_layout(kiln_schedule *s, kiln_symbol buffer, int n_axes,
                                  const kiln_stage_axis *axes) {
  kiln_edit e = kiln_edit_begin(s, "transform_layout", buffer);
  kiln_buffer *b = NULL;
  layout t = {0};
  int64_t extents[KILN_MAX_AXES];
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  KILN_TRY(check_movable(&e, b));
  KILN_TRY(kiln_axes_read(&e, b->rank, n_axes, axes, t.source));
  t.rank = b->rank;
  kiln_reindexing r = {b->id, b->id, n_axes, move_element, &t};
  kiln_nest_reindex(e.cx, e.l, e.l->body, &r);
  kiln_axes_extents(t.rank, t.source, b->extents, extents);
  KILN_TRY(kiln_edit_reshape(&e, b, n_axes, extents));
  kiln_loop *alloc = kiln_nest_find_alloc(e.l->body, b->id);
  if (alloc) alloc->n_operands = 0; // its origin was in terms of the old axes
  return kiln_edit_commit(&e, "transform_layout %s%s", kiln_edit_word(&e, buffer),
                          kiln_axes_text(e.cx, n_axes, axes));
}

// --- view ---

// Keeps every axis of the parameter but |axis|, which becomes / block and % block.
static void split_axis(int rank, int axis, int64_t block, kiln_source_axis *out) {
  for (int a = 0; a < rank; a++) out[a] = (kiln_source_axis){a + (a > axis), -1, -1, 0};
  out[axis] = (kiln_source_axis){-1, axis, axis + 1, block};
}

kiln_status kiln_view(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t block) {
  kiln_edit e = kiln_edit_begin(s, "view", buffer);
  kiln_buffer *b = NULL;
  layout t = {0};
  int64_t extents[KILN_MAX_AXES];
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  if (b->scope != KILN_SCOPE_PARAM)
    return kiln_refuse(&e, "buffer must be a parameter, got %s: transform_layout it",
                       kiln_scope_text(b->scope));
  if (b->pack || (b->tensor >= 0 && s->prog->tensors.data[b->tensor]->role == KILN_CONST))
    return kiln_refuse(&e, "buffer must not be a constant, whose copies are made with the module");
  KILN_TRY(check_accesses(&e, b));
  if (axis < 0 || axis >= b->rank)
    return kiln_refuse(&e, "axis must be one of %d, got %d", b->rank, axis);
  if (b->rank + 1 > KILN_MAX_AXES - 1)
    return kiln_refuse(&e, "axes must be at most %d", KILN_MAX_AXES - 1);
  if (block <= 0 || b->extents[axis] % block != 0)
    return kiln_refuse(&e, "block must divide the axis' extent %" PRId64 ", got %" PRId64,
                       b->extents[axis], block);
  t.rank = b->rank;
  split_axis(t.rank, axis, block, t.source);
  kiln_reindexing r = {b->id, b->id, t.rank + 1, move_element, &t};
  kiln_nest_reindex(e.cx, e.l, e.l->body, &r);
  kiln_axes_extents(t.rank, t.source, b->extents, extents);
  for (int a = t.rank; a > axis; a--) b->strides[a] = b->strides[a - 1];
  b->strides[axis] *= block;
  memcpy(b->extents, extents, sizeof *extents * (size_t)++b->rank);
  return kiln_edit_commit(&e, "view %s %d %" PRId64, kiln_edit_word(&e, buffer), axis, block);
}

// --- storage_align ---

kiln_status kiln_storage_align(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t factor,
                               int64_t offset) {
  kiln_edit e = kiln_edit_begin(s, "storage_align", buffer);
  kiln_buffer *b = NULL;
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  KILN_TRY(check_movable(&e, b));
  if (b->scope == KILN_SCOPE_REGISTER)
    return kiln_refuse(&e, "buffer must lie in memory, got one in registers");
  if (b->rank < 2)
    return kiln_refuse(
        &e, "buffer must have two axes: the distance of its rows is aligned, got %d axis%s",
        b->rank, b->rank == 1 ? "" : "es");
  if (axis < 0 || axis + 1 >= b->rank)
    return kiln_refuse(&e, "axis must be one of %d but the last, got %d", b->rank, axis);
  if (factor <= 0 || factor > INT32_MAX || offset < 0 || offset >= factor)
    return kiln_refuse(&e, "offset must be in [0, factor), got %" PRId64 " of %" PRId64, offset,
                       factor);
  const int64_t rest = (offset - b->strides[axis]) % factor;
  int64_t longer = rest < 0 ? rest + factor : rest;
  for (int k = axis; k >= 0; k--) { // outer strides grow with the row
    b->strides[k] += longer;
    KILN_TRY(kiln_edit_size(&e, b));
    longer *= b->extents[k] > 0 ? b->extents[k] : 1;
  }
  return kiln_edit_commit(&e, "storage_align %s %d %" PRId64 " %" PRId64,
                          kiln_edit_word(&e, buffer), axis, factor, offset);
}

// --- swizzle ---

kiln_status kiln_swizzle(kiln_schedule *s, kiln_symbol buffer) {
  kiln_edit e = kiln_edit_begin(s, "swizzle", buffer);
  kiln_buffer *b = NULL;
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  KILN_TRY(check_movable(&e, b));
  if (b->scope != KILN_SCOPE_SHARED)
    return kiln_refuse(&e, "buffer must be shared, got %s", kiln_scope_text(b->scope));
  b->is_swizzled = true;
  return kiln_edit_commit(&e, "swizzle %s", kiln_edit_word(&e, buffer));
}
