// Orchestration part by part: enumerates candidates, prices them, solves the program, lowers the
// chosen kernels, and repeats if lowering refuses one.
#include "orchestrate/orchestrate.h"
#include "orchestrate/memory.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
  MIN_PART = 8, // fewest prims of a part
  MAX_PART = 28,
  MAX_ROUNDS = 24, // solutions of a part, each after templates refused a chosen kernel
  USUAL_NODES = 4000,
  MAX_OTHERS = 4 // alternatives to a kernel in the report
};
// Default limit of solver work: parts of common models take less than 1e6 each. A part takes
// hundreds of times as much if many kernels cost about the same and lowering keeps refusing some;
// this limit is 1 to 6 s.
static const double USUAL_WORK = 1e8;
// Default limit of pricing work: common models, with all their alternatives, take 4,000 to 30,000;
// this limit is at most 8 s.
static const double USUAL_PRICES = 20000;
static const double MOST_SHARES = 4; // a part's limit, in equal shares of the remaining work

typedef struct offered { // a candidate of a part
  kiln_kernel_set set;   // prims numbered within the part
  kiln_priced priced;
  int last;      // the last prim in topological order
  bool is_first; // a kernel of cost-driven fusion
  bool stays;    // a single prim or a kernel of cost-driven fusion: never dropped
} offered;
typedef KILN_VEC(offered) offers;

typedef struct dropped { // a candidate that cannot pay
  const kiln_bits *prims;
  double ns, apart_ns; // |ns| infinite: no template; |apart_ns|: its prims as kernels of their own
} dropped;
typedef KILN_VEC(dropped) drops;

typedef struct solved { // the solution of a part
  const offered *all;
  int n_all;
  kiln_choice choice; // the problem with plain costs
  drops dropped;
  int n, *kernels; // chosen from |all|, in order of execution
  double first, cost, weight,
      bound; // predicted cost of cost-driven fusion's kernels and of the chosen ones; objective and
             // bound
} solved;

typedef struct orchestrating {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_orchestrate_options *options;
  kiln_candidate_limits limits;
  kiln_prims prims;
  kiln_costing costs;
  const kiln_fused_groups *first;
  kiln_bits **first_sets; // [first->n]
  kiln_orchestration *out;
  kiln_orchestrate_spent *spent;
  int begin, end; // the current part
  int n_left;     // parts left, including this one
  kiln_map by_form;
  KILN_VEC(solved) solutions; // indexed by |by_form|
  kiln_cuts cuts;
  int *solution_of; // [parts] index of the solution
} orchestrating;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

kiln_candidate_limits kiln_orchestrate_limits(void) {
  return (kiln_candidate_limits){.states = 6000, .prims = 10, .candidates = 1000, .results = 3};
}

// --- sets ---

static kiln_bits *in_graph(const orchestrating *o, const kiln_bits *of_part) {
  kiln_bits *all = kiln_bits_make(&o->cx->scratch, o->prims.n);
  for (int i = kiln_bits_next(of_part, 0); i >= 0; i = kiln_bits_next(of_part, i + 1))
    kiln_bits_set(all, o->begin + i);
  return all;
}

static kiln_bits *in_part(const orchestrating *o, const kiln_bits *of_graph) {
  kiln_bits *part = kiln_bits_make(&o->cx->perm, o->end - o->begin);
  for (int i = kiln_bits_next(of_graph, o->begin); i >= 0 && i < o->end;
       i = kiln_bits_next(of_graph, i + 1))
    kiln_bits_set(part, i - o->begin);
  return part;
}

static kiln_bits *prims_of_group(const orchestrating *o, const kiln_group *g) {
  kiln_bits *set = kiln_bits_make(&o->cx->scratch, o->prims.n);
  for (int i = 0; i < g->n_stmts; i++) kiln_bits_set(set, o->prims.prim_of[g->stmts[i]]);
  return set;
}

static kiln_bits *results_of_group(const orchestrating *o, const kiln_group *g) {
  kiln_bits *set = kiln_bits_make(&o->cx->scratch, o->prims.n);
  for (int i = 0; i < g->n_stmts; i++)
    if (i == g->n_stmts - 1 || (g->stored >> i & 1))
      kiln_bits_set(set, o->prims.prim_of[g->stmts[i]]);
  return set;
}

