// The pass that rewrites convolutions by Winograd's algorithm, and the transformation of weights.
#ifndef KILN_TRANSFORM_WINOGRAD_H
#define KILN_TRANSFORM_WINOGRAD_H

#include "tile/facts.h"
#include "tile/query.h"
#include "template/cpu/winograd_plan.h"

// Whether |s| is the last statement of a Winograd kernel; an elementwise map may follow in it.
bool kiln_winograd_is_result(const kiln_program *p, const kiln_facts *facts, const kiln_stmt *s);

// The flops of one run of the Winograd kernel |p|, if all tiles satisfy the error bound.
double kiln_winograd_flops(kiln_ctx *cx, const kiln_program *p);

// The transformed weights of a convolution: (points, points, panels, c, panel), the last panel
// padded with zeros.
typedef struct kiln_winograd_weights {
  const kiln_tensor *tensor; // CONST; |data| is NULL if it will be computed later from |source|
  const kiln_tensor *source; // (k, c, kh, kw)
  const kiln_winograd_form *form;
  int64_t panel;
} kiln_winograd_weights;
typedef struct kiln_winograd_list {
  kiln_winograd_weights *data;
  int n, cap;
} kiln_winograd_list;

// The number of independent transforms: panels x c, each of |panel| kernels.
int64_t kiln_winograd_count(const kiln_winograd_weights *w);
// Computes transforms [begin, end) in double precision. Results of one point are contiguous from
// |to| on, those of the next point |plane| elements further. In the whole tensor |to| is element
// begin * panel and |plane| is count * panel.
//
// threads: any, with disjoint ranges
void kiln_winograd_transform(const kiln_winograd_weights *w, int64_t begin, int64_t end,
                             int64_t plane, float *to);

// Rewrites the convolutions for which it pays: the transformed weights become a constant, and the
// convolution's statement the last of five that are one kernel (kiln_fact's |kernel|), its epilogue
// included. With |late| the weights get no data here, but entries of the list from which to compute
// them; NULL: they are computed at once.
//
// |growth|: the weights' total size may grow by this factor; 0: no limit.
//
// needs:  kiln_tile_layout has run
// keeps:  tensors and their values
// gives:  statements renumbered
// errors: none; only f32 convolutions are rewritten
kiln_status kiln_tile_winograd(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m, int n_threads, double growth,
                               kiln_winograd_list *late, int *out_n);

#endif
