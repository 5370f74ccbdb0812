// Persistent (register-resident) row reductions: the canonical form of softmax and of
// normalizations whose rows threads can hold.
//
// All statements share the dims of the rows. Beside these a map has one more, a sum one reduction
// dim, of the same extent, and what is a number a row has none. What several statements read along
// the row becomes a statement of its own, X(i, j) = x(.., j), so that each element is read from
// memory once.
#ifndef KILN_TEMPLATE_FORM_HELD_H
#define KILN_TEMPLATE_FORM_HELD_H

#include "tile/query.h"

// The length of |p|'s rows if it has the form, else 0.
int64_t kiln_held_row(const kiln_program *p);
// Adds these statements to |p| where it has such rows; a match of every kernel (kiln_match).
bool kiln_held_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);

#endif
