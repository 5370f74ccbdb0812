// Definitions that every file may call: the boundary conditions.
#ifndef KILN_TC_LIBRARY_H
#define KILN_TC_LIBRARY_H

#include "support/ctx.h"

extern const char kiln_tc_library_text[];
bool kiln_tc_library_has(const char *name);

#endif
