// Clusters on GPUs: coincident loops of the band as tiles, a block each; a tile's points as
// threads, the contiguous loop along x; temporaries in shared memory or in registers.
//
// Among several shapes of tiles and blocks the one whose loops are predicted to take the least time
// is chosen (price/gpu_work.h).
//
// source: Verdoolaege et al., Polyhedral parallel code generation for CUDA (TACO 2013), sections 5
//         and 6; Vasilache et al., Tensor Comprehensions (2018), sections 4.3 and 4.4
#include "polyhedral/cluster.h"
#include "schedule/index.h"
#include "template/gpu/block_tile.h"

#include <math.h>

enum { MAX_RECOMPUTED = 4, MANY_TEMPS = 4, FEW_SHAPES = 5 };

// A cluster mapped with one shape.
typedef struct mapping {
  const kiln_poly_job *j;
  kiln_block_shape shape; // of the loops of each statement that stays in memory
  int n;
  const kiln_stmt *kept[KILN_MAX_NESTS];
  const kiln_poly_nest *nests[KILN_MAX_NESTS]; // theirs; of a reduction, the one that adds up
  kiln_symbol block;                           // of the result
} mapping;

static const kiln_stmt *stmt_of(const kiln_poly_maker *k, const kiln_poly_nest *n) {
  return k->w.p->stmts.data[n->stmt];
}

static int n_parallel(const kiln_poly_job *j) {
  int n = 0;
  while (n < j->c->n_band && j->free[n]) n++;
  return n;
}

// The place of |nest|'s space loop |d| in the parallel part of the band; -1: it is not in it.
static int band_of(const kiln_poly_job *j, const kiln_poly_nest *nest, int d) {
  for (int b = 0; b < n_parallel(j); b++)
    if (kiln_poly_nest_loop(j, nest, b) == d) return b;
  return -1;
}

static mapping mapping_of(const kiln_poly_maker *k, const kiln_poly_job *j) {
  mapping m = {.j = j};
  for (int i = 0; i < j->n_kept; i++) {
    if (j->kept[i]->is_init) continue;
    m.nests[m.n] = j->kept[i];
    m.kept[m.n++] = stmt_of(k, j->kept[i]);
  }
  return m;
}

// The shape for the loops of statement |i|, by its loops: a size of the last statement's loop of
// the same member of the band.
static kiln_block_shape shape_for(const mapping *m, int i) {
  kiln_block_shape s = {{0}, {m->shape.threads[0], m->shape.threads[1]}};
  const kiln_poly_nest *last = m->nests[m->n - 1];
  for (int d = 0; d < m->kept[i]->n_space; d++) {
    const int b = band_of(m->j, m->nests[i], d);
    if (b >= 0) s.size[d] = m->shape.size[kiln_poly_nest_loop(m->j, last, b)];
  }
  return s;
}

// Orders the loops over tiles as the band, so that those of all statements correspond.
static void order_tiles(const mapping *m, int i, const kiln_block_shape *s, int n,
                        const kiln_symbol *tiles, kiln_symbol *out) {
  int at = 0;
  for (int d = 0; d < m->kept[i]->n_space && at < n; d++)
    if (s->size[d] != 0) out[band_of(m->j, m->nests[i], d)] = tiles[at++];
}

// The nests that stay in memory, cut into tiles and merged over these; out_points[i] are the loops
// within a tile of statement |i|.
static kiln_status cut_kept(kiln_poly_maker *k, const mapping *m, kiln_symbol *out_tiles,
                            int *out_n_tiles, kiln_symbol (*out_points)[2 * KILN_MAX_RANK],
                            int *out_n_points) {
  for (int i = 0; i < m->n; i++) {
    kiln_symbol loops[KILN_MAX_RANK], tiles[KILN_MAX_RANK], own[KILN_MAX_RANK] = {0};
    const kiln_block_shape s = shape_for(m, i);
    int n_tiles;
    KILN_TRY(kiln_block_keep_sums(&k->w, m->kept[i]));
    const int n = kiln_block_loops(&k->w, m->kept[i], loops);
    KILN_TRY(kiln_block_cut(&k->w, n, loops, &s, &n_tiles, tiles, &out_n_points[i], out_points[i]));
    order_tiles(m, i, &s, n_tiles, tiles, own);
    if (n_tiles > 1) KILN_TRY(kiln_reorder(&k->w.s, n_tiles, own));
    for (int b = 0; b < n_tiles; b++) {
      if (i == 0) out_tiles[b] = own[b];
      else KILN_TRY(kiln_merge(&k->w.s, out_tiles[b], own[b], 0));
    }
    *out_n_tiles = n_tiles;
  }
  return KILN_OK;
}

