// Runs device loops: the blocks of a cluster at once, warps in turns, threads of a warp in
// lockstep.
#include "target/sim/device.h"

#include "target/gpu/device/device.h"
#include "target/instr.h"
#include "target/sim/clock.h"
#include "target/sim/eval.h"

#include <string.h>

enum {
  MAX_FRAMES = 128,
  MAX_NAMED = 16,
  MAX_GROUP = 128 // threads of an instruction
};

// A list of statements that a warp goes through; frames are its control stack.
typedef struct frame {
  const kiln_loop *next;
  const kiln_loop *owner; // whose body it is
  int64_t i, extent;      // of a serial loop
  uint8_t *was_on;        // threads on before it; NULL: the same
  int64_t row, rows;      // of the role around
  bool is_single;
} frame;

typedef enum wait_kind {
  READY,
  AT_BLOCK,
  AT_CLUSTER,
  AT_NAMED,
  AT_MBARRIER,
  AT_GROUP,
  DONE
} wait_kind;

typedef struct warp {
  int first, n, block; // threads; of the cluster
  frame frames[MAX_FRAMES];
  int depth;
  wait_kind wait;
  const kiln_loop *at; // that it waits at
  int64_t id;          // of the named barrier or mbarrier
  int64_t count;       // threads of it; or the phase that must be over
  int64_t row, rows;   // of its role; |rows| 0: it has none
  int64_t group;
  bool is_single; // the role is one thread, the warp's first
  unsigned bound; // axes of threads and blocks that loops around bind
} warp;

typedef struct mbarrier {
  sim_event made;                // by the block's first thread
  int64_t count, arrived, bytes; // of a phase; in this one; that copies still owe
  int64_t done;                  // phases
  int32_t *sofar, *known;        // clocks of the arrived: in this phase, in completed ones
} mbarrier;

typedef struct named {
  int64_t arrived, count;
  int32_t *known;
} named;

// A copy that has not landed.
typedef struct flight {
  const kiln_loop *by;
  int thread;          // that committed its group (cp.async); -1: it arrives at |mbarrier|
  int32_t group;       // its number
  int mbarrier, space; // the block that gets it
  int n, buffer;
  int64_t *elements;
  kiln_constant *values;
  bool is_over;
} flight;

// A buffer: shared memory of each block, the caller's, or each thread's.
typedef struct cell {
  const kiln_buffer *b;
  int64_t elems, offset; // |offset| in the arena
  int64_t own_bytes;     // from a group of consumers to the next, which has its own; 0: none has
  char *data;            // [copies][elems]
  sim_place *places;     // of the caller's, where the kernel writes it; NULL
  int32_t *stamp;        // of a thread's element: its fences when it was written, plus 1
  sim_event *sums;       // of a thread's element: the instruction that has it
} cell;

typedef struct device_sim {
  sim m; // the first: loads find the others
  const kiln_loops *l;
  const kiln_sim_launch *launch;
  cell *cells;
  int n_threads, n_block_threads, n_blocks, n_warps;
  int64_t arena_bytes;
  sim_place *arena; // [blocks][bytes]
  char *shared;     // [blocks][bytes]
  int64_t *vars;    // [threads][n_vars]
  uint8_t *group;   // [threads]: the number of its group of consumers
  uint8_t *on;      // [threads]: is active in all thread loops around
  warp *warps;
  sim_clocks clocks;
  mbarrier *mbarriers;                                      // [blocks][max_mbarriers]
  int max_mbarriers, first_mbarrier;                        // clocks
  int *mbarrier_at;                                         // [buffers] of the block's
  named *named;                                             // [blocks][MAX_NAMED]
  int32_t *commits, *fences, *group_commits, *group_fences; // [threads]
  KILN_VEC(flight) flights;
  int64_t block0[3];
  int t;               // the thread that computes
  int space;           // the block whose shared memory it accesses
  const kiln_loop *by; // its statement
  int clock;           // whose access it is: its own clock, or an agent's
  int32_t time;
  bool is_async;
  const kiln_loop *instr;                // whose meaning is computed; NULL
  int lanes;                             // first thread of those that do
  const kiln_expr **lane_of, **place_of; // [operands]
  kiln_map fragments;                    // by instruction: its lane_of, and place_of behind
  kiln_map sizes;                        // by statement: the threads of its instructions
} device_sim;

#define FAIL(d, ...) kiln_sim_fail(&(d)->m, __VA_ARGS__)

// --- messages ---

// The line of a statement, without its body.
static const char *text_of(device_sim *d, const kiln_loop *by) {
  if (!by) return "nothing";
  kiln_text t;
  kiln_loop alone = *by;
  kiln_loops one = *d->l;
  alone.next = alone.body = NULL;
  one.body = &alone;
  kiln_text_init(&t, &d->m.cx->scratch);
  kiln_loops_print(d->m.cx, &one, &t);
  const bool has_body =
      by->kind == KILN_LOOP_FOR || by->kind == KILN_LOOP_IF || by->kind == KILN_LOOP_ALLOC;
  for (int lines = has_body ? 3 : 2; lines > 0; lines--) *strrchr(t.data, '\n') = 0;
  return strrchr(t.data, '\n') + 1 + strspn(strrchr(t.data, '\n') + 1, " ");
}

static const char *who(device_sim *d, int clock) {
  kiln_arena *a = &d->m.cx->scratch;
  const int n = d->n_threads;
  if (clock < n) return kiln_arena_printf(a, "thread %d", clock % d->n_block_threads);
  if (clock < 2 * n)
    return kiln_arena_printf(a, "a copy of thread %d", (clock - n) % d->n_block_threads);
  if (clock < d->first_mbarrier)
    return kiln_arena_printf(a, "the instructions of thread %d",
                             (clock - 2 * n) % d->n_block_threads);
  return "a TMA copy";
}

static void fail_race(device_sim *d, const cell *c, int64_t element, bool writes,
                      const sim_event *other) {
  FAIL(d, "buffer %s: race: %s %s element %" PRId64 " in `%s`, which %s is not waited for: `%s`",
       kiln_symbol_text(d->m.cx, c->b->name), who(d, d->clock), writes ? "writes" : "reads",
       element, text_of(d, d->by), who(d, other->clock), text_of(d, other->by));
}

// --- memory ---

static bool is_private(const cell *c) { return kiln_scope_is_private(c->b->scope); }

static char *data_of(device_sim *d, const cell *c, int thread) {
  if (c->b->scope == KILN_SCOPE_SHARED)
    return d->shared + d->space * d->arena_bytes + c->offset + d->group[thread] * c->own_bytes;
  const int64_t bytes = c->elems * kiln_dtype_bytes(c->b->dtype);
  return is_private(c) ? c->data + thread * bytes : c->data;
}

static sim_place *place_of(device_sim *d, const cell *c, int64_t element) {
  const int64_t bytes = kiln_dtype_bytes(c->b->dtype);
  if (c->b->scope == KILN_SCOPE_SHARED)
    return &d->arena[d->space * d->arena_bytes + c->offset + d->group[d->t] * c->own_bytes +
                     element * bytes];
  return c->places ? &c->places[element] : NULL;
}

static sim_event event_of(const device_sim *d) { return (sim_event){d->clock, d->time, d->by}; }

// Checks an access of thread-private memory: instructions in flight, and fences for them.
static void check_private(device_sim *d, const cell *c, int64_t element, bool writes) {
  const int64_t at = d->t * c->elems + element;
  sim_event *sums = &c->sums[at];
  if (d->is_async) {
    if (c->stamp[at] && c->stamp[at] == d->group_fences[d->t] + 1)
      FAIL(d, "buffer %s: `%s` must come behind a wgmma.fence, as thread %d wrote element %" PRId64,
           kiln_symbol_text(d->m.cx, c->b->name), text_of(d, d->by), d->t % d->n_block_threads,
           element);
    if (writes) *sums = event_of(d);
    if (writes) c->stamp[at] = 0;
    return;
  }
  if (sums->by && !sim_knows(&d->clocks, d->t, sums))
    FAIL(d, "buffer %s: thread %d %s element %" PRId64 " in `%s` before it waits for `%s`",
         kiln_symbol_text(d->m.cx, c->b->name), d->t % d->n_block_threads,
         writes ? "writes" : "reads", element, text_of(d, d->by), text_of(d, sums->by));
  if (!writes) return;
  *sums = (sim_event){-1, 0, NULL};
  c->stamp[at] = d->group_fences[d->t] + 1;
}

