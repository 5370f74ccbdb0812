// Implicit GEMM by im2col-mode TMA: a copy brings R rows of 64 channels, each the same element of
// consecutive windows of a convolution, with zeros where it lies outside of the tensor. The tensor
// memory accelerator walks from window to window itself, along the columns, rows and images of the
// tensor; it is given the first window and which of a window's elements to read.
// source: PTX ISA, "Tensors", "Im2col mode"
#ifndef KILN_TARGET_GPU_IM2COL_H
#define KILN_TARGET_GPU_IM2COL_H

#include "analysis/simplify.h"

enum { KILN_IM2COL_AXES = 3 }; // columns, rows and images

// A read X[index] of a tensor in a loop nest.
typedef struct kiln_im2col_read {
  int n_vars;
  const kiln_symbol *vars; // of loops, each from 0 to below its extent
  const int64_t *extents;
  const bool *steps; // whether the loop runs from step to step of a reduction
  int n_conds;
  const kiln_expr *const *conds; // conditions around it
  kiln_symbol row, channel;      // among the vars: those of the copied tile
  int rank;
  const int64_t *sizes, *strides; // of the tensor, in elements
  const kiln_expr *const *index;
  const kiln_expr *where; // elsewhere the read is zero padding; NULL: no padding
  bool is_draft;          // isl is not asked: what no sampled point contradicts counts as proved
} kiln_im2col_read;

// The same read in terms of windows, numbered along columns first, then rows, then images: of the
// windows from number |first| on, the element at |offsets|. counts[] windows lie along columns and
// rows, steps[] apart (the stride), the first at lower[].
typedef struct kiln_im2col {
  int64_t channels, sizes[KILN_IM2COL_AXES], strides[KILN_IM2COL_AXES];
  int64_t counts[2], steps[2], lower[2], upper[2];
  const kiln_expr *channel, *first[KILN_IM2COL_AXES],
      *offsets[2]; // over the vars but |row|, |channel|
} kiln_im2col;

// Whether an im2col-mode TMA copy reads the same elements, which isl decides.
bool kiln_im2col_find(kiln_ctx *cx, const kiln_im2col_read *r, kiln_im2col *out);

#endif
