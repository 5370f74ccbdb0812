// SPDX-License-Identifier: Apache-2.0
// The part of ONNX Runtime's C interface that a compiling execution provider uses, as of API
// version 23 (ONNX Runtime 1.23), and of version 24 what GPUs need.
//
// The tables are versioned: an entry keeps its position in later releases, and new ones are
// appended.
// Entries that are not used here are gaps. test/ort/provider.py calls every used entry in the
// installed library, which would fail at a wrong position.
#ifndef KILN_ORT_ABI_H
#define KILN_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_API_USED = 23, ORT_API_HAS_SHAPE = 24, ORT_API_HAS_KERNELS = 24 };

// Objects of ONNX Runtime.
typedef struct ort_status ort_status; // NULL: success
typedef struct ort_value ort_value;
typedef struct ort_type ort_type;
typedef struct ort_tensor_type ort_tensor_type;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_value_info ort_value_info; // a named value of a graph
typedef struct ort_attribute ort_attribute;
typedef struct ort_kernel_context ort_kernel_context;
typedef struct ort_compute_context ort_compute_context;
typedef struct ort_session_options ort_session_options;
typedef struct ort_pairs ort_pairs; // of texts
typedef struct ort_logger ort_logger;
typedef struct ort_hardware ort_hardware;
typedef struct ort_device ort_device; // that a provider offers for a hardware device
typedef struct ort_support ort_support;
typedef struct ort_memory_info ort_memory_info; // of an allocator: a device and a kind of memory
typedef struct ort_memory_device ort_memory_device; // the same, of a tensor
typedef struct ort_sync_stream ort_sync_stream;     // has an ort_stream of a provider
typedef struct ort_registry ort_registry;           // of a provider's kernels of single nodes
typedef struct ort_kernel_builder ort_kernel_builder;
typedef struct ort_kernel_def ort_kernel_def;
typedef struct ort_kernel_info ort_kernel_info;
typedef struct ort_data_type ort_data_type;

typedef enum ort_error {
  ORT_FAIL = 1,
  ORT_INVALID_ARGUMENT = 2,
  ORT_NOT_IMPLEMENTED = 9,
  ORT_INVALID_GRAPH = 10,
  ORT_EP_FAIL = 11
} ort_error;
typedef enum ort_severity { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR, ORT_FATAL } ort_severity;
typedef enum ort_kind { ORT_UNKNOWN, ORT_TENSOR } ort_kind;
typedef enum ort_attribute_type {
  ORT_ATTR_UNDEFINED,
  ORT_ATTR_INT,
  ORT_ATTR_INTS,
  ORT_ATTR_FLOAT,
  ORT_ATTR_FLOATS,
  ORT_ATTR_STRING,
  ORT_ATTR_STRINGS,
  ORT_ATTR_GRAPH,
  ORT_ATTR_TENSOR
} ort_attribute_type;
typedef enum ort_hardware_type { ORT_CPU, ORT_GPU, ORT_NPU } ort_hardware_type;
typedef enum ort_place { ORT_ON_CPU, ORT_ON_GPU } ort_place; // of memory
typedef enum ort_access { ORT_DEVICE_ONLY = 0, ORT_HOST_ACCESSIBLE = 5 } ort_access;
enum { ORT_DEVICE_ALLOCATOR = 0, ORT_OUTPUT_ON_HOST = -1, ORT_INPUT_ON_HOST = -2 };
// Whether a previously compiled model suits this machine.
typedef enum ort_fit { ORT_FIT_OTHER, ORT_FIT_GOOD, ORT_FIT_OLD, ORT_FIT_NOT } ort_fit;
// ONNX's numbers of element types, except these three, which ONNX numbers 25, 26 and 24.
typedef enum ort_element {
  ORT_STRING = 8,
  ORT_UINT2 = 24,
  ORT_INT2 = 25,
  ORT_E8M0 = 26
} ort_element;

// --- tables of ONNX Runtime ---

typedef struct ort_ep_factory ort_ep_factory;
typedef void *ort_gap;
struct ort_fusion;
struct ort_stream;
struct ort_kernel;
typedef ort_status *ort_make_kernel(void *state, const ort_kernel_info *, struct ort_kernel **out);

