// Predicted costs of sets of prims.
#include "orchestrate/costs.h"
#include "price/gpu_work.h"

#include <math.h>

enum { MAX_PRODUCTS = 4 }; // most contractions of a kernel

// Nests without a template are assumed to take this many times their lower bound.
static const double UNKNOWN_LOSS = 8;

// Predictions and measurements are of separate launches; a run overlaps launch overhead, but at
// least this share of it remains.
static const double LEAST_SHARE = 0.25;

static double in_run(const kiln_costing *c, double ns) {
  const double hidden_ns = kiln_gpu_hidden_ns(c->options->machine);
  return isfinite(ns) ? fmax(ns - hidden_ns, LEAST_SHARE * ns) : ns;
}

// --- bounds ---

static bool is_product(const kiln_costing *c, const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  return c->options->machine->target->has_explicit_scopes ? kiln_stmt_is_product(s, &a, &b)
                                                          : kiln_stmt_is_contraction(s, &a, &b);
}

static int count_products(const kiln_costing *c, const kiln_bits *prims) {
  int n = 0;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1))
    for (int k = 0; k < c->prims->prims[i].n; k++)
      n += is_product(c, c->p->stmts.data[c->prims->prims[i].stmts[k]]);
  return n;
}

static double launch_ns(const kiln_costing *c) {
  const kiln_device *d = c->options->machine->device;
  return d ? d->launch_ns : 1;
}

static double compute_ns_of(const kiln_costing *c, const kiln_bits *prims) {
  double ns = 0, loss = KILN_INNER_LOSS;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) {
    ns += c->own[i].compute_ns;
    loss = fmax(loss, c->own[i].inner_loss);
  }
  return loss * ns;
}

double kiln_costing_bound(const kiln_costing *c, const kiln_bits *prims) {
  if (c->measured) return 0; // predictions are no bound on measurements
  return in_run(c, launch_ns(c) + (count_products(c, prims) ? compute_ns_of(c, prims) : 0));
}

double kiln_costing_separate(const kiln_costing *c, const kiln_bits *prims) {
  double ns = 0;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1))
    ns += c->own[i].ns * (c->own[i].ratio > 0 ? c->own[i].ratio : 1);
  return ns;
}

bool kiln_costing_may_grow(const kiln_costing *c, const kiln_bits *prims) {
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1))
    if (c->prims->prims[i].is_alone) return false;
  return count_products(c, prims) <= MAX_PRODUCTS;
}

// --- prices ---

// The statements of |prims| as a fusion group; no statements if they cannot be one.
static kiln_group group_of(const kiln_costing *c, const kiln_bits *prims,
                           const kiln_bits *results) {
  kiln_group g = {.stmts = KILN_NEW_ARRAY(&c->cx->perm, int, KILN_MAX_MEMBERS)};
  int n_stored = 0, last = -1;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) {
    const kiln_prim *one = &c->prims->prims[i];
    if (g.n_stmts + one->n >= KILN_MAX_MEMBERS) return (kiln_group){0};
    for (int k = 0; k < one->n; k++) {
      int at = g.n_stmts++;
      for (; at > 0 && g.stmts[at - 1] > one->stmts[k]; at--) g.stmts[at] = g.stmts[at - 1];
      g.stmts[at] = one->stmts[k];
    }
    last = i;
  }
  if (c->prims->prims[last].is_free) return (kiln_group){0};
  for (int i = kiln_bits_next(prims, 0); i >= 0 && i < last; i = kiln_bits_next(prims, i + 1)) {
    if (!kiln_bits_has(results, i)) continue;
    if (c->prims->prims[i].is_pinned || c->prims->prims[i].is_free) return (kiln_group){0};
    const int root = c->prims->prims[i].stmts[c->prims->prims[i].n - 1];
    for (int k = 0; k < g.n_stmts; k++)
      if (g.stmts[k] == root) g.stored |= (uint64_t)1 << k;
    n_stored++;
  }
  if (!kiln_bits_has(results, last) || g.n_stmts + n_stored >= KILN_MAX_MEMBERS)
    return (kiln_group){0};
  g.kind =
      kiln_tile_kind_of(c->cx, c->p, c->facts, c->options->machine, g.n_stmts, g.stmts, g.stored);
  return g;
}