// Checks an access of memory that threads share.
static void check_shared(device_sim *d, const cell *c, int64_t element, bool writes) {
  const int64_t bytes = c->b->scope == KILN_SCOPE_SHARED ? kiln_dtype_bytes(c->b->dtype) : 1;
  sim_place *p = place_of(d, c, element);
  for (int64_t k = 0; p && k < bytes && d->m.status == KILN_OK; k++) {
    sim_place *one = p + k;
    if (!writes && c->b->scope == KILN_SCOPE_SHARED && !one->is_written)
      FAIL(d, "buffer %s: element %" PRId64 " must be written before `%s` reads it",
           kiln_symbol_text(d->m.cx, c->b->name), element, text_of(d, d->by));
    if (!writes && d->is_async && one->fence && one->writer.clock >= 0 &&
        one->writer.clock < d->n_threads && one->fence == d->fences[one->writer.clock] + 1)
      FAIL(d,
           "buffer %s: `%s` reads element %" PRId64
           ", which `%s` writes without a fence.async behind it",
           kiln_symbol_text(d->m.cx, c->b->name), text_of(d, d->by), element,
           text_of(d, one->writer.by));
    const sim_event *other = writes ? sim_place_write(&d->clocks, one, d->t, event_of(d))
                                    : sim_place_read(d->m.cx, &d->clocks, one, d->t, event_of(d));
    if (other) fail_race(d, c, element, writes, other);
    if (writes) one->fence = d->is_async ? 0 : d->fences[d->t] + 1;
  }
}

static void check(device_sim *d, const cell *c, int64_t element, bool writes) {
  if (d->m.status != KILN_OK) return;
  if (is_private(c)) check_private(d, c, element, writes);
  else check_shared(d, c, element, writes);
}

static int64_t element_of(device_sim *d, const cell *c, const kiln_expr *const *index) {
  int64_t element = 0;
  for (int k = 0; k < c->b->rank && d->m.status == KILN_OK; k++) {
    const int64_t i = kiln_sim_eval_index(&d->m, index[k]);
    if (i < 0 || i >= c->b->extents[k])
      FAIL(d, "buffer %s: index %d must lie in [0, %" PRId64 "), got %" PRId64 " in `%s`",
           kiln_symbol_text(d->m.cx, c->b->name), k, c->b->extents[k], i, text_of(d, d->by));
    else element += i * c->b->strides[k];
  }
  return element;
}

static kiln_constant fetch(device_sim *d, const cell *c, int64_t element) {
  const kiln_dtype t = c->b->dtype;
  kiln_constant v = {.dtype = kiln_dtype_is_half(t) ? KILN_F32 : t};
  if (d->m.status != KILN_OK) return v;
  check(d, c, element, false);
  const void *data = data_of(d, c, d->t);
  if (kiln_dtype_is_float(t)) v.f = kiln_element_get(t, data, element);
  else v.i = kiln_element_get_int(t, data, element);
  return v;
}

static void set(device_sim *d, const cell *c, int64_t element, kiln_constant v) {
  void *data = data_of(d, c, d->t);
  if (d->m.status != KILN_OK) return;
  if (kiln_dtype_is_float(c->b->dtype)) kiln_element_set(c->b->dtype, data, element, v.f);
  else kiln_element_set_int(c->b->dtype, data, element, v.i);
}

// Writes |v|. Overlapping tiles write equal values again, which is no race.
static void store(device_sim *d, const cell *c, int64_t element, kiln_constant v) {
  enum { WIDEST = 8 };
  if (d->m.status != KILN_OK) return;
  const int bytes = kiln_dtype_bytes(c->b->dtype);
  const char *at = data_of(d, c, d->t) + element * bytes;
  char before[WIDEST];
  memcpy(before, at, (size_t)bytes);
  set(d, c, element, v);
  const bool is_there = c->places && c->places[element].is_written;
  if (!is_there || memcmp(before, at, (size_t)bytes) != 0) check(d, c, element, true);
}

static void become(device_sim *d, int thread, const kiln_loop *by) {
  d->t = thread;
  d->space = thread / d->n_block_threads;
  d->by = by;
  d->clock = thread;
  d->time = sim_clock_of(&d->clocks, thread)[thread];
  d->is_async = false;
  d->m.vars = d->vars + (int64_t)thread * d->m.n_vars;
}

// --- instructions ---

// The thread that has element |at| of operand |i|'s tile, and its place there.
static int64_t operand_place(device_sim *d, int i, int rank, const int64_t *at, const cell **out) {
  const kiln_expr *o = d->instr->operands[i];
  *out = &d->cells[o->u.tensor];
  for (int k = 0; k < rank; k++) d->m.vars[kiln_tile_var(d->m.cx, k)] = at[k];
  if (!d->lane_of[i]) return element_of(d, *out, o->args);
  const int64_t lane = kiln_sim_eval_index(&d->m, d->lane_of[i]),
                place = kiln_sim_eval_index(&d->m, d->place_of[i]);
  const int clock = d->clock;
  const int32_t time = d->time;
  const bool is_async = d->is_async;
  become(d, d->lanes + (int)lane, d->instr);
  if (is_async) d->clock = clock, d->time = time, d->is_async = true;
  return element_of(d, *out, o->args) + place;
}

// The thread or agent that accesses memory.
typedef struct identity {
  int t, space, clock;
  int32_t time;
  bool is_async;
  int64_t *vars;
  const kiln_loop *instr;
} identity;

static identity identity_of(const device_sim *d) {
  return (identity){d->t, d->space, d->clock, d->time, d->is_async, d->m.vars, d->instr};
}

static void become_again(device_sim *d, const identity *i) {
  d->t = i->t;
  d->space = i->space;
  d->clock = i->clock;
  d->time = i->time;
  d->is_async = i->is_async;
  d->m.vars = i->vars;
  d->instr = i->instr;
}

static kiln_constant load(sim *m, const kiln_expr *e) {
  device_sim *d = (device_sim *)(void *)m;
  const cell *c = NULL;
  int64_t at[KILN_MAX_TILE_RANK];
  if (!d->instr) {
    c = &d->cells[e->u.tensor];
    return fetch(d, c, element_of(d, c, e->args));
  }
  const identity before = identity_of(d);
  for (int k = 0; k < e->n_args; k++) at[k] = kiln_sim_eval_index(m, e->args[k]);
  const int64_t element = operand_place(d, e->u.tensor, e->n_args, at, &c);
  d->instr = NULL;
  const kiln_constant v = fetch(d, c, element);
  become_again(d, &before);
  return v;
}

static void compute(device_sim *d, const kiln_loop *meaning);

static void compute_store(device_sim *d, const kiln_loop *s) {
  const int rank = d->instr->instr->loops->buffers.data[s->buffer]->rank;
  const identity before = identity_of(d);
  int64_t at[KILN_MAX_TILE_RANK];
  const cell *c = NULL;
  for (int k = 0; k < rank; k++) at[k] = kiln_sim_eval_index(&d->m, s->index[k]);
  kiln_constant v = kiln_sim_eval(&d->m, s->value);
  const int64_t element = operand_place(d, s->buffer, rank, at, &c);
  d->instr = NULL;
  if (s->combiner != KILN_COMBINE_NONE)
    v = kiln_sim_combine(&d->m, s->combiner, fetch(d, c, element), v);
  store(d, c, element, v);
  become_again(d, &before);
}

static void compute(device_sim *d, const kiln_loop *meaning) {
  for (const kiln_loop *n = meaning; n && d->m.status == KILN_OK; n = n->next) {
    if (n->kind == KILN_LOOP_STORE) compute_store(d, n);
    if (n->kind != KILN_LOOP_FOR) continue;
    const int64_t extent = kiln_sim_eval_index(&d->m, n->extent);
    for (int64_t i = 0; i < extent && d->m.status == KILN_OK; i++) {
      d->m.vars[n->var] = i;
      compute(d, n->body);
    }
  }
}

