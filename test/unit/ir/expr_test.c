// Expressions: folding, walks, and text.
#include "ir/expr.h"
#include "unit/fixture.h"

#include <math.h>

enum { N_RANDOM = 4000, N_FUZZ = 20000 };

// One tensor of every dtype, mostly named after it, of rank 0 to 2.
static const char *name_of(const void *program, int tensor) {
  (void)program;
  static const char *const tensors[] = {"F64",     "F32",    "F16",      "BF16", "/a/I8",    "I16",
                                        "exp",     "I64",    "U8",       "U16",  "U32",      "max",
                                        "x \"y\"", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0",
                                        "i4",      "u4",     "i2",       "u2",   "e2m1"};
  return tensors[tensor];
}
static int find(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                int *out_rank) {
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    if (strlen(name_of(program, t)) != n || memcmp(name_of(program, t), name, n) != 0) continue;
    *out_dtype = (kiln_dtype)t;
    *out_rank = t * 2 % 3;
    return t;
  }
  return -1;
}
static const kiln_expr_names names = {name_of, find, NULL, '('};

static const char *shown(kiln_ctx *cx, const kiln_expr *e) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_expr_print(cx, e, &names, &t);
  return t.data;
}

static const kiln_expr *parsed(kiln_ctx *cx, const char *text) {
  const kiln_expr *e = NULL;
  const char *at = text;
  if (kiln_expr_parse(cx, &at, &names, &e) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(cx->diag, 0));
  if (*at) fail_msg("%s: left %s", text, at);
  return e;
}

// The parser uses the constructors, so its results are folded.
static const struct {
  const char *from, *to;
} folds[] = {
    {"1 + 2*3", "7"},
    {"-7 / 2", "-4"},
    {"-7 % 2", "1"},
    {"7 % -2", "-1"},
    {"tdiv(-7, 2)", "-3"},
    {"fmod(-7, 2)", "-1"},
    {"5 / 0", "0"},
    {"5 % 0", "0"},
    {"-9223372036854775808 / -1", "-9223372036854775808"},
    {"9223372036854775807 + 1", "-9223372036854775808"},
    {"127i8 + 1i8", "-128i8"},
    {"200u8 + 100u8", "44u8"},
    {"0u64 - 1u64", "18446744073709551615u64"},
    {"18446744073709551615u64 / 2u64", "9223372036854775807u64"},
    {"18446744073709551615u64 > 1u64", "true"},
    {"shl(1u8, 7u8)", "128u8"},
    {"shr(-8, 1)", "-4"},
    {"shl(1, 64)", "0"},
    {"shl(1i8, 8i8)", "0i8"},
    {"shr(-8, 64)", "-1"},
    {"shr(8, 64)", "0"},
    {"shr(-8i8, 8i8)", "-1i8"},
    {"shr(-8, -1)", "-1"},
    {"shr(200u8, 8u8)", "0u8"},
    {"pow(3, 4)", "81"},
    {"pow(3, -1)", "0"},
    {"pow(0, -1)", "0"},
    {"pow(-1, -3)", "-1"},
    {"pow(1, -3)", "1"},
    {"-5.5f32 % 2f32", "0.5f32"},
    {"x + 0", "x"},
    {"0 + x", "x"},
    {"x*1", "x"},
    {"x*0", "0"},
    {"x/1", "x"},
    {"x/0", "0"},
    {"x - x", "0"},
    {"x%1", "0"},
    {"min(x, x)", "x"},
    {"x <= x", "true"},
    {"x < x || true", "true"},
    {"!(x < y)", "x >= y"},
    {"!!(x < y)", "x < y"},
    {"true ? x : y", "x"},
    {"x < y ? true : false", "x < y"},
    {"F32(x, y)", "F32(x, y)"},
    {"0.1f32 + 0.2f32", "0.3f32"},
    {"0.1f64 + 0.2f64", "0.30000000000000004f64"},
    {"16777216f32 + 1f32", "16777216f32"},
    {"1f32 / 0f32", "inff32"},
    {"0f32 / 0f32", "nanf32"},
    {"min(nanf32, 1f32)", "nanf32"},
    {"max(1f32, nanf32)", "nanf32"},
    {"1f16 + 1f16", "2f16"},
    {"1f16 + 0.00048828125f16", "1f16 + 0.0004883f16"}, // in f32 that is no f16
    {"round(2.5f32)", "2f32"},
    {"sqrt(2f32)", "1.4142135f32"},
    {"exp(0f64)", "1f64"},
    {"isnan(nanf16)", "true"},
    {"f16(f32(F16(i)))", "F16(i)"}, // f32 holds all of f16
    {"bf16(f32(F16(i)))", "bf16(f32(F16(i)))"},
    {"f16(i > 0 ? f32(F16(i)) : 0.5f32)", "i > 0 ? F16(i) : 0.5f16"},
    {"isinf(-inff32)", "true"},
    {"isnan(x)", "false"},
    {"f32(3)", "3f32"},
    {"i64(2.9f32)", "2"},
    {"i64(nanf32)", "0"},
    {"i8(1000f32)", "127i8"},
    {"u8(-5f32)", "0u8"},
    {"u8(300)", "44u8"},
    {"u64(1e30f32)", "18446744073709551615u64"},
    {"i64(1e30f32)", "9223372036854775807"},
    {"f32(16777217)", "16777216f32"},
    {"bool(2)", "true"},
    {"bool(nanf32)", "true"},
    {"i64(x)", "x"},
    {"-(-x)", "x"},
};

