// A definition of a .tc file as a program of its own, without an ONNX node around it.
#ifndef KILN_TC_DEFINITION_H
#define KILN_TC_DEFINITION_H

#include "ir/prim.h"

// The value of a dimension's name (N), of an axis of a pack (N.0, N.1, ...; N.rank its length), or
// of a scalar attribute.
typedef struct kiln_tc_binding {
  const char *name;
  int64_t value;
} kiln_tc_binding;

// What a definition says of itself, for listings and for picking sizes. Lives in the ctx.
typedef struct kiln_tc_signature {
  const char *name;
  int line;
  int n_sizes;
  const char **sizes; // names of dimensions, in order of appearance
  const bool *packs;  // [n_sizes] which of them stand for several dimensions
  int n_inputs, n_outputs;
  const char **inputs, **outputs; // names
} kiln_tc_signature;

// The definitions of |text|, parsed and checked; |file| is for messages.
//
// gives:  those without mistakes, also on failure
// errors: BAD_INPUT, with file, line and caret of each mistake unless |quiet|
kiln_status kiln_tc_signatures(kiln_ctx *cx, const char *file, const char *text, bool quiet,
                               int *out_n, kiln_tc_signature **out);

// Binds definition |entry| (the first of that name; NULL: the last one of the file, which may call
// those before it) to sizes. Parameters become INPUTs with their names, in order; results outputs
// with theirs. An output C that the definition accumulates into without '!' and without an earlier
// value (C(m, n) += ...) begins with the input C_in, listed behind the parameters; a warning says
// so. Dimensions that
// |bindings| do not name stay symbolic, under their names; such a program is for looking at: what
// sizes decide (subscripts in range) is checked by the call that binds them all. Packs need their
// ranks. Type variables are f32, or an example of their class.
//
// gives:  a verified program in |cx|
// errors: BAD_INPUT with file, line, caret, the table of ranges and a remedy
kiln_status kiln_tc_program(kiln_ctx *cx, const char *file, const char *text, const char *entry,
                            int n_bindings, const kiln_tc_binding *bindings, kiln_program **out);

// The same of the |nth| of the signatures; others, which it does not call, may have mistakes.
kiln_status kiln_tc_program_nth(kiln_ctx *cx, const char *file, const char *text, int nth,
                                int n_bindings, const kiln_tc_binding *bindings,
                                kiln_program **out);

#endif