static kiln_status check_nest(kiln_poly_maker *k, kiln_symbol loop) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_target *t = k->w.m->target;
  const kiln_loop *l = kiln_loops_find(k->w.s.loops, loop);
  kiln_loops alone = *k->w.s.loops;
  if (!t->check || !l || !kiln_nest_path(k->w.s.loops, l, path)) return KILN_OK;
  kiln_loop nest = *path[0];
  nest.next = NULL;
  alone.body = &nest;
  return t->check(k->w.cx, k->w.m, kiln_loops_copy(&k->w.cx->perm, &alone));
}

static kiln_status map_step(kiln_poly_maker *k, void *argument) {
  mapping *m = argument;
  kiln_symbol tiles[KILN_MAX_RANK], points[KILN_MAX_MEMBERS][2 * KILN_MAX_RANK];
  int n_tiles = 0, n_points[KILN_MAX_MEMBERS];
  kiln_block_tile t = {.w = &k->w, .shape = m->shape};
  KILN_TRY(cut_kept(k, m, tiles, &n_tiles, points, n_points));
  KILN_TRY(kiln_block_bind(&t, n_tiles, tiles));
  for (int i = m->n - 1; i >= 0; i--)
    KILN_TRY(kiln_block_add_result(&t, m->kept[i], n_points[i], points[i]));
  for (int i = m->j->n_temps - 1; i >= 0; i--) {
    const kiln_tensor *temp = k->w.p->tensors.data[m->j->temps[i]];
    KILN_TRY(kiln_block_add_producer(&t, k->w.p->stmts.data[temp->def]));
  }
  m->block = t.block;
  return kiln_block_stage(&t, k->o->promote, k->comments);
}

static kiln_status checked_step(kiln_poly_maker *k, void *argument) {
  mapping *m = argument;
  KILN_TRY(map_step(k, m));
  return check_nest(k, m->block);
}

static kiln_status reduce_step(kiln_poly_maker *k, void *argument) {
  const mapping *m = argument;
  return kiln_block_reduce(&k->w, m->kept[0]);
}

// Whether all statements are of a kind that a block can compute.
static bool is_mappable(const kiln_poly_maker *k, const mapping *m) {
  const kiln_poly_job *j = m->j;
  bool may = m->n > 0 && n_parallel(j) > 0 && m->n + j->n_temps <= KILN_MAX_MEMBERS;
  for (int i = 0; i < m->n && may; i++)
    may = kiln_stmt_is_plain(k->w.cx, m->kept[i]) && !m->kept[i]->guard;
  for (int i = 0; i < j->n_temps && may; i++) {
    const kiln_stmt *s = k->w.p->stmts.data[k->w.p->tensors.data[j->temps[i]]->def];
    may = kiln_stmt_is_plain(k->w.cx, s) && !s->guard;
  }
  return may;
}

static int propose(const kiln_poly_maker *k, const mapping *m, kiln_block_shape *out) {
  const kiln_stmt *last = m->kept[m->n - 1];
  int64_t extents[KILN_MAX_RANK];
  for (int d = 0; d < last->n_space; d++) extents[d] = kiln_lowering_extent(last, d);
  const int n = kiln_block_shapes(k->w.m, last->n_space, extents, out);
  for (int i = 0; i < n; i++)
    for (int d = 0; d < last->n_space; d++)
      if (band_of(m->j, m->nests[m->n - 1], d) < 0) out[i].size[d] = 0;
  if (k->o->n_tiles == 0) return n;
  for (int d = 0; d < last->n_space; d++) { // sizes were given
    const int b = band_of(m->j, m->nests[m->n - 1], d);
    if (b >= 0 && b < k->o->n_tiles && k->o->tiles[b] > 0) out[0].size[d] = k->o->tiles[b];
  }
  return 1;
}

static double sum_of(const kiln_poly_maker *k, const kiln_loop *l, double times) {
  double n = 0;
  for (; l; l = l->next) {
    const double each = l->kind == KILN_LOOP_FOR ? times * (double)kiln_poly_extent(l) : times;
    n += l->kind == KILN_LOOP_STORE ? times * (1 + kiln_expr_cost(k->w.cx, l->value))
                                    : sum_of(k, l->body, each);
  }
  return n;
}

// The operations of the nest of |loop|, or of the cluster's nests as they are.
static double work_of(const kiln_poly_maker *k, kiln_symbol loop) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_loop *l = kiln_loops_find(k->w.s.loops, loop);
  if (!l || !kiln_nest_path(k->w.s.loops, l, path)) return 0;
  kiln_loop nest = *path[0];
  nest.next = NULL;
  return sum_of(k, &nest, 1);
}

static double naive_work(const kiln_poly_maker *k, const kiln_poly_job *j) {
  double work = 0;
  for (int i = 0; i < j->c->n; i++) {
    kiln_loop nest = *k->plan.nests[j->c->members[i]].top;
    nest.next = NULL;
    work += sum_of(k, &nest, 1);
  }
  return work;
}

