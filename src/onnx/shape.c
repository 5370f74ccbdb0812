// Types and shapes of values: those declared in the file, and the caller's replacements.
#include "onnx/build.h"

#include <string.h>

static const onnx_value_info *find_input(const onnx_graph *graph, const char *name) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    if (kiln_onnx_is(graph->inputs.data[i].name, name)) return &graph->inputs.data[i];
  return NULL;
}

static const char *input_names(kiln_ctx *cx, const onnx_graph *graph) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const onnx_bytes name = graph->inputs.data[i].name;
    kiln_text_add(&text, i == 0 ? "\"" : ", \"");
    kiln_text_add_bytes(&text, name.data, name.n);
    kiln_text_add(&text, "\"");
  }
  return text.n == 0 ? "no inputs" : text.data;
}

static const onnx_shape *shape_of(const onnx_value_info *info) {
  return info->type == NULL || info->type->tensor == NULL ? NULL : info->type->tensor->shape;
}

// The name of a symbolic extent: its own, or one made from value and axis.
static kiln_symbol extent_name(kiln_ctx *cx, onnx_bytes value, const onnx_dim *dim, size_t axis) {
  if (dim->param.n > 0) return kiln_onnx_symbol(cx, dim->param);
  return kiln_symbol_printf(cx, "%s_dim_%zu", kiln_symbol_text(cx, kiln_onnx_symbol(cx, value)),
                            axis);
}

static bool is_known(const onnx_dim *dim) { return (dim->has & ONNX_HAS_DIM_VALUE) != 0; }

static void bind(onnx_build *b, const char *name, kiln_symbol symbol, int64_t value) {
  const uint64_t *old = kiln_map_find(&b->extents.bound, symbol);
  if (value < 0)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                      "dimension \"%s\": must not be negative, got %" PRId64, name, value);
  else if (old != NULL && (int64_t)*old != value)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                      "dimension \"%s\": must have one value, got %" PRId64 " and %" PRId64, name,
                      (int64_t)*old, value);
  else kiln_map_put(&b->extents.bound, symbol, (uint64_t)value);
}

// Renames an extent.
static void rename_extent(onnx_build *b, kiln_symbol symbol, kiln_symbol name) {
  const uint64_t *old = kiln_map_find(&b->extents.renamed, symbol);
  if (old != NULL && *old != name)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                      "dimension \"%s\": must have one name, got \"%s\" and \"%s\"",
                      kiln_symbol_text(b->cx, symbol), kiln_symbol_text(b->cx, (kiln_symbol)*old),
                      kiln_symbol_text(b->cx, name));
  else if (symbol != name) kiln_map_put(&b->extents.renamed, symbol, name);
}

// Binds one declared extent of an input to |value| or a name.
static void bind_extent(onnx_build *b, const char *input, kiln_symbol symbol, const onnx_dim *dim,
                        int axis, int64_t value, const char *name, bool fixed) {
  if (!is_known(dim)) {
    if (name) rename_extent(b, symbol, kiln_symbol_of(b->cx, name));
    else bind(b, kiln_symbol_text(b->cx, symbol), symbol, value);
  } else if (name) {
    b->extents.reshaped = true;
  } else if (dim->value != value && fixed) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                      "input \"%s\": extent of axis %d must be %" PRId64 ", got %" PRId64, input,
                      axis, dim->value, value);
  } else if (dim->value != value) {
    b->extents.reshaped = true;
  }
}

// Binds the symbolic extents of an input to the given ones; with |fixed|, constant extents must be
// equal.
static void bind_shape(onnx_build *b, const onnx_graph *graph, const char *name, int rank,
                       const int64_t *shape, const char *const *names, bool fixed) {
  const onnx_value_info *info = find_input(graph, name);
  const char *path = b->problems.path;
  if (info == NULL) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, path,
                      "input \"%s\": must be an input of the model, which has %s", name,
                      input_names(b->cx, graph));
    return;
  }
  const onnx_shape *declared = shape_of(info);
  if (rank < 0 || rank > KILN_MAX_RANK || (declared && declared->dims.n != (size_t)rank)) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, path,
                      "input \"%s\": rank must be %zu, got the rank %d", name,
                      declared ? declared->dims.n : KILN_MAX_RANK, rank);
    return;
  }
  for (int axis = 0; declared != NULL && axis < rank; axis++) {
    const onnx_dim *dim = &declared->dims.data[axis];
    bind_extent(b, name, extent_name(b->cx, info->name, dim, (size_t)axis), dim, axis, shape[axis],
                names ? names[axis] : NULL, fixed);
  }
}

