// Propagation of tiles from the result through index maps to the boxes of all nodes and edges.
//
// An index is evaluated as in abstract interpretation: each operator maps the spans of its operands
// to the span of its result. The congruence of an origin tells whether a quotient or remainder is
// one interval: for tiles of 16 columns, 64*h + d splits into the whole h and a part of d. Steps of
// slices may be any i64 numbers: spans saturate on overflow, and a saturated congruence is unknown.
#include "tile/propagate.h"

#include "support/integer.h"

#include <math.h>
#include <string.h>

enum { MIDDLE = 2 }; // half of the other tiles precede the middle one

static kiln_tile_span fixed(kiln_ctx *cx, int64_t origin, int64_t extent) {
  return (kiln_tile_span){kiln_int(cx, origin), extent, 0, origin, origin};
}

static kiln_tile_span with_step(kiln_tile_span s, int64_t step, int64_t rest) {
  s.step = step;
  s.rest = step ? kiln_floor_mod(rest, step) : rest;
  return s;
}

static bool is_saturated(int64_t n) { return n == INT64_MIN || n == INT64_MAX; }

// The same for saturated numbers.
static kiln_tile_span with_step_sat(kiln_tile_span s, int64_t step, int64_t rest) {
  return is_saturated(step) || is_saturated(rest) ? with_step(s, 1, 0) : with_step(s, step, rest);
}

// --- operators ---

static kiln_tile_span span_add(kiln_ctx *cx, kiln_tile_span a, kiln_tile_span b) {
  const kiln_tile_span s = {.origin = kiln_add(cx, a.origin, b.origin),
                            .extent = kiln_add_sat(a.extent, b.extent - 1),
                            .middle = kiln_add_sat(a.middle, b.middle)};
  return with_step_sat(s, kiln_gcd(a.step, b.step), kiln_add_sat(a.rest, b.rest));
}

static kiln_tile_span span_scale(kiln_ctx *cx, kiln_tile_span a, int64_t by) {
  const int64_t size = kiln_abs_sat(by),
                first = by < 0 ? kiln_mul_sat(by, a.extent - 1) : 0; // the last element comes first
  const kiln_tile_span s = {
      .origin = kiln_add(cx, kiln_mul(cx, a.origin, kiln_int(cx, by)), kiln_int(cx, first)),
      .extent = kiln_add_sat(kiln_mul_sat(size, a.extent - 1), 1),
      .middle = kiln_add_sat(kiln_mul_sat(by, a.middle), first)};
  return with_step_sat(s, kiln_mul_sat(a.step, size),
                       kiln_add_sat(kiln_mul_sat(by, a.rest), first));
}

// The largest remainder of the origin by |by|, and the number modulo which all remainders are
// equal.
static int64_t last_remainder(const kiln_tile_span *a, int64_t by, int64_t *out_step) {
  *out_step = a->step == 0 || a->step % by == 0 ? 0 : kiln_gcd(a->step, by);
  return *out_step ? by - *out_step + kiln_floor_mod(a->rest, *out_step)
                   : kiln_floor_mod(a->rest, by);
}

static kiln_tile_span span_div(kiln_ctx *cx, kiln_tile_span a, int64_t by) {
  int64_t step;
  const int64_t last = last_remainder(&a, by, &step);
  const kiln_tile_span s = {.origin = kiln_div(cx, a.origin, kiln_int(cx, by)),
                            .extent = kiln_add_sat(last, a.extent - 1) / by + 1,
                            .middle = kiln_floor_div(a.middle, by)};
  return step ? with_step(s, 1, 0) : with_step(s, a.step / by, kiln_floor_div(a.rest, by));
}

static kiln_tile_span span_mod(kiln_ctx *cx, kiln_tile_span a, int64_t by) {
  int64_t step;
  const int64_t last = last_remainder(&a, by, &step);
  if (kiln_add_sat(last, a.extent) > by) return fixed(cx, 0, by); // it may wrap around
  if (!step) return fixed(cx, last, a.extent);
  const kiln_tile_span s = {.origin = kiln_mod(cx, a.origin, kiln_int(cx, by)),
                            .extent = a.extent,
                            .middle = kiln_floor_mod(a.middle, by)};
  return with_step(s, step, a.rest);
}

