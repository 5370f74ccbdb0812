// A report on a model's contents, for `kiln inspect`.
#ifndef KILN_ONNX_REPORT_H
#define KILN_ONNX_REPORT_H

#include "ir/graph.h"

// Reports versions, producer, interface, parameters, named dimensions and counts of operators,
// including those in sub-graphs.
//
// gives: *out_text in the perm arena: text, or one JSON object when |json|
kiln_status kiln_onnx_report(kiln_ctx *cx, const kiln_graph *g, bool json, const char **out_text);

#endif
