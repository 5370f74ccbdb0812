// The bridge to isl: expressions become piecewise affine functions, conditions become sets,
// accesses maps.
#include "analysis/polyhedra.h"

#include "support/reserve.h"

#ifdef KILN_HAS_GMP
#include <gmp.h>
#endif
#include <isl/options.h>
#include <pthread.h>
#include <stdlib.h>

// --- the isl context ---

#ifdef KILN_HAS_GMP
// isl computes with GMP, which ends the process when memory is out, and whose allocator is
// process-wide. These functions are compatible with malloc and free, so numbers that others
// allocated before the switch stay valid.
static void *give(size_t bytes) {
  void *block = malloc(bytes);
  if (!block) abort(); // the reserve is used up
  return block;
}
static void *give_again(void *block, size_t had, size_t bytes) {
  (void)had;
  void *grown = realloc(block, bytes);
  if (!grown) abort();
  return grown;
}
static void take(void *block, size_t bytes) {
  (void)bytes;
  free(block);
}

void *__gmp_default_allocate(size_t bytes);

// The first isl context installs the allocator, the last one restores the former; an application
// that set its own keeps it.
static void change_gmp(int by) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int n_users;
  void *(*allocate)(size_t) = NULL;
  pthread_mutex_lock(&lock);
  const int n_before = n_users;
  n_users += by;
  mp_get_memory_functions(&allocate, NULL, NULL);
  if (n_before == 0 && allocate == __gmp_default_allocate)
    mp_set_memory_functions(give, give_again, take);
  if (n_users == 0 && allocate == give) mp_set_memory_functions(NULL, NULL, NULL);
  pthread_mutex_unlock(&lock);
}
#else
static void change_gmp(int by) { (void)by; }
#endif

// Everything between creation and destruction of an isl_ctx runs within the memory reserve, because
// isl does not report every failed allocation.
static void close_isl(void *object) {
  kiln_polyhedra *p = object;
  kiln_polyhedra_reset(p);
  isl_ctx_free(p->isl);
  p->isl = NULL;
  change_gmp(-1);
  if (kiln_reserve_end(NULL, KILN_OK) != KILN_OK) p->is_out_of_memory = true;
}

void kiln_polyhedra_init(kiln_ctx *cx, uint64_t max_operations, kiln_polyhedra *out) {
  *out = (kiln_polyhedra){.cx = cx};
  if (kiln_reserve_begin(NULL) != KILN_OK) kiln_arena_out_of_memory(&cx->perm);
  change_gmp(1);
  out->isl = isl_ctx_alloc();
  kiln_cleanup_push(cx, close_isl, out);
  if (!out->isl) kiln_arena_out_of_memory(&cx->perm);
  isl_options_set_on_error(out->isl, ISL_ON_ERROR_CONTINUE);
  isl_ctx_set_max_operations(out->isl, max_operations);
}

void kiln_polyhedra_deinit(kiln_polyhedra *p) {
  kiln_cleanup_pop(p->cx);
  close_isl(p);
  if (p->is_out_of_memory) kiln_arena_out_of_memory(&p->cx->perm);
}

void kiln_polyhedra_reset(kiln_polyhedra *p) {
  if (!p->isl) return;
  if (isl_ctx_last_error(p->isl) == isl_error_alloc) p->is_out_of_memory = true;
  isl_ctx_reset_error(p->isl);
}

bool kiln_polyhedra_failed(const kiln_polyhedra *p) {
  return isl_ctx_last_error(p->isl) != isl_error_none;
}

// --- expressions ---

// Expressions are DAGs, visited here as trees: with more nodes than this, one counts as not affine.
enum { MAX_NODES = 4096 };

typedef struct bridge {
  const kiln_polyhedra *p;
  isl_space *space; // kept
  kiln_poly_vars vars;
  int n_nodes;
  bool *exact; // of a condition
} bridge;

static isl_set *condition(bridge *b, const kiln_expr *e, bool negated);
static isl_pw_aff *value(bridge *b, const kiln_expr *e);

static isl_pw_aff *constant(bridge *b, int64_t i) {
  isl_local_space *ls = isl_local_space_from_space(isl_space_copy(b->space));
  isl_val *v = isl_val_int_from_si(b->p->isl, (long)i);
  return isl_pw_aff_from_aff(isl_aff_val_on_domain(ls, v));
}

static isl_pw_aff *variable(bridge *b, kiln_symbol name) {
  for (int k = 0; k < b->vars.n; k++) {
    if (b->vars.names[k] != name) continue;
    isl_local_space *ls = isl_local_space_from_space(isl_space_copy(b->space));
    return isl_pw_aff_from_aff(isl_aff_var_on_domain(ls, isl_dim_set, (unsigned)k));
  }
  return NULL;
}