static const kiln_expr *parsed(device_sim *d, const char *text) {
  const kiln_expr *e = NULL;
  if (text) (void)kiln_expr_parse(d->m.cx, &text, NULL, &e);
  return e;
}

static bool is_async(const kiln_instr *i) { return i->swizzled && !i->is_tma; }

static void find_fragments(device_sim *d, const kiln_instr *instr) {
  const uint64_t key = (uint64_t)(uintptr_t)instr;
  const uint64_t *known = kiln_map_find(&d->fragments, key);
  if (known) d->lane_of = (const kiln_expr **)(uintptr_t)*known;
  else d->lane_of = KILN_NEW_ARRAY(&d->m.cx->perm, const kiln_expr *, 2 * KILN_MAX_OPERANDS);
  d->place_of = d->lane_of + KILN_MAX_OPERANDS;
  if (known) return;
  for (int i = 0; i < KILN_MAX_OPERANDS; i++) {
    d->lane_of[i] = parsed(d, instr->fragments[i].lane);
    d->place_of[i] = parsed(d, instr->fragments[i].element);
  }
  kiln_map_put(&d->fragments, key, (uint64_t)(uintptr_t)d->lane_of);
}

static int agent_of_group(const device_sim *d, int thread) { return 2 * d->n_threads + thread; }

// An instruction of the threads from |first| on.
static void run_instr(device_sim *d, const kiln_loop *l, int first) {
  become(d, first, l);
  find_fragments(d, l->instr);
  d->instr = l;
  d->lanes = first;
  if (is_async(l->instr)) {
    d->is_async = true;
    d->clock = agent_of_group(d, first);
    d->time = d->group_commits[first] + 1;
  }
  compute(d, l->instr->loops->body);
  d->instr = NULL;
}

// --- copies in flight ---

static flight *take_off(device_sim *d, const kiln_loop *by, int buffer, int room) {
  kiln_arena *a = &d->m.cx->scratch;
  flight f = {.by = by, .thread = -1, .buffer = buffer};
  f.elements = KILN_NEW_ARRAY(a, int64_t, room);
  f.values = KILN_NEW_ARRAY(a, kiln_constant, room);
  KILN_VEC_PUSH(a, &d->flights, f);
  return &d->flights.data[d->flights.n - 1];
}

static void add(device_sim *d, flight *f, int64_t element, kiln_constant v) {
  check(d, &d->cells[f->buffer], element, true);
  f->elements[f->n] = element;
  f->values[f->n++] = v;
}

static void land(device_sim *d, flight *f, int thread) {
  become(d, thread, f->by);
  if (f->thread < 0) d->space = f->space;
  for (int i = 0; i < f->n; i++) set(d, &d->cells[f->buffer], f->elements[i], f->values[i]);
  f->is_over = true;
}

static kiln_constant zero_of(kiln_dtype t) {
  return (kiln_constant){.dtype = kiln_dtype_is_half(t) ? KILN_F32 : t};
}

// copy.async of thread |t|
static void begin_copy(device_sim *d, const kiln_loop *l, int t) {
  enum { BYTES = 16 };
  become(d, t, l);
  const kiln_expr *to = l->operands[0], *from = l->operands[1];
  const cell *a = &d->cells[to->u.tensor], *b = &d->cells[from->u.tensor];
  const int n = BYTES / kiln_dtype_bytes(a->b->dtype);
  const bool is = !l->cond || kiln_sim_eval(&d->m, l->cond).i != 0;
  const int64_t first = element_of(d, a, to->args), source = is ? element_of(d, b, from->args) : 0;
  d->clock = d->n_threads + t;
  d->time = d->commits[t] + 1;
  flight *f = take_off(d, l, to->u.tensor, n);
  f->thread = t;
  f->group = d->time;
  if (first + n > a->elems || (is && source + n > b->elems))
    FAIL(d, "buffer %s: `%s` must copy %d bytes within it", kiln_symbol_text(d->m.cx, a->b->name),
         text_of(d, l), BYTES);
  for (int i = 0; i < n && d->m.status == KILN_OK; i++)
    add(d, f, first + i, is ? fetch(d, b, source + i) : zero_of(a->b->dtype));
}

static int mbarrier_of(device_sim *d, const kiln_expr *e) {
  const cell *c = &d->cells[e->u.tensor];
  const int block = d->t / d->n_block_threads;
  return block * d->max_mbarriers + d->mbarrier_at[e->u.tensor] + (int)element_of(d, c, e->args);
}

// The rows of a tile from |first| to |end|, to the shared memory of block |space|.
static void begin_rows(device_sim *d, const kiln_loop *l, int t, int space, int64_t first,
                       int64_t end) {
  const kiln_expr *to = l->operands[0], *from = l->operands[1];
  const cell *a = &d->cells[to->u.tensor], *b = &d->cells[from->u.tensor];
  const int64_t columns = l->instr->loops->buffers.data[1]->extents[1];
  const kiln_symbol row = kiln_tile_var(d->m.cx, 0), column = kiln_tile_var(d->m.cx, 1);
  become(d, t, l);
  const int at = mbarrier_of(d, l->operands[2]) + (space - d->space) * d->max_mbarriers;
  d->is_async = true;
  d->space = space;
  d->clock = d->first_mbarrier + at;
  d->time = (int32_t)d->mbarriers[at].done + 1;
  flight *f = take_off(d, l, to->u.tensor, (int)((end - first) * columns));
  f->mbarrier = at;
  f->thread = -1 - t;
  f->space = space;
  for (int64_t i = first; i < end; i++)
    for (int64_t k = 0; k < columns && d->m.status == KILN_OK; k++) {
      d->m.vars[row] = i;
      d->m.vars[column] = k;
      const bool is = !l->cond || kiln_sim_eval(&d->m, l->cond).i != 0;
      add(d, f, element_of(d, a, to->args),
          is ? fetch(d, b, element_of(d, b, from->args)) : zero_of(a->b->dtype));
    }
}

// A TMA copy of thread |t|, to the mbarrier that is its third operand; with multicast of some rows,
// to all blocks that share them.
static void begin_tma(device_sim *d, const kiln_loop *l, int t) {
  const int64_t rows = l->instr->loops->buffers.data[1]->extents[0];
  become(d, t, l);
  if (l->n_operands < 3) {
    FAIL(d, "`%s` must name the mbarrier that it lands at", text_of(d, l));
    return;
  }
  if (l->n_operands == 3) {
    begin_rows(d, l, t, d->space, 0, rows);
    return;
  }
  const int rank = d->space;
  const unsigned peers =
      (unsigned)((uint64_t)kiln_sim_eval_index(&d->m, l->operands[3]) >> 8 * rank) & 255;
  const int64_t each = rows / __builtin_popcount(peers),
                first = each * __builtin_popcount(peers & ((1u << rank) - 1));
  for (int p = 0; p < d->n_blocks; p++)
    if (peers >> p & 1) begin_rows(d, l, t, p, first, first + each);
}

// --- mbarriers ---

static void complete(device_sim *d, mbarrier *m) {
  if (m->arrived < m->count || m->bytes) return;
  m->arrived = 0;
  m->done++;
  sim_clock_join(&d->clocks, m->known, m->sofar);
  m->known[d->first_mbarrier + (int)(m - d->mbarriers)] = (int32_t)m->done;
}

// Whether thread |t| knows that |m| is initialised.
static bool check_made(device_sim *d, const kiln_loop *l, const mbarrier *m, int t) {
  const bool knows = m->count > 0 && sim_knows(&d->clocks, t, &m->made);
  if (!knows)
    FAIL(d, "`%s` must come behind a barrier behind the initialisation of its mbarrier",
         text_of(d, l));
  return knows;
}

