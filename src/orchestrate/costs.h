// Costs of candidate kernels, by the tile graph's scheduler, memoized by canonical form.
#ifndef KILN_ORCHESTRATE_COSTS_H
#define KILN_ORCHESTRATE_COSTS_H

#include "orchestrate/prims.h"
#include "fuse/connect.h"

typedef struct kiln_priced {
  kiln_group group;
  kiln_searched found; // the templates' proposals for it
  double measured_ns;  // 0: not measured
  double ns;           // infinite: no template makes such a kernel, or its cost is unknown
} kiln_priced;

typedef struct kiln_costing {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
  const kiln_prims *prims;
  const kiln_tile_search_options *options;
  kiln_searches *known;
  double (*measured)(void *user, const char *key); // NULL: no measurements
  void *user;
  struct kiln_prim_cost *own; // [prims]
  int n_forms;                // distinct canonical forms priced
  double work; // statements of kernels for which templates were asked: a measure of the time spent
} kiln_costing;
// The cost of a prim as a kernel of its own.
typedef struct kiln_prim_cost {
  double ratio; // measured over predicted time of a measured kernel that has the prim; 0: there is
                // none
  double ns, compute_ns; // if no template knows, from the prim's lower bound
  bool is_known;
  double inner_loss; // of the template for its contraction (template/template.h)
} kiln_prim_cost;

// Prices each prim as a kernel of its own. Lives in the scratch arena.
kiln_status kiln_costing_begin(kiln_costing *io);
// The price of a kernel of |prims| (of the whole graph) that stores |results|; infinite if there is
// none.
kiln_status kiln_costing_price(kiln_costing *c, const kiln_bits *prims, const kiln_bits *results,
                               kiln_priced *out);
// A lower bound of this price, computed without templates.
double kiln_costing_bound(const kiln_costing *c, const kiln_bits *prims);
// The sum of the costs of |prims| as kernels of their own.
double kiln_costing_separate(const kiln_costing *c, const kiln_bits *prims);
// Predicted time that a kernel with proposals |of| adds to a run; infinite if unknown, or for NULL.
double kiln_costing_predicted(const kiln_costing *c, const kiln_tile_candidates *of);
// The same, measured; 0: not measured.
double kiln_costing_measured(const kiln_costing *c, const kiln_searched *found);
// Measured over predicted time for kernels of |prims|, estimated from measured kernels that have
// these prims.
double kiln_costing_ratio(const kiln_costing *c, const kiln_bits *prims);
// Whether supersets of |prims| may be kernels, and |prims| too.
bool kiln_costing_may_grow(const kiln_costing *c, const kiln_bits *prims);

#endif
