// Neutral-element padding: an abstract interpretation finds the values of tensors beyond the ends
// of their axes; a select is inserted where they are not neutral for the reduction that reads them.
#include "dynamic/neutral_padding.h"

#include <math.h>
#include <stdlib.h>

typedef struct padder {
  kiln_ctx *cx;
  kiln_program *p;
  KILN_VEC(uint8_t) read; // by tensor: axes whose padding is read
  KILN_VEC(uint8_t) set;  // by tensor: axes padded with |value|
  KILN_VEC(double) value;
} padder;

static void grow(padder *m) {
  while (m->read.n < m->p->tensors.n) {
    KILN_VEC_PUSH(&m->cx->perm, &m->read, 0);
    KILN_VEC_PUSH(&m->cx->perm, &m->set, 0);
    KILN_VEC_PUSH(&m->cx->perm, &m->value, 0);
  }
}

// The axis of |load| indexed by |var| itself; -1: none, or another index uses it.
static int axis_of(const kiln_expr *load, kiln_symbol var) {
  int axis = -1;
  for (int k = 0; k < load->n_args; k++) {
    if (!kiln_expr_uses(load->args[k], var)) continue;
    if (axis >= 0 || load->args[k]->kind != KILN_EXPR_VAR) return -1;
    axis = k;
  }
  return axis;
}

static kiln_stmt *map_of(const padder *m, int tensor) {
  const kiln_tensor *t = m->p->tensors.data[tensor];
  kiln_stmt *s = t->def >= 0 && t->role != KILN_CONST ? m->p->stmts.data[t->def] : NULL;
  const bool is = s && s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
                  kiln_stmt_is_plain(m->cx, s);
  return is ? s : NULL;
}

// --- abstract values ---

// An axis of a tensor, with the abstract value of its padding.
typedef struct end {
  int tensor, axis;
  bool is_known;
  double value;
} end;

// The ends on which an end depends, each once.
typedef struct ends {
  padder *m;
  kiln_symbol var;  // the current statement's index into its operands
  kiln_map numbers; // (tensor, axis) -> index in |list|
  KILN_VEC(end) list;
} ends;

static uint64_t key_of(int tensor, int axis) {
  return (uint64_t)tensor * KILN_MAX_RANK + (uint64_t)axis;
}

static bool is_set(const padder *m, int tensor, int axis) {
  return m->set.data[tensor] >> axis & 1;
}

static void add_end(ends *all, int tensor, int axis) {
  const uint64_t key = key_of(tensor, axis);
  if (kiln_map_find(&all->numbers, key)) return;
  kiln_map_put(&all->numbers, key, (uint64_t)all->list.n);
  const end one = {.tensor = tensor, .axis = axis};
  KILN_VEC_PUSH(&all->m->cx->scratch, &all->list, one);
}

static kiln_search find_end(const kiln_expr *e, void *argument) {
  ends *all = argument;
  const int axis = e->kind == KILN_EXPR_LOAD ? axis_of(e, all->var) : -1;
  if (axis >= 0) add_end(all, e->u.tensor, axis);
  return e->has_load ? KILN_SEARCH_INTO : KILN_SEARCH_PAST;
}

// The abstract value of |e|, given those of its arguments in |done|. Unknown values combined with
// an infinity are assumed to be finite, as in sums of scores and masks.
static end value_of(const ends *all, const kiln_map *done, const kiln_expr *e) {
  end a = {0}, b = {0}, out = {0};
  if (e->kind == KILN_EXPR_FLOAT) return (end){.is_known = true, .value = e->u.f};
  if (e->kind == KILN_EXPR_LOAD) {
    const int axis = axis_of(e, all->var);
    if (axis >= 0) out = all->list.data[*kiln_map_find(&all->numbers, key_of(e->u.tensor, axis))];
    return out;
  }
  if (e->n_args > 0) a = *(const end *)(uintptr_t)*kiln_map_find(done, e->args[0]->id);
  if (e->n_args > 1) b = *(const end *)(uintptr_t)*kiln_map_find(done, e->args[1]->id);
  const bool both = a.is_known && b.is_known;
  switch ((int)e->kind) {
  case KILN_EXPR_CAST:
    return (end){.is_known = a.is_known && kiln_dtype_is_float(e->dtype), .value = a.value};
  case KILN_EXPR_ADD:
    out.value = both ? a.value + b.value : a.is_known ? a.value : b.value;
    out.is_known = both || (a.is_known && isinf(a.value)) || (b.is_known && isinf(b.value));
    return out;
  case KILN_EXPR_SUB:
    return (end){.is_known = both || (a.is_known && isinf(a.value)),
                 .value = both ? a.value - b.value : a.value};
  case KILN_EXPR_MUL:
    out.value = both ? a.value * b.value : 0;
    out.is_known = both || (a.is_known && a.value == 0) || (b.is_known && b.value == 0);
    return out;
  case KILN_EXPR_DIV:
    out.value = both && b.value != 0 ? a.value / b.value : 0;
    out.is_known = (both && b.value != 0) || (a.is_known && a.value == 0);
    return out;
  case KILN_EXPR_EXP: return (end){.is_known = a.is_known, .value = exp(a.value)};
  default: return out;
  }
}

