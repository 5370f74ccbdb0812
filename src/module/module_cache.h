// The module cache: an earlier compilation's module is copied instead of compiled again.
//
// The key is a digest of all inputs of a compilation: the contents of the model's files, the
// options, the machine and the compiler's build. Models and modules larger than
// KILN_MODULE_CACHE_MOST_BYTES are not cached: their digest takes as long as packing the weights.
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
  struct timespec start; // files changed after this time are not the ones in the key
  bool has_key;          // false: the compilation cannot be cached
  kiln_cache_key key;
} kiln_module_cache;

// Computes the key, except for external files.
void kiln_module_cache_begin(kiln_ctx *cx, const char *path, const kiln_compile_options *options,
                             kiln_module_cache *out);
// Copies the module to |out_path| if it is cached.
//
// gives: false if it is not cached or cannot be copied
bool kiln_module_cache_find(const kiln_module_cache *k, const char *out_path,
                            kiln_memory *out_memory);
// Caches the module at |out_path|, which was compiled from |model|.
void kiln_module_cache_put(const kiln_module_cache *k, const kiln_model *model,
                           const char *out_path);

#endif
