// Scripts: one primitive a line. Each successful primitive prints its line; this file parses lines
// and runs them.
#include "ir/cursor.h"
#include "schedule/nearest.h"
#include "schedule/nest.h"
#include "schedule/holes.h"
#include "schedule/instr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 64 }; // of a line; a condition is one word

typedef struct line {
  kiln_schedule *s;
  int n;
  const char *words[MAX_WORDS];
  bool quoted[MAX_WORDS];       // then it is a name, never a keyword
  const char *begin[MAX_WORDS]; // in the text, to read the rest of the line as one condition
  const char *end;              // the end of the words
  const char *place;            // "schedule: line 3"
} line;

static kiln_status bad(const line *w, const char *what, const char *got) {
  return KILN_FAIL(w->s->cx->diag, KILN_BAD_INPUT, w->place, "%s: %s, got \"%s\"", w->words[0],
                   what, got);
}

static kiln_symbol name(const line *w, int i) { return kiln_symbol_of(w->s->cx, w->words[i]); }

static kiln_status number(const line *w, const char *text, int64_t *out) {
  char *end = NULL;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end != text && *end == 0 && errno == 0) return KILN_OK;
  return bad(w, "must be a number", text);
}

// Gives the number of the name in |names| that equals |text|.
static kiln_status choice(const line *w, const char *text, int n, const char *const *names,
                          int *out) {
  kiln_text list;
  kiln_text_init(&list, &w->s->cx->perm);
  for (*out = 0; *out < n; ++*out) {
    if (strcmp(names[*out], text) == 0) return KILN_OK;
    kiln_text_printf(&list, "%s%s", *out ? *out + 1 < n ? ", " : " or " : "must be ", names[*out]);
  }
  return bad(w, list.data, text);
}

static kiln_status scope(const line *w, const char *text, kiln_scope *out) {
  static const char *const names[] = {"workspace", "shared", "local", "register"};
  int i = 0;
  KILN_TRY(choice(w, text, KILN_LEN(names), names, &i));
  *out = (kiln_scope)(KILN_SCOPE_WORKSPACE + i);
  return KILN_OK;
}

static kiln_status tail_word(const line *w, const char *text, kiln_tail *out) {
  const char *tails[KILN_TAIL_EXACT + 1];
  int tail = 0;
  for (int i = 0; i < (int)KILN_LEN(tails); i++) tails[i] = kiln_tail_text((kiln_tail)i);
  KILN_TRY(choice(w, text, KILN_LEN(tails), tails, &tail));
  *out = (kiln_tail)tail;
  return KILN_OK;
}

static kiln_status run_split(const line *w) {
  int64_t factor = 0;
  kiln_tail tail = KILN_TAIL_GUARD;
  KILN_TRY(number(w, w->words[2], &factor));
  KILN_TRY(tail_word(w, w->words[3], &tail));
  return kiln_split(w->s, name(w, 1), factor, tail, name(w, 4), name(w, 5));
}

static kiln_status run_tile(const line *w) {
  int64_t x = 0, y = 0;
  kiln_tail tail = KILN_TAIL_GUARD;
  KILN_TRY(number(w, w->words[3], &x));
  KILN_TRY(number(w, w->words[4], &y));
  KILN_TRY(tail_word(w, w->words[5], &tail));
  return kiln_tile(w->s, name(w, 1), name(w, 2), x, y, tail, name(w, 6), name(w, 7), name(w, 8),
                   name(w, 9));
}

static kiln_status run_fuse(const line *w) {
  return kiln_fuse(w->s, name(w, 1), name(w, 2), name(w, 3));
}

static kiln_status run_reorder(const line *w) {
  kiln_symbol loops[MAX_WORDS];
  for (int i = 1; i < w->n; i++) loops[i - 1] = name(w, i);
  return kiln_reorder(w->s, w->n - 1, loops);
}

static kiln_status run_merge(const line *w) {
  static const char *const words[] = {"second"};
  int64_t shift = 0;
  int i = 0;
  if (w->n > 3) KILN_TRY(number(w, w->words[3], &shift));
  if (w->n > 4) KILN_TRY(choice(w, w->words[4], KILN_LEN(words), words, &i));
  return (w->n > 4 ? kiln_merge_into : kiln_merge)(w->s, name(w, 1), name(w, 2), shift);
}

