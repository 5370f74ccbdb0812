// Copies that turn a matrix: where the vectors of a copy lie across those of what it reads, squares are
// read and written in whole vectors, and turned by shuffles between.
#include "target/cpu/cpu.h"

#include <stdlib.h>

enum { MAX_LANES = 16, MAX_SQUARES = 8 }; // of 4 bytes; squares side by side

// Elements from iteration to iteration of |var|.
static bool step_of(kiln_emit *e, int buffer, const kiln_expr *const *index, kiln_symbol var,
                    int64_t *out) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  const kiln_expr *at = kiln_int(e->cx, 0),
                  *next = kiln_add(e->cx, kiln_var(e->cx, var), kiln_int(e->cx, 1));
  for (int k = 0; k < b->rank; k++) {
    if (index[k]->has_load) return false;
    at = kiln_add(e->cx, at, kiln_mul(e->cx, index[k], kiln_int(e->cx, b->strides[k])));
  }
  const kiln_expr *moved = kiln_expr_substitute(e->cx, at, 1, &var, &next);
  return kiln_expr_is_int(kiln_simplify(e->cx, kiln_sub(e->cx, moved, at), &e->ranges), out);
}

static bool is_copy(const kiln_emit *e, const kiln_loop *s) {
  if (s->kind != KILN_LOOP_STORE || s->next || s->combiner != KILN_COMBINE_NONE ||
      s->value->kind != KILN_EXPR_LOAD)
    return false;
  const kiln_buffer *to = e->loops->buffers.data[s->buffer],
                    *from = e->loops->buffers.data[s->value->u.tensor];
  return to != from && to->dtype == KILN_F32 && from->dtype == KILN_F32 &&
         to->scope != KILN_SCOPE_REGISTER && from->scope != KILN_SCOPE_REGISTER;
}

bool kiln_cpu_turn_find(kiln_emit *e, const kiln_loop *l, kiln_turn *out) {
  const kiln_loop *inner = l->body;
  int64_t n = 0, width = 0, along = 0, across = 0, one = 0;
  if (l->how != KILN_SERIAL || !inner || inner->next || inner->kind != KILN_LOOP_FOR ||
      inner->how != KILN_VECTORIZED || !inner->body || !is_copy(e, inner->body) || e->lane_var ||
      e->lane_conds.n > 0 || e->mask || e->guard)
    return false;
  const kiln_loop *s = inner->body;
  *out = (kiln_turn){.store = s, .across = inner->var, .lanes = e->m->machine->vector_bytes / 4};
  if (!kiln_expr_is_int(l->extent, &n) || !kiln_expr_is_int(inner->extent, &width) ||
      out->lanes > MAX_LANES || n < out->lanes || width < out->lanes ||
      width > MAX_SQUARES * out->lanes)
    return false;
  out->width = (int)width;
  kiln_ranges_push(&e->ranges, l->var, 0, n - 1);
  kiln_ranges_push(&e->ranges, inner->var, 0, width - 1);
  const bool is_turned = step_of(e, s->value->u.tensor, s->value->args, l->var, &along) &&
                         along == 1 &&
                         step_of(e, s->value->u.tensor, s->value->args, inner->var, &across) &&
                         across != 1 && step_of(e, s->buffer, s->index, inner->var, &one) &&
                         one == 1 && step_of(e, s->buffer, s->index, l->var, &out->step);
  kiln_ranges_pop(&e->ranges, 2);
  return is_turned && llabs(out->step) >= width; // else the last to write an element matters
}

// The address of element |at| of the row, in the present iteration of the loop around.
static LLVMValueRef address(kiln_emit *e, const kiln_turn *t, const void *key, int buffer,
                            const kiln_expr *const *index, int64_t at) {
  const kiln_binding b = {.var = t->across, .kind = KILN_BOUND_CONST, .constant = at};
  kiln_cpu_memo_clear(e);
  KILN_VEC_PUSH(&e->cx->perm, &e->vars, b);
  kiln_ranges_push(&e->ranges, t->across, at, at);
  LLVMValueRef p = kiln_cpu_address(e, key, buffer, index).pointer;
  e->vars.n--;
  kiln_ranges_pop(&e->ranges, 1);
  return p;
}

// Exchanges the elements of |a| and |b| whose lanes differ in |bit|: of those, |a| keeps what lies
// where it is not set.
static void exchange(kiln_emit *e, int lanes, int bit, LLVMValueRef *a, LLVMValueRef *b) {
  LLVMValueRef low[MAX_LANES], high[MAX_LANES];
  for (int k = 0; k < lanes; k++) {
    const int from = k & bit ? lanes : 0;
    low[k] = LLVMConstInt(e->m->i32, (unsigned)(from + (k & ~bit)), 0);
    high[k] = LLVMConstInt(e->m->i32, (unsigned)(from + (k | bit)), 0);
  }
  LLVMValueRef first =
      LLVMBuildShuffleVector(e->b, *a, *b, LLVMConstVector(low, (unsigned)lanes), "");
  *b = LLVMBuildShuffleVector(e->b, *a, *b, LLVMConstVector(high, (unsigned)lanes), "");
  *a = first;
}

static void turn_square(kiln_emit *e, const kiln_turn *t, int64_t at) {
  const kiln_loop *s = t->store;
  const kiln_expr *from = s->value;
  LLVMTypeRef scalar = kiln_cpu_memory_type(e->m, KILN_F32),
              type = LLVMVectorType(scalar, (unsigned)t->lanes);
  LLVMValueRef rows[MAX_LANES];
  for (int k = 0; k < t->lanes; k++) {
    LLVMValueRef p = address(e, t, from, from->u.tensor, from->args, at + k);
    rows[k] = LLVMBuildLoad2(e->b, type, p, "");
    LLVMSetAlignment(rows[k], 4);
    (void)kiln_cpu_tag(e, from->u.tensor, rows[k]);
  }
  for (int bit = t->lanes / 2; bit > 0; bit /= 2)
    for (int k = 0; k < t->lanes; k++)
      if (!(k & bit)) exchange(e, t->lanes, bit, &rows[k], &rows[k | bit]);
  LLVMValueRef p = address(e, t, s, s->buffer, s->index, at);
  for (int k = 0; k < t->lanes; k++) {
    LLVMValueRef by = kiln_cpu_const_int(e->m->i64, k * t->step),
                 store = LLVMBuildStore(e->b, rows[k], LLVMBuildGEP2(e->b, scalar, p, &by, 1, ""));
    LLVMSetAlignment(store, 4);
    (void)kiln_cpu_tag(e, s->buffer, store);
  }
}

void kiln_cpu_turn(kiln_emit *e, const kiln_turn *t) {
  for (int at = 0; at < t->width; at += t->lanes)
    turn_square(e, t, at + t->lanes <= t->width ? at : t->width - t->lanes);
}
