// The begin of a primitive's transaction, and its names, messages and ranges.
#include "schedule/nearest.h"
#include "schedule/nest.h"

#include "ir/cursor.h"

#include <stdarg.h>

kiln_loops *kiln_schedule_copy(kiln_schedule *s, const kiln_loops *l) {
  return kiln_loops_copy(s->copies ? s->copies : &s->cx->perm, l);
}

kiln_edit kiln_edit_begin(kiln_schedule *s, const char *primitive, kiln_symbol subject) {
  kiln_ctx *cx = s->cx;
  kiln_edit e = {.s = s, .cx = cx, .l = kiln_schedule_copy(s, s->loops)};
  e.place = kiln_arena_printf(&cx->perm, "%s: %s %s", s->where ? s->where : "schedule", primitive,
                              kiln_symbol_text(cx, subject));
  kiln_edit_measure(&e);
  return e;
}

kiln_status kiln_refuse(const kiln_edit *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *message = kiln_arena_vprintf(&e->cx->perm, format, args);
  va_end(args);
  return KILN_FAIL(e->cx->diag, KILN_BAD_INPUT, e->place, "%s", message);
}

kiln_steps kiln_steps_begin(const kiln_edit *e) {
  const kiln_steps steps = {*e->s->loops, e->s->script.n, e->s->where};
  e->s->where = e->place;
  return steps;
}

kiln_status kiln_steps_end(const kiln_edit *e, const kiln_steps *steps, kiln_status st,
                           const char *format, ...) {
  kiln_schedule *s = e->s;
  va_list args;
  s->where = steps->where;
  s->script.n = steps->n_script;
  if (s->script.data) s->script.data[s->script.n] = 0;
  if (st != KILN_OK) {
    *s->loops = steps->before;
    return st;
  }
  va_start(args, format);
  kiln_text_printf(&s->script, "%s\n", kiln_arena_vprintf(&s->cx->scratch, format, args));
  va_end(args);
  return KILN_OK;
}

const char *kiln_edit_text(const kiln_edit *e, kiln_symbol s) { return kiln_symbol_text(e->cx, s); }

static const char *buffer_name(const void *program, int buffer) {
  const kiln_edit *e = program;
  return kiln_edit_text(e, e->l->buffers.data[buffer]->name);
}

static int find_buffer(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                       int *out_rank) {
  const kiln_edit *e = program;
  const kiln_symbol symbol = kiln_symbol_of_bytes(e->cx, name, n);
  for (int i = 0; i < e->l->buffers.n; i++) {
    const kiln_buffer *b = e->l->buffers.data[i];
    if (b->name != symbol) continue;
    *out_dtype = b->dtype;
    *out_rank = b->rank;
    return i;
  }
  return -1;
}

kiln_expr_names kiln_edit_names(const kiln_edit *e) {
  return (kiln_expr_names){buffer_name, find_buffer, e, '['};
}

const char *kiln_edit_word(const kiln_edit *e, kiln_symbol s) {
  kiln_text word;
  kiln_text_init(&word, &e->cx->perm);
  kiln_name_print(&word, kiln_symbol_text(e->cx, s));
  return word.data;
}

static void offer_loops(const kiln_edit *e, const kiln_loop *l, kiln_nearest *near) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) kiln_nearest_offer(near, kiln_edit_text(e, l->var));
    offer_loops(e, l->body, near);
  }
}

kiln_status kiln_edit_loop(kiln_edit *e, kiln_symbol name, kiln_loop **out) {
  *out = kiln_loops_find(e->l, name);
  if (*out) return KILN_OK;
  kiln_nearest near = {.word = kiln_edit_text(e, name)};
  offer_loops(e, e->l->body, &near);
  return kiln_refuse(e, "loop must be one of the kernel's, got \"%s\"%s", near.word,
                     kiln_nearest_text(e->cx, &near));
}

kiln_status kiln_edit_buffer(kiln_edit *e, kiln_symbol name, kiln_buffer **out) {
  *out = NULL;
  for (int i = 0; i < e->l->buffers.n; i++)
    if (e->l->buffers.data[i]->name == name) *out = e->l->buffers.data[i];
  if (*out) return KILN_OK;
  kiln_nearest near = {.word = kiln_edit_text(e, name)};
  for (int i = 0; i < e->l->buffers.n; i++)
    kiln_nearest_offer(&near, kiln_edit_text(e, e->l->buffers.data[i]->name));
  return kiln_refuse(e, "buffer must be one of the kernel's, got \"%s\"%s", near.word,
                     kiln_nearest_text(e->cx, &near));
}

kiln_status kiln_edit_extent(kiln_edit *e, const kiln_loop *loop, int64_t *out) {
  if (kiln_expr_is_int(loop->extent, out)) return KILN_OK;
  return kiln_refuse(e, "loop %s: extent must be a constant", kiln_edit_text(e, loop->var));
}

kiln_status kiln_edit_serial(kiln_edit *e, const kiln_loop *loop) {
  if (loop->how == KILN_SERIAL) return KILN_OK;
  return kiln_refuse(e, "loop %s must be serial, got %s: do this before",
                     kiln_edit_text(e, loop->var), kiln_how_text(loop->how));
}

kiln_status kiln_edit_new_loop(kiln_edit *e, kiln_symbol name) {
  if (name != 0 && !kiln_loops_find(e->l, name)) return KILN_OK;
  return kiln_refuse(e, "name of a new loop must be free, got \"%s\"", kiln_edit_text(e, name));
}

kiln_status kiln_edit_new_buffer(kiln_edit *e, kiln_symbol name) {
  bool taken = name == 0;
  for (int i = 0; i < e->l->buffers.n; i++) taken |= e->l->buffers.data[i]->name == name;
  if (!taken) return KILN_OK;
  return kiln_refuse(e, "name of a new buffer must be free, got \"%s\"", kiln_edit_text(e, name));
}

static void measure(kiln_edit *e, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) {
      const kiln_interval extent = kiln_expr_interval(e->cx, l->extent, &e->ranges);
      kiln_ranges_push(&e->ranges, l->var, 0, extent.hi == INT64_MAX ? INT64_MAX : extent.hi - 1);
    }
    measure(e, l->body);
  }
}

void kiln_edit_measure(kiln_edit *e) {
  kiln_ranges_init(&e->ranges, &e->cx->scratch);
  measure(e, e->l->body);
}

const kiln_expr *kiln_edit_simplify(kiln_edit *e, const kiln_expr *x) {
  return kiln_simplify(e->cx, x, &e->ranges);
}
