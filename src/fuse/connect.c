// Cost-driven fusion along edges of the program.
#include "fuse/connect.h"

#include "price/gpu_work.h"

#include <math.h>
#include <string.h>

enum {
  MAX_PRODUCERS = 16,
  MAX_ATTEMPTS = 24,
  MANY_STMTS = 8 // a kernel of rows that has so many statements tries several producers at a time
};

// Costs are estimates, so fusion must gain more than this share of the cheapest group's cost.
static const double WORTH = 0.05;
// Fusing a producer whose result is stored anyway saves only a load, which is less than the error
// of large kernels' estimates. It must gain this share of all groups' costs; the second share holds
// where several contractions meet.
static const double STORED_WORTH = 0.01, STORED_CHAIN_WORTH = 0.06;

// A fusion group while it grows.
typedef struct fusion {
  kiln_fused_group out; // outlined at the end
  kiln_searched found;  // the candidates of its canonical form
  double compute_ns;    // of its statements as kernels of their own
  int into;             // the group that has taken this one in; -1: none
} fusion;

// Growth steps of a kernel since its loops were last made.
typedef struct unlowered {
  fusion before; // the kernel before these steps
  double apart;  // the cost of |before| and of the groups that it has taken in, as separate kernels
  int n, taken[KILN_MAX_MEMBERS];
} unlowered;

typedef struct connecting {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
  const kiln_tile_search_options *options;
  kiln_users users;
  int n;
  fusion *fusions;
  int *fusion_of;    // by statement, its group; -1: it is not run
  kiln_loads *loads; // by statement
  kiln_searches *known;
  unlowered steps;  // of the kernel that grows
  bool lowers_all;  // each step's loops are made
  kiln_map reasons; // by (producer, consumer) that were not fused: the reason's number in |why|
  KILN_VEC(const char *) why;
} connecting;

typedef struct fusion_set {
  int n;
  int data[KILN_MAX_MEMBERS];
} fusion_set;

static bool in_set(const fusion_set *s, int id) {
  for (int i = 0; i < s->n; i++)
    if (s->data[i] == id) return true;
  return false;
}

// --- prices ---

static bool has_contraction(const connecting *c, const kiln_group *g) {
  const kiln_expr *a = NULL, *b = NULL;
  for (int i = 0; i < g->n_stmts; i++)
    if (kiln_stmt_is_contraction(c->p->stmts.data[g->stmts[i]], &a, &b)) return true;
  return false;
}

// Whether |one| is a padding that its reader takes in, or that will be written in place.
static bool is_waiting(const connecting *c, const fusion *one) {
  const kiln_group *g = &one->out.group;
  return kiln_fact_of(c->facts, c->p->stmts.data[g->stmts[g->n_stmts - 1]]->out).waits;
}

// The cost of a group as its own kernel. A padding that nobody takes in is written in place: its
// kernel then costs only the border, and also the copy if it pads an input.
static double price_apart(connecting *c, const fusion *one) {
  const double whole = kiln_tile_price(one->found.candidates);
  if (!is_waiting(c, one)) return whole;
  const kiln_stmt *s = c->p->stmts.data[one->out.group.stmts[0]];
  const kiln_expr *load = kiln_stmt_largest_load(c->cx, c->p, s);
  if (c->p->tensors.data[load->u.tensor]->role == KILN_INPUT) return whole;
  const int64_t filled = kiln_tensor_elems(c->p->tensors.data[load->u.tensor]),
                all = kiln_tensor_elems(c->p->tensors.data[s->out]);
  return whole * (double)(all - filled) / (double)all;
}

static bool has_grids(const connecting *c) { return c->options->machine->target->has_grids; }

// Raises the costs of |whole| by the inner loss: fused groups compute slower because a block has
// smaller tiles, more so if products with windows are among them.
static void price_together(connecting *c, const fusion_set *s, const kiln_searched *whole) {
  double compute_ns = 0, loss = KILN_INNER_LOSS;
  for (int i = 0; i < s->n; i++) {
    const fusion *one = &c->fusions[s->data[i]];
    compute_ns += one->compute_ns;
    if (has_contraction(c, &one->out.group))
      loss = fmax(loss, kiln_tile_cheapest(one->found.candidates)->from->inner_loss);
  }
  kiln_searched_bound(c->cx, whole, loss * compute_ns);
}

