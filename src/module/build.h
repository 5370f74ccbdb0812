// The state of one compilation, which passes read and extend: a request, choices and a product.
//
// It is allocated in the frame of the public call, outside of kiln_ctx_enter, so that
// kiln_build_deinit frees its resources that are not in arenas on every exit, out of memory, too.
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
  const kiln_buffer *buffer;         // the PARAM, for its layout; NULL: of an output
  const kiln_pack *pack;             // NULL: row-major as it is
  const kiln_tensor *view;           // what |pack| maps to: a strided view of |tensor|
  const kiln_winograd_weights *late; // how to make |tensor|, which has no data; NULL: it has
  uint64_t offset, bytes;            // in the weights
  bool is_default;                   // of an input that need not be given: never borrowed
  int borrowed;                      // number of the extern; -1: it lies in the weights
} kiln_weight;

// A tightened bound: a parallel loop that runs fewer iterations when dimensions are smaller.
typedef struct kiln_tightened_bound {
  int kernel, nest;        // the latter among the kernel's
  const kiln_expr *extent; // over VARs of the dimensions
} kiln_tightened_bound;

// The request: a model, a machine and options.
typedef struct kiln_build_request {
  kiln_model *model;                 // NULL: a program is scheduled alone (kiln_pipeline_tile)
  const kiln_compile_options *asked; // while the model is loaded: with the caller's arrays
  kiln_machine machine;
  uint64_t without;      // of the pipeline's rows (pipeline.h): a bit for each that is left out
  kiln_stop stop;        // and where they end
  bool may_borrow;       // constants may stay where the model has them
  bool may_be_late;      // constants that are computed are made when the weights are filled
  bool may_stop;         // compiling ends where the options say so, with KILN_NO_BUDGET
  bool wants_candidates; // the kernels' candidates are looked at: they are made, not recalled
  bool is_trial;         // what it comes to is looked at, and something else made
  bool is_connected;     // the kernels stay as they are connected
  const char *given_orchestration;        // the text of the file that was asked for; NULL: none
  const struct kiln_model_ranges *ranges; // of which this is |part|; NULL: shapes are fixed
  int part;
  const char *prefix; // of a static library's symbols; NULL: a module
  kiln_output *out;   // the file of the module; NULL: it is in memory
} kiln_build_request;

// The choices so far: rewritten statements, kernels and launches, and the reasons for reports.
typedef struct kiln_build_choices {
  kiln_program *prog; // a copy, changed by rules and the scheduler
  kiln_rewriting rewriting;
  kiln_asked with_rules;       // alternatives that are applied, and where
  const char *alternatives;    // what became of those that were tried; NULL: none
  bool is_scheduled, is_whole; // there are kernels; by the user's script of a whole definition
  int fusion;                  // of the polyhedral scheduler, which was asked for; -1: the rules
  bool promotes;               // and copies what a tile reads again
  kiln_tile_options tile;
  struct kiln_schedule_lookup
      *past; // where the answer of the search is kept; NULL: there was no search
  kiln_connected connected;
  kiln_kernels kernels;
  struct kiln_orchestration *orchestration; // what was chosen; NULL: not, or recalled
  struct kiln_orchestration *measured_best; // what was the best of trials, which is then given
  const kiln_edge_decisions *best_edges;    // and what it says of edges
  bool is_solved;                           // that was without measuring: what solving gives
  struct kiln_searches *proposed;           // for trials, and in them; NULL: there are none
  struct kiln_orchestrate_spent *spent;     // by them together
  struct kiln_measurement_cache *
      measured; // what was measured of kernels (tune/measurement_cache.h); NULL: nothing is looked at
  kiln_cleanup tuning; // ends what |known| holds; not in trials, which use that of the build
  KILN_VEC(kiln_tightened_bound) tightened; // of the plan's nests
} kiln_build_choices;

// The product: code, plan, weights, module.
typedef struct kiln_build_product {
  const char **symbols;               // [kernels]
  int *first_function;                // [kernels]: of its nests, in the plan's functions
  const struct kiln_cpu_nests *nests; // a CPU's: which of the kernels' nests are code; NULL: all
  int n_shared_weights;               // that buckets which were built before it have
  KILN_VEC(kiln_weight) weights;
  KILN_VEC(const void *) externs;
  kiln_plan plan;                 // in the arena
  kiln_gpu_launch **gpu_launches; // [kernels], a GPU's: of each nest
  int *gpu_images;                // [kernels], a GPU's: its number in the plan's; -1: a library's
  kiln_kernel_fn *functions;      // of a module in memory
  kiln_module *module;            // then what was made
  // Not in the arenas:
  int n_objects;
  kiln_object *objects; // by kernel
  kiln_jit *jit;
  char *code;   // a GPU's: [plan.code_bytes] the objects, joined
  char *memory; // of the weights of an in-memory module
  size_t memory_bytes;
  kiln_pool *pool; // for large weights; NULL: none
  void *plan_blob;
  size_t plan_bytes;
} kiln_build_product;

