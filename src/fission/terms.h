// Building blocks of the operator files that are written in C: index terms, scalar operands,
// data-dependent indices and the statements that several operators share.
#ifndef KILN_FISSION_TERMS_H
#define KILN_FISSION_TERMS_H

#include "rewrite/checks.h"
#include "fission/lower.h"

// --- terms ---

static inline const kiln_expr *kiln_least(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_MIN, a, b);
}
static inline const kiln_expr *kiln_most(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_binary(cx, KILN_EXPR_MAX, a, b);
}
static inline const kiln_expr *kiln_compare(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                                            const kiln_expr *b) {
  return kiln_binary(cx, k, a, b);
}
bool kiln_expr_is(const kiln_expr *e, int64_t value); // whether it is the constant |value|
const kiln_expr *kiln_ceil_div(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b);
const kiln_expr *kiln_multiply_all(kiln_ctx *cx, int n, const kiln_expr *const *factors);
// Simplifies |e|, an expression of named dimensions, which are nonnegative.
const kiln_expr *kiln_lower_tidy(kiln_ctx *cx, const kiln_expr *e);
// Simplifies the body of |s| with the extents of its dims.
void kiln_stmt_tidy(kiln_ctx *cx, kiln_stmt *s);
// The variables of dims [first, first + n) of |s|.
void kiln_stmt_vars(kiln_ctx *cx, const kiln_stmt *s, int first, int n, const kiln_expr **out);

// --- dtypes ---

kiln_dtype kiln_accumulator(kiln_dtype t); // f32 for the half types, else |t|
bool kiln_dtype_is_index(kiln_dtype t);    // i32 or i64
bool kiln_dtype_is_number(kiln_dtype t);   // any except bool
bool kiln_dtype_has_order(kiln_dtype t);   // any except bool and encodings
// An integer with the order of number |x|: -0 equals 0, and all NaNs are equal and greater than
// infinity.
kiln_dtype kiln_order_key_type(kiln_dtype t); // i32, or i64 if |t| needs it
const kiln_expr *kiln_order_key(kiln_ctx *cx, const kiln_expr *x);

// --- operands ---

// A tensor of one element (any rank) as a scalar of dtype |t|: a number if it is constant, else a
// load. BAD_INPUT if it has more elements.
kiln_status kiln_lower_scalar(kiln_lower *lw, const kiln_tensor *x, kiln_dtype t, const char *what,
                              const kiln_expr **out);
// The element of the integer tensor |x| at |at| as an i64 index into axis |axis| of |data|:
// negative values count from the end. An index known only at run time is clamped, so that no read
// is out of range, and checked; a constant out of range is BAD_INPUT.
kiln_status kiln_lower_index(kiln_lower *lw, const kiln_tensor *x, const kiln_expr *const *at,
                             const kiln_tensor *data, int axis, const kiln_expr **out);
// The same for coordinate |k| of index tuples along the last axis of |x|: only elements with last
// index |k| are checked.
kiln_status kiln_lower_coordinate(kiln_lower *lw, const kiln_tensor *x, const kiln_expr *const *at,
                                  int k, const kiln_tensor *data, int axis, const kiln_expr **out);
// The element of |x| as i64, over dims e0, e1, ... of its shape.
const kiln_expr *kiln_lower_element(kiln_lower *lw, const kiln_tensor *x);
// Adds a run-time check that |index| (NULL: the element of |x|) lies in [least, end) wherever
// |when| (NULL: everywhere) holds: the run otherwise fails with the node, |x|, the axis and the
// index.
kiln_status kiln_lower_want_index(kiln_lower *lw, const kiln_tensor *x, int axis,
                                  const kiln_expr *index, const kiln_expr *when,
                                  const kiln_expr *least, const kiln_expr *end);
// The axes of attribute |attr| or of input |input| (-1: no input), each in [0, rank) and distinct;
// *out_n = -1 if absent.
kiln_status kiln_lower_axes(kiln_lower *lw, const char *attr, int input, int rank, int *out_n,
                            int out_axes[KILN_MAX_RANK]);
// BAD_INPUT if |extent| is known to be 0 and |indices| has elements.
kiln_status kiln_lower_want_choice(kiln_lower *lw, const kiln_tensor *indices,
                                   const kiln_expr *extent);
// BAD_INPUT if axis |axis| of |t| and |want| are known to differ; NULL tensors pass.
kiln_status kiln_lower_want_extent(kiln_lower *lw, const kiln_tensor *t, int axis,
                                   const kiln_expr *want);
kiln_status kiln_lower_want_rank(kiln_lower *lw, const kiln_tensor *t, int min, int max);

// --- statements ---

// Y = load of |t| at |index| over the dims of |s|, as output |output| of the node.
void kiln_lower_move(kiln_lower *lw, kiln_stmt *s, const kiln_tensor *t,
                     const kiln_expr *const *index, int output);
// A statement with the shape of |t| and dtype |dtype|; the caller sets its body, with |index| the
// variables of its dims.
kiln_stmt *kiln_lower_like(kiln_lower *lw, const char *name, const kiln_tensor *t, kiln_dtype dtype,
                           const kiln_expr **index);
// Batched matrix product Y(b..., m, n | k) of A and B with NumPy's matmul semantics, accumulated in
// |accumulator|. BAD_INPUT if the shapes do not fit.
kiln_status kiln_lower_matmul(kiln_lower *lw, kiln_tensor *a, kiln_tensor *b,
                              kiln_dtype accumulator, kiln_tensor **out);
// A scatter: T(o) = init, then T(index(d)) = combine(T(index(d)), body(d)) over the |n_dims| dims
// of |extents|. The caller sets index (rank entries over the dims), body, guard and combiner; init
// is the element of |data|.
kiln_stmt *kiln_lower_scatter(kiln_lower *lw, const char *name, const kiln_tensor *data, int n_dims,
                              const kiln_expr *const *extents);
// The same into a tensor of |rank| axes of |shape|; the caller also sets init, over |out_axes|. The
// first |n_space| dims may run in parallel, the other |n_reduce| run in order.
kiln_stmt *kiln_lower_scatter_new(kiln_lower *lw, const char *name, kiln_dtype t, int rank,
                                  const kiln_expr *const *shape, int n_space, int n_reduce,
                                  const kiln_expr *const *extents, const kiln_expr **out_axes);

#endif
