// Packing of weights. An affine map becomes strides plus one inequality for each source axis; the
// loops run over the buffer, with the inequalities solved for the innermost axis, so that there are
// no bounds checks for single elements. The axes that are contiguous in the buffer and in the
// source are innermost and blocked. Other maps are evaluated element by element. In both cases
// slices of the buffer's outermost axis are independent, so threads may fill them in any order.
#include "module/pack.h"
#include "analysis/simplify.h"
#include "ir/fold.h"
#include "support/integer.h"

#include <string.h>

enum { MAX_AXES = KILN_MAX_RANK + 4, TILE = 16 };

typedef struct packing {
  int elem;           // element size in bytes
  int n_axes, n_rows; // number of buffer axes and of source axes
  int axis[MAX_AXES]; // loop order: axes of the buffer, outermost first
  int64_t extents[MAX_AXES], to_strides[MAX_AXES], from_strides[MAX_AXES];
  int64_t coef[KILN_MAX_RANK][MAX_AXES], constant[KILN_MAX_RANK], bound[KILN_MAX_RANK];
  const char *from;
  int64_t base; // source element of the buffer's origin
  char *to;
} packing;

struct kiln_packing {
  bool is_affine, is_whole;
  packing affine;
  const kiln_buffer *buffer; // for maps that are not affine
  const kiln_pack *pack;
  kiln_const source;
  int64_t strides[KILN_MAX_RANK];
  kiln_symbol vars[MAX_AXES];
  int outer; // the axis that is divided into slices; -1: one slice
  int elem;
  int64_t n_slices, slice_elems, elems;
};

// The subrange of an axis' [0, extent) in which all source indices are in bounds, for fixed values
// of the other axes (in |index|).
typedef struct span {
  int64_t begin, end;
} span;

static span inside(const packing *p, int axis, const int64_t *index) {
  span s = {0, p->extents[axis]};
  for (int r = 0; r < p->n_rows; r++) {
    int64_t c = p->coef[r][axis], low = -index[r], high = p->bound[r] - 1 - index[r];
    if (c == 0) {
      if (low > 0 || high < 0) s.end = 0;
      continue;
    }
    int64_t from = low, to = high; // avoids a division a line: the coefficient is mostly 1
    if (c != 1) {
      from = c > 0 ? -kiln_floor_div(-low, c) : -kiln_floor_div(high, -c);
      to = c > 0 ? kiln_floor_div(high, c) : kiln_floor_div(-low, -c);
    }
    if (from > s.begin) s.begin = from;
    if (to + 1 < s.end) s.end = to + 1;
  }
  return s;
}

// One typed loop per element size: |n| elements from |from| to |to| with strides in elements.
#define KILN_PACK_LINE(T)                                                                          \
  for (int64_t i = 0; i < n; i++)                                                                  \
  memcpy(to + i * to_stride * (int64_t)sizeof(T), from + i * from_stride * (int64_t)sizeof(T),     \
         sizeof(T))

static void copy_line(int elem, int64_t n, char *to, int64_t to_stride, const char *from,
                      int64_t from_stride) {
  if (to_stride == 1 && from_stride == 1) {
    memcpy(to, from, (size_t)n * (size_t)elem);
    return;
  }
  if (elem == 4) KILN_PACK_LINE(uint32_t);
  else if (elem == 2) KILN_PACK_LINE(uint16_t);
  else if (elem == 1) KILN_PACK_LINE(uint8_t);
  else KILN_PACK_LINE(uint64_t);
}

static void move_index(const packing *p, int axis, int64_t by, int64_t *index) {
  for (int r = 0; r < p->n_rows; r++) index[r] += p->coef[r][axis] * by;
}

// Copies the subrange |part| of the innermost axis |a|.
static void fill_line(const packing *p, int a, span part, const int64_t *index, int64_t to,
                      int64_t from) {
  span s = inside(p, a, index);
  if (s.begin < part.begin) s.begin = part.begin;
  if (s.end > part.end) s.end = part.end;
  if (s.begin >= s.end) return;
  copy_line(p->elem, s.end - s.begin, p->to + (to + s.begin * p->to_strides[a]) * p->elem,
            p->to_strides[a], p->from + (from + s.begin * p->from_strides[a]) * p->elem,
            p->from_strides[a]);
}

