// Addresses: each index times its stride becomes an affine form, and the pointer is built from the
// outermost loop inwards, each term once at the head of the loop whose variable it uses. Constants
// come last, so that unrolled accesses share a register and differ in displacement.
//
// Pointer steps are not marked inbounds: with padding, a partial sum may be outside of the buffer.
#include "target/cpu/cpu.h"

static void form_merge(kiln_emit *e, kiln_linear_form *f, const kiln_expr *atom, int64_t coef) {
  for (int i = 0; i < f->terms.n; i++) {
    if (f->terms.data[i].atom != atom) continue;
    f->terms.data[i].coef += coef;
    return;
  }
  KILN_VEC_PUSH(&e->cx->perm, &f->terms, (kiln_form_term){atom, coef});
}

void kiln_cpu_form_add(kiln_emit *e, kiln_linear_form *f, const kiln_expr *x, int64_t coef) {
  int64_t by = 0;
  if (kiln_expr_is_int(x, &by)) {
    f->constant += coef * by;
  } else if (x->kind == KILN_EXPR_ADD || x->kind == KILN_EXPR_SUB) {
    kiln_cpu_form_add(e, f, x->args[0], coef);
    kiln_cpu_form_add(e, f, x->args[1], x->kind == KILN_EXPR_ADD ? coef : -coef);
  } else if (x->kind == KILN_EXPR_NEG) {
    kiln_cpu_form_add(e, f, x->args[0], -coef);
  } else if (x->kind == KILN_EXPR_MUL && kiln_expr_is_int(x->args[1], &by)) {
    kiln_cpu_form_add(e, f, x->args[0], coef * by);
  } else if (x->kind == KILN_EXPR_MUL && kiln_expr_is_int(x->args[0], &by)) {
    kiln_cpu_form_add(e, f, x->args[1], coef * by);
  } else {
    form_merge(e, f, x, coef);
  }
}

// |x| with variables of known value replaced, and the lane variable relative to the chunk.
static const kiln_expr *resolve(kiln_emit *e, const kiln_expr *x) {
  kiln_symbol vars[64];
  const kiln_expr *values[64];
  int n = 0;
  bool lane = false;
  for (int i = 0; i < x->vars->n && n < (int)KILN_LEN(vars); i++) {
    const kiln_binding *b = kiln_cpu_binding(e, x->vars->vars[i]);
    if (!b || b->kind == KILN_BOUND_LOOP) continue;
    if (b->kind == KILN_BOUND_LANE) {
      lane = true;
      if (e->chunk == 0 && e->lane_extent == e->n_active) continue;
      values[n] = kiln_add(e->cx, kiln_var(e->cx, b->var), kiln_int(e->cx, e->chunk));
    } else {
      values[n] = kiln_int(e->cx, b->constant);
    }
    vars[n++] = b->var;
  }
  if (n == 0) return x;
  const kiln_expr *y = kiln_expr_substitute(e->cx, x, n, vars, values);
  if (lane) kiln_ranges_push(&e->ranges, e->lane_var, 0, e->n_active - 1);
  y = kiln_simplify(e->cx, y, &e->ranges);
  if (lane) kiln_ranges_pop(&e->ranges, 1);
  return y;
}

static void split_atom(kiln_emit *e, kiln_split_form *out, const kiln_expr *atom, int64_t coef) {
  if (kiln_cpu_is_uniform(e, atom))
    KILN_VEC_PUSH(&e->cx->perm, &out->uniform, (kiln_form_term){atom, coef});
  else KILN_VEC_PUSH(&e->cx->perm, &out->varying, (kiln_form_term){atom, coef});
}

// Adds a term; variables are bound to their values. In a |resolved| term the lane is relative to
// the chunk.
static void split_term(kiln_emit *e, kiln_split_form *out, kiln_form_term t, bool resolved) {
  if (t.coef == 0) return;
  if (t.atom->kind != KILN_EXPR_VAR) {
    const kiln_expr *x = resolved ? t.atom : resolve(e, t.atom);
    if (x == t.atom) {
      split_atom(e, out, x, t.coef);
      return;
    }
    kiln_linear_form f = {0};
    kiln_cpu_form_add(e, &f, x, t.coef);
    out->constant += f.constant;
    // Non-affine parts that depend on the lane are relative to the chunk here, but evaluation is
    // relative to the loop: only affine parts may be used in this form.
    for (int i = 0; i < f.terms.n; i++) {
      const kiln_form_term *u = &f.terms.data[i];
      if (u->atom->kind != KILN_EXPR_VAR && !kiln_cpu_is_uniform(e, u->atom)) {
        out->constant -= f.constant;
        split_atom(e, out, t.atom, t.coef);
        return;
      }
    }
    for (int i = 0; i < f.terms.n; i++) split_term(e, out, f.terms.data[i], true);
    return;
  }
  const kiln_binding *b = kiln_cpu_binding(e, t.atom->u.sym);
  if (b && b->kind == KILN_BOUND_CONST) {
    out->constant += t.coef * b->constant;
  } else if (b && b->kind == KILN_BOUND_LANE) {
    out->lane += t.coef;
    if (!resolved) out->constant += t.coef * e->chunk;
  } else {
    KILN_VEC_PUSH(&e->cx->perm, &out->uniform, t);
  }
}

