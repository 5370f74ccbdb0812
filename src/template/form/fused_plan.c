// Plans fused tiles: axes by equivalence of dims, operations by what a statement reduces.
#include "template/form/fused_plan.h"

#include <string.h>

enum { ALL_DIMS = KILN_FUSED_OPS * 2 * KILN_MAX_RANK };

typedef struct planning {
  kiln_ctx *cx;
  const kiln_program *p;
  kiln_fused_plan *plan;
  const char *why;
  int parent[ALL_DIMS]; // of dim |d| of op |i|, at place_of(i, d)
} planning;

static bool refuse(planning *w, const char *why) {
  w->why = why;
  return false;
}

static int place_of(int op, int d) { return op * 2 * KILN_MAX_RANK + d; }

static const char *name_of(const planning *w, const kiln_stmt *s) {
  return kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
}

static int op_of(const kiln_fused_plan *plan, int tensor) {
  for (int i = 0; i < plan->n_ops; i++)
    if (plan->ops[i].s->out == tensor) return i;
  return -1;
}

// --- dims ---

static int root_of(planning *w, int place) {
  while (w->parent[place] != place) place = w->parent[place] = w->parent[w->parent[place]];
  return place;
}

// Makes the dims with which op |reader| indexes the result of an op in |load| the same as its own.
static bool unite_load(planning *w, int reader, const kiln_expr *load) {
  const int from = op_of(w->plan, load->u.tensor);
  const kiln_stmt *s = w->plan->ops[reader].s;
  if (from < 0) return true;
  const kiln_stmt *x = w->plan->ops[from].s;
  for (int k = 0; k < load->n_args; k++) {
    const int d = kiln_stmt_dim_of(s, load->args[k]);
    if (kiln_dim_extent(&x->dims[k]) == 1) continue;
    if (d < 0 || kiln_dim_extent(&s->dims[d]) != kiln_dim_extent(&x->dims[k]))
      return refuse(w, kiln_arena_printf(&w->cx->perm, "%s reads %s at other places than its own",
                                         name_of(w, s), name_of(w, x)));
    const int a = root_of(w, place_of(reader, d)), b = root_of(w, place_of(from, k));
    w->parent[a > b ? a : b] = a > b ? b : a;
  }
  return true;
}

static bool unite_dims(planning *w) {
  for (int i = 0; i < ALL_DIMS; i++) w->parent[i] = i;
  for (int i = 0; i < w->plan->n_ops; i++) {
    const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, w->plan->ops[i].s);
    for (int k = 0; k < loads.n; k++)
      if (!unite_load(w, i, loads.data[k])) return false;
  }
  return true;
}

// Numbers the classes; an op has each but once.
static bool number_dims(planning *w) {
  kiln_fused_plan *plan = w->plan;
  int number[ALL_DIMS];
  memset(number, -1, sizeof number);
  for (int i = 0; i < plan->n_ops; i++) {
    kiln_fused_op *op = &plan->ops[i];
    uint64_t seen[2] = {0};
    for (int d = 0; d < op->s->n_space + op->s->n_reduce; d++) {
      const int64_t extent = kiln_dim_extent(&op->s->dims[d]);
      const int root = root_of(w, place_of(i, d));
      op->dims[d] = -1;
      if (extent == 1) continue;
      if (number[root] < 0 && plan->n_dims == (int)KILN_LEN(plan->dims))
        return refuse(w, "it has too many dims");
      if (number[root] < 0) {
        number[root] = plan->n_dims;
        plan->dims[plan->n_dims++] = (kiln_fused_dim){extent, KILN_FUSED_OTHER, -1};
      }
      const int at = op->dims[d] = number[root];
      if (seen[at / 64] >> at % 64 & 1)
        return refuse(w, kiln_arena_printf(&w->cx->perm,
                                           "two dims of %s are one axis, as statements read it",
                                           name_of(w, op->s)));
      seen[at / 64] |= (uint64_t)1 << at % 64;
    }
  }
  return true;
}

// The position of |dim| in op |i|; -1: it has none.
static int position_of(const kiln_fused_op *op, int dim) {
  for (int d = 0; d < op->s->n_space + op->s->n_reduce; d++)
    if (op->dims[d] == dim) return d;
  return -1;
}

