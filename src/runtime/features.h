// The features of the CPU by LLVM's names: what a module needs, what this machine has.
#ifndef KILN_RUNTIME_FEATURES_H
#define KILN_RUNTIME_FEATURES_H

#include "kiln/status.h"

#include <stdbool.h>

const char *kiln_cpu_architecture(void); // "x86_64", "aarch64"
// Whether the runtime can tell if a machine has |name|: the compiler lists only such features.
bool kiln_cpu_knows(const char *name);
bool kiln_cpu_has(const char *name); // the architecture's name counts as a feature
// Whether this machine has all |n| features.
//
// errors: KILN_DEVICE_ERROR: all that it lacks in one message
KILN_MUST_USE kiln_status kiln_cpu_check(uint32_t n, const char *const *features, const char *place,
                                         kiln_diag *diag);

#endif
