// Copies a kernel into the context of the thread that compiles it, and simplifies each expression
// for the ranges of the loops around.
#include "target/cpu/cpu.h"

#include <string.h>

typedef struct copier {
  kiln_ctx *cx;
  const kiln_ctx *from_cx;
  kiln_map exprs; // by id in |from_cx|
  kiln_ranges ranges;
  const kiln_loops *from;
  int lanes;                   // of vector loops (kiln_cpu_copy); 0: unchanged
  kiln_symbol rolled;          // the variable of the vector loop that is being strip-mined, in |cx|
  const kiln_expr *rolled_for; // and its value
} copier;

static kiln_symbol copy_symbol(copier *c, kiln_symbol s) {
  return kiln_symbol_of(c->cx, kiln_symbol_text(c->from_cx, s));
}

static const kiln_expr *copy_expr(copier *c, const kiln_expr *x);

static const kiln_expr *copy_node(copier *c, const kiln_expr *x) {
  if (x->kind == KILN_EXPR_INT) return kiln_int_of(c->cx, x->dtype, x->u.i);
  if (x->kind == KILN_EXPR_FLOAT) return kiln_float(c->cx, x->dtype, x->u.f);
  if (x->kind == KILN_EXPR_VAR) {
    const kiln_symbol var = copy_symbol(c, x->u.sym);
    return c->rolled_for && var == c->rolled ? c->rolled_for : kiln_var(c->cx, var);
  }
  const kiln_expr **args = KILN_NEW_ARRAY(&c->cx->scratch, const kiln_expr *, x->n_args);
  for (int i = 0; i < x->n_args; i++) args[i] = copy_expr(c, x->args[i]);
  return kiln_expr_with_args(c->cx, x, args);
}

static const kiln_expr *copy_expr(copier *c, const kiln_expr *x) {
  const uint64_t *known = kiln_map_find(&c->exprs, x->id);
  if (known) return (const kiln_expr *)(uintptr_t)*known;
  const kiln_expr *copy = copy_node(c, x);
  kiln_map_put(&c->exprs, x->id, (uintptr_t)copy);
  return copy;
}

static const kiln_expr *copy_simple(copier *c, const kiln_expr *x) {
  return x ? kiln_simplify(c->cx, copy_expr(c, x), &c->ranges) : NULL;
}

static const kiln_expr **copy_list(copier *c, const kiln_expr **from, int n) {
  if (!from) return NULL;
  const kiln_expr **list = KILN_NEW_ARRAY(&c->cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) list[i] = copy_simple(c, from[i]);
  return list;
}

static kiln_loop *copy_nest(copier *c, const kiln_loop *from);

static kiln_loop *copy_body(copier *c, kiln_loop *l, const kiln_loop *from) {
  const kiln_interval n = kiln_expr_interval(c->cx, l->extent, &c->ranges);
  kiln_ranges_push(&c->ranges, l->var, 0, n.hi == INT64_MAX ? n.hi : n.hi > 0 ? n.hi - 1 : 0);
  kiln_loop *body = copy_nest(c, from);
  kiln_ranges_pop(&c->ranges, 1);
  return body;
}

// Whether iterations of the loop of |var| combine into one element in an order that the lanes
// decide.
static bool has_reduction(const copier *c, const kiln_loop *l, kiln_symbol var) {
  for (; l; l = l->next) {
    bool depends = l->kind == KILN_LOOP_STORE && l->combiner == KILN_COMBINE_NONE;
    if (l->kind == KILN_LOOP_INSTR) return true;
    for (int i = 0; l->kind == KILN_LOOP_STORE && i < c->from->buffers.data[l->buffer]->rank; i++)
      depends |= kiln_expr_uses(l->index[i], var);
    if ((l->kind == KILN_LOOP_STORE && !depends) || has_reduction(c, l->body, var)) return true;
  }
  return false;
}

