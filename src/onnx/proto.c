// Tables of ONNX's messages: field numbers from onnx.proto, offsets in the structs.
#include "onnx/proto.h"
#include "support/printable.h"

#include <string.h>

#define SCHEMA(T, name, rows)                                                                      \
  { name, sizeof(T), (int)KILN_LEN(rows), rows }

// clang-format off
static const onnx_field entry_fields[] = {
  {1, ONNX_BYTES, offsetof(onnx_entry, key),   "key",   NULL},
  {2, ONNX_BYTES, offsetof(onnx_entry, value), "value", NULL},
};
static const onnx_schema entry_schema = SCHEMA(onnx_entry, "StringStringEntryProto", entry_fields);

static const onnx_field tensor_fields[] = {
  {1,  ONNX_INTS,     offsetof(onnx_tensor, dims),           "dims",           NULL},
  {2,  ONNX_INT,      offsetof(onnx_tensor, data_type),      "data_type",      NULL},
  {3,  ONNX_BYTES,    offsetof(onnx_tensor, segment),        "segment",        NULL},
  {4,  ONNX_FLOATS,   offsetof(onnx_tensor, float_data),     "float_data",     NULL},
  {5,  ONNX_INTS,     offsetof(onnx_tensor, int32_data),     "int32_data",     NULL},
  {6,  ONNX_BYTESES,  offsetof(onnx_tensor, string_data),    "string_data",    NULL},
  {7,  ONNX_INTS,     offsetof(onnx_tensor, int64_data),     "int64_data",     NULL},
  {8,  ONNX_BYTES,    offsetof(onnx_tensor, name),           "name",           NULL},
  {9,  ONNX_BYTES,    offsetof(onnx_tensor, raw_data),       "raw_data",       NULL},
  {10, ONNX_DOUBLES,  offsetof(onnx_tensor, double_data),    "double_data",    NULL},
  {11, ONNX_INTS,     offsetof(onnx_tensor, uint64_data),    "uint64_data",    NULL},
  {12, ONNX_BYTES,    offsetof(onnx_tensor, doc_string),     "doc_string",     NULL},
  {13, ONNX_MESSAGES, offsetof(onnx_tensor, external_data),  "external_data",  &entry_schema},
  {14, ONNX_INT,      offsetof(onnx_tensor, data_location),  "data_location",  NULL},
  {16, ONNX_MESSAGES, offsetof(onnx_tensor, metadata_props), "metadata_props", &entry_schema},
};
const onnx_schema kiln_onnx_tensor_schema = SCHEMA(onnx_tensor, "TensorProto", tensor_fields);

static const onnx_field sequence_value_fields[] = {
  {3, ONNX_MESSAGES, offsetof(onnx_sequence_value, tensors), "tensor_values", &kiln_onnx_tensor_schema},
};
const onnx_schema kiln_onnx_sequence_schema = SCHEMA(onnx_sequence_value, "SequenceProto", sequence_value_fields);

static const onnx_field optional_value_fields[] = {
  {3, ONNX_MESSAGE, offsetof(onnx_optional_value, tensor),   "tensor_value",   &kiln_onnx_tensor_schema},
  {5, ONNX_MESSAGE, offsetof(onnx_optional_value, sequence), "sequence_value", &kiln_onnx_sequence_schema},
};
const onnx_schema kiln_onnx_optional_schema = SCHEMA(onnx_optional_value, "OptionalProto", optional_value_fields);

static const onnx_field sparse_fields[] = {
  {1, ONNX_MESSAGE, offsetof(onnx_sparse, values),  "values",  &kiln_onnx_tensor_schema},
  {2, ONNX_MESSAGE, offsetof(onnx_sparse, indices), "indices", &kiln_onnx_tensor_schema},
  {3, ONNX_INTS,    offsetof(onnx_sparse, dims),    "dims",    NULL},
};
static const onnx_schema sparse_schema = SCHEMA(onnx_sparse, "SparseTensorProto", sparse_fields);

