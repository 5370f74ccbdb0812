// Passes over the program of statements that ask the machine, in front of grouping. Their order are
// rows of driver/pipeline.c.
#ifndef KILN_TRANSFORM_TRANSFORM_H
#define KILN_TRANSFORM_TRANSFORM_H

#include "tile/facts.h"
#include "tile/query.h"

// Whether the contraction |s| comes to read vectors along the rows of |load|, as long as that stays
// row-major; not so a convolution whose data is stored channels last.
bool kiln_tile_reads_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                          const kiln_expr *load);

// On GPUs: places and weights of tables that follow from their index are computed (index_tables.c).
void kiln_tile_compute_index_tables(kiln_ctx *cx, kiln_program *p);
kiln_status kiln_tile_inline(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
// Maps whose axes are cut from one axis of what they read, and read as that one, are stored by it.
kiln_status kiln_tile_coalesce(kiln_ctx *cx, kiln_program *p);
// On CPUs: data of products of bytes are stored in 16 bits where that is faster.
kiln_status kiln_tile_widen_operands(kiln_ctx *cx, kiln_program *p, const kiln_facts *facts,
                                     const kiln_machine *m);
kiln_status kiln_tile_layout(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: groups of one channel and the few that each gives are one axis (coalesce.c).
void kiln_tile_coalesce_groups(kiln_ctx *cx, kiln_program *p, const kiln_machine *m);
// On CPUs: taps of windows that read nothing but padding are left out (taps.c). Statements are
// renumbered where any are.
kiln_status kiln_tile_leave_out_taps(kiln_ctx *cx, kiln_program *p, int *io_n);
// On GPUs: what pads or moves elements, or computes them for one product, is read through by its
// readers.
kiln_status kiln_tile_fold_views(kiln_ctx *cx, kiln_program *p, const kiln_machine *m, int *io_n);
kiln_status kiln_tile_concat_in_place(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                                      const kiln_machine *m);
// Assembles stmts[0..n), ascending, of those that kiln_tile_concat_in_place has left waiting.
//
// gives: statements renumbered
kiln_status kiln_tile_materialize(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, int n,
                                  const int *stmts);

#endif