enum { KILN_MAX_PASSES = 64 }; // bits of a mask

typedef struct kiln_build {
  kiln_build_request request;
  kiln_build_choices choices;
  kiln_build_product product;
  // Of the pipeline's rows: how often each did what it is for.
  int counts[KILN_MAX_PASSES];
  int n_steps;                  // runs of optional rows, and of rules that changed something
  const char *last, *last_text; // the rule or row of the last of these
  bool is_stopped;
} kiln_build;

void kiln_build_deinit(kiln_build *b);
// The plan as a blob.
kiln_status kiln_build_write_plan(kiln_ctx *cx, kiln_build *b);
// The kernels' objects, from the cache if they are there and the options allow it. (code.c)
kiln_status kiln_build_code(kiln_ctx *cx, kiln_build *b);
// The same for a GPU, whose code is joined as the plan's images. (gpu_code.c)
kiln_status kiln_build_gpu_code(kiln_ctx *cx, kiln_build *b);
kiln_plan_map kiln_gpu_plan_map(const kiln_gpu_map *m); // as a plan has it
// The machine to compile for, by the options of those names.
//
// errors: as kiln_target_machine
kiln_status kiln_build_find_machine(kiln_ctx *cx, const char *path, const char *target,
                                    const char *dtype, kiln_machine *out);
// Runs one launch of a module for a GPU on device 0: args[i], of bytes[i], are copied there, and
// back.
enum { KILN_GPU_TRY_ARGS = 256 };
kiln_status kiln_gpu_try_launch(kiln_module *m, uint32_t launch, const uint64_t *bytes,
                                char *const *args, kiln_diag *diag);
// Links the objects into this process and finds the plan's functions; NULL for a GPU, which has no
// such.
kiln_status kiln_build_jit(kiln_ctx *cx, kiln_build *b, kiln_kernel_fn **out_functions);

// The module of |b| in this process, from its plan and functions: weights are packed. Takes the
// objects' code and the weights' memory out of |b|.
kiln_status kiln_build_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                              kiln_module **out);

// Passes of the pipeline (build.c).
kiln_status kiln_build_name_kernels(kiln_ctx *cx, kiln_build *b, int *io_n);
// In a file: links the objects there; in memory: finds their functions.
kiln_status kiln_build_link(kiln_ctx *cx, kiln_build *b, int *io_n);
kiln_status kiln_build_pack_weights(kiln_ctx *cx, kiln_build *b, int *io_n);

// Horizontal fusion, on GPUs: independent kernels become one launch. The second function gives the
// same grouping without changing the launches. (horizontal_fusion.c)
void kiln_build_fuse_horizontally(kiln_ctx *cx, kiln_build *b);
// gives: [launches] the number of the fused launch of each; in cx->perm
int *kiln_build_horizontally_fused(kiln_ctx *cx, const kiln_build *b);

// The layouts in which shape buckets built earlier have packed each constant, by tensor of the
// program, as kiln_tile_options' |panels|. (layout.c)
const uint32_t *kiln_build_panels(kiln_ctx *cx, const kiln_build *b);
// The plan, from the kernels: where everything lies. (layout.c)
kiln_status kiln_layout_make(kiln_ctx *cx, kiln_build *b);
// The plan for people: what the arena must hold, and each launch with its arguments. (plan_text.c)
void kiln_plan_print(const kiln_plan *p, kiln_text *out);
// How many functions the kernel of that number is: one a nest, or of nests that a GPU runs side by
// side. (layout.c)
int kiln_build_functions(kiln_ctx *cx, const kiln_build *b, int kernel);
// The top-level nests of a kernel, and the extent of nest |j|'s parallel loop (1: none).
int kiln_kernel_nests(const kiln_loops *l);
int64_t kiln_nest_extent(const kiln_loops *l, int j);
// Whether the kernel wants halves of a tensor of f32, as libraries do.
bool kiln_weight_is_rounded(const kiln_weight *w);
// Fills the bytes of |w| at |to|, which are zero. (fill.c)
kiln_status kiln_weight_fill(kiln_ctx *cx, const kiln_weight *w, void *to);
// Fills the weights of |b| that are not borrowed, by the threads of the options, at |memory|, which
// is zero, or where that is NULL in |out|. (fill.c)
//
// errors: KILN_BAD_INPUT: the file cannot be written
kiln_status kiln_weights_fill(kiln_ctx *cx, kiln_build *b, char *memory, const kiln_output *out);

#endif