// Whether |prims| of the part need no kernel: a single prim whose pieces are written in place.
static bool is_free(const orchestrating *o, const kiln_bits *prims) {
  return kiln_bits_count(prims) == 1 && o->prims.prims[o->begin + kiln_bits_next(prims, 0)].is_free;
}

// --- candidates ---

static bool may_grow(void *user, const kiln_bits *prims) {
  const orchestrating *o = user;
  const kiln_mark mark = kiln_arena_mark(&o->cx->scratch);
  const bool may = kiln_costing_may_grow(&o->costs, in_graph(o, prims));
  kiln_arena_rewind(&((orchestrating *)user)->cx->scratch, mark);
  return may;
}

// Whether a kernel of |prims| could cost less than kernels for each prim.
static bool may_be(void *user, const kiln_bits *prims) {
  orchestrating *o = user;
  const kiln_mark mark = kiln_arena_mark(&o->cx->scratch);
  const kiln_bits *all = in_graph(o, prims);
  bool may = kiln_costing_may_grow(&o->costs, all);
  if (may && kiln_costing_bound(&o->costs, all) >= kiln_costing_separate(&o->costs, all)) {
    may = false;
    o->out->n_bounded++;
  }
  kiln_arena_rewind(&o->cx->scratch, mark);
  return may;
}

static double cost_of(const orchestrating *o, const offered *x) {
  if (x->priced.measured_ns > 0) return x->priced.measured_ns;
  const kiln_mark mark = kiln_arena_mark(&o->cx->scratch);
  const kiln_bits *prims = in_graph(o, x->set.prims);
  double ns = kiln_costing_predicted(&o->costs, x->priced.found.candidates);
  if (isfinite(ns) && o->costs.measured) ns *= kiln_costing_ratio(&o->costs, prims);
  if (!isfinite(ns) && x->stays) ns = kiln_costing_separate(&o->costs, prims); // unknown
  kiln_arena_rewind(&o->cx->scratch, mark);
  return ns;
}

// The candidate's weight in the objective: predictions of new kernels are trusted less.
static double weight_of(const orchestrating *o, const offered *x) {
  const bool is_trusted = x->is_first || x->priced.measured_ns > 0;
  return cost_of(o, x) * (is_trusted ? 1 : 1 + o->options->worth);
}

static double prices_of_part(const orchestrating *o) {
  const double most = o->options->prices > 0 ? o->options->prices : USUAL_PRICES,
               left = fmax(0, most - o->spent->prices);
  return fmin(left, MOST_SHARES * left / o->n_left);
}

// gives: *out_is_whole, whether all candidates could be priced within the limit
static kiln_status price_all(orchestrating *o, const kiln_candidates *found, offers *out,
                             drops *out_dropped, bool *out_is_whole) {
  const double before = o->costs.work, most = before + prices_of_part(o);
  *out_is_whole = true;
  for (int i = 0; i < found->all.n; i++) {
    offered one = {.set = found->all.data[i]};
    const kiln_bits *prims = in_graph(o, one.set.prims), *results = in_graph(o, one.set.results);
    one.stays = kiln_bits_count(prims) == 1;
    if (!one.stays && o->costs.work >= most) {
      *out_is_whole = false;
      break;
    }
    for (int k = kiln_bits_next(one.set.prims, 0); k >= 0; k = kiln_bits_next(one.set.prims, k + 1))
      one.last = k;
    KILN_TRY(kiln_costing_price(&o->costs, prims, results, &one.priced));
    const double apart = kiln_costing_separate(&o->costs, prims), cost = cost_of(o, &one);
    const bool is_dearer = !one.stays && cost >= apart;
    if (is_dearer && isfinite(one.priced.ns)) o->out->n_dearer++;
    if (is_dearer && !isfinite(one.priced.ns)) o->out->n_impossible++;
    if (!is_dearer) KILN_VEC_PUSH(&o->cx->scratch, out, one);
    else KILN_VEC_PUSH(&o->cx->perm, out_dropped, (dropped){one.set.prims, cost, apart});
  }
  o->spent->prices += o->costs.work - before;
  return KILN_OK;
}

static int find_offer(const offers *all, const kiln_bits *prims, const kiln_bits *results) {
  for (int i = 0; i < all->n; i++)
    if (kiln_bits_equal(all->data[i].set.prims, prims) &&
        kiln_bits_equal(all->data[i].set.results, results))
      return i;
  return -1;
}