typedef struct ort_ep_api {
  ort_status *(*create_device)(ort_ep_factory *, const ort_hardware *, const ort_pairs *metadata,
                               const ort_pairs *options, ort_device **out);
  ort_gap gap_1;
  ort_status *(*add_nodes_to_fuse)(ort_support *, const ort_node *const *, size_t n,
                                   const struct ort_fusion *);
  ort_gap gap_3[2];
  ort_status *(*add_memory)(ort_device *, const ort_memory_info *);
  const ort_memory_device *(*memory_device)(const ort_memory_info *);
  const ort_memory_device *(*value_device)(const ort_value *); // NULL: no tensor
  ort_gap gap_8;
  ort_place (*place)(const ort_memory_device *);
  ort_access (*access)(const ort_memory_device *);
  uint32_t (*memory_vendor)(const ort_memory_device *);
  uint32_t (*memory_index)(const ort_memory_device *); // the device's number
  const struct ort_stream *(*stream_impl)(const ort_sync_stream *);
  ort_gap gap_14[2];
  // since API version 24
  ort_status *(*create_hardware)(ort_hardware_type, uint32_t vendor, uint32_t device,
                                 const char *vendor_name, const ort_pairs *metadata,
                                 ort_hardware **out);
  void (*release_hardware)(ort_hardware *);
  ort_status *(*create_registry)(ort_registry **out);
  void (*release_registry)(ort_registry *);
  ort_status *(*add_kernel)(ort_registry *, const ort_kernel_def *, ort_make_kernel *, void *state);
  ort_status *(*create_builder)(ort_kernel_builder **out);
  void (*release_builder)(ort_kernel_builder *);
  ort_status *(*set_operator)(ort_kernel_builder *, const char *);
  ort_status *(*set_domain)(ort_kernel_builder *, const char *);
  ort_status *(*set_versions)(ort_kernel_builder *, int first, int last);
  ort_status *(*set_provider)(ort_kernel_builder *, const char *);
  ort_status *(*set_input_memory)(ort_kernel_builder *, size_t input, int memory);
  ort_status *(*set_output_memory)(ort_kernel_builder *, size_t output, int memory);
  ort_status *(*set_types)(ort_kernel_builder *, const char *constraint,
                           const ort_data_type *const *, size_t n);
  ort_gap gap_30[2];
  ort_status *(*build)(ort_kernel_builder *, ort_kernel_def **out);
  void (*release_def)(ort_kernel_def *);
  ort_gap gap_34[6];
  ort_status *(*tensor_type_of)(int element, const ort_data_type **out);
} ort_ep_api;

typedef struct ort_editor_api {
  ort_gap gap_0[6];
  ort_status *(*create_node)(const char *op, const char *domain, const char *name,
                             const char *const *inputs, size_t n_inputs, const char *const *outputs,
                             size_t n_outputs, ort_attribute **, size_t n_attributes,
                             ort_node **out);
} ort_editor_api;

