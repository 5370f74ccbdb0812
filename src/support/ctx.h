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
  kiln_arena walk; // memo tables of the walks over expressions; touched by ir/expr.c alone, so that
                   // the callbacks of a walk may allocate in the other two
  kiln_diag *diag; // borrowed
  kiln_symbols *symbols;
  struct kiln_expr_table *exprs;   // ir/expr.c interns here; made on first use
  struct kiln_replacer *replacing; // whose callback runs; ir/expr.c's
  kiln_map read; // what was read of a text once, in |perm|: by the address of the text, which stays
  struct kiln_simplified
      *simplified; // what was simplified last; analysis/simplify.c's, made on first use
  kiln_map judged; // verdicts on pairs of accesses, in |perm|; analysis/dependence.c's
  KILN_VEC(kiln_cleanup)
  cleanups; // run in reverse order when memory runs out; there is room for one more
} kiln_ctx;

// Prepares |cx|. Both return KILN_NO_MEMORY when memory is out.
KILN_MUST_USE kiln_status kiln_ctx_init(kiln_ctx *cx, kiln_diag *diag);
void kiln_ctx_deinit(kiln_ctx *cx);
// Runs |body(argument)| with an out-of-memory handler: an allocation that fails anywhere below
// makes this return KILN_NO_MEMORY, after the cleanups that |body| registered and did not remove
// have run. |body| runs in surroundings of Kiln's own (support/surroundings.h).
KILN_MUST_USE kiln_status kiln_ctx_enter(kiln_ctx *cx,
                                         kiln_status (*body)(kiln_ctx *cx, void *argument),
                                         void *argument);
// |object| may lie in the caller's frame: cleanups run before that is left.
void kiln_cleanup_push(kiln_ctx *cx, void (*run)(void *object), void *object);
void kiln_cleanup_pop(kiln_ctx *cx); // removes the newest without running it

// Messages go to a list of their own between the two, as those of a step that may be refused; in
// |mine| until the end. It lies in the caller's frame.
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
