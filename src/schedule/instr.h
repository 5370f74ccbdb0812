// The meanings of instructions, as the loops that tensorize matches.
#ifndef KILN_SCHEDULE_INSTR_H
#define KILN_SCHEDULE_INSTR_H

#include "target/target.h"

// Makes |instr|->loops if they were not made yet: loops around one STORE, which accumulates into
// buffer 0, the result, or copies the only parameter to it. The other buffers are the parameters of
// the definition.
//
// errors: KILN_INTERNAL if the definition has another form, BAD_INPUT if it does not parse
kiln_status kiln_instr_make_loops(kiln_ctx *cx, kiln_instr *instr);

// The argument of kiln_loops_parse_with: the instruction of a name, with its loops, in a target's
// table.
typedef struct kiln_instr_table {
  kiln_ctx *cx;
  int n;
  kiln_instr *instrs;
} kiln_instr_table;
// Whether |name| is |instr|'s name or its earlier one.
bool kiln_instr_is_named(const kiln_instr *instr, const char *name);
const struct kiln_instr *kiln_instr_find_in(const void *table, const char *name);

#endif
