// Loop fusion of nests: statements as isl sets, dependences from isl's flow analysis, and isl's
// scheduler on growing clusters.
//
// Clusters begin as single statements (with their init) and are merged in pairs, in program order,
// if isl finds outer loops for all their statements and the fusion strategy agrees. Only a
// statement's space loops are scheduled: the reduction loops are not those of its init, so they
// cannot be shared, and isl would skew the band to align them. Only bands that the primitives can
// make are used: one loop of each nest, shifted by a constant.
#include "analysis/polyhedra.h"
#include "schedule/index.h"
#include "polyhedral/polyhedral.h"

#include <isl/constraint.h>
#include <isl/flow.h>
#include <isl/options.h>
#include <isl/schedule.h>
#include <isl/schedule_node.h>
#include <isl/union_map.h>
#include <isl/union_set.h>

enum {
  DEPENDENCE_BUDGET = 400000,
  QUERY_BUDGET = 12000, // for merging two clusters
  N_QUERIES = 4,        // number of such attempts that may use their full budget
  MAX_SHIFT = 64,
  MAX_LOOPS = 20
};

// A nest as an isl set.
typedef struct instance {
  char tuple[16]; // "S3"
  kiln_vars vars;
  const kiln_expr **extents;
  KILN_VEC(const kiln_expr *) guards;
  kiln_accesses accesses;
  bool rigid; // data-dependent accesses: dependences are unknown
  int n_space;
} instance;

typedef struct planner {
  kiln_ctx *cx;
  kiln_schedule *s;
  const kiln_polyhedral_options *o;
  kiln_text *comments;
  kiln_poly_plan *plan;
  instance *of; // [n_nests]
  kiln_polyhedra ph;
  uint64_t left; // budget left
  bool spent, large;
  isl_union_map *dependences; // between the statements' space loops
} planner;

// The band that isl finds for a set of nests.
typedef struct band {
  int n; // rows that are a single loop in each nest
  bool coincident[KILN_MAX_BAND];
  int dim[KILN_MAX_NESTS][KILN_MAX_BAND]; // [row] of each member
  int64_t shift[KILN_MAX_NESTS][KILN_MAX_BAND];
  int n_skewed; // rows of another form
} band;

// --- nests ---

static int stmt_of(const planner *pl, const kiln_buffer *b) {
  const kiln_program *p = pl->s->prog;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->tensors.data[p->stmts.data[i]->out]->name == b->name) return i;
  return -1;
}

static const kiln_loop *store_of(const kiln_loop *nest) {
  while (nest->kind != KILN_LOOP_STORE) nest = nest->body;
  return nest;
}

static void describe(planner *pl, kiln_loop *top, kiln_poly_nest *n, instance *in) {
  kiln_arena *a = &pl->cx->perm;
  kiln_loop *l = top;
  KILN_VEC(const kiln_expr *) extents = {0};
  KILN_VEC(int64_t) sizes = {0};
  for (; l->kind != KILN_LOOP_STORE; l = l->body) {
    int64_t size = 1;
    if (l->kind == KILN_LOOP_IF) {
      KILN_VEC_PUSH(a, &in->guards, l->cond);
      continue;
    }
    (void)kiln_expr_is_int(l->extent, &size);
    KILN_VEC_PUSH(a, &in->vars, l->var);
    KILN_VEC_PUSH(a, &extents, l->extent);
    KILN_VEC_PUSH(a, &sizes, size);
  }
  const kiln_stmt *s;
  n->stmt = stmt_of(pl, pl->s->loops->buffers.data[l->buffer]);
  s = pl->s->prog->stmts.data[n->stmt];
  n->is_init = top->next && store_of(top->next)->buffer == l->buffer; // an update follows
  n->n = in->vars.n;
  n->loops = in->vars.data;
  n->extents = sizes.data;
  n->top = top;
  for (int k = 0; k < n->n && k < KILN_MAX_BAND; k++) n->order[k] = k;
  in->extents = extents.data;
  in->accesses = kiln_accesses_of(pl->cx, pl->s->loops, top, false, -1);
  in->rigid = !kiln_stmt_is_plain(pl->cx, s) || n->n > KILN_MAX_BAND;
  in->n_space = n->is_init ? n->n : s->n_space;
}

