// A cached schedule: the result of a search as text. It lists the paddings that were written in
// place, the statements of each kernel, and each kernel's script and loops. An equal program on an
// equal machine is scheduled from it without a search: its loops are parsed or, where their text
// does not survive parsing and printing, its script is replayed.
#ifndef KILN_FUSE_CACHED_SCHEDULE_H
#define KILN_FUSE_CACHED_SCHEDULE_H

#include "fuse/connect.h"
#include "fuse/kernel.h"

// The key of the cache: everything in the rewritten program |p| and its |facts| that the search
// depends on. Large constants enter by type and shape, small ones by value. In the scratch arena.
const char *kiln_schedule_key(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts);
// A kernel of a cached schedule.
typedef struct kiln_cached_kernel {
  const char *from; // the name of its template
  const char *script;
  const char *loops; // as text; "": none, they are what the script makes
} kiln_cached_kernel;

// |m| is the machine of the kernels. In cx->perm.
const char *kiln_cached_schedule_print(kiln_ctx *cx, const kiln_machine *m, const kiln_kernels *k);
// The kernel's loops, verified, with |m|'s instructions; NULL: no loops were stored, or their text
// is invalid.
kiln_loops *kiln_cached_kernel_loops(kiln_ctx *cx, const kiln_machine *m,
                                     const kiln_cached_kernel *a);
// Reads a cached schedule: fused groups with the numbers of their kernels, and the kernels. Applies
// the in-place paddings that it lists to |p|, and adds them to |io->materialized|, even if a later
// part of the text is invalid.
//
// gives: false if the text is invalid or belongs to another program
bool kiln_cached_schedule_read(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m, const char *text, kiln_kernels *io,
                               kiln_fused_groups *out_fusions, kiln_cached_kernel **out_kernels,
                               int *out_n_kernels);

#endif
