// Prim programs: construction of tensors and statements, and simple queries.
#include "ir/prim.h"

#include <math.h>
#include <string.h>

kiln_program *kiln_program_make(kiln_ctx *cx, const char *name) {
  kiln_program *p = KILN_NEW(&cx->perm, kiln_program);
  p->name = kiln_symbol_of(cx, name);
  return p;
}

// |name|, or |name|_1, |name|_2, ... if it is taken. Remembers the last suffix, so that a thousand
// tensors of one name take linear time.
static kiln_symbol unique_name(kiln_ctx *cx, kiln_program *p, const char *name) {
  if (!p->names.arena) kiln_map_init(&p->names, &cx->perm);
  const kiln_symbol wanted = kiln_symbol_of(cx, *name ? name : "t");
  const uint64_t *taken = kiln_map_find(&p->names, wanted);
  kiln_symbol s = wanted;
  uint64_t suffix = taken ? *taken : 0;
  while (kiln_map_find(&p->names, s))
    s = kiln_symbol_printf(cx, "%s_%" PRIu64, kiln_symbol_text(cx, wanted), ++suffix);
  if (taken) kiln_map_put(&p->names, wanted, suffix);
  kiln_map_put(&p->names, s, 0);
  return s;
}

kiln_tensor *kiln_tensor_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                              kiln_role role, int rank, const kiln_expr *const *shape) {
  KILN_ASSERT(rank >= 0 && rank <= KILN_MAX_RANK);
  kiln_tensor *x = KILN_NEW(&cx->perm, kiln_tensor);
  x->id = p->tensors.n;
  x->name = unique_name(cx, p, name);
  x->dtype = t;
  x->role = role;
  x->rank = rank;
  x->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, rank);
  x->def = -1;
  for (int i = 0; i < rank; i++) x->shape[i] = shape[i];
  for (int i = 0; i < KILN_MAX_RANK; i++) x->order[i] = (int8_t)i;
  KILN_VEC_PUSH(&cx->perm, &p->tensors, x);
  return x;
}

kiln_tensor *kiln_tensor_make_const(kiln_ctx *cx, kiln_program *p, const char *name,
                                    const kiln_const *c) {
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int i = 0; i < c->rank; i++) shape[i] = kiln_int(cx, c->shape[i]);
  kiln_tensor *x = kiln_tensor_make(cx, p, name, c->dtype, KILN_CONST, c->rank, shape);
  x->data = c->data;
  x->bytes = c->bytes;
  return x;
}

kiln_stmt *kiln_stmt_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                          int n_space, int n_reduce, const kiln_expr *const *extents) {
  kiln_tensor *out = kiln_tensor_make(cx, p, name, t, KILN_TEMP, n_space, extents);
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  s->out = out->id;
  s->n_space = n_space;
  s->n_reduce = n_reduce;
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n_space + n_reduce);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n_space);
  for (int i = 0; i < n_space + n_reduce; i++) {
    const bool space = i < n_space;
    s->dims[i].name = kiln_symbol_printf(cx, "%c%d", space ? 'i' : 'r', space ? i : i - n_space);
    s->dims[i].extent = extents[i];
    if (space) s->index[i] = kiln_stmt_var(cx, s, i);
  }
  kiln_stmt_append(cx, p, s);
  return s;
}

void kiln_stmt_append(kiln_ctx *cx, kiln_program *p, kiln_stmt *s) {
  s->id = p->stmts.n;
  p->tensors.data[s->out]->def = s->id;
  KILN_VEC_PUSH(&cx->perm, &p->stmts, s);
}

void kiln_stmts_compact(kiln_program *p) {
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]) p->stmts.data[n++] = p->stmts.data[i];
  p->stmts.n = n;
  for (int t = 0; t < p->tensors.n; t++)
    if (p->tensors.data[t]) p->tensors.data[t]->def = -1;
  kiln_stmts_renumber(p);
}

void kiln_stmts_renumber(kiln_program *p) {
  for (int i = 0; i < p->stmts.n; i++) {
    p->stmts.data[i]->id = i;
    p->tensors.data[p->stmts.data[i]->out]->def = i;
  }
}

static const kiln_expr *renumbered(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const int *ids = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], renumbered, argument);
  return kiln_load(cx, ids[e->u.tensor], e->dtype, e->n_args, index);
}

static void renumber_loads(kiln_ctx *cx, kiln_stmt *s, int *ids) {
  const kiln_expr **all[] = {&s->body, &s->guard, &s->init};
  for (size_t i = 0; i < KILN_LEN(all); i++)
    if (*all[i]) *all[i] = kiln_expr_replace(cx, *all[i], renumbered, ids);
  for (int d = 0; d < s->n_space; d++)
    if (s->index[d]) s->index[d] = kiln_expr_replace(cx, s->index[d], renumbered, ids);
}

