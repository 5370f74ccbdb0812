// Numbers the statements of a plan by batch, rows and columns.
#include "template/form/fused_tile.h"

#include "template/form/row_stmt.h"

#include <string.h>

typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_fused_plan plan;
  kiln_tensor *tile[KILN_FUSED_OPS]; // of each op's elements
  int n;
  kiln_stmt *made[KILN_FUSED_STATEMENTS];
} making;

// --- numbers ---

static kiln_symbol rows_name(const making *w) { return kiln_symbol_of(w->cx, "m"); }

static kiln_symbol axis_name(const making *w, int axis) {
  const bool is_sink = axis == w->plan.ops[w->plan.n_ops - 1].column;
  return is_sink ? kiln_symbol_of(w->cx, "n") : kiln_symbol_printf(w->cx, "k%d", axis);
}

static kiln_symbol batch_name(const making *w, int i) {
  return kiln_symbol_printf(w->cx, "b%d", i);
}

// The digit |dim| of |number|, which counts |axis|.
static const kiln_expr *digit_of(const making *w, const kiln_fused_axis *axis, kiln_symbol number,
                                 int dim) {
  kiln_ctx *cx = w->cx;
  int64_t weight = 1;
  int at = axis->n - 1;
  for (; axis->dims[at] != dim; at--) weight *= w->plan.dims[axis->dims[at]].extent;
  const kiln_expr *v = kiln_div(cx, kiln_var(cx, number), kiln_int(cx, weight));
  return at > 0 ? kiln_mod(cx, v, kiln_int(cx, w->plan.dims[dim].extent)) : v;
}

static const kiln_expr *value_of(const making *w, int dim) {
  if (dim < 0) return kiln_int(w->cx, 0);
  const kiln_fused_dim *d = &w->plan.dims[dim];
  if (d->role == KILN_FUSED_ROW) return digit_of(w, &w->plan.rows, rows_name(w), dim);
  if (d->role == KILN_FUSED_OTHER)
    return digit_of(w, &w->plan.axes[d->axis], axis_name(w, d->axis), dim);
  for (int i = 0; i < w->plan.n_batch; i++)
    if (w->plan.batch[i] == dim) return kiln_var(w->cx, batch_name(w, i));
  return NULL;
}

// --- expressions ---

static int op_of(const making *w, int tensor) {
  for (int i = 0; i < w->plan.n_ops; i++)
    if (w->plan.ops[i].s->out == tensor) return i;
  return -1;
}

// The load of op |i|'s element at the numbers of the statement.
static const kiln_expr *read_tile(const making *w, int i) {
  const kiln_expr *index[KILN_MAX_RANK];
  const int column = w->plan.ops[i].column;
  int n = 0;
  for (; n < w->plan.n_batch; n++) index[n] = kiln_var(w->cx, batch_name(w, n));
  index[n++] = kiln_var(w->cx, rows_name(w));
  if (column >= 0) index[n++] = kiln_var(w->cx, axis_name(w, column));
  return kiln_tensor_load(w->cx, w->tile[i], index);
}

static const kiln_expr *read_op(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const making *w = argument;
  const int from = e->kind == KILN_EXPR_LOAD ? op_of(w, e->u.tensor) : -1;
  return from < 0 ? NULL : kiln_cast(cx, e->dtype, read_tile(w, from));
}

// |e|, of op |i|, in terms of the numbers.
static const kiln_expr *renumber(making *w, int i, const kiln_expr *e) {
  const kiln_stmt *s = w->plan.ops[i].s;
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const kiln_expr *values[2 * KILN_MAX_RANK];
  const int n = s->n_space + s->n_reduce;
  for (int d = 0; d < n; d++) {
    vars[d] = s->dims[d].name;
    values[d] = value_of(w, w->plan.ops[i].dims[d]);
  }
  e = kiln_expr_replace(w->cx, e, read_op, w);
  return kiln_expr_substitute(w->cx, e, n, vars, values);
}

