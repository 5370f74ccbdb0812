// Implicit GEMM by im2col-mode TMA: what convolutions' windows read, as boxes: R rows of 64
// channels, each row that of the next window's element, those that lie beside the tensor zero. The
// tensor memory accelerator walks from window to window itself, along the columns, rows and images
// of a tensor (tensor maps of kind im2col): it is told where the first window lies, and which of a
// window's elements is meant.
// source: PTX ISA, "Tensors", "Im2col mode"
#ifndef KILN_TARGET_GPU_WINDOW_H
#define KILN_TARGET_GPU_WINDOW_H

#include "analysis/simplify.h"

enum { KILN_WINDOW_AXES = 3 }; // columns, rows and images

// A read X[index] of a tensor within loops, and where it counts.
typedef struct kiln_gpu_window_read {
  int n_vars;
  const kiln_symbol *vars; // of loops, each from 0 to below its extent
  const int64_t *extents;
  const bool *steps; // whether the loop runs from step to step of a reduction
  int n_conds;
  const kiln_expr *const *conds; // what holds around it
  kiln_symbol row, channel;      // among the vars: those of the box
  int rank;
  const int64_t *sizes, *strides; // of the tensor, in elements
  const kiln_expr *const *index;
  const kiln_expr *where; // elsewhere zeros are meant; NULL: everywhere
} kiln_gpu_window_read;

// The same as windows: number |first| and those behind it, whose places are the digits of their
// numbers, counts[] of them along columns and rows, steps[] apart, the first at lower[]; and of
// each the element at |offsets|.
typedef struct kiln_gpu_window {
  int64_t channels, sizes[KILN_WINDOW_AXES], strides[KILN_WINDOW_AXES];
  int64_t counts[2], steps[2], lower[2], upper[2];
  const kiln_expr *channel, *first[KILN_WINDOW_AXES],
      *offsets[2]; // over the vars but |row|, |channel|
} kiln_gpu_window;

// Whether the hardware can read so, and reads the same, which isl decides.
bool kiln_gpu_window_find(kiln_ctx *cx, const kiln_gpu_window_read *r, kiln_gpu_window *out);

#endif
