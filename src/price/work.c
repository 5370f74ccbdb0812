#include "price/work.h"

#include "analysis/point.h"
#include "analysis/simplify.h"

#include <math.h>
#include <string.h>

typedef enum around_kind { SERIAL, COPIED, LANES } around_kind;
typedef struct around { // a loop around the current statement
  kiln_symbol var;
  around_kind kind;
  double n;
} around;

// The straight-line code of one iteration of a serial loop, including code of inner loops that is
// invariant there.
typedef struct frame {
  int depth;    // loops around it, including its own
  int n_guards; // conditions around its loop, which do not count for it
  int epoch;
  const kiln_loop *loop; // NULL: outside of loops
  double multiplies, others, loads, parts, stores;
  double chain;    // dependent sums
  double kept;     // registers of sums
  double missed;   // cache lines that accesses wait for
  double inner_ns; // of the loops inside
} frame;

// A condition, and the share of iterations of the loops in it for which it holds.
typedef struct guard {
  uint64_t vars;
  double share;
} guard;

// Where an expression is computed: its frame, and the loops that it depends on.
typedef struct place {
  int epoch, frame;
  uint64_t vars;
} place;

typedef struct worker {
  kiln_ctx *cx;
  const kiln_loops *l;
  const kiln_work_units *u;
  int n_threads, n_epochs;
  const double *missed; // cache lines, by buffer
  double *accesses;     // vectors and elements of each, from a first pass; NULL in that pass
  double *counted;
  KILN_VEC(around) around;
  KILN_VEC(frame) frames;
  KILN_VEC(guard) guards;
  KILN_VEC(place) places;
  kiln_map known; // place by expression id
  kiln_ranges ranges;
} worker;

// --- invariance ---

static uint64_t vars_of(const worker *w, const kiln_expr *e) {
  uint64_t vars = 0;
  for (int d = 0; d < w->around.n && d < 64; d++)
    if (kiln_expr_uses(e, w->around.data[d].var)) vars |= 1ull << d;
  return vars;
}

static bool has(uint64_t vars, int depth) { return depth < 64 && vars >> depth & 1; }

static int lanes_at(const worker *w) {
  for (int d = 0; d < w->around.n; d++)
    if (w->around.data[d].kind == LANES) return d;
  return -1;
}

// The number of unrolled copies of an expression that depends on |vars| in an iteration of frame
// |f|.
static double copies(const worker *w, int f, uint64_t vars) {
  double n = 1;
  for (int d = w->frames.data[f].depth; d < w->around.n; d++)
    if (w->around.data[d].kind == COPIED && has(vars, d)) n *= w->around.data[d].n;
  for (int i = w->frames.data[f].n_guards; i < w->guards.n; i++) {
    const guard *g = &w->guards.data[i];
    double others = 1; // an invariant expression is computed once if the condition holds anywhere
    for (int d = w->frames.data[f].depth; d < w->around.n; d++)
      if (w->around.data[d].kind == COPIED && has(g->vars, d) && !has(vars, d))
        others *= w->around.data[d].n;
    n *= fmin(1, g->share * others);
  }
  return n;
}

static double vectors(const worker *w, kiln_dtype t, uint64_t vars) {
  const int at = lanes_at(w), wide = kiln_dtype_bytes(t) < 4 ? 4 : kiln_dtype_bytes(t);
  if (at < 0 || !has(vars, at)) return 1;
  return ceil(w->around.data[at].n * wide / w->u->vector_bytes);
}

// The outermost frame in which an expression that depends on |vars| can be computed.
static int frame_of(const worker *w, uint64_t vars) {
  int f = w->frames.n - 1;
  while (f > 0 && !has(vars, w->frames.data[f].depth - 1)) f--;
  return f;
}

static bool writes(const kiln_loop *l, int buffer) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_STORE && l->buffer == buffer) || l->kind == KILN_LOOP_INSTR ||
        writes(l->body, buffer))
      return true;
  return false;
}

// --- conditions ---

// The share of iterations for which |cond| holds, sampled at evenly spread points.
static double share_of(const worker *w, const kiln_expr *cond) {
  enum { POINTS = 64 };
  kiln_symbol vars[64];
  const int n = w->around.n < 64 ? w->around.n : 64;
  int holds = 0;
  for (int d = 0; d < n; d++) vars[d] = w->around.data[d].var;
  for (int i = 0; i < POINTS; i++) {
    int64_t point[64] = {0};
    double at = i + 0.5;
    for (int d = 0; d < n; d++) {
      if (!kiln_expr_uses(cond, vars[d])) continue;
      point[d] = (int64_t)(at / POINTS * w->around.data[d].n);
      at = fmod(at * 29 + 7.25, POINTS);
    }
    holds += kiln_expr_at(cond, n, vars, point) != 0;
  }
  return (double)holds / POINTS;
}

