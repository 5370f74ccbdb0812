// The choice of register tiles, by counting cycles.
#include "tile/registers.h"

enum { MAX_VECTORS = 8, MAX_TILE_ROWS = 30 };

static int64_t tiles_of(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

// Estimated cycles of the whole contraction for a tile of rows x cols elements and nv vectors.
static double cycles(const kiln_tile_extents *e, int64_t rows, int64_t cols, int64_t nv,
                     int64_t lanes) {
  double mr = (double)(rows * cols), fma = mr * (double)nv / 2, load = (mr + (double)nv) / 2;
  double step = fma > load ? fma : load;
  if (step < 4) step = 4;
  step +=
      0.1 * (mr + 2 * (double)nv); // loads are not free beside FMAs, and panels come from the L2
  double tiles =
      (double)(tiles_of(e->v, nv * lanes) * tiles_of(e->col, cols) * tiles_of(e->row, rows));
  return tiles * (step * (double)e->depth + mr * (double)nv * 2); // and the epilogue's stores
}

kiln_register_tile kiln_tile_registers(const kiln_machine *m, const kiln_tile_extents *e) {
  const int64_t lanes = m->vector_bytes / 4;
  kiln_register_tile best = {1, 1, 1, 1e300};
  for (int64_t nv = 1; nv <= MAX_VECTORS; nv++) {
    if ((nv - 1) * lanes >= e->v || (nv & (nv - 1) && nv != 3 && nv != 6)) continue;
    for (int64_t r = 1; r <= e->row && r <= MAX_TILE_ROWS; r++)
      for (int64_t c = 1; c <= e->col && r * c <= MAX_TILE_ROWS; c++) {
        if (r * c * nv + nv + 1 > m->n_vector_regs) break;
        const double t = cycles(e, r, c, nv, lanes);
        if (t < best.cycles * 0.999) best = (kiln_register_tile){r, c, nv, t};
      }
  }
  return best;
}
