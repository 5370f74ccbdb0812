// The notation, and its syntax tree.
//
//   file    := { '#' comment | header | def | 'test' ... end of line }
//   header  := 'onnx' NAME SINCE '..' [UNTIL] ['domain' STRING] ['(' attr {',' attr} ')'] ['=' DEF]
//   attr    := NAME '=' (NUMBER | STRING | 'int' | 'float' | 'string') [':' NAME ['...']]
//            | NAME '=' 'end' ':' NAME '...' | NAME '=' '[' INT {',' INT} ']' ':' NAME '...'
//   def     := 'def' NAME ['<' NAME ':' CLASS {',' NAME ':' CLASS} '>']
//              '(' [param {',' param}] ')' '->' '(' out {',' out} ')' '{' {stmt} '}'
//   param   := type ['(' [dim {',' dim}] ')'] NAME ['=' exp]     a default makes the input optional
//            | 'size' NAME ['...']                  an integer that is known when bound; or several
//   out     := [type ['(' ... ')']] NAME
//   dim     := NAME | NAME '...' | NUMBER
//   type    := bool int8 int16 int32 int64 uint8 .. uint64 float16 bfloat16 float float32 float64
//              double | a type variable
//   CLASS   := any | float | int | signed | unsigned | number | bool | half
//   stmt    := 'require' exp ',' STRING
//            | NAME ['(' [exp {',' exp}] ')'] assign exp ['where' clause {',' clause}]
//            | NAME {',' NAME} '=' NAME '(' [exp {',' exp}] ')'     a call
//   assign  := '=' | '+=' '*=' 'min=' 'max=' 'and=' 'or=' each with or without '!'
//   clause  := NAME 'in' exp ':' exp | NAME '...' 'in' exp ':' exp 'for' NAME '...'
//            | NAME '...' 'in' NAME '...'
//            | NAME '=' exp | 'exists' exp
//   exp     := ?: < || < && < == != < <= > >= < + - < * / % < unary - ! < primary
//   primary := NUMBER | STRING | '(' exp ')' | NAME | NAME '(' [exp {',' exp}] ')' | NAME '...'
//            | NAME '.d' DIGIT | NAME '.' DIGIT
//
// Semantics:
// - An undeclared name is an index of its statement; indices missing on the left side are reduced.
//   `op=!` starts from the identity of op, `op=` from the tensor's value so far. Statements run in
//   order; a tensor may be written again, except inputs.
// - A left side is affine in the indices and injective; statements may write parts of a tensor,
//   which are assembled when the tensor is read (tc/assemble.c) and must cover it.
// - A call binds an earlier definition, or one of tc/library.c, to tensors and constant numbers.
// - As a subscript, an expression with packs stands for one expression for each axis.
// - Tensors that are neither input nor output are temporaries. A scalar is a tensor
//   of no dimensions.
// - Index packs `i...` stand for any number of indices. On one tensor `X(n..., d)` matches its
//   declared dimensions `X(N..., D)` one by one; a tensor declared with a single pack, `A(a...)`,
//   may be read with any list of indices, right-aligned, missing dimensions and extents of 1 being
//   broadcast, as in NumPy.
// - Type variables: T, U, V are any type; F, G, H any float; I any integer; `<...>` declares others
//   or narrows these. `T(x)` and `float(x)` cast.
// - Numbers, sizes and indices are weak: they take the type of the other operand. Otherwise an int
//   and a float give float, the wider of two floats or ints wins, signed beats unsigned. float16
//   and bfloat16 are computed in float; a value is rounded where an output or temporary declares
//   the narrow type. Temporaries without a type are never half, and sums into half tensors run in
//   float.
// - A name of a dimension is its extent; `count(N...)` is the product of a pack's extents, X.d1 the
//   extent of an axis, `linear(i...)` the row-major number of a pack of indices. Attributes are
//   constants. `given(x)` tells whether the node has the input or attribute x. A condition known at
//   binding time selects its branch then; the other branch is not checked.
// - Constants: inf, nan, true, false, lowest(T), highest(T). Calls: the functions of ir/expr.def
//   and of tc/functions.c.
// - Ranges are inferred (tc/infer.h) from the accesses outside of ?: branches first, then from the
//   others. A range may begin at another value than 0; the tensor's origin is there then.
#ifndef KILN_TC_AST_H
#define KILN_TC_AST_H

#include "ir/prim.h"

// The source text, for messages.
typedef struct kiln_tc_source {
  kiln_ctx *cx;
  const char *file, *text;
  kiln_status status; // of messages about the text
  bool quiet;         // suppress messages
} kiln_tc_source;

enum {
  KILN_TC_MAX_WRONG = 20
}; // definitions of a file with a mistake, then the rest is not looked at