// The candidates of |g|, the union of the groups |s|; |s| NULL: |g| is one group.
static kiln_status search(connecting *c, const kiln_group *g, const fusion_set *s,
                          kiln_searched *out) {
  bool is_new = false;
  KILN_TRY(kiln_searches_find(c->cx, c->known, c->p, c->facts, g, c->options, out, &is_new));
  if (is_new && s && !has_grids(c)) price_together(c, s, out);
  return KILN_OK;
}

// The cost of a group on a GPU by the loops of its kernel, or of those of its parts.
static kiln_status price_lowered(connecting *c, const fusion *one, double *out) {
  const double parts = one->out.group.parts_ns;
  KILN_TRY(kiln_tile_price_lowered(c->cx, c->options, one->found.candidates, out));
  if (parts > 0) *out = fmin(*out, parts);
  return KILN_OK;
}

static const char *name_of(const connecting *c, int tensor) {
  return kiln_symbol_text(c->cx, c->p->tensors.data[tensor]->name);
}

static int result_of(const connecting *c, const fusion *p) {
  return c->p->stmts.data[p->out.group.stmts[p->out.group.n_stmts - 1]]->out;
}

// --- reasons ---

static const char *time_text(connecting *c, double ns) {
  if (!isfinite(ns)) return "unknown";
  return ns < 1e5 ? kiln_arena_printf(&c->cx->perm, "%.1f us", ns * 1e-3)
                  : kiln_arena_printf(&c->cx->perm, "%.0f us", ns * 1e-3);
}

// Names the cache that a tile of |one| exceeds, as text to append to a message; "" if none.
static const char *overflow_text(connecting *c, const kiln_tile_candidate *one) {
  const kiln_device *d = c->options->machine->device;
  for (int l = 1; d && l < d->n_levels; l++) {
    const double held = one->cost.footprint[l],
                 usable = (double)d->levels[l].capacity_bytes * d->levels[l].usable;
    if (held > usable)
      return kiln_arena_printf(&c->cx->perm, "; a tile would hold %.3g MiB at %s", held / (1 << 20),
                               d->levels[l].name);
  }
  return "";
}

static uint64_t key_of(int producer, int consumer) {
  return (uint64_t)(uint32_t)producer << 32 | (uint32_t)consumer;
}

static void refuse(connecting *c, int producer, int consumer, const char *why) {
  const uint64_t key = key_of(producer, consumer), *known = kiln_map_find(&c->reasons, key);
  if (known) {
    c->why.data[*known] = why;
    return;
  }
  kiln_map_put(&c->reasons, key, (uint64_t)c->why.n);
  KILN_VEC_PUSH(&c->cx->scratch, &c->why, why);
}

static const char *refused_why(const connecting *c, int producer, int consumer) {
  const uint64_t *known = kiln_map_find(&c->reasons, key_of(producer, consumer));
  return known ? c->why.data[*known] : NULL;
}

// --- which producers may be fused ---

// Whether a kernel of |s| must store tensor |t|: it is an output, or statements outside of |s| read
// it, of which |out_first| is the first (-1: none).
static bool is_stored(const connecting *c, const fusion_set *s, int t, int *out_first) {
  *out_first = -1;
  for (int u = c->users.first[t]; u < c->users.first[t + 1] && *out_first < 0; u++) {
    const int reader = c->fusion_of[c->users.users[u]];
    if (reader < 0 || !in_set(s, reader)) *out_first = c->users.users[u];
  }
  return *out_first >= 0 || c->p->tensors.data[t]->role != KILN_TEMP;
}

static int last_stmt(const connecting *c, int id) {
  const kiln_group *g = &c->fusions[id].out.group;
  return g->stmts[g->n_stmts - 1];
}

// Whether a statement of |one| reads |tensor|.
static bool group_reads(const connecting *c, const fusion *one, int tensor) {
  for (int i = 0; i < one->out.group.n_stmts; i++) {
    const kiln_loads loads = c->loads[one->out.group.stmts[i]];
    for (int k = 0; k < loads.n; k++)
      if (loads.data[k]->u.tensor == tensor) return true;
  }
  return false;
}

