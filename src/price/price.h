// What a kernel costs beside others.
#ifndef KILN_PRICE_PRICE_H
#define KILN_PRICE_PRICE_H

#include "tile/graph.h"

// What goes on at once does so at the cost of a share of each. Infinite where nobody knows.
double kiln_tile_price_of(const kiln_tile_cost *c);

#endif