static kiln_status run_online_softmax(const line *w) {
  kiln_symbol loops[MAX_WORDS];
  const char *copy = NULL;
  bool flushes = false;
  int n = 0;
  for (int i = 2; i < w->n && !copy; i++) {
    if (!w->quoted[i] && strcmp(w->words[i], "flush") == 0) flushes = true;
    else if (i + 1 < w->n && !w->quoted[i] && strcmp(w->words[i], "copy") == 0)
      copy =
          kiln_arena_strndup(&w->s->cx->perm, w->begin[i + 1], (size_t)(w->end - w->begin[i + 1]));
    else loops[n++] = name(w, i);
  }
  return kiln_online_softmax(w->s, n, loops, name(w, 1), flushes, copy);
}

static kiln_status run_reverse(const line *w) { return kiln_reverse(w->s, name(w, 1)); }
static kiln_status run_parallel(const line *w) { return kiln_parallel(w->s, name(w, 1)); }
static kiln_status run_vectorize(const line *w) { return kiln_vectorize(w->s, name(w, 1)); }
static kiln_status run_unroll(const line *w) { return kiln_unroll(w->s, name(w, 1)); }
static kiln_status run_inline(const line *w) { return kiln_inline(w->s, name(w, 1)); }
static kiln_status run_prepack(const line *w) { return kiln_prepack(w->s, name(w, 1)); }
static kiln_status run_rfactor(const line *w) { return kiln_rfactor(w->s, name(w, 1), name(w, 2)); }

static kiln_status run_stream_k(const line *w) {
  int64_t portions = 0;
  KILN_TRY(number(w, w->words[2], &portions));
  return kiln_stream_k(w->s, name(w, 1), portions, name(w, 3), name(w, 4), name(w, 5), name(w, 6));
}

static kiln_status run_tidy(const line *w) { return kiln_tidy(w->s); }

static kiln_status run_peel(const line *w) {
  int64_t at = 0;
  KILN_TRY(number(w, w->words[2], &at));
  return kiln_peel(w->s, name(w, 1), at);
}

static kiln_status run_annotate(const line *w) {
  return kiln_annotate(w->s, name(w, 1), name(w, 2), name(w, 3));
}

static kiln_status run_bind(const line *w) {
  static const char *const axes[] = {"block.x",  "block.y",  "block.z",
                                     "thread.x", "thread.y", "thread.z"};
  int axis = 0;
  KILN_TRY(choice(w, w->words[2], KILN_LEN(axes), axes, &axis));
  return kiln_bind(w->s, name(w, 1), (kiln_how)(KILN_BLOCK_X + axis));
}

static kiln_status run_distribute(const line *w) {
  static const char *const words[] = {"like"};
  int64_t lanes = 0, warps = 1;
  int i = 0;
  KILN_TRY(choice(w, w->words[2], KILN_LEN(words), words, &i));
  KILN_TRY(number(w, w->words[4], &lanes));
  if (w->n > 5) KILN_TRY(number(w, w->words[5], &warps));
  return kiln_distribute(w->s, name(w, 1), name(w, 3), lanes, warps);
}

static kiln_status run_replicate(const line *w) {
  int64_t copies = 0;
  KILN_TRY(number(w, w->words[2], &copies));
  return kiln_replicate(w->s, name(w, 1), copies);
}

static kiln_status run_use_copy(const line *w) {
  const size_t n = (size_t)(w->end - w->begin[3]);
  return kiln_use_copy(w->s, name(w, 1), name(w, 2),
                       kiln_arena_strndup(&w->s->cx->perm, w->begin[3], n));
}

static kiln_status run_cluster(const line *w) {
  int64_t blocks = 0;
  KILN_TRY(number(w, w->words[2], &blocks));
  return kiln_cluster(w->s, name(w, 1), blocks);
}

static kiln_status run_warp_specialize(const line *w) {
  int64_t consumers = 0;
  KILN_TRY(number(w, w->words[2], &consumers));
  return kiln_warp_specialize(w->s, name(w, 1), consumers);
}

static kiln_status run_fuse_horizontally(const line *w) {
  return kiln_fuse_horizontally(w->s, name(w, 1));
}

