// Loop-bound tightening: a loop ends after the last iteration that stores an element needed for the
// run's extents.
//     for i < 64 { y[i] = .. }      becomes      for i < seq { y[i] = .. },  seq <= 64
// The runtime passes the bounds of parallel loops; other bounds are computed in the kernel from the
// dimensions.
//
// The needed extents of the model's own tensors are given (ranges.h). An axis of a tensor made by
// passes needs as many elements as the tensors that its statement reads along that dimension.
// Kernels access tensors by address: an address is not needed if, modulo the stride of the next
// outer axis, it is at or beyond extent * stride of an axis. A kernel's temporaries need the
// elements read by later loops, after tightening; so loops are visited from the last to the first.
//
// Of a GPU's kernels the loops over blocks are tightened, and nothing within: the grid of a launch
// is a formula of the dimensions.
#include "dynamic/buckets.h"
#include "dynamic/ranges.h"
#include "analysis/simplify.h"
#include "support/bits.h"
#include "target/gpu/nest.h"

typedef struct tightening {
  kiln_ctx *cx;
  kiln_build *b;
  const kiln_model_ranges *r;
  const kiln_bucket *part;
  bool has_grids;
  const kiln_expr ***live; // by tensor: needed extents of its axes; NULL: all of the program's
} tightening;

// --- needed extents of the program's tensors ---

static const kiln_live *find_live(const tightening *t, const kiln_tensor *x) {
  for (int i = 0; i < t->part->live.n; i++) {
    const kiln_live *l = &t->part->live.data[i];
    bool same = l->tensor == x->name && l->rank == x->rank;
    for (int k = 0; same && k < l->rank; k++) same = l->most[k] == x->shape[k];
    if (same) return l;
  }
  return NULL;
}

typedef struct bounding {
  tightening *t;
  const kiln_stmt *s;
  const kiln_expr **extents; // by dim of |s|
} bounding;

static void find_choice(const kiln_expr *e, void *argument) {
  *(bool *)argument |= e->kind == KILN_EXPR_SELECT && e->args[0]->has_load;
}

// Whether |e| selects by loaded values, as masks computed from the dimensions do: its value beyond
// an end may still matter.
static bool chooses(kiln_ctx *cx, const kiln_expr *e) {
  bool does = false;
  kiln_expr_visit(cx, e, find_choice, &does);
  return does;
}

// A dim that is the only index of an axis needs no more iterations than the axis needs elements.
static void bound_dims(const kiln_expr *e, void *argument) {
  bounding *b = argument;
  const kiln_expr **live = e->kind == KILN_EXPR_LOAD ? b->t->live[e->u.tensor] : NULL;
  if (!live) return;
  const kiln_tensor *x = b->t->b->choices.prog->tensors.data[e->u.tensor];
  for (int k = 0; k < e->n_args; k++)
    for (int d = 0; d < b->s->n_space; d++)
      if (e->args[k]->kind == KILN_EXPR_VAR && e->args[k]->u.sym == b->s->dims[d].name &&
          b->s->dims[d].extent == x->shape[k] && live[k] != x->shape[k])
        b->extents[d] = live[k];
}

static void infer_live(tightening *t, const kiln_stmt *s) {
  const kiln_tensor *x = t->b->choices.prog->tensors.data[s->out];
  if (t->live[x->id] || find_live(t, x) || !kiln_stmt_is_plain(t->cx, s) || s->guard ||
      chooses(t->cx, s->body))
    return;
  bounding b = {t, s, KILN_NEW_ARRAY(&t->cx->perm, const kiln_expr *, x->rank)};
  for (int k = 0; k < x->rank; k++) b.extents[k] = x->shape[k];
  kiln_expr_visit(t->cx, s->body, bound_dims, &b);
  for (int k = 0; k < x->rank; k++)
    if (b.extents[k] != x->shape[k]) t->live[x->id] = b.extents;
}