static void arrive(device_sim *d, const kiln_loop *l, int at, int first, int n) {
  mbarrier *m = &d->mbarriers[at];
  if (!check_made(d, l, m, first)) return;
  for (int t = first; t < first + n; t++) {
    sim_clock_join(&d->clocks, m->sofar, sim_clock_of(&d->clocks, t));
    sim_clock_tick(&d->clocks, t);
  }
  m->arrived++;
  if (m->arrived > m->count)
    FAIL(d, "`%s` arrives at an mbarrier at which all %" PRId64 " have arrived in this phase",
         text_of(d, l), m->count);
  complete(d, m);
}

// --- phases: statements without waits ---

static bool is_phase_op(const kiln_loop *l) {
  if (l->kind != KILN_LOOP_DEVICE) return true;
  const kiln_device_kind k = l->op->kind;
  return k == KILN_DEVICE_COPY_ASYNC || k == KILN_DEVICE_MBARRIER_EXPECT ||
         k == KILN_DEVICE_ROLE_LEADERS || k == KILN_DEVICE_ROLE_WARP;
}

// Whether |l| holds no waits, siblings left out.
static bool is_leaf(const kiln_loop *l) {
  if (!is_phase_op(l) || (l->kind == KILN_LOOP_FOR && (int)l->how >= KILN_BLOCK_X)) return false;
  for (const kiln_loop *c = l->body; c; c = c->next)
    if (!is_leaf(c)) return false;
  return true;
}

static void run_phase(device_sim *d, const kiln_loop *list, int first, int n, const uint8_t *on);

static void run_phase_for(device_sim *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  int64_t extents[MAX_GROUP] = {0}, most = 0;
  uint8_t now[MAX_GROUP] = {0};
  for (int k = 0; k < n; k++) {
    if (!on[k]) continue;
    become(d, first + k, l);
    extents[k] = kiln_sim_eval_index(&d->m, l->extent);
    if (extents[k] > most) most = extents[k];
  }
  for (int64_t i = 0; i < most && d->m.status == KILN_OK; i++) {
    for (int k = 0; k < n; k++) {
      now[k] = on[k] && i < extents[k];
      d->vars[(int64_t)(first + k) * d->m.n_vars + l->var] = i;
    }
    run_phase(d, l->body, first, n, now);
  }
}

static void run_phase_if(device_sim *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  uint8_t now[MAX_GROUP] = {0};
  bool any = false;
  for (int k = 0; k < n; k++) {
    if (!on[k]) continue;
    become(d, first + k, l);
    any |= now[k] = kiln_sim_eval(&d->m, l->cond).i != 0;
  }
  if (any) run_phase(d, l->body, first, n, now);
}

static void run_store(device_sim *d, const kiln_loop *l, int t) {
  become(d, t, l);
  const cell *c = &d->cells[l->buffer];
  kiln_constant v = kiln_sim_eval(&d->m, l->value);
  const int64_t element = element_of(d, c, l->index);
  if (l->combiner != KILN_COMBINE_NONE)
    v = kiln_sim_combine(&d->m, l->combiner, fetch(d, c, element), v);
  store(d, c, element, v);
}

static void expect(device_sim *d, const kiln_loop *l, int t) {
  become(d, t, l);
  const int at = mbarrier_of(d, l->operands[0]);
  d->mbarriers[at].bytes += kiln_sim_eval_index(&d->m, l->operands[1]);
  arrive(d, l, at, t, 1);
}

static void run_one(device_sim *d, const kiln_loop *l, int t) {
  if (l->kind == KILN_LOOP_STORE) run_store(d, l, t);
  else if (kiln_device_is(l, KILN_DEVICE_COPY_ASYNC)) begin_copy(d, l, t);
  else if (kiln_device_is(l, KILN_DEVICE_MBARRIER_EXPECT)) expect(d, l, t);
  else if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) begin_tma(d, l, t);
}

// role.leaders, role.warp: some lanes alone
static void run_some(device_sim *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  uint8_t now[MAX_GROUP] = {0};
  for (int k = 0; k < n; k++) {
    const int64_t x = (first + k) % d->n_block_threads % d->launch->block[0];
    if (!on[k]) continue;
    become(d, first + k, l);
    now[k] = l->op->kind == KILN_DEVICE_ROLE_LEADERS
                 ? x % d->launch->warp == 0
                 : x / d->launch->warp == kiln_sim_eval_index(&d->m, l->operands[0]);
  }
  run_phase(d, l->body, first, n, now);
}

static void run_phase(device_sim *d, const kiln_loop *list, int first, int n, const uint8_t *on) {
  for (const kiln_loop *l = list; l && d->m.status == KILN_OK; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) run_phase_for(d, l, first, n, on);
    else if (l->kind == KILN_LOOP_IF) run_phase_if(d, l, first, n, on);
    else if (l->kind == KILN_LOOP_ALLOC) run_phase(d, l->body, first, n, on);
    else if (l->kind == KILN_LOOP_DEVICE && l->op->has_body) run_some(d, l, first, n, on);
    else if (kiln_instr_is_warps(l)) {
      if (on[0]) run_instr(d, l, first);
    } else
      for (int k = 0; k < n; k++)
        if (on[k]) run_one(d, l, first + k);
  }
}

// --- where threads are ---

static int64_t coordinate(const device_sim *d, const warp *w, int thread, int axis) {
  const int64_t *b = d->launch->block;
  const int64_t in = thread % d->n_block_threads, at = axis == 0   ? in % b[0]
                                                       : axis == 1 ? in / b[0] % b[1]
                                                                   : in / (b[0] * b[1]);
  return axis == 1 && w->rows ? (at - w->row) % w->rows : at;
}

static int64_t block_at(const device_sim *d, int thread, int axis) {
  return d->block0[axis] + (axis == 0 ? thread / d->n_block_threads : 0);
}

enum { THREADS = 1, BLOCKS = 8 };

static bool holds_warps(const kiln_loop *l) {
  if (kiln_instr_is_warps(l)) return true;
  for (l = l->body; l; l = l->next)
    if (holds_warps(l)) return true;
  return false;
}

// Whether the thread runs statements outside of loops over some axes: the first along each does.
static bool is_first(const device_sim *d, const warp *w, const kiln_loop *l, int thread) {
  for (int axis = 0; axis < 3; axis++) {
    if (!(w->bound & (unsigned)BLOCKS << axis) && block_at(d, thread, axis)) return false;
    if (axis == 0 && (holds_warps(l) || kiln_device_is(l, KILN_DEVICE_ROLE_LEADERS))) continue;
    if (!(w->bound & (unsigned)THREADS << axis) && coordinate(d, w, thread, axis)) return false;
  }
  return true;
}

static int threads_of(device_sim *d, const kiln_loop *l) {
  const kiln_buffer *tile = l->instr->loops->buffers.data[0];
  find_fragments(d, l->instr);
  become(d, 0, l);
  for (int k = 0; k < tile->rank; k++) d->m.vars[kiln_tile_var(d->m.cx, k)] = tile->extents[k] - 1;
  return kiln_sim_eval_index(&d->m, d->lane_of[0]) >= d->launch->warp ? MAX_GROUP : d->launch->warp;
}

static int most_threads(device_sim *d, const kiln_loop *l) {
  if (kiln_instr_is_warps(l)) return threads_of(d, l);
  int most = 0;
  for (l = l->body; l; l = l->next) {
    const int n = most_threads(d, l);
    if (n > most) most = n;
  }
  return most;
}

// The threads that carry out an instruction in |l| together.
static int group_size(device_sim *d, const kiln_loop *l) {
  const uint64_t key = (uint64_t)(uintptr_t)l;
  const uint64_t *known = kiln_map_find(&d->sizes, key);
  if (known) return (int)*known;
  const int n = most_threads(d, l);
  kiln_map_put(&d->sizes, key, (uint64_t)n);
  return n;
}

static void run_leaf(device_sim *d, const warp *w, const kiln_loop *l, int first, int n) {
  kiln_loop one = *l;
  uint8_t on[MAX_GROUP] = {0};
  one.next = NULL;
  for (int k = 0; k < n; k++) {
    const int t = first + k;
    on[k] = d->on[t] && (w->is_single ? t == w->first : is_first(d, w, l, t));
  }
  kiln_loop *kept = KILN_NEW(&d->m.cx->scratch, kiln_loop);
  *kept = one;
  run_phase(d, kept, first, n, on);
}