// Adds the kernels of cost-driven fusion in this part, and prims that need no kernel.
//
// gives: their indices
static int add_first(orchestrating *o, offers *io, int *out) {
  int n = 0;
  for (int i = 0; i < o->first->n; i++) {
    const kiln_fused_group *one = &o->first->data[i];
    const int prim = o->prims.prim_of[one->group.stmts[one->group.n_stmts - 1]];
    if (prim < o->begin || prim >= o->end) continue;
    const kiln_bits *prims = in_part(o, prims_of_group(o, &one->group)),
                    *results = in_part(o, results_of_group(o, &one->group));
    int at = find_offer(io, prims, results);
    if (at < 0) {
      at = io->n;
      KILN_VEC_PUSH(&o->cx->scratch, io,
                    (offered){.set = {prims, results}, .last = prim - o->begin});
    }
    offered *x = &io->data[at];
    x->stays = x->is_first = true;
    x->priced.group = one->group;
    x->priced.found = (kiln_searched){one->outline.prog, one->outline.facts, one->candidates,
                                      one->outline.key, one->group.kind};
    x->priced.measured_ns = kiln_costing_measured(&o->costs, &x->priced.found);
    out[n++] = at;
  }
  kiln_bits *stored = kiln_bits_make(&o->cx->scratch, o->end - o->begin);
  for (int i = 0; i < n; i++) kiln_bits_add(stored, io->data[out[i]].set.results);
  for (int i = o->begin; i < o->end; i++) { // candidates begin with the single prims
    const kiln_prim *one = &o->prims.prims[i];
    if (!one->is_free || !kiln_bits_is_subset(in_part(o, one->pieces), stored)) continue;
    kiln_bits_set(stored, i - o->begin);
    out[n++] = i - o->begin;
  }
  return n;
}

// --- the binary program ---

static const kiln_bits *taken_by(const orchestrating *o, const kiln_prim_graph *g,
                                 const kiln_bits *prims) {
  kiln_bits *takes = kiln_bits_make(&o->cx->scratch, g->n);
  if (is_free(o, prims))
    return in_part(o, o->prims.prims[o->begin + kiln_bits_next(prims, 0)].pieces);
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1))
    kiln_bits_add(takes, g->reads[i]);
  kiln_bits_remove(takes, prims);
  return takes;
}

static const char *place_of(const orchestrating *o) {
  const kiln_prim *first = &o->prims.prims[o->begin], *last = &o->prims.prims[o->end - 1];
  return kiln_arena_printf(&o->cx->perm, "orchestration: statements %d to %d", first->stmts[0],
                           last->stmts[last->n - 1]);
}

static double work_left(const orchestrating *o) {
  return (o->options->work > 0 ? o->options->work : USUAL_WORK) - o->spent->work;
}

static kiln_status choose(orchestrating *o, const kiln_prim_graph *g, const offers *all,
                          int n_first, int *first, kiln_choice_solution *out) {
  kiln_choice_kernel *kernels = KILN_NEW_ARRAY(&o->cx->scratch, kiln_choice_kernel, all->n);
  int *numbers = KILN_NEW_ARRAY(&o->cx->scratch, int, all->n),
      *back = KILN_NEW_ARRAY(&o->cx->scratch, int, all->n),
      *start = KILN_NEW_ARRAY(&o->cx->scratch, int, n_first), n = 0;
  for (int i = 0; i < all->n; i++) {
    const offered *x = &all->data[i];
    const double cost = weight_of(o, x);
    numbers[i] = -1;
    if (!isfinite(cost)) continue;
    kernels[n] = (kiln_choice_kernel){.cost = cost,
                                      .prims = x->set.prims,
                                      .takes = taken_by(o, g, x->set.prims),
                                      .results = x->set.results};
    back[n] = i;
    numbers[i] = n++;
  }
  for (int i = 0; i < n_first; i++) start[i] = numbers[first[i]];
  const kiln_choice_memory memory =
      kiln_prims_memory(o->cx, o->p, &o->prims, o->begin, o->end, o->options->bytes);
  const kiln_choice c = {.n_prims = g->n,
                         .n_kernels = n,
                         .kernels = kernels,
                         .needed = g->needed,
                         .live = kiln_prim_graph_live(&o->cx->scratch, g),
                         .n_first = n_first,
                         .first = start,
                         .memory = &memory,
                         .place = place_of(o),
                         .stores_once = true,
                         .nodes = o->options->nodes > 0 ? o->options->nodes : USUAL_NODES,
                         .work = o->options->bytes > 0 ? 0 : work_left(o),
                         .seconds = o->options->seconds};
  const double before = seconds();
  KILN_TRY(kiln_choice_solve(o->cx, &c, out));
  o->out->solve_s += seconds() - before;
  o->out->work += out->work;
  o->spent->work += out->work;
  for (int i = 0; i < out->n; i++) out->kernels[i] = back[out->kernels[i]];
  return KILN_OK;
}

