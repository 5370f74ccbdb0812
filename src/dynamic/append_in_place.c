// Appends in place: which rows of an output are those of a state's input is proved by simplifying
// its statement at the indices p - 1 - i and p + i, for all i from 0 on.
#include "dynamic/append_in_place.h"

#include "analysis/simplify.h"
#include "dynamic/ranges.h"

// A state and the axis along which it grows. Extents are over variables of the dimensions that no
// statement has as a dim.
typedef struct growth {
  kiln_ctx *cx;
  const kiln_model *m;
  kiln_state_ports *ports;
  kiln_symbol dims[KILN_MAX_DIMS];
  int axis;
  const kiln_expr *old, *added;  // extents along the axis, before the run and by it
  const kiln_expr *const *shape; // of the output, over the model's names
  int64_t capacity;              // of the axis
} growth;

// A bucket's statement that appends.
typedef struct append {
  growth *g;
  kiln_bucket *part;
  kiln_program *p;
  kiln_tensor *in, *out;
  kiln_stmt *s;
  int64_t most;           // rows
  const kiln_expr *added; // s->body, at the new rows
} append;

static const kiln_expr *over_dims(const growth *g, const kiln_expr *e) {
  const kiln_model_ranges *r = g->m->ranges;
  const kiln_expr *vars[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) vars[d] = kiln_var(g->cx, g->dims[d]);
  return kiln_expr_substitute(g->cx, e, r->n_dims, r->symbols, vars);
}

// Finds the only axis whose extent differs.
static bool find_growth(growth *g) {
  const kiln_model_ranges *r = g->m->ranges;
  const int rank = g->m->inputs.ports[g->ports->input].rank;
  const kiln_expr *const *in = r->in_shapes[g->ports->input];
  int n = 0;
  g->shape = r->out_shapes[g->ports->output];
  for (int a = 0; a < rank; a++) {
    const kiln_expr *from = kiln_simplify(g->cx, over_dims(g, in[a]), NULL),
                    *to = kiln_simplify(g->cx, over_dims(g, g->shape[a]), NULL);
    if (from == to) continue;
    n++;
    g->axis = a;
    g->old = from;
    g->added = kiln_simplify(g->cx, kiln_sub(g->cx, to, from), NULL);
  }
  return n == 1;
}

// --- recognition ---

static kiln_ranges ranges_of(const append *a, kiln_arena *arena) {
  kiln_ranges r = kiln_stmt_ranges(arena, a->s);
  for (int d = 0; d < a->g->m->ranges->n_dims; d++)
    kiln_ranges_push(&r, a->g->dims[d], a->part->least[d], a->part->most[d]);
  return r;
}

typedef struct naming {
  const append *a;
  int input; // the tensor with the dimensions' values
} naming;

static const kiln_expr *name_dim(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const naming *n = argument;
  int64_t d = 0;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != n->input) return NULL;
  return kiln_expr_is_int(e->args[0], &d) ? kiln_var(cx, n->a->g->dims[d]) : NULL;
}

static const kiln_expr *read_dims(const append *a, const kiln_expr *e) {
  const kiln_tensor *dims = a->p->tensors.data[a->p->inputs.data[a->p->inputs.n - 1]];
  const kiln_expr *loads[KILN_MAX_DIMS];
  const int n = a->g->m->ranges->n_dims;
  for (int d = 0; d < n; d++) {
    const kiln_expr *at = kiln_int(a->g->cx, d);
    loads[d] = kiln_tensor_load(a->g->cx, dims, &at);
  }
  return kiln_expr_substitute(a->g->cx, e, n, a->g->dims, loads);
}

// The statement's value where its index along the axis is |at|, over variables of the dimensions.
static const kiln_expr *value_at(const append *a, const kiln_expr *at, const kiln_ranges *r) {
  kiln_ctx *cx = a->g->cx;
  naming n = {a, a->p->inputs.data[a->p->inputs.n - 1]};
  const kiln_expr *body = kiln_expr_replace(cx, a->s->body, name_dim, &n);
  body = kiln_expr_substitute(cx, body, 1, &a->s->dims[a->g->axis].name, &at);
  return kiln_simplify(cx, body, r);
}

