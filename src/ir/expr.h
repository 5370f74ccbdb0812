// Expressions: index arithmetic and scalar computation in one immutable, interned form. Equality is
// `==`.
//
// Semantics, stated once:
// - Integers wrap in two's complement at their width. `/` and `%` round down; x/0 = x%0 = 0. Index
// expressions are i64. A shift by the width or more (amounts are read as unsigned) leaves 0, `>>`
// of a signed operand its sign, 0 or -1. A negative power is rounded towards zero: 1, -1 or 0.
// - Floats are IEEE; f16 and bf16 are computed in f32 and rounded where they are stored or cast.
// - Codes (float8e4m3fn, ...) are loaded, selected and stored; an operator takes none of them. A
// cast from or to a code type is integer arithmetic on bits, made where it is constructed
// (ir/encoding.h).
// - Arguments of an arithmetic operator have one dtype; comparisons and isnan/isinf give bool;
// SELECT's condition is bool.
// - SELECT evaluates the chosen branch only: `h < 0 ? 0 : X(h)` never reads X out of range. All
// else is strict.
// - min/max of floats give NaN when either is NaN.
// The constructors fold constants and sort nothing; range-based simplification is
// analysis/simplify.h.
#ifndef KILN_IR_EXPR_H
#define KILN_IR_EXPR_H

#include "ir/dtype.h"
#include "support/ctx.h"
#include "support/text.h"

typedef enum kiln_expr_kind {
#define KILN_EXPR(name, text, n, cls) KILN_EXPR_##name,
#include "ir/expr.def"
#undef KILN_EXPR
  KILN_N_EXPRS
} kiln_expr_kind;

// The variables under an expression, ascending; shared between expressions.
typedef struct kiln_expr_vars {
  int n;
  kiln_symbol vars[];
} kiln_expr_vars;

typedef struct kiln_expr kiln_expr;
struct kiln_expr {
  kiln_expr_kind kind;
  kiln_dtype dtype;
  bool has_load; // here or below
  int n_args;
  uint32_t id; // dense in the context, in order of creation: args have smaller ids
  // Nodes that it has as a tree, each as often as it is used, at most UINT32_MAX. What is
  // substituted into itself has few nodes and an endless tree: see below.
  uint32_t n_tree;
  const kiln_expr_vars *vars;
  uint64_t loaded; // bit t % 64 for each tensor t that is loaded here or below
  union {
    int64_t i;       // INT
    double f;        // FLOAT
    kiln_symbol sym; // VAR
    int tensor;      // LOAD
  } u;
  const kiln_expr *args[];
};

// Constructors; |cx| owns the result. They fold constant operands and the units (x+0, x*1, x*0 for
// integers, x/1, ...).
const kiln_expr *kiln_int(kiln_ctx *cx, int64_t value); // i64
const kiln_expr *kiln_int_of(kiln_ctx *cx, kiln_dtype t,
                             int64_t value);                            // any integer dtype or bool
const kiln_expr *kiln_float(kiln_ctx *cx, kiln_dtype t, double value);  // a float dtype
const kiln_expr *kiln_number(kiln_ctx *cx, kiln_dtype t, double value); // a constant of any dtype
const kiln_expr *kiln_var(kiln_ctx *cx, kiln_symbol name);              // i64
const kiln_expr *kiln_load(kiln_ctx *cx, int tensor, kiln_dtype t, int n,
                           const kiln_expr *const *index);
const kiln_expr *kiln_unary(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a);
const kiln_expr *kiln_binary(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                             const kiln_expr *b);
// The float |x| to the power |y|; of some constants cheaper than POW, and exact where that is not.
const kiln_expr *kiln_power(kiln_ctx *cx, const kiln_expr *x, const kiln_expr *y);
// Both conditions; NULL stands for true.
const kiln_expr *kiln_both(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b);
const kiln_expr *kiln_select(kiln_ctx *cx, const kiln_expr *c, const kiln_expr *a,
                             const kiln_expr *b);
const kiln_expr *kiln_cast(kiln_ctx *cx, kiln_dtype t,
                           const kiln_expr *a); // |a| itself when it has that dtype
// The bits of |a| as |t|, which is as wide in memory: integers and codes by way of unsigned
// integers; of a byte that becomes a code of fewer bits, the low ones. A bool is the number 0 or 1.
const kiln_expr *kiln_bitcast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a);
kiln_dtype kiln_bits_type(kiln_dtype t); // the unsigned integer with the bits of |t|
// Rebuilds |e| with other arguments (folding again).
const kiln_expr *kiln_expr_with_args(kiln_ctx *cx, const kiln_expr *e,
                                     const kiln_expr *const *args);

static inline const kiln_expr *kiln_add(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_ADD, a, b);
}
static inline const kiln_expr *kiln_sub(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_SUB, a, b);
}
static inline const kiln_expr *kiln_mul(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_MUL, a, b);
}
static inline const kiln_expr *kiln_div(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_DIV, a, b);
}
static inline const kiln_expr *kiln_mod(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_MOD, a, b);
}

bool kiln_expr_is_int(const kiln_expr *e,
                      int64_t *out_value); // an INT constant; |out_value| may be NULL
