// Products with weights of 2, 4 or 8 bits, in blocks that share a scale, which a module holds
// packed: one row and few rows decode them where the product reads them, many rows a block of
//         columns at a time.
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
// What |t| packs along |axis|, |extent| numbers, not packed.
kiln_tensor *kiln_bits_unpack(kiln_lower *lw, const kiln_bit_packing *p, const kiln_tensor *t,
                              int axis, const kiln_expr *extent);

// Weights (N, K), each row of them in blocks, the last one filled up.
typedef struct kiln_bit_weights {
  kiln_bit_packing pack;
  int64_t n, k;
  kiln_tensor *codes;  // u8 (N, blocks, bytes)
  kiln_tensor *scales; // (N, blocks)
  kiln_tensor *zeros;  // the same, or packed along the blocks; NULL: the middle of the numbers
  bool packs_zeros;
} kiln_bit_weights;
// |a| (.., K) times the weights: (.., N), in the type that sums of |a|'s have.
kiln_status kiln_bits_multiply(kiln_lower *lw, kiln_tensor *a, const kiln_bit_weights *w,
                               kiln_tensor **out);
// The constants of few bits that |weights| (K, N) were dequantised from, packed, if their scales
// lie along N, or in blocks along K.
bool kiln_bits_find(kiln_lower *lw, const kiln_tensor *weights, kiln_bit_weights *out);

#endif
