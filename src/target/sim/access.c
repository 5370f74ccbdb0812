// Element accesses of the simulator: bounds, what is written before it is read, races, traffic.
//
// A race is between two iterations of one execution of a concurrent loop (parallel, or bound to an
// axis). Each execution takes a range of stamps that is its own, one an iteration; an element keeps,
// for each concurrent loop around its accesses, the stamp of its last writer and of its reader. Stamps
// of other executions are no conflict: what is behind a loop waits for all of it.
#include "target/sim/eval.h"

#include <math.h>

static const char *name_of(const sim *m, const sim_cell *c) {
  return kiln_symbol_text(m->cx, c->buffer->name);
}

int64_t kiln_sim_element(sim *m, const sim_cell *c, const kiln_expr *const *index) {
  const kiln_buffer *b = c->buffer;
  int64_t element = 0;
  if (!c->alive) kiln_sim_fail(m, "buffer %s must be used inside of its alloc", name_of(m, c));
  for (int k = 0; k < b->rank && m->status == KILN_OK; k++) {
    const int64_t i = kiln_sim_eval_index(m, index[k]);
    if (i < 0 || i >= b->extents[k])
      kiln_sim_fail(m, "buffer %s: index %d must lie in [0, %" PRId64 "), got %" PRId64,
                    name_of(m, c), k, b->extents[k], i);
    else element += i * b->strides[k];
  }
  return m->status == KILN_OK ? element : -1;
}

static kiln_constant element_of(const sim_cell *c, int64_t element) {
  const kiln_dtype t = c->buffer->dtype;
  const bool half = t == KILN_F16 || t == KILN_BF16;
  kiln_constant v = {.dtype = half ? KILN_F32 : t};
  if (kiln_dtype_is_float(t)) v.f = kiln_element_get(t, c->data, element);
  else v.i = kiln_element_get_int(t, c->data, element);
  return v;
}

// --- races ---

static bool is_of(const sim_concurrent *x, int64_t stamp) {
  return stamp >= x->several && stamp <= x->several + x->extent;
}

// The slot of an element for the concurrent loop at |depth|.
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
                    element, w - x->several - 1);
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
                    name_of(m, c), x->stamp - x->several - 1, loop, element);
    if (is_of(x, w) && w != x->stamp && changed)
      kiln_sim_fail(m,
                    "buffer %s: race: iterations %" PRId64 " and %" PRId64
                    " of loop %s write element %" PRId64 " with different values",
                    name_of(m, c), w - x->several - 1, x->stamp - x->several - 1, loop, element);
    c->writer[slot(m, element, d)] = x->stamp;
  }
}

// --- elements ---

kiln_constant kiln_sim_read(sim *m, sim_cell *c, int64_t element) {
  const kiln_constant none = {.dtype = c->buffer->dtype};
  if (element < 0) return none;
  if (c->written && !c->written[element])
    kiln_sim_fail(m, "buffer %s: element %" PRId64 " must be written before it is read",
                  name_of(m, c), element);
  note_read(m, c, element);
  if (m->meter) kiln_sim_meter_count(m->meter, c->buffer, element, false);
  return element_of(c, element);
}

static bool same_value(kiln_constant a, kiln_constant b) {
  if (kiln_dtype_is_float(a.dtype)) return a.f == b.f || (isnan(a.f) && isnan(b.f));
  return a.i == b.i;
}

void kiln_sim_write(sim *m, sim_cell *c, int64_t element, kiln_constant value) {
  if (element < 0 || m->status != KILN_OK) return;
  const kiln_constant before = element_of(c, element);
  if (kiln_dtype_is_float(c->buffer->dtype))
    kiln_element_set(c->buffer->dtype, c->data, element, value.f);
  else kiln_element_set_int(c->buffer->dtype, c->data, element, value.i);
  if (c->written) c->written[element] = 1;
  note_write(m, c, element, !same_value(before, element_of(c, element)));
  if (m->meter) kiln_sim_meter_count(m->meter, c->buffer, element, true);
}
