// The readers of tensors in a program.
#ifndef KILN_REWRITE_READERS_H
#define KILN_REWRITE_READERS_H

#include "ir/prim.h"

// n[tensor] statements that load it, in the scratch arena; being an output does not count.
int *kiln_readers_count(kiln_ctx *cx, const kiln_program *p);

#endif