static kiln_tile_span span_limit(kiln_ctx *cx, kiln_expr_kind k, kiln_tile_span a,
                                 kiln_tile_span b) {
  const bool least = k == KILN_EXPR_MIN;
  const kiln_tile_span s = {.origin = kiln_binary(cx, k, a.origin, b.origin),
                            .extent = a.extent > b.extent ? a.extent : b.extent,
                            .middle = (a.middle < b.middle) == least ? a.middle : b.middle};
  const int64_t apart = kiln_sub_sat(a.rest, b.rest);
  return with_step_sat(s, is_saturated(apart) ? 1 : kiln_gcd(kiln_gcd(a.step, b.step), apart),
                       a.rest);
}

// --- expressions ---

static kiln_tile_span span_of_var(const kiln_stmt *s, const kiln_tile_span *dims, kiln_symbol var,
                                  bool *out_known) {
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (s->dims[d].name == var) return dims[d];
  *out_known = false;
  return (kiln_tile_span){.extent = 1};
}

// The span of a boundary map, evaluated for the middle tile.
static kiln_tile_span span_in_the_middle(kiln_ctx *cx, const kiln_stmt *s,
                                         const kiln_tile_span *dims, const kiln_expr *e,
                                         bool *out_known) {
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const kiln_expr *origins[2 * KILN_MAX_RANK];
  const int n = s->n_space + s->n_reduce;
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  for (int d = 0; d < n; d++) {
    vars[d] = s->dims[d].name;
    origins[d] = dims[d].origin;
    kiln_ranges_push(&r, vars[d], dims[d].middle, kiln_add_sat(dims[d].middle, dims[d].extent - 1));
  }
  const kiln_interval i = kiln_expr_interval(cx, e, &r);
  *out_known &= !e->has_load && i.lo != INT64_MIN && i.hi != INT64_MAX;
  if (!*out_known) return (kiln_tile_span){.extent = 1};
  return (kiln_tile_span){.origin = kiln_expr_substitute(cx, e, n, vars, origins),
                          .extent = kiln_add_sat(kiln_sub_sat(i.hi, i.lo), 1),
                          .step = 1,
                          .middle = i.lo};
}

// The least factor of a term that exceeds |factor|; |size| if there is none.
static int64_t next_factor(const kiln_expr *e, int64_t by, int64_t factor, int64_t size) {
  int64_t c;
  if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
    size = next_factor(e->args[0], by, factor, size);
    return next_factor(e->args[1], by, factor, size);
  }
  if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &c) && c > 0)
    return next_factor(e->args[0], kiln_mul_sat(by, c), factor, size);
  return by > factor && by < size && e->kind != KILN_EXPR_INT ? by : size;
}

// The span of a load from a constant table, as resampling has for an operand's rows. The values are
// assumed to increase evenly, over each period of the next larger term of the index.
static kiln_tile_span span_of_table(kiln_ctx *cx, const kiln_tile_indexing *x, const kiln_expr *e,
                                    bool *out_known) {
  const kiln_tensor *t = x->p->tensors.data[e->u.tensor];
  const kiln_expr *origins[KILN_MAX_RANK];
  double part = 1, place = 0;
  *out_known &= t->role == KILN_CONST && t->dtype == KILN_I64;
  for (int k = 0; k < e->n_args && *out_known; k++) {
    const kiln_tile_indexing inner = {
        x->p, x->s, x->dims, e->args[k], kiln_expr_int_or(t->shape[k], 1), 1};
    const kiln_tile_span i = kiln_tile_span_of(cx, inner, e->args[k], out_known);
    origins[k] = i.origin;
    if (!*out_known || e->args[k]->kind == KILN_EXPR_INT) continue;
    part *= fmin(1, (double)i.extent / (double)inner.size);
    place = place * (double)inner.size + (double)i.middle / (double)inner.size;
  }
  if (!*out_known) return (kiln_tile_span){.extent = 1};
  const int64_t values = next_factor(x->index, 1, x->factor, x->size) / x->factor,
                among = (int64_t)ceil(part * (double)values) + 1; // and neighbours
  return (kiln_tile_span){.origin = kiln_load(cx, e->u.tensor, e->dtype, e->n_args, origins),
                          .extent = among < values ? among : values,
                          .step = 1,
                          .middle = (int64_t)(fmin(1, place) * (double)values)};
}

