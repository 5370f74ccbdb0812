// The choice of register tiles, by counting cycles.
#include "price/registers.h"

#include "support/integer.h"

enum { MAX_VECTORS = 8, MAX_TILE_ROWS = 30, LINE = 64 };

// The cost of a last block of rows that is not whole: its panels are read again, and some vectors
// are stored partly.
static const double RAGGED = 1.03;

static const double NONE = 1e300; // cycles of no tile

// Cycles from an FMA to the next one of the same sum; and of a step of 8 sums, which just cover
// that latency, so that every delay is lost. In models of a convolution of two groups of 32
// channels that differed in this tile alone (AVX2 on a Zen 5), 4 x 2 sums took 10 % longer than
// 6 x 2 on rows of 24 pixels, and 8 % longer than 5 x 2 on rows of 20: half a cycle in four.
static const double FMA_CYCLES = 4, FULL_STEP_CYCLES = 4.5;
enum { FULL_SUMS = 8 };

// The number of the tile's cache lines that are in sets of the L1 with more of these lines than
// ways.
static int64_t meeting_lines(const kiln_machine *m, const kiln_tile_extents *e, int64_t rows,
                             int64_t cols) {
  const int ways = kiln_machine_ways(m, 1);
  const int64_t sets = m->l1_bytes / ways / LINE;
  int64_t lines[MAX_TILE_ROWS], meeting = 0;
  int n = 0;
  for (int64_t i = 0; sets > 0 && i < rows * cols; i++) {
    const int64_t line = (i / cols * e->row_bytes + i % cols * e->col_bytes) / LINE;
    int at = 0;
    while (at < n && lines[at] != line) at++;
    if (at == n) lines[n++] = line;
  }
  for (int i = 0; i < n; i++) {
    int together = 0;
    for (int k = 0; k < n; k++) together += (lines[k] - lines[i]) % sets == 0;
    meeting += together > ways;
  }
  return meeting;
}

static double most(double a, double b) { return a > b ? a : b; }

// Cache lines that a step accesses, for any alignment of the tile.
static double lines_of_step(const kiln_tile_extents *e, int64_t rows, int64_t cols) {
  enum { ELEMENT = 4, PLACES = LINE / ELEMENT };
  int64_t lines = 0;
  for (int64_t place = 0; place < PLACES; place++)
    for (int64_t i = 0, last = -1; i < rows * cols; i++) {
      const int64_t line =
          (place * ELEMENT + i / cols * e->row_bytes + i % cols * e->col_bytes) / LINE;
      lines += line != last;
      last = line;
    }
  return (double)lines / PLACES;
}

// The miss rate of the L1 for a working set of |times| its size.
static double missing(double times) {
  const double all = 1.25; // replacement is not exactly LRU
  return times <= 1 ? 0 : times >= all ? 1 : (times - 1) / (all - 1);
}

static double vectors_bytes(const kiln_machine *m, const kiln_register_tile *t) {
  return (double)(t->vectors * m->vector_bytes);
}

// The share of a tile's accesses that misses the L1 in the next tile: vectors of all steps, and
// lines of the broadcast elements, which may share few sets.
static double missing_in_l1(const kiln_machine *m, const kiln_tile_extents *e,
                            const kiln_register_tile *t, double lines) {
  const int64_t way_bytes = m->l1_bytes / kiln_machine_ways(m, 1);
  if (way_bytes < LINE) return 0;
  const int64_t common = kiln_gcd(e->step_bytes, way_bytes); // distance to the set of the next step
  const double a_step = e->in_panels || e->step_bytes < LINE ? 4.0 * (double)(t->rows * t->cols)
                                                             : lines * most((double)common, LINE);
  return missing((double)e->depth * (a_step + vectors_bytes(m, t)) / (double)m->l1_bytes);
}

// Lines that miss in a step, if each step has its own lines, which several vectors read in turn.
static double lines_read_again(const kiln_machine *m, const kiln_tile_extents *e,
                               const kiln_register_tile *t) {
  if (e->in_panels || e->step_bytes < LINE || e->v <= t->vectors * (m->vector_bytes / 4)) return 0;
  const double lines = lines_of_step(e, t->rows, t->cols);
  return lines * missing_in_l1(m, e, t, lines);
}

// Cycles in which the L2 delivers the vectors of a step that the L1 has evicted since the tile
// before.
static double vector_cycles(const kiln_machine *m, const kiln_tile_extents *e,
                            const kiln_register_tile *t) {
  const kiln_device *d = m->device;
  const int l2 = d ? kiln_device_level(d, "L2") : -1;
  if (l2 < 0 || e->work.multiplies != 0) return 0;
  const double cycle_ns = (double)m->vector_bytes / d->unit_flops_ns[KILN_PEAK_F32];
  return missing_in_l1(m, e, t, lines_of_step(e, t->rows, t->cols)) * vectors_bytes(m, t) /
         (d->levels[l2].unit_bytes_ns * cycle_ns);
}

