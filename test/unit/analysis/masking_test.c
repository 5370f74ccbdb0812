// What masks do to tiles of scores, against a look at every score: random expressions of scores,
// constants and masks in memory, under conditions on random ranges.
#include "analysis/masking.h"

#include "unit/fixture.h"

#include <math.h>

enum { N_VARS = 3, N_RANDOM = 20000, MOST_DEPTH = 4, SCORES = 0, MASK = 1 };

// A score that a mask made far, scaled by what leaves it far.
static const double STILL_FAR = -1e20;

typedef struct world {
  kiln_ctx *cx;
  uint64_t seed;
  kiln_symbol vars[N_VARS];
  int64_t lo[N_VARS], hi[N_VARS];
} world;

static const kiln_expr *var(const world *w, int i) { return kiln_var(w->cx, w->vars[i]); }

// --- random expressions ---

static const kiln_expr *index_of(world *w) {
  const kiln_expr *e = var(w, random_below(&w->seed, N_VARS));
  if (random_below(&w->seed, 2)) e = kiln_add(w->cx, e, kiln_int(w->cx, random_below(&w->seed, 9)));
  if (random_below(&w->seed, 4) == 0)
    e = kiln_mul(w->cx, e, kiln_int(w->cx, 1 + random_below(&w->seed, 3)));
  if (random_below(&w->seed, 4) == 0)
    e = kiln_div(w->cx, e, kiln_int(w->cx, 1 + random_below(&w->seed, 4)));
  return e;
}

static const kiln_expr *condition_of(world *w) {
  static const kiln_expr_kind kinds[] = {KILN_EXPR_LT, KILN_EXPR_LE, KILN_EXPR_GT, KILN_EXPR_GE,
                                         KILN_EXPR_EQ};
  const kiln_expr *e = kiln_binary(w->cx, kinds[random_below(&w->seed, (int)KILN_LEN(kinds))],
                                   index_of(w), index_of(w));
  if (random_below(&w->seed, 4) == 0) e = kiln_unary(w->cx, KILN_EXPR_NOT, e);
  if (random_below(&w->seed, 4) == 0)
    e = kiln_binary(w->cx, random_below(&w->seed, 2) ? KILN_EXPR_AND : KILN_EXPR_OR, e,
                    condition_of(w));
  return e;
}

static const kiln_expr *constant_of(world *w) {
  static const double all[] = {-INFINITY, -INFINITY, -1e30, -3.4e38, 0, 0, -7.5, 100, INFINITY};
  return kiln_float(w->cx, KILN_F32, all[random_below(&w->seed, (int)KILN_LEN(all))]);
}

static const kiln_expr *leaf_of(world *w) {
  const int which = random_below(&w->seed, 8);
  const kiln_expr *at = var(w, 0);
  if (which < 3) return constant_of(w);
  return kiln_load(w->cx, which < 7 ? SCORES : MASK, KILN_F32, 1, &at);
}

// |*io_scales|: how many factors may be far from 1.
static const kiln_expr *score_of(world *w, int depth, int *io_scales) {
  static const double factors[] = {0.125, 1e-6, 3, -2, 1e5};
  static const kiln_expr_kind sums[] = {KILN_EXPR_ADD, KILN_EXPR_ADD, KILN_EXPR_SUB, KILN_EXPR_MIN,
                                        KILN_EXPR_MAX};
  if (depth == 0) return leaf_of(w);
  const int which = random_below(&w->seed, 8);
  if (which < 3) {
    const kiln_expr *c = condition_of(w), *a = score_of(w, depth - 1, io_scales);
    return kiln_select(w->cx, c, a, score_of(w, depth - 1, io_scales));
  }
  const kiln_expr *a = score_of(w, depth - 1, io_scales);
  if (which == 3) return kiln_cast(w->cx, KILN_F32, kiln_cast(w->cx, KILN_F64, a));
  if (which == 4) return kiln_unary(w->cx, KILN_EXPR_TANH, a);
  if (which == 5 && *io_scales > 0) {
    const kiln_expr *by =
        kiln_float(w->cx, KILN_F32, factors[random_below(&w->seed, (int)KILN_LEN(factors))]);
    --*io_scales;
    const int how = random_below(&w->seed, 3);
    return how == 0   ? kiln_mul(w->cx, a, by)
           : how == 1 ? kiln_mul(w->cx, by, a)
                      : kiln_div(w->cx, a, by);
  }
  return kiln_binary(w->cx, sums[random_below(&w->seed, (int)KILN_LEN(sums))], a,
                     score_of(w, depth - 1, io_scales));
}

