// Polyhedral scheduling of definitions with several statements.
//
// fusion      the naive nests as statements of isl, their dependences, and isl's scheduler: which
//             nests share outer loops (a cluster), in which order and with which shifts
// polyhedral  a cluster as a script: tile loops, shared by what stays in memory (`merge`), run in
//             parallel where they are coincident; temporaries at the tile (`compute_at`); point
//             loops, the one with stride 1 vectorized
// promote     boxes that a tile reads again and again, copied to a faster scope (`stage`)
//
// isl does not skew: no primitive makes a loop over sums of others, and the wavefront of a cluster
// whose temporaries move into its tiles is not needed, as halos computed again make the tiles
// independent.
//
// source: Vasilache et al., Tensor Comprehensions (arXiv 1802.04730), section 5; Verdoolaege et
//         al.,
// Polyhedral parallel code generation for CUDA (TACO 2013); Halide's compute_at for the overlapped
// tiles.
#ifndef KILN_POLYHEDRAL_POLYHEDRAL_H
#define KILN_POLYHEDRAL_POLYHEDRAL_H

#include "schedule/index.h"
#include "template/lower.h"

typedef enum kiln_fusion {
  KILN_FUSION_MAX,      // whatever has an outer loop in common
  KILN_FUSION_MIN,      // nothing
  KILN_FUSION_PRESERVE3 // where that costs no coincident loop, or leaves three
} kiln_fusion;

typedef struct kiln_polyhedral_options {
  kiln_fusion fusion;
  int n_tiles;                  // sizes of the outer band's tiles, outermost first; 0: chosen
  int64_t tiles[KILN_MAX_RANK]; // 0: not tiled
  int64_t budget;               // isl's operations for one program; 0: as many as usual
  bool promote; // whatever a tile reads again (promote.c); false: what packing helps
} kiln_polyhedral_options;

// --- fusion.c ---

enum { KILN_MAX_NESTS = 96, KILN_MAX_BAND = 2 * KILN_MAX_RANK };

// One nest of the naive loops.
typedef struct kiln_poly_nest {
  int stmt;
  bool is_init;
  int n;                    // loops
  const kiln_symbol *loops; // outermost first
  const int64_t *extents;
  kiln_loop *top;
  int order[KILN_MAX_BAND];     // the loops as isl orders them, those of the cluster's band first
  int64_t shift[KILN_MAX_BAND]; // along the band: the iteration v runs at v + shift
} kiln_poly_nest;

// Nests that share outer loops, in the order of the program.
typedef struct kiln_poly_cluster {
  int n;
  int members[KILN_MAX_NESTS];
  int n_band; // loops in common; each may be outermost
  bool coincident[KILN_MAX_BAND];
} kiln_poly_cluster;

typedef struct kiln_poly_plan {
  int n_nests;
  kiln_poly_nest *nests;
  int n_clusters; // in order of execution
  kiln_poly_cluster *clusters;
} kiln_poly_plan;

// Decides which nests of |s|, naive loops, share loops. What isl finds too hard within the budget,
// or only with skewed loops, stays apart; |comments| says so, a line each.
kiln_status kiln_poly_plan_make(kiln_schedule *s, const kiln_polyhedral_options *options,
                                kiln_text *comments, kiln_poly_plan *out);

// --- promote.c ---

// The distance in memory of neighbours along |v|; INT64_MAX when it is not constant.
int64_t kiln_poly_stride(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index,
                         kiln_symbol v);
//
// A box is promoted when the tile loads more elements than the box holds, through one reference or
// several. TC copies such a box to a GPU's shared memory, and one without reuse that is not read
// coalesced, too. A CPU's caches keep what is read again by themselves, so that a copy pays by its
// layout alone: unless all are asked for, a box is promoted only when the loop that becomes a
// vector moves across its rows, and each element is loaded four times or more; the copy's rows lie
// along that loop. As in TC, registers take what is subscripted by unrolled loops only: here those
// of short sums, which are unrolled for it, when asked for. Boxes have half of L2, less the tile's
// temporaries; scalars in registers half of these.
//
// source: Tensor Comprehensions (arXiv 1802.04730), memory promotion, and its mapped_scop

typedef struct kiln_promotion {
  kiln_symbol buffer, tile; // the loop
  kiln_scope scope;
  int n_axes; // of the copy
  kiln_stage_axis axes[KILN_MAX_AXES];
  bool is_turned; // not in the buffer's order
  int64_t elems, bytes;
  double loads;       // of one tile
  kiln_vars unrolled; // loops of the tile in the subscripts
} kiln_promotion;
typedef struct kiln_promotions {
  kiln_promotion *data;
  int n, cap;
} kiln_promotions;

// What is worth a copy in |scope|, LOCAL or REGISTER, at the loop |tile|; whether it fits a cache
// is the caller's matter. What registers can hold is not offered as LOCAL.
kiln_promotions kiln_poly_promotions(kiln_lowering *w, kiln_symbol tile, bool asked,
                                     kiln_scope scope);
// Makes the copy, and unrolls what registers need.
kiln_status kiln_poly_promote(kiln_lowering *w, const kiln_promotion *p, kiln_symbol name);

// --- polyhedral.c ---
//
// What only its cluster reads moves into the tiles, which compute halos again and run in parallel.
// What stays in memory shares the tile loops where no shift is needed; with a shift it is merged
// for one thread, and on several its cluster is made statement by statement.

static inline int64_t kiln_poly_extent(const kiln_loop *l) { // 1 when it is not constant
  return kiln_expr_int_or(l->extent, 1);
}

// Whether |p| is better fused than left to the rules: it has no contraction large enough for their
// register tiles, which fused nests do not have.
bool kiln_polyhedral_suits(const kiln_program *p);

// Schedules the whole of |p|, static shapes, as one kernel.
//
// gives: *out_script, comments and the lines that made *out_loops
kiln_status kiln_polyhedral_schedule(kiln_ctx *cx, const kiln_program *p, const kiln_machine *m,
                                     int n_threads, const kiln_polyhedral_options *options,
                                     kiln_loops **out_loops, const char **out_script);

#endif
