// The driver's own passes, and the phases that entry points run.
#ifndef KILN_DRIVER_STAGES_H
#define KILN_DRIVER_STAGES_H

#include "module/compiler.h"

// The compiler interface attached to loaded models. (compile.c)
extern const kiln_compiler kiln_compiler_here;

// kiln_compiler.kernels and run. (compile.c)
kiln_status kiln_build_kernels(kiln_ctx *cx, kiln_build *b);
enum { KILN_COMPILE_STEPS = 4 }; // of progress: schedule, code, plan, module
kiln_status kiln_build_run(kiln_ctx *cx, kiln_build *b);
// kiln_compiler.load. (open.c)
kiln_status kiln_model_load_nth(const char *path, const kiln_compile_options *options, int nth,
                                kiln_diag *diag, kiln_model **out_model);

// Whether the pass of that name is skipped; and skips it. (pipeline_run.c)
bool kiln_build_omits(const kiln_build *b, const char *pass);
void kiln_build_omit(kiln_build *b, const char *pass);
// The number of changes it made.
int kiln_build_count(const kiln_build *b, const char *pass);

// Implements kiln_tile_options.orchestrate, |build| being a kiln_build: solves, or uses a given
// orchestration. (orchestrate.c)
//
// errors: as kiln_orchestrate; KILN_BAD_INPUT: the file cannot be read
kiln_status kiln_build_orchestrate(kiln_ctx *cx, void *build, const kiln_program *p,
                                   const kiln_facts *facts, const kiln_tile_search_options *search,
                                   kiln_searches *known, kiln_fused_groups *io,
                                   kiln_edge_decisions *io_edges);
// The options of the solver as text, for the key of the schedule cache.
const char *kiln_build_asks_to_solve(kiln_ctx *cx, const kiln_build *b);
// Marks the chosen kernels that libraries run.
void kiln_build_mark_libraries(kiln_build *b);
kiln_status kiln_build_find_orchestration(kiln_ctx *cx, kiln_build *b);

// Passes: each as kiln_pass.run.

// Tries the alternatives that apply to the model: adds to with_rules those that lower the predicted
// time, at the places where they do. (alternatives.c)
kiln_status kiln_build_choose_alternatives(kiln_ctx *cx, kiln_build *b, int *io_n);
// Reads the user's scheduler, orchestration and script of a whole definition. (script.c)
//
// errors: KILN_BAD_INPUT: an unknown scheduler, an unreadable file, or a refused line
kiln_status kiln_build_take_given(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_rewrite(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_schedule_polyhedral(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_set_search(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_keep_search(kiln_ctx *cx, kiln_build *b, int *io_n);
// errors: KILN_BAD_INPUT: a section without a kernel, or a refused line
kiln_status kiln_build_replace_kernels(kiln_ctx *cx, kiln_build *b, int *io_n);

#endif
