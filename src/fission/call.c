// Lowering a node by the row of another operator.
#include "fission/notation.h"
#include "fission/traversal.h"

#include <string.h>

bool kiln_lower_is(const kiln_lower *lw, const char *domain, const char *name) {
  const char *have = kiln_symbol_text(lw->cx, lw->node->domain);
  return strcmp(strcmp(have, "ai.onnx") == 0 ? "" : have, domain) == 0 &&
         strcmp(kiln_symbol_text(lw->cx, lw->node->op), name) == 0;
}

kiln_status kiln_lower_call(kiln_lower *lw, const kiln_lower_callee *c, int n_outputs,
                            kiln_tensor **outputs) {
  kiln_arena *arena = &lw->cx->perm;
  const kiln_op *op = kiln_op_find(c->domain, c->op, c->opset);
  KILN_ASSERT(op);
  kiln_node *n = KILN_NEW(arena, kiln_node);
  *n = (kiln_node){.id = lw->node->id,
                   .name = lw->node->name,
                   .op = kiln_symbol_of(lw->cx, c->op),
                   .domain = kiln_symbol_of(lw->cx, c->domain),
                   .opset = c->opset,
                   .n_inputs = c->n_inputs,
                   .n_outputs = n_outputs,
                   .outputs = KILN_NEW_ARRAY(arena, int, n_outputs),
                   .n_attrs = c->n_attrs,
                   .attrs = KILN_NEW_ARRAY(arena, kiln_attr, c->n_attrs)};
  int named = 0; // intermediate statements are named after the node's first output
  while (named + 1 < lw->node->n_outputs && lw->node->outputs[named] < 0) named++;
  for (int i = 0; i < n_outputs; i++) n->outputs[i] = lw->node->outputs[named];
  for (int i = 0; i < c->n_attrs; i++) n->attrs[i] = c->attrs[i];
  kiln_lower inner = *lw;
  inner.node = n;
  inner.n_inputs = c->n_inputs;
  inner.inputs = KILN_NEW_ARRAY(arena, kiln_tensor *, c->n_inputs);
  for (int i = 0; i < c->n_inputs; i++) inner.inputs[i] = c->inputs[i];
  inner.n_outputs = n_outputs;
  inner.outputs = KILN_NEW_ARRAY(arena, kiln_tensor *, n_outputs);
  KILN_TRY(op->lower ? op->lower(&inner) : kiln_tc_lower(&inner, op));
  for (int i = 0; i < n_outputs; i++) outputs[i] = inner.outputs[i];
  return KILN_OK;
}
