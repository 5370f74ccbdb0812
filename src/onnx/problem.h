// The problems of one model: all are counted, the first ones are reported.
#ifndef KILN_ONNX_PROBLEM_H
#define KILN_ONNX_PROBLEM_H

#include "support/ctx.h"

enum { KILN_ONNX_MAX_TOLD = 20 };

typedef struct onnx_problems {
  kiln_ctx *cx;
  const char *path; // of the model
  int n;
  kiln_status worst; // BAD_INPUT takes precedence over UNSUPPORTED; KILN_OK if there are none
} onnx_problems;

// Counts a problem and, if it is among the first, reports it at |place|.
void kiln_onnx_problem(onnx_problems *problems, kiln_status status, const char *place,
                       const char *format, ...) KILN_PRINTF(4, 5);
// Ends the list and reports the number of further problems.
// gives: the worst status
kiln_status kiln_onnx_problems_end(const onnx_problems *problems);

#endif