// Without loads, a condition consists of variables and numbers.
static bool is_of_indices(const kiln_expr *cond) { return !cond->has_load; }

// Enters a branch. Conditions that differ between lanes are computed for all lanes.
static void push_guard(worker *w, const kiln_expr *cond, bool holds) {
  guard g = {vars_of(w, cond), 1};
  const int lanes = lanes_at(w);
  if (is_of_indices(cond) && !(lanes >= 0 && has(g.vars, lanes))) {
    const double share = share_of(w, cond);
    g.share = holds ? share : 1 - share;
  }
  KILN_VEC_PUSH(&w->cx->scratch, &w->guards, g);
}

// --- expressions ---

static int64_t step_of(const kiln_expr *e, kiln_symbol var) {
  int64_t c;
  if (e->kind == KILN_EXPR_VAR) return e->u.sym == var;
  if (!kiln_expr_uses(e, var)) return 0;
  if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &c)) {
    const int64_t step = step_of(e->args[0], var);
    return step == INT64_MAX ? step : step * c;
  }
  if (e->kind != KILN_EXPR_ADD && e->kind != KILN_EXPR_SUB) return INT64_MAX;
  const int64_t a = step_of(e->args[0], var), b = step_of(e->args[1], var);
  if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
  return e->kind == KILN_EXPR_ADD ? a + b : a - b;
}

// The stride between lanes in elements; INT64_MAX if it is irregular.
static int64_t lane_step(const worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  const int lanes = lanes_at(w);
  int64_t sum = 0;
  for (int k = 0; k < b->rank && lanes >= 0; k++) {
    const int64_t step = step_of(index[k], w->around.data[lanes].var);
    if (step == INT64_MAX) return step;
    sum += step * b->strides[k];
  }
  return sum;
}

static bool is_run(const kiln_expr *e, kiln_symbol var) {
  int64_t by = 0;
  if (e->kind == KILN_EXPR_ADD)
    return kiln_expr_uses(e->args[0], var)
               ? !kiln_expr_uses(e->args[1], var) && is_run(e->args[0], var)
               : is_run(e->args[1], var);
  return e->kind == KILN_EXPR_DIV && e->args[0]->kind == KILN_EXPR_VAR &&
         e->args[0]->u.sym == var && kiln_expr_is_int(e->args[1], &by) && (by & (by - 1)) == 0;
}

// Whether groups of lanes load one element each, and consecutive groups consecutive elements: a
// short vector whose elements are repeated.
static bool repeats(const worker *w, const kiln_buffer *b, const kiln_expr *const *index) {
  const kiln_symbol var = w->around.data[lanes_at(w)].var;
  bool found = false;
  for (int k = 0; k < b->rank; k++) {
    if (!kiln_expr_uses(index[k], var)) continue;
    if (found || b->strides[k] != 1 || !is_run(index[k], var)) return false;
    found = true;
  }
  return found;
}

// Counts |n| accesses, or in the second pass their share of the missed lines.
static void add_misses(const worker *w, frame *f, const kiln_buffer *b, uint64_t vars, double n) {
  if (!w->missed) return;
  const int lanes = lanes_at(w);
  double runs = n * vectors(w, b->dtype, lanes >= 0 ? vars : 0);
  if (w->accesses) {
    if (w->accesses[b->id] > 0) f->missed += runs * fmin(1, w->missed[b->id] / w->accesses[b->id]);
    return;
  }
  for (int d = 0; d < f->depth; d++)
    if (w->around.data[d].kind == SERIAL) runs *= w->around.data[d].n;
  for (int i = 0; i < f->n_guards; i++) runs *= w->guards.data[i].share;
  w->counted[b->id] += runs;
}

