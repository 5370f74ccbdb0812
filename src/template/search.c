// The search over one kernel's candidates: every template that matches proposes, the cheapest by
// the tile graph's cost are lowered first, and one that a primitive refuses gives way to the next.
#include "template/search.h"

#include "price/gpu_price.h"
#include "price/gpu_work.h"
#include "price/price.h"
#include "price/traffic.h"
#include "template/lower.h"
#include "tile/panels.h"

#include <math.h>
#include <string.h>

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

typedef struct searching {
  kiln_ctx *cx;
  const kiln_tile_search_options *options;
  kiln_arena *proposed; // where candidates lie while they are proposed
} searching;

static kiln_lowering begin(const searching *s, const kiln_form *form) {
  const kiln_program *p = form->prog;
  return (kiln_lowering){.cx = s->cx,
                         .p = p,
                         .facts = &form->facts,
                         .m = s->options->machine,
                         .n_threads = s->options->n_threads,
                         .root = p->stmts.data[p->stmts.n - 1],
                         .lanes = s->options->machine->vector_bytes / 4,
                         .strict_masks = s->options->strict_masks,
                         .proposed = s->proposed};
}

// One attempt on fresh loops. A refusal is an answer, not an error.
static kiln_status lower_one(const searching *s, kiln_tile_candidate *c) {
  kiln_aside aside;
  KILN_TRY(kiln_aside_begin(s->cx, &aside));
  kiln_lowering w = begin(s, c->form);
  kiln_status st = kiln_schedule_begin(w.cx, w.p, &w.s);
  w.s.copies = &w.cx->scratch; // many more than are kept
  if (st == KILN_OK) st = c->from->lower(&w, &c->tiling);
  const kiln_target *t = w.m->target;
  if (st == KILN_OK && t->has_vectors) st = kiln_lowering_interior(&w);
  if (st == KILN_OK && t->check) st = t->check(w.cx, w.m, w.s.loops);
  const char *why = kiln_diag_count(aside.mine) ? kiln_diag_message(aside.mine, 0) : "failed";
  if (st == KILN_BAD_INPUT) {
    c->refused = kiln_arena_printf(&w.cx->perm, "%s", why);
    st = KILN_OK;
  } else if (st != KILN_OK) st = kiln_diag_fail(aside.outer, st, "schedule", "%s", why);
  else {
    c->loops = kiln_loops_copy(&w.cx->perm, w.s.loops);
    c->script = kiln_schedule_script(&w.s);
  }
  kiln_aside_end(&aside);
  return st;
}

// Templates of maps and sums propose one schedule or two, which are lowered at once and priced by
// their loops.
static kiln_status price_loops(const searching *s, kiln_tile_candidate *c) {
  KILN_TRY(lower_one(s, c));
  if (!c->loops) return KILN_OK;
  return kiln_traffic_price_streamed(s->cx, s->options->machine, s->options->n_threads, c->loops,
                                     &c->cost);
}

// For grids, proposals are rather too cheap: one dearer than another's loops is not lowered.
static kiln_status price_grid(const searching *s, kiln_tile_candidate *c, double *io_least) {
  if (c->cost.ns >= *io_least) return KILN_OK;
  KILN_TRY(lower_one(s, c));
  if (!c->loops) return KILN_OK;
  (void)kiln_gpu_work(s->cx, s->options->machine, c->loops, &c->cost);
  *io_least = fmin(*io_least, c->cost.ns);
  return KILN_OK;
}

static kiln_status price_by_loops(const searching *s, kiln_tile_candidates *io) {
  const bool has_grids = s->options->machine->target->has_grids;
  double least = INFINITY;
  for (int i = 0; i < io->n; i++)
    if (!io->data[i].from->by_loops) least = fmin(least, io->data[i].cost.ns);
  if (has_grids) kiln_tile_sort(io);
  for (int i = 0; i < io->n && s->options->machine->device; i++) {
    kiln_tile_candidate *c = &io->data[i];
    if (!c->from->by_loops || !isfinite(c->cost.ns)) continue;
    KILN_TRY(has_grids ? price_grid(s, c, &least) : price_loops(s, c));
  }
  return KILN_OK;
}

static void drop(void *arena) { kiln_arena_deinit(arena); }

// Adds |t|'s candidates for |form|.
static kiln_status ask(const searching *s, const kiln_template *t, const kiln_form *form,
                       kiln_tile_candidates *io) {
  const int before = io->n;
  kiln_lowering w = begin(s, form);
  KILN_TRY(t->propose(&w, io));
  for (int i = before; i < io->n; i++) {
    io->data[i].from = t;
    io->data[i].form = form;
  }
  return KILN_OK;
}

