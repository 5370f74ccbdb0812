// Dependences of loop programs: whether two instances of statements touch one element of a buffer.
//
// An instance is a statement (a STORE, or the load of a loop's extent or of a condition) with
// values for the loops around it. What decides whether it runs are those loops' extents, the
// conditions around it, and the conditions of SELECTs around a load. Questions are conditions on
// the variables of two instances, answered by isl (analysis/polyhedra.h): exactly where all of it
// is affine, and otherwise on the safe side.
//
// needs: loops without INSTRs (target/instr.h expands them)
#ifndef KILN_ANALYSIS_DEPENDENCE_H
#define KILN_ANALYSIS_DEPENDENCE_H

#include "analysis/polyhedra.h"
#include "ir/loop.h"

// One access of a statement.
typedef struct kiln_touch {
  const kiln_loop *node; // the STORE; the FOR or IF whose extent or condition loads
  int buffer, rank;
  bool write;
  kiln_combiner combiner; // of a write
  const kiln_expr *const *index;
  int n_loops, n_conds;
  const kiln_loop *const *loops; // all FORs around it, the outermost first
  const kiln_expr *const *conds; // all that holds when it runs
} kiln_touch;
typedef struct kiln_touches {
  kiln_touch *data;
  int n, cap;
  bool too_deep; // some touches do not name all loops around them: nothing is to be concluded
} kiln_touches;

// The accesses to |buffer| (-1: to any) of the whole program, in the order of its text.
kiln_touches kiln_touches_of(kiln_ctx *cx, const kiln_loops *l, int buffer);
// The number of loops around the touch outside of |loop|; -1 when it is not in it.
int kiln_touch_depth(const kiln_touch *t, kiln_symbol loop);

// Two touches of one buffer, whose |n_shared| outermost loops are the same and have the same
// values.
typedef struct kiln_pair {
  const kiln_touch *a, *b;
  int n_shared;
} kiln_pair;
// |e|, an expression over the loops around |b|, as one over the variables of the pair: those of the
// loops that are not shared get another name.
const kiln_expr *kiln_pair_second(kiln_ctx *cx, const kiln_pair *p, const kiln_expr *e);

typedef enum kiln_dependence_verdict {
  KILN_NEVER,
  KILN_MEETS,    // the witness is the smallest: first the shared loops, then those of |a|, then |b|
  KILN_MAY_MEET, // something is not affine; the witness is what the rest allows
  KILN_UNDECIDED // isl's budget is spent
} kiln_dependence_verdict;
enum { KILN_MAX_WITNESS = 64 };
typedef struct kiln_meeting {
  kiln_dependence_verdict verdict;
  int64_t a[KILN_MAX_WITNESS], b[KILN_MAX_WITNESS]; // values of the loops around the two
  int64_t element[KILN_MAX_RANK + 4];
  bool is_known[KILN_MAX_RANK + 4]; // whether the axis is affine
} kiln_meeting;

// Whether two instances of the pair for which all |conds|, over the pair's variables, hold touch
// one element. A question that was asked before is answered by what isl said then, within a budget
// of its own.
kiln_dependence_verdict kiln_pair_judge(kiln_ctx *cx, const kiln_pair *pair, int n_conds,
                                        const kiln_expr *const *conds);
// The same with a witness, and isl asked again.
//
// cost: that of the smallest point, which is many times the verdict's
void kiln_pair_meet(const kiln_polyhedra *p, const kiln_pair *pair, int n_conds,
                    const kiln_expr *const *conds, kiln_meeting *out);
// The largest value of |e|, over the pair's variables, among instances that may touch one element.
// False when there is none, or it is not known.
bool kiln_pair_max(const kiln_polyhedra *p, const kiln_pair *pair, const kiln_expr *e,
                   int64_t *out);

#endif
