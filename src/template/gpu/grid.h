// What the templates for GPUs share: work as a grid of blocks and their threads.
//
// windows   windows.c: convolutions channel by channel and poolings, some neighbours a thread
// runs      runs.c: long windows along one dim, through shared memory
// narrow    narrow.c: contractions with 1 to 4 columns, all of some neighbours a thread
// turns     turns.c: maps that read along another dim than they write, through shared memory
// threads   threads.c: an element of the result, or some, a thread; what it takes is computed
// by the thread wgmma     wgmma.c: matrix products on tensor cores, by instructions of warp
// groups mma       mma.c: matrix products on tensor cores
// stream    stream.c: attention on tensor cores
// parts     parts.c: the same, the sums of several groups of warps or blocks combined
// patches   patches.c: convolutions of few channels on tensor cores, from a patch of the input
// strips    strips.c: products and what is done with whole rows of them, in registers
// norms     norms.c: products of rows that are normalized on the way
// mlps      mlps.c: two products, the second of what a map makes of the first's results
// short     short.c: many tiles of products along a short reduction, of which what they read
// and store takes longest fma       fma.c: matrix products of floats without tensor cores,
// splits and groups of threads where there are few tiles tiles     tiles.c: matrix products and
// convolutions, through shared memory and registers moments   moments.c: few long sums and
// squares of neighbours side by side, many blocks each split     split.c: the fewest and
// longest sums, many blocks each sums      sums.c: few long sums, several threads each
// rows      rows.c: a row a block; sums across its threads
// nests     nests.c: every statement in nests of its own, for what has no better form
#ifndef KILN_TEMPLATE_GPU_GRID_H
#define KILN_TEMPLATE_GPU_GRID_H

#include "price/gpu_work.h"
#include "template/lower.h"

enum { KILN_GPU_THREADS = 256 }; // of a block, where nothing else is said

// Shares the iterations of the n >= 1 perfectly nested loops, the outermost first, among blocks of
// |threads|
// threads: they are fused, cut and bound.
//
// gives: *out_thread, the loop over the threads of a block
kiln_status kiln_gpu_spread(kiln_lowering *w, int n, const kiln_symbol *loops, int64_t threads,
                            kiln_symbol *out_thread);
// The same inside of a block: each of |threads| threads, |width| along x, takes every |threads|-th
// iteration.
kiln_status kiln_gpu_deal(kiln_lowering *w, int n, const kiln_symbol *loops, int64_t threads,
                          int64_t width);
// The n loops, perfectly nested, as one; n == 1: the loop itself.
kiln_status kiln_gpu_fuse(kiln_lowering *w, int n, const kiln_symbol *loops, kiln_symbol *out,
                          int64_t *out_extent);
// Cuts the reduction loop |loop| of the sums |of|, whose other loops are outer[0..n_outer), into
// parts for |n| threads, each added up in registers: NAME.sums beside NAME, which is |of|.|suffix|.
kiln_status kiln_gpu_factor(kiln_lowering *w, kiln_symbol loop, int64_t n, kiln_symbol of,
                            const char *suffix, int n_outer, const kiln_symbol *outer,
                            kiln_symbol *out);
// A reduction whose results are one a element of the kernel's result.
typedef struct kiln_gpu_sums {
  const kiln_stmt *s;
  bool
      along; // neighbouring threads take terms of a sum, which lie side by side; else neighbouring sums
  int64_t elems, terms;
} kiln_gpu_sums;
// Whether |s| computes an element for each element of |w|'s result, unconditionally.
bool kiln_gpu_is_by_element(const kiln_lowering *w, const kiln_stmt *s);
// Whether |s| is such a reduction; *out only then.
bool kiln_gpu_sums_of(const kiln_lowering *w, const kiln_stmt *s, kiln_gpu_sums *out);
// Whether template `sums` runs all of |w|, and gives each multiprocessor a block.
bool kiln_gpu_sums_fill(const kiln_lowering *w);
// Bytes of all that the kernel reads and stores, each once.
double kiln_gpu_param_bytes(const kiln_lowering *w);
// The extent of |loop|, which is there and constant.
int64_t kiln_gpu_extent(const kiln_lowering *w, kiln_symbol loop);

#endif
