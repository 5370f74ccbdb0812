// Collects the problems of a model, so that all are reported at once.
#include "onnx/problem.h"

#include <stdarg.h>
#include <stdio.h>

void kiln_onnx_problem(onnx_problems *problems, kiln_status status, const char *place,
                       const char *format, ...) {
  char text[1024]; // longer subjects are truncated
  if (problems->worst == KILN_OK || problems->worst == KILN_UNSUPPORTED) problems->worst = status;
  if (++problems->n > KILN_ONNX_MAX_TOLD) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  (void)KILN_FAIL(problems->cx->diag, status, place, "%s", text);
}

kiln_status kiln_onnx_problems_end(const onnx_problems *problems) {
  if (problems->n > KILN_ONNX_MAX_TOLD)
    return KILN_FAIL(problems->cx->diag, problems->worst, problems->path,
                     "%d problems in all, of which the first %d are listed", problems->n,
                     KILN_ONNX_MAX_TOLD);
  return problems->worst;
}
