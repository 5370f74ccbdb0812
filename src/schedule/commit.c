// The end of a primitive's transaction: tidies the changed copy of the loops, checks the whole
// program, and only then makes the copy the schedule's loops and prints the primitive's line.
#include "schedule/nest.h"
#include "target/instr.h"

#include <stdarg.h>

// --- bound loops ---

enum { IN_BLOCK = 1, IN_THREAD = 2 }; // bound loops between an ALLOC and a use

static kiln_status check_axis(const kiln_edit *e, const kiln_loop *l, unsigned hows) {
  if (hows >> l->how & 1)
    return kiln_refuse(e, "an axis must be bound once in a nest, got %s again at loop %s",
                       kiln_how_text(l->how), kiln_edit_text(e, l->var));
  if (kiln_how_is_block(l->how) && hows >> KILN_THREAD_X)
    return kiln_refuse(e, "a block loop must lie outside of thread loops, got %s inside one",
                       kiln_edit_text(e, l->var));
  return KILN_OK;
}

static kiln_status check_uses(kiln_edit *e, kiln_loop *l, const uint8_t *inside) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, l, false, -1);
  for (int i = 0; i < all.n; i++) {
    const kiln_buffer *b = e->l->buffers.data[all.data[i].buffer];
    const uint8_t bound = inside[b->id];
    const char *name = kiln_edit_text(e, b->name);
    if (b->scope == KILN_SCOPE_SHARED && (bound & IN_BLOCK))
      return kiln_refuse(e,
                         "memory that a block shares must lie inside of the block loops, got "
                         "buffer %s outside of one: compute it further inside",
                         name);
    if (kiln_scope_is_private(b->scope) && (bound & IN_BLOCK))
      return kiln_refuse(e,
                         "memory of one thread must lie inside of the block loops, got buffer %s "
                         "outside of one: compute it further inside",
                         name);
  }
  return KILN_OK;
}

static kiln_status check_alloc(const kiln_edit *e, int buffer, unsigned hows) {
  const kiln_buffer *b = e->l->buffers.data[buffer];
  if (b->scope != KILN_SCOPE_SHARED || hows >> KILN_THREAD_X == 0) return KILN_OK;
  return kiln_refuse(
      e,
      "memory that threads share must lie outside of the thread loops, got buffer %s "
      "inside one: keep it local",
      kiln_edit_text(e, b->name));
}

static kiln_status check_bound_list(kiln_edit *e, kiln_loop *first, unsigned hows,
                                    uint8_t *inside) {
  for (kiln_loop *l = first; l; l = l->next) {
    unsigned under = hows;
    uint8_t *known = inside;
    if (l->kind == KILN_LOOP_FOR && l->how >= KILN_BLOCK_X) {
      KILN_TRY(check_axis(e, l, hows));
      under |= 1u << l->how;
      known = KILN_NEW_ARRAY(&e->cx->perm, uint8_t, e->l->buffers.n);
      for (int b = 0; b < e->l->buffers.n; b++)
        known[b] = inside[b] | (kiln_how_is_block(l->how) ? IN_BLOCK : IN_THREAD);
    }
    if (l->kind == KILN_LOOP_ALLOC) KILN_TRY(check_alloc(e, l->buffer, hows));
    if (l->kind == KILN_LOOP_ALLOC) known[l->buffer] = 0;
    if (l->body) KILN_TRY(check_bound_list(e, l->body, under, known));
    else if (hows) KILN_TRY(check_uses(e, l, known));
  }
  return KILN_OK;
}

static bool has_bound(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_FOR && l->how >= KILN_BLOCK_X) || has_bound(l->body)) return true;
  return false;
}

// An axis is bound once in a nest, no block loop is inside of a thread loop, and no bound loop uses
// memory of one thread (of one block, for block loops) that is allocated outside of it.
static kiln_status check_bound(kiln_edit *e) {
  if (!has_bound(e->l->body)) return KILN_OK;
  uint8_t *inside = KILN_NEW_ARRAY(&e->cx->perm, uint8_t, e->l->buffers.n);
  return check_bound_list(e, e->l->body, 0, inside);
}

// --- instructions ---

// The operands of instructions still have the strides that these need.
static kiln_status check_operands(kiln_edit *e, const kiln_loop *list) {
  kiln_misfit m;
  for (const kiln_loop *l = list; l; l = l->next) {
    KILN_TRY(check_operands(e, l->body));
    if (l->kind != KILN_LOOP_INSTR || !kiln_instr_find_misfit(e->cx, e->l, l, &m)) continue;
    return kiln_refuse(
        e,
        "neighbours in buffer %s must be %" PRId64 " elements apart for %s, got %s: "
        "do this before tensorize",
        kiln_edit_text(e, e->l->buffers.data[l->operands[m.operand]->u.tensor]->name), m.want,
        l->instr->name, m.got ? kiln_arena_printf(&e->cx->perm, "%" PRId64, m.got) : "blocks");
  }
  return KILN_OK;
}

// --- the commit ---

kiln_status kiln_edit_commit(kiln_edit *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *line = kiln_arena_vprintf(&e->cx->perm, format, args);
  va_end(args);
  kiln_nest_tidy(e);
  KILN_TRY(kiln_check_limits(e));
  KILN_TRY(check_bound(e));
  KILN_TRY(check_operands(e, e->l->body));
  *e->s->loops = *e->l;
  kiln_text_add(&e->s->script, line);
  kiln_text_add(&e->s->script, "\n");
  return KILN_OK;
}
