// Marked values become outputs of the graph, before any pass runs.
#include "driver/marks.h"
#include "model/model.h"
#include "schedule/nearest.h"

#include <string.h>

static const char *name_of(kiln_ctx *cx, const kiln_graph *g, int value) {
  return kiln_symbol_text(cx, g->values[value]->name);
}

static kiln_status refuse(kiln_ctx *cx, const kiln_graph *g, const char *name) {
  kiln_nearest near = {.word = name};
  for (int i = 0; i < g->n_values; i++)
    if (g->values[i]->producer >= 0) kiln_nearest_offer(&near, name_of(cx, g, i));
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                   "mark: must be a value that a node of the model computes, got \"%s\"%s", name,
                   kiln_nearest_text(cx, &near));
}

// Marks the values that are outputs, by id.
static bool *find_outputs(kiln_ctx *cx, const kiln_graph *g) {
  bool *is_output = KILN_NEW_ARRAY(&cx->scratch, bool, g->n_values);
  for (int i = 0; i < g->n_outputs; i++) is_output[g->outputs[i]] = true;
  return is_output;
}

static void add(kiln_graph *g, bool *is_output, int value) {
  if (is_output[value]) return;
  is_output[value] = true;
  g->outputs[g->n_outputs++] = value;
}

static void add_all(kiln_graph *g, bool *is_output) {
  for (int i = 0; i < g->n_nodes; i++)
    for (int k = 0; k < g->nodes[i]->n_outputs; k++) {
      const int value = g->nodes[i]->outputs[k];
      if (value >= 0 && !g->values[value]->list) add(g, is_output, value);
    }
}

static kiln_status add_named(kiln_ctx *cx, kiln_graph *g, bool *is_output, const char *name) {
  for (int i = 0; i < g->n_values; i++) {
    const kiln_value *v = g->values[i];
    if (v->producer < 0 || strcmp(name, name_of(cx, g, i)) != 0) continue;
    if (v->list)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options", "mark: must be a tensor, got %s %s",
                       v->list, name);
    add(g, is_output, i);
    return KILN_OK;
  }
  return refuse(cx, g, name);
}

kiln_status kiln_marks_add(kiln_ctx *cx, kiln_graph *g, size_t n, const char *const *names) {
  if (n == 0) return KILN_OK;
  int *outputs = KILN_NEW_ARRAY(&cx->perm, int, g->n_outputs + g->n_values);
  memcpy(outputs, g->outputs, (size_t)g->n_outputs * sizeof *outputs);
  g->outputs = outputs;
  bool *is_output = find_outputs(cx, g);
  for (size_t i = 0; i < n; i++) {
    if (strcmp(names[i], "*") == 0) add_all(g, is_output);
    else KILN_TRY(add_named(cx, g, is_output, kiln_name_shown(cx, names[i])));
  }
  return KILN_OK;
}
