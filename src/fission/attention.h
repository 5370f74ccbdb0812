// Scaled dot-product attention, which several operators are: softmax(map(Q K^T)) V, in the
// statements that MatMul, Softmax and MatMul have, so that the scheduler sees one form
// (docs/design/attention.md); and what stands around it: heads, caches of keys and values, rotary
// positions.
#ifndef KILN_FISSION_ATTENTION_H
#define KILN_FISSION_ATTENTION_H

#include "fission/terms.h"

enum { KILN_ATTENTION_BIASES = 2 };

// What an operator can want to see of the scores: the products, capped, with biases and masks,
// weights.
typedef enum kiln_attention_stage {
  KILN_ATTENTION_SCALED,
  KILN_ATTENTION_CAPPED,
  KILN_ATTENTION_MASKED,
  KILN_ATTENTION_WEIGHTS
} kiln_attention_stage;

// Row i of the queries stands at position p = past + i; key j is seen where p - left <= j <= p +
// right, j < lengths, and no mask forbids it.
typedef struct kiln_attention_call {
  kiln_tensor *q, *k, *v; // (B, H, S, D), (B, G, T, D), (B, G, T, E); G divides H
  double scale, softcap;  // softcap * tanh(score / softcap); 0: none
  // Added to the scores, or bool: false masks; broadcast to (B, H, S, T), the last axis may end
  // before T, which masks the rest; NULL: none.
  kiln_tensor *biases[KILN_ATTENTION_BIASES];
  const kiln_tensor *lengths; // (B), integers; NULL: all keys are there
  const kiln_expr *past;      // of named dimensions; NULL: lengths - S
  int64_t left, right;        // -1: no bound; causal is right = 0
  bool zero_rows;             // a row that sees no key is 0, not NaN
  bool has_sink; // the weights' sum has exp(sink) more, of |sink| (H), or exp(0) where it is NULL
  const kiln_tensor *sink;
  kiln_dtype softmax; // computes the weights: f32 or f64
  // What changes the scores (KILN_ATTENTION_MASKED) and the weights, of that dtype; NULL: nothing.
  kiln_status (*modify)(void *modifier, kiln_attention_stage stage, kiln_tensor **x);
  void *modifier;
} kiln_attention_call;

// Checks shapes, too. *out is (B, H, S, E), of the dtype of q.
//
// gives: *out_stage, what there is at |stage|, unless |out_stage| is NULL
kiln_status kiln_lower_attention(kiln_lower *lw, const kiln_attention_call *a, kiln_tensor **out,
                                 kiln_attention_stage stage, kiln_tensor **out_stage);
// 1 / sqrt(D) of q (.., D), unless the attribute scale says otherwise, as 0 does not.
kiln_status kiln_lower_attention_scale(kiln_lower *lw, const kiln_tensor *q, double *out);
// f64 where the attribute softmax_precision says so, or there is none and |q| is; else f32.
kiln_status kiln_lower_softmax_precision(kiln_lower *lw, const kiln_tensor *q, kiln_dtype *out);
// (B, S, H * D) as (B, H, S, D), and back.
kiln_status kiln_lower_split_heads(kiln_lower *lw, kiln_tensor *x, int64_t heads,
                                   kiln_tensor **out);
kiln_tensor *kiln_lower_merge_heads(kiln_lower *lw, kiln_tensor *x);
// Both behind each other along |axis|; |x| where |past| is NULL.
kiln_status kiln_lower_append(kiln_lower *lw, kiln_tensor *past, kiln_tensor *x, int axis,
                              kiln_tensor **out);

typedef struct kiln_rotary {
  const kiln_tensor *cosines, *sines; // (P, R / 2) where there are positions, else (B, S, R / 2)
  const kiln_tensor *positions;       // (B or 1, S), integers, held in [0, P); NULL: none
  int64_t dims;                       // R, of which there are rotated; 0: all of D
  bool interleaved;                   // pairs are neighbours, not R / 2 apart
} kiln_rotary;

// Rotates x (B, H, S, D).
kiln_status kiln_lower_rotary(kiln_lower *lw, kiln_tensor *x, const kiln_rotary *r,
                              kiln_tensor **out);

#endif
