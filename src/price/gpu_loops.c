#include "price/gpu_loops.h"

#include "analysis/point.h"
#include "analysis/simplify.h"
#include "target/gpu/gpu.h"
#include "target/gpu/instr.h"
#include "target/instr.h"
#include "tile/query.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_AROUND = 32,
  WARP = 32,
  LINE = 128,  // bytes that a warp's access transfers at once
  SECTOR = 32, // bytes that it loads from the L2
  BANKS = 32,  // of shared memory, 4 bytes each
  BANK = 4,
  SCHEDULERS = 4,   // of a multiprocessor: each issues an instruction a clock
  WRITTEN_OUT = 32, // iterations of an unrolled loop, whose loads are all in flight;
  AHEAD = 5,        // of longer loops so many are
  MAX_TRAFFIC = 64,
  MAX_BUFFERS = 64,
  MAX_SAMPLED = 1024 // blocks that are looked at
};
// Instructions of a warp: for a function, a division, an address, a quotient in an address.
static const double FUNCTION = 10, DIVISION = 8, ADDRESS = 2, QUOTIENT = 5;
// Clocks of a dependent sum in a register, of a matrix instruction until its result can be used.
static const double SUM_CLOCKS = 4, MMA_CLOCKS = 33;

typedef enum around_kind { BLOCK, THREAD, SERIAL, COPIED, LANES } around_kind;

// The code of one iteration of a serial loop, or of a phase, that is not invariant in it.
typedef struct frame {
  int depth;           // loops around it, including its own
  double load, shared; // latency of the loads of an iteration, which are in flight together
  double own[KILN_N_GPU_WAITS];   // of dependences
  double inner[KILN_N_GPU_WAITS]; // of inner loops that are not unrolled
  bool has_inner, is_loop;        // |is_loop|: of a serial loop, not of a phase
  double flat;                    // iterations of inner loops that are
  double ahead, arrive; // the fewest iterations that copies are issued ahead, 0: there are none;
                        // their latency
} frame;

// An access to memory, of all blocks.
typedef struct traffic {
  int buffer;
  double bytes;  // of a block
  double shared; // blocks that run together over the different places that they access
  bool is_store;
} traffic;

// A nest, and what each of its blocks does.
typedef struct nest {
  double blocks, threads, registers, shared_bytes; // |registers|: of a thread, others of a block
  int64_t shape[3];
  double unit[KILN_N_GPU_UNITS], l2_bytes;
  int n_traffic;
  traffic traffic[MAX_TRAFFIC];
  double cluster, consumers;
} nest;

typedef struct worker {
  kiln_ctx *cx;
  const kiln_machine *m;
  const double *g; // the machine's figures
  const kiln_gpu_counting *by;
  const kiln_loops *l;
  nest nest;
  double resident;
  int n_around, n_threads; // |n_threads|: the thread loops among those around
  kiln_symbol vars[MAX_AROUND];
  around_kind kinds[MAX_AROUND];
  kiln_how hows[MAX_AROUND];
  int64_t extents[MAX_AROUND], point[MAX_AROUND];
  frame frames[MAX_AROUND + 1];
  int n_frames, phase_frame;
  double phase_threads; // that have work
  double ahead;         // iterations ahead of the copies around; 0: none are
  int ahead_frame;      // of the loop of these iterations
  int alloc_frame[MAX_BUFFERS];
  double code;      // instructions of the code
  kiln_map visited; // nodes of the statement's value
  uint64_t staged;  // bit b: SHARED buffer b has stages
  bool is_async;    // the statement is an asynchronous copy
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
  if (b->scope == KILN_SCOPE_SHARED) return w->by->shared;
  return share * w->by->l2 + (1 - share) * w->by->l1;
}

