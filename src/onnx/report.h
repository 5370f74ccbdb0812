// What a model holds, for people and for programs: the report of `kiln inspect`.
#ifndef KILN_ONNX_REPORT_H
#define KILN_ONNX_REPORT_H

#include "ir/graph.h"

// Reports versions, producer, interface, parameters, named dimensions and the operators by number.
// Operators of sub-graphs are counted, too.
//
// gives: *out_text in the perm arena: text, or one JSON object when |json|
kiln_status kiln_onnx_report(kiln_ctx *cx, const kiln_graph *g, bool json, const char **out_text);

#endif