// Why |producer| may not be computed in the kernel of |s|, whose last statement is the last of the
// first group. NULL if all readers of its result are in |s|, or run after it: the result is then
// stored as well.
static const char *closed_reason(connecting *c, const fusion_set *s, int producer) {
  const fusion *p = &c->fusions[producer];
  const kiln_tensor *t = c->p->tensors.data[result_of(c, p)];
  int first = -1;
  // A scatter, or another statement with initial values or a guard, keeps its order and its axes.
  const fusion *scatter = p->out.group.kind == KILN_GROUP_SCATTER ? p : NULL;
  for (int i = 0; i < s->n && !scatter; i++)
    if (c->fusions[s->data[i]].out.group.kind == KILN_GROUP_SCATTER)
      scatter = &c->fusions[s->data[i]];
  if (scatter)
    return kiln_arena_printf(&c->cx->perm, "%s is written at indices that are data",
                             name_of(c, result_of(c, scatter)));
  if (t->inside)
    return kiln_arena_printf(&c->cx->perm, "%s is a part of %s", name_of(c, t->id),
                             name_of(c, t->inside->id));
  const kiln_tensor *result = c->p->tensors.data[result_of(c, &c->fusions[s->data[0]])];
  if (result->inside && group_reads(c, p, result->inside->id))
    return kiln_arena_printf(&c->cx->perm, "%s is stored over %s, of which all is read before",
                             name_of(c, result->id), name_of(c, result->inside->id));
  if (!is_stored(c, s, t->id, &first) || first < 0 || first > last_stmt(c, s->data[0])) return NULL;
  return kiln_arena_printf(&c->cx->perm, "%s is also read by %s, before both are done",
                           name_of(c, t->id), name_of(c, c->p->stmts.data[first]->out));
}

// The groups that compute what the groups of |s| read, the latest first.
static fusion_set producers_of(const connecting *c, const fusion_set *s) {
  fusion_set found = {0};
  for (int i = 0; i < s->n; i++) {
    const kiln_group *g = &c->fusions[s->data[i]].out.group;
    for (int j = 0; j < g->n_stmts; j++) {
      const kiln_loads loads = c->loads[g->stmts[j]];
      for (int k = 0; k < loads.n; k++) {
        const int def = c->p->tensors.data[loads.data[k]->u.tensor]->def,
                  from = def < 0 ? -1 : c->fusion_of[def];
        if (from < 0 || in_set(s, from) || in_set(&found, from) || found.n == MAX_PRODUCERS)
          continue;
        int at = found.n++;
        for (; at > 0 && found.data[at - 1] < from; at--) found.data[at] = found.data[at - 1];
        found.data[at] = from;
      }
    }
  }
  return found;
}

// --- growth ---

static kiln_group united(connecting *c, const fusion_set *s) {
  kiln_group g = {.kind = KILN_GROUP_ROWS};
  int n = 0, first;
  for (int i = 0; i < s->n; i++) n += c->fusions[s->data[i]].out.group.n_stmts;
  g.stmts = KILN_NEW_ARRAY(&c->cx->perm, int, n);
  for (int i = 0; i < s->n; i++) {
    const kiln_group *from = &c->fusions[s->data[i]].out.group;
    for (int j = 0; j < from->n_stmts; j++) {
      int at = g.n_stmts++;
      for (; at > 0 && g.stmts[at - 1] > from->stmts[j]; at--) g.stmts[at] = g.stmts[at - 1];
      g.stmts[at] = from->stmts[j];
    }
    if (has_contraction(c, from)) g.kind = KILN_GROUP_FUSED_LAYERS;
  }
  for (int i = 0; i + 1 < n; i++)
    if (is_stored(c, s, c->p->stmts.data[g.stmts[i]]->out, &first)) g.stored |= (uint64_t)1 << i;
  if (has_grids(c))
    g.kind = kiln_tile_kind_of(c->cx, c->p, c->facts, c->options->machine, n, g.stmts, g.stored);
  return g;
}

// The statements of the fused kernel: each result that is stored besides the last one adds a copy.
static int count_stmts(const connecting *c, const fusion_set *s) {
  int n = 0, first;
  for (int i = 0; i < s->n; i++) {
    const kiln_group *g = &c->fusions[s->data[i]].out.group;
    n += g->n_stmts;
    for (int j = 0; j < g->n_stmts; j++)
      n += is_stored(c, s, c->p->stmts.data[g->stmts[j]]->out, &first);
  }
  return n - 1;
}

// The loads of all statements of |s|; a load that two statements share counts twice.
static int count_loads(const connecting *c, const fusion_set *s) {
  int n = 0;
  for (int i = 0; i < s->n; i++) {
    const kiln_group *g = &c->fusions[s->data[i]].out.group;
    for (int j = 0; j < g->n_stmts; j++) n += c->loads[g->stmts[j]].n;
  }
  return n;
}