// --- control ---

static void push(device_sim *d, warp *w, const kiln_loop *owner, int64_t extent, uint8_t *was_on) {
  if (w->depth == MAX_FRAMES) FAIL(d, "loops must be at most %d deep", MAX_FRAMES);
  else
    w->frames[w->depth++] = (frame){.next = owner->body,
                                    .owner = owner,
                                    .extent = extent,
                                    .was_on = was_on,
                                    .row = w->row,
                                    .rows = w->rows,
                                    .is_single = w->is_single};
}

static uint8_t *save_on(device_sim *d, const warp *w) {
  uint8_t *was = KILN_NEW_ARRAY(&d->m.cx->scratch, uint8_t, w->n);
  memcpy(was, d->on + w->first, (size_t)w->n);
  return was;
}

static void set_var(device_sim *d, const warp *w, kiln_symbol var, int64_t value) {
  for (int t = w->first; t < w->first + w->n; t++) d->vars[(int64_t)t * d->m.n_vars + var] = value;
}

static void enter_threads(device_sim *d, warp *w, const kiln_loop *l) {
  const int axis = (int)l->how - KILN_THREAD_X;
  uint8_t *was = save_on(d, w);
  for (int t = w->first; t < w->first + w->n; t++) {
    become(d, t, l);
    const int64_t at = coordinate(d, w, t, axis);
    d->m.vars[l->var] = at;
    d->on[t] &= at < kiln_sim_eval_index(&d->m, l->extent);
  }
  w->bound |= (unsigned)THREADS << axis;
  push(d, w, l, 1, was);
}

static void enter_blocks(device_sim *d, warp *w, const kiln_loop *l) {
  const int axis = (int)l->how - KILN_BLOCK_X;
  const int64_t at = block_at(d, w->first, axis);
  set_var(d, w, l->var, at);
  become(d, w->first, l);
  if (at >= kiln_sim_eval_index(&d->m, l->extent)) return;
  w->bound |= (unsigned)BLOCKS << axis;
  push(d, w, l, 1, NULL);
}

static bool holds_waits(const kiln_loop *l) {
  if (!is_phase_op(l)) return true;
  for (l = l->body; l; l = l->next)
    if (holds_waits(l)) return true;
  return false;
}

// The largest value of |e|, of the control |l|, in the active threads of a warp; -1: none is
// active. *out_parts: the values differ (divergence), an error if statements within wait.
static int64_t most_of(device_sim *d, const warp *w, const kiln_loop *l, const kiln_expr *e,
                       bool *out_parts) {
  int64_t most = -1;
  const int n = w->is_single ? 1 : w->n;
  *out_parts = false;
  for (int t = w->first; t < w->first + n && d->m.status == KILN_OK; t++) {
    if (!d->on[t]) continue;
    become(d, t, l);
    const int64_t own = kiln_sim_eval_index(&d->m, e);
    *out_parts |= most >= 0 && own != most;
    if (own > most) most = own;
  }
  if (*out_parts && holds_waits(l))
    FAIL(d, "`%s` parts the threads of a warp, which wait for others within", text_of(d, l));
  return most;
}

// Leaves those threads of |was_on| active that have an iteration |i|.
static void part(device_sim *d, const warp *w, const kiln_loop *l, const kiln_expr *e, int64_t i,
                 const uint8_t *was_on) {
  for (int k = 0; k < w->n; k++) {
    become(d, w->first + k, l);
    d->on[w->first + k] = was_on[k] && i < kiln_sim_eval_index(&d->m, e);
  }
}

static void enter_control(device_sim *d, warp *w, const kiln_loop *l) {
  const kiln_expr *e = l->kind == KILN_LOOP_IF ? l->cond : l->extent;
  bool parts = false;
  const int64_t most = most_of(d, w, l, e, &parts);
  uint8_t *was_on = parts ? save_on(d, w) : NULL;
  if (most <= 0 || d->m.status != KILN_OK) return;
  if (parts) part(d, w, l, e, 0, was_on);
  if (l->kind == KILN_LOOP_FOR) set_var(d, w, l->var, 0);
  push(d, w, l, l->kind == KILN_LOOP_IF ? 1 : most, was_on);
}

static void enter(device_sim *d, warp *w, const kiln_loop *l) {
  if (l->kind == KILN_LOOP_ALLOC) push(d, w, l, 1, NULL);
  else if (l->kind == KILN_LOOP_IF) enter_control(d, w, l);
  else if (kiln_how_is_thread(l->how)) enter_threads(d, w, l);
  else if (kiln_how_is_block(l->how)) enter_blocks(d, w, l);
  else enter_control(d, w, l);
}

static int64_t var_of(const device_sim *d, const warp *w, kiln_symbol var) {
  return d->vars[(int64_t)w->first * d->m.n_vars + var];
}

// The loop of tiles around; NULL: there is none.
static const kiln_loop *tiles_around(const warp *w) {
  for (int i = w->depth - 1; i >= 0; i--)
    if (w->frames[i].owner && kiln_device_is(w->frames[i].owner, KILN_DEVICE_TILES))
      return w->frames[i].owner;
  return NULL;
}

// Whether a loop of tiles or of a tile's steps has another iteration, which begins.
static bool goes_on(device_sim *d, warp *w, frame *f) {
  const kiln_loop *l = f->owner, *tiles = tiles_around(w);
  become(d, w->first, l);
  if (l->op->kind == KILN_DEVICE_TILE_STEPS) {
    if (kiln_sim_eval(&d->m, l->cond).i) return false;
    set_var(d, w, tiles->var, var_of(d, w, tiles->var) + 1);
  } else if (l->op->kind == KILN_DEVICE_TILES) {
    const int64_t next = var_of(d, w, l->var) + kiln_sim_eval_index(&d->m, l->operands[2]);
    if (next >= kiln_sim_eval_index(&d->m, l->operands[1])) return false;
    set_var(d, w, l->var, next);
  } else return false;
  f->next = l->body;
  return true;
}

static void enter_tiles(device_sim *d, warp *w, const kiln_loop *l) {
  become(d, w->first, l);
  if (l->op->kind == KILN_DEVICE_TILES) {
    const int64_t from = kiln_sim_eval_index(&d->m, l->operands[0]);
    if (from >= kiln_sim_eval_index(&d->m, l->operands[1])) return;
    set_var(d, w, l->var, from);
  } else if (!tiles_around(w)) {
    FAIL(d, "`%s` must stand in a loop of tiles", text_of(d, l));
    return;
  } else set_var(d, w, l->var, var_of(d, w, tiles_around(w)->var));
  push(d, w, l, 1, NULL);
}

static void leave(device_sim *d, warp *w) {
  frame *f = &w->frames[w->depth - 1];
  const kiln_loop *l = f->owner;
  if (l && l->kind == KILN_LOOP_FOR && ++f->i < f->extent) {
    if (f->was_on) part(d, w, l, l->extent, f->i, f->was_on);
    set_var(d, w, l->var, f->i);
    f->next = l->body;
    return;
  }
  if (l && l->kind == KILN_LOOP_DEVICE && goes_on(d, w, f)) return;
  if (f->was_on) memcpy(d->on + w->first, f->was_on, (size_t)w->n);
  if (l && l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how))
    w->bound &= ~((unsigned)THREADS << ((int)l->how - KILN_THREAD_X));
  if (l && l->kind == KILN_LOOP_FOR && kiln_how_is_block(l->how))
    w->bound &= ~((unsigned)BLOCKS << ((int)l->how - KILN_BLOCK_X));
  w->row = f->row;
  w->rows = f->rows;
  w->is_single = f->is_single;
  w->depth--;
}

// --- statements of control ---

static int64_t number(device_sim *d, const warp *w, const kiln_loop *l, int argument) {
  become(d, w->first, l);
  return kiln_sim_eval_index(&d->m, l->operands[argument]);
}

