#include "price/price.h"

#include <math.h>

// The share of the shorter of two concurrent terms that is not hidden behind the longer one. Memory
// has the longest latency and is shared by all cores, so it hides least.
static const double STALL = 0.2, MEMORY_STALL = 0.5;

static double busiest_ns(const kiln_tile_cost *c) {
  double most = c->compute_ns;
  for (int l = 0; l < KILN_MAX_LEVELS; l++) most = fmax(most, c->level_ns[l]);
  return most;
}

double kiln_tile_price_of(const kiln_tile_cost *c) {
  const double busiest = busiest_ns(c);
  double rest = c->compute_ns - busiest;
  for (int l = 1; l < KILN_MAX_LEVELS; l++) rest += c->level_ns[l];
  const double memory = c->level_ns[0] < busiest ? c->level_ns[0] : 0;
  if (c->level_ns[0] >= busiest) rest += busiest;
  if (!(c->ns > 0)) return INFINITY;                    // unknown
  if (!(busiest > 0) || !isfinite(c->ns)) return c->ns; // no terms: the template's time stays
  const double stall = c->streams ? 1 : STALL;
  return c->launch_ns + c->tail * (busiest + stall * rest + MEMORY_STALL * memory);
}
