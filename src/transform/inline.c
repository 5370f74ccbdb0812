// Inlining (producer fusion, view folding): a map (view or elementwise statement) is substituted
// into its readers if that saves more memory traffic than the arithmetic it repeats. Runs from the
// outputs to the inputs, so that chains collapse into their last statement:
//     T(i, j) = X(j, i);  Y(i) +=! T(i, j)      becomes  Y(i) +=! X(j, i)
#include "transform/transform.h"

#include "analysis/interpret.h"
#include "ir/stored.h"

#include <math.h>
#include <string.h>

enum {
  // Largest body after substitution. With a vector of that many operations, storing and reloading
  // it is ten times as fast, and compile time grows faster than the body.
  MAX_NODES = 256,
  // Largest index expression, in tree nodes. It grows with every view on the way and is analyzed as
  // a tree; above this size, computing it for each element takes longer than storing the tensor.
  LONG_INDEX = 128,
  CHEAP = 2,      // arithmetic that may be repeated
  MAX_REPEATS = 2 // loads of one tensor in one reader for which arithmetic may be repeated
};

typedef struct inlining {
  const kiln_stmt *producer;
  int rank;
} inlining;

// Replaces a load of the producer's tensor by its body at that index.
static const kiln_expr *expand(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  inlining *a = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != a->producer->out) return NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < a->rank; k++) {
    vars[k] = a->producer->dims[k].name;
    index[k] = kiln_expr_replace(cx, e->args[k], expand,
                                 argument); // a nested load: gather of a gather
  }
  return kiln_expr_substitute(cx, a->producer->body, a->rank, vars, index);
}

static const kiln_expr *expand_in(kiln_ctx *cx, inlining *a, const kiln_expr *e,
                                  const kiln_ranges *r) {
  return e ? kiln_simplify(cx, kiln_expr_replace(cx, e, expand, a), r) : NULL;
}

static void count_node(const kiln_expr *e, void *argument) {
  (void)e;
  ++*(int *)argument;
}

static int count_nodes(kiln_ctx *cx, const kiln_expr *e) {
  int n = 0;
  kiln_expr_visit(cx, e, count_node, &n);
  return n;
}

static kiln_search find_long_index(const kiln_expr *e, void *argument) {
  (void)argument;
  if (e->n_tree <= LONG_INDEX) return KILN_SEARCH_PAST;
  if (e->kind != KILN_EXPR_LOAD) return KILN_SEARCH_INTO;
  if (e->n_tree > KILN_LONG_TREE) return KILN_SEARCH_ENDS;
  for (int k = 0; k < e->n_args; k++)
    if (!e->args[k]->has_load && e->args[k]->n_tree > LONG_INDEX) return KILN_SEARCH_ENDS;
  return KILN_SEARCH_INTO;
}

// Whether |e| has an index longer than LONG_INDEX.
static bool has_long_index(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_expr_search(cx, e, find_long_index, NULL) != NULL;
}

static kiln_search find_indirect(const kiln_expr *e, void *argument) {
  (void)argument;
  if (!e->has_load) return KILN_SEARCH_PAST;
  for (int k = 0; e->kind == KILN_EXPR_LOAD && k < e->n_args; k++)
    if (e->args[k]->has_load) return KILN_SEARCH_ENDS;
  return KILN_SEARCH_INTO;
}

typedef struct longest {
  int tensor; // only loads of this tensor; -1: all
  uint64_t n; // tree nodes of the longest index
} longest;

static void measure_index(const kiln_expr *load, void *argument) {
  longest *l = argument;
  for (int k = 0; k < load->n_args && (l->tensor < 0 || load->u.tensor == l->tensor); k++)
    if (load->args[k]->n_tree > l->n) l->n = load->args[k]->n_tree;
}

static uint64_t longest_index(kiln_ctx *cx, const kiln_expr *e, int tensor) {
  longest l = {tensor, 0};
  kiln_expr_visit_loads(cx, e, measure_index, &l);
  return l.n;
}

// The result is at most as long as the product of both, so the substitution is tried only if that
// exceeds the limit.
static bool lengthens(kiln_ctx *cx, inlining *a, const kiln_expr *e, const kiln_ranges *r) {
  const uint64_t mine = longest_index(cx, e, a->producer->out);
  if (mine * longest_index(cx, a->producer->body, -1) <= LONG_INDEX &&
      !kiln_expr_search(cx, e, find_indirect, NULL))
    return false;
  const kiln_expr *after = kiln_expr_replace(cx, e, expand, a);
  return has_long_index(cx, after) && has_long_index(cx, kiln_simplify(cx, after, r));
}

