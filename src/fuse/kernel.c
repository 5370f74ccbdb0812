// From a program to kernels: cost-driven fusion, then one kernel for all fused groups of equal
// form.
#include "fuse/kernel.h"
#include "fuse/cached_schedule.h"
#include "fuse/split.h"
#include "transform/transform.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

// A C identifier from the graph nodes' names: the last part of the last node's name, and the
// kernel's number.
static kiln_symbol kernel_name(kiln_ctx *cx, kiln_group_kind kind, kiln_symbol origin, int id) {
  static const char *const kinds[] = {
      [KILN_GROUP_MAP] = "map",           [KILN_GROUP_CONTRACTION] = "contract",
      [KILN_GROUP_ROWS] = "rows",         [KILN_GROUP_SCATTER] = "scatter",
      [KILN_GROUP_WINOGRAD] = "winograd", [KILN_GROUP_ATTENTION] = "stream",
      [KILN_GROUP_FUSED_LAYERS] = "chain"};
  char name[48];
  int n = 0;
  const char *text = kiln_symbol_text(cx, origin);
  for (const char *c = text; *c && *c != '+'; c++)
    if (*c == '/') text = c + 1;
  for (; *text && *text != '+' && n < 32; text++)
    if (isalnum((unsigned char)*text)) name[n++] = *text;
    else if (n && name[n - 1] != '_') name[n++] = '_';
  name[n] = 0;
  return n ? kiln_symbol_printf(cx, "k%d_%s_%s", id, kinds[kind], name)
           : kiln_symbol_printf(cx, "k%d_%s", id, kinds[kind]);
}

// Adds the names of |nodes|, which '+' separates, that are not there yet.
static void add_nodes(kiln_ctx *cx, const char *nodes, kiln_map *seen, kiln_text *out) {
  for (const char *at = nodes; *at;) {
    const size_t n = strcspn(at, "+");
    const uint64_t key = kiln_symbol_of(cx, kiln_arena_strndup(&cx->scratch, at, n));
    if (!kiln_map_find(seen, key)) {
      kiln_map_put(seen, key, 1);
      if (out->n > 0) kiln_text_add(out, "+");
      kiln_text_add_bytes(out, at, n);
    }
    at += n + (at[n] == '+');
  }
}

// The graph nodes that the group computes, each once: a node may have become several statements.
static kiln_symbol group_origin(kiln_ctx *cx, const kiln_program *p, const kiln_group *g) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_map seen;
  kiln_text text;
  kiln_map_init(&seen, &cx->scratch);
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < g->n_stmts; i++) {
    const kiln_symbol one = p->stmts.data[g->stmts[i]]->origin;
    if (one) add_nodes(cx, kiln_symbol_text(cx, one), &seen, &text);
  }
  const kiln_symbol origin = text.n ? kiln_symbol_of(cx, text.data) : 0;
  kiln_arena_rewind(&cx->scratch, mark);
  return origin;
}

// Writes to the script what it costs to read constants in the panels of another bucket's program,
// if the cheapest candidate wants other panels.
static void explain_panels(const kiln_tile_candidates *all, const kiln_tile_candidate *taken,
                           kiln_text *script) {
  double least = taken->cost.ns;
  for (int i = 0; i < all->n; i++)
    if (all->data[i].wants_panels && !all->data[i].refused)
      least = fmin(least, all->data[i].cost.ns);
  if (taken->wants_panels || !(least < taken->cost.ns)) return;
  kiln_text_printf(script,
                   "# panels are another variant's: with its own it would take %.3f of the time\n",
                   least / taken->cost.ns);
}

static void run_form(kiln_kernel *k, const kiln_template *from, const kiln_form *form) {
  k->from = from;
  k->prog = form->prog;
  k->facts = form->facts;
}