// The two innermost axes in blocks, so that lines of both memories stay in the L1 cache.
static void fill_plane(const packing *p, int u, int a, int64_t *index, int64_t to, int64_t from) {
  const int64_t tile_u = p->from_strides[a] == 1 ? p->extents[u] : TILE;
  const int64_t tile_a = p->from_strides[a] == 1 ? p->extents[a] : TILE;
  for (int64_t u0 = 0; u0 < p->extents[u]; u0 += tile_u)
    for (int64_t a0 = 0; a0 < p->extents[a]; a0 += tile_a) {
      const int64_t u1 = u0 + tile_u < p->extents[u] ? u0 + tile_u : p->extents[u];
      const int64_t a1 = a0 + tile_a < p->extents[a] ? a0 + tile_a : p->extents[a];
      move_index(p, u, u0, index);
      for (int64_t i = u0; i < u1; i++, move_index(p, u, 1, index))
        fill_line(p, a, (span){a0, a1}, index, to + i * p->to_strides[u],
                  from + i * p->from_strides[u]);
      move_index(p, u, -u1, index);
    }
}

// Iterates over all axes except the two innermost, like an odometer.
static void fill(const packing *p) {
  int64_t at[MAX_AXES] = {0}, index[KILN_MAX_RANK], to = 0, from = p->base;
  for (int r = 0; r < p->n_rows; r++) index[r] = p->constant[r];
  for (;;) {
    fill_plane(p, p->axis[p->n_axes - 2], p->axis[p->n_axes - 1], index, to, from);
    int k = p->n_axes - 3;
    for (; k >= 0; k--) {
      const int a = p->axis[k];
      const int64_t by = at[a] + 1 < p->extents[a] ? 1 : -at[a];
      at[a] += by;
      to += by * p->to_strides[a];
      from += by * p->from_strides[a];
      move_index(p, a, by, index);
      if (by > 0) break;
    }
    if (k < 0) return;
  }
}

// The subrange [begin, end) of |axis| as a packing of its own.
static packing part_of(const packing *whole, int axis, int64_t begin, int64_t end) {
  packing p = *whole;
  p.extents[axis] = end - begin;
  p.base += begin * p.from_strides[axis];
  for (int r = 0; r < p.n_rows; r++) p.constant[r] += p.coef[r][axis] * begin;
  return p;
}

// Innermost the axis that is contiguous in the buffer, around it the one contiguous in the source.
static void order_axes(packing *p) {
  int inner = p->n_axes - 1, outer = -1, n = 0;
  for (int k = 0; k < p->n_axes; k++)
    if (p->to_strides[k] == 1 && p->extents[k] > 1) inner = k;
  for (int k = 0; k < p->n_axes; k++)
    if (k != inner && p->extents[k] > 1 && (outer < 0 || p->from_strides[k] == 1)) outer = k;
  if (outer < 0) outer = inner == 0 ? 1 : 0;
  for (int k = 0; k < p->n_axes; k++)
    if (k != inner && k != outer) p->axis[n++] = k;
  p->axis[n++] = outer;
  p->axis[n++] = inner;
}

static kiln_symbol out_var(kiln_ctx *cx, int k) { return kiln_symbol_printf(cx, "o%d", k); }

// Splits buffer axes into digits where the map uses quotients and remainders of an axis.
typedef struct digits {
  int n, n_made;
  kiln_symbol vars[MAX_AXES];
  int64_t extents[MAX_AXES], strides[MAX_AXES];
  const kiln_expr *map[KILN_MAX_RANK];
  int axis;   // a division that was found: of this axis
  int64_t by; // by this divisor, the smallest; 0: none
} digits;

static void see_division(const kiln_expr *e, void *argument) {
  digits *d = argument;
  int64_t by = 0;
  if ((e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) || e->args[0]->kind != KILN_EXPR_VAR ||
      !kiln_expr_is_int(e->args[1], &by) || by < 2 || (d->by && by >= d->by))
    return;
  for (int k = 0; k < d->n; k++)
    if (d->vars[k] == e->args[0]->u.sym && d->extents[k] % by == 0 && d->extents[k] > by)
      d->axis = k, d->by = by;
}

