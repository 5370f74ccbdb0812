// The version of the compiler, which modules and entries of the cache bear.
#include "kiln/compile.h"

const char *kiln_version(void) { return KILN_VERSION; }