void kiln_program_drop_unwritten(kiln_ctx *cx, kiln_program *p) {
  int *ids = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n), n = 0;
  for (int i = 0; i < p->tensors.n; i++) {
    kiln_tensor *t = p->tensors.data[i];
    bool stays = t->role != KILN_TEMP;
    for (int s = 0; s < p->stmts.n; s++) stays |= p->stmts.data[s]->out == t->id;
    ids[i] = stays ? n : -1;
    if (stays) p->tensors.data[n++] = t;
  }
  p->tensors.n = n;
  for (int i = 0; i < n; i++) p->tensors.data[i]->id = i;
  for (int s = 0; s < p->stmts.n; s++) {
    p->stmts.data[s]->out = ids[p->stmts.data[s]->out];
    renumber_loads(cx, p->stmts.data[s], ids);
  }
  for (int i = 0; i < p->inputs.n; i++) p->inputs.data[i] = ids[p->inputs.data[i]];
  for (int i = 0; i < p->outputs.n; i++) p->outputs.data[i] = ids[p->outputs.data[i]];
}

int kiln_program_n_results(const kiln_program *p) {
  return p->outputs.n - p->shape_of.n - (p->checks.n > 0);
}

bool kiln_tensor_is_output(const kiln_program *p, int tensor) {
  for (int i = 0; i < p->outputs.n; i++)
    if (p->outputs.data[i] == tensor) return true;
  return false;
}

bool kiln_tensor_is_param(const kiln_program *p, int tensor) {
  return p->tensors.data[tensor]->role != KILN_TEMP || kiln_tensor_is_output(p, tensor);
}

void kiln_outputs_mark(kiln_program *p) {
  for (int i = 0; i < p->outputs.n; i++) {
    kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    if (t->role == KILN_TEMP) t->role = KILN_OUTPUT;
  }
}

static int find_dim(const kiln_stmt *s, kiln_symbol name, int n) {
  for (int d = 0; d < n; d++)
    if (s->dims[d].name == name) return d;
  return -1;
}

int kiln_stmt_dim(const kiln_stmt *s, kiln_symbol name) {
  return find_dim(s, name, s->n_space + s->n_reduce);
}

int kiln_stmt_space_dim(const kiln_stmt *s, kiln_symbol name) {
  return find_dim(s, name, s->n_space);
}

int kiln_stmt_dim_of(const kiln_stmt *s, const kiln_expr *e) {
  return e->kind == KILN_EXPR_VAR ? kiln_stmt_dim(s, e->u.sym) : -1;
}

bool kiln_stmt_reduces_along(const kiln_stmt *s, const kiln_expr *e) {
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    if (kiln_expr_uses(e, s->dims[d].name)) return true;
  return false;
}

int64_t kiln_dim_extent(const kiln_dim *d) { return kiln_expr_int_or(d->extent, 1); }

const kiln_expr *kiln_stmt_var(kiln_ctx *cx, const kiln_stmt *s, int dim) {
  return kiln_var(cx, s->dims[dim].name);
}

const kiln_expr *kiln_tensor_load(kiln_ctx *cx, const kiln_tensor *t,
                                  const kiln_expr *const *index) {
  return kiln_load(cx, t->id, t->dtype, t->rank, index);
}

bool kiln_stmt_is_plain(const kiln_ctx *cx, const kiln_stmt *s) {
  (void)cx;
  if (s->init) return false;
  for (int i = 0; i < s->n_space; i++) {
    const kiln_expr *e = s->index[i];
    if (e->kind != KILN_EXPR_VAR || e->u.sym != s->dims[i].name) return false;
  }
  return true;
}

bool kiln_stmt_is_scatter(const kiln_program *p, const kiln_stmt *s) {
  for (int i = 0; i < p->tensors.data[s->out]->rank; i++)
    if (s->index[i]->has_load) return true;
  return false;
}

void kiln_stmt_visit_loads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                           void (*visit)(const kiln_expr *load, void *argument), void *argument) {
  kiln_expr_visit_loads(cx, s->body, visit, argument);
  kiln_expr_visit_loads(cx, s->guard, visit, argument);
  kiln_expr_visit_loads(cx, s->init, visit, argument);
  for (int a = 0; a < p->tensors.data[s->out]->rank; a++)
    kiln_expr_visit_loads(cx, s->index[a], visit, argument);
}

typedef struct own_read {
  int out;
  bool found;
} own_read;

static void find_own_read(const kiln_expr *e, void *argument) {
  own_read *r = argument;
  r->found |= e->u.tensor == r->out;
}

bool kiln_stmt_reads_itself(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  own_read r = {s->out, false};
  if (!s->init) return false;
  kiln_expr_visit_loads(cx, s->body, find_own_read, &r);
  kiln_expr_visit_loads(cx, s->guard, find_own_read, &r);
  for (int a = 0; a < p->tensors.data[s->out]->rank; a++)
    kiln_expr_visit_loads(cx, s->index[a], find_own_read, &r);
  return r.found;
}

static kiln_search find_integer(const kiln_expr *e, void *argument) {
  (void)argument;
  if (!e->has_load || e->kind == KILN_EXPR_BITCAST) return KILN_SEARCH_PAST; // the bits of a float
  return e->kind == KILN_EXPR_LOAD ? KILN_SEARCH_ENDS : KILN_SEARCH_INTO;
}

