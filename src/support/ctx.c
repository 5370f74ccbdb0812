// The context: its arenas, the out-of-memory handler, and the table of symbols.
#include "support/ctx.h"
#include "support/numbers.h"
#include "support/reserve.h"
#include "support/surroundings.h"

#include <stdarg.h>
#include <string.h>

typedef struct symbol_entry {
  const char *text;
  size_t n;
  uint64_t hash;
} symbol_entry;

struct kiln_symbols {
  KILN_VEC(symbol_entry) entries; // by symbol
  uint32_t *slots;                // [n_slots], a power of two; symbol + 1, 0 is empty
  size_t n_slots;
};

static void make_room(kiln_ctx *cx) {
  cx->cleanups.data = kiln_vec_grow(&cx->perm, cx->cleanups.data, cx->cleanups.n, &cx->cleanups.cap,
                                    1, sizeof *cx->cleanups.data);
}

static kiln_status start(kiln_ctx *cx, void *argument) {
  (void)argument;
  make_room(cx);
  cx->symbols = KILN_NEW(&cx->perm, kiln_symbols);
  kiln_symbol_of(cx, "");
  kiln_map_init(&cx->read, &cx->perm);
  kiln_map_init(&cx->judged, &cx->perm);
  // Keeps a first block in the other arenas: rewinding an empty arena would free it.
  kiln_arena_alloc(&cx->scratch, 16);
  kiln_arena_alloc(&cx->walk, 16);
  return KILN_OK;
}

kiln_status kiln_ctx_init(kiln_ctx *cx, kiln_diag *diag) {
  *cx = (kiln_ctx){.diag = diag};
  const kiln_status status = kiln_ctx_enter(cx, start, NULL);
  if (status != KILN_OK) kiln_ctx_deinit(cx);
  return status;
}

void kiln_ctx_deinit(kiln_ctx *cx) {
  kiln_arena_deinit(&cx->walk);
  kiln_arena_deinit(&cx->scratch);
  kiln_arena_deinit(&cx->perm);
  *cx = (kiln_ctx){0};
}

static void set_oom_handler(kiln_ctx *cx, kiln_oom_handler *handler) {
  cx->perm.on_oom = cx->scratch.on_oom = cx->walk.on_oom = handler;
}

// State restored when memory runs out: the outer handler and the context at entry.
typedef struct entry {
  kiln_ctx *cx;
  kiln_oom_handler *outer;
  kiln_diag *diag;
  struct kiln_replacer *replacing;
  int n_cleanups;
} entry;

static void leave(void *object) {
  const entry *e = object;
  set_oom_handler(e->cx, e->outer); // a failure in a cleanup must not reenter
  while (e->cx->cleanups.n > e->n_cleanups) {
    const kiln_cleanup c = e->cx->cleanups.data[--e->cx->cleanups.n];
    c.run(c.object);
  }
  e->cx->diag = e->diag;
  e->cx->replacing = e->replacing;
}

kiln_status kiln_ctx_enter(kiln_ctx *cx, kiln_status (*body)(kiln_ctx *cx, void *argument),
                           void *argument) {
  entry before = {cx, cx->perm.on_oom, cx->diag, cx->replacing, cx->cleanups.n};
  kiln_oom_handler on_oom = {.leave = leave, .object = &before};
  const kiln_mark walk = kiln_arena_mark(&cx->walk), scratch = kiln_arena_mark(&cx->scratch);
  const kiln_surroundings surroundings = kiln_surroundings_begin();
  kiln_reserve_hold();
  if (setjmp(on_oom.at) == 0) {
    set_oom_handler(cx, &on_oom);
    const kiln_status status = body(cx, argument);
    set_oom_handler(cx, before.outer);
    kiln_reserve_release();
    kiln_surroundings_end(surroundings);
    return status;
  }
  kiln_arena_rewind(&cx->walk, walk);
  kiln_arena_rewind(&cx->scratch, scratch);
  kiln_reserve_release();
  kiln_surroundings_end(surroundings);
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, NULL, "no memory left");
}

