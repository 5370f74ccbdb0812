// Bounds of the chunks that a mask leaves: found block by block, then fitted by lines that rise a
// row a key, as the edges of causal masks and of windows do.
#include "template/form/mask_bounds.h"

#include "support/integer.h"

typedef struct finding {
  kiln_ctx *cx;
  const kiln_masked_scores *s;
  kiln_ranges r;
  int64_t n_rows, n_keys, n_blocks, n_chunks;
} finding;

static kiln_symbol dim_of(const finding *f, int d) { return f->s->z->dims[d].name; }

// The mask of keys [first, end) of block |b|'s rows.
static kiln_masking mask_of(finding *f, int64_t b, int64_t first, int64_t end) {
  const int64_t row = b * f->s->rows;
  kiln_ranges_push(&f->r, dim_of(f, f->s->row), row, row + f->s->rows - 1);
  kiln_ranges_push(&f->r, dim_of(f, f->s->key), first, end - 1);
  const kiln_masking m = kiln_masking_of(f->cx, f->s->z->body, f->s->scores, &f->r);
  kiln_ranges_pop(&f->r, 2);
  return m;
}

static bool is_empty(finding *f, int64_t b, int64_t first, int64_t end) {
  return kiln_masking_is_empty(mask_of(f, b, first * f->s->chunk, end * f->s->chunk));
}

// The end of block |b|'s chunks: all from there on are empty.
static int64_t end_of(finding *f, int64_t b) {
  int64_t lo = 1, hi = f->n_chunks;
  while (lo < hi) {
    const int64_t at = lo + (hi - lo) / 2;
    if (is_empty(f, b, at, f->n_chunks)) hi = at;
    else lo = at + 1;
  }
  return lo;
}

// The first of block |b|'s chunks, before |end|: all before are empty.
static int64_t first_of(finding *f, int64_t b, int64_t end) {
  int64_t lo = 0, hi = end - 1;
  while (lo < hi) {
    const int64_t at = hi - (hi - lo) / 2;
    if (is_empty(f, b, 0, at)) lo = at;
    else hi = at - 1;
  }
  return lo;
}

typedef struct edges {
  int64_t *first, *end; // by block
} edges;

// min(most, (rows * block + t) / chunk + 1), at least all ends.
static const kiln_expr *fit_ends(const finding *f, const edges *e, const kiln_expr *block) {
  kiln_ctx *cx = f->cx;
  int64_t t = INT64_MIN, most = 0, least = INT64_MAX;
  for (int64_t b = 0; b < f->n_blocks; b++) {
    const int64_t need = f->s->chunk * (e->end[b] - 1) - f->s->rows * b;
    if (need > t) t = need;
    if (e->end[b] > most) most = e->end[b];
    if (e->end[b] < least) least = e->end[b];
  }
  if (most == least) return kiln_int(cx, most);
  const kiln_expr *row =
                      kiln_add(cx, kiln_mul(cx, block, kiln_int(cx, f->s->rows)), kiln_int(cx, t)),
                  *end =
                      kiln_add(cx, kiln_div(cx, row, kiln_int(cx, f->s->chunk)), kiln_int(cx, 1));
  return kiln_binary(cx, KILN_EXPR_MIN, end, kiln_int(cx, most));
}

// max(least, (rows * block + t) / chunk), at most all firsts.
static const kiln_expr *fit_firsts(const finding *f, const edges *e, const kiln_expr *block) {
  kiln_ctx *cx = f->cx;
  int64_t t = INT64_MAX, most = 0, least = INT64_MAX;
  for (int64_t b = 0; b < f->n_blocks; b++) {
    const int64_t need = f->s->chunk * (e->first[b] + 1) - 1 - f->s->rows * b;
    if (need < t) t = need;
    if (e->first[b] > most) most = e->first[b];
    if (e->first[b] < least) least = e->first[b];
  }
  if (most == least) return kiln_int(cx, least);
  const kiln_expr *row =
      kiln_add(cx, kiln_mul(cx, block, kiln_int(cx, f->s->rows)), kiln_int(cx, t));
  return kiln_binary(cx, KILN_EXPR_MAX, kiln_div(cx, row, kiln_int(cx, f->s->chunk)),
                     kiln_int(cx, least));
}

