// Split-K: products whose sums are added up in parts: a loop of the reduction gives each of its
// iterations sums of its own, and what follows adds these up. Splits are blocks' parts, which meet
// in memory; a second nest adds them up and finishes.
#ifndef KILN_TEMPLATE_GPU_SPLIT_K_H
#define KILN_TEMPLATE_GPU_SPLIT_K_H

#include "template/gpu/blocks.h"

// Puts |loop| around the nest of the sums, whose loops are |outer| (0: none), those over the sums
// and |inner|, and gives each of its iterations a part of the sums: the buffer |name|, parts along
// its last axis.
kiln_status kiln_split_k_factor(kiln_lowering *w, const kiln_product *p, kiln_symbol loop,
                                kiln_symbol outer, kiln_symbol inner, kiln_symbol name);
// Adds up the parts of |sum| along the last axis of the buffer |from| in registers of the thread
// that runs |at|.
// |clear_column| and |unit| are loops of the nest that clears |sum|: over columns, and over the
// splits, of which a block has one (0: |sum| has no such axis).
kiln_status kiln_split_k_combine(kiln_lowering *w, const kiln_product *p, kiln_symbol sum,
                                 kiln_symbol clear_column, kiln_symbol unit, const char *from,
                                 kiln_symbol at);

// Whether the sums of splits can be of whole tiles of m x n, and their finish of whole words.
bool kiln_split_k_fits(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// Rounds the sums' rows and columns up to whole tiles: what is stored in parts cannot be stored
// twice, as a result can where tiles overlap.
kiln_status kiln_split_k_pad(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// The sums |all| of splits, each split's together; and the result from them, some neighbours a
// thread: the second nest.
kiln_status kiln_split_k_finish(kiln_lowering *w, const kiln_product *p, kiln_symbol all);
// The second nest alone, of parts that are combined by a nest over all.0, .., the last over parts.
kiln_status kiln_parallel_k_add(kiln_lowering *w, const kiln_product *p, kiln_symbol all);
// What the second nest takes, in ns, of so many parts of each element.
double kiln_split_k_finish_ns(const kiln_lowering *w, const kiln_product *p, double parts);

// A product in splits, in whose blocks groups of threads take a share of each step along k, and
// meet in shared memory. What follows reads the sums there, whole words a thread.
typedef struct kiln_parallel_k {
  kiln_lowering *w;
  kiln_product p;
  int64_t m, n, k, slice_k,
      split_k;     // a block's tile and step; there may be one group and one split
  int64_t threads; // of a block
  int64_t word;    // elements of what follows that a thread computes at once
  // Found:
  kiln_product_loops l;
  kiln_symbol group,
      kept;          // the loop over groups, around l.m, 0: there is one; what a group adds up
  int n_more;        // axes of |kept| behind (.., m, n); the last is that of the groups
  const char *whole, // names of buffers: what the tiles' nest writes where it is no result,
      *sums;         // and that in which the groups' sums meet
  kiln_symbol block; // what a split's block adds up; 0: there is one split
} kiln_parallel_k;
// The loops of a nest over the elements of a block's tile; |group| 0: there is one group.
typedef struct kiln_parallel_k_nest {
  kiln_symbol group, rows, columns;
} kiln_parallel_k_nest;
// Everything but the products.
kiln_status kiln_parallel_k_begin(kiln_parallel_k *x);
// The same for several splits of one group each, whose threads store what they hold.
kiln_status kiln_parallel_k_begin_in_registers(kiln_parallel_k *x);
kiln_parallel_k_nest
kiln_parallel_k_clears(const kiln_parallel_k *x); // what clears the groups' sums,
kiln_parallel_k_nest
kiln_parallel_k_copies(const kiln_parallel_k *x);       // and what brings them to where they meet
kiln_status kiln_parallel_k_finish(kiln_parallel_k *x); // binds the blocks; splits' second nest

#endif
