// Removes window taps that read only padding; with large dilations they are many.
//     Y(i) = sum_r W(r) P(i + d r), P(j) = a <= j < b ? X(j - a) : 0
// The result is split along each axis into zones in which the same taps read data. Each zone is a
// contraction over its taps alone; their concatenation is assembled in place. If no zone reads
// padding, the padded tensor is not made; a copy of the interior remains if it has another storage
// order.
//
// Applied if it removes a good part of the products, counting partial register tiles at the ends of
// rows as whole tiles. Removed terms are products of 0 and finite constant weights.
#include "transform/transform.h"

#include <math.h>
#include <string.h>

enum { MAX_AXES = 3, MAX_ZONES = 5, MAX_EXTENT = 1 << 12, TILE = 4, FEWEST_PRODUCTS = 1 << 15 };

// Applied if the zones have at most this fraction of all products.
static const double WORTH = 0.85;

// Results [begin, end) along a space dim, which read taps [first, last].
typedef struct zone {
  int64_t begin, end, first, last;
} zone;

// A space dim along which the window slides, and its taps' reduction dim.
typedef struct axis {
  int at, space, reduce, n_zones;   // |at| is an axis of the padded tensor
  int64_t stride, dilation, offset; // index = stride * space + dilation * reduce + offset
  int64_t lo, hi;                   // the interior
  zone zones[MAX_ZONES];
} axis;

typedef struct cut {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt whole;            // the contraction
  const kiln_expr *x, *w;     // loads of the padded tensor and of the weights
  const kiln_stmt *pads;      // computes the padded tensor
  const kiln_tensor *cropped; // the interior; NULL: the padded tensor is read
  int n_axes;
  axis axes[MAX_AXES];
} cut;

// --- padding ---

static bool is_finite_constant(const kiln_tensor *t) {
  if (t->role != KILN_CONST || !t->data || t->dtype != KILN_F32) return false;
  for (size_t at = 0; at < t->bytes; at += sizeof(float)) {
    float f;
    memcpy(&f, (const char *)t->data + at, sizeof f);
    if (!isfinite(f)) return false;
  }
  return true;
}

// Whether everything that |pads| writes at index |value| of axis |k| is 0.
static bool is_padding(const cut *c, int k, int64_t value) {
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  const kiln_ranges r = kiln_stmt_ranges(&c->cx->scratch, c->pads);
  const kiln_expr *at = kiln_int(c->cx, value);
  const kiln_expr *there =
      kiln_expr_substitute(c->cx, c->pads->body, 1, &c->pads->dims[k].name, &at);
  const bool is_zero = kiln_expr_is_zero(kiln_simplify(c->cx, there, &r));
  kiln_arena_rewind(&c->cx->scratch, mark);
  return is_zero;
}

// Finds the interior along axis |io|->at; false if there is no padding or no interior.
static bool find_inside(const cut *c, axis *io) {
  const int64_t length = kiln_dim_extent(&c->pads->dims[io->at]);
  if (length > MAX_EXTENT) return false;
  for (io->lo = 0; io->lo < length && is_padding(c, io->at, io->lo);) io->lo++;
  for (io->hi = length; io->hi > io->lo && is_padding(c, io->at, io->hi - 1);) io->hi--;
  return io->lo < io->hi && io->hi - io->lo < length;
}

// --- axes and zones ---

// Whether index |k| of the load uses one space dim and one reduction dim, which no other index
// uses.
static bool find_axis(const cut *c, int k, axis *out) {
  const kiln_stmt *s = &c->whole;
  const int n = s->n_space + s->n_reduce;
  kiln_symbol vars[2 * KILN_MAX_RANK];
  int64_t coefs[2 * KILN_MAX_RANK];
  for (int d = 0; d < n; d++) vars[d] = s->dims[d].name;
  *out = (axis){.at = k, .space = -1, .reduce = -1};
  if (!kiln_expr_affine(c->x->args[k], n, vars, coefs, &out->offset)) return false;
  for (int d = 0; d < n; d++) {
    if (coefs[d] == 0) continue;
    int *which = d < s->n_space ? &out->space : &out->reduce;
    if (*which >= 0 || coefs[d] < 0) return false;
    *which = d;
    for (int other = 0; other < c->x->n_args; other++)
      if (other != k && kiln_expr_uses(c->x->args[other], vars[d])) return false;
  }
  if (out->space < 0 || out->reduce < 0) return false;
  out->stride = coefs[out->space];
  out->dilation = coefs[out->reduce];
  return true;
}

