// Connecting: which parts of the program, as the rules have grouped them, share a kernel after all.
//
// First connect, then schedule (Welder, section 4.2; DESIGN section 6): from the outputs to the
// inputs, each part takes in producers when some template proposes a kernel for them together whose
// cost is below that of the parts kept apart, the round trip of the tensor through memory included.
// What others read later, or is an output, is reused and stored: the kernel has several results,
// and its cost the store but not the load. What is not taken in is recorded with the reason. A
// padding that waits (assemble.c) counts for no more than its frame while it is alone, as it will
// be assembled then.
#ifndef KILN_FUSE_CONNECT_H
#define KILN_FUSE_CONNECT_H

#include "fuse/searches.h"

// One kernel of the program: its statements, their extract, and the candidates for it. Parts of
// equal key share |candidates|. Those of an answer have no candidates, and in place of the key the
// number of the kernel.
typedef struct kiln_part {
  kiln_group group;
  kiln_extract extract;
  int kernel;                       // of an answer
  kiln_tile_candidates *candidates; // cheapest first
} kiln_part;
typedef struct kiln_parts {
  kiln_part *data;
  int n, cap;
} kiln_parts;

// Grows the groups into parts. Counts candidates, never time; repeated layers are searched once.
//
// gives: *out in cx->perm, in order of execution; |groups|->edges gets a decision an edge between
//        statements that are run
// cost:  at most a few attempts a group, each one extraction and one round of proposals
kiln_status kiln_tile_connect_groups(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                     kiln_groups *groups, const kiln_tile_search_options *options,
                                     kiln_searches *known, kiln_parts *out);

#endif
