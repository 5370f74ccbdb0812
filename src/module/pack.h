// Constant packing: evaluates a kiln_pack at compile time, so that a constant is stored in the
// layout that its kernel reads.
#ifndef KILN_MODULE_PACK_H
#define KILN_MODULE_PACK_H

#include "ir/loop.h"

// How the elements of a buffer are made; immutable.
typedef struct kiln_packing kiln_packing;

// Prepares filling |b| from the constant |source| through |pack| (over o0..). |strides| of the
// source in elements; NULL is row-major. Lives in cx->perm, and so must all that is given.
//
// errors: KILN_INTERNAL when the map and the source do not fit
kiln_status kiln_packing_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                              const kiln_const *source, const int64_t *strides,
                              const kiln_packing **out);
// The buffer in slices that lie one behind the other and are filled independently; 0: it is empty.
int64_t kiln_packing_slices(const kiln_packing *p);
// Bytes in front of |slice|; of the number of slices: all that the buffer's elements span.
uint64_t kiln_packing_offset(const kiln_packing *p, int64_t slice);
// Whether every element of the buffer has one of the source behind it.
bool kiln_packing_is_whole(const kiln_packing *p);
// Fills the slices [begin, end); |to| is where the first of them begins, and must be zeroed unless
// the packing is whole: elements outside the source are not written.
//
// gives:   false when an index is no integer expression; kiln_packing_wrong says so
// threads: any
// cost:    affine maps: about 1 GB/s, transposed or not; others: one evaluation an element
bool kiln_packing_fill(const kiln_packing *p, int64_t begin, int64_t end, void *to);
kiln_status kiln_packing_wrong(kiln_ctx *cx, const kiln_packing *p);

// All of it: |to| holds kiln_buffer_elems(b) elements.
//
// errors: KILN_INTERNAL, as above
kiln_status kiln_pack_fill(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                           const kiln_const *source, const int64_t *strides, void *to);

#endif
