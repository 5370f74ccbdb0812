// Attributes of nodes, and Constant nodes, whose value is an attribute.
#include "onnx/build.h"

#include <string.h>

// The type of an attribute; files of IR versions 1 and 2 have no type field.
static int64_t type_of(const onnx_attr *a) {
  static const struct {
    uint64_t has;
    int64_t type;
  } rows[] = {{ONNX_HAS_F, ONNX_ATTR_FLOAT},   {ONNX_HAS_I, ONNX_ATTR_INT},
              {ONNX_HAS_S, ONNX_ATTR_STRING},  {ONNX_HAS_T, ONNX_ATTR_TENSOR},
              {ONNX_HAS_G, ONNX_ATTR_GRAPH},   {ONNX_HAS_FLOATS, ONNX_ATTR_FLOATS},
              {ONNX_HAS_INTS, ONNX_ATTR_INTS}, {ONNX_HAS_STRINGS, ONNX_ATTR_STRINGS}};
  if (a->type != ONNX_ATTR_NONE) return a->type;
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (a->has & rows[i].has) return rows[i].type;
  return ONNX_ATTR_NONE;
}

static const char *type_name(int64_t type) {
  static const char *const names[] = {"no type",        "a float", "an integer", "a string",
                                      "a tensor",       "a graph", "floats",     "integers",
                                      "strings",        "tensors", "graphs",     "a sparse tensor",
                                      "sparse tensors", "a type",  "types"};
  return type >= 0 && type < (int64_t)KILN_LEN(names) ? names[type] : "an unknown type";
}

static bool refuse(onnx_build *b, const char *place, const onnx_attr *a, kiln_status status,
                   const char *what) {
  kiln_onnx_problem(&b->problems, status, place, "attribute \"%s\": %s",
                    kiln_symbol_text(b->cx, kiln_onnx_symbol(b->cx, a->name)), what);
  return false;
}

static bool has_room(onnx_build *b, const char *place, const onnx_attr *a, size_t n,
                     kiln_attr *out) {
  out->n = (int)n;
  return n <= INT32_MAX || refuse(b, place, a, KILN_UNSUPPORTED, "must have fewer elements");
}

static bool make_tensor(onnx_build *b, const char *place, const onnx_attr *a, kiln_attr *out) {
  if (a->t == NULL) return refuse(b, place, a, KILN_BAD_INPUT, "must have a tensor, got none");
  kiln_const *tensor = KILN_NEW(&b->cx->perm, kiln_const);
  const char *subject =
      kiln_arena_printf(&b->cx->scratch, "attribute \"%s\"", kiln_symbol_text(b->cx, out->name));
  out->kind = KILN_ATTR_TENSOR;
  out->u.tensor = tensor;
  return kiln_onnx_tensor_make(&b->problems, b->file, place, subject, a->t, tensor);
}

static bool make_graph(onnx_build *b, onnx_scope *scope, const char *place, const onnx_attr *a,
                       kiln_attr *out) {
  if (a->g == NULL) return refuse(b, place, a, KILN_BAD_INPUT, "must have a graph, got none");
  const char *where =
      kiln_arena_printf(&b->cx->scratch, "%s: %s", place, kiln_symbol_text(b->cx, out->name));
  out->kind = KILN_ATTR_GRAPH;
  out->u.graph = kiln_onnx_graph_make(b, a->g, scope, where);
  return true;
}

static bool make_list(onnx_build *b, const char *place, const onnx_attr *a, int64_t type,
                      kiln_attr *out) {
  kiln_arena *perm = &b->cx->perm;
  if (type == ONNX_ATTR_FLOATS) {
    if (!has_room(b, place, a, a->floats.n, out)) return false;
    float *floats = KILN_NEW_ARRAY(perm, float, out->n);
    if (out->n > 0) memcpy(floats, a->floats.data, sizeof(float) * a->floats.n);
    out->kind = KILN_ATTR_FLOATS;
    out->u.floats = floats;
  } else if (type == ONNX_ATTR_INTS) {
    if (!has_room(b, place, a, a->ints.n, out)) return false;
    int64_t *ints = KILN_NEW_ARRAY(perm, int64_t, out->n);
    if (out->n > 0) memcpy(ints, a->ints.data, sizeof(int64_t) * a->ints.n);
    out->kind = KILN_ATTR_INTS;
    out->u.ints = ints;
  } else {
    if (!has_room(b, place, a, a->strings.n, out)) return false;
    kiln_symbol *strings = KILN_NEW_ARRAY(perm, kiln_symbol, out->n);
    for (int i = 0; i < out->n; i++) strings[i] = kiln_onnx_symbol(b->cx, a->strings.data[i]);
    out->kind = KILN_ATTR_STRINGS;
    out->u.strings = strings;
  }
  return true;
}

