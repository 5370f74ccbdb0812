// Kernel outlining: a fusion group becomes a program of its own over strided views of the tensors,
// in a canonical form: names by position (a0.. read, t0.. inside, z0.. and y written), dims of
// extent 1 dropped, space dims in storage order, tensors that are read flattened to one axis, and
// neighbouring dims merged where every access allows it. Groups with equal form share one kernel,
// and elementwise kernels end up with one or two long loops.
#include "target/instr.h"
#include "tile/panels.h"
#include "price/registers.h"
#include "fuse/outline.h"

#include <stdio.h>
#include <string.h>

enum { MAX_MEMBERS = 40, MAX_DIMS = 2 * KILN_MAX_RANK };
enum { UNROLLED = 16 }; // iterations of an innermost loop, at most

// A statement of the group while it is rewritten; its dims have their final names.
typedef struct member {
  const kiln_stmt *s;
  bool redomained; // |s| runs over the contraction's dims, not its own tensor's axes
  int n_space, n_reduce;
  kiln_symbol names[MAX_DIMS];
  int64_t extents[MAX_DIMS];
  int axis_of[KILN_MAX_RANK];     // space dim k is axis axis_of[k] of the member's tensor
  int64_t strides[KILN_MAX_RANK]; // by axis, of the storage of the member's tensor
  const kiln_expr *body, *guard, *init, *index[KILN_MAX_RANK];
  kiln_tensor *out;    // in the new program
  kiln_tensor *stored; // what it is stored as, |out| or a copy; NULL: it stays inside
} member;

typedef struct param {
  int from; // the tensor of the main program
  kiln_tensor *to;
  bool flat;
  int64_t offset; // of its first element in the storage of that tensor
} param;

typedef struct outlining {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts; // of |p|
  const kiln_group *g;
  const kiln_machine *machine;
  kiln_program *prog;
  int n;
  member *m; // [n], the root last
  // a contraction's load in the main program that keeps its tensor's axes; NULL
  const kiln_expr *kept;
  KILN_VEC(param) params;
  const kiln_ranges *ranges;
} outlining;

// Whether a group of rows on a GPU has a member of one element. Then there is one row only, and a
// dim of extent 1 stands for it.
static bool has_one_row(const outlining *x) {
  bool one = false;
  for (int i = 0; i < x->g->n_stmts; i++) {
    const kiln_stmt *s = x->p->stmts.data[x->g->stmts[i]];
    int64_t elems = 1;
    for (int d = 0; d < s->n_space; d++) elems *= kiln_dim_extent(&s->dims[d]);
    one |= elems == 1;
  }
  return one && x->g->kind == KILN_GROUP_ROWS && x->machine->target->has_grids;
}

// Orders the space dims by the storage of the member's tensor, outermost first, without those of
// extent 1; |keeps_row|: the outermost stays.
static void order_dims(outlining *x, member *m, bool keeps_row) {
  const kiln_tensor *t = x->p->tensors.data[m->s->out];
  for (int k = 0; k < m->s->n_space; k++) {
    const int axis = m->redomained ? k : t->order[k];
    if (kiln_dim_extent(&m->s->dims[axis]) == 1 && !(keeps_row && k == 0)) continue;
    int at = m->n_space++;
    for (; m->redomained && at > 0 && m->strides[m->axis_of[at - 1]] < m->strides[axis]; at--)
      m->axis_of[at] = m->axis_of[at - 1];
    m->axis_of[at] = axis;
  }
}

// The dim of the reading member that equals |argument|; -1 for any other expression.
static int dim_of(const member *m, const kiln_expr *argument) {
  if (argument->kind != KILN_EXPR_VAR) return -1;
  for (int k = 0; k < m->n_space; k++)
    if (m->s->dims[m->axis_of[k]].name == argument->u.sym) return k;
  return -1;
}

// Names the dims of a producer after the dims of its readers where all its loads agree; its own
// dims become j0...
static void name_dims(outlining *x, member *m, int *n_own) {
  for (int k = 0; k < m->n_space; k++) {
    kiln_symbol name = 0;
    bool agree = true;
    for (int r = 0; r < x->n; r++) {
      if (x->m[r].s == m->s || !x->m[r].names[0]) continue;
      kiln_loads loads = kiln_stmt_loads(x->cx, &x->cx->scratch, x->p, x->m[r].s);
      for (int i = 0; i < loads.n; i++) {
        if (loads.data[i]->u.tensor != m->s->out) continue;
        int d = dim_of(&x->m[r], loads.data[i]->args[m->axis_of[k]]);
        kiln_symbol other = d >= 0 ? x->m[r].names[d] : 0;
        agree &= other && (!name || name == other);
        name = other;
      }
    }
    for (int j = 0; j < k && agree; j++) agree = m->names[j] != name;
    m->names[k] = agree && name ? name : kiln_symbol_printf(x->cx, "j%d", (*n_own)++);
    m->extents[k] = kiln_dim_extent(&m->s->dims[m->axis_of[k]]);
  }
}

static void name_reductions(outlining *x, member *m) {
  for (int k = 0; k < m->s->n_reduce; k++) {
    const kiln_dim *d = &m->s->dims[m->s->n_space + k];
    if (kiln_dim_extent(d) == 1) continue;
    m->names[m->n_space + m->n_reduce] = kiln_symbol_printf(x->cx, "r%d", m->n_reduce);
    m->extents[m->n_space + m->n_reduce++] = kiln_dim_extent(d);
  }
}

static const kiln_expr *with_names(outlining *x, const member *m, const kiln_expr *e) {
  if (!e) return NULL;
  kiln_symbol vars[MAX_DIMS];
  const kiln_expr *values[MAX_DIMS];
  int n = m->s->n_space + m->s->n_reduce, at = m->n_space;
  for (int d = 0; d < n; d++) {
    vars[d] = m->s->dims[d].name;
    values[d] = kiln_int(x->cx, 0);
    if (d >= m->s->n_space && kiln_dim_extent(&m->s->dims[d]) != 1)
      values[d] = kiln_var(x->cx, m->names[at++]);
  }
  for (int k = 0; k < m->n_space; k++) values[m->axis_of[k]] = kiln_var(x->cx, m->names[k]);
  return kiln_expr_substitute(x->cx, e, n, vars, values);
}

