// Loops that are kept: a program with regions that repeat.
//
// While a graph is lowered, all statements are in one program; a loop that is not unrolled has its
// body in it once, and a region says which statements these are and what goes in and out. It is
// then divided into parts (model/parts.h).
#ifndef KILN_FISSION_FLOW_KEPT_H
#define KILN_FISSION_FLOW_KEPT_H

#include "fission/data_dependent.h"

// A state, as tensors of the program: before the loop, in an iteration, behind it, and the result.
typedef struct kiln_loop_state {
  int initial, in, next, result; // result -1: none
} kiln_loop_state;

// A row of a tensor along its first axis, for each iteration.
typedef struct kiln_loop_row {
  int whole, row;
  bool backwards, is_output;
} kiln_loop_row;

// A result of an If, and what one of its branches gives for it.
typedef struct kiln_branch_result {
  int source, result;
} kiln_branch_result;

typedef enum kiln_kept_kind { KILN_KEPT_LOOP, KILN_KEPT_THEN, KILN_KEPT_ELSE } kiln_kept_kind;

// A loop, or a branch of an If, of which only one runs.
typedef struct kiln_kept_loop {
  kiln_kept_kind kind;
  int pair;                             // of a branch: the number of its If
  int decide;                           // of a branch: the tensor of the condition
  KILN_VEC(kiln_branch_result) results; // of a branch
  const char *place;                    // the node
  int first, end;                       // statements of the body, with those of inner regions
  int count;                            // tensor: iterations, i64; -1: |most|
  int condition; // the state that says whether another iteration runs; -1: none
  int iteration; // tensor: the number of the iteration; -1: not used
  int made;      // tensor: the iterations that were made; -1: not used
  int64_t most;  // iterations
  bool is_limit; // more is an error
  KILN_VEC(kiln_loop_state) states;
  KILN_VEC(kiln_loop_row) rows;
} kiln_kept_loop;

typedef struct kiln_kept_loops {
  KILN_VEC(kiln_kept_loop) all; // inner ones before outer ones, THEN before ELSE
  int n_ifs;
} kiln_kept_loops;

// What a program with regions is yet to be given: counts are variables in it, and checks have no
// output.
typedef struct kiln_unresolved {
  kiln_data_dependent_extents counts;
  kiln_checks checks;
  kiln_kept_loops regions;
} kiln_unresolved;

#endif