static kiln_status run_pad(const line *w) {
  int64_t factor = 0;
  KILN_TRY(number(w, w->words[2], &factor));
  return kiln_pad(w->s, name(w, 1), factor);
}

static kiln_status run_compute_at(const line *w) {
  kiln_scope to = KILN_SCOPE_LOCAL;
  KILN_TRY(scope(w, w->words[3], &to));
  return kiln_compute_at(w->s, name(w, 1), name(w, 2), to);
}

// AXIS, AXIS/BLOCK, AXIS%BLOCK or AXIS^MULTIPLE
static kiln_status stage_axis(const line *w, const char *text, kiln_stage_axis *out) {
  char *end = NULL;
  const long axis = strtol(text, &end, 10);
  *out = (kiln_stage_axis){.axis = axis < 0 || axis > KILN_MAX_RANK + 4 ? -1 : (int)axis};
  if (end == text || (*end && !strchr("/%^", *end)))
    return bad(w, "must be an axis such as 1, 1/32, 1%32 or 1^32", text);
  if (*end) KILN_TRY(number(w, end + 1, &out->block));
  if (*end && out->block <= 0) return bad(w, "must have blocks of one or more", text);
  out->outer = *end == '/';
  out->pad = *end == '^';
  return KILN_OK;
}

// Parses the axes from word |first| on.
static kiln_status stage_axes(const line *w, int first, kiln_stage_axis *out) {
  for (int i = first; i < w->n; i++) KILN_TRY(stage_axis(w, w->words[i], &out[i - first]));
  return KILN_OK;
}

static kiln_status run_transform_layout(const line *w) {
  kiln_stage_axis axes[MAX_WORDS];
  KILN_TRY(stage_axes(w, 2, axes));
  return kiln_transform_layout(w->s, name(w, 1), w->n - 2, axes);
}

static kiln_status run_view(const line *w) {
  int64_t axis = 0, block = 0;
  KILN_TRY(number(w, w->words[2], &axis));
  KILN_TRY(number(w, w->words[3], &block));
  if (axis < 0 || axis > KILN_MAX_RANK + 4) return bad(w, "must be an axis", w->words[2]);
  return kiln_view(w->s, name(w, 1), (int)axis, block);
}

static kiln_status run_prefetch(const line *w) {
  int64_t distance = 0;
  KILN_TRY(number(w, w->words[3], &distance));
  return w->n > 4 ? kiln_prefetch_in_turns(w->s, name(w, 1), name(w, 2), distance, name(w, 4))
                  : kiln_prefetch(w->s, name(w, 1), name(w, 2), distance);
}

static kiln_status run_specialize(const line *w) {
  const size_t n = (size_t)(w->end - w->begin[2]);
  return kiln_specialize(w->s, name(w, 1), kiln_arena_strndup(&w->s->cx->perm, w->begin[2], n));
}

// skip LOOP from FIRST to END
static kiln_status run_skip(const line *w) {
  int to = 3;
  while (to < w->n && (w->quoted[to] || strcmp(w->words[to], "to") != 0)) to++;
  if (w->quoted[2] || strcmp(w->words[2], "from") != 0 || to == 3 || to + 1 >= w->n)
    return bad(w, "must have bounds \"from FIRST to END\"", w->words[2]);
  kiln_arena *perm = &w->s->cx->perm;
  const char *first =
      kiln_arena_strndup(perm, w->begin[3], (size_t)(w->begin[to] - 1 - w->begin[3]));
  return kiln_skip(w->s, name(w, 1), first,
                   kiln_arena_strndup(perm, w->begin[to + 1], (size_t)(w->end - w->begin[to + 1])));
}

static kiln_status run_pipeline(const line *w) {
  int64_t depth = 0, ahead = 0;
  KILN_TRY(number(w, w->words[3], &depth));
  if (depth < INT32_MIN || depth > INT32_MAX) return bad(w, "must be a depth", w->words[3]);
  if (w->n == 4) return kiln_pipeline(w->s, name(w, 1), name(w, 2), (int)depth);
  KILN_TRY(number(w, w->words[4], &ahead));
  if (ahead < INT32_MIN || ahead > INT32_MAX) return bad(w, "must be iterations", w->words[4]);
  return kiln_pipeline_ahead(w->s, name(w, 1), name(w, 2), (int)depth, (int)ahead);
}

