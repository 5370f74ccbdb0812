#include "fuse/split.h"

#include "price/gpu_work.h"

#include <math.h>

// The share of a group's price that its parts may have. Measured on an H200, 7 x 7 windows whose
// threads are mapped for the normalization behind them take 0.20 to 0.28 of the price of their
// loops, sums of columns in turns less than half; kernels whose threads are mapped well, all of it.
static const double WORTH = 0.25;

typedef struct splitting {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
  const kiln_tile_search_options *options;
  kiln_searches *known;
} splitting;

// A group in two: |front| computes a tensor, and is all that it needs in the group.
typedef struct cut {
  kiln_group front, rest;
  double ns;
} cut;

// The cheapest candidate of |g|, and its price by its loops.
static kiln_status find(splitting *s, const kiln_group *g, const kiln_tile_candidate **out,
                        double *out_ns) {
  kiln_searched found;
  bool is_new = false;
  KILN_TRY(kiln_searches_find(s->cx, s->known, s->p, s->facts, g, s->options, &found, &is_new));
  KILN_TRY(kiln_tile_price_lowered(s->cx, s->options, found.candidates, out_ns));
  *out = kiln_tile_cheapest(found.candidates);
  return KILN_OK;
}

static bool reads(splitting *s, const kiln_stmt *reader, int tensor) {
  const kiln_mark mark = kiln_arena_mark(&s->cx->scratch);
  const kiln_loads loads = kiln_stmt_loads(s->cx, &s->cx->scratch, s->p, reader);
  bool found = false;
  for (int i = 0; i < loads.n; i++) found |= loads.data[i]->u.tensor == tensor;
  kiln_arena_rewind(&s->cx->scratch, mark);
  return found;
}

static const kiln_stmt *stmt_of(const splitting *s, const kiln_group *g, int i) {
  return s->p->stmts.data[g->stmts[i]];
}

// The statements of |g| that statement |at| needs, itself included, as a bit mask.
static uint64_t needed_by(splitting *s, const kiln_group *g, int at) {
  uint64_t needed = (uint64_t)1 << at;
  for (int i = at; i > 0; i--)
    for (int j = 0; j < i && needed >> i & 1; j++)
      if (reads(s, stmt_of(s, g, i), stmt_of(s, g, j)->out)) needed |= (uint64_t)1 << j;
  return needed;
}

// Whether the statements of |g| outside of |front| read no result of it but that of |at|.
static bool is_closed(splitting *s, const kiln_group *g, uint64_t front, int at) {
  for (int i = 0; i < g->n_stmts; i++)
    for (int j = 0; j < i && !(front >> i & 1); j++)
      if (j != at && front >> j & 1 && reads(s, stmt_of(s, g, i), stmt_of(s, g, j)->out))
        return false;
  return true;
}

static kiln_group part_of(splitting *s, const kiln_group *g, uint64_t which) {
  kiln_group part = {.stmts = KILN_NEW_ARRAY(&s->cx->perm, int, g->n_stmts)};
  for (int i = 0; i < g->n_stmts; i++)
    if (which >> i & 1) part.stmts[part.n_stmts++] = g->stmts[i];
  part.kind =
      kiln_tile_kind_of(s->cx, s->p, s->facts, s->options->machine, part.n_stmts, part.stmts, 0);
  return part;
}