static const char *refused_reason(connecting *c, const kiln_tile_candidates *found) {
  for (int i = 0; i < found->n; i++)
    if (found->data[i].refused)
      return kiln_arena_printf(&c->cx->perm, "%s refuses: %s", found->data[i].from->name,
                               found->data[i].refused);
  return "no template proposes a kernel of both";
}

// The launch latency that overlaps with other kernels, of the launches that fusing |n| groups
// saves.
static double hidden_ns(const connecting *c, int n) {
  return (n - 1) * kiln_gpu_hidden_ns(c->options->machine);
}

// The gain that fusing |s| must exceed; the groups cost |apart| separately, the cheapest |least|.
static double margin_of(const connecting *c, const fusion_set *s, bool stores, double apart,
                        double least) {
  int n = 0;
  for (int i = 0; i < s->n; i++) n += has_contraction(c, &c->fusions[s->data[i]].out.group);
  const double share = n > 1 ? STORED_CHAIN_WORTH : STORED_WORTH;
  return fmax(WORTH * least, stores ? share * apart : 0);
}

// A tentative fused kernel.
typedef struct whole {
  kiln_group group;
  kiln_searched found;
  // costs: of the separate kernels less hidden launches, of the cheapest one, of the fused kernel
  double apart, least, together;
} whole;

// Sums up what the groups of |s| take as separate kernels, |by_loops| or as templates proposed it.
static kiln_status add_apart(connecting *c, const fusion_set *s, bool by_loops, whole *out) {
  out->least = INFINITY;
  out->apart = -hidden_ns(c, s->n);
  for (int i = 0; i < s->n; i++) {
    double one = 0;
    if (by_loops) KILN_TRY(price_lowered(c, &c->fusions[s->data[i]], &one));
    else one = price_apart(c, &c->fusions[s->data[i]]);
    out->apart += one;
    out->least = fmin(out->least, one);
  }
  return KILN_OK;
}

// Prices the kernel of |io|'s candidates, and on GPUs the groups of |s| apart as it is priced: by
// loops, if the cheapest candidate is, else as proposed.
static kiln_status compare(connecting *c, const fusion_set *s, whole *io) {
  const kiln_tile_candidate *best = kiln_tile_cheapest(io->found.candidates);
  io->together = kiln_tile_price(io->found.candidates);
  if (!has_grids(c) || !best || !best->from->by_loops || c->options->by_loops) return KILN_OK;
  KILN_TRY(add_apart(c, s, true, io));
  if (io->together >= io->apart) return KILN_OK; // proposals are below the price of loops
  return kiln_tile_price_lowered(c->cx, c->options, io->found.candidates, &io->together);
}

// Estimates the cost of fusing |s|, whose first group reads the others.
//
// gives: *out_why, why |s| cannot be one kernel; NULL if it may
static kiln_status weigh(connecting *c, const fusion_set *s, whole *out, const char **out_why) {
  const int n_stmts = count_stmts(c, s), n_loads = count_loads(c, s);
  *out = (whole){0};
  KILN_TRY(add_apart(c, s, false, out));
  *out_why = NULL;
  if (n_stmts > KILN_MAX_MEMBERS - 1)
    *out_why = kiln_arena_printf(&c->cx->perm, "a kernel has at most %d statements, theirs has %d",
                                 KILN_MAX_MEMBERS - 1, n_stmts);
  else if (n_loads > KILN_MOST_LOADS)
    *out_why = kiln_arena_printf(&c->cx->perm, "a kernel has at most %d loads, theirs has %d",
                                 KILN_MOST_LOADS, n_loads);
  else if (!isfinite(out->apart)) *out_why = "the cost of one of them is unknown";
  if (*out_why) return KILN_OK;
  out->group = united(c, s);
  if (!has_grids(c) && out->group.kind == KILN_GROUP_ROWS && !out->group.stored) {
    *out_why = "they share no rows, and neither has a contraction";
    return KILN_OK;
  }
  KILN_TRY(search(c, &out->group, s, &out->found));
  return compare(c, s, out);
}

// Whether loops of |g| are made once, after it has grown: making them at each step would take as
// long each time as making the final kernel's.
static bool may_wait(const connecting *c, const kiln_group *g) {
  return !c->lowers_all && !has_grids(c) && g->kind == KILN_GROUP_ROWS;
}

