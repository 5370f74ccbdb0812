// A recursive-descent parser with one token of lookahead. Nesting of expressions is bounded, so
// that no input can overflow the stack.
#include "tc/parser.h"
#include "tc/lexer.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_HEIGHT = 1000 };

typedef struct parser {
  const kiln_tc_source *source;
  kiln_ctx *cx;
  kiln_tc_token token; // the next one
  int depth;           // of the current expression
} parser;

typedef KILN_VEC(kiln_tc_expr *) expr_list;

static kiln_status expression(parser *p, kiln_tc_expr **out);

// --- tokens ---

static void advance(parser *p) { p->token = kiln_tc_lex(p->token.at + p->token.n); }
static bool peek(const parser *p, const char *text) { return kiln_tc_token_is(&p->token, text); }

static bool accept(parser *p, const char *text) {
  if (!peek(p, text)) return false;
  advance(p);
  return true;
}

static kiln_status unexpected(const parser *p, const char *want) {
  const kiln_tc_token *t = &p->token;
  if (t->kind == KILN_TC_TOKEN_END)
    return kiln_tc_fail(p->source, t->at, NULL, "syntax: expected %s, got the end of the file",
                        want);
  return kiln_tc_fail(p->source, t->at, NULL, "syntax: expected %s, got '%.*s'", want,
                      t->n > 40 ? 40 : t->n, t->at);
}

static kiln_status expect(parser *p, const char *text) {
  if (accept(p, text)) return KILN_OK;
  return unexpected(p, kiln_arena_printf(&p->cx->perm, "'%s'", text));
}

static kiln_symbol symbol_of(const parser *p, const kiln_tc_token *t) {
  return kiln_symbol_of_bytes(p->cx, t->at, (size_t)t->n);
}

static kiln_status name(parser *p, const char *want, kiln_symbol *out) {
  *out = 0;
  if (p->token.kind != KILN_TC_TOKEN_NAME) return unexpected(p, want);
  *out = symbol_of(p, &p->token);
  advance(p);
  return KILN_OK;
}

static kiln_status string(parser *p, kiln_symbol *out) {
  *out = 0;
  if (p->token.kind != KILN_TC_TOKEN_STRING) return unexpected(p, "a string in quotes");
  *out = kiln_symbol_of_bytes(p->cx, p->token.at + 1, (size_t)p->token.n - 2);
  advance(p);
  return KILN_OK;
}

// --- expressions ---

static kiln_tc_expr *node(parser *p, kiln_tc_kind kind, const char *at) {
  kiln_tc_expr *e = KILN_NEW(&p->cx->perm, kiln_tc_expr);
  e->kind = kind;
  e->at = at;
  return e;
}

static void set_args(parser *p, kiln_tc_expr *e, int n, kiln_tc_expr *const *args) {
  e->n_args = n;
  e->args = KILN_NEW_ARRAY(&p->cx->perm, kiln_tc_expr *, n);
  for (int i = 0; i < n; i++) {
    e->args[i] = args[i];
    if (args[i]->height >= e->height) e->height = args[i]->height + 1;
  }
}

// What may follow a name: arguments, dots, or nothing.
static kiln_status after_name(parser *p, kiln_tc_expr *e) {
  if (accept(p, "...")) {
    e->kind = KILN_TC_PACK;
    return KILN_OK;
  }
  const kiln_tc_token n = p->token;
  bool selects = n.kind == KILN_TC_TOKEN_FLOAT && n.n == 2 && n.at[0] == '.' &&
                 !isspace((unsigned char)n.at[-1]); // X.1 must not be read as X and .1
  if (selects) {
    e->kind = KILN_TC_EXTENT;
    e->i = n.at[1] - '0';
    advance(p);
    return KILN_OK;
  }
  if (accept(p, ".")) {
    e->kind = KILN_TC_EXTENT;
    const kiln_tc_token t = p->token;
    bool one_digit = t.kind == KILN_TC_TOKEN_NAME && t.n == 2 && t.at[0] == 'd' && t.at[1] >= '0' &&
                     t.at[1] <= '9';
    if (!one_digit) return unexpected(p, "an axis as in X.d0");
    e->i = t.at[1] - '0';
    advance(p);
    return KILN_OK;
  }
  if (!accept(p, "(")) return KILN_OK;
  e->kind = KILN_TC_CALL;
  expr_list args = {0};
  while (!peek(p, ")")) {
    kiln_tc_expr *a = NULL;
    KILN_TRY(expression(p, &a));
    KILN_VEC_PUSH(&p->cx->perm, &args, a);
    if (!accept(p, ",")) break;
  }
  set_args(p, e, args.n, args.data);
  return expect(p, ")");
}

