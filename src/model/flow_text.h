// The steps of a flow (runtime/flow/flow.h) as text.
#ifndef KILN_MODEL_FLOW_TEXT_H
#define KILN_MODEL_FLOW_TEXT_H

#include "runtime/flow/flow.h"
#include "support/text.h"

// Prints the steps, as in
//   2 loop of node 3 "scan" (Loop): count buffer 4, exchanges buffer 5 and buffer 6
void kiln_flow_print(const kiln_flow *f, kiln_text *out);

#endif
