// Simplification and intervals against evaluation at every point, on random expressions and on rows
// of text. The random expressions are built as trees of this file, so that the folding of the
// constructors is checked against an evaluator of its own.
#include "analysis/simplify.h"

#include "unit/fixture.h"

enum { N_VARS = 4, N_RANDOM = 40000, MAX_NODES = 256 };

static const char *const names[N_VARS] = {"a", "b", "c", "d"};

// --- evaluation of expressions ---

static int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  if (q * b > a && b > 0) q--;
  if (q * b < a && b < 0) q--;
  return q;
}

static int64_t apply(kiln_expr_kind k, int64_t a, int64_t b) {
  if (k == KILN_EXPR_ADD) return a + b;
  if (k == KILN_EXPR_SUB) return a - b;
  if (k == KILN_EXPR_MUL) return a * b;
  if (k == KILN_EXPR_DIV) return floor_div(a, b);
  if (k == KILN_EXPR_MOD) return b == 0 ? 0 : a - floor_div(a, b) * b;
  if (k == KILN_EXPR_TDIV) return b == 0 ? 0 : a / b;
  if (k == KILN_EXPR_FMOD) return b == 0 ? 0 : a % b;
  if (k == KILN_EXPR_MIN) return a < b ? a : b;
  if (k == KILN_EXPR_MAX) return a > b ? a : b;
  if (k == KILN_EXPR_LT) return a < b;
  if (k == KILN_EXPR_LE) return a <= b;
  if (k == KILN_EXPR_GT) return a > b;
  if (k == KILN_EXPR_GE) return a >= b;
  if (k == KILN_EXPR_EQ) return a == b;
  if (k == KILN_EXPR_NE) return a != b;
  if (k == KILN_EXPR_AND) return a && b;
  if (k == KILN_EXPR_OR) return a || b;
  fail_msg("no value of %s", kiln_expr_kind_text(k));
  return 0;
}

static int64_t eval(const kiln_ctx *cx, const kiln_expr *e, const int64_t *point) {
  if (e->kind == KILN_EXPR_INT) return e->u.i;
  if (e->kind == KILN_EXPR_VAR) {
    const char *name = kiln_symbol_text(cx, e->u.sym);
    for (int i = 0; i < N_VARS; i++) {
      if (strcmp(names[i], name) == 0) return point[i];
    }
    fail_msg("no variable %s", name);
  }
  if (e->kind == KILN_EXPR_SELECT)
    return eval(cx, e->args[eval(cx, e->args[0], point) ? 1 : 2], point);
  const int64_t a = eval(cx, e->args[0], point);
  if (e->kind == KILN_EXPR_NOT) return !a;
  if (e->kind == KILN_EXPR_NEG) return -a;
  return apply(e->kind, a, eval(cx, e->args[1], point));
}

// --- random trees ---

typedef struct tree {
  kiln_expr_kind kind;
  int64_t value; // INT: the number; VAR: which
  const struct tree *args[3];
} tree;

typedef struct source {
  uint64_t state;
  tree nodes[MAX_NODES];
  int n;
} source;

static int below(source *r, int n) { return random_below(&r->state, n); }

static const tree *make(source *r, kiln_expr_kind k, int64_t value, const tree *a, const tree *b,
                        const tree *c) {
  tree *t = &r->nodes[r->n++];
  *t = (tree){k, value, {a, b, c}};
  return t;
}

static const tree *number(source *r, int64_t value) {
  return make(r, KILN_EXPR_INT, value, NULL, NULL, NULL);
}

static const tree *divisor(source *r) {
  static const int64_t often[] = {2, 3, 4, 6, 8, 12, 16, 32};
  const int kind = below(r, 12);
  if (kind == 0) return number(r, below(r, 9) - 4);
  return number(r, often[below(r, 8)]);
}

static const tree *random_bool(source *r, int depth);