// Lowers the chosen kernels.
//
// gives: whether all were lowered at their predicted cost
static kiln_status lower(orchestrating *o, const offers *all, const kiln_choice_solution *chosen,
                         bool *out_accepted) {
  *out_accepted = true;
  for (int i = 0; i < chosen->n; i++) {
    const offered *x = &all->data[chosen->kernels[i]];
    if (!x->priced.found.candidates) continue;
    const double before = kiln_tile_price(x->priced.found.candidates);
    KILN_TRY(kiln_searched_lower(o->cx, o->costs.options, &x->priced.found));
    const double after = kiln_tile_price(x->priced.found.candidates);
    if (after > before) *out_accepted = false;
  }
  return KILN_OK;
}

// The problem with all candidates at plain cost, for comparing alternatives.
static kiln_choice plain_choice(orchestrating *o, const kiln_prim_graph *g, const offers *all) {
  kiln_choice_kernel *kernels = KILN_NEW_ARRAY(&o->cx->scratch, kiln_choice_kernel, all->n);
  for (int i = 0; i < all->n; i++) {
    const offered *x = &all->data[i];
    kernels[i] = (kiln_choice_kernel){.cost = cost_of(o, x),
                                      .prims = x->set.prims,
                                      .takes = taken_by(o, g, x->set.prims),
                                      .results = x->set.results};
  }
  return (kiln_choice){.n_prims = g->n,
                       .n_kernels = all->n,
                       .kernels = kernels,
                       .needed = g->needed,
                       .stores_once = true};
}

static double first_cost(const orchestrating *o, const offers *all, int n, const int *first) {
  double cost = 0;
  for (int i = 0; i < n; i++) cost += cost_of(o, &all->data[first[i]]);
  return cost;
}

static kiln_status solve_part(orchestrating *o, solved *out) {
  const kiln_prim_graph *g = kiln_prims_part(o->cx, &o->prims, o->begin, o->end);
  kiln_candidate_limits limits = o->limits;
  limits.may_grow = may_grow;
  limits.may_be = may_be;
  limits.user = o;
  const kiln_candidates found = kiln_candidates_of(&o->cx->perm, &o->cx->scratch, g, &limits);
  offers all = {0};
  drops in_vain = {0};
  int *first = KILN_NEW_ARRAY(&o->cx->scratch, int, o->first->n + g->n);
  bool is_whole;
  KILN_TRY(price_all(o, &found, &all, &in_vain, &is_whole));
  const int n_first = add_first(o, &all, first);
  o->out->n_states += found.n_states;
  o->out->n_differences += found.n_differences;
  o->out->n_candidates += found.all.n;
  o->out->n_uncounted += found.states_capped;
  o->out->n_capped += found.candidates_capped || !is_whole;
  kiln_choice_solution chosen = {0};
  bool accepted = false, is_limited = false;
  for (int round = 0; !accepted; round++) {
    if (round == MAX_ROUNDS && o->options->bytes > 0)
      return KILN_FAIL(
          o->cx->diag, KILN_UNSUPPORTED, NULL,
          "memory limit: kernels that fit must be lowered within %d solutions, got none",
          MAX_ROUNDS);
    const bool is_spent = o->options->bytes <= 0 && work_left(o) <= 0;
    if (round == MAX_ROUNDS || is_spent) { // cost-driven fusion's kernels were lowered before
      chosen.n = n_first;
      chosen.kernels = first;
      is_limited |= is_spent;
      break;
    }
    KILN_TRY(choose(o, g, &all, n_first, first, &chosen));
    o->out->n_rounds++;
    o->out->n_cycles += chosen.n_cycles;
    is_limited = chosen.is_limited;
    KILN_TRY(lower(o, &all, &chosen, &accepted));
  }
  o->out->n_limited += is_limited;
  *out = (solved){.n_all = all.n,
                  .n = chosen.n,
                  .kernels = chosen.kernels,
                  .first = first_cost(o, &all, n_first, first),
                  .bound = chosen.bound,
                  .choice = plain_choice(o, g, &all),
                  .dropped = in_vain,
                  .all = memcpy(KILN_NEW_ARRAY(&o->cx->perm, offered, all.n), all.data,
                                sizeof(offered) * (size_t)all.n)};
  for (int i = 0; i < out->n; i++) {
    out->cost += cost_of(o, &out->all[out->kernels[i]]);
    out->weight += weight_of(o, &out->all[out->kernels[i]]);
  }
  return KILN_OK;
}