// Cycles of a step of the reduction in a tile of |mr| elements and |nv| vectors, at least |least|
// where each sum waits for the step before; *out_busy: those of the multipliers.
static double step_cycles(const kiln_tile_extents *e, double mr, double nv, double least,
                          double *out_busy) {
  const kiln_step_work *w = &e->work;
  const double products = mr * nv, loads = (mr + nv) / 2;
  const bool is_fma = w->multiplies == 0;
  *out_busy = (is_fma ? 1 : w->multiplies) * products / 2;
  double step = most(*out_busy, loads);
  // an FMA waits for the previous sum; sums of integers have little latency
  if (is_fma) step = most(step, least);
  else step = most(step, (w->all * products + (1 + w->element) * mr + (1 + w->vector) * nv) / 6);
  // loads compete with FMAs, and panels come from the L2; elements of a panel share cache lines
  return step + 0.1 * ((e->in_panels ? 0.5 : 1) * mr + 2 * nv);
}

static kiln_register_tile tile_of(const kiln_machine *m, const kiln_tile_extents *e,
                                  const kiln_register_tile *tile, double least) {
  const int64_t lanes = m->vector_bytes / 4;
  const double mr = (double)(tile->rows * tile->cols), nv = (double)tile->vectors;
  double busy;
  const double misses = e->in_panels ? 0
                                     : (double)meeting_lines(m, e, tile->rows, tile->cols) +
                                           lines_read_again(m, e, tile),
               step = (most(step_cycles(e, mr, nv, least, &busy), vector_cycles(m, e, tile)) +
                       misses) *
                      (double)e->depth,
               tiles = (double)(kiln_divide_up(e->v, tile->vectors * lanes) *
                                kiln_divide_up(e->col, tile->cols) *
                                kiln_divide_up(e->row, tile->rows));
  const double cycles = step + mr * nv * 2; // and stores of the epilogue
  return (kiln_register_tile){tile->rows, tile->cols, tile->vectors, tiles * cycles,
                              busy * (double)e->depth / cycles};
}

kiln_register_tile kiln_tile_given(const kiln_machine *m, const kiln_tile_extents *e,
                                   const kiln_register_tile *tile) {
  return tile_of(m, e, tile, FMA_CYCLES);
}

// |ragged|: the cost factor of a partial last tile of rows; |step|: the least cycles of a step.
static kiln_register_tile choose_of(const kiln_machine *m, const kiln_tile_extents *e,
                                    uint32_t vectors, bool is_even, double ragged, double step) {
  const int64_t lanes = m->vector_bytes / 4;
  kiln_register_tile best = {1, 1, 1, NONE, 1};
  double least = NONE;
  for (int64_t nv = 1; nv <= MAX_VECTORS; nv++) {
    if (!(vectors >> nv & 1)) continue;
    if ((nv - 1) * lanes >= e->v || (nv & (nv - 1) && nv != 3 && nv != 6)) continue;
    if (is_even && e->v % (nv * lanes) != 0) continue;
    for (int64_t r = 1; r <= e->row && r <= MAX_TILE_ROWS; r++)
      for (int64_t c = 1; c <= e->col && r * c <= MAX_TILE_ROWS; c++) {
        if (r * c * nv + nv + 1 > m->n_vector_regs) break;
        const kiln_register_tile one =
            tile_of(m, e, &(kiln_register_tile){.rows = r, .cols = c, .vectors = nv}, step);
        const bool is_ragged = (is_even || e->in_panels) &&
                               (e->row % r != 0 || e->col % c != 0 || e->v % (nv * lanes) != 0);
        const double price = one.cycles * (is_ragged ? ragged : 1);
        if (price >= least * 0.999) continue;
        least = price;
        best = one;
      }
  }
  return best;
}

// Of tiles of as many vectors as |full|, whose sums just fill an FMA's cycles, one of more sums
// where these are worth a last tile that is not whole.
static kiln_register_tile fuller_than(const kiln_machine *m, const kiln_tile_extents *e,
                                      const kiln_register_tile *full, bool is_even, double ragged) {
  if (full->vectors < 2 || full->rows * full->cols * full->vectors != FULL_SUMS ||
      e->work.multiplies != 0)
    return *full;
  const kiln_register_tile more =
      choose_of(m, e, UINT32_C(1) << full->vectors, is_even, ragged, FULL_STEP_CYCLES);
  return more.cycles < NONE ? kiln_tile_given(m, e, &more) : *full;
}

static kiln_register_tile choose(const kiln_machine *m, const kiln_tile_extents *e, bool is_even,
                                 double ragged) {
  kiln_register_tile one = {.cycles = NONE};
  if (e->vectors) one = choose_of(m, e, e->vectors, is_even, ragged, FMA_CYCLES);
  if (one.cycles >= NONE) one = choose_of(m, e, UINT32_MAX, is_even, ragged, FMA_CYCLES);
  return fuller_than(m, e, &one, is_even, ragged);
}

kiln_register_tile kiln_tile_registers(const kiln_machine *m, const kiln_tile_extents *e) {
  return choose(m, e, false, e->in_panels ? RAGGED : 1);
}

kiln_register_tile kiln_tile_registers_even(const kiln_machine *m, const kiln_tile_extents *e) {
  return choose(m, e, true, RAGGED);
}

kiln_register_tile kiln_tile_registers_exact(const kiln_machine *m, const kiln_tile_extents *e) {
  return choose(m, e, true, 1);
}