// Whether inlining |s| into |reader| makes an index of it longer than LONG_INDEX.
static bool makes_long_index(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                             const kiln_stmt *reader) {
  inlining a = {s, p->tensors.data[s->out]->rank};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, reader);
  bool does = lengthens(cx, &a, reader->body, &r) || lengthens(cx, &a, reader->guard, &r) ||
              lengthens(cx, &a, reader->init, &r);
  for (int k = 0; k < p->tensors.data[reader->out]->rank && !does; k++)
    does = kiln_expr_has_load(reader->index[k]) &&
           kiln_expr_replace(cx, reader->index[k], expand, &a)->n_tree > KILN_LONG_TREE;
  kiln_arena_rewind(&cx->scratch, mark);
  return does;
}

static bool is_reduction(const kiln_stmt *s) {
  return s->n_reduce > 0 || s->combiner != KILN_COMBINE_NONE;
}

// Whether |s| stores the results of a reduction elementwise in a type narrower than the
// accumulator.
static bool narrows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  if (s->n_reduce || s->body->kind != KILN_EXPR_CAST || s->body->args[0]->kind != KILN_EXPR_LOAD)
    return false;
  const kiln_expr *load = s->body->args[0];
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  bool same = load->n_args == s->n_space;
  for (int k = 0; k < load->n_args && same; k++)
    same = load->args[k] == kiln_var(cx, s->dims[k].name) ||
           (kiln_dim_extent(&s->dims[k]) == 1 && kiln_expr_is_zero(load->args[k]));
  return same && kiln_dtype_bytes(s->body->dtype) < kiln_dtype_bytes(t->dtype) && t->def >= 0 &&
         p->stmts.data[t->def] && is_reduction(p->stmts.data[t->def]);
}

// Whether |s| quantizes: it stores floats as bytes. Readers prefer to load the bytes, and a
// contraction prefers to store them instead of its accumulators.
static bool quantises(const kiln_stmt *s) {
  return s->body->kind == KILN_EXPR_CAST && kiln_dtype_bytes(s->body->dtype) == 1 &&
         s->body->dtype != KILN_BOOL && kiln_dtype_is_float(s->body->args[0]->dtype);
}

static int count_loads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *reader, int tensor) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, reader);
  int n = 0;
  for (int i = 0; i < loads.n; i++) n += loads.data[i]->u.tensor == tensor;
  kiln_arena_rewind(&cx->scratch, mark);
  return n;
}

static void find_select(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_SELECT) *(bool *)argument = true;
}

static bool has_select(kiln_ctx *cx, const kiln_expr *e) {
  bool found = false;
  kiln_expr_visit(cx, e, find_select, &found);
  return found;
}

static bool reads_same_elements(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                                int tensor) {
  kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  bool same = s->n_reduce == 0;
  for (int i = 0; i < loads.n && same; i++)
    if (loads.data[i]->u.tensor == tensor) same = kiln_tile_same_elements(cx, p, s, loads.data[i]);
  return same;
}

// Marks tensors that a contraction's epilogue can produce: the contraction's result, and
// elementwise maps of it as long as there are no other readers. Such maps stay with their
// contraction.
static bool *find_epilogues(kiln_ctx *cx, const kiln_program *p) {
  bool *epilogue = KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n);
  kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_expr *a = NULL, *b = NULL;
    if (!s) continue;
    epilogue[s->out] = kiln_stmt_is_contraction(s, &a, &b);
    if (!kiln_stmt_is_map(cx, s)) continue;
    kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
    for (int k = 0; k < loads.n; k++) {
      int t = loads.data[k]->u.tensor;
      if (epilogue[t] && users.first[t + 1] - users.first[t] <= 2 &&
          kiln_tile_same_elements(cx, p, s, loads.data[k]))
        epilogue[s->out] = true;
    }
  }
  return epilogue;
}

// Whether the contraction |reader| reads vectors along the axis in which the boundary map |s| (edge
// replication, reflection) is not affine. If |s| is stored, the padded tensor is written and read
// once more. If it is inlined, the contraction packs its operand anyway, as the index is not
// affine, and gathers from the panels for every product, or has to vectorize along another axis.
static bool bends_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                       const kiln_stmt *reader) {
  const kiln_expr *load = kiln_loads_of(cx, &cx->scratch, s->body).data[0];
  const kiln_loads uses = kiln_stmt_loads(cx, &cx->scratch, p, reader);
  const kiln_symbol row = s->n_space > 0 ? s->dims[s->n_space - 1].name : 0;
  const bool bends = row && kiln_load_bends(cx, load, row) &&
                     kiln_stmt_load_stride(cx, p, s, load, row) == INT64_MAX;
  for (int i = 0; i < uses.n && bends; i++)
    if (uses.data[i]->u.tensor == s->out && kiln_tile_reads_rows(cx, p, reader, uses.data[i]))
      return true;
  return false;
}