// Whether |name| is an input that was a list.
static bool is_opened(const onnx_build *b, const char *name) {
  return kiln_map_find(&b->opened, kiln_symbol_of(b->cx, name)) != NULL;
}

void kiln_onnx_extents_init(onnx_build *b, const onnx_graph *graph) {
  const kiln_onnx_options *o = b->options;
  kiln_map_init(&b->extents.bound, &b->cx->scratch);
  kiln_map_init(&b->extents.renamed, &b->cx->scratch);
  kiln_map_init(&b->extents.on_input, &b->cx->scratch);
  kiln_map_init(&b->extents.seen, &b->cx->scratch);
  for (int i = 0; i < o->n_dims; i++)
    if (!is_opened(b, o->dims[i].name))
      bind(b, o->dims[i].name, kiln_symbol_of(b->cx, o->dims[i].name), o->dims[i].value);
  for (int i = 0; i < o->n_shapes; i++)
    bind_shape(b, graph, o->shapes[i].input, o->shapes[i].rank, o->shapes[i].shape,
               o->shapes[i].names, false);
  for (int i = 0; i < o->n_constants; i++)
    bind_shape(b, graph, o->constants[i].input, o->constants[i].value.rank,
               o->constants[i].value.shape, NULL, true);
}

void kiln_onnx_extents_end(onnx_build *b) {
  kiln_text names;
  kiln_text_init(&names, &b->cx->scratch);
  for (int i = 0; i < b->extents.on_input.n; i++)
    kiln_text_printf(&names, "%s\"%s\"", i == 0 ? "" : ", ",
                     kiln_symbol_text(b->cx, (kiln_symbol)b->extents.on_input.entries[i].key));
  for (int i = 0; i < b->options->n_dims; i++) {
    const char *name = b->options->dims[i].name;
    if (!is_opened(b, name) && !kiln_map_find(&b->extents.seen, kiln_symbol_of(b->cx, name)))
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                        "dimension \"%s\": must be a named dimension of the model, which has %s",
                        name, names.n == 0 ? "none" : names.data);
  }
}

static const kiln_expr *extent(onnx_build *b, kiln_symbol symbol, onnx_role role) {
  const uint64_t *name = kiln_map_find(&b->extents.renamed, symbol);
  if (name != NULL) symbol = (kiln_symbol)*name;
  kiln_map_put(&b->extents.seen, symbol, 1);
  if (role == ONNX_ROLE_INPUT) kiln_map_put(&b->extents.on_input, symbol, 1);
  const uint64_t *bound = kiln_map_find(&b->extents.bound, symbol);
  return bound != NULL ? kiln_int(b->cx, (int64_t)*bound) : kiln_var(b->cx, symbol);
}

static const kiln_onnx_shape *find_replacement(const onnx_build *b, const onnx_value_info *info) {
  const kiln_onnx_shape *found = NULL;
  for (int i = 0; i < b->options->n_shapes; i++)
    if (kiln_onnx_is(info->name, b->options->shapes[i].input)) found = &b->options->shapes[i];
  return found;
}

// Checks constant extents; |shape| has 1 in place of symbolic ones.
static bool check_extents(onnx_build *b, const char *place, size_t rank, const int64_t *shape,
                          const kiln_value *value) {
  const char *wrong = NULL;
  int64_t elems = 0;
  const int bytes = value->has_type ? kiln_dtype_bytes(value->dtype) : 1;
  if (!kiln_onnx_shape_elems(b->cx, (int64_t)rank, shape, bytes, &elems, &wrong))
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place, "%s", wrong);
  else if (rank > KILN_MAX_RANK)
    kiln_onnx_problem(&b->problems, KILN_UNSUPPORTED, place, "rank must be at most %d, got %zu",
                      KILN_MAX_RANK, rank);
  else return true;
  return false;
}