// The parameter for tensor |t| of the main program. A tensor may have two: a flat one, and one that
// keeps the axes.
static int param_of(outlining *x, int t, bool flat) {
  for (int k = 0; k < x->params.n; k++)
    if (x->params.data[k].from == t && x->params.data[k].flat == flat) return k;
  if (x->params.n >= x->machine->target->max_params) return -1;
  const kiln_tensor *from = x->p->tensors.data[t];
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK], span = 1;
  (void)kiln_tensor_static_shape(from, shape);
  kiln_tensor_strides(from, strides);
  const kiln_expr *extents[KILN_MAX_RANK] = {0};
  int64_t *kept = KILN_NEW_ARRAY(&x->cx->perm, int64_t, KILN_MAX_RANK);
  int rank = 0;
  for (int k = 0; k < from->rank; k++) {
    span += (shape[k] - 1) * strides[k];
    if (flat || shape[k] == 1) continue;
    extents[rank] = from->shape[k];
    kept[rank++] = strides[k];
  }
  if (flat) extents[rank] = kiln_int(x->cx, span), kept[rank++] = 1;
  char name[16];
  snprintf(name, sizeof name, "a%d", x->params.n);
  kiln_tensor *to =
      kiln_tensor_make(x->cx, x->prog, name, from->dtype,
                       from->role == KILN_CONST ? KILN_CONST : KILN_INPUT, rank, extents);
  to->strides = kept;
  if (to->role == KILN_INPUT) KILN_VEC_PUSH(&x->cx->perm, &x->prog->inputs, to->id);
  KILN_VEC_PUSH(&x->cx->perm, &x->params, ((param){t, to, flat, 0}));
  return x->params.n - 1;
}

static const kiln_expr *flat_index(kiln_ctx *cx, const kiln_tensor *t,
                                   const kiln_expr *const *index) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  const kiln_expr *sum = kiln_int(cx, 0);
  for (int k = 0; k < t->rank; k++)
    sum = kiln_add(cx, sum, kiln_mul(cx, index[k], kiln_int(cx, strides[k])));
  return sum;
}

// Whether the root reads |tensor|, which it writes.
static bool is_own(const outlining *x, int tensor) { return x->m[x->n - 1].s->out == tensor; }

static const member *inside(const outlining *x, int tensor) {
  for (int i = 0; i + 1 < x->n; i++)
    if (x->m[i].s->out == tensor) return &x->m[i];
  return NULL;
}

// Whether |load|'s tensor keeps its axes: constants of several fused layers do, because any of the
// contractions may want them packed in panels.
static bool keeps_axes(const outlining *x, const kiln_expr *load) {
  return (x->g->kind == KILN_GROUP_FUSED_LAYERS || x->g->kind == KILN_GROUP_WINOGRAD) &&
         x->p->tensors.data[load->u.tensor]->role == KILN_CONST;
}

typedef struct load_map {
  outlining *x;
  const kiln_expr *kept; // x->kept with its dims renamed
  bool failed;
} load_map;

static const kiln_expr *map_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  load_map *lm = argument;
  outlining *x = lm->x;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], map_load, argument);
  const member *m = inside(x, e->u.tensor);
  if (m) {
    const kiln_expr *kept[KILN_MAX_RANK];
    for (int k = 0; k < m->n_space; k++) kept[k] = index[m->axis_of[k]];
    return kiln_tensor_load(cx, m->out, kept);
  }
  if (is_own(x, e->u.tensor))
    return x->m[x->n - 1].out ? kiln_tensor_load(cx, x->m[x->n - 1].out, index) : e;
  const kiln_tensor *t = x->p->tensors.data[e->u.tensor];
  int a = param_of(x, e->u.tensor, e != lm->kept && !keeps_axes(x, e));
  if (a < 0) {
    lm->failed = true;
    return e;
  }
  if (x->params.data[a].flat) {
    const kiln_expr *flat = flat_index(cx, t, index);
    return kiln_tensor_load(cx, x->params.data[a].to, &flat);
  }
  const kiln_expr *kept[KILN_MAX_RANK];
  int n = 0;
  for (int k = 0; k < t->rank; k++) {
    int64_t extent = 1;
    (void)kiln_expr_is_int(t->shape[k], &extent);
    if (extent != 1) kept[n++] = index[k];
  }
  return kiln_tensor_load(cx, x->params.data[a].to, kept);
}

// Ranks |load| as the vector operand along |v|: 0 impossible, 1 packed at run time, 2 contiguous or
// packed once.
static int vector_score(const outlining *x, const kiln_stmt *s, const kiln_expr *load,
                        const kiln_expr *other, kiln_symbol v) {
  if (!kiln_expr_uses(load, v) || inside(x, other->u.tensor)) return 0;
  bool constant = x->p->tensors.data[load->u.tensor]->role == KILN_CONST;
  if (kiln_expr_uses(other, v) && // depthwise: constant weights are repacked
      (!constant || x->p->tensors.data[other->u.tensor]->role == KILN_CONST))
    return 0;
  if (!constant && kiln_stmt_load_stride(x->cx, x->p, s, load, v) == 1) return 2;
  for (int k = 0; k < load->n_args; k++)
    if (kiln_expr_uses(load->args[k], v) && load->args[k]->kind != KILN_EXPR_VAR) return 0;
  return constant ? 2 : 1;
}

// Cycles per element: of a transposing copy beyond a copy of whole vectors; of results that are
// transposed block by block; and of lane-by-lane stores to lines that the tile does not fill.
static const double transpose_cycles = 1.5, turn_cycles = 0.7, scatter_cycles = 8;

// The contraction's dim that runs along the root's dim |k|; 0 if there is none.
static kiln_symbol dim_at(const member *c, const member *root, int k) {
  for (int d = 0; d < c->n_space; d++)
    if (c->names[d] == root->names[k]) return c->s->dims[c->axis_of[d]].name;
  return 0;
}

// Whether dims |outer| and |inner| of the root can become one, because in the result and in |load|
// a step of |outer| equals extent(|inner|) steps of |inner|.
static bool becomes_one(const outlining *x, const member *c, const member *root, int outer,
                        int inner, const kiln_expr *load) {
  const kiln_symbol o = dim_at(c, root, outer), i = dim_at(c, root, inner);
  const int64_t extent = root->extents[inner];
  if (!o || !i || root->redomained ||
      root->strides[root->axis_of[outer]] != extent * root->strides[root->axis_of[inner]])
    return false;
  const int64_t stride = kiln_stmt_load_stride(x->cx, x->p, c->s, load, i);
  return stride > 0 && stride < INT64_MAX / extent &&
         kiln_stmt_load_stride(x->cx, x->p, c->s, load, o) == extent * stride;
}