typedef struct policy {
  // Whether computing |s| in |reader|, one of |n_readers|, is better than storing it.
  bool (*pays)(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const kiln_stmt *reader,
               int n_readers, const struct policy *of);
  const bool *epilogue; // by tensor, as of find_epilogues
  const kiln_users *users;
  const kiln_machine *machine;
} policy;

static kiln_search find_computed(const kiln_expr *e, void *argument) {
  (void)argument;
  if (e->kind == KILN_EXPR_CAST) return KILN_SEARCH_INTO;
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_expr_has_load(e->args[0]) ? KILN_SEARCH_ENDS : KILN_SEARCH_REST;
  for (int k = 0; k < e->n_args; k++)
    if (kiln_expr_has_load(e->args[k])) return KILN_SEARCH_ENDS;
  return e->kind == KILN_EXPR_LOAD || e->n_args == 0 ? KILN_SEARCH_PAST : KILN_SEARCH_ENDS;
}

static bool only_moves(kiln_ctx *cx, const kiln_expr *e) {
  return !kiln_expr_search(cx, e, find_computed, NULL);
}

// Whether |s| concatenates tensors; on GPUs this is done in place before padding.
static bool joins(kiln_ctx *cx, const kiln_stmt *s) {
  return only_moves(cx, s->body) && kiln_loads_of(cx, &cx->scratch, s->body).n > 1;
}

// The tensor of which |tensor| is a view, through all views.
static int origin_of(const kiln_ctx *cx, const kiln_program *p, int tensor) {
  for (;;) {
    const int def = p->tensors.data[tensor]->def;
    const kiln_stmt *s = def < 0 ? NULL : p->stmts.data[def];
    if (!s || !kiln_stmt_is_layout(cx, s)) return tensor;
    tensor = s->body->u.tensor;
  }
}

// Whether |s| concatenates views of different tensors; a rotation has pieces of one.
static bool joins_tensors(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  bool several = false;
  for (int i = 1; i < loads.n; i++)
    several |=
        origin_of(cx, p, loads.data[i]->u.tensor) != origin_of(cx, p, loads.data[0]->u.tensor);
  return several && joins(cx, s);
}

// Whether |s| continues another concatenation, as in dense connections: stored, it holds all its
// operands in place (transform/concat_in_place.c), and costs its readers nothing.
static bool continues_concat(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = p->tensors.data[loads.data[i]->u.tensor];
    const kiln_stmt *from = t->def < 0 ? NULL : p->stmts.data[t->def];
    if (from && kiln_stmt_is_map(cx, from) && joins_tensors(cx, p, from))
      return joins_tensors(cx, p, s);
  }
  return false;
}

// Whether the sum |s| reduces contiguous elements of its operand, seen through views.
static bool adds_neighbours(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  const kiln_expr *load = kiln_stmt_largest_load(cx, p, s);
  while (load) {
    const kiln_tensor *t = p->tensors.data[load->u.tensor];
    inlining a = {t->def < 0 ? NULL : p->stmts.data[t->def], t->rank};
    if (!a.producer || !kiln_stmt_is_layout(cx, a.producer)) break;
    load = kiln_stmt_simplify(cx, s, expand(cx, load, &a));
    if (load->n_tree > KILN_LONG_TREE) break;
  }
  for (int d = s->n_space; load && d < s->n_space + s->n_reduce; d++)
    if (kiln_stmt_load_stride(cx, p, s, load, s->dims[d].name) == 1) return true;
  return false;
}

// The producers of a statement, direct and indirect, each once; at most as many as the array holds.
typedef struct upstream {
  int n;
  const kiln_stmt *stmts[64]; // those that were reached
} upstream;

static void reach(upstream *u, const kiln_stmt *s) {
  for (int i = 0; i < u->n; i++)
    if (u->stmts[i] == s) return;
  if (u->n < (int)KILN_LEN(u->stmts)) u->stmts[u->n++] = s;
}

