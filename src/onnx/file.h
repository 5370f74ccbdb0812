// The mapped files of a model: itself and its external data, each mapped once, read-only.
#ifndef KILN_ONNX_FILE_H
#define KILN_ONNX_FILE_H

#include "onnx/problem.h"
#include "onnx/reader.h"
#include "onnx/proto.h"

// Maps |path|, the model itself. It and its external files are taken from |memory|, [n_memory],
// where that has their names; the rows are borrowed until kiln_onnx_file_is_read.
// errors: KILN_BAD_INPUT when it cannot be read, is no regular file or is empty
kiln_status kiln_onnx_file_open(kiln_ctx *cx, const char *path, int n_memory,
                                const kiln_onnx_memory *memory, kiln_onnx_file **out_file);
void kiln_onnx_file_is_read(kiln_onnx_file *file); // no more external files are asked for
const char *kiln_onnx_file_path(const kiln_onnx_file *file);
onnx_bytes kiln_onnx_file_model(const kiln_onnx_file *file); // the bytes of the model itself

// Gives all bytes of the external file |location|, relative to the folder of the model. It must be
// a file of that folder by every name that it has: a hard link could be one to any file of the
// user's, as a symbolic link could.
//
// gives: false when |location| is absolute, leads out of the folder, has other names, or cannot be
//        mapped; told once per location
bool kiln_onnx_file_external(kiln_onnx_file *file, onnx_problems *problems, const char *place,
                             onnx_bytes location, onnx_bytes *out);

#endif
