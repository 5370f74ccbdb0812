// Memory kept back for libraries that cannot say that theirs is out: LLVM ends the process. While a
// thread works in one, it holds a reserve, and an allocation of the library that the system refuses
// is taken from there. The library comes to its end, and the caller then learns that the reserve
// was drawn upon and gives up with KILN_NO_MEMORY. The arenas call their out-of-memory handler at
// the next block instead, as they do without a reserve.
//
// The reserve is of address space alone: pages of it that nobody asked for take no memory. It
// reaches the allocations of what is linked into the same file statically (cmake/llvm.cmake wraps
// malloc there), LLVM and the C++ library among them. Without that, as under the sanitizers, a
// reserve is empty, and nothing draws upon it.
#ifndef KILN_SUPPORT_RESERVE_H
#define KILN_SUPPORT_RESERVE_H

#include "support/status.h"

// What a library may still need to come to its end: LLVM was seen to take up to 8 MiB for kernels.
#define KILN_RESERVE_BYTES ((size_t)64 << 20)

// This thread keeps its reserve from one use to the next, which is quicker; none is needed where
// there is none.
void kiln_reserve_hold(void);
void kiln_reserve_release(void);

// Between the two, this thread's allocations may draw upon its reserve; the calls nest. A context
// whose memory runs out between them must end the reserve in a cleanup.
//
// errors: KILN_NO_MEMORY: the system does not give one
KILN_MUST_USE kiln_status kiln_reserve_begin(kiln_diag *diag);
// gives: |status|, or KILN_NO_MEMORY in its place where the reserve was drawn upon since the
//        outermost begin
kiln_status kiln_reserve_end(kiln_diag *diag, kiln_status status);
bool kiln_reserve_is_drawn(void); // the same, before the end

// malloc and aligned_alloc as they are without a reserve.
void *kiln_reserve_pass(size_t bytes);
void *kiln_reserve_pass_aligned(size_t align, size_t bytes);

#endif
