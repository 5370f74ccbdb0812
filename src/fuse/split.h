// Splitting: a group that rules have made becomes several kernels where these are predicted to take
// less time together. Rules group what shares rows, whatever it costs; on GPUs a window may then
// run in a kernel whose threads are mapped for the sums of a normalization behind it.
//
// Parts may join other kernels only once it is known that the whole group joins none: a product
// takes in all of a softmax, say, where it would take in no part of it.
#ifndef KILN_FUSE_SPLIT_H
#define KILN_FUSE_SPLIT_H

#include "fuse/connect.h"

// Sets parts_ns of each group of rows that takes less when it is cut, at the tensors where that
// gains most, by prices of lowered loops.
//
// cost: two searches for a cut, of those that do not cost more by their traffic and launches alone
kiln_status kiln_groups_weigh_parts(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                    const kiln_tile_search_options *options, kiln_searches *known,
                                    kiln_groups *io);
// Replaces those of |io| by their parts that connecting has left as they were, in |fused|.
//
// gives: *out_any, whether any was
kiln_status kiln_groups_split(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                              const kiln_tile_search_options *options, kiln_searches *known,
                              const kiln_fused_groups *fused, kiln_groups *io, bool *out_any);

#endif
