// Polyhedra: the bridge from index expressions, conditions, domains and accesses to isl.
//
// A kiln_polyhedra holds one isl_ctx, which counts its operations. After the budget is spent or
// memory is out, every isl function gives NULL (no message, no exit) and kiln_polyhedra_failed is
// true: the query is undecided. isl functions accept NULL and give NULL, so callers check once, at
// the end. Marks follow isl: __isl_give is the caller's to free, __isl_keep stays the owner's.
//
// isl objects are not in an arena. An arena allocation that fails while isl objects are held leaks
// them (the out-of-memory handler frees the isl_ctx only), so allocate from arenas first.
//
// i64 arithmetic over variables is assumed not to overflow, as in analysis/simplify.h.
#ifndef KILN_ANALYSIS_POLYHEDRA_H
#define KILN_ANALYSIS_POLYHEDRA_H

#include "ir/expr.h"

#include <isl/aff.h>
#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/val.h>

typedef struct kiln_polyhedra {
  kiln_ctx *cx;
  isl_ctx *isl;
  bool is_out_of_memory; // deinit then calls the out-of-memory handler
} kiln_polyhedra;

// isl operations that one query may cost: some tens of milliseconds.
enum { KILN_POLYHEDRA_BUDGET = 200000 };

// Makes the isl_ctx with a budget of |max_operations| in all (0: no limit) and registers it with
// the ctx's out-of-memory handler; deinit, called in reverse order of init, frees it. Free all isl
// objects before. |out| must not move until then. If memory ran out, also inside isl, deinit calls
// the handler.
void kiln_polyhedra_init(kiln_ctx *cx, uint64_t max_operations, kiln_polyhedra *out);
void kiln_polyhedra_deinit(kiln_polyhedra *p);
// Clears errors, as after a budget that was spent.
void kiln_polyhedra_reset(kiln_polyhedra *p);
// Whether the budget is spent or isl met an error since init or reset.
bool kiln_polyhedra_failed(const kiln_polyhedra *p);

// The variables that are the dimensions of a set, in order. An expression with other variables is
// not affine.
typedef struct kiln_poly_vars {
  int n;
  const kiln_symbol *names;
} kiln_poly_vars;

// The space of sets |tuple|[vars]; |tuple| may be NULL. Dimensions bear the variables' names.
__isl_give isl_space *kiln_poly_space(const kiln_polyhedra *p, const char *tuple,
                                      kiln_poly_vars vars);
// The value of |e| on |space|: sums, constant multiples, `/` and `%` by positive constants (isl's
// floor), min, max, abs, neg and SELECT of affine conditions. NULL for anything else and for loads.
__isl_give isl_pw_aff *kiln_poly_expr(const kiln_polyhedra *p, __isl_keep isl_space *space,
                                      kiln_poly_vars vars, const kiln_expr *e);
// The points of |space| with 0 <= vars[k] < extents[k] at which all |guards| (comparisons, and, or,
// not) may hold; an extent may use variables. A part that is not affine counts as true, and sets
// *out_exact to false; otherwise *out_exact is left alone.
__isl_give isl_set *kiln_poly_domain(const kiln_polyhedra *p, __isl_keep isl_space *space,
                                     kiln_poly_vars vars, const kiln_expr *const *extents,
                                     int n_guards, const kiln_expr *const *guards, bool *out_exact);
// The map from points of |domain| to the elements |array|[index] of a buffer that they may access.
// An index that is not affine may be anything in [0, extents[k]), or any integer if |extents| is
// NULL, and sets *out_exact to false.
__isl_give isl_map *kiln_poly_access(const kiln_polyhedra *p, __isl_keep isl_set *domain,
                                     kiln_poly_vars vars, const char *array, int rank,
                                     const kiln_expr *const *index, const int64_t *extents,
                                     bool *out_exact);

#endif
