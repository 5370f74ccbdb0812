// The state of one compilation, which passes read and extend: the request, the choices, the
// product.
//
// It is allocated in the frame of the public call, outside of kiln_ctx_enter, so that
// kiln_build_deinit frees resources outside of arenas on every exit, including out of memory.
#ifndef KILN_MODULE_BUILD_H
#define KILN_MODULE_BUILD_H

#include "module/link.h"
#include "model/model.h"
#include "runtime/module.h"
#include "runtime/pool.h"
#include "target/gpu/gpu.h"
#include "fuse/kernel.h"

// A constant in the layout that a kernel reads.
typedef struct kiln_weight {
  const kiln_tensor *tensor;         // CONST, with its data
  const kiln_buffer *buffer;         // the kernel's PARAM, for its layout; NULL: an output's
                                     // constant
  const kiln_pack *pack;             // NULL: row-major
  const kiln_tensor *view;           // the operand of |pack|: a strided view of |tensor|
  const kiln_winograd_weights *late; // a Winograd transform that computes |tensor| when weights are
                                     // packed; NULL: |tensor| has data
  uint64_t offset, bytes;            // in the weights
  bool is_default;                   // default value of an optional input: never borrowed
  int borrowed;                      // index of the extern; -1: stored in the weights
} kiln_weight;

// A tightened bound: a parallel loop that runs fewer iterations, or a grid of fewer blocks, when
// dimensions are smaller.
typedef struct kiln_tightened_bound {
  int kernel, nest;        // |nest| is an index among the kernel's nests
  int axis;                // of the grid
  const kiln_expr *extent; // over VARs of the dimensions
} kiln_tightened_bound;

// The request: a model, a machine and options.
typedef struct kiln_build_request {
  kiln_model *model;                 // NULL: a lone program is scheduled (kiln_pipeline_tile)
  const kiln_compile_options *asked; // the caller's options, valid while the model is loaded
  kiln_machine machine;
  uint64_t without;                // bit mask of the pipeline's rows to skip (pipeline.h)
  kiln_stop stop;                  // where compilation ends
  bool may_borrow;                 // constants may stay in the model's memory
  bool may_be_late;                // Winograd weights may be transformed when weights are packed
  bool may_stop;                   // |stop| applies: compilation ends there with KILN_NO_BUDGET
  bool wants_candidates;           // candidates will be inspected: no schedule cache lookup
  bool is_trial;                   // a trial compilation, whose module is measured and dropped
  bool is_connected;               // kernels are those of cost-driven fusion, without orchestration
  const char *given_orchestration; // text of the orchestration file given by the user; NULL:
                                   // none
  const struct kiln_model_ranges *ranges; // the ranges of which this is bucket |part|; NULL: shapes
                                          // are fixed
  int part;
  bool is_part;       // of a flow: its part |part|
  const char *prefix; // prefix of a static library's symbols; NULL: a module
  kiln_output *out;   // the module's file; NULL: in memory
} kiln_build_request;

// The choices so far: rewritten statements, kernels and launches, and explanations for reports.
typedef struct kiln_build_choices {
  kiln_program *prog; // a copy, changed by rules and the scheduler
  kiln_rewriting rewriting;
  kiln_asked with_rules;       // alternative rewritings that were applied, and where
  const char *alternatives;    // a report on the alternatives that were tried; NULL: none
  bool is_scheduled, is_whole; // |is_scheduled|: kernels are chosen; |is_whole|: by the user's
                               // script for a whole definition
  int fusion;                  // of the polyhedral scheduler, if requested; -1: by the rules
  bool promotes;               // the polyhedral scheduler copies tiles that are reused to local
                               // memory
  kiln_tile_options tile;
  struct kiln_schedule_lookup *past; // the schedule cache; NULL: no search was made
  kiln_connected connected;
  kiln_kernels kernels;
  struct kiln_orchestration *orchestration; // the chosen orchestration; NULL: none yet, or from the
                                            // cache
  struct kiln_orchestration *measured_best; // the fastest measured orchestration, which then is
                                            // given
  const kiln_edge_decisions *best_edges;    // its decisions on edges (inlined or stored)
  bool is_solved;                           // solved by predicted costs, without measuring
  struct kiln_searches
      *proposed; // templates' proposals, shared by alternative programs; NULL: none
  struct kiln_orchestrate_spent
      *spent; // orchestration budget spent, shared by alternative programs
  struct kiln_measurement_cache
      *measured;       // measured times of kernels (tune/measurement_cache.h); NULL: no lookups
  kiln_cleanup tuning; // closes |measured|; unused in trials, which share that of the outer build
  KILN_VEC(kiln_tightened_bound) tightened; // for nests of the plan
} kiln_build_choices;

