// Whole modules from the cache: a compilation that was done before is copied.
//
// What a module is made of is the contents of the model's files, the options, the machine and this
// very compiler: all of them decide whether a module that was kept is the one that would be made.
// No more than KILN_KEPT_MOST_BYTES of a model or a module are looked at: beyond, reading the
// contents takes as long as packing the weights.
#ifndef KILN_MODULE_KEPT_H
#define KILN_MODULE_KEPT_H

#include "module/cache.h"
#include "model/model.h"

#include <time.h>

#define KILN_KEPT_MOST_BYTES (INT64_C(256) << 20)

typedef struct kiln_kept {
  kiln_ctx *cx;
  const char *path; // of the model
  const kiln_compile_options *options;
  int threads;
  struct timespec start; // what changed since was not what the key says
  bool has_key;          // false: no such module is looked for, or kept
  kiln_cache_key key;
} kiln_kept;

// Finds out what the module depends on that is not in external files.
void kiln_kept_begin(kiln_ctx *cx, const char *path, const kiln_compile_options *options,
                     kiln_kept *out);
// Copies the module to |out_path| if it was kept.
//
// gives: false where it was not, or cannot be copied
bool kiln_kept_find(const kiln_kept *k, const char *out_path, kiln_memory *out_memory);
// Keeps the module at |out_path|, which was compiled from |model|.
void kiln_kept_put(const kiln_kept *k, const kiln_model *model, const char *out_path);

#endif
