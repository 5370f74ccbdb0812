// Asynchronous copies: cp.async lands at its thread's copy.wait, a TMA copy when all warps wait.
#include "target/sim/device/state.h"

static sim_flight *take_off(sim_device *d, const kiln_loop *by, int buffer, int room) {
  kiln_arena *a = &d->m.cx->scratch;
  sim_flight f = {.by = by, .thread = -1, .buffer = buffer};
  f.elements = KILN_NEW_ARRAY(a, int64_t, room);
  f.values = KILN_NEW_ARRAY(a, kiln_constant, room);
  KILN_VEC_PUSH(a, &d->flights, f);
  return &d->flights.data[d->flights.n - 1];
}

static void add(sim_device *d, sim_flight *f, int64_t element, kiln_constant v) {
  sim_check(d, &d->cells[f->buffer], element, true);
  sim_count(d, &d->cells[f->buffer], true);
  f->elements[f->n] = element;
  f->values[f->n++] = v;
}

static void land(sim_device *d, sim_flight *f, int thread) {
  sim_become(d, thread, f->by);
  if (f->thread < 0) d->space = f->space;
  for (int i = 0; i < f->n; i++) sim_set(d, &d->cells[f->buffer], f->elements[i], f->values[i]);
  f->is_over = true;
}

static kiln_constant zero_of(kiln_dtype t) {
  return (kiln_constant){.dtype = kiln_dtype_is_half(t) ? KILN_F32 : t};
}

void sim_begin_copy(sim_device *d, const kiln_loop *l, int t) {
  enum { BYTES = 16 };
  sim_become(d, t, l);
  const kiln_expr *to = l->operands[0], *from = l->operands[1];
  const sim_memory *a = &d->cells[to->u.tensor], *b = &d->cells[from->u.tensor];
  const int n = BYTES / kiln_dtype_bytes(a->b->dtype);
  const bool is = !l->cond || kiln_sim_eval(&d->m, l->cond).i != 0;
  const int64_t first = sim_element_of(d, a, to->args),
                source = is ? sim_element_of(d, b, from->args) : 0;
  sim_check_word(d, a, first, BYTES);
  if (is) sim_check_word(d, b, source, BYTES);
  d->clock = sim_agent_of_copies(d, t);
  d->time = d->commits[t] + 1;
  sim_flight *f = take_off(d, l, to->u.tensor, n);
  f->thread = t;
  f->group = d->time;
  if (first + n > a->elems || (is && source + n > b->elems))
    SIM_FAIL(d, "buffer %s: `%s` must copy %d bytes within it",
             kiln_symbol_text(d->m.cx, a->b->name), sim_text_of(d, l), BYTES);
  for (int i = 0; i < n && d->m.status == KILN_OK; i++)
    add(d, f, first + i, is ? sim_fetch(d, b, source + i) : zero_of(a->b->dtype));
}

// The source of the element (|row|, |column|) of a TMA copy's tile; -1: zero. What the tensor map
// says there must be what the statement says.
static int64_t source_of(sim_device *d, const kiln_loop *l, const kiln_gpu_map *map,
                         const sim_map_corner *corner, int64_t row, int64_t column) {
  const kiln_expr *from = l->operands[1];
  const sim_memory *b = &d->cells[from->u.tensor];
  const bool is = !l->cond || kiln_sim_eval(&d->m, l->cond).i != 0;
  const int64_t said = is ? sim_element_of(d, b, from->args) : -1;
  if (!map || d->m.status != KILN_OK) return said;
  const int64_t read = sim_element_in_map(map, corner, row, column);
  if (read >= b->elems || (is && read != said))
    SIM_FAIL(d,
             "`%s` must read element %" PRId64 " of %s at row %" PRId64 ", column %" PRId64
             ", got element %" PRId64 " by its tensor map",
             sim_text_of(d, l), said, kiln_symbol_text(d->m.cx, b->b->name), row, column, read);
  return read;
}

