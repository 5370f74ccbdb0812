// The cost of a kernel within a program.
#ifndef KILN_PRICE_PRICE_H
#define KILN_PRICE_PRICE_H

#include "tile/graph.h"

// The launch, plus the longest of the compute time and the levels' transfer times, plus a share of
// the other terms, as overlap is imperfect. Infinite if unknown.
double kiln_tile_price_of(const kiln_tile_cost *c);

#endif
