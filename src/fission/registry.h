// Internal lookups in the table of operators, and folding after a node.
#ifndef KILN_FISSION_REGISTRY_H
#define KILN_FISSION_REGISTRY_H

#include "fission/lower.h"

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

#endif