static kiln_status run_storage_align(const line *w) {
  int64_t axis = 0, factor = 0, offset = 0;
  KILN_TRY(number(w, w->words[2], &axis));
  KILN_TRY(number(w, w->words[3], &factor));
  KILN_TRY(number(w, w->words[4], &offset));
  if (axis < 0 || axis > KILN_MAX_RANK + 4) return bad(w, "must be an axis", w->words[2]);
  return kiln_storage_align(w->s, name(w, 1), (int)axis, factor, offset);
}

static kiln_status run_swizzle(const line *w) { return kiln_swizzle(w->s, name(w, 1)); }

// A loop's name, or 0 for the whole kernel.
static kiln_symbol loop_or_kernel(const line *w, int i) {
  return !w->quoted[i] && strcmp(w->words[i], "0") == 0 ? 0 : name(w, i);
}

static kiln_status run_stage(const line *w) {
  kiln_stage_axis axes[MAX_WORDS];
  kiln_scope to = KILN_SCOPE_LOCAL;
  KILN_TRY(scope(w, w->words[3], &to));
  KILN_TRY(stage_axes(w, 5, axes));
  return kiln_stage(w->s, name(w, 1), loop_or_kernel(w, 2), to, w->n - 5, axes, name(w, 4));
}

static kiln_status run_hoist(const line *w) { return kiln_hoist(w->s, name(w, 1)); }
static kiln_status run_unswitch(const line *w) { return kiln_unswitch(w->s, name(w, 1)); }
static kiln_status run_compute_root(const line *w) { return kiln_compute_root(w->s, name(w, 1)); }

static kiln_status run_store_at(const line *w) {
  static const char *const words[] = {"fold"};
  int i = 0;
  if (w->n > 3) KILN_TRY(choice(w, w->words[3], KILN_LEN(words), words, &i));
  return kiln_store_at(w->s, name(w, 1), loop_or_kernel(w, 2), w->n > 3);
}

static kiln_status run_decompose_reduction(const line *w) {
  return kiln_decompose_reduction(w->s, name(w, 1), name(w, 2));
}

static kiln_status run_reverse_compute_at(const line *w) {
  return kiln_reverse_compute_at(w->s, name(w, 1), name(w, 2));
}

static kiln_status run_cache_write(const line *w) {
  kiln_stage_axis axes[MAX_WORDS];
  KILN_TRY(stage_axes(w, 3, axes));
  return kiln_cache_write(w->s, name(w, 1), name(w, 2), w->n - 3, axes);
}

static kiln_status run_tensorize(const line *w) {
  for (int i = 0; i < w->s->n_instrs; i++)
    if (kiln_instr_is_named(&w->s->instrs[i], w->words[2]))
      return kiln_tensorize(w->s, name(w, 1), &w->s->instrs[i]);
  kiln_text known;
  kiln_text_init(&known, &w->s->cx->scratch);
  for (int i = 0; i < w->s->n_instrs; i++)
    kiln_text_printf(&known, "%s%s", i > 0 ? ", " : "", w->s->instrs[i].name);
  return KILN_FAIL(w->s->cx->diag, KILN_BAD_INPUT, w->place,
                   "tensorize: must name an instruction of the target (%s), got \"%s\"",
                   w->s->n_instrs > 0 ? known.data : "it has none", w->words[2]);
}

