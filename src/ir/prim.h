// The prim level: a program of statements, each one tensor expression over an iteration domain
// (DESIGN section 3).
//
// A statement computes, with o ranging over the elements of its output tensor and d over its dims:
//     for all o:                       T(o) = init(o)                     (init NULL: the
//     combiner's identity) for all d in order, if guard(d): T(index(d)) = combine(T(index(d)),
//     body(d))
// Space dims come first, then the reduction dims. Ordinarily index is the identity on the space
// dims (kiln_stmt_is_plain), init is NULL, and combiner NONE means each element is written once. A
// scatter has loads in its index and an init. init is an expression over the variables
// o0..o{rank-1}; body, guard and index are over the statement's dim names. Those of a scatter may
// read T itself (kiln_stmt_reads_itself): what the instances before have left there.
//
// Every tensor has at most one statement that writes it; statements are in topological order.
// Tensors of a program have unique names; so have the dims of one statement. All of it lives in the
// context's perm arena.
#ifndef KILN_IR_PRIM_H
#define KILN_IR_PRIM_H

#include "ir/graph.h"
#include "support/bits.h"

typedef enum kiln_role { KILN_INPUT, KILN_CONST, KILN_TEMP, KILN_OUTPUT } kiln_role;

typedef struct kiln_tensor {
  int id;
  kiln_symbol name;
  kiln_dtype dtype;
  kiln_role role;
  int rank;
  const kiln_expr **shape;     // [rank]
  const void *data;            // CONST: row-major elements at any alignment; else NULL
  size_t bytes;                // CONST: of |data|
  int def;                     // the statement that writes it; -1 for INPUT and CONST
  int8_t order[KILN_MAX_RANK]; // storage: order[0] is the axis stored outermost, order[rank-1] the
                               // contiguous one
  const int64_t *strides; // [rank] in elements, where they are not those of |order|; NULL otherwise
  // Storage inside another tensor's, |offset| elements behind its begin, with |strides|; NULL: its
  // own.
  const struct kiln_tensor *inside;
  int64_t offset;
} kiln_tensor;

typedef enum kiln_combiner {
  KILN_COMBINE_NONE,
  KILN_COMBINE_SUM,
  KILN_COMBINE_PROD,
  KILN_COMBINE_MAX,
  KILN_COMBINE_MIN,
  KILN_COMBINE_AND,
  KILN_COMBINE_OR
} kiln_combiner;

typedef struct kiln_dim {
  kiln_symbol name;
  const kiln_expr *extent;
} kiln_dim;

typedef struct kiln_stmt {
  int id;
  int out; // tensor id
  int n_space, n_reduce;
  kiln_dim *dims;          // [n_space + n_reduce]
  const kiln_expr **index; // [rank of out]
  kiln_combiner combiner;
  const kiln_expr *body;  // dtype of out
  const kiln_expr *guard; // bool or NULL
  const kiln_expr *init;  // dtype of out, or NULL
  kiln_symbol origin;     // the graph node it came from, for messages and reports
} kiln_stmt;

// An index, made of data, that a run must find in range: what it computes from others is wrong.
typedef struct kiln_index_check {
  kiln_symbol place; // of the node, as messages have it
  kiln_symbol index; // what it is called there
  int axis;
  int64_t least, end; // least <= index < end; both 0 where only the run knows the extent
} kiln_index_check;
#define KILN_IN_RANGE INT64_MIN // the result of a check that holds

typedef struct kiln_program {
  kiln_symbol name;
  KILN_VEC(kiln_tensor *) tensors; // by id
  KILN_VEC(kiln_stmt *) stmts;     // by id, topological
  KILN_VEC(int) inputs;            // tensor ids, in the interface's order
  KILN_VEC(int)
  outputs; // tensor ids, in the interface's order; an output may be an INPUT or CONST tensor
  KILN_VEC(kiln_symbol) output_names; // as the model's user knows them; may be fewer
  // The next shape_of.n outputs are no part of the interface: each is an i64 tensor with the shape
  // that the run finds for an output before them, the one of this number, whose own shape is the
  // most that it can be.
  KILN_VEC(int) shape_of;
  // Where there are any, one more output stands behind these, no part of the interface either: an
  // i64 for each check, KILN_IN_RANGE or an index that the run found out of range.
  KILN_VEC(kiln_index_check) checks;
  kiln_map names; // private to prim.c: name to the next suffix to try; made on first use
} kiln_program;

kiln_program *kiln_program_make(kiln_ctx *cx, const char *name);
// A copy that may be changed: statements and tensors are new, expressions and data are shared.
kiln_program *kiln_program_copy(kiln_ctx *cx, const kiln_program *p);
// Adds a tensor; |name| is made unique by a suffix when taken. |shape| is copied; order starts as
// the identity.
kiln_tensor *kiln_tensor_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                              kiln_role role, int rank, const kiln_expr *const *shape);
kiln_tensor *kiln_tensor_make_const(kiln_ctx *cx, kiln_program *p, const char *name,
                                    const kiln_const *c); // data borrowed