int64_t kiln_expr_int_or(const kiln_expr *e, int64_t otherwise); // the constant's value
bool kiln_expr_is_zero(const kiln_expr *e);                      // the number 0 (not -0.0)
bool kiln_expr_uses(const kiln_expr *e, kiln_symbol var);
bool kiln_expr_has_load(const kiln_expr *e);
const kiln_expr *kiln_expr_uncast(const kiln_expr *e); // what is cast, however often

// Replaces by |map(argument, node)| every node for which it does not return NULL, children of
// replaced nodes untouched. Where |map| calls this with itself and its argument, to go on below,
// that is the same
// walk: it comes to no node again. So what it gives follows from the node.
typedef const kiln_expr *(*kiln_expr_map)(kiln_ctx *cx, const kiln_expr *e, void *argument);
const kiln_expr *kiln_expr_replace(kiln_ctx *cx, const kiln_expr *e, kiln_expr_map map,
                                   void *argument);
// Replaces the node |from|, wherever it stands, by |to|.
const kiln_expr *kiln_expr_replace_one(kiln_ctx *cx, const kiln_expr *e, const kiln_expr *from,
                                       const kiln_expr *to);
// Substitutes n variables at once.
const kiln_expr *kiln_expr_substitute(kiln_ctx *cx, const kiln_expr *e, int n,
                                      const kiln_symbol *vars, const kiln_expr *const *values);
// Walks. An expression is a graph whose tree may be exponential, so that whoever looks at all of it
// uses one of these, which come to a node once, or keeps what is found by node (kiln_map by id). A
// recursion of one's own is for what is bounded by |n_tree|, or goes down one path.

// Nodes of a tree that is taken as a tree: of longer ones such recursions know nothing, which is
// right for each of them.
enum { KILN_LONG_TREE = 1000 };

// Calls |visit| once for every distinct node under |e|, arguments first.
void kiln_expr_visit(kiln_ctx *cx, const kiln_expr *e,
                     void (*visit)(const kiln_expr *e, void *argument), void *argument);
// The same for every distinct load under |e|; NULL has none.
void kiln_expr_visit_loads(kiln_ctx *cx, const kiln_expr *e,
                           void (*visit)(const kiln_expr *load, void *argument), void *argument);
// Whether |e| loads from |tensor|; NULL doesn't.
bool kiln_expr_loads_from(kiln_ctx *cx, const kiln_expr *e, int tensor);

// What a search does at a node.
typedef enum kiln_search {
  KILN_SEARCH_INTO, // the arguments are next
  KILN_SEARCH_PAST, // they are left out, unless another way leads there
  KILN_SEARCH_REST, // all but the first, as a SELECT's branches
  KILN_SEARCH_ENDS
} kiln_search;
// Calls |enter| once for every distinct node under |e|, NULL has none, before its arguments, from
// left to right.
//
// gives: the node at which it ended; NULL: at none
const kiln_expr *kiln_expr_search(kiln_ctx *cx, const kiln_expr *e,
                                  kiln_search (*enter)(const kiln_expr *e, void *argument),
                                  void *argument);
// Whether |e| loads |tensor|; NULL does not.
bool kiln_expr_loads(kiln_ctx *cx, const kiln_expr *e, int tensor);

// If |e| = sum(coef[k] * vars[k]) + constant with integer constants, gives them. |coef| has n
// entries.
bool kiln_expr_affine(const kiln_expr *e, int n, const kiln_symbol *vars, int64_t *coef,
                      int64_t *constant);

// Text. Loads print as NAME(i, j) through |name_of| (prim) or NAME[i, j] with |bracket| '['. An
// expression of more than 1000 nodes as a tree prints as {$0 = e; $1 = e; ... e}, with names for
// what it uses more than once: its text is no longer than it has nodes.
typedef struct kiln_expr_names {
  const char *(*name_of)(const void *program, int tensor);
  int (*find)(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
              int *out_rank); // -1: unknown
  const void *program;
  char bracket; // '(' or '['
} kiln_expr_names;
void kiln_expr_print(const kiln_ctx *cx, const kiln_expr *e, const kiln_expr_names *names,
                     kiln_text *out);
const char *kiln_expr_text(kiln_ctx *cx, const kiln_expr *e); // without loads; in the scratch arena
// Parses one expression at |*text| and moves |*text| behind it. Constants print with their dtype
// where it is not i64 (1.5f32, 3i32, true), variables are any name that |names| does not find.
kiln_status kiln_expr_parse(kiln_ctx *cx, const char **text, const kiln_expr_names *names,
                            const kiln_expr **out);

const char *kiln_expr_kind_text(kiln_expr_kind k);
bool kiln_expr_is_call_name(const char *name); // whether a kind that prints as a call has this text
int kiln_expr_kind_args(kiln_expr_kind k);     // -1: LOAD
bool kiln_expr_kind_is_cmp(kiln_expr_kind k);  // LT .. NE
bool kiln_expr_kind_is_call(kiln_expr_kind k); // written NAME(...)
bool kiln_expr_kind_takes(kiln_expr_kind k, kiln_dtype t); // whether operands may be |t|

#endif
