// The module cache: a compilation that was done before is copied instead of repeated.
//
// The key is a digest of all inputs of a compilation: the contents of the model's files, the
// options, the machine and the build of the compiler. Models and modules of more than
// KILN_MODULE_CACHE_MOST_BYTES are not cached: digesting them takes as long as packing the weights.
#ifndef KILN_MODULE_MODULE_CACHE_H
#define KILN_MODULE_MODULE_CACHE_H

#include "module/cache.h"
#include "model/model.h"

#include <time.h>

#define KILN_MODULE_CACHE_MOST_BYTES (INT64_C(256) << 20)

typedef struct kiln_module_cache {
  kiln_ctx *cx;
  const char *path; // of the model
  const kiln_compile_options *options;
  int threads;
  struct timespec start; // what changed since was not what the key says
  bool has_key;          // false: no such module is looked for, or kept
  kiln_cache_key key;
} kiln_module_cache;

// Finds out what the module depends on that is not in external files.
void kiln_module_cache_begin(kiln_ctx *cx, const char *path, const kiln_compile_options *options,
                             kiln_module_cache *out);
// Copies the module to |out_path| if it was kept.
//
// gives: false where it was not, or cannot be copied
bool kiln_module_cache_find(const kiln_module_cache *k, const char *out_path,
                            kiln_memory *out_memory);
// Keeps the module at |out_path|, which was compiled from |model|.
void kiln_module_cache_put(const kiln_module_cache *k, const kiln_model *model,
                           const char *out_path);

#endif