static const struct {
  const char *word, *form;
  int min, max; // words
  kiln_status (*run)(const line *w);
} primitives[] = {
    {"split", "split LOOP FACTOR guard|shift|peel|round|exact OUTER INNER", 6, 6, run_split},
    {"tile", "tile X Y X_FACTOR Y_FACTOR guard|shift|peel|round|exact XO YO XI YI", 10, 10,
     run_tile},
    {"fuse", "fuse OUTER INNER FUSED", 4, 4, run_fuse},
    {"reorder", "reorder LOOP...", 2, MAX_WORDS, run_reorder},
    {"merge", "merge FIRST SECOND [SHIFT [second]]", 3, 5, run_merge},
    {"online_softmax", "online_softmax NAME LOOP LOOP... [flush] [copy EXPRESSION]", 4, MAX_WORDS,
     run_online_softmax},
    {"reverse", "reverse LOOP", 2, 2, run_reverse},
    {"parallel", "parallel LOOP", 2, 2, run_parallel},
    {"vectorize", "vectorize LOOP", 2, 2, run_vectorize},
    {"unroll", "unroll LOOP", 2, 2, run_unroll},
    {"annotate", "annotate LOOP KEY VALUE", 4, 4, run_annotate},
    {"bind", "bind LOOP block.x|...|thread.z", 3, 3, run_bind},
    {"distribute", "distribute LOOP like BUFFER LANES [WARPS]", 5, 6, run_distribute},
    {"replicate", "replicate BUFFER COPIES", 3, 3, run_replicate},
    {"use_copy", "use_copy LOOP BUFFER EXPRESSION", 4, INT32_MAX, run_use_copy},
    {"cluster", "cluster LOOP BLOCKS", 3, 3, run_cluster},
    {"warp_specialize", "warp_specialize LOOP CONSUMERS", 3, 3, run_warp_specialize},
    {"fuse_horizontally", "fuse_horizontally LOOP", 2, 2, run_fuse_horizontally},
    {"pad", "pad LOOP FACTOR", 3, 3, run_pad},
    {"peel", "peel LOOP AT", 3, 3, run_peel},
    {"hoist", "hoist LOOP", 2, 2, run_hoist},
    {"unswitch", "unswitch LOOP", 2, 2, run_unswitch},
    {"compute_at", "compute_at BUFFER LOOP shared|local|register", 4, 4, run_compute_at},
    {"compute_root", "compute_root BUFFER", 2, 2, run_compute_root},
    {"store_at", "store_at BUFFER LOOP [fold]", 3, 4, run_store_at},
    {"reverse_compute_at", "reverse_compute_at CONSUMER LOOP", 3, 3, run_reverse_compute_at},
    {"decompose_reduction", "decompose_reduction BUFFER LOOP", 3, 3, run_decompose_reduction},
    {"cache_write", "cache_write BUFFER NAME AXIS...", 3, MAX_WORDS, run_cache_write},
    {"inline", "inline BUFFER", 2, 2, run_inline},
    {"prepack", "prepack BUFFER", 2, 2, run_prepack},
    {"stage", "stage BUFFER LOOP|0 workspace|shared|local|register NAME AXIS...", 5, MAX_WORDS,
     run_stage},
    {"transform_layout", "transform_layout BUFFER AXIS...", 2, MAX_WORDS, run_transform_layout},
    {"view", "view BUFFER AXIS BLOCK", 4, 4, run_view},
    {"storage_align", "storage_align BUFFER AXIS FACTOR OFFSET", 5, 5, run_storage_align},
    {"swizzle", "swizzle BUFFER", 2, 2, run_swizzle},
    {"prefetch", "prefetch BUFFER LOOP DISTANCE [INNER]", 4, 5, run_prefetch},
    {"specialize", "specialize LOOP CONDITION", 3, INT32_MAX, run_specialize},
    {"skip", "skip LOOP from FIRST to END", 6, MAX_WORDS, run_skip},
    {"pipeline", "pipeline BUFFER LOOP DEPTH [AHEAD]", 4, 5, run_pipeline},
    {"rfactor", "rfactor LOOP NAME", 3, 3, run_rfactor},
    {"stream_k", "stream_k LOOP PORTIONS NAME KEPT OUTER INNER", 7, 7, run_stream_k},
    {"tidy", "tidy", 1, 1, run_tidy},
    {"tensorize", "tensorize LOOP INSTRUCTION", 3, 3, run_tensorize},
};

// Earlier names of primitives, which scripts may still use.
static const struct {
  const char *was, *word;
} renamed[] = {{"beside", "fuse_horizontally"},
               {"portion", "stream_k"},
               {"crew", "warp_specialize"},
               {"stream", "online_softmax"}};

static const char *name_now(const char *word) {
  for (size_t i = 0; i < KILN_LEN(renamed); i++)
    if (!strcmp(renamed[i].was, word)) return renamed[i].word;
  return word;
}