static const onnx_field dim_fields[] = {  // in the order of ONNX_HAS_DIM_*
  {1, ONNX_INT,   offsetof(onnx_dim, value),      "dim_value",  NULL},
  {2, ONNX_BYTES, offsetof(onnx_dim, param),      "dim_param",  NULL},
  {3, ONNX_BYTES, offsetof(onnx_dim, denotation), "denotation", NULL},
};
static const onnx_schema dim_schema = SCHEMA(onnx_dim, "Dimension", dim_fields);

static const onnx_field shape_fields[] = {
  {1, ONNX_MESSAGES, offsetof(onnx_shape, dims), "dim", &dim_schema},
};
static const onnx_schema shape_schema = SCHEMA(onnx_shape, "TensorShapeProto", shape_fields);

static const onnx_field tensor_type_fields[] = {
  {1, ONNX_INT,     offsetof(onnx_tensor_type, elem_type), "elem_type", NULL},
  {2, ONNX_MESSAGE, offsetof(onnx_tensor_type, shape),     "shape",     &shape_schema},
};
static const onnx_schema tensor_type_schema = SCHEMA(onnx_tensor_type, "TypeProto.Tensor", tensor_type_fields);

static const onnx_schema type_schema;
static const onnx_field elem_fields[] = {
  {1, ONNX_MESSAGE, offsetof(onnx_elem, elem), "elem_type", &type_schema},
};
static const onnx_schema elem_schema = SCHEMA(onnx_elem, "TypeProto.Sequence", elem_fields);

static const onnx_field type_fields[] = {  // in the order of ONNX_HAS_SEQUENCE, ...
  {1, ONNX_MESSAGE, offsetof(onnx_type, tensor),        "tensor_type",        &tensor_type_schema},
  {4, ONNX_MESSAGE, offsetof(onnx_type, sequence),      "sequence_type",      &elem_schema},
  {5, ONNX_BYTES,   offsetof(onnx_type, map),           "map_type",           NULL},
  {9, ONNX_MESSAGE, offsetof(onnx_type, optional),      "optional_type",      &elem_schema},
  {8, ONNX_BYTES,   offsetof(onnx_type, sparse_tensor), "sparse_tensor_type", NULL},
  {7, ONNX_BYTES,   offsetof(onnx_type, opaque),        "opaque_type",        NULL},
  {6, ONNX_BYTES,   offsetof(onnx_type, denotation),    "denotation",         NULL},
};
static const onnx_schema type_schema = SCHEMA(onnx_type, "TypeProto", type_fields);

static const onnx_field value_info_fields[] = {
  {1, ONNX_BYTES,    offsetof(onnx_value_info, name),           "name",           NULL},
  {2, ONNX_MESSAGE,  offsetof(onnx_value_info, type),           "type",           &type_schema},
  {3, ONNX_BYTES,    offsetof(onnx_value_info, doc_string),     "doc_string",     NULL},
  {4, ONNX_MESSAGES, offsetof(onnx_value_info, metadata_props), "metadata_props", &entry_schema},
};
static const onnx_schema value_info_schema = SCHEMA(onnx_value_info, "ValueInfoProto", value_info_fields);

