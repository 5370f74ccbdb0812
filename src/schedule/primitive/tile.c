// tile: two splits and a reorder as one step of the script.
#include "schedule/nest.h"

#include <string.h>

typedef struct tiling {
  kiln_schedule *s;
  kiln_symbol x, y, x_outer, y_outer, x_inner, y_inner;
  int64_t x_factor, y_factor;
  kiln_tail tail;
} tiling;

static kiln_symbol part_of(kiln_ctx *cx, kiln_symbol loop, const char *part) {
  return kiln_symbol_printf(cx, "%s.%s", kiln_symbol_text(cx, loop), part);
}

// Whether |inner| is a loop somewhere inside of |outer|.
static bool holds(const kiln_loops *l, kiln_symbol outer, kiln_symbol inner) {
  const kiln_loop *at = kiln_loops_find(l, outer);
  const kiln_loops body = {.body = at ? at->body : NULL};
  return at && kiln_loops_find(&body, inner);
}

// The remainder of y is a nest after the full tiles, with copies of their loops; it gets their
// order.
static kiln_status order_rest(const tiling *t) {
  kiln_ctx *cx = t->s->cx;
  const kiln_loop *rest = kiln_loops_find(t->s->loops, t->y_outer)->next;
  const char *y = kiln_symbol_text(cx, t->y);
  if (!rest || rest->kind != KILN_LOOP_FOR) return KILN_OK;
  const char *name = kiln_symbol_text(cx, rest->var);
  if (strncmp(name, y, strlen(y)) != 0 || strncmp(name + strlen(y), ".b", 2) != 0) return KILN_OK;
  const kiln_symbol x =
      kiln_symbol_printf(cx, "%s%s", kiln_symbol_text(cx, t->x_inner), name + strlen(y));
  return kiln_reorder(t->s, 2, (const kiln_symbol[]){x, rest->var});
}

// A peeled loop leaves two nests, from which no loop can move out: reorders before peeling.
static kiln_status tile_peeled(const tiling *t) {
  if (holds(t->s->loops, t->y, t->x))
    KILN_TRY(kiln_reorder(t->s, 2, (const kiln_symbol[]){t->x, t->y}));
  KILN_TRY(kiln_split(t->s, t->x, t->x_factor, t->tail, t->x_outer, t->x_inner));
  KILN_TRY(kiln_reorder(t->s, 3, (const kiln_symbol[]){t->x_outer, t->y, t->x_inner}));
  KILN_TRY(kiln_split(t->s, t->y, t->y_factor, t->tail, t->y_outer, t->y_inner));
  KILN_TRY(kiln_reorder(t->s, 2, (const kiln_symbol[]){t->x_inner, t->y_inner}));
  return order_rest(t);
}

static kiln_status tile(const tiling *t) {
  if (t->tail == KILN_TAIL_PEEL) return tile_peeled(t);
  const kiln_symbol order[] = {t->x_outer, t->y_outer, t->x_inner, t->y_inner};
  KILN_TRY(kiln_split(t->s, t->x, t->x_factor, t->tail, t->x_outer, t->x_inner));
  KILN_TRY(kiln_split(t->s, t->y, t->y_factor, t->tail, t->y_outer, t->y_inner));
  return kiln_reorder(t->s, 4, order);
}

kiln_status kiln_tile(kiln_schedule *s, kiln_symbol x, kiln_symbol y, int64_t x_factor,
                      int64_t y_factor, kiln_tail tail, kiln_symbol x_outer, kiln_symbol y_outer,
                      kiln_symbol x_inner, kiln_symbol y_inner) {
  kiln_ctx *cx = s->cx;
  const tiling t = {.s = s,
                    .x = x,
                    .y = y,
                    .x_outer = x_outer ? x_outer : part_of(cx, x, "o"),
                    .y_outer = y_outer ? y_outer : part_of(cx, y, "o"),
                    .x_inner = x_inner ? x_inner : part_of(cx, x, "i"),
                    .y_inner = y_inner ? y_inner : part_of(cx, y, "i"),
                    .x_factor = x_factor,
                    .y_factor = y_factor,
                    .tail = tail};
  kiln_edit e = kiln_edit_begin(s, "tile", x); // for its place in messages and its words
  const kiln_steps steps = kiln_steps_begin(&e);
  return kiln_steps_end(&e, &steps, tile(&t), "tile %s %s %" PRId64 " %" PRId64 " %s %s %s %s %s",
                        kiln_edit_word(&e, x), kiln_edit_word(&e, y), x_factor, y_factor,
                        kiln_tail_text(tail), kiln_edit_word(&e, t.x_outer),
                        kiln_edit_word(&e, t.y_outer), kiln_edit_word(&e, t.x_inner),
                        kiln_edit_word(&e, t.y_inner));
}
