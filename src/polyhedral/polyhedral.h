// Polyhedral scheduling of definitions with several statements.
//
// cluster     which statements of a cluster stay in memory; attempts at primitives
// fusion      nests as isl statements, their dependences, and isl's scheduler: which nests share
//             outer loops (a cluster), in which order and with which shifts
// polyhedral  a cluster as a script: tile loops shared by the results that stay in memory
//             (`merge`), parallel if they are coincident; temporaries at the tile (`compute_at`);
//             point loops, of which the one with stride 1 is vectorized
// promote     boxes that a tile reuses, copied to a faster memory scope (`stage`)
// grid        on GPUs: a cluster's tiles as blocks and their points as threads (`bind`),
//             temporaries in shared memory or registers; few long sums in parts (`rfactor`)
//
// Schedules are not skewed: no primitive makes loops over sums of loop variables, and wavefronts
// are not needed, because recomputed halos make tiles independent (overlapped tiling).
//
// source: Vasilache et al., Tensor Comprehensions (arXiv 1802.04730), section 5; Verdoolaege et
//         al., Polyhedral parallel code generation for CUDA (TACO 2013); Halide's compute_at for
//         overlapped tiles.
#ifndef KILN_POLYHEDRAL_POLYHEDRAL_H
#define KILN_POLYHEDRAL_POLYHEDRAL_H

#include "schedule/index.h"
#include "template/lower.h"

typedef enum kiln_fusion {
  KILN_FUSION_MAX,      // whenever there is a common outer loop
  KILN_FUSION_MIN,      // never
  KILN_FUSION_PRESERVE3 // if it costs no coincident loop, or leaves three
} kiln_fusion;

typedef struct kiln_polyhedral_options {
  kiln_fusion fusion;
  int n_tiles;                  // sizes of the outer band's tiles, outermost first; 0: chosen
  int64_t tiles[KILN_MAX_RANK]; // 0: not tiled
  int64_t budget;               // isl operations for a program; 0: the default
  bool promote; // promote everything a tile reuses (promote.c); false: only where a packed layout
                // helps
} kiln_polyhedral_options;

// --- fusion.c ---

enum { KILN_MAX_NESTS = 96, KILN_MAX_BAND = 2 * KILN_MAX_RANK };

// A nest of the unscheduled program.
typedef struct kiln_poly_nest {
  int stmt;
  bool is_init;
  int n;                    // loops
  const kiln_symbol *loops; // outermost first
  const int64_t *extents;
  kiln_loop *top;
  int order[KILN_MAX_BAND];     // the loops in isl's order, the cluster's band first
  int64_t shift[KILN_MAX_BAND]; // along the band: iteration v runs at v + shift
} kiln_poly_nest;

// Nests that share outer loops, in program order.
typedef struct kiln_poly_cluster {
  int n;
  int members[KILN_MAX_NESTS];
  int n_band; // number of common loops; they are permutable
  bool coincident[KILN_MAX_BAND];
} kiln_poly_cluster;

typedef struct kiln_poly_plan {
  int n_nests;
  kiln_poly_nest *nests;
  int n_clusters; // in order of execution
  kiln_poly_cluster *clusters;
} kiln_poly_plan;

// Clusters the nests of |s|, unscheduled loops. Nests stay apart if isl exceeds the budget or would
// need skewing; |comments| gets a line for each such case.
kiln_status kiln_poly_plan_make(kiln_schedule *s, const kiln_polyhedral_options *options,
                                kiln_text *comments, kiln_poly_plan *out);

// --- promote.c ---

// The stride of the subscripts along |v|; INT64_MAX if it is not constant.
int64_t kiln_poly_stride(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index,
                         kiln_symbol v);
//
// A box is promoted if the tile loads more elements than it has, through one or several references.
// TC copies such boxes to a GPU's shared memory, and uncoalesced ones even without reuse. A CPU's
// caches keep reused data anyway, so a copy pays only by its layout: unless promotion of all boxes
// is requested, a box is promoted only if the vectorized loop is not along its rows and each
// element is loaded at least four times; the copy's rows are along that loop. As in TC, registers
// hold only boxes subscripted by unrolled loops; here these are short reductions, which are
// unrolled for it on request. Boxes may use half of the L2 cache, less the tile's temporaries;
// scalars in registers half of that.
//
// source: Tensor Comprehensions (arXiv 1802.04730), memory promotion, and its mapped_scop

typedef struct kiln_promotion {
  kiln_symbol buffer, tile; // the loop
  kiln_scope scope;
  int n_axes; // of the copy
  kiln_stage_axis axes[KILN_MAX_AXES];
  bool is_turned; // transposed against the buffer's order
  int64_t elems, bytes;
  double loads;       // executed in one tile
  kiln_vars unrolled; // loops of the tile in the subscripts, to be unrolled
} kiln_promotion;
typedef struct kiln_promotions {
  kiln_promotion *data;
  int n, cap;
} kiln_promotions;

// Boxes worth promoting to |scope|, LOCAL or REGISTER, at the loop |tile|; the caller checks
// whether they fit the cache. Boxes that fit in registers are not given as LOCAL.
kiln_promotions kiln_poly_promotions(kiln_lowering *w, kiln_symbol tile, bool asked,
                                     kiln_scope scope);
// Makes the copy; unrolls loops for registers.
kiln_status kiln_poly_promote(kiln_lowering *w, const kiln_promotion *p, kiln_symbol name);

// --- polyhedral.c ---
//
// Temporaries read by their cluster only are computed in its tiles, which recompute halos and run
// in parallel. Results that stay in memory share the tile loops if no shift is needed. With a shift
// they are merged for a single thread; for several threads their cluster is scheduled statement by
// statement.

static inline int64_t kiln_poly_extent(const kiln_loop *l) { // 1 if it is not constant
  return kiln_expr_int_or(l->extent, 1);
}

// Whether fusion by loops suits |p| better than templates: it has no contraction large enough for
// their register tiles, which fused nests lack.
bool kiln_polyhedral_suits(const kiln_program *p);

// Schedules all of |p|, with static shapes, as one kernel.
//
// gives: *out_script, comments and the lines that made *out_loops
kiln_status kiln_polyhedral_schedule(kiln_ctx *cx, const kiln_program *p, const kiln_machine *m,
                                     int n_threads, const kiln_polyhedral_options *options,
                                     kiln_loops **out_loops, const char **out_script);

#endif
