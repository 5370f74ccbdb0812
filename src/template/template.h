// Kernel templates: each is a row {match, propose, lower} of one way to run kernels.
//
//   statements --outline--> program --match--> form --propose--> candidates --lower--> script
//
// A template matches a kernel by bringing a copy of its program into its canonical form: on GPUs a
// convolution becomes T(m, n) +=! A(m, k)*B(k, n), say. Templates that share |match| share the
// form. Each proposes tilings of the form with their cost, the tile graph's (tile/graph.h), and the
// cheapest candidate of all is lowered to a script of checked primitives. A candidate carries its
// form. Where several forms match, the table's first is taken (search.c).
#ifndef KILN_TEMPLATE_TEMPLATE_H
#define KILN_TEMPLATE_TEMPLATE_H

#include "schedule/schedule.h"
#include "tile/facts.h"
#include "tile/graph.h"

enum { KILN_MAX_MEMBERS = 40 }; // statements of a kernel

// Kinds of kernels, as the rules of grouping make them.
typedef enum kiln_group_kind {
  KILN_GROUP_MAP,         // one map
  KILN_GROUP_CONTRACTION, // a contraction and the map that reads it element by element
  KILN_GROUP_ROWS, // reductions and maps that share outer dims, or a window reduction and its map
  KILN_GROUP_SCATTER,   // a statement with init or data-dependent index
  KILN_GROUP_WINOGRAD,  // a convolution as its transforms and products, and its epilogue
  KILN_GROUP_ATTENTION, // attention: two contractions and a softmax between them, and its epilogue
  KILN_GROUP_FUSED_LAYERS // fused-layer tiling: a contraction behind other statements
} kiln_group_kind;

// Tile extents, 0 where a template has no use for one or takes all.
typedef struct kiln_tiling {
  int64_t block[KILN_MAX_RANK];   // by space dim of the last statement: of a task, in the L2
  int64_t tile[KILN_MAX_RANK];    // the same: in registers
  int64_t step[KILN_MAX_MEMBERS]; // by statement: of its reduction, computed at a time; 0: all
  int64_t vectors;                // of a register tile, along the contiguous dim
  int variant;                    // choices of one template: an order of loops, packing
  const char *form;               // the same as text; NULL: none
} kiln_tiling;

// A kernel of a library, which is called in place of loops (backend/backend.h).
typedef struct kiln_library_candidate {
  const char *backend, *call; // its name, and the call that computes the kernel
  const char *version;        // of the library that was there
} kiln_library_candidate;

// Brings |io|, a kernel's program, into the form that a template runs.
//
// gives: whether it is one for |m|; if not, |io| may be half changed
// keeps: the parameters and their order
typedef bool kiln_match(kiln_ctx *cx, const kiln_machine *m, kiln_program *io);

// A kernel's program as templates run it.
typedef struct kiln_form {
  kiln_match *match; // that made it; NULL: it is as it was outlined
  const kiln_program *prog;
  kiln_facts facts; // of its constants
} kiln_form;

struct kiln_template;
typedef struct kiln_tile_candidate {
  const struct kiln_template *from; // that proposed it
  const kiln_form *form;            // the program that it runs
  kiln_tiling tiling;
  kiln_tile_cost cost;
  double lowered_ns; // the price of its loops (kiln_tile_price_lowered); 0: nobody has asked for it
  bool
      wants_panels; // a constant is packed as no other program of the module has it (tile/panels.h)
  const char *refused; // why a primitive refused it; NULL: it was lowered, or not tried
  kiln_loops *loops;   // of a lowered one, with its script
  const char *script;
  const kiln_library_candidate
      *by_library; // then |loops| have PARAMs alone; NULL: the kernel is Kiln's own
} kiln_tile_candidate;
typedef struct kiln_tile_candidates {
  kiln_tile_candidate *data;
  int n, cap;
} kiln_tile_candidates;

// A lowering in progress: the schedule it builds, and the kernel's shape.
typedef struct kiln_lowering {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts; // of its constants; NULL: nothing is known of them
  const kiln_machine *m;
  int n_threads;
  kiln_schedule s;
  const kiln_stmt *root; // the last statement; it writes y
  int lanes;             // f32 elements of a vector register
  bool strict_masks;     // masked scores are computed (kiln_tile_search_options)
  kiln_arena *proposed;  // where candidates lie while they are proposed
} kiln_lowering;

typedef struct kiln_template {
  const char *name;
  const char *was;   // an older name, which cached schedules may have; NULL: there is none
  bool has_grids;    // for targets that run grids of blocks; else for those that do not
  unsigned kinds;    // of groups whose kernels it may run: bits 1u << KILN_GROUP_MAP, ..; 0: all
  kiln_match *match; // NULL: it runs kernels as they are outlined
  // Pushes candidates for |w|'s program, with their costs, in the order of preference among equals;
  // none if it is not of this form. The caller sets |from| and |form|. Lives in cx->perm.
  kiln_status (*propose)(kiln_lowering *w, kiln_tile_candidates *out);
  // Builds the schedule; refused (KILN_BAD_INPUT) where a primitive is.
  kiln_status (*lower)(kiln_lowering *w, const kiln_tiling *t);
  bool by_loops; // candidates are priced by their loops, which are more exact than its proposal
  bool unites;   // on grids: it fuses statements that other templates run as several kernels
  // Slowdown of a product in a block with other statements, relative to this template running it
  // alone; 0: KILN_INNER_LOSS.
  double inner_loss;
} kiln_template;

// The table, in the order of preference among equals, which ends with NULL (templates.def).
extern const kiln_template *const kiln_templates[];
#define KILN_TEMPLATE(name) extern const kiln_template kiln_template_##name;
#include "template/templates.def"
#undef KILN_TEMPLATE

// The template of |m|'s kind with that name, present or older; NULL: there is none.
const kiln_template *kiln_template_find(const kiln_machine *m, const char *name);
// Whether |t| may run kernels of |kind| on |m|.
bool kiln_template_takes(const kiln_template *t, const kiln_machine *m, kiln_group_kind kind);
// A copy of |outlined| in the form of |t|, where that has none |outlined| itself; NULL: it does not
// match. In cx->perm.
const kiln_form *kiln_template_match(kiln_ctx *cx, const kiln_template *t, const kiln_machine *m,
                                     const kiln_form *outlined);

#endif
