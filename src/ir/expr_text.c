// Expressions as text. Operators print with as few parentheses as parse to the same tree, numbers
// in the shortest form that parses to the same value.
#include "ir/cursor.h"

#include "ir/fold.h"
#include "ir/stored.h"
#include "support/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SELECT_LEVEL, OR_LEVEL, AND_LEVEL, CMP_LEVEL, SUM_LEVEL, PRODUCT_LEVEL, UNARY_LEVEL };

static const char bitcast_prefix[] = "bitcast_",
                  stored_prefix[] = "stored_"; // bitcast_u32(x), stored_f16(x)

// The precedence of an infix operator; -1 if |k| is not one.
static int level_of(kiln_expr_kind k) {
  if (kiln_expr_kind_is_cmp(k)) return CMP_LEVEL;
  if (k == KILN_EXPR_OR) return OR_LEVEL;
  if (k == KILN_EXPR_AND) return AND_LEVEL;
  if (k == KILN_EXPR_ADD || k == KILN_EXPR_SUB) return SUM_LEVEL;
  if (k == KILN_EXPR_MUL || k == KILN_EXPR_DIV || k == KILN_EXPR_MOD) return PRODUCT_LEVEL;
  return -1;
}

// --- printing ---

static void print_float(kiln_dtype t, double value, kiln_text *out) {
  const char *suffix = kiln_dtype_text(t);
  if (!isfinite(value)) {
    const char *word = isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    kiln_text_printf(out, "%s%s", word, suffix);
    return;
  }
  char digits[40];
  for (int precision = 1; precision <= 17; precision++) {
    kiln_number_format(digits, sizeof digits, "%.*g", precision, value);
    if (kiln_float_round(t, kiln_number_parse(digits, NULL)) == value) break;
  }
  kiln_text_printf(out, "%s%s", digits, suffix);
}

static void print_int(const kiln_expr *e, kiln_text *out) {
  if (e->dtype == KILN_BOOL) kiln_text_add(out, e->u.i ? "true" : "false");
  else if (e->dtype == KILN_U64) kiln_text_printf(out, "%" PRIu64 "u64", (uint64_t)e->u.i);
  else {
    kiln_text_add_int(out, e->u.i);
    if (e->dtype != KILN_I64) kiln_text_add(out, kiln_dtype_text(e->dtype));
  }
}

// The printer's state. An expression with a large tree prints as {$0 = ...; $1 = ...; ...}, with
// names for shared and for long subexpressions; |lets| NULL: print as a tree.
typedef struct printer {
  const kiln_ctx *cx;
  const kiln_expr_names *names;
  kiln_text *out;
  kiln_map *lets; // expression id -> number of its name
} printer;

static void print(const printer *p, const kiln_expr *e, int level);

static void print_list(const printer *p, const kiln_expr *e, const char *open, const char *close) {
  kiln_text_add(p->out, open);
  for (int i = 0; i < e->n_args; i++) {
    if (i > 0) kiln_text_add(p->out, ", ");
    print(p, e->args[i], SELECT_LEVEL);
  }
  kiln_text_add(p->out, close);
}

static void print_load(const printer *p, const kiln_expr *e) {
  if (p->names) kiln_name_print(p->out, p->names->name_of(p->names->program, e->u.tensor));
  else kiln_text_printf(p->out, "t%d", e->u.tensor);
  const bool bracket = p->names && p->names->bracket == '[';
  print_list(p, e, bracket ? "[" : "(", bracket ? "]" : ")");
}

static void print_select(const printer *p, const kiln_expr *e) {
  print(p, e->args[0], OR_LEVEL);
  kiln_text_add(p->out, " ? ");
  print(p, e->args[1], OR_LEVEL);
  kiln_text_add(p->out, " : ");
  print(p, e->args[2], SELECT_LEVEL);
}

static void print_infix(const printer *p, const kiln_expr *e, int level) {
  const bool no_chain = level == CMP_LEVEL; // a < b < c does not parse
  print(p, e->args[0], level + no_chain);
  const bool tight = level == PRODUCT_LEVEL;
  if (!tight) kiln_text_add(p->out, " ");
  kiln_text_add(p->out, kiln_expr_kind_text(e->kind));
  if (!tight) kiln_text_add(p->out, " ");
  print(p, e->args[1], level + 1);
}