static void constants_fold_as_the_header_says(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(folds); row++) {
    const char *got = shown(&f->cx, parsed(&f->cx, folds[row].from));
    if (strcmp(got, folds[row].to) != 0)
      fail_msg("%s: want %s, got %s", folds[row].from, folds[row].to, got);
  }
}

static void float_identities_that_lose_nan_or_a_sign_do_not_fold(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *index[] = {kiln_int(cx, 0), kiln_int(cx, 0)};
  const kiln_expr *x = kiln_load(cx, KILN_F32, KILN_F32, 2, index);
  const kiln_expr *zero = kiln_float(cx, KILN_F32, 0), *minus = kiln_float(cx, KILN_F32, -0.0);
  assert_ptr_not_equal(zero, minus);
  assert_true(kiln_expr_is_zero(zero) && !kiln_expr_is_zero(minus));
  assert_ptr_not_equal(kiln_mul(cx, x, zero), zero);
  assert_ptr_not_equal(kiln_add(cx, x, zero), x); // -0 + 0 is 0
  assert_ptr_equal(kiln_add(cx, x, minus), x);
  assert_ptr_equal(kiln_sub(cx, x, zero), x);
  assert_ptr_not_equal(kiln_sub(cx, x, x), zero);
  assert_ptr_equal(kiln_mul(cx, x, kiln_float(cx, KILN_F32, 1)), x);
  assert_int_equal(kiln_binary(cx, KILN_EXPR_EQ, x, x)->kind, KILN_EXPR_EQ);
  const kiln_expr *less = kiln_binary(cx, KILN_EXPR_LT, x, zero);
  assert_int_equal(kiln_unary(cx, KILN_EXPR_NOT, less)->kind, KILN_EXPR_NOT);
}

static void equal_expressions_are_one_node(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *last = NULL;
  for (int i = 0; i < 50000; i++) {
    const kiln_expr *a = kiln_add(cx, kiln_var(cx, kiln_symbol_of(cx, "i")), kiln_int(cx, i + 1));
    const kiln_expr *b = kiln_add(cx, kiln_var(cx, kiln_symbol_of(cx, "i")), kiln_int(cx, i + 1));
    assert_ptr_equal(a, b);
    assert_true(a->args[0]->id < a->id && a->args[1]->id < a->id);
    assert_ptr_not_equal(a, last);
    last = a;
  }
  assert_ptr_equal(kiln_float(cx, KILN_F32, (double)NAN), kiln_float(cx, KILN_F32, -(double)NAN));
  assert_ptr_equal(kiln_float(cx, KILN_F32, 0.1), kiln_float(cx, KILN_F32, (double)0.1f));
  assert_ptr_not_equal(kiln_int(cx, 3), kiln_int_of(cx, KILN_I32, 3));
}

static void substitution_is_simultaneous(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_symbol vars[] = {kiln_symbol_of(cx, "x"), kiln_symbol_of(cx, "y")};
  const kiln_expr *values[] = {kiln_var(cx, vars[1]),
                               kiln_add(cx, kiln_var(cx, vars[0]), kiln_int(cx, 1))};
  const kiln_expr *e = parsed(cx, "F32(x, y%4)*F32(y, 2) + F32(z, z)");
  assert_true(kiln_expr_uses(e, vars[0]) && kiln_expr_uses(e, vars[1]));
  assert_false(kiln_expr_uses(e, kiln_symbol_of(cx, "w")));
  assert_true(kiln_expr_has_load(e));
  const kiln_expr *got = kiln_expr_substitute(cx, e, 2, vars, values);
  assert_string_equal(shown(cx, got), "F32(y, (x + 1)%4)*F32(x + 1, 2) + F32(z, z)");
}

