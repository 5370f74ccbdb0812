// Winograd's minimal filtering for dense 3x3 convolutions of stride 1: F(m x m, 3 x 3) computes a
// tile of m x m outputs from a tile of (m + 2) x (m + 2) inputs with (m + 2)^2 products a channel
// instead of 9 m^2. A window of two elements along a dim, as in phases of transposed convolutions,
// is one of three whose last weight is 0: the transforms take 0 for the data that this weight would
// meet, which is not read.
//
// source: Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4
#ifndef KILN_TEMPLATE_CPU_WINOGRAD_PLAN_H
#define KILN_TEMPLATE_CPU_WINOGRAD_PLAN_H

#include "analysis/interpret.h"
#include "target/target.h"

enum { KILN_MAX_WINOGRAD = 6 }; // points of a transform along one dim: m + 2

// The transforms along one dim: outputs = A^T ((G g) * (B^T d)). Rows 2q - 1 and 2q of B^T agree in
// the even columns and are opposite in the odd ones; columns 2q - 1 and 2q of A^T agree up to the
// sign.
typedef struct kiln_winograd_form {
  int outputs, points;                                 // m, m + 2
  double input[KILN_MAX_WINOGRAD][KILN_MAX_WINOGRAD];  // B^T, (points, points)
  double kernel[KILN_MAX_WINOGRAD][3];                 // G, (points, 3)
  double output[KILN_MAX_WINOGRAD][KILN_MAX_WINOGRAD]; // A^T, (outputs, points)
  // A tile fits where the sum of the squares of its data, counted once in each corner window, is at
  // most that many times the least sum of a window: INFINITY where an output depends on its 3x3
  // window alone.
  double spread;
} kiln_winograd_form;

// |f|'s spread for windows of |kh| x |kw|: outputs of a smaller one depend on data outside of it.
double kiln_winograd_spread(const kiln_winograd_form *f, int64_t kh, int64_t kw);

// How far correct results of a Winograd convolution may differ from those of direct sums
// (analysis/interpret.h), by the forms' matrices.
kiln_transforms kiln_winograd_transforms(void);

// The greatest sum of squares of a tile's data of |c| channels with which no step of |f| overflows,
// nor the sum itself, for weights of magnitude |weight| or less; NaN where that is NaN.
double kiln_winograd_most(const kiln_winograd_form *f, int64_t c, double weight);

// A convolution of that kind: |n| images of |h| x |w| outputs, |c| to |k| channels, by windows of
// |kh| x |kw|, 2 or 3 each.
typedef struct kiln_winograd_shape {
  int64_t n, h, w, c, k, kh, kw;
} kiln_winograd_shape;

// How its kernel runs. A block is a set of tiles whose transformed outputs stay in the L2, for
// |block_k| output channels; the transformed inputs of a block stay there too, or those of all
// blocks are made before.
typedef struct kiln_winograd_plan {
  const kiln_winograd_form *form;
  int64_t panel;            // output channels that are contiguous in the transformed weights
  int64_t block_h, block_w; // tiles of a block
  int64_t block_k;
  int64_t tile_h, tile_w; // tiles that the products keep in registers
  bool whole_input;       // all inputs are transformed before the first product
  double ns;              // predicted; direct_ns: of the convolution as it is
  double direct_ns;
} kiln_winograd_plan;

// The cheapest plan by the device's levels, of the forms with at most |points|, 0: of all; and of
// |panels| (tile/panels.h), 0: of any.
//
// needs: m->device
// gives: false where no plan is cheaper than the convolution as it is
bool kiln_winograd_plan_make(const kiln_machine *m, int n_threads, const kiln_winograd_shape *shape,
                             int points, uint32_t panels, kiln_winograd_plan *out);

// A convolution that may be rewritten, and how; |plan.form| NULL: it stays as it is.
typedef struct kiln_winograd_offer {
  kiln_winograd_shape shape;
  uint32_t panels; // in which other programs have the weights (tile/panels.h)
  kiln_winograd_plan plan;
} kiln_winograd_offer;

// Chooses plans whose weights take at most |more_bytes| more than the original ones (INFINITY: the
// cheapest plans), greedily by the time saved a byte.
void kiln_winograd_choose(kiln_ctx *cx, const kiln_machine *m, int n_threads, double more_bytes,
                          int n, kiln_winograd_offer *io);

#endif