// The cost of the contraction if dim |at| of the root is the vector dim and |b| its operand:
// arithmetic, packing of |b| if it is not contiguous, and lane-by-lane stores if the result is not.
static double vector_cost(const outlining *x, const member *c, const member *root, int at,
                          const kiln_expr *a, const kiln_expr *b, kiln_symbol v) {
  const kiln_tensor *operand = x->p->tensors.data[b->u.tensor],
                    *out = x->p->tensors.data[root->s->out];
  kiln_tile_extents e = {.v = root->extents[at], .col = 1, .row = 1, .depth = 1};
  int64_t *const rows[] = {&e.col, &e.row};
  double rest = 1, cost = 0;
  int n_rows = 0, v_outer = at, row_outer = -1; // the dim that the next one may be merged with
  const int64_t *line = NULL; // strides of the rows' dim along which the result is contiguous
  for (int k = root->n_space - 1; k >= 0; k--) {
    const kiln_symbol name = dim_at(c, root, k);
    const bool in_a = name && kiln_expr_uses(a, name), in_b = name && kiln_expr_uses(b, name),
               is_row = in_a && !in_b;
    if (k == at) continue;
    if (is_row && n_rows < 2 && root->strides[root->axis_of[k]] == 1) line = rows[n_rows];
    if (in_b && !in_a && k == v_outer - 1 && becomes_one(x, c, root, k, v_outer, b)) {
      e.v *= root->extents[k];
      v_outer = k;
    } else if (is_row && row_outer >= 0 && becomes_one(x, c, root, k, row_outer, a)) {
      *rows[n_rows - 1] *= root->extents[k];
      row_outer = k;
    } else if (is_row && n_rows < 2) {
      *rows[n_rows++] = root->extents[k];
      row_outer = k;
    } else {
      rest *= (double)root->extents[k];
      row_outer = -1;
    }
  }
  for (int k = 0; k < c->s->n_reduce; k++)
    e.depth *= kiln_dim_extent(&c->s->dims[c->s->n_space + k]);
  if (operand->role != KILN_CONST && kiln_stmt_load_stride(x->cx, x->p, c->s, b, v) != 1)
    cost += transpose_cycles * (double)kiln_tensor_elems(operand);
  if (!root->redomained && root->strides[root->axis_of[at]] != 1)
    cost += (!line                                                ? scatter_cycles
             : *line >= 2 * (int64_t)x->machine->vector_bytes / 4 ? turn_cycles
                                                                  : transpose_cycles) *
            (double)kiln_tensor_elems(out);
  return cost + rest * kiln_tile_registers(x->machine, &e).cycles;
}

// Whether both operands are no constants and contiguous along the root's last dim.
static bool is_point_by_point(const outlining *x, const member *c, const member *root,
                              const kiln_expr *a, const kiln_expr *b) {
  for (int d = 0; d < c->n_space; d++) {
    const kiln_symbol v = c->s->dims[c->axis_of[d]].name;
    if (c->names[d] == root->names[root->n_space - 1])
      return x->p->tensors.data[a->u.tensor]->role != KILN_CONST &&
             x->p->tensors.data[b->u.tensor]->role != KILN_CONST &&
             kiln_stmt_load_stride(x->cx, x->p, c->s, a, v) == 1 &&
             kiln_stmt_load_stride(x->cx, x->p, c->s, b, v) == 1;
  }
  return false;
}

// Whether |load| is contiguous along |v|, a channel dim if both operands depend on it.
static bool lies_along(const outlining *x, const kiln_stmt *s, const kiln_expr *load,
                       kiln_symbol v) {
  return x->p->tensors.data[load->u.tensor]->role != KILN_CONST &&
         kiln_stmt_load_stride(x->cx, x->p, s, load, v) == 1;
}

// Chooses a contraction's vector dim and vector operand; the dim becomes the root's last. Among
// operands that are no constants, the one of least cost; else the one of best score, and among
// equals that of least cost, with preference for the root's contiguous dim.
static void choose_vector_operand(outlining *x, const member *c, member *root) {
  const kiln_expr *a = NULL, *b = NULL;
  if (root->n_space == 0 || !kiln_stmt_is_contraction(c->s, &a, &b)) return;
  if (is_point_by_point(x, c, root, a, b)) return; // both operands are vectors
  const bool variable = x->p->tensors.data[a->u.tensor]->role != KILN_CONST &&
                        x->p->tensors.data[b->u.tensor]->role != KILN_CONST;
  int best = -1, best_score = 0;
  double best_cost = 0;
  for (int k = root->n_space - 1; k >= 0; k--) {
    kiln_symbol v = 0;
    for (int d = 0; d < c->n_space; d++)
      if (c->names[d] == root->names[k]) v = c->s->dims[c->axis_of[d]].name;
    int in_a = v ? vector_score(x, c->s, a, b, v) : 0,
        in_b = v ? vector_score(x, c->s, b, a, v) : 0;
    int score = in_b >= in_a ? in_b : in_a;
    const kiln_expr *operand = in_b >= in_a ? b : a, *other = operand == b ? a : b;
    bool last = k == root->n_space - 1, both = v && kiln_expr_uses(a, v) && kiln_expr_uses(b, v);
    if (score == 0 || (both && !last && !lies_along(x, c->s, other, v))) continue;
    const double cost = vector_cost(x, c, root, k, other, operand, v);
    const bool is_better =
        variable || score == best_score ? cost < 0.9 * best_cost : score > best_score;
    if (best >= 0 && !is_better) continue;
    best = k;
    best_score = score;
    best_cost = cost;
    bool by_dims = true; // a load at other indices stays flat, and is not packed
    for (int i = 0; i < operand->n_args; i++) by_dims &= operand->args[i]->kind == KILN_EXPR_VAR;
    // packing needs unmerged axes
    by_dims &= !(k > 0 && becomes_one(x, c, root, k - 1, k, operand));
    const bool packed = x->p->tensors.data[operand->u.tensor]->role == KILN_CONST ||
                        kiln_stmt_load_stride(x->cx, x->p, c->s, operand, v) != 1 || by_dims;
    x->kept = packed ? operand : NULL;
  }
  if (best < 0) return;
  kiln_symbol name = root->names[best];
  int64_t extent = root->extents[best];
  int axis = root->axis_of[best];
  for (int k = best; k + 1 < root->n_space; k++) {
    root->names[k] = root->names[k + 1];
    root->extents[k] = root->extents[k + 1];
    root->axis_of[k] = root->axis_of[k + 1];
  }
  root->names[root->n_space - 1] = name;
  root->extents[root->n_space - 1] = extent;
  root->axis_of[root->n_space - 1] = axis;
}

// Keeps the axes of the queries of attention, so that a block of their rows is transposed: of the
// first contraction's operands, neither of them constant, the one that lacks a dim of the
// contraction.
static void keep_queries(outlining *x) {
  const member *root = &x->m[x->n - 1];
  for (int i = 0; i + 1 < x->n && !x->kept; i++) {
    const member *c = &x->m[i];
    const kiln_expr *a = NULL, *b = NULL;
    if (!kiln_stmt_is_contraction(c->s, &a, &b) || inside(x, a->u.tensor) ||
        inside(x, b->u.tensor) || x->p->tensors.data[a->u.tensor]->role == KILN_CONST ||
        x->p->tensors.data[b->u.tensor]->role == KILN_CONST)
      continue;
    for (int k = 0; k < c->n_space; k++) {
      const kiln_symbol v = c->s->dims[c->axis_of[k]].name;
      bool own = true;
      for (int d = 0; d < root->n_space; d++) own &= root->names[d] != c->names[k];
      if (own && kiln_expr_uses(a, v) != kiln_expr_uses(b, v))
        x->kept = kiln_expr_uses(a, v) ? b : a;
    }
  }
}

