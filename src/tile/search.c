// The search over one kernel's candidates: every family of its kind proposes, the cheapest by the
// tile graph's cost are lowered first, and one that a primitive refuses gives way to the next.
#include "tile/search.h"

#include "tile/flows.h"
#include "tile/gpu.h"
#include "tile/gpu_work.h"
#include "tile/panels.h"

#include <math.h>
#include <string.h>

static const kiln_family *const families[][KILN_MAX_FAMILIES + 1] = {
    [KILN_GROUP_MAP] = {&kiln_family_map, &kiln_family_plain},
    [KILN_GROUP_CONTRACTION] = {&kiln_family_contraction, &kiln_family_rows, &kiln_family_plain},
    [KILN_GROUP_ROWS] = {&kiln_family_rows, &kiln_family_plain},
    [KILN_GROUP_SCATTER] = {&kiln_family_rounds, &kiln_family_plain},
    [KILN_GROUP_WINOGRAD] = {&kiln_family_winograd, &kiln_family_plain},
    [KILN_GROUP_STREAM] = {&kiln_family_stream, &kiln_family_plain},
    [KILN_GROUP_CHAIN] = {&kiln_family_chain, &kiln_family_plain},
};

static const kiln_family *const grid_families[] = {
    &kiln_family_gpu_stream,  &kiln_family_gpu_strips,
    &kiln_family_gpu_norms,   &kiln_family_gpu_mlps,
    &kiln_family_gpu_patches, &kiln_family_gpu_wgmma,
    &kiln_family_gpu_mma,     &kiln_family_gpu_parts,
    &kiln_family_gpu_short,   &kiln_family_gpu_fma,
    &kiln_family_gpu_tiles,   &kiln_family_gpu_moments,
    &kiln_family_gpu_split,   &kiln_family_gpu_sums,
    &kiln_family_gpu_runs,    &kiln_family_gpu_windows,
    &kiln_family_gpu_narrow,  &kiln_family_gpu_turns,
    &kiln_family_gpu_threads, &kiln_family_gpu_rows,
    &kiln_family_gpu_nests,   NULL};

static const kiln_family *const *families_for(const kiln_machine *m, kiln_group_kind kind) {
  return m->target->has_grids ? grid_families : families[kind];
}

static double rank_of(const kiln_tile_candidate *c) {
  return c->cost.ns * (c->wants_panels ? 1 + KILN_NEW_PANELS : 1);
}

void kiln_tile_sort(kiln_tile_candidates *c) {
  for (int i = 1; i < c->n; i++) {
    const kiln_tile_candidate one = c->data[i];
    int at = i;
    for (; at > 0 && rank_of(&c->data[at - 1]) > rank_of(&one); at--) c->data[at] = c->data[at - 1];
    c->data[at] = one;
  }
}

// One attempt on fresh loops. A refusal is an answer, not an error.
static kiln_status lower_one(kiln_lowering *w, kiln_tile_candidate *c) {
  kiln_aside aside;
  KILN_TRY(kiln_aside_begin(w->cx, &aside));
  kiln_status st = kiln_schedule_begin(w->cx, w->p, &w->s);
  w->s.copies = &w->cx->scratch; // many more than are kept
  if (st == KILN_OK) st = c->family->lower(w, &c->tiling);
  const kiln_target *t = w->m->target;
  if (st == KILN_OK && t->has_vectors) st = kiln_lowering_interior(w);
  if (st == KILN_OK && t->check) st = t->check(w->cx, w->m, w->s.loops);
  const char *why = kiln_diag_count(aside.mine) ? kiln_diag_message(aside.mine, 0) : "failed";
  if (st == KILN_BAD_INPUT) {
    c->refused = kiln_arena_printf(&w->cx->perm, "%s", why);
    st = KILN_OK;
  } else if (st != KILN_OK) st = kiln_diag_fail(aside.outer, st, "schedule", "%s", why);
  else {
    c->loops = kiln_loops_copy(&w->cx->perm, w->s.loops);
    c->script = kiln_schedule_script(&w->s);
  }
  kiln_aside_end(&aside);
  return st;
}