// Adds |n| times an access: of a vector, of one element, or of the lanes one by one.
static void add_access(const worker *w, frame *f, const kiln_buffer *b,
                       const kiln_expr *const *index, bool is_store, uint64_t vars, double n) {
  const int lanes = lanes_at(w);
  if (b->scope == KILN_SCOPE_REGISTER) return;
  add_misses(w, f, b, vars, n);
  double *whole = is_store ? &f->stores : &f->loads;
  if (lanes < 0 || !has(vars, lanes)) {
    *(is_store ? &f->stores : &f->parts) += n;
    return;
  }
  const double bytes = w->around.data[lanes].n * kiln_dtype_bytes(b->dtype);
  if (lane_step(w, b, index) == 1) *whole += n * ceil(bytes / w->u->vector_bytes);
  else if (!is_store && repeats(w, b, index)) {
    f->loads += n * ceil(bytes / w->u->vector_bytes);
    f->others += n * ceil(bytes / w->u->vector_bytes);
  } else if (is_store) f->stores += n * w->around.data[lanes].n;
  else f->parts += 2 * n * w->around.data[lanes].n;
}

// Instructions of an operator on one vector.
static double price_of(const kiln_expr *e) {
  enum { DIVISION = 10, FUNCTION = 20 };
  const kiln_expr_kind k = e->kind;
  if (k == KILN_EXPR_LOAD || k == KILN_EXPR_VAR || k == KILN_EXPR_INT || k == KILN_EXPR_FLOAT)
    return 0;
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_SQRT) return DIVISION;
  if (k >= KILN_EXPR_EXP && k <= KILN_EXPR_ERF) return FUNCTION;
  if (k == KILN_EXPR_POW || k == KILN_EXPR_ATAN2) return 2 * FUNCTION;
  return 1;
}

static bool is_sum(const kiln_expr *e) {
  return e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB;
}

static void add_operator(worker *w, const kiln_expr *e, int at, uint64_t vars) {
  const double n = copies(w, at, vars) * vectors(w, e->dtype, vars);
  frame *f = &w->frames.data[at];
  const bool takes_product =
      is_sum(e) && (e->args[0]->kind == KILN_EXPR_MUL || e->args[1]->kind == KILN_EXPR_MUL);
  if (e->kind == KILN_EXPR_MUL) f->multiplies += n;
  else if (!takes_product) f->others += n * price_of(e); // otherwise it is the sum of an FMA
}

static place visit(worker *w, const kiln_expr *e);

static void join(place *out, place x) {
  out->vars |= x.vars;
  if (x.frame > out->frame) out->frame = x.frame;
}

static place visit_load(worker *w, const kiln_expr *e) {
  const kiln_buffer *b = w->l->buffers.data[e->u.tensor];
  place out = {.vars = vars_of(w, e)};
  for (int k = 0; k < e->n_args; k++)
    if (e->args[k]->has_load) join(&out, visit(w, e->args[k]));
  const int moves = frame_of(w, out.vars);
  if (moves > out.frame) out.frame = moves;
  for (int f = w->frames.n - 1; f > out.frame; f--)
    if (w->frames.data[f].loop && writes(w->frames.data[f].loop->body, b->id)) out.frame = f;
  add_access(w, &w->frames.data[out.frame], b, e->args, false, out.vars,
             copies(w, out.frame, out.vars));
  return out;
}

static place visit_choice(worker *w, const kiln_expr *e) {
  place out =
      is_of_indices(e->args[0]) ? (place){.vars = vars_of(w, e->args[0])} : visit(w, e->args[0]);
  const int moves = frame_of(w, out.vars), lanes = lanes_at(w);
  const bool is_masked = !is_of_indices(e->args[0]) || (lanes >= 0 && has(out.vars, lanes));
  if (moves > out.frame) out.frame = moves;
  for (int k = 1; k < 3; k++) {
    push_guard(w, e->args[0], k == 1);
    join(&out, visit(w, e->args[k]));
    w->guards.n--;
  }
  if (is_masked) add_operator(w, e, out.frame, out.vars);
  return out;
}

static place visit_new(worker *w, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_LOAD) return visit_load(w, e);
  if (e->kind == KILN_EXPR_SELECT) return visit_choice(w, e);
  if (!e->has_load && e->dtype == KILN_I64) {
    const uint64_t vars = vars_of(w, e);
    return (place){.frame = frame_of(w, vars), .vars = vars};
  }
  place out = {0};
  for (int k = 0; k < e->n_args; k++) join(&out, visit(w, e->args[k]));
  add_operator(w, e, out.frame, out.vars);
  return out;
}

// Visits each distinct node once in a piece of straight-line code.
static place visit(worker *w, const kiln_expr *e) {
  const int epoch = w->frames.data[w->frames.n - 1].epoch;
  const uint64_t *at = kiln_map_find(&w->known, e->id);
  if (at && w->places.data[*at].epoch == epoch) return w->places.data[*at];
  place out = visit_new(w, e);
  out.epoch = epoch;
  (void)kiln_map_put(&w->known, e->id, (uint64_t)w->places.n);
  KILN_VEC_PUSH(&w->cx->scratch, &w->places, out);
  return out;
}

