// The binary program of orchestration: which kernels to run, so that the results that are needed
// are there at the least cost.
//
// A variable u says whether a kernel runs, y how much of a prim's result is there in memory:
//     minimise  sum of cost * u    with
//     y = 1                        for every prim that is needed,
//     y <= sum of u                over the kernels that store the prim's result,
//     u <= y                       for every result that a kernel takes from memory; of kernels of
//                                  which one may run, as they store the same, the sum of u,
//     sum of u >= 1                over the kernels that execute a prim, for every live prim:
//     follows from
//                                  the others for whole numbers, and makes the bound of fractions
//                                  tight,
//     sum of bytes * u <= limit    if there is a limit,
//     sum of u <= 1                over the kernels that store a prim's result, if only one may.
// A prim may be executed by several kernels. Kernels of several results could wait for each other;
// what cannot be put in order is cut off, and the program solved again.
//
// source: Korch (ASPLOS'24), section 4.2, and the rows for prims and for cycles
#ifndef KILN_ORCHESTRATE_PROGRAM_H
#define KILN_ORCHESTRATE_PROGRAM_H

#include "support/bits.h"
#include "support/ctx.h"

typedef struct kiln_choice_kernel {
  double cost;
  const kiln_bits *prims, *takes, *results; // |results| are not empty
} kiln_choice_kernel;

// What results take in memory: each from the kernel that stores it to the last one that takes it,
// what is needed to the end.
typedef struct kiln_choice_memory {
  double limit;        // of what is there at once; 0: none
  const double *bytes; // [n_prims] of a result
  const int *home; // [n_prims] the prim in whose result it lies, whose bytes count; itself: in none
  double passing;  // bytes that are there all the time
  int n_before;
  const struct kiln_choice_before {
    double bytes; // of a result that is there at the beginning
    const kiln_bits *readers;
  } * before;
} kiln_choice_memory;

typedef struct kiln_choice {
  int n_prims, n_kernels;
  const kiln_choice_kernel *kernels;
  const kiln_bits *needed, *live; // whose results must be there; what these follow from, and they
  int n_first, *first;            // kernels that give all that is needed, to begin with
  const kiln_choice_memory
      *memory;       // NULL: nobody asks; with a limit, kernels run in order of their last prims
  const char *place; // for messages; NULL: none
  bool stores_once;  // no result is stored by two kernels
  int nodes;         // of the solver's tree, at most; a limit by which the solution stays the same
  double seconds;    // of each solution, at most; 0: as long as it takes
  double work;       // of the solver, after which nothing is solved again; 0: no limit
} kiln_choice;

typedef struct kiln_choice_solution {
  int n, *kernels;    // in an order in which they can run
  double cost, bound; // of them; no choice costs less than |bound|
  int n_cycles;       // that were cut off
  double work;        // of the solver (solver.h)
  bool is_limited;    // the solver ended before it had proved that there is nothing better
  bool is_first;      // nothing better than |first| was found
} kiln_choice_solution;

// The solver (libCbcSolver) is opened when it is needed.
//
// gives:  *out in cx->perm. Where the solver ends before it has proved that there is nothing
//         better: the best that it has found, with the bound that it has proved
// errors: KILN_UNSUPPORTED: no solver; KILN_BAD_INPUT: |first| does not give all that is needed, or
//         no choice that fits the memory was found
kiln_status kiln_choice_solve(kiln_ctx *cx, const kiln_choice *c, kiln_choice_solution *out);
// What is in memory at once, at most, as kernels[0..n) run in that order.
//
// needs: c->memory
double kiln_choice_peak(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels);
// An order in which kernels[0..n) can run: each after what it takes is stored.
//
// gives: how many can; these come first in |io|
int kiln_choice_order(kiln_ctx *cx, const kiln_choice *c, int n, int *io);
// What the choice of kernels[0..n) costs more if |other| takes the place of kernels[at], kernels
// that are needed no more are left out, and what is missing then is stored by the cheapest kernels
// that can run.
//
// needs: |kernels| in an order in which they can run
// gives: infinite: it takes more than one kernel to store something that is missing, or |other| has
//        no cost
double kiln_choice_more(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels, int at,
                        int other);

#endif
