// Analysis results of the scheduling passes about a program: a table by tensor.
//
// Facts about a statement are stored with the tensor that it writes, because passes renumber
// statements but not tensors. The table grows as facts are added; tensors beyond its end have none,
// so new tensors may be made at any time.
#ifndef KILN_TILE_FACTS_H
#define KILN_TILE_FACTS_H

#include "ir/prim.h"

typedef struct kiln_fact {
  // Of the statement that writes the tensor:
  // elements are stored through the tensors inside of it (in-place concatenation): it has no kernel
  bool assembled;
  bool waits; // to be written in place, unless its reader's kernel computes it
  // statements of equal number (not 0) make one kernel, whose last one writes the result
  int kernel;
  // Of a constant:
  bool is_small;   // i8 in [-64, 64]: a sum of two products with u8 fits i16
  uint32_t panels; // layouts in which other programs have it: bits of panels.h
} kiln_fact;

typedef struct kiln_facts {
  kiln_fact *data; // by tensor
  int n, cap;
} kiln_facts;

// The facts of |tensor|; all zero if it has none or |f| is NULL.
kiln_fact kiln_fact_of(const kiln_facts *f, int tensor);
// For setting; valid until the next call. Lives in cx->perm.
kiln_fact *kiln_fact_at(kiln_ctx *cx, kiln_facts *io, int tensor);
// Drops the facts of tensors >= |n|, whose numbers are reused.
void kiln_facts_cut(kiln_facts *io, int n);
// Sets the facts of |p|'s constants: whether they are small, and |panels| by tensor (NULL: none).
void kiln_facts_note_constants(kiln_ctx *cx, const kiln_program *p, const uint32_t *panels,
                               kiln_facts *io);
// Prints a line for each fact, with the tensor's name, after |margin|.
void kiln_facts_print(kiln_ctx *cx, const kiln_program *p, const kiln_facts *f, const char *margin,
                      kiln_text *out);

#endif