static void find_all_live(tightening *t) {
  const kiln_program *p = t->b->choices.prog;
  t->live = KILN_NEW_ARRAY(&t->cx->perm, const kiln_expr **, p->tensors.n);
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *x = p->tensors.data[i];
    const kiln_live *l = x ? find_live(t, x) : NULL;
    if (l) t->live[i] = l->extents;
  }
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]) infer_live(t, p->stmts.data[i]);
}

// --- analysis of one loop ---

// The needed part of an axis: addresses modulo |outer| (0: none) below |extent| * |stride|, out of
// |count| * |stride|.
typedef struct limit {
  const kiln_expr *extent;
  int64_t stride, count, outer;
} limit;

typedef struct limits {
  int n;
  limit at[KILN_MAX_RANK];
} limits;

// The limits of the axes of |x|, each of which is dense in the next outer one.
static limits limits_of_tensor(const tightening *t, const kiln_tensor *x) {
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  const kiln_expr **live = t->live[x->id];
  limits all = {0};
  if (!live) return all;
  kiln_tensor_static_shape(x, shape);
  kiln_tensor_strides(x, strides);
  for (int k = 0; k < x->rank; k++) {
    int64_t span = 0, outer = 0;
    for (int i = 0; i < x->rank; i++) {
      const bool is_inner = strides[i] < strides[k] || (strides[i] == strides[k] && shape[i] == 1);
      if (i == k || shape[i] == 1) continue;
      if (is_inner) span += (shape[i] - 1) * strides[i];
      else if (outer == 0 || strides[i] < outer) outer = strides[i];
    }
    if (shape[k] == 1 || live[k] == x->shape[k] || span >= strides[k]) continue;
    if (outer && shape[k] * strides[k] > outer) continue;
    all.at[all.n++] = (limit){live[k], strides[k], shape[k], outer};
  }
  return all;
}

enum { MAX_AXES = KILN_MAX_RANK + 4, MAX_TERMS = 6 }; // of a buffer: ends whose maximum is computed

// The part of a WORKSPACE or ALLOC buffer that is read: indices below |ends|, expressions over the
// variables of enclosing loops and dimensions.
typedef struct need {
  bool is_known;                   // all stores precede all loads
  int first_load, last_store;      // positions in program order; -1: none
  int depth;                       // number of ranges of enclosing loops
  int n_terms;                     // number of terms in each of |ends|
  const kiln_expr *ends[MAX_AXES]; // NULL: not read so far
} need;

typedef struct tightener {
  tightening *t;
  int kernel, nest;
  kiln_loops *l;
  const limits *limits; // by buffer, for PARAMs
  need *needs;          // by buffer, for others
  int place;            // position in program order
  kiln_ranges
      ranges; // of the dimensions, the enclosing loops and, during analysis, the inner loops
  KILN_VEC(const kiln_expr *) lasts; // by range: the last iteration
  // Of the current loop:
  kiln_symbol var;
  int64_t extent;
  const kiln_loop *loop;
  int n_around;           // number of ranges of enclosing loops, its own included
  kiln_bits *own;         // buffers allocated inside of the loop
  const kiln_expr *first; // first iteration that is not needed; NULL: none yet
  bool fails;             // all iterations are needed
} tightener;

static void push_loop(tightener *g, const kiln_loop *l) {
  const kiln_interval n = kiln_expr_interval(g->t->cx, l->extent, &g->ranges);
  const int64_t last = n.hi > 0 && n.hi < INT64_MAX ? n.hi - 1 : n.hi;
  kiln_ranges_push(&g->ranges, l->var, 0, last);
  KILN_VEC_PUSH(&g->t->cx->scratch, &g->lasts, kiln_int(g->t->cx, last));
}

static void pop_loop(tightener *g) {
  kiln_ranges_pop(&g->ranges, 1);
  g->lasts.n--;
}

static void fail(tightener *g) { g->fails = true; }

// Replaces min(x, c), which moves the last tile of a row back, by x.
static const kiln_expr *without_min(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_symbol *var = argument;
  (void)cx;
  const bool moves = e->kind == KILN_EXPR_MIN && kiln_expr_uses(e->args[0], *var) &&
                     kiln_expr_is_int(e->args[1], NULL);
  return moves ? e->args[0] : NULL;
}