// Splits the axis in two: the remainder takes its place, the quotient is appended.
static void split_axis(kiln_ctx *cx, int rank, digits *d) {
  const int low = d->axis, high = d->n++;
  const kiln_symbol old = d->vars[low];
  d->vars[low] = out_var(cx, MAX_AXES + d->n_made++);
  d->vars[high] = out_var(cx, MAX_AXES + d->n_made++);
  d->extents[high] = d->extents[low] / d->by;
  d->extents[low] = d->by;
  d->strides[high] = d->strides[low] * d->by;
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  for (int k = 0; k < d->n; k++) kiln_ranges_push(&ranges, d->vars[k], 0, d->extents[k] - 1);
  const kiln_expr *whole =
      kiln_add(cx, kiln_mul(cx, kiln_var(cx, d->vars[high]), kiln_int(cx, d->by)),
               kiln_var(cx, d->vars[low]));
  for (int r = 0; r < rank; r++)
    d->map[r] = kiln_simplify(cx, kiln_expr_substitute(cx, d->map[r], 1, &old, &whole), &ranges);
}

static void find_digits(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack, digits *d) {
  *d = (digits){.n = b->rank};
  for (int k = 0; k < b->rank; k++) {
    d->vars[k] = out_var(cx, k);
    d->extents[k] = b->extents[k];
    d->strides[k] = b->strides[k];
  }
  memcpy(d->map, pack->map, (size_t)pack->rank * sizeof *d->map);
  while (d->n < MAX_AXES) {
    d->by = 0;
    for (int r = 0; r < pack->rank; r++) kiln_expr_visit(cx, d->map[r], see_division, d);
    if (!d->by) return;
    split_axis(cx, pack->rank, d);
  }
}

// gives: false if an index is not affine
static bool make_affine(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                        const kiln_const *source, const int64_t *strides, packing *p) {
  digits d;
  memset(p, 0, sizeof *p);
  find_digits(cx, b, pack, &d);
  p->n_rows = source->rank;
  p->n_axes = d.n;
  for (int k = 0; k < d.n; k++) {
    p->extents[k] = d.extents[k];
    p->to_strides[k] = d.strides[k];
  }
  for (int r = source->rank - 1; r >= 0; r--) {
    if (!kiln_expr_affine(d.map[r], d.n, d.vars, p->coef[r], &p->constant[r])) return false;
    p->bound[r] = source->shape[r];
    for (int k = 0; k < d.n; k++) p->from_strides[k] += p->coef[r][k] * strides[r];
    p->base += p->constant[r] * strides[r];
  }
  return true;
}

// Drops source axes whose index is in bounds for every element of the buffer.
static void drop_rows(packing *p) {
  int n = 0;
  for (int r = 0; r < p->n_rows; r++) {
    int64_t low = p->constant[r], high = p->constant[r];
    for (int k = 0; k < p->n_axes; k++) {
      const int64_t far = p->coef[r][k] * (p->extents[k] - 1);
      if (far < 0) low += far;
      else high += far;
    }
    if (low >= 0 && high < p->bound[r]) continue;
    p->constant[n] = p->constant[r];
    p->bound[n] = p->bound[r];
    memmove(p->coef[n++], p->coef[r], sizeof p->coef[r]);
  }
  p->n_rows = n;
}

static bool is_bounded(const packing *p, int axis) {
  for (int r = 0; r < p->n_rows; r++)
    if (p->coef[r][axis] != 0) return true;
  return false;
}

static bool can_fuse(const packing *p, int k) {
  return p->to_strides[k] == p->to_strides[k + 1] * p->extents[k + 1] &&
         p->from_strides[k] == p->from_strides[k + 1] * p->extents[k + 1] && !is_bounded(p, k) &&
         !is_bounded(p, k + 1);
}

static void remove_axis(packing *p, int axis) {
  p->n_axes--;
  for (int k = axis; k < p->n_axes; k++) {
    p->extents[k] = p->extents[k + 1];
    p->to_strides[k] = p->to_strides[k + 1];
    p->from_strides[k] = p->from_strides[k + 1];
    for (int r = 0; r < p->n_rows; r++) p->coef[r][k] = p->coef[r][k + 1];
  }
}

