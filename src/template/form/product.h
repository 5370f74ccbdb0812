// GEMM and implicit GEMM: contractions as matrix products with an epilogue, the canonical form in
// which GPUs run them.
//
// A contraction with its finish becomes
//     A(.., m, k) = ..   B(.., k, n) = ..   T(.., m, n) +=! A(.., m, k)*B(.., k, n)
//     y(.., m, n) = f(T, ..)
// m numbers the dims that only the left operand has, n those of the right operand, k the
// reduction's. Dims that both have, or that cannot be numbered in the result's storage, stay in
// front as batch dims. Few columns are padded with zeros in B and T, whose n is then longer than
// y's; of halves, for which there are tensor cores, few rows are as well, in A and T, and y has a
// guard. A convolution is so an implicit GEMM: A holds its windows, and exists one tile at a time,
// in shared memory (Chetlur et al., cuDNN, 2014, section 3).
#ifndef KILN_TEMPLATE_FORM_PRODUCT_H
#define KILN_TEMPLATE_FORM_PRODUCT_H

#include "template/lower.h"

enum {
  KILN_PRODUCT_STEP = 16,      // k is padded with zeros to a multiple of it
  KILN_PRODUCT_CAPABILITY = 80 // of tensor cores that multiply few rows
};

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_product {
  const kiln_stmt *a, *b, *t, *y;
  int n_batch;            // dims before m and n
  int64_t m, n, k, batch; // extents; |batch| is the product of the batch dims
} kiln_product;

// The strides at which |operand|'s dims address the tensor that it loads, if it is one load that
// begins at the tensor's first element; false otherwise.
//
// gives: *out_tensor; out[n_space], in elements
bool kiln_product_reads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                        int *out_tensor, int64_t *out);

// The same for a load that begins at element |*out_first| of the tensor.
bool kiln_product_reads_from(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                             int *out_tensor, int64_t *out, int64_t *out_first);

// Whether |y| is a map that loads |t| once, at the element that it writes.
bool kiln_product_finishes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *t,
                           const kiln_stmt *y);

// |e| without roundings to halves between its loads and its result.
const kiln_expr *kiln_product_unrounded(kiln_ctx *cx, const kiln_expr *e);

// The dims of a contraction as the form numbers them, and the statements of its product.
typedef struct kiln_product_numbers {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_stmt *old; // the contraction that is rewritten,
  const kiln_expr *left,
      *right;                    // and its factors: |right| depends on the result's contiguous dim
  kiln_stmt *a, *b, *t;          // the new statements; not in the program yet
  int n_batch;                   // dims before m and n,
  kiln_dim batch[KILN_MAX_RANK]; // which |old| has
  kiln_symbol m, n, k;
  int64_t m_extent, m_padded, n_extent, n_padded, k_extent, k_padded;
  int n_columns;                              // dims of |old| that n numbers
  int64_t strides[KILN_MAX_RANK];             // of the result, by new axis
  int n_vars;                                 // |old|'s dims,
  kiln_symbol vars[2 * KILN_MAX_RANK];        // their names,
  const kiln_expr *values[2 * KILN_MAX_RANK]; // and their values in terms of the new dims
} kiln_product_numbers;

// Numbers the dims of |t|, whose result has the strides |strides|; false if it is no product. Of
// |t| itself only reduction dims over several axes of an operand are changed: split.
bool kiln_product_number(kiln_ctx *cx, kiln_program *p, kiln_stmt *t, const int64_t *strides,
                         kiln_product_numbers *out);
// Makes A, B and T; the contraction's tensor gets T's axes.
void kiln_product_factors(kiln_product_numbers *io);
// A statement without a body that writes |out| over the batch dims and |n_more| others, the last
// |n_reduce| of which it reduces; |out| gets these axes.
kiln_stmt *kiln_product_over(const kiln_product_numbers *f, int n_more, const kiln_symbol *names,
                             const int64_t *extents, int n_reduce, kiln_tensor *out);
// A statement over (.., m, n) that writes |y| with the result's strides.
kiln_stmt *kiln_product_store(const kiln_product_numbers *f, kiln_tensor *y);
// The load of |s|'s result at the batch dims and |more|.
const kiln_expr *kiln_product_read(const kiln_product_numbers *f, const kiln_stmt *s, int n_more,
                                   const kiln_expr *const *more);
const kiln_expr *kiln_product_renumber(const kiln_product_numbers *f, const kiln_expr *e);
// The map |y|, the epilogue of |f|'s contraction, over the new dims.
kiln_stmt *kiln_product_finish(kiln_product_numbers *f, const kiln_stmt *y);
// Sets the program's statements to front[0..n_front), the product's and behind[0..n_behind). A
// tensor that only an operand loads becomes a view with the operand's axes.
void kiln_product_list(const kiln_product_numbers *f, int n_front, kiln_stmt *const *front,
                       int n_behind, kiln_stmt *const *behind);

// Makes the tensor that operand |s| loads a view with the operand's axes, if nothing else reads it.
void kiln_product_view(kiln_ctx *cx, kiln_program *p, kiln_stmt *s);

// Brings |p|, one contraction and its finish, into the form if it has dims for m and n
// (kiln_match).
bool kiln_product_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_product_is(const kiln_program *p, kiln_product *out);
// Reads the form back from the statements A, B, T in |abt|; |y| stores the product's results.
bool kiln_product_is_of(kiln_stmt *const *abt, const kiln_stmt *y, kiln_product *out);

// The time that a multiprocessor takes for loads of |elems| results of the epilogue |y|, beyond the
// sums |t|, one residual operand, and operands that rows or columns share: the costs of templates
// were fitted with one residual operand. Loads are of 16-byte words, or of the pairs that lanes of
// a fragment hold.
//
// units: nanoseconds
double kiln_product_more_loads_ns(const kiln_lowering *w, const kiln_stmt *y, const kiln_stmt *t,
                                  double elems, bool by_words);

#endif