// The address |at| without moved-back tiles; *out_step is its increment from one iteration to the
// next.
static bool find_step(tightener *g, const kiln_expr *at, int64_t *out_step) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *var = kiln_var(cx, g->var), *next = kiln_add(cx, var, kiln_int(cx, 1));
  const kiln_expr *rise = kiln_sub(cx, kiln_expr_substitute(cx, at, 1, &g->var, &next), at);
  return kiln_expr_is_int(kiln_simplify(cx, rise, NULL), out_step) && *out_step > 0;
}

static int64_t least_of(tightener *g, const kiln_expr *e) {
  return kiln_expr_interval(g->t->cx, e, &g->ranges).lo;
}

// A lower bound of |e| in one iteration: removes terms of inner loops if they are nonnegative.
static const kiln_expr *floor_of(tightener *g, const kiln_expr *e) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *start = e;
  for (int i = g->n_around; i < g->ranges.entries.n; i++)
    start = kiln_expr_substitute(cx, start, 1, &g->ranges.entries.data[i].var, &zero);
  const kiln_expr *rest = kiln_simplify(cx, kiln_sub(cx, e, start), &g->ranges);
  return least_of(g, rest) >= 0 ? kiln_simplify(cx, start, &g->ranges)
                                : kiln_int(cx, least_of(g, e));
}

// The first iteration that stores nothing needed along the axis of |end|, at addresses |at|; NULL:
// there is none. Needed elements of a moved-back tile are also stored by the tiles before it.
static const kiln_expr *first_beyond(tightener *g, const limit *end, const kiln_expr *at) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *zero = kiln_int(cx, 0);
  if (end->outer) at = kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, end->outer)), &g->ranges);
  const kiln_expr *even = kiln_expr_replace(cx, at, without_min, &g->var);
  int64_t step = 0;
  // A loop whose whole range is within one step of the extent has no iterations to skip.
  if (!find_step(g, even, &step) || step * (g->extent - 1) < end->stride) return NULL;
  const kiln_expr *rest = floor_of(g, kiln_expr_substitute(cx, even, 1, &g->var, &zero));
  const kiln_expr *e = kiln_mul(cx, end->extent, kiln_int(cx, end->stride));
  e = kiln_sub(cx, kiln_add(cx, e, kiln_int(cx, step - 1)), rest);
  return kiln_simplify(cx, kiln_div(cx, e, kiln_int(cx, step)), &g->ranges);
}

// --- loads of a kernel's own memory ---

static bool is_own_memory(const tightener *g, int buffer) {
  return g->l->buffers.data[buffer]->scope != KILN_SCOPE_PARAM;
}

static void note_place(const kiln_expr *e, void *argument) {
  tightener *g = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  need *n = &g->needs[e->u.tensor];
  if (n->first_load < 0) n->first_load = g->place;
}

static void note_instr(const kiln_expr *e, void *argument) {
  tightener *g = argument;
  if (e->kind == KILN_EXPR_LOAD) g->needs[e->u.tensor].is_known = false;
}

// Finds the buffers whose stores all precede their loads. A reducing store counts as a load of its
// element only.
static void note_places(tightener *g, const kiln_loop *list) {
  kiln_ctx *cx = g->t->cx;
  for (const kiln_loop *l = list; l; l = l->next) {
    g->place++;
    if (l->kind == KILN_LOOP_FOR) kiln_expr_visit(cx, l->extent, note_place, g);
    if (l->kind == KILN_LOOP_IF) kiln_expr_visit(cx, l->cond, note_place, g);
    if (l->kind == KILN_LOOP_STORE) {
      kiln_expr_visit(cx, l->value, note_place, g);
      for (int k = 0; k < g->l->buffers.data[l->buffer]->rank; k++)
        kiln_expr_visit(cx, l->index[k], note_place, g);
      g->needs[l->buffer].last_store = g->place;
    }
    for (int i = 0; l->kind == KILN_LOOP_INSTR && i < l->n_operands; i++)
      kiln_expr_visit(cx, l->operands[i], note_instr, g);
    note_places(g, l->body);
  }
}

