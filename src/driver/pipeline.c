#include "driver/pipeline.h"
#include "dynamic/buckets.h"
#include "tune/measurement_cache.h"
#include "tune/tuning.h"
#include "driver/load.h"
#include "module/schedule_lookup.h"
#include "rewrite/half.h"
#include "template/form/flash_attention.h"
#include "transform/transform.h"

// --- conditions of rows ---

static bool by_vectors(const kiln_build *b) { return !b->request.machine.target->has_grids; }
static bool by_grids(const kiln_build *b) { return b->request.machine.target->has_grids; }
// They are printed for who asks; code generation makes them kernel by kernel.
static bool dumps_device_loops(const kiln_build *b) {
  return by_grids(b) && b->request.model &&
         kiln_list_has(b->request.model->options.dump_after, "device-loops");
}
static bool of_onnx(const kiln_build *b) {
  return b->request.model->graph && !b->request.model->options.read_only;
}
static bool of_ranges(const kiln_build *b) { return b->request.ranges != NULL; }
static bool has_loop_bounds(const kiln_build *b) { return of_ranges(b) && by_vectors(b); }
static bool has_grid_bounds(const kiln_build *b) { return of_ranges(b) && by_grids(b); }

// Alternatives and trials run whole compilations, but not within one another.
static bool may_orchestrate(const kiln_build *b) {
  return b->request.model->options.orchestrate && !b->request.given_orchestration &&
         !b->request.is_trial;
}

static bool may_try(const kiln_build *b) {
  return may_orchestrate(b) && b->request.model->options.tune > 0 &&
         b->request.machine.target->has_runtime;
}

static bool is_orchestrated(const kiln_build *b) { return b->choices.tile.orchestrate != NULL; }

// --- passes over statements ---

static kiln_status mark_results(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)cx;
  (void)io_n;
  kiln_outputs_mark(b->choices.prog);
  return KILN_OK;
}

static kiln_status halve(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_model_halve(cx, b->request.model, b->choices.prog);
}

static kiln_status find_panels(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  b->choices.tile.panels = kiln_build_panels(cx, b);
  return KILN_OK;
}

static kiln_status note_constants(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  kiln_facts_note_constants(cx, b->choices.prog, b->choices.tile.panels, &b->choices.kernels.facts);
  return KILN_OK;
}

static kiln_status compute_index_tables(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  kiln_tile_compute_index_tables(cx, b->choices.prog);
  return KILN_OK;
}

static kiln_status compute_mask_tables(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  kiln_tile_compute_mask_tables(cx, b->choices.prog);
  return KILN_OK;
}

static kiln_status inline_producers(kiln_ctx *cx, kiln_build *b, int *io_n) {
  return kiln_tile_inline(cx, b->choices.prog, &b->request.machine, io_n);
}

static kiln_status coalesce(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_tile_coalesce(cx, b->choices.prog);
}

static kiln_status widen_operands(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_tile_widen_operands(cx, b->choices.prog, &b->choices.kernels.facts,
                                  &b->request.machine);
}

static kiln_status lay_out(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_tile_layout(cx, b->choices.prog, &b->request.machine);
}

static kiln_status coalesce_groups(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  kiln_tile_coalesce_groups(cx, b->choices.prog, &b->request.machine);
  return KILN_OK;
}

static kiln_status leave_out_taps(kiln_ctx *cx, kiln_build *b, int *io_n) {
  return kiln_tile_remove_taps(cx, b->choices.prog, io_n);
}

static kiln_status use_winograd(kiln_ctx *cx, kiln_build *b, int *io_n) {
  return kiln_tile_winograd(cx, b->choices.prog, &b->choices.kernels.facts, &b->request.machine,
                            b->choices.tile.search.n_threads, b->choices.tile.weight_growth,
                            b->choices.tile.late_weights ? &b->choices.kernels.late : NULL, io_n);
}

static kiln_status fold_views(kiln_ctx *cx, kiln_build *b, int *io_n) {
  return kiln_tile_fold_views(cx, b->choices.prog, &b->request.machine, io_n);
}

static kiln_status find_attention(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_tile_attention(cx, b->choices.prog, &b->choices.kernels.facts, &b->request.machine,
                             kiln_flash_attention_suits);
}

// Kernels leave out what masks exclude unless the user leaves out this row (kiln_build_set_search).
static kiln_status skip_masked(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)cx, (void)io_n;
  b->choices.tile.search.strict_masks = false;
  return KILN_OK;
}

static kiln_status concat_in_place(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_tile_concat_in_place(cx, b->choices.prog, &b->choices.kernels.facts,
                                   &b->request.machine);
}

static kiln_status keep_states(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_model *m = b->request.model;
  for (int i = 0; m && i < m->states.n; i++) {
    const kiln_state_ports *s = &m->states.data[i];
    *io_n += kiln_tile_state_in_place(cx, b->choices.prog, s->input, s->output, s->grows);
  }
  return KILN_OK;
}

