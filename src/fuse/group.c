// Fusion groups by rule. From the outputs to the inputs, every statement not yet taken becomes the
// root of a group and takes in producers that nobody else reads:
// - a map takes the contraction it reads element by element (its epilogue);
// - a map or reduction takes reductions and maps that share outer dims with it and whose rows fit
//   the cache.
#include "fuse/group.h"

#include "support/integer.h"
#include "template/form/attention.h"
#include "template/form/product.h"

#include <string.h>

enum { MAX_ROW_ELEMS = 1 << 16, MIN_OUTER = 2, SMALL_DOMAIN = 1 << 14, MAX_NUMBERED = 12 };

typedef struct grouping {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_facts *facts;
  kiln_users users;
  bool *taken; // by statement
  int64_t vector_elems;
  int64_t most_panel_bytes; // a decoded matrix may be as large: it stays in the L2
  // operands are computed while they are copied to shared memory, as on GPUs
  bool computes_operands;
} grouping;

static int kernel_of(const grouping *g, const kiln_stmt *s) {
  return kiln_fact_of(g->facts, s->out).kernel;
}

static bool is_contraction(const grouping *g, const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  return g->computes_operands ? kiln_stmt_is_product(s, &a, &b)
                              : kiln_stmt_is_contraction(s, &a, &b);
}

// Whether |s| gets a kernel of its own from the scatter templates: it has initial values or a
// guard, or its store's index is data.
static bool stands_alone(const kiln_ctx *cx, const kiln_stmt *s) {
  return s->init || s->guard || !kiln_stmt_is_plain(cx, s);
}

static bool same_extent(const kiln_expr *extent, const kiln_dim *d) {
  int64_t e = -1;
  return kiln_expr_is_int(extent, &e) && e == kiln_dim_extent(d);
}

// Whether |load|'s arguments are distinct variables of |s| that cover all its dims but those of
// extent 1.
static bool is_bijective(const kiln_stmt *s, const kiln_expr *load, int64_t elems) {
  unsigned seen = 0;
  for (int k = 0; k < load->n_args; k++) {
    if (kiln_expr_is_int(load->args[k], NULL)) continue;
    int d = 0;
    while (d < s->n_space &&
           !(load->args[k]->kind == KILN_EXPR_VAR && load->args[k]->u.sym == s->dims[d].name))
      d++;
    if (d == s->n_space || (seen >> d & 1)) return false;
    seen |= 1u << d;
  }
  for (int d = 0; d < s->n_space; d++)
    if (!(seen >> d & 1) && kiln_dim_extent(&s->dims[d]) != 1) return false;
  return kiln_stmt_domain(s) == elems;
}

// Whether |root| may run over the dims of the tensor that |load| reads. CPUs only: their results
// may be stored in any order.
static bool may_renumber(const grouping *g, const kiln_stmt *root, const kiln_expr *load) {
  return g->computes_operands ? kiln_tile_same_elements(g->cx, g->p, root, load)
                              : kiln_tile_renumbers(g->cx, g->p, root, load);
}

// The contraction that the map |root| reads once, element by element, and nobody else reads; -1 if
// there is none.
static int find_epilogue_source(grouping *g, const kiln_stmt *root) {
  kiln_loads loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, root);
  int best = -1;
  int64_t best_domain = 0;
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = g->p->tensors.data[loads.data[i]->u.tensor];
    if (t->role != KILN_TEMP || t->def < 0 || g->taken[t->def]) continue;
    const kiln_stmt *c = g->p->stmts.data[t->def];
    int reads = 0;
    for (int j = 0; j < loads.n; j++) reads += loads.data[j]->u.tensor == t->id;
    if (kernel_of(g, c) || !is_contraction(g, c) || reads != 1 ||
        g->users.first[t->id + 1] - g->users.first[t->id] != 1)
      continue;
    if (!is_bijective(root, loads.data[i], kiln_tensor_elems(t)) &&
        !may_renumber(g, root, loads.data[i]))
      continue;
    if (kiln_stmt_domain(c) > best_domain) best_domain = kiln_stmt_domain(c), best = c->id;
  }
  return best;
}