// Whether |load| reads windows of contiguous channels, at least 64 of them, as im2col-mode TMA
// copies them.
static bool reads_windows(const outlining *x, const kiln_stmt *s, const kiln_expr *load) {
  enum { LINE = 64 };
  const kiln_tensor *t = x->p->tensors.data[load->u.tensor];
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  bool is_window = false, has_lines = false;
  if (t->role == KILN_CONST || inside(x, load->u.tensor) || is_own(x, load->u.tensor) ||
      !kiln_dtype_is_half(t->dtype) || !kiln_tensor_static_shape(t, shape))
    return false;
  kiln_tensor_strides(t, strides);
  for (int k = 0; k < t->rank; k++) {
    bool in_space = false, in_window = false;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      if (kiln_expr_uses(load->args[k], s->dims[d].name) && kiln_dim_extent(&s->dims[d]) > 1)
        *(d < s->n_space ? &in_space : &in_window) = true;
    has_lines |= strides[k] == 1 && shape[k] % LINE == 0;
    is_window |= strides[k] != 1 && in_space && in_window;
  }
  return is_window && has_lines;
}

// Keeps the axes of a convolution's input if TMA copies its windows (target/gpu/im2col.h).
static void keep_windows(outlining *x, const kiln_stmt *c) {
  enum { LEAST = 64 }; // columns of a product that uses TMA
  const kiln_expr *factors[2] = {NULL, NULL}, *where = NULL;
  if (!x->machine->gpu.has_wgmma || !kiln_stmt_is_product(c, &factors[0], &factors[1])) return;
  for (int i = 0; i < 2; i++) {
    int64_t columns = 1;
    for (int d = 0; d < c->n_space; d++)
      if (!kiln_expr_uses(factors[i], c->dims[d].name)) columns *= kiln_dim_extent(&c->dims[d]);
    const kiln_expr *load = kiln_instr_copied(x->cx, factors[i], &where);
    if (load->kind == KILN_EXPR_LOAD && columns >= LEAST && reads_windows(x, c, load))
      x->kept = load;
  }
}

// Orders the contraction's dims as the root's, so that the vector dim is innermost in its register
// tile.
static void follow_root(member *c, const member *root) {
  member m = *c;
  int n = 0;
  for (int k = 0; k < root->n_space; k++)
    for (int d = 0; d < c->n_space; d++) {
      if (c->names[d] != root->names[k]) continue;
      m.names[n] = c->names[d];
      m.extents[n] = c->extents[d];
      m.axis_of[n++] = c->axis_of[d];
    }
  if (n == c->n_space) *c = m;
}

static void set_ranges(kiln_ctx *cx, const member *m, kiln_ranges *r) {
  kiln_ranges_init(r, &cx->scratch);
  for (int k = 0; k < m->n_space + m->n_reduce; k++)
    kiln_ranges_push(r, m->names[k], 0, m->extents[k] - 1);
}

static kiln_status rewrite_member(outlining *x, member *m) {
  kiln_ranges r;
  set_ranges(x->cx, m, &r);
  load_map lm = {x, x->kept ? with_names(x, m, x->kept) : NULL, false};
  const kiln_expr **all[3] = {&m->body, &m->guard, &m->init};
  const kiln_expr *from[3] = {m->s->body, m->s->guard, m->s->init};
  for (int i = 0; i < 3; i++)
    *all[i] =
        from[i] ? kiln_simplify(
                      x->cx, kiln_expr_replace(x->cx, with_names(x, m, from[i]), map_load, &lm), &r)
                : NULL;
  if (lm.failed)
    return KILN_FAIL(x->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(x->cx, m->s->origin),
                     "kernel: must read at most %d tensors, got more",
                     x->machine->target->max_params);
  return KILN_OK;
}

static void count_div(const kiln_expr *e, void *argument) {
  if (e->dtype == KILN_I64 && (e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD))
    ++*(int *)argument;
}

static int count_divs(kiln_ctx *cx, const kiln_expr *e) {
  int n = 0;
  if (e) kiln_expr_visit(cx, e, count_div, &n);
  return n;
}

typedef struct long_divs {
  const member *m;
  kiln_symbol fused; // a dim that two became; 0: none did
  int64_t extent;    // of it
  int n;
} long_divs;

static void count_long_div(const kiln_expr *e, void *argument) {
  long_divs *d = argument;
  bool is_long = d->fused && d->extent > UNROLLED && kiln_expr_uses(e, d->fused);
  if (e->dtype != KILN_I64 || (e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD)) return;
  for (int k = 0; k < d->m->n_space + d->m->n_reduce; k++)
    is_long |= d->m->extents[k] > UNROLLED && d->m->names[k] != d->fused &&
               kiln_expr_uses(e, d->m->names[k]);
  d->n += is_long;
}

// Divisions of |e| that a run computes: on CPUs loops of few iterations are unrolled, and what
// their variables alone are divided by is known then.
static int count_computed_divs(const outlining *x, const member *m, const kiln_expr *e,
                               kiln_symbol fused, int64_t extent) {
  if (x->machine->target->has_grids) return count_divs(x->cx, e);
  long_divs d = {m, fused, extent, 0};
  kiln_expr_visit(x->cx, e, count_long_div, &d);
  return d.n;
}

static const kiln_expr *merged(outlining *x, const member *m, const kiln_expr *e, kiln_symbol outer,
                               kiln_symbol inner, int64_t inner_extent, kiln_symbol fused,
                               int64_t fused_extent) {
  if (!e) return NULL;
  kiln_ranges r;
  set_ranges(x->cx, m, &r);
  kiln_ranges_push(&r, fused, 0, fused_extent - 1);
  const kiln_expr *f = kiln_var(x->cx, fused), *n = kiln_int(x->cx, inner_extent);
  return kiln_simplify(
      x->cx,
      kiln_expr_substitute(x->cx, e, 2, (kiln_symbol[]){outer, inner},
                           (const kiln_expr *[]){kiln_div(x->cx, f, n), kiln_mod(x->cx, f, n)}),
      &r);
}