void kiln_kernel_take(kiln_ctx *cx, kiln_kernel *k, const kiln_tile_candidate *taken) {
  kiln_text script;
  kiln_text_init(&script, &cx->perm);
  for (const kiln_tile_candidate *c = k->candidates.data; c < taken; c++)
    if (c->refused) kiln_text_printf(&script, "# %s refused: %s\n", c->from->name, c->refused);
  explain_panels(&k->candidates, taken, &script);
  kiln_text_add(&script, taken->script);
  if (taken->form) run_form(k, taken->from, taken->form);
  k->script = script.data;
  k->loops = taken->loops;
  k->by_library = taken->by_library;
  k->loops->name = k->name;
}

static kiln_status take_best(kiln_ctx *cx, kiln_kernel *k) {
  const kiln_tile_candidate *best = kiln_tile_best(&k->candidates);
  if (!best)
    return KILN_FAIL(cx->diag, KILN_INTERNAL, kiln_symbol_text(cx, k->name),
                     "search: a candidate must be accepted");
  kiln_kernel_take(cx, k, best);
  return KILN_OK;
}

kiln_status kiln_kernel_replay(kiln_ctx *cx, const kiln_machine *m, const char *script,
                               kiln_kernel *k) {
  kiln_schedule s;
  KILN_TRY(kiln_schedule_begin(cx, k->prog, &s));
  s.instrs = m->target->instrs(cx, m, &s.n_instrs);
  KILN_TRY(kiln_schedule_replay(&s, script));
  k->loops = s.loops;
  k->loops->name = k->name;
  k->script = kiln_schedule_script(&s);
  return KILN_OK;
}

// Brings |k|'s outlined program into the canonical form of the template |from|.
static kiln_status take_form(kiln_ctx *cx, const kiln_machine *m, const char *from,
                             kiln_kernel *k) {
  const kiln_template *t = kiln_template_find(m, from);
  const kiln_form outlined = {.prog = k->prog, .facts = k->facts},
                  *form = t ? kiln_template_match(cx, t, m, &outlined) : NULL;
  if (!form)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, NULL,
                     "cached schedule: must name the kernel's template");
  run_form(k, t, form);
  return KILN_OK;
}

static kiln_status take_known(kiln_ctx *cx, const kiln_machine *m, const kiln_cached_kernel *known,
                              kiln_kernel *k) {
  KILN_TRY(take_form(cx, m, known->from, k));
  k->loops = kiln_cached_kernel_loops(cx, m, known);
  if (k->loops) k->loops->name = k->name;
  else KILN_TRY(kiln_kernel_replay(cx, m, known->script, k));
  k->script = known->script; // including its comments on refused candidates
  return KILN_OK;
}

// The number of elements that the kernel accesses at most behind argument |a|: a parameter may be a
// view of a part of the tensor.
static int64_t elems_of(const kiln_program *p, const kiln_outline *x, const kiln_program *form,
                        int a) {
  int64_t elems = kiln_tensor_elems(p->tensors.data[x->args[a].tensor]);
  for (int i = 0, k = 0; i < form->tensors.n; i++) {
    const kiln_tensor *t = form->tensors.data[i];
    if (t->role == KILN_TEMP) continue;
    if (x->args[k++].tensor == x->args[a].tensor && kiln_tensor_elems(t) < elems)
      elems = kiln_tensor_elems(t);
  }
  return elems;
}

// Counts the work of a launch by the program that is run, whose form may pad: padding is computed,
// too.
static void count_work(kiln_ctx *cx, const kiln_program *p, const kiln_outline *x, kiln_kernel *k) {
  k->flops = k->kind == KILN_GROUP_WINOGRAD ? kiln_winograd_flops(cx, k->prog)
                                            : kiln_program_flops(cx, k->prog);
  for (int a = 0; a < x->n_args; a++) {
    const kiln_tensor *t = p->tensors.data[x->args[a].tensor];
    bool again = false;
    for (int j = 0; j < a; j++) again |= x->args[j].tensor == x->args[a].tensor;
    if (!again) k->bytes += (double)elems_of(p, x, k->prog, a) * kiln_dtype_bytes(t->dtype);
  }
}

