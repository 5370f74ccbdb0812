// The interior step (index-set splitting): only tiles at a border pay for its checks.
//
// A read through a boundary map, as a clamped index or a padding's select, is a gather, a masked
// load or a branch while the tile may touch the border. All but the tiles at the border never do:
// the step looks for the box of tile loops in which the maps' comparisons are decided, and
// specializes the innermost of these loops for it. The test stands outside of reductions and
// register tiles.
#include "template/lower.h"

enum {
  MAX_ATOMS = 64,   // comparisons looked at in one nest
  MAX_COPIES = 256, // stores after unrolling that are worth duplicating
  MAX_CHAIN = 16,   // tile loops of a nest
  MAX_NESTS = 16    // of a kernel
};

// Comparisons that may stay undecided, none first; the first choice with a large interior is taken.
typedef enum choice {
  CHOICE_ALL,
  CHOICE_NO_CELLS, // divisions and modulos decide by cells: few tiles lie in one
  CHOICE_LANES,    // comparisons that differ between the lanes of a vector
  N_CHOICES
} choice;

typedef struct interior {
  kiln_lowering *w;
  kiln_loop *chain[MAX_CHAIN]; // the tile loops, from the outside; each holds only the next
  int n_chain;
  kiln_interval box[MAX_CHAIN];
  kiln_ranges ranges; // of the chain's loops, in its order, then of those inside
  int n_lanes, n_copies;
  kiln_symbol lanes[MAX_ATOMS]; // vectorized loops
  const kiln_expr *atoms[MAX_ATOMS];
  int n_atoms;
  bool full;      // too much to look at
  bool undecided; // result of the last walk
} interior;

// --- undecided comparisons ---

static bool is_cell(const kiln_expr *e) {
  return e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD;
}

static bool is_atom(const kiln_expr *e) {
  if (e->has_load || e->n_args != 2 || e->args[0]->dtype != KILN_I64) return false;
  return is_cell(e) || e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX ||
         kiln_expr_kind_is_cmp(e->kind);
}

static bool uses_inner(const interior *n, const kiln_expr *e) {
  for (int i = n->n_chain; i < n->ranges.entries.n; i++)
    if (kiln_expr_uses(e, n->ranges.entries.data[i].var)) return true;
  return false;
}

static bool uses_lanes(const interior *n, const kiln_expr *e) {
  for (int i = 0; i < n->n_lanes; i++)
    if (kiln_expr_uses(e, n->lanes[i])) return true;
  return false;
}

static bool uses_chain(const interior *n, const kiln_expr *e) {
  for (int i = 0; i < n->n_chain; i++)
    if (kiln_expr_uses(e, n->chain[i]->var)) return true;
  return false;
}

static void add_atom(const kiln_expr *e, void *argument) {
  interior *n = argument;
  if (!is_atom(e) || !uses_inner(n, e) || !uses_chain(n, e)) return;
  for (int i = 0; i < n->n_atoms; i++)
    if (n->atoms[i] == e) return;
  if (n->n_atoms == MAX_ATOMS) n->full = true;
  else n->atoms[n->n_atoms++] = e;
}

static void add_store(interior *n, const kiln_loop *store, int64_t copies) {
  kiln_ctx *cx = n->w->cx;
  n->n_copies = (int)(n->n_copies + copies < INT32_MAX ? n->n_copies + copies : INT32_MAX);
  for (int k = 0; k < n->w->s.loops->buffers.data[store->buffer]->rank; k++)
    kiln_expr_visit(cx, store->index[k], add_atom, n);
  kiln_expr_visit(cx, store->value, add_atom, n);
}

// The loops inside of the chain, then their stores: a comparison may use any of them.
static void add_loops(interior *n, const kiln_loop *list) {
  for (const kiln_loop *l = list; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) {
      const kiln_interval extent = kiln_expr_interval(n->w->cx, l->extent, &n->ranges);
      kiln_ranges_push(&n->ranges, l->var, 0, extent.hi - 1);
      if (l->how == KILN_VECTORIZED && n->n_lanes < MAX_ATOMS) n->lanes[n->n_lanes++] = l->var;
    }
    add_loops(n, l->body);
  }
}

static void add_stores(interior *n, const kiln_loop *list, int64_t copies) {
  for (const kiln_loop *l = list; l; l = l->next) {
    int64_t extent = 1;
    if (l->kind == KILN_LOOP_STORE) add_store(n, l, copies);
    if (l->kind == KILN_LOOP_FOR && l->how == KILN_UNROLLED) kiln_expr_is_int(l->extent, &extent);
    add_stores(n, l->body, copies > MAX_COPIES / extent ? MAX_COPIES + 1 : copies * extent);
  }
}

