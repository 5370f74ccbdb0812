// The ONNX reader: wire format in, graph out. Nothing else reads ONNX.
//
// Files are mapped; initializers and external data stay where they lie. Every problem of the file
// is a message, of which the first 20 are told. What the graph is like, beyond ir/graph.h:
// - Constant nodes are constants, and the model's own functions are inlined.
// - An input "x" that is a sequence or an optional value is inputs "x[0]", "x[1]", ..., as many as
// |dims| says of "x".
// - A value that a sub-graph takes from around it is a value of the sub-graph, too: of the same
//   name, type and constant, with producer -1, and not among its inputs.
// - Replacing a constant extent of an input makes the declared shapes of all other values void.
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
  const char *const
      *names; // [rank] of extents that are named, whatever |shape| says of them; NULL: none
} kiln_onnx_shape;
typedef struct kiln_onnx_constant {
  const char *input; // becomes an initializer
  kiln_const value;
} kiln_onnx_constant;
typedef struct kiln_onnx_memory { // a file of that name, or external data of that location
  const char *name;
  const char *data; // borrowed as long as the kiln_onnx_file lives
  size_t n;
} kiln_onnx_memory;
typedef struct kiln_onnx_options {
  int n_dims, n_shapes, n_constants;
  const kiln_onnx_dim
      *dims; // bind named dimensions, and how many tensors an input is that is a list
  const kiln_onnx_shape *shapes; // replace the declared shape of inputs
  const kiln_onnx_constant *constants;
  int n_overridable; // inputs whose initializers stay inputs, by name; "*": all
  const char *const *overridable;
  bool
      keeps_lists; // inputs that are sequences or optional values are only told of, which no node can use then
  int n_memory; // files that are not opened
  const kiln_onnx_memory *memory;
} kiln_onnx_options;

typedef struct kiln_onnx_file
    kiln_onnx_file; // the mapped files; must outlive the graph and what borrows its constants

// gives: *out_file (close with kiln_onnx_close) and *out_graph (in cx->perm); nothing on failure
// errors: KILN_BAD_INPUT with the path and the place in it
kiln_status kiln_onnx_read(kiln_ctx *cx, const char *path, const kiln_onnx_options *options,
                           kiln_onnx_file **out_file, kiln_graph **out_graph);
void kiln_onnx_close(kiln_onnx_file *file); // NULL is allowed
// The |n| bytes at |data| will not be wanted soon: whole pages of them that lie in a mapped file
// are given back to the system, which reads them again when they are touched. Other memory is left.
void kiln_onnx_file_forget(const kiln_onnx_file *file, const void *data, size_t n);
void kiln_onnx_file_forget_all(const kiln_onnx_file *file);
// The location of external file |i| that was asked for, relative to the folder of the model; NULL
// past the last.
const char *kiln_onnx_file_location(const kiln_onnx_file *file, int i);
// Whether |info| is of the model's file or of one of its external files.
struct stat;
bool kiln_onnx_file_is_of(const kiln_onnx_file *file, const struct stat *info);

// Calls |visit| with domain and operator of every node of the graph, in the file's order.
//
// errors: KILN_BAD_INPUT where it is no model
kiln_status kiln_onnx_read_operators(kiln_ctx *cx, const char *path,
                                     void (*visit)(void *user, const char *domain, const char *op),
                                     void *user);

// Reads a file that is one serialized TensorProto; elements are borrowed from |*out_file| or made
// in cx->perm (typed fields).
kiln_status kiln_onnx_read_tensor(kiln_ctx *cx, const char *path, kiln_onnx_file **out_file,
                                  kiln_const *out);

// The same of a file that is one value of |type|, as kiln_value.list names it, or NULL for a
// tensor: at most |max| of its tensors, in order.
//
// gives: *out_n tensors, which may be more than |max|; -1: an optional value without one
kiln_status kiln_onnx_read_value(kiln_ctx *cx, const char *path, const char *type, int max,
                                 kiln_onnx_file **out_file, int *out_n, kiln_const *out);

enum { KILN_ONNX_NEWEST_IR = 14, KILN_ONNX_NEWEST_OPSET = 28 };

#endif
