// Nodes and edges of the tile graph; footprint and traffic of its tiles.
#include "tile/propagate.h"

#include <string.h>

enum { MAX_TERMS = 32 };

// --- nodes and edges ---

static bool lie_alike(const kiln_tensor *a, const kiln_tensor *b) {
  int64_t of_a[KILN_MAX_RANK], of_b[KILN_MAX_RANK];
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  kiln_tensor_strides(a, of_a);
  kiln_tensor_strides(b, of_b);
  for (int k = 0; k < a->rank; k++)
    if (a->shape[k] != b->shape[k] || of_a[k] != of_b[k]) return false;
  return true;
}

static bool read_alike(const kiln_tile_graph *g, const kiln_tile_edge *a, const kiln_tile_edge *b) {
  if (a->loads.n != b->loads.n) return false;
  for (int i = 0; i < a->loads.n; i++) {
    const kiln_expr *x = a->loads.data[i], *y = b->loads.data[i];
    if (x->n_args != y->n_args) return false;
    for (int k = 0; k < x->n_args; k++)
      if (x->args[k] != y->args[k]) return false;
  }
  return lie_alike(g->p->tensors.data[a->tensor], g->p->tensors.data[b->tensor]);
}

// Sets |like| of the edges from |begin| on, which have one consumer, by comparing each with those
// that have no |like|.
static void find_alike(kiln_tile_graph *g, int begin) {
  for (int i = g->n_edges - 1; i >= begin; i--) {
    kiln_tile_edge *e = &g->edges[i];
    e->like = -1;
    for (int j = g->n_edges - 1; j > i && e->like < 0; j--)
      if (g->edges[j].like < 0 && read_alike(g, e, &g->edges[j])) e->like = j;
  }
}

static void add_edges(kiln_tile_graph *g, int node, const int *node_of) {
  kiln_ctx *cx = g->cx;
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, g->p, g->nodes[node].stmt);
  const int begin = g->n_edges;
  for (int i = 0; i < loads.n; i++) {
    const int tensor = loads.data[i]->u.tensor, def = g->p->tensors.data[tensor]->def;
    int at = begin;
    while (at < g->n_edges && g->edges[at].tensor != tensor) at++;
    if (at == g->n_edges)
      g->edges[g->n_edges++] =
          (kiln_tile_edge){.producer = def < 0 ? -1 : node_of[def],
                           .consumer = node,
                           .tensor = tensor,
                           .stored = g->p->tensors.data[tensor]->role == KILN_OUTPUT};
    KILN_VEC_PUSH(&cx->scratch, &g->edges[at].loads, loads.data[i]);
  }
  find_alike(g, begin);
}

static void link_edges(kiln_tile_graph *g) {
  g->first_edge = KILN_NEW_ARRAY(&g->cx->scratch, int, g->p->tensors.n);
  for (int t = 0; t < g->p->tensors.n; t++) g->first_edge[t] = -1;
  for (int i = g->n_edges - 1; i >= 0; i--) {
    kiln_tile_edge *e = &g->edges[i];
    e->next = g->first_edge[e->tensor];
    g->first_edge[e->tensor] = i;
  }
}

static void find_additional(kiln_tile_graph *g) {
  for (int n = 0; n + 1 < g->n_nodes; n++)
    g->nodes[n].is_additional = g->p->tensors.data[g->nodes[n].stmt->out]->role == KILN_OUTPUT;
  for (int i = 0; i < g->n_edges; i++)
    if (g->edges[i].producer >= 0) g->nodes[g->edges[i].producer].is_additional = false;
}

kiln_tile_graph *kiln_tile_graph_make(kiln_ctx *cx, const kiln_program *p) {
  kiln_tile_graph *g = KILN_NEW(&cx->scratch, kiln_tile_graph);
  int *node_of = KILN_NEW_ARRAY(&cx->scratch, int, p->stmts.n), n_edges = 0;
  *g = (kiln_tile_graph){
      .cx = cx, .p = p, .nodes = KILN_NEW_ARRAY(&cx->scratch, kiln_tile_node, p->stmts.n)};
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    node_of[i] = g->n_nodes;
    g->nodes[g->n_nodes++] = (kiln_tile_node){
        .stmt = s, .flops = kiln_expr_cost(cx, s->body) + (s->combiner != KILN_COMBINE_NONE)};
    n_edges += kiln_stmt_loads(cx, &cx->scratch, p, s).n;
  }
  g->edges = KILN_NEW_ARRAY(&cx->scratch, kiln_tile_edge, n_edges);
  for (int n = 0; n < g->n_nodes; n++) add_edges(g, n, node_of);
  link_edges(g);
  find_additional(g);
  kiln_tile_propagate(g, g->tile, NULL, NULL);
  return g;
}