static void print_node(const printer *p, const kiln_expr *e, int level) {
  kiln_text *out = p->out;
  const int own = e->kind == KILN_EXPR_SELECT ? SELECT_LEVEL : level_of(e->kind);
  const bool infix = own > SELECT_LEVEL, parentheses = own >= 0 && own < level;
  if (parentheses) kiln_text_add(out, "(");
  if (infix) print_infix(p, e, own);
  else if (e->kind == KILN_EXPR_SELECT) print_select(p, e);
  else if (e->kind == KILN_EXPR_INT) print_int(e, out);
  else if (e->kind == KILN_EXPR_FLOAT) print_float(e->dtype, e->u.f, out);
  else if (e->kind == KILN_EXPR_VAR) kiln_name_print(out, kiln_symbol_text(p->cx, e->u.sym));
  else if (e->kind == KILN_EXPR_LOAD) print_load(p, e);
  else if (e->kind == KILN_EXPR_NOT) {
    kiln_text_add(out, "!");
    print(p, e->args[0], UNARY_LEVEL);
  } else {
    const bool cast = e->kind == KILN_EXPR_CAST || e->kind == KILN_EXPR_BITCAST;
    if (e->kind == KILN_EXPR_BITCAST) kiln_text_add(out, bitcast_prefix);
    if (kiln_expr_is_stored(e)) kiln_text_add(out, stored_prefix);
    kiln_text_add(out, cast ? kiln_dtype_text(e->dtype) : kiln_expr_kind_text(e->kind));
    print_list(p, e, "(", ")");
  }
  if (parentheses) kiln_text_add(out, ")");
}

static void print(const printer *p, const kiln_expr *e, int level) {
  const uint64_t *let = p->lets ? kiln_map_find(p->lets, e->id) : NULL;
  if (let) kiln_text_printf(p->out, "$%d", (int)*let);
  else print_node(p, e, level);
}

static void count_uses(kiln_map *uses, const kiln_expr *e) {
  uint64_t *known = kiln_map_find(uses, e->id);
  if (known) {
    ++*known;
    return;
  }
  kiln_map_put(uses, e->id, 1);
  for (int i = 0; i < e->n_args; i++) count_uses(uses, e->args[i]);
}

// Prints the names that |e| needs, and a name for |e| if it deserves one.
//
// gives: number of nodes printed at a use of |e|
static int print_lets(const printer *p, kiln_map *sizes, const kiln_map *uses, const kiln_expr *e) {
  enum { SHORT = 4, LONG = 64 };
  const uint64_t *known = kiln_map_find(sizes, e->id);
  if (known) return (int)*known;
  int size = 1;
  for (int i = 0; i < e->n_args; i++) size += print_lets(p, sizes, uses, e->args[i]);
  if (size > LONG || (size > SHORT && *kiln_map_find(uses, e->id) > 1)) {
    kiln_text_printf(p->out, "$%d = ", p->lets->n);
    print_node(p, e, SELECT_LEVEL);
    kiln_text_add(p->out, "; ");
    kiln_map_put(p->lets, e->id, (uint64_t)p->lets->n);
    size = 1;
  }
  kiln_map_put(sizes, e->id, (uint64_t)size);
  return size;
}

void kiln_expr_print(const kiln_ctx *cx, const kiln_expr *e, const kiln_expr_names *names,
                     kiln_text *out) {
  enum { MAX_TREE = 1000 };
  kiln_map lets, sizes, uses;
  printer p = {cx, names, out, NULL};
  if (e->n_tree <= MAX_TREE) {
    print(&p, e, SELECT_LEVEL);
    return;
  }
  kiln_map_init(&lets, out->arena);
  kiln_map_init(&sizes, out->arena);
  kiln_map_init(&uses, out->arena);
  p.lets = &lets;
  count_uses(&uses, e);
  kiln_text_add(out, "{");
  for (int i = 0; i < e->n_args; i++) (void)print_lets(&p, &sizes, &uses, e->args[i]);
  print_node(&p, e, SELECT_LEVEL);
  kiln_text_add(out, "}");
}