// --- statements ---

static bool is_half(const kiln_tensor *t) { return kiln_dtype_is_half(t->dtype); }

static void shape_like(const making *w, kiln_stmt *s, kiln_tensor *t) {
  t->rank = s->n_space;
  t->shape = KILN_NEW_ARRAY(&w->cx->perm, const kiln_expr *, s->n_space);
  for (int d = 0; d < s->n_space; d++) {
    t->shape[d] = s->dims[d].extent;
    t->order[d] = (int8_t)d;
    s->index[d] = kiln_var(w->cx, s->dims[d].name);
  }
  t->strides = NULL;
  s->out = t->id;
}

// A statement over the batch dims that |like| uses (NULL: all), and the given numbers; |along|: the
// last one is reduced.
static kiln_stmt *statement(const making *w, const kiln_stmt *old, const kiln_expr *like, int n,
                            const kiln_symbol *names, const int64_t *extents, bool along) {
  kiln_ctx *cx = w->cx;
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  int all = 0;
  *s = (kiln_stmt){.origin = old->origin, .n_reduce = along};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, w->plan.n_batch + n);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, KILN_MAX_RANK);
  for (int i = 0; i < w->plan.n_batch; i++)
    if (!like || kiln_expr_uses(like, batch_name(w, i)))
      s->dims[all++] =
          (kiln_dim){batch_name(w, i), kiln_int(cx, w->plan.dims[w->plan.batch[i]].extent)};
  for (int i = 0; i < n; i++) s->dims[all++] = (kiln_dim){names[i], kiln_int(cx, extents[i])};
  s->n_space = all - along;
  return s;
}

static void add(making *w, kiln_stmt *s, const kiln_expr *body) {
  s->body = kiln_stmt_simplify(w->cx, s, body);
  w->made[w->n++] = s;
}

// The statement over all numbers of op |i|, without a body.
static kiln_stmt *over(const making *w, int i) {
  const kiln_fused_op *op = &w->plan.ops[i];
  kiln_symbol names[3] = {rows_name(w)};
  int64_t extents[3] = {w->plan.rows.extent};
  int n = 1;
  const int axes[] = {op->column, op->along};
  for (size_t k = 0; k < KILN_LEN(axes); k++) {
    if (axes[k] < 0) continue;
    names[n] = axis_name(w, axes[k]);
    extents[n++] = w->plan.axes[axes[k]].extent;
  }
  return statement(w, op->s, NULL, n, names, extents, op->along >= 0);
}

// --- results ---

static bool is_result(const making *w, const kiln_fused_op *op) {
  return w->p->tensors.data[op->s->out]->role == KILN_OUTPUT;
}

static bool is_read(const making *w, int i) {
  for (int k = 0; k < w->plan.n_edges; k++)
    if (w->plan.edges[k].from == i) return true;
  return false;
}

// Whether op |i| stores its elements itself.
static bool stores(const making *w, int i) {
  const kiln_fused_op *op = &w->plan.ops[i];
  return is_result(w, op) && op->kind == KILN_FUSED_MAP && !is_read(w, i);
}

static int position_of(const kiln_fused_op *op, int dim) {
  for (int d = 0; d < op->s->n_space; d++)
    if (op->dims[d] == dim) return d;
  return -1;
}

// The last digit's stride in the result of |op|.
static int64_t stride_of(const kiln_fused_op *op, const kiln_fused_axis *axis,
                         const int64_t *strides) {
  return strides[position_of(op, axis->dims[axis->n - 1])];
}