void kiln_tile_connect_all(kiln_tile_graph *g, int level) {
  for (int i = 0; i < g->n_edges; i++)
    if (g->edges[i].producer >= 0) g->edges[i].level = level;
}

void kiln_tile_propagate(kiln_tile_graph *g, const int64_t *tile,
                         const kiln_reduce_mode *const *modes, const int64_t *const *steps) {
  kiln_tile_propagate_part(g, tile, tile, modes, steps);
}

// --- the memory that a box covers ---
//
// An address is a sum of terms, each the stride times one index. Terms whose steps interlock are
// one axis: 56*i + 56*r runs over the rows of a window. The innermost axis is a range of contiguous
// elements, which each further axis repeats at a distance.

typedef struct term {
  const kiln_expr *e; // NULL: an axis of the box
  int64_t step, count;
} term;

typedef struct address {
  int n;
  term terms[MAX_TERMS];
  int64_t constant;
  bool known;
} address;

static void push_term(address *a, const kiln_expr *e, int64_t step, int64_t count) {
  for (int i = 0; i < a->n; i++)
    if (e && a->terms[i].e == e) {
      a->terms[i].step += step;
      return;
    }
  a->known &= a->n < MAX_TERMS;
  if (a->known) a->terms[a->n++] = (term){e, step, count};
}

// Adds the terms of |e|, part of the index |x|, which moves by |stride| elements at a step.
static void add_terms(kiln_ctx *cx, kiln_tile_indexing x, const kiln_expr *e, int64_t stride,
                      address *a) {
  int64_t c;
  if (kiln_expr_is_int(e, &c)) a->constant += x.factor * stride * c;
  else if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
    add_terms(cx, x, e->args[0], stride, a);
    add_terms(cx, x, e->args[1], e->kind == KILN_EXPR_ADD ? stride : -stride, a);
  } else if (e->kind == KILN_EXPR_MUL &&
             (kiln_expr_is_int(e->args[1], &c) || kiln_expr_is_int(e->args[0], &c))) {
    const bool is_second = e->args[1]->kind == KILN_EXPR_INT;
    x.factor *= c;
    add_terms(cx, x, e->args[is_second ? 0 : 1], stride, a);
  } else push_term(a, e, x.factor * stride, kiln_tile_span_of(cx, x, e, &a->known).extent);
}

static address address_of(const kiln_tile_graph *g, const kiln_tile_edge *e, int which, int load,
                          const int64_t *strides) {
  address a = {.known = true};
  const kiln_expr *l = e->loads.data[load];
  const kiln_tile_node *n = &g->nodes[e->consumer];
  for (int k = 0; k < l->n_args; k++) {
    kiln_tile_indexing x = {g->p, n->stmt, n->dims[which], l->args[k], 1, 1};
    (void)kiln_expr_is_int(g->p->tensors.data[e->tensor]->shape[k], &x.size);
    add_terms(g->cx, x, l->args[k], strides[k], &a);
  }
  return a;
}

static bool same_terms(const address *a, const address *b) {
  bool same = a->n == b->n;
  for (int i = 0; same && i < a->n; i++)
    same = a->terms[i].e == b->terms[i].e && a->terms[i].step == b->terms[i].step;
  return same;
}

// Merges the terms to axes, by ascending steps.
static void to_axes(address *a) {
  int n = 0;
  for (int i = 0; i < a->n; i++) {
    term t = a->terms[i];
    int at = n;
    t.step = t.step < 0 ? -t.step : t.step;
    if (t.step == 0 || t.count <= 1) continue;
    for (; at > 0 && a->terms[at - 1].step > t.step; at--) a->terms[at] = a->terms[at - 1];
    a->terms[at] = t;
    n++;
  }
  a->n = 0;
  for (int i = 0; i < n; i++) {
    const term t = a->terms[i];
    term *last = a->n ? &a->terms[a->n - 1] : NULL;
    if (last && t.step % last->step == 0 && t.step / last->step <= last->count)
      last->count += t.step / last->step * (t.count - 1);
    else a->terms[a->n++] = t;
  }
}

static int64_t nearest(int64_t a, int64_t b) {
  return a < 0 ? -((-a + b / 2) / b) : (a + b / 2) / b;
}

// Widens the axes to cover the same memory at |distance| as well; false if the two do not overlap.
static bool widen(address *a, int64_t distance, int64_t (*ends)[2]) {
  int64_t moves[MAX_TERMS];
  for (int i = a->n - 1; i >= 0; i--) {
    moves[i] = nearest(distance, a->terms[i].step);
    distance -= moves[i] * a->terms[i].step;
    if (moves[i] > a->terms[i].count || -moves[i] > a->terms[i].count) return false;
  }
  for (int i = 0; i < a->n && distance == 0; i++) {
    if (moves[i] < ends[i][0]) ends[i][0] = moves[i];
    if (moves[i] > ends[i][1]) ends[i][1] = moves[i];
  }
  return distance == 0;
}

