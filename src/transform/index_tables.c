// Index-table elimination: a constant table whose entries are an affine or quasi-affine function of
// the index, as in resizing by an integer factor, is replaced by the function in the statements
// that gather with it; likewise interpolation weights.
//     table = 0 0 1 1 2 2 ..;  Y(i) = X(table(i))    becomes  Y(i) = X(i / 2)
// Computed indices also expose which elements neighbouring iterations share.
#include "transform/transform.h"

#include "analysis/interpret.h"
#include "support/integer.h"

#include <math.h>

enum {
  MAX_ENTRIES = 8192,
  MAX_DIVISOR = 2048,
  MAX_RISE = 64,  // greatest difference of neighbouring entries of a table
  MAX_PERIOD = 4, // greatest period of weights that are written out
  MAX_WAVE = 64   // greatest period of weights that rise linearly
};

// The entries of a constant that a load reads along its only variable index.
typedef struct column {
  const kiln_tensor *tensor;
  const kiln_expr *index;
  int64_t first, stride, n; // in elements
} column;

static bool find_column(const kiln_program *p, const kiln_expr *load, column *out) {
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  int64_t stride = 1;
  *out = (column){.tensor = t};
  if (t->role != KILN_CONST || !t->data || t->rank > 2) return false;
  for (int k = t->rank - 1; k >= 0; k--) {
    int64_t at = 0, extent = 0;
    if (!kiln_expr_is_int(t->shape[k], &extent)) return false;
    if (kiln_expr_is_int(load->args[k], &at)) {
      out->first += at * stride;
    } else {
      if (out->index) return false;
      out->index = load->args[k];
      out->stride = stride;
      out->n = extent;
    }
    stride *= extent;
  }
  return out->index && out->n > 1 && out->n <= MAX_ENTRIES && !kiln_expr_has_load(out->index);
}

static int64_t place_at(const column *c, int64_t i) {
  return kiln_element_get_int(c->tensor->dtype, c->tensor->data, c->first + i * c->stride);
}

static double weight_at(const column *c, int64_t i) {
  return kiln_element_get(c->tensor->dtype, c->tensor->data, c->first + i * c->stride);
}

// --- index functions ---

// Entry i is (rise * i + start) / divisor, clamped to [lo, hi].
typedef struct line {
  int64_t rise, start, divisor, lo, hi;
} line;

// Whether some start fits all entries; entries at the clamps may have been any value beyond them.
static bool fits(const column *c, line *io) {
  const int64_t d = io->divisor;
  int64_t least = INT64_MIN, most = INT64_MAX;
  for (int64_t i = 0; i < c->n && least <= most; i++) {
    const int64_t y = place_at(c, i), from = d * y - io->rise * i;
    if (y > io->lo && from > least) least = from;
    if (y < io->hi && from + d - 1 < most) most = from + d - 1;
  }
  io->start = least != INT64_MIN ? least : most;
  return least <= most;
}

static bool rises(const column *c) {
  for (int64_t i = 0; i < c->n; i++) {
    const int64_t y = place_at(c, i), before = i ? place_at(c, i - 1) : y;
    if (y < 0 || y > INT32_MAX || y < before || y - before > MAX_RISE) return false;
  }
  return true;
}

// The line with the least divisor that fits all entries.
static bool find_line(const column *c, line *out) {
  if (c->tensor->dtype != KILN_I64 || !rises(c)) return false;
  const int64_t lo = place_at(c, 0), hi = place_at(c, c->n - 1);
  *out = (line){0, lo, 1, lo, hi};
  if (lo == hi) return true;
  int64_t from = 0, to = c->n - 1;
  while (from + 1 < c->n && place_at(c, from + 1) == lo) from++;
  while (to > 0 && place_at(c, to - 1) == hi) to--;
  const int64_t most = 2 * c->n < MAX_DIVISOR ? 2 * c->n : MAX_DIVISOR;
  for (int64_t d = 1; d <= most; d++) {
    // to - from steps, of which the two at the ends may be partial, climb more than hi - lo - 1.
    const int64_t steps = to - from, climb = hi - lo > 1 ? hi - lo - 1 : 0;
    const int64_t first = steps > 0 ? climb * d / steps : 0,
                  last = steps > 2 ? (hi - lo) * d / (steps - 2) + 1 : MAX_RISE * d;
    for (int64_t rise = first; rise <= last && rise <= MAX_RISE * d; rise++) {
      *out = (line){rise, 0, d, lo, hi};
      if (fits(c, out)) return true;
    }
  }
  return false;
}

