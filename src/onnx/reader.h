// The ONNX reader: from the wire format to a graph. All ONNX input goes through it.
//
// Files are mapped; initializers and external data are used in place. Every problem of the file is
// counted, and the first 20 are reported. The graph has these properties in addition to those of
// ir/graph.h:
// - Constant nodes are constants, and the model's own functions are inlined.
// - An input "x" that is a sequence or an optional value becomes inputs "x[0]", "x[1]", ..., as
//   many as |dims| gives for "x".
// - A value that a sub-graph captures is a value of the sub-graph, too: with the same name, type
//   and constant, with producer -1, and not among its inputs.
// - Replacing a constant extent of an input voids the declared shapes of all other values.
// - An IR version newer than KILN_ONNX_NEWEST_IR is a warning, a newer opset is unsupported.
#ifndef KILN_ONNX_READER_H
#define KILN_ONNX_READER_H

#include "ir/graph.h"

typedef struct kiln_onnx_dim {
  const char *name;
  int64_t value;
} kiln_onnx_dim;
typedef struct kiln_onnx_shape {
  const char *input;
  int rank;
  const int64_t *shape;
  const char *const *names; // [rank] new names of extents, overriding |shape|; NULL: none
} kiln_onnx_shape;
typedef struct kiln_onnx_constant {
  const char *input; // becomes an initializer
  kiln_const value;
} kiln_onnx_constant;
typedef struct kiln_onnx_memory { // contents of a file or of external data, by name or location
  const char *name;
  const char *data; // borrowed while the kiln_onnx_file lives
  size_t n;
} kiln_onnx_memory;
typedef struct kiln_onnx_options {
  int n_dims, n_shapes, n_constants;
  const kiln_onnx_dim
      *dims; // values of named dimensions, and numbers of tensors of inputs that are lists
  const kiln_onnx_shape *shapes; // replace the declared shape of inputs
  const kiln_onnx_constant *constants;
  int n_overridable; // inputs whose initializers are only defaults, by name; "*": all
  const char *const *overridable;
  bool keeps_lists; // inputs that are sequences or optional values are kept for listing; nodes
                    // cannot use them
  int n_memory;     // files given by the caller
  const kiln_onnx_memory *memory;
} kiln_onnx_options;

typedef struct kiln_onnx_file
    kiln_onnx_file; // the mapped files; must outlive the graph and borrowers of its constants

// gives: *out_file (close with kiln_onnx_close) and *out_graph (in cx->perm); nothing on failure
// errors: KILN_BAD_INPUT with the path and the place in it
kiln_status kiln_onnx_read(kiln_ctx *cx, const char *path, const kiln_onnx_options *options,
                           kiln_onnx_file **out_file, kiln_graph **out_graph);
void kiln_onnx_close(kiln_onnx_file *file); // NULL is allowed
// Releases whole pages of the |n| bytes at |data| that are in a mapped file; the system rereads
// them when they are accessed. Other memory is left alone.
void kiln_onnx_file_forget(const kiln_onnx_file *file, const void *data, size_t n);
void kiln_onnx_file_forget_all(const kiln_onnx_file *file);
// The location of external file |i|, in order of opening, relative to the model's folder; NULL past
// the last.
const char *kiln_onnx_file_location(const kiln_onnx_file *file, int i);
// Whether |info| describes the model's file or one of its external files.
struct stat;
bool kiln_onnx_file_is_of(const kiln_onnx_file *file, const struct stat *info);

// Calls |visit| with domain and operator of every node of the graph, in the file's order.
//
// errors: KILN_BAD_INPUT if it is not a model
kiln_status kiln_onnx_read_operators(kiln_ctx *cx, const char *path,
                                     void (*visit)(void *user, const char *domain, const char *op),
                                     void *user);

// Reads a file with one serialized TensorProto; its elements are borrowed from |*out_file| or, for
// typed fields, made in cx->perm.
kiln_status kiln_onnx_read_tensor(kiln_ctx *cx, const char *path, kiln_onnx_file **out_file,
                                  kiln_const *out);

// The same for a file with one value of |type|, as in kiln_value.list, or NULL for a tensor: at
// most |max| of its tensors, in order.
//
// gives: *out_n tensors, possibly more than |max|; -1: an empty optional value
kiln_status kiln_onnx_read_value(kiln_ctx *cx, const char *path, const char *type, int max,
                                 kiln_onnx_file **out_file, int *out_n, kiln_const *out);

enum { KILN_ONNX_NEWEST_IR = 14, KILN_ONNX_NEWEST_OPSET = 28 };

#endif