static kiln_status gather(planner *pl) {
  int n = 0;
  for (kiln_loop *l = pl->s->loops->body; l; l = l->next) n++;
  if (n > KILN_MAX_NESTS)
    return KILN_FAIL(pl->cx->diag, KILN_UNSUPPORTED, "schedule",
                     "polyhedral: a definition must have at most %d nests, got %d: use the rules",
                     KILN_MAX_NESTS, n);
  pl->plan->nests = KILN_NEW_ARRAY(&pl->cx->perm, kiln_poly_nest, n);
  pl->of = KILN_NEW_ARRAY(&pl->cx->perm, instance, n);
  for (kiln_loop *l = pl->s->loops->body; l; l = l->next) {
    const int i = pl->plan->n_nests++;
    snprintf(pl->of[i].tuple, sizeof pl->of[i].tuple, "S%d", i);
    describe(pl, l, &pl->plan->nests[i], &pl->of[i]);
  }
  return KILN_OK;
}

// Whether a dependence orders the two nests.
static bool depends(const planner *pl, int a, int b) {
  const kiln_accesses *x = &pl->of[a].accesses, *y = &pl->of[b].accesses;
  for (int i = 0; i < x->n; i++)
    for (int j = 0; j < y->n; j++)
      if (x->data[i].buffer == y->data[j].buffer && (x->data[i].write || y->data[j].write))
        return true;
  return false;
}

// --- dependences ---

static kiln_poly_vars vars_of(const instance *in) {
  return (kiln_poly_vars){in->vars.n, in->vars.data};
}

static isl_set *domain_of(planner *pl, const instance *in) {
  bool exact = true;
  isl_space *space = kiln_poly_space(&pl->ph, in->tuple, vars_of(in));
  isl_set *d = kiln_poly_domain(&pl->ph, space, vars_of(in), in->extents, in->guards.n,
                                in->guards.data, &exact);
  isl_space_free(space);
  return d;
}

// All read (or write) accesses of the nest; a reduction also reads what it writes.
static isl_union_map *accesses_of(planner *pl, const instance *in, bool writes) {
  isl_set *d = domain_of(pl, in);
  isl_union_map *all = isl_union_map_empty(isl_set_get_space(d));
  for (int i = 0; i < in->accesses.n; i++) {
    const kiln_access *a = &in->accesses.data[i];
    const kiln_buffer *b = pl->s->loops->buffers.data[a->buffer];
    const bool both = a->write && a->combiner != KILN_COMBINE_NONE;
    char name[16];
    bool exact = true;
    if (a->write != writes && !both) continue;
    snprintf(name, sizeof name, "B%d", a->buffer);
    isl_map *m =
        kiln_poly_access(&pl->ph, d, vars_of(in), name, a->n, a->index, b->extents, &exact);
    all = isl_union_map_union(all, isl_union_map_from_map(m));
  }
  isl_set_free(d);
  return all;
}

// S3[i, j] -> [3, i, j, 0]: the program order.
static isl_map *naive_order(planner *pl, const instance *in, int position, int depth) {
  isl_map *m = isl_map_from_domain(domain_of(pl, in));
  m = isl_map_add_dims(m, isl_dim_out, (unsigned)depth + 1);
  m = isl_map_fix_si(m, isl_dim_out, 0, position);
  for (int k = 0; k < depth; k++)
    m = k < in->vars.n ? isl_map_equate(m, isl_dim_in, k, isl_dim_out, k + 1)
                       : isl_map_fix_si(m, isl_dim_out, (unsigned)k + 1, 0);
  return m;
}

static isl_union_map *flow(isl_union_map *source, isl_union_map *sink, isl_union_map *order) {
  isl_union_access_info *info = isl_union_access_info_from_sink(isl_union_map_copy(sink));
  info = isl_union_access_info_set_may_source(info, isl_union_map_copy(source));
  info = isl_union_access_info_set_schedule_map(info, isl_union_map_copy(order));
  isl_union_flow *f = isl_union_access_info_compute_flow(info);
  isl_union_map *d = isl_union_flow_get_may_dependence(f);
  isl_union_flow_free(f);
  return d;
}

