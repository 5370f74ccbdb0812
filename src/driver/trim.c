// Trimming: an iteration of a loop that stores nothing but elements which no run of these extents needs is left out.
// The runtime asks for fewer iterations of a parallel loop; of others a kernel reads the dimensions itself.
//
// What is needed of the model's own tensors is known (ranges.h). A tensor that the passes made has a dim for each of its
// axes, and needs no more of it than the tensors that its statement reads along that dim. A kernel sees tensors as
// addresses: what lies, modulo the stride of the next outer axis, at or behind extent * stride of an axis is not needed.
#include "driver/build.h"
#include "driver/ranges.h"
#include "analysis/simplify.h"
#include "support/bits.h"

typedef struct trimmer {
  kiln_ctx *cx;
  kiln_build *b;
  const kiln_model_ranges *r;
  const kiln_range_part *part;
  const kiln_expr **
      *live;        // by tensor: extents of its axes; NULL where they are those of the program
  kiln_ranges dims; // the dimensions' values
} trimmer;

// --- what is needed of the program's tensors ---

static const kiln_live *find_live(const trimmer *t, const kiln_tensor *x) {
  for (int i = 0; i < t->part->live.n; i++) {
    const kiln_live *l = &t->part->live.data[i];
    bool same = l->tensor == x->name && l->rank == x->rank;
    for (int k = 0; same && k < l->rank; k++) same = l->most[k] == x->shape[k];
    if (same) return l;
  }
  return NULL;
}

typedef struct bounding {
  trimmer *t;
  const kiln_stmt *s;
  const kiln_expr **extents; // by dim of |s|
} bounding;

static void find_choice(const kiln_expr *e, void *argument) {
  *(bool *)argument |= e->kind == KILN_EXPR_SELECT && e->args[0]->has_load;
}

// Whether |e| chooses by what it loads, as masks do by the dimensions: beyond an end it may still say something.
static bool chooses(kiln_ctx *cx, const kiln_expr *e) {
  bool does = false;
  kiln_expr_visit(cx, e, find_choice, &does);
  return does;
}

// A dim that alone is the index along an axis runs no further than the axis is needed.
static void bound_dims(const kiln_expr *e, void *argument) {
  bounding *b = argument;
  const kiln_expr **live = e->kind == KILN_EXPR_LOAD ? b->t->live[e->u.tensor] : NULL;
  if (!live) return;
  const kiln_tensor *x = b->t->b->prog->tensors.data[e->u.tensor];
  for (int k = 0; k < e->n_args; k++)
    for (int d = 0; d < b->s->n_space; d++)
      if (e->args[k]->kind == KILN_EXPR_VAR && e->args[k]->u.sym == b->s->dims[d].name &&
          b->s->dims[d].extent == x->shape[k] && live[k] != x->shape[k])
        b->extents[d] = live[k];
}

static void infer_live(trimmer *t, const kiln_stmt *s) {
  const kiln_tensor *x = t->b->prog->tensors.data[s->out];
  if (t->live[x->id] || find_live(t, x) || !kiln_stmt_is_plain(t->cx, s) || s->guard ||
      chooses(t->cx, s->body))
    return;
  bounding b = {t, s, KILN_NEW_ARRAY(&t->cx->perm, const kiln_expr *, x->rank)};
  for (int k = 0; k < x->rank; k++) b.extents[k] = x->shape[k];
  kiln_expr_visit(t->cx, s->body, bound_dims, &b);
  for (int k = 0; k < x->rank; k++)
    if (b.extents[k] != x->shape[k]) t->live[x->id] = b.extents;
}

static void find_all_live(trimmer *t) {
  const kiln_program *p = t->b->prog;
  t->live = KILN_NEW_ARRAY(&t->cx->perm, const kiln_expr **, p->tensors.n);
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *x = p->tensors.data[i];
    const kiln_live *l = x ? find_live(t, x) : NULL;
    if (l) t->live[i] = l->extents;
  }
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]) infer_live(t, p->stmts.data[i]);
}

// --- one loop ---

