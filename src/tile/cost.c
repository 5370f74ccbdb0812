// The sum over all tiles of a kernel, and its predicted time.
#include "tile/propagate.h"

#include <math.h>

// --- all tiles ---

enum { MAX_RAGGED = 3 }; // dims of the result whose partial last tile is counted apart

// Tiles of each dim: |full| whole ones, and a partial one of extent |rest| unless that is 0.
typedef struct tiling {
  int n;
  int64_t full[KILN_MAX_RANK], rest[KILN_MAX_RANK];
  int n_ragged, ragged[MAX_RAGGED];
} tiling;

static tiling tiling_of(const kiln_tile_graph *g, const int64_t *tile) {
  const kiln_stmt *root = g->nodes[g->n_nodes - 1].stmt;
  tiling t = {.n = root->n_space};
  for (int d = 0; d < t.n; d++) {
    const int64_t extent = kiln_dim_extent(&root->dims[d]),
                  size = tile[d] <= 0 || tile[d] > extent ? extent : tile[d];
    t.full[d] = size ? extent / size : 0;
    t.rest[d] = size ? extent % size : 0;
    if (t.rest[d] && t.n_ragged < MAX_RAGGED) t.ragged[t.n_ragged++] = d;
    else if (t.rest[d]) t.full[d]++, t.rest[d] = 0;
  }
  return t;
}

static double node_iterations(const kiln_tile_node *n) {
  double iterations = 1;
  for (int d = 0; d < n->stmt->n_space + n->stmt->n_reduce; d++)
    iterations *= (double)n->dims[KILN_TILE_WHOLE][d].extent;
  return iterations;
}

// Adds |count| tiles of the shape that was propagated last.
static void add_tiles(kiln_tile_graph *g, double count, int transaction, kiln_tile_total *total) {
  total->tiles += count;
  for (int n = 0; n < g->n_nodes; n++) {
    kiln_tile_node *node = &g->nodes[n];
    if (!node->inside) continue;
    total->flops += count * node->flops * node_iterations(node);
    node->repeats += count * node_iterations(node) / (double)kiln_stmt_domain(node->stmt);
  }
  for (int i = 0; i < g->n_edges; i++)
    total->read_bytes += count * kiln_tile_read(g, i, transaction);
  total->written_bytes += count * kiln_tile_written(g, transaction);
}

kiln_tile_total kiln_tile_sum(kiln_tile_graph *g, const int64_t *tile,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps,
                              int transaction_bytes) {
  const tiling t = tiling_of(g, tile);
  kiln_tile_total total = {0};
  for (int n = 0; n < g->n_nodes; n++) g->nodes[n].repeats = 0;
  // whole tiles last: their boxes remain in the graph
  for (int mask = (1 << t.n_ragged) - 1; mask >= 0; mask--) {
    int64_t part[KILN_MAX_RANK] = {0};
    double count = 1;
    for (int d = 0; d < t.n; d++) {
      bool is_rest = false;
      for (int r = 0; r < t.n_ragged; r++) is_rest |= t.ragged[r] == d && (mask >> r & 1);
      if (is_rest) part[d] = t.rest[d];
      count *= is_rest ? 1 : (double)t.full[d];
    }
    kiln_tile_propagate_part(g, tile, part, modes, steps);
    if (count > 0) add_tiles(g, count, transaction_bytes, &total);
  }
  return total;
}

// --- time ---

double kiln_tile_boundary(kiln_tile_graph *g, const kiln_tile_plan *plan, const int64_t *tile,
                          double usable_bytes, int transaction_bytes) {
  const int n = g->nodes[g->n_nodes - 1].stmt->n_space;
  int64_t sweep[KILN_MAX_RANK] = {0}; // tiles of one iteration fit: each byte is read once
  bool fits = false;
  for (int j = 0; j <= n && !fits; j++) { // a sweep over dims from |j| on
    int64_t one[KILN_MAX_RANK] = {0};
    for (int d = 0; d < j; d++) one[d] = tile[d];
    kiln_tile_propagate(g, one, plan->modes, plan->steps);
    fits = kiln_tile_traffic(g, transaction_bytes) <= usable_bytes;
    for (int d = 0; d + fits < j; d++) sweep[d] = tile[d];
  }
  const kiln_tile_total all = kiln_tile_sum(g, sweep, plan->modes, plan->steps, transaction_bytes);
  return all.read_bytes + all.written_bytes;
}

