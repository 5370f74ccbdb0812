// Thread-value layouts: digits of rows and columns in warps, lanes and registers.
#include "template/gpu/layout.h"

#include "schedule/instr.h"
#include "schedule/nest.h"

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

void kiln_layout_find(const kiln_layout *l, const int64_t *index, int64_t *out_thread,
                      int64_t *out_register) {
  *out_thread = *out_register = 0;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    int64_t *place = d->holder == KILN_HOLDER_REGISTER ? out_register : out_thread;
    *place = *place * d->extent + index[d->axis] / d->stride % d->extent;
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

// Reads the prime digits of axis |k| of the tile, part of axis |axis| of the layout from |stride|
// on.
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
  *out = (kiln_layout){.rank = 2, .extents = {1, 1}};
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
  *out = (kiln_layout){.rank = 2, .extents = {extents[0], extents[1]}};
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

bool kiln_layout_of_operand(kiln_ctx *cx, kiln_instr *instr, kiln_operand operand,
                            const int64_t *extents, const int64_t *warp, kiln_layout *out) {
  kiln_layout one;
  if (operand == KILN_OPERAND_RIGHT_TRANSPOSED) {
    const int64_t turned[] = {extents[1], extents[0]}, turned_warp[] = {warp[1], warp[0]};
    if (!kiln_layout_of_operand(cx, instr, KILN_OPERAND_RIGHT, turned, turned_warp, &one))
      return false;
    *out = kiln_layout_transposed(&one);
    return true;
  }
  return kiln_layout_of_instr(cx, instr, (int)operand, &one) &&
         kiln_layout_tiled(&one, extents, warp, operand == KILN_OPERAND_RIGHT ? 0 : 1, out);
}

bool kiln_layout_of_sums(const kiln_lowering *w, bool by_warpgroups, const int64_t *extents,
                         const int64_t *warp, kiln_layout *out) {
  kiln_instr *instr =
      kiln_gpu_instr_named(w, by_warpgroups ? "wgmma.m64n64k16.f16.row.row" : "mma.m16n8k16.f16");
  return instr && kiln_layout_of_operand(w->cx, instr, KILN_OPERAND_SUMS, extents, warp, out);
}

kiln_layout kiln_layout_transposed(const kiln_layout *l) {
  kiln_layout t = *l;
  t.extents[0] = l->extents[1], t.extents[1] = l->extents[0];
  for (int i = 0; i < t.n; i++) t.digits[i].axis = 1 - t.digits[i].axis;
  return t;
}

bool kiln_layout_stacked(const kiln_layout *l, int64_t extent, int64_t warp, kiln_layout *out) {
  if (l->rank == KILN_MAX_LAYOUT_RANK || extent % warp) return false;
  *out = (kiln_layout){.rank = l->rank + 1, .extents = {extent}};
  memcpy(out->extents + 1, l->extents, sizeof *l->extents * (size_t)l->rank);
  bool fits = add(out, KILN_HOLDER_WARP, 0, warp, extent / warp), has_own = false;
  for (int i = 0; i < l->n; i++) {
    kiln_layout_digit d = l->digits[i];
    if (d.holder == KILN_HOLDER_REGISTER && !has_own)
      fits &= has_own = add(out, KILN_HOLDER_REGISTER, 0, 1, warp);
    d.axis++;
    fits &= add_digit(out, d);
  }
  return fits && (has_own || add(out, KILN_HOLDER_REGISTER, 0, 1, warp));
}

bool kiln_layout_of_simt(const kiln_simt_tile *t, kiln_layout *out) {
  int64_t stride[2], part[2];
  bool fits = true;
  *out = (kiln_layout){.rank = 2, .extents = {t->extents[0], t->extents[1]}};
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
  *out = (kiln_layout){.rank = l->rank};
  memcpy(out->extents, l->extents, sizeof l->extents);
  out->extents[axis] = copies;
  for (int i = 0; i < l->n; i++) {
    kiln_layout_digit d = l->digits[i];
    if (d.axis == axis && d.holder == KILN_HOLDER_REGISTER) continue;
    if (d.axis == axis) d.stride = copies /= d.extent;
    (void)add_digit(out, d); // no more digits than |l| has
  }
}

const kiln_expr *kiln_layout_copy(kiln_ctx *cx, const kiln_layout *l, int axis,
                                  const kiln_expr *index) {
  const kiln_expr *copy = kiln_int(cx, 0);
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    if (d->axis != axis || d->holder == KILN_HOLDER_REGISTER) continue;
    const kiln_expr *digit =
        kiln_mod(cx, kiln_div(cx, index, kiln_int(cx, d->stride)), kiln_int(cx, d->extent));
    copy = kiln_add(cx, kiln_mul(cx, copy, kiln_int(cx, d->extent)), digit);
  }
  return copy;
}

