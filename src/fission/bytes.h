// Quantised tensors, and sums of products of their bytes.
//
// Processors multiply u8 by i8, several at once, and add the products up in i32. So data are made
// u8 and constant weights i8. These are without their zero points where they fit i8 so; where not,
// they are the codes, those of u8 less 128, and the zero points z are, too. What the products have
// too much is taken off their sums, which is exact, as i32 wraps:
//     sum_k (x_k - zx) (w_k - z) = sum_k x_k w_k - zx sum_k w_k - z sum_k (x_k - zx)
// The sums of the weights are known when compiling; those of the data are few, one for all of a
// group's output channels.
#ifndef KILN_FISSION_BYTES_H
#define KILN_FISSION_BYTES_H

#include "fission/window.h"

// How scales and zero points lie along a tensor: one for all, one for each place of |axis|, or one
// for each block of |block| places of it.
typedef struct kiln_spread {
  int axis;
  int64_t block;
} kiln_spread;

// What a tensor was dequantised from.
struct kiln_quantised {
  kiln_tensor *codes, *scale, *zero; // zero: NULL: none
  kiln_spread spread;
};

bool kiln_dtype_is_byte(kiln_dtype t);            // i8 or u8
bool kiln_dtype_is_code_of_floats(kiln_dtype t);  // f8e4m3fn and the like
bool kiln_tensor_is_scalar(const kiln_tensor *t); // of one element, whatever its rank
bool kiln_tensor_is_zero(const kiln_tensor *t);   // a constant of zeros, or NULL
// The parameter |p|, a scale or a zero point, for the element of |x| at |at|, in dtype |t|.
kiln_status kiln_lower_parameter(kiln_lower *lw, const kiln_tensor *p, const kiln_spread *how,
                                 const kiln_tensor *x, const kiln_expr *const *at, kiln_dtype t,
                                 const kiln_expr **out);
// What |from|'s codes, or others in their place, stand for, in dtype |t|.
kiln_status kiln_lower_dequantised(kiln_lower *lw, const kiln_quantised *from, kiln_dtype t,
                                   kiln_tensor **out);
// Whether |x| was made of bytes by one constant scale, greater than zero, and one zero point: by
// order, then.
bool kiln_quantised_keeps_order(const kiln_lower *lw, const kiln_tensor *x);
// The codes of |t| that |x| was made of by just this scale and zero point (NULL: none): what it is
// quantised to again; NULL if there are none.
kiln_tensor *kiln_quantised_codes(const kiln_lower *lw, const kiln_tensor *x,
                                  const kiln_tensor *scale, const kiln_tensor *zero, kiln_dtype t);

// Data and weights as the operands of a product, a result's element reading weights of one place of
// |axis|.
typedef struct kiln_byte_product {
  kiln_tensor *x, *zero_x, *weights, *zero_weights; // zeros: NULL: none
  int axis;
} kiln_byte_product;

// Whether the weights are constants, and their zero points constants that they fit i8 without, or
// one for all, or one for each place of the axis; and whether the data have one zero point.
bool kiln_bytes_fit(const kiln_byte_product *p);
// The operands that |x| and |weights| were dequantised from, in f32, if these fit.
bool kiln_bytes_find(const kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                     int axis, kiln_byte_product *out);

// Such operands as they are multiplied.
typedef struct kiln_byte_factors {
  kiln_tensor *x, *weights; // u8 and i8
  const kiln_expr *zero;    // of x, i32
  int axis;
  bool
      has_rest; // the weights' zero points, |zero_weights| (NULL: 0) less |shift|, are still to be taken off
  const kiln_tensor *zero_weights;
  int shift;
  const kiln_expr *count; // products in a sum
} kiln_byte_factors;
kiln_status kiln_bytes_prepare(kiln_lower *lw, const kiln_byte_product *p, kiln_byte_factors *out);
// The sums of x along |axis|, in whose place the result has a last axis of extent 1; NULL where
// nothing is to be taken off the weights.
kiln_tensor *kiln_bytes_sum_data(kiln_lower *lw, const kiln_byte_factors *f, int axis);
// The sums of products without zero points, from |sum|, those of x * weights, and |data|, those of
// x where the weights want them; |along|: the weights' axis in |sum|, in |data| that of the groups.
kiln_status kiln_bytes_take_off(kiln_lower *lw, const kiln_byte_factors *f, const kiln_tensor *data,
                                kiln_tensor *sum, int along, kiln_tensor **out);
// The whole of it, for matrices and convolutions.
kiln_status kiln_bytes_matmul(kiln_lower *lw, const kiln_byte_product *p, kiln_tensor **out);
kiln_status kiln_bytes_conv(kiln_lower *lw, const kiln_byte_product *p, int64_t group,
                            const kiln_conv_window *w, kiln_tensor **out);
// Whether a convolution of |x| with so many channels in a group is one of whole groups of bytes, or
// is made so by some channels of zeros.
bool kiln_bytes_convolve(const kiln_tensor *x, int64_t channels, int64_t group);
// |sum| times the scales of |x| and |weights|, in f32.
kiln_status kiln_bytes_scale(kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                             kiln_tensor *sum, int along, kiln_tensor **out);

#endif