static bool keeps_old_rows(const append *a, const kiln_ranges *r, kiln_symbol behind) {
  kiln_ctx *cx = a->g->cx;
  const kiln_expr *index[KILN_MAX_RANK], *last = kiln_sub(cx, a->g->old, kiln_int(cx, 1));
  const kiln_expr *at = kiln_simplify(cx, kiln_sub(cx, last, kiln_var(cx, behind)), r);
  for (int k = 0; k < a->in->rank; k++)
    index[k] = k == a->g->axis ? at : kiln_stmt_var(cx, a->s, k);
  return value_at(a, at, r) == kiln_simplify(cx, kiln_tensor_load(cx, a->in, index), r);
}

// Whether rows behind the run's may be 0: they are, or are nothing that is read. Where a reduction
// reads them, they have its neutral element, as -inf for a maximum.
static bool may_end_with_zeros(const append *a, const kiln_ranges *r, kiln_symbol behind) {
  kiln_ctx *cx = a->g->cx;
  const kiln_expr *end = kiln_add(cx, a->g->old, a->g->added);
  const kiln_expr *pad = value_at(a, kiln_add(cx, end, kiln_var(cx, behind)), r);
  return pad->has_load || pad == kiln_number(cx, a->out->dtype, 0);
}

// Finds the statement of the output, and what it adds.
static bool find_append(growth *g, kiln_bucket *part, append *out) {
  kiln_ctx *cx = g->cx;
  kiln_program *p = kiln_program_copy(cx, part->prog);
  append a = {.g = g, .part = part, .p = p};
  a.in = p->tensors.data[p->inputs.data[g->ports->input]];
  a.out = p->tensors.data[p->outputs.data[g->ports->output]];
  if (a.out->def < 0 || a.in->role != KILN_INPUT || a.in->rank != a.out->rank) return false;
  a.s = p->stmts.data[a.out->def];
  if (a.s->n_reduce || a.s->guard || !kiln_stmt_is_plain(cx, a.s)) return false;
  kiln_ranges r = ranges_of(&a, &cx->perm);
  const kiln_interval old = kiln_expr_interval(cx, g->old, &r),
                      added = kiln_expr_interval(cx, g->added, &r);
  const int64_t room = kiln_expr_int_or(a.out->shape[g->axis], -1);
  if (old.lo < 0 || added.lo < 0 || added.hi > room || old.hi > room - added.hi) return false;
  const kiln_symbol step = a.s->dims[g->axis].name;
  kiln_ranges_push(&r, step, 0, old.hi > 0 ? old.hi - 1 : 0);
  if (old.hi > 0 && !keeps_old_rows(&a, &r, step)) return false;
  kiln_ranges_pop(&r, 1);
  a.most = added.hi;
  kiln_ranges_push(&r, step, 0, a.most > 0 ? a.most - 1 : 0);
  if (!may_end_with_zeros(&a, &r, step)) return false;
  a.added = value_at(&a, kiln_add(cx, g->old, kiln_var(cx, step)), &r);
  if (room > g->capacity) g->capacity = room;
  *out = a;
  return true;
}

// --- the change ---

// Gives |t| the capacity's extent along the axis; where all of an axis was needed, still all is.
static void widen(append *a, kiln_tensor *t) {
  const kiln_expr **shape = KILN_NEW_ARRAY(&a->g->cx->perm, const kiln_expr *, t->rank);
  for (int k = 0; k < t->rank; k++)
    shape[k] = k == a->g->axis ? kiln_int(a->g->cx, a->g->capacity) : t->shape[k];
  for (int i = 0; i < a->part->live.n; i++) {
    kiln_live *l = &a->part->live.data[i];
    if (l->id != t->id || l->tensor != t->name) continue;
    const kiln_expr **extents = KILN_NEW_ARRAY(&a->g->cx->perm, const kiln_expr *, t->rank);
    for (int k = 0; k < t->rank; k++)
      extents[k] = l->extents[k] == l->most[k] ? shape[k] : l->extents[k];
    l->extents = extents;
    l->most = shape;
  }
  t->shape = shape;
}