static void wait_at(warp *w, wait_kind kind, const kiln_loop *l, int64_t id, int64_t count) {
  w->wait = kind;
  w->at = l;
  w->id = id;
  w->count = count;
}

static int n_active(const warp *w) { return w->is_single ? 1 : w->n; }

// The threads of a warp wait for each other.
static void meet(device_sim *d, const warp *w) {
  int32_t *all = KILN_NEW_ARRAY(&d->m.cx->scratch, int32_t, d->clocks.n);
  for (int t = w->first; t < w->first + w->n; t++)
    sim_clock_join(&d->clocks, all, sim_clock_of(&d->clocks, t));
  for (int t = w->first; t < w->first + w->n; t++) {
    sim_clock_join(&d->clocks, sim_clock_of(&d->clocks, t), all);
    sim_clock_tick(&d->clocks, t);
  }
}

static void learn(device_sim *d, const warp *w, const int32_t *known) {
  for (int t = w->first; t < w->first + n_active(w); t++) {
    sim_clock_join(&d->clocks, sim_clock_of(&d->clocks, t), known);
    sim_clock_tick(&d->clocks, t);
  }
}

static void enter_role(device_sim *d, warp *w, const kiln_loop *l) {
  const int64_t row = number(d, w, l, 0);
  const bool is_producer = l->op->kind == KILN_DEVICE_ROLE_PRODUCER;
  const int64_t rows = is_producer ? 1 : number(d, w, l, 1),
                n = is_producer ? 1 : number(d, w, l, 2);
  const int64_t at = coordinate(d, w, w->first, 1), x = coordinate(d, w, w->first, 0);
  if (at < row || at >= row + rows * n || (is_producer && x)) return;
  push(d, w, l, 1, NULL);
  w->row = row;
  w->rows = rows;
  w->is_single = is_producer;
  for (int t = w->first; t < w->first + w->n; t++) d->group[t] = (uint8_t)((at - row) / rows);
  if (l->var) set_var(d, w, l->var, (at - row) / rows);
}

static void forget_landed(device_sim *d) {
  int n = 0;
  for (int i = 0; i < d->flights.n; i++)
    if (!d->flights.data[i].is_over) d->flights.data[n++] = d->flights.data[i];
  d->flights.n = n;
}

// role.first
static void enter_first(device_sim *d, warp *w, const kiln_loop *l) {
  if (w->first % d->n_block_threads) return;
  push(d, w, l, 1, NULL);
  w->is_single = true;
}

static void set_phases(device_sim *d, const warp *w, const kiln_loop *l) {
  const kiln_expr *p = l->operands[0];
  for (int t = w->first; t < w->first + n_active(w); t++) {
    become(d, t, l);
    uint32_t *bits = (uint32_t *)(void *)data_of(d, &d->cells[p->u.tensor], t);
    const uint32_t by = (uint32_t)kiln_sim_eval_index(&d->m, l->operands[1]);
    *bits = l->op->kind == KILN_DEVICE_MBARRIER_FLIP ? *bits ^ by : by;
  }
}

// The blocks of the mask |mask|, as the block that runs sees them: a bit each.
static unsigned peers_of(const device_sim *d, int64_t mask) {
  return (unsigned)((uint64_t)mask >> 8 * (d->t / d->n_block_threads)) & 255;
}

static void arrive_cluster(device_sim *d, const warp *w, const kiln_loop *l) {
  const int at = mbarrier_of(d, l->operands[0]) - w->block * d->max_mbarriers;
  const unsigned peers = peers_of(d, number(d, w, l, 1));
  for (int p = 0; p < d->n_blocks; p++)
    if (peers >> p & 1) arrive(d, l, p * d->max_mbarriers + at, w->first, w->n);
}

static void end_copies(device_sim *d, const warp *w, int64_t latest) {
  for (int t = w->first; t < w->first + n_active(w); t++) {
    int32_t *known = &sim_clock_of(&d->clocks, t)[d->n_threads + t];
    const int32_t until = d->commits[t] - (int32_t)latest;
    if (until > *known) *known = until;
    for (int i = 0; i < d->flights.n; i++) {
      flight *f = &d->flights.data[i];
      if (f->thread == t && !f->is_over && f->group <= until) land(d, f, t);
    }
  }
  forget_landed(d);
}

static void make_mbarriers(device_sim *d, const warp *w, const kiln_loop *l) {
  const int at = mbarrier_of(d, l->operands[0]);
  const bool has_peers = l->op->kind == KILN_DEVICE_MBARRIER_INIT_CLUSTER;
  const int64_t n = number(d, w, l, 1),
                sharers = has_peers ? __builtin_popcount(peers_of(d, number(d, w, l, 3))) : 1,
                count = number(d, w, l, 2) * sharers;
  if (w->first % d->n_block_threads) return; // the block's first thread does it
  for (int64_t i = 0; i < n; i++) {
    mbarrier *m = &d->mbarriers[at + i];
    m->made = event_of(d);
    m->count = count;
    sim_clock_join(&d->clocks, m->known, sim_clock_of(&d->clocks, w->first));
  }
  sim_clock_tick(&d->clocks, w->first);
}

static void wait_mbarrier(device_sim *d, warp *w, const kiln_loop *l) {
  become(d, w->first, l);
  const int at = mbarrier_of(d, l->operands[0]);
  if (!check_made(d, l, &d->mbarriers[at], w->first)) return;
  if (l->op->kind == KILN_DEVICE_MBARRIER_AWAIT) {
    if (w->first % d->n_block_threads && !w->is_single) return;
    wait_at(w, AT_MBARRIER, l, at, number(d, w, l, 1));
    return;
  }
  const kiln_expr *phases = l->operands[1];
  const cell *c = &d->cells[phases->u.tensor];
  const int bit = (int)element_of(d, &d->cells[l->operands[0]->u.tensor], l->operands[0]->args);
  int64_t parity = 0;
  for (int t = w->first + n_active(w) - 1; t >= w->first; t--) {
    become(d, t, l);
    const int64_t element = element_of(d, c, phases->args);
    uint32_t *bits = (uint32_t *)(void *)(data_of(d, c, t)) + element;
    parity = *bits >> bit & 1;
    *bits ^= UINT32_C(1) << bit;
  }
  wait_at(w, AT_MBARRIER, l, at, parity);
}

static void commit(const warp *w, int32_t *counts) {
  for (int t = w->first; t < w->first + n_active(w); t++) counts[t]++;
}

static void end_group(device_sim *d, const warp *w, int64_t latest) {
  const int group = w->first - w->first % d->n_block_threads % MAX_GROUP;
  for (int t = w->first; t < w->first + w->n; t++) {
    int32_t *known = &sim_clock_of(&d->clocks, t)[agent_of_group(d, group)];
    const int32_t until = d->group_commits[w->first] - (int32_t)latest;
    if (until > *known) *known = until;
  }
}