// Whether |s| depends on sums over short rows of a tensor of |all| elements, directly or through
// maps of the row results.
static bool reads_row_sums(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int64_t all) {
  enum { SHORT_ROW = 4096 };
  upstream u = {0};
  reach(&u, s);
  for (int k = 0; k < u.n; k++) {
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, u.stmts[k]);
    for (int i = 0; i < loads.n; i++) {
      const kiln_tensor *t = p->tensors.data[loads.data[i]->u.tensor];
      const kiln_stmt *from = t->def < 0 ? NULL : p->stmts.data[t->def];
      const int64_t rows = kiln_tensor_elems(t);
      if (!from || rows >= all || all / rows > SHORT_ROW) continue;
      if (!is_reduction(from)) reach(&u, from);
      else if (kiln_stmt_domain(from) == all && adds_neighbours(cx, p, from)) return true;
    }
  }
  return false;
}

// Whether |s| computes row elements from sums over the same row, as a normalization does: in one
// kernel with the sums, a row is read once. Inlining |s| into a view would separate it from its
// sums.
static bool ends_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  return reads_row_sums(cx, p, s, kiln_stmt_domain(s));
}

// The contraction whose epilogue can compute |tensor|, if each tensor on the way has a single
// reader; NULL otherwise.
static const kiln_stmt *contraction_of(kiln_ctx *cx, const kiln_program *p, int tensor,
                                       const policy *of) {
  while (of->epilogue[tensor] && of->users->first[tensor + 1] - of->users->first[tensor] == 1) {
    const kiln_stmt *s = p->stmts.data[p->tensors.data[tensor]->def];
    if (!s || is_reduction(s)) return s;
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
    int next = -1;
    for (int i = 0; i < loads.n; i++)
      if (of->epilogue[loads.data[i]->u.tensor]) next = loads.data[i]->u.tensor;
    if (next < 0) return NULL;
    tensor = next;
  }
  return NULL;
}

// Whether |reader| becomes the epilogue of the contraction whose result |s| stores: among the
// contractions that |reader| reads, it must be the largest, the first of equals, as in grouping.
static bool may_finish(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                       const kiln_stmt *reader, const policy *of) {
  const kiln_stmt *mine = contraction_of(cx, p, s->out, of);
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, reader);
  if (is_reduction(reader) || !reads_same_elements(cx, p, reader, s->out)) return false;
  bool behind = false;
  for (int i = 0; i < loads.n; i++) {
    const kiln_stmt *other = contraction_of(cx, p, loads.data[i]->u.tensor, of);
    if (!mine || !other) continue;
    behind |= other == mine;
    if (behind ? kiln_stmt_domain(other) > kiln_stmt_domain(mine)
               : kiln_stmt_domain(other) >= kiln_stmt_domain(mine))
      return false;
  }
  return true;
}

// Fraction of peak flops (an FMA counts two) that threads reach in pointwise code, with vectors or
// with single elements.
static const double OF_WORDS = 0.35, OF_ELEMENTS = 0.04;

enum { MAX_TERMS = 4 }; // of an interpolation along one axis

static bool reads_data(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, e);
  for (int i = 0; i < loads.n; i++)
    if (p->tensors.data[loads.data[i]->u.tensor]->role != KILN_CONST) return true;
  return false;
}

// The number of loads of one tensor in |e|, if |e| is a sum of these loads with known weights
// (counting stops above the limit); 0 otherwise.
static int count_terms(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e, int *io_tensor) {
  if (e->n_tree > KILN_LONG_TREE) return 0;
  while (e->kind == KILN_EXPR_CAST || e->kind == KILN_EXPR_MUL) {
    const bool first = e->kind == KILN_EXPR_CAST || !reads_data(cx, p, e->args[1]);
    if (!first && reads_data(cx, p, e->args[0])) return 0;
    e = e->args[first ? 0 : 1];
  }
  if (e->kind == KILN_EXPR_LOAD) {
    const bool is_one = p->tensors.data[e->u.tensor]->role != KILN_CONST &&
                        (*io_tensor < 0 || *io_tensor == e->u.tensor);
    *io_tensor = e->u.tensor;
    return is_one;
  }
  if (e->kind != KILN_EXPR_ADD) return 0;
  const int left = count_terms(cx, p, e->args[0], io_tensor);
  if (left == 0 || left > MAX_TERMS) return left;
  const int right = count_terms(cx, p, e->args[1], io_tensor);
  return right > 0 ? left + right : 0;
}

// Whether the map |s| reads a result to whose contraction's epilogue it may belong.
static bool may_end_contraction(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                                const policy *of) {
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  for (int i = 0; i < loads.n; i++)
    if (of->epilogue[loads.data[i]->u.tensor] && kiln_tile_same_elements(cx, p, s, loads.data[i]))
      return true;
  return false;
}

