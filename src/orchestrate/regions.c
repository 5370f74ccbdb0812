// Regions of kernels (orchestrate/regions.h) by union-find: kernels and statements are united if
// they belong to one region.
#include "orchestrate/regions.h"

typedef struct uniting {
  kiln_ctx *cx;
  const kiln_orchestrated *two;
  int first
      [2]; // index of each program's first kernel; statements without a kernel follow the kernels
  int *above;     // [both programs] parent in the union-find forest
  kiln_map by[2]; // tensor name -> index of the kernel or statement that computes it
} uniting;

static int top_of(const uniting *u, int kernel) {
  while (u->above[kernel] != kernel) kernel = u->above[kernel];
  return kernel;
}

static void unite(uniting *u, int one, int other) {
  one = top_of(u, one);
  other = top_of(u, other);
  u->above[one > other ? one : other] = one < other ? one : other;
}

static kiln_symbol name_of(const kiln_program *p, int stmt) {
  return p->tensors.data[p->stmts.data[stmt]->out]->name;
}

// Unites all that compute the tensor of |stmt|.
static void add_stmt(uniting *u, int side, int number, int stmt) {
  const kiln_symbol name = name_of(u->two[side].p, stmt);
  for (int s = 0; s < 2; s++) {
    const uint64_t *known = kiln_map_find(&u->by[s], name);
    if (known) unite(u, (int)*known, number);
  }
  kiln_map_put(&u->by[side], name, (uint64_t)number);
}

static void add_stmts(uniting *u, int side) {
  const kiln_orchestrated *one = &u->two[side];
  const int n = one->chosen->kernels.n;
  for (int k = 0; k < n; k++) {
    const kiln_group *g = &one->chosen->kernels.data[k].group;
    for (int i = 0; i < g->n_stmts; i++) add_stmt(u, side, u->first[side] + k, g->stmts[i]);
  }
  for (int i = 0; i < one->p->stmts.n; i++)
    if (one->p->stmts.data[i] && !kiln_map_find(&u->by[side], name_of(one->p, i)))
      add_stmt(u, side, u->first[side] + n + i, i);
}

// Unites the maker of |stmt| with the makers of its operands that only this program has.
static void add_reads(uniting *u, int side, int stmt) {
  const kiln_program *p = u->two[side].p;
  const kiln_mark mark = kiln_arena_mark(&u->cx->scratch);
  const kiln_loads loads = kiln_stmt_loads(u->cx, &u->cx->scratch, p, p->stmts.data[stmt]);
  const uint64_t *reader = kiln_map_find(&u->by[side], name_of(p, stmt));
  for (int l = 0; l < loads.n; l++) {
    const kiln_symbol name = p->tensors.data[loads.data[l]->u.tensor]->name;
    const uint64_t *maker = kiln_map_find(&u->by[side], name);
    if (maker && !kiln_map_find(&u->by[!side], name)) unite(u, (int)*maker, (int)*reader);
  }
  kiln_arena_rewind(&u->cx->scratch, mark);
}

kiln_regions kiln_regions_make(kiln_ctx *cx, const kiln_orchestrated *two) {
  const int n_first = two[0].chosen->kernels.n + two[0].p->stmts.n,
            n = n_first + two[1].chosen->kernels.n + two[1].p->stmts.n;
  uniting u = {
      .cx = cx, .two = two, .first = {0, n_first}, .above = KILN_NEW_ARRAY(&cx->perm, int, n + 1)};
  kiln_regions out = {.n = n, .all = KILN_NEW_ARRAY(&cx->perm, kiln_cost_region, n + 1)};
  kiln_map_init(&out.of, &cx->perm);
  for (int i = 0; i < n; i++) u.above[i] = i;
  for (int side = 0; side < 2; side++) kiln_map_init(&u.by[side], &cx->perm);
  for (int side = 0; side < 2; side++) add_stmts(&u, side);
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < two[side].p->stmts.n; i++)
      if (two[side].p->stmts.data[i]) add_reads(&u, side, i);
  for (int side = 0; side < 2; side++) {
    for (int k = 0; k < two[side].chosen->kernels.n; k++)
      out.all[top_of(&u, u.first[side] + k)].ns[side] += two[side].chosen->kernels.data[k].ns;
    for (int i = 0; i < u.by[side].n; i++)
      kiln_map_put(&out.of, u.by[side].entries[i].key,
                   (uint64_t)top_of(&u, (int)u.by[side].entries[i].value));
  }
  return out;
}

const kiln_cost_region *kiln_regions_find(const kiln_regions *r, kiln_symbol tensor) {
  const uint64_t *region = kiln_map_find(&r->of, tensor);
  return region ? &r->all[*region] : NULL;
}