static void run_device(device_sim *d, warp *w, const kiln_loop *l) {
  become(d, w->first, l);
  switch (l->op->kind) {
  case KILN_DEVICE_BARRIER_BLOCK: wait_at(w, AT_BLOCK, l, 0, 0); return;
  case KILN_DEVICE_BARRIER_WARP: meet(d, w); return;
  case KILN_DEVICE_BARRIER_SYNC:
  case KILN_DEVICE_BARRIER_ARRIVE: {
    const int64_t id = number(d, w, l, 0), threads = number(d, w, l, 1);
    if (id < 1 || id >= MAX_NAMED) {
      FAIL(d, "`%s` must be of a barrier from 1 to %d, got %" PRId64, text_of(d, l), MAX_NAMED - 1,
           id);
      return;
    }
    named *b = &d->named[w->block * MAX_NAMED + id];
    if (b->arrived && b->count != threads)
      FAIL(d,
           "`%s` must be of as many threads as others say who come there, got %" PRId64
           " and %" PRId64,
           text_of(d, l), threads, b->count);
    b->count = threads;
    b->arrived += w->n;
    for (int t = w->first; t < w->first + w->n; t++) {
      sim_clock_join(&d->clocks, b->known, sim_clock_of(&d->clocks, t));
      sim_clock_tick(&d->clocks, t);
    }
    if (l->op->kind == KILN_DEVICE_BARRIER_SYNC) wait_at(w, AT_NAMED, l, id, threads);
    return;
  }
  case KILN_DEVICE_CLUSTER_SYNC: wait_at(w, AT_CLUSTER, l, 0, 0); return;
  case KILN_DEVICE_FENCE_ASYNC: commit(w, d->fences); return;
  case KILN_DEVICE_FENCE_CLUSTER:
  case KILN_DEVICE_LAUNCH_WAIT:
  case KILN_DEVICE_REGISTERS_SET:
  case KILN_DEVICE_MAPS_FETCH:
  case KILN_DEVICE_WGMMA_SETTLE:
  case KILN_DEVICE_MBARRIER_EXPECT:
  case KILN_DEVICE_ROLE_LEADERS:
  case KILN_DEVICE_ROLE_WARP:
  case KILN_N_DEVICE_KINDS:
  case KILN_DEVICE_COPY_ASYNC: return;
  case KILN_DEVICE_COPY_COMMIT: commit(w, d->commits); return;
  case KILN_DEVICE_COPY_WAIT: end_copies(d, w, number(d, w, l, 0)); return;
  case KILN_DEVICE_MBARRIER_INIT_CLUSTER:
  case KILN_DEVICE_MBARRIER_INIT: make_mbarriers(d, w, l); return;
  case KILN_DEVICE_MBARRIER_ARRIVE:
    arrive(d, l, mbarrier_of(d, l->operands[0]), w->first, n_active(w));
    return;
  case KILN_DEVICE_MBARRIER_WAIT:
  case KILN_DEVICE_MBARRIER_AWAIT: wait_mbarrier(d, w, l); return;
  case KILN_DEVICE_WGMMA_FENCE: commit(w, d->group_fences); return;
  case KILN_DEVICE_WGMMA_COMMIT: commit(w, d->group_commits); return;
  case KILN_DEVICE_WGMMA_WAIT: end_group(d, w, number(d, w, l, 0)); return;
  case KILN_DEVICE_MBARRIER_PHASES:
  case KILN_DEVICE_MBARRIER_FLIP: set_phases(d, w, l); return;
  case KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER: arrive_cluster(d, w, l); return;
  case KILN_DEVICE_ROLE_FIRST: enter_first(d, w, l); return;
  case KILN_DEVICE_TILES:
  case KILN_DEVICE_TILE_STEPS: enter_tiles(d, w, l); return;
  case KILN_DEVICE_ROLE_CONSUMERS:
  case KILN_DEVICE_ROLE_PRODUCER: enter_role(d, w, l); return;
  }
}

// --- warps ---

// Runs a warp until it waits or is done.
static void run_warp(device_sim *d, warp *w) {
  while (w->wait == READY && d->m.status == KILN_OK) {
    if (!w->depth) {
      w->wait = DONE;
      return;
    }
    frame *f = &w->frames[w->depth - 1];
    const kiln_loop *l = f->next;
    if (!l) {
      leave(d, w);
      continue;
    }
    f->next = l->next;
    if (!is_leaf(l)) {
      if (l->kind == KILN_LOOP_DEVICE) run_device(d, w, l);
      else enter(d, w, l);
    } else if (group_size(d, l) > w->n) {
      wait_at(w, AT_GROUP, l, 0, 0);
    } else run_leaf(d, w, l, w->first, w->n);
  }
}

// Releases the warps |from| to |from| + |n| - 1, if all of them wait as |kind|.
static bool release_all(device_sim *d, wait_kind kind, int from, int n) {
  int32_t *all = NULL;
  for (int i = from; i < from + n; i++)
    if (d->warps[i].wait != kind) return false;
  all = KILN_NEW_ARRAY(&d->m.cx->scratch, int32_t, d->clocks.n);
  for (int i = from; i < from + n; i++)
    for (int t = d->warps[i].first; t < d->warps[i].first + d->warps[i].n; t++)
      sim_clock_join(&d->clocks, all, sim_clock_of(&d->clocks, t));
  for (int i = from; i < from + n; i++) {
    d->warps[i].wait = READY;
    learn(d, &d->warps[i], all);
  }
  d->clocks.epoch += d->n_blocks == 1;
  return true;
}

// A warp group's instruction, once its warps have all come.
static bool release_group(device_sim *d, int from) {
  const warp *w = &d->warps[from];
  const int n = MAX_GROUP / d->launch->warp;
  if (w->wait != AT_GROUP || w->first % d->n_block_threads % MAX_GROUP) return false;
  for (int i = from; i < from + n; i++)
    if (i >= d->n_warps || d->warps[i].wait != AT_GROUP || d->warps[i].at != w->at) return false;
  run_leaf(d, w, w->at, w->first, MAX_GROUP);
  for (int i = from; i < from + n; i++) d->warps[i].wait = READY;
  return true;
}

static bool release_named(device_sim *d, int block, int id) {
  named *b = &d->named[block * MAX_NAMED + id];
  if (!b->count || b->arrived < b->count) return false;
  if (b->arrived > b->count)
    FAIL(d, "more than %" PRId64 " threads come to barrier %d", b->count, id);
  for (int i = 0; i < d->n_warps; i++) {
    warp *w = &d->warps[i];
    if (w->block != block || w->wait != AT_NAMED || w->id != id) continue;
    learn(d, w, b->known);
    w->wait = READY;
  }
  b->arrived = b->count = 0;
  return true;
}

static bool release_mbarrier(device_sim *d, warp *w) {
  const mbarrier *m = &d->mbarriers[w->id];
  if (w->wait != AT_MBARRIER || (m->done & 1) == (w->count & 1)) return false;
  learn(d, w, m->known);
  w->wait = READY;
  return true;
}

static bool release_some(device_sim *d) {
  bool any = false;
  const int per_block = d->n_warps / d->n_blocks;
  for (int b = 0; b < d->n_blocks; b++) {
    any |= release_all(d, AT_BLOCK, b * per_block, per_block);
    for (int id = 1; id < MAX_NAMED; id++) any |= release_named(d, b, id);
  }
  any |= release_all(d, AT_CLUSTER, 0, d->n_warps);
  for (int i = 0; i < d->n_warps; i++)
    any |= release_group(d, i) || release_mbarrier(d, &d->warps[i]);
  return any;
}

// Lands one TMA copy in flight, as no warp can go on without it.
static bool land_one(device_sim *d) {
  for (int i = 0; i < d->flights.n; i++) {
    flight *f = &d->flights.data[i];
    if (f->is_over || f->thread >= 0) continue;
    mbarrier *m = &d->mbarriers[f->mbarrier];
    land(d, f, -1 - f->thread);
    m->bytes -= f->n * kiln_dtype_bytes(d->cells[f->buffer].b->dtype);
    complete(d, m);
    return true;
  }
  return false;
}

static void fail_deadlock(device_sim *d) {
  kiln_text t;
  kiln_text_init(&t, &d->m.cx->scratch);
  int n = 0;
  for (int i = 0; i < d->n_warps; i++) {
    const warp *w = &d->warps[i];
    bool known = w->wait == DONE;
    for (int k = 0; k < i; k++) known |= d->warps[k].wait != DONE && d->warps[k].at == w->at;
    if (known || n++ > 2) continue;
    kiln_text_printf(&t, "%swarp %d at `%s`", n > 1 ? ", " : "", i, text_of(d, w->at));
  }
  FAIL(d, "deadlock: nobody can go on: %s", t.data ? t.data : "");
}

static void run_cluster(device_sim *d) {
  for (;;) {
    bool all_done = true;
    for (int i = 0; i < d->n_warps; i++) run_warp(d, &d->warps[i]);
    for (int i = 0; i < d->n_warps; i++) all_done &= d->warps[i].wait == DONE;
    if (all_done || d->m.status != KILN_OK) return;
    if (release_some(d) || land_one(d)) continue;
    fail_deadlock(d);
    return;
  }
}