static kiln_status primary(parser *p, kiln_tc_expr **out) {
  const kiln_tc_token t = p->token;
  switch (t.kind) {
  case KILN_TC_TOKEN_INT:
    *out = node(p, KILN_TC_INT, t.at);
    (*out)->i = t.i;
    advance(p);
    return KILN_OK;
  case KILN_TC_TOKEN_FLOAT:
    *out = node(p, KILN_TC_FLOAT, t.at);
    (*out)->f = t.f;
    advance(p);
    return KILN_OK;
  case KILN_TC_TOKEN_STRING: *out = node(p, KILN_TC_STRING, t.at); return string(p, &(*out)->name);
  case KILN_TC_TOKEN_NAME:
    *out = node(p, KILN_TC_NAME, t.at);
    KILN_TRY(name(p, "a name", &(*out)->name));
    return after_name(p, *out);
  case KILN_TC_TOKEN_MARK:
    // min or max directly before an assignment gets a message of its own
    if (!accept(p, "(")) break;
    KILN_TRY(expression(p, out));
    return expect(p, ")");
  case KILN_TC_TOKEN_END:
  case KILN_TC_TOKEN_BAD: break;
  }
  return unexpected(p, "an expression");
}

static kiln_status unary(parser *p, kiln_tc_expr **out) {
  const char *at = p->token.at;
  bool minus = peek(p, "-");
  if (!minus && !peek(p, "!")) return primary(p, out);
  advance(p);
  if (++p->depth > MAX_DEPTH) return kiln_tc_fail(p->source, at, NULL, "syntax: nested too deeply");
  kiln_tc_expr *a = NULL;
  KILN_TRY(unary(p, &a));
  p->depth--;
  *out = node(p, KILN_TC_UNARY, at);
  (*out)->op = minus ? KILN_EXPR_NEG : KILN_EXPR_NOT;
  set_args(p, *out, 1, &a);
  return KILN_OK;
}

static const struct operator_row {
  const char *text;
  int level; // higher binds tighter
  kiln_expr_kind op;
} operators[] = {
    {"||", 1, KILN_EXPR_OR}, {"&&", 2, KILN_EXPR_AND}, {"==", 3, KILN_EXPR_EQ},
    {"!=", 3, KILN_EXPR_NE}, {"<=", 4, KILN_EXPR_LE},  {">=", 4, KILN_EXPR_GE},
    {"<", 4, KILN_EXPR_LT},  {">", 4, KILN_EXPR_GT},   {"+", 5, KILN_EXPR_ADD},
    {"-", 5, KILN_EXPR_SUB}, {"*", 6, KILN_EXPR_MUL},  {"/", 6, KILN_EXPR_DIV},
    {"%", 6, KILN_EXPR_MOD},
};

static const struct operator_row *find_operator(const parser *p, int level) {
  for (size_t i = 0; i < KILN_LEN(operators); i++)
    if (operators[i].level >= level && peek(p, operators[i].text)) return &operators[i];
  return NULL;
}

