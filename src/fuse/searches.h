// Searches by form: repeated layers differ in nothing but their tensors, so that a group of
// statements is searched once, however often it is met. And what a kernel costs beside others.
#ifndef KILN_FUSE_SEARCHES_H
#define KILN_FUSE_SEARCHES_H

#include "fuse/outline.h"
#include "price/price.h"
#include "template/search.h"

// What a block of several statements loses beside kernels of their own: its tiles are smaller, and
// more of them are ragged; a template may say more of products that it runs (inner_loss).
static const double KILN_INNER_LOSS = 1.05;

// A kernel that was searched: its program, and the candidates for it.
typedef struct kiln_searched {
  const kiln_program *prog;
  kiln_facts facts; // of the program's constants
  kiln_tile_candidates *candidates;
  const char *key; // of the extract
} kiln_searched;

// What was searched: kept for programs whose parts are connected more than once. Lives in cx->perm.
typedef struct kiln_searches kiln_searches;
// |proposed| keeps, for other programs, what templates have proposed, as nobody has bounded or
// lowered it: what is found does not depend on what was found for those. NULL: nobody asks.
kiln_searches *kiln_searches_make(kiln_ctx *cx, kiln_searches *proposed);
// The candidates for |g| of |p|, proposed if what it is extracted as is new.
kiln_status kiln_searches_find(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                               const kiln_facts *facts, const kiln_group *g,
                               const kiln_tile_search_options *options, kiln_searched *out,
                               bool *out_is_new);
// How often templates were asked what they propose, by all that share |proposed|.
int kiln_searches_asked(const kiln_searches *s);
// A text that equal groups share, whatever their tensors are called.
kiln_symbol kiln_group_form(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_group *g);
// Computing does not get faster by being done in one kernel with something else: the candidates
// take at least |compute_ns| to compute, times what they compute again. Sorts them.
void kiln_searched_bound(kiln_ctx *cx, const kiln_searched *io, double compute_ns);
// Lowers candidates, cheapest first, until a template's is accepted; the plain nests, which are
// nobody's proposal, do not count.
kiln_status kiln_searched_lower(kiln_ctx *cx, const kiln_tile_search_options *options,
                                const kiln_searched *io);

// The first that was not refused; NULL: all were.
const kiln_tile_candidate *kiln_tile_cheapest(const kiln_tile_candidates *found);
double kiln_tile_price(const kiln_tile_candidates *found); // of the cheapest

#endif