// The map from a statement's instances to its space loops.
static isl_union_map *space_loops(planner *pl) {
  isl_union_map *all = isl_union_map_empty(isl_space_params_alloc(pl->ph.isl, 0));
  for (int i = 0; i < pl->plan->n_nests; i++) {
    const instance *in = &pl->of[i];
    if (pl->plan->nests[i].is_init) continue;
    isl_map *m = isl_set_identity(domain_of(pl, in));
    m = isl_map_project_out(m, isl_dim_out, (unsigned)in->n_space,
                            (unsigned)(in->vars.n - in->n_space));
    m = isl_map_set_tuple_name(m, isl_dim_out, in->tuple);
    all = isl_union_map_union(all, isl_union_map_from_map(m));
  }
  return all;
}

// Removes dependences of a statement on itself: each element is written by one instance, or
// combined in any order.
static isl_union_map *without_self(planner *pl, isl_union_map *deps) {
  for (int i = 0; i < pl->plan->n_nests; i++) {
    if (pl->plan->nests[i].is_init || pl->of[i].rigid) continue;
    isl_union_set *u = isl_union_set_from_set(domain_of(pl, &pl->of[i]));
    deps =
        isl_union_map_subtract(deps, isl_union_map_from_domain_and_range(isl_union_set_copy(u), u));
  }
  return deps;
}

static isl_stat keep_relation(isl_constraint *c, void *argument) {
  isl_basic_map **out = argument;
  const unsigned n_in = (unsigned)isl_basic_map_dim(*out, isl_dim_in);
  const unsigned n_out = (unsigned)isl_basic_map_dim(*out, isl_dim_out);
  const bool relates = isl_constraint_involves_dims(c, isl_dim_in, 0, n_in) == isl_bool_true &&
                       isl_constraint_involves_dims(c, isl_dim_out, 0, n_out) == isl_bool_true;
  if (relates || isl_constraint_is_equality(c) == isl_bool_true)
    *out = isl_basic_map_add_constraint(*out, c);
  else isl_constraint_free(c);
  return isl_stat_ok;
}

// Widens the dependences between two statements to one convex relation without loop bounds: this
// is conservative. Pieces at borders and the bounds would each be rows of isl's integer programs,
// and schedules that only they allow have no common loops that the primitives could make.
static isl_stat widen(isl_map *m, void *argument) {
  isl_union_map **all = argument;
  isl_basic_map *hull = isl_basic_map_remove_divs(isl_map_simple_hull(m));
  isl_basic_map *wide = isl_basic_map_universe(isl_basic_map_get_space(hull));
  const isl_stat st = isl_basic_map_foreach_constraint(hull, keep_relation, &wide);
  isl_basic_map_free(hull);
  *all = isl_union_map_union(*all, isl_union_map_from_map(isl_map_from_basic_map(wide)));
  return st;
}

static isl_union_map *widened(isl_union_map *deps) {
  isl_union_map *all = isl_union_map_empty(isl_union_map_get_space(deps));
  if (isl_union_map_foreach_map(deps, widen, &all) != isl_stat_ok) all = isl_union_map_free(all);
  isl_union_map_free(deps);
  return all;
}