// The taps of result |i| that read the interior; |last| < |first| if there are none.
static zone taps_of(const axis *a, int64_t i, int64_t taps) {
  zone z = {i, i + 1, 0, taps - 1};
  const int64_t at = i * a->stride + a->offset;
  while (z.first < taps && at + z.first * a->dilation < a->lo) z.first++;
  while (z.last >= z.first && at + z.last * a->dilation >= a->hi) z.last--;
  return z;
}

static int64_t taps_in(const zone *z) { return z->last - z->first + 1; }

// Fills the zones of |io|; gives whether they are few and some have fewer taps.
static bool find_zones(const cut *c, axis *io) {
  const int64_t extent = kiln_dim_extent(&c->whole.dims[io->space]),
                taps = kiln_dim_extent(&c->whole.dims[io->reduce]);
  bool any = false;
  for (int64_t i = 0; i < extent; i++) {
    const zone z = taps_of(io, i, taps);
    zone *before = io->n_zones ? &io->zones[io->n_zones - 1] : NULL;
    if (taps_in(&z) < 1) return false;
    any |= taps_in(&z) < taps;
    if (before && before->first == z.first && before->last == z.last) before->end = z.end;
    else if (io->n_zones == MAX_ZONES) return false;
    else io->zones[io->n_zones++] = z;
  }
  return any;
}

static int64_t in_tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

// The fraction of products that remain along |a|, in whole tiles if it is the innermost space dim.
static double share_of(const cut *c, const axis *a) {
  const int64_t tile = a->space == c->whole.n_space - 1 ? TILE : 1;
  double left = 0;
  for (int i = 0; i < a->n_zones; i++)
    left += (double)(in_tiles(a->zones[i].end - a->zones[i].begin, tile) * taps_in(&a->zones[i]));
  return left / (double)(in_tiles(kiln_dim_extent(&c->whole.dims[a->space]), tile) *
                         kiln_dim_extent(&c->whole.dims[a->reduce]));
}

static bool is_padded(const kiln_ctx *cx, const kiln_program *p, const kiln_expr *load) {
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  const kiln_stmt *s = t->def < 0 ? NULL : p->stmts.data[t->def];
  return s && t->role == KILN_TEMP && kiln_stmt_is_map(cx, s) &&
         s->body->kind == KILN_EXPR_SELECT && !kiln_expr_has_load(s->body->args[0]);
}

// Whether reduction dims of the axes are used as plain indices of the weights.
static bool has_plain_taps(const cut *c) {
  for (int i = 0; i < c->n_axes; i++) {
    const kiln_symbol tap = c->whole.dims[c->axes[i].reduce].name;
    for (int k = 0; k < c->w->n_args; k++)
      if (kiln_expr_uses(c->w->args[k], tap) && c->w->args[k] != kiln_var(c->cx, tap)) return false;
  }
  return true;
}

static bool find_operands(cut *c) {
  const kiln_expr *loads[2] = {NULL, NULL};
  if (!kiln_stmt_is_plain(c->cx, &c->whole) ||
      !kiln_stmt_is_contraction(&c->whole, &loads[0], &loads[1]))
    return false;
  for (int i = 0; i < 2; i++) {
    c->x = loads[i];
    c->w = loads[!i];
    if (!is_padded(c->cx, c->p, c->x) || !is_finite_constant(c->p->tensors.data[c->w->u.tensor]))
      continue;
    c->pads = c->p->stmts.data[c->p->tensors.data[c->x->u.tensor]->def];
    return true;
  }
  return false;
}

