// Kernel orchestration: a binary linear program chooses the kernels that together compute the
// program at the least predicted cost (Korch, ASPLOS'24).
//
// The program's graph of prims is cut into parts where it is narrow (prims.h). Of each part the
// execution states and the candidates between them are listed (states.h, candidates.h), the
// candidates that may pay are priced by the tile graph's scheduler, each form once (costs.h), and a
// binary program chooses among them (program.h), beginning with the kernels that connecting has
// found (fuse/connect.h). Parts of equal form are solved once. A chosen kernel that no template
// lowers after all loses its price, and the part is solved again. Counts candidates, never time.
#ifndef KILN_ORCHESTRATE_ORCHESTRATE_H
#define KILN_ORCHESTRATE_ORCHESTRATE_H

#include "orchestrate/candidates.h"
#include "orchestrate/costs.h"
#include "orchestrate/program.h"

// The work spent so far on alternative programs, of which one is chosen: they share one budget.
typedef struct kiln_orchestrate_spent {
  double work, prices; // of the solver; of asking what kernels cost
} kiln_orchestrate_spent;

typedef struct kiln_orchestrate_options {
  kiln_candidate_limits limits; // of a part; all zero: those of kiln_orchestrate_limits
  int nodes;                    // of the solver's tree a part, at most; 0: as many as are usual
  double seconds;               // of the solver a part; 0: no limit
  // Of the solver for the whole program (solver.h); 0: what is usual. Once it is spent, parts that
  // a refusal would have solved again, and those behind, stay as connecting has made them, where
  // |bytes| asks for no more.
  double work;
  // Statements of the kernels whose prices templates are asked for; 0: what is usual. Once they are
  // spent, kernels of several prims other than connecting's are no candidates. A part may have a
  // multiple of its share of what is left.
  double prices;
  kiln_orchestrate_spent *spent; // what is spent is added there; NULL: nothing was before
  double bytes;                  // of results at once, at most (memory.h); 0: no limit
  double worth; // prices are estimates: other kernels than connecting's count for so much more
  // The time of the kernel of that key, in nanoseconds; 0: it was not measured. NULL: predictions
  // alone decide.
  double (*measured)(void *user, const char *key);
  void *user; // of |measured|
  const char
      *given; // an orchestration as text, that is taken as it is (file.c); NULL: it is solved
} kiln_orchestrate_options;
static const double KILN_USUAL_WORTH = 0.15;
kiln_candidate_limits kiln_orchestrate_limits(void);

// One of the chosen kernels, or what was not chosen instead.
typedef struct kiln_orchestrated_kernel {
  kiln_group group;
  double ns;                  // predicted
  bool is_measured, is_known; // neither: |ns| is what it must take at least, several times over
  const char *backend;        // whose library runs it (backend/backend.h); NULL: nobody's
  double more_ns;             // of one that was not chosen: what a run would take longer with it
  KILN_VEC(struct kiln_orchestrated_kernel) others; // that would store its result, too
} kiln_orchestrated_kernel;

typedef struct kiln_orchestration {
  bool is_given;                  // read, not solved: there are no candidates
  int n_prims, n_parts, n_solved; // parts; of which different ones
  int64_t n_states, n_differences, n_candidates;
  int64_t n_bounded; // sets that a bound ruled out before anybody was asked for their price
  int64_t n_impossible,
      n_dearer; // candidates that no template runs; that cost more than their prims apart
  int n_forms;  // that were searched
  int n_uncounted,
      n_capped;  // parts with more states than are counted; with more candidates than are priced
  int n_limited; // parts where the solver ended at a limit, with a gap
  int n_cycles, n_rounds;     // cut off; solutions, more than parts where a kernel was refused
  double work;                // of the solver, which a limit is on
  int n_repeated;             // prims that several kernels execute
  double first_ns, chosen_ns; // predicted of a run: as connecting had it, as it is
  double weight_ns, bound_ns; // the same with what an estimate is not trusted with, and at least
  double peak_bytes;        // of results that are there at once, workspaces of kernels not counted
  double search_s, solve_s; // that it took
  KILN_VEC(kiln_orchestrated_kernel) kernels; // in order of execution
} kiln_orchestration;

// Chooses the kernels of |p|.
//
// needs:  |io|, the parts that connecting has found, with |known| its searches
// gives:  *io, in order of execution; the decisions about edges say what they have become; *out in
//         cx->perm
// errors: KILN_UNSUPPORTED: no solver; KILN_BAD_INPUT: the given orchestration does not fit, with
//         its line
kiln_status kiln_orchestrate(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                             const kiln_tile_search_options *search, kiln_searches *known,
                             const kiln_orchestrate_options *options, kiln_parts *io,
                             kiln_edge_decisions *io_edges, kiln_orchestration *out);

// --- file.c: an orchestration as text, a line a kernel

// Prints the kernels: a line each, the numbers of its statements, `*` behind those that are stored
// besides the last; what they are called, and what they cost, as a comment.
void kiln_orchestration_print(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                              kiln_text *out);
// Reads such a text.
//
// gives:  *out, the kernels in order of execution, without prices
// errors: KILN_BAD_INPUT: a line is none, a result that is needed is not there; with the line
kiln_status kiln_orchestration_read(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                    const kiln_prims *prims, const kiln_machine *m,
                                    const char *text, kiln_orchestration *out);

// --- report.c: for people, and as JSON for programs

void kiln_orchestration_json(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                             kiln_text *out);
void kiln_orchestration_report(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                               kiln_text *out);

#endif
