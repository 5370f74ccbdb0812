#include "price/gpu_work.h"

#include "analysis/point.h"
#include "price/price.h"

#include <math.h>

const kiln_mem_level *kiln_gpu_shared(const kiln_device *d) {
  return &d->levels[kiln_device_level(d, "shared")];
}

enum {
  MAX_AROUND = 32,
  WARP = 32,
  LINE = 128,  // bytes that a warp's access transfers at once
  SECTOR = 32, // bytes that it loads from the L2
  BANKS = 32,  // of shared memory, 4 bytes each
  BANK = 4,
  SCHEDULERS = 4,   // of a multiprocessor: each issues an instruction a clock
  MAX_BLOCKS = 32,  // of a multiprocessor
  WRITTEN_OUT = 32, // iterations of an unrolled loop, whose loads are all in flight;
  AHEAD = 5         // of longer loops so many are
};
// Instructions of a warp: for a function, a division, an address, a quotient in an address.
static const double FUNCTION = 10, DIVISION = 8, ADDRESS = 2, QUOTIENT = 5;
// Clocks of a dependent sum in a register; nanoseconds of a barrier, of the gap between nests, of a
// kernel's begin and end, of the first fetch of an instruction, of a load from the L1.
// INSTRUCTION_NS is what kernels of much code took beyond all other terms, measured on an H200.
static const double SUM_CLOCKS = 4, BARRIER_NS = 20, NEST_NS = 1000, BEGIN_END_NS = 1500,
                    INSTRUCTION_NS = 1.5, L1_NS = 20;

typedef enum around_kind { BLOCK, THREAD, SERIAL, COPIED, LANES } around_kind;

// The code of one iteration of a serial loop, or of a phase, that is not invariant in it.
typedef struct frame {
  int depth;       // loops around it, including its own
  double wait_ns;  // latency of the loads of an iteration, which are in flight together
  double chain_ns; // of dependences on the iteration before
  double inner_ns; // of inner loops that are not unrolled
  double flat;     // iterations of inner loops that are
} frame;

// A nest, and what each of its blocks does.
typedef struct nest {
  double blocks, threads; // |threads|: of a block
  int64_t shape[3];
  double shared_bytes;
  double instrs, lines, l2_bytes;
} nest;

typedef struct worker {
  kiln_ctx *cx;
  const kiln_machine *m;
  const kiln_loops *l;
  nest nest;
  int n_around, n_threads; // |n_threads|: the thread loops among those around
  kiln_symbol vars[MAX_AROUND];
  around_kind kinds[MAX_AROUND];
  kiln_how hows[MAX_AROUND];
  int64_t extents[MAX_AROUND], point[MAX_AROUND];
  frame frames[MAX_AROUND + 1];
  int n_frames, phase_frame;
  double phase_threads; // that have work
  double code;          // instructions of the code
  kiln_map visited;     // nodes of the statement's value
  bool is_unknown;
} worker;

// --- invariance ---

static uint32_t vars_of(const worker *w, const kiln_expr *e) {
  uint32_t vars = 0;
  for (int d = 0; d < w->n_around; d++)
    if (kiln_expr_uses(e, w->vars[d])) vars |= 1u << d;
  return vars;
}

static uint32_t index_vars(const worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  uint32_t vars = 0;
  for (int k = 0; k < b->rank; k++) vars |= vars_of(w, index[k]);
  return vars;
}

static bool has(uint32_t vars, int depth) { return vars >> depth & 1; }

// The outermost frame of the phase in which an expression that depends on |vars| can be computed.
static int frame_of(const worker *w, uint32_t vars) {
  int f = w->n_frames - 1;
  for (; f > w->phase_frame; f--)
    for (int d = w->frames[f - 1].depth; d < w->frames[f].depth; d++)
      if (has(vars, d)) return f;
  return f;
}

// The number of times that a warp of a block computes an expression of frame |f| that depends on
// |vars|.
static double times_of(const worker *w, int f, uint32_t vars) {
  double n = 1;
  for (int d = 0; d < w->n_around; d++) {
    const bool is_own = w->kinds[d] == COPIED || w->kinds[d] == LANES;
    if (w->kinds[d] == BLOCK || w->kinds[d] == THREAD) continue;
    if (is_own ? has(vars, d) : d < w->frames[f].depth) n *= (double)w->extents[d];
  }
  return n;
}

