// A cluster of nests being scheduled: which statements stay in memory, which loops they share, and
// attempts at primitives. Private to this folder.
#ifndef KILN_POLYHEDRAL_CLUSTER_H
#define KILN_POLYHEDRAL_CLUSTER_H

#include "polyhedral/polyhedral.h"

typedef struct kiln_poly_maker {
  kiln_lowering w;
  const kiln_polyhedral_options *o;
  kiln_text *comments;
  kiln_poly_plan plan;
  kiln_users users;
  int n_fused; // counter for names of fused loops
  int n_tiles;
  kiln_symbol tiles[KILN_MAX_NESTS]; // innermost tile loops of the tiled clusters
} kiln_poly_maker;

// A cluster being scheduled.
typedef struct kiln_poly_job {
  const kiln_poly_cluster *c;
  int n_kept, n_temps;
  const kiln_poly_nest *kept[KILN_MAX_NESTS];
  int temps[KILN_MAX_NESTS]; // temporaries, in the order of their statements
  int band[KILN_MAX_BAND];   // the common loops, outermost first
  bool free[KILN_MAX_BAND];  // parallel loops
  int n_tile_loops;
  kiln_symbol tile_loops[KILN_MAX_BAND]; // of the first nest that stays in memory
  int64_t trips[KILN_MAX_BAND];
  bool coincident[KILN_MAX_BAND];
} kiln_poly_job;

static inline int kiln_poly_nest_loop(const kiln_poly_job *j, const kiln_poly_nest *n, int b) {
  return n->order[b < j->c->n_band ? j->band[b] : b];
}
static inline kiln_symbol kiln_poly_band_loop(const kiln_poly_job *j, const kiln_poly_nest *n,
                                              int b) {
  return n->loops[kiln_poly_nest_loop(j, n, b)];
}
static inline int64_t kiln_poly_band_extent(const kiln_poly_job *j, const kiln_poly_nest *n,
                                            int b) {
  return n->extents[kiln_poly_nest_loop(j, n, b)];
}

// The cluster's statements that stay in memory and those inside, and its band in the order of
// memory.
kiln_poly_job kiln_poly_job_of(const kiln_poly_maker *k, const kiln_poly_cluster *c);
bool kiln_poly_has_stmt(const kiln_poly_maker *k, const kiln_poly_cluster *c, int stmt);
// Whether the tensor is a temporary with readers in the cluster only.
bool kiln_poly_is_inside(const kiln_poly_maker *k, const kiln_poly_cluster *c,
                         const kiln_tensor *t);
bool kiln_poly_is_shifted(const kiln_poly_job *j);
// Adds "# T U: WHAT WHY" to the script.
void kiln_poly_comment(kiln_poly_maker *k, const kiln_poly_job *j, const char *what,
                       const char *why);

typedef struct kiln_poly_snapshot {
  kiln_loops loops;
  int script, n_fused;
} kiln_poly_snapshot;
kiln_poly_snapshot kiln_poly_take(const kiln_poly_maker *k);
void kiln_poly_restore(kiln_poly_maker *k, const kiln_poly_snapshot *at);
// Runs |step|; if a primitive is refused, undoes all of it and gives the reason, which is allocated
// in the context.
kiln_status kiln_poly_attempt(kiln_poly_maker *k,
                              kiln_status (*step)(kiln_poly_maker *k, void *argument),
                              void *argument, const char **out_why);

// --- grid.c ---

// Maps the cluster to a grid of blocks and threads.
//
// gives: *out_done, whether the primitives let it
kiln_status kiln_poly_map_cluster(kiln_poly_maker *k, kiln_poly_job *j, bool *out_done);
// Maps the nests of one statement each for itself; what carries dependences stays on one thread.
kiln_status kiln_poly_map_nests(kiln_poly_maker *k, const kiln_poly_job *j);

#endif
