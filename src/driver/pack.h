// Evaluates kiln_pack: constants in the layout that a kernel wants, made once at compile time.
#ifndef KILN_DRIVER_PACK_H
#define KILN_DRIVER_PACK_H

#include "ir/loop.h"
#include "runtime/pool.h"

// Fills the elements of |b| from the constant |source| through |pack| (over o0..). |to| holds
// kiln_buffer_elems(b) elements and must be zeroed: elements outside the source are not written.
// |strides| of the source in elements; NULL is row-major. Large affine maps are shared by the
// threads of |pool|; NULL: the caller alone.
//
// errors: KILN_INTERNAL when the map and the source do not fit or an index is no integer expression
// cost:   affine maps: about 1 GB/s a thread, transposed or not; others: one evaluation an element
kiln_status kiln_pack_fill(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                           const kiln_const *source, const int64_t *strides, kiln_pool *pool,
                           void *to);

#endif
