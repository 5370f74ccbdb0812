// Scaled dot-product attention, softmax(map(Q K^T)) V, for the operators that are variants of it.
// It becomes the same statements as MatMul, Softmax and MatMul, so the scheduler sees one form
// (docs/design/attention.md). Also its surroundings: heads, caches of keys and values, rotary
// positions.
#ifndef KILN_FISSION_ATTENTION_H
#define KILN_FISSION_ATTENTION_H

#include "fission/terms.h"

enum { KILN_ATTENTION_BIASES = 2 };

// The scores that an operator can output: the products, capped, with biases and masks, or softmax's
// weights.
typedef enum kiln_attention_stage {
  KILN_ATTENTION_SCALED,
  KILN_ATTENTION_CAPPED,
  KILN_ATTENTION_MASKED,
  KILN_ATTENTION_WEIGHTS
} kiln_attention_stage;

// Query i is at position p = past + i; it attends to key j if p - left <= j <= p + right, j <
// lengths, and no mask is false.
typedef struct kiln_attention_call {
  kiln_tensor *q, *k, *v; // (B, H, S, D), (B, G, T, D), (B, G, T, E); G divides H
  double scale;           // 0: 1 / sqrt(D)
  double softcap;         // softcap * tanh(score / softcap); 0: none
  // Added to the scores, or, if bool, keys to attend to; broadcast to (B, H, S, T). The last axis
  // may be shorter than T: the other keys are masked. NULL: none.
  kiln_tensor *biases[KILN_ATTENTION_BIASES];
  const kiln_tensor *lengths; // (B), number of valid keys, integers; NULL: all are valid
  const kiln_expr *past;      // may use named dimensions; NULL: lengths - S
  int64_t left, right;        // -1: no bound; causal is right = 0
  bool zero_rows;             // a row that attends to no key is 0 instead of NaN
  bool has_sink; // softmax's denominator has one more term, exp(sink) of |sink| (H), or exp(0) if
                 // it is NULL
  const kiln_tensor *sink;
  kiln_dtype softmax; // computes the weights: f32 or f64
  // Callback that modifies scores (at KILN_ATTENTION_MASKED) and weights, in their dtype; NULL:
  // none.
  kiln_status (*modify)(void *modifier, kiln_attention_stage stage, kiln_tensor **x);
  void *modifier;
} kiln_attention_call;

// Also checks shapes. *out is (B, H, S, E) in the dtype of q.
//
// gives: *out_stage, the scores at |stage|, unless |out_stage| is NULL
kiln_status kiln_lower_attention(kiln_lower *lw, const kiln_attention_call *a, kiln_tensor **out,
                                 kiln_attention_stage stage, kiln_tensor **out_stage);
// The attribute softmax_precision as f32 or f64; if it is absent, f64 only for a |q| of f64.
kiln_status kiln_lower_softmax_precision(kiln_lower *lw, const kiln_tensor *q, kiln_dtype *out);
// (B, S, H * D) as (B, H, S, D), and back.
kiln_status kiln_lower_split_heads(kiln_lower *lw, kiln_tensor *x, int64_t heads,
                                   kiln_tensor **out);
kiln_tensor *kiln_lower_merge_heads(kiln_lower *lw, kiln_tensor *x);
// Concatenates both along |axis|; |x| if |past| is NULL.
kiln_status kiln_lower_append(kiln_lower *lw, kiln_tensor *past, kiln_tensor *x, int axis,
                              kiln_tensor **out);

typedef struct kiln_rotary {
  const kiln_tensor *cosines, *sines; // (P, R / 2) if there are positions, else (B, S, R / 2)
  const kiln_tensor *positions;       // (B or 1, S), integers, clamped to [0, P); NULL: none
  int64_t dims;                       // R, the leading dims that are rotated; 0: all of D
  bool interleaved;                   // pairs are neighbours instead of R / 2 apart
} kiln_rotary;

// Applies rotary embedding to x (B, H, S, D).
kiln_status kiln_lower_rotary(kiln_lower *lw, kiln_tensor *x, const kiln_rotary *r,
                              kiln_tensor **out);

#endif