static bool pays(cut *c, bool *out_all) {
  double left = 1, zones = 1;
  *out_all = true;
  for (int k = 0; k < c->x->n_args; k++) {
    axis a = {.at = k};
    if (!find_inside(c, &a)) continue;
    const int64_t lo = a.lo, hi = a.hi;
    const bool moves = c->n_axes < MAX_AXES && find_axis(c, k, &a);
    a.lo = lo;
    a.hi = hi;
    if (!moves || !find_zones(c, &a)) {
      *out_all = false;
      continue;
    }
    left *= share_of(c, &a);
    zones *= a.n_zones;
    c->axes[c->n_axes++] = a;
  }
  return c->n_axes > 0 && left <= WORTH && has_plain_taps(c) &&
         (1 - left) * (double)kiln_stmt_domain(&c->whole) >= FEWEST_PRODUCTS * zones;
}

// --- the new statements ---

static kiln_stmt *make_like(cut *c, const kiln_stmt *of, int n_reduce,
                            const kiln_expr *const *extents) {
  const kiln_tensor *y = c->p->tensors.data[of->out];
  kiln_stmt *s = kiln_stmt_make(c->cx, c->p, kiln_symbol_text(c->cx, y->name), y->dtype,
                                of->n_space, n_reduce, extents);
  memcpy(c->p->tensors.data[s->out]->order, y->order, sizeof y->order);
  s->origin = of->origin;
  return s;
}