// Time that two kernels take at least where one takes |whole|: that of its traffic, of storing and
// loading |t|, and of the second launch.
static double least_apart(const splitting *s, const kiln_tile_candidate *whole,
                          const kiln_tensor *t) {
  const kiln_device *d = s->options->machine->device;
  const double bytes = 2.0 * (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
  return whole->cost.level_ns[0] + 2 * d->launch_ns - kiln_gpu_hidden_ns(s->options->machine) +
         bytes / d->levels[1].all_bytes_ns;
}

// Prices |g|, which takes |whole|, cut behind statement |at|; it replaces |io| if it takes less.
static kiln_status try_cut(splitting *s, const kiln_group *g, const kiln_tile_candidate *whole,
                           int at, cut *io) {
  const kiln_stmt *last = stmt_of(s, g, at);
  const kiln_tile_candidate *best = NULL;
  double front = 0, rest = 0;
  if (least_apart(s, whole, s->p->tensors.data[last->out]) >= io->ns) return KILN_OK;
  const uint64_t needed = needed_by(s, g, at);
  if (!is_closed(s, g, needed, at)) return KILN_OK;
  cut one = {.front = part_of(s, g, needed), .rest = part_of(s, g, ~needed)};
  KILN_TRY(find(s, &one.front, &best, &front));
  if (front >= io->ns) return KILN_OK;
  KILN_TRY(find(s, &one.rest, &best, &rest));
  one.ns = front + rest - kiln_gpu_hidden_ns(s->options->machine);
  if (one.ns < io->ns) *io = one;
  return KILN_OK;
}

// Cuts |g| where that gains most.
//
// gives: out->ns, what the parts take; if no cut gains enough, what |g| takes
static kiln_status find_cut(splitting *s, const kiln_group *g, cut *out, bool *out_found) {
  const kiln_tile_candidate *whole = NULL;
  *out_found = false;
  *out = (cut){.ns = 0};
  if (g->kind == KILN_GROUP_SCATTER || g->kind == KILN_GROUP_ATTENTION) return KILN_OK;
  double ns = 0;
  KILN_TRY(find(s, g, &whole, &ns));
  out->ns = ns;
  if (g->kind != KILN_GROUP_ROWS || g->n_stmts < 2 || g->stored || !isfinite(ns)) return KILN_OK;
  out->ns = WORTH * ns;
  for (int i = 0; i + 1 < g->n_stmts; i++) KILN_TRY(try_cut(s, g, whole, i, out));
  *out_found = out->ns < WORTH * ns;
  if (!*out_found) out->ns = ns;
  return KILN_OK;
}

// Cuts |g| and its parts as long as that gains.
//
// gives: the parts in the order of execution, and what they take; one part if no cut gains
static kiln_status cut_all(splitting *s, const kiln_group *g, kiln_groups *out, double *out_ns) {
  const double hidden_ns = kiln_gpu_hidden_ns(s->options->machine);
  KILN_VEC_PUSH(&s->cx->perm, out, *g);
  *out_ns = hidden_ns;
  for (int i = 0; i < out->n;) {
    cut found;
    bool splits = false;
    KILN_TRY(find_cut(s, &out->data[i], &found, &splits));
    if (!splits) {
      *out_ns += found.ns - hidden_ns;
      i++;
      continue;
    }
    out->data[i] = found.rest;
    KILN_VEC_PUSH(&s->cx->perm, out, found.rest);
    for (int k = out->n - 1; k > i; k--) out->data[k] = out->data[k - 1];
    out->data[i] = found.front;
  }
  return KILN_OK;
}

kiln_status kiln_groups_weigh_parts(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                    const kiln_tile_search_options *options, kiln_searches *known,
                                    kiln_groups *io) {
  splitting s = {cx, p, facts, options, known};
  for (int i = 0; i < io->n && options->machine->device; i++) {
    kiln_groups parts = {0};
    double ns = 0;
    KILN_TRY(cut_all(&s, &io->data[i], &parts, &ns));
    if (parts.n > 1) io->data[i].parts_ns = ns;
  }
  return KILN_OK;
}

static int root_of(const kiln_group *g) { return g->stmts[g->n_stmts - 1]; }

// Whether |g| is one of |fused| as it stands.
static bool is_alone(const kiln_fused_groups *fused, const kiln_group *g) {
  for (int i = 0; i < fused->n; i++)
    if (root_of(&fused->data[i].group) == root_of(g))
      return fused->data[i].group.n_stmts == g->n_stmts;
  return false;
}

static void sort_by_root(kiln_groups *io) {
  for (int i = 1; i < io->n; i++) {
    const kiln_group one = io->data[i];
    int at = i;
    for (; at > 0 && root_of(&io->data[at - 1]) > root_of(&one); at--)
      io->data[at] = io->data[at - 1];
    io->data[at] = one;
  }
}

kiln_status kiln_groups_split(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                              const kiln_tile_search_options *options, kiln_searches *known,
                              const kiln_fused_groups *fused, kiln_groups *io, bool *out_any) {
  splitting s = {cx, p, facts, options, known};
  kiln_groups all = {.edges = io->edges};
  *out_any = false;
  for (int i = 0; i < io->n; i++) {
    double ns = 0;
    if (io->data[i].parts_ns > 0 && is_alone(fused, &io->data[i])) {
      kiln_groups parts = {0};
      KILN_TRY(cut_all(&s, &io->data[i], &parts, &ns));
      for (int k = 0; k < parts.n; k++) KILN_VEC_PUSH(&cx->perm, &all, parts.data[k]);
      *out_any = true;
    } else KILN_VEC_PUSH(&cx->perm, &all, io->data[i]);
  }
  sort_by_root(&all);
  *io = all;
  return KILN_OK;
}
