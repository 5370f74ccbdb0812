// Scripts for clusters of nests: tile loops around all results that stay in memory, temporaries
// computed at the tile, point loops inside.
//
// Among several tile sizes the one with the least work (including recomputed halos) and footprint
// is chosen; each candidate is built by primitives and examined, so costs are those of the code
// that will run.
#include "polyhedral/cluster.h"

#include "support/integer.h"

enum {
  TASKS_PER_THREAD = 4,
  SMALL_WORK = 8192,
  SMALL_CONTRACTION = 1 << 16,
  ROW_COST = 8,   // cost of entering an innermost loop, in vector operations
  TILE_COST = 64, // cost of entering a tile
  MAX_RECOMPUTED = 2,
  MANY_TEMPS = 6,
  DEFAULT_TILE = 32,
  WASTE = 8, // at most one in this many iterations may be wasted on partial vectors
  MAX_CANDIDATES = 24
};

typedef struct tiling {
  int64_t size[KILN_MAX_BAND]; // 0: not tiled
} tiling;

// --- tile loops ---

// Splits and reorders one nest: its tile loops first, then the loops inside of the tile in the
// nest's own order, which is that of memory.
static kiln_status tile_nest(kiln_poly_maker *k, const kiln_poly_job *j, const kiln_poly_nest *n,
                             const tiling *t, kiln_symbol *tiles) {
  kiln_symbol path[2 * KILN_MAX_BAND], points[KILN_MAX_BAND] = {0}; // by dim; 0: none
  int n_path = 0;
  const kiln_tail tail = j->n_kept > 1 ? KILN_TAIL_GUARD : KILN_TAIL_SHIFT;
  for (int b = 0; b < n->n; b++) {
    kiln_symbol loop = kiln_poly_band_loop(j, n, b), *point = &points[kiln_poly_nest_loop(j, n, b)];
    const int64_t extent = kiln_poly_band_extent(j, n, b), size = b < j->c->n_band ? t->size[b] : 0;
    if (size <= 0) {
      *point = loop;
      continue;
    }
    if (size > 1) {
      const kiln_symbol outer = kiln_lowering_name(&k->w, "o", loop);
      *point = kiln_lowering_name(&k->w, "i", loop);
      KILN_TRY(
          kiln_split(&k->w.s, loop, size, size < extent ? tail : KILN_TAIL_GUARD, outer, *point));
      loop = outer;
    }
    tiles[n_path] = loop;
    path[n_path++] = loop;
  }
  for (int d = 0; d < n->n; d++)
    if (points[d]) path[n_path++] = points[d];
  return n_path > 1 ? kiln_reorder(&k->w.s, n_path, path) : KILN_OK;
}

static kiln_status tile_kept(kiln_poly_maker *k, kiln_poly_job *j, const tiling *t) {
  j->n_tile_loops = 0;
  for (int b = 0; b < j->c->n_band; b++) {
    if (t->size[b] <= 0) continue;
    int64_t trips = 0;
    for (int i = 0; i < j->n_kept; i++) {
      const int64_t own = kiln_divide_up(kiln_poly_band_extent(j, j->kept[i], b), t->size[b]);
      if (own > trips) trips = own;
    }
    j->trips[j->n_tile_loops] = trips;
    j->coincident[j->n_tile_loops++] = j->free[b];
  }
  KILN_TRY(tile_nest(k, j, j->kept[0], t, j->tile_loops));
  for (int i = 1; i < j->n_kept; i++) {
    kiln_symbol tiles[KILN_MAX_BAND];
    KILN_TRY(tile_nest(k, j, j->kept[i], t, tiles));
    for (int l = 0; l < j->n_tile_loops; l++)
      KILN_TRY(kiln_merge(&k->w.s, j->tile_loops[l], tiles[l], 0));
  }
  return KILN_OK;
}

typedef struct pair {
  kiln_symbol outer, inner, fused;
} pair;

static kiln_status fuse_step(kiln_poly_maker *k, void *argument) {
  const pair *p = argument;
  return kiln_fuse(&k->w.s, p->outer, p->inner, p->fused);
}

static kiln_status parallel_step(kiln_poly_maker *k, void *argument) {
  return kiln_parallel(&k->w.s, *(const kiln_symbol *)argument);
}

