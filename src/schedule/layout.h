// Copies of buffers with permuted, blocked or padded axes.
#ifndef KILN_SCHEDULE_LAYOUT_H
#define KILN_SCHEDULE_LAYOUT_H

#include "schedule/edit.h"

// The axes of a copy for one axis of the source: one whole axis, which may be padded to blocks, or
// two axes, the block's number and the place in it.
typedef struct kiln_source_axis {
  int whole, outer, inner; // axes of the copy; -1: none
  int64_t block;           // 0: not padded
} kiln_source_axis;

// Requires that |axes| name each source axis whole or in both parts. Arrays by source axis have
// |rank| entries.
kiln_status kiln_axes_read(const kiln_edit *e, int rank, int n, const kiln_stage_axis *axes,
                           kiln_source_axis *out);
void kiln_axes_extents(int rank, const kiln_source_axis *s, const int64_t *from, int64_t *out);
void kiln_axes_index(kiln_ctx *cx, int rank, const kiln_source_axis *s,
                     const kiln_expr *const *from, const kiln_expr **out);
bool kiln_axes_ragged(const kiln_source_axis *s,
                      int64_t extent); // it has padding, besides the source's elements
const char *kiln_axes_text(kiln_ctx *cx, int n, const kiln_stage_axis *axes); // " 1/32 0 1%32"

#endif