kiln_tile_span kiln_tile_span_of(kiln_ctx *cx, kiln_tile_indexing x, const kiln_expr *e,
                                 bool *out_known) {
  int64_t c = 0;
  if (kiln_expr_is_int(e, &c)) return fixed(cx, c, 1);
  if (e->kind == KILN_EXPR_LOAD) return span_of_table(cx, &x, e, out_known);
  if (e->kind == KILN_EXPR_VAR) return span_of_var(x.s, x.dims, e->u.sym, out_known);
  const bool by_constant = e->n_args == 2 && kiln_expr_is_int(e->args[1], &c);
  const bool is_sum = e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB,
             is_limit = e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX;
  if (is_sum || is_limit) {
    const kiln_tile_span a = kiln_tile_span_of(cx, x, e->args[0], out_known),
                         b = kiln_tile_span_of(cx, x, e->args[1], out_known);
    if (!*out_known) return a;
    if (is_limit) return span_limit(cx, e->kind, a, b);
    return span_add(cx, a, e->kind == KILN_EXPR_SUB ? span_scale(cx, b, -1) : b);
  }
  if (e->kind == KILN_EXPR_MUL && (by_constant || kiln_expr_is_int(e->args[0], &c))) {
    if (c > 0) x.factor = kiln_mul_sat(x.factor, c);
    const kiln_tile_span a = kiln_tile_span_of(cx, x, e->args[by_constant ? 0 : 1], out_known);
    return *out_known ? span_scale(cx, a, c) : a;
  }
  if (by_constant && c > 0 && (e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD)) {
    const kiln_tile_span a = kiln_tile_span_of(cx, x, e->args[0], out_known);
    if (!*out_known) return a;
    return e->kind == KILN_EXPR_DIV ? span_div(cx, a, c) : span_mod(cx, a, c);
  }
  return span_in_the_middle(cx, x.s, x.dims, e, out_known);
}

// --- unions ---

// The hull of |a| and |b|; the whole axis of |size| elements if their distance differs between
// tiles. Spans of tables have the distance of the middle tile.
static kiln_tile_span span_hull(kiln_ctx *cx, kiln_tile_span a, kiln_tile_span b, int64_t size) {
  int64_t distance = 0;
  if (a.origin != b.origin && a.origin->has_load && b.origin->has_load)
    distance = kiln_sub_sat(b.middle, a.middle);
  else if (a.origin != b.origin &&
           !kiln_expr_is_int(kiln_simplify(cx, kiln_sub(cx, b.origin, a.origin), NULL), &distance))
    return fixed(cx, 0, size);
  if (distance < 0) {
    const kiln_tile_span t = a;
    a = b;
    b = t;
    distance = kiln_abs_sat(distance);
  }
  const int64_t reach = kiln_add_sat(b.extent, distance);
  if (reach > a.extent) a.extent = reach;
  return a;
}

static kiln_tile_span span_cut(kiln_ctx *cx, kiln_tile_span a, int64_t size) {
  return a.extent >= size ? fixed(cx, 0, size) : a;
}

// --- the sweep ---

