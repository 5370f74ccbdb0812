// Packed constants that the programs of one module share (dynamic/buckets.c).
//
// A constant operand of a product is packed in panels of some vectors, or transformed for
// Winograd's algorithm and then packed. The layouts that other programs already have are a set of
// bits: a schedule that reads one of them takes no memory, and one that wants another layout must
// be faster by enough to be worth its bytes; more so with Winograd's, which take up to four times
// those of the constant.
#ifndef KILN_TILE_PANELS_H
#define KILN_TILE_PANELS_H

#include <stdbool.h>
#include <stdint.h>

static const double KILN_NEW_PANELS = 0.05, KILN_NEW_TRANSFORMS = 0.15;
// The share of the time to load panels into the L2 that a core's prefetcher does not hide.
static const double KILN_MISS_SHARE = 0.25;

// The bit of panels of |vectors| vectors; 0: it has none. |outputs|: the tile of Winograd's
// algorithm (2, 4) that transforms weights, 0: untransformed.
uint32_t kiln_panels_bit(int outputs, int64_t vectors);
// The bits of untransformed panels.
uint32_t kiln_panels_plain(uint32_t panels);
// Whether |panels| is not empty, but has no panels of |vectors| vectors.
bool kiln_panels_lack(uint32_t panels, int64_t vectors);

#endif