void kiln_cleanup_push(kiln_ctx *cx, void (*run)(void *object), void *object) {
  cx->cleanups.data[cx->cleanups.n++] = (kiln_cleanup){run, object};
  make_room(cx); // reserves room afterwards, so that |object| is registered even if this fails
}

void kiln_cleanup_pop(kiln_ctx *cx) {
  KILN_ASSERT(cx->cleanups.n > 0);
  cx->cleanups.n--;
}

static void end_aside(void *object) {
  kiln_aside *a = object;
  a->cx->diag = a->outer;
  kiln_diag_destroy(a->mine);
}

kiln_status kiln_aside_begin(kiln_ctx *cx, kiln_aside *out) {
  *out = (kiln_aside){cx, cx->diag, kiln_diag_create()};
  if (!out->mine) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, NULL, "no memory left");
  cx->diag = out->mine;
  kiln_cleanup_push(cx, end_aside, out);
  return KILN_OK;
}

void kiln_aside_end(kiln_aside *a) {
  kiln_cleanup_pop(a->cx);
  end_aside(a);
}

// The slot of the symbol with that text, or the empty slot for it.
static uint32_t *symbol_slot(const kiln_symbols *s, const char *bytes, size_t n, uint64_t hash) {
  for (size_t i = hash & (s->n_slots - 1);; i = (i + 1) & (s->n_slots - 1)) {
    if (s->slots[i] == 0) return &s->slots[i];
    const symbol_entry *e = &s->entries.data[s->slots[i] - 1];
    if (e->hash == hash && e->n == n && memcmp(e->text, bytes, n) == 0) return &s->slots[i];
  }
}

static void symbols_grow(kiln_ctx *cx, kiln_symbols *s) {
  const size_t n_slots = s->n_slots ? s->n_slots * 2 : 256;
  s->slots = KILN_NEW_ARRAY(&cx->perm, uint32_t, n_slots);
  s->n_slots = n_slots;
  for (int i = 0; i < s->entries.n; i++) {
    const symbol_entry *e = &s->entries.data[i];
    *symbol_slot(s, e->text, e->n, e->hash) = (uint32_t)i + 1;
  }
}

kiln_symbol kiln_symbol_of_bytes(kiln_ctx *cx, const char *bytes, size_t n) {
  kiln_symbols *s = cx->symbols;
  if ((size_t)s->entries.n * 2 >= s->n_slots) symbols_grow(cx, s);
  const uint64_t hash = kiln_hash_bytes(bytes, n, 0);
  uint32_t *slot = symbol_slot(s, bytes, n, hash);
  if (*slot != 0) return *slot - 1;
  const symbol_entry e = {kiln_arena_strndup(&cx->perm, bytes, n), n, hash};
  KILN_VEC_PUSH(&cx->perm, &s->entries, e);
  *slot = (uint32_t)s->entries.n;
  return *slot - 1;
}

kiln_symbol kiln_symbol_of(kiln_ctx *cx, const char *text) {
  return kiln_symbol_of_bytes(cx, text, strlen(text));
}

kiln_symbol kiln_symbol_printf(kiln_ctx *cx, const char *format, ...) {
  char small[128];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int n = kiln_number_vformat(small, sizeof small, format, args);
  va_end(args);
  kiln_symbol symbol = 0;
  if (n >= 0 && (size_t)n < sizeof small) {
    symbol = kiln_symbol_of_bytes(cx, small, (size_t)n);
  } else if (n > 0) {
    const kiln_mark mark = kiln_arena_mark(&cx->walk);
    char *large = kiln_arena_alloc(&cx->walk, (size_t)n + 1);
    kiln_number_vformat(large, (size_t)n + 1, format, again);
    symbol = kiln_symbol_of_bytes(cx, large, (size_t)n);
    kiln_arena_rewind(&cx->walk, mark);
  }
  va_end(again);
  return symbol;
}

const char *kiln_symbol_text(const kiln_ctx *cx, kiln_symbol s) {
  return cx->symbols->entries.data[s].text;
}
