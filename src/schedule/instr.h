// The meanings of instructions: from the notation to the loops that tensorize matches.
#ifndef KILN_SCHEDULE_INSTR_H
#define KILN_SCHEDULE_INSTR_H

#include "target/target.h"

// Makes |instr|->loops, once: loops around one STORE that accumulates into buffer 0, its result, or
// copies the only parameter to it; the other buffers are the definition's parameters.
//
// errors: KILN_INTERNAL when the meaning is no such definition, BAD_INPUT when it does not parse
kiln_status kiln_instr_make_loops(kiln_ctx *cx, kiln_instr *instr);

// For kiln_loops_parse_with: the instruction of that name, with its loops, in a table of a
// target's.
typedef struct kiln_instr_table {
  kiln_ctx *cx;
  int n;
  kiln_instr *instrs;
} kiln_instr_table;
// Whether |name| is the present or an older name of |instr|.
bool kiln_instr_is_named(const kiln_instr *instr, const char *name);
const struct kiln_instr *kiln_instr_find_in(const void *table, const char *name);

#endif
