// A window reduction inside a kernel (pooling, a depthwise convolution): tiling shared by every
// template that contains one.
//
// The statement's tile of pixels x channels stays in registers over the whole window; channels are
// vectorized, pixels unrolled.
#ifndef KILN_TEMPLATE_CPU_WINDOW_H
#define KILN_TEMPLATE_CPU_WINDOW_H

#include "template/lower.h"

// One window reduction of a template's kernel, and how to run it.
typedef struct kiln_window_node {
  const kiln_stmt *stmt; // it writes T and is still where kiln_schedule_begin put it
  // The map that reads T element by element over dims of the same names and that is computed in its
  // place; NULL: T itself is the result.
  const kiln_stmt *finish;
  // The loop at which the result is computed into LOCAL memory; 0: the result stays where it is,
  // and its outer tile loops run on all threads.
  kiln_symbol at;
  // The innermost loop around a result that stays where the template has put it: nothing runs in
  // parallel inside; 0: it is at the top.
  kiln_symbol around;
  // The loop of the result over each of its dims, where the template has split that; 0: as begin
  // named it.
  kiln_symbol loops[KILN_MAX_RANK];
} kiln_window_node;

// Whether |s| reduces windows: its result's contiguous dim, along which it reads memory
// contiguously, is not reduced.
bool kiln_stmt_is_window(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);
// Places |node|'s reduction and tiles it. Loops of the result are split into .o and .i; those of T
// keep their names.
//
// needs: every reader of the result lies in |node|->at
// errors: KILN_BAD_INPUT: a primitive refuses
KILN_MUST_USE kiln_status kiln_lowering_window_node(kiln_lowering *w, const kiln_window_node *node);

#endif