static isl_pw_aff *product(bridge *b, const kiln_expr *e) {
  int64_t c = 0;
  const bool first = kiln_expr_is_int(e->args[0], &c);
  if (!first && !kiln_expr_is_int(e->args[1], &c)) return NULL;
  return isl_pw_aff_scale_val(value(b, e->args[first ? 1 : 0]),
                              isl_val_int_from_si(b->p->isl, (long)c));
}

static isl_pw_aff *quotient(bridge *b, const kiln_expr *e) {
  int64_t c = 0;
  if (!kiln_expr_is_int(e->args[1], &c) || c <= 0) return NULL;
  isl_val *by = isl_val_int_from_si(b->p->isl, (long)c);
  isl_pw_aff *x = value(b, e->args[0]);
  if (e->kind == KILN_EXPR_MOD) return isl_pw_aff_mod_val(x, by);
  return isl_pw_aff_floor(isl_pw_aff_scale_down_val(x, by));
}

static isl_pw_aff *choice(bridge *b, const kiln_expr *e) {
  bool exact = true;
  bool *const outer = b->exact;
  b->exact = &exact;
  isl_set *when = condition(b, e->args[0], false);
  b->exact = outer;
  if (!exact) {
    isl_set_free(when);
    return NULL;
  }
  isl_pw_aff *then = value(b, e->args[1]);
  isl_pw_aff *otherwise = value(b, e->args[2]);
  return isl_pw_aff_cond(isl_set_indicator_function(when), then, otherwise);
}

static isl_pw_aff *binary(bridge *b, const kiln_expr *e,
                          isl_pw_aff *(*make)(isl_pw_aff *, isl_pw_aff *)) {
  isl_pw_aff *left = value(b, e->args[0]);
  return make(left, value(b, e->args[1]));
}

static isl_pw_aff *magnitude(bridge *b, const kiln_expr *e) {
  isl_pw_aff *x = value(b, e->args[0]);
  return isl_pw_aff_max(isl_pw_aff_copy(x), isl_pw_aff_neg(x));
}

static isl_pw_aff *value(bridge *b, const kiln_expr *e) {
  int64_t i = 0;
  if (e->dtype != KILN_I64 || ++b->n_nodes > MAX_NODES) return NULL;
  if (kiln_expr_is_int(e, &i)) return constant(b, i);
  // a chain: the kinds that are affine are few
  const kiln_expr_kind k = e->kind;
  if (k == KILN_EXPR_VAR) return variable(b, e->u.sym);
  if (k == KILN_EXPR_ADD) return binary(b, e, isl_pw_aff_add);
  if (k == KILN_EXPR_SUB) return binary(b, e, isl_pw_aff_sub);
  if (k == KILN_EXPR_MIN) return binary(b, e, isl_pw_aff_min);
  if (k == KILN_EXPR_MAX) return binary(b, e, isl_pw_aff_max);
  if (k == KILN_EXPR_NEG) return isl_pw_aff_neg(value(b, e->args[0]));
  if (k == KILN_EXPR_ABS) return magnitude(b, e);
  if (k == KILN_EXPR_MUL) return product(b, e);
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_MOD) return quotient(b, e);
  if (k == KILN_EXPR_SELECT) return choice(b, e);
  return NULL;
}

// --- conditions ---

static isl_set *anywhere(bridge *b) {
  *b->exact = false;
  return isl_set_universe(isl_space_copy(b->space));
}

static isl_set *comparison(bridge *b, const kiln_expr *e, bool negated) {
  static const struct {
    kiln_expr_kind kind, opposite;
    isl_set *(*make)(isl_pw_aff *, isl_pw_aff *);
  } rows[] = {{KILN_EXPR_LT, KILN_EXPR_GE, isl_pw_aff_lt_set},
              {KILN_EXPR_LE, KILN_EXPR_GT, isl_pw_aff_le_set},
              {KILN_EXPR_GT, KILN_EXPR_LE, isl_pw_aff_gt_set},
              {KILN_EXPR_GE, KILN_EXPR_LT, isl_pw_aff_ge_set},
              {KILN_EXPR_EQ, KILN_EXPR_NE, isl_pw_aff_eq_set},
              {KILN_EXPR_NE, KILN_EXPR_EQ, isl_pw_aff_ne_set}};
  isl_pw_aff *left = value(b, e->args[0]), *right = value(b, e->args[1]);
  if (left && right)
    for (size_t i = 0; i < KILN_LEN(rows); i++)
      if ((negated ? rows[i].opposite : rows[i].kind) == e->kind) return rows[i].make(left, right);
  isl_pw_aff_free(left);
  isl_pw_aff_free(right);
  return anywhere(b);
}