static kiln_status binary(parser *p, int level, kiln_tc_expr **out) {
  KILN_TRY(unary(p, out));
  const struct operator_row *row;
  while ((row = find_operator(p, level)) != NULL) {
    const char *at = p->token.at;
    advance(p);
    kiln_tc_expr *args[2] = {*out, NULL};
    KILN_TRY(binary(p, row->level + 1, &args[1]));
    *out = node(p, KILN_TC_BINARY, at);
    (*out)->op = row->op;
    set_args(p, *out, 2, args);
    if ((*out)->height > MAX_HEIGHT)
      return kiln_tc_fail(p->source, at, NULL, "syntax: nested too deeply");
  }
  return KILN_OK;
}

static kiln_status expression(parser *p, kiln_tc_expr **out) {
  if (++p->depth > MAX_DEPTH)
    return kiln_tc_fail(p->source, p->token.at, NULL, "syntax: nested too deeply");
  KILN_TRY(binary(p, 1, out));
  const char *at = p->token.at;
  if (accept(p, "?")) {
    kiln_tc_expr *args[3] = {*out, NULL, NULL};
    KILN_TRY(expression(p, &args[1]));
    KILN_TRY(expect(p, ":"));
    KILN_TRY(expression(p, &args[2]));
    *out = node(p, KILN_TC_TERNARY, at);
    set_args(p, *out, 3, args);
  }
  p->depth--;
  return KILN_OK;
}

// --- declarations ---

static const struct {
  const char *text;
  kiln_dtype dtype;
} types[] = {
    {"bool", KILN_BOOL},   {"int8", KILN_I8},     {"int16", KILN_I16},     {"int32", KILN_I32},
    {"int64", KILN_I64},   {"uint8", KILN_U8},    {"uint16", KILN_U16},    {"uint32", KILN_U32},
    {"uint64", KILN_U64},  {"float16", KILN_F16}, {"bfloat16", KILN_BF16}, {"float", KILN_F32},
    {"float32", KILN_F32}, {"float64", KILN_F64}, {"double", KILN_F64},
};

bool kiln_tc_type_of(const char *text, kiln_dtype *out) {
  for (size_t i = 0; i < KILN_LEN(types); i++) {
    if (strcmp(types[i].text, text) != 0) continue;
    *out = types[i].dtype;
    return true;
  }
  return false;
}

static kiln_tc_type type_of_name(const parser *p, kiln_symbol s) {
  kiln_tc_type t = {.given = true, .var = s, .dtype = KILN_F32};
  if (kiln_tc_type_of(kiln_symbol_text(p->cx, s), &t.dtype)) t.var = 0;
  return t;
}

static kiln_status dimension(parser *p, kiln_tc_dim *out) {
  *out = (kiln_tc_dim){.at = p->token.at};
  if (p->token.kind == KILN_TC_TOKEN_INT) {
    out->value = p->token.i;
    advance(p);
    return KILN_OK;
  }
  KILN_TRY(name(p, "a dimension: a name or a number", &out->name));
  out->pack = accept(p, "...");
  return KILN_OK;
}

// "(d, d, ...)" after the parenthesis.
static kiln_status dimensions(parser *p, int *out_n, kiln_tc_dim **out) {
  KILN_VEC(kiln_tc_dim) list = {0};
  while (!peek(p, ")")) {
    kiln_tc_dim d;
    if (list.n == KILN_MAX_RANK)
      return kiln_tc_fail(p->source, p->token.at, NULL,
                          "syntax: at most %d dimensions are allowed here", KILN_MAX_RANK);
    KILN_TRY(dimension(p, &d));
    KILN_VEC_PUSH(&p->cx->perm, &list, d);
    if (!accept(p, ",")) break;
  }
  *out_n = list.n;
  *out = list.data;
  return expect(p, ")");
}