static void find_dependences(planner *pl) {
  isl_space *none = isl_space_params_alloc(pl->ph.isl, 0);
  isl_union_map *reads = isl_union_map_empty(isl_space_copy(none));
  isl_union_map *writes = isl_union_map_empty(isl_space_copy(none));
  isl_union_map *order = isl_union_map_empty(none);
  int depth = 0;
  for (int i = 0; i < pl->plan->n_nests; i++)
    if (pl->of[i].vars.n > depth) depth = pl->of[i].vars.n;
  for (int i = 0; i < pl->plan->n_nests; i++) {
    const instance *in = &pl->of[i];
    if (pl->plan->nests[i].is_init) continue;
    reads = isl_union_map_union(reads, accesses_of(pl, in, false));
    writes = isl_union_map_union(writes, accesses_of(pl, in, true));
    order = isl_union_map_union(order, isl_union_map_from_map(naive_order(pl, in, i, depth)));
  }
  isl_union_map *all = flow(writes, reads, order);
  all = isl_union_map_union(all, flow(reads, writes, order));
  all = isl_union_map_union(all, flow(writes, writes, order));
  all = without_self(pl, all);
  isl_union_map *onto = space_loops(pl);
  all = isl_union_map_apply_domain(all, isl_union_map_copy(onto));
  pl->dependences = widened(isl_union_map_apply_range(all, onto));
  isl_union_map_free(reads);
  isl_union_map_free(writes);
  isl_union_map_free(order);
}

// --- isl's schedule of a cluster ---

static isl_schedule *compute(planner *pl, const kiln_poly_cluster *c) {
  isl_union_set *domain = isl_union_set_empty(isl_space_params_alloc(pl->ph.isl, 0));
  for (int i = 0; i < c->n; i++) {
    const instance *in = &pl->of[c->members[i]];
    if (pl->plan->nests[c->members[i]].is_init) continue;
    isl_set *d = isl_set_project_out(domain_of(pl, in), isl_dim_set, (unsigned)in->n_space,
                                     (unsigned)(in->vars.n - in->n_space));
    d = isl_set_set_tuple_name(d, in->tuple);
    domain = isl_union_set_union(domain, isl_union_set_from_set(d));
  }
  isl_union_map *deps = isl_union_map_copy(pl->dependences);
  isl_union_set *members = isl_union_set_universe(isl_union_set_copy(domain));
  deps = isl_union_map_intersect_domain(deps, isl_union_set_copy(members));
  deps = isl_union_map_intersect_range(deps, members);
  isl_schedule_constraints *sc = isl_schedule_constraints_on_domain(domain);
  sc = isl_schedule_constraints_set_proximity(sc, isl_union_map_copy(deps));
  sc = isl_schedule_constraints_set_coincidence(sc, isl_union_map_copy(deps));
  sc = isl_schedule_constraints_set_validity(sc, deps);
  return isl_schedule_constraints_compute_schedule(sc);
}

// Reads a nest's part of a row as v + shift for one loop v; false if it has another form.
static bool read_row(isl_pw_aff *row, int n_dims, int *out_dim, int64_t *out_shift) {
  isl_aff *a = isl_pw_aff_is_equal(row, row) == isl_bool_true && isl_pw_aff_n_piece(row) == 1
                   ? isl_pw_aff_as_aff(isl_pw_aff_copy(row))
                   : NULL;
  bool fine = a && isl_aff_dim(a, isl_dim_div) == 0;
  *out_dim = -1;
  for (int d = 0; fine && d < n_dims; d++) {
    isl_val *v = isl_aff_get_coefficient_val(a, isl_dim_in, d);
    if (isl_val_is_one(v) == isl_bool_true && *out_dim < 0) *out_dim = d;
    else fine = isl_val_is_zero(v) == isl_bool_true;
    isl_val_free(v);
  }
  isl_val *c = fine ? isl_aff_get_constant_val(a) : NULL;
  fine = fine && isl_val_is_int(c) == isl_bool_true;
  *out_shift = fine ? isl_val_get_num_si(c) : 0;
  isl_val_free(c);
  isl_aff_free(a);
  return fine;
}

// Adds a row for all members; rows that skew, or lack a loop of some nest, are skipped.
static void take_row(planner *pl, const kiln_poly_cluster *c, isl_union_pw_aff *row,
                     bool coincident, band *out) {
  bool unit = true, skewed = false;
  for (int i = c->n - 1; i >= 0; i--) {
    const instance *in = &pl->of[c->members[i]];
    int *dim = &out->dim[i][out->n];
    int64_t *shift = &out->shift[i][out->n];
    if (pl->plan->nests[c->members[i]].is_init) { // scheduled with the update that follows
      *dim = out->dim[i + 1][out->n];
      *shift = out->shift[i + 1][out->n];
      continue;
    }
    const kiln_poly_vars vars = {in->n_space, in->vars.data};
    isl_space *s = isl_space_from_domain(kiln_poly_space(&pl->ph, in->tuple, vars));
    isl_pw_aff *share = isl_union_pw_aff_extract_pw_aff(row, isl_space_add_dims(s, isl_dim_out, 1));
    const bool fine = read_row(share, in->n_space, dim, shift);
    skewed |= !fine;
    unit &= fine && *dim >= 0;
    isl_pw_aff_free(share);
  }
  out->n_skewed += skewed;
  if (unit && out->n < KILN_MAX_BAND) out->coincident[out->n++] = coincident;
}