// Makes |s| store the result of op |i| where that lies.
static void store(const making *w, int i, kiln_stmt *s) {
  const kiln_fused_op *op = &w->plan.ops[i];
  kiln_tensor *y = w->p->tensors.data[op->s->out];
  int64_t old[KILN_MAX_RANK], *strides = KILN_NEW_ARRAY(&w->cx->perm, int64_t, s->n_space);
  int n = 0;
  kiln_tensor_strides(y, old);
  for (; n < w->plan.n_batch; n++) strides[n] = old[position_of(op, w->plan.batch[n])];
  strides[n++] = stride_of(op, &w->plan.rows, old);
  if (op->column >= 0) strides[n++] = stride_of(op, &w->plan.axes[op->column], old);
  shape_like(w, s, y);
  y->strides = strides;
}

// The statement over op |i|'s elements, without a body.
static kiln_stmt *over_elements(making *w, int i) {
  kiln_fused_op *op = &w->plan.ops[i];
  const int along = op->along;
  op->along = -1;
  kiln_stmt *s = over(w, i);
  op->along = along;
  return s;
}

// Adds the copy of op |i|'s elements to its result.
static void add_result(making *w, int i) {
  const kiln_dtype t = w->p->tensors.data[w->plan.ops[i].s->out]->dtype;
  kiln_stmt *s = over_elements(w, i);
  store(w, i, s);
  add(w, s, kiln_cast(w->cx, t, read_tile(w, i)));
}

// --- ops ---

// Statement |name| computes |factor| over (.., first, second).
static kiln_stmt *add_operand(making *w, int i, const char *name, const kiln_expr *factor,
                              const kiln_symbol *names, const int64_t *extents) {
  const kiln_expr *e = renumber(w, i, factor);
  kiln_stmt *s = statement(w, w->plan.ops[i].s, e, 2, names, extents, false);
  shape_like(w, s, kiln_tensor_make(w->cx, w->p, name, factor->dtype, KILN_TEMP, 0, NULL));
  add(w, s, e);
  return s;
}

typedef struct factors {
  const kiln_expr *from[2], *to[2];
} factors;

static const kiln_expr *read_factor(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const factors *f = argument;
  (void)cx;
  for (int i = 0; i < 2; i++)
    if (f->to[i] && e == f->from[i]) return f->to[i];
  return NULL;
}

static const kiln_expr *read_operand(const making *w, const kiln_stmt *s) {
  return kiln_tensor_load(w->cx, w->p->tensors.data[s->out], s->index);
}

// The body of product |i|, behind statements for its operands.
static const kiln_expr *body_of_product(making *w, int i) {
  const kiln_fused_op *op = &w->plan.ops[i];
  const kiln_symbol m = rows_name(w), k = axis_name(w, op->along), n = axis_name(w, op->column);
  const int64_t m_extent = w->plan.rows.extent, k_extent = w->plan.axes[op->along].extent,
                n_extent = w->plan.axes[op->column].extent;
  factors f = {.from = {op->left, op->right}};
  if (op->left_op < 0)
    f.to[0] = read_operand(w, add_operand(w, i, "A", op->left, (const kiln_symbol[]){m, k},
                                          (const int64_t[]){m_extent, k_extent}));
  f.to[1] = read_operand(w, add_operand(w, i, "B", op->right, (const kiln_symbol[]){k, n},
                                        (const int64_t[]){k_extent, n_extent}));
  return renumber(w, i, kiln_expr_replace(w->cx, op->s->body, read_factor, &f));
}

static bool is_left_factor(const making *w, int i) {
  for (int k = 0; k < w->plan.n_ops; k++)
    if (w->plan.ops[k].kind == KILN_FUSED_PRODUCT && w->plan.ops[k].left_op == i) return true;
  return false;
}

// The type of op |i|'s elements in the block: halves are not rounded, but where a product reads
// them.
static kiln_dtype inner_type(const making *w, int i) {
  const kiln_tensor *t = w->p->tensors.data[w->plan.ops[i].s->out];
  return is_half(t) && !is_left_factor(w, i) ? KILN_F32 : t->dtype;
}

