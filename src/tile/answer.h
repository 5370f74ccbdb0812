// The answer of a search as text: which paddings were assembled, which statements make a kernel, and
// each kernel's script. With it an
// equal program on an equal machine is scheduled again without searching: the scripts are replayed,
// so that what they do is checked as ever.
#ifndef KILN_TILE_ANSWER_H
#define KILN_TILE_ANSWER_H

#include "tile/connect.h"
#include "tile/kernel.h"

// All of the rewritten program |p| that the search depends on; constants count by type and shape, small
// ones by value. In the scratch arena.
const char *kiln_answer_question(kiln_ctx *cx, const kiln_program *p);
// In cx->perm.
const char *kiln_answer_print(kiln_ctx *cx, const kiln_kernels *k);
// Reads an answer: the parts without candidates, and a script for each key in order of its first part.
// Settles the paddings of |p| that it names, and adds them to |io->settled|, whatever comes behind.
//
// gives: false when it is none, or not of this program
bool kiln_answer_read(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, const char *answer,
                      kiln_kernels *io, kiln_parts *out_parts, const char ***out_scripts,
                      int *out_n_scripts);

#endif