// Monotonicity of |e| in |var|: 1 increasing, -1 decreasing, 0 invariant; 2: unknown.
static int direction(const kiln_expr *e, kiln_symbol var) {
  int64_t c = 0;
  if (!kiln_expr_uses(e, var)) return 0;
  if (e->kind == KILN_EXPR_VAR) return 1;
  if (e->n_args != 2 || e->dtype != KILN_I64) return 2;
  const int a = direction(e->args[0], var), b = direction(e->args[1], var);
  const bool by_constant = kiln_expr_is_int(e->args[1], &c);
  if (a == 2 || b == 2) return 2;
  switch ((int)e->kind) {
  case KILN_EXPR_ADD:
  case KILN_EXPR_MIN:
  case KILN_EXPR_MAX: return a == 0 ? b : b == 0 || a == b ? a : 2;
  case KILN_EXPR_SUB: return a == 0 ? -b : b == 0 || a == -b ? a : 2;
  case KILN_EXPR_MUL: return by_constant ? (c > 0 ? a : c < 0 ? -a : 0) : 2;
  case KILN_EXPR_DIV: return by_constant && c > 0 ? a : 2;
  default: return 2;
  }
}

// The maximum of |e| over all iterations of the loops from range |depth| on.
static const kiln_expr *most_of(tightener *g, const kiln_expr *e, int depth) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *zero = kiln_int(cx, 0);
  for (int i = g->ranges.entries.n - 1; i >= depth; i--) {
    const kiln_symbol var = g->ranges.entries.data[i].var;
    const int d = direction(e, var);
    if (d == 2) return kiln_int(cx, kiln_expr_interval(cx, e, &g->ranges).hi);
    if (d != 0) e = kiln_expr_substitute(cx, e, 1, &var, d > 0 ? &g->lasts.data[i] : &zero);
  }
  return kiln_simplify(cx, e, &g->ranges);
}

static void note_load(const kiln_expr *e, void *argument) {
  tightener *g = argument;
  if (e->kind != KILN_EXPR_LOAD || !is_own_memory(g, e->u.tensor)) return;
  kiln_ctx *cx = g->t->cx;
  need *n = &g->needs[e->u.tensor];
  const kiln_buffer *b = g->l->buffers.data[e->u.tensor];
  n->n_terms++;
  for (int k = 0; k < b->rank; k++) {
    const kiln_expr *all = kiln_int(cx, b->extents[k]);
    const kiln_expr *end = kiln_add(cx, most_of(g, e->args[k], n->depth), kiln_int(cx, 1));
    if (n->ends[k]) end = kiln_binary(cx, KILN_EXPR_MAX, n->ends[k], end);
    end = kiln_simplify(cx, kiln_binary(cx, KILN_EXPR_MIN, end, all), &g->ranges);
    n->ends[k] = n->n_terms > MAX_TERMS && end != n->ends[k] ? all : end;
  }
}

static bool reads(kiln_ctx *cx, const kiln_loop *list, int buffer) {
  for (const kiln_loop *l = list; l; l = l->next)
    if ((l->kind == KILN_LOOP_STORE && kiln_expr_loads(cx, l->value, buffer)) ||
        reads(cx, l->body, buffer))
      return true;
  return false;
}

// --- stores ---

// Like first_beyond, for a store to the kernel's own memory that is live after the loop.
static const kiln_expr *first_unread(tightener *g, int buffer, const kiln_expr *const *index) {
  const need *n = &g->needs[buffer];
  const kiln_buffer *b = g->l->buffers.data[buffer];
  const kiln_expr *first = NULL;
  if (!n->is_known || n->first_load < n->last_store || reads(g->t->cx, g->loop->body, buffer))
    return NULL;
  for (int k = 0; k < b->rank && !first; k++) {
    const limit end = {n->ends[k], 1, b->extents[k], 0};
    if (!n->ends[k] || kiln_expr_is_int(n->ends[k], NULL)) continue;
    first = first_beyond(g, &end, kiln_simplify(g->t->cx, index[k], &g->ranges));
  }
  return first;
}

