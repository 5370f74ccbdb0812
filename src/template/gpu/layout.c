// Thread-value layouts: digits of rows and columns in warps, lanes and registers.
#include "template/gpu/layout.h"

#include "schedule/instr.h"

#include <string.h>

// --- digits ---

static bool follows(const kiln_layout_digit *high, const kiln_layout_digit *low) {
  return high->holder == low->holder && high->axis == low->axis &&
         high->stride == low->stride * low->extent;
}

// Appends a digit, which is part of the one before where it continues it.
static bool add_digit(kiln_layout *l, kiln_layout_digit d) {
  kiln_layout_digit *last = l->n > 0 ? &l->digits[l->n - 1] : NULL;
  if (d.extent == 1) return true;
  if (last && follows(last, &d)) {
    last->stride = d.stride;
    last->extent *= d.extent;
    return true;
  }
  if (l->n == KILN_MAX_DIGITS) return false;
  l->digits[l->n++] = d;
  return true;
}

static bool add(kiln_layout *l, kiln_holder holder, int axis, int64_t stride, int64_t extent) {
  return add_digit(l, (kiln_layout_digit){holder, axis, stride, extent});
}

int64_t kiln_layout_extent(const kiln_layout *l, kiln_holder holder) {
  int64_t n = 1;
  for (int i = 0; i < l->n; i++)
    if (l->digits[i].holder == holder) n *= l->digits[i].extent;
  return n;
}

int64_t kiln_layout_copies(const kiln_layout *l, int axis, kiln_holder holder) {
  int64_t n = 1;
  for (int i = 0; i < l->n; i++)
    if (l->digits[i].holder == holder && l->digits[i].axis == axis) n *= l->digits[i].extent;
  return n;
}

void kiln_layout_find(const kiln_layout *l, int64_t row, int64_t column, int64_t *out_thread,
                      int64_t *out_register) {
  *out_thread = *out_register = 0;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    int64_t *place = d->holder == KILN_HOLDER_REGISTER ? out_register : out_thread;
    *place = *place * d->extent + (d->axis == 0 ? row : column) / d->stride % d->extent;
  }
}

// --- instructions ---

// A prime digit of an instruction's tile, and what it adds to the lane or to the element.
typedef struct weighted {
  kiln_layout_digit d;
  int64_t weight;
} weighted;

typedef struct tile_reader {
  kiln_ctx *cx;
  const kiln_expr *lane, *element;
  int n;
  weighted digits[32];
} tile_reader;

static kiln_status parse_part(kiln_ctx *cx, const char *text, const kiln_expr **out) {
  const kiln_expr_names none = {0};
  return kiln_expr_parse(cx, &text, &none, out);
}

// The value of |e| at index |at| on axis |k| of the tile, and 0 on the others.
static int64_t value_at(kiln_ctx *cx, const kiln_expr *e, int k, int64_t at) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  const kiln_expr *values[KILN_MAX_TILE_RANK];
  int64_t value = -1;
  for (int d = 0; d < KILN_MAX_TILE_RANK; d++) {
    vars[d] = kiln_tile_var(cx, d);
    values[d] = kiln_int(cx, d == k ? at : 0);
  }
  const kiln_expr *x = kiln_expr_substitute(cx, e, KILN_MAX_TILE_RANK, vars, values);
  return kiln_expr_is_int(kiln_simplify(cx, x, NULL), &value) ? value : -1;
}

static int64_t least_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n; p++)
    if (n % p == 0) return p;
  return n;
}

// Reads the prime digits of axis |k| of the tile, which is of axis |axis| of the layout at |stride|.
static bool read_axis(tile_reader *r, int k, int64_t extent, int axis, int64_t stride) {
  for (int64_t at = 1, p; at < extent; at *= p) {
    p = least_factor(extent / at);
    const int64_t lane = value_at(r->cx, r->lane, k, at),
                  element = value_at(r->cx, r->element, k, at);
    if (r->n == (int)KILN_LEN(r->digits) || (lane > 0) == (element > 0)) return false;
    r->digits[r->n++] =
        (weighted){{lane > 0 ? KILN_HOLDER_LANE : KILN_HOLDER_REGISTER, axis, at * stride, p},
                   lane > 0 ? lane : element};
  }
  return true;
}

static bool is_before(const weighted *a, const weighted *b) {
  return a->d.holder != b->d.holder ? a->d.holder < b->d.holder : a->weight > b->weight;
}

static void sort_digits(tile_reader *r) {
  for (int i = 1; i < r->n; i++)
    for (int k = i; k > 0 && is_before(&r->digits[k], &r->digits[k - 1]); k--) {
      const weighted w = r->digits[k];
      r->digits[k] = r->digits[k - 1];
      r->digits[k - 1] = w;
    }
}

// Appends the sorted digits, which must be all of a number of lanes, and of registers.
static bool add_sorted(const tile_reader *r, kiln_layout *out) {
  for (int i = 0; i < r->n; i++) {
    const weighted *w = &r->digits[i], *next = i + 1 < r->n ? w + 1 : NULL;
    const int64_t low = next && next->d.holder == w->d.holder ? next->weight * next->d.extent : 1;
    if (w->weight != low || !add_digit(out, w->d)) return false;
  }
  return true;
}