// Gives op |i| a tile of its own.
static void new_tile(making *w, int i) {
  const char *name = kiln_arena_printf(&w->cx->scratch, "E%d", i);
  w->tile[i] = kiln_tensor_make(w->cx, w->p, name, inner_type(w, i), KILN_TEMP, 0, NULL);
}

// Adds a copy of product |i|'s sums, which another product reads.
static void add_factor(making *w, int i) {
  kiln_stmt *s = over_elements(w, i);
  const kiln_expr *sums = read_tile(w, i);
  new_tile(w, i);
  shape_like(w, s, w->tile[i]);
  add(w, s, sums);
}

static void add_op(making *w, int i) {
  const kiln_fused_op *op = &w->plan.ops[i];
  kiln_tensor *t = w->p->tensors.data[op->s->out];
  const kiln_expr *body =
      op->kind == KILN_FUSED_PRODUCT ? body_of_product(w, i) : renumber(w, i, op->s->body);
  kiln_stmt *s = over(w, i);
  s->combiner = op->s->combiner;
  if (stores(w, i)) {
    store(w, i, s);
    body = kiln_row_unrounded(w->cx, body);
    add(w, s, kiln_cast(w->cx, t->dtype, body));
    return;
  }
  if (inner_type(w, i) != t->dtype || is_result(w, op)) new_tile(w, i);
  shape_like(w, s, w->tile[i]);
  add(w, s,
      kiln_cast(w->cx, w->tile[i]->dtype,
                op->kind == KILN_FUSED_PRODUCT ? body : kiln_row_unrounded(w->cx, body)));
  if (op->kind == KILN_FUSED_PRODUCT && is_left_factor(w, i)) add_factor(w, i);
  if (is_result(w, op)) add_result(w, i);
}

// Results, which no statement reads, are last, side by side.
static void list(making *w) {
  w->p->stmts.n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < w->n; i++)
      if ((w->p->tensors.data[w->made[i]->out]->role == KILN_OUTPUT) == pass)
        kiln_stmt_append(w->cx, w->p, w->made[i]);
  for (int i = 0; i < w->n; i++) {
    const char *name = kiln_symbol_text(w->cx, w->p->tensors.data[w->made[i]->out]->name);
    if (name[0] == 'A' || name[0] == 'B') kiln_product_view(w->cx, w->p, w->made[i]);
  }
  kiln_program_drop_unwritten(w->cx, w->p);
}

static bool results_have_columns(const making *w) {
  for (int i = 0; i < w->plan.n_ops; i++)
    if (is_result(w, &w->plan.ops[i]) && w->plan.ops[i].column < 0) return false;
  return true;
}

static bool has(const kiln_fused_plan *plan, kiln_fused_kind kind) {
  for (int i = 0; i < plan->n_ops; i++)
    if (plan->ops[i].kind == kind) return true;
  return false;
}

// Statements that the ops become: a product has two operands, a result may be a copy.
static int count(const kiln_fused_plan *plan) {
  int n = 0;
  for (int i = 0; i < plan->n_ops; i++) n += plan->ops[i].kind == KILN_FUSED_PRODUCT ? 4 : 2;
  return n;
}

bool kiln_fused_tile_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making *w = KILN_NEW(&cx->scratch, making);
  const char *why = NULL;
  (void)m;
  *w = (making){.cx = cx, .p = p};
  if (!kiln_fused_plan_make(cx, p, &w->plan, &why) || !has(&w->plan, KILN_FUSED_PRODUCT) ||
      !results_have_columns(w) || w->plan.n_batch + 2 > KILN_MAX_RANK ||
      count(&w->plan) > KILN_FUSED_STATEMENTS)
    return false;
  for (int i = 0; i < w->plan.n_ops; i++) w->tile[i] = p->tensors.data[w->plan.ops[i].s->out];
  for (int i = 0; i < w->plan.n_ops; i++) add_op(w, i);
  list(w);
  return true;
}

