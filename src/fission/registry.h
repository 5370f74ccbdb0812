// What fission asks of the table of operators beyond kiln_op_find, and folding after a node.
#ifndef KILN_FISSION_REGISTRY_H
#define KILN_FISSION_REGISTRY_H

#include "fission/lower.h"

// The row of |rows|, which end with one without a name; NULL when there is none.
const kiln_op *kiln_op_find_in(const kiln_op *rows, const char *domain, const char *name,
                               int64_t opset);
// Appends the opset ranges of the operator to |out|; gives their number, 0 when it is unknown.
int kiln_op_ranges(const char *domain, const char *name, kiln_text *out);

// After |lw| was lowered with the program at n_stmts statements and n_tensors tensors: replaces
// outputs that are known now by constants, and gives small integer outputs their values.
//
// keeps: what was there before the node; the node's own statements go when no output needs them
kiln_status kiln_fission_fold(kiln_lower *lw, int n_stmts, int n_tensors);

#endif