typedef struct valuing {
  const ends *all;
  kiln_map done; // node -> value
} valuing;

static void add_value(const kiln_expr *e, void *argument) {
  valuing *v = argument;
  end *value = KILN_NEW(&v->all->m->cx->scratch, end);
  *value = value_of(v->all, &v->done, e);
  kiln_map_put(&v->done, e->id, (uint64_t)(uintptr_t)value);
}

// The value of |e| where |all->var| is beyond the end.
static end find_value(const ends *all, const kiln_expr *e) {
  kiln_ctx *cx = all->m->cx;
  valuing v = {.all = all};
  kiln_map_init(&v.done, &cx->scratch);
  kiln_expr_visit(cx, e, add_value, &v);
  return *(const end *)(uintptr_t)*kiln_map_find(&v.done, e->id);
}

static int by_key(const void *a, const void *b) {
  const kiln_map_entry *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

static int definition_of(const padder *m, const end *e) {
  return m->p->tensors.data[e->tensor]->def;
}

// Indices of |all|'s list in definition order of the tensors, operands first.
static int *by_definition(const ends *all) {
  const int n = all->list.n;
  kiln_map_entry *keys = KILN_NEW_ARRAY(&all->m->cx->scratch, kiln_map_entry, n);
  int *order = KILN_NEW_ARRAY(&all->m->cx->scratch, int, n);
  for (int i = 0; i < n; i++)
    keys[i] =
        (kiln_map_entry){(uint64_t)(definition_of(all->m, &all->list.data[i]) + 1), (uint64_t)i};
  if (n > 1) qsort(keys, (size_t)n, sizeof *keys, by_key);
  for (int i = 0; i < n; i++) order[i] = (int)keys[i].value;
  return order;
}

// The value of |load| where |var| is beyond the end; for maps it is derived from their operands.
static bool known(padder *m, const kiln_expr *load, kiln_symbol var, double *out) {
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  ends all = {.m = m};
  kiln_map_init(&all.numbers, &m->cx->scratch);
  if (axis_of(load, var) >= 0) add_end(&all, load->u.tensor, axis_of(load, var));
  for (int i = 0; i < all.list.n; i++) {
    const end e = all.list.data[i];
    const kiln_stmt *s = is_set(m, e.tensor, e.axis) ? NULL : map_of(m, e.tensor);
    if (!s) continue;
    all.var = s->dims[e.axis].name;
    (void)kiln_expr_search(m->cx, s->body, find_end, &all);
  }
  const int *order = by_definition(&all);
  for (int i = 0; i < all.list.n; i++) {
    end *e = &all.list.data[order[i]];
    const kiln_stmt *s = map_of(m, e->tensor);
    if (is_set(m, e->tensor, e->axis)) {
      e->is_known = true;
      e->value = m->value.data[e->tensor];
    } else if (s) {
      all.var = s->dims[e->axis].name;
      const end found = find_value(&all, s->body);
      e->is_known = found.is_known;
      e->value = found.value;
    }
  }
  const bool is_known = all.list.n > 0 && all.list.data[0].is_known;
  if (is_known) *out = all.list.data[0].value;
  kiln_arena_rewind(&m->cx->scratch, mark);
  return is_known;
}

// Marks the padding that |known| relied on as read.
static void note_read(padder *m, const kiln_expr *load, kiln_symbol var) {
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  ends all = {.m = m, .var = var};
  kiln_map_init(&all.numbers, &m->cx->scratch);
  (void)kiln_expr_search(m->cx, load, find_end, &all);
  for (int i = 0; i < all.list.n; i++) {
    const end e = all.list.data[i];
    uint8_t *read = &m->read.data[e.tensor];
    const kiln_stmt *s = map_of(m, e.tensor);
    if (*read >> e.axis & 1) continue;
    *read |= (uint8_t)(1u << e.axis);
    if (!s || is_set(m, e.tensor, e.axis)) continue;
    all.var = s->dims[e.axis].name;
    (void)kiln_expr_search(m->cx, s->body, find_end, &all);
  }
  kiln_arena_rewind(&m->cx->scratch, mark);
}

// --- insertion of selects ---

static const kiln_expr *within(kiln_ctx *cx, const kiln_expr *i, const kiln_expr *extent,
                               const kiln_expr *value, double beyond) {
  return kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, i, extent), value,
                     kiln_number(cx, value->dtype, beyond));
}