static double address_bytes(const address *a, int elem_bytes, int transaction) {
  double runs = 1, run = 1;
  for (int i = 0; i < a->n; i++) runs *= (double)a->terms[i].count;
  if (a->n &&
      a->terms[0].step * elem_bytes < (transaction > elem_bytes ? transaction : 2 * elem_bytes)) {
    runs /= (double)a->terms[0].count;
    run = (double)(a->terms[0].step * (a->terms[0].count - 1) + 1);
  }
  const double bytes = run * elem_bytes;
  return runs * (transaction > 1
                     ? (double)(((int64_t)bytes + transaction - 1) / transaction) * transaction
                     : bytes);
}

// Bytes, in whole transactions, of load |first| of |e| and of the loads whose addresses differ from
// it by a constant, which are marked done.
static double touch(const kiln_tile_graph *g, const kiln_tile_edge *e, int which, int first,
                    const int64_t *strides, bool *done, int transaction) {
  const kiln_tensor *t = g->p->tensors.data[e->tensor];
  const int elem_bytes = kiln_dtype_bytes(t->dtype);
  const address like = address_of(g, e, which, first, strides);
  address a = like;
  int64_t ends[MAX_TERMS][2] = {{0}};
  int copies = 1;
  if (!like.known) {
    a.n = 0;
    for (int k = 0; k < t->rank; k++)
      a.terms[a.n++] = (term){NULL, strides[k], e->box[which][k].extent};
  }
  to_axes(&a);
  for (int i = first + 1; i < e->loads.n; i++) {
    const address other = address_of(g, e, which, i, strides);
    if (done[i] || other.known != like.known || (like.known && !same_terms(&like, &other)))
      continue;
    done[i] = true;
    copies += like.known && !widen(&a, other.constant - like.constant, ends);
  }
  for (int i = 0; i < a.n; i++) a.terms[i].count += ends[i][1] - ends[i][0];
  return copies * address_bytes(&a, elem_bytes, transaction);
}

static double box_bytes(const kiln_tensor *t, const kiln_tile_span *box, const int64_t *strides,
                        int transaction) {
  address a = {.known = true};
  for (int k = 0; k < t->rank; k++) a.terms[a.n++] = (term){NULL, strides[k], box[k].extent};
  to_axes(&a);
  return address_bytes(&a, kiln_dtype_bytes(t->dtype), transaction);
}

static double count_bytes(const kiln_tile_graph *g, const kiln_tile_edge *e, int which,
                          int transaction) {
  kiln_ctx *cx = g->cx;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_tensor *t = g->p->tensors.data[e->tensor];
  bool *done = KILN_NEW_ARRAY(&cx->scratch, bool, e->loads.n);
  int64_t strides[KILN_MAX_RANK];
  double bytes = 0;
  kiln_tensor_strides(t, strides);
  for (int i = 0; i < e->loads.n; i++)
    if (!done[i]) bytes += touch(g, e, which, i, strides, done, transaction);
  // of the box within the tensor
  const double all = box_bytes(t, e->box[which], strides, transaction);
  kiln_arena_rewind(&cx->scratch, mark);
  return bytes < all ? bytes : all;
}

static double edge_bytes(kiln_tile_graph *g, kiln_tile_edge *e, int which, int transaction) {
  kiln_tile_edge *like = e->like >= 0 ? &g->edges[e->like] : NULL;
  if (e->transaction[which] == transaction) return e->bytes[which];
  const bool is_same = like && memcmp(like->box[which], e->box[which], sizeof e->box[which]) == 0;
  e->bytes[which] =
      is_same ? edge_bytes(g, like, which, transaction) : count_bytes(g, e, which, transaction);
  e->transaction[which] = transaction;
  return e->bytes[which];
}

static bool is_read(const kiln_tile_graph *g, const kiln_tile_edge *e) {
  return g->nodes[e->consumer].inside && (e->producer < 0 || e->level == 0);
}

// A tensor that several nodes of a tile read is read once: the largest box counts.
double kiln_tile_read(kiln_tile_graph *g, int edge, int transaction) {
  kiln_tile_edge *e = &g->edges[edge];
  if (!is_read(g, e)) return 0;
  const double bytes = edge_bytes(g, e, KILN_TILE_WHOLE, transaction);
  for (int i = g->first_edge[e->tensor]; i >= 0; i = g->edges[i].next) {
    kiln_tile_edge *other = &g->edges[i];
    if (i == edge || !is_read(g, other)) continue;
    const double more = edge_bytes(g, other, KILN_TILE_WHOLE, transaction);
    if (more > bytes || (more == bytes && i < edge)) return 0;
  }
  return bytes;
}