// The map that decodes packed constants for the contraction |c| alone, into a matrix whose rows |c|
// reduces and whose columns are its vectors; -1 if there is none. In one kernel, a block of the
// decoded matrix stays in the caches.
static int find_decoder(const grouping *g, const kiln_stmt *c) {
  const kiln_expr *loads[2] = {NULL, NULL};
  if (g->computes_operands || c->n_reduce != 1 ||
      !kiln_stmt_is_contraction(c, &loads[0], &loads[1]))
    return -1;
  const int64_t depth = kiln_dim_extent(&c->dims[c->n_space]);
  for (int i = 0; i < 2; i++) {
    const kiln_expr *load = loads[i];
    const kiln_tensor *t = g->p->tensors.data[load->u.tensor];
    if (t->def < 0 || t->rank != 2 || !kiln_stmt_decodes(g->cx, g->p, g->p->stmts.data[t->def]) ||
        !kiln_expr_uses(load->args[0], c->dims[c->n_space].name) ||
        load->args[0]->kind != KILN_EXPR_VAR || load->args[1]->kind != KILN_EXPR_VAR)
      continue;
    const int64_t columns = kiln_tensor_elems(t) / depth, lanes = 2 * g->vector_elems;
    if (g->users.first[t->id + 1] - g->users.first[t->id] == 1 && columns % lanes == 0 &&
        depth * lanes * kiln_dtype_bytes(t->dtype) <= g->most_panel_bytes)
      return t->def;
  }
  return -1;
}

// A group of rows. outer[s][d]: the dim of the root that dim d of member s runs along, -1 for none.
typedef struct rows {
  const kiln_stmt *root;
  unsigned shared; // dims of the root that all members have
  int n, n_loads;
  const kiln_stmt **members;
  int (*outer)[2 * KILN_MAX_RANK];
} rows;

static int member_of(const rows *r, const kiln_stmt *s) {
  for (int i = 0; i < r->n; i++)
    if (r->members[i] == s) return i;
  return -1;
}

// The dim of the root along which a load's argument runs, in terms of member |m|; -1 for any
// expression but a dim.
static int outer_of_argument(const rows *r, int m, const kiln_expr *argument) {
  const kiln_stmt *s = r->members[m];
  if (argument->kind != KILN_EXPR_VAR) return -1;
  for (int d = 0; d < s->n_space; d++)
    if (argument->u.sym == s->dims[d].name) return r->outer[m][d];
  return -1;
}

static int64_t outer_extent(const rows *r, unsigned shared) {
  int64_t n = 1;
  for (int d = 0; d < r->root->n_space; d++)
    if (shared >> d & 1) n *= kiln_dim_extent(&r->root->dims[d]);
  return n;
}

static unsigned drop_units(const rows *r, unsigned set) {
  for (int d = 0; d < r->root->n_space; d++)
    if (kiln_dim_extent(&r->root->dims[d]) == 1) set &= ~(1u << d);
  return set;
}

// How many units of work the shared dims give; a vector is one unit if they contain the contiguous
// dim.
static int64_t tasks_of(const grouping *g, const rows *r, unsigned shared) {
  const kiln_tensor *y = g->p->tensors.data[r->root->out];
  int last = y->rank > 0 && y->rank == r->root->n_space ? y->order[y->rank - 1] : -1;
  int64_t tasks = outer_extent(r, shared), lanes = g->vector_elems;
  if (last < 0 || !(shared >> last & 1)) return tasks;
  int64_t extent = kiln_dim_extent(&r->root->dims[last]);
  return tasks / extent * kiln_divide_up(extent, lanes);
}

