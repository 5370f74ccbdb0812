// The reducer (delta debugging): edits are tried and kept if the model still fails, until none is
// kept.
//
// Order: outputs first, because most of a model leads to other outputs than the failing one; then
// nodes, in runs of decreasing length; then sub-graphs replace the nodes that select or repeat
// them; then operands, attributes, extents and constants' data.
#include "onnx/reduce.h"

#include "onnx/edit.h"
#include "onnx/tensor.h"
#include "onnx/write.h"

#include <string.h>

typedef struct reducer {
  onnx_editor editor;
  onnx_model *model; // with the smallest graph that failed
  kiln_onnx_reducing *how;
} reducer;

// Whether the model with |graph| fails.
static kiln_status fails(reducer *r, onnx_graph *graph, bool *out) {
  onnx_model trial = *r->model;
  trial.graph = graph;
  KILN_TRY(kiln_onnx_write(r->editor.cx, r->how->trial, &trial));
  r->how->tries++;
  *out = r->how->fails(r->how->user);
  if (r->how->on_progress)
    r->how->on_progress(r->how->user, r->how->tries,
                        *out ? graph->nodes.n : r->model->graph->nodes.n);
  return KILN_OK;
}

// Tries |edit|; *out_kept tells whether it was kept.
static kiln_status try_edit(reducer *r, const onnx_edit *edit, bool *out_kept) {
  kiln_ctx *cx = r->editor.cx;
  onnx_graph trial;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  *out_kept = false;
  r->editor.arena = &cx->scratch;
  kiln_status st = KILN_OK;
  if (kiln_onnx_edit(&r->editor, r->model->graph, edit, &trial)) st = fails(r, &trial, out_kept);
  kiln_arena_rewind(&cx->scratch, mark);
  if (st != KILN_OK || !*out_kept) return st;
  r->editor.arena = &cx->perm;
  onnx_graph *kept = KILN_NEW(&cx->perm, onnx_graph);
  kiln_onnx_edit(&r->editor, r->model->graph, edit, kept);
  r->model->graph = kept;
  return KILN_OK;
}

// Removes elements of |kind| in runs of half of all, a quarter, ... one, from the end.
static kiln_status take_out(reducer *r, onnx_edit_kind kind, size_t (*count)(const onnx_graph *),
                            bool *changed) {
  for (size_t run = count(r->model->graph); run > 0; run /= 2)
    for (size_t end = count(r->model->graph); end > 0;) {
      const size_t at = end > run ? end - run : 0;
      bool kept = false;
      KILN_TRY(try_edit(r, &(onnx_edit){.kind = kind, .at = at, .n = end - at}, &kept));
      *changed |= kept;
      const size_t left = count(r->model->graph);
      end = at < left ? at : left;
    }
  return KILN_OK;
}

static size_t count_nodes(const onnx_graph *g) { return g->nodes.n; }
static size_t count_outputs(const onnx_graph *g) { return g->outputs.n; }

static kiln_status keep_one_output(reducer *r, bool *changed) {
  bool kept = false;
  for (size_t i = 0, n = r->model->graph->outputs.n; n > 1 && i < n && !kept; i++)
    KILN_TRY(try_edit(r, &(onnx_edit){.kind = ONNX_EDIT_ONE_OUTPUT, .at = i}, &kept));
  *changed |= kept;
  return KILN_OK;
}

// Tries edit |kind| on every node and each of its |count| parts.
static kiln_status of_nodes(reducer *r, onnx_edit_kind kind, size_t (*count)(const onnx_node *),
                            bool *changed) {
  for (size_t i = r->model->graph->nodes.n; i-- > 0;)
    for (size_t k = i < r->model->graph->nodes.n ? count(&r->model->graph->nodes.data[i]) : 0;
         k-- > 0;) {
      bool kept = false;
      KILN_TRY(try_edit(r, &(onnx_edit){.kind = kind, .at = i, .n = k}, &kept));
      *changed |= kept;
      if (kept && kind == ONNX_EDIT_FLATTEN) break;
    }
  return KILN_OK;
}

static size_t count_operands(const onnx_node *n) { return n->inputs.n; }
static size_t count_attrs(const onnx_node *n) { return n->attrs.n; }

static kiln_status of_initializers(reducer *r, onnx_edit_kind kind, bool *changed) {
  for (size_t i = r->model->graph->initializers.n; i-- > 0;) {
    bool kept = false;
    if (i < r->model->graph->initializers.n)
      KILN_TRY(try_edit(r, &(onnx_edit){.kind = kind, .at = i}, &kept));
    *changed |= kept;
  }
  return KILN_OK;
}

