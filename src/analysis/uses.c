#include "analysis/uses.h"

static void see_load(const kiln_expr *load, void *argument) {
  ((uint8_t *)argument)[load->u.tensor] |= KILN_USES_READS;
}

static void see(kiln_ctx *cx, const kiln_loops *p, const kiln_loop *l, uint8_t *uses) {
  for (; l; l = l->next) {
    kiln_expr_visit_loads(cx, l->extent, see_load, uses);
    kiln_expr_visit_loads(cx, l->cond, see_load, uses);
    kiln_expr_visit_loads(cx, l->value, see_load, uses);
    const bool has_operands = l->kind == KILN_LOOP_INSTR || l->kind == KILN_LOOP_DEVICE;
    for (int i = 0; has_operands && i < l->n_operands; i++)
      kiln_expr_visit_loads(cx, l->operands[i], see_load, uses);
    if (has_operands && l->n_operands && l->operands[0]->kind == KILN_EXPR_LOAD)
      uses[l->operands[0]->u.tensor] |= KILN_USES_WRITES;
    if (l->index) {
      uses[l->buffer] |= l->kind == KILN_LOOP_STORE ? KILN_USES_WRITES : KILN_USES_READS;
      for (int k = 0; k < p->buffers.data[l->buffer]->rank; k++)
        kiln_expr_visit_loads(cx, l->index[k], see_load, uses);
    }
    see(cx, p, l->body, uses);
  }
}

uint8_t *kiln_uses_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest) {
  uint8_t *uses = KILN_NEW_ARRAY(&cx->scratch, uint8_t, l->buffers.n);
  kiln_loop one = *nest;
  one.next = NULL;
  see(cx, l, &one, uses);
  return uses;
}

const kiln_buffer *kiln_nests_conflict(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *a,
                                       const kiln_loop *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const uint8_t *x = kiln_uses_of(cx, l, a), *y = kiln_uses_of(cx, l, b);
  const kiln_buffer *met = NULL;
  for (int i = 0; i < l->buffers.n && !met; i++)
    if (x[i] && y[i] && (x[i] | y[i]) & KILN_USES_WRITES &&
        kiln_scope_is_argument(l->buffers.data[i]->scope))
      met = l->buffers.data[i];
  kiln_arena_rewind(&cx->scratch, mark);
  return met;
}
