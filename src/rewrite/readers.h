// Who reads what in a program, and its numbers anew: for rules that add, move and take out statements.
#ifndef KILN_REWRITE_READERS_H
#define KILN_REWRITE_READERS_H

#include "ir/prim.h"

// n[tensor] statements load each, in the scratch arena; being an output does not count.
int *kiln_readers_count(kiln_ctx *cx, const kiln_program *p);
bool kiln_tensor_is_output(const kiln_program *p, int tensor);
// Statements get the numbers of their places, and their tensors these.
void kiln_stmts_renumber(kiln_program *p);

#endif
