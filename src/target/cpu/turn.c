// Maps that transpose: if vectors of the store run across those of the loads, square tiles are
// computed and stored in whole vectors, with a transpose by shuffles between. Columns of rows that
// are shorter than a vector and contiguous are interleaved.
#include "target/cpu/cpu.h"

#include <stdlib.h>

enum {
  MAX_LANES = 16,  // of 4 bytes
  MAX_SQUARES = 8, // squares per vector loop
  MAX_STEP = 4,    // the largest stride of lanes that few vectors cover
  UNEVEN = -1,     // an irregular stride across, whose places are known at compile time
  MAX_BORDER = 8,  // the most iterations on each side that are not transposed
  MAX_NODES = 64   // of the map's expression, which is copied for each element of a square's side
};

// Finds the stride of the access along |var|, in elements.
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

static bool stores_floats(const kiln_emit *e, const kiln_loop *s) {
  if (s->kind != KILN_LOOP_STORE) return false;
  const kiln_buffer *to = e->loops->buffers.data[s->buffer];
  return !s->next && s->combiner == KILN_COMBINE_NONE && s->value->dtype == KILN_F32 &&
         to->dtype == KILN_F32 && to->scope != KILN_SCOPE_REGISTER;
}

typedef struct reading {
  kiln_emit *e;
  const kiln_turn *t;
  int64_t lo, hi; // the iterations of t->along to examine
  int n_nodes;
  bool fits;   // every load suits vectors along
  bool turns;  // one load runs across
  bool varies; // a comparison differs between iterations
} reading;

static void see_load(const kiln_expr *x, void *argument) {
  reading *r = argument;
  kiln_emit *e = r->e;
  int64_t along = 0, across = 0;
  r->n_nodes++;
  if (x->kind != KILN_EXPR_LOAD) return;
  r->fits &= x->u.tensor != r->t->store->buffer &&
             e->loops->buffers.data[x->u.tensor]->scope != KILN_SCOPE_REGISTER &&
             step_of(e, x->u.tensor, x->args, r->t->along, &along) && along >= 0 &&
             along <= MAX_STEP;
  if (!step_of(e, x->u.tensor, x->args, r->t->across, &across)) across = UNEVEN;
  r->turns |= along > 0 && across != 0 && across != 1;
}

static void see_comparison(const kiln_expr *x, void *argument) {
  reading *r = argument;
  kiln_emit *e = r->e;
  if (r->varies || !kiln_expr_kind_is_cmp(x->kind) || !kiln_expr_uses(x, r->t->along)) return;
  kiln_ranges_push(&e->ranges, r->t->along, r->lo, r->hi - 1);
  const kiln_expr *known = kiln_simplify(e->cx, x, &e->ranges);
  r->varies = kiln_expr_uses(known, r->t->along);
  kiln_ranges_pop(&e->ranges, 1);
}

// Finds the iterations of |n| in which all comparisons have one result: all but a border.
static bool find_interior(kiln_emit *e, kiln_turn *t, int64_t n) {
  for (int64_t border = 0; border <= MAX_BORDER && n - 2 * border >= t->lanes; border++) {
    reading r = {.e = e, .t = t, .lo = border, .hi = n - border};
    kiln_expr_visit(e->cx, t->store->value, see_comparison, &r);
    t->lo = border;
    t->hi = n - border - (n - 2 * border) % t->lanes;
    if (!r.varies) return true;
  }
  return false;
}

static bool turns(kiln_emit *e, kiln_turn *t, int64_t n) {
  const kiln_loop *s = t->store;
  reading r = {.e = e, .t = t, .fits = true};
  int64_t one = 0;
  kiln_expr_visit(e->cx, s->value, see_load, &r);
  return r.fits && r.turns && r.n_nodes <= MAX_NODES &&
         step_of(e, s->buffer, s->index, t->across, &one) && one == 1 &&
         step_of(e, s->buffer, s->index, t->along, &t->step) &&
         (t->width < t->lanes ? t->step == t->width
                              // otherwise the order of stores to an element would matter
                              : llabs(t->step) >= t->width) &&
         find_interior(e, t, n);
}

bool kiln_cpu_turn_find(kiln_emit *e, const kiln_loop *l, kiln_turn *out) {
  const kiln_loop *inner = l->body;
  int64_t n = 0, width = 0;
  if (l->how != KILN_SERIAL || !inner || inner->next || inner->kind != KILN_LOOP_FOR ||
      inner->how != KILN_VECTORIZED || !inner->body || !stores_floats(e, inner->body) ||
      e->lane_var || e->lane_conds.n > 0 || e->mask || e->guard)
    return false;
  *out = (kiln_turn){.store = inner->body,
                     .along = l->var,
                     .across = inner->var,
                     .lanes = e->m->machine->vector_bytes / 4};
  if (!kiln_expr_is_int(l->extent, &n) || !kiln_expr_is_int(inner->extent, &width) ||
      out->lanes > MAX_LANES || n < out->lanes || width < 2 || width > MAX_SQUARES * out->lanes)
    return false;
  out->width = (int)width;
  kiln_ranges_push(&e->ranges, l->var, 0, n - 1);
  kiln_ranges_push(&e->ranges, inner->var, 0, width - 1);
  const bool is_turned = turns(e, out, n);
  kiln_ranges_pop(&e->ranges, 2);
  return is_turned;
}