// The interior in the padded tensor's storage order: a new map, or the operand of |pads| if that
// would be a copy.
static const kiln_tensor *crop(cut *c) {
  const kiln_stmt *pads = c->pads;
  const kiln_expr *extents[KILN_MAX_RANK], *values[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  int64_t lo[KILN_MAX_RANK] = {0};
  for (int d = 0; d < pads->n_space; d++) extents[d] = pads->dims[d].extent;
  for (int i = 0; i < c->n_axes; i++) {
    const axis *a = &c->axes[i];
    lo[a->at] = a->lo;
    extents[a->at] = kiln_int(c->cx, a->hi - a->lo);
  }
  kiln_stmt *s = make_like(c, pads, 0, extents);
  for (int d = 0; d < pads->n_space; d++) {
    vars[d] = pads->dims[d].name;
    values[d] = kiln_add(c->cx, kiln_stmt_var(c->cx, s, d), kiln_int(c->cx, lo[d]));
  }
  const kiln_ranges r = kiln_stmt_ranges(&c->cx->scratch, s);
  s->body = kiln_simplify(c->cx,
                          kiln_expr_substitute(c->cx, pads->body, pads->n_space, vars, values), &r);
  const kiln_tensor *t = c->p->tensors.data[s->out];
  if (s->body->kind != KILN_EXPR_LOAD) return t;
  const kiln_tensor *from = c->p->tensors.data[s->body->u.tensor];
  bool is_copy = from->rank == t->rank && !memcmp(from->order, t->order, sizeof t->order);
  for (int d = 0; d < t->rank && is_copy; d++)
    is_copy = s->body->args[d] == kiln_stmt_var(c->cx, s, d) && from->shape[d] == t->shape[d];
  if (is_copy) c->p->stmts.n--; // unused
  return is_copy ? from : t;
}

// The weights of the taps of |zones|, copied to be contiguous.
static const kiln_tensor *slice_weights(cut *c, const int *zones) {
  const kiln_tensor *t = c->p->tensors.data[c->w->u.tensor];
  int64_t shape[KILN_MAX_RANK], extents[KILN_MAX_RANK], first[KILN_MAX_RANK] = {0}, elems = 1;
  (void)kiln_tensor_static_shape(t, shape);
  memcpy(extents, shape, sizeof extents);
  for (int i = 0; i < c->n_axes; i++)
    for (int k = 0; k < t->rank; k++) {
      const axis *a = &c->axes[i];
      if (!kiln_expr_uses(c->w->args[k], c->whole.dims[a->reduce].name)) continue;
      first[k] = a->zones[zones[i]].first;
      extents[k] = taps_in(&a->zones[zones[i]]);
    }
  for (int k = 0; k < t->rank; k++) elems *= extents[k];
  float *data = kiln_arena_alloc(&c->cx->perm, (size_t)elems * sizeof *data);
  for (int64_t i = 0; i < elems; i++) {
    int64_t rest = i, from = 0, stride = 1;
    for (int k = t->rank - 1; k >= 0; k--) {
      from += (rest % extents[k] + first[k]) * stride;
      rest /= extents[k];
      stride *= shape[k];
    }
    memcpy(&data[i], (const char *)t->data + (size_t)from * sizeof *data, sizeof *data);
  }
  kiln_const cut_out = {
      .dtype = t->dtype, .rank = t->rank, .data = data, .bytes = (size_t)elems * sizeof *data};
  memcpy(cut_out.shape, extents, (size_t)t->rank * sizeof *extents);
  return kiln_tensor_make_const(c->cx, c->p, kiln_symbol_text(c->cx, t->name), &cut_out);
}

// The contraction of one zone for each axis, over the zones' taps.
static kiln_stmt *contract(cut *c, const int *zones) {
  const kiln_stmt *s = &c->whole;
  const int n = s->n_space + s->n_reduce;
  const kiln_tensor *w = slice_weights(c, zones),
                    *x = c->cropped ? c->cropped : c->p->tensors.data[c->x->u.tensor];
  const kiln_expr *extents[2 * KILN_MAX_RANK], *values[2 * KILN_MAX_RANK], *at_x[KILN_MAX_RANK],
      *at_w[KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  for (int d = 0; d < n; d++) extents[d] = s->dims[d].extent;
  for (int i = 0; i < c->n_axes; i++) {
    const zone *z = &c->axes[i].zones[zones[i]];
    extents[c->axes[i].space] = kiln_int(c->cx, z->end - z->begin);
    extents[c->axes[i].reduce] = kiln_int(c->cx, taps_in(z));
  }
  kiln_stmt *out = make_like(c, s, s->n_reduce, extents);
  for (int d = 0; d < n; d++) {
    vars[d] = s->dims[d].name;
    values[d] = kiln_stmt_var(c->cx, out, d);
  }
  for (int k = 0; k < c->w->n_args; k++)
    at_w[k] = kiln_expr_substitute(c->cx, c->w->args[k], n, vars, values);
  for (int k = 0; k < c->x->n_args; k++)
    at_x[k] = kiln_expr_substitute(c->cx, c->x->args[k], n, vars, values);
  for (int i = 0; i < c->n_axes; i++) {
    const axis *a = &c->axes[i];
    const zone *z = &a->zones[zones[i]];
    const int64_t moved = z->begin * a->stride + z->first * a->dilation - (c->cropped ? a->lo : 0);
    at_x[a->at] = kiln_add(c->cx, at_x[a->at], kiln_int(c->cx, moved));
  }
  const kiln_expr *load_x = kiln_cast(c->cx, s->body->dtype, kiln_tensor_load(c->cx, x, at_x)),
                  *load_w = kiln_cast(c->cx, s->body->dtype, kiln_tensor_load(c->cx, w, at_w));
  out->combiner = s->combiner;
  out->body = kiln_mul(c->cx, load_x, load_w);
  return out;
}

// A load of element |s| from zones [first, end) of axis |a|: a binary decision tree.
static const kiln_expr *choose(cut *c, const kiln_stmt *s, const axis *a,
                               const kiln_tensor *const *parts, int first, int end) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) at[d] = kiln_stmt_var(c->cx, s, d);
  if (end - first > 1) {
    const int middle = (first + end) / 2;
    const kiln_expr *begin = kiln_int(c->cx, a->zones[middle].begin);
    return kiln_select(c->cx, kiln_binary(c->cx, KILN_EXPR_LT, at[a->space], begin),
                       choose(c, s, a, parts, first, middle), choose(c, s, a, parts, middle, end));
  }
  at[a->space] = kiln_sub(c->cx, at[a->space], kiln_int(c->cx, a->zones[first].begin));
  return kiln_tensor_load(c->cx, parts[first], at);
}