// The kernel of |fusion|: by |known|, a cached schedule, or by its best candidate if that is NULL.
static kiln_status add_kernel(kiln_ctx *cx, const kiln_program *p, const kiln_fused_group *fusion,
                              const kiln_cached_kernel *known,
                              const kiln_tile_search_options *options, kiln_kernels *out,
                              kiln_symbol origin) {
  const kiln_outline *x = &fusion->outline;
  kiln_kernel *k = KILN_NEW(&cx->perm, kiln_kernel);
  *k = (kiln_kernel){.id = out->kernels.n,
                     .name = kernel_name(cx, fusion->group.kind, origin, out->kernels.n),
                     .key = x->key ? x->key
                                   : kiln_tile_key(cx, fusion->group.kind, x->prog, &x->facts),
                     .kind = fusion->group.kind,
                     .outlined = x->prog,
                     .prog = x->prog,
                     .facts = x->facts};
  if (known) {
    KILN_TRY(take_known(cx, options->machine, known, k));
  } else {
    k->candidates = *fusion->candidates;
    KILN_TRY(take_best(cx, k));
  }
  count_work(cx, p, x, k);
  KILN_VEC_PUSH(&cx->perm, &out->kernels, k);
  return KILN_OK;
}

static int number_of(kiln_ctx *cx, kiln_map *io, const char *key, int otherwise) {
  const uint64_t symbol = kiln_symbol_of(cx, key), *known = kiln_map_find(io, symbol);
  return known ? (int)*known : (int)*kiln_map_put(io, symbol, (uint64_t)otherwise);
}

// The number of |fusion|'s kernel: an existing one, or |next|. |io| maps the keys of outlined
// programs and of their canonical forms to kernels, because different programs may have one form.
static kiln_status find_kernel(kiln_ctx *cx, kiln_map *io, const kiln_fused_group *fusion,
                               const kiln_tile_search_options *options, int next, int *out) {
  const uint64_t symbol = kiln_symbol_of(cx, fusion->outline.key),
                 *known = kiln_map_find(io, symbol);
  if (known) {
    *out = (int)*known;
    return KILN_OK;
  }
  KILN_TRY(kiln_tile_lower(cx, options, fusion->candidates));
  const kiln_tile_candidate *best = kiln_tile_best(fusion->candidates);
  *out = next;
  if (best && best->form->match)
    *out = number_of(
        cx, io, kiln_tile_key(cx, fusion->group.kind, best->form->prog, &best->form->facts), next);
  kiln_map_put(io, symbol, (uint64_t)*out);
  return KILN_OK;
}

// Makes a kernel for all groups of equal form; answered[kernel] is its cached schedule, or NULL.
static kiln_status add_fusions(kiln_ctx *cx, const kiln_program *p,
                               const kiln_fused_groups *fusions, const kiln_cached_kernel *answered,
                               int n_answered, const kiln_tile_search_options *search,
                               kiln_kernels *out) {
  kiln_map by_key;
  kiln_map_init(&by_key, &cx->perm);
  for (int i = 0; i < fusions->n; i++) {
    const kiln_fused_group *fusion = &fusions->data[i];
    const kiln_symbol origin = group_origin(cx, p, &fusion->group);
    int kernel = fusion->kernel;
    if (!answered) KILN_TRY(find_kernel(cx, &by_key, fusion, search, out->kernels.n, &kernel));
    if (kernel == out->kernels.n) {
      if (answered && out->kernels.n >= n_answered)
        return KILN_FAIL(cx->diag, KILN_BAD_INPUT, NULL,
                         "cached schedule: must have a script a kernel");
      KILN_TRY(add_kernel(cx, p, fusion, answered ? &answered[out->kernels.n] : NULL, search, out,
                          origin));
    }
    KILN_VEC_PUSH(&cx->perm, &out->launches,
                  (kiln_launch){.kernel = kernel,
                                .origin = origin,
                                .n_args = fusion->outline.n_args,
                                .args = fusion->outline.args,
                                .n_stmts = fusion->group.n_stmts,
                                .stmts = fusion->group.stmts,
                                .stored = fusion->group.stored});
  }
  return KILN_OK;
}