// --- every score ---

typedef struct point {
  const world *w;
  const int64_t *at;
  double score, mask;
  bool is_wild; // a part of the expression is far above all scores, infinite or NaN
} point;

static bool holds(const point *p, const kiln_expr *e) {
  int64_t value = 0;
  const world *w = p->w;
  const kiln_expr *values[N_VARS];
  for (int i = 0; i < N_VARS; i++) values[i] = kiln_int(w->cx, p->at[i]);
  const kiln_expr *known = kiln_expr_substitute(w->cx, e, N_VARS, w->vars, values);
  assert_true(kiln_expr_is_int(known, &value));
  return value != 0;
}

static double part_of(point *p, const kiln_expr *e);

static double value_of(point *p, const kiln_expr *e) {
  const double x = part_of(p, e);
  p->is_wild |= !(x < -STILL_FAR);
  return x;
}

static double part_of(point *p, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_FLOAT) return e->u.f;
  if (e->kind == KILN_EXPR_LOAD) return e->u.tensor == SCORES ? p->score : p->mask;
  if (e->kind == KILN_EXPR_SELECT) return value_of(p, e->args[holds(p, e->args[0]) ? 1 : 2]);
  const double a = value_of(p, e->args[0]), b = e->n_args == 2 ? value_of(p, e->args[1]) : 0;
  if (e->kind == KILN_EXPR_CAST) return a;
  if (e->kind == KILN_EXPR_TANH) return tanh(a);
  if (e->kind == KILN_EXPR_ADD) return a + b;
  if (e->kind == KILN_EXPR_SUB) return a - b;
  if (e->kind == KILN_EXPR_MUL) return a * b;
  if (e->kind == KILN_EXPR_DIV) return a / b;
  if (e->kind == KILN_EXPR_NEG) return -a;
  if (isnan(a) || isnan(b)) return NAN;
  if (e->kind == KILN_EXPR_MIN) return a < b ? a : b;
  assert_int_equal(e->kind, KILN_EXPR_MAX);
  return a > b ? a : b;
}

// Masked means masked, whatever is added.
static bool agrees(kiln_masking found, const point *p, double x) {
  if (found == KILN_MASKING_NONE) return isfinite(x) && x > KILN_FAR_SCORE;
  if (found == KILN_MASKING_SOME || p->is_wild) return true;
  return found == KILN_MASKING_FAR ? x < STILL_FAR : x == -INFINITY;
}

static bool agrees_everywhere(const world *w, const kiln_expr *e, kiln_masking found) {
  static const double scores[] = {-1000, 0, 1000}, masks[] = {0, -INFINITY};
  int64_t at[N_VARS];
  for (at[0] = w->lo[0]; at[0] <= w->hi[0]; at[0]++)
    for (at[1] = w->lo[1]; at[1] <= w->hi[1]; at[1]++)
      for (at[2] = w->lo[2]; at[2] <= w->hi[2]; at[2]++)
        for (int i = 0; i < (int)(KILN_LEN(scores) * KILN_LEN(masks)); i++) {
          point p = {w, at, scores[i % 3], masks[i / 3], false};
          const double x = value_of(&p, e);
          if (!agrees(found, &p, x)) return false;
        }
  return true;
}

static kiln_ranges ranges_of(world *w) {
  kiln_ranges r;
  kiln_ranges_init(&r, &w->cx->scratch);
  for (int i = 0; i < N_VARS; i++) {
    w->lo[i] = random_below(&w->seed, 12);
    w->hi[i] = w->lo[i] + random_below(&w->seed, 4);
    kiln_ranges_push(&r, w->vars[i], w->lo[i], w->hi[i]);
  }
  return r;
}

static const char *printed(const world *w, const kiln_expr *e) {
  kiln_text t;
  kiln_text_init(&t, &w->cx->perm);
  kiln_expr_print(w->cx, e, NULL, &t);
  return t.data;
}

