// prefetch: each iteration prefetches data of a later one.
#include "schedule/index.h"
#include "support/integer.h"

enum { LINE_BYTES = 64, MAX_LINES = 16, MAX_DISTANCE = 1 << 20 };

typedef struct fetch {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *at;
  kiln_box box; // that an iteration reads
} fetch;

static kiln_status find_part(fetch *f) {
  const kiln_vars inner = kiln_vars_under(f->e.cx, f->at->body);
  kiln_accesses all = kiln_accesses_of(f->e.cx, f->e.l, f->at->body, true, f->b->id);
  bool moves = false;
  int n = 0;
  for (int i = 0; i < all.n; i++)
    if (!all.data[i].write) all.data[n++] = all.data[i];
  if (n > 0) all.n = n; // otherwise its writes
  if (all.n == 0)
    return kiln_refuse(&f->e, "loop %s must read or write the buffer",
                       kiln_edit_text(&f->e, f->at->var));
  kiln_box_of(&f->e, f->b, &all, &inner, &f->box);
  for (int k = 0; k < f->b->rank; k++) moves |= kiln_expr_uses(f->box.lo[k], f->at->var);
  if (moves) return KILN_OK;
  return kiln_refuse(&f->e,
                     "the part of the buffer that an iteration reads must move with loop %s, got "
                     "one that is the same for all or not known",
                     kiln_edit_text(&f->e, f->at->var));
}

// Makes the prefetch of the first lines of the box, row by row, in loops LOOP.BUFFER.fetch.K over
// the axes along which there are several.
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

static kiln_status begin(fetch *f, kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                         int64_t distance) {
  int64_t extent = 0;
  *f = (fetch){.e = kiln_edit_begin(s, "prefetch", buffer)};
  KILN_TRY(kiln_edit_buffer(&f->e, buffer, &f->b));
  KILN_TRY(kiln_edit_loop(&f->e, loop, &f->at));
  KILN_TRY(kiln_edit_extent(&f->e, f->at, &extent));
  if (f->b->scope == KILN_SCOPE_REGISTER || kiln_nest_allocates(f->at->body, f->b->id))
    return kiln_refuse(&f->e, "buffer must lie in memory, outside of loop %s, got %s",
                       kiln_edit_text(&f->e, f->at->var), kiln_scope_text(f->b->scope));
  if (distance <= 0 || distance > MAX_DISTANCE)
    return kiln_refuse(&f->e, "distance must be in [1, %d], got %" PRId64, MAX_DISTANCE, distance);
  return find_part(f);
}

static kiln_status must_be_scalar(fetch *f, const kiln_loop *l) {
  return l->how == KILN_UNROLLED ? KILN_OK : kiln_edit_serial(&f->e, l);
}

static void put_first(kiln_loop *nest, kiln_loop *in) {
  nest->next = in->body;
  in->body = nest;
}

kiln_status kiln_prefetch(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                          int64_t distance) {
  fetch f;
  kiln_loop *nest = NULL;
  KILN_TRY(begin(&f, s, buffer, loop, distance));
  KILN_TRY(must_be_scalar(&f, f.at));
  KILN_TRY(make_nest(&f, distance, &nest));
  put_first(nest, f.at);
  return kiln_edit_commit(&f.e, "prefetch %s %s %" PRId64, kiln_edit_word(&f.e, buffer),
                          kiln_edit_word(&f.e, loop), distance);
}

// --- distributed over iterations ---

// The number of an iteration of the loops inside of |f->at| down to |inner|, and how many there
// are.
static kiln_status count_turns(fetch *f, const kiln_loop *inner, const kiln_expr **out_turn,
                               int64_t *out_turns) {
  kiln_ctx *cx = f->e.cx;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int n = kiln_nest_path(f->e.l, inner, path);
  bool is_inside = false;
  *out_turn = kiln_int(cx, 0);
  *out_turns = 1;
  for (int i = 0; i < n; i++) {
    if (is_inside && path[i]->kind == KILN_LOOP_FOR) {
      int64_t extent = 0;
      KILN_TRY(kiln_edit_extent(&f->e, path[i], &extent));
      KILN_TRY(must_be_scalar(f, path[i]));
      *out_turn =
          kiln_add(cx, kiln_mul(cx, *out_turn, path[i]->extent), kiln_var(cx, path[i]->var));
      if (__builtin_mul_overflow(*out_turns, extent, out_turns)) *out_turns = INT64_MAX;
    }
    is_inside |= path[i] == f->at;
  }
  if (is_inside && n > 0 && path[n - 1] != f->at) return KILN_OK;
  return kiln_refuse(&f->e, "loop %s must be inside of loop %s", kiln_edit_text(&f->e, inner->var),
                     kiln_edit_text(&f->e, f->at->var));
}

// The box as |n| contiguous pieces: the last axes in order[] are complete.
typedef struct pieces {
  int order[KILN_MAX_AXES]; // the axes, by descending stride
  int axis;
  int64_t n, elements;
} pieces;

static pieces find_pieces(const fetch *f) {
  pieces p = {.axis = f->b->rank, .n = 1, .elements = 1};
  for (int k = 0; k < f->b->rank; k++) {
    int at = k;
    for (; at > 0 && f->b->strides[p.order[at - 1]] < f->b->strides[k]; at--)
      p.order[at] = p.order[at - 1];
    p.order[at] = k;
  }
  for (; p.axis > 0; p.axis--) {
    const int k = p.order[p.axis - 1];
    if (f->box.extent[k] != 1 && f->b->strides[k] != p.elements) break;
    p.elements *= f->box.extent[k];
  }
  for (int i = 0; i < p.axis; i++) p.n *= f->box.extent[p.order[i]];
  return p;
}

