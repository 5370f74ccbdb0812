// CPU features, by LLVM's names: those that a module needs, and those of this machine.
#ifndef KILN_RUNTIME_FEATURES_H
#define KILN_RUNTIME_FEATURES_H

#include "kiln/status.h"

#include <stdbool.h>

const char *kiln_cpu_architecture(void); // "x86_64", "aarch64"
// Whether the runtime can detect |name|; the compiler lists only detectable features.
bool kiln_cpu_knows(const char *name);
bool kiln_cpu_has(const char *name); // the architecture's name is a feature, too
// Whether this machine has all |n| features.
//
// errors: KILN_DEVICE_ERROR: one message that lists the missing features
KILN_MUST_USE kiln_status kiln_cpu_check(uint32_t n, const char *const *features, const char *place,
                                         kiln_diag *diag);

#endif