static const kiln_expr *first_stored(tightener *g, int buffer, int n,
                                     const kiln_expr *const *index) {
  kiln_ctx *cx = g->t->cx;
  const kiln_buffer *b = g->l->buffers.data[buffer];
  const limits *all = &g->limits[buffer];
  const kiln_expr *at = kiln_int(cx, 0), *first = NULL;
  for (int k = 0; k < n; k++)
    at = kiln_add(cx, at, kiln_mul(cx, index[k], kiln_int(cx, b->strides[k])));
  at = kiln_simplify(cx, at, &g->ranges);
  for (int i = 0; i < all->n && !first; i++) first = first_beyond(g, &all->at[i], at);
  return first;
}

static void see_store(tightener *g, int buffer, int n, const kiln_expr *const *index) {
  kiln_ctx *cx = g->t->cx;
  if (kiln_bits_has(g->own, buffer)) return;
  const kiln_expr *first =
      is_own_memory(g, buffer) ? first_unread(g, buffer, index) : first_stored(g, buffer, n, index);
  if (!first) fail(g);
  else if (!g->first) g->first = first;
  else g->first = kiln_simplify(cx, kiln_binary(cx, KILN_EXPR_MAX, g->first, first), &g->ranges);
}

// The first operand is what an instruction writes.
static void see_instr(tightener *g, const kiln_loop *l) {
  const kiln_expr *to = l->operands[0];
  const bool is_own = to->kind == KILN_EXPR_LOAD && kiln_bits_has(g->own, to->u.tensor);
  if (!g->t->has_grids || !is_own) fail(g);
}

static void see(tightener *g, const kiln_loop *list) {
  for (const kiln_loop *l = list; l && !g->fails; l = l->next) {
    switch (l->kind) {
    case KILN_LOOP_FOR:
      push_loop(g, l);
      see(g, l->body);
      pop_loop(g);
      break;
    case KILN_LOOP_ALLOC:
      kiln_bits_set(g->own, l->buffer);
      see(g, l->body);
      break;
    case KILN_LOOP_IF: see(g, l->body); break;
    case KILN_LOOP_STORE:
      see_store(g, l->buffer, g->l->buffers.data[l->buffer]->rank, l->index);
      break;
    case KILN_LOOP_INSTR: see_instr(g, l); break;
    case KILN_LOOP_DEVICE: fail(g); break; // not in loops
    case KILN_LOOP_PREFETCH: break;
    }
  }
}

// --- kernels ---

static bool same_limits(const limits *a, const limits *b) {
  bool same = a->n == b->n;
  for (int i = 0; same && i < a->n; i++)
    same = a->at[i].extent == b->at[i].extent && a->at[i].stride == b->at[i].stride &&
           a->at[i].count == b->at[i].count && a->at[i].outer == b->at[i].outer;
  return same;
}

// The limits common to the tensors of all launches of a kernel, by buffer.
static const limits *limits_of(tightening *t, int kernel) {
  const kiln_kernels *all = &t->b->choices.kernels;
  const kiln_loops *l = all->kernels.data[kernel]->loops;
  limits *found = KILN_NEW_ARRAY(&t->cx->scratch, limits, l->buffers.n);
  bool first = true;
  for (int i = 0; i < all->launches.n; i++) {
    const kiln_launch *launch = &all->launches.data[i];
    if (launch->kernel != kernel) continue;
    for (int k = 0, n = 0; k < l->buffers.n; k++) {
      const kiln_buffer *b = l->buffers.data[k];
      if (!b || b->scope != KILN_SCOPE_PARAM) continue;
      const limits one =
          limits_of_tensor(t, t->b->choices.prog->tensors.data[launch->args[n++].tensor]);
      if (first) found[k] = one;
      else if (!same_limits(&found[k], &one)) found[k] = (limits){0};
    }
    first = false;
  }
  return found;
}

