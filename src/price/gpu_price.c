#include "price/gpu_price.h"

#include "price/gpu_fit.h"

#include <math.h>

enum { MANY_ROUNDS = 3, MANY_BLOCKS = 8 }; // beyond, rounds and blocks even out

// The clocks of |r| blocks that run together on a multiprocessor.
static double round_of(const kiln_gpu_nest_counts *n, double r) {
  const double p = 1 + FIT.p;
  double alone = FIT.block + FIT.cluster * log2(fmax(n->cluster, 1)), sum = 0;
  for (int k = 0; k < KILN_N_GPU_WAITS; k++) alone += FIT.wait[k] * n->wait[k];
  for (int k = 0; k < KILN_N_GPU_UNITS; k++) sum += pow(r * FIT.unit[k] * n->unit[k], p);
  return pow(pow(alone, p) + sum, 1 / p);
}

static double multiprocessor_of(const kiln_machine *m, const kiln_gpu_nest_counts *n) {
  const double units = m->device->n_units,
               each = n->blocks > MANY_BLOCKS * units ? n->blocks / units : ceil(n->blocks / units),
               r = fmin(n->resident, fmax(1, each)), full = floor(each / r), rest = each - full * r;
  if (each > MANY_ROUNDS * r) return each / r * round_of(n, r);
  return full * round_of(n, r) + (rest > 1e-9 ? round_of(n, fmax(rest, 1)) : 0);
}

static double clocks_of(const kiln_machine *m, const kiln_gpu_nest_counts *n) {
  const double units = m->device->n_units, *g = m->device->gpu, q = 1 + FIT.q,
               l2 = FIT.l2 * n->l2_bytes / (units * g[KILN_GPU_L2_ALL]),
               memory = FIT.memory * n->memory_bytes / (units * g[KILN_GPU_MEMORY_ALL]),
               starts =
                   FIT.starts * g[KILN_GPU_BLOCK_NS] * m->device->clock_ghz * n->blocks / units;
  return pow(pow(multiprocessor_of(m, n), q) + pow(l2, q) + pow(memory, q), 1 / q) + starts +
         FIT.nest + FIT.code * n->code;
}

double kiln_gpu_price_ns(const kiln_machine *m, const kiln_gpu_counts *c) {
  double clocks = FIT.begin;
  for (int i = 0; i < c->n; i++) clocks += clocks_of(m, &c->nests[i]);
  return clocks / m->device->clock_ghz;
}