// --- launches ---

static bool is_written(const kiln_loop *l, int buffer) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_STORE && l->buffer == buffer) || is_written(l->body, buffer))
      return true;
  return false;
}

// Buffers that are allocated in a role of |n| groups: each group has its own, contiguously.
static void find_own(device_sim *d, const kiln_loop *l, int64_t n) {
  enum { ALIGNMENT = 128, SWIZZLED = 1024 }; // as they are allocated (target/gpu/shared_memory.c)
  for (; l; l = l->next) {
    int64_t groups = n;
    if (kiln_device_is(l, KILN_DEVICE_ROLE_CONSUMERS))
      (void)kiln_expr_is_int(l->operands[2], &groups);
    cell *c = l->kind == KILN_LOOP_ALLOC ? &d->cells[l->buffer] : NULL;
    if (c && n > 1 && c->b->scope == KILN_SCOPE_SHARED) {
      const int64_t to = c->b->is_swizzled ? SWIZZLED : ALIGNMENT,
                    bytes = c->elems * kiln_dtype_bytes(c->b->dtype);
      c->own_bytes = (bytes + to - 1) / to * to;
      if (c->offset + n * c->own_bytes > d->arena_bytes)
        d->arena_bytes = c->offset + n * c->own_bytes;
    }
    find_own(d, l->body, groups);
  }
}

static void make_cells(device_sim *d, void *const *args) {
  kiln_arena *a = &d->m.cx->scratch;
  int next = 0;
  d->cells = KILN_NEW_ARRAY(a, cell, d->l->buffers.n);
  d->mbarrier_at = KILN_NEW_ARRAY(a, int, d->l->buffers.n);
  for (int i = 0; i < d->l->buffers.n; i++) {
    cell *c = &d->cells[i];
    c->b = d->l->buffers.data[i];
    c->elems = kiln_buffer_elems(c->b);
    const int64_t bytes = c->elems * kiln_dtype_bytes(c->b->dtype);
    if (kiln_scope_is_argument(c->b->scope)) c->data = args[next++];
    if (c->b->scope == KILN_SCOPE_SHARED) {
      const bool is_mbarrier = c->b->dtype == KILN_U64;
      c->offset = d->launch->offsets && !is_mbarrier ? d->launch->offsets[i] : d->arena_bytes;
      if (c->offset < 0) c->offset = 0;
      if (c->offset + bytes > d->arena_bytes) d->arena_bytes = c->offset + bytes;
      d->mbarrier_at[i] = d->max_mbarriers;
      if (is_mbarrier) d->max_mbarriers += (int)c->elems;
    }
  }
}

// Resets threads' memory and the access history of places, at the begin of a cluster.
static void clear(device_sim *d) {
  kiln_arena *a = &d->m.cx->scratch;
  const int n = d->n_threads, blocks = d->n_blocks;
  for (int i = 0; i < d->l->buffers.n; i++) {
    cell *c = &d->cells[i];
    if (is_private(c)) {
      c->data = kiln_arena_zalloc(a, (size_t)(n * c->elems * kiln_dtype_bytes(c->b->dtype)) + 8);
      c->stamp = KILN_NEW_ARRAY(a, int32_t, n * c->elems);
      c->sums = KILN_NEW_ARRAY(a, sim_event, n * c->elems);
      for (int64_t k = 0; k < n * c->elems; k++) c->sums[k].clock = -1;
    } else if (kiln_scope_is_argument(c->b->scope) && is_written(d->l->body, i)) {
      c->places = KILN_NEW_ARRAY(a, sim_place, c->elems);
      for (int64_t k = 0; k < c->elems; k++) c->places[k].writer.clock = -1;
    }
  }
  d->arena = KILN_NEW_ARRAY(a, sim_place, blocks * d->arena_bytes);
  for (int64_t k = 0; k < blocks * d->arena_bytes; k++) d->arena[k].writer.clock = -1;
  d->shared = kiln_arena_zalloc(a, (size_t)(blocks * d->arena_bytes) + 8);
  d->vars = KILN_NEW_ARRAY(a, int64_t, (int64_t)n * d->m.n_vars);
  d->group = KILN_NEW_ARRAY(a, uint8_t, n);
  d->on = KILN_NEW_ARRAY(a, uint8_t, n);
  memset(d->on, 1, (size_t)n);
  d->commits = KILN_NEW_ARRAY(a, int32_t, n);
  d->fences = KILN_NEW_ARRAY(a, int32_t, n);
  d->group_commits = KILN_NEW_ARRAY(a, int32_t, n);
  d->group_fences = KILN_NEW_ARRAY(a, int32_t, n);
  d->first_mbarrier = 3 * n;
  sim_clocks_init(d->m.cx, &d->clocks, n, 2 * n + blocks * d->max_mbarriers);
  d->mbarriers = KILN_NEW_ARRAY(a, mbarrier, blocks * d->max_mbarriers + 1);
  for (int i = 0; i < blocks * d->max_mbarriers; i++) {
    d->mbarriers[i].sofar = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
    d->mbarriers[i].known = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
  }
  d->named = KILN_NEW_ARRAY(a, named, blocks * MAX_NAMED);
  for (int i = 0; i < blocks * MAX_NAMED; i++)
    d->named[i].known = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
  d->flights.n = d->flights.cap = 0;
  d->flights.data = NULL;
}

static void make_warps(device_sim *d) {
  const int warp_size = d->launch->warp;
  const int per_block = (d->n_block_threads + warp_size - 1) / warp_size;
  d->n_warps = per_block * d->n_blocks;
  d->warps = KILN_NEW_ARRAY(&d->m.cx->scratch, warp, d->n_warps);
  for (int i = 0; i < d->n_warps; i++) {
    warp *w = &d->warps[i];
    const int at = i % per_block * warp_size, rest = d->n_block_threads - at;
    w->block = i / per_block;
    w->first = w->block * d->n_block_threads + at;
    w->n = rest < warp_size ? rest : warp_size;
    w->frames[w->depth++] = (frame){.next = d->l->body, .extent = 1};
  }
}

static void run_blocks(device_sim *d) {
  const int64_t *g = d->launch->grid;
  for (int64_t z = 0; z < g[2]; z++)
    for (int64_t y = 0; y < g[1]; y++)
      for (int64_t x = 0; x < g[0] && d->m.status == KILN_OK; x += d->n_blocks) {
        const kiln_mark mark = kiln_arena_mark(&d->m.cx->scratch);
        d->block0[0] = x, d->block0[1] = y, d->block0[2] = z;
        clear(d);
        make_warps(d);
        run_cluster(d);
        kiln_arena_rewind(&d->m.cx->scratch, mark);
      }
}

static uint32_t n_vars(const kiln_loop *l, uint32_t most) {
  for (; l; l = l->next) {
    if (l->var >= most) most = l->var + 1;
    if (l->kind == KILN_LOOP_INSTR) most = n_vars(l->instr->loops->body, most);
    most = n_vars(l->body, most);
  }
  return most;
}

kiln_status kiln_sim_run_device(kiln_ctx *cx, const kiln_loops *l, const kiln_sim_launch *launch,
                                void *const *args) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  device_sim d = {.m = {.cx = cx, .l = l, .load = load}, .l = l, .launch = launch};
  d.m.place =
      kiln_arena_printf(&cx->scratch, "sim: device loops of %s", kiln_symbol_text(cx, l->name));
  d.m.n_vars = n_vars(l->body, 0);
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++)
    if (kiln_tile_var(cx, k) >= d.m.n_vars) d.m.n_vars = kiln_tile_var(cx, k) + 1;
  d.n_blocks = launch->cluster > 1 ? (int)launch->cluster : 1;
  d.n_block_threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
  d.n_threads = d.n_block_threads * d.n_blocks;
  kiln_map_init(&d.fragments, &cx->perm);
  kiln_map_init(&d.sizes, &cx->perm);
  make_cells(&d, args);
  find_own(&d, l->body, 1);
  run_blocks(&d);
  kiln_arena_rewind(&cx->scratch, mark);
  return d.m.status;
}