static const onnx_field attr_fields[] = {  // first rows in the order of ONNX_HAS_F, ...
  {2,  ONNX_FLOAT,    offsetof(onnx_attr, f),             "f",             NULL},
  {3,  ONNX_INT,      offsetof(onnx_attr, i),             "i",             NULL},
  {4,  ONNX_BYTES,    offsetof(onnx_attr, s),             "s",             NULL},
  {5,  ONNX_MESSAGE,  offsetof(onnx_attr, t),             "t",             &kiln_onnx_tensor_schema},
  {6,  ONNX_MESSAGE,  offsetof(onnx_attr, g),             "g",             &kiln_onnx_graph_schema},
  {7,  ONNX_FLOATS,   offsetof(onnx_attr, floats),        "floats",        NULL},
  {8,  ONNX_INTS,     offsetof(onnx_attr, ints),          "ints",          NULL},
  {9,  ONNX_BYTESES,  offsetof(onnx_attr, strings),       "strings",       NULL},
  {10, ONNX_MESSAGES, offsetof(onnx_attr, tensors),       "tensors",       &kiln_onnx_tensor_schema},
  {11, ONNX_MESSAGES, offsetof(onnx_attr, graphs),        "graphs",        &kiln_onnx_graph_schema},
  {1,  ONNX_BYTES,    offsetof(onnx_attr, name),          "name",          NULL},
  {13, ONNX_BYTES,    offsetof(onnx_attr, doc_string),    "doc_string",    NULL},
  {14, ONNX_BYTES,    offsetof(onnx_attr, type_proto),    "tp",            NULL},
  {20, ONNX_INT,      offsetof(onnx_attr, type),          "type",          NULL},
  {21, ONNX_BYTES,    offsetof(onnx_attr, ref_attr_name), "ref_attr_name", NULL},
  {22, ONNX_MESSAGE,  offsetof(onnx_attr, sparse),        "sparse_tensor", &sparse_schema},
};
const onnx_schema kiln_onnx_attr_schema = SCHEMA(onnx_attr, "AttributeProto", attr_fields);

static const onnx_field node_fields[] = {
  {1, ONNX_BYTESES,  offsetof(onnx_node, inputs),         "input",          NULL},
  {2, ONNX_BYTESES,  offsetof(onnx_node, outputs),        "output",         NULL},
  {3, ONNX_BYTES,    offsetof(onnx_node, name),           "name",           NULL},
  {4, ONNX_BYTES,    offsetof(onnx_node, op_type),        "op_type",        NULL},
  {5, ONNX_MESSAGES, offsetof(onnx_node, attrs),          "attribute",      &kiln_onnx_attr_schema},
  {6, ONNX_BYTES,    offsetof(onnx_node, doc_string),     "doc_string",     NULL},
  {7, ONNX_BYTES,    offsetof(onnx_node, domain),         "domain",         NULL},
  {8, ONNX_BYTES,    offsetof(onnx_node, overload),       "overload",       NULL},
  {9, ONNX_MESSAGES, offsetof(onnx_node, metadata_props), "metadata_props", &entry_schema},
};
const onnx_schema kiln_onnx_node_schema = SCHEMA(onnx_node, "NodeProto", node_fields);

static const onnx_field graph_fields[] = {
  {1,  ONNX_MESSAGES, offsetof(onnx_graph, nodes),               "node",               &kiln_onnx_node_schema},
  {2,  ONNX_BYTES,    offsetof(onnx_graph, name),                "name",               NULL},
  {5,  ONNX_MESSAGES, offsetof(onnx_graph, initializers),        "initializer",        &kiln_onnx_tensor_schema},
  {10, ONNX_BYTES,    offsetof(onnx_graph, doc_string),          "doc_string",         NULL},
  {11, ONNX_MESSAGES, offsetof(onnx_graph, inputs),              "input",              &value_info_schema},
  {12, ONNX_MESSAGES, offsetof(onnx_graph, outputs),             "output",             &value_info_schema},
  {13, ONNX_MESSAGES, offsetof(onnx_graph, value_infos),         "value_info",         &value_info_schema},
  {15, ONNX_MESSAGES, offsetof(onnx_graph, sparse_initializers), "sparse_initializer", &sparse_schema},
  {16, ONNX_MESSAGES, offsetof(onnx_graph, metadata_props),      "metadata_props",     &entry_schema},
};
const onnx_schema kiln_onnx_graph_schema = SCHEMA(onnx_graph, "GraphProto", graph_fields);

