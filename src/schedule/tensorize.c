// tensorize: a nest that computes what an instruction means becomes that instruction.
//
// The meaning is a loop program over buffers d, a, b, ...; the nest must have its loops, in its
// order and extents, and its statements, with each operand's elements at the same distances in
// memory.
#include "schedule/edit.h"

typedef struct matcher {
  kiln_edit e;
  const kiln_instr *instr;
  kiln_loops *meaning;
  kiln_vars meant, found;  // loops of the meaning and those of the nest in their place
  kiln_vars inner;         // all loops of the nest
  const kiln_expr **loads; // [operands]: the first element; NULL until it is seen
} matcher;

static kiln_status mismatch(matcher *m, const char *what) {
  return kiln_refuse(&m->e, "nest must compute what instruction %s does, got another %s",
                     m->instr->name, what);
}

static const kiln_expr *rename_meant(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const matcher *m = argument;
  if (e->kind != KILN_EXPR_VAR) return NULL;
  for (int i = 0; i < m->meant.n; i++)
    if (m->meant.data[i] == e->u.sym) return kiln_var(cx, m->found.data[i]);
  return NULL;
}

// The element's number in memory.
static const kiln_expr *address(matcher *m, const kiln_buffer *b, const kiln_expr *const *index) {
  kiln_ctx *cx = m->e.cx;
  const kiln_expr *sum = kiln_int(cx, 0);
  for (int k = 0; k < b->rank; k++)
    sum = kiln_add(cx, sum, kiln_mul(cx, index[k], kiln_int(cx, b->strides[k])));
  return sum;
}

static const kiln_expr *at_zero(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_vars *inner = argument;
  return e->kind == KILN_EXPR_VAR && kiln_vars_has(inner, e->u.sym) ? kiln_int(cx, 0) : NULL;
}

// Whether the nest's access to |b| at |index| is the meaning's access to |operand| at |meant|,
// relative to one first element.
static kiln_status match_access(matcher *m, int operand, const kiln_expr *const *meant, int buffer,
                                const kiln_expr *const *index) {
  kiln_ctx *cx = m->e.cx;
  const kiln_buffer *o = m->meaning->buffers.data[operand], *b = m->e.l->buffers.data[buffer];
  if (o->dtype != b->dtype) return mismatch(m, "operand type");
  const kiln_expr *base[KILN_MAX_AXES];
  for (int k = 0; k < b->rank; k++)
    base[k] = kiln_edit_simplify(&m->e, kiln_expr_replace(cx, index[k], at_zero, &m->inner));
  const kiln_expr *first = kiln_load(cx, buffer, b->dtype, b->rank, base);
  const kiln_expr *inside = kiln_expr_replace(cx, address(m, o, meant), rename_meant, m);
  const kiln_expr *want = kiln_add(cx, address(m, b, base), inside);
  const kiln_expr *rest = kiln_edit_simplify(&m->e, kiln_sub(cx, address(m, b, index), want));
  if (!kiln_expr_is_zero(rest)) return mismatch(m, "distance between an operand's elements");
  if (m->loads[operand] && m->loads[operand] != first)
    return mismatch(m, "first element of an operand");
  m->loads[operand] = first;
  return KILN_OK;
}

static kiln_status match_expr(matcher *m, const kiln_expr *meant, const kiln_expr *e) {
  if (meant->kind != e->kind || meant->dtype != e->dtype) return mismatch(m, "expression");
  if (e->kind == KILN_EXPR_LOAD)
    return match_access(m, meant->u.tensor, meant->args, e->u.tensor, e->args);
  if (e->n_args == 0)
    return kiln_expr_replace(m->e.cx, meant, rename_meant, m) == e
               ? KILN_OK
               : mismatch(m, "number or variable");
  if (meant->n_args != e->n_args) return mismatch(m, "expression");
  for (int i = 0; i < e->n_args; i++) KILN_TRY(match_expr(m, meant->args[i], e->args[i]));
  return KILN_OK;
}

static bool runs_once(const kiln_loop *l) {
  int64_t extent = 0;
  return l && l->kind == KILN_LOOP_FOR && kiln_expr_is_int(l->extent, &extent) && extent == 1;
}

static kiln_status match_list(matcher *m, const kiln_loop *meant, const kiln_loop *l);

static kiln_status match_node(matcher *m, const kiln_loop *meant, const kiln_loop *l) {
  while (runs_once(l) && !runs_once(meant) && !l->body->next) l = l->body;
  if (meant->kind != l->kind) return mismatch(m, "kind of statement");
  if (l->kind == KILN_LOOP_FOR) {
    if (meant->extent != l->extent) return mismatch(m, "extent of a loop");
    KILN_VEC_PUSH(&m->e.cx->perm, &m->meant, meant->var);
    KILN_VEC_PUSH(&m->e.cx->perm, &m->found, l->var);
    return match_list(m, meant->body, l->body);
  }
  if (l->kind != KILN_LOOP_STORE) return mismatch(m, "kind of statement");
  if (meant->combiner != l->combiner) return mismatch(m, "combination");
  KILN_TRY(match_access(m, meant->buffer, meant->index, l->buffer, l->index));
  return match_expr(m, meant->value, l->value);
}

static kiln_status match_list(matcher *m, const kiln_loop *meant, const kiln_loop *l) {
  for (; meant && l; meant = meant->next, l = l->next) KILN_TRY(match_node(m, meant, l));
  return meant || l ? mismatch(m, "number of statements") : KILN_OK;
}

kiln_status kiln_tensorize(kiln_schedule *s, kiln_symbol loop, kiln_instr *instr) {
  matcher m = {.e = kiln_edit_begin(s, "tensorize", loop), .instr = instr};
  kiln_ctx *cx = m.e.cx;
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&m.e, loop, &l));
  KILN_TRY(kiln_loops_parse(cx, instr->meaning, &m.meaning));
  if (l->how == KILN_PARALLEL) return kiln_edit_serial(&m.e, l);
  const int n = m.meaning->buffers.n;
  m.loads = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  m.inner = kiln_vars_under(cx, l->body);
  KILN_VEC_PUSH(&cx->perm, &m.inner, l->var);
  if (!m.meaning->body || m.meaning->body->next) return mismatch(&m, "number of statements");
  KILN_TRY(match_node(&m, m.meaning->body, l));
  for (int i = 0; i < n; i++)
    if (!m.loads[i]) return mismatch(&m, "number of operands");
  const kiln_symbol name = l->var;
  l->kind = KILN_LOOP_INSTR;
  l->var = 0;
  l->extent = NULL;
  l->body = NULL;
  l->how = KILN_SERIAL;
  l->instr = instr;
  l->n_operands = n;
  l->operands = m.loads;
  return kiln_edit_commit(&m.e, "tensorize %s %s", kiln_edit_word(&m.e, name), instr->name);
}