typedef enum kiln_tc_kind {
  KILN_TC_INT,
  KILN_TC_FLOAT,
  KILN_TC_STRING,
  KILN_TC_NAME,
  KILN_TC_PACK,   // name...
  KILN_TC_CALL,   // name(args): a tensor's element, a function or a cast
  KILN_TC_EXTENT, // name.d<i>
  KILN_TC_UNARY,  // args[0]; op NEG or NOT
  KILN_TC_BINARY, // args[0], args[1]; op
  KILN_TC_TERNARY // args[0] ? args[1] : args[2]
} kiln_tc_kind;

typedef struct kiln_tc_expr kiln_tc_expr;
struct kiln_tc_expr {
  kiln_tc_kind kind;
  const char *at;   // in the text
  kiln_symbol name; // NAME, PACK, CALL, EXTENT; STRING's text
  int64_t i;        // INT, EXTENT
  double f;         // FLOAT
  kiln_expr_kind op;
  int height; // height of the subtree; bounded by the parser
  int n_args;
  kiln_tc_expr **args;
};

typedef struct kiln_tc_type {
  bool given;      // false: inferred
  kiln_symbol var; // a type variable, or 0
  kiln_dtype dtype;
} kiln_tc_type;

typedef enum kiln_tc_class {
  KILN_TC_ANY,
  KILN_TC_FLOATS,
  KILN_TC_INTS, // signed or unsigned
  KILN_TC_SIGNED,
  KILN_TC_UNSIGNED,
  KILN_TC_NUMBERS, // any type except bool
  KILN_TC_BOOLS,
  KILN_TC_HALVES
} kiln_tc_class;

typedef struct kiln_tc_typevar {
  kiln_symbol name;
  kiln_tc_class class_;
} kiln_tc_typevar;

// A dimension of a declaration, or an index of a left side.
typedef struct kiln_tc_dim {
  const char *at;
  kiln_symbol name; // 0: a literal
  bool pack;
  int64_t value;
  kiln_tc_expr *e; // subscript of a left side if it is not a name; else NULL
} kiln_tc_dim;

typedef struct kiln_tc_param {
  const char *at;
  kiln_symbol name;
  kiln_tc_type type;
  int n_dims; // -1: not declared (outputs only)
  kiln_tc_dim *dims;
  kiln_tc_expr *otherwise; // default of an optional input, or NULL
  bool size, pack;         // |size|: an integer known when the definition is bound; |pack|: several
} kiln_tc_param;

typedef enum kiln_tc_clause_kind { KILN_TC_RANGE, KILN_TC_LET, KILN_TC_EXISTS } kiln_tc_clause_kind;

typedef struct kiln_tc_clause {
  kiln_tc_clause_kind kind;
  const char *at;
  kiln_symbol name;
  kiln_symbol like;      // RANGE of a pack: the pack of dimensions with as many axes; else 0
  kiln_tc_expr *lo, *hi; // RANGE [lo, hi), NULL: that of |like|; LET and EXISTS use lo
} kiln_tc_clause;

typedef struct kiln_tc_stmt {
  const char *at;
  kiln_symbol out; // 0: a require statement: rhs must hold, otherwise |message|
  int n_lhs;
  kiln_tc_dim *lhs;
  kiln_combiner combiner; // NONE for =
  bool fresh;             // with '!': starts from the identity
  kiln_tc_expr *rhs;
  int n_clauses;
  kiln_tc_clause *clauses;
  int n_more; // further results of A, B = f(X)
  kiln_tc_dim *more;
  kiln_symbol message;
} kiln_tc_stmt;

typedef struct kiln_tc_def {
  const char *at;
  kiln_symbol name;
  bool wrong; // invalid: only its name may be used
  int n_typevars, n_params, n_outs, n_stmts;
  kiln_tc_typevar *typevars;
  kiln_tc_param *params, *outs;
  kiln_tc_stmt *stmts;
} kiln_tc_def;

typedef struct kiln_tc_attr {
  const char *at;
  kiln_symbol name;
  kiln_attr_kind kind; // INT, FLOAT, STRING, or INTS: the axes of a pack
  bool has_default, at_end;
  int64_t i;
  double f;
  kiln_symbol s;
  kiln_symbol dim; // the dimension at this axis; 0: an ordinary attribute
  bool dim_is_pack;
  int n_ints;
  int64_t ints[KILN_MAX_RANK];
} kiln_tc_attr;

typedef struct kiln_tc_header {
  const char *at;
  kiln_symbol domain, name;
  int since, until; // until 0: no upper limit
  int n_attrs;
  kiln_tc_attr *attrs;
  kiln_symbol def; // 0: any definition of the file
} kiln_tc_header;

typedef struct kiln_tc_file {
  kiln_tc_source source;
  int n_headers, n_defs;
  kiln_tc_header *headers;
  kiln_tc_def *defs;
} kiln_tc_file;

// Looks up a scalar function by name and number of arguments: sets *out. False if there is none.
bool kiln_tc_function(const char *name, kiln_expr_kind *out, int *out_n_args);
// The dtype named |text| (float is f32); false if it is not a type.
bool kiln_tc_type_of(const char *text, kiln_dtype *out);

#endif
