// prefetch: each iteration asks for what a later one will read.
#include "schedule/edit.h"

enum { LINE_BYTES = 64, MAX_LINES = 16, MAX_DISTANCE = 1 << 20 };

typedef struct fetch {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *at;
  kiln_box box; // of what an iteration reads
} fetch;

static kiln_status find_part(fetch *f) {
  const kiln_vars inner = kiln_vars_under(f->e.cx, f->at->body);
  kiln_accesses all = kiln_accesses_of(f->e.cx, f->e.l, f->at->body, true, f->b->id);
  bool moves = false;
  int n = 0;
  for (int i = 0; i < all.n; i++)
    if (!all.data[i].write) all.data[n++] = all.data[i];
  all.n = n;
  if (n == 0)
    return kiln_refuse(&f->e, "loop %s must read the buffer", kiln_edit_text(&f->e, f->at->var));
  kiln_box_of(&f->e, f->b, &all, &inner, &f->box);
  for (int k = 0; k < f->b->rank; k++) moves |= kiln_expr_uses(f->box.lo[k], f->at->var);
  if (moves) return KILN_OK;
  return kiln_refuse(&f->e,
                     "the part of the buffer that an iteration reads must move with loop %s, got "
                     "one that is the same for all or not known",
                     kiln_edit_text(&f->e, f->at->var));
}

// The first lines of the box, row by row, in loops LOOP.BUFFER.fetch.K over the axes that have more
// than one.
static kiln_status make_nest(fetch *f, int64_t distance, kiln_loop **out) {
  kiln_ctx *cx = f->e.cx;
  const kiln_symbol v = f->at->var;
  const kiln_expr *ahead = kiln_add(cx, kiln_var(cx, v), kiln_int(cx, distance));
  const kiln_expr *index[KILN_MAX_AXES];
  kiln_symbol vars[KILN_MAX_AXES];
  int64_t extents[KILN_MAX_AXES], left = MAX_LINES;
  int n = 0;
  for (int k = f->b->rank - 1; k >= 0; k--) {
    const int bytes = kiln_dtype_bytes(f->b->dtype);
    const int64_t step = f->b->strides[k] == 1 ? LINE_BYTES / bytes : 1;
    int64_t lines = f->box.extent[k] / step + (f->box.extent[k] % step != 0);
    index[k] = kiln_expr_substitute(cx, f->box.lo[k], 1, &v, &ahead);
    if (lines > left) lines = left;
    if (lines <= 1) continue;
    vars[n] = kiln_symbol_printf(cx, "%s.%s.fetch.%d", kiln_edit_text(&f->e, v),
                                 kiln_edit_text(&f->e, f->b->name), k);
    KILN_TRY(kiln_edit_new_loop(&f->e, vars[n]));
    index[k] = kiln_add(cx, index[k], kiln_mul(cx, kiln_var(cx, vars[n]), kiln_int(cx, step)));
    extents[n++] = lines;
    left /= lines;
  }
  *out = kiln_prefetch_make(cx, f->b, index);
  for (int i = 0; i < n; i++) {
    *out = kiln_for_make(cx, vars[i], kiln_int(cx, extents[i]), *out);
    (*out)->how = KILN_UNROLLED;
  }
  return KILN_OK;
}

kiln_status kiln_prefetch(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                          int64_t distance) {
  fetch f = {.e = kiln_edit_begin(s, "prefetch", buffer)};
  kiln_loop *nest = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_buffer(&f.e, buffer, &f.b));
  KILN_TRY(kiln_edit_loop(&f.e, loop, &f.at));
  KILN_TRY(kiln_edit_extent(&f.e, f.at, &extent));
  if (f.at->how != KILN_UNROLLED) KILN_TRY(kiln_edit_serial(&f.e, f.at));
  if (f.b->scope == KILN_SCOPE_REGISTER || kiln_nest_allocates(f.at->body, f.b->id))
    return kiln_refuse(&f.e, "buffer must lie in memory, outside of loop %s, got %s",
                       kiln_edit_text(&f.e, f.at->var), kiln_scope_text(f.b->scope));
  if (distance <= 0 || distance > MAX_DISTANCE)
    return kiln_refuse(&f.e, "distance must be in [1, %d], got %" PRId64, MAX_DISTANCE, distance);
  KILN_TRY(find_part(&f));
  KILN_TRY(make_nest(&f, distance, &nest));
  nest->next = f.at->body;
  f.at->body = nest;
  return kiln_edit_commit(&f.e, "prefetch %s %s %" PRId64, kiln_edit_word(&f.e, buffer),
                          kiln_edit_word(&f.e, loop), distance);
}