// The parameter with the values of the dimensions.
static int dims_buffer(tightening *t, int kernel) {
  kiln_ctx *cx = t->cx;
  kiln_kernels *all = &t->b->choices.kernels;
  kiln_loops *l = all->kernels.data[kernel]->loops;
  const kiln_program *p = t->b->choices.prog;
  const kiln_symbol name = kiln_symbol_of(cx, "dims");
  const int64_t n = t->r->n_dims;
  for (int i = 0; i < l->buffers.n; i++)
    if (l->buffers.data[i] && l->buffers.data[i]->name == name) return i;
  const int id = kiln_buffer_make(cx, l, "dims", KILN_I64, KILN_SCOPE_PARAM, 1, &n, NULL)->id;
  for (int i = 0; i < all->launches.n; i++) {
    kiln_launch *launch = &all->launches.data[i];
    if (launch->kernel != kernel) continue;
    kiln_argument *args = KILN_NEW_ARRAY(&cx->perm, kiln_argument, launch->n_args + 1);
    for (int k = 0; k < launch->n_args; k++) args[k] = launch->args[k];
    args[launch->n_args++].tensor = p->inputs.data[p->inputs.n - 1];
    launch->args = args;
  }
  return id;
}

static const kiln_expr *read_dims(tightener *g, const kiln_expr *e) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *loads[KILN_MAX_DIMS];
  const int buffer = dims_buffer(g->t, g->kernel);
  for (int d = 0; d < g->t->r->n_dims; d++) {
    const kiln_expr *at = kiln_int(cx, d);
    loads[d] = kiln_load(cx, buffer, KILN_I64, 1, &at);
  }
  return kiln_expr_substitute(cx, e, g->t->r->n_dims, g->t->r->symbols, loads);
}

// --- grids ---

static int axis_of(const kiln_loop *l) {
  const bool is_block = l->kind == KILN_LOOP_FOR && l->how == KILN_PARALLEL;
  return is_block && !kiln_gpu_has_blocks(l->body) ? 0 : kiln_gpu_block_axis(l);
}

static int count_loops(const kiln_loop *list, int axis) {
  int n = 0;
  for (const kiln_loop *l = list; l; l = l->next)
    n += (axis_of(l) == axis) + count_loops(l->body, axis);
  return n;
}

// Whether a grid's size along the axis of |l| is that loop's alone, and |blocks| is known before
// the launch.
static bool is_size(tightener *g, const kiln_loop *l, const kiln_expr *blocks) {
  const kiln_loop *nest = g->l->body;
  for (int i = 0; i < g->nest; i++) nest = nest->next;
  const int n = (axis_of(nest) == axis_of(l)) + count_loops(nest->body, axis_of(l));
  bool is = n == 1 && !kiln_loop_note(g->t->cx, l, KILN_CLUSTER_NOTE);
  for (int i = g->t->r->n_dims; i < g->ranges.entries.n; i++)
    is &= !kiln_expr_uses(blocks, g->ranges.entries.data[i].var);
  return is;
}

static void tighten_loop(tightener *g, kiln_loop *l) {
  kiln_ctx *cx = g->t->cx;
  g->loop = l;
  g->var = l->var;
  g->n_around = g->ranges.entries.n;
  g->own = kiln_bits_make(&cx->scratch, g->l->buffers.n);
  g->first = NULL;
  g->fails = false;
  see(g, l->body);
  if (g->fails || !g->first || kiln_expr_is_int(g->first, NULL)) return;
  if (g->t->has_grids && !is_size(g, l, g->first)) return;
  const kiln_expr *n = kiln_binary(cx, KILN_EXPR_MIN, g->first, l->extent);
  g->lasts.data[g->lasts.n - 1] = kiln_sub(cx, n, kiln_int(cx, 1));
  if (g->t->has_grids || l->how == KILN_PARALLEL) {
    const int axis = g->t->has_grids ? axis_of(l) : 0;
    const kiln_tightened_bound tightened_bound = {g->kernel, g->nest, axis, g->first};
    KILN_VEC_PUSH(&cx->perm, &g->t->b->choices.tightened, tightened_bound);
  } else l->extent = read_dims(g, n);
}