// Distributes the outer tile loops over the threads, fusing loops while there are too few
// iterations.
static kiln_status run_parallel(kiln_poly_maker *k, kiln_poly_job *j) {
  const int threads = k->w.n_threads;
  const char *why = NULL;
  int n = 1;
  if (threads < 2 || j->n_tile_loops == 0 || !j->coincident[0]) return KILN_OK;
  kiln_symbol first = j->tile_loops[0];
  int64_t tasks = j->trips[0];
  for (; n < j->n_tile_loops && j->coincident[n]; n++) {
    if (tasks >= (int64_t)threads * TASKS_PER_THREAD || tasks % threads == 0) break;
    pair p = {first, j->tile_loops[n], kiln_symbol_printf(k->w.cx, "tiles%d", k->n_fused)};
    KILN_TRY(kiln_poly_attempt(k, fuse_step, &p, &why));
    if (why) break;
    k->n_fused++;
    first = p.fused;
    tasks *= j->trips[n];
  }
  for (int l = 0; l < n; l++) j->tile_loops[l] = first;
  return tasks > 1 ? kiln_poly_attempt(k, parallel_step, &first, &why) : KILN_OK;
}

static kiln_status place_temps(kiln_poly_maker *k, const kiln_poly_job *j) {
  for (int i = j->n_temps - 1; i >= 0; i--)
    KILN_TRY(kiln_compute_at(&k->w.s, k->w.p->tensors.data[j->temps[i]]->name,
                             j->tile_loops[j->n_tile_loops - 1], KILN_SCOPE_LOCAL));
  return KILN_OK;
}

// --- point loops ---

// A perfect nest around a statement, outermost loop first.
typedef struct chain {
  kiln_symbol loops[KILN_MAX_DEPTH];
  int64_t extents[KILN_MAX_DEPTH];
  int n;
  const kiln_loop *store;
} chain;
typedef struct chains {
  chain *data;
  int n, cap;
} chains;

static void find_chains(kiln_poly_maker *k, const kiln_loop *l, const chain *above, chains *out) {
  const bool alone = l && !l->next;
  for (; l; l = l->next) {
    chain c = {0};
    if (alone) c = *above;
    switch (l->kind) {
    case KILN_LOOP_FOR:
      c.loops[c.n] = l->var;
      c.extents[c.n] = 0;
      (void)kiln_expr_is_int(l->extent, &c.extents[c.n]);
      if (l->how != KILN_SERIAL) c.n = -1; // loops already parallel or vectorized are left alone
      c.n++;
      find_chains(k, l->body, &c, out);
      break;
    case KILN_LOOP_IF: find_chains(k, l->body, &c, out); break;
    case KILN_LOOP_ALLOC: find_chains(k, l->body, &(chain){0}, out); break;
    case KILN_LOOP_STORE:
      c.store = l;
      KILN_VEC_PUSH(&k->w.cx->scratch, out, c);
      break;
    case KILN_LOOP_INSTR:
    case KILN_LOOP_DEVICE:
    case KILN_LOOP_PREFETCH: break;
    }
  }
}

// How well a loop vectorizes: how many loads and stores are contiguous, invariant, or strided.
typedef struct strides {
  int64_t store;
  int contiguous, scattered;
} strides;

static strides strides_along(kiln_poly_maker *k, const kiln_loop *store, kiln_symbol v) {
  const kiln_loops *l = k->w.s.loops;
  const kiln_loads loads = kiln_loads_of(k->w.cx, &k->w.cx->scratch, store->value);
  strides s = {.store = kiln_poly_stride(k->w.cx, l->buffers.data[store->buffer], store->index, v)};
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *x = loads.data[i];
    const int64_t stride = kiln_poly_stride(k->w.cx, l->buffers.data[x->u.tensor], x->args, v);
    s.contiguous += stride == 1;
    s.scattered += stride != 0 && stride != 1;
  }
  return s;
}

typedef struct vector_job {
  const chain *c;
  int at; // index in the chain
  int64_t factor;
  bool partial; // by partial sums in the lanes
} vector_job;