// Records that the first group of |s| takes the others in.
static void note_step(connecting *c, const fusion_set *s) {
  unlowered *u = &c->steps;
  if (u->n == 0) {
    u->before = c->fusions[s->data[0]];
    u->apart = price_apart(c, &u->before);
  }
  for (int i = 1; i < s->n && u->n < KILN_MAX_MEMBERS; i++) {
    u->apart += price_apart(c, &c->fusions[s->data[i]]);
    u->taken[u->n++] = s->data[i];
  }
}

static void own_stmts(connecting *c, int id) {
  const kiln_group *g = &c->fusions[id].out.group;
  for (int i = 0; i < g->n_stmts; i++) c->fusion_of[g->stmts[i]] = id;
}

// Makes the loops of the grown group |root|. Its growth is undone if no template can make them, or
// if the kernel costs more than the separate ones.
//
// gives: *out_stays, whether the growth stays
static kiln_status lower_grown(connecting *c, int root, bool *out_stays) {
  unlowered *u = &c->steps;
  fusion *p = &c->fusions[root];
  *out_stays = true;
  if (u->n == 0) return KILN_OK;
  KILN_TRY(kiln_searched_lower(c->cx, c->options, &p->found));
  *out_stays = kiln_tile_price(p->found.candidates) < u->apart;
  if (!*out_stays) {
    *p = u->before;
    for (int i = 0; i < u->n; i++) {
      c->fusions[u->taken[i]].into = -1;
      own_stmts(c, u->taken[i]);
    }
    own_stmts(c, root);
  }
  u->n = 0;
  return KILN_OK;
}

// Fuses |s|, estimated as |io|, if the kernel costs less than the separate ones by more than
// |lost|. A negative |lost| stands for a gain that the costs leave out.
//
// gives: *out_why, why not; NULL if |s| was fused
static kiln_status settle(connecting *c, const fusion_set *s, whole *io, double lost,
                          const char **out_why) {
  const double bar =
      io->apart - lost - margin_of(c, s, io->group.stored != 0, io->apart, io->least);
  const bool waits = may_wait(c, &io->group);
  double together = io->together;
  if (together < bar && !waits) {
    KILN_TRY(kiln_searched_lower(c->cx, c->options, &io->found));
    KILN_TRY(has_grids(c)
                 ? kiln_tile_price_lowered(c->cx, c->options, io->found.candidates, &together)
                 : KILN_OK);
  }
  if (!has_grids(c)) together = kiln_tile_price(io->found.candidates);
  *out_why = NULL;
  if (!isfinite(together)) *out_why = refused_reason(c, io->found.candidates);
  else if (!(together < bar))
    *out_why =
        kiln_arena_printf(&c->cx->perm, "cost %s, must be under %s: %s apart%s less a margin%s%s",
                          time_text(c, together), time_text(c, bar), time_text(c, io->apart),
                          lost < 0 ? " and what passes between them" : "",
                          lost > 0 ? " and what others would gain" : "",
                          overflow_text(c, kiln_tile_cheapest(io->found.candidates)));
  if (*out_why) return KILN_OK;
  fusion *root = &c->fusions[s->data[0]];
  if (waits) note_step(c, s);
  else c->steps.n = 0;
  root->out.group = io->group;
  root->found = io->found;
  for (int i = 1; i < s->n; i++) {
    c->fusions[s->data[i]].into = s->data[0];
    root->compute_ns += c->fusions[s->data[i]].compute_ns;
  }
  for (int i = 0; i < io->group.n_stmts; i++) c->fusion_of[io->group.stmts[i]] = s->data[0];
  return KILN_OK;
}

static kiln_status unite(connecting *c, const fusion_set *s, const char **out_why) {
  whole one;
  KILN_TRY(weigh(c, s, &one, out_why));
  return *out_why ? KILN_OK : settle(c, s, &one, 0, out_why);
}

// Adds to |s| the statements between its newest group and the nearest contractions above it, and
// these.
//
// gives: whether any was added
static bool reach_contractions(connecting *c, fusion_set *s) {
  const int before = s->n;
  for (int i = before - 1; i < s->n; i++) {
    const fusion_set one = {1, {s->data[i]}};
    if (has_contraction(c, &c->fusions[s->data[i]].out.group)) continue;
    const fusion_set from = producers_of(c, &one);
    for (int j = 0; j < from.n && s->n < KILN_MAX_MEMBERS; j++)
      if (!in_set(s, from.data[j]) && !closed_reason(c, s, from.data[j]))
        s->data[s->n++] = from.data[j];
  }
  return s->n > before;
}

