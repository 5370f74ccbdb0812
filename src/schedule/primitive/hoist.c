// hoist: moves conditions around a loop's whole body out of the loop if they are the same in all of
// its iterations.
#include "schedule/legality.h"
#include "schedule/nest.h"

typedef struct hoisting {
  kiln_edit e;
  kiln_loop *loop;
  // conjunctions of the conditions that move and that stay; NULL: none
  const kiln_expr *outer, *inner;
  kiln_status status;
} hoisting;

static const kiln_expr *both(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return a ? kiln_binary(cx, KILN_EXPR_AND, a, b) : b;
}

static void sort_conditions(hoisting *h, const kiln_expr *cond) {
  if (cond->kind == KILN_EXPR_AND) {
    sort_conditions(h, cond->args[0]);
    sort_conditions(h, cond->args[1]);
    return;
  }
  const kiln_expr **to = kiln_expr_uses(cond, h->loop->var) ? &h->inner : &h->outer;
  *to = both(h->e.cx, *to, cond);
}

// Requires that no iteration writes an element that the condition reads in a later one.
static void check_load(const kiln_expr *load, void *argument) {
  hoisting *h = argument;
  if (load->kind != KILN_EXPR_LOAD || h->status != KILN_OK) return;
  const kiln_reordering c = {.kind = KILN_REORDERING_HOIST, .first = h->loop->var};
  if (kiln_nest_uses(h->e.cx, h->e.l, h->loop, load->u.tensor, /*writes=*/true))
    h->status = kiln_check_exactly(&h->e, &c, load->u.tensor);
}

kiln_status kiln_hoist(kiln_schedule *s, kiln_symbol loop) {
  hoisting h = {.e = kiln_edit_begin(s, "hoist", loop)};
  kiln_edit *e = &h.e;
  KILN_TRY(kiln_edit_loop(e, loop, &h.loop));
  KILN_TRY(kiln_edit_serial(e, h.loop));
  kiln_loop *l = h.loop, *cond = l->body;
  if (!cond || cond->kind != KILN_LOOP_IF || cond->next)
    return kiln_refuse(e, "a condition must stand around the whole body of the loop");
  sort_conditions(&h, cond->cond);
  if (!h.outer) return kiln_refuse(e, "a condition must be the same in all iterations of the loop");
  kiln_expr_visit(e->cx, h.outer, check_load, &h);
  KILN_TRY(h.status);
  kiln_loop **slot = kiln_nest_slot(e->l, l);
  if (h.inner) cond->cond = h.inner;
  else l->body = cond->body;
  *slot = kiln_if_make(e->cx, h.outer, l);
  (*slot)->next = l->next;
  l->next = NULL;
  return kiln_edit_commit(e, "hoist %s", kiln_edit_word(e, loop));
}
