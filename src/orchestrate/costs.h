// Costs of candidate kernels, by the tile graph's scheduler, memoized by canonical form.
#ifndef KILN_ORCHESTRATE_COSTS_H
#define KILN_ORCHESTRATE_COSTS_H

#include "orchestrate/prims.h"
#include "fuse/connect.h"

typedef struct kiln_priced {
  kiln_group group;
  kiln_searched found; // what the templates propose for it
  double measured_ns;  // by what was given; 0: it was not
  double ns;           // infinite: nobody makes such a kernel, or nobody knows what it costs
} kiln_priced;

typedef struct kiln_costing {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
  const kiln_prims *prims;
  const kiln_tile_search_options *options;
  kiln_searches *known;
  double (*measured)(void *user, const char *key); // NULL: nothing was measured
  void *user;
  struct kiln_prim_cost *own; // [prims]
  int n_forms;                // that were new
  double work; // statements of the kernels that templates were asked about, which time follows
} kiln_costing;
// The cost of a prim as a kernel of its own.
typedef struct kiln_prim_cost {
  double ratio; // of measured time to predicted, in a kernel that was measured; 0: there is none
  double ns, compute_ns; // where nobody knows, from what it must do at least
  bool is_known;
  double inner_loss; // of the template that runs a product so (template/template.h)
} kiln_prim_cost;

// Prices all prims of their own. Lives in the scratch arena.
kiln_status kiln_costing_begin(kiln_costing *io);
// A kernel of the |prims| of the whole graph that stores |results|; infinite cost where there is
// none.
kiln_status kiln_costing_price(kiln_costing *c, const kiln_bits *prims, const kiln_bits *results,
                               kiln_priced *out);
// A lower bound of such a kernel's cost, without asking any template.
double kiln_costing_bound(const kiln_costing *c, const kiln_bits *prims);
// The cost of these prims as kernels of their own.
double kiln_costing_apart(const kiln_costing *c, const kiln_bits *prims);
// What a run takes longer with a kernel for which templates propose |of|, by what they predict;
// infinite: nobody knows, or NULL.
double kiln_costing_predicted(const kiln_costing *c, const kiln_tile_candidates *of);
// The same of a kernel that was measured; 0: it was not.
double kiln_costing_measured(const kiln_costing *c, const kiln_searched *found);
// By how much predictions for kernels of |prims| are off, going by the measured kernels that they
// are in.
double kiln_costing_ratio(const kiln_costing *c, const kiln_bits *prims);
// Whether sets of more than |prims| may be kernels, and whether |prims| may.
bool kiln_costing_may_grow(const kiln_costing *c, const kiln_bits *prims);

#endif
