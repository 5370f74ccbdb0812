// Accesses of the simulator: bounds, reads of unwritten elements, races, traffic.
//
// A race is a conflict of two iterations of one execution of a concurrent loop (parallel, or bound
// to an axis). Each execution gets its own range of stamps, one for each iteration. For each
// concurrent loop around its accesses, an element stores the stamps of its last writer and reader.
// Stamps of other executions do not conflict, as a loop's end waits for all iterations.
//
// Lanes run in lock step: accesses by two lanes come in the order of statements, while a serial
// loop would make them in the order of lanes. An element stores the last lane that wrote and that
// read it; an access after one of a later lane shows that the two orders differ.
#include "target/sim/eval.h"

#include "support/integer.h"

#include <math.h>

static const char *name_of(const sim *m, const sim_cell *c) {
  return kiln_symbol_text(m->cx, c->buffer->name);
}

static bool is_own(const sim *m, const sim_cell *c) { return c->lanes == m->lanes; }

int64_t kiln_sim_own_copy(const sim *m, const sim_cell *c) {
  return is_own(m, c) ? m->lanes->at * c->elems : 0;
}

// The element's number within its copy.
static int64_t shown(const sim_cell *c, int64_t element) {
  return c->elems ? element % c->elems : element;
}

// A block loop inside of which memory that it uses is not allocated; NULL.
static const sim_concurrent *outer_block(const sim *m, const sim_cell *c) {
  if (kiln_scope_is_argument(c->buffer->scope)) return NULL;
  for (int d = c->depth; d < m->depth; d++)
    if (kiln_how_is_block(m->around[d].how)) return &m->around[d];
  return NULL;
}

void kiln_sim_check_place(sim *m, const sim_cell *c) {
  const sim_concurrent *x = outer_block(m, c);
  if (x)
    kiln_sim_fail(m, "buffer %s: %s memory must be allocated inside of %s loop %s, which uses it",
                  name_of(m, c), kiln_scope_text(c->buffer->scope), kiln_how_text(x->how),
                  kiln_symbol_text(m->cx, x->var));
}

// The distribution of a fragment's elements: equal parts for the threads that share its ALLOC.
typedef struct dealing {
  int64_t n; // threads
  // the current thread's number; an axis without a loop counts as 0
  int64_t thread;
  int64_t lanes; // threads along x, whose parts are contiguous
} dealing;

static dealing dealing_of(const sim *m, const sim_cell *c) {
  dealing d = {1, 0, 1};
  for (int axis = 0; axis < 3; axis++) {
    int64_t at = 0;
    bool is_outside = false;
    for (int k = 0; k < m->depth; k++) {
      const sim_concurrent *x = &m->around[k];
      if (x->how != (kiln_how)(KILN_THREAD_X + axis)) continue;
      is_outside |= k < c->depth;
      at = x->stamp - x->several - 1;
    }
    if (is_outside) continue;
    d.thread += at * d.n;
    d.n *= m->threads[axis];
    if (axis == 0) d.lanes = d.n;
  }
  return d;
}

// Whether the current thread, or its warp in an instruction, owns the element |at|.
static bool owns(const sim *m, const sim_cell *c, int64_t at) {
  const dealing d = dealing_of(m, c);
  if (c->elems % d.n != 0) return false;
  const int64_t owner = shown(c, at) / (c->elems / d.n), together = m->in_warp ? d.lanes : 1;
  return owner / together == d.thread / together;
}

void kiln_sim_check_owner(sim *m, const sim_cell *c, int64_t at) {
  if (owns(m, c, at)) return;
  const int64_t element = shown(c, at);
  const dealing d = dealing_of(m, c);
  if (c->elems % d.n != 0) {
    kiln_sim_fail(m,
                  "buffer %s: %" PRId64 " elements must be distributed to the %" PRId64
                  " threads of a block in equal parts, as it is allocated outside of thread loops",
                  name_of(m, c), c->elems, d.n);
    return;
  }
  kiln_sim_fail(m,
                "buffer %s: thread %" PRId64 " must touch its own part only, got element %" PRId64
                " of thread %" PRId64 ", as it is allocated outside of thread loops",
                name_of(m, c), d.thread, element, element / (c->elems / d.n));
}

static kiln_constant element_of(const sim_cell *c, int64_t element) {
  const kiln_dtype t = c->buffer->dtype;
  const bool half = kiln_dtype_is_half(t);
  kiln_constant v = {.dtype = half ? KILN_F32 : t};
  if (kiln_dtype_is_float(t)) v.f = kiln_element_get(t, c->data, element);
  else v.i = kiln_element_get_int(t, c->data, element);
  return v;
}