bool kiln_kernels_look_up(kiln_ctx *cx, kiln_program *p, const kiln_tile_options *options,
                          kiln_kernels *out) {
  if (!options->look_up) return false;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const char *schedule = options->look_up(options->user, kiln_schedule_key(cx, p, &out->facts));
  kiln_arena_rewind(&cx->scratch, mark);
  kiln_fused_groups fusions;
  kiln_cached_kernel *kernels = NULL;
  int n_kernels = 0;
  if (!schedule || !kiln_cached_schedule_read(cx, p, &out->facts, options->search.machine, schedule,
                                              out, &fusions, &kernels, &n_kernels))
    return false;
  kiln_diag *outer = cx->diag;
  cx->diag = NULL; // a cached schedule that does not replay is a miss
  const kiln_status st = add_fusions(cx, p, &fusions, kernels, n_kernels, &options->search, out);
  cx->diag = outer;
  out->is_cached = st == KILN_OK;
  if (out->is_cached) return true;
  kiln_kernels none = {.facts = out->facts, .late = out->late};
  // keeps the paddings that are in place now
  none.materialized.data = out->materialized.data;
  none.materialized.n = out->materialized.n;
  none.materialized.cap = out->materialized.cap;
  *out = none;
  return false;
}

// The paddings that may still be written in place, and that nobody took in.
static kiln_materialized find_lone(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                   const kiln_fused_groups *fusions) {
  kiln_materialized lone = {0, KILN_NEW_ARRAY(&cx->perm, int, fusions->n)};
  bool *alone = KILN_NEW_ARRAY(&cx->perm, bool, p->stmts.n);
  for (int i = 0; i < fusions->n; i++)
    if (fusions->data[i].group.n_stmts == 1) alone[fusions->data[i].group.stmts[0]] = true;
  for (int i = 0; i < p->stmts.n; i++)
    if (alone[i] && kiln_fact_of(facts, p->stmts.data[i]->out).waits) lone.stmts[lone.n++] = i;
  return lone;
}

// Groups the statements, and merges groups. On GPUs, groups of which separate parts take less time
// and that nobody has taken in are split, and all are merged again.
static kiln_status connect(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                           const kiln_tile_search_options *search, kiln_connected *io) {
  const bool splits = search->machine->target->has_grids && !search->no_connect;
  kiln_groups groups;
  bool again = splits;
  KILN_TRY(kiln_tile_group(cx, p, facts, search->machine, &groups));
  if (splits) KILN_TRY(kiln_groups_weigh_parts(cx, p, facts, search, io->known, &groups));
  KILN_TRY(kiln_tile_connect_groups(cx, p, facts, &groups, search, io->known, &io->fusions));
  if (splits)
    KILN_TRY(kiln_groups_split(cx, p, facts, search, io->known, &io->fusions, &groups, &again));
  if (again) {
    groups.edges = (kiln_edge_decisions){0};
    KILN_TRY(kiln_tile_connect_groups(cx, p, facts, &groups, search, io->known, &io->fusions));
  }
  io->edges = groups.edges;
  return KILN_OK;
}

kiln_status kiln_kernels_connect(kiln_ctx *cx, kiln_program *p, const kiln_tile_options *options,
                                 kiln_connected *io, kiln_kernels *out) {
  io->known = kiln_searches_make(cx, options->proposed);
  for (;;) {
    KILN_TRY(connect(cx, p, &out->facts, &options->search, io));
    const kiln_materialized lone = find_lone(cx, p, &out->facts, &io->fusions);
    if (lone.n == 0) return KILN_OK;
    KILN_TRY(kiln_tile_materialize(cx, p, &out->facts, lone.n, lone.stmts));
    KILN_VEC_PUSH(&cx->perm, &out->materialized, lone);
  }
}

kiln_status kiln_kernels_lower(kiln_ctx *cx, const kiln_program *p,
                               const kiln_tile_options *options, const kiln_connected *connected,
                               kiln_kernels *out) {
  out->edges = connected->edges;
  return add_fusions(cx, p, &connected->fusions, NULL, 0, &options->search, out);
}

int kiln_kernel_launches(const kiln_kernels *k, int kernel) {
  int n = 0;
  for (int i = 0; i < k->launches.n; i++) n += k->launches.data[i].kernel == kernel;
  return n;
}
