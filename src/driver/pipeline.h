// The pass pipeline: all passes of a compilation as one table, in order (pipeline.c).
//
// A row has a pass's purpose, phase, targets and function. The pass manager (pipeline_run.c) alone
// decides whether a row runs. After each pass it verifies the program, takes the time
// (--time-passes) and prints the program (--dump-after); it skips optional passes (--without), or
// all of them from some step on (--stop-after).
#ifndef KILN_DRIVER_PIPELINE_H
#define KILN_DRIVER_PIPELINE_H

#include "driver/stages.h"

// Phases of the table. Callers run whole phases: kiln_model_load the first, kiln_build_kernels
// those from KILN_PHASE_CHOOSE to KILN_PHASE_KERNELS, compilation of a module all of them.
typedef enum kiln_phase {
  KILN_PHASE_LOAD,     // file -> graph -> statements
  KILN_PHASE_CHOOSE,   // options and alternatives determine the following phases
  KILN_PHASE_REWRITE,  // statements -> statements, independent of memory levels
  KILN_PHASE_TILE,     // statements -> statements, by the machine's memory levels
  KILN_PHASE_CONNECT,  // statements -> fused groups -> kernels
  KILN_PHASE_KERNELS,  // kernels -> kernels: the user's schedules, measured candidates
  KILN_PHASE_LAUNCHES, // launches -> launches
  KILN_PHASE_DEVICE,   // loops -> device loops
  KILN_PHASE_CODE,     // loops -> machine code or a GPU's source
  KILN_PHASE_PLAN,     // buffers, offsets, weights
  KILN_PHASE_MODULE    // a module in memory or a file
} kiln_phase;

typedef struct kiln_pass {
  const char *name; // in options
  kiln_phase phase;
  // gives: *io_n increased by the number of changes, if they can be counted
  kiln_status (*run)(kiln_ctx *cx, kiln_build *b, int *io_n);
  bool (*when)(const kiln_build *b); // whether it applies; NULL: always
  bool is_optional;                  // without it modules are correct, but slower
  bool renumbers;                    // statements get other ids
  const char *text;                  // a description
  const char *was;                   // its earlier name, which options accept as well; NULL: none
} kiln_pass;

extern const kiln_pass kiln_passes[]; // ended by a row without a name

// Runs the rows of the phases |first| to |last|. Once there are kernels (b->is_scheduled), rows up
// to KILN_PHASE_CONNECT are skipped.
//
// errors: KILN_INTERNAL: a pass left an invalid program; and the passes' own
kiln_status kiln_pipeline_run(kiln_ctx *cx, kiln_build *b, kiln_phase first, kiln_phase last);

// Schedules |p| for |m|: runs KILN_PHASE_TILE and KILN_PHASE_CONNECT without the passes in
// |without|, a comma-separated list; NULL: with all. Changes |p|.
kiln_status kiln_pipeline_tile(kiln_ctx *cx, kiln_program *p, const kiln_machine *m,
                               const kiln_tile_options *options, const char *without,
                               kiln_kernels *out);

// Adds the rules and optional passes in |list|, separated by ',', to the masks.
//
// errors: KILN_BAD_INPUT: an unknown name
kiln_status kiln_passes_find(kiln_ctx *cx, const kiln_rule *rules, const char *list,
                             uint32_t *io_rules, uint64_t *io_passes);
// errors: KILN_BAD_INPUT: |list| has a name without a pass
kiln_status kiln_passes_check(kiln_ctx *cx, const char *list);
// Parses the value of --stop-after: a number of steps, or the last optional pass to run.
//
// errors: KILN_BAD_INPUT: neither
kiln_status kiln_stop_parse(kiln_ctx *cx, const char *text, kiln_stop *out);
// Implements kiln_compiler.counts.
const kiln_pass_count *kiln_pipeline_counts(kiln_ctx *cx, const kiln_build *b);

#endif