// Inserts a copy of |load|'s tensor as a map before statement |before|; later statements are
// renumbered.
static kiln_stmt *insert_map(padder *m, int before, const kiln_expr *load) {
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

// Pads |load|, an operand of *s, with |beyond| past the end of |dim|.
static bool put(padder *m, kiln_stmt *s, int dim, const kiln_expr *load, const kiln_expr *extent,
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

// Whether |load| has the value |want| beyond the end, or with |any| some finite value.
static bool is_there(padder *m, const kiln_expr *load, kiln_symbol var, double want, bool any) {
  double value = 0;
  if (!known(m, load, var, &value) || !(any ? isfinite(value) : value == want)) return false;
  note_read(m, load, var);
  return true;
}

static bool is_load(const kiln_expr *e) {
  return e->kind == KILN_EXPR_LOAD && kiln_dtype_is_float(e->dtype);
}

static bool pad_operands(padder *m, kiln_stmt *s, int dim, const kiln_expr *extent) {
  const kiln_symbol var = s->dims[dim].name;
  const kiln_expr *e = s->body;
  if (s->combiner == KILN_COMBINE_MAX && is_load(e))
    return is_there(m, e, var, -INFINITY, false) || put(m, s, dim, e, extent, -INFINITY);
  if (s->combiner != KILN_COMBINE_SUM) return false;
  if (is_load(e)) return is_there(m, e, var, 0, false) || put(m, s, dim, e, extent, 0);
  if (e->kind != KILN_EXPR_MUL || !is_load(e->args[0]) || !is_load(e->args[1])) return false;
  // 0 times a finite number is 0; the other factor may be NaN or infinite.
  for (int i = 0; i < 2; i++) {
    const kiln_expr *operand = s->body->args[i];
    if (!is_there(m, operand, var, 0, true) && !put(m, s, dim, operand, extent, 0)) return false;
  }
  for (int i = 0; i < 2; i++)
    if (is_there(m, s->body->args[i], var, 0, false)) return true;
  return put(m, s, dim, s->body->args[0], extent, 0);
}

void kiln_program_pad_neutrally(kiln_ctx *cx, kiln_program *p, int n, const kiln_reach *reaches,
                                kiln_neutrally_padded *out) {
  padder m = {.cx = cx, .p = p};
  kiln_stmt **stmts = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n); // ids change during insertion
  grow(&m);
  for (int i = 0; i < n; i++) stmts[i] = p->stmts.data[reaches[i].stmt];
  for (int i = 0; i < n; i++) {
    kiln_stmt *s = stmts[i];
    const kiln_reach *r = &reaches[i];
    // padding would index a scatter's writes: no value is harmless there
    if (!kiln_stmt_is_scatter(p, s) && pad_operands(&m, s, r->dim, r->extent)) continue;
    const kiln_expr *inside =
        kiln_binary(cx, KILN_EXPR_LT, kiln_stmt_var(cx, s, r->dim), r->extent);
    s->guard = s->guard ? kiln_binary(cx, KILN_EXPR_AND, s->guard, inside) : inside;
  }
  *out = (kiln_neutrally_padded){m.read.n, m.read.data};
}