void kiln_exprs_print(const kiln_ctx *cx, int n, const kiln_expr *const *e,
                      const kiln_expr_names *names, const char *open, const char *close,
                      kiln_text *out) {
  kiln_text_add(out, open);
  for (int i = 0; i < n; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    kiln_expr_print(cx, e[i], names, out);
  }
  kiln_text_add(out, close);
}

const char *kiln_expr_text(kiln_ctx *cx, const kiln_expr *e) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  kiln_expr_print(cx, e, NULL, &text);
  return text.data;
}

// --- parsing ---

typedef struct parser {
  kiln_cursor *c;
  const kiln_expr_names *names;
  KILN_VEC(const kiln_expr *) lets; // $0, $1, ...
} parser;

static kiln_status parse(parser *p, int level, const kiln_expr **out);

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Copies the number at the cursor without its suffix; -1 if it is too long.
static int scan_number(const char *at, bool *out_is_real) {
  const char *p = at;
  while (is_digit(*p)) p++;
  *out_is_real = false;
  if (*p == '.' && is_digit(p[1])) {
    *out_is_real = true;
    for (p++; is_digit(*p);) p++;
  }
  const char *exponent = p + 1;
  if (*p == 'e' && (*exponent == '+' || *exponent == '-')) exponent++;
  if (*p == 'e' && is_digit(*exponent)) {
    *out_is_real = true;
    for (p = exponent; is_digit(*p);) p++;
  }
  return p - at < 64 ? (int)(p - at) : -1;
}

static kiln_status integer(parser *p, const char *digits, kiln_dtype t, bool negative,
                           const kiln_expr **out) {
  uint64_t value = 0;
  bool fits = t != KILN_BOOL;
  for (const char *d = digits; *d && fits; d++)
    fits = !__builtin_mul_overflow(value, 10, &value) &&
           !__builtin_add_overflow(value, (uint64_t)(*d - '0'), &value);
  const int64_t bits = (int64_t)(negative ? 0 - value : value);
  const bool sign_fits =
      t == KILN_U64 ? !negative || value == 0 : bits == 0 || (bits < 0) == negative;
  if (!fits || !sign_fits || kiln_int_wrap(t, bits) != bits)
    return kiln_cursor_fail(p->c, "an integer that %s holds", kiln_dtype_text(t));
  *out = kiln_int_of(p->c->cx, t, bits);
  return KILN_OK;
}

static kiln_status number(parser *p, bool negative, const kiln_expr **out) {
  char digits[72];
  bool is_real;
  const int n = scan_number(p->c->at, &is_real);
  if (n < 0) return kiln_cursor_fail(p->c, "a number of fewer than 64 digits");
  memcpy(digits, p->c->at, (size_t)n);
  digits[n] = 0;
  const char *begin = p->c->at;
  p->c->at += n;
  kiln_dtype t = KILN_I64;
  const char next = *p->c->at;
  const bool has_suffix = (next >= 'a' && next <= 'z') || next == '_' || next == '.';
  if (has_suffix || is_real) KILN_TRY(kiln_cursor_dtype(p->c, &t));
  if (kiln_dtype_is_float(t)) {
    const double value = kiln_number_parse(digits, NULL);
    *out = kiln_float(p->c->cx, t, negative ? -value : value);
    return KILN_OK;
  }
  const char *end = p->c->at;
  p->c->at = begin;
  if (is_real) return kiln_cursor_fail(p->c, "an integer for %s", kiln_dtype_text(t));
  KILN_TRY(integer(p, digits, t, negative, out));
  p->c->at = end;
  return KILN_OK;
}

// inff32, nanf16, ...
static bool special_float(parser *p, const char *word, bool negative, const kiln_expr **out) {
  kiln_dtype t;
  const bool inf = strncmp(word, "inf", 3) == 0, nan = strncmp(word, "nan", 3) == 0;
  if ((!inf && !nan) || !kiln_dtype_parse(word + 3, strlen(word + 3), &t) ||
      !kiln_dtype_is_float(t))
    return false;
  const double value = inf ? (double)INFINITY : (double)NAN;
  *out = kiln_float(p->c->cx, t, negative ? -value : value);
  return true;
}

static bool function_of(const char *word, kiln_expr_kind *out) {
  for (int k = 0; k < KILN_N_EXPRS; k++) {
    *out = (kiln_expr_kind)k;
    if (kiln_expr_kind_is_call(*out) && strcmp(kiln_expr_kind_text(*out), word) == 0) return true;
  }
  return false;
}