// Concatenates the zones of the axes from |at| on, for fixed |zones| of those before; the outermost
// result goes to |root|, if it is not NULL.
static const kiln_tensor *put_together(cut *c, int at, int *zones, kiln_stmt *root) {
  const kiln_tensor *parts[MAX_ZONES];
  const kiln_expr *extents[KILN_MAX_RANK];
  if (at >= c->n_axes || at >= MAX_AXES) {
    const kiln_stmt *one = contract(c, zones);
    return c->p->tensors.data[one->out];
  }
  const axis *a = &c->axes[at];
  for (zones[at] = 0; zones[at] < a->n_zones; zones[at]++)
    parts[zones[at]] = put_together(c, at + 1, zones, NULL);
  if (a->n_zones == 1 && !root) return parts[0];
  for (int d = 0; d < c->whole.n_space; d++) extents[d] = c->whole.dims[d].extent;
  for (int i = 0; i < at; i++) {
    const zone *z = &c->axes[i].zones[zones[i]];
    extents[c->axes[i].space] = kiln_int(c->cx, z->end - z->begin);
  }
  kiln_stmt *s = root ? root : make_like(c, &c->whole, 0, extents);
  s->n_reduce = 0;
  s->combiner = KILN_COMBINE_NONE;
  s->body = choose(c, s, a, parts, 0, a->n_zones);
  return c->p->tensors.data[s->out];
}

// A single zone is the contraction itself with fewer taps.
static void replace(cut *c, kiln_stmt *s, bool reads_no_padding) {
  int zones[MAX_AXES] = {0};
  bool is_one = true;
  for (int i = 0; i < c->n_axes; i++) is_one &= c->axes[i].n_zones == 1;
  c->cropped = reads_no_padding ? crop(c) : NULL;
  if (!is_one) {
    (void)put_together(c, 0, zones, s);
    return;
  }
  const kiln_stmt *one = contract(c, zones);
  c->p->stmts.n--;
  s->dims = one->dims;
  s->index = one->index;
  s->body = one->body;
}

static void drop_unread(kiln_ctx *cx, kiln_program *p, int tensor) {
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  if (users.first[tensor] == users.first[tensor + 1])
    p->stmts.data[p->tensors.data[tensor]->def] = NULL;
}

kiln_status kiln_tile_remove_taps(kiln_ctx *cx, kiln_program *p, int *io_n) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  cut *cuts = KILN_NEW_ARRAY(&cx->scratch, cut, n);
  bool *is_cut = KILN_NEW_ARRAY(&cx->scratch, bool, n),
       *all = KILN_NEW_ARRAY(&cx->scratch, bool, n);
  int n_cut = 0;
  for (int i = 0; i < n; i++) {
    old[i] = p->stmts.data[i];
    if (!old[i]) continue;
    cuts[i] = (cut){.cx = cx, .p = p, .whole = *old[i]};
    is_cut[i] = find_operands(&cuts[i]) && pays(&cuts[i], &all[i]);
    n_cut += is_cut[i];
  }
  if (n_cut > 0) {
    p->stmts.n = 0;
    for (int i = 0; i < n; i++) {
      if (!old[i]) continue;
      if (is_cut[i]) replace(&cuts[i], old[i], all[i]);
      KILN_VEC_PUSH(&cx->perm, &p->stmts, old[i]);
    }
    kiln_stmts_renumber(p);
    for (int i = 0; i < n; i++)
      if (is_cut[i]) drop_unread(cx, p, cuts[i].x->u.tensor);
    kiln_stmts_compact(p);
  }
  *io_n += n_cut;
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
