// Which blocks a Winograd convolution runs in, and whether it pays: all plans of few blocks are
// priced by the device's levels.
#include "support/integer.h"
#include "tile/graph.h"
#include "tile/panels.h"
#include "price/registers.h"
#include "template/cpu/winograd_plan.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROOT 1.4142135623730951 // of 2

// clang-format off
static const kiln_winograd_form forms[] = {
    {.outputs = 2,
     .points = 4,
     .spread = INFINITY, // an output depends on its window alone

     .input = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}},
     .kernel = {{1, 0, 0}, {1. / 2, 1. / 2, 1. / 2}, {1. / 2, -1. / 2, 1. / 2}, {0, 0, 1}},
     .output = {{1, 1, 1, 0}, {0, 1, -1, 1}}},
    // at 0, +-sqrt(1/2), +-sqrt(2) and infinity, which round less than +-1 and +-2
    {.outputs = 4,
     .points = 6,
     .spread = 256, // bench/winograd_error.py

     .input = {{1, 0, -5. / 2, 0, 1, 0},
               {0, -ROOT, -2, ROOT / 2, 1, 0},
               {0, ROOT, -2, -ROOT / 2, 1, 0},
               {0, -ROOT / 2, -1. / 2, ROOT, 1, 0},
               {0, ROOT / 2, -1. / 2, -ROOT, 1, 0},
               {0, 1, 0, -5. / 2, 0, 1}},
     .kernel = {{1, 0, 0},
                {-2. / 3, -ROOT / 3, -1. / 3},
                {-2. / 3, ROOT / 3, -1. / 3},
                {1. / 6, ROOT / 6, 1. / 3},
                {1. / 6, -ROOT / 6, 1. / 3},
                {0, 0, 1}},
     .output = {{1, 1, 1, 1, 1, 0},
                {0, ROOT / 2, -ROOT / 2, ROOT, -ROOT, 0},
                {0, 1. / 2, 1. / 2, 2, 2, 0},
                {0, ROOT / 4, -ROOT / 4, 2 * ROOT, -2 * ROOT, 1}}},
};
// clang-format on

// The infinity norm of |matrix| (the greatest absolute row sum), for both dims.
static double gain(int rows, int columns, int stride, const double *matrix) {
  double most = 0;
  for (int i = 0; i < rows; i++) {
    double sum = 0;
    for (int j = 0; j < columns; j++) sum += fabs(matrix[i * stride + j]);
    most = fmax(most, sum);
  }
  return most * most; // along both dims
}

double kiln_winograd_spread(const kiln_winograd_form *f, int64_t kh, int64_t kw) {
  const kiln_winograd_form *wide = &forms[KILN_LEN(forms) - 1];
  return kh == 3 && kw == 3 ? f->spread : fmin(f->spread, wide->spread);
}

double kiln_winograd_most(const kiln_winograd_form *f, int64_t c, double weight) {
  const double input = gain(f->points, f->points, KILN_MAX_WINOGRAD, f->input[0]),
               kernel = gain(f->points, 3, 3, f->kernel[0]),
               output = gain(f->outputs, f->points, KILN_MAX_WINOGRAD, f->output[0]);
  const double behind = (double)c * weight * kernel * output;
  // of one element; half of the range is left for rounding
  const double most = FLT_MAX / (2 * input * (behind <= 1 ? 1 : behind));
  return isnan(most) ? most : fmin(most * most, FLT_MAX / 2);
}

static double square_norm(int n, const double *row) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += row[i] * row[i];
  return sum;
}

// The sum of the squares of the products in an output, along one dim, for random and independent
// data and weights, relative to the window's direct products; the mean over a tile's outputs.
static double square_gain(const kiln_winograd_form *f, int window) {
  double sum = 0;
  for (int r = 0; r < f->outputs; r++)
    for (int i = 0; i < f->points; i++)
      sum += f->output[r][i] * f->output[r][i] * square_norm(f->outputs + window - 1, f->input[i]) *
             square_norm(window, f->kernel[i]);
  return sum / window / f->outputs;
}

