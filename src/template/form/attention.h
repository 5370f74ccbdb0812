// Flash attention with online softmax: a contraction, a softmax of its rows and a second
// contraction, all in one kernel, which processes a block of rows a chunk of keys at a time (DESIGN
// section 6).
//
// It is recognised by its algebra, with any roundings to halves between: X = sum of Q*K; Z is X, or
// a map of it (a scale, masks, biases); M = max of Z; E = exp(Z - M); S = sum of E; P = E/S or
// E*(1/S); Y = sum of P*V.
// source: Dao et al., "FlashAttention", NeurIPS 2022; Milakov and Gimelshein, 2018
#ifndef KILN_TEMPLATE_FORM_ATTENTION_H
#define KILN_TEMPLATE_FORM_ATTENTION_H

#include "tile/facts.h"
#include "tile/query.h"

enum { KILN_MAX_ATTENTION_COPIES = 1, KILN_MAX_ATTENTION_CHUNKS = 4 };

typedef struct kiln_attention_form {
  const kiln_stmt *scores; // X
  const kiln_stmt *mapped; // Z, as the weights read it; NULL: they read X
  const kiln_stmt *copies[KILN_MAX_ATTENTION_COPIES]; // maps of X or Z that only M reads
  int n_copies;
  const kiln_stmt *top, *weight, *sum, *ratio, *mix; // M, E, S, P, Y
  const kiln_expr *queries, *keys, *values;          // loads of Q, K, V; on GPUs any expressions
  const kiln_expr *weights, *sums;                   // loads of E and S by P
  // Their dims, as each statement names them: rows, which K does not depend on; keys, over which S
  // sums; and values, which only V has.
  kiln_symbol row, key;                                 // of E; no row (0): one query a head
  kiln_symbol score_row, score_key, tile_row, tile_key; // of X; of Z, or of X if there is no Z
  kiln_symbol top_row, sum_row;
  kiln_symbol mix_row, mix_key, mix_value;
  int64_t n_rows, n_keys, n_values, depth; // extents; |depth| is that of the products Q*K
  int64_t n_batch;                         // product of the batch dims
} kiln_attention_form;

const kiln_expr *kiln_attention_bare(const kiln_expr *e); // |e| without conversions between types
// Whether |mix| is the last statement of the form in |p|; |p| may hold NULLs.
bool kiln_attention_find(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *mix,
                         kiln_attention_form *out);
// Whether a kernel's program |p| is the form in f32, with plain loads of queries, keys and values.
bool kiln_attention_is(kiln_ctx *cx, const kiln_program *p, kiln_attention_form *out);
// The chunk lengths that a kernel may take keys in: divisors of |n_keys| near the wanted lengths,
// or else lengths whose last chunk is shorter.
//
// gives: how many, at least 1; out[KILN_MAX_ATTENTION_CHUNKS]
int kiln_attention_chunks(int64_t n_keys, int64_t *out);
// Whether a GPU template supports the form |f| with the final map |finish|.
typedef bool kiln_attention_suits(kiln_ctx *cx, kiln_program *p, const kiln_attention_form *f,
                                  const kiln_stmt *finish, const kiln_machine *m);
// Assigns the statements of each such form to one kernel (kiln_fact's |kernel|) if only they read
// its temporaries and a template runs it well: the CPU's, or the GPU's, which |suits| decides.
//
// needs: kiln_tile_layout has run, on GPUs kiln_tile_fold_views, too
kiln_status kiln_tile_attention(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                                const kiln_machine *m, kiln_attention_suits *suits);

#endif
