// Tensor maps as the hardware reads them, what it requires of them, and of the copies by them.
// source: PTX ISA, "Tensors", "cp.async.bulk.tensor"; CUDA driver API, cuTensorMapEncodeTiled,
// cuTensorMapEncodeIm2col
#include "target/sim/device/state.h"

enum {
  ELEMENT = 2, // bytes of an element
  WORD = 16    // to a multiple of which addresses, pitches and rows of boxes must be aligned
};

// --- maps ---

// A number of a map and its bounds.
typedef struct limit {
  const char *what;
  int64_t value, least, most, unit;
} limit;

static bool check_limits(sim_device *d, const kiln_loop *l, int n, const limit *limits) {
  for (int i = 0; i < n; i++) {
    const limit *a = &limits[i];
    if (a->value >= a->least && a->value <= a->most && a->value % a->unit == 0) continue;
    SIM_FAIL(d,
             "`%s`: %s of the tensor map must be a multiple of %" PRId64 " from %" PRId64
             " to %" PRId64 ", got %" PRId64,
             sim_text_of(d, l), a->what, a->unit, a->least, a->most, a->value);
    return false;
  }
  return true;
}

static bool is_windows(const kiln_gpu_map *m) { return m->steps[0] != 0; }

static bool check_rows(sim_device *d, const kiln_loop *l, const kiln_gpu_map *m) {
  const int n = is_windows(m) ? KILN_MAP_AXES : 1;
  const int64_t most = INT64_C(1) << 32, far = (INT64_C(1) << 40) - 1;
  for (int a = 0; a < n; a++) {
    const limit limits[] = {{"an extent", m->rows[a], 1, most, 1},
                            {"a pitch in bytes", m->pitches[a] * ELEMENT, WORD, far, WORD}};
    if (!check_limits(d, l, (int)KILN_LEN(limits), limits)) return false;
  }
  return true;
}

static bool check_windows(sim_device *d, const kiln_loop *l, const kiln_gpu_map *m) {
  enum { STEP = 8, CORNER = 127 };
  for (int a = 0; a < 2 && is_windows(m); a++) {
    const limit limits[] = {{"a stride of windows", m->steps[a], 1, STEP, 1},
                            {"a lower corner", m->lower[a], -CORNER - 1, CORNER, 1},
                            {"an upper corner", m->upper[a], -CORNER - 1, CORNER, 1}};
    if (!check_limits(d, l, (int)KILN_LEN(limits), limits)) return false;
  }
  return true;
}

static bool check_map(sim_device *d, const kiln_loop *l, const kiln_gpu_map *m) {
  enum { BOX = 256, PIXELS = 1024 }; // rows of boxes; of windows
  const limit limits[] = {
      {"the address", (int64_t)(uintptr_t)d->cells[m->arg].data, 0, INT64_MAX, WORD},
      {"the number of columns", m->columns, 1, INT64_C(1) << 32, 1},
      {"the number of a box's rows", m->box_rows, 1, is_windows(m) ? PIXELS : BOX, 1},
      {"the bytes of a box's row", m->box_columns * ELEMENT, WORD, SIM_SWIZZLE_SPAN, WORD}};
  return check_limits(d, l, (int)KILN_LEN(limits), limits) && check_rows(d, l, m) &&
         check_windows(d, l, m);
}

const kiln_gpu_map *sim_map_of(sim_device *d, const kiln_loop *l) {
  enum { MAP = 4 }; // the operand
  int64_t at = 0;
  if (l->n_operands <= MAP) return NULL;
  at = kiln_sim_eval_index(&d->m, l->operands[MAP]);
  if (at < 0 || at >= d->launch->n_maps) {
    SIM_FAIL(d, "`%s` must name one of %d tensor maps, got %" PRId64, sim_text_of(d, l),
             d->launch->n_maps, at);
    return NULL;
  }
  const kiln_gpu_map *m = &d->launch->maps[at];
  if (d->map_is_right[at]) return m;
  d->map_is_right[at] = check_map(d, l, m);
  return m;
}

// --- places ---

