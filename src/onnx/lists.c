// Inputs that are sequences or optional values become as many tensor inputs as the caller says, and
// a node that makes the list. Later stages see an ordinary graph.
#include "onnx/build.h"

#include <string.h>

enum { MAX_LENGTH = 1 << 16 };

static const onnx_type *sequence_of(const onnx_type *type) {
  if (type && type->optional) type = type->optional->elem;
  return type && type->sequence ? type->sequence->elem : NULL;
}

bool kiln_onnx_is_list(const onnx_type *type) {
  return type && (type->has & (ONNX_HAS_SEQUENCE | ONNX_HAS_OPTIONAL)) != 0;
}

const char *kiln_onnx_type_text(kiln_ctx *cx, const onnx_type *type) {
  kiln_dtype t = KILN_F32;
  const char *open = "", *close = "";
  if (type && type->optional) open = "optional(", close = ")", type = type->optional->elem;
  const bool is_sequence = type && type->sequence;
  if (is_sequence) type = type->sequence->elem;
  const bool known = type && type->tensor && kiln_dtype_of_onnx(type->tensor->elem_type, &t);
  return kiln_arena_printf(&cx->perm, "%s%s%s%s%s", open, is_sequence ? "sequence(" : "",
                           known ? kiln_dtype_text(t) : "?", is_sequence ? ")" : "", close);
}

static bool find_length(onnx_build *b, const onnx_value_info *info, int64_t *out) {
  for (int i = 0; i < b->options->n_dims; i++)
    if (kiln_onnx_is(info->name, b->options->dims[i].name)) {
      *out = b->options->dims[i].value;
      return true;
    }
  *out =
      // An optional tensor is present unless the options say otherwise.
      sequence_of(info->type) ? -1 : 1;
  return !sequence_of(info->type);
}

static onnx_bytes bytes_of(const char *text) { return (onnx_bytes){text, strlen(text)}; }

typedef struct opening {
  onnx_build *b;
  KILN_VEC(onnx_value_info) inputs;
  KILN_VEC(onnx_node) nodes;
} opening;

// The type of one tensor of a list; named extents may differ between its tensors, so they lose
// their names.
static onnx_type *type_of_part(kiln_arena *arena, const onnx_type *elem) {
  onnx_type *type = KILN_NEW(arena, onnx_type);
  if (elem) *type = *elem;
  if (!elem || !elem->tensor || !elem->tensor->shape) return type;
  type->tensor = KILN_NEW(arena, onnx_tensor_type);
  *type->tensor = *elem->tensor;
  type->tensor->shape = KILN_NEW(arena, onnx_shape);
  *type->tensor->shape = *elem->tensor->shape;
  const size_t n = type->tensor->shape->dims.n;
  onnx_dim *dims = KILN_NEW_ARRAY(arena, onnx_dim, n);
  for (size_t axis = 0; axis < n; axis++) {
    dims[axis] = elem->tensor->shape->dims.data[axis];
    dims[axis].param = (onnx_bytes){0};
  }
  type->tensor->shape->dims.data = dims;
  return type;
}

// Adds inputs "x[0]", "x[1]", ... and the node that makes "x" from them.
static void open_list(opening *o, const onnx_value_info *info, int64_t length) {
  kiln_arena *arena = &o->b->cx->scratch;
  const onnx_type *elem = sequence_of(info->type);
  const bool is_none = length < 0 || (!elem && length == 0);
  onnx_node node = {.op_type = bytes_of(is_none || !elem ? "Optional"
                                        : length         ? "SequenceConstruct"
                                                         : "SequenceEmpty")};
  if (!elem) elem = info->type->optional->elem;
  node.outputs.data = KILN_NEW_ARRAY(arena, onnx_bytes, 1);
  node.outputs.data[0] = info->name;
  node.outputs.n = 1;
  node.inputs.n = is_none ? 0 : (size_t)length;
  node.inputs.data = KILN_NEW_ARRAY(arena, onnx_bytes, node.inputs.n);
  for (size_t i = 0; i < node.inputs.n; i++) {
    const onnx_value_info part = {
        .name = bytes_of(
            kiln_arena_printf(&o->b->cx->perm, "%s[%zu]", kiln_onnx_text(o->b->cx, info->name), i)),
        .type = type_of_part(arena, elem)};
    node.inputs.data[i] = part.name;
    KILN_VEC_PUSH(arena, &o->inputs, part);
  }
  KILN_VEC_PUSH(arena, &o->nodes, node);
}

static bool check_length(onnx_build *b, const onnx_value_info *info, int64_t length) {
  const bool is_sequence = sequence_of(info->type) != NULL, is_optional = info->type->optional;
  const int64_t most = is_sequence ? MAX_LENGTH : 1, least = is_optional ? -1 : 0;
  if (length >= least && length <= most) return true;
  kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                    "input \"%s\": the number of its tensors must lie in [%" PRId64 ", %" PRId64
                    "], got %" PRId64,
                    kiln_onnx_text(b->cx, info->name), least, most, length);
  return false;
}

void kiln_onnx_open_lists(onnx_build *b, onnx_graph *graph) {
  opening o = {.b = b};
  kiln_map_init(&b->opened, &b->cx->scratch);
  kiln_arena *arena = &b->cx->scratch;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const onnx_value_info *info = &graph->inputs.data[i];
    const onnx_type *type = info->type;
    int64_t length = 0;
    const bool has_parts = kiln_onnx_is_list(type) && (sequence_of(type) || type->optional);
    if (has_parts && find_length(b, info, &length) && !b->options->keeps_lists) {
      kiln_map_put(&b->opened, kiln_onnx_symbol(b->cx, info->name), 1);
      if (check_length(b, info, length)) open_list(&o, info, length);
    } else {
      KILN_VEC_PUSH(arena, &o.inputs, *info);
    }
  }
  for (size_t i = 0; i < graph->nodes.n; i++) KILN_VEC_PUSH(arena, &o.nodes, graph->nodes.data[i]);
  graph->inputs.data = o.inputs.data;
  graph->inputs.n = (size_t)o.inputs.n;
  graph->nodes.data = o.nodes.data;
  graph->nodes.n = (size_t)o.nodes.n;
}
