// Sliding windows: the geometry of convolutions and pools, and the convolution itself.
#ifndef KILN_FISSION_WINDOW_H
#define KILN_FISSION_WINDOW_H

#include "fission/terms.h"

// A window over the |n| spatial axes of a tensor (N, C, spatial...).
typedef struct kiln_conv_window {
  int n;
  int64_t kernel[KILN_MAX_RANK], stride[KILN_MAX_RANK], dilation[KILN_MAX_RANK];
  const kiln_expr *begin[KILN_MAX_RANK], *end[KILN_MAX_RANK]; // pads
  const kiln_expr *in[KILN_MAX_RANK], *out[KILN_MAX_RANK];    // extents
} kiln_conv_window;

// Reads kernel_shape, strides, dilations, pads, auto_pad and ceil_mode for the input |x|; without
// kernel_shape the kernel is that of |weights| (M, C/group, kernel...), which is NULL for pools.
//
// errors: BAD_INPUT for lists of the wrong length, extents that are not positive, a kernel larger
// than the input
kiln_status kiln_conv_window_read(kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                                  kiln_conv_window *out);
// The entries of a list attribute, |n| of them, |otherwise| if absent; each at least |min|.
kiln_status kiln_conv_window_list(kiln_lower *lw, const char *attr, int n, int64_t otherwise,
                                  int64_t min, int64_t *out);

// Extent of the window in the input: from its first element to past its last along spatial axis
// |i|.
static inline int64_t kiln_conv_window_reach(const kiln_conv_window *w, int i) {
  return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

// The extent of spatial axis |i| of weights, at least 1.
kiln_status kiln_conv_window_kernel(kiln_lower *lw, const kiln_tensor *weights, int i,
                                    int64_t *out);

// Pads the spatial axes of |x| as |w| says with |outside|; |x| itself if there are no pads.
kiln_tensor *kiln_conv_window_pad(kiln_lower *lw, kiln_tensor *x, const kiln_conv_window *w,
                                  const kiln_expr *outside);
// The convolution of |x| (N, C, ...) with |weights| (M, C/group, kernel...), accumulated in
// |accumulator|, without bias. Pads are materialized, so the contraction has no guards.
kiln_status kiln_lower_conv(kiln_lower *lw, kiln_tensor *x, kiln_tensor *weights, int64_t group,
                            const kiln_conv_window *w, kiln_dtype accumulator, kiln_tensor **out);
// y + bias(m), for a bias of shape (M); |y| if |bias| is NULL.
kiln_status kiln_lower_channel_bias(kiln_lower *lw, kiln_tensor *y, const kiln_tensor *bias,
                                    kiln_tensor **out);

#endif