static const onnx_field opset_fields[] = {
  {1, ONNX_BYTES, offsetof(onnx_opset, domain),  "domain",  NULL},
  {2, ONNX_INT,   offsetof(onnx_opset, version), "version", NULL},
};
static const onnx_schema opset_schema = SCHEMA(onnx_opset, "OperatorSetIdProto", opset_fields);

static const onnx_field function_fields[] = {
  {1,  ONNX_BYTES,    offsetof(onnx_function, name),       "name",            NULL},
  {4,  ONNX_BYTESES,  offsetof(onnx_function, inputs),     "input",           NULL},
  {5,  ONNX_BYTESES,  offsetof(onnx_function, outputs),    "output",          NULL},
  {6,  ONNX_BYTESES,  offsetof(onnx_function, attributes), "attribute",       NULL},
  {7,  ONNX_MESSAGES, offsetof(onnx_function, nodes),      "node",            &kiln_onnx_node_schema},
  {8,  ONNX_BYTES,    offsetof(onnx_function, doc_string), "doc_string",      NULL},
  {9,  ONNX_MESSAGES, offsetof(onnx_function, opsets),     "opset_import",    &opset_schema},
  {10, ONNX_BYTES,    offsetof(onnx_function, domain),     "domain",          NULL},
  {11, ONNX_MESSAGES, offsetof(onnx_function, defaults),   "attribute_proto", &kiln_onnx_attr_schema},
  {13, ONNX_BYTES,    offsetof(onnx_function, overload),   "overload",        NULL},
};
static const onnx_schema function_schema = SCHEMA(onnx_function, "FunctionProto", function_fields);

static const onnx_field model_fields[] = {
  {1,  ONNX_INT,      offsetof(onnx_model, ir_version),       "ir_version",       NULL},
  {2,  ONNX_BYTES,    offsetof(onnx_model, producer_name),    "producer_name",    NULL},
  {3,  ONNX_BYTES,    offsetof(onnx_model, producer_version), "producer_version", NULL},
  {4,  ONNX_BYTES,    offsetof(onnx_model, domain),           "domain",           NULL},
  {5,  ONNX_INT,      offsetof(onnx_model, model_version),    "model_version",    NULL},
  {6,  ONNX_BYTES,    offsetof(onnx_model, doc_string),       "doc_string",       NULL},
  {7,  ONNX_MESSAGE,  offsetof(onnx_model, graph),            "graph",            &kiln_onnx_graph_schema},
  {8,  ONNX_MESSAGES, offsetof(onnx_model, opsets),           "opset_import",     &opset_schema},
  {14, ONNX_MESSAGES, offsetof(onnx_model, metadata_props),   "metadata_props",   &entry_schema},
  {25, ONNX_MESSAGES, offsetof(onnx_model, functions),        "functions",        &function_schema},
};
const onnx_schema kiln_onnx_model_schema = SCHEMA(onnx_model, "ModelProto", model_fields);
// clang-format on

bool kiln_onnx_is(onnx_bytes bytes, const char *text) {
  return bytes.n == strlen(text) && (bytes.n == 0 || memcmp(bytes.data, text, bytes.n) == 0);
}

kiln_symbol kiln_onnx_symbol(kiln_ctx *cx, onnx_bytes bytes) {
  if (bytes.n == 0) return 0;
  if (kiln_name_is_shown_as_is(bytes.data, bytes.n))
    return kiln_symbol_of_bytes(cx, bytes.data, bytes.n);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  char *shown = kiln_arena_alloc(&cx->scratch, KILN_PRINTABLE_GROWTH * bytes.n + 1);
  kiln_name_printable(bytes.data, bytes.n, shown);
  const kiln_symbol symbol = kiln_symbol_of(cx, shown);
  kiln_arena_rewind(&cx->scratch, mark);
  return symbol;
}

const char *kiln_onnx_text(kiln_ctx *cx, onnx_bytes bytes) {
  return kiln_symbol_text(cx, kiln_onnx_symbol(cx, bytes));
}