static void affine_forms_are_recognised(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_symbol vars[] = {kiln_symbol_of(cx, "x"), kiln_symbol_of(cx, "y")};
  int64_t coef[2], constant;
  assert_true(kiln_expr_affine(parsed(cx, "(x*4 - y + 3)*2 - (7 - x)"), 2, vars, coef, &constant));
  assert_int_equal(coef[0], 9);
  assert_int_equal(coef[1], -2);
  assert_int_equal(constant, -1);
  assert_false(kiln_expr_affine(parsed(cx, "x*y"), 2, vars, coef, &constant));
  assert_false(kiln_expr_affine(parsed(cx, "x/2"), 2, vars, coef, &constant));
  assert_false(kiln_expr_affine(parsed(cx, "x + z"), 2, vars, coef, &constant));
  assert_true(kiln_expr_affine(parsed(cx, "5"), 0, NULL, NULL, &constant));
}

static void count(const kiln_expr *e, void *argument) {
  (void)e;
  ++*(int *)argument;
}

static void walks_take_one_step_a_node(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_symbol var = kiln_symbol_of(cx, "x");
  const kiln_expr *e = kiln_var(cx, var);
  for (int i = 0; i < 900; i++) // 2^900 paths
    e = kiln_unary(cx, KILN_EXPR_NEG, kiln_mul(cx, e, e));
  int nodes = 0;
  kiln_expr_visit(cx, e, count, &nodes);
  assert_int_equal(nodes, 1801);
  const kiln_expr *y = kiln_var(cx, kiln_symbol_of(cx, "y"));
  const kiln_expr *back = kiln_expr_substitute(cx, e, 1, &var, &y);
  assert_ptr_not_equal(back, e);
  const kiln_symbol other = kiln_symbol_of(cx, "y");
  const kiln_expr *x = kiln_var(cx, var);
  assert_ptr_equal(kiln_expr_substitute(cx, back, 1, &other, &x), e);
}

static kiln_search count_into(const kiln_expr *e, void *argument) {
  count(e, argument);
  return KILN_SEARCH_INTO;
}

static kiln_search past_products(const kiln_expr *e, void *argument) {
  count(e, argument);
  return e->kind == KILN_EXPR_MUL ? KILN_SEARCH_PAST : KILN_SEARCH_INTO;
}

static kiln_search branches(const kiln_expr *e, void *argument) {
  count(e, argument);
  return e->kind == KILN_EXPR_SELECT ? KILN_SEARCH_REST : KILN_SEARCH_PAST;
}

static kiln_search to_var(const kiln_expr *e, void *argument) {
  return e == argument ? KILN_SEARCH_ENDS : KILN_SEARCH_INTO;
}

static void searches_come_to_a_node_once_and_end_where_they_are_told(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_expr *x = kiln_var(cx, kiln_symbol_of(cx, "x")), *y = parsed(cx, "y"), *e = x;
  for (int i = 0; i < 900; i++) e = kiln_mul(cx, kiln_unary(cx, KILN_EXPR_NEG, e), e);
  int nodes = 0, top = 0, chosen = 0;
  assert_null(kiln_expr_search(cx, e, count_into, &nodes));
  assert_in_range(nodes, 1801, 1802); // a node without arguments is not kept
  assert_null(kiln_expr_search(cx, e, past_products, &top));
  assert_int_equal(top, 1);
  assert_ptr_equal(kiln_expr_search(cx, e, to_var, (void *)(uintptr_t)x), x);
  assert_null(kiln_expr_search(cx, e, to_var, (void *)(uintptr_t)y));
  assert_null(kiln_expr_search(cx, NULL, count_into, &nodes));
  assert_null(kiln_expr_search(cx, parsed(cx, "a < b ? c : d"), branches, &chosen));
  assert_int_equal(chosen, 3);
}

static void a_node_knows_how_large_its_tree_is(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  assert_int_equal(parsed(cx, "x")->n_tree, 1);
  assert_int_equal(parsed(cx, "(x - y)*(x - y) < 1 ? 2 : 3")->n_tree, 12);
  const kiln_expr *e = parsed(cx, "x");
  for (int i = 1; i < 100; i++) {
    e = kiln_mul(cx, e, e);
    assert_int_equal(e->n_tree, i < 31 ? (UINT32_C(2) << i) - 1 : UINT32_MAX);
  }
}