// Strip mining: a vector loop of many vectors becomes a loop over single vectors.
static bool is_rolled(const copier *c, const kiln_loop *l) {
  enum { FEW = 3 };
  int64_t n = 0;
  return c->lanes > 0 && l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED && !c->rolled_for &&
         kiln_expr_is_int(l->extent, &n) && n % c->lanes == 0 && n / c->lanes > FEW &&
         !has_reduction(c, l->body, l->var);
}

// Expressions that were copied before have the variable itself.
static void roll(copier *c, kiln_symbol var, const kiln_expr *is) {
  c->rolled = var;
  c->rolled_for = is;
  kiln_map_init(&c->exprs, &c->cx->scratch);
}

// for VAR:n vectorized { .. VAR .. } as
// for VAR.v:n/lanes { for VAR:lanes vectorized { .. VAR.v*lanes + VAR .. } }
static kiln_loop *copy_rolled(copier *c, const kiln_loop *from) {
  kiln_loop *inner = KILN_NEW(&c->cx->perm, kiln_loop), *outer = KILN_NEW(&c->cx->perm, kiln_loop);
  *inner = *from;
  inner->next = NULL;
  inner->var = copy_symbol(c, from->var);
  inner->extent = kiln_int(c->cx, c->lanes);
  *outer = (kiln_loop){.kind = KILN_LOOP_FOR, .how = KILN_SERIAL, .body = inner};
  outer->extent = kiln_int(c->cx, from->extent->u.i / c->lanes);
  const char *name = kiln_symbol_text(c->cx, inner->var);
  outer->var = kiln_symbol_of(c->cx, kiln_arena_printf(&c->cx->scratch, "%s.v", name));
  roll(c, inner->var,
       kiln_add(c->cx, kiln_mul(c->cx, kiln_var(c->cx, outer->var), inner->extent),
                kiln_var(c->cx, inner->var)));
  kiln_ranges_push(&c->ranges, outer->var, 0, outer->extent->u.i - 1);
  inner->body = copy_body(c, inner, from->body);
  kiln_ranges_pop(&c->ranges, 1);
  roll(c, 0, NULL);
  return outer;
}

static kiln_loop *copy_one(copier *c, const kiln_loop *from) {
  if (is_rolled(c, from)) return copy_rolled(c, from);
  kiln_loop *l = KILN_NEW(&c->cx->perm, kiln_loop);
  *l = *from;
  l->next = NULL;
  l->extent = copy_simple(c, from->extent);
  l->cond = copy_simple(c, from->cond);
  l->value = copy_simple(c, from->value);
  if (from->index) l->index = copy_list(c, from->index, c->from->buffers.data[from->buffer]->rank);
  l->operands = copy_list(c, from->operands, from->n_operands);
  if (from->kind == KILN_LOOP_FOR) l->var = copy_symbol(c, from->var);
  l->body = from->kind == KILN_LOOP_FOR ? copy_body(c, l, from->body) : copy_nest(c, from->body);
  return l;
}

static kiln_loop *copy_nest(copier *c, const kiln_loop *from) {
  kiln_loop *first = NULL, **link = &first;
  for (; from; from = from->next) {
    *link = copy_one(c, from);
    link = &(*link)->next;
  }
  return first;
}

kiln_loops *kiln_cpu_copy(kiln_ctx *cx, const kiln_ctx *from_cx, const kiln_loops *from,
                          int lanes) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  copier c = {.cx = cx, .from_cx = from_cx, .from = from, .lanes = lanes};
  kiln_map_init(&c.exprs, &cx->scratch);
  kiln_ranges_init(&c.ranges, &cx->scratch);
  kiln_loops *copy = KILN_NEW(&cx->perm, kiln_loops);
  copy->name = copy_symbol(&c, from->name);
  for (int i = 0; i < from->buffers.n; i++) {
    kiln_buffer *b = KILN_NEW(&cx->perm, kiln_buffer);
    *b = *from->buffers.data[i];
    b->name = copy_symbol(&c, b->name);
    b->pack = NULL; // its index map belongs to the other context, and is not needed
    KILN_VEC_PUSH(&cx->perm, &copy->buffers, b);
  }
  copy->body = copy_nest(&c, from->body);
  kiln_arena_rewind(&cx->scratch, mark);
  return copy;
}