// --- from statements to kernels ---

static kiln_status look_up(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  b->choices.is_scheduled =
      kiln_kernels_look_up(cx, b->choices.prog, &b->choices.tile, &b->choices.kernels);
  return KILN_OK;
}

static kiln_status connect(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_kernels_connect(cx, b->choices.prog, &b->choices.tile, &b->choices.connected,
                              &b->choices.kernels);
}

static kiln_status orchestrate(kiln_ctx *cx, kiln_build *b, int *io_n) {
  kiln_connected *c = &b->choices.connected;
  (void)io_n;
  return b->choices.tile.orchestrate(cx, b->choices.tile.orchestrator, b->choices.prog,
                                     &b->choices.kernels.facts, &b->choices.tile.search, c->known,
                                     &c->fusions, &c->edges);
}

static kiln_status lower(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  KILN_TRY(kiln_kernels_lower(cx, b->choices.prog, &b->choices.tile, &b->choices.connected,
                              &b->choices.kernels));
  b->choices.is_scheduled = true;
  return KILN_OK;
}

static kiln_status tighten_bounds(kiln_ctx *cx, kiln_build *b, int *io_n) {
  KILN_TRY(kiln_build_tighten_bounds(cx, b));
  *io_n += b->choices.tightened.n;
  return KILN_OK;
}

// --- launches, code, module ---

static kiln_status fuse_horizontally(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const int before = b->choices.kernels.launches.n;
  kiln_build_fuse_horizontally(cx, b);
  *io_n += before - b->choices.kernels.launches.n;
  return kiln_build_name_kernels(cx, b, io_n);
}

static kiln_status print_device_loops(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_build_device_loops(cx, b);
}

static kiln_status generate_code(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_build_code(cx, b);
}

static kiln_status plan(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  return kiln_layout_make(cx, b);
}

