// Flash attention on tensor cores: the canonical form of its program.
//
// Two contractions and the softmax between them (stream.h), with the map that finishes them, become
//     A(.., m, k) = ..  B(.., n, k) = ..  V(.., n, v) = ..
//     X(.., m, n) +=! A(.., m, k)*B(.., n, k)        Z(.., m, n) = f(X, ..)
//     M(.., m, q) max=! Z(.., m, n)                  S(.., m, q) +=! w(M(.., m, q))
//     T(.., m, v) +=! w(M(.., m, v % 8 / 2))*V(.., n, v)   y(.., m, v) = g(T * (1 / S(.., m, v % 8
//     / 2)), ..)
// where w(u) is 2^(Z(.., m, n) - u), rounded to the type of V, Z being scores times log2(e). Maxima
// and sums are there for each of the four lanes that hold a row of sums (fragment.h), which so
// need not ask each other for them. Rows, keys and depth are padded: with zeros, and scores of
// -inf. What was rounded on the way to the weights is not.
#ifndef KILN_TEMPLATE_FORM_ATTENTION_H
#define KILN_TEMPLATE_FORM_ATTENTION_H

#include "template/form/row_stmt.h"
#include "template/form/stream.h"

// A program that was brought into the form, as its statements say themselves.
typedef struct kiln_attention {
  const kiln_stmt *a, *b, *v, *x, *z, *top, *sum, *mix, *y;
  int n_batch; // dims in front of m
  int64_t rows, keys, depth, values,
      batch; // extents, padded; |batch| the product of those in front
} kiln_attention;

// Whether the form's program can be made of |f| in |p|, finished by the map |finish|: its types and
// sizes are those of tensor cores.
bool kiln_attention_suits(kiln_ctx *cx, kiln_program *p, const kiln_stream_form *f,
                          const kiln_stmt *finish, const kiln_machine *m);
// Brings |p|, the program of such a stream, into the form (kiln_match).
bool kiln_attention_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_attention_is(const kiln_program *p, kiln_attention *out);

#endif
