// Lookup in the table of operators, which the build makes from ops/.
#include "fission/registry.h"

#include <string.h>

static bool is_named(const kiln_op *op, const char *domain, const char *name) {
  if (op->name[0] != name[0] || strcmp(op->name, name) != 0) return false;
  const char *want = strcmp(domain, "ai.onnx") == 0 ? "" : domain;
  const char *have = strcmp(op->domain, "ai.onnx") == 0 ? "" : op->domain;
  return strcmp(want, have) == 0;
}

const kiln_op *kiln_op_find_in(const kiln_op *rows, const char *domain, const char *name,
                               int64_t opset) {
  for (const kiln_op *op = rows; op->name; op++)
    if (is_named(op, domain, name) && opset >= op->since && (op->until == 0 || opset <= op->until))
      return op;
  return NULL;
}

const kiln_op *kiln_op_find(const char *domain, const char *name, int64_t opset) {
  const kiln_op *op = NULL;
  for (const kiln_op *const *rows = kiln_ops; *rows && !op; rows++)
    op = kiln_op_find_in(*rows, domain, name, opset);
  return op;
}

int kiln_op_ranges(const char *domain, const char *name, kiln_text *out) {
  int n = 0;
  for (const kiln_op *const *rows = kiln_ops; *rows; rows++)
    for (const kiln_op *op = *rows; op->name; op++) {
      if (!is_named(op, domain, name)) continue;
      kiln_text_printf(out, "%s%d..", n++ ? ", " : "", op->since);
      if (op->until) kiln_text_printf(out, "%d", op->until);
    }
  return n;
}