// Merges dims k and k+1 of the root (and of the contraction that it reads element by element)
// unless an access then needs more divisions.
static bool merge_dims(outlining *x, int64_t *y_strides, int k) {
  member *root = &x->m[x->n - 1];
  kiln_symbol outer = root->names[k], inner = root->names[k + 1];
  int64_t e = root->extents[k + 1], fused = root->extents[k] * e;
  if (y_strides[k] != e * y_strides[k + 1]) return false;
  const kiln_expr *bodies[MAX_MEMBERS];
  for (int i = 0; i < x->n; i++) {
    member *m = &x->m[i];
    if (x->n > 1 &&
        (m->names[k] != outer || m->names[k + 1] != inner || m->n_space != root->n_space))
      return false;
    kiln_loads loads = kiln_loads_of(x->cx, &x->cx->scratch, m->body);
    for (int j = 0; j < loads.n; j++) // a tensor that is not flattened keeps its axes
      if (loads.data[j]->n_args > 1 &&
          x->prog->tensors.data[loads.data[j]->u.tensor]->role != KILN_TEMP &&
          (kiln_expr_uses(loads.data[j], outer) || kiln_expr_uses(loads.data[j], inner)))
        return false;
    bodies[i] = m->body;
  }
  for (int i = 0; i < x->n; i++) {
    // the group's own tensors are read by their dims: the divisions of those loads do not count
    const kiln_expr *to = merged(x, &x->m[i], bodies[i], outer, inner, e, outer, fused);
    int spare = i == x->n - 1 && x->n > 1 ? 2 : 0;
    if (count_divs(x->cx, to) > count_divs(x->cx, bodies[i]) + spare ||
        count_computed_divs(x, &x->m[i], to, outer, fused) >
            count_computed_divs(x, &x->m[i], bodies[i], 0, 0) + spare)
      return false;
    bodies[i] = to;
  }
  for (int i = 0; i < x->n; i++) {
    member *m = &x->m[i];
    m->body = bodies[i];
    m->extents[k] = fused;
    for (int d = k + 1; d + 1 < m->n_space + m->n_reduce; d++)
      m->names[d] = m->names[d + 1], m->extents[d] = m->extents[d + 1];
    m->n_space--;
  }
  for (int d = k; d < root->n_space; d++) y_strides[d] = y_strides[d + 1];
  return true;
}

// Replaces the index of loads of the group's own tensors by plain dims again, after merging.
static const kiln_expr *plain_inside(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  outlining *x = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int i = 0; i + 1 < x->n; i++) {
    const member *m = &x->m[i];
    if (m->out->id != e->u.tensor) continue;
    const kiln_expr *index[KILN_MAX_RANK];
    for (int k = 0; k < m->n_space; k++) index[k] = kiln_var(cx, m->names[k]);
    return kiln_load(cx, m->out->id, m->out->dtype, m->n_space, index);
  }
  return NULL;
}

static void merge_all(outlining *x, int64_t *y_strides) {
  member *root = &x->m[x->n - 1];
  bool any = false;
  for (int k = root->n_space - 2; k >= 0; k--) any |= merge_dims(x, y_strides, k);
  if (any && x->n > 1) root->body = kiln_expr_replace(x->cx, root->body, plain_inside, x);
}

// Merges reduction dims k and k+1 of a member (numbered after its space dims) unless an access then
// needs more divisions.
static bool merge_reductions(outlining *x, member *m, int k) {
  const int at = m->n_space + k;
  const kiln_symbol outer = m->names[at], inner = m->names[at + 1];
  const int64_t e = m->extents[at + 1], fused = m->extents[at] * e;
  if (m->guard || m->init) return false;
  const kiln_expr *to = merged(x, m, m->body, outer, inner, e, outer, fused);
  if (count_divs(x->cx, to) > count_divs(x->cx, m->body)) return false;
  m->body = to;
  m->extents[at] = fused;
  for (int d = at + 1; d + 1 < m->n_space + m->n_reduce; d++)
    m->names[d] = m->names[d + 1], m->extents[d] = m->extents[d + 1];
  m->n_reduce--;
  return true;
}

// Whether |m| has the root's dim |name|, or keeps the axes of its tensor, which the root indexes
// with it.
static bool uses_dim(const outlining *x, const member *m, kiln_symbol name) {
  for (int k = 0; k < m->n_space; k++)
    if (m->names[k] == name) return true;
  kiln_loads loads = kiln_loads_of(x->cx, &x->cx->scratch, x->m[x->n - 1].body);
  for (int j = 0; j < loads.n; j++)
    if (loads.data[j]->u.tensor == m->out->id && kiln_expr_uses(loads.data[j], name)) return true;
  return false;
}

// Merges dims k and k+1 of the root of a group of rows if only the root has them, unless an access
// then needs more divisions.
static void merge_own_dims(outlining *x, int64_t *y_strides, int k) {
  member *root = &x->m[x->n - 1];
  const kiln_symbol outer = root->names[k], inner = root->names[k + 1];
  const int64_t e = root->extents[k + 1], fused = root->extents[k] * e;
  if (y_strides[k] != e * y_strides[k + 1]) return;
  for (int i = 0; i + 1 < x->n; i++)
    if (uses_dim(x, &x->m[i], outer) || uses_dim(x, &x->m[i], inner)) return;
  const kiln_expr *to = merged(x, root, root->body, outer, inner, e, outer, fused);
  if (count_divs(x->cx, to) > count_divs(x->cx, root->body)) return;
  root->body = to;
  root->extents[k] = fused;
  for (int d = k + 1; d + 1 < root->n_space + root->n_reduce; d++)
    root->names[d] = root->names[d + 1], root->extents[d] = root->extents[d + 1];
  root->n_space--;
  for (int d = k; d < root->n_space; d++) y_strides[d] = y_strides[d + 1];
}

// Orders the reduction dims of |m| by decreasing stride of its operand, so that contiguous dims are
// neighbours and can be merged.
static void order_reductions(outlining *x, member *m) {
  const kiln_loads loads = kiln_loads_of(x->cx, &x->cx->scratch, m->body);
  int64_t strides[MAX_DIMS];
  if (loads.n == 0 || m->guard || m->init) return;
  for (int i = 0; i < m->n_reduce; i++) {
    kiln_symbol *names = m->names + m->n_space;
    int64_t *extents = m->extents + m->n_space;
    const kiln_symbol name = names[i];
    const int64_t extent = extents[i],
                  stride = kiln_load_stride(x->cx, x->prog, loads.data[0], name);
    int at = i;
    for (; at > 0 && strides[at - 1] < stride; at--) {
      strides[at] = strides[at - 1];
      names[at] = names[at - 1];
      extents[at] = extents[at - 1];
    }
    strides[at] = stride;
    names[at] = name;
    extents[at] = extent;
  }
}

typedef struct divisor {
  kiln_symbol var;
  int64_t extent, largest;
} divisor;

static void find_divisor(const kiln_expr *e, void *argument) {
  divisor *d = argument;
  int64_t by = 0;
  if ((e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD) && e->args[0]->kind == KILN_EXPR_VAR &&
      e->args[0]->u.sym == d->var && kiln_expr_is_int(e->args[1], &by) && by > d->largest &&
      by < d->extent && d->extent % by == 0)
    d->largest = by;
}