static bool is_fixed(const connecting *c, const fusion *p) { // its kernel was chosen by a pass
  return kiln_fact_of(c->facts, c->p->stmts.data[p->out.group.stmts[0]]->out).kernel != 0;
}

// Tries |producer| alone, then together with everything up to the next contractions.
static kiln_status take_in(connecting *c, int root, int producer, bool *out_done) {
  fusion_set s = {1, {root}};
  const char *why = closed_reason(c, &s, producer);
  *out_done = false;
  if (!why) {
    s.data[s.n++] = producer;
    KILN_TRY(unite(c, &s, &why));
    *out_done = !why;
    if (why && !has_grids(c) && reach_contractions(c, &s)) {
      const char *more = NULL;
      KILN_TRY(unite(c, &s, &more));
      *out_done = !more;
      if (more) why = more;
    }
  }
  if (!*out_done) refuse(c, producer, root, why);
  return KILN_OK;
}

// |root| and the first |n| groups that it would take in one after the other.
static fusion_set next_parts(connecting *c, int root, int n) {
  fusion_set s = {1, {root}};
  for (bool found = true; found && s.n <= n;) {
    const fusion_set from = producers_of(c, &s);
    found = false;
    for (int i = 0; i < from.n && !found; i++) {
      const int one = from.data[i];
      found = !is_fixed(c, &c->fusions[one]) && !has_contraction(c, &c->fusions[one].out.group) &&
              !closed_reason(c, &s, one);
      if (found) s.data[s.n++] = one;
    }
  }
  return s;
}

// Takes in several groups at once, and halves their number as long as fusing them gains nothing.
//
// gives: *out_n, how many were taken in; 0: they must be tried one by one
static kiln_status take_several_in(connecting *c, int root, int most, int *out_n) {
  *out_n = 0;
  for (; most > 1 && *out_n == 0; most /= 2) {
    const fusion_set s = next_parts(c, root, most);
    const char *why = NULL;
    if (s.n < 3) return KILN_OK;
    most = s.n - 1;
    KILN_TRY(unite(c, &s, &why));
    if (!why) *out_n = most;
  }
  return KILN_OK;
}

// The number of groups that a kernel tries to take in next: as many as it has, once it has many.
static int most_at_once(const connecting *c, int root, int left) {
  const kiln_group *g = &c->fusions[root].out.group;
  if (!may_wait(c, g) || g->n_stmts < MANY_STMTS) return 1;
  return g->n_stmts < left ? g->n_stmts : left;
}

static kiln_status take_all_in(connecting *c, int root) {
  bool grown = !is_fixed(c, &c->fusions[root]) && !is_waiting(c, &c->fusions[root]);
  for (int attempts = 0; grown && attempts < MAX_ATTEMPTS;) {
    int n = 0;
    KILN_TRY(take_several_in(c, root, most_at_once(c, root, MAX_ATTEMPTS - attempts), &n));
    attempts += n;
    if (n > 0) continue;
    const fusion_set s = {1, {root}}, from = producers_of(c, &s);
    grown = false;
    for (int i = 0; i < from.n && !grown && attempts < MAX_ATTEMPTS; i++, attempts++)
      if (!is_fixed(c, &c->fusions[from.data[i]])) KILN_TRY(take_in(c, root, from.data[i], &grown));
  }
  return KILN_OK;
}

static kiln_status grow(connecting *c, int root) {
  bool stays = true;
  KILN_TRY(take_all_in(c, root));
  KILN_TRY(lower_grown(c, root, &stays));
  if (stays) return KILN_OK;
  c->lowers_all = true;
  const kiln_status st = take_all_in(c, root);
  c->lowers_all = false;
  return st;
}

// --- two products ---

// Whether group |id| is of |kind| and may still be fused.
static bool is_free(const connecting *c, int id, kiln_group_kind kind) {
  const fusion *p = &c->fusions[id];
  return p->into < 0 && !is_fixed(c, p) && !is_waiting(c, p) && p->out.group.kind == kind;
}

// The gain of fusing |root| and |producer|; 0 if there is none.
static kiln_status gain_of(connecting *c, int root, int producer, double *out) {
  const fusion_set s = {2, {root, producer}}, alone = {1, {root}};
  const char *why = closed_reason(c, &alone, producer);
  whole one;
  *out = 0;
  if (!why) KILN_TRY(weigh(c, &s, &one, &why));
  if (!why) *out = fmax(0, one.apart - one.together);
  return KILN_OK;
}

