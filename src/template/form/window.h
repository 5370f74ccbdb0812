// Pooling and depthwise convolutions (sliding windows): reductions whose neighbouring results read
// some of the same elements, in the canonical form in which GPUs run them.
//
// A depthwise convolution or a pooling, with its finish, becomes
//     P(.., h, w, c) = inside ? X(.., h - 1, w - 1, c) : 0     K(r0, r1, c) = W(c, r0, r1)
//     T(.., i1, i2, c | r0, r1) +=! P(.., i1*s + r0, i2*s + r1, c) * K(r0, r1, c)
//     y(.., i1, i2, c) = f(T, ..)
// so that a thread loads and guards an element that neighbouring results share once, and keeps it
// in registers.
#ifndef KILN_TEMPLATE_FORM_WINDOW_H
#define KILN_TEMPLATE_FORM_WINDOW_H

#include "tile/query.h"

enum { KILN_WINDOW_DIMS = 3 };

// One dim of the windows: element i of the result reads elements |stride| * i + r of P, r < extent.
typedef struct kiln_window_dim {
  int dim, reduction; // of T
  int64_t stride, extent;
} kiln_window_dim;

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_window {
  const kiln_stmt *p, *k, *t, *y; // k is NULL if no weights are read
  int n;                          // dims, in the order of P's axes
  kiln_window_dim dims[KILN_WINDOW_DIMS];
} kiln_window;

// A map over |dims| into a new tensor, without a body and in no list of statements yet.
kiln_stmt *kiln_window_stmt(kiln_ctx *cx, kiln_program *p, kiln_symbol origin, const char *name,
                            kiln_dtype t, int n, const kiln_dim *dims);
// Whether |p| is a reduction followed by maps over the same dims.
bool kiln_window_sum(const kiln_program *p, kiln_stmt **out);
// Brings |p|, such a reduction and maps of its results, into the form (kiln_match).
bool kiln_window_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_window_is(kiln_ctx *cx, const kiln_program *p, kiln_window *out);

#endif
