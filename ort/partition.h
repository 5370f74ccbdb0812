// SPDX-License-Identifier: Apache-2.0
// Cuts a graph into the largest convex parts of nodes that are not refused.
//
// The level of a node is the number of refused nodes that alternate with taken ones on the worst
// path to it. Nodes of one level are convex: a path that leaves them to a refused node comes back
// at a higher level. A part is what is connected within a level.
//
//   a - R - b - c      a: level 0, the refused R: 1, b and c: 1, d: 0, e: 1
//    \         /       parts {a, d} and {b, c, e}
//     d ----- e        (e reads c)
#ifndef KILN_ORT_PARTITION_H
#define KILN_ORT_PARTITION_H

#include "source.h"

// Sets level and region of the nodes.
// gives: *out_parts, [*out_n], by their first nodes
ort_status *ep_partition(ep_graph *g, ep_arena *arena, int *out_n, ep_part **out_parts);

#endif