static void declare_shape(onnx_build *b, const char *place, onnx_role role,
                          const onnx_value_info *info, kiln_value *value) {
  const onnx_shape *shape = shape_of(info);
  int64_t *numbers = KILN_NEW_ARRAY(&b->cx->scratch, int64_t, shape->dims.n);
  const kiln_expr **extents = KILN_NEW_ARRAY(&b->cx->perm, const kiln_expr *, shape->dims.n);
  for (size_t axis = 0; axis < shape->dims.n; axis++) {
    const onnx_dim *dim = &shape->dims.data[axis];
    extents[axis] = is_known(dim) ? kiln_int(b->cx, dim->value)
                                  : extent(b, extent_name(b->cx, info->name, dim, axis), role);
    if (!kiln_expr_is_int(extents[axis], &numbers[axis])) numbers[axis] = 1;
  }
  if (!check_extents(b, place, shape->dims.n, numbers, value)) return;
  value->has_shape = true;
  value->rank = (int)shape->dims.n;
  value->shape = extents;
}

static void replace_shape(onnx_build *b, const char *place, const kiln_onnx_shape *by,
                          kiln_value *value) {
  const int rank = by->rank;
  int64_t numbers[KILN_MAX_RANK];
  const kiln_expr *extents[KILN_MAX_RANK];
  for (int axis = 0; axis < rank && axis < KILN_MAX_RANK; axis++) {
    const char *name = by->names ? by->names[axis] : NULL;
    extents[axis] = name ? extent(b, kiln_symbol_of(b->cx, name), ONNX_ROLE_INPUT)
                         : kiln_int(b->cx, by->shape[axis]);
    if (!kiln_expr_is_int(extents[axis], &numbers[axis])) numbers[axis] = 1;
  }
  if (rank < 0 || rank > KILN_MAX_RANK || !check_extents(b, place, (size_t)rank, numbers, value))
    return;
  value->shape = KILN_NEW_ARRAY(&b->cx->perm, const kiln_expr *, rank);
  for (int axis = 0; axis < rank; axis++) value->shape[axis] = extents[axis];
  value->rank = rank;
  value->has_shape = true;
}

static const char *odd_type(const onnx_type *type) {
  if (type->has & ONNX_HAS_SEQUENCE) return "a sequence";
  if (type->has & ONNX_HAS_MAP) return "a map";
  if (type->has & ONNX_HAS_OPTIONAL) return "an optional value";
  if (type->has & ONNX_HAS_SPARSE) return "a sparse tensor";
  return type->has & ONNX_HAS_OPAQUE ? "an opaque value" : NULL;
}

static bool tells_type(const onnx_type *type) {
  return type != NULL &&
         (odd_type(type) != NULL || (type->tensor != NULL && type->tensor->elem_type != 0));
}

// Whether a value must be a tensor. Sequences and optional values are resolved at compile time;
// inputs with a known number of tensors have been replaced by these.
static bool wants_tensor(const onnx_build *b, const onnx_type *type, bool is_top, onnx_role role) {
  if (!kiln_onnx_is_list(type)) return role != ONNX_ROLE_INNER;
  return is_top && role == ONNX_ROLE_INPUT && !b->options->keeps_lists;
}

// Sets the element type. Only ports must have a supported type; for inner values unsupported types
// are reported when their nodes are compiled.
static void declare_dtype(onnx_build *b, const char *place, bool is_top, onnx_role role,
                          const onnx_value_info *info, kiln_value *value) {
  const onnx_type *type = info->type;
  const char *odd = type == NULL ? NULL : odd_type(type);
  const int64_t code = type != NULL && type->tensor != NULL ? type->tensor->elem_type : 0;
  kiln_dtype dtype;
  if (odd != NULL) {
    if (kiln_onnx_is_list(type)) value->list = kiln_onnx_type_text(b->cx, type);
    if (wants_tensor(b, type, is_top, role))
      kiln_onnx_problem(
          &b->problems, KILN_UNSUPPORTED, place, "type must be a tensor, got %s%s", odd,
          kiln_onnx_is_list(type) ? ": say of how many tensors, as with --dim NAME=2" : "");
  } else if (code != 0 && !kiln_dtype_of_onnx(code, &dtype)) {
    if (role != ONNX_ROLE_INNER)
      kiln_onnx_problem(&b->problems, KILN_UNSUPPORTED, place,
                        "element type must be one that Kiln has, got %s (%" PRId64 ")",
                        kiln_onnx_type_name(code), code);
  } else if (code != 0 && value->has_type && value->dtype != dtype) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place,
                      "element type must be declared once, got %s and %s",
                      kiln_dtype_text(value->dtype), kiln_dtype_text(dtype));
  } else if (code != 0) {
    value->has_type = true;
    value->dtype = dtype;
  }
}