// The largest gain of fusing the product |id| with rows that compute its operand.
static kiln_status gain_in_front(connecting *c, int id, double *out) {
  const fusion_set one = {1, {id}}, from = producers_of(c, &one);
  *out = 0;
  for (int i = 0; i < from.n; i++) {
    double gain = 0;
    if (is_free(c, from.data[i], KILN_GROUP_ROWS)) KILN_TRY(gain_of(c, id, from.data[i], &gain));
    *out = fmax(*out, gain);
  }
  return KILN_OK;
}

// The largest gain of fusing the product |id| with rows that read its result.
static kiln_status gain_behind(connecting *c, int id, double *out) {
  const int result = result_of(c, &c->fusions[id]);
  *out = 0;
  for (int u = c->users.first[result]; u < c->users.first[result + 1]; u++) {
    const int reader = c->fusion_of[c->users.users[u]];
    double gain = 0;
    if (reader >= 0 && is_free(c, reader, KILN_GROUP_ROWS)) KILN_TRY(gain_of(c, reader, id, &gain));
    *out = fmax(*out, gain);
  }
  return KILN_OK;
}

// The time to store the results of the product |id| and to load them again. The costs of both
// products hide it behind their instructions; products with reductions of a few hundred terms are
// too short for that. Measured on an H200, six MLPs: 0.32, 0.35, 0.45 and 1.1 us a MB more than
// estimated from 12 MB on, nothing up to 4 MB.
static double passing_ns(const connecting *c, int id) {
  const kiln_tensor *t = c->p->tensors.data[result_of(c, &c->fusions[id])];
  const kiln_mem_level *memory = c->options->machine->device->levels, *l2 = memory + 1;
  const double bytes = (double)(kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype));
  const bool stays = bytes <= l2->usable * (double)l2->capacity_bytes;
  return 2 * bytes / (stays ? l2 : memory)->all_bytes_ns;
}

// On GPUs: fuses the product |root| with a product that it reads (back to back) if that gains more
// than fusing each with its rows.
static kiln_status join_products(connecting *c, int root) {
  const fusion_set one = {1, {root}}, from = producers_of(c, &one);
  if (!is_free(c, root, KILN_GROUP_CONTRACTION)) return KILN_OK;
  for (int i = 0; i < from.n; i++) {
    const int producer = from.data[i];
    const fusion_set s = {2, {root, producer}};
    double front = 0, behind = 0;
    whole both;
    if (!is_free(c, producer, KILN_GROUP_CONTRACTION)) continue;
    const double passing = passing_ns(c, producer);
    const char *why = closed_reason(c, &one, producer);
    if (!why) KILN_TRY(weigh(c, &s, &both, &why));
    if (!why && both.together < both.apart + passing) {
      KILN_TRY(gain_in_front(c, producer, &front));
      KILN_TRY(gain_behind(c, root, &behind));
    }
    if (!why) KILN_TRY(settle(c, &s, &both, front + behind - passing, &why));
    if (!why) return KILN_OK;
    refuse(c, producer, root, why);
  }
  return KILN_OK;
}

// --- decisions ---

// The level of memory through which the statements of one kernel pass their tiles.
static int inner_level(const connecting *c, const fusion *one) {
  const kiln_device *d = c->options->machine->device;
  if (!d) return 1;
  const char *name = "L2";
  if (one->out.group.kind == KILN_GROUP_CONTRACTION) name = "registers";
  if (one->out.group.kind == KILN_GROUP_ROWS) name = "L1";
  if (one->out.group.kind == KILN_GROUP_FUSED_LAYERS) {
    const int l1 = kiln_device_level(d, "L1");
    const kiln_tile_candidate *best = kiln_tile_cheapest(one->found.candidates);
    if (best && l1 > 0 && best->cost.footprint[l1] > 0 &&
        best->cost.footprint[l1] <= (double)d->levels[l1].capacity_bytes * d->levels[l1].usable)
      name = "L1";
  }
  const int level = kiln_device_level(d, name);
  return level > 0 ? level : 1;
}

