// ONNX's messages as structs, and the tables for decoding them (see wire.h).
//
// Parts that Kiln does not use are left out: training, quantization annotations, device placement.
// Strings are borrowed from the mapped file and not terminated.
#ifndef KILN_ONNX_PROTO_H
#define KILN_ONNX_PROTO_H

#include "onnx/wire.h"

typedef struct onnx_entry { // StringStringEntryProto
  uint64_t has;
  onnx_bytes key, value;
} onnx_entry;
typedef ONNX_LIST(onnx_entry) onnx_entries;

typedef struct onnx_tensor {
  uint64_t has;
  ONNX_LIST(int64_t) dims;
  int64_t data_type, data_location;
  onnx_bytes segment, name, doc_string, raw_data;
  onnx_packed float_data, double_data;
  ONNX_LIST(int64_t) int32_data, int64_data, uint64_data; // varints, sign-extended
  ONNX_LIST(onnx_bytes) string_data;
  onnx_entries external_data, metadata_props;
} onnx_tensor;

typedef struct onnx_sequence_value { // SequenceProto
  uint64_t has;
  ONNX_LIST(onnx_tensor) tensors;
} onnx_sequence_value;

typedef struct onnx_optional_value { // OptionalProto
  uint64_t has;
  onnx_tensor *tensor;
  onnx_sequence_value *sequence;
} onnx_optional_value;

typedef struct onnx_sparse {
  uint64_t has;
  onnx_tensor *values, *indices;
  ONNX_LIST(int64_t) dims;
} onnx_sparse;

typedef struct onnx_dim {
  uint64_t has; // ONNX_HAS_DIM_VALUE, ONNX_HAS_DIM_PARAM
  int64_t value;
  onnx_bytes param, denotation;
} onnx_dim;
enum { ONNX_HAS_DIM_VALUE = 1, ONNX_HAS_DIM_PARAM = 2 };

typedef struct onnx_shape {
  uint64_t has;
  ONNX_LIST(onnx_dim) dims;
} onnx_shape;

typedef struct onnx_tensor_type {
  uint64_t has;
  int64_t elem_type;
  onnx_shape *shape; // NULL: unknown rank
} onnx_tensor_type;

typedef struct onnx_type onnx_type;
typedef struct onnx_elem { // TypeProto.Sequence, TypeProto.Optional
  uint64_t has;
  onnx_type *elem;
} onnx_elem;
struct onnx_type { // unsupported forms are not decoded: at most one member has data
  uint64_t has;
  onnx_tensor_type *tensor;
  onnx_elem *sequence, *optional;
  onnx_bytes map, sparse_tensor, opaque, denotation;
};
enum { // bits of onnx_type.has
  ONNX_HAS_SEQUENCE = 2,
  ONNX_HAS_MAP = 4,
  ONNX_HAS_OPTIONAL = 8,
  ONNX_HAS_SPARSE = 16,
  ONNX_HAS_OPAQUE = 32
};

typedef struct onnx_value_info {
  uint64_t has;
  onnx_bytes name, doc_string;
  onnx_type *type;
  onnx_entries metadata_props;
} onnx_value_info;

typedef struct onnx_graph onnx_graph;
typedef struct onnx_attr {
  uint64_t has; // bit k is row k of the table: ONNX_HAS_F, ...
  onnx_bytes name, ref_attr_name, doc_string, s;
  int64_t type, i;
  float f;
  onnx_tensor *t;
  onnx_graph *g;
  onnx_sparse *sparse;
  onnx_bytes type_proto;
  onnx_packed floats;
  ONNX_LIST(int64_t) ints;
  ONNX_LIST(onnx_bytes) strings;
  ONNX_LIST(onnx_tensor) tensors;
  ONNX_LIST(onnx_graph) graphs;
} onnx_attr;
enum { // bits of onnx_attr.has
  ONNX_HAS_F = 1,
  ONNX_HAS_I = 2,
  ONNX_HAS_S = 4,
  ONNX_HAS_T = 8,
  ONNX_HAS_G = 16,
  ONNX_HAS_FLOATS = 32,
  ONNX_HAS_INTS = 64,
  ONNX_HAS_STRINGS = 128
};
enum { // AttributeProto.AttributeType
  ONNX_ATTR_NONE,
  ONNX_ATTR_FLOAT,
  ONNX_ATTR_INT,
  ONNX_ATTR_STRING,
  ONNX_ATTR_TENSOR,
  ONNX_ATTR_GRAPH,
  ONNX_ATTR_FLOATS,
  ONNX_ATTR_INTS,
  ONNX_ATTR_STRINGS,
  ONNX_ATTR_TENSORS,
  ONNX_ATTR_GRAPHS,
  ONNX_ATTR_SPARSE_TENSOR,
  ONNX_ATTR_SPARSE_TENSORS,
  ONNX_ATTR_TYPE,
  ONNX_ATTR_TYPES
};

typedef struct onnx_opset {
  uint64_t has;
  onnx_bytes domain;
  int64_t version;
} onnx_opset;
typedef ONNX_LIST(onnx_opset) onnx_opsets;

typedef struct onnx_node {
  uint64_t has;
  ONNX_LIST(onnx_bytes) inputs, outputs;
  onnx_bytes name, op_type, domain, overload, doc_string;
  ONNX_LIST(onnx_attr) attrs;
  onnx_entries metadata_props;
  const onnx_opsets *opsets; // of the function from which the node was inlined; NULL: the model's
} onnx_node;
typedef ONNX_LIST(onnx_node) onnx_nodes;

struct onnx_graph {
  uint64_t has;
  onnx_nodes nodes;
  onnx_bytes name, doc_string;
  ONNX_LIST(onnx_tensor) initializers;
  ONNX_LIST(onnx_sparse) sparse_initializers;
  ONNX_LIST(onnx_value_info) inputs, outputs, value_infos;
  onnx_entries metadata_props;
};

typedef struct onnx_function {
  uint64_t has;
  onnx_bytes name, domain, overload, doc_string;
  ONNX_LIST(onnx_bytes) inputs, outputs, attributes;
  ONNX_LIST(onnx_attr) defaults; // attributes with default values
  onnx_nodes nodes;
  onnx_opsets opsets;
} onnx_function;

typedef struct onnx_model {
  uint64_t has;
  int64_t ir_version, model_version;
  onnx_opsets opsets;
  onnx_bytes producer_name, producer_version, domain, doc_string;
  onnx_graph *graph;
  onnx_entries metadata_props;
  ONNX_LIST(onnx_function) functions;
} onnx_model;

extern const onnx_schema kiln_onnx_sequence_schema, kiln_onnx_optional_schema;
extern const onnx_schema kiln_onnx_model_schema, kiln_onnx_graph_schema, kiln_onnx_node_schema,
    kiln_onnx_attr_schema, kiln_onnx_tensor_schema;

bool kiln_onnx_is(onnx_bytes bytes, const char *text);
// A string of the file as a symbol, escaped for output (support/printable.h).
kiln_symbol kiln_onnx_symbol(kiln_ctx *cx, onnx_bytes bytes);
const char *kiln_onnx_text(kiln_ctx *cx, onnx_bytes bytes); // the same as text

#endif
