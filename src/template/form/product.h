// GEMM and implicit GEMM: contractions as matrix products with an epilogue, the canonical form in
// which GPUs run them, whatever they are called.
//
// A contraction with its finish becomes
//     A(.., m, k) = ..   B(.., k, n) = ..   T(.., m, n) +=! A(.., m, k)*B(.., k, n)   y(.., m, n) =
//     f(T, ..)
// by numbering the dims that only one operand has, and the reduction's, as one each; dims that both
// have, or that cannot be numbered in the result's storage, stay in front. Few columns are padded
// with zeros in B and T, whose n is then longer than y's. A convolution is so an implicit product:
// A holds its windows, and exists a tile at a time, in shared memory. (Chetlur et al., cuDNN, 2014,
// section 3.)
#ifndef KILN_TEMPLATE_FORM_PRODUCT_H
#define KILN_TEMPLATE_FORM_PRODUCT_H

#include "template/lower.h"

enum { KILN_PRODUCT_STEP = 16 }; // k is padded to a multiple with zeros

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_product {
  const kiln_stmt *a, *b, *t, *y;
  int n_batch;            // dims in front of m and n
  int64_t m, n, k, batch; // extents; |batch| their product
} kiln_product;

// How a step of an operand's dims moves what it reads, where that is one element of a tensor each,
// from its first on;
// false: it is something else.
//
// gives: *out_tensor; out[n_space], in elements
bool kiln_product_reads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                        int *out_tensor, int64_t *out);

// The same where that is one element behind the first |*out_first| of the tensor.
bool kiln_product_reads_from(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                             int *out_tensor, int64_t *out, int64_t *out_first);

// Whether |y| is a map that reads |t| once, at the element that it writes.
bool kiln_product_finishes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *t,
                           const kiln_stmt *y);

// |e| without the roundings to halves on the way to what it is.
const kiln_expr *kiln_product_unrounded(kiln_ctx *cx, const kiln_expr *e);

// How the dims of a contraction are numbered in the form, and the statements of its products.
typedef struct kiln_product_numbers {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_stmt *old; // the contraction as it is,
  const kiln_expr *left,
      *right;           // and its factors, of which |right| has the result's contiguous dim
  kiln_stmt *a, *b, *t; // what they become; not in the program yet
  int n_batch;          // dims in front of m and n,
  kiln_dim batch[KILN_MAX_RANK]; // those of |old|
  kiln_symbol m, n, k;
  int64_t m_extent, n_extent, n_padded, k_extent, k_padded;
  int n_columns;                              // dims of |old| that are numbered by n
  int64_t strides[KILN_MAX_RANK];             // of the result, by new axis
  int n_vars;                                 // dims of |old|,
  kiln_symbol vars[2 * KILN_MAX_RANK];        // by name,
  const kiln_expr *values[2 * KILN_MAX_RANK]; // and what they are in terms of the new ones
} kiln_product_numbers;

// Numbers the dims of |t|, which has those of the result, whose strides are |strides|; false: it is
// no such product. Only reductions over several axes of what is read are changed in |t|: taken
// apart.
bool kiln_product_number(kiln_ctx *cx, kiln_program *p, kiln_stmt *t, const int64_t *strides,
                         kiln_product_numbers *out);
// Makes A, B and T; the contraction's tensor gets T's axes.
void kiln_product_factors(kiln_product_numbers *io);
// A statement over the batch's dims and |n_more| others, the last |n_reduce| of them reduced, that
// writes |out| element by element, which gets these axes; without a body.
kiln_stmt *kiln_product_over(const kiln_product_numbers *f, int n_more, const kiln_symbol *names,
                             const int64_t *extents, int n_reduce, kiln_tensor *out);
// The same over (.., m, n), for a result that is stored as the strides say.
kiln_stmt *kiln_product_store(const kiln_product_numbers *f, kiln_tensor *y);
// The element of what |s| computes at the batch's dims and |more|.
const kiln_expr *kiln_product_read(const kiln_product_numbers *f, const kiln_stmt *s, int n_more,
                                   const kiln_expr *const *more);
const kiln_expr *kiln_product_renumber(const kiln_product_numbers *f, const kiln_expr *e);
// The map |y|, which finishes |f|'s contraction, over the new dims.
kiln_stmt *kiln_product_finish(kiln_product_numbers *f, const kiln_stmt *y);
// Makes the program of front[0..n_front), the products and behind[0..n_behind); what only an
// operand reads becomes a view with its axes.
void kiln_product_list(const kiln_product_numbers *f, int n_front, kiln_stmt *const *front,
                       int n_behind, kiln_stmt *const *behind);

// Brings |p|, one contraction and its finish, into the form if it has dims for m and n
// (kiln_match).
bool kiln_product_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_product_is(const kiln_program *p, kiln_product *out);
// The same of the statements A, B, T in |abt|, whose sums |y| stores in the end.
bool kiln_product_is_of(kiln_stmt *const *abt, const kiln_stmt *y, kiln_product *out);

// What a multiprocessor takes to load for |elems| results of the map |y| of the sums |t|, beyond
// the sums, one element each, and what a row or a column shares: templates' times are fitted to
// sums that a residual is added to. By words of 16 bytes, or as pairs that a fragment's lanes hold.
//
// units: nanoseconds
double kiln_product_more_loads_ns(const kiln_lowering *w, const kiln_stmt *y, const kiln_stmt *t,
                                  double elems, bool by_words);

#endif
