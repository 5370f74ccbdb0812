// Direct convolution of few channels on tensor cores: the windows are read from an input tile with
// its halo in shared memory.
//
// A convolution of C channels by constants, with its finish, becomes
//     P(.., h, w, c) = w < W && c < C ? X(..) : 0                C rounded up to C', contiguous
//     A(.., i, j, k) = P(.., s*i + k / R, t*j + k % R / C', k % R % C')
//     B(k, n') = K(n, k % R % C', k / R, k % R / C')
//     T(.., i, j, n' | k) +=! A(.., i, j, k) * B(k, n')
//     y(.., i, j, n) = f(T(.., i, j, n'), ..)
// where R, the number of terms in a window's row, is even, so that pairs of terms are contiguous
// and aligned: a lane of mma.m16n8k16 reads a pair at once. Terms that pad R are multiplied by
// zeros. Columns n' of T are numbered so that the sums of a lane (layout.h) are neighbours in the
// result.
#ifndef KILN_TEMPLATE_FORM_DIRECT_CONV_H
#define KILN_TEMPLATE_FORM_DIRECT_CONV_H

#include "template/form/product.h"

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_direct_conv {
  const kiln_stmt *p;
  kiln_product of;              // its m and n are the last two dims of the result
  int64_t rows;                 // extent of the dim before m, the rows of images
  int64_t stride[2], window[2]; // along rows and along m, in elements of P
  int64_t channels;             // C'
  bool bends;                   // a boundary map, reflection or clamping, indexes P's input
  int64_t run; // contiguous columns of the result that the four lanes of a row hold
} kiln_direct_conv;

// Brings |p|, one contraction and its finish, into the form if it is a convolution of few channels
// (kiln_match).
bool kiln_direct_conv_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_direct_conv_is(kiln_ctx *cx, const kiln_program *p, kiln_direct_conv *out);

#endif