// Splits reduction dim |k| of |m|, the merged axes of a reshape, at the divisor that its index has,
// so that its parts can be summed in storage order. For example r with loads at (r / 7, r % 7)
// becomes two dims.
static bool split_reduction(outlining *x, member *m, int k) {
  const int at = m->n_space + k, n = m->n_space + m->n_reduce;
  divisor d = {.var = m->names[at], .extent = m->extents[at]};
  kiln_expr_visit(x->cx, m->body, find_divisor, &d);
  if (d.largest == 0 || n == MAX_DIMS || m->guard || m->init) return false;
  const kiln_symbol inner = kiln_symbol_printf(x->cx, "%s.%d", kiln_symbol_text(x->cx, d.var), n);
  const kiln_expr *sum =
      kiln_add(x->cx, kiln_mul(x->cx, kiln_var(x->cx, d.var), kiln_int(x->cx, d.largest)),
               kiln_var(x->cx, inner));
  kiln_ranges r;
  kiln_ranges_init(&r, &x->cx->scratch);
  for (int i = 0; i < n; i++)
    kiln_ranges_push(&r, m->names[i], 0, (i == at ? d.extent / d.largest : m->extents[i]) - 1);
  kiln_ranges_push(&r, inner, 0, d.largest - 1);
  const kiln_expr *to =
      kiln_simplify(x->cx, kiln_expr_substitute(x->cx, m->body, 1, &d.var, &sum), &r);
  if (count_divs(x->cx, to) >= count_divs(x->cx, m->body)) return false;
  m->body = to;
  for (int i = n; i > at + 1; i--) m->names[i] = m->names[i - 1], m->extents[i] = m->extents[i - 1];
  m->names[at + 1] = inner;
  m->extents[at + 1] = d.largest;
  m->extents[at] = d.extent / d.largest;
  m->n_reduce++;
  return true;
}

static void split_reductions(outlining *x, member *m) {
  for (int k = 0; k < m->n_reduce; k++)
    while (split_reduction(x, m, k)) continue;
}

// Merges the dims of rows as far as possible, so that contiguous elements are one loop.
static void merge_rows(outlining *x, int64_t *y_strides) {
  for (int i = 0; i < x->n && x->machine->target->has_vectors; i++) split_reductions(x, &x->m[i]);
  for (int i = 0; i < x->n; i++) order_reductions(x, &x->m[i]);
  for (int i = 0; i < x->n; i++)
    for (int k = x->m[i].n_reduce - 2; k >= 0; k--) merge_reductions(x, &x->m[i], k);
  const member *root = &x->m[x->n - 1];
  if (root->n_reduce == 0)
    for (int k = root->n_space - 2; k >= 0; k--) merge_own_dims(x, y_strides, k);
}

// The elements [begin, end) of a parameter that the program reads.
typedef struct reading {
  outlining *x;
  const kiln_ranges *ranges; // of the member's dims
  kiln_interval *read;       // by parameter
} reading;

static void note_read(const kiln_expr *e, void *argument) {
  const reading *r = argument;
  for (int k = 0; k < r->x->params.n; k++) {
    const param *a = &r->x->params.data[k];
    if (a->to->id != e->u.tensor || !a->flat) continue;
    const kiln_interval at = kiln_expr_interval(r->x->cx, e->args[0], r->ranges);
    if (at.lo < r->read[k].lo) r->read[k].lo = at.lo;
    if (at.hi > r->read[k].hi) r->read[k].hi = at.hi;
    return;
  }
}

static const kiln_expr *shift_read(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], shift_read, argument);
  for (int k = 0; k < r->x->params.n; k++) {
    const param *a = &r->x->params.data[k];
    if (a->to->id == e->u.tensor && a->offset)
      index[0] = kiln_simplify(cx, kiln_sub(cx, index[0], kiln_int(cx, a->offset)), r->ranges);
  }
  return kiln_expr_with_args(cx, e, index);
}

// Lets flat parameters begin and end with the elements that are read. Kernels on different slices
// of a tensor, as the steps of a recurrence have, then become equal.
static void cut_params(outlining *x) {
  reading r = {.x = x, .read = KILN_NEW_ARRAY(&x->cx->scratch, kiln_interval, x->params.n)};
  kiln_ranges dims;
  bool any = false;
  r.ranges = &dims;
  for (int k = 0; k < x->params.n; k++) r.read[k] = (kiln_interval){INT64_MAX, INT64_MIN};
  for (int i = 0; i < x->n; i++) {
    const member *m = &x->m[i];
    const kiln_expr *const all[3] = {m->body, m->guard, m->init};
    set_ranges(x->cx, m, &dims);
    for (int k = 0; k < 3; k++) kiln_expr_visit_loads(x->cx, all[k], note_read, &r);
  }
  for (int k = 0; k < x->params.n; k++) {
    param *a = &x->params.data[k];
    int64_t elems = 0;
    if (!a->flat || a->to->role != KILN_INPUT || r.read[k].lo > r.read[k].hi) continue;
    (void)kiln_expr_is_int(a->to->shape[0], &elems);
    const int64_t begin = r.read[k].lo > 0 ? r.read[k].lo : 0,
                  end = r.read[k].hi < elems ? r.read[k].hi + 1 : elems;
    if (begin >= end) continue; // a load whose guard never holds
    a->offset = begin;
    a->to->shape[0] = kiln_int(x->cx, end - begin);
    any |= begin > 0;
  }
  for (int i = 0; i < x->n && any; i++) {
    member *m = &x->m[i];
    const kiln_expr **const all[3] = {&m->body, &m->guard, &m->init};
    set_ranges(x->cx, m, &dims);
    for (int k = 0; k < 3; k++)
      if (*all[k]) *all[k] = kiln_expr_replace(x->cx, *all[k], shift_read, &r);
  }
}

// Makes the tensor of an inner member; its shape follows from the final dims.
static void make_tensor(outlining *x, member *m, int id) {
  const kiln_expr *extents[KILN_MAX_RANK] = {0};
  char name[16];
  for (int k = 0; k < m->n_space; k++) extents[k] = kiln_int(x->cx, m->extents[k]);
  snprintf(name, sizeof name, "t%d", id);
  m->out = kiln_tensor_make(x->cx, x->prog, name, x->p->tensors.data[m->s->out]->dtype, KILN_TEMP,
                            m->n_space, extents);
}

static kiln_stmt *add_stmt(outlining *x, const member *m, kiln_tensor *out) {
  kiln_stmt *s = KILN_NEW(&x->cx->perm, kiln_stmt);
  *s = (kiln_stmt){.out = out->id,
                   .n_space = m->n_space,
                   .n_reduce = m->n_reduce,
                   .combiner = m->s->combiner,
                   .body = m->body,
                   .guard = m->guard,
                   .init = m->init};
  s->dims = KILN_NEW_ARRAY(&x->cx->perm, kiln_dim, m->n_space + m->n_reduce);
  s->index = KILN_NEW_ARRAY(&x->cx->perm, const kiln_expr *, out->rank);
  for (int k = 0; k < m->n_space + m->n_reduce; k++)
    s->dims[k] = (kiln_dim){m->names[k], kiln_int(x->cx, m->extents[k])};
  for (int k = 0; k < out->rank && k < m->n_space; k++) s->index[k] = kiln_var(x->cx, m->names[k]);
  kiln_stmt_append(x->cx, x->prog, s);
  return s;
}

static bool is_stored(const outlining *x, const member *m) {
  const int i = (int)(m - x->m);
  return i + 1 < x->n && x->g->stored >> i & 1;
}