// The number of copies of an expression that depends on |vars| in the code: short loops are
// unrolled.
static double copies_of(const worker *w, uint32_t vars) {
  double n = 1;
  for (int d = 0; d < w->n_around; d++)
    if ((w->kinds[d] == COPIED || w->kinds[d] == LANES ||
         (w->kinds[d] == SERIAL && (double)w->extents[d] * n <= WRITTEN_OUT)) &&
        has(vars, d))
      n *= (double)w->extents[d];
  return n;
}

static double warps_of(double threads) { return ceil(threads / WARP); }

static int lanes_at(const worker *w) {
  for (int d = 0; d < w->n_around; d++)
    if (w->kinds[d] == LANES) return d;
  return -1;
}

// --- coalescing ---

static int64_t offset_of(const worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  int64_t at = 0;
  for (int k = 0; k < b->rank; k++)
    at += kiln_expr_at(index[k], w->n_around, w->vars, w->point) * b->strides[k];
  return at * kiln_dtype_bytes(b->dtype);
}

static int axis_of(kiln_how how) { return how - KILN_THREAD_X; }

// Sets the loop variables to middle iterations, and those of thread loops to lane |lane| of the
// first warp; false if that lane is idle.
static bool place_lane(worker *w, int lane) {
  int64_t at[3];
  at[0] = lane % w->nest.shape[0];
  at[1] = lane / w->nest.shape[0] % w->nest.shape[1];
  at[2] = lane / w->nest.shape[0] / w->nest.shape[1];
  for (int d = 0; d < w->n_around; d++) {
    w->point[d] = w->kinds[d] == COPIED || w->kinds[d] == LANES ? 0 : w->extents[d] / 2;
    if (w->kinds[d] != THREAD) continue;
    w->point[d] = at[axis_of(w->hows[d])];
    if (w->point[d] >= w->extents[d]) return false;
  }
  return true;
}

// Bytes of a thread's vector access.
static int64_t word_of(worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  enum { MOST = 16 };
  const int lanes = lanes_at(w), size = kiln_dtype_bytes(b->dtype);
  if (lanes < 0 || !place_lane(w, 0)) return size;
  const int64_t first = offset_of(w, b, index);
  w->point[lanes] = 1;
  if (offset_of(w, b, index) - first != size) return size;
  const int64_t bytes = w->extents[lanes] * size;
  return bytes > MOST ? MOST : bytes;
}

typedef struct met {
  int n;
  int64_t places[4 * WARP];
} met;

static void meet(met *m, int64_t place) {
  for (int i = 0; i < m->n; i++)
    if (m->places[i] == place) return;
  if (m->n < 4 * WARP) m->places[m->n++] = place;
}

typedef struct access {
  double lines;   // 128-byte lines of a warp's access, or rounds through the banks
  double sectors; // different sectors of memory
} access;

static access access_of(worker *w, const kiln_buffer *b, const kiln_expr *const *index,
                        int64_t word) {
  const bool is_shared = b->scope == KILN_SCOPE_SHARED;
  met lines = {0}, sectors = {0};
  for (int lane = 0; lane < WARP; lane++) {
    if (!place_lane(w, lane)) continue;
    const int64_t at = offset_of(w, b, index);
    for (int64_t k = 0; k < word; k += is_shared ? BANK : SECTOR) {
      meet(&lines, (at + k) / (is_shared ? BANK : LINE));
      meet(&sectors, (at + k) / SECTOR);
    }
  }
  if (!is_shared) return (access){lines.n, sectors.n};
  int banks[BANKS] = {0}, most = 1;
  for (int i = 0; i < lines.n; i++) {
    const int at = (int)((lines.places[i] % BANKS + BANKS) % BANKS);
    if (++banks[at] > most) most = banks[at];
  }
  return (access){most, 0};
}