static void bind_across(kiln_emit *e, const kiln_turn *t, int64_t at) {
  const kiln_binding b = {.var = t->across, .kind = KILN_BOUND_CONST, .constant = at};
  kiln_cpu_memo_clear(e);
  KILN_VEC_PUSH(&e->cx->perm, &e->vars, b);
  kiln_ranges_push(&e->ranges, t->across, at, at);
}

static void unbind_across(kiln_emit *e) {
  e->vars.n--;
  kiln_ranges_pop(&e->ranges, 1);
}

// Element |at| of the rows that begin with the current iteration of the outer loop, one lane each.
static LLVMValueRef compute(kiln_emit *e, const kiln_turn *t, int64_t at) {
  const kiln_symbol lane = kiln_symbol_of(e->cx, "turn.lane");
  const kiln_symbol vars[] = {t->along, t->across};
  const kiln_expr *values[] = {kiln_add(e->cx, kiln_var(e->cx, t->along), kiln_var(e->cx, lane)),
                               kiln_int(e->cx, at)};
  bind_across(e, t, at);
  kiln_ranges_push(&e->ranges, t->along, t->lo, t->hi - t->lanes);
  kiln_ranges_push(&e->ranges, lane, 0, t->lanes - 1);
  const kiln_expr *x = kiln_expr_substitute(e->cx, t->store->value, 2, vars, values);
  LLVMValueRef v = kiln_cpu_eval_chunk(e, lane, t->lanes, kiln_simplify(e->cx, x, &e->ranges)).v;
  kiln_ranges_pop(&e->ranges, 2);
  unbind_across(e);
  return v;
}

// Exchanges elements of |a| and |b| whose lane numbers differ in |bit|: a butterfly step of the
// transpose.
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

// The address of element |at| of the current iteration.
static LLVMValueRef address(kiln_emit *e, const kiln_turn *t, int64_t at) {
  const kiln_loop *s = t->store;
  bind_across(e, t, at);
  LLVMValueRef p = kiln_cpu_address(e, s, s->buffer, s->index).pointer;
  unbind_across(e);
  return p;
}

static void store_at(kiln_emit *e, const kiln_turn *t, LLVMValueRef v, LLVMValueRef p, int64_t at) {
  LLVMTypeRef scalar = kiln_cpu_memory_type(e->m, KILN_F32);
  LLVMValueRef by = kiln_cpu_const_int(e->m->i64, at),
               store = LLVMBuildStore(e->b, v, LLVMBuildGEP2(e->b, scalar, p, &by, 1, ""));
  LLVMSetAlignment(store, 4);
  (void)kiln_cpu_tag(e, t->store->buffer, store);
}

static void turn_square(kiln_emit *e, const kiln_turn *t, int64_t at) {
  LLVMValueRef rows[MAX_LANES];
  for (int k = 0; k < t->lanes; k++) rows[k] = compute(e, t, at + k);
  for (int bit = t->lanes / 2; bit > 0; bit /= 2)
    for (int k = 0; k < t->lanes; k++)
      if (!(k & bit)) exchange(e, t->lanes, bit, &rows[k], &rows[k | bit]);
  LLVMValueRef p = address(e, t, at);
  for (int k = 0; k < t->lanes; k++) store_at(e, t, rows[k], p, k * t->step);
}

// The source of lane |i| of an interleaved vector, for |row| of |column|, when vector |k| is added
// to those before, which hold their lanes already unless |k| is the first.
static LLVMValueRef lane_from(kiln_emit *e, int lanes, int k, int row, int column, int i) {
  if (column > k) return LLVMGetPoison(e->m->i32);
  const int lane = column == k ? lanes + row : k == 1 ? row : i;
  return LLVMConstInt(e->m->i32, (unsigned)lane, 0);
}

// Interleaves the elements of the |n| vectors in |from|; gives those from j * lanes on.
static LLVMValueRef interleaved(kiln_emit *e, int lanes, int n, const LLVMValueRef *from, int j) {
  LLVMValueRef v = from[0];
  for (int k = 1; k < n; k++) {
    LLVMValueRef select[MAX_LANES];
    for (int i = 0; i < lanes; i++)
      select[i] = lane_from(e, lanes, k, (j * lanes + i) / n, (j * lanes + i) % n, i);
    v = LLVMBuildShuffleVector(e->b, v, from[k], LLVMConstVector(select, (unsigned)lanes), "");
  }
  return v;
}

static void interleave_columns(kiln_emit *e, const kiln_turn *t) {
  LLVMValueRef columns[MAX_LANES];
  for (int k = 0; k < t->width; k++) columns[k] = compute(e, t, k);
  LLVMValueRef p = address(e, t, 0);
  for (int j = 0; j < t->width; j++)
    store_at(e, t, interleaved(e, t->lanes, t->width, columns, j), p, j * t->lanes);
}

void kiln_cpu_turn(kiln_emit *e, const kiln_turn *t) {
  if (t->width < t->lanes) {
    interleave_columns(e, t);
    return;
  }
  for (int at = 0; at < t->width; at += t->lanes)
    turn_square(e, t, at + t->lanes <= t->width ? at : t->width - t->lanes);
}