typedef struct ort_api {
  ort_status *(*create_status)(ort_error, const char *message);
  ort_gap gap_1[50];
  ort_status *(*tensor_data)(ort_value *, void **out);
  ort_gap gap_52[3];
  ort_status *(*type_as_tensor)(const ort_type *, const ort_tensor_type **out);
  ort_status *(*type_kind)(const ort_type *, ort_kind *out);
  ort_gap gap_57[3];
  ort_status *(*tensor_element)(const ort_tensor_type *, int *out);
  ort_status *(*tensor_rank)(const ort_tensor_type *, size_t *out);
  ort_status *(*tensor_dims)(const ort_tensor_type *, int64_t *out, size_t n);
  ort_status *(*tensor_dim_names)(const ort_tensor_type *, const char **out, size_t n);
  ort_gap gap_64;
  ort_status *(*value_type)(const ort_value *, ort_tensor_type **out);
  ort_gap gap_66[24];
  ort_status *(*kernel_input)(const ort_kernel_context *, size_t i, const ort_value **out);
  ort_status *(*kernel_output)(ort_kernel_context *, size_t i, const int64_t *dims, size_t rank,
                               ort_value **out);
  ort_gap gap_92;
  void (*release_status)(ort_status *);
  void (*release_memory_info)(ort_memory_info *);
  ort_gap gap_95;
  void (*release_value)(ort_value *);
  ort_gap gap_97[2];
  void (*release_tensor_type)(ort_tensor_type *);
  ort_gap gap_100[93];
  ort_status *(*kernel_stream)(const ort_kernel_context *, void **out_handle); // NULL: none
  ort_gap gap_194[17];
  ort_status *(*create_attribute)(const char *name, const void *data, int n, ort_attribute_type,
                                  ort_attribute **out);
  void (*release_attribute)(ort_attribute *);
  ort_gap gap_213[24];
  ort_status *(*has_option)(const ort_session_options *, const char *key, int *out);
  ort_status *(*option)(const ort_session_options *, const char *key, char *out, size_t *io_size);
  ort_gap gap_239[8];
  ort_status *(*log)(const ort_logger *, ort_severity, const char *message, const char *file,
                     int line, const char *function);
  ort_gap gap_248[24];
  ort_status *(*read_attribute)(const ort_attribute *, ort_attribute_type, void *out, size_t room,
                                size_t *out_n);
  ort_gap gap_273[16];
  ort_status *(*info_name)(const ort_value_info *, const char **out);
  ort_status *(*info_type)(const ort_value_info *, const ort_type **out);
  const ort_editor_api *(*editor_api)(void);
  ort_gap gap_292[3];
  void (*create_pairs)(ort_pairs **out);
  void (*add_pair)(ort_pairs *, const char *key, const char *value);
  const char *(*pair_value)(const ort_pairs *, const char *key); // NULL: there is none
  ort_gap gap_298[2];
  void (*release_pairs)(ort_pairs *);
  ort_gap gap_301[6];
  ort_hardware_type (*hardware_type)(const ort_hardware *);
  uint32_t (*hardware_vendor)(const ort_hardware *);
  ort_gap gap_309[8];
  const ort_ep_api *(*ep_api)(void);
  ort_status *(*value_bytes)(const ort_value *, size_t *out);
  ort_gap gap_319;
  ort_status *(*create_memory_info)(const char *name, ort_place, uint32_t vendor, int32_t index,
                                    ort_access, size_t alignment, int allocator,
                                    ort_memory_info **out);
  ort_gap gap_321[5];
  ort_status *(*info_initializer)(const ort_value_info *, const ort_value **out);
  ort_gap gap_327[3];
  ort_status *(*info_is_output)(const ort_value_info *, bool *out);
  ort_status *(*info_is_constant)(const ort_value_info *, bool *out);
  ort_gap gap_332;
  ort_status *(*graph_name)(const ort_graph *, const char **out);
  ort_status *(*graph_path)(const ort_graph *, const char **out);
  ort_status *(*graph_ir_version)(const ort_graph *, int64_t *out);
  ort_status *(*n_opsets)(const ort_graph *, size_t *out);
  ort_status *(*opsets)(const ort_graph *, const char **domains, int64_t *versions, size_t n);
  ort_status *(*n_graph_inputs)(const ort_graph *, size_t *out);
  ort_status *(*graph_inputs)(const ort_graph *, const ort_value_info **out, size_t n);
  ort_status *(*n_graph_outputs)(const ort_graph *, size_t *out);
  ort_status *(*graph_outputs)(const ort_graph *, const ort_value_info **out, size_t n);
  ort_status *(*n_graph_initializers)(const ort_graph *, size_t *out);
  ort_status *(*graph_initializers)(const ort_graph *, const ort_value_info **out, size_t n);
  ort_status *(*n_graph_nodes)(const ort_graph *, size_t *out);
  ort_status *(*graph_nodes)(const ort_graph *, const ort_node **out, size_t n);
  ort_status *(*graph_parent)(const ort_graph *, const ort_node **out);
  ort_gap gap_347[2];
  ort_status *(*node_name)(const ort_node *, const char **out);
  ort_status *(*node_operator)(const ort_node *, const char **out);
  ort_status *(*node_domain)(const ort_node *, const char **out);
  ort_gap gap_352;
  ort_status *(*n_node_inputs)(const ort_node *, size_t *out);
  ort_status *(*node_inputs)(const ort_node *, const ort_value_info **out, size_t n);
  ort_status *(*n_node_outputs)(const ort_node *, size_t *out);
  ort_status *(*node_outputs)(const ort_node *, const ort_value_info **out, size_t n);
  // values that its sub-graphs capture
  ort_status *(*n_node_captures)(const ort_node *, size_t *out);
  ort_status *(*node_captures)(const ort_node *, const ort_value_info **out, size_t n);
  ort_status *(*n_node_attributes)(const ort_node *, size_t *out);
  ort_status *(*node_attributes)(const ort_node *, const ort_attribute **out, size_t n);
  ort_status *(*node_attribute)(const ort_node *, const char *name, const ort_attribute **out);
  ort_status *(*attribute_tensor)(const ort_attribute *, ort_value **out);
  ort_status *(*attribute_type)(const ort_attribute *, ort_attribute_type *out);
  ort_status *(*attribute_name)(const ort_attribute *, const char **out);
  ort_status *(*n_node_graphs)(const ort_node *, size_t *out);
  ort_status *(*node_graphs)(const ort_node *, const ort_graph **out, size_t n, const char **names);
  ort_gap gap_367[11];
  ort_status *(*value_data)(const ort_value *, const void **out);
  ort_gap gap_379[11];
  bool (*tensor_has_shape)(const ort_tensor_type *); // since API version 24
} ort_api;