static isl_set *condition(bridge *b, const kiln_expr *e, bool negated) {
  int64_t decided = 0;
  if (++b->n_nodes > MAX_NODES) return anywhere(b);
  if (kiln_expr_is_int(e, &decided))
    return (decided != 0) != negated ? isl_set_universe(isl_space_copy(b->space))
                                     : isl_set_empty(isl_space_copy(b->space));
  if (kiln_expr_kind_is_cmp(e->kind)) return comparison(b, e, negated);
  if (e->kind == KILN_EXPR_NOT) return condition(b, e->args[0], !negated);
  if (e->kind != KILN_EXPR_AND && e->kind != KILN_EXPR_OR) return anywhere(b);
  isl_set *left = condition(b, e->args[0], negated), *right = condition(b, e->args[1], negated);
  return (e->kind == KILN_EXPR_AND) != negated ? isl_set_intersect(left, right)
                                               : isl_set_union(left, right);
}

// --- the interface ---

isl_space *kiln_poly_space(const kiln_polyhedra *p, const char *tuple, kiln_poly_vars vars) {
  isl_space *s = isl_space_set_alloc(p->isl, 0, (unsigned)vars.n);
  for (int k = 0; k < vars.n; k++)
    s = isl_space_set_dim_name(s, isl_dim_set, (unsigned)k, kiln_symbol_text(p->cx, vars.names[k]));
  return tuple ? isl_space_set_tuple_name(s, isl_dim_set, tuple) : s;
}

isl_pw_aff *kiln_poly_expr(const kiln_polyhedra *p, isl_space *space, kiln_poly_vars vars,
                           const kiln_expr *e) {
  bridge b = {.p = p, .space = space, .vars = vars};
  return value(&b, e);
}

isl_set *kiln_poly_domain(const kiln_polyhedra *p, isl_space *space, kiln_poly_vars vars,
                          const kiln_expr *const *extents, int n_guards,
                          const kiln_expr *const *guards, bool *out_exact) {
  bridge b = {.p = p, .space = space, .vars = vars, .exact = out_exact};
  isl_set *s = isl_set_universe(isl_space_copy(space));
  for (int k = 0; k < vars.n; k++) {
    isl_pw_aff *extent = value(&b, extents[k]);
    s = isl_set_lower_bound_si(s, isl_dim_set, (unsigned)k, 0);
    if (extent) s = isl_set_intersect(s, isl_pw_aff_lt_set(variable(&b, vars.names[k]), extent));
    else *out_exact = false;
  }
  for (int i = 0; i < n_guards; i++) {
    b.n_nodes = 0;
    s = isl_set_intersect(s, condition(&b, guards[i], false));
  }
  return s;
}

static isl_map *bound_axis(isl_map *m, int k, const int64_t *extents) {
  if (!extents) return m;
  m = isl_map_lower_bound_si(m, isl_dim_out, (unsigned)k, 0);
  isl_val *last = isl_val_int_from_si(isl_map_get_ctx(m), (long)extents[k] - 1);
  return isl_map_upper_bound_val(m, isl_dim_out, (unsigned)k, last);
}

isl_map *kiln_poly_access(const kiln_polyhedra *p, isl_set *domain, kiln_poly_vars vars,
                          const char *array, int rank, const kiln_expr *const *index,
                          const int64_t *extents, bool *out_exact) {
  isl_space *space = isl_set_get_space(domain);
  isl_space *to =
      isl_space_set_tuple_name(isl_space_set_alloc(p->isl, 0, (unsigned)rank), isl_dim_set, array);
  isl_map *m = isl_map_from_domain_and_range(isl_set_copy(domain), isl_set_universe(to));
  for (int k = 0; k < rank; k++) {
    isl_pw_aff *x = kiln_poly_expr(p, space, vars, index[k]);
    if (!x) {
      *out_exact = false;
      m = bound_axis(m, k, extents);
      continue;
    }
    // {point -> element : element[k] = x(point)}
    isl_map *axis = isl_map_from_pw_aff(x);
    axis = isl_map_insert_dims(axis, isl_dim_out, 0, (unsigned)k);
    axis = isl_map_add_dims(axis, isl_dim_out, (unsigned)(rank - k - 1));
    axis = isl_map_set_tuple_name(axis, isl_dim_out, array);
    m = isl_map_intersect(m, axis);
  }
  isl_space_free(space);
  return m;
}