static kiln_search find_shifted(const kiln_expr *e, void *argument) {
  kiln_ctx *cx = argument;
  if (!e->has_load || e->kind == KILN_EXPR_BITCAST) return KILN_SEARCH_PAST;
  return e->kind == KILN_EXPR_SHR && kiln_expr_search(cx, e->args[0], find_integer, NULL)
             ? KILN_SEARCH_ENDS
             : KILN_SEARCH_INTO;
}

bool kiln_expr_decodes(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_dtype_is_float(e->dtype) && kiln_expr_search(cx, e, find_shifted, cx) != NULL;
}

bool kiln_stmt_decodes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  return kiln_dtype_is_float(p->tensors.data[s->out]->dtype) &&
         kiln_expr_search(cx, s->body, find_shifted, cx) != NULL;
}

static const kiln_expr *extreme(kiln_ctx *cx, kiln_dtype t, bool highest) {
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return kiln_float(cx, t, highest ? (double)INFINITY : -(double)INFINITY);
  case KILN_KIND_UINT: return kiln_int_of(cx, t, highest ? -1 : 0);
  case KILN_KIND_BOOL: return kiln_int_of(cx, t, highest);
  case KILN_KIND_CODE: return kiln_number(cx, t, highest ? (double)INFINITY : -(double)INFINITY);
  case KILN_KIND_INT: break;
  }
  const int64_t top = (int64_t)(UINT64_MAX >> (65 - 8 * kiln_dtype_bytes(t)));
  return kiln_int_of(cx, t, highest ? top : -top - 1);
}

const kiln_expr *kiln_combiner_identity(kiln_ctx *cx, kiln_combiner c, kiln_dtype t) {
  switch (c) {
  case KILN_COMBINE_NONE:
  case KILN_COMBINE_SUM:
  case KILN_COMBINE_OR: return kiln_number(cx, t, 0);
  case KILN_COMBINE_PROD: return kiln_number(cx, t, 1);
  case KILN_COMBINE_MAX: return extreme(cx, t, false);
  case KILN_COMBINE_MIN: return extreme(cx, t, true);
  case KILN_COMBINE_AND: break;
  }
  return kiln_dtype_is_int(t) ? kiln_int_of(cx, t, -1) : kiln_number(cx, t, 1);
}

kiln_expr_kind kiln_combiner_kind(kiln_combiner c, kiln_dtype t) {
  const bool is_bool = t == KILN_BOOL;
  switch (c) {
  case KILN_COMBINE_NONE: break;
  case KILN_COMBINE_SUM: return KILN_EXPR_ADD;
  case KILN_COMBINE_PROD: return KILN_EXPR_MUL;
  case KILN_COMBINE_MAX: return KILN_EXPR_MAX;
  case KILN_COMBINE_MIN: return KILN_EXPR_MIN;
  case KILN_COMBINE_AND: return is_bool ? KILN_EXPR_AND : KILN_EXPR_BAND;
  case KILN_COMBINE_OR: return is_bool ? KILN_EXPR_OR : KILN_EXPR_BOR;
  }
  return KILN_N_EXPRS;
}

const kiln_expr *kiln_combine(kiln_ctx *cx, kiln_combiner c, const kiln_expr *a,
                              const kiln_expr *b) {
  return c == KILN_COMBINE_NONE ? b : kiln_binary(cx, kiln_combiner_kind(c, a->dtype), a, b);
}

const char *kiln_combiner_text(kiln_combiner c) {
  switch (c) {
  case KILN_COMBINE_NONE: break;
  case KILN_COMBINE_SUM: return "+=!";
  case KILN_COMBINE_PROD: return "*=!";
  case KILN_COMBINE_MAX: return "max=!";
  case KILN_COMBINE_MIN: return "min=!";
  case KILN_COMBINE_AND: return "and=!";
  case KILN_COMBINE_OR: return "or=!";
  }
  return "=";
}

bool kiln_tensor_static_shape(const kiln_tensor *t, int64_t *out_shape) {
  for (int i = 0; i < t->rank; i++) {
    if (!kiln_expr_is_int(t->shape[i], &out_shape[i])) return false;
  }
  return true;
}

void kiln_tensor_strides(const kiln_tensor *t, int64_t *out_strides) {
  int64_t shape[KILN_MAX_RANK] = {0}, stride = 1;
  const bool is_static = kiln_tensor_static_shape(t, shape);
  KILN_ASSERT(is_static);
  (void)is_static;
  for (int k = t->rank - 1; k >= 0; k--) {
    const int axis = t->order[k];
    out_strides[axis] = stride;
    stride *= shape[axis] > 0 ? shape[axis] : 1;
  }
  for (int i = 0; t->strides && i < t->rank; i++) out_strides[i] = t->strides[i];
}

int64_t kiln_tensor_elems(const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK], n = 1;
  if (!kiln_tensor_static_shape(t, shape)) return -1;
  for (int i = 0; i < t->rank; i++)
    if (shape[i] == 0) return 0;
  for (int i = 0; i < t->rank; i++)
    if (__builtin_mul_overflow(n, shape[i], &n)) return INT64_MAX;
  return n;
}