// The number of elements at the end of the box that are not in the previous iteration's, if the box
// slides; all |elements| if that is not known, or if they are not contiguous.
static int64_t count_new(fetch *f, const pieces *p) {
  kiln_ctx *cx = f->e.cx;
  const kiln_symbol v = f->at->var;
  const kiln_expr *next = kiln_add(cx, kiln_var(cx, v), kiln_int(cx, 1));
  const int64_t elements = p->elements;
  int64_t all = 0;
  if (p->n > 1) return elements;
  for (int k = 0; k < f->b->rank; k++) {
    const kiln_expr *lo = f->box.lo[k], *then = kiln_expr_substitute(cx, lo, 1, &v, &next);
    int64_t moved = 0;
    if (!kiln_expr_is_int(kiln_edit_simplify(&f->e, kiln_sub(cx, then, lo)), &moved))
      return elements;
    all += moved * f->b->strides[k];
  }
  return all > 0 && all < elements ? all : elements;
}

// Adds the offset of piece |at| to the index of the first piece.
static void move_to_piece(const fetch *f, const pieces *p, const kiln_expr *at,
                          const kiln_expr **index) {
  kiln_ctx *cx = f->e.cx;
  int64_t inside = p->n;
  for (int i = 0; i < p->axis; i++) {
    const int k = p->order[i];
    const int64_t extent = f->box.extent[k];
    if (extent == 1) continue;
    const kiln_expr *above = inside < p->n ? kiln_mod(cx, at, kiln_int(cx, inside)) : at;
    inside /= extent;
    index[k] = kiln_add(cx, index[k], kiln_div(cx, above, kiln_int(cx, inside)));
  }
}

// Makes the prefetch of iteration |turn| of |turns|: its share of |wanted| elements, which are the
// last ones of each piece.
static kiln_status make_share(fetch *f, int64_t distance, const kiln_loop *inner,
                              const kiln_expr *turn, int64_t turns, const pieces *p, int64_t wanted,
                              kiln_loop **out) {
  kiln_ctx *cx = f->e.cx;
  const kiln_symbol v = f->at->var;
  const int64_t step = LINE_BYTES / kiln_dtype_bytes(f->b->dtype),
                of_piece = kiln_divide_up(wanted, step),
                share = p->n > 1 ? kiln_divide_up(p->n * of_piece, turns) * step
                                 : kiln_divide_up(wanted, turns),
                lines = kiln_divide_up(share, step);
  const kiln_expr *ahead = kiln_add(cx, kiln_var(cx, v), kiln_int(cx, distance)),
                  *from = kiln_mul(cx, turn, kiln_int(cx, share)), *index[KILN_MAX_AXES];
  const kiln_symbol line = kiln_symbol_printf(cx, "%s.%s.fetch", kiln_edit_text(&f->e, inner->var),
                                              kiln_edit_text(&f->e, f->b->name));
  if (lines > MAX_LINES)
    return kiln_refuse(&f->e, "an iteration of loop %s must ask for at most %d lines, got %" PRId64,
                       kiln_edit_text(&f->e, inner->var), MAX_LINES, lines);
  if (lines > 1) from = kiln_add(cx, from, kiln_mul(cx, kiln_var(cx, line), kiln_int(cx, step)));
  for (int k = 0; k < f->b->rank; k++)
    index[k] = kiln_expr_substitute(cx, f->box.lo[k], 1, &v, &ahead);
  if (p->n > 1) {
    const kiln_expr *all = kiln_int(cx, of_piece * step);
    move_to_piece(f, p, kiln_div(cx, from, all), index);
    from = kiln_mod(cx, from, all);
  }
  from = kiln_add(cx, from, kiln_int(cx, p->elements - wanted));
  const int last = p->order[f->b->rank - 1];
  index[last] = kiln_add(cx, index[last], from);
  *out = kiln_prefetch_make(cx, f->b, index);
  (*out)->is_far = true;
  if (lines > 1) {
    KILN_TRY(kiln_edit_new_loop(&f->e, line));
    *out = kiln_for_make(cx, line, kiln_int(cx, lines), *out);
    (*out)->how = KILN_UNROLLED;
  }
  const int64_t busy = kiln_divide_up(p->n * of_piece, lines);
  if (p->n > 1 && busy < turns) // further pieces follow the share
    *out = kiln_if_make(cx, kiln_binary(cx, KILN_EXPR_LT, turn, kiln_int(cx, busy)), *out);
  return KILN_OK;
}

kiln_status kiln_prefetch_in_turns(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                                   int64_t distance, kiln_symbol inner) {
  fetch f;
  kiln_loop *in = NULL, *nest = NULL;
  const kiln_expr *turn = NULL;
  int64_t turns = 0;
  KILN_TRY(begin(&f, s, buffer, loop, distance));
  KILN_TRY(kiln_edit_loop(&f.e, inner, &in));
  if (f.at->how != KILN_PARALLEL) KILN_TRY(must_be_scalar(&f, f.at));
  KILN_TRY(count_turns(&f, in, &turn, &turns));
  if (turns < 1) turns = 1;
  const pieces p = find_pieces(&f);
  KILN_TRY(make_share(&f, distance, in, turn, turns, &p, count_new(&f, &p), &nest));
  put_first(nest, in);
  return kiln_edit_commit(&f.e, "prefetch %s %s %" PRId64 " %s", kiln_edit_word(&f.e, buffer),
                          kiln_edit_word(&f.e, loop), distance, kiln_edit_word(&f.e, inner));
}
