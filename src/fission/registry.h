// Internal lookups in the table of operators, and folding after a node.
#ifndef KILN_FISSION_REGISTRY_H
#define KILN_FISSION_REGISTRY_H

#include "fission/data_dependent.h"

// The matching row of |rows|, a table ended by a row without a name; NULL if there is none.
const kiln_op *kiln_op_find_in(const kiln_op *rows, const char *domain, const char *name,
                               int64_t opset);
// Appends the opset ranges of the operator to |out|; gives their number, 0 for an unknown operator.
int kiln_op_ranges(const char *domain, const char *name, kiln_text *out);

// Folds after |lw| was lowered, the program having had n_stmts statements and n_tensors tensors
// before: known outputs become constants, and small integer outputs get symbolic values.
//
// keeps: everything from before the node; the node's own statements are removed if no output needs
// them
kiln_status kiln_fission_fold(kiln_lower *lw, int n_stmts, int n_tensors);
// The element |at| of the integer tensor |t|: a number, or an expression of named dimensions and
// values of the run (fission/data_dependent.h).
const kiln_expr *kiln_fission_value_at(kiln_lower *lw, const kiln_tensor *t, int64_t at,
                                       kiln_value_kind kind);

#endif