static int64_t value_at(const finding *f, const kiln_expr *e, kiln_symbol block, int64_t b) {
  const kiln_expr *at = kiln_int(f->cx, b);
  return kiln_expr_int_or(
      kiln_simplify(f->cx, kiln_expr_substitute(f->cx, e, 1, &block, &at), NULL), -1);
}

// Whether a mask of finite numbers keeps one key of all rows in the chunks [from, to): then others
// have the weight 0.
static bool keeps_rows(finding *f, int64_t b, int64_t from, int64_t to) {
  const int64_t c = f->s->chunk,
                places[] = {from * c, (from + 1) * c - 1, (to - 1) * c, to * c - 1};
  bool keeps = false;
  for (size_t i = 0; i < KILN_LEN(places) && !keeps; i++)
    keeps = mask_of(f, b, places[i], places[i] + 1) == KILN_MASKING_NONE;
  return keeps;
}

static bool is_finite(finding *f, int64_t b, int64_t from, int64_t to) {
  const int64_t c = f->s->chunk;
  return (from > 0 && mask_of(f, b, 0, from * c) == KILN_MASKING_FAR) ||
         (to < f->n_chunks && mask_of(f, b, to * c, f->n_keys) == KILN_MASKING_FAR);
}

// Whether the fitted bounds leave chunks in all blocks; their share.
static bool check(finding *f, kiln_symbol block, kiln_mask_bounds *io) {
  int64_t n = 0;
  for (int64_t b = 0; b < f->n_blocks; b++) {
    const int64_t from = value_at(f, io->from, block, b), to = value_at(f, io->to, block, b);
    if (from < 0 || from >= to || to > f->n_chunks ||
        (is_finite(f, b, from, to) && !keeps_rows(f, b, from, to)))
      return false;
    n += to - from;
  }
  io->share = (double)n / (double)(f->n_blocks * f->n_chunks);
  io->varies = io->to->kind != KILN_EXPR_INT || io->from->kind != KILN_EXPR_INT;
  return io->share < 1;
}

static const kiln_expr *simplified(const finding *f, kiln_symbol block, const kiln_expr *e) {
  kiln_ranges r;
  kiln_ranges_init(&r, &f->cx->scratch);
  kiln_ranges_push(&r, block, 0, f->n_blocks - 1);
  return kiln_simplify(f->cx, e, &r);
}

static finding begin(kiln_ctx *cx, const kiln_masked_scores *s) {
  finding f = {.cx = cx, .s = s, .r = kiln_stmt_ranges(&cx->scratch, s->z)};
  f.n_rows = kiln_dim_extent(&s->z->dims[s->row]);
  f.n_keys = kiln_dim_extent(&s->z->dims[s->key]);
  f.n_blocks = f.n_rows / s->rows;
  f.n_chunks = f.n_keys / s->chunk;
  return f;
}

bool kiln_mask_bounds_find(kiln_ctx *cx, const kiln_masked_scores *s, kiln_symbol block,
                           kiln_mask_bounds *out) {
  finding f = begin(cx, s);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  edges e = {KILN_NEW_ARRAY(&cx->scratch, int64_t, f.n_blocks),
             KILN_NEW_ARRAY(&cx->scratch, int64_t, f.n_blocks)};
  for (int64_t b = 0; b < f.n_blocks; b++) {
    e.end[b] = end_of(&f, b);
    e.first[b] = first_of(&f, b, e.end[b]);
  }
  const kiln_expr *v = kiln_var(cx, block);
  *out = (kiln_mask_bounds){.from = simplified(&f, block, fit_firsts(&f, &e, v)),
                            .to = simplified(&f, block, fit_ends(&f, &e, v))};
  const bool found = check(&f, block, out);
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
}