// Sets the spans of the node's reductions as one of its edges sees them. In mode CHUNK a producer
// inside of the tile is needed whole, as it is not computed by chunks.
static void set_reductions(kiln_ctx *cx, kiln_tile_node *n, int which, const int64_t *steps,
                           bool inside) {
  for (int r = 0; r < n->stmt->n_reduce; r++) {
    const int d = n->stmt->n_space + r;
    const int64_t extent = kiln_dim_extent(&n->stmt->dims[d]);
    const bool stepped =
        n->modes[r] == KILN_REDUCE_STREAM || (n->modes[r] == KILN_REDUCE_CHUNK && !inside);
    n->dims[which][d] = fixed(cx, 0, extent);
    if (which == KILN_TILE_WHOLE || !stepped || !steps || steps[r] <= 0 || steps[r] >= extent)
      continue;
    const kiln_symbol c = kiln_symbol_of(cx, "c");
    n->dims[which][d] =
        (kiln_tile_span){.origin = kiln_mul(cx, kiln_var(cx, c), kiln_int(cx, steps[r])),
                         .extent = steps[r],
                         .step = steps[r],
                         .middle = extent / steps[r] / MIDDLE * steps[r]};
  }
}

static bool is_inside(const kiln_tile_edge *e) { return e->producer >= 0 && e->level > 0; }

// The span of an index that only the run knows: a tile has at most one value for each of its
// iterations over the dims that the index uses.
static kiln_tile_span span_of_choice(kiln_ctx *cx, const kiln_tile_node *n, int which,
                                     const kiln_expr *index, int64_t size) {
  const int n_dims = n->stmt->n_space + n->stmt->n_reduce;
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const kiln_expr *origins[2 * KILN_MAX_RANK];
  int64_t values = 1;
  for (int d = 0; d < n_dims; d++) {
    vars[d] = n->stmt->dims[d].name;
    origins[d] = n->dims[which][d].origin;
    if (kiln_expr_uses(index, vars[d])) values = kiln_mul_sat(values, n->dims[which][d].extent);
  }
  return (kiln_tile_span){.origin = kiln_expr_substitute(cx, index, n_dims, vars, origins),
                          .extent = values < size ? values : size,
                          .step = 1};
}

static void edge_box(const kiln_tile_graph *g, kiln_tile_edge *e, int which) {
  const kiln_tile_edge *like = e->like >= 0 ? &g->edges[e->like] : NULL;
  e->transaction[which] = 0;
  if (like && is_inside(like) == is_inside(e)) {
    memcpy(e->box[which], like->box[which], sizeof e->box[which]);
    return;
  }
  const kiln_tile_node *n = &g->nodes[e->consumer];
  const kiln_tensor *t = g->p->tensors.data[e->tensor];
  for (int k = 0; k < t->rank; k++) {
    const int64_t size = kiln_expr_int_or(t->shape[k], 1);
    for (int i = 0; i < e->loads.n; i++) {
      bool known = true;
      const kiln_expr *index = e->loads.data[i]->args[k];
      const kiln_tile_indexing x = {g->p, n->stmt, n->dims[which], index, size, 1};
      kiln_tile_span s = kiln_tile_span_of(g->cx, x, index, &known);
      if (!known && index->has_load && !is_inside(e))
        s = span_of_choice(g->cx, n, which, index, size);
      else if (!known) s = fixed(g->cx, 0, size);
      e->box[which][k] = i ? span_hull(g->cx, e->box[which][k], s, size) : s;
    }
    e->box[which][k] = span_cut(g->cx, e->box[which][k], size);
  }
}

// The box of an additional result: the result's dims of the same names.
static void additional_box(kiln_tile_graph *g, kiln_tile_node *n, int which) {
  const kiln_tile_node *last = &g->nodes[g->n_nodes - 1];
  for (int d = 0; d < n->stmt->n_space; d++)
    for (int k = 0; k < last->stmt->n_space; k++)
      if (n->stmt->dims[d].name == last->stmt->dims[k].name &&
          kiln_dim_extent(&n->stmt->dims[d]) == kiln_dim_extent(&last->stmt->dims[k]))
        n->dims[which][d] = last->dims[which][k];
}

