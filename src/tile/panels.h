// How the programs of one module share the constants that they pack (dynamic/buckets.c).
//
// A constant that is multiplied is packed in panels of some vectors, or transformed for Winograd's
// algorithm and packed so. The layouts in which other programs have it already are a set of bits: a
// schedule that reads one of them takes no memory, and one that wants another must be that much
// cheaper. Winograd's must save more, as they take up to four times their constant.
#ifndef KILN_TILE_PANELS_H
#define KILN_TILE_PANELS_H

#include <stdbool.h>
#include <stdint.h>

static const double KILN_NEW_PANELS = 0.05, KILN_NEW_TRANSFORMS = 0.15;
// Of the time in which panels come into the L2, what a core's own prefetcher does not hide.
static const double KILN_MISS_SHARE = 0.25;

// The bit of panels of so many vectors; 0: it has none. |outputs|: of the form by which weights are
// transformed (2, 4); 0: of others.
uint32_t kiln_panels_bit(int outputs, int64_t vectors);
// Those that are not transformed.
uint32_t kiln_panels_plain(uint32_t panels);
// Whether others have a constant in |panels|, and none of so many vectors.
bool kiln_panels_lack(uint32_t panels, int64_t vectors);

#endif
