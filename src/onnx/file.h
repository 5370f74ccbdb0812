// The mapped files of a model, itself and its external data; each is mapped once, read-only.
#ifndef KILN_ONNX_FILE_H
#define KILN_ONNX_FILE_H

#include "onnx/problem.h"
#include "onnx/reader.h"
#include "onnx/proto.h"

// Maps |path|, the model. Files named in |memory|, [n_memory], are taken from there, also external
// ones; the rows are borrowed until kiln_onnx_file_is_read.
// errors: KILN_BAD_INPUT if it cannot be read, is not a regular file or is empty
kiln_status kiln_onnx_file_open(kiln_ctx *cx, const char *path, int n_memory,
                                const kiln_onnx_memory *memory, kiln_onnx_file **out_file);
void kiln_onnx_file_is_read(kiln_onnx_file *file); // no more external files will be requested
const char *kiln_onnx_file_path(const kiln_onnx_file *file);
onnx_bytes kiln_onnx_file_model(const kiln_onnx_file *file); // contents of the model's file

// The contents of external file |location|, relative to the model's folder. The file must be inside
// of it and have no hard link elsewhere: like a symbolic link, that could expose any file of the
// user.
//
// gives: false if |location| is absolute, leads out of the folder, has other hard links, or cannot
//        be mapped; reported once for each location
bool kiln_onnx_file_external(kiln_onnx_file *file, onnx_problems *problems, const char *place,
                             onnx_bytes location, onnx_bytes *out);

#endif
