// Canonical forms as keys of memoized searches, and the cost of their candidates.
#include "fuse/searches.h"

#include <math.h>

struct kiln_searches {
  // numbers of |all| by the identity of a group, and by that of its outlined program
  kiln_map by_group, by_outline;
  kiln_map shapes; // of expressions, by their numbers
  KILN_VEC(kiln_searched) all;
  kiln_searches *proposed;
};

kiln_searches *kiln_searches_make(kiln_ctx *cx, kiln_searches *proposed) {
  kiln_searches *s = KILN_NEW(&cx->perm, kiln_searches);
  s->proposed = proposed;
  kiln_map_init(&s->by_group, &cx->perm);
  kiln_map_init(&s->by_outline, &cx->perm);
  kiln_map_init(&s->shapes, &cx->perm);
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
// order of appearance and described by type, shape and strides.

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

// --- identities ---
//
// What a form says, without its text: expressions are interned, and named by their numbers. For
// example, both a[i] + a[i + 1] and b[i] + b[i + 1] have the shape #0[i] + #0[i + 1], which is made
// once an expression, however many groups its statement is weighed in.

typedef struct shape {
  const kiln_expr *e; // with numbers from 0 on in place of its tensors
  int n_tensors;
  int tensors[]; // by these numbers
} shape;

typedef struct numbering {
  int n;
  int *tensors;
} numbering;

static int number_in(const numbering *n, int tensor) {
  int i = 0;
  while (i < n->n && n->tensors[i] != tensor) i++;
  return i;
}

static void note_tensor(const kiln_expr *load, void *argument) {
  numbering *n = argument;
  if (number_in(n, load->u.tensor) == n->n) n->tensors[n->n++] = load->u.tensor;
}

static const kiln_expr *renumber(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_expr *index[KILN_MAX_RANK];
  if (!e->has_load) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], renumber, argument);
  return kiln_load(cx, number_in(argument, e->u.tensor), e->dtype, e->n_args, index);
}

static const shape *shape_of(kiln_ctx *cx, kiln_searches *known, const kiln_expr *e) {
  const uint64_t *at = kiln_map_find(&known->shapes, e->id);
  if (at) return (const shape *)(uintptr_t)*at;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, e);
  numbering n = {0, KILN_NEW_ARRAY(&cx->scratch, int, loads.n)};
  for (int i = 0; i < loads.n; i++) note_tensor(loads.data[i], &n);
  shape *s = kiln_arena_alloc(&cx->perm, sizeof *s + (size_t)n.n * sizeof s->tensors[0]);
  s->n_tensors = n.n;
  for (int i = 0; i < n.n; i++) s->tensors[i] = n.tensors[i];
  s->e = kiln_expr_replace(cx, e, renumber, &n);
  kiln_map_put(&known->shapes, e->id, (uintptr_t)s);
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}

// Seven bits a byte, the last of which has no more behind it.
static void put(kiln_text *to, int64_t value) {
  uint64_t rest = (uint64_t)value;
  char bytes[10];
  size_t n = 0;
  for (; rest > 127; rest >>= 7) bytes[n++] = (char)(rest | 128);
  bytes[n++] = (char)rest;
  kiln_text_add_bytes(to, bytes, n);
}

typedef struct identifying {
  form_maker m;
  kiln_searches *known;
  kiln_map numbers; // of tensors, in the order of their appearance
  kiln_text text;
} identifying;

static void put_tensor(identifying *w, int tensor) {
  const uint64_t *number = kiln_map_find(&w->numbers, (uint64_t)tensor);
  int64_t strides[KILN_MAX_RANK];
  if (number) {
    put(&w->text, (int64_t)*number);
    return;
  }
  const kiln_tensor *t = w->m.p->tensors.data[tensor];
  const kiln_fact fact = kiln_fact_of(w->m.facts, tensor);
  put(&w->text, w->numbers.n);
  kiln_map_put(&w->numbers, (uint64_t)tensor, (uint64_t)w->numbers.n);
  kiln_tensor_strides(t, strides);
  const int64_t words[] = {(int64_t)t->dtype, (int64_t)t->role, fact.is_small, fact.panels,
                           t->rank};
  for (size_t i = 0; i < KILN_LEN(words); i++) put(&w->text, words[i]);
  for (int k = 0; k < t->rank; k++) {
    int64_t extent = -1;
    (void)kiln_expr_is_int(t->shape[k], &extent);
    put(&w->text, extent);
    put(&w->text, strides[k]);
    put(&w->text, t->order[k]);
  }
}

static void put_expr(identifying *w, const kiln_expr *e) {
  put(&w->text, e != NULL);
  if (!e) return;
  const shape *s = shape_of(w->m.cx, w->known, e);
  put(&w->text, s->e->id);
  for (int i = 0; i < s->n_tensors; i++) put_tensor(w, s->tensors[i]);
}