#define ORT_AT(table, entry, place)                                                                \
  _Static_assert(offsetof(table, entry) == (place) * sizeof(void *), #entry)
ORT_AT(ort_ep_api, add_nodes_to_fuse, 2);
ORT_AT(ort_ep_api, add_memory, 5);
ORT_AT(ort_ep_api, place, 9);
ORT_AT(ort_ep_api, stream_impl, 13);
ORT_AT(ort_ep_api, create_hardware, 16);
ORT_AT(ort_ep_api, set_types, 29);
ORT_AT(ort_ep_api, build, 32);
ORT_AT(ort_ep_api, tensor_type_of, 40);
ORT_AT(ort_editor_api, create_node, 6);
ORT_AT(ort_api, tensor_data, 51);
ORT_AT(ort_api, tensor_element, 60);
ORT_AT(ort_api, value_type, 65);
ORT_AT(ort_api, kernel_input, 90);
ORT_AT(ort_api, release_status, 93);
ORT_AT(ort_api, release_memory_info, 94);
ORT_AT(ort_api, release_tensor_type, 99);
ORT_AT(ort_api, kernel_stream, 193);
ORT_AT(ort_api, create_attribute, 211);
ORT_AT(ort_api, has_option, 237);
ORT_AT(ort_api, log, 247);
ORT_AT(ort_api, read_attribute, 272);
ORT_AT(ort_api, info_name, 289);
ORT_AT(ort_api, create_pairs, 295);
ORT_AT(ort_api, pair_value, 297);
ORT_AT(ort_api, release_pairs, 300);
ORT_AT(ort_api, hardware_type, 307);
ORT_AT(ort_api, ep_api, 317);
ORT_AT(ort_api, create_memory_info, 320);
ORT_AT(ort_api, info_initializer, 326);
ORT_AT(ort_api, info_is_constant, 331);
ORT_AT(ort_api, graph_path, 334);
ORT_AT(ort_api, graph_parent, 346);
ORT_AT(ort_api, node_name, 349);
ORT_AT(ort_api, n_node_inputs, 353);
ORT_AT(ort_api, node_graphs, 366);
ORT_AT(ort_api, value_data, 378);
ORT_AT(ort_api, tensor_has_shape, 390);

typedef struct ort_api_base {
  const ort_api *(*api)(uint32_t version);
  const char *(*version)(void); // "1.23.0"
} ort_api_base;

// --- tables of a provider ---

typedef struct ort_fusion {
  uint32_t version;
  bool drops_constants; // initializers are not passed as inputs to the fused node
} ort_fusion;

typedef struct ort_compute ort_compute;
struct ort_compute { // runs a fused node
  uint32_t version;
  ort_status *(*create_state)(ort_compute *, ort_compute_context *, void **out);
  ort_status *(*run)(ort_compute *, void *state, ort_kernel_context *);
  void (*release_state)(ort_compute *, void *state);
};

// --- objects of a provider for a device's memory ---

typedef struct ort_allocator ort_allocator;
struct ort_allocator {
  uint32_t version;
  void *(*allocate)(ort_allocator *, size_t bytes); // NULL: memory ran out
  void (*free)(ort_allocator *, void *memory);
  const ort_memory_info *(*info)(const ort_allocator *);
  void *(*reserve)(ort_allocator *, size_t bytes); // for long
  ort_status *(*stats)(const ort_allocator *, ort_pairs **out);
  void *(*allocate_in)(ort_allocator *, size_t bytes, ort_sync_stream *);
  ort_gap later[4];
};

typedef struct ort_transfer ort_transfer;
struct ort_transfer { // copies tensors
  uint32_t version;
  void (*release)(ort_transfer *);
  bool (*can_copy)(const ort_transfer *, const ort_memory_device *from,
                   const ort_memory_device *to);
  ort_status *(*copy)(ort_transfer *, const ort_value **from, ort_value **to,
                      ort_sync_stream **streams, size_t n); // |streams|, each: may be NULL
  ort_gap later[4];
};

typedef struct ort_notification ort_notification;
struct ort_notification { // a point in a stream's work
  uint32_t version;
  void (*release)(ort_notification *);
  ort_status *(*activate)(ort_notification *);
  ort_status *(*wait_on_device)(ort_notification *, ort_sync_stream *by);
  ort_status *(*wait_on_host)(ort_notification *);
  ort_gap later[4];
};

typedef struct ort_stream ort_stream;
struct ort_stream {
  uint32_t version;
  void (*release)(ort_stream *);
  void *(*handle)(ort_stream *);
  ort_status *(*notify)(ort_stream *, ort_notification **out);
  ort_status *(*flush)(ort_stream *);
  ort_status *(*end_run)(ort_stream *);
  ort_gap later[4];
};

typedef struct ort_kernel ort_kernel;
struct ort_kernel { // runs a single node; since API version 24
  uint32_t version, flags;
  ort_status *(*run)(ort_kernel *, ort_kernel_context *);
  void (*release)(ort_kernel *);
  ort_gap later[4];
};

typedef struct ort_ep ort_ep;
struct ort_ep {
  uint32_t version;
  const char *(*name)(const ort_ep *);
  ort_status *(*capability)(ort_ep *, const ort_graph *, ort_support *);
  ort_status *(*compile)(ort_ep *, const ort_graph **, const ort_node **fused, size_t n,
                         ort_compute **out, ort_node **out_contexts);
  void (*release_computes)(ort_ep *, ort_compute **, size_t n);
  ort_gap gap_5[7]; // layout, dynamic options, begin and end of runs, allocators, streams
  const char *(*compatibility)(ort_ep *, const ort_graph *);
  ort_status *(*registry)(ort_ep *, const ort_registry **out); // since API version 24
  ort_gap later[8]; // entries of later API versions than the declared one
};

struct ort_ep_factory {
  uint32_t version;
  const char *(*name)(const ort_ep_factory *);
  const char *(*vendor)(const ort_ep_factory *);
  ort_status *(*devices)(ort_ep_factory *, const ort_hardware *const *, size_t n, ort_device **out,
                         size_t room, size_t *out_n);
  ort_status *(*create_ep)(ort_ep_factory *, const ort_hardware *const *,
                           const ort_pairs *const *metadata, size_t n, const ort_session_options *,
                           const ort_logger *, ort_ep **out);
  void (*release_ep)(ort_ep_factory *, ort_ep *);
  uint32_t (*vendor_id)(const ort_ep_factory *);
  const char *(*ep_version)(const ort_ep_factory *);
  ort_status *(*validate)(ort_ep_factory *, const ort_hardware *const *, size_t n,
                          const char *compatibility, ort_fit *out);
  ort_status *(*create_allocator)(ort_ep_factory *, const ort_memory_info *, const ort_pairs *,
                                  ort_allocator **out);
  void (*release_allocator)(ort_ep_factory *, ort_allocator *);
  ort_status *(*create_transfer)(ort_ep_factory *, ort_transfer **out);
  bool (*is_stream_aware)(const ort_ep_factory *);
  ort_status *(*create_stream)(ort_ep_factory *, const ort_memory_device *, const ort_pairs *,
                               ort_stream **out);
  ort_gap later[8];
};
ORT_AT(ort_ep, compatibility, 12);
ORT_AT(ort_ep_factory, is_stream_aware, 12);
#undef ORT_AT

#endif