// Drops axes of extent 1 and merges axes that are contiguous in both memories: 3x3 kernels would
// otherwise be copied three elements at a time.
static void make_axes(packing *p) {
  drop_rows(p);
  for (int k = p->n_axes - 1; k >= 0; k--)
    if (p->extents[k] == 1) remove_axis(p, k);
  for (int k = p->n_axes - 2; k >= 0; k--) {
    if (!can_fuse(p, k)) continue;
    p->extents[k + 1] *= p->extents[k];
    remove_axis(p, k);
  }
  for (; p->n_axes < 2; p->n_axes++) { // the loops need two axes
    const int k = p->n_axes;
    p->extents[k] = 1;
    p->to_strides[k] = p->from_strides[k] = 0;
    for (int r = 0; r < p->n_rows; r++) p->coef[r][k] = 0;
  }
  order_axes(p);
}

// --- maps that are not affine ---

typedef struct evaluation {
  const kiln_symbol *vars;
  const int64_t *values;
  int n;
} evaluation;

// Recursive: index expressions are a few nodes deep.
// gives: false for a node kind that index expressions do not have
static bool eval(const evaluation *v, const kiln_expr *e, int64_t *out) {
  if (e->kind == KILN_EXPR_INT) return *out = e->u.i, true;
  if (e->kind == KILN_EXPR_VAR) {
    for (int i = 0; i < v->n; i++)
      if (v->vars[i] == e->u.sym) return *out = v->values[i], true;
    return false;
  }
  int64_t test = 0;
  if (e->kind == KILN_EXPR_SELECT)
    return eval(v, e->args[0], &test) && eval(v, e->args[test ? 1 : 2], out);
  if (e->kind == KILN_EXPR_LOAD || e->n_args < 1 || e->n_args > 2) return false;
  kiln_constant x[2] = {0}, value = {0};
  for (int i = 0; i < e->n_args; i++) {
    x[i].dtype = e->args[i]->dtype;
    if (!eval(v, e->args[i], &x[i].i)) return false;
  }
  const bool known = e->n_args == 2              ? kiln_fold_binary(e->kind, x[0], x[1], &value)
                     : e->kind == KILN_EXPR_CAST ? kiln_fold_cast(e->dtype, x[0], &value)
                                                 : kiln_fold_unary(e->kind, x[0], &value);
  *out = value.i;
  return known && !kiln_dtype_is_float(value.dtype);
}

// The element's index in the source; -1: out of bounds, -2: the map cannot be evaluated.
static int64_t element_of(const evaluation *v, const kiln_pack *pack, const kiln_const *source,
                          const int64_t *strides) {
  int64_t element = 0;
  for (int r = 0; r < source->rank; r++) {
    int64_t i = 0;
    if (!eval(v, pack->map[r], &i)) return -2;
    if (i < 0 || i >= source->shape[r]) return -1;
    element += i * strides[r];
  }
  return element;
}

// gives: false if the map cannot be evaluated
static bool fill_general(const kiln_packing *p, int64_t begin, int64_t end, char *to) {
  const kiln_buffer *b = p->buffer;
  int64_t at[MAX_AXES] = {0}, extents[MAX_AXES];
  const evaluation v = {p->vars, at, b->rank};
  memcpy(extents, b->extents, (size_t)b->rank * sizeof *extents);
  if (p->outer >= 0) at[p->outer] = begin;
  if (p->outer >= 0) extents[p->outer] = end;
  for (;;) {
    const int64_t from = element_of(&v, p->pack, &p->source, p->strides);
    int64_t target = -begin * p->slice_elems;
    if (from == -2) return false;
    for (int k = 0; k < b->rank; k++) target += at[k] * b->strides[k];
    if (from >= 0)
      memcpy(to + target * p->elem, (const char *)p->source.data + from * p->elem, (size_t)p->elem);
    int k = b->rank - 1;
    for (; k >= 0 && ++at[k] == extents[k]; k--) at[k] = k == p->outer ? begin : 0;
    if (k < 0) return true;
  }
}

// --- slices ---

