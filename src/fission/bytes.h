// Quantized tensors, and products of 8-bit integers.
//
// Processors multiply u8 by i8, four or more at once, and accumulate in i32. So data become u8 and
// constant weights i8. Weights are stored without their zero points if the differences fit in i8;
// otherwise as codes (u8 less 128), with zero points z shifted likewise, whose contribution is
// subtracted from the sums. That is exact, because i32 wraps:
//     sum_k (x_k - zx) (w_k - z) = sum_k x_k w_k - zx sum_k w_k - z sum_k (x_k - zx)
// Sums of weights are computed at compile time; those of data are few, one for all output channels
// of a group.
// group's output channels.
#ifndef KILN_FISSION_BYTES_H
#define KILN_FISSION_BYTES_H

#include "fission/window.h"

// Granularity of scales and zero points: per tensor, per index of |axis|, or per block of |block|
// indices of it.
typedef struct kiln_granularity {
  int axis;
  int64_t block;
} kiln_granularity;

// The operands of the DequantizeLinear that made a tensor.
struct kiln_quantised {
  kiln_tensor *codes, *scale, *zero; // zero NULL: 0
  kiln_granularity granularity;
};

bool kiln_dtype_is_byte(kiln_dtype t);            // i8 or u8
bool kiln_dtype_is_code_of_floats(kiln_dtype t);  // f8e4m3fn and the like
bool kiln_tensor_is_scalar(const kiln_tensor *t); // one element, any rank
bool kiln_tensor_is_zero(const kiln_tensor *t);   // a constant of zeros, or NULL
// Scale or zero point |p| for the element |at| of |x|, in dtype |t|.
kiln_status kiln_lower_parameter(kiln_lower *lw, const kiln_tensor *p, const kiln_granularity *how,
                                 const kiln_tensor *x, const kiln_expr *const *at, kiln_dtype t,
                                 const kiln_expr **out);
// Dequantizes |from|, in dtype |t|.
kiln_status kiln_lower_dequantised(kiln_lower *lw, const kiln_quantised *from, kiln_dtype t,
                                   kiln_tensor **out);
// Whether |x| was dequantized by one constant positive scale and one zero point, so that codes
// compare as values do.
bool kiln_quantised_keeps_order(const kiln_lower *lw, const kiln_tensor *x);
// If |x| was dequantized from type |t| with the same scale and zero point (NULL: none), so that
// quantizing it again gives its codes: these codes; NULL otherwise.
kiln_tensor *kiln_quantised_codes(const kiln_lower *lw, const kiln_tensor *x,
                                  const kiln_tensor *scale, const kiln_tensor *zero, kiln_dtype t);

// Data and weights as operands of a product; an element of the result reads weights at one index of
// |axis|.
typedef struct kiln_byte_product {
  kiln_tensor *x, *zero_x, *weights, *zero_weights; // zeros: NULL: none
  int axis;
} kiln_byte_product;

// Whether the weights are constants whose differences from their zero points fit in i8, or whose
// zero points are constants per tensor or per index of the axis, and the data have one zero point.
bool kiln_bytes_fit(const kiln_byte_product *p);
// The operands that |x| and |weights| (f32) were dequantized from, if they fit.
bool kiln_bytes_find(const kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                     int axis, kiln_byte_product *out);

// The operands in the types in which they are multiplied.
typedef struct kiln_byte_factors {
  kiln_tensor *x, *weights; // u8 and i8
  const kiln_expr *zero;    // of x, i32
  int axis;
  bool
      has_rest; // weights' zero points, |zero_weights| (NULL: 0) less |shift|, are to be subtracted
                // from sums
  const kiln_tensor *zero_weights;
  int shift;
  const kiln_expr *count; // products in a sum
} kiln_byte_factors;
kiln_status kiln_bytes_prepare(kiln_lower *lw, const kiln_byte_product *p, kiln_byte_factors *out);
// Sums of x along |axis|; the result has extent 1 in the last axis. NULL if no correction is
// needed.
kiln_tensor *kiln_bytes_sum_data(kiln_lower *lw, const kiln_byte_factors *f, int axis);
// Subtracts zero points: |sum| has sums of x * weights, |data| sums of x if a correction needs
// them; |along| is the weights' axis in |sum|, in |data| that of the groups.
kiln_status kiln_bytes_take_off(kiln_lower *lw, const kiln_byte_factors *f, const kiln_tensor *data,
                                kiln_tensor *sum, int along, kiln_tensor **out);
// The complete product, for matrices and for convolutions.
kiln_status kiln_bytes_matmul(kiln_lower *lw, const kiln_byte_product *p, kiln_tensor **out);
kiln_status kiln_bytes_conv(kiln_lower *lw, const kiln_byte_product *p, int64_t group,
                            const kiln_conv_window *w, kiln_tensor **out);
// Whether the channels of a group of |x| are a multiple of four, or nearly, so that padding them is
// worth it.
bool kiln_bytes_convolve(const kiln_tensor *x, int64_t channels, int64_t group);
// |sum| times the scales of |x| and |weights|, in f32.
kiln_status kiln_bytes_scale(kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                             kiln_tensor *sum, int along, kiln_tensor **out);

#endif