// The families of maps and sums have one way or two to run a kernel: their loops are made at once,
// and say what it costs.
static kiln_status price_loops(kiln_lowering *w, kiln_tile_candidate *c) {
  KILN_TRY(lower_one(w, c));
  if (!c->loops) return KILN_OK;
  return kiln_tile_flows_streamed(w->cx, w->m, w->n_threads, c->loops, &c->cost);
}

// For grids proposals say rather too little: what costs more than another's loops is not lowered.
static kiln_status price_grid(kiln_lowering *w, kiln_tile_candidate *c, double *io_least) {
  if (c->cost.ns >= *io_least) return KILN_OK;
  KILN_TRY(lower_one(w, c));
  if (!c->loops) return KILN_OK;
  (void)kiln_gpu_work(w->cx, w->m, c->loops, &c->cost);
  *io_least = fmin(*io_least, c->cost.ns);
  return KILN_OK;
}

static kiln_status price_by_loops(kiln_lowering *w, kiln_tile_candidates *io) {
  const bool has_grids = w->m->target->has_grids;
  double least = INFINITY;
  for (int i = 0; i < io->n; i++)
    if (!io->data[i].family->by_loops) least = fmin(least, io->data[i].cost.ns);
  if (has_grids) kiln_tile_sort(io);
  for (int i = 0; i < io->n && w->m->device; i++) {
    kiln_tile_candidate *c = &io->data[i];
    if (!c->family->by_loops || !isfinite(c->cost.ns)) continue;
    KILN_TRY(has_grids ? price_grid(w, c, &least) : price_loops(w, c));
  }
  return KILN_OK;
}

static kiln_lowering begin(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                           const kiln_tile_search_options *options) {
  return (kiln_lowering){.cx = cx,
                         .p = p,
                         .facts = facts,
                         .m = options->machine,
                         .n_threads = options->n_threads,
                         .root = p->stmts.data[p->stmts.n - 1],
                         .lanes = options->machine->vector_bytes / 4};
}

static void drop(void *arena) { kiln_arena_deinit(arena); }

// What the families propose is moved to cx->perm once it is known how much that is: a vector that
// grows there would leave its former selves behind.
kiln_status kiln_tile_propose(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                              const kiln_facts *facts, const kiln_tile_search_options *options,
                              kiln_tile_candidates *out) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_lowering w = begin(cx, p, facts, options);
  kiln_tile_candidates found = {0};
  kiln_status st = KILN_OK;
  kiln_arena own;
  kiln_arena_init(&own, cx->perm.door);
  kiln_cleanup_push(cx, drop, &own);
  w.proposed = &own;
  const kiln_family *const *all = families_for(options->machine, kind);
  for (int i = 0; st == KILN_OK && all[i]; i++) st = all[i]->propose(&w, &found);
  if (st == KILN_OK && options->by_loops) st = price_by_loops(&w, &found);
  kiln_tile_sort(&found);
  *out = (kiln_tile_candidates){KILN_NEW_ARRAY(&cx->perm, kiln_tile_candidate, found.n), found.n,
                                found.n};
  if (found.n > 0) memcpy(out->data, found.data, (size_t)found.n * sizeof *out->data);
  kiln_cleanup_pop(cx);
  drop(&own);
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

kiln_status kiln_tile_lower(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_tile_search_options *options, kiln_tile_candidates *io) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_lowering w = begin(cx, p, facts, options);
  kiln_status st = KILN_OK;
  for (int i = 0, lowered = 0; st == KILN_OK && i < io->n && lowered < options->n_lowered; i++) {
    kiln_tile_candidate *c = &io->data[i];
    if (!c->loops && !c->refused) st = lower_one(&w, c);
    lowered += c->loops != NULL;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

kiln_status kiln_tile_search(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                             const kiln_facts *facts, const kiln_tile_search_options *options,
                             kiln_tile_candidates *out) {
  KILN_TRY(kiln_tile_propose(cx, kind, p, facts, options, out));
  return kiln_tile_lower(cx, p, facts, options, out);
}

const kiln_tile_candidate *kiln_tile_best(const kiln_tile_candidates *c) {
  for (int i = 0; i < c->n; i++)
    if (c->data[i].loops) return &c->data[i];
  return NULL;
}
