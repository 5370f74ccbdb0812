// Outlining: a group as a small program of its own in canonical form, over strided views.
#ifndef KILN_FUSE_OUTLINE_H
#define KILN_FUSE_OUTLINE_H

#include "fuse/group.h"

// What a parameter of a kernel is: a tensor of the main program, from element |offset| of its
// storage on.
typedef struct kiln_argument {
  int tensor;
  int64_t offset; // 0 for what is written, and for constants
} kiln_argument;

// A group as a program of its own. Tensors: a0.. (read), t0.. (inside), y (the result), and z0..
// where what is reused inside is stored as well: written there at once, of a reduction a copy.
// args[k] is behind the k-th parameter in the order of tensor ids. On CPUs a tensor that is read
// flat begins with the first element that is read, so that kernels of other rows of a tensor are
// equal.
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
