// Kernel orchestration: a binary linear program chooses the kernels that together compute the
// program at the least predicted cost (Korch, ASPLOS'24).
//
// The program's graph of prims is cut into parts at narrow places (prims.h). For each part the
// execution states and the candidates between them are enumerated (states.h, candidates.h);
// candidates that may pay are priced by the tile graph's scheduler, once for each canonical form
// (costs.h); and a binary program chooses among them (program.h), starting from the kernels of
// cost-driven fusion (fuse/connect.h). Parts of equal form are solved once. If no template can
// lower a chosen kernel at its price, the price becomes infinite and the part is solved again.
// Limits count candidates and work, never time, so results are reproducible.
#ifndef KILN_ORCHESTRATE_ORCHESTRATE_H
#define KILN_ORCHESTRATE_ORCHESTRATE_H

#include "orchestrate/candidates.h"
#include "orchestrate/costs.h"
#include "orchestrate/program.h"

// Work spent so far on alternative programs, one of which will be chosen: they share one budget.
typedef struct kiln_orchestrate_spent {
  double work, prices; // of the solver; of pricing
} kiln_orchestrate_spent;

typedef struct kiln_orchestrate_options {
  kiln_candidate_limits limits; // for a part; all zero: those of kiln_orchestrate_limits
  int nodes;                    // solver nodes a part; 0: the default
  double seconds;               // solver time a part; 0: no limit
  // Solver work for the whole program (solver.h); 0: the default. When it is spent, the remaining
  // parts keep the kernels of cost-driven fusion, and refused kernels are not replaced, unless
  // |bytes| limits memory.
  double work;
  // Pricing work: statements of kernels that templates are asked to price; 0: the default. When it
  // is spent, only single prims and the kernels of cost-driven fusion are candidates. A part may
  // use a multiple of its share of the remaining work.
  double prices;
  kiln_orchestrate_spent *spent; // work spent is added here; NULL: a new budget
  double bytes;                  // peak memory of results (memory.h); 0: no limit
  double worth; // relative penalty for kernels other than cost-driven fusion's: predictions are
                // uncertain
  // The measured time of the kernel with that key, in nanoseconds; 0: not measured. NULL:
  // predictions only.
  double (*measured)(void *user, const char *key);
  void *user;        // of |measured|
  const char *given; // an orchestration as text, used unchanged (file.c); NULL: solve
} kiln_orchestrate_options;
static const double KILN_USUAL_WORTH = 0.15;
kiln_candidate_limits kiln_orchestrate_limits(void);

// A chosen kernel, or an alternative to one.
typedef struct kiln_orchestrated_kernel {
  kiln_group group;
  double ns;                  // predicted
  bool is_measured, is_known; // neither: |ns| is a multiple of its lower bound
  const char *backend;        // the library's backend (backend/backend.h); NULL: a kernel of Kiln's
                              // own
  double more_ns;             // of an alternative: additional time of a run with it
  KILN_VEC(struct kiln_orchestrated_kernel) others; // alternatives that store the same result
} kiln_orchestrated_kernel;

typedef struct kiln_orchestration {
  bool is_given;                  // read from text: there are no candidates
  int n_prims, n_parts, n_solved; // parts, and those with distinct forms
  int64_t n_states, n_differences, n_candidates;
  int64_t n_bounded; // sets ruled out by a lower bound, without pricing
  int64_t n_impossible,
      n_dearer; // candidates without a template; candidates that cost more than their prims apart
  int n_forms;  // distinct canonical forms searched
  int n_uncounted,
      n_capped;  // parts with more states than the limit; with more candidates than were priced
  int n_limited; // parts in which the solver hit a limit, leaving a gap
  int n_cycles, n_rounds;     // cycles cut off; solutions, one a part plus one for each refusal
  double work;                // solver work, which is limited
  int n_repeated;             // prims executed by several kernels
  double first_ns, chosen_ns; // predicted time of a run: with cost-driven fusion, and as chosen
  double weight_ns, bound_ns; // objective, with the penalty for uncertain predictions, and its
                              // lower bound
  double peak_bytes;          // peak memory of results, without workspaces of kernels
  double search_s, solve_s;   // time spent
  KILN_VEC(kiln_orchestrated_kernel) kernels; // in order of execution
} kiln_orchestration;

// Chooses the kernels of |p|.
//
// needs:  |io|, the kernels of cost-driven fusion, and |known|, the searches it made
// gives:  *io, in order of execution; decisions on edges are updated; *out in cx->perm
// errors: KILN_UNSUPPORTED: no solver; KILN_BAD_INPUT: the given orchestration does not fit, at
//         its line
kiln_status kiln_orchestrate(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                             const kiln_tile_search_options *search, kiln_searches *known,
                             const kiln_orchestrate_options *options, kiln_fused_groups *io,
                             kiln_edge_decisions *io_edges, kiln_orchestration *out);

// --- file.c: orchestrations as text, one line a kernel ---

// Prints a line for each kernel: the numbers of its statements, `*` after those stored in addition
// to the last; its name and cost as a comment.
void kiln_orchestration_print(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                              kiln_text *out);
// Parses such a text.
//
// gives:  *out, the kernels in order of execution, without prices
// errors: KILN_BAD_INPUT with the line: a malformed line, or an operand that no earlier kernel
//         stores
kiln_status kiln_orchestration_read(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                    const kiln_prims *prims, const kiln_machine *m,
                                    const char *text, kiln_orchestration *out);

// --- report.c: text for people, and JSON for programs ---

void kiln_orchestration_json(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                             kiln_text *out);
void kiln_orchestration_report(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                               kiln_text *out);

#endif
