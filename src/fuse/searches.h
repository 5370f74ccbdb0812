// Schedule searches, memoized by canonical form: repeated layers differ only in their tensors, so
// each form is searched once. Also the cost of a kernel within a program.
#ifndef KILN_FUSE_SEARCHES_H
#define KILN_FUSE_SEARCHES_H

#include "fuse/outline.h"
#include "price/price.h"
#include "template/search.h"

// The factor by which fused statements compute slower than separate kernels, because a block has
// smaller and more partial tiles; a template may state its own for products (inner_loss).
static const double KILN_INNER_LOSS = 1.05;

// The result of a search: the outlined program, and the candidate schedules of its kernel.
typedef struct kiln_searched {
  const kiln_program *prog;
  kiln_facts facts; // of the program's constants
  kiln_tile_candidates *candidates;
  const char *key; // of the outlined program; NULL: nobody has asked for it yet
  kiln_group_kind kind;
} kiln_searched;
const char *kiln_searched_key(kiln_ctx *cx, const kiln_searched *of);

// The searches of a compilation, kept for programs that are fused more than once. Lives in
// cx->perm.
typedef struct kiln_searches kiln_searches;
// Makes an empty set of searches. |proposed| (NULL: none) is shared by several programs and keeps
// the candidates as templates proposed them, before any was bounded or lowered, so that the result
// for one program does not depend on the others.
kiln_searches *kiln_searches_make(kiln_ctx *cx, kiln_searches *proposed);
// The candidates of the group |g| of |p|; templates propose them if its outline is a new form.
kiln_status kiln_searches_find(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                               const kiln_facts *facts, const kiln_group *g,
                               const kiln_tile_search_options *options, kiln_searched *out,
                               bool *out_is_new);
// The number of calls of templates for proposals, over all searches that share |proposed|.
int kiln_searches_asked(const kiln_searches *s);
// The text that equal groups share: tensors are numbered, not named.
kiln_symbol kiln_group_form(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_group *g);
// Raises the compute times of the candidates to at least |compute_ns| times their recomputation,
// because fusion cannot make the arithmetic faster, and sorts them by cost.
void kiln_searched_bound(kiln_ctx *cx, const kiln_searched *io, double compute_ns);
// Lowers candidates, cheapest first, until one is accepted other than the fallback schedule of
// plain loops.
kiln_status kiln_searched_lower(kiln_ctx *cx, const kiln_tile_search_options *options,
                                const kiln_searched *io);

// The first candidate that was not refused; NULL if all were.
const kiln_tile_candidate *kiln_tile_cheapest(const kiln_tile_candidates *found);
double kiln_tile_price(const kiln_tile_candidates *found); // of the cheapest

#endif
