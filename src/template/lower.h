// Helpers shared by the lowerings of kernel templates: loops by name, vectors, parallel loops,
// multi-output kernels.
#ifndef KILN_TEMPLATE_LOWER_H
#define KILN_TEMPLATE_LOWER_H

#include "template/template.h"

kiln_symbol kiln_lowering_loop(kiln_lowering *w, const char *tensor, const char *part,
                               kiln_symbol dim); // "t0" "init." i0
kiln_symbol kiln_lowering_name(kiln_lowering *w, const char *suffix,
                               kiln_symbol dim); // i0 -> "i0.o"
static inline int64_t kiln_lowering_extent(const kiln_stmt *s, int dim) {
  return kiln_dim_extent(&s->dims[dim]);
}
// Runs |step| on |w|; a refusal (KILN_BAD_INPUT) is no failure, and earlier effects stay.
kiln_status kiln_lowering_try(kiln_lowering *w,
                              kiln_status (*step)(kiln_lowering *w, void *argument),
                              void *argument);
// Fuses the first loops of loops[0..n) until there is work for all threads, and runs the result in
// parallel.
//
// gives: *out_first, the loop that replaces loops[0]; *out_n_fused, how many loops it fuses
kiln_status kiln_lowering_parallel(kiln_lowering *w, int n, const kiln_symbol *loops,
                                   const int64_t *extents, kiln_symbol *out_first,
                                   int *out_n_fused);
// Splits the reduction |*io_loop| of |extent| around a register tile of |rows| and |vectors| so
// that several steps can be unrolled: where hyperthreads share the decoders, no slots are left for
// loop counters beside a small tile's products.
//
// gives: *io_loop, the loop that counts them, 0 where all are unrolled; *out_steps, the loop inside
//        to be unrolled, or 0
kiln_status kiln_lowering_split_steps(kiln_lowering *w, int64_t extent, int64_t rows,
                                      int64_t vectors, kiln_symbol *io_loop,
                                      kiln_symbol *out_steps);
// The most registers that a vector of a loop takes.
enum { KILN_MOST_VECTORS = 4 };
// The same for a loop around the map |s|: fewer where it has many loads.
int64_t kiln_lowering_most_vectors(const kiln_lowering *w, const kiln_stmt *s);
// A vector factor for a loop of |extent|: the largest of |most| down to 2 registers of |t| that
// divides it, else of |most|, its half, ... 1 that fits, or the extent itself below one.
int64_t kiln_lowering_vector(const kiln_lowering *w, int64_t extent, kiln_dtype t, int64_t most);
// Vectorizes |loop| of a nest that writes |t|, split with |tail| where it is longer than its
// vectors.
kiln_status kiln_lowering_vectorize(kiln_lowering *w, kiln_symbol loop, kiln_dtype t,
                                    kiln_tail tail);
// The same for a map, which may compute elements twice.
kiln_status kiln_lowering_vectorize_map(kiln_lowering *w, kiln_symbol loop, kiln_dtype t);
// Vectorizes the reduction |s| along the dim in which it reads memory contiguously, if there is
// one: by partial results a lane, combined at the end.
kiln_status kiln_lowering_vectorize_reduction(kiln_lowering *w, const kiln_stmt *s);
// The cost of |w|'s kernel run tile by tile over the dims that all its statements share: for a
// template that has one way to run it, of maps and sums. All zero when nothing is known of the
// device.
void kiln_lowering_price(kiln_lowering *w, kiln_tile_cost *out);
// Whether |s| stores a result besides the root, one that others in the kernel may read.
bool kiln_lowering_stores(const kiln_lowering *w, const kiln_stmt *s);
bool kiln_lowering_stores_several(const kiln_lowering *w); // any statement does
// Whether all results have dim |d| of the root: each of its iterations stores its share of all of
// them.
bool kiln_lowering_stores_along(const kiln_lowering *w, int d);

// The loops of y around everything, over its dims dims[0..n). sizes[k] > 0: the loop has been split
// into blocks of that size, which divides the extent.
typedef struct kiln_blocks {
  int n, dims[KILN_MAX_RANK];
  int64_t sizes[KILN_MAX_RANK];
  kiln_symbol loops[KILN_MAX_RANK];
} kiln_blocks;
// Moves the nest of |s|, which stores a result, into these loops; out_inner[d] is the loop inside
// of them over its dim d, or 0.
//
// needs: |s| has these dims; the loops are serial, and readers of |s| are inside of them
kiln_status kiln_lowering_join_result(kiln_lowering *w, const kiln_stmt *s, const kiln_blocks *b,
                                      kiln_symbol *out_inner);
// Specializes the loops around reads through boundary maps for the tiles that touch no border,
// where these are most; a step after any lowering.
kiln_status kiln_lowering_interior(kiln_lowering *w);

#endif