// The product: code, plan, weights, module.
typedef struct kiln_build_product {
  const char **symbols;               // [kernels]
  int *first_function;                // index of the kernel's first nest in the plan's functions
  const struct kiln_cpu_nests *nests; // CPU: nests that get code of their own; NULL: all
  int n_shared_weights;               // the first of |weights|, from shape buckets that were built
                                      // before
  KILN_VEC(kiln_weight) weights;
  KILN_VEC(const void *) externs;
  kiln_plan plan;                 // in the arena
  kiln_gpu_launch **gpu_launches; // GPU: [kernels][nests]
  kiln_text device_loops;         // GPU: of all kernels, to be printed; empty unless asked for
  int *gpu_images;                // GPU: [kernels] index of the kernel's image in the plan; -1:
                                  // library kernel
  kiln_kernel_fn *functions;      // in-memory modules
  kiln_module *module;            // the result
  // Not in the arenas:
  int n_objects;
  kiln_object *objects; // [n_objects] by kernel
  kiln_jit *jit;
  char *code;   // GPU: [plan.code_bytes] concatenated objects
  char *memory; // in-memory modules: the weights
  size_t memory_bytes;
  kiln_pool *pool; // threads for packing large weights; NULL: none
  void *plan_blob;
  size_t plan_bytes;
} kiln_build_product;

enum { KILN_MAX_PASSES = 64 }; // width of a bit mask

typedef struct kiln_build {
  kiln_build_request request;
  kiln_build_choices choices;
  kiln_build_product product;
  // Rewrites made by each row of the pipeline:
  int counts[KILN_MAX_PASSES];
  int n_steps;                  // runs of optional rows and of rules that changed something; the
                                // unit of bisection
  const char *last, *last_text; // rule or row of the last step
  bool is_stopped;
} kiln_build;

void kiln_build_deinit(kiln_build *b);
// Serializes the plan.
kiln_status kiln_build_write_plan(kiln_ctx *cx, kiln_build *b);
// The kernels' object code, from the cache if it is there and the options allow it. (code.c)
kiln_status kiln_build_code(kiln_ctx *cx, kiln_build *b);
// The same for a GPU: the code becomes images of the plan. (gpu_code.c)
kiln_status kiln_build_gpu_code(kiln_ctx *cx, kiln_build *b);
// Prints the device loops of all kernels to product.device_loops.
kiln_status kiln_build_device_loops(kiln_ctx *cx, kiln_build *b);
kiln_plan_map kiln_gpu_plan_map(const kiln_gpu_map *m); // in the plan's form
// The machine to compile for, from the options of these names.
//
// errors: as kiln_target_machine
kiln_status kiln_build_find_machine(kiln_ctx *cx, const char *path, const char *target,
                                    const char *dtype, kiln_machine *out);
// Runs one GPU launch on device 0: args[i], of bytes[i], are copied to the device and back.
enum { KILN_GPU_TRY_ARGS = 256 };
kiln_status kiln_gpu_try_launch(kiln_module *m, uint32_t launch, const uint64_t *bytes,
                                char *const *args, kiln_diag *diag);
// Links the objects into this process and looks up the plan's functions; NULL for a GPU, which has
// none.
kiln_status kiln_build_jit(kiln_ctx *cx, kiln_build *b, kiln_kernel_fn **out_functions);

// The in-memory module of |b|, from its plan and functions; packs the weights. Moves the objects'
// code and the weights' memory from |b| to the module.
kiln_status kiln_build_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                              kiln_module **out);

// Passes of the pipeline (build.c).
kiln_status kiln_build_name_kernels(kiln_ctx *cx, kiln_build *b, int *io_n);
// Links the objects: into the module's file, or into memory.
kiln_status kiln_build_link(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_pack_weights(kiln_ctx *cx, kiln_build *b, int *io_n);

// Horizontal fusion, on GPUs: independent kernels become one launch. The second function gives the
// same grouping without changing the launches. (horizontal_fusion.c)
void kiln_build_fuse_horizontally(kiln_ctx *cx, kiln_build *b);
// gives: [launches] the index of each one's fused launch; in cx->perm
int *kiln_build_horizontally_fused(kiln_ctx *cx, const kiln_build *b);

// The layouts in which earlier shape buckets have packed each constant, by tensor of the program,
// as |panels| of kiln_tile_options. (layout.c)
const uint32_t *kiln_build_panels(kiln_ctx *cx, const kiln_build *b);
// Makes the plan from the kernels and launches. (layout.c)
kiln_status kiln_layout_make(kiln_ctx *cx, kiln_build *b);
// Prints the plan: the arena's size, and each launch with its arguments. (plan_text.c)
void kiln_plan_print(const kiln_plan *p, kiln_text *out);
// The number of functions of a kernel: one a nest, or one for nests that a GPU runs horizontally
// fused. (layout.c)
int kiln_build_functions(kiln_ctx *cx, const kiln_build *b, int kernel);
// The top-level nests of a kernel, and the extent of nest |j|'s parallel loop (1: none).
int kiln_kernel_nests(const kiln_loops *l);
int64_t kiln_nest_extent(const kiln_loops *l, int j);
// Whether the f32 constant is stored rounded to a half type, for a library kernel.
bool kiln_weight_is_rounded(const kiln_weight *w);
// Packs |w| to |to|, which is zeroed. (fill.c)
kiln_status kiln_weight_fill(kiln_ctx *cx, const kiln_weight *w, void *to);
// Packs the weights of |b| that are not borrowed, with the threads of the options: to |memory|,
// which is zeroed, or to |out| if |memory| is NULL. (fill.c)
//
// errors: KILN_BAD_INPUT: the file cannot be written
kiln_status kiln_weights_fill(kiln_ctx *cx, kiln_build *b, char *memory, const kiln_output *out);

#endif