// Reads the rows of the outermost permutable band.
static void read_band(planner *pl, const kiln_poly_cluster *c, isl_schedule *schedule, band *out) {
  isl_schedule_node *node = isl_schedule_node_child(isl_schedule_get_root(schedule), 0);
  if (isl_schedule_node_get_type(node) == isl_schedule_node_band) {
    isl_multi_union_pw_aff *rows = isl_schedule_node_band_get_partial_schedule(node);
    const bool permutable = isl_schedule_node_band_get_permutable(node) == isl_bool_true;
    const int n = (int)isl_multi_union_pw_aff_dim(rows, isl_dim_set);
    for (int k = 0; k < n && (k == 0 || permutable); k++) {
      isl_union_pw_aff *row = isl_multi_union_pw_aff_get_union_pw_aff(rows, k);
      take_row(pl, c, row, isl_schedule_node_band_member_get_coincident(node, k) == isl_bool_true,
               out);
      isl_union_pw_aff_free(row);
    }
    isl_multi_union_pw_aff_free(rows);
  }
  isl_schedule_node_free(node);
}

// Asks isl for a band. Each call gets its share of the budget; if it is exceeded there is no band.
static void ask(planner *pl, const kiln_poly_cluster *c, band *out) {
  isl_ctx *isl = pl->ph.isl;
  const uint64_t share = pl->left < QUERY_BUDGET ? pl->left : QUERY_BUDGET;
  isl_ctx_reset_operations(isl);
  isl_ctx_set_max_operations(isl, share);
  isl_schedule *schedule = share > 0 ? compute(pl, c) : NULL;
  if (schedule) read_band(pl, c, schedule, out);
  isl_schedule_free(schedule);
  const bool failed = share == 0 || kiln_polyhedra_failed(&pl->ph);
  if (failed) *out = (band){0};
  pl->spent |= failed;
  kiln_polyhedra_reset(&pl->ph);
  // isl does not report operations used: a failure counts as the whole share, a success as a part
  // of it
  pl->left -= failed ? share : share / 16;
}

// Each loop may occur in one row only: later rows with the same loop are dropped.
static void drop_repeated(const kiln_poly_cluster *c, band *b) {
  int n = 0;
  for (int k = 0; k < b->n; k++) {
    bool twice = false;
    for (int i = 0; i < c->n; i++)
      for (int before = 0; before < n; before++) twice |= b->dim[i][before] == b->dim[i][k];
    if (twice) continue;
    for (int i = 0; i < c->n; i++) {
      b->dim[i][n] = b->dim[i][k];
      b->shift[i][n] = b->shift[i][k];
    }
    b->coincident[n++] = b->coincident[k];
  }
  b->n = n;
}

// The loops that all nests of the cluster have in common. A single statement's space loops are
// parallel, because each instance writes an element of its own.
static band *band_of(planner *pl, const kiln_poly_cluster *c) {
  band *b = KILN_NEW(&pl->cx->perm, band);
  bool is_one = true;
  for (int i = 0; i < c->n; i++) {
    if (pl->of[c->members[i]].rigid) return b;
    is_one &= pl->plan->nests[c->members[i]].stmt == pl->plan->nests[c->members[0]].stmt;
  }
  if (!is_one) {
    ask(pl, c, b);
    drop_repeated(c, b);
    return b;
  }
  b->n = pl->of[c->members[c->n - 1]].n_space;
  for (int k = 0; k < b->n; k++) {
    b->coincident[k] = true;
    for (int i = 0; i < c->n; i++) b->dim[i][k] = k;
  }
  return b;
}