static const tree *random_int(source *r, int depth) {
  if (depth == 0 || r->n > MAX_NODES / 2) {
    if (below(r, 4) == 0) return number(r, below(r, 17) - 8);
    return make(r, KILN_EXPR_VAR, below(r, N_VARS), NULL, NULL, NULL);
  }
  const tree *a = random_int(r, depth - 1);
  switch (below(r, 14)) {
  case 0:
  case 1:
  case 2: return make(r, KILN_EXPR_ADD, 0, a, random_int(r, depth - 1), NULL);
  case 3: return make(r, KILN_EXPR_SUB, 0, a, random_int(r, depth - 1), NULL);
  case 4:
  case 5: return make(r, KILN_EXPR_MUL, 0, a, divisor(r), NULL);
  case 6:
  case 7: return make(r, KILN_EXPR_DIV, 0, a, divisor(r), NULL);
  case 8:
  case 9: return make(r, KILN_EXPR_MOD, 0, a, divisor(r), NULL);
  case 10: {
    static const kiln_expr_kind any[] = {KILN_EXPR_MUL, KILN_EXPR_DIV, KILN_EXPR_MOD,
                                         KILN_EXPR_TDIV, KILN_EXPR_FMOD};
    return make(r, any[below(r, 5)], 0, a, random_int(r, depth - 1), NULL);
  }
  case 11: return make(r, KILN_EXPR_MIN, 0, a, random_int(r, depth - 1), NULL);
  case 12: return make(r, KILN_EXPR_MAX, 0, a, random_int(r, depth - 1), NULL);
  default: {
    const tree *c = random_bool(r, depth - 1);
    return make(r, KILN_EXPR_SELECT, 0, c, a, random_int(r, depth - 1));
  }
  }
}

static const tree *random_bool(source *r, int depth) {
  static const kiln_expr_kind compare[] = {KILN_EXPR_LT, KILN_EXPR_LE, KILN_EXPR_GT,
                                           KILN_EXPR_GE, KILN_EXPR_EQ, KILN_EXPR_NE};
  if (depth > 0 && below(r, 2) == 0) {
    const tree *a = random_bool(r, depth - 1);
    if (below(r, 5) == 0) return make(r, KILN_EXPR_NOT, 0, a, NULL, NULL);
    return make(r, below(r, 2) ? KILN_EXPR_AND : KILN_EXPR_OR, 0, a, random_bool(r, depth - 1),
                NULL);
  }
  const tree *a = random_int(r, depth > 0 ? depth - 1 : 0);
  return make(r, compare[below(r, 6)], 0, a, random_int(r, depth > 1 ? depth - 2 : 0), NULL);
}

// x/f*f + x%f and variants, which random trees would rarely contain.
static const tree *random_rejoined(source *r) {
  const tree *x = random_int(r, 2);
  const int64_t f = 2 + below(r, 6), g = 1 + below(r, 4), c = 1 + below(r, 3);
  const tree *q = make(r, KILN_EXPR_DIV, 0, x, number(r, f), NULL);
  if (below(r, 2)) q = make(r, KILN_EXPR_MOD, 0, q, number(r, g), NULL);
  const tree *m = make(r, KILN_EXPR_MOD, 0, x, number(r, f), NULL);
  q = make(r, KILN_EXPR_MUL, 0, q, number(r, c * f), NULL);
  m = make(r, KILN_EXPR_MUL, 0, m, number(r, c), NULL);
  const tree *sum = make(r, KILN_EXPR_ADD, 0, q, m, NULL);
  if (below(r, 2)) sum = make(r, KILN_EXPR_ADD, 0, random_int(r, 1), sum, NULL);
  return below(r, 2) ? sum : make(r, KILN_EXPR_DIV, 0, sum, divisor(r), NULL);
}

static int64_t eval_tree(const tree *t, const int64_t *point) {
  if (t->kind == KILN_EXPR_INT) return t->value;
  if (t->kind == KILN_EXPR_VAR) return point[t->value];
  const int64_t a = eval_tree(t->args[0], point);
  if (t->kind == KILN_EXPR_SELECT) return eval_tree(t->args[a ? 1 : 2], point);
  if (t->kind == KILN_EXPR_NOT) return !a;
  return apply(t->kind, a, eval_tree(t->args[1], point));
}