// Adds a statement that writes a new TEMP tensor of shape extents[0..n_space), with dims named i0..
// and r0.., plain index, combiner NONE and no body; the caller sets body and combiner.
kiln_stmt *kiln_stmt_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                          int n_space, int n_reduce, const kiln_expr *const *extents);
void kiln_stmt_append(kiln_ctx *cx, kiln_program *p, kiln_stmt *s); // behind the others
// Statements get the numbers of their places, and their tensors these.
void kiln_stmts_renumber(kiln_program *p);
// The same where statements were removed, which are NULL: they leave the list.
void kiln_stmts_compact(kiln_program *p);
// Takes the TEMPs out that no statement writes, nor reads; the others get the numbers of their
// places.
void kiln_program_drop_unwritten(kiln_ctx *cx, kiln_program *p);
int kiln_program_n_results(const kiln_program *p); // outputs of the interface, which come first
bool kiln_tensor_is_output(const kiln_program *p, int tensor);
// Whether the memory that holds it is an argument of a kernel that computes |p|.
bool kiln_tensor_is_param(const kiln_program *p, int tensor);
void kiln_outputs_mark(kiln_program *p); // those that are TEMP become OUTPUT
// The number of the dim of that name, of all or of the space dims; of the dim that |e| is the
// variable of. -1: none.
int kiln_stmt_dim(const kiln_stmt *s, kiln_symbol name);
int kiln_stmt_space_dim(const kiln_stmt *s, kiln_symbol name);
int kiln_stmt_dim_of(const kiln_stmt *s, const kiln_expr *e);
bool kiln_stmt_reduces_along(const kiln_stmt *s, const kiln_expr *e); // |e| uses a reduction dim
int64_t kiln_dim_extent(const kiln_dim *d);                           // 1 where it is not known
const kiln_expr *kiln_stmt_var(kiln_ctx *cx, const kiln_stmt *s,
                               int dim); // the variable of dims[dim]
const kiln_expr *kiln_tensor_load(kiln_ctx *cx, const kiln_tensor *t,
                                  const kiln_expr *const *index); // [rank]

bool kiln_stmt_is_plain(const kiln_ctx *cx,
                        const kiln_stmt *s); // index is the identity on the space dims, no init
bool kiln_stmt_is_scatter(const kiln_program *p, const kiln_stmt *s); // data say where it writes
// Calls |visit| for every load of the statement, of its body, guard, init and index: once for each
// that is distinct there.
void kiln_stmt_visit_loads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                           void (*visit)(const kiln_expr *load, void *argument), void *argument);
// Whether |s| reads the tensor that it writes.
bool kiln_stmt_reads_itself(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);
// Whether |s| makes floats of bits of integers that it loads, as weights of few bits are decoded:
// what it reads is far smaller than what it writes.
bool kiln_stmt_decodes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);
const kiln_expr *kiln_combiner_identity(kiln_ctx *cx, kiln_combiner c,
                                        kiln_dtype t); // max of floats: -inf; of ints: the lowest
// The operator that combines two values of |t|; KILN_N_EXPRS for NONE.
kiln_expr_kind kiln_combiner_kind(kiln_combiner c, kiln_dtype t);
const kiln_expr *kiln_combine(kiln_ctx *cx, kiln_combiner c, const kiln_expr *a,
                              const kiln_expr *b);
const char *
kiln_combiner_text(kiln_combiner c); // "=", "+=!", "*=!", "max=!", "min=!", "and=!", "or=!"
bool kiln_tensor_static_shape(const kiln_tensor *t,
                              int64_t *out_shape); // false when an extent is not a constant
// The strides in elements: |strides| if set, else dense in |order|. The shape must be static.
void kiln_tensor_strides(const kiln_tensor *t, int64_t *out_strides);
int64_t kiln_tensor_elems(const kiln_tensor *t); // of a static shape, saturating; -1 otherwise

// Text: `name { in f32 X(4, n)  const f32 W(3) = 0x...  temp f32 Y(4, n)  out ...  Y(i0:4, i1:n) =
// body  M(i0:4 | r0:n) max=! X(i0, r0) }` Constant data of at most 64 bytes prints in hexadecimal;
// longer data prints as `...` and such a program parses back with zeros there: print is for people,
// parse is for tests.
void kiln_program_print(kiln_ctx *cx, const kiln_program *p, kiln_text *out);
void kiln_stmt_print(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                     kiln_text *out); // its line
kiln_status kiln_program_parse(kiln_ctx *cx, const char *text, kiln_program **out);
// Checks every invariant above, dtypes of expressions, ranks of loads, and that names are bound.
// KILN_INTERNAL on a breach.
kiln_status kiln_program_verify(kiln_ctx *cx, const kiln_program *p);
// The same without the data of constants |late|, a bit a tensor, whose elements are made later.
kiln_status kiln_program_verify_without(kiln_ctx *cx, const kiln_program *p, const kiln_bits *late);

#endif