kiln_instr *kiln_layout_reduction(const kiln_lowering *w, const kiln_layout *l, int axis,
                                  kiln_combiner combiner) {
  static const char *const words[] = {[KILN_COMBINE_SUM] = "sum",
                                      [KILN_COMBINE_PROD] = "prod",
                                      [KILN_COMBINE_MAX] = "max",
                                      [KILN_COMBINE_MIN] = "min"};
  const char *word = (size_t)combiner < KILN_LEN(words) ? words[combiner] : NULL;
  int64_t lanes = 1, apart = 1, below = 1;
  for (int i = l->n - 1; i >= 0; i--) {
    const kiln_layout_digit *d = &l->digits[i];
    if (d->holder != KILN_HOLDER_LANE) continue;
    if (d->axis == axis && lanes > 1) return NULL;
    if (d->axis == axis) lanes = d->extent, apart = below;
    below *= d->extent;
  }
  if (!word || lanes == 1) return NULL;
  const char *by = apart > 1 ? kiln_arena_printf(&w->cx->scratch, "x%" PRId64, apart) : "",
             *width = below == 32    ? ""
                      : below == 128 ? ".x128"
                                     : ".none";
  return kiln_gpu_instr_named(w, kiln_arena_printf(&w->cx->scratch, "lanes.%s.%" PRId64 "%s.f32%s",
                                                   word, lanes, by, width));
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
  for (int axis = 0; axis < a->rank; axis++)
    for (int64_t at = 1; at < a->extents[axis]; at *= least_factor(a->extents[axis] / at))
      if (weight_of(a, holder, axis, at) != weight_of(b, holder, axis, at)) return false;
  return true;
}

kiln_conversion kiln_layout_conversion(const kiln_layout *from, const kiln_layout *to) {
  if (from->rank != to->rank || memcmp(from->extents, to->extents, sizeof from->extents) ||
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
  part next[KILN_MAX_DIGITS + KILN_MAX_LAYOUT_RANK];
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

static const kiln_buffer *buffer_of(const kiln_lowering *w, kiln_symbol name) {
  for (int i = 0; i < w->s.loops->buffers.n; i++)
    if (w->s.loops->buffers.data[i]->name == name) return w->s.loops->buffers.data[i];
  return NULL;
}

const int64_t *kiln_layout_extents(const kiln_lowering *w, kiln_symbol buffer, int rank) {
  const kiln_buffer *b = buffer_of(w, buffer);
  return b && b->rank >= rank ? b->extents + b->rank - rank : NULL;
}

static kiln_status refuse(const kiln_lowering *w, kiln_symbol buffer, const char *what) {
  return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "layout", "buffer %s must %s",
                   kiln_symbol_text(w->cx, buffer), what);
}

kiln_status kiln_layout_apply(kiln_lowering *w, kiln_symbol buffer, const kiln_layout *l) {
  const kiln_buffer *b = buffer_of(w, buffer);
  part parts[KILN_MAX_DIGITS + KILN_MAX_LAYOUT_RANK];
  int n = l->rank;
  bool did = true;
  if (!b || b->rank < n) return refuse(w, buffer, "have the axes of its layout");
  const int n_lead = b->rank - n;
  for (int a = 0; a < n; a++) {
    parts[a] = (part){a, 1, l->extents[a]};
    if (b->extents[n_lead + a] != l->extents[a])
      return refuse(w, buffer, "have the extents of its layout");
  }
  while (did) KILN_TRY(split_parts(w, buffer, n_lead, l, parts, &n, &did));
  return order_parts(w, buffer, n_lead, l, parts, n);
}

kiln_status kiln_layout_apply_operand(kiln_lowering *w, kiln_symbol buffer, kiln_instr *instr,
                                      kiln_operand operand, const int64_t *warp) {
  const int64_t *extents = kiln_layout_extents(w, buffer, 2);
  kiln_layout l;
  if (!extents) return refuse(w, buffer, "have rows and columns");
  if (!kiln_layout_of_operand(w->cx, instr, operand, extents, warp ? warp : extents, &l))
    return refuse(w, buffer, "be filled by tiles of its instruction");
  return kiln_layout_apply(w, buffer, &l);
}

kiln_status kiln_layout_run(kiln_lowering *w, kiln_symbol loop, int64_t lanes, int64_t warps) {
  kiln_loops *l = w->s.loops;
  kiln_loop *nest = kiln_loops_find(l, loop);
  kiln_symbol like = 0;
  int64_t most = 0;
  for (int i = 0; nest && i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_LOCAL || kiln_buffer_elems(b) <= most ||
        !(kiln_nest_uses(w->cx, l, nest, i, true) || kiln_nest_uses(w->cx, l, nest, i, false)))
      continue;
    most = kiln_buffer_elems(b);
    like = b->name;
  }
  return kiln_distribute(&w->s, loop, like, lanes, warps);
}