bool sim_find_corner(sim_device *d, const kiln_loop *l, const kiln_gpu_map *m,
                     sim_map_corner *out) {
  enum { FIRST = 5, OFFSET = 255 }; // the operand of the first coordinate
  const int n = is_windows(m) ? SIM_MAX_COORDINATES : 2;
  *out = (sim_map_corner){0};
  if (l->n_operands != FIRST + n) {
    SIM_FAIL(d, "`%s` must have %d coordinates, got %d", sim_text_of(d, l), n,
             l->n_operands - FIRST);
    return false;
  }
  for (int i = 0; i < n; i++) {
    const int64_t x = out->at[i] = kiln_sim_eval_index(&d->m, l->operands[FIRST + i]);
    const bool is_offset = i > KILN_MAP_AXES;
    if (x < (is_offset ? 0 : INT32_MIN) || x > (is_offset ? OFFSET : INT32_MAX))
      SIM_FAIL(d, "`%s`: coordinate %d must fit its bits, got %" PRId64, sim_text_of(d, l), i, x);
  }
  if (out->at[0] * ELEMENT % WORD)
    SIM_FAIL(d,
             "`%s` must begin at a column that is a multiple of %d elements, got %" PRId64
             ": the hardware ends in an illegal instruction",
             sim_text_of(d, l), WORD / ELEMENT, out->at[0]);
  return d->m.status == KILN_OK;
}

static bool is_inside(int64_t i, int64_t n) { return i >= 0 && i < n; }

// From the first window on, along columns, rows and images; each axis is left at its upper corner.
static int64_t element_of_window(const kiln_gpu_map *m, const sim_map_corner *c, int64_t row,
                                 int64_t column) {
  int64_t at[KILN_MAP_AXES], element = c->at[0] + column;
  bool is = is_inside(element, m->columns);
  int64_t carry = row;
  for (int a = 0; a < KILN_MAP_AXES; a++) {
    const bool is_image = a == KILN_MAP_AXES - 1;
    const int64_t n = is_image ? 0 : (m->rows[a] - 1 + m->upper[a] - m->lower[a]) / m->steps[a] + 1,
                  number = is_image ? c->at[a + 1] + carry
                                    : (c->at[a + 1] - m->lower[a]) / m->steps[a] + carry;
    at[a] = is_image ? number : m->lower[a] + number % n * m->steps[a];
    if (!is_image) carry = number / n;
    if (!is_image) at[a] += c->at[a + KILN_MAP_AXES + 1];
    is &= is_inside(at[a], m->rows[a]);
    element += at[a] * m->pitches[a];
  }
  return is ? element : -1;
}

int64_t sim_element_in_map(const kiln_gpu_map *m, const sim_map_corner *c, int64_t row,
                           int64_t column) {
  if (is_windows(m)) return element_of_window(m, c, row, column);
  const int64_t x = c->at[0] + column, y = c->at[1] + row;
  return is_inside(x, m->columns) && is_inside(y, m->rows[0]) ? y * m->pitches[0] + x : -1;
}

// --- shared memory ---

bool sim_check_tma_target(sim_device *d, const kiln_loop *l, const sim_memory *to, int64_t element,
                          int64_t columns) {
  const int64_t at = sim_shared_byte(d, to, element) - d->space * d->arena_bytes,
                row = columns * kiln_dtype_bytes(to->b->dtype);
  if (!to->b->is_swizzled)
    SIM_FAIL(d, "`%s` must copy to a swizzled buffer, got %s", sim_text_of(d, l),
             kiln_symbol_text(d->m.cx, to->b->name));
  else if (at % SIM_SWIZZLE_PERIOD)
    SIM_FAIL(d,
             "`%s` must copy to a multiple of %d bytes of shared memory, which its swizzle begins "
             "at, got %" PRId64,
             sim_text_of(d, l), SIM_SWIZZLE_PERIOD, at);
  else if (row != SIM_SWIZZLE_SPAN)
    SIM_FAIL(d, "`%s` must copy rows of %d bytes, got %" PRId64, sim_text_of(d, l),
             SIM_SWIZZLE_SPAN, row);
  return d->m.status == KILN_OK;
}
