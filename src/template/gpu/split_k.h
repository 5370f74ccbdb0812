// Split-K and slice-K: the iterations of a loop of the reduction get partial sums of their own
// (rfactor), which are added up afterwards. Splits are blocks, whose sums meet in memory; a second
// nest adds them up and runs the epilogue. Slices are warps of a block, whose sums meet in shared
// memory.
#ifndef KILN_TEMPLATE_GPU_SPLIT_K_H
#define KILN_TEMPLATE_GPU_SPLIT_K_H

#include "template/gpu/blocks.h"

// Puts |loop| around the nest of the sums, whose loops are |outer| (0: none), those over the sums
// and |inner|, and gives each of its iterations a part of the sums: the buffer |name|, parts along
// its last axis.
kiln_status kiln_split_k_factor(kiln_lowering *w, const kiln_product *p, kiln_symbol loop,
                                kiln_symbol outer, kiln_symbol inner, kiln_symbol name);
// Adds up the parts of |sum| along the last axis of the buffer |from| in registers of the thread
// that runs |at|. |clear_column| and |unit| are loops of the nest that clears |sum|: over columns,
// and over splits, of which a block has one (0: |sum| has no split axis).
kiln_status kiln_split_k_combine(kiln_lowering *w, const kiln_product *p, kiln_symbol sum,
                                 kiln_symbol clear_column, kiln_symbol unit, const char *from,
                                 kiln_symbol at);

// Whether the splits have whole tiles of m x n sums, and the second nest whole words.
bool kiln_split_k_fits(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// Rounds the sums' rows and columns up to whole tiles: partial sums must not be stored twice, as a
// result can be where tiles overlap.
kiln_status kiln_split_k_pad(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// Stores the splits' partial sums to |all|, each split's contiguous, and adds the second nest,
// which computes the result from them, some neighbours a thread.
kiln_status kiln_split_k_finish(kiln_lowering *w, const kiln_product *p, kiln_symbol all);
// The second nest alone, of parts that are combined by a nest over all.0, .., the last over parts.
kiln_status kiln_parallel_k_add(kiln_lowering *w, const kiln_product *p, kiln_symbol all);
// The time of the second nest, in ns, for so many partial sums of each element.
double kiln_split_k_finish_ns(const kiln_lowering *w, const kiln_product *p, double parts);

// A product with split-K between blocks and slice-K within them, where groups of threads take a
// share of each step along k. The epilogue reads the sums in shared memory, whole words a thread.
typedef struct kiln_parallel_k {
  kiln_lowering *w;
  kiln_product p;
  int64_t m, n, k, slice_k,
      split_k;     // a block's tile and step; there may be one group and one split
  int64_t threads; // of a block
  int64_t word;    // elements of the epilogue that a thread computes at once
  // Found:
  kiln_product_loops l;
  kiln_symbol group,
      kept;          // the loop over groups, around l.m, 0: one group; the buffer of a group's sums
  int n_more;        // axes of |kept| behind (.., m, n); the last is that of the groups
  const char *whole, // names of buffers: the output of the tiles' nest where it is not the result,
      *sums;         // and that in which the groups' sums meet
  kiln_symbol block; // the buffer of a split's sums in its block; 0: there is one split
} kiln_parallel_k;
// The loops of a nest over the elements of a block's tile; |group| 0: there is one group.
typedef struct kiln_parallel_k_nest {
  kiln_symbol group, rows, columns;
} kiln_parallel_k_nest;
// Everything but the products.
kiln_status kiln_parallel_k_begin(kiln_parallel_k *x);
// The same for split-K alone, whose threads store their partial sums from registers.
kiln_status kiln_parallel_k_begin_in_registers(kiln_parallel_k *x);
// The nest that clears the groups' sums, and the one that copies them where they meet.
kiln_parallel_k_nest kiln_parallel_k_clears(const kiln_parallel_k *x);
kiln_parallel_k_nest kiln_parallel_k_copies(const kiln_parallel_k *x);
// Binds the blocks, and adds the second nest of split-K.
kiln_status kiln_parallel_k_finish(kiln_parallel_k *x);

#endif
