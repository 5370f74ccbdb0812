// The plan of a fused tile: what a group of statements is as operations on tiles of whole rows.
//
// A block computes some rows of every statement. Dims of statements that index the same axis of a
// tensor are one axis, whatever the statements call them; so a plan follows from what is computed,
// and not from how an exporter spells it. For example, of a product and the softmax of its rows:
//
//     rows m:128, columns n:64, terms k:32
//     t0(m, n) sums products over k of a0 and a1
//     t1(m)    reduces t0 along n: FULL
//     t2(m, n) maps t0, t1: in place
//     t3(m)    reduces t2 along n: FULL
//     y(m, n)  maps t2, t3: in place
//
// An edge between two statements is in place, where an element needs elements of the same place
// alone; FULL, where it needs the whole of an axis; or STREAM, where that axis can be taken in
// chunks, each computed when it is needed.
#ifndef KILN_TEMPLATE_FORM_FUSED_PLAN_H
#define KILN_TEMPLATE_FORM_FUSED_PLAN_H

#include "tile/query.h"

enum { KILN_FUSED_OPS = 24, KILN_FUSED_AXES = 12, KILN_FUSED_EDGES = 64 };

typedef enum kiln_fused_kind {
  KILN_FUSED_PRODUCT,   // sums products of a left factor by row and a right factor by column
  KILN_FUSED_REDUCTION, // reduces along an axis, to an element a row
  KILN_FUSED_MAP        // of elements, or of an element a row
} kiln_fused_kind;

typedef enum kiln_fused_role {
  KILN_FUSED_BATCH, // a block has one of it: right factors depend on it, or results do not merge it
  KILN_FUSED_ROW,   // a digit of the rows' number
  KILN_FUSED_OTHER  // columns or terms
} kiln_fused_role;

// A dim of the statements that have it: an equivalence class.
typedef struct kiln_fused_dim {
  int64_t extent;
  kiln_fused_role role;
  int axis; // of an OTHER: the axis whose digit it is
} kiln_fused_dim;

// Dims that all statements have together, numbered as one.
typedef struct kiln_fused_axis {
  int n, dims[KILN_MAX_RANK]; // the highest digit first
  int64_t extent;
} kiln_fused_axis;

typedef struct kiln_fused_op {
  const kiln_stmt *s;
  kiln_fused_kind kind;
  int column, along;             // axes: of its elements; that it reduces; -1: none
  const kiln_expr *left, *right; // factors of a product
  int left_op;                   // the op whose result is the left factor; -1: another expression
  int dims[2 * KILN_MAX_RANK];   // of |s|, by position; -1: of extent 1
} kiln_fused_op;

typedef enum kiln_fused_pass {
  KILN_FUSED_IN_PLACE,
  KILN_FUSED_FULL,
  KILN_FUSED_STREAM
} kiln_fused_pass;

typedef struct kiln_fused_edge {
  int from, to; // ops
  kiln_fused_pass pass;
} kiln_fused_edge;

typedef struct kiln_fused_plan {
  int n_dims, n_axes, n_ops, n_edges;
  kiln_fused_dim dims[KILN_FUSED_OPS * 4];
  kiln_fused_axis axes[KILN_FUSED_AXES];
  kiln_fused_op ops[KILN_FUSED_OPS]; // in the program's order; the last is the sink
  kiln_fused_edge edges[KILN_FUSED_EDGES];
  kiln_fused_axis rows;              // in the sink's order
  int n_batch, batch[KILN_MAX_RANK]; // dims, in the sink's order
} kiln_fused_plan;

// Plans |p|, an outlined kernel.
//
// gives: false if it is no such tile; *out_why then says what stands against it
bool kiln_fused_plan_make(kiln_ctx *cx, const kiln_program *p, kiln_fused_plan *out,
                          const char **out_why);
// Prints the plan as above.
void kiln_fused_plan_print(kiln_ctx *cx, const kiln_program *p, const kiln_fused_plan *plan,
                           kiln_text *out);

#endif
