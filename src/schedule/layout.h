// Copies of buffers whose axes lie in another order, in blocks, or rounded up.
#ifndef KILN_SCHEDULE_LAYOUT_H
#define KILN_SCHEDULE_LAYOUT_H

#include "schedule/edit.h"

// Where a source axis lies in a copy: as a whole, perhaps rounded up to blocks, or in two parts.
typedef struct kiln_source_axis {
  int whole, outer, inner; // axes of the copy; -1: not so
  int64_t block;           // 0: not rounded up
} kiln_source_axis;

// Refuses axes that do not name each source axis whole or in both parts. All arrays of source axes
// and what is about them have |rank| entries.
kiln_status kiln_axes_read(const kiln_edit *e, int rank, int n, const kiln_stage_axis *axes,
                           kiln_source_axis *out);
void kiln_axes_extents(int rank, const kiln_source_axis *s, const int64_t *from, int64_t *out);
void kiln_axes_index(kiln_ctx *cx, int rank, const kiln_source_axis *s,
                     const kiln_expr *const *from, const kiln_expr **out);
bool kiln_axes_ragged(const kiln_source_axis *s,
                      int64_t extent); // has elements besides the source's
const char *kiln_axes_text(kiln_ctx *cx, int n, const kiln_stage_axis *axes); // " 1/32 0 1%32"

#endif