void kiln_tile_cost_finish(const kiln_device *d, int n_threads, kiln_peak peak, double efficiency,
                           kiln_tile_cost *c) {
  const double tiles = c->tiles > 0 ? (double)c->tiles : 1,
               active = tiles < n_threads ? tiles : n_threads;
  const double unit = d->unit_flops_ns[peak] > 0 ? d->unit_flops_ns[peak]
                                                 : d->unit_flops_ns[KILN_PEAK_F32],
               all = d->unit_flops_ns[peak] > 0 ? d->all_flops_ns[peak]
                                                : d->all_flops_ns[KILN_PEAK_F32];
  c->compute_ns = c->flops / (efficiency * fmin(all, active * unit));
  double most = c->compute_ns;
  for (int l = 0; l + 1 < d->n_levels; l++) {
    const kiln_mem_level *level = &d->levels[l];
    c->level_ns[l] = c->bytes[l] / fmin(level->all_bytes_ns, active * level->unit_bytes_ns);
    most = fmax(most, c->level_ns[l]);
  }
  const double waves = tiles / active;
  c->tail = ceil(waves) / waves;
  c->launch_ns = d->launch_ns + (active > 1 ? d->fork_ns : 0);
  c->ns = c->launch_ns + c->tail * most;
}

// The share of the last cache in which a kernel's result usually survives until the next kernel.
// Measured cache sizes are already reduced by what other programs use.
static const double KEPT = 0.5;

double kiln_tile_kept_bytes(const kiln_mem_level *cache) {
  return (double)cache->capacity_bytes * fmax(cache->usable, KEPT);
}

// Bytes read from memory because they are not in the last shared cache: constants, and tensors
// between kernels that are too large for it.
static double cold_bytes(kiln_tile_graph *g, double shared_bytes, int transaction) {
  const kiln_tensor *y = g->p->tensors.data[g->nodes[g->n_nodes - 1].stmt->out];
  const double out_bytes = (double)kiln_tensor_elems(y) * kiln_dtype_bytes(y->dtype);
  double bytes = out_bytes > shared_bytes / 2 ? kiln_tile_written(g, transaction) : 0;
  for (int i = 0; i < g->n_edges; i++) {
    const kiln_tensor *t = g->p->tensors.data[g->edges[i].tensor];
    const double read = kiln_tile_read(g, i, transaction);
    if (t->role == KILN_CONST || read > shared_bytes / 2) bytes += read;
  }
  return bytes;
}

static double boundary_bytes(kiln_tile_graph *g, const kiln_device *d, int n_threads,
                             const kiln_tile_plan *plan, int level) {
  const kiln_mem_level *cache = &d->levels[level + 1];
  const double usable = (double)cache->capacity_bytes * cache->usable,
               share = cache->n_sharing > 1 ? usable / n_threads : usable;
  const bool is_first_cache = level == d->n_levels - 3 && plan->inner;
  if (level + 2 == d->n_levels) { // the level before the registers
    if (!plan->inner) return 0;
    const kiln_tile_total t = kiln_tile_sum(g, plan->inner, NULL, NULL, cache->transaction_bytes);
    return t.read_bytes + t.written_bytes;
  }
  if (level == 0) {
    int64_t all[KILN_MAX_RANK] = {0};
    kiln_tile_propagate(g, all, NULL, NULL);
    const double kept = kiln_tile_kept_bytes(cache);
    if (kiln_tile_traffic(g, cache->transaction_bytes) <= kept)
      return cold_bytes(g, kept, cache->transaction_bytes);
  }
  return kiln_tile_boundary(g, plan, is_first_cache ? plan->inner : plan->tile, share,
                            cache->transaction_bytes);
}

void kiln_tile_cost_of(kiln_tile_graph *g, const kiln_machine *m, int n_threads,
                       const kiln_tile_plan *plan, kiln_tile_cost *out) {
  const kiln_device *d = m->device;
  *out = (kiln_tile_cost){0};
  if (!d) return;
  for (int l = 0; l + 1 < d->n_levels; l++)
    out->bytes[l] = boundary_bytes(g, d, n_threads, plan, l);
  out->bytes[0] += plan->extra_bytes;
  const kiln_tile_total total =
      kiln_tile_sum(g, plan->tile, plan->modes, plan->steps, d->levels[0].transaction_bytes);
  out->flops = total.flops + plan->extra_flops;
  out->tiles = plan->tasks > 0 ? plan->tasks : (int64_t)total.tiles;
  for (int l = 0; l < d->n_levels; l++) out->footprint[l] = kiln_tile_footprint(g, l);
  kiln_tile_cost_finish(d, n_threads, plan->peak, plan->efficiency > 0 ? plan->efficiency : 1, out);
}
