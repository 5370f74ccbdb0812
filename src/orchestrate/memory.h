// What the results of a part's prims take in memory, as the plan lays them out: inputs, outputs and
// weights of the model are the caller's, or the module's, and do not count, nor do workspaces that
// kernels keep for themselves.
#ifndef KILN_ORCHESTRATE_MEMORY_H
#define KILN_ORCHESTRATE_MEMORY_H

#include "orchestrate/prims.h"
#include "orchestrate/program.h"

// Of prims |begin| to |end|; lives in the scratch arena.
kiln_choice_memory kiln_prims_memory(kiln_ctx *cx, const kiln_program *p, const kiln_prims *prims,
                                     int begin, int end, double limit);

#endif