// Weights and products are rounded once, as is the result of each of the four transforms.
kiln_transforms kiln_winograd_transforms(void) {
  kiln_transforms t = {0};
  for (size_t k = 0; k < KILN_LEN(forms); k++) {
    const kiln_winograd_form *f = &forms[k];
    t.outputs = f->outputs > t.outputs ? f->outputs : t.outputs;
    t.roundings = 6;
    t.spread = isfinite(f->spread) ? fmax(t.spread, f->spread) : t.spread;
    for (int window = 2; window <= 3; window++)
      t.gain[window] = fmax(t.gain[window], square_gain(f, window));
  }
  return t;
}

enum { MAX_PARTS = 16, MAX_LOCAL_BYTES = 1 << 20 }; // blocks along a dim; a thread's buffer

// Cycles of the transforms, in products of the same time, for an element of a transformed tile:
// loads and stores count, not the additions.
static const double INPUT_FLOPS = 10, OUTPUT_FLOPS = 8;
// Those of the guard, for an element of the data and for a tile: 23 cycles a pixel of 64 channels
// and 175 a tile on a core of 32 flops a cycle, by a profile of 64 to 64 channels on 56 x 56
// pixels.
static const double GUARD_FLOPS = 11, GUARD_TILE_FLOPS = 5600;
static const double PRODUCTS_EFFICIENCY = 0.95, DIRECT_EFFICIENCY = 0.93;
static const double OVERLAP = 0.75; // the share of the waiting for a level that work hides
static const double MARGIN = 0.95;  // a rewriting must be that much cheaper

typedef struct choice {
  const kiln_machine *m;
  int n_threads;
  const kiln_winograd_shape *s;
  kiln_winograd_plan plan; // the one at hand
  int64_t rows, cols;      // tiles of an image
  double efficiency;       // of the plan's register tile
  int l2, l3;              // levels of the device; -1: none
} choice;

static double usable_bytes(const kiln_device *d, int level) {
  return level < 0 ? 0 : (double)d->levels[level].capacity_bytes * d->levels[level].usable;
}

// The time of |c|, whose flops, bytes and tiles are set: transfers overlap with arithmetic, but not
// fully.
static double time_of(const kiln_device *d, int n_threads, double efficiency, kiln_tile_cost *c) {
  kiln_tile_cost_finish(d, n_threads, KILN_PEAK_F32, efficiency, c);
  double ns = c->ns;
  for (int l = 0; l + 1 < d->n_levels; l++) ns += (1 - OVERLAP) * c->level_ns[l];
  return ns;
}

static double data_bytes(const kiln_winograd_shape *s) {
  return 4.0 * (double)(s->n * s->h * s->w) * (double)(s->c + s->k);
}

static double direct_ns(const kiln_machine *m, int n_threads, const kiln_winograd_shape *s) {
  const double weights = (double)(s->kh * s->kw * s->c * s->k);
  kiln_tile_cost c = {.flops = 2 * weights * (double)(s->n * s->h * s->w),
                      .bytes = {data_bytes(s) + 4 * weights},
                      .tiles = s->n * s->h * kiln_divide_up(s->k, m->vector_bytes / 4)};
  return time_of(m->device, n_threads, DIRECT_EFFICIENCY, &c);
}

// Miss rate of rereading |bytes| through a cache of |capacity|.
static double missing(double bytes, double capacity) {
  return bytes > capacity ? 1 - capacity / bytes : 0;
}

// Arithmetic and traffic of a plan, in bytes of the transformed tensors; padding of the last blocks
// counts.
typedef struct amounts {
  int64_t tasks;                            // that the threads share
  double active, spatial, channel_blocks;   // threads with work; blocks of tiles; of channels
  double channels;                          // of the result, in whole panels
  double weights, inputs, outputs, at_once; // the last: of a block
  double lost;                              // the share of a block that does not stay in the L2
} amounts;