// The first form that a template of |kind| wants and |outlined| has. Others would be cheaper by
// price where they are not by the clock: `short` is priced 4 to 16 % below `patches` for first
// layers, whose products were measured to take 1.6 to 4.7 times as long (docs/bench/gpu.md).
static const kiln_form *form_of(const searching *s, kiln_group_kind kind,
                                const kiln_form *outlined) {
  const kiln_machine *m = s->options->machine;
  const kiln_form *form = NULL;
  const kiln_template *last = NULL;
  for (int i = 0; kiln_templates[i] && !form; i++) {
    const kiln_template *t = kiln_templates[i];
    if (!t->match || (last && last->match == t->match) || !kiln_template_takes(t, m, kind))
      continue;
    form = kiln_template_match(s->cx, t, m, outlined);
    last = t;
  }
  return form ? form : outlined;
}

// Templates with one match stand side by side in the table.
static kiln_status ask_forms(const searching *s, kiln_group_kind kind, const kiln_form *outlined,
                             kiln_tile_candidates *out) {
  const kiln_machine *m = s->options->machine;
  const kiln_form *form = outlined;
  kiln_match *last = NULL;
  for (int i = 0; kiln_templates[i]; i++) {
    const kiln_template *t = kiln_templates[i];
    if (!kiln_template_takes(t, m, kind)) continue;
    if (t->match && t->match != last) form = kiln_template_match(s->cx, t, m, outlined);
    if (t->match) last = t->match;
    if (!t->match || form) KILN_TRY(ask(s, t, t->match ? form : outlined, out));
  }
  return KILN_OK;
}

static kiln_status ask_all(const searching *s, kiln_group_kind kind, const kiln_form *outlined,
                           kiln_tile_candidates *out) {
  if (s->options->all_forms) return ask_forms(s, kind, outlined, out);
  const kiln_form *form = form_of(s, kind, outlined);
  for (int i = 0; kiln_templates[i]; i++) {
    const kiln_template *t = kiln_templates[i];
    if (kiln_template_takes(t, s->options->machine, kind) && (!t->match || t->match == form->match))
      KILN_TRY(ask(s, t, form, out));
  }
  return KILN_OK;
}

// Candidates are moved to cx->perm once their number is known: a vector that grows in an arena
// leaves its former copies behind.
kiln_status kiln_tile_propose(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                              const kiln_facts *facts, const kiln_tile_search_options *options,
                              kiln_tile_candidates *out) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_form *outlined = KILN_NEW(&cx->perm, kiln_form);
  *outlined = (kiln_form){.prog = p, .facts = facts ? *facts : (kiln_facts){0}};
  kiln_tile_candidates found = {0};
  kiln_arena own;
  const searching s = {cx, options, &own};
  kiln_arena_init(&own, cx->perm.on_oom);
  kiln_cleanup_push(cx, drop, &own);
  kiln_status st = ask_all(&s, kind, outlined, &found);
  if (st == KILN_OK && options->by_loops) st = price_by_loops(&s, &found);
  kiln_tile_sort(&found);
  *out = (kiln_tile_candidates){KILN_NEW_ARRAY(&cx->perm, kiln_tile_candidate, found.n), found.n,
                                found.n};
  if (found.n > 0) memcpy(out->data, found.data, (size_t)found.n * sizeof *out->data);
  kiln_cleanup_pop(cx);
  drop(&own);
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

// --- the order of those near the best, on grids ---

// Proposals are priced by the template that made them. Of those that may be the best, the loops are
// priced as well: the cheapest ones that are near, and each other template's cheapest if it is not
// far.
enum { MOST_NEAR = 2, MOST_DRAFTS = 8 };
static const double NEAR = 1.2, FAR = 2;

// The predicted time of |c|'s loops, which are drafted for it; INFINITY: it cannot be lowered.
static kiln_status draft(const searching *s, const kiln_tile_candidate *c, double *out_ns) {
  kiln_aside aside;
  kiln_gpu_counts counts;
  *out_ns = INFINITY;
  KILN_TRY(kiln_aside_begin(s->cx, &aside));
  kiln_lowering w = begin(s, c->form);
  kiln_status st = kiln_schedule_begin(w.cx, w.p, &w.s);
  w.s.copies = &w.cx->scratch;
  w.s.is_draft = true;
  if (st == KILN_OK) st = c->from->lower(&w, &c->tiling);
  if (st == KILN_OK && kiln_gpu_count_loops(w.cx, w.m, w.s.loops, &counts))
    *out_ns = kiln_gpu_price_ns(w.m, &counts);
  else if (st == KILN_BAD_INPUT) st = KILN_OK;
  kiln_aside_end(&aside);
  return st;
}

