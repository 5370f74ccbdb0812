// The C library's allocator with a fault in it: the n-th allocation from now, or every one from
// there on, is refused, in whichever thread and library it is asked for. Whoever includes this
// defines malloc and the like for the whole process.
#ifndef KILN_TEST_DRIVER_REFUSE_H
#define KILN_TEST_DRIVER_REFUSE_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *block);

static atomic_long n_asked, n_live; // allocations since the start; blocks that are not freed
static atomic_long refuse_from, refuse_until; // of |n_asked|; refuse_from 0: none is refused

static inline bool is_refused(void) {
  const long i = atomic_fetch_add(&n_asked, 1) + 1, from = atomic_load(&refuse_from);
  if (from == 0 || i < from || i > atomic_load(&refuse_until)) return false;
  errno = ENOMEM;
  return true;
}

static inline void *counted(void *block) {
  if (block) atomic_fetch_add(&n_live, 1);
  return block;
}

#pragma GCC visibility push(default) // for the libraries, too
void *malloc(size_t bytes) { return is_refused() ? NULL : counted(__libc_malloc(bytes)); }
void *calloc(size_t n, size_t bytes) {
  return is_refused() ? NULL : counted(__libc_calloc(n, bytes));
}
void *realloc(void *block, size_t bytes) {
  if (is_refused()) return NULL;
  void *grown = __libc_realloc(block, bytes);
  if (!block) return counted(grown);
  if (!grown && bytes == 0) atomic_fetch_sub(&n_live, 1);
  return grown;
}
void *memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes) {
  return is_refused() ? NULL : counted(__libc_memalign(align, bytes));
}
void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void **out, size_t align, size_t bytes) {
  void *block = memalign(align, bytes);
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}
void free(void *block) {
  if (block) atomic_fetch_sub(&n_live, 1);
  __libc_free(block);
}
#pragma GCC visibility pop

// The |n|-th allocation from now is refused; |all|: all behind it, too. 0: none any more.
static inline void refuse(long n, bool all) {
  const long from = n > 0 ? atomic_load(&n_asked) + n : 0;
  atomic_store(&refuse_until, all ? LONG_MAX : from);
  atomic_store(&refuse_from, from);
}

#endif