static kiln_tensor *make_result(outlining *x, const char *name, int rank, const int64_t *extents,
                                const int64_t *strides, kiln_dtype t) {
  const kiln_expr *shape[KILN_MAX_RANK] = {0};
  for (int k = 0; k < rank; k++) shape[k] = kiln_int(x->cx, extents[k]);
  kiln_tensor *y = kiln_tensor_make(x->cx, x->prog, name, t, KILN_OUTPUT, rank, shape);
  int64_t *own = KILN_NEW_ARRAY(&x->cx->perm, int64_t, rank);
  memcpy(own, strides, (size_t)rank * sizeof *own);
  y->strides = own;
  KILN_VEC_PUSH(&x->cx->perm, &x->prog->outputs, y->id);
  return y;
}

// Adds a copy after a reduction that is the root, or whose result is stored besides being reused,
// so that its accumulators stay in registers.
static void add_copy(outlining *x, const member *m, kiln_tensor *t, kiln_tensor *y) {
  const kiln_expr *vars[KILN_MAX_RANK];
  for (int k = 0; k < m->n_space; k++) vars[k] = kiln_var(x->cx, m->names[k]);
  member copy = *m;
  kiln_stmt plain = *m->s;
  plain.combiner = KILN_COMBINE_NONE;
  copy.s = &plain;
  copy.n_reduce = 0;
  copy.guard = copy.init = NULL;
  copy.body = kiln_tensor_load(x->cx, t, vars);
  add_stmt(x, &copy, y);
}

// Makes a result besides the last, stored like the member's tensor.
static kiln_tensor *make_stored(outlining *x, const member *m) {
  const kiln_tensor *t = x->p->tensors.data[m->s->out];
  int64_t strides[KILN_MAX_RANK];
  char name[16];
  for (int k = 0; k < m->n_space; k++) strides[k] = m->strides[m->axis_of[k]];
  snprintf(name, sizeof name, "z%d", x->prog->outputs.n);
  return make_result(x, name, m->n_space, m->extents, strides, t->dtype);
}

// What is reused and stored is written to its place at once; of a reduction a copy is.
static void make_tensors(outlining *x) {
  for (int i = 0; i + 1 < x->n; i++) {
    member *m = &x->m[i];
    if (!is_stored(x, m) || m->n_reduce) make_tensor(x, m, i);
    else m->out = m->stored = make_stored(x, m);
  }
}

static void add_inner(outlining *x) {
  for (int i = 0; i + 1 < x->n; i++) {
    member *m = &x->m[i];
    add_stmt(x, m, m->out);
    if (!is_stored(x, m) || m->stored) continue;
    m->stored = make_stored(x, m);
    add_copy(x, m, m->out, m->stored);
  }
}

// The strides of the member's tensor, by its own axes, or along the dims of |c| if the member runs
// over these.
static void find_strides(const outlining *x, member *m, const kiln_stmt *c) {
  const kiln_tensor *t = x->p->tensors.data[m->s->out];
  if (!m->redomained) kiln_tensor_strides(t, m->strides);
  // they exist: redomain checked it
  else (void)kiln_tile_strides_along(x->p->tensors.data[c->out], t, m->strides);
}

// A load of what the statement |argument| computes, with that statement's own dims as its index.
static const kiln_expr *load_own(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_stmt *c = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != c->out) return NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < e->n_args; k++) index[k] = kiln_stmt_var(cx, c, k);
  return kiln_expr_with_args(cx, e, index);
}

// Rewrites a map that reads its contraction through a reshape to run over the contraction's dims.
// The group has one load of the contraction, of the map's own element (`renumbers`), which becomes
// a plain one whatever its index was.
//
// gives: the new statement
static const kiln_stmt *redomain(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *root,
                                 const kiln_stmt *c) {
  kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, root);
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *l = loads.data[i];
    bool plain = true;
    for (int k = 0; k < l->n_args; k++)
      plain &= l->args[k]->kind == KILN_EXPR_VAR || kiln_expr_is_int(l->args[k], NULL);
    if (l->u.tensor != c->out || plain) continue;
    const kiln_tensor *t = p->tensors.data[c->out], *out = p->tensors.data[root->out];
    int64_t shape[KILN_MAX_RANK], stride = 1;
    (void)kiln_tensor_static_shape(t, shape);
    const kiln_expr *linear = kiln_int(cx, 0), *index[KILN_MAX_RANK];
    for (int k = t->rank - 1; k >= 0; stride *= shape[k--])
      linear = kiln_add(cx, linear, kiln_mul(cx, kiln_stmt_var(cx, c, k), kiln_int(cx, stride)));
    kiln_symbol vars[KILN_MAX_RANK];
    (void)kiln_tensor_static_shape(out, shape);
    stride = 1;
    for (int k = out->rank - 1; k >= 0; stride *= shape[k--]) {
      vars[k] = root->dims[k].name;
      index[k] = kiln_mod(cx, kiln_div(cx, linear, kiln_int(cx, stride)), kiln_int(cx, shape[k]));
    }
    kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
    kiln_ranges r = kiln_stmt_ranges(&cx->scratch, c);
    *s = *root;
    s->n_space = c->n_space;
    s->dims = c->dims;
    const kiln_expr *body = kiln_expr_substitute(cx, root->body, out->rank, vars, index);
    s->body = kiln_simplify(cx, kiln_expr_replace(cx, body, load_own, (void *)c), &r);
    return s;
  }
  return root;
}

static void collect_members(outlining *x) {
  const bool keeps_row = has_one_row(x);
  const kiln_stmt **all =
      kiln_group_fold(x->cx, x->p, x->machine, x->g->n_stmts, x->g->stmts, x->g->stored, &x->n);
  x->m = KILN_NEW_ARRAY(&x->cx->scratch, member, x->n);
  for (int i = 0; i < x->n; i++) {
    x->m[i].s = all[i];
    if (x->g->kind == KILN_GROUP_CONTRACTION && i > 0 && x->m[i].s->n_reduce == 0) {
      x->m[i].s = redomain(x->cx, x->p, x->m[i].s, x->m[i - 1].s);
      x->m[i].redomained = x->m[i].s != all[i];
    }
    find_strides(x, &x->m[i], i ? x->m[i - 1].s : NULL);
    order_dims(x, &x->m[i], keeps_row);
  }
  member *root = &x->m[x->n - 1];
  for (int k = 0; k < root->n_space; k++) {
    root->names[k] = kiln_symbol_printf(x->cx, "i%d", k);
    root->extents[k] = kiln_dim_extent(&root->s->dims[root->axis_of[k]]);
  }
  int n_own = 0;
  for (int i = x->n - 2; i >= 0; i--) name_dims(x, &x->m[i], &n_own);
  for (int i = 0; i < x->n; i++) name_reductions(x, &x->m[i]);
}