static bool is_in_space(const kiln_fused_op *op, int dim) {
  const int at = position_of(op, dim);
  return at >= 0 && at < op->s->n_space;
}

// --- factors of products ---

static bool uses_column(const kiln_fused_op *op, const kiln_fused_plan *plan, const kiln_expr *e) {
  for (int d = 0; d < op->s->n_space; d++)
    if (op->dims[d] >= 0 && plan->dims[op->dims[d]].role == KILN_FUSED_OTHER &&
        kiln_expr_uses(e, op->s->dims[d].name))
      return true;
  return false;
}

static bool loads_an_op(planning *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  for (int i = 0; i < loads.n; i++)
    if (op_of(w->plan, loads.data[i]->u.tensor) >= 0) return true;
  return false;
}

// Finds the factors of |op| if it is a product: only the right one depends on its columns.
static bool find_factors(planning *w, kiln_fused_op *op) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!op->s->n_reduce || !kiln_stmt_is_product(op->s, &a, &b)) return false;
  const bool a_is_right = uses_column(op, w->plan, a), b_is_right = uses_column(op, w->plan, b);
  if (a_is_right == b_is_right) return false;
  op->left = a_is_right ? b : a;
  op->right = a_is_right ? a : b;
  op->left_op = -1;
  const kiln_expr *bare = kiln_expr_uncast(op->left);
  if (bare->kind == KILN_EXPR_LOAD) op->left_op = op_of(w->plan, bare->u.tensor);
  op->kind = KILN_FUSED_PRODUCT;
  return true;
}

static bool find_products(planning *w) {
  for (int i = 0; i < w->plan->n_ops; i++) {
    kiln_fused_op *op = &w->plan->ops[i];
    op->kind = op->s->n_reduce ? KILN_FUSED_REDUCTION : KILN_FUSED_MAP;
    op->left_op = -1;
    if (!find_factors(w, op)) continue;
    if (loads_an_op(w, op->right) || (op->left_op < 0 && loads_an_op(w, op->left)))
      return refuse(w, kiln_arena_printf(&w->cx->perm,
                                         "a factor of %s is computed from other statements",
                                         name_of(w, op->s)));
  }
  return true;
}

// --- rows and batch ---

static void find_rows(planning *w) {
  kiln_fused_plan *plan = w->plan;
  for (int k = 0; k < plan->n_dims; k++) {
    bool all = true;
    for (int i = 0; i < plan->n_ops; i++) all &= is_in_space(&plan->ops[i], k);
    if (all) plan->dims[k].role = KILN_FUSED_ROW;
  }
}

// Rows on which a right factor depends are batch.
static void find_batch(planning *w) {
  kiln_fused_plan *plan = w->plan;
  for (int i = 0; i < plan->n_ops; i++) {
    const kiln_fused_op *op = &plan->ops[i];
    for (int d = 0; op->kind == KILN_FUSED_PRODUCT && d < op->s->n_space; d++)
      if (op->dims[d] >= 0 && plan->dims[op->dims[d]].role == KILN_FUSED_ROW &&
          kiln_expr_uses(op->right, op->s->dims[d].name))
        plan->dims[op->dims[d]].role = KILN_FUSED_BATCH;
  }
}

static bool is_result(const planning *w, const kiln_fused_op *op) {
  return w->p->tensors.data[op->s->out]->role == KILN_OUTPUT;
}

// Whether all results have |high| and |low| side by side in memory.
static bool merge_in_results(const planning *w, int high, int low) {
  for (int i = 0; i < w->plan->n_ops; i++) {
    const kiln_fused_op *op = &w->plan->ops[i];
    int64_t strides[KILN_MAX_RANK];
    if (!is_result(w, op)) continue;
    kiln_tensor_strides(w->p->tensors.data[op->s->out], strides);
    if (strides[position_of(op, high)] != strides[position_of(op, low)] * w->plan->dims[low].extent)
      return false;
  }
  return true;
}