// --- clusters ---

static int n_coincident(const kiln_poly_cluster *c) {
  int n = 0;
  for (int k = 0; k < c->n_band; k++) n += c->coincident[k];
  return n;
}

// Whether the fusion strategy merges two clusters into |both|.
static bool agrees(const planner *pl, const kiln_poly_cluster *a, const kiln_poly_cluster *b,
                   const kiln_poly_cluster *both) {
  const int before = n_coincident(a) > n_coincident(b) ? n_coincident(a) : n_coincident(b);
  switch (pl->o->fusion) {
  case KILN_FUSION_MIN: return false;
  case KILN_FUSION_MAX: return both->n_band > 0;
  case KILN_FUSION_PRESERVE3:
    return both->n_band > 0 && (n_coincident(both) >= before || n_coincident(both) >= 3);
  }
  return false;
}

static void adopt(planner *pl, kiln_poly_cluster *c, const band *b) {
  c->n_band = b->n;
  for (int k = 0; k < b->n; k++) c->coincident[k] = b->coincident[k];
  for (int i = 0; i < c->n; i++) {
    kiln_poly_nest *n = &pl->plan->nests[c->members[i]];
    int at = 0;
    for (; at < b->n; at++) {
      n->order[at] = b->dim[i][at];
      n->shift[at] = b->shift[i][at];
    }
    for (int d = 0; d < n->n && at < KILN_MAX_BAND; d++) {
      bool taken = false;
      for (int k = 0; k < b->n; k++) taken |= b->dim[i][k] == d;
      if (!taken) n->shift[at] = 0, n->order[at++] = d;
    }
  }
}

static bool clusters_depend(const planner *pl, const kiln_poly_cluster *a,
                            const kiln_poly_cluster *b) {
  for (int i = 0; i < a->n; i++)
    for (int j = 0; j < b->n; j++)
      if (depends(pl, a->members[i], b->members[j])) return true;
  return false;
}

// The position, i or j, to which clusters i < j can be moved together; -1: none.
static int meeting_place(const planner *pl, int i, int j) {
  const kiln_poly_cluster *all = pl->plan->clusters;
  bool at_i = true, at_j = true;
  for (int k = i + 1; k < j; k++) {
    at_i &= !clusters_depend(pl, &all[k], &all[j]);
    at_j &= !clusters_depend(pl, &all[i], &all[k]);
  }
  return at_j ? j : at_i ? i : -1;
}

static void join(const kiln_poly_cluster *a, const kiln_poly_cluster *b, kiln_poly_cluster *out) {
  int i = 0, j = 0;
  *out = (kiln_poly_cluster){0};
  while (i < a->n || j < b->n)
    if (j == b->n || (i < a->n && a->members[i] < b->members[j]))
      out->members[out->n++] = a->members[i++];
    else out->members[out->n++] = b->members[j++];
}

static void name_cluster(const planner *pl, const kiln_poly_cluster *c, kiln_text *out) {
  const kiln_program *p = pl->s->prog;
  for (int i = 0, last = -1; i < c->n; i++) {
    const int stmt = pl->plan->nests[c->members[i]].stmt;
    if (stmt != last)
      kiln_text_printf(out, " %s",
                       kiln_symbol_text(pl->cx, p->tensors.data[p->stmts.data[stmt]->out]->name));
    last = stmt;
  }
}

// isl's integer programs have several unknowns for each loop, and the cost of one operation grows
// with their number, so that the budget alone does not bound the time.
static bool is_large(planner *pl, const kiln_poly_cluster *c) {
  int loops = 0;
  for (int i = 0; i < c->n; i++)
    if (!pl->plan->nests[c->members[i]].is_init) loops += pl->of[c->members[i]].n_space;
  if (loops <= MAX_LOOPS) return false;
  pl->large = true;
  return true;
}

