// Layout assignment: temporaries around convolutions are stored channels last, others in the order
// in which their largest operand is read, products of activations along the dim that costs least
// packing. Logical indices do not change; only tensor->order does.
//
// Tensors related axis by axis by statements (elementwise, padding, pooling, concatenation) form
// components. A component that a convolution reads or writes is stored channels last as a whole, so
// that no statement on the way changes layouts.
#include "transform/transform.h"

enum { FEW_CHANNELS = 4, LONG_ROW = 24 };

typedef struct layout {
  const kiln_program *p;
  int *parent;    // union-find over tensors
  bool *planar;   // by tensor: stays channels first
  bool *channels; // by root: the component holds an operand of a convolution
  bool *groups;   // by root: the component holds a grouped convolution's result
  bool *sums;     // by root: the component holds the result of a convolution that sums over
                  // channels
  bool *borders;  // by root: the component holds an input or output of the model
} layout;

static int find_root(layout *l, int t) {
  while (l->parent[t] != t) t = l->parent[t] = l->parent[l->parent[t]];
  return t;
}

static void unite(layout *l, int a, int b) {
  int ra = find_root(l, a), rb = find_root(l, b);
  if (ra == rb) return;
  l->parent[rb] = ra;
  l->channels[ra] |= l->channels[rb];
  l->groups[ra] |= l->groups[rb];
  l->sums[ra] |= l->sums[rb];
  l->borders[ra] |= l->borders[rb];
}

// Whether axis k of the load is indexed by space dim k of |s|, plus reduction dims only.
static bool axis_aligned(const kiln_stmt *s, const kiln_expr *load) {
  for (int k = 0; k < load->n_args; k++) {
    // A broadcast axis, or a slice of one element.
    if (kiln_expr_is_int(load->args[k], NULL)) continue;
    for (int d = 0; d < s->n_space; d++)
      if (kiln_expr_uses(load->args[k], s->dims[d].name) != (d == k)) return false;
  }
  return true;
}

static bool uses_any(const kiln_stmt *s, const kiln_expr *e, int from, int to) {
  for (int d = from; d < to; d++)
    if (kiln_expr_uses(e, s->dims[d].name)) return true;
  return false;
}

// Whether |x| is the data of a convolution: axes 2.. are indexed by the space dims after (groups
// and) channels, each by its own; axis 1 by a reduction dim, or by the channel (depthwise) or
// group.
static bool is_conv_data(const kiln_stmt *s, const kiln_expr *x) {
  int shift = s->n_space - x->n_args, n = s->n_space;
  if (x->n_args < 3 || shift < 0 || shift > 1) return false;
  if (uses_any(s, x->args[1], 2, n) || uses_any(s, x->args[1], 0, 1)) return false;
  for (int k = 2; k < x->n_args; k++) {
    int own = k + shift;
    if (kiln_expr_is_int(x->args[k], NULL)) continue;
    if (!kiln_expr_uses(x->args[k], s->dims[own].name)) return false;
    if (uses_any(s, x->args[k], 0, own) || uses_any(s, x->args[k], own + 1, n)) return false;
  }
  return uses_any(s, x->args[1], n, n + s->n_reduce) ||
         (shift == 0 && uses_any(s, x->args[1], 1, 2));
}

static bool is_const(const kiln_program *p, const kiln_expr *load) {
  return p->tensors.data[load->u.tensor]->role == KILN_CONST;
}

// Convolutions with constant weights; weights known only at run time cannot be packed at compile
// time, so their layout is chosen kernel by kernel.
static bool is_weighted(const kiln_program *p, const kiln_stmt *s, const kiln_expr **out_w,
                        const kiln_expr **out_x) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b) || is_const(p, a) == is_const(p, b)) return false;
  *out_w = is_const(p, a) ? a : b;
  *out_x = is_const(p, a) ? b : a;
  return s->n_space >= 3;
}

static bool is_conv(const kiln_program *p, const kiln_stmt *s, const kiln_expr **out_x) {
  const kiln_expr *w = NULL;
  return is_weighted(p, s, &w, out_x) && is_conv_data(s, *out_x);
}

// Whether |s| is a convolution of tokens: images with channels last and pixels merged into one
// axis.
static bool is_conv_of_tokens(const kiln_program *p, const kiln_stmt *s) {
  const kiln_expr *w = NULL, *x = NULL;
  if (!is_weighted(p, s, &w, &x) || x->n_args == 0) return false;
  for (int d = 0; d < s->n_space; d++)
    if (uses_any(s, d == 1 ? x : w, d, d + 1)) return false;
  const kiln_expr *last = x->args[x->n_args - 1];
  return uses_any(s, w, 1, 2) && !uses_any(s, last, 0, s->n_space) &&
         kiln_stmt_reduces_along(s, last);
}

