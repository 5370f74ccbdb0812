// The answer of a search as text: which paddings were assembled, which statements make a kernel,
// and each kernel's script and loops. With it an equal program on an equal machine is scheduled
// again without
// searching: the loops are read, or where they do not print as what they are, the script is
//            replayed.
#ifndef KILN_FUSE_ANSWER_H
#define KILN_FUSE_ANSWER_H

#include "fuse/connect.h"
#include "fuse/kernel.h"

// All of the rewritten program |p|, and of what is known of it, that the search depends on;
// constants count by type and shape, small ones by value. In the scratch arena.
const char *kiln_answer_question(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts);
// A kernel of an answer.
typedef struct kiln_answer_kernel {
  const char *from; // the name of its template
  const char *script;
  const char *loops; // as text; "": none, they are what the script makes
} kiln_answer_kernel;

// |m| is the machine of the kernels. In cx->perm.
const char *kiln_answer_print(kiln_ctx *cx, const kiln_machine *m, const kiln_kernels *k);
// The loops of an answer, with |m|'s instructions, verified; NULL: it has none, or not such.
kiln_loops *kiln_answer_loops(kiln_ctx *cx, const kiln_machine *m, const kiln_answer_kernel *a);
// Reads an answer: the parts, with their kernels' numbers, and the kernels.
// Settles the paddings of |p| that it names, and adds them to |io->settled|, whatever comes behind.
//
// gives: false when it is none, or not of this program
bool kiln_answer_read(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, const kiln_machine *m,
                      const char *answer, kiln_kernels *io, kiln_parts *out_parts,
                      kiln_answer_kernel **out_kernels, int *out_n_kernels);

#endif