// Moves the loop, or the vector split off it, innermost and vectorizes it.
static kiln_status vector_step(kiln_poly_maker *k, void *argument) {
  const vector_job *v = argument;
  kiln_symbol path[KILN_MAX_DEPTH + 1], loop = v->c->loops[v->at];
  int n = 0;
  for (int i = 0; i < v->c->n; i++)
    if (i != v->at) path[n++] = v->c->loops[i];
    else if (v->factor < v->c->extents[i]) path[n++] = kiln_lowering_name(&k->w, "o", loop);
  if (v->factor < v->c->extents[v->at]) {
    const kiln_symbol inner = kiln_lowering_name(&k->w, "i", loop);
    const bool sums = v->c->store->combiner != KILN_COMBINE_NONE;
    KILN_TRY(kiln_split(&k->w.s, loop, v->factor, sums ? KILN_TAIL_GUARD : KILN_TAIL_SHIFT,
                        kiln_lowering_name(&k->w, "o", loop), inner));
    loop = inner;
  }
  path[n++] = loop;
  if (n > 1) KILN_TRY(kiln_reorder(&k->w.s, n, path));
  return kiln_vectorize(&k->w.s, loop);
}

static kiln_status partial_step(kiln_poly_maker *k, void *argument) {
  const vector_job *v = argument;
  const kiln_buffer *b = k->w.s.loops->buffers.data[v->c->store->buffer];
  const char *name =
      kiln_arena_printf(&k->w.cx->perm, "%s.lanes", kiln_symbol_text(k->w.cx, b->name));
  kiln_symbol loop = v->c->loops[v->at];
  if (v->factor < v->c->extents[v->at]) {
    const kiln_symbol inner = kiln_lowering_name(&k->w, "i", loop);
    KILN_TRY(kiln_split(&k->w.s, loop, v->factor, KILN_TAIL_GUARD,
                        kiln_lowering_name(&k->w, "o", loop), inner));
    loop = inner;
  }
  KILN_TRY(kiln_rfactor(&k->w.s, loop, kiln_symbol_of(k->w.cx, name)));
  KILN_TRY(kiln_vectorize(&k->w.s, loop));
  KILN_TRY(kiln_vectorize(&k->w.s, kiln_symbol_printf(k->w.cx, "%s.init.%d", name, b->rank)));
  return kiln_vectorize(&k->w.s, kiln_symbol_printf(k->w.cx, "%s.%d", name, b->rank));
}

// The number of elements for a vector loop: as many registers as fit, fewer if the last would be
// mostly empty.
static int64_t vector_factor(const kiln_poly_maker *k, int64_t extent, kiln_dtype t) {
  int64_t factor = kiln_lowering_vector(&k->w, extent, t, KILN_MOST_VECTORS);
  const int64_t lanes = k->w.m->vector_bytes / (kiln_dtype_bytes(t) > 4 ? 8 : 4);
  while (factor > lanes && factor % 2 == 0 &&
         kiln_round_up(extent, factor) - extent > extent / WASTE)
    factor /= 2;
  return factor;
}

// The number of lanes for partial sums: a divisor of the extent if possible, so that sums need no
// guard.
static int64_t partial_factor(const kiln_poly_maker *k, int64_t extent, kiln_dtype t) {
  const int64_t lanes = k->w.m->vector_bytes / (kiln_dtype_bytes(t) > 4 ? 8 : 4);
  for (int64_t f = extent < 4 * lanes ? extent : 4 * lanes; f >= lanes; f--)
    if (extent % f == 0) return f;
  return kiln_lowering_vector(&k->w, extent, t, KILN_MOST_VECTORS);
}

static kiln_status vectorize_chain(kiln_poly_maker *k, const chain *c) {
  vector_job v = {.c = c, .at = -1};
  int best = 0;
  for (int i = 0; i < c->n; i++) {
    if (c->extents[i] < 2) continue;
    const strides s = strides_along(k, c->store, c->loops[i]);
    const bool sums = s.store == 0 && c->store->combiner != KILN_COMBINE_NONE;
    const int score = s.store == 1                           ? (s.scattered ? 1 : 3)
                      : sums && s.contiguous && !s.scattered ? 2
                                                             : 0;
    if (score == 0 || score < best) continue;
    best = score;
    v.at = i;
    v.partial = sums;
  }
  if (v.at < 0) return KILN_OK;
  const kiln_dtype t = c->store->value->dtype;
  v.factor =
      v.partial ? partial_factor(k, c->extents[v.at], t) : vector_factor(k, c->extents[v.at], t);
  const char *why = NULL;
  return v.factor < 2 ? KILN_OK
                      : kiln_poly_attempt(k, v.partial ? partial_step : vector_step, &v, &why);
}