kiln_split_form kiln_cpu_form_split(kiln_emit *e, const kiln_linear_form *f) {
  kiln_split_form out = {.constant = f->constant};
  for (int i = 0; i < f->terms.n; i++) split_term(e, &out, f->terms.data[i], false);
  return out;
}

static kiln_search find_float(const kiln_expr *x, void *argument) {
  (void)argument;
  return kiln_dtype_is_float(x->dtype) ? KILN_SEARCH_ENDS : KILN_SEARCH_INTO;
}

static bool has_float(kiln_ctx *cx, const kiln_expr *x) {
  return kiln_expr_search(cx, x, find_float, NULL) != NULL;
}

// The frame of the innermost loop on which |atom| depends; -1 if it must be computed in place:
// loads, and functions, which may add basic blocks.
static int frame_of(const kiln_emit *e, const kiln_expr *atom) {
  int frame = 0;
  if (atom->has_load || (atom->kind != KILN_EXPR_VAR && has_float(e->cx, atom))) return -1;
  for (int i = 0; i < atom->vars->n; i++) {
    const kiln_binding *b = kiln_cpu_binding(e, atom->vars->vars[i]);
    if (b && b->kind == KILN_BOUND_LOOP && b->frame > frame) frame = b->frame;
  }
  return frame;
}

static LLVMBasicBlockRef enter_frame(kiln_emit *e, int frame) {
  LLVMBasicBlockRef at = LLVMGetInsertBlock(e->b);
  LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->frames.data[frame].head));
  kiln_cpu_say_line(e);
  return at;
}

static kiln_hoisted *hoisted_find(kiln_frame *f, LLVMValueRef from, const kiln_expr *atom,
                                  int64_t coef, LLVMTypeRef type) {
  for (int i = f->hoisted.n - 1; i >= 0; i--) {
    kiln_hoisted *h = &f->hoisted.data[i];
    if (h->from == from && h->atom == atom && h->coef == coef && h->type == type) return h;
  }
  return NULL;
}

// The value of a uniform atom, computed at the head of |frame| (-1: here).
static LLVMValueRef atom_value(kiln_emit *e, const kiln_expr *atom, int frame) {
  if (frame < 0) return kiln_cpu_eval_scalar(e, atom);
  const kiln_binding *b = atom->kind == KILN_EXPR_VAR ? kiln_cpu_binding(e, atom->u.sym) : NULL;
  if (b && b->kind == KILN_BOUND_LOOP) return b->value;
  kiln_hoisted *known = hoisted_find(&e->frames.data[frame], NULL, atom, 1, NULL);
  if (known) return known->value;
  LLVMBasicBlockRef at = enter_frame(e, frame);
  kiln_cpu_memo_clear(e); // remembered values may have been computed after the head
  LLVMValueRef value = kiln_cpu_eval_scalar(e, atom);
  LLVMPositionBuilderAtEnd(e->b, at);
  KILN_VEC_PUSH(&e->cx->perm, &e->frames.data[frame].hoisted,
                (kiln_hoisted){.atom = atom, .coef = 1, .value = value});
  return value;
}

static LLVMValueRef scaled(kiln_emit *e, LLVMValueRef v, int64_t coef) {
  return coef == 1 ? v : LLVMBuildMul(e->b, v, kiln_cpu_const_int(e->m->i64, coef), "");
}

LLVMValueRef kiln_cpu_form_uniform(kiln_emit *e, const kiln_split_form *f) {
  LLVMValueRef sum = kiln_cpu_const_int(e->m->i64, f->constant);
  for (int i = 0; i < f->uniform.n; i++) {
    const kiln_form_term *t = &f->uniform.data[i];
    LLVMValueRef v = scaled(e, atom_value(e, t->atom, frame_of(e, t->atom)), t->coef);
    sum = LLVMBuildAdd(e->b, sum, v, "");
  }
  return sum;
}

static LLVMValueRef pointer_step(kiln_emit *e, LLVMTypeRef type, LLVMValueRef from,
                                 const kiln_form_term *t, int frame) {
  LLVMValueRef v = atom_value(e, t->atom, frame);
  if (frame < 0) {
    v = scaled(e, v, t->coef);
    return LLVMBuildGEP2(e->b, type, from, &v, 1, "");
  }
  kiln_hoisted *known = hoisted_find(&e->frames.data[frame], from, t->atom, t->coef, type);
  if (known) return known->value;
  LLVMBasicBlockRef at = enter_frame(e, frame);
  v = scaled(e, v, t->coef);
  LLVMValueRef p = LLVMBuildGEP2(e->b, type, from, &v, 1, "");
  LLVMPositionBuilderAtEnd(e->b, at);
  KILN_VEC_PUSH(&e->cx->perm, &e->frames.data[frame].hoisted,
                (kiln_hoisted){from, t->atom, t->coef, type, p});
  return p;
}