// The share of the iterations of frame |f|'s loop in which an access needs other sectors than in
// the one before.
static double new_share(worker *w, int f, const kiln_buffer *b, const kiln_expr *const *index) {
  const int d = w->frames[f].depth - 1;
  if (f == 0 || d < 0 || w->kinds[d] != SERIAL || !place_lane(w, 0)) return 1;
  w->point[d] = 0;
  const int64_t first = offset_of(w, b, index);
  w->point[d] = 1;
  const double step = fabs((double)(offset_of(w, b, index) - first));
  return fmin(1, step / SECTOR);
}

// --- accesses ---

static double latency_of(const worker *w, const kiln_buffer *b, double share) {
  const kiln_device *d = w->m->device;
  if (b->scope == KILN_SCOPE_SHARED) return kiln_gpu_shared(d)->latency_ns;
  return share * d->levels[1].latency_ns + (1 - share) * L1_NS;
}

// Adds an access of frame |f| for each value of |vars|.
static void add_access(worker *w, int f, const kiln_buffer *b, const kiln_expr *const *index,
                       uint32_t vars, bool is_store) {
  if (kiln_scope_is_private(b->scope)) return;
  const int64_t word = word_of(w, b, index);
  const int lanes = lanes_at(w);
  const double each = kiln_dtype_bytes(b->dtype);
  double n = times_of(w, f, vars);
  if (lanes >= 0 && has(vars, lanes) && (double)word > each)
    n /= fmin((double)w->extents[lanes], (double)word / each);
  const access a = access_of(w, b, index, word);
  const double share = new_share(w, f, b, index), warps = warps_of(w->phase_threads);
  bool is_same = true; // no thread loop is among |vars|, so that all warps access the same
  for (int d = 0; d < w->n_around; d++) is_same &= w->kinds[d] != THREAD || !has(vars, d);
  w->nest.instrs += n * warps * (1 + ADDRESS);
  w->code += (1 + ADDRESS) * copies_of(w, vars);
  w->nest.lines += n * warps * a.lines;
  if (b->scope != KILN_SCOPE_SHARED)
    w->nest.l2_bytes += n * (is_same ? 1 : warps) * a.sectors * SECTOR * share;
  if (!is_store)
    w->frames[f].wait_ns =
        fmax(w->frames[f].wait_ns, latency_of(w, b, share) + (a.lines - 1) / w->m->clock_ghz);
}

// --- expressions ---

static double instrs_of(const kiln_expr *e) {
  const kiln_expr_kind k = e->kind;
  if (k == KILN_EXPR_LOAD || k == KILN_EXPR_VAR || k == KILN_EXPR_INT || k == KILN_EXPR_FLOAT)
    return 0;
  if (e->dtype == KILN_I64) return k == KILN_EXPR_DIV || k == KILN_EXPR_MOD ? QUOTIENT : 0;
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_SQRT) return DIVISION;
  if (k >= KILN_EXPR_EXP && k <= KILN_EXPR_ERF) return FUNCTION;
  if (k == KILN_EXPR_POW || k == KILN_EXPR_ATAN2) return 2 * FUNCTION;
  return 1;
}

static void count_instrs(const kiln_expr *e, void *argument) {
  *(double *)argument += instrs_of(e);
}

double kiln_gpu_instrs_of(kiln_ctx *cx, const kiln_expr *e) {
  double n = 0;
  kiln_expr_visit(cx, e, count_instrs, &n);
  return n;
}

static void add_instrs(worker *w, int f, uint32_t vars, double n) {
  if (n == 0) return;
  const double times = times_of(w, f, vars);
  double serial = 1;
  for (int d = 0; d < w->frames[f].depth; d++)
    if (w->kinds[d] == SERIAL) serial *= (double)w->extents[d];
  w->nest.instrs += n * times * warps_of(w->phase_threads);
  w->code += n * copies_of(w, vars);
  w->frames[f].chain_ns += n * times / serial / w->m->clock_ghz;
}

// Whether some thread of the first warp takes the branch of |cond| that |holds| names, in middle
// iterations of the loops; true if it depends on data.
static bool is_taken(worker *w, const kiln_expr *cond, bool holds) {
  for (int lane = 0; lane < WARP && !cond->has_load; lane++)
    if (place_lane(w, lane) && (kiln_expr_at(cond, w->n_around, w->vars, w->point) != 0) == holds)
      return true;
  return cond->has_load;
}