// Vectorizes the statements of the nests from |first| on.
static kiln_status vectorize_points(kiln_poly_maker *k, const kiln_loop *first) {
  chains all = {0};
  find_chains(k, first, &(chain){0}, &all);
  for (int i = 0; i < all.n; i++) KILN_TRY(vectorize_chain(k, &all.data[i]));
  return KILN_OK;
}

// --- costs ---

typedef struct cost {
  double work, rows, bytes; // operations; entries of innermost loops; bytes of temporaries
} cost;

static bool is_innermost(const kiln_loop *l) {
  return l->kind == KILN_LOOP_FOR && l->body && l->body->kind == KILN_LOOP_STORE && !l->body->next;
}

// Iterations of a loop; an innermost loop counts whole vectors.
static double times_of(const kiln_poly_maker *k, const kiln_loop *l) {
  const int64_t n = kiln_poly_extent(l), lanes = k->w.lanes;
  return (double)(is_innermost(l) ? kiln_round_up(n, lanes) : n);
}

static void add_cost(kiln_poly_maker *k, const kiln_loop *l, double times, cost *out) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) out->work += times * (1 + kiln_expr_cost(k->w.cx, l->value));
    if (l->kind == KILN_LOOP_ALLOC) {
      const kiln_buffer *b = k->w.s.loops->buffers.data[l->buffer];
      out->bytes += (double)kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
    }
    if (is_innermost(l)) out->rows += times;
    add_cost(k, l->body, l->kind == KILN_LOOP_FOR ? times * times_of(k, l) : times, out);
  }
}

static cost cost_of(kiln_poly_maker *k, const kiln_loop *nest) {
  cost c = {0};
  kiln_loop alone = *nest;
  alone.next = NULL;
  add_cost(k, &alone, 1, &c);
  return c;
}

// Operations of the unscheduled cluster.
static double naive_work(kiln_poly_maker *k, const kiln_poly_job *j) {
  double work = 0;
  for (int i = 0; i < j->c->n; i++) work += cost_of(k, k->plan.nests[j->c->members[i]].top).work;
  return work;
}