static void put_stmt(identifying *w, const kiln_stmt *s) {
  put(&w->text, s->n_space);
  put(&w->text, s->n_reduce);
  put(&w->text, (int64_t)s->combiner);
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    put(&w->text, s->dims[d].name);
    put(&w->text, kiln_dim_extent(&s->dims[d]));
  }
  put_expr(w, s->body);
  put_expr(w, s->guard);
  put_expr(w, s->init);
  put_tensor(w, s->out);
  for (int k = 0; k < w->m.p->tensors.data[s->out]->rank; k++) put_expr(w, s->index[k]);
}

static kiln_symbol identity_of(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                               const kiln_facts *facts, const kiln_group *g) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  identifying w = {.m = {cx, p, facts}, .known = known};
  kiln_map_init(&w.numbers, &cx->scratch);
  kiln_text_init(&w.text, &cx->scratch);
  put(&w.text, (int64_t)g->kind);
  put(&w.text, (int64_t)g->stored);
  for (int i = 0; i < g->n_stmts; i++) put_stmt(&w, p->stmts.data[g->stmts[i]]);
  const kiln_symbol found = kiln_symbol_of_bytes(cx, w.text.data, (size_t)w.text.n);
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
}

// The whole program of an outline is a group, whose tensors appear in an order of their own.
static kiln_symbol identity_of_outline(kiln_ctx *cx, kiln_searches *known, kiln_group_kind kind,
                                       const kiln_outline *x) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  identifying w = {.m = {cx, x->prog, &x->facts}, .known = known};
  kiln_map_init(&w.numbers, &cx->scratch);
  kiln_text_init(&w.text, &cx->scratch);
  put(&w.text, (int64_t)kind);
  for (int i = 0; i < x->prog->tensors.n; i++) put_tensor(&w, i);
  for (int i = 0; i < x->prog->stmts.n; i++) put_stmt(&w, x->prog->stmts.data[i]);
  const kiln_symbol found = kiln_symbol_of_bytes(cx, w.text.data, (size_t)w.text.n);
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
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

static void keep(kiln_ctx *cx, kiln_searches *io, kiln_symbol outline, kiln_searched one) {
  kiln_map_put(&io->by_outline, outline, (uint64_t)io->all.n);
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
    out.candidates->data[i].lowered_ns = 0;
  }
  return out;
}

// The candidates for |x|, of kind |kind|, which is new to |known|.
static kiln_status propose(kiln_ctx *cx, kiln_searches *known, const kiln_outline *x,
                           kiln_symbol outline, kiln_group_kind kind,
                           const kiln_tile_search_options *options, kiln_searched *out) {
  const uint64_t *before =
      known->proposed ? kiln_map_find(&known->proposed->by_outline, outline) : NULL;
  if (before) {
    *out = as_proposed(cx, &known->proposed->all.data[*before]);
    return KILN_OK;
  }
  *out = (kiln_searched){x->prog, x->facts, KILN_NEW(&cx->perm, kiln_tile_candidates), NULL, kind};
  KILN_TRY(kiln_tile_propose(cx, kind, x->prog, &x->facts, options, out->candidates));
  if (known->proposed) keep(cx, known->proposed, outline, as_proposed(cx, out));
  return KILN_OK;
}

// Outlines |g|. Different groups may have one outlined program, as when they read different slices
// of their tensors.
static kiln_status find_outline(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                                const kiln_facts *facts, const kiln_group *g,
                                const kiln_tile_search_options *options, uint64_t *out_number,
                                bool *out_is_new) {
  kiln_outline x;
  KILN_TRY(kiln_tile_outline_keyless(cx, p, facts, g, options->machine, &x));
  const kiln_symbol outline = identity_of_outline(cx, known, g->kind, &x);
  const uint64_t *same = kiln_map_find(&known->by_outline, outline);
  *out_number = same ? *same : (uint64_t)known->all.n;
  *out_is_new = !same;
  if (same) return KILN_OK;
  kiln_searched one;
  KILN_TRY(propose(cx, known, &x, outline, g->kind, options, &one));
  keep(cx, known, outline, one);
  return KILN_OK;
}

kiln_status kiln_searches_find(kiln_ctx *cx, kiln_searches *known, const kiln_program *p,
                               const kiln_facts *facts, const kiln_group *g,
                               const kiln_tile_search_options *options, kiln_searched *out,
                               bool *out_is_new) {
  const kiln_symbol group = identity_of(cx, known, p, facts, g);
  const uint64_t *found = kiln_map_find(&known->by_group, group);
  *out_is_new = false;
  if (!found) {
    uint64_t number = 0;
    KILN_TRY(find_outline(cx, known, p, facts, g, options, &number, out_is_new));
    found = kiln_map_put(&known->by_group, group, number);
  }
  *out = known->all.data[*found];
  return KILN_OK;
}

const char *kiln_searched_key(kiln_ctx *cx, const kiln_searched *of) {
  return of->key ? of->key : kiln_tile_key(cx, of->kind, of->prog, &of->facts);
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
