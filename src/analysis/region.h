// Regions of memory that regular accesses touch: runs of bytes at regular distances, their lines
// and where these lie in the sets of a cache. The private half of analysis/reuse.h.
#ifndef KILN_ANALYSIS_REGION_H
#define KILN_ANALYSIS_REGION_H

#include <stdbool.h>
#include <stdint.h>

// Every |step| bytes, |n| times; counts are averages, not whole where they differ from place to
// place.
typedef struct kiln_stride {
  int64_t step;
  double n;
} kiln_stride;

enum { KILN_MAX_STRIDES = 20 };
typedef struct kiln_region {
  int64_t offset;  // of the first byte
  uint64_t places; // where in a line, in 64ths of it, the region may be moved to; bit 0: it stays
  double run;      // bytes that are touched at each place, gaps smaller than a line included
  int n;
  kiln_stride at[KILN_MAX_STRIDES]; // the places, ascending steps
} kiln_region;

// A run of |bytes| at |offset|.
kiln_region kiln_region_at(int64_t offset, int64_t bytes);
// Repeats |r| every |step| bytes, of either sign, |n| times.
void kiln_region_repeat(kiln_region *r, int64_t step, double n);
// Lets |r| lie any of |n| multiples of |step| further, by what stands still outside.
void kiln_region_move(kiln_region *r, int64_t step, double n, int64_t line_bytes);
// Joins the strides of |r| that lie closer than |line_bytes|, or on each other.
void kiln_region_settle(kiln_region *r, int64_t line_bytes);
// Lines of a settled region, on average over where it may lie.
double kiln_region_lines(const kiln_region *r, int64_t line_bytes);
// Grows |a| to the smallest region that holds both; false, and |a| unchanged, where that has more
// lines than the two have apart.
bool kiln_region_unite(kiln_region *a, const kiln_region *b, int64_t line_bytes);
// Adds to each[n_sets] the lines of |r| in each set.
void kiln_region_spread(const kiln_region *r, int64_t line_bytes, int64_t n_sets, double *each);
// Joins strides of whole numbers, as of an index: those that continue each other become one.
int kiln_strides_join(int n, kiln_stride *s);

#endif