// Subscripts of a left side: names, packs, or index expressions.
static kiln_status left_side(parser *p, kiln_tc_stmt *s) {
  KILN_VEC(kiln_tc_dim) list = {0};
  while (!peek(p, ")")) {
    kiln_tc_dim d = {.at = p->token.at};
    if (list.n == KILN_MAX_RANK)
      return kiln_tc_fail(p->source, p->token.at, NULL,
                          "syntax: at most %d dimensions are allowed here", KILN_MAX_RANK);
    KILN_TRY(expression(p, &d.e));
    bool named = d.e->kind == KILN_TC_NAME || d.e->kind == KILN_TC_PACK;
    if (named) {
      d.name = d.e->name;
      d.pack = d.e->kind == KILN_TC_PACK;
      d.e = NULL;
    }
    KILN_VEC_PUSH(&p->cx->perm, &list, d);
    if (!accept(p, ",")) break;
  }
  s->n_lhs = list.n;
  s->lhs = list.data;
  return expect(p, ")");
}

// An input, or with |is_out| an output, whose type is optional.
static kiln_status param(parser *p, bool is_out, kiln_tc_param *out) {
  *out = (kiln_tc_param){.at = p->token.at, .n_dims = is_out ? -1 : 0};
  kiln_symbol first;
  KILN_TRY(name(p, is_out ? "an output" : "a type", &first));
  bool only_a_name = is_out && (peek(p, ",") || peek(p, ")"));
  if (only_a_name) {
    out->name = first;
    return KILN_OK;
  }
  if (!is_out && strcmp(kiln_symbol_text(p->cx, first), "size") == 0) {
    out->size = true;
    out->at = p->token.at;
    KILN_TRY(name(p, "the name of a size", &out->name));
    out->pack = accept(p, "...");
    return out->pack && !peek(p, ")") ? unexpected(p, "')': a pack of sizes must be last")
                                      : KILN_OK;
  }
  out->type = type_of_name(p, first);
  if (accept(p, "(")) KILN_TRY(dimensions(p, &out->n_dims, &out->dims));
  out->at = p->token.at;
  KILN_TRY(name(p, "the name of a tensor", &out->name));
  if (!is_out && accept(p, "=")) KILN_TRY(expression(p, &out->otherwise));
  return KILN_OK;
}

static kiln_status params(parser *p, bool is_out, int *out_n, kiln_tc_param **out) {
  KILN_VEC(kiln_tc_param) list = {0};
  KILN_TRY(expect(p, "("));
  while (!peek(p, ")")) {
    kiln_tc_param q;
    KILN_TRY(param(p, is_out, &q));
    KILN_VEC_PUSH(&p->cx->perm, &list, q);
    if (!accept(p, ",")) break;
  }
  *out_n = list.n;
  *out = list.data;
  return expect(p, ")");
}

static kiln_status type_class(parser *p, kiln_tc_class *out) {
  static const char *const texts[] = {"any",      "float",  "int",  "signed",
                                      "unsigned", "number", "bool", "half"};
  for (size_t i = 0; i < KILN_LEN(texts); i++) {
    if (!accept(p, texts[i])) continue;
    *out = (kiln_tc_class)i;
    return KILN_OK;
  }
  return unexpected(p, "any, float, int, signed, unsigned, number, bool or half");
}

static kiln_status type_variables(parser *p, kiln_tc_def *d) {
  KILN_VEC(kiln_tc_typevar) list = {0};
  do {
    kiln_tc_typevar v = {0, KILN_TC_ANY};
    KILN_TRY(name(p, "a type variable", &v.name));
    KILN_TRY(expect(p, ":"));
    KILN_TRY(type_class(p, &v.class_));
    KILN_VEC_PUSH(&p->cx->perm, &list, v);
  } while (accept(p, ","));
  d->n_typevars = list.n;
  d->typevars = list.data;
  return expect(p, ">");
}

// --- statements ---

static const struct {
  const char *text;
  kiln_combiner combiner;
  bool fresh;
} assigns[] = {
    {"=", KILN_COMBINE_NONE, false},   {"+=", KILN_COMBINE_SUM, false},
    {"*=", KILN_COMBINE_PROD, false},  {"min=", KILN_COMBINE_MIN, false},
    {"max=", KILN_COMBINE_MAX, false}, {"and=", KILN_COMBINE_AND, false},
    {"or=", KILN_COMBINE_OR, false},   {"+=!", KILN_COMBINE_SUM, true},
    {"*=!", KILN_COMBINE_PROD, true},  {"min=!", KILN_COMBINE_MIN, true},
    {"max=!", KILN_COMBINE_MAX, true}, {"and=!", KILN_COMBINE_AND, true},
    {"or=!", KILN_COMBINE_OR, true},
};

