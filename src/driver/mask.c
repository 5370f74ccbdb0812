// Values beyond the ends of axes: found where they follow, put where they do not.
#include "driver/mask.h"

#include <math.h>

typedef struct masker {
  kiln_ctx *cx;
  kiln_program *p;
  KILN_VEC(uint8_t) read; // by tensor: axes beyond whose end somebody reads
  KILN_VEC(uint8_t) set;  // those that were given |value| there
  KILN_VEC(double) value;
} masker;

static void grow(masker *m) {
  while (m->read.n < m->p->tensors.n) {
    KILN_VEC_PUSH(&m->cx->perm, &m->read, 0);
    KILN_VEC_PUSH(&m->cx->perm, &m->set, 0);
    KILN_VEC_PUSH(&m->cx->perm, &m->value, 0);
  }
}

// The axis of |load| whose index is |var| alone; -1: none, or another index uses it.
static int axis_of(const kiln_expr *load, kiln_symbol var) {
  int axis = -1;
  for (int k = 0; k < load->n_args; k++) {
    if (!kiln_expr_uses(load->args[k], var)) continue;
    if (axis >= 0 || load->args[k]->kind != KILN_EXPR_VAR) return -1;
    axis = k;
  }
  return axis;
}

static kiln_stmt *map_of(const masker *m, int tensor) {
  const kiln_tensor *t = m->p->tensors.data[tensor];
  kiln_stmt *s = t->def >= 0 && t->role != KILN_CONST ? m->p->stmts.data[t->def] : NULL;
  const bool is = s && s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
                  kiln_stmt_is_plain(m->cx, s);
  return is ? s : NULL;
}

// --- what is known ---

static bool known_at(masker *m, int tensor, int axis, double *out);

// The value of |e| where |var| is beyond the end. What is not known is taken to be finite where an infinity stands
// beside it, as the sums of scores and masks are.
static bool known(masker *m, const kiln_expr *e, kiln_symbol var, double *out) {
  double a = 0, b = 0;
  const bool has_a = e->n_args > 0 && e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_SELECT &&
                     known(m, e->args[0], var, &a),
             has_b = e->n_args > 1 && e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_SELECT &&
                     known(m, e->args[1], var, &b);
  switch ((int)e->kind) {
  case KILN_EXPR_FLOAT: *out = e->u.f; return true;
  case KILN_EXPR_LOAD: {
    const int axis = axis_of(e, var);
    return axis >= 0 && known_at(m, e->u.tensor, axis, out);
  }
  case KILN_EXPR_CAST: *out = a; return has_a && kiln_dtype_is_float(e->dtype);
  case KILN_EXPR_ADD:
    *out = has_a && has_b ? a + b : has_a ? a : b;
    return (has_a && has_b) || (has_a && isinf(a)) || (has_b && isinf(b));
  case KILN_EXPR_SUB:
    *out = has_a && has_b ? a - b : a;
    return (has_a && has_b) || (has_a && isinf(a));
  case KILN_EXPR_MUL:
    *out = has_a && has_b ? a * b : 0;
    return (has_a && has_b) || (has_a && a == 0) || (has_b && b == 0);
  case KILN_EXPR_DIV:
    *out = has_a && has_b && b != 0 ? a / b : 0;
    return (has_a && has_b && b != 0) || (has_a && a == 0);
  case KILN_EXPR_EXP: *out = exp(a); return has_a;
  default: return false;
  }
}

static bool known_at(masker *m, int tensor, int axis, double *out) {
  if (m->set.data[tensor] >> axis & 1) {
    *out = m->value.data[tensor];
    return true;
  }
  const kiln_stmt *s = map_of(m, tensor);
  return s && known(m, s->body, s->dims[axis].name, out);
}

// What |known| looked at is there beyond the end from now on.
static void note_read(masker *m, const kiln_expr *e, kiln_symbol var) {
  const int axis = e->kind == KILN_EXPR_LOAD ? axis_of(e, var) : -1;
  if (axis >= 0 && !(m->read.data[e->u.tensor] >> axis & 1)) {
    const kiln_stmt *s = map_of(m, e->u.tensor);
    m->read.data[e->u.tensor] |= (uint8_t)(1u << axis);
    if (s && !(m->set.data[e->u.tensor] >> axis & 1)) note_read(m, s->body, s->dims[axis].name);
  }
  for (int i = 0; i < e->n_args; i++) note_read(m, e->args[i], var);
}

// --- what is put ---

static const kiln_expr *within(kiln_ctx *cx, const kiln_expr *i, const kiln_expr *extent,
                               const kiln_expr *value, double beyond) {
  return kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, i, extent), value,
                     kiln_number(cx, value->dtype, beyond));
}