// --- equal parts ---

// Memory that is live during the part in addition to its results.
static void add_memory(orchestrating *o, kiln_text *out) {
  const kiln_choice_memory m =
      kiln_prims_memory(o->cx, o->p, &o->prims, o->begin, o->end, o->options->bytes);
  if (!(m.limit > 0)) return;
  kiln_text_printf(out, "passing %.0f", m.passing);
  for (int i = 0; i < m.n_before; i++) kiln_text_printf(out, " %.0f", m.before[i].bytes);
}

// A key of the part: its statements, which of their results are needed, decisions of earlier passes
// on them, and cost-driven fusion's kernels.
static kiln_symbol form_of(orchestrating *o, const kiln_prim_graph *g) {
  kiln_text form;
  kiln_group whole = {.stmts = KILN_NEW_ARRAY(&o->cx->scratch, int, o->p->stmts.n)};
  kiln_text_init(&form, &o->cx->scratch);
  for (int i = o->begin; i < o->end; i++) {
    const kiln_prim *one = &o->prims.prims[i];
    kiln_text_printf(&form, "%d%d%d%d%d ", one->n, one->is_alone, one->is_free, one->is_pinned,
                     kiln_bits_has(g->needed, i - o->begin));
    for (int k = 0; k < one->n; k++) whole.stmts[whole.n_stmts++] = one->stmts[k];
  }
  for (int i = 0; i < o->first->n; i++) {
    const kiln_group *made = &o->first->data[i].group;
    const int last = o->prims.prim_of[made->stmts[made->n_stmts - 1]];
    for (int k = 0; last >= o->begin && last < o->end && k < made->n_stmts; k++)
      kiln_text_printf(&form, "%d%s", o->prims.prim_of[made->stmts[k]] - o->begin,
                       k == made->n_stmts - 1  ? ";"
                       : made->stored >> k & 1 ? "*,"
                                               : ",");
  }
  add_memory(o, &form);
  kiln_text_add(&form,
                kiln_symbol_text(o->cx, kiln_group_form(o->cx, o->p, o->costs.facts, &whole)));
  return kiln_symbol_of(o->cx, form.data);
}

// Up to MAX_OTHERS alternatives that store the last result of chosen kernel |at|, by additional
// cost: first those that execute more prims, then others.
static kiln_status add_others(orchestrating *o, const solved *solution, int at,
                              kiln_orchestrated_kernel *io) {
  const offered *x = &solution->all[solution->kernels[at]];
  double *more = KILN_NEW_ARRAY(&o->cx->scratch, double, solution->n_all);
  for (int i = 0; i < solution->n_all; i++) {
    const kiln_kernel_set *y = &solution->all[i].set;
    const bool is_other =
        kiln_bits_has(y->results, x->last) && !kiln_bits_equal(y->prims, x->set.prims);
    more[i] = is_other ? kiln_choice_extra_cost(o->cx, &solution->choice, solution->n,
                                                solution->kernels, at, i)
                       : INFINITY;
  }
  for (int pass = 0; pass < 2; pass++)
    for (int n = 0; n < MAX_OTHERS / 2; n++) {
      int best = -1;
      for (int i = 0; i < solution->n_all; i++)
        if (isfinite(more[i]) && (best < 0 || more[i] < more[best]) &&
            kiln_bits_is_subset(x->set.prims, solution->all[i].set.prims) == (pass == 0))
          best = i;
      if (best < 0) break;
      const offered *y = &solution->all[best];
      kiln_priced priced;
      KILN_TRY(kiln_costing_price(&o->costs, in_graph(o, y->set.prims), in_graph(o, y->set.results),
                                  &priced));
      const kiln_orchestrated_kernel other = {
          .group = priced.group, .ns = cost_of(o, y), .more_ns = more[best], .is_known = true};
      KILN_VEC_PUSH(&o->cx->perm, &io->others, other);
      more[best] = INFINITY;
    }
  return KILN_OK;
}

