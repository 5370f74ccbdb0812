// The search over one kernel's candidates, which all templates that match it propose.
#ifndef KILN_TEMPLATE_SEARCH_H
#define KILN_TEMPLATE_SEARCH_H

#include "template/template.h"

typedef struct kiln_tile_search_options {
  const kiln_machine *machine;
  int n_threads;
  int n_lowered;   // how many candidates to lower, the cheapest first: 1 unless they are measured
  bool no_connect; // kernels stay as the rules group them
  // Maps and sums by row are lowered and priced by their loops: nearer to measured times, at twice
  // the time and memory of proposing.
  bool by_loops;
  bool all_forms; // templates of all forms that match propose, not those of the first alone
  // Tiles of scores that a mask leaves out are computed, so that a weight of 0 times an infinite
  // value or NaN is NaN (analysis/masking.h).
  bool strict_masks;
} kiln_tile_search_options;

// Proposes candidates for |p|, an outlined kernel of |kind| with |facts|, cheapest first, each in
// its form. Counts candidates, never time. Lives in cx->perm.
kiln_status kiln_tile_propose(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                              const kiln_facts *facts, const kiln_tile_search_options *options,
                              kiln_tile_candidates *out);
// Stable sort by cost, which includes panels that no other program has.
void kiln_tile_sort(kiln_tile_candidates *c);
// Lowers the first |n_lowered| of |io| that no primitive refuses, those that are lowered already
// included.
kiln_status kiln_tile_lower(kiln_ctx *cx, const kiln_tile_search_options *options,
                            kiln_tile_candidates *io);
// Proposes, then lowers.
//
// gives: *out; at least one is lowered
kiln_status kiln_tile_search(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                             const kiln_facts *facts, const kiln_tile_search_options *options,
                             kiln_tile_candidates *out);
// The price, on a GPU, of the cheapest that is not refused, by its lowered loops if its template's
// candidates are priced so; else as it was proposed. Loops see how a kernel is mapped to threads,
// proposals do not: prices of either kind are compared among themselves.
//
// gives: *out_ns; infinite: there is none
kiln_status kiln_tile_price_lowered(kiln_ctx *cx, const kiln_tile_search_options *options,
                                    kiln_tile_candidates *io, double *out_ns);
// The first that was lowered.
const kiln_tile_candidate *kiln_tile_best(const kiln_tile_candidates *c);

#endif