bool kiln_layout_of_instr(kiln_ctx *cx, kiln_instr *instr, int operand, kiln_layout *out) {
  const kiln_fragment *f = &instr->fragments[operand];
  tile_reader r = {.cx = cx};
  *out = (kiln_layout){.extents = {1, 1}};
  if (!f->lane || kiln_instr_make_loops(cx, instr) != KILN_OK ||
      operand >= instr->loops->buffers.n || parse_part(cx, f->lane, &r.lane) != KILN_OK ||
      parse_part(cx, f->element, &r.element) != KILN_OK)
    return false;
  const kiln_buffer *tile = instr->loops->buffers.data[operand];
  for (int k = tile->rank - 1; k >= 0; k--) {
    const int axis = k > 0;
    if (!read_axis(&r, k, tile->extents[k], axis, out->extents[axis])) return false;
    out->extents[axis] *= tile->extents[k];
  }
  sort_digits(&r);
  return add_sorted(&r, out);
}

// --- tiles ---

static bool add_place(kiln_layout *out, const kiln_layout *from, kiln_holder holder) {
  bool fits = true;
  for (int i = 0; i < from->n; i++)
    if (from->digits[i].holder == holder) fits &= add_digit(out, from->digits[i]);
  return fits;
}

bool kiln_layout_tiled(const kiln_layout *one, const int64_t *extents, const int64_t *warp,
                       int inner, kiln_layout *out) {
  *out = (kiln_layout){.extents = {extents[0], extents[1]}};
  for (int a = 0; a < 2; a++) {
    if (warp[a] % one->extents[a] || extents[a] % warp[a]) return false;
    if (!add(out, KILN_HOLDER_WARP, a, warp[a], extents[a] / warp[a])) return false;
  }
  bool fits = add_place(out, one, KILN_HOLDER_LANE);
  for (int i = 0; i < 2; i++) {
    const int a = i == 0 ? 1 - inner : inner;
    fits &= add(out, KILN_HOLDER_REGISTER, a, one->extents[a], warp[a] / one->extents[a]);
  }
  return fits && add_place(out, one, KILN_HOLDER_REGISTER);
}

bool kiln_layout_of_operand(kiln_ctx *cx, kiln_instr *instr, int operand, const int64_t *extents,
                            const int64_t *warp, kiln_layout *out) {
  kiln_layout one;
  return kiln_layout_of_instr(cx, instr, operand, &one) &&
         kiln_layout_tiled(&one, extents, warp, operand == 2 ? 0 : 1, out);
}

kiln_layout kiln_layout_transposed(const kiln_layout *l) {
  kiln_layout t = *l;
  t.extents[0] = l->extents[1], t.extents[1] = l->extents[0];
  for (int i = 0; i < t.n; i++) t.digits[i].axis = 1 - t.digits[i].axis;
  return t;
}

bool kiln_layout_of_simt(const kiln_simt_tile *t, kiln_layout *out) {
  int64_t stride[2], part[2];
  bool fits = true;
  *out = (kiln_layout){.extents = {t->extents[0], t->extents[1]}};
  for (int a = 0; a < 2; a++) {
    stride[a] = t->unit[a] * t->lanes[a];
    part[a] = stride[a] * t->warps[a];
    if (t->extents[a] % part[a] || (t->interleaves && t->lanes[1] % 2)) return false;
    fits &= add(out, KILN_HOLDER_WARP, a, stride[a], t->warps[a]);
  }
  const int64_t pair = t->interleaves ? 2 : 1;
  if (pair == 2) fits &= add(out, KILN_HOLDER_LANE, 1, t->unit[1] * pair, t->lanes[1] / pair);
  fits &= add(out, KILN_HOLDER_LANE, 0, t->unit[0], t->lanes[0]);
  fits &= add(out, KILN_HOLDER_LANE, 1, t->unit[1], pair == 2 ? pair : t->lanes[1]);
  for (int a = 0; a < 2; a++) {
    fits &= add(out, KILN_HOLDER_REGISTER, a, part[a], t->extents[a] / part[a]);
    fits &= add(out, KILN_HOLDER_REGISTER, a, 1, t->unit[a]);
  }
  return fits;
}

void kiln_layout_reduced(const kiln_layout *l, int axis, kiln_layout *out) {
  int64_t copies =
      kiln_layout_copies(l, axis, KILN_HOLDER_WARP) * kiln_layout_copies(l, axis, KILN_HOLDER_LANE);
  *out = (kiln_layout){.extents = {l->extents[0], l->extents[1]}};
  out->extents[axis] = copies;
  for (int i = 0; i < l->n; i++) {
    kiln_layout_digit d = l->digits[i];
    if (d.axis == axis && d.holder == KILN_HOLDER_REGISTER) continue;
    if (d.axis == axis) d.stride = copies /= d.extent;
    (void)add_digit(out, d); // no more digits than |l| has
  }
}

// --- conversions ---

