// Products with weights of 2, 4 or 8 bits (weight-only quantization), blocks of which share a
// scale; they stay packed in a module. One row and few rows unpack them in the product's loop, many
// rows a block of columns at a time.
#ifndef KILN_FISSION_BITS_H
#define KILN_FISSION_BITS_H

#include "fission/terms.h"

// Numbers of |bits| bits, |per_byte| of them in a byte, the first in its low bits.
typedef struct kiln_bit_packing {
  int64_t bits, per_byte, block; // |block|: numbers that share a scale
} kiln_bit_packing;

// Number |part| of the byte or word |e|, in its type.
const kiln_expr *kiln_bits_number(kiln_ctx *cx, const kiln_bit_packing *p, const kiln_expr *e,
                                  const kiln_expr *part);
// Unpacks |extent| numbers along |axis| of |t|.
kiln_tensor *kiln_bits_unpack(kiln_lower *lw, const kiln_bit_packing *p, const kiln_tensor *t,
                              int axis, const kiln_expr *extent);

// Weights (N, K), each row in blocks; the last block is padded.
typedef struct kiln_bit_weights {
  kiln_bit_packing pack;
  int64_t n, k;
  kiln_tensor *codes;  // u8 (N, blocks, bytes)
  kiln_tensor *scales; // (N, blocks)
  kiln_tensor *zeros;  // (N, blocks), or packed along the blocks; NULL: 2^(bits - 1)
  bool packs_zeros;
  bool may_quantise; // the other operand, to 8 bits in blocks of the same sizes
} kiln_bit_weights;
// The product of |a| (.., K) and the weights: (.., N), in the accumulator type of |a|.
kiln_status kiln_bits_multiply(kiln_lower *lw, kiln_tensor *a, const kiln_bit_weights *w,
                               kiln_tensor **out);
// If |weights| (K, N) is dequantized from constants that fit in few bits, with scales for columns
// or for blocks along K: these constants, packed.
bool kiln_bits_find(kiln_lower *lw, const kiln_tensor *weights, kiln_bit_weights *out);

#endif