// Shrinks extents to 1, 2, half, or one less, wherever inputs and constants have them; with and
// without equal numbers in small constants, which may be shapes.
static kiln_status shrink(reducer *r, bool *changed) {
  int64_t extents[64];
  const size_t n = kiln_onnx_extents(r->model->graph, KILN_LEN(extents), extents);
  for (size_t i = 0; i < n; i++)
    for (int64_t from = extents[i], next = from; from > 1; from = next) {
      const int64_t to[] = {1, 2, from / 2, from - 1};
      next = 0;
      for (size_t k = 0; k < 2 * KILN_LEN(to) && next == 0; k++) {
        bool kept = false;
        if (to[k / 2] >= from || to[k / 2] < 1) continue;
        const onnx_edit edit = {
            .kind = ONNX_EDIT_EXTENT, .from = from, .to = to[k / 2], .n = k % 2};
        KILN_TRY(try_edit(r, &edit, &kept));
        if (kept) next = to[k / 2];
        *changed |= kept;
      }
    }
  return KILN_OK;
}

static kiln_status reduce(reducer *r) {
  for (bool changed = true; changed;) {
    changed = false;
    KILN_TRY(keep_one_output(r, &changed));
    KILN_TRY(take_out(r, ONNX_EDIT_OUTPUTS, count_outputs, &changed));
    KILN_TRY(take_out(r, ONNX_EDIT_NODES, count_nodes, &changed));
    KILN_TRY(of_nodes(r, ONNX_EDIT_FLATTEN, count_attrs, &changed));
    KILN_TRY(of_nodes(r, ONNX_EDIT_OPERAND, count_operands, &changed));
    KILN_TRY(of_nodes(r, ONNX_EDIT_ATTR, count_attrs, &changed));
    KILN_TRY(shrink(r, &changed));
    KILN_TRY(of_initializers(r, ONNX_EDIT_FREE, &changed));
    KILN_TRY(of_initializers(r, ONNX_EDIT_ZERO, &changed));
  }
  return KILN_OK;
}

static void close_file(void *file) { kiln_onnx_close(file); }

// Embeds external data, because trials are written to another folder.
static bool take_in(kiln_onnx_file *file, onnx_problems *problems, onnx_graph *g) {
  for (size_t i = 0; i < g->initializers.n; i++) {
    onnx_tensor *t = &g->initializers.data[i];
    kiln_const c;
    if (t->data_location != 1) continue;
    if (!kiln_onnx_tensor_make(problems, file, kiln_onnx_file_path(file), "initializer", t, &c))
      return false;
    onnx_tensor raw = {.data_type = t->data_type, .dims = {t->dims.data, t->dims.n}};
    raw.name = t->name;
    if (kiln_dtype_bits(c.dtype) < 8) continue; // packed: stays external
    raw.raw_data = (onnx_bytes){c.data, c.bytes};
    *t = raw;
  }
  return true;
}

static kiln_status read_model(kiln_ctx *cx, const char *path, kiln_onnx_file **out_file,
                              onnx_model *out) {
  KILN_TRY(kiln_onnx_file_open(cx, path, 0, NULL, out_file));
  kiln_cleanup_push(cx, close_file, *out_file);
  const onnx_bytes all = kiln_onnx_file_model(*out_file);
  KILN_TRY(kiln_onnx_decode(cx, &cx->perm, path, all.data, all, &kiln_onnx_model_schema, out));
  if (out->graph == NULL || out->graph->outputs.n == 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "graph: must have an output, got none");
  onnx_problems problems = {.cx = cx, .path = path, .worst = KILN_OK};
  (void)take_in(*out_file, &problems, out->graph);
  return kiln_onnx_problems_end(&problems);
}

kiln_status kiln_onnx_expose(kiln_ctx *cx, const char *path, const char *out) {
  kiln_onnx_file *file = NULL;
  onnx_model model;
  KILN_TRY(read_model(cx, path, &file, &model));
  kiln_onnx_expose_values(cx, model.graph);
  const kiln_status st = kiln_onnx_write(cx, out, &model);
  kiln_cleanup_pop(cx);
  kiln_onnx_close(file);
  return st;
}

static kiln_status run(reducer *r, const char *path, const char *out) {
  bool failed = false;
  kiln_onnx_editor_init(&r->editor, r->model->graph, r->how->known, r->how->n_known);
  r->how->nodes_before = r->model->graph->nodes.n;
  KILN_TRY(fails(r, r->model->graph, &failed));
  if (!failed)
    return KILN_FAIL(r->editor.cx->diag, KILN_BAD_INPUT, path,
                     "command: must fail on the whole model, got success");
  KILN_TRY(reduce(r));
  r->how->nodes = r->model->graph->nodes.n;
  return kiln_onnx_write(r->editor.cx, out, r->model);
}

kiln_status kiln_onnx_reduce(kiln_ctx *cx, const char *path, const char *out,
                             kiln_onnx_reducing *how) {
  kiln_onnx_file *file = NULL;
  onnx_model model;
  reducer r = {.editor = {.cx = cx}, .model = &model, .how = how};
  KILN_TRY(read_model(cx, path, &file, &model));
  const kiln_status st = run(&r, path, out);
  kiln_cleanup_pop(cx);
  kiln_onnx_close(file);
  return st;
}