// --- lanes ---

static bool are_lanes_apart(const sim *m, const sim_cell *c) {
  return m->lanes->n == 1 || is_own(m, c);
}

// The lane of |stamp| if it is later than the current lane; -1 otherwise.
static int64_t later(const sim *m, int64_t stamp) {
  const int64_t lane = stamp - m->lanes->stamp;
  return lane > m->lanes->at ? lane : -1;
}

static void advance(const sim *m, int64_t *last) {
  const int64_t mine = m->lanes->stamp + m->lanes->at;
  if (*last < mine) *last = mine;
}

static void fail_lanes(sim *m, const sim_cell *c, int64_t element, const char *does, int64_t other,
                       const char *did) {
  if (other < 0) return;
  kiln_sim_fail(m,
                "buffer %s: lanes: lane %" PRId64 " of loop %s %s element %" PRId64
                " after lane %" PRId64 " %s it",
                name_of(m, c), m->lanes->at, kiln_symbol_text(m->cx, m->lanes->var), does,
                shown(c, element), other, did);
}

static void lane_reads(sim *m, sim_cell *c, int64_t element) {
  if (are_lanes_apart(m, c)) return;
  fail_lanes(m, c, element, "reads", later(m, c->lane_writer[element]), "writes");
  advance(m, &c->lane_reader[element]);
}

// |how|: NONE, or the combiner of a reduction over lanes, whose order is unspecified.
static void lane_writes(sim *m, sim_cell *c, int64_t element, kiln_combiner how, bool changed) {
  if (are_lanes_apart(m, c)) return;
  uint8_t *before = &c->lane_how[element];
  const bool is_first = c->lane_writer[element] < m->lanes->stamp;
  const bool reduces = how != KILN_COMBINE_NONE && (is_first || *before == how);
  fail_lanes(m, c, element, "writes", later(m, c->lane_reader[element]), "reads");
  if (!reduces && (changed || how != KILN_COMBINE_NONE))
    fail_lanes(m, c, element, "writes", later(m, c->lane_writer[element]), "writes");
  advance(m, &c->lane_writer[element]);
  *before = (uint8_t)(is_first || reduces ? how : KILN_COMBINE_NONE);
}

// --- races ---

static bool is_of(const sim_concurrent *x, int64_t stamp) {
  return stamp >= x->several && stamp <= x->several + x->extent;
}

// The entry of an element for the concurrent loop at |depth|.
static int64_t slot(const sim *m, int64_t element, int depth) {
  return element * m->max_depth + depth;
}

static void note_read(sim *m, sim_cell *c, int64_t element) {
  for (int d = c->depth; d < m->depth; d++) {
    const sim_concurrent *x = &m->around[d];
    const int64_t w = c->writer[slot(m, element, d)];
    if (is_of(x, w) && w != x->stamp)
      kiln_sim_fail(m,
                    "buffer %s: race: iteration %" PRId64 " of loop %s reads element %" PRId64
                    ", which iteration %" PRId64 " writes",
                    name_of(m, c), x->stamp - x->several - 1, kiln_symbol_text(m->cx, x->var),
                    shown(c, element), w - x->several - 1);
    int64_t *r = &c->reader[slot(m, element, d)];
    *r = !is_of(x, *r) || *r == x->stamp ? x->stamp : x->several;
  }
}

static void note_write(sim *m, sim_cell *c, int64_t element, bool changed) {
  for (int d = c->depth; d < m->depth; d++) {
    const sim_concurrent *x = &m->around[d];
    const int64_t r = c->reader[slot(m, element, d)], w = c->writer[slot(m, element, d)];
    const char *loop = kiln_symbol_text(m->cx, x->var);
    if (is_of(x, r) && r != x->stamp)
      kiln_sim_fail(m,
                    "buffer %s: race: iteration %" PRId64 " of loop %s writes element %" PRId64
                    ", which another one reads",
                    name_of(m, c), x->stamp - x->several - 1, loop, shown(c, element));
    if (is_of(x, w) && w != x->stamp && changed)
      kiln_sim_fail(m,
                    "buffer %s: race: iterations %" PRId64 " and %" PRId64
                    " of loop %s write element %" PRId64 " with different values",
                    name_of(m, c), w - x->several - 1, x->stamp - x->several - 1, loop,
                    shown(c, element));
    c->writer[slot(m, element, d)] = x->stamp;
  }
}