// Uniform terms from the outermost frame inwards, then those that must be computed in place.
LLVMValueRef kiln_cpu_pointer(kiln_emit *e, LLVMTypeRef type, LLVMValueRef base,
                              const kiln_split_form *f) {
  LLVMValueRef p = base;
  for (int frame = 0; frame < e->frames.n; frame++) {
    for (int i = 0; i < f->uniform.n; i++) {
      if (frame_of(e, f->uniform.data[i].atom) == frame)
        p = pointer_step(e, type, p, &f->uniform.data[i], frame);
    }
  }
  for (int i = 0; i < f->uniform.n; i++) {
    if (frame_of(e, f->uniform.data[i].atom) < 0)
      p = pointer_step(e, type, p, &f->uniform.data[i], -1);
  }
  return p;
}

static kiln_linear_form *form_of(kiln_emit *e, const void *key, int buffer,
                                 const kiln_expr *const *index) {
  const uint64_t *known = kiln_map_find(&e->forms, (uintptr_t)key);
  if (known) return (kiln_linear_form *)(uintptr_t)*known;
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  const int64_t scale = e->is_private[buffer] ? e->lane_extent : 1;
  kiln_linear_form *f = KILN_NEW(&e->cx->perm, kiln_linear_form);
  for (int i = 0; i < b->rank; i++) kiln_cpu_form_add(e, f, index[i], b->strides[i] * scale);
  if (e->is_private[buffer]) form_merge(e, f, kiln_var(e->cx, e->lane_var), 1);
  kiln_map_put(&e->forms, (uintptr_t)key, (uintptr_t)f);
  return f;
}

static kiln_lanes index_lanes(kiln_emit *e, const kiln_split_form *f) {
  kiln_lanes sum = {kiln_cpu_lane_ids(e, e->m->i64, e->lanes, 0, f->lane), e->lanes, false};
  if (kiln_cpu_table(e, f, &sum)) return sum;
  for (int i = 0; i < f->varying.n; i++) {
    const kiln_form_term *t = &f->varying.data[i];
    kiln_lanes v = kiln_cpu_widen(e, kiln_cpu_eval(e, t->atom));
    LLVMValueRef by = kiln_cpu_const_int(LLVMTypeOf(v.v), t->coef);
    if (t->coef != 1) v.v = LLVMBuildMul(e->b, v.v, by, "");
    sum.v = LLVMBuildAdd(e->b, sum.v, v.v, "");
  }
  return sum;
}

// If equal numbers of consecutive lanes load each element, as the index lane / 4 does, and whole
// vectors hold whole groups: the size of a group; otherwise 0.
static int repeats_of(const kiln_emit *e, const kiln_split_form *f) {
  const kiln_form_term *t = f->varying.data;
  int64_t by = 0;
  if (f->varying.n != 1 || f->lane != 0 || t->coef != 1 || t->atom->kind != KILN_EXPR_DIV ||
      t->atom->args[0]->kind != KILN_EXPR_VAR || !kiln_expr_is_int(t->atom->args[1], &by))
    return 0;
  const kiln_binding *b = kiln_cpu_binding(e, t->atom->args[0]->u.sym);
  const bool is_whole = by > 1 && by < e->lanes && e->lanes % by == 0 && e->chunk % by == 0;
  return b && b->kind == KILN_BOUND_LANE && is_whole && e->n_active == e->lanes ? (int)by : 0;
}

static kiln_cpu_place address_of(kiln_emit *e, const void *key, int buffer,
                                 const kiln_expr *const *index, bool may_repeat) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  LLVMTypeRef type = kiln_cpu_memory_type(e->m, b->dtype);
  kiln_split_form f = kiln_cpu_form_split(e, form_of(e, key, buffer, index));
  kiln_cpu_place a = {.pointer = kiln_cpu_pointer(e, type, e->base[buffer], &f),
                      .lane_stride = f.lane};
  a.repeats = may_repeat && !e->mask && !e->guard ? repeats_of(e, &f) : 0;
  if (a.repeats) f.constant += e->chunk / a.repeats;
  a.pointer = kiln_cpu_step(e, type, a.pointer, f.constant);
  if (f.varying.n > 0 && !a.repeats) {
    a.index = index_lanes(e, &f);
    a.lane_stride = 0;
  }
  return a;
}

kiln_cpu_place kiln_cpu_address(kiln_emit *e, const void *key, int buffer,
                                const kiln_expr *const *index) {
  return address_of(e, key, buffer, index, false);
}

kiln_cpu_place kiln_cpu_load_address(kiln_emit *e, const kiln_expr *load) {
  return address_of(e, load, load->u.tensor, load->args, true);
}

bool kiln_cpu_in_bounds(kiln_emit *e, int buffer, const kiln_expr *const *index) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  for (int i = 0; i < b->rank; i++) {
    const kiln_interval r = kiln_expr_interval(e->cx, index[i], &e->ranges);
    if (r.lo < 0 || r.hi >= b->extents[i]) return false;
  }
  return true;
}