// The rows of a tile from |first| to |end|, to the shared memory of block |space|.
static void begin_rows(sim_device *d, const kiln_loop *l, int t, int space, int64_t first,
                       int64_t end) {
  const kiln_expr *to = l->operands[0], *from = l->operands[1];
  const sim_memory *a = &d->cells[to->u.tensor], *b = &d->cells[from->u.tensor];
  const int64_t columns = l->instr->loops->buffers.data[1]->extents[1];
  const kiln_symbol row = d->tile_vars[0], column = d->tile_vars[1];
  sim_map_corner corner;
  sim_become(d, t, l);
  const kiln_gpu_map *map = sim_map_of(d, l);
  if (map && !sim_find_corner(d, l, map, &corner)) return;
  if (map && (map->box_rows != end - first || map->box_columns != columns))
    SIM_FAIL(d, "`%s` must have a box of %" PRId64 " x %" PRId64 ", got %" PRId64 " x %" PRId64,
             sim_text_of(d, l), end - first, columns, map->box_rows, map->box_columns);
  const int at = sim_mbarrier_of(d, l->operands[2]) + (space - d->space) * d->max_mbarriers;
  d->is_async = true;
  d->space = space;
  d->clock = d->first_mbarrier + at;
  d->time = (int32_t)d->mbarriers[at].done + 1;
  sim_flight *f = take_off(d, l, to->u.tensor, (int)((end - first) * columns));
  f->mbarrier = at;
  f->thread = -1 - t;
  f->space = space;
  for (int64_t i = first; i < end; i++)
    for (int64_t k = 0; k < columns && d->m.status == KILN_OK; k++) {
      d->m.vars[row] = i;
      d->m.vars[column] = k;
      const int64_t element = sim_element_of(d, a, to->args),
                    source = source_of(d, l, map, &corner, i, k);
      if (f->n == 0 && !sim_check_tma_target(d, l, a, element, columns)) return;
      if (f->n > 0 && element != f->elements[0] + f->n)
        SIM_FAIL(d, "`%s` must write rows that follow each other", sim_text_of(d, l));
      add(d, f, element, source >= 0 ? sim_fetch(d, b, source) : zero_of(a->b->dtype));
    }
}

void sim_begin_tma(sim_device *d, const kiln_loop *l, int t) {
  const int64_t rows = l->instr->loops->buffers.data[1]->extents[0];
  sim_become(d, t, l);
  if (l->n_operands < 3) {
    SIM_FAIL(d, "`%s` must name the mbarrier that it lands at", sim_text_of(d, l));
    return;
  }
  int64_t all = 0;
  if (l->n_operands > 3) all = kiln_sim_eval_index(&d->m, l->operands[3]);
  if (!all) {
    begin_rows(d, l, t, d->space, 0, rows);
    return;
  }
  const int rank = d->space;
  const unsigned peers = (unsigned)((uint64_t)all >> 8 * rank) & 255;
  if (!peers || peers >> d->n_blocks || rows % __builtin_popcount(peers)) {
    SIM_FAIL(
        d, "`%s` must go to some of the cluster's %d blocks, got the mask %u for %" PRId64 " rows",
        sim_text_of(d, l), d->n_blocks, peers, rows);
    return;
  }
  const int64_t each = rows / __builtin_popcount(peers),
                first = each * __builtin_popcount(peers & ((1u << rank) - 1));
  for (int p = 0; p < d->n_blocks; p++)
    if (peers >> p & 1) begin_rows(d, l, t, p, first, first + each);
}

static void forget_landed(sim_device *d) {
  int n = 0;
  for (int i = 0; i < d->flights.n; i++)
    if (!d->flights.data[i].is_over) d->flights.data[n++] = d->flights.data[i];
  d->flights.n = n;
}

void sim_end_copies(sim_device *d, const sim_warp *w, int64_t latest) {
  for (int t = w->first; d->has_copies && t < w->first + sim_n_active(w); t++) {
    int32_t *known = &sim_clock_of(&d->clocks, t)[sim_agent_of_copies(d, t)];
    const int32_t until = d->commits[t] - (int32_t)latest;
    if (until > *known) *known = until;
    for (int i = 0; i < d->flights.n; i++) {
      sim_flight *f = &d->flights.data[i];
      if (f->thread == t && !f->is_over && f->group <= until) land(d, f, t);
    }
  }
  forget_landed(d);
}

bool sim_land_one(sim_device *d) {
  for (int i = 0; i < d->flights.n; i++) {
    sim_flight *f = &d->flights.data[i];
    if (f->is_over || f->thread >= 0) continue;
    sim_mbarrier *m = &d->mbarriers[f->mbarrier];
    land(d, f, -1 - f->thread);
    m->bytes -= f->n * kiln_dtype_bytes(d->cells[f->buffer].b->dtype);
    sim_complete(d, m);
    return true;
  }
  return false;
}