static kiln_status outline_group(outlining *x) {
  collect_members(x);
  member *root = &x->m[x->n - 1];
  const kiln_tensor *out = x->p->tensors.data[root->s->out];
  int64_t strides[KILN_MAX_RANK + 1];
  if (x->g->kind == KILN_GROUP_CONTRACTION) {
    member *c = root->s->n_reduce > 0 || x->n == 1 ? root : root - 1; // a decoder runs before it
    if (x->machine->target->has_vectors) choose_vector_operand(x, c, root);
    else keep_windows(x, c->s);
    if (c != root) follow_root(c, root);
  }
  if (x->g->kind == KILN_GROUP_ATTENTION && x->machine->target->has_vectors) keep_queries(x);
  for (int k = 0; k < root->n_space; k++) strides[k] = root->strides[root->axis_of[k]];
  make_tensors(x);
  for (int i = 0; i < x->n; i++) KILN_TRY(rewrite_member(x, &x->m[i]));
  const bool keeps_dims = x->g->stored || x->g->kind == KILN_GROUP_ROWS ||
                          x->g->kind == KILN_GROUP_FUSED_LAYERS ||
                          x->g->kind == KILN_GROUP_WINOGRAD || x->g->kind == KILN_GROUP_ATTENTION;
  if (!keeps_dims && root->n_space > 1) {
    merge_all(x, strides);
    for (int i = 0; i + 1 < x->n; i++) { // the inner tensors have the merged dims
      x->m[i].out->rank = x->m[i].n_space;
      for (int k = 0; k < x->m[i].n_space; k++)
        x->m[i].out->shape[k] = kiln_int(x->cx, x->m[i].extents[k]);
    }
  }
  if (x->g->kind == KILN_GROUP_ROWS) merge_rows(x, strides);
  if (x->machine->target->param_align_bytes == 1) cut_params(x);
  add_inner(x);
  if (root->n_reduce > 0) {
    make_tensor(x, root, x->n - 1);
    add_stmt(x, root, root->out);
  }
  kiln_tensor *y = make_result(x, "y", root->n_space, root->extents, strides, out->dtype);
  if (root->n_reduce > 0) add_copy(x, root, root->out, y);
  else add_stmt(x, root, y);
  root->stored = y;
  return KILN_OK;
}

// Outlines a scatter, whose dims, axes and order of iteration stay.
static kiln_status outline_scatter(outlining *x) {
  x->n = 1;
  x->m = KILN_NEW_ARRAY(&x->cx->scratch, member, 1);
  member *m = &x->m[0];
  m->s = x->p->stmts.data[x->g->stmts[0]];
  const kiln_tensor *out = x->p->tensors.data[m->s->out];
  for (int k = 0; k < m->s->n_space; k++) {
    m->axis_of[m->n_space] = k;
    m->names[m->n_space] = kiln_symbol_printf(x->cx, "i%d", k);
    m->extents[m->n_space++] = kiln_dim_extent(&m->s->dims[k]);
  }
  name_reductions(x, m);
  KILN_TRY(rewrite_member(x, m));
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  (void)kiln_tensor_static_shape(out, shape);
  kiln_tensor_strides(out, strides);
  load_map lm = {x, NULL, false};
  const kiln_expr *index[KILN_MAX_RANK]; // made before the result, whose tensor has the last id
  for (int k = 0; k < out->rank; k++)
    index[k] = kiln_expr_replace(x->cx, with_names(x, m, m->s->index[k]), map_load, &lm);
  kiln_tensor *y = make_result(x, "y", out->rank, shape, strides, out->dtype);
  if (kiln_stmt_reads_itself(x->cx, x->p, m->s)) { // after its operands have their tensors
    m->out = y;
    KILN_TRY(rewrite_member(x, m));
    for (int k = 0; k < out->rank; k++)
      index[k] = kiln_expr_replace(x->cx, with_names(x, m, m->s->index[k]), map_load, &lm);
  }
  kiln_stmt *s = add_stmt(x, m, y);
  m->stored = y;
  for (int k = 0; k < out->rank; k++) s->index[k] = index[k];
  return KILN_OK;
}

// The argument of |t|, a parameter of the new program.
static kiln_argument argument_of(const outlining *x, const kiln_tensor *t) {
  for (int k = 0; k < x->params.n; k++) {
    const param *a = &x->params.data[k];
    if (a->to == t) return (kiln_argument){a->from, a->offset};
  }
  for (int i = 0; i < x->n; i++)
    if (x->m[i].stored == t) return (kiln_argument){x->m[i].s->out, 0};
  return (kiln_argument){-1, 0};
}

// The facts about |t|, a parameter of the new program; panels of constants need axes, so a flat one
// has none.
static kiln_fact fact_of(const outlining *x, const kiln_tensor *t) {
  for (int k = 0; k < x->params.n; k++) {
    const param *a = &x->params.data[k];
    const kiln_fact from = kiln_fact_of(x->facts, a->from);
    if (a->to == t)
      return (kiln_fact){.is_small = from.is_small,
                         .panels = a->flat ? 0 : kiln_panels_plain(from.panels)};
  }
  return (kiln_fact){0};
}

static void list_args(outlining *x, kiln_outline *out) {
  out->args = KILN_NEW_ARRAY(&x->cx->perm, kiln_argument, x->prog->tensors.n);
  for (int i = 0; i < x->prog->tensors.n; i++) {
    const kiln_tensor *t = x->prog->tensors.data[i];
    if (t->role == KILN_TEMP) continue;
    const kiln_fact known = fact_of(x, t);
    if (known.is_small || known.panels) *kiln_fact_at(x->cx, &out->facts, i) = known;
    out->args[out->n_args++] = argument_of(x, t);
  }
}

const char *kiln_tile_key(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *outlined,
                          const kiln_facts *facts) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_text_add_int(&t, (int)kind);
  kiln_text_add(&t, " ");
  for (int i = 0; i < outlined->tensors.n; i++) {
    const kiln_tensor *a = outlined->tensors.data[i];
    kiln_text_add_int(&t, (int)a->role);
    kiln_text_add(&t, ":");
    for (int k = 0; a->strides && k < a->rank; k++) {
      kiln_text_add_int(&t, a->strides[k]);
      kiln_text_add(&t, ",");
    }
  }
  kiln_program_print(cx, outlined, &t);
  kiln_facts_print(cx, outlined, facts, "", &t);
  return t.data;
}

static kiln_status outline(outlining *x) {
  return x->g->kind == KILN_GROUP_SCATTER ? outline_scatter(x) : outline_group(x);
}

kiln_status kiln_tile_outline_keyless(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                      const kiln_group *g, const kiln_machine *m,
                                      kiln_outline *out) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  outlining x = {.cx = cx,
                 .p = p,
                 .facts = facts,
                 .g = g,
                 .machine = m,
                 .prog = kiln_program_make(cx, "kernel")};
  *out = (kiln_outline){0};
  const kiln_status st = outline(&x);
  if (st == KILN_OK) {
    list_args(&x, out);
    out->prog = x.prog;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

kiln_status kiln_tile_outline(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                              const kiln_group *g, const kiln_machine *m, kiln_outline *out) {
  KILN_TRY(kiln_tile_outline_keyless(cx, p, facts, g, m, out));
  out->key = kiln_tile_key(cx, g->kind, out->prog, &out->facts);
  return KILN_OK;
}