// Makes the new rows a tensor, before the statement that stores them.
static kiln_tensor *add_rows(append *a) {
  kiln_ctx *cx = a->g->cx;
  kiln_program *p = a->p;
  const int before = a->s->id, rank = a->out->rank, axis = a->g->axis;
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int k = 0; k < rank; k++) shape[k] = k == axis ? kiln_int(cx, a->most) : a->out->shape[k];
  const char *name = kiln_arena_printf(&cx->perm, "%s_added", kiln_symbol_text(cx, a->out->name));
  kiln_stmt *rows = kiln_stmt_make(cx, p, name, a->out->dtype, rank, 0, shape);
  const kiln_expr *vars[KILN_MAX_RANK];
  kiln_symbol names[KILN_MAX_RANK];
  for (int k = 0; k < rank; k++) {
    names[k] = a->s->dims[k].name;
    vars[k] = kiln_stmt_var(cx, rows, k);
  }
  rows->body = kiln_expr_substitute(cx, read_dims(a, a->added), rank, names, vars);
  rows->origin = a->s->origin;
  for (int i = p->stmts.n - 1; i > before; i--) p->stmts.data[i] = p->stmts.data[i - 1];
  p->stmts.data[before] = rows;
  kiln_stmts_renumber(p);
  kiln_tensor *t = p->tensors.data[rows->out];
  kiln_live live = {.tensor = t->name, .id = t->id, .rank = rank, .most = t->shape};
  live.extents = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, rank);
  for (int k = 0; k < rank; k++) live.extents[k] = a->g->shape[k];
  const kiln_model_ranges *r = a->g->m->ranges;
  const kiln_expr *symbols[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) symbols[d] = kiln_var(cx, r->symbols[d]);
  live.extents[axis] = kiln_expr_substitute(cx, a->g->added, r->n_dims, a->g->dims, symbols);
  KILN_VEC_PUSH(&cx->perm, &a->part->live, live);
  return t;
}

// The condition that an element is within the run's extents; NULL: all are.
static const kiln_expr *within_run(append *a) {
  kiln_ctx *cx = a->g->cx;
  const kiln_expr *all = NULL;
  kiln_ranges r = ranges_of(a, &cx->scratch);
  for (int k = 0; k < a->out->rank; k++) {
    const kiln_expr *end = k == a->g->axis ? a->g->added : over_dims(a->g, a->g->shape[k]);
    const kiln_expr *is =
        kiln_simplify(cx, kiln_binary(cx, KILN_EXPR_LT, kiln_stmt_var(cx, a->s, k), end), &r);
    if (kiln_expr_int_or(is, 0) != 0) continue;
    all = all ? kiln_binary(cx, KILN_EXPR_AND, all, is) : is;
  }
  return all ? read_dims(a, all) : NULL;
}

static void store_rows(append *a) {
  kiln_ctx *cx = a->g->cx;
  kiln_stmt *s = a->s;
  const int rank = a->out->rank, axis = a->g->axis;
  const kiln_tensor *rows = add_rows(a);
  const kiln_expr *vars[KILN_MAX_RANK], *elements[KILN_MAX_RANK];
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, rank);
  widen(a, a->in);
  widen(a, a->out);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, rank);
  for (int k = 0; k < rank; k++) {
    dims[k] = (kiln_dim){s->dims[k].name, rows->shape[k]};
    s->index[k] = vars[k] = kiln_var(cx, dims[k].name);
    elements[k] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", k));
  }
  s->dims = dims;
  s->index[axis] = kiln_add(cx, read_dims(a, a->g->old), vars[axis]);
  s->body = kiln_tensor_load(cx, rows, vars);
  s->guard = within_run(a);
  s->init = kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, elements[axis], read_dims(a, a->g->old)),
                        kiln_tensor_load(cx, a->in, elements), kiln_number(cx, a->out->dtype, 0));
}

