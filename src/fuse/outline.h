// Kernel outlining: a fusion group becomes a program of its own in canonical form, over strided
// views, so that equal groups have equal text.
#ifndef KILN_FUSE_OUTLINE_H
#define KILN_FUSE_OUTLINE_H

#include "fuse/group.h"

// The argument of a kernel's parameter: a tensor of the main program, from element |offset| of its
// storage on.
typedef struct kiln_argument {
  int tensor;
  int64_t offset; // 0 for what is written, and for constants
} kiln_argument;

// An outlined group. Its tensors are a0.. (operands), t0.. (temporaries), y (the result), and z0..
// for temporaries with readers outside of the group, which are stored, too: by the statement itself
// or, of a reduction, by a copy. args[k] is the argument of the k-th parameter in the order of
// tensor ids. On CPUs an operand that is read as one flat axis begins with the first element that
// is read, so that kernels on different rows of a tensor are equal.
typedef struct kiln_outline {
  kiln_program *prog;
  kiln_facts facts; // of its constants
  int n_args;
  kiln_argument *args;
  const char *key; // equal keys: the same kernel
} kiln_outline;
kiln_status kiln_tile_outline(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                              const kiln_group *g, const kiln_machine *m, kiln_outline *out);
// The same without the key, for a group whose kernel is known.
kiln_status kiln_tile_outline_keyless(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                      const kiln_group *g, const kiln_machine *m,
                                      kiln_outline *out);
const char *kiln_tile_key(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *outlined,
                          const kiln_facts *facts);

#endif