// Visits each distinct node once.
static void visit(worker *w, const kiln_expr *e) {
  if (kiln_map_find(&w->visited, e->id)) return;
  (void)kiln_map_put(&w->visited, e->id, 0);
  for (int i = 0; i < e->n_args; i++)
    if (e->kind != KILN_EXPR_SELECT || i == 0 || is_taken(w, e->args[0], i == 1))
      visit(w, e->args[i]);
  const uint32_t vars = vars_of(w, e);
  const int f = frame_of(w, vars);
  if (e->kind == KILN_EXPR_LOAD)
    add_access(w, f, w->l->buffers.data[e->u.tensor], e->args, vars, false);
  else add_instrs(w, f, vars, instrs_of(e));
}

// --- loads that unrolled copies share ---

// Whether unrolled copies of |e| may load the same elements: it has several loads of a buffer in
// memory.
static bool may_share(worker *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  for (int i = 1; i < loads.n; i++)
    for (int j = 0; j < i; j++)
      if (loads.data[i]->u.tensor == loads.data[j]->u.tensor &&
          !kiln_scope_is_private(w->l->buffers.data[loads.data[i]->u.tensor]->scope))
        return true;
  return false;
}

static kiln_ranges ranges_of(const worker *w) {
  kiln_ranges r;
  kiln_ranges_init(&r, &w->cx->scratch);
  for (int d = 0; d < w->n_around; d++) kiln_ranges_push(&r, w->vars[d], 0, w->extents[d] - 1);
  return r;
}

// Visits a stored value: copy by copy if there are few and they may share loads, because the
// device's compiler removes common loads.
static void visit_copies(worker *w, const kiln_expr *value) {
  enum { MAX_COPIES = 32 };
  kiln_symbol vars[MAX_AROUND];
  const kiln_expr *values[MAX_AROUND];
  int64_t extents[MAX_AROUND], copies = 1;
  int n = 0;
  for (int d = 0; d < w->n_around; d++) {
    if (w->kinds[d] != COPIED || !kiln_expr_uses(value, w->vars[d])) continue;
    vars[n] = w->vars[d];
    extents[n++] = w->extents[d];
    copies *= w->extents[d];
  }
  if (copies == 1 || copies > MAX_COPIES || !may_share(w, value)) {
    visit(w, value);
    return;
  }
  const kiln_ranges r = ranges_of(w);
  for (int64_t copy = 0; copy < copies; copy++) {
    int64_t rest = copy;
    for (int k = n - 1; k >= 0; k--) {
      values[k] = kiln_int(w->cx, rest % extents[k]);
      rest /= extents[k];
    }
    visit(w, kiln_simplify(w->cx, kiln_expr_substitute(w->cx, value, n, vars, values), &r));
  }
}

// --- statements ---

static void add_store(worker *w, const kiln_loop *n) {
  const kiln_buffer *b = w->l->buffers.data[n->buffer];
  const int f = w->n_frames - 1;
  const uint32_t target = index_vars(w, b, n->index);
  const uint32_t vars = target | vars_of(w, n->value);
  kiln_map_init(&w->visited, &w->cx->scratch);
  visit_copies(w, n->value);
  add_access(w, f, b, n->index, target, true);
  if (n->combiner == KILN_COMBINE_NONE) return;
  const bool is_chain = f > 0 && frame_of(w, target) < f;
  if (!is_chain && !kiln_scope_is_private(b->scope)) add_access(w, f, b, n->index, target, false);
  add_instrs(w, f, vars, 1);
  if (is_chain)
    w->frames[f].chain_ns +=
        SUM_CLOCKS / w->m->clock_ghz + (kiln_scope_is_private(b->scope) ? 0 : latency_of(w, b, 0));
}

// --- loops ---

static void visit_all(worker *w, const kiln_loop *first);

static void push_around(worker *w, const kiln_loop *n, around_kind kind, int64_t extent) {
  const int d = w->n_around++;
  w->vars[d] = n->var;
  w->kinds[d] = kind;
  w->hows[d] = n->how;
  w->extents[d] = extent;
}

