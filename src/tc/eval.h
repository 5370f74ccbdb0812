// Expressions of the notation to scalar expressions with types.
#ifndef KILN_TC_EVAL_H
#define KILN_TC_EVAL_H

#include "tc/env.h"
#include "tc/infer.h"

// A value. Weak ones (numbers, sizes, indices; i64, f64) take the type of the other operand.
typedef struct kiln_tc_value {
  const kiln_expr *e; // NULL: the string s
  kiln_symbol s;
  bool weak;
} kiln_tc_value;

// An index of the statement, with one or (for a pack) several variables.
typedef struct kiln_tc_axis {
  kiln_symbol name;
  bool pack;
  const char *at;
  int rank;
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *extents[KILN_MAX_RANK]; // of a pack, after broadcasting
} kiln_tc_axis;

// When an access contributes to range inference: always; if it is in a branch of ?:, after the
// others; left sides last, for ranges that are still unknown.
typedef enum kiln_tc_turn { KILN_TC_ALWAYS, KILN_TC_IN_BRANCH, KILN_TC_ON_LEFT } kiln_tc_turn;

// A subscript with the bounds of its axis, for inference and for the proof that it is in range.
typedef struct kiln_tc_access {
  kiln_tc_bound bound;
  kiln_tc_turn turn;
  const kiln_expr *guard; // conditions of the branches around it; NULL: none
  const char *at;         // the subscript
  const char *access;     // with its tensor; NULL: a left side
} kiln_tc_access;

// A data-dependent subscript: it is clamped, and checked at run time.
typedef struct kiln_tc_loose {
  const kiln_expr *e, *lo, *extent; // lo <= e < lo + extent
  const kiln_expr *guard;           // as above
  int axis;
  const char *at, *access;
} kiln_tc_loose;

// The value of a where clause's name, under a guard.
typedef struct kiln_tc_let {
  int clause;
  const kiln_expr *guard;
  kiln_tc_value value;
} kiln_tc_let;

typedef struct kiln_tc_eval {
  kiln_tc_env *env;
  kiln_tc_scope scope;
  int n_axes;
  kiln_tc_axis *axes;
  KILN_VEC(kiln_tc_access) accesses;
  KILN_VEC(kiln_tc_loose) loose;
  const kiln_expr *guard; // of the current branch
  KILN_VEC(kiln_tc_let) lets;
  int from_right; // while packs are evaluated for one axis: its number, counted from the right from
                  // 1; else 0
  const kiln_tc_value *frame; // [4] values of a, b, c, d in a composed function; else NULL
} kiln_tc_eval;

int kiln_tc_find_axis(const kiln_tc_eval *ev, kiln_symbol name); // -1: no index of that name

kiln_status kiln_tc_evaluate(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out);
// A static expression as an integer expression over sizes.
kiln_status kiln_tc_evaluate_size(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_expr **out);
// A static condition; *out is whether it holds.
kiln_status kiln_tc_evaluate_condition(kiln_tc_eval *ev, const kiln_tc_expr *e, bool *out);
// Whether |v| can be stored as |t| without an explicit cast; *out is the converted value.
bool kiln_tc_convert(kiln_ctx *cx, const kiln_tc_value *v, kiln_dtype t, const kiln_expr **out);

// Calls |visit| for each access to a present tensor in the evaluation of |e|; does not follow names
// of the where clause.
typedef kiln_status (*kiln_tc_visit)(kiln_tc_eval *ev, const kiln_tc_expr *access,
                                     const kiln_tc_tensor *t);
kiln_status kiln_tc_visit_accesses(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_visit visit);

// The matching of an access' arguments with the axes of its tensor.
typedef struct kiln_tc_match {
  int n; // axes of the tensor
  struct {
    const kiln_tc_expr *arg; // the subscript, or the pack
    int axis, element;       // for a pack: index of the statement's axis, and of its variable
    bool broadcast;          // a pack whose axis of extent 1 is broadcast
  } of[KILN_MAX_RANK];
} kiln_tc_match;
// needs: the ranks of all packs are known. errors: dimensions that do not fit
kiln_status kiln_tc_match_access(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_tc_tensor *t,
                                 kiln_tc_match *out);
// Whether each argument matches one declared dimension of the same kind (single or pack).
bool kiln_tc_is_structured(const kiln_tc_scope *s, const kiln_tc_expr *access,
                           const kiln_tc_tensor *t);

#endif