static kiln_status check_operand(parser *p, kiln_expr_kind k, const kiln_expr *a) {
  if (kiln_expr_kind_takes(k, a->dtype)) return KILN_OK;
  return kiln_cursor_fail(p->c, "operands that %s takes before this place, not %s",
                          kiln_expr_kind_text(k), kiln_dtype_text(a->dtype));
}

static kiln_status make_binary(parser *p, kiln_expr_kind k, const kiln_expr *a, const kiln_expr *b,
                               const kiln_expr **out) {
  if (a->dtype != b->dtype)
    return kiln_cursor_fail(p->c, "operands of one type before this place, not %s %s %s",
                            kiln_dtype_text(a->dtype), kiln_expr_kind_text(k),
                            kiln_dtype_text(b->dtype));
  KILN_TRY(check_operand(p, k, a));
  *out = kiln_binary(p->c->cx, k, a, b);
  return KILN_OK;
}

static kiln_status call(parser *p, kiln_expr_kind k, const kiln_expr **out) {
  const kiln_expr *a = NULL, *b = NULL;
  KILN_TRY(kiln_cursor_expect(p->c, "("));
  KILN_TRY(parse(p, SELECT_LEVEL, &a));
  if (kiln_expr_kind_args(k) == 2) {
    KILN_TRY(kiln_cursor_expect(p->c, ","));
    KILN_TRY(parse(p, SELECT_LEVEL, &b));
  }
  KILN_TRY(kiln_cursor_expect(p->c, ")"));
  if (b) return make_binary(p, k, a, b, out);
  KILN_TRY(check_operand(p, k, a));
  *out = kiln_unary(p->c->cx, k, a);
  return KILN_OK;
}

kiln_status kiln_cursor_exprs(kiln_cursor *c, const kiln_expr_names *names, const char *open,
                              const char *close, int max, int *out_n, const kiln_expr **out) {
  *out_n = 0;
  KILN_TRY(kiln_cursor_expect(c, open));
  while (!kiln_cursor_accept(c, close)) {
    if (*out_n > 0) KILN_TRY(kiln_cursor_expect(c, ","));
    if (*out_n == max) return kiln_cursor_fail(c, "at most %d expressions", max);
    KILN_TRY(kiln_cursor_expr_of(c, names, KILN_I64, &out[*out_n]));
    ++*out_n;
  }
  return KILN_OK;
}

static kiln_status load(parser *p, kiln_symbol name, const kiln_expr **out) {
  const char *text = kiln_symbol_text(p->c->cx, name), *begin = p->c->at;
  const bool bracket = p->names->bracket == '[';
  const kiln_expr *index[16];
  kiln_dtype t = KILN_F32;
  int n = 0, rank = 0;
  const int tensor = p->names->find(p->names->program, text, strlen(text), &t, &rank);
  if (tensor < 0) return kiln_cursor_fail(p->c, "a known tensor before '%c', not %s", *begin, text);
  KILN_TRY(
      kiln_cursor_exprs(p->c, p->names, bracket ? "[" : "(", bracket ? "]" : ")", 16, &n, index));
  if (n != rank) {
    p->c->at = begin;
    return kiln_cursor_fail(p->c, "%d indices of %s, not %d", rank, text, n);
  }
  *out = kiln_load(p->c->cx, tensor, t, n, index);
  return KILN_OK;
}

// The type after |prefix|.
static bool type_of(const char *word, const char *prefix, kiln_dtype *out) {
  const size_t n = strlen(prefix);
  return strncmp(word, prefix, n) == 0 && kiln_dtype_parse(word + n, strlen(word + n), out);
}

static kiln_status cast(parser *p, kiln_dtype t, bool is_stored, const kiln_expr **out) {
  const kiln_expr *a = NULL;
  KILN_TRY(kiln_cursor_expect(p->c, "("));
  KILN_TRY(parse(p, SELECT_LEVEL, &a));
  KILN_TRY(kiln_cursor_expect(p->c, ")"));
  *out = is_stored ? kiln_cast_stored(p->c->cx, t, a) : kiln_cast(p->c->cx, t, a);
  return KILN_OK;
}