static const kiln_expr *line_at(kiln_ctx *cx, const column *c, const line *l) {
  const int64_t whole = kiln_floor_div(l->start, l->divisor), rest = l->start - whole * l->divisor;
  const kiln_expr *x = kiln_add(cx, kiln_mul(cx, c->index, kiln_int(cx, l->rise)),
                                // A nonnegative dividend makes the quotient cheaper.
                                kiln_int(cx, rest));
  x = kiln_add(cx, kiln_div(cx, x, kiln_int(cx, l->divisor)), kiln_int(cx, whole));
  if (whole < l->lo) x = kiln_binary(cx, KILN_EXPR_MAX, x, kiln_int(cx, l->lo));
  if (kiln_floor_div(l->rise * (c->n - 1) + l->start, l->divisor) > l->hi)
    x = kiln_binary(cx, KILN_EXPR_MIN, x, kiln_int(cx, l->hi));
  return x;
}

// --- weights ---

static int64_t period_of(const column *c) {
  for (int64_t period = 1; period <= MAX_WAVE && 2 * period <= c->n; period++) {
    bool repeats = true;
    for (int64_t i = period; i < c->n && repeats; i++)
      repeats = weight_at(c, i) == weight_at(c, i - period);
    if (repeats) return period;
  }
  return 0;
}

// A weight first + step * ((i + shift) % period), exact in the table's type.
typedef struct wave {
  int64_t period, shift;
  float first, step;
} wave;

static bool follows(const column *c, const wave *w) {
  for (int64_t i = 0; i < w->period; i++) {
    const float x = (float)((i + w->shift) % w->period), product = x * w->step;
    if ((double)(product + w->first) != weight_at(c, i) ||
        (double)fmaf(x, w->step, w->first) != weight_at(c, i))
      return false;
  }
  return true;
}

static bool find_wave(const column *c, int64_t period, wave *out) {
  for (int64_t shift = 0; shift < period; shift++) {
    const int64_t start = (period - shift) % period;
    const float first = (float)weight_at(c, start),
                step = (float)weight_at(c, (start + 1) % period) - first;
    *out = (wave){period, shift, first, step};
    if (follows(c, out)) return true;
  }
  return false;
}

// The weight as an expression of type |t|, which must hold all of the table's values.
static const kiln_expr *weight_of_column(kiln_ctx *cx, const column *c, kiln_dtype t) {
  const int64_t period = period_of(c);
  wave w;
  if (period == 0) return NULL;
  if (period <= MAX_PERIOD) {
    const kiln_expr *x = kiln_float(cx, t, weight_at(c, period - 1)),
                    *at = kiln_mod(cx, c->index, kiln_int(cx, period));
    for (int64_t i = period - 2; i >= 0; i--)
      x = kiln_select(cx, kiln_binary(cx, KILN_EXPR_EQ, at, kiln_int(cx, i)),
                      kiln_float(cx, t, weight_at(c, i)), x);
    return x;
  }
  if (t != KILN_F32 || !find_wave(c, period, &w)) return NULL;
  const kiln_expr *at =
      kiln_mod(cx, kiln_add(cx, c->index, kiln_int(cx, w.shift)), kiln_int(cx, period));
  return kiln_add(cx, kiln_mul(cx, kiln_cast(cx, t, at), kiln_float(cx, t, (double)w.step)),
                  kiln_float(cx, t, (double)w.first));
}

// --- statements ---

typedef struct tables {
  const kiln_program *p;
  const kiln_expr *along; // the index by which tables are replaced
} tables;

static const kiln_expr *place_of(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  tables *t = argument;
  column c;
  line l;
  if (e->kind != KILN_EXPR_LOAD || !find_column(t->p, e, &c) || !find_line(&c, &l)) return NULL;
  t->along = c.index;
  return line_at(cx, &c, &l);
}

// Replaces tables only inside of other loads' indices.
static const kiln_expr *gather(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], place_of, argument);
  return kiln_load(cx, e->u.tensor, e->dtype, e->n_args, index);
}

static const kiln_expr *weight_of(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const tables *t = argument;
  const bool widens = e->kind == KILN_EXPR_CAST && e->dtype == KILN_F32;
  const kiln_expr *load = widens ? e->args[0] : e;
  column c;
  if (load->kind != KILN_EXPR_LOAD || !find_column(t->p, load, &c) || c.index != t->along)
    return NULL;
  if (c.tensor->dtype != KILN_F32 && !kiln_dtype_is_half(c.tensor->dtype)) return NULL;
  return weight_of_column(cx, &c, e->dtype);
}

// needs: constants with their data
// keeps: statements and their results, bit by bit
void kiln_tile_compute_index_tables(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    tables t = {.p = p};
    if (!s || !kiln_stmt_is_map(cx, s)) continue;
    const kiln_expr *body = kiln_expr_replace(cx, s->body, gather, &t);
    if (!t.along) continue;
    body = kiln_expr_replace(cx, body, weight_of, &t);
    s->body = kiln_stmt_simplify(cx, s, body);
  }
  kiln_arena_rewind(&cx->scratch, mark);
}