// A map of |load|'s tensor in front of |s|, which numbers the statements from |s| on anew.
static kiln_stmt *insert_map(masker *m, int before, const kiln_expr *load) {
  kiln_ctx *cx = m->cx;
  kiln_program *p = m->p;
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt *made = kiln_stmt_make(
      cx, p, kiln_arena_printf(&cx->perm, "%s_masked", kiln_symbol_text(cx, t->name)), t->dtype,
      t->rank, 0, t->shape);
  for (int k = 0; k < t->rank; k++) index[k] = kiln_stmt_var(cx, made, k);
  made->body = kiln_tensor_load(cx, t, index);
  made->origin = p->stmts.data[before]->origin;
  for (int i = p->stmts.n - 1; i > before; i--) p->stmts.data[i] = p->stmts.data[i - 1];
  p->stmts.data[before] = made;
  kiln_stmts_renumber(p);
  grow(m);
  return made;
}

typedef struct redirection {
  const kiln_expr *from, *to;
} redirection;

static const kiln_expr *redirect(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const redirection *r = argument;
  (void)cx;
  return e == r->from ? r->to : NULL;
}

// Gives what |load|, an operand of *s, reads beyond the end of |dim| the value |beyond|.
static bool put(masker *m, kiln_stmt *s, int dim, const kiln_expr *load, const kiln_expr *extent,
                double beyond) {
  kiln_ctx *cx = m->cx;
  const kiln_symbol var = s->dims[dim].name;
  const int axis = axis_of(load, var);
  if (axis < 0) return false;
  kiln_stmt *map = map_of(m, load->u.tensor);
  if (!map || m->set.data[load->u.tensor]) {
    map = insert_map(m, s->id, load);
    const redirection r = {load, kiln_tensor_load(cx, m->p->tensors.data[map->out],
                                                  (const kiln_expr *const *)load->args)};
    s->body = kiln_expr_replace(cx, s->body, redirect, (void *)(uintptr_t)&r);
  }
  map->body = within(cx, kiln_stmt_var(cx, map, axis), extent, map->body, beyond);
  m->set.data[map->out] |= (uint8_t)(1u << axis);
  m->value.data[map->out] = beyond;
  m->read.data[map->out] |= (uint8_t)(1u << axis);
  return true;
}

// Whether |load| reads |want| beyond the end, or, with |any|, any number.
static bool is_there(masker *m, const kiln_expr *load, kiln_symbol var, double want, bool any) {
  double value = 0;
  if (!known(m, load, var, &value) || !(any ? isfinite(value) : value == want)) return false;
  note_read(m, load, var);
  return true;
}

static bool is_load(const kiln_expr *e) {
  return e->kind == KILN_EXPR_LOAD && kiln_dtype_is_float(e->dtype);
}

static bool mask_operands(masker *m, kiln_stmt *s, int dim, const kiln_expr *extent) {
  const kiln_symbol var = s->dims[dim].name;
  const kiln_expr *e = s->body;
  if (s->combiner == KILN_COMBINE_MAX && is_load(e))
    return is_there(m, e, var, -INFINITY, false) || put(m, s, dim, e, extent, -INFINITY);
  if (s->combiner != KILN_COMBINE_SUM) return false;
  if (is_load(e)) return is_there(m, e, var, 0, false) || put(m, s, dim, e, extent, 0);
  if (e->kind != KILN_EXPR_MUL || !is_load(e->args[0]) || !is_load(e->args[1])) return false;
  for (int i = 0; i < 2; i++) { // 0 times a number, not times what may be none
    const kiln_expr *operand = s->body->args[i];
    if (!is_there(m, operand, var, 0, true) && !put(m, s, dim, operand, extent, 0)) return false;
  }
  for (int i = 0; i < 2; i++)
    if (is_there(m, s->body->args[i], var, 0, false)) return true;
  return put(m, s, dim, s->body->args[0], extent, 0);
}

void kiln_program_mask(kiln_ctx *cx, kiln_program *p, int n, const kiln_reach *reaches,
                       kiln_masked *out) {
  masker m = {.cx = cx, .p = p};
  kiln_stmt **stmts = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n); // whose numbers change
  grow(&m);
  for (int i = 0; i < n; i++) stmts[i] = p->stmts.data[reaches[i].stmt];
  for (int i = 0; i < n; i++) {
    kiln_stmt *s = stmts[i];
    const kiln_reach *r = &reaches[i];
    if (mask_operands(&m, s, r->dim, r->extent)) continue;
    const kiln_expr *inside =
        kiln_binary(cx, KILN_EXPR_LT, kiln_stmt_var(cx, s, r->dim), r->extent);
    s->guard = s->guard ? kiln_binary(cx, KILN_EXPR_AND, s->guard, inside) : inside;
  }
  *out = (kiln_masked){m.read.n, m.read.data};
}
