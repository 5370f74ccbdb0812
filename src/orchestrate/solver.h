// CBC, the solver of integer programs, opened when it is needed: what is compiled without it does
// not load it. Its log goes nowhere, and it leaves signals alone.
#ifndef KILN_ORCHESTRATE_SOLVER_H
#define KILN_ORCHESTRATE_SOLVER_H

#include "support/arena.h"

// minimise cost * x, low <= rows * x <= high, 0 <= x <= 1; x whole where |is_whole|.
typedef struct kiln_integer_program {
  int n_columns, n_rows;
  const double *cost, *low, *high; // [n_columns], [n_rows], [n_rows]
  const bool *is_whole;            // [n_columns]
  const int *begin, *rows;         // column j's entries are begin[j]..begin[j + 1]
  const double *entries;
  const double *upper; // [n_columns] ones
  double
      cutoff; // of a solution that is known: what costs more is not looked for; infinite: none is
  int nodes;
  double seconds;
  double
      work; // about as much as may be done, in the unit of kiln_solver_run: the tree has fewer nodes then; 0: no limit
} kiln_integer_program;

typedef enum kiln_solved {
  KILN_SOLVED_BEST,
  KILN_SOLVED_FOUND, // something, before a limit
  KILN_SOLVED_NOTHING,
  KILN_SOLVED_IMPOSSIBLE
} kiln_solved;

bool kiln_solver_is_there(void);
// gives:   out_x[n_columns]; *out_bound, below which no solution costs; *out_work, the simplex
//          iterations and some for each column, times the entries that each goes through, which
//          follows time, and is the same every time
// needs:   kiln_solver_is_there
// threads: one at a time solves; others wait
kiln_solved kiln_solver_run(const kiln_integer_program *p, double *out_x, double *out_bound,
                            double *out_work);

#endif