// Adds the kernels chosen for the current part, whose form equals that of the solved part.
static kiln_status add_kernels(orchestrating *o, const solved *solution) {
  const kiln_choice_memory memory =
      kiln_prims_memory(o->cx, o->p, &o->prims, o->begin, o->end, o->options->bytes);
  kiln_choice c = solution->choice;
  c.memory = &memory;
  o->out->peak_bytes =
      fmax(o->out->peak_bytes, kiln_choice_peak(o->cx, &c, solution->n, solution->kernels));
  o->out->first_ns += solution->first;
  o->out->chosen_ns += solution->cost;
  o->out->weight_ns += solution->weight;
  o->out->bound_ns += fmin(solution->bound, solution->weight);
  for (int i = 0; i < solution->n; i++) {
    const offered *x = &solution->all[solution->kernels[i]];
    const kiln_bits *prims = in_graph(o, x->set.prims), *results = in_graph(o, x->set.results);
    kiln_orchestrated_kernel k = {.ns = cost_of(o, x)};
    if (is_free(o, x->set.prims)) continue;
    kiln_priced priced;
    KILN_TRY(kiln_costing_price(&o->costs, prims, results, &priced));
    k.group = priced.group;
    k.is_measured = x->priced.measured_ns > 0;
    k.is_known = isfinite(kiln_tile_price(x->priced.found.candidates));
    KILN_TRY(add_others(o, solution, i, &k));
    KILN_VEC_PUSH(&o->cx->perm, &o->out->kernels, k);
  }
  return KILN_OK;
}

static kiln_status orchestrate_part(orchestrating *o, int part) {
  const kiln_prim_graph *g = kiln_prims_part(o->cx, &o->prims, o->begin, o->end);
  const kiln_symbol form = form_of(o, g);
  const uint64_t *known = kiln_map_find(&o->by_form, form);
  if (!known) {
    solved one;
    KILN_TRY(solve_part(o, &one));
    known = kiln_map_put(&o->by_form, form, (uint64_t)o->solutions.n);
    KILN_VEC_PUSH(&o->cx->perm, &o->solutions, one);
    o->out->n_solved++;
  }
  o->solution_of[part] = (int)*known;
  return add_kernels(o, &o->solutions.data[*known]);
}

// --- the whole program ---

static uint64_t *keys_of(orchestrating *o) {
  uint64_t *keys = KILN_NEW_ARRAY(&o->cx->scratch, uint64_t, o->prims.n + 1);
  for (int i = 0; i < o->prims.n; i++) {
    const kiln_prim *one = &o->prims.prims[i];
    const kiln_group g = {.n_stmts = one->n, .stmts = one->stmts};
    const char *form = kiln_symbol_text(o->cx, kiln_group_form(o->cx, o->p, o->costs.facts, &g));
    keys[i] = kiln_hash_bytes(form, strlen(form), 0);
  }
  return keys;
}

static void price_given(orchestrating *o, const kiln_searched *found,
                        kiln_orchestrated_kernel *io) {
  const double ns = kiln_costing_predicted(&o->costs, found->candidates);
  io->is_known = isfinite(ns);
  io->ns = io->is_known ? ns : 0;
  o->out->chosen_ns += io->ns;
}

static kiln_status make_parts(orchestrating *o, kiln_fused_groups *io) {
  kiln_fused_groups parts = {0};
  for (int i = 0; i < o->out->kernels.n; i++) {
    kiln_fused_group one = {.group = o->out->kernels.data[i].group};
    kiln_searched found;
    bool is_new;
    KILN_TRY(kiln_searches_find(o->cx, o->costs.known, o->p, o->costs.facts, &one.group,
                                o->costs.options, &found, &is_new));
    KILN_TRY(kiln_tile_outline(o->cx, o->p, o->costs.facts, &one.group, o->costs.options->machine,
                               &one.outline));
    one.candidates = found.candidates;
    KILN_VEC_PUSH(&o->cx->perm, &parts, one);
    if (o->out->is_given) price_given(o, &found, &o->out->kernels.data[i]);
  }
  for (int i = 0; o->out->is_given && i < io->n; i++) {
    const double ns = kiln_costing_predicted(&o->costs, io->data[i].candidates);
    if (isfinite(ns)) o->out->first_ns += ns;
  }
  *io = parts;
  return KILN_OK;
}

