// Arenas: memory that is freed all at once. Allocation never returns NULL: if memory is out, it
// calls the handler set by kiln_ctx_enter, which runs the registered cleanups and then calls
// longjmp.
#ifndef KILN_SUPPORT_ARENA_H
#define KILN_SUPPORT_ARENA_H

#include "support/status.h"

#include <setjmp.h>
#include <stdarg.h>

typedef struct kiln_arena_block kiln_arena_block;
// The out-of-memory handler: |leave| cleans up, then control continues at |at|.
typedef struct kiln_oom_handler {
  jmp_buf at;
  void (*leave)(void *object); // called first, while the stack frames are still valid
  void *object;
} kiln_oom_handler;

typedef struct kiln_arena {
  kiln_arena_block *block;  // newest first; owned
  char *at, *end;           // free part of the newest block
  kiln_oom_handler *on_oom; // NULL aborts
  size_t used_bytes;        // sum of live allocations, for reports
  int64_t fail_in;          // for tests: the n-th allocation from now fails; 0: none
} kiln_arena;

typedef struct kiln_mark {
  kiln_arena_block *block;
  char *at;
  size_t used_bytes;
} kiln_mark;

void kiln_arena_init(kiln_arena *a, kiln_oom_handler *on_oom);
void kiln_arena_deinit(kiln_arena *a);
void *kiln_arena_alloc(kiln_arena *a, size_t bytes); // 16-byte aligned, uninitialized, never NULL
// Calls the handler, as a failed allocation does.
_Noreturn void kiln_arena_out_of_memory(kiln_arena *a);
void *kiln_arena_zalloc(kiln_arena *a, size_t bytes); // the same, zeroed
char *kiln_arena_strdup(kiln_arena *a, const char *text);
char *kiln_arena_strndup(kiln_arena *a, const char *text, size_t n);
char *kiln_arena_printf(kiln_arena *a, const char *format, ...) KILN_PRINTF(2, 3);
char *kiln_arena_vprintf(kiln_arena *a, const char *format, va_list args) KILN_PRINTF(2, 0);
kiln_mark kiln_arena_mark(const kiln_arena *a);
void kiln_arena_rewind(kiln_arena *a,
                       kiln_mark m); // frees everything allocated since |m|; poisons it under ASan

#define KILN_NEW(arena, T) ((T *)kiln_arena_zalloc((arena), sizeof(T)))
#define KILN_NEW_ARRAY(arena, T, n)                                                                \
  ((T *)kiln_arena_zalloc((arena), sizeof(T) * (size_t)((n) > 0 ? (n) : 1)))

#endif
