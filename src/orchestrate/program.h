// The binary program of orchestration: choose kernels so that all needed results are stored, at the
// least cost.
//
// Variable u: a kernel runs. Variable y: a prim's result is stored.
//     minimise  sum of cost * u    subject to
//     y = 1                        for every prim that is needed,
//     y <= sum of u                over the kernels that store the prim's result,
//     u <= y                       for every result that a kernel reads; for kernels of which only
//                                  one may run, as they store the same result, the sum of u,
//     sum of u >= 1                over the kernels that execute a prim, for every live prim:
//                                  implied for integers, but it tightens the relaxation,
//     sum of bytes * u <= limit    if there is a limit,
//     sum of u <= 1                over the kernels that store a prim's result, if it may be stored
//                                  only once.
// A prim may be executed by several kernels. Kernels with several results may depend on each other
// cyclically: such cycles are cut off and the program is solved again.
// source: Korch (ASPLOS'24), section 4.2, and the rows for prims and for cycles
#ifndef KILN_ORCHESTRATE_PROGRAM_H
#define KILN_ORCHESTRATE_PROGRAM_H

#include "support/bits.h"
#include "support/ctx.h"

typedef struct kiln_choice_kernel {
  double cost;
  const kiln_bits *prims, *takes, *results; // |results| are nonempty
} kiln_choice_kernel;

// Live ranges of results: each from the kernel that stores it to the last one that reads it; needed
// ones to the end.
typedef struct kiln_choice_memory {
  double limit;        // on peak memory; 0: none
  const double *bytes; // [n_prims] size of each result
  const int *home;     // [n_prims] the prim whose result contains this one, in whose size it is
                       // counted; or itself
  double passing;      // bytes that are live throughout
  int n_before;
  const struct kiln_choice_before {
    double bytes; // of a result that is live at the beginning
    const kiln_bits *readers;
  } * before;
} kiln_choice_memory;

typedef struct kiln_choice {
  int n_prims, n_kernels;
  const kiln_choice_kernel *kernels;
  const kiln_bits *needed, *live; // prims whose results must be stored; their ancestors, and they
  int n_first, *first;            // initial kernels, which store all needed results
  const kiln_choice_memory
      *memory;       // NULL: peak memory is not computed; with a limit, kernels run in order of
                     // their last prims
  const char *place; // prefix of messages; NULL: none
  bool stores_once;  // no result is stored by two kernels
  int nodes;         // most nodes of the solver's tree: a reproducible limit
  double seconds;    // time limit of each solution; 0: none
  double work;       // solver work after which no new solution is started; 0: no limit
} kiln_choice;

typedef struct kiln_choice_solution {
  int n, *kernels;    // in an executable order
  double cost, bound; // |bound| is a lower bound of any choice's cost
  int n_cycles;       // cycles cut off
  double work;        // solver work (solver.h)
  bool is_limited;    // the solver hit a limit before proving optimality
  bool is_first;      // no better choice than |first| was found
} kiln_choice_solution;

// Solves the program with libCbcSolver, which is loaded when it is first needed.
//
// gives:  *out in cx->perm: if the solver hit a limit, the best choice found, and the bound it
//         proved
// errors: KILN_UNSUPPORTED: no solver; KILN_BAD_INPUT: |first| does not store all needed results,
//         or no choice fits the memory limit
kiln_status kiln_choice_solve(kiln_ctx *cx, const kiln_choice *c, kiln_choice_solution *out);
// Peak memory of results when kernels[0..n) run in that order.
//
// needs: c->memory
double kiln_choice_peak(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels);
// Orders kernels[0..n) so that each runs after the kernels that store its operands.
//
// gives: how many can run; they come first in |io|
int kiln_choice_order(kiln_ctx *cx, const kiln_choice *c, int n, int *io);
// The additional cost if |other| replaces kernels[at] in the choice kernels[0..n): kernels no
// longer needed are removed, and missing results are stored by the cheapest kernels that can run.
//
// needs: |kernels| in an executable order
// gives: infinite if a missing result takes more than one kernel, or |other| has no cost
double kiln_choice_extra_cost(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels, int at,
                              int other);

#endif