static bool is_in_one(const orchestrating *o, int producer, int consumer, kiln_group_kind *out) {
  for (int i = 0; i < o->out->kernels.n; i++) {
    const kiln_group *g = &o->out->kernels.data[i].group;
    bool makes = false, reads = false;
    for (int k = 0; k < g->n_stmts; k++) {
      makes |= g->stmts[k] == producer;
      reads |= g->stmts[k] == consumer;
    }
    *out = g->kind;
    if (makes && reads) return true;
  }
  return false;
}

static bool has_both(const kiln_bits *prims, int one, int other) {
  return kiln_bits_has(prims, one) && kiln_bits_has(prims, other);
}

// The least additional cost of having prims |from| and |to| of the part in one kernel.
//
// gives: *out, that kernel; -1: no candidate has both
static double least_more(const orchestrating *o, const solved *solution, int from, int to,
                         int *out) {
  double least = INFINITY;
  int at = -1;
  *out = -1;
  for (int i = 0; i < solution->n && at < 0; i++)
    if (kiln_bits_has(solution->all[solution->kernels[i]].set.prims, to)) at = i;
  for (int i = 0; at >= 0 && i < solution->n_all; i++) {
    if (!has_both(solution->all[i].set.prims, from, to)) continue;
    const double more =
        kiln_choice_extra_cost(o->cx, &solution->choice, solution->n, solution->kernels, at, i);
    if (more >= least) continue;
    least = more;
    *out = i;
  }
  return least;
}

static const char *stmts_text(const orchestrating *o, const kiln_bits *of_part) {
  kiln_text t;
  kiln_text_init(&t, &o->cx->perm);
  for (int i = kiln_bits_next(of_part, 0); i >= 0; i = kiln_bits_next(of_part, i + 1))
    for (int k = 0; k < o->prims.prims[o->begin + i].n; k++)
      kiln_text_printf(&t, "%s#%d", t.n ? " " : "", o->prims.prims[o->begin + i].stmts[k]);
  return t.data;
}

// Why no kernel of the current part has both prims |from| and |to|; NULL: no candidate had both.
static const char *reason_apart(const orchestrating *o, const solved *solution, int from, int to) {
  kiln_arena *a = &o->cx->perm;
  const dropped *least = NULL;
  int best, n = 0;
  const double more = least_more(o, solution, from, to, &best);
  if (best >= 0)
    return kiln_arena_printf(
        a, "with the kernel of %s, %.2f us, the run is predicted to take %.2f us %s",
        stmts_text(o, solution->all[best].set.prims), cost_of(o, &solution->all[best]) * 1e-3,
        fabs(more) * 1e-3, more >= 0 ? "longer" : "less, which is too little to be trusted");
  for (int i = 0; i < solution->dropped.n; i++) {
    const dropped *d = &solution->dropped.data[i];
    if (!has_both(d->prims, from, to)) continue;
    n++;
    if (isfinite(d->ns) && (!least || d->ns - d->apart_ns < least->ns - least->apart_ns)) least = d;
  }
  if (least)
    return kiln_arena_printf(
        a, "the kernel of %s is predicted to take %.2f us, its statements apart %.2f us",
        stmts_text(o, least->prims), least->ns * 1e-3, least->apart_ns * 1e-3);
  if (n > 0) return kiln_arena_printf(a, "no template runs any of %d kernels of both", n);
  return NULL;
}

static const char *find_reason(orchestrating *o, const kiln_edge_decision *e) {
  const int from = o->prims.prim_of[e->producer], to = o->prims.prim_of[e->consumer];
  for (int i = 0; i < o->cuts.n; i++) {
    o->begin = o->cuts.cuts[i];
    o->end = o->cuts.cuts[i + 1];
    if (to < o->begin || to >= o->end) continue;
    if (from >= o->begin)
      return reason_apart(o, &o->solutions.data[o->solution_of[i]], from - o->begin, to - o->begin);
    return e->reason ? NULL
                     : "the program is cut between them into parts that are solved one by one";
  }
  return "the kernels that were given keep them apart";
}