// The loops from |nest| on that hold nothing but the next, up to those that run in registers.
static void follow(interior *n, kiln_loop *nest) {
  int64_t extent;
  for (kiln_loop *l = nest; l && l->kind == KILN_LOOP_FOR && n->n_chain < MAX_CHAIN; l = l->body) {
    const bool runs = l->how == KILN_SERIAL || l->how == KILN_PARALLEL;
    if ((l != nest && l->next) || !runs || !kiln_expr_is_int(l->extent, &extent)) return;
    n->box[n->n_chain] = (kiln_interval){0, extent - 1};
    n->chain[n->n_chain++] = l;
    kiln_ranges_push(&n->ranges, l->var, 0, extent - 1);
  }
}

// --- the box ---

static void find_undecided(const kiln_expr *e, void *argument) {
  interior *n = argument;
  if (is_atom(e) && uses_inner(n, e)) n->undecided = true;
}

// Whether all comparisons of |e| are decided inside of the box.
static bool is_decided(interior *n, const kiln_expr *e) {
  n->undecided = false;
  for (int i = 0; i < n->n_chain; i++) n->ranges.entries.data[i].range = n->box[i];
  kiln_expr_visit(n->w->cx, kiln_simplify(n->w->cx, e, &n->ranges), find_undecided, n);
  return !n->undecided;
}

static bool are_decided(interior *n) {
  for (int i = 0; i < n->n_atoms; i++)
    if (!is_decided(n, n->atoms[i])) return false;
  return true;
}

// Moves one end of box[i] as far towards |limit| as all comparisons stay decided.
static void widen(interior *n, int64_t *end, int64_t limit) {
  int64_t good = *end, bad = limit + (limit >= good ? 1 : -1);
  while (bad - good > 1 || good - bad > 1) {
    *end = good + (bad - good) / 2;
    if (are_decided(n)) good = *end;
    else bad = *end;
  }
  *end = good;
}

static bool in_choice(const interior *n, choice c, const kiln_expr *e) {
  if (c != CHOICE_ALL && is_cell(e)) return false;
  return c != CHOICE_LANES || uses_lanes(n, e);
}

static int64_t extent_of(const interior *n, int i) { return n->chain[i]->extent->u.i; }

// Keeps the atoms of the choice that are decided in the middle of the chain, and widens the box
// from there, the inner loops first. False when the interior is not most of the whole.
static bool find_box(interior *n, choice c) {
  int kept = 0;
  double share = 1;
  for (int i = 0; i < n->n_chain; i++)
    n->box[i] = (kiln_interval){extent_of(n, i) / 2, extent_of(n, i) / 2};
  for (int i = 0; i < n->n_atoms; i++)
    if (in_choice(n, c, n->atoms[i]) && is_decided(n, n->atoms[i])) n->atoms[kept++] = n->atoms[i];
  n->n_atoms = kept;
  for (int i = n->n_chain - 1; i >= 0 && kept; i--) {
    widen(n, &n->box[i].hi, extent_of(n, i) - 1);
    widen(n, &n->box[i].lo, 0);
    share *= (double)(n->box[i].hi - n->box[i].lo + 1) / (double)extent_of(n, i);
  }
  return kept && share > 0.5;
}

// The condition of the box and the innermost loop that it looks at; NULL when the box is the whole.
static const char *condition_of(interior *n, kiln_symbol *out_loop) {
  kiln_text t;
  kiln_text_init(&t, &n->w->cx->perm);
  *out_loop = 0;
  for (int i = 0; i < n->n_chain; i++) {
    const char *name = kiln_symbol_text(n->w->cx, n->chain[i]->var);
    const bool low = n->box[i].lo > 0, high = n->box[i].hi < extent_of(n, i) - 1;
    if (low) kiln_text_printf(&t, "%s%s >= %" PRId64, *out_loop ? " && " : "", name, n->box[i].lo);
    if (high)
      kiln_text_printf(&t, "%s%s < %" PRId64, *out_loop || low ? " && " : "", name,
                       n->box[i].hi + 1);
    if (low || high) *out_loop = n->chain[i]->var;
  }
  return *out_loop ? t.data : NULL;
}

static const char *interior_of(kiln_lowering *w, kiln_loop *nest, kiln_symbol *out_loop) {
  interior all = {.w = w};
  kiln_ranges_init(&all.ranges, &w->cx->scratch);
  follow(&all, nest);
  if (all.n_chain == 0) return NULL;
  kiln_loop *body = all.chain[all.n_chain - 1]->body;
  add_loops(&all, body);
  add_stores(&all, body, 1);
  if (all.full || all.n_atoms == 0 || all.n_copies > MAX_COPIES) return NULL;
  for (choice c = 0; c < N_CHOICES; c++) {
    interior one = all;
    if (find_box(&one, c)) return condition_of(&one, out_loop);
  }
  return NULL;
}

kiln_status kiln_lowering_interior(kiln_lowering *w) {
  kiln_symbol loops[MAX_NESTS];
  const char *conditions[MAX_NESTS];
  int n = 0;
  for (kiln_loop *l = w->s.loops->body; l && n < MAX_NESTS; l = l->next)
    if ((conditions[n] = interior_of(w, l, &loops[n]))) n++;
  for (int i = 0; i < n; i++) KILN_TRY(kiln_specialize(&w->s, loops[i], conditions[i]));
  return KILN_OK;
}