static void masks_are_what_every_score_shows(void **state) {
  fixture *f = *state;
  world w = {.cx = &f->cx, .seed = 5};
  int n_found[KILN_MASKING_LOWEST + 1] = {0};
  for (int i = 0; i < N_VARS; i++) w.vars[i] = kiln_symbol_printf(&f->cx, "%c", "abc"[i]);
  for (int i = 0; i < N_RANDOM; i++) {
    const kiln_mark mark = kiln_arena_mark(&f->cx.scratch);
    const kiln_ranges r = ranges_of(&w);
    int scales = 1;
    const kiln_expr *e = score_of(&w, 1 + random_below(&w.seed, MOST_DEPTH), &scales);
    const kiln_masking found = kiln_masking_of(&f->cx, e, SCORES, &r);
    n_found[found]++;
    if (!agrees_everywhere(&w, e, found))
      fail_msg("case %d: not %d: %s", i, (int)found, printed(&w, e));
    kiln_arena_rewind(&f->cx.scratch, mark);
  }
  for (int i = 0; i <= KILN_MASKING_LOWEST; i++) assert_true(n_found[i] > N_RANDOM / 100);
}

// --- tiles that must be decided ---

static const struct {
  const char *score; // of s[a], in tiles of 64 queries a and keys b
  int64_t query, key;
  kiln_masking expected;
} rows[] = {
    {"b <= a ? s[a] : -inff32", 64, 0, KILN_MASKING_NONE},
    {"b <= a ? s[a] : -inff32", 0, 64, KILN_MASKING_LOWEST},
    {"b <= a ? s[a] : -inff32", 0, 0, KILN_MASKING_SOME},
    {"b <= a ? s[a] : -3e38f32", 0, 64, KILN_MASKING_FAR},
    {"s[a] + (b <= a ? 0f32 : -inff32)", 0, 64, KILN_MASKING_LOWEST},
    {"s[a] + (b <= a ? 0f32 : -inff32)", 64, 0, KILN_MASKING_NONE},
    {"s[a] + (b <= a ? 0f32 : -10000f32)", 0, 64, KILN_MASKING_NONE},       // it is computed
    {"b <= a && b > a - 32 ? s[a] : -inff32", 128, 0, KILN_MASKING_LOWEST}, // a sliding window
    {"b <= a && b > a - 256 ? s[a] : -inff32", 128, 0, KILN_MASKING_NONE},
    {"(b <= a ? s[a] : -inff32) * 0.125f32", 0, 64, KILN_MASKING_LOWEST},
    {"tanh(s[a] / 50f32) * 50f32 + (b <= a ? 0f32 : -inff32)", 0, 64, KILN_MASKING_LOWEST},
    {"tanh(b <= a ? s[a] : -inff32)", 0, 64, KILN_MASKING_SOME}, // which gives -1
    {"s[a] + m[b]", 64, 0, KILN_MASKING_SOME},
    {"m[b] + (b <= a ? s[a] : -inff32)", 0, 64, KILN_MASKING_LOWEST},
    {"b <= a ? s[a] : m[b]", 64, 0, KILN_MASKING_NONE},
};

static int find_tensor(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                       int *out_rank) {
  (void)program;
  *out_dtype = KILN_F32;
  *out_rank = 1;
  return n != 1 ? -1 : *name == 's' ? SCORES : *name == 'm' ? MASK : -1;
}

static void tiles_of_usual_masks_are_decided(void **state) {
  enum { TILE = 64 };
  static const kiln_expr_names names = {.find = find_tensor, .bracket = '['};
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const char *text = rows[i].score;
    const kiln_expr *e = NULL;
    kiln_ranges r;
    kiln_ranges_init(&r, &f->cx.scratch);
    kiln_ranges_push(&r, kiln_symbol_of(&f->cx, "a"), rows[i].query, rows[i].query + TILE - 1);
    kiln_ranges_push(&r, kiln_symbol_of(&f->cx, "b"), rows[i].key, rows[i].key + TILE - 1);
    assert_int_equal(kiln_expr_parse(&f->cx, &text, &names, &e), KILN_OK);
    const kiln_masking found = kiln_masking_of(&f->cx, e, SCORES, &r);
    if (found != rows[i].expected)
      fail_msg("%s, from %d, %d: %d, not %d", rows[i].score, (int)rows[i].query, (int)rows[i].key,
               (int)found, (int)rows[i].expected);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(masks_are_what_every_score_shows),
      FIXTURE_TEST(tiles_of_usual_masks_are_decided),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
