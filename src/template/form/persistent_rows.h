// Persistent (register-resident) row reductions: the canonical form of softmax and of
// normalizations whose rows the threads' registers can hold.
//
// All statements share the dims of the rows. A map of elements has one dim more, a reduction one
// reduction dim of the same extent, and a map of rows none. A load along the row that several
// statements share becomes a statement of its own, X(i, j) = x(.., j), so that each element is read
// from memory once.
#ifndef KILN_TEMPLATE_FORM_PERSISTENT_ROWS_H
#define KILN_TEMPLATE_FORM_PERSISTENT_ROWS_H

#include "tile/query.h"

// The length of |p|'s rows if it has the form; else 0.
int64_t kiln_persistent_row_length(const kiln_program *p);
// Brings |p| into the form if it has such rows: adds the statements X (kiln_match).
bool kiln_persistent_rows_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);

#endif
