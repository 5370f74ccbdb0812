// Marks values inside a graph as additional outputs, for debugging.
#ifndef KILN_DRIVER_MARKS_H
#define KILN_DRIVER_MARKS_H

#include "ir/graph.h"

// Appends the values of these names to the outputs of |g|; "*": the results of all nodes. Present
// outputs are not repeated.
//
// errors: KILN_BAD_INPUT: there is no such value (suggests the nearest name), or it is not a tensor
kiln_status kiln_marks_add(kiln_ctx *cx, kiln_graph *g, size_t n, const char *const *names);

#endif