static kiln_status assignment(parser *p, kiln_tc_stmt *s) {
  for (size_t i = 0; i < KILN_LEN(assigns); i++) {
    if (!accept(p, assigns[i].text)) continue;
    s->combiner = assigns[i].combiner;
    s->fresh = assigns[i].fresh;
    return KILN_OK;
  }
  return unexpected(p, "an assignment: =, +=!, *=!, min=!, max=!, ...");
}

static kiln_status clause(parser *p, kiln_tc_clause *c) {
  *c = (kiln_tc_clause){.at = p->token.at};
  if (accept(p, "exists")) {
    c->kind = KILN_TC_EXISTS;
    return expression(p, &c->lo);
  }
  KILN_TRY(name(p, "an index, a name or exists", &c->name));
  bool pack = accept(p, "...");
  if (!pack && accept(p, "=")) {
    c->kind = KILN_TC_LET;
    return expression(p, &c->lo);
  }
  c->kind = KILN_TC_RANGE;
  KILN_TRY(expect(p, "in"));
  KILN_TRY(expression(p, &c->lo));
  if (pack && c->lo->kind == KILN_TC_PACK) { // the extents of those dimensions
    c->like = c->lo->name;
    c->lo = NULL;
    return KILN_OK;
  }
  KILN_TRY(expect(p, ":"));
  KILN_TRY(expression(p, &c->hi));
  if (!pack) return KILN_OK;
  KILN_TRY(expect(p, "for"));
  KILN_TRY(name(p, "a pack of dimensions", &c->like));
  return expect(p, "...");
}

static kiln_status clauses(parser *p, kiln_tc_stmt *s) {
  KILN_VEC(kiln_tc_clause) list = {0};
  do {
    kiln_tc_clause c;
    KILN_TRY(clause(p, &c));
    KILN_VEC_PUSH(&p->cx->perm, &list, c);
  } while (accept(p, ","));
  s->n_clauses = list.n;
  s->clauses = list.data;
  return KILN_OK;
}

// ", B" of A, B = f(X).
static kiln_status more_results(parser *p, kiln_tc_stmt *s) {
  KILN_VEC(kiln_tc_dim) list = {0};
  while (accept(p, ",")) {
    kiln_tc_dim d = {.at = p->token.at};
    KILN_TRY(name(p, "the name of a result", &d.name));
    KILN_VEC_PUSH(&p->cx->perm, &list, d);
  }
  s->n_more = list.n;
  s->more = list.data;
  return peek(p, "=") ? KILN_OK : unexpected(p, "'=' and a call");
}

static kiln_status statement(parser *p, kiln_tc_stmt *s) {
  *s = (kiln_tc_stmt){.at = p->token.at};
  if (accept(p, "require")) {
    KILN_TRY(expression(p, &s->rhs));
    KILN_TRY(expect(p, ","));
    return string(p, &s->message);
  }
  KILN_TRY(name(p, "a statement or '}'", &s->out));
  if (peek(p, ",")) KILN_TRY(more_results(p, s));
  if (accept(p, "(")) KILN_TRY(left_side(p, s));
  KILN_TRY(assignment(p, s));
  KILN_TRY(expression(p, &s->rhs));
  if (peek(p, "<=>"))
    return kiln_tc_fail(
        p->source, p->token.at, NULL,
        "<=>: states that two things are equal, which Kiln does not check: leave it "
        "out, and compare two definitions by their results");
  return accept(p, "where") ? clauses(p, s) : KILN_OK;
}