// Bytes of tensors in memory that several statements of the cluster read: if a tile's part stays in
// the cache, it is read once.
static double shared_bytes(const kiln_poly_maker *k, const kiln_poly_job *j) {
  double bytes = 0;
  for (int i = 0; i < k->w.p->tensors.n; i++) {
    const kiln_tensor *t = k->w.p->tensors.data[i];
    int readers = 0;
    for (int u = k->users.first[i]; u < k->users.first[i + 1]; u++)
      readers += kiln_poly_has_stmt(k, j->c, k->users.users[u]);
    if (readers > 1 && !kiln_poly_is_inside(k, j->c, t))
      bytes += (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
  }
  return bytes;
}

// Operations of the tiled cluster, weighted by the memory level of its reused data and by idle
// threads.
static double price(kiln_poly_maker *k, const kiln_poly_job *j, double *out_work) {
  double tiles = 1, tasks = 1, idle = 1;
  const cost c = cost_of(k, kiln_loops_find(k->w.s.loops, j->tile_loops[0]));
  for (int l = 0; l < j->n_tile_loops; l++) {
    tiles *= (double)j->trips[l];
    if (j->coincident[l]) tasks *= (double)j->trips[l];
  }
  const double held = c.bytes + shared_bytes(k, j) / tiles;
  const double slow = held > (double)k->w.m->l2_bytes / 2   ? 3
                      : held > (double)k->w.m->l1_bytes / 2 ? 1.3
                                                            : 1;
  if (tasks < k->w.n_threads) idle = k->w.n_threads / tasks;
  *out_work = c.work;
  const double entries = (c.rows * ROW_COST + tiles * TILE_COST) * k->w.lanes;
  return (c.work * slow + entries) * idle;
}

// --- tile sizes ---

typedef struct candidates {
  int n;
  tiling data[MAX_CANDIDATES];
} candidates;

static void propose(const kiln_poly_job *j, candidates *c, int depth, int64_t size) {
  tiling t = {0};
  for (int b = 0; b < depth; b++) {
    int64_t extent = 0;
    for (int i = 0; i < j->n_kept; i++)
      if (kiln_poly_band_extent(j, j->kept[i], b) > extent)
        extent = kiln_poly_band_extent(j, j->kept[i], b);
    t.size[b] = size < extent ? size : extent;
  }
  if (c->n < MAX_CANDIDATES) c->data[c->n++] = t;
}

static int64_t domain(const kiln_poly_nest *n) {
  int64_t elems = 1;
  for (int i = 0; i < n->n; i++) elems *= n->extents[i];
  return elems;
}

static bool reads_again(const kiln_poly_maker *k, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(k->w.cx, &k->w.cx->scratch, s->body);
  for (int i = 0; i < loads.n; i++)
    for (int b = 0; b < i; b++)
      if (loads.data[i]->u.tensor == loads.data[b]->u.tensor) return true;
  return false;
}

// Sizes for clusters without temporaries, which have no halos: rows for maps, tiles for reductions
// and for promotion.
static void propose_alone(const kiln_poly_maker *k, const kiln_poly_job *j, candidates *c) {
  const kiln_poly_nest *last = j->kept[j->n_kept - 1];
  const int n = j->c->n_band, threads = k->w.n_threads * TASKS_PER_THREAD;
  if (domain(last) < SMALL_WORK && j->n_kept == 1) return;
  const kiln_stmt *s = k->w.p->stmts.data[last->stmt];
  const bool sums = s->n_reduce > 0;
  if (n == 1 && sums && j->n_kept <= 2) propose(j, c, 1, 1);
  else if (n == 1) propose(j, c, 1, kiln_divide_up(kiln_poly_band_extent(j, last, 0), threads));
  else if (sums || (k->o->promote && reads_again(k, s))) propose(j, c, n, DEFAULT_TILE);
  else propose(j, c, n - 1, 1);
}

static candidates sizes_of(const kiln_poly_maker *k, const kiln_poly_job *j) {
  static const int64_t rows[] = {1, 4, 8, 16, 32, 64, 128}, boxes[] = {1, 8, 16, 32, 64, 128};
  candidates c = {0};
  if (j->c->n_band == 0 || j->n_kept == 0) return c;
  if (k->o->n_tiles > 0) {
    tiling t = {0};
    for (int b = 0; b < j->c->n_band && b < k->o->n_tiles; b++) {
      const int64_t extent = kiln_poly_band_extent(j, j->kept[0], b), size = k->o->tiles[b];
      t.size[b] = size < extent ? size : extent;
    }
    c.data[c.n++] = t;
    return c;
  }
  if (j->n_temps == 0) {
    propose_alone(k, j, &c);
    return c;
  }
  for (size_t i = 0; i < KILN_LEN(rows); i++) propose(j, &c, 1, rows[i]);
  for (size_t i = 0; j->c->n_band > 1 && i < KILN_LEN(boxes); i++) propose(j, &c, 2, boxes[i]);
  if (j->c->n_band > 2)
    for (size_t i = 0; i < KILN_LEN(boxes); i++) propose(j, &c, j->c->n_band, boxes[i]);
  return c;
}

// --- the cluster's script ---

typedef struct tile_job {
  kiln_poly_job *j;
  const tiling *t;
} tile_job;

static kiln_status tile_step(kiln_poly_maker *k, void *argument) {
  tile_job *t = argument;
  KILN_TRY(tile_kept(k, t->j, t->t));
  if (t->j->n_tile_loops == 0) return KILN_OK;
  KILN_TRY(run_parallel(k, t->j));
  return place_temps(k, t->j);
}

// Merges the loops of nests that run shifted against each other, without other changes.
static kiln_status merge_step(kiln_poly_maker *k, void *argument) {
  const kiln_poly_job *j = argument;
  const int outer = j->band[0];
  const int64_t from = j->kept[0]->shift[outer];
  for (int i = 0; i < j->n_kept; i++) {
    const tiling none = {{1}};
    kiln_symbol tiles[KILN_MAX_BAND];
    KILN_TRY(tile_nest(k, j, j->kept[i], &none, tiles));
    if (i > 0)
      KILN_TRY(kiln_merge(&k->w.s, kiln_poly_band_loop(j, j->kept[0], 0), tiles[0],
                          j->kept[i]->shift[outer] - from));
  }
  return KILN_OK;
}

typedef struct copy_job {
  const kiln_promotion *p;
  kiln_symbol name;
} copy_job;

static kiln_status promote_step(kiln_poly_maker *k, void *argument) {
  const copy_job *c = argument;
  return kiln_poly_promote(&k->w, c->p, c->name);
}

// Promotes boxes that the tile reuses, up to |room| bytes.
static kiln_status promote(kiln_poly_maker *k, int tile, kiln_scope scope, double room) {
  const kiln_promotions all = kiln_poly_promotions(&k->w, k->tiles[tile], k->o->promote, scope);
  const char *why = NULL;
  for (int i = 0; i < all.n; i++) {
    const kiln_promotion *p = &all.data[i];
    const char *buffer = kiln_symbol_text(k->w.cx, p->buffer);
    if ((double)p->bytes > room) continue;
    copy_job c = {p, kiln_symbol_printf(k->w.cx, "%s.tile%d", buffer, tile)};
    KILN_TRY(kiln_poly_attempt(k, promote_step, &c, &why));
    if (why) continue;
    room -= (double)p->bytes;
    kiln_text_printf(k->comments,
                     "# %s: copied at %s, which loads %.0f times from %" PRId64 " elements%s\n",
                     buffer, kiln_symbol_text(k->w.cx, p->tile), p->loads, p->elems,
                     p->is_turned ? ", across their rows" : "");
  }
  return KILN_OK;
}

// Promotes boxes of the cluster in the half of the cache that costs assume, less the tile's
// temporaries.
static kiln_status promote_cluster(kiln_poly_maker *k, const kiln_poly_job *j) {
  if (j->n_tile_loops == 0 || k->n_tiles == KILN_MAX_NESTS) return KILN_OK;
  const double held = cost_of(k, kiln_loops_find(k->w.s.loops, j->tile_loops[0])).bytes;
  k->tiles[k->n_tiles++] = j->tile_loops[j->n_tile_loops - 1];
  return promote(k, k->n_tiles - 1, KILN_SCOPE_LOCAL, (double)k->w.m->l2_bytes / 2 - held);
}

// Tries the candidates and keeps the cheapest; *out_done tells whether one is legal and pays:
// recomputed halos must not exceed the original work.
static kiln_status tile_cluster(kiln_poly_maker *k, kiln_poly_job *j, bool *out_done) {
  const candidates c = sizes_of(k, j);
  const kiln_poly_snapshot before = kiln_poly_take(k);
  const double naive = j->n_temps > 0 ? naive_work(k, j) : 0;
  const char *why = NULL, *first_why = NULL;
  double best_price = 0;
  int best = -1;
  // attempts are expensive with many temporaries: then only every second, third, ... size is tried
  const int stride = 1 + j->n_temps / MANY_TEMPS;
  for (int i = c.n > stride / 2 ? stride / 2 : 0; i < c.n; i += stride) {
    tile_job t = {j, &c.data[i]};
    KILN_TRY(kiln_poly_attempt(k, tile_step, &t, &why));
    if (!why && j->n_tile_loops > 0 && j->n_temps > 0) {
      double work = 0;
      const double now = price(k, j, &work);
      if (work > MAX_RECOMPUTED * naive) why = "most would be computed again in every tile";
      else if (best < 0 || now < best_price) best = i, best_price = now;
    } else if (!why && best < 0) {
      best = i;
    }
    if (why && !first_why) first_why = why;
    kiln_poly_restore(k, &before);
  }
  *out_done = best >= 0;
  if (best >= 0) {
    tile_job t = {j, &c.data[best]};
    KILN_TRY(kiln_poly_attempt(k, tile_step, &t, &why));
    return promote_cluster(k, j);
  }
  if (first_why) kiln_poly_comment(k, j, "not in one tile: ", first_why);
  return KILN_OK;
}

static kiln_status schedule_cluster(kiln_poly_maker *k, const kiln_poly_cluster *c);

// Schedules each statement of a cluster that cannot be tiled as a cluster of its own.
static kiln_status schedule_apart(kiln_poly_maker *k, const kiln_poly_cluster *c) {
  for (int i = 0; i < c->n;) {
    kiln_poly_cluster one = {.n_band = 0};
    const int stmt = k->plan.nests[c->members[i]].stmt;
    while (i < c->n && k->plan.nests[c->members[i]].stmt == stmt)
      one.members[one.n++] = c->members[i++];
    for (int m = 0; m < one.n; m++) { // order and shifts were those of the whole cluster
      kiln_poly_nest *n = &k->plan.nests[one.members[m]];
      for (int b = 0; b < n->n; b++) n->order[b] = b, n->shift[b] = 0;
    }
    const kiln_stmt *s = k->w.p->stmts.data[stmt];
    one.n_band = kiln_stmt_is_plain(k->w.cx, s) ? s->n_space : 0;
    for (int b = 0; b < one.n_band; b++) one.coincident[b] = true;
    KILN_TRY(schedule_cluster(k, &one));
  }
  return KILN_OK;
}

static bool is_statement(const kiln_poly_maker *k, const kiln_poly_cluster *c) {
  for (int i = 1; i < c->n; i++)
    if (k->plan.nests[c->members[i]].stmt != k->plan.nests[c->members[0]].stmt) return false;
  return true;
}

static bool has_grids(const kiln_poly_maker *k) { return k->w.m->target->has_grids; }

static kiln_status schedule_cluster(kiln_poly_maker *k, const kiln_poly_cluster *c) {
  kiln_poly_job j = kiln_poly_job_of(k, c);
  bool done = false;
  const char *why = NULL;
  if (j.n_kept > 0 && kiln_poly_is_shifted(&j)) {
    if (k->w.n_threads > 1 || has_grids(k))
      why = "its nests would run one after the other, on one thread";
    else KILN_TRY(kiln_poly_attempt(k, merge_step, &j, &why));
    if (why) kiln_poly_comment(k, &j, "not merged: ", why);
    done = !why;
  } else {
    KILN_TRY(has_grids(k) ? kiln_poly_map_cluster(k, &j, &done) : tile_cluster(k, &j, &done));
  }
  if (!done && !is_statement(k, c)) return schedule_apart(k, c);
  return done || !has_grids(k) ? KILN_OK : kiln_poly_map_nests(k, &j);
}

bool kiln_polyhedral_suits(const kiln_program *p) {
  const kiln_expr *a = NULL, *b = NULL;
  for (int i = 0; i < p->stmts.n; i++)
    if (kiln_stmt_is_contraction(p->stmts.data[i], &a, &b) &&
        kiln_stmt_domain(p->stmts.data[i]) >= SMALL_CONTRACTION)
      return false;
  return true;
}

static kiln_status interior_step(kiln_poly_maker *k, void *argument) {
  (void)argument;
  return kiln_lowering_interior(&k->w);
}

// What follows the clusters on processors: vectors, scalars in registers, borders apart.
static kiln_status run_in_vectors(kiln_poly_maker *k) {
  const kiln_machine *m = k->w.m;
  const double registers = (double)m->n_vector_regs / 2 * m->vector_bytes;
  const char *why = NULL;
  KILN_TRY(vectorize_points(k, k->w.s.loops->body));
  for (int i = 0; i < k->n_tiles; i++) KILN_TRY(promote(k, i, KILN_SCOPE_REGISTER, registers));
  KILN_TRY(kiln_poly_attempt(k, interior_step, NULL, &why));
  if (why) kiln_text_printf(k->comments, "# the interior is not apart: %s\n", why);
  return KILN_OK;
}

kiln_status kiln_polyhedral_schedule(kiln_ctx *cx, const kiln_program *p, const kiln_machine *m,
                                     int n_threads, const kiln_polyhedral_options *options,
                                     kiln_loops **out_loops, const char **out_script) {
  kiln_text script;
  kiln_text_init(&script, &cx->perm);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_poly_maker k = {
      .w = {.cx = cx, .p = p, .m = m, .n_threads = n_threads, .lanes = m->vector_bytes / 4},
      .o = options,
      .comments = &script,
      .users = kiln_users_make(cx, &cx->scratch, p)};
  KILN_TRY(kiln_schedule_begin(cx, p, &k.w.s));
  KILN_TRY(kiln_poly_plan_make(&k.w.s, options, &script, &k.plan));
  for (int i = 0; i < k.plan.n_clusters; i++) KILN_TRY(schedule_cluster(&k, &k.plan.clusters[i]));
  if (!m->target->has_grids) KILN_TRY(run_in_vectors(&k));
  kiln_text_add(&script, kiln_schedule_script(&k.w.s));
  *out_loops = k.w.s.loops;
  *out_script = script.data;
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
