// A model made smaller while something that the caller tries with it still fails.
//
// Works on messages: a node is taken out with what only it needed, and what others read of it
// becomes an input. Deterministic: the same model and the same answers give the same trials.
#ifndef KILN_ONNX_REDUCE_H
#define KILN_ONNX_REDUCE_H

#include "onnx/problem.h"
#include "onnx/proto.h"

// The type of a value, so that it can become an input.
typedef struct kiln_onnx_known {
  const char *name;
  int64_t elem_type; // TensorProto.DataType
  int rank;
  const int64_t *shape; // -1: not known
} kiln_onnx_known;

typedef struct kiln_onnx_reducing {
  const char *trial; // the file that a trial is written to
  const kiln_onnx_known *known;
  size_t n_known;
  bool (*fails)(void *user); // whether what lies at |trial| still fails
  void (*on_progress)(void *user, size_t tries, size_t nodes);
  void *user;
  size_t tries, nodes_before, nodes; // told
} kiln_onnx_reducing;

// Writes |path| with all values as outputs to |out|.
//
// errors: KILN_BAD_INPUT: it cannot be read, or |out| not be written
kiln_status kiln_onnx_expose(kiln_ctx *cx, const char *path, const char *out);

// Reduces |path| and writes the smallest model that failed to |out|.
//
// errors: KILN_BAD_INPUT: it cannot be read, or a file not be written; the whole does not fail
kiln_status kiln_onnx_reduce(kiln_ctx *cx, const char *path, const char *out,
                             kiln_onnx_reducing *how);

#endif