// clang-format off
const kiln_pass kiln_passes[] = {
    {"read", KILN_PHASE_LOAD, .run = kiln_load_read,
     .text = "the file becomes a graph of operators, or the definition of a notation's file"},
    {"fission", KILN_PHASE_LOAD, .run = kiln_load_fission, .when = of_onnx,
     .text = "operators become statements, each one tensor expression"},

    {"given", KILN_PHASE_CHOOSE, .run = kiln_build_take_given,
     .text = "the user's schedule, scheduler and orchestration are read"},
    {"alternatives", KILN_PHASE_CHOOSE, .run = kiln_build_choose_alternatives,
     .when = may_orchestrate,
     .text = "rules that do not always pay are tried, by predicted time"},
    {"trials", KILN_PHASE_CHOOSE, .run = kiln_build_measure_orchestrations, .when = may_try,
     .text = "orchestrations are measured in runs of the model"},

    {"rules", KILN_PHASE_REWRITE, .run = kiln_build_rewrite, .renumbers = true,
     .text = "algebraic rewriting by rules to a fixed point (rewrite/rules.c)"},
    {"halve", KILN_PHASE_REWRITE, .run = halve, .renumbers = true,
     .text = "f32 tensors are converted to the requested half type"},
    {"polyhedral", KILN_PHASE_REWRITE, .run = kiln_build_schedule_polyhedral,
     .text = "a definition is scheduled as one kernel by isl, on request"},
    {"search", KILN_PHASE_REWRITE, .run = kiln_build_set_search,
     .text = "options of the search for kernels, and the key of its cached schedule"},
    {"panels", KILN_PHASE_REWRITE, .run = find_panels, .when = of_ranges,
     .text = "constants that other shape buckets have packed are found"},

    {"facts", KILN_PHASE_TILE, .run = note_constants,
     .text = "facts about constants, as their largest magnitude, are collected in tables by tensor"},
    {"results", KILN_PHASE_TILE, .run = mark_results,
     .text = "tensors that are results of the model are marked"},
    {"index-tables", KILN_PHASE_TILE, .was = "tables", .run = compute_index_tables,
     .when = by_grids, .is_optional = true,
     .text = "index tables that follow from their index are computed in place"},
    {"mask-tables", KILN_PHASE_TILE, .run = compute_mask_tables, .when = by_grids,
     .is_optional = true,
     .text = "constant masks in a band along a diagonal, as causal ones, are computed in place"},
    {"inline", KILN_PHASE_TILE, .was = "absorb", .run = inline_producers, .is_optional = true,
     .renumbers = true,
     .text = "views and cheap maps are inlined into their readers"},
    {"coalesce", KILN_PHASE_TILE, .was = "join", .run = coalesce, .is_optional = true,
     .text = "adjacent axes are coalesced where they are one axis in memory"},
    {"widen-operands", KILN_PHASE_TILE, .was = "widen", .run = widen_operands, .when = by_vectors,
     .is_optional = true,
     .text = "8-bit operands of products are stored in 16 bits where that is faster"},
    {"layout", KILN_PHASE_TILE, .run = lay_out, .is_optional = true,
     .text = "storage orders of temporaries: channels last around convolutions, others as read"},
    {"coalesce-groups", KILN_PHASE_TILE, .was = "join-groups", .run = coalesce_groups,
     .when = by_vectors, .is_optional = true,
     .text = "in depthwise convolutions, groups and a group's channels become one axis"},
    {"taps", KILN_PHASE_TILE, .run = leave_out_taps, .when = by_vectors, .is_optional = true,
     .renumbers = true,
     .text = "window taps that read only padding are removed"},
    {"winograd", KILN_PHASE_TILE, .run = use_winograd, .when = by_vectors, .is_optional = true,
     .renumbers = true,
     .text = "3x3 convolutions by Winograd's algorithm"},
    {"fold-views", KILN_PHASE_TILE, .was = "read-through", .run = fold_views, .when = by_grids,
     .is_optional = true,
     .renumbers = true,
     .text = "padding, views and single-use producers are inlined into their consumers"},
    {"attention", KILN_PHASE_TILE, .run = find_attention, .is_optional = true,
     .text = "two products with a softmax between them become one kernel (flash attention)"},
    {"skip-masked", KILN_PHASE_TILE, .run = skip_masked, .when = by_grids,
     .is_optional = true,
     .text = "attention leaves out tiles of scores that a mask excludes: their weight is 0"},
    {"concat-in-place", KILN_PHASE_TILE, .was = "assemble", .run = concat_in_place,
     .is_optional = true, .renumbers = true,
     .text = "producers write into the tensor that concatenates or pads them, in place"},
    {"states-in-place", KILN_PHASE_TILE, .run = keep_states, .when = by_vectors,
     .is_optional = true, .renumbers = true,
     .text = "a state's output that is its input but for some elements is stored over it"},

    {"lookup", KILN_PHASE_CONNECT, .was = "recall", .run = look_up, .renumbers = true,
     .text = "the schedule that an earlier search cached for the same program is taken"},
    {"connect", KILN_PHASE_CONNECT, .run = connect, .renumbers = true,
     .text = "groups of statements grow along edges where one kernel is predicted to be faster"},
    {"orchestrate", KILN_PHASE_CONNECT, .run = orchestrate, .when = is_orchestrated,
     .text = "kernels are chosen by a binary linear program"},
    {"lower", KILN_PHASE_CONNECT, .run = lower,
     .text = "a kernel for all groups of equal form, by the script of its best candidate"},

    {"store", KILN_PHASE_KERNELS, .was = "keep", .run = kiln_build_keep_search,
     .text = "the schedule that the search found is cached for the next compilation"},
    {"scripts", KILN_PHASE_KERNELS, .run = kiln_build_replace_kernels,
     .text = "kernels are replaced by the user's schedules of them"},
    {"names", KILN_PHASE_KERNELS, .run = kiln_build_name_kernels,
     .text = "kernels get the names of their functions"},
    {"measure", KILN_PHASE_KERNELS, .run = kiln_build_choose_measured,
     .text = "candidates and library kernels measured to be faster are taken"},
    {"tighten-bounds", KILN_PHASE_KERNELS, .was = "trim", .run = tighten_bounds,
     .when = has_loop_bounds, .is_optional = true,
     .text = "loop bounds are tightened to the iterations needed for a run's extents"},

    {"horizontal-fusion", KILN_PHASE_LAUNCHES, .was = "beside", .run = fuse_horizontally,
     .when = by_grids, .is_optional = true,
     .text = "independent kernels share a launch (horizontal fusion)"},
    {"tighten-grids", KILN_PHASE_LAUNCHES, .run = tighten_bounds, .when = has_grid_bounds,
     .is_optional = true,
     .text = "grids are tightened to the blocks needed for a run's extents"},

    {"device-loops", KILN_PHASE_DEVICE, .run = print_device_loops, .when = dumps_device_loops,
     .text = "GPUs' loops become device loops: barriers, waits and copies are statements"},
    {"code", KILN_PHASE_CODE, .run = generate_code,
     .text = "loops become machine code, or the source of a GPU's"},

    {"plan", KILN_PHASE_PLAN, .run = plan,
     .text = "launches in order, offsets of buffers in one arena, layout of the weights"},

    {"link", KILN_PHASE_MODULE, .run = kiln_build_link,
     .text = "objects become a shared object, or functions of this process"},
    {"weights", KILN_PHASE_MODULE, .run = kiln_build_pack_weights,
     .text = "constants are packed as kernels read them, and written"},
    {0}};
// clang-format on