// An expression whose arguments are among the last few made.
static const kiln_expr *random_graph(kiln_ctx *cx, uint64_t *r, int n) {
  enum { LAST = 8 };
  const kiln_expr *made[LAST], *index[] = {parsed(cx, "i"), parsed(cx, "j")};
  for (int k = 0; k < LAST; k++) {
    const kiln_expr *at[] = {kiln_add(cx, index[0], kiln_int(cx, k)), index[1]};
    made[k] = kiln_load(cx, KILN_F32, KILN_F32, 2, at);
  }
  for (int i = 0; i < n; i++) {
    const kiln_expr *a = made[random_below(r, LAST)], *b = made[random_below(r, LAST)];
    const int how = random_below(r, 5);
    made[i % LAST] = how == 0   ? kiln_unary(cx, KILN_EXPR_EXP, a)
                     : how == 1 ? kiln_add(cx, a, b)
                     : how == 2 ? kiln_sub(cx, a, b)
                     : how == 3 ? kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, a, b), a, b)
                                : kiln_mul(cx, a, b);
  }
  const kiln_expr *e = made[0];
  for (int k = 1; k < LAST; k++) e = kiln_binary(cx, KILN_EXPR_MAX, e, made[k]);
  return e;
}

// --- text ---

static const char *const texts[] = {
    "a + b*c - d",
    "(a + b)*(c - d)",
    "a - (b - c)",
    "a - b - c",
    "a/(b*c)",
    "a/b*c",
    "a%(b%c)",
    "a < b ? c : d < e ? f : g",
    "(a < b ? c : d)*2",
    "(a < b ? c < d : e < f) ? g : h",
    "(a < b) == (c < d)",
    "a < b && (c < d || e != f)",
    "a < b && c < d || e == f",
    "!(a < b && c < d)",
    "-5 + a",
    "a - -5",
    "a*-1",
    "neg(a)",
    "-9223372036854775808 + a",
    "0.5f32*F32(i, j)",
    "-0f32*F32(0, 0)*nanf32",
    "min(-inff32, F32(a, b))",
    "max(exp(F32(a, b)), erf(F32(a, b)))",
    "i32(F64() < 1e+300f64)",
    "1e-45f32*F32(a, b)",
    "1.1754944e-38f32*F32(a, b)",
    "3.4028235e+38f32*F32(a, b)",
    "0.1f64*F64()",
    "5e-324f64*F64()",
    "6.1e-05f16*F16(a)",
    "f16(F32(a, b))*0.1f16 + 1f16",
    "f32(stored_bf16(F32(a, b))) + f32(bf16(F32(a, b)))",
    "\"stored_f16\" + \"bitcast_u8\" + stored_f",
    "\"exp\"()",
    "\"/a/I8\"(a, b)",
    "\"x \\\"y\\\"\"()",
    "\"a b\" + \"f32\" + \"for\" + \"1x\" + \"\"",
    "T.init.i0 + i.o*4",
    "band(U8(a), 255u8)",
    "\"max\"(a)",
};

static void the_text_of_an_expression_reads_back_the_same(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  for (size_t row = 0; row < KILN_LEN(texts); row++) {
    const kiln_expr *e = parsed(cx, texts[row]);
    const char *once = shown(cx, e);
    assert_ptr_equal(parsed(cx, once), e);
    if (strcmp(once, texts[row]) != 0) fail_msg("want %s, got %s", texts[row], once);
  }
}

static const kiln_expr *random_expr(kiln_ctx *cx, uint64_t *r, kiln_dtype t, int depth);

static const kiln_expr *random_number(kiln_ctx *cx, uint64_t *r, kiln_dtype t) {
  if (!kiln_dtype_is_float(t)) {
    const int64_t small = random_below(r, 20) - 10, any = (int64_t)random_next(r);
    return kiln_int_of(cx, t, random_below(r, 2) ? small : any);
  }
  double x = 0;
  const uint64_t bits = random_next(r);
  memcpy(&x, &bits, sizeof x);
  return kiln_float(cx, t, random_below(r, 3) ? (random_below(r, 2001) - 1000) / 8.0 : x);
}

