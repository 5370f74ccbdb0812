// Polyhedra: the bridge from index expressions, conditions, domains and accesses to isl.
//
// A kiln_polyhedra holds one isl_ctx, which counts its operations: when the budget is spent, or
// memory is out, all that isl gives from then on is NULL (never a message, never an exit) and
// kiln_polyhedra_failed says so: the question is then not decided. Functions of isl take NULL and
// give NULL, so callers ask once, at the end. Marks follow isl: __isl_give is the caller's to free,
// __isl_keep stays the owner's.
//
// isl objects are not in an arena. Who allocates from the ctx while holding some loses them when
// memory is out (the out-of-memory handler frees the isl_ctx only), so gather what lives in arenas
// before.
//
// i64 arithmetic over variables is taken not to overflow, as in analysis/simplify.h.
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
  bool is_out_of_memory; // deinit calls the out-of-memory handler then
} kiln_polyhedra;

// Operations of isl that one question may cost: some tens of milliseconds.
enum { KILN_POLYHEDRA_BUDGET = 200000 };

// Makes the isl_ctx with a budget of |max_operations| in all (0: no limit) and registers it at the
// ctx's out-of-memory handler; deinit, which comes in reverse order of init, frees it. All isl
// objects must be freed before. |out| stays where it is until then. Memory that is out, in isl as
// well, is known at deinit at the latest, which then calls the handler.
void kiln_polyhedra_init(kiln_ctx *cx, uint64_t max_operations, kiln_polyhedra *out);
void kiln_polyhedra_deinit(kiln_polyhedra *p);
// Forgets errors, as after a budget that is spent.
void kiln_polyhedra_reset(kiln_polyhedra *p);
// Whether the budget is spent or isl met an error since init.
bool kiln_polyhedra_failed(const kiln_polyhedra *p);

// The variables that are the dimensions of a set, in order. Other variables make an expression not
// affine.
typedef struct kiln_poly_vars {
  int n;
  const kiln_symbol *names;
} kiln_poly_vars;

// The space of sets |tuple|[vars]; |tuple| may be NULL. Dimensions bear the variables' names.
__isl_give isl_space *kiln_poly_space(const kiln_polyhedra *p, const char *tuple,
                                      kiln_poly_vars vars);
// The value of |e| on |space|: sums, constant multiples, `/` and `%` by positive constants (isl's
// floor), min, max, abs, neg and SELECT of affine conditions. NULL when |e| is none of that, or
// depends on data.
__isl_give isl_pw_aff *kiln_poly_expr(const kiln_polyhedra *p, __isl_keep isl_space *space,
                                      kiln_poly_vars vars, const kiln_expr *e);
// The points of |space| with 0 <= vars[k] < extents[k] where all |guards| (comparisons, and, or,
// not) may hold; an extent may use variables. *out_exact becomes false, and is left alone
// otherwise, when a part of one is not affine: that part then may hold anywhere.
__isl_give isl_set *kiln_poly_domain(const kiln_polyhedra *p, __isl_keep isl_space *space,
                                     kiln_poly_vars vars, const kiln_expr *const *extents,
                                     int n_guards, const kiln_expr *const *guards, bool *out_exact);
// From the points of |domain| to the elements |array|[index] of a buffer that they may touch. An
// index that is not affine may be anything in [0, extents[k]), or anything at all where |extents|
// is NULL, and makes *out_exact false.
__isl_give isl_map *kiln_poly_access(const kiln_polyhedra *p, __isl_keep isl_set *domain,
                                     kiln_poly_vars vars, const char *array, int rank,
                                     const kiln_expr *const *index, const int64_t *extents,
                                     bool *out_exact);

#endif
