// Target-dependent passes over the program of statements, before fusion. Their order is in the
// table of driver/pipeline.c.
#ifndef KILN_TRANSFORM_TRANSFORM_H
#define KILN_TRANSFORM_TRANSFORM_H

#include "tile/facts.h"
#include "tile/query.h"

// Whether the contraction |s| will load vectors along the rows of |load|, if it stays row-major;
// false for a convolution with data stored channels last.
bool kiln_tile_reads_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                          const kiln_expr *load);

// Index-table elimination, on GPUs: entries of tables that are a function of the index are computed
// instead of loaded, as row i / 2 of a resize by two. (index_tables.c)
void kiln_tile_compute_index_tables(kiln_ctx *cx, kiln_program *p);
// Mask-table elimination, on GPUs: constants of two values, one of them in a band along a diagonal,
// become the band's condition. (mask_tables.c)
void kiln_tile_compute_mask_tables(kiln_ctx *cx, kiln_program *p);
kiln_status kiln_tile_inline(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
// Inlining: cheap maps and statements that only move elements are computed by their consumers.
// Axis coalescing: two axes of a map that are one axis both of its operand and in all its consumers
// are stored as one: [8, 16] between two reshapes from and to [128].
kiln_status kiln_tile_coalesce(kiln_ctx *cx, kiln_program *p);
// Operand widening, on CPUs: 8-bit operands of products are stored in 16 bits where that is faster.
kiln_status kiln_tile_widen_operands(kiln_ctx *cx, kiln_program *p, const kiln_facts *facts,
                                     const kiln_machine *m);
// Layout assignment: the storage order of each temporary. (layout.c)
kiln_status kiln_tile_layout(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: in a depthwise convolution with a channel multiplier, the axes of groups and of channels
// of a group become one. (coalesce.c)
void kiln_tile_coalesce_groups(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: removes taps of convolution windows that read only padding (taps.c).
//
// gives: *io_n plus the taps removed; statements renumbered if there are any
kiln_status kiln_tile_remove_taps(kiln_ctx *cx, kiln_program *p, int *io_n);
// View folding, on GPUs: padding, views and single-use producers are inlined into their consumers.
kiln_status kiln_tile_fold_views(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
// In-place concatenation (buffer aliasing): producers write into the tensor that concatenates or
// pads them.
kiln_status kiln_tile_concat_in_place(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                                      const kiln_machine *m);
// Makes output |output| of |p|, which has the elements of input |input| but for those that its
// statement stores, a view of the input's memory: the statement stores these only. |grows|: none of
// them is an element of the input, so others may read it at any time. Otherwise the statement
// becomes the last one if others read the input. False: it is not such an output, or others read
// both it and the input. (state_in_place.c)
bool kiln_tile_state_in_place(kiln_ctx *cx, kiln_program *p, int input, int output, bool grows);
// Materializes the paddings stmts[0..n), ascending, whose decision kiln_tile_concat_in_place left
// open.
//
// gives: statements renumbered
kiln_status kiln_tile_materialize(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, int n,
                                  const int *stmts);

#endif
