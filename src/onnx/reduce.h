// Model reduction: shrinks a model while the caller's test on it still fails.
//
// Works on messages: a node is removed with everything only it needed; its results that others read
// become inputs. Deterministic: the same model and test results give the same trials.
#ifndef KILN_ONNX_REDUCE_H
#define KILN_ONNX_REDUCE_H

#include "onnx/problem.h"
#include "onnx/proto.h"

// The type of a value, for making it an input.
typedef struct kiln_onnx_known {
  const char *name;
  int64_t elem_type; // TensorProto.DataType
  int rank;
  const int64_t *shape; // -1: unknown
} kiln_onnx_known;

typedef struct kiln_onnx_reducing {
  const char *trial; // path of the file for trials
  const kiln_onnx_known *known;
  size_t n_known;
  bool (*fails)(void *user); // whether the model at |trial| still fails
  void (*on_progress)(void *user, size_t tries, size_t nodes);
  void *user;
  size_t tries, nodes_before, nodes; // out: statistics
} kiln_onnx_reducing;

// Writes |path| to |out| with all values as outputs.
//
// errors: KILN_BAD_INPUT: |path| cannot be read or |out| not be written
kiln_status kiln_onnx_expose(kiln_ctx *cx, const char *path, const char *out);

// Reduces |path| and writes the smallest model that failed to |out|.
//
// errors: KILN_BAD_INPUT: a file cannot be read or written, or the whole model does not fail
kiln_status kiln_onnx_reduce(kiln_ctx *cx, const char *path, const char *out,
                             kiln_onnx_reducing *how);

#endif