static kiln_status bitcast(parser *p, kiln_dtype t, const kiln_expr **out) {
  const kiln_expr *a = NULL;
  KILN_TRY(kiln_cursor_expect(p->c, "("));
  KILN_TRY(parse(p, SELECT_LEVEL, &a));
  KILN_TRY(kiln_cursor_expect(p->c, ")"));
  if (kiln_dtype_bytes(a->dtype) != kiln_dtype_bytes(t))
    return kiln_cursor_fail(p->c, "an operand as wide as %s before this place, not %s",
                            kiln_dtype_text(t), kiln_dtype_text(a->dtype));
  *out = kiln_bitcast(p->c->cx, t, a);
  return KILN_OK;
}

static kiln_status named(parser *p, bool negative, const kiln_expr **out) {
  kiln_symbol name;
  bool quoted;
  KILN_TRY(kiln_cursor_name(p->c, "an expression", &name, &quoted));
  const char *word = kiln_symbol_text(p->c->cx, name);
  const bool bare = !quoted;
  kiln_expr_kind k;
  kiln_dtype t;
  if (bare && special_float(p, word, negative, out)) return KILN_OK;
  if (bare && (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)) {
    *out = kiln_int_of(p->c->cx, KILN_BOOL, word[0] == 't');
  } else if (bare && type_of(word, "", &t)) {
    KILN_TRY(cast(p, t, false, out));
  } else if (bare && type_of(word, stored_prefix, &t)) {
    KILN_TRY(cast(p, t, true, out));
  } else if (bare && type_of(word, bitcast_prefix, &t)) {
    KILN_TRY(bitcast(p, t, out));
  } else if (bare && function_of(word, &k)) {
    KILN_TRY(call(p, k, out));
  } else if (p->names && kiln_cursor_at(p->c, p->names->bracket == '[' ? "[" : "(")) {
    KILN_TRY(load(p, name, out));
  } else {
    *out = kiln_var(p->c->cx, name);
  }
  if (!negative) return KILN_OK;
  KILN_TRY(check_operand(p, KILN_EXPR_NEG, *out));
  *out = kiln_unary(p->c->cx, KILN_EXPR_NEG, *out);
  return KILN_OK;
}

// The value of $N.
static kiln_status let(parser *p, const kiln_expr **out) {
  int64_t number = 0;
  KILN_TRY(kiln_cursor_int(p->c, "a number after $", &number));
  if (number < 0 || number >= p->lets.n)
    return kiln_cursor_fail(p->c, "a name of %d that are defined before this place", p->lets.n);
  *out = p->lets.data[number];
  return KILN_OK;
}

static kiln_status unary(parser *p, const kiln_expr **out) {
  kiln_cursor *c = p->c;
  if (kiln_cursor_accept(c, "$")) return let(p, out);
  if (!kiln_cursor_at(c, "!=") && kiln_cursor_accept(c, "!")) {
    const kiln_expr *a = NULL;
    KILN_TRY(parse(p, UNARY_LEVEL, &a));
    KILN_TRY(check_operand(p, KILN_EXPR_NOT, a));
    *out = kiln_unary(c->cx, KILN_EXPR_NOT, a);
    return KILN_OK;
  }
  const bool negative = kiln_cursor_accept(c, "-");
  kiln_cursor_skip(c);
  if (is_digit(*c->at)) return number(p, negative, out);
  if (!kiln_cursor_accept(c, "(")) return named(p, negative, out);
  KILN_TRY(parse(p, SELECT_LEVEL, out));
  KILN_TRY(kiln_cursor_expect(c, ")"));
  if (!negative) return KILN_OK;
  KILN_TRY(check_operand(p, KILN_EXPR_NEG, *out));
  *out = kiln_unary(c->cx, KILN_EXPR_NEG, *out);
  return KILN_OK;
}

