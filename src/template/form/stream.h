// Flash attention: a contraction, an online softmax of its rows, and another contraction with
// that, all of which one kernel computes for a block of rows, a chunk of the softmax' dim at a
// time (DESIGN section 6, STREAM).
//
// The form, never a name, tells it, whatever of it is rounded to halves: X = sum of Q*K; Z a map of
// X (a scale, masks, biases), or X; M = max of Z; E = exp(Z - M); S = sum of E; P = E/S or E*(1/S);
// Y = sum of P*V.
#ifndef KILN_TEMPLATE_FORM_STREAM_H
#define KILN_TEMPLATE_FORM_STREAM_H

#include "tile/facts.h"
#include "tile/query.h"

enum { KILN_MAX_STREAM_COPIES = 1, KILN_MAX_STREAM_CHUNKS = 4 };

typedef struct kiln_stream_form {
  const kiln_stmt *scores; // X
  const kiln_stmt *mapped; // Z, where the weights read it; NULL: they read X
  const kiln_stmt *copies[KILN_MAX_STREAM_COPIES]; // maps of X or Z that only M reads
  int n_copies;
  const kiln_stmt *top, *weight, *sum, *ratio, *mix; // M, E, S, P, Y
  const kiln_expr *queries, *keys, *values;          // loads of Q, K, V; on GPUs what computes them
  const kiln_expr *weights, *sums;                   // loads of E and S by P
  // Their dims, as each statement names them: the rows, along which K does not move, and the keys,
  // over which S sums; and V's own, the values.
  kiln_symbol row, key;                                 // of E
  kiln_symbol score_row, score_key, tile_row, tile_key; // of X; of Z, or of X where there is none
  kiln_symbol top_row, sum_row;
  kiln_symbol mix_row, mix_key, mix_value;
  int64_t n_rows, n_keys, n_values, depth; // extents; depth of the products Q*K
  int64_t n_batch;                         // how often all of that
} kiln_stream_form;

const kiln_expr *kiln_stream_bare(const kiln_expr *e); // what is rounded and widened
// Whether |mix| is the last statement of such a form in |p|; |p| may hold NULLs.
bool kiln_stream_find(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *mix,
                      kiln_stream_form *out);
// The same for any statement of a kernel's program: whether that is attention of f32 by loads
// alone.
bool kiln_stream_is(kiln_ctx *cx, const kiln_program *p, kiln_stream_form *out);
// The lengths of chunks in which the keys may be taken: they divide their number where one near the
// wanted ones does, else the last chunk is ragged.
//
// gives: how many, at least 1; out[KILN_MAX_STREAM_CHUNKS]
int kiln_stream_chunks(int64_t n_keys, int64_t *out);
// Whether a GPU has a template for the form, finished by the map |finish|.
typedef bool kiln_stream_suits(kiln_ctx *cx, kiln_program *p, const kiln_stream_form *f,
                               const kiln_stmt *finish, const kiln_machine *m);
// Puts the statements of every such form whose temporaries nobody else reads into one kernel
// (kiln_fact's |kernel|), where kiln_template_stream or, on GPUs, kiln_template_gpu_flash_attention
// can run it well: |suits| says of the latter whether it can.
//
// needs: kiln_tile_layout has run, on GPUs kiln_tile_fold_views, too
kiln_status kiln_tile_stream(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                             const kiln_machine *m, kiln_stream_suits *suits);

#endif
