// Canonical forms as keys of memoized searches, and the cost of their candidates.
#include "fuse/searches.h"

#include <math.h>

struct kiln_searches {
  // numbers of |all| by a group's form, and by the key of its outlined program
  kiln_map by_form, by_key;
  KILN_VEC(kiln_searched) all;
  kiln_searches *proposed;
};

kiln_searches *kiln_searches_make(kiln_ctx *cx, kiln_searches *proposed) {
  kiln_searches *s = KILN_NEW(&cx->perm, kiln_searches);
  s->proposed = proposed;
  kiln_map_init(&s->by_form, &cx->perm);
  kiln_map_init(&s->by_key, &cx->perm);
  return s;
}

int kiln_searches_asked(const kiln_searches *s) { return (s->proposed ? s->proposed : s)->all.n; }

typedef struct form_maker {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
} form_maker;

// --- forms ---
//
// Repeated layers differ only in their tensors. A form is the group's text with tensors numbered in
// order of appearance and described by type, shape and strides; each form is searched once.

typedef struct naming {
  kiln_map numbers; // of tensors
  KILN_VEC(const char *) names;
} naming;

static const char *numbered_name(const void *program, int tensor) {
  const naming *n = program;
  const uint64_t *number = kiln_map_find(&n->numbers, (uint64_t)tensor);
  return number ? n->names.data[*number] : "?";
}

static void name_tensor(form_maker *c, int tensor, naming *names, kiln_text *form) {
  if (kiln_map_find(&names->numbers, (uint64_t)tensor)) return;
  const kiln_tensor *t = c->p->tensors.data[tensor];
  const kiln_fact fact = kiln_fact_of(c->facts, tensor);
  int64_t strides[KILN_MAX_RANK];
  const char *name = kiln_arena_printf(&c->cx->scratch, "n%d", names->names.n);
  kiln_map_put(&names->numbers, (uint64_t)tensor, (uint64_t)names->names.n);
  KILN_VEC_PUSH(&c->cx->scratch, &names->names, name);
  kiln_text_printf(form, "%s %s %d %d %u", name, kiln_dtype_text(t->dtype), (int)t->role,
                   fact.is_small, fact.panels);
  kiln_tensor_strides(t, strides);
  for (int k = 0; k < t->rank; k++) {
    int64_t extent = -1;
    (void)kiln_expr_is_int(t->shape[k], &extent);
    kiln_text_printf(form, " %" PRId64 ":%" PRId64 "@%d", extent, strides[k], t->order[k]);
  }
  kiln_text_add(form, "\n");
}

static void print_expr(form_maker *c, const kiln_expr *e, naming *names, kiln_text *form) {
  const kiln_expr_names how = {.name_of = numbered_name, .program = names, .bracket = '('};
  if (e) kiln_expr_print(c->cx, e, &how, form);
  kiln_text_add(form, ";");
}

static void print_stmt(form_maker *c, const kiln_stmt *s, naming *names, kiln_text *form) {
  const kiln_loads loads = kiln_stmt_loads(c->cx, &c->cx->scratch, c->p, s);
  const kiln_tensor *out = c->p->tensors.data[s->out];
  for (int i = 0; i < loads.n; i++) name_tensor(c, loads.data[i]->u.tensor, names, form);
  name_tensor(c, s->out, names, form);
  kiln_text_printf(form, "%s %s", numbered_name(names, s->out), kiln_combiner_text(s->combiner));
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    kiln_text_printf(form, " %s%s:%" PRId64, d == s->n_space ? "| " : "",
                     kiln_symbol_text(c->cx, s->dims[d].name), kiln_dim_extent(&s->dims[d]));
  print_expr(c, s->body, names, form);
  print_expr(c, s->guard, names, form);
  print_expr(c, s->init, names, form);
  for (int k = 0; k < out->rank; k++) print_expr(c, s->index[k], names, form);
}

kiln_symbol kiln_group_form(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_group *g) {
  form_maker maker = {cx, p, facts}, *c = &maker;
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  naming names = {0};
  kiln_text form;
  kiln_map_init(&names.numbers, &c->cx->scratch);
  kiln_text_init(&form, &c->cx->scratch);
  kiln_text_printf(&form, "%d %" PRIx64 "\n", (int)g->kind, g->stored);
  for (int i = 0; i < g->n_stmts; i++) print_stmt(c, c->p->stmts.data[g->stmts[i]], &names, &form);
  const kiln_symbol known = kiln_symbol_of(c->cx, form.data);
  kiln_arena_rewind(&c->cx->scratch, mark);
  return known;
}

// --- prices ---

const kiln_tile_candidate *kiln_tile_cheapest(const kiln_tile_candidates *found) {
  for (int i = 0; i < found->n; i++)
    if (!found->data[i].refused) return &found->data[i];
  return NULL;
}