static void push_frame(worker *w) {
  w->frames[w->n_frames++] = (frame){.depth = w->n_around, .flat = 1};
}

static void visit_serial(worker *w, const kiln_loop *n, int64_t extent) {
  push_around(w, n, SERIAL, extent);
  push_frame(w);
  visit_all(w, n->body);
  const frame f = w->frames[--w->n_frames];
  frame *outer = &w->frames[w->n_frames - 1];
  w->n_around--;
  const double times = (double)extent;
  if (f.inner_ns == 0 && f.flat * times <= WRITTEN_OUT) { // unrolled
    outer->wait_ns = fmax(outer->wait_ns, f.wait_ns);
    outer->chain_ns += times * f.chain_ns;
    outer->flat *= f.flat * times;
    return;
  }
  const double at_once = f.inner_ns == 0 && f.flat == 1 ? AHEAD : 1;
  outer->inner_ns += ceil(times / at_once) * f.wait_ns + times * (f.chain_ns + f.inner_ns);
}

static double ns_of(const frame *f) { return f->wait_ns + f->chain_ns + f->inner_ns; }

// A phase; its threads meet at a barrier at its end.
static void visit_threads(worker *w, const kiln_loop *n, int64_t extent) {
  const bool is_outermost = w->n_threads++ == 0;
  const double before = w->phase_threads;
  push_around(w, n, THREAD, extent);
  w->phase_threads *= (double)extent;
  if (is_outermost) {
    w->phase_frame = w->n_frames;
    push_frame(w);
  } else w->frames[w->n_frames - 1].depth++;
  visit_all(w, n->body);
  if (is_outermost) {
    const frame f = w->frames[--w->n_frames];
    w->phase_frame = 0;
    w->frames[w->n_frames - 1].inner_ns += ns_of(&f) + BARRIER_NS;
  } else w->frames[w->n_frames - 1].depth--;
  w->phase_threads = before;
  w->n_around--;
  w->n_threads--;
}

static void visit_loop(worker *w, const kiln_loop *n) {
  int64_t extent = 1;
  if (!kiln_expr_is_int(n->extent, &extent) || w->n_around >= MAX_AROUND ||
      w->n_frames > MAX_AROUND)
    w->is_unknown = true;
  if (w->is_unknown || extent <= 0) return;
  if (extent == 1 && !kiln_how_is_thread(n->how)) {
    visit_all(w, n->body); // its variable is 0
    return;
  }
  if (kiln_how_is_thread(n->how)) {
    visit_threads(w, n, extent);
    return;
  }
  if (n->how == KILN_SERIAL) {
    visit_serial(w, n, extent);
    return;
  }
  push_around(w, n,
              n->how == KILN_UNROLLED                        ? COPIED
              : n->how == KILN_VECTORIZED && lanes_at(w) < 0 ? LANES
              : n->how == KILN_VECTORIZED                    ? COPIED
                                                             : BLOCK,
              extent);
  if (w->kinds[w->n_around - 1] == BLOCK) w->frames[w->n_frames - 1].depth++;
  visit_all(w, n->body);
  w->n_around--;
  if (w->kinds[w->n_around] == BLOCK) w->frames[w->n_frames - 1].depth--;
}

static void visit_all(worker *w, const kiln_loop *first) {
  for (const kiln_loop *n = first; n && !w->is_unknown; n = n->next) switch (n->kind) {
    case KILN_LOOP_FOR: visit_loop(w, n); break;
    case KILN_LOOP_IF:
    case KILN_LOOP_ALLOC: visit_all(w, n->body); break;
    case KILN_LOOP_STORE: add_store(w, n); break;
    case KILN_LOOP_INSTR: w->is_unknown = true; break;
    case KILN_LOOP_DEVICE: // not in loops
    case KILN_LOOP_PREFETCH: break;
    }
}

// --- nests ---