void kiln_onnx_value_declare(onnx_build *b, const char *where, bool is_top, onnx_role role,
                             const onnx_value_info *info, kiln_value *value) {
  static const char *const roles[] = {"input", "output", "value"};
  const bool may_replace = is_top && role == ONNX_ROLE_INPUT;
  const char *place = kiln_arena_printf(&b->cx->scratch, "%s: %s \"%s\"", where, roles[role],
                                        kiln_symbol_text(b->cx, value->name));
  declare_dtype(b, place, is_top, role, info, value);
  if (may_replace && !value->has_type && !tells_type(info->type))
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place, "must have an element type, got none");
  const kiln_onnx_shape *replacement = may_replace ? find_replacement(b, info) : NULL;
  if (shape_of(info) != NULL && !value->has_shape) declare_shape(b, place, role, info, value);
  if (replacement != NULL) replace_shape(b, place, replacement, value);
  else if (b->extents.reshaped && role != ONNX_ROLE_INPUT) value->has_shape = false;
}

// Checks |c| against the declaration and sets the type and shape of |value|.
//
// gives: a copy of |c|
static const kiln_const *take_constant(onnx_build *b, const char *where, const kiln_const *c,
                                       kiln_value *value) {
  const char *name = kiln_symbol_text(b->cx, value->name);
  if (value->has_type && value->dtype != c->dtype)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, where,
                      "value \"%s\": its constant must be %s as declared, got %s", name,
                      kiln_dtype_text(value->dtype), kiln_dtype_text(c->dtype));
  bool fits = !value->has_shape || value->rank == c->rank;
  for (int axis = 0; value->has_shape && fits && axis < c->rank; axis++) {
    int64_t declared = 0;
    fits = !kiln_expr_is_int(value->shape[axis], &declared) || declared == c->shape[axis];
  }
  if (!fits)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, where,
                      "value \"%s\": the shape of its constant must be the declared one", name);
  kiln_const *copy = KILN_NEW(&b->cx->perm, kiln_const);
  *copy = *c;
  value->has_type = true;
  value->dtype = c->dtype;
  value->has_shape = true;
  value->rank = c->rank;
  value->shape = KILN_NEW_ARRAY(&b->cx->perm, const kiln_expr *, c->rank);
  for (int axis = 0; axis < c->rank; axis++) value->shape[axis] = kiln_int(b->cx, c->shape[axis]);
  return copy;
}

void kiln_onnx_value_set_constant(onnx_build *b, const char *where, const kiln_const *c,
                                  kiln_value *value) {
  value->constant = take_constant(b, where, c, value);
}

void kiln_onnx_value_set_initial(onnx_build *b, const char *where, const kiln_const *c,
                                 kiln_value *value) {
  value->initial = take_constant(b, where, c, value);
}

enum { OVERRIDABLE_SINCE = 4 }; // IR version

void kiln_onnx_check_overridable(onnx_build *b, const onnx_graph *graph) {
  for (int i = 0; i < b->options->n_overridable; i++) {
    const char *name = b->options->overridable[i];
    if (strcmp(name, "*") == 0) continue;
    bool has_initializer = false;
    for (size_t k = 0; k < graph->initializers.n; k++)
      has_initializer |= kiln_onnx_is(graph->initializers.data[k].name, name);
    if (find_input(graph, name) == NULL)
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                        "input \"%s\": must be an input of the model, which has %s", name,
                        input_names(b->cx, graph));
    else if (has_initializer && b->model->ir_version < OVERRIDABLE_SINCE)
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, b->problems.path,
                        "input \"%s\": IR version must be %d or later for an initializer that a "
                        "run may replace, got %" PRId64,
                        name, OVERRIDABLE_SINCE, b->model->ir_version);
  }
}

bool kiln_onnx_is_overridable(const onnx_build *b, const onnx_graph *graph, const char *name) {
  bool is_asked = false;
  for (int i = 0; i < b->options->n_overridable; i++)
    is_asked |= strcmp(b->options->overridable[i], "*") == 0 ||
                strcmp(b->options->overridable[i], name) == 0;
  return is_asked && b->model->ir_version >= OVERRIDABLE_SINCE && find_input(graph, name) != NULL;
}