// The weight of prime digit |p| of |axis| at |stride| in a holder; 0: it is in another one.
static int64_t weight_of(const kiln_layout *l, kiln_holder holder, int axis, int64_t stride) {
  int64_t weight = 1;
  for (int i = l->n - 1; i >= 0; i--) {
    const kiln_layout_digit *d = &l->digits[i];
    if (d->holder != holder) continue;
    if (d->axis == axis && stride >= d->stride && stride < d->stride * d->extent)
      return weight * (stride / d->stride);
    weight *= d->extent;
  }
  return 0;
}

// Whether all elements have the same |holder| in both.
static bool agrees(const kiln_layout *a, const kiln_layout *b, kiln_holder holder) {
  for (int axis = 0; axis < 2; axis++)
    for (int64_t at = 1; at < a->extents[axis]; at *= least_factor(a->extents[axis] / at))
      if (weight_of(a, holder, axis, at) != weight_of(b, holder, axis, at)) return false;
  return true;
}

kiln_conversion kiln_layout_conversion(const kiln_layout *from, const kiln_layout *to) {
  if (from->extents[0] != to->extents[0] || from->extents[1] != to->extents[1] ||
      kiln_layout_extent(from, KILN_HOLDER_LANE) != kiln_layout_extent(to, KILN_HOLDER_LANE) ||
      !agrees(from, to, KILN_HOLDER_WARP))
    return KILN_CONVERSION_SHARED;
  if (!agrees(from, to, KILN_HOLDER_LANE)) return KILN_CONVERSION_SHUFFLE;
  return agrees(from, to, KILN_HOLDER_REGISTER) ? KILN_CONVERSION_NONE : KILN_CONVERSION_REGISTERS;
}

// --- fragments ---

// An axis of the buffer on its way into the layout: digits of one axis of the tile that lie side by
// side, |extent| of them from |stride| on.
typedef struct part {
  int axis;
  int64_t stride, extent;
} part;

// The highest digit in |p| that is not all of it; NULL: it is one digit.
static const kiln_layout_digit *highest(const kiln_layout *l, const part *p) {
  const kiln_layout_digit *high = NULL;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    const bool in_part =
        d->axis == p->axis && d->stride >= p->stride && d->stride < p->stride * p->extent;
    if (in_part && (!high || d->stride > high->stride)) high = d;
  }
  return high && high->stride > p->stride ? high : NULL;
}

// Splits each axis at its highest digit, in its place.
static kiln_status split_parts(kiln_lowering *w, kiln_symbol buffer, int n_lead,
                               const kiln_layout *l, part *parts, int *io_n, bool *out_did) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  part next[KILN_MAX_DIGITS + 2];
  int n = 0;
  for (int d = 0; d < n_lead; d++) axes[d] = (kiln_stage_axis){.axis = d};
  for (int i = 0; i < *io_n; i++) {
    const kiln_layout_digit *high = highest(l, &parts[i]);
    if (n_lead + n + 2 > (int)KILN_LEN(axes))
      return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "layout", "there must be fewer axes");
    if (!high) {
      axes[n_lead + n] = (kiln_stage_axis){.axis = n_lead + i};
      next[n++] = parts[i];
      continue;
    }
    const int64_t low = high->stride / parts[i].stride;
    axes[n_lead + n] = (kiln_stage_axis){.axis = n_lead + i, .block = low, .outer = true};
    next[n++] = (part){parts[i].axis, high->stride, parts[i].extent / low};
    axes[n_lead + n] = (kiln_stage_axis){.axis = n_lead + i, .block = low};
    next[n++] = (part){parts[i].axis, parts[i].stride, low};
  }
  *out_did = n > *io_n;
  *io_n = n;
  memcpy(parts, next, sizeof *parts * (size_t)n);
  return *out_did ? kiln_transform_layout(&w->s, buffer, n_lead + n, axes) : KILN_OK;
}

// The parts in the order of the digits; those that are none, of one element, in front.
static kiln_status order_parts(kiln_lowering *w, kiln_symbol buffer, int n_lead,
                               const kiln_layout *l, const part *parts, int n) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  int at = n_lead;
  for (int d = 0; d < n_lead; d++) axes[d] = (kiln_stage_axis){.axis = d};
  for (int i = 0; i < n; i++)
    if (parts[i].extent == 1) axes[at++] = (kiln_stage_axis){.axis = n_lead + i};
  for (int k = 0; k < l->n; k++)
    for (int i = 0; i < n; i++)
      if (parts[i].extent > 1 && parts[i].axis == l->digits[k].axis &&
          parts[i].stride == l->digits[k].stride)
        axes[at++] = (kiln_stage_axis){.axis = n_lead + i};
  return kiln_transform_layout(&w->s, buffer, at, axes);
}

kiln_status kiln_layout_apply(kiln_lowering *w, kiln_symbol buffer, int n_lead,
                              const kiln_layout *l) {
  part parts[KILN_MAX_DIGITS + 2] = {{0, 1, l->extents[0]}, {1, 1, l->extents[1]}};
  int n = 2;
  bool did = true;
  while (did) KILN_TRY(split_parts(w, buffer, n_lead, l, parts, &n, &did));
  return order_parts(w, buffer, n_lead, l, parts, n);
}