// Merges clusters i < j if that is legal and profitable.
static bool try_join(planner *pl, int i, int j) {
  kiln_poly_cluster *all = pl->plan->clusters, both;
  const int at = meeting_place(pl, i, j);
  if (at < 0 || !clusters_depend(pl, &all[i], &all[j])) return false;
  join(&all[i], &all[j], &both);
  if (is_large(pl, &both)) return false;
  const band *b = band_of(pl, &both);
  both.n_band = b->n;
  for (int k = 0; k < b->n; k++) both.coincident[k] = b->coincident[k];
  if (b->n == 0 && b->n_skewed > 0) {
    kiln_text_add(pl->comments, "#");
    name_cluster(pl, &both, pl->comments);
    kiln_text_add(pl->comments,
                  ": share only skewed loops, which no primitive makes: kept apart\n");
  }
  if (!agrees(pl, &all[i], &all[j], &both)) return false;
  adopt(pl, &both, b);
  all[at] = both;
  const int gone = at == i ? j : i;
  for (int k = gone; k + 1 < pl->plan->n_clusters; k++) all[k] = all[k + 1];
  pl->plan->n_clusters--;
  return true;
}

static void begin_clusters(planner *pl) {
  kiln_poly_plan *plan = pl->plan;
  plan->clusters = KILN_NEW_ARRAY(&pl->cx->perm, kiln_poly_cluster, plan->n_nests);
  for (int i = 0; i < plan->n_nests; i++) {
    kiln_poly_cluster *c = plan->n_clusters ? &plan->clusters[plan->n_clusters - 1] : NULL;
    if (!c || plan->nests[c->members[0]].stmt != plan->nests[i].stmt)
      c = &plan->clusters[plan->n_clusters++];
    c->members[c->n++] = i;
  }
  for (int i = 0; i < plan->n_clusters; i++)
    adopt(pl, &plan->clusters[i], band_of(pl, &plan->clusters[i]));
}

static void set_options(planner *pl) {
  isl_ctx *isl = pl->ph.isl;
  isl_options_set_schedule_whole_component(isl, 1);
  isl_options_set_schedule_maximize_band_depth(isl,
                                               // Else nests are separated to let inner loops merge.
                                               0);
  isl_options_set_schedule_treat_coalescing(isl, 0);
  isl_options_set_schedule_max_constant_term(isl, MAX_SHIFT);
  isl_options_set_schedule_max_coefficient(isl, 1);
}

static void free_dependences(void *deps) { isl_union_map_free(deps); }

kiln_status kiln_poly_plan_make(kiln_schedule *s, const kiln_polyhedral_options *options,
                                kiln_text *comments, kiln_poly_plan *out) {
  *out = (kiln_poly_plan){0};
  planner pl = {.cx = s->cx, .s = s, .o = options, .comments = comments, .plan = out};
  pl.left = options->budget > 0 ? (uint64_t)options->budget : N_QUERIES * QUERY_BUDGET;
  KILN_TRY(gather(&pl));
  begin_clusters(&pl);
  if (options->fusion == KILN_FUSION_MIN) return KILN_OK;
  kiln_polyhedra_init(s->cx, options->budget > 0 ? pl.left : (uint64_t)DEPENDENCE_BUDGET, &pl.ph);
  set_options(&pl);
  find_dependences(&pl);
  kiln_cleanup_push(s->cx, free_dependences, pl.dependences);
  pl.spent = kiln_polyhedra_failed(&pl.ph);
  if (pl.spent) pl.left = 0;
  kiln_polyhedra_reset(&pl.ph);
  for (int j = 1; j < out->n_clusters && pl.left > 0; j++)
    for (int i = j - 1; i >= 0; i--)
      if (try_join(&pl, i, j)) j = i > 0 ? i - 1 : 0, i = -1;
  if (pl.spent) kiln_text_add(comments, "# isl's budget is spent: undecided nests stay apart\n");
  if (pl.large)
    kiln_text_printf(comments, "# clusters have at most %d loops: larger ones stay apart\n",
                     MAX_LOOPS);
  kiln_cleanup_pop(s->cx);
  isl_union_map_free(pl.dependences);
  kiln_polyhedra_deinit(&pl.ph);
  return KILN_OK;
}