static bool may_be_best(const kiln_tile_candidates *c, int i, int n, const int *before) {
  const kiln_tile_candidate *one = &c->data[i];
  bool is_first = true;
  for (int k = 0; k < n; k++) is_first &= c->data[before[k]].from != one->from;
  return !one->loops && !one->refused && !one->by_library && isfinite(one->cost.ns) &&
         ((n < MOST_NEAR && one->cost.ns <= NEAR * c->data[0].cost.ns) ||
          (is_first && one->cost.ns <= FAR * c->data[0].cost.ns));
}

// Brings those candidates that may be the best in the order of both prices, their geometric mean,
// and in front of all others. The first gets the least cost, so that kernels compare as before.
static kiln_status order_near(const searching *s, kiln_tile_candidates *io) {
  kiln_tile_candidate taken[MOST_DRAFTS];
  double ns[MOST_DRAFTS], costs[MOST_DRAFTS];
  int at[MOST_DRAFTS], n = 0;
  for (int i = 0; i < io->n && n < MOST_DRAFTS; i++)
    if (may_be_best(io, i, n, at)) at[n++] = i;
  if (n < 2 || at[0] != 0) return KILN_OK;
  for (int i = 0; i < n; i++) {
    const kiln_tile_candidate one = io->data[at[i]];
    double time = 0;
    KILN_TRY(draft(s, &one, &time));
    time = sqrt(time * one.cost.ns);
    costs[i] = one.cost.ns;
    int k = i;
    for (; k > 0 && ns[k - 1] > time; k--) ns[k] = ns[k - 1], taken[k] = taken[k - 1];
    ns[k] = time;
    taken[k] = one;
  }
  for (int i = io->n - 1, to = io->n - 1, left = n - 1; i >= 0 && left >= 0; i--) {
    if (i == at[left]) left--;
    else io->data[to--] = io->data[i];
  }
  for (int i = 0; i < n; i++) {
    io->data[i] = taken[i];
    io->data[i].cost.ns = costs[i];
  }
  return KILN_OK;
}

kiln_status kiln_tile_lower(kiln_ctx *cx, const kiln_tile_search_options *options,
                            kiln_tile_candidates *io) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const searching s = {.cx = cx, .options = options};
  kiln_status st = KILN_OK;
  if (options->machine->target->has_grids && options->machine->device->gpu[KILN_GPU_L2_ALL] > 0)
    st = order_near(&s, io);
  for (int i = 0, lowered = 0; st == KILN_OK && i < io->n && lowered < options->n_lowered; i++) {
    kiln_tile_candidate *c = &io->data[i];
    if (!c->loops && !c->refused) st = lower_one(&s, c);
    lowered += c->loops != NULL;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

kiln_status kiln_tile_price_lowered(kiln_ctx *cx, const kiln_tile_search_options *options,
                                    kiln_tile_candidates *io, double *out_ns) {
  const searching s = {.cx = cx, .options = options};
  *out_ns = INFINITY;
  for (int i = 0; i < io->n; i++) {
    kiln_tile_candidate *c = &io->data[i];
    const kiln_mark mark = kiln_arena_mark(&cx->scratch);
    kiln_tile_cost cost = c->cost;
    const bool by_loops = c->from->by_loops && !options->by_loops && isfinite(cost.ns);
    if (by_loops && !c->refused && !c->loops) KILN_TRY(lower_one(&s, c));
    if (c->refused) continue;
    if (by_loops && c->lowered_ns == 0) (void)kiln_gpu_work(cx, options->machine, c->loops, &cost);
    kiln_arena_rewind(&cx->scratch, mark);
    if (c->lowered_ns == 0) c->lowered_ns = kiln_tile_price_of(&cost);
    *out_ns = c->lowered_ns;
    return KILN_OK;
  }
  return KILN_OK;
}

kiln_status kiln_tile_search(kiln_ctx *cx, kiln_group_kind kind, const kiln_program *p,
                             const kiln_facts *facts, const kiln_tile_search_options *options,
                             kiln_tile_candidates *out) {
  KILN_TRY(kiln_tile_propose(cx, kind, p, facts, options, out));
  return kiln_tile_lower(cx, options, out);
}

const kiln_tile_candidate *kiln_tile_best(const kiln_tile_candidates *c) {
  for (int i = 0; i < c->n; i++)
    if (c->data[i].loops) return &c->data[i];
  return NULL;
}