// Converts one attribute; false after reporting an error.
static bool make_attr(onnx_build *b, onnx_scope *scope, const char *place, const onnx_attr *a,
                      kiln_attr *out) {
  const int64_t type = type_of(a);
  *out = (kiln_attr){.name = kiln_onnx_symbol(b->cx, a->name)};
  if (a->ref_attr_name.n > 0)
    return refuse(b, place, a, KILN_BAD_INPUT, "may refer to an attribute only inside a function");
  switch (type) {
  case ONNX_ATTR_FLOAT:
    out->kind = KILN_ATTR_FLOAT;
    out->u.f = a->f;
    return true;
  case ONNX_ATTR_INT:
    out->kind = KILN_ATTR_INT;
    out->u.i = a->i;
    return true;
  case ONNX_ATTR_STRING:
    out->kind = KILN_ATTR_STRING;
    out->u.s = kiln_onnx_symbol(b->cx, a->s);
    return true;
  case ONNX_ATTR_TENSOR: return make_tensor(b, place, a, out);
  case ONNX_ATTR_GRAPH: return make_graph(b, scope, place, a, out);
  case ONNX_ATTR_FLOATS:
  case ONNX_ATTR_INTS:
  case ONNX_ATTR_STRINGS: return make_list(b, place, a, type, out);
  case ONNX_ATTR_NONE: return refuse(b, place, a, KILN_BAD_INPUT, "must have a value, got none");
  case ONNX_ATTR_TYPE: return false; // of Optional; its element implies it
  default: break;
  }
  return refuse(b, place, a, KILN_UNSUPPORTED,
                kiln_arena_printf(&b->cx->scratch,
                                  "must be a number, a string, a tensor, a graph or a list of the "
                                  "first two, got %s",
                                  type_name(type)));
}

void kiln_onnx_attrs_make(onnx_build *b, onnx_scope *scope, const char *place,
                          const onnx_node *node, kiln_node *out) {
  kiln_map names;
  kiln_map_init(&names, &b->cx->scratch);
  out->attrs = KILN_NEW_ARRAY(&b->cx->perm, kiln_attr, node->attrs.n);
  for (size_t i = 0; i < node->attrs.n; i++) {
    const onnx_attr *a = &node->attrs.data[i];
    const kiln_symbol name = kiln_onnx_symbol(b->cx, a->name);
    if (kiln_map_find(&names, name) != NULL) {
      refuse(b, place, a, KILN_BAD_INPUT, "must be given once");
      continue;
    }
    kiln_map_put(&names, name, 1);
    if (make_attr(b, scope, place, a, &out->attrs[out->n_attrs])) out->n_attrs++;
  }
}

static bool make_vector(onnx_build *b, kiln_dtype dtype, int rank, size_t n, const void *data,
                        kiln_const *out) {
  const size_t bytes = n * (size_t)kiln_dtype_bytes(dtype);
  void *copy = kiln_arena_alloc(&b->cx->perm, bytes + 1);
  if (n > 0) memcpy(copy, data, bytes);
  *out = (kiln_const){.dtype = dtype, .rank = rank, .data = copy, .bytes = bytes};
  if (rank == 1) out->shape[0] = (int64_t)n;
  return true;
}

bool kiln_onnx_constant_make(onnx_build *b, const char *place, const onnx_node *node,
                             kiln_const *out) {
  if (node->attrs.n != 1) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place,
                      "Constant: must have one attribute, got %zu", node->attrs.n);
    return false;
  }
  const onnx_attr *a = &node->attrs.data[0];
  if (kiln_onnx_is(a->name, "value") && a->t != NULL)
    return kiln_onnx_tensor_make(&b->problems, b->file, place, "Constant", a->t, out);
  if (kiln_onnx_is(a->name, "value_float")) return make_vector(b, KILN_F32, 0, 1, &a->f, out);
  if (kiln_onnx_is(a->name, "value_int")) return make_vector(b, KILN_I64, 0, 1, &a->i, out);
  if (kiln_onnx_is(a->name, "value_floats"))
    return make_vector(b, KILN_F32, 1, a->floats.n, a->floats.data, out);
  if (kiln_onnx_is(a->name, "value_ints"))
    return make_vector(b, KILN_I64, 1, a->ints.n, a->ints.data, out);
  return refuse(b, place, a, KILN_UNSUPPORTED,
                "of a Constant must be value, value_float(s) or value_int(s)");
}
