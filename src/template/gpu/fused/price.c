// The time of a fused tile, from what its blocks compute, copy and hold.
#include "template/gpu/fused/tile.h"

#include "support/integer.h"
#include "template/gpu/grid.h"

#include <math.h>

enum { WARP = KILN_FUSED_WARP, OTHER_REGISTERS = 40, MAX_REGISTERS = 96 };

static double threads_of(const kiln_fused *x) { return (double)(kiln_fused_warps(&x->s) * WARP); }

static double bytes_of(const kiln_fused *x, const kiln_stmt *s) {
  return kiln_dtype_bytes(x->w->p->tensors.data[s->out]->dtype);
}

// Columns of |s|, all, and those of a block at a time.
static double columns_of(const kiln_fused *x, const kiln_stmt *s) {
  return (double)kiln_fused_padded(x, kiln_fused_columns(x, s));
}

static double width_of(const kiln_fused *x, const kiln_stmt *s) {
  return (double)kiln_fused_width(x, kiln_fused_columns(x, s));
}

// --- products ---

static double step_of(const kiln_fused *x, const kiln_fused_statement *t) {
  const bool streams = kiln_fused_streams(x, kiln_fused_terms(t->s)->name);
  return (double)(streams ? x->s.chunk : x->s.step);
}

static double steps_of(const kiln_fused *x, const kiln_fused_statement *t) {
  return ceil((double)kiln_dim_extent(kiln_fused_terms(t->s)) / step_of(x, t));
}

// Bytes of a step's operands in shared memory.
static double step_bytes(const kiln_fused *x, const kiln_fused_statement *t) {
  enum { PAD = 4 };
  const kiln_fused_statement *left = &x->f.all[t->left];
  const double step = step_of(x, t), rows = left->nest == KILN_NEST_OPERAND ? (double)x->s.rows : 0;
  return rows * (step + PAD) * bytes_of(x, left->s) +
         step * (width_of(x, t->s) + PAD) * bytes_of(x, x->f.all[t->right].s);
}

// The products of a block: their instructions, one block alone; and what they copy from the L2.
typedef struct products {
  double multiply_ns, steps, copied;
} products;

static products products_of(const kiln_fused *x) {
  static const double SHARE[] = {0.64, 0.28}; // of the peak: multiply-adds, matrix instructions
  const double peak = x->w->m->device->unit_flops_ns[x->s.by_mma ? KILN_PEAK_BF16 : KILN_PEAK_F32];
  products all = {0};
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest != KILN_NEST_SUMS) continue;
    const double times = columns_of(x, t->s) / width_of(x, t->s), // a chunk of columns each
        steps = steps_of(x, t) * times,
                 flops =
                     2 * (double)x->s.rows * columns_of(x, t->s) * steps_of(x, t) * step_of(x, t);
    all.multiply_ns += flops / (SHARE[x->s.by_mma] * peak);
    all.steps += steps;
    all.copied += steps * step_bytes(x, t);
  }
  return all;
}

// --- what a block holds ---

static double shared_of(const kiln_fused *x) {
  const double rows = (double)x->s.rows,
               meet = 4 * rows * (double)(x->s.warps[1] * x->s.lanes_n + 1);
  double operands = 0, kept = 0, stored = 0; // |stored|: results on their way
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest == KILN_NEST_SUMS) operands += x->s.depth * step_bytes(x, t);
    if (t->nest == KILN_NEST_REDUCED) operands = fmax(operands, meet);
    if (t->nest == KILN_NEST_RESULT && x->s.by_mma)
      stored = fmax(stored, rows * (columns_of(x, t->s) + 8) * bytes_of(x, t->s));
    if (t->nest == KILN_NEST_REDUCED || t->nest == KILN_NEST_BY_ROW) kept += 4 * rows;
    if (t->nest == KILN_NEST_TILE && kiln_fused_is_left_factor(x, i))
      kept += bytes_of(x, t->s) * rows * (width_of(x, t->s) + 4);
  }
  return fmax(operands, stored) + kept;
}

