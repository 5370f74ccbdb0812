// The prim level: a program of statements, each a tensor expression over an iteration domain.
//
// A statement computes, with o ranging over the elements of its output tensor and d over its
// iteration domain:
//     for all o:           T(o) = init(o)     (init NULL: the combiner's identity)
//     for all d in order,
//       if guard(d):       T(index(d)) = combine(T(index(d)), body(d))
// Space dims come first, then the reduction dims. Usually index is the identity on the space dims
// (kiln_stmt_is_plain), init is NULL, and combiner NONE means that each element is written once. A
// scatter has loads in its index and an init. init is an expression over the variables
// o0..o{rank-1}; body, guard and index are over the statement's dim names. Those of a scatter may
// read T itself (kiln_stmt_reads_itself), as written by earlier iterations.
//
// Every tensor is written by at most one statement; statements are in topological order. Names of
// tensors are unique in a program, names of dims in a statement. All of it lives in the context's
// perm arena.
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
  const void *data;            // CONST: row-major elements, unaligned; else NULL
  size_t bytes;                // CONST: size of |data|
  int def;                     // the statement that writes it; -1 for INPUT and CONST
  int8_t order[KILN_MAX_RANK]; // storage: order[0] is the outermost stored axis, order[rank-1] the
                               // contiguous one
  const int64_t *strides; // [rank] in elements, if different from those of |order|; NULL otherwise
  // A view of another tensor's storage, |offset| elements after its beginning, with |strides|;
  // NULL: storage of its own.
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

// A data-dependent index that a run must find in range; otherwise the run fails.
typedef struct kiln_index_check {
  kiln_symbol place; // the node, for messages
  kiln_symbol index; // the index tensor's name in the model
  int axis;
  int64_t least, end; // least <= index < end; both 0 if the extent is data-dependent
} kiln_index_check;
#define KILN_IN_RANGE INT64_MIN // result of a check that holds

typedef struct kiln_program {
  kiln_symbol name;
  KILN_VEC(kiln_tensor *) tensors; // by id
  KILN_VEC(kiln_stmt *) stmts;     // by id, topological
  KILN_VEC(int) inputs;            // tensor ids, in the interface's order
  KILN_VEC(int)
  outputs; // tensor ids, in the interface's order; an output may be an INPUT or CONST tensor
  KILN_VEC(kiln_symbol) output_names; // the model's names; the list may be shorter
  // After the interface's outputs follow shape_of.n shape outputs: each is an i64 tensor with the
  // run-time shape of output shape_of[i], whose static shape is an upper bound.
  KILN_VEC(int) shape_of;
  // If there are checks, one more output follows: an i64 for each check, KILN_IN_RANGE or an index
  // that is out of range.
  KILN_VEC(kiln_index_check) checks;
  kiln_map names; // private to prim.c: name -> next suffix to try; created on first use
} kiln_program;

kiln_program *kiln_program_make(kiln_ctx *cx, const char *name);
// A copy that may be modified: statements and tensors are new, expressions and data are shared.
kiln_program *kiln_program_copy(kiln_ctx *cx, const kiln_program *p);
// Adds a tensor; if |name| is taken, it gets a suffix. |shape| is copied; order is the identity.
kiln_tensor *kiln_tensor_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                              kiln_role role, int rank, const kiln_expr *const *shape);
kiln_tensor *kiln_tensor_make_const(kiln_ctx *cx, kiln_program *p, const char *name,
                                    const kiln_const *c); // data borrowed
// Adds a statement that writes a new TEMP tensor of shape extents[0..n_space), with dims named i0..
// and r0.., plain index, combiner NONE and no body; the caller sets body and combiner.
kiln_stmt *kiln_stmt_make(kiln_ctx *cx, kiln_program *p, const char *name, kiln_dtype t,
                          int n_space, int n_reduce, const kiln_expr *const *extents);