// Whether the convolution has so few output channels that vectors should run along rows of the
// data, with channels as the rows of a register tile.
static bool is_planar(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const kiln_expr *x) {
  int64_t channels = 0, row = 0;
  if (x->n_args != s->n_space || s->n_space < 4 || uses_any(s, x->args[1], 1, 2)) return false;
  if (!kiln_expr_is_int(s->dims[1].extent, &channels) || channels > FEW_CHANNELS) return false;
  if (!kiln_expr_is_int(s->dims[s->n_space - 1].extent, &row) ||
      row * FEW_CHANNELS <
          // The fewer channels a vector would hold, the shorter the rows may be.
          LONG_ROW * channels)
    return false;
  return kiln_load_stride(cx, p, x, s->dims[s->n_space - 1].name) == 1;
}

bool kiln_tile_reads_rows(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                          const kiln_expr *load) {
  const kiln_expr *x = NULL;
  if (s->n_space == 0) return false;
  if (is_conv(p, s, &x)) return x == load && is_planar(cx, p, s, x);
  return kiln_stmt_load_stride(cx, p, s, load, s->dims[s->n_space - 1].name) == 1;
}

// Whether all readers of |t| are such convolutions, as the phases of a transposed convolution are.
static bool is_read_along_rows(kiln_ctx *cx, const layout *l, const kiln_users *users, int t) {
  for (int u = users->first[t]; u < users->first[t + 1]; u++) {
    const kiln_stmt *s = l->p->stmts.data[users->users[u]];
    const kiln_expr *x = NULL;
    if (!is_conv(l->p, s, &x) || x->u.tensor != t || !is_planar(cx, l->p, s, x)) return false;
  }
  return true;
}

// Marks data of convolutions with few output channels as channels first, if a map of its own (a
// padding) computes it.
static void mark_planar(kiln_ctx *cx, layout *l) {
  const kiln_users users = kiln_users_make(cx, &cx->scratch, l->p);
  for (int i = 0; i < l->p->stmts.n; i++) {
    const kiln_stmt *s = l->p->stmts.data[i];
    const kiln_expr *x = NULL;
    if (!s || !is_conv(l->p, s, &x) || !is_planar(cx, l->p, s, x)) continue;
    const kiln_tensor *t = l->p->tensors.data[x->u.tensor];
    if (t->role != KILN_TEMP || t->def < 0 || !kiln_stmt_is_map(cx, l->p->stmts.data[t->def]) ||
        !is_read_along_rows(cx, l, &users, t->id))
      continue;
    l->planar[t->id] = l->planar[s->out] = true;
  }
}

// Whether all results of |s| read |load| alike, as a matrix-vector product reads its vector, so
// that channels first suits it.
static bool is_vector_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                         const kiln_expr *load) {
  if (!s->n_reduce) return false;
  for (int d = 0; d < s->n_space; d++)
    if (kiln_stmt_load_stride(cx, p, s, load, s->dims[d].name) != 0) return false;
  return kiln_stmt_load_stride(cx, p, s, load, s->dims[s->n_space + s->n_reduce - 1].name) == 1;
}

// Marks vectors that only matrix-vector products read: they are stored once, in the order in which
// each row of the matrix reads them.
static void mark_vectors(kiln_ctx *cx, layout *l) {
  const kiln_program *p = l->p;
  bool *other = KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n),
       *vector = KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n);
  for (int i = 0; i < p->stmts.n; i++) {
    if (!p->stmts.data[i]) continue;
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, p->stmts.data[i]);
    for (int k = 0; k < loads.n; k++)
      (is_vector_of(cx, p, p->stmts.data[i], loads.data[k]) ? vector
                                                            : other)[loads.data[k]->u.tensor] =
          true;
  }
  for (int t = 0; t < p->tensors.n; t++)
    l->planar[t] |= p->tensors.data[t]->role == KILN_TEMP && vector[t] && !other[t];
}

static void relate(kiln_ctx *cx, layout *l, const kiln_stmt *s) {
  int rank = l->p->tensors.data[s->out]->rank;
  const kiln_expr *x = NULL;
  if (l->planar[s->out]) return;
  if (is_conv(l->p, s, &x)) {
    l->channels[find_root(l, s->out)] = true;
    l->sums[find_root(l, s->out)] |= x->n_args != rank || !uses_any(s, x->args[1], 1, 2);
    if (x->n_args == rank) unite(l, s->out, x->u.tensor);
    else {
      l->channels[find_root(l, x->u.tensor)] = true;
      l->groups[find_root(l, s->out)] = true;
    }
    return;
  }
  if (is_conv_of_tokens(l->p, s)) {
    l->channels[find_root(l, s->out)] = l->sums[find_root(l, s->out)] = true;
    return;
  }
  kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, l->p, s);
  for (int i = 0; i < loads.n; i++)
    if (loads.data[i]->n_args == rank && rank == s->n_space && axis_aligned(s, loads.data[i]))
      unite(l, s->out, loads.data[i]->u.tensor);
}

