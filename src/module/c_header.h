// The C header of a static library: a function for each entry, what it takes, and sizes as macros.
#ifndef KILN_MODULE_C_HEADER_H
#define KILN_MODULE_C_HEADER_H

#include "runtime/plan.h"
#include "support/text.h"
#include "target/target.h"

typedef struct kiln_c_header {
  const char *prefix; // of all names: "resnet18"; macros have it in capitals
  const char *model;  // what it was made of
  const kiln_machine *machine;
  const kiln_plan *plan;
  int n_features, n_needs;
  const char *const *features, *const *needs; // of the processor; functions from elsewhere
  bool has_weights_file, has_parallel_for;
} kiln_c_header;

// The name of a file without folder and ending as a C identifier: "resnet18" of "out/resnet-18.a"
// is "resnet_18".
const char *kiln_c_name(kiln_arena *arena, const char *path);
void kiln_c_header_print(kiln_arena *scratch, const kiln_c_header *h, kiln_text *out);

#endif