static bool measure(const choice *x, amounts *out) {
  const kiln_winograd_plan *p = &x->plan;
  const kiln_winograd_shape *s = x->s;
  const kiln_device *d = x->m->device;
  const double element = 4 * (double)(p->form->points * p->form->points), // of a tile's transform
      tiles = (double)(p->block_h * p->block_w);
  const int64_t k = kiln_round_up(s->k, p->panel), channel_blocks = kiln_divide_up(k, p->block_k),
                spatial = s->n * kiln_divide_up(x->rows, p->block_h) *
                          kiln_divide_up(x->cols, p->block_w);
  const double inputs = element * tiles * (double)s->c,
               outputs = element * tiles * (double)p->block_k;
  *out = (amounts){.tasks = p->whole_input ? spatial * channel_blocks : spatial,
                   .spatial = (double)spatial,
                   .channel_blocks = (double)channel_blocks,
                   .channels = (double)k,
                   .weights = element * (double)(s->c * k),
                   .inputs = inputs * (double)spatial,
                   .outputs = element * tiles * (double)(spatial * k),
                   .at_once = inputs + outputs};
  out->active = fmin((double)x->n_threads, (double)out->tasks);
  out->lost = missing(out->at_once, usable_bytes(d, x->l2));
  return outputs <= MAX_LOCAL_BYTES && (p->whole_input || inputs <= MAX_LOCAL_BYTES);
}

// Adds |bytes| of tensors of |size| bytes in total, which come from beyond the L2.
static void add_far(const choice *x, double bytes, double size, kiln_tile_cost *c) {
  const kiln_device *d = x->m->device;
  if (x->l3 >= 0) c->bytes[x->l3] += bytes;
  c->bytes[0] += bytes * (x->l3 >= 0 ? missing(size, usable_bytes(d, x->l3)) : 1);
}

// The products: each block rereads the weights that the thread's L2 no longer holds.
static double products_ns(const choice *x, const amounts *a) {
  const kiln_device *d = x->m->device;
  const double again = missing(a->at_once + a->weights, usable_bytes(d, x->l2)),
               panels = a->channels / (double)x->plan.panel;
  kiln_tile_cost c = {.tiles = a->tasks, .bytes = {a->weights}};
  c.flops = a->inputs / 2 * a->channels / x->efficiency;
  add_far(x, a->weights * (a->active - 1 + fmax(a->spatial - a->active, 0) * again), a->weights,
          &c);
  const double first = x->plan.whole_input ? fmin(a->active, a->channel_blocks) : 0;
  add_far(x, a->inputs * (first + (a->channel_blocks - first) * a->lost), a->inputs, &c);
  add_far(x, a->outputs * a->lost, a->at_once * a->active, &c);
  if (x->l2 >= 0) c.bytes[x->l2] = a->outputs + a->inputs * panels + a->weights * a->spatial;
  return time_of(d, x->n_threads, PRODUCTS_EFFICIENCY, &c);
}

// The transforms: data comes from the L3, or from memory as far as it does not fit there.
static double transforms_ns(const choice *x, const amounts *a) {
  const kiln_device *d = x->m->device;
  const double data = data_bytes(x->s);
  kiln_tile_cost c = {.tiles = a->tasks};
  c.flops = (INPUT_FLOPS * a->inputs + OUTPUT_FLOPS * a->outputs) / 4;
  c.flops += GUARD_FLOPS * (double)(x->s->n * x->s->h * x->s->w * x->s->c);
  c.flops += GUARD_TILE_FLOPS * (double)(x->s->n * x->rows * x->cols);
  add_far(x, data, data, &c);
  add_far(x, a->inputs * (x->plan.whole_input ? 1 : a->lost), a->inputs, &c);
  add_far(x, a->outputs * a->lost, a->at_once * a->active, &c);
  if (x->l2 >= 0) c.bytes[x->l2] = data + a->inputs + a->outputs;
  const double waiting = x->plan.whole_input && x->n_threads > 1 ? d->fork_ns : 0;
  return time_of(d, x->n_threads, 1, &c) + waiting;
}

static double plan_ns(const choice *x) {
  amounts a;
  return measure(x, &a) ? products_ns(x, &a) + transforms_ns(x, &a) : INFINITY;
}