static const kiln_expr *random_leaf(kiln_ctx *cx, uint64_t *r, kiln_dtype t) {
  static const char *const vars[] = {"i", "j.o", "batch size", "min", "n\n"};
  if (random_below(r, 3) == 0) return random_number(cx, r, t);
  if (t == KILN_I64 && random_below(r, 2))
    return kiln_var(cx, kiln_symbol_of(cx, vars[random_below(r, 5)]));
  const kiln_expr *index[2];
  for (int k = 0; k < (int)t * 2 % 3; k++) index[k] = random_expr(cx, r, KILN_I64, 0);
  return kiln_load(cx, t, t, t * 2 % 3, index);
}

static const kiln_expr *random_expr(kiln_ctx *cx, uint64_t *r, kiln_dtype t, int depth) {
  if (depth <= 0)
    return t == KILN_I64 ? kiln_var(cx, kiln_symbol_of(cx, "k")) : random_leaf(cx, r, t);
  for (int tries = 0; tries < 20; tries++) {
    const kiln_expr_kind k = (kiln_expr_kind)random_below(r, KILN_N_EXPRS);
    const bool is_test = kiln_expr_kind_is_cmp(k) || k == KILN_EXPR_ISNAN || k == KILN_EXPR_ISINF;
    const kiln_dtype of = is_test ? (kiln_dtype)random_below(r, KILN_N_DTYPES) : t;
    if (k == KILN_EXPR_SELECT)
      return kiln_select(cx, random_expr(cx, r, KILN_BOOL, depth - 1),
                         random_expr(cx, r, t, depth - 1), random_expr(cx, r, t, depth - 1));
    const kiln_dtype other = (kiln_dtype)random_below(r, KILN_N_DTYPES);
    const bool of_codes = kiln_dtype_is_code(t) || kiln_dtype_is_code(other);
    if (k == KILN_EXPR_CAST) // with codes it is a large expression
      return kiln_cast(cx, t, random_expr(cx, r, other, of_codes ? 0 : depth - 1));
    if (k == KILN_EXPR_BITCAST && kiln_dtype_bytes(t) == kiln_dtype_bytes(other))
      return kiln_bitcast(cx, t, random_expr(cx, r, other, depth - 1));
    if (k == KILN_EXPR_BITCAST) continue;
    if (kiln_expr_kind_args(k) <= 0 || !kiln_expr_kind_takes(k, of) ||
        is_test != (t == KILN_BOOL && is_test))
      continue;
    const kiln_expr *a = random_expr(cx, r, of, depth - 1);
    if (kiln_expr_kind_args(k) == 1) return kiln_unary(cx, k, a);
    return kiln_binary(cx, k, a, random_expr(cx, r, of, depth - 1));
  }
  return random_leaf(cx, r, t);
}

static void random_expressions_read_back_the_same(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  uint64_t r = 1;
  for (int i = 0; i < N_RANDOM; i++) {
    const kiln_dtype t = (kiln_dtype)random_below(&r, KILN_N_DTYPES);
    const kiln_expr *e = random_expr(cx, &r, t, 1 + random_below(&r, 5));
    const char *once = shown(cx, e);
    const kiln_expr *back = parsed(cx, once);
    if (back != e) fail_msg("%s reads back as %s", once, shown(cx, back));
  }
}

static void the_text_of_a_graph_is_no_longer_than_it_and_reads_back_the_same(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  uint64_t r = 3;
  for (int i = 0; i < 60; i++) {
    const kiln_expr *e = random_graph(cx, &r, 50 << i % 6);
    int nodes = 0;
    kiln_expr_visit(cx, e, count, &nodes);
    const char *once = shown(cx, e);
    assert_ptr_equal(parsed(cx, once), e);
    if (e->n_tree > 1000) assert_in_range(strlen(once), nodes, 40 * nodes);
    assert_true((*once == '{') == (e->n_tree > 1000));
  }
  const kiln_expr *chain = parsed(cx, "F32(i, j)"); // deeper than the parser's nesting goes
  for (int i = 0; i < 5000; i++)
    chain = kiln_unary(cx, i % 2 ? KILN_EXPR_EXP : KILN_EXPR_NEG, chain);
  assert_ptr_equal(parsed(cx, shown(cx, chain)), chain);
  assert_ptr_equal(parsed(cx, "{$0 = a + b; $1 = $0*$0; $1 < $0 ? $1 : 0}"),
                   parsed(cx, "(a + b)*(a + b) < a + b ? (a + b)*(a + b) : 0"));
  assert_ptr_equal(parsed(cx, "{$0 = a; $0 == b}"), parsed(cx, "a == b"));
}