static const kiln_expr *build(kiln_ctx *cx, const tree *t) {
  if (t->kind == KILN_EXPR_INT) return kiln_int(cx, t->value);
  if (t->kind == KILN_EXPR_VAR) return kiln_var(cx, kiln_symbol_of(cx, names[t->value]));
  const kiln_expr *a = build(cx, t->args[0]);
  if (t->kind == KILN_EXPR_NOT) return kiln_unary(cx, KILN_EXPR_NOT, a);
  const kiln_expr *b = build(cx, t->args[1]);
  if (t->kind == KILN_EXPR_SELECT) return kiln_select(cx, a, b, build(cx, t->args[2]));
  return kiln_binary(cx, t->kind, a, b);
}

static const char *shown(kiln_ctx *cx, const kiln_expr *e) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_expr_print(cx, e, NULL, &t);
  return t.data;
}

typedef struct sample {
  const tree *t;
  const kiln_expr *e, *simple;
  kiln_interval interval, simple_interval;
  int64_t lo[N_VARS];
  int extent[N_VARS];
} sample;

static void check_point(kiln_ctx *cx, const sample *x, const int64_t *point) {
  const int64_t want = eval_tree(x->t, point), built = eval(cx, x->e, point),
                got = eval(cx, x->simple, point);
  if (want == built && want == got && want >= x->interval.lo && want <= x->interval.hi &&
      want >= x->simple_interval.lo && want <= x->simple_interval.hi)
    return;
  for (int i = 0; i < N_VARS; i++)
    print_error("%s in [%" PRId64 ", +%d) = %" PRId64 "\n", names[i], x->lo[i], x->extent[i],
                point[i]);
  fail_msg("%s = %" PRId64 " (built: %" PRId64 ") but %s = %" PRId64 "; intervals [%" PRId64
           ", %" PRId64 "] [%" PRId64 ", %" PRId64 "]",
           shown(cx, x->e), want, built, shown(cx, x->simple), got, x->interval.lo, x->interval.hi,
           x->simple_interval.lo, x->simple_interval.hi);
}

static void check_points(kiln_ctx *cx, source *r, const sample *x) {
  int64_t all = 1;
  for (int i = 0; i < N_VARS; i++) all *= x->extent[i];
  const bool every = all <= 256;
  for (int64_t k = 0; k < (every ? all : 96); k++) {
    int64_t point[N_VARS], rest = k;
    for (int i = 0; i < N_VARS; i++) {
      point[i] = x->lo[i] + (every ? rest % x->extent[i] : below(r, x->extent[i]));
      rest /= x->extent[i];
    }
    check_point(cx, x, point);
  }
}

static void random_expressions_keep_their_value(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  source *r = calloc(1, sizeof(*r));
  assert_non_null(r);
  int changed = 0, again = 0;
  for (int round = 0; round < N_RANDOM; round++) {
    r->state = (uint64_t)round * 2654435761u + 12345;
    r->n = 0;
    sample x = {0};
    kiln_ranges ranges;
    kiln_ranges_init(&ranges, &cx->perm);
    for (int i = 0; i < N_VARS; i++) {
      x.lo[i] = below(r, 3) ? 0 : below(r, 7) - 3;
      x.extent[i] = 1 + below(r, 9);
      kiln_ranges_push(&ranges, kiln_symbol_of(cx, names[i]), x.lo[i], x.lo[i] + x.extent[i] - 1);
    }
    const int shape = below(r, 4);
    x.t = shape == 0   ? random_rejoined(r)
          : shape == 1 ? random_bool(r, 4)
                       : random_int(r, 2 + below(r, 3));
    x.e = build(cx, x.t);
    x.simple = kiln_simplify(cx, x.e, &ranges);
    assert_int_equal(x.simple->dtype, x.e->dtype);
    x.interval = kiln_expr_interval(cx, x.e, &ranges);
    x.simple_interval = kiln_expr_interval(cx, x.simple, &ranges);
    check_points(cx, r, &x);
    changed += x.simple != x.e;
    again += kiln_simplify(cx, x.simple, &ranges) != x.simple;
  }
  print_message("%d of %d changed, %d change again\n", changed, N_RANDOM, again);
  assert_true(changed > N_RANDOM / 2);
  assert_true(again < N_RANDOM / 1000);
  free(r);
}