// An unsupported form is a result, too: there is no such kernel.
static kiln_status find(kiln_costing *c, kiln_priced *io, bool *out_is_new) {
  kiln_diag *outer = c->cx->diag;
  const int before = kiln_searches_asked(c->known);
  c->cx->diag = NULL;
  const kiln_status st = kiln_searches_find(c->cx, c->known, c->p, c->facts, &io->group, c->options,
                                            &io->found, out_is_new);
  c->cx->diag = outer;
  if (kiln_searches_asked(c->known) > before) c->work += io->group.n_stmts;
  if (st == KILN_UNSUPPORTED || st == KILN_BAD_INPUT) return KILN_OK;
  return st;
}

double kiln_costing_measured(const kiln_costing *c, const kiln_searched *found) {
  if (!c->measured || !found->prog) return 0; // nobody asks, or there is no such kernel
  return in_run(c, c->measured(c->user, kiln_searched_key(c->cx, found)));
}

double kiln_costing_predicted(const kiln_costing *c, const kiln_tile_candidates *of) {
  return of ? in_run(c, kiln_tile_price(of)) : INFINITY;
}

double kiln_costing_ratio(const kiln_costing *c, const kiln_bits *prims) {
  double predicted = 0, measured = 0;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) {
    predicted += c->own[i].ns;
    measured += c->own[i].ns * (c->own[i].ratio > 0 ? c->own[i].ratio : 1);
  }
  return predicted > 0 ? measured / predicted : 1;
}

kiln_status kiln_costing_price(kiln_costing *c, const kiln_bits *prims, const kiln_bits *results,
                               kiln_priced *out) {
  bool is_new = false;
  *out = (kiln_priced){.group = group_of(c, prims, results), .ns = INFINITY};
  if (out->group.n_stmts == 0) return KILN_OK;
  KILN_TRY(find(c, out, &is_new));
  if (!out->found.candidates) return KILN_OK;
  c->n_forms += is_new;
  if (is_new && (out->group.kind == KILN_GROUP_FUSED_LAYERS || out->group.stored))
    kiln_searched_bound(c->cx, &out->found, compute_ns_of(c, prims));
  out->ns = kiln_costing_predicted(c, out->found.candidates);
  out->measured_ns = kiln_costing_measured(c, &out->found);
  return KILN_OK;
}

// The prim's lower bound, times the loss of nests without a template.
static double unknown_ns(const kiln_costing *c, const kiln_prim *one) {
  const kiln_device *d = c->options->machine->device;
  double bytes = 0, work = 0;
  for (int k = 0; k < one->n; k++) {
    const kiln_stmt *s = c->p->stmts.data[one->stmts[k]];
    const kiln_tensor *out = c->p->tensors.data[s->out];
    const kiln_loads loads = kiln_stmt_loads(c->cx, &c->cx->scratch, c->p, s);
    bytes += (double)kiln_tensor_elems(out) * kiln_dtype_bytes(out->dtype);
    for (int i = 0; i < loads.n; i++) {
      const kiln_tensor *t = c->p->tensors.data[loads.data[i]->u.tensor];
      bytes += (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
    }
    work += (double)kiln_stmt_domain(s) * (1 + kiln_expr_cost(c->cx, s->body));
  }
  if (!d) return 1;
  return d->launch_ns + UNKNOWN_LOSS * fmax(bytes / d->levels[0].all_bytes_ns,
                                            work / d->all_flops_ns[KILN_PEAK_F32]);
}

static kiln_status price_alone(kiln_costing *c, int i) {
  const kiln_prim *one = &c->prims->prims[i];
  kiln_prim_cost *own = &c->own[i];
  kiln_priced priced;
  kiln_bits *prims = kiln_bits_make(&c->cx->scratch, c->prims->n);
  kiln_bits_set(prims, i);
  if (one->is_free) return KILN_OK;
  KILN_TRY(kiln_costing_price(c, prims, prims, &priced));
  own->is_known = isfinite(priced.ns);
  own->ns = own->is_known ? priced.ns : in_run(c, unknown_ns(c, one));
  if (!priced.found.candidates) return KILN_OK;
  const kiln_tile_candidate *best = kiln_tile_cheapest(priced.found.candidates);
  if (own->is_known && best) own->compute_ns = best->cost.compute_ns;
  if (best && count_products(c, prims) > 0) own->inner_loss = best->from->inner_loss;
  return KILN_OK;
}

kiln_status kiln_costing_begin(kiln_costing *io) {
  io->own = KILN_NEW_ARRAY(&io->cx->scratch, kiln_prim_cost, io->prims->n);
  for (int i = 0; i < io->prims->n; i++) KILN_TRY(price_alone(io, i));
  return KILN_OK;
}