// Whether |s| interpolates along one axis and its reader |reader| along another, and recomputing
// |s| takes a GPU less time than storing it: in a pointwise kernel (pointwise.c) a thread computes
// a tile, whose elements share operands.
static bool interpolates_anew(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                              const kiln_stmt *reader, int n_readers, const policy *of) {
  enum { TILE = 4 };
  const kiln_device *d = of->machine->device;
  const int loads = count_loads(cx, p, reader, s->out);
  int source = -1;
  const int terms = count_terms(cx, p, s->body, &source);
  if (!of->machine->target->has_grids || !d || n_readers > 1 || terms < 2 || terms > MAX_TERMS ||
      loads > MAX_TERMS || !kiln_stmt_is_map(cx, reader))
    return false;
  const bool is_alone = !may_end_contraction(cx, p, reader, of);
  const double elems = (double)kiln_stmt_domain(s), all = (double)kiln_stmt_domain(reader),
               cost = kiln_expr_cost(cx, s->body) / d->all_flops_ns[KILN_PEAK_F32] / OF_WORDS,
               anew =
                   (is_alone ? fmin(all * loads, elems + all * loads / TILE) : all * loads) * cost,
               apart = d->launch_ns + elems * cost +
                       2 * elems * kiln_dtype_bytes(s->body->dtype) / d->levels[0].all_bytes_ns;
  return anew < apart;
}

static bool pays(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const kiln_stmt *reader,
                 int n_readers, const policy *of) {
  const kiln_expr *a = NULL, *b = NULL;
  const int cost = kiln_expr_cost(cx, s->body);
  const bool layout = kiln_stmt_is_layout(cx, s), reduction = is_reduction(reader);
  if (!layout && n_readers > 1 && cost > CHEAP) return false; // also for long readers
  const int loads = count_loads(cx, p, reader, s->out);
  if (count_nodes(cx, s->body) * loads + count_nodes(cx, reader->body) > MAX_NODES) return false;
  if (of->machine->target->has_grids && narrows(cx, p, s) &&
      (n_readers > 1 || !may_finish(cx, p, s, reader, of)))
    return false;
  if (quantises(s) && contraction_of(cx, p, s->out, of) && !may_finish(cx, p, s, reader, of))
    return false;
  if (kiln_stmt_is_contraction(reader, &a, &b)) // operands are read many times
    return layout && !bends_rows(cx, p, s, reader);
  if (layout) return true;
  if ((n_readers > 1 && quantises(s)) || continues_concat(cx, p, s)) return false;
  if (of->machine->target->has_grids &&
      ((joins_tensors(cx, p, s) && only_moves(cx, reader->body)) ||
       (ends_rows(cx, p, s) && !reads_same_elements(cx, p, reader, s->out))))
    return false;
  if (of->epilogue[s->out] && !reads_same_elements(cx, p, reader, s->out)) return false;
  // each element is read as often as the reader's domain exceeds the producer's
  int64_t repeats = kiln_stmt_domain(reader) / (kiln_stmt_domain(s) > 0 ? kiln_stmt_domain(s) : 1);
  if (reduction) return n_readers == 1 && repeats <= 1 && !has_select(cx, s->body);
  if (cost <= CHEAP && kiln_loads_of(cx, &cx->scratch, s->body).n == 0)
    return true; // a computed constant
  if (interpolates_anew(cx, p, s, reader, n_readers, of)) return true;
  if (repeats > 1 && cost > CHEAP) return false;
  if (loads > MAX_REPEATS && cost > CHEAP) return false;
  return n_readers == 1 ||
         (cost <= CHEAP && n_readers <= 2 && kiln_loads_of(cx, &cx->scratch, s->body).n == 1);
}

// Replaces a load of a scalar constant by its value.
static const kiln_expr *scalar_const(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_program *p = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_tensor *t = p->tensors.data[e->u.tensor];
  if (t->role != KILN_CONST || !t->data || kiln_tensor_elems(t) != 1) return NULL;
  if (kiln_dtype_is_float(t->dtype))
    return kiln_float(cx, t->dtype, kiln_element_get(t->dtype, t->data, 0));
  return kiln_int_of(cx, t->dtype, kiln_element_get_int(t->dtype, t->data, 0));
}

static void fold_scalars(kiln_ctx *cx, kiln_program *p, kiln_stmt *s, const kiln_ranges *r) {
  s->body = kiln_simplify(cx, kiln_expr_replace(cx, s->body, scalar_const, p), r);
  if (s->guard) s->guard = kiln_simplify(cx, kiln_expr_replace(cx, s->guard, scalar_const, p), r);
}

