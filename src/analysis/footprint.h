// Footprints of regular accesses: runs of bytes at regular distances, the cache lines that they
// span, and the cache sets of these lines. The private half of analysis/reuse.h.
//
//     ####........####........####        |run| = 4, at one stride: step 12, n 3
#ifndef KILN_ANALYSIS_FOOTPRINT_H
#define KILN_ANALYSIS_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

// A repetition every |step| bytes, |n| times. |n| may be fractional: it is an average.
typedef struct kiln_stride {
  int64_t step;
  double n;
} kiln_stride;

enum { KILN_MAX_STRIDES = 20 };
typedef struct kiln_footprint {
  int64_t offset;  // of the first byte
  uint64_t places; // possible starts in a cache line, in 64ths of it; bit 0: at |offset|
  double run;      // bytes of each run; gaps below a line's size are filled
  int n;
  kiln_stride at[KILN_MAX_STRIDES]; // by ascending step
} kiln_footprint;

// A run of |bytes| at |offset|.
kiln_footprint kiln_footprint_at(int64_t offset, int64_t bytes);
// Repeats |r| every |step| bytes, of either sign, |n| times.
void kiln_footprint_repeat(kiln_footprint *r, int64_t step, double n);
// |r| may start at |n| multiples of |step|, as the loops outside move it.
void kiln_footprint_move(kiln_footprint *r, int64_t step, double n, int64_t line_bytes);
// Normal form: merges strides of |r| whose runs overlap or are closer than |line_bytes|.
void kiln_footprint_normalize(kiln_footprint *r, int64_t line_bytes);
// Cache lines of a footprint in normal form, averaged over its possible starts.
double kiln_footprint_lines(const kiln_footprint *r, int64_t line_bytes);
// Makes |a| the smallest footprint that contains both; false, and |a| unchanged, if it would have
// more lines than both together.
bool kiln_footprint_unite(kiln_footprint *a, const kiln_footprint *b, int64_t line_bytes);
// Adds to each[n_sets] the lines of |r| in each set.
void kiln_footprint_count_sets(const kiln_footprint *r, int64_t line_bytes, int64_t n_sets,
                               double *each);
// Merges strides of an index that continue each other: 8 times step 1 and 4 times step 8 are 32
// times step 1.
int kiln_strides_merge(int n, kiln_stride *s);

#endif