static bool is_with_others(const planning *w, int dim) {
  const kiln_fused_axis *rows = &w->plan->rows;
  return w->plan->dims[dim].role == KILN_FUSED_ROW &&
         (rows->n == 0 || merge_in_results(w, dim, rows->dims[0]));
}

static void push_front(kiln_fused_axis *axis, int dim, int64_t extent) {
  memmove(axis->dims + 1, axis->dims, (size_t)axis->n * sizeof *axis->dims);
  axis->dims[0] = dim;
  axis->n++;
  axis->extent *= extent;
}

// Numbers the sink's last rows; what cannot be merged with them is batch.
static bool number_rows(planning *w) {
  kiln_fused_plan *plan = w->plan;
  const kiln_fused_op *sink = &plan->ops[plan->n_ops - 1];
  plan->rows.extent = 1;
  for (int d = sink->s->n_space - 1; d >= 0; d--) {
    const int dim = sink->dims[d];
    if (dim < 0 || plan->dims[dim].role == KILN_FUSED_OTHER) continue;
    if (is_with_others(w, dim)) push_front(&plan->rows, dim, plan->dims[dim].extent);
    else plan->dims[dim].role = KILN_FUSED_BATCH;
  }
  for (int d = 0; d < sink->s->n_space; d++)
    if (sink->dims[d] >= 0 && plan->dims[sink->dims[d]].role == KILN_FUSED_BATCH)
      plan->batch[plan->n_batch++] = sink->dims[d];
  return plan->rows.n > 0 || refuse(w, "the statements share no rows");
}

// --- columns and terms ---

// What |dim| is to each op: none, of its space, or reduced; two bits each.
static uint64_t uses_of(const kiln_fused_plan *plan, int dim) {
  uint64_t uses = 0;
  for (int i = 0; i < plan->n_ops; i++) {
    const int at = position_of(&plan->ops[i], dim);
    if (at >= 0) uses |= (uint64_t)(at < plan->ops[i].s->n_space ? 1 : 2) << 2 * i;
  }
  return uses;
}

// The digits of an axis in the order of the first op that has them as columns, or of what reads the
// left factor of the only product that reduces them.
static int order_of(const planning *w, int dim) {
  const kiln_fused_plan *plan = w->plan;
  for (int i = plan->n_ops - 1; i >= 0; i--)
    if (is_in_space(&plan->ops[i], dim)) return position_of(&plan->ops[i], dim);
  for (int i = 0; i < plan->n_ops; i++)
    if (position_of(&plan->ops[i], dim) >= 0) return position_of(&plan->ops[i], dim);
  return 0;
}

// The stride of |dim|, which only products reduce, in what the first of them reads with its left
// factor.
static int64_t stride_of(const planning *w, int dim) {
  for (int i = 0; i < w->plan->n_ops; i++) {
    const kiln_fused_op *op = &w->plan->ops[i];
    const int at = position_of(op, dim);
    if (at < 0 || op->kind != KILN_FUSED_PRODUCT) continue;
    const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, op->left);
    if (loads.n == 0) return 0;
    const int64_t stride = kiln_load_stride(w->cx, w->p, loads.data[0], op->s->dims[at].name);
    return stride < 0 ? -stride : stride;
  }
  return 0;
}

static bool is_before(const planning *w, int a, int b) {
  const int64_t of_a = stride_of(w, a), of_b = stride_of(w, b);
  for (int i = 0; i < w->plan->n_ops; i++)
    if (is_in_space(&w->plan->ops[i], a)) return order_of(w, a) < order_of(w, b);
  return of_a != of_b ? of_a > of_b : order_of(w, a) < order_of(w, b);
}

static bool add_to_axis(planning *w, int axis, int dim) {
  kiln_fused_axis *x = &w->plan->axes[axis];
  int at = x->n;
  if (x->n == KILN_MAX_RANK) return refuse(w, "an axis has too many digits");
  for (; at > 0 && is_before(w, dim, x->dims[at - 1]); at--) x->dims[at] = x->dims[at - 1];
  x->dims[at] = dim;
  x->n++;
  x->extent *= w->plan->dims[dim].extent;
  w->plan->dims[dim].axis = axis;
  return true;
}

