// Direct convolution of few channels on tensor cores: the windows are read from an input tile with
// its halo in shared memory.
//
// A convolution of C channels by constants, with its finish, becomes
//     P(.., h, w, c) = w < W && c < C ? X(..) : 0                    channels side by side, their
//     number rounded up A(.., i, j, k) = P(.., s*i + k / R, t*j + k % R / C', k % R % C')   B(k,
//     n') = K(n, k % R % C', k / R, k % R / C') T(.., i, j, n' | k) +=! A(.., i, j, k) * B(k, n')
//                y(.., i, j, n) = f(T(.., i, j, n'), ..)
// where R, the terms of a window's row, is even, so that each pair of terms lies side by side at a
// multiple of two: what a lane of mma.m16n8k16 reads at once. What a window's row has too many is
// multiplied by zeros. Columns of T are numbered so that a lane's sums (fragment.h) are
// neighbours of the result.
#ifndef KILN_TEMPLATE_FORM_PATCH_H
#define KILN_TEMPLATE_FORM_PATCH_H

#include "template/form/product.h"

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_patch {
  const kiln_stmt *p;
  kiln_product of;              // its m and n are the last two dims of the result
  int64_t rows;                 // of images: the dim in front of them
  int64_t stride[2], window[2]; // along rows and m; of P's elements
  int64_t channels;             // of P
  bool bends;                   // P's elements come from where a boundary map says
  int64_t run; // columns of T whose sums a quad of lanes has, neighbours of the result
} kiln_patch;

// Brings |p|, one contraction and its finish, into the form if it is such a convolution
// (kiln_match).
bool kiln_patch_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_patch_is(kiln_ctx *cx, const kiln_program *p, kiln_patch *out);

#endif