static const kiln_expr *parsed(kiln_ctx *cx, const char *text) {
  const kiln_expr *e = NULL;
  if (kiln_expr_parse(cx, &text, NULL, &e) != KILN_OK)
    fail_msg("%s", kiln_diag_message(cx->diag, 0));
  return e;
}

static void push_usual_ranges(kiln_ctx *cx, kiln_ranges *ranges) {
  kiln_ranges_init(ranges, &cx->perm);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "i"), 0, 15);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "j"), 0, 3);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "k"), 0, 7);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "h"), -1, 14);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "one"), 0, 0);
  kiln_ranges_push(ranges, kiln_symbol_of(cx, "n"), 8, INT64_MAX);
}

// i in [0, 16), j in [0, 4), k in [0, 8), h in [-1, 15), n >= 8; x, y unknown
static const struct {
  const char *from, *to;
} rows[] = {
    {"x + 1 + y - 1", "x + y"},
    {"(x + y)*3 - x", "y*3 + x*2"},
    {"x - x", "0"},
    {"one + x", "x"},
    {"(i*4 + j) / 4", "i"},
    {"(i*4 + j) % 4", "j"},
    {"(x*4 + j) / 4", "x"},
    {"(x*4 + j) % 4", "j"},
    {"(x*4 + 7) / 4", "x + 1"},
    {"(x*8 + j) / 4", "x*2"},
    {"(x*4 + y) / 4", "x + y/4"},
    {"(i*4 + j) / 8", "i/2"},
    {"(i*4 + j) / 64", "0"},
    {"(i*4 + j) % 8", "i%2*4 + j"},
    {"x / 4 / 8", "x/32"},
    {"(x / 4 + 3) / 8", "(x + 12)/32"},
    {"x % 32 / 8", "x/8%4"},
    {"x % 32 % 8", "x%8"},
    {"(min(x*32, 968) + y*8) % 8", "0"},
    {"(max(x*4, 6) + y) % 4", "(y + max(x*4, 6))%4"},
    {"(x % 8 + y) % 8", "(x + y)%8"},
    {"x / 4 * 4 + x % 4", "x"},
    {"x % 4 + x / 4 * 4", "x"},
    {"x / 4 * 12 + x % 4 * 3", "x*3"},
    {"y + x / 4 * 8 + x % 4 * 2 + 1", "x*2 + y + 1"},
    {"x - x / 4 * 4", "x%4"},
    {"x / 32 * 32 + x / 4 % 8 * 4 + x % 4", "x"},
    {"x / 4 % 8 * 4 + x % 4", "x%32"},
    {"(i*8 + k) / 8 * 8 + (i*8 + k) % 8", "i*8 + k"},
    {"(i*8 + k) / 4 * 4 + k % 4", "i*8 + k"},
    {"((i*4 + j)*8 + k) / 32", "i"},
    {"((i*4 + j)*8 + k) / 8 % 4", "j"},
    {"((i*4 + j)*8 + k) % 32", "j*8 + k"},
    {"(i*4 - j) / -4", "i*-1"},
    {"x / 1", "x"},
    {"x / 0", "0"},
    {"n / n", "1"},
    {"(i*n + k) / n", "i"},
    {"(i*n + k) % n", "k"},
    {"(x*n + y) / n", "x + y/n"},
    {"min(i, 20)", "i"},
    {"max(i + j, i)", "i + j"},
    {"min(min(x, 5), 3)", "min(x, 3)"},
    {"min(i*4 + j, i*4 + 3)", "i*4 + j"},
    {"i < 16", "true"},
    {"i*4 + j < 64", "true"},
    {"i >= 16", "false"},
    {"i + 3 < j + 3", "i < j"},
    {"x <= y", "x <= y"},
    {"!(x < y)", "y <= x"},
    {"x + 2 > y + 1", "y <= x"},
    {"x < y || y <= x", "true"},
    {"x < y && y <= x", "false"},
    {"x*4 < 10", "x < 3"},
    {"x*2 + 1 == y*2", "false"},
    {"x / 4 < 3", "x < 12"},
    {"0 <= h", "h >= 0"},
    {"h > -1", "h >= 0"},
    {"h < 15", "true"},
    {"h + 1 >= 0 && h - 1 < 14", "true"},
    {"x < 3 && x < 5", "x < 3"},
    {"x < 3 || x < 5", "x < 5"},
    {"x < 3 && x >= 3", "false"},
    {"x < 4 || x > 1", "true"},
    {"!(x < 3)", "x >= 3"},
    {"!(x < 3 && y < 3)", "x >= 3 || y >= 3"},
    {"i < 16 ? x : y", "x"},
    {"h < 0 ? 0 : max(h, 0)", "h < 0 ? 0 : h"},
    {"x < 0 || x >= 16 ? 0 : x % 16", "x < 0 || x >= 16 ? 0 : x"},
    {"x >= 0 && x < 16 ? x % 16 : 0", "x >= 0 && x < 16 ? x : 0"},
    {"min(x*4 + 3, 15) - x*4 < 4", "true"},
    {"i*16 + 16 - min(i*16 + 16, 100) >= 0", "true"},
    {"max(x - 3, 0) - x >= -3", "true"},
    {"(i*768 + k*64 + j) / 64 % 12", "k"},
    {"(i*768 + k*64 + j) / 768", "i"},
    {"(i*768 + k*64 + j) % 64", "j"},
    {"((i*3 + j%3)*3 + k%3) / 9", "i"},
    {"((i*3 + j%3)*3 + k%3) / 3 % 3", "j%3"},
    {"(x*9 + y%9) / 9", "x"},
    {"(x*9 + y%9) / 3 % 3", "y/3%3"},
    {"sqrt(f32(i - i)) + f32(i*4 / 4)", "0f32 + f32(i)"},
};

