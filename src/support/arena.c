// Arenas as a list of blocks, newest first. A block is freed when the arena is rewound past it.
// Under AddressSanitizer, released memory inside of a block and gaps between allocations are
// poisoned.
#include "support/arena.h"
#include "support/asan.h"
#include "support/numbers.h"
#include "support/reserve.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Tests make blocks so small that each holds one allocation.
#ifndef KILN_ARENA_FIRST_BLOCK
#define KILN_ARENA_FIRST_BLOCK (64 << 10)
#define KILN_ARENA_LARGEST_BLOCK (2 * HUGE_PAGE - 64)
#endif

enum {
  ALIGN = 16,
  GAP = KILN_HAS_ASAN ? 16 : 0, // between allocations
  HUGE_PAGE = 2 << 20,
  FIRST_BLOCK = KILN_ARENA_FIRST_BLOCK,
  LARGEST_BLOCK = KILN_ARENA_LARGEST_BLOCK
};

struct kiln_arena_block {
  kiln_arena_block *older;
  size_t bytes; // of |data|
  _Alignas(16) char data[];
};

void kiln_arena_init(kiln_arena *a, kiln_oom_handler *on_oom) {
  *a = (kiln_arena){.on_oom = on_oom};
}

static void block_free(kiln_arena_block *b) {
  KILN_UNPOISON(b->data, b->bytes);
  free(b);
}

void kiln_arena_deinit(kiln_arena *a) {
  while (a->block) {
    kiln_arena_block *older = a->block->older;
    block_free(a->block);
    a->block = older;
  }
  *a = (kiln_arena){.on_oom = a->on_oom};
}

void kiln_arena_out_of_memory(kiln_arena *a) {
  kiln_oom_handler *const on_oom = a->on_oom; // read first: the handler may free |a|
  if (!on_oom) abort();
  on_oom->leave(on_oom->object);
  longjmp(on_oom->at, 1);
}

// Large blocks use huge pages if available, because they are filled contiguously. Blocks are not
// taken from the thread's reserve, which belongs to libraries.
static void *allocate(size_t bytes) {
  if (kiln_reserve_is_drawn()) return NULL;
  if (bytes < 2 * HUGE_PAGE - 64) return kiln_reserve_pass(bytes);
  void *p = kiln_reserve_pass_aligned(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  if (p) (void)madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

// Block sizes double up to a limit: few blocks for long compilations, little memory for short ones.
static void block_push(kiln_arena *a, size_t bytes) {
  size_t size = a->block ? a->block->bytes * 2 : FIRST_BLOCK;
  if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
  if (size < bytes) size = bytes;
  if (size > PTRDIFF_MAX - sizeof(kiln_arena_block)) kiln_arena_out_of_memory(a);
  kiln_arena_block *b = allocate(sizeof(*b) + size);
  if (!b) kiln_arena_out_of_memory(a);
  b->older = a->block;
  b->bytes = size;
  a->block = b;
  a->at = b->data;
  a->end = b->data + size;
  KILN_POISON(b->data, size);
}

void *kiln_arena_alloc(kiln_arena *a, size_t bytes) {
  if (a->fail_in > 0 && --a->fail_in == 0) kiln_arena_out_of_memory(a);
  if (bytes > PTRDIFF_MAX - ALIGN - GAP) kiln_arena_out_of_memory(a);
  const size_t size = ((bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + GAP;
  if ((size_t)(a->end - a->at) < size || !a->block) block_push(a, size);
  void *p = a->at;
  KILN_UNPOISON(p, bytes);
  a->at += size;
  a->used_bytes += size - GAP;
  return p;
}

void *kiln_arena_zalloc(kiln_arena *a, size_t bytes) {
  return memset(kiln_arena_alloc(a, bytes), 0, bytes);
}

char *kiln_arena_strndup(kiln_arena *a, const char *text, size_t n) {
  char *copy = kiln_arena_alloc(a, n + 1);
  if (n > 0) memcpy(copy, text, n);
  copy[n] = 0;
  return copy;
}

char *kiln_arena_strdup(kiln_arena *a, const char *text) {
  return kiln_arena_strndup(a, text, strlen(text));
}

char *kiln_arena_vprintf(kiln_arena *a, const char *format, va_list args) {
  char small[256];
  va_list again;
  va_copy(again, args);
  int n = kiln_number_vformat(small, sizeof small, format, args);
  if (n < 0) n = 0;
  char *text = kiln_arena_alloc(a, (size_t)n + 1);
  if ((size_t)n < sizeof small) memcpy(text, small, (size_t)n);
  else kiln_number_vformat(text, (size_t)n + 1, format, again);
  text[n] = 0;
  va_end(again);
  return text;
}

char *kiln_arena_printf(kiln_arena *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = kiln_arena_vprintf(a, format, args);
  va_end(args);
  return text;
}

kiln_mark kiln_arena_mark(const kiln_arena *a) {
  return (kiln_mark){a->block, a->at, a->used_bytes};
}

void kiln_arena_rewind(kiln_arena *a, kiln_mark m) {
  while (a->block != m.block) {
    kiln_arena_block *older = a->block->older;
    block_free(a->block);
    a->block = older;
  }
  a->at = m.at;
  a->end = m.block ? m.block->data + m.block->bytes : NULL;
  a->used_bytes = m.used_bytes;
  if (m.block) KILN_POISON(a->at, (size_t)(a->end - a->at));
}