// Adds producer |c| to the rows if all its readers are members, and it shares enough outer dims;
// true if it was added.
static bool add_member(grouping *g, rows *r, const kiln_stmt *c) {
  const kiln_tensor *t = g->p->tensors.data[c->out];
  int map[KILN_MAX_RANK];
  for (int k = 0; k < t->rank; k++) map[k] = -2;
  for (int u = g->users.first[t->id]; u < g->users.first[t->id + 1]; u++) {
    int m = member_of(r, g->p->stmts.data[g->users.users[u]]);
    if (m < 0) return false;
    kiln_loads loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, r->members[m]);
    for (int i = 0; i < loads.n; i++)
      for (int k = 0; loads.data[i]->u.tensor == t->id && k < t->rank; k++) {
        int o = outer_of_argument(r, m, loads.data[i]->args[k]);
        // it runs over a slice of it
        if (o >= 0 && !same_extent(t->shape[k], &r->root->dims[o])) o = -1;
        map[k] = map[k] == -2 || map[k] == o ? o : -1;
      }
  }
  const int n_loads = r->n_loads + kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, c).n;
  if (n_loads > KILN_MOST_LOADS) return false;
  unsigned image = 0;
  for (int k = 0; k < t->rank; k++)
    if (map[k] >= 0) image |= 1u << map[k];
  unsigned shared = drop_units(r, r->shared & image);
  int64_t outer = outer_extent(r, shared), elems = kiln_tensor_elems(t);
  // it is read through windows, or by other rows
  if (shared != r->shared && elems != outer) return false;
  if (shared == 0 || outer < MIN_OUTER || elems / outer > MAX_ROW_ELEMS) return false;
  if (tasks_of(g, r, shared) < 4 && kiln_stmt_domain(r->root) > SMALL_DOMAIN)
    return false; // too few for the threads
  for (int d = 0; d < c->n_space; d++) r->outer[r->n][d] = map[d];
  r->members[r->n++] = c;
  r->n_loads = n_loads;
  r->shared = shared;
  return true;
}

static bool may_join(grouping *g, const kiln_tensor *t) {
  if (t->role != KILN_TEMP || t->def < 0 || g->taken[t->def]) return false;
  const kiln_stmt *c = g->p->stmts.data[t->def];
  if (kernel_of(g, c) || kiln_fact_of(g->facts, t->id).assembled) return false;
  if (g->computes_operands && kiln_stmt_is_map(g->cx, c) && find_epilogue_source(g, c) >= 0)
    return false; // the contraction's kernel stores it, in fewer bytes than its f32 sums
  return !stands_alone(g->cx, c) && !is_contraction(g, c);
}

static void grow_rows(grouping *g, rows *r) {
  bool grown = true;
  while (grown) {
    grown = false;
    for (int m = 0; m < r->n && !grown; m++) {
      kiln_loads loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, r->members[m]);
      for (int i = 0; i < loads.n && !grown && r->n < 32; i++) {
        const kiln_tensor *t = g->p->tensors.data[loads.data[i]->u.tensor];
        if (may_join(g, t) && member_of(r, g->p->stmts.data[t->def]) < 0)
          grown = add_member(g, r, g->p->stmts.data[t->def]);
      }
    }
  }
}

static void add_group(grouping *g, kiln_groups *out, kiln_group_kind kind, int n,
                      const kiln_stmt *const *members) {
  kiln_group group = {.kind = kind, .n_stmts = n, .stmts = KILN_NEW_ARRAY(&g->cx->perm, int, n)};
  for (int i = 0; i < n; i++) {
    int at = i;
    for (; at > 0 && group.stmts[at - 1] > members[i]->id; at--)
      group.stmts[at] = group.stmts[at - 1];
    group.stmts[at] = members[i]->id;
    g->taken[members[i]->id] = true;
  }
  KILN_VEC_PUSH(&g->cx->perm, out, group);
}

// Whether the map |s| pads a tensor that is stored in another order of axes, so that rows of its
// result are no rows of its operand.
static bool turns_padding(const grouping *g, const kiln_stmt *s) {
  const kiln_tensor *y = g->p->tensors.data[s->out];
  const kiln_loads loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, s);
  if (y->role != KILN_TEMP || !kiln_stmt_is_map(g->cx, s)) return false;
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = g->p->tensors.data[loads.data[i]->u.tensor];
    if (t->role == KILN_TEMP && t->rank == y->rank && t->rank == s->n_space &&
        memcmp(t->order, y->order, sizeof y->order) &&
        kiln_load_bends(g->cx, loads.data[i], s->dims[s->n_space - 1].name))
      return true;
  }
  return false;
}

// Groups the contraction |c|, the map that decodes its operand, and its epilogue |finish| (NULL:
// none).
static void group_contraction(grouping *g, const kiln_stmt *c, const kiln_stmt *finish,
                              kiln_groups *out) {
  const int decoder = find_decoder(g, c);
  const kiln_stmt *members[3];
  int n = 0;
  if (decoder >= 0) members[n++] = g->p->stmts.data[decoder];
  members[n++] = c;
  if (finish) members[n++] = finish;
  add_group(g, out, KILN_GROUP_CONTRACTION, n, members);
}