// Where needed elements end along an axis: addresses modulo |outer|, 0 for none, below |extent| * |stride|, of
// |count| * |stride| in all.
typedef struct limit {
  const kiln_expr *extent;
  int64_t stride, count, outer;
} limit;

typedef struct limits {
  int n;
  limit at[KILN_MAX_RANK];
} limits;

// Those of the axes of |x|, each of which is stored dense in the next outer one.
static limits limits_of_tensor(const trimmer *t, const kiln_tensor *x) {
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

typedef struct trimming {
  trimmer *t;
  int kernel, nest;
  kiln_loops *l;
  const limits *limits; // by buffer; PARAMs have them
  kiln_ranges ranges;   // of the loops around and, while they are looked at, inside
  // Of one loop:
  kiln_symbol var;
  int64_t extent;
  int n_around;           // ranges of loops around, its own included
  kiln_bits *own;         // buffers that live inside of the loop
  const kiln_expr *first; // the first iteration that may be left out; NULL: none as yet
  bool fails;             // there is none
} trimming;

static void fail(trimming *g) { g->fails = true; }

// With min(x, c), c constant, as |x|, or as |c|: how the last tile of a row is moved back.
typedef struct ragged {
  kiln_symbol var;
  bool takes_constant;
} ragged;

static const kiln_expr *without_min(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const ragged *r = argument;
  (void)cx;
  if (e->kind != KILN_EXPR_MIN || !kiln_expr_uses(e->args[0], r->var) ||
      !kiln_expr_is_int(e->args[1], NULL))
    return NULL;
  return e->args[r->takes_constant];
}

// Address |at|, as it is where no tile is moved back: |*out_step| more from one iteration to the next.
static bool find_step(trimming *g, const kiln_expr *at, int64_t *out_step) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *var = kiln_var(cx, g->var), *next = kiln_add(cx, var, kiln_int(cx, 1));
  const kiln_expr *rise = kiln_sub(cx, kiln_expr_substitute(cx, at, 1, &g->var, &next), at);
  return kiln_expr_is_int(kiln_simplify(cx, rise, NULL), out_step) && *out_step > 0;
}

static int64_t least_of(trimming *g, const kiln_expr *e) {
  return kiln_expr_interval(g->t->cx, e, &g->ranges).lo;
}

// The least that |e| is in an iteration: over the variables of loops around where the loops inside only add to it.
static const kiln_expr *floor_of(trimming *g, const kiln_expr *e) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *start = e;
  for (int i = g->n_around; i < g->ranges.entries.n; i++)
    start = kiln_expr_substitute(cx, start, 1, &g->ranges.entries.data[i].var, &zero);
  const kiln_expr *rest = kiln_simplify(cx, kiln_sub(cx, e, start), &g->ranges);
  return least_of(g, rest) >= 0 ? kiln_simplify(cx, start, &g->ranges)
                                : kiln_int(cx, least_of(g, e));
}

static int64_t at_most(const trimming *g, const kiln_expr *e) {
  const kiln_expr *numbers[KILN_MAX_DIMS];
  int64_t value = INT64_MAX;
  for (int d = 0; d < g->t->r->n_dims; d++) numbers[d] = kiln_int(g->t->cx, g->t->part->most[d]);
  kiln_expr_is_int(kiln_expr_substitute(g->t->cx, e, g->t->r->n_dims, g->t->r->symbols, numbers),
                   &value);
  return value;
}

