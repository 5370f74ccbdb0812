// Kernels: the scheduler's result and the targets' input. Each is a fused group with its loop
// program.
#ifndef KILN_FUSE_KERNEL_H
#define KILN_FUSE_KERNEL_H

#include "fuse/connect.h"
#include "transform/winograd.h"

// One loop program; several launches of the plan may share it (repeated layers).
typedef struct kiln_kernel {
  int id;
  kiln_symbol name; // "conv_relu_7": a C identifier, unique in the module
  // text of the canonical program, equal for equal kernels; NULL: written by the user
  const char *key;
  kiln_group_kind kind;
  const kiln_template *from;    // that runs it; NULL: the user's script does
  const kiln_program *outlined; // the group's statements over views of the tensors
  const kiln_program *prog;     // |outlined| in the template's canonical form; same parameters
  kiln_facts facts;             // of |prog|'s constants
  kiln_loops *loops;
  const char *script;                       // the schedule that made |loops| from |prog|
  kiln_tile_candidates candidates;          // cheapest first; the best one's schedule is |script|
  const kiln_library_candidate *by_library; // chosen in place of |loops|; NULL: none
  // the horizontally fused kernels (module/horizontal_fusion.c), 0: it is a single kernel
  int n_members;
  const struct kiln_kernel **members; // |prog| then only lists their tensors
  double flops, bytes;                // of one launch: arithmetic, and compulsory memory traffic
} kiln_kernel;

typedef struct kiln_launch {
  int kernel;         // id
  kiln_symbol origin; // the graph nodes computed here, "conv1+relu1"
  int n_args;         // one per PARAM of the kernel's loops, in id order; WORKSPACEs are not listed
  kiln_argument *args;
  int n_stmts;
  int *stmts;      // statement ids of the main program computed here, the last writes the result
  uint64_t stored; // bit k: the tensor of stmts[k] is a result, too
} kiln_launch;

// Paddings that were not fused, and were materialized in place (kiln_tile_materialize).
typedef struct kiln_materialized {
  int n, *stmts;
} kiln_materialized;

typedef struct kiln_kernels {
  KILN_VEC(kiln_kernel *) kernels;
  KILN_VEC(kiln_launch) launches; // in order of execution
  kiln_edge_decisions edges;      // by consumer, where grouping had a choice
  // by round of connecting; each round but the last ends with one
  KILN_VEC(kiln_materialized) materialized;
  kiln_facts facts;        // of the program, after all passes
  bool is_cached;          // scheduled from the cache
  kiln_winograd_list late; // weights without data, with |late_weights|
} kiln_kernels;
int kiln_kernel_launches(const kiln_kernels *k, int kernel); // of |kernel|

// The result of cost-driven fusion: the fused groups, and whether each edge between statements was
// fused, or why not.
typedef struct kiln_connected {
  kiln_searches *known;
  kiln_fused_groups fusions;
  kiln_edge_decisions edges;
} kiln_connected;

typedef struct kiln_tile_options {
  kiln_tile_search_options search;
  // the most that weights may grow by packing, as a factor of their size; 0: no limit
  double weight_growth;
  // By tensor, the panels in which other programs of the module read constants (tile/panels.h);
  // NULL: none.
  const uint32_t *panels;
  // transformed weights get no data: who lays out the weights makes them (transform/winograd.h)
  bool late_weights;
  // Kernel orchestration: replaces the fused groups by others, such that exactly one stores each
  // tensor. NULL: none.
  kiln_status (*orchestrate)(kiln_ctx *cx, void *orchestrator, const kiln_program *p,
                             const kiln_facts *facts, const kiln_tile_search_options *search,
                             kiln_searches *known, kiln_fused_groups *io,
                             kiln_edge_decisions *io_edges);
  void *orchestrator;
  // of other programs of the same model (fuse/searches.h); NULL: there are none
  kiln_searches *proposed;
  // Looks up the cached schedule (fuse/cached_schedule.h) of the program whose key is |key|, for
  // this machine and these options; gives NULL on a miss. Kernels from the cache have no
  // candidates, and edges are not recorded. NULL: no cache.
  const char *(*look_up)(void *user, const char *key);
  void *user;
} kiln_tile_options;

// Schedules |p| from the cache. Paddings are written in place as the cached schedule lists them.
//
// gives: false on a miss, or if the cached schedule does not replay; paddings of |p| may still be
//        in place then
bool kiln_kernels_look_up(kiln_ctx *cx, kiln_program *p, const kiln_tile_options *options,
                          kiln_kernels *out);
// Makes fusion groups of the statements of |p|, and merges them along edges. Starts again after a
// round that put paddings in place, because their producers and consumers then access other memory.
//
// gives: *io in cx->perm; statements of |p| renumbered where paddings were put in place, which
//        out->materialized lists
kiln_status kiln_kernels_connect(kiln_ctx *cx, kiln_program *p, const kiln_tile_options *options,
                                 kiln_connected *io, kiln_kernels *out);
// Lowers the best candidate of each distinct fused group to a kernel, and makes a launch for each
// group: equal layers share a kernel.
//
// errors: KILN_INTERNAL: no candidate of a kernel is accepted
kiln_status kiln_kernels_lower(kiln_ctx *cx, const kiln_program *p,
                               const kiln_tile_options *options, const kiln_connected *connected,
                               kiln_kernels *out);
// Gives |k| the loops and the script of |taken|, a lowered candidate. Candidates refused before it
// are listed as comments in the script.
void kiln_kernel_take(kiln_ctx *cx, kiln_kernel *k, const kiln_tile_candidate *taken);
// Gives |k| the loops that |script| makes of its program, with |m|'s instructions, and the script
// as it is printed.
//
// errors: KILN_BAD_INPUT: a line is refused, with its number
kiln_status kiln_kernel_replay(kiln_ctx *cx, const kiln_machine *m, const char *script,
                               kiln_kernel *k);

#endif
