// Sets with several ends: from every state, sets of prims that can be executed next, grown by one
// prim at a time. Sets with one end: grown backwards from the end.
#include "orchestrate/candidates.h"

enum {
  MAX_OPTIONAL = 6, // optional results of a kernel: all their subsets are tried
  MAX_SETS = 4096   // differences from one state
};

typedef struct finding {
  kiln_arena *arena, *work;
  const kiln_prim_graph *g;
  const kiln_candidate_limits *limits;
  int most;             // current limit of candidates
  kiln_bits_table seen; // all differences so far
  kiln_candidates out;
} finding;

// --- results ---

static bool is_connected(const finding *f, const kiln_bits *prims) {
  const int n = f->g->n, first = kiln_bits_next(prims, 0);
  kiln_bits *reached = kiln_bits_make(f->arena, n);
  kiln_bits_set(reached, first);
  for (bool grown = true; grown;) {
    grown = false;
    for (int i = first; i >= 0; i = kiln_bits_next(prims, i + 1)) {
      if (kiln_bits_has(reached, i)) continue;
      if (!kiln_bits_meet(f->g->reads[i], reached) && !kiln_bits_meet(f->g->readers[i], reached))
        continue;
      kiln_bits_set(reached, i);
      grown = true;
    }
  }
  return kiln_bits_is_subset(prims, reached);
}

static void add(finding *f, const kiln_bits *prims, const kiln_bits *results) {
  if (f->out.all.n < f->most)
    KILN_VEC_PUSH(f->arena, &f->out.all,
                  (kiln_kernel_set){prims, kiln_bits_copy(f->arena, results)});
  else f->out.candidates_capped = true;
}

// Adds a candidate for each subset of the optional results, in addition to the ends.
static void add_choices(finding *f, const kiln_bits *prims, const kiln_bits *ends, int n_ends) {
  int optional[MAX_OPTIONAL], n = 0;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) {
    const bool is_read =
        !kiln_bits_is_subset(f->g->readers[i], prims) || kiln_bits_has(f->g->needed, i);
    if (!kiln_bits_has(ends, i) && is_read && n < MAX_OPTIONAL) optional[n++] = i;
  }
  for (unsigned choice = 0; choice < 1u << n; choice++) {
    kiln_bits *results = kiln_bits_copy(f->arena, ends);
    if (n_ends + __builtin_popcount(choice) > f->limits->results) continue;
    for (int k = 0; k < n; k++)
      if (choice >> k & 1) kiln_bits_set(results, optional[k]);
    add(f, prims, results);
  }
}

static void offer(finding *f, const kiln_bits *prims) {
  const kiln_mark mark = kiln_arena_mark(f->arena);
  kiln_bits *ends = kiln_bits_make(f->arena, f->g->n);
  int n_ends = 0;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1))
    if (!kiln_bits_meet(f->g->readers[i], prims)) kiln_bits_set(ends, i), n_ends++;
  const bool may = (n_ends == 1 || (f->limits->several_ends && is_connected(f, prims))) &&
                   n_ends <= f->limits->results &&
                   (!f->limits->may_be || f->limits->may_be(f->limits->user, prims));
  if (may) add_choices(f, prims, ends, n_ends);
  else kiln_arena_rewind(f->arena, mark);
}

// --- differences ---

// Extends set |at| of |local| by each prim that is ready; new sets become candidates.
static void grow(finding *f, const kiln_bits *state, int at, kiln_bits_table *local) {
  kiln_bits *all = kiln_bits_copy(f->work, state), *next = kiln_bits_make(f->work, f->g->n);
  bool is_new = false;
  kiln_bits_add(all, local->sets.data[at]);
  for (int i = 0; i < f->g->n; i++) {
    if (!kiln_state_is_ready(f->g, all, i)) continue;
    if (local->sets.n >= MAX_SETS) f->out.candidates_capped = true;
    if (local->sets.n >= MAX_SETS) return;
    kiln_bits_remove(next, next);
    kiln_bits_add(next, local->sets.data[at]);
    kiln_bits_set(next, i);
    kiln_bits_table_add(local, next, &is_new);
    if (!is_new) continue;
    const int number = kiln_bits_table_add(&f->seen, next, &is_new);
    if (is_new) offer(f, f->seen.sets.data[number]);
  }
}