// Whether the axes cover |elems| elements without gaps: each stride is the product of the inner
// extents.
static bool is_dense(const packing *p, int64_t elems) {
  int64_t step = 1;
  for (int i = 0; i < p->n_axes; i++)
    for (int k = 0; k < p->n_axes; k++)
      if (p->extents[k] > 1 && p->to_strides[k] == step) {
        step *= p->extents[k];
        break;
      }
  return step == elems;
}

// The axis with the largest stride: its slices are contiguous.
static int outer_axis(int n, const int64_t *extents, const int64_t *strides) {
  int outer = -1;
  for (int k = 0; k < n; k++)
    if (extents[k] > 1 && (outer < 0 || strides[k] > strides[outer])) outer = k;
  return outer;
}

static void cut(kiln_packing *p, int n, const int64_t *extents, const int64_t *strides) {
  p->outer = outer_axis(n, extents, strides);
  p->n_slices = p->outer < 0 ? 1 : extents[p->outer];
  p->slice_elems = p->outer < 0 ? p->elems : strides[p->outer];
}

static void dense_strides(const kiln_const *source, int64_t *out) {
  int64_t stride = 1;
  for (int r = source->rank - 1; r >= 0; r--) {
    out[r] = stride;
    stride *= source->shape[r];
  }
}

kiln_status kiln_packing_make(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                              const kiln_const *source, const int64_t *strides,
                              const kiln_packing **out) {
  kiln_packing *p = KILN_NEW(&cx->perm, kiln_packing);
  *out = p;
  if (pack->rank != source->rank || source->dtype != b->dtype)
    return KILN_FAIL(cx->diag, KILN_INTERNAL, kiln_symbol_text(cx, b->name),
                     "pack: must map to its source, of rank %d and type %s, got rank %d and %s",
                     source->rank, kiln_dtype_text(source->dtype), pack->rank,
                     kiln_dtype_text(b->dtype));
  p->buffer = b;
  p->pack = pack;
  p->source = *source;
  p->elem = kiln_dtype_bytes(b->dtype);
  p->elems = source->bytes == 0 ? 0 : kiln_buffer_elems(b);
  if (strides) memcpy(p->strides, strides, (size_t)source->rank * sizeof *strides);
  else dense_strides(source, p->strides);
  for (int k = 0; k < b->rank; k++) p->vars[k] = out_var(cx, k);
  p->is_affine = make_affine(cx, b, pack, source, p->strides, &p->affine);
  if (!p->is_affine) {
    cut(p, b->rank, b->extents, b->strides);
    return KILN_OK;
  }
  p->affine.elem = p->elem;
  p->affine.from = source->data;
  make_axes(&p->affine);
  p->is_whole = p->affine.n_rows == 0 && is_dense(&p->affine, p->elems);
  cut(p, p->affine.n_axes, p->affine.extents, p->affine.to_strides);
  return KILN_OK;
}

bool kiln_packing_is_whole(const kiln_packing *p) { return p->is_whole; }

int64_t kiln_packing_slices(const kiln_packing *p) { return p->elems > 0 ? p->n_slices : 0; }

uint64_t kiln_packing_offset(const kiln_packing *p, int64_t slice) {
  const int64_t at = slice * p->slice_elems;
  return (uint64_t)(slice < p->n_slices && at < p->elems ? at : p->elems) * (uint64_t)p->elem;
}

bool kiln_packing_fill(const kiln_packing *p, int64_t begin, int64_t end, void *to) {
  if (p->elems == 0 || begin == end) return true;
  if (!p->is_affine) return fill_general(p, begin, end, to);
  packing part = p->affine;
  if (p->outer >= 0) part = part_of(&p->affine, p->outer, begin, end);
  part.to = to;
  fill(&part);
  return true;
}

kiln_status kiln_packing_wrong(kiln_ctx *cx, const kiln_packing *p) {
  return KILN_FAIL(cx->diag, KILN_INTERNAL, kiln_symbol_text(cx, p->buffer->name),
                   "pack: its map must be an index expression over o0..");
}

kiln_status kiln_pack_fill(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack,
                           const kiln_const *source, const int64_t *strides, void *to) {
  const kiln_packing *p = NULL;
  KILN_TRY(kiln_packing_make(cx, b, pack, source, strides, &p));
  return kiln_packing_fill(p, 0, kiln_packing_slices(p), to) ? KILN_OK : kiln_packing_wrong(cx, p);
}
