// Memory of a part's results, as the plan will lay them out. Inputs and outputs of the model
// (allocated by the caller), weights and kernels' workspaces are excluded.
#ifndef KILN_ORCHESTRATE_MEMORY_H
#define KILN_ORCHESTRATE_MEMORY_H

#include "orchestrate/prims.h"
#include "orchestrate/program.h"

// For prims [begin, end); lives in the scratch arena.
kiln_choice_memory kiln_prims_memory(kiln_ctx *cx, const kiln_program *p, const kiln_prims *prims,
                                     int begin, int end, double limit);

#endif
