// The context of one compilation: two arenas, the diagnostics, the interned symbols and
// expressions. One thread at a time.
#ifndef KILN_SUPPORT_CTX_H
#define KILN_SUPPORT_CTX_H

#include "support/arena.h"
#include "support/map.h"
#include "support/text.h"
#include "support/vec.h"

typedef uint32_t kiln_symbol; // an interned string; 0 is the empty string

typedef struct kiln_symbols kiln_symbols;
struct kiln_expr_table;

typedef struct kiln_cleanup {
  void (*run)(void *object);
  void *object;
} kiln_cleanup;

typedef struct kiln_ctx {
  kiln_arena perm;    // lives as long as the context
  kiln_arena scratch; // mark and rewind around each pass
  kiln_arena walk;    // memo tables of expression traversals; used by ir/expr.c only, so that
                      // callbacks of a traversal may allocate in the other two
  kiln_diag *diag;    // borrowed
  kiln_symbols *symbols;
  struct kiln_expr_table *exprs;   // intern table of ir/expr.c; created on first use
  struct kiln_replacer *replacing; // the running traversal of ir/expr.c
  kiln_map read; // cache of texts parsed once, in |perm|: keyed by the text's address, which stays
                 // valid
  struct kiln_simplified *simplified; // cache of analysis/simplify.c; created on first use
  kiln_map judged; // cache of dependence verdicts, in |perm|, of analysis/dependence.c
  KILN_VEC(kiln_cleanup)
  cleanups; // run in reverse order when memory runs out; has room for one more
} kiln_ctx;

// Initializes |cx|. KILN_NO_MEMORY if memory is out.
KILN_MUST_USE kiln_status kiln_ctx_init(kiln_ctx *cx, kiln_diag *diag);
void kiln_ctx_deinit(kiln_ctx *cx);
// Runs |body(argument)| with an out-of-memory handler: if an allocation fails anywhere below, it
// runs the cleanups that |body| registered and did not remove, and returns KILN_NO_MEMORY. |body|
// runs in the floating-point environment and locale of support/surroundings.h.
KILN_MUST_USE kiln_status kiln_ctx_enter(kiln_ctx *cx,
                                         kiln_status (*body)(kiln_ctx *cx, void *argument),
                                         void *argument);
// |object| may be on the stack of |body|: cleanups run before the stack is unwound.
void kiln_cleanup_push(kiln_ctx *cx, void (*run)(void *object), void *object);
void kiln_cleanup_pop(kiln_ctx *cx); // removes the latest without running it

// Between begin and end, messages go to a list |mine|, for example those of a step that may fail.
// Lives on the caller's stack.
typedef struct kiln_aside {
  kiln_ctx *cx;
  kiln_diag *outer, *mine;
} kiln_aside;
KILN_MUST_USE kiln_status kiln_aside_begin(kiln_ctx *cx, kiln_aside *out);
void kiln_aside_end(kiln_aside *a);

kiln_symbol kiln_symbol_of(kiln_ctx *cx, const char *text);
kiln_symbol kiln_symbol_of_bytes(kiln_ctx *cx, const char *bytes, size_t n);
kiln_symbol kiln_symbol_printf(kiln_ctx *cx, const char *format, ...) KILN_PRINTF(2, 3);
const char *kiln_symbol_text(const kiln_ctx *cx, kiln_symbol s); // NUL-terminated, owned by |cx|

#endif
