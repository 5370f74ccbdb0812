// The pass that rewrites convolutions as Winograd's, and the weights that it transforms.
#ifndef KILN_TRANSFORM_WINOGRAD_H
#define KILN_TRANSFORM_WINOGRAD_H

#include "tile/facts.h"
#include "tile/query.h"
#include "template/cpu/winograd_plan.h"

// Whether |s| is the last statement of a kernel of this kind, in which a map may follow that reads
// each of its elements where it writes one.
bool kiln_winograd_is_result(const kiln_program *p, const kiln_facts *facts, const kiln_stmt *s);

// The flops of one run of |p|, a kernel of this kind, where all tiles fit.
double kiln_winograd_flops(kiln_ctx *cx, const kiln_program *p);

// The transformed weights of a convolution: (points, points, panels, c, panel), the last panel
// filled with zeros.
typedef struct kiln_winograd_weights {
  const kiln_tensor *tensor; // CONST; |data| is NULL where the list says how to make it
  const kiln_tensor *source; // (k, c, kh, kw)
  const kiln_winograd_form *form;
  int64_t panel;
} kiln_winograd_weights;
typedef struct kiln_winograd_list {
  kiln_winograd_weights *data;
  int n, cap;
} kiln_winograd_list;

// The transforms are independent: panels x c of them, each of |panel| kernels.
int64_t kiln_winograd_count(const kiln_winograd_weights *w);
// Makes those numbered [begin, end) in double precision: one point's lie one behind the other from
// |to| on, the next point's |plane| elements further. In the whole tensor |to| is element begin *
// panel of it, and |plane| is count * panel.
//
// threads: any, where the numbers are different
void kiln_winograd_transform(const kiln_winograd_weights *w, int64_t begin, int64_t end,
                             int64_t plane, float *to);

// Rewrites the convolutions for which it pays: the transformed weights are a constant; the
// convolution's statement becomes the last of five that make one kernel (kiln_fact's |kernel|), its
// epilogue with it. With
// |late| the weights get no data here: the list says how to make it. NULL: they are made at once.
//
// |growth|: all weights may take that many times what the program's constants do; 0: what they
// like.
//
// needs:  kiln_tile_layout has run
// keeps:  tensors and what they mean
// gives:  statements renumbered
// errors: none; f32 only, anything else stays as it is
kiln_status kiln_tile_winograd(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m, int n_threads, double growth,
                               kiln_winograd_list *late, int *out_n);

#endif
