// Expressions: index arithmetic and scalar computation in one immutable, interned form. Equality is
// `==`.
//
// Semantics, stated once:
// - Integers wrap in two's complement at their width. `/` and `%` round down; x/0 = x%0 = 0. Index
// expressions are i64. A shift by the width or more (amounts are read as unsigned) leaves 0, `>>`
// of a signed operand its sign, 0 or -1. A negative power is rounded towards zero: 1, -1 or 0.
// - Floats are IEEE; f16 and bf16 are computed in f32 and rounded where they are stored or cast.
// - Encodings (float8e4m3fn, ...) are loaded, selected and stored; operators do not accept them. A
// cast from or to an encoding is expanded to integer arithmetic on bits at construction
// (ir/encoding.h).
// - Arguments of an arithmetic operator have one dtype; comparisons and isnan/isinf give bool;
// SELECT's condition is bool.
// - SELECT evaluates the chosen branch only: `h < 0 ? 0 : X(h)` never reads X out of range. All
// else is strict.
// - min/max of floats give NaN when either is NaN.
// Constructors fold constants but do not reorder operands; simplification by ranges is in
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

// The free variables of an expression, ascending; shared between expressions.
typedef struct kiln_expr_vars {
  int n;
  kiln_symbol vars[];
} kiln_expr_vars;

typedef struct kiln_expr kiln_expr;
struct kiln_expr {
  kiln_expr_kind kind;
  kiln_dtype dtype;
  bool has_load; // in this node or below
  int n_args;
  uint32_t id; // dense in the context, in order of creation: args have smaller ids
  // Number of nodes of the expression as a tree, shared ones counted for each use; saturates at
  // UINT32_MAX. Repeated substitution gives few nodes but an exponential tree: see below.
  uint32_t n_tree;
  const kiln_expr_vars *vars;
  uint64_t loaded; // bit t % 64 is set if tensor t is loaded in this node or below
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
// |x| to the power |y| for floats; for some constants as cheaper operations that are exact where
// POW is not.
const kiln_expr *kiln_power(kiln_ctx *cx, const kiln_expr *x, const kiln_expr *y);
// Both conditions; NULL stands for true.
const kiln_expr *kiln_both(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b);
const kiln_expr *kiln_select(kiln_ctx *cx, const kiln_expr *c, const kiln_expr *a,
                             const kiln_expr *b);
const kiln_expr *kiln_cast(kiln_ctx *cx, kiln_dtype t,
                           const kiln_expr *a); // |a| itself if it has that dtype
// The bits of |a| as type |t|, which must have the same size in memory; integers and encodings go
// through unsigned integers, and an encoding of fewer than 8 bits keeps the low ones. A bool is 0
// or 1.
const kiln_expr *kiln_bitcast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a);
kiln_dtype kiln_bits_type(kiln_dtype t); // the unsigned integer with the bits of |t|
// Rebuilds |e| with other arguments, folding again.
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
// The constant's value, or |otherwise|.
int64_t kiln_expr_int_or(const kiln_expr *e, int64_t otherwise);
bool kiln_expr_is_zero(const kiln_expr *e); // the number 0 (not -0.0)
bool kiln_expr_uses(const kiln_expr *e, kiln_symbol var);
bool kiln_expr_has_load(const kiln_expr *e);
const kiln_expr *kiln_expr_uncast(const kiln_expr *e); // the operand under all casts

// Replaces each node for which |map(argument, node)| is not NULL by its result, without visiting
// the replaced node's children. |map| may call this function with itself and its argument for
// subexpressions: that continues the same traversal, so results are memoized by node and must
// depend on the node alone.
typedef const kiln_expr *(*kiln_expr_map)(kiln_ctx *cx, const kiln_expr *e, void *argument);
const kiln_expr *kiln_expr_replace(kiln_ctx *cx, const kiln_expr *e, kiln_expr_map map,
                                   void *argument);
// Replaces all occurrences of |from| by |to|.
const kiln_expr *kiln_expr_replace_one(kiln_ctx *cx, const kiln_expr *e, const kiln_expr *from,
                                       const kiln_expr *to);
// Substitutes n variables simultaneously.
const kiln_expr *kiln_expr_substitute(kiln_ctx *cx, const kiln_expr *e, int n,
                                      const kiln_symbol *vars, const kiln_expr *const *values);
// Traversals. An expression is a DAG whose tree may be exponential, so analyses of whole
// expressions must use one of these functions, which visit a node once, or memoize by node
// (kiln_map by id). Plain recursion is for expressions with a bounded |n_tree|, or along a single
// path.

// The largest tree that plain recursions accept; they treat larger expressions as unknown, which is
// conservative for each.
enum { KILN_LONG_TREE = 1000 };

// Calls |visit| once for every distinct node of |e|, arguments first.
void kiln_expr_visit(kiln_ctx *cx, const kiln_expr *e,
                     void (*visit)(const kiln_expr *e, void *argument), void *argument);
// The same for every distinct load of |e|, which may be NULL.
void kiln_expr_visit_loads(kiln_ctx *cx, const kiln_expr *e,
                           void (*visit)(const kiln_expr *load, void *argument), void *argument);
// Whether |e|, which may be NULL, loads from |tensor|.
bool kiln_expr_loads_from(kiln_ctx *cx, const kiln_expr *e, int tensor);

// How a search continues after a node.
typedef enum kiln_search {
  KILN_SEARCH_INTO, // visit its arguments
  KILN_SEARCH_PAST, // skip its arguments, unless they are reached on another path
  KILN_SEARCH_REST, // visit all but the first argument: the branches of a SELECT
  KILN_SEARCH_ENDS
} kiln_search;
// Calls |enter| once for every distinct node of |e| (may be NULL) in preorder, from left to right.
//
// gives: the node at which |enter| ended the search; NULL: none
const kiln_expr *kiln_expr_search(kiln_ctx *cx, const kiln_expr *e,
                                  kiln_search (*enter)(const kiln_expr *e, void *argument),
                                  void *argument);
// Whether |e|, which may be NULL, loads |tensor|.
bool kiln_expr_loads(kiln_ctx *cx, const kiln_expr *e, int tensor);

// Decomposes |e| = sum(coef[k] * vars[k]) + constant with integer constants; |coef| has n entries.
// entries.
bool kiln_expr_affine(const kiln_expr *e, int n, const kiln_symbol *vars, int64_t *coef,
                      int64_t *constant);

// Text. Loads print as NAME(i, j) with names from |name_of|, or as NAME[i, j] if |bracket| is '['.
// An expression with a tree of more than 1000 nodes prints as {$0 = e; $1 = e; ... e}, with names
// for shared subexpressions, so that the text is linear in the number of nodes.
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
// Parses one expression at |*text| and moves |*text| past it. Constants have a dtype suffix unless
// they are i64 (1.5f32, 3i32, true); names that |names| does not find are variables.
kiln_status kiln_expr_parse(kiln_ctx *cx, const char **text, const kiln_expr_names *names,
                            const kiln_expr **out);

const char *kiln_expr_kind_text(kiln_expr_kind k);
// Whether this is the text of a kind that prints as a call.
bool kiln_expr_is_call_name(const char *name);
int kiln_expr_kind_args(kiln_expr_kind k);                 // -1: LOAD
bool kiln_expr_kind_is_cmp(kiln_expr_kind k);              // LT .. NE
bool kiln_expr_kind_is_call(kiln_expr_kind k);             // written NAME(...)
bool kiln_expr_kind_takes(kiln_expr_kind k, kiln_dtype t); // whether operands may be |t|

#endif