// Enumerates the differences of later states from |state|, small ones first.
static void leave(finding *f, const kiln_bits *state) {
  const kiln_mark mark = kiln_arena_mark(f->work);
  const kiln_candidate_limits *l = f->limits;
  kiln_bits_table local; // differences from this state
  bool is_new = false;
  kiln_bits_table_init(&local, f->work);
  kiln_bits_table_add(&local, kiln_bits_make(f->work, f->g->n), &is_new); // the empty set
  for (int at = 0; at < local.sets.n; at++) {
    const int n = kiln_bits_count(local.sets.data[at]);
    if (n == 0 || (n < l->prims && (!l->may_grow || l->may_grow(l->user, local.sets.data[at]))))
      grow(f, state, at, &local);
  }
  kiln_arena_rewind(f->work, mark);
}

// --- sets of one end ---

// A convex set with a single end is a set of the end's ancestors that has, with every prim, all its
// readers among the ancestors. Prims are added in front of the first, so that each set is
// enumerated once, after its subsets. There may be far fewer of these sets than states, whose
// number grows exponentially with the number of parallel branches.
typedef struct ending {
  kiln_bits *prims;
  int first;
} ending;

static kiln_bits *leads_to(const finding *f, int end) {
  kiln_bits *leads = kiln_bits_make(f->work, f->g->n);
  kiln_bits_set(leads, end);
  for (int i = end; i >= 0; i--)
    if (kiln_bits_has(leads, i)) kiln_bits_add(leads, f->g->reads[i]);
  return leads;
}

static void end_in(finding *f, int end) {
  const kiln_mark mark = kiln_arena_mark(f->work);
  const kiln_candidate_limits *l = f->limits;
  const kiln_bits *leads = leads_to(f, end);
  KILN_VEC(ending) sets = {0};
  ending one = {kiln_bits_make(f->work, f->g->n), end};
  kiln_bits_set(one.prims, end);
  KILN_VEC_PUSH(f->work, &sets, one);
  for (int at = 0; at < sets.n; at++) {
    const ending x = sets.data[at];
    f->out.n_differences++;
    if (at > 0) offer(f, kiln_bits_copy(f->arena, x.prims));
    if (f->out.candidates_capped && f->out.all.n >= f->most) break;
    if (kiln_bits_count(x.prims) == l->prims || (l->may_grow && !l->may_grow(l->user, x.prims)))
      continue;
    for (int i = kiln_bits_next(leads, 0); i < x.first; i = kiln_bits_next(leads, i + 1)) {
      ending more = {kiln_bits_copy(f->work, f->g->readers[i]), i};
      kiln_bits_keep(more.prims, leads);
      if (!kiln_bits_is_subset(more.prims, x.prims)) continue;
      f->out.candidates_capped |= sets.n >= l->states;
      if (sets.n >= l->states) break;
      kiln_bits_add(more.prims, x.prims);
      kiln_bits_set(more.prims, i);
      KILN_VEC_PUSH(f->work, &sets, more);
    }
  }
  kiln_arena_rewind(f->work, mark);
}

kiln_candidates kiln_candidates_of(kiln_arena *arena, kiln_arena *work, const kiln_prim_graph *g,
                                   const kiln_candidate_limits *limits) {
  finding f = {.arena = arena, .work = work, .g = g, .limits = limits, .most = limits->candidates};
  kiln_bits_table_init(&f.seen, arena);
  const kiln_states states = kiln_states_of(arena, g, limits->states);
  f.out.n_states = states.table.sets.n;
  f.out.states_capped = states.is_capped;
  for (int i = 0; i < g->n; i++) { // single prims, regardless of limits
    kiln_bits *one = kiln_bits_make(arena, g->n);
    bool is_new;
    kiln_bits_set(one, i);
    kiln_bits_table_add(&f.seen, one, &is_new);
    add(&f, one, one);
  }
  if (!limits->several_ends)
    for (int i = 0; i < g->n; i++) { // each end gets a share of the remaining candidates
      f.most = f.out.all.n + (limits->candidates - f.out.all.n) / (g->n - i);
      end_in(&f, i);
    }
  else {
    for (int s = 0; s < states.table.sets.n && !f.out.candidates_capped; s++)
      leave(&f, states.table.sets.data[s]);
    f.out.n_differences = f.seen.sets.n;
    f.out.candidates_capped |= states.is_capped;
  }
  return f.out;
}
