// A definition of a .tc file as a program, without an ONNX node.
#ifndef KILN_TC_DEFINITION_H
#define KILN_TC_DEFINITION_H

#include "ir/prim.h"

// A binding of a dimension N, of an axis of a pack (N.0, N.1, ...; N.rank is its length), or of a
// scalar attribute.
typedef struct kiln_tc_binding {
  const char *name;
  int64_t value;
} kiln_tc_binding;

// A definition's signature, for listings and for choosing sizes. Lives in the ctx.
typedef struct kiln_tc_signature {
  const char *name;
  int line;
  int n_sizes;
  const char **sizes; // names of dimensions, in order of appearance
  const bool *packs;  // [n_sizes] which names are packs
  int n_inputs, n_outputs;
  const char **inputs, **outputs; // names
} kiln_tc_signature;

// The signatures of the definitions of |text|; |file| is for messages.
//
// gives:  the valid ones, also on failure
// errors: BAD_INPUT, with file, line and caret of each mistake unless |quiet|
kiln_status kiln_tc_signatures(kiln_ctx *cx, const char *file, const char *text, bool quiet,
                               int *out_n, kiln_tc_signature **out);

// Binds definition |entry| (the first of that name; NULL: the last one of the file) to sizes.
// Parameters become INPUTs of the same names, in order, and results become outputs. An output C
// that is accumulated into without '!' and without an earlier value (C(m, n) += ...) starts from an
// additional input C_in, listed after the parameters; a warning says so. Dimensions without a
// binding stay symbolic; such a program is for inspection, and checks that depend on sizes
// (subscripts in range) are made when all are bound. Packs need their ranks. Type variables are
// f32, or an example of their class.
//
// gives:  a verified program in |cx|
// errors: BAD_INPUT with file, line, caret, the table of ranges and a suggestion
kiln_status kiln_tc_program(kiln_ctx *cx, const char *file, const char *text, const char *entry,
                            int n_bindings, const kiln_tc_binding *bindings, kiln_program **out);

// The same for signature |nth|; definitions that it does not call may be invalid.
kiln_status kiln_tc_program_nth(kiln_ctx *cx, const char *file, const char *text, int nth,
                                int n_bindings, const kiln_tc_binding *bindings,
                                kiln_program **out);

#endif