static kiln_status definition(parser *p, kiln_tc_def *d) {
  *d = (kiln_tc_def){0};
  KILN_TRY(expect(p, "def"));
  d->at = p->token.at;
  KILN_TRY(name(p, "the name of the definition", &d->name));
  if (accept(p, "<")) KILN_TRY(type_variables(p, d));
  KILN_TRY(params(p, false, &d->n_params, &d->params));
  KILN_TRY(expect(p, "->"));
  KILN_TRY(params(p, true, &d->n_outs, &d->outs));
  KILN_TRY(expect(p, "{"));
  KILN_VEC(kiln_tc_stmt) list = {0};
  while (!peek(p, "}")) {
    kiln_tc_stmt s;
    KILN_TRY(statement(p, &s));
    KILN_VEC_PUSH(&p->cx->perm, &list, s);
  }
  d->n_stmts = list.n;
  d->stmts = list.data;
  return expect(p, "}");
}

// --- headers ---

static kiln_status integer(parser *p, int64_t *out) {
  bool minus = accept(p, "-");
  if (p->token.kind != KILN_TC_TOKEN_INT) return unexpected(p, "an integer");
  *out = minus ? -p->token.i : p->token.i;
  advance(p);
  return KILN_OK;
}

// "[0, 2, 3]" after the bracket.
static kiln_status axes(parser *p, kiln_tc_attr *a) {
  a->kind = KILN_ATTR_INTS;
  a->has_default = true;
  do {
    if (a->n_ints == KILN_MAX_RANK) return unexpected(p, "fewer axes");
    KILN_TRY(integer(p, &a->ints[a->n_ints++]));
  } while (accept(p, ","));
  return expect(p, "]");
}

static kiln_status default_value(parser *p, kiln_tc_attr *a) {
  static const struct {
    const char *text;
    kiln_attr_kind kind;
  } kinds[] = {{"int", KILN_ATTR_INT}, {"float", KILN_ATTR_FLOAT}, {"string", KILN_ATTR_STRING}};
  for (size_t i = 0; i < KILN_LEN(kinds); i++) {
    if (!accept(p, kinds[i].text)) continue;
    a->kind = kinds[i].kind;
    return KILN_OK;
  }
  if (accept(p, "[")) return axes(p, a);
  a->kind = KILN_ATTR_INT;
  a->at_end = accept(p, "end");
  if (a->at_end) return KILN_OK;
  a->has_default = true;
  if (p->token.kind == KILN_TC_TOKEN_STRING) {
    a->kind = KILN_ATTR_STRING;
    return string(p, &a->s);
  }
  bool minus = accept(p, "-");
  const kiln_tc_token t = p->token;
  if (t.kind != KILN_TC_TOKEN_INT && t.kind != KILN_TC_TOKEN_FLOAT)
    return unexpected(p, "a default: a number, a string, int, float, string or end");
  if (t.kind == KILN_TC_TOKEN_FLOAT) a->kind = KILN_ATTR_FLOAT;
  a->i = minus ? -t.i : t.i;
  a->f = t.kind == KILN_TC_TOKEN_INT ? (double)a->i : minus ? -t.f : t.f;
  advance(p);
  return KILN_OK;
}

static kiln_status attribute(parser *p, kiln_tc_attr *a) {
  *a = (kiln_tc_attr){.at = p->token.at};
  KILN_TRY(name(p, "the name of an attribute", &a->name));
  KILN_TRY(expect(p, "="));
  KILN_TRY(default_value(p, a));
  bool axes_only = a->at_end || a->kind == KILN_ATTR_INTS;
  if (!axes_only && !peek(p, ":")) return KILN_OK;
  KILN_TRY(expect(p, ":"));
  KILN_TRY(name(p, "the dimension at this axis", &a->dim));
  a->dim_is_pack = accept(p, "...");
  return axes_only && !a->dim_is_pack ? unexpected(p, "'...'") : KILN_OK;
}