static kiln_status unknown_primitive(const line *w) {
  kiln_nearest near = {.word = w->words[0]};
  for (size_t i = 0; i < KILN_LEN(primitives); i++) kiln_nearest_offer(&near, primitives[i].word);
  return KILN_FAIL(w->s->cx->diag, KILN_BAD_INPUT, w->place,
                   "a line must begin with a primitive, got \"%s\"%s", near.word,
                   kiln_nearest_text(w->s->cx, &near));
}

static kiln_status run_line(line *w) {
  w->words[0] = name_now(w->words[0]);
  for (size_t i = 0; i < KILN_LEN(primitives); i++) {
    if (strcmp(primitives[i].word, w->words[0]) != 0) continue;
    if (w->n < primitives[i].min || w->n > primitives[i].max)
      return KILN_FAIL(w->s->cx->diag, KILN_BAD_INPUT, w->place, "%s: must be \"%s\", got %d words",
                       w->words[0], primitives[i].form, w->n);
    const kiln_status st = primitives[i].run(w);
    if (st != KILN_OK && !w->s->where) // the primitive has reported the reason; this adds the line
      return KILN_FAIL(w->s->cx->diag, st, w->place, "%s: must be legal, got a refusal",
                       w->words[0]);
    return st;
  }
  return unknown_primitive(w);
}

// The end of the word at |p|: at a blank or a comment outside of quotes.
static const char *word_end(const char *p, const char *end) {
  for (bool quoted = false; p < end; p++) {
    if (quoted && *p == '\\' && p + 1 < end) p++;
    else if (*p == '"') quoted = !quoted;
    else if (!quoted && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '#')) break;
  }
  return p;
}

// Adds a word. A quoted word is a name; one with quotes inside, as a condition, stays as it is.
static kiln_status take_word(line *w, const char *from, const char *to) {
  kiln_ctx *cx = w->s->cx;
  const char *text = kiln_arena_strndup(&cx->perm, from, (size_t)(to - from));
  if (w->n++ >= MAX_WORDS) return KILN_OK;
  const int i = w->n - 1;
  w->begin[i] = from;
  w->words[i] = text;
  w->quoted[i] = false;
  if (kiln_hole_begins(text + strcspn(text, "?\"")))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, w->place,
                     "holes must be filled before a script runs, got \"%s\": search, or choose a "
                     "value",
                     text);
  if (*text != '"') return KILN_OK;
  kiln_symbol symbol = 0;
  kiln_cursor c = {.cx = cx, .what = w->place, .start = text, .at = text};
  KILN_TRY(kiln_cursor_name(&c, "a name", &symbol, NULL));
  w->quoted[i] = *c.at == 0;
  if (w->quoted[i]) w->words[i] = kiln_symbol_text(cx, symbol);
  return KILN_OK;
}

// Splits the line, up to its end or a comment, into words.
static kiln_status take_words(line *w, const char *text, size_t n) {
  const char *end = text + n;
  w->n = 0;
  w->end = text;
  while (text < end && *text != '#') {
    text += strspn(text, " \t\r");
    if (text >= end || *text == '#') break;
    w->end = word_end(text, end);
    KILN_TRY(take_word(w, text, w->end));
    text = w->end;
  }
  return KILN_OK;
}

static kiln_status replay(kiln_schedule *s, const char *script, const char *file, int row) {
  line w = {.s = s};
  for (; *script; row++) {
    const size_t n = strcspn(script, "\n");
    w.place = kiln_arena_printf(&s->cx->perm, file ? "%s:%d" : "%s: line %d",
                                file ? file : "schedule", row);
    if (file) s->where = w.place;
    KILN_TRY(take_words(&w, script, n));
    if (w.n > 0) KILN_TRY(run_line(&w));
    script += n + (script[n] == '\n');
  }
  return KILN_OK;
}

kiln_status kiln_schedule_replay(kiln_schedule *s, const char *script) {
  return replay(s, script, NULL, 1);
}

kiln_status kiln_schedule_replay_file(kiln_schedule *s, const char *script, const char *file,
                                      int first_line) {
  const kiln_status st = replay(s, script, file, first_line);
  s->where = NULL;
  return st;
}