// The bytes of the node's tensor that a tile stores.
static double node_bytes(const kiln_tile_graph *g, const kiln_tile_node *n, int which,
                         int transaction) {
  const kiln_tensor *t = g->p->tensors.data[n->stmt->out];
  int64_t strides[KILN_MAX_RANK];
  kiln_tile_span box[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  const bool plain = kiln_stmt_is_plain(g->cx, n->stmt);
  for (int k = 0; k < t->rank; k++) {
    box[k].extent = 1;
    if (plain) box[k] = n->dims[which][k];
    else (void)kiln_expr_is_int(t->shape[k], &box[k].extent);
  }
  return box_bytes(t, box, strides, transaction);
}

double kiln_tile_written(const kiln_tile_graph *g, int transaction) {
  double bytes = node_bytes(g, &g->nodes[g->n_nodes - 1], KILN_TILE_WHOLE, transaction);
  for (int n = 0; n + 1 < g->n_nodes; n++) {
    bool stored = g->nodes[n].is_additional;
    for (int i = g->first_edge[g->nodes[n].stmt->out]; i >= 0; i = g->edges[i].next)
      stored |= g->edges[i].producer == n && g->edges[i].stored && g->nodes[n].inside;
    if (stored) bytes += node_bytes(g, &g->nodes[n], KILN_TILE_WHOLE, transaction);
  }
  return bytes;
}

double kiln_tile_traffic(kiln_tile_graph *g, int transaction_bytes) {
  double bytes = kiln_tile_written(g, transaction_bytes);
  for (int i = 0; i < g->n_edges; i++) bytes += kiln_tile_read(g, i, transaction_bytes);
  return bytes;
}

// --- footprint ---

static bool is_streaming(const kiln_tile_node *n) {
  for (int r = 0; r < n->stmt->n_reduce; r++)
    if (n->modes[r] == KILN_REDUCE_STREAM) return true;
  return false;
}

static bool moves_with_chunks(const kiln_tile_graph *g, const kiln_tile_edge *e) {
  const kiln_symbol c = kiln_symbol_of(g->cx, "c");
  for (int k = 0; k < g->p->tensors.data[e->tensor]->rank; k++)
    if (kiln_expr_uses(e->box[KILN_TILE_HELD][k].origin, c)) return true;
  return false;
}

// Adds |bytes|, live from node |first| to node |last|.
static void live(double *at, int first, int last, double bytes) {
  for (int n = first; n <= last; n++) at[n] += bytes;
}

static double compact_bytes(const kiln_tile_graph *g, const kiln_tile_node *n) {
  double bytes = kiln_dtype_bytes(g->p->tensors.data[n->stmt->out]->dtype);
  for (int d = 0; d < n->stmt->n_space; d++) bytes *= (double)n->dims[KILN_TILE_HELD][d].extent;
  return bytes;
}

static void live_operands(kiln_tile_graph *g, bool streams, double *at) {
  for (int i = 0; i < g->n_edges; i++) {
    kiln_tile_edge *e = &g->edges[i];
    if (!is_read(g, e)) continue;
    int first = e->consumer, last = e->consumer;
    bool again = false; // an earlier consumer has read it
    for (int j = g->first_edge[e->tensor]; j >= 0; j = g->edges[j].next) {
      const kiln_tile_edge *other = &g->edges[j];
      if (!is_read(g, other)) continue;
      again |= j < i;
      if (other->consumer > last) last = other->consumer;
    }
    if (again) continue;
    if (streams && !moves_with_chunks(g, e)) first = 0, last = g->n_nodes - 1;
    live(at, first, last, edge_bytes(g, e, KILN_TILE_HELD, 1));
  }
}

double kiln_tile_footprint(kiln_tile_graph *g, int level) {
  const kiln_mark mark = kiln_arena_mark(&g->cx->scratch);
  double *at = KILN_NEW_ARRAY(&g->cx->scratch, double, g->n_nodes), most = 0;
  bool streams = false;
  for (int n = 0; n < g->n_nodes; n++) streams |= is_streaming(&g->nodes[n]);
  live_operands(g, streams, at);
  for (int n = 0; n < g->n_nodes; n++) {
    int last = n == g->n_nodes - 1 ? n : -1;
    for (int i = g->first_edge[g->nodes[n].stmt->out]; i >= 0; i = g->edges[i].next)
      if (g->edges[i].producer == n && g->edges[i].level == level && g->edges[i].consumer > last &&
          g->nodes[g->edges[i].consumer].inside)
        last = g->edges[i].consumer;
    if (last < 0) continue;
    const bool carried = is_streaming(&g->nodes[n]);
    live(at, carried ? 0 : n, carried ? g->n_nodes - 1 : last, compact_bytes(g, &g->nodes[n]));
  }
  for (int n = 0; n < g->n_nodes; n++)
    if (at[n] > most) most = at[n];
  kiln_arena_rewind(&g->cx->scratch, mark);
  return most;
}