// The tile of rows x columns of tiles that the products keep in registers.
static void choose_registers(choice *x) {
  kiln_winograd_plan *p = &x->plan;
  const int64_t vectors = p->panel / (x->m->vector_bytes / 4);
  const kiln_tile_extents e = {
      .v = p->panel, .col = p->block_w, .row = p->block_h, .depth = x->s->c};
  const double ideal = (double)(p->block_w * p->block_h * vectors) * (double)x->s->c / 2;
  double least = INFINITY;
  for (int64_t rows = 1; rows <= p->block_h; rows++)
    for (int64_t cols = 1;
         cols <= p->block_w && rows * cols * vectors + vectors < x->m->n_vector_regs; cols++) {
      const kiln_register_tile t = kiln_tile_given(
          x->m, &e, &(kiln_register_tile){.rows = rows, .cols = cols, .vectors = vectors});
      if (t.cycles >= least * 0.999) continue;
      least = t.cycles;
      p->tile_h = rows;
      p->tile_w = cols;
    }
  x->efficiency = ideal / least;
}

// Plans with the blocks of |x|'s plan, for every share of the channels.
static void try_channels(choice *x, kiln_winograd_plan *best) {
  kiln_winograd_plan *p = &x->plan;
  const int64_t panels = kiln_divide_up(x->s->k, p->panel);
  for (int64_t parts = 1; parts <= panels; parts++) {
    if (panels % parts != 0) continue;
    p->block_k = panels / parts * p->panel;
    for (int whole = 0; whole < 2; whole++) {
      p->whole_input = whole;
      p->ns = plan_ns(x);
      if (p->ns < best->ns) *best = *p;
    }
  }
}

static void try_blocks(choice *x, kiln_winograd_plan *best) {
  int64_t last_h = 0;
  for (int64_t i = 1; i <= x->rows; i++) {
    x->plan.block_h = kiln_divide_up(x->rows, i);
    if (x->plan.block_h == last_h) continue;
    last_h = x->plan.block_h;
    int64_t last_w = 0;
    for (int64_t j = 1; j <= x->cols && j <= MAX_PARTS; j++) {
      x->plan.block_w = kiln_divide_up(x->cols, j);
      if (x->plan.block_w == last_w) continue;
      last_w = x->plan.block_w;
      choose_registers(x);
      try_channels(x, best);
    }
  }
}

bool kiln_winograd_plan_make(const kiln_machine *m, int n_threads, const kiln_winograd_shape *shape,
                             int points, uint32_t panels, kiln_winograd_plan *out) {
  const int64_t lanes = m->vector_bytes / 4;
  *out = (kiln_winograd_plan){.ns = INFINITY};
  if (!m->device || shape->c < 2 || shape->k < lanes) return false;
  for (size_t f = 0; f < KILN_LEN(forms); f++)
    for (int64_t vectors = 1; vectors <= 4; vectors *= 2) {
      choice x = {.m = m,
                  .n_threads = n_threads,
                  .s = shape,
                  .l2 = kiln_device_level(m->device, "L2"),
                  .l3 = kiln_device_level(m->device, "L3")};
      x.plan.form = &forms[f];
      x.plan.panel = vectors * lanes;
      x.rows = kiln_divide_up(shape->h, forms[f].outputs);
      x.cols = kiln_divide_up(shape->w, forms[f].outputs);
      if (x.rows < 2 || x.cols < 2 || (vectors > 1 && shape->k % x.plan.panel != 0)) continue;
      if (points && forms[f].points > points) continue;
      if (!panels || panels & kiln_panels_bit(forms[f].outputs, vectors)) try_blocks(&x, out);
    }
  out->direct_ns = direct_ns(m, n_threads, shape);
  return out->ns < MARGIN * out->direct_ns;
}

// --- the choice under a limit of memory ---

// Bytes that the transformed weights of |o|, and the packed kernels for tiles that don't fit, take
// beyond the original kernels.
static double more_bytes_of(const kiln_winograd_offer *o) {
  const kiln_winograd_form *f = o->plan.form;
  const double c = 4 * (double)o->shape.c;
  const int64_t window = o->shape.kh * o->shape.kw;
  if (!f) return 0;
  return c * (double)((f->points * f->points + window) * kiln_round_up(o->shape.k, o->plan.panel) -
                      window * o->shape.k);
}