double kiln_tile_price(const kiln_tile_candidates *found) {
  const kiln_tile_candidate *best = kiln_tile_cheapest(found);
  return best ? kiln_tile_price_of(&best->cost) : INFINITY;
}

// --- searches ---

static void keep(kiln_ctx *cx, kiln_searches *io, kiln_symbol key, kiln_searched one) {
  kiln_map_put(&io->by_key, key, (uint64_t)io->all.n);
  KILN_VEC_PUSH(&cx->perm, &io->all, one);
}

// A copy of the candidates as they were proposed, without loops that were made since.
static kiln_searched as_proposed(kiln_ctx *cx, const kiln_searched *of) {
  const int n = of->candidates->n;
  kiln_searched out = *of;
  out.candidates = KILN_NEW(&cx->perm, kiln_tile_candidates);
  *out.candidates = (kiln_tile_candidates){KILN_NEW_ARRAY(&cx->perm, kiln_tile_candidate, n), n, n};
  for (int i = 0; i < n; i++) {
    out.candidates->data[i] = of->candidates->data[i];
    out.candidates->data[i].loops = NULL;
    out.candidates->data[i].script = NULL;
  }
  return out;
}

// The candidates for |x|, of kind |kind|, which is new to |known|.
static kiln_status propose(kiln_ctx *cx, kiln_searches *known, const kiln_outline *x,
                           kiln_group_kind kind, const kiln_tile_search_options *options,
                           kiln_searched *out) {
  const kiln_symbol key = kiln_symbol_of(cx, x->key);
  const uint64_t *before = known->proposed ? kiln_map_find(&known->proposed->by_key, key) : NULL;
  if (before) {
    *out = as_proposed(cx, &known->proposed->all.data[*before]);
    return KILN_OK;
  }
  *out = (kiln_searched){x->prog, x->facts, KILN_NEW(&cx->perm, kiln_tile_candidates), x->key};
  KILN_TRY(kiln_tile_propose(cx, kind, x->prog, &x->facts, options, out->candidates));
  if (known->proposed) keep(cx, known->proposed, key, as_proposed(cx, out));
  return KILN_OK;
}

// Outlines |g|. Groups of different forms may have one outlined program, as when they read
// different slices of their tensors.
static kiln_status find_outline(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                                const kiln_facts *facts, const kiln_group *g,
                                const kiln_tile_search_options *options, uint64_t *out_number,
                                bool *out_is_new) {
  kiln_outline x;
  KILN_TRY(kiln_tile_outline(cx, p, facts, g, options->machine, &x));
  const kiln_symbol key = kiln_symbol_of(cx, x.key);
  const uint64_t *same = kiln_map_find(&known->by_key, key);
  *out_number = same ? *same : (uint64_t)known->all.n;
  *out_is_new = !same;
  if (same) return KILN_OK;
  kiln_searched one;
  KILN_TRY(propose(cx, known, &x, g->kind, options, &one));
  keep(cx, known, key, one);
  return KILN_OK;
}

kiln_status kiln_searches_find(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                               const kiln_facts *facts, const kiln_group *g,
                               const kiln_tile_search_options *options, kiln_searched *out,
                               bool *out_is_new) {
  const kiln_symbol form = kiln_group_form(cx, p, facts, g);
  const uint64_t *found = kiln_map_find(&known->by_form, form);
  *out_is_new = false;
  if (!found) {
    uint64_t number = 0;
    KILN_TRY(find_outline(cx, known, p, facts, g, options, &number, out_is_new));
    found = kiln_map_put(&known->by_form, form, number);
  }
  *out = known->all.data[*found];
  return KILN_OK;
}

void kiln_searched_bound(kiln_ctx *cx, const kiln_searched *io, double compute_ns) {
  const double flops = kiln_program_flops(cx, io->prog);
  for (int i = 0; i < io->candidates->n; i++) {
    kiln_tile_cost *cost = &io->candidates->data[i].cost;
    if (!isfinite(cost->ns) || !(flops > 0)) continue;
    cost->compute_ns = fmax(cost->compute_ns, compute_ns * fmax(1, cost->flops / flops));
    cost->ns = kiln_tile_price_of(cost);
  }
  kiln_tile_sort(io->candidates);
}

kiln_status kiln_searched_lower(kiln_ctx *cx, const kiln_tile_search_options *options,
                                const kiln_searched *io) {
  kiln_tile_search_options first = *options;
  first.n_lowered = 1;
  const kiln_tile_candidate *best = kiln_tile_cheapest(io->candidates);
  while (best && isfinite(best->cost.ns) && !best->loops) {
    KILN_TRY(kiln_tile_lower(cx, &first, io->candidates));
    best = kiln_tile_cheapest(io->candidates);
  }
  return KILN_OK;
}