static void rows_simplify_to_what_they_say(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  kiln_ranges ranges;
  push_usual_ranges(cx, &ranges);
  int wrong = 0;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    const kiln_expr *got = kiln_simplify(cx, parsed(cx, rows[row].from), &ranges);
    const kiln_expr *want = parsed(cx, rows[row].to);
    if (strcmp(shown(cx, got), shown(cx, want)) == 0) continue;
    if (kiln_simplify(cx, want, &ranges) == got && kiln_expr_is_int(want, NULL)) continue;
    print_error("%s: want %s, got %s\n", rows[row].from, shown(cx, want), shown(cx, got));
    wrong++;
  }
  assert_int_equal(wrong, 0);
}

// Loaded data wraps: rules for indices need not hold for it.
static void data_is_not_taken_to_be_small(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *x = kiln_load(cx, 0, KILN_I64, 1, &zero);
  const kiln_expr *four = kiln_int(cx, 4), *scaled = kiln_div(cx, kiln_mul(cx, x, four), four);
  assert_ptr_equal(kiln_simplify(cx, scaled, NULL), scaled);
  const kiln_expr *more = kiln_binary(cx, KILN_EXPR_LT, x, kiln_add(cx, x, kiln_int(cx, 1)));
  assert_false(kiln_proves(cx, more, NULL));
  const kiln_expr *byte = kiln_cast(cx, KILN_I64, kiln_load(cx, 0, KILN_U8, 1, &zero));
  assert_ptr_equal(kiln_simplify(cx, kiln_div(cx, kiln_mul(cx, byte, four), four), NULL), byte);
  assert_true(kiln_proves(cx, kiln_binary(cx, KILN_EXPR_GE, byte, zero), NULL));
}