static double ns_of(const kiln_machine *m, int n_threads, const kiln_winograd_offer *o) {
  return o->plan.form ? o->plan.ns : direct_ns(m, n_threads, &o->shape);
}

// The next step of one offer: the same convolution with a larger form.
typedef struct step {
  int offer;
  kiln_winograd_plan plan;
  double bytes, worth; // beyond the current plan; nanoseconds saved a byte
} step;

// |alone|: [n][forms] the plan of each form; no form where it does not pay.
static bool best_step(const kiln_machine *m, int n_threads, double most, int n,
                      const kiln_winograd_offer *now, const kiln_winograd_offer *alone, step *out) {
  *out = (step){.offer = -1};
  for (int i = 0; i < n * (int)KILN_LEN(forms); i++) {
    const kiln_winograd_offer *to = &alone[i], *from = &now[i / (int)KILN_LEN(forms)];
    const double bytes = more_bytes_of(to) - more_bytes_of(from),
                 ns = ns_of(m, n_threads, from) - ns_of(m, n_threads, to);
    if (!to->plan.form || bytes > most || ns <= 0) continue;
    const double worth = bytes > 0 ? ns / bytes : INFINITY;
    if (out->offer < 0 || worth > out->worth)
      *out = (step){i / (int)KILN_LEN(forms), to->plan, bytes, worth};
  }
  return out->offer >= 0;
}

// The first offer like the one at |i|: convolutions of one shape have one plan.
static int first_like(const kiln_winograd_offer *all, int i) {
  int k = 0;
  while (memcmp(&all[k].shape, &all[i].shape, sizeof all->shape) != 0 ||
         all[k].panels != all[i].panels)
    k++;
  return k;
}

static void choose_within(const kiln_machine *m, int n_threads, double most, int n,
                          kiln_winograd_offer *io, kiln_winograd_offer *alone) {
  step s;
  for (int i = 0; i < n; i++)
    for (size_t f = 0; f < KILN_LEN(forms); f++) {
      kiln_winograd_offer *o = &alone[(size_t)i * KILN_LEN(forms) + f];
      const int like = first_like(io, i);
      if (like < i) {
        *o = alone[(size_t)like * KILN_LEN(forms) + f];
        continue;
      }
      *o = (kiln_winograd_offer){.shape = io[i].shape};
      if (!kiln_winograd_plan_make(m, n_threads, &o->shape, forms[f].points, 0, &o->plan))
        o->plan.form = NULL;
    }
  while (best_step(m, n_threads, most, n, io, alone, &s)) {
    io[s.offer].plan = s.plan;
    most -= s.bytes;
  }
}

// The cheapest plan, or one whose weights other programs have, if it costs little more.
static void choose_alone(const kiln_machine *m, int n_threads, kiln_winograd_offer *io) {
  kiln_winograd_plan kept;
  if (!kiln_winograd_plan_make(m, n_threads, &io->shape, 0, 0, &io->plan)) io->plan.form = NULL;
  if (io->plan.form && io->panels &&
      kiln_winograd_plan_make(m, n_threads, &io->shape, 0, io->panels, &kept) &&
      kept.ns <= (1 + KILN_NEW_TRANSFORMS) * io->plan.ns)
    io->plan = kept;
}

void kiln_winograd_choose(kiln_ctx *cx, const kiln_machine *m, int n_threads, double more_bytes,
                          int n, kiln_winograd_offer *io) {
  for (int i = 0; i < n; i++) io[i].plan = (kiln_winograd_plan){0};
  if (more_bytes < INFINITY) {
    kiln_winograd_offer *alone =
        KILN_NEW_ARRAY(&cx->scratch, kiln_winograd_offer, n * (int)KILN_LEN(forms));
    choose_within(m, n_threads, more_bytes, n, io, alone);
    return;
  }
  for (int i = 0; i < n; i++) {
    const int like = first_like(io, i);
    if (like < i) io[i].plan = io[like].plan;
    else choose_alone(m, n_threads, &io[i]);
  }
}