static kiln_status opset(parser *p, int *out) {
  const kiln_tc_token t = p->token;
  if (t.kind != KILN_TC_TOKEN_INT || t.i < 1 || t.i > 1000000)
    return unexpected(p, "an opset number");
  *out = (int)t.i;
  advance(p);
  return KILN_OK;
}

static kiln_status header(parser *p, kiln_tc_header *h) {
  *h = (kiln_tc_header){.at = p->token.at};
  KILN_TRY(expect(p, "onnx"));
  KILN_TRY(name(p, "the name of an operator", &h->name));
  KILN_TRY(opset(p, &h->since));
  KILN_TRY(expect(p, ".."));
  if (p->token.kind == KILN_TC_TOKEN_INT) KILN_TRY(opset(p, &h->until));
  if (h->until != 0 && h->until < h->since)
    return kiln_tc_fail(p->source, h->at, NULL, "%s: the opsets must rise, got %d..%d",
                        kiln_symbol_text(p->cx, h->name), h->since, h->until);
  if (accept(p, "domain")) KILN_TRY(string(p, &h->domain));
  KILN_VEC(kiln_tc_attr) list = {0};
  if (accept(p, "(")) {
    do {
      kiln_tc_attr a;
      KILN_TRY(attribute(p, &a));
      KILN_VEC_PUSH(&p->cx->perm, &list, a);
    } while (accept(p, ","));
    KILN_TRY(expect(p, ")"));
  }
  h->n_attrs = list.n;
  h->attrs = list.data;
  if (accept(p, "=")) KILN_TRY(name(p, "the name of a definition", &h->def));
  return KILN_OK;
}

// Skips a `test` line, which the test generator reads.
static void skip_line(parser *p) {
  const char *at = p->token.at;
  p->token = kiln_tc_lex(at + strcspn(at, "\n"));
}

typedef struct items {
  KILN_VEC(kiln_tc_header) headers;
  KILN_VEC(kiln_tc_def) defs;
} items;

static kiln_status item(parser *p, items *all) {
  if (peek(p, "onnx")) {
    kiln_tc_header h;
    KILN_TRY(header(p, &h));
    KILN_VEC_PUSH(&p->cx->perm, &all->headers, h);
    return KILN_OK;
  }
  if (!peek(p, "def")) return unexpected(p, "onnx, def or test");
  kiln_tc_def d;
  const kiln_status st = definition(p, &d);
  d.wrong = st != KILN_OK;
  if (d.name != 0) KILN_VEC_PUSH(&p->cx->perm, &all->defs, d);
  return st;
}

// After an error parsing resumes at the next definition.
static kiln_status file(parser *p, kiln_tc_file *out) {
  items all = {0};
  kiln_status first = KILN_OK;
  for (int n_wrong = 0; p->token.kind != KILN_TC_TOKEN_END && n_wrong < KILN_TC_MAX_WRONG;) {
    if (peek(p, "test")) {
      skip_line(p);
      continue;
    }
    const kiln_status st = item(p, &all);
    if (st == KILN_OK) continue;
    if (first == KILN_OK) first = st;
    n_wrong++;
    p->depth = 0;
    while (p->token.kind != KILN_TC_TOKEN_END && !peek(p, "def")) advance(p);
  }
  out->n_headers = all.headers.n;
  out->headers = all.headers.data;
  out->n_defs = all.defs.n;
  out->defs = all.defs.data;
  return first;
}

kiln_status kiln_tc_parse(const kiln_tc_source *source, kiln_tc_file *out) {
  *out = (kiln_tc_file){.source = *source};
  parser p = {.source = source, .cx = source->cx, .token = kiln_tc_lex(source->text), .depth = 0};
  return file(&p, out);
}

kiln_status kiln_tc_parse_expression(const kiln_tc_source *source, kiln_tc_expr **out) {
  parser p = {.source = source, .cx = source->cx, .token = kiln_tc_lex(source->text), .depth = 0};
  KILN_TRY(expression(&p, out));
  return p.token.kind == KILN_TC_TOKEN_END ? KILN_OK : unexpected(&p, "the end");
}
