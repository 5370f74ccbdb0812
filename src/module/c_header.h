// The C header of a static library: a prototype for each entry, its contract, and sizes as macros.
#ifndef KILN_MODULE_C_HEADER_H
#define KILN_MODULE_C_HEADER_H

#include "runtime/plan.h"
#include "support/text.h"
#include "target/target.h"

typedef struct kiln_c_header {
  const char *prefix; // prefix of all names: "resnet18"; macros use it in capitals
  const char *model;  // file name of the model
  const kiln_machine *machine;
  const kiln_plan *plan;
  int n_features, n_needs;
  const char *const *features, *const *needs; // required processor features; undefined functions
  bool has_weights_file, has_parallel_for;
} kiln_c_header;

// A C identifier from a file name without its folder and extension: "out/resnet-18.a" gives
// "resnet_18".
const char *kiln_c_name(kiln_arena *arena, const char *path);
void kiln_c_header_print(kiln_arena *scratch, const kiln_c_header *h, kiln_text *out);

#endif
