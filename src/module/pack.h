// Constant packing: evaluates a kiln_pack at compile time, so that a constant is stored in the
// layout that its kernel reads.
#ifndef KILN_MODULE_PACK_H
#define KILN_MODULE_PACK_H

#include "ir/loop.h"

// A layout transform of a constant, prepared for execution; immutable.
typedef struct kiln_packing kiln_packing;

// Prepares filling |b| from the constant |source| through |pack| (over o0..). |strides| of the
// source are in elements; NULL is row-major. Allocates from cx->perm, where the arguments must
// live, too.
//
// errors: KILN_INTERNAL if the map does not fit the source
kiln_status kiln_packing_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                              const kiln_const *source, const int64_t *strides,
                              const kiln_packing **out);
// The number of slices, which follow each other in the buffer and can be filled independently; 0:
// the buffer is empty.
int64_t kiln_packing_slices(const kiln_packing *p);
// The offset of |slice| in bytes; for the number of slices, the size of the buffer.
uint64_t kiln_packing_offset(const kiln_packing *p, int64_t slice);
// Whether every element of the buffer maps to a source element, so that no zeros are needed.
bool kiln_packing_is_whole(const kiln_packing *p);
// Fills the slices [begin, end); |to| is the beginning of the first of them, and must be zeroed
// unless the packing is whole: elements without a source are not written.
//
// gives:   false if an index is not an integer expression; kiln_packing_wrong has the message
// threads: any
// cost:    affine maps: about 1 GB/s, also transposed; others: one evaluation an element
bool kiln_packing_fill(const kiln_packing *p, int64_t begin, int64_t end, void *to);
kiln_status kiln_packing_wrong(kiln_ctx *cx, const kiln_packing *p);

// Fills the whole buffer: |to| holds kiln_buffer_elems(b) elements.
//
// errors: KILN_INTERNAL, as above
kiln_status kiln_pack_fill(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                           const kiln_const *source, const int64_t *strides, void *to);

#endif
