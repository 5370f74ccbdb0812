// Errors of the reference interpreter's tensors that are carried from one program to another, as
// between the parts of a model with loops that are kept.
#ifndef KILN_ANALYSIS_KNOWN_ERRORS_H
#define KILN_ANALYSIS_KNOWN_ERRORS_H

#include "analysis/interpret.h"
#include "analysis/rounding_error.h"

// The errors of a tensor that was computed while they were tracked, or given; valid until the
// tensor is bound, computed again or freed.
kiln_errors kiln_interpreter_errors(const kiln_interpreter *in, int tensor);
// Gives a bound tensor of |n| elements errors of its own, which are copied.
//
// errors: KILN_NO_MEMORY
kiln_status kiln_interpreter_give_errors(kiln_interpreter *in, int tensor, int64_t n,
                                         kiln_errors errors);

#endif