static const struct {
  const char *text, *message;
} errors[] = {
    {"{$0 = a; $1 = $1; $1}",
     "expression:1:17: error: expected a name of 1 that are defined before this place, got ';'"},
    {"{$1 = a; $1}", "expression:1:5: error: expected $0 before this place, got '='"},
    {"{$0 = a $0}", "expression:1:9: error: expected ';', got '$'"},
    {"{$0 = a; $0", "expression:1:12: error: expected '}', got the end"},
    {"$0",
     "expression:1:3: error: expected a name of 0 that are defined before this place, got the end"},
    {"{$x = a; $x}", "expression:1:3: error: expected a number after $, got 'x'"},
    {"", "expression:1:1: error: expected an expression, got the end"},
    {"a +\n  *", "expression:2:3: error: expected an expression, got '*'"},
    {"(a", "expression:1:3: error: expected ')', got the end"},
    {"1.5", "expression:1:4: error: expected a type such as f32, got the end"},
    {"1.5i32", "expression:1:1: error: expected an integer for i32, got '1.5i32'"},
    {"300u8", "expression:1:1: error: expected an integer that u8 holds, got '300u8'"},
    {"-1u8", "expression:1:2: error: expected an integer that u8 holds, got '1u8'"},
    {"99999999999999999999",
     "expression:1:1: error: expected an integer that i64 holds, got '99999999999999999999'"},
    {"1 + 1f32",
     "expression:1:9: error: expected operands of one type before this place, not i64 + f32, got "
     "the end"},
    {"sqrt(1)",
     "expression:1:8: error: expected operands that sqrt takes before this place, not i64, got the "
     "end"},
    {"1 ? 2 : 3",
     "expression:1:10: error: expected bool ? T : T before this place, not i64 ? i64 : i64, got "
     "the end"},
    {"F32(1)", "expression:1:4: error: expected 2 indices of F32, not 1, got '('"},
    {"G(1)", "expression:1:2: error: expected a known tensor before '(', not G, got '('"},
    {"\"abc", "expression:1:1: error: expected a name closed by '\"' on its line, got '\"'"},
};

static void errors_say_where_and_what(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(errors); row++) {
    const kiln_expr *e = NULL;
    const char *at = errors[row].text;
    kiln_diag_clear(f->diag);
    assert_int_equal(kiln_expr_parse(&f->cx, &at, &names, &e), KILN_BAD_INPUT);
    assert_string_equal(kiln_diag_message(f->diag, 0), errors[row].message);
  }
}

static void the_parser_survives_anything(void **state) {
  fixture *f = *state;
  uint64_t r = 5;
  char text[512];
  int good = 0;
  for (int i = 0; i < N_FUZZ; i++) {
    random_mutation(&r, texts[random_below(&r, KILN_LEN(texts))], text, sizeof text);
    const kiln_expr *e = NULL;
    const char *at = text;
    good += kiln_expr_parse(&f->cx, &at, &names, &e) == KILN_OK;
    kiln_diag_clear(f->diag);
  }
  assert_in_range(good, 1, N_FUZZ - 1);
  char *deep = calloc(1, 100001);
  assert_non_null(deep);
  memset(deep, '(', 100000);
  const kiln_expr *e = NULL;
  const char *at = deep;
  assert_int_equal(kiln_expr_parse(&f->cx, &at, &names, &e), KILN_BAD_INPUT);
  memset(deep, '!', 100000);
  at = deep;
  assert_int_equal(kiln_expr_parse(&f->cx, &at, &names, &e), KILN_BAD_INPUT);
  free(deep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(constants_fold_as_the_header_says),
      FIXTURE_TEST(float_identities_that_lose_nan_or_a_sign_do_not_fold),
      FIXTURE_TEST(equal_expressions_are_one_node),
      FIXTURE_TEST(substitution_is_simultaneous),
      FIXTURE_TEST(affine_forms_are_recognised),
      FIXTURE_TEST(walks_take_one_step_a_node),
      FIXTURE_TEST(searches_come_to_a_node_once_and_end_where_they_are_told),
      FIXTURE_TEST(a_node_knows_how_large_its_tree_is),
      FIXTURE_TEST(the_text_of_an_expression_reads_back_the_same),
      FIXTURE_TEST(random_expressions_read_back_the_same),
      FIXTURE_TEST(the_text_of_a_graph_is_no_longer_than_it_and_reads_back_the_same),
      FIXTURE_TEST(errors_say_where_and_what),
      FIXTURE_TEST(the_parser_survives_anything),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