// --- its readers ---

// A reader of the output, and the length that a run ends with.
typedef struct reader {
  append *a;
  kiln_ranges ranges;
  const kiln_expr *end;
} reader;

// Whether |c| says that |index| is within the run's length.
static bool is_within(reader *r, const kiln_expr *c, const kiln_expr *index) {
  kiln_ctx *cx = r->a->g->cx;
  naming n = {r->a, r->a->p->inputs.data[r->a->p->inputs.n - 1]};
  const kiln_expr *is = kiln_binary(cx, KILN_EXPR_LT, index, r->end);
  is = kiln_simplify(cx, kiln_expr_replace(cx, is, name_dim, &n), &r->ranges);
  return is == kiln_simplify(cx, kiln_expr_replace(cx, c, name_dim, &n), &r->ranges);
}

// An element of the output where it is within the length, else 0, is the element: it is 0 there.
static const kiln_expr *unmasked(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  reader *r = argument;
  if (e->kind != KILN_EXPR_SELECT || !kiln_expr_is_zero(e->args[2])) return NULL;
  const kiln_expr *load = kiln_expr_uncast(e->args[1]), *c = e->args[0];
  if (load->kind != KILN_EXPR_LOAD || load->u.tensor != r->a->out->id) return NULL;
  const kiln_expr *index = load->args[r->a->g->axis];
  if (is_within(r, c, index)) return e->args[1];
  for (int k = 0; k < 2 && c->kind == KILN_EXPR_AND; k++)
    if (is_within(r, c->args[k], index))
      return kiln_select(cx, c->args[1 - k], e->args[1], e->args[2]);
  return NULL;
}

static void unmask_readers(append *a) {
  kiln_ctx *cx = a->g->cx;
  for (int i = 0; i < a->p->stmts.n; i++) {
    kiln_stmt *s = a->p->stmts.data[i];
    if (!s || s == a->s || !kiln_expr_loads(cx, s->body, a->out->id)) continue;
    reader r = {a, kiln_stmt_ranges(&cx->perm, s), kiln_add(cx, a->g->old, a->g->added)};
    for (int d = 0; d < a->g->m->ranges->n_dims; d++)
      kiln_ranges_push(&r.ranges, a->g->dims[d], a->part->least[d], a->part->most[d]);
    s->body = kiln_expr_replace(cx, s->body, unmasked, &r);
  }
}

static void append_in_place(kiln_ctx *cx, kiln_model *m, kiln_state_ports *ports) {
  kiln_model_ranges *r = m->ranges;
  growth g = {.cx = cx, .m = m, .ports = ports};
  for (int d = 0; d < r->n_dims; d++) g.dims[d] = kiln_symbol_printf(cx, "dims(%d)", d);
  if (!find_growth(&g)) return;
  append *all = KILN_NEW_ARRAY(&cx->perm, append, r->n_buckets);
  for (int i = 0; i < r->n_buckets; i++)
    if (!find_append(&g, &r->buckets[i], &all[i])) return;
  for (int i = 0; i < r->n_buckets; i++) {
    store_rows(&all[i]);
    unmask_readers(&all[i]);
    r->buckets[i].prog = all[i].p;
  }
  ports->grows = true;
}

void kiln_states_append_in_place(kiln_ctx *cx, kiln_model *m) {
  if (!m->ranges || m->states.n == 0) return;
  for (int i = 0; i < m->states.n; i++) append_in_place(cx, m, &m->states.data[i]);
  kiln_ranges_signatures(cx, m);
}