static int by_offset(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Sets the variables of block loops to those of block |number|, x fastest.
static void place_block(worker *w, int64_t number) {
  for (int axis = 0; axis < 3; axis++)
    for (int d = 0; d < w->n_around; d++)
      if (w->kinds[d] == BLOCK &&
          (w->hows[d] == KILN_PARALLEL ? 0 : (int)w->hows[d] - KILN_BLOCK_X) == axis) {
        w->point[d] = number % w->extents[d];
        number /= w->extents[d];
      }
}

// Blocks that run together over the different places where their accesses begin.
static double sharing_of(worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  int64_t at[MAX_SAMPLED];
  const double together = fmin(w->nest.blocks, w->resident * w->m->device->n_units);
  const int n = (int)fmin(together, MAX_SAMPLED);
  int different = n > 0;
  if (!place_lane(w, 0)) return 1;
  for (int i = 0; i < n; i++) {
    place_block(w, i);
    at[i] = offset_of(w, b, index);
  }
  qsort(at, (size_t)n, sizeof *at, by_offset);
  for (int i = 1; i < n; i++) different += at[i] != at[i - 1];
  return different > 0 ? (double)n / different : 1;
}

static void add_traffic(worker *w, const kiln_buffer *b, const kiln_expr *const *index,
                        double bytes, bool is_store) {
  nest *n = &w->nest;
  n->unit[KILN_GPU_UNIT_L2] += bytes / w->g[KILN_GPU_L2_UNIT];
  n->l2_bytes += bytes;
  if (w->by->is_fine && n->n_traffic < MAX_TRAFFIC)
    n->traffic[n->n_traffic++] = (traffic){b->id, bytes, sharing_of(w, b, index), is_store};
}

static double most(double a, double b) { return a > b ? a : b; }

// Has the result of a load of |b|, whose warp's lanes take so many rounds, waited for in |f|.
static void add_wait(const worker *w, frame *f, const kiln_buffer *b, double share, double rounds) {
  const double time = latency_of(w, b, share) + (rounds - 1) / w->by->clocks;
  double *io = w->by->is_fine && b->scope == KILN_SCOPE_SHARED ? &f->shared : &f->load;
  *io = most(*io, time);
}

// Adds an access of frame |f| for each value of |vars|; |waits|: for its result.
static void add_access(worker *w, int f, const kiln_buffer *b, const kiln_expr *const *index,
                       uint32_t vars, bool is_store, bool waits) {
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
  w->nest.unit[KILN_GPU_UNIT_ISSUE] += n * warps * (1 + ADDRESS) / SCHEDULERS;
  w->code += (1 + ADDRESS) * copies_of(w, vars);
  if (!is_store && waits) add_wait(w, &w->frames[f], b, share, a.lines);
  if (b->scope == KILN_SCOPE_SHARED) {
    // a warp's words of 16 bytes are four rounds, of 8 two
    w->nest.unit[KILN_GPU_UNIT_SHARED] += n * warps * a.lines;
    return;
  }
  w->nest.unit[KILN_GPU_UNIT_LINES] += n * warps * a.lines;
  add_traffic(w, b, index, n * (is_same ? 1 : warps) * a.sectors * SECTOR * share, is_store);
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
  w->nest.unit[KILN_GPU_UNIT_ISSUE] += n * times * warps_of(w->phase_threads) / SCHEDULERS;
  w->code += n * copies_of(w, vars);
  w->frames[f].own[KILN_GPU_WAIT_ISSUE] += n * times / serial / w->by->clocks;
}

// Exponentials, roots and quotients use the unit of special functions, an instruction or two each.
static void add_special(worker *w, int f, uint32_t vars, const kiln_expr *e) {
  const kiln_expr_kind k = e->kind;
  if (e->dtype == KILN_I64 ||
      !(k == KILN_EXPR_DIV || k == KILN_EXPR_SQRT || (k >= KILN_EXPR_EXP && k <= KILN_EXPR_ERF)))
    return;
  w->nest.unit[KILN_GPU_UNIT_SPECIAL] +=
      times_of(w, f, vars) * warps_of(w->phase_threads) * w->g[KILN_GPU_EXP2];
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
  if (e->kind == KILN_EXPR_LOAD) {
    add_access(w, f, w->l->buffers.data[e->u.tensor], e->args, vars, false, !w->is_async);
    return;
  }
  add_instrs(w, f, vars, instrs_of(e));
  add_special(w, f, vars, e);
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

// Whether |n| copies elements of memory to shared memory in words of 16 bytes, ahead of their use;
// zeros in their place by a condition.
static bool is_async_copy(worker *w, const kiln_loop *n) {
  enum { CAPABILITY = 80, WORD = 16 };
  const kiln_buffer *b = w->l->buffers.data[n->buffer];
  const kiln_expr *v = n->value;
  while (v->kind == KILN_EXPR_SELECT && kiln_expr_is_zero(v->args[2])) v = v->args[1];
  return w->m->gpu.capability >= CAPABILITY && b->scope == KILN_SCOPE_SHARED && b->id < 64 &&
         (w->staged >> b->id & 1) && v->kind == KILN_EXPR_LOAD && v->dtype == b->dtype &&
         kiln_scope_is_argument(w->l->buffers.data[v->u.tensor]->scope) &&
         word_of(w, b, n->index) == WORD;
}

// A copy to |b| arrives: iterations later where the copies around are issued ahead, else it is
// waited for once while |b| is live.
static void arrive(worker *w, const kiln_buffer *b, double latency) {
  const int at = w->ahead > 0 ? w->ahead_frame : b->id < MAX_BUFFERS ? w->alloc_frame[b->id] : 0;
  frame *f = &w->frames[at < w->n_frames ? at : 0];
  if (w->ahead > 0 && (f->ahead == 0 || w->ahead < f->ahead)) f->ahead = w->ahead;
  f->arrive = most(f->arrive, latency);
}

static void add_store(worker *w, const kiln_loop *n) {
  const kiln_buffer *b = w->l->buffers.data[n->buffer];
  const int f = w->n_frames - 1;
  const uint32_t target = index_vars(w, b, n->index);
  const uint32_t vars = target | vars_of(w, n->value);
  kiln_map_init(&w->visited, &w->cx->scratch);
  w->is_async = w->by->is_fine && is_async_copy(w, n);
  visit_copies(w, n->value);
  if (w->is_async) arrive(w, b, w->g[KILN_GPU_CP_ASYNC_LATENCY]);
  add_access(w, f, b, n->index, target, true, false);
  w->is_async = false;
  if (n->combiner == KILN_COMBINE_NONE) return;
  const bool is_chain = f > 0 && frame_of(w, target) < f;
  if (!is_chain && !kiln_scope_is_private(b->scope))
    add_access(w, f, b, n->index, target, false, true);
  add_instrs(w, f, vars, 1);
  if (is_chain)
    w->frames[f].own[KILN_GPU_WAIT_SUM] +=
        SUM_CLOCKS / w->by->clocks + (kiln_scope_is_private(b->scope) ? 0 : latency_of(w, b, 0));
}

// --- instructions of warps and warp groups ---

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

// Warps along y and z that execute an instruction.
static double rows_of_warps(const worker *w) {
  double n = 1;
  for (int d = 0; d < w->n_around; d++)
    if (w->kinds[d] == THREAD && w->hows[d] != KILN_THREAD_X) n *= (double)w->extents[d];
  return n;
}

static double executions(const worker *w) {
  double n = 1;
  for (int d = 0; d < w->n_around; d++)
    if (w->kinds[d] != BLOCK && w->kinds[d] != THREAD) n *= (double)w->extents[d];
  return n;
}

// The same, of one iteration of the innermost loop that is not unrolled.
static double executions_in(const worker *w, const frame *f) {
  double n = 1;
  for (int d = f->depth; d < w->n_around; d++)
    if (w->kinds[d] != BLOCK && w->kinds[d] != THREAD) n *= (double)w->extents[d];
  return n;
}

static double mma_clocks_of(const worker *w, const char *name) {
  if (strstr(name, ".tf32")) return w->g[KILN_GPU_MMA_TF32];
  if (strstr(name, ".bf16")) return w->g[KILN_GPU_MMA_BF16];
  return strstr(name, ".f16") ? w->g[KILN_GPU_MMA_F16] : w->g[KILN_GPU_MMA_INT8];
}

static void add_mma(worker *w, const kiln_loop *n) {
  const double each = mma_clocks_of(w, n->instr->name), warps = rows_of_warps(w);
  frame *f = &w->frames[w->n_frames - 1];
  w->nest.unit[KILN_GPU_UNIT_MMA] += executions(w) * warps * each;
  w->nest.unit[KILN_GPU_UNIT_ISSUE] += executions(w) * warps / SCHEDULERS;
  // a warp has the tensor core of its scheduler alone, a quarter of the multiprocessor's
  const double in_row = executions_in(w, f);
  f->own[KILN_GPU_WAIT_MMA] += most(in_row * each * SCHEDULERS, MMA_CLOCKS);
  w->code += 1;
}

static double columns_of(const char *name) {
  const char *n = strstr(name, "m64n");
  return n ? (double)strtoll(n + strlen("m64n"), NULL, 10) : 0;
}

static void add_wgmma(worker *w, const kiln_loop *n) {
  enum { ROWS = 64, INSTR_K = 16, HALF = 2, STEP = 64 };
  const double columns = columns_of(n->instr->name), groups = rows_of_warps(w);
  const int row = (int)(columns / STEP) - 1;
  const double each = w->g[KILN_GPU_WGMMA_64 + (row < 0 ? 0 : row > 3 ? 3 : row)];
  const bool in_lanes = n->instr->fragments[1].lane != NULL;
  frame *f = &w->frames[w->n_frames - 1];
  w->nest.unit[KILN_GPU_UNIT_WGMMA] += executions(w) * groups * each;
  w->nest.unit[KILN_GPU_UNIT_SHARED] +=
      executions(w) * groups * HALF * INSTR_K * ((in_lanes ? 0 : ROWS) + columns) / LINE;
  f->own[KILN_GPU_WAIT_MMA] += executions_in(w, f) * each;
  f->own[KILN_GPU_WAIT_GROUP] += 1;
  w->code += 1;
}

static void add_ldmatrix(worker *w) {
  const double warps = rows_of_warps(w);
  frame *f = &w->frames[w->n_frames - 1];
  double batches = 1; // loops whose iterations each wait for what they load
  for (int d = f->depth; d < w->n_around; d++)
    if (w->kinds[d] == COPIED && d + 1 < w->n_around) batches *= (double)w->extents[d];
  w->nest.unit[KILN_GPU_UNIT_SHARED] += executions(w) * warps * w->g[KILN_GPU_LDMATRIX];
  w->nest.unit[KILN_GPU_UNIT_ISSUE] += executions(w) * warps * (1 + ADDRESS) / SCHEDULERS;
  f->own[KILN_GPU_WAIT_SHARED] += batches * w->g[KILN_GPU_SHARED_LATENCY] / 2; // left and right
  w->code += 1 + ADDRESS;
}

static void add_tma(worker *w, const kiln_loop *n) {
  const kiln_expr *to = n->operands[0], *from = n->operands[1];
  const kiln_buffer *b = w->l->buffers.data[to->u.tensor],
                    *source = w->l->buffers.data[from->u.tensor];
  double rows = 64;
  const char *at = strchr(n->instr->name, '.');
  if (at) rows = (double)strtoll(at + 1, NULL, 10);
  const double bytes = rows * LINE * executions(w);
  w->nest.unit[KILN_GPU_UNIT_SHARED] += bytes / LINE;
  add_traffic(w, source, from->args, bytes, false);
  arrive(w, b, w->g[KILN_GPU_TMA_LATENCY]);
}

// Four lanes of a row exchange what they have reduced.
static void add_quads(worker *w) {
  enum { SHUFFLES = 2, INSTRS = 6 };
  frame *f = &w->frames[w->n_frames - 1];
  const double in_row = executions_in(w, f);
  w->nest.unit[KILN_GPU_UNIT_ISSUE] += executions(w) * rows_of_warps(w) * INSTRS / SCHEDULERS;
  f->own[KILN_GPU_WAIT_SHARED] += SHUFFLES * w->g[KILN_GPU_SHARED_LATENCY];
  f->own[KILN_GPU_WAIT_ISSUE] += in_row * INSTRS;
}

static void add_instr(worker *w, const kiln_loop *n) {
  if (n->instr->is_tma || n->instr->is_im2col) add_tma(w, n);
  else if (kiln_gpu_instr_is_group(n->instr)) add_wgmma(w, n);
  else if (n->instr->combines_rows) add_quads(w);
  else if (begins(n->instr->name, "mma.")) add_mma(w, n);
  else add_ldmatrix(w);
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

static void push_frame(worker *w, bool is_loop) {
  w->frames[w->n_frames++] = (frame){.depth = w->n_around, .flat = 1, .is_loop = is_loop};
}

static double sum_of(const double *waits) {
  double n = 0;
  for (int k = 0; k < KILN_N_GPU_WAITS; k++) n += waits[k];
  return n;
}

// Adds |times| iterations of |f|, |at_once| of which have their loads in flight, to |io|.
static void add_iterations(const frame *f, double times, double at_once, double *io) {
  io[KILN_GPU_WAIT_GLOBAL] += ceil(times / at_once) * f->load;
  io[KILN_GPU_WAIT_SHARED] += ceil(times / at_once) * f->shared;
  for (int k = 0; k < KILN_N_GPU_WAITS; k++) io[k] += times * (f->own[k] + f->inner[k]);
}

// Copies that are issued some iterations ahead are waited for if these take less than the copies.
static void add_arrivals(const frame *f, double times, double *io) {
  const double iteration = sum_of(f->own) + sum_of(f->inner) + f->load + f->shared;
  if (f->arrive <= 0) return;
  io[KILN_GPU_WAIT_AHEAD] += f->arrive;
  if (f->ahead > 0)
    io[KILN_GPU_WAIT_AHEAD] += (times - f->ahead) * most(0, f->arrive / f->ahead - iteration);
}

// The consumers of a loop with a producer warp, which take its iterations in turns; 1: there is no
// such warp.
static double consumers_of(const worker *w, const kiln_loop *n) {
  const char *value = kiln_loop_note(w->cx, n, KILN_WARP_SPECIALIZE_NOTE);
  return value ? (double)strtoll(value, NULL, 10) : 1;
}

static void visit_serial(worker *w, const kiln_loop *n, int64_t extent) {
  push_around(w, n, SERIAL, extent);
  push_frame(w, true);
  visit_all(w, n->body);
  const frame f = w->frames[--w->n_frames];
  frame *outer = &w->frames[w->n_frames - 1];
  const double consumers = consumers_of(w, n);
  w->n_around--;
  const double times = (double)extent;
  if (!f.has_inner && f.arrive == 0 && f.flat * times <= WRITTEN_OUT) { // unrolled
    outer->load = most(outer->load, f.load);
    outer->shared = most(outer->shared, f.shared);
    for (int k = 0; k < KILN_N_GPU_WAITS; k++) outer->own[k] += times * f.own[k];
    outer->flat *= f.flat * times;
    return;
  }
  double inner[KILN_N_GPU_WAITS] = {0};
  add_iterations(&f, times / consumers, !f.has_inner && f.flat == 1 ? AHEAD : 1, inner);
  add_arrivals(&f, times / consumers, inner);
  for (int k = 0; k < KILN_N_GPU_WAITS; k++) outer->inner[k] += inner[k];
  outer->has_inner = true;
}

// A phase; its threads meet at a barrier at its end.
static void visit_threads(worker *w, const kiln_loop *n, int64_t extent) {
  const bool is_outermost = w->n_threads++ == 0;
  const double before = w->phase_threads;
  push_around(w, n, THREAD, extent);
  w->phase_threads *= (double)extent;
  if (is_outermost) {
    w->phase_frame = w->n_frames;
    push_frame(w, false);
  } else w->frames[w->n_frames - 1].depth++;
  visit_all(w, n->body);
  if (is_outermost) {
    const frame f = w->frames[--w->n_frames];
    frame *outer = &w->frames[w->n_frames - 1];
    w->phase_frame = 0;
    add_iterations(&f, 1, 1, outer->inner);
    outer->inner[KILN_GPU_WAIT_BARRIER] += w->by->barrier;
    outer->has_inner = true;
  } else w->frames[w->n_frames - 1].depth--;
  w->phase_threads = before;
  w->n_around--;
  w->n_threads--;
}

// An extent that depends on loops around is taken in their middle iterations.
static int64_t extent_of(worker *w, const kiln_loop *n) {
  int64_t extent = 0;
  if (kiln_expr_is_int(n->extent, &extent)) return extent;
  if (!w->by->is_fine || n->extent->has_load || !place_lane(w, 0)) {
    w->is_unknown = true;
    return 1;
  }
  return kiln_expr_at(n->extent, w->n_around, w->vars, w->point);
}

// Where |n| is a condition `v < c` of a loop of v, copies in it are ahead by as many iterations as
// are left out.
static void visit_if(worker *w, const kiln_loop *n) {
  const kiln_expr *c = n->cond;
  const double before = w->ahead;
  const int frame_before = w->ahead_frame;
  int64_t bound = 0;
  if (c->kind == KILN_EXPR_LT && c->args[0]->kind == KILN_EXPR_VAR &&
      kiln_expr_is_int(c->args[1], &bound))
    for (int f = 0; f < w->n_frames; f++) {
      const int d = w->frames[f].depth - 1;
      if (!w->frames[f].is_loop || d < 0 || w->vars[d] != c->args[0]->u.sym ||
          w->extents[d] <= bound)
        continue;
      w->ahead = (double)(w->extents[d] - bound);
      w->ahead_frame = f;
    }
  visit_all(w, n->body);
  w->ahead = before;
  w->ahead_frame = frame_before;
}

static void visit_loop(worker *w, const kiln_loop *n) {
  int64_t extent = 1;
  if (w->n_around >= MAX_AROUND || w->n_frames > MAX_AROUND) w->is_unknown = true;
  else extent = extent_of(w, n);
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
    case KILN_LOOP_IF: visit_if(w, n); break;
    case KILN_LOOP_ALLOC:
      if (n->buffer < MAX_BUFFERS) w->alloc_frame[n->buffer] = w->n_frames - 1;
      visit_all(w, n->body);
      break;
    case KILN_LOOP_STORE: add_store(w, n); break;
    case KILN_LOOP_INSTR:
      if (w->by->is_fine) add_instr(w, n);
      else w->is_unknown = true;
      break;
    case KILN_LOOP_DEVICE: // not in loops
    case KILN_LOOP_PREFETCH: break;
    }
}

// --- nests ---

static double buffer_bytes(const kiln_buffer *b) {
  return (double)kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
}

// The grid, the block and the shared memory of a nest, its notes, and the buffers that have stages.
static void measure_nest(worker *w, const kiln_loop *first, int n_serial, nest *out) {
  for (const kiln_loop *n = first; n; n = n->next) {
    int64_t extent = 1;
    if (n->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(n->extent, &extent);
    if (n->kind == KILN_LOOP_FOR && (kiln_how_is_block(n->how) || n->how == KILN_PARALLEL))
      out->blocks *= (double)extent;
    if (n->kind == KILN_LOOP_FOR && kiln_how_is_thread(n->how) &&
        extent > out->shape[axis_of(n->how)])
      out->shape[axis_of(n->how)] = extent;
    if (n->kind == KILN_LOOP_ALLOC && w->l->buffers.data[n->buffer]->scope == KILN_SCOPE_SHARED)
      out->shared_bytes += buffer_bytes(w->l->buffers.data[n->buffer]);
    if (n->kind == KILN_LOOP_FOR && n->notes) {
      const char *cluster = kiln_loop_note(w->cx, n, KILN_CLUSTER_NOTE),
                 *consumers = kiln_loop_note(w->cx, n, KILN_WARP_SPECIALIZE_NOTE);
      if (cluster) out->cluster = (double)strtoll(cluster, NULL, 10);
      if (consumers) out->consumers = (double)strtoll(consumers, NULL, 10);
    }
    const bool is_serial = n->kind == KILN_LOOP_FOR && n->how == KILN_SERIAL;
    // stages are filled by a loop around the copy, of which each iteration is a stage, or ahead
    if (n->kind == KILN_LOOP_STORE && n->buffer < 64 && n_serial > 0 && n->index[0] &&
        w->l->buffers.data[n->buffer]->scope == KILN_SCOPE_SHARED &&
        (n->index[0]->kind == KILN_EXPR_MOD || n->index[0]->kind == KILN_EXPR_VAR) &&
        w->l->buffers.data[n->buffer]->rank > 2)
      w->staged |= UINT64_C(1) << n->buffer;
    measure_nest(w, n->body, n_serial + is_serial, out);
  }
}

// Bytes of the L2 and of memory: what is beyond half of the L2 is read anew by each wave of blocks,
// once for those that share it; the rest is read once, or not at all if all of it fits.
static void add_bytes(const worker *w, kiln_gpu_nest_counts *out) {
  const nest *n = &w->nest;
  const double l2 = (double)w->m->l2_bytes;
  double all = 0;
  uint64_t seen[4] = {0};
  for (int i = 0; i < n->n_traffic; i++) {
    const int b = n->traffic[i].buffer & 255;
    if (!(seen[b / 64] >> (b % 64) & 1))
      all += fmin(buffer_bytes(w->l->buffers.data[n->traffic[i].buffer]),
                  n->traffic[i].bytes * n->blocks);
    seen[b / 64] |= UINT64_C(1) << (b % 64);
  }
  for (int i = 0; i < n->n_traffic; i++) {
    const traffic *t = &n->traffic[i];
    const double bytes = t->bytes * n->blocks, own = buffer_bytes(w->l->buffers.data[t->buffer]);
    out->l2_bytes += bytes;
    if (all < 0.6 * l2) continue;
    out->memory_bytes +=
        own < 0.3 * l2 ? fmin(own, bytes) : fmax(fmin(own, bytes), bytes / fmax(t->shared, 1));
  }
}

// The threads, registers and resident blocks of the nest.
static void find_resident(worker *w, const kiln_loop *n) {
  const kiln_gpu_demand d = kiln_gpu_demand_of(w->cx, w->l, n);
  w->nest.threads = (double)d.threads;
  w->nest.registers = (double)d.registers;
  w->resident = fmax(1, (double)kiln_gpu_room(w->m, &d) / w->m->device->n_units);
}

bool kiln_gpu_count_nest(kiln_ctx *cx, const kiln_machine *m, const kiln_gpu_counting *by,
                         const kiln_loops *l, const kiln_loop *n, kiln_gpu_nest_counts *out) {
  worker w = {.cx = cx, .m = m, .g = m->device->gpu, .by = by, .l = l, .phase_threads = 1};
  kiln_loop alone = *n;
  alone.next = NULL;
  w.nest = (nest){.blocks = 1, .shape = {1, 1, 1}, .cluster = 1};
  measure_nest(&w, &alone, 0, &w.nest);
  w.nest.threads = (double)(w.nest.shape[0] * w.nest.shape[1] * w.nest.shape[2]);
  if (by->is_fine) find_resident(&w, &alone);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  w.frames[0] = (frame){.flat = 1};
  w.n_frames = 1;
  visit_all(&w, &alone);
  kiln_arena_rewind(&cx->scratch, mark);
  *out = (kiln_gpu_nest_counts){.blocks = w.nest.blocks,
                                .threads = w.nest.threads,
                                .registers = w.nest.registers,
                                .shared_bytes = w.nest.shared_bytes,
                                .resident = w.resident,
                                .block_l2_bytes = w.nest.l2_bytes,
                                .code = w.code,
                                .cluster = w.nest.cluster,
                                .is_specialized = w.nest.consumers > 0};
  memcpy(out->unit, w.nest.unit, sizeof out->unit);
  add_iterations(&w.frames[0], 1, 1, out->wait);
  add_arrivals(&w.frames[0], 1, out->wait);
  add_bytes(&w, out);
  return !w.is_unknown;
}

bool kiln_gpu_count_loops(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l,
                          kiln_gpu_counts *out) {
  static const double L1_CLOCKS = 35;
  const double *g = m->device->gpu;
  const kiln_gpu_counting by = {.clocks = 1,
                                .shared = g[KILN_GPU_SHARED_LATENCY],
                                .l2 = g[KILN_GPU_L2_LATENCY],
                                .l1 = L1_CLOCKS,
                                .barrier = g[KILN_GPU_BARRIER],
                                .is_fine = true};
  out->n = 0;
  for (const kiln_loop *n = l->body; n; n = n->next) {
    if (out->n == KILN_GPU_MAX_NESTS || !kiln_gpu_count_nest(cx, m, &by, l, n, &out->nests[out->n]))
      return false;
    out->n++;
  }
  return true;
}