static kiln_edge_decision decide(connecting *c, const kiln_stmt *consumer, int tensor) {
  const int def = c->p->tensors.data[tensor]->def, from = c->fusion_of[def],
            to = c->fusion_of[consumer->id];
  kiln_edge_decision d = {.producer = def, .consumer = consumer->id, .tensor = tensor};
  if (from == to) {
    d.level = inner_level(c, &c->fusions[to]);
    return d;
  }
  const fusion_set s = {1, {to}};
  d.reason = refused_why(c, from, to);
  if (from < 0) d.reason = "it is concatenated in place, by its producers";
  else if (!d.reason && tensor != result_of(c, &c->fusions[from]))
    d.reason = kiln_arena_printf(&c->cx->perm, "%s is reused and stored by the kernel of %s",
                                 name_of(c, tensor), name_of(c, result_of(c, &c->fusions[from])));
  else if (!d.reason) d.reason = closed_reason(c, &s, from);
  if (!d.reason && (is_fixed(c, &c->fusions[from]) || is_fixed(c, &c->fusions[to])))
    d.reason = "a pass chose the kernel of one of them: Winograd or flash attention";
  if (!d.reason)
    d.reason = c->options->no_connect ? "--no-connect" : "the budget of attempts is spent";
  return d;
}

static void record(connecting *c, kiln_edge_decisions *out) {
  for (int i = 0; i < c->p->stmts.n; i++) {
    const kiln_stmt *s = c->p->stmts.data[i];
    if (!s || c->fusion_of[i] < 0) continue;
    const kiln_loads loads = c->loads[i];
    for (int k = 0; k < loads.n; k++) {
      bool again = c->p->tensors.data[loads.data[k]->u.tensor]->def < 0;
      for (int j = 0; j < k; j++) again |= loads.data[j]->u.tensor == loads.data[k]->u.tensor;
      if (!again) KILN_VEC_PUSH(&c->cx->perm, out, decide(c, s, loads.data[k]->u.tensor));
    }
  }
}

// --- the whole ---

static kiln_status begin(connecting *c, const kiln_groups *groups) {
  c->n = groups->n;
  c->fusions = KILN_NEW_ARRAY(&c->cx->scratch, fusion, groups->n);
  c->fusion_of = KILN_NEW_ARRAY(&c->cx->scratch, int, c->p->stmts.n);
  c->loads = KILN_NEW_ARRAY(&c->cx->scratch, kiln_loads, c->p->stmts.n);
  for (int i = 0; i < c->p->stmts.n; i++) {
    const kiln_stmt *s = c->p->stmts.data[i];
    c->fusion_of[i] = -1;
    if (s) c->loads[i] = kiln_stmt_loads(c->cx, &c->cx->scratch, c->p, s);
  }
  for (int i = 0; i < groups->n; i++) {
    c->fusions[i] = (fusion){.out.group = groups->data[i], .into = -1};
    for (int j = 0; j < groups->data[i].n_stmts; j++) c->fusion_of[groups->data[i].stmts[j]] = i;
    KILN_TRY(search(c, &groups->data[i], NULL, &c->fusions[i].found));
    c->fusions[i].compute_ns = kiln_tile_cheapest(c->fusions[i].found.candidates)->cost.compute_ns;
  }
  return KILN_OK;
}

kiln_status kiln_tile_connect_groups(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                     kiln_groups *groups, const kiln_tile_search_options *options,
                                     kiln_searches *known, kiln_fused_groups *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  connecting c = {.known = known,
                  .cx = cx,
                  .p = p,
                  .facts = facts,
                  .options = options,
                  .users = kiln_users_make(cx, &cx->scratch, p)};
  *out = (kiln_fused_groups){0};
  kiln_map_init(&c.reasons, &cx->scratch);
  kiln_status st = begin(&c, groups);
  const int n_grown = options->no_connect ? 0 : c.n;
  for (int i = n_grown - 1; st == KILN_OK && has_grids(&c) && i >= 0; i--)
    st = join_products(&c, i);
  for (int i = n_grown - 1; st == KILN_OK && i >= 0; i--)
    if (c.fusions[i].into < 0) st = grow(&c, i);
  if (st == KILN_OK) record(&c, &groups->edges);
  for (int i = 0; st == KILN_OK && i < c.n; i++) {
    kiln_fused_group *one = &c.fusions[i].out;
    if (c.fusions[i].into >= 0) continue;
    st = kiln_tile_outline(cx, p, facts, &one->group, options->machine, &one->outline);
    one->candidates = c.fusions[i].found.candidates;
    KILN_VEC_PUSH(&cx->perm, out, *one);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}