// The first iteration that stores nothing needed along the axis of |end| at addresses |at|, which are over the loops'
// variables; NULL: there is none.
static const kiln_expr *first_beyond(trimming *g, const limit *end, const kiln_expr *at) {
  kiln_ctx *cx = g->t->cx;
  ragged r = {g->var, false};
  const kiln_expr *zero = kiln_int(cx, 0);
  if (end->outer) at = kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, end->outer)), &g->ranges);
  const kiln_expr *even = kiln_expr_replace(cx, at, without_min, &r);
  int64_t step = 0;
  // A loop that stays in what one more or less of the extent takes has nothing to leave out.
  if (!find_step(g, even, &step) || step * (g->extent - 1) < end->stride) return NULL;
  const kiln_expr *rest = floor_of(g, kiln_expr_substitute(cx, even, 1, &g->var, &zero));
  const kiln_expr *e = kiln_mul(cx, end->extent, kiln_int(cx, end->stride));
  e = kiln_sub(cx, kiln_add(cx, e, kiln_int(cx, step - 1)), rest);
  e = kiln_simplify(cx, kiln_div(cx, e, kiln_int(cx, step)), &g->t->dims);
  if (even != at) { // tiles that are moved back lie behind all extents but the largest
    r.takes_constant = true;
    const int64_t back = least_of(g, kiln_expr_replace(cx, at, without_min, &r));
    if (back < (end->count - 1) * end->stride || at_most(g, e) < g->extent) return NULL;
  }
  return e;
}

static void see_store(trimming *g, int buffer, int n, const kiln_expr *const *index) {
  kiln_ctx *cx = g->t->cx;
  const kiln_buffer *b = g->l->buffers.data[buffer];
  const limits *all = &g->limits[buffer];
  const kiln_expr *at = kiln_int(cx, 0), *first = NULL;
  if (kiln_bits_has(g->own, buffer)) return;
  for (int k = 0; k < n; k++)
    at = kiln_add(cx, at, kiln_mul(cx, index[k], kiln_int(cx, b->strides[k])));
  at = kiln_simplify(cx, at, &g->ranges);
  for (int i = 0; i < all->n && !first; i++) first = first_beyond(g, &all->at[i], at);
  if (!first) fail(g);
  else if (!g->first) g->first = first;
  else g->first = kiln_simplify(cx, kiln_binary(cx, KILN_EXPR_MAX, g->first, first), &g->t->dims);
}

