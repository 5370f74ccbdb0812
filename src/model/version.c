// The version of the compiler, for modules and cache entries.
#include "kiln/compile.h"

const char *kiln_version(void) { return KILN_VERSION; }