static void inline_into(kiln_ctx *cx, kiln_program *p, const kiln_stmt *producer,
                        kiln_stmt *reader) {
  inlining a = {producer, p->tensors.data[producer->out]->rank};
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, reader);
  reader->body = expand_in(cx, &a, reader->body, &r);
  reader->guard = expand_in(cx, &a, reader->guard, &r);
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  reader->init = expand_in(cx, &a, reader->init, &none);
  for (int k = 0; k < p->tensors.data[reader->out]->rank; k++)
    if (kiln_expr_has_load(reader->index[k]))
      reader->index[k] = expand_in(cx, &a, reader->index[k], &r);
  if (producer->origin && producer->origin != reader->origin)
    reader->origin = reader->origin
                         ? kiln_symbol_printf(cx, "%s+%s", kiln_symbol_text(cx, producer->origin),
                                              kiln_symbol_text(cx, reader->origin))
                         : producer->origin;
}

typedef struct int_list {
  int *data;
  int n, cap;
} int_list;

static void add_reader(kiln_ctx *cx, int_list *readers, int stmt) {
  for (int k = 0; k < readers->n; k++)
    if (readers->data[k] == stmt) return;
  KILN_VEC_PUSH(&cx->scratch, readers, stmt);
}

// Removes readers that were inlined themselves.
static void drop_dead(const kiln_program *p, int_list *readers) {
  int n = 0;
  for (int k = 0; k < readers->n; k++)
    if (p->stmts.data[readers->data[k]]) readers->data[n++] = readers->data[k];
  readers->n = n;
}

// --- nested sums ---

enum { LONG_SUM = 1 << 14 }; // from this length on, blocked sums stay apart (rewrite/blocks.c)

// Whether merging both sums into one would increase the rounding error. On GPUs it does not: the
// threads of a long sum have sums of their own.
static bool keeps_digits(const kiln_machine *m, const kiln_stmt *s, const kiln_stmt *inner) {
  int64_t terms = 1;
  if (m->target->has_grids || s->combiner != KILN_COMBINE_SUM ||
      !kiln_dtype_is_float(s->body->dtype))
    return false;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    terms *= kiln_expr_int_or(s->dims[d].extent, LONG_SUM);
  for (int d = inner->n_space; d < inner->n_space + inner->n_reduce; d++)
    if (terms < LONG_SUM) terms *= kiln_expr_int_or(inner->dims[d].extent, LONG_SUM);
  return terms >= LONG_SUM;
}

// The reduction whose results |s| reduces elementwise as its only reader; NULL if there is none.
// Contractions are excluded: their loops run in registers.
static const kiln_stmt *inner_sum(kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                                  const kiln_machine *m, const kiln_stmt *s) {
  if (!s->n_reduce || s->guard || s->init || s->body->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_tensor *t = p->tensors.data[s->body->u.tensor];
  if (t->role != KILN_TEMP || t->def < 0 || users->first[t->id + 1] - users->first[t->id] != 1)
    return NULL;
  const kiln_stmt *inner = p->stmts.data[t->def];
  const kiln_expr *a = NULL, *b = NULL;
  const bool fits = inner && inner->n_reduce && !inner->guard && !inner->init &&
                    !kiln_stmt_is_contraction(inner, &a, &b) && inner->combiner == s->combiner &&
                    inner->body->dtype == s->body->dtype &&
                    s->n_reduce + inner->n_reduce <= KILN_MAX_RANK;
  const bool once = kiln_stmt_domain(s) == kiln_tensor_elems(t);
  return fits && once && kiln_stmt_is_plain(cx, inner) && !keeps_digits(m, s, inner) ? inner : NULL;
}

// |s| reduces over the dims of |inner| and its own.
static void merge_sums(kiln_ctx *cx, kiln_stmt *s, const kiln_stmt *inner) {
  const int n = s->n_space + s->n_reduce, n_inner = inner->n_space + inner->n_reduce;
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n + inner->n_reduce);
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const kiln_expr *values[2 * KILN_MAX_RANK];
  memcpy(dims, s->dims, (size_t)n * sizeof *dims);
  s->dims = dims;
  for (int d = 0; d < n_inner; d++) {
    vars[d] = inner->dims[d].name;
    if (d < inner->n_space) {
      values[d] = s->body->args[d];
      continue;
    }
    kiln_symbol name = vars[d];
    for (int k = 0; kiln_stmt_dim(s, name) >= 0; k++)
      name = kiln_symbol_printf(cx, "%s.%d", kiln_symbol_text(cx, vars[d]), k);
    dims[n + d - inner->n_space] = (kiln_dim){name, inner->dims[d].extent};
    s->n_reduce++; // makes the next name unique
    values[d] = kiln_var(cx, name);
  }
  s->body = kiln_expr_substitute(cx, inner->body, n_inner, vars, values);
  if (inner->origin && inner->origin != s->origin)
    s->origin = kiln_symbol_printf(cx, "%s+%s", kiln_symbol_text(cx, inner->origin),
                                   s->origin ? kiln_symbol_text(cx, s->origin) : "");
}