// Arithmetic at a narrow width may wrap: its interval is then that of the type.
static void intervals_of_narrow_types_are_sound(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *b = kiln_load(cx, 0, KILN_I8, 1, &zero);
  const kiln_expr *u = kiln_load(cx, 1, KILN_U8, 1, &zero),
                  *w = kiln_load(cx, 2, KILN_U64, 1, &zero);
  const kiln_expr *half = kiln_div(cx, b, kiln_int_of(cx, KILN_I8, 2));
  const struct {
    const kiln_expr *e;
    int64_t lo, hi;
  } cases[] = {
      {b, -128, 127},
      {kiln_add(cx, b, b), -128, 127},
      {half, -64, 63},
      {kiln_add(cx, half, half), -128, 126},
      {kiln_unary(cx, KILN_EXPR_ABS, b), -128, 127},
      {kiln_unary(cx, KILN_EXPR_ABS, half), 0, 64},
      {kiln_cast(cx, KILN_I64, u), 0, 255},
      {kiln_cast(cx, KILN_I8, u), -128, 127},
      {kiln_cast(cx, KILN_U8, b), 0, 255},
      {kiln_binary(cx, KILN_EXPR_SUB, u, kiln_int_of(cx, KILN_U8, 1)), 0, 255},
      {kiln_binary(cx, KILN_EXPR_MIN, u, kiln_int_of(cx, KILN_U8, 9)), 0, 9},
      {w, INT64_MIN, INT64_MAX},
      {kiln_cast(cx, KILN_I64, w), INT64_MIN, INT64_MAX},
      {kiln_binary(cx, KILN_EXPR_LT, w, kiln_int_of(cx, KILN_U64, 5)), 0, 1},
      {kiln_cast(cx, KILN_I64, kiln_load(cx, 3, KILN_F32, 1, &zero)), INT64_MIN, INT64_MAX},
      {kiln_binary(cx, KILN_EXPR_BAND, u, kiln_int_of(cx, KILN_U8, 15)), 0, 15},
  };
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    const kiln_interval got = kiln_expr_interval(cx, cases[i].e, NULL);
    if (got.lo != cases[i].lo || got.hi != cases[i].hi)
      fail_msg("%s: [%" PRId64 ", %" PRId64 "]", shown(cx, cases[i].e), got.lo, got.hi);
  }
}

static void a_shared_expression_takes_one_visit_a_node(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *x = kiln_load(cx, 0, KILN_F32, 1, &zero);
  for (int i = 0; i < 400; i++) { // 2^400 paths, 800 nodes
    const kiln_expr *sin = kiln_unary(cx, i % 2 ? KILN_EXPR_SIN : KILN_EXPR_COS, x);
    x = kiln_add(cx, kiln_mul(cx, x, sin), x);
  }
  assert_ptr_equal(kiln_simplify(cx, x, NULL), x);
  const kiln_expr *i = kiln_var(cx, kiln_symbol_of(cx, "i"));
  for (int k = 0; k < 300; k++) {
    const kiln_expr *c = kiln_binary(cx, KILN_EXPR_LT, i, kiln_int(cx, k % 7));
    i = kiln_select(cx, c, kiln_div(cx, i, kiln_int(cx, 2)), kiln_add(cx, i, kiln_int(cx, k)));
  }
  assert_non_null(kiln_simplify(cx, i, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(rows_simplify_to_what_they_say),
      FIXTURE_TEST(data_is_not_taken_to_be_small),
      FIXTURE_TEST(intervals_of_narrow_types_are_sound),
      FIXTURE_TEST(a_shared_expression_takes_one_visit_a_node),
      FIXTURE_TEST(random_expressions_keep_their_value),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
