// The meaning of an instruction, put in its place.
#include "target/instr.h"

typedef struct expansion {
  const kiln_loop *instr;
  const kiln_loops *meaning;
} expansion;

// Element |index| of the operand's tile.
static const kiln_expr *element(kiln_ctx *cx, const expansion *x, int operand, int rank,
                                const kiln_expr *const *index) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  for (int k = 0; k < rank; k++) vars[k] = kiln_tile_var(cx, k);
  return kiln_expr_substitute(cx, x->instr->operands[operand], rank, vars, index);
}

static const kiln_expr *of_program(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const expansion *x = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  return element(cx, x, e->u.tensor, e->n_args, e->args);
}

static kiln_loop *expand_store(kiln_ctx *cx, const expansion *x, const kiln_loop *from) {
  const int rank = x->meaning->buffers.data[from->buffer]->rank;
  const kiln_expr *to = element(cx, x, from->buffer, rank, from->index);
  kiln_loop *l = KILN_NEW(&cx->perm, kiln_loop);
  *l = (kiln_loop){.kind = KILN_LOOP_STORE, .buffer = to->u.tensor, .combiner = from->combiner};
  l->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, to->n_args);
  for (int k = 0; k < to->n_args; k++) l->index[k] = to->args[k];
  l->value = kiln_expr_replace(cx, from->value, of_program, (void *)(uintptr_t)x);
  return l;
}

// Meanings are loops around stores.
static kiln_loop *expand_list(kiln_ctx *cx, const expansion *x, const kiln_loop *from) {
  kiln_loop *first = NULL, **link = &first;
  for (; from; from = from->next, link = &(*link)->next)
    *link = from->kind == KILN_LOOP_STORE
                ? expand_store(cx, x, from)
                : kiln_for_make(cx, from->var, from->extent, expand_list(cx, x, from->body));
  return first;
}

static bool has_instr(const kiln_loop *l) {
  for (; l; l = l->next)
    if (l->kind == KILN_LOOP_INSTR || has_instr(l->body)) return true;
  return false;
}

static void expand_all(kiln_ctx *cx, kiln_loop **slot) {
  for (; *slot; slot = &(*slot)->next) {
    kiln_loop *l = *slot;
    expand_all(cx, &l->body);
    if (l->kind != KILN_LOOP_INSTR) continue;
    KILN_ASSERT(l->instr->loops != NULL);
    const expansion x = {l, l->instr->loops};
    *slot = expand_list(cx, &x, l->instr->loops->body);
    while ((*slot)->next) slot = &(*slot)->next;
    (*slot)->next = l->next;
  }
}

kiln_loops *kiln_instrs_expand(kiln_ctx *cx, kiln_loops *l) {
  if (!has_instr(l->body)) return l;
  kiln_loops *copy = kiln_loops_copy(cx, l);
  expand_all(cx, &copy->body);
  return copy;
}