// Merges nested sums along two axes into one sum over both.
static void merge_all_sums(kiln_ctx *cx, kiln_program *p, const kiln_machine *m) {
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    const kiln_stmt *inner = inner_sum(cx, p, &users, m, s);
    if (inner) merge_sums(cx, s, inner);
  }
}

// A reduction over a single iteration becomes a map, also a depthwise convolution with a 1x1
// window. The initial value is kept, because 0 + -0 is 0.
static void drop_single_reductions(kiln_ctx *cx, kiln_program *p) {
  const kiln_expr *zero = kiln_int(cx, 0);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    bool is_single = s && is_reduction(s) && !s->guard && !s->init && kiln_stmt_is_plain(cx, s);
    for (int d = 0; is_single && d < s->n_reduce; d++)
      is_single = kiln_dim_extent(&s->dims[s->n_space + d]) == 1;
    if (!is_single) continue;
    for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
      s->body = kiln_expr_substitute(cx, s->body, 1, &s->dims[d].name, &zero);
    const kiln_expr *first = kiln_combiner_identity(cx, s->combiner, s->body->dtype);
    s->body = kiln_stmt_simplify(cx, s, kiln_combine(cx, s->combiner, first, s->body));
    s->combiner = KILN_COMBINE_NONE;
    s->n_reduce = 0;
  }
}

// Substitutes statements into their readers where policy->pays says so.
//
// gives: number of statements inlined
static int inline_all(kiln_ctx *cx, kiln_program *p, const policy *of) {
  int_list *readers = KILN_NEW_ARRAY(&cx->scratch, int_list, p->tensors.n);
  int n_inlined = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
    for (int j = 0; j < loads.n; j++) { add_reader(cx, &readers[loads.data[j]->u.tensor], i); }
  }
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    int_list *mine = &readers[s->out];
    drop_dead(p, mine);
    bool output = kiln_tensor_is_output(p, s->out);
    if (mine->n == 0 && !output) p->stmts.data[i] = NULL;
    if (mine->n == 0 || !kiln_stmt_is_map(cx, s)) continue;
    bool all_gone = !output;
    kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
    int kept = 0;
    for (int k = 0; k < mine->n; k++) {
      kiln_stmt *reader = p->stmts.data[mine->data[k]];
      if (!of->pays(cx, p, s, reader, mine->n + output, of) || makes_long_index(cx, p, s, reader)) {
        all_gone = false;
        mine->data[kept++] = mine->data[k];
        continue;
      }
      inline_into(cx, p, s, reader);
      for (int j = 0; j < loads.n; j++)
        add_reader(cx, &readers[loads.data[j]->u.tensor], reader->id);
    }
    mine->n = kept;
    if (all_gone) p->stmts.data[i] = NULL;
    n_inlined += all_gone;
  }
  return n_inlined;
}

// needs: |p| verified, static shapes
// gives: statements renumbered, dead ones removed
kiln_status kiln_tile_inline(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n) {
  const kiln_mark all = kiln_arena_mark(&cx->scratch);
  if (!m->target->has_grids) drop_single_reductions(cx, p);
  merge_all_sums(cx, p, m);
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, p->stmts.data[i]);
    fold_scalars(cx, p, p->stmts.data[i], &r);
  }
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  const policy everywhere = {pays, find_epilogues(cx, p), &users, m};
  *io_n += inline_all(cx, p, &everywhere);
  kiln_stmts_compact(p);
  kiln_arena_rewind(&cx->scratch, all);
  return KILN_OK;
}

// --- on GPUs ---

// A product's tile: a computed row element is reused for each of the tile's columns.
enum { TILE_ROWS = 64, TILE_COLUMNS = 128, LEAST_COLUMNS = 32 };
// Whether the map |s| computes 16-byte vectors, in storage order, from vectors.
static bool computes_words(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  enum { WORD = 16 };
  const kiln_tensor *t = p->tensors.data[s->out];
  int last = t->rank - 1;
  while (last > 0 && kiln_dim_extent(&s->dims[t->order[last]]) == 1) last--;
  return last >= 0 &&
         kiln_stmt_reads_words(cx, p, s, t->order[last], WORD / kiln_dtype_bytes(t->dtype));
}