static void group_rows(grouping *g, const kiln_stmt *root, kiln_groups *out) {
  rows r = {
      .root = root, .n = 1, .members = KILN_NEW_ARRAY(&g->cx->scratch, const kiln_stmt *, 40)};
  r.n_loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, root).n;
  r.outer = (int(*)[2 * KILN_MAX_RANK])
      kiln_arena_zalloc(&g->cx->scratch, sizeof(int[40][2 * KILN_MAX_RANK]));
  r.members[0] = root;
  for (int d = 0; d < root->n_space; d++) r.outer[0][d] = d;
  r.shared = drop_units(&r, (1u << root->n_space) - 1);
  if (!turns_padding(g, root)) grow_rows(g, &r);
  add_group(g, out, r.n == 1 && root->n_reduce == 0 ? KILN_GROUP_MAP : KILN_GROUP_ROWS, r.n,
            r.members);
}

// Groups the statements that a pass assigned to one kernel (kiln_fact's |kernel|); |root| is the
// last of them.
static void group_numbered(grouping *g, const kiln_stmt *root, kiln_groups *out) {
  const kiln_stmt *members[MAX_NUMBERED];
  kiln_attention_form form;
  bool streams = false;
  int n = 0;
  for (int i = 0; i <= root->id && n < MAX_NUMBERED; i++) {
    const kiln_stmt *s = g->p->stmts.data[i];
    if (!s || kernel_of(g, s) != kernel_of(g, root)) continue;
    streams |= kiln_attention_find(g->cx, g->p, s, &form);
    members[n++] = s;
  }
  add_group(g, out, streams ? KILN_GROUP_ATTENTION : KILN_GROUP_WINOGRAD, n, members);
}

static grouping grouping_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m) {
  return (grouping){.cx = cx,
                    .p = p,
                    .facts = facts,
                    .vector_elems = m->vector_bytes / 4,
                    .most_panel_bytes = m->l2_bytes,
                    .computes_operands = m->target->has_explicit_scopes};
}

// Whether the map |root| loads each element of |c|'s result once.
static bool is_epilogue(grouping *g, const kiln_stmt *root, const kiln_stmt *c) {
  const kiln_loads loads = kiln_stmt_loads(g->cx, &g->cx->scratch, g->p, root);
  const kiln_expr *load = NULL;
  if (!kiln_stmt_is_map(g->cx, root) || !is_contraction(g, c)) return false;
  for (int i = 0; i < loads.n; i++) {
    if (loads.data[i]->u.tensor != c->out) continue;
    if (load) return false;
    load = loads.data[i];
  }
  return load && (is_bijective(root, load, kiln_tensor_elems(g->p->tensors.data[c->out])) ||
                  may_renumber(g, root, load));
}

// --- maps behind products ---

// What reads |s| among all[0..n), if it is one map that loads each element once; -1: nothing, or
// something else.
static int only_map_of(kiln_ctx *cx, const kiln_program *p, int n, const kiln_stmt **all,
                       const kiln_stmt *s) {
  int found = -1;
  for (int i = 0; i < n; i++) {
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, all[i]);
    for (int k = 0; k < loads.n; k++) {
      if (loads.data[k]->u.tensor != s->out) continue;
      if (found >= 0 || !kiln_stmt_is_map(cx, all[i]) ||
          !is_bijective(all[i], loads.data[k], kiln_tensor_elems(p->tensors.data[s->out])))
        return -1;
      found = i;
    }
  }
  return found;
}

static const kiln_expr *read_body(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_stmt *s = argument;
  kiln_symbol vars[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != s->out) return NULL;
  for (int k = 0; k < e->n_args; k++) vars[k] = s->dims[k].name;
  return kiln_expr_substitute(cx, s->body, e->n_args, vars, e->args);
}

// |reader| with the body of the map |s| in place of its result.
static const kiln_stmt *with_map(kiln_ctx *cx, const kiln_stmt *reader, const kiln_stmt *s) {
  kiln_stmt *both = KILN_NEW(&cx->scratch, kiln_stmt);
  *both = *reader;
  both->body = kiln_product_unrounded(
      cx,
      kiln_stmt_simplify(cx, reader, kiln_expr_replace(cx, reader->body, read_body, (void *)s)));
  return both;
}