// The box of a node's space dims: the hull over its consumers in the tile.
static void node_box(kiln_tile_graph *g, int node, int which) {
  kiln_tile_node *n = &g->nodes[node];
  const kiln_stmt *s = n->stmt;
  const bool plain = kiln_stmt_is_plain(g->cx, s);
  bool first = true;
  for (int d = 0; d < s->n_space; d++)
    n->dims[which][d] = fixed(g->cx, 0, kiln_dim_extent(&s->dims[d]));
  if (n->is_additional) additional_box(g, n, which);
  for (int i = plain ? g->first_edge[s->out] : -1; i >= 0; i = g->edges[i].next) {
    const kiln_tile_edge *e = &g->edges[i];
    if (e->producer != node || e->level == 0 || !g->nodes[e->consumer].inside) continue;
    for (int d = 0; d < s->n_space; d++)
      n->dims[which][d] = first ? e->box[which][d]
                                : span_hull(g->cx, n->dims[which][d], e->box[which][d],
                                            kiln_dim_extent(&s->dims[d]));
    first = false;
  }
}

static void result_box(kiln_tile_graph *g, const int64_t *part, int which) {
  kiln_tile_node *n = &g->nodes[g->n_nodes - 1];
  for (int d = 0; d < n->stmt->n_space; d++) {
    const int64_t extent = kiln_dim_extent(&n->stmt->dims[d]), tile = g->tile[d];
    n->dims[which][d] = fixed(g->cx, 0, part[d]);
    if (tile >= extent) continue;
    const kiln_expr *b = kiln_var(g->cx, kiln_symbol_printf(g->cx, "b%d", d)); // the tile's number
    n->dims[which][d] = (kiln_tile_span){.origin = kiln_mul(g->cx, b, kiln_int(g->cx, tile)),
                                         .extent = part[d],
                                         .step = tile,
                                         .middle = extent / tile / MIDDLE * tile};
  }
}

static void mark_inside(kiln_tile_graph *g) {
  for (int n = 0; n < g->n_nodes; n++)
    g->nodes[n].inside = g->nodes[n].is_additional || n == g->n_nodes - 1;
  for (int i = g->n_edges - 1; i >= 0; i--) { // by consumer: later edges are done
    const kiln_tile_edge *e = &g->edges[i];
    if (is_inside(e) && g->nodes[e->consumer].inside) g->nodes[e->producer].inside = true;
  }
}

static void set_modes(kiln_tile_graph *g, const kiln_reduce_mode *const *modes) {
  for (int n = 0; n < g->n_nodes; n++)
    for (int r = 0; r < g->nodes[n].stmt->n_reduce; r++)
      g->nodes[n].modes[r] = modes && modes[n] ? modes[n][r] : KILN_REDUCE_FULL;
}

void kiln_tile_propagate_part(kiln_tile_graph *g, const int64_t *tile, const int64_t *part,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps) {
  const kiln_stmt *root = g->nodes[g->n_nodes - 1].stmt;
  int64_t cut[KILN_MAX_RANK];
  for (int d = 0; d < root->n_space; d++) {
    const int64_t extent = kiln_dim_extent(&root->dims[d]);
    g->tile[d] = tile[d] <= 0 || tile[d] > extent ? extent : tile[d];
    cut[d] = part[d] <= 0 || part[d] > g->tile[d] ? g->tile[d] : part[d];
  }
  set_modes(g, modes);
  mark_inside(g);
  for (int which = 0; which < KILN_N_TILE_BOXES; which++)
    for (int n = g->n_nodes - 1, i = g->n_edges - 1; n >= 0; n--) {
      kiln_tile_node *node = &g->nodes[n];
      if (n == g->n_nodes - 1) result_box(g, cut, which);
      else node_box(g, n, which);
      for (; i >= 0 && g->edges[i].consumer == n; i--) {
        kiln_tile_edge *e = &g->edges[i];
        set_reductions(g->cx, node, which, steps ? steps[n] : NULL, is_inside(e));
        edge_box(g, e, which);
      }
      set_reductions(g->cx, node, which, steps ? steps[n] : NULL, false);
    }
}