static bool number_axes(planning *w) {
  kiln_fused_plan *plan = w->plan;
  for (int k = 0; k < plan->n_dims; k++) {
    int axis = -1;
    if (plan->dims[k].role != KILN_FUSED_OTHER) continue;
    for (int other = 0; other < k && axis < 0; other++)
      if (plan->dims[other].role == KILN_FUSED_OTHER && uses_of(plan, other) == uses_of(plan, k))
        axis = plan->dims[other].axis;
    if (axis < 0 && plan->n_axes == KILN_FUSED_AXES) return refuse(w, "it has too many axes");
    if (axis < 0) plan->axes[axis = plan->n_axes++] = (kiln_fused_axis){.extent = 1};
    if (!add_to_axis(w, axis, k)) return false;
  }
  return true;
}

// --- ops ---

// The one axis of |op|'s dims [begin, end) that is no row; -1: none, -2: several.
static int axis_of(const kiln_fused_plan *plan, const kiln_fused_op *op, int begin, int end) {
  int axis = -1;
  for (int d = begin; d < end; d++) {
    const int dim = op->dims[d];
    if (dim < 0 || plan->dims[dim].role != KILN_FUSED_OTHER) continue;
    if (axis >= 0 && plan->dims[dim].axis != axis) return -2;
    axis = plan->dims[dim].axis;
  }
  return axis;
}

static bool describe_op(planning *w, kiln_fused_op *op) {
  const kiln_stmt *s = op->s;
  op->column = axis_of(w->plan, op, 0, s->n_space);
  op->along = axis_of(w->plan, op, s->n_space, s->n_space + s->n_reduce);
  if (op->column == -2 || op->along == -2 || (op->column >= 0 && op->column == op->along))
    return refuse(
        w, kiln_arena_printf(&w->cx->perm, "%s runs over several axes of columns", name_of(w, s)));
  if (s->n_reduce > 0 && op->along < 0)
    return refuse(w, kiln_arena_printf(&w->cx->perm, "%s reduces nothing", name_of(w, s)));
  if (op->kind == KILN_FUSED_REDUCTION && op->column >= 0)
    return refuse(w, kiln_arena_printf(&w->cx->perm, "%s reduces for each column", name_of(w, s)));
  return true;
}

// Results must have their columns side by side in memory, too.
static bool results_merge(planning *w) {
  for (int i = 0; i < w->plan->n_axes; i++) {
    const kiln_fused_axis *x = &w->plan->axes[i];
    for (int k = 0; k < w->plan->n_ops; k++) {
      const kiln_fused_op *op = &w->plan->ops[k];
      int64_t strides[KILN_MAX_RANK];
      if (!is_result(w, op) || op->column != i) continue;
      kiln_tensor_strides(w->p->tensors.data[op->s->out], strides);
      for (int d = 0; d + 1 < x->n; d++)
        if (strides[position_of(op, x->dims[d])] !=
            strides[position_of(op, x->dims[d + 1])] * w->plan->dims[x->dims[d + 1]].extent)
          return refuse(w, "columns of a result lie apart in memory");
    }
  }
  return true;
}

// --- edges ---

// Whether some op with columns |axis| needs what another reduces along it.
static bool is_whole(const kiln_fused_plan *plan, planning *w, int axis) {
  bool needs[KILN_FUSED_OPS] = {false};
  for (int i = 0; i < plan->n_ops; i++) {
    const kiln_fused_op *op = &plan->ops[i];
    const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, op->s);
    for (int k = 0; k < loads.n; k++) {
      const int from = op_of(plan, loads.data[k]->u.tensor);
      if (from >= 0) needs[i] |= needs[from] || plan->ops[from].along == axis;
    }
    if (op->column == axis && (needs[i] || is_result(w, op))) return true;
  }
  return false;
}

static kiln_fused_pass pass_of(planning *w, const kiln_fused_op *from, const kiln_fused_op *to) {
  if (from->column < 0 || to->column == from->column) return KILN_FUSED_IN_PLACE;
  return is_whole(w->plan, w, from->column) ? KILN_FUSED_FULL : KILN_FUSED_STREAM;
}

