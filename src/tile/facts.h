// Analysis results of the scheduling passes about a program: a table by tensor.
//
// A statement's facts are those of the tensor that it writes: passes renumber statements, and
// tensors keep their numbers. The table grows as facts are noted; of what lies behind its end
// nothing is known, so that tensors may be made at any time.
#ifndef KILN_TILE_FACTS_H
#define KILN_TILE_FACTS_H

#include "ir/prim.h"

typedef struct kiln_fact {
  // Of the statement that writes the tensor:
  bool assembled; // every element is stored through the tensors inside of it: there is no kernel
  bool waits;     // to be assembled, unless a kernel computes it beside its reader
  int kernel;     // statements with one number, not 0, make one kernel: the last writes its result
  // Of a constant:
  bool is_small;   // of i8, none beyond 64 either way: two products with u8 fit i16
  uint32_t panels; // how other programs of the module have it, a bit for each layout (panels.h)
} kiln_fact;

typedef struct kiln_facts {
  kiln_fact *data; // by tensor
  int n, cap;
} kiln_facts;

// All zero where nothing is known, and where |f| is NULL.
kiln_fact kiln_fact_of(const kiln_facts *f, int tensor);
// To be set; the pointer holds until the next one is asked for. Lives in cx->perm.
kiln_fact *kiln_fact_at(kiln_ctx *cx, kiln_facts *io, int tensor);
// Drops what is known of tensors from |n| on, whose numbers others get.
void kiln_facts_cut(kiln_facts *io, int n);
// Notes which constants of |p| are small, by their data, and |panels| by tensor; NULL: none.
void kiln_facts_note_constants(kiln_ctx *cx, const kiln_program *p, const uint32_t *panels,
                               kiln_facts *io);
// A line for each fact, with the name of the tensor, behind |margin|.
void kiln_facts_print(kiln_ctx *cx, const kiln_program *p, const kiln_facts *f, const char *margin,
                      kiln_text *out);

#endif
