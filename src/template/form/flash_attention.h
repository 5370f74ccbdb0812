// Flash attention on tensor cores: the canonical form of its program.
//
// Two contractions and the softmax between them (attention.h), with the map that finishes them,
// become
//     A(.., m, k) = ..   B(.., n, k) = ..   V(.., n, v) = ..
//     X(.., m, n) +=! A(.., m, k)*B(.., n, k)        Z(.., m, n) = f(X, ..)
//     M(.., m, q) max=! Z(.., m, n)                  S(.., m, q) +=! w(M(.., m, q))
//     T(.., m, v) +=! w(M(.., m, v % 8 / 2))*V(.., n, v)
//     y(.., m, v) = g(T * (1 / S(.., m, v % 8 / 2)), ..)
// where w(u) is 2^(Z(.., m, n) - u), rounded to the type of V, and Z is scores times log2(e). Each
// of the four lanes that hold a row of the sums (layout.h) has a copy q of its maximum and sum,
// so that none has to ask another for them. Rows, keys and depth are padded with zeros, scores with
// -inf. Roundings to halves before the weights are dropped.
//
// Where blocks of few rows would leave multiprocessors idle, keys are split (flash decoding): all
// of that has one more batch dim, of ranges of keys, and in the place of y
//     P(.., s, m, v) = T * (1 / S)     L(.., s, m, q) = M + log2(S), -inf where M is
//     G(.., m) max=! L(.., s, m, 0)    D(.., m) +=! 2^(L - G)    N(.., m, v) +=! 2^(L - G)*P
//     y(.., m, v) = g(N / D, ..)
#ifndef KILN_TEMPLATE_FORM_FLASH_ATTENTION_H
#define KILN_TEMPLATE_FORM_FLASH_ATTENTION_H

#include "template/form/row_stmt.h"
#include "template/form/attention.h"

// A program in the form: its statements, and numbers that follow from them.
typedef struct kiln_flash_attention {
  const kiln_stmt *a, *b, *v, *x, *z, *top, *sum, *mix, *y; // y: of split keys P
  const kiln_stmt *mark;                                    // L; NULL: keys are not split
  int n_batch;                                              // dims in front of m
  int64_t rows, keys, depth, values,
      batch; // padded extents; |batch| is the product of the dims in front
} kiln_flash_attention;

// Whether |p| can be brought into the form, |f| being its attention and |finish| its last map:
// types and sizes suit tensor cores.
bool kiln_flash_attention_suits(kiln_ctx *cx, kiln_program *p, const kiln_attention_form *f,
                                const kiln_stmt *finish, const kiln_machine *m);
// Brings |p|, the program of such attention, into the form (kiln_match).
bool kiln_flash_attention_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);
bool kiln_flash_attention_is(const kiln_program *p, kiln_flash_attention *out);

#endif