// Channels last, except for components with only depthwise convolutions: there rows vectorize as
// well as channels, and inputs and outputs of the model are channels first already.
static bool has_channels_last(layout *l, int t, const kiln_machine *m) {
  const int root = find_root(l, t);
  return l->channels[root] && (!m->target->has_vectors || l->sums[root] || !l->borders[root]);
}

static void store_channels_last(kiln_tensor *t) {
  int n = 0;
  t->order[n++] = 0;
  for (int k = 2; k < t->rank; k++) t->order[n++] = (int8_t)k;
  t->order[n] = 1;
}

// Stores a grouped convolution's temporary (n, g, m, spatial..) with g and m innermost.
static void store_groups_last(kiln_tensor *t) {
  int n = 0;
  t->order[n++] = 0;
  for (int k = 3; k < t->rank; k++) t->order[n++] = (int8_t)k;
  t->order[n++] = 1;
  t->order[n] = 2;
}

// Stores the axes by descending |key|; ties keep their order.
static void order_by(kiln_tensor *t, const int64_t *key) {
  for (int k = 0; k < t->rank; k++) {
    int at = k;
    for (; at > 0 && key[t->order[at - 1]] < key[k]; at--) t->order[at] = t->order[at - 1];
    t->order[at] = (int8_t)k;
  }
}

// Stores a map's or reduction's result in the order in which it reads its largest operand, if the
// strides show it.
static void follow_operand(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                           kiln_tensor *t) {
  const kiln_expr *load = kiln_stmt_largest_load(cx, p, s);
  int64_t key[KILN_MAX_RANK];
  if (!load || !kiln_stmt_is_plain(cx, s)) return;
  for (int k = 0; k < t->rank; k++) {
    int64_t extent = 1;
    (void)kiln_expr_is_int(t->shape[k], &extent);
    key[k] = extent == 1 ? INT64_MAX : kiln_stmt_load_stride(cx, p, s, load, s->dims[k].name);
    if (extent != 1 && (key[k] <= 0 || key[k] == INT64_MAX)) return;
  }
  order_by(t, key);
}

// Stores a product of two activations along the dim whose operand needs no packing, or the cheaper
// packing.
static void follow_product(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                           kiln_tensor *t) {
  const kiln_expr *a = NULL, *b = NULL;
  int64_t cost[KILN_MAX_RANK], least = INT64_MAX, key[KILN_MAX_RANK];
  int last = t->rank - 1, best = last;
  if (!kiln_stmt_is_contraction(s, &a, &b) || is_const(p, a) || is_const(p, b)) return;
  for (int k = last; k >= 0; k--) {
    kiln_symbol v = s->dims[k].name;
    const kiln_expr *load = kiln_expr_uses(a, v) ? a : b;
    int64_t extent = 1, stride = kiln_stmt_load_stride(cx, p, s, load, v);
    (void)kiln_expr_is_int(t->shape[k], &extent);
    cost[k] = stride == 1 ? 0 : kiln_tensor_elems(p->tensors.data[load->u.tensor]);
    if (extent < 8 || kiln_expr_uses(a, v) == kiln_expr_uses(b, v)) continue;
    if (cost[k] < least) least = cost[k], best = k;
  }
  for (int k = 0; k < t->rank; k++) key[k] = k == best ? 0 : 1;
  if (best != last) order_by(t, key);
}

// needs: kiln_tile_inline has run
kiln_status kiln_tile_layout(kiln_ctx *cx, kiln_program *p, const kiln_machine *m) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  layout l = {p,
              KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n),
              KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n),
              KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n),
              KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n),
              KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n),
              KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n)};
  for (int t = 0; t < p->tensors.n; t++) {
    const kiln_role role = p->tensors.data[t]->role;
    l.parent[t] = t;
    l.borders[t] = role == KILN_INPUT || role == KILN_OUTPUT;
  }
  if (m->target->has_vectors) mark_planar(cx, &l); // vectors along rows
  mark_vectors(cx, &l);
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]) relate(cx, &l, p->stmts.data[i]);
  for (int t = 0; t < p->tensors.n; t++) {
    kiln_tensor *x = p->tensors.data[t];
    if (x->role != KILN_TEMP || x->rank < 3 || l.planar[t] || !has_channels_last(&l, t, m))
      continue;
    if (l.groups[find_root(&l, t)]) store_groups_last(x);
    else store_channels_last(x);
  }
  for (int i = 0; i < p->stmts.n; i++) { // producers first: their orders are needed
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_expr *a = NULL, *b = NULL;
    if (!s) continue;
    kiln_tensor *t = p->tensors.data[s->out];
    if (t->role != KILN_TEMP || t->rank < 2 || l.planar[t->id] ||
        (t->rank >= 3 && has_channels_last(&l, t->id, m)))
      continue;
    if (kiln_stmt_is_contraction(s, &a, &b)) follow_product(cx, p, s, t);
    else follow_operand(cx, p, s, t);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