// --- statements ---

static double registers_of(const worker *w, const kiln_buffer *b) {
  return ceil((double)(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype)) / w->u->vector_bytes);
}

// A sum into an element that is the same in all iterations depends on the one before.
static void add_chain(const worker *w, frame *f, const kiln_buffer *b, uint64_t target,
                      uint64_t value) {
  double n = 1;
  if (!f->loop || has(target, f->depth - 1)) return;
  for (int d = f->depth; d < w->around.n; d++)
    if (w->around.data[d].kind == COPIED && has(value, d) && !has(target, d))
      n *= w->around.data[d].n;
  f->chain = fmax(f->chain, n);
  if (b->scope == KILN_SCOPE_REGISTER) f->kept += registers_of(w, b);
}

static void add_store(worker *w, const kiln_loop *n) {
  const kiln_buffer *b = w->l->buffers.data[n->buffer];
  const place value = visit(w, n->value);
  const int at = w->frames.n - 1, lanes = lanes_at(w);
  uint64_t target = 0;
  for (int k = 0; k < b->rank; k++) target |= vars_of(w, n->index[k]);
  const double times = copies(w, at, target | value.vars);
  frame *f = &w->frames.data[at];
  add_access(w, f, b, n->index, true, target, times);
  if (n->combiner == KILN_COMBINE_NONE) return;
  add_access(w, f, b, n->index, false, target, times);
  if (n->value->kind != KILN_EXPR_MUL) f->others += times * vectors(w, b->dtype, value.vars);
  if (lanes >= 0 && !has(target, lanes)) f->others += 8 * times; // a reduction over the lanes
  add_chain(w, f, b, target, value.vars);
}

static void add_instr(worker *w, const kiln_loop *n) {
  const kiln_instr *i = n->instr;
  frame *f = &w->frames.data[w->frames.n - 1];
  const double times = copies(w, w->frames.n - 1, ~0ull);
  f->multiplies += times * i->rows * i->vectors;
  f->loads += times * i->vectors;
  f->parts += times * i->rows;
  f->chain = fmax(f->chain, 1);
}

// --- loops ---

// The time of three concurrent units: about the longest, plus up to a fifth as others come close.
static double together(double a, double b, double c) {
  enum { NORM = 4 };
  return pow(pow(a, NORM) + pow(b, NORM) + pow(c, NORM), 1.0 / NORM);
}

// The first misses overlap with other instructions in flight; those of innermost loops are
// prefetched.
static double time_of(const worker *w, const frame *f) {
  const kiln_work_units *u = w->u;
  // then nearly all sums are spilled
  const double spilled = f->kept > u->n_registers - 2 ? f->kept : 0;
  const double arithmetic =
      fmax(f->multiplies * u->multiply_ns, (f->multiplies + f->others) * u->any_ns);
  const double loads = (f->loads + spilled) * u->load_ns + f->parts * u->part_ns;
  const double stores = (f->stores + spilled) * u->store_ns;
  const double here = fmax(together(arithmetic, loads, stores), f->chain * u->latency_ns);
  if (f->inner_ns == 0 || f->missed <= u->n_misses) return here + f->inner_ns;
  return here + f->inner_ns + (f->missed / u->n_misses - 1) * u->miss_ns;
}

static void visit_all(worker *w, const kiln_loop *first);

static double extent_of(worker *w, const kiln_loop *n) {
  const kiln_interval r = kiln_expr_interval(w->cx, n->extent, &w->ranges);
  if (r.hi > INT64_MAX / 2) return 1;
  return ((double)r.hi + (double)(r.lo < 0 ? 0 : r.lo)) / 2;
}

static void push_around(worker *w, const kiln_loop *n, around_kind kind, double extent) {
  KILN_VEC_PUSH(&w->cx->scratch, &w->around, (around){n->var, kind, extent});
  kiln_ranges_push(&w->ranges, n->var, 0, (int64_t)extent - 1);
}

static void pop_around(worker *w) {
  w->around.n--;
  kiln_ranges_pop(&w->ranges, 1);
}