// --- reading the form back ---

static int statement_of(const kiln_fused_tile *f, int tensor) {
  for (int i = 0; i < f->n; i++)
    if (f->all[i].s->out == tensor) return i;
  return -1;
}

static bool has_dim(kiln_ctx *cx, const kiln_stmt *s, const char *name) {
  return kiln_stmt_space_dim(s, kiln_symbol_of(cx, name)) >= 0;
}

// The nest of |s|, which is not an operand.
static kiln_fused_nest nest_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  const bool by_row = s->n_space > 0 && s->dims[s->n_space - 1].name == kiln_symbol_of(cx, "m");
  if (s->n_reduce)
    return kiln_stmt_is_contraction(s, &a, &b) && !by_row ? KILN_NEST_SUMS : KILN_NEST_REDUCED;
  if (p->tensors.data[s->out]->role == KILN_OUTPUT) return KILN_NEST_RESULT;
  return by_row ? KILN_NEST_BY_ROW : KILN_NEST_TILE;
}

// Finds the operands of product |i|.
static bool find_operands(kiln_ctx *cx, kiln_fused_tile *f, int i) {
  const kiln_expr *a = NULL, *b = NULL;
  kiln_fused_statement *t = &f->all[i];
  if (!kiln_stmt_is_contraction(t->s, &a, &b)) return false;
  const int first = statement_of(f, a->u.tensor), second = statement_of(f, b->u.tensor);
  if (first < 0 || second < 0) return false;
  const bool first_is_right = !has_dim(cx, f->all[first].s, "m");
  t->left = first_is_right ? second : first;
  t->right = first_is_right ? first : second;
  f->all[t->right].nest = KILN_NEST_OPERAND;
  return has_dim(cx, f->all[t->left].s, "m") && !has_dim(cx, f->all[t->right].s, "m");
}

// Whether product |i| alone reads its left factor, which is computed from memory alone.
static bool is_operand(kiln_ctx *cx, const kiln_program *p, const kiln_fused_tile *f, int i) {
  const int left = f->all[i].left;
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, f->all[left].s);
  for (int k = 0; k < loads.n; k++)
    if (statement_of(f, loads.data[k]->u.tensor) >= 0) return false;
  for (int k = 0; k < f->n; k++)
    if (k != i && kiln_expr_loads(cx, f->all[k].s->body, f->all[left].s->out)) return false;
  return f->all[left].nest == KILN_NEST_TILE;
}

bool kiln_fused_tile_is(kiln_ctx *cx, const kiln_program *p, kiln_fused_tile *out) {
  *out = (kiln_fused_tile){.batch = 1};
  if (p->stmts.n > KILN_FUSED_STATEMENTS) return false;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    out->all[out->n++] = (kiln_fused_statement){nest_of(cx, p, s), s, -1, -1};
  }
  const kiln_stmt *y = out->all[out->n - 1].s;
  out->n_batch = kiln_stmt_space_dim(y, kiln_symbol_of(cx, "m"));
  if (out->n_batch < 0) return false;
  for (int d = 0; d < out->n_batch; d++) out->batch *= kiln_dim_extent(&y->dims[d]);
  out->m = kiln_dim_extent(&y->dims[out->n_batch]);
  for (int i = 0; i < out->n; i++) {
    if (out->all[i].nest != KILN_NEST_SUMS) continue;
    if (!find_operands(cx, out, i)) return false;
    if (is_operand(cx, p, out, i)) out->all[out->all[i].left].nest = KILN_NEST_OPERAND;
  }
  for (int i = 0; i < out->n; i++) // results of rows alone have no tile
    if ((out->all[i].nest == KILN_NEST_SUMS || out->all[i].nest == KILN_NEST_TILE ||
         out->all[i].nest == KILN_NEST_RESULT) &&
        out->all[i].s->n_space < out->n_batch + 2)
      return false;
  return true;
}