const kiln_stmt **kiln_group_fold(kiln_ctx *cx, const kiln_program *p, const kiln_machine *m, int n,
                                  const int *stmts, uint64_t stored, int *out_n) {
  const kiln_stmt **all = KILN_NEW_ARRAY(&cx->scratch, const kiln_stmt *, n);
  const kiln_expr *a = NULL, *b = NULL;
  bool multiplies = false;
  for (int i = 0; i < n; i++) {
    all[i] = p->stmts.data[stmts[i]];
    multiplies |= kiln_stmt_is_product(all[i], &a, &b);
  }
  *out_n = n;
  if (!m->target->has_grids || !multiplies || stored) return all;
  for (int i = 0; i + 1 < *out_n; i++) {
    if (!kiln_stmt_is_map(cx, all[i])) continue;
    const int reader = only_map_of(cx, p, *out_n, all, all[i]);
    if (reader <= i) continue;
    all[reader] = with_map(cx, all[reader], all[i]);
    for (int k = i; k + 1 < *out_n; k++) all[k] = all[k + 1];
    --*out_n;
    i--;
  }
  return all;
}

kiln_group_kind kiln_tile_kind_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                  const kiln_machine *m, int n, const int *stmts, uint64_t stored) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  grouping g = grouping_of(cx, p, facts, m);
  const kiln_stmt *root = p->stmts.data[stmts[n - 1]], *first = p->stmts.data[stmts[0]];
  kiln_attention_form form;
  kiln_group_kind kind = kiln_stmt_is_map(cx, root) && n == 1 ? KILN_GROUP_MAP : KILN_GROUP_ROWS;
  for (int i = 0; i < n; i++)
    if (is_contraction(&g, p->stmts.data[stmts[i]])) kind = KILN_GROUP_FUSED_LAYERS;
  if (kind == KILN_GROUP_FUSED_LAYERS && n == 1) kind = KILN_GROUP_CONTRACTION;
  const bool decodes = n > 1 && kiln_stmt_decodes(cx, p, first);
  int n_folded = n;
  const kiln_stmt **folded = kiln_group_fold(cx, p, m, n, stmts, stored, &n_folded),
                  *c = folded[decodes];
  if (decodes) g.users = kiln_users_make(cx, &cx->scratch, p);
  if (!stored && (!decodes || find_decoder(&g, c) == first->id) &&
      (c == root ? decodes : n_folded == 2 + decodes && is_epilogue(&g, folded[n_folded - 1], c)))
    kind = KILN_GROUP_CONTRACTION;
  if (n == 1 && stands_alone(cx, root)) kind = KILN_GROUP_SCATTER;
  const bool is_numbered = kernel_of(&g, root) != 0;
  if (is_numbered) kind = KILN_GROUP_WINOGRAD;
  for (int i = 0; i < n && is_numbered; i++)
    if (kiln_attention_find(cx, p, p->stmts.data[stmts[i]], &form)) kind = KILN_GROUP_ATTENTION;
  kiln_arena_rewind(&cx->scratch, mark);
  return kind;
}

kiln_status kiln_tile_group(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m, kiln_groups *out) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  grouping g = grouping_of(cx, p, facts, m);
  g.users = kiln_users_make(cx, &cx->scratch, p);
  g.taken = KILN_NEW_ARRAY(&cx->scratch, bool, p->stmts.n);
  *out = (kiln_groups){0};
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s || kiln_fact_of(facts, s->out).assembled || g.taken[i]) continue;
    if (kernel_of(&g, s)) {
      group_numbered(&g, s, out);
      continue;
    }
    int source = kiln_stmt_is_map(cx, s) ? find_epilogue_source(&g, s) : -1;
    if (source >= 0) {
      group_contraction(&g, p->stmts.data[source], s, out);
    } else if (stands_alone(cx, s)) add_group(&g, out, KILN_GROUP_SCATTER, 1, &s);
    else if (is_contraction(&g, s)) group_contraction(&g, s, NULL, out);
    else group_rows(&g, s, out);
  }
  for (int i = 0, j = out->n - 1; i < j; i++, j--) { // to the order of execution
    kiln_group t = out->data[i];
    out->data[i] = out->data[j];
    out->data[j] = t;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
