// Walks over loop nests: accesses to buffers, positions of nodes, rewriting, copying and tidying.
#ifndef KILN_SCHEDULE_NEST_H
#define KILN_SCHEDULE_NEST_H

#include "schedule/edit.h"

// An access of a statement to a buffer. |opaque|: an instruction's operand, of which only the first
// element is known.
typedef struct kiln_access {
  int buffer;
  int n;
  const kiln_expr *const *index;
  bool write, opaque;
  kiln_combiner combiner; // of a write
  kiln_loop *node;
} kiln_access;
typedef struct kiln_accesses {
  kiln_access *data;
  int n, cap;
} kiln_accesses;

// The accesses under |first| and, if |siblings|, under the nodes that follow it; of all buffers, or
// of |buffer| if it is not negative. Lives in perm.
kiln_accesses kiln_accesses_of(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, bool siblings,
                               int buffer);
// The only statement under |first|, which must be a reduction.
//
// errors: KILN_BAD_INPUT: there is none, or another statement
kiln_status kiln_nest_reduction(const kiln_edit *e, kiln_loop *first, bool siblings,
                                kiln_loop **out);
bool kiln_nest_uses(kiln_ctx *cx, const kiln_loops *l, kiln_loop *node, int buffer, bool writes);
// The path from the outermost node to |node|, both included; 0 if |node| is not found.
enum { KILN_MAX_DEPTH = 128 };
int kiln_nest_path(const kiln_loops *l, const kiln_loop *node, kiln_loop **out);
kiln_loop **kiln_nest_slot(kiln_loops *l, const kiln_loop *node); // the pointer to |node|
void kiln_nest_map(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_expr_map map,
                   void *argument); // rewrites all expressions of |first| and its siblings
void kiln_nest_substitute(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, int n,
                          const kiln_symbol *vars, const kiln_expr *const *values);
// A change of a buffer's layout: index |index| of |from| becomes |out| of |to|, which has |rank|
// axes.
typedef struct kiln_reindexing {
  int from, to, rank;
  void (*move)(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
               const kiln_expr **out);
  const void *argument;
} kiln_reindexing;
// A kiln_expr_map of LOADs; |argument| is a kiln_reindexing.
const kiln_expr *kiln_reindex_load(kiln_ctx *cx, const kiln_expr *e, void *argument);
// Rewrites all accesses under |first| and its siblings; the buffer must still have its old rank.
void kiln_nest_reindex(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_reindexing *r);
kiln_loop **kiln_nest_end(kiln_loop **list); // the NULL at the end
// The first node of |list| that reads |buffer|, or the first in an ALLOC of |list| if that contains
// all readers; the end of the list if none does.
kiln_loop **kiln_nest_first_use(kiln_ctx *cx, kiln_loops *l, kiln_loop **list, int buffer);
// The ALLOC of |buffer| under |first| or one of its siblings; NULL if there is none.
kiln_loop *kiln_nest_find_alloc(kiln_loop *first, int buffer);
bool kiln_nest_allocates(const kiln_loop *first, int buffer);
bool kiln_loop_is_unit(const kiln_loop *l); // a FOR that runs once
// Makes the parallel and bound loops of |first| and its siblings serial, before they move into
// other loops, which decide about parallelism.
void kiln_nest_unbind(kiln_loop *first);
void kiln_nest_drop_hints(kiln_loop **list, int buffer); // removes the prefetches of |buffer|
// Nests the body in loops over |vars| from 0 to |extents|, the first outermost.
kiln_loop *kiln_nest_around(kiln_ctx *cx, int n, const kiln_symbol *vars, const int64_t *extents,
                            kiln_loop *body);
// A copy of the loop with its body, not yet in the program. Its loops and buffers get the suffix
// ".b", repeated until the names are new.
kiln_status kiln_nest_twin(kiln_edit *e, kiln_loop *loop, kiln_loop **out);
const char *kiln_tail_text(kiln_tail tail); // "guard", ...
// Simplifies all expressions; removes decided IFs, loops of extent 0 and empty bodies.
void kiln_nest_tidy(kiln_edit *e);
void kiln_buffer_reshape(kiln_buffer *b, int rank, const int64_t *extents); // row-major

#endif