// Accepts an infix operator with at least precedence |level|.
static bool accept_operator(kiln_cursor *c, int level, kiln_expr_kind *out) {
  static const kiln_expr_kind longest_first[] = {
      KILN_EXPR_LE,  KILN_EXPR_GE,  KILN_EXPR_EQ,  KILN_EXPR_NE,  KILN_EXPR_AND,
      KILN_EXPR_OR,  KILN_EXPR_LT,  KILN_EXPR_GT,  KILN_EXPR_ADD, KILN_EXPR_SUB,
      KILN_EXPR_MUL, KILN_EXPR_DIV, KILN_EXPR_MOD,
  };
  for (size_t i = 0; i < KILN_LEN(longest_first); i++) {
    if (!kiln_cursor_at(c, kiln_expr_kind_text(longest_first[i]))) continue;
    *out = longest_first[i];
    return level_of(*out) >= level && kiln_cursor_accept(c, kiln_expr_kind_text(*out));
  }
  return false;
}

static kiln_status select_tail(parser *p, const kiln_expr *c, const kiln_expr **out) {
  const kiln_expr *a = NULL, *b = NULL;
  KILN_TRY(parse(p, SELECT_LEVEL, &a));
  KILN_TRY(kiln_cursor_expect(p->c, ":"));
  KILN_TRY(parse(p, SELECT_LEVEL, &b));
  if (c->dtype != KILN_BOOL || a->dtype != b->dtype)
    return kiln_cursor_fail(p->c, "bool ? T : T before this place, not %s ? %s : %s",
                            kiln_dtype_text(c->dtype), kiln_dtype_text(a->dtype),
                            kiln_dtype_text(b->dtype));
  *out = kiln_select(p->c->cx, c, a, b);
  return KILN_OK;
}

static kiln_status parse(parser *p, int level, const kiln_expr **out) {
  KILN_TRY(kiln_cursor_enter(p->c));
  const kiln_expr *e = NULL, *right = NULL;
  KILN_TRY(unary(p, &e));
  kiln_expr_kind k;
  while (accept_operator(p->c, level, &k)) {
    KILN_TRY(parse(p, level_of(k) + 1, &right));
    KILN_TRY(make_binary(p, k, e, right, &e));
  }
  if (level == SELECT_LEVEL && kiln_cursor_accept(p->c, "?")) KILN_TRY(select_tail(p, e, &e));
  p->c->depth--;
  *out = e;
  return KILN_OK;
}

// Parses {$0 = e; $1 = e; ... e} after the brace.
static kiln_status with_lets(parser *p, const kiln_expr **out) {
  while (kiln_cursor_accept(p->c, "$")) {
    const char *at = p->c->at;
    int64_t number = 0;
    KILN_TRY(kiln_cursor_int(p->c, "a number after $", &number));
    if (!kiln_cursor_at(p->c, "=") ||
        kiln_cursor_at(p->c, "==")) { // it is the final expression, beginning with a name
      p->c->at = at - 1;
      break;
    }
    if (number != p->lets.n) return kiln_cursor_fail(p->c, "$%d before this place", p->lets.n);
    KILN_TRY(kiln_cursor_expect(p->c, "="));
    KILN_TRY(parse(p, SELECT_LEVEL, out));
    KILN_TRY(kiln_cursor_expect(p->c, ";"));
    KILN_VEC_PUSH(&p->c->cx->perm, &p->lets, *out);
  }
  KILN_TRY(parse(p, SELECT_LEVEL, out));
  return kiln_cursor_expect(p->c, "}");
}

kiln_status kiln_cursor_expr(kiln_cursor *c, const kiln_expr_names *names, const kiln_expr **out) {
  parser p = {.c = c, .names = names};
  return kiln_cursor_accept(c, "{") ? with_lets(&p, out) : parse(&p, SELECT_LEVEL, out);
}

kiln_status kiln_cursor_expr_of(kiln_cursor *c, const kiln_expr_names *names, kiln_dtype t,
                                const kiln_expr **out) {
  KILN_TRY(kiln_cursor_expr(c, names, out));
  if ((*out)->dtype == t) return KILN_OK;
  return kiln_cursor_fail(c, "an expression of type %s before this place, not %s",
                          kiln_dtype_text(t), kiln_dtype_text((*out)->dtype));
}

kiln_status kiln_expr_parse(kiln_ctx *cx, const char **text, const kiln_expr_names *names,
                            const kiln_expr **out) {
  kiln_cursor c = {.cx = cx, .what = "expression", .start = *text, .at = *text};
  *out = NULL;
  KILN_TRY(kiln_cursor_expr(&c, names, out));
  *text = c.at;
  return KILN_OK;
}
