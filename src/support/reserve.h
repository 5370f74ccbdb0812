// A memory reserve for libraries that cannot report failed allocations: LLVM aborts the process.
// While a thread works in such a library it holds a reserve, from which allocations are served that
// the system refuses. The library finishes; then the caller learns that the reserve was used and
// returns KILN_NO_MEMORY. Arenas do not use the reserve: they call their out-of-memory handler at
// the next block.
//
// The reserve is address space only: untouched pages take no memory. It serves allocations of code
// linked statically into the same file (cmake/llvm.cmake wraps malloc), including LLVM and the C++
// library. Otherwise, as under sanitizers, a reserve is empty and never used.
#ifndef KILN_SUPPORT_RESERVE_H
#define KILN_SUPPORT_RESERVE_H

#include "support/status.h"

// Memory that a library may need to finish: LLVM was seen to take up to 8 MiB for kernels.
#define KILN_RESERVE_BYTES ((size_t)64 << 20)

// Keeps this thread's reserve between uses, to save the cost of recreating it. Optional.
void kiln_reserve_hold(void);
void kiln_reserve_release(void);

// Between begin and end, this thread's allocations may use its reserve; calls nest. If a context's
// memory may run out in between, a cleanup must end the reserve.
//
// errors: KILN_NO_MEMORY: the system refuses the address space
KILN_MUST_USE kiln_status kiln_reserve_begin(kiln_diag *diag);
// gives: |status|, or KILN_NO_MEMORY if the reserve was used since the outermost begin
kiln_status kiln_reserve_end(kiln_diag *diag, kiln_status status);
bool kiln_reserve_is_drawn(void); // whether it was used so far

// malloc and aligned_alloc without the reserve.
void *kiln_reserve_pass(size_t bytes);
void *kiln_reserve_pass_aligned(size_t align, size_t bytes);

#endif