// How many elements of the factor |operand| are computed if product |s| recomputes them for each
// tile of the other factor's columns.
//
// gives: 0 without columns: a sliding window computes its operand once
// gives: 0 if there are no columns: windows compute what they read once
static double computed_elems(const kiln_device *device, const kiln_stmt *s,
                             const kiln_expr *operand) {
  double rows = 1, terms = 1, columns = 1, tile = LEAST_COLUMNS;
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    const bool moves = kiln_expr_uses(operand, s->dims[d].name);
    *(!moves ? &columns : d < s->n_space ? &rows : &terms) *= (double)kiln_dim_extent(&s->dims[d]);
  }
  while (tile < TILE_COLUMNS && 2 * tile <= columns &&
         ceil(rows / TILE_ROWS) * columns / (2 * tile) >= device->n_units)
    tile *= 2;
  return columns > 1 ? rows * terms * ceil(columns / tile) : 0;
}

// Whether |s| depends on reductions, directly or through maps that broadcast their results (a
// mean).
static bool reads_sums(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  upstream u = {0};
  reach(&u, s);
  for (int k = 0; k < u.n; k++) {
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, u.stmts[k]);
    for (int i = 0; i < loads.n; i++) {
      const kiln_tensor *t = p->tensors.data[loads.data[i]->u.tensor];
      const kiln_stmt *from = t->def < 0 ? NULL : p->stmts.data[t->def];
      if (!from) continue;
      if (is_reduction(from)) return true;
      if (kiln_stmt_domain(from) < kiln_stmt_domain(u.stmts[k])) reach(&u, from);
    }
  }
  return false;
}

// Views and paddings of one tensor are inlined into all readers. Other maps are inlined into a
// single reading product if recomputing them for every tile takes less time than a kernel that
// stores them; maps that depend on reductions are excluded, because they share a kernel with these.
static bool pays_on_gpu(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                        const kiln_stmt *reader, int n_readers, const policy *of) {
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_device *d = of->machine->device;
  const int loads = count_loads(cx, p, reader, s->out);
  if (count_nodes(cx, s->body) * loads + count_nodes(cx, reader->body) > MAX_NODES) return false;
  if (of->epilogue[s->out] || narrows(cx, p, s)) return false;
  if (only_moves(cx, s->body)) return !joins(cx, s);
  if (!d || n_readers > 1 || !kiln_stmt_is_product(reader, &a, &b) || reads_sums(cx, p, s))
    return false;
  const double elems = (double)kiln_tensor_elems(p->tensors.data[s->out]),
               bytes = elems * kiln_dtype_bytes(s->body->dtype),
               cost = kiln_expr_cost(cx, s->body) / d->all_flops_ns[KILN_PEAK_F32],
               anew = computed_elems(d, reader, kiln_expr_loads(cx, a, s->out) ? a : b),
               joined = anew * cost / (computes_words(cx, p, s) ? OF_WORDS : OF_ELEMENTS),
               apart = fmax(elems * cost / OF_WORDS, 2 * bytes / d->levels[0].all_bytes_ns);
  return joined < d->launch_ns + apart;
}

// Removes roundings to halves of values that are no longer stored, followed by widening.
static const kiln_expr *keep_wide(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  if (e->kind != KILN_EXPR_CAST || e->dtype != KILN_F32) return NULL;
  const kiln_expr *half = e->args[0];
  const bool is_rounded = kiln_expr_is_stored(half) && half->args[0]->dtype == KILN_F32 &&
                          kiln_dtype_is_half(half->dtype);
  return is_rounded ? kiln_expr_replace(cx, half->args[0], keep_wide, argument) : NULL;
}

static const kiln_expr *keep_factors(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_expr *const *factors = argument;
  return e == factors[0] || e == factors[1] ? kiln_expr_replace(cx, e, keep_wide, NULL) : NULL;
}

// A product's factors keep the type that tensor cores take.
static void widen(kiln_ctx *cx, kiln_stmt *s) {
  const kiln_expr *factors[2] = {NULL, NULL};
  s->body = kiln_stmt_is_product(s, &factors[0], &factors[1])
                ? kiln_expr_replace(cx, s->body, keep_factors, factors)
                : kiln_expr_replace(cx, s->body, keep_wide, NULL);
}

// needs: kiln_tile_layout has run
kiln_status kiln_tile_fold_views(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  const policy on_gpu = {pays_on_gpu, find_epilogues(cx, p), &users, m};
  *io_n += inline_all(cx, p, &on_gpu);
  kiln_stmts_compact(p);
  for (int i = 0; i < p->stmts.n; i++) widen(cx, p->stmts.data[i]);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