// Why the loops of |m| are not wanted; NULL if they may be. Several statements share a grid only if
// it is large enough for all multiprocessors.
static const char *unwanted(const kiln_poly_maker *k, const mapping *m, double naive) {
  const int64_t blocks = kiln_gpu_extent(&k->w, m->block);
  if (m->n + m->j->n_temps == 1) return NULL;
  if (blocks < k->w.m->n_cores) return "its grid would have fewer blocks than multiprocessors";
  return m->j->n_temps > 0 && work_of(k, m->block) > MAX_RECOMPUTED * naive
             ? "most would be computed again in every tile"
             : NULL;
}

typedef struct choice {
  kiln_block_shape shape;
  double ns;
} choice;

// The shapes that primitives let, the one whose loops take the least time first; *out_why: why the
// first that they do not let is refused.
static kiln_status try_shapes(kiln_poly_maker *k, mapping *m, int *out_n, choice *out,
                              const char **out_why) {
  kiln_block_shape shapes[KILN_MOST_BLOCK_SHAPES];
  const int n = propose(k, m, shapes), comments = k->comments->n,
            stride = m->j->n_temps < MANY_TEMPS ? 1 : (n + FEW_SHAPES - 1) / FEW_SHAPES;
  const kiln_poly_snapshot before = kiln_poly_take(k);
  const double naive = naive_work(k, m->j);
  *out_n = 0;
  for (int i = n > stride / 2 ? stride / 2 : 0; i < n; i += stride) {
    const char *why = NULL;
    m->shape = shapes[i];
    KILN_TRY(kiln_poly_attempt(k, map_step, m, &why));
    if (!why) why = unwanted(k, m, naive);
    if (why && !*out_why) *out_why = why;
    if (!why) {
      const choice one = {shapes[i], kiln_block_price(&k->w, m->block)};
      int at = (*out_n)++;
      for (; at > 0 && out[at - 1].ns > one.ns; at--) out[at] = out[at - 1];
      out[at] = one;
    }
    kiln_poly_restore(k, &before);
    k->comments->n = comments;
    if (k->comments->data) k->comments->data[comments] = 0;
  }
  return KILN_OK;
}

static kiln_status map_best(kiln_poly_maker *k, mapping *m, bool *out_done, const char **out_why) {
  choice all[KILN_MOST_BLOCK_SHAPES];
  int n = 0;
  *out_why = NULL;
  KILN_TRY(try_shapes(k, m, &n, all, out_why));
  for (int i = 0; i < n && !*out_done; i++) {
    const char *why = NULL;
    const int comments = k->comments->n;
    m->shape = all[i].shape;
    KILN_TRY(kiln_poly_attempt(k, checked_step, m, &why));
    *out_done = !why;
    if (!why) break;
    *out_why = why;
    k->comments->n = comments;
    if (k->comments->data) k->comments->data[comments] = 0;
  }
  return KILN_OK;
}

kiln_status kiln_poly_map_cluster(kiln_poly_maker *k, kiln_poly_job *j, bool *out_done) {
  mapping m = mapping_of(k, j);
  const char *why = NULL;
  *out_done = false;
  if (m.n == 0) return KILN_OK;
  if (m.n == 1 && j->n_temps == 0 && kiln_block_is_long(&k->w, m.kept[0]) &&
      kiln_stmt_is_plain(k->w.cx, m.kept[0])) {
    KILN_TRY(kiln_poly_attempt(k, reduce_step, &m, &why));
    *out_done = !why;
    if (!why) return KILN_OK;
  }
  if (!is_mappable(k, &m)) return KILN_OK;
  KILN_TRY(map_best(k, &m, out_done, &why));
  if (!*out_done && why) kiln_poly_comment(k, j, "not in one grid: ", why);
  return KILN_OK;
}

typedef struct nest_job {
  int n;
  const kiln_symbol *loops;
} nest_job;

static kiln_status nest_step(kiln_poly_maker *k, void *argument) {
  const nest_job *n = argument;
  kiln_symbol thread;
  return kiln_gpu_map_grid(&k->w, n->n, n->loops, KILN_GPU_THREADS, &thread);
}

kiln_status kiln_poly_map_nests(kiln_poly_maker *k, const kiln_poly_job *j) {
  for (int i = 0; i < j->c->n; i++) {
    const kiln_poly_nest *nest = &k->plan.nests[j->c->members[i]];
    nest_job n = {nest->is_init ? nest->n : stmt_of(k, nest)->n_space, nest->loops};
    const char *why = NULL;
    if (n.n > 0) KILN_TRY(kiln_poly_attempt(k, nest_step, &n, &why));
  }
  return KILN_OK;
}