// Registers of a thread for the sums of all products.
static double registers_of(const kiln_fused *x) {
  double columns = 0;
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest == KILN_NEST_SUMS) columns += width_of(x, x->f.all[i].s);
  return columns * (double)x->s.rows / threads_of(x);
}

// As many stages as half of the shared memory holds, where copies are not waited for.
void kiln_fused_find_depth(kiln_fused *x) {
  enum { ASYNC = 80, MOST = 4 };
  double steps = MOST + 1;
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest == KILN_NEST_SUMS) steps = fmin(steps, steps_of(x, &x->f.all[i]));
  x->s.depth = x->w->m->gpu.capability < ASYNC ? 1 : (int)kiln_gpu_depth((int64_t)steps, MOST);
  while (x->s.depth > 1 &&
         2 * (shared_of(x) + KILN_GPU_RESERVED_BYTES) > (double)x->w->m->gpu.shared_bytes)
    x->s.depth--;
}

// How many blocks of a multiprocessor run at the same time.
static double resident_of(const kiln_fused *x) {
  const kiln_gpu *g = &x->w->m->gpu;
  const double threads = threads_of(x), registers = registers_of(x);
  const kiln_gpu_block one = {.threads = (int64_t)threads,
                              .registers = (int64_t)ceil(2 * registers) + OTHER_REGISTERS,
                              .shared_bytes = (int64_t)shared_of(x)};
  if (registers > MAX_REGISTERS || threads > g->max_threads) return 0;
  return (double)kiln_gpu_resident(g, &one);
}

// --- the time ---

// Elements that maps and reductions of a block visit, all passes together.
static double visits_of(const kiln_fused *x) {
  double columns = 0;
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest == KILN_NEST_TILE || t->nest == KILN_NEST_RESULT) columns += columns_of(x, t->s);
    if (t->nest == KILN_NEST_REDUCED)
      columns += (double)kiln_fused_padded(x, kiln_fused_terms(t->s));
  }
  return columns * (double)x->s.rows;
}

static double meetings_of(const kiln_fused *x) {
  double n = 0;
  for (int i = 0; i < x->f.n; i++) n += x->f.all[i].nest == KILN_NEST_REDUCED;
  return n;
}

// A block alone is bound by latency: of its steps, its threads' passes over their elements, and the
// meetings of its reductions. Where a multiprocessor has several, they are bound by its arithmetic,
// or by memory. Measured on an H200: 108 candidates by multiply-adds, of nine products and rows,
// are within 15 % (root mean square).
double kiln_fused_price(const kiln_fused *x) {
  // by multiply-adds of threads, by matrix instructions
  static const double BEGIN_END_NS[] = {6000, 1200}, STEP_NS[] = {270, 300}, HELD_NS[] = {0, 9},
                      MEET_NS[] = {1600, 500}, ELEMENT_NS[] = {0.022, 0.03}, AGAIN[] = {0, 0.3};
  const kiln_device *d = x->w->m->device;
  const products p = products_of(x);
  const bool mma = x->s.by_mma;
  const double blocks = ceil((double)x->f.m / (double)x->s.rows) * (double)x->f.batch,
               resident = resident_of(x), visits = visits_of(x),
               waits = p.steps * (STEP_NS[mma] + (x->s.depth < 3 ? d->levels[0].latency_ns : 0)),
               alone = BEGIN_END_NS[mma] + waits + p.multiply_ns +
                       HELD_NS[mma] * visits / threads_of(x) + MEET_NS[mma] * meetings_of(x),
               turn = p.multiply_ns + p.copied / d->levels[1].unit_bytes_ns;
  const kiln_gpu_rounds r = {.each = kiln_gpu_each(x->w, blocks),
                             .resident = resident,
                             .alone = alone,
                             .again = AGAIN[mma],
                             .turn = fmax(ELEMENT_NS[mma] * visits, turn)};
  return resident < 1 ? INFINITY : kiln_gpu_rounds_ns(x->w, &r);
}