static void see(trimming *g, const kiln_loop *list) {
  for (const kiln_loop *l = list; l && !g->fails; l = l->next) {
    switch (l->kind) {
    case KILN_LOOP_FOR: {
      const kiln_interval n = kiln_expr_interval(g->t->cx, l->extent, &g->ranges);
      kiln_ranges_push(&g->ranges, l->var, 0, n.hi > 0 && n.hi < INT64_MAX ? n.hi - 1 : n.hi);
      see(g, l->body);
      kiln_ranges_pop(&g->ranges, 1);
      break;
    }
    case KILN_LOOP_ALLOC:
      kiln_bits_set(g->own, l->buffer);
      see(g, l->body);
      break;
    case KILN_LOOP_IF: see(g, l->body); break;
    case KILN_LOOP_STORE:
      see_store(g, l->buffer, g->l->buffers.data[l->buffer]->rank, l->index);
      break;
    case KILN_LOOP_INSTR: fail(g); break;
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

// What the tensors of all launches of a kernel have in common, by buffer.
static const limits *limits_of(trimmer *t, int kernel) {
  const kiln_kernels *all = &t->b->kernels;
  const kiln_loops *l = all->kernels.data[kernel]->loops;
  limits *found = KILN_NEW_ARRAY(&t->cx->scratch, limits, l->buffers.n);
  bool first = true;
  for (int i = 0; i < all->launches.n; i++) {
    const kiln_launch *launch = &all->launches.data[i];
    if (launch->kernel != kernel) continue;
    for (int k = 0, n = 0; k < l->buffers.n; k++) {
      const kiln_buffer *b = l->buffers.data[k];
      if (!b || b->scope != KILN_SCOPE_PARAM) continue;
      const limits one = limits_of_tensor(t, t->b->prog->tensors.data[launch->args[n++]]);
      if (first) found[k] = one;
      else if (!same_limits(&found[k], &one)) found[k] = (limits){0};
    }
    first = false;
  }
  return found;
}

// The parameter by which a kernel reads the dimensions.
static int dims_buffer(trimmer *t, int kernel) {
  kiln_ctx *cx = t->cx;
  kiln_kernels *all = &t->b->kernels;
  kiln_loops *l = all->kernels.data[kernel]->loops;
  const kiln_program *p = t->b->prog;
  const kiln_symbol name = kiln_symbol_of(cx, "dims");
  const int64_t n = t->r->n_dims;
  for (int i = 0; i < l->buffers.n; i++)
    if (l->buffers.data[i] && l->buffers.data[i]->name == name) return i;
  const int id = kiln_buffer_make(cx, l, "dims", KILN_I64, KILN_SCOPE_PARAM, 1, &n, NULL)->id;
  for (int i = 0; i < all->launches.n; i++) {
    kiln_launch *launch = &all->launches.data[i];
    if (launch->kernel != kernel) continue;
    int *args = KILN_NEW_ARRAY(&cx->perm, int, launch->n_args + 1);
    for (int k = 0; k < launch->n_args; k++) args[k] = launch->args[k];
    args[launch->n_args++] = p->inputs.data[p->inputs.n - 1];
    launch->args = args;
  }
  return id;
}

static const kiln_expr *read_dims(trimming *g, const kiln_expr *e) {
  kiln_ctx *cx = g->t->cx;
  const kiln_expr *loads[KILN_MAX_DIMS];
  const int buffer = dims_buffer(g->t, g->kernel);
  for (int d = 0; d < g->t->r->n_dims; d++) {
    const kiln_expr *at = kiln_int(cx, d);
    loads[d] = kiln_load(cx, buffer, KILN_I64, 1, &at);
  }
  return kiln_expr_substitute(cx, e, g->t->r->n_dims, g->t->r->symbols, loads);
}

static void trim_loop(trimming *g, kiln_loop *l) {
  kiln_ctx *cx = g->t->cx;
  g->var = l->var;
  g->n_around = g->ranges.entries.n;
  g->own = kiln_bits_make(&cx->scratch, g->l->buffers.n);
  g->first = NULL;
  g->fails = false;
  see(g, l->body);
  if (g->fails || !g->first || kiln_expr_is_int(g->first, NULL)) return;
  if (l->how == KILN_PARALLEL) {
    const kiln_trimmed trimmed = {g->kernel, g->nest, g->first};
    KILN_VEC_PUSH(&cx->perm, &g->t->b->trims, trimmed);
  } else
    l->extent = kiln_binary(cx, KILN_EXPR_MIN, read_dims(g, g->first), kiln_int(cx, g->extent));
}

static bool runs_in_turn(const kiln_loop *l) {
  return l->how == KILN_SERIAL || l->how == KILN_PARALLEL;
}

// Loops from the outside inwards, up to those that run in registers.
static void trim_one(trimming *g, kiln_loop *l) {
  const bool is_loop = l->kind == KILN_LOOP_FOR;
  if (is_loop) {
    if (!runs_in_turn(l) || !kiln_expr_is_int(l->extent, &g->extent)) return;
    kiln_ranges_push(&g->ranges, l->var, 0, g->extent - 1);
    if (g->extent > 1) trim_loop(g, l);
  }
  for (kiln_loop *inner = l->body; inner; inner = inner->next) trim_one(g, inner);
  if (is_loop) kiln_ranges_pop(&g->ranges, 1);
}

kiln_status kiln_build_trim(kiln_ctx *cx, kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  trimmer t = {.cx = cx, .b = b, .r = b->ranges, .part = &b->ranges->parts[b->part]};
  kiln_ranges_init(&t.dims, &cx->scratch);
  for (int d = 0; d < t.r->n_dims; d++)
    kiln_ranges_push(&t.dims, t.r->symbols[d], t.part->least[d], t.part->most[d]);
  find_all_live(&t);
  for (int i = 0; i < b->kernels.kernels.n; i++) {
    trimming g = {
        .t = &t, .kernel = i, .l = b->kernels.kernels.data[i]->loops, .limits = limits_of(&t, i)};
    kiln_ranges_init(&g.ranges, &cx->scratch);
    for (kiln_loop *l = g.l->body; l; l = l->next, g.nest++) trim_one(&g, l);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