// --- runs of elements ---

static bool has_race(const sim *m, const sim_cell *c, int64_t element) {
  for (int d = c->depth; d < m->depth; d++) {
    const sim_concurrent *x = &m->around[d];
    const int64_t w = c->writer[slot(m, element, d)];
    if (is_of(x, w) && w != x->stamp) return true;
  }
  return false;
}

bool kiln_sim_may_touch(const sim *m, const sim_cell *c, sim_run r, bool reads) {
  const bool are_apart = are_lanes_apart(m, c);
  if (!c->alive || outer_block(m, c)) return false;
  if (c->is_spread && !(owns(m, c, r.first) && owns(m, c, r.first + (r.n - 1) * r.step)))
    return false;
  for (int64_t k = 0; reads && k < r.n; k++) {
    const int64_t element = r.first + k * r.step;
    if ((c->written && !c->written[element]) || has_race(m, c, element)) return false;
    if (!are_apart && c->lane_writer[element] - m->lanes->stamp > k) return false;
  }
  return true;
}

void kiln_sim_read_run(sim *m, sim_cell *c, sim_run r, kiln_constant *out) {
  const bool are_apart = are_lanes_apart(m, c);
  for (int64_t k = 0; k < r.n; k++) {
    const int64_t element = r.first + k * r.step;
    if (!are_apart) {
      m->lanes->at = k;
      advance(m, &c->lane_reader[element]);
    }
    note_read(m, c, element);
    out[k] = element_of(c, element);
  }
}

// --- elements ---

void kiln_sim_note_read(sim *m, sim_cell *c, int64_t element) {
  lane_reads(m, c, element);
  note_read(m, c, element);
  if (m->meter) kiln_sim_meter_count(m->meter, c->buffer, element, false);
}

static kiln_constant fetch(sim *m, sim_cell *c, int64_t element) {
  const kiln_constant none = {.dtype = c->buffer->dtype};
  if (element < 0) return none;
  if (c->written && !c->written[element])
    kiln_sim_fail(m, "buffer %s: element %" PRId64 " must be written before it is read",
                  name_of(m, c), shown(c, element));
  note_read(m, c, element);
  if (m->meter) kiln_sim_meter_count(m->meter, c->buffer, element, false);
  return element_of(c, element);
}

kiln_constant kiln_sim_read(sim *m, sim_cell *c, int64_t element) {
  if (element >= 0) lane_reads(m, c, element);
  return fetch(m, c, element);
}

static bool same_value(kiln_constant a, kiln_constant b) {
  if (kiln_dtype_is_float(a.dtype)) return a.f == b.f || (isnan(a.f) && isnan(b.f));
  return a.i == b.i;
}

static bool is_unwritten(const sim_cell *c, int64_t element) {
  return c->written && !c->written[element];
}

static void write(sim *m, sim_cell *c, int64_t element, kiln_combiner how, kiln_constant value) {
  if (element < 0 || m->status != KILN_OK) return;
  const kiln_constant before = element_of(c, element);
  const bool was_nothing = is_unwritten(c, element);
  if (kiln_dtype_is_float(c->buffer->dtype))
    kiln_element_set(c->buffer->dtype, c->data, element, value.f);
  else kiln_element_set_int(c->buffer->dtype, c->data, element, value.i);
  if (c->written) c->written[element] = 1;
  const bool changed = was_nothing || !same_value(before, element_of(c, element));
  lane_writes(m, c, element, how, changed);
  note_write(m, c, element, changed);
  if (m->meter) kiln_sim_meter_count(m->meter, c->buffer, element, true);
}

void kiln_sim_write(sim *m, sim_cell *c, int64_t element, kiln_constant value) {
  write(m, c, element, KILN_COMBINE_NONE, value);
}

void kiln_sim_reduce(sim *m, sim_cell *c, int64_t element, kiln_combiner how, kiln_constant value) {
  write(m, c, element, how, kiln_sim_combine(m, how, fetch(m, c, element), value));
}

void kiln_sim_move_nothing(sim *m, sim_cell *to, int64_t element) {
  if (element < 0 || m->status != KILN_OK) return;
  const bool changed = !is_unwritten(to, element);
  to->written[element] = 0;
  lane_writes(m, to, element, KILN_COMBINE_NONE, changed);
  note_write(m, to, element, changed);
  if (m->meter) kiln_sim_meter_count(m->meter, to->buffer, element, true);
}
