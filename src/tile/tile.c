// The rule-based scheduler: the passes in order, and one kernel for all groups of equal form.
#include "tile/kernel.h"
#include "tile/search.h"
#include "tile/winograd.h"

#include <ctype.h>

// A C identifier from the graph nodes' names: the last part of the last node's name, and the
// kernel's number.
static kiln_symbol kernel_name(kiln_ctx *cx, kiln_group_kind kind, kiln_symbol origin, int id) {
  static const char *const kinds[] = {[KILN_GROUP_MAP] = "map",
                                      [KILN_GROUP_CONTRACTION] = "contract",
                                      [KILN_GROUP_ROWS] = "rows",
                                      [KILN_GROUP_SCATTER] = "scatter",
                                      [KILN_GROUP_WINOGRAD] = "winograd",
                                      [KILN_GROUP_CHAIN] = "chain"};
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

static kiln_symbol group_origin(kiln_ctx *cx, const kiln_program *p, const kiln_group *g) {
  kiln_symbol origin = 0;
  for (int i = 0; i < g->n_stmts; i++) {
    kiln_symbol one = p->stmts.data[g->stmts[i]]->origin;
    if (!one || one == origin) continue;
    origin = origin ? kiln_symbol_printf(cx, "%s+%s", kiln_symbol_text(cx, origin),
                                         kiln_symbol_text(cx, one))
                    : one;
  }
  return origin;
}

void kiln_kernel_take(kiln_ctx *cx, kiln_kernel *k, const kiln_tile_candidate *taken) {
  kiln_text script;
  kiln_text_init(&script, &cx->perm);
  for (const kiln_tile_candidate *c = k->candidates.data; c < taken; c++)
    if (c->refused) kiln_text_printf(&script, "# %s refused: %s\n", c->family->name, c->refused);
  kiln_text_add(&script, taken->script);
  k->script = script.data;
  k->loops = taken->loops;
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

static kiln_status add_kernel(kiln_ctx *cx, const kiln_group *g, const kiln_extract *x,
                              const kiln_machine *m, const kiln_tile_options *how,
                              kiln_kernels *out, kiln_symbol origin) {
  kiln_kernel *k = KILN_NEW(&cx->perm, kiln_kernel);
  *k = (kiln_kernel){.id = out->kernels.n,
                     .name = kernel_name(cx, g->kind, origin, out->kernels.n),
                     .key = x->key,
                     .prog = x->prog,
                     .flops = x->flops,
                     .bytes = x->bytes};
  const kiln_tile_search_options options = {m, how->n_threads,
                                            how->n_lowered > 1 ? how->n_lowered : 1};
  KILN_TRY(kiln_tile_search(cx, g->kind, x->prog, &options, &k->candidates));
  KILN_TRY(take_best(cx, k));
  KILN_VEC_PUSH(&cx->perm, &out->kernels, k);
  return KILN_OK;
}

static void mark_outputs(kiln_program *p) {
  for (int i = 0; i < p->outputs.n; i++) {
    kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    if (t->role == KILN_TEMP) t->role = KILN_OUTPUT;
  }
}

kiln_status kiln_tile_program(kiln_ctx *cx, kiln_program *p, const kiln_machine *m,
                              const kiln_tile_options *options, kiln_kernels *out) {
  kiln_groups groups;
  *out = (kiln_kernels){0};
  mark_outputs(p);
  KILN_TRY(kiln_tile_absorb(cx, p));
  KILN_TRY(kiln_tile_layout(cx, p));
  if (!options->no_winograd) KILN_TRY(kiln_tile_winograd(cx, p, m, options->n_threads));
  KILN_TRY(kiln_tile_assemble(cx, p));
  KILN_TRY(kiln_tile_group(cx, p, m, &groups));
  out->edges = groups.edges;
  kiln_map by_key;
  kiln_map_init(&by_key, &cx->perm);
  for (int i = 0; i < groups.n; i++) {
    const kiln_group *g = &groups.data[i];
    kiln_extract x;
    KILN_TRY(kiln_tile_extract(cx, p, g, m, &x));
    kiln_symbol origin = group_origin(cx, p, g);
    uint64_t key = kiln_symbol_of(cx, x.key), *known = kiln_map_find(&by_key, key);
    if (!known) {
      KILN_TRY(add_kernel(cx, g, &x, m, options, out, origin));
      known = kiln_map_put(&by_key, key, (uint64_t)(out->kernels.n - 1));
    }
    KILN_VEC_PUSH(&cx->perm, &out->launches,
                  (kiln_launch){.kernel = (int)*known,
                                .origin = origin,
                                .n_args = x.n_args,
                                .args = x.args,
                                .n_stmts = g->n_stmts,
                                .stmts = g->stmts});
  }
  return KILN_OK;
}