void kiln_stmt_append(kiln_ctx *cx, kiln_program *p, kiln_stmt *s); // appends |s|
// Assigns ids by position in the list; updates |def| of tensors.
void kiln_stmts_renumber(kiln_program *p);
// The same after statements were removed (set to NULL): they are dropped from the list.
void kiln_stmts_compact(kiln_program *p);
// Removes TEMPs that no statement writes or reads; the others get ids by position.
void kiln_program_drop_unwritten(kiln_ctx *cx, kiln_program *p);
// Outputs of the interface, which are the first ones.
int kiln_program_n_results(const kiln_program *p);
bool kiln_tensor_is_output(const kiln_program *p, int tensor);
// Whether the tensor's memory is an argument of a kernel that computes |p|.
bool kiln_tensor_is_param(const kiln_program *p, int tensor);
void kiln_outputs_mark(kiln_program *p); // outputs that are TEMP become OUTPUT
// The index of the dim of that name, among all or among space dims; of the dim whose variable is
// |e|. -1: none.
int kiln_stmt_dim(const kiln_stmt *s, kiln_symbol name);
int kiln_stmt_space_dim(const kiln_stmt *s, kiln_symbol name);
int kiln_stmt_dim_of(const kiln_stmt *s, const kiln_expr *e);
// Whether |e| uses a reduction dim.
bool kiln_stmt_reduces_along(const kiln_stmt *s, const kiln_expr *e);
int64_t kiln_dim_extent(const kiln_dim *d); // 1 if it is symbolic
const kiln_expr *kiln_stmt_var(kiln_ctx *cx, const kiln_stmt *s,
                               int dim); // the variable of dims[dim]
const kiln_expr *kiln_tensor_load(kiln_ctx *cx, const kiln_tensor *t,
                                  const kiln_expr *const *index); // [rank]

bool kiln_stmt_is_plain(const kiln_ctx *cx,
                        // Index is the identity on the space dims, init is NULL.
                        const kiln_stmt *s);
// Whether its index is data-dependent.
bool kiln_stmt_is_scatter(const kiln_program *p, const kiln_stmt *s);
// Calls |visit| for every distinct load of the statement's body, guard, init and index.
void kiln_stmt_visit_loads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                           void (*visit)(const kiln_expr *load, void *argument), void *argument);
// Whether |s| reads the tensor that it writes.
bool kiln_stmt_reads_itself(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);
// Whether |s| converts integers' bits to floats, as when packed weights are decoded: its operands
// are far smaller than its result.
bool kiln_stmt_decodes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s);
bool kiln_expr_decodes(kiln_ctx *cx, const kiln_expr *e); // whether a float is made so
const kiln_expr *kiln_combiner_identity(kiln_ctx *cx, kiln_combiner c,
                                        kiln_dtype t); // max of floats: -inf; of ints: the lowest
// The operator that combines two values of |t|; KILN_N_EXPRS for NONE.
kiln_expr_kind kiln_combiner_kind(kiln_combiner c, kiln_dtype t);
const kiln_expr *kiln_combine(kiln_ctx *cx, kiln_combiner c, const kiln_expr *a,
                              const kiln_expr *b);
const char *
kiln_combiner_text(kiln_combiner c); // "=", "+=!", "*=!", "max=!", "min=!", "and=!", "or=!"
bool kiln_tensor_static_shape(const kiln_tensor *t,
                              int64_t *out_shape); // false if an extent is not constant
// The strides in elements: |strides| if set, else dense in |order|. The shape must be static.
void kiln_tensor_strides(const kiln_tensor *t, int64_t *out_strides);
int64_t kiln_tensor_elems(const kiln_tensor *t); // of a static shape, saturating; -1 otherwise

// Text: `name { in f32 X(4, n)  const f32 W(3) = 0x...  temp f32 Y(4, n)  out ...  Y(i0:4, i1:n) =
// body  M(i0:4 | r0:n) max=! X(i0, r0) }` Constant data of at most 64 bytes prints in hexadecimal;
// longer data prints as `...` and such a program parses back with zeros there: print is for people,
// parse is for tests.
void kiln_program_print(kiln_ctx *cx, const kiln_program *p, kiln_text *out);
void kiln_stmt_print(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                     kiln_text *out); // one line
kiln_status kiln_program_parse(kiln_ctx *cx, const char *text, kiln_program **out);
// Checks every invariant above, dtypes of expressions, ranks of loads, and that names are bound.
// KILN_INTERNAL on a violation.
kiln_status kiln_program_verify(kiln_ctx *cx, const kiln_program *p);
// The same, except that CONSTs in |late|, a bit set of tensors, may have no data yet.
kiln_status kiln_program_verify_without(kiln_ctx *cx, const kiln_program *p, const kiln_bits *late);

#endif