static void decide_edges(orchestrating *o, kiln_edge_decisions *io) {
  const kiln_device *d = o->costs.options->machine->device;
  for (int i = 0; i < io->n; i++) {
    kiln_edge_decision *e = &io->data[i];
    kiln_group_kind kind = KILN_GROUP_MAP;
    if (is_in_one(o, e->producer, e->consumer, &kind)) {
      const int level = d ? kiln_device_level(d, kind == KILN_GROUP_CONTRACTION ? "registers"
                                                 : kind == KILN_GROUP_ROWS      ? "L1"
                                                                                : "L2")
                          : 1;
      if (e->level == 0) e->level = level > 0 ? level : 1;
      e->reason = NULL;
    } else {
      const char *reason = find_reason(o, e);
      if (reason) e->reason = reason;
      else if (!e->reason) e->reason = "no kernel of both was a candidate";
      e->level = 0;
    }
  }
}

static void count_repeated(orchestrating *o) {
  int *runs = KILN_NEW_ARRAY(&o->cx->scratch, int, o->p->stmts.n);
  for (int i = 0; i < o->out->kernels.n; i++)
    for (int k = 0; k < o->out->kernels.data[i].group.n_stmts; k++)
      o->out->n_repeated += ++runs[o->out->kernels.data[i].group.stmts[k]] == 2;
}

// Measured over predicted time for cost-driven fusion's kernels, if they were measured.
static void find_ratios(orchestrating *o) {
  for (int i = 0; i < o->first->n; i++) {
    const kiln_fused_group *one = &o->first->data[i];
    const kiln_searched found = {one->outline.prog, one->outline.facts, one->candidates,
                                 one->outline.key, one->group.kind};
    const double measured = kiln_costing_measured(&o->costs, &found),
                 predicted = kiln_costing_predicted(&o->costs, one->candidates);
    for (int k = kiln_bits_next(o->first_sets[i], 0); k >= 0 && measured > 0 && isfinite(predicted);
         k = kiln_bits_next(o->first_sets[i], k + 1))
      o->costs.own[k].ratio = measured / predicted;
  }
}

static kiln_status solve_all(orchestrating *o) {
  KILN_TRY(kiln_costing_begin(&o->costs));
  if (o->costs.measured) find_ratios(o);
  o->cuts = kiln_prims_cut(o->cx, &o->prims, keys_of(o), o->first->n,
                           (const kiln_bits *const *)o->first_sets, MIN_PART, MAX_PART);
  o->solution_of = KILN_NEW_ARRAY(&o->cx->scratch, int, o->cuts.n);
  o->out->n_parts = o->cuts.n;
  for (int i = 0; i < o->cuts.n; i++) {
    o->begin = o->cuts.cuts[i];
    o->end = o->cuts.cuts[i + 1];
    o->n_left = o->cuts.n - i;
    KILN_TRY(orchestrate_part(o, i));
  }
  return KILN_OK;
}

kiln_status kiln_orchestrate(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                             const kiln_tile_search_options *search, kiln_searches *known,
                             const kiln_orchestrate_options *options, kiln_fused_groups *io,
                             kiln_edge_decisions *io_edges, kiln_orchestration *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const double begin = seconds();
  kiln_orchestrate_spent nothing = {0};
  *out = (kiln_orchestration){.is_given = options->given != NULL};
  orchestrating o = {.cx = cx,
                     .p = p,
                     .options = options,
                     .limits = options->limits.prims ? options->limits : kiln_orchestrate_limits(),
                     .prims = kiln_prims_of(cx, p, facts),
                     .first = io,
                     .first_sets = KILN_NEW_ARRAY(&cx->scratch, kiln_bits *, io->n),
                     .spent = options->spent ? options->spent : &nothing,
                     .out = out};
  o.costs = (kiln_costing){.cx = cx,
                           .p = p,
                           .facts = facts,
                           .prims = &o.prims,
                           .options = search,
                           .known = known,
                           .measured = options->measured,
                           .user = options->user};
  kiln_map_init(&o.by_form, &cx->perm);
  for (int i = 0; i < io->n; i++) o.first_sets[i] = prims_of_group(&o, &io->data[i].group);
  out->n_prims = o.prims.n;
  kiln_status st = options->given ? kiln_orchestration_read(cx, p, facts, &o.prims, search->machine,
                                                            options->given, out)
                                  : solve_all(&o);
  if (st == KILN_OK) count_repeated(&o);
  if (st == KILN_OK) decide_edges(&o, io_edges);
  if (st == KILN_OK) st = make_parts(&o, io);
  out->n_forms = o.costs.n_forms;
  out->search_s = seconds() - begin - out->solve_s;
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}
