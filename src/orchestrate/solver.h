// CBC, a solver of integer programs, loaded when it is first needed. Its log is suppressed and
// signal handlers are restored.
#ifndef KILN_ORCHESTRATE_SOLVER_H
#define KILN_ORCHESTRATE_SOLVER_H

#include "support/arena.h"

// Minimise cost * x subject to low <= rows * x <= high, 0 <= x <= 1; x integer where |is_whole|.
typedef struct kiln_integer_program {
  int n_columns, n_rows;
  const double *cost, *low, *high; // [n_columns], [n_rows], [n_rows]
  const bool *is_whole;            // [n_columns]
  const int *begin, *rows;         // column j has entries [begin[j], begin[j + 1])
  const double *entries;
  const double *upper; // [n_columns] all 1
  double
      cutoff; // cost of a known solution: only cheaper ones are searched; infinite: none is known
  int nodes;
  double seconds;
  double work; // approximate limit of work, in the unit of kiln_solver_run; lowers |nodes|; 0: no
               // limit
} kiln_integer_program;

typedef enum kiln_solved {
  KILN_SOLVED_BEST,
  KILN_SOLVED_FOUND, // a solution, but a limit was hit
  KILN_SOLVED_NOTHING,
  KILN_SOLVED_IMPOSSIBLE
} kiln_solved;

bool kiln_solver_is_there(void);
// gives:   out_x[n_columns]; *out_bound, a lower bound of the cost; *out_work, simplex iterations
// (plus an estimate for the root) times matrix entries: proportional to time, but reproducible
// needs:   kiln_solver_is_there
// threads: one at a time solves; others wait
kiln_solved kiln_solver_run(const kiln_integer_program *p, double *out_x, double *out_bound,
                            double *out_work);

#endif