// The grid, the block and the shared memory of a nest.
static void measure_nest(const worker *w, const kiln_loop *first, nest *out) {
  for (const kiln_loop *n = first; n; n = n->next) {
    int64_t extent = 1;
    if (n->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(n->extent, &extent);
    if (n->kind == KILN_LOOP_FOR && (kiln_how_is_block(n->how) || n->how == KILN_PARALLEL))
      out->blocks *= (double)extent;
    if (n->kind == KILN_LOOP_FOR && kiln_how_is_thread(n->how) &&
        extent > out->shape[axis_of(n->how)])
      out->shape[axis_of(n->how)] = extent;
    if (n->kind == KILN_LOOP_ALLOC && w->l->buffers.data[n->buffer]->scope == KILN_SCOPE_SHARED)
      out->shared_bytes += (double)kiln_buffer_elems(w->l->buffers.data[n->buffer]) *
                           kiln_dtype_bytes(w->l->buffers.data[n->buffer]->dtype);
    measure_nest(w, n->body, out);
  }
}

// The number of blocks that fit a multiprocessor.
static double resident_of(const worker *w) {
  const kiln_gpu *g = &w->m->gpu;
  const double threads = WARP * warps_of(w->nest.threads);
  double n = fmin(MAX_BLOCKS, floor(g->max_resident / threads));
  if (w->nest.shared_bytes > 0) n = fmin(n, floor((double)g->shared_bytes / w->nest.shared_bytes));
  return fmax(n, 1);
}

// Adds the cost of the nest |n| to |io|.
static void add_nest(worker *w, const kiln_loop *n, kiln_tile_cost *io) {
  const kiln_device *d = w->m->device;
  const int shared = kiln_device_level(d, "shared");
  kiln_loop alone = *n;
  alone.next = NULL;
  w->nest = (nest){.blocks = 1, .shape = {1, 1, 1}};
  measure_nest(w, &alone, &w->nest);
  w->nest.threads = (double)(w->nest.shape[0] * w->nest.shape[1] * w->nest.shape[2]);
  const kiln_mark mark = kiln_arena_mark(&w->cx->scratch);
  w->n_around = w->n_threads = w->phase_frame = 0;
  w->phase_threads = 1;
  w->frames[0] = (frame){.flat = 1};
  w->n_frames = 1;
  visit_all(w, &alone);
  kiln_arena_rewind(&w->cx->scratch, mark);
  const double busy = fmin(w->nest.blocks, d->n_units),
               waves = ceil(w->nest.blocks / (d->n_units * resident_of(w))),
               per_unit = w->nest.blocks / busy / w->m->clock_ghz,
               instrs_ns = w->nest.instrs * per_unit / SCHEDULERS,
               wait_ns = waves * ns_of(&w->frames[0]);
  io->compute_ns += fmax(instrs_ns, wait_ns);
  io->bytes[1] += w->nest.blocks * w->nest.l2_bytes;
  io->level_ns[1] += w->nest.blocks * w->nest.l2_bytes /
                     fmin(d->levels[1].all_bytes_ns, busy * d->levels[1].unit_bytes_ns);
  io->bytes[shared] += w->nest.blocks * w->nest.lines * LINE;
  io->level_ns[shared] += w->nest.lines * per_unit;
}

bool kiln_gpu_work(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l, kiln_tile_cost *io) {
  worker w = {.cx = cx, .m = m, .l = l};
  kiln_tile_cost c = *io;
  const int shared = kiln_device_level(m->device, "shared");
  double nests = 0;
  c.compute_ns = c.level_ns[1] = c.level_ns[shared] = c.bytes[1] = c.bytes[shared] = 0;
  for (const kiln_loop *n = l->body; n && !w.is_unknown; n = n->next, nests++) add_nest(&w, n, &c);
  if (w.is_unknown) return false;
  c.launch_ns =
      m->device->launch_ns + BEGIN_END_NS + (nests - 1) * NEST_NS + w.code * INSTRUCTION_NS;
  c.ns = c.launch_ns; // the template's estimate is known, and is replaced below
  c.ns = kiln_tile_price_of(&c);
  *io = c;
  return true;
}

double kiln_gpu_hidden_ns(const kiln_machine *m) {
  enum { CAPABILITY = 90, HIDDEN_NS = 1600 }; // measured on an H200
  return m->gpu.capability >= CAPABILITY ? HIDDEN_NS : 0;
}