static bool find_edges(planning *w) {
  kiln_fused_plan *plan = w->plan;
  for (int i = 0; i < plan->n_ops; i++) {
    const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, plan->ops[i].s);
    for (int k = 0; k < loads.n; k++) {
      const int from = op_of(plan, loads.data[k]->u.tensor);
      if (from < 0) continue;
      if (plan->n_edges == KILN_FUSED_EDGES) return refuse(w, "it has too many edges");
      plan->edges[plan->n_edges++] =
          (kiln_fused_edge){from, i, pass_of(w, &plan->ops[from], &plan->ops[i])};
    }
  }
  return true;
}

// --- the whole ---

static bool find_ops(planning *w) {
  const kiln_program *p = w->p;
  if (p->stmts.n > KILN_FUSED_OPS) return refuse(w, "it has too many statements");
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (s->guard || s->init || !kiln_stmt_is_plain(w->cx, s))
      return refuse(
          w, kiln_arena_printf(&w->cx->perm, "%s does not write each element once", name_of(w, s)));
    w->plan->ops[w->plan->n_ops++] = (kiln_fused_op){.s = s, .column = -1, .along = -1};
  }
  return true;
}

bool kiln_fused_plan_make(kiln_ctx *cx, const kiln_program *p, kiln_fused_plan *out,
                          const char **out_why) {
  planning *w = KILN_NEW(&cx->scratch, planning);
  *w = (planning){.cx = cx, .p = p, .plan = out};
  *out = (kiln_fused_plan){0};
  bool fits = find_ops(w) && unite_dims(w) && number_dims(w);
  if (fits) find_rows(w);
  fits = fits && find_products(w);
  if (fits) find_batch(w);
  fits = fits && number_rows(w) && number_axes(w);
  for (int i = 0; fits && i < out->n_ops; i++) fits = describe_op(w, &out->ops[i]);
  fits = fits && results_merge(w) && find_edges(w);
  *out_why = w->why;
  return fits;
}

// --- text ---

static const char *axis_name(kiln_ctx *cx, const kiln_fused_plan *plan, int axis) {
  if (axis == plan->ops[plan->n_ops - 1].column) return "n";
  return kiln_arena_printf(&cx->scratch, "k%d", axis);
}

static void print_loads(kiln_ctx *cx, const kiln_program *p, const kiln_fused_plan *plan, int op,
                        kiln_text *out) {
  static const char *const passes[] = {"in place", "FULL", "STREAM"};
  const char *separator = ": ";
  for (int i = 0; i < plan->n_edges; i++) {
    const kiln_fused_edge *e = &plan->edges[i];
    if (e->to != op) continue;
    const kiln_tensor *t = p->tensors.data[plan->ops[e->from].s->out];
    kiln_text_printf(out, "%s%s %s", separator, kiln_symbol_text(cx, t->name), passes[e->pass]);
    separator = ", ";
  }
  kiln_text_printf(out, "\n");
}

void kiln_fused_plan_print(kiln_ctx *cx, const kiln_program *p, const kiln_fused_plan *plan,
                           kiln_text *out) {
  kiln_text_printf(out, "rows m:%d", (int)plan->rows.extent);
  for (int i = 0; i < plan->n_batch; i++)
    kiln_text_printf(out, " b%d:%d", i, (int)plan->dims[plan->batch[i]].extent);
  for (int i = 0; i < plan->n_axes; i++)
    kiln_text_printf(out, " %s:%d", axis_name(cx, plan, i), (int)plan->axes[i].extent);
  kiln_text_printf(out, "\n");
  for (int i = 0; i < plan->n_ops; i++) {
    static const char *const kinds[] = {"product", "reduction", "map"};
    const kiln_fused_op *op = &plan->ops[i];
    kiln_text_printf(out, "%s(m%s%s) %s", kiln_symbol_text(cx, p->tensors.data[op->s->out]->name),
                     op->column >= 0 ? ", " : "",
                     op->column >= 0 ? axis_name(cx, plan, op->column) : "", kinds[op->kind]);
    if (op->along >= 0) kiln_text_printf(out, " along %s", axis_name(cx, plan, op->along));
    print_loads(cx, p, plan, i, out);
  }
}
