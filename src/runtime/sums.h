// Checksums of a module's weights: a table with a row for each piece that was written, sorted, as
// in the file.
#ifndef KILN_RUNTIME_SUMS_H
#define KILN_RUNTIME_SUMS_H

#include "kiln/status.h"

#include <stdbool.h>

enum { KILN_SUM_BYTES = 24 }; // of a row in the file

typedef struct kiln_piece_sum {
  uint64_t offset, bytes; // in the weights
  uint64_t sum;           // kiln_checksum
} kiln_piece_sum;

void kiln_sum_write(const kiln_piece_sum *s, unsigned char out[KILN_SUM_BYTES]);
kiln_piece_sum kiln_sum_read(const unsigned char from[KILN_SUM_BYTES]);
// Compares |n| rows of |table| with |weights|, on several threads if these are large.
//
// gives: false: a row is out of range, or a checksum differs; |*out_offset| is the first of these
bool kiln_sums_match(const unsigned char *table, uint64_t n, const char *weights, uint64_t bytes,
                     uint64_t *out_offset);

#endif