static void tighten_list(tightener *g, kiln_loop *list);

// Tightens a loop and its inner loops, except those in registers.
static void tighten_for(tightener *g, kiln_loop *l) {
  const bool may =
      g->t->has_grids ? axis_of(l) >= 0 : l->how == KILN_SERIAL || l->how == KILN_PARALLEL;
  push_loop(g, l);
  if (may && kiln_expr_is_int(l->extent, &g->extent) && g->extent > 1) tighten_loop(g, l);
  tighten_list(g, l->body);
  pop_loop(g);
}

static void tighten_one(tightener *g, kiln_loop *l) {
  kiln_ctx *cx = g->t->cx;
  if (l->kind == KILN_LOOP_FOR) {
    tighten_for(g, l);
    return;
  }
  if (l->kind == KILN_LOOP_ALLOC) g->needs[l->buffer].depth = g->ranges.entries.n;
  if (l->kind == KILN_LOOP_IF) kiln_expr_visit(cx, l->cond, note_load, g);
  if (l->kind == KILN_LOOP_STORE) kiln_expr_visit(cx, l->value, note_load, g);
  tighten_list(g, l->body);
}

static void tighten_list(tightener *g, kiln_loop *list) {
  KILN_VEC(kiln_loop *) all = {0};
  for (kiln_loop *l = list; l; l = l->next) KILN_VEC_PUSH(&g->t->cx->scratch, &all, l);
  for (int i = all.n - 1; i >= 0; i--) tighten_one(g, all.data[i]);
}

static void tighten_kernel(tightening *t, int kernel) {
  kiln_ctx *cx = t->cx;
  kiln_loops *l = t->b->choices.kernels.kernels.data[kernel]->loops;
  const int n = l->buffers.n;
  tightener g = {.t = t, .kernel = kernel, .l = l, .limits = limits_of(t, kernel)};
  g.needs = KILN_NEW_ARRAY(&cx->scratch, need, n);
  for (int i = 0; i < n; i++)
    g.needs[i] =
        (need){.is_known = true, .first_load = -1, .last_store = -1, .depth = t->r->n_dims};
  kiln_ranges_init(&g.ranges, &cx->scratch);
  for (int d = 0; d < t->r->n_dims; d++) {
    kiln_ranges_push(&g.ranges, t->r->symbols[d], t->part->least[d], t->part->most[d]);
    KILN_VEC_PUSH(&cx->scratch, &g.lasts, kiln_int(cx, t->part->most[d]));
  }
  note_places(&g, l->body);
  for (g.nest = kiln_kernel_nests(l) - 1; g.nest >= 0; g.nest--) {
    kiln_loop *nest = l->body;
    for (int i = 0; i < g.nest; i++) nest = nest->next;
    tighten_one(&g, nest);
  }
}

// Nests that share a launch share its grid, too.
static bool has_bounds(const tightening *t, int kernel) {
  const kiln_kernel *k = t->b->choices.kernels.kernels.data[kernel];
  return !t->has_grids || (!k->by_library && kiln_build_functions(t->cx, t->b, kernel) ==
                                                 kiln_kernel_nests(k->loops));
}

kiln_status kiln_build_tighten_bounds(kiln_ctx *cx, kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  tightening t = {.cx = cx,
                  .b = b,
                  .r = b->request.ranges,
                  .part = &b->request.ranges->buckets[b->request.part],
                  .has_grids = b->request.machine.target->has_grids};
  find_all_live(&t);
  for (int i = 0; i < b->choices.kernels.kernels.n; i++)
    if (has_bounds(&t, i)) tighten_kernel(&t, i);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