int kiln_layout_digits(const kiln_layout *l, int axis, const kiln_layout_digit **out) {
  int n = 0;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    if (d->axis != axis) continue;
    int at = n++;
    for (; at > 0 && out[at - 1]->stride < d->stride; at--) out[at] = out[at - 1];
    out[at] = d;
  }
  return n;
}

kiln_status kiln_layout_cut(kiln_lowering *w, const kiln_layout *l, int axis, kiln_symbol loop,
                            kiln_symbol *out_loops, const kiln_layout_digit **out_digits,
                            int *out_n) {
  static const char *const letters[] = {"w", "l", "r"};
  *out_n = kiln_layout_digits(l, axis, out_digits);
  for (int i = 0; i + 1 < *out_n; i++) {
    const kiln_symbol whole = loop;
    out_loops[i] = kiln_lowering_name(w, letters[out_digits[i]->holder], whole);
    loop = kiln_lowering_name(w, "i", whole);
    KILN_TRY(kiln_split(&w->s, whole, out_digits[i]->stride, KILN_TAIL_EXACT, out_loops[i], loop));
  }
  if (*out_n) out_loops[*out_n - 1] = loop;
  return KILN_OK;
}

// Fuses n neighbouring loops; 0: there are none.
static kiln_status fuse_all(kiln_lowering *w, int n, const kiln_symbol *loops, kiln_symbol *out) {
  *out = n > 0 ? loops[0] : 0;
  for (int i = 1; i < n; i++) {
    const kiln_symbol both = kiln_lowering_name(w, "b", loops[i]);
    KILN_TRY(kiln_fuse(&w->s, *out, loops[i], both));
    *out = both;
  }
  return KILN_OK;
}

// The loops of rows by what they count: warps, registers, and lanes that differ above and below the
// lanes of |axis|.
typedef struct row_loops {
  kiln_symbol of[4][KILN_MAX_DIGITS];
  int n[4];
} row_loops;

static void sort_rows(const kiln_layout *l, int axis, int n, const kiln_symbol *loops,
                      const kiln_layout_digit *const *digits, row_loops *out) {
  bool is_below = false;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    is_below |= d->axis == axis && d->holder == KILN_HOLDER_LANE;
    for (int k = 0; k < n; k++) {
      if (digits[k] != d) continue;
      const int of = d->holder == KILN_HOLDER_WARP       ? 0
                     : d->holder == KILN_HOLDER_REGISTER ? 1
                     : is_below                          ? 3
                                                         : 2;
      out->of[of][out->n[of]++] = loops[k];
    }
  }
}

kiln_status kiln_layout_run_reduction(kiln_lowering *w, const kiln_layout *l, int axis,
                                      kiln_symbol rows, int n, const kiln_symbol *inner,
                                      kiln_instr *instr) {
  kiln_symbol loops[KILN_MAX_DIGITS], order[2 * KILN_MAX_DIGITS], warp, above, below;
  const kiln_layout_digit *digits[KILN_MAX_DIGITS];
  row_loops by = {0};
  int n_rows = 0, n_order = 0;
  if (!instr)
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "layout", "lanes must have a reduction");
  KILN_TRY(kiln_layout_cut(w, l, 1 - axis, rows, loops, digits, &n_rows));
  sort_rows(l, axis, n_rows, loops, digits, &by);
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < by.n[k]; i++) order[n_order++] = by.of[k][i];
  for (int i = 0; i < n; i++) order[n_order++] = inner[i];
  if (n_order > 1) KILN_TRY(kiln_reorder(&w->s, n_order, order));
  KILN_TRY(fuse_all(w, by.n[0], by.of[0], &warp));
  KILN_TRY(fuse_all(w, by.n[2], by.of[2], &above));
  KILN_TRY(fuse_all(w, by.n[3], by.of[3], &below));
  KILN_TRY(kiln_tensorize(&w->s, above ? above : below ? below : inner[0], instr));
  if (warp) KILN_TRY(kiln_bind(&w->s, warp, KILN_THREAD_Y));
  for (int i = 0; i < by.n[1]; i++) KILN_TRY(kiln_unroll(&w->s, by.of[1][i]));
  return KILN_OK;
}