// Unrolled copies of a loop share its iterations. The end of a short loop is predicted, or it is
// unrolled.
static void visit_serial(worker *w, const kiln_loop *n, double extent) {
  enum { FORESEEN = 16 };
  const double times = copies(w, w->frames.n - 1, ~0ull);
  const double share =
      n->how == KILN_PARALLEL && w->frames.n == 1 ? ceil(extent / w->n_threads) : extent;
  push_around(w, n, SERIAL, extent);
  KILN_VEC_PUSH(
      &w->cx->scratch, &w->frames,
      (frame){.depth = w->around.n, .n_guards = w->guards.n, .epoch = ++w->n_epochs, .loop = n});
  visit_all(w, n->body);
  const frame f = w->frames.data[--w->frames.n];
  pop_around(w);
  w->frames.data[w->frames.n - 1].inner_ns +=
      times * (share * time_of(w, &f) + (extent > FORESEEN ? w->u->leave_ns : 0));
  w->frames.data[w->frames.n - 1].epoch = ++w->n_epochs;
}

static void visit_loop(worker *w, const kiln_loop *n) {
  const double extent = extent_of(w, n);
  if (extent <= 0) return;
  if (extent <= 1) { // its variable is 0
    visit_all(w, n->body);
    return;
  }
  const bool is_copied = n->how == KILN_UNROLLED,
             is_lanes = n->how == KILN_VECTORIZED && lanes_at(w) < 0;
  if (!is_copied && !is_lanes) {
    visit_serial(w, n, extent);
    return;
  }
  push_around(w, n, is_copied ? COPIED : LANES, extent);
  visit_all(w, n->body);
  pop_around(w);
}

static void visit_all(worker *w, const kiln_loop *first) {
  for (const kiln_loop *n = first; n; n = n->next) switch (n->kind) {
    case KILN_LOOP_FOR: visit_loop(w, n); break;
    case KILN_LOOP_IF:
      push_guard(w, n->cond, true);
      visit_all(w, n->body);
      w->guards.n--;
      break;
    case KILN_LOOP_STORE: add_store(w, n); break;
    case KILN_LOOP_ALLOC: visit_all(w, n->body); break;
    case KILN_LOOP_INSTR: add_instr(w, n); break;
    case KILN_LOOP_PREFETCH: w->frames.data[w->frames.n - 1].loads++; break;
    case KILN_LOOP_DEVICE: break; // not in loops
    }
}

kiln_work_units kiln_work_units_of(const kiln_machine *m) {
  // An element's load is half of a vector's, which takes both ports; a store is twice of one.
  // A load of an element takes one of two ports, of a vector both; a store takes twice a load's
  // time. At most two of a kind start in a cycle; the latency of the L1 is five.
  enum { MISSES = 16, REFILL_LATENCIES = 4, L1_CYCLES = 5 }; // typical of current cores
  const kiln_device *d = m->device;
  const kiln_mem_level *l1 = &d->levels[d->n_levels - 2];
  const double flops = d->unit_flops_ns[KILN_PEAK_F32], vector = m->vector_bytes;
  const double multiply = 2 * vector / 4 / flops, load = vector / l1->unit_bytes_ns,
               half_cycle = l1->latency_ns / L1_CYCLES / 2;
  return (kiln_work_units){.vector_bytes = m->vector_bytes,
                           .n_registers = m->n_vector_regs,
                           .multiply_ns = multiply,
                           .any_ns = fmax(multiply / 2, half_cycle),
                           .load_ns = load,
                           .part_ns = fmax(load / 2, half_cycle),
                           .store_ns = 2 * load,
                           .latency_ns = l1->latency_ns,
                           .leave_ns = REFILL_LATENCIES * l1->latency_ns,
                           .n_misses = MISSES};
}

static double run_through(kiln_ctx *cx, worker w) {
  kiln_map_init(&w.known, &cx->scratch);
  kiln_ranges_init(&w.ranges, &cx->scratch);
  KILN_VEC_PUSH(&cx->scratch, &w.frames, (frame){.epoch = ++w.n_epochs});
  visit_all(&w, w.l->body);
  return time_of(&w, &w.frames.data[0]);
}

double kiln_tile_work(kiln_ctx *cx, const kiln_loops *l, const kiln_work_units *units,
                      int n_threads, const double *missed) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  worker w = {.cx = cx, .l = l, .u = units, .n_threads = n_threads, .missed = missed};
  w.counted = KILN_NEW_ARRAY(&cx->scratch, double, l->buffers.n + 1);
  if (missed) (void)run_through(cx, w);
  w.accesses = w.counted;
  const double ns = run_through(cx, w);
  kiln_arena_rewind(&cx->scratch, mark);
  return ns;
}
