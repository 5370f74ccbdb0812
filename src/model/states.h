// States: outputs of a run that are inputs of the next one (kiln_compile_options.states).
#ifndef KILN_MODEL_STATES_H
#define KILN_MODEL_STATES_H

#include "model/model.h"

// Finds the ports of the pairs "INPUT=OUTPUT"; "auto": all pairs whose names differ in "past" and
// "present" only, as exporters of decoders call the cache before and after a step.
//
// gives:  m->states
// errors: KILN_BAD_INPUT: no such port, a port in two pairs, or types or extents that differ;
//         KILN_UNSUPPORTED: the target is a GPU, or the output's extents are data-dependent
kiln_status kiln_states_find(kiln_ctx *cx, kiln_model *m, size_t n, const char *const *texts);

#endif
