// Roles of a nest with a producer warp: the producer's loops, and what both roles begin with.
#include "target/gpu/device/lowering.h"

#include "support/integer.h"

#include <string.h>

static const kiln_expr *renamed(const lowering *w, const kiln_expr *e) {
  return e ? kiln_expr_substitute(w->cx, e, w->n_renamed, w->renamed, w->names) : NULL;
}

static void put_leads(lowering *w, const kiln_loop *l) {
  const kiln_gpu_found *f = kiln_gpu_found_of(w->n, l);
  if (!f->leads) return;
  const kiln_expr *stage = renamed(w, f->stage);
  if (w->is_apart) {
    put_op_of(w, l, KILN_DEVICE_MBARRIER_WAIT, element(w, w->empties[f->operand], stage),
              element(w, w->phases[w->n->tma.n + f->operand], number(w, 0)));
    return;
  }
  put_op_of(w, l, KILN_DEVICE_MBARRIER_WAIT, element(w, w->empty, stage),
            element(w, w->phases[w->n->tma.n], number(w, 0)));
  put_op_of(w, l, KILN_DEVICE_MBARRIER_EXPECT, element(w, w->full[0], stage),
            number(w, w->n->specialized.stage_bytes));
}

// |l| and its body, in loops of the producer's own.
static kiln_loop *produced(lowering *w, const kiln_loop *l) {
  kiln_loop *copy = KILN_NEW(&w->cx->perm, kiln_loop);
  const int n = w->n_renamed;
  *copy = *l;
  copy->next = NULL;
  copy->extent = renamed(w, l->extent);
  copy->cond = renamed(w, l->cond);
  if (l->kind == KILN_LOOP_FOR && n < MAX_RENAMED) {
    copy->var = kiln_symbol_printf(w->cx, "%s.p", kiln_symbol_text(w->cx, l->var));
    w->renamed[n] = l->var;
    w->names[w->n_renamed++] = kiln_var(w->cx, copy->var);
  }
  copy->body = kiln_device_produced(w, l->body);
  if (l->kind == KILN_LOOP_INSTR) {
    kiln_device_lower_tma(w, &copy, 1);
    for (kiln_loop *part = copy; part; part = part->next)
      for (int i = 0; i < part->n_operands; i++) part->operands[i] = renamed(w, part->operands[i]);
  }
  w->n_renamed = n;
  return copy;
}

kiln_loop *kiln_device_produced(lowering *w, const kiln_loop *from) {
  kiln_loop *first = NULL;
  for (const kiln_loop *l = from; l; l = l->next) {
    const bool has_tma = kiln_gpu_has_tma(l);
    w->at = end_of(&first);
    if (w->dependent && (l == w->dependent || (!has_tma && kiln_gpu_is_in(l->body, w->dependent))))
      put_op(w, l, KILN_DEVICE_LAUNCH_WAIT);
    if (!has_tma) continue;
    put_leads(w, l);
    *end_of(&first) =
        l->kind == KILN_LOOP_ALLOC ? kiln_device_produced(w, l->body) : produced(w, l);
  }
  return first;
}

void kiln_device_take_out(lowering *w, kiln_loop **list) {
  for (kiln_loop **link = list; *link;) {
    kiln_loop *l = *link;
    kiln_device_take_out(w, &l->body);
    if (l->kind == KILN_LOOP_ALLOC && kiln_device_tma_of(w, l->buffer) >= 0) {
      *link = l->body;
      link = end_of(link);
      *link = l->next;
    } else link = &l->next;
  }
}

// --- buffers ---

static const kiln_buffer *make_buffer(lowering *w, const char *name, kiln_dtype t, kiln_scope scope,
                                      int64_t n, int64_t at) {
  kiln_gpu_nest *nest = w->n;
  const kiln_buffer *b = kiln_buffer_make(w->cx, nest->l, name, t, scope, 1, &n, NULL);
  int64_t *offsets = KILN_NEW_ARRAY(&w->cx->perm, int64_t, nest->l->buffers.n);
  memcpy(offsets, nest->offsets, (size_t)b->id * sizeof *offsets);
  offsets[b->id] = at;
  nest->offsets = offsets;
  return b;
}

const kiln_buffer *kiln_device_phases(lowering *w, const char *name) {
  return make_buffer(w, name, KILN_U32, KILN_SCOPE_LOCAL, 1, -1);
}

const kiln_buffer *kiln_device_local(lowering *w, const char *name, kiln_dtype t, int64_t n) {
  return make_buffer(w, name, t, KILN_SCOPE_LOCAL, n, -1);
}

const kiln_buffer *kiln_device_mbarriers(lowering *w, const char *name, int64_t n, int64_t at) {
  return make_buffer(w, name, KILN_U64, KILN_SCOPE_SHARED, n, at);
}

// --- begins of roles ---

kiln_loop *kiln_device_with_phases(lowering *w, const kiln_buffer *phases, const kiln_expr *bits,
                                   kiln_loop *body) {
  kiln_loop *alloc = kiln_alloc_make(w->cx, phases, body);
  w->at = &alloc->body;
  put_op_of(w, body, KILN_DEVICE_MBARRIER_PHASES, element(w, phases, number(w, 0)), bits);
  return alloc;
}

kiln_loop *kiln_device_first_turn(lowering *w, kiln_loop *consumes) {
  kiln_loop *first = consumes;
  const kiln_expr *arguments[] = {kiln_sub(w->cx, number(w, 4), w->consumer),
                                  number(w, 2 * w->n->n_threads)};
  w->at = &first;
  kiln_device_put_if(w, consumes, kiln_binary(w->cx, KILN_EXPR_EQ, w->consumer, number(w, 1)),
                     kiln_device_make(w->cx, KILN_DEVICE_BARRIER_ARRIVE, 2, arguments));
  return first;
}

// A producer needs few registers, and gives the rest of its warp group's to the consumers.
kiln_loop *kiln_device_with_registers(lowering *w, bool is_producer, kiln_loop *body) {
  enum { UNIT = 8, PRODUCER = 40, MOST = 240 };
  const kiln_gpu_nest *n = w->n;
  const int64_t consumers = n->block[1] * n->specialized.consumers, // warp groups
      each = n->m->gpu.registers / (n->block[0] * (consumers + 1)) / UNIT * UNIT,
                more = (each + (each - PRODUCER) / consumers) / UNIT * UNIT;
  kiln_loop *first = body;
  w->at = &first;
  if (each > PRODUCER && each < MOST)
    put_int(w, body, KILN_DEVICE_REGISTERS_SET, is_producer ? PRODUCER : kiln_min_i64(more, MOST));
  return first;
}
