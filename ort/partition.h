// SPDX-License-Identifier: Apache-2.0
// Cuts a graph into maximal convex parts of nodes that are not refused.
//
// The level of a node is the greatest number of changes between taken and refused nodes on a path
// to it. The nodes of one level are convex: a path from them through a refused node returns at a
// higher level. A part is a connected component of the taken nodes of a level.
//
//   a - R - b - c      a: level 0, the refused R: 1, b and c: 1, d: 0, e: 1
//    \         /       parts {a, d} and {b, c, e}
//     d ----- e        (e reads c)
#ifndef KILN_ORT_PARTITION_H
#define KILN_ORT_PARTITION_H

#include "source.h"

// Sets level and region of the nodes.
// gives: *out_parts, [*out_n], ordered by their first nodes
ort_status *ep_partition(ep_graph *g, ep_arena *arena, int *out_n, ep_part **out_parts);

#endif
