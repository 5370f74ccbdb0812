// Dependences of loop programs: whether instances of two statements access one element of a buffer.
//
// An instance is a statement (a STORE, or the load of a loop's extent or of a condition) with
// values for the loops around it. It runs if those loops' extents, the conditions around it, and
// for a load the conditions of SELECTs around it allow. A query is a conjunction of conditions on
// the variables of two instances, which isl decides (analysis/polyhedra.h): exactly if all of it is
// affine, conservatively otherwise.
//
// needs: loops without INSTRs (target/instr.h expands them)
#ifndef KILN_ANALYSIS_DEPENDENCE_H
#define KILN_ANALYSIS_DEPENDENCE_H

#include "analysis/polyhedra.h"
#include "ir/loop.h"

// One access of a statement.
typedef struct kiln_dependence_access {
  const kiln_loop *node; // the STORE; the FOR or IF whose extent or condition loads
  int buffer, rank;
  bool write;
  kiln_combiner combiner; // of a reducing write
  const kiln_expr *const *index;
  int n_loops, n_conds;
  const kiln_loop *const *loops; // all FORs around it, the outermost first
  const kiln_expr *const *conds; // conjunction under which the access runs
} kiln_dependence_access;
typedef struct kiln_dependence_accesses {
  kiln_dependence_access *data;
  int n, cap;
  bool too_deep; // some accesses do not name all loops around them: conclude nothing
} kiln_dependence_accesses;

// All accesses to |buffer| (-1: to any) in program order.
kiln_dependence_accesses kiln_dependence_accesses_of(kiln_ctx *cx, const kiln_loops *l, int buffer);
// The number of loops around the access outside of |loop|; -1 if it is not inside |loop|.
int kiln_dependence_access_depth(const kiln_dependence_access *t, kiln_symbol loop);

// Two accesses of one buffer whose |n_shared| outermost loops are the same, at the same iteration.
typedef struct kiln_access_pair {
  const kiln_dependence_access *a, *b;
  int n_shared;
} kiln_access_pair;
// |e|, an expression over the loops around |b|, in variables of the pair: loops that are not shared
// are renamed, so that i of |a| and i of |b| differ.
const kiln_expr *kiln_access_pair_second(kiln_ctx *cx, const kiln_access_pair *p,
                                         const kiln_expr *e);

typedef enum kiln_dependence_verdict {
  KILN_NEVER,
  KILN_MEETS,    // the witness is lexicographically smallest: shared loops, then those of |a|, then
                 // |b|
  KILN_MAY_MEET, // some condition is not affine; the witness satisfies the others
  KILN_UNDECIDED // isl's budget is spent
} kiln_dependence_verdict;
enum { KILN_MAX_WITNESS = 64 };
typedef struct kiln_dependence_witness {
  kiln_dependence_verdict verdict;
  int64_t a[KILN_MAX_WITNESS], b[KILN_MAX_WITNESS]; // values of the loops around the two
  int64_t element[KILN_MAX_RANK + 4];
  bool is_known[KILN_MAX_RANK + 4]; // whether the axis is affine
} kiln_dependence_witness;

// Whether two instances of the pair that satisfy all |conds| (over the pair's variables) access one
// element. Verdicts are cached; each query has a budget of its own.
kiln_dependence_verdict kiln_access_pair_verdict(kiln_ctx *cx, const kiln_access_pair *pair,
                                                 int n_conds, const kiln_expr *const *conds);
// Whether the conditions never hold together, where each variable is from 0 to below its extent;
// false where that is not decided. Cached, too.
bool kiln_conditions_never_hold(kiln_ctx *cx, int n_vars, const kiln_symbol *vars,
                                const int64_t *extents, int n_conds, const kiln_expr *const *conds);
// kiln_access_pair_verdict with a witness; not cached.
//
// cost: finding the smallest point takes many times as long as the verdict
void kiln_access_pair_witness(const kiln_polyhedra *p, const kiln_access_pair *pair, int n_conds,
                              const kiln_expr *const *conds, kiln_dependence_witness *out);
// The largest value of |e| (over the pair's variables) among instances that may access one element.
// False if there are none or it is unknown.
bool kiln_access_pair_max(const kiln_polyhedra *p, const kiln_access_pair *pair, const kiln_expr *e,
                          int64_t *out);

#endif
